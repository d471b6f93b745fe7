"""Shared libraries of programs for devices: called from C as those for CPUs are, and loaded again.

A library holds the kernels (OpenCL's as source, CUDA's as machine code for one architecture) and C that finds
the device, by the driver that it opens when it is called first. It needs libc, and nothing of ansor.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ansor.codegen.machine import Machine
from ansor.errors import BuildError
from ansor.runtime.device.build import compiled
from ansor.runtime.device.host_program import MARKER, host_program
from ansor.runtime.device.package import DevicePackage
from ansor.runtime.export import check_path, find_linker, link, write
from ansor.runtime.header import header

if TYPE_CHECKING:
    from ansor.runtime.device.module import DeviceModule

_OPTIONS: Final = ("-std=gnu11", "-O1", "-fPIC", "-fvisibility=hidden", "-shared")
_RESULT: Final = "int32_t"
_DECLARED: Final = """\
/* Why the last call of this thread failed. */
const char *{symbol}_error(void);
/* Chooses the device by its position, 0 being the first, until a call opens one; not 0 if it is too late. */
int32_t {symbol}_set_device(int32_t position);
"""
_NOTES: Final = {
    "opencl": """\
 * The function copies them to the device and back, and returns 0, or another number if it failed. The
 * device is the first that OpenCL shows, GPUs being before accelerators, and these before CPUs.
""",
    "cuda": """\
 * The function returns 0, or another number if it failed. It copies arrays to the GPU and back, but those
 * that lie in its memory, from a multiple of 16 bytes on, are used there, and those in another GPU's refused;
 * where all that are written do, work may go on, on the default stream, when it returns. The GPU is the first
 * that CUDA shows.
""",
}


def export_library(package: DevicePackage, path: Path, cc: str | None = None) -> DevicePackage:
    """
    Write a shared library and its header; see `DeviceModule.export_library`.

    Returns
    -------
    DevicePackage
        As it is in the library: for CUDA with its binary.

    Raises
    ------
    BuildError
        If the suffix is not that of a library, or a compiler is missing or fails.
    """
    check_path(path)
    whole = compiled(package)
    compiler = find_linker(Machine.host().triple, cc)
    with tempfile.TemporaryDirectory(prefix="ansor-") as folder:
        text = Path(folder, "host.c")
        write(text, host_program(whole).encode())
        link([*compiler, *_OPTIONS, "-o", str(path), str(text), "-ldl", "-pthread"], path)
    notes = _NOTES[package.kind]
    write(path.with_suffix(".h"), header(package.signature, _RESULT, notes, _DECLARED).encode())
    return whole


def module_in(data: bytes, place: str) -> DeviceModule:
    """
    Load the program that a library holds; it runs as one that is loaded from its own file.

    Raises
    ------
    BuildError
        If there is none; `place` names the library in the message.
    """
    from ansor.runtime.device.module import DeviceModule

    found = re.search(re.escape(MARKER) + rb"(\d+)\n", data)
    if found is None:
        raise BuildError(f"{place} holds no device program of ansor")
    return DeviceModule(DevicePackage.from_bytes(data[found.end() : found.end() + int(found[1])], place))
