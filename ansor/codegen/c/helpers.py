"""Functions that a text defines for itself, because the languages lack them or mean something else.

Integer division: quotient and remainder by 0 are 0, the least integer by -1 is itself; floor division rounds
towards minus infinity. 16-bit floats: to and from float32, to nearest even, NaN stays NaN. What remains are
`sigmoid`, which neither overflows nor cancels, and powers by common exponents.

Copies into shared memory that a thread does not wait for are instructions of GPUs of compute capability 8.0
and newer, for 4, 8 or 16 bytes at once; others copy as ever.
What warps multiply together is in `ansor.codegen.c.product_helpers`.

A text holds those that it calls, each after those that it calls itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ansor.codegen.c.dialect import Dialect
from ansor.codegen.c.literals import literal
from ansor.codegen.c.product_helpers import columns_loaded, multiplied, rows_loaded
from ansor.dtypes import dtype_info, other_sign

_NAME: Final = re.compile(r"\bansor_\w+")


class Helpers:
    """The functions that one text needs."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._sources: dict[str, str] = {}

    def use(self, name: str) -> str:
        """Have `name`, a function or type that starts with "ansor_", defined; gives it back."""
        if name not in self._sources:
            source = _source(self._dialect, name)
            for needed in _NAME.findall(source):
                if needed != name:
                    self.use(needed)
            self._sources[name] = source
        return name

    def sources(self) -> list[str]:
        """The definitions, in an order in which they can stand: types first."""
        return sorted(self._sources.values(), key=lambda source: not source.startswith("typedef"))


def _source(d: Dialect, name: str) -> str:
    """The definition of a helper."""
    of, dtype = name.removeprefix("ansor_").rpartition("_")[::2]
    return _TYPES[name](d) if name in _TYPES else _FUNCTIONS[of](d, name, dtype)


def _function(d: Dialect, type_: str, name: str, parameters: str, body: str) -> str:
    """A function whose body is the given lines."""
    lines = "\n".join(f"  {line}" if not line.startswith("#") else line for line in body.strip().splitlines())
    return f"{d.function}{type_} {name}({parameters}) {{\n{lines}\n}}"


# -- 16-bit floats -----------------------------------------------------------------------------------


def _half_type(d: Dialect, dtype: str) -> str:
    definition = f"typedef {d.values['uint16']} ansor_{dtype};"
    if d.name == "cuda" or dtype == "bfloat16":
        return definition
    enabled = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable"
    return f"{definition}\n#ifdef cl_khr_fp16\n{enabled}\n#endif"


def _widened(d: Dialect, name: str, dtype: str) -> str:
    """The float32 of the bits of a 16-bit float."""
    if dtype == "bfloat16":
        body = f"return {d.number['float32']}(({d.values['uint32']})x << 16);"
    elif d.name == "cuda":
        body = 'float y;\nasm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));\nreturn y;'
    else:
        body = _FROM_FLOAT16
    return _function(d, "float", name, f"ansor_{dtype} x", body)


def _narrowed(d: Dialect, name: str, dtype: str) -> str:
    """The bits of a float32 rounded to a 16-bit float."""
    type_ = f"ansor_{dtype}"
    if dtype == "bfloat16":
        body = _bfloat16_bits(d)
    elif d.name == "cuda":
        body = f'{type_} y;\nasm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));\nreturn y;'
    else:
        body = _TO_FLOAT16
    return _function(d, type_, name, "float x", body)


# Devices without cl_khr_fp16 have vload_half and vstore_half, too, but those take addresses: private memory
# for a value in a register, which PoCL 3 mistakes for that of another work item.
_FROM_FLOAT16: Final = """
#ifdef cl_khr_fp16
return convert_float(as_half(x));
#else
const uint magnitude = x & 0x7fffu;
const uint small = as_uint((float)magnitude * 5.9604645e-08f);
const uint normal = (magnitude << 13) + 0x38000000u;
const uint special = (magnitude << 13) | 0x7f800000u;
const uint sign = (uint)(x & 0x8000u) << 16;
return as_float(sign | (magnitude < 0x400u ? small : magnitude < 0x7c00u ? normal : special));
#endif
"""
"""By integers: below 2**-14 floats are multiples of 2**-24; else the exponent is moved, or stays extreme."""

_TO_FLOAT16: Final = """
#ifdef cl_khr_fp16
return as_ushort(convert_half_rte(x));
#else
const uint magnitude = as_uint(x) & 0x7fffffffu;
const uint sign = (as_uint(x) >> 16) & 0x8000u;
const uint small = as_uint(as_float(magnitude) + 0.5f) - 0x3f000000u;
const uint normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
const uint special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
const uint finite = magnitude < 0x38800000u ? small : normal;
return (ansor_float16)(sign | (magnitude < 0x47800000u ? finite : special));
#endif
"""
"""By integers: 0.5 has its last place at 2**-24, which rounds small floats; from 2**16 on all is infinite."""


