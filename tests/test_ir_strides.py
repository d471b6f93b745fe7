"""Addresses of fused and split loops: quotients and remainders of one number are that number."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansor.ir.bounds import Bounds
from ansor.ir.nest import Buffer
from ansor.ir.strides import coefficient, flat_form, places_along, runs_along, step_of
from ansor.te.expr import Expr, Var
from tests.test_ir_simplify import evaluate, grid

sizes = st.integers(1, 7)


def digits(number, shape):
    """The indices of element `number` of a dense array, as fused loops give them."""
    indices = []
    for extent in reversed(shape[1:]):
        indices.append(number % extent)
        number = number // extent
    return (number, *reversed(indices))


@given(shape=st.lists(sizes, min_size=1, max_size=4), parts=st.lists(sizes, max_size=2))
def test_the_address_of_a_fused_loop_is_its_number(shape, parts):
    """Whatever the fused loop was split into, and whether or not its parts divide the rows."""
    buffer = Buffer("B", "float32", tuple(shape))
    outer, inner = Var("outer"), Var("inner")
    length = math.prod(parts) + 1
    last = math.prod(shape) - 1
    bounds = Bounds({outer: (0, last // length), inner: (0, min(length - 1, last))})
    flat = flat_form(bounds.simplifier, buffer, digits(outer * length + inner, shape))

    assert flat is not None
    assert flat.key() == bounds.simplifier.affine(outer * length + inner).key()


@pytest.mark.parametrize("lanes", [2, 16])
@pytest.mark.parametrize("names", ["nm", "nm3", "n3m", "4m", "n2m3", "nmp"])
def test_the_address_of_a_fused_loop_over_symbolic_extents_is_its_number(names, lanes):
    known = {name: Var(name) for name in "nmp"}
    shape = tuple(known[name] if name in known else int(name) for name in names)
    f, v = Var("f"), Var("v")
    bounds = Bounds({f: (0, None), v: (0, lanes - 1), **dict.fromkeys(known.values(), (0, None))})
    buffer, indices, step = Buffer("B", "float32", shape), [], 1
    for extent in reversed(shape):
        indices.insert(0, (f * lanes + v) // step % extent)
        step = extent * step
    indices[0] = indices[0].a

    simplifier = bounds.simplifier
    for found in (indices, [simplifier.canonical(index) for index in indices]):
        assert flat_form(simplifier, buffer, found).key() == simplifier.affine(f * lanes + v).key()
        assert runs_along(buffer, found, v, bounds)
    other = Buffer("B", "float32", (*shape[:-1], shape[-1] + 1))
    assert flat_form(simplifier, other, indices) is None
    assert flat_form(simplifier, buffer, [*indices[:-1], v]) is None


@given(
    shape=st.lists(sizes, min_size=2, max_size=4),
    order=st.randoms(use_true_random=False),
    factor=sizes,
    lanes=st.integers(2, 8),
)
def test_what_is_seen_to_run_along_memory_does(shape, order, factor, lanes):
    """On arrays whose dimensions a fused loop visits in any order, in strips of any length."""
    names = list(range(len(shape)))
    order.shuffle(names)
    strip, lane = Var("strip"), Var("lane")
    count = max(math.prod(shape) // lanes, 1)
    bounds = Bounds({strip: (0, count - 1), lane: (0, lanes - 1)})
    visited = digits(strip * lanes + lane, [shape[name] for name in names])
    indices = tuple(visited[names.index(dim)] for dim in range(len(shape)))
    buffer = Buffer("B", "float32", (*shape[:-1], shape[-1] * factor))
    env = grid(bounds)
    at = np.zeros((count, lanes), np.int64)
    for index, extent in zip(indices, buffer.shape, strict=True):
        at = at * extent + evaluate(index, env).reshape(count, lanes)

    found = runs_along(buffer, indices, lane, bounds)

    assert not found or (np.diff(at, axis=1) == 1).all()
    if names == sorted(names) and factor == 1 and shape[-1] > 1:
        assert found


def test_the_last_dimension_comes_first_and_unknown_strides_do_not_matter_outside():
    n, i, j = Var("n"), Var("i"), Var("j")
    bounds = Bounds({n: (1, None), i: (0, 7), j: (0, 3)})
    column = Buffer("C", "float32", (8, 1))
    symbolic = Buffer("S", "float32", (8, n))

    assert step_of(column, (i, j * 0), i) == 1
    assert not runs_along(column, (i, j * 0), i, bounds)
    assert runs_along(symbolic, (i, j), j, bounds)
    assert not runs_along(symbolic, (j, i + j), j, bounds)
    assert flat_form(bounds.simplifier, symbolic, (i, j)) is None


def test_strides_of_padded_rows_count():
    i, j = Var("i"), Var("j")
    bounds = Bounds({i: (0, 31), j: (0, 31)})
    padded = Buffer("P", "float32", (4, 8), "shared", (9, 1))

    assert runs_along(Buffer("D", "float32", (4, 8)), (i // 8, i % 8), i, bounds)
    assert not runs_along(padded, (i // 8, i % 8), i, bounds)
    assert runs_along(padded, (0 * i, j), j, bounds)


def test_an_index_that_is_doubled_60_times() -> None:
    """It is 2**60 as a tree."""
    var = Var("i", "int64")
    index: Expr = var
    for _ in range(60):
        index = index + index
    assert coefficient(index, var) == 2**60
    assert coefficient(index, Var("j", "int64")) == 0
    assert coefficient(index // 2, var) is None


@given(a=sizes, b=sizes, factor=sizes, extent=st.integers(1, 20))
def test_places_of_quotients_and_remainders_of_a_loop(a, b, factor, extent):
    buffer, var, other = Buffer("B", "float32", (40, 40)), Var("i"), Var("j")
    bounds = Bounds({var: (0, extent - 1), other: (0, 1)})
    indices = (var // a % b + other, var % a * factor)
    expected = [i // a % b * 40 + i % a * factor for i in range(extent)]
    assert places_along(buffer, indices, var, extent, bounds) == expected


def test_places_that_depend_on_another_loop_are_not_known():
    buffer, var, other = Buffer("B", "float32", (40,)), Var("i"), Var("j")
    bounds = Bounds({var: (0, 7), other: (0, 7)})
    assert places_along(buffer, ((var + other) // 2,), var, 8, bounds) is None
    assert places_along(buffer, ((var + other * 4) // 2,), var, 8, bounds) == [0, 0, 1, 1, 2, 2, 3, 3]
