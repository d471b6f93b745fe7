"""Padding that is computed where it is used, in programs of random sizes, paddings, strides and tiles."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from ansor import te, workloads
from ansor.ir.registers import RegisterLimits
from ansor.schedule.lowering import lower
from ansor.schedule.stages import ComputeAt
from ansor.schedule.state import State
from ansor.te.expr import int_value
from ansor.te.tensor import Tensor
from costmodel.extraction.extract import extract_forms
from costmodel.extraction.form import Form
from costmodel.extraction.skips import Skips
from costmodel.features.table import INDEX
from sketches import ProgramSpace
from tests.costmodel_executed import products_made
from tests.program_laws import check_results
from tests.sketches_cases import check_program, task_of

LIMITS = RegisterLimits(256, 16)
"""Of the tasks' target."""
WASTEFUL = {"max_tile_waste": 1.4}


def random_args(name: str, rng: np.random.Generator) -> tuple[int, ...]:
    """Sizes, a kernel, a stride and a padding of a workload on images `[n, h, w, c]`."""
    kernel, stride = int(rng.integers(2, 4 if name == "conv3d" else 5)), int(rng.integers(1, 4))
    padding = int(rng.integers(1, kernel))
    height, width, channels = (int(size) for size in rng.integers((kernel, kernel, 1), (12, 12, 20)))
    if name == "transposed_conv2d":
        return 1, height, width, channels, 1, int(rng.integers(3, 5)), int(rng.integers(1, 3)), 1
    if name in ("conv2d", "conv3d"):
        depth = (int(rng.integers(2, 4)) * kernel,) if name == "conv3d" else ()
        filters, dilation = int(rng.integers(1, 10 if depth else 20)), int(rng.integers(1, 3))
        sizes = height + kernel, width + kernel, min(channels, 2 if depth else 6)
        return 1, *depth, *sizes, filters, kernel, stride, padding, dilation
    dilation = (int(rng.integers(1, 3)),) if name == "depthwise_conv2d" else ()
    return 1, height + kernel, width + kernel, channels, kernel, stride, padding, *dilation


def inlined_programs(name: str, rng: np.random.Generator, count: int) -> list[State]:
    task = task_of(list(workloads.get_workload(name).function(*random_args(name, rng))))
    space = ProgramSpace.of(task, WASTEFUL)
    found = [population.materialize(row) for population, row in space.sample(8 * count, rng).in_order()]
    return [state for state in found if any(s.compute_at is ComputeAt.INLINED for s in state.stages)][:count]


@pytest.fixture(autouse=True)
def _any_padding_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that images are small enough to be interpreted."""
    monkeypatch.setattr("sketches.rules.inlined_padding.LITTLE", np.inf)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name", ["conv2d", "conv3d", "depthwise_conv2d", "max_pool2d", "avg_pool2d", "transposed_conv2d"]
)
def test_programs_with_inlined_padding_compute_the_expression(name: str, seed: int) -> None:
    """Interpreted, which notices every read out of bounds, and compiled."""
    states = inlined_programs(name, np.random.default_rng([seed, 17]), 2)
    assert states
    for state in states:
        check_program(state)
        check_results(state)


@pytest.mark.parametrize(("size", "expected"), [(7, True), (14, True), (28, True), (56, False)])
def test_convolutions_of_small_images_are_also_spared_their_padding(size: int, expected: bool) -> None:
    task = task_of(workloads.conv2d(1, size, size, 64, 64, 3, 1, 1))
    sketches = ProgramSpace.of(task, {}).sketches
    inlined = [any(s.compute_at is ComputeAt.INLINED for s in sketch.state.stages) for sketch in sketches]
    assert any(inlined) == expected
    assert not all(inlined)


def made_by(state: State) -> tuple[int, int]:
    """How many terms a program adds, and how many its definition has."""
    op = next(one for one in state.dag.ops if getattr(one, "reduce_axis", ()))
    defined = prod(int_value(axis.extent) or 1 for axis in (*op.axis, *op.reduce_axis))
    return products_made(lower(state, limits=LIMITS)), defined


@pytest.mark.parametrize("name", ["conv2d", "conv3d", "depthwise_conv2d"])
def test_the_cost_model_knows_which_terms_are_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows whose tiles divide; where it is wrong it takes a program to do more than it does."""
    rng = np.random.default_rng(23)
    told = []
    for _ in range(4):
        task = task_of(list(workloads.get_workload(name).function(*random_args(name, rng))))
        space = ProgramSpace.of(task, {"max_tile_waste": 1.0})
        for population in space.sample(24, rng).populations:
            state = population.materialize(0)
            if not any(s.compute_at is ComputeAt.INLINED for s in state.stages):
                continue
            form = Form.of_population(population)
            work = INDEX["work"]
            with_skips = extract_forms(task, [form], scaled=False)
            with monkeypatch.context() as patch:
                patch.setattr(Skips, "made", lambda self, at, extent, *_: np.ones(extent.shape[1]))
                without = extract_forms(task, [form], scaled=False)
            rows = slice(with_skips.offsets[0], with_skips.offsets[1])
            share = with_skips.values[rows, work].sum() / without.values[rows, work].sum()
            terms, all_terms = made_by(state)
            told.append((share, terms / all_terms))
    exact = sum(np.isclose(a, b, rtol=0.02) for a, b in told)
    assert len(told) >= 8
    assert exact >= 0.8 * len(told), told


