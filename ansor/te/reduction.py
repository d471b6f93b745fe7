"""Reductions: axes to reduce over, the four built-in combiners, and combiners of the user's own.

A reduction folds the values of an expression over some axes with an associative and commutative function,
in no promised order, starting from the function's identity. It accumulates in the dtype of the expression:
a float16 sum is rounded to float16 after every step (cast the source to float32 for more), and integer
sums wrap. `min` and `max` start from the infinities of a float dtype, the extreme values of an integer one.

An axis may begin elsewhere than at 0; the reduction then replaces each occurrence by `begin + axis`, so that
operations, schedules and loop nests only ever see axes from 0.
"""
# ruff: noqa: A001  `sum`, `min`, `max` are the names that users write, as te.sum, te.min, te.max.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ansor.dtypes import dtype_info, int_range, is_float
from ansor.errors import DefinitionError
from ansor.te.expr import (
    AxisKind,
    Binary,
    BinaryOp,
    Combiner,
    Const,
    Expr,
    ExprLike,
    IterVar,
    Read,
    Reduce,
    Var,
    as_expr,
    binary,
    const,
    distinct_nodes,
    free_vars,
    int_value,
    refuse_tensor,
    substitute,
)
from ansor.te.intrinsics import max_value, maximum, min_value, minimum
from ansor.te.tensor import as_extent

Axes = IterVar | Sequence[IterVar]


@dataclass(frozen=True)
class Range:
    """The integers `begin <= x < end`, an alternative to the pair `(begin, end)`."""

    begin: ExprLike
    end: ExprLike


def reduce_axis(bounds: tuple[ExprLike, ExprLike] | Range, name: str | None = None) -> IterVar:
    """An axis to reduce over, running over `begin <= axis < end`.

    One without a name is called `rv`; in a compute that has another axis of this name `rv_1`, `rv_2`, ....

    Raises
    ------
    DefinitionError
        If the bounds are not two integers, or the range is empty.
    """
    unnamed, name = (object(), "rv") if name is None else (None, name)
    if not isinstance(name, str):
        raise DefinitionError(f"reduce axis {name!r}: a name is a string")
    pair = (bounds.begin, bounds.end) if isinstance(bounds, Range) else bounds
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise DefinitionError(f"reduce axis {name!r} needs bounds (begin, end), found {bounds!r}")
    for value in pair:
        refuse_tensor(f"bounds of reduce axis {name!r}", value)
        if as_expr(value).dtype != "int32":
            raise DefinitionError(
                f"the bounds of reduce axis {name!r} must be int32, found `{value}` of {as_expr(value).dtype}"
            )
    begin, end = as_expr(pair[0], "int32"), as_expr(pair[1], "int32")
    first, last = int_value(begin), int_value(end)
    if first is not None and last is not None and last - first > int_range("int32")[1]:
        raise DefinitionError(
            f"reduce axis {name!r} ({begin}..{end}) is {last - first} long; axes count to 2**31 - 1"
        )
    extent = as_extent(
        binary(BinaryOp.SUB, end, begin), f"the extent of reduce axis {name!r} ({begin}..{end})"
    )
    return IterVar(name, "int32", as_expr(extent, "int32"), AxisKind.REDUCE, begin, unnamed)


# -- built-in reductions -----------------------------------------------------------------------------


def sum(expr: ExprLike, axis: Axes | None = None, where: ExprLike | None = None) -> Expr:
    """The sum of `expr` over `axis` (one axis or several), counting only points at which `where` holds."""
    return _builtin("sum", expr, axis, where)


def prod(expr: ExprLike, axis: Axes | None = None, where: ExprLike | None = None) -> Expr:
    """The product of `expr` over `axis`, counting only points at which `where` holds."""
    return _builtin("prod", expr, axis, where)


def min(expr: ExprLike, axis: Axes | ExprLike | None = None, where: ExprLike | None = None) -> Expr:
    """The least `expr` over `axis`; or, given two expressions and no axis, the lesser of the two.

    A reduce axis as second argument is an axis to reduce over: to compare with its value use `te.minimum`.
    """
    if _is_axes(axis):
        return _builtin("min", expr, axis, where)
    return _binary_form("min", minimum, expr, axis, where)


def max(expr: ExprLike, axis: Axes | ExprLike | None = None, where: ExprLike | None = None) -> Expr:
    """The greatest `expr` over `axis`; or, given two expressions and no axis, the greater of the two.

    A reduce axis as second argument is an axis to reduce over: to compare with its value use `te.maximum`.
    """
    if _is_axes(axis):
        return _builtin("max", expr, axis, where)
    return _binary_form("max", maximum, expr, axis, where)


def _is_axes(value: object) -> bool:
    return isinstance(value, (tuple, list)) or (isinstance(value, IterVar) and value.kind is AxisKind.REDUCE)


