"""Computations, tasks and oracle lines that the tests of sketches share."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ansor import te
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.stages import Annotation, ComputeAt
from ansor.schedule.state import State
from ansor.schedule.steps import step_from_json
from ansor.task.hardware import HardwareParams
from ansor.task.task import Task
from ansor.te import Tensor

CACHES = {"l1_bytes": 32 << 10, "l1_ways": 8, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
"""Of a common machine, whatever machine tests run on."""
HARDWARE = HardwareParams(4, 64, 64, 49152, 2**31 - 1, 1024, 8, 32, **CACHES)
_HERE = Path(__file__).parent
_FOLDERS = (_HERE / "data", _HERE.parent.parent / "shared" / "data")


def task_of(tensors: list[Tensor], target: str = "llvm -mcpu=core-avx2") -> Task:
    """A task with the oracles' hardware parameters."""
    return Task.create(ComputeDAG(tensors), "[]", target, hardware_params=HARDWARE)


def matmul(n: int, m: int, k: int, **attrs: Any) -> list[Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C", attrs=attrs or None)
    return [a, b, c]


def own_transpose(n: int, depth: int) -> list[Tensor]:
    """A matrix times its own transpose."""
    a, k = te.placeholder((n, depth), name="A"), te.reduce_axis((0, depth), name="k")
    return [a, te.compute((n, n), lambda i, j: te.sum(a[i, k] * a[j, k], axis=k), name="C")]


def matmul_relu(n: int, m: int, k: int) -> list[Tensor]:
    a, b, c = matmul(n, m, k)
    d = te.compute((n, m), lambda i, j: te.maximum(c[i, j], te.const(0.0, "float32")), name="D")
    return [a, b, d]


def row_sum(n: int, m: int) -> list[Tensor]:
    x = te.placeholder((n, m), name="X")
    k = te.reduce_axis((0, m), name="k")
    return [x, te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="S")]


def zero_rank(n: int) -> list[Tensor]:
    x = te.placeholder((n,), name="X")
    k = te.reduce_axis((0, n), name="k")
    return [x, te.compute((), lambda: te.sum(x[k], axis=k), name="S")]


def softmax(n: int, m: int) -> list[Tensor]:
    x = te.placeholder((n, m), name="X")
    k1, k2 = te.reduce_axis((0, m), name="k1"), te.reduce_axis((0, m), name="k2")
    high = te.compute((n,), lambda i: te.max(x[i, k1], axis=k1), name="Max")
    exps = te.compute((n, m), lambda i, j: te.exp(x[i, j] - high[i]), name="Exp")
    total = te.compute((n,), lambda i: te.sum(exps[i, k2], axis=k2), name="Sum")
    return [x, te.compute((n, m), lambda i, j: exps[i, j] / total[i], name="Out")]


def padded_conv1d(length: int, channels: int, out: int, dtype: str = "float32") -> list[Tensor]:
    """A convolution of a padded row, summed up in float32."""
    x = te.placeholder((length, channels), dtype, "X")
    w = te.placeholder((3, channels, out), dtype, "W")
    pad = te.compute(
        (length + 2, channels),
        lambda i, c: te.if_then_else(te.all(i >= 1, i < length + 1), x[i - 1, c], te.const(0.0, dtype)),
        name="Pad",
    )
    rk, rc = te.reduce_axis((0, 3), name="rk"), te.reduce_axis((0, channels), name="rc")
    conv = te.compute(
        (length, out),
        lambda i, o: te.sum(
            pad[i + rk, rc].astype("float32") * w[rk, rc, o].astype("float32"), axis=[rk, rc]
        ),
        name="Conv",
    )
    return [x, w, conv]


def elementwise_chain(n: int, m: int) -> list[Tensor]:
    x = te.placeholder((n, m), name="X")
    a = te.compute((n, m), lambda i, j: te.exp(x[i, j]), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + te.const(1.0, "float32"), name="B")
    return [x, te.compute((m, n), lambda i, j: te.exp(b[j, i]), name="T")]


