"""Programs for GPUs as rows: bound as TVM binds them, complete, and within the device's limits."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ansor
from ansor import te
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.errors import ScheduleError
from ansor.schedule.lowering import lower
from ansor.schedule.stages import Annotation, ComputeAt, IteratorKind
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep, StorageAlignStep, SwizzleStep
from ansor.task.gpu_limits import gpu_faults, verify_gpu
from ansor.task.hardware import HardwareParams
from ansor.te import Tensor
from search.params import REFERENCE_SPACE, Params
from sketches import ColumnKind, Population, ProgramSpace, SketchContext, generate_sketches
from sketches.columns import Column
from sketches.derive import SkipStage
from sketches.factors import sample_factorizations
from sketches.launch import Launch, fetch_lengths, thread_lengths
from sketches.limits import refusals, runnable
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from sketches.padding import SWIZZLED
from sketches.params import GPU_UNROLL_CANDIDATES
from sketches.repair import repaired
from tests.device_kernels import why_no_device
from tests.gpu_cases import (
    GPU,
    GPU_SMALL,
    check_gpu_program,
    gated_product,
    gpu_task,
    group_norm,
    rms_norm_product,
    row_means,
)
from tests.gpu_schedules import argmax, kernels
from tests.program_laws import Case
from tests.sketches_cases import (
    matmul,
    matmul_relu,
    oracle_lines,
    oracle_workload,
    padded_conv1d,
    row_sum,
    softmax,
    task_of,
    zero_rank,
)


@cache
def space_of(name: str) -> ProgramSpace:
    return ProgramSpace.of(gpu_task(GPU_SMALL[name]()))


@cache
def recorded_space(name: str) -> Neighbourhood:
    return Neighbourhood(ProgramSpace.of(task_of(oracle_workload(name), "cuda"), REFERENCE_SPACE))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def plain(steps: Any) -> list[Any]:
    """Steps as records, without the extents of splits."""
    return [[*step[:3], 0, *step[4:]] if step[0] == "SP" else list(step) for step in steps]


def beyond_the_device(population: Population, context: SketchContext) -> np.ndarray:
    """Which rows are refused for what kernels take, and not for what a search would rather not have."""
    broken = np.zeros(len(population), dtype=np.bool_)
    for reason, rows in refusals(population, context).items():
        if not any(words in reason for words in ("fewer threads", "virtual threads", "different lengths")):
            broken |= rows
    return broken


def skeleton(steps: Any) -> str:
    """What steps do, whatever lengths and unroll limits they have."""
    shapes = [[*s[:3], len(s[4])] if s[0] == "SP" else s[:3] if s[0] == "PR" else s for s in steps]
    return str([list(shape) for shape in shapes])


# -- TVM's programs ------------------------------------------------------------------------------------------


def test_every_recorded_gpu_program_is_a_row() -> None:
    """All 135 recorded CUDA programs, mutated ones too, with the same steps; limits are told alike."""
    found, refused = 0, Counter[bool]()
    for entry in oracle_lines("state", "cuda"):
        steps, neighbourhood = entry["record"]["i"][1][1], recorded_space(entry["workload"])
        context = neighbourhood.space.context
        state = State.replay(context.dag, steps)
        row = locate(neighbourhood, state)
        assert row is not None, steps
        population = Population(*row)
        assert plain(step.to_json() for step in population.steps(0)) == plain(steps)
        assert str(population.materialize(0).with_bounds()) == str(state.with_bounds())
        (broken,) = beyond_the_device(population, context)
        assert bool(broken) == bool(gpu_faults(state, context.hardware))
        refused[bool(broken)] += 1
        found += 1
    assert found == 135
    assert refused[True] > 0


def test_sampled_programs_have_the_structures_of_recorded_ones() -> None:
    """Apart from numbers, what TVM samples of a workload is among what we sample of it."""
    recorded: dict[str, set[str]] = {}
    for entry in oracle_lines("state", "cuda"):
        recorded.setdefault(entry["workload"], set()).add(skeleton(entry["record"]["i"][1][1]))
    assert len(recorded) == 16
    for name, theirs in recorded.items():
        ours = {
            skeleton([step.to_json() for step in population.steps(row)])
            for population in recorded_space(name).space.sample(40, rng()).populations
            for row in range(len(population))
        }
        assert theirs <= ours, name


def test_the_printed_sketches_do_not_change_by_binding() -> None:
    """A space has the sketches that are derived, in their order."""
    task = gpu_task(matmul(64, 64, 64))
    derived = [str(sketch) for sketch in generate_sketches(task)]
    assert [str(sketch) for sketch in ProgramSpace.of(task).sketches] == derived


# -- laws ----------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(GPU_SMALL)), st.integers(0, 2**31))
def test_every_sampled_gpu_program_is_complete_and_fits(name: str, seed: int) -> None:
    sample = space_of(name).sample(10, rng(seed))
    assert len(sample) + sum(sample.dropped.values()) == 10
    for population, row in sample.in_order():
        check_gpu_program(population.materialize(row))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(GPU_SMALL)), st.integers(0, 2**31))
def test_bounds_of_columns_are_those_of_programs(name: str, seed: int) -> None:
    """Regions of a structure whose loops are bound one by one are those of the program that fuses them."""
    for population in space_of(name).sample(8, rng(seed)).populations:
        columns = population.bounds
        for row in range(len(population)):
            state = population.materialize(row).with_bounds()
            for mine, theirs in zip(columns.stages, state.stages, strict=True):
                extents = {
                    loop.name: int(np.broadcast_to(loop.extent, len(population))[row])  # type: ignore[arg-type]
                    for loop in mine.iterators
                }
                own = {loop.name: loop.extent for loop in theirs.iterators if loop.name in extents}
                assert own == {loop: extents[loop] for loop in own}


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(GPU_SMALL)), st.integers(0, 2**31))
def test_limits_of_columns_are_those_of_nests(name: str, seed: int) -> None:
    """Of lengths drawn without a thought of limits, columns and kernels refuse the same ones."""
    hardware = HardwareParams(-1, 16, 64, 2048, 256, 128, 4, 32)
    space = ProgramSpace.of(gpu_task(GPU_SMALL[name](), hardware=hardware))
    for sketch in space.sketches:
        family = space.family(sketch, sketch.bare)
        values = np.zeros((8, len(family.columns)), dtype=np.int64)
        for hole in family.holes:
            own = slice(hole.start, hole.stop)
            if hole.kind is ColumnKind.TILE:
                values[:, own] = sample_factorizations(hole.extent, len(hole.columns), 64, rng(seed), 8)
            else:
                values[:, own] = rng(seed).choice([1, 2, 4, 8, 32, 64, 256], size=(8, 1))
        population = repaired(Population(family, values), space.context)
        broken = beyond_the_device(population, space.context)
        for row in range(8):
            faults = gpu_faults(population.materialize(row), hardware)
            assert bool(broken[row]) == bool(faults), (faults, str(population.materialize(row).with_bounds()))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(GPU_SMALL)), st.integers(0, 2**31))
def test_a_sampled_gpu_program_is_found_again(name: str, seed: int) -> None:
    neighbourhood = Neighbourhood(space_of(name))
    for population in neighbourhood.space.sample(6, rng(seed)).populations:
        for row in range(len(population)):
            found = locate(neighbourhood, population.materialize(row))
            assert found is not None
            assert found[0].key == population.family.key
            assert str(Population(*found).materialize(0)) == str(population.materialize(row))


# -- sampling ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "least"),
    [
        (lambda: matmul(1024, 1024, 1024), 0.8),
        (lambda: oracle_workload("conv2d"), 0.95),
        (lambda: padded_conv1d(1024, 64, 256), 0.8),
        (lambda: softmax(512, 1024), 1.0),
    ],
    ids=["matmul", "conv2d", "conv1d", "softmax"],
)
def test_a_good_share_of_what_is_drawn_is_valid(make: Any, least: float) -> None:
    sample = ProgramSpace.of(gpu_task(make())).sample(500, rng())
    assert len(sample) >= least * 500, sample.dropped


def test_columns_of_a_gpu_matmul_have_names() -> None:
    (family,) = {p.family for p in ProgramSpace.of(gpu_task(matmul(64, 64, 64))).sample(9, rng()).populations}
    named = [str(column) for column in family.columns]
    assert named[:4] == [f"tile C.local.i_c[{level}]" for level in (1, 2, 3, 4)]
    assert named[8:] == [
        "tile C.local.k[1]",
        "tile C.local.k[2]",
        "fetch B.shared.ax0@ax1@",
        "fetch A.shared.ax0@ax1@",
        "unroll C.local",
        "lead C.local",
        "pad A.shared.ax0",
    ]


def test_all_values_are_drawn() -> None:
    """Unroll limits of GPUs, threads that are whole warps, copies and padding of up to 16 bytes, leads."""
    populations = ProgramSpace.of(gpu_task(matmul(256, 256, 256))).sample(400, rng()).populations
    populations += ProgramSpace.of(gpu_task(row_sum(2000, 500))).sample(200, rng()).populations
    seen: dict[ColumnKind, set[int]] = {}
    for population in populations:
        for at, column in enumerate(population.family.columns):
            seen.setdefault(column.kind, set()).update(population.values[:, at].tolist())
    assert seen[ColumnKind.UNROLL] == set(GPU_UNROLL_CANDIDATES)
    assert seen[ColumnKind.THREADS] == {32, 64, 128, 256, 512, 1024}
    assert seen[ColumnKind.FETCH] == {1, 2, 4}
    assert seen[ColumnKind.PAD] == {0, 1, 2, 4, SWIZZLED}
    assert seen[ColumnKind.LEAD] == {0, 1, 2, 3}


def test_lengths_that_do_not_divide_are_drawn() -> None:
    space = ProgramSpace.of(gpu_task(matmul(250, 67, 96)))
    inexact = 0
    for population in space.sample(60, rng()).populations:
        for hole in population.family.tiles:
            inner = population.values[:, hole.start : hole.stop].prod(axis=1)
            inexact += int((hole.extent % inner != 0).sum())
    assert inexact > 10


def test_a_copy_has_the_extent_of_what_the_block_shares() -> None:
    """The recorded split of a cooperative fetch tells all that is copied, where TVM tells less."""
    for population, row in ProgramSpace.of(gpu_task(matmul(128, 128, 64))).sample(20, rng()).in_order():
        steps, nest = population.steps(row), lower(population.materialize(row), simple_mode=True)
        sizes = {name: size for name, size in allocations(nest.body).items() if name.endswith(".shared")}
        steps = tuple(step for step in steps if not isinstance(step, (StorageAlignStep, SwizzleStep)))
        splits = [steps[hole.step] for hole in population.family.sketch.spelled_holes if not hole.extent]
        assert sorted(split.extent for split in splits if isinstance(split, SplitStep)) == sorted(  # type: ignore[type-var]
            sizes.values()
        )


def allocations(stmt: Any) -> dict[str, int]:
    from ansor.ir.nest import Alloc, walk_statements

    return {
        one.buffer.name: int(np.prod(one.buffer.constant_shape))
        for one in walk_statements(stmt)
        if isinstance(one, Alloc)
    }


def test_a_product_with_its_own_transpose_shares_rows_and_columns() -> None:
    """A block has what it needs of either, not all that lies between."""
    for population, row in space_of("own transpose").sample(12, rng()).in_order():
        state = population.materialize(row)
        check_gpu_program(state)
        nest = kernels(state)
        assert {"A.d.shared", "A.shared"} <= allocations(nest.body).keys()
        Case.of(state).check_interpreted(nest, check_races=True)


def test_what_has_several_outputs_is_not_copied() -> None:
    """A product reads one of them, which is no reason to refuse the whole computation."""
    b = te.placeholder((12, 20), name="B")
    _, _, best = argmax(16, 24)
    x = best.op.input_tensors[0]
    picked = te.compute((16, 12), lambda i, j: (best[i] + j, best[i] * j), name="P")
    k = te.reduce_axis((0, 12), name="k")
    c = te.compute((16, 20), lambda i, j: te.sum(te.cast(picked[0][i, k], "float32") * b[k, j], axis=k))
    space = ProgramSpace.of(gpu_task([x, b, c]))
    for population, row in space.sample(8, rng()).in_order():
        state = population.materialize(row)
        check_gpu_program(state)
        Case.of(state).check_interpreted(kernels(state), check_races=True)


def test_a_single_element_is_not_copied() -> None:
    """A product reads it again and again, and there is nothing that threads could fetch together."""
    a, b, scale = te.placeholder((20, 24)), te.placeholder((24, 12)), te.placeholder(())
    k = te.reduce_axis((0, 24), name="k")
    c = te.compute((20, 12), lambda i, j: te.sum(a[i, k] * b[k, j] * scale(), axis=k), name="C")
    for population, row in ProgramSpace.of(gpu_task([a, b, scale, c])).sample(8, rng()).in_order():
        state = population.materialize(row)
        check_gpu_program(state)
        Case.of(state).check_interpreted(kernels(state), check_races=True)


def test_a_vector_of_a_copy_lies_in_one_row() -> None:
    """Its length divides the copy's last extent and is no longer than the device loads at once."""
    seen = set()
    for population in ProgramSpace.of(gpu_task(matmul(60, 90, 48))).sample(200, rng()).populations:
        for hole in population.family.holes:
            if hole.kind is ColumnKind.FETCH:
                region = population.inferred.stages[hole.loop[0]].region
                row = np.broadcast_to(region[-1].width, len(population))  # type: ignore[arg-type]
                lengths = population.values[:, hole.start]
                assert (row % lengths == 0).all()
                assert lengths.max() <= 4
                seen |= set(lengths.tolist())
    assert seen == {1, 2, 4}


