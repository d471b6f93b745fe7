"""What a log tells of a tuning run: per task its attempts in order, and where the time went.

A record says when a measurement was complete (in whole seconds) and how long building and running took. From
that follows the rest: the time between one record and the next is the time that the second one cost, of
which what was not building or running was searching and learning. A gap that is much longer than a round can
be is a pause between two runs and is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median

from ansor.errors import AnsorError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from measure import MeasureErrorNo, MeasureInput, MeasureResult, RecordReader
from measure.records.groups import RecordGroup, TaskGroups
from measure.records.log import PathLike, Record
from measure.records.record import computation_of, direct_of, known_dag
from measure.records.settled import TrialName, settled_trials, trial_of
from measure.records.targets import ANYTHING, RunsOn
from measure.records.unsaid import plain_key
from search.text import target_terms
from search.titles import title_of_key

LONGEST_GAP = 300.0
"""A gap between two records [s] beyond which, and beyond thrice the measurement itself, a run was paused."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """
    One measured program.

    Attributes
    ----------
    trial
        Its number within the task, from 1.
    spent
        Time on the task [s] when it was complete for the first time, pauses left out.
    elapsed
        Time since the log began [s], pauses left out.
    cost
        Wall time [s] of building and running it, as often as it was measured.
    record
        The record that counts.
    first
        Its first result, from which a search learned.
    """

    trial: int
    spent: float
    elapsed: float
    cost: float
    record: Record
    first: MeasureResult

    @property
    def seconds(self) -> float | None:
        """Mean run time [s], None for a failure."""
        result = self.record[1]
        return result.mean_cost if result.ok else None

    @property
    def error(self) -> MeasureErrorNo:
        """How it ended."""
        return self.record[1].error_no

    @property
    def algorithm(self) -> str:
        """Workload key of what it computes: the task's, or that of one of its alternatives."""
        return plain_key(self.record[0].task.workload_key)


@dataclass
class TaskHistory:
    """
    All attempts at one task under the same conditions, in log order, whatever their algorithm.

    Attributes
    ----------
    key, target, layouts
        Workload key, target and layout option.
    machine
        Where the target is silent about it.
    attempts
        What was measured.
    spent
        The time [s] that it took, pauses left out.
    """

    key: str
    target: str
    layouts: int
    machine: RunsOn = ANYTHING
    attempts: list[Attempt] = field(default_factory=list)
    spent: float = 0.0
    _dags: dict[str, ComputeDAG | None] = field(default_factory=dict, init=False, repr=False)

    @property
    def title(self) -> str:
        return title_of_key(self.key)

    @property
    def terms(self) -> str:
        """What its programs are for: the target, the machine, and the layout option if there is one."""
        terms = target_terms(self.target, self.machine)
        return f"{terms}, layout_rewrite_option {self.layouts}" if self.layouts else terms

    @cached_property
    def best(self) -> Attempt | None:
        """The fastest program, the earlier of two equals."""
        return fastest(self.attempts)

    @cached_property
    def algorithms(self) -> dict[str, list[Attempt]]:
        """The attempts by their algorithm, in order of appearance."""
        found: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            found.setdefault(attempt.algorithm, []).append(attempt)
        return found

    @cached_property
    def improvements(self) -> list[Attempt]:
        """Attempts that were the best so far."""
        found: list[Attempt] = []
        for attempt in self.attempts:
            if attempt.seconds is not None and (not found or attempt.seconds < (found[-1].seconds or 0.0)):
                found.append(attempt)
        return found

    def trials_to_within(self, share: float) -> int | None:
        """Trials until the best so far was at most `share` slower than the final best."""
        if self.best is None or self.best.seconds is None:
            return None
        limit = self.best.seconds * (1.0 + share)
        return next(a.trial for a in self.improvements if a.seconds is not None and a.seconds <= limit)

    @cached_property
    def outcomes(self) -> dict[MeasureErrorNo, int]:
        """How often each outcome occurred; success first, then the most frequent failure."""
        counts: dict[MeasureErrorNo, int] = {}
        for attempt in self.attempts:
            counts[attempt.error] = counts.get(attempt.error, 0) + 1
        ok = MeasureErrorNo.NO_ERROR
        return dict(sorted(counts.items(), key=lambda item: (item[0] is not ok, -item[1], item[0])))

    def dag_of(self, key: str) -> ComputeDAG | None:
        """Return the computation of a workload key, None if it is not known here."""
        if key not in self._dags:
            mine = (one.record[0].task for one in self.attempts if one.algorithm == plain_key(key))
            self._dags[key] = known_dag(key, next(map(computation_of, mine), None))
        return self._dags[key]

    @cached_property
    def noise(self) -> Noise:
        """How noisy the run times of its valid programs are."""
        return Noise.of([attempt.record[1] for attempt in self.attempts if attempt.seconds is not None])

    @property
    def flops(self) -> float:
        """FLOPs of the task itself [flop], in which speeds of all its algorithms are told; 0 if unknown."""
        dag = self.dag_of(self.key)
        return 0.0 if dag is None else max(0.0, dag.flop_count)

    def state_of(self, attempt: Attempt) -> State | None:
        """
        Replay a program as it was searched, before the layout option is applied.

        None if the computation is not known here or the steps do not apply to it.
        """
        dag = self.dag_of(attempt.record[0].task.workload_key)
        if dag is None:
            return None
        try:
            return attempt.record[0].replay(dag)
        except AnsorError:
            return None

    @cached_property
    def time(self) -> TimeSpent:
        """Where the time of this task went."""
        return TimeSpent.of(self.attempts, self.spent)


