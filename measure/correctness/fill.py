"""Data for the inputs of a task: real arrays where the user gave them, else random ones that suit the dtype.

- floats: magnitudes in [0.25, 1] with a random sign, so that sums cancel, products neither overflow nor
  vanish, and a division or logarithm of an input stays tame. The style "positive" leaves the sign out, for
  programs (square roots, logarithms) that would otherwise give mostly NaN.
- signed integers: -8 .. 8 without 0; unsigned ones: 1 .. 15; bools: both. No zeros, because a
  division by 0 would hide its dividend.
- an input that is used as an index of another tensor, and directly so: valid positions. If the index is
  computed from it, be it by other operations, in a way that does not tell its range, the user must supply it
  (`task_inputs`).

The data are a function of the seed and the input's position alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ansor.dtypes import dtype_info, int_range, is_integer, to_numpy
from ansor.errors import DefinitionError
from ansor.ir.bounds import OptionalInterval
from ansor.ir.simplify import Bounds, interval
from ansor.te.expr import (
    Cast,
    Expr,
    Read,
    Reduce,
    Select,
    Var,
    children,
    every_node,
    reached,
    rewrite,
)
from ansor.te.tensor import ComputeOp, Extent, Operation, PlaceholderOp, Tensor

Array = npt.NDArray[Any]
Style = Literal["signed", "positive"]


def constant_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor as ints.

    Raises
    ------
    DefinitionError
        If a dimension is symbolic: such a program can be compiled but not measured.
    """
    for extent in tensor.shape:
        if not isinstance(extent, int):
            raise DefinitionError(
                f"tensor {tensor.name!r} has the symbolic extent `{extent}`; "
                "only computations of constant shapes can be tuned"
            )
    return tuple(int(extent) for extent in tensor.shape)  # type: ignore[arg-type]


def fill_inputs(
    inputs: Sequence[Tensor],
    ops: Sequence[Operation],
    given: Mapping[str, Array],
    seed: int = 0,
    style: Style = "signed",
) -> list[Array]:
    """Make an array for each input.

    Parameters
    ----------
    inputs
        The placeholders.
    ops
        The computation's operations, searched for inputs that are used as indices.
    given
        Arrays of the user by input name.

    Raises
    ------
    DefinitionError
        If a given array does not fit its input, or an index input of unknown range is not given.
    """
    limits = index_limits(ops)
    arrays = []
    for position, tensor in enumerate(inputs):
        shape = constant_shape(tensor)
        array = given.get(tensor.name)
        if array is not None:
            arrays.append(_fitting(tensor, shape, array))
            continue
        rng = np.random.default_rng(np.random.SeedSequence([seed, position]))
        if tensor in limits:
            arrays.append(_positions(tensor, shape, limits[tensor], rng))
        else:
            arrays.append(_random(shape, tensor.dtype, rng, style))
    return arrays


def _fitting(tensor: Tensor, shape: tuple[int, ...], array: Array) -> Array:
    if array.shape != shape or array.dtype != to_numpy(tensor.dtype):
        raise DefinitionError(
            f"the data given for input {tensor.name!r} are {array.dtype} of shape {list(array.shape)}; "
            f"expected {tensor.dtype} of shape {list(shape)}"
        )
    return np.asarray(array, order="C")  # ascontiguousarray would give rank 0 a dimension


def _positions(tensor: Tensor, shape: tuple[int, ...], limit: int | None, rng: np.random.Generator) -> Array:
    if limit is None:
        raise DefinitionError(
            f"input {tensor.name!r} is used to compute an index, and random numbers would point anywhere; "
            f"supply its data: SearchTask(..., task_inputs={{{tensor.name!r}: array}})"
        )
    high = min(limit - 1, int_range(tensor.dtype)[1])
    return rng.integers(0, high, shape, np.int64, endpoint=True).astype(to_numpy(tensor.dtype))


