"""Facts about the machine that a program will run on.

Two tables, because they have two readers. `HardwareParams` holds the eight numbers that every log record
carries, under the reference's names. `MachineModel` holds what a cost model or a planner of register tiles
wants to know and no record has: cache sizes and ways, the vector register file, and how many multiply-adds
start at once.

This machine's figures come from the system: cores from the scheduling affinity and the control group's
CPU quota, the vector width from the CPU features that LLVM sees, caches from `/sys`. Another machine's
(a cross target) come from the CPU's name, and where that says nothing from the architecture. No system tells
how many multiply-adds start in a cycle: of CPUs whose names are known that is a table, so that it is the same
in every run; of others it is not known here, and `ansor.runtime.multiply_adds` measures this machine's.
"""

from __future__ import annotations

import math
import os
import platform
import re
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from ansor.checks import check_number
from ansor.errors import DefinitionError, TargetError
from ansor.knobs import num_threads
from ansor.task.device import block_shared_bytes
from ansor.task.target import Target

INT32_MAX: Final = 2**31 - 1
_LIMITS: Final = (
    "vector_unit_bytes",
    "max_shared_memory_per_block",
    "max_local_memory_per_block",
    "max_threads_per_block",
    "max_vthread_extent",
)

_AVX512_CPUS = re.compile(
    r"skylake-avx512|cascadelake|cooperlake|cannonlake|icelake|tigerlake|rocketlake|sapphirerapids|emeraldrapids"
    r"|graniterapids|diamondrapids|knl|knm|znver[4-9]|x86-64-v4"
)
_AVX_CPUS = re.compile(
    r"haswell|broadwell|skylake|core-avx|sandybridge|ivybridge|alderlake|raptorlake|meteorlake|arrowlake|lunarlake"
    r"|gracemont|sierraforest|grandridge|bdver|btver2|znver|x86-64-v3"
)

