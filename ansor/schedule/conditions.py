"""Conditions on axes: all of several, and those that hold wherever the axes are.

Extents may be columns, and so may numbers in conditions; so are the answers then, with one element per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.affine import SizeAtom, UnknownBoundError, joined
from ansor.schedule.evaluation import evaluate
from ansor.te.expr import Binary, BinaryOp, Expr, Var, binary


def all_of(conditions: Iterable[Expr]) -> Expr | None:
    """That all conditions hold, constants folded; None if there are none."""
    parts = list(conditions)
    return reduce(lambda a, b: binary(BinaryOp.AND, a, b), parts) if parts else None


def always_holds(condition: Expr, extents: Mapping[Var, Any]) -> bool | NDArray[np.bool_]:
    """Where `form < bound` holds for all values of the axes; False for any other condition."""
    if not isinstance(condition, Binary) or condition.op is not BinaryOp.LT:
        return False
    try:
        form, bound = joined(evaluate(condition.a, {}).base), evaluate(condition.b, {}).base
    except UnknownBoundError:
        return False
    highest: Any = form.const
    for atom, coefficient in form.terms.items():
        if not isinstance(atom, SizeAtom) or atom.var not in extents:
            return False
        highest = highest + np.maximum(coefficient, 0) * (extents[atom.var] - 1)
    return np.asarray(np.logical_and(bound.is_constant, highest < bound.const))
