"""The benchmark of the search: its arithmetic, its stand-ins and its command line, not its speeds."""

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from experiments import bench_costmodel, bench_search
from experiments.harness import Bench, Row, fresh_process
from experiments.search import ablation as search_ablation
from experiments.search import cases as search_cases
from experiments.search import clock as search_clock
from experiments.search import efficiency as search_efficiency
from experiments.search import models as search_models
from experiments.search import runs as search_runs
from experiments.search import throughput as search_throughput
from experiments.search import tuning as search_tuning
from experiments.search.cases import CASES, Case, Peers
from experiments.search.runs import Clock, Kept
from experiments.search.throughput import Round
from experiments.search.tuning import Improvement, Run, Watch

SMALL = Case("matmul", (16, 16, 16), "SMALL")


def rows(bench: Bench) -> dict[str, Row]:
    """The rows of a bench by the part of their names behind the task."""
    return {row.name.partition(": ")[2]: row for row in bench.rows}


def peers(tmp_path: Path) -> Path:
    content = {
        "libraries": {"SMALL": {"numpy": 2.0, "torch-nchw": 4.0}, "C": {"numpy": 1.0, "torch-nhwc": 2.0}},
        "tuners": [
            {"peer": "ansor-tvm16", "workload": "SMALL", "trials": 200, "final_ms": 3.0,
             "candidates_scored_per_second": 100.0},
            {"peer": "metaschedule", "workload": "SMALL", "trials": 64, "final_ms": 5.0,
             "candidates_scored_per_second": None},
            {"peer": "metaschedule", "workload": "C", "trials": 64, "final_ms": 3.0},
        ],
    }  # fmt: skip
    path = tmp_path / "peers.json"
    path.write_text(json.dumps(content))
    return path


# -- cases and peers -------------------------------------------------------------------------------------


def test_recorded_figures_become_ratios_to_the_library_that_is_at_hand(tmp_path: Path) -> None:
    known = Peers.read(str(peers(tmp_path)))
    assert known.ratios(SMALL, "torch-nchw") == {"ansor-tvm16": (0.75, 200), "metaschedule": (1.25, 64)}
    assert known.ratios(SMALL, "numpy") == {"ansor-tvm16": (1.5, 200), "metaschedule": (2.5, 64)}
    assert known.ratios(SMALL, "other") == {}
    assert known.rate(SMALL) == 100.0


def test_numpy_programs_of_convolutions_are_compared_with_no_record(tmp_path: Path) -> None:
    known = Peers.read(str(peers(tmp_path)))
    convolution = Case("conv2d", (1, 4, 4, 3, 4, 3, 1, 1), "C", "torch-nhwc")
    assert known.ratios(convolution, "torch-nhwc") == {"metaschedule": (1.5, 64)}
    assert known.ratios(convolution, "numpy") == {}
    assert known.rate(convolution) is None


def test_missing_figures_are_an_error_only_if_they_were_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_cases, "PEERS_FOLDERS", (tmp_path,))
    assert Peers.read() == Peers({}, ())
    with pytest.raises(FileNotFoundError):
        Peers.read(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("workload", "args", "form"),
    [
        ("matmul", (5, 6, 7), "torch-nchw"),
        ("matmul_add", (5, 6, 7), "torch-nchw"),
        ("batch_matmul", (2, 3, 4, 5), "torch-nchw"),
        ("conv2d", (1, 6, 5, 3, 4, 3, 2, 1), "torch-nchw"),
        ("conv2d", (1, 6, 5, 3, 4, 3, 1, 1), "torch-nhwc"),
        ("depthwise_conv2d", (1, 6, 5, 4, 3, 2, 1), "torch-nhwc"),
        ("softmax", (4, 9), "torch-nchw"),
    ],
)
def test_the_library_computes_what_numpy_does(workload: str, args: tuple[int, ...], form: Any) -> None:
    if not search_cases.has_torch():
        pytest.skip("PyTorch is not installed")
    case = Case(workload, args, "", form)
    inputs = case.inputs()
    found = search_cases.library_call(case, inputs, 1)()
    np.testing.assert_allclose(found, case.numpy_call(inputs)(), rtol=1e-4, atol=1e-5)


