"""A CUDA device that is emulated: NVIDIA's driver and compiler, as far as ansor asks them, on the host.

The text of kernels is compiled as C++ of the host (`emulated_cuda.h`) and linked with what runs it
(`emulated_cuda.cpp`): the threads of a block run in turn, and the memory of the device is the host's. What
does not meet at a barrier, a copy past the end of an allocation, one that nobody waits for, or a call without
a context shows. Everything else of the device door is the real thing, by NVIDIA's bindings, whose module the
driver is, or by PyCUDA (`tests.emulated_pycuda`).
"""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ansor.codegen.c.compile as compiling
from ansor.errors import BuildError
from ansor.runtime.device import cuda_bindings, cuda_pycuda, door
from tests import emulated_ptx
from tests.emulated_pycuda import EmulatedPyCUDA

HEADER, RUNTIME = (Path(__file__).with_name(f"emulated_cuda.{kind}") for kind in ("h", "cpp"))
WHY_NOT = "" if shutil.which("g++") else "there is no g++ to compile emulated kernels by"
FACTS = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "MAX_GRID_DIM_Y": 65535,
    "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 << 10,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
    "L2_CACHE_SIZE": 1 << 20,
    "WARP_SIZE": 32,
}
MEMORY = 1 << 32

_KERNEL = re.compile(r'extern "C" __global__ void(?: __launch_bounds__\(\d+\))? (\w+)\(([^)]*)\)')
_POOL = re.compile(r"extern __shared__ __align__\(16\) unsigned char (\w+)\[\];")
_COPIES = {
    r"copy_(\d+)\(void\* to, const void\* from\)": r"begin_copy(to, from, \2);",
    r"fill_(\d+)\(void\* to, const void\* from, bool there\)": r"begin_fill(to, from, \2, there);",
    r"commit_copies\(\)": "commit_copies();",
    r"wait_but_(\d+)\(\)": r"end_groups(\2);",
    r"wait_copies\(\)": "end_copies();",
}
"""What the helpers do here that are about copies, by their names and parameters."""


def install(monkeypatch: pytest.MonkeyPatch, binding: str = "cuda-bindings") -> EmulatedDriver:
    """Put the emulated device and its compiler in the place of every other; gives its driver."""

    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    driver = EmulatedDriver()
    pycuda = EmulatedPyCUDA(driver)
    by_pycuda = binding == "pycuda"
    monkeypatch.setattr(door, "_open", {})
    monkeypatch.delenv(door.DEVICE, raising=False)
    monkeypatch.setattr(cuda_pycuda, "import_module", (lambda name: pycuda) if by_pycuda else missing)
    monkeypatch.setattr(cuda_bindings, "import_module", missing if by_pycuda else lambda name: driver)
    monkeypatch.setattr(compiling, "find_compiler", HostCompiler)
    return driver


class HostCompiler:
    """See `ansor.codegen.c.cuda_compilers.CudaCompiler`: a cubin is a library of the host."""

    name = "g++"
    release = 13

    def compile(self, text: str, arch: str, form: str) -> tuple[bytes, str]:
        if form != "cubin":
            raise BuildError(f"{self.name} writes no {form}")
        made = _compiled(text, arch)
        if isinstance(made, str):
            raise BuildError(f"{self.name} refuses the generated code for {arch}:\n{made}")
        return made, ""


@cache
def _compiled(text: str, arch: str) -> bytes | str:
    """The library of a text for an architecture, or what the compiler does not like in it."""
    with tempfile.TemporaryDirectory(prefix="ansor-") as folder:
        source, runtime, library = (
            Path(folder) / name for name in ("kernels.cpp", "runtime.o", "kernels.so")
        )
        source.write_text(_on_host(text))
        runtime.write_bytes(_runtime())
        options = ("-fno-strict-aliasing", "-shared", emulated_ptx.defined(arch))
        done = _host_compiler(*options, "-o", library, source, runtime)
        return done.stderr if done.returncode else library.read_bytes()


