"""Printed programs where a name or an attribute alone would say something else than the program does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.source import schedule_code
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.te.expr import Combiner, Reduce
from ansor.te.preparation import source_of
from ansor.te.reduction import builtin_combiner, builtin_name
from ansor.te.tensor import ComputeOp, Tensor
from ansor.workloads import conv2d_winograd_prepared
from tests.program_laws import Case, check_all, check_printed_code

Function = Callable[..., Any]


def rows(reduction: Function) -> Tensor:
    a, k = te.placeholder((4, 9), name="A"), te.reduce_axis((0, 9), name="k")
    made = te.compute((4,), lambda i: reduction(a[i, k], axis=k), name="C")
    assert isinstance(made, Tensor)
    return made


def combiner(reduction: Function) -> Combiner:
    op = rows(reduction).op
    assert isinstance(op, ComputeOp)
    (root,) = op.body
    assert isinstance(root, Reduce)
    return root.combiner


def zero(dtype: str) -> te.Expr:
    return te.const(0, dtype)


FOREIGN = {
    "another operator": te.comm_reducer(te.maximum, te.min_value, name="sum"),
    "another identity": te.comm_reducer(te.maximum, te.min_value, name="max"),
    "more than the operator": te.comm_reducer(lambda x, y: x + y + 0.0, zero, name="sum"),
    "one side twice": te.comm_reducer(lambda x, y: x + x, zero, name="sum"),
    "another order": te.comm_reducer(lambda x, y: y + x, zero, name="sum"),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64"])
@pytest.mark.parametrize("name", ["sum", "prod", "min", "max"])
def test_the_built_in_reductions_are_known(name: str, dtype: str) -> None:
    assert builtin_name(builtin_combiner(name, dtype)) == name


@pytest.mark.parametrize("what", FOREIGN)
def test_others_are_not_whatever_they_are_called(what: str) -> None:
    assert builtin_name(combiner(FOREIGN[what])) is None
    assert "te.comm_reducer" in schedule_code(te.create_schedule(rows(FOREIGN[what])).state)


def test_a_sum_of_another_name_is_one_that_keeps_its_name() -> None:
    total = te.comm_reducer(lambda x, y: x + y, zero, name="total")
    state = te.create_schedule(rows(total)).state
    assert builtin_name(combiner(total)) == "sum"
    assert "name='total'" in schedule_code(state)
    assert "C(i) += A[i, k]" in str(state.dag)
    check_all(Case.of(state))


def test_a_maximum_called_sum_is_printed_as_what_it_is() -> None:
    state = te.create_schedule(rows(FOREIGN["another operator"])).state
    assert "C(i) sum= A[i, k]" in str(state.dag)
    check_all(Case.of(state))


# -- prepared inputs -------------------------------------------------------------------------------------


def executed(state: State) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(schedule_code(state), names)
    return names


def test_a_prepared_input_is_prepared_in_the_printed_program_too() -> None:
    tensors = conv2d_winograd_prepared(1, 8, 8, 4, 4)
    state = te.create_schedule(tensors[-1]).state
    check_printed_code(state)
    code = schedule_code(state).splitlines()
    assert [line for line in code if "import" in line] == ["from ansor import te"]
    weights = np.random.default_rng(0).uniform(-1, 1, (3, 3, 4, 4)).astype(np.float32)
    (made,) = (t for t in executed(state)["tensors"] if source_of(t) is not t)
    found = ansor.transform_layout(weights, made)
    np.testing.assert_array_equal(found, ansor.transform_layout(weights, tensors[1]))
    assert found.shape != weights.shape


def test_two_inputs_may_be_prepared_from_one() -> None:
    a = te.placeholder((4,), name="A")
    twice = te.compute((4,), lambda prepared: a[prepared] * 2.0, name="prepared")
    more = te.compute((4,), lambda i: twice[i] + 1.0, name="More")
    x, y = te.prepared(twice), te.prepared(more)
    c = te.compute((4,), lambda i: x[i] * y[i], name="C")
    names = executed(te.create_schedule(c).state)
    given, expected = np.arange(4, dtype=np.float32), np.arange(4) * 2.0
    inputs = [tensor for tensor in names["tensors"] if source_of(tensor) is not tensor]
    assert len(inputs) == 2
    assert source_of(inputs[0]) is source_of(inputs[1])
    np.testing.assert_array_equal(ansor.transform_layout(given, inputs[0]), expected)
    np.testing.assert_array_equal(ansor.transform_layout(given, inputs[1]), expected + 1)


def test_a_program_without_prepared_inputs_does_not_mention_them() -> None:
    assert "prepared" not in schedule_code(te.create_schedule(rows(te.sum)).state)


def test_a_sum_of_300_is_printed_as_python_reads_it() -> None:
    """300 brackets in each other are more than it allows."""
    a = te.placeholder((4,), name="A")
    t0 = te.compute((4,), lambda i: sum(([a[i]] * 300)[1:], start=a[i]), name="t0")
    check_printed_code(State.initial(ansor.ComputeDAG([a, te.compute((4,), lambda i: t0[i] + a[i])])))


def test_combiners_and_conditions_that_use_a_value_again() -> None:
    a, k = te.placeholder((4, 9), name="A"), te.reduce_axis((0, 9), name="k")

    def steps(guess: te.Expr, of: te.Expr) -> te.Expr:
        for _ in range(20):
            guess = (guess + of / guess) * 0.5
        return guess

    def larger(x: Any, y: Any) -> Any:
        root = steps(x[0] + y[0], y[1])
        return root * 2.0, root + x[1]

    reducer = te.comm_reducer(larger, lambda *dtypes: [te.const(1, dtype) for dtype in dtypes], name="larger")

    def body(i: te.Expr) -> Any:
        root = steps(a[i, k], a[i, k] + 1.0)
        return reducer((root, root * 2.0), axis=[k], where=root > 0.0)

    first, second = te.compute((4,), body, name="C")
    check_printed_code(State.initial(ansor.ComputeDAG([a, first, second])))


# -- what is printed is the same graph ---------------------------------------------------------------------


def check_same(state: State) -> None:
    """The printed program makes a schedule of the same graph, which records of this one fit, too."""
    check_printed_code(state)
    made = executed(state)
    assert ansor.ComputeDAG(made["tensors"]).structure_hash == state.dag.structure_hash
    assert [stage.name for stage in made["s"].state.stages] == [stage.name for stage in state.stages]


def test_an_identity_that_is_computed() -> None:
    largest = te.comm_reducer(te.maximum, lambda dtype: -te.max_value(dtype), name="largest")
    state = te.create_schedule(rows(largest)).state
    check_same(state)
    check_all(Case.of(state))


def test_attributes_that_name_tensors_outside_of_the_graph() -> None:
    """They say nothing of the graph: its hash leaves them out, too."""
    a, b, other = (te.placeholder((4,), name=name) for name in ("A", "B", "Other"))
    attrs = {"layout_free_placeholders": [b, other], "like": other}
    c = te.compute((4,), lambda i: a[i] * b[i], name="C", attrs=attrs)
    state = te.create_schedule(c).state
    check_same(state)
    assert "attrs={'layout_free_placeholders': [B]}" in schedule_code(state)
    d = te.compute((4,), lambda i: a[i], name="D", attrs={"like": other})
    assert "attrs" not in schedule_code(te.create_schedule(d).state)


def test_symbolic_sizes_that_no_shape_before_has() -> None:
    """A body and a reduction may use the size of what is read later."""
    n = te.var("n")
    x, k = te.placeholder((9,), name="X"), te.reduce_axis((0, n), name="k")
    scaled = te.compute((9,), lambda i: x[i] * te.cast(n, "float32"), name="Scaled")
    summed = te.compute((), lambda: te.sum(x[te.minimum(k, 8)], axis=k), name="Summed")
    late = te.placeholder((n,), name="Late")
    y = te.compute((n,), lambda i: late[i] + summed() + scaled[te.minimum(i, 8)], name="Y")
    check_same(State.initial(ansor.ComputeDAG([x, late, y])))
    assert schedule_code(te.create_schedule(scaled).state).count("n = te.var('n', 'int32')") == 1


@pytest.mark.parametrize("name", ["x²", "²", "\u0301", "größe", "1st", "class", "a-b"])
def test_names_that_are_none_in_python(name: str) -> None:
    x = te.placeholder((4,), name=name)
    check_same(te.create_schedule(te.compute((4,), lambda i: x[i] + 1.0, name="Y")).state)


def test_names_that_python_takes_for_one() -> None:
    micro, mu = (te.placeholder((4,), name=name) for name in ("\u00b5", "\u03bc"))
    check_same(te.create_schedule(te.compute((4,), lambda i: micro[i] - mu[i], name="Y")).state)


@pytest.mark.parametrize("compare", ["<", "<=", ">", ">=", "==", "!="])
def test_comparisons_of_a_number_with_an_index(compare: str) -> None:
    """Python turns `3 <= i` round."""
    x, three = te.placeholder((8,), name="X"), te.const(3, "int32")
    test = eval(f"lambda i: three {compare} i", {"three": three})
    y = te.compute((8,), lambda i: te.if_then_else(test(i), x[i], 0.0), name="Y")
    check_same(te.create_schedule(y).state)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_operators_on_bits(dtype: str) -> None:
    x = te.placeholder((8,), dtype, name="X")
    y = te.compute((8,), lambda i: (x[i] >> x[7 - i]) ^ (3 << x[i]) & ~x[i] | (x[i] & 100), name="Y")
    check_same(te.create_schedule(y).state)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 1, 0), (3, 0, 2, 1), (2, 1, 3, 0)])
def test_the_order_of_stages_is_that_of_the_arguments(order: tuple[int, ...]) -> None:
    a, b = te.placeholder((8,), name="A"), te.placeholder((8,), name="B")
    c = te.compute((8,), lambda i: a[i] + 1.0, name="C")
    d = te.compute((8,), lambda i: b[i] * 2.0, name="D")
    check_same(State.initial(ansor.ComputeDAG([(a, b, c, d)[at] for at in order])))


def test_an_input_that_nothing_reads_is_a_stage() -> None:
    x, unread = te.placeholder((8,), name="X"), te.placeholder((8,), name="Unread")
    y = te.compute((8,), lambda i: x[i] + 1.0, name="Y")
    check_same(State.initial(ansor.ComputeDAG([unread, x, y])).split(2, 0, [4]))


def test_an_annotation_that_says_nothing() -> None:
    state = te.create_schedule(rows(te.sum)).state.annotate(1, 0, Annotation.NONE)
    check_same(state)
    assert "bind" not in schedule_code(state)


def test_attributes_are_written_as_literals_or_left_out() -> None:
    x = te.placeholder((8,), name="X")
    attrs: dict[Any, Any] = {
        "FLOP": np.float64(128),
        "far": float("inf"),
        "parts": {"a": np.int64(2), "of": [x]},
        "array": np.ones(2),
        "function": print,
        x: 1,
    }
    y = te.compute((8,), lambda i: x[i] * 2.0, name="Y", attrs=attrs)
    found: dict[str, Any] = {}
    exec(schedule_code(te.create_schedule(y).state), found)
    assert found["Y"].op.attrs == {
        "FLOP": 128.0,
        "far": float("inf"),
        "parts": {"a": 2, "of": [found["X"]]},
    }


def test_a_schedule_by_hand_is_taken_where_a_state_is() -> None:
    _, _, C = ansor.workloads.matmul(8, 8, 8)
    s = te.create_schedule(C)
    s[C].parallel(C.op.axis[0])
    assert ansor.schedule_code(s) == ansor.schedule_code(s.state)
    assert ansor.program_key(s) == ansor.program_key(s.state)
    assert ansor.rewrite_layouts(s, 0).state is s.state
    for asked in (ansor.schedule_code, ansor.program_key, lambda what: ansor.rewrite_layouts(what, 0)):
        with pytest.raises(ansor.ScheduleError, match="found 3, not a schedule or a state; make one with"):
            asked(3)
