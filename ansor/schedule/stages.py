"""The loop structure that transform steps edit: iterators, stages and their derivation.

A `Stage` is one operation of the graph with its loops, outermost first. `relations` remember how the
loops were made from the operation's axes (splits and fuses, in order), which is all that bound inference
and lowering need to express an axis in terms of loops. Names are unique within a stage, so an iterator
is identified by its name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Union

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.extents import Extent, Number, extent_of
from ansor.te.expr import AxisKind, Combiner, IterVar, Reduce
from ansor.te.tensor import ComputeOp, Operation, PlaceholderOp


class IteratorKind(StrEnum):
    """What a loop runs over."""

    SPATIAL = "spatial"
    REDUCE = "reduce"


class Annotation(IntEnum):
    """How a loop is executed, by the codes of records (reference: TVM auto_scheduler v0.6 logs)."""

    NONE = 0
    UNROLL = 1
    VECTORIZE = 2
    PARALLEL = 3
    VTHREAD = 4
    BLOCK_X = 5
    THREAD_X = 6
    BLOCK_Y = 7
    THREAD_Y = 8
    BLOCK_Z = 9
    THREAD_Z = 10
    TENSORIZE = 11
    PIPELINE = 12

    @property
    def word(self) -> str:
        """The word that printed states use."""
        return _WORDS[self]

    @property
    def is_thread(self) -> bool:
        """Whether the loop's iterations are the threads of a GPU block."""
        return self in (Annotation.THREAD_X, Annotation.THREAD_Y, Annotation.THREAD_Z)

    @property
    def is_block(self) -> bool:
        """Whether the loop's iterations are the blocks of a GPU grid."""
        return self in (Annotation.BLOCK_X, Annotation.BLOCK_Y, Annotation.BLOCK_Z)

    @property
    def is_bound(self) -> bool:
        """Whether the loop runs over blocks or threads of a GPU."""
        return self.is_thread or self.is_block


_WORDS = {
    Annotation.NONE: "for",
    Annotation.UNROLL: "unroll",
    Annotation.VECTORIZE: "vectorize",
    Annotation.PARALLEL: "parallel",
    Annotation.VTHREAD: "vthread",
    Annotation.BLOCK_X: "blockIdx.x",
    Annotation.THREAD_X: "threadIdx.x",
    Annotation.BLOCK_Y: "blockIdx.y",
    Annotation.THREAD_Y: "threadIdx.y",
    Annotation.BLOCK_Z: "blockIdx.z",
    Annotation.THREAD_Z: "threadIdx.z",
    Annotation.TENSORIZE: "tensorize",
    Annotation.PIPELINE: "pipeline",
}


@dataclass(frozen=True, slots=True, eq=False)
class Iterator:
    """One loop. `extent` is None while unknown (before bound inference, or under an unset split)."""

    name: str
    extent: Extent | None
    kind: IteratorKind
    annotation: Annotation = Annotation.NONE

    @classmethod
    def of_axis(cls, axis: IterVar) -> Iterator:
        """The untransformed loop over an operation's axis."""
        kind = IteratorKind.SPATIAL if axis.kind is AxisKind.SPATIAL else IteratorKind.REDUCE
        return cls(axis.name, extent_of(axis.extent), kind)


@dataclass(frozen=True, slots=True, eq=False)
class SplitRelation:
    """`parent` became `parts`, outermost first.

    With `inner_to_outer`, `lengths[k]` is the length of part k+1 and part 0 runs ceil(extent / product)
    times; otherwise `lengths[k]` is the extent of part k and the last part is derived.
    """

    parent: str
    parts: tuple[str, ...]
    lengths: tuple[Extent | None, ...]
    inner_to_outer: bool


@dataclass(frozen=True, slots=True, eq=False)
class FuseRelation:
    """`parents`, outermost first, became the single loop `fused`."""

    parents: tuple[str, ...]
    fused: str


Relation = Union[SplitRelation, FuseRelation]


