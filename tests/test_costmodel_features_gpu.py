"""Features of GPU programs: of columns as of programs, and as a count over each lowered nest says."""

from __future__ import annotations

import itertools
import re
from functools import partial
from math import isclose
from typing import Any

import numpy as np
import pytest

import ansor
import costmodel.extraction.extract
from ansor import te
from ansor.ir.nest import For, LoopKind, LoopNest, Stmt, Store, sub_statements
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.task.device import DeviceModel
from ansor.task.target import Target
from ansor.task.task import Task
from ansor.workloads.catalogue import get_workload
from costmodel import AnalyticModel, Programs
from costmodel.analytic_device import USED, DeviceRates, device_parts
from costmodel.explain import explain
from costmodel.extraction.columns import pack
from costmodel.extraction.extract import extract, extract_forms
from costmodel.extraction.form import Form
from costmodel.extraction.kernels import VIRTUAL, kernel_plan
from costmodel.extraction.statements import statements_of
from costmodel.features.table import GPU_FEATURES, INDEX, scale, unscale
from sketches import Population, ProgramSpace
from sketches.columns import ColumnKind, fill_holes
from tests.costmodel_counts import stored_statements
from tests.costmodel_law import Compared, buffer_name, check_rows, statements_in
from tests.costmodel_warps import fills_of, kernel_columns, warp_columns
from tests.gpu_cases import GPU_SMALL, TENSOR_CORES, gpu_task
from tests.gpu_schedules import kernels, tiled_matmul
from tests.sketches_cases import matmul, oracle_workload, row_sum, softmax

CROOKED = frozenset({"two filters", "filters of channels", "pixels", "norm and product"})
"""Inlined, they are one statement of fused loops that reads at quotients of these."""
TASKS = {name: gpu_task(make()) for name, make in (GPU_SMALL | TENSOR_CORES).items() if name not in CROOKED}
HALVES = partial(get_workload("matmul").tensors, 1024, 1024, 1024, "bfloat16", "float32", "bfloat16")
DEVICE = DeviceModel.for_target(Target("cuda -arch=sm_80"))


def sample(task: Task, count: int, seed: int = 0) -> tuple[Population, ...]:
    return ProgramSpace.of(task).sample(count, np.random.default_rng(seed)).populations


def structure(population: Population, row: int) -> State:
    """A row's program with its loops bound one by one."""
    family = population.family
    values = population.values[row].tolist()
    return State.replay(family.dag, family.padded(fill_holes(family.steps, family.holes, values), values))


def check_population(task: Task, population: Population) -> Compared:
    form = Form.of_population(population)
    features = extract_forms(task, [form], scaled=False)
    compared = Compared()
    for row in range(len(population)):
        values = features.values[features.offsets[row] : features.offsets[row + 1]]
        plain, full = lower(structure(population, row), simple_mode=True), population.materialize(row)
        compared += check_rows(form, values, plain, full, row=row)
        check_device(form, values, plain, full)
    return compared


def check_device(form: Form, values: np.ndarray, plain: LoopNest, full: State) -> None:
    """Compare the device's columns with counts over the nest."""
    counted, done = stored_statements(plain), kernels(full)
    swizzled = {stage.name for stage in full.stages if stage.swizzle}
    for statement, row in zip(statements_in(form), values, strict=True):
        name = buffer_name(form.state, statement)
        one = counted[name]
        expected = kernel_columns(done, one.buffer, DEVICE)
        if expected["block_threads"] > 1:
            expected |= warp_columns(one, done, fills_of(one, counted), DEVICE, swizzled)
        expected["kernel"] = statement.stage not in form.state.attach
        expected["by_warps"] = any(loop.kind is LoopKind.TENSORIZE for loop in one.loops)
        for column, count in expected.items():
            found = float(row[INDEX[column]])
            assert isclose(found, count, rel_tol=1e-5), f"{name}: {column} {found}, not {count}\n{done}"


