"""Winograd's convolution: its stated rounding error, and how its stages are scheduled."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError
from ansor.schedule.stages import ComputeAt
from ansor.te import Tensor
from ansor.te.interp import evaluate
from ansor.workloads import CATALOGUE, conv2d, conv2d_winograd
from ansor.workloads.winograd import amplification
from costmodel.explain import FeatureTable
from measure.correctness.tolerance import alternative_tolerance, output_tolerance
from measure.workers.check import mismatch, rms
from sketches import ProgramSpace
from tests.sketches_cases import task_of

EPS = 2.0**-23
UNROLLED = {"cpu_unrolled_tiles": 2}
Array = npt.NDArray[Any]


def answers(channels: int, tile: int, then: str = "") -> tuple[Array, Array, Tensor]:
    """The convolution, and what is to follow it, directly in float64; by tiles in float32; its tensor."""
    rng = np.random.default_rng(channels)
    sizes = (1, 12, 12, channels, 4)
    direct, tiled = CATALOGUE[f"conv2d{then}"], CATALOGUE[f"conv2d{then}_winograd"]
    found = []
    for tensors in (
        direct.tensors(*direct.with_dtype((*sizes, 3, 1, 1), "float64")),
        tiled.tensors(*sizes, tile),
    ):
        *inputs, output = tensors
        arrays = [rng.standard_normal(t.shape).astype(np.float32).astype(t.dtype) for t in inputs]
        found.append(evaluate(output, dict(zip(inputs, arrays, strict=True)))[output])
        rng = np.random.default_rng(channels)
    return found[0], found[1], output


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("channels", [3, 64, 256])
@pytest.mark.parametrize("then", ["", "_bn_relu", "_nchw"])
def test_the_error_is_within_what_is_stated(tile: int, channels: int, then: str) -> None:
    """The tolerance holds against double precision, and is not ten times what it need be.

    Nor does it change with what follows, which scales errors as it does values.
    """
    exact, found, output = answers(channels, tile, then)
    direct = CATALOGUE[f"conv2d{then}"].tensors(1, 12, 12, channels, 4, 3, 1, 1)[-1]
    tolerance = alternative_tolerance(output_tolerance(direct), output)
    assert tolerance.relative >= amplification(tile) * output_tolerance(direct).relative
    bound = tolerance.relative * (np.abs(exact) + rms(exact))
    assert (np.abs(found - exact) <= bound).all()
    worst = np.abs(found - exact).max() / rms(exact)
    assert worst > EPS


def test_larger_tiles_amplify_more() -> None:
    """Errors grow with the tile, and so does what is stated of them."""
    assert amplification(2) < 2 < 30 < amplification(4) < 32
    spread = []
    for tile in (2, 4):
        exact, found, _ = answers(256, tile)
        spread.append(np.std(found - exact))
    assert spread[0] < spread[1]


def test_other_tiles_are_refused() -> None:
    with pytest.raises(DefinitionError, match="tiles of 3"):
        conv2d_winograd(1, 8, 8, 4, 4, 3)


def test_transforms_are_unrolled_around_vectors_inside_their_consumer() -> None:
    """Each transform has its tile around channels, with the axis that its sums depend on innermost, unrolled.

    Half transforms live in one tile.
    """
    task = ansor.SearchTask("ansor.conv2d_winograd", (1, 9, 7, 16, 16, 4))
    state = ansor.generate_sketches(task, UNROLLED)[0].state
    stage = {stage.name: stage for stage in state.stages}
    assert [loop.name for loop in stage["Tile"].iterators] == ["p", "c.0", "e", "v", "c.1"]
    assert [loop.name for loop in stage["TileHalf"].iterators] == ["p", "v", "e", "c"]
    assert [loop.name for loop in stage["Conv"].iterators] == ["n", "h.0", "w.0", "c.0", "h.1", "w.1", "c.1"]
    assert [loop.annotation.name for loop in stage["Conv"].iterators[4:6]] == ["NONE", "UNROLL"]
    hosts = {state.stages[one].name: state.stages[at[0]].name for one, at in state.attach.items()}
    assert hosts["Pad"] == "TileHalf"
    assert hosts["TileHalf"] == "Tile"
    assert hosts["KernelHalf"] == "Kernel"
    assert hosts["Back"] == "Conv"


def test_what_follows_element_by_element_is_computed_with_the_output() -> None:
    """The last of a chain has the tile of the transform, which is inlined: no further pass over memory."""
    x, w, conv = conv2d_winograd(1, 9, 7, 16, 16, 4)
    scale = te.placeholder((16,), name="Scale")
    scaled = te.compute(conv.shape, lambda n, h, w, c: conv[n, h, w, c] * scale[c], name="Scaled")
    y = te.compute(conv.shape, lambda i, j, k, c: te.tanh(scaled[i, j, k, c]), name="Y")
    for sketch in ansor.generate_sketches(task_of([x, w, scale, y]), UNROLLED):
        stage = {stage.name: stage for stage in sketch.state.stages}
        for name in ("Conv", "Scaled"):
            assert stage[name].compute_at is ComputeAt.INLINED
        loops = stage["Y"].iterators
        tiles = ["j.0"] if len(loops) == 7 else ["j.0.0", "j.0.1"]
        assert [loop.name for loop in loops] == ["i", *tiles, "k.0", "c.0", "j.1", "k.1", "c.1"]
        assert [loop.extent for loop in loops[-3:-1]] == [4, 4]
        back = sketch.state.stage_id("Back")
        assert sketch.state.stages[sketch.state.attach[back][0]].name == "Y"


@pytest.mark.parametrize(("images", "blocks"), [(1, ["h.0.0"]), (2, ["n.0", "h.0.0"])])
def test_products_and_the_tiles_they_read_may_be_in_blocks(images: int, blocks: list[str]) -> None:
    """In one sketch for each axis along which tiles may be cut; transformed weights are whole for all."""
    task = ansor.SearchTask("ansor.conv2d_winograd", (images, 9, 7, 16, 16, 4))
    found = []
    for sketch in ansor.generate_sketches(task, UNROLLED):
        state = sketch.state
        products, tiles, weights = (state.stage_id(name) for name in ("Products", "Tile", "Kernel"))
        if products not in state.attach:
            continue
        conv, at = state.attach[products]
        assert state.stages[conv].name == "Conv"
        assert state.attach[tiles] == (conv, at)
        assert state.stages[weights].compute_at is ComputeAt.ROOT
        assert state.attach[state.stage_id("TileHalf")][0] == tiles
        found.append(state.stages[conv].iterators[at].name)
    assert found == blocks
    (plain, *_) = ansor.generate_sketches(task, {"cpu_unrolled_tiles": 1})
    assert plain.state.stage_id("Products") not in plain.state.attach


def test_products_that_others_read_too_are_in_no_block() -> None:
    x, w, conv = conv2d_winograd(1, 9, 7, 16, 16, 4)
    products = next(op for op in ansor.ComputeDAG([x, w, conv]).ops if op.name == "Products").output(0)
    other = te.compute(products.shape, lambda *i: products(*i) + 1, name="Other")
    task = task_of([x, w, conv, other])
    found = [one.state.steps for one in ansor.generate_sketches(task, UNROLLED)]
    assert found == [one.state.steps for one in ansor.generate_sketches(task, {"cpu_unrolled_tiles": 1})]


@pytest.mark.parametrize(("size", "then"), [(9, True), (3, False)])
def test_no_loop_is_cut_into_blocks_that_would_hold_nothing(size: int, then: bool) -> None:
    """Of a convolution and what follows it both are wanted, or there is one tile along the image."""
    x, w, conv = conv2d_winograd(1, size, size, 16, 16, 4)
    after = [te.compute(conv.shape, lambda *i: te.tanh(conv(*i)), name="Y")] if then else []
    for sketch in ansor.generate_sketches(task_of([x, w, conv, *after]), UNROLLED):
        state = sketch.state
        cut = [stage.name for stage in state.stages for loop in stage.iterators if loop.name == "h.0.1"]
        assert cut == ["Conv"] * (state.stage_id("Products") in state.attach)
        assert then or not cut


def larger_of_columns() -> list[Tensor]:
    """Each element is used, but not for one of the same place."""
    x, w, conv = conv2d_winograd(1, 9, 7, 16, 16)
    y = te.compute((1, 9, 16), lambda n, h, c: te.maximum(conv[n, h, 0, c], conv[n, h, 1, c]), name="Y")
    return [x, w, y]


def sums() -> list[Tensor]:
    """Each element is used for one of the same place, by a reduction."""
    x, w, conv = conv2d_winograd(1, 9, 7, 16, 16)
    k, r = te.placeholder((4,), name="K"), te.reduce_axis((0, 4), "r")
    return [x, w, k, te.compute(conv.shape, lambda *i: te.sum(conv(*i) * k[r], axis=r), name="Y")]


def total() -> list[Tensor]:
    """All elements are added up, to one number without axes."""
    x, w, conv = conv2d_winograd(1, 9, 7, 16, 16)
    axes = [te.reduce_axis((0, int(extent)), f"r{at}") for at, extent in enumerate(conv.shape)]  # type: ignore[arg-type]
    return [x, w, te.compute((), lambda: te.sum(conv(*axes), axis=axes), name="Y")]


def two_outputs() -> list[Tensor]:
    x, w, conv = conv2d_winograd(1, 9, 7, 16, 16)
    return [x, w, conv, te.compute(conv.shape, lambda *i: te.exp(conv(*i)), name="Y")]


def two_readers() -> list[Tensor]:
    x, w, conv = conv2d_winograd(1, 9, 7, 16, 16)
    return [x, w, *(te.compute(conv.shape, lambda *i: te.exp(conv(*i)), name=name) for name in ("Y", "Z"))]


@pytest.mark.parametrize("computation", [larger_of_columns, sums, total, two_outputs, two_readers])
def test_a_transform_that_is_needed_otherwise_is_stored(computation: Callable[[], list[Tensor]]) -> None:
    for sketch in ansor.generate_sketches(task_of(computation()), UNROLLED):
        stage = {stage.name: stage for stage in sketch.state.stages}
        assert stage["Conv"].compute_at is ComputeAt.ROOT


def test_transforms_that_are_added_are_computed_together() -> None:
    """One is inlined; of the other, whose tiles are smaller, each tile of the sum computes what it needs."""
    x, w, one = conv2d_winograd(1, 9, 7, 6, 16, 4)
    other_x, other_w, other = conv2d_winograd(1, 9, 7, 5, 16, 2)
    y = te.compute(one.shape, lambda *i: one(*i) + other(*i), name="Sum")
    task, rng = task_of([x, w, other_x, other_w, y]), np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, t.shape).astype(np.float32) for t in (x, w, other_x, other_w)]
    expected = evaluate(y, dict(zip((x, w, other_x, other_w), arrays, strict=True)))[y]
    for state in ansor.sample_programs(task, 4, rng, UNROLLED):
        at = [stage.compute_at for stage in state.stages if stage.name.startswith("Conv")]
        assert at == [ComputeAt.INLINED, ComputeAt.ITER]
        found = ansor.build(state, task.compute_dag.tensors)(*arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_the_space_of_the_reference_has_no_rule_for_transforms() -> None:
    task = ansor.SearchTask("ansor.conv2d_winograd", (1, 9, 7, 16, 16, 4))
    rules = {rule for sketch in ansor.generate_sketches(task, ansor.REFERENCE_SPACE) for rule in sketch.rules}
    assert rules <= {rule.name for rule in ansor.CPU_RULES}
    assert "UnrolledTiles" in ansor.generate_sketches(task, ansor.SketchPolicy(task).params)[0].rules


@pytest.mark.parametrize("params", [UNROLLED, {}], ids=["unrolled", "of TVM"])
@pytest.mark.parametrize("args", [(1, 9, 7, 20, 18, 4, 1), (2, 8, 6, 4, 8, 2, 0), (3, 13, 9, 5, 16, 2, 1)])
def test_random_programs_compute_the_convolution(args: tuple[int, ...], params: dict[str, object]) -> None:
    task = ansor.SearchTask("ansor.conv2d_winograd", args)
    rng = np.random.default_rng(0)
    n, h, w, ci, co, _, padding = args
    x = rng.standard_normal((n, h, w, ci)).astype(np.float32)
    weight = rng.standard_normal((3, 3, ci, co)).astype(np.float32)
    *inputs, output = conv2d(n, h, w, ci, co, 3, 1, padding)
    expected = evaluate(output, dict(zip(inputs, (x, weight), strict=True)))[output]
    tolerance = replace(output_tolerance(task.compute_dag.outputs[0]), scale=rms(expected))
    space = ProgramSpace.of(task, params)
    blocked = 0
    for population in space.sample(5, rng).populations:
        for row in range(len(population)):
            state = population.materialize(row)
            blocked += state.stage_id("Products") in state.attach
            found = ansor.build(state, task.compute_dag.tensors)(x, weight)
            assert mismatch(found, expected, "float32", tolerance) is None
    assert blocked or not params


def test_a_tile_without_conditions_is_unrolled_as_a_whole() -> None:
    """Its author names it for what only they know, such as a table that is read at numbers then."""
    x = te.placeholder((8, 8, 16), name="X")
    tiled = {"unrolled_tiles": {"i": 4, "j": 2}}
    y = te.compute((8, 8, 16), lambda i, j, k: te.exp(x[i, j, k]), name="Y", attrs=tiled)
    (sketch,) = ansor.generate_sketches(task_of([x, y]), UNROLLED)
    loops = sketch.state.stages[1].iterators
    assert [loop.name for loop in loops] == ["i.0", "j.0", "k.0", "i.1", "j.1", "k.1"]
    assert [loop.annotation.name for loop in loops[3:5]] == ["UNROLL", "UNROLL"]


def test_a_tile_may_be_of_terms() -> None:
    x, k = te.placeholder((8, 8, 8), name="X"), te.reduce_axis((0, 8), "k")
    tiled = {"unrolled_tiles": {"k": 4}}
    y = te.compute((8, 8), lambda i, j: te.sum(x[i, j, k], axis=k), name="Y", attrs=tiled)
    task, rng = task_of([x, y]), np.random.default_rng(0)
    array = rng.uniform(-1, 1, x.shape).astype(np.float32)
    for state in ansor.sample_programs(task, 4, rng, UNROLLED):
        assert FeatureTable.of(task, state).statements == ("Y",)
        found = ansor.build(state, task.compute_dag.tensors)(array)
        np.testing.assert_allclose(found, array.sum(axis=2), rtol=1e-5)
