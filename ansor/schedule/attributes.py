"""The attributes of operations that schedules and the search know, and what they may hold.

Any others are the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansor.checks import check_integer, check_number
from ansor.errors import DefinitionError
from ansor.intrinsics import check_rounding
from ansor.schedule.access import (
    ALWAYS_UNROLL_ATTR,
    AMPLIFICATION_ATTR,
    LAYOUT_FREE_ATTR,
    NO_SPLIT_ATTR,
    SIMPLIFY_CONST_ATTR,
    UNROLLED_TILES_ATTR,
)
from ansor.schedule.flops import FLOP_ATTR
from ansor.schedule.structure import axis_names
from ansor.te.tensor import ComputeOp, Tensor


def check_attributes(op: ComputeOp) -> None:
    """
    Refuse attributes that are known and hold something else than they should.

    Raises
    ------
    DefinitionError
        With the operation, the attribute, what is there and what should be.
    """
    check_rounding(op)
    if FLOP_ATTR in op.attrs:
        check_number(_title(op, FLOP_ATTR), op.attrs[FLOP_ATTR], low=0)
    if AMPLIFICATION_ATTR in op.attrs:
        check_number(_title(op, AMPLIFICATION_ATTR), op.attrs[AMPLIFICATION_ATTR], above=0)
    if LAYOUT_FREE_ATTR in op.attrs:
        _check_tensors(op, op.attrs[LAYOUT_FREE_ATTR])
    if UNROLLED_TILES_ATTR in op.attrs:
        _check_tile(op, op.attrs[UNROLLED_TILES_ATTR])
    for attribute in (NO_SPLIT_ATTR, ALWAYS_UNROLL_ATTR, SIMPLIFY_CONST_ATTR):
        if attribute in op.attrs:
            value = op.attrs[attribute]
            if not isinstance(value, (str, list, tuple)):
                raise DefinitionError(
                    f"{_title(op, attribute)} must be a list of axis names, found {value!r}"
                )
            _check_axes(op, attribute, axis_names(value))


def renamed_tiles(attrs: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The same attributes for axes that have other names; TVM's keep those that the user gave."""
    tile = attrs.get(UNROLLED_TILES_ATTR)
    if tile is None:
        return dict(attrs)
    return {**attrs, UNROLLED_TILES_ATTR: {names.get(name, name): length for name, length in tile.items()}}


def _title(op: ComputeOp, attribute: str) -> str:
    return f"compute {op.name!r}: {attribute!r} among its attrs"


def _check_tensors(op: ComputeOp, value: object) -> None:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, Tensor) for item in value):
        found = f"the tensor {value.name!r} alone" if isinstance(value, Tensor) else repr(value)
        raise DefinitionError(
            f"{_title(op, LAYOUT_FREE_ATTR)} must be a list of tensors, such as [B], found {found}"
        )


def _check_tile(op: ComputeOp, value: object) -> None:
    if not isinstance(value, Mapping):
        raise DefinitionError(
            f"{_title(op, UNROLLED_TILES_ATTR)} must be lengths by axis names, such as {{'i': 4}}, "
            f"found {value!r}"
        )
    _check_axes(op, UNROLLED_TILES_ATTR, tuple(map(str, value)))
    for name, length in value.items():
        check_integer(f"{_title(op, UNROLLED_TILES_ATTR)}, length of {name!r}", length, low=1)


def _check_axes(op: ComputeOp, attribute: str, names: tuple[str, ...]) -> None:
    known = [axis.name for axis in (*op.axis, *op.reduce_axis)]
    wrong = [name for name in names if name not in known]
    if wrong:
        raise DefinitionError(
            f"{_title(op, attribute)} names {', '.join(map(repr, wrong))}, no axis of it; these are "
            f"{', '.join(known)}"
        )
