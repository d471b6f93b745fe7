"""Where a lowered program keeps its data: parameters, scratch buffers, and where scratch is allocated.

Parameters hold whole tensors. Every other stage gets scratch of the extent of its region, allocated at the
top of the function, or in the body of the innermost loop around the stage whose iterations run side by
side: they must not share it. (Threads of a block do share what is in "shared" memory.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ansor.errors import DefinitionError, ScheduleError
from ansor.ir.nest import Buffer
from ansor.schedule.bounds import Bounds, loops_outwards
from ansor.schedule.extents import Extent, is_one, where
from ansor.schedule.layout import LAYOUT_ATTR
from ansor.schedule.naming import fresh_name
from ansor.schedule.stages import Annotation, ComputeAt, Stage
from ansor.schedule.state import State
from ansor.te.expr import Expr
from ansor.te.tensor import PlaceholderOp, Tensor

Result = tuple[int, int]
"""One output of one stage: the stage's position, the output's."""
_AT_ONCE: Final = (Annotation.PARALLEL, Annotation.PIPELINE)
"""Several iterations of loops with one of these are under way at the same time."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The function's parameters: `order` as passed, `results` those that a stage reads or computes."""

    order: tuple[Buffer, ...]
    results: Mapping[Result, Buffer]
    outputs: tuple[int, ...]
    """Positions of the parameters that are computed."""


def make_parameters(state: State, args: Sequence[Tensor]) -> Parameters:
    """One buffer per argument; an input that nothing reads is a parameter all the same.

    Raises
    ------
    DefinitionError
        If a tensor is given twice, or an input or output of the graph is missing.
    ScheduleError
        If an argument is not of this graph, or computed on the way, but not at root, or in another layout or
        dtype.
    """
    order: list[Buffer] = []
    results: dict[Result, Buffer] = {}
    names: set[str] = set()
    given: set[Tensor] = set()
    for tensor in args:
        buffer = Buffer(fresh_name(tensor.name, names), tensor.dtype, tensor.shape)
        order.append(buffer)
        unused = isinstance(tensor.op, PlaceholderOp) and not state.has_stage(tensor)
        key = None if unused else (state.stage_id(tensor), tensor.value_index)
        if tensor in given or key in results:
            raise DefinitionError(f"lower: the tensor {tensor.name!r} is given twice")
        given.add(tensor)
        if key is not None:
            _check_place(state.stages[key[0]], tensor)
            results[key] = buffer
    for tensor in state.dag.tensors:
        if (state.stage_id(tensor), tensor.value_index) not in results:
            kind = "input" if isinstance(tensor.op, PlaceholderOp) else "output"
            raise DefinitionError(
                f"lower: the {kind} {tensor.name!r} is missing from the arguments "
                f"({', '.join(t.name for t in args)})"
            )
    outputs = tuple(p for p, tensor in enumerate(args) if not isinstance(tensor.op, PlaceholderOp))
    return Parameters(tuple(order), results, outputs)


def _check_place(stage: Stage, tensor: Tensor) -> None:
    if stage.is_placeholder:
        return
    stored = stage.op.attrs.get(LAYOUT_ATTR)
    if stored is not None and tensor.op.attrs.get(LAYOUT_ATTR) != stored:
        raise ScheduleError(
            f"lower: {tensor.name!r} is an argument, and the schedule stores it in another layout; pass the "
            "tensor that rewrite_layout gave"
        )
    kept = stage.op.outputs[tensor.value_index].dtype
    if kept != tensor.dtype:
        raise ScheduleError(
            f"lower: {tensor.name!r} is an argument of {tensor.dtype}, and the schedule stores it converted "
            f"to {kept}; cache_read it and convert the copy, or take it out of the arguments"
        )
    if stage.compute_at is ComputeAt.ROOT:
        return
    place = "inlined" if stage.compute_at is ComputeAt.INLINED else "computed inside another stage"
    raise ScheduleError(
        f"lower: {tensor.name!r} is an argument, but its stage is {place}; "
        "leave it at root or take it out of the arguments"
    )


def make_scratch(bounds: Bounds, parameters: Parameters, *, kernels: bool) -> dict[Result, Buffer]:
    """A buffer for everything that is computed and is no parameter; what `kernels` pass on is global."""
    scratch: dict[Result, Buffer] = {}
    for stage_id, known in bounds.stages.items():
        stage = bounds.state.stages[stage_id]
        shape = tuple(region.width for region in known.region)
        for index, tensor in enumerate(stage.op.outputs):
            if (stage_id, index) not in parameters.results:
                strides = padded_strides(stage, shape)
                scope = "global" if kernels and stage.compute_at is ComputeAt.ROOT else stage.scope
                tile = kernels and scope == "shared"
                kept = (stage.lead, bool(stage.swizzle)) if tile else (0, False)
                scratch[stage_id, index] = Buffer(tensor.name, tensor.dtype, shape, scope, strides, *kept)  # type: ignore[arg-type]
    return scratch


def padded_strides(stage: Stage, shape: Sequence[Extent]) -> tuple[Any, ...] | None:
    """Row-major strides padded as storage_align asks, None where nothing is asked; columns for columns.

    A record may align a loop that is no axis of the storage (a reduction, a part of a split); that has no
    effect.
    """
    if stage.storage_align is None:
        return None
    name, factor, offset = stage.storage_align
    axes = [axis.name for axis in stage.compute.axis]
    if name not in axes:
        return None
    strides: list[Any] = []
    stride: Any = 1
    for axis, extent in zip(reversed(axes), reversed(shape), strict=True):
        if isinstance(extent, Expr):
            raise ScheduleError(
                f"storage_align of stage {stage.name!r}: its storage has a symbolic size; "
                "only storage of a known size can be padded"
            )
        if axis == name:
            stride = stride + (offset - stride) % factor
        strides.append(stride)
        stride = stride * extent
    return tuple(reversed(strides))


def swizzled_width(stage: Stage, shape: Sequence[Extent]) -> Any:
    """Elements of a row of swizzled storage, 1 where it is not, or padded; columns for columns."""
    swizzled: Any = stage.swizzle
    stride: Any = 1
    for own, extent in zip(reversed(padded_strides(stage, shape) or ()), reversed(shape), strict=False):
        swizzled = swizzled & (own == stride)
        stride = stride * extent
    return where(swizzled, shape[-1], 1) if shape else 1  # type: ignore[arg-type]


def home(state: State, stage_id: int) -> tuple[int, int] | None:
    """The loop `(stage, position)` in whose body a stage's scratch is allocated; None for the function."""
    shared = state.stages[stage_id].scope == "shared"
    for target, position in loops_outwards(state, stage_id):
        loop = state.stages[target].iterators[position]
        threads = loop.annotation.is_thread or loop.annotation is Annotation.VTHREAD
        side_by_side = threads or loop.annotation.is_block or loop.annotation in _AT_ONCE
        if side_by_side and not is_one(loop.extent) and not (shared and threads):
            return target, position
    return None
