"""Computations that other tuners are known to stumble over are searched like any other.

Each is tuned for a few trials, built and run for real. Every program must be right by the oracle, and the
best one by a numpy program that knows nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.te import Tensor
from tests.tuning_laws import Machinery, learned_policy, machinery, policy_of_seed, task_of_seed

pytestmark = pytest.mark.usefixtures("small_searches")

Array = np.ndarray[Any, Any]
TRIALS = 6
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Computation:
    """Tensors, data for the inputs in order, and what numpy makes of them."""

    tensors: Sequence[Tensor]
    data: Sequence[Array]
    expected: Sequence[Array]


Maker = Callable[[], Computation]
COMPUTATIONS: dict[str, Maker] = {}


def computation(make: Maker) -> Maker:
    COMPUTATIONS[make.__name__] = make
    return make


def integers(*shape: int, dtype: str = "float32", low: int = -3, high: int = 4) -> Array:
    """Small integers: sums are exact, and there are ties."""
    return RNG.integers(low, high, shape).astype(dtype)


def first_of_greatest() -> Any:
    def combine(a: Any, b: Any) -> Any:
        first = te.any(a[1] > b[1], te.all(a[1] == b[1], a[0] < b[0]))
        return te.select(first, a[0], b[0]), te.select(first, a[1], b[1])

    return te.comm_reducer(combine, lambda i, v: (te.max_value(i), te.min_value(v)), "argmax")


# -- reductions of several values ---------------------------------------------------------------------


@computation
def argmax_of_rows() -> Computation:
    """Where the first of the greatest is; both outputs are wanted."""
    x = te.placeholder((6, 37), name="X")
    k = te.reduce_axis((0, 37), name="k")
    where, value = te.compute((6,), lambda i: first_of_greatest()((k + 0, x[i, k]), axis=k), name="Best")
    data = integers(6, 37)
    return Computation([x, where, value], [data], [data.argmax(1).astype("int32"), data.max(1)])


@computation
def argmax_of_everything() -> Computation:
    """A rank-0 index, of which a later operation makes a row."""
    x = te.placeholder((5, 8), "int32", name="X")
    i, j = te.reduce_axis((0, 5), name="i"), te.reduce_axis((0, 8), name="j")
    where, _ = te.compute((), lambda: first_of_greatest()((i * 8 + j, x[i, j]), axis=[i, j]), name="Best")
    row = te.compute((), lambda: where() // 8, name="Row")
    data = integers(5, 8, dtype="int32")
    return Computation([x, row], [data], [np.asarray(data.argmax() // 8, "int32")])


@computation
def least_and_greatest() -> Computation:
    both = te.comm_reducer(
        lambda a, b: (te.minimum(a[0], b[0]), te.maximum(a[1], b[1])),
        lambda a, b: (te.max_value(a), te.min_value(b)),
        "minmax",
    )
    x = te.placeholder((7, 19), "int8", name="X")
    k = te.reduce_axis((0, 19), name="k")
    low, high = te.compute((7,), lambda i: both((x[i, k], x[i, k]), axis=k), name="Range")
    data = integers(7, 19, dtype="int8", low=-100, high=100)
    return Computation([x, low, high], [data], [data.min(1), data.max(1)])


@computation
def sum_and_sum_of_squares() -> Computation:
    both = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda a, b: (te.const(0, a), te.const(0, b)), "moments"
    )
    x = te.placeholder((4, 50), name="X")
    k = te.reduce_axis((0, 50), name="k")
    first, second = te.compute((4,), lambda i: both((x[i, k], x[i, k] * x[i, k]), axis=k), name="Moments")
    n = te.const(50.0, "float32")
    variance = te.compute((4,), lambda i: second[i] / n - first[i] / n * (first[i] / n), name="Variance")
    data = integers(4, 50)
    return Computation([x, variance], [data], [data.var(1)])


# -- reductions that are not sums over a box ------------------------------------------------------------


@computation
def cumulative_sum() -> Computation:
    x = te.placeholder((5, 21), name="X")
    k = te.reduce_axis((0, 21), name="k")
    y = te.compute((5, 21), lambda i, j: te.sum(x[i, k], axis=k, where=k <= j), name="Y")
    data = integers(5, 21)
    return Computation([x, y], [data], [data.cumsum(1)])


@computation
def rank_of_each_element() -> Computation:
    """Sorting without sorting: how many are less, or equal and earlier."""
    x = te.placeholder((3, 17), name="X")
    k = te.reduce_axis((0, 17), name="k")

    def earlier(i: Any, j: Any) -> Any:
        return te.any(x[i, k] < x[i, j], te.all(x[i, k] == x[i, j], k < j))

    y = te.compute((3, 17), lambda i, j: te.sum(te.cast(earlier(i, j), "int32"), axis=k), name="Rank")
    data = integers(3, 17)
    order = data.argsort(1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(17)[None], 1)
    return Computation([x, y], [data], [ranks.astype("int32")])


@computation
def any_and_all() -> Computation:
    some = te.comm_reducer(te.logical_or, lambda _: te.const(False), "any")
    every = te.comm_reducer(te.logical_and, lambda _: te.const(True), "all")
    x = te.placeholder((9, 14), "bool", name="X")
    k, m = te.reduce_axis((0, 14), name="k"), te.reduce_axis((0, 14), name="m")
    a = te.compute((9,), lambda i: some(x[i, k], axis=k), name="Any")
    b = te.compute((9,), lambda i: every(x[i, m], axis=m), name="All")
    data = RNG.random((9, 14)) < np.linspace(0, 1, 9)[:, None]
    return Computation([x, a, b], [data], [data.any(1), data.all(1)])


@computation
def histogram() -> Computation:
    x = te.placeholder((60,), "int32", name="X")
    k = te.reduce_axis((0, 60), name="k")
    y = te.compute((7,), lambda i: te.sum(te.cast(x[k] == i, "int32"), axis=k), name="Count")
    data = integers(60, dtype="int32", low=0, high=7)
    return Computation([x, y], [data], [np.bincount(data, minlength=7).astype("int32")])


@computation
def product_of_integers() -> Computation:
    x = te.placeholder((3, 4, 5), "int64", name="X")
    k, m = te.reduce_axis((0, 4), name="k"), te.reduce_axis((0, 5), name="m")
    y = te.compute((3,), lambda i: te.prod(x[i, k, m], axis=[k, m]), name="Y")
    data = integers(3, 4, 5, dtype="int64", low=-2, high=3)
    return Computation([x, y], [data], [data.prod((1, 2))])


# -- indices from data ---------------------------------------------------------------------------------


@computation
def reverse_sequence() -> Computation:
    """Each row is turned round up to a length of its own; the index is computed from data."""
    x = te.placeholder((4, 11, 3), name="X")
    lengths = te.placeholder((4,), "int32", name="lengths")
    y = te.compute(
        (4, 11, 3),
        lambda b, t, c: x[b, te.if_then_else(t < lengths[b], lengths[b] - 1 - t, t), c],
        name="Y",
    )
    data, some = integers(4, 11, 3), np.array([0, 1, 7, 11], "int32")
    right = data.copy()
    for row, length in enumerate(some):
        right[row, :length] = data[row, :length][::-1]
    return Computation([x, lengths, y], [data, some], [right])


@computation
def embedding_and_matmul() -> Computation:
    table, w = te.placeholder((13, 16), name="table"), te.placeholder((16, 8), name="W")
    index = te.placeholder((6,), "int64", name="index")
    k = te.reduce_axis((0, 16), name="k")
    rows = te.compute((6, 16), lambda i, j: table[te.cast(index[i], "int32"), j], name="Rows")
    y = te.compute((6, 8), lambda i, j: te.sum(rows[i, k] * w[k, j], axis=k), name="Y")
    data, weight = integers(13, 16), integers(16, 8)
    some = integers(6, dtype="int64", low=0, high=13)
    return Computation([table, index, w, y], [data, some, weight], [data[some] @ weight])


@computation
def one_hot_and_its_sum() -> Computation:
    index = te.placeholder((9,), "uint8", name="index")
    k = te.reduce_axis((0, 9), name="k")
    hot = te.compute((9, 5), lambda i, j: te.cast(te.cast(index[i], "int32") == j, "float32"), name="Hot")
    count = te.compute((5,), lambda j: te.sum(hot[k, j], axis=k), name="Count")
    data = integers(9, dtype="uint8", low=0, high=5)
    right = np.eye(5, dtype="float32")[data]
    return Computation([index, hot, count], [data], [right, right.sum(0)])


# -- gradients of pooling --------------------------------------------------------------------------------


@computation
def gradient_of_max_pooling() -> Computation:
    """Windows of 3 by 3 with stride 2 that overlap: each window's gradient goes to its first maximum."""
    n, m, out = 2, 11, 5
    x = te.placeholder((n, m, m), name="X")
    g = te.placeholder((n, out, out), name="G")
    a, b = te.reduce_axis((0, 3), name="a"), te.reduce_axis((0, 3), name="b")
    where, _ = te.compute(
        (n, out, out),
        lambda c, i, j: first_of_greatest()(
            ((i * 2 + a) * m + j * 2 + b, x[c, i * 2 + a, j * 2 + b]), axis=[a, b]
        ),
        name="Where",
    )
    p, q = te.reduce_axis((0, 2), name="p"), te.reduce_axis((0, 2), name="q")

    def share(c: Any, h: Any, w: Any) -> Any:
        i, j = te.floordiv(h, 2) - p, te.floordiv(w, 2) - q
        inside = te.all(i >= 0, i < out, j >= 0, j < out)
        chosen = te.if_then_else(
            inside,
            te.if_then_else(where[c, i, j] == h * m + w, g[c, i, j], te.const(0, "float32")),
            te.const(0, "float32"),
        )
        return te.sum(chosen, axis=[p, q])

    y = te.compute((n, m, m), share, name="Y")
    data, gradient = integers(n, m, m), integers(n, out, out)
    right = np.zeros_like(data)
    for c, i, j in np.ndindex(n, out, out):
        at = np.unravel_index(data[c, i * 2 : i * 2 + 3, j * 2 : j * 2 + 3].argmax(), (3, 3))
        right[c, i * 2 + at[0], j * 2 + at[1]] += gradient[c, i, j]
    return Computation([x, g, y], [data, gradient], [right])


