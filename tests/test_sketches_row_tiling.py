"""Tiles of short rows: where the sketches have them, and the laws of their programs."""

from __future__ import annotations

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.lowering import lower
from ansor.schedule.stages import Annotation
from ansor.te import Tensor
from ansor.workloads.catalogue import get_workload
from sketches import ProgramSpace, Sketch, generate_sketches
from tests.program_laws import Case, check_all
from tests.sketches_cases import check_program, matmul, row_sum, task_of


def tiled(tensors: list[Tensor]) -> list[Sketch]:
    return [sketch for sketch in generate_sketches(task_of(tensors)) if "RowTiling" in sketch.rules]


def softmax(rows: int, columns: int) -> list[Tensor]:
    return list(get_workload("softmax").tensors(rows, columns))


def test_the_loop_over_short_rows_is_split_and_nothing_is_computed_within_a_tile() -> None:
    found = tiled(softmax(64, 96))
    assert found
    for sketch in found:
        loops = sketch.state.stages[-1].iterators
        assert [loop.name for loop in loops] == ["i.0", "i.1", "j"]
        assert loops[1].annotation is Annotation.UNROLL
        assert len(sketch.holes[0].columns) == 1
    assert tiled(list(get_workload("layer_norm").tensors(32, 256)))


def test_of_longer_rows_there_are_two_in_a_tile() -> None:
    for length in (513, 1024):
        found = tiled(softmax(64, length))
        assert found
        for sketch in found:
            assert [loop.extent for loop in sketch.state.stages[-1].iterators] == [32, 2, length]
    assert all(sketch.holes for sketch in tiled(softmax(64, 512)))
    assert not tiled(softmax(64, 1025))


def test_the_last_axis_of_several_rows_is_tiled() -> None:
    x = te.placeholder((3, 5, 40), name="X")
    k = te.reduce_axis((0, 40), name="k")
    most = te.compute((3, 5), lambda b, i: te.max(x[b, i, k], axis=k), name="Most")
    out = te.compute((3, 5, 40), lambda b, i, j: x[b, i, j] - most[b, i], name="Out")
    kept = te.compute((3, 5, 1), lambda b, i, one: te.max(x[b, i, k], axis=k), name="Kept")
    same = te.compute((3, 5, 40), lambda b, i, j: x[b, i, j] - kept[b, i, 0], name="Same")
    for tensors in ([x, out], [x, same]):
        for sketch in tiled(tensors):
            assert [loop.name for loop in sketch.state.stages[-1].iterators] == ["b", "i.0", "i.1", "j"]
        assert tiled(tensors)


def test_rows_within_longer_ones_are_tiled() -> None:
    x = te.placeholder((32, 64, 64), name="X")
    p, q, r = (te.reduce_axis((0, 64), name=name) for name in "pqr")
    most = te.compute((32, 64), lambda i, j: te.max(x[i, j, p], axis=p), name="Most")
    less = te.compute((32, 64, 64), lambda i, j, k: x[i, j, k] - most[i, j], name="Less")
    total = te.compute((32,), lambda i: te.sum(te.exp(less[i, q, r]), axis=[q, r]), name="Total")
    out = te.compute((32, 64, 64), lambda i, j, k: less[i, j, k] / total[i], name="Out")

    found = tiled([x, out])

    assert found
    for sketch in found:
        assert [loop.name for loop in sketch.state.stages[-1].iterators] == ["i", "j.0", "j.1", "k"]


def test_what_has_no_short_rows_that_reductions_go_into_is_left() -> None:
    x = te.placeholder((64, 96), name="X")
    k = te.reduce_axis((0, 64), name="k")
    column = te.compute((96,), lambda j: te.max(x[k, j], axis=k), name="Column")
    across = te.compute((64, 96), lambda i, j: x[i, j] - column[j], name="Across")
    square = te.placeholder((64, 64), name="Square")
    depth = te.compute((64,), lambda j: te.max(square[k, j], axis=k), name="Depth")
    deep = te.compute((64, 64), lambda i, j: square[i, j] - depth[j], name="Deep")
    plain = te.compute((64, 96), lambda i, j: x[i, j] + 1.0, name="Plain")
    assert not tiled(softmax(64, 4096))
    assert not tiled(softmax(1, 96))
    for tensors in (matmul(32, 32, 32), row_sum(32, 64), [x, across], [x, plain], [square, deep]):
        assert not tiled(tensors)
    without = generate_sketches(task_of(softmax(64, 96)), {"cpu_row_tiling": 0})
    assert not any("RowTiling" in sketch.rules for sketch in without)


@pytest.mark.parametrize(("shape", "most"), [((12, 24), 8), ((7, 17), 5), ((50, 8), 5), ((3, 514), 3)])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_their_programs_follow_the_laws(name: str, shape: tuple[int, int], most: int) -> None:
    task = ansor.SearchTask(compute_dag=get_workload(name).tensors(*shape), target="llvm -num-cores=2")
    sample = ProgramSpace.of(task).sample(24, np.random.default_rng(0))
    states = [p.materialize(row) for p in sample.populations for row in range(min(len(p), 3))]
    split = [state for state in states if any(loop.name == "i.1" for loop in state.stages[-1].iterators)]
    assert split
    for state in split[:most]:
        check_program(state)
        check_all(Case.of(state))
    assert any("allocate" in str(lower(state)) for state in split)
