"""Random graphs under random GPU schedules: refused with a reason, or right and without races."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor.errors import ScheduleError
from ansor.ir.nest import Barrier, LoopNest
from ansor.schedule.state import State
from tests.gpu_schedules import count, kernels
from tests.program_laws import Case
from tests.random_kernels import random_gpu_state
from tests.strategies import Chooser, random_graph, random_symbolic_graph

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def kernels_or_none(state: State) -> LoopNest | None:
    """The kernels of a state; None if no GPU can run it."""
    try:
        return kernels(state)
    except ScheduleError:
        return None


@quick
@given(st.data())
def test_kernels_compute_what_the_graph_says_without_races(data):
    c = Chooser.from_data(data)
    state = random_gpu_state(c, random_graph(c))
    nest = kernels_or_none(state)
    if nest is not None:
        Case.of(state).check_interpreted(nest, check_races=True)


@quick
@given(st.data())
def test_kernels_over_symbolic_sizes(data):
    c = Chooser.from_data(data)
    dag, sizes = random_symbolic_graph(c)
    state = random_gpu_state(c, dag, 4)
    nest = kernels_or_none(state)
    if nest is not None:
        Case.of(state, sizes).check_interpreted(nest, check_races=True)


@pytest.mark.parametrize("block", range(4))
def test_seeded_kernels(block):
    """Larger programs than Hypothesis draws; most of them are programs for a GPU, and many have barriers."""
    found = Counter()
    for seed in range(40 * block, 40 * block + 40):
        c = Chooser.from_seed(seed)
        state = random_gpu_state(c, random_graph(c), 14)
        nest = kernels_or_none(state)
        if nest is None:
            continue
        found["programs"] += 1
        found["barriers"] += bool(count(nest.body, Barrier))
        try:
            Case.of(state).check_interpreted(nest, check_races=True)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert found["programs"] >= 30
    assert found["barriers"] >= 10