# -- binding -------------------------------------------------------------------------------------------------


def test_a_reduction_to_nothing_runs_over_threads() -> None:
    """Without spatial loops there is nothing else that a block could run over."""
    for n in (24, 500):
        space = ProgramSpace.of(gpu_task(zero_rank(n)))
        for population, row in space.sample(10, rng()).in_order():
            (stage,) = [s for s in population.materialize(row).stages if not s.is_placeholder]
            assert stage.iterators[-1].annotation is Annotation.THREAD_X
            assert not any(loop.annotation.is_block for loop in stage.iterators)


def test_two_outer_levels_are_blocks_and_threads() -> None:
    space = ProgramSpace.of(gpu_task(matmul(64, 64, 64)), {"gpu_multi_level_tiling_structure": "SSRSRS"})
    for population, row in space.sample(12, rng()).in_order():
        state = population.materialize(row)
        check_gpu_program(state)
        marks = [loop.annotation for stage in state.stages for loop in stage.iterators]
        assert Annotation.VTHREAD not in marks
        assert {Annotation.BLOCK_X, Annotation.THREAD_X} <= set(marks)


def test_one_outer_level_is_refused() -> None:
    task = gpu_task(matmul(64, 64, 64))
    with pytest.raises(ScheduleError, match=r"no sketch can be sampled.*begin with SS or SSS"):
        ProgramSpace.of(task, {"gpu_multi_level_tiling_structure": "SRSRS"})