class ComputeAt(StrEnum):
    """Where a stage is computed."""

    ROOT = "root"
    INLINED = "inlined"
    ITER = "iter"


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """An operation and its loops.

    `handles` are all operations that have denoted this stage (stage-adding steps rebuild operations), so
    that tensors obtained earlier keep naming it. `scope` is where its result is stored when it is not an
    output. `auto_unroll_max_step` is -1 where no pragma is set. `streaming`: its stores pass the caches by.
    `prefetch`: what it reads of inputs in the next iteration of a loop is asked for (`PrefetchStep`), the
    outermost one whose iterations read at most so many bytes, for 0 the one that it is computed at.
    `read_ahead`: a reduction asks in each step for what it reads next of arrays of more bytes than that.
    `lead`: how many iterations ahead its shared memory is filled, which is there once more than that.
    `swizzle`: rows of its shared memory are stored in different orders (`ansor.ir.swizzles`).
    `storage_align`: the axis whose stride is padded, the factor and the offset (see `StorageAlignStep`).
    """

    op: Operation
    iterators: tuple[Iterator, ...]
    relations: tuple[Relation, ...] = ()
    compute_at: ComputeAt = ComputeAt.ROOT
    auto_unroll_max_step: int = -1
    streaming: bool = False
    prefetch: int | None = None
    read_ahead: int | None = None
    lead: Number = 0
    swizzle: bool | NDArray[np.bool_] = False
    storage_align: tuple[str, Number, Number] | None = None
    scope: str = "global"
    handles: tuple[Operation, ...] = ()

    @classmethod
    def of_op(cls, op: Operation, scope: str = "global") -> Stage:
        """The untransformed stage of `op`: spatial axes, then reduction axes."""
        axes = (*op.axis, *op.reduce_axis) if isinstance(op, ComputeOp) else ()
        return cls(op, tuple(Iterator.of_axis(axis) for axis in axes), scope=scope, handles=(op,))

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def is_placeholder(self) -> bool:
        return isinstance(self.op, PlaceholderOp)

    @property
    def storage_offset(self) -> Number:
        """The offset of a storage_align step, 0 without one."""
        return 0 if self.storage_align is None else self.storage_align[2]

    @property
    def buffering(self) -> str:
        """What a multi_buffer step asked for, as states print it; empty without one."""
        if self.lead == 0:
            return ""
        return "double_buffer" if self.lead == 1 else f"multi_buffer: {self.lead + 1}"

    @property
    def compute(self) -> ComputeOp:
        """The operation, known to be a computation."""
        assert isinstance(self.op, ComputeOp)
        return self.op

    @property
    def combiner(self) -> Combiner | None:
        """The reduction's combiner, None for an elementwise operation."""
        body = self.op.body[0] if isinstance(self.op, ComputeOp) else None
        return body.combiner if isinstance(body, Reduce) else None

    def index_of(self, name: str) -> int | None:
        """Position of the loop called `name`, None if there is none (any more)."""
        for position, iterator in enumerate(self.iterators):
            if iterator.name == name:
                return position
        return None

    def first_from(self, name: str) -> int | None:
        """Position of the first loop that was made from the former loop `name`, None if there is none."""
        made = {name}
        for relation in self.relations:
            if isinstance(relation, FuseRelation):
                if made.intersection(relation.parents):
                    made.add(relation.fused)
            elif relation.parent in made:
                made.update(relation.parts)
        return next((p for p, loop in enumerate(self.iterators) if loop.name in made), None)

    def loop_names(self) -> set[str]:
        """The names of all loops that the stage has or has had."""
        axes = () if self.is_placeholder else (*self.compute.axis, *self.compute.reduce_axis)
        names = {axis.name for axis in axes}
        for relation in self.relations:
            names.update((relation.fused,) if isinstance(relation, FuseRelation) else relation.parts)
        return names

    def with_op(self, op: Operation) -> Stage:
        """The same loops for a rebuilt operation."""
        return replace(self, op=op, handles=(*self.handles, op))

    def describe(self, offender: int | None = None) -> str:
        """The stage's loops as text, one a line, the loop at `offender` marked, or else the stage."""
        lines = [f"loops of stage {self.name!r}:" + ("   <-- here" if offender is None else "")]
        for position, iterator in enumerate(self.iterators):
            mark = "   <-- here" if position == offender else ""
            lines.append(f"{'  ' * (position + 1)}{format_iterator(iterator)} [{iterator.kind}]{mark}")
        if not self.iterators:
            lines.append("  (none)")
        return "\n".join(lines)


def part_lengths(stage: Stage) -> dict[str, Extent | None]:
    """The lengths that splits of a stage give to the inner parts that they make, by name."""
    lengths: dict[str, Extent | None] = {}
    for relation in stage.relations:
        if isinstance(relation, SplitRelation) and relation.inner_to_outer:
            lengths.update(zip(relation.parts[1:], relation.lengths, strict=True))
    return lengths


def stated_extent(stage: Stage, loop: Iterator) -> Extent | None:
    """The extent of a loop, or where bounds have to tell it, the length that a split gives to it."""
    return part_lengths(stage).get(loop.name) if loop.extent is None else loop.extent


def innermost_pieces(stage: Stage, loop: str) -> tuple[str, ...] | None:
    """The loops whose innermost piece a loop is, itself first, an axis last; None for other loops."""
    chain = [loop]
    for relation in reversed(stage.relations):
        if isinstance(relation, FuseRelation):
            if chain[-1] == relation.fused:
                return None
        elif chain[-1] in relation.parts:
            if relation.parts[-1] != chain[-1]:
                return None
            chain.append(relation.parent)
    return tuple(chain)


def made_from(stage: Stage, loop: str) -> set[str]:
    """The loops and axes that a loop was made from, itself included."""
    origin = {loop}
    for relation in reversed(stage.relations):
        if isinstance(relation, FuseRelation):
            if relation.fused in origin:
                origin.update(relation.parents)
        elif origin.intersection(relation.parts):
            origin.add(relation.parent)
    return origin


def format_extent(extent: Extent | None) -> str:
    """`(None)` when unknown, `(0,extent)` else; a population's column prints its range of values."""
    if extent is None:
        return "(None)"
    if isinstance(extent, np.ndarray):
        low, high = int(extent.min()), int(extent.max())
        return f"(0,{low})" if low == high else f"(0,{low}..{high})"
    return f"(0,{extent})"


def format_iterator(iterator: Iterator) -> str:
    """One loop as printed states show it: `parallel i.0 (0,8)`."""
    return f"{iterator.annotation.word} {iterator.name} {format_extent(iterator.extent)}"
