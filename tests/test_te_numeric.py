"""What each operator, cast, intrinsic and reduction computes, for every dtype."""

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ansor import te
from ansor.dtypes import DTYPES, int_range, is_float, is_integer, to_numpy
from ansor.te.expr import INTRINSICS, call, wrap_int
from ansor.te.interp import evaluate

FLOATS = [dtype for dtype in DTYPES if is_float(dtype)]
INTEGERS = [dtype for dtype in DTYPES if is_integer(dtype)]


def apply(function: Any, *operands: Any, dtype: str, result: str | None = None) -> np.ndarray:
    """`function` of tensors, element by element, by the interpreter."""
    arrays = [np.array(values, to_numpy(dtype)) for values in operands]
    tensors = [te.placeholder((len(arrays[0]),), dtype, f"x{n}") for n in range(len(arrays))]
    out = te.compute((len(arrays[0]),), lambda i: function(*(t[i] for t in tensors)), name="out")
    assert out.dtype == (result or dtype)
    computed = evaluate(out, dict(zip(tensors, arrays, strict=True)))[out]
    assert computed.dtype == to_numpy(out.dtype)
    return computed


# -- integers ----------------------------------------------------------------------------------------

PYTHON = {
    te.floordiv: lambda a, b: a // b,
    te.floormod: lambda a, b: a % b,
    te.truncdiv: lambda a, b: math.trunc(Fraction(a, b)),
    te.truncmod: lambda a, b: a - b * math.trunc(Fraction(a, b)),
    te.indexdiv: lambda a, b: a // b,
    te.indexmod: lambda a, b: a % b,
    te.minimum: min,
    te.maximum: max,
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("function", PYTHON)
def test_integer_functions_against_python(function: Any, dtype: str) -> None:
    low, high = int_range(dtype)
    values = sorted({low, low + 1, high, high - 1, *(v for v in range(-7, 8) if v >= low)})
    pairs = [(a, b) for a in values for b in values if b and not (a == low and b == -1)]
    computed = apply(function, [a for a, _ in pairs], [b for _, b in pairs], dtype=dtype)
    assert computed.tolist() == [PYTHON[function](a, b) for a, b in pairs]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(dtype: str) -> None:
    low, high = int_range(dtype)
    assert apply(lambda a: a + 1, [high], dtype=dtype) == low
    assert apply(lambda a: a - 1, [low], dtype=dtype) == high
    assert apply(lambda a: a * a, [high], dtype=dtype) == wrap_int(high * high, dtype)
    assert apply(lambda a: -a, [low], dtype=dtype) == low
    assert apply(abs, [low], dtype=dtype) == low
    k = te.reduce_axis((0, 3), name="k")
    x = te.placeholder((3,), dtype, name="x")
    for reduction, product in ((te.sum, 3 * high), (te.prod, high**3)):
        total = te.compute((), lambda reduction=reduction: reduction(x[k], axis=k))
        assert evaluate(total, {x: np.full(3, high, dtype)})[total] == wrap_int(product, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons(dtype: str) -> None:
    a, b = [0, 1, 1, 0], [0, 1, 0, 1]
    assert apply(lambda x, y: x == y, a, b, dtype=dtype, result="bool").tolist() == [True, True, False, False]
    assert apply(lambda x, y: x != y, a, b, dtype=dtype, result="bool").tolist() == [False, False, True, True]
    assert apply(lambda x, y: x < y, a, b, dtype=dtype, result="bool").tolist() == [False, False, False, True]
    assert apply(lambda x, y: x >= y, a, b, dtype=dtype, result="bool").tolist() == [True, True, True, False]


def test_logic() -> None:
    a, b = [False, False, True, True], [False, True, False, True]
    assert apply(te.all, a, b, dtype="bool").tolist() == [False, False, False, True]
    assert apply(te.any, a, b, dtype="bool").tolist() == [False, True, True, True]
    assert apply(te.logical_not, a, dtype="bool").tolist() == [True, True, False, False]
    assert apply(lambda x, y: te.logical_and(x, ~y) | False, a, b, dtype="bool").tolist() == [
        False,
        False,
        True,
        False,
    ]


# -- casts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_casts_of_small_values_are_exact(source: str, target: str) -> None:
    values = [0, 1] if "bool" in (source, target) else [0, 1, 2, 100]
    computed = apply(lambda x: te.cast(x, target), values, dtype=source, result=target)
    assert [int(value) for value in computed] == values


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", [dtype for dtype in INTEGERS if dtype.startswith("int")])
def test_float_to_integer_truncates(source: str, target: str) -> None:
    values = [-2.75, -2.5, -1.0, -0.5, -0.0, 0.5, 0.75, 1.5, 2.5]
    computed = apply(lambda x: te.cast(x, target), values, dtype=source, result=target)
    assert computed.tolist() == [-2, -2, -1, 0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
def test_integer_casts_wrap(source: str, target: str) -> None:
    low, high = int_range(source)
    computed = apply(lambda x: te.cast(x, target), [low, high, high // 3], dtype=source, result=target)
    assert computed.tolist() == [wrap_int(value, target) for value in (low, high, high // 3)]


def test_to_bool_is_not_zero() -> None:
    for dtype in DTYPES:
        computed = apply(lambda x: te.cast(x, "bool"), [0, 2, 1], dtype=dtype, result="bool")
        assert computed.tolist() == [False, True, True]
    assert apply(
        lambda x: te.cast(x, "bool"), [0.25, -0.0, np.nan], dtype="float32", result="bool"
    ).tolist() == [
        True,
        False,
        True,
    ]


def test_narrower_floats_round_to_nearest_even() -> None:
    tie = 1.0 + 2.0**-8  # half way between two bfloat16
    assert float(apply(lambda x: te.cast(x, "bfloat16"), [tie], dtype="float32", result="bfloat16")[0]) == 1.0
    tie = 1.0 + 3 * 2.0**-11  # half way between two float16
    computed = apply(lambda x: te.cast(x, "float16"), [tie], dtype="float32", result="float16")
    assert float(computed[0]) == 1.0 + 2 * 2.0**-10
    assert np.isinf(apply(lambda x: te.cast(x, "float16"), [1e6], dtype="float32", result="float16"))[0]


# -- floats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_functions(dtype: str) -> None:
    values = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.25, 3.0]
    assert apply(te.round, values, dtype=dtype).tolist() == [-2, -2, 0, 0, 2, 2, 2, 3]
    assert apply(te.floor, values, dtype=dtype).tolist() == [-3, -2, -1, 0, 1, 2, 2, 3]
    assert apply(te.ceil, values, dtype=dtype).tolist() == [-2, -1, 0, 1, 2, 3, 3, 3]
    assert apply(te.abs, values, dtype=dtype).tolist() == [abs(value) for value in values]


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_made_of_choices(dtype: str) -> None:
    values = [-np.inf, -2.5, -0.5, 0.0, 0.5, 2.5, np.inf, np.nan]
    assert apply(te.trunc, values[:-1], dtype=dtype).tolist() == [-np.inf, -2, 0, 0, 0, 2, np.inf]
    assert apply(te.sign, values[:-1], dtype=dtype).tolist() == [-1, -1, -1, 0, 1, 1, 1]
    assert apply(te.isnan, values, dtype=dtype, result="bool").tolist() == [False] * 7 + [True]
    assert (
        apply(te.isfinite, values, dtype=dtype, result="bool").tolist() == [False] + [True] * 5 + [False] * 2
    )
    clipped = apply(lambda x: te.clip(x, -1, 2.0), values[:-1], dtype=dtype)
    assert clipped.tolist() == [-1, -1, -0.5, 0, 0.5, 2, 2]
    assert np.isnan(apply(te.sign, [np.nan], dtype=dtype))
    assert np.isnan(apply(te.trunc, [np.nan], dtype=dtype))
    assert apply(lambda x: te.where(x > 0, x, 1.0), [-1.0, 2.0], dtype=dtype).tolist() == [1, 2]


@pytest.mark.parametrize("dtype", FLOATS)
def test_negation_of_zeros(dtype: str) -> None:
    computed = apply(lambda x: -x, [0.0, -0.0, 1.0], dtype=dtype).astype(np.float64)
    assert [math.copysign(1, value) for value in computed] == [-1, 1, -1]


MATHS: dict[str, tuple[Any, tuple[list[float], ...]]] = {
    "exp": (math.exp, ([-20.0, -1.0, 0.0, 0.5, 1.0, 5.0, 10.0],)),
    "log": (math.log, ([1e-3, 0.5, 1.0, 2.0, 1000.0],)),
    "sqrt": (math.sqrt, ([0.0, 0.25, 2.0, 3.0, 1000.0],)),
    "rsqrt": (lambda x: 1 / math.sqrt(x), ([1e-3, 0.25, 2.0, 3.0, 1000.0],)),
    "exp2": (lambda x: 2.0**x, ([-20.0, -1.0, 0.0, 0.5, 1.0, 5.0, 10.0],)),
    "expm1": (math.expm1, ([-20.0, -1.0, -1e-4, 0.0, 1e-3, 0.5, 10.0],)),
    "log2": (math.log2, ([1e-3, 0.5, 1.0, 2.0, 3.0, 1000.0],)),
    "log1p": (math.log1p, ([-0.5, -1e-4, 0.0, 1e-3, 0.5, 1000.0],)),
    "sin": (math.sin, ([-6e4, -20.0, -1.0, -0.01, 0.0, 0.5, 3.0, 1e4],)),
    "cos": (math.cos, ([-6e4, -20.0, -1.0, -0.01, 0.0, 0.5, 3.0, 1e4],)),
    "tan": (math.tan, ([-6e4, -20.0, -1.0, -0.01, 0.0, 0.5, 3.0, 1e4],)),
    "atan": (math.atan, ([-6e4, -20.0, -1.0, -0.01, 0.0, 0.5, 3.0, 1e4],)),
    "sinh": (math.sinh, ([-10.0, -1.0, -0.01, 0.0, 0.5, 3.0, 10.0],)),
    "cosh": (math.cosh, ([-10.0, -1.0, -0.01, 0.0, 0.5, 3.0, 10.0],)),
    "tanh": (math.tanh, ([-20.0, -1.0, -0.01, 0.0, 0.5, 3.0, 20.0],)),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)), ([-30.0, -8.0, -1.0, 0.0, 0.5, 8.0, 30.0],)),
    "erf": (math.erf, ([-5.0, -1.0, -0.01, 0.0, 0.01, 0.5, 2.0, 5.0],)),
    "abs": (abs, ([-1.5, 0.0, 2.5],)),
    "floor": (math.floor, ([-1.5, 0.0, 2.5],)),
    "ceil": (math.ceil, ([-1.5, 0.0, 2.5],)),
    "round": (round, ([-1.5, 0.0, 2.5],)),
    "pow": (math.pow, ([0.5, 2.0, 3.0, 1.5, 9.0], [3.0, -2.0, 0.5, 0.0, 2.5])),
    "fma": (lambda a, b, c: a * b + c, ([0.5, 2.0, 3.0], [3.0, -2.0, 0.5], [0.25, 1.0, -1.5])),
}


def test_every_intrinsic_is_covered() -> None:
    assert set(MATHS) == set(INTRINSICS)
    assert all(hasattr(te, name) for name in INTRINSICS)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", MATHS)
def test_intrinsics_are_rounded_once(name: str, dtype: str) -> None:
    exact, operands = MATHS[name]
    rounded = [np.asarray(values).astype(to_numpy(dtype)).astype(np.float64) for values in operands]
    computed = apply(lambda *args: call(name, *args), *operands, dtype=dtype)
    expected = np.array([exact(*map(float, args)) for args in zip(*rounded, strict=True)], np.float64)
    if dtype == "float64":
        np.testing.assert_allclose(computed, expected, rtol=1e-15)
    else:
        np.testing.assert_array_equal(computed, expected.astype(to_numpy(dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_sigmoid_and_tanh_do_not_overflow(dtype: str) -> None:
    ends = [-1e4, 1e4, -np.inf, np.inf]
    assert apply(te.sigmoid, ends, dtype=dtype).tolist() == [0, 1, 0, 1]
    assert apply(te.tanh, ends, dtype=dtype).tolist() == [-1, 1, -1, 1]
    assert apply(te.erf, ends, dtype=dtype).tolist() == [-1, 1, -1, 1]


def test_sigmoid_keeps_small_values() -> None:
    computed = apply(te.sigmoid, [-40.0, -700.0], dtype="float64")
    np.testing.assert_allclose(computed, [math.exp(-40), math.exp(-700)], rtol=1e-15)


def test_values_outside_the_domain() -> None:
    assert apply(te.log, [0.0], dtype="float32") == -np.inf
    assert np.isnan(apply(te.log, [-1.0], dtype="float32"))
    assert np.isnan(apply(te.sqrt, [-1.0], dtype="float32"))
    assert apply(te.rsqrt, [0.0], dtype="float32") == np.inf
    assert apply(lambda x: 1.0 / x, [0.0], dtype="float32") == np.inf


def test_fma_of_float64_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(200), rng.standard_normal(200)
    c = -a * b * (1 + rng.integers(-2, 3, 200) * 2.0**-52)  # cancels almost everything
    computed = apply(te.fma, a, b, c, dtype="float64")
    exact = [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)]
    assert computed.tolist() == exact
    assert np.isinf(apply(te.fma, [1e300], [1e300], [0.0], dtype="float64"))


def test_minimum_and_maximum_of_nan_is_nan_here() -> None:
    for function in (te.minimum, te.maximum):
        assert np.isnan(apply(function, [np.nan, 1.0], [1.0, np.nan], dtype="float32")).all()


def test_constants_are_rounded_to_their_dtype() -> None:
    for dtype in FLOATS:
        computed = apply(lambda x: x + 0.1, [0.0], dtype=dtype)
        assert computed[0] == to_numpy(dtype).type(0.1)


# -- reductions --------------------------------------------------------------------------------------


def reduced(function: Any, values: np.ndarray, dtype: str) -> Any:
    x = te.placeholder(values.shape, dtype, name="x")
    k = te.reduce_axis((0, len(values)), name="k")
    out = te.compute((), lambda: function(x[k], axis=k))
    return evaluate(out, {x: values})[out]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_reductions_of_small_values(dtype: str) -> None:
    values = np.array([3, 1, 4, 1, 5], to_numpy(dtype))
    results = [float(reduced(f, values, dtype)) for f in (te.sum, te.prod, te.min, te.max)]
    assert results == [14, 60, 1, 5]


def test_identities() -> None:
    k = te.reduce_axis((0, 3), name="k")
    for dtype in [*FLOATS, *INTEGERS]:
        x = te.placeholder((3,), dtype, name="x")
        results = []
        for function in (te.sum, te.prod, te.min, te.max):
            out = te.compute((), lambda f=function, x=x: f(x[k], axis=k, where=k < 0))
            results.append(float(evaluate(out, {x: np.ones(3, to_numpy(dtype))})[out]))
        low, high = (-math.inf, math.inf) if is_float(dtype) else map(float, int_range(dtype))
        assert results == [0, 1, high, low]


@pytest.mark.parametrize(("dtype", "stuck_at"), [("float16", 2048), ("bfloat16", 256)])
def test_narrow_float_sums_round_at_every_step(dtype: str, stuck_at: int) -> None:
    """They accumulate in their own dtype: adding 1 stops having an effect."""
    assert float(reduced(te.sum, np.ones(5000, to_numpy(dtype)), dtype)) == stuck_at


def test_narrow_float_sums_of_a_cast_are_wide() -> None:
    x = te.placeholder((5000,), "float16", name="x")
    k = te.reduce_axis((0, 5000), name="k")
    out = te.compute((), lambda: te.sum(te.cast(x[k], "float32"), axis=k))
    assert evaluate(out, {x: np.ones(5000, np.float16)})[out] == 5000


def test_float32_sums_are_exact_to_the_last_rounding() -> None:
    values = np.random.default_rng(1).standard_normal(100_000).astype(np.float32)
    assert reduced(te.sum, values, "float32") == np.float32(math.fsum(values.tolist()))


def test_bfloat16_arrays_are_ml_dtypes() -> None:
    assert apply(lambda x: x * 2, [1.5], dtype="bfloat16").dtype == np.dtype(ml_dtypes.bfloat16)


def test_constants_are_compared_as_the_floats_that_they_become() -> None:
    assert te.const(1.0, "float32") == 1.0
    differs = te.const(1.0, "float32") != 1.0
    assert not differs
    assert te.const(0.1, "float32") != te.const(0.2, "float32")
    one, other = te.const(2.0**24 + 1, "float32"), te.const(2.0**24, "float32")
    y = te.compute((1,), lambda i: te.select(one == other, 1, 0) + te.select(one != other, 10, 0), name="Y")
    assert evaluate([y], {})[y].tolist() == [1]
