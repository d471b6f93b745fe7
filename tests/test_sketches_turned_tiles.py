"""Turned tiles: vectors along another axis than the last one, and what is packed for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ansor
from ansor import te, workloads
from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.te import Tensor
from sketches import ProgramSpace, Sketch, generate_sketches
from tests.program_laws import Case, check_all
from tests.sketches_cases import HARDWARE, check_program, matmul, matmul_relu

AVX2 = "llvm -mcpu=core-avx2"
AVX512 = "llvm -mcpu=x86-64-v4"
FREE = 2
"""The layout option of weights that the caller brings into the program's layout."""


def channels_first(size: int, channels: int, out: int, kernel: int = 3, stride: int = 1) -> list[Tensor]:
    """A convolution of an image, its channels first, and a bias and a ReLU behind it."""
    x, w, y = workloads.conv2d_nchw(1, size, size, channels, out, kernel, stride, kernel // 2)
    bias = te.placeholder((out,), name="Bias")
    last = te.compute(y.shape, lambda n, c, h, w: te.max(y[n, c, h, w] + bias[c], 0.0), name="Out")
    return [x, w, bias, last]


def transposed_product(n: int, m: int, k: int) -> list[Tensor]:
    """The transpose of a matrix product, and a ReLU of it."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda j, i: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return [a, b, te.compute((m, n), lambda j, i: te.max(c[j, i], 0.0), name="Out")]


def task(tensors: list[Tensor], target: str = AVX2, layout: int = 0) -> Task:
    """A task whose vectors are those of the target."""
    hardware = replace(HARDWARE, vector_unit_bytes=64 if target == AVX512 else 32)
    dag = ansor.ComputeDAG(tensors)
    return Task.create(dag, "[]", target, hardware_params=hardware, layout_rewrite_option=layout)


def sketches(tensors: list[Tensor], target: str = AVX2, layout: int = 0) -> list[Sketch]:
    return generate_sketches(task(tensors, target, layout))


def turned(found: list[Sketch]) -> list[Sketch]:
    return [sketch for sketch in found if "TurnedTiling" in sketch.rules]


def loops(state: State, stage: str) -> list[str]:
    return [loop.name for loop in state.stages[state.stage_id(stage)].iterators]


# -- which -------------------------------------------------------------------------------------------------


def test_channels_become_the_vectors_of_short_rows() -> None:
    found = turned(sketches(channels_first(7, 16, 16), layout=FREE))
    assert found
    for sketch in found:
        assert loops(sketch.state, "Conv")[-4:] == ["n.3", "h.3", "w.3", "c.3"]
        assert loops(sketch.state, "Out")[-1].startswith("w.")
        assert "AddPackedRead" not in sketch.rules


def test_the_vectors_of_good_rows_stay() -> None:
    assert not turned(sketches(channels_first(16, 16, 16), layout=FREE))
    assert turned(sketches(channels_first(28, 16, 16), layout=FREE))  # four of 32 lanes are idle
    assert not turned(sketches(channels_first(24, 16, 16), layout=FREE))
    assert turned(sketches(channels_first(24, 16, 16), target=AVX512, layout=FREE))


def test_rows_whose_elements_are_gathered_are_left() -> None:
    """With a stride of 2 neighbours in a row of the output read every other element."""
    assert turned(sketches(channels_first(16, 16, 16, stride=2), layout=FREE))


def test_what_has_good_vectors_keeps_them() -> None:
    convolution = list(workloads.conv2d(1, 7, 7, 16, 16, 3))
    for tensors in (matmul_relu(64, 64, 64), matmul(100, 100, 100), convolution):
        assert not turned(sketches(tensors, layout=FREE))


def test_channels_that_fill_no_vector_make_none() -> None:
    assert not turned(sketches(channels_first(7, 16, 3), layout=FREE))


def test_a_product_that_is_written_transposed_has_vectors_along_the_other_operand() -> None:
    found = turned(sketches(transposed_product(20, 32, 16)))
    assert found
    assert all(loops(sketch.state, "C")[-1] == "j.3" for sketch in found)
    assert not any("AddPackedRead" in sketch.rules for sketch in found)


def test_weights_that_are_not_free_of_layout_are_packed() -> None:
    found = turned(sketches(channels_first(7, 16, 16)))
    assert found
    for sketch in found:
        assert "AddPackedRead" in sketch.rules
        assert any(stage.name == "W.local" for stage in sketch.state.stages)


def test_without_packing_nothing_is_turned_for_the_sake_of_gathered_weights() -> None:
    assert not turned(generate_sketches(task(channels_first(7, 16, 16)), {"cpu_packed_read": 0}))


def test_a_stage_of_its_own_is_turned_by_its_cache() -> None:
    x, w, y = workloads.conv2d_nchw(1, 7, 7, 16, 16, 3, 1, 1)
    found = turned(sketches([x, w, y], layout=FREE))
    assert found
    assert all("AddCacheWrite" in sketch.rules for sketch in found)


def test_only_the_axis_that_takes_the_fewest_copies_is_tried() -> None:
    """Rows of the left operand are packed; images of a batch would take both operands."""
    a, b = te.placeholder((16, 64, 32), name="A"), te.placeholder((16, 32, 7), name="B")
    r = te.reduce_axis((0, 32), name="r")
    c = te.compute((16, 64, 7), lambda n, i, j: te.sum(a[n, i, r] * b[n, r, j], axis=r), name="C")
    found = turned(sketches([a, b, c]))
    assert {tuple(loops(sketch.state, "C.local")[-1:]) for sketch in found} == {("i_c.3",)}
    assert all(any(stage.name == "A.local" for stage in sketch.state.stages) for sketch in found)


def test_rows_of_an_image_become_the_vectors_of_few_channels() -> None:
    """What the window of a tile passes over is packed; six channels leave two of eight lanes idle."""
    found = turned(sketches(list(workloads.conv2d(1, 9, 16, 3, 3, 3, 1, 1))))
    assert {tuple(loops(sketch.state, "Conv.local")[-1:]) for sketch in found} == {("w_c.3",)}
    assert all(any(stage.name == "Pad.local" for stage in sketch.state.stages) for sketch in found)
    assert not turned(sketches(list(workloads.conv2d(1, 9, 16, 3, 6, 3, 1, 1))))


def test_rows_that_a_window_passes_over_by_twos_are_no_vectors() -> None:
    assert not turned(sketches(list(workloads.conv2d(1, 32, 32, 3, 3, 3, 2, 1))))


def test_windows_that_move_backwards_lie_along_their_rows() -> None:
    z, w = te.placeholder((4, 36), name="Z"), te.placeholder((3, 4, 16), name="W")
    r, k = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 4), "k")
    y = te.compute((16, 32), lambda f, i: te.sum(w[r, k, f] * z[k, i - r + 4], axis=[r, k]), name="Y")
    assert not turned(sketches([z, w, y]))


def test_what_could_not_be_packed_is_not_turned() -> None:
    """An input with no one layout that fits, and one of several results of a stage."""
    x, w = te.placeholder((17, 7), name="X"), te.placeholder((32, 17), name="W")
    r = te.reduce_axis((0, 16), name="r")
    twice = te.compute(
        (32, 7),
        lambda j, i: te.sum(w[j, r] * x[r, i] + w[j, r + 1] * x[r + 1, i], axis=r),
        name="C",
        attrs={"layout_free_placeholders": [w]},
    )
    assert not turned(sketches([x, w, twice], layout=FREE))
    z = te.placeholder((32, 16), name="Z")
    _, q = te.compute((32, 16), lambda j, k: (z[j, k], z[j, k] * 2.0), name="PQ")
    product = te.compute((32, 7), lambda j, i: te.sum(x[r, i] * q[j, r], axis=r), name="D")
    assert not turned(sketches([x, z, product]))


def test_the_reference_has_none() -> None:
    assert not turned(generate_sketches(task(channels_first(7, 16, 16)), ansor.REFERENCE_SPACE))


# -- their programs ----------------------------------------------------------------------------------------

CASES = {
    "channels first": lambda: channels_first(7, 3, 16),
    "strided": lambda: channels_first(9, 2, 24, stride=2),
    "points": lambda: channels_first(6, 5, 16, kernel=1),
    "three channels": lambda: list(workloads.conv2d(1, 5, 15, 3, 3, 3, 1, 1)),
    "transposed product": lambda: transposed_product(9, 16, 6),
    "transposed product, odd sizes": lambda: transposed_product(11, 26, 5),
}


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_programs_compute_what_was_asked(name: str, layout: int) -> None:
    case = task(CASES[name](), layout=layout)
    space = ProgramSpace.of(case)
    kept = tuple(sketch for sketch in space.sketches if "TurnedTiling" in sketch.rules)
    assert kept
    only = ProgramSpace(space.context, kept, space.annotators)
    for state in ansor.sample_programs(case, 6, np.random.default_rng(7), space=only):
        check_program(state)
        check_all(Case.of(ansor.rewrite_layouts(state, layout).state if layout else state))
