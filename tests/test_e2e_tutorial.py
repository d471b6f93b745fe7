"""The auto-scheduler tutorial, start to end, on a small problem; nothing in it is about speed."""

import json

import numpy as np
import pytest

import ansor as auto_scheduler
from ansor import te
from experiments import tutorial

pytestmark = pytest.mark.usefixtures("small_searches")

SHAPE = (64, 48, 32)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run of the tutorial: its outcome and its log."""
    log = tmp_path_factory.mktemp("tutorial") / "logs" / "matmul.json"
    outcome = tutorial.tutorial(SHAPE, trials=4, resumed_trials=2, log_file=log, min_repeat_ms=5, verbose=0)
    return outcome, log


def task():
    return auto_scheduler.SearchTask(
        func=tutorial.tutorial_matmul_add, args=(*SHAPE, "float32"), target="llvm"
    )


def test_the_dag_shows_what_each_stage_computes():
    assert str(task().compute_dag).splitlines() == [
        "A = PLACEHOLDER [64, 48]",
        "B = PLACEHOLDER [48, 32]",
        "matmul(i, j) += (A[i, k]*B[k, j])",
        "C = PLACEHOLDER [64, 32]",
        "out(i, j) = (matmul[i, j] + C[i, j])",
    ]


def test_every_trial_is_new_and_in_the_log(run):
    outcome, log = run
    assert (outcome.trials, outcome.resumed_trials, outcome.records) == (4, 2, 6)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(records) == 6
    assert all(json.loads(r["i"][0][0]) == ["tutorial_matmul_add", *SHAPE, "float32"] for r in records)
    assert len({json.dumps(r["i"][1]) for r in records}) == 6


def test_the_best_program_is_timed_and_shown(run):
    outcome, _ = run
    assert outcome.median_seconds > 0
    assert outcome.lowered.startswith(
        "main(A: float32[64, 48], B: float32[48, 32], C: float32[64, 32]) -> out"
    )


def test_the_printed_schedule_rebuilds_the_very_program(run):
    outcome, log = run
    sch, args = task().apply_best(log)
    namespace = {}
    exec(task().print_best(log), namespace)
    rebuilt = auto_scheduler.lower(namespace["s"], namespace["tensors"])

    assert str(rebuilt) == str(auto_scheduler.lower(sch, args))
    assert outcome.code.startswith("from ansor import te\n")


def test_resuming_measures_nothing_twice_and_counts_new_trials_only(run, tmp_path):
    """The short way: the same log again. Two more trials are two new ones."""
    _, log = run
    copy = tmp_path / "copy.json"
    copy.write_bytes(log.read_bytes())
    before = copy.read_text().count("\n")
    result = task().tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=2, verbose=0, measure_callbacks=[auto_scheduler.RecordToFile(copy)]
        )
    )

    assert (result.trials, result.known_trials) == (2, before + 2)
    programs = [json.dumps(json.loads(line)["i"][1]) for line in copy.read_text().splitlines()]
    assert len(set(programs)) == len(programs) == before + 2


def test_another_log_may_be_preloaded_while_writing_a_new_one(run, tmp_path):
    _, log = run
    fresh = tmp_path / "fresh.json"
    model = auto_scheduler.XGBModel()
    model.update_from_file(log)
    policy = auto_scheduler.SketchPolicy(
        task(), model, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log)]
    )
    result = task().tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=1, verbose=0, measure_callbacks=[auto_scheduler.RecordToFile(fresh)]
        ),
        search_policy=policy,
    )

    assert result.trials == 1
    known = {json.dumps(json.loads(line)["i"][1]) for line in log.read_text().splitlines()}
    assert json.dumps(json.loads(fresh.read_text())["i"][1]) not in known


def test_the_tuned_function_is_called_in_both_ways_and_exported(run, tmp_path):
    _, log = run
    sch, args = task().apply_best(log)
    func = auto_scheduler.build(sch, args, "llvm", name="matmul_add")
    a, b, c = (
        np.random.default_rng(n).uniform(size=t.shape).astype(np.float32) for n, t in enumerate(args[:3])
    )
    out = np.empty((64, 32), np.float32)
    func(a, b, c, out)

    np.testing.assert_allclose(out, a @ b + c, rtol=1e-3)
    assert np.array_equal(func(a, b, c), out)
    func.export_library(tmp_path / "matmul_add.so")
    assert np.array_equal(auto_scheduler.load_module(tmp_path / "matmul_add.so")(a, b, c), out)


def test_a_task_is_made_without_registering_too(tmp_path):
    """The expression itself is enough; its records carry a key made of its structure."""
    a = te.placeholder((16, 8), name="A")
    b = te.compute((16, 8), lambda i, j: te.exp(a[i, j]), name="B")
    log = tmp_path / "exp.json"
    anonymous = auto_scheduler.SearchTask(compute_dag=[a, b], target="llvm")
    anonymous.tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=1, verbose=0, measure_callbacks=[auto_scheduler.RecordToFile(log)]
        )
    )
    sch, args = anonymous.apply_best(log)
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(16, 8)

    np.testing.assert_allclose(auto_scheduler.build(sch, args)(x), np.exp(x), rtol=1e-5)
