"""Every operator in every dtype that has it, under two schedules with vector code, and in the interpreter."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.dtypes import DTYPES
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.te import Tensor
from ansor.te.interp import evaluate
from tests.breadth_expressions import Operator, computations, operands, operators, stages


def vectorized_with_tail(s: Schedule, tensor: Tensor) -> None:
    """Vectors of 16 along rows of 37."""
    _, inner = s[tensor].split(tensor.op.axis[1], factor=16)
    s[tensor].vectorize(inner)


def parallel_unrolled(s: Schedule, tensor: Tensor) -> None:
    """All 518 elements in one loop: shares of 16, each 2 vectors of 8; the last share is short."""
    fused = s[tensor].fuse(*tensor.op.axis)
    share, rest = s[tensor].split(fused, factor=16)
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
    s = te.create_schedule([stage.op for stage in stages(tensors)])
    for stage in stages(tensors):
        schedule(s, stage)
    module = ansor.build(s, tensors, f"llvm -mcpu={cpu}" if cpu else "llvm")
    assert faults(chosen, given, module(*given)) == []


MACHINES = [
    ("x86_64-linux-gnu", "x86-64-v4"),
    ("x86_64-linux-gnu", "haswell"),
    ("aarch64-linux-gnu", "generic"),
]
LANE_BY_LANE = {(name, "float64") for name in ("erf", "pow", "sin", "cos", "tan")}
"""What the C library computes, of angles large ones alone, as their modules document."""
SCALAR = re.compile(
    r"= (?:f(?:add|sub|mul|div|ptrunc|pext|cmp \w+)(?: contract)?|fpto[su]i|[us](?:div|rem|itofp)|call) "
    r"(?:float|double|half|i8|i16|i32)\b.*"
)


@pytest.mark.parametrize(("triple", "cpu"), MACHINES, ids=[cpu for _, cpu in MACHINES])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_operator_is_computed_lane_by_lane(dtype: str, triple: str, cpu: str) -> None:
    """Loops of 14 are vectors of 8, 4 and 2 lanes; no scalar arithmetic is left."""
    machine = Machine.of(triple, cpu)
    chosen = operators(dtype)
    lanes = [op for op in chosen if (op.name, dtype) in LANE_BY_LANE]
    text = text_in_vectors(dtype, [op for op in chosen if op not in lanes], machine)
    assert SCALAR.search(text) is None
    for op in lanes:
        assert SCALAR.search(text_in_vectors(dtype, [op], machine)), op.name


def text_in_vectors(dtype: str, chosen: Sequence[Operator], machine: Machine) -> str:
    """The code of operators, all of whose results are stored as vectors."""
    tensors = computations(dtype, chosen)
    s = te.create_schedule([stage.op for stage in stages(tensors)])
    for stage in stages(tensors):
        _, inner = s[stage].split(s[stage].fuse(*stage.op.axis), factor=14)
        s[stage].vectorize(inner)
    text = emit_llvm(lower(s, tensors, limits=machine.register_limits), machine, "kernel")
    assert len(re.findall(r"(?:store|@llvm\.masked\.store\S*\() ?<\d+ x i?\w+>", text)) >= len(chosen), text
    assert not re.search(r"store (?!<)", text), text
    return text


def test_rows_that_were_fused_are_stored_as_vectors() -> None:
    """The indices of a fused loop's parts are quotients and remainders; together they are consecutive."""
    x = te.placeholder((4, 7, 3), name="X")
    y = te.compute((4, 7, 3), lambda i, j, k: x[i, j, k] * x[i, j, k], name="Y")
    s = te.create_schedule(y.op)
    _, inner = s[y].split(s[y].fuse(*y.op.axis), factor=12)
    s[y].vectorize(inner)
    module = ansor.build(s, [x, y])
    text = module.get_source("ll")
    assert not re.search(r"extractelement|gather|scatter", text), text
    values = np.arange(84, dtype=np.float32).reshape(4, 7, 3)
    np.testing.assert_array_equal(module(values), values * values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operator_in_the_interpreter(dtype: str) -> None:
    chosen, given = operators(dtype), operands(dtype)
    tensors = computations(dtype, chosen)
    found = evaluate(tensors[3:], dict(zip(tensors[:3], given, strict=True)))
    assert faults(chosen, given, [found[t] for t in tensors[3:]]) == []
