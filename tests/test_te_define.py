"""What placeholder, compute, reduce_axis and indexing make."""

import math

import numpy as np
import pytest

from ansor import te
from ansor.errors import DefinitionError
from ansor.te.expr import Binary, Const, Read, distinct_nodes, free_vars, rewrite
from ansor.te.interp import evaluate

A = te.placeholder((8, 4), name="A")


def test_placeholder() -> None:
    assert (A.name, A.shape, A.dtype, A.ndim) == ("A", (8, 4), "float32", 2)
    assert A.op.output(0) is A
    assert A.op.input_tensors == ()
    assert str(A) == "A[8, 4]: float32"
    assert te.placeholder(5).shape == (5,)
    assert te.placeholder(()).shape == ()
    assert te.placeholder((np.int64(3), te.const(2))).shape == (3, 2)


def test_argument_names_become_axis_names() -> None:
    op = te.compute((8, 4), lambda row, col: A[row, col], name="copy").op
    assert [axis.name for axis in op.axis] == ["row", "col"]
    op = te.compute((8, 4), lambda *i: A(*i)).op
    assert [axis.name for axis in op.axis] == ["i0", "i1"]
    op = te.compute((8, 4), lambda n, *i: A(n, *i)).op
    assert [axis.name for axis in op.axis] == ["n", "i1"]


def test_default_arguments_are_not_axes() -> None:
    scale = 3.0
    op = te.compute((8, 4), lambda i, j, s=scale: A[i, j] * s).op
    assert [axis.name for axis in op.axis] == ["i", "j"]
    assert str(op.body[0]) == "(A[i, j]*3f)"


def test_compute_keeps_name_tag_and_attrs() -> None:
    op = te.compute((8,), lambda i: A[i, 0], name="C", tag="t", attrs={"x": [A]}).op
    assert (op.name, op.tag, op.attrs["x"]) == ("C", "t", [A])
    assert op.shape == (8,)


@pytest.mark.parametrize(
    "read",
    [lambda i, j: A[i, j], lambda i, j: A[i][j], lambda i, j: A(i, j), lambda i, j: A[()][i][j]],
)
def test_indexing_styles_agree(read) -> None:
    body = te.compute((8, 4), read).op.body[0]
    assert isinstance(body, Read)
    assert str(body) == "A[i, j]"


def test_input_tensors_in_order_of_first_occurrence() -> None:
    index = te.placeholder((8,), "int32", name="index")
    b = te.placeholder((8,), name="b")
    op = te.compute((8,), lambda i: b[i] + A[index[i], 0] + b[index[i]], name="C").op
    assert [tensor.name for tensor in op.input_tensors] == ["b", "index", "A"]
    k = te.reduce_axis((0, 4), name="k")
    op = te.compute((8,), lambda i: te.sum(A[i, k], axis=k, where=b[i] > 0.0)).op
    assert [tensor.name for tensor in op.input_tensors] == ["A", "b"]


def test_reduce_axes_of_the_operation() -> None:
    k, r = te.reduce_axis((0, 4), name="k"), te.reduce_axis(te.Range(0, 8), name="r")
    op = te.compute((), lambda: te.sum(A[r, k], axis=[k, r])).op
    assert op.reduce_axis == (k, r)
    assert op.axis == ()


def test_unnamed_reduce_axes_are_named_apart() -> None:
    a, b = te.reduce_axis((0, 8)), te.reduce_axis((1, 4))
    rows = te.compute((4,), lambda j: te.sum(A[a, j], axis=a)).op
    assert rows.reduce_axis == (a,)
    assert a.name == "rv"
    both = te.compute((3,), lambda i: te.sum(A[a, b] * te.cast(i, "float32"), axis=[a, b], where=a > b)).op
    assert [axis.name for axis in both.reduce_axis] == ["rv", "rv_1"]
    (root,) = both.body
    assert {*both.reduce_axis, *both.axis} == free_vars(root)
    assert (str(root.sources[0]), str(root.condition)) == (
        "(A[rv, (rv_1 + 1)]*float32(i))",
        "(rv > (rv_1 + 1))",
    )
    named = te.reduce_axis((0, 4), "rv")
    op = te.compute((3,), lambda rv_1: te.sum(A[a, named] * te.cast(rv_1, "float32"), axis=[a, named])).op
    assert [axis.name for axis in op.reduce_axis] == ["rv_2", "rv"]
    pair = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] * y[1]), lambda x, y: (te.const(0, x), te.const(1, y))
    )
    sums, _ = te.compute((3,), lambda i: pair((A[a, b], A[a, b]), axis=[a, b]))
    assert [axis.name for axis in sums.op.reduce_axis] == ["rv", "rv_1"]
    values = np.arange(32, dtype=np.float32).reshape(8, 4)
    assert evaluate([sums], {A: values})[sums].tolist() == [values[:, 1:].sum()] * 3


