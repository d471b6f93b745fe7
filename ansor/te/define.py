"""The functions that define a workload: `placeholder`, `compute`, `var`, and the door to schedules.

`compute` is where a description is checked as a whole, so that every later stage may rely on it: axes have
distinct names, each variable of the body is an axis of this operation or a symbolic size, a reduction
stands only at the root, and the outputs of one operation come from one reduction. An error raised while
the user's function runs is given the name of the compute and its axes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from ansor.checks import check_integer
from ansor.dtypes import dtype_info, is_integer
from ansor.errors import DefinitionError
from ansor.numbered import NumberedNames
from ansor.te.expr import (
    DIVISIONS,
    INDEX_DTYPE,
    AxisKind,
    Binary,
    Expr,
    ExprLike,
    IterVar,
    MixedIdentityTest,
    Read,
    Reduce,
    Select,
    Var,
    as_expr,
    children,
    distinct_nodes,
    int_value,
    refuse_tensor,
    substitute,
)
from ansor.te.tensor import ComputeOp, Extent, PlaceholderOp, Tensor, as_extent, format_shape

Shape = Sequence[ExprLike]


def var(name: str = "n", dtype: str = INDEX_DTYPE) -> Var:
    """A symbolic size: a scalar whose value is given when the program is run."""
    if not is_integer(dtype):
        raise DefinitionError(f"te.var {name!r} is {dtype}; a symbolic size is an integer")
    return Var(_checked_name("te.var", name), dtype)


def placeholder(shape: Shape | ExprLike, dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """An input tensor of `shape` (ints, or expressions of `te.var`s) and `dtype`.

    Raises
    ------
    DefinitionError
        If the dtype is unknown, or an extent is not a positive integer.
    """
    dtype_info(dtype)
    extents = _checked_shape(f"placeholder {_checked_name('te.placeholder', name)!r}", shape)
    return PlaceholderOp(name, extents, dtype).output(0)


@overload
def compute(
    shape: Shape | ExprLike,
    fcompute: Callable[..., ExprLike],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor: ...


@overload
def compute(
    shape: Shape | ExprLike,
    fcompute: Callable[..., tuple[ExprLike, ...]],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> tuple[Tensor, ...]: ...


def compute(
    shape: Shape | ExprLike,
    fcompute: Callable[..., ExprLike | tuple[ExprLike, ...]],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """A tensor whose element at `(i, j, ...)` is `fcompute(i, j, ...)`.

    Parameters
    ----------
    shape
        Extents, positive ints or expressions of `te.var`s; `()` for a single number.
    fcompute
        Called once, with one axis per dimension; the names of its arguments name the axes, and those
        of `*args` are `i0`, `i1`, .... It gives an expression, or a tuple of them for several outputs.
        Its reduce axes without a name are `rv`, `rv_1`, ....
    name
        Of the operation, as printed and as records refer to it.
    tag, attrs
        Kept on the operation for passes that understand them (e.g. `{"layout_free_placeholders": [B]}`).

    Returns
    -------
    Tensor or tuple of Tensor
        One tensor, or one for each element of the tuple.

    Raises
    ------
    DefinitionError
        If the description is not legal (see the module); the message names the compute and the axis.
    """
    what = f"compute {_checked_name('te.compute', name)!r}"
    extents = _checked_shape(what, shape)
    axes = tuple(
        IterVar(axis_name, INDEX_DTYPE, as_expr(extent, INDEX_DTYPE), AxisKind.SPATIAL)
        for axis_name, extent in zip(_axis_names(what, fcompute, len(extents)), extents, strict=True)
    )
    what = f"{what} over ({', '.join(axis.name for axis in axes)})"
    try:
        value = fcompute(*axes)
        parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        for part in parts:
            refuse_tensor("the result", part)
        body = tuple(as_expr(part) for part in parts)
    except DefinitionError as error:
        raise DefinitionError(f"{what}: {error}") from error
    except (TypeError, IndexError) as error:  # Of what takes numbers: numpy.sqrt, math.exp, range, lists.
        error.add_note(
            f"{what}: this function is given expressions, not numbers; te has functions of expressions, such "
            "as te.sqrt, te.exp and te.maximum, and tensors can be indexed by them"
        )
        raise
    body, reduce_axes = _checked_body(what, axes, body)
    op = ComputeOp(name, axes, reduce_axes, body, tag, dict(attrs or {}))
    return op.outputs[0] if len(body) == 1 else op.outputs


def _checked_name(function: str, name: object) -> str:
    if not isinstance(name, str) or not name or any(c.isspace() for c in name):
        raise DefinitionError(f"{function}: name={name!r} is not a non-empty word")
    return name


def _checked_shape(what: str, shape: Shape | ExprLike) -> tuple[Extent, ...]:
    extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    checked = tuple(as_extent(extent, f"dimension {d} of {what}") for d, extent in enumerate(extents))
    for d, extent in enumerate(checked):
        if isinstance(extent, Expr) and extent.dtype != INDEX_DTYPE:
            raise DefinitionError(
                f"dimension {d} of {what} is `{extent}` of {extent.dtype}; use {INDEX_DTYPE}"
            )
    return checked


def _axis_names(what: str, fcompute: Callable[..., object], rank: int) -> list[str]:
    """One name per dimension, from the parameters of `fcompute`."""
    try:
        parameters = inspect.signature(fcompute).parameters.values()
    except (TypeError, ValueError) as error:  # No function, or one that does not tell.
        raise DefinitionError(
            f"{what} needs a function of its axes, such as lambda i: A[i] * 2.0, found {fcompute!r}"
        ) from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    rest = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if rank < required or (rank > len(positional) and not rest):
        names = ", ".join(p.name for p in positional)
        raise DefinitionError(
            f"{what} has {rank} dimension(s) but its function takes {len(positional)} axes ({names})"
        )
    axis_names = [p.name for p in positional[:rank]]
    for position in range(len(axis_names), rank):
        if f"i{position}" in axis_names:
            raise DefinitionError(
                f"{what}: axis {position}, one of *args, would be named 'i{position}' like another axis"
            )
        axis_names.append(f"i{position}")
    return axis_names


def _checked_body(
    what: str, axes: tuple[IterVar, ...], body: tuple[Expr, ...]
) -> tuple[tuple[Expr, ...], tuple[IterVar, ...]]:
    """`body` and its reduction axes, named apart; a `DefinitionError` that starts with `what` if illegal."""
    if not body:
        raise DefinitionError(f"{what} gives an empty tuple; give one expression per output")
    for root in body:
        _refuse_inner_reduction(what, root)
    roots = [expr for expr in body if isinstance(expr, Reduce)]
    if roots:
        _check_reduction(what, body, roots)
        roots = _named_apart(axes, roots)
        body = tuple(roots)
    reduce_axes = roots[0].axes if roots else ()
    _check_axis_names(what, axes, reduce_axes)
    known = {*axes, *reduce_axes}
    for root in body:
        _check_values(what, root)
        for node in distinct_nodes(root):
            if isinstance(node, IterVar) and node not in known:
                raise DefinitionError(f"{what}: {_unknown_axis(node, root)}")
    if roots:
        combiner = roots[0].combiner
        for expr in (*combiner.result, *combiner.identity):
            _check_values(f"{what}: reducer {combiner.name!r}", expr)
    return body, reduce_axes


def _named_apart(axes: tuple[IterVar, ...], roots: list[Reduce]) -> list[Reduce]:
    """One reduction over axes whose unnamed ones have numbers in their names where others have these."""
    first = roots[0]
    names = NumberedNames(axis.name for axis in (*axes, *first.axes) if axis.unnamed is None)
    renamed: dict[Var, IterVar] = {}
    for axis in first.axes:
        name = axis.name if axis.unnamed is None else names.fresh(axis.name)
        renamed[axis] = axis if name == axis.name else replace(axis, name=name)
    if all(axis is new for axis, new in renamed.items()):
        return roots
    mapping: dict[Var, Expr] = {**renamed}
    sources = tuple(substitute(source, mapping) for source in first.sources)
    condition = None if first.condition is None else substitute(first.condition, mapping)
    reduced = tuple(renamed.values())
    return [replace(root, sources=sources, axes=reduced, condition=condition) for root in roots]


def _check_values(what: str, root: Expr) -> None:
    """Refuse what has no value: comparisons of two dtypes, and what `_check_always_evaluated` does."""
    _check_always_evaluated(what, root)
    for node in distinct_nodes(root):
        if isinstance(node, MixedIdentityTest):
            raise DefinitionError(
                f"{what}: `{node}` compares {node.a.dtype} with {node.b.dtype}; cast or index one side"
            )


def _refuse_inner_reduction(what: str, root: Expr) -> None:
    for node in distinct_nodes(root):
        if isinstance(node, Reduce) and node is not root:
            raise DefinitionError(
                f"{what}: the {node.combiner.name} over [{', '.join(a.name for a in node.axes)}] is "
                f"part of the larger expression `{root}`; a reduction stands alone: give it a te.compute "
                "of its own and read the result"
            )


def _check_always_evaluated(what: str, root: Expr) -> None:
    """Refuse constant indices out of bounds and divisions by zero, unless a lazy choice may guard them."""
    pending, seen = [root], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        pending.extend([node.cond] if isinstance(node, Select) and node.lazy else children(node))
        if isinstance(node, Read):
            _check_constant_indices(what, node)
        if isinstance(node, Binary) and node.op in DIVISIONS and int_value(node.b) == 0:
            raise DefinitionError(f"{what}: `{node.op}` of `{node.a}` by zero")


def _check_constant_indices(what: str, read: Read) -> None:
    for dimension, (index, extent) in enumerate(zip(read.indices, read.tensor.shape, strict=True)):
        value, size = int_value(index), int_value(extent)
        if value is not None and (value < 0 or (size is not None and value >= size)):
            raise DefinitionError(
                f"{what}: index {dimension} of tensor {read.tensor.name!r} is {value}, out of bounds for "
                f"shape {format_shape(read.tensor.shape)}"
                + (" (negative indices do not count from the end)" if value < 0 else "")
            )


def _unknown_axis(axis: IterVar, body: Expr) -> str:
    if axis.kind is AxisKind.REDUCE:
        over = f", axis={axis.name}"
        return (
            f"the reduce axis {axis.name!r} is used in `{body}` outside a reduction over it; "
            f"write te.sum(...{over}) or another reduction"
        )
    return (
        f"the axis {axis.name!r} in `{body}` belongs to another compute; use the axes given to the function"
    )


def _check_reduction(what: str, body: tuple[Expr, ...], roots: list[Reduce]) -> None:
    first = roots[0]
    same = [r for r in roots if r.combiner is first.combiner and r.sources is first.sources]
    in_order = [r.index for r in roots] == list(range(len(first.sources)))
    if len(same) != len(body) or not in_order:
        raise DefinitionError(
            f"{what}: its {len(body)} outputs are not the {len(first.sources)} values, in order, of one "
            f"{first.combiner.name} reduction; an operation holds a single reduction, so split it into "
            "several te.compute"
        )


def _check_axis_names(what: str, axes: tuple[IterVar, ...], reduce_axes: tuple[IterVar, ...]) -> None:
    seen: set[str] = set()
    for axis in (*axes, *reduce_axes):
        if axis.name in seen:
            raise DefinitionError(
                f"{what}: two axes are named {axis.name!r}; schedules find axes by name, so rename one "
                f"(te.reduce_axis(..., name=...) or an argument of the function)"
            )
        seen.add(axis.name)


THREAD_AXES = (
    *(f"{level}Idx.{dimension}" for level in ("block", "thread") for dimension in "xyz"),
    "vthread",
)


@dataclass(frozen=True)
class ThreadAxis:
    """A GPU thread or block index that a schedule binds a loop to."""

    name: str
    extent: int | None = None


def thread_axis(extent_or_name: int | tuple[int, int] | str, name: str | None = None) -> ThreadAxis:
    """`thread_axis("threadIdx.x")`, or with its extent `thread_axis(64, "threadIdx.x")`.

    Raises
    ------
    DefinitionError
        If there is no such thread axis, its extent is no integer of at least 1, or there are two names.
    """
    extent: int | None = None
    if isinstance(extent_or_name, str):
        if name is not None:
            raise DefinitionError(f"thread_axis({extent_or_name!r}, {name!r}): a thread axis has one name")
        name = extent_or_name
    elif isinstance(extent_or_name, tuple):
        if len(extent_or_name) != 2:
            raise DefinitionError(f"thread_axis({extent_or_name!r}, {name!r}): bounds are (begin, end)")
        extent = extent_or_name[1] - extent_or_name[0]
    else:
        extent = extent_or_name
    if name not in THREAD_AXES:
        raise DefinitionError(f"unknown thread axis {name!r}; there are {', '.join(THREAD_AXES)}")
    if extent is not None:
        extent = check_integer(f"the extent of thread axis {name!r}", extent, low=1)
    return ThreadAxis(name, extent)


def create_schedule(ops: Any) -> Any:
    """A `Schedule`, to be transformed by hand, of an operation or tensor (or several) and all it needs.

    The same as `ansor.schedule.manual.create_schedule`, which is looked up by name because te comes
    before schedules and does not depend on them.
    """
    return importlib.import_module("ansor.schedule.manual").create_schedule(ops)
