"""Tiling to tensor cores: when the rule fires, what it makes, and that all its programs are right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from math import gcd
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda, compile_ptx
from ansor.codegen.c.cuda_compilers import CudaCompiler
from ansor.ir.shared_memory import shared_buffers
from ansor.ir.shuffles import WARP
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import TensorizeStep
from ansor.task.gpu_limits import count_kernels
from ansor.te import Tensor
from ansor.te.buffer import row_major_strides
from ansor.te.expr import Expr, int_value
from ansor.workloads.catalogue import get_workload
from costmodel import AnalyticModel, Programs
from costmodel.extraction.extract import extract
from costmodel.features.table import unscale
from measure import load_records
from search.mutations.defaults import GPU_MUTATIONS
from search.params import REFERENCE_SPACE
from sketches import ColumnKind, Population, ProgramSpace, Sketch, generate_sketches
from sketches.neighbours import Neighbourhood
from sketches.padding import SWIZZLED
from sketches.repair import admitted
from tests.cuda_on_host import run_cuda_on_host
from tests.gpu_cases import GPU, check_gpu_program, gpu_task
from tests.gpu_schedules import MOST_STEPS, kernels, steps
from tests.opencl_helper import run_opencl
from tests.program_laws import Case, check_printed_code, check_replay
from tests.search_fakes import simulated_cost
from tests.tensor_core_schedules import half_own_transpose, half_product
from tests.test_gpu_tensor_cores import calls

AMPERE = "cuda -arch=sm_80"
HALVES = ("bfloat16", "float32", "bfloat16")


def tensors(name: str, *args: int | str) -> list[Tensor]:
    return get_workload(name).tensors(*args)


def narrowed(n: int, m: int, depth: int, dtype: str = "float16") -> list[Tensor]:
    """A product that is rounded to its operands' dtype, and made positive before."""
    a, b, c = tensors("matmul", n, m, depth, dtype, "float32", dtype)
    high = te.compute((n, m), lambda i, j: te.maximum(c[i, j], te.const(0.0, "float32")), name="H")
    return [a, b, te.compute((n, m), lambda i, j: te.cast(high[i, j], dtype), name="D")]


def narrowed_twice(n: int, m: int, depth: int) -> list[Tensor]:
    """Two products one after the other, the first one's rounded to the operands' dtype."""
    a, b, hidden = narrowed(n, m, depth)
    c, k = te.placeholder((m, n), "float16", name="E"), te.reduce_axis((0, m), name="l")
    product = te.compute((n, n), lambda i, j: te.sum(wide(hidden[i, k]) * wide(c[k, j]), axis=k), name="F")
    return [a, b, c, product]


def part_of_the_columns(depth: int) -> list[Tensor]:
    """A product with the first columns of a matrix of 80: beyond them are others, no zeros."""
    a, b = te.placeholder((64, 80), "float16", name="A"), te.placeholder((depth, 64), "float16", name="B")
    k = te.reduce_axis((0, depth), name="k")
    return [a, b, te.compute((64, 64), lambda i, j: te.sum(wide(a[i, k]) * wide(b[k, j]), axis=k), name="C")]


def wide(value: Expr) -> Expr:
    return te.cast(value, "float32")


def sketches(made: list[Tensor], target: str = AMPERE, params: object = None) -> list[Sketch]:
    return generate_sketches(gpu_task(made, target), params)  # type: ignore[arg-type]


def uses(sketch: Sketch) -> bool:
    return "TensorCores" in sketch.rules


def loops(state: State, stage: str) -> list[str]:
    return [loop.name for loop in state.stages[state.stage_id(stage)].iterators]


# -- sketches ----------------------------------------------------------------------------------------------


def test_a_product_is_tiled_by_what_tensor_cores_multiply() -> None:
    (sketch,) = sketches(tensors("matmul", 64, 64, 64, *HALVES))
    assert sketch.explain() == "TensorCores(C), AddCacheRead(B), AddCacheRead(A)"
    assert loops(sketch.state, "C.local")[-3:] == ["i_c_1", "j_c_2", "k.1"]
    marks = [loop.annotation for loop in sketch.state.stages[sketch.state.stage_id("C.local")].iterators]
    assert marks[-3:] == [Annotation.TENSORIZE] * 3
    assert {(hole.columns[0].axis, hole.extent) for hole in sketch.holes} == {
        ("i_c_0", 4),
        ("j_c_0", 8),
        ("k.0", 4),
    }