def _bfloat16_bits(d: Dialect) -> str:
    """By integers: a carry out of the lower half rounds up, ties to even; NaN becomes quiet."""
    by_integers = (
        f"const {d.values['uint32']} bits = {d.bits}(x);\n"
        f"const {d.values['uint32']} lowest = (bits >> 16) & 1u;\n"
        "return (ansor_bfloat16)((x != x ? bits | 0x400000u : bits + 0x7fffu + lowest) >> 16);"
    )
    if d.name != "cuda":
        return by_integers
    return (
        "#if __CUDA_ARCH__ >= 800\n"
        'ansor_bfloat16 y;\nasm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));\nreturn y;\n'
        f"#else\n{by_integers}\n#endif"
    )


def _rounded(d: Dialect, name: str, dtype: str) -> str:
    body = f"return ansor_from_{dtype}(ansor_to_{dtype}(x));"
    return _function(d, "float", name, "float x", body)


def _odd(d: Dialect, name: str, source: str) -> str:
    """A number as a float32 that rounds on to a bfloat16, from float64 to a float16 too, as itself would."""
    return _odd_of_float64(d, name) if source == "float32" else _odd_of_integer(d, name, source)


def _odd_of_integer(d: Dialect, name: str, dtype: str) -> str:
    """Of large ones the last bits become one, set if any of them is: then 24 are left."""
    wide, type_ = d.values["uint64"], d.values[dtype]
    size = f"({wide})x" if dtype_info(dtype).kind == "uint" else f"x < 0 ? ({wide})0 - ({wide})x : ({wide})x"
    sign = "" if dtype_info(dtype).kind == "uint" else "x < 0 ? -y : "
    end = d.suffixes["uint64"]
    body = f"""
const {wide} size = {size};
const {wide} last =
    size >> 49 ? 0x1ffffffffff{end} : size >> 34 ? 0x3ffffff{end} : size >> 24 ? 0x7ff{end} : 0{end};
const float y = (float)((size & ~last) | (size & last ? (last + 1) >> 1 : 0{end}));
return {sign}y;
"""
    return _function(d, "float", name, f"{type_} x", body)


def _odd_of_float64(d: Dialect, name: str) -> str:
    body = f"""
const float y = (float)x;
const double back = (double)y;
const {d.values["uint32"]} bits = {d.bits}(y);
if (x != x || back == x || (bits & 1u) != 0u) return y;
return {d.number["float32"]}(fabs(back) > fabs(x) ? bits - 1u : bits + 1u);
"""
    return _function(d, "float", name, "double x", body)


# -- integers ----------------------------------------------------------------------------------------


def _division(signed: str, unsigned: str) -> Callable[[Dialect, str, str], str]:
    """A division of two integers; `{wrapped}` is minus `a`, which wraps."""

    def source(d: Dialect, name: str, dtype: str) -> str:
        type_ = d.values[dtype]
        body = unsigned if dtype_info(dtype).kind == "uint" else signed
        body = body.format(wrapped=_negative(d, "a", dtype), type=type_)
        return _function(d, type_, name, f"{type_} a, {type_} b", body)

    return source


def _negative(d: Dialect, x: str, dtype: str) -> str:
    """Minus a signed integer; the least one is itself."""
    unsigned = other_sign(dtype)
    return f"({d.values[dtype]})({literal(d, 0, unsigned).text} - ({d.values[unsigned]}){x})"


_FLOORDIV: Final = """
if (b == 0) return 0;
if (b == -1) return {wrapped};
const {type} quotient = a / b;
return a % b != 0 && (a ^ b) < 0 ? quotient - 1 : quotient;
"""
_FLOORMOD: Final = """
if (b == 0 || b == -1) return 0;
const {type} rest = a % b;
return rest != 0 && (rest ^ b) < 0 ? rest + b : rest;
"""
_TRUNCDIV: Final = """
if (b == 0) return 0;
if (b == -1) return {wrapped};
return a / b;
"""
_TRUNCMOD: Final = "return b == 0 || b == -1 ? 0 : a % b;"


def _absolute(d: Dialect, name: str, dtype: str) -> str:
    type_ = d.values[dtype]
    return _function(d, type_, name, f"{type_} x", f"return x < 0 ? {_negative(d, 'x', dtype)} : x;")


# -- floats ------------------------------------------------------------------------------------------


def _sigmoid(d: Dialect, name: str, dtype: str) -> str:
    type_, functions = d.values[dtype], d.functions[dtype]
    zero, one = literal(d, 0.0, dtype).text, literal(d, 1.0, dtype).text
    body = f"""
const {type_} small = {functions["exp"]}(-{functions["abs"]}(x));
return (x < {zero} ? small : {one}) / ({one} + small);
"""
    return _function(d, type_, name, f"{type_} x", body)


