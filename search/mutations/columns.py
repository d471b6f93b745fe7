"""Mutations of what is no tile: one other choice for one stage of each program.

Differ from TVM's (`sketch_policy_rules.cc`, 0.16) in that vectors mutate too, and in that a parallel loop may
become serial. On a GPU, threads of stages without tiles and the lengths of copies have mutations of their
own, where TVM takes them for tiles; so have how copies are padded, when they are made, and how many blocks
share a reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from search.mutations.mutation import Mutation
from search.offspring import Offspring, same_family
from sketches.columns import ColumnKind
from sketches.neighbours import Neighbourhood
from sketches.population import Population


class _OtherValue(Mutation):
    """Gives one column of a kind another one of the values that it may have."""

    kind: ColumnKind

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        return another_value(parents, self.kind, rng)


class AutoUnroll(_OtherValue):
    """Gives one stage another unroll limit."""

    name = "unroll"
    kind = ColumnKind.UNROLL


class ThreadCount(_OtherValue):
    """Spreads a loop that is not tiled over another number of a GPU's threads."""

    name = "threads"
    kind = ColumnKind.THREADS


class PartCount(_OtherValue):
    """Divides a reduction among another number of a GPU's blocks."""

    name = "parts"
    kind = ColumnKind.PARTS


class FetchLength(_OtherValue):
    """Copies another number of elements into shared memory at once."""

    name = "fetch length"
    kind = ColumnKind.FETCH


class Lead(_OtherValue):
    """Fills the copies that a stage reads in shared memory another number of iterations ahead, or not."""

    name = "lead"
    kind = ColumnKind.LEAD


class Padding(_OtherValue):
    """Pads a copy in shared memory by another length, swizzles it, or neither."""

    name = "padding"
    kind = ColumnKind.PAD


class ParallelWidth(Mutation):
    """Fuses another number of loops into a parallel one; none leaves the stage serial."""

    name = "parallel width"

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        limits = [site.stop - site.start for site in parents.family.parallel]
        return change_one_column(parents, ColumnKind.PARALLEL, _counts(limits, rng), rng, prefer_set=True)


class StreamingStores(Mutation):
    """Lets the stores of one output pass the caches by, or go through them."""

    name = "streaming stores"

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        return change_one_column(parents, ColumnKind.STREAM, lambda current, column: 1 - current, rng)


class VectorLoops(Mutation):
    """Vectorises another number of innermost loops; none leaves them scalar.

    Where outputs may have streaming stores, half of the times it changes these instead.
    """

    name = "vector loops"

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        if parents.family.streams and rng.random() < 0.5:
            return StreamingStores().propose(parents, neighbourhood, rng)
        limits = [site.count for site in parents.family.vectors]
        return change_one_column(parents, ColumnKind.VECTORIZE, _counts(limits, rng), rng)


def another_count(current: NDArray[np.int64], limit: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a number in 0..limit that is not the current one; `limit` is at least 1."""
    drawn = rng.integers(limit, size=len(current))
    return np.asarray(drawn + (drawn >= current))


def _counts(limits: Sequence[int], rng: np.random.Generator) -> _Draw:
    """Draw other numbers for columns that hold one in 0..limit each."""
    return lambda current, column: another_count(current, limits[column], rng)


def another_value(parents: Population, kind: ColumnKind, rng: np.random.Generator) -> Offspring:
    """Give one column of a kind another of its values in every row."""
    family = parents.family
    allowed = [np.array(family.annotation_values[at]) for at in family.positions(kind)]

    def another(current: NDArray[np.int64], column: int) -> NDArray[np.int64]:
        candidates = allowed[column]
        at = (current[:, None] == candidates).argmax(axis=1)
        step = rng.integers(1, max(len(candidates), 2), size=len(current))
        return np.asarray(candidates[(at + step) % len(candidates)])

    return change_one_column(parents, kind, another, rng)


class _Draw(Protocol):
    def __call__(self, current: NDArray[np.int64], column: int) -> NDArray[np.int64]: ...


def change_one_column(
    parents: Population,
    kind: ColumnKind,
    another: _Draw,
    rng: np.random.Generator,
    prefer_set: bool = False,
) -> Offspring:
    """
    Change one column of a kind in every row.

    Parameters
    ----------
    parents, kind
        Whose column.
    another
        Draws new values for the column at a position among those of its kind.
    rng
        Chooses the columns.
    prefer_set
        Choose among the columns that are not 0, where there are any.
    """
    columns = parents.family.positions(kind)
    values = parents.values.copy()
    if not len(columns):
        return same_family(parents, values, np.zeros(len(parents), dtype=np.bool_))
    keys = rng.random((len(parents), len(columns)))
    if prefer_set:
        keys += values[:, columns.start : columns.stop] > 0
    drawn = keys.argmax(axis=1)
    for position, at in enumerate(columns):
        rows = np.flatnonzero(drawn == position)
        values[rows, at] = another(values[rows, at], position)
    return same_family(parents, values, (values != parents.values).any(axis=1))
