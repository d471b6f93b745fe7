"""float16 and bfloat16: bits in memory to float32 values and back, to nearest even, for any number of lanes.

bfloat16 is the upper half of a float32, so integer instructions do it on every machine (the native conversion
of x86 flushes denormals). float16 uses the machine's instructions where it has them, and integer instructions
elsewhere, since LLVM would otherwise call a compiler-runtime function that a JIT cannot count on.
"""

from __future__ import annotations

from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors


def widen(v: Vectors, bits: Value, dtype: str) -> Value:
    """The register value of a 16-bit float's i16 `bits`: a `float`, or a `half` where that is native."""
    if dtype == "bfloat16":
        wide = v.convert("zext", bits, "i32")
        return v.convert("bitcast", v.binary("shl", wide, v.number(16, "i32")), "float")
    if v.machine.has_f16_conversion or v.machine.has_f16_arithmetic:
        half = v.convert("bitcast", bits, "half")
        return half if v.machine.has_f16_arithmetic else v.convert("fpext", half, "float")
    single = _half_bits_to_float(v, bits)
    v.half_bits[single.text] = bits
    return single


def narrow(v: Vectors, value: Value, dtype: str) -> Value:
    """The i16 bits of a register value of the 16-bit float type: nothing is rounded."""
    if dtype == "bfloat16":
        bits = v.convert("bitcast", value, "i32")
        return v.convert("trunc", v.binary("lshr", bits, v.number(16, "i32")), "i16")
    known = v.half_bits.get(value.text)
    return _half_bits(v, value) if known is None else known


def rounded(v: Vectors, value: Value, dtype: str) -> Value:
    """A `float` rounded to a value of the 16-bit float type, still as a `float`."""
    if dtype == "bfloat16":
        return v.convert("bitcast", _bfloat16_rounded_bits(v, value), "float")
    return widen(v, _half_bits(v, value), dtype)


def _half_bits(v: Vectors, value: Value) -> Value:
    """The i16 bits of a `half`, or of a `float` rounded to one."""
    if value.type == "half":
        return v.convert("bitcast", value, "i16")
    if v.machine.has_f16_conversion:
        return v.convert("bitcast", v.convert("fptrunc", value, "half"), "i16")
    return _float_to_half_bits(v, value)


def double_to_float_odd(v: Vectors, value: Value) -> Value:
    """A double to a float that rounds on to any 16-bit float as the double itself would (rounding to odd)."""
    near = v.convert("fptrunc", value, "float")
    back = v.convert("fpext", near, "double")
    bits = v.convert("bitcast", near, "i32")
    even = v.compare("eq", v.binary("and", bits, v.number(1, "i32")), v.number(0, "i32"))
    inexact = v.compare("one", back, value)
    shrink = v.compare("ogt", v.intrinsic("fabs", back), v.intrinsic("fabs", value))
    other = v.binary("add", bits, v.select(shrink, v.number(-1, "i32"), v.number(1, "i32")))
    moved = v.convert("bitcast", v.select(even, other, bits), "float")
    return v.select(inexact, moved, near)


def _bfloat16_rounded_bits(v: Vectors, value: Value) -> Value:
    """The bits of a float rounded to 8 significant bits; the lower half is zero."""
    bits = v.convert("bitcast", value, "i32")
    lowest = v.binary("and", v.binary("lshr", bits, v.number(16, "i32")), v.number(1, "i32"))
    up = v.binary("add", v.binary("add", bits, v.number(0x7FFF, "i32")), lowest)
    quiet = v.binary("or", bits, v.number(0x400000, "i32"))
    is_nan = v.compare("uno", value, value)
    return v.binary("and", v.select(is_nan, quiet, up), v.number(-0x10000, "i32"))


def _half_bits_to_float(v: Vectors, bits: Value) -> Value:
    """float16 to float32 by integer shifts and one exact multiplication, which normalises denormals."""
    wide = v.convert("zext", bits, "i32")
    sign = v.binary("shl", v.binary("and", wide, v.number(0x8000, "i32")), v.number(16, "i32"))
    magnitude = v.binary("shl", v.binary("and", wide, v.number(0x7FFF, "i32")), v.number(13, "i32"))
    scaled = v.binary("fmul", v.convert("bitcast", magnitude, "float"), v.number(2.0**112, "float"))
    special = v.binary("or", magnitude, v.number(0x7F800000, "i32"))  # inf and NaN: all exponent bits set
    is_special = v.compare("uge", magnitude, v.number(0x7C00 << 13, "i32"))
    result = v.select(is_special, special, v.convert("bitcast", scaled, "i32"))
    return v.convert("bitcast", v.binary("or", result, sign), "float")


def _float_to_half_bits(v: Vectors, value: Value) -> Value:
    """float32 to float16 bits: normal results by integer rounding, small ones by a float addition."""
    bits = v.convert("bitcast", value, "i32")
    sign = v.binary("and", v.binary("lshr", bits, v.number(16, "i32")), v.number(0x8000, "i32"))
    magnitude = v.binary("and", bits, v.number(0x7FFFFFFF, "i32"))
    lowest = v.binary("and", v.binary("lshr", magnitude, v.number(13, "i32")), v.number(1, "i32"))
    rebased = v.binary("add", magnitude, v.number(0xFFF - (112 << 23), "i32"))
    normal = v.binary("lshr", v.binary("add", rebased, lowest), v.number(13, "i32"))
    # Below 2**-14 the result counts units of 2**-24, which is the last place of a float near 0.5.
    shifted = v.binary("fadd", v.convert("bitcast", magnitude, "float"), v.number(0.5, "float"))
    small = v.binary("sub", v.convert("bitcast", shifted, "i32"), v.number(0x3F000000, "i32"))
    is_small = v.compare("ult", magnitude, v.number(113 << 23, "i32"))
    is_large = v.compare("uge", magnitude, v.number((127 + 16) << 23, "i32"))
    is_nan = v.compare("ugt", magnitude, v.number(0x7F800000, "i32"))
    finite = v.select(is_small, small, normal)
    result = v.select(is_nan, v.number(0x7E00, "i32"), v.select(is_large, v.number(0x7C00, "i32"), finite))
    return v.convert("trunc", v.binary("or", result, sign), "i16")