@computation
def gradient_of_average_pooling() -> Computation:
    """Padding does not count: each window divides by the elements that it has."""
    n, out = 9, 5
    g = te.placeholder((out, out), name="G")
    p, q = te.reduce_axis((0, 2), name="p"), te.reduce_axis((0, 2), name="q")

    def size(i: Any) -> Any:
        return te.minimum(i * 2 + 2, n) - te.maximum(i * 2 - 1, 0)

    def share(h: Any, w: Any) -> Any:
        i, j = te.floordiv(h + 1, 2) - p, te.floordiv(w + 1, 2) - q
        inside = te.all(i >= 0, i < out, j >= 0, j < out, h < i * 2 + 2, w < j * 2 + 2)
        value = g[i, j] / te.cast(size(i) * size(j), "float32")
        return te.sum(te.if_then_else(inside, value, te.const(0, "float32")), axis=[p, q])

    y = te.compute((n, n), share, name="Y")
    gradient = integers(out, out)
    right = np.zeros((n, n), "float32")
    for i, j in np.ndindex(out, out):
        window = (slice(max(0, i * 2 - 1), i * 2 + 2), slice(max(0, j * 2 - 1), j * 2 + 2))
        right[window] += gradient[i, j] / right[window].size
    return Computation([g, y], [gradient], [right])


