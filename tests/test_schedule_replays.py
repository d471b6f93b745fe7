"""Replaying histories that begin alike."""

import random

import pytest

from ansor import te
from ansor.errors import ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.replays import Replays
from ansor.schedule.state import State
from ansor.schedule.steps import FuseStep, SplitStep
from ansor.task.task import Task
from sketches import generate_sketches
from sketches.columns import fill_holes


def product() -> ComputeDAG:
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    k, m = te.reduce_axis((0, 16), "k"), te.reduce_axis((0, 16), "m")
    c = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((16, 16), lambda i, j: te.sum(c[i, m] * b[m, j], axis=m), name="D")
    return ComputeDAG([a, b, te.compute((16, 16), lambda i, j: te.maximum(d[i, j], 0.0), name="E")])


def test_what_is_replayed_does_not_depend_on_what_was_before() -> None:
    """In whichever order the sketches of two computations come, as each is replayed alone."""
    histories = []
    for dag in (product(), product()):
        for sketch in generate_sketches(Task.create(dag, "", "llvm")):
            ones = [1] * sum(len(hole.columns) for hole in sketch.holes)
            histories.append((dag, fill_holes(sketch.steps, sketch.holes, ones)))
    replays = Replays()
    for dag, steps in random.Random(0).choices(histories, k=4 * len(histories)):
        states = replays.along(dag, steps)
        alone = State.replay(dag, steps)
        assert str(states[-1]) == str(alone)
        assert states[-1].attach == alone.attach
        assert [list(state.steps) for state in states] == [steps[:count] for count in range(len(steps) + 1)]


def test_an_illegal_step_is_named_and_what_is_before_it_kept() -> None:
    dag, replays = product(), Replays()
    good, bad = SplitStep(2, 0, 16, (4,)), FuseStep(2, (7, 8))
    for steps in ([good, good, bad], [good, bad]):
        with pytest.raises(ScheduleError, match=f"^step {len(steps) - 1} "):
            replays.along(dag, steps)
        assert replays.along(dag, [good])[-1].steps == (good,)
