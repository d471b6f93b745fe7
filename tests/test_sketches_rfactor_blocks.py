"""Reductions that blocks of a GPU share: when the rule fires, what it makes, and that programs are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ansor import te
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda
from ansor.codegen.c.cuda_compilers import CudaCompiler
from ansor.schedule.lowering import lower
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep
from ansor.task.gpu_limits import count_kernels
from ansor.task.hardware import HardwareParams
from ansor.te import Tensor
from ansor.workloads.catalogue import get_workload
from costmodel import AnalyticModel, Programs
from search.mutations.columns import PartCount
from search.params import REFERENCE_SPACE
from search.refit import loop_extent
from sketches import ColumnKind, Population, ProgramSpace, Sketch, generate_sketches
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from sketches.repair import admitted
from tests.gpu_cases import check_gpu_program, gpu_task
from tests.gpu_schedules import argmax, variants
from tests.opencl_helper import run_opencl
from tests.program_laws import Case, check_printed_code, check_replay
from tests.sketches_cases import matmul, row_sum, task_of, zero_rank
from tests.test_costmodel_features_gpu import check_population

HOPPER = "cuda -arch=sm_90"
SMALL_BLOCKS = HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 32, 8, 16)
RULE = "AddRfactorBlocks"


def norm(batch: int, m: int, n: int) -> list[Tensor]:
    return get_workload("norm").tensors(batch, m, n)


def deviation(n: int) -> list[Tensor]:
    """The sum of squared distances from a sum of all: a long reduction that another one reads."""
    x, total = zero_rank(n)
    k = te.reduce_axis((0, n), name="r")
    return [x, te.compute((1,), lambda i: te.sum((x[k] - total()) * (x[k] - total()), axis=k), name="D")]


def every_third(n: int) -> list[Tensor]:
    x, k = te.placeholder((2, n), name="X"), te.reduce_axis((0, n), name="k")
    return [x, te.compute((2,), lambda i: te.sum(x[i, k], axis=k, where=k % 3 < 1), name="S")]


CASES: dict[str, Callable[[], list[Tensor]]] = {
    "norm": lambda: norm(2, 16, 33),
    "zero rank": lambda: zero_rank(550),
    "place of the greatest": lambda: list(argmax(3, 515)),
    "product": lambda: matmul(2, 3, 512),
    "deviation": lambda: deviation(513),
    "every third": lambda: every_third(650),
}


def uses(sketch: Sketch) -> bool:
    return RULE in sketch.rules


def sketches(made: list[Tensor], params: object = None) -> list[Sketch]:
    return generate_sketches(gpu_task(made, HOPPER), params)  # type: ignore[arg-type]


@cache
def space_of(name: str) -> ProgramSpace:
    """Those sketches of a case that have most reductions shared by blocks."""
    space = ProgramSpace.of(gpu_task(CASES[name](), HOPPER, SMALL_BLOCKS))
    most = max(sketch.rules.count(RULE) for sketch in space.sketches)
    return replace(space, sketches=tuple(x for x in space.sketches if x.rules.count(RULE) == most))


def parts_of(population: Population, row: int) -> int:
    at = population.family.positions(ColumnKind.PARTS)
    return int(population.values[row, at.start : at.stop].prod())


def programs(name: str, count: int, seed: int = 0) -> list[State]:
    """Random programs, those of few blocks first."""
    sample = space_of(name).sample(count, np.random.default_rng(seed))
    assert len(sample) == count, sample.dropped
    return [one.materialize(row) for one, row in sorted(sample.in_order(), key=lambda x: parts_of(*x))]


# -- sketches ----------------------------------------------------------------------------------------------


def test_a_norm_of_one_matrix_has_many_blocks() -> None:
    """Each adds up a part by its threads; the parts are added up by threads of another kernel."""
    first, *rest = sketches(norm(1, 1024, 1024))
    assert uses(first)
    assert rest
    assert not any(map(uses, rest))
    parts, merge = (first.state.stages[first.state.stage_id(name)] for name in ("S.rf", "S.repl"))
    assert [loop.annotation is Annotation.THREAD_X for loop in parts.iterators] == [False] * 3 + [True]
    assert merge.iterators[-1].annotation is Annotation.THREAD_X
    space = ProgramSpace.of(gpu_task(norm(1, 1024, 1024), HOPPER))
    for population, row in space.sample(12, np.random.default_rng(0)).in_order():
        state = population.materialize(row)
        check_gpu_program(state)
        extents = {
            loop.extent
            for stage in state.with_bounds().stages
            for loop in stage.iterators
            if loop.annotation is Annotation.BLOCK_X
        }
        assert (max(extents, default=1) > 1) == uses(population.family.sketch)  # type: ignore[type-var]


def test_only_long_reductions_to_few_values_are_shared() -> None:
    """Of results for less than half of the multiprocessors, and so many terms that a block has many turns."""
    assert any(map(uses, sketches(row_sum(65, 16384))))
    assert not any(map(uses, sketches(row_sum(66, 16384))))
    assert not any(map(uses, sketches(row_sum(65, 16383))))


def test_it_can_be_turned_off() -> None:
    made = norm(1, 1024, 1024)
    for params in ({"gpu_rfactor_blocks": 0}, REFERENCE_SPACE):
        assert [sketch.explain() for sketch in sketches(made, params)] == [
            "CrossThreadReduction(S)",
            "(no rule applied)",
        ]


HUGE = {
    "a norm": (norm(1, 65536, 65536), False),
    "norms": (norm(200, 65536, 65536), False),
    "a norm of nearly as many as a loop counts": (norm(1, 2, 2**30 - 1), False),
    "a norm of fewer than a loop counts": (norm(1, 46340, 46341), True),
}
"""Of how many elements, and whether one loop can run over them, those included that threads have too many."""


@pytest.mark.parametrize("target", [HOPPER, "llvm -mcpu=core-avx2"])
@pytest.mark.parametrize("name", HUGE)
def test_more_terms_than_a_loop_counts_are_added_up_by_several_loops(name: str, target: str) -> None:
    tensors, divided = HUGE[name]
    task = gpu_task(tensors, target) if target == HOPPER else task_of(tensors, target)
    space = ProgramSpace.of(task)
    explained = [sketch.explain() for sketch in space.sketches]
    assert explained.pop() == "(no rule applied)"
    assert bool(explained) == divided
    for population, row in space.sample(12, np.random.default_rng(0)).in_order():
        state = population.materialize(row)
        assert lower(state, kernels=task.target.is_gpu).params


def test_a_reduction_that_another_one_reads_is_shared_as_well() -> None:
    """All its holes are at the loops that they are said to be at, wherever stages came to lie."""
    (sketch,) = space_of("deviation").sketches
    assert sketch.rules == (RULE, RULE)
    state = sketch.bare
    for hole in sketch.holes:
        if hole.kind is ColumnKind.THREADS:
            stage, loop = hole.loop
            assert state.stages[stage].name == hole.columns[0].stage
            assert any(relation.parent == loop for relation in state.stages[stage].relations)  # type: ignore[union-attr]


# -- programs ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_pocl")
@pytest.mark.parametrize("name", CASES)
def test_programs_are_right(name: str) -> None:
    """Interpreted, which finds races, and on a device; those with shuffles, too."""
    states = programs(name, 3)
    case = Case.of(states[0])
    for number, state in enumerate(states):
        check_gpu_program(state, SMALL_BLOCKS)
        check_replay(state)
        check_printed_code(state)
        nests = variants(state)
        for nest in nests if number == 0 else ():
            case.check_interpreted(nest, check_races=True)
        arrays = case.arrays()
        run_opencl(nests[0], *arrays)
        case.check(arrays)


@pytest.mark.parametrize("name", CASES)
def test_records_say_how_long_loops_are(name: str) -> None:
    """Those over what a block has left of a reduction, and over the parts, as well."""
    for state in programs(name, 6, 1):
        replayed = State.initial(state.dag)
        for step in state.steps:
            if isinstance(step, SplitStep):
                assert step.extent == loop_extent(replayed, step)
            replayed = replayed.apply(step)


@pytest.mark.parametrize("name", CASES)
def test_programs_are_found_again_and_mutate(name: str) -> None:
    neighbourhood = Neighbourhood(space_of(name))
    for parents in neighbourhood.space.sample(6, np.random.default_rng(2)).populations:
        found = locate(neighbourhood, parents.materialize(0))
        assert found is not None
        assert found[0] is parents.family
        assert np.array_equal(found[1][0], parents.values[0])
        (children,) = PartCount().propose(parents, neighbourhood, np.random.default_rng(3)).populations
        assert len(children)
        changed = np.flatnonzero((children.values != parents.values).any(axis=0))
        assert set(changed) <= set(parents.family.positions(ColumnKind.PARTS))
        for row, child in enumerate([admitted(children, neighbourhood.space.context)] * 2):
            check_gpu_program(child.materialize(row % len(child)), SMALL_BLOCKS)


@pytest.mark.parametrize("name", ["norm", "product", "deviation"])
def test_features_are_what_a_count_over_each_nest_says(name: str) -> None:
    task = gpu_task(CASES[name](), hardware=SMALL_BLOCKS)
    for population in space_of(name).sample(5, np.random.default_rng(4)).populations:
        check_population(task, population).check_most(accesses=0.9)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_programs_compile(compiler: CudaCompiler, arch: str) -> None:
    (state, *_) = programs("norm", 1, 5)
    nest = variants(state)[-1]
    done = compile_cuda(emit_c(split_kernels(nest), CUDA), arch, compiler)
    assert done.warnings == ""
    assert len(done.resources) == len(count_kernels(nest)) == 2


def test_the_roofline_prefers_many_blocks() -> None:
    task = gpu_task(norm(1, 1024, 1024), HOPPER)
    best = {True: -np.inf, False: -np.inf}
    for population in ProgramSpace.of(task).sample(120, np.random.default_rng(0)).populations:
        score = float(AnalyticModel().predict(task, Programs([population])).max())
        shared = uses(population.family.sketch)
        best[shared] = max(best[shared], score)
    assert best[True] > best[False] + np.log(4)
