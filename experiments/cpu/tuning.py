"""Tuning the operations of `bench_cpu`: logs stay, so a second run completes them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ansor
from experiments.cpu.cases import Case
from experiments.search.runs import trials_in, whole

LOG: Final = ".log.json"
CLOCK: Final = ".seconds.json"
"""Ends of the names of what tuning leaves of a case."""
KEPT_MEMORY: Final = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""Variables under which glibc keeps what it was given back, and it and PyTorch ask for large pages.

All tuners measure in such memory, as everyone is measured afterwards.
"""
DEAR: Final = 1.05
"""Times as long from which on a winner for constant weights, which takes them as they come, has a rival that
is tuned for that."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """
    What tuning left.

    Attributes
    ----------
    log
        The log.
    trials
        Programs in it, measured with as many cores.
    seconds
        What they took, all runs together; None if a run was killed, or the log is older than its clock.
    """

    log: Path
    trials: int
    seconds: float | None

    def with_given(self, given: Tuned) -> Tuned:
        """The same log with the trials and seconds of tuning for weights that come with each call, too."""
        trials = self.trials + given.trials
        if self.seconds is None or given.seconds is None:
            return Tuned(self.log, trials, None)
        return Tuned(self.log, trials, self.seconds + given.seconds)


def log_of(case: Case, folder: Path) -> Path:
    """Where the log of a case lies."""
    return folder / f"{case.name}{LOG}"


def clock_of(case: Case, folder: Path, task: ansor.Task) -> Path:
    """Where the seconds stand that programs took which were measured with the task's cores."""
    return folder / f"{case.name}.{task.hardware_params.num_cores}{CLOCK}"


def tune(case: Case, folder: Path, trials: int) -> Tuned:
    """Tune a case, or complete its log, until it holds so many trials.

    The time of a run that is interrupted counts; after one that was killed it is not known any more.
    """
    log = log_of(case, folder)
    task = case.task()
    clock = clock_of(case, folder, task)
    known = trials_in(log, task)
    spent: float | None = 0.0
    if known:
        spent = _read_clock(clock)
    if known < trials:
        clock.unlink(missing_ok=True)
        start = time.perf_counter()
        try:
            # Afterwards all sides are measured with arrays on cache lines.
            with ansor.LocalRunner(aligned_inputs=True) as runner:
                options = ansor.TuningOptions(
                    num_measure_trials=trials - known,
                    early_stopping=None,
                    verbose=0,
                    runner=runner,
                    measure_callbacks=[ansor.RecordToFile(str(log))],
                )
                whole(task.tune(options))
        finally:
            if spent is not None:
                spent += time.perf_counter() - start
                clock.write_text(json.dumps(spent) + "\n")
        known = trials_in(log, task)
    return Tuned(log, known, spent)


def _read_clock(clock: Path) -> float | None:
    """The seconds that a file tells; None if there is none, or it was cut short."""
    try:
        return float(json.loads(clock.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
