"""The benchmarked operations in PyTorch.

A program is a function of tensors that lie as PyTorch likes them: images with channels second ("nchw") or
last in memory ("nhwc"), weights likewise, all arranged before the first call. Its answer has PyTorch's order
of axes; `back` gives ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ansor.codegen.machine import Machine
from ansor.workloads.rows import LAYER_NORM_EPSILON

Form = Literal["nchw", "nhwc"]
Tensors = Sequence[Any]
MIDDLE: Final = 128
"""The unsigned byte that stands for 0 where there are numbers of both signs."""


@dataclass(frozen=True, slots=True)
class TorchProgram:
    """
    What PyTorch is asked for.

    Attributes
    ----------
    function, tensors
        `function(*tensors)` is the answer.
    back
        Brings the answer into our order of axes.
    weights
        Positions of `tensors` that are weights.
    packs
        Whether they are in a layout that PyTorch made for its operator.
    """

    function: Callable[..., Any]
    tensors: Tensors
    back: Callable[[Any], Any] = lambda answer: answer
    weights: tuple[int, ...] = ()
    packs: bool = False


def torch_program(
    torch: Any, workload: str, named: Mapping[str, Any], arrays: Sequence[Any], form: Form
) -> TorchProgram:
    """The program of a workload, its arguments given by name, for the arrays of our own layout."""
    tensors = [_tensor(torch, array) for array in arrays]
    return _PROGRAMS[workload](torch, named, tensors, form)


def _tensor(torch: Any, array: Any) -> Any:
    """The same memory as a tensor; the dtype that numpy has not goes through one of as many bits."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def has_forms(workload: str) -> bool:
    """Whether the two orders of an image's axes make different programs."""
    return workload in _IMAGES


_IMAGES: Final = (
    "conv2d", "conv2d_nchw", "conv2d_bn_relu", "conv3d", "group_conv2d", "dilated_conv2d",
    "capsule_conv2d", "depthwise_conv2d", "transposed_conv2d", "max_pool2d", "avg_pool2d",
)  # fmt: skip


def _image(torch: Any, tensor: Any, form: Form) -> Any:
    """Bring `[n, spatial..., c]` into `[n, c, spatial...]`, as `form` lies in memory."""
    rank = tensor.dim()
    moved = tensor.permute(0, rank - 1, *range(1, rank - 1))
    return _arranged(torch, moved, form)


def _weight(torch: Any, tensor: Any, form: Form) -> Any:
    """Bring `[kernel..., ci, co]` into `[co, ci, kernel...]`."""
    rank = tensor.dim()
    return _arranged(torch, tensor.permute(rank - 1, rank - 2, *range(rank - 2)), form)


def _arranged(torch: Any, tensor: Any, form: Form) -> Any:
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    if form == "nhwc" and last is not None:
        return tensor.contiguous(memory_format=last)
    return tensor.contiguous()


def _channels_back(answer: Any) -> Any:
    return answer.permute(0, *range(2, answer.dim()), 1)


