"""Integer arithmetic in C that means what te means: it wraps, and divides by anything.

Arithmetic on indices, which fits its dtype (`ansor.codegen.overflow`), is C's own. Other sums and products of
signed or narrow integers are computed as unsigned numbers of 32 or 64 bits, whose overflow C defines, and
converted back. A division is C's where the operands are seen to have the signs that make both the same, and a
function (`ansor.codegen.c.helpers`) elsewhere.

The text of an integer narrower than int may have the type int, as C promotes it; its value always fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ansor.codegen.c.literals import literal
from ansor.codegen.c.text import PRODUCT, SUM, UNARY, Text, bracketed, call, converted, infix
from ansor.dtypes import dtype_info, is_float
from ansor.te.expr import BITWISE, Binary, BinaryOp, Cast, Const, Expr, int_value

if TYPE_CHECKING:
    from ansor.codegen.c.expressions import Expressions

SIGNS: Final = {
    BinaryOp.ADD: ("+", SUM),
    BinaryOp.SUB: ("-", SUM),
    BinaryOp.MUL: ("*", PRODUCT),
    BinaryOp.DIV: ("/", PRODUCT),
}
_FLOOR: Final = frozenset((BinaryOp.FLOORDIV, BinaryOp.FLOORMOD))
_QUOTIENT: Final = frozenset((BinaryOp.FLOORDIV, BinaryOp.TRUNCDIV))


class Integers:
    """Integer operators over the texts of their operands."""

    def __init__(self, expressions: Expressions) -> None:
        self._e = expressions
        self._dialect = expressions.dialect

    def arithmetic(self, expr: Binary) -> Text:
        """The value of an integer operator."""
        if expr.op in (BinaryOp.MIN, BinaryOp.MAX):
            return call(str(expr.op), self._as_int(expr.a), self._as_int(expr.b))
        if expr.op in BITWISE:
            return self._bitwise(expr)
        if expr.op not in SIGNS:
            return self._division(expr)
        info, (sign, strength) = dtype_info(expr.dtype), SIGNS[expr.op]
        if self._e.overflow.is_index(expr) or (info.kind == "uint" and info.bits >= 32):
            return infix(sign, self._e.value(expr.a), self._e.value(expr.b), strength)
        unsigned = "uint64" if info.bits == 64 else "uint32"
        total = infix(sign, self._modular(expr.a, unsigned), self._modular(expr.b, unsigned), strength)
        return converted(self._dialect.values[expr.dtype], total)

    def index(self, expr: Expr) -> Text:
        """An integer that addresses memory: its sums and products need not wrap, unless they turn."""
        if not isinstance(expr, Binary) or expr.op not in SIGNS or expr.dtype not in ("int32", "int64"):
            return self._e.value(expr)
        if self._e.is_kept(expr) or self._e.overflow.turns(expr):
            return self._e.value(expr)  # What is kept is written once, if it is long.
        sign, strength = SIGNS[expr.op]
        return infix(sign, self.index(expr.a), self.index(expr.b), strength)

    def absolute(self, x: Text, dtype: str) -> Text:
        """The absolute value; the least integer is itself."""
        info = dtype_info(dtype)
        if info.kind == "uint":
            return x
        result = call(self._e.helpers.use(f"ansor_abs_{dtype if info.bits >= 32 else 'int32'}"), x)
        return result if info.bits >= 32 else converted(self._dialect.values[dtype], result)

    def _bitwise(self, expr: Binary) -> Text:
        """An operator on bits; to the left, signed and narrow numbers are shifted as unsigned ones."""
        info, b = dtype_info(expr.dtype), self._e.value(expr.b)
        if expr.op is not BinaryOp.SHL or (info.kind == "uint" and info.bits >= 32):
            return _of_bits(BITWISE[expr.op], self._e.value(expr.a), b)
        unsigned = "uint64" if info.bits == 64 else "uint32"
        shifted = _of_bits(BITWISE[expr.op], self._modular(expr.a, unsigned), b)
        return converted(self._dialect.values[expr.dtype], shifted)

    def _as_int(self, expr: Expr) -> Text:
        """An operand for which C has one function: narrow integers as int."""
        value = self._e.value(expr)
        if dtype_info(expr.dtype).bits >= 32 or isinstance(expr, Const):
            return value
        return converted("int", value)

    def _modular(self, expr: Expr, unsigned: str) -> Text:
        """An unsigned number that is equal to the integer modulo its dtype's range."""
        if isinstance(expr, Const):
            modulus = 1 << dtype_info(unsigned).bits
            return literal(self._dialect, int(expr.value) % modulus, unsigned)
        plain = self._e.overflow.is_index(expr) or self._e.is_kept(expr)
        if isinstance(expr, Binary) and expr.op in SIGNS and not plain:
            sign, strength = SIGNS[expr.op]
            return infix(sign, self._modular(expr.a, unsigned), self._modular(expr.b, unsigned), strength)
        if isinstance(expr, Cast) and not is_float(expr.a.dtype) and not plain:
            same_width = dtype_info(expr.dtype).bits == dtype_info(unsigned).bits
            if same_width or dtype_info(expr.a.dtype).bits <= dtype_info(expr.dtype).bits:
                return converted(self._dialect.values[unsigned], self._e.value(expr.a))
        return converted(self._dialect.values[unsigned], self._e.value(expr))

    # -- division ----------------------------------------------------------------------------------------

    def _division(self, expr: Binary) -> Text:
        op, dtype = expr.op, expr.dtype
        info, divisor = dtype_info(dtype), int_value(expr.b)
        if divisor == 0:
            return literal(self._dialect, 0, dtype)
        a, b = self._e.value(expr.a), self._e.value(expr.b)
        if self._is_plain(expr, divisor):
            return infix("/" if op in _QUOTIENT else "%", a, b, PRODUCT)
        if op in _FLOOR and divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
            return self._by_power_of_two(expr, a, divisor)
        if info.bits >= 32:
            return call(self._e.helpers.use(f"ansor_{op}_{dtype}"), a, b)
        wide = call(self._e.helpers.use(f"ansor_{op}_{info.kind}32"), a, b)
        return converted(self._dialect.values[dtype], wide)

    def _is_plain(self, expr: Binary, divisor: int | None) -> bool:
        """Whether C's division gives the same."""
        known = divisor is not None and divisor != -1
        if dtype_info(expr.dtype).kind == "uint":
            return known
        positive = self._e.overflow.interval(expr.b)[0] > 0
        if expr.op not in _FLOOR:
            return known or positive
        return positive and self._e.overflow.interval(expr.a)[0] >= 0

    def _by_power_of_two(self, expr: Binary, a: Text, divisor: int) -> Text:
        """Floor division by bits, which are those of two's complement in both languages."""
        if expr.op is BinaryOp.FLOORDIV:
            return _of_bits(">>", a, Text(str(divisor.bit_length() - 1)))
        return _of_bits("&", a, literal(self._dialect, divisor - 1, expr.dtype))


def _of_bits(sign: str, a: Text, b: Text) -> Text:
    """`(a sign b)`, in parentheses, as few know how C's signs of bits bind."""
    depth = max(a.depth_at(UNARY), b.depth_at(UNARY))
    return bracketed(Text(f"{a.at(UNARY)} {sign} {b.at(UNARY)}", size=a.size + b.size + 1, depth=depth))
