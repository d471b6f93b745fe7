"""What the tests of device code share: run a nest in kernel form on an OpenCL device, without the runtime."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ansor.codegen.c import OPENCL, emit_c, launches, scratch_shapes, split_kernels
from ansor.dtypes import to_numpy
from ansor.ir.dims import evaluate
from ansor.ir.nest import LoopNest
from ansor.runtime.device.pocl import name_cpu


@cache
def _device() -> tuple[Any, Any, str]:
    """A context, a queue, and why there are none."""
    try:
        import pyopencl as cl
    except ImportError:
        return None, None, "pyopencl is not installed (pip install pyopencl pocl-binary-distribution)"
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        return None, None, f"no OpenCL platform is installed: {error}"
    if not devices:
        return None, None, "no OpenCL device is found"
    name_cpu(devices[0])
    context = cl.Context(devices[:1])
    try:
        _built(context, "__kernel void nothing(void) {}")
    except cl.Error as error:
        reason = " ".join(str(error).split())
        return None, None, f"the OpenCL device {devices[0].name} compiles nothing: {reason}"
    return context, cl.CommandQueue(context), ""


def _built(context: Any, text: str) -> Any:
    import pyopencl as cl

    options = ["-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cl.Program(context, text).build(options, cache_dir=False)


def need_opencl() -> tuple[Any, Any]:
    """A context and a queue; the test is skipped, saying why, where there are none."""
    context, queue, reason = _device()
    if reason:
        pytest.skip(reason)
    return context, queue


def run_opencl(nest: LoopNest, *arrays: np.ndarray, sizes: Sequence[int] = ()) -> str:
    """Emit, compile and launch `nest` on the arrays, outputs in place; gives the text."""
    context, queue = need_opencl()
    import pyopencl as cl

    program = split_kernels(nest)
    text = emit_c(program, OPENCL)
    names = SimpleNamespace(sizes=tuple(f"size{number}" for number in range(len(nest.sizes))))
    known = dict(zip(names.sizes, sizes, strict=True))
    built = _built(context, text)
    flags = cl.mem_flags.READ_WRITE
    params = [cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=array) for array in arrays]
    scratch = [
        cl.Buffer(
            context, flags, max(1, int(np.prod([evaluate(d, known) for d in shape]))) * to_numpy(t).itemsize
        )
        for t, shape in scratch_shapes(program, names)
    ]
    for launch in launches(program, names):
        grid = [evaluate(dim, known) for dim in launch.grid]
        if 0 in grid:
            continue
        values = {
            "param": lambda k: params[k],
            "scratch": lambda k: scratch[k],
            "size": lambda k: np.int32(sizes[k]),
            "size64": lambda k: np.int64(sizes[k]),
        }
        kernel = cl.Kernel(built, launch.kernel)
        kernel.set_args(*(values[kind](position) for kind, position in launch.arguments))
        threads = [blocks * size for blocks, size in zip(grid, launch.block, strict=True)]
        cl.enqueue_nd_range_kernel(queue, kernel, threads, launch.block)
    for position in nest.outputs:
        cl.enqueue_copy(queue, arrays[position], params[position])
    queue.finish()
    return text
