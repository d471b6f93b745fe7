"""The steps that copy a stage's result, in front of its readers or behind it: cache_read, cache_write.

Source: TVM's auto_scheduler (v0.16) for numbering and names; the transformations are those of Halide's and
TVM's schedules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ansor.errors import ScheduleError
from ansor.schedule.attributes import renamed_tiles
from ansor.schedule.extents import expr_of
from ansor.schedule.layout import layout_attr
from ansor.schedule.naming import fresh_name
from ansor.schedule.rebuilding import rebuild, redirect, refuse_transformed, reread, rewrite_body, unique_name
from ansor.schedule.stages import Stage
from ansor.schedule.step_base import Step, any_stage_at, refuse, stage_at
from ansor.te.expr import INDEX_DTYPE, Expr, IterVar, Read, Var, distinct_nodes, free_vars, substitute
from ansor.te.tensor import ComputeOp, Tensor

if TYPE_CHECKING:
    from ansor.schedule.state import State


SCOPES = ("local", "shared", "global")


def check_scope(what: str, scope: str) -> None:
    """Refuse what is no scope; `what` names the request."""
    if scope not in SCOPES:
        raise ScheduleError(f"{what}: unknown scope {scope!r}; use one of {', '.join(map(repr, SCOPES))}")


@dataclass(frozen=True, slots=True)
class CacheReadStep(Step):
    """Copy a stage's result into `scope` for some of its readers.

    The new stage `X.scope` comes right after X and is read by `readers` instead of X.
    """

    code: ClassVar[str] = "CHR"
    stage: int
    scope: str
    readers: tuple[int, ...]

    @property
    def new_stages(self) -> range:
        return range(self.stage + 1, self.stage + 2)

    def apply(self, state: State) -> State:
        check_scope("cache_read", self.scope)
        return insert_copy(state, self.stage, self.scope, self.scope, self.readers, "cache_read")


@dataclass(frozen=True, slots=True)
class CacheReadPartStep(CacheReadStep):
    """Copy a stage's result into `scope` for some of the reads of one reader.

    Reads are of one kind if they are along the same axes of the reader; those of the `part`-th kind, in the
    order in which the kinds appear, read the copy. So a product with its own transpose, `A[i, k] * A[j, k]`,
    may have a copy for its rows (part 0) and another for its columns: part 1, or part 0 once the rows have
    theirs, as reads of copies do not count.
    """

    code: ClassVar[str] = "CHRP"
    in_reference: ClassVar[bool] = False
    part: int

    def apply(self, state: State) -> State:
        check_scope("cache_read", self.scope)
        return insert_copy(
            state, self.stage, self.scope, self.scope, self.readers, "cache_read", part=self.part
        )


def insert_copy(
    state: State,
    stage_id: int,
    suffix: str,
    scope: str,
    readers: Iterable[int],
    what: str,
    *,
    part: int | None = None,
) -> State:
    """Insert a stage `X.suffix` behind X that copies its result into `scope`; `readers` read the copy.

    With a `part` only the reads of that kind do (`CacheReadPartStep`).

    Raises
    ------
    ScheduleError
        If there is no such stage, it has several outputs, or a reader does not read it, or has no such part;
        `what` names the request.
    """
    wanted = tuple(readers)
    source = any_stage_at(state, stage_id, what)
    if source.op.num_outputs != 1:
        raise ScheduleError(f"{what}: stage {source.name!r} has several outputs; cache one of its readers")
    tensor = source.op.output(0)
    for reader in wanted:
        found = stage_at(state, reader, what)
        if tensor not in found.compute.input_tensors:
            raise refuse(found, f"{what}: stage {found.name!r} does not read {source.name!r}")
    if not wanted:
        raise ScheduleError(f"{what} of {source.name!r}: name at least one reader")
    along = None if part is None else _along_part(state, tensor, wanted, part, what)
    axes = tuple(IterVar(f"ax{d}", INDEX_DTYPE, expr_of(e)) for d, e in enumerate(tensor.shape))
    copy = ComputeOp(unique_name(state, source.name, suffix), axes, (), (Read(tensor, axes, tensor.dtype),))
    at = stage_id + 1
    moved = {r + 1 if r >= at else r for r in wanted}
    stages = (*state.stages[:at], Stage.of_op(copy, scope), *state.stages[at:])

    def change(node: Expr) -> Expr | None:
        if isinstance(node, Read) and node.tensor is tensor and (along is None or along == _along(node)):
            return Read(copy.output(0), node.indices, node.dtype)
        return None

    return state.with_stages(rebuild(stages, lambda op: reread(op, (tensor,), change), moved), at)


def _along(read: Read) -> frozenset[Var]:
    """The axes along which a tensor is read: what makes reads of one kind."""
    return frozenset(free_vars(*read.indices))


def _along_part(
    state: State, tensor: Tensor, readers: tuple[int, ...], part: int, what: str
) -> frozenset[Var]:
    """The axes of reads of the `part`-th kind; refuse several readers, and a part that is not."""
    reader = state.stages[readers[0]]
    if len(readers) > 1:
        raise refuse(reader, f"{what} of a part of the reads: name one reader, found {len(readers)}")
    reads = (node for root in reader.compute.body for node in distinct_nodes(root) if isinstance(node, Read))
    kinds = list(dict.fromkeys(_along(read) for read in reads if read.tensor is tensor))
    if not 0 <= part < len(kinds):
        raise refuse(
            reader,
            f"{what}: stage {reader.name!r} reads {tensor.name!r} itself along {len(kinds)} sets of "
            f"axes, found part {part}; parts are numbered from 0",
        )
    return kinds[part]


@dataclass(frozen=True, slots=True)
class CacheWriteStep(Step):
    """Compute a stage into `scope` first and copy the result out.

    The new stage `X.scope` does the computation over axes `i_c` and takes X's position; X becomes the
    copy and moves one position on.
    """

    code: ClassVar[str] = "CHW"
    stage: int
    scope: str

    @property
    def new_stages(self) -> range:
        return range(self.stage, self.stage + 1)

    def apply(self, state: State) -> State:
        check_scope("cache_write", self.scope)
        stage = stage_at(state, self.stage, "cache_write")
        refuse_transformed(state, self.stage, "cache_write")
        op = stage.compute
        taken = {axis.name for axis in op.reduce_axis}
        axes = tuple(IterVar(fresh_name(f"{a.name}_c", taken), a.dtype, a.extent) for a in op.axis)
        renamed = dict[Var, Expr](zip(op.axis, axes, strict=True))
        body = rewrite_body(op, lambda expr: substitute(expr, renamed))
        return insert_cache(state, self.stage, self.scope, axes, op.reduce_axis, body)


def insert_cache(
    state: State,
    stage_id: int,
    scope: str,
    axes: tuple[IterVar, ...],
    reduce_axes: tuple[IterVar, ...],
    body: tuple[Expr, ...],
) -> State:
    """Insert a stage `X.scope` before X with the computation `body` over axes; X copies its elements."""
    stage = state.stages[stage_id]
    op = stage.compute
    name = unique_name(state, op.name, scope)
    renamed = zip((*op.axis, *op.reduce_axis), (*axes, *reduce_axes), strict=True)
    attrs = renamed_tiles(op.attrs, {old.name: new.name for old, new in renamed})
    cached = ComputeOp(name, axes, reduce_axes, body, op.tag, attrs)
    reads = tuple(Read(t, op.axis, t.dtype) for t in cached.outputs)
    copy = ComputeOp(op.name, op.axis, (), reads, op.tag, layout_attr(op))
    fresh = replace(Stage.of_op(copy, stage.scope), handles=(*stage.handles, copy))
    stages = (
        *state.stages[:stage_id],
        Stage.of_op(cached, scope),
        fresh,
        *state.stages[stage_id + 1 :],
    )
    moved = dict(zip(op.outputs, copy.outputs, strict=True))
    return state.with_stages(rebuild(stages, lambda op: redirect(op, moved)), stage_id)
