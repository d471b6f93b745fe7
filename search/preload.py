"""Earlier measurements of a task: read from a log, their programs replayed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ansor.errors import LogFormatError, ScheduleError
from ansor.schedule.state import State
from ansor.schedule.structure import KeyMatch, match_key
from ansor.task.hardware import architecture
from ansor.task.task import Task
from measure import MeasureInput, MeasureResult, load_records, recover_measure_input, same_target
from measure.best import target_text
from search.policy import InitSearchCallback


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
    """

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = os.fspath(filename)
        if not Path(self.filename).is_file():
            raise FileNotFoundError(
                f"there is no log {self.filename!r} to preload; tune once with a RecordToFile of that name"
            )

    def known(self, task: Task) -> Sequence[tuple[State, MeasureResult]]:
        """Read the measurements of `task`, in log order."""
        return measured_states(task, self.filename)


def measured_states(task: Task, filename: str | os.PathLike[str]) -> list[tuple[State, MeasureResult]]:
    """
    Programs of `task` that a log holds, with their results.

    Records of other workloads and targets are passed over, and so are programs whose steps do not apply to
    the task's computation.

    Raises
    ------
    LogFormatError
        If a line of the log cannot be understood.
    """
    dag = task.compute_dag
    found: list[tuple[State, MeasureResult]] = []
    for inp, res in load_records(filename):
        if not is_record_of(task, inp):
            continue
        try:
            state = recover_measure_input(inp, rebuild_state=True, dag=dag).state
        except (ScheduleError, LogFormatError):
            continue
        if isinstance(state, State):
            found.append((state, res))
    return found


def is_record_of(task: Task, inp: MeasureInput) -> bool:
    """Whether a record speaks about a task: the same computation for the same kind of machine."""
    if not same_target(task.target, target_text(inp.task)):
        return False
    if architecture(task.target) != architecture(inp.task.target):  # One that is not named is this machine's.
        return False
    if inp.task.workload_key == task.workload_key:
        return True
    dag = task.compute_dag
    return match_key(inp.task.workload_key, dag.structure_hash, dag.tensors) is not KeyMatch.NONE
