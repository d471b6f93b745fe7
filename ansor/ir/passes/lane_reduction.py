"""Reductions along memory, in the lanes of vectors.

A sum over neighbouring elements into one accumulator waits for each addition before the next, and uses one
lane of a vector. As te promises no order of reduction, such a loop is reduced in lanes, in several
independent vectors, which are combined pairwise at the end:

    for k in 0..1024:          allocate B.lanes[4, 16] float32 register
      B[i] = B[i] + X[i, k]    unroll u in 0..4: vectorize v in 0..16: B.lanes[u, v] = 0.0
                          =>   for k.s in 0..16:
                                 unroll u in 0..4: vectorize v in 0..16:
                                   B.lanes[u, v] = B.lanes[u, v] + X[i, k.s*64 + u*16 + v]
                               unroll u in 0..2: vectorize v in 0..16:
                                 B.lanes[u, v] = B.lanes[u, v] + B.lanes[u + 2, v]
                               ...
                               B[i] = B[i] + B.lanes[0, 0]

A remainder of the loop goes into the first vectors. Where the loop's extent is symbolic it goes there vector
by vector, and of the last one as many lanes count as are left.

Only sums, products, minima and maxima of what lies next to each other along the innermost reduction loop are
treated so; beside that something may lie up to four elements apart, as the weights of three channels do.
Reduction loops around it whose elements lie end to end become one loop with it, as far as an index counts and
unless it makes whole vectors by itself: 7 rows of 7 pixels are one of 49, of which 2048 sums take 3.7 us
instead of 13 on two cores of an Emerald Rapids.

This is done where it takes fewer instructions (`pays`). Against vectors across elements it does where these
are much shorter than the machine's, as the three colours of a pixel are: then a vector loop over elements
gives way.

Source: reassociation as compilers do it for reductions under relaxed floating-point rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ansor.dtypes import int_range
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import Count, value_bits
from ansor.ir.nest import Alloc, Buffer, For, LoopKind, Stmt, Store, seq
from ansor.ir.passes.vectorize import are_left, divided
from ansor.ir.rewriting import guarded, replace_in
from ansor.ir.simplify import simplify
from ansor.ir.strides import MOST_APART, step_of
from ansor.ir.terms import combination_of, identity_of
from ansor.te.expr import (
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Var,
    binary,
    const,
    distinct_nodes,
    free_vars,
    int_value,
    rewrite,
)

if TYPE_CHECKING:
    from ansor.ir.passes.register_tile import RegisterTile
    from ansor.ir.registers import RegisterLimits

REGISTER: Final = "register"
MOST_VECTORS: Final = 4
"""Independent accumulators of one element: an addition takes about four cycles."""
LONGEST_JOINED: Final = int_range(INDEX_DTYPE)[1]
"""Iterations of a loop that others are joined to, at most: one variable numbers them."""

LONG: Final = 256
"""Iterations that a loop of symbolic extent is taken to have."""

_Step = TypeVar("_Step", int, NDArray[np.floating[Any]])
_Length = int | NDArray[np.floating[Any]]

_Maker = Callable[[tuple[Expr, ...], Expr, Expr], Stmt]
"""Makes the statement for an element of the tile, one of its vectors and a lane."""


def reduce_in_lanes(tile: RegisterTile, limits: RegisterLimits, bounds: Bounds) -> Stmt | None:
    """
    Accumulate the elements of a tile in vectors that run along the innermost reduction loop.

    Parameters
    ----------
    tile
        A reduction.
    limits
        What it may use of the registers.
    bounds
        Ranges of all variables.

    Returns
    -------
    Stmt or None
        The reduction, which adds to what the elements held before; None where this is not possible or
        does not pay.
    """
    reads, bits = _reads(tile), value_bits(tile.updates[0].buffer.dtype)
    lanes = limits.vector_bits // bits
    if reads is None or lanes < 2 or bits < 8:
        return None
    strided = _strided_loads(tile, reads)
    tile = _joined(tile, reads, lanes, bounds)
    extent = _length(tile.reduce[-1])
    if extent < lanes:
        return None
    elements, terms = prod(tile.extents), prod(map(_length, tile.reduce))
    if strided is None or not pays(terms, elements, tile.accumulators(limits), lanes, strided):
        return None
    vectors, alone = min(MOST_VECTORS, 1 << ((extent // lanes).bit_length() - 1)), tile.scalar()
    while vectors > 1 and not alone.fits(limits, vectors):
        vectors //= 2
    return _LaneReduction(tile, vectors, lanes, bounds).build() if alone.fits(limits, vectors) else None


def _length(loop: For) -> int:
    extent = int_value(loop.extent)
    return LONG if extent is None else extent


def pays(
    terms: Count, elements: Count, accumulators: Count, lanes: Count, strided: Count
) -> NDArray[np.bool_]:
    """
    Tell whether reducing in lanes takes fewer instructions than one per term and accumulator.

    Parameters
    ----------
    terms
        Of each element.
    elements, accumulators
        Of the tile, and the vectors that hold them when the terms are taken one by one.
    lanes
        Of a vector of terms.
    strided
        Instructions that load what does not lie side by side, per vector of terms.

    Returns
    -------
    NDArray[np.bool_]
        Per column, where columns are given; else without dimensions.
    """
    across = np.ceil(np.divide(terms, lanes)) * (elements + strided)
    return np.asarray(across + elements * np.log2(lanes) < np.multiply(terms, accumulators))


def strided_load(step: _Step) -> _Step:
    """Instructions that load a vector of elements `step` apart: as many loads, and shuffles of two each."""
    return 2 * step - 1


def _reads(tile: RegisterTile) -> list[Load] | None:
    """What the term of an iteration, and its condition, read; None if the update is not `element OP term`."""
    found = None if tile.inside or len(tile.updates) > 1 else combination_of(tile.updates[0])
    if found is None:
        return None
    parts = (found.term,) if found.condition is None else (found.term, found.condition)
    reads = [node for part in parts for node in distinct_nodes(part) if isinstance(node, Load)]
    return None if any(read.buffer is tile.updates[0].buffer for read in reads) else reads


def _strided_loads(tile: RegisterTile, reads: Sequence[Load]) -> int | None:
    """Instructions that load what does not lie side by side, per vector of terms; None if that is too far.

    Something must lie side by side, and the rest `MOST_APART` elements apart at most.
    """
    var, total, side_by_side = tile.reduce[-1].var, 0, False
    for load in reads:
        if not any(var in free_vars(index) for index in load.indices):
            continue
        step = step_of(load.buffer, load.indices, var)
        if step is None or not 1 <= step <= MOST_APART:
            return None
        side_by_side |= step == 1
        if step > 1:
            used = free_vars(*load.indices)
            places = (n for loop, n in zip(tile.tile, tile.extents, strict=True) if loop.var in used)
            total += prod(places) * strided_load(step)
    return total if side_by_side else None


def _joined(tile: RegisterTile, reads: Sequence[Load], lanes: int, bounds: Bounds) -> RegisterTile:
    """The tile with one loop in place of the innermost reduction loops that lie end to end."""
    joined = [tile.reduce[-1]]
    length = int_value(joined[0].extent)
    guarding = free_vars(*tile.guards)
    for loop in reversed(tile.reduce[:-1]):
        extent = int_value(loop.extent)
        if extent is None or length is None or makes_whole_vectors(length, lanes) or loop.var in guarding:
            break
        if length * extent > LONGEST_JOINED or not _continues(reads, loop.var, tile.reduce[-1].var, length):
            break
        joined.insert(0, loop)
        length *= extent
    if len(joined) == 1 or length is None:
        return tile
    var = Var(".".join(loop.var.name for loop in joined), joined[0].var.dtype)
    place: dict[Var, Expr] = {}
    inside = length
    for loop in joined:
        within = var if inside == length else Binary(BinaryOp.FLOORMOD, var, const(inside), INDEX_DTYPE)
        inside //= int_value(loop.extent) or 1
        place[loop.var] = (
            within if inside == 1 else Binary(BinaryOp.FLOORDIV, within, const(inside), INDEX_DTYPE)
        )
    unrolled = all(loop.kind is LoopKind.UNROLLED for loop in joined)
    one = For(var, length, LoopKind.UNROLLED if unrolled else LoopKind.SERIAL, tile.reduce[-1].body)
    value = replace_in(tile.updates[0].value, place, {})
    value = simplify(value, bounds.extended({var: (0, length - 1)}))
    updates = (replace(tile.updates[0], value=value),)
    return replace(tile, reduce=(*tile.reduce[: -len(joined)], one), updates=updates)


def makes_whole_vectors(length: _Length, lanes: _Length) -> NDArray[np.bool_]:
    """Whether a reduction loop fills all its vectors by itself; per column, where columns are given."""
    return np.equal(np.remainder(length, np.multiply(lanes, MOST_VECTORS)), 0)


def _continues(reads: Sequence[Load], outer: Var, inner: Var, length: int) -> bool:
    """Whether all that is read lies `length` iterations of `inner` further on in the next one of `outer`."""
    for load in reads:
        far, near = (step_of(load.buffer, load.indices, var) for var in (outer, inner))
        if far is None or near is None or far != length * near:
            return False
    return True


class _LaneReduction:
    """The statements of one such reduction."""

    def __init__(self, tile: RegisterTile, vectors: int, lanes: int, bounds: Bounds) -> None:
        self.tile = tile
        (self.update,) = tile.updates
        self.bounds = bounds
        self.vectors = vectors
        self.lanes = lanes
        found = combination_of(self.update)
        assert found is not None
        self.op = found.op
        self.dtype = self.update.buffer.dtype
        shape = (*tile.extents, vectors, lanes)
        self.registers = Buffer(f"{self.update.buffer.name}.lanes", self.dtype, shape, REGISTER)

    def build(self) -> Stmt:
        """Allocate the accumulators around everything."""
        extent = self.tile.reduce[-1].extent
        length = int_value(extent)
        body = self._of_any_length(extent) if length is None else self._of_length(length)
        for loop in reversed(self.tile.reduce[:-1]):
            body = For(loop.var, loop.extent, loop.kind, body)
        return Alloc(self.registers, seq(self._start(), body, *self._combined(), self._result()))

    def _of_length(self, extent: int) -> Stmt:
        """Take all terms of the innermost loop in."""
        step = self.vectors * self.lanes
        parts: list[Stmt] = []
        count = extent // step
        if count > 1:
            parts.append(self._strips(count))
        else:
            parts.append(self._terms(Const(0, INDEX_DTYPE), self.vectors, self.lanes))
        start = count * step
        if whole := (extent - start) // self.lanes:
            parts.append(self._terms(Const(start, INDEX_DTYPE), whole, self.lanes))
        start += whole * self.lanes
        if start < extent:
            parts.append(self._terms(Const(start, INDEX_DTYPE), 1, extent - start))
        return seq(*parts)

    def _of_any_length(self, extent: int | Expr) -> Stmt:
        """The same where their number is symbolic."""
        assert isinstance(extent, Expr)
        step = self.vectors * self.lanes
        count, left = divided(extent, step)
        whole, _ = divided(left, self.lanes)
        before, few = divided(extent, self.lanes)
        vector = self._variable("w")
        first = count * step + vector * self.lanes
        parts = [
            For(vector, whole, LoopKind.SERIAL, self._terms(first, 1, self.lanes)),
            guarded(
                are_left(extent, self.lanes, self.bounds),
                self._terms(before * self.lanes, 1, self.lanes, few),
            ),
        ]
        return seq(self._strips(count), guarded(are_left(extent, step, self.bounds), seq(*parts)))

    def _strips(self, count: int | Expr) -> Stmt:
        strip = self._variable("s")
        terms = self._terms(strip * (self.vectors * self.lanes), self.vectors, self.lanes)
        return For(strip, count, self.tile.reduce[-1].kind, terms)

    def _variable(self, name: str) -> Var:
        along = self.tile.reduce[-1].var
        return Var(f"{along.name}.{name}", along.dtype)

    def _start(self) -> Stmt:
        neutral = identity_of(self.op, self.dtype)
        return self._everywhere(self.vectors, self.lanes, lambda at, u, v: self._store((*at, u, v), neutral))

    def _terms(self, first: Expr, vectors: int, lanes: int, few: Expr | None = None) -> Stmt:
        """Take `vectors * lanes` terms in, from iteration `first` on; of one vector the first `few` ones."""
        along = self.tile.reduce[-1].var

        def update(at: tuple[Expr, ...], u: Expr, v: Expr) -> Stmt:
            place = first + u * self.lanes + v
            names = {**self._names(at), along: place}
            guards = tuple(replace_in(guard, names, {}) for guard in self.tile.guards)
            guards = guards if few is None else (*guards, binary(BinaryOp.LT, v, few))
            mine = self._load((*at, u, v))

            def in_registers(node: Expr) -> Expr | None:
                return mine if isinstance(node, Load) and node.buffer is self.update.buffer else None

            value = replace_in(rewrite(self.update.value, in_registers), names, {})
            return guarded(guards, self._store((*at, u, v), value))

        return self._everywhere(vectors, lanes, update)

    def _combined(self) -> list[Stmt]:
        """Combine vectors, then halves of the vector that is left."""
        steps: list[Stmt] = []
        vectors, lanes = self.vectors, self.lanes
        while vectors > 1:
            vectors //= 2
            steps.append(self._folded(vectors, lanes, vectors, 0))
        while lanes > 1:
            lanes //= 2
            steps.append(self._folded(1, lanes, 0, lanes))
        return steps

    def _folded(self, vectors: int, lanes: int, next_vector: int, next_lane: int) -> Stmt:
        def update(at: tuple[Expr, ...], u: Expr, v: Expr) -> Stmt:
            one, other = (*at, u, v), (*at, u + next_vector, v + next_lane)
            return self._store(one, self._combine(self._load(one), self._load(other)))

        return self._everywhere(vectors, lanes, update)

    def _result(self) -> Stmt:
        """Combine what was there before with the reduction."""
        target, zero = self.update.buffer, Const(0, INDEX_DTYPE)

        def update(at: tuple[Expr, ...]) -> Stmt:
            names = self._names(at)
            indices = tuple(replace_in(i, names, {}) for i in self.update.indices)
            guards = tuple(replace_in(g, names, {}) for g in self.tile.element_guards)
            mine = Load(target, indices, self.dtype)
            return guarded(guards, Store(target, indices, self._combine(mine, self._load((*at, zero, zero)))))

        at = self._fresh()
        return self._elements(at, update(at))

    def _everywhere(self, vectors: int, lanes: int, make: _Maker) -> Stmt:
        """`make` for every element of the tile, `vectors` of its vectors and `lanes` of their lanes."""
        at, zero = self._fresh(), Const(0, INDEX_DTYPE)
        u, v = Var("u", INDEX_DTYPE), Var("v", INDEX_DTYPE)
        stmt = make(at, u if vectors > 1 else zero, v if lanes > 1 else zero)
        if lanes > 1:
            stmt = For(v, lanes, LoopKind.VECTORIZED, stmt)
        if vectors > 1:
            stmt = For(u, vectors, LoopKind.UNROLLED, stmt)
        return self._elements(at, stmt)

    def _elements(self, at: tuple[Var, ...], stmt: Stmt) -> Stmt:
        for var, extent in zip(reversed(at), reversed(self.tile.extents), strict=True):
            stmt = For(var, extent, LoopKind.UNROLLED, stmt)
        return stmt

    def _fresh(self) -> tuple[Var, ...]:
        return tuple(Var(loop.var.name, loop.var.dtype) for loop in self.tile.tile)

    def _names(self, at: Sequence[Expr]) -> dict[Var, Expr]:
        return {loop.var: place for loop, place in zip(self.tile.tile, at, strict=True)}

    def _load(self, at: tuple[Expr, ...]) -> Expr:
        return Load(self.registers, at, self.dtype)

    def _store(self, at: tuple[Expr, ...], value: Expr) -> Stmt:
        return Store(self.registers, at, value)

    def _combine(self, a: Expr, b: Expr) -> Expr:
        return Binary(self.op, a, b, self.dtype)
