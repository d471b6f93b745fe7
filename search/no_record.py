"""Why a log has no record that a task could use: what it holds instead, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ansor.task.registry import BUILTIN_PREFIX
from ansor.task.task import Task
from ansor.wording import counted
from measure import MeasureInput, MeasureResult, load_records, same_target
from measure.records.best import has_key_of, is_of
from measure.records.settled import settled_records
from measure.records.targets import target_text
from search.titles import title_of_key

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
    wanted = _wanted(task, title_of_key(task.workload_key), log_file)
    records = list(load_records(log_file))
    if not records:
        what = "no line of the log is a record" if os.path.getsize(log_file) else "the log is empty"
        return f"{wanted}: {what}; tune with RecordToFile of this name first"
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
    before = sum(any(has_key_of(inp, one) for one in algorithms) for inp, _ in records)
    if before:
        return (
            f"{wanted}: it has {counted(before, 'record')} of that name, from when the function computed "
            "something else; tune it"
        )
    return _of_others(task, records, log_file)


def _wanted(task: Task, title: str, log_file: str | os.PathLike[str]) -> str:
    return f"no usable record for {title} on {task.target} in {os.fspath(log_file)!r}"


def _of_others(
    task: Task, records: Sequence[tuple[MeasureInput, MeasureResult]], log_file: str | os.PathLike[str]
) -> str:
    """Name what the records are for, in full where the catalogue and somebody else have the same name."""
    keys = {inp.task.workload_key for inp, _ in records}
    mine = _name(task.workload_key)
    short = mine.removeprefix(BUILTIN_PREFIX)
    twins = {mine, *map(_name, keys)} >= {short, BUILTIN_PREFIX + short}
    titles = sorted(title_of_key(key, whole=twins) for key in keys)
    more = f" and {len(titles) - _LISTED} more" if len(titles) > _LISTED else ""
    held = f"its {counted(len(records), 'record')} {'is' if len(records) == 1 else 'are'} for "
    advice = f"{BUILTIN_PREFIX}{short} is the catalogue's, {short} another function; " if twins else ""
    return (
        f"{_wanted(task, title_of_key(task.workload_key, whole=twins), log_file)}: "
        f"{held}{', '.join(titles[:_LISTED])}{more}; {advice}tune this task with RecordToFile first"
    )


def _name(workload_key: str) -> str:
    """The registered name of a workload, if it has one."""
    return title_of_key(workload_key, whole=True).partition("(")[0]


def _is_of_one(inp: MeasureInput, algorithms: Sequence[Task]) -> bool:
    """Whether a record is of one of the algorithms by its key, for whatever target."""
    return any(is_of(inp, one) for one in algorithms)
