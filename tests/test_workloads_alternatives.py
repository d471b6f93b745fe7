"""Which workloads stand for another one: what is listed can be tuned in its place, and computes the same."""

from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError
from ansor.te.interp import evaluate
from ansor.workloads import CATALOGUE, alternatives_of, conv2d

SIZES = (1, 9, 7, 8, 6)


def listed(name: str, *args: Any, constant: bool = False) -> list[str]:
    """Names of the alternatives of an entry of the catalogue."""
    return [str(func) for func, _ in alternatives_of(f"ansor.{name}", args, constant=constant)]


@pytest.mark.parametrize("name", ["conv2d", "conv2d_bn_relu", "conv2d_nchw"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("rest", [(), (1, 1), (1, 0, 1), (1, 1, 1, "float64")], ids=str)
def test_alternatives_compute_the_same(name: str, constant: bool, rest: tuple[Any, ...]) -> None:
    """With the arguments of the direct one, all that it may have, on the inputs of the direct one."""
    if name == "conv2d" and len(rest) > 3:
        rest = (*rest[:3], 1, *rest[3:])
    args = (*SIZES, 3, *rest)
    calls = alternatives_of(f"ansor.{name}", args, constant=constant)
    option = 2 if constant else 0
    task = ansor.SearchTask(f"ansor.{name}", args, layout_rewrite_option=option, alternatives=calls)
    assert len(task.alternatives) == 2
    rng = np.random.default_rng(0)
    *inputs, output = task.compute_dag.tensors
    arrays = [rng.uniform(-1, 1, t.shape).astype(t.dtype) for t in inputs]
    expected = evaluate(output, dict(zip(inputs, arrays, strict=True)))[output]
    for one in task.alternatives:
        *inputs, output = one.compute_dag.tensors
        data = [ansor.transform_layout(array, tensor) for array, tensor in zip(arrays, inputs, strict=True)]
        found = evaluate(output, dict(zip(inputs, data, strict=True)))[output]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_winograd_is_listed_for_small_and_large_tiles() -> None:
    assert alternatives_of(conv2d, (*SIZES, 3, 1, 1)) == [
        ("ansor.conv2d_winograd", (*SIZES, tile, 1, "float32")) for tile in (2, 4)
    ]
    assert (
        listed("conv2d_bn_relu", *SIZES, 3, constant=True) == ["ansor.conv2d_bn_relu_winograd_prepared"] * 2
    )


@pytest.mark.parametrize(
    "rest",
    [
        (1,),
        (5, 1, 2),
        (3, 2, 1),
        (3, 1, 1, 2),
        (3, 1, 1, 1, 2),
        (3, 1, 1, 1, 1, "float16"),
        (3, 1, 1, 1, 1, "int8"),
        (3, 1, 1, 1, 1, "bfloat16", "float32"),
        (3, 1, 1, 1, 1, "float32", "float64"),
        (3, 1, 1, 1, 1, "float32", "", "float64"),
    ],
    ids=str,
)
def test_other_convolutions_have_none(rest: tuple[Any, ...]) -> None:
    assert listed("conv2d", *SIZES, *rest) == []


def test_dtypes_that_are_named_though_they_are_the_default_change_nothing() -> None:
    named = (*SIZES, 3, 1, 1, 1, 1, "float32", "float32", "float32")
    assert listed("conv2d", *named) == listed("conv2d", *SIZES, 3, 1, 1) != []


def test_other_workloads_and_symbolic_sizes_have_none() -> None:
    for entry in CATALOGUE.values():
        if entry.name not in ("conv2d", "conv2d_bn_relu", "conv2d_nchw"):
            assert alternatives_of(entry.function, entry.default_args) == []
    assert alternatives_of(lambda n: [], (3,)) == []
    assert listed("conv2d", te.var("n"), *SIZES[1:], 3, 1, 1) == []


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(DefinitionError, match=r"did you mean .*'ansor.conv2d'"):
        listed("conv2", *SIZES, 3)
    with pytest.raises(DefinitionError, match=r"conv2d\(n, h, w, .*missing a required argument: 'kernel'"):
        listed("conv2d", *SIZES)
    with pytest.raises(DefinitionError, match="too many positional arguments"):
        listed("conv2d_bn_relu", *SIZES, 3, 1, 1, 1, "float32", "float32")
    with pytest.raises(DefinitionError, match="dilation is a number, found 'float32'"):
        listed("conv2d", *SIZES, 3, 1, 1, "float32")
    with pytest.raises(DefinitionError, match="dtype is a dtype, found 1"):
        listed("conv2d_bn_relu", *SIZES, 3, 1, 1, 1, 1)
