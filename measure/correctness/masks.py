"""Constants that a choice puts into an output in place of what is computed, as masks do.

A mask of attention is -1e9 beside numbers of about 1, and tells nothing of how large their rounding errors
are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ansor.dtypes import is_float
from ansor.schedule.dag import stage_order
from ansor.te.expr import (
    FOLDERS,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Read,
    Select,
    children,
    distinct_nodes,
)
from ansor.te.tensor import ComputeOp, Tensor
from measure.correctness.tolerance import EPS

Numbers = frozenset[float]
_MOST: Final = 8
"""Of more constants the largest count: none other hides what is computed."""


def constants(output: Tensor) -> Numbers:
    """Which constants a float output may hold, as far as its choices and what is done to them tell."""
    known: dict[Tensor, Numbers] = {}
    for op in stage_order([output]):
        if isinstance(op, ComputeOp):
            found = [_constants(value, known) for value in op.body]
            known.update(zip(op.outputs, found, strict=True))
    return known[output]


def _constants(value: Expr, known: Mapping[Tensor, Numbers]) -> Numbers:
    """The constants that an expression may be."""
    found: dict[int, Numbers] = {}
    for node in distinct_nodes(value):
        parts = [found[id(part)] for part in children(node)]
        found[id(node)] = _largest(_of(node, parts, known)) if is_float(node.dtype) else frozenset()
    return found[id(value)]


def _of(node: Expr, parts: Sequence[Numbers], known: Mapping[Tensor, Numbers]) -> Iterable[float]:
    """The constants that a node may be, by those that its parts may be."""
    match node:
        case Const(value=value):
            return [float(value)]
        case Read(tensor=tensor):
            return known.get(tensor, ())
        case Select():
            return parts[1] | parts[2]
        case Binary(op=BinaryOp.MIN | BinaryOp.MAX):
            return parts[0] | parts[1]
        case Binary(op=op):
            both = [FOLDERS[op](x, y) for x in parts[0] for y in parts[1]]
            return [float(x) for x in both] + _swallowing(op, parts, 1 / EPS[node.dtype])
        case Cast():
            return parts[0]
        case _:
            return ()


def _swallowing(op: BinaryOp, parts: Sequence[Numbers], vast: float) -> list[float]:
    """Constants of a sum beside which numbers of about 1 vanish."""
    if op not in (BinaryOp.ADD, BinaryOp.SUB):
        return []
    second = [y if op is BinaryOp.ADD else -y for y in parts[1]]
    return [x for x in (*parts[0], *second) if abs(x) >= vast]


def _largest(numbers: Iterable[float]) -> Numbers:
    return frozenset(sorted(filter(math.isfinite, numbers), key=abs)[-_MOST:])
