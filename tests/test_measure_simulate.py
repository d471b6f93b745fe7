"""A simulated run answers for the very program that was measured."""

from __future__ import annotations

from pathlib import Path

from ansor.schedule.identity import program_key
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.task.task import Task
from measure import MeasureInput, save_records
from measure.simulate import NullBuilder, SimulatedRunner, result_of
from tests.fake_machine import matmul_task


def tiled(task: Task, i: int, j: int) -> State:
    """A product in tiles of 4 x 4, so many of them in larger tiles, all of which are one parallel loop."""
    state = State.initial(task.compute_dag).split(2, 0, (i, 4)).split(2, 3, (j, 4))
    state = state.reorder(2, (0, 3, 1, 4, 6, 2, 5)).fuse(2, (0, 1, 2, 3))
    return state.annotate(2, 0, Annotation.PARALLEL)


def test_programs_that_print_alike_have_answers_of_their_own(tmp_path: Path) -> None:
    """Fused loops run through their parts in different orders, which their text does not show."""
    log, task = tmp_path / "log.json", matmul_task(24)
    one, other = tiled(task, 2, 3), tiled(task, 3, 2)
    assert str(one.with_bounds()) == str(other.with_bounds())
    assert program_key(one) != program_key(other)
    inputs, results = [MeasureInput(task, s) for s in (one, other)], [result_of(1e-3), result_of(2e-3)]
    save_records(log, inputs, results)
    for answers in (log, list(zip(inputs, results, strict=True))):
        runner = SimulatedRunner(answers)
        assert runner.run(inputs, NullBuilder().build(inputs)) == results
