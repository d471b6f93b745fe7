"""Places: where, around its own, one element of an operation reads elements of others.

A stencil reads another operation at several of them. Inlined, two stencils are one whose places are all sums
of theirs: what is read twice at one of them is computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Final

from ansor.schedule.affine import (
    Affine,
    OpaqueAtom,
    SizeAtom,
    UnknownBoundError,
)
from ansor.schedule.evaluation import evaluate, turns_seldom, unwrapped
from ansor.schedule.extents import extent_of
from ansor.te.expr import Binary, BinaryOp, Call, Expr, IterVar, Select, Var, free_vars, rewrite

NO_AXIS: Final = -1

Part = tuple[int, float, float]
"""An index: the position of the reader's axis, what it is multiplied by, and what is added; a constant has
`NO_AXIS` and a factor of 0. A quotient counts as if it were exact, what is clamped or reflected as if not.
Neither does it count that an index goes around the end of an axis."""
Place = tuple[Part, ...]
"""A part for each index of a read."""


def place_of(axes: Sequence[IterVar], indices: Sequence[Expr]) -> Place | None:
    """The place of a read by an operation with these axes; None if some index is of more than one of them."""
    positions: dict[Var, int] = {axis: position for position, axis in enumerate(axes)}
    parts = [_part_of(index, positions) for index in indices]
    known = tuple(part for part in parts if part is not None)
    return known if len(known) == len(parts) else None


def _part_of(index: Expr, positions: Mapping[Var, int]) -> Part | None:
    try:
        value = evaluate(_unclamped(index, positions), {})
    except UnknownBoundError:
        return None
    return _part(value.base, positions) if isinstance(value.width, int) and value.width == 1 else None


def _unclamped(index: Expr, axes: Collection[Var]) -> Expr:
    """An index as it is away from where it is limited, or reflected, or goes around an end."""

    def visit(node: Expr) -> Expr | None:
        match node:
            case Call(name="abs", args=(a,)):
                return a
            case Binary(op=BinaryOp.FLOORMOD, b=b) if free_vars(b).isdisjoint(axes):
                return unwrapped(node, extent_of(b)) if turns_seldom(node, extent_of(b)) else None
            case Binary(op=BinaryOp.MIN | BinaryOp.MAX, a=a, b=b) | Select(then=a, other=b):
                moved = [side for side in (a, b) if not free_vars(side).isdisjoint(axes)]
                rising = [side for side in moved if _rises(side)] if len(moved) > 1 else moved
                return rising[0] if len(rising) == 1 else None
            case _:
                return None

    return rewrite(index, visit)


def _rises(index: Expr) -> bool:
    try:
        return all(factor > 0 for factor in evaluate(index, {}).base.terms.values())
    except UnknownBoundError:
        return False


def _part(form: Affine, positions: Mapping[Var, int]) -> Part | None:
    if form.is_constant:
        return NO_AXIS, 0, int(form.const)
    if len(form.terms) > 1:
        return None
    ((atom, factor),) = form.terms.items()
    if isinstance(atom, SizeAtom) and atom.var in positions:
        return positions[atom.var], int(factor), int(form.const)
    if not isinstance(atom, OpaqueAtom) or atom.op is not BinaryOp.FLOORDIV:
        return None
    inner = _part(atom.inner, positions)
    if inner is None:
        return None
    axis, within, shift = inner
    scale = int(factor) / int(atom.divisor)
    return axis, within * scale, shift * scale + int(form.const)


def seen_from(place: Place, own: Place) -> Place:
    """Where the reader that an element is read by at `place` sees what this element reads at its `own`."""
    return tuple(
        (axis, factor, shift)
        if axis == NO_AXIS
        else (place[axis][0], factor * place[axis][1], factor * place[axis][2] + shift)
        for axis, factor, shift in own
    )


def uses_at(places: Collection[Place]) -> float:
    """How often each element is read by elements side by side that read at some places; 0 if at none.

    Places whose indices are constants where those of others are not, or others, are of other elements.
    """
    elements: dict[Place, float] = {}
    for place in places:
        fixed = tuple(part if part[0] == NO_AXIS else (0, 0, 0) for part in place)
        step = prod(abs(factor) for axis, factor, _ in place if axis != NO_AXIS)
        elements[fixed] = min(step, elements.get(fixed, step))
    return len(places) / sum(elements.values()) if places else 0.0
