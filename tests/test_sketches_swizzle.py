"""Swizzled copies in shared memory, as a choice of the search on GPUs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda
from ansor.codegen.c.cuda_compilers import find_nvcc, find_nvrtc
from ansor.schedule.kernel_usage import kernel_usages
from ansor.schedule.state import State
from ansor.schedule.steps import StorageAlignStep, SwizzleStep
from ansor.task.gpu_limits import count_kernels
from ansor.te import Tensor
from costmodel.extraction.extract import extract
from costmodel.features.table import unscale
from measure import load_records
from sketches import ColumnKind, Family, Population, ProgramSpace
from sketches.limits import refusals, thinned
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from sketches.padding import SWIZZLED
from sketches.repair import admitted, repaired
from sketches.signature import fingerprints
from tests.cuda_on_host import Run, each_language
from tests.gpu_cases import GPU, gpu_task
from tests.gpu_schedules import MOST_STEPS, kernels, steps
from tests.opencl_helper import run_opencl
from tests.program_laws import Case, check_printed_code, check_replay
from tests.search_fakes import simulated_cost
from tests.sketches_cases import matmul, oracle_workload, row_sum


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def families(tensors: list[Tensor], params: object = None, target: str = "cuda") -> set[Family]:
    space = ProgramSpace.of(gpu_task(tensors, target), params)  # type: ignore[arg-type]
    return {population.family for population in space.sample(16, rng()).populations}


def pads(population: Population) -> np.ndarray:
    (at,) = population.family.positions(ColumnKind.PAD)
    return population.values[:, at]


def asked(population: Population, value: int = SWIZZLED) -> Population:
    values = population.values.copy()
    values[:, list(population.family.positions(ColumnKind.PAD))] = value
    return Population(population.family, values)


def test_copies_that_may_be_padded_may_be_swizzled() -> None:
    """Whatever the language; without padding, too."""
    for target in ("cuda", "opencl"):
        (family,) = families(matmul(64, 64, 64), target=target)
        assert [site.values for site in family.pads] == [(0, 1, 2, 4, SWIZZLED)]
    (family,) = families(matmul(64, 64, 64), {"gpu_storage_padding": 0})
    assert [site.values for site in family.pads] == [(0, SWIZZLED)]
    for family in families(oracle_workload("conv2d")):
        assert [site.values[-1] for site in family.pads] == [SWIZZLED]
    assert {len(family.pads) for family in families(row_sum(64, 64))} == {0}


def test_rows_are_swizzled_where_that_moves_something() -> None:
    space = ProgramSpace.of(gpu_task(matmul(60, 60, 96)))
    seen = Counter[bool]()
    for population in space.sample(200, rng()).populations:
        settled = repaired(asked(population), space.context)
        rows, row = (
            np.broadcast_to(region.width, len(settled))  # type: ignore[arg-type]
            for region in settled.inferred.stages[settled.family.pads[0].stage].region
        )
        moves = (rows > 1) & np.isin(row, (8, 16, 32, 64))
        np.testing.assert_array_equal(pads(settled), np.where(moves, SWIZZLED, 0))
        seen.update(map(bool, moves))
    assert min(seen[True], seen[False]) > 10


def test_programs_are_right_and_take_no_more_memory() -> None:
    tensors = matmul(32, 24, 64)
    case, space = Case.of(State.initial(gpu_task(tensors).dag)), ProgramSpace.of(gpu_task(tensors))
    checked = 0
    for population in space.sample(60, rng(3)).populations:
        children = admitted(asked(population), space.context)
        counted = np.array(
            [
                np.broadcast_to(kernel.shared_bytes, len(children))
                for kernel in kernel_usages(children.stored(children.inferred))
            ]
        )
        for row in np.flatnonzero(pads(children)):
            nest = kernels(children.materialize(int(row)))
            assert "xor(" in str(nest)
            assert [kernel.shared_bytes for kernel in count_kernels(nest)] == counted[:, row].tolist()
            if steps(nest.body) <= MOST_STEPS and checked < 10:
                case.check_interpreted(nest, check_races=True)
                checked += 1
    assert checked >= 8


@pytest.mark.usefixtures("quick_pocl")
@each_language
def test_programs_run_on_a_device_and_compile_without_warnings(run: Run) -> None:
    space, compiler = ProgramSpace.of(gpu_task(matmul(64, 48, 64))), find_nvrtc() or find_nvcc()
    a, b = (rng(seed).uniform(-1, 1, of).astype(np.float32) for seed, of in ((1, (64, 64)), (2, (64, 48))))
    (population,) = space.sample(40, rng(5)).populations
    children = admitted(asked(population), space.context)
    for row, arch in zip(np.flatnonzero(pads(children))[:4], ("sm_80", "sm_90") * 2, strict=True):
        nest = kernels(children.materialize(int(row)))
        c = np.zeros((64, 48), np.float32)
        run(nest, a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
        if compiler is not None and run is not run_opencl:
            assert compile_cuda(emit_c(split_kernels(nest), CUDA), arch, compiler).warnings == ""


def test_a_row_that_does_not_fit_stays_swizzled() -> None:
    """As that takes no memory; it does not become one that fits by it."""
    space = ProgramSpace.of(gpu_task(matmul(512, 512, 512), hardware=GPU))
    (population,) = space.sample(100, rng()).populations
    values = asked(population).values
    values[:, list(population.family.positions(ColumnKind.LEAD))] = 3
    wished = repaired(Population(population.family, values), space.context)
    made = thinned(wished, space.context)
    assert refusals(wished, space.context)
    np.testing.assert_array_equal(pads(made), pads(wished))


def test_equal_fingerprints_need_equal_places() -> None:
    (population,) = ProgramSpace.of(gpu_task(matmul(64, 64, 64))).sample(20, rng()).populations
    prints = [fingerprints(asked(population, value)) for value in (0, 4, SWIZZLED)]
    assert len({int(one.fine[0]) for one in prints}) == 3
    assert len({int(one.coarse[0]) for one in prints}) == 1


def test_swizzling_parts_threads_that_meet_in_a_bank() -> None:
    task = gpu_task(matmul(256, 256, 256))
    space = ProgramSpace.of(task)
    (population,) = space.sample(300, rng()).populations
    settled = repaired(asked(population), space.context)
    some = settled.take(np.flatnonzero(pads(settled)))
    dense, apart = (
        unscale(extract(task, asked(some, value)).values)["bank_conflicts"] for value in (0, SWIZZLED)
    )
    crowded = dense > 4
    assert crowded.any()
    assert (apart[crowded] < dense[crowded]).mean() > 0.2


def test_records_stand_on_lines_of_their_own_and_come_back(tmp_path: Path) -> None:
    task = ansor.SearchTask(func="ansor.matmul", args=(64, 64, 64), target="cuda", hardware_params=GPU)
    params = {"evolutionary_search_num_iters": 0, "gpu_multi_buffer": 1}
    neighbourhood = Neighbourhood(ProgramSpace.of(task, params))
    log = tmp_path / "log.json"
    options = ansor.TuningOptions(
        num_measure_trials=32,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(simulated_cost),
        measure_callbacks=[ansor.RecordToFile(log)],
        verbose=0,
    )
    task.tune(options, ansor.SketchPolicy(task, params=params))
    seen = Counter[str]()
    for line, (inp, _) in zip(log.read_text().splitlines(), load_records(str(log)), strict=True):
        state = State.replay(task.compute_dag, inp.state.steps)
        own = any(isinstance(step, SwizzleStep) for step in state.steps)
        padded = any(isinstance(step, StorageAlignStep) for step in state.steps)
        assert line.startswith("# ansor ") == own
        assert not (own and padded)
        seen["swizzled" if own else "padded" if padded else "dense"] += 1
        found = locate(neighbourhood, state)
        assert found is not None
        again = Population(*found)
        assert [step.to_json() for step in again.steps(0)] == [step.to_json() for step in state.steps]
        if own and seen["swizzled"] == 1:
            check_replay(state)
            check_printed_code(state)
    assert min(seen[kind] for kind in ("swizzled", "padded", "dense")) > 0, seen