def test_what_is_no_library_operation_stands_beside_numpy() -> None:
    assert search_cases.library_name(CASES["norm-256"]) == "numpy"
    case = Case("norm", (2, 3, 4))
    inputs = case.inputs()
    expected = np.sqrt(np.square(inputs[0]).sum(axis=(1, 2)))
    np.testing.assert_allclose(search_cases.library_call(case, inputs, 1)(), expected, rtol=1e-5)
    halves = Case("matmul", (3, 4, 5, "bfloat16", "float32"))
    a, b = halves.inputs()
    found = search_cases.library_call(halves, [a, b], 1)()
    assert (a.dtype.name, found.dtype.name) == ("bfloat16", "float32")
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32))


def test_parts_name_tasks_that_exist() -> None:
    named = (
        *search_throughput.TASKS,
        *search_throughput.MEMORY_TASKS,
        *search_efficiency.TASKS,
        *search_ablation.TASKS,
        *search_ablation.SPACE_TASKS,
        search_tuning.CASE,
    )
    assert set(named) == set(CASES)


# -- the clock -------------------------------------------------------------------------------------------


def test_the_chain_runs_all_its_steps() -> None:
    expected = 7
    for step in range(1000):
        expected = (expected * search_clock.FACTOR % 2**64) ^ step
    assert search_clock.chain()(7, 1000) == expected


def test_a_step_of_four_cycles_at_the_recorded_clock_is_scale_one() -> None:
    at_recorded = 4 * search_clock.STEPS / 3.7e9
    assert search_clock.scale_of(at_recorded) == pytest.approx(1.0)
    assert search_clock.scale_of(2 * at_recorded) == pytest.approx(0.5)


def test_a_process_gets_some_share_of_its_cores() -> None:
    assert 0.0 < search_clock.quiet_share(2, steps=100_000) < 1.5


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads stay where the system puts them")
def test_each_core_is_asked_how_quiet_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: found.append(cores))
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {3, 5})
    search_clock.quiet_share(2, steps=1000)
    assert sorted(map(sorted, found)) == [[3], [5]]
    found.clear()
    search_clock.quiet_share(1, steps=1000)
    assert found == []


# -- throughput and memory -------------------------------------------------------------------------------


def test_rates_are_valid_programs_over_seconds_beside_a_scaled_record() -> None:
    bench = Bench("", [])
    measured = [Round(900, 1000, (2, 3), 0.5), Round(1000, 1000, (5,), 0.5)]
    search_throughput.report(bench, "task", measured, [0.5, 0.5, 1.5], recorded=100.0, share=0.5)
    found = rows(bench)
    assert found["candidates scored"].value == 950.0
    assert found["different programs among the scored"].value == 0.5
    # Half of 1800/s beside 100 x 0.5, and of 2000/s beside 100 x 1.
    assert found["candidates scored, over TVM"].value == pytest.approx((18.0 + 10.0) / 2)
    assert found["candidates scored, over TVM"].goal == 20.0
    assert found["candidates scored, over TVM"].holds is False
    said = found["candidates scored, over TVM"].peer or ""
    for word in ("2 cores", "assumed (3.7 GHz)", "one thread", "1024 made-up run times"):
        assert word in said
    assert found["families per generation"].value == pytest.approx(10 / 3)
    assert found["rows per family"].value == 200.0
    assert found["invalid"].value == pytest.approx(0.05)


def test_without_a_record_the_rate_stands_alone() -> None:
    bench = Bench("", [])
    search_throughput.report(bench, "task", [Round(10, 10, (1,), 1.0)], [1.0, 1.0], recorded=None, share=1.0)
    assert "candidates scored, over TVM" not in rows(bench)
    assert all(row.goal is None for row in bench.rows)


def test_programs_that_the_model_rules_out_do_not_count() -> None:
    """Their score is minus infinity; the generations add up."""

    class Half(ansor.CostModel):
        asked = 0
        refused = 0

        def update(self, inputs: object, results: object) -> None:
            return

        def predict(self, task: ansor.Task, candidates: Any) -> Any:
            scores = np.where(np.arange(len(candidates)) % 2, -np.inf, np.arange(len(candidates)))
            self.asked += len(scores)
            self.refused += int(np.isinf(scores).sum())
            return scores

    task, model = Case("matmul", (64, 64, 64), "").task(), Half()
    params = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 2, "polish_ratio": 0.0}
    policy = ansor.SketchPolicy(task, model, params)
    policy.propose(0, 4, ansor.History())
    outcome = policy.last_outcome
    assert outcome is not None
    assert outcome.scored == model.asked
    assert outcome.valid == model.asked - model.refused > 0
    assert len(outcome.families) == 3


