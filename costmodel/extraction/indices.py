"""Indices as linear terms over loops: a coefficient for each loop, per dimension.

Quotients and remainders are taken apart row by row, `(c x + y) // d` into
`(c // d) x + ((c % d) x + y) // d`, and those that cannot reach the divisor vanish. Nor does a quotient move
with `y` if all else in it and `d` are multiples of some `g` that `y` stays below. What remains is not
linear: a quotient moves by 1/d of what is divided, a remainder like it, up to `d`; regions follow the exact
spans. An index that depends on data moves across the whole dimension, to as many places as it is computed
times.

The result of a row does not depend on the other rows of its column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.errors import DefinitionError
from ansor.schedule.affine import Affine, Interval, LoopAtom, OpaqueAtom, SizeAtom
from ansor.schedule.stages import Annotation
from ansor.te.expr import BinaryOp, Expr, Var, distinct_nodes
from costmodel.extraction.form import Mask

Value = Any
"""A number, or a column of them."""

Floats = NDArray[np.floating[Any]]
"""Numbers per loop and column: float32 where they are many (boxes, exact up to 2**24), else float64."""


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """One loop around a statement: `extent` [iterations], whether it reduces, how it is executed."""

    extent: Value
    reduces: bool
    marks: Mapping[Annotation, Mask]


@dataclass(slots=True, eq=False)
class Dimension:
    """
    One dimension of an access.

    Parameters
    ----------
    terms
        Coefficient of each loop, by its number.
    spread
        Distance between the first and the last of several indices [elements].
    shape
        Extent of the buffer.
    correction
        What regions at each loop level have more than the terms say, shape `(loops, rows)`; None if nothing.
    divisions
        Quotients and remainders in the index that are not linear after all.
    scattered
        Whether the indices of a region may be far from each other.
    """

    terms: dict[int, Value]
    spread: Value
    shape: Value
    correction: Floats | None = None
    divisions: Value = 0
    scattered: bool = False


class LoopIndices:
    """
    Reads forms over the loops around a statement.

    Parameters
    ----------
    loops
        All loops, outermost first.
    numbers
        The position of each by its atom.
    rows
        Length of columns.
    """

    def __init__(self, loops: Sequence[Loop], numbers: Mapping[LoopAtom, int], rows: int) -> None:
        self.loops, self.numbers, self.rows = loops, numbers, rows

    def dimension(self, form: Affine, spread: Value, shape: Value) -> Dimension:
        """Give an index as terms; `spread` [elements] and `shape` as of `Dimension`."""
        if not any(isinstance(atom, OpaqueAtom) for atom in form.terms):
            terms = {self.numbers[atom]: c for atom, c in form.terms.items() if self._is_loop(atom)}  # type: ignore[index]
            return Dimension(terms, spread, shape)
        sum_ = self._read(form)
        terms = dict(sum_.linear)
        span, divisions = self._spans(terms), np.zeros(self.rows)
        for coefficient, part in sum_.parts:
            span = span + part.span * np.abs(coefficient)
            divisions = divisions + part.divisions * (coefficient != 0)
            for number, move in part.moves.items():
                terms[number] = terms.get(number, 0) + move * coefficient
        return Dimension(terms, spread, shape, span - self._spans(terms), divisions)

    def anywhere(self, index: Expr, axes: Mapping[Var, Interval], spread: Value, shape: Value) -> Dimension:
        """An index that depends on data: each iteration of the loops that it reads is anywhere else."""
        numbers: set[int] = set()
        for node in distinct_nodes(index):
            form = axes.get(node) if isinstance(node, Var) else None
            for atom in form.base.terms if form is not None else ():
                numbers.update(self._loops_in(atom))
        terms: dict[int, Value] = dict.fromkeys(numbers, shape - 1)
        reached = np.ones((len(self.loops), self.rows))
        for number in numbers:
            reached[: number + 1] *= self.loops[number].extent
        most = np.minimum(reached, shape) - 1
        return Dimension(terms, spread, shape, most - self._spans(terms), scattered=True)

    def _loops_in(self, atom: object) -> list[int]:
        if isinstance(atom, OpaqueAtom):
            return [number for inner in atom.inner.terms for number in self._loops_in(inner)]
        return [self.numbers[atom]] if isinstance(atom, LoopAtom) and atom in self.numbers else []

    def _is_loop(self, atom: object) -> bool:
        """Whether an atom is a loop that moves in some row."""
        if isinstance(atom, SizeAtom):
            raise DefinitionError(
                f"features need numbers, but an index moves with the size {atom.var}; "
                "make the task from a computation with constant sizes"
            )
        return atom in self.numbers

    def _read(self, form: Affine) -> _Sum:
        """Take a form apart; loops of one iteration are left out row by row."""
        made = _Sum(form.const)
        for atom, coefficient in form.terms.items():
            if isinstance(atom, OpaqueAtom):
                inner = self._read(atom.inner)
                made.add(self._divided(inner, atom.op, atom.divisor), coefficient)
            elif self._is_loop(atom):
                number = self.numbers[atom]  # type: ignore[index]
                moves = np.asarray(self.loops[number].extent) > 1
                made.linear[number] = made.linear.get(number, 0) + np.where(moves, coefficient, 0)
        return made

    def _divided(self, inner: _Sum, op: BinaryOp, divisor: Value) -> _Sum:
        """Divide a sum: what is divisible apart, the rest as a part."""
        whole, rest = _Sum(inner.const // divisor), _Sum(inner.const % divisor)
        for number, coefficient in inner.linear.items():
            whole.linear[number], rest.linear[number] = _quotient(coefficient, divisor)
        for coefficient, part in inner.parts:
            quotient, remainder = _quotient(coefficient, divisor)
            whole.parts.append((quotient, part))
            rest.parts.append((remainder, part))
        is_quotient = op is BinaryOp.FLOORDIV
        made = whole if is_quotient else _Sum(rest.const)
        fine = self._fine(rest, divisor)
        rest.add(fine, -1)
        if not is_quotient:
            made.add(fine, 1)
        inside = self._spans(rest.linear)
        for coefficient, part in rest.parts:
            inside = inside + part.span * np.abs(coefficient)
        total = inside[0] if len(inside) else np.zeros(self.rows)
        negative: Any = np.zeros(self.rows, np.bool_)
        for coefficient in (*rest.linear.values(), *(c for c, _ in rest.parts)):
            negative = negative | (coefficient < 0)
        small = ~negative & (rest.const + total < divisor)
        active = ~small & (total > 0)
        if not is_quotient:
            made.add(rest.only(small), 1)
        if active.any():
            rest = rest.only(active)
            part = _Part(op, divisor, rest, *self._movement(rest, is_quotient, divisor, inside, active))
            made.parts.append((active.astype(np.int64), part))
        return made

    def _fine(self, rest: _Sum, divisor: Value) -> _Sum:
        """The terms that stay below a common divisor of the others and of `divisor`, row by row."""
        fine = _Sum(0)
        if len(rest.linear) < 2:
            return fine
        known: Any = np.zeros(self.rows, np.bool_)
        negative: Any = np.zeros(self.rows, np.bool_)
        for coefficient in (*rest.linear.values(), *(c for c, _ in rest.parts)):
            negative = negative | (np.asarray(coefficient) < 0)
        for scale in rest.linear.values():
            common = np.gcd(divisor, scale)
            below = np.zeros(self.rows) + rest.const % common
            members: Mask = True
            for coefficient, _ in rest.parts:
                members = members & (coefficient % common == 0)
            for number, coefficient in rest.linear.items():
                single = coefficient % common != 0
                below = below + single * coefficient * (self.loops[number].extent - 1)
            rows = members & ~negative & ~known & (common > 1) & (below < common)
            known = known | rows
            for number, coefficient in rest.linear.items():
                own = np.where(rows & (coefficient % common != 0), coefficient, 0)
                fine.linear[number] = fine.linear.get(number, 0) + own
        return fine

    def _movement(
        self, rest: _Sum, is_quotient: bool, divisor: Value, inside: Floats, active: NDArray[np.bool_]
    ) -> tuple[dict[int, Value], Floats, Value]:
        """How a quotient or remainder moves with each loop, its span at each level, divisions in it."""
        moves: dict[int, Value] = dict(rest.linear)
        common: Any = divisor
        for coefficient in rest.linear.values():
            common = np.gcd(common, coefficient)
        divisions: Any = active.astype(np.float64)
        for coefficient, part in rest.parts:
            common = np.gcd(common, coefficient)
            divisions = divisions + part.divisions * (coefficient != 0)
            for number, move in part.moves.items():
                moves[number] = moves.get(number, 0) + move * coefficient
        if not is_quotient:
            return moves, active * np.minimum(inside, divisor - 1), divisions
        start = rest.const % common + divisor - common
        span = active * np.floor((inside + start) / divisor)
        return {number: move / divisor for number, move in moves.items()}, span, divisions

    def _spans(self, moves: Mapping[int, Value]) -> Floats:
        """Span at each loop level of what moves linearly, shape `(loops, rows)`."""
        steps = np.zeros((len(self.loops), self.rows))
        for number, move in moves.items():
            steps[number] = np.abs(move) * (self.loops[number].extent - 1)
        return np.asarray(np.cumsum(steps[::-1], axis=0)[::-1])


@dataclass(slots=True, eq=False)
class _Sum:
    """`const + sum(coefficient * loop) + sum(coefficient * part)`, all of them columns."""

    const: Value
    linear: dict[int, Value] = field(default_factory=dict)
    parts: list[tuple[Value, _Part]] = field(default_factory=list)

    def add(self, other: _Sum, factor: Value) -> None:
        """Add a multiple; parts that are equal in a row are joined there, so that they can cancel."""
        self.const = self.const + other.const * factor
        for number, coefficient in other.linear.items():
            self.linear[number] = self.linear.get(number, 0) + coefficient * factor
        for coefficient, part in other.parts:
            left = coefficient * factor
            for position, (mine, known) in enumerate(self.parts):
                same = known.equals(part)
                if np.any(same):
                    self.parts[position] = (mine + np.where(same, left, 0), known)
                    left = np.where(same, 0, left)
            if np.any(left):
                self.parts.append((left, part))

    def only(self, rows: NDArray[np.bool_]) -> _Sum:
        """The sum in some rows, 0 in the others."""
        linear = {number: np.where(rows, coefficient, 0) for number, coefficient in self.linear.items()}
        parts = [(np.where(rows, coefficient, 0), part) for coefficient, part in self.parts]
        return _Sum(np.where(rows, self.const, 0), linear, parts)

    def equals(self, other: _Sum) -> Mask:
        """In which rows two sums are seen to be equal."""
        same: Mask = np.equal(self.const, other.const)
        for number in self.linear.keys() | other.linear.keys():
            same = same & np.equal(self.linear.get(number, 0), other.linear.get(number, 0))
        mine, its = ([(c, p) for c, p in one.parts if np.any(c)] for one in (self, other))
        for coefficient, part in mine:
            found: Mask = np.equal(coefficient, 0)
            for factor, known in its:
                found = found | (np.equal(coefficient, factor) & known.equals(part))
            same = same & found
        for factor, known in its:
            found = np.equal(factor, 0)
            for coefficient, part in mine:
                found = found | (np.equal(coefficient, factor) & known.equals(part))
            same = same & found
        return same


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """
    A quotient or remainder that is not linear.

    `moves` says how it moves with each loop, `span` how far at each loop level, shape `(loops, rows)`;
    `divisions` how many divisions there are, inner ones included.
    """

    op: BinaryOp
    divisor: Value
    inner: _Sum
    moves: dict[int, Value]
    span: Floats
    divisions: Value

    def equals(self, other: _Part) -> Mask:
        """In which rows two parts are seen to be equal."""
        if self is other:
            return True
        if self.op is not other.op:
            return False
        same: Mask = np.equal(self.divisor, other.divisor) & self.inner.equals(other.inner)
        return same


def _quotient(coefficient: Value, divisor: Value) -> tuple[Value, Value]:
    """The part of a coefficient that is a multiple of the divisor, divided; and the rest, of equal sign."""
    whole = np.sign(coefficient) * (np.abs(coefficient) // divisor)
    return whole, coefficient - whole * divisor
