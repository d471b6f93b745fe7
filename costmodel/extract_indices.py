"""Indices as linear terms over loops: a coefficient for each loop, per dimension.

Where an index is not linear: a quotient `x // c` moves by 1/c of what `x` does and its region follows the
exact interval; a remainder moves like `x` and spans at most `c`; an index that depends on data moves across
the whole dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.errors import DefinitionError
from ansor.schedule.affine import Affine, Interval, LoopAtom, OpaqueAtom, SizeAtom
from ansor.schedule.stages import Annotation
from ansor.te.expr import Expr, Var, walk
from costmodel.extract_form import Mask

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
    """

    terms: dict[int, Value]
    spread: Value
    shape: Value
    correction: Floats | None = None


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

    def anywhere(self, index: Expr, axes: Mapping[Var, Interval], shape: Value) -> dict[int, Value]:
        """Terms of an index that depends on data: every loop that it reads moves it across the dimension."""
        terms: dict[int, Value] = {}
        for node in walk(index):
            form = axes.get(node) if isinstance(node, Var) else None
            for atom in form.base.terms if form is not None else ():
                for number in self._loops_in(atom):
                    terms[number] = shape - 1
        return terms

    def _loops_in(self, atom: object) -> list[int]:
        if isinstance(atom, OpaqueAtom):
            return [number for inner in atom.inner.terms for number in self._loops_in(inner)]
        return [self.numbers[atom]] if isinstance(atom, LoopAtom) and atom in self.numbers else []

    def dimension(self, form: Affine, spread: Value, shape: Value) -> Dimension:
        """An index as terms; `spread` [elements] and `shape` as of `Dimension`."""
        terms: dict[int, Value] = {}
        correction: Any = None
        for atom, coefficient in form.terms.items():
            if isinstance(atom, LoopAtom):
                if atom in self.numbers:
                    number = self.numbers[atom]
                    terms[number] = terms.get(number, 0) + coefficient
            elif isinstance(atom, SizeAtom):
                raise _symbolic(atom)
            else:
                moves, span = self._opaque(atom)
                for number, move in moves.items():
                    terms[number] = terms.get(number, 0) + move * coefficient
                linear = self._spans(moves)
                extra = (span - linear) * np.abs(coefficient)
                correction = extra if correction is None else correction + extra
        return Dimension(terms, spread, shape, correction)

    def _opaque(self, atom: OpaqueAtom) -> tuple[dict[int, Value], Floats]:
        """How a quotient or remainder moves with each loop, and its span at each loop level."""
        moves: dict[int, Value] = {}
        span = np.zeros((len(self.loops), self.rows))
        common: Any = atom.divisor
        for inner, coefficient in atom.inner.terms.items():
            if isinstance(inner, LoopAtom):
                if inner not in self.numbers:
                    continue
                found: dict[int, Value] = {self.numbers[inner]: coefficient}
                span = span + self._spans(found)
            elif isinstance(inner, OpaqueAtom):
                part, part_span = self._opaque(inner)
                found = {number: move * coefficient for number, move in part.items()}
                span = span + part_span * np.abs(coefficient)
            else:
                raise _symbolic(inner)
            for number, move in found.items():
                moves[number] = moves.get(number, 0) + move
            common = _gcd(common, coefficient)
        divisor = atom.divisor
        if atom.op == "floordiv":
            offset = atom.inner.const % common + divisor - common
            quotient = np.floor((span + offset) / divisor)
            return {number: move / divisor for number, move in moves.items()}, quotient
        wrapped = {
            number: np.where(np.abs(move) < divisor, move, np.mod(move, divisor))
            for number, move in moves.items()
        }
        return wrapped, np.minimum(span, divisor - 1)

    def _spans(self, moves: Mapping[int, Value]) -> Floats:
        """Span at each loop level of what moves linearly, shape `(loops, rows)`."""
        steps = np.zeros((len(self.loops), self.rows))
        for number, move in moves.items():
            steps[number] = np.abs(move) * (self.loops[number].extent - 1)
        return np.asarray(np.cumsum(steps[::-1], axis=0)[::-1])


def _symbolic(atom: SizeAtom) -> DefinitionError:
    return DefinitionError(
        f"features need numbers, but an index moves with the size {atom.var}; "
        "make the task from a computation with constant sizes"
    )


def _gcd(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.gcd(a, b)
    return gcd(a, b)