def test_operands_are_rounded_where_the_operation_allows_it() -> None:
    (sketch,) = sketches(list(half_product(64, 64, 64, "float32")))
    assert sketch.explain() == "TensorCores(C), AddCacheRead(B), AddCacheRead(A)"
    assert [step.intrinsic for step in sketch.steps if isinstance(step, TensorizeStep)] == [
        "cuda.mma.m16n8k8.tfloat32"
    ]
    assert not any(map(uses, sketches(list(half_product(64, 64, 64, "float32")), "cuda -arch=sm_75")))


@pytest.mark.parametrize(
    ("arch", "dtypes"), [("sm_70", ()), ("sm_75", ("float16",)), ("sm_80", ("float16", "bfloat16"))]
)
def test_a_device_has_what_its_capability_has(arch: str, dtypes: tuple[str, ...]) -> None:
    for dtype in ("float16", "bfloat16"):
        made = tensors("matmul", 64, 64, 64, dtype, "float32", dtype)
        assert any(map(uses, sketches(made, f"cuda -arch={arch}"))) == (dtype in dtypes)


def test_a_consumer_takes_the_sums() -> None:
    (sketch,) = sketches(narrowed(64, 64, 64))
    assert uses(sketch)
    assert [stage.name for stage in sketch.state.stages if stage.compute_at == "root"][-1] == "D"
    assert sketch.state.stages[-1].iterators[-1].annotation is Annotation.VECTORIZE


def test_a_matrix_that_is_both_operands_is_copied_as_either() -> None:
    """What lies between the rows of a block and its columns would not fit in shared memory."""
    (sketch,) = sketches(half_own_transpose(64, 64))
    assert sketch.explain() == "TensorCores(C), AddCacheRead(A)"
    copies = [step.to_json() for step in sketch.steps if step.code.startswith("CHR")]
    assert copies == [["CHRP", 0, "shared", [1], 0], ["CHR", 0, "shared", [2]]]
    (sketch,) = sketches(half_own_transpose(40, 36))
    assert sketch.explain() == "TensorCores(C), AddCacheRead(A.layout), AlwaysInline(A.layout)"
    (sketch,) = sketches(half_own_transpose(64, 64), params={"gpu_read_parts": 0})
    assert sketch.explain() == "TensorCores(C)"


def test_sizes_that_are_no_multiples_are_padded() -> None:
    """The copies in shared memory are zero beyond the tensors; what is read of A is no larger."""
    (sketch,) = sketches(tensors("matmul", 40, 44, 36, *HALVES))
    assert sketch.explain() == (
        "TensorCores(C), AddCacheRead(B.layout), AlwaysInline(B.layout), AddCacheRead(A.layout), "
        "AlwaysInline(A.layout)"
    )
    assert [step.to_json() for step in sketch.steps if step.code in ("RL", "PAD")][:3] == [
        ["RL", 0, [[0, 48, 1], [1, 48, 1]], [2]],
        ["RL", 2, [[0, 48, 1], [1, 48, 1]], [3]],
        ["PAD", 4, "local", [48, 48, 48]],
    ]
    assert {(hole.columns[0].axis, hole.extent) for hole in sketch.holes} == {
        ("i_c_0", 3),
        ("j_c_0", 6),
        ("k.0", 3),
    }


def test_no_more_is_padded_than_has_to_be() -> None:
    (sketch,) = sketches(tensors("matmul", 64, 44, 64, *HALVES))
    assert sketch.explain() == (
        "TensorCores(C), AddCacheRead(B.layout), AlwaysInline(B.layout), AddCacheRead(A)"
    )
    (sketch,) = sketches(tensors("batch_matmul", 16, 20, 64, 64, "float16", "float32"))
    assert [step.to_json()[-1] for step in sketch.steps if step.code == "PAD"] == [[16, 32, 64, 64]]
    (sketch,) = sketches(tensors("matmul", 7, 64, 64, *HALVES))  # its rows are the instruction's columns
    assert [step.to_json()[-1] for step in sketch.steps if step.code == "PAD"] == [[8, 64, 64]]
    (sketch,) = sketches(tensors("conv2d", 1, 7, 7, 64, 64, 1, 1, 0, 1, 1, *HALVES))  # its columns are, too
    assert [step.to_json()[-1] for step in sketch.steps if step.code == "PAD"] == [[1, 7, 8, 64, 1, 1, 64]]
    (sketch,) = sketches(part_of_the_columns(64))
    assert uses(sketch)
    assert not any(step.code == "PAD" for step in sketch.steps)


