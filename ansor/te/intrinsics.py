"""Element-wise functions of te: choices, conditions, integer division, limits of dtypes, mathematics.

What each computes, exactly, for the oracle and for every code generator:

- Integers wrap on overflow (two's complement). `floordiv`/`floormod` (Python's `//`, `%`) round towards
  minus infinity, `truncdiv`/`truncmod` towards zero as in C. Quotient and remainder of a division by zero are
  0; the least integer divided by -1 wraps to itself, with the remainder 0. Neither costs anything where the
  divisor is a constant.
- `&`, `|`, `^`, `~`, `<<` and `>>` of integers are those of two's complement, and wrap; `>>` of signed
  integers keeps the sign. A count of bits that is data is taken modulo the bits of the dtype.
- In two places arithmetic on axes and sizes is taken to fit its dtype instead: in the indices of tensors, and
  where it depends on sizes that are symbolic.
- A float to integer cast truncates towards zero; NaN and values out of the integer's range are undefined.
  Casts between integers wrap; casts to bool ask `!= 0`; casts to a narrower float round to nearest even.
- `minimum`/`maximum`: if an operand is NaN the result is one of the two operands, unspecified which; of -0.0
  and 0.0 either may be given.
- `round` rounds halves to even; `floor`, `ceil`, `round`, `sqrt`, `fma`, `abs` are exact. The others are
  within a few units in the last place of their dtype: `sigmoid(x)` is 1 / (1 + exp(-x)), accurate and
  without overflow at both ends; `rsqrt(x)` is 1 / sqrt(x). float16 and bfloat16 may be computed in float32.
"""
# ruff: noqa: A001  `abs`, `all`, `any`, `pow`, `round` are the names that users write, as te.abs, te.all.

from __future__ import annotations

from functools import reduce

from ansor.dtypes import dtype_info, int_range, is_float
from ansor.errors import DefinitionError
from ansor.te.expr import (
    FLOAT_MAX,
    BinaryOp,
    Expr,
    ExprLike,
    as_expr,
    binary,
    bitwise,
    call,
    const,
    inverted,
    refuse_tensor,
    select,
)

# -- choices and conditions --------------------------------------------------------------------------


def if_then_else(cond: ExprLike, then: ExprLike, other: ExprLike) -> Expr:
    """`then` where `cond` holds, else `other`; only the chosen side is evaluated.

    The way to write padding: the side that is not chosen may read out of bounds.
    """
    return select(cond, then, other, lazy=True)


where = select


def all(*conditions: ExprLike) -> Expr:
    """Whether every condition holds; true of none."""
    return reduce(lambda a, b: binary(BinaryOp.AND, a, b), conditions[1:], _condition("all", conditions))


def any(*conditions: ExprLike) -> Expr:
    """Whether at least one condition holds; false of none."""
    return reduce(lambda a, b: binary(BinaryOp.OR, a, b), conditions[1:], _condition("any", conditions))


def _condition(name: str, conditions: tuple[ExprLike, ...]) -> Expr:
    neutral = const(name == "all")
    if not conditions:
        return neutral
    return binary(BinaryOp.AND if name == "all" else BinaryOp.OR, conditions[0], neutral)


def logical_and(a: ExprLike, b: ExprLike) -> Expr:
    """Whether both conditions hold; also `a & b`."""
    return binary(BinaryOp.AND, a, b)


def logical_or(a: ExprLike, b: ExprLike) -> Expr:
    """Whether at least one of two conditions holds; also `a | b`."""
    return binary(BinaryOp.OR, a, b)


# -- integer division --------------------------------------------------------------------------------


def floordiv(a: ExprLike, b: ExprLike) -> Expr:
    """The integer quotient rounded towards minus infinity; also `a // b`."""
    return binary(BinaryOp.FLOORDIV, a, b)


def floormod(a: ExprLike, b: ExprLike) -> Expr:
    """The remainder of `floordiv`, with the sign of `b`; also `a % b`."""
    return binary(BinaryOp.FLOORMOD, a, b)


def truncdiv(a: ExprLike, b: ExprLike) -> Expr:
    """The integer quotient rounded towards zero, as in C."""
    return binary(BinaryOp.TRUNCDIV, a, b)


def truncmod(a: ExprLike, b: ExprLike) -> Expr:
    """The remainder of `truncdiv`, with the sign of `a`, as in C."""
    return binary(BinaryOp.TRUNCMOD, a, b)


def indexdiv(a: ExprLike, b: ExprLike) -> Expr:
    """The quotient of two non-negative indices (the same as `floordiv`)."""
    return binary(BinaryOp.FLOORDIV, a, b)


def indexmod(a: ExprLike, b: ExprLike) -> Expr:
    """The remainder of two non-negative indices (the same as `floormod`)."""
    return binary(BinaryOp.FLOORMOD, a, b)


# -- bits of integers --------------------------------------------------------------------------------


def bitwise_and(a: ExprLike, b: ExprLike) -> Expr:
    """The bits that both integers have; also `a & b`."""
    return bitwise(BinaryOp.BITAND, a, b)


def bitwise_or(a: ExprLike, b: ExprLike) -> Expr:
    """The bits that at least one of two integers has; also `a | b`."""
    return bitwise(BinaryOp.BITOR, a, b)


def bitwise_xor(a: ExprLike, b: ExprLike) -> Expr:
    """The bits that one of two integers has and the other has not; also `a ^ b`."""
    return bitwise(BinaryOp.XOR, a, b)


def bitwise_not(a: ExprLike) -> Expr:
    """The bits that an integer does not have; also `~a`."""
    refuse_tensor("bitwise_not", a)
    return inverted(a)


