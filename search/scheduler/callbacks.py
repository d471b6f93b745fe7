"""What a task scheduler tells while it runs: a table of all tasks, and a log of the estimated latency.

Callbacks are called for rounds that measure something. When a run resumes, the rounds that its log answers
are gone through again in silence.

Source: `TaskSchedulerCallback` and its subclasses in TVM 0.16.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ansor.wording import counted
from search.text import digits, time_text
from search.titles import task_title

if TYPE_CHECKING:
    from search.scheduler.task_scheduler import TaskScheduler

_WIDEST_TEXT = 60
_note = logging.getLogger(__name__)


class TaskSchedulerCallback:
    """Base of callbacks, told of each round and of each part of a task's first; override what you need.

    The scheduler's public fields may be read: `tasks`, `task_weights`, `task_cts`, `task_costs_history`,
    `best_costs`, `cur_score`, `ct`, `best_ct`, `best_score`, `tic`, `dead_tasks`, `num_measures_per_round`.
    """

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Be told before a round of task `task_id`, or a part of one."""

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Be told after it, when all figures are up to date."""


class PrintTableInfo(TaskSchedulerCallback):
    """Prints a table of all tasks before each round or part of one; nothing when `verbose` is 0.

    Parameters
    ----------
    file
        Where to; default the standard error stream.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        if task_scheduler.verbose > 0:
            print(progress_table(task_scheduler, task_id), file=self._file or sys.stderr, flush=True)


def progress_table(scheduler: TaskScheduler, current: int | None = None) -> str:
    """Where all tasks stand, one a line, with a line for the whole; the current one is marked."""
    rows = [("ID", "Task Description", "Latency (ms)", "Speed (GFLOPS)", "Trials", "")]
    for number, task in enumerate(scheduler.tasks):
        cost = float(scheduler.best_costs[number])
        known = cost < scheduler.no_cost
        flops = task.compute_dag.flop_count
        note = "<- now" if number == current else scheduler.dead_reasons.get(number, "")
        rows.append(
            (
                str(number),
                _shortened(task_title(task)),
                digits(cost * 1e3) if known else "-",
                digits(flops / cost / 1e9) if known and flops > 0 else "-",
                str(scheduler.task_trials[number]),
                _shortened(note),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = "-" * (sum(widths[:5]) + 12)
    lines = [rule]
    for row in rows:
        numbers = (f"{text:>{width}}" for text, width in zip(row[2:5], widths[2:5], strict=True))
        lines.append(
            f"{row[0]:>{widths[0]}} | {row[1]:<{widths[1]}} | {' | '.join(numbers)}  {row[5]}".rstrip()
        )
        if row is rows[0]:
            lines.append(rule)
    total = _total(scheduler)
    elapsed = time_text(scheduler.elapsed_seconds)
    lines += [rule, f"Estimated total latency: {total}  Trials: {scheduler.ct}  Used time: {elapsed}"]
    return "\n".join(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST_TEXT else f"{text[: _WIDEST_TEXT - 3]}..."


def _total(scheduler: TaskScheduler) -> str:
    """The objective in ms over the tasks that have a program, or a dash while there is none."""
    missing = len(scheduler.without_program)
    if missing == len(scheduler.tasks):
        return "-"
    total = f"{digits(scheduler.cur_score * 1e3)} ms"
    return f"{total} (without {counted(missing, 'task')} that no program is known of)" if missing else total


class LogEstimatedLatency(TaskSchedulerCallback):
    """
    Appends a line to a file after each round or part of one: elapsed time, estimated latency, and trials.

    Names and values are separated by tabs.

    A run that resumes goes on in the same file, its time and trials counted from where the last one stopped,
    as the last line that can be understood says. A new run writes below what is there; its trials start again
    at 1. Where the file cannot be written a warning says so, once, and tuning goes on without it.

    Parameters
    ----------
    log_file
        The file; its directory is made if needed.
    """

    def __init__(self, log_file: str | os.PathLike[str]) -> None:
        self.log_file = os.fspath(log_file)
        self._elapsed_before = 0.0
        self._tic: float | None = None
        self._refused = False

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        try:
            self._append(task_scheduler)
        except OSError as error:
            if not self._refused:
                _note.warning("%s: estimated latencies are not logged: %s", self.log_file, error)
            self._refused = True

    def _append(self, scheduler: TaskScheduler) -> None:
        if self._tic != scheduler.tic:  # The first round of a run.
            self._tic = scheduler.tic
            self._elapsed_before = last_elapsed(self.log_file) if scheduler.resumed else 0.0
        elapsed = self._elapsed_before + scheduler.elapsed_seconds
        latency = "N/A" if scheduler.without_program else f"{scheduler.cur_score * 1e3:.6g}"
        Path(self.log_file).parent.mkdir(parents=True, exist_ok=True)
        with open(self.log_file, "a", encoding="utf-8") as file:
            file.write(
                f"ElapsedTime(s)\t{elapsed:.1f}\tEstimatedLatency(ms)\t{latency}\tTrials\t{scheduler.ct}\n"
            )


def last_elapsed(log_file: str) -> float:
    """Elapsed time [s] in a file's last line that is one of `LogEstimatedLatency`; 0 if there is none."""
    try:
        lines = Path(log_file).read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return 0.0
    for line in reversed(lines):
        fields = line.split("\t")
        if len(fields) == 6 and fields[0] == "ElapsedTime(s)":
            with suppress(ValueError):
                if math.isfinite(elapsed := float(fields[1])):
                    return elapsed
    return 0.0
