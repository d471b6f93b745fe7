"""Functions are computed for several short vectors at a time, where their accesses allow it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.llvm import abreast
from ansor.schedule.manual import Schedule
from ansor.te import Expr, Tensor
from tests.codegen_helper import AVX2, AVX512, PLAIN
from tests.program_laws import Case, check_all


def mapped(
    function: Callable[[Expr], Expr], shape: tuple[int, ...] = (128,), dtype: str = "float32"
) -> tuple[Schedule, list[Tensor]]:
    """A function of each element, in loops that nothing was scheduled for."""
    x = te.placeholder(shape, dtype, name="X")
    y = te.compute(shape, lambda *place: function(x(*place)), name="Y")
    return te.create_schedule(y.op), [x, y]


def lanes(s: Schedule, tensors: list[Tensor], target: str = AVX2) -> set[int]:
    """How many elements the values stored have."""
    text = ansor.build(s, tensors, target=target, name="kernel").get_source("ll")
    return {int(found or 1) for found in re.findall(r"store (?:<(\d+) x )?(?:float|double)", text)}


@pytest.mark.parametrize(
    ("function", "target", "expected"),
    [
        (te.exp, AVX2, 32),
        (te.exp, PLAIN, 16),
        (te.exp, AVX512, 16),
        (lambda x: x * te.sigmoid(x), AVX2, 32),
        (lambda x: te.if_then_else(x > 0, x, te.exp(x)), AVX2, 32),
        (lambda x: x * 2, AVX2, 8),
        (te.sqrt, AVX2, 8),
        (lambda x: te.exp(te.power(x, 0.3)), AVX2, 8),
        (lambda x: te.tanh(te.power(x, 3.0)), AVX2, 32),
    ],
)
def test_functions_that_are_long_chains_are_computed_four_at_a_time(
    function: Callable[[Expr], Expr], target: str, expected: int
) -> None:
    assert lanes(*mapped(function), target) == {expected}


def test_so_are_those_of_longer_elements() -> None:
    assert lanes(*mapped(te.exp, dtype="float64")) == {16}
    assert lanes(*mapped(te.erf, dtype="float64")) == {4}


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16"])
def test_the_widest_value_that_is_computed_counts(dtype: str) -> None:
    s, tensors = mapped(lambda x: te.cast(te.sigmoid(x) * 100.0, dtype), (1024,))
    s[tensors[-1]].vectorize(s[tensors[-1]].split(tensors[-1].op.axis[0], factor=8)[1])
    text = ansor.build(s, tensors, target=AVX2, name="kernel").get_source("ll")

    assert f"fdiv <{16 if dtype == 'int64' else 32} x float>" in text
    check_all(Case.of(s.state))


def test_one_function_of_one_value_is_computed_once() -> None:
    x = te.placeholder((1024,), name="X")
    y = te.compute((1024,), lambda i: te.exp(x[i]) * (te.exp(x[i]) + 1.0), name="Y")
    text = ansor.build(te.create_schedule(y.op), [x, y], target=AVX2, name="kernel").get_source("ll")

    assert text.count("phi <32 x float>") == 1


@pytest.mark.parametrize(("target", "expected"), [(AVX2, 32), (AVX512, 16)])
def test_a_row_that_is_divided_by_a_number_of_its_own_asks_once_for_four_vectors(
    target: str, expected: int
) -> None:
    x, d = te.placeholder((64, 128), name="X"), te.placeholder((64,), name="D")
    y = te.compute((64, 128), lambda i, j: x[i, j] / (d[i] + 1.0), name="Y")
    s = te.create_schedule(y.op)
    s[y].parallel(y.op.axis[0])

    assert lanes(s, [x, d, y], target) == {expected}
    check_all(Case.of(s.state))


@pytest.mark.parametrize("by", ["elements", "a constant", "columns"])
def test_other_quotients_are_computed_one_vector_after_the_other(by: str) -> None:
    x = te.placeholder((64, 128), name="X")
    d = te.placeholder((128,) if by == "columns" else (64, 128), name="D")
    divisors = {
        "elements": lambda i, j: d[i, j],
        "a constant": lambda i, j: 3.0,
        "columns": lambda i, j: d[j],
    }
    y = te.compute((64, 128), lambda i, j: x[i, j] / divisors[by](i, j), name="Y")

    assert lanes(te.create_schedule(y.op), [x, y] if by == "a constant" else [x, d, y]) == {8}


def test_a_value_that_is_none_does_not_decide_about_others() -> None:
    """One that is too large for an integer, of a lane that is not used, is any number before the branch."""

    def bounded(x: Expr) -> Expr:
        rounded = te.cast(te.cast(x, "int32"), "float32")
        return te.if_then_else(te.abs(x) < 100.0, te.exp(rounded), 0.0)

    s, tensors = mapped(bounded, (64,))
    assert "freeze <32 x float>" in ansor.build(s, tensors, target=AVX2, name="kernel").get_source("ll")
    values = np.where(np.arange(64) % 3 == 0, np.float32(3e38), np.arange(64, dtype=np.float32) / 8)
    expected = np.where(values < 100, np.exp(np.trunc(np.where(values < 100, values, 0))), 0)
    np.testing.assert_allclose(ansor.build(s, tensors)(values), expected, rtol=1e-6)


def test_under_a_condition_that_is_one_for_all() -> None:
    x, c = te.placeholder((96,), name="X"), te.placeholder((1,), name="C")
    y = te.compute((96,), lambda i: te.if_then_else(c[0] > 0, te.sigmoid(x[i]), te.exp(x[i])), name="Y")
    s = te.create_schedule(y.op)

    assert lanes(s, [x, c, y]) == {32}
    check_all(Case.of(s.state))


@pytest.mark.parametrize(
    ("length", "expected"), [(1000, {32, 8}), (96, {32}), (24, {16, 8}), (20, {16, 4}), (8, {8}), (1, {1})]
)
def test_what_is_left_of_a_row_is_shorter_vectors(length: int, expected: set[int]) -> None:
    assert lanes(*mapped(te.exp, (length,))) == expected


@pytest.mark.parametrize(("length", "expected"), [(1024, 32), (1000, 8), (56, 8)])
def test_vectors_do_not_reach_into_the_next_row_where_one_alone_would_not(length: int, expected: int) -> None:
    """A row's own number would be needed lane by lane."""
    x = te.placeholder((64, length), name="X")
    low = te.placeholder((64,), name="Low")
    y = te.compute((64, length), lambda i, j: te.exp(x[i, j] - low[i]), name="Y")
    s = te.create_schedule(y.op)
    s[y].parallel(s[y].fuse(*y.op.axis))

    assert lanes(s, [x, low, y]) == {expected}
    check_all(Case.of(s.state))


