"""What a compiled function takes: the description that travels with its object code.

A `Signature` is plain data and has a JSON form. It is embedded in every object and library that is written,
so that a loaded module checks its arguments as strictly as a freshly built one. A dimension is an int, the
name of a symbolic size, or an operation on dimensions (`("mul", "n", 4)`); symbolic sizes are not arguments
that a caller passes: they are deduced from the shapes of the arrays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Union

from ansor.dtypes import dtype_info
from ansor.errors import ArgumentError, BuildError
from ansor.ir.nest import LoopNest
from ansor.runtime.names import unique
from ansor.te.expr import FOLDERS, Binary, BinaryOp, Cast, Const, Expr, Var

Dim = Union[int, str, tuple[str, "Dim", "Dim"]]

MARKER: Final = b"ansor-module-1 "
"""Starts the metadata in a file, so that it is found in any object format without reading symbol tables."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One array that a function takes; `output` arguments are written."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    output: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """A compiled function: its C symbol, arrays in calling order, symbolic sizes, and its machine.

    `name` is what the user called it; `threads` the upper limit of threads that its target asked for, if any.
    """

    name: str
    symbol: str
    arguments: tuple[Argument, ...]
    sizes: tuple[str, ...]
    triple: str
    cpu: str
    threads: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Describe it in JSON's types."""
        return {
            "name": self.name,
            "symbol": self.symbol,
            "arguments": [
                {
                    "name": argument.name,
                    "dtype": argument.dtype,
                    "shape": [_dim_to_json(dim) for dim in argument.shape],
                    "output": argument.output,
                }
                for argument in self.arguments
            ],
            "sizes": list(self.sizes),
            "triple": self.triple,
            "cpu": self.cpu,
            "threads": self.threads,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Signature:
        """Read what `to_json` wrote.

        Raises
        ------
        BuildError
            If a field is missing or malformed.
        """
        try:
            arguments = tuple(
                Argument(
                    str(entry["name"]),
                    dtype_info(entry["dtype"]).name,
                    tuple(_dim_from_json(dim) for dim in entry["shape"]),
                    bool(entry["output"]),
                )
                for entry in fields["arguments"]
            )
            threads = fields.get("threads")
            return cls(
                str(fields["name"]),
                str(fields["symbol"]),
                arguments,
                tuple(str(size) for size in fields["sizes"]),
                str(fields["triple"]),
                str(fields["cpu"]),
                None if threads is None else int(threads),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BuildError(f"the description of the module is malformed: {error!r}") from None

    @classmethod
    def of_nest(
        cls,
        nest: LoopNest,
        *,
        symbol: str,
        triple: str,
        cpu: str,
        name: str | None = None,
        threads: int | None = None,
    ) -> Signature:
        """Describe a lowered function as code generation will define it."""
        sizes = unique([size.name for size in nest.sizes])
        names = dict(zip(nest.sizes, sizes, strict=True))
        buffers = unique([buffer.name for buffer in nest.params])
        arguments = tuple(
            Argument(
                label,
                buffer.dtype,
                tuple(_dim_of(extent, names) for extent in buffer.shape),
                position in nest.outputs,
            )
            for position, (label, buffer) in enumerate(zip(buffers, nest.params, strict=True))
        )
        return cls(name or nest.name, symbol, arguments, sizes, triple, cpu, threads)

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if not argument.output)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.output)

    def metadata(self) -> bytes:
        """Encode the text that is embedded in object files, with its marker and a final zero."""
        return MARKER + json.dumps(self.to_json()).encode("ascii") + b"\0"

    def metadata_ir(self) -> str:
        """Write the constant `SYMBOL_ansor_metadata` that holds `metadata()`, as LLVM IR."""
        data = self.metadata()
        text = "".join(
            chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in data
        )
        return f'\n@{self.symbol}_ansor_metadata = constant [{len(data)} x i8] c"{text}", align 1\n'

    def __str__(self) -> str:
        arrays = [f"{a.name}: {describe(a)}{' (output)' if a.output else ''}" for a in self.arguments]
        return f"{self.name}({', '.join(arrays)})"


