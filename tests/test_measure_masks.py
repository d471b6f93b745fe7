"""Large constants in an output, such as masks, hide no wrong element beside them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.dtypes import to_numpy
from ansor.te import Tensor
from ansor.te.expr import Expr
from measure.correctness.masks import constants
from measure.correctness.reference import ReferenceStore
from measure.workers.check import Tolerance, mismatch, rms

N, DEPTH = 24, 16
HIDDEN = np.triu(np.ones((N, N), bool), 1)


def scores(mask: Any, dtype: str = "float32", then: Callable[..., Expr] | None = None) -> list[Tensor]:
    """Products of queries and keys, those of later keys masked, and what an operation makes of them."""
    q, k = te.placeholder((N, DEPTH), dtype, name="q"), te.placeholder((N, DEPTH), dtype, name="k")
    bias = te.placeholder((N,), dtype, name="bias")
    r = te.reduce_axis((0, DEPTH), name="r")
    s = te.compute((N, N), lambda i, j: te.sum(q[i, r] * k[j, r], axis=r), name="s")
    masked = te.compute((N, N), lambda i, j: te.if_then_else(j <= i, s[i, j], mask), name="masked")
    if then is None:
        return [q, k, masked]
    out = te.compute((N, N), lambda i, j: then(masked[i, j], bias[j]), name="out")
    return [q, k, bias, out]


MASKED: dict[str, tuple[list[Tensor], float]] = {
    "-1e9": (scores(te.const(-1e9, "float32")), 1.0),
    "the least number": (scores(te.min_value("float32")), 1.0),
    "the least float16": (scores(te.min_value("float16"), "float16"), 1.0),
    "-1e4 in float16": (scores(te.const(-1e4, "float16"), "float16"), 1.0),
    "scaled": (scores(te.const(-1e9, "float32"), then=lambda x, _: x * 0.125), 0.125),
    "shifted": (scores(te.const(-1e9, "float32"), then=lambda x, bias: x + bias), 1.0),
    "shift without it": (scores(te.const(1e9, "float32"), then=lambda x, bias: bias - x), 1.0),
    "limited": (scores(te.const(-1e9, "float32"), then=lambda x, _: te.maximum(x, -1e8)), 1.0),
    "converted": (scores(te.const(-1e9, "float32"), then=lambda x, _: te.cast(x, "float64")), 1.0),
}


@pytest.mark.parametrize("name", MASKED)
def test_what_is_wrong_beside_masks_is_found(name: str) -> None:
    tensors, factor = MASKED[name]
    store = ReferenceStore()
    spec = store.get(ansor.SearchTask(compute_dag=tensors)).arguments[-1]
    expected, dtype = spec.map().copy(), spec.dtype
    shown = expected[~HIDDEN].astype(np.float64)
    assert spec.tolerance.scale == pytest.approx(float(np.sqrt(np.mean(shown**2))))
    assert spec.tolerance.scale < 10 * factor
    assert mismatch(expected.copy(), expected, dtype, spec.tolerance) is None
    near = expected + np.where(HIDDEN, 0, 8 * np.finfo(to_numpy(dtype)).eps * spec.tolerance.scale)
    assert mismatch(near.astype(expected.dtype), expected, dtype, spec.tolerance) is None
    for place, wrong in ((~HIDDEN, 777.0), (HIDDEN, np.inf), (HIDDEN, -np.inf), (HIDDEN, np.nan)):
        found = np.where(place, wrong, expected).astype(expected.dtype)
        text = mismatch(found, expected, dtype, spec.tolerance)
        assert text is not None
        assert text.startswith(f"{place.sum()} of ")


def test_constants_that_are_no_masks_change_little() -> None:
    """A sum that cancels beside others stays right, whatever it is limited to."""
    for limits in ((0.0, 100.0), (-1.0, 1.0)):
        tensors = scores(0.0, then=lambda x, bias, at=limits: te.minimum(te.maximum(x + bias, at[0]), at[1]))
        expected = np.clip(np.random.default_rng(0).normal(0, 3, (N, N)), *limits).astype(np.float32)
        plain = rms(expected)
        assert plain / 3 < rms(expected, constants(tensors[-1])) <= plain


def test_zeros_do_not_make_what_is_beside_them_count_more() -> None:
    values = np.zeros(1000, np.float32)
    values[0] = 1
    assert rms(values, [0.0]) == rms(values)
    assert rms(np.ones(5, np.float32), [1.0]) == 0.0
    assert rms(np.array([1e9, -2.0, np.inf]), [1e9]) == 2.0


def test_an_infinity_is_right_where_it_is_expected_alone() -> None:
    """Though a bound be as large as the dtype allows."""
    for dtype in ("float16", "float32", "float64", "bfloat16"):
        kind = to_numpy(dtype)
        expected = np.array([float(-ansor.te.expr.FLOAT_MAX[dtype]), np.inf, 1.0], kind)
        tolerance = Tolerance(0.1, ansor.te.expr.FLOAT_MAX[dtype])
        assert mismatch(expected.copy(), expected, dtype, tolerance) is None
        for at, wrong in ((0, -np.inf), (0, np.inf), (1, -np.inf), (1, 1.0), (2, np.inf)):
            found = expected.copy()
            found[at] = wrong
            assert f"first [{at}]" in str(mismatch(found, expected, dtype, tolerance))


def test_of_many_constants_the_largest_count() -> None:
    a = te.placeholder((N,), name="a")

    def chain(i: Expr) -> Expr:
        value: Expr = a[i]
        for number in range(40):
            value = te.if_then_else(i == number, float(number - 30), value)
        return value

    assert constants(te.compute((N,), chain, name="b")) == {float(number) for number in range(-30, -22)}
    table = te.compute((N,), lambda i: te.cast(te.if_then_else(i > 3, 5, 7), "float32"), name="c")
    assert constants(table) == frozenset()
    assert constants(te.compute((N,), lambda i: te.exp(a[i]) * 3.0, name="d")) == frozenset()
    assert constants(te.compute((N,), lambda i: 3.0 - a[i], name="e")) == frozenset()
