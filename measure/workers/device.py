"""A device as a processor: kernels on a GPU, or by OpenCL on a CPU, arguments in the device's memory.

Arguments stand between canaries; what writes further than these is a fault of the device, if it notices. What
is in its memory is checked on the host. Memory between kernels is poisoned as outputs are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.dtypes import to_numpy
from ansor.errors import RunError, TargetError
from ansor.runtime.device.build import compiled
from ansor.runtime.device.door import Device, open_device
from ansor.runtime.device.package import DevicePackage
from ansor.runtime.device.program import LoadedProgram
from ansor.runtime.interference import Watch, unwatched
from measure.workers.arena import canary_bytes, damage_around, poison
from measure.workers.arguments import ArgumentSet, ArgumentSpec

Array = npt.NDArray[Any]

CANARY_BYTES: Final = 1024
"""Behind an argument; before it at least as many, as arguments begin where memory of the device may."""
_POISON: Final = 0xFF
"""Fills memory between kernels: NaN in every float dtype."""

MOST_UNREACHED: Final = 3


class Reach:
    """Counts how often in a row a device could not be had; once may be the fault of a program.

    A device that was left in the midst of a faulty kernel may need a while, and another process.
    """

    def __init__(self) -> None:
        self._failed: dict[str, int] = {}

    def note(self, kind: str, error: BaseException | None) -> None:
        """Note how a worker's call for a kind of device ended.

        Raises
        ------
        TargetError
            If it was one, as were the two before.
        """
        self._failed[kind] = self._failed.get(kind, 0) + 1 if isinstance(error, TargetError) else 0
        if self._failed[kind] >= MOST_UNREACHED:
            raise TargetError(
                f"no program for {kind} can be measured any more, as {MOST_UNREACHED} in a row failed "
                f"with: {error}"
            ) from error


def prepare_opencl() -> None:
    """Open the OpenCL device; a runner's worker does so when it starts."""
    open_device("opencl")


def prepare_cuda() -> None:
    """Open the CUDA device; a runner's worker does so when it starts."""
    open_device("cuda")


PREPARE: Final[Mapping[str, Callable[[], None]]] = {"opencl": prepare_opencl, "cuda": prepare_cuda}
"""What a runner's worker does first, by the kind of device."""


def prepare_compiler() -> None:
    """Open the OpenCL device, whose driver is its compiler; a builder's worker does so when it starts."""
    with suppress(TargetError, RunError):  # Where there is none, programs are packed all the same.
        open_device("opencl")


def device_environment(folder: Path, threads: int) -> dict[str, str]:
    """Variables for workers that open a device, but for those that are set already; PoCL heeds them.

    What it compiles, it deletes with the program, which mostly runs once; what workers that were killed leave
    behind lies in `folder`. It runs so many threads.
    """
    wanted = {
        "POCL_CACHE_DIR": str(folder),
        "POCL_KERNEL_CACHE": "0",
        "POCL_MAX_PTHREAD_COUNT": str(threads),
    }
    return {name: value for name, value in wanted.items() if name not in os.environ}


class DeviceProcessor:
    """See `processor.Processor`; it has no settings.

    OpenCL compiles where a program runs. It is compiled before all the same, if there is a device: what its
    driver refuses, crashes at or takes too long for, shows there.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._arguments: ArgumentSet[GuardedBuffer] | None = None

    def compile(self, text: str, machine: Mapping[str, Any]) -> bytes:
        package = compiled(DevicePackage.from_json(machine, text))
        if package.binary is None:
            self._try(package.source)
        return package.to_bytes()

    def load(
        self,
        object_bytes: bytes,
        entry: str,
        specs: Sequence[ArgumentSpec],
        settings: Mapping[str, Any],
    ) -> DeviceTrial:
        device = open_device(self._kind)
        if self._arguments is None:
            self._arguments = ArgumentSet(lambda shape, dtype, *_: GuardedBuffer(device, shape, dtype))
        self._arguments.take(specs)
        return DeviceTrial(LoadedProgram(device, DevicePackage.from_bytes(object_bytes)), self._arguments)

    def _try(self, source: str) -> None:
        try:
            device = open_device(self._kind)
        except TargetError:  # There is none here.
            return
        device.compile(source)


class DeviceTrial:
    """See `processor.LoadedProgram`."""

    def __init__(self, program: LoadedProgram, arguments: ArgumentSet[GuardedBuffer]) -> None:
        self._program = program
        self._arguments = arguments
        launches = program.launches([guarded.memory for guarded in arguments.memories])
        self.timed: Callable[[int], float] = launches.seconds
        self.flush: Callable[[], None] = program.device.flush_caches
        self.watch: Watch = unwatched

    def prepare(self) -> None:
        self._arguments.prepare()
        for memory in self._program.scratch():
            self._program.device.fill(memory, _POISON)

    def verify(self) -> None:
        self._arguments.verify()


def guarded_bytes(size: int, alignment: int) -> int:
    """How much memory of a device an argument of so many bytes takes with the canaries around it."""
    return _canary_before(alignment) + size + CANARY_BYTES


def _canary_before(alignment: int) -> int:
    return -(-CANARY_BYTES // alignment) * alignment


class GuardedBuffer:
    """One array in a device's memory between canaries (`arguments.ArgumentMemory`).

    Attributes
    ----------
    memory
        The array, a part of the device's memory.
    """

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: str) -> None:
        self._device = device
        self._dtype = dtype
        self._host: Array = np.empty(shape, to_numpy(dtype))
        size = self._host.nbytes
        start = _canary_before(device.alignment)
        self._end = start + size
        self._canary = canary_bytes(start)
        self._whole = device.allocate(guarded_bytes(size, device.alignment))
        self.memory = device.part(self._whole, start, size)
        self.restore_canaries()

    def write(self, values: Array) -> None:
        self._device.upload(np.ascontiguousarray(values), self.memory)

    def poison(self, expected: Array) -> None:
        poison(self._host, self._dtype, expected)
        self._device.upload(self._host, self.memory)

    def read(self) -> Array:
        self._device.download(self.memory, self._host)
        return self._host

    def restore_canaries(self) -> None:
        self._device.upload(self._canary, self._whole)
        self._device.upload(self._canary[:CANARY_BYTES], self._whole, self._end)

    def damage(self) -> str | None:
        before, after = np.empty_like(self._canary), np.empty(CANARY_BYTES, np.uint8)
        self._device.download(self._whole, before)
        self._device.download(self._whole, after, self._end)
        return damage_around(before, after, self._canary)
