"""The benchmark of GPU kernels: its cases, peers, rows, and the rehearsal that goes all the way."""

from __future__ import annotations

import json
import time
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.errors import BuildError, NoDeviceError, RunError
from ansor.intrinsics import ROUNDED_OPERANDS_ATTR
from ansor.runtime.device.door import DeviceInfo
from ansor.runtime.device.resources import KernelResources
from ansor.te.tensor import ComputeOp
from experiments import bench_gpu
from experiments.cpu.measure import OURS
from experiments.cpu.peers import UnavailableError
from experiments.cpu.pytorch import TorchProgram
from experiments.gpu import measure as gpu_measure
from experiments.gpu import peers as gpu_peers
from experiments.gpu.cases import CASES, QUICK, GPUCase, chosen
from experiments.gpu.measure import Measured, Place, Plan, Tools, Tuned
from experiments.gpu.peers import GRAPH_CALLS, PEERS, GraphTimer, NumpyPeer, pieces
from experiments.gpu.predicted import Predicted
from experiments.harness import Bench
from tests.device_kernels import needs_opencl

GPU, REHEARSAL = Place(False), Place(True)
PRODUCT = CASES["matmul-1024x1024x1024"]
COLOURS = CASES["rgb_to_yuv-2160x3840"]


# -- cases ---------------------------------------------------------------------------------------------


def test_the_cases_are_those_that_are_asked_for() -> None:
    goals = {(case.workload, case.over): case.goal for case in CASES.values() if "bfloat16" not in case.args}
    assert goals == {
        ("matmul", "cuBLAS"): 0.9,
        ("rounded_matmul", "cuBLAS with TF32"): None,
        ("conv2d", "PyTorch"): 1.0,
        ("depthwise_conv2d", "PyTorch"): 1.0,
        ("softmax", "PyTorch"): 1.0,
        ("norm", "PyTorch"): 1.0,
        ("rgb_to_yuv", "a copy of the same bytes"): 0.9,
    }
    sizes = {case.args[0] for case in CASES.values() if case.workload == "matmul" and len(case.args) == 3}
    assert sizes == {1024, 2048, 4096}
    (half,) = (case for case in CASES.values() if "bfloat16" in case.args)
    assert (half.args[:3], half.goal) == ((4096, 4096, 4096), 0.6)
    assert {case.workload for case in CASES.values() if case.report} == {"matmul", "rounded_matmul", "conv2d"}
    assert set(QUICK) <= set(CASES)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_a_rehearsal_is_the_same_operation_of_another_size(case: GPUCase) -> None:
    large, small = (case.of(rehearsal).entry.bind(case.of(rehearsal).args) for rehearsal in (False, True))
    assert set(large) == set(small)
    assert {name: value for name, value in large.items() if isinstance(value, str)} == {
        name: value for name, value in small.items() if isinstance(value, str)
    }
    assert case.of(True).traffic().total < 1 << 20
    assert set(case.peers) <= set(PEERS)
    if case.start is not None:
        names = list(CASES)
        assert names.index(case.start) < names.index(case.name)
    for place in (GPU, REHEARSAL):
        arch = " -arch=sm_90" if place.kind == "cuda" else ""
        assert case.task(place.kind + arch, place.rehearsal).target.kind == place.kind


def test_cases_are_chosen_by_name_or_workload_and_keep_their_order() -> None:
    found = chosen(["softmax", "matmul-1024x1024x1024"])
    assert [case.name for case in found] == ["matmul-1024x1024x1024", "softmax-1024x1024"]
    with pytest.raises(KeyError, match="nonsense"):
        chosen(["nonsense"])


def test_what_a_case_leaves_of_its_time_goes_to_the_others() -> None:
    cases = [PRODUCT, COLOURS]
    weights = [case.weight for case in cases]
    overhead = 2 * bench_gpu.OVERHEAD
    assert bench_gpu.share(cases, 100 + overhead) == pytest.approx(100 * weights[0] / sum(weights))
    assert bench_gpu.share(cases[1:], 70 + bench_gpu.OVERHEAD) == pytest.approx(70)
    compiled = CASES["softmax-1024x1024"]
    assert bench_gpu.share([compiled], 70 + bench_gpu.OVERHEAD + bench_gpu.COMPILING) == pytest.approx(70)
    assert bench_gpu.share(cases, 0) == bench_gpu.LEAST


