"""Steps made for one size, refitted to another.

All that a schedule says of sizes are the lengths of its splits; every other step speaks of loops by position
and carries over as it is. So a program for another extent is the same steps with new lengths. Three ways to
choose them, each good where the others are not:

- *inner*: keep the inner lengths, which fit registers, vectors and caches; the outermost part takes what is
  left. What no longer fits into a smaller extent shrinks from the outside in.
- *scaled*: keep the innermost length; the other parts grow or shrink together, each by the same power.
- *as is*: the very lengths, whether they divide the extent or not.

The first two choose among the divisors of the extent, so nothing is computed in vain; where an extent, such
as a prime, has no divisor near what is wanted, the length stays and need not divide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from ansor.errors import ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep, Step
from sketches.factors import divisors

MAX_WASTE = 1.25
"""Iterations over needed ones that a split may have."""
_NEAR = 2.0


class Refit(StrEnum):
    """How lengths are chosen (see the module)."""

    INNER = "inner"
    SCALED = "scaled"
    AS_IS = "as is"


def refit_lengths(lengths: Sequence[int], old: int, new: int, how: Refit) -> tuple[int, ...]:
    """
    Inner lengths for a loop of `new` iterations in the spirit of those for one of `old`.

    Parameters
    ----------
    lengths
        Lengths of parts 1, 2, ... of the old split, the last one innermost; part 0 takes the rest.
    old, new
        Iterations, >= 1.

    Returns
    -------
    tuple
        As many lengths. Their product covers `new` with at most `MAX_WASTE` times the iterations, unless
        `how` is "as is".
    """
    if how is Refit.AS_IS or old == new:
        return tuple(lengths)
    wanted = [float(length) for length in lengths]
    if how is Refit.SCALED:
        inner = lengths[-1]
        before, after = math.ceil(old / inner), math.ceil(new / inner)
        power = math.log(after) / math.log(before) if before > 1 and after > 0 else 1.0
        wanted = [*(length**power for length in lengths[:-1]), float(inner)]
    chosen: list[int] = []
    rest = new
    for length in reversed(wanted):
        room = MAX_WASTE * new / math.prod(chosen)
        taken = _nearest(rest, min(length, rest), room)
        chosen.append(taken)
        rest = math.ceil(rest / taken)
    return tuple(reversed(chosen))


def _nearest(extent: int, wanted: float, room: float) -> int:
    """Divisor of `extent` nearest to `wanted` by ratio, else `wanted` if that covers at most `room`."""
    best = min(divisors(extent), key=lambda d: (abs(math.log(d / wanted)), d))
    length = max(1, round(wanted))
    far = max(best / wanted, wanted / best) > _NEAR
    return length if far and math.ceil(extent / length) * length <= room else best


def refit_steps(
    dag: ComputeDAG, steps: Sequence[Step], how: Refit, source: ComputeDAG | None = None
) -> State:
    """
    Apply steps that were made for a computation of other sizes.

    Parameters
    ----------
    dag
        The computation to schedule.
    steps
        The steps.
    source
        The computation that they were made for; without it the extents that the splits carry are believed.

    Raises
    ------
    ScheduleError
        If a step does not apply, or a split would run far more iterations than there are.
    """
    state = State.initial(dag)
    old = None if source is None else State.initial(source)
    for step in steps:
        if isinstance(step, SplitStep):
            extent = step.extent if old is None else loop_extent(old, step)
            state = state.apply(_refit_split(state, step, extent, how))
        else:
            state = state.apply(step)
        if old is not None:
            old = old.apply(step)
    return state


def _refit_split(state: State, step: SplitStep, old: int | None, how: Refit) -> SplitStep:
    new = loop_extent(state, step)
    known = all(isinstance(length, int) for length in step.lengths)
    if new is None or not known:
        return step
    lengths = tuple(step.lengths)
    if old and step.inner_to_outer:
        lengths = refit_lengths(lengths, old, new, how)
    covered = math.prod(lengths) * math.ceil(new / math.prod(lengths))
    if step.inner_to_outer and covered > MAX_WASTE * new:
        raise ScheduleError(f"split of {new} iterations by {list(lengths)} would run {covered}")
    return replace(step, extent=new, lengths=lengths)


def loop_extent(state: State, step: SplitStep) -> int | None:
    """Iterations of the loop that a split is about to split; None if they are unknown or it is gone."""
    if not 0 <= step.stage < len(state.stages):
        return None
    loops = state.stages[step.stage].iterators
    extent = loops[step.iterator].extent if 0 <= step.iterator < len(loops) else None
    return extent if isinstance(extent, int) else None
