"""Loops over triangles and bands: iterations that a condition excludes are neither run nor tested.

A condition that says how far a loop goes, depending on loops around it, parts its iterations into three:
those that pass whatever the loops inside of it do, those that may, and those that do not. The first are run
without the test, the second with it, the third not at all. So a causal product, its rows in tiles of 4:

    for k0 in 0..64:                          k0.until := i0//2
      for k1 in 0..8:                         k0.stop := (4*i0 + 3)//8 + 1
        for i1 in 0..4:                       for k0 in 0..k0.until:
          if 8*k0 + k1 <= 4*i0 + i1:   =>       for k1 in 0..8: for i1 in 0..4: C[4*i0 + i1] = ...
            C[4*i0 + i1] = ...                for k0 in 0..k0.stop - k0.until:
                                                for k1 in 0..8: for i1 in 0..4: if ...: C[4*i0 + i1] = ...

A band (`i - w <= k <= i`) has tests at both ends. A choice between the term of a reduction and its identity
is such a condition, too: a sum of `select(k <= i, P[i, k]*V[k, j], 0.0)` has plain terms in the first part,
the choice in the second, and no third one (`ansor.ir.terms`, also on factors that are infinite or NaN).
The order of what is run stays as it is, and so results do to the last bit: an identity changes no element, as
no sum that begins at 0.0 is ever -0.0. A loop is parted if it does nothing but what the condition guards,
scratch of its own aside; if the tile that the condition cuts is small beside it; and if that spares much of
it, as it does not with padded images. Loops inside of what keeps its tests are parted in turn.

Source: index-set splitting (Griebl, Feautrier and Lengauer, "Index Set Splitting", IJPP 2000), with bounds as
in polyhedral scanning (Ancourt and Irigoin, "Scanning Polyhedra with DO Loops", PPoPP 1991).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, reduce
from math import isfinite
from typing import Final

from ansor.ir.accesses import Accesses, accesses_of
from ansor.ir.affine import Affine, add, constant, scaled
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import straight_stores
from ansor.ir.nest import Alloc, Buffer, For, If, Let, LoopKind, Seq, Stmt, Store, seq, walk_statements
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import (
    conjuncts,
    fresh_copy,
    map_expressions,
    map_statements,
    reads_memory,
    without_tests,
)
from ansor.ir.shuffles import is_meeting
from ansor.ir.simplify import simplify
from ansor.ir.terms import assumed, combination_of, needed
from ansor.te.expr import Binary, BinaryOp, Const, Expr, Var, free_vars, int_value
from ansor.te.structure import is_among, same_structure

MOST_COPIED: Final = 256
"""The largest body, in stores with unrolled loops expanded, that is written several times."""
SHORT: Final = 8
"""A loop of fewer iterations is not parted."""
SMALL: Final = 2
"""A tile that a condition cuts is small beside a loop that is so many times as long, or longer."""
MOST_RUN: Final = 0.75
"""The part of a loop's iterations that is run at most, on average, where it is parted."""


def split_index_sets(stmt: Stmt, bounds: Bounds) -> Stmt:
    """Part the loops of `stmt`, whose guards are hoisted.

    Parameters
    ----------
    bounds
        Ranges of the variables around `stmt`. Those of loops in it are its own, whatever is said of them.
    """
    if not _has_conditions(stmt):
        return stmt
    ranges = loop_ranges(stmt)
    return _Splitting(stmt, bounds.extended(ranges), ranges.keys()).split(stmt)


@dataclass(frozen=True, slots=True)
class _End:
    """
    Where a test on a loop's variable begins or ceases to hold.

    Parameters
    ----------
    test
        The test.
    rising
        Whether it holds from some iteration on, rather than up to one.
    whole, part
        The iteration from which, or up to which exclusively, it holds for all iterations of the loops inside,
        and for any of them; both may lie outside of the loop.
    spares
        Whether the loop is worth parting there.
    """

    test: Expr
    rising: bool
    whole: Expr
    part: Expr
    spares: bool


