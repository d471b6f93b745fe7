"""Evolutionary search: generations of programs that a cost model scores.

A first generation comes from sampling and from what measured best. Each following one is bred from the best
so far by mutation and crossover; what these leave of a generation (nothing, by default) are newcomers.
Programs that were scored before in this round, as far as fingerprints tell (`sketches.signature`), are not
scored again. What comes back is the best of everything that was scored and has not been measured.

All of it happens on columns; no program exists as an object before it is chosen.

Source: `SketchPolicyNode::EvolutionarySearch` of TVM 0.16. Differs in that parents are chosen by rank, which
no scale of scores upsets; the best programs of all earlier generations stay among the parents; and duplicates
are replaced, not bred twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from costmodel import FloatArray
from search.crossover import crossover
from search.generation import (
    Generation,
    bound_families,
    choose_parents,
    joined,
    merged,
    unseen,
)
from search.mutations.mutation import Mutation, offspring_of
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.remap import Names
from sketches.repair import admitted
from sketches.signature import Hashes

Score = Callable[[Sequence[Population]], FloatArray]
"""Scores of all rows of some populations, in order."""

ELITE = 0.25
"""Share of a generation's parents that may come from earlier generations."""
BREEDING_ATTEMPTS = 3
"""How often children are bred to fill one generation."""
SPARE_CHILDREN = 1.25
"""So many times more children are asked for than needed: some cannot be, some are duplicates."""
ENOUGH = 0.75
"""A generation is full with this share of the population."""


@dataclass(frozen=True, slots=True, eq=False)
class Evolution:
    """
    How programs are bred.

    Parameters
    ----------
    neighbourhood
        The space.
    mutations
        Mutations with their weights.
    population
        Programs per generation.
    generations
        How many are bred; 0 scores the first generation only.
    mutation_share, crossover_share
        Shares of children made by mutation and crossover; the rest are drawn anew.
    max_families
        See `bound_families`.
    more_generations
        So many more at most, while each has a better program than all before it.
    per_tile
        At most so many of the best have one tile in registers, unless there are too few others; None for any
        number.
    """

    neighbourhood: Neighbourhood
    mutations: Sequence[tuple[Mutation, float]]
    population: int = 2048
    generations: int = 4
    mutation_share: float = 0.85
    crossover_share: float = 0.15
    max_families: int = 64
    more_generations: int = 0
    per_tile: int | None = None


@dataclass(slots=True, eq=False)
class Outcome:
    """
    What a search found.

    Parameters
    ----------
    best
        The best unmeasured programs, in no order; `ranking` gives it.
    first
        The unmeasured programs of the first generation.
    scored
        Rows with different fingerprints (`sketches.signature`) that the model was asked about. Some are equal
        programs all the same, once lowering has made vectors and accumulators of its own accord.
    valid
        Those of them that the model did not rule out.
    families
        Families of each generation.
    invalid
        Parents without a child, by mutation; "duplicate" counts children that had been scored before, and
        those that the hardware could not run are counted by the limit that they break.
    """

    best: Generation
    first: Generation
    scored: int = 0
    valid: int = 0
    families: list[int] = field(default_factory=list)
    invalid: Counter[str] = field(default_factory=Counter)

    def count(self, generation: Generation) -> None:
        """Take a scored generation into the statistics."""
        self.scored += len(generation)
        self.valid += int(np.isfinite(generation.scores).sum())
        self.families.append(len(generation.populations))


def evolve(
    settings: Evolution,
    score: Score,
    first: Sequence[Population],
    measured: Hashes,
    keep: int,
    rng: np.random.Generator,
) -> Outcome:
    """
    Search for programs with high scores.

    Parameters
    ----------
    settings
        How to breed.
    score
        The cost model.
    first
        The first generation; measured programs among it breed, but are not proposed.
    measured
        Fine fingerprints of programs that are not to be proposed.
    keep
        How many of the best to return.
    rng
        Source of all randomness.
    """
    nothing: Hashes = np.empty(0, dtype=np.uint64)
    current = unseen(Generation.of(first), nothing)
    current = current.scored(score(current.populations))
    seen = current.prints.fine
    start = unseen(current, measured)
    outcome = Outcome(_top(start, keep, settings.per_tile), start)
    outcome.count(current)
    parents, is_better = current, False
    for number in range(settings.generations + settings.more_generations):
        if number >= settings.generations and not is_better:
            break
        parents = bound_families(parents, settings.max_families, rng)
        children = _breed(settings, parents, seen, outcome.invalid, rng)
        if not len(children):
            break
        children = children.scored(score(children.populations))
        seen = np.concatenate([seen, children.prints.fine])
        outcome.count(children)
        new = unseen(children, measured)
        is_better = new.scores.max(initial=-np.inf) > outcome.best.scores.max(initial=-np.inf)
        outcome.best = _top(joined([outcome.best, new]), keep, settings.per_tile)
        elite = _top(parents, int(settings.population * ELITE))
        parents = joined([elite, children])
    return outcome


