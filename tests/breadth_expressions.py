"""Every operator and intrinsic of te in every dtype that has it, with special values and exact expectations.

The expectations are numpy's or Python's own, not those of ansor's interpreter, which is one of the things
that are compared with them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ansor import te
from ansor.codegen.llvm.mathlib import MAX_ULP
from ansor.dtypes import DTYPES, dtype_info, int_range, is_float, is_integer, to_numpy
from ansor.te import Expr, Tensor
from ansor.te.tensor import PlaceholderOp
from ansor.workloads.catalogue import Array

SHAPE = (14, 37)
"""Of all operands: awkward, and with room for every pair of special values."""
TOGETHER = 8
"""Operators of a stage."""

Exact = Callable[..., Array]


@dataclass(frozen=True)
class Operator:
    """One operator on operands of one dtype.

    `exact` computes the expectation from numpy arrays of `dtype`. For integers, bools and floats with
    `ulps` 0 the result must be equal, bit by bit but for the NaN payload; else within so many units in the
    last place. `either` allows any operand where one is NaN, and zeros of both signs.
    """

    name: str
    dtype: str
    result: str
    arity: int
    build: Callable[..., Expr]
    exact: Exact
    ulps: float = 0.0
    either: bool = False
    operands: Callable[[Sequence[Array]], Sequence[Array]] = list

    def fault(self, found: Array, given: Sequence[Array]) -> str | None:
        """What is wrong with the result, None if nothing is."""
        arrays = self.operands(given[: self.arity])
        with np.errstate(all="ignore"):
            expected = self.exact(*arrays)
            wrong = self._wrong(found, np.asarray(expected), arrays)
        if not wrong.any():
            return None
        place = tuple(int(i[0]) for i in np.nonzero(wrong))
        values = ", ".join(str(a[place]) for a in arrays)
        return (
            f"{self.name} of {self.dtype} ({values}) is {found[place]}, "
            f"expected {expected[place]} ({wrong.sum()} of {wrong.size} wrong, first at {place})"
        )

    def _wrong(self, found: Array, expected: Array, arrays: Sequence[Array]) -> Array:
        if not is_float(self.result):
            return np.asarray(found != expected)
        if self.either:
            other = np.logical_or.reduce([np.isnan(a) for a in arrays])
            operand = np.logical_or.reduce([_same(found, a) for a in arrays])
            return ~np.where(other, operand, found == expected)
        rounded = expected.astype(found.dtype)
        if self.ulps == 0:
            return ~_same(found, rounded)
        special = ~np.isfinite(rounded) | ~np.isfinite(found) | ~np.isfinite(expected)
        if found.dtype.itemsize == 2:  # the neighbours of a correctly rounded result
            steps = np.abs(_ordinal(found) - _ordinal(rounded))
            return np.where(special, ~_same(found, rounded) & (steps > self.ulps), steps > self.ulps)
        unit = np.spacing(np.abs(rounded)).astype(expected.dtype)
        off = np.abs(found.astype(expected.dtype) - expected) > self.ulps * unit
        return np.where(special, ~_same(found, rounded), off)


def _same(a: Array, b: Array) -> Array:
    """Where two float arrays are equal, zeros by sign, NaN by being NaN."""
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))


def _ordinal(x: Array) -> Array:
    """16-bit floats as integers in the order of their values."""
    bits = x.view(np.int16).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


# -- operands ----------------------------------------------------------------------------------------


def special_values(dtype: str) -> list[Any]:
    """Zeros, extremes and neighbours of both; for floats denormals, infinities and NaN, too."""
    if dtype == "bool":
        return [False, True]
    if is_integer(dtype):
        low, high = int_range(dtype)
        some = (0, 1, 2, 3, 5, 7, 10, 100, -1, -2, -3, -7, -8, low, low + 1, high, high - 1, high // 3)
        return sorted({v for v in some if low <= v <= high})
    tiny = {"float64": 5e-324, "float32": 1e-45, "float16": 6e-8, "bfloat16": 1e-40}[dtype]
    least = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}[dtype]
    high = float(te.max_value(dtype).value)  # type: ignore[attr-defined]
    ends = [tiny, 3 * tiny, least, high]
    signed = [0.0, 0.5, 1.0, 1.5, 2.5, math.inf, *ends]
    return [math.nan, math.pi, *signed, *(-v for v in signed)]


def operands(dtype: str, count: int = 3) -> list[Array]:
    """Arrays of `SHAPE`: first every pair (and some triples) of special values, then random ones."""
    special = special_values(dtype)
    size = math.prod(SHAPE)
    rng = np.random.default_rng(len(dtype))
    if dtype == "bool":
        columns: list[Array] = list(rng.integers(0, 2, (count, size)).astype(bool))
    elif is_integer(dtype):
        low, high = int_range(dtype)
        columns = [rng.integers(low, high, size, dtype, endpoint=True) for _ in range(count)]
    else:
        limit = 8.0
        columns = [rng.uniform(-limit, limit, size) for _ in range(count)]
    kind = np.float64 if is_float(dtype) else to_numpy(dtype)
    values = np.array(special, kind)
    n = len(values)
    assert n * n <= size, (dtype, n)
    pairs = np.arange(n * n)
    for number, column in enumerate(columns):
        places = (pairs // n, pairs % n, (pairs * 7 + pairs // n) % n)[number]
        column[: n * n] = values[places]
    with np.errstate(all="ignore"):
        return [column.astype(to_numpy(dtype)).reshape(SHAPE) for column in columns]


def divisors(arrays: Sequence[Array]) -> list[Array]:
    """Integer operands without zero divisors and without the least integer divided by -1."""
    a, b = arrays
    b = np.where(b == 0, 3, b).astype(b.dtype)
    if b.dtype.kind == "i":
        b = np.where((a == np.iinfo(a.dtype).min) & (b == -1), 5, b).astype(b.dtype)
    return [a, b]


def safe_divisor(a: Expr, b: Expr) -> Expr:
    """The same choice as `divisors`, in te."""
    b = te.select(b == te.const(0, b.dtype), te.const(3, b.dtype), b)
    if b.dtype.startswith("u"):
        return b
    overflow = te.all(a == te.min_value(a.dtype), b == te.const(-1, b.dtype))
    return te.select(overflow, te.const(5, b.dtype), b)


# -- the operators -----------------------------------------------------------------------------------


def _integers(function: Callable[..., int], dtype: str) -> Exact:
    """Python's arithmetic on exact ints, wrapped to the dtype."""
    low, high = int_range(dtype)

    def exact(*arrays: Array) -> Array:
        columns = zip(*(a.ravel().tolist() for a in arrays), strict=True)
        values = [(function(*row) - low) % (high - low + 1) + low for row in columns]
        return np.array(values, to_numpy(dtype)).reshape(SHAPE)

    return exact


