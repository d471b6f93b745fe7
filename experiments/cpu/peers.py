"""The libraries that `bench_cpu` compares with, as peers that prepare an operation and are then timed.

Everything that happens once is done beforehand: converting arrays to the order of axes that a library wants,
loading and optimising graphs, packing weights that are constant (`Prepared.packs` says whether it does).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ansor.alignment import aligned_copy
from experiments.cpu.cases import Case
from experiments.cpu.onnx_runtime import Graph, onnx_graph
from experiments.cpu.pytorch import Form, TorchProgram, has_forms, torch_program
from experiments.turns import Timer, fastest, timer_of

Array = npt.NDArray[Any]

NOT_INSTALLED: Final = "not installed"
"""Begin of what is said of what is not there: nothing is known of how fast it would be."""
FAILED: Final = "failed"
"""Begin of what is said of one that broke: nothing is known of how fast it would be, either."""
NO_COMPILER: Final = "InvalidCxxCompiler"
"""PyTorch's error of a machine that has no C++ compiler."""


class UnavailableError(Exception):
    """A peer that cannot be measured; the text says why."""


def _unavailable(what: str, error: BaseException) -> UnavailableError:
    """Say what failed, and why: the first line that is no heading of the error that others only pass on."""
    while inner := getattr(error, "inner_exception", None) or error.__cause__:
        error = inner
    told = str(error).strip().splitlines() or [type(error).__name__]
    why = next((line for line in told if line and not line.endswith(":")), told[0])
    if type(error).__name__ == NO_COMPILER:
        return UnavailableError(f"{NOT_INSTALLED}: what torch.compile needs ({why})")
    return UnavailableError(f"{what}: {why}")


@dataclass(frozen=True, slots=True)
class Prepared:
    """
    A peer that is ready for one operation.

    Attributes
    ----------
    timer
        Runs it.
    answer
        What it computes, in our order of axes.
    packs
        Whether it brought constant weights into another layout beforehand.
    note
        What must be said of it beside its times.
    """

    timer: Timer
    answer: Callable[[], Array]
    packs: bool = False
    note: str = ""


class Peer(Protocol):
    """Something that computes a case."""

    def lacks(self, case: Case) -> str:
        """Say why it has no such operation, wherever it is installed; empty if it has."""
        return ""

    def prepare(self, case: Case, inputs: Sequence[Array], threads: int) -> Prepared:
        """
        Get ready for a case.

        Raises
        ------
        UnavailableError
            If it is not installed, or has no such operation.
        """
        ...


