"""`HardwareParams`: the machine that a program will run on, as the search is told of it.

The first eight numbers are those that every log record carries, under TVM's names. The others,
caches, vector registers, and how many multiply-adds start at once, are in no record: a task takes from its
target what it is not told.

This machine's figures come from the system: cores from the scheduling affinity and the control group's
CPU quota, the vector width from the CPU features that LLVM sees, caches from `/sys`. The vectors of another
machine (a cross target) come from the CPU's name, and where that says nothing from the architecture; its
caches are taken to be usual ones if the architecture is another. No system tells
how many multiply-adds start in a cycle: of CPUs whose names are known that is a table, so that it is the same
in every run; of others it is not known here, and `ansor.runtime.multiply_adds` measures this machine's.
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from ansor.checks import check_fields, check_integer
from ansor.errors import DefinitionError, TargetError
from ansor.knobs import num_threads
from ansor.task.device import block_shared_bytes
from ansor.task.target import Target

UNSAID: Final = -1
"""What a field of `HardwareParams` is that the target shall tell."""
INT32_MAX: Final = 2**31 - 1
_OF_BLOCKS: Final = (
    "max_shared_memory_per_block",
    "max_local_memory_per_block",
    "max_threads_per_block",
    "max_vthread_extent",
    "warp_size",
)
_OUT_OF_REACH: Final = {"vector_unit_bytes": 1 << 30, **dict.fromkeys(_OF_BLOCKS[:-1], INT32_MAX)}
_TYPICAL: Final = {"l1_bytes": 32 << 10, "l1_ways": 8, "l2_bytes": 1 << 20, "l3_bytes": 8 << 20}
"""Caches of another machine's core, and of this one's where the system does not tell."""
_MULTIPROCESSOR: Final = {"l1_bytes": 128 << 10, "l1_ways": 4, "l2_bytes": 0, "l3_bytes": 32 << 20}
"""Of a GPU, as a core."""
_GPU_VECTOR_BYTES: Final = 16
"""Of what a thread loads or stores at once."""


class _Blocks(NamedTuple):
    """What a block of a GPU may take, in bytes and threads, where a target does not say."""

    shared: int
    local: int = INT32_MAX
    threads: int = 1024
    warp: int = 32


_BLOCKS_OF_KINDS: Final = {"metal": _Blocks(32768, warp=8)}
_BLOCKS_OF_DEVICES: Final = {
    "mali": _Blocks(32768, threads=256, warp=1),
    "adreno": _Blocks(32768, 32768, threads=256, warp=1),
}
"""Of OpenCL."""

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


_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_RECORDED: Final = 8
"""How many fields of `HardwareParams` records have; they are the first."""
_POWERS: Final = ("vector_unit_bytes", "cache_line_bytes")
_LEAST_WIDTH: Final = 4
_CACHES: Final = ("l1_bytes", "l2_bytes", "l3_bytes")
_LEVELS: Final = range(1, 1 + len(_CACHES))
_LEAST_CACHE: Final = 1024
"""Bytes of the smallest cache that anybody means; a smaller number is one of KiB or MiB."""


@dataclass(frozen=True, slots=True)
class HardwareParams:
    """
    The machine as the search is told of it: its cores, and what one of them has.

    A field that is not given (`UNSAID`) is that of the target: `SearchTask` fills it in. To tell a search of
    another machine's caches: ``replace(HardwareParams.for_target(target), l2_bytes=512 << 10)``.

    Parameters
    ----------
    num_cores
        Cores that programs may use; -1 for a GPU.
    vector_unit_bytes
        Width of a vector [bytes], in which rules count lanes, a power of two; 0 if not known. Vectors of
        programs are as wide as the target's instructions, whatever this says: TVM's records say 64 always.
    cache_line_bytes
        Of a line of the caches [bytes], a power of two; 0 if not known.
    max_shared_memory_per_block, max_local_memory_per_block
        What a block of a GPU may take [bytes]; 0 if not known, and for a CPU.
    max_threads_per_block, max_vthread_extent, warp_size
        Threads of a GPU; 0 if not known, and for a CPU.
    vector_registers
        How many vectors a core holds. Code has the registers of its target and no others, so that a task
        refuses another number; name the CPU in the target to change it.
    l1_bytes, l2_bytes, l3_bytes
        Data caches [bytes] that a core reaches, the second its own, the third with others; 0 for none. No one
        is smaller than the one before it.
    l1_ways
        Associativity of the first cache; 0 if an address does not tell its set.
    fma_ports
        Multiply-adds of whole vectors that start in one cycle; 0 if not known, then `AnalyticModel` measures
        this machine's.

    Raises
    ------
    DefinitionError
        If a number is none, or out of range.
    """

    num_cores: int
    vector_unit_bytes: int = UNSAID
    cache_line_bytes: int = UNSAID
    max_shared_memory_per_block: int = 0
    max_local_memory_per_block: int = 0
    max_threads_per_block: int = 0
    max_vthread_extent: int = 0
    warp_size: int = 0
    vector_registers: int = UNSAID
    l1_bytes: int = UNSAID
    l1_ways: int = UNSAID
    l2_bytes: int = UNSAID
    l3_bytes: int = UNSAID
    fma_ports: int = UNSAID

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_fields(self, name, low=0 if name in _OF_BLOCKS else UNSAID, check=check_integer)
        if self.num_cores == 0:
            raise DefinitionError(
                "HardwareParams(num_cores=0): a CPU has at least 1 core; -1 stands for a GPU"
            )
        for name in _POWERS:
            value = getattr(self, name)
            if not _is_width(value):
                raise DefinitionError(
                    f"HardwareParams({name}={value}): must be a power of two of at least {_LEAST_WIDTH} "
                    "bytes; 0 stands for not known"
                )
        if self.vector_registers in (0, 1):
            raise DefinitionError(
                f"HardwareParams(vector_registers={self.vector_registers}): a core holds at least 2 vectors; "
                "leave them out for those of the target"
            )
        self._check_caches()

    def _check_caches(self) -> None:
        before = ""
        for name in _CACHES:
            size = getattr(self, name)
            if 0 < size < _LEAST_CACHE:
                raise DefinitionError(
                    f"HardwareParams({name}={size}): caches are given in bytes, such as "
                    "32 << 10 for 32 KiB; 0 stands for none"
                )
            if before and 0 < size < getattr(self, before):
                raise DefinitionError(
                    f"HardwareParams({before}={getattr(self, before)}, {name}={size}): a cache must be "
                    "at least as large as the one before it; 0 stands for none"
                )
            before = name if size > 0 else before

    @classmethod
    def for_target(cls, target: Target | str) -> HardwareParams:
        """Return the defaults of a target: its own options first, then what is known of the machine.

        Raises
        ------
        TargetError
            If the target is malformed, or `ANSOR_NUM_THREADS` says no number of threads (`ansor.knobs`).
        """
        target = Target(target)
        known = _known(target, target.stated)
        cores = known.num_cores if target.is_gpu else target.num_cores or default_num_threads()
        return replace(known, num_cores=cores)

    def completed(self, target: Target) -> HardwareParams:
        """
        Return the same with what is not said filled in from the target.

        Raises
        ------
        DefinitionError
            If `vector_registers` are not those that code for the target has, or a cache is larger than the
            target's next one.
        """
        known = _known(target, target.stated)
        if self.vector_registers not in (UNSAID, known.vector_registers):
            raise DefinitionError(
                f"HardwareParams(vector_registers={self.vector_registers}): code for `{target}` has "
                f"{known.vector_registers}; leave them out, and name a CPU that has others (-mcpu)"
            )
        unsaid = [name for name in self.__slots__[1:] if getattr(self, name) == UNSAID]
        return replace(self, **{name: getattr(known, name) for name in unsaid}) if unsaid else self

    @property
    def limits(self) -> HardwareParams:
        """The same with limits that are not known out of reach."""
        unknown = {name: limit for name, limit in _OUT_OF_REACH.items() if getattr(self, name) <= 0}
        return replace(self, **unknown) if unknown else self

    @property
    def cache_bytes(self) -> tuple[int, int, int]:
        """Bytes of the three levels; one that does not exist is as large as the one before."""
        second = max(self.l1_bytes, self.l2_bytes)
        return self.l1_bytes, second, max(second, self.l3_bytes)

    def to_json(self) -> list[int]:
        """Return the eight numbers in record order."""
        return list(astuple(self)[:_RECORDED])

    @classmethod
    def from_json(cls, values: list[int], target: Target) -> HardwareParams:
        """Invert `to_json`; what no record has is that of the target.

        So are widths that no machine has: the program was measured all the same, whatever its record says.

        Raises
        ------
        TargetError
            If there are not eight integers.
        """
        if len(values) != _RECORDED or not all(isinstance(value, int) for value in values):
            raise TargetError(f"hardware parameters are 8 integers, found {values!r}")
        told = dict(zip(cls.__slots__, values, strict=False))
        known = {name: value for name, value in told.items() if name not in _POWERS or _is_width(value)}
        return cls(**known).completed(target)


def _is_width(value: int) -> bool:
    """Whether so many bytes may be a vector or a cache line, or say that it is not known."""
    return value in (UNSAID, 0) or (value >= _LEAST_WIDTH and value & (value - 1) == 0)


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
    if target.is_gpu:
        return _GPU_VECTOR_BYTES
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


def _registers(target: Target) -> int:
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
        If the variable says no number of threads (`ansor.knobs`).
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
            groups = os.fsdecode(_OWN_GROUPS.read_bytes())
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
        granted, each = int(quota), int(period)
    except (OSError, ValueError):  # a quota of "max", too
        return None
    return granted / each if granted > 0 and each > 0 else None


@cache
def host_caches(root: Path = Path("/sys/devices/system/cpu")) -> Mapping[str, int]:
    """`HardwareParams` fields of this machine's data caches, as far as the system tells them."""
    found: dict[str, int] = {}
    for index in sorted(root.glob("cpu0/cache/index*")):
        try:
            facts = {name: (index / name).read_text().strip() for name in ("level", "type", "size")}
            level, size = int(facts["level"]), _size(facts["size"])
            if facts["type"] == "Instruction" or level not in _LEVELS or size < _LEAST_CACHE:
                continue
            found[f"l{level}_bytes"] = size
            if level == 1 and (ways := int((index / "ways_of_associativity").read_text())) >= 0:
                found["l1_ways"] = ways
        except (OSError, ValueError):
            continue
    if found:
        found.setdefault("l3_bytes", 0)
    return found


