"""The flop count, rule by rule."""

from collections.abc import Callable

import pytest

from ansor import te
from ansor.errors import DefinitionError
from ansor.schedule.dag import ComputeDAG
from ansor.te import Expr, Tensor

N = 8


def flops(body: Callable[[Tensor, Expr, Expr], Expr], dtype: str = "float32", **attrs: int) -> float:
    x = te.placeholder((N, N), dtype, name="X")
    c = te.compute((N, N), lambda i, j: body(x, i, j), name="C", attrs=attrs)
    return ComputeDAG([x, c]).flop_count / (N * N)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(lambda x, i, j: x[i, j], 0, id="copy"),
        pytest.param(lambda x, i, j: x[i, j] * 2.0 + 1.0, 2, id="arithmetic"),
        pytest.param(lambda x, i, j: te.maximum(x[i, j], 0.0), 1, id="relu"),
        pytest.param(lambda x, i, j: te.exp(x[i, j] - 1.0), 1, id="intrinsics are free"),
        pytest.param(lambda x, i, j: te.fma(x[i, j], x[j, i], x[i, i]), 0, id="fma is an intrinsic"),
        pytest.param(lambda x, i, j: te.if_then_else(i >= 1, x[i - 1, j], 0.0), 0, id="padding"),
        pytest.param(lambda x, i, j: te.if_then_else(x[i, j] > 0.0, x[i, j], 0.0), 1, id="a choice by data"),
        pytest.param(
            lambda x, i, j: te.select(i > j, x[i, j] + 1.0, x[i, j] * 2.0 + 3.0), 2, id="the dearer branch"
        ),
        pytest.param(
            lambda x, i, j: te.if_then_else(i > j, x[i, j] + 1.0, x[i, j] * 2.0 + 3.0),
            3,
            id="both branches of a call",
        ),
        pytest.param(lambda x, i, j: x[te.floordiv(i * 3, 4), j], 0, id="index arithmetic"),
        pytest.param(lambda x, i, j: te.cast(te.cast(x[i, j], "float64") * 2.0, "float32"), 1, id="casts"),
    ],
)
def test_operations_per_element(body: Callable[[Tensor, Expr, Expr], Expr], expected: int) -> None:
    assert flops(body) == expected


def test_shared_expressions_count_each_time() -> None:
    """As if written out, so that sharing nodes in Python does not change the count."""

    def body(x: Tensor, i: Expr, j: Expr) -> Expr:
        value = x[i, j]
        for _ in range(40):
            value = value + value
        return value

    assert flops(body) == 2**40 - 1


def test_integers_count_integer_operations() -> None:
    assert flops(lambda x, i, j: te.cast(x[i, j], "int32") * 2 + 1, "int8") == 2
    assert flops(lambda x, i, j: te.cast(te.cast(x[i, j], "int32") * 2, "uint8"), "uint8") == 1


def test_logic_counts_in_conditions() -> None:
    assert flops(lambda x, i, j: te.all(x[i, j] > 0.0, x[j, i] > 0.0)) == 1


def test_the_attribute_overrides() -> None:
    assert flops(lambda x, i, j: x[i, j] * 2.0 + 1.0, FLOP=1234) * N * N == 1234


@pytest.mark.parametrize("name", ["sum", "prod", "max"])
def test_reductions_count_combiner_and_source(name: str) -> None:
    x = te.placeholder((N, N), name="X")
    k = te.reduce_axis((0, N), "k")
    c = te.compute((N,), lambda i: getattr(te, name)(x[i, k] * x[k, i], axis=k), name="C")
    assert ComputeDAG([x, c]).flop_count == 2 * N * N


def test_outputs_of_one_reduction_count_once() -> None:
    x = te.placeholder((N, N), name="X")
    k = te.reduce_axis((0, N), "k")
    moments = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda a, b: (te.const(0.0, a), te.const(0.0, b))
    )
    first, second = te.compute((N,), lambda i: moments((x[i, k], x[i, k] * x[i, k]), axis=k), name="M")
    assert ComputeDAG([x, first, second]).flop_count == 3 * N * N


def test_more_operations_than_a_float_counts_are_refused() -> None:
    x = te.placeholder((2,), name="X")
    axes = [te.reduce_axis((0, 2**31 - 1), f"k{number}") for number in range(40)]
    wide = te.compute((2**31 - 1,) * 40, lambda *i: te.cast(i[0], "float32") * 2.0, name="C")
    long = te.compute((2,), lambda i: te.sum(x[i], axis=axes), name="C")
    told = te.compute((2,), lambda i: x[i] * 2.0, name="C", attrs={"FLOP": 10**400})
    for tensor in (wide, long, told):
        with pytest.raises(DefinitionError, match=r"'C': its operations are more .*'FLOP' among its attrs"):
            _ = ComputeDAG([x, tensor]).flop_count


def test_stages_add_up() -> None:
    x = te.placeholder((N, N), name="X")
    a = te.compute((N, N), lambda i, j: x[i, j] + 1.0, name="A")
    b = te.compute((N, N), lambda i, j: a[i, j] * a[j, i], name="B")
    assert ComputeDAG([x, b]).flop_count == 2 * N * N
