"""The tolerance of sums by tensor cores, which cut off what they add, and may round what they multiply."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ansor.task.target import Target
from ansor.workloads.catalogue import get_workload
from measure.correctness.tolerance import output_tolerance
from measure.workers.check import Tolerance, mismatch, rms
from tests.tensor_core_schedules import half_product

DEPTH = 4096
GPU = Target("cuda -arch=sm_80")


def tolerance(dtype: str) -> Tolerance:
    return output_tolerance(get_workload("matmul").tensors(64, 64, DEPTH, dtype, "float32")[-1], GPU)


def rounded(values: np.ndarray) -> np.ndarray:
    """To 10 bits of fraction."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def cut_sum(products: np.ndarray, at_once: int) -> np.ndarray:
    """Sums along the last axis, so many products at once, aligned to the greatest and cut off there."""
    total = np.zeros(products.shape[:-1])
    for start in range(0, products.shape[-1], at_once):
        terms = np.concatenate([total[..., None], products[..., start : start + at_once]], axis=-1)
        _, exponent = np.frexp(np.abs(terms).max(axis=-1, keepdims=True))
        unit = np.ldexp(1.0, exponent - 24)
        total = (np.trunc(terms / unit) * unit).sum(axis=-1)
        _, exponent = np.frexp(total)
        unit = np.ldexp(1.0, exponent - 24)
        total = np.trunc(total / unit) * unit
    return total


@pytest.mark.parametrize("low", [-1.0, 0.0])
@pytest.mark.parametrize("at_once", [4, 8, 16])
def test_sums_that_are_cut_off_are_right(low: float, at_once: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(low, 1.0, (64, DEPTH)).astype(np.float16).astype(np.float64) for _ in range(2))
    expected = (a * b).sum(axis=-1).astype(np.float32)
    found = cut_sum(a * b, at_once).astype(np.float32)
    allowed = replace(tolerance("float16"), scale=rms(expected))
    assert mismatch(found, expected, "float32", allowed) is None
    if low == 0.0:
        plain = replace(tolerance("float32"), scale=rms(expected))
        assert mismatch(found, expected, "float32", plain) is not None
    one_less = (a * b)[..., 1:].sum(axis=-1).astype(np.float32)
    if low < 0.0:
        assert mismatch(one_less, expected, "float32", allowed) is not None


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_sums_of_rounded_operands_are_right_where_they_are_allowed(low: float) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(low, 1.0, (64, DEPTH)).astype(np.float32).astype(np.float64) for _ in range(2))
    expected = (a * b).sum(axis=-1).astype(np.float32)
    found = cut_sum(rounded(a) * rounded(b), 8).astype(np.float32)
    allowed = output_tolerance(half_product(64, 64, DEPTH, "float32")[-1], GPU)
    assert mismatch(found, expected, "float32", replace(allowed, scale=rms(expected))) is None
    plain = replace(tolerance("float32"), scale=rms(expected))
    assert mismatch(found, expected, "float32", plain) is not None
    one_less = (a * b)[..., 1:].sum(axis=-1).astype(np.float32)
    if low < 0.0:
        assert mismatch(one_less, expected, "float32", replace(allowed, scale=rms(expected))) is not None


def test_others_are_held_to_what_they_were() -> None:
    assert tolerance("float32").relative == pytest.approx(2.0**-23 * (16 + 1.5 * DEPTH**0.5))
    assert tolerance("bfloat16").relative == pytest.approx(2.0**-23 * (16 + 1.5 * DEPTH**0.5 + DEPTH / 2))


@pytest.mark.parametrize("target", ["llvm", "opencl", "cuda", "cuda -arch=sm_70"])
def test_targets_without_tensor_cores_are_held_to_what_they_can(target: str) -> None:
    """Whatever the operation allows to be rounded."""
    outputs = [
        get_workload("matmul").tensors(64, 64, DEPTH, "float16", "float32")[-1],
        half_product(64, 64, DEPTH, "float32")[-1],
    ]
    for output in outputs:
        found = output_tolerance(output, Target(target))
        assert found.relative == pytest.approx(2.0**-23 * (16 + 1.5 * DEPTH**0.5))
