"""Features of whole columns are those of each program, and those are what a count over its nest says."""

from __future__ import annotations

import numpy as np
import pytest

from ansor import te
from ansor.errors import DefinitionError, ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.schedule.steps import RewriteLayoutStep
from ansor.task.layout import rewrite_layouts
from ansor.task.task import Task
from costmodel import Programs
from costmodel.extraction.extract import extract, extract_forms
from costmodel.extraction.form import Form
from costmodel.features.reference import REFERENCE_FEATURES
from costmodel.features.table import FEATURES, INDEX, N_FEATURES, feature_names, unscale
from search import REFERENCE_SPACE, SearchTask
from sketches import Population, ProgramSpace
from sketches.columns import fill_holes
from tests.costmodel_law import Compared, check_rows, odd_lengths
from tests.random_choice import Chooser
from tests.random_graphs import random_graph
from tests.random_schedules import random_state
from tests.sketches_cases import (
    HARDWARE,
    SMALL,
    channel_filters,
    grouped_by_division,
    matmul,
    oracle_lines,
    oracle_workload,
    softmax,
    task_of,
)

TASKS = {name: task_of(make()) for name, make in SMALL.items()}
TASKS["filters of bytes"] = task_of(channel_filters(5, 12, 5, 2, "uint8"))


EXTENSIONS = {"packed reads": {"cpu_packed_read": 2}, "wasteful tiles": {"max_tile_waste": 1.4}}
"""Parameters of the sketch rules that go beyond TVM's."""

CONSTANTS = {
    "matmul": (24, 20, 36),
    "dense": (4, 24, 18),
    "dense of one row": (1, 512, 8),
    "conv2d": (1, 6, 6, 8, 12, 3, 1, 1),
    "group_conv2d": (1, 6, 6, 8, 8, 3, 1, 1, 1, 2),
    "transposed_conv2d": (1, 4, 4, 8, 12, 4, 2, 1),
}
"""Workloads with constant inputs."""
TARGET = "llvm -mcpu=core-avx2"


def sample(
    task: Task, count: int, seed: int = 0, params: dict[str, object] | None = None
) -> tuple[Population, ...]:
    return ProgramSpace.of(task, params).sample(count, np.random.default_rng(seed)).populations


def plain_state(population: Population, row: int) -> State:
    """A row's program before loops are fused and annotated."""
    family = population.family
    lengths = population.values[row].tolist()
    return State.replay(family.dag, fill_holes(family.steps, family.holes, lengths))


def check_population(task: Task, population: Population) -> Compared:
    form = Form.of_population(population)
    features = extract_forms(task, [form], scaled=False)
    parts = (
        check_rows(
            form,
            features.values[features.offsets[row] : features.offsets[row + 1]],
            rewrite_layouts(plain_state(population, row), task.layout_rewrite_option).state,
            rewrite_layouts(population.materialize(row), task.layout_rewrite_option).state,
            row=row,
        )
        for row in range(len(population))
    )
    return sum(parts, Compared())


# -- the law ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_a_population_are_what_a_count_over_each_nest_says(name: str) -> None:
    parts = (check_population(TASKS[name], one) for one in sample(TASKS[name], 10, 3))
    sum(parts, Compared()).check_most()


@pytest.mark.parametrize("name", ["matmul", "fused matmul", "padding", "transposes", "matmul of ones"])
def test_lengths_that_do_not_divide_are_counted_as_covered(name: str) -> None:
    parts = (check_population(TASKS[name], odd_lengths(one, 1)) for one in sample(TASKS[name], 8, 5))
    sum(parts, Compared()).check_most()


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("name", ["matmul", "matmul of primes", "padding"])
def test_what_goes_beyond_the_reference_is_counted(name: str, extension: str) -> None:
    populations = sample(TASKS[name], 12, 6, EXTENSIONS[extension])
    sum((check_population(TASKS[name], one) for one in populations), Compared()).check_most()


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_counted_in_the_order_in_which_a_program_reads_them(name: str) -> None:
    given = {"func": f"ansor.{name.split()[0]}", "args": CONSTANTS[name], "target": TARGET}
    task = SearchTask(**given, layout_rewrite_option=2)
    populations = [*sample(task, 12, 3), *(odd_lengths(one, 1) for one in sample(task, 8, 5))]
    rewritten = [rewrite_layouts(state, 2).layouts for state in Programs(populations)]
    assert sum(map(bool, rewritten)) > len(rewritten) / 2
    sum((check_population(task, one) for one in populations), Compared()).check_most()
    together = extract(task, populations)
    assert np.array_equal(together.values, extract(task, list(Programs(populations))).values)
    defined = SearchTask(**given)
    assert not np.array_equal(together.values, extract(defined, populations).values)