# -- the law ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_gpu_programs_are_what_a_count_over_each_nest_says(name: str) -> None:
    populations = sample(TASKS[name], 4, 3)
    parts = [check_population(TASKS[name], one) for one in populations]
    sum(parts, Compared()).check_most(accesses=0.9)
    by_warps = ["TensorCores" in one.family.sketch.rules for one in populations]
    assert all(by_warps) if name in TENSOR_CORES else not any(by_warps)


def unrolled_in(nest: LoopNest) -> dict[str, int]:
    """Copies of the statement that stores each buffer, of several the one with most."""
    found: dict[str, int] = {}

    def visit(stmt: Stmt, copies: int) -> None:
        if isinstance(stmt, For) and stmt.kind in (LoopKind.UNROLLED, LoopKind.TENSORIZE):
            copies *= int(stmt.extent)  # type: ignore[call-overload]
        if isinstance(stmt, Store):
            name = stmt.buffer.name.removesuffix(".acc").removesuffix(".part")
            found[name] = max(found.get(name, 1), copies)
        for inner in sub_statements(stmt):
            visit(inner, copies)

    visit(nest.body, 1)
    return found


@pytest.mark.parametrize("name", TASKS)
def test_loops_are_unrolled_as_kernels_have_them(name: str) -> None:
    """By pragmas, over the elements of private arrays, and over virtual threads."""
    agree = total = 0
    for population in sample(TASKS[name], 6, 5):
        form = Form.of_population(population)
        statements = statements_of(form, DEVICE)
        columns = pack([form], [statements])
        made = kernel_plan(columns)
        copied = made.unrolled if columns.bound is None else made.unrolled | (columns.bound == VIRTUAL)
        copies = np.where(copied, np.ceil(columns.extent / made.lane), 1.0).prod(axis=0)
        for row in range(len(population)):
            found = unrolled_in(kernels(population.materialize(row)))
            for column in np.flatnonzero(columns.program == row):
                buffer = buffer_name(form.state, statements[columns.ordinal[column]])
                agree, total = agree + int(found[buffer] == copies[column]), total + 1
    assert agree >= 0.9 * total > 0, f"{agree} of {total}"


@pytest.mark.parametrize("name", ["conv2d_bn_relu", "depthwise", "transpose_bmm_softmax", "norm", "grouped"])
def test_a_gpu_program_has_the_features_of_its_row(name: str) -> None:
    task = gpu_task(oracle_workload(name))
    populations = sample(task, 12)
    together = extract(task, populations)
    alone = extract(task, list(Programs(populations)))
    assert np.isfinite(together.values).all()
    assert np.array_equal(together.values, alone.values)


def test_features_of_a_gpu_do_not_depend_on_the_machine_that_computes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ansor.task import hardware, isa

    def forget() -> None:
        hardware._known.cache_clear()
        costmodel.extraction.extract._core_of.cache_clear()

    task = gpu_task(matmul(128, 128, 64))
    population = sample(task, 10)[0]
    before = extract(task, population).values
    monkeypatch.setattr(hardware, "host_caches", lambda: {"l1_bytes": 1024})
    monkeypatch.setattr(isa, "host_vector_bytes", lambda: 8)
    forget()
    again = gpu_task(matmul(128, 128, 64))
    assert again.hardware_params == task.hardware_params
    assert np.array_equal(extract(again, population).values, before)
    forget()


# -- single facts -------------------------------------------------------------------------------------------


def columns_of(state: State, tensors: list[te.Tensor]) -> list[dict[str, float]]:
    values = unscale(extract(gpu_task(tensors), [state]).values)
    count = sum(not stage.is_placeholder for stage in state.stages)
    return [{name: float(column[row]) for name, column in values.items()} for row in range(count)]


def transposed(by_rows: bool) -> tuple[State, list[te.Tensor]]:
    """A copy that reads along rows, or along columns."""
    x = te.placeholder((256, 256), name="X")
    y = te.compute((256, 256), lambda i, j: x[i, j] if by_rows else x[j, i], name="Y")
    s = te.create_schedule(y.op)
    i, j = y.op.axis
    outer, inner = s[y].split(j, factor=64)
    s[y].bind(i, te.thread_axis("blockIdx.y"))
    s[y].bind(outer, te.thread_axis("blockIdx.x"))
    s[y].bind(inner, te.thread_axis("threadIdx.x"))
    return s.state, [x, y]


