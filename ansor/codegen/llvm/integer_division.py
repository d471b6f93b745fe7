"""Quotients and remainders of integers that are data: what divides by zero has a value, too.

Those of indices are in `ansor.codegen.llvm.index`, which knows their ranges.
"""

from __future__ import annotations

from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors
from ansor.te.expr import BinaryOp

_QUOTIENTS = (BinaryOp.FLOORDIV, BinaryOp.TRUNCDIV)


def divided_integers(v: Vectors, op: BinaryOp, a: Value, b: Value, signed: bool) -> Value:
    """The quotient or remainder; by 0 both are 0, and the least integer by -1 is itself."""
    one, zero = v.number(1, b.type), v.number(0, a.type)
    unsafe, by = None, b
    if b.text == "0":
        return zero
    if signed and (bits := _exponent(b.text)) is not None:  # In two's complement a shift rounds down.
        if op is BinaryOp.FLOORDIV:
            return v.binary("ashr", a, v.number(bits, a.type))
        if op is BinaryOp.FLOORMOD:
            return v.binary("and", a, v.number((1 << bits) - 1, a.type))
    if not b.text.lstrip("-").isdigit():
        # Signed: 0 and -1. A division by 1 has the remainder 0 too, and the quotient becomes a * b.
        unsafe = v.compare("ult", v.binary("add", b, one), v.number(2, b.type)) if signed else None
        unsafe = v.compare("eq", b, v.number(0, b.type)) if unsafe is None else unsafe
        by = v.select(unsafe, one, b)
    if op not in _QUOTIENTS:
        return _remainder(v, op, a, by, signed)
    quotient = _quotient(v, op, a, by, signed)
    return v.select(unsafe, v.binary("mul", a, b), quotient) if unsafe else quotient


def _quotient(v: Vectors, op: BinaryOp, a: Value, b: Value, signed: bool) -> Value:
    quotient = v.binary("sdiv" if signed else "udiv", a, b, dear=True)
    if not signed or op is BinaryOp.TRUNCDIV:
        return quotient
    wrong = _wrong_sign(v, v.binary("srem", a, b, dear=True), b)
    return v.select(wrong, v.binary("sub", quotient, v.number(1, a.type)), quotient)


def _remainder(v: Vectors, op: BinaryOp, a: Value, b: Value, signed: bool) -> Value:
    rest = v.binary("srem" if signed else "urem", a, b, dear=True)
    if not signed or op is BinaryOp.TRUNCMOD:
        return rest
    return v.select(_wrong_sign(v, rest, b), v.binary("add", rest, b), rest)


def _wrong_sign(v: Vectors, rest: Value, divisor: Value) -> Value:
    """Whether the remainder is not zero and of the other sign than the divisor."""
    zero = v.number(0, rest.type)
    differ = v.compare("slt", v.binary("xor", rest, divisor), zero)
    wrong = v.both(differ, v.compare("ne", rest, zero))
    assert wrong is not None
    return wrong


def _exponent(text: str) -> int | None:
    """Of a power of two in digits its exponent; None for any other text."""
    number = int(text) if text.isdigit() else 0
    return number.bit_length() - 1 if number.bit_count() == 1 else None
