"""A state as schedule code: the calls that, executed, build the same schedule by hand.

The text stands alone: it defines the tensors, then schedules them. Run it, lower `s` with `tensors`, and the
loop nest is the same text. Splits and layouts that follow others are printed with their numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ansor.depth import with_depth
from ansor.numbered import NumberedNames
from ansor.schedule.dag import stage_order, with_inputs
from ansor.schedule.layout import Layout
from ansor.schedule.naming import code_names
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State, state_of
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
    FollowFusedSplitStep,
    FollowLayoutStep,
    FollowSplitStep,
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
from ansor.te.source import graph_source, identifier
from ansor.te.tensor import ComputeOp, Operation, PlaceholderOp

if TYPE_CHECKING:
    from ansor.schedule.dag import ComputeDAG
    from ansor.schedule.manual import Schedule

_CALLS: dict[type[Step], str] = {
    ComputeInlineStep: "compute_inline",
    ComputeRootStep: "compute_root",
    StoreConvertedStep: "store_converted",
    StreamingStoresStep: "streaming_stores",
    SwizzleStep: "swizzle",
}
"""Methods of a stage that take nothing, by the steps that they make."""
_BY_NAME: Final = (Annotation.UNROLL, Annotation.VECTORIZE, Annotation.PARALLEL, Annotation.PIPELINE)
"""Annotations that methods of a stage make which are called by their words."""
NewStageStep = CacheReadStep | CacheWriteStep | DistributeStep | PadStep | RfactorStep
NewTensorStep = NewStageStep | RewriteLayoutStep | FollowLayoutStep


def _asking_ahead(step: PrefetchStep | ReadAheadStep | MultiBufferStep) -> str:
    """The call of a stage that lets it read, or copies of it be filled, before that is used."""
    if isinstance(step, PrefetchStep):
        return f"prefetch({step.room or ''})"
    if isinstance(step, ReadAheadStep):
        return f"read_ahead({step.least})"
    return "double_buffer()" if step.buffers == 2 else f"multi_buffer({step.buffers})"


def schedule_code(state: State | Schedule) -> str:
    """A Python program that ends with a schedule `s` and the list `tensors` of the graph's tensors.

    Raises
    ------
    ScheduleError
        If `state` is neither a state nor a schedule.
    """
    written = state_of(state, "schedule_code")
    return with_depth(lambda: _Writer(written.dag).write(written))


class _Writer:
    """Writes the code of one history, replaying it along the way to know the loops' names."""

    def __init__(self, dag: ComputeDAG) -> None:
        self.taken = NumberedNames(("te", "s", "tensors", "float"))
        self.state = State.initial(dag)
        self.tensors: dict[Operation, str] = {}
        self.loops: dict[tuple[int, str], str] = {}
        self.lines: list[str] = []

    def stage(self, stage_id: int) -> str:
        """The variable of a stage's tensor."""
        for op in reversed(self.state.stages[stage_id].handles):
            if op in self.tensors:
                return self.tensors[op]
        raise KeyError(stage_id)

    def loop(self, stage_id: int, position: int) -> str:
        """The variable of a loop; axes are looked up in the operation."""
        stage = self.state.stages[stage_id]
        name = stage.iterators[position].name
        key = (id(self._anchor(stage_id)), name)
        if key in self.loops:
            return self.loops[key]
        op = stage.compute
        for kind, axes in (("axis", op.axis), ("reduce_axis", op.reduce_axis)):
            for index, axis in enumerate(axes):
                if axis.name == name:
                    return f"s[{self.stage(stage_id)}].op.{kind}[{index}]"
        raise KeyError(name)

    def _anchor(self, stage_id: int) -> Operation:
        return self.state.stages[stage_id].handles[0]

    def define(self, stage_id: int, names: list[str]) -> list[str]:
        """New variables for loops that a step has just made."""
        code = code_names(self.state.stages[stage_id])
        made = []
        for name in names:
            variable = identifier(f"{self.stage(stage_id)}_{code[name]}", self.taken)
            self.loops[id(self._anchor(stage_id)), name] = variable
            made.append(variable)
        return made

    def write(self, state: State) -> str:
        dag = state.dag
        definitions, variables = graph_source(dag.ops, self.taken, prepared=True)
        for op in dag.ops:
            self.tensors[op] = variables[op.outputs[0]]
        outputs = [t for t in dag.tensors if isinstance(t.op, ComputeOp)]
        if stage_order(with_inputs(outputs)) != dag.ops:
            outputs = list(dag.tensors)
        for step in state.steps:
            self.lines.extend(self.step(step))
        arguments = [
            self.stage(self.state.stage_id(t)) if isinstance(t.op, PlaceholderOp) else variables[t]
            for t in dag.tensors
        ]
        return "\n".join(
            [
                "from ansor import te",
                "",
                *definitions,
                "",
                f"s = te.create_schedule([{', '.join(variables[t] for t in outputs)}])",
                *self.lines,
                f"tensors = [{', '.join(arguments)}]",
                "",
            ]
        )

    def step(self, step: Step) -> list[str]:
        """The lines of one step; the replayed state moves on."""
        before = self.state
        match step:
            case SplitStep() | FollowSplitStep() | FollowFusedSplitStep():
                return self._split(step)
            case FuseStep(stage=stage, iterators=positions):
                names = ", ".join(self.loop(stage, p) for p in positions)
                self.state = before.apply(step)
                made = self.define(stage, [self.state.stages[stage].iterators[positions[0]].name])
                return [f"{made[0]} = s[{self.stage(stage)}].fuse({names})"]
            case ReorderStep(stage=stage, order=order):
                text = f"s[{self.stage(stage)}].reorder({', '.join(self.loop(stage, p) for p in order)})"
            case AnnotationStep() | TensorizeStep():
                text = self._annotation(step)
            case PragmaStep(stage=stage, iterator=position):
                loop = self.loop(stage, position)
                value = step.max_step
                text = (
                    f"s[{self.stage(stage)}].pragma({loop}, {UNROLL_PRAGMA!r}, {value})"
                    if value is not None
                    else ""
                )
            case StorageAlignStep(stage=stage, iterator=position, factor=factor, offset=offset):
                name, loop = self.stage(stage), self.loop(stage, position)
                # Records may align what is no axis of the storage, to no effect; schedules refuse to.
                axes = {axis.name for axis in before.stages[stage].compute.axis}
                aligned = before.stages[stage].iterators[position].name in axes
                text = f"s[{name}].storage_align({loop}, {factor}, {offset})" if aligned else ""
            case ComputeAtStep(stage=stage, target_stage=target, target_iterator=position):
                loop = self.loop(target, position)
                text = f"s[{self.stage(stage)}].compute_at(s[{self.stage(target)}], {loop})"
            case (
                ComputeInlineStep()
                | ComputeRootStep()
                | StoreConvertedStep()
                | StreamingStoresStep()
                | SwizzleStep()
            ):
                text = f"s[{self.stage(step.stage)}].{_CALLS[type(step)]}()"
            case PrefetchStep() | ReadAheadStep() | MultiBufferStep():
                text = f"s[{self.stage(step.stage)}].{_asking_ahead(step)}"
            case SetScopeStep(stage=stage, scope=scope):
                text = f"s[{self.stage(stage)}].set_scope({scope!r})"
            case (
                CacheReadStep()
                | CacheWriteStep()
                | DistributeStep()
                | PadStep()
                | RfactorStep()
                | RewriteLayoutStep()
                | FollowLayoutStep()
            ):
                return self._new_tensor(step)
            case _:
                raise TypeError(f"no schedule code for {step!r}")
        self.state = before.apply(step)
        return [text] if text else []

    def _split(self, step: SplitStep | FollowSplitStep | FollowFusedSplitStep) -> list[str]:
        stage, position = step.stage, step.iterator
        inner = True
        if isinstance(step, SplitStep):
            lengths, inner = step.lengths, bool(step.inner_to_outer)
        elif isinstance(step, FollowSplitStep):
            lengths = step.lengths(self.state.steps)
        else:
            lengths, inner = (step.length(self.state.steps),), bool(step.factor_or_nparts)
        loop, name = self.loop(stage, position), self.stage(stage)
        self.state = self.state.apply(step)
        parts = self.state.stages[stage].iterators[position : position + len(lengths) + 1]
        made = ", ".join(self.define(stage, [part.name for part in parts]))
        if len(lengths) == 1:
            keyword_name = "factor" if inner else "nparts"
            return [f"{made} = s[{name}].split({loop}, {keyword_name}={lengths[0]})"]
        values = ", ".join(str(length) for length in lengths)
        keyword_name = "factors" if inner else "nparts"
        return [f"{made} = s[{name}].split({loop}, {keyword_name}=[{values}])"]

    def _annotation(self, step: AnnotationStep | TensorizeStep) -> str:
        loop, name = self.loop(step.stage, step.iterator), self.stage(step.stage)
        if isinstance(step, TensorizeStep):
            return f"s[{name}].tensorize({loop}, {step.intrinsic!r})"
        annotation = Annotation(step.annotation)
        if annotation is Annotation.NONE:
            return ""
        if annotation in _BY_NAME:
            return f"s[{name}].{annotation.word}({loop})"
        return f's[{name}].bind({loop}, te.thread_axis("{annotation.word}"))'

    def _new_tensor(self, step: NewTensorStep) -> list[str]:
        if isinstance(step, (RewriteLayoutStep, FollowLayoutStep)):
            return self._layout(step)
        return self._new_stage(step)

    def _layout(self, step: RewriteLayoutStep | FollowLayoutStep) -> list[str]:
        name, stage = self.stage(step.stage), self.state.stages[step.stage]
        readers = step.readers if isinstance(step, RewriteLayoutStep) else ()
        if isinstance(step, FollowLayoutStep):
            layout = step.layout(self.state)
        else:
            layout = Layout.of(stage.op.output(0).shape, step.digits)
        listed = f", [{', '.join(map(self.stage, readers))}]" if readers else ""
        self.state = self.state.apply(step)
        made = step.new_stages[0] if step.new_stages else step.stage
        op = self.state.stages[made].op
        self.tensors[op] = identifier(op.name, self.taken)
        return [f"{self.tensors[op]} = s.rewrite_layout({name}, {layout}{listed})"]

    def _new_stage(self, step: NewStageStep) -> list[str]:
        old = self.stage(step.stage)
        if isinstance(step, CacheReadStep):
            readers = ", ".join(self.stage(reader) for reader in step.readers)
            part = f", {step.part}" if isinstance(step, CacheReadPartStep) else ""
            call = f"s.cache_read({old}, {step.scope!r}, [{readers}]{part})"
        elif isinstance(step, CacheWriteStep):
            call = f"s.cache_write({old}, {step.scope!r})"
        elif isinstance(step, DistributeStep):
            call = f"s.distribute({old}, {list(step.factors)})"
        elif isinstance(step, PadStep):
            call = f"s.pad({old}, {step.scope!r}, {list(step.extents)})"
        else:
            loop = self.loop(step.stage, step.iterator)
            call = f"s.rfactor({old}, {loop}, {step.factor_iterator})"
        self.state = self.state.apply(step)
        made = [self.state.stages[stage].op for stage in step.new_stages]
        self.tensors.update((op, identifier(op.name, self.taken)) for op in made)
        # An rfactor of a reduction of several values gives a list; any of its tensors names the new stage.
        first = "[0]" if isinstance(step, RfactorStep) and made[0].num_outputs > 1 else ""
        return [f"{', '.join(self.tensors[op] for op in made)} = {call}{first}"]
