"""Conditions in the bodies of statements: which hold for all points anyway, and what the others take.

Extents of axes may be columns, and so are the answers then, with one element per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.affine import SizeAtom, UnknownBoundError, evaluate
from ansor.te.expr import Binary, BinaryOp, Expr, Read, Var, walk
from costmodel.extract_body import AND_COUNTS, SELECT_COUNTS, Body
from costmodel.extract_form import Mask
from costmodel.extract_indices import Value

Extents = Mapping[Var, Value]


def all_hold(conditions: Iterable[Expr], extents: Extents) -> Mask:
    """Whether conditions are known to hold for all points, row by row: no program has those."""
    result: Mask = True
    for condition in conditions:
        result = result & _holds(condition, extents)
    return result


def are_separable(conditions: Iterable[Expr], spatial: Extents, reducing: Extents) -> Mask:
    """Whether every condition is known to hold or is about axes of one kind only, row by row."""
    result: Mask = True
    for condition in conditions:
        nodes = set(walk(condition))
        if any(isinstance(node, Read) for node in nodes):
            return False
        ties = _some_loop(spatial, nodes) & _some_loop(reducing, nodes)
        result = result & (np.logical_not(ties) | _holds(condition, {**spatial, **reducing}))
    return result


def occurrences(body: Body, extents: Extents) -> NDArray[np.float64]:
    """What is computed per point; a padding's conditions count in the rows that have them.

    In the order of `COUNTS`; shape ``(len(COUNTS), rows)``, or one column for all.
    """
    counts: NDArray[np.float64] = np.array(body.counts)[:, None]
    kept: Any = 0
    for condition, own in body.padding:
        needed = np.logical_not(_holds(condition, extents))
        counts = counts + np.array(own)[:, None] * needed
        kept = kept + needed
    joined = np.array(AND_COUNTS)[:, None] * np.maximum(kept - 1, 0)
    return np.asarray(counts + joined + np.array(SELECT_COUNTS)[:, None] * (kept > 0))


def _some_loop(extents: Extents, nodes: set[Expr]) -> Mask:
    """Where one of some axes that occur in an expression has more than one iteration."""
    found: Any = np.False_
    for axis, extent in extents.items():
        if axis in nodes:
            found = found | (extent > 1)
    return found  # type: ignore[no-any-return]


def _holds(condition: Expr, extents: Extents) -> Mask:
    """Where `form < bound` holds for all values of the axes; False for any other condition."""
    if not isinstance(condition, Binary) or condition.op is not BinaryOp.LT:
        return False
    try:
        form, bound = evaluate(condition.a, {}).base, evaluate(condition.b, {}).base
    except UnknownBoundError:
        return False
    highest: Any = form.const
    for atom, coefficient in form.terms.items():
        if not isinstance(atom, SizeAtom) or atom.var not in extents:
            return False
        highest = highest + np.maximum(coefficient, 0) * (extents[atom.var] - 1)
    return np.asarray(np.logical_and(bound.is_constant, highest < bound.const))
