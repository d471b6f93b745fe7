"""Products and convolutions of 8-bit integers in PyTorch's quantized form, which is its fast one.

Their sums are rounded to 8 bits again, in steps that are chosen such that the largest one just fits: less is
written than by what computes the sums themselves, but more is done to them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from experiments.cpu_torch import TorchProgram, image_of, weight_of

WORKLOADS: Final = ("matmul", "conv2d")
_LEVELS: Final = 127
_ZERO: Final = 128
"""What stands for 0 where numbers of both signs are stored as unsigned bytes."""


def rounded_program(
    torch: Any, workload: str, named: Mapping[str, Any], arrays: Sequence[Any]
) -> tuple[TorchProgram, float]:
    """The program of a workload for arrays of our own layout, and the steps that its answer is rounded to."""
    first, weight = map(torch.from_numpy, arrays)
    zero = 0 if first.dtype == torch.uint8 else _ZERO
    if workload == "matmul":
        return _product(torch, first, weight, zero)
    return _convolution(torch, named, first, weight, zero)


def _product(torch: Any, a: Any, b: Any, zero: int) -> tuple[TorchProgram, float]:
    step = _step(a.float() @ b.float())
    packed = torch.ops.quantized.linear_prepack(_quantized(torch, b.T, 0, torch.qint8), None)

    def run(x: Any) -> Any:
        return torch.ops.quantized.linear(x, packed, step, _ZERO)

    return TorchProgram(run, [_quantized(torch, a, zero, torch.quint8)], lambda y: y.dequantize()), step


def _convolution(
    torch: Any, named: Mapping[str, Any], image: Any, weight: Any, zero: int
) -> tuple[TorchProgram, float]:
    x, w = image_of(torch, image, "nhwc"), weight_of(torch, weight, "nhwc")
    stride, padding, dilation = ([named[name]] * 2 for name in ("stride", "padding", "dilation"))
    groups = named["groups"]
    step = _step(torch.nn.functional.conv2d(x.float(), w.float(), None, stride, padding, dilation, groups))
    quantized = _quantized(torch, w, 0, torch.qint8)
    packed = torch.ops.quantized.conv2d_prepack(quantized, None, stride, padding, dilation, groups)

    def run(x: Any) -> Any:
        return torch.ops.quantized.conv2d(x, packed, step, _ZERO)

    def back(answer: Any) -> Any:
        return answer.dequantize().permute(0, 2, 3, 1)

    return TorchProgram(run, [_quantized(torch, x, zero, torch.quint8)], back), step


def _step(sums: Any) -> float:
    return max(float(sums.abs().max()), 1.0) / _LEVELS


def _quantized(torch: Any, tensor: Any, zero: int, dtype: Any) -> Any:
    """The same integers, as PyTorch stores them with a scale of 1; it warns that it may not do so forever."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(tensor.float(), 1.0, zero, dtype)