def test_an_input_that_keeps_its_layout_counts_as_it_is_defined() -> None:
    rewriting, plain = (
        SearchTask(compute_dag=grouped_by_division(), target=TARGET, layout_rewrite_option=option)
        for option in (2, 0)
    )
    populations = sample(plain, 4, 3)
    assert np.array_equal(extract(rewriting, populations).values, extract(plain, populations).values)


@pytest.mark.parametrize("block", range(6))
def test_random_programs_are_what_a_count_over_their_nest_says(block: int) -> None:
    compared = Compared()
    for seed in range(10 * block, 10 * block + 10):
        c = Chooser.from_seed(seed)
        dag = random_graph(c)
        state = random_state(c, dag, 12)
        task = Task.create(dag, "[]", "llvm -mcpu=core-avx2", hardware_params=HARDWARE)
        form = Form.of_state(state)
        features = extract_forms(task, [form], scaled=False)
        assert np.isfinite(features.values).all()
        compared += check_rows(form, features.values, form.state, state, sampled=False)
    compared.check_most(0.6, 0.5)


# -- one program, two ways ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_a_state_has_the_features_of_its_row(name: str) -> None:
    task = TASKS[name]
    populations = [*sample(task, 20), *(odd_lengths(one, 2) for one in sample(task, 6, 1))]
    together = extract(task, populations)
    alone = extract(task, list(Programs(populations)))
    assert np.array_equal(together.offsets, alone.offsets)
    assert np.array_equal(together.values, alone.values)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("name", ["batch_matmul", "conv2d"])
def test_a_state_has_the_features_of_its_row_beyond_the_reference(
    name: str, extension: str, seed: int
) -> None:
    task = task_of(oracle_workload(name))
    populations = sample(task, 25, seed, EXTENSIONS[extension])
    together = extract(task, populations)
    alone = extract(task, list(Programs(populations)))
    assert np.array_equal(together.values, alone.values)


@pytest.mark.parametrize("shape", [(600,), (20, 30)], ids=str)
def test_a_square_reads_its_element_once_in_partial_sums(shape: tuple[int, ...]) -> None:
    """Their indices hold lengths of tiles, and quotients if a reduction of several axes was fused."""
    x, axes = te.placeholder(shape, name="X"), [te.reduce_axis((0, n), f"k{n}") for n in shape]
    task = task_of([x, te.compute((), lambda: te.sum(x(*axes) * x(*axes), axis=axes), name="S")])
    factored = [one for one in sample(task, 12) if "AddRfactor" in one.family.sketch.rules]
    assert factored
    for population in factored:
        rows = extract(task, population)
        alone = extract(task, list(Programs([population])))
        assert np.array_equal(rows.values, alone.values)
        reads = unscale(rows.values)
        partial = reads["outer_prod"] >= 600
        assert (sum(reads[f"B{number}.acc_type.kRead"] for number in range(5))[partial] == 1).all()


def test_a_state_has_the_features_of_its_row_where_only_others_need_a_guard() -> None:
    """A factored reduction whose length divides runs in lanes, whatever the other rows of its family do."""
    task = SearchTask(func="ansor.softmax", args=(64, 17), target="llvm -mcpu=core-avx2")
    populations = [one for seed in range(4) for one in sample(task, 60, seed, EXTENSIONS["wasteful tiles"])]
    together = extract(task, populations)
    alone = extract(task, list(Programs(populations)))
    assert np.array_equal(together.values, alone.values)