def test_a_taught_policy_searches_by_its_model() -> None:
    params = {
        "evolutionary_search_population": 64,
        "evolutionary_search_num_iters": 1,
        "first_round_more_iters": 0,
    }
    task = Case("matmul", (64, 64, 64), "").task()
    policy = search_throughput.taught_policy(task, 160, params)
    history = ansor.History()
    first = search_throughput.timed_round(policy, 0, history)
    assert 0 < first.valid <= first.scored <= 2 * 64
    assert len(history) > 0
    assert search_throughput.feature_count(policy) >= 164
    assert policy.model.informative
    model = policy.model
    assert 0.5 < search_throughput.share_of_round(policy, 1, history) <= 1.0
    assert policy.model is model


def test_made_up_labels_depend_on_the_program_and_are_reproducible() -> None:
    task = Case("matmul", (64, 64, 64), "").task()
    states = ansor.sample_programs(task, 12, np.random.default_rng(0))
    costs = [result.mean_cost for result in search_throughput.labels(task, states, 0)]
    assert costs == [result.mean_cost for result in search_throughput.labels(task, states, 0)]
    assert len(set(costs)) > 6
    assert search_throughput.labels(task, [], 0) == []


def test_peak_memory_is_that_of_the_process_itself() -> None:
    """What was given back counts; what the starting process holds does not."""
    held = np.ones(400 << 20, dtype=np.uint8)
    size = held.nbytes
    del held
    assert search_throughput.peak_bytes() > size
    assert 0 < fresh_process("experiments.search.throughput:peak_bytes") < size


# -- tuning time -----------------------------------------------------------------------------------------


def cold_start(seconds: float = 40.0) -> Run:
    improvements = (
        Improvement(0, 2.0, 1.0, 5e-2),
        Improvement(9, 10.0, 2.0, 1.02e-2),
        Improvement(31, 20.0, 3.0, 1.00e-2),
        Improvement(80, 35.0, 4.0, 0.98e-2),
    )
    ratios = ((), (0.90, 0.99, 1.0), (0.92, 0.92, 1.1), (0.90,) * 3)
    return Run(seconds, ((1.0, 4.0), (29.4, 34.4)), 100, improvements, ratios)


def test_a_time_counts_from_the_first_program_whose_median_holds_when_measured_again() -> None:
    """The improvement at 10 s was lucky in one process of three; it does not count."""
    run = cold_start()
    reached = run.reached(0.93)
    assert reached is not None
    assert reached.seconds == 20.0
    assert run.overhead(0.93) == 3.0 / 20.0
    assert run.reached(0.5) is None
    assert run.overhead(0.5) == 8.0 / 40.0
    found = [run.ratio_after(after) for after in (1.0, 10.0, 30.0, 40.0)]
    assert found == [float("inf"), 0.99, 0.92, 0.90]
    with pytest.raises(ValueError, match="was not measured again"):
        run.ratio_after(5.0)


def test_the_share_of_the_window_is_that_of_thirty_seconds_or_of_a_shorter_run() -> None:
    """Of thinking that goes on beyond the window, the part inside counts."""
    assert cold_start().overhead_within(30.0) == pytest.approx(3.6 / 30.0)
    assert cold_start(seconds=12.0).overhead_within(30.0) == pytest.approx(3.0 / 12.0)
    assert cold_start().overhead_within(5.0) == pytest.approx(3.0 / 5.0)


def test_a_run_without_a_program_in_time_is_a_miss_and_not_left_out() -> None:
    late = Run(61.0, ((0.0, 6.1),), 100, (Improvement(0, 40.0, 4.0, 1.0),), ((0.5,),))
    bench = Bench("", [])
    search_tuning.report(bench, [cold_start(), late, late], 60.0)
    after = rows(bench)["time over numpy's after 30 s, cold start"]
    assert (after.value, after.holds) == (float("inf"), False)
    assert "2 of 3 runs had no program" in (after.peer or "")
    alone = Bench("", [])
    search_tuning.report(alone, [late], 60.0)
    assert rows(alone)["time over numpy's after 30 s, cold start"].holds is False


