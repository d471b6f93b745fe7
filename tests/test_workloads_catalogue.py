"""Every workload of the catalogue equals its numpy reference, in every dtype it claims."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

from ansor.dtypes import dtype_info, to_numpy
from ansor.errors import DefinitionError
from ansor.schedule.dag import ComputeDAG
from ansor.task.registry import workload_key_to_tensors
from ansor.te.interp import evaluate
from ansor.workloads import (
    CATALOGUE,
    Workload,
    conv2d,
    get_workload,
    max_pool2d,
    rgb_to_yuv,
    transposed_conv2d,
)
from ansor.workloads.catalogue import Args, Array

# Relative to the largest element; results in a narrow float are rounded, a few of them several times.
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


def sample(name: str, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    kind = dtype_info(dtype).kind
    if kind == "float":
        return rng.uniform(-1, 1, shape).astype(to_numpy(dtype))
    low, high = (0, 256) if name == "RGB" else (0 if kind == "uint" else -9, 10)
    return rng.integers(low, high, shape).astype(to_numpy(dtype))


def cases() -> Iterator[tuple[Workload, Args]]:
    for entry in CATALOGUE.values():
        for number, args in enumerate(entry.small):
            for dtype in entry.dtypes if number == 0 else entry.dtypes[:1]:
                yield entry, entry.with_dtype(args, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("matmul", (2, 3, 4100)),
        ("matmul_add", (2, 4100, 3)),
        ("batch_matmul", (2, 1, 3, 4100)),
        ("dense", (2, 4100, 3)),
        ("conv1d", (1, 3, 1400, 2, 3)),
        ("conv2d", (1, 3, 3, 460, 2, 3)),
        ("transposed_conv2d", (1, 1, 1, 4100, 2, 1)),
        ("capsule_conv2d", (1, 1, 1, 1100, 2, 1)),
    ],
)
def test_sums_of_narrow_floats_are_wide(name: str, args: Args, dtype: str) -> None:
    """Of ones they stop at 2048 (float16) or 256 (bfloat16) if each step is rounded."""
    entry = get_workload(name)
    *inputs, output = entry.tensors(*entry.with_dtype(args, dtype))
    ones = {tensor: np.ones(tensor.shape, to_numpy(dtype)) for tensor in inputs}
    result = evaluate(output, ones)[output]
    assert result.dtype == to_numpy(dtype)
    assert 4090 < float(result.min()) < 4500


def test_pools_of_nothing_but_minus_infinity_have_it_at_the_border_too() -> None:
    x, y = max_pool2d(1, 5, 5, 2, 3, 2, 1)
    lowest = np.full((1, 5, 5, 2), -np.inf, np.float32)
    np.testing.assert_array_equal(evaluate(y, {x: lowest})[y], np.full((1, 3, 3, 2), -np.inf))


@pytest.mark.parametrize(
    ("entry", "args"), [pytest.param(e, a, id=f"{e.name}-{'-'.join(map(str, a))}") for e, a in cases()]
)
def test_a_workload_computes_its_reference(entry: Workload, args: Args) -> None:
    rng = np.random.default_rng(0)
    arrays = [sample(*spec, rng) for spec in entry.input_shapes(args)]
    *inputs, output = entry.tensors(*args)
    result = evaluate(output, dict(zip(inputs, arrays, strict=True)))[output]
    expected = entry.expected(arrays, args)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    if dtype_info(output.dtype).kind == "float":
        scale = float(np.abs(expected.astype(np.float64)).max())
        np.testing.assert_allclose(
            result.astype(np.float64),
            expected.astype(np.float64),
            rtol=0,
            atol=TOLERANCE[output.dtype] * scale,
        )
    else:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
def test_an_entry_is_complete(entry: Workload) -> None:
    assert entry.summary.endswith(".")
    assert len(entry.small) >= 2
    assert entry.dtypes[0] == "float32"
    for args in (*entry.benchmark, *entry.small):
        key = entry.key(*args)
        assert json.loads(key) == [f"ansor.{entry.name}", *args]
        dag = ComputeDAG(entry.function(*args))
        assert dag.flop_count > 0
        assert ComputeDAG(workload_key_to_tensors(key)).structure_hash == dag.structure_hash
        assert len(dag.outputs) == 1


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
def test_the_reference_keeps_the_dtype_it_is_given(entry: Workload) -> None:
    """So that benchmarks can time it as the program a numpy user would write."""
    args = entry.small[0]
    rng = np.random.default_rng(0)
    arrays = [sample(*spec, rng) for spec in entry.input_shapes(args)]
    assert entry.reference(arrays, entry.bind(args)).dtype == np.float32


def test_narrow_integers_accumulate_in_int32() -> None:
    for name in ("matmul", "conv2d", "dense", "capsule_conv2d", "transposed_conv2d"):
        entry = get_workload(name)
        assert entry.tensors(*entry.with_dtype(entry.small[0], "int8"))[-1].dtype == "int32"


def test_float16_can_accumulate_in_float32() -> None:
    *inputs, output = CATALOGUE["matmul"].tensors(4, 4, 8, "float16", "float32")
    assert [t.dtype for t in inputs] == ["float16", "float16"]
    assert output.dtype == "float32"


def test_the_colours_of_bytes() -> None:
    """White and black have the extreme lumas of BT.601 and no colour."""
    rgb, yuv = rgb_to_yuv(1, 2, "uint8")
    pixels = np.array([[[255, 255, 255], [0, 0, 0]]], np.uint8)
    np.testing.assert_array_equal(evaluate(yuv, {rgb: pixels})[yuv], [[[235, 128, 128], [16, 128, 128]]])


GEOMETRIES = [
    (kernel, stride, padding)
    for kernel in range(1, 6)
    for stride in range(1, 5)
    for padding in range(3)
    if (3 - 1) * stride + kernel - 2 * padding >= 1
]


@pytest.mark.parametrize(("kernel", "stride", "padding"), GEOMETRIES)
def test_transposed_convolution_of_any_geometry(kernel: int, stride: int, padding: int) -> None:
    args = (1, 3, 4, 2, 1, kernel, stride, padding)
    entry = CATALOGUE["transposed_conv2d"]
    rng = np.random.default_rng(1)
    arrays = [sample(*spec, rng) for spec in entry.input_shapes(args)]
    x, w, y = transposed_conv2d(*args)
    result = evaluate(y, dict(zip((x, w), arrays, strict=True)))[y]
    np.testing.assert_allclose(result, entry.expected(arrays, args), atol=1e-5)


def test_transposed_convolution_multiplies_few_zeros() -> None:
    """The form with zeros put between pixels would count stride * stride times as many operations."""
    n, h, w, ci, co, kernel, stride, padding = 1, 8, 8, 16, 16, 4, 2, 1
    dag = ComputeDAG(transposed_conv2d(n, h, w, ci, co, kernel, stride, padding))
    assert dag.flop_count == 2 * (n * 16 * 16 * co) * (kernel // stride) ** 2 * ci


def test_weights_are_free_to_be_laid_out_anew() -> None:
    _, weight, output = conv2d(1, 8, 8, 4, 4, 3)
    assert output.op.attrs["layout_free_placeholders"] == [weight]


def test_lookup_suggests_similar_names() -> None:
    assert get_workload("ansor.matmul") is CATALOGUE["matmul"]
    with pytest.raises(DefinitionError, match=r"did you mean .*conv2d"):
        get_workload("conv_2d")
    with pytest.raises(DefinitionError, match=r"there are .*softmax"):
        get_workload("xyz")


def test_arguments_are_bound_by_name() -> None:
    entry = CATALOGUE["matmul"]
    dtypes = {"dtype": "float32", "out_dtype": "", "weight_dtype": ""}
    assert dict(entry.bind((8, 4, 2))) == {"n": 8, "m": 4, "k": 2, **dtypes}
    with pytest.raises(
        DefinitionError, match=r"matmul\(n, m, k, dtype=float32.*: missing a required argument: 'k'"
    ):
        entry.tensors(8, 4)


@pytest.mark.parametrize(
    "args",
    [
        ("matmul", 3, 5, 8, "uint8", "int32", "int8"),
        ("dense", 3, 8, 5, "uint8", "int32", "int8"),
        ("conv2d", 1, 5, 5, 4, 6, 3, 1, 1, 1, 1, "uint8", "int32", "int8"),
    ],
)
def test_weights_may_have_a_dtype_of_their_own(args: Args) -> None:
    name, *given = args
    entry, rng = CATALOGUE[str(name)], np.random.default_rng(0)
    inputs = entry.input_shapes(given)
    assert [dtype for _, _, dtype in inputs] == ["uint8", "int8"]
    arrays = [sample(tensor, shape, dtype, rng) for tensor, shape, dtype in inputs]
    made = entry.tensors(*given)
    found = evaluate(made[-1:], dict(zip(made[:-1], arrays, strict=True)), {})[made[-1]]
    assert np.array_equal(found, entry.expected(arrays, given))


@pytest.mark.parametrize("name", ["kernel", "stride", "padding", "dilation", "groups", "tile"])
def test_geometry_is_of_whole_numbers_that_are_no_less_than_they_can_be(name: str) -> None:
    for entry in CATALOGUE.values():
        for wrong in (None, "foo", "3", [4], 2.5, -1):
            named = dict(entry.bind(entry.small[0]))
            if name in named:
                with pytest.raises(DefinitionError):
                    entry.function(**{**named, name: wrong})


def test_impossible_geometry_is_refused() -> None:
    with pytest.raises(DefinitionError, match="3 groups do not divide"):
        conv2d(1, 8, 8, 4, 4, 3, 1, 1, 1, 3)
    with pytest.raises(DefinitionError, match="pad by less than the window"):
        max_pool2d(1, 8, 8, 4, 2, 2, 2)
    with pytest.raises(DefinitionError, match="dimension 1"):
        conv2d(1, 2, 2, 4, 4, 5)
    with pytest.raises(DefinitionError, match="is for float dtypes, found int8"):
        CATALOGUE["softmax"].tensors(4, 4, "int8")
