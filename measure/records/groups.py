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
from measure.records.log import Record
from measure.records.record import AnyTask, LoggedTask, MeasureInput, computation_of, direct_key, direct_of
from measure.records.targets import RunsOn, runs_on, target_group, target_text
from measure.records.unsaid import Said, plain_key

OptionsByKey = dict[tuple[str, str | None, int], int]
"""What `layout_option` said, by workload key, computation and recorded option: a log asks the same once a
line."""


class RecordGroup(NamedTuple):
    """
    What records of one task have in common whose times count for each other.

    Parameters
    ----------
    workload
        Its key as JSON.
    layouts
        The layout option.
    runs_on
        Where the target is silent about it.
    target
        See `target_group`.
    computation
        What it computes (`computation_of`), None where nothing tells.
    """

    workload: str
    layouts: int
    runs_on: RunsOn
    target: tuple[str, ...]
    computation: str | None


def record_group(inp: MeasureInput, options: OptionsByKey) -> RecordGroup:
    """Return the group of a record by its own computation."""
    workload = plain_key(inp.task.workload_key)
    asked = workload, computation_of(inp.task), int(inp.task.layout_rewrite_option or 0)
    if asked not in options:
        options[asked] = layout_option(inp)
    return RecordGroup(
        workload,
        options[asked],
        runs_on(inp.task),
        target_group(target_text(inp.task)),
        computation_of(inp.task),
    )


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
        The same with what some leave unsaid (`with_unsaid`).
    """

    def __init__(self, records: Iterable[Record]) -> None:
        read = list(records)
        self._said = Said.by(read)
        self.records = self._said.told(read)
        self._options: OptionsByKey = {}
        own: OptionsByKey = {}
        for inp, _ in self.records:
            layouts = 0 if direct_key(inp.task) is None else record_group(inp, own).layouts
            if layouts:  # An option that matters to one of its algorithms matters to the task.
                task = self._task_of(inp)
                self._options[plain_key(task.workload_key), computation_of(task), layouts] = layouts

    def of(self, inp: MeasureInput) -> RecordGroup:
        """Return the group of one of `records`."""
        return record_group(replace(inp, task=self._task_of(inp)), self._options)

    def _task_of(self, inp: MeasureInput) -> AnyTask:
        """Return the task of a record, with what it computes: one of an alternative does not say that."""
        task = direct_of(inp.task)
        if isinstance(task, LoggedTask) and task.computation is None:
            task = replace(task, computation=self._said.computation(plain_key(task.workload_key)))
        return task