def _random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator, style: Style) -> Array:
    kind = dtype_info(dtype).kind
    if kind == "float":
        real = np.float64 if dtype == "float64" else np.float32
        values = rng.random(shape, real)
        values *= real(0.75)
        values += real(0.25)
        if style == "signed":
            values *= rng.integers(0, 2, shape, np.int8) * np.int8(2) - np.int8(1)
        return values.astype(to_numpy(dtype), copy=False)
    if kind == "bool":
        return rng.integers(0, 2, shape, np.int8).astype(np.bool_)
    if kind == "uint" or style == "positive":
        return rng.integers(1, 15, shape, np.int8, endpoint=True).astype(to_numpy(dtype))
    small = rng.integers(-8, 8, shape, np.int8)
    return (small + (small >= 0)).astype(to_numpy(dtype))


def index_limits(ops: Sequence[Operation]) -> dict[Tensor, int | None]:
    """Inputs that are used as indices, with the number of valid positions, None where that is not known.

    Indices count that other operations compute, too; those do not that point inside whatever the inputs hold.

    Parameters
    ----------
    ops
        The computation's operations, producers first.
    """
    limits: dict[Tensor, int | None] = {}
    ranges: dict[Tensor, OptionalInterval] = {}
    for op in ops:
        if not isinstance(op, ComputeOp):
            continue
        for read in (node for node in every_node(op.body) if isinstance(node, Read)):
            for index, extent in zip(read.indices, read.tensor.shape, strict=True):
                inputs = _inputs_behind(index)
                plain = _is_plain(index)
                if not inputs or (not plain and _points_inside(index, extent, ranges)):
                    continue
                known = extent if plain and isinstance(extent, int) else None
                for tensor in inputs:
                    before = limits.get(tensor, known)
                    limits[tensor] = None if known is None or before is None else min(known, before)
        for tensor, value in zip(op.outputs, op.body, strict=True):
            if is_integer(tensor.dtype):
                ranges[tensor] = _range(value, ranges)
    return limits


def _is_plain(index: Expr) -> bool:
    """Whether an index is an element of an input, copied and converted at most."""
    while True:
        match index:
            case Cast(a=a):
                index = a
            case Read(tensor=tensor) if isinstance(tensor.op, ComputeOp):
                index = tensor.op.body[tensor.value_index]
            case _:
                return isinstance(index, Read)


def _inputs_behind(index: Expr) -> list[Tensor]:
    """The inputs whose elements an index is made of; a bool is 0 or 1 whatever it is made of."""
    reads = [node for node in reached(index, _parts) if isinstance(node, Read) and node.dtype != "bool"]
    return [read.tensor for read in reads if isinstance(read.tensor.op, PlaceholderOp)]


def _parts(node: Expr) -> tuple[Expr, ...]:
    """What a value is made of; what decides which of two it is, or where one lies, is no part of it."""
    if node.dtype == "bool":
        return ()
    match node:
        case Read(tensor=tensor):
            return (tensor.op.body[tensor.value_index],) if isinstance(tensor.op, ComputeOp) else ()
        case Select(then=then, other=other):
            return then, other
        case Reduce(combiner=combiner, sources=sources, index=index):
            used = set(reached(combiner.result[index], _parts))
            pairs = zip(sources, combiner.lhs, combiner.rhs, strict=True)
            return tuple(source for source, *both in pairs if not used.isdisjoint(both))
        case _:
            return children(node)


def _points_inside(index: Expr, extent: Extent, ranges: Mapping[Tensor, OptionalInterval]) -> bool:
    """Whether an index is valid whatever the inputs hold."""
    low, high = _range(index, ranges)
    return isinstance(extent, int) and low is not None and low >= 0 and high is not None and high < extent


def _range(value: Expr, ranges: Mapping[Tensor, OptionalInterval]) -> OptionalInterval:
    """The values of an integer expression, where `ranges` holds those of tensors that it reads."""
    known: dict[Var, OptionalInterval] = {}

    def variable(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node.tensor not in ranges:
            return None
        var = Var(node.tensor.name, node.dtype)
        known[var] = ranges[node.tensor]
        return var

    replaced = rewrite(value, variable)
    return interval(replaced, Bounds(known))
