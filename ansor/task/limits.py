"""What a device allows of a kernel, said once: for what a search draws, a target builds, a device launches.

A `KernelCount` is what one kernel takes, counted on loops (`ansor.task.gpu_limits`) or known of a launch; the
`KernelUsage` of `ansor.schedule.kernel_usage` has the same attributes for columns of programs. `Limits` are
what is allowed of them, by a target's hardware or as a device tells.

Source: TVM's GPU verifier (`tir.analysis.verify_gpu_code`); CUDA programming guide, compute capabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ansor.task.hardware import HardwareParams

Triple = tuple[int, int, int]

UNLIMITED: Final = 2**31 - 1
ANY: Final = (UNLIMITED, UNLIMITED, UNLIMITED)
_ONE: Final = (1, 1, 1)
_BLOCKS: Final = {"cuda": (1024, 1024, 64)}
_GRIDS: Final = {"cuda": (UNLIMITED, 65535, 65535)}
"""What each device of a kind allows along x, y and z."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Something that kernels take so much of, and limits allow so much of, as attributes called `name`."""

    name: str
    what: str
    remedy: str


AMOUNTS: Final = (
    Amount("threads", "threads in a block", "bind shorter loops to threads"),
    Amount("shared_bytes", "bytes of shared memory", "keep smaller tiles in shared memory"),
    Amount("local_bytes", "bytes of memory of each thread", "compute smaller tiles in a thread"),
    Amount("vector_bytes", "bytes in a vector", "vectorize shorter loops"),
)


@dataclass(frozen=True, slots=True)
class KernelCount:
    """
    What one kernel takes.

    Attributes
    ----------
    grid, block
        Blocks, and threads of a block, along x, y and z.
    shared_bytes, local_bytes
        Memory allocated for a block, and for a thread, registers not counted.
    vector_bytes
        The longest vector loop, by what it stores.
    """

    grid: Triple = _ONE
    block: Triple = _ONE
    shared_bytes: int = 0
    local_bytes: int = 0
    vector_bytes: int = 0

    @property
    def threads(self) -> int:
        """Of a block, along all dimensions."""
        return prod(self.block)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a kernel may take, as `KernelCount` has it."""

    threads: int
    shared_bytes: int
    local_bytes: int = UNLIMITED
    vector_bytes: int = UNLIMITED
    block: Triple = ANY
    grid: Triple = ANY

    @classmethod
    def of_hardware(cls, hardware: HardwareParams, kind: str = "") -> Limits:
        """What is known without a device, of some hardware and, if told, of the kind of target it is for."""
        known = hardware.limits
        return cls(
            known.max_threads_per_block,
            known.max_shared_memory_per_block,
            known.max_local_memory_per_block,
            known.vector_unit_bytes,
            _BLOCKS.get(kind, ANY),
            _GRIDS.get(kind, ANY),
        )

    def broken_by(self, kernel: KernelCount) -> tuple[str, ...]:
        """Say which limits a kernel breaks, each with what to do, as what "it" does; nothing if none."""
        found: list[str] = []
        for amount in AMOUNTS:
            taken, most = getattr(kernel, amount.name), getattr(self, amount.name)
            if taken > most:
                found.append(f"takes {taken} {amount.what}, {most} are allowed; {amount.remedy}")
        dimensions = (
            ("threads", kernel.block, self.block, "bind shorter loops"),
            ("blocks", kernel.grid, self.grid, "give each block more to do"),
        )
        for what, wanted, allowed, remedy in dimensions:
            for axis, extent, most in zip("xyz", wanted, allowed, strict=True):
                if extent > most:
                    found.append(f"takes {extent} {what} along {axis}, {most} are allowed; {remedy}")
        return tuple(found)
