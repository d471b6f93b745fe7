"""TVM's own random programs lie in our space: sketch, tile lengths, places, parallel loops.

Each recorded CPU program is taken apart: its first steps must be one of our sketches, its compute locations
among the places we would offer, and our rules applied to its tile lengths must make the same loops
parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import step_from_json
from search.params import REFERENCE_SPACE
from sketches import Family, ProgramSpace, Sketch
from sketches.annotate import parallel_widths
from sketches.locations import is_movable, places
from tests.sketches_cases import HARDWARE, oracle_lines, oracle_workload, task_of

Steps = list[list[Any]]

OTHER_PARALLEL = {
    # Changed by TVM's mutation of parallel loops: a width that its sampling rule never gives.
    ("matmul", (0, 1, 2)),
    ("matmul_add", (0, 1, 2)),
    ("max_pool", (0, 1, 2, 3)),
    # One iteration in all fused loops; TVM fuses them anyway, we go on to the loops inside.
    ("depthwise", (0, 1, 2)),
}
"""Recorded programs, by workload and fused loops, whose parallel loops may differ from ours."""


def recorded_programs() -> Iterator[tuple[str, Steps]]:
    """Workload and steps of every recorded CPU program."""
    for entry in oracle_lines("state", "llvm"):
        record = entry["record"]
        steps: Steps = record["i"][1][1]
        yield entry["workload"], steps


def open_splits(steps: Steps) -> Steps:
    """The steps with all split lengths and extents unset."""
    return [[*s[:3], None, [None] * len(s[4]), *s[5:]] if s[0] == "SP" else s for s in steps]


def find_sketch(sketches: tuple[Sketch, ...], steps: Steps) -> Sketch:
    """The longest sketch that the program starts with."""
    opened = open_splits(steps)
    fitting = []
    for sketch in sketches:
        own = open_splits([step.to_json() for step in sketch.steps])
        if own == opened[: len(own)]:
            fitting.append(sketch)
    assert fitting, f"no sketch begins the program {steps}"
    return max(fitting, key=lambda sketch: len(sketch.steps))


def relocate(state: State, rest: Steps) -> State:
    """Apply the program's compute locations, each of which must be on offer."""
    while rest and rest[0][0] in ("CA", "CR", "CI"):
        step = rest.pop(0)
        if step[0] == "CR" and step[1] not in state.attach:
            continue  # Moving a stage from root to root is no step of ours.
        assert is_movable(state, step[1])
        if step[0] == "CA":
            assert (step[2], step[3]) in [(p.target, p.iterator) for p in places(state, step[1])]
        state = state.apply(step_from_json(step))
    return state


def parallel_steps(family: Family, state: State) -> Steps:
    """The steps that make loops parallel, by our rule."""
    steps: Steps = []
    widths = parallel_widths(state.with_bounds(), family.parallel, np.arange(1), HARDWARE.num_cores)
    for site, width in zip(family.parallel, widths, strict=True):
        loops = list(range(site.start, site.start + int(width[0])))
        if len(loops) > 1:
            steps.append(["FU", site.stage, loops])
        if loops:
            steps.append(["AN", site.stage, site.start, int(Annotation.PARALLEL)])
    return steps


@pytest.fixture(scope="module")
def spaces() -> dict[str, ProgramSpace]:
    names = {name for name, _ in recorded_programs()}
    return {name: ProgramSpace.of(task_of(oracle_workload(name)), REFERENCE_SPACE) for name in sorted(names)}


def test_recorded_programs_lie_in_our_space(spaces: dict[str, ProgramSpace]) -> None:
    """All 139 recorded CPU programs: same sketch, places on offer, same parallel loops and pragmas."""
    checked = 0
    for workload, steps in recorded_programs():
        sketch = find_sketch(spaces[workload].sketches, steps)
        count = len(sketch.steps)
        rest = steps[count:]
        state = relocate(State.replay(spaces[workload].context.dag, steps[:count]).with_bounds(), rest)
        family = Family.of(sketch, state)
        theirs: Steps = []
        while rest and rest[0][0] != "PR" and not (rest[0][0] == "AN" and rest[0][3] != 3):
            theirs.append(rest.pop(0))
        ours = parallel_steps(family, state)
        if ours != theirs:
            assert {(workload, tuple(s[2])) for s in theirs if s[0] == "FU"} & OTHER_PARALLEL
        pragmas = [step[1] for step in rest if step[0] == "PR"]
        assert [site.stage for site in family.unrolls if site.has_pragma] == pragmas
        checked += 1
    assert checked == 139