def test_operands_of_products_may_be_rounded_where_the_case_says_so() -> None:
    allowing = set()
    for case in CASES.values():
        output = case.task("cuda -arch=sm_90", False).compute_dag.tensors[-1]
        if isinstance(output.op, ComputeOp) and ROUNDED_OPERANDS_ATTR in output.op.attrs:
            allowing.add((case.over, *case.peers))
    assert allowing == {("cuBLAS with TF32", "torch with TF32")}


# -- peers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 5, 31, 32, 33, 100])
def test_calls_are_pieces_of_few_sizes(number: int) -> None:
    parts = pieces(number)
    assert sum(parts) == number
    assert parts == sorted(parts, reverse=True)
    assert all(part & (part - 1) == 0 and part <= GRAPH_CALLS for part in parts)


class FakeTorch:
    """As much of PyTorch as timing takes; it counts calls, while a graph is captured and replayed."""

    def __init__(self) -> None:
        self.calls = 0
        self.captured: list[int] = []
        self.replayed: list[int] = []
        self.cuda = types.SimpleNamespace(
            Event=self.event,
            Stream=lambda: types.SimpleNamespace(wait_stream=lambda other: None),
            current_stream=lambda: types.SimpleNamespace(wait_stream=lambda other: None),
            stream=lambda stream: nullcontext(),
            synchronize=lambda: None,
            CUDAGraph=lambda: Graph(self),
            graph=lambda graph, capture_error_mode: graph,
        )

    def no_grad(self) -> Any:
        return nullcontext()

    def event(self, enable_timing: bool) -> Any:
        return types.SimpleNamespace(
            record=lambda: None, synchronize=lambda: None, elapsed_time=lambda end: 1.0 * sum(self.replayed)
        )

    def call(self) -> None:
        self.calls += 1


