"""What is known about the values of integer variables: closed intervals, per variable.

A `Bounds` is immutable, so everything derived under it may be remembered; the simplifier keeps its memory
in the `Bounds` it works under. Within this module and the simplifier an interval is a pair of numbers whose
ends may be `-inf` / `inf`; at the public surface an unknown end is `None`.

A variable that is in the `Bounds` is an *index variable*: whatever is computed from index variables alone,
and is not bounded on both sides, is assumed to fit its dtype. A variable that is not is *data*: any value
of its dtype, and arithmetic on it wraps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Union

from ansor.dtypes import int_range
from ansor.te.expr import BinaryOp, Var

if TYPE_CHECKING:
    from ansor.ir.simplifier import Simplifier

End = Union[int, float]
"""An end of an interval: an int, or plus or minus infinity."""

Interval = tuple[End, End]
OptionalInterval = tuple[Union[int, None], Union[int, None]]


class Bounds(Mapping[Var, OptionalInterval]):
    """An immutable mapping of variables to inclusive `(low, high)`; an end is None where it is not known.

    Raises
    ------
    ValueError
        If an interval is empty.
    """

    __slots__ = ("_ranges", "_simplifier")

    def __init__(self, ranges: Mapping[Var, OptionalInterval] | None = None) -> None:
        self._ranges: dict[Var, OptionalInterval] = dict(ranges or {})
        self._simplifier: Simplifier | None = None
        for var, (low, high) in self._ranges.items():
            if low is not None and high is not None and low > high:
                raise ValueError(f"the range {low}..{high} of variable {var.name!r} is empty")

    def __getitem__(self, var: Var) -> OptionalInterval:
        return self._ranges[var]

    def __iter__(self) -> Iterator[Var]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def __repr__(self) -> str:
        def end(value: int | None) -> str:
            return "?" if value is None else str(value)

        inner = ", ".join(f"{v.name}: {end(low)}..{end(high)}" for v, (low, high) in self._ranges.items())
        return f"Bounds({{{inner}}})"

    def extended(self, ranges: Mapping[Var, OptionalInterval]) -> Bounds:
        """These bounds with `ranges` added; a range given again replaces the old one.

        The same object if they say nothing new, with what was remembered under it.
        """
        return self if ranges.items() <= self._ranges.items() else merged(self._ranges, ranges)

    @property
    def simplifier(self) -> Simplifier:
        """The simplifier that works, and remembers, under these bounds."""
        if self._simplifier is None:
            from ansor.ir.simplifier import Simplifier

            self._simplifier = Simplifier(self._ranges)
        return self._simplifier


def merged(known: Mapping[Var, OptionalInterval], ranges: Mapping[Var, OptionalInterval]) -> Bounds:
    """The ranges of other bounds with `ranges` added; a range given again replaces the old one."""
    made = Bounds(ranges)
    made._ranges = {**known, **ranges}
    return made


def to_interval(optional: OptionalInterval) -> Interval:
    low, high = optional
    return (-inf if low is None else low), (inf if high is None else high)


def to_optional(interval: Interval) -> OptionalInterval:
    low, high = interval
    return (None if low == -inf else int(low)), (None if high == inf else int(high))


def hull(a: Interval, b: Interval) -> Interval:
    """The smallest interval that contains both."""
    return min(a[0], b[0]), max(a[1], b[1])


def multiply(a: Interval, b: Interval) -> Interval:
    """All products of a value of `a` and one of `b`."""
    products = [x * y if x and y else 0 for x in a for y in b]
    return min(products), max(products)


def floor_divide(a: Interval, divisor: int) -> Interval:
    """All values of `x // divisor` for x in `a`; `divisor` is positive."""
    low, high = a
    return (low if low == -inf else low // divisor), (high if high == inf else high // divisor)


def interval_of(op: BinaryOp, a: Interval, b: Interval) -> Interval | None:
    """The values of an operation on values of two intervals; None if not known."""
    match op:
        case BinaryOp.ADD:
            return a[0] + b[0], a[1] + b[1]
        case BinaryOp.SUB:
            return a[0] - b[1], a[1] - b[0]
        case BinaryOp.MUL:
            return multiply(a, b)
        case BinaryOp.MIN:
            return min(a[0], b[0]), min(a[1], b[1])
        case BinaryOp.MAX:
            return max(a[0], b[0]), max(a[1], b[1])
        case BinaryOp.FLOORDIV | BinaryOp.TRUNCDIV:
            if b[0] == b[1] and b[0] > 0 and (op is BinaryOp.FLOORDIV or a[0] >= 0):
                return floor_divide(a, int(b[0]))
            far = max(abs(a[0]), abs(a[1]))
            return -far, far
        case BinaryOp.FLOORMOD | BinaryOp.TRUNCMOD:
            far = max(abs(b[0]), abs(b[1]))
            positive = b[0] >= 0 if op is BinaryOp.FLOORMOD else a[0] >= 0
            return (0 if positive else -far), far
        case _:
            return _bits_of(op, a, b)


def _bits_of(op: BinaryOp, a: Interval, b: Interval) -> Interval | None:
    """The same of the operators on bits."""
    low, high = hull(a, b)
    match op:
        case BinaryOp.BITAND if max(a[0], b[0]) >= 0:
            return 0, min(side[1] for side in (a, b) if side[0] >= 0)
        case BinaryOp.BITAND | BinaryOp.BITOR | BinaryOp.XOR if -inf < low and high < inf:
            bits = max(int(end if end >= 0 else -1 - end).bit_length() for end in (low, high))
            return (0 if low >= 0 else -1 << bits), (1 << bits) - 1
        case BinaryOp.SHL if b[0] >= 0 and b[1] < inf:
            return multiply(a, (1 << int(b[0]), 1 << int(b[1])))
        case BinaryOp.SHR if b[0] >= 0 and b[1] < inf:
            return hull(floor_divide(a, 1 << int(b[0])), floor_divide(a, 1 << int(b[1])))
        case _:
            return None


def exceeds(values: Interval, dtype: str) -> bool:
    """Whether an end that is known is no number of an integer dtype: arithmetic with such results wraps."""
    (low, high), (smallest, largest) = values, int_range(dtype)
    return -inf < low < smallest or largest < high < inf
