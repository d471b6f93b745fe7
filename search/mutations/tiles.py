"""Mutations of tiles: other lengths of their levels.

Differ from TVM's (`sketch_policy_rules.cc`, 0.16) in that lengths need not divide, and in that two of a
tile's may change at once. They need not think of vectors: `search.offspring.tiles_changed` does.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.task.isa import vector_bytes
from search.mutations.mutation import Mutation
from search.offspring import Offspring, same_family, tiles_changed
from sketches.columns import Hole
from sketches.factors import divisors
from sketches.family import Family, Matrix
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.tiles import outer_length

RESIZE_SHARE: Final = 0.4
"""Share of tile mutations that resize one level; the others move a factor between two."""
HANDY_LENGTHS: Final = tuple(
    sorted({1, 3, 5, 7, 14} | {base << shift for base in (2, 3, 5, 7) for shift in range(1, 8)})
)
"""Lengths that a resized level often gets: small, or smooth."""

_TALLEST: Final = 16
_WIDTHS: Final = (1, 2, 3, 4, 5, 6, 8)
"""Widths of a new innermost tile [vectors]; its height is up to `_TALLEST`."""
_ELEMENT: Final = 4
"""Bytes of the elements that vectors are counted in; tiles of others have other widths, as multiples."""


class TileSize(Mutation):
    """Moves a factor from one level of a split to another, or gives one level another length."""

    name = "tile size"

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        family, values = parents.family, parents.values.copy()
        holes = [hole for hole in family.tiles if hole.extent > 1]
        if not holes:
            return same_family(parents, values, np.zeros(len(parents), dtype=np.bool_))
        weights = np.array([1 + np.log2(hole.extent) for hole in holes])
        drawn = rng.choice(len(holes), size=len(parents), p=weights / weights.sum())
        resizes = rng.random(len(parents)) < (
            RESIZE_SHARE if neighbourhood.space.context.params.max_tile_waste > 1 else 0.0
        )
        for which, hole in enumerate(holes):
            own = slice(hole.start, hole.stop)
            moved = np.flatnonzero((drawn == which) & ~resizes)
            values[moved, own] = move_factor(hole, values[moved, own], rng)
            resized = np.flatnonzero((drawn == which) & resizes)
            values[resized, own] = resize_level(hole, values[resized, own], rng)
        return tiles_changed(parents, values, neighbourhood)


def move_factor(hole: Hole, lengths: Matrix, rng: np.random.Generator) -> Matrix:
    """Move a random divisor of one part of each row's split, part 0 included, to another part."""
    return _moved(hole, lengths, rng, len(hole.columns) + 1, random_divisors)


def move_level(hole: Hole, lengths: Matrix, rng: np.random.Generator) -> Matrix:
    """Move all of one part of each row's split, part 0 included, to another; the innermost one stays."""
    return _moved(hole, lengths, rng, len(hole.columns), lambda sizes, _: sizes)


def _moved(
    hole: Hole,
    lengths: Matrix,
    rng: np.random.Generator,
    count: int,
    factors: Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int64]],
) -> Matrix:
    """Move a factor of one of the first `count` parts of each row's split to another of these."""
    sizes = np.column_stack([outer_length(hole.extent, lengths), lengths])
    parts, rows = sizes[:, :count], np.arange(len(sizes))
    source = np.where(parts > 1, rng.random(parts.shape), -1.0).argmax(axis=1)
    order = rng.random(parts.shape)
    order[rows, source] = -1.0
    target = order.argmax(axis=1)
    factor = factors(parts[rows, source], rng)
    parts[rows, source] //= factor
    parts[rows, target] *= factor
    return sizes[:, 1:]


