"""Reducers of the user's own that are no reducers: their result depends on the order of the elements.

Schedules combine elements in any order and grouping. A function that is not commutative or not associative,
such as an argmax that keeps its left argument where two values are equal, has as many answers as there are
orders, all of them "wrong" but one. Asked when an answer is wrong, because then it is the likely reason; the
function is tried on small values, among which equal ones are frequent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from ansor.dtypes import to_numpy
from ansor.schedule.dag import ComputeDAG
from ansor.te.expr import Combiner, Reduce
from ansor.te.numeric import quiet
from ansor.te.tensor import ComputeOp, Tensor
from ansor.te.vectorize import Context, Kernel

Array = npt.NDArray[Any]
Values = tuple[Array, ...]
_TRIED: Final = 256
_ROUNDING: Final = 1e-2


def order_dependence(dag: ComputeDAG) -> str | None:
    """
    Find a reducer of a computation whose result depends on the order of its elements.

    Returns
    -------
    str or None
        Its name, elements for which the order matters, and what to do; None if there is none.
    """
    for combiner in _combiners(dag):
        found = _counterexample(combiner)
        if found is not None:
            return (
                f"the reducer {combiner.name!r} depends on the order of its elements, and schedules change "
                f"that: {found}; make fcombine commutative and associative: decide ties by the values "
                "themselves, as the example of te.comm_reducer does by the lower index"
            )
    return None


def _combiners(dag: ComputeDAG) -> Iterator[Combiner]:
    seen: set[int] = set()
    for op in dag.ops:
        for node in op.body if isinstance(op, ComputeOp) else ():
            if isinstance(node, Reduce) and id(node.combiner) not in seen:
                seen.add(id(node.combiner))
                yield node.combiner


def _counterexample(combiner: Combiner) -> str | None:
    """Elements that give something else in another order or grouping, in words."""
    rng = np.random.default_rng(0)
    dtypes = [var.dtype for var in combiner.lhs]
    a, b, c = (tuple(_some(rng, dtype) for dtype in dtypes) for _ in range(3))
    with quiet():
        orders = [
            ("fcombine({a}, {b})", _combine(combiner, a, b)),
            ("fcombine({b}, {a})", _combine(combiner, b, a)),
            ("fcombine(fcombine({a}, {b}), {c})", _combine(combiner, _combine(combiner, a, b), c)),
            ("fcombine({a}, fcombine({b}, {c}))", _combine(combiner, a, _combine(combiner, b, c))),
        ]
    for (first, x), (second, y) in (orders[:2], orders[2:]):
        apart = np.flatnonzero(_differ(x, y))
        if apart.size:
            at = int(apart[0])
            named = {name: _text(values, at) for name, values in (("a", a), ("b", b), ("c", c))}
            return (
                f"{first.format(**named)} is {_text(x, at)}, but {second.format(**named)} is {_text(y, at)}"
            )
    return None


def _some(rng: np.random.Generator, dtype: str) -> Array:
    """Small values, many of them equal."""
    return rng.integers(1, 4, _TRIED).astype(to_numpy(dtype))


def _combine(combiner: Combiner, lhs: Values, rhs: Values) -> Values:
    bindings = dict(zip((*combiner.lhs, *combiner.rhs), (*lhs, *rhs), strict=True))
    values, _ = Kernel(combiner.result)(Context(bindings, _no_tensor, _no_tensor))
    return tuple(np.broadcast_to(value, _TRIED) for value in values)


def _differ(x: Sequence[Array], y: Sequence[Array]) -> Array:
    apart = np.zeros(_TRIED, bool)
    for one, other in zip(x, y, strict=True):
        if np.issubdtype(one.dtype, np.integer) or one.dtype == bool:
            apart |= one != other
        else:
            p, q = one.astype(np.float64), other.astype(np.float64)
            apart |= np.abs(p - q) > _ROUNDING * (1 + np.abs(p))
    return apart


def _text(values: Sequence[Array], at: int) -> str:
    shown = [f"{value[at].item():g}" if value.dtype.kind == "f" else str(value[at]) for value in values]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def _no_tensor(tensor: Tensor, *_: object) -> NoReturn:
    raise NotImplementedError(f"a reducer reads {tensor.name}")
