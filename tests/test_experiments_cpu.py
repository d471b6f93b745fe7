"""The benchmark of CPU kernels: its arithmetic, ceilings, table and command line, not its speeds."""

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.codegen.compile import assembly
from ansor.codegen.machine import Machine
from ansor.dtypes import to_numpy
from ansor.runtime.multiply_adds import chains, multiply_adds_ir
from ansor.task import host
from ansor.workloads import CATALOGUE
from experiments import bench_cpu, harness
from experiments.cpu import arithmetic as cpu_arithmetic
from experiments.cpu import cases as cpu_cases
from experiments.cpu import measure as cpu_measure
from experiments.cpu import metaschedule as cpu_metaschedule
from experiments.cpu import results as cpu_results
from experiments.cpu import table as cpu_table
from experiments.cpu import tuning as cpu_tuning
from experiments.cpu.cases import CASES, QUICK, Case
from experiments.cpu.goals import GROUPS, MARGIN, Goal
from experiments.cpu.kept import read
from experiments.cpu.limits import LINE, PEAK, TILES, Limit, Stream, Traffic, limit_timers
from experiments.cpu.measure import CALLED, OURS, PACKING, PACKING_CALLED, Effort, Measured
from experiments.cpu.peers import PEERS, Peer, Prepared
from experiments.cpu.results import Result, Spent
from experiments.cpu.tuning import Tuned
from experiments.fma_peak import multiply_add, peak_flop
from experiments.harness import Bench, fresh_process, table
from experiments.register_tiles import schedule as tiles
from experiments.register_tiles import tiles_flop
from experiments.search import runs as search_runs

SMALL = Case("matmul", (16, 16, 16), "product", constant=True)
CACHED, PASSING = "stream, cached stores, blocks of 512", "stream, non-temporal stores, blocks of 512"


# -- goals and limits ------------------------------------------------------------------------------------


def test_no_goal_asks_for_more_than_the_limit_allows() -> None:
    """Goal = min(stated, 0.97 x peer's time / least possible time)."""
    far, near = Goal.of(1.2, limit_seconds=1.0, peer_seconds=2.0), Goal.of(1.2, 1.0, 1.1)
    assert far.value == 1.2
    assert far.reason == "stated"
    assert near.value == pytest.approx(0.97 * 1.1)
    assert near.reason == "0.97 of the limit"


def times_of(peak: float, cached: float, passing: float, **others: float) -> dict[str, list[float]]:
    return {PEAK: [peak], CACHED: [cached], PASSING: [passing], **{name: [t] for name, t in others.items()}}


def test_the_limit_is_the_slower_of_multiply_adds_and_stream() -> None:
    times = times_of(0.1, 0.03, 0.02)
    busy = Limit.of(times, flops=peak_flop() / 2, streaming=False, dtype="float32")
    assert busy.seconds == busy.compute == pytest.approx(0.05)
    assert busy.kind == "FMA"
    moving = Limit.of(times, flops=peak_flop() / 10, streaming=False, dtype="float32")
    assert moving.kind == "memory"
    assert moving.seconds == 0.02, "the fastest stream is the limit, whatever our stores are"
    assert moving.stream_like == 0.03, "the share is of a stream with our kind of stores"
    assert Limit.of(times, 0.0, streaming=True, dtype="float32").stream_like == 0.02


def test_tiles_tell_which_part_of_the_peak_is_left_once_operands_are_loaded() -> None:
    """Half, if what takes one call of multiply-adds takes two of as many in tiles; the limit stays."""
    alone = times_of(0.1, 0.03, 0.02)
    beside = {**alone, TILES: [0.2 * tiles_flop() / peak_flop()]}
    limits = [Limit.of(one, peak_flop(), streaming=False, dtype="float32") for one in (alone, beside)]
    assert [one.tiles for one in limits] == [None, pytest.approx(0.5)]
    assert [one.seconds for one in limits] == [pytest.approx(0.1)] * 2
    made, _ = tiles()
    assert made.state.dag.flop_count == tiles_flop()
    assert TILES not in limit_timers(Traffic(4096, 0), "float64")


@pytest.mark.parametrize("cpu", ["haswell", "znver4"])
def test_the_multiply_adds_of_the_limit_stay_in_registers(cpu: str) -> None:
    """Of a CPU with sixteen registers as of one with twice as many; on the stack they take twice the time."""
    machine = Machine.of("x86_64-linux-gnu", cpu)
    code = assembly(multiply_adds_ir(multiply_add("float32", machine), chains(machine)), machine)
    assert code.count("vfmadd") == chains(machine)
    assert "rsp" not in code


