"""Random graphs under random GPU schedules: refused with a reason, or right and without races."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor.errors import ScheduleError
from ansor.ir.nest import Barrier, LoopNest
from ansor.schedule.state import State
from tests.gpu_schedules import count, variants
from tests.program_laws import Case
from tests.random_kernels import random_gpu_state
from tests.strategies import Chooser, random_graph, random_symbolic_graph

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def kernels_of(state: State) -> list[LoopNest]:
    """The kernels of a state, in each way that there is; none if no GPU can run it."""
    try:
        return variants(state)
    except ScheduleError:
        return []


@quick
@given(st.data())
def test_kernels_compute_what_the_graph_says_without_races(data):
    c = Chooser.from_data(data)
    state = random_gpu_state(c, random_graph(c))
    for nest in kernels_of(state):
        Case.of(state).check_interpreted(nest, check_races=True)


@quick
@given(st.data())
def test_kernels_over_symbolic_sizes(data):
    c = Chooser.from_data(data)
    dag, sizes = random_symbolic_graph(c)
    state = random_gpu_state(c, dag, 4)
    for nest in kernels_of(state):
        Case.of(state, sizes).check_interpreted(nest, check_races=True)


@pytest.mark.parametrize("block", range(4))
def test_seeded_kernels(block):
    """Larger programs than Hypothesis draws; most of them are programs for a GPU, and many have barriers."""
    found = Counter()
    for seed in range(40 * block, 40 * block + 40):
        c = Chooser.from_seed(seed)
        state = random_gpu_state(c, random_graph(c), 14)
        nests = kernels_of(state)
        found["programs"] += bool(nests)
        found["barriers"] += any(count(nest.body, Barrier) for nest in nests)
        try:
            for nest in nests:
                Case.of(state).check_interpreted(nest, check_races=True)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert found["programs"] >= 30
    assert found["barriers"] >= 10