def test_reads_of_one_element_of_a_packed_copy_are_one_in_any_population() -> None:
    a, b, k = (
        te.placeholder((16, 20), name="A"),
        te.placeholder((12, 20), name="B"),
        te.reduce_axis((0, 20), "k"),
    )
    c = te.compute((16, 12), lambda i, j: te.sum(a[i, k] * b[j, k] + b[j, k], axis=k), name="C")
    task = task_of([a, b, c])
    space = ProgramSpace.of(task, {"cpu_packed_read": 2})
    populations = space.sample(24, np.random.default_rng(0)).populations
    together = extract(task, populations)
    alone = extract(task, list(Programs(populations)))
    assert np.array_equal(together.values, alone.values)


def test_a_packed_copy_has_the_features_of_its_row_where_only_others_are_padded() -> None:
    task = SearchTask(func="ansor.matmul", args=(32, 48, 64), target="llvm -mcpu=core-avx2")
    params: dict[str, object] = {
        **EXTENSIONS["packed reads"],
        "max_tile_waste": 1.25,
        "cpu_fuse_all_vectors": 1,
    }
    populations = [one for seed in range(2) for one in sample(task, 60, seed, params)]
    together = extract(task, populations)
    alone = extract(task, list(Programs(populations)))
    assert np.array_equal(together.values, alone.values)


def test_padding_is_left_out_in_the_same_part_where_an_inlined_copy_is_padded_too() -> None:
    """The copy's condition on a tap of the kernel always holds: one on taps and pixels is not told by it."""
    populations = sample(TASKS["padding"], 25, 182992864, {"cpu_packed_read": 2, "max_tile_waste": 1.4})
    together = extract(TASKS["padding"], populations)
    alone = extract(TASKS["padding"], list(Programs(populations)))
    assert np.array_equal(together.values, alone.values)


@pytest.mark.parametrize("name", ["conv2d_bn_relu", "grouped", "norm", "transpose_bmm_softmax"])
def test_a_state_has_the_features_of_its_row_in_larger_programs(name: str) -> None:
    task = task_of(oracle_workload(name))
    populations = sample(task, 12)
    together = extract(task, populations)
    alone = extract(task, list(Programs(populations)))
    assert np.array_equal(together.values, alone.values)


def test_one_family_holds_programs_of_different_parallel_and_vector_loops() -> None:
    task = TASKS["matmul"]
    (first, *_) = sorted(sample(task, 60, params=dict(REFERENCE_SPACE)), key=len, reverse=True)
    raw = unscale(extract(task, first).values)
    assert len(np.unique(raw["parallel_num"])) > 1
    assert len(np.unique(raw["vec_len"])) > 1
    assert len(np.unique(raw["num_loops"])) > 3


def test_candidates_may_be_mixed_and_come_back_in_order() -> None:
    task = TASKS["softmax"]
    populations = sample(task, 10)
    states = [populations[0].materialize(0), populations[-1].materialize(0)]
    mixed = extract(task, [populations[1], *states, populations[0]])  # type: ignore[list-item]
    parts = [extract(task, populations[1]), extract(task, states)]
    parts.append(extract(task, populations[0]))
    assert np.array_equal(mixed.values, np.concatenate([part.values for part in parts]))
    assert len(mixed) == sum(map(len, parts))
    assert len(extract(task, [])) == 0


# -- single facts -------------------------------------------------------------------------------------------


def features_of(state: State, tensors: list[te.Tensor]) -> list[dict[str, float]]:
    values = extract(task_of(tensors), [state]).values
    columns = unscale(values)
    return [{name: float(column[row]) for name, column in columns.items()} for row in range(len(values))]