@pytest.mark.parametrize(
    ("temporal", "parts"), [(True, None), (False, None), (True, 1), (True, 2), (True, 3)]
)
@pytest.mark.parametrize(
    ("read", "written"), [(64 * 1024, 64 * 1024), (200_000, 1000), (5000, 0), (512, 9000)]
)
def test_a_stream_reads_every_line_once_and_writes_every_line(
    read: int, written: int, temporal: bool, parts: int | None
) -> None:
    """The exclusive or of all that the threads have read tells lines left out, or read twice."""
    stream = Stream(Traffic(read, written), temporal, block=512, parts=parts)
    assert stream.reads * LINE * 8 >= read
    rng = np.random.default_rng(0)
    stream.source[...] = rng.integers(-(2**31), 2**31, stream.source.shape)
    stream.sink[...], stream.ends[...] = 7, 0
    stream(1)
    lanes = stream.source[: stream.reads].reshape(-1, LINE // 4)
    assert (np.bitwise_xor.reduce(stream.ends) == np.bitwise_xor.reduce(lanes)).all()
    if written:
        assert (stream.sink[: stream.writes] != 7).all()


def test_ceilings_read_and_write_by_turns_in_blocks_that_suit_memory_and_in_such_that_suit_caches() -> None:
    """Of large arrays those that change with every group of lines are faster by a third."""
    names = [name for name in limit_timers(Traffic(2**26, 2**20), "float32") if "stream" in name]
    assert [name.rpartition(" ")[2] for name in names] == ["512", "65536"] * 2


def test_ceilings_have_both_kinds_of_stores_unless_nothing_is_written() -> None:
    assert sum("non-temporal" in name for name in limit_timers(Traffic(4096, 4096), "float32")) > 0
    assert not any("non-temporal" in name for name in limit_timers(Traffic(4096, 0), "float32"))


def test_one_thread_alone_moves_little_too() -> None:
    """Starting others takes longer than a few kilobytes do: no library needs to."""
    assert any(name.endswith(", 1 part") for name in limit_timers(Traffic(4096, 0), "float32"))
    assert not any(name.endswith(", 1 part") for name in limit_timers(Traffic(2**20, 2**20), "float32"))


def test_what_caches_may_hold_is_moved_in_a_part_for_each_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is free takes pieces that another core's cache holds."""
    monkeypatch.setattr("experiments.cpu.limits.get_num_threads", lambda: 2)
    assert any(name.endswith(", 2 parts") for name in limit_timers(Traffic(2**20, 0), "float32"))
    assert not any(name.endswith(", 2 parts") for name in limit_timers(Traffic(2**26, 0), "float32"))


# -- cases -----------------------------------------------------------------------------------------------


def test_the_cases_are_those_of_the_catalogue_and_a_few_more() -> None:
    counts = {group: sum(case.group == group for case in CASES.values()) for group in GROUPS}
    assert counts["product"] == 6
    assert counts["resnet"] == 2 * 2 * 23 + 2
    assert counts["algorithms"] == 2 * 2 * 4 + 4
    assert set(QUICK) <= set(CASES)
    large = [case for case in CASES.values() if case.group == "stream" and case.traffic().read >= 128e6]
    assert {case.workload for case in large} >= {"softmax", "layer_norm", "norm", "max_pool2d", "silu"}
    measured = {(case.workload, case.args) for case in CASES.values()}
    for name, entry in CATALOGUE.items():
        if "winograd" not in name:
            assert {(name, tuple(args)) for args in entry.benchmark} <= measured


def test_nothing_of_the_catalogue_is_left_out() -> None:
    """Winograd's convolution is a way to compute another entry, and has no row of its own; a convolution with
    what follows it is measured at the network's sizes instead of the catalogue's."""
    for name, entry in CATALOGUE.items():
        found = {case.args for case in CASES.values() if case.workload == name}
        assert found or "winograd" in name, name
        floats = {args for args in entry.benchmark if not any(isinstance(size, str) for size in args)}
        assert "winograd" in name or name == "conv2d_bn_relu" or floats <= found, name


def test_products_with_the_border_are_no_part_of_the_limit() -> None:
    """The convolution of ones by ones is at each place the number of products that meet the image."""
    for name in ("conv1d", "conv2d", "conv3d", "group_conv2d", "depthwise_conv2d", "transposed_conv2d",
                 "capsule_conv2d", "dilated_conv2d", "conv2d_nchw"):  # fmt: skip
        for args in CATALOGUE[name].small:
            case = Case(name, cpu_cases.numbers_among(args), "dtypes" if name == "conv2d" else "convolution")
            ones = [np.ones(shape) for _, shape, _ in case.entry.input_shapes(args)]
            products = case.entry.reference(ones, case.named).sum()
            assert cpu_arithmetic.arithmetic(case, Path()) == pytest.approx(2 * products), case.name


@pytest.mark.parametrize(
    ("cpu", "products"),
    [
        ("znver4", {"float64": 8, "float32": 16, "float16": 16, "bfloat16": 32, "int8": 64, "uint8": 64}),
        ("icelake-server", {"bfloat16": 16, "int8": 64}),
        ("sapphirerapids", {"float32": 16, "bfloat16": 16**3 * 2, "int8": 16**3 * 4, "uint8": 16**3 * 4}),
        ("cooperlake", {"bfloat16": 32, "int8": 64}),
        ("haswell", {"float64": 4, "bfloat16": 8, "int8": 8, "uint8": 8}),
    ],
)
def test_a_limit_is_of_the_instructions_that_the_machine_has(cpu: str, products: dict[str, int]) -> None:
    machine = Machine.of("x86_64-linux-gnu", cpu)
    assert {name: multiply_add(name, machine).products for name in products} == products


@pytest.mark.parametrize(
    ("dtype", "instruction"),
    [("float32", "vfmadd"), ("float64", "vfmadd"), ("bfloat16", "vdpbf16ps"), ("int8", "vpdpbusd")],
)
def test_the_limit_of_a_dtype_is_its_own_instruction(dtype: str, instruction: str) -> None:
    machine = Machine.of("x86_64-linux-gnu", "znver4")
    code = assembly(multiply_adds_ir(multiply_add(dtype, machine), chains(machine)), machine)
    assert code.count(instruction) == chains(machine)
    assert "rsp" not in code


def test_the_limit_of_a_matrix_unit_is_its_own_instruction() -> None:
    machine = Machine.of("x86_64-linux-gnu", "sapphirerapids")
    code = assembly(multiply_adds_ir(multiply_add("bfloat16", machine), chains(machine)), machine)
    assert code.count("tdpbf16ps") == chains(machine)


def test_traffic_is_inputs_once_and_output_once() -> None:
    assert Case("silu", (8, 16), "stream").traffic() == Traffic(512, 512)
    assert Case("matmul", (2, 3, 4), "product").traffic() == Traffic(4 * (8 + 12), 4 * 6)


def test_constant_weights_are_asked_for_by_the_layout_option() -> None:
    assert SMALL.task().layout_rewrite_option == 2
    assert Case("matmul", (16, 16, 16), "product").task().layout_rewrite_option == 0


@pytest.mark.parametrize("name", ["conv2d", "conv2d_bn_relu"])
def test_a_choice_of_algorithms_is_a_case_apart(name: str, tmp_path: Path) -> None:
    """Its limit is that of the products that the winner has left, and the notes say who won."""
    case = Case(name, (1, 8, 8, 4, 4, 3, 1, 1), "algorithms", constant=True, algorithms=True)
    assert case.name == f"{name}-1x8x8x4x4x3x1x1-algorithms"
    task = case.task()
    log = str(tmp_path / "log.json")
    for one, seconds in zip(task.algorithms, (3.0, 2.0, 1.0), strict=True):
        state = ansor.State.initial(one.compute_dag)
        ansor.save_records(log, [ansor.MeasureInput(one, state)], [ansor.MeasureResult((seconds,))])
    assert cpu_arithmetic.arithmetic(case, Path(log)) == 2 * 36 * 4 * 4 * 4
    measured = Measured(times_of(1.0, 0.5, 0.4, ansor=1.0, torch=3.0), {}, [OURS], {}, False)
    found = Result.of(case, Tuned(Path(log), 3, 1.0), measured)
    assert f"{name}_winograd_prepared" in found.notes[0]
    assert "transformed beforehand" in found.notes[0]
    assert "rounding errors about 31 times those of the direct form" in found.notes[0]
    bench = Bench("", [])
    cpu_results.add_rows(bench, found)
    assert "in FLOPs of the direct form" in {row.peer for row in bench.rows}
    cpu_results.add_means(bench, [found], [case])
    assert not any(row.name.startswith("everything") for row in bench.rows)


def test_cases_are_chosen_by_name_workload_or_group() -> None:
    assert cpu_cases.chosen(["softmax", "norm-1x256x256"])[-1].args == (1, 256, 256)
    assert {case.group for case in cpu_cases.chosen(["batch"])} == {"batch"}
    with pytest.raises(KeyError, match="nonsense"):
        cpu_cases.chosen(["nonsense"])


@pytest.mark.parametrize("name", ["scale_shift_add_relu", "silu"])
def test_chains_compute_what_their_reference_does(name: str) -> None:
    case = Case(name, (5, 9), "stream")
    task, inputs = case.task(), case.inputs()
    state = ansor.sample_programs(task, 1, np.random.default_rng(0))[0]
    found = ansor.build(state, task.compute_dag.tensors)(*inputs)
    np.testing.assert_allclose(found, case.entry.reference(inputs, case.named), rtol=1e-5, atol=1e-6)


# -- measuring -------------------------------------------------------------------------------------------


def test_what_a_call_costs_is_subtracted_but_never_everything() -> None:
    times = {"a": [10.0, 4.0], "b": [10.0]}
    assert cpu_measure.without_call(times, {"a": 3.9}) == {"a": [6.1, pytest.approx(0.4)], "b": [10.0]}


def test_answers_that_differ_are_a_bug() -> None:
    answer = np.array([1.0, 100.0], np.float32)
    cpu_measure.check("peer", answer + 0.05, answer, 1e-3)
    with pytest.raises(AssertionError, match="peer and ansor do not compute the same"):
        cpu_measure.check("peer", answer + 0.5, answer, 1e-3)


def test_a_library_that_is_imprecise_is_left_out_if_ours_is_right() -> None:
    inputs = SMALL.inputs()
    right = SMALL.entry.reference(inputs, SMALL.named)
    assert cpu_measure.imprecise("peer", right, right, SMALL, inputs) is None
    reason = cpu_measure.imprecise("peer", right + 0.5 * np.abs(right).max(), right, SMALL, inputs)
    assert reason == "its answer is off by 0.5 of the largest element"
    with pytest.raises(AssertionError, match="double precision and ansor"):
        cpu_measure.imprecise("peer", right, 2 * right, SMALL, inputs)


def test_processes_are_put_behind_each_other_without_what_failed_in_one() -> None:
    one = Measured({"a": [1.0], "b": [2.0]}, {}, [OURS], {"b": 0.1}, False, [0.9, 1.0], 2)
    other = Measured({"a": [3.0]}, {"b": "it broke"}, [OURS], {}, False, [0.4, 0.7], 3)
    merged = Measured.merged([one, other])
    assert merged.quiet == [0.9, 1.0, 0.4, 0.7]
    assert merged.again == 5
    assert merged.times == {"a": [1.0, 3.0]}
    assert merged.skipped == {"b": "it broke"}


def test_what_a_call_costs_is_decided_once_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may be a little slower: then its times were not comparable with the others'."""
    seconds = iter([40e-6, 60e-6, 40e-6])

    def fresh(function: str, name: str, *args: Any) -> Any:
        if function.endswith("call_costs"):
            return {"numpy": 10e-6}
        times = times_of(1.0, 0.5, 0.4, ansor=90e-6, numpy=next(seconds))
        return asdict(Measured(times, {}, [], {}, False, [1.0]))

    monkeypatch.setattr(cpu_measure, "fresh_process", fresh)
    found = cpu_measure.measure(SMALL, Path(), Effort(3, 1, 1.0, 1, ["numpy"]))
    assert found.times["numpy"] == pytest.approx([30e-6, 50e-6, 30e-6])
    assert found.subtracted == {"numpy": 10e-6}


def test_calls_from_50_us_on_count_on_all_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh(function: str, name: str, *args: Any) -> Any:
        assert not function.endswith("call_costs")
        return asdict(Measured(times_of(1.0, 0.5, 0.4, **seconds), {}, [], {}, False, [1.0]))

    seconds = {OURS: 50e-6, CALLED: 53e-6, "numpy": 106e-6}
    monkeypatch.setattr(cpu_measure, "fresh_process", fresh)
    found = cpu_measure.measure(SMALL, Path(), Effort(1, 1, 1.0, 1, ["numpy"]))
    assert found.times["numpy"] == [106e-6]
    assert not found.subtracted


def test_a_library_whose_call_costs_nobody_knows_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh(function: str, name: str, *args: Any) -> Any:
        if function.endswith("call_costs"):
            return {}
        times = times_of(1.0, 0.5, 0.4, ansor=90e-6, numpy=40e-6)
        return asdict(Measured(times, {}, [], {}, False, [1.0]))

    monkeypatch.setattr(cpu_measure, "fresh_process", fresh)
    found = cpu_measure.measure(SMALL, Path(), Effort(1, 1, 1.0, 1, ["numpy"]))
    assert "numpy" not in found.times
    assert found.skipped["numpy"].startswith("failed")


def test_a_library_that_breaks_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Peer):
        def prepare(self, case: Case, inputs: Sequence[Any], threads: int) -> Prepared:
            raise AttributeError("there is no operator X")

    monkeypatch.setattr(cpu_measure, "CASES", {SMALL.name: SMALL})
    monkeypatch.setattr(cpu_measure, "PEERS", {**PEERS, "torch": Broken()})
    tuned = cpu_tuning.tune(SMALL, tmp_path, 1)
    threads = ansor.get_num_threads()
    try:
        found = cpu_measure.side_by_side(SMALL.name, str(tuned.log), 1, 0.01, 1, ["numpy", "torch"], [])
    finally:
        ansor.set_num_threads(threads)
    assert {OURS, "numpy"} < set(found["times"])
    assert found["skipped"]["torch"] == "failed: there is no operator X"


