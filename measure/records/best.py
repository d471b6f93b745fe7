"""Choosing records: which of a log's lines speak about a given task, and which is the best of them.

A program may serve on a target, or a machine, that it was not measured for (`targets`); one that was
measured for just these is preferred, whatever the others' times.

Workload keys come in three forms. ``["name", args...]`` compares as JSON, and a record that says what it
computes (`record.computation_of`) must compute the same. ``["structure hash", shapes...]`` is ours
for an unregistered computation, and is compared with that of the computation in question. TVM's form of that
has a hash of its own printed text, which cannot be recomputed here; such a record matches a computation whose
inputs and outputs have these shapes and to which its steps apply.

Source: `load_best_record` and the workload keys of TVM 0.16.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from ansor.errors import AnsorError, DefinitionError
from ansor.plugins import brief
from ansor.schedule.structure import KeyMatch, match_key
from ansor.task.target import Target
from measure.records.groups import RecordGroup, TaskGroups
from measure.records.log import PathLike, Record, RecordReader
from measure.records.record import (
    MeasureInput,
    MeasureResult,
    computation_of,
    computes,
    is_outdated,
    outdated_text,
)
from measure.records.settled import settled_trials
from measure.records.targets import ANYTHING, RunsOn, other_conditions, same_target, target_text
from measure.records.unsaid import plain_key

if TYPE_CHECKING:
    from ansor.schedule.dag import ComputeDAG
    from ansor.task.task import Task

_note = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record of a log, and where it stands.

    Attributes
    ----------
    input, result
        The program and what was measured.
    filename, line
        The log, and the number of the line there, from 1.
    trial
        How many programs of the same task the log holds up to this one, whatever their algorithm
        (`groups.TaskGroups`).
    scale
        How much more work the wanted computation is than the recorded one.
    conditions
        Under which others it was measured than the wanted ones, for which it may serve: "for the target llvm
        -num-cores=2", "with 2 cores". Its time is then not that of this program here. Empty if under those.
    """

    input: MeasureInput
    result: MeasureResult
    filename: str
    line: int
    trial: int
    scale: float = 1.0
    conditions: str = ""

    @property
    def foreign(self) -> bool:
        """Whether it was measured for another target, or on another machine."""
        return bool(self.conditions)

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Orders records, the best first: of just the size, then under just the conditions, then by cost."""
        return self.scale != 1.0, self.foreign, self.cost

    @property
    def cost(self) -> float:
        """Mean run time [s] times `scale`: what the wanted computation is taken to need."""
        return self.result.mean_cost * self.scale

    def __str__(self) -> str:
        measured = f", measured {self.conditions}" if self.conditions else ""
        return f"trial {self.trial}, {self.filename}:{self.line}{measured}"


def load_best_record(
    filename: PathLike,
    workload_key: str | None = None,
    target: Target | str | None = None,
    include_compatible: bool = False,
    dag: ComputeDAG | None = None,
    layout_rewrite_option: int | None = None,
) -> tuple[MeasureInput, MeasureResult] | tuple[None, None]:
    """Return the fastest record of a log that fits, or ``(None, None)``: see `find_best_record`."""
    found = find_best_record(filename, workload_key, target, include_compatible, dag, layout_rewrite_option)
    return (None, None) if found is None else (found.input, found.result)


def find_best_record(
    filename: PathLike,
    workload_key: str | None = None,
    target: Target | str | None = None,
    include_compatible: bool = False,
    dag: ComputeDAG | None = None,
    layout_rewrite_option: int | None = None,
    machine: RunsOn = ANYTHING,
) -> FoundRecord | None:
    """Find the fastest successful record of a log that fits, the earlier one of two equals.

    Of a program that was measured again the record counts that rests on most quiet repeats
    (`settled`). Records of a function that computes something else now are left out; a warning
    tells, once, how many of the workload's are.

    Parameters
    ----------
    filename
        The log.
    workload_key
        Keep records of this workload only; None keeps all.
    target
        Keep records that may serve on this target only, and of these those that were measured for just it
        if there are any; None keeps all.
    include_compatible
        Where there is none, take the same workload at other sizes of which these are whole multiples; their
        cost counts times the ratio.
    dag
        The computation, which lets records match that are known by a hash of it only. Programs that are none
        of it, and records of another one, are left out: a workload may have been defined otherwise when they
        were measured.
    layout_rewrite_option
        Keep records that were measured with this option only; None keeps all. Costs under different options
        are of different programs.
    machine
        What the wanted program will run on where `target` is silent; records of another one come last, as
        those for other targets do.

    Raises
    ------
    DefinitionError
        If the key is no text.
    TargetError
        If the target is none, or of a kind that there is not.
    FileNotFoundError
        If there is no such log.
    LogFormatError
        If it has a line that cannot be understood.
    """
    if workload_key is not None and not isinstance(workload_key, str):
        raise DefinitionError(
            f"workload_key={brief(workload_key)} is no text: pass the key of a task, task.workload_key"
        )
    if target is not None and not isinstance(target, Target):
        Target.parse(target)  # What is misspelt would be found nowhere; other options are those of logs.
    wanted = _Wanted(workload_key, target, include_compatible, dag, layout_rewrite_option, cache(is_outdated))
    reader, lines, records = RecordReader(filename), list[int](), list[Record]()
    for record in reader.measurements():
        records.append(record)
        lines.append(reader.line)
    groups = TaskGroups(records)
    numbers: Counter[RecordGroup] = Counter()
    fitting: list[FoundRecord] = []
    outdated = 0
    for trial in settled_trials(groups.records):
        inp, group = trial.input, groups.of(trial.input)
        numbers[group] += 1
        outdated += wanted.names(inp) and wanted.computed_otherwise(inp)
        scale = wanted.scale_of(inp)
        if trial.result.ok and math.isfinite(scale):
            place = reader.filename, lines[trial.position], numbers[group]
            conditions = "" if target is None else other_conditions(inp.task, target, machine)
            fitting.append(FoundRecord(inp, trial.result, *place, scale=scale, conditions=conditions))
    if outdated:
        _warn_of_outdated(reader.filename, workload_key, outdated)
    ranked = sorted(fitting, key=lambda found: found.rank)
    return next((found for found in ranked if dag is None or _applies(found.input, dag)), None)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a record must be of to serve, as `find_best_record` is asked for it."""

    workload_key: str | None
    target: Target | str | None
    include_compatible: bool
    dag: ComputeDAG | None
    layout_rewrite_option: int | None
    is_outdated: Callable[[str, str | None], bool]

    def names(self, inp: MeasureInput) -> bool:
        """Whether a record has the wanted key; if nothing is wanted, any has."""
        if self.workload_key is None:
            return self.dag is None
        return workload_distance(self.workload_key, inp.task.workload_key) == 1.0

    def computed_otherwise(self, inp: MeasureInput) -> bool:
        """Whether a record is known to be of something else than is wanted, or than its key is of now."""
        if self.dag is not None:
            return not computes(inp.task, self.dag)
        return self.is_outdated(inp.task.workload_key, computation_of(inp.task))

    def scale_of(self, inp: MeasureInput) -> float:
        """How much more work is wanted than was recorded; infinite for a record that cannot serve."""
        if self.target is not None and not same_target(self.target, target_text(inp.task)):
            return math.inf
        if self.layout_rewrite_option not in (None, inp.task.layout_rewrite_option or 0):
            return math.inf
        if self.workload_key is None:
            return math.inf if self.computed_otherwise(inp) else 1.0
        distance = workload_distance(self.workload_key, inp.task.workload_key)
        if distance == 1.0 and not self.computed_otherwise(inp):
            return distance
        if self.include_compatible and 1.0 < distance < math.inf:
            outdated = self.is_outdated(inp.task.workload_key, computation_of(inp.task))
            return math.inf if outdated else distance
        return 1.0 if self.dag is not None and is_of_structure(inp, self.dag) else math.inf


