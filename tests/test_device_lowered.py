"""GPU programs from schedules to the text of both languages: both run, and compilers for CUDA take them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import pytest

from ansor.codegen.c import CUDA, OPENCL, emit_c, split_kernels
from ansor.codegen.c.compile import compile_ptx
from ansor.codegen.c.cuda_compilers import find_nvcc, find_nvrtc
from ansor.errors import ScheduleError
from ansor.ir.nest import LoopNest
from ansor.schedule.lowering import lower
from tests.cuda_on_host import Run, each_language, run_together
from tests.opencl_helper import run_opencl
from tests.program_laws import Case
from tests.random_choice import Chooser
from tests.random_graphs import random_graph, random_symbolic_graph
from tests.random_kernels import random_gpu_state
from tests.test_gpu_recorded import MOST_STEPS, case_of, programs, steps

MOST_THREADS = 1024
"""Of a block, on every GPU; PoCL allows more."""


def random_programs(seeds: range) -> Iterator[tuple[str, Case, LoopNest]]:
    """Those of some seeds that a GPU can run; one in four has symbolic sizes."""
    for seed in seeds:
        c = Chooser.from_seed(seed)
        dag, sizes = random_symbolic_graph(c) if c.chance(4) else (random_graph(c), {})
        state = random_gpu_state(c, dag, 12)
        try:
            nest = lower(state, name="kernel", kernels=True)
        except ScheduleError:
            continue
        yield f"seed {seed}", Case.of(state, sizes), nest


def recorded_programs() -> Iterator[tuple[str, Case, LoopNest]]:
    """The first of each workload that is short."""
    met = set()
    for entry, state in programs():
        workload = entry["workload"]
        if workload not in met:
            nest = lower(state, name="kernel", kernels=True)
            if steps(nest.body) <= MOST_STEPS:
                met.add(workload)
                yield workload, case_of(workload), nest


def fits(program: tuple[str, Case, LoopNest]) -> bool:
    """Whether every GPU has the threads for its blocks."""
    return all(prod(kernel.block) <= MOST_THREADS for kernel in split_kernels(program[2]).kernels)


def check(run: Run, programs: Iterable[tuple[str, Case, LoopNest]], least: int) -> None:
    """A device computes what the graphs say, of so many programs at least."""
    chosen = list(programs)
    assert len(chosen) >= least
    arrays = [case.arrays() for _, case, _ in chosen]
    sizes = [[case.sizes[size] for size in nest.sizes] for _, case, nest in chosen]
    text = run_together(run, zip([nest for _, _, nest in chosen], arrays, sizes, strict=True))
    for (name, case, nest), found in zip(chosen, arrays, strict=True):
        try:
            case.check(found)
        except AssertionError as error:
            error.add_note(f"{name}\n{nest}\n{text}")
            raise


@each_language
@pytest.mark.parametrize("block", range(3))
def test_random_programs_run(run: Run, block: int) -> None:
    check(run, filter(fits, random_programs(range(14 * block, 14 * block + 14))), least=7)


@each_language
def test_recorded_programs_run(run: Run) -> None:
    found = recorded_programs()
    check(run, found if run is run_opencl else filter(fits, found), least=7)


def test_programs_are_written_in_both_languages() -> None:
    """The same statements, whether a device is there or not."""
    found = 0
    for name, _, nest in (*random_programs(range(100, 140)), *recorded_programs()):
        program = split_kernels(nest)
        texts = [emit_c(program, dialect) for dialect in (CUDA, OPENCL)]
        assert len({text.count("for (") for text in texts}) == 1, name
        assert all(text.count("kernel_kernel") == len(program.kernels) for text in texts), name
        found += 1
    assert found >= 35


def test_cuda_compiles_programs() -> None:
    compiler = find_nvrtc() or find_nvcc()
    if compiler is None:
        pytest.skip("neither nvcc nor NVRTC is installed")
    for name, _, nest in (*random_programs(range(200, 206)), *list(recorded_programs())[::4]):
        text = emit_c(split_kernels(nest), CUDA)
        assert compile_ptx(text, "sm_80", compiler).count(".visible .entry") == text.count("__global__"), name
