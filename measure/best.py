"""Choosing records: which of a log's lines speak about a given task, and which is the best of them.

Targets are compared by what decides whether a program is good and legal there: the kind, and the CPU or GPU
model where both sides name one. Thread counts, keys and automatic triples differ between versions and
machines without meaning another target, so they are not compared (of a triple, the architecture is).

Workload keys come in two forms. ``["name", args...]`` compares as JSON. ``["hash of the DAG's text",
shapes...]``, which TVM writes for unregistered computations, cannot be recomputed here; such a record matches
a computation whose inputs and outputs have these shapes and to which its steps apply.

Source: reference sections 1.2 and 1.7 (`load_best_record`), 5.4.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from typing import TYPE_CHECKING, Any

from ansor.errors import AnsorError
from ansor.task.target import Target
from measure.log import PathLike, load_records
from measure.record import AnyTask, LoggedState, LoggedTask, MeasureInput, MeasureResult

if TYPE_CHECKING:
    from ansor.schedule.dag import ComputeDAG

_COMPARED = ("mcpu", "arch", "device", "model", "mattr")
_HASH = re.compile(r"[0-9a-f]{32}")


def load_best_record(
    filename: PathLike,
    workload_key: str | None = None,
    target: Target | str | None = None,
    include_compatible: bool = False,
    dag: ComputeDAG | None = None,
) -> tuple[MeasureInput, MeasureResult] | tuple[None, None]:
    """Return the fastest successful record of a log that fits, or ``(None, None)``.

    Parameters
    ----------
    filename
        The log.
    workload_key
        Keep records of this workload only; None keeps all.
    target
        Keep records of this target only (see the module's text); None keeps all.
    include_compatible
        Also consider the same workload at other sizes of which these are whole multiples; their cost counts
        times the ratio.
    dag
        The computation, which lets records match that are known by a hash of it only.

    Raises
    ------
    FileNotFoundError
        If there is no such log.
    LogFormatError
        If it has a line that cannot be understood.
    """
    best: tuple[MeasureInput, MeasureResult] | tuple[None, None] = (None, None)
    best_cost = math.inf
    for inp, res in load_records(filename):
        if not res.ok or (target is not None and not same_target(target, target_text(inp.task))):
            continue
        factor = 1.0
        if workload_key is not None:
            factor = workload_distance(workload_key, inp.task.workload_key)
            if factor != 1.0 and not include_compatible:
                factor = math.inf
            if math.isinf(factor) and dag is not None and matches_by_structure(inp, dag):
                factor = 1.0
        cost = res.mean_cost * factor
        if cost < best_cost:
            best, best_cost = (inp, res), cost
    return best


def target_text(task: AnyTask) -> str:
    """Return the target of a task as text, without parsing one that came from a log."""
    return task.target_text if isinstance(task, LoggedTask) else str(task.target)


def same_target(one: Target | str, other: Target | str) -> bool:
    """Whether programs for the one target are meant for the other, too."""
    (kind_a, a), (kind_b, b) = _target_facts(str(one)), _target_facts(str(other))
    return kind_a == kind_b and all(a[name] == b[name] for name in a.keys() & b.keys())


def _target_facts(text: str) -> tuple[str, dict[str, str]]:
    """Return the kind of a target and the options that are compared; never fail on odd text."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    facts: dict[str, str] = {}
    for word in words[1:]:
        name, _, value = word.lstrip("-").partition("=")
        if name == "mtriple":
            facts["architecture"] = value.partition("-")[0]
        elif name == "mattr":
            facts[name] = ",".join(sorted(value.split(",")))
        elif name in _COMPARED:
            facts[name] = value
    return (words[0] if words else ""), facts


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


def matches_by_structure(inp: MeasureInput, dag: ComputeDAG) -> bool:
    """Whether a record known by a hash only fits this computation: shapes agree and the steps apply."""
    try:
        key = json.loads(inp.task.workload_key)
    except ValueError:
        return False
    if not isinstance(key, list) or not key or not isinstance(key[0], str) or not _HASH.fullmatch(key[0]):
        return False
    shapes = [list(tensor.shape) for tensor in dag.tensors]
    if not all(isinstance(extent, int) for shape in shapes for extent in shape) or shapes != key[1:]:
        return False
    if not isinstance(inp.state, LoggedState):
        return True
    try:
        inp.state.replay(dag)
    except AnsorError:
        return False
    return True
