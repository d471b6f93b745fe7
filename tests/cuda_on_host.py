"""What the tests of CUDA text share: run a nest in kernel form on the emulated device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ansor.ir.nest import LoopNest
from ansor.runtime.device.build import package_nest
from ansor.runtime.device.cuda import CUDADevice, FoundCUDA
from ansor.runtime.device.cuda_bindings import BindingsDriver
from ansor.task.target import Target
from tests.device_nests import together
from tests.emulated_cuda import WHY_NOT, EmulatedDriver, HostCompiler
from tests.opencl_helper import run_on, run_opencl


def run_cuda_on_host(
    nest: LoopNest, *arrays: np.ndarray, sizes: Sequence[int] = (), arch: str = "sm_90"
) -> str:
    """Emit, compile for an architecture and launch `nest` on the arrays, outputs in place; gives the text.

    The test is skipped, saying why, where there is no compiler.
    """
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    package = package_nest(nest, Target(f"cuda -arch={arch}"), nest.name)
    binary, _ = HostCompiler().compile(package.source, package.arch, "cubin")
    run_on(_device(), replace(package, binary=binary), nest.outputs, arrays, sizes)
    return package.source


@cache
def _device() -> CUDADevice:
    return CUDADevice(FoundCUDA(BindingsDriver(EmulatedDriver(), 0)))


Run = Callable[..., str]
each_language = pytest.mark.parametrize("run", [run_opencl, run_cuda_on_host], ids=["opencl", "cuda"])
"""Runs a test, which takes a `run`, on OpenCL's device and on the emulated one of CUDA."""


def run_together(run: Run, programs: Iterable[tuple[LoopNest, Sequence[np.ndarray], Sequence[int]]]) -> str:
    """Run nests with their arrays and sizes as one program, compiled at once; gives the text."""
    nests, arrays, sizes = zip(*programs, strict=True)
    return run(
        together(nests), *(one for each in arrays for one in each), sizes=[n for each in sizes for n in each]
    )
