"""What operations read, and the predicates that sketch rules ask for."""

from collections.abc import Callable

import pytest

from ansor import te
from ansor.schedule.access import AccessAnalysis, is_shifted, match_axes
from ansor.schedule.dag import ComputeDAG
from ansor.te import ComputeOp, Expr, Tensor
from ansor.workloads import CATALOGUE

A = te.placeholder((8, 8), name="A")
B = te.placeholder((8, 8), name="B")
V = te.placeholder((8,), name="V")
W = te.placeholder((15,), name="W")
I = te.placeholder((8,), "int32", name="I")  # noqa: E741


def op_of(tensor: Tensor) -> ComputeOp:
    assert isinstance(tensor.op, ComputeOp)
    return tensor.op


def analyse(*tensors: Tensor) -> AccessAnalysis:
    return ComputeDAG([*(t for t in (A, B, V, W, I) if used(t, tensors[-1])), *tensors]).access


def used(tensor: Tensor, root: Tensor) -> bool:
    return root is tensor or any(used(tensor, t) for t in root.op.input_tensors)


def spatial(body: Callable[[Expr, Expr], Expr]) -> Tensor:
    return te.compute((8, 8), body, name="C")


def matmul() -> Tensor:
    k = te.reduce_axis((0, 8), "k")
    return te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="M")


def padded(i: Expr, j: Expr) -> Expr:
    return te.if_then_else(i >= 1, A[i - 1, j], te.const(0.0))


# body, (simple, strictly inlineable, needs tiling)
SPATIAL = {
    "copy": (lambda i, j: A[i, j], (True, True, False)),
    "shift": (lambda i, j: A[i, j] + 2 + 0.0 * A[i, 1], (True, True, False)),
    "broadcast": (lambda i, j: A[i, j] + V[j], (True, True, False)),
    "constant index": (lambda i, j: A[i, j] * A[0, 3], (True, True, False)),
    "transpose": (lambda i, j: A[j, i], (True, False, False)),
    "diagonal": (lambda i, j: A[i, i] + A[i, j], (True, False, False)),
    "scaled index": (lambda i, j: A[te.floordiv(i, 2), j], (False, False, False)),
    "sum of axes": (lambda i, j: A[te.minimum(i + j, 7), j], (False, False, False)),
    "gather": (lambda i, j: A[I[i], j], (False, False, False)),
    "exp": (lambda i, j: te.exp(A[i, j]), (True, False, False)),
    "tanh": (lambda i, j: te.tanh(A[i, j]), (True, True, False)),
    "padding": (padded, (True, False, False)),
    "select": (lambda i, j: te.select(i > j, A[i, j], te.const(0.0)), (True, False, False)),
    "outer product": (lambda i, j: V[i] * A[0, j], (True, True, True)),
    "outer product with itself": (lambda i, j: V[i] * V[j], (True, True, True)),
    "neighbours": (lambda i, j: V[i] * V[te.minimum(i + 1, 7)], (False, False, False)),
    "constant": (lambda i, j: te.const(1.0), (True, True, False)),
}


@pytest.mark.parametrize("name", SPATIAL)
def test_predicates_of_operations_without_reduction(name: str) -> None:
    body, (simple, inlineable, tiling) = SPATIAL[name]
    c = te.compute((8, 8), lambda i, j: body(i, j), name="C")
    access = analyse(c)
    assert (None not in access.patterns(c.op)) is simple
    assert access.is_strictly_inlineable(c.op) is inlineable
    assert access.needs_multi_level_tiling(c.op) is tiling


def test_placeholders_are_simple_and_nothing_else() -> None:
    access = analyse(spatial(lambda i, j: A[i, j] + B[i, j]))
    for tensor in (A, B):
        assert None not in access.patterns(tensor.op)
        assert not access.is_strictly_inlineable(tensor.op)
        assert not access.needs_multi_level_tiling(tensor.op)
        assert not access.is_output(tensor.op)
        assert not access.reads(tensor.op)


@pytest.mark.parametrize(
    ("name", "tiled"),
    [
        ("matmul", "C"),
        ("matmul_add", "matmul"),
        ("batch_matmul", "C"),
        ("conv2d", "Conv"),
        ("depthwise_conv2d", "Conv"),
        ("group_conv2d", "Conv"),
        ("transposed_conv2d", "Conv"),
        ("capsule_conv2d", "Conv"),
        ("attention_scores", "G"),
        ("max_pool2d", None),
        ("avg_pool2d", None),
        ("softmax", None),
        ("norm", None),
        ("layer_norm", None),
    ],
)
def test_which_stage_of_a_workload_is_tiled(name: str, tiled: str | None) -> None:
    dag = ComputeDAG(CATALOGUE[name].tensors())
    found = [op.name for op in dag.ops if dag.access.needs_multi_level_tiling(op)]
    assert found == ([] if tiled is None else [tiled])


