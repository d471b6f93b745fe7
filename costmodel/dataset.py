"""Training data: from measurements and logs to arrays.

A `Dataset` is a value: feature rows, run times and tasks of measured programs in the order of measuring.
`take`, `split_by_program` and `split_by_task` make others of it. Which side a program falls on is a function
of the program, not of its place: as a log grows, nothing moves from the training to the held-out side.
Programs of one task that ran on several machines are of as many tasks here (`MeasuredTask`).

A `Collector` grows. It takes measurements, each once (a log that is read twice teaches nothing new), of a log
the first of each program on each machine, replays those that were read from a log, and keeps the rows of what
it has seen, so that a measured program's features are extracted once, for the machine of its record. All
programs of a data set have rows of one width: of a GPU they have more columns than of a CPU, and the first
program decides.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ansor.checks import check_integer
from ansor.errors import AnsorError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.task.hardware import HardwareParams
from ansor.task.task import Task, TaskKey
from costmodel.drafts import Drafter, draft_scores
from costmodel.labels import throughput_labels
from costmodel.rows import FeatureSource, FloatArray, Indices, PackedRows, extract_rows
from measure import MeasureInput, MeasureResult, load_measurements, recover_measure_input
from measure.records.record import AnyTask, LoggedTask, check_computation, computation_of, steps_to_json
from measure.records.settled import first_records
from measure.records.targets import ANYTHING, RunsOn, runs_on

_note = logging.getLogger(__name__)


class MeasuredTask(NamedTuple):
    """
    A task on one machine: programs whose run times are comparable.

    Parameters
    ----------
    key
        Of the task.
    machine
        What the programs ran on where the target is silent.
    """

    key: TaskKey
    machine: RunsOn = ANYTHING

    @classmethod
    def of(cls, task: AnyTask) -> MeasuredTask:
        """Name a task, or that of a record."""
        return cls(task.key, runs_on(task))

    def may_be(self, other: MeasuredTask) -> bool:
        """Whether both are the same as far as they say."""
        return self.key == other.key and not self.machine.differs(other.machine)

    def to_json(self) -> list[Any]:
        """Give the fields, one after the other."""
        return [*self.key, *self.machine]

    @classmethod
    def from_json(cls, items: Sequence[Any]) -> MeasuredTask:
        """Invert `to_json`; the machine may be missing."""
        key, target, option, *machine = items
        return cls((key, target, option), RunsOn(*machine))


@dataclass(frozen=True, eq=False)
class Dataset:
    """
    Measured programs, in order of measuring.

    Attributes
    ----------
    rows
        Their features.
    costs
        Mean run times [s], shape ``(programs,)``; infinite for a failure.
    tasks
        Number of each program's task, an index into `task_keys` and `machines`.
    task_keys
        The tasks; one that was measured on several machines is there as often.
    digests
        A 64-bit digest of each program's task and steps.
    drafts
        Base-2 logarithms of the speeds that a drafter estimates; 0 where there is none.
    machines
        What each of the tasks ran on where its target is silent; default: not known.
    """

    rows: PackedRows
    costs: FloatArray
    tasks: Indices
    task_keys: tuple[TaskKey, ...]
    digests: NDArray[np.uint64]
    drafts: FloatArray
    machines: tuple[RunsOn, ...] = ()

    def __post_init__(self) -> None:
        if not self.machines:
            object.__setattr__(self, "machines", (ANYTHING,) * len(self.task_keys))

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def measured_tasks(self) -> tuple[MeasuredTask, ...]:
        """The tasks with their machines."""
        return tuple(map(MeasuredTask, self.task_keys, self.machines))

    @property
    def fits_together(self) -> bool:
        """Whether all arrays are numbers of the same programs, as those from a damaged file may not be."""
        columns = (self.costs, self.tasks, self.digests, self.drafts)
        numbers = (self.tasks, self.digests)
        return (
            self.rows.fits_together
            and all(one.shape == (len(self.rows),) and one.dtype.kind in "iuf" for one in columns)
            and all(one.dtype.kind in "iu" for one in numbers)
            and len(self.machines) == len(self.task_keys)
            and bool(((self.tasks >= 0) & (self.tasks < len(self.task_keys))).all())
        )

    @cached_property
    def labels(self) -> FloatArray:
        """Speed relative to the best of the same task, in [0, 1] (`throughput_labels`)."""
        return throughput_labels(self.costs, self.tasks)

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Which programs did not run."""
        return np.isinf(self.costs)

    @classmethod
    def empty(cls, features: int) -> Dataset:
        """No measurements."""
        none = np.zeros(0, np.int64)
        return cls(PackedRows.empty(features), np.zeros(0), none, (), np.zeros(0, np.uint64), np.zeros(0))

    def take(self, programs: Sequence[int] | Indices | slice) -> Dataset:
        """Return the data of some programs, in the order given; the tasks keep their numbers."""
        if isinstance(programs, slice):
            programs = range(*programs.indices(len(self)))
        at = np.asarray(programs, dtype=np.int64)
        return replace(
            self,
            rows=self.rows.take(at),
            costs=self.costs[at],
            tasks=self.tasks[at],
            digests=self.digests[at],
            drafts=self.drafts[at],
        )

    def renumbered(self) -> Dataset:
        """Number the tasks by their first programs; those without any are dropped."""
        used, first, numbers = np.unique(self.tasks, return_index=True, return_inverse=True)
        order = np.argsort(first)
        keys = tuple(self.task_keys[number] for number in used[order])
        machines = tuple(self.machines[number] for number in used[order])
        tasks = np.argsort(order)[numbers].astype(np.int64)
        return replace(self, tasks=tasks, task_keys=keys, machines=machines)

    def followed_by(self, later: Dataset) -> Dataset:
        """Append the data of a set whose task numbers continue these."""
        return Dataset(
            PackedRows.concatenate([self.rows, later.rows]),
            np.concatenate([self.costs, later.costs]),
            np.concatenate([self.tasks, later.tasks]),
            later.task_keys,
            np.concatenate([self.digests, later.digests]),
            np.concatenate([self.drafts, later.drafts]),
            later.machines,
        )

    def held_out(self, share: float, seed: int = 0) -> NDArray[np.bool_]:
        """Choose about `share` of the programs by their digests; other seeds choose others."""
        scrambler = np.random.default_rng(seed).integers(2**63, size=2, dtype=np.uint64)
        mixed = (self.digests ^ scrambler[0]) * (scrambler[1] | np.uint64(1))
        chosen: NDArray[np.bool_] = (mixed >> np.uint64(40)).astype(np.float64) / 2.0**24 < share
        return chosen

    def split_by_program(self, held_out: float, seed: int = 0) -> tuple[Dataset, Dataset]:
        """
        Divide the programs into two sets, each task on both sides.

        Parameters
        ----------
        held_out
            Share of the second set, in [0, 1].
        seed
            Other seeds, other divisions.

        Returns
        -------
        tuple[Dataset, Dataset]
            What is left to learn from, and what is held out.
        """
        outside = self.held_out(held_out, seed)
        return self.take(np.flatnonzero(~outside)), self.take(np.flatnonzero(outside))

    def split_by_task(self, held_out: Iterable[TaskKey]) -> tuple[Dataset, Dataset]:
        """Divide the programs into those of other tasks and those of `held_out`, on whatever machine."""
        names = set(held_out)
        numbers = [number for number, key in enumerate(self.task_keys) if key in names]
        outside = np.isin(self.tasks, numbers)
        return self.take(np.flatnonzero(~outside)), self.take(np.flatnonzero(outside))

    @classmethod
    def from_logs(
        cls,
        file_names: Iterable[str | Path] | str | Path,
        source: FeatureSource,
        tasks: Iterable[Task] = (),
    ) -> Dataset:
        """
        Read the records of some logs.

        Parameters
        ----------
        file_names
            The logs, or the one log.
        source
            Makes the features.
        tasks
            Definitions of computations that are not registered.

        Raises
        ------
        FileNotFoundError
            If there is no such log.
        LogFormatError
            If a line of a log cannot be understood.
        """
        collector = Collector(source)
        for task in tasks:
            collector.define(task)
        paths = [file_names] if isinstance(file_names, (str, Path)) else file_names
        for path in paths:
            collector.add_log(path)
        return collector.dataset


