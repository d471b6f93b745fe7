"""Programs that a search draws and breeds for GPUs are right: interpreted, and on each device there is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ansor
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.task.gpu_limits import gpu_faults
from measure import LocalBuilder, LocalRunner, load_records
from search.mutations.defaults import GPU_MUTATIONS
from search.plans import plan_key
from sketches import ColumnKind, Population, ProgramSpace
from sketches.limits import refusals
from sketches.neighbours import Neighbourhood
from sketches.params import GPU_UNROLL_CANDIDATES
from sketches.repair import admitted
from tests.device_kernels import each_device_of_workers
from tests.gpu_cases import GPU, GPU_SMALL, gpu_task
from tests.gpu_schedules import MOST_STEPS, kernels, steps, variants
from tests.program_laws import Case


@cache
def case_of(name: str) -> tuple[Case, Neighbourhood]:
    task = gpu_task(GPU_SMALL[name]())
    case = Case.of(State.initial(ComputeDAG(GPU_SMALL[name]())))
    return case, Neighbourhood(ProgramSpace.of(task))


def check_programs(case: Case, populations: list[Population]) -> int:
    """Every row becomes kernels within the limits, and those that are short enough are run; returns these."""
    run = 0
    for population in populations:
        for row in range(len(population)):
            for nest in variants(population.materialize(row)):
                assert gpu_faults(nest, GPU) == (), str(nest)
                if steps(nest.body) <= MOST_STEPS:
                    case.check_interpreted(nest, check_races=True)
                    run += 1
    return run


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(GPU_SMALL)), st.integers(0, 2**31))
def test_sampled_gpu_programs_are_right(name: str, seed: int) -> None:
    case, neighbourhood = case_of(name)
    sample = neighbourhood.space.sample(4, np.random.default_rng(seed))
    check_programs(case, list(sample.populations))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(GPU_SMALL)), st.sampled_from(range(len(GPU_MUTATIONS))), st.integers(0, 2**31))
def test_mutated_gpu_programs_are_right(name: str, which: int, seed: int) -> None:
    case, neighbourhood = case_of(name)
    rng = np.random.default_rng(seed)
    for parents in neighbourhood.space.sample(3, rng).populations:
        offspring = GPU_MUTATIONS[which][0].propose(parents, neighbourhood, rng)
        check_programs(case, [admitted(one, neighbourhood.space.context) for one in offspring.populations])


@pytest.mark.parametrize("name", sorted(GPU_SMALL))
def test_of_each_computation_some_programs_are_run(name: str) -> None:
    case, neighbourhood = case_of(name)
    assert check_programs(case, list(neighbourhood.space.sample(3, np.random.default_rng(5)).populations))


@pytest.mark.parametrize("name", ["square", "wide softmax", "convolution", "wide row sum"])
def test_limits_of_columns_are_those_of_kernels(name: str) -> None:
    """What is refused of rows takes too much as kernels, too, and nothing else does."""
    _, neighbourhood = case_of(name)
    context = neighbourhood.space.context
    for population in neighbourhood.space.sample(30, np.random.default_rng(1)).populations:
        assert not any(rows.any() for rows in refusals(population, context).values())
        for row in range(len(population)):
            assert gpu_faults(kernels(population.materialize(row)), context.hardware) == ()


def test_limits_of_unrolling_that_change_nothing_give_one_plan() -> None:
    """Loops over private arrays are unrolled anyway, and a limit beyond all steps is as good as another."""
    task = gpu_task(GPU_SMALL["square"]())
    counts = []
    for population in ProgramSpace.of(task).sample(12, np.random.default_rng(0)).populations:
        (column,) = population.family.positions(ColumnKind.UNROLL)
        for row in range(len(population)):
            values = np.repeat(population.values[row : row + 1], len(GPU_UNROLL_CANDIDATES), axis=0)
            values[:, column] = GPU_UNROLL_CANDIDATES
            rows = Population(population.family, values)
            counts.append(len({plan_key(task, rows.materialize(number)) for number in range(len(rows))}))
    assert min(counts) < len(GPU_UNROLL_CANDIDATES)
    assert max(counts) > 1


@pytest.fixture(scope="module")
def workers(quick_pocl: None) -> Iterator[tuple[LocalBuilder, LocalRunner]]:
    with LocalBuilder(timeout=60, n_parallel=1) as builder, LocalRunner(60, 1, 1, 0) as runner:
        yield builder, runner


@each_device_of_workers
@pytest.mark.parametrize(
    ("func", "args"),
    [
        ("ansor.matmul", (32, 24, 20)),
        ("ansor.softmax", (12, 100)),
        ("ansor.conv2d", (1, 7, 7, 8, 16, 3, 1, 1)),
        ("ansor.norm", (4, 16, 32)),
    ],
)
def test_a_search_on_a_device_measures_right_programs(
    kind: str,
    func: str,
    args: tuple[int, ...],
    workers: tuple[LocalBuilder, LocalRunner],
    tmp_path: Path,
) -> None:
    task = ansor.SearchTask(func=func, args=args, target=kind)
    log = tmp_path / "log.json"
    builder, runner = workers
    options = ansor.TuningOptions(
        num_measure_trials=4,
        num_measures_per_round=2,
        builder=builder,
        runner=runner,
        measure_callbacks=[ansor.RecordToFile(log)],
        verbose=0,
    )
    params = {
        "evolutionary_search_population": 32,
        "evolutionary_search_num_iters": 1,
        "max_families": 4,
    }
    result = task.tune(options, ansor.SketchPolicy(task, params=params))
    assert result.trials == 4
    errors = [
        (measured.error_no, measured.error_msg) for _, measured in load_records(str(log)) if measured.error_no
    ]
    assert not errors, errors
    schedule, tensors = task.apply_best(log)
    module = ansor.build(schedule, tensors, target=kind)
    assert module.get_source(kind)
