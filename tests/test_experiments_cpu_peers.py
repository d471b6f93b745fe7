"""The peers of the CPU benchmark compute what we compute, at sizes that take no time."""

import gc
import weakref
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from experiments import cpu_measure, cpu_onnx, cpu_peers
from experiments.cpu_cases import CASES, Case
from experiments.cpu_goals import GROUPS
from experiments.cpu_peers import PEERS, UnavailableError, library
from experiments.cpu_torch import has_forms

WORKLOADS = {case.workload: case for case in CASES.values()}


def small_cases() -> list[Case]:
    """Every small size of every workload, weights constant and not."""
    found = []
    for case in WORKLOADS.values():
        for args in case.entry.small:
            sizes = tuple(value for value in args if not isinstance(value, str))
            found += [Case(case.workload, sizes, case.group, constant) for constant in {False, case.constant}]
    return found


def applies(peer: str, case: Case) -> bool:
    """Whether a peer has the operation, and in a form of its own."""
    if peer == "numpy":
        return case.group not in ("resnet", "algorithms", "convolution")
    if peer == "torch to 8 bits":  # None of these cases is of bytes.
        return False
    return peer != "torch channels_last" or has_forms(case.workload)


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
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("sizes", [("matmul", 16, 24, 8), ("conv2d", 1, 9, 8, 8, 8, 3, 1, 1, 1, 1)], ids=str)
def test_answers_of_bytes_are_ours_to_half_a_step(sizes: tuple[Any, ...], dtype: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    name, *numbers = sizes
    case = Case(name, (*numbers, dtype, "int32", "int8"), "dtypes", constant=True)
    inputs = case.inputs()
    prepared = PEERS["torch to 8 bits"].prepare(case, inputs, 1)
    assert prepared.timer(2) > 0
    right = case.entry.expected(inputs, case.args)
    assert 0 < prepared.step < np.abs(right).max() / 100
    assert cpu_measure.imprecise("it", prepared.answer(), right, case, inputs, prepared.step) is None
    off = prepared.answer() + 0.6 * prepared.step
    assert cpu_measure.imprecise("it", off, right, case, inputs, prepared.step)
    plain = Case("matmul", (4, 5, 6), "product", True)
    with pytest.raises(UnavailableError, match="8-bit"):
        PEERS["torch to 8 bits"].prepare(plain, plain.inputs(), 1)


def test_what_cannot_be_compiled_with_its_weights_is_compiled_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")

    def compiled(module: Any) -> Any:
        if list(module.buffers()):
            raise RuntimeError("backend='inductor' raised:\nRuntimeError: no such layout")
        return module

    monkeypatch.setattr("torch.compile", compiled)
    case = Case("matmul", (4, 5, 6), "product", constant=True)
    prepared = PEERS["torch.compile"].prepare(case, case.inputs(), 1)
    assert not prepared.packs
    np.testing.assert_allclose(prepared.answer(), case.entry.reference(case.inputs(), case.named), rtol=1e-5)
    failed = cpu_peers._unavailable("it", RuntimeError("backend='inductor' raised:\nError: no such layout"))
    assert str(failed) == "it: Error: no such layout"


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

    def graph(*args: Any) -> cpu_onnx.Graph:
        made = cpu_onnx.onnx_graph(*args)
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
        graph = cpu_onnx.onnx_graph(import_module("onnx"), case, [a[1:] for a in inputs])
        answers += graph.inputs.values()
    assert [array.ctypes.data % 64 for array in answers] == [0] * len(answers)


@pytest.mark.parametrize(("workload", "ours"), [("depthwise_conv2d", False), ("transposed_conv2d", True)])
def test_weights_of_convolutions_are_known_to_libraries(workload: str, ours: bool) -> None:
    """Ours may leave them as they are; whoever packs them does so."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    case = WORKLOADS[workload].small()
    assert case.constant is ours
    assert list(cpu_onnx.onnx_graph(import_module("onnx"), case, case.inputs()).constants) == ["W"]
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
    with pytest.raises(UnavailableError, match="no_such_library cannot be imported"):
        library("no_such_library")


def test_every_group_has_cases_and_every_case_a_group() -> None:
    assert {case.group for case in CASES.values()} == set(GROUPS)
