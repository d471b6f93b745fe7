"""The end of a run: the best programs are measured again, in turn, and the best is chosen by that.

The fastest of many figures is a lucky one: with noise of three percent the best of a hundred equal programs
looks seven percent faster than it is. So the few that may be the best are timed several times as long as
before, each in turn, so that what changes with time hits all alike; those that fall behind have fewer rounds
(`measure.race`). If others then look better than the best of them, it is their turn, until the best is one
that was measured again. These may be many: of a product that reads 64 MiB the fastest of 64 programs took 0.5
ms, and the best 26 from 0.94 ms on a minute later, since others wanted the memory, too (2 cores of a Zen 5).
Beside such figures the next best, which nobody had measured again, would win with 0.76 ms.

What is measured is logged, so that whoever chooses from the log chooses the same (`measure.records.settled`),
and a run that goes on from it does not do it again, unless it failed by accident.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final, Literal

from measure import MeasureInput, ProgramMeasurer
from search.history import History, Trial
from search.policy import SearchPolicy

ROUNDS: Final = 5
"""How often each finalist is measured, at most."""
SECONDS: Final = 2.0
"""Programs that are called for longer than this [s], once a round, have fewer rounds, but two."""
MARGIN: Final = 1.1
"""A program that took more than so many times as long as the best one will not turn out to be better."""

FIELD: Final = 32
"""Known trials from which on finals are held by themselves: of few figures the best is hardly a lucky one."""
FINALISTS: Final = 8
"""Programs of a turn: what changes with time hits these alike, so it should hold all that may win."""


def finalists(wanted: int | Literal["auto"], trials: int) -> int:
    """Tell how many programs to measure again after so many trials, where `wanted` is an option's value."""
    if wanted == "auto":
        return FINALISTS if trials >= FIELD else 0
    return wanted


def hold_finals(policy: SearchPolicy, measurer: ProgramMeasurer, history: History, count: int) -> None:
    """Measure the best programs of a history again, `count` at a time, and note what that gives.

    Raises
    ------
    LogWriteError
        If a log cannot be written.
    """
    if not getattr(measurer.runner, "noisy", False):  # A runner may be any object that runs programs.
        return
    while chosen := _finalists(history, count):
        inputs = [MeasureInput(policy.task.algorithm_of(trial.state.dag), trial.state) for trial in chosen]
        rounds = max(2, min(ROUNDS, int(SECONDS / chosen[0].result.mean_cost)))
        for trial, result in zip(chosen, measurer.measure_again(inputs, rounds, policy), strict=True):
            history.settle(trial.key, result)


def _finalists(history: History, count: int) -> list[Trial]:
    """Programs that look better than all that were measured again; before any was, those that may win."""
    ranking = history.ranking()
    if not ranking:
        return []
    ahead = list(takewhile(lambda trial: not history.is_settled(trial.key), ranking))
    limit = MARGIN * ranking[0].result.mean_cost
    return [trial for trial in ahead[:count] if trial.result.mean_cost <= limit]
