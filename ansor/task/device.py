"""What a GPU is like beyond the limits that records carry: what a cost model of its kernels wants to know.

`HardwareParams` says what a block may take; a `DeviceModel` says how many of them run side by side and how
fast memory is. Figures are NVIDIA's, by compute capability, of one that is not in the table those of the next
lower one; another device gets those of a middling one, except for what its target string says.

Source: CUDA C++ programming guide, technical specifications per compute capability.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ansor.task.target import Target, capability_of

DEFAULT_ARCH: Final = "sm_80"
"""What a program for CUDA is for where neither its target nor a device tells."""


_EVERYWHERE: Final = 48 << 10
"""Bytes of shared memory that a block may take on any GPU of NVIDIA's."""
PARTITIONS: Final = 4
"""Of a multiprocessor, each with its own registers, lanes and warps."""
_REGISTER_UNIT: Final = 256
"""Registers that a warp is given at once."""
_MOST_REGISTERS: Final = 255
"""Of a thread."""
_SHARED_UNIT: Final = 128
"""Bytes of shared memory that a block is given at once."""
_COPYING: Final = 80
"""The compute capability from which on threads can copy without waiting."""


def runs_on(arch: str, device: str) -> bool:
    """
    Whether machine code for one architecture runs on a device of another.

    It does on the same generation, if that is no older revision of it; code that uses what one revision has
    ("sm_90a") on that one only.
    """
    wanted, here = re.fullmatch(r"sm_(\d+)(\d)([a-z]?)", arch), re.fullmatch(r"sm_(\d+)(\d)[a-z]?", device)
    if wanted is None or here is None or wanted[1] != here[1]:
        return False
    return wanted[2] == here[2] if wanted[3] == "a" else int(wanted[2]) <= int(here[2])


def copies_without_waiting(target: Target) -> bool:
    """
    Whether threads can go on while what they copy into shared memory is on its way.

    Source: CUDA C++ programming guide, asynchronous data copies.
    """
    capability = capability_of(target.arch or DEFAULT_ARCH)
    return target.kind == "cuda" and capability is not None and capability >= _COPYING


def block_shared_bytes(target: Target) -> int:
    """
    Give the shared memory that a block may take.

    Of a CUDA target that names an architecture what launches may ask for; of others what all GPUs have.

    Source: CUDA C++ programming guide, technical specifications per compute capability.
    """
    capability = capability_of(target.arch) if target.kind == "cuda" else None
    if capability is None or capability < min(_BY_CAPABILITY):
        return _EVERYWHERE
    model = _of_capability(capability)
    return model.shared_bytes - model.reserved_bytes


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """
    Multiprocessors and memory of a GPU.

    Parameters
    ----------
    multiprocessors
        How many there are.
    threads, blocks, registers, shared_bytes
        What one of them holds at a time: threads, blocks, 32-bit registers, bytes of shared memory.
    lanes
        Multiply-adds of float32 that it does in a cycle.
    hertz
        Its cycles per second.
    memory_bytes
        Bytes per second that all together get from memory.
    l2_bytes
        Size of their common cache.
    warp
        Threads that run in step.
    sector_bytes
        What is moved from memory at once.
    banks
        Words of 4 bytes that shared memory delivers in a cycle, each from a bank of its own.
    reserved_bytes
        What the system takes of shared memory for each block, as of compute capability 8.0.
    tensor
        How many times as many multiply-adds of 16-bit floats its tensor cores do, added up in float32.

    Source: CUDA C++ programming guide, and NVIDIA's papers on the architectures.
    """

    multiprocessors: int = 68
    threads: int = 1536
    blocks: int = 16
    registers: int = 65536
    shared_bytes: int = 102400
    lanes: int = 128
    hertz: float = 1.7e9
    memory_bytes: float = 7.6e11
    l2_bytes: int = 5 << 20
    warp: int = 32
    sector_bytes: int = 32
    banks: int = 32
    reserved_bytes: int = 1024
    tensor: float = 4.0

    @classmethod
    def for_target(cls, target: Target) -> DeviceModel:
        """Return the model of a target's architecture, changed by what its string says."""
        capability = capability_of(target.arch or (DEFAULT_ARCH if target.kind == "cuda" else None))
        known = cls() if capability is None else _of_capability(capability)
        l2, warp = target.attrs.get("l2_cache_size_bytes"), target.thread_warp_size or 0
        return replace(
            known,
            l2_bytes=l2 if isinstance(l2, int) else known.l2_bytes,
            warp=warp if warp > 1 else known.warp,
        )

    def registers_of_thread(self, threads: Any) -> Any:
        """
        Tell how many registers each thread of a block may have.

        Parameters
        ----------
        threads
            Of the block; a number, or many in an array.
        """
        warps = -(-threads // self.warp)
        each = self.registers // PARTITIONS // -(-warps // PARTITIONS)
        return np.minimum(each // _REGISTER_UNIT * _REGISTER_UNIT // self.warp, _MOST_REGISTERS)

    def resident_blocks(self, threads: Any, registers: Any, shared_bytes: Any) -> Any:
        """
        Tell how many blocks a multiprocessor holds at a time.

        Parameters
        ----------
        threads, registers, shared_bytes
            Threads of a block, registers of each, and shared memory of all; numbers, or arrays.

        Source: NVIDIA's occupancy calculator; shared memory as of compute capability 8.0 and later.
        """
        warps = -(-threads // self.warp)
        per_warp = _up_to(np.maximum(registers, 1) * self.warp, _REGISTER_UNIT)
        most_warps = self.registers // PARTITIONS // per_warp * PARTITIONS
        by_threads = np.minimum(self.blocks, self.threads // (warps * self.warp))
        by_shared = self.shared_bytes // _up_to(
            np.maximum(shared_bytes + self.reserved_bytes, 1), _SHARED_UNIT
        )
        return np.minimum(np.minimum(by_threads, most_warps // warps), by_shared)


def _up_to(size: Any, unit: int) -> Any:
    """The next multiple of a unit."""
    return -(-size // unit) * unit


def _of_capability(capability: int) -> DeviceModel:
    """The model of a compute capability, or of the next lower one that is known."""
    lower = [known for known in _BY_CAPABILITY if known <= capability]
    return _BY_CAPABILITY[max(lower, default=min(_BY_CAPABILITY))]


_BY_CAPABILITY: Final = {
    70: DeviceModel(80, 2048, 32, 65536, 98304, 64, 1.53e9, 9.0e11, 6 << 20, reserved_bytes=0, tensor=8.0),
    75: DeviceModel(40, 1024, 16, 65536, 65536, 64, 1.59e9, 3.2e11, 4 << 20, reserved_bytes=0, tensor=8.0),
    80: DeviceModel(108, 2048, 32, 65536, 167936, 64, 1.41e9, 1.55e12, 40 << 20, tensor=16.0),
    86: DeviceModel(84, 1536, 16, 65536, 102400, 128, 1.7e9, 9.4e11, 6 << 20),
    89: DeviceModel(128, 1536, 24, 65536, 102400, 128, 2.5e9, 1.0e12, 72 << 20),
    90: DeviceModel(132, 2048, 32, 65536, 233472, 128, 1.75e9, 4.0e12, 50 << 20, tensor=16.0),
    100: DeviceModel(148, 2048, 32, 65536, 233472, 128, 1.85e9, 8.0e12, 126 << 20, tensor=32.0),
    120: DeviceModel(170, 1536, 24, 65536, 102400, 128, 2.4e9, 1.8e12, 96 << 20),
}
