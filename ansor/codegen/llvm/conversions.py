"""Conversions between dtypes, on register values, by te's rules of casting."""

from __future__ import annotations

from ansor.codegen.llvm import halves
from ansor.codegen.llvm.dtype_map import is_narrow_float, register_type
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors
from ansor.dtypes import dtype_info


def convert(v: Vectors, value: Value, source: str, dtype: str) -> Value:
    """Give a register value of dtype `source` as one of `dtype`.

    Floats to integers truncate, integers wrap, to bool asks `!= 0`, to a narrower float rounds to even once.
    """
    if source == dtype:
        return value
    old, new = dtype_info(source), dtype_info(dtype)
    machine = v.machine
    type_ = register_type(dtype, machine)
    if new.kind == "bool":
        return v.compare("une" if old.kind == "float" else "ne", value, v.number(0, value.type))
    if old.kind == "float" and new.kind == "float":
        return _convert_float(v, value, dtype, type_)
    if old.kind == "float":
        return v.convert("fptosi" if new.kind == "int" else "fptoui", value, type_)
    if new.kind == "float":
        opcode = "sitofp" if old.kind == "int" else "uitofp"
        if is_narrow_float(dtype, machine) and old.bits >= 32:
            exact = v.convert(opcode, _for_double(v, value, old.kind) if old.bits > 32 else value, "double")
            return halves.rounded(v, halves.double_to_float_odd(v, exact), dtype)
        result = v.convert(opcode, value, type_)
        return halves.rounded(v, result, dtype) if is_narrow_float(dtype, machine) else result
    if old.bits == new.bits:
        return value
    if old.bits > new.bits:
        return v.convert("trunc", value, type_)
    return v.convert("sext" if old.kind == "int" else "zext", value, type_)


def _for_double(v: Vectors, value: Value, kind: str) -> Value:
    """A 64-bit integer that a double holds, and that rounds to any 16-bit float as `value` does.

    Of one beyond 2**53 the last 12 bits become the middle between two multiples of 2**12, if any is set.
    """
    last = v.binary("and", value, v.number(0xFFF, "i64"))
    between = v.select(v.compare("eq", last, v.number(0, "i64")), v.number(0, "i64"), v.number(0x800, "i64"))
    large = v.binary("or", v.binary("and", value, v.number(-0x1000, "i64")), between)
    exact = 1 << 53
    shifted = v.binary("add", value, v.number(exact, "i64")) if kind == "int" else value
    beyond = v.compare("ugt", shifted, v.number(2 * exact if kind == "int" else exact, "i64"))
    return v.select(beyond, large, value)


def _convert_float(v: Vectors, value: Value, dtype: str, type_: str) -> Value:
    order = ("half", "float", "double")
    narrow = is_narrow_float(dtype, v.machine)
    if value.type == "double" and narrow:
        return halves.rounded(v, halves.double_to_float_odd(v, value), dtype)
    if value.type != type_:
        wider = order.index(type_) > order.index(value.type)
        value = v.convert("fpext" if wider else "fptrunc", value, type_)
    return halves.rounded(v, value, dtype) if narrow else value
