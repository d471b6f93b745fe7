"""Why a log has no record that a task could use: what it holds instead, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ansor.task.task import Task
from measure import MeasureInput, load_records, same_target
from measure.best import is_of_structure, workload_distance
from measure.settled import settled_records
from measure.targets import target_text
from search.progress import title_of_key
from search.text import counted

_LISTED = 5


def why_no_record(task: Task, algorithms: Sequence[Task], log_file: str | os.PathLike[str]) -> str:
    """
    Say why a log has nothing for a task.

    Parameters
    ----------
    task
        The task.
    algorithms
        Those of its algorithms whose programs would do.
    log_file
        The log, in which no record was found (`measure.find_best_record`).

    Raises
    ------
    LogFormatError
        If it has a line that cannot be understood.
    """
    wanted = (
        f"no usable record for {title_of_key(task.workload_key)} on {task.target} in {os.fspath(log_file)!r}"
    )
    records = list(load_records(log_file))
    if not records:
        return f"{wanted}: the log is empty; tune with RecordToFile of this name first"
    measured = settled_records(records)
    mine = [(inp, res) for inp, res in measured if _is_of_one(inp, algorithms)]
    here = [res for inp, res in mine if same_target(task.target, target_text(inp.task))]
    if here and not any(res.ok for res in here):
        last = here[-1].error_no.name
        return f"{wanted}: all {len(here)} measurements of it failed; the last one with {last}"
    if here:
        return (
            f"{wanted}: it has {counted(len(here), 'record')} of this shape, whose steps do not apply to "
            "this computation; tune it"
        )
    if mine:
        targets = sorted({target_text(inp.task) for inp, _ in mine})
        return f"{wanted}: it was tuned for {', '.join(targets)}; make the task for one of these, or tune"
    programs = sum(_is_of_one(inp, algorithms) for inp, _ in records)
    if programs:
        return f"{wanted}: it has {counted(programs, 'program')} of it that nobody measured; tune it"
    prepared = sorted({inp.task.workload_key for inp, _ in records if _is_of_one(inp, task.algorithms)})
    if prepared:
        return (
            f"{wanted}: it was tuned as {', '.join(map(title_of_key, prepared))}, whose inputs the caller "
            "prepares; that needs layout_rewrite_option=2"
        )
    keys = sorted({title_of_key(inp.task.workload_key) for inp, _ in records})
    listed = ", ".join(keys[:_LISTED]) + (f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else "")
    return f"{wanted}: its {len(records)} records are for {listed}; tune this task with RecordToFile first"


def _is_of_one(inp: MeasureInput, algorithms: Sequence[Task]) -> bool:
    """Whether a record is of one of the algorithms by its key, for whatever target."""
    return any(_is_of(inp, one) for one in algorithms)


def _is_of(inp: MeasureInput, task: Task) -> bool:
    same_key = workload_distance(task.workload_key, inp.task.workload_key) == 1.0
    return same_key or is_of_structure(inp, task.compute_dag)
