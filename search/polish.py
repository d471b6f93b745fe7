"""Local polish: the neighbours of the best programs, measured one ring after another.

A neighbour differs in one step of one decision: a prime factor moved between two levels of a split, one level
a little longer or shorter, one loop more or less parallel or vector, another unroll limit, the other kind of
stores, one stage computed somewhere else; on a GPU twice or half as many threads, or elements copied at once.
If a neighbour turns out faster, it is the best and its own neighbours come next; when no neighbour is faster
(all are measured, or enough of the most promising ones) the next best program has its turn. That is
coordinate descent, in batches, and every step of it follows from the measurements alone, so it survives an
interruption.

Source: Droplet search after a short Ansor run (arXiv 2406.20037).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from search.evolution import Score
from search.generation import Generation, unseen
from search.history import History
from search.known import Known
from search.mutations.location import carried_over
from search.mutations.tiles import HANDY_LENGTHS
from sketches.columns import ColumnKind, Hole
from sketches.factors import prime_factors
from sketches.family import Family, Matrix
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.repair import admitted, clip_tiles, legal_tiles
from sketches.rule import SketchContext
from sketches.signature import Hashes
from sketches.tiles import outer_length

BASINS: Final = 8
"""So many of the best programs may have their turn."""
PATIENCE: Final = 32
"""A program is given up after so many of its neighbours were measured and it is still ahead of them."""


def polish(
    known: Known,
    history: History,
    neighbourhood: Neighbourhood,
    score: Score,
    count: int,
    measured: Hashes,
) -> list[Generation]:
    """
    Propose unmeasured neighbours of the best programs.

    Parameters
    ----------
    known, history
        The measured programs.
    neighbourhood
        The space.
    score
        The cost model, which orders the neighbours.
    count
        How many are wanted.
    measured
        Fine fingerprints of all measured programs.

    Returns
    -------
    list[Generation]
        Scored neighbours of one program after the other, at least `count` in all if there are so many.
    """
    found: list[Generation] = []
    wanted, context = count, neighbourhood.space.context
    for best in known.best(history, BASINS):
        if wanted <= 0:
            break
        near = (neighbours(best.population, context), *relocated(best.population, neighbourhood))
        ring = Generation.of([admitted(population, context) for population in near])
        ring = unseen(ring, np.array([best.fine], dtype=np.uint64))
        new = unseen(ring, measured)
        tried = len(ring) - len(new)
        if not len(new) or tried >= PATIENCE:
            continue
        found.append(new.scored(score(new.populations)))
        wanted -= min(len(new), PATIENCE - tried)
    return found


def neighbours(program: Population, context: SketchContext) -> Population:
    """
    List the programs one step away from a program, in the same family.

    Parameters
    ----------
    program
        One row.
    context
        Limits that tile lengths have to keep.

    Returns
    -------
    Population
        Distinct rows, annotations not yet repaired.
    """
    family, row = program.family, program.values[0]
    rows: list[Matrix] = []
    for hole in family.tiles:
        for lengths in _tile_steps(hole, row[hole.start : hole.stop], context.params.max_tile_waste > 1):
            changed = row.copy()
            changed[hole.start : hole.stop] = lengths
            rows.append(changed)
    rows += _annotation_steps(family, row)
    values = np.array(rows, dtype=np.int64).reshape(len(rows), len(row))
    values = clip_tiles(family, values[legal_tiles(family, values, context)])
    population = Population(family, values)
    return population.take(population.unique_rows())


def relocated(program: Population, neighbourhood: Neighbourhood) -> list[Population]:
    """
    List what becomes of a program if one stage is computed somewhere else, and all lengths stay.

    Parameters
    ----------
    program
        One row.
    neighbourhood
        The families around it.

    Returns
    -------
    list[Population]
        A row in each of these families, annotations not yet repaired.
    """
    own = program.family
    offers = [neighbourhood.relocated(own, offer) for offer in neighbourhood.relocations(own)]
    families = dict.fromkeys(family for family in offers if family is not None and family is not own)
    return [Population(family, carried_over(program.values, own, family)) for family in families]


def _tile_steps(hole: Hole, lengths: Matrix, resize: bool) -> list[list[int]]:
    """Lengths of one split, one step away."""
    sizes = [int(outer_length(hole.extent, lengths[None, :])[0]), *(int(length) for length in lengths)]
    steps: list[list[int]] = []
    for source, size in enumerate(sizes):
        for prime, _ in prime_factors(size):
            for target in range(len(sizes)):
                if target != source:
                    moved = list(sizes)
                    moved[source] //= prime
                    moved[target] *= prime
                    steps.append(moved[1:])
    if resize:
        for level in range(1, len(sizes)):
            near = _lengths_near(sizes[level])
            steps += [[*sizes[1:level], length, *sizes[level + 1 :]] for length in near]
    return steps


def _lengths_near(length: int) -> list[int]:
    """Lengths one step from a length: by one, and the next handy ones."""
    below = [handy for handy in HANDY_LENGTHS if handy < length]
    above = [handy for handy in HANDY_LENGTHS if handy > length]
    near = {length - 1, length + 1, *below[-1:], *above[:1]}
    return sorted(one for one in near if one >= 1)


def _annotation_steps(family: Family, row: Matrix) -> list[Matrix]:
    """Rows with one annotation changed by one step."""
    options: list[tuple[int, int]] = []
    unrolls = family.positions(ColumnKind.UNROLL)
    options += [(at, value) for at in unrolls for value in family.annotation_values[at]]
    for at, values in family.annotation_values.items():
        if at not in unrolls:
            below, above = [v for v in values if v < row[at]], [v for v in values if v > row[at]]
            options += [(at, value) for value in (*below[-1:], *above[:1])]
    rows: list[Matrix] = []
    for at, value in options:
        if value != row[at]:
            changed = row.copy()
            changed[at] = value
            rows.append(changed)
    return rows
