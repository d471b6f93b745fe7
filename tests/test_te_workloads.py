"""The sixteen workloads of the oracle data against numpy, and their text against the recorded one."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.te.interp import evaluate, evaluate_points

DATA = Path(__file__).parent.parent.parent / "shared" / "data"
WORKLOADS = DATA / "te_workloads.py"
STATES = DATA / "tvm16_states.jsonl"
pytestmark = pytest.mark.skipif(not WORKLOADS.exists(), reason="the oracle data is not beside this checkout")

Array = np.ndarray


def pad(x: Array, *widths: int) -> Array:
    return np.pad(x, [(w, w) for w in widths])


def conv(x: Array, w: Array, out: int, width: int, *, axis_step: int = 1) -> Array:
    """Channels-last convolution with unit stride over the middle dimensions, by shifted slices."""
    if w.ndim == 3:
        return sum(x[:, r * axis_step : r * axis_step + out] @ w[r] for r in range(w.shape[0]))
    return sum(
        x[:, r : r + out, c : c + width] @ w[r, c] for r in range(w.shape[0]) for c in range(w.shape[1])
    )


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def depthwise(x: Array, w: Array) -> Array:
    p = pad(x, 0, 1, 1, 0)
    return sum(p[:, r : r + 28, c : c + 28] * w[r, c] for r in range(3) for c in range(3))


def grouped(x: Array, w: Array) -> Array:
    p = pad(x, 0, 1, 1, 0)
    parts = [conv(p[..., g * 8 : g * 8 + 8], w[..., g * 16 : g * 16 + 16], 14, 14) for g in range(4)]
    return np.concatenate(parts, axis=-1)


def bn_relu(x: Array, w: Array, scale: Array, shift: Array) -> Array:
    return np.maximum(conv(pad(x, 0, 1, 1, 0), w, 14, 14) * scale + shift, 0)


def gelu_like(x: Array, y: Array) -> Array:
    e = np.exp(2 * x + y)
    return e / (e + 1)


REFERENCES: dict[str, Callable[..., Array]] = {
    "matmul": np.matmul,
    "matmul_add": lambda a, b, c: a @ b + c,
    "skinny_matmul": np.matmul,
    "two_matmuls": lambda a, b, d: a @ b @ d,
    "batch_matmul": np.matmul,
    "conv2d": lambda x, w: conv(pad(x, 0, 1, 1, 0), w, 14, 14),
    "conv2d_bn_relu": bn_relu,
    "depthwise": depthwise,
    "grouped": grouped,
    "conv1d_dilated": lambda x, w: conv(pad(x, 0, 2, 0), w, 64, 0, axis_step=2),
    "softmax": softmax,
    "norm": lambda x: np.sqrt((x * x).sum((1, 2))),
    "row_min": lambda x: x.min(1),
    "max_pool": lambda x: x.reshape(1, 14, 2, 14, 2, 16).max((2, 4)),
    "elementwise": gelu_like,
    "transpose_bmm_softmax": lambda q, k: softmax(
        q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1),
    ),
}


def build(name: str) -> list[te.Tensor]:
    spec = importlib.util.spec_from_file_location("te_workloads", WORKLOADS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    public = {name: getattr(te, name) for name in te.__all__}
    tensors: list[te.Tensor] = getattr(module, name)(SimpleNamespace(**public, max2=te.maximum))
    return tensors


@pytest.mark.parametrize("name", REFERENCES)
def test_workload_against_numpy(name: str) -> None:
    *inputs, output = build(name)
    rng = np.random.default_rng(0)
    arrays = {tensor: rng.standard_normal(tensor.shape).astype(np.float32) for tensor in inputs}
    computed = evaluate([output], arrays)[output]
    expected = REFERENCES[name](*(array.astype(np.float64) for array in arrays.values()))
    assert computed.dtype == np.float32
    np.testing.assert_allclose(computed, expected, rtol=2e-5, atol=2e-5)
    points = np.stack([rng.integers(0, extent, 20) for extent in output.shape], axis=1)
    np.testing.assert_array_equal(evaluate_points(output, points, arrays), computed[tuple(points.T)])


def stages(output: te.Tensor) -> dict[str, str]:
    """`C(i, j)` to the text of its body, for every stage that is computed."""
    texts: dict[str, str] = {}
    pending: list[Any] = [output.op]
    while pending:
        op = pending.pop()
        pending.extend(tensor.op for tensor in op.input_tensors)
        if isinstance(op, te.ComputeOp):
            body = op.body[0]
            if isinstance(body, te.Reduce):
                body = body.sources[0]
            texts[f"{op.name}({', '.join(axis.name for axis in op.axis)})"] = str(body)
    return texts


def test_stages_print_as_recorded() -> None:
    tasks = [json.loads(line) for line in STATES.read_text().splitlines() if '"kind": "task"' in line]
    recorded = {task["workload"]: task["dag"] for task in tasks}
    assert set(recorded) == set(REFERENCES)
    for name, dag in recorded.items():
        texts = stages(build(name)[-1])
        lines = [line.replace("tir.", "") for line in dag.splitlines() if line and "PLACEHOLDER" not in line]
        assert len(lines) == len(texts)
        for line in lines:
            head, body = line.split(" = " if " = " in line else "= ", 1)
            head = head.removesuffix(" +").removesuffix(" max").removesuffix(" min")
            assert texts[head] == body, name