def _top(generation: Generation, count: int, per_tile: int | None = None) -> Generation:
    """The best programs that the model tells apart, few of one tile, in the order of their populations."""
    return generation.take(np.sort(generation.spread_ranking(count, per_tile)))


def _breed(
    settings: Evolution,
    parents: Generation,
    seen: Hashes,
    invalid: Counter[str],
    rng: np.random.Generator,
) -> Generation:
    """Breed a generation of programs that have not been seen."""
    grown: list[Generation] = []
    missing = settings.population
    for _ in range(BREEDING_ATTEMPTS):
        chosen = choose_parents(parents, int(missing * SPARE_CHILDREN), rng)
        children = merged(_children(settings, parents, chosen, invalid, rng))
        context = settings.neighbourhood.space.context
        bred = Generation.of([admitted(population, context, invalid) for population in children])
        new = unseen(bred, seen)
        invalid["duplicate"] += len(bred) - len(new)
        if len(new) > missing:
            new = new.take(np.sort(rng.choice(len(new), missing, replace=False)))
        seen = np.concatenate([seen, new.prints.fine])
        grown.append(new)
        missing -= len(new)
        if missing <= (1 - ENOUGH) * settings.population:
            break
    return joined(grown)


def _children(
    settings: Evolution,
    parents: Generation,
    chosen: NDArray[np.int64],
    invalid: Counter[str],
    rng: np.random.Generator,
) -> list[Population]:
    """Children of the chosen parents, annotations not yet repaired."""
    fate = rng.random(len(chosen))
    mutating = chosen[fate < settings.mutation_share]
    crossing = chosen[
        (fate >= settings.mutation_share) & (fate < settings.mutation_share + settings.crossover_share)
    ]
    newcomers = len(chosen) - len(mutating) - len(crossing)
    children = _mutants(settings, parents, mutating, invalid, rng)
    children += _crossed(settings, parents, crossing, invalid, rng)
    if newcomers > 0:
        children += settings.neighbourhood.space.sample(newcomers, rng).populations
    return children


def _mutants(
    settings: Evolution,
    parents: Generation,
    chosen: NDArray[np.int64],
    invalid: Counter[str],
    rng: np.random.Generator,
) -> list[Population]:
    weights = np.array([weight for _, weight in settings.mutations], dtype=np.float64)
    if not len(weights) or not len(chosen):
        return []
    drawn = rng.choice(len(weights), size=len(chosen), p=weights / weights.sum())
    children: list[Population] = []
    for which, (mutation, _) in enumerate(settings.mutations):
        groups = parents.by_family(chosen[drawn == which])
        if mutation.sources is not None and len(groups) > mutation.sources:
            groups = [groups[at] for at in rng.choice(len(groups), mutation.sources, replace=False)]
        for _, population, rows, _ in groups:
            offspring = offspring_of(mutation, population.take(rows), settings.neighbourhood, rng)
            invalid[mutation.name] += offspring.invalid
            children.extend(offspring.populations)
    return children


def _crossed(
    settings: Evolution,
    parents: Generation,
    chosen: NDArray[np.int64],
    invalid: Counter[str],
    rng: np.random.Generator,
) -> list[Population]:
    if not len(chosen):
        return []
    donors = choose_parents(parents, len(chosen), rng)
    names = Names()
    spread = names.spread(parents.populations)
    children: list[Population] = []
    for _, population, rows, at in parents.by_family(chosen):
        theirs = names.gather(spread[donors[at]], population.family)
        offspring = crossover(population.take(rows), theirs, settings.neighbourhood, rng)
        invalid["crossover"] += offspring.invalid
        children.extend(offspring.populations)
    return children
