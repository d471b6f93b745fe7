"""Which records of a log belong together.

Those of one *computation*, under conditions that make their times count for each other, have a `RecordGroup`
in common: what is looked up or distilled goes by that. Those of one *task* are what people want to see as
one: programs of its alternatives (`ansor.task.alternatives`) are under the workload keys of their own, and
each says which task it is of. `TaskGroups` puts them together with those of the task itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from measure.layouts import layout_option
from measure.log import Record
from measure.record import LoggedTask, MeasureInput, computation_of, direct_key, direct_of
from measure.settled import plain_key
from measure.targets import RunsOn, runs_on, target_group, target_text

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
    asked = workload, int(inp.task.layout_rewrite_option or 0)
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
        self._said = _Said.by(read)
        self.records = self._said.told(read)
        self._options: OptionsByKey = {}
        own: OptionsByKey = {}
        for inp, _ in self.records:
            layouts = 0 if direct_key(inp.task) is None else record_group(inp, own).layouts
            if layouts:  # An option that matters to one of its algorithms matters to the task.
                self._options[plain_key(direct_of(inp.task).workload_key), layouts] = layouts

    def of(self, inp: MeasureInput) -> RecordGroup:
        """
        Return the group of one of `records`.

        One that names no CPU is of the one that all others name, if there is one.
        """
        task = direct_of(inp.task)
        if isinstance(task, LoggedTask):
            computation = task.computation or self._said.computation(plain_key(task.workload_key))
            task = replace(task, computation=computation, cpu=task.cpu or _only(self._said.cpus))
        return record_group(replace(inp, task=task), self._options)


def with_unsaid(records: Iterable[Record]) -> list[Record]:
    """
    Let each record say what others of the same logs do.

    A log may have been begun before records said so, or by TVM: which task's alternative a record is of, if
    another one of its workload does; a workload that is some other's task stays one. And what it computes, if
    all of its workload that tell compute the same.
    """
    read = list(records)
    return _Said.by(read).told(read)


@dataclass(frozen=True, slots=True)
class _Said:
    """What records of some logs say: tasks of alternatives and computations by workload key, and CPUs."""

    directs: Mapping[str, str]
    computations: Mapping[str, frozenset[str]]
    cpus: frozenset[str]

    @classmethod
    def by(cls, records: Sequence[Record]) -> _Said:
        directs: dict[str, str] = {}
        computations: dict[str, set[str]] = {}
        cpus: set[str] = set()
        for inp, _ in records:
            key = plain_key(inp.task.workload_key)
            if (direct := direct_key(inp.task)) is not None:
                directs.setdefault(key, direct)
            if (computation := computation_of(inp.task)) is not None:
                computations.setdefault(key, set()).add(computation)
            if (cpu := runs_on(inp.task).cpu) is not None:
                cpus.add(cpu)
        tasks = {plain_key(direct) for direct in directs.values()}
        return cls(
            {key: direct for key, direct in directs.items() if key not in tasks},
            {key: frozenset(found) for key, found in computations.items()},
            frozenset(cpus),
        )

    def computation(self, key: str) -> str | None:
        """Tell what records of a workload compute that say it; None where that is not one thing."""
        return _only(self.computations.get(key, frozenset()))

    def told(self, records: Sequence[Record]) -> list[Record]:
        """Fill in what records leave unsaid."""
        return [(self._told(inp), result) for inp, result in records]

    def _told(self, inp: MeasureInput) -> MeasureInput:
        task = inp.task
        if not isinstance(task, LoggedTask):
            return inp
        key = plain_key(task.workload_key)
        filled = replace(
            task,
            direct=task.direct or self.directs.get(key),
            computation=task.computation or self.computation(key),
        )
        return inp if filled == task else replace(inp, task=filled)


def _only(found: frozenset[str]) -> str | None:
    """Give the one that there is, None if there are none or several."""
    return min(found) if len(found) == 1 else None
