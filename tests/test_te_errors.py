"""Every way to misuse te is refused with a message that names the tensor and the axis."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError

Thunk = Callable[[], Any]


def a_tensor(dtype: str = "float32") -> te.Tensor:
    return te.placeholder((8, 4), dtype, name="A")


def define(fcompute: Callable[..., Any], shape: Any = (8, 4)) -> Any:
    return te.compute(shape, fcompute, name="C")


def later(fcompute: Callable[..., Any]) -> Any:
    """A compute over an axis i and a reduce axis k that does not begin at 0."""
    k = te.reduce_axis((1, 4), name="k")
    return define(lambda i: fcompute(i, k), (8,))


def refuse(thunk: Thunk, *fragments: str) -> str:
    with pytest.raises(DefinitionError) as caught:
        thunk()
    for fragment in fragments:
        assert fragment in str(caught.value), str(caught.value)
    return str(caught.value)


A = a_tensor()
I32 = te.placeholder((8, 4), "int32", name="I")
K = te.reduce_axis((0, 4), name="k")
OTHER = te.compute((8,), lambda q: A[q, 0], name="other")
SCALAR = te.compute((), lambda: te.const(1.0), name="one")


READS: dict[str, tuple[Thunk, tuple[str, ...]]] = {
    "too many indices": (
        lambda: define(lambda i, j: A[i, j, 0]),
        ("compute 'C' over (i, j)", "'A' has 2 dimension(s) [8, 4]", "3 indices (i, j, 0)"),
    ),
    "too few indices in a call": (lambda: define(lambda i, j: A(i)), ("'A'", "1 indices (i)")),
    "too few indices, used": (
        lambda: define(lambda i, j: A[i] + 1.0),
        ("'C'", "'A'", "only 1 index(es) (i)"),
    ),
    "too few indices, on the right": (lambda: define(lambda i, j: 1.0 + A[i]), ("'A'", "only 1 index(es)")),
    "too few indices, beside an expression": (
        lambda: define(lambda i, j: A[i, j] * A[i]),
        ("'C'", "'A'", "only 1 index(es) (i)"),
    ),
    "too few indices, given back": (
        lambda: define(lambda i, j: A[i]),
        ("'C'", "'A'", "only 1 index(es) (i)"),
    ),
    "too many chained": (lambda: define(lambda i, j: A[i][j, 0]), ("'A'", "3 indices")),
    "the tensor itself": (lambda: define(lambda i, j: A), ("'C'", "whole tensor 'A'", "A[i0, i1]")),
    "arithmetic on a tensor": (lambda: define(lambda i, j: 2.0 * A), ("'C'", "whole tensor 'A'")),
    "a tensor beside an expression": (lambda: define(lambda i, j: A[i, j] + A), ("whole tensor 'A'",)),
    "a tensor in a function": (lambda: define(lambda i, j: te.exp(A)), ("whole tensor 'A'",)),
    "a tensor compared": (
        lambda: define(lambda i, j: A[i, j] == A),
        ("'C'", "(A[i, j] == A)", "whole tensor"),
    ),
    "a slice compared": (lambda: define(lambda i, j: A[i, j] == A[i]), ("(A[i, j] == A[i])", "whole tensor")),
    "a tensor compared with a number": (
        lambda: define(lambda i, j: te.select(A == 0.0, 1.0, 2.0)),
        ("'C'", "whole tensor 'A'"),
    ),
    "a scalar tensor": (lambda: define(lambda i, j: SCALAR + 1.0), ("whole tensor 'one'", "one()")),
    "a tensor as index": (lambda: define(lambda i, j: A[i, OTHER]), ("index 1 of tensor 'A'", "'other'")),
    "a slice": (lambda: define(lambda i, j: A[i, 0:2]), ("index 1 of tensor 'A'", "slice")),
    "an ellipsis": (lambda: define(lambda i, j: A[..., 0]), ("index 0 of tensor 'A'", "slices")),
    "a float index": (lambda: define(lambda i, j: A[i, A[i, j]]), ("index 1 of tensor 'A'", "float32")),
    "a float constant index": (lambda: define(lambda i, j: A[i, 1.0]), ("index 1 of tensor 'A'", "float32")),
    "a condition as index": (lambda: define(lambda i, j: A[i, i == j]), ("index 1 of tensor 'A'", "bool")),
    "text as index": (lambda: define(lambda i, j: A[i, "j"]), ("index 1 of tensor 'A'", "'j'")),
    "beyond the end": (lambda: define(lambda i, j: A[8, j]), ("index 0 of tensor 'A' is 8", "[8, 4]")),
    "negative": (lambda: define(lambda i, j: A[i, -1]), ("index 1 of tensor 'A' is -1", "from the end")),
    "iterating a tensor": (lambda: list(A), ("whole tensor 'A'",)),
}


@pytest.mark.parametrize("case", READS)
def test_wrong_reads(case: str) -> None:
    thunk, fragments = READS[case]
    refuse(thunk, *fragments)


AXES: dict[str, tuple[Thunk, tuple[str, ...]]] = {
    "too few arguments": (
        lambda: define(lambda i: A[i, 0]),
        ("compute 'C' has 2 dimension(s)", "1 axes (i)"),
    ),
    "too many arguments": (lambda: define(lambda i, j, q: A[i, j]), ("'C'", "3 axes (i, j, q)")),
    "axis of another compute": (
        lambda: define(lambda i, j: A[OTHER.op.axis[0], j]),
        ("compute 'C' over (i, j)", "axis 'q'", "another compute"),
    ),
    "a free reduce axis": (lambda: define(lambda i, j: A[i, K]), ("'C'", "reduce axis 'k'", "A[i, k]")),
    "another reduce axis": (
        lambda: define(lambda i, j: te.sum(A[i, te.reduce_axis((0, 4), "r")], axis=K)),
        ("'C'", "reduce axis 'r'"),
    ),
    "duplicate names": (
        lambda: define(lambda i, k: te.sum(A[i, k] * A[i, K], axis=K)),
        ("compute 'C' over (i, k)", "two axes are named 'k'"),
    ),
    "duplicate reduce names": (
        lambda: define(lambda i, j: te.sum(A[K, K2], axis=[K, K2])),
        ("'C'", "two axes are named 'k'"),
    ),
    "duplicate generated name": (
        lambda: define(lambda i1, *rest: A[i1, rest[0]]),
        ("'C'", "axis 1", "'i1'"),
    ),
}
K2 = te.reduce_axis((0, 4), name="k")


@pytest.mark.parametrize("case", AXES)
def test_wrong_axes(case: str) -> None:
    thunk, fragments = AXES[case]
    refuse(thunk, *fragments)


def argmax() -> Any:
    return te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.maximum(x[1], y[1])),
        lambda at, value: (te.const(-1, at), te.min_value(value)),
        name="argmax",
    )


def mixed() -> Any:
    return te.comm_reducer(
        lambda x, y: (te.select(y[0] == y[1], y[0], x[0]), te.maximum(x[1], y[1])),
        lambda at, value: (te.max_value(at), te.min_value(value)),
        name="mixed",
    )


def zero(dtype: str) -> te.Expr:
    return te.const(0, dtype)


def bad_reducer(combine: Callable[..., Any], identity: Callable[..., Any]) -> Thunk:
    reducer = te.comm_reducer(combine, identity, name="best")
    return lambda: define(lambda i: reducer(A[i, K], axis=K), (8,))


REDUCTIONS: dict[str, tuple[Thunk, tuple[str, ...]]] = {
    "inside an expression": (
        lambda: define(lambda i: te.sum(A[i, K], axis=K) * 2.0, (8,)),
        ("compute 'C' over (i)", "sum over [k]", "te.compute of its own"),
    ),
    "inside a reduction": (
        lambda: define(lambda: te.max(te.sum(A[R, K], axis=K), axis=R), ()),
        ("'C'", "max over [r]", "another reduction"),
    ),
    "in the condition": (
        lambda: define(lambda i: te.sum(A[i, K], axis=K, where=te.sum(A[i, R4], axis=R4) > 0.0), (8,)),
        ("'C'", "over [k]", "another reduction"),
    ),
    "in an index": (
        lambda: define(lambda i, j: A[te.sum(I32[i, K], axis=K), j]),
        ("'C'", "sum over [k]", "te.compute of its own"),
    ),
    "over a spatial axis": (
        lambda: define(lambda i, j: te.sum(A[i, j], axis=j)),
        ("'C'", "axis 'j' is a spatial axis"),
    ),
    "over no axis": (lambda: define(lambda i: te.sum(A[i, 0], axis=[]), (8,)), ("'C'", "te.sum", "empty")),
    "over a number": (
        lambda: define(lambda i: te.sum(A[i, 0], axis=1), (8,)),
        ("'C'", "axis=1", "reduce_axis"),
    ),
    "over an axis twice": (
        lambda: define(lambda i: te.sum(A[i, K], axis=[K, K]), (8,)),
        ("'C'", "twice: [k, k]"),
    ),
    "max without axis": (lambda: define(lambda i: te.max(A[i, 0]), (8,)), ("'C'", "te.max", "axis=")),
    "binary max with where": (
        lambda: define(lambda i: te.max(A[i, 0], A[i, 1], where=i == 0), (8,)),
        ("'C'", "where", "A[i, 1]"),
    ),
    "of a tensor": (lambda: define(lambda i: te.sum(A, axis=K), (8,)), ("'C'", "whole tensor 'A'")),
    "of bool": (lambda: define(lambda i: te.max(A[i, K] > 0.0, axis=K), (8,)), ("'C'", "te.max of bool")),
    "where of a number": (
        lambda: define(lambda i: te.sum(A[i, K], axis=K, where=K), (8,)),
        ("'C'", "over [k]", "where=", "int32 `k`"),
    ),
    "two reductions": (
        lambda: define(lambda i: (te.sum(A[i, K], axis=K), te.max(A[i, K], axis=K)), (8,)),
        ("'C'", "2 outputs", "sum reduction"),
    ),
    "outputs swapped": (
        lambda: define(lambda i: argmax()((K, A[i, K]), axis=K)[::-1], (8,)),
        ("'C'", "in order", "argmax reduction"),
    ),
    "half of a reduction": (
        lambda: define(lambda i: argmax()((K, A[i, K]), axis=K)[0], (8,)),
        ("'C'", "1 outputs", "2 values"),
    ),
    "fcombine of two values": (
        bad_reducer(lambda x, y: (x, y), lambda t: 0.0),
        ("'C'", "'best'", "2 value(s)"),
    ),
    "fcombine of another dtype": (
        bad_reducer(lambda x, y: x > y, lambda t: 0.0),
        ("'best'", "fcombine gives bool"),
    ),
    "fcombine compares two dtypes": (
        lambda: define(lambda i: mixed()((K, A[i, K]), axis=K), (8,)),
        ("compute 'C' over (i)", "reducer 'mixed'", "compares int32 with float32"),
    ),
    "fcombine divides by zero": (
        lambda: define(lambda i: te.comm_reducer(lambda x, y: x + y % 0, zero)(I32[i, K], axis=K), (8,)),
        ("compute 'C' over (i)", "reducer 'reduce'", "by zero"),
    ),
    "fcombine reads": (
        bad_reducer(lambda x, y: x + A[0, 0], lambda t: 0.0),
        ("'best'", "more than its two arguments"),
    ),
    "fcombine captures": (
        bad_reducer(lambda x, y: x + te.cast(K, "float32"), lambda t: 0.0),
        ("'best'", "fcombine"),
    ),
    "identity not constant": (
        bad_reducer(lambda x, y: x + y, lambda t: A[0, 0]),
        ("'best'", "not a constant"),
    ),
    "identity of another dtype": (
        bad_reducer(lambda x, y: x + y, lambda t: te.const(0)),
        ("'best'", "fidentity gives int32"),
    ),
    "identity missing": (bad_reducer(lambda x, y: x + y, lambda t: None), ("'best'", "fidentity", "None")),
}
R = te.reduce_axis((0, 8), name="r")
R4 = te.reduce_axis((0, 4), name="r4")


@pytest.mark.parametrize("case", REDUCTIONS)
def test_wrong_reductions(case: str) -> None:
    thunk, fragments = REDUCTIONS[case]
    refuse(thunk, *fragments)


DTYPES: dict[str, tuple[Thunk, tuple[str, ...]]] = {
    "addition": (
        lambda: define(lambda i, j: A[i, j] + I32[i, j]),
        ("compute 'C' over (i, j)", "float32 `A[i, j]` and int32 `I[i, j]`", "te.cast"),
    ),
    "an axis": (lambda: define(lambda i, j: A[i, j] * i), ("'C'", "int32 `i`", "te.cast")),
    "comparison": (lambda: define(lambda i, j: A[i, j] < I32[i, j]), ("'C'", "`lt`", "`I[i, j]`")),
    "equality": (
        lambda: define(lambda i, j: te.select(A[i, j] == I32[i, j], 1.0, 2.0)),
        ("'C'", "compares float32 with int32"),
    ),
    "equality of floats over an axis that begins later": (
        lambda: later(lambda i, k: te.sum(te.select(A[i, k] == I32[i, k], 1.0, 2.0), axis=k)),
        ("'C'", "compares float32 with int32"),
    ),
    "equality of integers over an axis that begins later": (
        lambda: later(lambda i, k: te.sum(A[i, k], axis=k, where=I32[i, k] != A[i, k])),
        ("'C'", "compares int32 with float32"),
    ),
    "equality of an axis that begins later and a constant": (
        lambda: later(lambda i, k: te.sum(A[i, k], axis=k, where=k == te.const(1, "int64"))),
        ("'C'", "compares int32 with int64"),
    ),
    "sides of a choice": (
        lambda: define(lambda i, j: te.if_then_else(i < j, A[i, j], I32[i, j])),
        ("'C'", "`if_then_else`", "`I[i, j]`"),
    ),
    "arguments": (lambda: define(lambda i, j: te.pow(A[i, j], I32[i, j])), ("'C'", "`pow`", "int32")),
    "a condition times a number": (
        lambda: define(lambda i, j: (A[i, j] > 0) * A[i, j]),
        ("'C'", "`mul` of bool", "te.cast(cond, 'float32')", "te.select(cond, x, 0)"),
    ),
    "a number minus a condition": (
        lambda: define(lambda i, j: I32[i, j] - (i < j)),
        ("'C'", "`sub` of int32", "te.cast(cond, 'int32')"),
    ),
    "a condition and a number": (
        lambda: define(lambda i, j: (i < j) & A[i, j]),
        ("'C'", "`and` of bool", "condition of the other side", "!= 0"),
    ),
    "integers divided": (
        lambda: define(lambda i, j: I32[i, j] / 2),
        ("'C'", "`/` is for floats", "`I[i, j]`"),
    ),
    "floats floor-divided": (lambda: define(lambda i, j: A[i, j] // 2.0), ("'C'", "`floordiv`", "`A[i, j]`")),
    "exp of int": (
        lambda: define(lambda i, j: te.exp(I32[i, j])),
        ("'C'", "`exp` is for floats", "`I[i, j]`"),
    ),
    "isnan of int": (
        lambda: define(lambda i, j: te.isnan(I32[i, j])),
        ("'C'", "`isnan` is for floats", "`I[i, j]`"),
    ),
    "trunc of int": (
        lambda: define(lambda i, j: te.trunc(I32[i, j])),
        ("'C'", "`trunc` is for floats", "`I[i, j]`"),
    ),
    "sign of a condition": (lambda: define(lambda i, j: te.sign(i < j)), ("'C'", "`sign` is for numbers")),
    "number as condition": (
        lambda: define(lambda i, j: te.if_then_else(I32[i, j], 1.0, 2.0)),
        ("'C'", "`if_then_else` needs a condition", "`I[i, j]`"),
    ),
    "and of numbers": (lambda: define(lambda i, j: te.all(I32[i, j], i < j)), ("'C'", "`and`", "`I[i, j]`")),
    "not of a number": (
        lambda: define(lambda i, j: te.logical_not(I32[i, j])),
        ("'C'", "`not`", "`I[i, j]`"),
    ),
    "bits of floats": (
        lambda: define(lambda i, j: A[i, j] & 1),
        ("'C'", "`&` is for integers", "float32 `A[i, j]`", "cast"),
    ),
    "floats shifted": (
        lambda: define(lambda i, j: 1 << A[i, j]),
        ("'C'", "`<<` is for integers", "float32", "cast"),
    ),
    "floats inverted": (
        lambda: define(lambda i, j: ~A[i, j]),
        ("'C'", "`~` is for integers and conditions", "float32 `A[i, j]`"),
    ),
    "exclusive or of conditions": (lambda: define(lambda i, j: (i < j) ^ (j < i)), ("'C'", "`^`", "bool")),
    "bits of a number and a condition": (
        lambda: define(lambda i, j: I32[i, j] & (i < j)),
        ("'C'", "`&` of int32 `I[i, j]` and bool", "te.cast"),
    ),
    "bits of two dtypes": (
        lambda: define(lambda i, j: te.cast(i, "uint8") | I32[i, j]),
        ("'C'", "`|` of uint8", "int32 `I[i, j]`", "te.cast"),
    ),
    "shift by too many bits": (
        lambda: define(lambda i, j: te.cast(I32[i, j], "uint8") << 8),
        ("'C'", "`<<` of uint8", "by 8", "0..7"),
    ),
    "shift by less than none": (lambda: define(lambda i, j: I32[i, j] >> -1), ("'C'", "by -1", "0..31")),
    "a tensor shifted": (lambda: define(lambda i, j: I32 >> 1), ("'C'", "I[i0, i1]")),
    "arithmetic on bool": (lambda: define(lambda i, j: (i < j) + (j < i)), ("'C'", "not defined for bool")),
    "fraction to int": (lambda: define(lambda i, j: I32[i, j] + 0.5), ("'C'", "0.5", "int32")),
    "constant too large": (lambda: define(lambda i, j: I32[i, j] + 2**31), ("'C'", "does not fit int32")),
    "float constant too large": (
        lambda: te.const(70000.0, "float16"),
        ("70000.0 does not fit float16", "65504"),
    ),
    "modulo zero": (lambda: define(lambda i, j: I32[i, j] % 0), ("'C'", "`floormod` of `I[i, j]` by zero")),
    "truth of an expression": (
        lambda: define(lambda i, j: 1.0 if i < j else 2.0),
        ("'C'", "`(i < j)` has no truth value", "te.if_then_else"),
    ),
    "chained comparison": (lambda: define(lambda i, j: te.select(0 < i < 3, 1, 2)), ("'C'", "te.all")),
    "python max": (lambda: define(lambda i, j: max(A[i, j], 0.0)), ("'C'", "no truth value", "te.maximum")),
    "unknown dtype": (lambda: te.placeholder((8,), "float31"), ("'float31'", "float32")),
    "unknown cast": (lambda: define(lambda i, j: te.cast(A[i, j], "half")), ("'C'", "'half'")),
    "array as number": (lambda: define(lambda i, j: A[i, j] + np.zeros((8, 4))), ("'C'",)),
    "text as number": (lambda: define(lambda i, j: A[i, j] + "1"), ("'C'", "`add`", "'1'")),
    "nothing": (lambda: define(lambda i, j: None), ("'C'", "None")),
    "no outputs": (lambda: define(lambda i, j: ()), ("'C'", "empty tuple")),
}


@pytest.mark.parametrize("case", DTYPES)
def test_wrong_dtypes_and_values(case: str) -> None:
    thunk, fragments = DTYPES[case]
    refuse(thunk, *fragments)


SHAPES: dict[str, tuple[Thunk, tuple[str, ...]]] = {
    "zero": (lambda: te.placeholder((8, 0), name="Z"), ("dimension 1 of placeholder 'Z' is 0", "at least 1")),
    "negative": (lambda: define(lambda i: 1.0, (-3,)), ("dimension 0 of compute 'C' is -3",)),
    "fraction": (
        lambda: te.placeholder((8, 2.5), name="Z"),
        ("dimension 1 of placeholder 'Z' is 2.5", "integer"),
    ),
    "bool": (lambda: te.placeholder((True,), name="Z"), ("dimension 0 of placeholder 'Z' is True",)),
    "float expression": (
        lambda: te.placeholder((te.const(2.0),), name="Z"),
        ("dimension 0 of placeholder 'Z'", "float32"),
    ),
    "int64 expression": (
        lambda: te.placeholder((te.var("n", "int64"),), name="Z"),
        ("dimension 0 of placeholder 'Z'", "int64", "int32"),
    ),
    "float var": (lambda: te.var("x", "float32"), ("'x'", "float32")),
    "empty name": (lambda: te.placeholder((8,), name=""), ("te.placeholder", "name=''")),
    "name with a space": (lambda: te.compute((8,), lambda i: 1.0, name="a b"), ("te.compute", "'a b'")),
    "empty range": (lambda: te.reduce_axis((4, 4), name="r"), ("reduce axis 'r'", "4..4")),
    "extent instead of bounds": (
        lambda: te.reduce_axis(8, name="r"),
        ("reduce axis 'r'", "(begin, end)", "8"),
    ),
    "float bounds": (lambda: te.reduce_axis((0.0, 4.0), name="r"), ("reduce axis 'r'", "float32")),
    "bounds of an axis": (
        lambda: define(lambda i: te.sum(A[i, (r := te.reduce_axis((0, i + 1), "r"))], axis=r), (4,)),
        ("'C'", "reduce axis 'r'", "`(i + 1)`, which depends on `i`", "where="),
    ),
    "bounds from an axis on": (
        lambda: define(lambda i: te.sum(A[i, (r := te.reduce_axis((i, 4), "r"))], axis=r), (4,)),
        ("'C'", "reduce axis 'r'", "depends on `i`"),
    ),
    "bounds of an element": (
        lambda: te.reduce_axis((0, I32[0, 0]), name="r"),
        ("reduce axis 'r'", "depends on `I[0, 0]`"),
    ),
    "an axis as extent": (lambda: te.placeholder((8, K), name="Z"), ("dimension 1", "'Z'", "depends on `k`")),
    "tensor as bound": (lambda: te.reduce_axis((0, A), name="r"), ("reduce axis 'r'", "'A'")),
    "unknown thread": (lambda: te.thread_axis("threadIdx.w"), ("'threadIdx.w'", "threadIdx.x")),
    "two threads": (
        lambda: te.thread_axis("threadIdx.x", "blockIdx.y"),
        ("thread_axis('threadIdx.x', 'blockIdx.y')", "one name"),
    ),
    "no threads": (lambda: te.thread_axis(0, "threadIdx.x"), ("'threadIdx.x'", "extent", "at least 1", "0")),
    "fewer than no threads": (
        lambda: te.thread_axis((0, -3), "threadIdx.x"),
        ("'threadIdx.x'", "extent", "at least 1", "-3"),
    ),
    "half a thread": (lambda: te.thread_axis(0.5, "threadIdx.x"), ("'threadIdx.x'", "an integer", "0.5")),
}


@pytest.mark.parametrize("case", SHAPES)
def test_wrong_shapes_and_names(case: str) -> None:
    thunk, fragments = SHAPES[case]
    refuse(thunk, *fragments)


def test_an_error_in_a_nested_function_keeps_both_names() -> None:
    def inner(i: te.Var) -> te.Expr:
        broken: te.Expr = te.compute((4,), lambda q: A[q], name="inner")[i]
        return broken

    message = refuse(lambda: define(lambda i, j: inner(i)))
    assert re.search(r"'C' over \(i, j\).*'inner' over \(q\).*'A'", message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: te.compute((3,), 5), "needs a function of its axes"),
        (lambda: te.compute((3,), min), "needs a function of its axes"),
        (lambda: te.thread_axis((0,), "threadIdx.x"), "bounds are (begin, end)"),
        (lambda: te.reduce_axis((0, 5), name=3), "a name is a string"),
        (lambda: te.reduce_axis((-(2**31), 5)), "is 2147483653 long; axes count to 2**31 - 1"),
        (lambda: ansor.workloads.conv2d(1, 8, 8, 3, 4, 3, 0), "stride must be an integer of at least 1"),
        (
            lambda: ansor.workloads.conv2d(1, 8, 8, 3, 4, 3, groups=0),
            "groups must be an integer of at least 1",
        ),
        (lambda: ansor.workloads.max_pool2d(1, 8, 8, 4, 2, 0), "stride must be an integer of at least 1"),
        (lambda: ansor.workloads.transposed_conv2d(1, 8, 8, 3, 4, 3, 0), "stride must be an integer"),
        (lambda: ansor.Layout.of((8, 4), [None]), "expected dim, (dim, extent)"),
        (lambda: ansor.Layout.of((8, 4), [1.5]), "expected dim, (dim, extent)"),
    ],
)
def test_what_is_no_definition_at_all_is_refused_as_one(make: Thunk, message: str) -> None:
    refuse(make, message)


def test_other_exceptions_of_the_function_pass_through() -> None:
    with pytest.raises(KeyError):
        define(lambda i, j: {}[i])


@pytest.mark.parametrize(
    "function",
    [
        lambda i, j: np.sqrt(A[i, j]),
        lambda i, j: math.exp(A[i, j]),
        lambda i, j: np.arange(8)[i] * A[i, j],
        lambda i, j: sum(A[i, q] for q in range(j)),
    ],
)
def test_functions_of_numbers_are_answered_by_naming_those_of_expressions(function: Any) -> None:
    with pytest.raises((TypeError, IndexError)) as caught:
        define(function)
    assert [note for note in caught.value.__notes__ if "'C' over (i, j)" in note and "te.sqrt" in note]