def test_the_best_in_time_is_measured_again_however_slow_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is far from the run's best; lucky first looks choose, but do not count themselves."""
    costs = [9.0, 5.0, 1.2, 1.1, 1.05, 1.02, 1.01, 1.0]
    improvements = [Improvement(10 * at, 20.0 + 8 * at, 1.0, cost) for at, cost in enumerate(costs)]
    assert search_tuning.looked_at(improvements, 30.0) == [1, 2, 3, 4, 5, 6, 7]
    assert search_tuning.looked_at(improvements, 1.0) == [2, 3, 4, 5, 6, 7]
    asked: list[list[int]] = []

    def answer(function: str, log: str, wanted: list[int]) -> dict[str, float]:
        asked.append(wanted)
        first = len(asked) == 1
        return {str(index): 0.8 if first and index >= 30 else 1.0 + len(asked) for index in wanted}

    monkeypatch.setattr(search_tuning, "fresh_process", answer)
    found = search_tuning.measured_again("log", improvements, 30.0, processes=3)
    assert asked == [[10, 20, 30, 40, 50, 60, 70]] + [[10, 30, 40, 50, 70]] * 3
    assert found == [[], [3.0, 4.0, 5.0], [], *[[3.0, 4.0, 5.0]] * 3, [], [3.0, 4.0, 5.0]]
    assert search_tuning.measured_again("log", [], 30.0) == []


def test_a_cold_start_counts_from_the_moment_its_parent_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was started 100 s ago has no time left; making the policy is thinking."""
    monkeypatch.setattr(search_tuning, "CASES", {search_tuning.CASE: SMALL})
    born = time.monotonic() - 100.0
    found = search_tuning.cold_start(0, 50.0, str(tmp_path / "log"), born)
    assert 100.0 < found["seconds"] < 150.0
    assert found["trials"] == 0
    assert all(100.0 < begin < end for begin, end in found["spans"])
    assert found["spans"]


def test_thinking_is_counted_to_the_second_asked_for() -> None:
    clock = Clock(search_runs.random_policy(SMALL.task(), 0), limit=1e9)
    clock.spans += [(1.0, 2.0), (28.0, 33.0), (40.0, 41.0)]
    found = [search_runs.seconds_within(clock.spans, limit) for limit in (0.5, 1.5, 30.0, 35.0)]
    assert found == [0.0, 0.5, 3.0, 6.0]
    assert clock.thinking == 7.0


def test_tuning_has_goals_only_if_it_lasts_long_enough() -> None:
    quick = Run(5.0, ((0.0, 1.0),), 9, (Improvement(0, 1.0, 0.5, 1.0),), ((0.99,),))
    for limit, goals in ((60.0, [0.93, 30.0, 0.15, 0.15, None]), (2.0, [None] * 5)):
        bench = Bench("", [])
        search_tuning.report(bench, [quick if limit < 30 else cold_start()] * 3, limit)
        assert [row.goal for row in bench.rows] == goals


def test_a_run_that_does_not_get_there_counts_as_its_whole_length() -> None:
    slow = Run(61.0, ((0.0, 6.1),), 100, (Improvement(0, 2.0, 1.0, 1.0),), ((2.0,),))
    bench = Bench("", [])
    search_tuning.report(bench, [cold_start(), slow, slow], 60.0)
    until = rows(bench)["time until 0.93 of numpy's"]
    assert (until.value, until.holds) == (61.0, False)
    assert until.peer is not None
    assert until.peer.startswith("reached in 1 of 3 runs")


def test_the_clock_takes_the_time_of_thinking_and_ends_the_run() -> None:
    task = SMALL.task()
    clock = Clock(search_runs.random_policy(task, 0), limit=1e9)
    watch = Watch(clock)
    costs = iter([3.0, 2.0, 2.5, 1.0, 4.0, 4.0])
    options = ansor.TuningOptions(
        num_measure_trials=6,
        early_stopping=None,
        verbose=0,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(lambda inp: next(costs)),
        measure_callbacks=[watch],
    )
    task.tune(options, clock)
    assert [(one.index, one.cost) for one in watch.improvements] == [(0, 3.0), (1, 2.0), (3, 1.0)]
    assert all(0 < one.thinking <= one.seconds for one in watch.improvements)
    clock.limit = 0.0
    assert clock.propose(1, 4, ansor.History()) == ansor.Proposal((), "the time is up")


# -- few trials ------------------------------------------------------------------------------------------


def test_few_trials_are_held_to_the_best_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The median over seeds of each seed's median ratio; the goal is what the best recorded tuner reached."""
    times = taken({"seed 0": [1.0, 2.0, 9.0], "seed 1": [1.0] * 3, "seed 2": [4.0] * 3, "library": [2.0] * 3})
    monkeypatch.setattr(search_efficiency, "CASES", {"small": SMALL})
    monkeypatch.setattr(search_efficiency, "library_name", lambda case: "torch-nchw")
    monkeypatch.setattr(search_efficiency, "tuned", lambda *args: tmp_path / "log")
    monkeypatch.setattr(search_efficiency, "winners", lambda *args: times)
    bench = Bench("", [])
    search_efficiency.efficiency(bench, ["small"], 3, Peers.read(str(peers(tmp_path))))
    row, count = bench.rows
    assert (count.value, count.peer) == (0, "none")
    assert (row.value, row.interval, row.goal, row.holds) == (1.0, (0.5, 2.0), 0.75, False)
    assert row.peer is not None
    assert "MetaSchedule 1.25 after 64" in row.peer
    assert "timed 2026-01-02 03:04 UTC, with 0.98 of the cores" in row.peer
    other = taken({"seed 0": [1.0], "library": [2.0]})
    monkeypatch.setattr(search_efficiency, "winners", lambda *args: other)
    for trials in (63, 65):
        search_efficiency.efficiency(bench, ["small"], 1, Peers.read(str(peers(tmp_path))), trials)
        assert bench.rows[-2].goal is None, "a goal is for the trials that it was stated for"


