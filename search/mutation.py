"""Mutations: small changes to many programs at once.

A mutation gets rows of one family and a generator, and returns children: rows of the same or another family,
each knowing its parent. It never raises for a program that it cannot change; such a parent just has no
child, and is counted. What the change asks of annotations is settled afterwards (`sketches.repair`), so a
mutation of tiles need not think of vectors: a column may be left as `DERIVE`.

A user's mutation is any object with `name`, `sources` and `propose`; a policy takes them with their weights
(`SketchPolicy(mutations=[(MyMutation(), 0.1), *CPU_MUTATIONS])`).

Source: the mutation rules of TVM 0.16 (`sketch_policy_rules.cc`). Differs in that tile lengths need not
divide, in that two of a tile's may change at once, in that vectors mutate too, and in that a parallel loop
may become serial. On a GPU, threads of stages without tiles and the lengths of copies have mutations of
their own, where TVM takes them for tiles; so have how copies are padded, when they are made, and how many
blocks share a reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ansor.checks import check_number
from ansor.errors import DefinitionError
from ansor.plugins import blaming, brief, check_plugin, items_of
from ansor.schedule.extents import MAX_EXTENT
from ansor.task.hardware import vector_bytes
from sketches.annotate import DERIVE
from sketches.columns import ColumnKind, Hole
from sketches.factors import divisors
from sketches.family import Family, Matrix
from sketches.locations import Rows
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.repair import clip_tiles, legal_tiles
from sketches.rule import SketchContext
from sketches.tiles import outer_length

Mask = NDArray[np.bool_]

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


@dataclass(frozen=True, slots=True, eq=False)
class Offspring:
    """
    What became of the rows of one population.

    Parameters
    ----------
    populations
        The children, their annotations not yet repaired.
    parents
        For each population, the parent's row of each child.
    valid
        Which parents have a child, shape `(parents,)`.
    """

    populations: tuple[Population, ...]
    parents: tuple[Rows, ...]
    valid: Mask

    @property
    def invalid(self) -> int:
        """Parents that could not be changed."""
        return int(len(self.valid) - self.valid.sum())


class Mutation(Protocol):
    """One way to change programs; subclass it, or write `name`, `sources` and `propose`."""

    @property
    def name(self) -> str:
        """Name shown in statistics."""
        ...

    @property
    def sources(self) -> int | None:
        """How many families a generation asks at most, for a mutation that makes new families; None: all."""
        return None

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        """Make at most one child of every row; all randomness comes from `rng`."""
        ...


Weighted = Sequence[tuple[Mutation, float]]
"""Mutations, and how often each is chosen."""


def check_mutations(where: str, given: Weighted) -> Weighted:
    """
    Give mutations with their weights back as a tuple.

    Raises
    ------
    DefinitionError
        If one of them is none, or a weight is no number of at least 0.
    """
    for number, pair in enumerate(items_of(where, given, "pairs (mutation, weight)")):
        own = f"{where}[{number}]"
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise DefinitionError(
                f"{own}={brief(pair)}: it must be a pair (mutation, weight), such as one of "
                "ansor.CPU_MUTATIONS"
            )
        example = "an object of a subclass of ansor.Mutation"
        check_plugin(own, pair[0], ("name", "sources", "propose"), "mutation", example)
        check_number(f"the weight of {own}", pair[1], low=0)
    if given and not any(weight for _, weight in given):
        raise DefinitionError(f"{where}: all weights are 0; give () for a search without mutations")
    return tuple(given)


def offspring_of(
    mutation: Mutation, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
) -> Offspring:
    """
    Ask a mutation for children.

    Raises
    ------
    DefinitionError
        If the answer is no `Offspring` of these parents: a child's parent is no row of theirs, is not said to
        have a child, or has two, or a child's column is no integer, below `DERIVE`, or a length that no loop
        can have.
    """
    asked = f"mutation {mutation.name!r} was asked for children of {len(parents)} programs"
    with blaming(asked):
        answer: object = mutation.propose(parents, neighbourhood, rng)
    if not isinstance(answer, Offspring) or np.shape(answer.valid) != (len(parents),):
        raise DefinitionError(
            f"{asked} and returned {brief(answer)}; return an Offspring whose `valid` says for each parent "
            "whether it has a child, such as ansor.same_family makes"
        )
    wrong = _fault_of(answer)
    if wrong:
        raise DefinitionError(f"{asked} and returned an Offspring in which {wrong}")
    return answer


def _fault_of(answer: Offspring) -> str:
    """Say what keeps an answer from being offspring; "" if nothing does."""
    if answer.valid.dtype != np.bool_:
        return "`valid` is no array of bools; it says for each parent whether it has a child"
    if len(answer.populations) != len(answer.parents):
        return (
            "`populations` and `parents` are not of equal length; to each population belong its parents' rows"
        )
    for children, rows in zip(answer.populations, answer.parents, strict=True):
        if not isinstance(children, Population) or len(children) != len(rows):
            return "`populations` has another number of children than `parents` has rows for them"
        if not np.issubdtype(children.values.dtype, np.integer):
            return f"the columns are of type {children.values.dtype}; they must be integers"
        least = children.values.min(axis=0, initial=1)
        lengths = children.family.filling
        low = next((at for at, value in enumerate(least) if value < (1 if at < lengths else DERIVE)), None)
        if low is not None:
            bound = "1; it is a length" if low < lengths else "ansor.DERIVE, which leaves it to the repair"
            column = str(children.family.columns[low])
            return f"column {column!r} is {least[low]} somewhere; the least is {bound}"
        if children.values[:, :lengths].max(initial=1) > MAX_EXTENT:
            return f"a length exceeds {MAX_EXTENT}, which is more than loop variables can count"
    born = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *answer.parents]))
    if not np.array_equal(born, np.flatnonzero(answer.valid)):
        return (
            f"`valid` says that {int(answer.valid.sum())} parents have a child each, and `parents` names "
            f"{len(np.unique(born))} rows for {len(born)} children, which are not those"
        )
    return ""


def same_family(parents: Population, values: Matrix, valid: Mask) -> Offspring:
    """Wrap children that stay in their parents' family, `values` holding one for every parent."""
    rows = np.flatnonzero(valid)
    return Offspring((Population(parents.family, values[rows]),), (rows,), valid)


