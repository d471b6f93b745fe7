"""Parallel reductions: factor a part of the reduction out, so that it can be parallelised or vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ansor.schedule.extents import MAX_EXTENT
from ansor.schedule.stages import IteratorKind
from ansor.schedule.state import State
from sketches.launch import most_threads
from sketches.relations import needs_tiling, untouched_reduction
from sketches.rule import SketchContext, Successor, Verdict

TASKS_PER_CORE: Final = 16
"""Parallel iterations per core beyond which a spatial loop nest is taken to keep all cores busy."""


def reduction_of_one_loop(
    context: SketchContext, state: State, stage_id: int, beyond: int = 0
) -> tuple[int, int] | None:
    """Results, and terms of each, of an untouched reduction that one loop can run over.

    None for other stages. The loop may be divided for the threads of a block, which then count some more than
    there are, and `beyond` more.
    """
    products = untouched_reduction(state, stage_id)
    most = MAX_EXTENT - most_threads(context.hardware) - beyond
    return None if products is None or products[1] > most else products


def reduction_in_parts(context: SketchContext, state: State, stage_id: int) -> tuple[int, int] | None:
    """Results, and terms of each, of an untouched reduction that is long beside too few results.

    None for other stages: loops over the results use the machine, there is little to divide, or more than one
    loop can count.
    """
    products = reduction_of_one_loop(context, state, stage_id)
    if products is None:
        return None
    results, terms = products
    cores = context.hardware.num_cores
    if needs_tiling(state, stage_id):
        return products if results <= min(terms, TASKS_PER_CORE * cores) else None
    return products if terms > max(1, cores) else None


def fuse_reduction(state: State, stage_id: int) -> tuple[State, int]:
    """Fuse all reduction loops of an untransformed stage into one; give the state and its position."""
    loops = state.stages[stage_id].iterators
    positions = [at for at, loop in enumerate(loops) if loop.kind is IteratorKind.REDUCE]
    if len(positions) > 1:
        state = state.fuse(stage_id, positions)
    return state, positions[0]


class AddRfactor:
    """A short stage, a long reduction -> partial results along a part of it, merged later. Source: rule 6.

    Two results: the outer part of the split reduction factored out, or the inner one, which then is the
    innermost (vectorisable) loop. The split has length 1 until sampling sets it.
    """

    name = "AddRfactor"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        divides = reduction_in_parts(context, state, stage_id) is not None
        return Verdict.APPLY if divides else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        fused, position = fuse_reduction(state, stage_id)
        split = fused.split(stage_id, position, (1,))
        spatial = position
        outer = split.rfactor(stage_id, position, spatial)
        inner = split.rfactor(stage_id, position + 1, spatial)
        count = len(inner.stages[stage_id].iterators)
        order = [at for at in range(count) if at != spatial] + [spatial]
        return [(outer, stage_id - 1), (inner.reorder(stage_id, order), stage_id - 1)]