def taken(times: dict[str, list[float]]) -> Kept:
    """Times that were taken some day."""
    return Kept(times, "2026-01-02 03:04 UTC", 0.98)


def test_a_task_without_a_peer_says_so_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {
        "small": SMALL,
        "few": Case("conv2d", (1, 4, 4, 3, 4, 3, 1, 1), "C", "torch-nhwc"),
        "none": Case("matmul", (8, 8, 8), "NONE"),
    }
    known = Peers.read(str(peers(tmp_path)))
    monkeypatch.setattr(search_efficiency, "CASES", cases)
    monkeypatch.setattr(search_efficiency, "TASKS", tuple(cases))
    monkeypatch.setattr(search_efficiency, "tuned", lambda *args: tmp_path / "log")
    times = {"seed 0": [1.0], "library": [1.0]}
    monkeypatch.setattr(search_efficiency, "winners", lambda *args: taken(times))
    for library, words, alone in (
        ("form", ["after 200", "after 64; no figure after 200 trials", "no recorded figure"], "none"),
        ("numpy", ["after 200", "goal lost: recorded beside torch-nhwc alone", "no recorded"], "few, none"),
    ):
        monkeypatch.setattr(
            search_efficiency, "library_name", lambda case, lib=library: case.form if lib == "form" else lib
        )
        bench = Bench("", [])
        search_efficiency.efficiency(bench, list(cases), 1, known)
        *each, count = bench.rows
        assert all(word in (row.peer or "") for word, row in zip(words, each, strict=True))
        assert (count.value, count.peer) == (len(alone.split(", ")), alone)
        assert search_efficiency.lost_goals(known) == ([] if library == "form" else ["few"])


def test_random_search_is_measured_again_beside_every_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def tuned(*args: Any) -> Path:
        asked.append(args)
        return tmp_path / "log"

    times = {
        "seed 0": [1.0, 1.0],
        "seed 1": [3.0, 3.0],
        "random 0": [9.0, 2.0],
        "random 1": [2.0, 1.0],
        "random 2": [1.0, 5.0],
        "library": [1.0, 1.0],
    }
    monkeypatch.setattr(search_efficiency, "tuned", tuned)
    monkeypatch.setattr(search_efficiency, "winners", lambda *args: taken(times))
    bench = Bench("", [])
    search_efficiency.random(bench, ["matmul-512"], 2, 3)
    (row,) = bench.rows
    assert "median of its seeds (3): 2e+03 ms (1.5e+03 .. 5.5e+03)" in (row.peer or "")
    assert (row.value, row.interval, row.goal, row.holds) == (1.0, (0.5, 1.5), 1.0, True)
    asked.clear()
    search_efficiency.random(bench, ["matmul-512"], 2, 3, random_trials=500)
    assert bench.rows[-1].goal is None, "a goal is for the trials that it was stated for"
    assert [(args[1], args[2], args[3]) for args in asked] == [
        ("default", 0, 64),
        ("default", 1, 64),
        ("random", 0, 500),
        ("random", 1, 500),
        ("random", 2, 500),
    ]


def test_logs_are_completed_and_winners_agree_with_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    monkeypatch.setattr(search_runs, "CASES", {"small": SMALL})
    policy = search_runs.random_policy
    log = search_runs.tuned("small", "title", 0, 2, policy)
    kept = log.read_text()
    assert search_runs.tuned("small", "title", 0, 2, policy) == log
    assert log.read_text() == kept
    log.write_text(kept.splitlines(keepends=True)[0])  # as if cut short
    search_runs.tuned("small", "title", 0, 2, policy)
    assert len(log.read_text().splitlines()) == 2
    assert log.read_text().startswith(kept.splitlines(keepends=True)[0])
    times = search_runs.compare("small", {"a": str(log)}, repeats=1)
    assert {name: len(values) for name, values in times.items()} == {"library": 1, "a": 1}