def test_a_reduction_from_elsewhere_than_zero_is_rebased() -> None:
    k = te.reduce_axis((2, 4), name="k")
    op = te.compute((8,), lambda i: te.sum(A[i, k] * te.cast(k, "float32"), axis=k)).op
    assert op.reduce_axis == (k,), "users go on to schedule the axis they made"
    assert k.extent.value == 2
    assert str(op.body[0]) == "sum((A[i, (k + 2)]*float32((k + 2))), axis=[k])"


def test_max_and_min_are_reductions_or_binary() -> None:
    k = te.reduce_axis((0, 4), name="k")
    texts = [
        str(te.compute((8,), body).op.body[0])
        for body in (
            lambda i: te.max(A[i, k], axis=k),
            lambda i: te.max(A[i, k], k),
            lambda i: te.max(A[i, k], axis=[k]),
            lambda i: te.max(A[i, 0], A[i, 1]),
            lambda i: te.min(0.0, A[i, 1]),
            lambda i: te.maximum(A[i, 0], 0.0),
        )
    ]
    reduction = "max(A[i, k], axis=[k])"
    assert texts == [*[reduction] * 3, "max(A[i, 0], A[i, 1])", "min(0f, A[i, 1])", "max(A[i, 0], 0f)"]


def test_several_outputs() -> None:
    low, high = te.compute((8,), lambda i: (A[i, 0], A[i, 1] > 0.0), name="pair")
    assert (low.name, high.name) == ("pair.v0", "pair.v1")
    assert (low.dtype, high.dtype) == ("float32", "bool")
    assert low.op is high.op
    assert low.op.outputs == (low, high)


def test_a_tuple_of_one_is_one_tensor() -> None:
    assert te.compute((8,), lambda i: (A[i, 0],)).name == "compute"


def test_numbers_are_expressions() -> None:
    assert te.compute((8,), lambda i: 0).dtype == "int32"
    assert te.compute((8,), lambda i: 0.5).dtype == "float32"
    assert te.compute((8,), lambda i: i == 0).dtype == "bool"


