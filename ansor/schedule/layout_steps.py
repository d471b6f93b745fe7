"""The steps that change the layout of a tensor: for an input, a copy of it, or a stage's result.

`RewriteLayoutStep` names the layout. Applied to a placeholder it makes the caller give the data in that
layout; with `readers` it leaves the tensor alone and adds a stage that copies it into the layout for them;
applied to a computed stage it changes the order in which the stage computes and stores its result. In each
case the readers' indices are rewritten by division and remainder, which the loops that the layout was made
for undo.

`FollowLayoutStep` takes the layout from the loops of a stage that reads the tensor, so that it fits whatever
tile lengths a sketch is given: the step of *packing*, where a tile of an input is copied into contiguous
scratch before it is used many times.

None of this is known to TVM's records, whose layout rewriting is an option of the task (`ansor.task.layout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ansor.errors import DefinitionError, LogFormatError, ScheduleError
from ansor.schedule.cache_steps import insert_copy
from ansor.schedule.conditions import all_of
from ansor.schedule.extents import expr_of
from ansor.schedule.layout import LAYOUT_ATTR, Layout
from ansor.schedule.layout_reading import tile_layout
from ansor.schedule.naming import fresh_name
from ansor.schedule.rebuilding import rebuild, refuse_transformed, reread
from ansor.schedule.stages import Stage
from ansor.schedule.step_base import (
    Step,
    any_stage_at,
    is_integer,
    is_list_of_integers,
    refuse,
    stage_at,
)
from ansor.te.expr import (
    INDEX_DTYPE,
    Const,
    Expr,
    IterVar,
    Read,
    Reduce,
    Select,
    Var,
    const,
    substitute,
)
from ansor.te.tensor import ComputeOp, PlaceholderOp, Tensor

if TYPE_CHECKING:
    from ansor.schedule.state import State

DigitJson = tuple[int, int, int]
TRANSFORM_SUFFIX = "layout"
"""A stage that copies `B` into another layout is called `B.layout`."""


@dataclass(frozen=True, slots=True)
class RewriteLayoutStep(Step):
    """Store a tensor in another layout, or a copy of it for `readers`; digits as `Layout.to_json`."""

    code: ClassVar[str] = "RL"
    in_reference: ClassVar[bool] = False
    stage: int
    digits: tuple[DigitJson, ...]
    readers: tuple[int, ...] = ()

    @classmethod
    def from_fields(cls, values: Sequence[Any]) -> RewriteLayoutStep:
        stage: Any
        stage, digits, readers = values if len(values) == 3 else (None, [], [])
        are_digits = isinstance(digits, list) and all(map(_is_digit, digits))
        if not is_integer(stage) or not are_digits or not is_list_of_integers(readers):
            raise LogFormatError(
                f"step {cls.code}: expected stage, [[dim, extent, stride], ...] and [readers], "
                f"found {list(values)!r}"
            )
        return cls(stage, tuple((d, e, s) for d, e, s in digits), tuple(readers))

    @property
    def new_stages(self) -> range:
        return range(self.stage + 1, self.stage + 1 + bool(self.readers))

    def apply(self, state: State) -> State:
        tensor = _result_of(state, self.stage)
        try:
            layout = Layout.of(tensor.shape, self.digits, tensor.name)
        except DefinitionError as error:
            raise ScheduleError(f"rewrite_layout: {error}") from error
        if not self.readers:
            return rewritten(state, self.stage, layout)
        copied = insert_copy(state, self.stage, TRANSFORM_SUFFIX, "global", self.readers, "rewrite_layout")
        return rewritten(copied, self.stage + 1, layout)


@dataclass(frozen=True, slots=True)
class FollowLayoutStep(Step):
    """Store a computed tensor in the order in which the tiles of `reader` read it.

    Its layout has one digit for each loop of the reader's axes that index the tensor, in loop order; lengths
    are those of the splits, whether or not they divide. A dimension that is indexed by a sum of axes has one
    digit, in the place of the last of their loops.
    """

    code: ClassVar[str] = "FRL"
    in_reference: ClassVar[bool] = False
    stage: int
    reader: int

    def apply(self, state: State) -> State:
        for stage in (self.stage, self.reader):
            stage_at(state, stage, "follow_layout")
        _result_of(state, self.stage)
        return rewritten(state, self.stage, self.layout(state))

    def layout(self, state: State) -> Layout:
        """The layout in a state to which the step is about to be applied."""
        return tile_layout(state, self.stage, self.reader)


def _is_digit(item: Any) -> bool:
    return is_list_of_integers(item) and len(item) == 3


def _result_of(state: State, stage_id: int) -> Tensor:
    """The tensor of a stage with one output."""
    stage = any_stage_at(state, stage_id, "rewrite_layout")
    if stage.op.num_outputs != 1:
        raise refuse(stage, f"rewrite_layout: stage {stage.name!r} has several outputs; copy one of them")
    return stage.op.output(0)


def rewritten(state: State, stage_id: int, layout: Layout) -> State:
    """The state with the result of a stage in `layout`, and its readers rebuilt."""
    stage = state.stages[stage_id]
    op = stage.op
    made: PlaceholderOp | ComputeOp
    if isinstance(op, PlaceholderOp):
        if LAYOUT_ATTR in op.attrs:
            raise ScheduleError(
                f"rewrite_layout: the layout of input {op.name!r} is rewritten already, to "
                f"{op.attrs[LAYOUT_ATTR]}; give it the final layout at once"
            )
        shape = tuple(extent for extent in layout.new_shape if isinstance(extent, int))
        made = PlaceholderOp(op.name, shape, op.dtype, op.tag, {**op.attrs, LAYOUT_ATTR: layout})
        fresh = replace(stage, op=made, handles=(*stage.handles, made))
    else:
        if state.is_output(stage_id):
            raise refuse(
                stage,
                f"rewrite_layout: stage {stage.name!r} is an output, which the caller wants as it is "
                "defined; cache_write it and rewrite the cache",
            )
        refuse_transformed(state, stage_id, "rewrite_layout")
        made = _computed_in(op, layout)
        fresh = replace(Stage.of_op(made, stage.scope), handles=(*stage.handles, made))
    stages = (*state.stages[:stage_id], fresh, *state.stages[stage_id + 1 :])
    old, new = op.output(0), made.output(0)

    def change(node: Expr) -> Expr | None:
        if isinstance(node, Read) and node.tensor is old:
            return Read(new, layout.new_indices(node.indices), node.dtype)
        return None

    return state.with_stages(rebuild(stages, lambda op: reread(op, (old,), change)), len(stages), 0)


def _computed_in(op: ComputeOp, layout: Layout) -> ComputeOp:
    """The operation with an axis for each digit; zero, or nothing for a reduction, in the padding."""
    axes = _digit_axes(op, layout)
    old = layout.old_indices(axes)
    mapping: dict[Var, Expr] = dict(zip(op.axis, old, strict=True))
    padding = layout.inside(old)
    (root,) = op.body
    body: Expr
    if isinstance(root, Reduce):
        sources = tuple(substitute(source, mapping) for source in root.sources)
        own = () if root.condition is None else (substitute(root.condition, mapping),)
        body = replace(root, sources=sources, condition=all_of((*padding, *own)))
    else:
        body, inside = substitute(root, mapping), all_of(padding)
        if inside is not None:
            body = Select(inside, body, _zero(body.dtype), True, body.dtype)
    attrs = {**op.attrs, LAYOUT_ATTR: layout}
    return ComputeOp(op.name, axes, op.reduce_axis, (body,), op.tag, attrs)


def _zero(dtype: str) -> Const:
    return const(False, dtype) if dtype == "bool" else const(0, dtype)


def _digit_axes(op: ComputeOp, layout: Layout) -> tuple[IterVar, ...]:
    """Axes named after the axes that they are digits of: `k` whole, `j_0`, `j_1` in pieces."""
    taken = {axis.name for axis in op.reduce_axis}
    axes: list[IterVar] = []
    for position, digit in enumerate(layout.digits):
        chain, base = layout.by_dim[digit.dim], op.axis[digit.dim].name
        name = base if len(chain) == 1 else f"{base}_{chain.index(position)}"
        axes.append(IterVar(fresh_name(name, taken), INDEX_DTYPE, expr_of(digit.extent)))
    return tuple(axes)
