"""The analytic model knows good programs from bad ones without any measurement; `explain` shows why."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import LogFormatError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from costmodel import Programs
from costmodel.analytic import AnalyticModel, CoreRates
from costmodel.explain import FeatureTable, explain
from costmodel.extraction.extract import extract
from costmodel.features.table import FEATURES, unscale
from sketches import ProgramSpace
from tests.sketches_cases import HARDWARE, SMALL, matmul, softmax, task_of

MODEL = AnalyticModel()


def seconds(tensors: list[te.Tensor], *states: State) -> list[float]:
    return MODEL.seconds(task_of(tensors), list(states)).tolist()


def tiled(tensors: list[te.Tensor], rows: int = 4, columns: int = 16) -> State:
    """A matmul with a register tile, parallel at the outside."""
    c = tensors[2]
    s = te.create_schedule([c.op])
    i, j = c.op.axis
    (k,) = c.op.reduce_axis
    io, ii = s[c].split(i, rows)
    jo, ji = s[c].split(j, columns)
    s[c].reorder(io, jo, k, ii, ji)
    s[c].vectorize(ji)
    s[c].parallel(io)
    state: State = s.state
    return state


def test_rates_are_saved_and_loaded(tmp_path: Path) -> None:
    AnalyticModel(CoreRates(hertz=1e9, loads=3.0)).save(tmp_path / "model")
    loaded = AnalyticModel()
    loaded.load(tmp_path / "model")
    assert loaded.rates == CoreRates(hertz=1e9, loads=3.0)
    text = (tmp_path / "model").read_text()
    for wrong in (text.replace("hertz", "herz"), text.replace("3.0", "-3.0"), text.replace("rates", "r")):
        (tmp_path / "model").write_text(wrong)
        with pytest.raises(LogFormatError, match="not a saved AnalyticModel"):
            loaded.load(tmp_path / "model")


# -- order ------------------------------------------------------------------------------------------------


def test_a_register_tile_beats_the_plain_loops() -> None:
    tensors = matmul(256, 256, 256)
    plain = State.initial(ComputeDAG(tensors))
    good, bad = seconds(tensors, tiled(tensors), plain)
    assert 10 * good < bad


@pytest.mark.parametrize(
    ("rows", "columns", "spills"),
    [(4, 24, 0), (6, 16, 0), (14, 8, 0), (13, 8, 0), (7, 16, 1), (3, 32, 1), (2, 56, 6)],
)
def test_vectors_that_find_no_register_are_charged_for(rows: int, columns: int, spills: int) -> None:
    """Where LLVM spills, and only there."""
    tensors = matmul(8 * rows, 8 * columns, 64)
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"
    state = tiled(tensors, rows, columns)
    text = ansor.build(state, tensors, target=target, name="f").get_source("asm")
    assert text.count("vfmadd") == rows * columns // 8
    assert bool(re.search(r"ymm\d+, -?\d*\(%rsp\)|\(%rsp\), %ymm", text)) == bool(spills)
    task = task_of(tensors, target)
    raw = unscale(extract(task, [state]).values)
    assert 16 * max(raw["tile_pressure"][0] - 1, 0) == pytest.approx(spills)
    free = {**raw, "tile_pressure": np.minimum(raw["tile_pressure"], 1.0)}
    with_spills, without = MODEL.parts(task, raw), MODEL.parts(task, free)
    for part in ("ports", "latency"):
        assert (with_spills[part][0] > without[part][0]) == bool(spills)


def test_a_tile_that_spills_loses_to_a_smaller_one() -> None:
    """On a Zen 3 the 14 multiply-adds of 7 x 2 vectors take 13 cycles, the 8 of 4 x 2 take 5."""
    tensors = matmul(7 * 4 * 8, 256, 512)
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"
    spills, fits = (
        MODEL.parts(task_of(tensors, target), unscale(extract(task_of(tensors, target), [state]).values))
        for state in (tiled(tensors, 7, 16), tiled(tensors, 4, 16))
    )
    assert spills["seconds"][0] > 1.1 * fits["seconds"][0]


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (8, 32), (32, 8)])
def test_a_tile_that_fits_the_registers_beats_a_larger_one(rows: int, columns: int) -> None:
    """Equal work, fewer loads of operands in the larger one: but its accumulators live in memory."""
    tensors = matmul(256, 256, 256)
    task, fits, over = task_of(tensors), tiled(tensors), tiled(tensors, rows, columns)
    columns_of = unscale(extract(task, [fits, over]).values)
    small, large = ({name: column[row] for name, column in columns_of.items()} for row in (0, 1))
    assert small["work"] == pytest.approx(large["work"])
    assert small["tile_pressure"] == (8 + 2 + 1) / 16
    assert small["accumulator_moves"] == pytest.approx(small["work"] / 256, rel=1e-4)
    assert large["tile_pressure"] == 0
    assert large["accumulator_moves"] == pytest.approx(2 * large["work"], rel=1e-4)
    fast, slow = seconds(tensors, fits, over)
    assert 2 * fast < slow
    rates = MODEL.rates
    assert slow > large["accumulator_moves"] / rates.stores / rates.hertz / HARDWARE.num_cores


def test_parallel_loops_beat_serial_ones_where_there_is_work() -> None:
    tensors = matmul(512, 512, 64)
    state = State.initial(ComputeDAG(tensors))
    parallel, serial = seconds(tensors, state.annotate(2, 0, Annotation.PARALLEL), state)
    assert 2 * parallel < serial


def test_parallel_loops_cost_more_than_they_gain_where_there_is_none() -> None:
    tensors = matmul(4, 4, 4)
    state = State.initial(ComputeDAG(tensors))
    parallel, serial = seconds(tensors, state.annotate(2, 0, Annotation.PARALLEL), state)
    assert parallel > serial


def test_a_parallel_loop_is_started_once_for_all_stages_in_it() -> None:
    """Those that have parallel loops of their own start these as well, as often as they are come to."""
    a = te.placeholder((4, 8, 16), name="A")
    k, m = te.reduce_axis((0, 16), name="k"), te.reduce_axis((0, 16), name="m")
    b = te.compute((4, 8), lambda z, y: te.sum(a[z, y, k], axis=k), name="B")
    c = te.compute((4, 8), lambda z, y: te.sum(a[z, y, m] * b[z, y], axis=m), name="C")
    d = te.compute((4, 8, 16), lambda z, y, x: a[z, y, x] / c[z, y] + b[z, y], name="D")

    def launches(outer: bool, own: tuple[te.Tensor, ...], inside: tuple[te.Tensor, ...]) -> list[float]:
        s = te.create_schedule([d.op])
        z, y, _ = d.op.axis
        s[d].parallel(z if outer else y)
        for tensor in own:
            s[tensor].parallel(tensor.op.axis[1])
        for tensor in inside:
            s[tensor].compute_at(s[d], z if outer or tensor in own else y)
        estimate = FeatureTable.of(task_of([a, d]), s.state).estimate["launch"]
        per_launch = MODEL.rates.launch / MODEL.rates.hertz
        return [round(float(value) / per_launch, 6) for value in estimate]

    assert launches(True, (), ()) == [0, 0, 1]
    assert launches(True, (), (b, c)) == [0, 0, 1]
    assert launches(False, (), (b, c)) == [0, 0, 4]
    assert launches(False, (b,), (c,)) == [4, 0, 4]
    assert launches(False, (b,), (b, c)) == [4, 0, 4]


def test_walking_along_memory_beats_jumping() -> None:
    x = te.placeholder((512, 512), name="X")
    y = te.compute((512, 512), lambda i, j: x[i, j] + te.const(1.0, "float32"), name="Y")
    state = State.initial(ComputeDAG([x, y]))
    along, across = seconds([x, y], state, state.reorder(1, [1, 0]))
    assert 2 * along < across


def through_rows(rows: int, width: int) -> State:
    """A vector times a matrix larger than all caches: so many rows at a time, in pieces of that width."""
    c = matmul(1, 8192, 4096)[2]
    s = te.create_schedule([c.op])
    i, j = c.op.axis
    (k,) = c.op.reduce_axis
    jo, ji = s[c].split(j, width)
    jm, ji = s[c].split(ji, 16)
    ko, ki = s[c].split(k, rows)
    s[c].reorder(i, jo, ko, jm, ki, ji)
    s[c].vectorize(ji)
    s[c].parallel(jo)
    state: State = s.state
    return state


def test_rows_from_memory_are_best_read_some_side_by_side() -> None:
    """Begins of streams are waited for together; too many streams crowd each other out."""
    times = seconds(matmul(1, 8192, 4096), *(through_rows(rows, 2048) for rows in (1, 2, 4, 8, 16, 64)))
    assert times[:4] == sorted(times[:4], reverse=True)
    assert times[3:] == sorted(times[3:])
    assert 1.15 * times[3] < min(times[0], times[5])


def test_short_pieces_of_memory_take_longer() -> None:
    times = seconds(matmul(1, 8192, 4096), *(through_rows(8, width) for width in (2048, 1024, 512, 64)))
    assert times == sorted(times)
    assert 1.15 * times[0] < times[3]


def test_waiting_is_counted_in_begins_of_streams_and_lines() -> None:
    """Of 4096 rows in pieces of 8 KiB, four side by side; the harmonic sum of both bounds."""
    rows, width = 4, 2048
    tensors = matmul(1, 8192, 4096)
    task = task_of(tensors)
    raw = unscale(extract(task, [through_rows(rows, width)]).values)
    begins, traffic = 4096 * (8192 // width) + 1 + 2, raw["L3_traffic"][0]
    assert raw["streams"][0] == pytest.approx(rows)
    assert raw["stream_begins"][0] == pytest.approx(begins, rel=1e-3)
    rates = MODEL.rates
    anew, one_by_one = begins * rates.begin / rows, traffic / 64 * rates.line
    waiting = anew * one_by_one / (anew + one_by_one) / HARDWARE.num_cores
    found = MODEL.parts(task, raw)["memory"][0] * rates.hertz
    assert found == pytest.approx(traffic / rates.memory + waiting, rel=1e-3)


def through_scratch(n: int, streaming: bool) -> tuple[list[te.Tensor], State]:
    """A product of n in tiles of registers, and their copies to the output."""
    tensors = matmul(n, n, n)
    c = tensors[2]
    s = te.create_schedule([c.op])
    local = s.cache_write(c, "local")
    i, j = c.op.axis
    io, ii = s[c].split(i, 4)
    jo, ji = s[c].split(j, 16)
    s[c].reorder(jo, io, ii, ji)
    s[c].parallel(jo)
    s[local].compute_at(s[c], io)
    if streaming:
        s[c].streaming_stores()
    state: State = s.state
    return tensors, state


@pytest.mark.parametrize(("n", "pays"), [(512, False), (2048, True)])
def test_stores_pass_the_caches_by_where_a_program_moves_more_than_they_hold(n: int, pays: bool) -> None:
    """Its output alone would fit, here as there."""
    (tensors, usual), (_, streaming) = (through_scratch(n, streaming) for streaming in (False, True))
    output = 4 * n**2
    assert output < HARDWARE.cache_bytes[-1]
    assert (3 * output > HARDWARE.cache_bytes[-1]) == pays
    one, other = seconds(tensors, usual, streaming)
    assert (other < one) == pays


def test_more_work_takes_longer() -> None:
    times = [
        seconds(matmul(n, 64, 64), State.initial(ComputeDAG(matmul(n, 64, 64))))[0] for n in (16, 32, 64, 128)
    ]
    assert times == sorted(times)


def test_a_wider_machine_is_faster() -> None:
    tensors = matmul(64, 64, 64)
    state = tiled(tensors)
    narrow, wide = (
        float(MODEL.seconds(task_of(tensors, f"llvm -mcpu={cpu}"), [state])[0])
        for cpu in ("nehalem", "znver4")
    )
    assert wide < narrow


@pytest.mark.parametrize("missing", [("l1_bytes",), ("l1_bytes", "l2_bytes", "l3_bytes")])
def test_what_has_no_cache_to_be_in_is_moved_each_time(missing: tuple[str, ...]) -> None:
    tensors = matmul(64, 64, 64)
    task, states = task_of(tensors), [State.initial(ComputeDAG(tensors))]
    without = replace(task, hardware_params=replace(HARDWARE, **dict.fromkeys(missing, 0)))
    bare, usual = (unscale(extract(one, states).values) for one in (without, task))
    for name in missing:
        level = name[:2].upper()
        assert (bare[f"{level}_traffic"] > 2 * usual[f"{level}_traffic"]).all()
    assert MODEL.seconds(without, states) > MODEL.seconds(task, states)


def test_fewer_multiply_adds_in_a_cycle_take_longer() -> None:
    tensors = matmul(256, 256, 256)
    task, model = task_of(tensors), AnalyticModel(CoreRates(loads=100.0, issue_per_port=100.0))
    slow, fast = (
        model.seconds(replace(task, hardware_params=replace(HARDWARE, fma_ports=ports)), [tiled(tensors)])
        for ports in (1, 2)
    )
    assert slow[0] > 1.5 * fast[0]


def test_a_core_with_more_ports_for_multiply_adds_issues_more() -> None:
    """Of all instructions twice as many, up to the ports that the model believes in."""
    tensors = matmul(256, 256, 256)
    task, model = task_of(tensors), AnalyticModel(CoreRates(issue_per_port=0.1))
    raw = unscale(extract(task, [tiled(tensors)]).values)

    def ports(count: int) -> float:
        there = replace(task, hardware_params=replace(HARDWARE, fma_ports=count))
        return float(model.parts(there, raw)["ports"].sum())

    assert ports(1) == pytest.approx(2 * ports(2), rel=0.1)
    assert ports(2) == ports(4)


# -- protocol ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["matmul", "softmax", "padding", "zero rank"])
def test_rows_and_states_score_alike_and_one_by_one(name: str) -> None:
    task = task_of(SMALL[name]())
    sample = ProgramSpace.of(task).sample(20, np.random.default_rng(0))
    programs = Programs(sample.populations)
    scores = MODEL.predict(task, programs)
    assert scores.shape == (len(programs),)
    assert np.isfinite(scores).all()
    assert np.array_equal(scores, MODEL.predict(task, list(programs)))
    assert scores[3] == MODEL.predict(task, [programs[3]])[0]


def test_the_model_is_informative_and_learns_nothing() -> None:
    model = AnalyticModel()
    task = task_of(matmul(8, 8, 8))
    states = [State.initial(task.compute_dag)]
    before = model.predict(task, states)
    model.update([], [])
    assert model.informative
    assert np.array_equal(model.predict(task, states), before)
    assert len(model.predict(task, [])) == 0


def test_an_illegal_program_scores_minus_infinity() -> None:
    task = task_of(matmul(8, 8, 8))
    sketch = ProgramSpace.of(task).sketches[0]
    hollow = State.replay(task.compute_dag, sketch.steps)
    good = State.initial(task.compute_dag)
    scores = MODEL.predict(task, [good, hollow, good])
    assert scores[1] == -np.inf
    assert scores[0] == scores[2]
    assert np.isfinite(scores[0])


def test_the_parts_are_in_the_whole() -> None:
    tensors = softmax(64, 96)
    task = task_of(tensors)
    features = extract(task, [State.initial(task.compute_dag)])
    parts = MODEL.parts(task, unscale(features.values))
    rooflines = np.maximum.reduce([parts[name] for name in ("ports", "latency", "L2", "L3", "memory")])
    assert (parts["seconds"] >= rooflines).all()
    assert MODEL.seconds_of(task, features)[0] == pytest.approx(parts["seconds"].sum())


def test_what_comes_from_the_third_cache_hides_less_behind_arithmetic() -> None:
    tensors = matmul(256, 256, 256)
    task, state = task_of(tensors), tiled(tensors)
    raw = dict(unscale(extract(task, [state]).values))

    def seconds(traffic: float, **rates: float) -> float:
        moved = {**raw, "L2_traffic": np.full_like(raw["L2_traffic"], traffic)}
        return float(AnalyticModel(CoreRates(**rates)).parts(task, moved)["seconds"].sum())

    parts = MODEL.parts(task, {**raw, "L2_traffic": np.full_like(raw["L2_traffic"], 1e6)})
    busy = max(float(parts[name].sum()) for name in ("ports", "latency", "L2"))
    traffic = 1e6 * busy / float(parts["L3"].sum())
    alone, together = seconds(0.0), seconds(traffic)
    assert together == pytest.approx(alone + 0.4 * busy, rel=0.05)
    assert seconds(traffic, l3_overlap=0.95) < 1.1 * alone
    assert seconds(traffic, overlap=0.5, l3_overlap=0.9) == seconds(traffic, overlap=0.5, l3_overlap=0.5)


def test_rates_are_data() -> None:
    tensors = matmul(64, 64, 64)
    slow = AnalyticModel(CoreRates(hertz=1e9))
    state = State.initial(ComputeDAG(tensors))
    ratio = slow.seconds(task_of(tensors), [state]) / MODEL.seconds(task_of(tensors), [state])
    assert ratio[0] == pytest.approx(3.0)


# -- explain ----------------------------------------------------------------------------------------------


def test_explain_prints_the_table_of_every_statement() -> None:
    tensors = softmax(64, 96)
    task = task_of(tensors)
    text = explain(task, State.initial(task.compute_dag))
    header, *lines = text.splitlines()
    assert header.split() == ["Max", "Exp", "Sum", "Out", "unit"]
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith("  ")}
    assert rows["outer_prod"] == ["6144", "6144", "6144", "6144", "iterations"]
    assert rows["float_mathfunc"] == ["0", "6144", "0", "0", "operations"]
    assert "is_gpu" not in rows
    assert lines[-1].startswith("the program: ")


def test_explain_says_what_lines_mean_when_asked() -> None:
    task = task_of(matmul(8, 8, 8))
    text = explain(task, State.initial(task.compute_dag), descriptions=True)
    assert next(feature.text for feature in FEATURES if feature.name == "work") in text


@pytest.mark.parametrize("doublings", [130, 200, 1100])
def test_numbers_that_no_float_holds_are_explained(doublings: int) -> None:
    x = te.placeholder((4,), name="X")

    def body(i: te.Expr) -> te.Expr:
        value = x[i]
        for _ in range(doublings):
            value = value + value
        return value

    task = task_of([x, te.compute((4,), body, name="Y")])
    state = State.initial(task.compute_dag)
    table = FeatureTable.of(task, state)
    (added,) = (values for feature, values in table.features() if feature.name == "float_addsub")
    assert added == [4 * min(2.0 ** min(doublings, 1000), 1e200)]
    assert f"  {added[0]:.4g}  " in explain(task, state)
    for numbers in (table.values, table.estimate["seconds"], extract(task, [state]).values):
        assert np.isfinite(numbers).all()
    assert np.isfinite(MODEL.predict(task, [state])).all()