def test_a_consumer_takes_the_sums_of_a_padded_product() -> None:
    (sketch,) = sketches(narrowed(40, 44, 36))
    assert sketch.explain().startswith("AlwaysInline(H), TensorCores(C), AddCacheRead(B.layout)")
    assert [stage.name for stage in sketch.state.stages if stage.compute_at == "root"][-1] == "D"
    assert [int_value(axis.extent) for axis in sketch.state.stages[-1].compute.axis] == [40, 44]


@pytest.mark.parametrize(
    ("made", "target", "params"),
    [
        (lambda: tensors("matmul", 64, 64, 64, *HALVES), "cuda", None),
        (lambda: tensors("matmul", 64, 64, 64, *HALVES), "cuda -arch=sm_75", None),
        (lambda: tensors("matmul", 64, 64, 64, *HALVES), "opencl", None),
        (lambda: tensors("matmul", 64, 64, 64, *HALVES), AMPERE, {"gpu_tensor_cores": 0}),
        (lambda: tensors("matmul", 64, 64, 64, *HALVES), AMPERE, REFERENCE_SPACE),
        (lambda: tensors("matmul", 64, 64, 64), AMPERE, None),
        (lambda: tensors("matmul", 3, 64, 64, *HALVES), AMPERE, None),
        (lambda: tensors("matmul", 64, 3, 64, *HALVES), AMPERE, None),
        (lambda: tensors("matmul", 64, 64, 7, *HALVES), AMPERE, None),
        (lambda: part_of_the_columns(72), AMPERE, None),
    ],
    ids=["any", "older", "opencl", "off", "reference", "float32", "rows", "columns", "products", "part"],
)
def test_others_are_left_to_other_rules(
    made: Callable[[], list[Tensor]], target: str, params: object
) -> None:
    found = sketches(made(), target, params)
    assert found
    assert not any(map(uses, found))


# -- programs ----------------------------------------------------------------------------------------------

CASES: dict[str, Callable[[], list[Tensor]]] = {
    "matmul": lambda: tensors("matmul", 64, 48, 64, *HALVES),
    "narrowed": lambda: narrowed(48, 32, 32),
    "batch": lambda: tensors("batch_matmul", 2, 32, 16, 48, "float16", "float32"),
    "added": lambda: tensors("matmul_add", 32, 32, 32, "bfloat16", "float32"),
    "rounded": lambda: list(half_product(32, 48, 32, "float32", "B")),
    "convolution": lambda: tensors("conv2d", 1, 2, 16, 16, 16, 3, 1, 1, 1, 1, *HALVES),
    "own transpose": lambda: half_own_transpose(48, 32),
    "padded own transpose": lambda: half_own_transpose(40, 36, "bfloat16"),
    "padded": lambda: narrowed(40, 44, 40),
    "odd": lambda: tensors("matmul", 31, 21, 45, *HALVES),
    "padded convolution": lambda: tensors("conv2d", 1, 2, 14, 14, 20, 3, 1, 1, 1, 1, *HALVES),
    "two padded": lambda: narrowed_twice(40, 44, 40),
}


def sampled(name: str, count: int, seed: int = 0) -> tuple[ProgramSpace, tuple[Population, ...]]:
    space = ProgramSpace.of(gpu_task(CASES[name](), AMPERE))
    return space, space.sample(count, np.random.default_rng(seed)).populations


