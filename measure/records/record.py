"""What a measurement is made of: the program that was measured, how it was built, and what came out.

`MeasureInput` pairs a task with a schedule state. One read from a log carries a `LoggedTask` and a
`LoggedState` instead: texts and numbers of the line, nothing resolved, because a log may come from another
machine, an older version, or hold workloads that are not registered here. `recover_measure_input` turns the
logged form into the real one.

A failed measurement is data, not an exception: `error_no` says which kind, and its cost is `MAX_FLOAT`.

Source: `measure.py` of TVM 0.16 (names and numbers of the error codes).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Union, overload

from ansor.checks import check_fields, check_integer, check_number
from ansor.errors import AnsorError, DefinitionError, LogFormatError, TargetError
from ansor.medians import median_interval, median_spread
from ansor.task.target import Target
from ansor.wording import counted

if TYPE_CHECKING:
    from ansor.schedule.dag import ComputeDAG
    from ansor.schedule.state import State
    from ansor.schedule.steps import Step
    from ansor.task.hardware import HardwareParams
    from ansor.task.task import Task, TaskKey

MAX_FLOAT: Final = 1e10
"""Cost in seconds that stands for "failed"."""
COMPUTED_OTHERWISE: Final = "when the function of that name computed something else"
"""Whence records are that are of no use now (`is_outdated`)."""


class MeasureErrorNo(IntEnum):
    """How a measurement ended; the numbers are those of log records."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


class Seconds(float):
    """A duration; `value` is the plain float, for readers that expect TVM's number objects."""

    __slots__ = ()

    @property
    def value(self) -> float:
        return float(self)


def round_to_log(value: float) -> float:
    """`value` with the six significant digits that a log line keeps."""
    return float(f"{value:.6g}")


@dataclass(frozen=True, slots=True)
class LoggedTask:
    """The task part of a log line, as it stands there; None for what an old format, or TVM, does not say.

    `hardware_params` are the eight numbers of `HardwareParams.to_json`; `direct` is the workload key of the
    task whose alternative this one was tuned as, None if of none; `computation` is what `computation_of`
    gave, `cpu` the CPU that it ran on where the target names none (`targets.runs_on`).
    """

    workload_key: str
    target_text: str
    hardware: tuple[int, ...] | None = None
    target_host_text: str | None = None
    layout_rewrite_option: int | None = None
    input_names: tuple[str, ...] | None = None
    direct: str | None = None
    computation: str | None = None
    cpu: str | None = None

    @property
    def key(self) -> TaskKey:
        """Key of the task that was logged (`Task.key`); of an unknown kind of target the text counts."""
        return (self.workload_key, _target_name(self.target_text), self.layout_rewrite_option or 0)

    @property
    def target(self) -> Target:
        """The target; a `TargetError` for a kind that ansor does not know."""
        return Target.parse(self.target_text)

    @property
    def hardware_params(self) -> HardwareParams:
        """The recorded hardware; of what the line does not say the target's defaults."""
        from ansor.task.hardware import HardwareParams

        if self.hardware is None:
            return HardwareParams.for_target(self.target)
        return HardwareParams.from_json(list(self.hardware), self.target)

    def to_task(self, dag: ComputeDAG | None = None) -> Task:
        """Return the task, with its computation if that is given."""
        from ansor.task.task import LayoutRewriteOption, Task

        host = self.target_host_text
        return Task(
            dag,
            self.workload_key,
            self.target,
            Target.parse(host) if host else None,
            self.hardware_params,
            LayoutRewriteOption(self.layout_rewrite_option or 0),
            self.input_names or (),
            direct=None if self.direct is None else direct_of(self).to_task(),
            cpu=self.cpu,
        )


@lru_cache(maxsize=1024)  # A log asks the same question once a line.
def _target_name(text: str) -> str:
    try:
        return str(Target.parse(text))
    except TargetError:
        return text.strip()