def test_the_known_values_of_the_reference_for_a_plain_matmul() -> None:
    tensors = matmul(512, 512, 512)
    (row,) = features_of(State.initial(ComputeDAG(tensors)), tensors)
    points = 512.0**3
    assert row["B0.bytes"] == pytest.approx(4 * points, rel=1e-4)
    assert row["float_addsub"] == row["float_mul"] == row["float_mad"] == pytest.approx(points, rel=1e-4)
    assert row["num_loops"] == pytest.approx(3)
    assert row["B0.acc_type.kRead"] == 1.0  # B walks down its columns: most lines


def test_the_known_values_of_the_reference_for_a_tiled_matmul() -> None:
    tensors = matmul(512, 512, 512)
    s = te.create_schedule([tensors[2].op])
    c = tensors[2]
    i, j = c.op.axis
    (k,) = c.op.reduce_axis
    io, ii = s[c].split(i, 16)
    jo, ji = s[c].split(j, 8)
    s[c].reorder(io, jo, k, ji, ii)
    (row,) = features_of(s.state, tensors)
    which = next(b for b in range(3) if row[f"B{b}.acc_type.kReadWrite"])
    assert row[f"B{which}.reuse_dis_iter"] == pytest.approx(8 * 16, rel=1e-4)
    assert row[f"B{which}.reuse_dis_bytes"] == pytest.approx((128 + 8 + 16) * 4, rel=1e-4)
    assert row[f"B{which}.reuse_ct"] == pytest.approx(512, rel=1e-4)


def test_an_integer_kernel_has_an_arithmetic_intensity() -> None:
    a, b = te.placeholder((8, 16), "int8", name="A"), te.placeholder((16, 8), "int8", name="B")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute(
        (8, 8), lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k), name="C"
    )
    (row,) = features_of(State.initial(ComputeDAG([a, b, c])), [a, b, c])
    assert row["int_mul"] == row["int_mad"] == pytest.approx(8 * 8 * 16, rel=1e-4)
    assert row["arith_intensity_curve_9"] > 0
    assert row["float_mul"] == 0


def test_positions_of_annotated_loops_are_told() -> None:
    tensors = matmul(64, 64, 64)
    state = State.initial(ComputeDAG(tensors))
    outer = state.annotate(2, 0, 3)
    (row,) = features_of(outer, tensors)
    assert row["parallel_type.kPosOuterSpatial"] == 1.0
    assert row["vec_type.kPosNone"] == 1.0
    (row,) = features_of(state.reorder(2, [0, 2, 1]).annotate(2, 2, 2), tensors)
    assert row["vec_type.kPosInnerSpatial"] == 1.0
    assert row["vec_len"] == pytest.approx(64, rel=1e-4)
    (row,) = features_of(state.annotate(2, 2, 1), tensors)
    assert row["unroll_type.kPosInnerReduce"] == 1.0


def test_waste_is_what_lengths_that_do_not_divide_cover_too_much() -> None:
    tensors = matmul(10, 9, 8)
    state = State.initial(ComputeDAG(tensors)).split(2, 1, [4]).split(2, 0, [3])
    (row,) = features_of(state, tensors)
    assert row["waste"] == pytest.approx(12 * 12 / 90)
    assert row["recompute"] == pytest.approx(12 * 12 / 90)


def test_an_inlined_copy_in_a_layout_chooses_nothing() -> None:
    """Whether its tiles cover more than there is or not: what is read is there."""
    tensors = matmul(12, 9, 32)
    state = State.initial(ComputeDAG(tensors))
    (plain,) = features_of(state, tensors)
    for pieces in ([(0, 8, 4), (0, 4, 1)], [(0, 11, 3), (0, 3, 1)]):
        copied = state.apply(RewriteLayoutStep(1, ((1, 9, 1), *pieces), (2,)))
        (row,) = features_of(copied.compute_inline(2), tensors)
        for name in ("select_op", "int_cmp", "int_divmod", "int_mul", "float_mad"):
            assert row[name] == plain[name], (pieces, name)


