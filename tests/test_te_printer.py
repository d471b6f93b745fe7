"""The text of expressions."""

import pytest

from ansor import te

A = te.placeholder((8, 4), name="A")
K = te.reduce_axis((0, 4), name="k")
R = te.reduce_axis((0, 8), name="r")


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (2, "int32", "2"),
        (2, "int64", "int64(2)"),
        (-1, "int8", "int8(-1)"),
        (2, "float32", "2f"),
        (0.1, "float32", "0.1f"),
        (1e-5, "float32", "1e-05f"),
        (2, "float64", "2.0"),
        (0.5, "float16", "0.5h"),
        (2, "bfloat16", "2bf"),
        (float("inf"), "float32", "float32(inf)"),
        (float("nan"), "float64", "float64(nan)"),
        (True, "bool", "True"),
    ],
)
def test_constants(value: float, dtype: str, text: str) -> None:
    assert str(te.const(value, dtype)) == text


def test_reductions() -> None:
    i = te.var("i")
    assert str(te.sum(A[i, K], axis=K)) == "sum(A[i, k], axis=[k])"
    assert str(te.prod(A[R, K], axis=[R, K])) == "prod(A[r, k], axis=[r, k])"
    guarded = te.max(A[i, K], axis=K, where=A[0, K] > 0.0)
    assert str(guarded) == "max(A[i, k], axis=[k], where=(A[0, k] > 0f))"
    first = te.comm_reducer(lambda x, y: (x[0], x[1]), lambda a, b: (0, 0.0), name="first")
    at, value = first((K, A[i, K]), axis=K)
    assert str(at) == "first((k, A[i, k]), axis=[k])[0]"
    assert str(value) == "first((k, A[i, k]), axis=[k])[1]"


def test_repr_names_the_node() -> None:
    assert repr(te.var("i") + 1) == "<Binary (i + 1): int32>"
    assert repr(A) == "Tensor(A, shape=[8, 4], dtype=float32)"


def test_scalar_tensors() -> None:
    scalar = te.placeholder((), name="s")
    assert str(scalar() + 1.0) == "(s[] + 1f)"


def test_nesting() -> None:
    i, j = te.var("i"), te.var("j")
    expr = te.fma(A[i, j], -A[0, 0], te.sigmoid(A[i + 1, j % 2])) / 3.0
    assert str(expr) == "(fma(A[i, j], (-A[0, 0]), sigmoid(A[(i + 1), floormod(j, 2)]))/3f)"


def test_long_parts_that_occur_several_times_are_written_once() -> None:
    i, j = te.var("i"), te.var("j")
    long = te.exp(A[i, j] * A[i, j + 1] + A[i + 1, j] * A[i + 1, j + 1])
    assert str(long * 2.0 + long) == (
        "(($0*2f) + $0) where $0 := exp(((A[i, j]*A[i, (j + 1)]) + (A[(i + 1), j]*A[(i + 1), (j + 1)])))"
    )
