"""Programs for devices in shared libraries: called without ansor, by OpenCL and an emulated CUDA driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import BuildError
from ansor.runtime.device.build import package_nest
from ansor.runtime.device.host_program import MARKER, host_program
from ansor.runtime.device.module import DeviceModule
from ansor.runtime.device.package import DevicePackage, Scratch
from ansor.runtime.device.pocl import is_unknown
from ansor.runtime.signature import Signature
from tests.device_kernels import SCALE, double, scale, why_no_device
from tests.emulated_cuda import WHY_NOT, HostCompiler
from tests.gpu_schedules import bind_all, kernels, product_arrays, tiled_matmul

CC = "cc"
pytestmark = pytest.mark.skipif(not shutil.which(CC), reason="no C compiler (cc) is installed")

ON_DEVICE = """
#include <stdio.h>
#include <string.h>
#include "scale.h"

enum { N = 1003 };
int cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t);
int cuCtxPushCurrent_v2(void *), cuCtxPopCurrent_v2(void **), emulated_blocks(void);

int main(void) {
    static float a[N], b[N];
    int wrong = scale(a, b, N);
    void *context;
    uint64_t in, out;
    cuCtxPopCurrent_v2(&context); /* tells which it is */
    cuCtxPushCurrent_v2(context), cuCtxPushCurrent_v2(context);
    wrong += cuMemAlloc_v2(&in, sizeof a) + cuMemAlloc_v2(&out, sizeof a);
    cuCtxPopCurrent_v2(&context);
    for (int i = 0; i < N; i++) ((float *)(uintptr_t)in)[i] = i; /* It is the host's memory, too. */
    wrong += scale((float *)(uintptr_t)in, (float *)(uintptr_t)out, N);
    for (int i = 0; i < N; i++) wrong += ((float *)(uintptr_t)out)[i] != 2 * i + 1;
    wrong += scale((float *)(uintptr_t)in, b, N); /* one there, one here */
    for (int i = 0; i < N; i++) wrong += b[i] != 2 * i + 1;
    wrong += !scale(NULL, b, N) || strcmp(scale_error(), "A is NULL");
    cuCtxPushCurrent_v2(context);
    wrong += cuMemFree_v2(in);
    printf("wrong %d, left %d\\n", wrong, emulated_blocks());
    return 0;
}
"""
THREADS = """
#include <pthread.h>
#include <stdio.h>
#include "scale.h"

enum { N = 5000, CALLS = 8 };

static void *calls(void *given) {
    static _Thread_local float a[N], b[N];
    int first = *(int *)given, n = N - 100 * first;
    intptr_t wrong = 0;
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < n; i++) a[i] = first + i + call;
        wrong += scale(a, b, n);
        for (int i = 0; i < n; i++) wrong += b[i] != 2 * (first + i + call) + 1;
    }
    return (void *)wrong;
}

int main(void) {
    pthread_t threads[4];
    int numbers[4], wrong = 0;
    for (int i = 0; i < 4; i++) numbers[i] = i, pthread_create(&threads[i], NULL, calls, &numbers[i]);
    for (int i = 0; i < 4; i++) {
        void *found;
        pthread_join(threads[i], &found);
        wrong += (int)(intptr_t)found;
    }
    printf("wrong %d\\n", wrong);
    return 0;
}
"""
CHOOSING = """
#include <stdio.h>
#include "scale.h"

static float a[4], b[4];

static void tell(int failed) { printf("%d %s\\n", failed, scale_error()); }