def test_reading_along_columns_is_not_coalesced() -> None:
    (row,) = columns_of(*transposed(by_rows=True))
    assert row["sectors"] == pytest.approx(32 * 4 / 32)
    assert row["coalescing"] == pytest.approx(1.0)
    assert row["global_requests"] == pytest.approx(2 * 256 * 256 / 32, rel=1e-4)
    assert row["global_traffic"] == pytest.approx(2 * 256 * 256 * 4, rel=1e-4)
    (row,) = columns_of(*transposed(by_rows=False))
    assert row["sectors"] == pytest.approx(32)
    assert row["coalescing"] == pytest.approx(4 / 32)
    assert row["global_traffic"] == pytest.approx(256 * 256 * (4 + 32), rel=1e-4)


def test_blocks_and_threads_are_told_by_index() -> None:
    (row,) = columns_of(*transposed(by_rows=True))
    assert row["is_gpu"] == 1.0
    assert row["blockIdx_x_len"] == pytest.approx(4)
    assert row["blockIdx_y_len"] == pytest.approx(256)
    assert row["threadIdx_x_len"] == pytest.approx(64)
    assert row["threadIdx_y_len"] == row["vthread_len"] == pytest.approx(1)
    assert row["grid_blocks"] == pytest.approx(1024)
    assert row["waves"] == pytest.approx(1)
    assert row["wave_fill"] == pytest.approx(1024 / (32 * 108))


@pytest.mark.parametrize(("stride", "conflicts"), [(1, 1), (2, 2), (32, 32), (33, 1)])
def test_words_of_one_bank_are_delivered_one_by_one(stride: int, conflicts: int) -> None:
    """Threads that read shared memory at a distance of so many words."""
    x = te.placeholder((4, 32 * stride), name="X")
    y = te.compute((4, 32), lambda i, j: x[i, j * stride] + x[i, j * stride], name="Y")
    s = te.create_schedule(y.op)
    copy = s.cache_read(x, "shared", [y])
    i, j = s[y].op.axis
    s[y].bind(i, te.thread_axis("blockIdx.x"))
    s[y].bind(j, te.thread_axis("threadIdx.x"))
    s[copy].compute_at(s[y], i)
    _, thread = s[copy].split(s[copy].op.axis[1], factor=32)
    s[copy].bind(thread, te.thread_axis("threadIdx.x"))
    rows = columns_of(s.state, [x, y])
    assert rows[1]["bank_conflicts"] == pytest.approx(conflicts)
    assert rows[1]["shared_requests"] == pytest.approx(4)
    assert rows[1]["bank_cycles"] == pytest.approx(4 * conflicts)
    assert rows[0]["bank_conflicts"] == pytest.approx(1)
    assert rows[1]["shared_reuse"] == pytest.approx(32 / (31 * stride + 1))


def test_every_thread_loads_its_tile_once_per_step() -> None:
    """A tile of accumulators loads rows and columns of the shared copies, not a pair for each product."""
    task = gpu_task(matmul(256, 256, 256))
    (population,) = sample(task, 60, 1)
    raw = unscale(extract(task, population).values)
    products = 256.0**3
    local = np.arange(len(population)) * 4 + 2
    loads = raw["shared_requests"][local] * 32 * raw["warp_fill"][local]
    assert (loads <= 2 * products * 1.001).all()
    assert loads.min() < products / 4


def test_unrolled_loops_around_a_loop_load_again_in_each_copy() -> None:
    """Products of a tile inside of which the reduction runs: two loads each, whatever is unrolled around."""
    tiled = tiled_matmul((64, 64, 64), (1, 4, 4), (1, 8, 4), 16).state
    state = tiled.reorder(tiled.stage_id("C.local"), [*range(7), 8, 9, 7])
    assert re.search(r"unroll i.*\n *unroll j.*\n *for k", str(kernels(state)))
    row = columns_of(state, list(state.dag.tensors))[2]
    assert row["shared_requests"] == pytest.approx(2 * 64**3 / 32)


