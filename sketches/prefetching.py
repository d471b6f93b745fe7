"""Which stages ask memory for inputs before they read them.

A row that several stages of one loop pass over comes from memory in the first pass alone. In a softmax its
maximum waits for memory, then memory waits for its exponentials. So a later pass asks for the next row
(`ansor.schedule.prefetch_steps`), where the input is more than the second cache holds. The stage in whose
loops the others are computed, as the output of a layer norm, does so where the row goes to the first cache:
rows of 4 KiB took 0.91 of the time on 2 cores of a Zen 4, rows of 32 KiB 1.15 of it.

Windows, as those of pooling, read short pieces of several rows, which processors do not foresee as they do a
long row. So a window asks for the one an iteration ahead, of the outermost loop whose iterations leave the
second cache room: mostly that of the next rows, as the next pixel comes too late. It pays where the input is
more than all caches hold, and is read a few times only. Pooling by our own programs, 2 cores of a Zen 4
with a last cache of 32 MiB: 0.66 to 0.95 of the time for inputs of 49 to 128 MiB, 1.07 to 1.6 for 3 to
12 MiB. Norms gained nothing.

A reduction with reuse asks on the way for what it reads next of inputs that the second cache does not hold
(`ansor.ir.passes.read_ahead`), if one is no constant in the order in which it is read: batches of 4
products of 512 take 0.98 of the time, a product of 64 rows with 1024 columns after 4096 terms 0.87, 1x1
convolutions of 16 images with few channels of output 0.97; most others take what they took.

It is no choice of the search: it costs an instruction a line.

Not in TVM.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from ansor.schedule.bounds import enclosing_loops
from ansor.schedule.lookahead import NEAR
from ansor.schedule.prefetch_steps import AskingStep, PrefetchStep, ReadAheadStep, inputs_read
from ansor.schedule.state import State
from ansor.te.expr import int_value
from ansor.te.sizes import elements_of, size_bytes
from sketches.relations import is_computed, needs_tiling
from sketches.rule import SketchContext
from sketches.rules.windows import runs_along_memory

MOST_TERMS: Final = 64
"""Terms of the largest window: all that it reads is asked for at once."""
MOST_USES: Final = 4
"""How often the elements of an input are read by windows that overlap, on average, at most."""
SHARE: Final = 4
"""What is asked for ahead is at most the second cache by this: what is in use and results lie there, too."""


def prefetch_sites(context: SketchContext, state: State) -> tuple[AskingStep, ...]:
    """Let stages ask ahead that pass over inputs after others, read windows, or reuse what they read."""
    if not context.params.cpu_prefetch:
        return ()
    first, second, last = context.hardware.cache_bytes
    computed = [stage for stage in range(len(state.stages)) if is_computed(state, stage)]
    again = [
        PrefetchStep(stage, 0 if stage in state.attach else first)
        for stage in computed
        if _passes_again(state, stage, computed, second)
    ]
    windows = [
        PrefetchStep(stage, second // SHARE) for stage in computed if _reads_windows(state, stage, last)
    ]
    large = [
        ReadAheadStep(stage, second) for stage in computed if _reuses_much(context, state, stage, second)
    ]
    return (*again, *windows, *large)


def _passes_again(state: State, stage: int, computed: list[int], least: int) -> bool:
    """Whether the stage reads an input of more bytes than that, as a stage before it in the same loop did."""
    own = [place for place in state.attach.values() if place[0] == stage]
    place = state.attach.get(stage) or min(own, default=None)
    if state.stages[stage].combiner is not None or place is None:
        return False
    before = [other for other in computed if other < stage and place in enclosing_loops(state, other)]
    met = {tensor for other in before for tensor in inputs_read(state, other)}
    large = [size_bytes(tensor) for tensor in met & inputs_read(state, stage) if size_bytes(tensor) > least]
    return bool(large) and (stage in state.attach or sum(large) <= NEAR * _iterations(state, place))


def _iterations(state: State, place: tuple[int, int]) -> int:
    """How often the body of a stage's loop runs, at least, whatever lengths are drawn; 0 if unknown."""
    stage, position = place
    extents = [iterator.extent for iterator in state.stages[stage].iterators[: position + 1]]
    known = [extent for extent in extents if isinstance(extent, int | np.ndarray)]
    return prod(int(np.min(extent)) for extent in known) if len(known) == len(extents) else 0


def _reads_windows(state: State, stage: int, least: int) -> bool:
    """Whether the stage reduces short windows of an input of more bytes than that, with little overlap.

    Parts of long reductions, which steps have made, are no windows.
    """
    known, op = state.stages[stage], state.stages[stage].compute
    if known.combiner is None or known.handles[0] not in state.dag.ops or needs_tiling(state, stage):
        return False
    results, terms = (prod(int_value(x.extent) or 0 for x in axes) for axes in (op.axis, op.reduce_axis))
    if terms > MOST_TERMS or not runs_along_memory(state, op):
        return False
    large = [tensor for tensor in inputs_read(state, stage) if size_bytes(tensor) > least]
    return any(results * terms <= MOST_USES * elements_of(tensor) for tensor in large)


def _reuses_much(context: SketchContext, state: State, stage: int, least: int) -> bool:
    """Whether the stage reduces and reuses what it reads, of inputs of more bytes than that."""
    if state.stages[stage].combiner is None or not needs_tiling(state, stage):
        return False
    free = context.free_layouts(state.stages[stage].compute)
    large = [x for x in inputs_read(state, stage) if size_bytes(x) > least]
    return any(free.isdisjoint(state.stages[state.stage_id(x)].handles) for x in large)
