"""Schedules by hand: `s = te.create_schedule(C.op)`, then `s[C].split(...)`, `s[C].vectorize(...)`.

A `Schedule` is a mutable shell around a `State`: each call appends the very step that a search would, so a
schedule written by hand prints, records, replays and lowers like any other. Loops are handles that name a
loop of a stage; they stay valid until the loop is split or fused away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

from ansor.errors import DefinitionError, ScheduleError
from ansor.intrinsics import TensorIntrinsic, register_tensor_intrinsic
from ansor.schedule.dag import ComputeDAG, with_inputs
from ansor.schedule.distribute_step import distributable
from ansor.schedule.extents import with_python_integers
from ansor.schedule.layout import DigitLike, Layout
from ansor.schedule.stages import Annotation, FuseRelation, Stage, stated_extent
from ansor.schedule.state import State
from ansor.schedule.step_base import refuse
from ansor.schedule.steps import (
    UNROLL_PRAGMA,
    AnnotationStep,
    CacheReadPartStep,
    CacheReadStep,
    CacheWriteStep,
    ComputeAtStep,
    ComputeInlineStep,
    ComputeRootStep,
    DistributeStep,
    FuseStep,
    MultiBufferStep,
    PadStep,
    PragmaStep,
    PrefetchStep,
    ReadAheadStep,
    ReorderStep,
    RewriteLayoutStep,
    RfactorStep,
    SetScopeStep,
    SplitStep,
    Step,
    StorageAlignStep,
    StoreConvertedStep,
    StreamingStoresStep,
    SwizzleStep,
    TensorizeStep,
)
from ansor.te.define import ThreadAxis
from ansor.te.expr import IterVar
from ansor.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor

_THREAD_ANNOTATIONS = {
    annotation.word: annotation
    for annotation in Annotation
    if annotation.is_bound or annotation is Annotation.VTHREAD
}


@dataclass(frozen=True, slots=True)
class Loop:
    """A handle of one loop: its name, and an operation of the stage that it belongs to."""

    name: str
    op: Operation

    def __str__(self) -> str:
        return f"{self.op.name}.{self.name}"

    def __repr__(self) -> str:
        return f"<loop {self}>"


LoopLike = Union[Loop, IterVar]
TensorLike = Union[Tensor, Operation]


class Schedule:
    """The schedule of a graph, changed in place by the methods of its stages (`s[T]`)."""

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def dag(self) -> ComputeDAG:
        """The graph as it was defined."""
        return self.state.dag

    def __getitem__(self, key: TensorLike) -> StageHandle:
        """The stage that computes a tensor or operation."""
        self.state.stage_id(key)
        return StageHandle(self, key.op if isinstance(key, Tensor) else key)

    def apply(self, step: Step) -> None:
        """Append a step.

        Raises
        ------
        ScheduleError
            If the step is illegal; the schedule is unchanged then.
        """
        self.state = self.state.apply(step)

    def cache_read(
        self,
        tensor: TensorLike,
        scope: str,
        readers: TensorLike | Sequence[TensorLike],
        part: int | None = None,
    ) -> Tensor:
        """Copy `tensor` into `scope` ("local", "shared" or "global") for `readers`; gives the copy.

        Of one reader that reads it along different axes, as a product with its own transpose does, `part`
        says which of them the copy is for, in the order in which they appear: 0 for the first of those that
        have no copy yet.
        """
        stage, of = self.state.stage_id(tensor), self._stage_ids(readers)
        self.apply(
            CacheReadStep(stage, scope, of) if part is None else CacheReadPartStep(stage, scope, of, part)
        )
        return self.state.stages[stage + 1].op.output(0)

    def cache_write(self, tensor: TensorLike | Sequence[Tensor], scope: str) -> Any:
        """Compute `tensor` into `scope` and copy it out; gives the new tensor.

        A list for a list, and for an operation with several outputs.
        """
        if isinstance(tensor, (ComputeOp, PlaceholderOp)):
            tensor = tensor.output(0) if tensor.num_outputs == 1 else tensor.outputs
        several = not isinstance(tensor, Tensor)
        tensors: list[Tensor] = [tensor] if isinstance(tensor, Tensor) else list(tensor)
        stages = {self.state.stage_id(t) for t in tensors}
        if len(stages) != 1:
            names = ", ".join(repr(t.name) for t in tensors) or "none"
            raise ScheduleError(
                f"cache_write: expected a tensor, or tensors of one operation, found {names}; "
                "cache those of several operations one by one"
            )
        stage = stages.pop()
        self.apply(CacheWriteStep(stage, scope))
        made = self.state.stages[stage].op
        outputs = [made.output(t.value_index) for t in tensors]
        return outputs if several else outputs[0]

    def pad(self, tensor: TensorLike, scope: str, extents: Sequence[int]) -> Tensor:
        """
        Compute `tensor` into `scope` over larger axes, and copy out what was asked for; gives the new tensor.

        Parameters
        ----------
        tensor
            Not scheduled yet.
        scope
            "local", "shared" or "global".
        extents
            Of the axes and of the reduction axes, none smaller than it is.

        Raises
        ------
        ScheduleError
            If it would read beyond a tensor, or sum up anything but zeros. What it reads must be copies in
            padded layouts: `s.rewrite_layout(A, [(0, 48), (1, 48)], C)`.
        """
        stage = self.state.stage_id(tensor)
        self.apply(PadStep(stage, scope, with_python_integers(extents)))
        return self.state.stages[stage].op.output(0)

    def distribute(self, tensor: TensorLike, factors: Sequence[int] | None = None) -> tuple[Tensor, ...]:
        """
        Multiply out a sum of products such as `(A[i, k] - a) * (B[k, j] - b)`; gives the parts.

        Parameters
        ----------
        tensor
            A sum of products of integers, not scheduled yet. It keeps its name, and adds up the parts.
        factors
            Those to multiply out, 0 the left one, 1 the right one; default all that have a term that does not
            depend on the reduction.

        Returns
        -------
        tuple[Tensor, ...]
            The sums of the other factors, that of the right one first, and behind them the sum of products.

        Raises
        ------
        ScheduleError
            If it is no such sum, or a factor has no such term.
        """
        stage = self.state.stage_id(tensor)
        op = self.state.stages[stage].op
        known = distributable(op) if factors is None and isinstance(op, ComputeOp) else factors or ()
        step = DistributeStep(stage, with_python_integers(known))
        self.apply(step)
        return tuple(self.state.stages[made].op.output(0) for made in step.new_stages)

    def rfactor(self, tensor: TensorLike, axis: LoopLike, factor_axis: int = 0) -> Any:
        """Make a stage of the partial results along the reduction loop `axis`.

        `factor_axis` is the position of the new axis in the partial results (negative counts from the
        end). Gives the new tensor, or a list for an operation with several outputs.
        """
        stage = self.state.stage_id(tensor)
        position = self._position(stage, axis, "rfactor")
        op = self.state.stages[stage].compute
        at = factor_axis if factor_axis >= 0 else len(op.axis) + 1 + factor_axis
        self.apply(RfactorStep(stage, position, at))
        made = self.state.stages[stage].op
        return made.output(0) if made.num_outputs == 1 else list(made.outputs)

    def _stage_ids(self, keys: TensorLike | Sequence[TensorLike]) -> tuple[int, ...]:
        """The stages of one tensor or several, ascending."""
        listed: list[TensorLike] = [*keys] if isinstance(keys, (list, tuple)) else [keys]  # type: ignore[list-item]
        return tuple(sorted({self.state.stage_id(key) for key in listed}))

    def rewrite_layout(
        self,
        tensor: TensorLike,
        layout: Layout | Sequence[DigitLike],
        readers: TensorLike | Sequence[TensorLike] | None = None,
    ) -> Tensor:
        """
        Store a tensor in another layout; gives the tensor that has it.

        Parameters
        ----------
        tensor
            An input: the caller then gives the data in the new layout (`ansor.transform_layout`). Or a
            computed tensor, a cached one usually, that is no output and not scheduled yet.
        layout
            Pieces of the dimensions in memory order: `[(1, None), 0, (1, 16)]` stores B[k, j] in panels of 16
            columns. See `ansor.Layout.of`.
        readers
            Leave the tensor alone and make a stage that copies it into the layout for these readers.

        Raises
        ------
        ScheduleError
            If the layout does not fit the tensor, or the stage cannot change its layout any more.
        """
        stage = self.state.stage_id(tensor)
        name, shape = self.state.stages[stage].name, self.state.stages[stage].op.output(0).shape
        try:
            digits = Layout.of(shape, layout, name).to_json()
        except DefinitionError as error:
            raise ScheduleError(f"rewrite_layout: {error}") from error
        ids = () if readers is None else self._stage_ids(readers)
        if readers is not None and not ids:
            raise ScheduleError(f"rewrite_layout of {name!r}: name at least one reader, or leave them out")
        self.apply(RewriteLayoutStep(stage, digits, ids))
        return self.state.stages[stage + bool(ids)].op.output(0)

    def _position(self, stage_id: int, loop: LoopLike, what: str) -> int:
        """The position of a loop handle in its stage's loops, refusing one that is gone or foreign."""
        stage = self.state.stages[stage_id]
        if not isinstance(loop, (Loop, IterVar)):
            raise refuse(
                stage,
                f"{what}: expected a loop of stage {stage.name!r}, from s[{stage.name}].op.axis or what "
                f"split and fuse return; found {loop!r}",
            )
        name = self._loop_name(stage_id, stage, loop, what)
        position = stage.index_of(name)
        if position is None:
            raise refuse(
                stage,
                f"{what}: loop {name!r} of stage {stage.name!r} {_fate(stage, name)}",
                stage.first_from(name),
            )
        return position

    def _loop_name(self, stage_id: int, stage: Stage, loop: LoopLike, what: str) -> str:
        """The name of a loop in the stage, refusing a loop of another one."""
        if isinstance(loop, Loop):
            owner = self.state.stage_id(loop.op)
            if owner != stage_id:
                raise refuse(
                    stage,
                    f"{what}: {loop.name!r} is a loop of stage {self.state.stages[owner].name!r}, "
                    f"not of {stage.name!r}",
                )
            return loop.name
        ops = [op for op in stage.handles if isinstance(op, ComputeOp)]
        for op in ops:
            for axis in (*op.axis, *op.reduce_axis):
                if axis.stands_for(loop):
                    return axis.name
        raise refuse(stage, f"{what}: {loop.name!r} is not an axis of stage {stage.name!r}")

    def __str__(self) -> str:
        return str(self.state)

    def __repr__(self) -> str:
        return f"<Schedule of {self.state.brief}>"


