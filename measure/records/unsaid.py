"""What records leave unsaid, and others of the same logs say.

A log may have been begun before records said all that they do now, or by TVM. What is the same program, or
the same task, is asked of records that were told what they may be taken for; written is what they said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from measure.records.log import Record
from measure.records.record import LoggedTask, MeasureInput, computation_of, direct_key
from measure.records.targets import runs_on


@lru_cache(maxsize=1024)  # A log says the same keys again and again.
def plain_key(workload_key: str) -> str:
    """Write a workload key as everybody's: JSON with the usual blanks; others stay as they are."""
    try:
        return json.dumps(json.loads(workload_key))
    except ValueError:
        return workload_key


def with_unsaid(records: Iterable[Record]) -> list[Record]:
    """
    Let each record say what others of the same logs do.

    Which task's alternative it is of, if another one of its workload does; a workload that is some other's
    task stays one. What it computes, if all of its workload that tell compute the same. And on which CPU it
    ran, if all that name one name the same.
    """
    read = list(records)
    return Said.by(read).told(read)


@dataclass(frozen=True, slots=True)
class Said:
    """What records of some logs say: tasks of alternatives and computations by workload key, and CPUs."""

    directs: Mapping[str, str]
    computations: Mapping[str, frozenset[str]]
    cpus: frozenset[str]

    @classmethod
    def by(cls, records: Sequence[Record]) -> Said:
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
            cpu=task.cpu or _only(self.cpus),
        )
        return inp if filled == task else replace(inp, task=filled)


def _only(found: frozenset[str]) -> str | None:
    """Give the one that there is, None if there are none or several."""
    return min(found) if len(found) == 1 else None
