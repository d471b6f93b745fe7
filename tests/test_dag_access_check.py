"""Reads out of bounds are refused where they can be proved, and nothing else is."""

from __future__ import annotations

import re

import pytest

from ansor import ComputeDAG, te
from ansor.errors import DefinitionError


def dag_of(shape, body, extent=10, dtype="float32"):
    source = te.placeholder(shape, dtype, name="A")
    return ComputeDAG([source, te.compute((extent,), lambda i: body(source, i), name="C")])


def test_the_message_names_everything():
    expected = (
        "compute 'C': `A[i + 1]` reads tensor 'A' of shape (10,) out of bounds in dimension 0: "
        "the index `i + 1` is 10 at i=9; read it only where `i + 1 < 10`, with te.if_then_else"
    )
    with pytest.raises(DefinitionError) as error:
        dag_of((10,), lambda a, i: a[i + 1])
    flat = re.sub(r"[`()\[\], ]", "", str(error.value))
    assert flat.startswith(re.sub(r"[`()\[\], ]", "", expected))


@pytest.mark.parametrize(
    ("body", "point"),
    [
        (lambda a, i: a[i - 1], "-1 at i=0"),
        (lambda a, i: a[9 - i * 2 % 20], "-1 at i=5"),
        (lambda a, i: a[i * i // 8], "10 at i=9"),
        (lambda a, i: te.if_then_else(i < 9, a[i + 2], 0.0), "10 at i=8"),
        (lambda a, i: te.if_then_else(te.any(i < 9, i > 100), a[i + 2], 0.0), "10 at i=8"),
        (lambda a, i: te.select(i < 9, a[i + 1], 0.0), "10 at i=9"),
        (lambda a, i: te.if_then_else(i < 9, 0.0, a[i + 1]), "10 at i=9"),
        (lambda a, i: te.if_then_else(a[i + 1] > 0, 1.0, 0.0), "10 at i=9"),
    ],
)
def test_refused(body, point):
    with pytest.raises(DefinitionError, match=f"out of bounds.* is {point}"):
        dag_of((10,), body)


def test_a_large_extent_is_tried_at_its_ends():
    with pytest.raises(DefinitionError, match=r"is 1000000 at i=999999"):
        dag_of((10**6,), lambda a, i: a[te.maximum(i, i // 3) + 1], 10**6)


@pytest.mark.parametrize(
    "body",
    [
        lambda a, i: a[i],
        lambda a, i: a[9 - i],
        lambda a, i: a[i * 7 % 10],
        lambda a, i: a[i * i // 9],
        lambda a, i: te.if_then_else(i < 9, a[i + 1], 0.0),
        lambda a, i: te.if_then_else(te.all(i >= 1, i < 9), a[i - 1] + a[i + 1], 0.0),
        lambda a, i: te.if_then_else(te.any(i < 2, i > 8), 0.0, a[i * 2 - 2 - i]),
        lambda a, i: te.if_then_else(i % 2 == 0, a[i + 1], a[i - 1]),
        lambda a, i: te.if_then_else(a[i] > 0, a[i + 1], 0.0),
        lambda a, i: te.if_then_else(i > 3, te.if_then_else(i < 2, a[i + 100], 0.0), 0.0),
        lambda a, i: a[te.minimum(i + 1, 9)],
    ],
)
def test_allowed(body):
    dag_of((10,), body)


def test_data_dependent_indices_are_allowed():
    table = te.placeholder((4,), "float32", name="T")
    places = te.placeholder((10,), "int32", name="P")
    ComputeDAG([table, places, te.compute((10,), lambda i: table[places[i] + 1000 * i], name="C")])


def test_a_condition_of_a_reduction_guards():
    source = te.placeholder((10,), name="A")
    k = te.reduce_axis((0, 12), name="k")
    guarded = te.compute((3,), lambda i: te.sum(source[i + k], k, where=i + k < 10), name="C")
    ComputeDAG([source, guarded])
    with pytest.raises(DefinitionError, match=r"is 10 at"):
        ComputeDAG([source, te.compute((3,), lambda i: te.sum(source[i + k], k), name="D")])


def test_symbolic_extents():
    n = te.var("n")
    source = te.placeholder((n,), name="A")
    ComputeDAG([source, te.compute((n,), lambda i: source[i + 1], name="C")])
    with pytest.raises(DefinitionError, match=r"is -1 at i=0"):
        ComputeDAG([source, te.compute((n,), lambda i: source[i - 1], name="D")])


def test_many_nested_guards_are_looked_at_in_time():
    def body(a, i):
        value = a[i]
        for step in range(60):
            value = te.if_then_else(i < step, value, value + a[i])
        return value

    dag_of((10,), body)