def test_recomputation_of_an_attached_stage_is_told() -> None:
    tensors = softmax(4, 18)
    dag = ComputeDAG(tensors)
    state = State.initial(dag)
    ids = {stage.name: position for position, stage in enumerate(state.stages)}
    moved = state.compute_at(ids["Sum"], ids["Out"], 1)
    rows = features_of(moved, tensors)
    assert rows[2]["recompute"] == pytest.approx(18)


def test_a_symbolic_size_is_refused_by_name() -> None:
    n = te.var("n")
    x = te.placeholder((n, 4), name="X")
    y = te.compute((n, 4), lambda i, j: x[i, j] + te.const(1.0, "float32"), name="Y")
    dag = ComputeDAG([x, y])
    task = Task.create(dag, "[]", "llvm", hardware_params=HARDWARE)
    with pytest.raises(DefinitionError, match="constant sizes"):
        extract(task, [State.initial(dag)])


def test_a_sketch_is_refused() -> None:
    task = TASKS["matmul"]
    sketch = ProgramSpace.of(task).sketches[0]
    with pytest.raises(ScheduleError, match="sketch"):
        extract(task, [State.replay(task.compute_dag, sketch.steps)])


def test_signs_that_an_intrinsic_does_not_take_are_work() -> None:
    """Each load of A is flipped, unless it lies in a copy; each of B is multiplied once more."""

    def work(dtype: str, name: str, copies: int = 0) -> float:
        a, b = te.placeholder((6, 6, 4), dtype, "A"), te.placeholder((16, 6, 4, 4), "int8", "B")
        k, p = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 4), "p")

        def element(i: te.Expr, j: te.Expr, lane: te.Expr) -> te.Expr:
            factors = te.cast(a[i, k, p], "int32"), te.cast(b[j, k, lane, p], "int32")
            return te.sum(factors[0] * factors[1], axis=[k, p])

        c = te.compute((6, 16, 4), element, "C")
        s = te.create_schedule(c)
        i_outer, i_inner = s[c].split(c.op.axis[0], factor=3)
        j_outer, j_inner = s[c].split(c.op.axis[1], factor=2)
        s[c].reorder(i_outer, j_outer, k, i_inner, j_inner, c.op.axis[2], p)
        s[c].tensorize(c.op.axis[2], name)
        for tensor in (a, b)[:copies]:
            s.cache_read(tensor, "global", c)
        return features_of(s.state, [a, b, c])[-1]["work"]

    visits = (6 // 3) * (64 // 8) * (24 // 4)
    mixed = work("uint8", "x86.vpdpbusd.128")
    assert mixed == pytest.approx(visits * 3 * 2, rel=1e-4)
    assert work("int8", "x86.vpdpbusd.s8s8.128") == pytest.approx(mixed + visits * (3 + 2), rel=1e-4)
    for copies in (1, 2):
        assert work("int8", "x86.vpdpbusd.s8s8.128", copies) == pytest.approx(mixed + visits * 2, rel=1e-4)


# -- the table ----------------------------------------------------------------------------------------------


def test_the_table_is_well_formed() -> None:
    assert len(REFERENCE_FEATURES) == 164
    assert len(set(feature_names())) == N_FEATURES
    assert INDEX["float_mad"] == 0
    assert INDEX["auto_unroll_max_step"] == 163
    for feature in FEATURES:
        assert feature.text
        assert feature.unit
        assert feature.group


def test_grid_loops_of_a_gpu_program_are_told() -> None:
    seen = 0
    for entry in oracle_lines("state", "cuda"):
        if entry["workload"] != "matmul":
            continue
        tensors = oracle_workload("matmul")
        task = task_of(tensors, "cuda")
        state = State.replay(task.compute_dag, entry["record"]["i"][1][1])
        raw = unscale(extract(task, [state]).values)
        assert np.isfinite(raw["B0.bytes"]).all()
        if "threadIdx.x" in entry["loops"]:
            assert raw["is_gpu"].any()
            assert raw["threadIdx_x_len"].max() > 1
            seen += 1
    assert seen
