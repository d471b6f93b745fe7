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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ansor.dtypes import dtype_info
from ansor.errors import BuildError
from ansor.ir.dims import Dim, dim_from_json, dim_of, dim_to_json, format_dim
from ansor.ir.nest import LoopNest
from ansor.runtime.names import unique

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

    `name` is what the user called it; `threads` the upper limit of threads that its target asked for, if any;
    `features` those of its CPU in LLVM's words, None if it is not known. `extents` are those that the sizes
    make of axes within and must not be negative, and which ones these are.
    """

    name: str
    symbol: str
    arguments: tuple[Argument, ...]
    sizes: tuple[str, ...]
    triple: str
    cpu: str
    threads: int | None = None
    features: str | None = None
    extents: tuple[tuple[str, Dim], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Describe it in JSON's types."""
        return {
            "name": self.name,
            "symbol": self.symbol,
            "arguments": [
                {
                    "name": argument.name,
                    "dtype": argument.dtype,
                    "shape": [dim_to_json(dim) for dim in argument.shape],
                    "output": argument.output,
                }
                for argument in self.arguments
            ],
            "sizes": list(self.sizes),
            "triple": self.triple,
            "cpu": self.cpu,
            "threads": self.threads,
            "features": self.features,
            "extents": [[what, dim_to_json(dim)] for what, dim in self.extents],
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
                    tuple(dim_from_json(dim) for dim in entry["shape"]),
                    bool(entry["output"]),
                )
                for entry in fields["arguments"]
            )
            threads, features = fields.get("threads"), fields.get("features")
            return cls(
                str(fields["name"]),
                str(fields["symbol"]),
                arguments,
                tuple(str(size) for size in fields["sizes"]),
                str(fields["triple"]),
                str(fields["cpu"]),
                None if threads is None else int(threads),
                None if features is None else str(features),
                tuple((str(what), dim_from_json(dim)) for what, dim in fields.get("extents", ())),
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
        features: str | None = None,
    ) -> Signature:
        """Describe a lowered function as code generation will define it."""
        sizes = unique([size.name for size in nest.sizes])
        names = dict(zip(nest.sizes, sizes, strict=True))
        buffers = unique([buffer.name for buffer in nest.params])
        arguments = tuple(
            Argument(
                label,
                buffer.dtype,
                tuple(dim_of(x, names, f"the shape of parameter {label!r}") for x in buffer.shape),
                position in nest.outputs,
            )
            for position, (label, buffer) in enumerate(zip(buffers, nest.params, strict=True))
        )
        extents: list[tuple[str, Dim]] = []
        for what, extent in nest.extents:
            with suppress(BuildError):  # Of choices, say: they are for the user to keep in order.
                extents.append((what, dim_of(extent, names, what)))
        title, made = name or nest.name, tuple(extents)
        return cls(title, symbol, arguments, sizes, triple, cpu, threads, features, made)

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