def library(name: str) -> Any:
    """
    Import a library.

    Raises
    ------
    UnavailableError
        If it cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UnavailableError(f"{NOT_INSTALLED}: {name} ({error})") from None


def _refuse(peer: Peer, case: Case) -> None:
    """Raise an `UnavailableError` for an operation that a peer does not have."""
    if why := peer.lacks(case):
        raise UnavailableError(why)


class NumpyPeer(Peer):
    """The program that a numpy user would write; the number of threads of OpenBLAS is set from outside."""

    def lacks(self, case: Case) -> str:
        if case.is_convolution:
            return "numpy has no such operation"
        fast = case.dtype in ("float32", "float64")
        return "" if fast else f"numpy's products of {case.dtype} are plain loops"

    def prepare(self, case: Case, inputs: Sequence[Array], threads: int) -> Prepared:
        _refuse(self, case)
        named = case.named
        if case.workload == "norm":
            rows = inputs[0].reshape(len(inputs[0]), -1)
            return _called(lambda: np.sqrt(np.matmul(rows[:, None], rows[:, :, None]).ravel()))
        if case.workload in ("matmul", "batch_matmul"):
            a, b = inputs
            out = aligned_copy(np.matmul(a, b), apart_from=inputs)
            return Prepared(timer_of(lambda: np.matmul(a, b, out=out)), lambda: out)
        return _called(lambda: case.entry.reference(inputs, named))


def _called(call: Callable[[], Array]) -> Prepared:
    return Prepared(timer_of(call), call)


@dataclass(frozen=True, slots=True)
class TorchPeer(Peer):
    """PyTorch, one operator after another."""

    form: Form

    def lacks(self, case: Case) -> str:
        other = self.form == "nchw" or has_forms(case.workload)
        return "" if other else "the operation has no images, whose channels could come last"

    def prepare(self, case: Case, inputs: Sequence[Array], threads: int) -> Prepared:
        _refuse(self, case)
        torch = library("torch")
        torch.set_num_threads(threads)
        program = _torch_program(torch, case, inputs, self.form)
        call = partial(program.function, *program.tensors)
        try:
            call()
        except RuntimeError as error:
            raise _unavailable("PyTorch", error) from None
        return _torch_prepared(torch, program, call, packs=program.packs)


class TorchCompilePeer(Peer):
    """PyTorch, compiled; images have their channels last.

    Constant weights are frozen into the program, where it can be compiled so: float64 has no packed form.
    """

    def prepare(self, case: Case, inputs: Sequence[Array], threads: int) -> Prepared:
        torch = library("torch")
        torch.set_num_threads(threads)
        program = _torch_program(torch, case, inputs, "nhwc")
        frozen = program.weights if case.weights_known else ()
        try:
            return self._compiled(torch, program, frozen)
        except UnavailableError as error:
            if not frozen:
                raise
            note = f"compiled with its weights as inputs, since {error}"
        return replace(self._compiled(torch, program, ()), note=note)

    def _compiled(self, torch: Any, program: TorchProgram, frozen: Sequence[int]) -> Prepared:
        """The program with some of its tensors frozen into it."""
        setattr(import_module("torch._inductor.config"), "freezing", bool(frozen))  # noqa: B010
        module = _module(torch, program, frozen)
        tensors = [tensor for i, tensor in enumerate(program.tensors) if i not in frozen]
        torch.compiler.reset()
        try:
            compiled = torch.compile(module)
            with torch.no_grad():
                compiled(*tensors)
        except Exception as error:  # what a foreign compiler and its tools raise has no common base
            raise _unavailable("torch.compile failed", error) from None
        return _torch_prepared(torch, program, lambda: compiled(*tensors), program.packs or bool(frozen))


def _torch_program(torch: Any, case: Case, inputs: Sequence[Array], form: Form) -> TorchProgram:
    try:
        return torch_program(torch, case.workload, case.named, inputs, form)
    except RuntimeError as error:  # its own form of weights may not be there
        raise _unavailable("PyTorch", error) from None


def _torch_prepared(torch: Any, program: TorchProgram, call: Callable[[], Any], packs: bool) -> Prepared:
    def timed(number: int) -> float:
        with torch.no_grad():
            start = time.perf_counter()
            for _ in range(number):
                call()
            return time.perf_counter() - start

    def answer() -> Array:
        with torch.no_grad():
            answer = program.back(call())
            wide = answer.float() if answer.dtype in (torch.bfloat16, torch.float16) else answer
            return np.asarray(wide.numpy())

    return Prepared(timed, answer, packs)


def _module(torch: Any, program: TorchProgram, frozen: Sequence[int]) -> Any:
    """A module that holds some of the program's tensors and takes the others."""

    class Program(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for i in frozen:
                self.register_buffer(f"weight{i}", program.tensors[i])

        def forward(self, *given: Any) -> Any:
            rest = iter(given)
            every = [
                getattr(self, f"weight{i}") if i in frozen else next(rest)
                for i in range(len(program.tensors))
            ]
            return program.function(*every)

    return Program().eval()


class OnnxRuntimePeer(Peer):
    """ONNX Runtime on a graph of its own; inputs and output lie where they are, nothing is copied.

    Its highest level of optimisation brings images into blocks of channels, which is not always faster: of
    the two highest levels the faster one stays.
    """

    def prepare(self, case: Case, inputs: Sequence[Array], threads: int) -> Prepared:
        onnx, runtime = library("onnx"), library("onnxruntime")
        import_module("onnx.numpy_helper")
        graph = onnx_graph(onnx, case, inputs)
        model = graph.model()
        try:
            calls = {level: _onnx_call(runtime, graph, model, level, threads) for level in ONNX_LEVELS}
        except Exception as error:  # its errors have no common base
            raise _unavailable("ONNX Runtime", error) from None
        call = calls[fastest({level: timer_of(call) for level, call in calls.items()})]
        return Prepared(timer_of(call), lambda: graph.back(call()), packs=case.weights_known)


ONNX_LEVELS: Final = ("ORT_ENABLE_ALL", "ORT_ENABLE_EXTENDED")


def _onnx_call(runtime: Any, graph: Graph, model: bytes, level: str, threads: int) -> Callable[[], Array]:
    """A session of ONNX Runtime as a call that gives the output, always the same array."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (first,) = session.run(None, graph.inputs)
    out = aligned_copy(first, apart_from=list(graph.inputs.values()))
    binding = session.io_binding()
    arrays = dict(graph.inputs)
    values = {name: runtime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("Y", "cpu", 0, out.dtype, out.shape, out.ctypes.data)

    # The binding knows addresses alone: whoever holds the call holds the arrays.
    def call(_kept: object = (arrays, values)) -> Array:
        session.run_with_iobinding(binding)
        return out

    return call


PEERS: Final[Mapping[str, Peer]] = {
    "numpy": NumpyPeer(),
    "torch": TorchPeer("nchw"),
    "torch channels_last": TorchPeer("nhwc"),
    "torch.compile": TorchCompilePeer(),
    "onnxruntime": OnnxRuntimePeer(),
}
"""By the names that tables show."""
