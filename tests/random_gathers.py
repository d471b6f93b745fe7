"""More operations of random graphs: indices that follow data or are clipped, reductions over parts, weights.

Beside those of `random_graphs`, whose seeds stay what they are.
"""

from __future__ import annotations

from typing import Any

from ansor import te
from ansor.dtypes import is_float
from ansor.te.tensor import Tensor
from tests.random_graphs import UNARY, Builder, Maker, elementwise, is_exact, number, reductions, sizes


def reverse_rows(b: Builder, x: Tensor) -> Any:
    """Each row turned round up to a length from data."""
    if x.ndim < 2:
        return elementwise(b, x)
    rows, columns = sizes(x)[:2]
    length = b.placeholder((rows,), b.c.one_of(("int32", "int64")), f"Length{len(b.inputs)}_of_{columns + 1}")

    def body(i: Any, j: Any, *rest: Any) -> Any:
        n = te.cast(length(i), "int32")
        return x(i, te.if_then_else(j < n, n - 1 - j, j), *rest)

    return b.compute(x.shape, body, name=b.name())


def clip(b: Builder, x: Tensor) -> Any:
    """The elements at the edge stand for those beyond it."""
    if not x.ndim:
        return elementwise(b, x)
    d, by = b.c.below(x.ndim), b.c.between(1, 3)
    last = sizes(x)[d] - 1
    shape = [n + 2 * by if at == d else n for at, n in enumerate(sizes(x))]

    def body(*i: Any) -> Any:
        return x(*i[:d], te.minimum(te.maximum(i[d] - by, 0), last), *i[d + 1 :])

    return b.compute(shape, body, name=b.name())


def spread(b: Builder, x: Tensor) -> Any:
    """Gaps of zeros between the elements, as a transposed convolution has."""
    if not x.ndim:
        return elementwise(b, x)
    d, by = b.c.below(x.ndim), b.c.between(2, 3)
    shape = [(n - 1) * by + 1 if at == d else n for at, n in enumerate(sizes(x))]

    def body(*i: Any) -> Any:
        read = x(*i[:d], te.floordiv(i[d], by), *i[d + 1 :])
        return te.if_then_else(te.floormod(i[d], by) == 0, read, number(0, x.dtype))

    return b.compute(shape, body, name=b.name())


def cumulative(b: Builder, x: Tensor) -> Any:
    """A reduction of all elements up to each one of the last dimension."""
    if not x.ndim:
        return elementwise(b, x)
    name = b.name()
    k = b.reduce_axis((0, sizes(x)[-1]), f"{name}k")
    kind = b.c.one_of(reductions(x))
    return b.compute(x.shape, lambda *i: kind(x(*i[:-1], k), axis=k, where=k <= i[-1]), name=name)


def rank(b: Builder, x: Tensor) -> Any:
    """How many elements of the row come before each in order."""
    if not x.ndim or not is_exact(x) or x.dtype == "bool":
        return elementwise(b, x)
    name = b.name()
    k = b.reduce_axis((0, sizes(x)[-1]), f"{name}k")

    def body(*i: Any) -> Any:
        mine, other = x(*i), x(*i[:-1], k)
        return te.sum(te.cast(te.any(other < mine, te.all(other == mine, k < i[-1])), "int32"), axis=k)

    return b.compute(x.shape, body, name=name)


def least_and_greatest(b: Builder, x: Tensor) -> Any:
    """A reduction of two values; both are outputs."""
    if not x.ndim or x.dtype == "bool":
        return elementwise(b, x)
    name = b.name()
    both = te.comm_reducer(
        lambda p, q: (te.minimum(p[0], q[0]), te.maximum(p[1], q[1])),
        lambda p, q: (te.max_value(p), te.min_value(q)),
        name="minmax",
    )
    k = b.reduce_axis((0, sizes(x)[-1]), f"{name}k")
    return b.compute(x.shape[:-1], lambda *i: both((x(*i, k), x(*i, k)), axis=k), name=name)


def centred(b: Builder, x: Tensor) -> Any:
    """Rows less their maximum: a reduction that is read beside what it reduces."""
    if not x.ndim or not is_float(x.dtype):
        return elementwise(b, x)
    name = b.name()
    k = b.reduce_axis((0, sizes(x)[-1]), f"{name}k")
    top = b.compute(x.shape[:-1], lambda *i: te.max(x(*i, k), axis=k), name=name)
    b.add(top)
    return b.compute(x.shape, lambda *i: x(*i) - top(*i[:-1]), name=b.name())


def weigh(b: Builder, x: Tensor) -> Any:
    """A product of the last dimension with constants whose layout is free."""
    if not x.ndim or x.dtype == "bool":
        return elementwise(b, x)
    name, depth, width = b.name(), sizes(x)[-1], b.c.between(1, 17)
    w = b.placeholder((depth, width), x.dtype)
    k = b.reduce_axis((0, depth), f"{name}k")
    wide = x.dtype if is_float(x.dtype) else "int32"
    return b.compute(
        (*x.shape[:-1], width),
        lambda *i: te.sum(te.cast(x(*i[:-1], k), wide) * te.cast(w[k, i[-1]], wide), axis=k),
        name=name,
        layout_free_placeholders=[w],
    )


GATHERS: tuple[Maker, ...] = (
    *UNARY,
    *(reverse_rows, clip, spread, cumulative, rank, least_and_greatest, centred, weigh, weigh),
)
