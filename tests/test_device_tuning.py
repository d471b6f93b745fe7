"""A whole search for an OpenCL program, as a user runs it: on a GPU, or on the CPU by PoCL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.task.hardware import HardwareParams
from costmodel import DraftedModel
from tests.device_kernels import needs_opencl
from tests.search_fakes import logged

ROUND, CUT, TRIALS = 4, 6, 10
"""Programs of a round, those before the run was ended, and all."""
SIZES = (24, 32, 20)
SMALL_GPU = HardwareParams(-1, 16, 64, 32768, 2**31 - 1, 256, 8, 32)
"""Blocks of warps and virtual threads, which PoCL's own figures leave no room for."""
PARAMS: dict[str, Any] = {
    "evolutionary_search_population": 64,
    "evolutionary_search_num_iters": 2,
    "max_families": 8,
}

pytestmark = [needs_opencl, pytest.mark.usefixtures("quick_pocl")]


@pytest.fixture(scope="module")
def task() -> ansor.SearchTask:
    return ansor.SearchTask("ansor.matmul", SIZES, target="opencl", hardware_params=SMALL_GPU)


def policy_of(task: ansor.SearchTask) -> ansor.SketchPolicy:
    return ansor.SketchPolicy(task, params=PARAMS, seed=1)


@pytest.fixture(scope="module")
def tuned(
    task: ansor.SearchTask, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, ansor.TuningResult, ansor.SketchPolicy]:
    """The log of a run that was ended in the midst of a round and taken up again, and what that one found."""
    log = tmp_path_factory.mktemp("tuned") / "matmul.json"
    with ansor.LocalBuilder(timeout=60) as builder, ansor.LocalRunner(60, 1, 2, 0) as runner:
        for trials in (CUT, TRIALS - CUT):
            policy = policy_of(task)
            options = ansor.TuningOptions(
                num_measure_trials=trials,
                num_measures_per_round=ROUND,
                early_stopping=None,
                builder=builder,
                runner=runner,
                measure_callbacks=[ansor.RecordToFile(log)],
                verbose=0,
            )
            result = task.tune(options, policy)
            assert result.trials == trials
    return log, result, policy


def test_every_program_of_a_resumed_search_is_right(
    task: ansor.SearchTask, tuned: tuple[Path, ansor.TuningResult, ansor.SketchPolicy]
) -> None:
    """Each was compared with the answer when it was measured; none is measured twice but the finalists."""
    log, result, policy = tuned
    assert result.known_trials == TRIALS
    assert not result.errors, result.error_examples
    assert isinstance(policy.model, DraftedModel)
    assert policy.model.num_records == TRIALS
    keys = logged(log, task)
    assert len(set(keys)) == TRIALS
    assert set(keys[TRIALS:]) <= set(keys[:TRIALS])
    assert len(set(keys[:TRIALS])) == TRIALS


def test_the_same_results_give_the_same_candidates(
    task: ansor.SearchTask, tuned: tuple[Path, ansor.TuningResult, ansor.SketchPolicy], tmp_path: Path
) -> None:
    """A run that nobody interrupted, told what the device said, proposes what was proposed."""
    log, _, _ = tuned
    again = tmp_path / "again.json"
    runner = ansor.SimulatedRunner(log)
    options = ansor.TuningOptions(
        num_measure_trials=TRIALS,
        num_measures_per_round=ROUND,
        early_stopping=None,
        builder=ansor.NullBuilder(),
        runner=runner,
        measure_callbacks=[ansor.RecordToFile(again)],
        verbose=0,
    )
    task.tune(options, policy_of(task))
    assert runner.from_log == runner.asked == TRIALS
    assert logged(again, task) == logged(log, task)[:TRIALS]


def test_the_best_program_is_built_again_from_the_log(
    task: ansor.SearchTask, tuned: tuple[Path, ansor.TuningResult, ansor.SketchPolicy]
) -> None:
    log, result, _ = tuned
    schedule, tensors = task.apply_best(log)
    assert result.best_state is not None
    assert str(schedule.state.with_bounds()) == str(result.best_state.with_bounds())
    module = ansor.build(schedule, tensors, target=task.target, name="product")
    assert "__kernel" in module.get_source("opencl")
    n, m, k = SIZES
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((n, k), (k, m)))
    np.testing.assert_allclose(module(a, b), a @ b, rtol=1e-4, atol=1e-4)
