"""The numpy interpreter: whole tensors, chosen points, laziness, errors, bounded memory."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.errors import ArgumentError, RunError
from ansor.te import interp
from ansor.te.interp import evaluate, evaluate_points

A = te.placeholder((8, 4), name="A")
INDEX = te.placeholder((8,), "int32", name="index")
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def run(tensor: te.Tensor, inputs: dict[te.Tensor, Any], sizes: Any = None) -> np.ndarray:
    """`tensor` as a whole, after checking that all its points come out the same one by one."""
    whole = evaluate([tensor], inputs, sizes)[tensor]
    points = np.array(list(np.ndindex(*whole.shape)), dtype=np.int64).reshape(whole.size, whole.ndim)
    np.testing.assert_array_equal(evaluate_points(tensor, points, inputs, sizes), whole.reshape(-1))
    return whole


def test_symbolic_sizes_come_from_inputs_or_sizes() -> None:
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n,), name="x")
    k = te.reduce_axis((0, n), name="k")
    rows = te.compute((m,), lambda i: te.sum(x[k] * te.cast(i + m, "float32"), axis=k), name="rows")
    values = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(run(rows, {x: values}, {m: 3}), [30, 40, 50])
    with pytest.raises(RunError, match="symbolic size 'm' has no value"):
        evaluate(rows, {x: values})
    with pytest.raises(ArgumentError, match="'x' has extent 5 in dimension 0, but n is 4"):
        evaluate(rows, {x: values}, {m: 3, n: 4})


@pytest.mark.parametrize("size", [5, 40, 42])
def test_what_is_computed_over_a_negative_extent_is_empty(size: int) -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    k = te.reduce_axis((0, n - 40), name="k")
    total = te.compute((2,), lambda i: te.sum(x[k + 40] + x[k], axis=k), name="total")
    rest = te.compute((n - 40,), lambda i: x[i + 40] * 2.0, name="rest")
    padded = te.compute((n,), lambda i: te.if_then_else(i >= 40, rest[i - 40], 1.0), name="padded")
    values = np.arange(size, dtype=np.float32)
    assert run(total, {x: values}).tolist() == [(values[40:] + values[: max(0, size - 40)]).sum()] * 2
    np.testing.assert_array_equal(run(padded, {x: values}), np.where(np.arange(size) >= 40, 2 * values, 1))


def test_inputs_and_outputs_of_a_negative_extent_are_refused() -> None:
    n = te.var("n")
    x, y = te.placeholder((n,), name="x"), te.placeholder((n - 40,), name="y")
    values = np.ones(5, np.float32)
    rest = te.compute((n - 40,), lambda i: x[i + 40] * 2.0, name="rest")
    with pytest.raises(ArgumentError, match=r"shape of 'rest', \[\(n - 40\)\], \[-35\]"):
        evaluate(rest, {x: values})
    padded = te.compute((n,), lambda i: te.if_then_else(i >= 40, y[i - 40], x[i]), name="padded")
    with pytest.raises(ArgumentError, match=r"shape of 'y', \[\(n - 40\)\], \[-35\]"):
        evaluate(padded, {x: values, y: values[:0]})


def test_zero_rank() -> None:
    scalar = te.placeholder((), name="s")
    doubled = te.compute((), lambda: scalar() * 2.0, name="doubled")
    r, k = te.reduce_axis((0, 8), name="r"), te.reduce_axis((0, 4), name="k")
    total = te.compute((), lambda: te.sum(A[r, k], axis=[r, k]), name="total")
    both = te.compute((), lambda: total[()] + doubled(), name="both")
    result = run(both, {scalar: np.float32(3), A: X})
    assert result.shape == ()
    assert result == X.sum() + 6


def test_reduction_of_one_point_and_of_a_constant() -> None:
    k = te.reduce_axis((3, 4), name="k")
    np.testing.assert_array_equal(run(te.compute((8,), lambda i: te.sum(A[i, k], axis=k)), {A: X}), X[:, 3])
    r = te.reduce_axis((0, 5), name="r")
    assert run(te.compute((2,), lambda i: te.sum(1, axis=r)), {}).tolist() == [5, 5]
    assert run(te.compute((2,), lambda i: te.prod(i + 1, axis=r)), {}).tolist() == [1, 32]


def test_reduction_where() -> None:
    k = te.reduce_axis((0, 4), name="k")
    odd = te.compute((8,), lambda i: te.sum(A[i, k], axis=k, where=k % 2 == 1), name="odd")
    np.testing.assert_array_equal(run(odd, {A: X}), X[:, 1] + X[:, 3])
    never = te.compute((8,), lambda i: te.max(A[i, k], axis=k, where=k < 0), name="never")
    np.testing.assert_array_equal(run(never, {A: X}), np.full(8, -np.inf, np.float32))
    shifted = te.compute((8,), lambda i: te.sum(A[i, k + 1], axis=k, where=k < 3), name="shifted")
    np.testing.assert_array_equal(run(shifted, {A: X}), X[:, 1:].sum(1))


def test_argmax_by_comm_reducer() -> None:
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.maximum(x[1], y[1])),
        lambda at, value: (te.const(-1, at), te.min_value(value)),
        name="argmax",
    )
    x = te.placeholder((6, 1000), name="x")
    k = te.reduce_axis((0, 1000), name="k")
    at, value = te.compute((6,), lambda i: argmax((k, x[i, k]), axis=k), name="best")
    values = np.random.default_rng(0).integers(0, 50, (6, 1000)).astype(np.float32)
    np.testing.assert_array_equal(run(at, {x: values}), values.argmax(1))
    np.testing.assert_array_equal(run(value, {x: values}), values.max(1))
    both = evaluate([value, at], {x: values})
    assert list(both) == [value, at]


def test_own_reducer_of_one_value() -> None:
    both_bits = te.comm_reducer(lambda x, y: x * 2 + y - x, lambda dtype: te.const(0, dtype), name="add")
    k = te.reduce_axis((0, 7), name="k")
    assert run(te.compute((), lambda: both_bits(k * k, axis=k)), {}) == sum(k * k for k in range(7))


def test_a_reducer_is_judged_by_its_expression_not_its_name() -> None:
    last = te.comm_reducer(lambda x, y: te.maximum(x, y), lambda dtype: te.min_value(dtype), name="sum")
    k = te.reduce_axis((0, 4), name="k")
    np.testing.assert_array_equal(run(te.compute((8,), lambda i: last(A[i, k], axis=k)), {A: X}), X.max(1))


def test_lazy_choice_does_not_read_or_divide() -> None:
    padded = te.compute(
        (10, 4),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < 9), A[i - 1, j], -1.0),
        name="padded",
    )
    expected = np.pad(X, [(1, 1), (0, 0)], constant_values=-1)
    np.testing.assert_array_equal(run(padded, {A: X}), expected)
    safe = te.compute((8,), lambda i: te.if_then_else(i == 3, 0, 100 // (i - 3)), name="safe")
    assert run(safe, {}).tolist() == [-34, -50, -100, 0, 100, 50, 33, 25]


def test_lazy_choices_nest() -> None:
    nested = te.compute(
        (12,),
        lambda i: te.if_then_else(
            i < 8,
            te.if_then_else(i >= 4, A[i, i - 4], te.if_then_else(i != 0, A[i - 1, 0], 0.5)),
            te.if_then_else(i < 10, A[i - 8, 1], A[te.if_then_else(i < 11, i - 10, 99 - 99), 2]),
        ),
        name="nested",
    )
    expected = [0.5, *X[:3, 0], *X[range(4, 8), range(4)], *X[:2, 1], X[0, 2], X[0, 2]]
    np.testing.assert_array_equal(run(nested, {A: X}), np.array(expected, np.float32))


def test_a_shared_node_below_both_sides_of_a_choice() -> None:
    def body(i: te.Var) -> te.Expr:
        read: te.Expr = A[i, 0]
        return te.if_then_else(i < 4, read, -read)

    np.testing.assert_array_equal(
        run(te.compute((8,), body), {A: X}), np.where(np.arange(8) < 4, X[:, 0], -X[:, 0])
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            lambda i: A[i + 1, 0],
            r"`A\[\(i \+ 1\), 0\]`.* in dimension 0: 8 is not in 0..7 at i=7",
        ),
        (lambda i: A[i - 2, 0], r"'A'.*dimension 0: -2 is not in 0..7 at i=0"),
        (lambda i: A[0, i], r"'A'.*dimension 1: 4 is not in 0..3 at i=4"),
        (lambda i: te.select(i < 4, A[0, i], 0.0), r"'A'.*dimension 1: 4 is not in 0..3"),
        (lambda i: te.if_then_else(i < 5, A[0, i], 0.0), r"'A'.*dimension 1: 4.*at i=4; guard it"),
        (lambda i: A[INDEX[i], 0], r"`A\[index\[i\], 0\]`.*dimension 0: 9 is not in 0..7 at i=2"),
    ],
)
def test_wrong_programs_are_reported_not_run(body: Any, message: str) -> None:
    index = np.array([0, 1, 9, 3, 4, 5, 6, 7], np.int32)
    tensor = te.compute((8,), body, name="C")
    with pytest.raises(RunError, match=message):
        evaluate([tensor], {A: X, INDEX: index})
    with pytest.raises(RunError):
        evaluate_points(tensor, np.arange(8)[:, None], {A: X, INDEX: index})


def test_arguments_are_checked_by_name() -> None:
    copy = te.compute((8, 4), lambda i, j: A[i, j], name="copy")
    cases: dict[str, dict[te.Tensor, Any]] = {
        "no array is given for the input 'A'": {},
        r"input 'A' has dtype float64, expected float32": {A: X.astype(np.float64)},
        r"input 'A' has shape \[4, 8\], expected \[8, 4\]": {A: X.T},
        r"input 'A' has shape \[32\], expected 2 dimension": {A: X.reshape(-1)},
    }
    for message, inputs in cases.items():
        with pytest.raises(ArgumentError, match=message):
            evaluate([copy], inputs)
    with pytest.raises(ArgumentError, match=r"indices of 'copy'.*shape \(n_points, 2\)"):
        evaluate_points(copy, [1, 2], {A: X})
    with pytest.raises(ArgumentError, match="outside tensor 'copy'"):
        evaluate_points(copy, [[8, 0]], {A: X})


def test_given_intermediates_are_not_computed() -> None:
    broken = te.compute((8, 4), lambda i, j: A[i + 100, j], name="broken")
    after = te.compute((8, 4), lambda i, j: broken[i, j] + 1.0, name="after")
    np.testing.assert_array_equal(run(after, {broken: X}), X + 1)


def test_several_outputs_and_a_placeholder_as_output() -> None:
    one = te.compute((8, 4), lambda i, j: A[i, j] + 1.0, name="one")
    two = te.compute((8, 4), lambda i, j: one[i, j] * 2.0, name="two")
    results = evaluate([two, A, one], {A: X})
    assert list(results) == [two, A, one]
    np.testing.assert_array_equal(results[two], (X + 1) * 2)
    np.testing.assert_array_equal(results[one], X + 1)


def test_no_points() -> None:
    one = te.compute((8, 4), lambda i, j: A[i, j] + 1.0, name="one")
    assert evaluate_points(one, np.empty((0, 2), np.int64), {A: X}).shape == (0,)


def test_block_size_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    k, r = te.reduce_axis((1, 4), name="k"), te.reduce_axis((0, 5), name="r")
    body = te.compute(
        (3, 7, 2), lambda i, j, c: te.sum((i + 1) * k * r + j - c, axis=[r, k], where=r != c), name="C"
    )
    whole = run(body, {})
    for block in (1, 2, 7, 16, 40):
        monkeypatch.setattr(interp, "BLOCK_ELEMENTS", block)
        np.testing.assert_array_equal(run(body, {}), whole)


def test_memory_is_bounded_by_blocks() -> None:
    """A reduction over 2**23 points makes no temporary of that size (64 MiB)."""
    r, k = te.reduce_axis((0, 1 << 13), name="r"), te.reduce_axis((0, 1 << 10), name="k")
    total = te.compute((), lambda: te.sum(te.cast(r * k, "int64"), axis=[r, k]))
    tracemalloc.start()
    result = evaluate([total], {})[total]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result == (1 << 12) * ((1 << 13) - 1) * (1 << 9) * ((1 << 10) - 1)
    assert peak < 24 << 20


def test_points_touch_only_what_they_need() -> None:
    """One row of a softmax over a tensor too large to compute whole."""
    n, m = 1 << 20, 64
    x = te.placeholder((m,), name="x")
    k1, k2 = te.reduce_axis((0, m), name="k1"), te.reduce_axis((0, m), name="k2")
    grid = te.compute((n, m), lambda i, j: x[j] * te.cast(i % 3, "float32"), name="grid")
    high = te.compute((n,), lambda i: te.max(grid[i, k1], axis=k1), name="high")
    power = te.compute((n, m), lambda i, j: te.exp(grid[i, j] - high[i]), name="power")
    total = te.compute((n,), lambda i: te.sum(power[i, k2], axis=k2), name="total")
    soft = te.compute((n, m), lambda i, j: power[i, j] / total[i], name="soft")
    values = np.linspace(-1, 1, m, dtype=np.float32)
    expected = np.exp(2 * values) / np.exp(2 * values).sum()
    row = 3 * (n // 3 - 1) + 2
    points = [[row, j] for j in range(m)]
    np.testing.assert_allclose(evaluate_points(soft, points, {x: values}), expected, rtol=1e-6)


def test_points_of_40_filters_one_after_another() -> None:
    """Each element is read at two places, and computed once."""
    count, size = 40, 1 << 25
    x = te.placeholder((7,), "int64", name="x")
    last = te.compute((size,), lambda i: x[i % 7])
    for level in range(1, count + 1):
        last = te.compute((size - level,), lambda i, last=last: (last[i] + last[i + 1]) % 1000)
    values = np.arange(7)
    expected = values[np.arange(5, 5 + count + 1) % 7]
    for _ in range(count):
        expected = (expected[:-1] + expected[1:]) % 1000
    assert evaluate_points(last, [[5]], {x: values}) == expected


def test_60_choices_each_of_whose_sides_uses_the_one_before() -> None:
    """It is computed either way; a neighbour is read where there is one, on one of the sides alone."""
    row = te.placeholder((8,), name="row")

    def body(i: te.Expr) -> te.Expr:
        value = row[i]
        for step in range(60):
            neighbour = te.if_then_else(i + 1 < 8, row[i + 1], value)
            value = te.if_then_else(i < step % 8, value * 0.5 + neighbour, value * 0.25)
        return value

    expected = np.zeros(8, np.float32)
    for i in range(8):
        value = np.float32(i)
        for step in range(60):
            neighbour = np.float32(i + 1) if i + 1 < 8 else value
            value = value * np.float32(0.5) + neighbour if i < step % 8 else value * np.float32(0.25)
        expected[i] = value
    chosen = te.compute((8,), body, name="chosen")
    np.testing.assert_array_equal(run(chosen, {row: np.arange(8, dtype=np.float32)}), expected)
