"""Padding of copies in shared memory, as a choice of the search on GPUs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda
from ansor.codegen.c.cuda_compilers import find_nvcc, find_nvrtc
from ansor.ir.nest import Alloc, LoopNest, walk_statements
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.schedule.steps import StorageAlignStep
from ansor.task.gpu_limits import gpu_faults
from ansor.task.hardware import HardwareParams
from ansor.te import Tensor
from costmodel.extraction.extract import extract
from costmodel.features.table import unscale
from measure import load_records
from search.mutations.columns import Padding
from search.mutations.defaults import GPU_MUTATIONS
from search.params import REFERENCE_SPACE
from search.polish import neighbours
from sketches import ColumnKind, Population, ProgramSpace
from sketches.limits import runnable
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from sketches.padding import SWIZZLED
from sketches.repair import admitted, repaired
from sketches.signature import fingerprints
from tests.gpu_cases import GPU, check_shared_memory, gpu_task
from tests.gpu_schedules import MOST_STEPS, kernels, steps
from tests.opencl_helper import run_opencl
from tests.program_laws import Case, check_printed_code, check_replay
from tests.search_fakes import simulated_cost
from tests.sketches_cases import matmul, oracle_workload, row_sum, softmax


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def product(dtype: str) -> list[Tensor]:
    a, b = te.placeholder((64, 64), dtype, name="A"), te.placeholder((64, 64), dtype, name="B")
    k = te.reduce_axis((0, 64), name="k")
    return [a, b, te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def pads(population: Population) -> np.ndarray:
    return population.values[:, list(population.family.positions(ColumnKind.PAD))]


def with_padding(population: Population, length: int) -> Population:
    values = population.values.copy()
    values[:, list(population.family.positions(ColumnKind.PAD))] = length
    return Population(population.family, values)


def shared(nest: LoopNest) -> dict[str, tuple[int, ...]]:
    """Strides of the padded buffers in shared memory."""
    allocated = (s.buffer for s in walk_statements(nest.body) if isinstance(s, Alloc))
    return {b.name: b.strides for b in allocated if b.scope == "shared" and b.strides is not None}


# -- where -------------------------------------------------------------------------------------------------


def test_copies_whose_rows_threads_are_apart_in_may_be_padded() -> None:
    """Of a product the factor whose rows threads have; not the other, along whose rows they read."""
    sites = {
        site.axis: family.sketch.state.stages[site.stage].name
        for family in families(matmul(64, 64, 64))
        for site in family.pads
    }
    assert sites == {"ax0": "A.shared"}
    assert {len(family.pads) for family in families(oracle_workload("conv2d"))} == {1}
    assert {len(family.pads) for family in families(softmax(64, 64))} == {0}
    assert {len(family.pads) for family in families(row_sum(64, 64))} == {0}


def families(tensors: list[Tensor], params: object = None) -> set[ansor.Family]:
    space = ProgramSpace.of(gpu_task(tensors), params)  # type: ignore[arg-type]
    return {population.family for population in space.sample(16, rng()).populations}


def test_the_reference_pads_nothing() -> None:
    for params in (REFERENCE_SPACE, {"gpu_storage_padding": 0, "gpu_swizzle": 0}):
        assert {len(family.pads) for family in families(matmul(64, 64, 64), params)} == {0}


@pytest.mark.parametrize(
    ("dtype", "lengths"),
    [("float32", (0, 1, 2, 4)), ("float16", (0, 2, 4, 8)), ("int8", (0, 4, 8, 16)), ("float64", (0, 1, 2))],
)
def test_lengths_are_those_of_words(dtype: str, lengths: tuple[int, ...]) -> None:
    (family,) = families(product(dtype))
    assert [site.values for site in family.pads] == [(*lengths, SWIZZLED)]
    (family,) = families(product(dtype), {"gpu_swizzle": 0})
    assert [site.values for site in family.pads] == [lengths]


def test_padding_that_moves_nothing_is_settled_away() -> None:
    """Rows of 3 elements begin at odd multiples of 1 anyway, those of 6 at odd multiples of 2."""
    space = ProgramSpace.of(gpu_task(matmul(60, 60, 36)))
    seen = Counter[bool]()
    for population in space.sample(100, rng()).populations:
        for length in (1, 2, 4):
            settled = repaired(with_padding(population, length), space.context)
            rows, row = (
                np.broadcast_to(region.width, len(settled))  # type: ignore[arg-type]
                for region in settled.inferred.stages[settled.family.pads[0].stage].region
            )
            moved = (rows > 1) & ((row % (2 * length)) != length)
            np.testing.assert_array_equal(pads(settled)[:, 0], np.where(moved, length, 0))
            for value in moved:
                seen[bool(value)] += 1
    assert seen[True] > 100
    assert seen[False] > 20


# -- programs ----------------------------------------------------------------------------------------------


def test_padded_programs_are_right_and_their_rows_lie_apart() -> None:
    tensors = matmul(32, 24, 40)
    case, space = Case.of(State.initial(gpu_task(tensors).dag)), ProgramSpace.of(gpu_task(tensors))
    checked = 0
    for population in space.sample(24, rng(3)).populations:
        for length in (1, 2, 4):
            children = admitted(with_padding(population, length), space.context)
            for row in np.flatnonzero(pads(children)[:, 0]):
                nest = kernels(children.materialize(int(row)))
                (strides,) = shared(nest).values()
                assert strides[-2] % (2 * length) == length
                assert gpu_faults(nest, GPU) == ()
                if steps(nest.body) <= MOST_STEPS and checked < 12:
                    case.check_interpreted(nest, check_races=True)
                    checked += 1
    assert checked == 12


@pytest.mark.usefixtures("quick_pocl")
def test_padded_programs_run_on_a_device_and_compile_without_warnings() -> None:
    tensors = matmul(64, 48, 40)
    space, compiler = ProgramSpace.of(gpu_task(tensors)), find_nvrtc() or find_nvcc()
    a, b = (
        rng(seed).uniform(-1, 1, shape).astype(np.float32) for seed, shape in ((1, (64, 40)), (2, (40, 48)))
    )
    (population,) = space.sample(40, rng(5)).populations
    for length, arch in ((1, "sm_80"), (4, "sm_90")):
        children = admitted(with_padding(population, length), space.context)
        nest = kernels(children.materialize(int(np.flatnonzero(pads(children)[:, 0])[0])))
        c = np.zeros((64, 48), np.float32)
        run_opencl(nest, a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
        if compiler is not None:
            assert compile_cuda(emit_c(split_kernels(nest), CUDA), arch, compiler).warnings == ""


def test_shared_memory_holds_the_padding_too() -> None:
    """Rows that fit as they are, and not with their padding, are refused; as kernels they are, too."""
    hardware = HardwareParams(-1, 16, 64, 6000, 2**31 - 1, 1024, 8, 32)
    space = ProgramSpace.of(gpu_task(matmul(128, 128, 128), hardware=hardware))
    told = Counter[bool]()
    for population in space.sample(200, rng()).populations:
        dense = with_padding(population, 0)
        assert len(runnable(dense, space.context)) == len(dense)
        told += check_shared_memory(repaired(with_padding(population, 4), space.context), space.context, 5)
    assert told[True]
    assert told[False]


def test_equal_fingerprints_need_equal_padding() -> None:
    (population,) = ProgramSpace.of(gpu_task(matmul(64, 64, 64))).sample(20, rng()).populations
    prints = [fingerprints(with_padding(population, length)) for length in (0, 1, 2, 4)]
    assert len({int(one.fine[0]) for one in prints}) == 4
    assert len({int(one.coarse[0]) for one in prints}) == 1


# -- features ----------------------------------------------------------------------------------------------


def test_padding_parts_threads_that_meet_in_a_bank() -> None:
    """Where the rows that threads read are a multiple of the banks apart, and not where they are padded."""
    task = gpu_task(matmul(256, 256, 256))
    space = ProgramSpace.of(task)
    (population,) = space.sample(300, rng()).populations
    dense, apart = (
        unscale(extract(task, with_padding(population, length)).values)["bank_conflicts"] for length in (0, 1)
    )
    crowded = dense > 4
    assert crowded.any()
    assert (apart[crowded] < dense[crowded]).mean() > 0.2


# -- the search --------------------------------------------------------------------------------------------


def test_padding_mutates_and_is_a_neighbour() -> None:
    neighbourhood = Neighbourhood(ProgramSpace.of(gpu_task(matmul(256, 256, 256))))
    (parents,) = neighbourhood.space.sample(60, rng()).populations
    offspring = Padding().propose(parents, neighbourhood, rng(1))
    (children,), (rows,) = offspring.populations, offspring.parents
    changed = (children.values != parents.values[rows]).any(axis=0)
    assert set(np.flatnonzero(changed)) == set(parents.family.positions(ColumnKind.PAD))
    assert any(isinstance(mutation, Padding) for mutation, _ in GPU_MUTATIONS)
    ring = neighbours(parents.take([0]), neighbourhood.space.context)
    assert (pads(ring) != pads(parents)[0]).any()


def test_records_of_padded_programs_are_tvms_and_come_back(tmp_path: Path) -> None:
    task = ansor.SearchTask(func="ansor.matmul", args=(64, 64, 64), target="cuda", hardware_params=GPU)
    neighbourhood = Neighbourhood(ProgramSpace.of(task, {"gpu_multi_buffer": 1, "gpu_swizzle": 0}))
    log = tmp_path / "log.json"
    options = ansor.TuningOptions(
        num_measure_trials=16,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(simulated_cost),
        measure_callbacks=[ansor.RecordToFile(log)],
        verbose=0,
    )
    params = {"evolutionary_search_num_iters": 0, "gpu_multi_buffer": 1, "gpu_swizzle": 0}
    task.tune(options, ansor.SketchPolicy(task, params=params))
    assert not any(line.startswith("#") for line in log.read_text().splitlines())
    padded = 0
    for inp, _ in load_records(str(log)):
        state = State.replay(task.compute_dag, inp.state.steps)
        padded += any(isinstance(step, StorageAlignStep) for step in state.steps)
        found = locate(neighbourhood, state)
        assert found is not None
        again = Population(*found)
        assert [step.to_json() for step in again.steps(0)] == [step.to_json() for step in state.steps]
    assert padded > 4


def test_a_padded_program_as_code_is_the_same_program() -> None:
    task = gpu_task(matmul(64, 64, 64))
    space = ProgramSpace.of(task)
    (population,) = space.sample(20, rng()).populations
    children = admitted(with_padding(population, 4), space.context)
    state = children.materialize(int(np.flatnonzero(pads(children)[:, 0])[0]))
    check_replay(state)
    check_printed_code(state)
    assert ".storage_align(" in schedule_code(state)


def test_other_padding_is_no_row() -> None:
    """A record may pad by what no column says; then it is a program that the search cannot change."""
    space = ProgramSpace.of(gpu_task(matmul(64, 64, 64)))
    (population,) = space.sample(1, rng()).populations
    history = with_padding(population, 0).steps(0)
    first, site = population.family.sketch.binding.first, population.family.pads[0]  # type: ignore[union-attr]
    neighbourhood = Neighbourhood(space)
    at = site.iterator
    for iterator, factor, offset, known in ((at, 8, 4, True), (at, 32, 4, False), (1, 8, 4, False)):
        step = StorageAlignStep(site.stage, iterator, factor, offset)
        state = State.replay(space.context.dag, (*history[:first], step, *history[first:]))
        assert (locate(neighbourhood, state) is not None) == known
