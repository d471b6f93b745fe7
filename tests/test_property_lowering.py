"""Laws of scheduled programs, on random graphs under random schedules.

The interpreter of the unscheduled graph is the oracle; `python -m experiments.fuzz` checks the same laws for
as long as you like.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.program_laws import (
    Case,
    check_all,
    check_printed_code,
    check_replay,
    check_simplified,
    lowered,
    seeded_case,
)
from tests.strategies import Chooser, random_graph, random_state, random_symbolic_graph

quick = settings(max_examples=50, deadline=None, derandomize=True, database=None)
slow = settings(max_examples=30, deadline=None, derandomize=True, database=None)


def draw_case(data, max_steps=10):
    c = Chooser.from_data(data)
    return Case.of(random_state(c, random_graph(c), max_steps))


@quick
@given(st.data())
def test_the_nest_of_a_schedule_computes_what_the_graph_says(data):
    case = draw_case(data)

    case.check_interpreted(lowered(case.state))


@quick
@given(st.data())
def test_parallel_iterations_are_independent_and_run_in_any_order(data):
    case = draw_case(data)
    nest = lowered(case.state)

    case.check_interpreted(nest, check_races=True)
    case.check_interpreted(nest, rng=np.random.default_rng(0))


@quick
@given(st.data())
def test_the_polished_nest_computes_the_same(data):
    case = draw_case(data)

    case.check_interpreted(lowered(case.state, simple_mode=False))


@slow
@given(st.data())
def test_compiled_code_computes_what_the_graph_says(data):
    case = draw_case(data)

    case.check_compiled(lowered(case.state, simple_mode=False))


@slow
@given(st.data())
def test_compiled_code_of_the_schedule_as_written_computes_the_same(data):
    case = draw_case(data)

    case.check_compiled(lowered(case.state))


@slow
@given(st.data())
def test_programs_over_symbolic_sizes(data):
    c = Chooser.from_data(data)
    dag, sizes = random_symbolic_graph(c)
    case = Case.of(random_state(c, dag), sizes)

    case.check_interpreted(lowered(case.state))
    case.check_compiled(lowered(case.state, simple_mode=False))
    check_printed_code(case.state)


@quick
@given(st.data())
def test_steps_and_their_records_replay_to_the_same_state(data):
    c = Chooser.from_data(data)

    check_replay(random_state(c, random_graph(c), 12))


@quick
@given(st.data())
def test_printed_programs_rebuild_the_same_nest(data):
    c = Chooser.from_data(data)

    check_printed_code(random_state(c, random_graph(c), 12))


@quick
@given(st.data())
def test_lowered_indices_are_as_simple_as_they_get(data):
    c = Chooser.from_data(data)

    check_simplified(lowered(random_state(c, random_graph(c), 12)))


@pytest.mark.parametrize("block", range(6))
def test_all_laws_hold_of_seeded_programs(block):
    """Larger programs than Hypothesis draws; `python -m experiments.fuzz --seed N --count 1` shows one."""
    for seed in range(12 * block, 12 * block + 12):
        try:
            check_all(seeded_case(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
