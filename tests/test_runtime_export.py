"""Modules in files: objects, libraries, headers, C programs, and another architecture under emulation."""

from __future__ import annotations

import _ctypes
import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.codegen.machine import Machine
from ansor.codegen.names import c_name
from ansor.errors import ArgumentError, BuildError
from ansor.runtime import export, pool
from ansor.runtime.pool import get_num_threads
from ansor.runtime.signature import Argument, Signature
from tests.runtime_kernels import axpy, scale

needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler (cc) is installed")
ARM_CC, ARM_RUN, ARM_ROOT = "aarch64-linux-gnu-gcc", "qemu-aarch64", Path("/usr/aarch64-linux-gnu")
needs_arm = pytest.mark.skipif(
    not (shutil.which(ARM_CC) and shutil.which(ARM_RUN) and ARM_ROOT.exists()),
    reason=f"{ARM_CC} and {ARM_RUN} are not installed (Debian: gcc-aarch64-linux-gnu, qemu-user)",
)

PROGRAM = """
#include "axpy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int wrong(float *c, int64_t n) {
    int bad = 0;
    for (int64_t i = 0; i < n; i++) bad += c[i] != 3.0f * i + 1;
    memset(c, 0, n * sizeof *c);
    return bad;
}

int main(void) {
    enum { N = 1003 };
    static float a[N], b[N], c[N];
    for (int i = 0; i < N; i++) a[i] = i, b[i] = i + 1;
    int bad = 0;
    for (int threads = 1; threads < 6; threads++) {
        axpy_set_num_threads(threads);
        for (int k = 0; k < 20; k++) {
            axpy(a, b, c, N);
            bad += wrong(c, N);
        }
    }
#ifndef NO_FORK
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        axpy(a, b, c, N);
        exit(wrong(c, N) != 0);
    }
    waitpid(child, &status, 0);
    bad += status;
#endif
    bad += strncmp(axpy_ansor_metadata, "ansor-module-1 {", 16) != 0;
    printf("bad %d\\n", bad);
    return bad != 0;
}
"""

