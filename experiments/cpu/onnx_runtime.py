"""The benchmarked operations as ONNX graphs.

Images have channels second, as ONNX wants them; weights are constants of the graph where the case says that
they are known, and ONNX Runtime packs them when it loads the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.alignment import aligned_copy
from ansor.workloads.rows import LAYER_NORM_EPSILON
from experiments.cpu.cases import Case
from experiments.cpu.pytorch import MIDDLE, YUV, YUV_OF_BYTES, YUV_OFFSETS

Array = npt.NDArray[Any]
OPSET: Final = 18
IR_VERSION: Final = 9


@dataclass(slots=True)
class Graph:
    """
    A graph in the making.

    Attributes
    ----------
    inputs, constants
        Arrays by name.
    nodes
        ONNX nodes; the last one gives `Y`.
    back
        Brings the answer into our order of axes.
    answer
        Its dtype, where that is not what inputs of this kind are summed in.
    """

    onnx: Any
    inputs: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)
    back: Callable[[Array], Array] = lambda answer: answer
    answer: str | None = None

    @property
    def is_integer(self) -> bool:
        """Whether its inputs are bytes, whose products have nodes of their own."""
        return next(iter(self.inputs.values())).dtype.kind in "iu"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the answer: that of an input, but of bytes their sums', unless the nodes say otherwise."""
        if self.answer is not None:
            return np.dtype(self.answer)
        return np.dtype(np.int32) if self.is_integer else next(iter(self.inputs.values())).dtype

    def node(self, kind: str, inputs: Sequence[str], output: str = "Y", **attributes: Any) -> None:
        """Append a node."""
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [output], **attributes))

    def product(self, kind: str, first: str, second: str, output: str = "Y", **attributes: Any) -> None:
        """
        Append a product of an input; of bytes it is the node of integers.

        That takes unsigned bytes, as signed ones have slow kernels on most x86. Without VNNI its sums of 16
        bits may saturate.
        """
        if not self.is_integer:
            self.node(kind, [first, second], output, **attributes)
            return
        given, zero = self.inputs[first], np.uint8(0)
        if given.dtype == np.int8:
            zero = np.uint8(MIDDLE)
            self.inputs[first] = aligned_copy(given.view(np.uint8) ^ zero)
        self.constants["zero"] = np.array(zero)
        self.node(f"{kind}Integer", [first, second, "zero"], output, **attributes)

    def given(self, name: str, array: Array, constant: bool = False) -> None:
        """Add an input, or a constant; it lies as our own arrays do, so nobody has the better place."""
        (self.constants if constant else self.inputs)[name] = aligned_copy(array)

    def model(self) -> bytes:
        """The whole as a file."""
        make, kind = self.onnx.helper.make_tensor_value_info, self.onnx.helper.np_dtype_to_tensor_dtype
        graph = self.onnx.helper.make_graph(
            self.nodes,
            "graph",
            [make(name, kind(array.dtype), array.shape) for name, array in self.inputs.items()],
            [make("Y", kind(self.dtype), None)],
            [self.onnx.numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [self.onnx.helper.make_opsetid("", OPSET)]
        model = self.onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return bytes(model.SerializeToString())


def onnx_graph(onnx: Any, case: Case, arrays: Sequence[Array]) -> Graph:
    """The graph of a case for the arrays of our own layout."""
    graph = Graph(onnx)
    _GRAPHS[case.workload](graph, case.named, arrays, case.weights_known)
    return graph


def _channels_second(array: Array) -> Array:
    return np.moveaxis(array, -1, 1)


def _channels_last(array: Array) -> Array:
    return np.moveaxis(array, 1, -1)


def _weight(array: Array) -> Array:
    """Bring `[kernel..., ci, co]` into `[co, ci, kernel...]`."""
    return np.moveaxis(array, (-1, -2), (0, 1))


def _matmul(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    graph.given("A", arrays[0])
    graph.given("B", arrays[1], constant)
    graph.product("MatMul", "A", "B")


def _matmul_add(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    for name, array in zip("ABC", arrays, strict=True):
        graph.given(name, array, constant and name == "B")
    graph.node("Gemm", ["A", "B", "C"])


def _dense(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    graph.given("A", arrays[0])
    graph.given("B", arrays[1], constant)
    graph.node("Gemm", ["A", "B"], transB=1)


def _convolution(
    graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool, output: str = "Y"
) -> None:
    x, w = _channels_second(arrays[0]), _weight(arrays[1])
    _channels_first(graph, named, [x, w], constant, output)
    graph.back = _channels_last


def _channels_first(
    graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool, output: str = "Y"
) -> None:
    rank = arrays[0].ndim - 2
    graph.given("X", arrays[0])
    graph.given("W", arrays[1], constant)
    graph.product(
        "Conv",
        "X",
        "W",
        output,
        strides=[named["stride"]] * rank,
        pads=[named["padding"]] * (2 * rank),
        dilations=[named.get("dilation", 1)] * rank,
        group=named.get("groups", 1),
    )


def _conv_bn_relu(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    _convolution(graph, named, arrays, constant, "conv")
    scale, shift = arrays[2:]
    ones = np.ones_like(scale)
    for name, array in (("Scale", scale), ("Shift", shift), ("Mean", 0 * ones), ("Variance", ones)):
        graph.given(name, array, constant)
    names = ["conv", "Scale", "Shift", "Mean", "Variance"]
    graph.node("BatchNormalization", names, "normal", epsilon=0.0)
    graph.node("Relu", ["normal"])


def _depthwise(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    x, w = arrays
    _convolution(graph, {**named, "groups": x.shape[-1]}, [x, w[:, :, None]], constant)


def _transposed(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    graph.given("X", _channels_second(arrays[0]))
    graph.given("W", np.moveaxis(arrays[1], (2, 3), (0, 1)), constant)
    graph.node("ConvTranspose", ["X", "W"], strides=[named["stride"]] * 2, pads=[named["padding"]] * 4)
    graph.back = _channels_last


def _capsule(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    """As in PyTorch: a row of matrices is an image."""
    x, w = arrays
    n, height, width, size, _, ci = x.shape
    images = np.moveaxis(x, 3, 1).reshape(n * size, height, width, size * ci)
    weights = np.swapaxes(w, 3, 4).reshape(*w.shape[:2], size * ci, size * w.shape[-1])
    _convolution(graph, named, [images, weights], constant)

    def back(answer: Array) -> Array:
        _, channels, oh, ow = answer.shape
        split = answer.reshape(n, size, size, channels // size, oh, ow)
        return np.transpose(split, (0, 4, 5, 1, 2, 3))

    graph.back = back


def _pooling(kind: str, **attributes: Any) -> Callable[..., None]:
    def add(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
        graph.given("X", _channels_second(arrays[0]))
        kernel, stride, padding = ([named[name]] for name in ("kernel", "stride", "padding"))
        graph.node(kind, ["X"], kernel_shape=2 * kernel, strides=2 * stride, pads=4 * padding, **attributes)
        graph.back = _channels_last

    return add


def _attention(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    graph.given("Q", arrays[0])
    graph.given("K", arrays[1])
    graph.node("Transpose", ["Q"], "qt", perm=[0, 2, 1, 3])
    graph.node("Transpose", ["K"], "kt", perm=[0, 2, 3, 1])
    graph.node("MatMul", ["qt", "kt"], "scores")
    graph.node("Softmax", ["scores"], axis=-1)


def _rgb(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    graph.given("X", arrays[0])
    if graph.is_integer:
        _rgb_of_bytes(graph)
        return
    graph.given("M", np.array(YUV, np.float32).T, constant=True)
    graph.node("MatMul", ["X", "M"])


def _rgb_of_bytes(graph: Graph) -> None:
    """In float32, which is exact here: products of integers are slow, and shifts are of unsigned ones."""
    graph.given("M", np.array(YUV_OF_BYTES, np.float32).T / 256, constant=True)
    graph.given("half", np.array(0.5, np.float32), constant=True)
    graph.given("offsets", np.array(YUV_OFFSETS, np.float32), constant=True)
    graph.node("Cast", ["X"], "floats", to=int(graph.onnx.TensorProto.FLOAT))
    graph.node("MatMul", ["floats", "M"], "mixed")
    graph.node("Add", ["mixed", "half"], "up")
    graph.node("Floor", ["up"], "whole")
    graph.node("Add", ["whole", "offsets"], "moved")
    graph.node("Cast", ["moved"], "Y", to=int(graph.onnx.TensorProto.UINT8))
    graph.answer = "uint8"


def _softmax(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    graph.given("X", arrays[0])
    graph.node("Softmax", ["X"], axis=-1)


def _layer_norm(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    for name, array in zip(("X", "Gamma", "Beta"), arrays, strict=True):
        graph.given(name, array)
    graph.node("LayerNormalization", ["X", "Gamma", "Beta"], axis=-1, epsilon=LAYER_NORM_EPSILON)


def _norm(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    graph.given("X", arrays[0])
    graph.given("axes", np.array([1, 2], np.int64), constant=True)
    graph.node("ReduceL2", ["X", "axes"], keepdims=0)


def _residual(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    for name, array in zip(("X", "Scale", "Shift", "Other"), arrays, strict=True):
        graph.given(name, array)
    graph.node("Mul", ["X", "Scale"], "scaled")
    graph.node("Add", ["scaled", "Shift"], "shifted")
    graph.node("Add", ["shifted", "Other"], "both")
    graph.node("Relu", ["both"])


def _silu(graph: Graph, named: Mapping[str, Any], arrays: Sequence[Array], constant: bool) -> None:
    graph.given("X", arrays[0])
    graph.node("Sigmoid", ["X"], "sigmoid")
    graph.node("Mul", ["X", "sigmoid"])


_GRAPHS: Final[Mapping[str, Callable[..., None]]] = {
    "matmul": _matmul,
    "batch_matmul": _matmul,
    "matmul_add": _matmul_add,
    "dense": _dense,
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
    "max_pool2d": _pooling("MaxPool"),
    "avg_pool2d": _pooling("AveragePool", count_include_pad=0),
    "rgb_to_yuv": _rgb,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "norm": _norm,
    "scale_shift_add_relu": _residual,
    "silu": _silu,
}