def test_a_winner_with_a_wrong_answer_is_an_error() -> None:
    kernel = ansor.build(*SMALL.task().apply_best(write_log()))
    inputs = SMALL.inputs()
    expected = SMALL.numpy_call(inputs)()
    search_runs.checked_call(kernel, inputs, expected)()
    with pytest.raises(AssertionError):
        search_runs.checked_call(kernel, inputs, expected + 1)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_log(costs: Sequence[float | None] = (2.0,), name: str = "some.log.json") -> Path:
    """A log of programs of the small task with these run times; None for a failure."""
    task = SMALL.task()
    states = ansor.sample_programs(task, len(costs), np.random.default_rng(0))
    failure = ansor.MeasureResult.failed(ansor.MeasureErrorNo.RUNTIME_DEVICE, "", 0.0, 1)
    results = [failure if cost is None else ansor.MeasureResult((cost,), timestamp=1) for cost in costs]  # type: ignore[arg-type]
    inputs = [ansor.MeasureInput(task, state) for state in states]
    ansor.save_records(name, inputs, results)
    return Path(name).resolve()


def test_the_best_so_far_never_rises_and_begins_with_the_first_success() -> None:
    log = write_log([None, 3.0, 4.0, 2.0, None])
    assert search_runs.best_so_far(log, 4) == [float("inf"), 3.0, 3.0, 2.0]


def test_what_is_kept_is_made_once_and_says_from_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = iter([0.97, 0.71])
    monkeypatch.setattr(search_runs, "quiet_share", lambda threads: next(shares))
    made: list[int] = []

    def make() -> list[float]:
        made.append(1)
        return [1.5]

    path = tmp_path / "value"
    first = search_runs.kept(path, make)
    assert "not measured now" not in capsys.readouterr().err
    again = search_runs.kept(path, make)
    assert first == again
    assert (first.value, first.quiet, len(made)) == ([1.5], 0.71, 1)
    assert f"not measured now: value (timed {first.date}, with 0.71" in capsys.readouterr().err


def test_circumstances_are_those_of_the_first_the_last_and_the_busiest() -> None:
    values = [Kept(0, "2026-01-03", 0.99), Kept(0, "2026-01-02", 0.5), Kept(0, "2026-01-02", 1.0)]
    expected = "timed 2026-01-02 to 2026-01-03, with 0.50 of the cores or more (busy: the ratios mean little)"
    assert search_runs.circumstances(values) == expected
    assert search_runs.circumstances(values[2:]) == "timed 2026-01-02, with 1.00 of the cores or more"


def test_what_runs_belong_to_depends_on_the_cases_and_the_surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_runs, "ROOT", tmp_path)
    for module in search_runs.EXPERIMENTS:
        path = tmp_path / "experiments" / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    search_runs.version.cache_clear()
    plain = search_runs.version()

    def changed() -> bool:
        search_runs.version.cache_clear()
        return search_runs.version() != plain

    try:
        assert not changed()
        (tmp_path / "experiments" / "search" / "cases.py").write_text("CASES = {}")
        assert changed()
        (tmp_path / "experiments" / "search" / "cases.py").write_text("")
        assert not changed()
        found = search_runs.surroundings()
        assert {"machine", "threads", "python", "numpy"} <= set(found)
        for name in found:
            monkeypatch.setattr(search_runs, "surroundings", lambda name=name: {**found, name: "other"})
            assert changed(), name
    finally:
        search_runs.version.cache_clear()


def test_processes_are_repeated_until_the_medians_are_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(seconds: list[float]) -> int:
        times = iter(seconds)
        monkeypatch.setattr(
            search_runs, "fresh_process", lambda *args: {"log": [next(times)], "library": [1.0]}
        )
        return len(search_runs.compared("small", {"log": Path("log")}, 5)["log"])

    assert count([1.0] * 15) == 5
    assert count([1.0, 1.0, 1.2, 1.0, 1.0] + [1.0] * 10) == 9  # the interval without both ends
    assert count([1.0, 2.0] * 8) == 15