def _binary_form(
    name: str, function: Callable[[ExprLike, ExprLike], Expr], a: ExprLike, b: Any, where: ExprLike | None
) -> Expr:
    if b is None:
        raise DefinitionError(f"te.{name}(`{a}`) needs axis=..., or a second expression to compare with")
    if where is not None:
        raise DefinitionError(
            f"te.{name}(`{a}`, `{b}`, where=...): `where` belongs to a reduction, "
            f"but `{b}` is not a reduce axis"
        )
    return function(a, b)


_OPERATORS: Final = {
    "sum": BinaryOp.ADD,
    "prod": BinaryOp.MUL,
    "min": BinaryOp.MIN,
    "max": BinaryOp.MAX,
}


def builtin_combiner(name: str, dtype: str) -> Combiner:
    """The combiner "sum", "prod", "min" or "max" on `dtype`."""
    if dtype_info(dtype).kind == "bool":
        raise DefinitionError(f"te.{name} of bool is not defined; cast it, e.g. te.cast(..., 'int32')")
    lhs, rhs = Var("x", dtype), Var("y", dtype)
    infinity = float("inf")
    identity: dict[str, Callable[[], Expr]] = {
        "sum": lambda: const(0, dtype),
        "prod": lambda: const(1, dtype),
        "min": lambda: const(infinity, dtype) if is_float(dtype) else max_value(dtype),
        "max": lambda: const(-infinity, dtype) if is_float(dtype) else min_value(dtype),
    }
    return Combiner(name, (lhs,), (rhs,), (binary(_OPERATORS[name], lhs, rhs),), (identity[name](),))


def builtin_name(combiner: Combiner) -> str | None:
    """Which of the four a combiner is, by what it computes and not by its name; None for another one."""
    result, identity = combiner.result[0], combiner.identity[0]
    if len(combiner.result) != 1 or not isinstance(result, Binary) or not isinstance(identity, Const):
        return None
    if result.a is not combiner.lhs[0] or result.b is not combiner.rhs[0] or result.dtype == "bool":
        return None
    for name, op in _OPERATORS.items():
        if result.op is op:
            (neutral,) = builtin_combiner(name, result.dtype).identity
            assert isinstance(neutral, Const)
            return name if repr(identity.value) == repr(neutral.value) else None
    return None


def _builtin(name: str, expr: ExprLike, axis: Any, where: ExprLike | None) -> Expr:
    refuse_tensor(name, expr)
    source = as_expr(expr)
    if axis is None:
        raise DefinitionError(
            f"te.{name}(`{source}`) needs axis=...: make one with k = te.reduce_axis((0, n), name='k') "
            f"and write te.{name}(..., axis=k)"
        )
    return _make_reduce(builtin_combiner(name, source.dtype), (source,), axis, where)[0]


# -- combiners of the user's own ---------------------------------------------------------------------


class Reducer(Protocol):
    """What `comm_reducer` makes: a function from sources and axes to one element or a tuple of them."""

    def __call__(
        self, expr: ExprLike | tuple[ExprLike, ...], axis: Axes, where: ExprLike | None = None
    ) -> Any: ...


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Reducer:
    """A reduction by an associative and commutative function of the user's own.

    Schedules combine elements in any order and grouping, so `fcombine(a, b)` must equal `fcombine(b, a)`, and
    `fcombine(fcombine(a, b), c)` must equal `fcombine(a, fcombine(b, c))`, for floats up to rounding. This is
    not checked. A function that prefers its left argument, as an argmax that keeps the first of equal values
    by position, breaks the rule: its result depends on the schedule. Decide ties by the values themselves, as
    the example does by the lower index.

    Parameters
    ----------
    fcombine
        `fcombine(lhs, rhs)` gives the combination of two partial results: expressions, or for a reduction of
        several values tuples of them.
    fidentity
        `fidentity(dtype, ...)`, called with the dtype of each value, gives the identity: a constant, or a
        tuple of constants, such that combining with it changes nothing.
    name
        What printed programs call it.

    Examples
    --------
    The index of the greatest value, the lowest of them where several are equal:

    >>> def later(a, b):  # whether b is to replace a
    ...     return te.any(b[1] > a[1], te.all(b[1] == a[1], b[0] < a[0]))
    >>> argmax = comm_reducer(
    ...     lambda a, b: (te.select(later(a, b), b[0], a[0]), te.maximum(a[1], b[1])),
    ...     lambda index, value: (te.max_value(index), te.min_value(value)),
    ...     name="argmax",
    ... )  # doctest: +SKIP
    >>> at, best = te.compute((m,), lambda i: argmax((I[i, k], X[i, k]), axis=k))  # doctest: +SKIP
    """

    def reducer(expr: ExprLike | tuple[ExprLike, ...], axis: Axes, where: ExprLike | None = None) -> Any:
        several = isinstance(expr, (tuple, list))
        given = tuple(expr) if isinstance(expr, (tuple, list)) else (expr,)
        for value in given:
            refuse_tensor(name, value)
        sources = tuple(as_expr(value) for value in given)
        combiner = _user_combiner(name, fcombine, fidentity, tuple(s.dtype for s in sources), several)
        elements = _make_reduce(combiner, sources, axis, where)
        return elements if several else elements[0]

    return reducer