@dataclass(eq=False)
class Collector:
    """
    Grows a data set from measurements.

    Parameters
    ----------
    source
        Makes the features.
    drafter
        Makes the drafts.

    Attributes
    ----------
    width
        Columns of the rows; None as long as there is no program.
    skipped
        Records that could not be used, by reason: workloads that are not registered, targets that are not
        known, steps that do not apply, rows of another width.
    """

    source: FeatureSource
    drafter: Drafter | None = None
    width: int | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    _seen: dict[bytes, None] = field(default_factory=dict)
    _pending: list[tuple[MeasureInput, MeasureResult, bytes]] = field(default_factory=list)
    _tasks: dict[tuple[MeasuredTask, tuple[int, ...]], Task] = field(default_factory=dict)
    _dags: dict[str, ComputeDAG] = field(default_factory=dict)
    _numbers: dict[MeasuredTask, int] = field(default_factory=dict)
    _data: Dataset | None = None

    def __len__(self) -> int:
        """Count the measurements taken in, unusable ones included."""
        return len(self._seen)

    def define(self, task: Task) -> None:
        """Supply a computation for records that name it by its key only."""
        self._tasks.setdefault(_as_recorded(task), task)
        if task.dag is not None:
            self._dags.setdefault(task.workload_key, task.dag)

    @property
    def seen(self) -> NDArray[np.uint64]:
        """Digests of the measurements taken in."""
        return np.frombuffer(b"".join(self._seen), dtype="<u8").astype(np.uint64)

    def restore(self, data: Dataset, seen: NDArray[np.uint64]) -> None:
        """Take over what another collector had."""
        self._data = data
        self.width = data.rows.width if len(data) else None
        self._pending.clear()
        self._seen = dict.fromkeys(digest.tobytes() for digest in seen.astype("<u8"))
        self._number_tasks(data)

    def _number_tasks(self, data: Dataset) -> None:
        self._numbers = {task: number for number, task in enumerate(data.measured_tasks)}

    def add(self, inputs: Iterable[MeasureInput], results: Iterable[MeasureResult]) -> int:
        """Take measurements in; one that is there already is ignored. Returns how many were new."""
        before = len(self._seen)
        for inp, result in zip(inputs, results, strict=True):
            if isinstance(inp.task, Task):
                self.define(inp.task)
            digest = _program_digest(inp)
            record = _record_digest(digest, result)
            if record not in self._seen:
                self._seen[record] = None
                self._pending.append((inp, result, digest))
        return len(self._seen) - before

    def remove(self, inputs: Iterable[MeasureInput], results: Iterable[MeasureResult]) -> int:
        """Drop measurements, as if they had never been added; returns how many were there."""
        gone: dict[bytes, tuple[int, float, MeasuredTask]] = {}
        for inp, result in zip(inputs, results, strict=True):
            digest = _program_digest(inp)
            record = _record_digest(digest, result)
            if record in self._seen:
                del self._seen[record]
                program = int.from_bytes(digest, "little")
                gone[record] = program, _cost_of(result), MeasuredTask.of(inp.task)
        count = len(gone)
        pending = []
        for inp, result, digest in self._pending:
            if gone.pop(_record_digest(digest, result), None) is None:
                pending.append((inp, result, digest))
        self._pending = pending
        if self._data is not None and gone:
            self._data = _without(self._data, gone.values())
            self._number_tasks(self._data)
        return count

    def add_log(self, file_name: str | Path, n_lines: int | None = None) -> int:
        """
        Take the records of a log in, or its first `n_lines` ones; returns how many were new.

        Of a program that was measured again on the same machine the first record is taken, as the search took
        that wrote the log: when it goes on from it, it makes a model forget these and no others.

        Raises
        ------
        FileNotFoundError
            If there is no such log.
        LogFormatError
            If a line of the log cannot be understood.
        DefinitionError
            If `n_lines` is no number of lines.
        """
        if n_lines is not None:
            n_lines = check_integer("n_lines", n_lines, low=0)
        before = len(self._seen)
        for inp, result in first_records(islice(load_measurements(str(file_name)), n_lines)):
            self.add([inp], [result])
        return len(self._seen) - before

    @property
    def dataset(self) -> Dataset:
        """Everything usable so far; features of new programs are extracted now."""
        known = self._data or Dataset.empty(self.width or self.source.width)
        if self._pending:
            known = self._extended(known)
            self._pending.clear()
        self._data = known
        return known

    def _extended(self, known: Dataset) -> Dataset:
        """Append what is pending."""
        usable: list[tuple[Task, State, float, bytes]] = []
        for inp, result, digest in self._pending:
            if not result.is_measurement:
                self._skip(f"it has no run time, but {result.mean_cost:g} s")
                continue
            try:
                task, state = self._recover(inp)
            except AnsorError as error:
                self._skip(str(error))
                continue
            usable.append((task, state, _cost_of(result), digest))
            self._numbers.setdefault(MeasuredTask.of(task), len(self._numbers))
        rows, drafts = self._extract([(task, state) for task, state, _, _ in usable])
        digests = np.frombuffer(b"".join(digest for *_, digest in usable), dtype="<u8")
        found = Dataset(
            rows,
            np.array([cost for _, _, cost, _ in usable]),
            np.array([self._numbers[MeasuredTask.of(task)] for task, *_ in usable], dtype=np.int64),
            tuple(one.key for one in self._numbers),
            digests.astype(np.uint64),
            drafts,
            tuple(one.machine for one in self._numbers),
        )
        return known.followed_by(found.take(np.flatnonzero(rows.counts > 0)))

    def _extract(self, programs: Sequence[tuple[Task, State]]) -> tuple[PackedRows, FloatArray]:
        """Make rows and drafts of programs of several tasks, task by task, and put them in order.

        A task with other hardware is another one. A program that cannot be learned from has no rows.
        """
        by_task: dict[tuple[TaskKey, HardwareParams], list[int]] = {}
        for position, (task, _) in enumerate(programs):
            by_task.setdefault((task.key, task.hardware_params), []).append(position)
        rows: list[PackedRows] = []
        drafts = [np.zeros(0)]
        for members in by_task.values():
            task, states = programs[members[0]][0], [programs[member][1] for member in members]
            rows.append(extract_rows(self.source, task, states))
            drafts.append(self._draft(task, rows[-1]))
        if self.width is None:
            self.width = _first_width(list(by_task.values()), rows)
        kept = [PackedRows.empty(self.width or self.source.width), *map(self._usable, rows)]
        order = np.argsort(
            np.array([member for members in by_task.values() for member in members], dtype=np.int64)
        )
        return PackedRows.concatenate(kept).take(order), np.concatenate(drafts)[order]

    def _usable(self, rows: PackedRows) -> PackedRows:
        """The rows of a task's programs, or none where they are of another width; counts what is lost."""
        if len(rows.values) and rows.width != self.width:
            for _ in range(len(rows)):
                self._skip(
                    f"its program has {rows.width} features a statement, and others have {self.width}; those "
                    "of a GPU have more than those of a CPU: take a model for each"
                )
            return PackedRows.empty(rows.width, len(rows))
        for _ in range(int((rows.counts == 0).sum())):
            self._skip("its program has no feature rows")
        return rows

    def _draft(self, task: Task, rows: PackedRows) -> FloatArray:
        if self.drafter is None:
            return np.zeros(len(rows))
        scores = draft_scores(self.drafter, task, rows)
        return np.where(np.isfinite(scores), scores, 0.0)

    def _recover(self, inp: MeasureInput) -> tuple[Task, State]:
        """Make the task and the state that a logged input speaks of."""
        if isinstance(inp.task, Task) and isinstance(inp.state, State):
            return inp.task, inp.state
        if isinstance(inp.task, LoggedTask):
            known = self._tasks.get(_as_recorded(inp.task.to_task()))
            if known is not None:
                check_computation(inp.task, known.compute_dag)
                inp = MeasureInput(known, inp.state)
        dag = inp.task.dag if isinstance(inp.task, Task) else self._dags.get(inp.task.workload_key)
        recovered = recover_measure_input(inp, rebuild_state=True, dag=dag)
        assert isinstance(recovered.task, Task)
        assert isinstance(recovered.state, State)
        self.define(recovered.task)
        return recovered.task, recovered.state

    def _skip(self, reason: str) -> None:
        first = reason.partition("\n")[0]
        if first not in self.skipped:
            _note.warning("a record is not learned from: %s", first)
        self.skipped[first] += 1