def test_a_product_with_its_own_transpose_is_tiled() -> None:
    """As one of two tensors: each read is passed over by an axis."""
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * A[j, k], axis=k), name="C")
    access, op = analyse(c), op_of(c)
    assert access.needs_multi_level_tiling(op)
    i, j = op.axis
    assert access.axes_of_reads(op, A.op) == {
        frozenset((i, op.reduce_axis[0])),
        frozenset((j, op.reduce_axis[0])),
    }
    squares = te.compute((8,), lambda i: te.sum(A[i, k] * A[i, k], axis=k), name="S")
    assert not analyse(squares).needs_multi_level_tiling(squares.op)


def test_what_is_scaled_and_shifted_is_not_tiled_and_an_outer_product_is() -> None:
    scale, shift = te.placeholder((8,), name="Scale"), te.placeholder((8,), name="Shift")
    normed = te.compute((8, 8), lambda i, j: A[i, j] * scale[j] + shift[j], name="Normed")
    outer = te.compute((8, 8), lambda i, j: scale[i] * shift[j], name="Outer")
    assert not ComputeDAG([A, scale, shift, normed]).access.needs_multi_level_tiling(normed.op)
    assert ComputeDAG([scale, shift, outer]).access.needs_multi_level_tiling(outer.op)


def sums_of(term: Callable[[Expr, Expr], Expr]) -> Tensor:
    k = te.reduce_axis((0, 8), "k")
    return te.compute((8,), lambda i: te.sum(term(i, k), axis=k), name="S")


def goes_into_rows(sums: Tensor) -> Tensor:
    return te.compute((8, 8), lambda i, j: A[i, j] - sums[i], name="O")


READERS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "nothing": (lambda sums: sums, True),
    "rows": (goes_into_rows, False),
    "means of rows": (lambda sums: goes_into_rows(te.compute((8,), lambda i: sums[i] * 0.125)), False),
    "elements": (lambda sums: te.compute((8,), lambda i: sums[i] * 0.125), True),
    "product": (lambda sums: sums_of(lambda i, k: B[i, k] * sums[k]), True),
}
"""What reads weighted sums of rows, and whether these are tiled."""


@pytest.mark.parametrize("name", READERS)
def test_weighted_sums_of_rows_are_tiled_unless_they_go_back_into_rows(name: str) -> None:
    reader, tiled = READERS[name]
    sums = sums_of(lambda i, k: A[i, k] * V[k])
    assert analyse(reader(sums)).needs_multi_level_tiling(sums.op) is tiled


TERMS: dict[str, tuple[Callable[[Expr, Expr], Expr], bool]] = {
    "squares": (lambda i, k: A[i, k] * A[i, k] * V[k], False),
    "differences": (lambda i, k: (A[i, k] - V[i]) * V[k], False),
    "columns": (lambda i, k: A[k, i] * V[k], True),
    "windows": (lambda i, k: W[i + k] * V[k], True),
    "outer product": (lambda i, k: V[i] * V[k], True),
}
"""Terms that are weighted by a vector, and whether their sums are tiled that go into rows."""


@pytest.mark.parametrize("name", TERMS)
def test_weighted_sums_of_anything_but_rows_are_tiled(name: str) -> None:
    term, tiled = TERMS[name]
    sums = sums_of(term)
    assert analyse(goes_into_rows(sums)).needs_multi_level_tiling(sums.op) is tiled


def test_axes_of_extent_one_are_not_reused() -> None:
    x, w = te.placeholder((1, 8), name="x"), te.placeholder((8,), name="w")
    k = te.reduce_axis((0, 8), "k")
    y = te.compute((1,), lambda i: te.sum(x[i, k] * w[k], axis=k), name="y")
    assert not ComputeDAG([x, w, y]).access.needs_multi_level_tiling(y.op)


def test_fake_reductions_are_not_tiled() -> None:
    attrs = {"auto_scheduler_simplify_const_tensor_indices": ["k"]}
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C", attrs=attrs)
    assert not analyse(c).needs_multi_level_tiling(c.op)


def test_reads_list_every_place_in_order() -> None:
    c = spatial(lambda i, j: A[j, i] + B[i, 0] * A[i, j] + A[0, I[i]])
    reads = analyse(c).reads(c.op)
    assert [op.name for op in reads] == ["A", "B", "I"]
    assert [[str(index) for index in indices] for indices in reads[A.op]] == [
        ["j", "i"],
        ["i", "j"],
        ["0", "I[i]"],
    ]


def test_outputs_of_one_reduction_read_once() -> None:
    k = te.reduce_axis((0, 8), "k")
    both = te.comm_reducer(
        lambda a, b: (a[0] + b[0], te.maximum(a[1], b[1])),
        lambda s, m: (te.const(0.0, s), te.min_value(m)),
    )
    total, largest = te.compute((8,), lambda i: both((A[i, k], A[k, i]), axis=k), name="R")
    access = ComputeDAG([A, total, largest]).access
    assert len(access.reads(total.op)[A.op]) == 2