def test_threads_keep_something_to_share() -> None:
    s, tensors = mapped(te.exp, (64 * 8,))
    s[tensors[-1]].parallel(tensors[-1].op.axis[0])

    assert lanes(s, tensors) == {8}


def test_unrolled_vectors_are_joined_and_scattered_ones_are_not() -> None:
    for step, expected in ((8, 32), (16, 8)):
        x = te.placeholder((16 * step,), name="X")
        y = te.compute((128,), lambda j, step=step, x=x: te.exp(x[j // 8 * step + j % 8]), name="Y")
        s = te.create_schedule(y.op)
        outer, inner = s[y].split(y.op.axis[0], factor=8)
        s[y].unroll(outer)
        s[y].vectorize(inner)

        assert lanes(s, [x, y]) == {expected}
        check_all(Case.of(s.state))


def test_a_choice_by_place_stays_one_of_whole_vectors() -> None:
    x = te.placeholder((128,), name="X")
    y = te.compute((128,), lambda j: te.if_then_else(j < 64, te.exp(x[j]), x[j]), name="Y")
    s = te.create_schedule(y.op)

    assert lanes(s, [x, y]) == {8}
    check_all(Case.of(s.state))


@pytest.mark.parametrize("length", [8, 12, 20, 32, 100, 1000])
@pytest.mark.parametrize("target", [PLAIN, "llvm"])
def test_results_do_not_depend_on_how_many_are_computed_at_a_time(
    length: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s, tensors = mapped(_all_functions, (length,))
    together = ansor.build(s, tensors, target=target)
    monkeypatch.setattr(abreast, "_LONGEST", 0)
    alone = ansor.build(s, tensors, target=target)

    values = np.linspace(-20, 20, length, dtype=np.float32)
    np.testing.assert_array_equal(together(values), alone(values))
    check_all(Case.of(s.state))


@pytest.mark.parametrize("function", [te.exp, te.sigmoid])
@pytest.mark.parametrize("target", [PLAIN, "llvm"])
def test_one_unusual_element_among_usual_ones_is_computed_as_it_is_alone(
    function: Callable[[Expr], Expr], target: str
) -> None:
    """Where all are usual a shorter way is taken."""
    kernel = ansor.build(*mapped(function, (32,)), target=target)
    usual = np.linspace(-87, 87, 32, dtype=np.float32)
    expected = kernel(usual)
    np.testing.assert_allclose(expected, _exact(function, usual), rtol=3e-7)
    for special in (-87.5, -95.0, -104.5, 88.5, 100.0, np.inf, -np.inf, np.nan):
        alone = kernel(np.full(32, special, np.float32))
        np.testing.assert_allclose(alone, _exact(function, np.full(32, special)), rtol=3e-7, atol=2e-45)
        for place in range(32):
            values, wanted = usual.copy(), expected.copy()
            values[place], wanted[place] = special, alone[place]
            np.testing.assert_array_equal(kernel(values), wanted)


def _exact(function: Callable[[Expr], Expr], values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        exp = np.exp(values.astype(np.float64))
        exact = exp if function is te.exp else np.where(exp < np.inf, exp / (1 + exp), 1.0)
        return np.where(np.isnan(values), np.nan, exact).astype(np.float32)


def _all_functions(x: Expr) -> Expr:
    return te.exp(x) + te.tanh(x) * te.erf(x) + te.log(te.abs(x) + 1.0) * te.sigmoid(x)
