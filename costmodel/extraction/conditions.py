"""Conditions in the bodies of statements: which hold for all points anyway, and what the others take.

Extents of axes may be columns, and so are the answers then, with one element per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import compress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.conditions import always_holds
from ansor.te.expr import Const, Expr, Var
from costmodel.extraction.body import Body, counts_of
from costmodel.extraction.form import Mask
from costmodel.extraction.indices import Value

Extents = Mapping[Var, Value]

_MOST: Final = 1e200
"""Which leaves room for what all points make of it."""


def all_hold(conditions: Iterable[Expr], extents: Extents) -> Mask:
    """Whether conditions are known to hold for all points, row by row: no program has those."""
    result: Mask = True
    for condition in conditions:
        result = result & always_holds(condition, extents)
    return result


def occurrences(body: Body, extents: Extents) -> NDArray[np.float64]:
    """What each program computes per point, `_MOST` at most.

    In the order of `COUNTS`; shape ``(len(COUNTS), rows)``, or one column for all.
    """
    return np.minimum(_occurrences(body, extents), _MOST)


def _occurrences(body: Body, extents: Extents) -> NDArray[np.float64]:
    """The same, however often values that share all they are made of would be computed one by one."""
    masks = [_is_decided(one, extents) for one in body.undecided]
    if not any(map(np.any, masks)):
        return np.array(body.counts)[:, None]
    table = np.stack(np.broadcast_arrays(*map(np.atleast_1d, masks)))
    patterns, rows = np.unique(table, axis=1, return_inverse=True)
    counts = [counts_of(body.stored, frozenset(compress(body.undecided, found))) for found in patterns.T]
    return np.array(counts).T[:, rows.reshape(-1)]


def _is_decided(one: Expr, extents: Extents) -> Mask:
    """Whether a length is 1, or a condition holds for all points, row by row."""
    return np.equal(one.value, 1) if isinstance(one, Const) else always_holds(one, extents)
