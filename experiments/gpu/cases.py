"""What `bench_gpu` measures, as data: operations, their sizes on a GPU and in a rehearsal, peers, and goals.

A goal is a speed over the fastest of the peers, on the same GPU in the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import ansor
from experiments.cpu.cases import Case
from experiments.cpu.workloads import task_arguments

EAGER: Final = ("torch",)
ROUNDED: Final = ("torch with TF32",)
CONVOLUTIONS: Final = ("torch", "torch channels_last")
"""Compiled, a convolution is the same one of cuDNN."""
IMAGES: Final = ("torch", "torch channels_last", "torch.compile")
ROWS: Final = ("torch", "torch.compile")
COPIES: Final = ("copy", "copy by a kernel")
REHEARSED: Final = ("numpy",)


@dataclass(frozen=True, slots=True)
class GPUCase:
    """
    One operation.

    Attributes
    ----------
    workload, args
        As in the catalogue.
    small
        The arguments of a rehearsal.
    over
        Whom the peers stand for, in the table.
    peers
        Names of `experiments.gpu.peers.PEERS`.
    goal
        Speed over the fastest of them; None for none.
    weight
        Its share of the time for tuning, relative to the others'.
    start
        The case whose log its search starts from, refitted.
    report
        Whether the resources of its kernels are told.
    """

    workload: str
    args: tuple[int | str, ...]
    small: tuple[int | str, ...]
    over: str
    peers: Sequence[str]
    goal: float | None
    weight: float = 1.0
    start: str | None = None
    report: bool = False

    @property
    def name(self) -> str:
        """By which it is chosen, and its log is called; the same in a rehearsal."""
        return f"{self.workload}-{'x'.join(map(str, self.args))}"

    def of(self, rehearsal: bool) -> Case:
        """The operation at the size that is measured."""
        return Case(self.workload, self.small if rehearsal else self.args, "gpu")

    def task(self, target: str, rehearsal: bool) -> ansor.SearchTask:
        """Make the task anew."""
        case = self.of(rehearsal)
        return ansor.SearchTask(**task_arguments(case.workload), args=case.args, target=target)


_HALVES: Final = ("bfloat16", "float32", "bfloat16")
"""Of the first operand, of the sums, of the second operand."""
_FIRST: Final = "matmul-2048x2048x2048"

_ALL: Final = (
    GPUCase("matmul", (2048,) * 3, (64,) * 3, "cuBLAS", EAGER, 0.9, 3.0, report=True),
    GPUCase("matmul", (1024,) * 3, (32,) * 3, "cuBLAS", EAGER, 0.9, 1.5, _FIRST),
    GPUCase("matmul", (4096,) * 3, (96,) * 3, "cuBLAS", EAGER, 0.9, 2.0, _FIRST, report=True),
    GPUCase(
        "matmul", (4096, 4096, 4096, *_HALVES), (64, 64, 64, *_HALVES), "cuBLAS", EAGER, 0.6, 3.0, report=True
    ),
    GPUCase("rounded_matmul", (4096,) * 3, (64,) * 3, "cuBLAS with TF32", ROUNDED, None, report=True),
    GPUCase(
        "conv2d", (1, 14, 14, 256, 256, 3, 1, 1), (1, 7, 7, 16, 16, 3, 1, 1), "PyTorch", CONVOLUTIONS, 1.0,
        weight=2.0, report=True,
    ),
    GPUCase(
        "conv2d", (1, 56, 56, 64, 64, 1, 1, 0), (1, 8, 8, 16, 16, 1, 1, 0), "PyTorch", CONVOLUTIONS, 1.0,
        weight=1.5, report=True,
    ),
    GPUCase(
        "depthwise_conv2d", (1, 112, 112, 32, 3, 1, 1), (1, 12, 12, 16, 3, 1, 1), "PyTorch", IMAGES, 1.0
    ),
    GPUCase("softmax", (1024, 1024), (16, 64), "PyTorch", ROWS, 1.0),
    GPUCase("norm", (1, 1024, 1024), (1, 32, 32), "PyTorch", ROWS, 1.0),
    GPUCase("rgb_to_yuv", (2160, 3840), (32, 64), "a copy of the same bytes", COPIES, 0.9),
)  # fmt: skip

CASES: Final[Mapping[str, GPUCase]] = {case.name: case for case in _ALL}
"""By name, in the order in which they are measured."""
QUICK: Final = ("matmul-1024x1024x1024", "softmax-1024x1024", "rgb_to_yuv-2160x3840")


def chosen(words: Sequence[str]) -> list[GPUCase]:
    """
    Cases by name or by workload, in the order of `CASES`.

    Raises
    ------
    KeyError
        If nothing is called so.
    """
    for word in words:
        if not any(word in (case.name, case.workload) for case in CASES.values()):
            raise KeyError(word)
    return [case for case in CASES.values() if case.name in words or case.workload in words]