def test_what_is_filled_in_unrolled_loops_is_loaded_after_each_fill() -> None:
    """One sum of a thread, its reduction unrolled with the copies inside: two loads for each product."""
    state = tiled_matmul((16, 16, 64), (1, 4, 1), (1, 8, 1), 16, unroll=1024).state
    assert "for k" not in str(kernels(state))
    row = columns_of(state, list(state.dag.tensors))[2]
    assert row["shared_requests"] == pytest.approx(2 * 16 * 16 * 64 / 32)


def test_models_of_devices_come_from_targets() -> None:
    assert DeviceModel.for_target(Target("cuda -arch=sm_90")).multiprocessors == 132
    assert DeviceModel.for_target(Target("cuda -arch=sm_90a")).multiprocessors == 132
    assert DeviceModel.for_target(Target("cuda")) == DEVICE
    for arch, known in (("sm_87", "sm_86"), ("sm_103", "sm_100"), ("sm_52", "sm_70")):
        assert DeviceModel.for_target(Target(f"cuda -arch={arch}")) == DeviceModel.for_target(
            Target(f"cuda -arch={known}")
        )
    assert DeviceModel.for_target(Target("cuda -l2_cache_size_bytes=1024")).l2_bytes == 1024
    assert DeviceModel.for_target(Target("rocm")).warp == 64
    assert DeviceModel.for_target(Target("opencl")).warp == 32


# -- the roofline --------------------------------------------------------------------------------------------


def seconds_of(task: Task, populations: Any) -> np.ndarray:
    return AnalyticModel().seconds(task, Programs(populations))


def test_no_program_is_faster_than_the_device() -> None:
    """Products at the speed of all lanes, copies at that of memory."""
    task = gpu_task(matmul(1024, 1024, 1024))
    peak = DEVICE.multiprocessors * DEVICE.lanes * DEVICE.hertz
    assert seconds_of(task, sample(task, 300)).min() >= 1024**3 / peak
    task = gpu_task(softmax(4096, 1024))
    assert seconds_of(task, sample(task, 100)).min() >= 4096 * 1024 * 8 / DEVICE.memory_bytes


@pytest.mark.parametrize("blocks", [1, 107, 108, 109, 216, 1080])
@pytest.mark.parametrize("threads", [32, 96, 256, 1000])
def test_counts_are_what_they_were_before_they_were_scaled(blocks: int, threads: int) -> None:
    """As many blocks as there are multiprocessors run at once, and no warp begins with a rounding error."""
    exact = np.zeros((len(GPU_FEATURES), 1))
    known = {"grid_blocks": blocks, "block_threads": threads, "work": 1e9, "occupancy": 0.5, "warp_fill": 1}
    for name, value in known.items():
        exact[INDEX[name]] = value
    found, right = (
        device_parts(DeviceRates(), DEVICE, unscale(rows.T, USED) if scaled else raw_of(rows))["seconds"]
        for rows, scaled in ((scale(exact), True), (exact, False))
    )
    assert found == pytest.approx(right, rel=1e-4)


def raw_of(rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: rows[INDEX[name]] for name in USED}


def test_threads_that_want_more_registers_than_a_block_leaves_them_are_slow() -> None:
    """Sums of 64 words: blocks of 640 threads leave 96 registers for them, those of 512 128."""
    columns = {name: np.ones(3) for name in USED}
    columns |= {
        "work": np.full(3, 1e9),
        "grid_blocks": np.full(3, 1080.0),
        "block_threads": np.array([512.0, 640.0, 512.0]),
        "thread_local": np.array([256.0, 256.0, 1024.0]),
    }
    fits, short, many = device_parts(DeviceRates(), DEVICE, columns)["compute"]
    assert short > 1.5 * fits
    assert many > 5 * fits


