"""Computing a stage over larger axes: right where only zeros are added, and refused elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.errors import LogFormatError, ScheduleError
from ansor.ir.interp import run_nest
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.schedule.steps import PadStep
from ansor.te.expr import int_value
from tests.gpu_schedules import argmax
from tests.program_laws import Case, check_all, check_printed_code, check_replay, lowered
from tests.random_choice import Chooser
from tests.random_graphs import random_graph
from tests.random_schedules import pad, random_move
from tests.schedule_helper import product

Sizes = tuple[int, int, int]


def with_zeros(sizes: Sizes, to: Sizes) -> tuple[Any, Any]:
    """The schedule of a product whose operands are copied with zeros behind them; and the product."""
    a, b, c, s = product(*sizes)
    s.rewrite_layout(a, [(0, to[0]), (1, to[2])], c)
    s.rewrite_layout(b, [(0, to[2]), (1, to[1])], c)
    return s, c


def padded(sizes: Sizes, to: Sizes, scope: str = "local") -> tuple[Any, Any, Any]:
    s, c = with_zeros(sizes, to)
    return s, c, s.pad(c, scope, to)


def extents(s: Any, name: str) -> list[Any]:
    bounded = s.state.with_bounds()
    return [loop.extent for loop in bounded.stages[s.state.stage_id(name)].iterators]


# -- programs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize(
    ("sizes", "to"),
    [
        ((5, 6, 7), (8, 8, 8)),
        ((5, 6, 7), (5, 6, 8)),
        ((5, 6, 7), (8, 6, 7)),
        ((5, 6, 7), (5, 9, 7)),
        ((4, 3, 2), (4, 3, 2)),
        ((1, 1, 1), (3, 2, 4)),
    ],
)
def test_products_are_those_of_the_sizes_asked_for(sizes: Sizes, to: Sizes, scope: str) -> None:
    """All products are computed, and of the elements as ever those that are read."""
    s, c, local = padded(sizes, to, scope)
    assert local.name == f"C.{scope}"
    assert [int(extent) for extent in local.shape] == list(to[:2])
    assert extents(s, local.name) == [*sizes[:2], to[2]]
    assert extents(s, "C") == list(sizes[:2])
    assert s.state.stages[s.state.stage_id(c)].name == "C"
    check_all(Case.of(s.state))


@pytest.mark.parametrize("inline", [False, True])
def test_tiles_of_padded_products(inline: bool) -> None:
    """As tensor cores have them: what is padded divides, what is copied out does not."""
    s, c, local = padded((13, 10, 11), (16, 12, 12))
    outer, inner = s[c].split(s[c].op.axis[0], factor=4)
    columns, rest = s[c].split(s[c].op.axis[1], factor=6)
    s[c].reorder(outer, columns, inner, rest)
    s[local].compute_at(s[c], columns)
    k0, _ = s[local].split(s[local].op.reduce_axis[0], factor=4)
    for name in ("A.layout", "B.layout"):
        (copy,) = (stage for stage in s.state.stages if stage.name == name)
        if inline:
            s[copy.op].compute_inline()
        else:
            s[copy.op].compute_at(s[local], k0)
    check_all(Case.of(s.state))


def test_what_is_no_number_stays_where_it_is() -> None:
    """Zero times infinity is not zero: nothing but zeros is multiplied beyond the tensors."""
    s, _, _ = padded((3, 4, 5), (4, 4, 8))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(1, 5, shape).astype(np.float32) for shape in ((3, 5), (5, 4)))
    a[1, 4], b[4, 2] = np.inf, np.nan
    c = np.zeros((3, 4), np.float32)
    run_nest(lowered(s.state), [a, b, c])
    with np.errstate(invalid="ignore"):  # which some machines say of such products, and some do not
        expected = a @ b
    np.testing.assert_array_equal(c, expected)


def test_sums_of_one_tensor_and_elements_of_any_operation() -> None:
    """Zeros need not be multiplied; and elements that nobody reads may be anything."""
    x, k = te.placeholder((5, 7), name="X"), te.reduce_axis((0, 7), name="k")
    total = te.compute((5,), lambda i: te.sum(te.cast(x[i, k], "float64"), axis=k), name="T")
    high = te.compute((5,), lambda i: te.max(x[i, k], axis=k), name="T")
    double = te.compute((5, 7), lambda i, j: x[i, j] * 2.0 + 1.0, name="T")
    for made, to in ((total, [8, 8]), (high, [8, 7]), (double, [6, 9])):
        s = te.create_schedule(made)
        s.rewrite_layout(x, [(0, 8), (1, 9)], made)
        s.pad(made, "local", to)
        check_all(Case.of(s.state))


def test_both_factors_may_be_one_tensor() -> None:
    a, k = te.placeholder((5, 6), name="A"), te.reduce_axis((0, 6), name="k")
    c = te.compute((5, 5), lambda i, j: te.sum(a[i, k] * a[j, k], axis=k), name="C")
    s = te.create_schedule(c)
    s.rewrite_layout(a, [(0, 8), (1, 8)], c)
    s.pad(c, "local", [8, 6, 8])
    check_all(Case.of(s.state))


def test_the_step_is_printed_recorded_and_replayed() -> None:
    s, _, _ = padded((5, 6, 7), (8, 8, 8))
    *others, last = s.state.steps
    assert (last.to_json(), last.in_reference) == (["PAD", 4, "local", [8, 8, 8]], False)
    assert "s.pad(C, 'local', [8, 8, 8])" in schedule_code(s.state)
    check_replay(s.state)
    check_printed_code(s.state)
    with pytest.raises(LogFormatError, match="step PAD: expected a list of integers as its extents, found 8"):
        State.replay(s.state.dag, [*(step.to_json() for step in others), ["PAD", 4, "local", 8]])


# -- what is refused ---------------------------------------------------------------------------------------


def of_product(to: list[int], *, zeros: Sizes | None = None, scope: str = "local") -> None:
    *_, c, s = product(5, 6, 7)
    if zeros:
        s, c = with_zeros((5, 6, 7), zeros)
    s.pad(c, scope, to)


def with_zeros_in_one_operand() -> None:
    a, b = te.placeholder((5, 7), name="A"), te.placeholder((8, 6), name="B")
    k = te.reduce_axis((0, 7), name="k")
    c = te.compute((5, 6), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c)
    s.rewrite_layout(a, [(0, 5), (1, 8)], c)
    s.pad(c, "local", [5, 6, 8])


def with_zeros_too_late() -> None:
    """The copy is zero from 7 on, and the sum ends at 6."""
    a, k = te.placeholder((5, 7), name="A"), te.reduce_axis((0, 6), name="k")
    c = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = te.create_schedule(c)
    s.rewrite_layout(a, [(0, 5), (1, 8)], c)
    s.pad(c, "local", [5, 8])


def greatest() -> None:
    a, k = te.placeholder((5, 7), name="A"), te.reduce_axis((0, 7), name="k")
    c = te.compute((5,), lambda i: te.max(a[i, k], axis=k), name="C")
    s = te.create_schedule(c)
    s.rewrite_layout(a, [(0, 5), (1, 8)], c)
    s.pad(c, "local", [5, 8])


def gathered() -> None:
    a, at = te.placeholder((5,), name="A"), te.placeholder((6,), "int32", name="At")
    c = te.compute((6,), lambda i: a[at[i]], name="C")
    s = te.create_schedule(c)
    s.rewrite_layout(at, [(0, 8)], c)
    s.pad(c, "local", [8])


def of_two_outputs() -> None:
    _, place, _ = argmax(4, 6)
    te.create_schedule(place).pad(place, "local", [8, 6])


def of_symbolic_size() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    te.create_schedule(b).pad(b, "local", [8])


def of_split_loops() -> None:
    s, c = with_zeros((5, 6, 7), (8, 8, 8))
    s[c].split(s[c].op.axis[0], factor=2)
    s.pad(c, "local", [8, 8, 8])


ZEROS = r"what is reduced along 'k' beyond 7 must be a sum of zeros"
NUMBERS = r"expected an extent for each of i \(5\), j \(6\), k \(7\), none smaller, found "
REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "rows": (lambda: of_product([8, 6, 7]), r"would read 'A' of shape \[5, 7\] up to 7 along dimension 0"),
    "columns": (lambda: of_product([5, 7, 7]), r"would read 'B' of shape \[7, 6\] up to 6 along dimension 1"),
    "no zeros": (lambda: of_product([5, 6, 8]), ZEROS),
    "zeros in one operand": (with_zeros_in_one_operand, ZEROS),
    "zeros too late": (with_zeros_too_late, ZEROS.replace("7", "6")),
    "no sum": (greatest, ZEROS),
    "too few zeros": (lambda: of_product([9, 8, 8], zeros=(8, 8, 8)), r"up to 8 along dimension 0"),
    "gathered": (gathered, r"would read 'A' of shape \[5\] at places that are not known"),
    "two outputs": (of_two_outputs, r"it has several outputs"),
    "symbolic": (of_symbolic_size, r"an extent is symbolic"),
    "smaller": (lambda: of_product([4, 6, 7]), NUMBERS + r"\[4, 6, 7\]"),
    "too few": (lambda: of_product([5, 6]), NUMBERS + r"\[5, 6\]"),
    "no scope": (lambda: of_product([5, 6, 7], scope="warp"), r"pad: unknown scope 'warp'"),
    "transformed": (of_split_loops, r"apply pad first"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=message):
        make()


def test_random_stages_are_padded_and_scheduled() -> None:
    padded_stages, longer_sums = 0, 0
    for seed in range(60):
        c = Chooser.from_seed(seed)
        state = State.initial(random_graph(c))
        at = c.one_of([i for i, stage in enumerate(state.stages) if not stage.is_placeholder])
        reduced = [int_value(axis.extent) for axis in state.stages[at].compute.reduce_axis]
        try:
            state = pad(c, state, at)
        except ScheduleError:
            continue
        (step,) = (step for step in state.steps if isinstance(step, PadStep))
        padded_stages += 1
        longer_sums += list(step.extents[len(step.extents) - len(reduced) :]) != reduced
        for _ in range(c.between(0, 6)):
            state = random_move(c, state)
        check_all(Case.of(state), compiled=seed % 6 == 0)
    assert padded_stages > 30
    assert longer_sums > 0
