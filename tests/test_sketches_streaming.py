"""Stores past the caches in the space of programs: where they are offered, sampled, and changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.te.tensor import Tensor
from ansor.workloads.catalogue import get_workload
from costmodel import AnalyticModel
from costmodel.extraction.extract import extract
from costmodel.features.table import INDEX, unscale
from measure import load_records
from measure.simulate import SimulatedRunner
from search.mutations.columns import StreamingStores
from search.polish import neighbours
from sketches import ColumnKind, ProgramSpace
from sketches.annotate import DERIVE
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.repair import repaired
from sketches.signature import fingerprints
from tests.program_laws import check_replay
from tests.search_fakes import TileModel, logged, options

ON = {"cpu_streaming_stores": 1}
ZEN4 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2"
SMALL, LARGE = 1 << 8, 1 << 12
"""Rows and columns of arrays that fit any last cache, and that fit none of today's together."""


def elementwise(n: int) -> list[Tensor]:
    a = te.placeholder((n, 4 * n), name="A")
    return [a, te.compute((n, 4 * n), lambda i, j: te.maximum(a[i, j], 0.0), name="B")]


def rows_of_sums(n: int) -> list[Tensor]:
    """An output that is a small part of what moves."""
    a = te.placeholder((n, 4 * n), name="A")
    k = te.reduce_axis((0, 4 * n), name="k")
    total = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="Total")
    return [a, te.compute((n,), lambda i: total[i] * 2.0, name="B")]


def sums_to_matrix(n: int) -> list[Tensor]:
    """An output that a reduction accumulates."""
    a = te.placeholder((2, n, 4 * n), name="A")
    k = te.reduce_axis((0, 2), name="k")
    return [a, te.compute((n, 4 * n), lambda i, j: te.sum(a[k, i, j], axis=k), name="B")]


def space_of(tensors: list[Tensor], target: str = ZEN4, **params: int) -> ProgramSpace:
    return ProgramSpace.of(ansor.SearchTask(compute_dag=tensors, target=target), {**ON, **params})


def columns(space: ProgramSpace) -> set[str]:
    sample = space.sample(20, np.random.default_rng(0))
    found = [c for p in sample.populations for c in p.family.columns if c.kind is ColumnKind.STREAM]
    return set(map(str, found))


def streaming(population: Population) -> Population:
    """Some programs of `population`'s family with cached stores, then the same with streaming ones."""
    (at,) = population.family.positions(ColumnKind.STREAM)
    values = np.concatenate([population.values, population.values])
    values[:, at] = np.repeat([0, 1], len(population))
    return Population(population.family, values)


def population_of(space: ProgramSpace, count: int = 10) -> Population:
    return space.sample(count, np.random.default_rng(1)).populations[0]


def test_outputs_are_offered_where_the_caches_cannot_hold_the_program() -> None:
    assert columns(space_of(elementwise(LARGE))) == {"stream B"}
    assert columns(space_of(elementwise(SMALL))) == set()
    assert columns(space_of(elementwise(LARGE), cpu_streaming_stores=0)) == set()


def test_the_caches_are_those_that_the_task_is_told() -> None:
    told = {2 << 20: {"stream B"}, 32 << 20: set()}
    for last, offered in told.items():
        hardware = ansor.HardwareParams(2, l2_bytes=1 << 20, l3_bytes=last)
        task = ansor.SearchTask(compute_dag=elementwise(SMALL), target=ZEN4, hardware_params=hardware)
        assert columns(ProgramSpace.of(task, ON)) == offered


def test_small_and_inner_results_are_not_offered_and_accumulated_ones_are() -> None:
    assert columns(space_of(rows_of_sums(LARGE))) == set()
    assert columns(space_of(sums_to_matrix(LARGE))) == {"stream B"}
    softmax = get_workload("softmax").tensors(LARGE, LARGE * 4)
    assert columns(space_of(softmax)) == {f"stream {softmax[-1].name}"}


def test_samples_have_both_kinds_of_stores_and_replay() -> None:
    population = population_of(space_of(elementwise(LARGE)), 40)
    kinds = set()
    for row in range(len(population)):
        state = population.materialize(row)
        check_replay(state)
        kinds.add("NTS" in [step.code for step in state.steps])
    assert kinds == {False, True}


def test_the_kind_of_stores_tells_programs_apart_but_not_their_loops() -> None:
    population = population_of(space_of(elementwise(LARGE)))
    prints = fingerprints(streaming(population))
    count = len(population)
    assert (prints.fine[:count] != prints.fine[count:]).all()
    assert (prints.coarse[:count] == prints.coarse[count:]).all()


def test_the_mutation_changes_the_kind_and_nothing_else() -> None:
    space = space_of(elementwise(LARGE))
    parents = population_of(space)
    (at,) = parents.family.positions(ColumnKind.STREAM)
    offspring = StreamingStores().propose(parents, Neighbourhood(space), np.random.default_rng(0))
    changed = offspring.populations[0].values != parents.values
    assert changed[:, at].all()
    assert changed.sum() == len(parents)
    small = space_of(elementwise(SMALL))
    none = StreamingStores().propose(population_of(small), Neighbourhood(small), np.random.default_rng(0))
    assert not none.valid.any()