def test_threads_of_devices_that_do_not_tell_how_many_run_in_step() -> None:
    """Blocks begin at 32 threads; a device of fewer has all of them."""
    opencl = HardwareParams.for_target(gpu_task(matmul(8, 8, 8), "opencl").target)
    assert opencl.warp_size == 1
    assert thread_lengths(5000, opencl) == (32, 64, 128, 256)
    assert thread_lengths(5, opencl) == (32,)
    assert thread_lengths(5000, HardwareParams(-1, 16, 64, 0, 0, 8, 1, 1)) == (8,)
    assert thread_lengths(100, GPU) == (32, 64, 128)
    assert fetch_lengths(GPU) == (1, 2, 4, 8, 16)
    space = ProgramSpace.of(gpu_task(matmul(64, 64, 64), "opencl", opencl))
    for population, row in space.sample(10, rng()).in_order():
        check_gpu_program(population.materialize(row), opencl)


def test_a_limit_of_0_is_not_known() -> None:
    """Nothing is refused for it, and what is drawn is what other devices have."""
    unknown = HardwareParams(-1, 0, 64)
    assert thread_lengths(5000, unknown) == (32, 64, 128, 256, 512, 1024)
    assert fetch_lengths(unknown) == (1, 2, 4, 8, 16)
    for name in ("square", "wide softmax", "wide row sum"):
        space = ProgramSpace.of(gpu_task(GPU_SMALL[name](), hardware=unknown))
        sample = space.sample(20, rng())
        assert len(sample) == 20, sample.dropped
        assert {1, 2, 4} >= {
            length
            for population in sample.populations
            for hole in population.family.holes
            if hole.kind is ColumnKind.FETCH
            for length in population.values[:, hole.start].tolist()
        }


