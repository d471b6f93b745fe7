"""What all transform steps share: the base class with its record form, and the guards.

Each step is a frozen dataclass with `apply(state) -> state`, guards first, and the JSON form of TVM's
v0.6 logs, `[code, fields...]`. Stage and iterator ids are positions *at that moment of the history*.
Steps that no TVM log knows (`in_reference` is False) are written on lines of their own (see measure).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import numpy as np

from ansor.errors import LogFormatError, ScheduleError
from ansor.schedule.extents import MAX_EXTENT, Extent
from ansor.schedule.stages import Annotation, ComputeAt, Iterator, Stage

if TYPE_CHECKING:
    from ansor.schedule.state import State

STEP_CODES: dict[str, type[Step]] = {}
"""Every step class by its record code."""


class Step:
    """Base of all steps."""

    code: ClassVar[str]
    in_reference: ClassVar[bool] = True
    stage: int

    def __init_subclass__(cls) -> None:
        STEP_CODES[cls.code] = cls

    def apply(self, state: State) -> State:
        """The state after this step; `ScheduleError` if the step is illegal there."""
        raise NotImplementedError

    @property
    def new_stages(self) -> range:
        """Positions of the stages that the step inserts, before which all stay where they are."""
        return range(0)

    def to_json(self) -> list[Any]:
        """The record form: the code, then the fields in order."""
        return [self.code, *(to_plain(getattr(self, f.name)) for f in fields(self))]  # type: ignore[arg-type]

    @classmethod
    def from_fields(cls, values: Sequence[Any]) -> Step:
        """The step of a record's fields (without the code); `LogFormatError` for fields that do not fit."""
        known = _field_types(cls.code)
        if len(values) != len(known):
            raise LogFormatError(f"step {cls.code}: expected {len(known)} fields, found {list(values)!r}")
        for (name, kind), value in zip(known, values, strict=True):
            wanted, fits = _FIELDS.get(kind, ("", None))
            if fits is not None and not fits(value):
                raise LogFormatError(f"step {cls.code}: expected {wanted} as its {name}, found {value!r}")
        return cls(*(tuple(v) if isinstance(v, list) else v for v in values))


def is_integer(value: object) -> bool:
    """Whether a value of a record is an integer; JSON's `true` is none."""
    return type(value) is int


def is_list_of_integers(value: object) -> bool:
    """Whether a value of a record is a list of integers."""
    return isinstance(value, (list, tuple)) and all(map(is_integer, value))


def _is_lengths(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(x is None or is_integer(x) for x in value)


_FIELDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "int": ("an integer", is_integer),
    "int | None": ("an integer or null", lambda value: value is None or is_integer(value)),
    "str": ("a string", lambda value: isinstance(value, str)),
    "tuple[int, ...]": ("a list of integers", is_list_of_integers),
    "tuple[Any, ...]": ("a list of integers or nulls", _is_lengths),
}
"""What a record must give for a field, by the field's declared type; others are not looked at."""


@cache
def _field_types(code: str) -> tuple[tuple[str, str], ...]:
    """Name and declared type of every field of the steps with a code."""
    return tuple((f.name, str(f.type)) for f in fields(STEP_CODES[code]))  # type: ignore[arg-type]


def to_plain(value: Any) -> Any:
    """A field's value as JSON; a TypeError for a column."""
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        raise TypeError("a step with columns has no record; materialise a row of the population first")
    if isinstance(value, (np.integer, bool)):
        return int(value)
    return value


def step_from_json(item: Sequence[Any]) -> Step:
    """The step of a record's JSON array.

    Raises
    ------
    LogFormatError
        If the code is unknown or the fields do not fit it.
    """
    if not item or not isinstance(item[0], str) or item[0] not in STEP_CODES:
        known = ", ".join(sorted(STEP_CODES))
        raise LogFormatError(f"unknown transform step {list(item)!r}; known codes are {known}")
    return STEP_CODES[item[0]].from_fields(item[1:])


# -- guards shared by the steps ----------------------------------------------------------------------


def refuse(stage: Stage, message: str, offender: int | None = None) -> ScheduleError:
    """The error for an illegal step: the message, then the stage's loops with the offender marked.

    Without a loop to blame, the stage itself is marked.
    """
    return ScheduleError(f"{message}\n{stage.describe(offender)}")


def is_position(value: object) -> TypeGuard[int]:
    """Whether a value may say where a stage or a loop is."""
    return isinstance(value, (int, np.integer))


def any_stage_at(state: State, stage: int, what: str) -> Stage:
    """The stage with this id, refusing unknown ids."""
    if not 0 <= stage < len(state.stages):
        raise ScheduleError(
            f"{what}: there is no stage {stage}; the stages are "
            + ", ".join(f"{i}: {s.name}" for i, s in enumerate(state.stages))
        )
    return state.stages[stage]


def stage_at(state: State, stage: int, what: str) -> Stage:
    """The stage with this id, refusing unknown ids and placeholders."""
    found = any_stage_at(state, stage, what)
    if found.is_placeholder:
        raise ScheduleError(
            f"{what}: stage {stage} is the placeholder {found.name!r}, an input without loops"
        )
    return found


def iterator_at(state: State, stage: int, position: int, what: str) -> tuple[Stage, Iterator]:
    """The stage and its loop at `position`, refusing a loop that is gone."""
    found = stage_at(state, stage, what)
    if found.compute_at is ComputeAt.INLINED:
        raise refuse(found, f"{what}: stage {found.name!r} is inlined and has no loops of its own")
    count = len(found.iterators)
    if not is_position(position):
        raise refuse(found, f"{what}: a loop is its position, 0..{count - 1}; found {position!r}")
    if not 0 <= position < count:
        raise refuse(found, f"{what}: stage {found.name!r} has no loop {position}; it has {count} loops")
    return found, found.iterators[position]


def refuse_stage_in_lanes(state: State, stage_id: int, what: str) -> None:
    """Refuse a vectorized loop with stages computed inside: lanes cannot hold the loops of others.

    Raises
    ------
    ScheduleError
        Naming the vectorized loop and the stage inside.
    """
    stage = state.stages[stage_id]
    lanes = [p for p, x in enumerate(stage.iterators) if x.annotation is Annotation.VECTORIZE]
    if not lanes:
        return
    for inner, (target, position) in state.attach.items():
        if target == stage_id and position >= lanes[0]:
            raise refuse(
                stage,
                f"{what}: stage {state.stages[inner].name!r} would be computed inside the vectorized "
                f"loop {stage.iterators[lanes[0]].name!r} of {stage.name!r}; vectorize another loop",
                lanes[0],
            )


def refuse_uncountable(stage: Stage, loop: str, extent: Extent) -> None:
    """
    Refuse a loop, or what its parts cover, that int32 cannot count.

    Raises
    ------
    ScheduleError
        If the extent is known to be larger than that.
    """
    if isinstance(extent, int) and extent > MAX_EXTENT:
        raise ScheduleError(
            f"loop {loop!r} of stage {stage.name!r} would cover {extent} iterations; loop variables count to "
            "2**31 - 1, so fuse fewer loops\n" + stage.describe()
        )
