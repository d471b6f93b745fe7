"""Lanes of quotients and remainders: elements of one vector, in any order and several times."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.manual import Schedule
from ansor.te.tensor import Tensor
from sketches import ProgramSpace
from tests.codegen_helper import AVX2, AVX512, PLAIN
from tests.program_laws import Case, check_all
from tests.sketches_cases import task_of

PLACES: dict[str, Callable[[Any], Any]] = {
    "each twice": lambda i: i // 2,
    "each three times": lambda i: i // 3,
    "each five times, from the second on": lambda i: (i + 3) // 5,
    "two in turn": lambda i: i % 2,
    "three in turn": lambda i: i % 3,
    "pairs in turn": lambda i: i % 4 // 2,
    "neighbours swapped": lambda i: i // 2 * 2 + 1 - i % 2,
    "all the same": lambda i: i // 64,
}


def spread(
    place: Callable[[Any], Any], n: int = 96, lanes: int = 16, dtype: str = "float32", tile: int = 1
) -> tuple[Schedule, list[Tensor]]:
    """Sums of `tile` rows of products: C[r, i] += A[r, k, place(i)] * B[k, r], `lanes` of i in lanes."""
    a, b = te.placeholder((tile, 3, n + 1), dtype, "A"), te.placeholder((3, tile), dtype, "B")
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((tile, n), lambda r, i: te.sum(a[r, k, place(i)] * b[k, r], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[1], lanes)
    s[c].reorder(outer, k, c.op.axis[0], inner)
    s[c].unroll(c.op.axis[0])
    s[c].vectorize(inner)
    return s, [a, b, c]


DTYPES = ["float32", "float64", "float16", "int8", "uint16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLACES)
def test_lanes_are_what_they_should_be(name: str, dtype: str) -> None:
    """Every other shape: the dtypes take turns, and so do the places."""
    shapes = ((96, 16, 1), (96, 12, 2), (84, 14, 4), (90, 15, 1), (37, 8, 2), (96, 48, 1))
    for n, lanes, tile in shapes[(DTYPES.index(dtype) + list(PLACES).index(name)) % 2 :: 2]:
        s, tensors = spread(PLACES[name], n, lanes, dtype, tile)
        a, b = (np.random.default_rng(n).integers(0, 5, t.shape).astype(dtype) for t in tensors[:2])
        index = np.array([PLACES[name](i) for i in range(n)])
        expected = np.einsum("rki,kr->ri", a[:, :, index].astype(np.int64), b.astype(np.int64))
        np.testing.assert_array_equal(ansor.build(s, tensors)(a, b), expected.astype(dtype))


def has_gathers(s: Schedule, tensors: list[Tensor], target: str) -> bool:
    return "masked.gather" in ansor.build(s, tensors, target=target, name="kernel").get_source("ll")


@pytest.mark.parametrize("target", [AVX512, AVX2])
@pytest.mark.parametrize("name", ["each twice", "two in turn", "pairs in turn", "neighbours swapped"])
def test_a_vector_is_loaded_and_shuffled(name: str, target: str) -> None:
    assert not has_gathers(*spread(PLACES[name]), target)


@pytest.mark.parametrize("lanes", [12, 14, 30])
def test_vectors_whose_last_lanes_are_left_out_are_too(lanes: int) -> None:
    s, tensors = spread(PLACES["each twice"], lanes * 6, lanes, tile=4)
    text = ansor.build(s, tensors, target=AVX512, name="kernel").get_source("ll")
    assert "masked.gather" not in text
    assert set(re.findall(r" = f(?:add|mul) .*<(\d+) x float>", text)) == {"16"}


def test_what_is_far_apart_is_gathered() -> None:
    assert has_gathers(*spread(lambda i: i % 2 * 40 + i // 2), AVX512)


def test_what_starts_anywhere_in_a_pair_is_gathered() -> None:
    """Whether the first lane is the first of two is not known."""
    x = te.placeholder((64,), name="X")
    y = te.compute((20, 16), lambda r, i: x[(r + i) // 2] + 1.0, name="Y")
    s = te.create_schedule(y.op)
    s[y].vectorize(y.op.axis[1])
    assert has_gathers(s, [x, y], AVX512)
    values = np.arange(64, dtype=np.float32)
    r, i = np.ogrid[:20, :16]
    np.testing.assert_array_equal(ansor.build(s, [x, y])(values), values[(r + i) // 2] + 1)


@pytest.mark.parametrize("target", [AVX512, AVX2, PLAIN])
def test_a_choice_around_it_keeps_it_inside_of_what_is_there(target: str) -> None:
    """Rows above and below an image that grows are zeros, and nothing is read there."""
    x = te.placeholder((4, 16), name="X")
    y = te.compute(
        (12, 32),
        lambda r, i: te.if_then_else(te.all(r >= 2, r < 10), x[(r - 2) // 2, i // 2], 0.0),
        name="Y",
    )
    s = te.create_schedule(y.op)
    _, inner = s[y].split(y.op.axis[1], 16)
    s[y].vectorize(inner)
    values = np.random.default_rng(0).random((4, 16), np.float32)
    expected = np.pad(values.repeat(2, 0).repeat(2, 1), ((2, 2), (0, 0)))
    if target == AVX512:
        assert not has_gathers(s, [x, y], target)
    np.testing.assert_array_equal(ansor.build(s, [x, y])(values), expected)


def upsampled(height: int, width: int, factor: int, channels: int) -> list[Tensor]:
    """A transposed convolution with a stride as long as its kernel, channels first."""
    x = te.placeholder((channels, height, width), name="X")
    w = te.placeholder((channels, 4, factor, factor), name="W")
    r = te.reduce_axis((0, channels), "r")
    shape = (4, height * factor, width * factor)
    return [
        x,
        w,
        te.compute(
            shape,
            lambda f, i, j: te.sum(x[r, i // factor, j // factor] * w[r, f, i % factor, j % factor], axis=r),
            name="Out",
        ),
    ]


@pytest.mark.parametrize("factor", [2, 3])
def test_programs_of_upsampled_images(factor: int) -> None:
    task = task_of(upsampled(6, 10, factor, 5))
    space = ProgramSpace.of(task).sample(10, np.random.default_rng(factor))
    for population in space.populations:
        for row in range(len(population)):
            check_all(Case.of(population.materialize(row)))