def grouped_by_division() -> list[Tensor]:
    """A grouped product whose weight is free of layout, and indexed by the group of the output channel."""
    x, w = te.placeholder((5, 8), name="X"), te.placeholder((2, 4, 6), name="W")
    r = te.reduce_axis((0, 4), "r")
    y = te.compute(
        (5, 12),
        lambda i, c: te.sum(x[i, c // 6 * 4 + r] * w[c // 6, r, c % 6], axis=r),
        name="Y",
        attrs={"layout_free_placeholders": [w]},
    )
    return [x, w, y]


def two_filters(n: int, m: int, taps: int) -> list[Tensor]:
    """A filter along the columns of what one along the rows leaves, without margins."""
    image = te.placeholder((n + taps - 1, m + taps - 1), name="Image")

    def weighted(reads: list[te.Expr]) -> te.Expr:
        total = reads[0]
        for position, read in enumerate(reads[1:], start=2):
            total = total + read * float(position)
        return total

    rows = te.compute(
        (n + taps - 1, m), lambda i, j: weighted([image[i, j + k] for k in range(taps)]), name="Rows"
    )
    both = te.compute((n, m), lambda i, j: weighted([rows[i + k, j] for k in range(taps)]), name="Both")
    return [image, both]


def channel_filters(n: int, m: int, channels: int, taps: int, dtype: str = "float32") -> list[Tensor]:
    """A filter along the columns of what one along the rows leaves, of interleaved channels."""
    image = te.placeholder((n + taps - 1, m + taps - 1, channels), dtype, name="Image")
    one: te.Expr = te.const(1, dtype)

    def total(reads: list[te.Expr]) -> te.Expr:
        result = one
        for read in reads:
            result = result + read
        return result

    rows = te.compute(
        (n + taps - 1, m, channels),
        lambda i, j, c: total([image[i, j + k, c] for k in range(taps)]),
        name="Rows",
    )
    both = te.compute(
        (n, m, channels), lambda i, j, c: total([rows[i + k, j, c] for k in range(taps)]), name="Both"
    )
    return [image, both]


def pixels(n: int, m: int) -> list[Tensor]:
    """A function of an image of three channels, and one of that."""
    x = te.placeholder((n, m, 3), name="X")
    light = te.compute((n, m, 3), lambda y, z, c: te.exp(x[y, z, c]), name="Light")
    return [x, te.compute((n, m, 3), lambda y, z, c: light[y, z, c] * 2.0, name="Out")]


SMALL = {
    "matmul": lambda: matmul(6, 8, 12),
    "matmul of primes": lambda: matmul(67, 7, 71),
    "matmul with ones": lambda: matmul(1, 9, 1),
    "matmul of ones": lambda: matmul(1, 1, 1),
    "fused matmul": lambda: matmul_relu(10, 6, 4),
    "long reduction": lambda: matmul(2, 3, 70),
    "own transpose": lambda: own_transpose(10, 6),
    "row sum": lambda: row_sum(3, 60),
    "zero rank": lambda: zero_rank(24),
    "zero rank of one": lambda: zero_rank(1),
    "softmax": lambda: softmax(4, 18),
    "padding": lambda: padded_conv1d(12, 4, 6),
    "transposes": lambda: elementwise_chain(5, 6),
    "pixels": lambda: pixels(5, 12),
    "two filters": lambda: two_filters(8, 16, 4),
    "filters of channels": lambda: channel_filters(6, 10, 3, 3),
}
"""Small computations, among them prime extents, extents of 1, zero rank and chains."""


def check_program(state: State) -> None:
    """The laws of every complete program."""
    assert state.is_concrete
    again = State.replay(state.dag, [step_from_json(step.to_json()) for step in state.steps])
    assert str(again) == str(state)
    bounded = state.with_bounds()
    assert "None" not in str(bounded)
    for stage_id, stage in enumerate(bounded.stages):
        if stage.is_placeholder or stage.compute_at is ComputeAt.INLINED:
            continue
        vectors = [loop for loop in stage.iterators if loop.annotation is Annotation.VECTORIZE]
        assert len(vectors) <= 1
        if vectors:
            assert vectors[0] is stage.iterators[-1]
            assert not state.attached_to(stage_id, len(stage.iterators) - 1)
    check_parallel_is_outermost(bounded)


def check_parallel_is_outermost(state: State) -> None:
    """No parallel loop lies inside a loop of more than one iteration."""
    for stage_id, stage in enumerate(state.stages):
        for position, loop in enumerate(stage.iterators):
            if loop.annotation is not Annotation.PARALLEL:
                continue
            around = list(stage.iterators[:position])
            place = state.attach.get(stage_id)
            while place is not None:
                around += state.stages[place[0]].iterators[: place[1] + 1]
                place = state.attach.get(place[0])
            assert all(outer.extent == 1 for outer in around), str(state)


def oracle_folder() -> Path:
    """Where the recorded oracle lives; the test is skipped if it is not there."""
    for folder in _FOLDERS:
        if (folder / "tvm16_states.jsonl").exists():
            return folder
    pytest.skip("the recorded oracle tvm16_states.jsonl is not in tests/data or ../shared/data")


def oracle_lines(kind: str, target: str) -> Iterator[dict[str, Any]]:
    """The oracle's entries of one kind for targets that start with `target`."""
    with (oracle_folder() / "tvm16_states.jsonl").open() as lines:
        for line in lines:
            entry: dict[str, Any] = json.loads(line)
            if entry["kind"] == kind and entry["target"].startswith(target):
                yield entry


@cache
def _oracle_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("te_workloads", oracle_folder() / "te_workloads.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def oracle_workload(name: str) -> list[Tensor]:
    """The tensors of one of the oracle's workloads."""
    names = ("placeholder", "compute", "reduce_axis", "sum", "max", "min", "exp", "sqrt", "if_then_else")
    functions = {name: getattr(te, name) for name in (*names, "all", "const", "indexdiv")}
    namespace = SimpleNamespace(**functions, max2=te.maximum)
    tensors: list[Tensor] = getattr(_oracle_module(), name)(namespace)
    return tensors
