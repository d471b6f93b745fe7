"""Packing: a tile of an input goes through contiguous scratch.

A register tile reads its operands at strides. Rows of A at a power-of-two distance fall into the same few
cache sets and evict each other; a panel of B spreads over as many pages as it has rows. Copied once per tile
into the order in which the innermost loops read it, the same data lies in consecutive cache lines, at the
price of one copy per reuse.

`FollowLayoutStep` gives the copy one dimension for each loop that indexes the input, so the layout is always
that of the reader's tiles, whatever lengths are drawn: for "SSRSRS" and A[i, k], inside `k.0`, it is
`[i.2][k.1][i.3]`. Loops that a window adds up have one dimension together. The copy is an ordinary stage:
sampling may move it to another loop.
If the reader widens what it reads, the copy holds that (see `conversions`).

Source: Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008. Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final, NamedTuple

from ansor.dtypes import dtype_info
from ansor.schedule.layout_reading import Reading, reading_axes
from ansor.schedule.state import State
from ansor.schedule.steps import CacheReadPartStep, FollowLayoutStep, StoreConvertedStep
from ansor.te.expr import int_value
from sketches.relations import axes_of_reads, is_computed, is_copy, is_tiled, needs_tiling, vector_axis
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.conversions import is_widened
from sketches.rules.gpu_memory import shared_place

PACKED_SCOPE = "local"
"""Where packed tiles are kept; part of the new stage's name."""

SHARE: Final = 4
"""A matrix of less than the second cache by this is read where it is: products of 512, 1 MiB, gain 8 %."""


class _Reading(NamedTuple):
    """A stage that reads a tensor, and in which way, if it does in several (`CacheReadPartStep`)."""

    reader: int
    part: int | None = None


