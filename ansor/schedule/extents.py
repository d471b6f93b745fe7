"""Arithmetic on extents: Python ints, columns of a population, or symbolic sizes.

An extent is an `int` in a single program, an int64 array with one value per row in a population, and an
integer expression where a tensor has symbolic sizes. Everything that computes with extents goes through
these functions, so bound inference exists once for all three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, Union

import numpy as np
from numpy.typing import NDArray

from ansor.te.expr import INDEX_DTYPE, Const, Expr, int_value

_T = TypeVar("_T")
Column = NDArray[np.int64]
Extent = Union[int, Column, Expr]
Number = Union[int, Column]
"""An extent that is known: no expression."""


def extent_of(expr: Expr | int) -> Extent:
    """The extent that an axis' expression stands for: its constant (or column), else the expression."""
    value = getattr(expr, "value", None)
    if isinstance(value, np.ndarray):
        return value
    constant = int_value(expr)
    return expr if constant is None else constant


def expr_of(extent: Extent) -> Expr:
    """The expression of an extent; a column becomes a constant of many values."""
    return extent if isinstance(extent, Expr) else Const(extent, INDEX_DTYPE)  # type: ignore[arg-type]


MAX_EXTENT = 2**31 - 1
"""The most iterations that a loop may have: loop variables are int32."""


def with_python_integers(values: Iterable[_T]) -> tuple[_T, ...]:
    """The same values, numpy's integers as Python's own: extents are asked for those."""
    return tuple([int(value) if isinstance(value, np.integer) else value for value in values])  # type: ignore[misc]


def any_above(extent: Extent | None, limit: int) -> bool:
    """Whether the extent is known to exceed `limit` (in any row)."""
    return extent is not None and not isinstance(extent, Expr) and in_any_row(extent > limit)


def in_every_row(test: Any) -> bool:
    """Whether a test holds: a bool, or a column of them, of which all must."""
    return bool(test.all() if isinstance(test, np.ndarray) else test)


def in_any_row(test: Any) -> bool:
    """Whether a test holds: a bool, or a column of them, of which one must."""
    return bool(test.any() if isinstance(test, np.ndarray) else test)


def is_one(extent: Extent | None) -> bool:
    """Whether the extent is 1 (in every row)."""
    return not isinstance(extent, Expr) and in_every_row(extent == 1)


def ceil_div(a: Extent, b: Extent) -> Extent:
    """Quotient rounded up, `b >= 1`."""
    if isinstance(a, Expr) or isinstance(b, Expr):
        return _as_expr_or_int(a, b)
    return -(-a // b)


def _as_expr_or_int(a: Any, b: Any) -> Extent:
    if isinstance(b, int) and b == 1:
        return extent_of(a)
    return extent_of((a + (b - 1)) // b)


def multiply(a: Extent, b: Extent) -> Extent:
    """Product of two extents."""
    if isinstance(a, Expr) or isinstance(b, Expr):
        product: Any = a * b  # type: ignore[operator]
        return extent_of(product) if isinstance(product, Expr) else product
    return a * b


def product(extents: Sequence[Extent]) -> Extent:
    """Product of extents, 1 for none."""
    result: Extent = 1
    for extent in extents:
        result = multiply(result, extent)
    return result


def product_if_known(extents: Sequence[Extent | None]) -> Extent | None:
    """Product of extents, None if one of them is not known yet."""
    known = [extent for extent in extents if extent is not None]
    return product(known) if len(known) == len(extents) else None


def minimum(a: Extent, b: Extent) -> Extent:
    """The smaller extent; of an unknown and a known one, the known one (a valid upper bound of both)."""
    if isinstance(a, Expr):
        return b if not isinstance(b, Expr) else a
    if isinstance(b, Expr):
        return a
    return smaller(a, b)


def smaller(a: Number, b: Number) -> Number:
    """The smaller of two known extents."""
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def greater(a: Number, b: Number) -> Number:
    """The greater of two known extents."""
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


def where(cond: Any, a: Number, b: Number) -> Number:
    """`a` where `cond` else `b`; a plain choice when `cond` is a bool."""
    if isinstance(cond, np.ndarray):
        return np.where(cond, a, b)
    return a if cond else b
