"""PoCL 3.0 on CPUs that are newer than it.

PoCL compiles for the CPU that its LLVM finds. Version 3.0, the one that pip installs, has an LLVM of 2022,
which calls a CPU that came later "generic"; its clang knows no CPU of that name and refuses every program.
Version 5 and later take a name from a variable (`POCL_LLVM_CPU_NAME`). This one keeps the name in its
description of the device. There the name of a CPU is put that it knows and whose instructions this one has,
or that of `ANSOR_POCL_CPU`. That is writing to another library's memory, so it is done only for this version,
and only where the description looks in every respect as it must.

Source: PoCL 3.0, `struct _cl_device_id` of lib/CL/pocl_cl.h, and `pocl_get_llvm_cpu_name`.
"""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, Final

from ansor.errors import TargetError
from ansor.knobs import POCL_CPU, pocl_cpu

PLATFORM: Final = "Portable Computing Language"
UNKNOWN: Final = "generic"
VERSION: Final = "3.0"

# Where things are in the description of a device, on x86-64 Linux: bytes from its start.
DESCRIPTION_BYTES: Final = 656
MAX_WORK_GROUP_SIZE: Final = 144
GLOBAL_MEM_SIZE: Final = 376
LOCAL_MEM_SIZE: Final = 416
VENDOR: Final = 560
DRIVER_VERSION: Final = 568
TRIPLE: Final = 632
CPU: Final = 640

_WORD: Final = ctypes.sizeof(ctypes.c_void_p)
_TEXT_BYTES: Final = 256
_KNOWN: Final[tuple[tuple[str, set[str]], ...]] = (
    ("skylake-avx512", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "clwb", "pku", "adx"}),
    ("haswell", {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"}),
    ("x86-64", set()),
)
"""CPUs by LLVM's name, the best first, each with flags (of the system) that tell its instructions."""


def name_cpu(device: Any) -> None:
    """Give PoCL a name that it knows for a CPU that it does not know.

    That is the one of `ANSOR_POCL_CPU`, else the best that `known_name` has. Any other device stays as it is.

    Parameters
    ----------
    device
        A device of pyopencl, of which there is no context yet.

    Raises
    ------
    TargetError
        If the variable holds no name, or the device's description is not as expected.
    """
    if not is_unknown(device):
        return
    name = pocl_cpu() or known_name(cpu_flags())
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise TargetError(f"{POCL_CPU}={name!r} is no name of a CPU; use e.g. {known_name(cpu_flags())}")
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            odd = list(_oddities(device, memory, name))
    except OSError as error:
        raise TargetError(
            f"PoCL {VERSION} does not know this CPU, and the system does not show its memory ({error}), "
            f"so that the name {name} cannot be put there; install a newer PoCL"
        ) from None
    if odd:
        raise TargetError(
            f"the description that PoCL {VERSION} has of {device.name} is not as expected: {'; '.join(odd)}; "
            f"the name {name}, which it knows, is not put there; install a newer PoCL"
        )
    libc = ctypes.CDLL(None)
    libc.strdup.restype = ctypes.c_void_p  # As PoCL allocates it.
    place = ctypes.c_void_p.from_address(int(device.int_ptr) + CPU)
    place.value = libc.strdup(name.encode()) or place.value


def is_unknown(device: Any) -> bool:
    """Whether a device is PoCL 3.0's, of an x86-64 CPU on Linux that has no name."""
    if device.platform.name != PLATFORM or platform.system() != "Linux":
        return False
    if not re.fullmatch(rf"{re.escape(VERSION)}(?![.\d]).*", str(device.driver_version).strip()):
        return False
    version = str(device.version)
    return "-x86_64-" in version and version.endswith(f"-{UNKNOWN}")


def known_name(flags: set[str]) -> str:
    """The best known CPU whose instructions one with these flags has."""
    return next(name for name, needed in _KNOWN if needed <= flags)


def cpu_flags(system: Path = Path("/proc/cpuinfo")) -> set[str]:
    """What the system says that its CPU can do, in its own words."""
    try:
        lines = system.read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


def _oddities(device: Any, memory: FileIO, name: str) -> Iterator[str]:
    """What in a device's description differs from what PoCL 3.0 would have there."""
    start = int(device.int_ptr)
    memory.seek(start)
    description = memory.read(DESCRIPTION_BYTES)
    if len(description) < DESCRIPTION_BYTES:
        yield f"it has {len(description)} bytes"
        return

    def word(offset: int) -> int:
        return int.from_bytes(description[offset : offset + _WORD], "little")

    numbers = {
        MAX_WORK_GROUP_SIZE: int(device.max_work_group_size),
        GLOBAL_MEM_SIZE: int(device.global_mem_size),
        LOCAL_MEM_SIZE: int(device.local_mem_size),
    }
    for offset, value in numbers.items():
        if word(offset) != value:
            yield f"at {offset} is {word(offset)}, not {value}"
    texts = {
        VENDOR: (str(device.vendor),),
        DRIVER_VERSION: (str(device.driver_version),),
        CPU: (UNKNOWN, name),
    }
    for offset, wanted in texts.items():
        found = _text(memory, word(offset))
        if found not in wanted:
            yield f"at {offset} is the text {found!r}, not {wanted[0]!r}"
    triple = _text(memory, word(TRIPLE))
    if triple is None or not triple.startswith("x86_64-"):
        yield f"at {TRIPLE} is the text {triple!r}, not that of a platform"


def _text(memory: FileIO, address: int) -> str | None:
    """The text at an address, read by the system so that nothing can fault; None if there is none."""
    try:
        memory.seek(address)
        found, end, _ = memory.read(_TEXT_BYTES).partition(b"\0")
    except (OSError, OverflowError, ValueError):  # No memory of this process is there.
        return None
    return found.decode(errors="replace") if end else None
