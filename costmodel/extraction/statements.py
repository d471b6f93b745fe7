"""The statements of a form: their loops, and every access as linear terms over those loops.

A statement's loops are those around the place where its stage is computed, outermost first, then its own;
loops with one iteration in every row are left out. An index becomes, per dimension, a coefficient for each
loop: with them every region, stride and reuse is closed-form arithmetic on columns.

Indices are counted in the memory that is accessed: from the start of the region for scratch, so that a loop
around an attached stage does not occur in the indices of its scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ansor.alignment import CALLERS
from ansor.dtypes import dtype_info
from ansor.errors import DefinitionError
from ansor.schedule.affine import (
    Affine,
    Atom,
    Interval,
    LoopAtom,
    UnknownBoundError,
)
from ansor.schedule.bounds import StageBounds, enclosing_loops, local_axes
from ansor.schedule.evaluation import divisions, evaluate
from ansor.schedule.extents import Extent, extent_of, is_one
from ansor.schedule.inlining import effective_body
from ansor.schedule.kernel_usage import KernelUsage, kernel_usages
from ansor.schedule.layout import layout_of
from ansor.schedule.skipping import needed_parts
from ansor.schedule.stages import Annotation, ComputeAt, FuseRelation, IteratorKind, SplitRelation
from ansor.schedule.storage import padded_strides, swizzled_width
from ansor.task.device import DeviceModel
from ansor.te.expr import Expr, Var
from ansor.te.preparation import source_of
from ansor.te.tensor import Tensor
from costmodel.extraction.body import Access, Body, body_of
from costmodel.extraction.conditions import all_hold, occurrences
from costmodel.extraction.flips import flips
from costmodel.extraction.form import Form, Mask
from costmodel.extraction.indices import Dimension, Loop, LoopIndices, Value
from costmodel.extraction.layouts import loop_order, rewritten_inputs
from costmodel.extraction.skips import Skip, skips_of
from costmodel.extraction.warps import SHARED, Warp, WarpAccess, space_of

READ, WRITE, READ_WRITE = 0, 1, 2

_MOST_DIVISIONS = 8
"""In one index: each takes what is divided apart in two, so that the work doubles with every one."""


@dataclass(slots=True, eq=False)
class Touch:
    """
    How a statement touches one buffer.

    Parameters
    ----------
    kind
        `READ`, `WRITE` or `READ_WRITE`.
    count
        Distinct indices per point.
    element_bytes
        Size of an element.
    dimensions
        The indices.
    shared
        How many of the outer loops also enclose the statement that wrote the buffer; 0 for an input, or if
        it was written elsewhere.
    behind_line
        Bytes between the beginning of a cache line and that of the buffer.
    flips
        Whether each load takes one more instruction for the sign of what it loads (`flips`).
    warp
        What a warp of a GPU touches; None on a CPU.
    """

    kind: int
    count: int
    element_bytes: int
    dimensions: list[Dimension]
    shared: int
    behind_line: Value = 0
    flips: bool = False
    warp: WarpAccess | None = None


@dataclass(slots=True, eq=False)
class Statement:
    """
    One stored statement of a form.

    Parameters
    ----------
    stage, output
        What is stored.
    body
        Facts of the stored value.
    loops
        All loops, outermost first.
    depth
        How many of them are around the stage; the others are its own.
    parent
        Number of the statement in whose loops the stage is computed, -1 at root.
    touches
        The stored buffer first, then what is read.
    is_scratch
        Whether the stored buffer is allocated by the program.
    needed
        Points that one visit of the stage has to compute.
    whole, reduced
        Points that the operation has, and of them those of one element's reduction.
    unroll_steps
        Limit of the unroll pragma, 0 without one.
    virtual
        Virtual threads of a GPU's thread.
    streaming
        Whether its stores may pass the caches by.
    divisions
        Divisions and remainders in the indices of one point.
    combines_pairs
        See `Body`; where all conditions on axes are known to hold.
    counts
        Occurrences per point, in the order of `COUNTS`; shape ``(len(COUNTS), rows)``, or one column for all.
    skips
        What of its updates lowering leaves out.
    kernel
        What the kernel takes that the statement is part of; None on a CPU.
    """

    stage: int
    output: int
    body: Body
    loops: list[Loop]
    depth: int
    parent: int
    touches: list[Touch]
    is_scratch: bool
    needed: Value
    whole: Value
    reduced: Value
    unroll_steps: Value
    virtual: Value
    streaming: Mask
    divisions: Value
    combines_pairs: Mask
    counts: NDArray[np.float64]
    skips: tuple[Skip, ...] = ()
    kernel: KernelUsage | None = None


def statements_of(
    form: Form, device: DeviceModel | None = None, rewrites_layouts: bool = False
) -> list[Statement]:
    """List the stored statements of a form in stage order.

    Parameters
    ----------
    form
        The programs.
    device
        The GPU that they are for; None for a CPU.
    rewrites_layouts
        Whether inputs that are free of layout lie in the order of their reader's loops.

    Raises
    ------
    DefinitionError
        If an extent is symbolic.
    """
    return _Gatherer(form, device, rewrites_layouts).run()


class _Gatherer:
    def __init__(self, form: Form, device: DeviceModel | None, rewrites_layouts: bool) -> None:
        self.form, self.device = form, device
        self.state = form.state
        self.stages = form.bounds.stages
        self.arguments = {
            (self.state.stage_id(tensor), tensor.value_index) for tensor in self.state.dag.tensors
        }
        self.loops = {
            stage_id: {
                position: (LoopAtom(stage_id, loop.name), loop.kind is not IteratorKind.SPATIAL)
                for position, loop in enumerate(self.state.stages[stage_id].iterators)
                if not is_one(known.extents[loop.name])
            }
            for stage_id, known in self.stages.items()
        }
        self.rewritten = rewritten_inputs(self.state) if rewrites_layouts else {}
        self._around: dict[int, list[tuple[LoopAtom, bool]]] = {}
        kernels = () if device is None else kernel_usages(form.bounds)
        self.kernels = {stage_id: kernel for kernel in kernels for stage_id in kernel.stages}

    def run(self) -> list[Statement]:
        first: dict[int, int] = {}
        made: list[Statement] = []
        for stage_id, stage in enumerate(self.state.stages):
            if stage.is_placeholder or stage.compute_at is ComputeAt.INLINED:
                continue
            first[stage_id] = len(made)
            made.extend(_StageGatherer(self, stage_id).statements())
        for statement in made:
            place = self.state.attach.get(statement.stage)
            statement.parent = -1 if place is None else first[place[0]]
        return made

    def around(self, stage_id: int) -> list[tuple[LoopAtom, bool]]:
        """Loops around a stage, outermost first, without those of one iteration; and whether each reduces."""
        known = self._around.get(stage_id)
        if known is None:
            chain: dict[int, list[tuple[LoopAtom, bool]]] = {}
            for target, position in enclosing_loops(self.state, stage_id):
                if position in self.loops[target]:
                    chain.setdefault(target, []).append(self.loops[target][position])
            known = [loop for found in reversed(chain.values()) for loop in found]
            self._around[stage_id] = known
        return known

    def is_thread(self, atom: LoopAtom) -> bool:
        """Whether a loop runs over threads, real or virtual."""
        marks = self.form.marks.get((atom.stage, atom.name), {})
        return any(mark.is_thread or mark is Annotation.VTHREAD for mark in marks)

    def number(self, extent: Extent, what: str) -> Value:
        """Return an extent, which must be known."""
        if isinstance(extent, Expr):
            raise DefinitionError(
                f"features need numbers, but {what} of this program has the size {extent}; "
                "make the task from a computation with constant sizes"
            )
        return extent


class _StageGatherer:
    """The statements of one stage, which differ in their output only."""

    def __init__(self, parent: _Gatherer, stage_id: int) -> None:
        self.all = parent
        self.form, self.state = parent.form, parent.state
        self.stage_id = stage_id
        self.stage = parent.state.stages[stage_id]
        self.bounds = parent.stages[stage_id]
        outer = parent.around(stage_id)
        found = [*outer, *parent.loops[stage_id].values()]
        self.depth = len(outer)
        self.loops = [self._loop(atom, reduces) for atom, reduces in found]
        if self.stage.scope == "shared":  # The threads around fill it together, once.
            for number, (atom, reduces) in enumerate(outer):
                if parent.is_thread(atom):
                    self.loops[number] = Loop(1, reduces, {})
        self.numbers = numbers = {atom: position for position, (atom, _) in enumerate(found)}
        self.indices = LoopIndices(self.loops, numbers, self.form.rows)
        self.local = self._local_axes()
        op = self.stage.compute
        self.axes: dict[Var, Interval] = {
            axis: _moved(self.local[axis.name], region.base)
            for axis, region in zip(op.axis, self.bounds.region, strict=True)
        }
        self.axes.update((axis, self.local[axis.name]) for axis in op.reduce_axis)
        device = parent.device
        self.warp = (
            None if device is None else Warp(self.loops, numbers, self.form.rows, device, self._guarded())
        )

    def _guarded(self) -> list[tuple[Affine, Value]]:
        """The loops, past and present, and axes of the stage that must not run too far, and how far."""
        extents = self.bounds.extents
        below = [(one.base, self.all.number(extents[name], "a loop")) for name, one in self.local.items()]
        axes = [(self.axes[axis].base, extent_of(axis.extent)) for axis in self.stage.compute.axis]
        return [*below, *((form, self.all.number(extent, "an axis")) for form, extent in axes)]

    def _loop(self, atom: LoopAtom, reduces: bool) -> Loop:
        extent = self.all.number(self.all.stages[atom.stage].extents[atom.name], "a loop")
        return Loop(extent, reduces, self.form.marks.get((atom.stage, atom.name), {}))

    def _local_axes(self) -> Mapping[str, Interval]:
        """The axes as forms of own loops, counted from the start of the region (`local_axes`).

        Where loops were only split, an axis moves with each of its parts by the product of the lengths
        inside that part.
        """
        stage, extents = self.stage, self.bounds.extents
        if any(isinstance(relation, FuseRelation) for relation in stage.relations):
            return local_axes(stage, self.stage_id, extents, None)
        op = stage.compute
        origin: dict[str, tuple[str, Value]] = {
            axis.name: (axis.name, 1) for axis in (*op.axis, *op.reduce_axis)
        }
        for relation in stage.relations:
            assert isinstance(relation, SplitRelation)
            axis, stride = origin.pop(relation.parent)
            for part in reversed(relation.parts):
                origin[part] = axis, stride
                stride = stride * self.all.number(extents[part], "a loop")
        terms: dict[str, dict[Atom, Value]] = {axis.name: {} for axis in (*op.axis, *op.reduce_axis)}
        for atom, _ in self.all.loops[self.stage_id].values():
            axis, stride = origin[atom.name]
            terms[axis][atom] = stride
        return {axis: Interval.point(Affine(0, found)) for axis, found in terms.items()}

    def statements(self) -> list[Statement]:
        op = self.stage.compute
        widths = [self.all.number(r.width, "a region") for r in self.bounds.region]
        reduce_extents = [self.all.number(extent_of(a.extent), "an axis") for a in op.reduce_axis]
        full = [self.all.number(extent_of(a.extent), "an axis") for a in op.axis]
        axes, extents = (*op.axis, *op.reduce_axis), (*full, *reduce_extents)
        whole = dict[Var, Value](zip(axes, extents, strict=True))
        steps = self.form.unroll_steps.get(self.stage_id, 0)
        made = []
        for output, tensor in enumerate(op.outputs):
            body = body_of(self.state, self.stage_id, output)
            store = self._store(tensor, body.is_reduction)
            touches = [
                store,
                *(self._store(op.outputs[other], None) for other in body.siblings),
                *(self._read(access) for access in body.accesses),
            ]
            made.append(
                Statement(
                    stage=self.stage_id,
                    output=output,
                    body=body,
                    loops=self.loops,
                    depth=self.depth,
                    parent=-1,
                    touches=touches,
                    is_scratch=(self.stage_id, output) not in self.all.arguments,
                    needed=prod([*widths, *reduce_extents]),
                    whole=prod([*full, *reduce_extents]),
                    reduced=prod(reduce_extents),
                    unroll_steps=steps if isinstance(steps, np.ndarray) else max(int(steps), 0),  # type: ignore[arg-type]
                    virtual=prod([x.extent for x in self.loops if Annotation.VTHREAD in x.marks]),
                    streaming=self.form.streaming.get(self.stage_id, False),
                    divisions=sum(d.divisions for touch in touches for d in touch.dimensions),
                    counts=occurrences(body, whole),
                    combines_pairs=body.combines_pairs and all_hold(body.conditions, whole),
                    skips=self._skips(output),
                    kernel=self.all.kernels.get(self.stage_id),
                )
            )
        return made

    def _skips(self, output: int) -> tuple[Skip, ...]:
        """What is left out of the updates of an output: nothing on a GPU."""
        if self.all.device is not None:
            return ()
        op, root = self.stage.compute, effective_body(self.state, self.stage_id)[output]
        parts = needed_parts(root, (*op.axis, *op.reduce_axis))
        return skips_of(parts, op.axis, self.axes, self.indices)

    def _store(self, tensor: Tensor, updates: bool | None) -> Touch:
        """The stage's own element of an output: updated, written, or only read (None)."""
        forms = [self.local[axis.name] for axis in self.stage.compute.axis]
        if (self.stage_id, tensor.value_index) in self.all.arguments:
            forms = [self.axes[axis] for axis in self.stage.compute.axis]
        dimensions, bases = self._dimensions(forms, self.stage_id, tensor, placed=True)
        kind = READ if updates is None else READ_WRITE if updates else WRITE
        warp = self._in_warp(self.stage_id, tensor, bases, dimensions)
        return Touch(kind, 1, dtype_info(tensor.dtype).bytes, dimensions, 0, warp=warp)

    def _read(self, access: Access) -> Touch:
        producer = self.state.stage_id(access.tensor)
        forms = [self._index(index) for index in access.indices]
        dimensions, bases = self._dimensions(forms, producer, access.tensor)
        size = dtype_info(access.tensor.dtype).bytes
        for at, (index, form, spread) in enumerate(zip(access.indices, forms, access.spread, strict=True)):
            dimensions[at].spread = dimensions[at].spread + spread
            if form is None:
                known = dimensions[at]
                dimensions[at] = self.indices.anywhere(index, self.axes, known.spread, known.shape)
        behind: Value = CALLERS if self._is_callers(producer, access.tensor) else 0
        rewritten = self.all.rewritten.get(producer)
        if rewritten is not None and rewritten.reader == self.stage_id:
            first = rewritten.leading
            inner, places, rows = self._in_loop_order(dimensions[first:], forms[first:], bases[first:])
            dimensions, bases = [*dimensions[:first], *inner], [*bases[:first], *places]
            behind = behind * (1 - rows)
        warp = self._in_warp(producer, access.tensor, bases, dimensions)
        shared = 0
        if producer in self.state.attach:
            shared = min(len(self.all.around(producer)), self.depth + len(self.loops))
        pays = flips(self.state, self.stage_id, access)
        return Touch(READ, access.count, size, dimensions, shared, behind, pays, warp)

    def _is_callers(self, producer: int, tensor: Tensor) -> bool:
        """Whether a buffer is an array as the caller has it, not one of `transform_layout`."""
        placeholder = self.state.stages[producer].is_placeholder
        return placeholder and layout_of(tensor) is None and source_of(tensor) is tensor

    def _in_loop_order(
        self, dimensions: list[Dimension], forms: Sequence[Interval | None], bases: list[Affine | None]
    ) -> tuple[list[Dimension], list[Affine | None], Value]:
        """An input's indices and their forms where it lies in the order of the loops, else as they are.

        And in which rows it does, 0 or 1.
        """
        extents = [loop.extent for loop in self.loops]
        order = loop_order(forms, [dimension.shape for dimension in dimensions], self.numbers, extents)
        if order is None:
            return dimensions, bases, 0
        if np.all(order.rows):
            return [self.indices.dimension(order.index, 0, order.size)], [order.index], 1
        laid = np.asarray(order.rows, np.int64)
        placed = [order.index.scale(laid), *(base.scale(1 - laid) for base in bases if base is not None)]
        shapes = [
            np.where(laid, order.size, 1),
            *(np.where(laid, 1, dimension.shape) for dimension in dimensions),
        ]
        made = [self.indices.dimension(base, 0, shape) for base, shape in zip(placed, shapes, strict=True)]
        return made, list(placed), laid

    def _in_warp(
        self,
        producer: int,
        tensor: Tensor,
        bases: Sequence[Affine | None],
        dimensions: Sequence[Dimension],
    ) -> WarpAccess | None:
        """What a warp touches of a buffer, and how often that is filled if it is shared."""
        if self.warp is None:
            return None
        space, stage = space_of(self.state, producer), self.state.stages[producer]
        shape = [dimension.shape for dimension in dimensions]
        strides = None
        if (producer, tensor.value_index) not in self.all.arguments:
            strides = padded_strides(stage, shape)
        size = dtype_info(tensor.dtype).bytes
        width = swizzled_width(stage, shape) if space == SHARED else 1
        found = self.warp.access(space, bases, _row_major(shape) if strides is None else strides, size, width)
        if space != SHARED:
            return found
        around = [atom for atom, _ in self.all.around(producer) if not self.all.is_thread(atom)]
        return replace(found, fills=prod([self.all.stages[a.stage].extents[a.name] for a in around]))

    def _index(self, index: Expr) -> Interval | None:
        """An index over the loops; None where data decide, or so many divisions that it looks like that."""
        if divisions(index) > _MOST_DIVISIONS:
            return None
        try:
            return evaluate(index, self.axes)
        except UnknownBoundError:
            return None

    def _dimensions(
        self, forms: Sequence[Interval | None], producer: int, tensor: Tensor, placed: bool = False
    ) -> tuple[list[Dimension], list[Affine | None]]:
        """Indices of a buffer as terms, counted from the start of its region for scratch (or so already).

        Also as forms, None where data decide.
        """
        known: StageBounds | None = self.all.stages.get(producer)
        local = known is not None and (producer, tensor.value_index) not in self.all.arguments
        made: list[Dimension] = []
        bases: list[Affine | None] = []
        for position, form in enumerate(forms):
            if local:
                assert known is not None
                region = known.region[position]
                shape, base = region.width, None if placed or not region.base.terms else region.base
            else:
                shape, base = extent_of(tensor.shape[position]), None
            extent = self.all.number(shape, "a buffer")
            if form is None:
                made.append(Dimension({}, 0, extent))
                bases.append(None)
                continue
            width = self.all.number(form.width, "an index")
            placed_form = form.base if base is None else form.base - base
            bases.append(placed_form)
            made.append(self.indices.dimension(placed_form, width - 1, extent))
        return made, bases


def _moved(interval: Interval, base: Affine) -> Interval:
    """An interval of own loops, started at a place that depends on the loops around."""
    own = interval.base
    if not base.terms:
        return Interval(own.shift(base.const), interval.width)
    return Interval(Affine(own.const + base.const, {**base.terms, **own.terms}), interval.width)


def _row_major(shape: Sequence[Value]) -> list[Value]:
    """The strides of a dense buffer."""
    strides: list[Value] = []
    stride: Value = 1
    for extent in reversed(shape):
        strides.append(stride)
        stride = stride * extent
    return strides[::-1]
