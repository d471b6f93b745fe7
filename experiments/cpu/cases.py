"""What `bench_cpu` measures, as data: every operation and its sizes (for its goals see `goals`).

A weight is constant (`constant`) where libraries get to see it before the first call: then it is brought into
a layout beforehand by those of them that do so, and that is no part of the time, nor of ours beside them.

Convolutions that the search may solve by another algorithm (`algorithms`) are a group apart: their rates are
in FLOPs of the direct form, and their limit is that of the products which the winner's algorithm has left. So
the catalogue's Winograd entries are no operations of their own here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy.typing as npt

import ansor
from ansor.dtypes import to_numpy
from ansor.workloads import Workload, alternatives_of
from ansor.workloads.catalogue import constant_shape
from experiments.cpu.goals import GROUPS, Group
from experiments.cpu.limits import Traffic
from experiments.cpu.workloads import task_arguments, workload
from experiments.search.cases import random_inputs

Array = npt.NDArray[Any]


def numbers_among(args: Sequence[int | str]) -> tuple[int, ...]:
    """The arguments that are no dtypes."""
    return tuple(value for value in args if not isinstance(value, str))


@dataclass(frozen=True, slots=True)
class Case:
    """
    One operation of one size.

    Attributes
    ----------
    workload, args
        As in the catalogue, or one of `experiments.cpu.workloads`.
    group
        One of `GROUPS`.
    constant
        Whether the weight is known beforehand (see the module).
    algorithms
        Whether the search may choose among algorithms.
    given
        Whether it stands for another case beside libraries that get its weight with each call (`as_given`).
    """

    workload: str
    args: tuple[int | str, ...]
    group: str
    constant: bool = False
    algorithms: bool = False
    given: bool = False

    @property
    def operation(self) -> str:
        """What is computed, however the weights come and whoever chooses the algorithm."""
        return f"{self.workload}-{'x'.join(map(str, self.args))}"

    @property
    def name(self) -> str:
        kind = "-constant" if self.constant and self.group == "product" else ""
        choice = "-algorithms" if self.algorithms else ""
        return f"{self.operation}{kind}{choice}{'-given' if self.given else ''}"

    @property
    def weights_known(self) -> bool:
        """Whether libraries see the weights before the first call, even where ours leaves them as they are.

        Those of a convolution are known wherever one is used: a library that packs them is not held back.
        """
        return self.constant or self.is_convolution

    @property
    def is_convolution(self) -> bool:
        """Whether it is one of images, or of what has one or three dimensions."""
        return "conv" in self.workload

    @property
    def entry(self) -> Workload:
        return workload(self.workload)

    @property
    def goal(self) -> Group:
        return GROUPS[self.group]

    @property
    def dtype(self) -> str:
        """Of the first input."""
        return str(self.named.get("dtype", "float32"))

    @property
    def tolerance(self) -> float:
        """How far answers may lie apart, relative to each element and to the largest one."""
        return 2.0**-7 if self.dtype == "bfloat16" else 1e-3

    @property
    def named(self) -> Mapping[str, Any]:
        """The arguments by name."""
        return self.entry.bind(self.args)

    def task(self) -> ansor.SearchTask:
        """Make the task anew."""
        given = {**task_arguments(self.workload), "args": self.args}
        return ansor.SearchTask(
            **given,
            layout_rewrite_option=2 if self.constant else 0,
            alternatives=alternatives_of(**given, constant=self.constant) if self.algorithms else [],
        )

    def as_given(self) -> Case:
        """The same operation of weights that come with each call, where algorithms transform them.

        Of a product with a constant operand that is the one without.
        """
        return replace(self, constant=False, given=self.group != "product")

    def inputs(self, seed: int = 0) -> list[Array]:
        """Random inputs, on lines of their own."""
        return random_inputs(self.entry.input_shapes(self.args), seed)

    def traffic(self) -> Traffic:
        """Inputs read once, output written once."""
        output = self.entry.function(*self.args)[-1]
        read = sum(
            prod(shape) * to_numpy(dtype).itemsize for _, shape, dtype in self.entry.input_shapes(self.args)
        )
        return Traffic(read, prod(constant_shape(output)) * to_numpy(output.dtype).itemsize)

    def small(self) -> Case:
        """The same operation of a size that takes no time: what remains is the cost of a call."""
        sizes = self.entry.bind(numbers_among(self.entry.small[0]))
        dtypes = {name: value for name, value in self.named.items() if isinstance(value, str)}
        return Case(self.workload, tuple({**sizes, **dtypes}.values()), self.group, self.constant)


_RESNET: Final = (
    (224, 224, 3, 64, 7, 2, 3),
    (56, 56, 64, 64, 1, 1, 0),
    (56, 56, 64, 64, 3, 1, 1),
    (56, 56, 64, 256, 1, 1, 0),
    (56, 56, 256, 64, 1, 1, 0),
    (56, 56, 256, 128, 1, 1, 0),
    (56, 56, 128, 128, 3, 2, 1),
    (56, 56, 256, 512, 1, 2, 0),
    (28, 28, 128, 512, 1, 1, 0),
    (28, 28, 512, 128, 1, 1, 0),
    (28, 28, 128, 128, 3, 1, 1),
    (28, 28, 512, 256, 1, 1, 0),
    (28, 28, 256, 256, 3, 2, 1),
    (28, 28, 512, 1024, 1, 2, 0),
    (14, 14, 256, 1024, 1, 1, 0),
    (14, 14, 1024, 256, 1, 1, 0),
    (14, 14, 256, 256, 3, 1, 1),
    (14, 14, 1024, 512, 1, 1, 0),
    (14, 14, 512, 512, 3, 2, 1),
    (14, 14, 1024, 2048, 1, 2, 0),
    (7, 7, 512, 2048, 1, 1, 0),
    (7, 7, 2048, 512, 1, 1, 0),
    (7, 7, 512, 512, 3, 1, 1),
)
"""The distinct convolutions of ResNet-50 (v1.5: strides in the 3 x 3 ones): h, w, ci, co, kernel, stride,
padding."""

_LARGE: Final = {
    "softmax": (4096, 8192),
    "layer_norm": (4096, 8192),
    "norm": (1, 8192, 4096),
    "max_pool2d": (42, 112, 112, 64, 3, 2, 1),
    "avg_pool2d": (42, 56, 56, 256, 2, 2, 0),
    "scale_shift_add_relu": (4096, 8192),
    "silu": (4096, 8192),
}
"""Sizes with at least 128 MB of input; the larger of the catalogue's images has 100 + 100 MB."""