TWO = """
#include "first.h"
#include "second.h"
#include <dirent.h>
#include <stdio.h>

static int threads(void) {
    int count = -2; /* . and .. */
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count;
}

int main(void) {
    float a[64], b[64], c[64];
    int bad = 0;
    for (int i = 0; i < 64; i++) a[i] = i, b[i] = 1;
    second_set_num_threads(1);
    second_set_num_threads(4);
    second(a, b, c, 64);
    for (int i = 0; i < 64; i++) bad += c[i] != 2 * a[i] + 1;
    printf("second %d threads, ", threads());
    first(c, b, a, 64);
    for (int i = 0; i < 64; i++) bad += a[i] != 2 * c[i] + 1;
    printf("first %d threads, bad %d\\n", threads(), bad);
    return bad;
}
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=120, check=False, **options
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def check(module: ansor.Module) -> None:
    a = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(module(a, a), a * 3)
    with pytest.raises(ArgumentError, match=r"'B' must be float32\[n\]; it has dtype float64"):
        module(a, a.astype(float))


def test_an_object_file_loads_again(tmp_path: Path) -> None:
    path = axpy().save(tmp_path / "k.o")
    module = ansor.load_module(path)
    assert module.entry_name == "axpy"
    check(module)
    with pytest.raises(BuildError, match="keeps no 'll' source"):
        module.get_source()
    again = module.save(tmp_path / "again.o")
    assert again.read_bytes() == path.read_bytes()


@needs_cc
def test_a_library_loads_again_beside_another(tmp_path: Path) -> None:
    ansor.set_num_threads(2)
    first = ansor.load_module(axpy("first").export_library(tmp_path / "first.so"))
    second = ansor.load_module(str(axpy("second", threads=1).export_library(tmp_path / "second.so")))
    for _ in range(3):
        check(first)
        check(second)
    ansor.set_num_threads(3)  # reaches the libraries' own pools
    assert get_num_threads() == 3
    check(first)
    assert first.time_evaluator(number=2)(*np.ones((2, 10), np.float32)).mean > 0
    ansor.set_num_threads(2)
    exported = run("nm", "-D", "--defined-only", tmp_path / "first.so") if shutil.which("nm") else ""
    assert "ansor_parallel_for" not in exported
    with pytest.raises(BuildError, match="its object file is gone"):
        first.save(tmp_path / "first.o")


@needs_cc
def test_a_library_that_is_loaded_often_is_told_its_threads_once(tmp_path: Path) -> None:
    path = axpy("often").export_library(tmp_path / "often.so")
    modules = [ansor.load_module(path)]
    check(modules[0])
    known = len(pool._foreign_setters)
    for _ in range(5):
        modules.append(ansor.load_module(path))
        check(modules[-1])
    assert len(pool._foreign_setters) == known


@needs_cc
def test_a_library_that_was_written_anew_is_loaded_anew(tmp_path: Path) -> None:
    """The system would give the code of before, which knows nothing of the new shapes."""
    path = tmp_path / "same.so"
    a = np.arange(100, dtype=np.float32)
    before = ansor.load_module(axpy("same").export_library(path))
    check(before)
    after = ansor.load_module(scale("float32", (4,), "same").export_library(path))
    assert after(a[3:7].copy())[0] == 3
    check(before)


@needs_cc
def test_a_library_can_be_unloaded_while_its_workers_are_parked(tmp_path: Path) -> None:
    path = axpy().export_library(tmp_path / "axpy.so")
    a, c = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    for _ in range(3):
        library = ctypes.CDLL(str(path))
        library.axpy_set_num_threads(4)
        library.axpy(*(ctypes.c_void_p(x.ctypes.data) for x in (a, a, c)), ctypes.c_int64(100))
        np.testing.assert_array_equal(c, a * 3)
        _ctypes.dlclose(library._handle)


@needs_cc
def test_a_c_program_calls_the_library(tmp_path: Path) -> None:
    axpy().export_library(tmp_path / "axpy.so")
    (tmp_path / "main.c").write_text(PROGRAM)
    command = ["cc", "-Wall", "-Werror", "-I", tmp_path, tmp_path / "main.c", tmp_path / "axpy.so"]
    run(*command, f"-Wl,-rpath,{tmp_path}", "-o", tmp_path / "main")
    assert run(tmp_path / "main") == "bad 0\n"


@needs_cc
def test_a_c_program_links_one_object_and_nothing_else(tmp_path: Path) -> None:
    kernel = axpy().save(tmp_path / "axpy.o")
    (tmp_path / "main.c").write_text(PROGRAM)
    run(
        "cc",
        "-Wall",
        "-Werror",
        "-I",
        tmp_path,
        tmp_path / "main.c",
        kernel,
        "-lpthread",
        "-o",
        tmp_path / "main",
    )
    assert run(tmp_path / "main") == "bad 0\n"


@needs_cc
@pytest.mark.parametrize("library", [False, True])
def test_objects_that_are_linked_together_share_a_pool(tmp_path: Path, library: bool) -> None:
    """The number that one setter sets holds for both; a target's limit holds for its own function."""
    objects = [
        axpy("first").save(tmp_path / "first.o"),
        axpy("second", threads=2).save(tmp_path / "second.o"),
    ]
    objects.append(ansor.load_module(objects[0]).save(tmp_path / "copy.o"))
    (tmp_path / "main.c").write_text(TWO)
    if library:
        run("cc", "-shared", *objects[1:], "-o", tmp_path / "both.so")
        objects = [tmp_path / "both.so"]
    run("cc", "-I", tmp_path, tmp_path / "main.c", *objects[:2], "-lpthread", "-o", tmp_path / "main")
    assert run(tmp_path / "main") == "second 2 threads, first 4 threads, bad 0\n"


@needs_cc
def test_a_kernel_without_parallel_loops_needs_no_threads(tmp_path: Path) -> None:
    module = scale("float32", (4,))
    ansor.load_module(module.save(tmp_path / "scale.o"))
    assert "pthread" not in run("nm", tmp_path / "scale.o")
    module.export_library(tmp_path / "scale.so")
    library = ctypes.CDLL(str(tmp_path / "scale.so"))
    library.scale_set_num_threads(3)