def _trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_INTEGER_DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": _trunc_div,
    "truncmod": lambda a, b: a - b * _trunc_div(a, b),
}


_BITS: dict[str, Callable[[int, int], int]] = {
    "and_": operator.and_,
    "or_": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}


def bit_operators(dtype: str) -> Iterator[Operator]:
    """Shifts by data of any value, which counts modulo the bits; and all by constants."""
    bits, (low, high) = dtype_info(dtype).bits, int_range(dtype)
    yield Operator("invert", dtype, dtype, 1, operator.invert, _integers(operator.invert, dtype))
    for name, function in _BITS.items():
        shifts = name.endswith("shift")

        def exact(a: int, b: int, function: Any = function, shifts: bool = shifts) -> int:
            return function(a, b % bits if shifts else b)

        yield Operator(name, dtype, dtype, 2, function, _integers(exact, dtype))
        for number in (0, 3, bits - 1) if shifts else (0, 7, 12, high, low, high ^ 5):
            yield Operator(
                f"{name} by {number}",
                dtype,
                dtype,
                1,
                lambda a, function=function, number=number: function(a, number),
                _integers(lambda a, function=function, number=number: function(a, number), dtype),
            )


def integer_operators(dtype: str) -> Iterator[Operator]:
    yield from bit_operators(dtype)
    for name in ("add", "sub", "mul"):
        function = getattr(operator, name)
        yield Operator(name, dtype, dtype, 2, function, _integers(function, dtype))
    yield Operator("neg", dtype, dtype, 1, operator.neg, _integers(operator.neg, dtype))
    yield Operator("abs", dtype, dtype, 1, te.abs, _integers(abs, dtype))
    yield Operator("minimum", dtype, dtype, 2, te.minimum, np.minimum)
    yield Operator("maximum", dtype, dtype, 2, te.maximum, np.maximum)
    yield Operator("sign", dtype, dtype, 1, te.sign, np.sign)
    yield Operator("clip", dtype, dtype, 1, lambda x: te.clip(x, 1, 3), lambda x: np.clip(x, 1, 3))
    for name, function in _INTEGER_DIVISIONS.items():
        make = getattr(te, name)
        yield Operator(
            name,
            dtype,
            dtype,
            2,
            lambda a, b, make=make: make(a, safe_divisor(a, b)),
            _integers(function, dtype),
            operands=divisors,
        )
        for divisor in (7, 8):
            yield Operator(
                f"{name} by {divisor}",
                dtype,
                dtype,
                1,
                lambda a, make=make, divisor=divisor: make(a, divisor),
                _integers(lambda a, function=function, divisor=divisor: function(a, divisor), dtype),
            )