def host_cache_line(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Bytes of a line of this machine's first data cache; 64 if the system does not tell, or nonsense."""
    try:
        size = int((root / "cpu0/cache/index0/coherency_line_size").read_text())
    except (OSError, ValueError):
        return 64
    return size if size > 0 and _is_width(size) else 64


def _size(text: str) -> int:
    unit = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


@lru_cache(maxsize=64)  # A log asks the same question once a line.
def _known(target: Target, stated: frozenset[str]) -> HardwareParams:
    """What is known of a target's machine but for its cores, of which this says 1.

    Equal targets may differ in what is stated.
    """
    if target.is_gpu:
        return replace(_gpu_params(target, stated), vector_registers=64, fma_ports=2, **_MULTIPROCESSOR)
    width, here = vector_bytes(target), is_host(target)
    return HardwareParams(
        num_cores=1,
        vector_unit_bytes=width,
        cache_line_bytes=host_cache_line() if here else 64,
        vector_registers=_registers(target),
        fma_ports=fma_ports(_cpu_name(target), width),
        **_growing({**_TYPICAL, **(host_caches() if here else {})}),
    )


def _growing(caches: dict[str, int]) -> dict[str, int]:
    """The same with no cache smaller than the one before it, whatever a virtual machine says of its own."""
    largest = 0
    for name in _CACHES:
        largest = max(largest, caches[name])
        caches[name] = caches[name] and largest
    return caches


def _gpu_params(target: Target, stated: frozenset[str]) -> HardwareParams:
    """What blocks may take: what the target says, and for the rest what is known of its device.

    Of a device that is known what its kind has by default does not count.
    """
    known = _known_gpu(target)

    def attr(name: str, default: int) -> int:
        value = target.attrs.get(name)
        return value if isinstance(value, int) and (known is None or name in stated) else default

    default = known or _Blocks(block_shared_bytes(target))
    threads = attr("max_threads_per_block", attr("max_num_threads", default.threads))
    shared = attr("max_shared_memory_per_block", default.shared)
    local = attr("max_local_memory_per_block", default.local)
    warp = attr("thread_warp_size", default.warp)
    return HardwareParams(-1, 16, 64, shared, local, threads, max(1, warp // 4), warp)


def _known_gpu(target: Target) -> _Blocks | None:
    """What blocks of a GPU may take that is known by its kind or device."""
    if target.kind != "opencl":
        return _BLOCKS_OF_KINDS.get(target.kind)
    names = (target.device, *target.keys)
    return next((blocks for name, blocks in _BLOCKS_OF_DEVICES.items() if name in names), None)
