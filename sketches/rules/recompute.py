"""Recomputation: a stage that would be inlined, though its work is then done again and again.

TVM inlines whatever reads in order and calls no `exp`. There are three ways to lose by it:

- A `tanh` or a division in front of a matrix product is computed in the innermost loops, once for each
  column tile; stored first, once in all.
- So is a bias or a ReLU between two products. Stored in place of the first one it takes no memory of its own,
  and is computed with a tile of it: what 64 trials find for two products of 64 x 256 x 1024 and a ReLU took
  0.70 and 0.93 of the time on an Emerald Rapids (two seeds).
- What a stencil reads at several places is computed once for each of them: two filters of seven taps, one
  along rows and one along columns, become one of 49. So is what several stages read.

Of readers without a reduction only the places count: elsewhere the value is invariant in the loops that read
it again, and hoisted out of them.

Source: the cost of redundant work in Halide's autoscheduler (Adams et al., 2019), reduced to a count. Not in
TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import prod
from typing import Final

from ansor.dtypes import is_float
from ansor.schedule.access import body_roots, constant_extents, same_shape
from ansor.schedule.flops import op_flops
from ansor.schedule.places import uses_at
from ansor.schedule.state import State
from ansor.te.expr import Binary, BinaryOp, Call, distinct_nodes, int_value
from ansor.te.tensor import ComputeOp
from sketches.places import places_read
from sketches.relations import has_reduce_iterator, is_computed, is_copy, needs_tiling
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.inline import is_always_inlineable

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
COSTLY_WORK: Final = 8
"""So many operations a division of floats or a call counts for."""


def costly_operations(op: ComputeOp) -> int:
    """How many divisions of floats, and calls but those of `CHEAP_CALLS`, the body has."""
    return sum(
        (isinstance(node, Call) and node.name not in CHEAP_CALLS)
        or (isinstance(node, Binary) and node.op is BinaryOp.DIV and is_float(node.dtype))
        for root in body_roots(op)
        for node in distinct_nodes(root)
    )


def is_costly(op: ComputeOp) -> bool:
    """Whether the body divides floats or calls more than a rounding function."""
    return costly_operations(op) > 0


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


def repeated_work(context: SketchContext, state: State, stage_id: int, uses: float) -> float:
    """
    Count what is computed again for each element of a stage if that is inlined.

    Parameters
    ----------
    context, state, stage_id
        A computed stage, and of what it reads nothing inlined yet.
    uses
        How often an element is used, by all readers together.

    Returns
    -------
    float
        Operations [flop], and those of what will be inlined into the stage, if it is read at one place: what
        is read at several may be stored itself. More than `MANY_WORK` are not all counted.
    """
    if uses <= 1:
        return 0.0
    is_inlined = partial(is_always_inlineable, context, state)
    work = _own_work(state, stage_id)
    for producer, places in places_read(state, stage_id, is_inlined):
        if (uses - 1) * work >= MANY_WORK:
            break
        if len(places) == 1 and is_inlined(producer):
            work += _own_work(state, producer)
    return (uses - 1) * work


def _own_work(state: State, stage_id: int) -> float:
    """The operations of one element [flop], 0 where an extent is symbolic."""
    op = state.stages[stage_id].op
    if not isinstance(op, ComputeOp):
        return 0.0
    extents, flops = constant_extents(op.axis), op_flops(op)
    if extents is None or flops is None:
        return 0.0
    return flops / prod(extents) + COSTLY_WORK * costly_operations(op)


def finishes_product(context: SketchContext, state: State, stage_id: int) -> bool:
    """Whether all that becomes of a tiled product is computed by a stage, from the same element of each."""
    is_inlined = partial(is_always_inlineable, context, state)
    shape = state.stages[stage_id].op.output(0).shape
    axes = tuple((axis, 1, 0) for axis in range(len(shape)))

    @cache
    def goes_there(producer: int) -> bool:
        readers = state.consumers(producer)
        return not state.is_output(producer) and all(
            reader == stage_id or (is_inlined(reader) and goes_there(reader)) for reader in readers
        )

    return any(
        places == {axes}
        and same_shape(state.stages[producer].op.output(0).shape, shape)
        and needs_tiling(state, producer)
        and goes_there(producer)
        for producer, places in places_read(state, stage_id, is_inlined)
    )


class KeepCostlyProducer:
    """A stage that would be inlined, its work often repeated -> also, or only, stored."""

    name = "KeepCostlyProducer"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        op = state.stages[stage_id].op
        if not isinstance(op, ComputeOp) or not is_always_inlineable(context, state, stage_id):
            return Verdict.PASS
        if finishes_product(context, state, stage_id) and uses_per_element(state, stage_id) >= SOME:
            return Verdict.APPLY_AND_SKIP_REST
        uses = uses_per_element(state, stage_id) if is_costly(op) else 0.0
        repeated = repeated_work(context, state, stage_id, _uses_by_others(state, stage_id))
        return max(_verdict_on(uses, SOME, MANY), _verdict_on(repeated, SOME_WORK, MANY_WORK))

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state, stage_id - 1)]


def _uses_by_others(state: State, stage_id: int) -> float:
    """How often readers without a reduction use each element of a stage, through what has been inlined.

    Once where everything that is computed from it does.
    """
    if state.stages[stage_id].op in state.access.used_once:
        return 1.0
    uses = 0.0
    for reader in state.consumers(stage_id):
        if not has_reduce_iterator(state, reader):
            read = places_read(state, reader, lambda stage: not is_computed(state, stage))
            uses += next((uses_at(places) for stage, places in read if stage == stage_id), 0.0)
    return uses


def _verdict_on(amount: float, some: float, many: float) -> Verdict:
    if amount < some:
        return Verdict.PASS
    return Verdict.APPLY if amount < many else Verdict.APPLY_AND_SKIP_REST