def test_operands_of_products_are_rounded_for_one_peer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where calls are captured after other peers got ready."""
    torch: Any = FakeTorch()
    seen: list[bool] = []
    torch.cuda.is_available = lambda: True
    torch.bfloat16, torch.float16 = "bfloat16", "float16"
    torch.backends = types.SimpleNamespace(
        cuda=types.SimpleNamespace(matmul=types.SimpleNamespace()), cudnn=types.SimpleNamespace()
    )
    array = types.SimpleNamespace(numpy=lambda: np.zeros(1, np.float32))

    def function() -> Any:
        seen.append(torch.backends.cuda.matmul.allow_tf32)
        return types.SimpleNamespace(dtype="float32", cpu=lambda: array)

    monkeypatch.setattr(gpu_peers, "library", lambda name: torch)
    monkeypatch.setattr(gpu_peers, "torch_program", lambda *given: TorchProgram(function, []))
    names = ("torch", "torch with TF32", "torch")
    for name, prepared in [(name, PEERS[name].prepare(PRODUCT.of(False), [])) for name in names]:
        seen.clear()
        prepared.timer(1)
        assert set(seen) == {name == "torch with TF32"}


class Graph:
    def __init__(self, torch: FakeTorch) -> None:
        self.torch = torch

    def __enter__(self) -> None:
        self.before = self.torch.calls

    def __exit__(self, *error: object) -> None:
        self.calls = self.torch.calls - self.before
        self.torch.captured.append(self.calls)

    def replay(self) -> None:
        self.torch.replayed.append(self.calls)


def test_libraries_are_timed_as_graphs_which_are_kept() -> None:
    torch = FakeTorch()
    timer = GraphTimer(torch, torch.call)
    assert timer(70) == pytest.approx(70e-3)
    assert torch.captured == [32, 4, 2]
    assert torch.replayed == [32, 32, 4, 2]
    timer(38)
    assert torch.captured == [32, 4, 2], "nothing is captured twice"


@pytest.mark.parametrize("name", [name for name in PEERS if name != "numpy"])
def test_without_a_gpu_a_library_is_left_out(name: str) -> None:
    if find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
    case = COLOURS.of(True)
    with pytest.raises(UnavailableError, match=r"finds no GPU|not installed"):
        PEERS[name].prepare(case, case.inputs())


def test_numpy_stands_for_every_library() -> None:
    for wanted in CASES.values():
        case = wanted.of(True)
        inputs = case.inputs()
        prepared = NumpyPeer().prepare(case, inputs)
        np.testing.assert_array_equal(prepared.answer(), case.entry.expected(inputs, case.args))


# -- rows ----------------------------------------------------------------------------------------------


def measured(times: Mapping[str, Sequence[float]], **fields: Any) -> Measured:
    return Measured(
        times, **{"skipped": {}, "resources": {}, "gpu": ["cold", "warm"], "clocks": {}, **fields}
    )


def rows_of(case: GPUCase, place: Place, found: Measured) -> dict[str, Any]:
    bench = Bench("", [])
    bench_gpu.add_rows(bench, case, place, Tuned(Path(), 64, 30.0), found)
    return {row.name.partition(": ")[2]: row for row in bench.rows}


def test_the_goal_is_over_the_fastest_library() -> None:
    case = CASES["softmax-1024x1024"]
    found = rows_of(case, GPU, measured({OURS: [1e-5], "torch": [3e-5], "torch.compile": [0.9e-5]}))
    assert found["speed over PyTorch"].value == pytest.approx(0.9)
    assert found["speed over PyTorch"].peer == "torch.compile, 9 us; ours 10 us"
    assert found["speed over PyTorch"].holds is False
    assert found["speed over torch"].value == pytest.approx(3)
    assert found["speed over torch"].holds is None
    assert found["traffic"].value == pytest.approx(2 * 4 * 1024 * 1024 / 1e-5 / 1e9)


def test_speeds_are_in_flops_of_the_operation() -> None:
    found = rows_of(PRODUCT, GPU, measured({OURS: [1e-3], "torch": [1e-3]}))
    assert found["speed"].value == pytest.approx(2 * 1024**3 / 1e-3 / 1e9)
    assert found["speed over cuBLAS"].holds is True


def test_a_colour_conversion_is_beside_a_copy() -> None:
    found = rows_of(COLOURS, GPU, measured({OURS: [1.0], "copy": [0.95]}))
    assert found["speed over a copy of the same bytes"].goal == 0.9
    assert found["speed over a copy of the same bytes"].holds is True


def test_without_its_library_a_goal_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows_of(PRODUCT, GPU, measured({OURS: [1.0]}, skipped={"torch": "PyTorch finds no GPU"}))
    assert found["speed over cuBLAS"].holds is False
    assert "without torch: PyTorch finds no GPU" in capsys.readouterr().out


def test_a_rehearsal_has_no_goals() -> None:
    found = rows_of(PRODUCT, REHEARSAL, measured({OURS: [2.0], "numpy": [1.0]}))
    assert found["speed over numpy"].value == 0.5
    assert all(row.holds is None for row in found.values())


def test_what_kernels_take_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    report = {"sm_80": [("99 registers", 8)], "sm_90": [("64 registers", 0), ("255 registers", 24)]}
    found = rows_of(PRODUCT, GPU, measured({OURS: [1.0], "torch": [1.0]}, resources=report))
    spilled = {name: (row.value, row.peer) for name, row in found.items() if "spilled" in name}
    assert spilled == {
        "spilled by kernel 0 for sm_80": (8, "99 registers"),
        "spilled by kernel 0 for sm_90": (0, "64 registers"),
        "spilled by kernel 1 for sm_90": (24, "255 registers"),
    }
    assert "before: cold" in capsys.readouterr().out


def test_clocks_under_load_are_rows() -> None:
    clocks = {"clocks.sm": [1900.0, 1980.0, 1950.0], "power.draw": [650.0], "clocks.mem": []}
    found = rows_of(PRODUCT, GPU, measured({OURS: [1.0], "torch": [1.0]}, clocks=clocks))
    row = found["clock of processors"]
    assert (row.value, row.unit, row.interval) == (1950.0, "MHz", (1900.0, 1980.0))
    assert row.peer == "3 times while kernels ran"
    assert (found["power"].value, found["power"].unit) == (650.0, "W")
    assert "clock of memory" not in found


# -- what is predicted -----------------------------------------------------------------------------------


def predicted_rows(monkeypatch: pytest.MonkeyPatch, *found: Predicted) -> dict[str, Any]:
    monkeypatch.setattr(bench_gpu, "predict", lambda *given: list(found))
    bench = Bench("", [])
    bench_gpu.foresee(bench, PRODUCT)
    return {row.name.partition(": predicted")[2]: row for row in bench.rows}


def test_what_predicted_programs_take_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KernelResources("k", "sm_80", 256, 128, 50000, 50000, 0, 0, 0, 2, 0.25)
    rows = predicted_rows(monkeypatch, Predicted("sm_80", 1e-4, [kernel], []))
    assert rows[" for sm_80"].value == pytest.approx(100)
    assert rows[" for sm_80"].peer == "the model's word: 21.47 TFLOP/s"
    assert rows[" for sm_80: spilled by kernel 0"].peer == (
        "256 threads, 128 registers, 0 + 50000 B shared (declared + asked for), 0 B stack, occupancy 25%"
    )
    assert all(row.holds in (True, None) for row in rows.values())


def test_spills_broken_limits_and_kernels_that_do_not_fit_are_missed_goals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = KernelResources("k", "sm_90", 1024, 255, 0, 0, 16, 8, 12, 0, 0.0)
    rows = predicted_rows(monkeypatch, Predicted("sm_90", 1e-4, [kernel], ["kernel 0 has too much of all"]))
    missed = {name: (row.value, row.peer) for name, row in rows.items() if row.holds is False}
    assert missed.keys() == {
        " for sm_90: limits broken",
        " for sm_90: spilled by kernel 0",
        " for sm_90: blocks at a time of kernel 0",
    }
    assert missed[" for sm_90: limits broken"] == (1, "kernel 0 has too much of all")
    assert missed[" for sm_90: spilled by kernel 0"][0] == 20


def test_a_prediction_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> Any:
        raise RuntimeError("in a fresh process:\nNVRTC refuses the generated code for sm_80\n")

    monkeypatch.setattr(bench_gpu, "predict", fail)
    bench = Bench("", [])
    bench_gpu.foresee(bench, PRODUCT)
    (row,) = bench.rows
    assert (row.holds, row.peer) == (False, "NVRTC refuses the generated code for sm_80")


def test_without_a_compiler_nothing_is_predicted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Any:
        raise BuildError("compiling for CUDA needs NVRTC or nvcc")

    monkeypatch.setattr(bench_gpu, "find_compiler", missing)
    assert not bench_gpu.compiles()
    assert "nothing is predicted: compiling for CUDA needs NVRTC or nvcc" in capsys.readouterr().out


# -- the GPU's own words -------------------------------------------------------------------------------


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Puts an `nvidia-smi` of a few lines of shell in the place of every other."""

    def write(text: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setattr(gpu_measure.shutil, "which", lambda name: str(path))

    return write


def test_clocks_are_told(smi: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    smi("echo 'NVIDIA H200, 580.159, 1980 MHz, 1980 MHz, 3201 MHz, 300.1 W, 700.0 W, 41'")
    assert gpu_measure.gpu_state() == (
        "name NVIDIA H200, driver_version 580.159, clocks.sm 1980 MHz, clocks.max.sm 1980 MHz, "
        "clocks.mem 3201 MHz, power.draw 300.1 W, power.limit 700.0 W, temperature.gpu 41"
    )
    smi("echo 'no devices were found'; exit 6")
    assert gpu_measure.gpu_state() == "nvidia-smi fails: no devices were found"
    monkeypatch.setattr(gpu_measure.shutil, "which", lambda name: None)
    assert gpu_measure.gpu_state() == "nvidia-smi is not here: clocks are unknown"


def test_clocks_are_asked_for_all_the_while(
    smi: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_measure, "PERIOD", 0.0)
    smi("""test "$*" = "--query-gpu=clocks.sm,clocks.mem,power.draw --format=csv,noheader,nounits" || exit 1
        echo '1980, 3201, [N/A]'""")
    with gpu_measure.sampling() as samples:
        while len(samples["clocks.mem"]) < 3:
            time.sleep(0.01)
    assert set(samples["clocks.sm"]) == {1980.0}
    assert set(samples["clocks.mem"]) == {3201.0}
    assert samples["power.draw"] == []
    monkeypatch.setattr(gpu_measure.shutil, "which", lambda name: None)
    with gpu_measure.sampling() as samples:
        pass
    assert not any(samples.values())


def test_the_conditions_name_the_binding() -> None:
    limits = (1024, (1, 1, 1), (1, 1, 1), 49152, 1 << 30)
    info = DeviceInfo("cuda", "a GPU", "sm_90", *limits, cache_bytes=60 * 10**6, binding="numpy")
    first, second = bench_gpu.conditions(info).splitlines()
    assert first == f"a GPU sm_90 by numpy {np.__version__}, L2 60 MB, never flushed: calls back to back"
    assert second.startswith("clocks as they are: ")
    for binding, said in (
        ("no-such-distribution", "no-such-distribution"),
        ("", "a binding that has no name"),
    ):
        assert f"by {said}, L2" in bench_gpu.conditions(replace(info, binding=binding))


# -- the command ---------------------------------------------------------------------------------------


def test_without_a_gpu_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none(kind: str) -> Any:
        raise NoDeviceError(f"no device for {kind}")

    monkeypatch.setattr(bench_gpu, "device_info", none)
    with pytest.raises(SystemExit, match="no device for cuda\n--dry goes the same way without a GPU"):
        bench_gpu.main(["--log-dir", str(tmp_path / "logs")])
    assert not list(tmp_path.iterdir()), "nothing is made before there is a GPU"


@pytest.mark.parametrize("option", [["--ops", "nonsense"], ["--trials", "0"], ["--minutes", "soon"]])
def test_what_is_not_understood_is_refused(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_gpu.main(option)
    assert option[1] in capsys.readouterr().err


def plan_of(folder: Path, seconds: float = 1.0) -> Plan:
    """What would be done on a GPU, if tuning were not replaced by something that needs no tools."""
    return Plan(GPU, folder, 1, seconds, Tools(None, None))  # type: ignore[arg-type]


def test_a_case_that_fails_is_a_row_and_ends_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def tune(case: GPUCase, *rest: object) -> Tuned:
        if case is PRODUCT:
            raise RunError("the GPU is gone")
        return Tuned(tmp_path / "log", 1, 1.0)

    def measure(case: GPUCase, *rest: object) -> Measured:
        raise RuntimeError("in a fresh process:\ncopy and ansor do not compute the same\nx: 1.0\n")

    monkeypatch.setattr(bench_gpu, "tune", tune)
    monkeypatch.setattr(bench_gpu, "measure", measure)
    bench = Bench("", [])
    for case in (PRODUCT, COLOURS):
        bench_gpu.one_case(bench, case, plan_of(tmp_path), time.monotonic() + 60)
    assert [row.holds for row in bench.rows] == [False, False]
    assert [row.peer for row in bench.rows] == ["the GPU is gone", "copy and ansor do not compute the same"]
    assert (tmp_path / f"{PRODUCT.name}.error.txt").read_text() == "the GPU is gone\n"


def test_a_case_that_hangs_is_a_row_and_one_without_time_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What hangs has so much more time than planned, and no more than there is."""
    seen: list[tuple[float, float]] = []
    bench = Bench("", [])

    def tune(case: GPUCase, plan: Plan, *rest: object) -> Tuned:
        seen.append((plan.seconds, 0.0))
        return Tuned(tmp_path / "log", 1, 1.0)

    def hang(*given: object, timeout: float) -> object:
        seen.append((0.0, timeout))
        raise TimeoutError("it took more than 3 s: side_by_side()")

    monkeypatch.setattr(bench_gpu, "tune", tune)
    monkeypatch.setattr(gpu_measure, "fresh_process", hang)
    planned = bench_gpu.overhead(PRODUCT)
    for left, tuning, limit in (
        (1000.0, 7.0, bench_gpu.HANGING * planned),
        (planned + 2.0, 2.0, planned + 2.0),
    ):
        seen.clear()
        bench_gpu.one_case(bench, PRODUCT, plan_of(tmp_path, 7.0), time.monotonic() + left)
        assert [max(pair) for pair in seen] == pytest.approx([tuning, limit], abs=1.0)
    seen.clear()
    bench_gpu.one_case(bench, PRODUCT, plan_of(tmp_path, 7.0), time.monotonic() + planned - 1)
    assert seen == []
    assert {row.name for row in bench.rows} == {f"{PRODUCT.name}: failed: time"}
    assert [row.holds for row in bench.rows] == [False] * 3
    assert [row.peer for row in bench.rows][1:] == [
        "it took more than 3 s: side_by_side()",
        "no time is left",
    ]


@pytest.mark.slow
@needs_opencl
def test_trials_that_come_too_late_end_the_tuning(tmp_path: Path) -> None:
    """The one that was under way is logged."""
    with gpu_measure.tools() as tools:
        latest = time.monotonic() + 1
        plan = Plan(REHEARSAL, tmp_path, 200, 60.0, tools)
        tuned = gpu_measure.tune(CASES["softmax-1024x1024"], plan, latest)
    assert 1 <= tuned.trials < gpu_measure.SLICE


@pytest.mark.slow
@needs_opencl
@pytest.mark.usefixtures("quick_pocl")
def test_a_rehearsal_goes_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "rows.json"
    command = ["--dry", "--ops", "matmul-2048x2048x2048", "--trials", "2", "--log-dir", str(tmp_path)]
    assert bench_gpu.main([*command, "--json", str(rows)]) == 0
    found = {row["name"]: row for row in json.loads(rows.read_text())}
    assert found["matmul-64x64x64: tuning"]["value"] == 2
    assert found["matmul-64x64x64: speed"]["value"] > 0
    assert found["L2 cache"]["peer"].startswith("never flushed: calls back to back on ")
    assert found["matmul-64x64x64: speed over numpy"]["peer"].startswith("numpy, ")
    assert json.loads((tmp_path / "dry" / "results.json").read_text()) == list(found.values())
    for arch in ("sm_80", "sm_90") if ansor_compiles() else ():
        assert "registers" in found[f"matmul-64x64x64: spilled by kernel 0 for {arch}"]["peer"]
        full = f"matmul-2048x2048x2048: predicted for {arch}"
        assert "registers" in found[f"{full}: spilled by kernel 0"]["peer"]
        assert found[f"{full}: blocks at a time of kernel 0"]["holds"]
    # A second run finds the log complete, and measures its winner again; what it foresees does not change.
    monkeypatch.setattr(bench_gpu, "foresee", lambda *_: None)
    assert bench_gpu.main([*command, "--json", str(rows)]) == 0
    again = {row["name"]: row for row in json.loads(rows.read_text())}
    assert again["matmul-64x64x64: tuning"]["value"] == 2


def ansor_compiles() -> bool:
    """Whether there is a compiler for CUDA."""
    from ansor.codegen.c.cuda_compilers import find_nvcc, find_nvrtc

    return find_nvcc() is not None or find_nvrtc() is not None


@pytest.mark.slow
@needs_opencl
@pytest.mark.usefixtures("quick_pocl")
def test_a_search_starts_from_its_neighbours_log(tmp_path: Path) -> None:
    with gpu_measure.tools() as tools:
        for name in ("matmul-2048x2048x2048", "matmul-1024x1024x1024"):
            tuned = gpu_measure.tune(CASES[name], Plan(REHEARSAL, tmp_path, 1, 60.0, tools))
            assert (tuned.trials, tuned.log.exists()) == (1, True)
    records = list(ansor.load_records(str(tuned.log)))
    assert json.loads(records[0][0].task.workload_key)[1:] == [32, 32, 32]
