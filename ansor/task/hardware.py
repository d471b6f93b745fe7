"""`HardwareParams`: the machine that a program will run on, as the search is told of it.

The first eight numbers are those that every log record carries, under TVM's names. The others,
caches, vector registers, and how many multiply-adds start at once, are in no record: a task takes from its
target what it is not told.

What a target's instructions are tells `ansor.task.isa`, what this machine's system says `ansor.task.host`.
The caches of another machine are taken to be usual ones if its architecture is another.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import cache, lru_cache
from typing import Final, NamedTuple

from ansor.checks import check_fields, check_integer
from ansor.errors import DefinitionError, TargetError
from ansor.task.device import block_shared_bytes
from ansor.task.host import (
    LEAST_CACHE,
    LEAST_WIDTH,
    default_num_threads,
    host_cache_line,
    host_caches,
    is_width,
)
from ansor.task.isa import cpu_name, fma_ports, is_host, vector_bytes, vector_registers
from ansor.task.target import Target

_note = logging.getLogger(__name__)

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
"""Caches of a core of another architecture, and of this machine's where the system does not tell."""
_MULTIPROCESSOR: Final = {"l1_bytes": 128 << 10, "l1_ways": 4, "l2_bytes": 0, "l3_bytes": 32 << 20}
"""Of a GPU, as a core."""


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

_RECORDED: Final = 8
"""How many fields of `HardwareParams` records have; they are the first."""
_POWERS: Final = ("vector_unit_bytes", "cache_line_bytes")
_CACHES: Final = ("l1_bytes", "l2_bytes", "l3_bytes")


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
                    f"HardwareParams({name}={value}): must be a power of two of at least {LEAST_WIDTH} "
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
            if 0 < size < LEAST_CACHE:
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

        As many cores as parallel loops have threads: `ansor.set_num_threads` counts.

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
    return value in (UNSAID, 0) or is_width(value)


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
        vector_registers=vector_registers(target),
        fma_ports=fma_ports(cpu_name(target), width),
        **_growing({**_TYPICAL, **(_caches_here() if here else {})}),
    )


def _caches_here() -> Mapping[str, int]:
    """What the system tells of this machine's caches; if nothing, a warning says what is taken instead."""
    if not (found := host_caches()):
        _warn_of_no_caches()
    return found


@cache
def _warn_of_no_caches() -> None:
    taken = ", ".join(f"{name}={_TYPICAL[name]}" for name in _CACHES)
    _note.warning(
        "this system does not tell the sizes of its caches; %s are taken. If they are others, say so: "
        "SearchTask(..., hardware_params=HardwareParams(num_cores=..., l2_bytes=...))",
        taken,
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