def test_integers_must_be_equal() -> None:
    answer = np.array([1_000_000, 5], np.int32)
    cpu_measure.check("peer", answer.copy(), answer, 1e-3)
    with pytest.raises(AssertionError, match="do not compute the same"):
        cpu_measure.check("peer", answer + np.array([1, 0], np.int32), answer, 1e-3)


def test_a_server_that_is_wrong_or_dies_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_measure, "CASES", {SMALL.name: SMALL})
    first, eye = SMALL.inputs()[0], np.eye(16, dtype=np.float32)
    monkeypatch.setattr(Case, "inputs", lambda self: [first, eye])  # so the first input is the right answer
    tuned = cpu_tuning.tune(SMALL, tmp_path, 1)
    (tmp_path / "wrong.py").write_text(FAKE.replace("arrays[0]", "arrays[0] + 9"))
    (tmp_path / "dies.py").write_text(FAKE.replace("0.5 * asked", "sys.exit(3) * asked"))
    threads = ansor.get_num_threads()
    why = []
    try:
        for name in ("wrong.py", "dies.py"):
            served = [sys.executable, str(tmp_path / name)]
            found = cpu_measure.side_by_side(SMALL.name, str(tuned.log), 1, 0.01, 1, [], served)
            assert OURS in found["times"]
            assert cpu_metaschedule.NAME not in found["times"]
            why.append(found["skipped"][cpu_metaschedule.NAME])
    finally:
        ansor.set_num_threads(threads)
    assert why[0] == f"{cpu_metaschedule.NAME} {cpu_measure.DISAGREE}"
    assert "with code 3" in why[1]


def test_a_case_is_tuned_resumed_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_measure, "CASES", {SMALL.name: SMALL})
    first = cpu_tuning.tune(SMALL, tmp_path, 2)
    again = cpu_tuning.tune(SMALL, tmp_path, 3)
    assert (first.trials, again.trials) == (2, 3)
    assert first.seconds is not None
    assert again.seconds is not None
    assert 0 < first.seconds < again.seconds
    assert cpu_tuning.tune(SMALL, tmp_path, 3) == again, "nothing is left to do"
    threads = ansor.get_num_threads()
    try:
        found = cpu_measure.side_by_side(SMALL.name, str(again.log), 1, 0.01, 1, ["numpy"], [])
    finally:
        ansor.set_num_threads(threads)
    assert {OURS, CALLED, PACKING, PACKING_CALLED, "numpy", PEAK, TILES} < set(found["times"])
    assert found["packs"] == [OURS]
    assert set(cpu_measure.call_costs(SMALL.name, ["numpy", "torch channels_last"], 1)) == {"numpy"}
    assert found["skipped"]["torch"] == "left out"
    assert len(found["quiet"]) == 1
    json.dumps(found)


def test_programs_that_were_measured_with_other_cores_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSOR_NUM_THREADS", "1")
    first = cpu_tuning.tune(SMALL, tmp_path, 2)
    monkeypatch.setenv("ANSOR_NUM_THREADS", "2")
    found = cpu_tuning.tune(SMALL, tmp_path, 1)
    assert found.trials == 1
    assert SMALL.task().best_record(str(found.log)).input.task.hardware_params.num_cores == 2
    assert len(list(ansor.load_records(str(found.log)))) > 2
    monkeypatch.setenv("ANSOR_NUM_THREADS", "1")
    again = cpu_tuning.tune(SMALL, tmp_path, 2)
    assert (again.trials, again.seconds) == (2, first.seconds), "nor does their time"