def fastest(attempts: Iterable[Attempt]) -> Attempt | None:
    """Find the attempt of the least run time, of equals the earliest; None if all failed."""
    valid = [attempt for attempt in attempts if attempt.seconds is not None]
    return min(valid, key=lambda attempt: attempt.seconds or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class Noise:
    """
    How noisy run times are.

    Attributes
    ----------
    programs, repeats
        How many programs, and all their repeats together.
    disturbed, redone
        Repeats that another load disturbed, and such as were done again for that, as far as the log tells.
    spread
        Median of the programs' `MeasureResult.spread`; None where none has several repeats.
    """

    programs: int
    repeats: int
    disturbed: int
    redone: int
    spread: float | None

    @classmethod
    def of(cls, results: Sequence[MeasureResult]) -> Noise:
        """Sum up the results of programs."""
        spreads = [spread for result in results if (spread := result.spread) is not None]
        return cls(
            len(results),
            sum(len(result.costs) for result in results),
            sum(result.disturbed for result in results),
            sum(result.redone for result in results),
            median(spreads) if spreads else None,
        )


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """
    Wall time [s] by what it was spent on.

    Programs are built side by side, so the times of building and running can add up to more than the time
    that passed; they are then scaled down to it.
    """

    valid: float
    failed: float
    searching: float

    @property
    def total(self) -> float:
        return self.valid + self.failed + self.searching

    @classmethod
    def of(cls, attempts: Iterable[Attempt], total: float) -> TimeSpent:
        """Divide `total` seconds among successes, failures, and the rest."""
        valid = failed = 0.0
        for attempt in attempts:
            if attempt.seconds is None:
                failed += attempt.cost
            else:
                valid += attempt.cost
        scale = min(1.0, total / (valid + failed)) if valid + failed > 0 else 0.0
        return cls(valid * scale, failed * scale, max(0.0, total - (valid + failed) * scale))


@dataclass
class LogHistory:
    """
    All tasks of a log, in order of appearance, and when it was written.

    Attributes
    ----------
    attempts
        The attempts at all tasks, each with its task, in log order.
    notes
        What was passed over in reading.
    elapsed
        Time that the log covers [s], pauses left out.
    first_timestamp, last_timestamp
        Unix times of the first and the last record, 0 if they have none.
    """

    name: str
    tasks: list[TaskHistory]
    attempts: list[tuple[TaskHistory, Attempt]]
    notes: list[str]
    elapsed: float = 0.0
    first_timestamp: int = 0
    last_timestamp: int = 0

    def totals(self) -> list[tuple[int, float, float]]:
        """Records so far, time [s] and sum of all tasks' best run times [s], once each has a program."""
        best: dict[int, float] = {}
        found: list[tuple[int, float, float]] = []
        for count, (task, attempt) in enumerate(self.attempts, 1):
            if attempt.seconds is not None:
                best[id(task)] = min(attempt.seconds, best.get(id(task), attempt.seconds))
            if len(best) == len(self.tasks):
                found.append((count, attempt.elapsed, sum(best.values())))
        return found


def read_history(log: PathLike) -> LogHistory:
    """
    Read a log.

    Records that are no measurements, as in lists of programs, are left out with a note. A program that was
    measured again is one attempt, with the result that counts (`measure.records.settled`).

    Raises
    ------
    FileNotFoundError
        If it does not exist.
    LogFormatError
        If a line cannot be understood.
    """
    reader = RecordReader(log)
    tasks: dict[RecordGroup, TaskHistory] = {}
    attempts: list[tuple[TaskHistory, Attempt]] = []
    places: dict[TrialName, int] = {}
    elapsed, previous, first = 0.0, 0, 0
    groups = TaskGroups(reader.measurements())
    settled = settled_trials(groups.records)
    for inp, res in groups.records:
        place = places.setdefault(trial_of(inp), len(attempts))
        known = attempts[place][0] if place < len(attempts) else None
        task = known or _task_of(inp, groups.of(inp), tasks)
        gap = _gap(previous, res.timestamp, res.all_cost)
        elapsed += gap
        task.spent += gap
        previous = res.timestamp or previous
        first = first or res.timestamp
        if known is not None:
            _note_again(attempts, place, res.all_cost)
            continue
        counts = settled[place].input, settled[place].result
        attempt = Attempt(len(task.attempts) + 1, task.spent, elapsed, res.all_cost, counts, res)
        task.attempts.append(attempt)
        attempts.append((task, attempt))
    return LogHistory(reader.filename, list(tasks.values()), attempts, reader.notes, elapsed, first, previous)


def _task_of(inp: MeasureInput, group: RecordGroup, tasks: dict[RecordGroup, TaskHistory]) -> TaskHistory:
    """Find the task of a record's group, or begin it."""
    key, target, _ = direct_of(inp.task).key
    return tasks.setdefault(group, TaskHistory(key, target, group.layouts, group.runs_on))


def _note_again(attempts: list[tuple[TaskHistory, Attempt]], place: int, cost: float) -> None:
    """Note what a later record of an attempt's program cost [s]."""
    task, attempt = attempts[place]
    new = replace(attempt, cost=attempt.cost + cost)
    task.attempts[attempt.trial - 1] = new
    attempts[place] = task, new


def _gap(before: int, after: int, cost: float) -> float:
    """Time [s] that a record took: since the one before it, unless a run was paused or logs were joined."""
    gap = float(after - before)
    if before <= 0 or after <= 0 or gap < 0 or gap > max(LONGEST_GAP, 3 * cost):
        return cost
    return gap
