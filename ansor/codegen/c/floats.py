"""Float arithmetic, functions and conversions in C.

Operators are C's; compilers may contract a product and a sum to one operation, as the LLVM back end does.
16-bit floats are computed as float32 and rounded after each operation, which is exact rounding for sums,
products, quotients and roots. What only chooses, or gives integers, need not be rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ansor.codegen.c.dialect import HALVES
from ansor.codegen.c.integers import SIGNS
from ansor.codegen.c.literals import literal
from ansor.codegen.c.text import EQUALITY, PRODUCT, Text, call, converted, infix, prefix
from ansor.dtypes import dtype_info, is_float, is_integer
from ansor.errors import BuildError
from ansor.te.expr import Binary, BinaryOp, Call, Cast, Const, Expr
from ansor.te.numeric import constant

if TYPE_CHECKING:
    from ansor.codegen.c.expressions import Expressions

_EXACT: Final = frozenset(("abs", "floor", "ceil", "round"))
_POWERS: Final = {2.0: "square", 3.0: "cube", 4.0: "fourth", 0.5: "root"}
_RECIPROCALS: Final = (-1.0, -0.5)


class Floats:
    """Operators that give floats, over the texts of their operands."""

    def __init__(self, expressions: Expressions) -> None:
        self._e = expressions
        self._dialect = expressions.dialect

    def computed(self, expr: Expr) -> tuple[Text, bool]:
        """The value of an operator, of a 16-bit float as a float32; and whether that must yet be rounded."""
        narrow = expr.dtype in HALVES
        match expr:
            case Binary(op=BinaryOp.MIN | BinaryOp.MAX as op):
                return self._function(str(op), expr, (expr.a, expr.b)), False
            case Binary(op=BinaryOp.SUB, a=Const(value=value), b=b) if _is_minus_zero(value):
                return prefix("-", self._e.value(b)), False
            case Binary(op=op, a=a, b=b) if op in SIGNS:
                sign, strength = SIGNS[op]
                return infix(sign, self._e.value(a), self._e.value(b), strength), narrow
            case Call():
                return self._call(expr), narrow and expr.name not in _EXACT
            case Cast(a=a):
                return self._converted(a, expr.dtype), narrow
            case _:
                raise BuildError(f"`{expr}` computes no float")

    def rounded(self, single: Text, dtype: str) -> Text:
        """A float32 rounded to a 16-bit float dtype."""
        return call(self._e.helpers.use(f"ansor_round_{dtype}"), single)

    def truth(self, a: Expr) -> Text:
        """Whether a number is not zero."""
        return infix("!=", self._e.value(a), literal(self._dialect, 0, a.dtype), EQUALITY)

    def _function(self, name: str, expr: Expr, args: Sequence[Expr]) -> Text:
        names = self._dialect.functions[_computed_in(expr.dtype)]
        if name not in names:
            raise BuildError(f"the {self._dialect.name} back end has no intrinsic {name!r}")
        # A list, since Python 3.12 and 3.13 let generators and `*args` nest no more than some thousand times.
        return call(names[name], *[self._e.value(arg) for arg in args])

    def _call(self, expr: Call) -> Text:
        dtype = _computed_in(expr.dtype)
        if expr.name == "sigmoid":
            return call(self._e.helpers.use(f"ansor_sigmoid_{dtype}"), self._e.value(expr.args[0]))
        if expr.name == "pow" and isinstance(expr.args[1], Const):
            special = self._power(expr.args[0], float(constant(expr.args[1].value, expr.dtype).astype(float)))
            if special is not None:
                return special
        return self._function(expr.name, expr, expr.args)

    def _power(self, x: Expr, exponent: float) -> Text | None:
        """`pow` for the exponents that programs are written with; None for others."""
        dtype = _computed_in(x.dtype)
        if exponent == 1.0:
            return self._e.value(x)
        if exponent in _POWERS:
            return call(self._e.helpers.use(f"ansor_{_POWERS[exponent]}_{dtype}"), self._e.value(x))
        divisor = self._power(x, -exponent) if exponent in _RECIPROCALS else None
        if divisor is None:
            return None
        return infix("/", literal(self._dialect, 1.0, dtype), divisor, PRODUCT)

    def _converted(self, a: Expr, dtype: str) -> Text:
        """A number as float32 or float64; for a 16-bit float, one that is right to round on from."""
        value, computed = self._e.value(a), _computed_in(dtype)
        if dtype in HALVES and a.dtype == "float64":
            return call(self._e.helpers.use("ansor_odd_float32"), value)
        if dtype == "bfloat16" and is_integer(a.dtype) and dtype_info(a.dtype).bits >= 32:
            return call(self._e.helpers.use(f"ansor_odd_{a.dtype}"), value)
        if is_float(a.dtype) and _computed_in(a.dtype) == computed:
            return value
        return converted(self._dialect.values[computed], value)


def _computed_in(dtype: str) -> str:
    """The float dtype that values of a float dtype are computed in."""
    return "float32" if dtype in HALVES else dtype


def _is_minus_zero(value: float) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


def is_float_operator(expr: Expr) -> bool:
    """Whether `Floats.computed` takes it."""
    if dtype_info(expr.dtype).kind != "float":
        return False
    return isinstance(expr, (Binary, Call, Cast))
