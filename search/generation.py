"""Generations: many programs of several families, addressed by one number each.

Everything that concerns programs of different families together is here: which of them are the same, who
breeds, which families live on. Rows stay in their populations; a program's number is its row counted through
all populations in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel import FloatArray
from sketches.family import Family
from sketches.locations import Rows
from sketches.population import Population
from sketches.signature import Fingerprints, Hashes, fingerprints

SELECTION_PRESSURE = 3.0
"""A parent's place, from the best at 0 to the worst at 1, is a random number between them to this power."""
NO_TILE = np.uint64(0)
"""The number of the tile of a program that has none."""
EXPLORING_FAMILIES = 0.25
"""Share of the families of a generation that are kept whatever their scores."""


@dataclass(frozen=True, eq=False)
class Generation:
    """
    Programs with their fingerprints and, once a model has seen them, scores.

    Parameters
    ----------
    populations
        The programs by family, none empty.
    prints
        Fingerprints of all programs.
    scores
        Higher is better, -inf for a program not to be used; shape `(programs,)`.
    """

    populations: tuple[Population, ...]
    prints: Fingerprints
    scores: FloatArray

    @classmethod
    def of(cls, populations: Sequence[Population]) -> Generation:
        """Take fingerprints of populations; all scores are 0."""
        kept = tuple(population for population in populations if len(population))
        prints = [fingerprints(population) for population in kept]
        if not prints:
            nothing: Hashes = np.empty(0, dtype=np.uint64)
            return cls((), Fingerprints(nothing, nothing), np.empty(0))
        fine = np.concatenate([one.fine for one in prints])
        coarse = np.concatenate([one.coarse for one in prints])
        return cls(kept, Fingerprints(fine, coarse), np.zeros(len(fine)))

    def __len__(self) -> int:
        return len(self.scores)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Number of each population's first program, and the count of all at the end."""
        return np.concatenate([[0], np.cumsum([len(p) for p in self.populations], dtype=np.int64)])

    @cached_property
    def family_numbers(self) -> NDArray[np.int64]:
        """Position of each program's population, shape `(programs,)`."""
        return np.repeat(np.arange(len(self.populations)), np.diff(self.starts))

    def place(self, number: int) -> tuple[Population, int]:
        """Find the population and row of a program."""
        which = int(self.family_numbers[number])
        return self.populations[which], int(number - self.starts[which])

    def by_family(self, numbers: NDArray[np.int64]) -> list[tuple[int, Population, Rows, Rows]]:
        """Divide programs, which may repeat, by family.

        Returns
        -------
        list
            For each population that occurs: its position, itself, the rows, and where these stand in
            `numbers`.
        """
        which = self.family_numbers[numbers]
        found = []
        for position in np.unique(which):
            at = np.flatnonzero(which == position)
            rows = numbers[at] - self.starts[position]
            found.append((int(position), self.populations[position], rows, at))
        return found

    def take(self, numbers: NDArray[np.int64]) -> Generation:
        """Return a generation of some programs, in the order of their populations."""
        if len(numbers) == len(self) and (numbers == np.arange(len(self))).all():
            return self
        parts, order = [], []
        for _, population, rows, at in self.by_family(numbers):
            parts.append(
                population if len(rows) == len(population) and _ascending(rows) else population.take(rows)
            )
            order.append(numbers[at])
        kept = np.concatenate(order) if order else np.empty(0, dtype=np.int64)
        return Generation(tuple(parts), self.prints.take(kept), self.scores[kept])

    def scored(self, scores: FloatArray) -> Generation:
        """Return the generation with scores."""
        return Generation(self.populations, self.prints, scores)

    def ranking(self) -> NDArray[np.int64]:
        """Order the usable programs, best first; equals keep their order."""
        order = np.argsort(-self.scores, kind="stable")
        return order[np.isfinite(self.scores[order])]

    @cached_property
    def register_tiles(self) -> Hashes:
        """
        A number for each program's tile in registers, `NO_TILE` for none, shape `(programs,)`.

        Equal lengths are one tile, whatever the sketch: a copy of a stage has another name (`Family`).
        """
        found = [_register_tiles(population) for population in self.populations]
        return np.concatenate(found) if found else np.empty(0, dtype=np.uint64)

    def spread_ranking(self, count: int, per_tile: int | None) -> NDArray[np.int64]:
        """
        Give the first programs of `distinct_ranking` with at most some of one tile in registers.

        Parameters
        ----------
        count
            How many programs.
        per_tile
            At most so many of one tile, unless there are too few others; None for any number.

        Returns
        -------
        ndarray
            Numbers of programs, best first.
        """
        order = self.distinct_ranking()
        if per_tile is None:
            return order[:count]
        tiles = self.register_tiles[order]
        few = (place_among_equals(tiles) < per_tile) | (tiles == NO_TILE)
        few_first: Rows = np.argsort(~few, kind="stable")
        return order[np.sort(few_first[:count])]

    def distinct_ranking(self) -> NDArray[np.int64]:
        """Order as `ranking` does, without programs that the model cannot tell from a better placed one.

        These have equal scores, and the same loops but for annotations. Mostly they are the same program: a
        loop may be a vector because it is annotated or because lowering makes it one.
        """
        order = self.ranking()
        bits = np.ascontiguousarray(self.scores[order]).view(np.uint64)
        return order[first_of_each((self.prints.coarse[order] ^ bits) * _ODD ^ (bits >> _HALF))]


