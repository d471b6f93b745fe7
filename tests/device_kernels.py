"""Programs for devices written by hand in OpenCL C, for tests that need no code generator."""

from __future__ import annotations

import shutil
from functools import cache
from typing import Any

import pytest

from ansor.codegen.c.launches import Launch
from ansor.errors import NoDeviceError
from ansor.runtime.device.door import Device, device_info, open_device
from ansor.runtime.device.package import DevicePackage, Scratch
from ansor.runtime.signature import Argument, Signature


@cache
def why_no_device(kind: str) -> str:
    """Why nothing can run on a device of this kind here; empty if it can."""
    try:
        device_info(kind)
    except NoDeviceError as error:
        return str(error)
    return ""


needs_opencl = pytest.mark.skipif(bool(why_no_device("opencl")), reason=why_no_device("opencl") or "-")
EMULATED = {"emulated": "cuda-bindings", "emulated-pycuda": "pycuda"}
"""What stands for CUDA, an emulated device in this process (`tests.emulated_cuda`), and the binding to it."""


def _where_possible(kind: str, reason: str) -> Any:
    return pytest.param(kind, marks=pytest.mark.skipif(bool(reason), reason=reason or "-"))


_HERE = [_where_possible(kind, why_no_device(kind)) for kind in ("opencl", "cuda")]
_NO_COMPILER = "" if shutil.which("g++") else "there is no g++ to emulate a GPU by"
each_device = pytest.mark.parametrize(
    "kind", [*_HERE, *(_where_possible(kind, _NO_COMPILER) for kind in EMULATED)], indirect=True
)
"""Runs a test, which takes a `kind`, on every device that is there, and on an emulated one by both bindings.

PyCUDA has no graphs of calls, which NVIDIA's bindings launch when kernels are timed.
"""
each_kind_of_device = pytest.mark.parametrize(
    "kind", [*_HERE, _where_possible("emulated", _NO_COMPILER)], indirect=True
)
"""The same by one binding to the emulated device: for what programs compute, which is the same by both."""
each_device_of_workers = pytest.mark.parametrize("kind", _HERE)
"""Runs a test whose programs run in other processes on every device that is there."""


def opencl() -> Device:
    return open_device("opencl")


_IN_CUDA = {
    "__kernel void": 'extern "C" __global__ void',
    "__global ": "",
    "__local ": "__shared__ ",
    "barrier(CLK_LOCAL_MEM_FENCE)": "__syncthreads()",
    "get_group_id(0)": "(int)blockIdx.x",
    "get_local_id(0)": "(int)threadIdx.x",
    "get_global_id(0)": "(int)(blockIdx.x*blockDim.x + threadIdx.x)",
    " long ": " long long ",
}


def written_for(kind: str, source: str) -> str:
    """A source in OpenCL C, or the same in CUDA C++."""
    if kind == "cuda":
        for words, others in _IN_CUDA.items():
            source = source.replace(words, others)
    return source


SCALE = """
__kernel void scale_kernel0(__global const float* A, __global float* T, int n) {
  int i = get_group_id(0)*64 + get_local_id(0);
  if (i < n) T[i] = 2.0f*A[i];
}
__kernel void scale_kernel1(__global const float* T, __global float* B, int n) {
  __local float tile[64];
  int t = get_local_id(0);
  int i = get_group_id(0)*64 + t;
  tile[t] = i < n ? T[i] : 0.0f;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (i < n) B[i] = tile[t] + 1.0f;
}
"""
"""B = 2 A + 1 by two kernels with scratch memory between them and a barrier in the second."""


def scale(kind: str = "opencl", source: str = SCALE) -> DevicePackage:
    """The package of `SCALE` over arrays of symbolic length n."""
    arguments = (Argument("A", "float32", ("n",)), Argument("B", "float32", ("n",), output=True))
    blocks = ("floordiv", ("add", "n", 63), 64)
    return DevicePackage(
        kind,
        Signature("scale", "scale", arguments, ("n",), kind, ""),
        written_for(kind, source),
        (
            Launch("scale_kernel0", (("param", 0), ("scratch", 0), ("size", 0)), (blocks, 1, 1), (64, 1, 1)),
            Launch("scale_kernel1", (("scratch", 0), ("param", 1), ("size", 0)), (blocks, 1, 1), (64, 1, 1)),
        ),
        (0, 256),
        (Scratch("float32", ("n",)),),
    )


def double(
    n: int, body: str = "", block: int = 64, shared: int = 0, where: str = "", kind: str = "opencl"
) -> DevicePackage:
    """B = 2 A over n floats by one kernel of one thread per element.

    `body` runs after that in each thread; `where` is a further condition for it.
    """
    arguments = (Argument("A", "float32", (n,)), Argument("B", "float32", (n,), output=True))
    source = f"""
__kernel void program_kernel0(__global float* A, __global float* B) {{
  int i = get_global_id(0);
  if (i < {n}{where}) B[i] = 2.0f*A[i];
  {body}
}}
"""
    launch = Launch("program_kernel0", (("param", 0), ("param", 1)), (-(-n // block), 1, 1), (block, 1, 1))
    signature = Signature("program", "program", arguments, (), kind, "")
    return DevicePackage(kind, signature, written_for(kind, source), (launch,), (shared,))