def test_a_launch_that_no_column_decides_allows_everything() -> None:
    values = np.ones((3, 2), dtype=np.int64)
    assert Launch("C", (), (), may_be_small=False).allows(values, GPU).all()
    assert not Launch("C", (), (0, 1), may_be_small=False).allows(values, GPU).any()
    assert Launch("C", (), (0, 1), may_be_small=True).allows(values, GPU).all()


@pytest.mark.parametrize("params", [None, REFERENCE_SPACE])
def test_blocks_may_be_small_where_nothing_else_divides(params: Any) -> None:
    """1031 is prime and more than a block has threads."""
    sample = ProgramSpace.of(gpu_task(matmul(1031, 1, 64)), params).sample(20, rng())
    assert len(sample) > 10, sample.dropped
    for population, row in sample.in_order()[:5]:
        check_gpu_program(population.materialize(row))


def test_mobile_gpus_are_sampled_as_other_ones() -> None:
    """Those of kind mali, too, for which TVM's sketches are those of CPUs."""
    task = gpu_task(matmul(64, 64, 64), "opencl -device=mali")
    hardware = HardwareParams.for_target(task.target)
    space = ProgramSpace.of(gpu_task(matmul(64, 64, 64), "opencl -device=mali", hardware))
    for population, row in space.sample(10, rng()).in_order():
        check_gpu_program(population.materialize(row), hardware)