def _user_combiner(
    name: str,
    fcombine: Callable[..., Any],
    fidentity: Callable[..., Any],
    dtypes: tuple[str, ...],
    several: bool,
) -> Combiner:
    lhs = tuple(Var(f"x{i}" if several else "x", dtype) for i, dtype in enumerate(dtypes))
    rhs = tuple(Var(f"y{i}" if several else "y", dtype) for i, dtype in enumerate(dtypes))
    result = fcombine(lhs, rhs) if several else fcombine(lhs[0], rhs[0])
    identity = fidentity(*dtypes)
    checked_result = _combiner_part(name, "fcombine", result, dtypes, several)
    checked_identity = _combiner_part(name, "fidentity", identity, dtypes, several)
    for expr in checked_result:
        extra = free_vars(expr).difference(lhs, rhs)
        if extra or any(isinstance(node, (Read, Reduce)) for node in distinct_nodes(expr)):
            raise DefinitionError(
                f"reducer {name!r}: fcombine gives `{expr}`, which uses more than its two arguments"
            )
    for expr in checked_identity:
        if free_vars(expr) or any(isinstance(node, (Read, Reduce)) for node in distinct_nodes(expr)):
            raise DefinitionError(f"reducer {name!r}: fidentity gives `{expr}`, which is not a constant")
    return Combiner(name, lhs, rhs, checked_result, checked_identity)


def _combiner_part(
    name: str, function: str, value: Any, dtypes: tuple[str, ...], several: bool
) -> tuple[Expr, ...]:
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(parts) != len(dtypes):
        raise DefinitionError(
            f"reducer {name!r}: {function} gives {len(parts)} value(s) for a reduction of {len(dtypes)}"
        )
    exprs = []
    for position, (part, dtype) in enumerate(zip(parts, dtypes, strict=True)):
        refuse_tensor(f"reducer {name!r}: {function}", part)
        expr = as_expr(part, dtype)
        if expr.dtype != dtype:
            element = f" for value {position}" if several else ""
            raise DefinitionError(
                f"reducer {name!r}: {function} gives {expr.dtype} `{expr}`{element}, whose dtype is {dtype}"
            )
        exprs.append(expr)
    return tuple(exprs)


# -- building the node -------------------------------------------------------------------------------


def _make_reduce(
    combiner: Combiner, sources: tuple[Expr, ...], axis: Any, where: ExprLike | None
) -> tuple[Expr, ...]:
    axes = _checked_axes(combiner.name, axis)
    condition = None if where is None else as_expr(where)
    for expr in sources if condition is None else (*sources, condition):
        if any(isinstance(node, Reduce) for node in distinct_nodes(expr)):
            raise DefinitionError(
                f"te.{combiner.name} over {_names(axes)}: `{expr}` holds another reduction; give the "
                "inner reduction a te.compute of its own, or reduce over several axes at once"
            )
    if condition is not None and condition.dtype != "bool":
        raise DefinitionError(
            f"te.{combiner.name} over {_names(axes)}: where= needs a condition, "
            f"found {condition.dtype} `{condition}`"
        )
    moved: dict[Var, Expr] = {
        axis: binary(BinaryOp.ADD, axis, axis.begin) for axis in axes if int_value(axis.begin) != 0
    }
    if moved:
        sources = tuple(substitute(expr, moved) for expr in sources)
        condition = None if condition is None else substitute(condition, moved)
    return tuple(
        Reduce(combiner, sources, axes, index, source.dtype, condition)
        for index, source in enumerate(sources)
    )


def _checked_axes(name: str, axis: Any) -> tuple[IterVar, ...]:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if not axes:
        raise DefinitionError(f"te.{name} needs at least one reduce axis, found an empty list")
    for one in axes:
        if not isinstance(one, IterVar):
            raise DefinitionError(f"te.{name}: axis={one!s} is not an axis; make it with te.reduce_axis")
        if one.kind is not AxisKind.REDUCE:
            raise DefinitionError(
                f"te.{name}: axis {one.name!r} is a spatial axis; only a te.reduce_axis can be reduced over"
            )
    if len(set(axes)) != len(axes):
        raise DefinitionError(f"te.{name} reduces over the same axis twice: {_names(axes)}")
    return axes


def _names(axes: Sequence[IterVar]) -> str:
    return f"[{', '.join(axis.name for axis in axes)}]"
