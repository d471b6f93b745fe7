"""How dtypes appear in LLVM IR: in registers, in memory, and as literals.

float16 and bfloat16 live in registers as `float` values that are exactly representable in them: an operation
is done in float32 and its result rounded, as numpy does, unless the machine computes with float16 natively.
bool is i1 in registers and a byte in memory.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from ansor.codegen.machine import Machine
from ansor.dtypes import dtype_info
from ansor.te.expr import Number, wrap_int
from ansor.te.numeric import constant

_REGISTER: Final = {
    "float64": "double",
    "float32": "float",
    "float16": "float",
    "bfloat16": "float",
    "bool": "i1",
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

_MEMORY: Final = {**_REGISTER, "float16": "i16", "bfloat16": "i16", "bool": "i8"}


def register_type(dtype: str, machine: Machine) -> str:
    """The LLVM type of one value of `dtype` in a register."""
    if dtype == "float16" and machine.has_f16_arithmetic:
        return "half"
    return _REGISTER[dtype]


def memory_type(dtype: str) -> str:
    """The LLVM type of one element of `dtype` in memory."""
    return _MEMORY[dtype]


def is_narrow_float(dtype: str, machine: Machine) -> bool:
    """Whether values of `dtype` are computed in float32 and rounded after each operation."""
    return dtype == "bfloat16" or (dtype == "float16" and not machine.has_f16_arithmetic)


def literal(value: Number, dtype: str, machine: Machine) -> str:
    """The literal of `value` as a register value of `dtype`."""
    info = dtype_info(dtype)
    if info.kind == "bool":
        return "true" if value else "false"
    if info.kind != "float":
        number = wrap_int(int(value), dtype)
        return str(number - (1 << info.bits) if number >= 1 << (info.bits - 1) else number)
    with np.errstate(over="ignore"):
        rounded = constant(float(value), dtype)
    return float_literal(float(rounded), register_type(dtype, machine))


def float_literal(value: float, type_: str) -> str:
    """The literal of a float value in the LLVM type "float", "double" or "half"."""
    if type_ == "half":
        return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
    if type_ == "float":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
