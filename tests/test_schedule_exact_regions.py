"""Regions of what is stored in pieces: each piece of an axis is known for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.schedule.affine import (
    Affine,
    LoopAtom,
    UnknownBoundError,
    divided,
)
from ansor.schedule.bounds import infer_bounds
from ansor.schedule.evaluation import evaluate_exactly
from ansor.schedule.lowering import lower
from ansor.te.expr import Var
from tests.program_laws import Case, check_all

OUTER, INNER = LoopAtom(0, "i.0"), LoopAtom(0, "i.1")


def extents(outer: int = 4, inner: int = 8) -> Any:
    return {OUTER: outer, INNER: inner}.__getitem__


def form(outer: int, inner: int, const: int = 0) -> Affine:
    return Affine(const, {OUTER: outer, INNER: inner})


@pytest.mark.parametrize(
    ("given", "inner", "quotient", "remainder"),
    [
        (form(8, 1), 8, ({OUTER: 1}, 0), ({INNER: 1}, 0)),
        (form(16, 1, 24), 8, ({OUTER: 2}, 3), ({INNER: 1}, 0)),
        (form(8, 1, 3), 5, ({OUTER: 1}, 0), ({INNER: 1}, 3)),
        (form(8, 1, 4), 8, None, None),
        (form(8, 1), 9, None, None),
        (form(12, 1), 4, None, None),
        (form(8, -1), 4, None, None),
    ],
)
def test_what_does_not_divide_must_not_add_up(
    given: Affine, inner: int, quotient: Any, remainder: Any
) -> None:
    found = divided(given, 8, extents(inner=inner))
    if quotient is None:
        assert found is None
        return
    assert found is not None
    for part, (terms, const) in zip(found, (quotient, remainder), strict=True):
        assert (dict(part.terms), part.const) == (terms, const)


def test_expressions_are_taken_apart() -> None:
    i = Var("i")
    known = {i: form(8, 1)}
    assert evaluate_exactly((i + 16) // 8 * 3, known, extents()).terms == {OUTER: 3}
    assert evaluate_exactly(i % 8 - 1, known, extents()).terms == {INNER: 1}
    with pytest.raises(UnknownBoundError):
        evaluate_exactly((i + 1) // 8, known, extents())


def pieces(n: int, inner: int, fused: bool = False) -> Any:
    """B in pieces of 8, computed for every eighth element of C at once."""
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n,), lambda i: b[i] + 1.0, name="C")
    s = te.create_schedule(c)
    tiled = s.rewrite_layout(b, [(0, None), (0, 8)])
    outer, lane = s[c].split(c.op.axis[0], factor=inner)
    s[c].reorder(lane, outer)
    if fused:
        lane, outer = s[c].split(s[c].fuse(lane, outer), factor=-(-n // inner))
    s[tiled].compute_at(s[c], lane)
    return s


def test_every_eighth_element() -> None:
    s = pieces(64, 8)
    bounds = infer_bounds(s.state)
    assert [one.width for one in bounds.stages[1].region] == [8, 1]
    check_all(Case.of(s.state))


@pytest.mark.parametrize(
    ("n", "inner", "fused"), [(60, 8, False), (64, 16, False), (64, 4, False), (64, 8, True)]
)
def test_other_pieces_are_right(n: int, inner: int, fused: bool) -> None:
    check_all(Case.of(pieces(n, inner, fused).state))


CONVERTED: dict[str, Any] = {
    "to a byte": lambda i: te.cast(te.cast(i, "uint8"), "int32"),
    "a byte itself": lambda i: te.cast(i, "uint8"),
    "a sum of bytes": lambda i: te.cast(i, "uint8") + te.const(200, "uint8"),
    "to a signed byte": lambda i: te.cast(te.cast(i, "int8"), "int32") + 128,
    "to no negative number": lambda i: te.cast(te.cast(i - 3, "uint32") % te.const(250, "uint32"), "int32"),
    "to more bits": lambda i: te.cast(i, "int64") // te.const(2, "int64"),
    "and back": lambda i: te.cast(te.cast(i, "int64") // te.const(2, "int64"), "int32"),
}


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("index", CONVERTED)
def test_what_is_read_at_converted_indices_is_there(index: str, at: int) -> None:
    """Conversions may wrap, so that a range of an axis is none of the index."""
    a = te.placeholder((256,), name="A")
    b = te.compute((256,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((300,), lambda i: b[CONVERTED[index](i)] + 1.0, name="C")
    s = te.create_schedule(c)
    loops = s[c].split(c.op.axis[0], factor=8)
    s[b].compute_at(s[c], loops[at])
    check_all(Case.of(s.state))


@pytest.mark.parametrize("how", ["inlined", "inside", "turned"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "uint32", "int64"])
def test_indices_of_other_dtypes_are_calculated_with_as_those_of_axes_are(dtype: str, how: str) -> None:
    """Of bytes 50 + 255 is 49, and 49 * 300 is 14700."""
    a, keys = te.placeholder((256,), name="A"), te.placeholder((24,), dtype, name="K_of_60")
    most = te.const(int(np.iinfo(dtype).max), dtype)
    b = te.compute((256,), lambda i: a[(i + 5) % 256] + te.cast(i * 300, "float32"), name="B")
    c = te.compute((24,), lambda i: b[te.abs(keys[i] + most) % te.const(100, dtype)], name="C")
    d = te.compute((24,), lambda i: b[keys[i] * te.const(2, dtype)], name="D")
    s = te.create_schedule([c] if how == "inside" else [c, d])
    if how == "inlined":
        s[b].compute_inline()
    elif how == "turned":
        s.rewrite_layout(b, [(0, 2), (0, 128)])
    else:
        s[b].compute_at(s[c], s[c].split(c.op.axis[0], factor=8)[0])
    check_all(Case.of(s.state))


def two_steps(step: Callable[[Any, Any], Any], length: Any, inner: int) -> Any:
    """A schedule of two steps of a stencil, all in tiles of so many elements."""
    a = te.placeholder((length,), name="A")
    b = te.compute((length,), lambda i: a[i] * 2.0, name="B")
    c = step(b, length)
    d = step(c, length)
    s = te.create_schedule(d)
    outer, _ = s[d].split(d.op.axis[0], factor=inner)
    s[b].compute_at(s[d], outer)
    s[c].compute_at(s[d], outer)
    return s


def edges(x: Any, size: Any) -> Any:
    """The sums of neighbours, where those at the edges stand for what is beyond."""
    return te.compute(
        (size,),
        lambda i: x[te.maximum(i - 1, 0)] + x[i] * 2.0 + x[te.minimum(i + 1, size - 1)],
        name=f"{x.name}1",
    )


@pytest.mark.parametrize("inner", [1, 8])
@pytest.mark.parametrize("size", [1, 29])
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_is_read_at_clamped_indices_is_a_tile_and_its_halo(
    symbolic: bool, size: int, inner: int
) -> None:
    n = te.var("n")
    s = two_steps(edges, n if symbolic else size, inner)
    if inner + 4 < size:
        known = infer_bounds(s.state).stages
        assert [known[stage].region[0].width for stage in (1, 2)] == [inner + 4, inner + 2]
    check_all(Case.of(s.state, {n: size} if symbolic else {}))


def ring(x: Any, size: Any) -> Any:
    """The sums of neighbours on a ring."""
    return te.compute(
        (size,),
        lambda i: x[(i + size - 1) % size] + x[i] * 2.0 + x[(i + 1) % size],
        name=f"{x.name}1",
    )


@pytest.mark.parametrize("inner", [1, 8])
@pytest.mark.parametrize("size", [1, 3, 29])
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_is_read_around_the_end_of_an_axis_is_a_tile_and_its_halo(
    symbolic: bool, size: int, inner: int
) -> None:
    n = te.var("n")
    s = two_steps(ring, n if symbolic else size, inner)
    if symbolic or size > 3:
        known = infer_bounds(s.state).stages
        assert [known[stage].region[0].width for stage in (1, 2)] == [inner + 4, inner + 2]
        text = str(lower(s.state, simple_mode=True))
        assert [line.count("%") for line in text.splitlines() if "A1[" in line or "B1[" in line] == [0, 0, 0]
    check_all(Case.of(s.state, {n: size} if symbolic else {}))


@pytest.mark.parametrize(
    "index",
    [
        lambda i, n: i // 2,
        lambda i, n: te.abs(i - 1),
        lambda i, n: te.maximum(i - 1, 0),
        lambda i, n: te.minimum(i + 1, n - 1),
        lambda i, n: te.if_then_else(i > 2, i - 2, i),
        lambda i, n: (i // 2 + 1) % n,
        lambda i, n: (2 * i + 1) % n,
        lambda i, n: (n - 1) - i,
    ],
)
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_is_read_by_what_goes_around_an_end_is_there(symbolic: bool, alone: bool, index: Any) -> None:
    n = te.var("n")
    length = n if symbolic else 40
    a = te.placeholder((length,), name="A")
    b = te.compute((length,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((length,), lambda i: b[index(i, length)] + (0.0 if alone else b[i]), name="C")
    d = ring(c, length)
    s = te.create_schedule(d)
    outer, _ = s[d].split(d.op.axis[0], factor=4)
    s[b].compute_at(s[d], outer)
    s[c].compute_at(s[d], outer)
    assert infer_bounds(s.state).stages[2].region[0].around
    check_all(Case.of(s.state, {n: 40} if symbolic else {}))


@pytest.mark.parametrize("inner", [4, 7])
def test_reads_around_an_end_are_followed_through_inlined_and_reduced_stages(inner: int) -> None:
    a = te.placeholder((40,), name="A")
    b = te.compute((40,), lambda i: a[i] * 2.0, name="B")
    turned = te.compute((40,), lambda i: b[(i + 37) % 40], name="Turned")
    k = te.reduce_axis((0, 3), name="k")
    c = te.compute((40,), lambda i: te.sum(turned[(i + 40 - k) % 40] * b[i], axis=k), name="C")
    s = te.create_schedule(c)
    s[turned].compute_inline()
    s[b].compute_at(s[c], s[c].split(c.op.axis[0], factor=inner)[0])
    assert infer_bounds(s.state).stages[1].region[0].width == inner + 5
    check_all(Case.of(s.state))


@pytest.mark.parametrize(
    "index",
    [
        lambda i: te.abs(i - 3),
        lambda i: te.minimum(i, 26),
        lambda i: te.if_then_else(i > 5, i, 0),
        lambda i: i // 4 * 4,
    ],
)
@pytest.mark.parametrize("inner", [1, 4])
def test_of_what_goes_around_an_end_other_indices_than_sums_are_right(index: Any, inner: int) -> None:
    a = te.placeholder((29,), name="A")
    b = te.compute((29,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((29,), lambda i: b[index(i)] + b[i], name="C")
    d = ring(c, 29)
    s = te.create_schedule(d)
    outer, _ = s[d].split(d.op.axis[0], factor=inner)
    s[b].compute_at(s[d], outer)
    s[c].compute_at(s[d], outer)
    around = [known.region[0].around for known in infer_bounds(s.state).stages.values()]
    assert around == [False, True, False]
    check_all(Case.of(s.state))


@pytest.mark.parametrize(
    "index",
    [
        lambda i: i % 10,  # goes around four times
        lambda i: (i // 2 + 3) % 10 + i // 20,
        lambda i: (i * 300 + 7) % 10,
        lambda i: te.cast(te.cast(i, "uint8") % te.const(10, "uint8"), "int32"),
    ],
)
def test_other_remainders_are_right(index: Any) -> None:
    a = te.placeholder((12,), name="A")
    b = te.compute((12,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((40,), lambda i: b[index(i)] + 1.0, name="C")
    s = te.create_schedule(c)
    s[b].compute_at(s[c], s[c].split(c.op.axis[0], factor=4)[0])
    assert not infer_bounds(s.state).stages[1].region[0].around
    check_all(Case.of(s.state))


@pytest.mark.parametrize(
    "index",
    [
        lambda i: te.clip(i, 0, 36),
        lambda i: 36 - te.abs(36 - te.abs(i)),
        lambda i: te.if_then_else(i < 0, -i, te.if_then_else(i > 36, 72 - i, i)),
    ],
)
def test_of_an_image_with_its_edges_repeated_a_tile_and_its_halo_is_computed(index: Any) -> None:
    a = te.placeholder((37,), name="A")
    b = te.compute((37,), lambda i: a[i] * 2.0, name="B")
    wide = te.compute((41,), lambda i: b[index(i - 2)], name="Wide")
    k = te.reduce_axis((0, 5), name="k")
    c = te.compute((37,), lambda i: te.sum(wide[i + k], axis=k), name="C")
    s = te.create_schedule(c)
    s[wide].compute_inline()
    s[b].compute_at(s[c], s[c].split(c.op.axis[0], factor=8)[0])
    assert infer_bounds(s.state).stages[1].region[0].width == 12
    check_all(Case.of(s.state))
