"""What a rule of one's own splits and annotates for a CPU: the lengths are those of tiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ansor import te
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep
from ansor.te import Tensor
from search.exhaustive import enumerate_space
from sketches import CPU_RULES, ColumnKind, ProgramSpace, SketchContext, Verdict, generate_sketches
from sketches.neighbours import Neighbourhood
from sketches.rule import Successor
from tests.sketches_cases import matmul, task_of


class SplitAndAnnotate:
    """Splits the first loop of an untouched stage, and annotates the inner part."""

    name = "SplitAndAnnotate"

    def __init__(self, annotation: Annotation, length: int | None = None) -> None:
        self.annotation, self.length = annotation, length

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        stage = state.stages[stage_id]
        return Verdict.PASS if stage.is_placeholder or stage.relations else Verdict.APPLY_AND_SKIP_REST

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        split = state.split(stage_id, 0, (self.length,))
        return [(split.annotate(stage_id, 1, self.annotation), stage_id - 1)]


def doubled() -> list[Tensor]:
    x = te.placeholder((48,), name="X")
    return [x, te.compute((48,), lambda i: x[i] + x[i], name="Y")]


@pytest.mark.parametrize("annotation", [Annotation.VECTORIZE, Annotation.UNROLL, Annotation.PARALLEL])
@pytest.mark.parametrize("make", [doubled, lambda: matmul(12, 8, 6)], ids=["doubled", "matmul"])
def test_lengths_of_what_a_rule_annotates_are_drawn_and_listed(make: object, annotation: Annotation) -> None:
    task = task_of(make())  # type: ignore[operator]
    space = ProgramSpace.of(task, rules=(SplitAndAnnotate(annotation), *CPU_RULES))
    lengths: set[int] = set()
    for population, row in space.sample(40, np.random.default_rng(0)).in_order():
        (hole,) = population.family.holes
        assert hole.kind is ColumnKind.TILE
        lengths.add(int(population.values[row, hole.start]))
        assert population.materialize(row).is_concrete
    assert len(lengths) > 3
    listed = enumerate_space(Neighbourhood(space), 4096)
    assert listed is not None
    assert lengths <= {int(length) for one in listed for length in one.values[:, 0]}


def test_lengths_over_threads_stay_as_a_rule_sets_them() -> None:
    rules = (SplitAndAnnotate(Annotation.THREAD_X, 16), *CPU_RULES)
    (sketch,) = generate_sketches(task_of(doubled()), rules=rules)
    assert sketch.holes == ()
    assert [step.lengths for step in sketch.steps if isinstance(step, SplitStep)] == [(16,)]