int main(void) {
    tell(scale_set_device(-1));
    tell(scale_set_device(63));
    tell(scale(a, b, 4));
    tell(scale_set_device(0));
    tell(scale(a, b, 4));
    tell(scale_set_device(63));
    tell(scale_set_device(0));
    return 0;
}
"""
FAILING = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "scale.h"

static float a[4], b[4];
int left_open(void);

static void tell(int failed) { /* one line */
    printf("%d %.*s\\n", failed, (int)strcspn(scale_error(), "\\n"), scale_error());
}

int main(int count, char **words) {
    tell(scale(a, b, 4));
    tell(scale(a, b, 4));
    printf("left %d\\n", left_open());
    tell(scale_set_device(atoi(words[count - 1])));
    tell(scale(a, b, 4));
    tell(scale_set_device(0));
    return 0;
}
"""
"""Calls a program that fails on the first device, and then on another one."""
ELSEWHERE = """
#include <stdio.h>
#include "scale.h"

enum { N = 1003 };
int cuDevicePrimaryCtxRetain(void **, int), cuCtxPushCurrent_v2(void *), cuCtxPopCurrent_v2(void **);
int cuDevicePrimaryCtxRelease_v2(int);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemAllocManaged(uint64_t *, size_t, unsigned);

static void tell(int failed) { printf("%d %s\\n", failed, scale_error()); }

int main(void) {
    static float a[N], b[N];
    void *context;
    uint64_t there, anywhere;
    int wrong = cuDevicePrimaryCtxRetain(&context, 0) + cuCtxPushCurrent_v2(context);
    wrong += cuMemAlloc_v2(&there, sizeof a) + cuMemAllocManaged(&anywhere, sizeof a, 1);
    wrong += cuCtxPopCurrent_v2(&context) + cuDevicePrimaryCtxRelease_v2(0) + scale_set_device(1);
    tell(scale(a, (float *)(uintptr_t)there, N));
    tell(scale((float *)(uintptr_t)there, b, N));
    for (int i = 0; i < N; i++) ((float *)(uintptr_t)anywhere)[i] = i;
    tell(scale((float *)(uintptr_t)anywhere, b, N));
    for (int i = 0; i < N; i++) wrong += b[i] != 2 * i + 1;
    printf("wrong %d\\n", wrong);
    return 0;
}
"""
"""Gives the second GPU's program memory of the first, and memory of all."""
INSIDE = """
#include <stdio.h>
#include "scale.h"

enum { N = 1003 };
int cuDevicePrimaryCtxRetain(void **, int), cuCtxPushCurrent_v2(void *), cuCtxPopCurrent_v2(void **);
int cuDevicePrimaryCtxRelease_v2(int), cuMemAlloc_v2(uint64_t *, size_t);

static void tell(int failed) { printf("%d %s\\n", failed, scale_error()); }

int main(void) {
    static float here[N + 4];
    void *context;
    uint64_t there;
    int wrong = cuDevicePrimaryCtxRetain(&context, 0) + cuCtxPushCurrent_v2(context);
    wrong += cuMemAlloc_v2(&there, sizeof here) + cuCtxPopCurrent_v2(&context);
    wrong += cuDevicePrimaryCtxRelease_v2(0);
    float *array = (float *)(uintptr_t)there;
    tell(scale(array + 1, here, N));
    tell(scale(here, array + 3, N));
    tell(scale(array + 4, here + 1, N));
    tell(scale(array + 1, here, 0));
    printf("wrong %d\\n", wrong);
    return 0;
}
"""
"""Gives parts of an array in the GPU's memory, and here."""
SOURCE_ERROR = SCALE.replace("2.0f*", "unknown_function(1)*")

CALLER = """
import ctypes, sys
import numpy as np

path, symbol, file, *sizes = sys.argv[1:]
library = ctypes.CDLL(path)
call, told = getattr(library, symbol), getattr(library, symbol + "_error")
told.restype = ctypes.c_char_p
arrays = list(np.load(file).values())
for turn in range(3):
    outs = [np.full_like(array, -7) for array in arrays]
    pointers = [ctypes.c_void_p((out if i == len(arrays) - 1 else array).ctypes.data)
                for i, (array, out) in enumerate(zip(arrays, outs))]
    if call(*pointers, *(ctypes.c_int64(int(size)) for size in sizes)):
        sys.exit(told().decode())
    assert told() == b""
np.save(file, outs[-1])
"""
"""Calls a library three times on arrays, the last of which it writes."""


@cache
def why_no_loader() -> str:
    """Why a process without ansor cannot run OpenCL here; empty if it can."""
    if why := why_no_device("opencl"):
        return why
    import pyopencl as cl

    if any(is_unknown(device) for platform in cl.get_platforms() for device in platform.get_devices()):
        return "PoCL does not know this CPU"
    return "" if _loader() else "OpenCL's loader is not found"


@cache
def _loader() -> Path | None:
    """The loader that pyopencl's wheel has."""
    import pyopencl

    found = sorted(Path(pyopencl.__file__).parent.glob(".libs/libOpenCL*.so*"))
    return found[0] if found else None