def test_a_device_on_which_nothing_fits_gives_no_program() -> None:
    """Every row is refused, and the reason is told."""
    task = gpu_task(matmul(64, 64, 64), hardware=HardwareParams(-1, 16, 64, 4, 2**31 - 1, 1024, 8, 32))
    sample = ProgramSpace.of(task).sample(20, rng())
    assert len(sample) == 0
    assert sample.dropped == {"more than 4 bytes of shared memory": 20}


# -- more elements than a loop counts ------------------------------------------------------------------------

HUGE = {
    "a product": lambda: matmul(50000, 50000, 64),
    "a product with padding": lambda: matmul_relu(46350, 46350, 7),
    "elements": lambda: added((50000, 50000)),
    "elements of short rows": lambda: added((1 << 30, 3)),
    "elements of many rows": lambda: added((1 << 10, 1 << 18, 1 << 10)),
    "one row": lambda: added((2**31 - 2,)),
    "sums": lambda: sums(50000, 50000, 40),
}
"""Their outputs have more elements than int32 counts, or nearly."""


def added(shape: tuple[int, ...]) -> list[Tensor]:
    x = te.placeholder(shape, name="X", dtype="int8")
    return [x, te.compute(shape, lambda *at: x[at] + x[at], name="Y")]


def sums(n: int, m: int, terms: int) -> list[Tensor]:
    x = te.placeholder((n, m, terms), name="X")
    k = te.reduce_axis((0, terms), name="k")
    return [x, te.compute((n, m), lambda i, j: te.sum(x[i, j, k], axis=k), name="S")]