@needs_arm
def test_a_library_for_aarch64_runs_under_emulation(tmp_path: Path) -> None:
    axpy(machine=Machine.of("aarch64-linux-gnu", "generic")).export_library(tmp_path / "axpy.so")
    (tmp_path / "main.c").write_text(PROGRAM)
    # QEMU 7 itself fails when a forked child starts threads.
    command = [ARM_CC, "-DNO_FORK", "-I", tmp_path, tmp_path / "main.c", tmp_path / "axpy.so"]
    run(*command, f"-Wl,-rpath,{tmp_path}", "-o", tmp_path / "main")
    assert run(ARM_RUN, "-L", ARM_ROOT, tmp_path / "main") == "bad 0\n"


def test_refusals(tmp_path: Path) -> None:
    module = axpy()
    with pytest.raises(BuildError, match=r"save writes object files.*found 'k.so'"):
        module.save(tmp_path / "k.so")
    with pytest.raises(BuildError, match=r"export_library writes .so.*found 'k.o'"):
        module.export_library(tmp_path / "k.o")
    with pytest.raises(BuildError, match=r"tried no-such-cc.*or use save\(\)"):
        module.export_library(tmp_path / "k.so", cc="no-such-cc")
    with pytest.raises(BuildError, match=r"riscv64-unknown-linux-gnu|riscv64-linux-gnu-gcc"):
        export.find_linker("riscv64-unknown-linux-gnu", "no-such-cc")
    with pytest.raises(BuildError, match="cannot be written"):
        module.save(tmp_path / "missing" / "k.o")
    with pytest.raises(BuildError, match=r"k.so cannot be written: there is no folder '.*missing'; make it"):
        module.export_library(tmp_path / "missing" / "k.so")
    with pytest.raises(BuildError, match="cannot be read"):
        ansor.load_module(tmp_path / "missing.o")
    (tmp_path / "bad.o").write_bytes(b"ELF")
    with pytest.raises(BuildError, match="holds no ansor module"):
        ansor.load_module(tmp_path / "bad.o")
    (tmp_path / "k.txt").write_text("")
    with pytest.raises(BuildError, match=r"suffix; use one of .o"):
        ansor.load_module(tmp_path / "k.txt")


def test_a_linker_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"linking .* failed, exit status 1: false -shared"):
        axpy().export_library(tmp_path / "k.so", cc="false")


def test_the_header_names_types_and_shapes() -> None:
    arguments = (
        Argument("in", "bfloat16", ("n", 4)),
        Argument("2d.out", "uint8", (("mul", "n", 2),), output=True),
    )
    text = export.header(Signature("f", "f", arguments, ("n",), "t", "c"))
    assert "void f(const uint16_t *in, uint8_t *_2d_out, int64_t n);" in text
    assert " *   in: bfloat16[n, 4], read\n *   _2d_out: uint8[n*2], written\n" in text
    assert c_name("float") == "float_"


@pytest.mark.parametrize(("compiler", "suffix"), [("cc", ".c"), ("c++", ".cpp")])
def test_headers_compile_whatever_arguments_are_called(tmp_path: Path, compiler: str, suffix: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no compiler of {suffix} files ({compiler}) is installed")
    words = ("n", "a.b", "a_b", "not", "and", "compl", "decltype", "_Bool", "int64_t", "unix", "int", "int_")
    words += (
        "I",
        "NULL",
        "INT32_MAX",
        "EOF",
        "ERANGE",
        "SIGINT",
        "PRId64",
        "M_PI",
        "O_RDONLY",
        "errno",
        "NAN",
    )
    arguments = tuple(Argument(name, "float32", ("n", ("mul", "xor", 2))) for name in words)
    text = export.header(Signature("f", "f", arguments, ("n", "xor", "a.b"), "t", "c"))
    assert " *   n_1: float32[n, xor_*2], read\n" in text
    assert text.endswith("#endif\n")
    (tmp_path / "f.h").write_text(text)
    source = (tmp_path / "main").with_suffix(suffix)
    others = ("complex", "errno", "fcntl", "inttypes", "limits", "math", "signal", "stdio")
    includes = "".join(f"#include <{name}.h>\n" for name in others)
    source.write_text(includes + '#include "f.h"\nint main(void) { return sizeof(&f) == 0; }\n')
    run(compiler, "-Wall", "-Werror", "-fsyntax-only", source)
