"""Reductions that are products of matrices, as a matrix unit multiplies them tile by tile.

That are loops around a tensorized one (`ansor.ir.updates`) of which some move the rows of one operand, some
the columns of the other, and some go through the terms of both:

    for k0 in 0..8:
      for i in 0..16:                                        C[i, j]: 16 rows, 2 x 16 columns,
        for j0 in 0..2:                                      of 8 tiles of 16 words
          for k1 in 0..16:
            vectorize j1 in 0..16:
              tensorize p in 0..2:
                C[i, 16*j0 + j1] = C[i, 16*j0 + j1]
                  + float32(A[i, 32*k0 + 2*k1 + p])*float32(B[j0, 16*k0 + k1, j1, p])

The words of a row lie side by side, those of all columns do in a row of the other operand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Final

from ansor.dtypes import dtype_info
from ansor.intrinsics.matrix import FEWEST_ROWS, MATRIX_TILES, TILE_ROWS, WORD_BYTES
from ansor.ir.bounds import Bounds
from ansor.ir.nest import Buffer, For, If, LoopKind, Stmt
from ansor.ir.strides import even_step
from ansor.ir.updates import update_of
from ansor.te.expr import Load, Var

MOST_TILES: Final = 64
"""Of the sums, which are written one after the other."""
_IN_TURN: Final = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})
_ROW, _COLUMN, _TERM = (True, True, False), (True, False, True), (False, True, True)
"""Which move with a loop: the sums, rows, columns."""

Place = tuple[tuple[Var, int], ...]
"""Where loops stand."""
Strides = Callable[[Buffer], tuple[int, ...] | None]
"""Those of a buffer in memory, in elements; None: row-major."""


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Loops that are a product of matrices.

    Attributes
    ----------
    instruction
        Of the matrix unit.
    sums, rows, columns
        The elements of the result and of both operands, in the order of the instruction.
    over_rows, over_columns, over_terms
        The loops of each kind, the last ones over rows and words of a tile; none over columns is the last of
        a tile, which `lanes` is.
    lanes, depth
        The loops over the columns of a tile, and over what a word holds.
    steps
        How far apart the elements of consecutive values of each variable are [elements]: of sums, rows and
        columns.
    """

    instruction: str
    sums: Load
    rows: Load
    columns: Load
    over_rows: tuple[For, ...]
    over_columns: tuple[For, ...]
    over_terms: tuple[For, ...]
    lanes: For
    depth: For
    steps: Mapping[Var, tuple[int, int, int]]

    @property
    def words(self) -> int:
        """How many steps of the last loop over terms a tile holds: as many as divide it."""
        length = length_of(self.over_terms[-1])
        return max(count for count in range(1, TILE_ROWS + 1) if length % count == 0)

    def blocks_of_rows(self) -> Iterator[tuple[Place, int]]:
        """Where the rows of each tile begin, and how many it has: parts of the last loop over rows."""
        *outer, last = self.over_rows
        for at in _places(outer):
            for first in range(0, length_of(last), TILE_ROWS):
                yield (*at, (last.var, first)), min(TILE_ROWS, length_of(last) - first)

    def blocks_of_columns(self) -> Iterator[Place]:
        """Where the columns of each tile begin."""
        return _places(self.over_columns)

    @property
    def _tiles(self) -> int:
        *outer, last = map(length_of, self.over_rows)
        return prod(outer) * -(-last // TILE_ROWS) * prod(map(length_of, self.over_columns))

    @property
    def pays(self) -> bool:
        """Whether tiles are well filled, and not too many."""
        filled = min(self.words, length_of(self.over_rows[-1])) >= FEWEST_ROWS
        return filled and self._tiles <= MOST_TILES


def matrix_product(
    loop: For,
    instructions: Collection[str],
    bounds: Bounds,
    strides: Strides = lambda buffer: buffer.strides,
    *,
    guarded: bool = False,
) -> MatrixProduct | None:
    """A loop, and all in it, as a product that one of some instructions does; None if it is not.

    `bounds` hold all variables. Where guards are still to be taken out of it, it may be `guarded`.
    """
    around: list[For] = []
    inner: Stmt = loop
    while not isinstance(inner, For) or inner.kind is not LoopKind.TENSORIZE:
        match inner:
            case For():
                around.append(inner)
            case If(other=None) if guarded:
                pass
            case _:
                return None
        inner = inner.body if isinstance(inner, For) else inner.then
    if len(around) < 3 or around[-1].kind is not LoopKind.VECTORIZED:
        return None
    body = inner.body
    while guarded and isinstance(body, If) and body.other is None:
        body = body.then
    update = update_of(replace(inner, body=body))
    if update is None or not all(isinstance(one.extent, int) for one in (*around, inner)):
        return None
    if any(one.kind not in _IN_TURN for one in around[:-1]):
        return None

    def step(place: Load, var: Var) -> int | None:
        return step_in(place, var, strides, bounds)

    for a, b in (update.operands, update.operands[::-1]):
        instruction = MATRIX_TILES.get((a.dtype, b.dtype, update.sum_.dtype))
        if instruction in instructions and isinstance(a, Load) and isinstance(b, Load):
            assert instruction is not None
            made = _sorted(instruction, (update.sum_, a, b), around, inner, step)
            if made is not None and made.pays:
                return made
    return None


def step_in(place: Load, var: Var, strides: Strides, bounds: Bounds) -> int | None:
    """How far apart the elements of consecutive values of a variable are in memory; None if not all alike."""
    buffer = replace(place.buffer, strides=strides(place.buffer))
    return even_step(buffer, place.indices, var, bounds)


def _sorted(
    instruction: str,
    places: tuple[Load, Load, Load],
    around: Sequence[For],
    depth: For,
    step: Callable[[Load, Var], int | None],
) -> MatrixProduct | None:
    """The loops by what moves in them; None where that is not as the unit needs it."""
    *others, lanes = around
    steps: dict[Var, tuple[int, int, int]] = {}
    for loop in (*around, depth):
        sums, rows, columns = (step(place, loop.var) for place in places)
        if sums is None or rows is None or columns is None:
            return None
        steps[loop.var] = sums, rows, columns
    word = WORD_BYTES // dtype_info(places[1].dtype).bytes
    if steps[depth.var] != (0, 1, 1) or depth.extent != word:
        return None
    if steps[lanes.var] != (1, 0, word) or length_of(lanes) > TILE_ROWS:
        return None
    moving = {one: tuple(map(bool, steps[one.var])) for one in others}
    by_rows, by_columns, by_terms = (
        [one for one in others if moving[one] == kind] for kind in (_ROW, _COLUMN, _TERM)
    )
    along = next((one for one in reversed(by_terms) if steps[one.var][1] == word), None)
    if along is None or not by_rows or len(by_rows) + len(by_columns) + len(by_terms) < len(others):
        return None
    by_terms.sort(key=lambda one: one is along)
    by_rows.sort(key=length_of)
    return MatrixProduct(
        instruction, *places, tuple(by_rows), tuple(by_columns), tuple(by_terms), lanes, depth, steps
    )


def length_of(loop: For) -> int:
    """How many iterations a loop of a product has."""
    assert isinstance(loop.extent, int)
    return loop.extent


def _places(loops: Sequence[For]) -> Iterator[Place]:
    """All that the variables of some loops may be, the last one fastest."""
    for values in product(*(range(length_of(loop)) for loop in loops)):
        yield tuple(zip((loop.var for loop in loops), values, strict=True))
