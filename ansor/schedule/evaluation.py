"""The values of integer expressions of te while their variables range over intervals.

What `ansor.schedule.affine` calculates with, found for an index: `evaluate` gives an interval that holds all
values, `evaluate_exactly` the form over loops that an index is. Clamped and reflected indices are extremes,
however they are written: an interval from one side's lower end on, as far up as the other side may exceed it.
Of an index that goes around the end of an axis, `unwrapped` is what it would be if the axis had no end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from math import inf
from typing import Any

import numpy as np

from ansor.dtypes import int_range, is_integer
from ansor.ir.bounds import Interval as Ends
from ansor.ir.bounds import exceeds, hull, interval_of
from ansor.schedule.affine import (
    Affine,
    Interval,
    LoopAtom,
    LoopExtents,
    SizeAtom,
    UnknownBoundError,
    divided,
    ends_of,
    floordiv,
    floormod,
    joined,
    with_known_width,
)
from ansor.schedule.extents import (
    Column,
    Extent,
    Number,
    expr_of,
    extent_of,
    greater,
    in_any_row,
    in_every_row,
    is_one,
    where,
)
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    IterVar,
    Select,
    Var,
    cast,
    distinct_nodes,
    free_vars,
    int_value,
    memoised,
)
from ansor.te.structure import same_structure


def divisions(index: Expr) -> int:
    """How many quotients and remainders an index has; what is shared counts once."""
    kinds = (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD)
    return sum(isinstance(node, Binary) and node.op in kinds for node in distinct_nodes(index))


def may_wrap(index: Expr) -> bool:
    """Whether arithmetic of an index leaves its dtype for some values of the axes that it depends on.

    Then it has other values than exact arithmetic gives. What depends on symbolic sizes is taken to fit.
    """
    known: dict[int, Ends] = {}
    for node in distinct_nodes(index):
        if not is_integer(node.dtype):
            continue
        ends = _ends_of_node(node, known)
        if exceeds(ends, node.dtype):
            return True
        known[id(node)] = ends
    return False


def _ends_of_node(node: Expr, known: Mapping[int, Ends]) -> Ends:
    """The least and the greatest value of an integer expression, of those of the nodes below it."""
    match node:
        case Const(value=value):
            return _ends_of_number(value)
        case IterVar(extent=extent):
            length = extent_of(extent)
            return 0, inf if isinstance(length, Expr) else _ends_of_number(length)[1] - 1
        case Var():
            return 0, inf
        case Cast(a=a, dtype=dtype) if _holds(dtype, a.dtype):
            return known[id(a)]
        case Binary(op=op, a=a, b=b):
            found = interval_of(op, known[id(a)], known[id(b)])
            return int_range(node.dtype) if found is None else found
        case Call(name="abs", args=(a,)):
            low, high = known[id(a)]
            return max(low, -high, 0), max(-low, high)
        case Select(then=then, other=other):
            return hull(known[id(then)], known[id(other)])
        case _:
            return int_range(node.dtype)


def _ends_of_number(value: Any) -> tuple[int, int]:
    """The least and the greatest number of a column, which may have no rows; twice a number by itself."""
    numbers = np.atleast_1d(value)
    return (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)


def evaluate(expr: Expr, variables: Mapping[Var, Interval], extent: LoopExtents | None = None) -> Interval:
    """The values of an integer expression, exactly calculated, while its variables range over intervals.

    Parameters
    ----------
    extent
        Of the loops in the intervals' lower ends, which extremes are compared by; None where there are none.

    Raises
    ------
    UnknownBoundError
        If the expression is not built from sums, products with constants, divisions by constants, extremes
        of what differs by a bounded number, such choices, and conversions that change no value.
    """
    return memoised(expr, lambda node, value: _interval(node, variables, extent, value))


def _interval(
    expr: Expr,
    variables: Mapping[Var, Interval],
    extent: LoopExtents | None,
    value: Callable[[Expr], Interval],
) -> Interval:
    """That of one node, of those below it."""
    match expr:
        case Const(value=number):
            return Interval.point(Affine(_integer(number)))
        case Var():
            known = variables.get(expr)
            return Interval.point(Affine.of_atom(SizeAtom(expr))) if known is None else known
        case Cast(a=a, dtype=dtype) if _holds(dtype, a.dtype):
            return value(a)
        case Binary(op=BinaryOp.ADD, a=a, b=b):
            return value(a) + value(b)
        case Binary(op=BinaryOp.SUB, a=a, b=b):
            return value(a) + value(b).scale(-1)
        case Binary(op=BinaryOp.MUL, a=a, b=b):
            for one, other in ((a, b), (b, a)):
                if isinstance(other, Const):
                    return value(one).scale(_integer(other.value))
        case Binary(op=BinaryOp.FLOORDIV, a=a, b=Const(value=d)) if is_positive(d):
            return floordiv(value(a), _integer(d))
        case Binary(op=BinaryOp.FLOORMOD, a=a, b=Const(value=d)) if is_positive(d):
            return floormod(value(a), _integer(d))
        case Binary() | Call() | Select() if extent is not None:
            return _extreme(expr, extent, value)
    raise UnknownBoundError


def _extreme(expr: Expr, extent: LoopExtents, value: Callable[[Expr], Interval]) -> Interval:
    """That of the greater or the lesser of two values, however it is said."""
    match expr:
        case Binary(op=BinaryOp.MAX | BinaryOp.MIN as op, a=a, b=b):
            one, other, sign = value(a), value(b), 1 if op is BinaryOp.MAX else -1
        case Call(name="abs", args=(a,)):
            one, other, sign = value(a), value(a).scale(-1), 1
        case Select(cond=Binary() as cond, then=then, other=otherwise):
            one, other, sign = value(then), value(otherwise), _order(cond, then, otherwise)
        case _:
            raise UnknownBoundError
    return _greater_of(one.scale(sign), other.scale(sign), extent).scale(sign)


def _order(cond: Binary, then: Expr, other: Expr) -> int:
    """1 if what a condition chooses is the greater of two values, -1 if the lesser.

    The other one may be the opposite extreme of several, as where an index is reflected at both ends.
    """
    kind, parts = _parts(other)
    for sign in (1, -1):
        found = [_exceeds(cond, then, part, sign) for part in parts]
        chosen, left = ([test[at] for test in found] for at in (0, 1))
        if (all(chosen) and any(left)) if kind == sign else (any(chosen) and all(left)):
            return sign
    raise UnknownBoundError


def _parts(expr: Expr) -> tuple[int, tuple[Expr, ...]]:
    """1 and what a value is the greatest of, -1 and what it is the least of; 0 and the value of another."""
    match expr:
        case Binary(op=BinaryOp.MAX | BinaryOp.MIN as op, a=a, b=b):
            return (1 if op is BinaryOp.MAX else -1), (a, b)
        case Select(cond=Binary() as cond, then=then, other=other):
            return _order(cond, then, other), (then, other)
        case _:
            return 0, (expr,)


def _exceeds(cond: Binary, then: Expr, other: Expr, sign: int) -> tuple[bool, bool]:
    """Whether `sign * (then - other)` is known to be at least 0 where `cond` holds, and at most 0 elsewhere.

    So it may be where it is a multiple of what the sides of the condition differ by, and a number.
    """
    if cond.op not in (BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE):
        raise UnknownBoundError
    low, high = (cond.a, cond.b) if cond.op in (BinaryOp.LT, BinaryOp.LE) else (cond.b, cond.a)
    margin, gain = (_form(high) - _form(low)), (_form(then) - _form(other)).scale(sign)
    if not margin.terms:
        raise UnknownBoundError
    atom, per = next(iter(margin.terms.items()))
    slope = gain.terms.get(atom, 0) * where(per > 0, 1, -1)
    rest = gain.scale(greater(per, -per)) - margin.scale(slope)
    if not rest.is_constant or not in_every_row(slope >= 0):
        return False, False
    first = 1 if cond.op in (BinaryOp.LT, BinaryOp.GT) else 0
    return in_every_row(slope * first + rest.const >= 0), in_every_row(slope * (first - 1) + rest.const <= 0)


def _form(expr: Expr) -> Affine:
    """A value, exactly calculated, as a form over its variables."""
    value = evaluate(expr, {})
    if not is_one(value.width):
        raise UnknownBoundError
    return value.base


def _greater_of(a: Interval, b: Interval, extent: LoopExtents) -> Interval:
    """The greater elements of two intervals: one from its lower end on, as far up as the other may reach."""
    found = [one for one in (_raised(a, b, extent), _raised(b, a, extent)) if one is not None]
    if not found:
        raise UnknownBoundError
    return min(found, key=lambda one: np.max(one.width))  # type: ignore[arg-type]


def _raised(a: Interval, b: Interval, extent: LoopExtents) -> Interval | None:
    """`a`, with whatever of `b` exceeds it; None if that is without end."""
    width, own = with_known_width(a)[1], with_known_width(b)[1]
    excess = _greatest(b.base - a.base, extent)
    return None if excess is None else Interval(a.base, greater(width, excess + own))


def _greatest(form: Affine, extent: LoopExtents) -> Any:
    """What a form is at most while its loops run over their extents; None if no number is known."""
    ended = Affine(form.const)
    for atom, coefficient in form.terms.items():
        length = extent(atom) if isinstance(atom, LoopAtom) else None
        if isinstance(length, Expr):
            last = evaluate(length, {}).base.shift(-1)
            ended = ended + last.scale(greater(coefficient, 0))
        else:
            ended = ended + Affine.of_atom(atom).scale(coefficient)
    ends = ends_of(joined(ended), extent)
    return None if ends is None else ends[1]


def evaluate_exactly(expr: Expr, variables: Mapping[Var, Affine], extent: LoopExtents) -> Affine:
    """The value of an integer expression, exactly calculated, as a form over loops.

    Its divisions take the loops apart.

    Raises
    ------
    UnknownBoundError
        If one of them does not divide exactly, or the expression is not of the kind that `evaluate` knows.
    """
    return memoised(expr, lambda node, value: _exact_form(node, variables, extent, value))


def _exact_form(
    expr: Expr, variables: Mapping[Var, Affine], extent: LoopExtents, value: Callable[[Expr], Affine]
) -> Affine:
    """That of one node, of those below it."""
    match expr:
        case Const(value=number):
            return Affine(_integer(number))
        case Var() if expr in variables:
            return variables[expr]
        case Cast(a=a, dtype=dtype) if _holds(dtype, a.dtype):
            return value(a)
        case Binary(op=BinaryOp.ADD | BinaryOp.SUB as op, a=a, b=b):
            second = value(b)
            return value(a) + second.scale(1 if op is BinaryOp.ADD else -1)
        case Binary(op=BinaryOp.MUL, a=a, b=Const(value=d)) | Binary(op=BinaryOp.MUL, a=Const(value=d), b=a):
            return value(a).scale(_integer(d))
        case Binary(op=BinaryOp.FLOORDIV | BinaryOp.FLOORMOD as op, a=a, b=Const(value=d)) if is_positive(d):
            parts = divided(value(a), _integer(d), extent)
            if parts is not None:
                return parts[0] if op is BinaryOp.FLOORDIV else parts[1]
    raise UnknownBoundError


def unwrapped(index: Expr, period: Extent) -> Expr:
    """An index that differs from this one by a multiple of `period`, without remainders by it.

    Of `(i + n - 1) % n` that is `i - 1`: shifts are as short as the period allows.
    """
    return memoised(index, lambda node, value: _unwrapped(node, period, value))


def turns_seldom(index: Expr, period: Extent) -> bool:
    """Whether an index has remainders by `period`, all of what ranges over less than two periods.

    Of symbolic periods that is taken to be so, of numbers not where symbolic axes range.
    """
    known: dict[int, Ends] = {}
    found = False
    for node in distinct_nodes(index):
        if is_integer(node.dtype):
            known[id(node)] = _ends_of_node(node, known)
        if isinstance(node, Binary) and node.op is BinaryOp.FLOORMOD and is_multiple(node.b, period):
            low, high = known[id(node.a)]
            if not isinstance(period, Expr) and in_any_row(high - low >= 2 * period):
                return False
            found = True
    return found


def is_sum(index: Expr, axes: Set[Var]) -> bool:
    """Whether all that an index does with some axes is to add multiples of them."""
    return all(_adds(node) for node in distinct_nodes(index) if not axes.isdisjoint(free_vars(node)))


def _adds(node: Expr) -> bool:
    """Whether a node is a variable or adds multiples of what it is of."""
    match node:
        case Var() | Binary(op=BinaryOp.ADD | BinaryOp.SUB):
            return True
        case Binary(op=BinaryOp.MUL, a=a, b=b):
            return isinstance(a, Const) or isinstance(b, Const)
        case Cast(a=a, dtype=dtype):
            return _holds(dtype, a.dtype)
        case _:
            return False


def _unwrapped(expr: Expr, period: Extent, value: Callable[[Expr], Expr]) -> Expr:
    match expr:
        case Binary(op=BinaryOp.FLOORMOD, a=a, b=b) if (
            is_multiple(b, period) and int_range(expr.dtype)[0] < 0
        ):
            return _shortened(value(a), period)
        case Binary(op=BinaryOp.ADD | BinaryOp.SUB as op, a=a, b=b):
            one, other = value(a), value(b)
        case Binary(op=BinaryOp.MUL as op, a=a, b=Const() as other):
            one, b = value(a), other
        case Binary(op=BinaryOp.MUL as op, a=Const() as one, b=b):
            a, other = one, value(b)
        case _:
            return expr
    return expr if one is a and other is b else Binary(op, one, other, expr.dtype)


def is_multiple(number: Expr, period: Extent) -> bool:
    """Whether a number is known to be a multiple of another, both positive."""
    if isinstance(period, Expr):
        return same_structure(number, period)
    value = int_value(number)
    return value is not None and value > 0 and in_every_row(value % period == 0)


def _shortened(index: Expr, period: Extent) -> Expr:
    """An index without as many periods as it adds to its axes, to the nearest."""
    try:
        form = _form(index)
    except UnknownBoundError:
        return index
    if isinstance(period, Var):
        periods: Any = form.terms.get(SizeAtom(period), 0)
    else:
        periods = (form.const + period // 2) // period if isinstance(period, int) else 0
    if not isinstance(periods, int) or periods == 0:
        return index
    return index - cast(expr_of(period), index.dtype) * periods


def _holds(dtype: str, source: str) -> bool:
    """Whether an integer dtype has all values of another one, so that none wraps when it is converted."""
    if not (is_integer(dtype) and is_integer(source)):
        return False
    (low, high), (least, greatest) = int_range(dtype), int_range(source)
    return low <= least and greatest <= high


def is_positive(value: Any) -> bool:
    """Whether a number is, or all those of a column are, more than 0."""
    return in_every_row(value > 0)


def _integer(value: Any) -> Number:
    if isinstance(value, np.ndarray):
        column: Column = value
        return column
    if isinstance(value, (bool, float)):
        raise UnknownBoundError
    return int(value)
