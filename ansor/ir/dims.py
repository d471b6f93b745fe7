"""Dimensions as plain data: what a shape or a launch is made of, without expressions.

A dimension is an int, the name of a symbolic size, or an operation on dimensions (`("mul", "n", 4)`). It has
a JSON form, can be computed once the sizes are known, and often says what a size must be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Union

from ansor.errors import ArgumentError, BuildError
from ansor.te.expr import FOLDERS, Binary, BinaryOp, Cast, Const, Expr, Var

Dim = Union[int, str, tuple[str, "Dim", "Dim"]]

_SIGNS: Final = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}


def dim_of(extent: int | Expr, names: Mapping[Var, str], what: str) -> Dim:
    """Describe an extent whose variables are sizes of these names; `what` has it, for messages.

    Raises
    ------
    BuildError
        If the extent is made of anything else.
    """
    match extent:
        case int():
            return extent
        case Const(value=value):
            return int(value)
        case Cast(a=a):
            return dim_of(a, names, what)
        case Binary(op=op, a=a, b=b):
            return (str(op), dim_of(a, names, what), dim_of(b, names, what))
        case Var() if extent in names:
            return names[extent]
        case _:
            raise BuildError(f"{what} holds `{extent}`, which the sizes do not define")


def format_dim(dim: Dim) -> str:
    """Write a dimension as people do."""
    if not isinstance(dim, tuple):
        return str(dim)
    op, a, b = dim
    left, right = (f"({format_dim(x)})" if isinstance(x, tuple) else str(x) for x in (a, b))
    return f"{left}{_SIGNS[op]}{right}" if op in _SIGNS else f"{op}({format_dim(a)}, {format_dim(b)})"


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """Compute a dimension; None while one of its sizes is unknown."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return sizes.get(dim)
    op, a, b = dim
    left, right = evaluate(a, sizes), evaluate(b, sizes)
    if left is None or right is None:
        return None
    if right == 0 and op in ("floordiv", "floormod", "truncdiv", "truncmod"):
        raise ArgumentError(f"the dimension {format_dim(dim)} divides by zero")
    return int(FOLDERS[BinaryOp(op)](left, right))


def solve(dim: Dim, value: int, sizes: dict[str, int]) -> None:
    """Deduce a size from `dim == value` where the form allows it, and add it to `sizes`.

    Only a size that occurs once and under additions, subtractions and products with known numbers is deduced;
    whether the equation holds is for the caller to check.
    """
    if isinstance(dim, str):
        sizes.setdefault(dim, value)
        return
    if isinstance(dim, int):
        return
    op, a, b = dim
    left, right = evaluate(a, sizes), evaluate(b, sizes)
    if left is None and right is not None:
        unknown, known = a, right
    elif left is not None and right is None:
        unknown, known = b, left
    else:
        return
    if op == "add":
        solve(unknown, value - known, sizes)
    elif op == "sub":
        solve(unknown, value + known if left is None else known - value, sizes)
    elif op == "mul" and known and value % known == 0:
        solve(unknown, value // known, sizes)


def dim_to_json(dim: Dim) -> int | str | list[Any]:
    """Give a dimension in JSON's types."""
    return [dim[0], dim_to_json(dim[1]), dim_to_json(dim[2])] if isinstance(dim, tuple) else dim


def dim_from_json(value: Any) -> Dim:
    """Read what `dim_to_json` wrote.

    Raises
    ------
    ValueError
        If it is no dimension.
    """
    if isinstance(value, list):
        op, a, b = value
        return (str(BinaryOp(op)), dim_from_json(a), dim_from_json(b))
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"a dimension is an integer, a name or an operation, found {value!r}")
    return value
