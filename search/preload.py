"""Earlier measurements of a task: read from a log, their programs replayed."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ansor.errors import LogFormatError, ScheduleError
from ansor.schedule.identity import program_key
from ansor.schedule.layout_rewrite import layout_free_inputs
from ansor.task.task import LayoutRewriteOption, Task
from ansor.wording import counted
from measure import (
    MeasureCallback,
    MeasureInput,
    MeasureResult,
    RecordToFile,
    load_measurements,
)
from measure.records.best import is_named_as
from measure.records.log import check_log, check_rereadable
from measure.records.record import COMPUTED_OTHERWISE, computes
from measure.records.settled import takes_over
from measure.records.targets import other_conditions, runs_on
from search.history import Trial
from search.policy import InitSearchCallback, Known
from search.titles import title_of_key

_note = logging.getLogger(__name__)


class PreloadMeasuredStates(InitSearchCallback):
    """
    Tells a search what a log already knows: nothing in it is measured again, and models learn from it.

    Parameters
    ----------
    filename
        The log.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DefinitionError
        If it is a directory or a pipe.
    """

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = os.fspath(filename)
        check_log(self.filename, " to preload")
        check_rereadable(self.filename)

    def __repr__(self) -> str:
        return f"PreloadMeasuredStates({self.filename!r})"

    def known(self, task: Task) -> Sequence[Known]:
        """Read the measurements of `task`, in log order."""
        return measured_states(task, self.filename)


def measured_states(task: Task, filename: str | os.PathLike[str]) -> list[Known]:
    """
    Programs of `task` that a log holds, with their results.

    Those of its alternatives are among them. Records of other workloads are passed over, and so are programs
    whose steps do not apply to the task's computation. So are records for another target, of another number
    of cores, another CPU or another layout option, of which a warning tells: their times are not those of
    programs of this task, though the programs may serve to begin with (`WarmStart`). And so, with a warning,
    are those of a function of the same name that was another one.

    Raises
    ------
    LogFormatError
        If a line of the log cannot be understood.
    """
    return measured_states_of([task.algorithms], filename)[0]


def measured_states_of(
    algorithms: Sequence[Sequence[Task]], filename: str | os.PathLike[str]
) -> list[list[Known]]:
    """`measured_states` of the algorithms of several tasks, in their order, from one reading of the log."""
    found: list[list[Known]] = [[] for _ in algorithms]
    others: Counter[str] = Counter()
    for inp, res in load_measurements(filename):
        unused: set[str] = set()
        used = False
        for position, task in ((at, one) for at, some in enumerate(algorithms) for one in some):
            if not is_named_as(inp, task):
                continue
            if other := _otherwise(task, inp):
                unused.add(f"of {title_of_key(task.workload_key)} {other}")
                continue
            used = True
            try:
                found[position].append((inp.replay(task.compute_dag), res))
            except (ScheduleError, LogFormatError):
                continue
        if not used:
            others.update(unused)
    for what, count in sorted(others.items()):
        _note.warning("%s: not used as known results: %s %s", filename, counted(count, "record"), what)
    return found


def _otherwise(task: Task, inp: MeasureInput) -> str:
    """What else than the task a record of its name is of, or was measured under; empty if nothing else.

    Where inputs are free of layout, costs under another option are those of other programs.
    """
    if not computes(inp.task, task.compute_dag):
        return COMPUTED_OTHERWISE
    if other := other_conditions(inp.task, task.target, runs_on(task)):
        return f"measured {other}"
    recorded = inp.task.layout_rewrite_option or LayoutRewriteOption.NO_REWRITE
    if recorded != task.layout_rewrite_option and layout_free_inputs(task.compute_dag):
        return "measured with another layout_rewrite_option"
    return ""


@dataclass(frozen=True, slots=True)
class Earlier:
    """
    What is known of a task when a run begins, in log order, each program once.

    Attributes
    ----------
    known
        Results that the run is given.
    log
        Results in the logs that it appends to, from which it goes on.
    settled
        Later results of the same programs, by key: those that count in the end.
    """

    known: tuple[Trial, ...] = ()
    log: tuple[Trial, ...] = ()
    settled: Mapping[str, MeasureResult] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Iterable[Known], log: Iterable[Known]) -> Earlier:
        """Sort results out; a program that is in both counts as one of the log."""
        settled: dict[str, MeasureResult] = {}
        own = _distinct_trials(log, settled, {})
        others = _distinct_trials(known, settled, own)
        return cls(tuple(others.values()), tuple(own.values()), settled)

    def __len__(self) -> int:
        return len(self.known) + len(self.log)


def _distinct_trials(
    known: Iterable[Known], settled: dict[str, MeasureResult], own: Mapping[str, Trial]
) -> dict[str, Trial]:
    """Known results as trials by key, in their order; of a program that occurs again the first.

    Those of programs that `own` has are left out. Later ones that count instead go into `settled`.
    """
    found: dict[str, Trial] = {}
    for state, result in known:
        key = program_key(state)
        first = own.get(key) or found.setdefault(key, Trial(key, state, result, from_log=True))
        if takes_over(result, settled.get(key, first.result)):
            settled[key] = result
    return found


def logs_of(callbacks: Sequence[MeasureCallback] | None) -> list[str]:
    """Logs that a run with these callbacks will append to and that exist already: it resumes from them."""
    names = [callback.filename for callback in callbacks or () if isinstance(callback, RecordToFile)]
    return [name for name in dict.fromkeys(names) if Path(name).is_file()]


def is_record_of(task: Task, inp: MeasureInput) -> bool:
    """Whether a record speaks about a task: the same computation, measured under the same conditions."""
    return is_named_as(inp, task) and not _otherwise(task, inp)