def _power(body: str) -> Callable[[Dialect, str, str], str]:
    def source(d: Dialect, name: str, dtype: str) -> str:
        type_ = d.values[dtype]
        return _function(d, type_, name, f"{type_} x", body.format(type=type_))

    return source


def _root(d: Dialect, name: str, dtype: str) -> str:
    """`pow(x, 0.5)`, which unlike the square root is 0 at -0 and infinite at minus infinity."""
    type_ = d.values[dtype]
    zero, infinity = literal(d, 0.0, dtype).text, literal(d, float("inf"), dtype).text
    body = f"return x == -{infinity} ? {infinity} : {d.functions[dtype]['sqrt']}(x) + {zero};"
    return _function(d, type_, name, f"{type_} x", body)


# -- copies ------------------------------------------------------------------------------------------

_MOVED: Final = {"4": "unsigned int", "8": "uint2", "16": "uint4"}
"""Types of so many bytes."""


def _copied(d: Dialect, name: str, size: str) -> str:
    """Of 16 bytes no first-level cache keeps a copy, which nobody would read."""
    instruction = f"cp.async.{'cg' if size == '16' else 'ca'}.shared.global [%0], [%1], {size};"
    operands = '"r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from)'
    body = f"""
#if __CUDA_ARCH__ >= 800
asm volatile("{instruction}" : : {operands} : "memory");
#else
*({_MOVED[size]}*)to = *(const {_MOVED[size]}*)from;
#endif
"""
    return _function(d, "void", name, "void* to, const void* from", body)


def _filled(d: Dialect, name: str, size: str) -> str:
    """The same, or zeros: of the place they come from nothing is read then."""
    instruction = f"cp.async.{'cg' if size == '16' else 'ca'}.shared.global [%0], [%1], {size}, %2;"
    operands = f'"r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? {size} : 0)'
    body = f"""
#if __CUDA_ARCH__ >= 800
asm volatile("{instruction}" : : {operands} : "memory");
#else
const {_MOVED[size]} zero = {{}};
*({_MOVED[size]}*)to = there ? *(const {_MOVED[size]}*)from : zero;
#endif
"""
    return _function(d, "void", name, "void* to, const void* from, bool there", body)


def _async_only(instruction: str) -> Callable[[Dialect, str, str], str]:
    """A function of one instruction about copies; of nothing where these are done at once."""

    def source(d: Dialect, name: str, number: str) -> str:
        body = f"""
#if __CUDA_ARCH__ >= 800
asm volatile("{instruction.format(number)};" : : : "memory");
#endif
"""
        return _function(d, "void", name, "", body)

    return source


def async_copy(size: int) -> str:
    """The helper that copies so many bytes, given the places to and from; empty if there is none."""
    return f"ansor_copy_{size}" if str(size) in _MOVED else ""


def async_fill(size: int) -> str:
    """The same, given also whether it copies; else it stores zeros."""
    return f"ansor_fill_{size}" if str(size) in _MOVED else ""


def wait_for_copies(pending: int) -> str:
    """The helper that waits for all copies that the thread has begun, but for those of the last groups."""
    return f"ansor_wait_but_{pending}" if pending else "ansor_wait_copies"


COMMIT_COPIES: Final = "ansor_commit_copies"
"""The helper that ends a group of copies."""

_TYPES: Final[dict[str, Callable[[Dialect], str]]] = {
    "ansor_float16": lambda d: _half_type(d, "float16"),
    "ansor_bfloat16": lambda d: _half_type(d, "bfloat16"),
}
_FUNCTIONS: Final[dict[str, Callable[[Dialect, str, str], str]]] = {
    "from": _widened,
    "to": _narrowed,
    "round": _rounded,
    "odd": _odd,
    "floordiv": _division(_FLOORDIV, "return b == 0 ? 0 : a / b;"),
    "floormod": _division(_FLOORMOD, "return b == 0 ? 0 : a % b;"),
    "truncdiv": _division(_TRUNCDIV, "return b == 0 ? 0 : a / b;"),
    "truncmod": _division(_TRUNCMOD, "return b == 0 ? 0 : a % b;"),
    "abs": _absolute,
    "sigmoid": _sigmoid,
    "square": _power("return x * x;"),
    "cube": _power("return x * x * x;"),
    "fourth": _power("const {type} square = x * x;\nreturn square * square;"),
    "root": _root,
    "copy": _copied,
    "fill": _filled,
    "wait": _async_only("cp.async.wait_all"),
    "wait_but": _async_only("cp.async.wait_group {0}"),
    "commit": _async_only("cp.async.commit_group"),
    "mma": multiplied,
    "rows": rows_loaded,
    "columns": columns_loaded,
}