@pytest.mark.parametrize("name", HUGE)
def test_programs_of_huge_tensors(name: str) -> None:
    """They are there, keep the limits of CUDA, and offsets in what they write have 64 bits."""
    space = ProgramSpace.of(gpu_task(HUGE[name](), "cuda -arch=sm_90"))
    sample = space.sample(10, rng())
    assert len(sample) > 5
    neighbourhood = Neighbourhood(space)
    for population, row in sample.in_order():
        state = population.materialize(row)
        assert locate(neighbourhood, state) is not None
        nest = kernels(state)
        verify_gpu(nest, GPU, "cuda")
        if name != "one row":
            assert "(long long)" in emit_c(split_kernels(nest), CUDA)


def test_more_blocks_than_a_grid_has_are_refused() -> None:
    space = ProgramSpace.of(gpu_task(matmul(50000, 50000, 64)))
    (sketch,) = space.sketches
    family = space.family(sketch, sketch.bare)
    values = np.zeros((2, len(family.columns)), dtype=np.int64)
    values[:, : family.filling] = 1
    values[1, family.index[Column(ColumnKind.TILE, "C.local", "i_c", 2)]] = 2
    broken = refusals(Population(family, values), space.context)["more than 2147483647 blocks along x"]
    assert list(broken) == [True, False]


