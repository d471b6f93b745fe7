"""Every operator in every dtype that has it, under two schedules with vector code, and in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.machine import Machine
from ansor.dtypes import DTYPES
from ansor.schedule.manual import Schedule
from ansor.te import Tensor
from ansor.te.interp import evaluate
from tests.breadth_expressions import Operator, computations, operands, operators


def vectorized_with_tail(s: Schedule, tensor: Tensor) -> None:
    """Vectors of 16 along rows of 37."""
    _, inner = s[tensor].split(tensor.op.axis[1], factor=16)
    s[tensor].vectorize(inner)


def parallel_unrolled(s: Schedule, tensor: Tensor) -> None:
    """All 518 elements in one loop: shares of 24, each 3 vectors of 8; the last share is short."""
    fused = s[tensor].fuse(*tensor.op.axis)
    share, rest = s[tensor].split(fused, factor=24)
    middle, inner = s[tensor].split(rest, factor=8)
    s[tensor].parallel(share)
    s[tensor].unroll(middle)
    s[tensor].vectorize(inner)


def faults(chosen: Sequence[Operator], given: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> list[str]:
    return [
        fault
        for op, result in zip(chosen, found, strict=True)
        if (fault := op.fault(result, given)) is not None
    ]


PROGRAMS = [(vectorized_with_tail, ""), (parallel_unrolled, ""), (vectorized_with_tail, "x86-64")]
"""Schedules and CPUs; the last has neither masks nor fused multiply-add nor 16-bit floats."""


@pytest.mark.parametrize(("schedule", "cpu"), PROGRAMS, ids=["tail", "parallel", "tail without masks"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operator_in_vectors(
    dtype: str, schedule: Callable[[Schedule, Tensor], None], cpu: str
) -> None:
    if cpu and Machine.host().arch != "x86_64":
        pytest.skip("another architecture")
    chosen, given = operators(dtype), operands(dtype)
    tensors = computations(dtype, chosen)
    s = te.create_schedule([t.op for t in tensors[3:]])
    for tensor in tensors[3:]:
        schedule(s, tensor)
    module = ansor.build(s, tensors, f"llvm -mcpu={cpu}" if cpu else "llvm")
    assert faults(chosen, given, module(*given)) == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operator_in_the_interpreter(dtype: str) -> None:
    chosen, given = operators(dtype), operands(dtype)
    tensors = computations(dtype, chosen)
    found = evaluate(tensors[3:], dict(zip(tensors[:3], given, strict=True)))
    assert faults(chosen, given, [found[t] for t in tensors[3:]]) == []
