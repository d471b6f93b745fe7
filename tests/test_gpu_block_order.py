"""Blocks of large grids: those that are at work at a time share operands, and every tile is done once."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.ir.kernel_form import kernels_of, open_kernel
from ansor.ir.nest import LoopNest, Store, walk_statements
from ansor.ir.passes import block_order
from ansor.ir.passes.block_order import AT_ONCE, MOST_ROWS
from ansor.te.expr import free_vars, int_value
from ansor.workloads.catalogue import get_workload
from sketches import ProgramSpace
from tests.costmodel_counts import value_of
from tests.cuda_on_host import Run, each_language
from tests.gpu_cases import gpu_task
from tests.gpu_schedules import MOST_STEPS, check_schedule, kernels, steps, tiled_matmul
from tests.program_laws import Case
from tests.sketches_cases import matmul


def in_blocks(c: Any, tiles: Sequence[int], order: Sequence[int] | None = None) -> Any:
    """A schedule of tiles by blocks, whose elements are threads; `order` is that of the fused loops."""
    s = te.create_schedule(c)
    parts = [s[c].split(axis, factor=tile) for axis, tile in zip(s[c].op.axis, tiles, strict=True)]
    outer, inner = [parts[at][0] for at in order or range(len(parts))], [part for _, part in parts]
    s[c].reorder(*outer, *inner)
    s[c].bind(s[c].fuse(*outer), te.thread_axis("blockIdx.x"))
    s[c].bind(s[c].fuse(*inner), te.thread_axis("threadIdx.x"))
    return s


def product(n: int, m: int, depth: int = 3, batch: int = 0) -> Any:
    """C[b, i, j] = sum of A[b, i, k] * B[b, k, j], without `b` for one product."""
    lead = (batch,) if batch else ()
    a, b = te.placeholder((*lead, n, depth), name="A"), te.placeholder((*lead, depth, m), name="B")
    k = te.reduce_axis((0, depth), name="k")

    def element(*at: Any) -> Any:
        return te.sum(a[(*at[:-1], k)] * b[(*at[:-2], k, at[-1])], axis=k)

    return te.compute((*lead, n, m), element, name="C")


def tiles_of(nest: LoopNest, tile: Sequence[int]) -> list[tuple[int, ...]]:
    """Which tile of C, by its position among tiles, each block has."""
    (kernel,) = kernels_of(nest)
    blocks = open_kernel(kernel).blocks
    store = next(s for s in walk_statements(kernel) if isinstance(s, Store) and s.buffer.name == "C")
    at = dict.fromkeys(set().union(*map(free_vars, store.indices)), 0)
    numbers = range(prod(int_value(block.extent) or 1 for block in blocks))
    places = ({**at, **{block.var: b for block in blocks}} for b in numbers)
    return [
        tuple(value_of(x, place) // t for x, t in zip(store.indices, tile, strict=True)) for place in places
    ]


def by_rows(c: Any, tile: Sequence[int]) -> list[tuple[int, ...]]:
    """All tiles, the last dimension running fastest."""
    counts = [ceil(int(extent) / t) for extent, t in zip(c.shape, tile, strict=True)]
    numbers = range(prod(counts))
    return [tuple(n // prod(counts[d + 1 :]) % count for d, count in enumerate(counts)) for n in numbers]


# -- the order ---------------------------------------------------------------------------------------------


def test_blocks_that_are_near_each_other_have_few_rows_and_columns() -> None:
    c = product(64, 64)
    found = tiles_of(kernels(in_blocks(c, (2, 2)).state), (2, 2))
    assert sorted(found) == by_rows(c, (2, 2))
    assert found[:10] == [*((row, 0) for row in range(8)), (0, 1), (1, 1)]
    for start in range(0, len(found), 64):
        rows, columns = map(set, zip(*found[start : start + 64], strict=True))
        assert (len(rows), len(columns)) == (MOST_ROWS, 8)


@pytest.mark.parametrize(("rows", "group"), [(16, 8), (12, 6), (10, 5), (9, 3), (2, 2), (7, 7), (11, 1)])
def test_groups_divide_the_rows(rows: int, group: int) -> None:
    c = product(2 * rows, 192)
    found = tiles_of(kernels(in_blocks(c, (2, 2)).state), (2, 2))
    assert sorted(found) == by_rows(c, (2, 2))
    area = group * 96
    for start in range(0, len(found), area):
        assert {row for row, _ in found[start : start + area]} == {start // 96 + row for row in range(group)}
    assert len({column for _, column in found[:group]}) == 1


def test_products_of_a_batch_come_one_after_the_other() -> None:
    c = product(16, 64, batch=3)
    found = tiles_of(kernels(in_blocks(c, (1, 2, 2)).state), (1, 2, 2))
    assert sorted(found) == by_rows(c, (1, 2, 2))
    assert [batch for batch, *_ in found] == [batch for batch in range(3) for _ in range(256)]
    assert found[:9] == [*((0, row, 0) for row in range(8)), (0, 0, 1)]


def test_rows_are_all_that_columns_have_in_common() -> None:
    """Of a convolution, whose weights are the same at all pixels."""
    x, w = te.placeholder((4, 2, 3), name="X"), te.placeholder((3, 64), name="W")
    k = te.reduce_axis((0, 3), name="k")
    c = te.compute((4, 2, 64), lambda h, v, o: te.sum(x[h, v, k] * w[k, o], axis=k), name="C")
    found = tiles_of(kernels(in_blocks(c, (1, 1, 2)).state), (1, 1, 2))
    assert found[:9] == [*((h, v, 0) for h in range(4) for v in range(2)), (0, 0, 1)]


# -- what stays --------------------------------------------------------------------------------------------


def unchanged(s: Any, c: Any, tile: Sequence[int]) -> bool:
    return tiles_of(kernels(s.state), tile) == by_rows(c, tile)


def test_small_grids_and_narrow_ones_stay() -> None:
    """All of their blocks are at work at a time, or all of a group."""
    for n, m in ((8, 60), (256, 32)):
        c = product(n, m)
        assert unchanged(in_blocks(c, (2, 2)), c, (2, 2))


def test_tiles_that_share_nothing_stay() -> None:
    a = te.placeholder((64, 64), name="A")
    c = te.compute((64, 64), lambda i, j: a[i, j] + a[j, i], name="C")
    assert unchanged(in_blocks(c, (2, 2)), c, (2, 2))
    row = te.placeholder((64,), name="R")
    c = te.compute((64, 64), lambda i, j: a[i, j] * row[j], name="C")
    assert unchanged(in_blocks(c, (2, 2)), c, (2, 2))
    c = te.compute((64, 64), lambda i, j: row[i] * row[j], name="C")
    assert not unchanged(in_blocks(c, (2, 2)), c, (2, 2))


def test_columns_may_be_the_rows() -> None:
    """Where a schedule goes down columns, these are taken in groups."""
    c = product(64, 64)
    found = tiles_of(kernels(in_blocks(c, (2, 2), (1, 0)).state), (2, 2))
    assert sorted(found) == by_rows(c, (2, 2))
    assert found[:9] == [*((0, column) for column in range(8)), (1, 0)]


@pytest.mark.parametrize("size", [4, 16])
def test_groups_of_the_schedule_stay(size: int) -> None:
    c = product(64, 64)
    s = te.create_schedule(c)
    i0, i1 = s[c].split(c.op.axis[0], factor=2)
    j0, j1 = s[c].split(c.op.axis[1], factor=2)
    group, row = s[c].split(i0, factor=size)
    s[c].reorder(group, j0, row, i1, j1)
    s[c].bind(s[c].fuse(group, j0, row), te.thread_axis("blockIdx.x"))
    s[c].bind(s[c].fuse(i1, j1), te.thread_axis("threadIdx.x"))
    found = tiles_of(kernels(s.state), (2, 2))
    assert found[: 2 * size] == [(row, column) for column in range(2) for row in range(size)]


def test_grids_of_two_dimensions_stay() -> None:
    c = product(32, 32)
    s = te.create_schedule(c)
    s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.y"))
    s[c].bind(c.op.axis[1], te.thread_axis("blockIdx.x"))
    text = str(kernels(s.state))
    assert "//" not in text
    assert "%" not in text


# -- programs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(64, 96, 8), (59, 95, 5), (35, 100, 4)])
def test_they_are_right(sizes: tuple[int, int, int]) -> None:
    """Through shared memory, by virtual threads, and with tiles that do not divide."""
    s = tiled_matmul(sizes, (1, 2, 1), (2, 2, 1), 4, vector=2)
    nest = check_schedule(s)
    found = tiles_of(nest, (2, 4))
    assert found[1] == (1, 0)


def test_programs_of_a_search_are_grouped() -> None:
    task = gpu_task(matmul(128, 512, 16))
    grouped = 0
    for population in ProgramSpace.of(task).sample(150, np.random.default_rng(0)).populations:
        for row in range(len(population)):
            state = population.materialize(row)
            nest = kernels(state)
            tiles = [(i, j) for i, j in tiles_of(nest, (1, 1))]
            assert len(set(tiles)) == len(tiles)
            if tiles != sorted(tiles):
                grouped += 1
                if grouped < 4 and steps(nest.body) <= MOST_STEPS:
                    Case.of(state).check_interpreted(nest, check_races=True)
    assert grouped > 2


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("dense", (24, 8, 36)),
        ("conv2d", (2, 7, 7, 4, 20, 3, 1, 1)),
    ],
)
def test_operations_are_right_whose_small_grids_are_grouped(
    name: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = gpu_task(get_workload(name).tensors(*sizes))
    grouped = 0
    for population, row in ProgramSpace.of(task).sample(40, np.random.default_rng(0)).in_order():
        state = population.materialize(row)
        text = str(kernels(state))
        with monkeypatch.context() as patch:
            patch.setattr(block_order, "AT_ONCE", 1)
            nest = kernels(state)
        if str(nest) != text and steps(nest.body) <= MOST_STEPS and grouped < 3:
            grouped += 1
            Case.of(state).check_interpreted(nest, check_races=True)
    assert grouped == 3


@each_language
def test_they_run(run: Run) -> None:
    s = tiled_matmul((64, 128, 6), (1, 4, 1), (1, 2, 1), 4)
    case = Case.of(s.state)
    arrays = case.arrays()
    nest = kernels(s.state)
    assert len(tiles_of(nest, (4, 2))) > AT_ONCE
    run(nest, *arrays)
    case.check(arrays)