def test_consumers_are_listed_in_stage_order() -> None:
    top = spatial(lambda i, j: A[i, j] + 1.0)
    left = te.compute((8, 8), lambda i, j: top[i, j] * 2.0, name="L")
    right = te.compute((8, 8), lambda i, j: top[j, i] * 2.0, name="R")
    out = te.compute((8, 8), lambda i, j: left[i, j] + right[i, j], name="O")
    access = analyse(out)
    assert access.consumers(top.op) == (left.op, right.op)
    assert access.producers(out.op) == (left.op, right.op)
    assert access.is_output(out.op)
    assert not access.is_output(top.op)


def test_common_outer_iterators() -> None:
    m = matmul()
    scaled = te.compute((8, 8), lambda i, j: m[i, j] * 2.0, name="S")
    rows = te.compute((8,), lambda i: scaled[i, 0] + scaled[i, 1], name="R")
    access = analyse(rows)
    assert access.num_common_outer_iterators(scaled.op, m.op) == 2
    assert access.num_common_outer_iterators(rows.op, scaled.op) == 1
    assert access.num_common_outer_iterators(rows.op, m.op) == 1, "the least along the path"
    assert access.num_common_outer_iterators(m.op, rows.op) == 1, "in either order"
    assert access.num_common_outer_iterators(m.op, A.op) == 1, "rows of the left factor"
    assert access.num_common_outer_iterators(m.op, B.op) == 0
    assert access.num_common_outer_iterators(A.op, B.op) == 0, "not connected"


def test_common_outer_iterators_need_equal_extents_and_every_access() -> None:
    top = te.compute((9, 8), lambda i, j: V[j] * 2.0, name="T")
    part = te.compute((8, 8), lambda i, j: top[i, j], name="P")
    mixed = te.compute((8, 8), lambda i, j: part[i, j] + part[j, i], name="X")
    access = analyse(mixed)
    assert access.num_common_outer_iterators(part.op, top.op) == 0
    assert access.num_common_outer_iterators(mixed.op, part.op) == 0


def test_elementwise_match_follows_chains() -> None:
    m = matmul()
    shifted = te.compute((8, 8), lambda i, j: m[i, j] + V[j], name="S")
    out = te.compute((8, 8), lambda i, j: te.maximum(shifted[i, j], 0.0), name="O")
    access = analyse(out)
    assert access.elementwise_match(m.op, shifted.op)
    assert access.elementwise_match(m.op, out.op)
    assert access.elementwise_match(m.op, m.op)
    assert not access.elementwise_match(out.op, m.op)
    assert not access.elementwise_match(A.op, m.op), "a placeholder computes nothing"


@pytest.mark.parametrize(
    "consume",
    [
        lambda m: te.compute((8, 8), lambda i, j: m[j, i], name="O"),
        lambda m: te.compute((8, 8), lambda i, j: m[i, i] + 0.0, name="O"),
        lambda m: te.compute((8, 4), lambda i, j: m[i, j], name="O"),
        lambda m: te.compute((8,), lambda i: m[i, 0], name="O"),
    ],
    ids=["transposed", "diagonal", "cut", "column"],
)
def test_what_is_no_elementwise_match(consume: Callable[[Tensor], Tensor]) -> None:
    m = matmul()
    out = consume(m)
    assert not analyse(out).elementwise_match(m.op, out.op)


def test_two_consumers_are_no_elementwise_match() -> None:
    m = matmul()
    left = te.compute((8, 8), lambda i, j: m[i, j] * 2.0, name="L")
    out = te.compute((8, 8), lambda i, j: left[i, j] + m[i, j], name="O")
    assert not analyse(out).elementwise_match(m.op, out.op)


def test_the_analysis_takes_operations_in_any_order() -> None:
    m = matmul()
    out = te.compute((8, 8), lambda i, j: m[i, j] + V[j], name="O")
    dag = ComputeDAG([A, B, V, out])
    backwards = AccessAnalysis(tuple(reversed(dag.ops)))
    for op in dag.ops:
        assert backwards.reads(op) == dag.access.reads(op)
        assert backwards.needs_multi_level_tiling(op) == dag.access.needs_multi_level_tiling(op)
    assert backwards.elementwise_match(m.op, out.op)


def test_shifts_of_an_axis() -> None:
    i, j = (te.reduce_axis((0, 8), name) for name in "ij")
    assert all(is_shifted(e, i) for e in (i, i + 3, 3 + i, i - 3))
    assert not any(is_shifted(e, i) for e in (j, i + j, 3 - i, i * 2, te.const(0), te.floordiv(i, 2)))


def test_axis_patterns() -> None:
    op = op_of(spatial(lambda i, j: A[i, j]))
    i, j = op.axis
    pattern = match_axes(op, (i + 1, te.const(2), j))
    assert pattern is not None
    assert pattern.axes == (0, 1)
    assert pattern.is_elementwise
    flipped = match_axes(op, (j, j))
    assert flipped is not None
    assert (flipped.missing, flipped.duplicated, flipped.in_order) == (True, True, True)
    assert match_axes(op, (i * 2,)) is None
