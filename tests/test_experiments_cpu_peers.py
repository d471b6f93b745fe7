"""The peers of the CPU benchmark compute what we compute, at sizes that take no time."""

import gc
import weakref
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.codegen.machine import Machine
from ansor.dtypes import to_numpy
from experiments.cpu import measure as cpu_measure
from experiments.cpu import onnx_runtime
from experiments.cpu import peers as cpu_peers
from experiments.cpu import tuning as cpu_tuning
from experiments.cpu.cases import CASES, Case
from experiments.cpu.goals import GROUPS
from experiments.cpu.measure import Measured
from experiments.cpu.peers import PEERS, UnavailableError, library
from experiments.cpu.pytorch import has_forms
from experiments.cpu.results import Result
from experiments.cpu.table import details

WORKLOADS = {case.workload: case for case in CASES.values()}


def small_cases() -> list[Case]:
    """Every small size of every workload, weights constant and not."""
    found = []
    for case in WORKLOADS.values():
        for args in case.entry.small:
            sizes = tuple(value for value in args if not isinstance(value, str))
            found += [Case(case.workload, sizes, case.group, constant) for constant in {False, case.constant}]
    return [*found, Case("rgb_to_yuv", (5, 7, "uint8"), "stream")]


def case_of_bytes(name: str, dtype: str) -> Case:
    """A small product, or a small convolution with borders and groups."""
    sizes = {"matmul": (16, 24, 8), "conv2d": (1, 9, 8, 8, 16, 3, 2, 1, 1, 2)}[name]
    return Case(name, (*sizes, dtype, "int32", "int8"), "dtypes", constant=True)


def applies(peer: str, case: Case) -> bool:
    """Whether a peer has the operation, and in a form of its own."""
    return not PEERS[peer].lacks(case)


PAIRS = [(peer, case) for case in small_cases() for peer in PEERS if applies(peer, case)]


