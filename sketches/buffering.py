"""Double-buffered copies in shared memory, as a choice for each stage that reads them.

The tiles of the next iteration are on their way while those of this one are used, which takes the memory
twice. All copies that a stage reads go together: one that is not filled ahead has the threads wait, for the
others too. For CUDA alone, where threads can copy without waiting; elsewhere it would be a waste of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.bounds import Bounds
from ansor.schedule.kernels import fills_ahead
from ansor.schedule.stages import ComputeAt
from ansor.schedule.state import State
from ansor.schedule.steps import DoubleBufferStep
from sketches.rule import SketchContext

Values = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DoubleSite:
    """A stage, and the copies in shared memory inside of it that may be filled ahead."""

    stage: int
    copies: tuple[int, ...]

    def steps(self) -> list[DoubleBufferStep]:
        """What fills them ahead."""
        return [DoubleBufferStep(copy) for copy in self.copies]

    def settled(self, bounds: Bounds, wished: Values) -> Values:
        """The wished values, but 0 where there is no next iteration."""
        state = _marked(bounds.state, self.copies, True)
        again: Any = True
        for copy in self.copies:
            again = again & fills_ahead(state, copy)
        return np.asarray(np.where(again, np.clip(wished, 0, 1), 0))


def double_sites(context: SketchContext, state: State) -> tuple[DoubleSite, ...]:
    """List the stages of a structure whose copies may be filled ahead."""
    if not context.params.gpu_double_buffer or context.target.kind != "cuda":
        return ()
    found: dict[int, list[int]] = {}
    for copy, (host, _) in sorted(state.attach.items()):
        if state.stages[copy].scope == "shared" and _is_plain(state, copy):
            found.setdefault(host, []).append(copy)
    return tuple(DoubleSite(host, tuple(copies)) for host, copies in sorted(found.items()))


def _is_plain(state: State, copy: int) -> bool:
    """Whether a copy is made of memory that the kernel does not write, and of nothing computed inside."""
    outside = (state.stages[read] for read in state.producers(copy))
    inside = any(target == copy for target, _ in state.attach.values())
    return not inside and all(stage.compute_at is ComputeAt.ROOT for stage in outside)


def doubled(bounds: Bounds, sites: Sequence[DoubleSite], columns: Sequence[Values]) -> Bounds:
    """Bounds with the copies that are there twice, one column of choices per site."""
    state = bounds.state
    for site, column in zip(sites, columns, strict=True):
        if column.any():
            state = _marked(state, site.copies, column > 0)
    return bounds if state is bounds.state else replace(bounds, state=state)


def _marked(state: State, copies: Sequence[int], rows: bool | NDArray[np.bool_]) -> State:
    stages = list(state.stages)
    for copy in copies:
        stages[copy] = replace(stages[copy], double_buffer=rows)
    return replace(state, stages=tuple(stages))