def find_metadata(data: bytes, place: str) -> Signature:
    """Find the metadata in the bytes of an object file or library.

    Raises
    ------
    BuildError
        If there is none, or more than one function (`place` names the file in the message).
    """
    found = re.findall(re.escape(MARKER) + rb"(\{[^\0]*\})\0", data)
    if not found:
        raise BuildError(f"{place} holds no ansor module; load what Module.save or export_library wrote")
    if len(found) > 1:
        raise BuildError(f"{place} holds {len(found)} ansor functions, expected one; keep one file for each")
    try:
        return Signature.from_json(json.loads(found[0]))
    except json.JSONDecodeError as error:
        raise BuildError(f"{place} holds a damaged description of its module: {error}") from None


def describe(argument: Argument) -> str:
    """Describe dtype and shape, e.g. ``float32[n, n*4]``."""
    return f"{argument.dtype}[{', '.join(format_dim(dim) for dim in argument.shape)}]"


_SIGNS: Final = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}


def format_dim(dim: Dim) -> str:
    """Write a dimension as people do."""
    if not isinstance(dim, tuple):
        return str(dim)
    op, a, b = dim
    left, right = (f"({format_dim(x)})" if isinstance(x, tuple) else str(x) for x in (a, b))
    return f"{left}{_SIGNS[op]}{right}" if op in _SIGNS else f"{op}({format_dim(a)}, {format_dim(b)})"


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """Compute a dimension; None while one of its sizes is unknown."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return sizes.get(dim)
    op, a, b = dim
    left, right = evaluate(a, sizes), evaluate(b, sizes)
    if left is None or right is None:
        return None
    if right == 0 and op in ("floordiv", "floormod", "truncdiv", "truncmod"):
        raise ArgumentError(f"the dimension {format_dim(dim)} divides by zero")
    return int(FOLDERS[BinaryOp(op)](left, right))


def solve(dim: Dim, value: int, sizes: dict[str, int]) -> None:
    """Deduce a size from `dim == value` where the form allows it, and add it to `sizes`.

    Only a size that occurs once and under additions, subtractions and products with known numbers is deduced;
    whether the equation holds is for the caller to check.
    """
    if isinstance(dim, str):
        sizes.setdefault(dim, value)
        return
    if isinstance(dim, int):
        return
    op, a, b = dim
    left, right = evaluate(a, sizes), evaluate(b, sizes)
    if right is not None and left is None:
        if op == "add":
            solve(a, value - right, sizes)
        elif op == "sub":
            solve(a, value + right, sizes)
        elif op == "mul" and right and value % right == 0:
            solve(a, value // right, sizes)
    elif left is not None and right is None:
        if op == "add":
            solve(b, value - left, sizes)
        elif op == "sub":
            solve(b, left - value, sizes)
        elif op == "mul" and left and value % left == 0:
            solve(b, value // left, sizes)


def _dim_of(extent: int | Expr, names: Mapping[Var, str]) -> Dim:
    match extent:
        case int():
            return extent
        case Const(value=value):
            return int(value)
        case Cast(a=a):
            return _dim_of(a, names)
        case Binary(op=op, a=a, b=b):
            return (str(op), _dim_of(a, names), _dim_of(b, names))
        case Var() if extent in names:
            return names[extent]
        case _:
            raise BuildError(f"the shape of a parameter holds `{extent}`, which the sizes do not define")


def _dim_to_json(dim: Dim) -> int | str | list[Any]:
    return [dim[0], _dim_to_json(dim[1]), _dim_to_json(dim[2])] if isinstance(dim, tuple) else dim


def _dim_from_json(value: Any) -> Dim:
    if isinstance(value, list):
        op, a, b = value
        return (str(BinaryOp(op)), _dim_from_json(a), _dim_from_json(b))
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"a dimension is an integer, a name or an operation, found {value!r}")
    return value
