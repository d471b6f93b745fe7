"""Double-buffered copies in shared memory, as a choice of the search on CUDA."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

import ansor
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda, find_nvcc, find_nvrtc
from ansor.ir.nest import Alloc, LoopNest, walk_statements
from ansor.schedule.state import State
from ansor.schedule.steps import DoubleBufferStep
from ansor.task.gpu_limits import count_kernels
from ansor.task.hardware import HardwareParams
from ansor.te import Tensor
from measure import load_records
from search.mutation import GPU_MUTATIONS, DoubleBuffers
from search.params import REFERENCE_SPACE
from sketches import ColumnKind, Family, Population, ProgramSpace
from sketches.limits import kernels_of
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from sketches.repair import admitted, repaired
from sketches.signature import fingerprints
from tests.gpu_cases import GPU, check_shared_memory, gpu_task
from tests.gpu_schedules import MOST_STEPS, kernels, steps
from tests.opencl_helper import run_opencl
from tests.program_laws import Case, check_printed_code, check_replay
from tests.search_fakes import simulated_cost
from tests.sketches_cases import matmul, matmul_relu, oracle_workload, padded_conv1d, row_sum, softmax


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def families(tensors: list[Tensor], params: object = None, target: str = "cuda") -> set[Family]:
    space = ProgramSpace.of(gpu_task(tensors, target), params)  # type: ignore[arg-type]
    return {population.family for population in space.sample(16, rng()).populations}


def twice(population: Population, value: int = 1) -> Population:
    values = population.values.copy()
    values[:, list(population.family.positions(ColumnKind.DOUBLE))] = value
    return Population(population.family, values)


def chosen(population: Population) -> np.ndarray:
    return population.values[:, list(population.family.positions(ColumnKind.DOUBLE))].any(axis=1)


def doubled_buffers(nest: LoopNest) -> int:
    allocated = (s.buffer for s in walk_statements(nest.body) if isinstance(s, Alloc))
    return sum(buffer.double_buffered for buffer in allocated)


def test_stages_that_read_copies_may_have_them_filled_ahead() -> None:
    for family in families(matmul(64, 64, 64)):
        (site,) = family.doubles
        stages = family.sketch.state.stages
        assert stages[site.stage].name == "C.local"
        assert {stages[copy].name for copy in site.copies} == {"A.shared", "B.shared"}
        assert str(family.columns[family.positions(ColumnKind.DOUBLE)[0]]) == "double C.local"
    assert {len(family.doubles) for family in families(oracle_workload("conv2d"))} == {1}
    for tensors in (softmax(64, 64), row_sum(64, 64)):
        assert {len(family.doubles) for family in families(tensors)} == {0}


def test_others_fill_nothing_ahead() -> None:
    """The reference, and targets whose threads cannot copy without waiting."""
    for params in (REFERENCE_SPACE, {"gpu_double_buffer": 0}):
        assert {len(family.doubles) for family in families(matmul(64, 64, 64), params)} == {0}
    assert {len(family.doubles) for family in families(matmul(64, 64, 64), target="opencl")} == {0}


def test_programs_are_right_and_take_the_memory_that_is_counted() -> None:
    checked = Counter[str]()
    for name, tensors in (
        ("matmul", matmul(32, 24, 40)),
        ("fused", matmul_relu(33, 20, 24)),
        ("conv", padded_conv1d(32, 8, 16)),
    ):
        case, space = Case.of(State.initial(gpu_task(tensors).dag)), ProgramSpace.of(gpu_task(tensors))
        for population in space.sample(30, rng(3)).populations:
            if not population.family.doubles:
                continue
            children = admitted(twice(population), space.context)
            counted = np.array(
                [
                    np.broadcast_to(kernel.shared_bytes, len(children))
                    for kernel in kernels_of(children.stored(children.inferred))
                ]
            )
            for row in range(len(children)):
                nest = kernels(children.materialize(row))
                assert bool(doubled_buffers(nest)) == bool(chosen(children)[row]), str(nest)
                assert [kernel.shared_bytes for kernel in count_kernels(nest)] == counted[:, row].tolist()
                if chosen(children)[row] and steps(nest.body) <= MOST_STEPS and checked[name] < 6:
                    case.check_interpreted(nest, check_races=True)
                    checked[name] += 1
    assert min(checked.values()) >= 3, checked
    assert len(checked) == 3


def test_programs_run_on_a_device_and_compile_without_warnings() -> None:
    space, compiler = ProgramSpace.of(gpu_task(matmul(64, 48, 40))), find_nvrtc() or find_nvcc()
    a, b = (rng(seed).uniform(-1, 1, of).astype(np.float32) for seed, of in ((1, (64, 40)), (2, (40, 48))))
    (population,) = space.sample(40, rng(5)).populations
    children = admitted(twice(population), space.context)
    for row in np.flatnonzero(chosen(children))[:4]:
        nest = kernels(children.materialize(int(row)))
        c = np.zeros((64, 48), np.float32)
        run_opencl(nest, a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
        text = emit_c(split_kernels(nest), CUDA)
        assert "ansor_copy_" in text
        for arch in ("sm_80", "sm_90") if compiler is not None else ():
            assert compile_cuda(text, arch, compiler).warnings == ""


def test_what_has_no_next_iteration_is_there_once() -> None:
    space = ProgramSpace.of(gpu_task(matmul(64, 64, 16)))
    seen = Counter[bool]()
    for population in space.sample(80, rng()).populations:
        settled = repaired(twice(population), space.context)
        (hole,) = (x for x in settled.family.tiles if x.columns[0].axis == "k")
        inner = settled.values[:, hole.start : hole.stop].prod(axis=1)
        np.testing.assert_array_equal(chosen(settled), inner < 16)
        seen.update(map(bool, inner < 16))
    assert min(seen.values()) > 5


def test_shared_memory_holds_both_halves() -> None:
    hardware = HardwareParams(-1, 16, 64, 8192, 2**31 - 1, 1024, 8, 32)
    space = ProgramSpace.of(gpu_task(matmul(128, 128, 128), hardware=hardware))
    (population,) = space.sample(200, rng()).populations
    told = check_shared_memory(repaired(twice(population), space.context), space.context, 6)
    assert told[True]
    assert told[False]


def test_rows_that_would_not_fit_are_drawn_without() -> None:
    """A program whose tiles fit is not lost because its copies are padded or filled ahead."""
    hardware = HardwareParams(-1, 16, 64, 8192, 2**31 - 1, 1024, 8, 32)
    shares = []
    for params in ({}, {"gpu_double_buffer": 0, "gpu_storage_padding": 0}):
        task = gpu_task(matmul(512, 512, 512), hardware=hardware)
        shares.append(len(ProgramSpace.of(task, params).sample(300, rng())) / 300)  # type: ignore[arg-type]
    assert shares[0] > shares[1] - 0.05


def test_equal_fingerprints_need_equal_buffers() -> None:
    (population,) = ProgramSpace.of(gpu_task(matmul(64, 64, 64))).sample(20, rng()).populations
    prints = [fingerprints(twice(population, value)) for value in (0, 1)]
    assert not (prints[0].fine == prints[1].fine).any()
    assert (prints[0].coarse == prints[1].coarse).all()


def test_buffers_mutate() -> None:
    neighbourhood = Neighbourhood(ProgramSpace.of(gpu_task(matmul(256, 256, 256))))
    (parents,) = neighbourhood.space.sample(60, rng()).populations
    offspring = DoubleBuffers().propose(parents, neighbourhood, rng(1))
    (children,), (rows,) = offspring.populations, offspring.parents
    np.testing.assert_array_equal(chosen(children), ~chosen(parents)[rows])
    assert any(isinstance(mutation, DoubleBuffers) for mutation, _ in GPU_MUTATIONS)


def test_records_stand_on_lines_of_their_own_and_come_back(tmp_path: Path) -> None:
    task = ansor.SearchTask(func="ansor.matmul", args=(64, 64, 64), target="cuda", hardware_params=GPU)
    neighbourhood = Neighbourhood(ProgramSpace.of(task))
    log = tmp_path / "log.json"
    options = ansor.TuningOptions(
        num_measure_trials=16,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(simulated_cost),
        measure_callbacks=[ansor.RecordToFile(log)],
        verbose=0,
    )
    task.tune(options, ansor.SketchPolicy(task, params={"evolutionary_search_num_iters": 0}))
    lines, doubles = log.read_text().splitlines(), 0
    for line, (inp, _) in zip(lines, load_records(str(log)), strict=True):
        state = State.replay(task.compute_dag, inp.state.steps)
        own = any(isinstance(step, DoubleBufferStep) for step in state.steps)
        assert line.startswith("# ansor ") == own
        doubles += own
        found = locate(neighbourhood, state)
        assert found is not None
        again = Population(*found)
        assert [step.to_json() for step in again.steps(0)] == [step.to_json() for step in state.steps]
        check_replay(state)
    assert 2 <= doubles < len(lines)
    check_printed_code(state)
    schedule, _ = task.apply_best(log)
    assert str(schedule.state)