def _catalogue(name: str, group: str, constant: bool = False) -> Iterable[Case]:
    """The catalogue's own sizes."""
    for args in workload(name).benchmark:
        yield Case(name, tuple(args), group, constant)


def _resnet() -> list[Case]:
    """The network's convolutions, alone and with what follows them."""
    return [
        Case(name, (batch, *sizes), "resnet", constant=True)
        for batch in (1, 16)
        for name in ("conv2d", "conv2d_bn_relu")
        for sizes in _RESNET
    ]


def _channels_first() -> Iterable[Case]:
    """Convolutions in the other order of axes."""
    return _catalogue("conv2d_nchw", "channels first", constant=True)


def _algorithms() -> Iterable[Case]:
    """The same with a choice of algorithms, those that have one."""
    for case in (*_resnet(), *_channels_first()):
        if alternatives_of(case.entry.function, case.args):
            yield replace(case, group="algorithms", algorithms=True)


_DTYPES: Final = (
    ("float64", "float64", "float64"),
    ("float16", "float32", "float16"),
    ("bfloat16", "float32", "bfloat16"),
    ("uint8", "int32", "int8"),
    ("int8", "int32", "int8"),
)
"""Of the first operand, of the sums, of the second operand."""


def _other_dtypes() -> Iterable[Case]:
    for dtypes in _DTYPES:
        yield Case("matmul", (1024, 1024, 1024, *dtypes), "dtypes", constant=True)
    for dtypes in _DTYPES:
        yield Case("conv2d", (1, 14, 14, 256, 256, 3, 1, 1, 1, 1, *dtypes), "dtypes", constant=True)


def _all() -> Iterable[Case]:
    for n in (512, 1024, 2048):
        yield Case("matmul", (n, n, n), "product", constant=True)
        yield Case("matmul", (n, n, n), "product")
    for product in ((1000, 1000, 1000), (1021, 1021, 1021), (1, 4096, 4096), (16, 1024, 1024)):
        yield Case("matmul", product, "odd product")
    for product in ((128, 128, 128), (512, 512, 32)):
        yield Case("matmul", product, "further product")
    for n in (1024, 512, 128):
        yield Case("matmul_add", (n, n, n), "further product")
    yield from _catalogue("dense", "further product", constant=True)
    yield from _catalogue("batch_matmul", "batch")
    yield from _catalogue("attention_scores", "batch")
    yield from _resnet()
    yield from _catalogue("conv2d_bn_relu", "resnet", constant=True)
    for name in ("conv1d", "conv3d", "group_conv2d", "dilated_conv2d", "capsule_conv2d"):
        yield from _catalogue(name, "convolution", constant=True)
    yield from _catalogue("depthwise_conv2d", "convolution")
    yield from _catalogue("transposed_conv2d", "convolution", constant=True)
    yield from _channels_first()
    for name in ("softmax", "layer_norm", "norm", "max_pool2d", "avg_pool2d", "rgb_to_yuv"):
        yield from _catalogue(name, "stream")
    for name in ("scale_shift_add_relu", "silu"):
        yield Case(name, (1024, 1024), "stream")
    for name, large in _LARGE.items():
        yield Case(name, large, "stream")
    yield from _other_dtypes()
    yield from _algorithms()


CASES: Final[Mapping[str, Case]] = {case.name: case for case in _all()}
QUICK: Final = ("matmul-512x512x512-constant", "conv2d-1x14x14x256x256x3x1x1", "silu-1024x1024")


def chosen(wanted: Sequence[str]) -> list[Case]:
    """
    Cases by name, by workload or by group.

    Raises
    ------
    KeyError
        If nothing is called so.
    """
    found: dict[str, Case] = {}
    for word in wanted:
        some = {name: case for name, case in CASES.items() if word in (name, case.workload, case.group)}
        if not some:
            raise KeyError(word)
        found |= some
    return list(found.values())