def test_the_time_of_a_run_that_was_cut_short_counts_or_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_tuning.tune(SMALL, tmp_path, 1)
    clock, whole = cpu_tuning.clock_of(SMALL, tmp_path, SMALL.task()), ansor.SearchTask.tune
    before = json.loads(clock.read_text())

    def interrupted(task: ansor.SearchTask, *options: Any) -> ansor.TuningResult:
        result = whole(task, *options)
        assert not clock.exists(), "a run that is killed now leaves programs of which nobody knows the time"
        return replace(result, stop_reason=ansor.StopReason.INTERRUPTED)

    monkeypatch.setattr(ansor.SearchTask, "tune", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cpu_tuning.tune(SMALL, tmp_path, 2)
    monkeypatch.undo()
    assert json.loads(clock.read_text()) > before
    clock.unlink()
    assert cpu_tuning.tune(SMALL, tmp_path, 3).seconds is None
    assert not clock.exists()
    clock.write_text("")
    assert cpu_tuning.tune(SMALL, tmp_path, 4).seconds is None
    (tmp_path / f"{SMALL.name}.log.json").unlink()
    clock.write_text("1000.0\n")
    seconds = cpu_tuning.tune(SMALL, tmp_path, 1).seconds
    assert seconds is not None
    assert seconds < 1000, "the log that took so long is gone"


def test_a_log_that_cannot_be_written_is_no_shorter_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ansor.SearchTask.tune

    def failed(task: ansor.SearchTask, *options: Any) -> ansor.TuningResult:
        result = whole(task, *options)
        return replace(result, stop_reason=ansor.StopReason.LOG_FAILED, message="make room")

    monkeypatch.setattr(ansor.SearchTask, "tune", failed)
    with pytest.raises(RuntimeError, match="make room"):
        cpu_tuning.tune(SMALL, tmp_path, 1)


def test_every_library_gets_the_same_number_of_threads() -> None:
    variables = cpu_measure.threads_everywhere(2)
    assert {variables[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL", "ANSOR", "TVM")} == {"2"}


def test_variables_last_as_long_as_processes_are_started() -> None:
    before = dict(os.environ)
    with cpu_measure.environment({"ANSOR_TEST_VARIABLE": "3"}):
        assert fresh_process("os:getenv", "ANSOR_TEST_VARIABLE") == "3"
    assert dict(os.environ) == before


# -- results ---------------------------------------------------------------------------------------------


def result(case: Case, **times: float) -> Result:
    """A result with a limit of half a second."""
    measured = Measured(
        times_of(1.0, 0.5, 0.4, **times),
        {name: "it failed" for name in PEERS if name not in times},
        [OURS, "onnxruntime"],
        {},
        False,
        [0.96],
    )
    return Result(case, Tuned(Path(), 8, 30.0), measured, Limit(0.5, 0.2, 0.25))


def test_rows_compare_with_the_fastest_library_and_the_limit() -> None:
    one = result(SMALL, ansor=1.0, numpy=3.0, onnxruntime=1.05)
    bench = Bench("", [])
    cpu_results.add_rows(bench, one)
    speed, share = bench.rows
    assert speed.value == pytest.approx(1.05)
    assert speed.goal == 1.1
    assert speed.peer == "onnxruntime, 1.05e+03 ms, stated, both packed"
    assert not speed.holds
    assert share.value == 0.5
    assert share.goal == 0.93


def test_the_share_is_of_that_limit_of_which_the_goal_is() -> None:
    """What binds may be another one: a stream that computes much is as far from memory as it is."""
    softmax = CASES["softmax-1024x1024"]
    busy, moving = Limit(0.5, 0.2, 0.25), Limit(0.1, 0.2, 0.25)
    assert [replace(result(softmax, ansor=1.0), limit=limit).share for limit in (busy, moving)] == [0.25] * 2
    assert [replace(result(SMALL, ansor=1.0), limit=limit).share for limit in (busy, moving)] == [0.5, 0.1]
    convolution = next(case for case in CASES.values() if case.group == "resnet")
    shares = [replace(result(convolution, ansor=1.0), limit=limit).share for limit in (busy, moving)]
    assert shares == [0.5, 0.25], "without a goal it is of what binds"
    assert "0.25 of memory" in cpu_table.details([replace(result(softmax, ansor=1.0), limit=busy)])


def test_packed_weights_that_only_we_have_are_told() -> None:
    assert result(SMALL, ansor=1.0, numpy=2.0).weights == "only ours packed"
    plain = Measured({OURS: [1.0], "numpy": [2.0]}, {}, [], {}, False)
    assert Result(SMALL, Tuned(Path(), 1, None), plain, Limit(1, 1, 1)).weights == ""
    theirs = Measured({OURS: [1.0], "onnxruntime": [2.0]}, {}, ["onnxruntime"], {}, False)
    assert Result(SMALL, Tuned(Path(), 1, None), theirs, Limit(1, 1, 1)).weights == "only theirs packed"


def test_ours_packs_weights_beforehand_only_beside_who_does() -> None:
    """So the library that is hardest to beat may be a slower one that does not pack them."""
    seconds = {OURS: 0.9, CALLED: 1.0, PACKING: 1.9, PACKING_CALLED: 2.0, "MetaSchedule": 3.8}
    one = result(SMALL, **seconds, numpy=3.0, onnxruntime=2.0)
    assert one.over("onnxruntime").median == pytest.approx(2.0)
    assert one.over("numpy").median == pytest.approx(1.5)
    assert (one.best, one.weights) == ("numpy", "packed in the call")
    assert one.to_json()["compared_seconds"][OURS] == 2.0
    assert one.rivalry is not None
    assert one.rivalry.speed.median == pytest.approx(2.0), "it never packs weights beforehand"
    assert "ansor packing" in cpu_table.details([one])
    short = replace(one, measured=replace(one.measured, subtracted={"numpy": 0.1}))
    assert short.over("numpy").median == pytest.approx(3.0 / 1.9)
    packed = result(SMALL, **seconds, numpy=5.0, onnxruntime=2.0)
    assert (packed.best, packed.weights) == ("onnxruntime", "both packed")


@pytest.mark.parametrize(("option", "copies"), [("INSERT_TRANSFORM_STAGE", True), ("NO_REWRITE", False)])
def test_weights_that_come_with_each_call_are_packed_then_or_not(
    option: str, copies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(cpu_measure, "fastest", lambda timers: (tried.extend(timers), option)[1])
    task, log = SMALL.task(), str(tmp_path / "log.json")
    state = ansor.State.initial(task.compute_dag).split(2, 1, [4]).reorder(2, [1, 3, 0, 2])
    ansor.save_records(log, [ansor.MeasureInput(task, state)], [ansor.MeasureResult((1.0,))])
    inputs = SMALL.inputs()
    ours = cpu_measure.winner_as_given(SMALL, log, inputs)
    assert tried == ["INSERT_TRANSFORM_STAGE", "NO_REWRITE"]
    np.testing.assert_allclose(ours.answer, inputs[0] @ inputs[1], rtol=1e-4, atol=1e-4)
    assert (".layout" in ours.kernel.get_source("nest")) is copies


def test_a_choice_of_algorithms_for_weights_that_come_with_each_call_has_a_log_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("conv2d", (1, 8, 8, 4, 4, 3, 1, 1), "algorithms", constant=True, algorithms=True)
    monkeypatch.setattr(cpu_measure, "CASES", {case.name: case})
    monkeypatch.setattr(bench_cpu, "measure", lambda case, *rest: pytest.fail("it is tuned by now"))
    with pytest.raises(pytest.fail.Exception):
        bench_cpu.measured(Bench("", []), case, tmp_path, 2, Effort(1, 1, 1.0, 1, ["numpy"]), None)
    assert case.as_given().name == f"{case.name}-given"
    log = cpu_tuning.log_of(case.as_given(), tmp_path)
    keys = {inp.task.workload_key for inp, _ in ansor.load_records(str(log))}
    assert not any("prepared" in key for key in keys)
    inputs = case.inputs()
    ours = cpu_measure.winner_as_given(case, str(cpu_tuning.log_of(case, tmp_path)), inputs)
    np.testing.assert_allclose(ours.answer, case.entry.expected(inputs, case.args), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("costs", "tuned"), [(1.5, True), (1.02, False)])
def test_weights_that_come_with_each_call_are_tuned_for_where_packing_them_costs_much(
    costs: float, tuned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("dense", (4, 8, 16), "further product", constant=True)
    monkeypatch.setattr(cpu_measure, "CASES", {case.name: case})
    monkeypatch.setattr(bench_cpu, "packing_costs", lambda *asked: costs)
    monkeypatch.setattr(bench_cpu, "measure", lambda case, *rest: pytest.fail("it is tuned by now"))
    with pytest.raises(pytest.fail.Exception):
        bench_cpu.measured(Bench("", []), case, tmp_path, 2, Effort(1, 1, 1.0, 1, ["numpy"]), None)
    own = cpu_tuning.log_of(case.as_given(), tmp_path)
    assert own.name == f"{case.name}-given.log.json"
    assert own.exists() is tuned
    tried: list[str] = []
    monkeypatch.setattr(cpu_measure, "fastest", lambda timers: (tried.extend(timers), tried[0])[1])
    inputs = case.inputs()
    ours = cpu_measure.winner_as_given(case, str(cpu_tuning.log_of(case, tmp_path)), inputs)
    assert tried == [case.as_given().name] * tuned + ["INSERT_TRANSFORM_STAGE", "NO_REWRITE"]
    np.testing.assert_allclose(ours.answer, case.entry.expected(inputs, case.args), rtol=1e-3, atol=1e-3)


def test_weights_that_come_with_each_call_are_tuned_for_where_that_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the memory in which winners are timed; the other tuner, too, gets the trials of both."""
    case = Case("dense", (4, 8, 16), "further product", constant=True)
    begun = cpu_tuning.log_of(case.as_given(), tmp_path)
    begun.touch()
    trials: list[tuple[str, int]] = []

    def in_memory(who: str, count: int) -> None:
        assert cpu_tuning.KEPT_MEMORY.items() <= os.environ.items()
        trials.append((who, count))

    def tune(one: Case, folder: Path, count: int) -> cpu_tuning.Tuned:
        in_memory(one.name, count)
        return cpu_tuning.Tuned(cpu_tuning.log_of(one, folder), count, 2.0)

    def other(one: Case, folder: Path, count: int, *rest: Any) -> dict[str, Any]:
        in_memory("the other", count)
        return {"command": ["serve"], "seconds": 16.0}

    found: list[Any] = []
    monkeypatch.setattr(bench_cpu, "packing_costs", lambda *asked: 1.0)
    monkeypatch.setattr(bench_cpu, "tune", tune)
    monkeypatch.setattr(bench_cpu, "other_tuner", other)
    monkeypatch.setattr(bench_cpu, "measure", lambda *asked: result(case, ansor=1.0, torch=1.0).measured)
    monkeypatch.setattr(bench_cpu.Result, "of", lambda *parts: found.append(parts))
    bench_cpu.measured(Bench("", []), case, tmp_path, 3, Effort(1, 1, 1.0, 1, ["numpy"]), "python3")
    assert trials == [(case.name, 3), (case.as_given().name, 3), ("the other", 6)]
    ((_, tuned, _, spent),) = found
    assert (tuned.log, tuned.trials, tuned.seconds) == (cpu_tuning.log_of(case, tmp_path), 6, 4.0)
    assert spent == cpu_results.Spent(6, 16.0)


def test_a_product_whose_operand_comes_with_each_call_is_the_one_without_a_constant() -> None:
    assert CASES["matmul-512x512x512-constant"].as_given() == CASES["matmul-512x512x512"]


def test_what_packing_costs_is_timed_in_a_fresh_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["dense-16x512x1000"]
    log = cpu_tuning.tune(case, tmp_path, 2).log
    assert cpu_measure.packing_costs(case, log, 1) > 0
    times = {cpu_measure.OURS: [2.0, 2.0], cpu_measure.PACKING: [3.0, 3.0]}
    monkeypatch.setattr(cpu_measure, "take_turns", lambda sides, *rest: {name: times[name] for name in sides})
    assert cpu_measure.times_as_long(case.name, str(log), 1) == 1.5


def test_means_have_the_stated_goal_or_what_the_limits_leave_of_it() -> None:
    case = Case("conv2d", (1, 4, 4, 2, 2, 1, 1, 0), "resnet")
    far, near = result(case, ansor=1.0, torch=4.0), result(case, ansor=0.5, torch=0.5)
    bench = Bench("", [])
    cpu_results.add_means(bench, [far, near], [case, case])
    group, whole = bench.rows
    assert group.value == whole.value == pytest.approx(2.0)
    assert (group.goal, whole.goal) == (1.1, 1.2), "the limits leave 0.97 x 8 ** 0.5"
    assert whole.peer == "the best library, 2 of 2 operations, stated"
    bench = Bench("", [])
    cpu_results.add_means(bench, [near, near], [case, case, replace(case, group="dtypes")])
    group, whole = bench.rows
    assert group.goal == whole.goal == pytest.approx(0.97)
    assert group.peer == whole.peer == "the best library, 2 of 2 operations, 0.97 of the limit"


def without(one: Result, why: str) -> Result:
    skipped = {**one.measured.skipped, "onnxruntime": why}
    return replace(one, measured=replace(one.measured, skipped=skipped))


def disturbed(one: Result) -> Result:
    return replace(one, measured=replace(one.measured, quiet=[0.9, 0.5, 0.99]))


@pytest.mark.parametrize(
    "why", ["left out", "not installed: onnxruntime (no such module)", "failed: no _int_mm"]
)
def test_a_speed_over_some_libraries_reaches_no_goal_but_may_miss_it(why: str) -> None:
    case = Case("conv2d", (1, 4, 4, 2, 2, 1, 1, 0), "resnet")
    fast, slow = (without(result(case, ansor=1.0, torch=torch), why) for torch in (4.0, 0.9))
    bench = Bench("", [])
    for one in (fast, slow):
        cpu_results.add_rows(bench, one)
    first, second = (row for row in bench.rows if row.name.endswith(": speed"))
    assert (first.holds, second.holds) == (None, False)
    assert first.peer == "torch, 4e+03 ms, stated, only ours packed, without onnxruntime"
    assert "without 1" in cpu_table.details([fast])
    bench = Bench("", [])
    whole = result(case, ansor=1.0, torch=2.0)
    cpu_results.add_means(bench, [fast, whole], [case, case])
    assert {(row.value, row.holds) for row in bench.rows} == {(2.0, None)}
    assert bench.rows[0].peer == "the best library, 1 of 2 operations, stated"


def test_what_is_measured_beside_another_load_has_no_verdict() -> None:
    times = {"ansor": 1.0, "numpy": 3.0, "MetaSchedule": 1.5}
    quiet = result(SMALL, **times)
    one = disturbed(quiet)
    assert not replace(one, measured=replace(one.measured, quiet=[0.5, 0.99, 0.99])).measured.disturbed
    bench = Bench("", [])
    cpu_results.add_rows(bench, one)
    assert {row.holds for row in bench.rows} == {None}
    assert all("beside another load" in (row.peer or "") for row in bench.rows)
    bench = Bench("", [])
    cpu_results.add_means(bench, [one, quiet], [SMALL, SMALL])
    found = {row.name.partition(": ")[2]: row for row in bench.rows}
    assert found["geometric mean of speeds"].holds is None
    assert found["geometric mean of speeds"].peer == "the best library, 1 of 2 operations, stated"
    assert found["geometric mean of speeds over MetaSchedule"].peer == "1 of 2 operations"
    fast = found["as fast as asked for beside MetaSchedule"]
    assert (fast.value, fast.holds, fast.peer) == (1.0, None, "1 of 2 operations")


@pytest.mark.parametrize("peers", ["numpy,torch,torch.compile,onnxruntime", "numpy,torch"])
def test_what_has_no_such_operation_is_not_missed(peers: str) -> None:
    """A product has no images."""
    times = dict.fromkeys(("ansor", *peers.split(",")), 2.0) | {"ansor": 1.0}
    measured = replace(result(SMALL, **times).measured, skipped={})
    one = replace(result(SMALL, **times), measured=measured)
    assert one.unknown == (() if "onnxruntime" in peers else ("torch.compile", "onnxruntime"))


def test_the_table_says_what_has_no_row_or_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    softmax = cpu_cases.CASES["softmax-16x1000"]
    one = disturbed(result(softmax, ansor=1.0, numpy=3.0))
    monkeypatch.setattr(bench_cpu, "measured", lambda *rest: one)
    where = ["--log-dir", str(tmp_path), "--threads", "1", "--ops"]
    assert bench_cpu.main([*where, softmax.name]) == 1
    assert "measure again: everything" in capsys.readouterr().out
    monkeypatch.setattr(bench_cpu, "measured", lambda *rest: pytest.fail("it measures"))
    assert bench_cpu.main([*where, f"{softmax.name},norm-1x256x256", "--table"]) == 1
    assert "all but norm-1x256x256" in capsys.readouterr().out
    for option in (["--trials", "5"], ["--peers", "numpy"], ["--metaschedule"], ["--quick"]):
        assert bench_cpu.main([*where, softmax.name, "--table", *option]) == 2
        assert f"leave out {option[0]}" in capsys.readouterr().err


def test_the_mean_over_everything_is_of_float32() -> None:
    wide = result(Case("matmul", (4, 4, 4, "float64"), "dtypes"), ansor=1.0, numpy=9.0)
    bench = Bench("", [])
    cpu_results.add_means(bench, [wide], [wide.case])
    assert not bench.rows


def test_the_other_tuner_has_rows_of_its_own() -> None:
    times = times_of(1.0, 0.5, 0.4, ansor=1.0, numpy=3.0, MetaSchedule=1.5)
    measured = Measured(times, {}, [OURS], {}, False)
    one = Result(SMALL, Tuned(Path(), 8, 30.0), measured, Limit(0.5, 0.2, 0.2), tuner=Spent(9, 120.0))
    bench = Bench("", [])
    cpu_results.add_rows(bench, one)
    found = {row.name.partition(": ")[2]: row for row in bench.rows}
    assert found["speed"].value == 3.0, "a tuner is no library"
    assert found["speed over MetaSchedule"].value == 1.5
    words = "8 trials of ours, 9 of its"
    assert found["speed over MetaSchedule"].peer == f"after {words}, stated, its weights not packed"
    assert found["tuning time over MetaSchedule's"].peer == f"120 s, {words}"
    assert found["tuning time over MetaSchedule's"].value == 0.25
    assert found["tuning time over MetaSchedule's"].holds


def test_more_trials_than_the_other_tuner_had_are_no_verdict() -> None:
    """A log that holds more than was asked for is not made shorter."""
    times = times_of(1.0, 0.5, 0.4, ansor=1.0, numpy=3.0, MetaSchedule=1.5)
    measured = Measured(times, {}, [], {}, False)
    more = Result(SMALL, Tuned(Path(), 8, 30.0), measured, Limit(0.5, 0.2, 0.2), tuner=Spent(7, 120.0))
    bench = Bench("", [])
    cpu_results.add_rows(bench, more)
    assert [row.holds for row in bench.rows if "MetaSchedule" in row.name] == [None, None]
    cpu_results.add_means(bench, [more], [SMALL])
    assert not [row for row in bench.rows if "as fast as" in row.name or "tuned in" in row.name]


def test_the_table_shows_everyone_and_says_what_is_missing() -> None:
    text = cpu_table.details([result(SMALL, ansor=1.0, numpy=3.0)])
    head, line, *notes = text.splitlines()
    assert head.split()[:3] == ["operation", "ansor", "numpy"]
    assert line.split()[:3] == [SMALL.name, "1e+03", "3e+03"]
    assert "channels_last" not in head, "nobody was measured with it"
    assert any("torch.compile is missing from everything: it failed" in note for note in notes)
    assert json.loads(json.dumps(result(SMALL, ansor=1.0, numpy=3.0).to_json()))["goal_is"] == "stated"


def test_the_table_tells_how_many_programs_were_measured() -> None:
    """They may be fewer than were asked for: some operations have few programs."""
    one = result(SMALL, ansor=1.0, numpy=3.0)
    few = replace(one, tuned=replace(one.tuned, trials=3))
    head, *lines = cpu_table.details([one, few]).splitlines()
    assert [line[head.index("trials") :].split()[0] for line in lines[:2]] == ["8", "3"]
    assert any(line.startswith("  trials: programs that tuning measured") for line in lines)


def test_rows_say_how_many_rounds_were_measured_again() -> None:
    one = result(SMALL, ansor=1.0, numpy=3.0)
    again = replace(one, measured=replace(one.measured, again=3))
    assert "again" not in cpu_table.details([one])
    head, _, line, *notes = cpu_table.details([one, again]).splitlines()
    assert line[head.index("again") :].split()[0] == "3"
    assert any(note.startswith("  again: rounds") for note in notes)
    bench = Bench("", [])
    cpu_results.add_rows(bench, again)
    assert bench.rows[0].peer == "numpy, 3e+03 ms, stated, only ours packed, 3 rounds again"


def test_less_its_call_a_library_is_no_faster_than_the_machine() -> None:
    one = result(SMALL, ansor=1.0, numpy=0.1)
    less = replace(one, measured=replace(one.measured, subtracted={"numpy": 5.0}))
    assert one.over("numpy").median == one.peers["numpy"] == 0.1
    assert less.over("numpy").median == less.peers["numpy"] == less.limit.seconds > 0.1
    assert less.goal == Goal(SMALL.goal.speed, MARGIN)
    told = cpu_table.details([less])
    assert f"{1e3 * less.limit.seconds:.3g}**" in told
    assert "  **: what is left then is less than the limit" in told
    slow = replace(one, measured=replace(less.measured, times={**one.measured.times, "numpy": [7.0]}))
    assert "7e+03* " in cpu_table.details([slow])


def test_speeds_are_of_calls_or_of_kernels_on_both_sides() -> None:
    one = result(SMALL, **{OURS: 1.0, CALLED: 1.5, "numpy": 3.0, "MetaSchedule": 2.0})
    assert one.over("numpy").median == 2
    assert one.to_json()["compared_seconds"] == {"ansor": 1.5, "numpy": 3.0}
    assert one.share == one.limit.compute, "of the kernel"
    assert one.rivalry is not None
    assert one.rivalry.speed.median == 2, "both in compiled loops"
    less = replace(one, measured=replace(one.measured, subtracted={"numpy": 0.5}))
    assert less.over("numpy").median == 3
    assert "  ansor called: from Python" in cpu_table.details([one])
    assert "ansor called" not in cpu_table.details([result(SMALL, ansor=1.0, numpy=3.0)])


def test_less_its_call_a_library_may_be_as_fast_as_ours_below_the_limit() -> None:
    """What ours reaches the machine can do: to lift the library's time further would be a speed of ours."""
    one = result(SMALL, ansor=0.2, numpy=0.1)
    less = replace(one, measured=replace(one.measured, subtracted={"numpy": 5.0}))
    assert less.share > 1
    assert less.peers["numpy"] == less.seconds == 0.2
    assert less.over("numpy").median == 1


def test_what_a_call_costs_is_told_from_the_least_to_the_most() -> None:
    """It is another one for each operation."""
    one = result(SMALL, ansor=1.0, numpy=3.0, torch=4.0)
    some = [
        replace(one, measured=replace(one.measured, subtracted=costs))
        for costs in ({"numpy": 5e-6, "torch": 2e-6}, {"numpy": 1.7e-6}, {})
    ]
    assert "numpy 1.7 to 5.0, torch 2.0" in cpu_table.details(some)


def test_missing_peers_are_told_by_reason() -> None:
    def without(case: Case, why: str) -> Result:
        measured = Measured(times_of(1.0, 0.5, 0.4, ansor=1.0), {"onnxruntime": why}, [], {}, False)
        return Result(case, Tuned(Path(), 8, None), measured, Limit(0.5, 0.2, 0.25))

    norm, silu = Case("norm", (1, 2, 3), "stream"), Case("silu", (1, 2), "stream")
    text = cpu_table.details([without(norm, "its answer is off"), without(silu, "it is too old")])
    assert "onnxruntime is missing from norm-1x2x3: its answer is off" in text
    assert "onnxruntime is missing from silu-1x2: it is too old" in text


def test_the_chart_is_drawn_or_it_is_said_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [result(SMALL, ansor=1.0, numpy=3.0), result(SMALL, ansor=1.0, numpy=0.5)]
    path = tmp_path / "speed.svg"
    if find_spec("matplotlib"):
        assert cpu_table.chart(results, path) == f"the chart is {path}"
        assert path.stat().st_size > 1000
        nowhere = tmp_path / "none" / "speed.svg"
        assert cpu_table.chart(results, nowhere).startswith(f"no chart: {nowhere} cannot be written")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cpu_table.chart(results, path).startswith("no chart: matplotlib cannot be imported")
    alone = [result(SMALL, ansor=1.0)]
    for nothing in ([], alone):
        assert cpu_table.chart(nothing, path) == "no chart: no operation was compared with a library"


# -- the other tuner -------------------------------------------------------------------------------------


def test_the_other_tuner_knows_every_function_of_a_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that TVM's `te` lacks; what it has is called by TVM's names."""

    class Everything:
        def __getattr__(self, name: str) -> str:
            return name

    monkeypatch.setattr(cpu_metaschedule, "import_module", lambda name: Everything())
    own = {name: name for name in ("placeholder", "reduce_axis", "sum", "max", "min", "truncdiv", "truncmod")}
    known = set(vars(cpu_metaschedule._te(SimpleNamespace(te=SimpleNamespace(compute=None, **own)))))
    for case in CASES.values():
        code = cpu_metaschedule.definition(case.entry.function(*case.args))
        assert set(re.findall(r"\bte\.(\w+)", code)) <= known, case.name


def test_cases_of_one_operation_share_what_the_other_tuner_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: dict[str, str] = {}

    def tuned(python: str, code: str, folder: Path, *rest: int) -> dict[str, object]:
        assert folders.setdefault(str(folder), code) == code
        return {}

    monkeypatch.setattr(cpu_metaschedule, "tune", tuned)
    for case in CASES.values():
        bench_cpu.other_tuner(case, tmp_path, 8, 1, "python")
    count = len(folders)
    assert count == len(set(folders.values())) < len(CASES)
    bench_cpu.other_tuner(case, tmp_path, 9, 1, "python")
    assert len(folders) == count + 1


def test_what_was_tuned_is_used_for_the_same_code_and_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def run(command: list[str], **rest: object) -> SimpleNamespace:
        _, _, _, folder, trials, threads = command
        code = (Path(folder) / "te.py").read_text()
        done = {"trials": int(trials), "threads": int(threads), "code": code, "seconds": 1.0}
        (Path(folder) / "tuned.json").write_text(json.dumps(done))
        (Path(folder) / "best.so").write_text("")
        runs.append(code)
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(cpu_metaschedule.subprocess, "run", run)
    for code, trials, threads in [
        ("a", 4, 1),
        ("a", 4, 1),
        ("b", 4, 1),
        ("b", 4, 2),
        ("b", 5, 2),
        ("b", 5, 2),
    ]:
        found = cpu_metaschedule.tune("python", code, tmp_path / "x", trials, threads)
        assert found["command"][-2:] == ["serve", str(tmp_path / "x")]
    assert runs == ["a", "b", "b", "b"]


def test_a_python_that_cannot_tune_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(bench_cpu, "measured", lambda *rest: pytest.fail("it began"))
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexit 3\n")
    silent.chmod(0o755)
    command = ["--log-dir", str(tmp_path), "--threads", "1", "--metaschedule", "--tvm-python"]
    for python, why in (
        (sys.executable, "No module named 'tvm'"),
        ("/none", "No such file"),
        (str(silent), "code 3"),
    ):
        assert bench_cpu.main([*command, python]) == 2
        said = capsys.readouterr().err
        assert f"{python} is not (" in said
        assert why in said
        assert "pip install apache-tvm" in said


def test_the_versions_of_the_other_tuner_are_told(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho tvm 7\n")
    python.chmod(0o755)
    assert cpu_metaschedule.check(str(python)) == "tvm 7"


def test_a_definition_travels_as_code() -> None:
    from ansor import te

    original = ansor.ComputeDAG(SMALL.entry.function(16, 16, 16))
    scope: dict[str, Any] = {"te": te}
    exec(cpu_metaschedule.definition(original.tensors), scope)
    assert ansor.ComputeDAG(scope["tensors"]).structure_hash == original.structure_hash


FAKE = """
import json, sys, numpy
for line in sys.stdin:
    asked = json.loads(line)
    if "load" in asked:
        arrays = [numpy.load(f"{asked['load']}/{i}.npy") for i in range(len(asked["dtypes"]) - 1)]
    elif "run" in asked:
        numpy.save(asked["run"], arrays[0])
    print(json.dumps(0.5 * asked["time"] if "time" in asked else None), flush=True)
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bfloat16"])
def test_a_server_computes_and_is_timed(tmp_path: Path, dtype: str) -> None:
    """This one gives back the first input."""
    (tmp_path / "fake.py").write_text(FAKE)
    given = np.array([1, 2, 3]).astype(to_numpy(dtype))
    with cpu_metaschedule.Server(
        [sys.executable, str(tmp_path / "fake.py")], [given, given], given
    ) as server:
        answer = server.answer()
        assert answer.dtype == given.dtype
        np.testing.assert_array_equal(answer, given)
        assert server.timer(4) == 2.0


def test_threads_of_a_server_that_wait_for_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimpleNamespace(process=7)
    monkeypatch.setattr(cpu_measure, "waiting_clock", lambda threads: lambda: 1.0)
    monkeypatch.setattr(cpu_measure, "seconds_waited", {7: 2.0}.get)
    alone, beside = (cpu_measure.waited_by_all(2, one) for one in (None, server))  # type: ignore[arg-type]
    assert alone is not None
    assert beside is not None
    assert (alone(), beside()) == (1.0, 3.0)
    monkeypatch.setattr(cpu_measure, "seconds_waited", lambda process: None)
    assert beside() is None
    monkeypatch.setattr(cpu_measure, "waiting_clock", lambda threads: None)
    assert cpu_measure.waited_by_all(2, server) is None  # type: ignore[arg-type]


def test_a_server_that_ends_is_told(tmp_path: Path) -> None:
    (tmp_path / "fake.py").write_text("import sys; sys.stdin.readline(); sys.exit(3)")
    server = cpu_metaschedule.Server([sys.executable, str(tmp_path / "fake.py")], [], np.zeros(3))
    with pytest.raises(RuntimeError, match="with code 3"):
        server.__enter__()


# -- the command line ------------------------------------------------------------------------------------


def test_the_benchmark_goes_through_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, int, Effort]] = []

    def measured(bench: Bench, case: Case, folder: Path, trials: int, effort: Effort, tuner: object) -> Any:
        asked.append((case.name, trials, effort))
        return result(case, ansor=1.0, numpy=3.0) if case.workload == "softmax" else None

    monkeypatch.setattr(bench_cpu, "measured", measured)
    monkeypatch.setattr(cpu_metaschedule, "check", lambda python: "tvm 7")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    command = ["--ops", "softmax-16x1000,norm-1x256x256", "--trials", "5", "--log-dir", str(tmp_path)]
    bench_cpu.main([*command, "--peers", "numpy", "--threads", "1"])
    assert [one[:2] for one in asked] == [("softmax-16x1000", 5), ("norm-1x256x256", 5)]
    assert asked[0][2].threads == 1
    assert asked[0][2].peers == ("numpy",)
    written = json.loads((tmp_path / "results.json").read_text())
    assert [one["case"] for one in written["results"]] == ["softmax-16x1000"]
    assert [one["case"] for one in written["failed"]] == ["norm-1x256x256"]
    assert written["results"][0]["run"]["surroundings"]["OMP_NUM_THREADS"] == "1"
    printed = capsys.readouterr().out
    assert "softmax-16x1000: speed" in printed
    assert "the best library, 1 of 2 operations, stated\n" in printed, "no goal, as one of them failed"
    assert "not compared with MetaSchedule: no row has it; --metaschedule measures it" in printed
    bench_cpu.main([*command, "--threads", "1", "--metaschedule"])
    printed = capsys.readouterr().out
    assert "softmax-16x1000: speed" in printed
    assert "no row has it; --metaschedule measures it" in printed
    asked.clear()
    bench_cpu.main(["--quick", "--log-dir", str(tmp_path / "quick"), "--threads", "1"])
    assert [one[0] for one in asked] == list(QUICK)
    assert "torch.compile" not in asked[0][2].peers


def test_a_comma_at_the_end_asks_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(bench_cpu, "measured", lambda *rest: None)
    where = ["--log-dir", str(tmp_path), "--threads", "1", "--peers", "numpy,", "--ops"]
    bench_cpu.main([*where, "norm-1x256x256, "])
    assert [one.name for one in read(tmp_path).failed] == ["norm-1x256x256"]
    with pytest.raises(SystemExit):
        bench_cpu.main([*where, " ,"])
    assert "' ,' names nothing" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--ops", "nonsense"], ["--peers", "nonsense"], ["--trials", "0"]])
def test_what_is_not_understood_is_refused(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_cpu.main(option)
    assert option[1] in capsys.readouterr().err


def test_near_names_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_cpu.main(["--ops", "softmax-1024x1025"])
    assert "did you mean softmax-1024x1024" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "goal", "shown"),
    [
        (1.09967, 1.1, ("1.0997", "1.1")),
        (2.0, 2.0, ("2", "2")),
        (1.2, 1.1, ("1.2", "1.1")),
        (1.0999999, 1.1, ("1.0999999", "1.1")),
        (990.0, 1024.0, ("990", "1024")),
    ],
)
def test_a_value_below_its_goal_looks_so(value: float, goal: float, shown: tuple[str, str]) -> None:
    bench = Bench("", [])
    bench.add("a", value, "x", at_least=goal)
    assert tuple(table(bench.rows).split()[-5:-1:2]) == shown


def test_by_default_there_are_no_more_threads_than_the_control_group_grants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "cgroup_quota", lambda: 0.5)
    assert bench_cpu.default_threads() == 1


@pytest.mark.parametrize("where", ["tune", "measure"])
def test_a_case_that_fails_is_a_row_and_ends_nothing(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*rest: object) -> Any:
        raise ValueError("in a fresh process:\nnumpy and ansor do not compute the same\nx: 1.0\n")

    monkeypatch.setattr(bench_cpu, "tune", lambda case, folder, trials: Tuned(tmp_path / "log", 1, None))
    monkeypatch.setattr(bench_cpu, "packing_costs", lambda *asked: 1.0)
    monkeypatch.setattr(bench_cpu, where, fails)
    bench = Bench("", [])
    assert bench_cpu.measured(bench, SMALL, tmp_path, 1, Effort(1, 1, 1.0, 1, ()), None) is None
    assert bench.rows[0].holds is False
    assert bench.rows[0].peer == "numpy and ansor do not compute the same"
    assert "ValueError" in (tmp_path / f"{SMALL.name}.error.txt").read_text()


def test_another_tuner_that_fails_is_a_row_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_cpu, "tune", lambda case, folder, trials: Tuned(tmp_path / "log", 1, None))
    measured = Measured(times_of(1.0, 0.5, 0.4, ansor=1.0, numpy=2.0), {}, [], {}, False)
    monkeypatch.setattr(bench_cpu, "packing_costs", lambda *asked: 1.0)
    monkeypatch.setattr(bench_cpu, "measure", lambda *rest: measured)
    bench = Bench("", [])
    python = str(tmp_path / "no python")
    found = bench_cpu.measured(bench, SMALL, tmp_path, 1, Effort(1, 1, 1.0, 1, ()), python)
    assert found is not None
    cpu_results.add_rows(bench, found)
    (row,) = (row for row in bench.rows if row.name == f"{SMALL.name}: MetaSchedule failed")
    assert row.holds is False
    assert row.peer == found.measured.skipped["MetaSchedule"] != ""


def test_logs_of_other_sources_or_threads_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    monkeypatch.setattr(harness, "available_cores", lambda: 2)
    monkeypatch.setattr(bench_cpu, "measured", lambda *rest: None)
    try:
        for threads in ("1", "2"):
            monkeypatch.setattr(os, "environ", dict(os.environ))
            search_runs.version.cache_clear()
            bench_cpu.main(["--quick", "--threads", threads])
    finally:
        search_runs.version.cache_clear()
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["cpu", "cpu"]


@pytest.mark.parametrize("option", ["--json", "--log-dir"])
def test_places_that_cannot_be_written_are_refused_at_once(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    places = [tmp_path / "file" / "x", tmp_path if option == "--json" else tmp_path / "file"]
    for place in places:
        with pytest.raises(SystemExit):
            bench_cpu.main([option, str(place)])
        assert f"argument {option}: {str(place)!r}" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == ""
