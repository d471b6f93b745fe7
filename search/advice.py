"""What another definition of the same values would gain, where no program of this one can: told at level 3.

Outputs that reduce the same tensor over the same axes, as a sum and a sum of squares do, are stages of their
own, and each passes over memory. Defined as one reduction of several values they are one stage. Of columns of
200704 x 64 floats, sum and sum of squares took 8.0 ms as two reductions and 5.4 as one; of rows of
32768 x 768 floats 15.3 and 8.5.

An instruction that adds up several products at once needs a sum of a whole number of them, which any sum has
that is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from ansor.schedule.access import AccessAnalysis, same_shape
from ansor.schedule.dag import ComputeDAG
from ansor.task.task import Task
from ansor.te.expr import Expr, Reduce, Var, substitute
from ansor.te.structure import same_place
from ansor.te.tensor import ComputeOp, Tensor
from sketches.rules.tensor import unfilled


def advice_on(task: Task) -> str:
    """What to define otherwise, a line each; empty if there is nothing."""
    return "\n".join([*_passes_to_share(task.compute_dag), *_sums_to_fill_up(task)])


def _sums_to_fill_up(task: Task) -> Iterator[str]:
    for op in task.compute_dag.ops:
        if isinstance(op, ComputeOp) and (found := unfilled(op, task.target)):
            intrinsic, terms = found
            wanted = -(-terms // intrinsic.depth) * intrinsic.depth
            yield (
                f"{op.name} adds up {terms} products, and {intrinsic.name} {intrinsic.depth} at once: with "
                f"operands filled up with zeros to {wanted} it would compute them"
            )


def _passes_to_share(dag: ComputeDAG) -> Iterator[str]:
    return (
        f"{one.name} and {other.name} read {' and '.join(x.op.name for x in shared)} in a pass each; a "
        "reduction of several values (te.comm_reducer) reads it once for both"
        for one, other in combinations(_single_passes(dag), 2)
        if (shared := _read_by_both(dag.access, one, other))
    )


def _single_passes(dag: ComputeDAG) -> Iterator[ComputeOp]:
    """The outputs that are reductions of one value and reuse nothing."""
    for op in dag.ops:
        if not isinstance(op, ComputeOp) or not op.reduce_axis or not dag.access.is_output(op):
            continue
        if op.num_outputs == 1 and not dag.access.needs_multi_level_tiling(op):
            yield op


def _read_by_both(access: AccessAnalysis, one: ComputeOp, other: ComputeOp) -> list[Tensor]:
    """The tensors that two reductions over axes of the same extents read at the same places, axis by axis."""
    roots = one.body[0], other.body[0]
    assert isinstance(roots[0], Reduce)
    assert isinstance(roots[1], Reduce)
    pairs = ((one.axis, other.axis), (roots[0].axes, roots[1].axes))
    if not all(same_shape([x.extent for x in a], [x.extent for x in b]) for a, b in pairs):
        return []
    renamed: dict[Var, Expr] = {old: new for a, b in pairs for old, new in zip(b, a, strict=True)}
    found = access.reads(other)
    return [
        producer.output(0)
        for producer, places in access.reads(one).items()
        if producer.num_outputs == 1 and producer in found
        if _same_places(places, found[producer], renamed)
    ]


def _same_places(
    one: tuple[tuple[Expr, ...], ...], other: tuple[tuple[Expr, ...], ...], renamed: Mapping[Var, Expr]
) -> bool:
    """Whether each place of one reader is a place of another, and the other way round, with axes renamed."""
    there = [[substitute(index, dict(renamed)) for index in place] for place in other]
    return all(any(same_place(a, b) for b in there) for a in one) and all(
        any(same_place(a, b) for a in one) for b in there
    )