@pytest.mark.parametrize("name", CASES)
def test_programs_are_right_and_warps_multiply(name: str) -> None:
    _, populations = sampled(name, 8)
    told, case = Counter[bool](), None
    for population in populations:
        if not uses(population.family.sketch):
            continue
        for row in range(len(population)):
            state = population.materialize(row)
            nest = kernels(state, shuffles=True)
            found = count_kernels(nest)[-1]
            assert found.threads % WARP == 0
            names = calls(emit_c(split_kernels(nest), CUDA))
            told[any(name.startswith("mma") for name in names)] += 1
            if row % 2:  # of every program its instructions are looked at, every other one is also run
                continue
            check_gpu_program(state)
            if steps(nest.body) <= MOST_STEPS:
                case = case or Case.of(state)
                case.check_interpreted(nest, check_races=True)
    assert told[True] > 6
    assert told[True] > 3 * told[False]


@pytest.mark.parametrize("name", CASES)
def test_programs_run(name: str) -> None:
    _, populations = sampled(name, 4, 3)
    case = None
    for population in populations:
        for row in range(min(2, len(population))):
            state = population.materialize(row)
            case = case or Case.of(state)
            arrays = case.arrays()
            run_cuda_on_host(kernels(state, shuffles=True), *arrays)
            case.check(arrays)
            check_replay(state)
            check_printed_code(state)


@pytest.mark.usefixtures("quick_pocl")
@pytest.mark.parametrize("name", ["padded", "padded convolution"])
def test_padded_programs_run_without_tensor_cores(name: str) -> None:
    """As the loops that they say."""
    _, populations = sampled(name, 4, 1)
    state = populations[0].materialize(0)
    case = Case.of(state)
    arrays = case.arrays()
    run_opencl(kernels(state), *arrays)
    case.check(arrays)


@pytest.mark.parametrize("name", ["matmul", "padded"])
def test_structures_take_what_programs_take(name: str) -> None:
    """What columns say of threads and memory is what kernels have."""
    _, populations = sampled(name, 20, 5)
    for population in populations:
        raw = extract(gpu_task(CASES[name](), AMPERE), population)
        assert np.isfinite(raw.values).all()
        alone = extract(
            gpu_task(CASES[name](), AMPERE),
            [population.materialize(row) for row in range(len(population))],
        )
        assert np.array_equal(raw.values, alone.values)


def test_what_is_beyond_a_tensor_is_filled_ahead(compiler: CudaCompiler) -> None:
    """With zeros, 16 bytes at once, by the instruction that copies, where rows are aligned."""
    task = gpu_task(tensors("matmul", 1000, 1000, 1000, "float16", "float32", "float16"), AMPERE)
    texts: list[str] = []
    for population in ProgramSpace.of(task).sample(12, np.random.default_rng(0)).populations:
        for row in range(len(population)):
            nest = kernels(population.materialize(row), shuffles=True)
            texts.append(emit_c(split_kernels(nest), CUDA))
    assert all(any(name.startswith("mma") for name in calls(text)) for text in texts)
    text = next(text for text in texts if "ansor_fill_16(&" in text)
    assert compile_cuda(text, "sm_90", compiler).warnings == ""
    ptx = compile_ptx(text, "sm_90", compiler)
    assert re.search(r"cp\.async\.cg\.shared\.global \[.*\], \[.*\], 16, %r", ptx)


def test_padding_keeps_rows_where_matrices_begin() -> None:
    _, populations = sampled("matmul", 20)
    for population in populations:
        sites = population.family.pads
        assert [site.values for site in sites] == [(0, 8, SWIZZLED)] * 2
        padded = population.values[:, list(population.family.positions(ColumnKind.PAD))]
        for row in np.flatnonzero(padded.any(axis=1))[:4]:
            nest = kernels(population.materialize(int(row)), shuffles=True)
            names = set(calls(emit_c(split_kernels(nest), CUDA)))
            assert any(one.startswith(("rows", "columns")) for one in names)


def test_words_that_lie_across_the_products_are_in_different_banks() -> None:
    """Of both operands, in the same programs: in rows that are padded by 4 elements, or by 8, or swizzled."""
    task = gpu_task(list(half_product(128, 128, 64, "float32")), AMPERE)
    told = Counter[int]()
    for population in ProgramSpace.of(task).sample(60, np.random.default_rng(0)).populations:
        assert [site.values for site in population.family.pads] == [(0, 4, 8, SWIZZLED)] * 2
        raw = unscale(extract(task, population).values)
        told.update(raw["bank_conflicts"][raw["by_warps"] > 0].round().astype(int).tolist())
        for row in range(min(len(population), 6)):
            check_gpu_program(population.materialize(row))
    assert told[1] > 2
    assert max(told) > 1


