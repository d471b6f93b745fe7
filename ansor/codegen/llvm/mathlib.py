"""Mathematical functions as inline polynomials, for any number of lanes.

float32 functions reduce their argument, evaluate a polynomial of our own fit (minimax by iteratively
reweighted least squares on Chebyshev points, weighted to relative error) and reconstruct. They handle
infinities, NaN, signed zeros, denormals and overflow. `MAX_ULP` holds the largest errors found against a
float64 reference, on dense samples of all float32 values and on every one where a function errs most.

They are in `exponential` and `saturating` (with the lookups of AVX-512 in `pieces`). `logarithm`, `powers`,
`trigonometry`, `arctangent` and `hyperbolic` have those of float64, too; its others are in `math64`. Those of
float16 and bfloat16 are computed in float32 and rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ansor.codegen.llvm import (
    arctangent,
    exponential,
    halves,
    hyperbolic,
    logarithm,
    math64,
    powers,
    saturating,
    trigonometry,
)
from ansor.codegen.llvm.dtype_map import is_narrow_float
from ansor.codegen.llvm.evaluation import rounded
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors
from ansor.dtypes import is_float
from ansor.errors import BuildError

_EXACT: Final = {"floor": "floor", "ceil": "ceil", "abs": "fabs"}
MAX_ULP: Final = {
    "exp": 1.2,
    "exp2": 1.1,
    "expm1": 1.6,
    "log": 0.9,
    "log2": 2.0,
    "log1p": 1.4,
    "tanh": 1.4,
    "sigmoid": 3.1,
    "erf": 1.4,
    "rsqrt": 1.5,
    "pow": 0.51,
    "sin": 1.6,
    "cos": 1.5,
    "tan": 3.8,
    "atan": 1.5,
    "sinh": 2.5,
    "cosh": 1.5,
}
"""Largest errors of the float32 functions, in units in the last place, rounded up; `sqrt`, `fma` and the
rounding functions are exact, the float64 functions stay below 4. By a table of roots, which AVX-512 machines
use, `exp` is within 1; without, `sigmoid` is within 2.5."""

_EITHER: Final[dict[str, Callable[..., Value]]] = {
    "rsqrt": powers.rsqrt,
    "pow": powers.power,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log1p": logarithm.log1p,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "atan": arctangent.atan,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "fma": lambda v, *args: v.intrinsic("fma", *args),
}

_SINGLE: Final[dict[str, Callable[..., Value]]] = {
    **_EITHER,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "tanh": saturating.tanh,
    "sigmoid": saturating.sigmoid,
    "erf": saturating.erf,
}

_DOUBLE: Final[dict[str, Callable[..., Value]]] = {
    **_EITHER,
    "exp": math64.exp,
    "exp2": math64.exp2,
    "expm1": math64.expm1,
    "tanh": math64.tanh,
    "sigmoid": math64.sigmoid,
    "erf": math64.erf,
}


def call(v: Vectors, name: str, args: list[Value], dtype: str) -> Value:
    """The intrinsic `name` of `ansor.te.expr.INTRINSICS` on register values of `dtype`."""
    if not is_float(dtype):
        if dtype.startswith("uint"):
            return args[0]
        return v.intrinsic("abs", args[0], extra="i1 false")
    if name in _EXACT:
        return v.intrinsic(_EXACT[name], args[0])
    if name == "round":
        return rounded(v, args[0])
    if name == "sqrt":
        return _narrowed(v, powers.sqrt(v, args[0]), dtype)
    table = _DOUBLE if dtype == "float64" else _SINGLE
    function = table.get(name)
    if function is None:
        raise BuildError(f"the LLVM back end has no intrinsic {name!r}; it has {', '.join(table)}")
    native = args[0].type
    result = function(v, *(v.convert("fpext", arg, "float") if native == "half" else arg for arg in args))
    return v.convert("fptrunc", result, "half") if native == "half" else _narrowed(v, result, dtype)


def _narrowed(v: Vectors, value: Value, dtype: str) -> Value:
    return halves.rounded(v, value, dtype) if is_narrow_float(dtype, v.machine) else value
