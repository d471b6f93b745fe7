"""Recomputation: a stage that would be inlined, though its work is then done again and again.

The reference inlines whatever reads in order and calls no `exp`. There are two ways to lose by it:

- A `tanh` or a division in front of a matrix product is computed in the innermost loops, once for each
  column tile; stored first, once in all.
- What a stencil reads at several places is computed once for each of them: two filters of seven taps, one
  along rows and one along columns, become one of 49.

Of readers without a reduction only the places count: elsewhere the value is invariant in the loops that read
it again, and hoisted out of them.

Source: the cost of redundant work in Halide's autoscheduler (Adams et al., 2019), reduced to a count. Not in
the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from ansor.dtypes import is_float
from ansor.schedule.access import body_roots, constant_extents
from ansor.schedule.flops import op_flops
from ansor.schedule.state import State
from ansor.te.expr import Binary, BinaryOp, Call, distinct_nodes, int_value
from ansor.te.tensor import ComputeOp
from sketches.inline import is_always_inlineable
from sketches.places import Place, places_read
from sketches.relations import has_reduce_iterator, is_computed, is_copy
from sketches.rule import SketchContext, Successor, Verdict

CHEAP_CALLS: Final = frozenset({"abs", "ceil", "floor", "fma", "round"})
"""Intrinsics that are one instruction or two."""
SOME: Final = 4
"""From so many uses of an element by reductions on, storing it is worth a sketch of its own."""
MANY: Final = 16
"""From so many uses on, inlining is not."""
SOME_WORK: Final = 8
"""From so many operations that are repeated for one element of a stencil on, storing is worth a sketch."""
MANY_WORK: Final = 32
"""From so many on, inlining is not."""


def is_costly(op: ComputeOp) -> bool:
    """Whether the body divides floats or calls more than a rounding function."""
    return any(
        (isinstance(node, Call) and node.name not in CHEAP_CALLS)
        or (isinstance(node, Binary) and node.op is BinaryOp.DIV and is_float(node.dtype))
        for root in body_roots(op)
        for node in distinct_nodes(root)
    )


def uses_per_element(state: State, stage_id: int, *, of_copies: bool = False) -> float:
    """How often reductions use each element of a computed stage, 0 if an extent is symbolic.

    A packed copy does not count, as it is filled once for a tile of its reader. With `of_copies` its elements
    are those of the stage, and their uses count.
    """
    elements = _iterations(state.stages[stage_id].op)
    readers = state.consumers(stage_id)
    if of_copies:
        readers = readers.union(*(state.consumers(reader) for reader in readers if is_copy(state, reader)))
    uses = sum(
        _iterations(state.stages[reader].op)
        for reader in readers
        if getattr(state.stages[reader].op, "reduce_axis", ())
    )
    return uses / elements if elements else 0.0


def _iterations(op: object) -> int:
    if not isinstance(op, ComputeOp):
        return 0
    return prod(int_value(axis.extent) or 0 for axis in (*op.axis, *op.reduce_axis))


def repeated_work(state: State, stage_id: int, places: int) -> float:
    """Operations that an element of a reader repeats, by reading an inlined stage at some places [flop]."""
    op = state.stages[stage_id].op
    if not isinstance(op, ComputeOp):
        return 0.0
    extents, flops = constant_extents(op.axis), op_flops(op)
    return (places - 1) * flops / prod(extents) if extents and flops and places else 0.0


class KeepCostlyProducer:
    """A stage that would be inlined, its work often repeated -> also, or only, stored."""

    name = "KeepCostlyProducer"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        op = state.stages[stage_id].op
        if not isinstance(op, ComputeOp) or not is_always_inlineable(context, state, stage_id):
            return Verdict.PASS
        readers = state.consumers(stage_id)
        if any(has_reduce_iterator(state, reader) for reader in readers):
            uses = uses_per_element(state, stage_id) if is_costly(op) else 0.0
            return _verdict_on(uses, SOME, MANY)
        places = max(len(_places(state, reader, stage_id)) for reader in readers)
        return _verdict_on(repeated_work(state, stage_id, places), SOME_WORK, MANY_WORK)

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state, stage_id - 1)]


def _places(state: State, reader: int, stage_id: int) -> set[Place]:
    """Where a reader reads a stage, through what has been inlined."""
    return places_read(state, reader, lambda stage: not is_computed(state, stage), stage_id)[stage_id]


def _verdict_on(amount: float, some: float, many: float) -> Verdict:
    if amount < some:
        return Verdict.PASS
    return Verdict.APPLY if amount < many else Verdict.APPLY_AND_SKIP_REST
