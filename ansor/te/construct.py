"""The checked constructors of expressions: what operators and te functions call.

They bring Python numbers to the dtype of the other operand, refuse expressions of different dtypes, evaluate
integer constants and drop neutral elements, so that index expressions stay small from the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ansor.dtypes import dtype_info, int_range, is_float, is_integer, to_numpy
from ansor.errors import DefinitionError
from ansor.te.nodes import (
    BITWISE,
    COMPARISONS,
    DIVISIONS,
    FLOAT_MAX,
    INDEX_DTYPE,
    INTRINSICS,
    LOGICAL,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    ExprLike,
    Not,
    Number,
    Select,
    Var,
)


def const(value: Number, dtype: str | None = None) -> Const:
    """Make a literal; the default dtype is int32, float32 or bool by the Python type.

    Raises
    ------
    DefinitionError
        If the value does not fit the dtype.
    """
    value = _python_number(value)
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else INDEX_DTYPE if isinstance(value, int) else "float32"
    info = dtype_info(dtype)
    if info.kind == "float":
        if FLOAT_MAX[dtype] < abs(value) < math.inf:
            raise DefinitionError(
                f"the constant {value!r} does not fit {dtype} (at most {FLOAT_MAX[dtype]:g})"
            )
        return Const(float(value), dtype)
    if info.kind == "bool":
        return Const(bool(value), dtype)
    if isinstance(value, float) and not value.is_integer():
        raise DefinitionError(
            f"the constant {value!r} is not an integer and cannot be {dtype}; cast the other operand to float"
        )
    low, high = int_range(dtype)
    if not low <= int(value) <= high:
        raise DefinitionError(f"the constant {value!r} does not fit {dtype} ({low}..{high})")
    return Const(int(value), dtype)


def _python_number(value: object) -> Number:
    """`value`, which may be a numpy scalar, as a Python number."""
    if _is_numpy_scalar(value):
        value = value.item()  # type: ignore[attr-defined]
    if isinstance(value, (bool, int, float)):
        return value
    raise DefinitionError(f"expected a number, found {value!r} of type {type(value).__name__}")


def as_expr(value: ExprLike, dtype: str | None = None) -> Expr:
    """`value` itself if it is an expression, else a constant of `dtype`."""
    if isinstance(value, Expr):
        return value
    return const(value, dtype)


def int_value(expr: Expr | int) -> int | None:
    """The Python int of an integer constant, else None."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, Const) and isinstance(expr.value, int):
        return int(expr.value)
    return None


