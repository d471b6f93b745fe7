"""Copies in shared memory that are filled ahead, as a choice of the search on CUDA."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda
from ansor.codegen.c.cuda_compilers import find_nvcc, find_nvrtc
from ansor.ir.nest import Alloc, LoopNest, walk_statements
from ansor.schedule.kernel_usage import kernel_usages
from ansor.schedule.state import State
from ansor.schedule.steps import MultiBufferStep
from ansor.task.device import copies_without_waiting
from ansor.task.gpu_limits import count_kernels
from ansor.task.hardware import HardwareParams
from ansor.task.target import Target
from ansor.te import Tensor
from measure import load_records
from search.mutations.columns import Lead
from search.mutations.defaults import GPU_MUTATIONS
from search.params import REFERENCE_SPACE
from sketches import ColumnKind, Family, Population, ProgramSpace
from sketches.limits import runnable, thinned
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from sketches.repair import admitted, repaired
from sketches.signature import fingerprints
from tests.cuda_on_host import Run, each_language
from tests.gpu_cases import GPU, check_shared_memory, gpu_task
from tests.gpu_schedules import MOST_STEPS, kernels, steps
from tests.opencl_helper import run_opencl
from tests.program_laws import Case, check_printed_code, check_replay
from tests.search_fakes import simulated_cost
from tests.sketches_cases import matmul, matmul_relu, oracle_workload, padded_conv1d, row_sum, softmax

MOST = 3


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def families(tensors: list[Tensor], params: object = None, target: str = "cuda") -> set[Family]:
    space = ProgramSpace.of(gpu_task(tensors, target), params)  # type: ignore[arg-type]
    return {population.family for population in space.sample(16, rng()).populations}


def asked(population: Population, lead: int | np.ndarray) -> Population:
    """All rows with this lead."""
    values = population.values.copy()
    values[:, list(population.family.positions(ColumnKind.LEAD))] = np.reshape(lead, (-1, 1))
    return Population(population.family, values)


def leads(population: Population) -> np.ndarray:
    """The lead of each row, of a family with one site."""
    (at,) = population.family.positions(ColumnKind.LEAD)
    return population.values[:, at]


def lead_of(nest: LoopNest) -> int:
    return max((s.buffer.lead for s in walk_statements(nest.body) if isinstance(s, Alloc)), default=0)


def test_stages_that_read_copies_may_have_them_filled_ahead() -> None:
    for family in families(matmul(64, 64, 64)):
        (site,) = family.leads
        stages = family.sketch.state.stages
        assert stages[site.stage].name == "C.local"
        assert {stages[copy].name for copy in site.copies} == {"A.shared", "B.shared"}
        assert str(family.columns[family.positions(ColumnKind.LEAD)[0]]) == "lead C.local"
    assert {len(family.leads) for family in families(oracle_workload("conv2d"))} == {1}
    for tensors in (softmax(64, 64), row_sum(64, 64)):
        assert {len(family.leads) for family in families(tensors)} == {0}


@pytest.mark.parametrize(
    ("target", "most"), [("cuda", MOST), ("cuda -arch=sm_90a", MOST), ("cuda -arch=sm_75", 1)]
)
def test_as_far_ahead_as_makes_sense(target: str, most: int) -> None:
    """By one iteration where threads wait for what they copy."""
    assert copies_without_waiting(Target(target)) == (most == MOST)
    for buffers in (2, 3, 4):
        for family in families(matmul(64, 64, 64), {"gpu_multi_buffer": buffers}, target):
            (site,) = family.leads
            assert site.most == min(buffers - 1, most)


def test_others_fill_nothing_ahead() -> None:
    """TVM, and targets whose threads cannot copy without waiting."""
    for params in (REFERENCE_SPACE, {"gpu_multi_buffer": 1}):
        assert {len(family.leads) for family in families(matmul(64, 64, 64), params)} == {0}
    assert {len(family.leads) for family in families(matmul(64, 64, 64), target="opencl")} == {0}


def test_programs_are_right_and_take_the_memory_that_is_counted() -> None:
    checked = Counter[tuple[str, int]]()
    for name, tensors in (
        ("matmul", matmul(32, 24, 40)),
        ("fused", matmul_relu(33, 20, 24)),
        ("conv", padded_conv1d(32, 8, 16)),
    ):
        case, space = Case.of(State.initial(gpu_task(tensors).dag)), ProgramSpace.of(gpu_task(tensors))
        for population in space.sample(20, rng(3)).populations:
            if not population.family.leads:
                continue
            children = admitted(asked(population, 1 + np.arange(len(population)) % MOST), space.context)
            counted = np.array(
                [
                    np.broadcast_to(kernel.shared_bytes, len(children))
                    for kernel in kernel_usages(children.stored(children.inferred))
                ]
            )
            for row in range(len(children)):
                nest, lead = kernels(children.materialize(row)), int(leads(children)[row])
                assert lead_of(nest) == lead, str(nest)
                assert [kernel.shared_bytes for kernel in count_kernels(nest)] == counted[:, row].tolist()
                if lead and steps(nest.body) <= MOST_STEPS and checked[name, lead] < 4:
                    case.check_interpreted(nest, check_races=True)
                    checked[name, lead] += 1
    assert {name for name, _ in checked} == {"matmul", "fused", "conv"}
    assert {lead for _, lead in checked} == {1, 2, 3}
    assert sum(checked.values()) >= 12, checked


@pytest.mark.parametrize("name", ["conv2d", "grouped", "depthwise"])
def test_leads_run_through_loops_that_lie_in_each_other(name: str) -> None:
    """Over windows and channels; columns and kernels agree on how far."""
    space = ProgramSpace.of(gpu_task(oracle_workload(name)))
    seen = set[int]()
    for population in space.sample(12, rng(3)).populations:
        children = admitted(asked(population, 1 + np.arange(len(population)) % MOST), space.context)
        counted = [kernel.shared_bytes for kernel in kernel_usages(children.stored(children.inferred))]
        for row in range(len(children)):
            nest = kernels(children.materialize(row))
            found = [kernel.shared_bytes for kernel in count_kernels(nest)]
            assert found == [np.broadcast_to(column, len(children))[row] for column in counted]
            assert lead_of(nest) == leads(children)[row]
            seen.add(lead_of(nest))
    assert len(seen) > 2


@pytest.mark.usefixtures("quick_pocl")
@each_language
def test_programs_run_on_a_device_and_compile_without_warnings(run: Run) -> None:
    space, compiler = ProgramSpace.of(gpu_task(matmul(64, 48, 40))), find_nvrtc() or find_nvcc()
    a, b = (rng(seed).uniform(-1, 1, of).astype(np.float32) for seed, of in ((1, (64, 40)), (2, (40, 48))))
    (population,) = space.sample(40, rng(5)).populations
    children = admitted(asked(population, MOST), space.context)
    for lead, arch in zip(range(1, MOST + 1), cycle(("sm_80", "sm_90")), strict=False):
        for row in np.flatnonzero(leads(children) == lead)[:1]:
            nest = kernels(children.materialize(int(row)))
            c = np.zeros((64, 48), np.float32)
            run(nest, a, b, c)
            np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
            text = emit_c(split_kernels(nest), CUDA)
            assert "ansor_copy_" in text
            assert ("ansor_commit_copies();" in text) == (lead > 1)
            if compiler is not None and run is not run_opencl:
                assert compile_cuda(text, arch, compiler).warnings == ""


def test_no_lead_is_longer_than_what_is_left_of_the_loop() -> None:
    space = ProgramSpace.of(gpu_task(matmul(64, 64, 16)))
    seen = Counter[int]()
    for population in space.sample(80, rng()).populations:
        settled = repaired(asked(population, MOST), space.context)
        (hole,) = (x for x in settled.family.tiles if x.columns[0].axis == "k")
        outer = -(-16 // settled.values[:, hole.start : hole.stop].prod(axis=1))
        np.testing.assert_array_equal(leads(settled), np.minimum(outer - 1, MOST))
        seen.update(leads(settled).tolist())
    assert min(seen[lead] for lead in (0, 1, MOST)) > 5


def test_shared_memory_holds_all_buffers() -> None:
    hardware = HardwareParams(-1, 16, 64, 8192, 2**31 - 1, 1024, 8, 32)
    space = ProgramSpace.of(gpu_task(matmul(128, 128, 128), hardware=hardware))
    (population,) = space.sample(200, rng()).populations
    for lead in (1, MOST):
        told = check_shared_memory(repaired(asked(population, lead), space.context), space.context, 6)
        assert told[True]
        assert told[False]


def test_rows_that_would_not_fit_are_drawn_with_less() -> None:
    """No program whose tiles fit is lost because its copies are padded or filled ahead."""
    hardware = HardwareParams(-1, 16, 64, 8192, 2**31 - 1, 1024, 8, 32)
    shares = []
    for params in ({}, {"gpu_multi_buffer": 1, "gpu_storage_padding": 0}):
        task = gpu_task(matmul(512, 512, 512), hardware=hardware)
        drawn = ProgramSpace.of(task, params).sample(300, rng())  # type: ignore[arg-type]
        shares.append(len(drawn) / 300)
        if not params:
            assert {lead for population in drawn.populations for lead in leads(population)} == {0, 1, 2, 3}
    assert shares[0] > shares[1] - 0.05


def test_a_row_that_does_not_fit_is_filled_as_far_ahead_as_fits() -> None:
    hardware = HardwareParams(-1, 16, 64, 8192, 2**31 - 1, 1024, 8, 32)
    space = ProgramSpace.of(gpu_task(matmul(128, 128, 128), hardware=hardware))
    (population,) = space.sample(200, rng()).populations
    wished = repaired(asked(population, MOST), space.context)
    made = thinned(wished, space.context)
    fitting = [set(runnable(asked(wished, lead), space.context).tolist()) for lead in range(MOST + 1)]
    for row, (lead, most) in enumerate(zip(leads(made), leads(wished), strict=True)):
        assert lead == max((lead for lead in range(most + 1) if row in fitting[lead]), default=0)
    assert set(leads(made).tolist()) == set(range(MOST + 1))


def test_equal_fingerprints_need_equal_buffers() -> None:
    (population,) = ProgramSpace.of(gpu_task(matmul(64, 64, 64))).sample(20, rng()).populations
    prints = [fingerprints(asked(population, lead)) for lead in range(MOST + 1)]
    for lead in range(MOST):
        assert not (prints[lead].fine == prints[lead + 1].fine).any()
        assert (prints[lead].coarse == prints[lead + 1].coarse).all()


def test_leads_mutate() -> None:
    neighbourhood = Neighbourhood(ProgramSpace.of(gpu_task(matmul(256, 256, 256))))
    (parents,) = neighbourhood.space.sample(60, rng()).populations
    offspring = Lead().propose(parents, neighbourhood, rng(1))
    (children,), (rows,) = offspring.populations, offspring.parents
    assert (leads(children) != leads(parents)[rows]).all()
    assert set(leads(children).tolist()) == set(range(MOST + 1))
    assert any(isinstance(mutation, Lead) for mutation, _ in GPU_MUTATIONS)


def test_records_stand_on_lines_of_their_own_and_come_back(tmp_path: Path) -> None:
    task = ansor.SearchTask(func="ansor.matmul", args=(64, 64, 64), target="cuda", hardware_params=GPU)
    neighbourhood = Neighbourhood(ProgramSpace.of(task))
    log = tmp_path / "log.json"
    options = ansor.TuningOptions(
        num_measure_trials=48,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(simulated_cost),
        measure_callbacks=[ansor.RecordToFile(log)],
        verbose=0,
    )
    task.tune(options, ansor.SketchPolicy(task, params={"evolutionary_search_num_iters": 0}))
    lines, found_ahead = log.read_text().splitlines(), set[int]()
    for line, (inp, _) in zip(lines, load_records(str(log)), strict=True):
        state = State.replay(task.compute_dag, inp.state.steps)
        own = {step.buffers - 1 for step in state.steps if isinstance(step, MultiBufferStep)}
        assert line.startswith("# ansor ") == any(not step.in_reference for step in state.steps)
        found_ahead |= own or {0}
        found = locate(neighbourhood, state)
        assert found is not None
        again = Population(*found)
        assert [step.to_json() for step in again.steps(0)] == [step.to_json() for step in state.steps]
        check_replay(state)
    assert found_ahead == {0, 1, 2, 3}
    check_printed_code(state)
    schedule, _ = task.apply_best(log)
    assert str(schedule.state)
