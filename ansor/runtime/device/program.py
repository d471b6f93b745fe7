"""A device program that is loaded: for arguments in the device's memory it gives launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ansor.codegen.c.launches import PARAM, SCRATCH, SIZE64
from ansor.dtypes import int_range, to_numpy
from ansor.errors import BuildError, RunError
from ansor.runtime.device.door import Device, KernelArgument, KernelCall, Launches, Memory
from ansor.runtime.device.package import DevicePackage


class LoadedProgram:
    """A package on a device.

    Memory between its kernels is taken once for each set of sizes in a row, so that of two calls the launches
    of one must all be enqueued before those of the other.

    Parameters
    ----------
    device
        Where it runs.
    package
        The program; without a binary its source is compiled.

    Raises
    ------
    BuildError
        If it is for another kind of device, or its source or binary does not suit this one.
    """

    def __init__(self, device: Device, package: DevicePackage) -> None:
        if package.kind != device.kind:
            raise BuildError(
                f"{package.signature.name} is a program for {package.kind}, and {device.name} is a device "
                f"for {device.kind}; build it for that"
            )
        self.device = device
        self.package = package
        self._loaded = (
            device.compile(package.source) if package.binary is None else device.load(package.binary)
        )
        self._scratch: tuple[tuple[int, ...], list[Memory]] | None = None

    def launches(self, memories: Sequence[Memory], sizes: Sequence[int] = ()) -> Launches:
        """
        Make the program's launches.

        Parameters
        ----------
        memories
            The arguments in order.
        sizes
            Values of the signature's symbolic sizes.

        Raises
        ------
        BuildError
            If the device does not allow a launch.
        RunError
            If there are more blocks along an index than kernels count to, or no memory for scratch buffers.
        """
        package = self.package
        known = self._known(sizes)
        scratch = self.scratch(sizes)

        def argument(kind: str, position: int) -> KernelArgument:
            if kind == PARAM:
                return memories[position]
            if kind == SCRATCH:
                return scratch[position]
            return _scalar(known, position, "int64" if kind == SIZE64 else "int32")

        calls = [
            KernelCall(
                launch.kernel,
                tuple(argument(kind, position) for kind, position in launch.arguments),
                launch.blocks(known),
                launch.block,
                shared,
            )
            for launch, shared in zip(package.launches, package.shared_bytes, strict=True)
        ]
        return self.device.prepare(self._loaded, calls)

    def scratch(self, sizes: Sequence[int] = ()) -> list[Memory]:
        """The memory between kernels for these sizes."""
        kept = self._scratch  # Read once, as another thread may ask for other sizes meanwhile.
        if kept is None or kept[0] != tuple(sizes):
            kept = self._scratch = None  # Free the last one first.
            known = self._known(sizes)
            taken = [self.device.allocate(one.size_bytes(known)) for one in self.package.scratch]
            kept = self._scratch = tuple(sizes), taken
        return kept[1]

    def _known(self, sizes: Sequence[int]) -> dict[str, int]:
        return dict(zip(self.package.signature.sizes, sizes, strict=True))


def _scalar(known: Mapping[str, int], position: int, dtype: str) -> np.integer[Any]:
    """A symbolic size as a kernel takes it."""
    name, value = list(known.items())[position]
    low, high = int_range(dtype)
    if not low <= value <= high:
        raise RunError(f"the size {name!r} is {value}, and kernels take it as {dtype}; use smaller arrays")
    made: np.integer[Any] = to_numpy(dtype).type(value)
    return made
