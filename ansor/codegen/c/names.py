"""Names of variables and buffers in CUDA C++ and OpenCL C, the same in both.

A name is like the one in the nest, with an underscore for what C does not allow. What either language, or
the text itself, has another use for gets an underscore at its end; of equal names the later ones get a
number. So texts in the two languages differ in what differs between the languages only.
"""

from __future__ import annotations

import re
from typing import Final

from ansor.codegen.names import c_name
from ansor.numbered import NumberedNames
from ansor.te.buffer import Buffer
from ansor.te.expr import Var

# fmt: off
_WORDS: Final = frozenset((
    # OpenCL C
    "kernel", "global", "local", "constant", "generic", "pipe", "half", "quad", "size_t", "ptrdiff_t",
    "intptr_t", "uintptr_t", "sampler_t", "event_t", "queue_t", "ndrange_t", "clk_event_t", "reserve_id_t",
    "read_only", "write_only", "read_write", "uniform", "barrier", "as_float", "as_double", "as_uint",
    "as_ulong", "as_half", "as_ushort", "convert_float", "convert_half_rte", "get_group_id", "get_local_id",
    "vec_step",
    # CUDA
    "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "dim3", "assert", "printf", "clock",
    # functions that the text calls
    "min", "max", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "pow", "fma", "fmin", "fmax", "fabs",
    "floor", "ceil", "rint", "sin", "cos", "exp2", "expm1", "log2", "log1p", "tan", "atan", "sinh", "cosh",
    "expf", "logf", "sqrtf", "rsqrtf", "tanhf", "erff", "powf", "fmaf", "fminf", "fmaxf", "fabsf", "floorf",
    "ceilf", "rintf", "sinf", "cosf", "exp2f", "expm1f", "log2f", "log1pf", "tanf", "atanf", "sinhf",
    "coshf",
    # further macros of headers that nvcc includes
    "major", "minor", "near", "far", "CUDARTAPI", "NFDBITS", "NZERO", "L_ctermid", "L_cuserid", "L_tmpnam",
    "P_tmpdir", "WCONTINUED", "WEXITED", "WNOHANG", "WNOWAIT", "WSTOPPED", "WUNTRACED",
))
_PATTERN: Final = re.compile(
    r"u?(char|short|int|long|longlong)(1|2|3|4|8|16)?|(float|double|half|bool|quad)(2|3|4|8|16)|image\w*_t"
    r"|(HALF|CLK|CL|cl|CUDA|CUDART|ansor|make)_\w*|cuda[A-Z]\w*|SNAN\w*"
)
# fmt: on


def device_name(name: str) -> str:
    """An identifier that neither language has another use for; those of two names may be equal."""
    body = re.sub(r"\W+", "_", name, flags=re.ASCII)
    made = c_name(body if name.endswith("_") or not body.strip("_") else body.rstrip("_"))
    if made.startswith("__") or re.match(r"_[A-Z]", made):
        made = f"v{made}"
    return f"{made}_" if made in _WORDS or _PATTERN.fullmatch(made) else made


class Names:
    """A distinct name for every variable and buffer, given at the first meeting."""

    def __init__(self, outside: Names | None = None) -> None:
        """Start with no names, or with those of the text around."""
        self._names: dict[Var | Buffer, str] = dict(outside._names) if outside else {}
        self._numbered: NumberedNames = outside._numbered.copy() if outside else NumberedNames()
        self._used: set[Var | Buffer] = set()

    def of(self, item: Var | Buffer) -> str:
        """The name of `item`."""
        self._used.add(item)
        return self.reserve(item)

    def reserve(self, item: Var | Buffer) -> str:
        """The name of `item`, which does not use it yet."""
        name = self._names.get(item)
        if name is None:
            name = self._names[item] = self.fresh(item.name)
        return name

    def fresh(self, like: str) -> str:
        """A name that nothing has."""
        return self._numbered.fresh(device_name(like))

    def bind(self, var: Var, text: str) -> None:
        """Let `text`, an operand as it stands, mean `var`."""
        self._names[var] = text

    def used(self, item: Var | Buffer) -> bool:
        """Whether the name of `item` has been asked for."""
        return item in self._used