ULPS = {
    "float32": MAX_ULP,
    "float64": dict.fromkeys(MAX_ULP, 4.0),
}
"""The documented accuracy; the 16-bit floats are within one of their own units, being rounded once more."""


def _wide(function: Callable[..., Any]) -> Exact:
    """A numpy function in the widest float there is; `_wrong` rounds."""
    return lambda *arrays: function(*(a.astype(np.longdouble) for a in arrays))


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.longdouble])(x.astype(np.float64))


def _sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.power,
    "sin": np.sin,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log2": np.log2,
    "log1p": np.log1p,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
}


def _fma(dtype: str) -> Exact:
    """In a wider float, where it is exact up to the last rounding in all but contrived cases."""
    wide = np.longdouble if dtype == "float64" else np.float64
    return lambda a, b, c: a.astype(wide) * b.astype(wide) + c.astype(wide)


def float_operators(dtype: str) -> Iterator[Operator]:
    for name in ("add", "sub", "mul", "truediv"):
        yield Operator(name, dtype, dtype, 2, getattr(operator, name), getattr(operator, name))
    yield Operator("neg", dtype, dtype, 1, operator.neg, np.negative)
    yield Operator("minimum", dtype, dtype, 2, te.minimum, np.fmin, either=True)
    yield Operator("maximum", dtype, dtype, 2, te.maximum, np.fmax, either=True)
    yield Operator("isnan", dtype, "bool", 1, te.isnan, np.isnan)
    yield Operator("isfinite", dtype, "bool", 1, te.isfinite, np.isfinite)
    yield Operator("trunc", dtype, dtype, 1, te.trunc, np.trunc)
    yield Operator("sign", dtype, dtype, 1, te.sign, lambda x: np.where(x == 0, x, np.sign(x)))
    yield Operator(
        "clip",
        dtype,
        dtype,
        1,
        lambda x: te.clip(te.where(te.isnan(x), 0, x), -1, 2.5),
        lambda x: np.clip(np.where(np.isnan(x), x.dtype.type(0), x), x.dtype.type(-1), x.dtype.type(2.5)),
    )
    for name, function in (("abs", np.abs), ("floor", np.floor), ("ceil", np.ceil), ("round", np.rint)):
        yield Operator(name, dtype, dtype, 1, getattr(te, name), function)
    yield Operator("sqrt", dtype, dtype, 1, te.sqrt, np.sqrt)
    yield Operator("fma", dtype, dtype, 3, te.fma, _fma(dtype), 0.0 if dtype == "float32" else 1.0)
    limits = ULPS.get(dtype, {})
    for name, function in _FUNCTIONS.items():
        arity = 2 if name == "pow" else 1
        yield Operator(name, dtype, dtype, arity, getattr(te, name), _wide(function), limits.get(name, 1.0))
    for exponent in (0.5, -0.5, 2.0, 3.0):
        yield Operator(
            f"pow {exponent}",
            dtype,
            dtype,
            1,
            lambda a, exponent=exponent: te.power(a, exponent),
            _wide(lambda a, exponent=exponent: np.power(a, exponent)),
            2.0,
        )


