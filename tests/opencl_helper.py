"""What the tests of device code share: run a nest in kernel form on the OpenCL device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ansor.ir.nest import LoopNest
from ansor.runtime.device.build import package_nest
from ansor.runtime.device.door import Device
from ansor.runtime.device.package import DevicePackage
from ansor.runtime.device.program import LoadedProgram
from ansor.task.target import Target
from tests.device_kernels import opencl, why_no_device


def run_opencl(nest: LoopNest, *arrays: np.ndarray, sizes: Sequence[int] = ()) -> str:
    """Emit, compile and launch `nest` on the arrays, outputs in place; gives the text.

    The test is skipped, saying why, where there is no device.
    """
    if why_no_device("opencl"):
        pytest.skip(why_no_device("opencl"))
    package = package_nest(nest, Target("opencl"), nest.name)
    run_on(opencl(), package, nest.outputs, arrays, sizes)
    return package.source


def run_on(
    device: Device,
    package: DevicePackage,
    outputs: Sequence[int],
    arrays: Sequence[np.ndarray],
    sizes: Sequence[int],
) -> None:
    """Launch a program on arrays, outputs in place."""
    memories = [device.allocate(array.nbytes) for array in arrays]
    for array, memory in zip(arrays, memories, strict=True):
        device.upload(array, memory)
    LoadedProgram(device, package).launches(memories, sizes).enqueue()
    for position in outputs:
        device.download(memories[position], arrays[position])