@dataclass(frozen=True, slots=True)
class AddPackedRead:
    """A tensor that a tiled stage reads again and again -> also a variant that packs the reader's tile.

    Every tensor is decided on its own: a matrix product has variants that pack neither operand, one, or both.
    What vectors of turned tiles would gather is packed in all of them (`turned_tiles`).
    If other vectors lie across several tensors, all of these are packed or none, as one gather is as slow.
    One that a stage reads along different axes, as a product with its own transpose does, has a copy for each
    way that gains by it.
    What a window passes over, as K[i + w, k] of sliding attention, is packed where vectors lie across it;
    the copy holds a tile and its margin.
    Left out are tensors of which nothing is reused, those read at computed indices, and constants whose
    layout the task rewrites anyway, unless the copy holds them converted.

    Parameters
    ----------
    everything
        Whether tensors read at axes alone are packed that are neither of dtypes below 32 bits, which vectors
        read in an order of their own, nor panels (`_is_panel`).
    """

    everything: bool = True
    name: ClassVar[str] = "AddPackedRead"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        readings = self._readings(context, state, stage_id)
        if not readings:
            return Verdict.PASS
        parts = [_apart(state, stage_id, reading) for reading in readings]
        across = [(apart, read, reader) for apart, read, reader in parts if _is_across(apart, read, reader)]
        if any(_is_turned(apart, reader) for apart, _, reader in across):
            return Verdict.APPLY_AND_SKIP_REST
        decided = [
            (apart, other, reader)
            for apart, read, reader in across
            for other in apart.direct_producers(reader)
            if other > read
        ]
        left = (other for other in decided if _is_across(*other) and self._fits(context, *other))
        if any(self._packs(context, *other) for other in left):
            return Verdict.PASS
        together = any(_is_packed_along(*other) for other in decided)
        return Verdict.APPLY_AND_SKIP_REST if together else Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        copy = stage_id + 1
        for added, (reader, part) in enumerate(self._readings(context, state, stage_id)):
            target = reader + added + 1
            if part is None:
                state = state.cache_read(stage_id, PACKED_SCOPE, [reader + added])
            else:
                state = state.apply(CacheReadPartStep(stage_id, PACKED_SCOPE, (reader + added,), part))
            state = state.apply(FollowLayoutStep(copy, target))
            if context.params.cpu_store_converted and is_widened(state, copy):
                state = state.apply(StoreConvertedStep(copy))
            place = shared_place(state, target)
            assert place is not None
            state = state.compute_at(copy, target, place)
        return [(state, stage_id)]

    def _readings(self, context: SketchContext, state: State, stage_id: int) -> list[_Reading]:
        """What tiled stages read of this tensor that can be packed: stages ascending, ways descending."""
        source = state.stages[stage_id].op
        if source.num_outputs != 1:
            return []
        return [
            reading
            for reader in sorted(state.stage_id(op) for op in state.access.consumers(source))
            for reading in _ways(state, stage_id, reader)
            if self._fits(context, state, stage_id, reader)
            and self._packs(context, *_apart(state, stage_id, reading))
        ]

    def _packs(self, context: SketchContext, state: State, stage_id: int, reader: int) -> bool:
        """Whether a tiled stage gains by a copy of a tensor that it reads in one way."""
        return is_packable(state, stage_id, reader) and self._gains(context, state, stage_id, reader)

    def _gains(self, context: SketchContext, state: State, stage_id: int, reader: int) -> bool:
        tensor = state.stages[stage_id].op.output(0)
        is_wanted = self.everything or dtype_info(tensor.dtype).bits < 32
        if is_wanted and not _has_windows(state, stage_id, reader):
            return True
        return _is_panel(state, stage_id, reader, context.hardware.cache_bytes[1] // SHARE)

    @staticmethod
    def _fits(context: SketchContext, state: State, stage_id: int, reader: int) -> bool:
        if not is_computed(state, reader) or not is_tiled(state, reader) or not needs_tiling(state, reader):
            return False
        if shared_place(state, reader) is None:
            return False
        op = state.stages[reader].compute
        is_free = not context.free_layouts(op).isdisjoint(state.stages[stage_id].handles)
        return not is_free or bool(context.params.cpu_store_converted and is_widened(state, stage_id))


def _ways(state: State, stage_id: int, reader: int) -> list[_Reading]:
    """The ways in which a stage reads another, last first: a copy leaves those before it their numbers."""
    count = len(axes_of_reads(state, stage_id, reader))
    return [_Reading(reader, part) for part in reversed(range(count))] if count > 1 else [_Reading(reader)]


def _apart(state: State, stage_id: int, reading: _Reading) -> tuple[State, int, int]:
    """A state in which the reader reads a stage in one way; this stage and the reader there."""
    reader, part = reading
    if part is None:
        return state, stage_id, reader
    step = CacheReadPartStep(stage_id, PACKED_SCOPE, (reader,), part)
    return state.apply(step), stage_id + 1, reader + 1


def is_packable(state: State, stage_id: int, reader: int) -> bool:
    """Whether a stage reads a tensor at its axes, or sums of them, and all of it again along another axis.

    Axes that a window adds up read the same elements at other iterations of each other.
    """
    source, found = state.stages[stage_id].op, reading_axes(state, stage_id, reader)
    if source.num_outputs != 1 or isinstance(found, str) or not _axes_read(found):
        return False
    op = state.stages[reader].compute
    wide = {axis.name for axis in (*op.axis, *op.reduce_axis) if int_value(axis.extent) != 1}
    others = any(axis.name in wide - _axes_read(found) for axis in op.axis)
    return others or any(len(wide.intersection(reading.steps)) > 1 for reading in found)


def _axes_read(found: Sequence[Reading]) -> set[str]:
    """The names of the axes along which a tensor is read."""
    return {name for reading in found for name in reading.steps}


def _is_panel(state: State, stage_id: int, reader: int, room: int) -> bool:
    """Whether vectors of a product, an iteration of its reduction after the other, lie apart in a tensor.

    Where they do not run along memory they are gathered; if they do, each begins a row of the tensor, and it
    is a panel if its rows are more than `room` bytes together. That counts in products that read all at their
    axes, not for what windows of a convolution meet, unless its tiles are turned.
    """
    tensor, op = state.stages[stage_id].op.output(0), state.stages[reader].compute
    found = reading_axes(state, stage_id, reader)
    lanes, terms = vector_axis(state, reader).name, {axis.name for axis in op.reduce_axis}
    if isinstance(found, str) or lanes not in _axes_read(found) or terms.isdisjoint(_axes_read(found)):
        return False
    if _is_across(state, stage_id, reader):
        return True
    others = [state.stage_id(other) for other in state.access.producers(op)]
    if not _is_turned(state, reader) and any(_has_windows(state, other, reader) for other in others):
        return False
    passed = [
        extent
        for extent, reading in zip(tensor.shape, found, strict=True)
        if not {lanes, *terms}.isdisjoint(reading.steps)
    ]
    return prod(int_value(extent) or 0 for extent in passed) * dtype_info(tensor.dtype).bytes > room


def _has_windows(state: State, stage_id: int, reader: int) -> bool:
    """Whether a tensor is read at other places than the axes of its reader."""
    found = reading_axes(state, stage_id, reader)
    return isinstance(found, str) or any(reading.is_window for reading in found)


def _is_turned(state: State, reader: int) -> bool:
    """Whether vectors of a tiled stage run along another axis than the last one (`turned_tiles`)."""
    return vector_axis(state, reader) is not state.stages[reader].compute.axis[-1]


def _is_across(state: State, stage_id: int, reader: int) -> bool:
    """Whether vectors of a tiled stage lie across the memory of a tensor that it reads at sums of axes."""
    found, lanes = reading_axes(state, stage_id, reader), vector_axis(state, reader).name
    return not isinstance(found, str) and lanes in _axes_read(found) - set(found[-1].steps)


def _is_packed_along(state: State, stage_id: int, reader: int) -> bool:
    """Whether what vectors of a tiled stage read is a packed copy."""
    found = reading_axes(state, stage_id, reader)
    is_read = not isinstance(found, str) and vector_axis(state, reader).name in _axes_read(found)
    return is_read and is_copy(state, stage_id)
