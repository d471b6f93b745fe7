"""Which records of a log belong together.

Those of one *computation*, under conditions that make their times count for each other, have a `RecordGroup`
in common: what is looked up or distilled goes by that. Those of one *task* are what people want to see as
one: programs of its alternatives (`ansor.task.alternatives`) are under the workload keys of their own, and
each says which task it is of. `TaskGroups` puts them together with those of the task itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from measure.layouts import layout_option
from measure.log import Record
from measure.record import LoggedTask, MeasureInput, direct_key, direct_of
from measure.settled import plain_key
from measure.targets import cores_of, target_group, target_text

OptionsByKey = dict[tuple[str, int], int]
"""What `layout_option` said, by workload key and recorded option: a log asks the same once a line."""


class RecordGroup(NamedTuple):
    """
    What records of one task have in common whose times count for each other.

    Parameters
    ----------
    workload
        Its key as JSON.
    layouts
        The layout option.
    cores
        Where the target is silent about them; None where nothing tells.
    target
        See `target_group`.
    """

    workload: str
    layouts: int
    cores: int | None
    target: tuple[str, ...]


def record_group(inp: MeasureInput, options: OptionsByKey) -> RecordGroup:
    """Return the group of a record by its own computation."""
    workload = plain_key(inp.task.workload_key)
    asked = workload, int(inp.task.layout_rewrite_option or 0)
    if asked not in options:
        options[asked] = layout_option(inp)
    return RecordGroup(workload, options[asked], cores_of(inp.task), target_group(target_text(inp.task)))


class TaskGroups:
    """
    Groups the records of a log, or of several, by task; those of its alternatives are among them.

    Parameters
    ----------
    records
        All that are to be grouped.

    Attributes
    ----------
    records
        The same with what some leave unsaid (`with_directs`).
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = with_directs(records)
        self._options: OptionsByKey = {}
        own: OptionsByKey = {}
        for inp, _ in self.records:
            layouts = 0 if direct_key(inp.task) is None else record_group(inp, own).layouts
            if layouts:  # An option that matters to one of its algorithms matters to the task.
                self._options[plain_key(direct_of(inp.task).workload_key), layouts] = layouts

    def of(self, inp: MeasureInput) -> RecordGroup:
        """Return the group of one of `records`."""
        return record_group(replace(inp, task=direct_of(inp.task)), self._options)


def with_directs(records: Iterable[Record]) -> list[Record]:
    """
    Let each record say which task's alternative it is of, if another one of its workload does.

    A log may have been begun before records said so, or with the workload as a task of its own; programs of
    it are programs of the task that it is an alternative to now. A workload that is some other's task stays
    one where it says nothing else.
    """
    read = list(records)
    named: dict[str, str] = {}
    for inp, _ in read:
        if (direct := direct_key(inp.task)) is not None:
            named.setdefault(plain_key(inp.task.workload_key), direct)
    tasks = {plain_key(direct) for direct in named.values()}
    unsaid = {key: direct for key, direct in named.items() if key not in tasks}
    if not unsaid:
        return read
    return [(_told(inp, unsaid), result) for inp, result in read]


def _told(inp: MeasureInput, directs: dict[str, str]) -> MeasureInput:
    task = inp.task
    if not isinstance(task, LoggedTask) or task.direct is not None:
        return inp
    direct = directs.get(plain_key(task.workload_key))
    return inp if direct is None else replace(inp, task=replace(task, direct=direct))