@pytest.fixture
def opencl_folder(tmp_path: Path) -> Path:
    """A folder where the loader has the name that systems give it."""
    if why_no_loader():
        pytest.skip(why_no_loader())
    folder, loader = tmp_path / "opencl", _loader()
    assert loader is not None
    folder.mkdir()
    (folder / "libOpenCL.so.1").symlink_to(loader)
    return folder


@pytest.fixture
def cuda_folder(tmp_path: Path) -> Path:
    """A folder with a driver of CUDA that has no GPU."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    folder = tmp_path / "cuda"
    folder.mkdir()
    source = Path(__file__).with_name("emulated_driver.c")
    run([CC, "-shared", "-fPIC", "-O1", "-o", folder / "libcuda.so.1", source, "-ldl"])
    return folder


@pytest.fixture
def counting_folder(tmp_path: Path) -> Path:
    """A folder with a loader of OpenCL that counts what is not released."""
    if why_no_loader():
        pytest.skip(why_no_loader())
    folder, loader = tmp_path / "opencl", _loader()
    folder.mkdir()
    source = Path(__file__).with_name("counting_opencl.c")
    run([CC, "-shared", "-fPIC", "-O1", "-o", folder / "libOpenCL.so.1", source, "-Wl,--no-as-needed",
         loader, "-ldl"])  # fmt: skip
    return folder


@pytest.fixture(params=["opencl", "cuda"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(kind: str, request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(f"{kind}_folder")
    return found


def run(command: Sequence[object], folder: Path | None = None) -> str:
    """Run a command that finds drivers in a folder, and gives what it says; a RuntimeError if it fails."""
    environment = dict(os.environ)
    if folder is not None:
        loader = [str(_loader().parent)] if folder.name == "opencl" else []  # type: ignore[union-attr]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join([str(folder), *loader])
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def call(
    library: Path, folder: Path, arrays: Sequence[np.ndarray[Any, Any]], sizes: Sequence[int] = ()
) -> Any:
    """Call a library in another process, without ansor; gives the last array, which it writes."""
    file = library.with_suffix(".npz")
    np.savez(file, *arrays)
    renamed = file.with_suffix(".npy")
    run([sys.executable, "-c", CALLER.replace("np.save(file", f"np.save({str(renamed)!r}"), library,
         library.stem, file, *sizes], folder)  # fmt: skip
    return np.load(renamed)


def emulated(package: DevicePackage) -> DevicePackage:
    """The program with code for the emulated driver, if it is for CUDA."""
    if package.kind != "cuda":
        return package
    return replace(package, binary=HostCompiler().compile(package.source, package.arch, "cubin")[0])


def exported(package: DevicePackage, path: Path) -> Path:
    return DeviceModule(emulated(package)).export_library(path)


def program(schedule: Any, kind: str, name: str) -> DevicePackage:
    target = ansor.Target("cuda -arch=sm_90" if kind == "cuda" else kind)
    return package_nest(kernels(schedule), target, name)


# -- what is computed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1003, 1, 0])
def test_kernels_follow_each_other_at_any_size(kind: str, folder: Path, tmp_path: Path, n: int) -> None:
    library = exported(scale(kind), tmp_path / "scale.so")
    a = np.arange(n, dtype=np.float32)
    np.testing.assert_array_equal(call(library, folder, [a, np.zeros_like(a)], [n]), 2 * a + 1)


@pytest.mark.parametrize(("tile", "k_tile"), [((1, 4, 2), 6), ((2, 8, 4), 128)])
def test_what_blocks_share_is_there(
    kind: str, folder: Path, tmp_path: Path, tile: tuple[int, int, int], k_tile: int
) -> None:
    """Also where it is so much that launches have to ask for it."""
    sizes = (70, 40, 150)
    package = program(tiled_matmul(sizes, tile, tile, k_tile), kind, "product")
    assert (max(package.shared_bytes) > 48 << 10) == (k_tile == 128)
    library = exported(package, tmp_path / "product.so")
    a, b, c = product_arrays(*sizes)
    np.testing.assert_allclose(call(library, folder, [a, b, c]), a @ b, rtol=1e-4, atol=1e-4)


def test_arrays_are_used_where_they_lie(cuda_folder: Path, tmp_path: Path) -> None:
    """Then nothing is copied, and nothing stays behind but memory between kernels."""
    exported(scale("cuda"), tmp_path / "scale.so")
    (tmp_path / "main.c").write_text(ON_DEVICE)
    flags = ["-Wall", "-Wextra", "-Werror", "-I", tmp_path, "-o", tmp_path / "main"]
    run([CC, tmp_path / "main.c", *flags, tmp_path / "scale.so", cuda_folder / "libcuda.so.1"])
    assert run([tmp_path / "main"], cuda_folder) == "wrong 0, left 2\n"


def test_the_caller_chooses_the_device(kind: str, folder: Path, tmp_path: Path) -> None:
    """By its position, until a call has opened it."""
    library = exported(scale(kind), tmp_path / "scale.so")
    (tmp_path / "choosing.c").write_text(CHOOSING)
    run([CC, tmp_path / "choosing.c", library, "-o", tmp_path / "choosing", f"-Wl,-rpath,{tmp_path}"])
    missing = {
        "opencl": "1 there is no OpenCL device 63; there ",
        "cuda": "1 there is no GPU 63; there are 2, numbered from 0",
    }
    negative, set_, absent, *rest = run([tmp_path / "choosing"], folder).splitlines()
    assert (negative, set_) == ("1 devices are numbered from 0, found -1", "0 ")
    assert absent.startswith(missing[kind])
    assert rest == ["0 ", "0 ", "1 device 0 is in use; choose another before the first call", "0 "]


DRIVER = {"opencl": "libOpenCL.so.1", "cuda": "libcuda.so.1"}


def told_by(text: str, library: Path, folder: Path, *words: object) -> list[str]:
    """The lines that a program in C says, which is linked with a library and a driver."""
    (library.parent / "main.c").write_text(text)
    command = [library.parent / "main", *words]
    run([CC, library.parent / "main.c", "-Wall", "-Wextra", "-Werror", "-o", command[0], library,
         folder / DRIVER[folder.name], f"-Wl,-rpath,{library.parent}"], folder)  # fmt: skip
    return run(command, folder).splitlines()


def test_after_a_device_that_refuses_the_program_another_may_be_chosen(
    cuda_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was opened for it is closed again."""
    monkeypatch.setenv("EMULATED_OLD", "0")
    library = exported(replace(scale("cuda"), arch="sm_90"), tmp_path / "scale.so")
    refused = "1 loading the program, which is for sm_90, fails: EMULATED (209)"
    in_use = "1 device 1 is in use; choose another before the first call"
    assert told_by(FAILING, library, cuda_folder, 1) == [refused, refused, "left 0", "0 ", "0 ", in_use]


