"""What is said of intrinsics, and of computations that have not their form."""

from __future__ import annotations

from typing import Any

import pytest

from ansor import te
from ansor.errors import DefinitionError, ScheduleError
from ansor.intrinsics import get_tensor_intrinsic, tensor_intrinsics
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from tests.program_laws import Case, check_all

VNNI = "x86.vpdpbusd.512"


def refusal(element: Any, first: str = "uint8", second: str = "int8") -> str:
    """Why an element of C is not computed by the intrinsic."""
    a, b = te.placeholder((64, 16), first, "A"), te.placeholder((16, 64), second, "B")
    k = te.reduce_axis((0, 16), "k")
    c = te.compute((64, 64), lambda i, j: element(a, b, i, j, k), name="C")
    s = te.create_schedule(c)
    _, lane = s[c].split(c.op.axis[1], factor=16)
    outer, inner = s[c].split(k, factor=4)
    s[c].reorder(outer, lane, inner)
    with pytest.raises(ScheduleError) as caught:
        s[c].tensorize(lane, VNNI)
    return str(caught.value)


def test_what_is_no_intrinsic_is_refused() -> None:
    c = te.compute((16,), lambda i: te.const(0, "int32") + i, name="C")
    s = te.create_schedule(c)
    none: Any = lambda: None  # noqa: E731
    with pytest.raises(DefinitionError, match=r"is an ansor\.TensorIntrinsic\(\.\.\.\), or the name of one"):
        s[c].tensorize(c.op.axis[0], none)


def dot(a: Any, b: Any, i: Any, j: Any, k: Any, dtype: str = "int32") -> Any:
    return te.sum(te.cast(a[i, k], dtype) * te.cast(b[k, j], dtype), axis=k)


def test_intrinsics_tell_what_they_multiply() -> None:
    assert str(get_tensor_intrinsic(VNNI)) == "x86.vpdpbusd.512: int32 += uint8 * int8[lane], 16 lanes of 4"
    computed = [str(one).partition(": ")[2] for one in tensor_intrinsics() if one.name.startswith(VNNI[:12])]
    assert len(computed) == len(set(computed))


def test_other_dtypes_are_named() -> None:
    text = refusal(dot, "int8", "int8")
    assert "not the form of x86.vpdpbusd.512: int32 += uint8 * int8[lane], 16 lanes of 4" in text
    assert "; it is int32 += int8 * int8" in text
    assert "te.cast" not in text
    assert "; it is int64 += uint8 * int8" in refusal(lambda *args: dot(*args, dtype="int64"))


def test_what_is_no_sum_of_products_needs_another_form() -> None:
    text = refusal(lambda a, b, i, j, k: te.sum(te.cast(a[i, k], "int32"), axis=k))
    assert "te.sum of a product whose factors are both te.cast to int32" in text


def test_lanes_that_are_none_are_explained() -> None:
    """Both factors are read along j, none along i."""
    text = refusal(lambda a, b, i, j, k: dot(a, b, j, j, k))
    assert "along the lanes the factors with [lane], and only they" in text


def inside(split: bool, tensorized: bool) -> Schedule:
    """A product inside a loop of its reader, and its lanes by the intrinsic before or after it is placed."""
    a, b = te.placeholder((64, 16), "uint8", "A"), te.placeholder((16, 64), "int8", "B")
    k = te.reduce_axis((0, 16), "k")
    c = te.compute((64, 64), lambda i, j: dot(a, b, i, j, k), name="C")
    d = te.compute((64, 64), lambda i, j: c[i, j] + 1, name="D")
    s = te.create_schedule(d)
    lane = c.op.axis[1]
    if split:
        _, lane = s[c].split(lane, factor=16)
    outer, inner = s[c].split(k, factor=4)
    s[c].reorder(outer, lane, inner)
    if tensorized:
        s[c].tensorize(lane, VNNI)
    s[c].compute_at(s[d], d.op.axis[0])
    if not tensorized:
        s[c].tensorize(lane, VNNI)
    return s


def test_a_stage_is_tensorized_before_or_after_it_is_placed() -> None:
    before, after = inside(True, True).state, inside(True, False).state
    assert before == after
    assert str(lower(before)) == str(lower(after))
    check_all(Case.of(after), compiled=False)
    with pytest.raises(ScheduleError, match="'j' has an extent that depends on where the stage is"):
        inside(False, False)