def test_winners_are_timed_anew_when_a_log_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    monkeypatch.setattr(search_runs, "quiet_share", lambda threads: 1.0)
    times = iter([{"a": [1.0]}, {"a": [2.0]}, {"a": [3.0]}])
    monkeypatch.setattr(search_efficiency, "compared", lambda *args: next(times))
    log = tmp_path / "log"

    def value() -> Any:
        return search_efficiency.winners("small", {"a": log}, 1).value["a"]

    log.write_text("one")
    assert [value(), value()] == [[1.0], [1.0]]
    log.write_text("two")
    assert [value(), value()] == [[2.0], [2.0]]
    search_runs.folder(retime=True)
    assert value() == [3.0]


def test_timing_again_keeps_logs_and_cold_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    for name in ("a.log.json", "b.run", "c.times"):
        (search_runs.folder() / name).write_text("")
    search_runs.folder(retime=True)
    assert sorted(path.name for path in search_runs.folder().iterdir()) == ["a.log.json", "b.run"]


def test_a_fresh_start_forgets_earlier_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    old = search_runs.folder() / "old.log.json"
    old.write_text("")
    assert search_runs.folder() == old.parent
    assert old.exists()
    assert search_runs.version() in str(old)
    search_runs.folder(fresh=True)
    assert not old.exists()


def test_the_default_policy_is_that_of_tune() -> None:
    """Same class of model and same parameters, so that what is measured is what users get."""
    seen: list[Any] = []

    class Catch(ansor.MeasureCallback):
        def callback(self, policy: Any, inputs: object, results: object) -> None:
            seen.append(policy)

    task = SMALL.task()
    options = ansor.TuningOptions(
        num_measure_trials=1,
        num_measures_per_round=1,
        verbose=0,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(lambda inp: 1.0),
        measure_callbacks=[Catch()],
    )
    task.tune(options)
    ours = search_runs.default_policy(task, 0)
    assert type(seen[0].model) is type(ours.model)
    assert (seen[0].params, seen[0].mutations) == (ours.params, ours.mutations)


# -- models ----------------------------------------------------------------------------------------------


def test_records_of_models_lie_with_what_a_fresh_start_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told(Exception):
        """Ends the part."""

    def records(chosen: object, count: int, where: Path) -> None:
        assert where == search_runs.folder()
        raise Told

    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    monkeypatch.setattr(search_models, "records", records)
    with pytest.raises(Told):
        search_models.models(Bench("", []), 1)


def test_records_of_models_are_those_of_the_sizes_asked_for(tmp_path: Path) -> None:
    for size in (4, 8):
        data, tasks = bench_costmodel.records([("matmul", (size, size, size))], 2, tmp_path)
        ((key, *_),) = tasks
        assert json.loads(key)[1:4] == [size] * 3
        assert len(data) == 2
        assert data.task_keys == tuple(tasks)


def test_chance_orders_half_of_the_pairs() -> None:
    rng = np.random.default_rng(99)
    count = 200
    packed = ansor.PackedRows(np.zeros((count, 3), np.float32), np.arange(count + 1, dtype=np.int64))
    data = ansor.Dataset(
        packed,
        rng.uniform(1, 2, count),
        np.zeros(count, np.int64),
        (("key", "llvm"),),
        np.arange(count, dtype=np.uint64),
        np.zeros(count),
    )
    found = [search_models.chance(data, seed) for seed in range(8)]
    assert np.mean([one.order for one in found]) == pytest.approx(0.5, abs=0.03)
    assert np.mean([one.recall for one in found]) == pytest.approx(0.1, abs=0.1)


# -- the command line ------------------------------------------------------------------------------------


def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *argv: str
) -> list[tuple[str, bench_search.Options]]:
    """Run the command with parts that only say that they were called."""
    called: list[tuple[str, bench_search.Options]] = []
    for part in list(bench_search.PARTS):
        monkeypatch.setitem(
            bench_search.PARTS, part, lambda bench, options, part=part: called.append((part, options))
        )
    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    monkeypatch.setattr(bench_search, "quiet_share", lambda threads: 1.0)
    assert bench_search.main(argv) == 0
    return called


def test_a_busy_machine_is_a_missed_goal() -> None:
    bench = Bench("", [])
    bench_search.report_quiet(bench, [1.0, 0.5, 0.6])
    assert (bench.rows[0].value, bench.rows[0].holds) == (0.6, False)
    quick = Bench("", ["--quick"])
    bench_search.report_quiet(quick, [0.5])
    assert quick.rows[0].holds is None


def test_all_parts_are_run_and_a_quick_run_leaves_random_search_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    everything = [part for part, _ in run(monkeypatch, tmp_path)]
    assert everything == list(bench_search.PARTS)
    quick = run(monkeypatch, tmp_path, "--quick")
    assert [part for part, _ in quick] == [part for part in everything if part != "random"]
    assert quick[0][1].seeds == 1
    assert quick[0][1].chosen(("a", "b")) == ("a",)


