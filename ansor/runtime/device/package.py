"""What a compiled device program is: source, binary, and how its kernels are launched.

A `DevicePackage` is plain data. It travels from builder to runner, and to a file, as the bytes of a zip
archive, which shows its members to any tool: `package.json`, the source, and the binary if there is one.
Extents are dimensions as in a signature, so that symbolic sizes are known only when the program is called.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from ansor.codegen.c.launches import PARAM, SCRATCH, Launch
from ansor.dtypes import dtype_info
from ansor.errors import BuildError
from ansor.ir.dims import Dim, dim_from_json, dim_to_json, evaluate
from ansor.runtime.signature import Signature

FORMAT: Final = "ansor-device-1"
_HEADER: Final = "package.json"
_SOURCES: Final = {"opencl": "program.cl", "cuda": "program.cu"}
_BINARY: Final = "program.cubin"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,  # of an archive that is encrypted, or packed in a way unknown here
    TypeError,
    ValueError,
)
"""What reading an archive raises that is damaged, or is another."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory of the device that kernels hand values on by; nobody else sees it."""

    dtype: str
    shape: tuple[Dim, ...]

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": [dim_to_json(dim) for dim in self.shape]}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Scratch:
        """Read what `to_json` wrote; a KeyError, TypeError or ValueError for anything else."""
        return cls(dtype_info(fields["dtype"]).name, tuple(dim_from_json(dim) for dim in fields["shape"]))

    def size_bytes(self, sizes: Mapping[str, int]) -> int:
        """How large it is for these symbolic sizes."""
        return dtype_info(self.dtype).bytes * prod(extent(dim, sizes) for dim in self.shape)


@dataclass(frozen=True, slots=True)
class DevicePackage:
    """A program for a kind of device.

    Attributes
    ----------
    kind
        "opencl" or "cuda".
    signature
        What the whole program takes.
    source
        Its kernels.
    launches
        How they are launched, in order.
    shared_bytes
        What a block of each launch takes of shared memory.
    scratch
        Memory between kernels.
    arch
        What `binary` is, or would be, compiled for ("sm_90").
    binary
        The compiled kernels; None if they are compiled where they run.
    """

    kind: str
    signature: Signature
    source: str
    launches: tuple[Launch, ...]
    shared_bytes: tuple[int, ...]
    scratch: tuple[Scratch, ...] = ()
    arch: str = ""
    binary: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        """All but source and binary."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "arch": self.arch,
            "signature": self.signature.to_json(),
            "launches": [launch.to_json() for launch in self.launches],
            "shared_bytes": list(self.shared_bytes),
            "scratch": [one.to_json() for one in self.scratch],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], source: str, binary: bytes | None = None) -> DevicePackage:
        """Read what `to_json` wrote.

        Raises
        ------
        BuildError
            If it is something else.
        """
        try:
            if fields["format"] != FORMAT or fields["kind"] not in _SOURCES:
                raise ValueError(f"its format is {fields['format']!r} for {fields['kind']!r}, not {FORMAT!r}")
            made = cls(
                str(fields["kind"]),
                Signature.from_json(fields["signature"]),
                source,
                tuple(Launch.from_json(one) for one in fields["launches"]),
                tuple(int(size) for size in fields["shared_bytes"]),
                tuple(Scratch.from_json(one) for one in fields["scratch"]),
                str(fields["arch"]),
                binary,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BuildError(f"the description of the device program is malformed: {error!r}") from None
        _check_positions(made)
        return made

    def to_bytes(self) -> bytes:
        """Pack everything; equal packages give equal bytes."""
        members: list[tuple[str, bytes]] = [
            (_HEADER, json.dumps(self.to_json(), indent=1).encode()),
            (_SOURCES[self.kind], self.source.encode()),
        ]
        if self.binary is not None:
            members.append((_BINARY, self.binary))
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in members:
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, place: str = "the package") -> DevicePackage:
        """Unpack what `to_bytes` packed.

        Raises
        ------
        BuildError
            If it is something else; `place` names it in the message.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                fields = json.loads(archive.read(_HEADER))
                source = archive.read(_SOURCES[fields["kind"]]).decode()
                binary = archive.read(_BINARY) if _BINARY in archive.namelist() else None
        except _DAMAGE as error:
            raise BuildError(f"{place} holds no device program of ansor: {error}") from None
        return cls.from_json(fields, source, binary)


def extent(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The value of a dimension, all of whose sizes are known; at least 0."""
    value = evaluate(dim, sizes)
    if value is None:
        raise BuildError(f"the extent {dim!r} of the device program depends on a size that it does not have")
    return max(0, value)


def _check_positions(package: DevicePackage) -> None:
    """Refuse launches that name what is not there."""
    counts = {PARAM: len(package.signature.arguments), SCRATCH: len(package.scratch)}
    if len(package.launches) != len(package.shared_bytes):
        raise BuildError(
            f"the description of the device program is malformed: {len(package.launches)} launches, and "
            f"shared memory of {len(package.shared_bytes)}"
        )
    for launch in package.launches:
        for kind, position in launch.arguments:
            count = counts.get(kind, len(package.signature.sizes))
            if not 0 <= position < count:
                raise BuildError(f"{launch.kernel} takes the {kind} {position} of {count}")
