"""PoCL on CPUs that are newer than it.

PoCL compiles for the CPU that its LLVM finds. The one that pip installs (3.0) has one of 2022, which calls
a CPU that came later "generic"; its clang knows no CPU of that name and refuses every program. Later versions
take a name from a variable (`POCL_LLVM_CPU_NAME`). This one keeps the name in its description of the device,
where another is put here: that of a CPU it knows, all of whose instructions this one has.

Source: PoCL 3.0, `pocl_get_llvm_cpu_name` and `pocl_llvm_build_program`.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

PLATFORM: Final = "Portable Computing Language"
_UNKNOWN: Final = b"generic\0"
_DEVICE_BYTES: Final = 2048
"""As much of a device's description as is searched for the name."""

_KNOWN: Final[tuple[tuple[str, set[str]], ...]] = (
    ("skylake-avx512", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "clwb", "pku", "adx"}),
    ("haswell", {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"}),
    ("x86-64", set()),
)
"""CPUs by LLVM's name, the best first, each with flags (of the system) that tell its instructions."""


def name_cpu(device: Any) -> None:
    """Give PoCL a name for a CPU that it does not know; any other device stays as it is.

    Parameters
    ----------
    device
        A device of pyopencl, of which there is no context yet.
    """
    if not _is_unknown(device):
        return
    places = list(_places(int(device.int_ptr)))
    if len(places) == 1:
        libc = ctypes.CDLL(None)
        libc.strdup.restype = ctypes.c_void_p
        ctypes.c_void_p.from_address(places[0]).value = libc.strdup(known_name(cpu_flags()).encode())


def _is_unknown(device: Any) -> bool:
    """Whether a device is PoCL's and for an x86-64 CPU without a name; its version tells for which."""
    if device.platform.name != PLATFORM or platform.system() != "Linux":
        return False
    version = str(device.version)
    return "-x86_64-" in version and version.endswith("-generic")


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


def _places(start: int) -> Iterator[int]:
    """Addresses in a device's description that point to the name; read by the system, so none can fault."""
    word = ctypes.sizeof(ctypes.c_void_p)
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(start)
        description = memory.read(_DEVICE_BYTES)
        for offset in range(0, len(description) - word + 1, word):
            address = int.from_bytes(description[offset : offset + word], "little")
            try:
                memory.seek(address)
                if memory.read(len(_UNKNOWN)) == _UNKNOWN:
                    yield start + offset
            except (OSError, OverflowError, ValueError):  # No memory of this process is there.
                continue
