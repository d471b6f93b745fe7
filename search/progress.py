"""What a tuning run says while it runs: a live line on a terminal, one plain line per round elsewhere.

Everything goes to the standard error stream, so that a program's own output stays clean. A `Progress` is
told of events and never asked; to watch a run in another way subclass it. `details` says more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress

from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.wording import counted
from measure import MeasureErrorNo
from search.result import TuningResult
from search.text import rate_text, time_text
from search.titles import task_title

if TYPE_CHECKING:
    from search.policy import SearchPolicy


@dataclass(frozen=True, slots=True)
class Report:
    """
    Where a run stands.

    Attributes
    ----------
    trials, errors
        New trials, and failures among them.
    best_seconds, best_state
        The best of all known trials [s], and its program; None without a valid one.
    round_index
        Rounds ended.
    known_trials
        All trials of the task, those of logs included.
    outcomes
        How often each outcome occurred among the new trials.
    """

    trials: int
    errors: int
    best_seconds: float | None
    round_index: int
    known_trials: int
    best_state: State | None = None
    outcomes: Mapping[MeasureErrorNo, int] = field(default_factory=dict)


class Progress:
    """Hears of everything and says nothing."""

    def start(self, task: Task, num_trials: int, num_logged: int) -> None:
        """Begin a run of `num_trials` new trials; `num_logged` results were read from logs."""

    def begin(self, policy: SearchPolicy) -> None:
        """Hear who proposes the programs, after `start`."""

    def trial_done(self, report: Report) -> None:
        """Hear of a measured program."""

    def round_done(self, report: Report) -> None:
        """Hear of a finished round."""

    def close(self) -> None:
        """Give the terminal back; called however the run ends."""

    def finish(self, result: TuningResult) -> None:
        """Hear of the result, if there is one."""


class _Spoken(Progress):
    """What the two visible kinds share: the console, the clock and the words."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._task: Task | None = None
        self._num_trials = 0

    def start(self, task: Task, num_trials: int, num_logged: int) -> None:
        self._task, self._num_trials, self._started = task, num_trials, time.monotonic()
        resumed = f", {counted(num_logged, 'result')} from the log" if num_logged else ""
        self._say(f"tuning {task_title(task)}: {counted(num_trials, 'trial')}{resumed}")

    def finish(self, result: TuningResult) -> None:
        for kind, message in result.error_examples.items():
            first_line = message.strip().partition("\n")[0]
            if first_line not in result.diagnosis:  # It comes with the result.
                self._say(f"  {kind.name}, for example: {first_line[:200]}")
        self._say(str(result))

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _best(self, report: Report) -> str:
        if report.best_seconds is None or self._task is None:
            return "best -"
        return f"best {rate_text(self._task.compute_dag.flop_count, report.best_seconds)}"

    def _left(self, report: Report) -> str:
        """Time left at the pace so far."""
        if not report.trials:
            return "-"
        pace = (time.monotonic() - self._started) / report.trials
        return time_text(pace * max(0, self._num_trials - report.trials))


class LineProgress(_Spoken):
    """One line per round, for pipes and files."""

    def round_done(self, report: Report) -> None:
        self._say(
            f"  round {report.round_index}: {report.trials}/{self._num_trials} trials, {self._best(report)}, "
            f"errors {report.errors}, {time_text(time.monotonic() - self._started)} so far, "
            f"{self._left(report)} left"
        )


class LiveProgress(_Spoken):
    """One line that is redrawn, for terminals."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bar = RichProgress(
            TextColumn("{task.completed}/{task.total} trials"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[best]}  errors {task.fields[errors]}  left {task.fields[left]}"),
            console=console,
            transient=True,
            auto_refresh=False,  # A thread that redraws would run beside the programs that are timed.
        )
        self._id: TaskID | None = None

    def start(self, task: Task, num_trials: int, num_logged: int) -> None:
        super().start(task, num_trials, num_logged)
        self._id = self._bar.add_task("", total=num_trials, best="best -", errors=0, left="-")
        self._bar.start()

    def trial_done(self, report: Report) -> None:
        if self._id is not None:
            self._bar.update(
                self._id,
                completed=report.trials,
                best=self._best(report),
                errors=report.errors,
                left=self._left(report),
                refresh=True,
            )

    def close(self) -> None:
        self._bar.stop()


def make_progress(verbose: int, console: Console | None = None) -> Progress:
    """Choose what fits: nothing for `verbose` 0, a live line on a terminal, else a line per round."""
    if verbose < 1:
        return Progress()
    console = console or Console(stderr=True)
    return (
        LiveProgress(console)
        if console.is_terminal and not console.is_dumb_terminal
        else LineProgress(console)
    )