def _match(op: str, a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    """Bring two operands to one dtype: Python numbers adopt the other side's, expressions must agree."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        both = "float32" if isinstance(a, float) or isinstance(b, float) else INDEX_DTYPE
        return const(a, both), const(b, both)
    if not isinstance(a, Expr):
        assert isinstance(b, Expr)
        return const(a, b.dtype), b
    if not isinstance(b, Expr):
        return a, const(b, a.dtype)
    if a.dtype != b.dtype:
        raise DefinitionError(
            f"`{op}` of {a.dtype} `{a}` and {b.dtype} `{b}`: dtypes differ; {_remedy(op, a.dtype, b.dtype)}"
        )
    return a, b


def _remedy(op: str, a: str, b: str) -> str:
    """What to do about the dtypes of two operands that differ."""
    if "bool" not in (a, b):
        return f"cast one side, e.g. te.cast(..., {a!r})"
    if op in LOGICAL:
        return "make a condition of the other side, e.g. `... != 0`"
    number = b if a == "bool" else a
    return f"cast the condition, te.cast(cond, {number!r}), or choose by it, e.g. te.select(cond, x, 0)"


def binary(op: BinaryOp, a: ExprLike, b: ExprLike) -> Expr:
    """`op(a, b)` with dtype checks, constant folding and the neutral elements of integers removed.

    Raises
    ------
    DefinitionError
        If the operand dtypes differ or the operator is not defined for them.
    """
    name = BITWISE.get(op, str(op))
    for side in (a, b):
        refuse_tensor(name, side)
    x, y = _match(name, a, b)
    info = dtype_info(x.dtype)
    if op in LOGICAL and info.kind != "bool":
        raise DefinitionError(f"`{op}` needs conditions, found {x.dtype} `{x}` and `{y}`")
    if (op in DIVISIONS or op in BITWISE) and info.kind not in ("int", "uint"):
        raise DefinitionError(f"`{name}` is for integers, found {x.dtype} `{x}`; cast it first")
    if op is BinaryOp.DIV and info.kind != "float":
        raise DefinitionError(
            f"`/` is for floats, found {x.dtype} `{x}`; use // (floor), te.truncdiv, or cast to float"
        )
    if info.kind == "bool" and op not in LOGICAL and op not in COMPARISONS:
        raise DefinitionError(f"`{op}` is not defined for bool `{x}`; cast it first")
    dtype = "bool" if op in COMPARISONS or op in LOGICAL else x.dtype
    if op in _SHIFTS:
        y = _shift_count(name, x, y)
    return fold(op, x, y, dtype)


_SHIFTS = frozenset({BinaryOp.SHL, BinaryOp.SHR})


def bitwise(op: BinaryOp, a: ExprLike, b: ExprLike) -> Expr:
    """`op` on the bits of integers; of conditions `&` and `|` are what te.all and te.any are."""
    logical = {BinaryOp.BITAND: BinaryOp.AND, BinaryOp.BITOR: BinaryOp.OR}.get(op)
    dtypes = {side.dtype for side in (a, b) if isinstance(side, Expr)}
    conditions = "bool" in dtypes and not any(map(is_integer, dtypes))
    return binary(logical if logical is not None and conditions else op, a, b)


def inverted(value: ExprLike) -> Expr:
    """All bits of an integer turned; of a condition its negation."""
    expr = as_expr(value)
    if is_integer(expr.dtype):
        return binary(BinaryOp.XOR, expr, Const(wrap_int(-1, expr.dtype), expr.dtype))
    if is_float(expr.dtype):
        raise DefinitionError(f"`~` is for integers and conditions, found {expr.dtype} `{expr}`")
    return logical_not(expr)


def _shift_count(name: str, shifted: Expr, count: Expr) -> Expr:
    """How far to shift: a constant is checked, any other number is taken modulo the bits."""
    bits, known = dtype_info(shifted.dtype).bits, int_value(count)
    if known is not None and not 0 <= known < bits:
        raise DefinitionError(
            f"`{name}` of {shifted.dtype} `{shifted}` by {known}: a constant count is in 0..{bits - 1}"
        )
    if isinstance(count, Binary) and count.op is BinaryOp.FLOORMOD and 0 < (int_value(count.b) or 0) <= bits:
        return count
    return fold(BinaryOp.FLOORMOD, count, Const(bits, count.dtype), count.dtype)


def fold(op: BinaryOp, x: Expr, y: Expr, dtype: str) -> Expr:
    """Make a `Binary` of checked operands, with constants evaluated and trivial identities applied.

    Floats are never folded, since the result would not be rounded as at run time; nor is a division by
    zero, which may stand on the side of a lazy choice that is never taken.
    """
    if op in DIVISIONS and int_value(y) == 0:
        return Binary(op, x, y, dtype)
    if isinstance(x, Const) and isinstance(y, Const) and not is_float(x.dtype):
        value = FOLDERS[op](x.value, y.value)
        return Const(wrap_int(int(value), dtype) if dtype != "bool" else bool(value), dtype)
    if op in LOGICAL:
        for one, rest in ((x, y), (y, x)):
            if isinstance(one, Const):
                absorbing = op is BinaryOp.OR
                return one if bool(one.value) is absorbing else rest
    simpler = None if is_float(x.dtype) else _drop_neutral(op, x, y)
    return Binary(op, x, y, dtype) if simpler is None else simpler


def _drop_neutral(op: BinaryOp, x: Expr, y: Expr) -> Expr | None:
    """What `op(x, y)` of integers is when a 0 or 1 on one side decides it."""
    vx, vy = int_value(x), int_value(y)
    match op:
        case BinaryOp.ADD if vx == 0 or vy == 0:
            return y if vx == 0 else x
        case BinaryOp.SUB if vy == 0:
            return x
        case BinaryOp.MUL if vx == 1 or vy == 1:
            return y if vx == 1 else x
        case BinaryOp.MUL if vx == 0 or vy == 0:
            return x if vx == 0 else y
        case BinaryOp.FLOORDIV | BinaryOp.TRUNCDIV if vy == 1:
            return x
        case BinaryOp.FLOORMOD | BinaryOp.TRUNCMOD if vy == 1:
            return Const(0, x.dtype)
        case _ if op in BITWISE:
            return arithmetic_of_bits(op, x, y)
        case _:
            return None


def arithmetic_of_bits(op: BinaryOp, x: Expr, y: Expr) -> Expr | None:
    """
    What an operator on bits is as arithmetic, where one side is a constant; None if it is none.

    A shift by 3 is a product with 8 or a quotient by it, the last 3 bits are the remainder of that, and all
    bits turned are the distance from the number that has all: so what is known of indices holds for them.
    """
    if op not in _SHIFTS and isinstance(x, Const):
        x, y = y, x
    number, dtype = int_value(y), x.dtype
    if number is None:
        return None
    every, (_, high) = wrap_int(-1, dtype), int_range(dtype)

    def by(op: BinaryOp, value: int) -> Expr:
        return fold(op, x, Const(wrap_int(value, dtype), dtype), dtype)

    match op:
        case BinaryOp.SHL:
            return by(BinaryOp.MUL, 1 << number)
        case BinaryOp.SHR if 1 << number <= high:
            return by(BinaryOp.FLOORDIV, 1 << number)
        case BinaryOp.BITAND if number == every:
            return x
        case BinaryOp.BITAND if 0 <= number < high and number & (number + 1) == 0:
            return by(BinaryOp.FLOORMOD, number + 1)
        case BinaryOp.BITOR if number == every:
            return Const(every, dtype)
        case BinaryOp.BITOR | BinaryOp.XOR if number == 0:
            return x
        case BinaryOp.XOR if number == every:
            return fold(BinaryOp.SUB, Const(every, dtype), x, dtype)
        case _:
            return None


def wrap_int(value: int, dtype: str) -> int:
    """`value` reduced to the range of an integer dtype, two's complement."""
    low, high = int_range(dtype)
    return (value - low) % (high - low + 1) + low


def _trunc_div(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


FOLDERS: dict[BinaryOp, Callable[[Number, Number], Number]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.DIV: lambda a, b: a / b if b else math.nan,
    BinaryOp.FLOORDIV: lambda a, b: a // b,
    BinaryOp.FLOORMOD: lambda a, b: a % b,
    BinaryOp.TRUNCDIV: lambda a, b: _trunc_div(int(a), int(b)),
    BinaryOp.TRUNCMOD: lambda a, b: int(a) - int(b) * _trunc_div(int(a), int(b)),
    BinaryOp.BITAND: lambda a, b: int(a) & int(b),
    BinaryOp.BITOR: lambda a, b: int(a) | int(b),
    BinaryOp.XOR: lambda a, b: int(a) ^ int(b),
    BinaryOp.SHL: lambda a, b: int(a) << int(b),
    BinaryOp.SHR: lambda a, b: int(a) >> int(b),
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
    BinaryOp.EQ: lambda a, b: a == b,
    BinaryOp.NE: lambda a, b: a != b,
    BinaryOp.LT: lambda a, b: a < b,
    BinaryOp.LE: lambda a, b: a <= b,
    BinaryOp.GT: lambda a, b: a > b,
    BinaryOp.GE: lambda a, b: a >= b,
    BinaryOp.AND: lambda a, b: bool(a) and bool(b),
    BinaryOp.OR: lambda a, b: bool(a) or bool(b),
}
"""What each operator does to two Python numbers (integer results are not yet wrapped to a dtype)."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _IdentityTest(Binary):
    """An `==` or `!=` expression, which alone may be truth-tested: true if both sides are one node."""

    def __bool__(self) -> bool:
        return (self.a is self.b) == (self.op is BinaryOp.EQ)


def equality(op: BinaryOp, a: Expr, b: object) -> Expr:
    if hasattr(b, "missing_indices"):
        return MixedIdentityTest(op, a, Var(getattr(b, "name", "?"), "whole tensor"), "bool")
    if not isinstance(b, (Expr, int, float, bool)) and not _is_numpy_scalar(b):
        return Const(op is BinaryOp.NE, "bool")  # an expression never equals a foreign object
    if isinstance(b, Expr) and a.dtype != b.dtype:
        return MixedIdentityTest(op, a, b, "bool")
    x, y = _match(str(op), a, b)  # type: ignore[arg-type]
    if isinstance(x, Const) and isinstance(y, Const):
        return Const(bool(FOLDERS[op](_rounded(x), _rounded(y))), "bool")
    return _IdentityTest(op, x, y, "bool")


def _rounded(constant: Const) -> int | float:
    """The number that a constant becomes where it is used."""
    with np.errstate(over="ignore"):
        return to_numpy(constant.dtype).type(constant.value).item()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MixedIdentityTest(_IdentityTest):
    """`==` of two dtypes or with a tensor: an identity test (list membership), refused in a program."""


def refuse_tensor(what: str, value: object) -> None:
    """Raise a `DefinitionError` unless `value` can be an operand of `what`: an expression or a number."""
    if isinstance(value, (Expr, int, float, bool)) or _is_numpy_scalar(value):
        return
    missing_indices = getattr(value, "missing_indices", None)
    if missing_indices is not None:
        raise DefinitionError(f"`{what}`: {missing_indices()}")
    raise DefinitionError(f"`{what}` is given {value!r} of type {type(value).__name__}, not an expression")


def _is_numpy_scalar(value: object) -> bool:
    return hasattr(value, "item") and getattr(value, "ndim", None) == 0


def negate(value: Expr) -> Expr:
    """Make `-value`, as `0 - value`; of a float as `-0.0 - value`, which is right for zeros of both signs."""
    return binary(BinaryOp.SUB, const(-0.0 if is_float(value.dtype) else 0, value.dtype), value)


def cast(value: ExprLike, dtype: str) -> Expr:
    """`value` converted to `dtype` (see `Cast`); a no-op if it has that dtype already.

    A Python number becomes a literal of `dtype`, without another dtype in between.

    Raises
    ------
    DefinitionError
        If a number does not fit a float dtype, or a float does not fit an integer dtype.
    """
    dtype_info(dtype)
    refuse_tensor("cast", value)
    if not isinstance(value, Expr):
        return _cast_number(_python_number(value), dtype)
    if value.dtype == dtype:
        return value
    if (
        isinstance(value, Const)
        and not is_float(value.dtype)
        and (not is_float(dtype) or abs(int(value.value)) <= 1 << _MANTISSA_BITS[dtype])
    ):
        return _cast_number(value.value, dtype)
    return Cast(value, dtype)


def _cast_number(value: Number, dtype: str) -> Const:
    if dtype_info(dtype).kind in ("int", "uint"):
        if isinstance(value, int):
            value = wrap_int(value, dtype)
        elif math.isfinite(value):
            value = float(math.trunc(value))
    return const(value, dtype)


def as_index(index: Expr) -> Expr:
    """An index to calculate with: one of fewer bits, or without a sign, would wrap where axes do not."""
    return index if index.dtype in ("int32", "int64") else cast(index, INDEX_DTYPE)


_MANTISSA_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Integers up to two to this power are exact in the dtype."""


def select(cond: ExprLike, then: ExprLike, other: ExprLike, *, lazy: bool = False) -> Expr:
    """See `Select`; `cond` is bool, both sides share a dtype."""
    name = "if_then_else" if lazy else "select"
    for value in (cond, then, other):
        refuse_tensor(name, value)
    condition = as_expr(cond)
    if condition.dtype != "bool":
        raise DefinitionError(f"`{name}` needs a condition, found {condition.dtype} `{condition}`")
    x, y = _match(name, then, other)
    if isinstance(condition, Const):
        return x if condition.value else y
    return Select(condition, x, y, lazy, x.dtype)


def logical_not(value: ExprLike) -> Expr:
    """Negation of a condition."""
    expr = as_expr(value)
    if expr.dtype != "bool":
        raise DefinitionError(f"`not` needs a condition, found {expr.dtype} `{expr}`")
    if isinstance(expr, Const):
        return Const(not expr.value, "bool")
    return expr.a if isinstance(expr, Not) else Not(expr)


def call(name: str, *args: ExprLike) -> Expr:
    """The intrinsic `name` applied to `args` (see `INTRINSICS`)."""
    for arg in args:
        refuse_tensor(name, arg)
    arity = INTRINSICS.get(name)
    if arity is None:
        raise DefinitionError(f"unknown intrinsic {name!r}; there are {', '.join(sorted(INTRINSICS))}")
    if len(args) != arity:
        raise DefinitionError(f"`{name}` takes {arity} argument(s), found {len(args)}")
    typed = next((arg.dtype for arg in args if isinstance(arg, Expr)), "float32")
    exprs = tuple(as_expr(arg, typed) for arg in args)
    for expr in exprs:
        if expr.dtype != typed:
            raise DefinitionError(f"`{name}` of mixed dtypes {typed} and {expr.dtype}; cast one side")
    if not is_float(typed) and not (name == "abs" and dtype_info(typed).kind in ("int", "uint")):
        raise DefinitionError(f"`{name}` is for floats, found {typed} `{exprs[0]}`; cast it first")
    return Call(name, exprs, typed)
