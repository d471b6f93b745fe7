"""The primitive `s.rewrite_layout` and its steps: inputs, copies, results; records, code and refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import LogFormatError, ScheduleError
from ansor.schedule.layout import DigitLike, transform_layout
from ansor.schedule.layout_rewrite import arguments
from ansor.schedule.manual import Schedule
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.schedule.steps import FollowLayoutStep, RewriteLayoutStep, step_from_json
from ansor.te import Tensor
from ansor.te.interp import evaluate
from tests.sketches_cases import matmul

PANELS: list[DigitLike] = [(1, None), 0, (1, 4)]


def scheduled(n: int = 6, m: int = 10, k: int = 5) -> tuple[Schedule, list[Tensor]]:
    tensors = matmul(n, m, k)
    return te.create_schedule(tensors[2]), tensors


def run(s: Schedule | State, args: Sequence[Tensor], inputs: dict[Tensor, np.ndarray]) -> np.ndarray:
    """Build, and call with the inputs in the layouts of the arguments."""
    state = s.state if isinstance(s, Schedule) else s
    defined = state.dag.tensors
    given = [transform_layout(inputs[t], a) for t, a in zip(defined, args, strict=True) if t in inputs]
    result: np.ndarray = ansor.build(s, args, target="llvm")(*given)
    return result


def random_inputs(tensors: Sequence[Tensor]) -> dict[Tensor, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        t: rng.uniform(-1, 1, [s for s in t.shape if isinstance(s, int)]).astype(t.dtype)
        for t in tensors
        if not t.op.input_tensors
    }


# -- what it does ------------------------------------------------------------------------------------------


def test_an_input_is_taken_in_its_new_layout() -> None:
    s, (a, b, c) = scheduled()
    panels = s.rewrite_layout(b, PANELS)
    assert (panels.name, panels.shape) == ("B", (3, 5, 4))
    assert "B: float32[3, 5, 4]" in str(ansor.lower(s, [a, panels, c]))
    inputs = random_inputs([a, b, c])
    found = run(s, [a, panels, c], inputs)
    np.testing.assert_array_equal(found, run(te.create_schedule(c), [a, b, c], inputs))


def test_the_old_name_of_an_input_means_the_new_one() -> None:
    s, (a, b, c) = scheduled()
    panels = s.rewrite_layout(b, PANELS)
    text = str(ansor.lower(s, [a, panels, c]))
    assert text == str(ansor.lower(s, [a, b, c]))
    assert text == str(ansor.lower(s))
    assert [t.shape for t in arguments(s.state)] == [(6, 5), (3, 5, 4), (6, 10)]


def test_a_copy_for_some_readers_leaves_the_input_alone() -> None:
    a, b = te.placeholder((6, 5), name="A"), te.placeholder((5, 10), name="B")
    k, q = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 5), "q")
    c = te.compute((6, 10), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((10,), lambda j: te.sum(b[q, j], axis=q), name="D")
    s = te.create_schedule([c, d])
    copy = s.rewrite_layout(b, PANELS, readers=c)
    assert copy.name == "B.layout"
    assert [stage.name for stage in s.state.stages] == ["A", "B", "B.layout", "C", "D"]
    assert s[d].op.input_tensors == (b,)
    inputs = random_inputs([a, b, c, d])
    left, right = ansor.build(s, [a, b, c, d], target="llvm")(inputs[a], inputs[b])
    np.testing.assert_allclose(left, inputs[a] @ inputs[b], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(right, inputs[b].sum(0), rtol=1e-5, atol=1e-5)


def test_a_computed_stage_stores_in_another_order() -> None:
    """A reduction with padding: padded elements add nothing and are never read."""
    a, b = te.placeholder((6, 5), name="A"), te.placeholder((5, 10), name="B")
    k = te.reduce_axis((0, 5), "k")
    c = te.compute((6, 10), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    out = te.compute((6, 10), lambda i, j: c[i, j] + te.const(1.0, "float32"), name="out")
    s = te.create_schedule(out)
    blocks = s.rewrite_layout(c, [(1, None), (0, None), (0, 4), (1, 3)])
    assert blocks.shape == (4, 2, 4, 3)
    assert [axis.name for axis in s[blocks].op.axis] == ["j_0", "i_0", "i_1", "j_1"]
    inputs = random_inputs([a, b, out])
    np.testing.assert_allclose(run(s, [a, b, out], inputs), inputs[a] @ inputs[b] + 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16"])
def test_padding_is_a_zero_of_the_dtype(dtype: str) -> None:
    x = te.placeholder((7,), dtype, name="X")
    y = te.compute((7,), lambda i: te.cast(x[i], "int32") + 1, name="Y")
    s = te.create_schedule(y)
    s.rewrite_layout(x, [(0, None), (0, 4)], readers=[y])
    data = np.arange(7).astype(dtype)
    np.testing.assert_array_equal(ansor.build(s, [x, y], target="llvm")(data), data.astype("int32") + 1)


def test_names_of_axes_may_be_anything() -> None:
    """Digits, dots and the names that pieces get, as names of axes."""
    w = te.placeholder((6, 4), name="W")
    r = te.reduce_axis((0, 6), "4j")
    y = te.compute((4,), lambda j_0: te.sum(w[r, j_0], axis=r), name="Y")
    z = te.compute((4,), lambda i: y[i] + y[i], name="Z")
    s = te.create_schedule(z)
    s.rewrite_layout(y, [(0, 2), (0, 2)])
    s.rewrite_layout(w, [(1, 2), (0, None), (1, 2), (0, 4)])
    inputs = random_inputs([w, z])
    np.testing.assert_allclose(run(s, arguments(s.state), inputs), 2 * inputs[w].sum(0), rtol=1e-5, atol=1e-5)


# -- what is said of it ------------------------------------------------------------------------------------


def examples() -> list[State]:
    made = []
    s, (_, b, c) = scheduled()
    s.rewrite_layout(b, PANELS)
    made.append(s.state)
    s, (_, b, c) = scheduled()
    copy = s.rewrite_layout(b, PANELS, readers=[c])
    s[copy].parallel(s[copy].op.axis[0])
    made.append(s.state)
    s, (_, b, c) = scheduled()
    cached = s.cache_read(b, "local", c)
    s.rewrite_layout(cached, [0, (1, 4, 1), (1, 3, 4)])
    made.append(s.state)
    state = te.create_schedule(matmul(6, 10, 5)[2]).state
    state = state.split(2, 1, [2, 4]).cache_read(1, "local", [2])
    made.append(state.apply(FollowLayoutStep(2, 3)))
    return made


@pytest.mark.parametrize("state", examples())
def test_the_printed_code_rebuilds_the_program(state: State) -> None:
    names: dict[str, Any] = {}
    exec(schedule_code(state), names)
    assert str(names["s"].state.with_bounds()) == str(state.with_bounds())
    assert str(ansor.lower(names["s"], names["tensors"])) == str(ansor.lower(state))
    assert [t.shape for t in names["tensors"]] == [t.shape for t in arguments(state)]


@pytest.mark.parametrize("state", examples())
def test_the_record_replays(state: State) -> None:
    lines = [json.loads(json.dumps(step.to_json())) for step in state.steps]
    again = State.replay(state.dag, lines)
    assert again.steps == state.steps
    assert str(ansor.lower(again)) == str(ansor.lower(state))
    assert not all(step.in_reference for step in again.steps)


def test_states_that_differ_in_layout_differ() -> None:
    s, (_, b, _) = scheduled()
    plain = s.state
    one = plain.apply(RewriteLayoutStep(1, ((1, 10, 1), (0, 5, 1))))
    other = plain.apply(RewriteLayoutStep(1, ((1, 10, 1), (0, 1, 5), (0, 5, 1))))
    assert len({plain, one, other}) == 3
    assert "B[(1, 10), (0, 5)]" in str(one)
    assert b.shape == (5, 10)


# -- refusals ----------------------------------------------------------------------------------------------


def test_refusals() -> None:
    s, (a, b, c) = scheduled()
    before = s.state
    with pytest.raises(ScheduleError, match="'C' is an output"):
        s.rewrite_layout(c, [1, 0])
    with pytest.raises(ScheduleError, match="has no digit"):
        s.rewrite_layout(b, [1])
    with pytest.raises(ScheduleError, match="at least one reader"):
        s.rewrite_layout(b, [1, 0], readers=[])
    with pytest.raises(ScheduleError, match="the placeholder 'B'"):
        s.rewrite_layout(a, [1, 0], readers=[b])
    assert s.state is before
    s.rewrite_layout(b, [1, 0])
    with pytest.raises(ScheduleError, match="rewritten already"):
        s.rewrite_layout(b, [1, 0])
    cached = s.cache_read(a, "local", c)
    s[cached].split(s[cached].op.axis[0], factor=2)
    with pytest.raises(ScheduleError, match="apply rewrite_layout first"):
        s.rewrite_layout(cached, [1, 0])


def test_layouts_follow_readers_that_read_along_sums_of_their_axes_only() -> None:
    x = te.placeholder((12,), name="X")
    r = te.reduce_axis((0, 3), "r")
    y = te.compute((10,), lambda i: te.sum(x[(i + r) // 2], axis=r), name="Y")
    state = te.create_schedule(y).state.cache_read(0, "local", [1])
    with pytest.raises(ScheduleError, match=r"'Y' reads it at `.*`, not at one of its axes or a sum of them"):
        state.apply(FollowLayoutStep(1, 2))
    with pytest.raises(ScheduleError, match="does not read it"):
        state.apply(FollowLayoutStep(2, 2))


def test_what_a_window_passes_over_is_one_digit_where_the_loop_that_moves_it_last_is() -> None:
    x = te.placeholder((14, 6), name="X")
    r, k = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 6), "k")
    y = te.compute((10,), lambda i: te.sum(x[9 - i + 2 * r, k], axis=[r, k]), name="Y")
    state = te.create_schedule(y).state.split(1, 2, [3]).split(1, 0, [5])
    state = state.reorder(1, [0, 2, 3, 1, 4]).cache_read(0, "local", [1])
    step = FollowLayoutStep(1, 2)
    assert step.layout(state).spec == [(1, 2), (0, 14), (1, 3)]
    inputs = random_inputs([x, y])
    found = run(state.apply(step).compute_at(1, 2, 2), [x, y], inputs)
    np.testing.assert_allclose(found, evaluate([y], inputs)[y], rtol=1e-5)


@pytest.mark.parametrize("reader", [0, 4, 99, -1, -9])
def test_layouts_follow_stages_that_there_are(reader: int) -> None:
    state = scheduled()[0].state.cache_read(1, "local", [2])
    with pytest.raises(ScheduleError, match=r"follow_layout: (there is no stage|stage 0 is the placeholder)"):
        state.apply(FollowLayoutStep(2, reader))


def test_following_a_loop_split_twice_into_overlapping_pieces() -> None:
    """The pieces of 8 in 2 x 5 cover 10, so they are no pieces of 16 in 2 x 8: the layout is a looser one."""
    x = te.placeholder((16,), name="X")
    y = te.compute((16,), lambda i: x[i] + x[i], name="Y")
    state = te.create_schedule(y).state.split(1, 0, [2, 8]).split(1, 2, [2, 5]).cache_read(0, "local", [1])
    state = state.apply(FollowLayoutStep(1, 2)).compute_at(1, 2, 3)
    inputs = random_inputs([x, y])
    np.testing.assert_array_equal(run(state, [x, y], inputs), 2 * inputs[x])


@pytest.mark.parametrize("cached", [False, True])
def test_an_intermediate_argument_is_what_is_stored(cached: bool) -> None:
    """Its old name would be one for the right shape, with the elements elsewhere."""
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((4, 4), lambda i, j: b[i, j] + 1.0, name="C")
    s = te.create_schedule(c)
    turned = s.rewrite_layout(b, [1, 0])
    if cached:
        s.cache_write(turned, "local")
    with pytest.raises(ScheduleError, match=r"'B' is an argument, .* the tensor that rewrite_layout gave"):
        ansor.lower(s, [a, b, c])
    data = np.arange(16, dtype=np.float32).reshape(4, 4)
    between, result = np.empty((4, 4), np.float32), np.empty((4, 4), np.float32)
    ansor.build(s, [a, turned, c])(data, between, result)
    np.testing.assert_array_equal(between, 2 * data.T)
    np.testing.assert_array_equal(result, 2 * data + 1)


@pytest.mark.parametrize(
    "line", [["RL", 1, [[0, 5, 1]]], ["RL", 1, "4j", []], ["RL", 1, [[0, 5]], []], ["FRL", 1]]
)
def test_malformed_records_are_refused(line: list[Any]) -> None:
    with pytest.raises(LogFormatError, match=r"step F?RL: expected"):
        step_from_json(line)