def test_a_neighbour_has_the_other_kind() -> None:
    space = space_of(elementwise(LARGE))
    program = population_of(space).take([0])
    (at,) = program.family.positions(ColumnKind.STREAM)
    ring = neighbours(program, space.context)
    assert (ring.values[:, at] != program.values[0, at]).sum() == 1


@pytest.mark.parametrize(("wish", "kind"), [(DERIVE, 0), (-2, 0), (0, 0), (1, 1), (7, 1)])
def test_any_wish_becomes_one_of_the_two(wish: int, kind: int) -> None:
    space = space_of(elementwise(LARGE))
    population = population_of(space)
    (at,) = population.family.positions(ColumnKind.STREAM)
    values = population.values.copy()
    values[:, at] = wish
    assert (repaired(Population(population.family, values), space.context).values[:, at] == kind).all()


def test_a_logged_program_is_found_again_with_its_kind_of_stores() -> None:
    space = space_of(elementwise(LARGE))
    population = streaming(population_of(space))
    for row in range(len(population)):
        found = locate(Neighbourhood(space), population.materialize(row))
        assert found is not None
        family, values = found
        assert family.key == population.family.key
        np.testing.assert_array_equal(values[0], population.values[row])


def test_a_run_with_both_kinds_goes_on_from_its_log(tmp_path: Path) -> None:
    """Cut after any trial, it completes the log that it would have made."""
    tensors = elementwise(LARGE)
    task = ansor.SearchTask(compute_dag=tensors, target=ZEN4)
    settings = {
        "evolutionary_search_population": 32,
        "evolutionary_search_num_iters": 2,
        "first_rounds_size": 4,
        "polish_after": 8,
    }
    whole = tmp_path / "whole.json"
    task.tune(options(20, whole), ansor.SketchPolicy(task, TileModel(), settings))
    states = [inp.state.replay(task.compute_dag) for inp, _ in load_records(whole)]  # type: ignore[union-attr]
    assert {any(step.code == "NTS" for step in state.steps) for state in states} == {False, True}
    lines = whole.read_text().splitlines(keepends=True)
    for cut in range(1, 20, 4):
        part = tmp_path / f"{cut}.json"
        part.write_text("".join(lines[:cut]))
        runner = SimulatedRunner(whole)
        task.tune(options(20 - cut, part, runner=runner), ansor.SketchPolicy(task, TileModel(), settings))
        assert logged(part, task) == logged(whole, task)


# -- what models are told ----------------------------------------------------------------------------------


def test_a_row_and_its_state_have_the_same_features_and_only_streaming_tells_them_apart() -> None:
    space = space_of(elementwise(LARGE))
    task = ansor.SearchTask(compute_dag=space.context.dag, target=ZEN4)
    population = streaming(population_of(space))
    rows = extract(task, population).values
    states = [population.materialize(row) for row in range(len(population))]
    np.testing.assert_array_equal(rows, extract(task, states).values)
    cached, streamed = np.split(rows, 2)
    different = np.flatnonzero((cached != streamed).any(axis=0))
    assert different.tolist() == [INDEX["streamed"]]
    nest = lower(states[-1])
    (stored,) = (nest.params[position] for position in nest.streamed)
    told = unscale(streamed, ["streamed"])["streamed"]
    assert (told >= stored.size_bytes * 0.999).all()  # more where tiles do not divide


def test_a_reduction_is_told_to_stream_where_lowering_lets_it() -> None:
    tensors = get_workload("matmul").tensors(4 * LARGE, 4 * LARGE, 64)
    task = ansor.SearchTask(compute_dag=tensors, target=ZEN4)
    sampled = ProgramSpace.of(task, ON).sample(24, np.random.default_rng(0)).populations
    seen = set()
    for population in map(streaming, sampled):
        (at,) = population.family.positions(ColumnKind.STREAM)
        for row in range(len(population)):
            state = population.materialize(row)
            told = unscale(extract(task, [state]).values, ["streamed"])["streamed"].any()
            assert told == bool(ansor.lower(Schedule(state), tensors, target=ZEN4).streamed), str(state)
            seen.add((population.values[row, at] > 0, told))
    assert seen == {(False, False), (True, False), (True, True)}


@pytest.mark.parametrize(("n", "sign"), [(LARGE, 1), (1 << 10, -1)])
def test_the_analytic_model_likes_streaming_stores_where_the_caches_are_too_small(n: int, sign: int) -> None:
    tensors = elementwise(n)
    hardware = ansor.HardwareParams(2, l2_bytes=1 << 20, l3_bytes=32 << 20)
    task = ansor.SearchTask(compute_dag=tensors, target="llvm", hardware_params=hardware)
    s = te.create_schedule(tensors[1])
    outer, inner = s[tensors[1]].split(s[tensors[1]].fuse(*tensors[1].op.axis), 16)
    s[tensors[1]].parallel(outer)
    s[tensors[1]].vectorize(inner)
    cached = s.state
    s[tensors[1]].streaming_stores()
    model = AnalyticModel()
    scores = model.predict(task, [cached, s.state])
    assert np.sign(scores[1] - scores[0]) == sign