@dataclass(frozen=True, slots=True)
class LoggedState:
    """The steps of a log line as JSON arrays: enough to replay, nothing replayed."""

    steps_json: tuple[tuple[Any, ...], ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps; a `LogFormatError` for a step that this version does not know."""
        from ansor.schedule.steps import step_from_json

        return tuple(step_from_json(list(item)) for item in self.steps_json)

    def replay(self, dag: ComputeDAG) -> State:
        """Return the state that the steps lead to; a `ScheduleError` if they do not apply to `dag`."""
        from ansor.schedule.state import State

        return State.replay(dag, self.steps)


AnyTask = Union["Task", LoggedTask]
AnyState = Union["State", LoggedState]


def direct_key(task: AnyTask) -> str | None:
    """Workload key of the task whose alternative this one is, None if of none."""
    if isinstance(task, LoggedTask):
        return task.direct
    return None if task.direct is None else task.direct.workload_key


@overload
def direct_of(task: LoggedTask) -> LoggedTask: ...


@overload
def direct_of(task: Task) -> Task: ...


def direct_of(task: AnyTask) -> AnyTask:
    """Return the task that programs of this one count for: the one whose alternative it is, or itself."""
    if isinstance(task, LoggedTask):
        if task.direct is None:
            return task
        return replace(task, workload_key=task.direct, direct=None, computation=None)
    return task.direct or task


_DIGITS: Final = 16
"""Of a structure hash, in records."""


def computation_of(task: AnyTask) -> str | None:
    """
    Name what a task computes, so that records tell when the function of their name was another one.

    The first digits of the structure hash (`ansor.schedule.structure`); None where nothing tells.
    """
    if isinstance(task, LoggedTask):
        return task.computation
    return None if task.dag is None else named_computation(task.dag)


def named_computation(dag: ComputeDAG) -> str:
    """Name a computation as `computation_of` does that of a task."""
    return dag.structure_hash[:_DIGITS]


def computes(task: AnyTask, dag: ComputeDAG) -> bool:
    """Whether a task may be one of `dag`, by what it computes: not if it is known to be something else."""
    return computation_of(task) in (None, named_computation(dag))


def known_dag(workload_key: str, computation: str | None = None) -> ComputeDAG | None:
    """Make the computation of a record anew, by its key; None where none of that name is the same here."""
    from ansor.task.registry import recorded_dag

    try:
        dag = recorded_dag(workload_key)
    except AnsorError:
        return None
    return dag if computation in (None, named_computation(dag)) else None


def is_outdated(workload_key: str, computation: str | None) -> bool:
    """Whether the function of a record's name is known to compute something else here than it did then."""
    now = None if computation is None else known_dag(workload_key)
    return now is not None and named_computation(now) != computation


def outdated_text(count: int, name: str | None) -> str:
    """Say that so many programs, of `name` if it is told, are left out as outdated (`is_outdated`)."""
    programs = counted(count, "program")
    return f"left out: {programs}{'' if name is None else f' of {name}'} from {COMPUTED_OTHERWISE}"


def check_computation(task: AnyTask, dag: ComputeDAG) -> None:
    """Refuse, with a `DefinitionError`, a task that is known to compute something else than `dag`."""
    if not computes(task, dag):
        raise DefinitionError(
            f"{task.workload_key} computed something else when it was recorded: the function of that name "
            "has changed, or is another one"
        )


@dataclass(frozen=True, slots=True, eq=False)
class MeasureInput:
    """One program to measure, or one that was: a task and a state of its schedule.

    `rival` is the run time [s] of the best program that is known, None if none is: what a runner may go by
    when it decides how long timing this one is worth while. It is no part of the record.
    """

    task: AnyTask
    state: AnyState
    rival: float | None = None

    def replay(self, dag: ComputeDAG) -> State:
        """
        Return the program as one of `dag`, whatever target or machine a record was made for.

        Raises
        ------
        LogFormatError
            If the record has a step that this version does not know.
        ScheduleError
            If the steps do not apply to `dag`.
        """
        from ansor.schedule.state import State

        if isinstance(self.state, LoggedState):
            return self.state.replay(dag)
        return self.state if self.state.dag is dag else State.replay(dag, self.state.steps)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a builder made of one input: an object file in memory, or the reason why not.

    `entry_name` is the exported function, `time_cost` the wall time in seconds that building took.
    """

    object_bytes: bytes | None
    entry_name: str = "main"
    error_no: MeasureErrorNo = MeasureErrorNo.NO_ERROR
    error_msg: str = ""
    time_cost: float = 0.0

    @classmethod
    def failed(cls, error_no: MeasureErrorNo, message: str, time_cost: float) -> BuildResult:
        return cls(None, "main", error_no, message, time_cost)


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """What measuring one program gave.

    Numbers are rounded to the digits that a log line keeps, so that a result equals itself read back from a
    log, and a search resumed from its log sees exactly what it saw the first time. The message is not
    logged and does not take part in equality.

    Attributes
    ----------
    costs
        Mean run time in seconds of each repeat, so as many as the result rests on; ``(MAX_FLOAT,)`` for a
        failure.
    all_cost
        Wall time in seconds of building, checking and running together.
    timestamp
        Unix time in whole seconds at which the measurement was complete.
    disturbed, redone
        How many of the repeats another load on the machine disturbed, and how many were done again for that,
        which may be more than there are, as a program may have a second turn (`measure.second_chance`);
        logged where there are any (`log`), and no part of equality.

    Raises
    ------
    DefinitionError
        If a cost, the wall time or the date is no finite number, or a count no whole one of at least 0: no
        log could hold them.
    """

    costs: tuple[Seconds, ...]
    error_no: MeasureErrorNo = MeasureErrorNo.NO_ERROR
    error_msg: str = field(default="", compare=False)
    all_cost: float = 0.0
    timestamp: int = 0
    disturbed: int = field(default=0, compare=False)
    redone: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        costs = tuple(self.costs)
        for number, cost in enumerate(costs):
            check_number(f"MeasureResult(costs)[{number}]", cost)
        check_fields(self, "all_cost", "timestamp")
        check_fields(self, "disturbed", "redone", low=0, check=check_integer)
        set_field = object.__setattr__
        set_field(self, "costs", tuple(Seconds(round_to_log(cost)) for cost in costs))
        set_field(self, "error_no", MeasureErrorNo(self.error_no))
        set_field(self, "all_cost", round_to_log(self.all_cost))
        set_field(self, "timestamp", int(self.timestamp))

    @classmethod
    def failed(
        cls, error_no: MeasureErrorNo, message: str, all_cost: float, timestamp: float
    ) -> MeasureResult:
        return cls((Seconds(MAX_FLOAT),), error_no, message, all_cost, int(timestamp))

    @property
    def ok(self) -> bool:
        return self.error_no is MeasureErrorNo.NO_ERROR

    @property
    def is_measurement(self) -> bool:
        """Whether it failed or has a run time; what lists of programs say of theirs is neither."""
        return not self.ok or 0.0 < self.mean_cost < MAX_FLOAT

    @property
    def mean_cost(self) -> float:
        """Mean of the costs in seconds, what the best program is chosen by; `MAX_FLOAT` for a failure."""
        if not self.ok or not self.costs:
            return MAX_FLOAT
        return math.fsum(self.costs) / len(self.costs)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true median run time [s] lies; of fewer than six repeats their range."""
        return median_interval(self.costs)

    @property
    def spread(self) -> float | None:
        """Half the interval as a share of the median, 0.01 for plus or minus 1 %; None for one repeat."""
        return median_spread(self.costs)


def mostly_disturbed(disturbed: int, repeats: int) -> bool:
    """Whether another load disturbed more than half of some repeats."""
    return 2 * disturbed > repeats


def task_to_json(task: AnyTask) -> list[Any]:
    """Return the task array of a log line; as short as the source was for one from an old log."""
    if isinstance(task, LoggedTask):
        items: list[Any] = [
            task.workload_key,
            task.target_text,
            None if task.hardware is None else list(task.hardware),
            task.target_host_text,
            task.layout_rewrite_option,
            None if task.input_names is None else list(task.input_names),
        ]
        while items[-1] is None:
            items.pop()
        return items
    return [
        task.workload_key,
        str(task.target),
        task.hardware_params.to_json(),
        "" if task.target_host is None else str(task.target_host),
        int(task.layout_rewrite_option),
        list(task.input_names),
    ]


def task_from_json(items: Any) -> LoggedTask:
    """Read a task array of 2, 3, 5 or 6 items (formats before v0.3, v0.3, v0.5, v0.6).

    Raises
    ------
    LogFormatError
        If it has another length or an item of the wrong type.
    """
    if not isinstance(items, list) or len(items) not in (2, 3, 5, 6):
        found = f"{len(items)} items" if isinstance(items, list) else repr(items)
        raise LogFormatError(f"a task is an array of 2, 3, 5 or 6 items, found {found}")
    padded: list[Any] = [*items, *([None] * (6 - len(items)))]
    key, target, hardware, host, layout, names = padded
    if not isinstance(key, str) or not isinstance(target, str):
        raise LogFormatError(f"workload key and target are strings, found {key!r} and {target!r}")
    if hardware is not None and not _is_list_of(hardware, int):
        raise LogFormatError(f"hardware parameters are an array of integers, found {hardware!r}")
    if host is not None and not isinstance(host, str):
        raise LogFormatError(f"the target host is a string, found {host!r}")
    if layout is not None and layout not in (0, 1, 2):
        raise LogFormatError(f"the layout rewrite option is 0, 1 or 2, found {layout!r}")
    if names is not None and not _is_list_of(names, str):
        raise LogFormatError(f"the task's input names are an array of strings, found {names!r}")
    return LoggedTask(
        key,
        target,
        None if hardware is None else tuple(hardware),
        host,
        layout,
        None if names is None else tuple(names),
    )


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def steps_to_json(state: AnyState) -> list[list[Any]]:
    """Return the step arrays of a log line."""
    if isinstance(state, LoggedState):
        return [list(item) for item in state.steps_json]
    return [step.to_json() for step in state.steps]


def recover_measure_input(
    inp: MeasureInput, rebuild_state: bool = False, dag: ComputeDAG | None = None
) -> MeasureInput:
    """Return `inp` with a real task, and with `rebuild_state` a replayed state.

    The computation is `dag` if given, else what the registry makes of the workload key. Without `dag` the
    task whose alternative this one is (`Task.direct`) gets its computation, too, if the registry knows it.

    Raises
    ------
    DefinitionError
        If the workload is not registered, or its function does not make this computation (any more).
    ScheduleError
        If the steps do not apply to it.
    """
    from ansor.task.registry import recorded_dag

    task = inp.task.to_task() if isinstance(inp.task, LoggedTask) else inp.task
    if dag is not None:
        task = task.with_dag(dag)
    elif task.dag is None:
        task = task.with_dag(recorded_dag(task.workload_key))
        if (direct := task.direct) is not None and direct.dag is None:
            with suppress(AnsorError):  # Not known here: whoever needs the right answers will say so.
                task = replace(task, direct=direct.with_dag(recorded_dag(direct.workload_key)))
    check_computation(inp.task, task.compute_dag)
    state = inp.state
    if rebuild_state and isinstance(state, LoggedState):
        state = state.replay(task.compute_dag)
    return MeasureInput(task, state, inp.rival)


def count_errors(results: Sequence[MeasureResult]) -> dict[MeasureErrorNo, int]:
    """Return how often each kind of failure occurs, most frequent first."""
    counts: dict[MeasureErrorNo, int] = {}
    for result in results:
        if not result.ok:
            counts[result.error_no] = counts.get(result.error_no, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
