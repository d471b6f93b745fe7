"""`WarmStart`: begin a search with what was best for the same computation at other sizes.

A log of neighbours is not knowledge of this task: nothing in it was measured here. But its best programs,
refitted, are better first guesses than random ones, and a learned model and an evolution both grow from what
was measured first. So they are offered as candidates, measured like any other, before the policy's own.

Two computations are neighbours if they have the same skeleton (`search.skeleton`): the same operations and
loops, whatever their sizes. Where a log's workload is not known here, the function's name and the form of its
arguments, and whether the steps apply, must do.
"""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansor.checks import check_integer
from ansor.errors import AnsorError, DefinitionError, LogFormatError, ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.identity import program_key
from ansor.schedule.layout_rewrite import layout_free_inputs
from ansor.schedule.stages import Stage
from ansor.schedule.state import State
from ansor.schedule.steps import Step
from ansor.task.registry import recorded_dag
from ansor.task.task import Task
from ansor.te.tensor import Operation
from ansor.wording import counted
from measure import MeasureInput, MeasureResult, load_measurements, same_target
from measure.layouts import layout_option
from measure.records.log import check_log, check_rereadable
from measure.records.record import LoggedState, computation_of, is_outdated
from measure.records.settled import settled_records
from measure.records.targets import target_text
from search.policy import InitSearchCallback
from search.preload import is_record_of
from search.refit import Refit, refit_steps
from search.skeleton import size_distance, skeleton
from search.titles import title_of_key

_LISTED = 4
_note = logging.getLogger(__name__)
PathLike = str | os.PathLike[str]


def log_names(asking: str, given: object) -> list[str]:
    """
    Give one log, or several, as a list of paths.

    Parameters
    ----------
    asking
        The call up to what was given, for the message.
    given
        What was given.

    Raises
    ------
    DefinitionError
        If it is neither.
    """
    names = [given] if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(names, (list, tuple)) or not all(isinstance(n, (str, os.PathLike)) for n in names):
        raise DefinitionError(f"{asking}{given!r}): it takes the path of a log, or a list of paths")
    return [os.fspath(name) for name in names]


def nothing_for(task: Task, logs: Sequence[str], passed_over: Mapping[str, int]) -> str:
    """
    Say that logs have no program to begin a search with, and why.

    Parameters
    ----------
    task
        What was to be searched.
    logs
        Where programs were looked for.
    passed_over
        How many records were of no use, by reason: "of softmax(8, 8), another computation".
    """
    held = [f"{counted(number, 'record')} {reason}" for reason, number in passed_over.items()]
    listed = "; ".join(held[:_LISTED]) + (f"; and {len(held) - _LISTED} more" if len(held) > _LISTED else "")
    return (
        f"no program to begin {title_of_key(task.workload_key)} with in {', '.join(logs)}, "
        f"which has {listed or 'no record'}; the search begins without"
    )


@dataclass
class _Source:
    """A neighbour: its computation if that is known here, how far its sizes are, and its best programs."""

    key: str
    dag: ComputeDAG | None
    distance: float
    programs: list[tuple[bool, float, tuple[Step, ...]]] = field(default_factory=list)
    """Whether the layout option was another one, run time [s], steps."""


