"""C headers of modules in files: how a C program calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ansor.codegen.names import c_name
from ansor.ir.dims import Dim
from ansor.runtime.names import unique
from ansor.runtime.signature import Argument, Signature, describe

_C_TYPES: Final = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "bool": "uint8_t",
}
_OF_CPU: Final = """\
/* Threads that parallel loops run on, the caller included. Default: the environment variable
 * ANSOR_NUM_THREADS, else the cores this process may run on. Functions that are linked together from
 * object files share their threads and this number. */
void {symbol}_set_num_threads(int32_t count);
"""


@dataclass(frozen=True, slots=True)
class Parameters:
    """
    What a function takes in C, whose names are all different.

    Attributes
    ----------
    arguments
        Those of the signature, sizes in their shapes called as in C.
    names
        The pointers', in order.
    sizes
        The symbolic sizes', which follow them.
    """

    arguments: Sequence[Argument]
    names: Sequence[str]
    sizes: Sequence[str]

    @classmethod
    def of(cls, signature: Signature) -> Parameters:
        """Name what a function takes."""
        made = unique(c_name(name) for name in (*signature.sizes, *(a.name for a in signature.arguments)))
        count = len(signature.sizes)
        sizes = dict(zip(signature.sizes, made, strict=False))
        arguments = [
            replace(argument, shape=tuple(_renamed(dim, sizes) for dim in argument.shape))
            for argument in signature.arguments
        ]
        return cls(arguments, made[count:], made[:count])

    def __str__(self) -> str:
        pointers = [
            f"{'' if argument.output else 'const '}{c_type(argument.dtype)} *{name}"
            for argument, name in zip(self.arguments, self.names, strict=True)
        ]
        return ", ".join([*pointers, *(f"int64_t {size}" for size in self.sizes)]) or "void"


def header(signature: Signature, result: str = "void", notes: str = "", further: str = _OF_CPU) -> str:
    """
    Write the C header of a saved or exported module, for C and C++.

    Parameters
    ----------
    signature
        What the function takes.
    result
        What it returns.
    notes
        Lines about its arrays, behind those that are about all functions.
    further
        What else the library declares, where "{symbol}" is the function's.
    """
    symbol, parameters = signature.symbol, Parameters.of(signature)
    guard = f"ANSOR_{symbol}_H"
    lines = [
        f" *   {name}: {describe(argument)}, {'written' if argument.output else 'read'}"
        for argument, name in zip(parameters.arguments, parameters.names, strict=True)
    ]
    if any(argument.dtype in ("float16", "bfloat16") for argument in parameters.arguments):
        lines.append(" * float16 and bfloat16 elements are passed as their 16 bits in a uint16_t.")
    listing = "\n".join(lines)
    machine = f"{signature.triple}, CPU {signature.cpu}" if further is _OF_CPU else signature.triple
    return f"""\
/* {symbol}: compiled by ansor for {machine}.
 *
{listing}
 * Arrays are dense, in row-major order, aligned to their element, and written ones overlap no other.
{notes} */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{result} {symbol}({parameters});

{further.format(symbol=symbol)}
/* Description of the function in JSON, after the word "ansor-module-1 ". */
extern const char {symbol}_ansor_metadata[];

#ifdef __cplusplus
}}
#endif
#endif
"""


def c_type(dtype: str) -> str:
    """The type of an element in C; of 16-bit floats that of their bits."""
    return _C_TYPES.get(dtype, f"{dtype}_t")


def _renamed(dim: Dim, names: Mapping[str, str]) -> Dim:
    """A dimension with its sizes called otherwise."""
    if isinstance(dim, tuple):
        return (dim[0], _renamed(dim[1], names), _renamed(dim[2], names))
    return names.get(dim, dim) if isinstance(dim, str) else dim