def _first_width(members: Sequence[Sequence[int]], rows: Sequence[PackedRows]) -> int | None:
    """Columns of the first program that has rows; `members` are the numbers of each part's programs."""
    firsts = [
        (numbers[int(np.flatnonzero(part.counts)[0])], part.width)
        for numbers, part in zip(members, rows, strict=True)
        if len(part.values)
    ]
    return min(firsts)[1] if firsts else None


def _as_recorded(task: Task) -> tuple[MeasuredTask, tuple[int, ...]]:
    """Tell what records say of a task, the numbers of its hardware included."""
    return MeasuredTask.of(task), tuple(task.hardware_params.to_json())


def _without(data: Dataset, gone: Iterable[tuple[int, float, MeasuredTask]]) -> Dataset:
    """Drop a program for each of some digests, run times [s] and tasks."""
    wanted: dict[tuple[int, float], list[MeasuredTask]] = {}
    for digest, cost, task in gone:
        wanted.setdefault((digest, cost), []).append(task)
    kept, tasks = [], data.measured_tasks
    names = zip(data.digests.tolist(), data.costs.tolist(), strict=True)
    for row, (name, number) in enumerate(zip(names, data.tasks.tolist(), strict=True)):
        same = [task for task in wanted.get(name, ()) if tasks[number].may_be(task)]
        if same:
            wanted[name].remove(same[0])
        else:
            kept.append(row)
    return data.take(kept).renumbered()


def _cost_of(result: MeasureResult) -> float:
    """Mean run time [s]; infinite for a failure."""
    return result.mean_cost if result.ok else float("inf")


def _program_digest(inp: MeasureInput) -> bytes:
    """Eight bytes that identify a program of a task, logged or live."""
    text = json.dumps([*inp.task.key, computation_of(inp.task), steps_to_json(inp.state)])
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _record_digest(program: bytes, result: MeasureResult) -> bytes:
    """Eight bytes that identify a measurement of a program."""
    text = json.dumps([list(result.costs), int(result.error_no), result.all_cost, result.timestamp])
    return hashlib.blake2b(program + text.encode(), digest_size=8).digest()