def test_a_quick_run_does_little_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is to end within a minute: what that takes is counted where the work would be done."""
    work: Counter[str] = Counter()

    def counted(name: str, answer: Any, amount: Callable[..., float] = lambda *args: 1) -> Callable[..., Any]:
        def stand_in(*args: Any, **options: Any) -> Any:
            work[name] += amount(*args)  # type: ignore[assignment]
            return answer

        return stand_in

    for module in (search_efficiency, search_ablation):
        answer = tmp_path / "log"
        monkeypatch.setattr(module, "tuned", counted("trials", answer, lambda *args: args[3]))
    times = {name: [1.0] for name in ("seed 0", "default", "no cost model", "library")}
    for module in (search_efficiency, search_ablation):
        monkeypatch.setattr(module, "winners", counted("processes", taken(times), lambda *args: args[2]))
    monkeypatch.setattr(search_ablation, "best_so_far", lambda *args: [1.0])
    quick = Run(5.0, ((0.0, 1.0),), 9, (Improvement(0, 1.0, 0.5, 1.0),), ((0.99,),))
    run_of = counted("seconds of tuning", (quick, [taken({})]), lambda *args: args[1] * (1 + args[2]))
    monkeypatch.setattr(search_tuning, "run_of", run_of)
    monkeypatch.setattr(search_throughput, "taught_policy", counted("taught policies", None))
    monkeypatch.setattr(search_throughput, "timed_round", counted("rounds", Round(1, 1, (1,), 1.0)))
    monkeypatch.setattr(search_throughput, "share_of_round", counted("rounds", 1.0))
    monkeypatch.setattr(search_throughput, "feature_count", lambda policy: 200)
    peak = counted("programs in memory", {"before": 1, "after": 2}, lambda *args: args[2])
    monkeypatch.setattr(search_throughput, "fresh_process", peak)
    some = (ansor.Dataset.empty(3), {})
    records = counted("records", some, lambda chosen, count, where: count * len(chosen))
    monkeypatch.setattr(search_models, "records", records)
    for name in ("judge", "chance", "report"):
        monkeypatch.setattr(search_models, name, counted(name, None))
    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    monkeypatch.setattr(bench_search, "quiet_share", lambda threads: 1.0)
    bench_search.main(["--quick"])
    most = {
        "trials": 32,
        "processes": 2,
        "seconds of tuning": 10,
        "taught policies": 1,
        "rounds": 3,
        "programs in memory": 2048,
        "records": 24,
        "judge": len(bench_costmodel.LEARNERS) - len(bench_costmodel.SLOW),
    }
    assert {name: work[name] for name in most if not 0 < work[name] <= most[name]} == {}


def test_the_rows_of_earlier_parts_outlive_one_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(bench: Bench, options: bench_search.Options) -> None:
        raise RuntimeError("a part failed")

    monkeypatch.setitem(bench_search.PARTS, "throughput", lambda bench, options: bench.add("fast", 1.0, "x"))
    monkeypatch.setitem(bench_search.PARTS, "memory", fail)
    monkeypatch.setattr(search_runs, "OUT", tmp_path)
    monkeypatch.setattr(bench_search, "quiet_share", lambda threads: 1.0)
    rows = tmp_path / "rows.json"
    with pytest.raises(RuntimeError, match="a part failed"):
        bench_search.main(["--only", "throughput,memory", "--json", str(rows)])
    assert [row["name"] for row in json.loads(rows.read_text())][:1] == ["fast"]


def test_a_person_can_run_parts_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = ["--only", "memory,random", "--seeds", "3", "--tasks", "conv2d-7", "--random-trials", "50"]
    called = run(monkeypatch, tmp_path, *arguments)
    assert [part for part, _ in called] == ["memory", "random"]
    options = called[0][1]
    assert (options.seeds, options.tasks, options.random_trials) == (3, ("conv2d-7",), 50)
    assert options.random_seeds == 3
    assert run(monkeypatch, tmp_path, *arguments, "--random-seeds", "2")[0][1].random_seeds == 2
    assert options.chosen(("a", "b")) == ("conv2d-7",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "speed"], "there is no speed; known are throughput"),
        (["--tasks", "matmul-512,gemm"], "there is no gemm; known are matmul-512"),
        (["--seeds", "0"], "'0' is no positive whole number"),
    ],
)
def test_words_that_it_does_not_know_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    bench_search.add_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(arguments)
    assert message in capsys.readouterr().err
