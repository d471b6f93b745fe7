"""Pipelines of rows: where the sketches have them, what is computed there, and the laws of their programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ansor import te
from ansor.ir.nest import Alloc, walk_statements
from ansor.schedule.lowering import lower
from ansor.schedule.stages import Annotation, ComputeAt
from ansor.schedule.state import State
from ansor.te import Tensor
from ansor.workloads.catalogue import get_workload
from measure import MeasureInput, MeasureResult
from measure.records.log import OWN_PREFIX, dump_record_to_string, load_record_from_string
from measure.records.record import LoggedState
from sketches import ProgramSpace, Sketch, generate_sketches
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from tests.program_laws import Case, check_all
from tests.sketches_cases import HARDWARE, check_program, row_sum, task_of


def pipelined(tensors: list[Tensor]) -> list[Sketch]:
    return [sketch for sketch in generate_sketches(task_of(tensors)) if "RowPipelining" in sketch.rules]


def softmax(rows: int, columns: int, dtype: str = "float32") -> list[Tensor]:
    return list(get_workload("softmax").tensors(rows, columns, dtype))


def computed_in_the_pipeline(state: State) -> set[str]:
    output = len(state.stages) - 1
    assert [loop.name for loop in state.stages[output].iterators] == ["i.0", "i.1", "j"]
    assert state.stages[output].iterators[1].annotation is Annotation.PIPELINE
    return {state.stages[stage].name for stage, place in state.attach.items() if place == (output, 1)}


def pipelined_programs(tensors: list[Tensor], count: int) -> tuple[ProgramSpace, list[State]]:
    space = ProgramSpace.of(task_of(tensors, "llvm -num-cores=2"))
    sample = space.sample(count, np.random.default_rng(0))
    states = [p.materialize(row) for p in sample.populations for row in range(len(p))]
    found = [s for s in states if any(x.annotation is Annotation.PIPELINE for x in s.stages[-1].iterators)]
    assert found
    return space, found


def test_all_that_an_output_needs_of_a_row_is_computed_in_one_pipelined_loop() -> None:
    (sketch,) = pipelined(softmax(64, 512))
    assert computed_in_the_pipeline(sketch.state) == {"RowMax", "Exp", "RowSum"}
    assert [len(hole.columns) for hole in sketch.holes] == [1]

    (sketch,) = pipelined(list(get_workload("layer_norm").tensors(64, 512)))
    assert computed_in_the_pipeline(sketch.state) == {"RowSum", "SquareSum"}
    inlined = {s.name for s in sketch.state.stages if s.compute_at is ComputeAt.INLINED}
    assert inlined == {"Centered", "Scale", "Normal", "Mul"}


def test_weighted_sums_of_rows_are_computed_with_the_rows_that_they_go_into() -> None:
    dy, xs = te.placeholder((64, 512), name="DY"), te.placeholder((64, 512), name="X")
    gain = te.placeholder((512,), name="Gain")
    k, k2 = te.reduce_axis((0, 512), name="k"), te.reduce_axis((0, 512), name="k2")
    one = te.compute((64,), lambda i: te.sum(dy[i, k] * gain[k], axis=k), name="One")
    two = te.compute((64,), lambda i: te.sum(dy[i, k2] * gain[k2] * xs[i, k2], axis=k2), name="Two")
    out = te.compute((64, 512), lambda i, j: dy[i, j] * gain[j] - one[i] - xs[i, j] * two[i], name="Out")
    (sketch,) = pipelined([dy, xs, gain, out])
    assert computed_in_the_pipeline(sketch.state) == {"One", "Two"}


def test_rows_are_long_enough_and_five_of_them_fit_the_first_cache() -> None:
    assert [bool(pipelined(softmax(64, n))) for n in (255, 256, 1638, 1639)] == [False, True, True, False]
    assert [bool(pipelined(softmax(64, n, "float64"))) for n in (819, 820)] == [True, False]
    task = task_of(softmax(64, 2048))
    larger = replace(task, hardware_params=replace(HARDWARE, l1_bytes=48 << 10))
    assert any("RowPipelining" in sketch.rules for sketch in generate_sketches(larger))


def test_what_is_no_part_of_a_row_is_computed_elsewhere() -> None:
    x, g = te.placeholder((64, 512), name="X"), te.placeholder((512,), name="G")
    k = te.reduce_axis((0, 512), name="k")
    most = te.compute((64,), lambda i: te.max(x[i, k], axis=k), name="Most")
    factor = te.compute((512,), lambda j: te.exp(g[j]), name="Factor")
    less = te.compute((64, 512), lambda i, j: x[i, j] - most[i], name="Less")
    out = te.compute((64, 512), lambda i, j: less[i, j] * factor[j], name="Out")

    found = pipelined([x, g, out])

    assert found
    for sketch in found:
        assert computed_in_the_pipeline(sketch.state) == {"Most"}


def test_outputs_and_what_other_rows_need_stay_outside() -> None:
    """Each of these would be an output that has a place, or computed again for every row."""
    x, index = te.placeholder((512, 512), name="X"), te.placeholder((512,), "int32", "Index")
    k, w = te.reduce_axis((0, 512), name="k"), te.reduce_axis((0, 3), name="w")
    grown = te.compute((512, 512), lambda i, j: te.exp(x[i, j]), name="Grown")
    mean = te.compute((512,), lambda i: te.sum(grown[i, k], axis=k), name="Mean")
    out = te.compute((512, 512), lambda i, j: grown[i, j] - mean[i], name="Out")
    for outputs, inside in (
        ([out], {"Grown", "Mean"}),
        ([mean, out], set()),
        ([grown, out], {"Mean"}),
        ([grown, mean, out], set()),
    ):
        for sketch in pipelined([x, *outputs]):
            assert computed_in_the_pipeline(sketch.state) == inside

    columns = te.compute((512,), lambda i: te.max(grown[k, i], axis=k), name="Columns")
    windows = te.compute((510,), lambda i: te.max(grown[i + w, k], axis=[w, k]), name="Windows")
    gathered = te.compute((512,), lambda i: te.max(grown[index[i], k], axis=k), name="Gathered")
    for tensors in (
        [x, te.compute((512, 512), lambda i, j: grown[i, j] - columns[i], name="A")],
        [x, te.compute((510, 512), lambda i, j: grown[i, j] - windows[i], name="B")],
        [x, index, te.compute((512, 512), lambda i, j: grown[i, j] - gathered[i], name="C")],
    ):
        for sketch in pipelined(tensors):
            assert "Grown" not in computed_in_the_pipeline(sketch.state)


def test_what_has_no_rows_that_reductions_go_into_is_left() -> None:
    x = te.placeholder((64, 512), name="X")
    plain = te.compute((64, 512), lambda i, j: te.exp(x[i, j]), name="Plain")
    for tensors in (row_sum(64, 512), [x, plain], softmax(7, 512)):
        assert not pipelined(tensors)
    without = generate_sketches(task_of(softmax(64, 512)), {"cpu_row_pipelining": 0})
    assert not any("RowPipelining" in sketch.rules for sketch in without)


def test_the_search_leaves_the_passes_where_they_are_and_knows_its_programs_again() -> None:
    space, states = pipelined_programs(softmax(24, 320), 300)
    for state in states:
        assert computed_in_the_pipeline(state) == {"RowMax", "Exp", "RowSum"}
        found = locate(Neighbourhood(space), state)
        assert found is not None
        family, (row,) = found
        assert family.program(row) == state.steps


def test_their_records_are_comments_to_tvm_and_come_back() -> None:
    task = task_of(softmax(24, 320), "llvm -num-cores=2")
    _, (state, *_) = pipelined_programs(list(task.compute_dag.tensors), 300)
    result = MeasureResult((1.5e-3,), all_cost=0.5, timestamp=1700000000)  # type: ignore[arg-type]

    line = dump_record_to_string(MeasureInput(task, state), result)

    assert line.startswith(OWN_PREFIX)
    inp, _ = load_record_from_string(line)
    assert isinstance(inp.state, LoggedState)
    assert inp.state.replay(task.compute_dag).steps == state.steps


@pytest.mark.parametrize("shape", [(12, 256), (9, 260), (18, 272), (8, 514)])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_their_programs_follow_the_laws(name: str, shape: tuple[int, int]) -> None:
    _, states = pipelined_programs(list(get_workload(name).tensors(*shape)), 60)
    for state in states[:2]:
        check_program(state)
        check_all(Case.of(state))
    sums = [s.buffer for state in states for s in walk_statements(lower(state).body) if isinstance(s, Alloc)]
    assert any(buffer.name == "RowSum" and buffer.shape[1:] == (1,) for buffer in sums)
