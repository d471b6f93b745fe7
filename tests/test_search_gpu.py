"""Searching for GPU programs without a GPU: every program that is bred, picked or resumed fits the device."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ansor
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep
from costmodel import AnalyticModel, RandomModel
from measure import MeasureInput, MeasureResult, load_records
from search.cli.main import run
from search.crossover import crossover
from search.exhaustive import enumerate_space
from search.mutations.columns import FetchLength, ThreadCount
from search.mutations.defaults import GPU_MUTATIONS
from search.mutations.mutation import Mutation
from search.mutations.tiles import TileSize
from search.polish import neighbours
from sketches import ColumnKind, Population, ProgramSpace
from sketches.neighbours import Neighbourhood
from sketches.remap import Names
from sketches.repair import admitted
from sketches.signature import fingerprints
from tests.gpu_cases import GPU, GPU_SMALL, check_gpu_program, gpu_task
from tests.search_fakes import simulated_cost
from tests.sketches_cases import matmul, row_sum, softmax

MUTATIONS = [mutation for mutation, _ in GPU_MUTATIONS]


@cache
def space_of(name: str) -> Neighbourhood:
    return Neighbourhood(ProgramSpace.of(gpu_task(GPU_SMALL[name]())))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def children_of(mutation: Mutation, parents: Population, neighbourhood: Neighbourhood) -> list[Population]:
    offspring = mutation.propose(parents, neighbourhood, rng(1))
    return [admitted(child, neighbourhood.space.context) for child in offspring.populations]


# -- breeding ----------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(GPU_SMALL)), st.sampled_from(range(len(MUTATIONS))), st.integers(0, 2**31))
def test_every_admitted_gpu_mutant_is_legal(name: str, which: int, seed: int) -> None:
    neighbourhood = space_of(name)
    for parents in neighbourhood.space.sample(8, rng(seed)).populations:
        for child in children_of(MUTATIONS[which], parents, neighbourhood):
            for row in range(len(child)):
                check_gpu_program(child.materialize(row))


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(GPU_SMALL)), st.integers(0, 2**31))
def test_every_admitted_gpu_cross_is_legal(name: str, seed: int) -> None:
    neighbourhood = space_of(name)
    populations = neighbourhood.space.sample(12, rng(seed)).populations
    names = Names()
    spread = names.spread(populations)
    for parents in populations:
        donors = names.gather(spread[rng(seed).integers(len(spread), size=len(parents))], parents.family)
        for child in crossover(parents, donors, neighbourhood, rng(seed)).populations:
            kept = admitted(child, neighbourhood.space.context)
            for row in range(len(kept)):
                check_gpu_program(kept.materialize(row))


def test_each_gpu_mutation_changes_its_kind_of_column() -> None:
    neighbourhood = Neighbourhood(ProgramSpace.of(gpu_task(softmax(200, 300))))
    product = Neighbourhood(ProgramSpace.of(gpu_task(matmul(256, 256, 256))))
    for mutation, kind, space in (
        (ThreadCount(), ColumnKind.THREADS, neighbourhood),
        (FetchLength(), ColumnKind.FETCH, product),
        (TileSize(), ColumnKind.TILE, product),
    ):
        parents = max(space.space.sample(60, rng(2)).populations, key=len)
        offspring = mutation.propose(parents, space, rng(3))
        (children,), (rows,) = offspring.populations, offspring.parents
        changed = (children.values != parents.values[rows]).any(axis=0)
        assert set(np.flatnonzero(changed)) <= set(parents.family.positions(kind))
        assert len(children) > 0.5 * len(parents)


def test_threads_stay_whole_warps() -> None:
    """Mutated numbers of threads are those that sampling draws."""
    neighbourhood = Neighbourhood(ProgramSpace.of(gpu_task(row_sum(3000, 700))))
    for parents in neighbourhood.space.sample(60, rng()).populations:
        for child in children_of(ThreadCount(), parents, neighbourhood):
            for at in child.family.positions(ColumnKind.THREADS):
                assert set(child.values[:, at].tolist()) <= {32, 64, 128, 256, 512, 1024}


def test_stages_of_gpu_programs_stay_where_they_are() -> None:
    neighbourhood = Neighbourhood(ProgramSpace.of(gpu_task(softmax(64, 100))))
    for population in neighbourhood.space.sample(30, rng()).populations:
        assert neighbourhood.relocations(population.family) == ()
    for sketch in neighbourhood.space.sketches:
        (family,) = neighbourhood.families(sketch, 100) or ()
        assert family.steps == sketch.steps


def test_rows_beyond_the_limits_are_dropped_and_counted() -> None:
    """Whatever a model thinks of them: here shared memory is made to overflow."""
    from collections import Counter

    neighbourhood = Neighbourhood(ProgramSpace.of(gpu_task(matmul(512, 512, 512))))
    (population,) = neighbourhood.space.sample(20, rng()).populations
    values = population.values.copy()
    for hole in population.family.tiles[-1:]:
        values[:, hole.start : hole.stop] = (8, 64)
    for hole in population.family.tiles[:2]:
        values[:10, hole.start : hole.stop] = (1, 16, 4, 4)
    refused: Counter[str] = Counter()
    kept = admitted(Population(population.family, values), neighbourhood.space.context, refused)
    assert refused["more than 49152 bytes of shared memory"] >= 10
    assert len(kept) + refused.total() == len(values)


# -- sameness ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["square", "fused square", "wide softmax", "convolution"])
def test_equal_fingerprints_are_equal_gpu_programs(name: str) -> None:
    """Loops that differ in how they are bound are not taken for each other."""
    keys: dict[int, str] = {}
    for population in space_of(name).space.sample(120, rng(4)).populations:
        prints = fingerprints(population)
        for row in range(len(population)):
            state = population.materialize(row)
            shape = str(state.with_bounds())
            text = "\n".join(line for line in shape.splitlines() if "auto_unroll" not in line)
            assert keys.setdefault(int(prints.fine[row]), text) == text
    assert len(keys) > 20


def test_neighbours_of_a_gpu_program_are_one_step_away() -> None:
    space = ProgramSpace.of(gpu_task(softmax(200, 300)))
    kinds: set[ColumnKind] = set()
    for population in space.sample(30, rng()).populations:
        ring = neighbours(population.take([0]), space.context)
        for values in ring.values:
            (changed,) = np.flatnonzero(values != population.values[0])
            kinds.add(population.family.columns[changed].kind)
    assert kinds == {ColumnKind.THREADS, ColumnKind.UNROLL}


def test_a_small_gpu_space_is_listed() -> None:
    """Threads of every stage, whole warps up to what they share, and unroll limits, in all combinations."""
    neighbourhood = Neighbourhood(ProgramSpace.of(gpu_task(row_sum(40, 200))))
    populations = enumerate_space(neighbourhood, 2048)
    assert populations is not None
    listed = {len(population) for population in populations}
    assert listed == {4 * 5, 2 * 5}
    for population in populations:
        check_gpu_program(population.materialize(0))


# -- tuning ------------------------------------------------------------------------------------------------


def answers(inp: MeasureInput) -> MeasureResult:
    """Measure nothing, and insist that the program fits."""
    assert isinstance(inp.state, State)
    ansor.verify_gpu(inp.state, GPU)
    return simulated_cost(inp)


def options(trials: int, log: Path, round_size: int = 16) -> ansor.TuningOptions:
    return ansor.TuningOptions(
        num_measure_trials=trials,
        num_measures_per_round=round_size,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(answers),
        measure_callbacks=[ansor.RecordToFile(log)],
        verbose=0,
    )


SMALL_SEARCH = {
    "evolutionary_search_population": 64,
    "evolutionary_search_num_iters": 2,
    "first_round_more_iters": 0,
}


@pytest.mark.parametrize("target", ["cuda -arch=sm_90", "opencl"])
def test_a_gpu_search_evolves_logs_and_resumes(target: str, tmp_path: Path) -> None:
    """Half a run, taken up again from its log, measures what a whole one does."""
    task = ansor.SearchTask(func="ansor.matmul", args=(128, 96, 64), target=target, hardware_params=GPU)
    whole, halved = tmp_path / "whole.json", tmp_path / "halved.json"
    params = {**SMALL_SEARCH, "first_rounds_size": 8, "polish_after": 8}
    policy = ansor.SketchPolicy(task, params=params)
    result = task.tune(options(24, whole, 8), policy)
    assert result.trials == 24
    assert policy.last_outcome is not None
    assert len(policy.last_outcome.families) == 3
    for trials in (12, 12):
        task.tune(options(trials, halved, 8), ansor.SketchPolicy(task, params=params))
    keys = [
        [program_key(State.replay(task.compute_dag, inp.state.steps)) for inp, _ in load_records(str(log))]
        for log in (whole, halved)
    ]
    assert len(set(keys[0])) == 24
    assert keys[0] == keys[1]
    text = task.print_best(whole)
    assert "threadIdx.x" in text
    schedule, _ = task.apply_best(whole)
    check_gpu_program(schedule.state)


@pytest.mark.parametrize("func", ["ansor.softmax", "ansor.conv2d", "ansor.norm"])
def test_models_that_know_nothing_of_limits_propose_what_fits(func: str, tmp_path: Path) -> None:
    args: dict[str, tuple[Any, ...]] = {
        "ansor.softmax": (64, 128),
        "ansor.conv2d": (1, 14, 14, 16, 32, 3, 1, 1),
        "ansor.norm": (64, 64, 64),
    }
    task = ansor.SearchTask(func=func, args=args[func], target="cuda", hardware_params=GPU)
    for model in (RandomModel(0), AnalyticModel()):
        log = tmp_path / f"{type(model).__name__}.json"
        policy = ansor.SketchPolicy(task, model, params=SMALL_SEARCH)
        assert task.tune(options(16, log), policy).trials == 16


def test_a_log_of_a_gpu_program_is_one_that_tvm_reads(tmp_path: Path) -> None:
    """Only steps of TVM, and extents of all splits, where nothing is double-buffered."""
    task = ansor.SearchTask(func="ansor.matmul", args=(64, 64, 64), target="cuda", hardware_params=GPU)
    log = tmp_path / "log.json"
    task.tune(
        options(8, log),
        ansor.SketchPolicy(task, params={**SMALL_SEARCH, "gpu_multi_buffer": 1, "gpu_swizzle": 0}),
    )
    assert not any(line.startswith("#") for line in log.read_text().splitlines())
    for inp, _ in load_records(str(log)):
        splits = [step for step in inp.state.steps if isinstance(step, SplitStep)]
        assert all(split.extent for split in splits)


def test_the_command_line_shows_a_gpu_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "matmul", "64", "64", "64", "--target", "cuda -arch=sm_80"]) == 0
    shown = capsys.readouterr().out
    assert "B.shared" in shown
    assert "C.local" in shown


def test_reasons_for_having_no_gpu_program_are_told(tmp_path: Path) -> None:
    from ansor.task.hardware import HardwareParams

    small = HardwareParams(-1, 16, 64, 16, 2**31 - 1, 1024, 8, 32)
    task = ansor.SearchTask(func="ansor.matmul", args=(64, 64, 64), target="cuda", hardware_params=small)
    result = task.tune(options(4, tmp_path / "log.json"), ansor.SketchPolicy(task, params=SMALL_SEARCH))
    assert result.trials == 0
    assert "more than 16 bytes of shared memory" in result.message
