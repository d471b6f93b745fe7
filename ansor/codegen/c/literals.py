"""Constants of every dtype, exact in both languages."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ansor.codegen.c.dialect import HALVES, Dialect
from ansor.codegen.c.text import ATOM, UNARY, Text, call
from ansor.dtypes import dtype_info, int_range
from ansor.te.expr import Number
from ansor.te.numeric import constant, quiet

_LEAST: Final = {"float64": 2.0**-1022, "float32": 2.0**-126}
"""The least normal number; what is smaller is written by its bits, as compilers warn of it."""


def literal(dialect: Dialect, value: Number, dtype: str) -> Text:
    """The value of a constant of `dtype`, as it is computed with."""
    kind = dtype_info(dtype).kind
    if kind == "bool":
        return Text("true" if value else "false")
    if kind == "float":
        with quiet():
            rounded = float(constant(value, dtype).astype(np.float64))
        return _float(dialect, rounded, "float32" if dtype in HALVES else dtype)
    number, suffix = int(value), dialect.suffixes.get(dtype, "")
    if dtype in ("int32", "int64") and number == int_range(dtype)[0]:  # C has no negative literals
        return Text(f"({number + 1}{suffix} - 1)")
    return _signed(f"{number}{suffix}")


def half_bits(value: Number, dtype: str) -> Text:
    """The bits of a constant of a 16-bit float dtype."""
    with quiet():
        bits = constant(value, dtype).view(np.uint16)
    return Text(f"0x{int(bits):04x}")


def _signed(text: str) -> Text:
    return Text(text, UNARY if text.startswith("-") else ATOM)


def _float(dialect: Dialect, value: float, dtype: str) -> Text:
    if not math.isfinite(value) or 0 < abs(value) < _LEAST[dtype]:
        single = dtype == "float32"
        array = np.array(value, np.float32 if single else np.float64)
        bits = int(array.view(np.uint32 if single else np.uint64))
        number = f"0x{bits:08x}u" if single else f"0x{bits:016x}{dialect.suffixes['uint64']}"
        return Text(call(dialect.number[dtype], Text(number)).text)
    return _signed(repr(value) if dtype == "float64" else f"{np.float32(value)!s}f")