def resize_level(hole: Hole, lengths: Matrix, rng: np.random.Generator) -> Matrix:
    """Give one level of each row another length: near the old one, or a handy one; part 0 follows."""
    resized = lengths.copy()
    rows = np.arange(len(lengths))
    level = rng.integers(lengths.shape[1], size=len(lengths))
    near = lengths[rows, level] + rng.choice(np.array([-2, -1, 1, 2]), size=len(lengths))
    handy = np.array([length for length in HANDY_LENGTHS if length <= hole.extent])
    drawn = handy[rng.integers(len(handy), size=len(lengths))]
    resized[rows, level] = np.where(rng.random(len(lengths)) < 0.5, near, drawn)
    return resized


def random_divisors(numbers: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a divisor greater than 1 of each number; 1 where the number is 1."""
    found = np.ones_like(numbers)
    for number in np.unique(numbers):
        choices = np.array(divisors(int(number))[1:], dtype=np.int64)
        members = np.flatnonzero(numbers == number)
        if len(choices):
            found[members] = choices[rng.integers(len(choices), size=len(members))]
    return found


class TileShape(Mutation):
    """Gives the innermost tile another shape: two of a stage's splits get new innermost lengths at once.

    A tile fills the registers in few shapes, and one length after the other leads from one to the next only
    through tiles that spill or leave registers empty, all of them slow: 2 x 40 and 6 x 16 are both good,
    2 x 16 and 6 x 40 are not. What is tiled around it keeps about its size. Where there are no two such
    splits one level has another length.
    """

    name = "tile shape"

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        family, values = parents.family, parents.values.copy()
        pairs = _tile_pairs(family)
        if not pairs:
            return TileSize().propose(parents, neighbourhood, rng)
        context = neighbourhood.space.context
        lanes = max(1, vector_bytes(context.target) // _ELEMENT)
        drawn = rng.integers(len(pairs), size=len(parents))
        for which, (height, width) in enumerate(pairs):
            rows = np.flatnonzero(drawn == which)
            tall = rng.integers(1, _TALLEST + 1, size=len(rows))
            wide = lanes * rng.choice(_WIDTHS, size=len(rows))
            for hole, innermost in ((height, tall), (width, wide)):
                values[rows, hole.start : hole.stop] = _with_innermost(
                    hole, values[rows, hole.start : hole.stop], innermost
                )
        return tiles_changed(parents, values, neighbourhood)


class TileLevels(Mutation):
    """Moves all of one level of a split to another, in two splits of a stage at once if both have one.

    Which loops are inside of which decides what stays in a cache while it is used. A product whose tiles are
    tiled once more, for parts of its terms, is fast, and so is one that adds up all terms of a tile at once,
    over few columns of an operand; with only the rows or only the columns changed it is neither, and slow.
    Tiles in registers stay as they are. Where there are no two such splits one level has another length.
    """

    name = "tile levels"

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        family, values = parents.family, parents.values.copy()
        pairs = [pair for holes in family.register_tiles for pair in combinations(holes, 2)]
        if not pairs:
            return TileSize().propose(parents, neighbourhood, rng)
        drawn = rng.integers(len(pairs), size=len(parents))
        for which, pair in enumerate(pairs):
            rows = np.flatnonzero(drawn == which)
            for hole in pair:
                own = slice(hole.start, hole.stop)
                values[rows, own] = move_level(hole, values[rows, own], rng)
        return tiles_changed(parents, values, neighbourhood)


def _tile_pairs(family: Family) -> list[tuple[Hole, Hole]]:
    """Two splits of a tile in registers, the last one of its stage second, in all pairs."""
    return [(hole, holes[-1]) for holes in family.register_tiles for hole in holes[:-1]]


def _with_innermost(hole: Hole, lengths: Matrix, innermost: NDArray[np.int64]) -> Matrix:
    """Lengths with other innermost ones; the outermost ones change so that the products hardly do."""
    changed = lengths.copy()
    changed[:, -1] = np.minimum(innermost, hole.extent)
    outermost = lengths[:, 0] * lengths[:, -1] / changed[:, -1]
    changed[:, 0] = np.maximum(1, outermost.round()).astype(np.int64)
    return changed