def test_symbolic_shapes() -> None:
    n = te.var("n")
    x = te.placeholder((n, 4), name="x")
    assert x.shape[0] is n
    y = te.compute((n * 2, 4), lambda i, j: x[i // 2, j], name="y")
    assert str(y) == "y[(n*2), 4]: float32"
    assert y.op.axis[0].extent is y.shape[0]


def test_equality_builds_an_expression_and_is_safe() -> None:
    i, j = te.var("i"), te.var("j")
    wide = te.var("w", "int64")
    node = i == 0
    assert isinstance(node, Binary)
    assert node.dtype == "bool"
    assert i in [j, wide, A, None, "i", i]
    assert i not in [j, wide, A, None, "i"]
    assert A in [i, A]
    assert {i: 1, j: 2, A: 3}[j] == 2
    assert len({i, j, i}) == 2
    assert [bool(i == other) for other in (i, j, wide, A, None)] == [True, False, False, False, False]
    assert [bool(i != other) for other in (i, j, wide, A, None)] == [False, True, True, True, True]
    assert te.const(3) in [te.const(2), te.const(3)]


def test_operators() -> None:
    i, j, x = te.var("i"), te.var("j"), A[0, 0]
    cases = {
        "(1 + i)": 1 + i,
        "(1 - i)": 1 - i,
        "(0 - i)": -i,
        "(-A[0, 0])": -x,
        "(2*i)": 2 * i,
        "(1f/A[0, 0])": 1.0 / x,
        "floordiv(7, i)": 7 // i,
        "floormod(7, i)": 7 % i,
        "truncdiv(i, 3)": te.truncdiv(i, 3),
        "truncmod(i, 3)": te.truncmod(i, 3),
        "floordiv(i, 3)": te.indexdiv(i, 3),
        "floormod(i, 3)": te.indexmod(i, 3),
        "floordiv(i, 8)": i >> 3,
        "(i*8)": i << 3,
        "floormod(i, 8)": i & 7,
        "(-1 - i)": ~i,
        "(12 & i)": 12 & i,
        "(12 | i)": 12 | i,
        "(i ^ j)": i ^ j,
        "(i >> 31)": i >> 31,
        "(1 << floormod(j, 32))": 1 << j,
        "(i >> floormod(j, 8))": i >> (j & 7),
        "pow(A[0, 0], 2f)": x**2,
        "pow(2f, A[0, 0])": 2**x,
        "abs(i)": abs(i),
        "((i >= 1) && !(i == 3))": (i >= 1) & ~(i == 3),
        "((i >= 1) || (i < 0))": te.any(i >= 1, i < 0),
        "float16(i)": i.astype("float16"),
        "select((i < 1), A[0, 0], 0f)": te.select(i < 1, x, 0.0),
        "if_then_else((i < 1), A[0, 0], 0f)": te.if_then_else(i < 1, x, 0),
    }
    assert {text: str(expr) for text, expr in cases.items()} == {text: text for text in cases}


def test_constants_fold() -> None:
    i = te.var("i")
    same = [i + 0, 0 + i, i - 0, i * 1, 1 * i, i // 1, te.truncdiv(i, 1)]
    assert all(expr is i for expr in same)
    assert [str(e) for e in (i * 0, i % 1, te.const(7) // -2, te.truncdiv(te.const(-7), 2))] == [
        "0",
        "0",
        "-4",
        "-3",
    ]
    assert all(expr is i for expr in (i & -1, i | 0, i ^ 0, 0 ^ i, i << 0, i >> 0))
    assert [str(e) for e in (i & 0, i | -1, te.const(-7) >> 1, te.const(5) ^ 3, te.shift_left(3, 4))] == [
        "0",
        "-1",
        "-4",
        "6",
        "48",
    ]
    assert str(te.bitwise_not(te.const(5, "uint8"))) == "uint8(250)"
    assert str(te.const(100, "int8") + 100) == "int8(-56)"
    assert te.select(te.const(True), i, 0) is i
    assert str(te.all()) == "True"
    assert str(te.any(i < 0, True)) == "True"


def test_constant_casts_fold_where_exact() -> None:
    assert str(te.cast(te.const(2048), "float16")) == "2048h"
    assert str(te.cast(te.const(65505), "float16")) == "float16(65505)"
    assert str(te.cast(te.const(300), "uint8")) == "uint8(44)"
    assert str(te.cast(te.const(2), "bool")) == "True"


@pytest.mark.parametrize(
    ("number", "dtype", "value"),
    [
        (0.1, "float64", 0.1),
        (0.1, "float16", 0.1),
        (1e300, "float64", 1e300),
        (np.float64(0.1), "float64", 0.1),
        (2**53, "float64", float(2**53)),
        (3_000_000_000, "uint32", 3_000_000_000),
        (2**40, "int64", 2**40),
        (-1, "uint8", 255),
        (2**40 + 5, "int32", 5),
        (-2.7, "int32", -2),
        (3e9, "int64", 3_000_000_000),
        (16_777_217.0, "int64", 16_777_217),
        (1e-300, "bool", True),
        (0, "bool", False),
    ],
)
def test_a_number_is_cast_without_another_dtype_in_between(number: float, dtype: str, value: float) -> None:
    made = te.cast(number, dtype)
    assert isinstance(made, Const)
    assert (made.value, type(made.value), made.dtype) == (value, type(value), dtype)


@pytest.mark.parametrize(
    ("number", "dtype"), [(1e300, "float32"), (100_000, "float16"), (3e9, "int32"), (math.inf, "int8")]
)
def test_a_number_that_its_cast_does_not_hold_is_refused(number: float, dtype: str) -> None:
    with pytest.raises(DefinitionError, match=dtype):
        te.cast(number, dtype)


def test_floats_do_not_fold() -> None:
    assert str(te.const(0.1) + 0.2) == "(0.1f + 0.2f)"


def test_limits() -> None:
    assert str(te.max_value("uint8")) == "uint8(255)"
    assert te.min_value("float16").value == -65504
    for dtype in ("float32", "float64", "float16"):
        assert te.max_value(dtype).value == np.finfo(dtype).max


def test_thread_axis() -> None:
    assert te.thread_axis("blockIdx.x").name == "blockIdx.x"
    assert te.thread_axis((0, 64), "threadIdx.x").extent == 64


def test_traversal_of_shared_and_deep_expressions() -> None:
    x = te.placeholder((), name="x")()
    deep: te.Expr = x
    for _ in range(5000):
        deep = deep + 1.0
    assert str(deep).startswith("((((")
    assert sum(1 for _ in distinct_nodes(deep)) == 10001
    shared: te.Expr = x
    for _ in range(60):
        shared = shared * shared
    assert sum(1 for _ in distinct_nodes(shared)) == 61
    assert free_vars(shared) == set()
    assert rewrite(shared, lambda node: None) is shared
    replaced = rewrite(shared, lambda node: Const(1.0, "float32") if isinstance(node, Read) else None)
    assert sum(1 for _ in distinct_nodes(replaced)) == 61