def _matmul(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    if tensors[0].is_floating_point():
        return TorchProgram(torch.matmul, tensors, weights=(1,))
    if "vpdpbusd" in Machine.host().instructions and hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return _product_of_bytes(torch, *tensors)
    return TorchProgram(torch._int_mm, tensors, weights=(1,))  # exact anywhere


def _dense(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    return TorchProgram(torch.nn.functional.linear, tensors, weights=(1,))


def _convolution(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    image, weight = _image(torch, tensors[0], form), _weight(torch, tensors[1], form)
    rank = image.dim() - 2
    call = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[rank - 1]
    stride, padding = named["stride"], named["padding"]
    dilation, groups = named.get("dilation", 1), named.get("groups", 1)
    if rank == 2 and not image.is_floating_point() and hasattr(torch.ops.onednn, "qconv2d_pointwise"):
        where = ([stride] * 2, [padding] * 2, [dilation] * 2, groups)
        return _convolution_of_bytes(torch, image, weight, where)

    def run(x: Any, w: Any) -> Any:
        return call(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)

    return TorchProgram(run, [image, weight], _channels_back, (1,))


def _unsigned(torch: Any, tensor: Any) -> tuple[Any, int]:
    """Bytes as operators of quantized networks take them, and which of them stands for 0.

    These have scales, here 1, and sums below 2 ** 24 are exact in their float32. Signed bytes are made
    unsigned beforehand. Without VNNI their sums of 16 bits may saturate.
    """
    if tensor.dtype == torch.int8:
        return tensor.view(torch.uint8) ^ MIDDLE, MIDDLE
    return tensor, 0


def _product_of_bytes(torch: Any, first: Any, second: Any) -> TorchProgram:
    """Use the operator of quantized networks, which packs the second factor (`_unsigned`)."""
    given, zero = _unsigned(torch, first)
    columns = second.shape[1]
    scales, zeros = torch.ones(columns), torch.zeros(columns, dtype=torch.int32)
    operators = torch.ops.onednn
    packed = operators.qlinear_prepack(second.t().contiguous(), list(given.shape))

    def run(x: Any, w: Any) -> Any:
        output = (1.0, 0, torch.float32)
        return operators.qlinear_pointwise(x, 1.0, zero, w, scales, zeros, None, *output, "none", [], "")

    return TorchProgram(run, [given, packed], weights=(1,), packs=True)


def _convolution_of_bytes(torch: Any, image: Any, weight: Any, where: Sequence[Any]) -> TorchProgram:
    """Use the operator of quantized networks (`_unsigned`).

    `where` is its stride, padding, dilation and groups.
    """
    image, zero = _unsigned(torch, image)
    scales, zeros = torch.ones(len(weight)), torch.zeros(len(weight), dtype=torch.int32)
    operators = torch.ops.onednn
    packed = operators.qconv_prepack(weight, scales, 1.0, zero, *where, list(image.shape))

    def run(x: Any, w: Any) -> Any:
        output = (1.0, 0, torch.float32)
        return operators.qconv2d_pointwise(
            x, 1.0, zero, w, scales, zeros, None, *where, *output, "none", [], ""
        )

    return TorchProgram(run, [image, packed], _channels_back, (1,), packs=True)


def _channels_first(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    where = {name: named[name] for name in ("stride", "padding", "dilation")}
    arranged = [_arranged(torch, tensor, form) for tensor in tensors]
    return TorchProgram(lambda x, w: torch.nn.functional.conv2d(x, w, **where), arranged, weights=(1,))


def _conv_bn_relu(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    plain = _convolution(torch, named, tensors[:2], form)
    scale, shift = tensors[2:]
    mean, variance = torch.zeros_like(scale), torch.ones_like(scale)

    def run(x: Any, w: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
        y = plain.function(x, w)
        # PyTorch 2.11 refuses 0, which this is beside any variance.
        normal = torch.nn.functional.batch_norm(y, mean, variance, scale, shift, eps=1e-30)
        return torch.nn.functional.relu(normal, inplace=True)

    every = [*plain.tensors, scale, shift, mean, variance]
    return TorchProgram(run, every, _channels_back, (1, 2, 3, 4, 5))


def _depthwise(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    channels = tensors[0].shape[-1]
    # [kernel, kernel, c] is [kernel, kernel, 1, c] for as many groups as channels.
    return _convolution(torch, {**named, "groups": channels}, [tensors[0], tensors[1].unsqueeze(2)], form)


def _transposed(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    image = _image(torch, tensors[0], form)
    weight = _arranged(torch, tensors[1].permute(2, 3, 0, 1), form)
    stride, padding = named["stride"], named["padding"]

    def run(x: Any, w: Any) -> Any:
        return torch.nn.functional.conv_transpose2d(x, w, stride=stride, padding=padding)

    return TorchProgram(run, [image, weight], _channels_back, (1,))


def _capsule(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    """A row of matrices is an image: a batch of rows, with as many channels as a row has numbers."""
    x, w = tensors
    n, height, width, size, _, ci = x.shape
    images = x.permute(0, 3, 1, 2, 4, 5).reshape(n * size, height, width, size * ci)
    weights = w.permute(0, 1, 2, 4, 3, 5).reshape(*w.shape[:2], size * ci, size * w.shape[-1])
    plain = _convolution(torch, named, [images, weights], form)

    def back(answer: Any) -> Any:
        _, channels, oh, ow = answer.shape
        return answer.reshape(n, size, size, channels // size, oh, ow).permute(0, 4, 5, 1, 2, 3)

    return TorchProgram(plain.function, plain.tensors, back, (1,))


def _pooling(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    kernel, stride, padding = named["kernel"], named["stride"], named["padding"]

    def largest(x: Any) -> Any:
        return torch.nn.functional.max_pool2d(x, kernel, stride, padding)

    return TorchProgram(largest, [_image(torch, tensors[0], form)], _channels_back)


def _mean_pooling(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    kernel, stride, padding = named["kernel"], named["stride"], named["padding"]

    def mean(x: Any) -> Any:
        return torch.nn.functional.avg_pool2d(x, kernel, stride, padding, count_include_pad=False)

    return TorchProgram(mean, [_image(torch, tensors[0], form)], _channels_back)


def _attention(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    def run(q: Any, k: Any) -> Any:
        return torch.softmax(torch.matmul(q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1)), -1)

    return TorchProgram(run, tensors)


def _rgb(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
    """For a compiler, which is the one to ask for `nhwc` here, by planes: it makes one pass of them.

    Operator after operator the product by the matrix is faster, which a compiler leaves to a library.
    """
    if not tensors[0].is_floating_point():
        return TorchProgram(_bytes_by_planes(torch), tensors)
    if form == "nhwc":
        return TorchProgram(_rgb_by_planes(torch), tensors)
    matrix = torch.tensor(YUV).T.contiguous()
    return TorchProgram(torch.matmul, [tensors[0], matrix], weights=(1,))


def _rgb_by_planes(torch: Any) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        r, g, b = x[..., 0], x[..., 1], x[..., 2]
        return torch.stack([r * of_r + g * of_g + b * of_b for of_r, of_g, of_b in YUV], -1)

    return run


def _bytes_by_planes(torch: Any) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        r, g, b = (x[..., channel].to(torch.int32) for channel in range(3))
        mixed = [(r * of_r + g * of_g + b * of_b + 128) >> 8 for of_r, of_g, of_b in YUV_OF_BYTES]
        moved = [part + offset for part, offset in zip(mixed, YUV_OFFSETS, strict=True)]
        return torch.stack(moved, -1).to(torch.uint8)

    return run


YUV: Final = ((0.299, 0.587, 0.114), (-0.14713, -0.28886, 0.436), (0.615, -0.51499, -0.10001))
"""Rows Y, U, V; columns R, G, B (ITU-R BT.601, analogue)."""
YUV_OF_BYTES: Final = ((66, 129, 25), (-38, -74, 112), (112, -94, -18))
YUV_OFFSETS: Final = (16, 128, 128)
"""The same for bytes: 256ths, rounded, and what is added to them (ITU-R BT.601, eight bits)."""


def _rows(call: Callable[[Any], Callable[..., Any]]) -> Callable[..., TorchProgram]:
    """A program that takes the arrays as they are; `call` makes its function out of the module torch."""

    def program(torch: Any, named: Mapping[str, Any], tensors: Tensors, form: Form) -> TorchProgram:
        return TorchProgram(call(torch), tensors)

    return program


_PROGRAMS: Final[Mapping[str, Callable[..., TorchProgram]]] = {
    "matmul": _matmul,
    "rounded_matmul": _matmul,
    "batch_matmul": _matmul,
    "dense": _dense,
    "matmul_add": _rows(lambda torch: lambda a, b, c: torch.addmm(c, a, b)),
    "attention_scores": _attention,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv2d_nchw": _channels_first,
    "conv3d": _convolution,
    "group_conv2d": _convolution,
    "dilated_conv2d": _convolution,
    "conv2d_bn_relu": _conv_bn_relu,
    "depthwise_conv2d": _depthwise,
    "transposed_conv2d": _transposed,
    "capsule_conv2d": _capsule,
    "max_pool2d": _pooling,
    "avg_pool2d": _mean_pooling,
    "rgb_to_yuv": _rgb,
    "softmax": _rows(lambda torch: lambda x: torch.softmax(x, -1)),
    "layer_norm": _rows(
        lambda torch: (
            lambda x, gamma, beta: torch.nn.functional.layer_norm(
                x, x.shape[-1:], gamma, beta, LAYER_NORM_EPSILON
            )
        )
    ),
    "norm": _rows(lambda torch: lambda x: torch.linalg.vector_norm(x, dim=(1, 2))),
    "scale_shift_add_relu": _rows(
        lambda torch: lambda x, scale, shift, other: torch.relu_(torch.addcmul(shift, x, scale).add_(other))
    ),
    "silu": _rows(lambda torch: torch.nn.functional.silu),
}
