"""`build`: from a program to a callable module."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.errors import BuildError, TargetError
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
        ansor.build(doubling(), target="cuda")
    with pytest.raises(BuildError, match="needs its arguments"):
        ansor.build(object())  # type: ignore[arg-type]


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler (cc) is installed")
def test_the_default_name_can_be_exported(tmp_path: Path) -> None:
    path = ansor.build(doubling()).export_library(tmp_path / "k.so")
    assert "void ansor_main(const float *A, float *B, int64_t n);" in path.with_suffix(".h").read_text()
    assert (ansor.load_module(path)(np.ones(5, np.float32)) == 2).all()
