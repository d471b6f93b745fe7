"""Refusing a computation that certainly reads out of bounds, before any code is made of it.

Machine code does not check its indices, so a wrong one reads whatever lies beside the tensor. Most wrong
indices can be seen in the expression: every axis runs over its whole extent, whatever the schedule. An
index is first bounded by its interval, under what the enclosing `te.if_then_else` and `where=` conditions
say. Only where that leaves a doubt are points tried: all of them if they are few, else those at and near the
ends of every axis and of what the conditions leave of it, and evenly spaced ones. A point at which all
conditions hold and the index is outside is the proof, and the example in the message; without one the read
is allowed. So nothing correct is ever refused, however weak the analysis.

Not judged: an index or a condition that depends on the data of a tensor, or on a symbolic size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from ansor.errors import DefinitionError
from ansor.ir.simplify import Bounds, assume, interval
from ansor.te.expr import Expr, Read, Reduce, Select, Var, children, distinct_nodes, int_value
from ansor.te.numeric import quiet
from ansor.te.tensor import ComputeOp, Operation, Tensor, format_shape
from ansor.te.vectorize import Context, Kernel

ALL_POINTS: Final = 1 << 16
"""Doubtful indices are tried at every point of their axes up to this many."""

MOST_VISITS: Final = 20_000
"""Places (a node under its conditions) that are looked at in one operation; the rest is not judged."""

MOST_NODES: Final = 400
"""Nodes of an index, or of one of its conditions, that are still analysed."""

Guards = tuple[tuple[Expr, bool], ...]
"""Conditions, and whether each holds."""


def check_accesses(ops: Sequence[Operation]) -> None:
    """Refuse operations of which some element certainly reads outside a tensor.

    Raises
    ------
    DefinitionError
        With the tensor, the dimension, the index, an example of a point, and how to guard the read.
    """
    for op in ops:
        if isinstance(op, ComputeOp):
            _check(op)


@lru_cache(maxsize=1024)
def _check(op: ComputeOp) -> None:
    extents = {axis: int_value(axis.extent) for axis in (*op.axis, *op.reduce_axis)}
    bounds = Bounds({axis: (0, None if extent is None else extent - 1) for axis, extent in extents.items()})
    for read, guards in _reads(op):
        for dimension, (index, extent) in enumerate(zip(read.indices, read.tensor.shape, strict=True)):
            size = int_value(extent)
            if not _is_known(index, bounds):
                continue
            if _inside(interval(index, bounds), size):
                continue
            known = tuple(guard for guard in guards if _is_known(guard[0], bounds))
            narrowed = _narrowed(bounds, known)
            if len(known) == len(guards) and not _inside(interval(index, narrowed), size):
                _try_points(op, read, dimension, known, _points(index, known, bounds, narrowed))


def _inside(values: tuple[int | None, int | None], size: int | None) -> bool:
    low, high = values
    return low is not None and low >= 0 and (size is None or (high is not None and high < size))


def _is_known(expr: Expr, axes: Bounds) -> bool:
    """Whether `expr` has no other unknowns than `axes`, and is small enough to be looked at."""
    for count, node in enumerate(distinct_nodes(expr)):
        if count > MOST_NODES or isinstance(node, Read) or (isinstance(node, Var) and node not in axes):
            return False
    return True


def _reads(op: ComputeOp) -> Iterator[tuple[Read, Guards]]:
    """All reads of `op`, each with the conditions under which it is reached."""
    reading = _reading_nodes(op)
    pending: list[tuple[Expr, Guards]] = [(root, ()) for root in op.body]
    seen: set[tuple[int, tuple[tuple[int, bool], ...]]] = set()
    while pending and len(seen) < MOST_VISITS:
        node, guards = pending.pop()
        key = (id(node), tuple((id(cond), holds) for cond, holds in guards))
        if id(node) not in reading or key in seen:
            continue
        seen.add(key)
        if isinstance(node, Read):
            yield node, guards
        if isinstance(node, Select) and node.lazy:
            pending.append((node.then, (*guards, (node.cond, True))))
            pending.append((node.other, (*guards, (node.cond, False))))
            pending.append((node.cond, guards))
        elif isinstance(node, Reduce) and node.condition is not None:
            pending.extend((source, (*guards, (node.condition, True))) for source in node.sources)
            pending.append((node.condition, guards))
        else:
            pending.extend((child, guards) for child in children(node))


def _reading_nodes(op: ComputeOp) -> set[int]:
    """The ids of the nodes that are a read or hold one."""
    found: set[int] = set()
    for root in op.body:
        for node in distinct_nodes(root):
            if isinstance(node, Read) or any(id(child) in found for child in children(node)):
                found.add(id(node))
    return found


# -- points ------------------------------------------------------------------------------------------


def _narrowed(bounds: Bounds, guards: Guards) -> Bounds:
    for cond, holds in guards:
        bounds = assume(bounds, cond, holds=holds)
    return bounds


def _points(index: Expr, guards: Guards, bounds: Bounds, narrowed: Bounds) -> dict[Var, NDArray[np.int32]]:
    """Values to try of each axis that matters, each along a dimension of its own.

    Of an axis of unknown extent only 0 is tried, which every extent has.
    """
    nodes = (node for expr in (index, *(cond for cond, _ in guards)) for node in distinct_nodes(expr))
    axes = [axis for axis in dict.fromkeys(node for node in nodes if isinstance(node, Var)) if axis in bounds]
    whole = {axis: 0 if (high := bounds[axis][1]) is None else high for axis in axes}
    values = {axis: list(range(high + 1)) for axis, high in whole.items() if high < ALL_POINTS}
    if len(values) < len(axes) or prod(map(len, values.values())) > ALL_POINTS:
        each = max(2, int(ALL_POINTS ** (1 / len(axes))))
        values = {axis: _chosen(high, narrowed.get(axis, (0, high)), each) for axis, high in whole.items()}
    return {
        axis: np.array(values[axis], np.int32).reshape([-1 if d == p else 1 for d in range(len(axes))])
        for p, axis in enumerate(axes)
    }


def _chosen(high: int, left: tuple[int | None, int | None], most: int) -> list[int]:
    """At most `most` values of `0..high`: the ends of what the conditions leave and of all, and others."""
    low_end, high_end = left[0] or 0, high if left[1] is None else left[1]
    ordered = [high_end, low_end, high, 0, high_end - 1, low_end + 1, high - 1, 1, high_end + 1, low_end - 1]
    ordered += [high * step // most for step in range(most)]
    return list(dict.fromkeys(value for value in ordered if 0 <= value <= high))[:most]


def _try_points(
    op: ComputeOp, read: Read, dimension: int, guards: Guards, points: dict[Var, NDArray[np.int32]]
) -> None:
    """Raise the error if the index is outside the tensor at one of `points` that passes the conditions."""
    index, size = read.indices[dimension], int_value(read.tensor.shape[dimension])
    reached: Any = True
    context = Context(points, _no_tensor, _no_tensor)
    with quiet():
        for cond, holds in guards:
            reached = np.logical_and(reached, np.equal(Kernel([cond])(context)[0][0], holds))
        values = Kernel([index])(context)[0][0]
    outside = (values < 0) if size is None else (values < 0) | (values >= size)
    shape = np.broadcast_shapes(*(array.shape for array in points.values()), np.shape(values))
    wrong = np.broadcast_to(outside & reached, shape)
    if not wrong.any():
        return
    position = np.unravel_index(int(np.argmax(wrong)), shape)
    value = int(np.broadcast_to(values, shape)[position])
    where = ", ".join(
        f"{axis.name}={int(np.broadcast_to(array, shape)[position])}" for axis, array in points.items()
    )
    bound = f"`{index} < {size}`" if size is not None and value >= size else f"`{index} >= 0`"
    raise DefinitionError(
        f"compute {op.name!r}: `{read}` reads tensor {read.tensor.name!r} of shape "
        f"{format_shape(read.tensor.shape)} out of bounds in dimension {dimension}: the index `{index}` is "
        f"{value}{f' at {where}' if where else ''}; read it only where {bound}, with "
        f"te.if_then_else(condition, {read}, padding) (te.select reads both sides), or give another shape"
    )


def _no_tensor(tensor: Tensor, *_: object) -> NoReturn:
    raise NotImplementedError(f"an index without data reads {tensor.name}")
