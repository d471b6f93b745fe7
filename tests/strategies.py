"""Random graphs and random schedules, from any source of choices: the one import of tests and fuzzers."""

from tests.random_choice import Chooser
from tests.random_graphs import random_graph, random_inputs, random_symbolic_graph, shape_of
from tests.random_schedules import random_move, random_state

__all__ = [
    "Chooser",
    "random_graph",
    "random_inputs",
    "random_move",
    "random_state",
    "random_symbolic_graph",
    "shape_of",
]
