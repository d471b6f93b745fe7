"""`build`: from a program to a callable module."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.errors import BuildError, ScheduleError, TargetError
from ansor.ir.nest import Buffer, For, LoopKind, LoopNest, Store
from ansor.te.expr import Load, Var


def doubling(name: str = "main", kind: LoopKind = LoopKind.PARALLEL) -> LoopNest:
    """B[i] = A[i] + A[i] over n elements."""
    n, i = Var("n"), Var("i")
    a, b = Buffer("A", "float32", (n,)), Buffer("B", "float32", (n,))
    element = Load(a, (i,), "float32")
    return LoopNest(name, (a, b), (n,), For(i, n, kind, Store(b, (i,), element + element)), outputs=(1,))


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.PARALLEL])
def test_build_a_loop_nest(kind: LoopKind) -> None:
    module = ansor.build(doubling(kind=kind))
    x = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(module(x), 2 * x)
    assert module.entry_name == "main"
    assert "define void @ansor_main(" in module.get_source("ll")
    assert module.get_source("asm")


def test_only_schedules_can_be_lowered() -> None:
    a = ansor.te.placeholder((4,), name="A")
    b = ansor.te.compute((4,), lambda i: a[i] + 1.0, name="B")
    for refuse in (lambda: ansor.lower(b, [a, b]), lambda: ansor.build(b.op, [a, b])):
        with pytest.raises(ScheduleError, match=r"found .*'?B.*create_schedule"):
            refuse()


def test_names() -> None:
    assert ansor.build(doubling("twice")).entry_name == "twice"
    assert ansor.build(doubling("twice"), name="f").signature.symbol == "f"
    with pytest.raises(BuildError, match="'2x' is no C identifier"):
        ansor.build(doubling(), name="2x")


def test_targets() -> None:
    module = ansor.build(doubling(), target="llvm -num-cores=1")
    assert (module(np.ones(5, np.float32)) == 2).all()
    assert ansor.build(doubling(), target=ansor.Target("llvm -mcpu=native"))
    with pytest.raises(TargetError, match="not a CPU"):
        ansor.build(doubling(), target="metal")
    with pytest.raises(BuildError, match="needs its arguments"):
        ansor.build(object())  # type: ignore[arg-type]


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler (cc) is installed")
def test_the_default_name_can_be_exported(tmp_path: Path) -> None:
    path = ansor.build(doubling()).export_library(tmp_path / "k.so")
    assert "void ansor_main(const float *A, float *B, int64_t n);" in path.with_suffix(".h").read_text()
    assert (ansor.load_module(path)(np.ones(5, np.float32)) == 2).all()


ARM_PROGRAM = """
#include "double.h"
#include <stdio.h>
int main(void) {
    static float a[1001], b[1001];
    for (int i = 0; i < 1001; i++) a[i] = i;
    twice_set_num_threads(2);
    twice(a, b, 1001);
    int bad = 0;
    for (int i = 0; i < 1001; i++) bad += b[i] != 2 * a[i];
    printf("bad %d\\n", bad);
    return 0;
}
"""


@pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-gcc") and shutil.which("qemu-aarch64")),
    reason="no cross compiler or emulator (Debian: gcc-aarch64-linux-gnu, qemu-user)",
)
def test_cross_compilation(tmp_path: Path) -> None:
    module = ansor.build(doubling("twice"), target="llvm -mtriple=aarch64-linux-gnu")
    module.export_library(tmp_path / "double.so")
    (tmp_path / "main.c").write_text(ARM_PROGRAM)
    program = tmp_path / "main"
    sources = [tmp_path / "main.c", tmp_path / "double.so"]
    command = ["aarch64-linux-gnu-gcc", "-I", tmp_path, *sources, f"-Wl,-rpath,{tmp_path}", "-o", program]
    subprocess.run(command, check=True, timeout=60)
    emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", program]
    done = subprocess.run(emulator, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "bad 0\n"