@cache
def _warn_of_outdated(log: str, workload_key: str | None, count: int) -> None:
    """Warn of programs in a log that are of no use any more; once, though the log is read again."""
    _note.warning("%s: %s", log, outdated_text(count, workload_key))


@lru_cache(maxsize=1024)  # A log says the same keys again and again.
def workload_distance(wanted: str, found: str) -> float:
    """How much more work `wanted` is than `found`, of the same computation at other sizes.

    1.0 for equal keys; infinite if they name different computations, a size of `wanted` is not a whole
    multiple of its counterpart, or anything else differs.
    """
    if wanted == found:
        return 1.0
    try:
        one, other = json.loads(wanted), json.loads(found)
    except ValueError:
        return math.inf
    if not isinstance(one, list) or not isinstance(other, list) or one[:1] != other[:1]:
        return math.inf
    return _distance(one[1:], other[1:])


def _distance(wanted: Any, found: Any) -> float:
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return math.prod(_distance(a, b) for a, b in zip(wanted, found, strict=True))
    if wanted == found and type(wanted) is type(found):
        return 1.0
    if type(wanted) is int and type(found) is int and wanted > 0 and found > 0 and wanted % found == 0:
        return float(wanted // found)
    return math.inf


def has_key_of(inp: MeasureInput, task: Task) -> bool:
    """Whether a record has a task's workload key, whatever it computed then."""
    return plain_key(inp.task.workload_key) == plain_key(task.workload_key)


def is_named_as(inp: MeasureInput, task: Task) -> bool:
    """Whether a record has a task's workload key, or one that stands for its computation."""
    return has_key_of(inp, task) or is_of_structure(inp, task.compute_dag)


def is_of(inp: MeasureInput, task: Task) -> bool:
    """Whether a record is of a task's computation, for whatever target."""
    return is_named_as(inp, task) and computes(inp.task, task.compute_dag)


def is_of_structure(inp: MeasureInput, dag: ComputeDAG) -> bool:
    """Whether the key of a record may be a hash of this computation; its steps tell more."""
    return match_key(inp.task.workload_key, dag.structure_hash, dag.tensors) is not KeyMatch.NONE


def _applies(inp: MeasureInput, dag: ComputeDAG) -> bool:
    """Whether the steps of a record are a program of this computation."""
    try:
        inp.replay(dag)
    except AnsorError:
        return False
    return True
