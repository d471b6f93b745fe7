"""Padding that is computed where it is used, in programs of random sizes, paddings, strides and tiles."""

from __future__ import annotations

import numpy as np
import pytest

from ansor import workloads
from ansor.schedule.stages import ComputeAt
from ansor.schedule.state import State
from sketches import ProgramSpace
from tests.program_laws import check_results
from tests.sketches_cases import check_program, task_of

WASTEFUL = {"max_tile_waste": 1.4}


def random_args(name: str, rng: np.random.Generator) -> tuple[int, ...]:
    """Sizes, a kernel, a stride and a padding of a workload on images `[n, h, w, c]`."""
    kernel, stride = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    padding = int(rng.integers(1, kernel))
    height, width, channels = (int(size) for size in rng.integers((kernel, kernel, 1), (12, 12, 20)))
    if name == "transposed_conv2d":
        return 1, height, width, channels, 1, int(rng.integers(3, 5)), int(rng.integers(1, 3)), 1
    dilation = (int(rng.integers(1, 3)),) if name == "depthwise_conv2d" else ()
    return 1, height + kernel, width + kernel, channels, kernel, stride, padding, *dilation


def inlined_programs(name: str, rng: np.random.Generator, count: int) -> list[State]:
    task = task_of(list(workloads.get_workload(name).function(*random_args(name, rng))))
    space = ProgramSpace.of(task, WASTEFUL)
    found = [population.materialize(row) for population, row in space.sample(8 * count, rng).in_order()]
    return [state for state in found if any(s.compute_at is ComputeAt.INLINED for s in state.stages)][:count]


@pytest.fixture(autouse=True)
def _any_padding_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that images are small enough to be interpreted."""
    monkeypatch.setattr("sketches.inlined_padding.LITTLE", np.inf)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["depthwise_conv2d", "max_pool2d", "avg_pool2d", "transposed_conv2d"])
def test_programs_with_inlined_padding_compute_the_expression(name: str, seed: int) -> None:
    """Interpreted, which notices every read out of bounds, and compiled."""
    states = inlined_programs(name, np.random.default_rng([seed, 17]), 3)
    assert states
    for state in states:
        check_program(state)
        check_results(state)
