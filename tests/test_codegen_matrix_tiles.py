"""Products of matrices by the matrix unit of x86, emulated where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.intrinsics.matrix import MATRIX_TILES
from ansor.ir.nest import For, LoopKind, LoopNest, Store, seq
from ansor.ir.rewriting import in_rows
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.te import Tensor
from ansor.te.expr import Const, Var
from ansor.workloads import conv2d
from sketches import generate_sketches, sample_programs
from tests import matrix_unit
from tests.matrix_unit import build_emulated, machine_with_unit
from tests.program_laws import Case
from tests.sketches_cases import task_of

TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -num-cores=2"
WORD = {"bfloat16": 2, "int8": 4, "uint8": 4}
BFLOATS = ("bfloat16", "bfloat16", "float32")
INTRINSICS = {
    BFLOATS: "x86.vdpbf16ps.512",
    ("uint8", "int8", "int32"): "x86.vpdpbusd.512",
    ("int8", "int8", "int32"): "x86.vpdpbusd.s8s8.512",
    ("uint8", "uint8", "int32"): "x86.vpdpbusd.u8u8.512",
}


def words(
    rows: int, columns: int, step: int, first: str, second: str, sums: str, parts: int = 2
) -> tuple[list[Tensor], Any]:
    """C[i, j] of A[i, k] and of B in words, [k // word, j, k % word], and a schedule of its product.

    Rows are inside of a loop over `parts` of the reduction, of `step` words.
    """
    count = parts * step
    word = WORD[first]
    a = te.placeholder((rows, count * word), first, "A")
    b = te.placeholder((count, columns, word), second, "B")
    k, p = te.reduce_axis((0, count), "k"), te.reduce_axis((0, word), "p")
    c = te.compute(
        (rows, columns),
        lambda i, j: te.sum(te.cast(a[i, k * word + p], sums) * te.cast(b[k, j, p], sums), axis=[k, p]),
        name="C",
    )
    s = te.create_schedule(c)
    i, j = c.op.axis
    outer, inner = s[c].split(j, factor=16)
    far, near = s[c].split(k, factor=step)
    s[c].reorder(far, i, outer, near, inner, p)
    s[c].tensorize(inner, INTRINSICS[first, second, sums])
    return [a, b, c], s


def nest_of(tensors: list[Tensor], s: Any) -> LoopNest:
    return lower(s, tensors, limits=machine_with_unit().register_limits)


def check(tensors: list[Tensor], nest: LoopNest, calls: int | None = None) -> None:
    """Emulated, the program computes what its graph says, by so many instructions of the unit."""
    del matrix_unit.multiplied[:]
    case = Case.of(State.initial(ansor.ComputeDAG(tensors)))
    arrays = case.arrays()
    build_emulated(nest)(*arrays)
    case.check(arrays)
    if calls is not None:
        assert len(matrix_unit.multiplied) == calls


@pytest.mark.parametrize("dtypes", MATRIX_TILES, ids=MATRIX_TILES.get)
@pytest.mark.parametrize(
    ("rows", "columns", "step", "calls"),
    [(16, 16, 16, 1), (5, 16, 4, 1), (40, 48, 32, 18), (33, 16, 48, 9), (16, 112, 24, 14), (4, 48, 11, 3)],
)
def test_products_are_what_they_should_be(
    dtypes: tuple[str, str, str], rows: int, columns: int, step: int, calls: int
) -> None:
    """Tiles that are full or not, in one group or several; so many words as divide the terms are in each."""
    tensors, s = words(rows, columns, step, *dtypes)
    check(tensors, nest_of(tensors, s), 2 * calls)
    assert set(matrix_unit.multiplied) == {MATRIX_TILES[dtypes]}


def test_a_loop_over_terms_may_be_outside_of_rows() -> None:
    tensors, s = words(32, 32, 16, *BFLOATS, parts=4)
    check(tensors, nest_of(tensors, s), 2 * 2 * 4)


@pytest.mark.parametrize(("rows", "step"), [(3, 16), (16, 3), (16, 19)])
def test_few_rows_or_words_are_left_to_vectors(rows: int, step: int) -> None:
    tensors, s = words(rows, 16, step, *BFLOATS)
    assert "llvm.x86.tdp" not in emit_llvm(nest_of(tensors, s), machine_with_unit(), "kernel")


def test_a_process_asks_for_the_unit_before_it_is_used() -> None:
    tensors, s = words(16, 16, 16, *BFLOATS)
    lines = emit_llvm(nest_of(tensors, s), machine_with_unit(), "kernel").splitlines()
    at = [number for number, line in enumerate(lines) if "call void @ansor.allow_tiles()" in line]
    first = next(number for number, line in enumerate(lines) if "call void @llvm.x86.ldtilecfg" in line)
    assert len(at) == 1
    assert at[0] < first


def test_sums_begin_as_registers_of_zeros() -> None:
    tensors, s = words(32, 32, 16, *BFLOATS)
    text = emit_llvm(nest_of(tensors, s), machine_with_unit(), "kernel")
    assert text.count("call void @llvm.x86.tilezero") == 4
    assert "store <" not in text


@pytest.mark.parametrize("zero", [0.0, 1.0])
def test_sums_that_begin_with_something_else_are_loaded(zero: float) -> None:
    """Another number, or zeros in more elements than the product has."""
    tensors, s = words(32, 32, 16, *BFLOATS)
    nest = nest_of(tensors, s)
    *_, product = nest.body.stmts  # type: ignore[attr-defined]
    (c,) = (nest.params[position] for position in nest.outputs)
    wide = replace(c, shape=(33, 32), strides=(32, 1))
    i, j = Var("i"), Var("j")
    value = Const(zero, "float32")
    more = For(i, 33, LoopKind.SERIAL, For(j, 32, LoopKind.SERIAL, Store(wide, (i, j), value)))
    body = in_rows(product, {}, {c: (wide, ())})
    params = tuple(wide if one is c else one for one in nest.params)
    made = replace(nest, params=params, body=seq(more, body))
    assert "call void @llvm.x86.tilezero" not in emit_llvm(made, machine_with_unit(), "kernel")


def product(dtypes: tuple[str, str, str], rows: int, columns: int, terms: int, relu: bool) -> list[Tensor]:
    first, second, sums = dtypes
    a, b = te.placeholder((rows, terms), first, "A"), te.placeholder((terms, columns), second, "B")
    k = te.reduce_axis((0, terms), "k")
    c = te.compute(
        (rows, columns),
        lambda i, j: te.sum(te.cast(a[i, k], sums) * te.cast(b[k, j], sums), axis=k),
        name="C",
    )
    if not relu:
        return [a, b, c]
    d = te.compute((rows, columns), lambda i, j: te.maximum(c[i, j], te.const(0, sums)), name="D")
    return [a, b, d]


def convolution(size: int, channels: int, filters: int) -> list[Tensor]:
    return list(conv2d(1, size, size, channels, filters, 3, 1, 1, 1, 1, "bfloat16", "float32", "bfloat16"))


SPACES = {
    "product": lambda: product(BFLOATS, 64, 64, 64, relu=False),
    "with an activation": lambda: product(BFLOATS, 48, 80, 96, relu=True),
    "ragged": lambda: product(BFLOATS, 37, 50, 72, relu=True),
    "of bytes": lambda: product(("uint8", "int8", "int32"), 40, 48, 128, relu=False),
    "convolution": lambda: list(
        ansor.workloads.conv2d(1, 9, 9, 32, 32, 3, 1, 1, 1, 1, *BFLOATS[::2], BFLOATS[1])
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_programs_of_the_search_are_right(name: str) -> None:
    """Rows of tiles are set apart in all of them; what computes padding inside of products is no tile."""
    tensors = SPACES[name]()
    task = task_of(tensors, TARGET)
    assert all("TensorIntrinsicRule" in sketch.explain() for sketch in generate_sketches(task))
    counts = []
    for state in sample_programs(task, 6, np.random.default_rng(3)):
        nest = lower(state, limits=machine_with_unit().register_limits)
        check(tensors, nest)
        counts.append(len(matrix_unit.multiplied))
    assert sum(map(bool, counts)) >= 2, counts


@pytest.mark.skipif(not Machine.host().matrix_unit, reason="this machine has no matrix unit")
@pytest.mark.parametrize("name", SPACES)
def test_the_real_unit_computes_the_same(name: str) -> None:
    tensors = SPACES[name]()
    task = task_of(tensors, "llvm")
    by_unit = 0
    for state in sample_programs(task, 4, np.random.default_rng(5)):
        module = ansor.build(state, tensors)
        case = Case.of(state)
        arrays = case.arrays()
        module(*arrays)
        case.check(arrays)
        by_unit += "llvm.x86.tdp" in module.get_source("ll")
    assert by_unit
