"""Copies in shared memory that are filled ahead, as a choice for each stage that reads them.

The tiles of the next iterations are on their way while those of this one are used, which takes the memory
once more for each. All copies that a stage reads go together: one that is not filled ahead has the threads
wait, for the others too. For CUDA alone: where threads can copy without waiting as far ahead as one likes, on
older devices, where what is on its way waits in registers, by one iteration; elsewhere it would be a waste of
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.bounds import Bounds
from ansor.schedule.extents import Number
from ansor.schedule.kernels import lead_of
from ansor.schedule.stages import ComputeAt
from ansor.schedule.state import State
from ansor.schedule.steps import MultiBufferStep
from ansor.task.device import copies_without_waiting
from sketches.rule import SketchContext

Values = NDArray[np.int64]

_IN_REGISTERS: Final = 1
"""Iterations ahead where threads wait for what they copy."""


@dataclass(frozen=True, slots=True)
class LeadSite:
    """A stage, and the copies in shared memory inside of it that may be filled, at `most` so far ahead."""

    stage: int
    copies: tuple[int, ...]
    most: int

    def steps(self, lead: int) -> list[MultiBufferStep]:
        """What fills them so many iterations ahead, at least 1."""
        return [MultiBufferStep(copy, lead + 1) for copy in self.copies]

    def settled(self, bounds: Bounds, wished: Values) -> Values:
        """The wished values, but at most as many as there are further iterations."""
        state = _filled_ahead(bounds.state, self.copies, np.clip(wished, 0, self.most))
        leads = [np.broadcast_to(lead_of(state, copy), wished.shape) for copy in self.copies]
        return np.asarray(np.minimum.reduce(leads))


def lead_sites(context: SketchContext, state: State) -> tuple[LeadSite, ...]:
    """List the stages of a structure whose copies may be filled ahead."""
    most = context.params.gpu_multi_buffer - 1
    if not copies_without_waiting(context.target):
        most = min(most, _IN_REGISTERS)
    if not most or context.target.kind != "cuda":
        return ()
    found: dict[int, list[int]] = {}
    for copy, (host, _) in sorted(state.attach.items()):
        if state.stages[copy].scope == "shared" and _is_plain(state, copy):
            found.setdefault(host, []).append(copy)
    return tuple(LeadSite(host, tuple(copies), most) for host, copies in sorted(found.items()))


def _is_plain(state: State, copy: int) -> bool:
    """Whether a copy is made of memory that the kernel does not write, and of nothing computed inside."""
    outside = (state.stages[read] for read in state.producers(copy))
    inside = any(target == copy for target, _ in state.attach.values())
    return not inside and all(stage.compute_at is ComputeAt.ROOT for stage in outside)


def filled_ahead(bounds: Bounds, sites: Sequence[LeadSite], columns: Sequence[Values]) -> Bounds:
    """Bounds with the copies that are there several times, one column of leads per site."""
    state = bounds.state
    for site, column in zip(sites, columns, strict=True):
        if column.any():
            state = _filled_ahead(state, site.copies, column)
    return bounds if state is bounds.state else replace(bounds, state=state)


def _filled_ahead(state: State, copies: Sequence[int], lead: Number) -> State:
    stages = list(state.stages)
    for copy in copies:
        stages[copy] = replace(stages[copy], lead=lead)
    return replace(state, stages=tuple(stages))