# -- shapes at the edge ------------------------------------------------------------------------------------


@computation
def rank_zero_throughout() -> Computation:
    a, b = te.placeholder((), name="A"), te.placeholder((), name="B")
    c = te.compute((), lambda: a() * b() + te.const(1, "float32"), name="C")
    data = [np.asarray(2.5, "float32"), np.asarray(-4.0, "float32")]
    return Computation([a, b, c], data, [np.asarray(-9.0, "float32")])


@computation
def norm_of_everything() -> Computation:
    """A reduction to rank 0, a scalar of it, and the input scaled by that."""
    x = te.placeholder((11, 6), name="X")
    i, j = te.reduce_axis((0, 11), name="i"), te.reduce_axis((0, 6), name="j")
    total = te.compute((), lambda: te.sum(x[i, j] * x[i, j], axis=[i, j]), name="Total")
    norm = te.compute((), lambda: te.sqrt(total()), name="Norm")
    y = te.compute((11, 6), lambda a, b: x[a, b] / norm(), name="Y")
    data = integers(11, 6)
    right = np.sqrt((data * data).sum())
    return Computation([x, norm, y], [data], [np.asarray(right), data / right])


@computation
def matmul_of_ones() -> Computation:
    a, b = te.placeholder((1, 1), name="A"), te.placeholder((1, 1), name="B")
    k = te.reduce_axis((0, 1), name="k")
    c = te.compute((1, 1), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((1, 1), lambda i, j: te.maximum(c[i, j], te.const(0, "float32")), name="D")
    data = [np.full((1, 1), 3, "float32"), np.full((1, 1), 5, "float32")]
    return Computation([a, b, d], data, [np.full((1, 1), 15, "float32")])


@computation
def convolution_of_one_by_one() -> Computation:
    """One image, one pixel, a window of one, one channel in the middle."""
    x, w = te.placeholder((1, 1, 1, 6), name="X"), te.placeholder((1, 1, 6, 1), name="W")
    axes = [te.reduce_axis((0, e), name=f"k{e}_{d}") for d, e in enumerate((1, 1, 6))]

    def body(n: Any, h: Any, v: Any, c: Any) -> Any:
        a, b, k = axes
        return te.sum(x[n, h + a, v + b, k] * w[a, b, k, c], axis=axes)

    y = te.compute((1, 1, 1, 1), body, name="Y")
    data, weight = integers(1, 1, 1, 6), integers(1, 1, 6, 1)
    right = np.full((1, 1, 1, 1), (data.reshape(-1) * weight.reshape(-1)).sum(), "float32")
    return Computation([x, w, y], [data, weight], [right])


@computation
def softmax_of_one_column() -> Computation:
    x = te.placeholder((7, 1), name="X")
    k, m = te.reduce_axis((0, 1), name="k"), te.reduce_axis((0, 1), name="m")
    top = te.compute((7,), lambda i: te.max(x[i, k], axis=k), name="Top")
    e = te.compute((7, 1), lambda i, j: te.exp(x[i, j] - top[i]), name="E")
    total = te.compute((7,), lambda i: te.sum(e[i, m], axis=m), name="Total")
    y = te.compute((7, 1), lambda i, j: e[i, j] / total[i], name="Y")
    return Computation([x, y], [integers(7, 1)], [np.ones((7, 1), "float32")])


@computation
def primes() -> Computation:
    a, b = te.placeholder((17, 19), name="A"), te.placeholder((19, 13), name="B")
    k = te.reduce_axis((0, 19), name="k")
    c = te.compute((17, 13), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    data, other = integers(17, 19), integers(19, 13)
    return Computation([a, b, c], [data, other], [data @ other])


# -- several outputs, and indices that are clipped, divided or wrapped --------------------------------------


@computation
def output_that_another_reads() -> Computation:
    x = te.placeholder((8, 24), name="X")
    k = te.reduce_axis((0, 24), name="k")
    square = te.compute((8, 24), lambda i, j: x[i, j] * x[i, j], name="Square")
    total = te.compute((8,), lambda i: te.sum(square[i, k], axis=k), name="Total")
    share = te.compute((8, 24), lambda i, j: square[i, j] - total[i], name="Share")
    data = integers(8, 24)
    right = data * data
    sums = right.sum(1)
    return Computation([x, square, total, share], [data], [right, sums, right - sums[:, None]])


@computation
def product_of_which_the_positive_part_is_wanted_too() -> Computation:
    """The tiles of a product cannot move into a later operation when the product itself is wanted."""
    a, b = te.placeholder((8, 12), name="A"), te.placeholder((12, 16), name="B")
    k = te.reduce_axis((0, 12), name="k")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((8, 16), lambda i, j: te.maximum(c[i, j], te.const(0, "float32")), name="D")
    data, other = integers(8, 12), integers(12, 16)
    return Computation([a, b, c, d], [data, other], [data @ other, np.maximum(data @ other, 0)])


@computation
def edge_padding_and_blur() -> Computation:
    """Clipped indices: the element at the edge stands for those beyond it."""
    x = te.placeholder((10, 26), name="X")
    padded = te.compute((10, 30), lambda i, j: x[i, te.minimum(te.maximum(j - 2, 0), 25)], name="Padded")
    k = te.reduce_axis((0, 5), name="k")
    y = te.compute((10, 26), lambda i, j: te.sum(padded[i, j + k], axis=k), name="Y")
    data = integers(10, 26)
    wide = np.pad(data, ((0, 0), (2, 2)), "edge")
    return Computation([x, y], [data], [sum(wide[:, s : s + 26] for s in range(5))])


@computation
def transposed_convolution() -> Computation:
    """Gaps between the elements: a remainder decides whether there is one."""
    x, w = te.placeholder((3, 9), name="X"), te.placeholder((3, 4, 3), name="W")
    c, k = te.reduce_axis((0, 3), name="c"), te.reduce_axis((0, 3), name="k")
    spread = te.compute(
        (3, 21),
        lambda q, i: te.if_then_else(
            te.all(i >= 2, i < 19, te.floormod(i - 2, 2) == 0),
            x[q, te.floordiv(i - 2, 2)],
            te.const(0, "float32"),
        ),
        name="Spread",
    )
    y = te.compute((4, 19), lambda o, i: te.sum(spread[c, i + k] * w[c, o, 2 - k], axis=[c, k]), name="Y")
    data, weight = integers(3, 9), integers(3, 4, 3)
    right = np.zeros((4, 19), "float32")
    for q, o, i, j in np.ndindex(3, 4, 9, 3):
        right[o, 2 * i + j] += data[q, i] * weight[q, o, j]
    return Computation([x, w, y], [data, weight], [right])


@computation
def depth_to_space() -> Computation:
    x = te.placeholder((8, 3, 5), name="X")
    y = te.compute(
        (2, 6, 10),
        lambda c, h, w: x[te.floormod(h, 2) * 4 + te.floormod(w, 2) * 2 + c, h // 2, w // 2],
        name="Y",
    )
    data = integers(8, 3, 5)
    right = data.reshape(2, 2, 2, 3, 5).transpose(2, 3, 0, 4, 1).reshape(2, 6, 10)
    return Computation([x, y], [data], [right])


@computation
def dot_products_of_bytes() -> Computation:
    a, b = te.placeholder((12, 32), "uint8", name="A"), te.placeholder((16, 32), "int8", name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute(
        (12, 16), lambda i, j: te.sum(te.cast(a[i, k], "int32") * te.cast(b[j, k], "int32"), axis=k), name="C"
    )
    data, other = integers(12, 32, dtype="uint8", low=0, high=256), integers(16, 32, dtype="int8")
    return Computation([a, b, c], [data, other], [data.astype("int32") @ other.astype("int32").T])


# -- the law -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def machine() -> Iterator[Machinery]:
    with machinery() as made:
        yield made


DEFAULT_TOO = ("argmax_of_rows", "reverse_sequence", "gradient_of_max_pooling", "primes")
"""Searched by the default policy and model, too."""


@pytest.mark.parametrize(
    ("name", "default"), [*((name, False) for name in COMPUTATIONS), *((name, True) for name in DEFAULT_TOO)]
)
def test_every_program_of_a_search_is_right(machine: Machinery, name: str, default: bool) -> None:
    case = COMPUTATIONS[name]()
    inputs = case.tensors[: len(case.data)]
    task = ansor.SearchTask(
        compute_dag=case.tensors,
        task_inputs={t.name: array for t, array in zip(inputs, case.data, strict=True)},
        task_inputs_overwrite=True,
    )
    machine.models.clear()
    result = machine.tune(task, TRIALS, seed=3, policy=None if default else learned_policy(task, 3))
    assert list(machine.models) == ["DraftedModel" if default else "XGBModel"]
    assert result.best_state is not None
    found = ansor.build(result.best_state, list(case.tensors))(*case.data)
    outputs = found if isinstance(found, (tuple, list)) else (found,)
    for one, right in zip(outputs, case.expected, strict=True):
        assert one.dtype == right.dtype
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-5)


def test_the_fuzzer_tunes_with_the_default_model_and_with_a_learned_one(machine: Machinery) -> None:
    machine.models.clear()
    for seed in (2, 3):
        task = task_of_seed(seed)
        machine.tune(task, TRIALS, seed, policy_of_seed(task, seed))
    assert set(machine.models) == {"DraftedModel", "XGBModel"}