@pytest.mark.parametrize(("peer", "case"), PAIRS, ids=lambda x: x if isinstance(x, str) else x.name)
def test_a_peer_computes_what_the_reference_does(
    peer: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    if peer == "torch.compile" and find_spec("torch"):  # the compiler itself is not what is tested here
        monkeypatch.setattr("torch.compile", lambda module: module)
    inputs = case.inputs()
    try:
        prepared = PEERS[peer].prepare(case, inputs, 1)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert prepared.timer(2) > 0
    found = prepared.answer()
    expected = case.entry.reference(inputs, case.named)
    assert found.shape == expected.shape
    assert found.dtype == to_numpy(case.entry.function(*case.args)[-1].dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


OF_BYTES = [
    (peer, name, dtype)
    for peer in ("torch", "torch channels_last", "torch.compile", "onnxruntime")
    for name in ("matmul", "conv2d")
    for dtype in ("uint8", "int8")
    if peer != "torch channels_last" or has_forms(name)
]


@pytest.mark.skipif("vpdpbusd" not in Machine.host().instructions, reason="sums of 16 bits saturate")
@pytest.mark.parametrize(("peer", "name", "dtype"), OF_BYTES)
def test_sums_of_products_of_bytes_are_exact(
    peer: str, name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(peer.replace(".", " ").split()[0])
    if peer == "torch.compile":
        monkeypatch.setattr("torch.compile", lambda module: module)
    case = case_of_bytes(name, dtype)
    inputs = case.inputs()
    prepared = PEERS[peer].prepare(case, inputs, 1)
    assert prepared.timer(2) > 0
    np.testing.assert_array_equal(prepared.answer(), case.entry.expected(inputs, case.args))
    assert prepared.packs


def test_signed_bytes_go_to_onnx_runtime_as_unsigned_ones() -> None:
    """It has fast kernels of those alone; the number that stands for 0 keeps sums what they are."""
    onnx = pytest.importorskip("onnx", reason="ONNX is not installed")
    case = case_of_bytes("conv2d", "int8")
    inputs = case.inputs()
    graph = onnx_runtime.onnx_graph(onnx, case, inputs)
    assert graph.inputs["X"].dtype == np.uint8
    assert graph.constants["zero"] == 128
    back = np.moveaxis(graph.inputs["X"], 1, -1).astype(int) - 128
    np.testing.assert_array_equal(back, inputs[0])


class OfAnother(Exception):
    """As the compiler passes on what a part of it raised."""

    def __init__(self, inner: Exception) -> None:
        super().__init__(f"backend='inductor' raised:\n{inner}")
        self.inner_exception = inner


def test_of_errors_that_pass_on_others_the_innermost_one_is_told() -> None:
    middle = RuntimeError("a step failed:")
    middle.__cause__ = RuntimeError("\nno layout of doubles\nWhile executing")
    said = [str(cpu_peers._unavailable("it", error)) for error in (OfAnother(middle), OfAnother(KeyError()))]
    assert said == ["it: no layout of doubles", "it: KeyError"]


@pytest.mark.parametrize("known", [True, False])
def test_what_cannot_be_compiled_with_its_weights_is_compiled_without(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")

    def compiled(module: Any) -> Any:
        if list(module.buffers()):
            raise OfAnother(RuntimeError("no layout of doubles"))
        return module

    monkeypatch.setattr("torch.compile", compiled)
    case = Case("matmul", (4, 5, 6), "product", constant=known)
    prepared = PEERS["torch.compile"].prepare(case, case.inputs(), 1)
    np.testing.assert_allclose(prepared.answer(), case.entry.reference(case.inputs(), case.named), rtol=1e-5)
    assert not prepared.packs
    told = "compiled with its weights as inputs, since torch.compile failed: no layout of doubles"
    assert prepared.note == (told if known else "")


def test_what_cannot_be_compiled_at_all_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")

    def compiled(module: Any) -> Any:
        raise OfAnother(RuntimeError("with" if list(module.buffers()) else "without"))

    monkeypatch.setattr("torch.compile", compiled)
    case = Case("matmul", (4, 5, 6), "product", constant=True)
    with pytest.raises(UnavailableError, match=r"^torch\.compile failed: without$"):
        PEERS["torch.compile"].prepare(case, case.inputs(), 1)


def test_what_a_compiler_lacks_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    kind = type(cpu_peers.NO_COMPILER, (Exception,), {})

    def compiled(module: Any) -> Any:
        raise OfAnother(kind("no working compiler"))

    monkeypatch.setattr("torch.compile", compiled)
    case = Case("matmul", (4, 5, 6), "product")
    with pytest.raises(UnavailableError, match=r"^not installed: what torch\.compile needs \(no working"):
        PEERS["torch.compile"].prepare(case, case.inputs(), 1)
    assert hasattr(import_module("torch._inductor.exc"), cpu_peers.NO_COMPILER)


def test_what_must_be_said_of_a_peer_is_a_note_of_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("matmul", (16, 16, 16), "product")
    tuned = cpu_tuning.tune(case, tmp_path, 1)
    monkeypatch.setattr(cpu_measure, "CASES", {case.name: case})

    class Noted:
        def prepare(self, case: Case, inputs: Any, threads: int) -> cpu_peers.Prepared:
            return replace(PEERS["numpy"].prepare(case, inputs, threads), note="it is slow")

    monkeypatch.setattr(cpu_measure, "PEERS", {"numpy": Noted()})
    threads = ansor.get_num_threads()
    try:
        found = cpu_measure.side_by_side(case.name, str(tuned.log), 1, 0.01, 1, ["numpy"], [])
    finally:
        ansor.set_num_threads(threads)
    both = Measured.merged([Measured(**found), Measured(**found | {"notes": {"torch": "it is not there"}})])
    result = Result.of(case, tuned, both, notes=["another"])
    assert result.notes == ("another", "numpy: it is slow")
    assert f"{case.name}: numpy: it is slow" in details([result])


def test_what_a_peer_does_not_have_is_said() -> None:
    convolution, softmax = CASES["conv2d-1x7x7x512x512x3x1x1"], CASES["softmax-16x1000"]
    with pytest.raises(UnavailableError, match="no such operation"):
        PEERS["numpy"].prepare(convolution, [], 1)
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(UnavailableError, match="no images"):
        PEERS["torch channels_last"].prepare(softmax, [], 1)


def test_only_peers_that_see_constant_weights_pack_them() -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    onnx = PEERS["onnxruntime"]
    known, unknown = (Case("matmul", (4, 5, 6), "product", constant) for constant in (True, False))
    assert onnx.prepare(known, known.inputs(), 1).packs
    assert not onnx.prepare(unknown, unknown.inputs(), 1).packs


def test_what_a_timer_works_on_lives_as_long_as_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is told addresses would read and write memory that belongs to others by then."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    kept: list[weakref.ref[object]] = []

    def graph(*args: Any) -> onnx_runtime.Graph:
        made = onnx_runtime.onnx_graph(*args)
        kept.extend(map(weakref.ref, made.inputs.values()))
        return made

    monkeypatch.setattr(cpu_peers, "onnx_graph", graph)
    case = Case("matmul", (4, 5, 6), "product")
    prepared = PEERS["onnxruntime"].prepare(case, case.inputs(), 1)
    kept.append(weakref.ref(prepared.answer()))
    timer = prepared.timer
    del prepared
    gc.collect()
    assert len(kept) == 3
    assert all(one() is not None for one in kept)
    assert timer(1) > 0


def test_arrays_of_libraries_lie_as_ours_do() -> None:
    """At the begin of a cache line, which numpy's own need not."""
    case = Case("matmul", (16, 16, 16), "product")
    inputs = case.inputs()
    answers = [PEERS["numpy"].prepare(case, inputs, 1).answer()]
    if find_spec("onnxruntime"):
        answers.append(PEERS["onnxruntime"].prepare(case, inputs, 1).answer())
        graph = onnx_runtime.onnx_graph(import_module("onnx"), case, [a[1:] for a in inputs])
        answers += graph.inputs.values()
    assert [array.ctypes.data % 64 for array in answers] == [0] * len(answers)


@pytest.mark.parametrize(("workload", "ours"), [("depthwise_conv2d", False), ("transposed_conv2d", True)])
def test_weights_of_convolutions_are_known_to_libraries(workload: str, ours: bool) -> None:
    """Ours may leave them as they are; whoever packs them does so."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    case = WORKLOADS[workload].small()
    assert case.constant is ours
    assert list(onnx_runtime.onnx_graph(import_module("onnx"), case, case.inputs()).constants) == ["W"]
    assert PEERS["onnxruntime"].prepare(case, case.inputs(), 1).packs


@pytest.mark.parametrize("faster", cpu_peers.ONNX_LEVELS)
def test_the_faster_of_two_levels_of_optimisation_stays(faster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    made = dict[str, np.ndarray[Any, Any]]()

    def call(runtime: Any, graph: Any, model: bytes, level: str, threads: int) -> Any:
        made[level] = np.zeros(1)
        return lambda: made[level]

    monkeypatch.setattr(cpu_peers, "_onnx_call", call)
    monkeypatch.setattr(
        cpu_peers, "take_turns", lambda timers, *rest: {n: [1.0 + (n != faster)] for n in timers}
    )
    case = Case("matmul", (4, 5, 6), "product")
    assert PEERS["onnxruntime"].prepare(case, case.inputs(), 1).answer() is made[faster]


def test_a_library_that_is_missing_is_told_by_name() -> None:
    with pytest.raises(UnavailableError, match="not installed: no_such_library"):
        library("no_such_library")


def test_every_group_has_cases_and_every_case_a_group() -> None:
    assert {case.group for case in CASES.values()} == set(GROUPS)