def _fate(stage: Stage, name: str) -> str:
    """What became of a loop that a stage no longer has."""
    for relation in stage.relations:
        if isinstance(relation, FuseRelation):
            if name in relation.parents:
                return f"is gone: it was fused into {relation.fused!r}"
        elif relation.parent == name:
            return "is gone: it was split into " + ", ".join(map(repr, relation.parts))
    return f"does not exist (any more); the stage was rebuilt, take its loops from s[{stage.name}].op.axis"


@dataclass(frozen=True, slots=True)
class StageHandle:
    """One stage of a schedule; its methods transform its loops."""

    schedule: Schedule
    key: Operation

    @property
    def stage_id(self) -> int:
        return self.schedule.state.stage_id(self.key)

    @property
    def _stage(self) -> Stage:
        return self.schedule.state.stages[self.stage_id]

    @property
    def op(self) -> Operation:
        """The operation computed now; `op.axis` and `op.reduce_axis` are its untransformed loops."""
        return self._stage.op

    @property
    def leaf_iter_vars(self) -> tuple[Loop, ...]:
        """The current loops, outermost first."""
        return tuple(self._loop(loop.name) for loop in self._stage.iterators)

    def _loop(self, name: str) -> Loop:
        return Loop(name, self._stage.op)

    def __repr__(self) -> str:
        loops = ", ".join(loop.name for loop in self._stage.iterators)
        return f"<stage {self._stage.name}, loops {loops or '(none)'}>"

    def _at(self, loop: LoopLike, what: str) -> int:
        if isinstance(self._stage.op, PlaceholderOp):
            raise ScheduleError(f"{what}: {self._stage.name!r} is a placeholder, which has no loops")
        return self.schedule._position(self.stage_id, loop, what)

    def split(
        self,
        loop: LoopLike,
        factor: int | None = None,
        nparts: int | Sequence[int] | None = None,
        factors: Sequence[int] | None = None,
    ) -> tuple[Loop, ...]:
        """Split a loop in two by the inner `factor` or the number of outer parts `nparts`.

        `factors=[a, b]` gives three loops with inner lengths a and b, `nparts=[a, b]` three with outer
        extents a and b. Nothing needs to divide. Returns the new loops, outermost first.
        """
        position = self._at(loop, "split")
        if sum(x is not None for x in (factor, nparts, factors)) != 1:
            raise refuse(
                self._stage,
                f"split of {loop.name!r}: give exactly one of factor=, nparts= and factors=, "
                f"found factor={factor!r}, nparts={nparts!r}, factors={factors!r}",
                position,
            )
        chosen = next(x for x in (factor, nparts, factors) if x is not None)
        lengths = with_python_integers(chosen if isinstance(chosen, (list, tuple)) else (chosen,))
        extent = self._stage.iterators[position].extent
        known = extent if isinstance(extent, int) else None
        self.schedule.apply(SplitStep(self.stage_id, position, known, lengths, int(nparts is None)))
        made = self._stage.iterators[position : position + len(lengths) + 1]
        return tuple(self._loop(part.name) for part in made)

    def fuse(self, *loops: LoopLike) -> Loop:
        """Make one loop of directly nested ones, given outermost first."""
        positions = tuple(self._at(loop, "fuse") for loop in loops)
        self.schedule.apply(FuseStep(self.stage_id, positions))
        return self._loop(self._stage.iterators[positions[0]].name)

    def reorder(self, *loops: LoopLike) -> None:
        """Put the given loops in this order, in the places that they occupy together."""
        positions = [self._at(loop, "reorder") for loop in loops]
        if len(set(positions)) != len(positions):
            raise refuse(
                self._stage,
                f"reorder of stage {self._stage.name!r}: a loop is named twice in "
                + ", ".join(loop.name for loop in loops),
                next(p for p in positions if positions.count(p) > 1),
            )
        order = list(range(len(self._stage.iterators)))
        for place, position in zip(sorted(positions), positions, strict=True):
            order[place] = position
        self.schedule.apply(ReorderStep(self.stage_id, tuple(order)))

    def tile(self, x: LoopLike, y: LoopLike, x_factor: int, y_factor: int) -> tuple[Loop, Loop, Loop, Loop]:
        """Split two loops and nest them as x.outer, y.outer, x.inner, y.inner."""
        if self._at(x, "tile") == self._at(y, "tile"):
            raise refuse(
                self._stage, f"tile of {x.name!r} with itself: give two different loops", self._at(x, "tile")
            )
        before = self.schedule.state
        try:
            x_outer, x_inner = self.split(x, factor=x_factor)
            y_outer, y_inner = self.split(y, factor=y_factor)
            self.reorder(x_outer, y_outer, x_inner, y_inner)
        except ScheduleError:
            self.schedule.state = before  # All of it or nothing.
            raise
        return x_outer, y_outer, x_inner, y_inner

    def _annotate(self, loop: LoopLike, annotation: Annotation) -> None:
        position = self._at(loop, annotation.word)
        self.schedule.apply(AnnotationStep(self.stage_id, position, int(annotation)))

    def vectorize(self, loop: LoopLike) -> None:
        """Execute a loop's iterations as vector lanes."""
        self._annotate(loop, Annotation.VECTORIZE)

    def tensorize(self, loop: LoopLike, intrinsic: str | TensorIntrinsic) -> None:
        """Compute `loop`, the lanes, and the loop inside of it by a tensor intrinsic (`ansor.intrinsics`).

        They become a vector loop and a tensorized loop, which a machine without the intrinsic unrolls.

        Raises
        ------
        ScheduleError
            If they are not the two innermost loops, with the extents of the intrinsic's pattern, over
            innermost parts of axes that match it.
        """
        name = intrinsic if isinstance(intrinsic, str) else register_tensor_intrinsic(intrinsic).name
        self.schedule.apply(TensorizeStep(self.stage_id, self._at(loop, "tensorize"), name))

    def parallel(self, loop: LoopLike) -> None:
        """Distribute a loop's iterations over threads."""
        self._annotate(loop, Annotation.PARALLEL)

    def unroll(self, loop: LoopLike) -> None:
        """Replicate a loop's body instead of looping; on a CPU while that makes thousands of instructions."""
        self._annotate(loop, Annotation.UNROLL)

    def pipeline(self, loop: LoopLike) -> None:
        """Let a loop's iterations overlap on a CPU: what is computed inside works at one each."""
        self._annotate(loop, Annotation.PIPELINE)

    def bind(self, loop: LoopLike, thread: ThreadAxis | str) -> None:
        """Bind a loop to a GPU thread or block index, e.g. `te.thread_axis("threadIdx.x")`."""
        name = thread if isinstance(thread, str) else thread.name
        if name not in _THREAD_ANNOTATIONS:
            raise refuse(
                self._stage,
                f"bind: unknown thread axis {name!r}; use one of {', '.join(_THREAD_ANNOTATIONS)}",
                self._at(loop, "bind"),
            )
        position = self._at(loop, "bind")
        extent = stated_extent(self._stage, self._stage.iterators[position])
        wanted = None if isinstance(thread, str) else thread.extent
        if wanted is not None and isinstance(extent, int) and extent != wanted:
            raise refuse(
                self._stage,
                f"bind: loop {loop.name!r} has extent {extent}, but {name} was given extent {wanted}",
                position,
            )
        self._annotate(loop, _THREAD_ANNOTATIONS[name])

    def pragma(self, loop: LoopLike, pragma_type: str, pragma_value: Any = None) -> None:
        """Attach a pragma: `("auto_unroll_max_step", N)`; `unroll_explicit` is accepted, and implied."""
        position = self._at(loop, "pragma")
        has_value = pragma_value is not None and pragma_type == UNROLL_PRAGMA
        text = f"{pragma_type}${pragma_value}" if has_value else pragma_type
        self.schedule.apply(PragmaStep(self.stage_id, position, text))

    def compute_at(self, target: StageHandle | TensorLike, loop: LoopLike) -> None:
        """Compute this stage inside `loop` of a stage that uses it."""
        key = target.key if isinstance(target, StageHandle) else target
        target_id = self.schedule.state.stage_id(key)
        position = self.schedule._position(target_id, loop, "compute_at")
        self.schedule.apply(ComputeAtStep(self.stage_id, target_id, position))

    def compute_inline(self) -> None:
        """Substitute this stage's expression into its consumers."""
        self.schedule.apply(ComputeInlineStep(self.stage_id))

    def compute_root(self) -> None:
        """Compute this stage in a loop nest of its own."""
        self.schedule.apply(ComputeRootStep(self.stage_id))

    def set_scope(self, scope: str) -> None:
        """Store this stage's result in `scope`: "global", "local" or "shared"."""
        self.schedule.apply(SetScopeStep(self.stage_id, scope))

    def store_converted(self) -> None:
        """Store this stage's result in the dtype that all its readers convert it to: each value once."""
        self.schedule.apply(StoreConvertedStep(self.stage_id))

    def prefetch(self, room: int = 0) -> None:
        """
        Ask memory for what this stage will read of inputs in the next iteration of a loop.

        Parameters
        ----------
        room
            How much may be asked for [bytes]: the loop is the outermost one around, the stage's own included,
            whose iterations read no more. With 0 it is the innermost loop that the stage is computed at.
        """
        self.schedule.apply(PrefetchStep(self.stage_id, room))

    def read_ahead(self, least: int = 0) -> None:
        """
        Ask memory, while this reduction goes on, for what it will read next.

        That is, of inputs and of what is computed at root, rows of panels further on, and the tile or packed
        panel of the next iteration of the loop around, where accumulators are in registers
        (`ansor.ir.passes.read_ahead`). Nothing on GPUs.

        Parameters
        ----------
        least
            Of arrays of more bytes than that; smaller ones are in the caches after they were read once. Those
            of symbolic sizes are not asked for.
        """
        self.schedule.apply(ReadAheadStep(self.stage_id, least))

    def streaming_stores(self) -> None:
        """Let this output's vector stores pass the caches by; for results much larger than the caches."""
        self.schedule.apply(StreamingStoresStep(self.stage_id))

    def double_buffer(self) -> None:
        """Fill this tile in shared memory for the next iteration while that of this one is used."""
        self.schedule.apply(MultiBufferStep(self.stage_id))

    def multi_buffer(self, buffers: int) -> None:
        """Keep this tile in shared memory so many times, to fill all but one while that one is used.

        On CUDA, from compute capability 8.0 on, threads do not wait for the copies before they are needed.
        """
        self.schedule.apply(MultiBufferStep(self.stage_id, buffers))

    def swizzle(self) -> None:
        """Store rows of this shared tile in different orders, so that threads read from more banks."""
        self.schedule.apply(SwizzleStep(self.stage_id))

    def storage_align(self, axis: LoopLike, factor: int, offset: int) -> None:
        """Pad the storage so that the stride of `axis` is `offset` modulo `factor` elements."""
        position = self._at(axis, "storage_align")
        name = self._stage.iterators[position].name
        if name not in {a.name for a in self._stage.compute.axis}:
            raise refuse(
                self._stage,
                f"storage_align of stage {self._stage.name!r}: {name!r} is not an axis of its storage; "
                "align one of the axes in op.axis, before it is split or fused",
                position,
            )
        self.schedule.apply(
            StorageAlignStep(self.stage_id, position, *with_python_integers((factor, offset)))
        )


def create_schedule(ops: TensorLike | Sequence[TensorLike]) -> Schedule:
    """The untransformed schedule of the graph that ends in `ops` (operations or tensors).

    The order of its tensors, hence of the default arguments, is: inputs that are not among `ops`, as they are
    first used, then `ops`.
    """
    wanted = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    outputs: list[Tensor] = []
    for item in wanted:
        if isinstance(item, Tensor):
            outputs.append(item)
        elif isinstance(item, (ComputeOp, PlaceholderOp)):
            outputs.extend(item.outputs)
        else:
            raise ScheduleError(f"create_schedule: expected operations or tensors, found {item!r}")
    if not outputs:
        raise ScheduleError("create_schedule: give at least one operation or tensor to compute")
    return Schedule(State.initial(ComputeDAG(with_inputs(outputs))))


__all__ = ["Loop", "Schedule", "StageHandle", "create_schedule"]