@pytest.mark.parametrize(
    ("tensors", "around"),
    [(added((30, 17)), 6), (added((7, 30, 17)), 42), (added((101,)), 2), (zero_rank(300), 3)],
)
def test_loops_that_are_not_fused_for_their_length(
    tensors: list[Tensor], around: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of small tensors that are bound as huge ones compute what their graphs say."""
    monkeypatch.setattr("sketches.threads.MAX_EXTENT", 164)
    hardware = HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 64, 8, 32)
    space = ProgramSpace.of(gpu_task(tensors, hardware=hardware), rules=(SkipStage(),))
    for population, row in space.sample(4, rng()).in_order():
        state = population.materialize(row)
        outermost = state.with_bounds().stages[-1].iterators[0]
        assert outermost.extent == around
        assert outermost.annotation is (
            Annotation.BLOCK_Y if outermost.kind is IteratorKind.SPATIAL else Annotation.NONE
        )
        Case.of(state).check_interpreted(kernels(state), check_races=True)


def test_a_cpu_refuses_nothing() -> None:
    space = ProgramSpace.of(task_of(matmul(64, 64, 64)))
    for population in space.sample(10, rng()).populations:
        assert refusals(population, space.context) == {}
        assert len(runnable(population, space.context)) == len(population)


def test_an_author_may_unroll_loops_of_a_gpu_program() -> None:
    """Steps of other annotations find their loops behind those that are fused."""
    from ansor.schedule.access import ALWAYS_UNROLL_ATTR

    space = ProgramSpace.of(gpu_task(matmul(64, 64, 64, **{ALWAYS_UNROLL_ATTR: ["j"]})))
    for population, row in space.sample(10, rng()).in_order():
        state = population.materialize(row)
        check_gpu_program(state)
        unrolled = [x.name for s in state.stages for x in s.iterators if x.annotation is Annotation.UNROLL]
        assert "j_c.4" in unrolled
        assert all(name.startswith("j") for name in unrolled)


def test_a_tile_without_a_cache_stage_is_bound_at_root() -> None:
    """An axis that is not to be split keeps a tile from its consumer; it is bound all the same."""
    from ansor.schedule.access import NO_SPLIT_ATTR

    x: Tensor = te.placeholder((64, 40), name="X")
    w = te.placeholder((40, 32, 4), name="W")
    k = te.reduce_axis((0, 40), name="k")
    y = te.compute(
        (64, 32, 4),
        lambda i, j, v: te.sum(x[i, k] * w[k, j, v], axis=k),
        name="Y",
        attrs={NO_SPLIT_ATTR: ["v"]},
    )
    space = ProgramSpace.of(gpu_task([x, w, y]))
    for population, row in space.sample(10, rng()).in_order():
        check_gpu_program(population.materialize(row))


def test_a_reduction_across_threads_that_is_an_output_stays_at_root() -> None:
    """Though its one consumer could have it inside of its loops."""
    x = te.placeholder((9, 100), name="X")
    k = te.reduce_axis((0, 100), name="k")
    total = te.compute((9,), lambda i: te.sum(x[i, k], axis=k), name="S")
    twice = te.compute((9,), lambda i: total[i] * 2.0, name="Y")
    sketches = generate_sketches(gpu_task([x, total, twice]))
    shared = [sketch for sketch in sketches if "CrossThreadReduction" in sketch.explain()]
    assert len(shared) == 1
    for population, row in ProgramSpace.of(gpu_task([x, total, twice])).sample(10, rng()).in_order():
        check_gpu_program(population.materialize(row))


def kinds(tensors: list[Tensor], params: Params | None = None) -> list[str]:
    """The rules of each sketch."""
    return [sketch.explain() for sketch in generate_sketches(gpu_task(tensors), params)]


def test_a_result_may_have_a_block_where_its_reader_has_several() -> None:
    """In a kernel of its own; where a block of the reader has one result, there is nothing to gain."""
    apart = ["CrossThreadReduction(S)"]
    assert kinds(row_means(40, 100)) == [*apart * 2, "(no rule applied)"]
    assert kinds(row_means(1, 100)) == [*apart, "(no rule applied)"]
    assert kinds(group_norm(2, 4, 3, 40)) == [*apart * 2, "(no rule applied)"]
    assert kinds(group_norm(2, 1, 12, 40)) == [*apart, "(no rule applied)"]
    assert kinds(row_means(40, 100), {"gpu_reduction_kernels": 0}) == [*apart, "(no rule applied)"]
    (_, own, _) = generate_sketches(gpu_task(row_means(40, 100)))
    assert own.state.stages[own.state.stage_id("S")].compute_at is ComputeAt.ROOT


def test_a_reduction_whose_reader_is_part_of_a_tile_is_shared_by_threads_of_its_own() -> None:
    space = ProgramSpace.of(gpu_task(rms_norm_product(24, 40, 32)))
    assert any("CrossThreadReduction(S)" in sketch.explain() for sketch in space.sketches)
    (sketch,) = (sketch for sketch in space.sketches if "CrossThreadReduction(S)" in sketch.explain())
    assert sketch.state.stages[sketch.state.stage_id("S")].compute_at is ComputeAt.ROOT


def test_what_others_read_as_well_is_copied_for_those_with_tiles() -> None:
    """So a product computes nothing costly in its innermost loop."""
    assert kinds(gated_product(32)) == [
        "MultiLevelTilingWithFusion(C), AddCacheRead(W), AddCacheRead(A), AlwaysInline(A)"
    ]


def test_a_scan_is_not_inlined_into_one_sum_of_everything() -> None:
    """Each of ten stages reads the one before twice, so that all in one would read the first 1024 times."""
    x = made = te.placeholder((1024,), name="X")
    for step in range(10):
        made = te.compute(
            (1024,),
            lambda i, p=made, d=2**step: te.if_then_else(i >= d, p[i] + p[i - d], p[i]),
            name=f"s{step}",
        )
    task = ansor.SearchTask(compute_dag=[x, made], target="opencl")
    (state, *_) = ansor.sample_programs(task, 1, np.random.default_rng(0))
    assert 1 <= sum(stage.compute_at is ComputeAt.ROOT for stage in state.stages[1:-1]) < 9
    if why_no_device("opencl"):
        pytest.skip(why_no_device("opencl"))
    values = np.random.default_rng(0).integers(0, 9, 1024).astype(np.float32)
    found = ansor.build(state, [x, made], task.target)(values)
    np.testing.assert_array_equal(found, np.cumsum(values))
