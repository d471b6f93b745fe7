"""Inputs that the caller prepares once: a constant in the form in which an algorithm reads it.

A layout is a rearrangement of the data (`ansor.schedule.layout`); some algorithms want more, such as the
transformed weights of Winograd's convolution. The input of such a computation stands for another one, of
which it is a function, given as a small graph: `te.prepared(kernel)` for a tensor computed from one
placeholder. Bringing the data into that form, `transform_layout`, is part of no call.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.errors import ArgumentError, DefinitionError
from ansor.te.interp import evaluate
from ansor.te.tensor import ComputeOp, PlaceholderOp, Tensor, format_shape

Array = npt.NDArray[Any]
PREPARED_ATTR: Final = "prepared_from"


def prepared(result: Tensor) -> Tensor:
    """
    Make the input that stands for a function of another input.

    The caller has the other one, and brings its data into this form by `ansor.transform_layout`, once.

    Parameters
    ----------
    result
        Computed from one placeholder, whose name and meaning the new input has.

    Raises
    ------
    DefinitionError
        If it is not.
    """
    if not isinstance(result, Tensor):
        raise DefinitionError(f"te.prepared({result!r}): it must be a tensor, such as one of te.compute")
    if not isinstance(result.op, ComputeOp):
        raise DefinitionError(f"te.prepared({result.name!r}): it is an input; nothing is to be prepared")
    sources = _inputs_of(result)
    if len(sources) != 1:
        names = ", ".join(source.name for source in sources) or "none"
        raise DefinitionError(
            f"te.prepared({result.name!r}): it must be computed from exactly one input, found {names}"
        )
    op = PlaceholderOp(
        sources[0].name, result.shape, result.dtype, attrs={PREPARED_ATTR: (sources[0], result)}
    )
    return op.output(0)


def result_of(op: PlaceholderOp) -> Tensor | None:
    """The tensor, computed from another input, that an input stands for, if any."""
    found: tuple[Tensor, Tensor] | None = op.attrs.get(PREPARED_ATTR)
    return None if found is None else found[1]


def source_of(tensor: Tensor) -> Tensor:
    """The input that the caller has: `tensor` itself if nothing is to be prepared."""
    found: tuple[Tensor, Tensor] | None = tensor.op.attrs.get(PREPARED_ATTR)
    return tensor if found is None else found[0]


def prepare(array: Array, tensor: Tensor) -> Array:
    """
    Compute what an input stands for from the data of its source; the array itself if it is the source.

    Raises
    ------
    ArgumentError
        If the array's shape is not that of the source.
    """
    found: tuple[Tensor, Tensor] | None = tensor.op.attrs.get(PREPARED_ATTR)
    if found is None:
        return array
    source, result = found
    if array.shape != tuple(source.shape):
        raise ArgumentError(
            f"input {tensor.name!r} is prepared from an array of shape {format_shape(source.shape)}, "
            f"found {array.shape}"
        )
    data: Array = evaluate(result, {source: np.ascontiguousarray(array)})[result]
    return data


def _inputs_of(tensor: Tensor) -> list[Tensor]:
    """All placeholders that a tensor depends on."""
    found: dict[Tensor, None] = {}
    waiting, seen = [tensor], {tensor}
    while waiting:
        op = waiting.pop().op
        if isinstance(op, PlaceholderOp):
            found[op.output(0)] = None
            continue
        fresh = [one for one in op.input_tensors if one not in seen]
        seen.update(fresh)
        waiting += fresh
    return list(found)