def bool_operators() -> Iterator[Operator]:
    yield Operator("and", "bool", "bool", 2, te.logical_and, np.logical_and)
    yield Operator("or", "bool", "bool", 2, te.logical_or, np.logical_or)
    yield Operator("not", "bool", "bool", 1, te.logical_not, np.logical_not)
    yield Operator("all", "bool", "bool", 3, te.all, lambda a, b, c: a & b & c)
    yield Operator("any", "bool", "bool", 3, te.any, lambda a, b, c: a | b | c)


def common_operators(dtype: str) -> Iterator[Operator]:
    """Comparisons, choices and casts, which every dtype has."""
    for name in _COMPARISONS:
        ordered = dtype != "bool" or name in ("eq", "ne")
        if ordered:
            yield Operator(name, dtype, "bool", 2, getattr(operator, name), getattr(operator, name))
    for make in (te.select, te.if_then_else):
        yield Operator(
            make.__name__,
            dtype,
            dtype,
            3,
            lambda a, b, c, make=make: make(a == b, b, c),
            lambda a, b, c: np.where(a == b, b, c),
        )
    for result in DTYPES:
        if result != dtype:
            yield cast_to(dtype, result)


def cast_to(dtype: str, result: str) -> Operator:
    """A cast; floats that an integer cannot hold, whose conversion is undefined, become 1 first."""

    def within(arrays: Sequence[Array]) -> list[Array]:
        (a,) = arrays
        if not is_float(dtype) or not is_integer(result):
            return [a]
        low, high = float_bounds(dtype, result)
        with np.errstate(all="ignore"):
            inside = (a >= a.dtype.type(low)) & (a <= a.dtype.type(high))
        return [np.where(inside, a, a.dtype.type(1))]

    def build(a: Expr) -> Expr:
        if is_float(dtype) and is_integer(result):
            low, high = float_bounds(dtype, result)
            inside = te.all(a >= te.const(low, dtype), a <= te.const(high, dtype))
            a = te.select(inside, a, te.const(1.0, dtype))
        return te.cast(a, result)

    def exact(a: Array) -> Array:
        if result == "bool":
            return np.asarray(a != 0)
        if dtype == "bfloat16" and not is_float(result):
            a = a.astype(np.float32)
        return a.astype(to_numpy(result))

    # Through float32 bfloat16 is rounded twice by ml_dtypes.
    ulps = 1.0 if result == "bfloat16" and dtype in ("float64", "int32", "int64", "uint32", "uint64") else 0.0
    return Operator(f"cast to {result}", dtype, result, 1, build, exact, ulps, operands=within)


def float_bounds(dtype: str, result: str) -> tuple[float, float]:
    """The least and greatest value of a float dtype that an integer dtype holds, rounded inwards."""
    low, high = int_range(result)
    limit = float(te.max_value(dtype).value)  # type: ignore[attr-defined]
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[dtype]
    shift = max(0, high.bit_length() - digits)
    return max(float(low), -limit), min(float(high >> shift << shift), limit)


def operators(dtype: str) -> list[Operator]:
    """All of a dtype."""
    own = (
        bool_operators()
        if dtype == "bool"
        else integer_operators(dtype)
        if is_integer(dtype)
        else float_operators(dtype)
    )
    return [*own, *common_operators(dtype)]


def computations(dtype: str, chosen: Sequence[Operator]) -> list[Tensor]:
    """The inputs that are needed, at most three, and one output per operator, some of each stage.

    Their loops, which are the same, need not be lowered and compiled for every operator.
    """
    needed = max(op.arity for op in chosen)
    inputs = [te.placeholder(SHAPE, dtype, f"X{number}") for number in range(needed)]
    outputs: list[Tensor] = []
    for first in range(0, len(chosen), TOGETHER):
        stage = te.compute(
            SHAPE,
            lambda i, j, some=chosen[first : first + TOGETHER]: tuple(
                op.build(*(x[i, j] for x in inputs[: op.arity])) for op in some
            ),
            name=f"Y{first}",
        )
        outputs += stage if isinstance(stage, tuple) else [stage]
    return [*inputs, *outputs]


def stages(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The first output of each operation that computes some of the tensors."""
    return [t for t in tensors if t.value_index == 0 and not isinstance(t.op, PlaceholderOp)]
