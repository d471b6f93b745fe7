"""The libraries that `bench_gpu` compares with, timed by the GPU's clock as our programs are.

Calls are captured as graphs and replayed, so that the GPU waits for nobody between two of them: of a library
what counts is its kernels. TF32 is off but for "torch with TF32", cuDNN tries its algorithms; everything lies
on the GPU beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from experiments.cpu.cases import Case
from experiments.cpu.peers import Prepared, UnavailableError, library
from experiments.cpu.pytorch import Form, has_forms, torch_program
from experiments.turns import timer_of

Array = npt.NDArray[Any]

GRAPH_CALLS: Final = 32
"""Most calls of a graph, as of our programs."""
_WARM_UP: Final = 3


class GPUPeer(Protocol):
    """Something that computes a case."""

    def prepare(self, case: Case, inputs: Sequence[Array]) -> Prepared:
        """
        Get ready for a case.

        Raises
        ------
        UnavailableError
            If it is not installed, finds no GPU, or has no such operation.
        """
        ...


class NumpyPeer:
    """What a numpy user would write; in rehearsals it stands for every other."""

    def prepare(self, case: Case, inputs: Sequence[Array]) -> Prepared:
        def answer() -> Array:
            return case.entry.expected(inputs, case.args)

        return Prepared(timer_of(answer), answer)


class GraphTimer:
    """Times calls of PyTorch by the GPU's clock, as graphs of powers of two calls, `GRAPH_CALLS` at most."""

    def __init__(self, torch: Any, call: Callable[[], Any]) -> None:
        self._torch = torch
        self._call = call
        self._graphs: dict[int, Any] = {}
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # What is captured must have run on another stream than the default one before.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()

    def __call__(self, number: int) -> float:
        """Call so many times, and give the seconds that the GPU took."""
        parts = pieces(number)
        for calls in parts:
            if calls not in self._graphs:
                self._graphs[calls] = self._captured(calls)
        self._start.record()
        for calls in parts:
            self._graphs[calls].replay()
        self._end.record()
        self._end.synchronize()
        return 1e-3 * float(self._start.elapsed_time(self._end))

    def _captured(self, calls: int) -> Any:
        torch = self._torch
        graph = torch.cuda.CUDAGraph()
        # Relaxed: memory may be freed meanwhile, as Python does it when it likes.
        with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="relaxed"):
            for _ in range(calls):
                self._call()
        return graph


def pieces(number: int) -> list[int]:
    """A number as a sum of powers of two, none above `GRAPH_CALLS`, the large ones first."""
    whole, rest = divmod(number, GRAPH_CALLS)
    powers = [1 << bit for bit in reversed(range(GRAPH_CALLS.bit_length()))]
    return [GRAPH_CALLS] * whole + [power for power in powers if rest & power]


def _torch_on_gpu() -> Any:
    """The library, with its convolutions of float32 in float32."""
    torch = library("torch")
    if not torch.cuda.is_available():
        raise UnavailableError("PyTorch finds no GPU")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return torch


@dataclass(frozen=True, slots=True)
class TorchPeer:
    """PyTorch, one operator after another (cuBLAS, cuDNN), or compiled (inductor).

    Products of float32 are in float32, or with `rounded` have their operands rounded to TF32.
    """

    form: Form
    compiled: bool = False
    rounded: bool = False

    def prepare(self, case: Case, inputs: Sequence[Array]) -> Prepared:
        torch = _torch_on_gpu()
        if self.form == "nhwc" and not self.compiled and not has_forms(case.workload):
            raise UnavailableError("the operation has no images, whose channels could come last")
        program = torch_program(torch, case.workload, case.named, inputs, self.form)
        tensors = [tensor.cuda() for tensor in program.tensors]
        function = torch.compile(program.function) if self.compiled else program.function

        def call() -> Any:
            torch.backends.cuda.matmul.allow_tf32 = self.rounded  # Graphs are captured when others are ready.
            return function(*tensors)

        def answer() -> Array:
            with torch.no_grad():
                found = program.back(call())
            wide = found.float() if found.dtype in (torch.bfloat16, torch.float16) else found
            return np.asarray(wide.cpu().numpy())

        try:
            answer()
            return Prepared(GraphTimer(torch, call), answer)
        except Exception as error:  # what a foreign compiler and its tools raise has no common base
            told = str(error).strip().splitlines() or [type(error).__name__]
            raise UnavailableError(f"it fails: {told[0]}") from None


@dataclass(frozen=True, slots=True)
class CopyPeer:
    """A copy, on the GPU, of as many bytes as the operation reads and writes together: half of them each."""

    by_kernel: bool
    """Whether a kernel does it that changes each word, rather than the library's copy."""

    def prepare(self, case: Case, inputs: Sequence[Array]) -> Prepared:
        torch = _torch_on_gpu()
        words = case.traffic().total // 2 // 4
        source, sink = (torch.zeros(words, dtype=torch.int32, device="cuda") for _ in range(2))

        def copy() -> Any:
            return torch.add(source, 1, out=sink) if self.by_kernel else sink.copy_(source)

        def answer() -> Array:
            return case.entry.expected(inputs, case.args)

        return Prepared(GraphTimer(torch, copy), answer)


PEERS: Final[Mapping[str, GPUPeer]] = {
    "torch": TorchPeer("nchw"),
    "torch with TF32": TorchPeer("nchw", rounded=True),
    "torch channels_last": TorchPeer("nhwc"),
    "torch.compile": TorchPeer("nhwc", compiled=True),
    "copy": CopyPeer(by_kernel=False),
    "copy by a kernel": CopyPeer(by_kernel=True),
    "numpy": NumpyPeer(),
}
"""By the names that tables show."""
