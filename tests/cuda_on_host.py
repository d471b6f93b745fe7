"""CUDA text run without a GPU: as C++ of the host, whose threads are those of a block, block after block.

Barriers are barriers of all these threads. So are shuffles, which in CUDA are those of a warp: that will do
for programs in kernel form, where all threads of a block come by.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ansor.codegen.c import CUDA, emit_c, launches, split_kernels
from ansor.ir.dims import evaluate
from ansor.ir.nest import LoopNest
from ansor.runtime.signature import Signature

_KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\(\d+\) (\w+)\(([^)]*)\) {')
_POOL = re.compile(r"extern __shared__ __align__\(16\) unsigned char (\w+)\[\];")

_HEAD = """
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
#define __restrict__ __restrict

struct Index { unsigned x, y, z; };
static thread_local Index threadIdx, blockIdx;
static thread_local unsigned number;
static std::barrier<>* meeting;
static unsigned long long given[1024];

static inline void __syncthreads() { meeting->arrive_and_wait(); }

template <class T> static T __shfl_xor_sync(unsigned mask, T value, int distance) {
  std::memcpy(&given[number], &value, sizeof value);
  __syncthreads();
  T found = T();
  unsigned other = (number & ~31u) | ((number & 31u) ^ (unsigned)distance);
  if (mask >> (other & 31u) & 1u) std::memcpy(&found, &given[other], sizeof found);
  __syncthreads();
  return found;
}

#define VECTORS(type, of)                                                                          \\
  struct alignas(2 * sizeof(type)) of##2 { type x, y; };                                           \\
  struct alignas(4 * sizeof(type)) of##4 { type x, y, z, w; };                                     \\
  static inline of##2 make_##of##2(type x, type y) { return {x, y}; }                              \\
  static inline of##4 make_##of##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(unsigned, uint)
VECTORS(signed char, char)
VECTORS(unsigned char, uchar)

template <class Body> static void launched(const int* grid, const int* block, Body body) {
  const unsigned x = block[0], y = block[1], z = block[2];
  for (unsigned b = 0; b < (unsigned)(grid[0] * grid[1] * grid[2]); ++b) {
    std::barrier<> together(x * y * z);
    meeting = &together;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < x * y * z; ++t)
      threads.emplace_back([=] {
        number = t;
        threadIdx = {t % x, t / x % y, t / x / y};
        blockIdx = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
        body();
      });
    for (auto& thread : threads) thread.join();
  }
}
"""


def run_cuda_on_host(nest: LoopNest, *arrays: np.ndarray, sizes: Sequence[int] = ()) -> str:
    """Emit `nest` for CUDA, compile it for the host and launch it on the arrays; gives the text.

    The test is skipped where there is no compiler. Scratch memory between kernels is made here.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to run CUDA text on the host by")
    program = split_kernels(nest)
    text = emit_c(program, CUDA)
    signature = Signature.of_nest(nest, name=nest.name, symbol=nest.name, triple="cuda", cpu="")
    known = dict(zip(signature.sizes, sizes, strict=True))
    scratch = [np.zeros(buffer.elements, buffer.dtype) for buffer in program.scratch]
    values = [ctypes.c_int(size) for size in sizes]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(_on_host(text))
        flags = ["-std=c++20", "-O1", "-fno-strict-aliasing", "-w", "-shared", "-fPIC", "-pthread"]
        subprocess.run([compiler, *flags, "-o", str(library), str(source)], check=True)
        loaded = ctypes.CDLL(str(library))
        for launch in launches(program, signature):
            places = {"param": arrays, "scratch": scratch, "size": values}
            taken = [places[kind][position] for kind, position in launch.arguments]
            given = [x.ctypes.data if isinstance(x, np.ndarray) else ctypes.addressof(x) for x in taken]
            grid = [evaluate(dim, known) or 0 for dim in launch.grid]
            run = getattr(loaded, f"run_{launch.kernel}")
            three = ctypes.c_int * 3
            run((ctypes.c_void_p * len(given))(*given), three(*grid), three(*launch.block))
    return text


def _on_host(text: str) -> str:
    """The text as C++ of the host, and for each kernel a function that launches it."""
    pools = [f"alignas(16) unsigned char {name}[1 << 18];\n" for name in sorted(set(_POOL.findall(text)))]
    parts = [_HEAD, *pools, _POOL.sub(r"extern unsigned char \1[];", text)]
    for name, parameters in _KERNEL.findall(text):
        arguments = []
        for number, parameter in enumerate(filter(None, parameters.split(", "))):
            kind = parameter.rsplit(" ", 1)[0].replace(" __restrict__", "")
            argument = f"({kind})a[{number}]" if kind.endswith("*") else f"*({kind}*)a[{number}]"
            arguments.append(argument)
        call = f"{name}({', '.join(arguments)})"
        parts.append(
            f'extern "C" void run_{name}(void** a, const int* grid, const int* block) {{\n'
            f"  launched(grid, block, [=] {{ {call}; }});\n}}\n"
        )
    return "".join(parts)