@cache
def _runtime() -> bytes:
    """The object file of what runs kernels, the same for all."""
    with tempfile.TemporaryDirectory(prefix="ansor-") as folder:
        made = Path(folder) / "runtime.o"
        done = _host_compiler("-c", "-o", made, RUNTIME)
        assert done.returncode == 0, done.stderr
        return made.read_bytes()


def _host_compiler(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it; by the standard of 2014, whose mathematics are read in half the time of later ones'."""
    command = ["g++", "-std=c++14", "-O1", "-ffp-contract=off", "-w", "-fPIC", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _on_host(text: str) -> str:
    """The text as C++ of the host; of each kernel also what runs it, and the sizes of its arguments."""
    kernels = _KERNEL.findall(text)
    for head, body in _COPIES.items():
        text = re.sub(rf"(void ansor_{head}) {{\n.*?\n}}", rf"\1 {{ {body} }}", text, flags=re.DOTALL)
    text = emulated_ptx.on_host(text)
    most = FACTS["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]
    pools = [
        f"SHARED alignas(16) unsigned char {name}[{most}];\n" for name in sorted(set(_POOL.findall(text)))
    ]
    parts = [HEADER.read_text(), *pools, _POOL.sub(r"extern unsigned char \1[];", text)]
    for name, parameters in kernels:
        types = [one.rpartition(" ")[0].replace(" __restrict__", "") for one in parameters.split(", ") if one]
        sizes = "".join(f"sizeof({kind}), " for kind in types)
        values = ", ".join(f"*({kind}*)values[{i}]" for i, kind in enumerate(types))
        parts.append(
            f'extern "C" int count_{name}() {{ return {len(types)}; }}\n'
            f'extern "C" int size_{name}(int i) {{ return (int[]){{{sizes}0}}[i]; }}\n'
            f"static void call_{name}(void** values) {{ {name}({values}); }}\n"
            f'extern "C" int run_{name}(void** values, const unsigned* grid, const unsigned* block) {{\n'
            f"  return run_grid(call_{name}, values, grid, block);\n}}\n"
        )
    return "".join(parts)


class _Names:
    """Attributes of the driver API by their names."""

    def __getattr__(self, name: str) -> str:
        return name


class EmulatedDriver:
    """The module `cuda.bindings.driver` with one device."""

    CUresult = int
    CUdevice_attribute = _Names()
    CUfunction_attribute = _Names()
    CUDA_KERNEL_NODE_PARAMS = SimpleNamespace

    def __init__(self) -> None:
        self.fault = 0
        """What every call fails with, once a kernel has failed."""
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.modules = 0
        self.events = 0
        self.stacks: defaultdict[Any, list[Any]] = defaultdict(list)
        """The contexts that threads are in, the current one last: by thread, and again as PyCUDA has them."""
        self._retained = 0
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def check_left(self) -> None:
        """PyCUDA ends the process with a thread that is left in a context."""
        assert not any(self.stacks.values())

    # -- the device ------------------------------------------------------------------------------------

    def cuInit(self, flags: int) -> tuple[int]:
        return (0,)

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return 0, 13000

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return 0, 1

    def cuDeviceGet(self, number: int) -> tuple[int, int]:
        return (0, 0) if number == 0 else (101, -1)

    def cuDeviceGetName(self, most: int, device: int) -> tuple[int, bytes]:
        return 0, b"an emulated GPU\0"

    def cuDeviceTotalMem(self, device: int) -> tuple[int, int]:
        return 0, MEMORY

    def cuDeviceGetAttribute(self, name: str, device: int) -> tuple[int, int]:
        return 0, FACTS[name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuGetErrorName(self, code: int) -> tuple[int, bytes]:
        return 0, f"CUDA_ERROR_{code}".encode()

    def cuGetErrorString(self, code: int) -> tuple[int, bytes]:
        return 0, f"emulated error {code}".encode()

    # -- contexts, streams and events ------------------------------------------------------------------

    @property
    def _stack(self) -> list[Any]:
        return self.stacks[threading.get_ident()]

    def _code(self) -> int:
        """What a call that needs a context answers."""
        return self.fault or (0 if self._stack and self._retained else 201)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int, str]:
        self._retained += 1
        return 0, "context"

    def cuDevicePrimaryCtxRelease(self, device: int) -> tuple[int]:
        self._retained -= 1
        return (0,)

    def cuCtxPushCurrent(self, context: str) -> tuple[int]:
        assert context == "context"
        if not self._retained:
            return (201,)
        self._stack.append(context)
        return (0,)

    def cuCtxPopCurrent(self) -> tuple[int, str | None]:
        """It tells of a kernel that failed, too, as its description allows."""
        if not self._stack:
            return 201, None
        return self.fault, self._stack.pop()

    def cuCtxSynchronize(self) -> tuple[int]:
        return (self._code(),)

    def cuStreamCreate(self, flags: int) -> tuple[int, int]:
        return self._code(), next(self._numbers)

    def cuStreamSynchronize(self, stream: int) -> tuple[int]:
        return (self._code(),)

    def cuEventCreate(self, flags: int) -> tuple[int, Any]:
        self.events += not self._code()
        return self._code(), SimpleNamespace(time=0.0)

    def cuEventRecord(self, event: Any, stream: int) -> tuple[int]:
        event.time = time.perf_counter()
        return (self._code(),)

    def cuEventSynchronize(self, event: Any) -> tuple[int]:
        return (self._code(),)

    def cuEventElapsedTime(self, start: Any, end: Any) -> tuple[int, float]:
        return self._code(), 1e3 * (end.time - start.time)

    def cuEventDestroy(self, event: Any) -> tuple[int]:
        self.events -= 1
        return (self._code(),)

    # -- memory ----------------------------------------------------------------------------------------

    def cuMemAlloc(self, size: int) -> tuple[int, int | None]:
        assert size > 0, "the driver refuses to allocate nothing"
        if self._code() or size > MEMORY:
            return self._code() or 2, None
        block = np.full(size + 256, 0xCD, np.uint8)
        address = -(-block.ctypes.data // 256) * 256
        self.memory[address] = block
        return 0, address

    def cuMemFree(self, address: int) -> tuple[int]:
        del self.memory[address]
        return (self._code(),)

    def _inside(self, address: int, size: int) -> int:
        """The code for a copy: bytes outside of all allocations are none."""
        starts = [start for start in self.memory if start <= address]
        block = self.memory[max(starts)] if starts else None
        inside = block is not None and address + size <= max(starts) + len(block) - 256
        return self._code() or (0 if inside else 1)

    def cuMemcpyHtoD(self, address: int, host: int, size: int) -> tuple[int]:
        code = self._inside(address, size)
        if not code:
            ctypes.memmove(address, host, size)
        return (code,)

    def cuMemcpyDtoH(self, host: int, address: int, size: int) -> tuple[int]:
        code = self._inside(address, size)
        if not code:
            ctypes.memmove(host, address, size)
        return (code,)

    def cuMemsetD8(self, address: int, byte: int, size: int) -> tuple[int]:
        code = self._inside(address, size)
        if not code:
            ctypes.memset(address, byte, size)
        return (code,)

    # -- programs --------------------------------------------------------------------------------------

    def cuModuleLoadData(self, binary: bytes) -> tuple[int, Any]:
        if self._code() or not binary.startswith(b"\x7fELF"):
            return self._code() or 200, None
        with tempfile.NamedTemporaryFile(prefix="ansor-", suffix=".so") as file:
            file.write(binary)
            file.flush()
            self.modules += 1
            return 0, ctypes.CDLL(file.name)

    def cuModuleUnload(self, module: Any) -> tuple[int]:
        self.modules -= 1
        return (self._code(),)

    def cuModuleGetFunction(self, module: Any, name: bytes) -> tuple[int, Any]:
        if self._code() or not hasattr(module, f"run_{name.decode()}"):
            return self._code() or 500, None
        run, count, size = (getattr(module, f"{what}_{name.decode()}") for what in ("run", "count", "size"))
        return 0, SimpleNamespace(run=run, sizes=[size(i) for i in range(count())])

    def cuFuncGetAttribute(self, name: str, function: Any) -> tuple[int, int]:
        return self._code(), FACTS[name.removeprefix("CU_FUNC_ATTRIBUTE_")]

    def cuFuncSetAttribute(self, function: Any, name: str, value: int) -> tuple[int]:
        return (self._code(),)

    def cuLaunchKernel(self, function: Any, *rest: Any) -> tuple[int]:
        """The arguments are told by their places, or packed one behind the other."""
        *extents, shared, _, place, packed = rest
        values = _unpacked(packed, function.sizes) if packed else []
        places = _places(values)
        place = place or ctypes.addressof(places)
        return (self._code() or self._run(function, extents[:3], extents[3:], shared, place),)

    def _run(self, function: Any, grid: Sequence[int], block: Sequence[int], shared: int, place: int) -> int:
        """Run a kernel; a launch that the driver would refuse has a code, a kernel that fails leaves one."""
        limits = ("X", "Y", "Z")
        most = [(FACTS[f"MAX_GRID_DIM_{axis}"], FACTS[f"MAX_BLOCK_DIM_{axis}"]) for axis in limits]
        fits = all(0 < g <= m and 0 < b <= n for g, b, (m, n) in zip(grid, block, most, strict=True))
        if not fits or np.prod(block) > 1024 or shared > FACTS["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]:
            return 1
        three = ctypes.c_uint * 3
        with self._lock:
            self.fault = function.run(ctypes.c_void_p(place), three(*grid), three(*block))
        return 0

    # -- graphs ----------------------------------------------------------------------------------------

    def cuGraphCreate(self, flags: int) -> tuple[int, list[Any]]:
        return self._code(), []

    def cuGraphAddKernelNode(
        self, graph: list[Any], before: Sequence[int], count: int, node: Any
    ) -> tuple[int, int]:
        assert list(before) == ([len(graph)] if graph else []), "one behind the other"
        assert count == len(before)
        most = len(node.func.sizes)
        places = (ctypes.c_void_p * max(1, most)).from_address(node.kernelParams)
        values = [ctypes.create_string_buffer(ctypes.string_at(place, 8), 8) for place in places[:most]]
        graph.append((node, values))
        return self._code(), len(graph)

    def cuGraphInstantiate(self, graph: list[Any], flags: int) -> tuple[int, list[Any]]:
        return self._code(), list(graph)

    def cuGraphUpload(self, graph: list[Any], stream: int) -> tuple[int]:
        return (self._code(),)

    def cuGraphLaunch(self, graph: list[Any], stream: int) -> tuple[int]:
        for node, values in graph:
            places = _places(values)
            grid = (node.gridDimX, node.gridDimY, node.gridDimZ)
            block = (node.blockDimX, node.blockDimY, node.blockDimZ)
            code = self._code() or self._run(
                node.func, grid, block, node.sharedMemBytes, ctypes.addressof(places)
            )
            if code:
                return (code,)
        return (self._code(),)

    def cuGraphDestroy(self, graph: list[Any]) -> tuple[int]:
        return (0,)

    def cuGraphExecDestroy(self, graph: list[Any]) -> tuple[int]:
        return (0,)


def _places(values: Sequence[Any]) -> Any:
    return (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))


def _unpacked(packed: bytes, sizes: Sequence[int]) -> list[Any]:
    """Arguments of these sizes, each of which begins at a multiple of its own."""
    values, end = [], 0
    for size in sizes:
        start = -(-end // size) * size
        end = start + size
        values.append(ctypes.create_string_buffer(packed[start:end], 8))
    assert end == len(packed), "as many bytes as the kernel takes"
    return values