def shift_left(a: ExprLike, b: ExprLike) -> Expr:
    """`a` times 2 to the power of `b`, wrapped to the dtype; also `a << b`."""
    return bitwise(BinaryOp.SHL, a, b)


def shift_right(a: ExprLike, b: ExprLike) -> Expr:
    """`a` divided by 2 to the power of `b`, rounded towards minus infinity; also `a >> b`."""
    return bitwise(BinaryOp.SHR, a, b)


# -- limits of dtypes --------------------------------------------------------------------------------


def min_value(dtype: str) -> Expr:
    """The least finite value of `dtype`."""
    return const(-FLOAT_MAX[dtype] if is_float(dtype) else int_range(dtype)[0], dtype)


def max_value(dtype: str) -> Expr:
    """The greatest finite value of `dtype`."""
    return const(FLOAT_MAX[dtype] if is_float(dtype) else int_range(dtype)[1], dtype)


# -- mathematics -------------------------------------------------------------------------------------


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The lesser of two values."""
    return binary(BinaryOp.MIN, a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The greater of two values."""
    return binary(BinaryOp.MAX, a, b)


def clip(x: ExprLike, low: ExprLike, high: ExprLike) -> Expr:
    """`x`, but no less than `low` and no more than `high`."""
    return minimum(maximum(x, low), high)


def sign(x: ExprLike) -> Expr:
    """1, -1, or of zeros and NaN the number itself, in the dtype of `x`."""
    value = _number("sign", x)
    if dtype_info(value.dtype).kind == "uint":
        return minimum(value, 1)
    return select(binary(BinaryOp.GT, value, 0), 1, select(binary(BinaryOp.LT, value, 0), -1, value))


def isnan(x: ExprLike) -> Expr:
    """Whether a float is NaN."""
    value = _number("isnan", x, floats=True)
    return binary(BinaryOp.NE, value, value)


def isfinite(x: ExprLike) -> Expr:
    """Whether a float is neither infinite nor NaN."""
    return binary(BinaryOp.LT, abs(_number("isfinite", x, floats=True)), float("inf"))


def _number(name: str, x: ExprLike, *, floats: bool = False) -> Expr:
    """`x` as an expression; refuses what `name` is not for: conditions, integers if it is for floats."""
    refuse_tensor(name, x)
    value = as_expr(x)
    if value.dtype == "bool" or (floats and not is_float(value.dtype)):
        kind = "floats" if floats else "numbers"
        raise DefinitionError(f"`{name}` is for {kind}, found {value.dtype} `{value}`; cast it first")
    return value


def power(a: ExprLike, b: ExprLike) -> Expr:
    """`a` to the power of `b` (floats); also `a ** b`."""
    return call("pow", a, b)


pow = power


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> Expr:
    """`a * b + c`, rounded once."""
    return call("fma", a, b, c)


def exp(x: ExprLike) -> Expr:
    """The natural exponential."""
    return call("exp", x)


def exp2(x: ExprLike) -> Expr:
    """Two to the power of `x`."""
    return call("exp2", x)


def expm1(x: ExprLike) -> Expr:
    """`exp(x) - 1`, accurate near 0, too."""
    return call("expm1", x)


def log(x: ExprLike) -> Expr:
    """The natural logarithm; minus infinity at 0 and NaN below."""
    return call("log", x)


def log2(x: ExprLike) -> Expr:
    """The logarithm to the base 2; minus infinity at 0 and NaN below."""
    return call("log2", x)


def log1p(x: ExprLike) -> Expr:
    """`log(1 + x)`, accurate near 0, too; minus infinity at -1 and NaN below."""
    return call("log1p", x)


def sqrt(x: ExprLike) -> Expr:
    """The square root; NaN below 0."""
    return call("sqrt", x)


def rsqrt(x: ExprLike) -> Expr:
    """`1 / sqrt(x)`."""
    return call("rsqrt", x)


def sin(x: ExprLike) -> Expr:
    """The sine of an angle [radians]; NaN of infinities."""
    return call("sin", x)


def cos(x: ExprLike) -> Expr:
    """The cosine of an angle [radians]; NaN of infinities."""
    return call("cos", x)


def tan(x: ExprLike) -> Expr:
    """The tangent of an angle [radians]; NaN of infinities."""
    return call("tan", x)


def atan(x: ExprLike) -> Expr:
    """The angle from -pi/2 to pi/2 [radians] whose tangent is `x`."""
    return call("atan", x)


def sinh(x: ExprLike) -> Expr:
    """The hyperbolic sine."""
    return call("sinh", x)


def cosh(x: ExprLike) -> Expr:
    """The hyperbolic cosine."""
    return call("cosh", x)


def tanh(x: ExprLike) -> Expr:
    """The hyperbolic tangent."""
    return call("tanh", x)


def sigmoid(x: ExprLike) -> Expr:
    """`1 / (1 + exp(-x))`."""
    return call("sigmoid", x)


def erf(x: ExprLike) -> Expr:
    """The error function."""
    return call("erf", x)


def abs(x: ExprLike) -> Expr:
    """The absolute value of a float or integer; the least integer stays as it is."""
    return call("abs", x)


def floor(x: ExprLike) -> Expr:
    """The greatest integer that is not greater, as a float."""
    return call("floor", x)


def ceil(x: ExprLike) -> Expr:
    """The least integer that is not less, as a float."""
    return call("ceil", x)


def round(x: ExprLike) -> Expr:
    """The nearest integer, halves to even, as a float."""
    return call("round", x)


def trunc(x: ExprLike) -> Expr:
    """The integer that is nearest of those not farther from 0, as a float."""
    value = _number("trunc", x, floats=True)
    return select(binary(BinaryOp.LT, value, 0), ceil(value), floor(value))
