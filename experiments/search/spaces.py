"""What tells two spaces of programs of one task apart, whatever programs happen to be drawn from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

import ansor

USUAL: Final = 1 / 8
"""Share of random programs from which on what they have is no accident."""


@dataclass(frozen=True, slots=True)
class Reach:
    """
    What tells spaces of programs of one task apart.

    Attributes
    ----------
    sketches
        With the rules that derived them.
    moved
        Stages that are not computed where all sketches put them.
    uneven
        Whether there are tile lengths that do not divide.
    vectors
        How many loops of which stages are in one vector, where several are and that is usual.
    streams
        Stages that may have streaming stores.
    prefetches
        Whether there are stages that ask for inputs ahead.
    """

    sketches: tuple[str, ...]
    moved: frozenset[int]
    uneven: bool
    vectors: frozenset[tuple[str, int]]
    streams: frozenset[str]
    prefetches: bool


def reach(space: ansor.ProgramSpace, seed: int = 0, draws: int = 512) -> Reach:
    """
    Describe a space by its sketches and by what is met in random programs.

    Parameters
    ----------
    space
        The space.
    seed, draws
        Of the programs. Other seeds should find the same.
    """
    moved, streams, vectors, uneven = set[int](), set[str](), Counter[tuple[str, int]](), False
    prefetches = False
    for population in space.sample(draws, np.random.default_rng(seed)).populations:
        family, values = population.family, population.values
        moved |= {step.stage for step in family.steps[len(family.sketch.steps) :]}
        prefetches |= bool(family.sites.prefetches)
        for hole in family.holes:
            lengths = values[:, [family.index[column] for column in hole.columns]]
            uneven |= bool((hole.extent % lengths.prod(axis=1)).any())
        for at in family.positions(ansor.ColumnKind.VECTORIZE):
            stage = family.columns[at].stage
            vectors.update((stage, loops) for loops in values[:, at].tolist() if loops > 1)
        streams |= {family.columns[at].stage for at in family.positions(ansor.ColumnKind.STREAM)}
    sketches = tuple(f"{sketch.explain()}\n{sketch}" for sketch in space.sketches)
    usual = frozenset(name for name, met in vectors.items() if met >= USUAL * draws)
    return Reach(sketches, frozenset(moved), uneven, usual, frozenset(streams), prefetches)
