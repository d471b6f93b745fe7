"""What may be launched: one check for programs that are built, by the target, and launched, by the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ansor.task.hardware import HardwareParams

Triple = tuple[int, int, int]

UNLIMITED: Final = 2**31 - 1
_ANY: Final = (UNLIMITED, UNLIMITED, UNLIMITED)
_BLOCKS: Final = {"cuda": (1024, 1024, 64)}
_GRIDS: Final = {"cuda": (UNLIMITED, 65535, 65535)}
"""What each device of a kind allows along x, y and z. Source: CUDA programming guide, capabilities."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most threads of a block, in all and along x, y, z; blocks along these; bytes of shared memory."""

    threads: int
    block: Triple
    grid: Triple
    shared_bytes: int

    @classmethod
    def of_hardware(cls, kind: str, hardware: HardwareParams) -> Limits:
        """What is known of a kind of device and some hardware without a device."""
        return cls(
            hardware.max_threads_per_block,
            _BLOCKS.get(kind, _ANY),
            _GRIDS.get(kind, _ANY),
            hardware.max_shared_memory_per_block,
        )

    def broken_by(self, grid: Sequence[int], block: Triple, shared_bytes: int) -> str | None:
        """Say which limit a launch of these blocks, threads and shared memory breaks; None if none."""
        if prod(block) > self.threads:
            return (
                f"takes {prod(block)} threads in a block, {self.threads} are allowed; bind shorter loops to "
                "threads"
            )
        if shared_bytes > self.shared_bytes:
            return (
                f"takes {shared_bytes} bytes of shared memory in a block, {self.shared_bytes} are allowed; "
                "keep smaller tiles in shared memory"
            )
        dimensions = (
            ("threads", block, self.block, "bind shorter loops"),
            ("blocks", grid, self.grid, "give each block more to do"),
        )
        for what, wanted, allowed, remedy in dimensions:
            for axis, extent, most in zip("xyz", wanted, allowed, strict=True):
                if extent > most:
                    return f"takes {extent} {what} along {axis}, {most} are allowed; {remedy}"
        return None