def zeros_between(size: int, channels: int, last: str) -> list[Tensor]:
    """A transposed convolution by the book, stride 2: pixels with zeros between them, a 3 x 3 kernel."""
    n, shape = 2 * size, (size, size, channels) if last == "channels" else (channels, size, size)
    x, w = te.placeholder(shape, name="X"), te.placeholder((3, 3, channels, channels), name="W")
    r, s, k = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s"), te.reduce_axis((0, channels), "k")

    def at(h: te.Expr, v: te.Expr, c: te.Expr) -> tuple[te.Expr, ...]:
        return (h, v, c) if last == "channels" else (c, h, v)

    def zeros(h: te.Expr, v: te.Expr, c: te.Expr) -> te.Expr:
        odd = te.all(h >= 1, h < n, (h - 1) % 2 == 0, v >= 1, v < n, (v - 1) % 2 == 0)
        return te.if_then_else(odd, x[at((h - 1) // 2, (v - 1) // 2, c)], 0.0)

    def product(h: te.Expr, v: te.Expr, c: te.Expr) -> te.Expr:
        return te.sum(wide[at(h + r, v + s, k)] * w[2 - r, 2 - s, k, c], axis=[r, s, k])

    def compute(height: int, function: Callable[..., te.Expr], name: str) -> Tensor:
        if last == "channels":
            return te.compute((height, height, channels), function, name=name)
        return te.compute((channels, height, height), lambda c, h, v: function(h, v, c), name=name)

    wide = compute(n + 2, zeros, "Wide")
    return [x, w, compute(n, product, "Conv")]


def test_zeros_between_elements_are_never_stored_where_vectors_lie_along_another_axis() -> None:
    """Three quarters of the products are of zeros; where vectors run across these, they would gather."""
    kept = {}
    for last in ("channels", "columns"):
        sketches = ProgramSpace.of(task_of(zeros_between(8, 16, last)), {}).sketches
        kept[last] = [
            not any(s.compute_at is ComputeAt.INLINED for s in one.state.stages) for one in sketches
        ]
    assert not any(kept["channels"])
    assert all(kept["columns"])


def test_programs_without_the_zeros_between_elements_compute_the_expression() -> None:
    space = ProgramSpace.of(task_of(zeros_between(3, 5, "channels")), WASTEFUL)
    states = [
        population.materialize(row)
        for population, row in space.sample(6, np.random.default_rng(29)).in_order()
    ]
    assert states
    for state in states:
        check_program(state)
        check_results(state)
        made, defined = made_by(state)
        assert made <= defined


def test_upsampled_images_which_have_no_zeros_between_elements_are_stored() -> None:
    """They would be read out of order, for the few terms at the border."""
    x, w = te.placeholder((16, 8), name="X"), te.placeholder((3, 8, 16), name="W")
    wide = te.compute(
        (34, 8),
        lambda h, c: te.if_then_else(te.all(h >= 1, h <= 32), x[(h - 1) // 2, c], 0.0),
        name="Wide",
    )
    r, k = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 8), "k")
    conv = te.compute((32, 16), lambda h, c: te.sum(wide[h + r, k] * w[r, k, c], axis=[r, k]), name="Conv")
    for sketch in ProgramSpace.of(task_of([x, w, conv]), {}).sketches:
        assert not any(stage.compute_at is ComputeAt.INLINED for stage in sketch.state.stages)