def test_mutants_are_right() -> None:
    neighbourhood = Neighbourhood(ProgramSpace.of(gpu_task(CASES["matmul"](), AMPERE)))
    parents = neighbourhood.space.sample(8, np.random.default_rng(2)).populations
    checked = 0
    for mutation, _ in GPU_MUTATIONS:
        for population in parents:
            offspring = mutation.propose(population, neighbourhood, np.random.default_rng(1))
            for child in offspring.populations:
                for row in range(min(2, len(admitted(child, neighbourhood.space.context)))):
                    check_gpu_program(admitted(child, neighbourhood.space.context).materialize(row))
                    checked += 1
    assert checked > 4


def test_the_roofline_knows_tensor_cores() -> None:
    """The best of some programs is several times as fast as the best of others that do not use them."""
    task = gpu_task(tensors("matmul", 1024, 1024, 1024, *HALVES), AMPERE)
    best: list[float] = []
    for params in ({}, {"gpu_tensor_cores": 0}):
        sample = ProgramSpace.of(task, params).sample(64, np.random.default_rng(0))
        best.append(float(AnalyticModel().predict(task, Programs(sample.populations)).max()))
    assert best[0] > best[1] + np.log(2)


def test_new_programs_copy_whole_vectors() -> None:
    """Which threads need not wait for; a search may try others."""
    _, populations = sampled("matmul", 30)
    for population in populations:
        for at in population.family.positions(ColumnKind.FETCH):
            assert set(population.values[:, at].tolist()) == {8}


def test_features_tell_which_rows_of_matrices_are_in_the_same_banks() -> None:
    """Rows of 16 bytes are apart in the 8 groups of banks at odd multiples of that, or if swizzled."""
    task = gpu_task(tensors("matmul", 256, 256, 256, *HALVES), AMPERE)
    found = set[tuple[bool, bool, int]]()
    for population in ProgramSpace.of(task).sample(40, np.random.default_rng(4)).populations:
        for row in range(len(population)):
            state = population.materialize(row)
            nest = kernels(state, shuffles=True)
            swizzled = {stage.name for stage in state.stages if stage.swizzle}
            shared = {b.name: b for b in shared_buffers(nest.body) if b.name not in swizzled}
            features = unscale(extract(task, [state]).values)
            told = features["bank_conflicts"][features["by_warps"] > 0]
            worst = 1
            for buffer in shared.values():
                pitch = (buffer.strides or row_major_strides(buffer.constant_shape))[-2]
                worst = max(worst, gcd(pitch // 8, 8))
            assert told.round().tolist() == [worst]
            found.add((worst > 1, worst > 2, len(swizzled)))
    assert {count for *_, count in found} == {0, 1, 2}
    assert len(found) > 3


def test_a_search_evolves_and_logs_them(tmp_path: Path) -> None:
    """On lines that TVM skips; what is read back has the same loops, and computes the product."""
    task = ansor.SearchTask(
        func="ansor.matmul", args=(64, 64, 64, *HALVES), target=AMPERE, hardware_params=GPU
    )
    log = tmp_path / "log.json"
    small = {"evolutionary_search_population": 128, "evolutionary_search_num_iters": 2}
    options = ansor.TuningOptions(
        num_measure_trials=24,
        num_measures_per_round=8,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(simulated_cost),
        measure_callbacks=[ansor.RecordToFile(log)],
        verbose=0,
    )
    assert task.tune(options, ansor.SketchPolicy(task, params=small)).trials == 24
    assert all(line.startswith("# ansor ") for line in log.read_text().splitlines())
    steps_of = [inp.state.steps for inp, _ in load_records(str(log))]
    states = [State.replay(task.compute_dag, steps) for steps in steps_of]
    assert len(states) == 24
    assert all(any(step.code == "TI" for step in state.steps) for state in states)
    case = Case.of(states[0])
    for state in states[:4]:
        arrays = case.arrays()
        run_cuda_on_host(kernels(state, shuffles=True), *arrays)
        case.check(arrays)