_X86: Final = frozenset(("x86_64", "i386", "i686"))
_AVX_NEEDS: Final = frozenset(("sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "avx"))
"""Features without which there are vectors of 16 bytes only."""
_AVX512_NEEDS: Final = frozenset(("avx2", "fma", "f16c", "avx512f"))
"""Features without which there are none of 64 bytes."""

_ONE_FULL_WIDTH_FMA = re.compile(
    r"znver4|icelake-client|tigerlake|rocketlake|cannonlake|znver1|bdver|btver2|sandybridge|ivybridge"
)
"""CPUs that start one multiply-add of their widest vectors per cycle, or two operations that are as much.

Source: the vendors' optimization guides; https://uops.info.
"""
_HALF_AS_WIDE = re.compile(r"znver4|icelake-client|tigerlake|rocketlake|cannonlake")
"""Of these the ones that start two of half that width."""
_TWO_FMAS = re.compile(
    r"haswell|broadwell|skylake|cascadelake|cooperlake|icelake-server|sapphirerapids|emeraldrapids|graniterapids"
    r"|alderlake|raptorlake|meteorlake|arrowlake|lunarlake|knl|knm|znver[235]|neoverse-n[12]"
)
"""CPUs that start two."""


@dataclass(frozen=True, slots=True)
class HardwareParams:
    """The hardware description that log records carry; for a CPU the GPU fields are 0.

    `num_cores` is -1 for a GPU, of which a field that is 0 is not known. Sizes are in bytes,
    `max_vthread_extent` and `warp_size` in threads.
    """

    num_cores: int
    vector_unit_bytes: int = 64
    cache_line_bytes: int = 64
    max_shared_memory_per_block: int = 0
    max_local_memory_per_block: int = 0
    max_threads_per_block: int = 0
    max_vthread_extent: int = 0
    warp_size: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            low = -1 if name == "num_cores" else 0
            check_number(f"HardwareParams({name})", getattr(self, name), low=low, integer=True)
        if self.num_cores == 0:
            raise DefinitionError(
                "HardwareParams(num_cores=0): a CPU has at least 1 core; -1 stands for a GPU"
            )

    @classmethod
    def for_target(cls, target: Target) -> HardwareParams:
        """Return the defaults of a target: its own options first, then what is known of the machine.

        Raises
        ------
        TargetError
            If the kind has no hardware description.
        """
        if not target.is_gpu:
            return cls(
                num_cores=target.num_cores or default_num_threads(),
                vector_unit_bytes=vector_bytes(target),
                cache_line_bytes=host_cache_line() if is_host(target) else 64,
            )
        return _gpu_params(target)

    @property
    def limits(self) -> HardwareParams:
        """The same with limits that are not known out of reach."""
        unknown = dict.fromkeys((name for name in _LIMITS if not getattr(self, name)), INT32_MAX)
        return replace(self, **unknown) if unknown else self

    def to_json(self) -> list[int]:
        """Return the eight numbers in record order."""
        return list(astuple(self))

    @classmethod
    def from_json(cls, values: list[int]) -> HardwareParams:
        """Invert `to_json`.

        Raises
        ------
        TargetError
            If there are not eight integers.
        """
        if len(values) != 8 or not all(isinstance(value, int) for value in values):
            raise TargetError(f"hardware parameters are 8 integers, found {values!r}")
        return cls(*values)


@dataclass(frozen=True, slots=True)
class MachineModel:
    """Caches and vector units of one CPU core; sizes in bytes, 0 where a level does not exist.

    `l3_sharers` is the number of cores that share one L3; `fma_ports` that of multiply-adds of whole vectors
    which start in one cycle, 0 where the CPU's name does not tell.
    """

    vector_bytes: int = 32
    vector_registers: int = 16
    l1_bytes: int = 32 * 1024
    l1_ways: int = 8
    l2_bytes: int = 1024 * 1024
    l2_ways: int = 8
    l3_bytes: int = 8 * 1024 * 1024
    l3_ways: int = 16
    l3_sharers: int = 1
    fma_ports: int = 2

    @classmethod
    def for_target(cls, target: Target) -> MachineModel:
        """Return this machine's model when the target is this machine, else one typical of its kind.

        The core of a GPU is a multiprocessor, whose threads have vectors of 16 bytes.
        """
        if target.is_gpu:
            return _MULTIPROCESSOR
        width = vector_bytes(target)
        registers = vector_registers(target)
        caches = host_caches() if is_host(target) else {}
        ports = fma_ports(_cpu_name(target), width)
        return cls(vector_bytes=width, vector_registers=registers, fma_ports=ports, **caches)


_MULTIPROCESSOR: Final = MachineModel(
    vector_bytes=16,
    vector_registers=64,
    l1_bytes=128 * 1024,
    l1_ways=4,
    l2_bytes=0,
    l2_ways=0,
    l3_bytes=1 << 25,
)


def is_host(target: Target) -> bool:
    """Whether code for the target can run in this process, as far as the triple's architecture tells."""
    return target.mtriple is None or architecture(target) == _machine()


def architecture(target: Target) -> str:
    """Return the triple's first word, "x86_64", "aarch64", ..., in one spelling (default: the host's)."""
    return architecture_of(target.mtriple)


def architecture_of(triple: str | None) -> str:
    """Architecture of an LLVM triple, or of its first word; without one, this machine's."""
    return _normal(triple.partition("-")[0]) if triple else _machine()


def _machine() -> str:
    return _normal(platform.machine())


def _normal(name: str) -> str:
    lowered = name.lower()
    return {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}.get(lowered, lowered)


def vector_bytes(target: Target) -> int:
    """Width in bytes of the widest vector register that code for the target may use."""
    if architecture(target) not in _X86:
        return 16
    width = _x86_bytes_by_name(target.mcpu) if target.mcpu or not is_host(target) else host_vector_bytes()
    for feature in target.mattr:
        name, on = feature[1:], feature[0] == "+"
        if on and name.startswith(("avx512", "avx10")):
            width = 64
        elif on and name.startswith(("avx", "fma", "f16c", "xop", "vaes")):
            width = max(width, 32)
        elif not on and name in _AVX_NEEDS:
            width = 16
        elif not on and name in _AVX512_NEEDS:
            width = min(width, 32)
    return width


def vector_registers(target: Target) -> int:
    """How many vector registers code for the target may use."""
    return 16 if architecture(target) in _X86 and vector_bytes(target) < 64 else 32


def _cpu_name(target: Target) -> str:
    """The CPU that a target names, this machine's if it names none; empty if another machine's is unknown."""
    if target.mcpu and target.mcpu != "native":
        return target.mcpu
    if not is_host(target):
        return ""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


def fma_ports(cpu: str, vector_bytes: int) -> int:
    """Multiply-adds of vectors of so many bytes that a CPU, by LLVM's name for it, starts in one cycle.

    0 if the name is not known.
    """
    if _ONE_FULL_WIDTH_FMA.search(cpu):
        return 2 if _HALF_AS_WIDE.search(cpu) and vector_bytes < 64 else 1
    return 2 if _TWO_FMAS.search(cpu) else 0


def _x86_bytes_by_name(cpu: str | None) -> int:
    if cpu == "native":
        return host_vector_bytes()
    if cpu and _AVX512_CPUS.search(cpu):
        return 64
    return 32 if cpu and _AVX_CPUS.search(cpu) else 16


@cache
def host_vector_bytes() -> int:
    """Vector width in bytes of this machine's CPU, from the features that LLVM detects."""
    if _machine() not in _X86:
        return 16
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    return 32 if features.get("avx") else 16


def default_num_threads() -> int:
    """Threads of a parallel loop unless told otherwise: `ANSOR_NUM_THREADS`, else `available_cores()`.

    Raises
    ------
    TargetError
        If the variable is set to something other than a positive integer.
    """
    return num_threads() or available_cores()


def available_cores() -> int:
    """Cores that this process may keep busy: its affinity, limited by the control groups' CPU quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, min(cores, math.ceil(quota))) if quota is not None else cores


def cgroup_quota(groups: str | None = None, root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """CPUs' worth of time that the control groups (v2 or v1) of this process grant; None without a limit.

    `groups` is the text of `/proc/self/cgroup`; the tightest limit on the path to the root counts.
    """
    if groups is None:
        try:
            groups = Path("/proc/self/cgroup").read_text()
        except OSError:
            return None
    limits: list[float] = []
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base = root
        elif "cpu" in controllers.split(","):
            base = next(
                (root / name for name in (controllers, "cpu") if (root / name).is_dir()), root / "cpu"
            )
        else:
            continue
        place = base / path.strip("/")
        while True:
            limit = _quota_at(place)
            if limit is not None:
                limits.append(limit)
            if place == base or base not in place.parents:
                break
            place = place.parent
    return min(limits, default=None)


def _quota_at(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return None if quota == "max" or int(quota) <= 0 else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def host_caches(root: Path = Path("/sys/devices/system/cpu")) -> dict[str, int]:
    """`MachineModel` fields of this machine's data caches, as far as the system tells them."""
    found: dict[str, int] = {}
    for index in sorted(root.glob("cpu0/cache/index*")):
        try:
            facts = {
                name: (index / name).read_text().strip()
                for name in ("level", "type", "size", "ways_of_associativity", "shared_cpu_list")
            }
            level = int(facts["level"])
            if facts["type"] == "Instruction" or level > 3:
                continue
            found[f"l{level}_bytes"] = _size(facts["size"])
            found[f"l{level}_ways"] = int(facts["ways_of_associativity"])
            if level == 3:
                found["l3_sharers"] = _count_cpus(facts["shared_cpu_list"])
        except (OSError, ValueError):
            continue
    if found and "l3_bytes" not in found:
        found |= {"l3_bytes": 0, "l3_ways": 0}
    return found


def host_cache_line(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Bytes of a line of this machine's first data cache; 64 if the system does not tell."""
    try:
        return int((root / "cpu0/cache/index0/coherency_line_size").read_text())
    except (OSError, ValueError):
        return 64


def _size(text: str) -> int:
    unit = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


def _count_cpus(text: str) -> int:
    """Count the CPUs in a list such as ``0-3,8``."""
    spans = (part.partition("-") for part in text.split(","))
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)


def _gpu_params(target: Target) -> HardwareParams:
    def attr(name: str, default: int) -> int:
        value = target.attrs.get(name)
        return value if isinstance(value, int) else default

    threads = attr("max_threads_per_block", attr("max_num_threads", 1024))
    shared = attr("max_shared_memory_per_block", block_shared_bytes(target))
    local = attr("max_local_memory_per_block", INT32_MAX)
    warp = attr("thread_warp_size", 32)
    device = target.device or ""
    if target.kind == "metal":
        return HardwareParams(-1, 16, 64, 32768, INT32_MAX, 1024, 2, 8)
    if target.kind == "opencl" and "mali" in (device, *target.keys):
        return HardwareParams(-1, 16, 64, 32768, INT32_MAX, 256, 1, 1)
    if target.kind == "opencl" and "adreno" in (device, *target.keys):
        return HardwareParams(-1, 16, 64, 32768, 32768, 256, 1, 1)
    return HardwareParams(-1, 16, 64, shared, local, threads, max(1, warp // 4), warp)