def test_a_program_without_its_kernels_is_unloaded(cuda_folder: Path, tmp_path: Path) -> None:
    package = emulated(scale("cuda"))
    first, second = package.launches
    lacking = replace(package, launches=(first, replace(second, kernel="nowhere")))
    library = DeviceModule(lacking).export_library(tmp_path / "scale.so")
    refused = "1 nowhere fails: EMULATED (500)"
    assert told_by(FAILING, library, cuda_folder, 1) == [refused, refused, "left 0", "0 ", refused, "0 "]


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ("clBuildProgram", "1 OpenCL refuses the program: error -11"),
        ("clCreateCommandQueue", "1 the OpenCL device cannot be opened: error -6"),
        ("clCreateKernel", "1 the program has no kernel scale_kernel0: error -6"),
    ],
)
def test_what_a_refused_program_took_of_opencl_is_released(
    failing: str, said: str, counting_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And another device may be chosen; here that is one that is not there."""
    monkeypatch.setenv("COUNTING_FAILS", failing)
    package = scale(source=SOURCE_ERROR if failing == "clBuildProgram" else SCALE)
    library = exported(package, tmp_path / "scale.so")
    *lines, absent, set_ = told_by(FAILING, library, counting_folder, 63)
    assert (lines, set_) == ([said, said, "left 0", "0 "], "0 ")
    assert absent.startswith("1 there is no OpenCL device 63; there ")


def test_memory_of_another_gpu_is_refused(cuda_folder: Path, tmp_path: Path) -> None:
    """But not what all of them may use."""
    library = exported(scale("cuda"), tmp_path / "scale.so")
    refused = [f"1 {name} lies in the memory of GPU 0, and the program runs on GPU 1" for name in "BA"]
    assert told_by(ELSEWHERE, library, cuda_folder) == [*refused, "0 ", "wrong 0"]


def test_memory_that_kernels_cannot_load_vectors_from_is_refused(cuda_folder: Path, tmp_path: Path) -> None:
    """Of the GPU's own; what is copied there may lie anywhere."""
    library = exported(scale("cuda"), tmp_path / "scale.so")
    refused = [f"1 {name} lies in the GPU's memory at no multiple of 16 bytes; pass a copy" for name in "AB"]
    assert told_by(INSIDE, library, cuda_folder) == [*refused, "0 ", "0 ", "wrong 0"]


def test_calls_of_several_threads_do_not_mix(kind: str, folder: Path, tmp_path: Path) -> None:
    exported(scale(kind), tmp_path / "scale.so")
    (tmp_path / "main.c").write_text(THREADS)
    flags = ["-Wall", "-Wextra", "-Werror", "-pthread", "-I", tmp_path, "-o", tmp_path / "main"]
    run([CC, tmp_path / "main.c", *flags, tmp_path / "scale.so"])
    assert run([tmp_path / "main"], folder) == "wrong 0\n"


# -- files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "argument"), [("select", "A"), ("div", "EOF"), ("doubled", "ansor_call")])
def test_functions_and_arguments_may_have_names_that_headers_know(
    kind: str, folder: Path, tmp_path: Path, name: str, argument: str
) -> None:
    a = te.placeholder((64,), name=argument)
    b = te.compute((64,), lambda i: a[i] * 2.0, name="NULL")
    s = te.create_schedule(b)
    bind_all(s, b, 32)
    library = exported(program(s.state, kind, name), tmp_path / f"{name}.so")
    values = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(call(library, folder, [values, np.zeros_like(values)]), 2 * values)


def test_a_function_of_the_library_s_own_is_none_to_export(kind: str, tmp_path: Path) -> None:
    taken = replace(scale(kind), signature=replace(scale(kind).signature, symbol="ansor_call"))
    with pytest.raises(BuildError, match="has or calls 'ansor_call' itself; build the program by"):
        exported(taken, tmp_path / "taken.so")


def test_a_library_loads_again(kind: str, tmp_path: Path) -> None:
    package = emulated(scale(kind)) if not WHY_NOT else scale()
    path = DeviceModule(package).export_library(tmp_path / "scale.so")
    loaded = ansor.load_module(path)
    assert isinstance(loaded, DeviceModule)
    assert loaded.package == package
    again = loaded.export_library(tmp_path / "again.so")
    assert (tmp_path / "again.h").read_text() == (tmp_path / "scale.h").read_text()
    assert again.exists()
    data = path.read_bytes()
    (tmp_path / "cut.so").write_bytes(data.replace(MARKER, b"nothing " * 2))
    with pytest.raises(BuildError, match=r"cut.so holds no device program of ansor"):
        ansor.load_module(tmp_path / "cut.so")


@pytest.mark.skipif(not shutil.which("c++"), reason="no C++ compiler (c++) is installed")
def test_the_header_says_how_to_call_it(tmp_path: Path) -> None:
    DeviceModule(scale()).export_library(tmp_path / "scale.so")
    text = (tmp_path / "scale.h").read_text()
    assert "compiled by ansor for opencl." in text
    assert "int32_t scale(const float *A, float *B, int64_t n);" in text
    assert "const char *scale_error(void);" in text
    assert "set_num_threads" not in text
    for compiler, suffix in ((CC, "c"), ("c++", "cpp")):
        (tmp_path / f"use.{suffix}").write_text(
            '#include "scale.h"\nint main(void) { return !scale_error(); }\n'
        )
        run([compiler, "-Wall", "-Wextra", "-Werror", "-pedantic", tmp_path / f"use.{suffix}",
             tmp_path / "scale.so", "-o", tmp_path / "use"])  # fmt: skip


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_what_is_compiled_has_no_warnings(kind: str, compiler: str, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    package = scale(kind) if kind == "opencl" else replace(scale(kind), binary=b"code", arch="sm_90")
    several = ("floordiv", ("max", ("floormod", ("sub", "n", 5), 3), ("truncmod", "n", 7)), ("min", "n", 2))
    launches = (replace(package.launches[0], grid=(several, "n", 1)), package.launches[1])
    for one in (package, replace(package, launches=launches, scratch=package.scratch * 2)):
        (tmp_path / "host.c").write_text(host_program(one))
        run([compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-c", tmp_path / "host.c",
             "-o", tmp_path / "host.o"])  # fmt: skip


@pytest.mark.skipif(not shutil.which("nm"), reason="nm is not installed")
def test_nothing_else_is_visible(kind: str, tmp_path: Path) -> None:
    package = scale(kind) if kind == "opencl" else replace(scale(kind), binary=b"code", arch="sm_90")
    library = DeviceModule(package).export_library(tmp_path / "scale.so")
    names = {line.split()[-1] for line in run(["nm", "-D", "--defined-only", library]).splitlines()}
    assert names == {"scale", "scale_error", "scale_set_device", "scale_ansor_metadata"}


# -- what is refused --------------------------------------------------------------------------------------


def test_a_driver_that_is_missing_is_named(kind: str, tmp_path: Path) -> None:
    package = scale(kind) if kind == "opencl" else replace(scale(kind), binary=b"code", arch="sm_90")
    library = DeviceModule(package).export_library(tmp_path / "scale.so")
    names = {"opencl": ("libOpenCL.so", "libOpenCL.so.1"), "cuda": ("libcuda.so.1",)}
    for name in names[kind]:  # The first one found is none.
        (tmp_path / "none").mkdir(exist_ok=True)
        (tmp_path / "none" / name).write_text("nothing")
    said = {"opencl": "OpenCL's loader is not installed", "cuda": "NVIDIA's driver is not installed"}
    with pytest.raises(RuntimeError, match=said[kind]):
        call(library, tmp_path / "none", [np.zeros(4, np.float32)] * 2, [4])


def test_what_the_driver_says_is_told(cuda_folder: Path, opencl_folder: Path, tmp_path: Path) -> None:
    bad = replace(scale("cuda"), binary=b"no program", arch="sm_90")
    library = DeviceModule(bad).export_library(tmp_path / "scale.so")
    a = np.zeros(4, np.float32)
    with pytest.raises(
        RuntimeError, match=r"loading the program, which is for sm_90, fails: EMULATED \(200\)"
    ):
        call(library, cuda_folder, [a, a], [4])
    source = scale(source=SOURCE_ERROR)
    library = DeviceModule(source).export_library(tmp_path / "scale.so")
    with pytest.raises(RuntimeError, match=r"(?s)OpenCL refuses the program.*unknown_function"):
        call(library, opencl_folder, [a, a], [4])


def test_sizes_that_kernels_cannot_take_are_refused(kind: str, folder: Path, tmp_path: Path) -> None:
    by_sizes = ("floordiv", 8, "n")
    package = replace(scale(kind), scratch=(Scratch("float32", (by_sizes,)),))
    library = exported(package, tmp_path / "scale.so")
    a = np.zeros(4, np.float32)
    with pytest.raises(RuntimeError, match="the dimension 8//n divides by zero"):
        call(library, folder, [a, a], [0])
    few = Signature("scale", "scale", double(4).signature.arguments, ("n",), kind, "")
    wide = replace(package, signature=few, scratch=(Scratch("float32", (4,)),))
    library = exported(wide, tmp_path / "scale.so")
    with pytest.raises(RuntimeError, match="the size n is too large for kernels"):
        call(library, folder, [a, a], [1 << 31])
    grid = replace(wide.launches[0], grid=(("mul", "n", 1 << 20), 1, 1))
    library = exported(replace(wide, launches=(grid, wide.launches[1])), tmp_path / "scale.so")
    with pytest.raises(RuntimeError, match="takes 2147483648 blocks along x, and kernels count"):
        call(library, folder, [a, a], [1 << 11])
    counting = replace(wide.launches[0], counts=(("mul", "n", 1 << 30),))
    library = exported(replace(wide, launches=(counting, wide.launches[1])), tmp_path / "scale.so")
    with pytest.raises(RuntimeError, match="kernel 0 counts iterations or elements up to 4294967296, and"):
        call(library, folder, [a, a], [4])


def test_extents_that_are_no_arithmetic_are_refused() -> None:
    package = replace(scale(), scratch=(Scratch("float32", (("xor", "n", 1),)),))
    with pytest.raises(BuildError, match=r"the extent xor\(n, 1\); use save"):
        host_program(package)


def test_a_library_is_called_as_one(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"export_library writes .so, .dylib, .dll, found 'f.o'"):
        DeviceModule(scale()).export_library(tmp_path / "f.o")