def test_each_part_of_a_multiprocessor_needs_a_warp() -> None:
    """Where tiles are filled far ahead, so that nobody waits, two warps compute half as fast as four."""
    columns = {name: np.ones(3) for name in USED}
    columns |= {
        "work": np.full(3, 1e9),
        "grid_blocks": np.full(3, float(DEVICE.multiprocessors)),
        "block_threads": np.array([64.0, 128.0, 256.0]),
        "occupancy": np.ones(3),
        "fills_ahead": np.full(3, 20.0),
    }
    two, four, eight = device_parts(DeviceRates(), DEVICE, columns)["compute"]
    assert two == pytest.approx(2 * four, rel=1e-3)
    assert eight == pytest.approx(four, rel=1e-3)


def test_few_blocks_and_scattered_loads_are_slow() -> None:
    states = [transposed(by_rows)[0] for by_rows in (True, False)]
    task = gpu_task(transposed(True)[1])
    fast, slow = (
        AnalyticModel().seconds(gpu_task(transposed(b)[1]), [s])[0]
        for b, s in zip((1, 0), states, strict=True)
    )
    assert slow > fast
    rows = gpu_task(row_sum(64, 65536))
    best = {}
    for population in sample(rows, 200):
        spread = "CrossThreadReduction" in population.family.sketch.rules
        best[spread] = min(best.get(spread, np.inf), seconds_of(rows, [population]).min())
    assert best[True] < best[False]
    assert task.target.is_gpu


def test_tiles_that_are_filled_ahead_hide_waiting() -> None:
    """Where a program has the same blocks at a time, it is the faster the further ahead they are."""
    task = gpu_task(matmul(512, 512, 512))
    (population,) = sample(task, 60)
    at = list(population.family.positions(ColumnKind.LEAD))
    seconds = []
    for value in range(4):
        values = population.values.copy()
        values[:, at] = value
        kept = Population(population.family, values)
        raw = unscale(extract(task, kept).values)
        assert set(np.round(raw["fills_ahead"], 4).tolist()) <= set(map(float, range(value + 1)))
        assert raw["fills_ahead"].max() == pytest.approx(value)
        seconds.append((seconds_of(task, [kept]), raw["occupancy"].reshape(len(kept), -1)[:, -1]))
    for (less, before), (more, after) in itertools.pairwise(seconds):
        same = before == after
        assert same.any()
        assert (more[same] <= less[same]).all()
        assert (more[same] < less[same]).any()


def test_copies_of_vectors_are_no_slower_than_those_of_elements() -> None:
    """Of halves threads wait for single ones, and the index of a vector is computed once."""
    task = gpu_task(HALVES(), "cuda -arch=sm_90")
    for population in sample(task, 60):
        at = list(population.family.positions(ColumnKind.FETCH))
        seconds = []
        for together in (8, 1):
            values = population.values.copy()
            values[:, at] = together
            seconds.append(seconds_of(task, [Population(population.family, values)]))
        assert (seconds[0] <= seconds[1]).all()


def test_rates_of_a_device_are_checked_and_saved(tmp_path: Any) -> None:
    with pytest.raises(ansor.DefinitionError, match=r"DeviceRates\(issue\)"):
        DeviceRates(issue=0)
    for name in ("overlap", "ahead"):
        with pytest.raises(ansor.DefinitionError, match=rf"{name}=2\): it is a part, at most 1"):
            DeviceRates(**{name: 2})
    with pytest.raises(ansor.DefinitionError, match="must be a"):
        AnalyticModel(device_rates=3)  # type: ignore[arg-type]
    model = AnalyticModel(device_rates=DeviceRates(hiding=9.0))
    model.save(tmp_path / "model.json")
    other = AnalyticModel()
    other.load(tmp_path / "model.json")
    assert other.device_rates.hiding == 9.0


def test_a_gpu_program_is_explained() -> None:
    task = gpu_task(matmul(128, 128, 128))
    text = explain(task, sample(task, 1)[0].materialize(0), descriptions=True)
    assert "-- device" in text
    assert "occupancy" in text
    assert "bank_cycles" in text
    assert "launch" in text