@dataclass(frozen=True)
class _Splitting:
    """Parts loops in `stmt` with `bounds` of all variables, of which `moving` are not sizes."""

    stmt: Stmt
    bounds: Bounds
    moving: Collection[Var]

    def split(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL:
            ends = self._ends(stmt)
            if any(end.spares for end in ends):
                return self._parted(stmt, ends)
        return map_statements(stmt, self.split)

    def _ends(self, loop: For) -> list[_End]:
        """The tests that say where a loop begins or ends, if it may be parted."""
        length = int_value(loop.extent)
        if (length is not None and length < SHORT) or not self._is_fixed(loop.extent):
            return []
        if not _has_conditions(loop):
            return []
        if any(map(is_meeting, walk_statements(loop))) or straight_stores(loop) > MOST_COPIED:
            return []
        needed = _tests(loop.body, self._accesses.own_of(accesses_of(loop)))
        tests = [test for test in needed if loop.var in free_vars(test) and not reads_memory(test)]
        inner = {one.var for one in walk_statements(loop.body) if isinstance(one, (For, Let))}
        return [end for test in tests if (end := self._end(loop, test, inner)) is not None]

    @cached_property
    def _accesses(self) -> Accesses:
        return accesses_of(self.stmt)

    def _is_fixed(self, extent: int | Expr) -> bool:
        """Whether an extent depends on nothing but sizes."""
        return isinstance(extent, int) or free_vars(extent).isdisjoint(self.moving)

    def _end(self, loop: For, test: Expr, inner: Collection[Var]) -> _End | None:
        """Where a test begins or ceases to hold; `inner` are the variables that the loop's body binds."""
        form, table = self.bounds.simplifier.below_zero(test), self.bounds.simplifier.table
        if form is None or not isinstance(test, Binary) or test.a.dtype != loop.var.dtype:
            return None
        slope, around, inside = 0, constant(form.const), constant(0)
        for number, coefficient in form.terms.items():
            node, term = table.atoms[number].node, Affine({number: coefficient}, 0)
            if node is loop.var:
                slope = coefficient
            elif loop.var in free_vars(node):
                return None
            elif free_vars(node).isdisjoint(inner):
                around = add(around, term)
            else:
                inside = add(inside, term)
        low, high = table.interval(inside)
        if not slope or not isfinite(low) or not isfinite(high):
            return None
        whole, part = (
            self._limit(slope, add(around, constant(int(most))), loop.var.dtype) for most in (high, low)
        )
        if whole is None or part is None:
            return None
        spares = self._spares(loop, slope, around, (int(low), int(high)))
        return _End(test, slope < 0, whole, part, spares)

    def _spares(self, loop: For, slope: int, around: Affine, inside: tuple[int, int]) -> bool:
        """Whether `slope * v + around + inside < 0` spares enough of a loop, and cuts a small tile.

        Of a loop of symbolic extent it is taken to, where anything but sizes moves the end.
        """
        length, table = int_value(loop.extent), self.bounds.simplifier.table
        if length is None:
            return not all(free_vars(table.atoms[n].node).isdisjoint(self.moving) for n in around.terms)
        low, high = inside
        if high - low + abs(slope) > abs(slope) * length / SMALL:
            return False
        first, last = sorted(-(end + (low + high) / 2) / slope for end in table.interval(around))
        if not isfinite(last - first):
            return False
        run = _mean_within(first, last, length) / length
        return (run if slope > 0 else 1 - run) <= MOST_RUN

    def _limit(self, slope: int, rest: Affine, dtype: str) -> Expr | None:
        """The first v at which `slope * v + rest < 0` turns; None if computing it may overflow."""
        table = self.bounds.simplifier.table
        above = add(scaled(rest, -1), constant(slope - 1)) if slope > 0 else add(rest, constant(-slope))
        if not table.fits(above, dtype):
            return None
        return Binary(BinaryOp.FLOORDIV, table.build(above, dtype), Const(abs(slope), dtype), dtype)

    def _parted(self, loop: For, ends: Sequence[_End]) -> Stmt:
        """A loop in up to three parts: in the middle all tests hold, before and after it they may."""
        rising, falling = ([end for end in ends if end.rising is way] for way in (True, False))
        limits = _Limits(loop, self.bounds)
        start = limits.inside("start", BinaryOp.MAX, [end.part for end in rising], limits.first)
        begin = limits.inside("begin", BinaryOp.MAX, [end.whole for end in rising], limits.first)
        until = limits.inside("until", BinaryOp.MIN, [end.whole for end in falling], limits.last)
        stop = limits.inside("stop", BinaryOp.MIN, [end.part for end in falling], limits.last)
        cut = start is not begin, until is not stop
        if rising and falling:  # of which either may come first
            stop = limits.named("stop", limits.extreme(BinaryOp.MAX, stop, start))
            begin = limits.named("begin", limits.extreme(BinaryOp.MIN, begin, stop))
            until = limits.named("until", limits.extreme(BinaryOp.MAX, until, begin))
        tests = [end.test for end in ends]
        untested = without_tests(loop.body, lambda _, part: is_among(part, tests))
        plain = self.split(map_expressions(untested, lambda expr: assumed(expr, tests)))
        tested = self.split(loop.body)
        parts = [limits.part(begin, until, plain)]
        if cut[0]:
            parts.insert(0, limits.part(start, begin, tested))
        if cut[1]:
            parts.append(limits.part(until, stop, tested))
        return limits.around(seq(*parts))


@dataclass(frozen=True)
class _Limits:
    """The iterations at which parts of a loop begin and end, computed before it under names of their own."""

    loop: For
    bounds: Bounds
    names: list[tuple[Var, Expr]] = field(default_factory=list)

    @cached_property
    def first(self) -> Expr:
        return Const(0, self.loop.var.dtype)

    @cached_property
    def last(self) -> Expr:
        """The iteration after the last one."""
        extent = self.loop.extent
        return Const(extent, self.loop.var.dtype) if isinstance(extent, int) else extent

    def extreme(self, op: BinaryOp, *values: Expr) -> Expr:
        return reduce(lambda a, b: Binary(op, a, b, self.loop.var.dtype), values)

    def inside(self, name: str, op: BinaryOp, limits: Sequence[Expr], default: Expr) -> Expr:
        """The extreme one of some limits, but within the loop; the default if there are none."""
        if not limits:
            return default
        low = self.extreme(BinaryOp.MAX, self.first, self.extreme(op, *limits))
        return self.named(name, self.extreme(BinaryOp.MIN, low, self.last))

    def named(self, name: str, limit: Expr) -> Expr:
        """The variable that holds a limit, the same one for equal limits; a number, or an end of the loop."""
        limit = simplify(limit, self.bounds)
        for known, value in (*((end, end) for end in (self.first, self.last)), *self.names):
            if same_structure(value, limit):
                return known
        if isinstance(limit, (Var, Const)):
            return limit
        var = Var(f"{self.loop.var.name}.{name}", limit.dtype)
        self.names.append((var, limit))
        return var

    def part(self, start: Expr, stop: Expr, body: Stmt) -> Stmt:
        """The iterations of the loop from `start` to `stop`, exclusively; nothing if there are none."""
        var = Var(self.loop.var.name, self.loop.var.dtype)
        length = simplify(Binary(BinaryOp.SUB, stop, start, var.dtype), self.bounds)
        known = int_value(length)
        if known is not None and known <= 0:
            return seq()
        place = simplify(Binary(BinaryOp.ADD, var, start, var.dtype), self.bounds)
        extent = length if known is None else known
        return For(var, extent, self.loop.kind, fresh_copy(body, {self.loop.var: place}))

    def around(self, stmt: Stmt) -> Stmt:
        for var, limit in reversed(self.names):
            stmt = Let(var, limit, stmt)
        return stmt


def _mean_within(first: float, last: float, length: int) -> float:
    """The mean of what is evenly spread between two numbers, once it is brought into `0..length`."""

    def integral(x: float) -> float:
        inside = min(max(x, 0.0), length)
        return inside * inside / 2 + max(x - length, 0.0) * length

    if first == last:
        return min(max(first, 0.0), length)
    return (integral(last) - integral(first)) / (last - first)


def _has_conditions(stmt: Stmt) -> bool:
    """Whether something in a statement is done, or changes anything, under a condition."""
    return any(isinstance(inner, If) or _needed_by(inner) for inner in walk_statements(stmt))


def _needed_by(stmt: Stmt) -> tuple[Expr, ...]:
    """The tests without any of which the term of an update changes nothing."""
    found = combination_of(stmt) if isinstance(stmt, Store) else None
    return () if found is None else needed(found.term, found.identity)


def _tests(body: Stmt, own: Set[Buffer]) -> Iterator[Expr]:
    """The tests without any of which a statement changes nothing but its `own` scratch."""
    while True:
        match body:
            case For(body=inner) | Let(body=inner) | Alloc(body=inner):
                body = inner
            case If(cond=cond, then=inner, other=None):
                yield from conjuncts(cond)
                body = inner
            case Seq(stmts=stmts):
                changing = [one for one in stmts if not accesses_of(one).writes.keys() <= own]
                if len(changing) != 1:
                    return
                (body,) = changing
            case _:
                yield from _needed_by(body)
                return
