"""The expressions that stages really compute once inlined stages are substituted."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ansor.schedule.stages import ComputeAt
from ansor.te.expr import Expr, Read, Reduce, Var, cast, distinct_nodes, rewrite, substitute
from ansor.te.tensor import ComputeOp, Operation

if TYPE_CHECKING:
    from ansor.schedule.state import State


def effective_body(state: State, stage: int) -> tuple[Expr, ...]:
    """The body of a stage with reads of inlined stages replaced by what those compute.

    The outputs of one reduction keep sharing their sources.
    """
    return _body(state.stages[stage].compute, inlined_operations(state))


def inlined_operations(state: State) -> frozenset[Operation]:
    """The operations that have no loops of their own."""
    return frozenset(stage.op for stage in state.stages if stage.compute_at is ComputeAt.INLINED)


@lru_cache(maxsize=4096)
def effective_reads(op: ComputeOp, inlined: frozenset[Operation]) -> tuple[Read, ...]:
    """The reads in an operation's body, with others inlined as in `effective_body`; each node once."""
    found: dict[int, Read] = {}
    for root in _body(op, inlined):
        found.update((id(node), node) for node in distinct_nodes(root) if isinstance(node, Read))
    return tuple(found.values())


def _body(op: ComputeOp, inlined: frozenset[Operation]) -> tuple[Expr, ...]:
    for producer in _inlined_producers(op, inlined):  # inputs first, so that nothing recurses down a chain
        _effective(producer, inlined)
    return _effective(op, inlined)


@lru_cache(maxsize=4096)
def _inlined_producers(op: ComputeOp, inlined: frozenset[Operation]) -> tuple[ComputeOp, ...]:
    """The operations that are inlined into `op`, directly or not, each after those inlined into it."""
    order: dict[ComputeOp, None] = {}
    stack: list[tuple[ComputeOp, bool]] = [(op, False)]
    while stack:
        current, expanded = stack.pop()
        if expanded:
            order[current] = None
        elif current not in order:
            stack.append((current, True))
            producers = (tensor.op for tensor in current.input_tensors)
            stack.extend((p, False) for p in producers if p in inlined and isinstance(p, ComputeOp))
    return tuple(producer for producer in order if producer is not op)


@lru_cache(maxsize=4096)
def _effective(op: ComputeOp, inlined: frozenset[Operation]) -> tuple[Expr, ...]:
    if not any(tensor.op in inlined for tensor in op.input_tensors):
        return op.body

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node.tensor.op not in inlined:
            return None
        producer = node.tensor.op
        assert isinstance(producer, ComputeOp)
        pairs = zip(producer.axis, node.indices, strict=True)
        mapping: dict[Var, Expr] = {axis: cast(index, axis.dtype) for axis, index in pairs}
        return substitute(_effective(producer, inlined)[node.tensor.value_index], mapping)

    shared: dict[int, tuple[Expr, ...]] = {}
    body: list[Expr] = []
    for root in op.body:
        if isinstance(root, Reduce):
            sources = shared.setdefault(id(root.sources), tuple(rewrite(s, visit) for s in root.sources))
            condition = None if root.condition is None else rewrite(root.condition, visit)
            body.append(replace(root, sources=sources, condition=condition))
        else:
            body.append(rewrite(root, visit))
    return tuple(body)