class WarmStart(InitSearchCallback):
    """
    Offers a search refitted programs from logs of the same computation at other sizes.

    The nearest sizes come first, of each the fastest programs, those under the task's layout option before
    others. Use logs that are complete: a run that resumes
    finds the candidates of its first start again only if these logs have not changed.

    Parameters
    ----------
    log_file
        A log, or several.
    count
        Candidates to offer at most, of each algorithm that is searched.
    per_source
        Programs to take from one neighbour at most.

    Attributes
    ----------
    notes
        Where the candidates of the last call came from; if there were none, why not, which is also logged as
        a warning.

    Raises
    ------
    DefinitionError
        If a log is no path, a directory or a pipe, or a number is none.
    FileNotFoundError
        If there is no such log.
    """

    def __init__(self, log_file: PathLike | Sequence[PathLike], count: int = 16, per_source: int = 8) -> None:
        self.log_files = log_names("WarmStart(", log_file)
        count = check_integer("WarmStart(count)", count, low=0)
        per_source = check_integer("WarmStart(per_source)", per_source, low=0)
        for name in self.log_files:
            check_log(name, " to start from")
            check_rereadable(name)
        self.count = count
        self.per_source = per_source
        self.notes: list[str] = []

    def __repr__(self) -> str:
        return f"WarmStart({self.log_files}, count={self.count}, per_source={self.per_source})"

    def candidates(self, task: Task) -> list[State]:
        """
        Refit programs of other sizes to `task`; each is legal, and no two are the same.

        Raises
        ------
        LogFormatError
            If a line of a log cannot be understood.
        """
        found: dict[str, State] = {}
        taken: dict[str, int] = {}
        passed_over: Counter[str] = Counter()
        refused: set[tuple[str, tuple[Step, ...]]] = set()
        for source, steps, how in self._attempts(self._sources(task, passed_over)):
            if len(found) >= self.count:
                break
            try:
                state = refit_steps(task.compute_dag, steps, how, source.dag)
                key = program_key(state)
            except ScheduleError:
                refused.add((source.key, steps))
                continue
            if key not in found:
                found[key] = state
                taken[source.key] = taken.get(source.key, 0) + 1
        self.notes = [f"{counted(n, 'program')} from {title_of_key(key)}" for key, n in taken.items()]
        for note in self.notes:
            _note.info("%s is begun with %s", title_of_key(task.workload_key), note)
        if not found and self.count and self.per_source:
            passed_over.update(f"of {title_of_key(key)}, whose steps do not apply" for key, _ in refused)
            self.notes = [nothing_for(task, self.log_files, passed_over)]
            _note.warning("%s", self.notes[0])
        return list(found.values())

    def _attempts(self, sources: Sequence[_Source]) -> Iterator[tuple[_Source, tuple[Step, ...], Refit]]:
        """The best of every neighbour in every way, then the second best of each, and so on."""
        for rank in range(self.per_source):
            for source in sources:
                if rank < len(source.programs):
                    for how in Refit:
                        yield source, source.programs[rank][2], how

    def _sources(self, task: Task, passed_over: Counter[str]) -> list[_Source]:
        """Neighbours of `task` in the logs, nearest first, their programs fastest first.

        Records of no use are counted in `passed_over`, by reason.
        """
        sources: dict[tuple[str, str | None], _Source | None] = {}
        wanted = task.layout_rewrite_option if layout_free_inputs(task.compute_dag) else 0
        read = (record for name in self.log_files for record in load_measurements(name))
        for inp, res in settled_records(read):
            key, reason = inp.task.workload_key, of_no_use(task, inp, res)
            place = key, computation_of(inp.task)
            if not reason and place not in sources:
                sources[place] = None if is_outdated(*place) else _neighbour(task, key)
            source = sources.get(place)
            if not reason and source is None:
                reason = f"of {title_of_key(key)}, another computation"
            if source is None or reason:
                passed_over[reason] += 1
                continue
            assert isinstance(inp.state, LoggedState)
            try:
                differs = layout_option(inp, source.dag) != wanted
                source.programs.append((differs, res.mean_cost, inp.state.steps))
            except LogFormatError:  # A step of a later version.
                passed_over[f"of {title_of_key(key)} with steps that are not known here"] += 1
        near = [source for source in sources.values() if source is not None]
        for source in near:
            source.programs.sort(key=lambda program: program[:2])
        return sorted(near, key=lambda source: source.distance)


def of_no_use(task: Task, inp: MeasureInput, res: MeasureResult) -> str:
    """Why a record cannot begin a search, whatever its computation; empty if it can."""
    title = title_of_key(inp.task.workload_key)
    if not res.ok:
        return f"of {title}, failed"
    if not same_target(task.target, target_text(inp.task)):
        return f"of {title} for another target, {target_text(inp.task)}"
    if is_record_of(task, inp):
        return f"of {title} itself, from which a run with this log goes on"
    return ""


def _neighbour(task: Task, key: str) -> _Source | None:
    """The workload `key` as a neighbour of `task`, None if it is none."""
    try:
        dag = recorded_dag(key)
    except AnsorError:  # Unknown here.
        distance = size_distance(task.workload_key, key)
        return None if math.isinf(distance) else _Source(key, None, distance)
    if skeleton(dag) != skeleton(task.compute_dag):
        return None
    return _Source(key, dag, _dag_distance(task.compute_dag, dag))


def _dag_distance(one: ComputeDAG, other: ComputeDAG) -> float:
    """Sum over the loops of two graphs of one skeleton of ``|log2|`` of the ratio of their extents."""
    pairs = zip(map(_extents, one.ops), map(_extents, other.ops), strict=True)
    return math.fsum(
        abs(math.log2(a / b)) for first, second in pairs for a, b in zip(first, second, strict=True)
    )


def _extents(op: Operation) -> list[int]:
    return [loop.extent if isinstance(loop.extent, int) else 1 for loop in Stage.of_op(op).iterators]