def tiles_changed(parents: Population, values: Matrix, neighbourhood: Neighbourhood) -> Offspring:
    """
    Wrap children with other tile lengths: clip them, drop illegal and unchanged ones.

    A stage that is not vectorised in the parent may become so: its extents may have kept it from it.
    """
    family = parents.family
    legal = legal_tiles(family, values, neighbourhood.space.context)
    clipped = np.where(legal[:, None], values, parents.values)
    clipped = clip_tiles(family, clipped)
    legal &= (clipped != parents.values).any(axis=1)
    vectors = list(family.positions(ColumnKind.VECTORIZE))
    clipped[:, vectors] = np.where(clipped[:, vectors] == 0, DERIVE, clipped[:, vectors])
    return same_family(parents, clipped, legal)


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
    sizes = np.column_stack([outer_length(hole.extent, lengths), lengths])
    rows = np.arange(len(sizes))
    source = np.where(sizes > 1, rng.random(sizes.shape), -1.0).argmax(axis=1)
    order = rng.random(len(sizes) * sizes.shape[1]).reshape(sizes.shape)
    order[rows, source] = -1.0
    target = order.argmax(axis=1)
    factor = random_divisors(sizes[rows, source], rng)
    sizes[rows, source] //= factor
    sizes[rows, target] *= factor
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
    2 x 16 and 6 x 40 are not. What is tiled around it keeps about its size.
    """

    name = "tile shape"

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        family, values = parents.family, parents.values.copy()
        pairs = _tile_pairs(family)
        if not pairs:
            return same_family(parents, values, np.zeros(len(parents), dtype=np.bool_))
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

        def another(current: NDArray[np.int64], column: int) -> NDArray[np.int64]:
            return another_count(current, limits[column], rng)

        return change_one_column(parents, ColumnKind.PARALLEL, another, rng, prefer_set=True)


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

        def another(current: NDArray[np.int64], column: int) -> NDArray[np.int64]:
            return another_count(current, limits[column], rng)

        return change_one_column(parents, ColumnKind.VECTORIZE, another, rng)


class ComputeLocation(Mutation):
    """Computes one stage somewhere else, which makes the program a member of another family."""

    name = "compute location"
    sources = 4
    targets = 2
    """So many changes at most are tried on the rows of one family."""

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        offers = neighbourhood.relocations(parents.family)
        valid = np.zeros(len(parents), dtype=np.bool_)
        if not offers or not len(parents):
            return Offspring((), (), valid)
        count = min(self.targets, len(offers), len(parents))
        chosen = rng.choice(len(offers), size=count, replace=False)
        drawn = rng.integers(count, size=len(parents))
        populations: list[Population] = []
        origins: list[Rows] = []
        for which, offer in enumerate(chosen):
            rows = np.flatnonzero(drawn == which)
            family = neighbourhood.relocated(parents.family, offers[offer]) if len(rows) else None
            if family is None or family is parents.family:
                continue
            valid[rows] = True
            populations.append(Population(family, carried_over(parents.values[rows], parents.family, family)))
            origins.append(rows)
        return Offspring(tuple(populations), tuple(origins), valid)


def carried_over(values: Matrix, source: Family, target: Family) -> Matrix:
    """Rows of one family as rows of another of the same sketch, column by name; what is new is `DERIVE`."""
    carried = np.full((len(values), len(target.columns)), DERIVE, dtype=np.int64)
    for at, column in enumerate(target.columns):
        if column in source.index:
            carried[:, at] = values[:, source.index[column]]
    return carried


def another_count(current: NDArray[np.int64], limit: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a number in 0..limit that is not the current one; `limit` is at least 1."""
    drawn = rng.integers(limit, size=len(current))
    return np.asarray(drawn + (drawn >= current))


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


CPU_MUTATIONS: Final[tuple[tuple[Mutation, float], ...]] = (
    (TileSize(), 0.70),
    (TileShape(), 0.10),
    (AutoUnroll(), 0.06),
    (ComputeLocation(), 0.06),
    (ParallelWidth(), 0.04),
    (VectorLoops(), 0.04),
)
"""Mutations and how often each is chosen."""

GPU_MUTATIONS: Final[tuple[tuple[Mutation, float], ...]] = (
    (TileSize(), 0.74),
    (AutoUnroll(), 0.08),
    (ThreadCount(), 0.05),
    (PartCount(), 0.02),
    (FetchLength(), 0.05),
    (Padding(), 0.04),
    (Lead(), 0.02),
)
"""The same for GPUs, where stages stay where their sketch has them."""


def default_mutations(context: SketchContext) -> Weighted:
    """Return the mutations for the context's target."""
    return GPU_MUTATIONS if context.is_gpu else CPU_MUTATIONS