def _register_tiles(population: Population) -> Hashes:
    innermost = [hole.stop - 1 for holes in population.family.register_tiles for hole in holes]
    return _hashes(population.values[:, innermost]) if innermost else np.full(len(population), NO_TILE)


def place_among_equals(keys: Hashes) -> NDArray[np.int64]:
    """Count the equal keys before each one, shape `(keys,)`."""
    _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    places = np.empty(len(keys), dtype=np.int64)
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    places[np.argsort(which, kind="stable")] = np.arange(len(keys)) - begins
    return places


_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


def _ascending(rows: Rows) -> bool:
    return bool((np.diff(rows) > 0).all())


def joined(generations: Sequence[Generation]) -> Generation:
    """Put the programs of generations together, family by family in order of first appearance."""
    members: dict[Family, list[tuple[Population, NDArray[np.int64]]]] = {}
    count = 0
    for one in generations:
        for population, start in zip(one.populations, one.starts, strict=False):
            numbers = np.arange(count + start, count + start + len(population))
            members.setdefault(population.family, []).append((population, numbers))
        count += len(one)
    order = np.array(
        [number for parts in members.values() for _, run in parts for number in run.tolist()], np.int64
    )
    populations = [
        parts[0][0] if len(parts) == 1 else Population(family, np.concatenate([p.values for p, _ in parts]))
        for family, parts in members.items()
    ]
    prints = Fingerprints(
        np.concatenate([one.prints.fine for one in generations]),
        np.concatenate([one.prints.coarse for one in generations]),
    )
    scores = np.concatenate([one.scores for one in generations])
    return Generation(tuple(populations), prints.take(order), scores[order])


def merged(populations: Sequence[Population]) -> list[Population]:
    """Put the rows of each family together and drop equal ones, in order of first appearance."""
    members: dict[Family, list[Population]] = {}
    for population in populations:
        members.setdefault(population.family, []).append(population)
    together = []
    for family, parts in members.items():
        values = np.concatenate([part.values for part in parts])
        kept = distinct_rows(values)
        alone = len(parts) == 1 and len(kept) == len(values)
        together.append(parts[0] if alone else Population(family, values[kept]))
    return together


def distinct_rows(values: NDArray[np.int64]) -> Rows:
    """Positions of the first of each set of equal rows, ascending (rows that hash alike count as equal)."""
    return first_of_each(_hashes(values))


def _hashes(values: NDArray[np.int64]) -> Hashes:
    """One number for each row, shape `(rows,)`; equal ones for equal rows."""
    factors = np.random.default_rng(values.shape[1]).integers(1, 2**62, values.shape[1]).astype(np.uint64)
    terms = (values.astype(np.uint64) + np.uint64(3)) * (factors | np.uint64(1))
    return np.asarray(terms.sum(axis=1, dtype=np.uint64))


def first_of_each(hashes: Hashes) -> Rows:
    """Positions of the first of each set of equal hashes, ascending."""
    _, first = np.unique(hashes, return_index=True)
    return np.sort(first)


def unseen(generation: Generation, seen: Hashes) -> Generation:
    """Drop programs that occur earlier in the generation or, by their fine fingerprints, in `seen`."""
    first = first_of_each(generation.prints.fine)
    new = ~np.isin(generation.prints.fine[first], seen)
    return generation.take(first[new])


def choose_parents(generation: Generation, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """
    Draw programs by rank, the better the likelier; with repetition, none if none is usable.

    The best share `s` of the programs is drawn with the probability `s ** (1 / SELECTION_PRESSURE)`: the best
    hundredth for 22 % of all parents, the better half for 79 %.
    """
    order = generation.ranking()
    if not len(order):
        return np.empty(0, dtype=np.int64)
    places = np.floor(len(order) * rng.random(count) ** SELECTION_PRESSURE).astype(np.int64)
    return order[np.minimum(places, len(order) - 1)]


def bound_families(generation: Generation, limit: int, rng: np.random.Generator) -> Generation:
    """
    Keep the programs of a limited number of families: those with the best programs, and a few others.

    Every family costs time that its programs share, so the number kept adapts: all that the limit allows
    where the best tenth of all programs is spread over many families, down to a quarter where it is
    concentrated.
    """
    order = generation.ranking()
    families, first = np.unique(generation.family_numbers[order], return_index=True)
    families = families[np.argsort(first, kind="stable")]
    leading = order[: max(1, len(order) // 10)]
    spread = len(np.unique(generation.family_numbers[leading]))
    bound = int(np.clip(2 * spread, max(1, limit // 4), limit))
    if len(families) <= bound:
        return generation.take(np.sort(order))
    exploring = int(bound * EXPLORING_FAMILIES)
    best, rest = families[: bound - exploring], families[bound - exploring :]
    kept = np.concatenate([best, rng.choice(rest, exploring, replace=False)]) if exploring else best
    return generation.take(np.sort(order[np.isin(generation.family_numbers[order], kept)]))
