"""Rewriting the layout of a program's constant inputs to the order in which it reads them.

An operation may list inputs whose layout is nobody's concern but its own: weights
(`attrs={"layout_free_placeholders": [W]}`). For a given program each of them can be brought into the layout
that suits its reader's loops, in one of two ways:

- *transform*: a stage `W.layout` copies the input first, in parallel. The caller feeds what he always fed,
  and the copy is part of every call.
- *pre-transformed*: the input itself has the new layout. The caller brings the data into it once
  (`ansor.transform_layout`), and the program is as fast as can be.

An input stays as it is where no layout would suit: it is read at several places, at a computed index in its
last dimension, or where data say, or in the order in which it lies anyway. The reasons are part of the
result. Dimensions up to one at a computed index keep their place (the taps of a transposed convolution).

Source: `LayoutRewriteOption` and `RewriteLayout` of TVM 0.16 (`auto_scheduler/compute_dag.cc`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ansor.schedule.access import LAYOUT_FREE_ATTR
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.layout import Layout, layout_of
from ansor.schedule.layout_reading import access_layout
from ansor.schedule.layout_steps import RewriteLayoutStep
from ansor.schedule.stages import Annotation, ComputeAt
from ansor.te.tensor import ComputeOp, PlaceholderOp, Tensor

if TYPE_CHECKING:
    from ansor.schedule.state import State

_LANES: Final = 16
"""The longest contiguous innermost loop of a transform stage that becomes one vector."""
_THREADS: Final = 64
"""Threads of a block that copies an input on a GPU: no more than any has."""


@dataclass(frozen=True, eq=False)
class LayoutRewrite:
    """
    A program with the layouts of its constant inputs rewritten.

    Parameters
    ----------
    state
        The program, its history extended by the steps that rewrite.
    layouts
        New layouts by the names of the inputs.
    kept
        Why the other layout-free inputs stay as they are, by name.
    """

    state: State
    layouts: Mapping[str, Layout]
    kept: Mapping[str, str]

    @property
    def tensors(self) -> list[Tensor]:
        """The arguments of the program (see `arguments`)."""
        return arguments(self.state)


def layout_free_inputs(dag: ComputeDAG) -> tuple[Tensor, ...]:
    """The inputs that some operation declares free of layout, in the order of the graph's arguments."""
    declared = {
        tensor
        for op in dag.ops
        if isinstance(op, ComputeOp)
        for tensor in op.attrs.get(LAYOUT_FREE_ATTR, ())
        if isinstance(tensor, Tensor)
    }
    return tuple(tensor for tensor in dag.inputs if tensor in declared)


def arguments(state: State) -> list[Tensor]:
    """The graph's tensors as the program takes them: inputs of another layout have their new shape."""
    return [
        state.stages[state.stage_id(tensor)].op.output(0) if isinstance(tensor.op, PlaceholderOp) else tensor
        for tensor in state.dag.tensors
    ]


def input_layouts(state: State) -> dict[int, Layout]:
    """The layouts that a program wants its inputs in, by position; those taken as defined are left out."""
    found = ((position, layout_of(tensor)) for position, tensor in enumerate(arguments(state)))
    return {position: layout for position, layout in found if layout is not None}


def rewrite_layouts(state: State, *, transform: bool) -> LayoutRewrite:
    """
    Rewrite the layout of every layout-free input that gains by it.

    Parameters
    ----------
    state
        A complete program.
    transform
        Whether the program transforms the data itself, or the caller does it once.

    Raises
    ------
    ScheduleError
        If the state is no complete program: it has holes, or places a stage where a consumer cannot see it.
    """
    layouts: dict[str, Layout] = {}
    kept: dict[str, str] = {}
    for tensor in layout_free_inputs(state.dag):
        stage_id = state.stage_id(tensor)
        reader = declaring_reader(state, tensor)
        if reader is None:
            kept[tensor.name] = "no stage that declares it free of layout reads it directly"
            continue
        layout = access_layout(state, stage_id, reader)
        if isinstance(layout, str):
            kept[tensor.name] = layout
            continue
        layouts[tensor.name] = layout
        state = state.apply(RewriteLayoutStep(stage_id, layout.to_json(), (reader,) if transform else ()))
        if transform:
            state = _schedule_transform(state, stage_id + 1, layout)
    return LayoutRewrite(state, layouts, kept)


def declaring_reader(state: State, tensor: Tensor) -> int | None:
    """The first stage that declares an input free of layout and reads it, not through another stage.

    None if there is no such stage, or the input has another layout already.
    """
    stage_id = state.stage_id(tensor)
    if layout_of(state.stages[stage_id].op.output(0)) is not None:
        return None
    for reader, stage in enumerate(state.stages):
        if not isinstance(stage.op, ComputeOp) or stage.compute_at is ComputeAt.INLINED:
            continue
        declared = tensor in stage.op.attrs.get(LAYOUT_FREE_ATTR, ())
        if declared and stage_id in state.direct_producers(reader):
            return reader
    return None


def _schedule_transform(state: State, stage_id: int, layout: Layout) -> State:
    """Run the copy in parallel over its outer loops, neighbours as vectors; on a GPU by threads."""
    if _is_for_gpu(state):
        return _copied_by_threads(state, stage_id)
    count = len(layout.digits)
    last = layout.digits[-1]
    contiguous = last.dim == len(layout.shape) - 1 and last.stride == 1
    if count > 1 and contiguous and isinstance(last.extent, int) and last.extent <= _LANES:
        state = state.annotate(stage_id, count - 1, Annotation.VECTORIZE)
    width = 3 if count >= 5 else 2 if count >= 3 else 1
    if width > 1:
        state = state.fuse(stage_id, range(width))
    return state.annotate(stage_id, 0, Annotation.PARALLEL) if count else state


def _is_for_gpu(state: State) -> bool:
    """Whether a program has loops that are bound to blocks or threads."""
    return any(loop.annotation.is_bound for stage in state.stages for loop in stage.iterators)


def _copied_by_threads(state: State, stage_id: int) -> State:
    """Make a copy a kernel of its own: a thread for each element."""
    count = len(state.stages[stage_id].iterators)
    if count > 1:
        state = state.fuse(stage_id, range(count))
    state = state.split(stage_id, 0, (_THREADS,))
    state = state.annotate(stage_id, 0, Annotation.BLOCK_X)
    return state.annotate(stage_id, 1, Annotation.THREAD_X)
