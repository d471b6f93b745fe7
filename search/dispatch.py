"""Looking up the best known program of a computation: `ApplyHistoryBest`.

A lookup goes by workload key first, then by the structure of the computation, so that a record is found
although its operators were renamed, or although it was made from a registered function and the question comes
with a bare graph. Contexts nest: what an inner one does not have, the outer ones are asked for.

    with ansor.ApplyHistoryBest("net.json") as history:
        for task in tasks:
            schedule, args = history.apply(task)    # the default schedule on a miss
        print(history.report())

Source: `auto_scheduler.dispatcher` of TVM 0.16.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self, Union

from ansor.checks import check_integer
from ansor.errors import AnsorError, DefinitionError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.layout_rewrite import layout_free_inputs
from ansor.schedule.manual import Schedule
from ansor.schedule.state import State
from ansor.schedule.structure import KeyMatch, match_key
from ansor.task.layout import rewrite_layouts
from ansor.task.registry import workload_key_to_tensors
from ansor.task.target import Target
from ansor.task.task import LayoutRewriteOption, Task
from ansor.te.tensor import Tensor
from ansor.wording import counted
from measure import MeasureInput, MeasureResult, load_records, same_target
from measure.records.best import workload_distance
from measure.records.groups import OptionsByKey, RecordGroup, record_group
from measure.records.record import is_outdated, known_dag, named_computation, outdated_text
from measure.records.settled import settled_records
from measure.records.targets import ANYTHING, RunsOn, here, other_conditions, runs_on, target_text
from measure.records.unsaid import plain_key
from search.text import seconds_text
from search.titles import title_of_key

PathLike = str | os.PathLike[str]
Record = tuple[MeasureInput, MeasureResult]
Records = Union[PathLike, Sequence[PathLike], Iterable[Record]]
Subject = Union[Task, ComputeDAG, str]

_note = logging.getLogger(__name__)
_current: ContextVar[DispatchContext | None] = ContextVar("ansor_dispatch", default=None)


@dataclass(frozen=True, slots=True)
class Hit:
    """A program that was found.

    Attributes
    ----------
    state
        The program, for the computation that was asked for, as it was searched: no layout is rewritten.
    seconds
        Its mean run time [s], for the computation that it was measured with.
    how
        "key": equal workload keys; "structure": equal computations under other names or keys; "shapes": a key
        of TVM's that cannot be checked, of equal shapes, whose steps apply; "compatible": another size.
    scale
        How much more work the computation that was asked for is than the one that was measured.
    differs
        Whether it was measured under another layout option than that of the question, where this matters.
    foreign
        Whether it was measured for another target than that of the question, or with other cores.
    """

    state: State
    seconds: float
    how: str
    scale: float = 1.0
    differs: bool = False
    foreign: bool = False

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Orders hits, the best first: by size, layout option, target, then run time [s] at this size."""
        return self.scale != 1.0, self.differs, self.foreign, self.seconds * self.scale

    def __str__(self) -> str:
        return f"{seconds_text(self.seconds)}, found by {self.how}:\n{self.state}"


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked up: a computation, the key it has, the target, and what becomes of its layouts.

    `machine` is what a program will run on where the target is silent.
    """

    dag: ComputeDAG
    key: str
    target: Target
    layout_rewrite_option: LayoutRewriteOption = LayoutRewriteOption.NO_REWRITE
    machine: RunsOn = ANYTHING

    @classmethod
    def of(cls, subject: Subject, target: Target | str | None = None) -> Query:
        """
        Complete a question; a target that is not given is the task's, else this machine's CPU.

        The layout option is the task's; a bare computation or key has none. The machine is the task's, too,
        unless a target is given; else it is this one.

        Raises
        ------
        DefinitionError
            If a key is given whose workload is not registered, or something else altogether.
        """
        if isinstance(subject, Task):
            return cls(
                subject.compute_dag,
                subject.workload_key,
                Target(target or subject.target),
                subject.layout_rewrite_option,
                runs_on(subject) if target is None else here(target),
            )
        chosen = Target(target or "llvm")
        if isinstance(subject, ComputeDAG):
            return cls(subject, subject.workload_key(), chosen, machine=here(chosen))
        if not isinstance(subject, str):
            raise DefinitionError(
                f"a record is looked up for a task, a ComputeDAG or a workload key, found {subject!r}"
            )
        return cls(ComputeDAG(workload_key_to_tensors(subject)), subject, chosen, machine=here(chosen))

    @classmethod
    def of_alternatives(cls, subject: Subject, target: Target | str | None = None) -> list[Query]:
        """Ask for the alternatives of a task in its place."""
        alternatives = subject.alternatives if isinstance(subject, Task) else ()
        return [cls.of(one, target) for one in alternatives]


class DispatchContext:
    """
    Base of contexts that know programs; override `lookup`.

    Parameters
    ----------
    target
        What bare computations and keys are looked up for where a call does not say.

    Attributes
    ----------
    misses
        How often each computation was asked for in vain, by title and target.

    Raises
    ------
    TargetError
        If there is no such target.
    """

    def __init__(self, target: Target | str | None = None) -> None:
        self.target = None if target is None else Target(target)
        self.misses: dict[str, int] = {}
        self._outer: DispatchContext | None = None
        self._token: Token[DispatchContext | None] | None = None

    def lookup(self, query: Query) -> Hit | None:
        """Find the best program that this context knows."""
        raise NotImplementedError

    def targets_of(self, workload_key: str) -> Sequence[str]:
        """Targets for which this context knows programs of a key, as text."""
        return ()

    def chain(self) -> Iterator[DispatchContext]:
        """This context and those around it, from inside."""
        context: DispatchContext | None = self
        while context is not None:
            yield context
            context = context._outer

    def _query(self, subject: Subject, target: Target | str | None) -> Query:
        """Complete a question; see `find` for the target."""
        if target is None and not isinstance(subject, Task):
            target = next((one.target for one in self.chain() if one.target is not None), None)
        return Query.of(subject, target)

    def find(self, subject: Subject, target: Target | str | None = None) -> Hit | None:
        """Find the best program known here or in the contexts around; a miss is counted.

        Parameters
        ----------
        subject
            A task, a computation, or a workload key.
        target
            Default: the task's; without a task that of the innermost context that names one, else this
            machine's CPU.
        """
        query = self._query(subject, target)
        queries = [query, *Query.of_alternatives(subject, target)]
        for context in self.chain():
            hits = [hit for one in queries if (hit := context.lookup(one)) is not None]
            if hits:
                return min(hits, key=lambda hit: hit.rank)
        what = f"{title_of_key(query.key)} on {query.target}"
        self.misses[what] = self.misses.get(what, 0) + 1
        if self.misses[what] == 1:
            _note.warning("no record for %s", what)
        return None

    def query(self, subject: Subject, target: Target | str | None = None) -> State | None:
        """Find the best program as `find` does; the state alone."""
        hit = self.find(subject, target)
        return None if hit is None else hit.state

    def apply(self, subject: Subject, target: Target | str | None = None) -> tuple[Schedule, list[Tensor]]:
        """
        Schedule and arguments of the best program, as `ansor.build` takes them; unscheduled on a miss.

        The layout option of a task is applied, as `SearchTask.apply_best` does: with option 2 the layout-free
        inputs among the arguments have new shapes.
        """
        hit, query = self.find(subject, target), self._query(subject, target)
        if hit is None:
            return Schedule(State.initial(query.dag)), list(query.dag.tensors)
        rewrite = rewrite_layouts(hit.state, query.layout_rewrite_option)
        return Schedule(rewrite.state), rewrite.tensors

    def report(self) -> str:
        """Say what was asked for in vain."""
        if not self.misses:
            return "every computation had a record"
        lines = [f"  {what}" + (f" ({n} times)" if n > 1 else "") for what, n in self.misses.items()]
        return "\n".join([f"{counted(len(self.misses), 'computation')} without a record:", *lines])

    def __enter__(self) -> Self:
        if self._token is not None:
            raise DefinitionError("this context is entered already; make another one to nest")
        self._outer = _current.get()
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
        self._token = self._outer = None


def dispatch_context() -> DispatchContext | None:
    """Return the innermost context that is entered, if any."""
    return _current.get()


class ApplyHistoryBest(DispatchContext):
    """
    Knows the best programs of logs.

    Where inputs are free of layout, records under the layout option of the question come first; others serve
    if there are none.

    Parameters
    ----------
    records
        A log, several, or (input, result) pairs.
    n_lines
        Read only so many records of each log.
    include_compatible
        On a miss, take a program of the same workload at sizes of which the wanted ones are whole multiples.
    target
        As in `DispatchContext`.

    Raises
    ------
    DefinitionError
        If the records are none, or the number of lines is no number.
    TargetError
        If there is no such target.
    FileNotFoundError
        If there is no such log.
    LogFormatError
        If a line of a log cannot be understood.
    """

    def __init__(
        self,
        records: Records,
        n_lines: int | None = None,
        include_compatible: bool = False,
        target: Target | str | None = None,
    ) -> None:
        super().__init__(target)
        if n_lines is not None:
            n_lines = check_integer("ApplyHistoryBest(n_lines)", n_lines, low=0)
        self.include_compatible = include_compatible
        self._groups: dict[RecordGroup, list[Record]] = {}
        self._computations: dict[str, str | None] = {}
        self._warned: set[str] = set()
        options: OptionsByKey = {}
        read = (record for source in _sources(records) for record in islice(source, n_lines))
        for inp, res in settled_records(read):
            if res.ok:
                self._groups.setdefault(record_group(inp, options), []).append((inp, res))
        for group in self._groups.values():
            group.sort(key=lambda record: record[1].mean_cost)

    def __len__(self) -> int:
        """How many tasks have records; one under two layout options, or with two numbers of cores, is two."""
        return len(self._groups)

    def __repr__(self) -> str:
        return f"<ApplyHistoryBest of {counted(len(self), 'task')}>"

    def targets_of(self, workload_key: str) -> Sequence[str]:
        """Targets of the records of a key."""
        wanted = plain_key(workload_key)
        return [
            target_text(best[0][0].task) for group, best in self._groups.items() if group.workload == wanted
        ]

    def lookup(self, query: Query) -> Hit | None:
        """Find the best program of the logs, by key, then by structure, then by compatible size.

        One measured under other conditions, or another layout option, is a last resort, before other sizes.
        Those of the key when it stood for another computation are left out; a warning tells how many, once.
        """
        self._warn_of_outdated(query)
        others: list[Hit] = []
        for how in ("key", "structure", "shapes"):
            hit = self._best(query, how)
            if hit is not None:
                if not hit.differs and not hit.foreign:
                    return hit
                others.append(hit)
        if others:
            return min(others, key=lambda hit: hit.rank[:3])  # Of equals the surer way counts.
        return self._best(query, "compatible") if self.include_compatible else None

    def _warn_of_outdated(self, query: Query) -> None:
        """Warn, once for each key, of records from when its function computed something else."""
        key, computations = plain_key(query.key), (None, named_computation(query.dag))
        count = sum(
            len(records)
            for group, records in self._groups.items()
            if group.workload == key and group.computation not in computations
        )
        if count and key not in self._warned:
            self._warned.add(key)
            _note.warning("%s", outdated_text(count, title_of_key(key)))

    def _best(self, query: Query, how: str) -> Hit | None:
        """Find the best program among the records that fit the query in the given way."""
        candidates = sorted(self._candidates(query, how), key=lambda one: one[:3])
        for differs, foreign, _, scale, (inp, res) in candidates:
            state = _replayed(inp, query.dag)
            if state is not None:
                return Hit(state, res.mean_cost, how, scale, differs, foreign)
        return None

    def _candidates(self, query: Query, how: str) -> Iterator[tuple[bool, bool, float, float, Record]]:
        """Records that fit the query in the given way.

        Of each: whether its layout option differs, whether it was measured for another target or on another
        machine, cost, scale, record.
        """
        free = bool(layout_free_inputs(query.dag))
        for group, records in self._groups.items():
            one = records[0][0].task
            if not same_target(query.target, target_text(one)):
                continue
            foreign = bool(other_conditions(one, query.target, query.machine))
            scale = self._factor(group, query, how)
            if math.isinf(scale):
                continue
            differs = free and group.layouts != query.layout_rewrite_option
            for record in records:
                yield differs, foreign, record[1].mean_cost * scale, scale, record

    def _factor(self, group: RecordGroup, query: Query, how: str) -> float:
        """1 for records whose key fits, more for those of another size, infinite for others."""
        key, same = group.workload, named_computation(query.dag)
        if key == plain_key(query.key):
            return 1.0 if how == "key" and group.computation in (None, same) else math.inf
        if how == "key":
            return math.inf
        if how == "compatible":
            outdated = is_outdated(key, group.computation)
            return math.inf if outdated else workload_distance(query.key, key)
        match = match_key(key, query.dag.structure_hash, query.dag.tensors)
        if how == "shapes":
            return 1.0 if match is KeyMatch.SHAPES else math.inf
        computation = group.computation or self._registered(key)
        return 1.0 if match is KeyMatch.EXACT or computation == same else math.inf

    def _registered(self, key: str) -> str | None:
        """What a workload computes as it is registered here, None if it is not."""
        if key not in self._computations:
            dag = known_dag(key)
            self._computations[key] = None if dag is None else named_computation(dag)
        return self._computations[key]


def _replayed(inp: MeasureInput, dag: ComputeDAG) -> State | None:
    """Replay a record on a computation; None if it does not apply."""
    try:
        return inp.replay(dag)
    except AnsorError:
        return None


def _sources(records: Records) -> Iterator[Iterator[Record]]:
    """Iterators over records: of each log, or of the pairs that were given."""
    if isinstance(records, (str, os.PathLike)):
        yield load_records(records)
        return
    pairs: list[Record] = []
    if not isinstance(records, Iterable):
        raise _no_records(records)
    for item in records:
        if isinstance(item, (str, os.PathLike)):
            yield load_records(item)
        elif _is_record(item):
            pairs.append(item)
        else:
            raise _no_records(item)
    if pairs:
        yield iter(pairs)


def _is_record(item: object) -> bool:
    return (
        isinstance(item, (tuple, list))
        and len(item) == 2
        and isinstance(item[0], MeasureInput)
        and isinstance(item[1], MeasureResult)
    )


def _no_records(given: object) -> DefinitionError:
    return DefinitionError(
        f"ApplyHistoryBest({given!r}): it takes the path of a log, several, or pairs of a MeasureInput and a "
        "MeasureResult"
    )
