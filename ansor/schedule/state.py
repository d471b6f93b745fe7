"""`State`: a schedule as an immutable value.

A state is a graph, the steps applied to it, and the loop structure they lead to. It is what the search
works on and what a record rebuilds: `State.replay(dag, steps)`. Two states are equal when they print the
same loops (that text is their identity, as in TVM). `te.create_schedule` gives the mutable form for
people, which records the very same steps.

All methods return a new state. Lengths and extents may be columns (one value per row of a population).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, Union

from ansor.depth import with_depth
from ansor.errors import ScheduleError
from ansor.schedule.access import AccessAnalysis
from ansor.schedule.extents import Extent, is_one, with_python_integers
from ansor.schedule.layout import layout_of
from ansor.schedule.stages import ComputeAt, Stage, format_iterator
from ansor.schedule.step_base import any_stage_at, is_position
from ansor.schedule.steps import (
    AnnotationStep,
    CacheReadStep,
    CacheWriteStep,
    ComputeAtStep,
    ComputeInlineStep,
    ComputeRootStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    PragmaStep,
    ReorderStep,
    RfactorStep,
    SplitStep,
    Step,
    StorageAlignStep,
    step_from_json,
)
from ansor.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor

if TYPE_CHECKING:
    from ansor.schedule.dag import ComputeDAG

StageKey = Union[Operation, Tensor, str, int]
_T = TypeVar("_T")


@lru_cache(maxsize=512)
def _analyse(ops: tuple[Operation, ...], outputs: tuple[Operation, ...]) -> AccessAnalysis:
    return AccessAnalysis(ops, outputs)


@dataclass(frozen=True, eq=False)
class State:
    """Stages in dependency order, where each is attached, and the history that made them."""

    dag: ComputeDAG
    stages: tuple[Stage, ...]
    attach: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @classmethod
    def initial(cls, dag: ComputeDAG) -> State:
        """The naive state: every operation at root with one loop per axis."""
        return cls(dag, tuple(Stage.of_op(op) for op in dag.ops))

    @classmethod
    def replay(cls, dag: ComputeDAG, steps: Iterable[Step | Sequence[Any]]) -> State:
        """The state that `steps` (steps, or their record form) lead to from the naive state.

        Raises
        ------
        ScheduleError
            If a step is illegal; the message names its position in the history.
        """
        state = cls.initial(dag)
        for position, item in enumerate(steps):
            step = item if isinstance(item, Step) else step_from_json(item)
            state = state.replayed(position, step)
        return state

    def replayed(self, position: int, step: Step) -> State:
        """The state after `step` of a history, whose position an error names."""
        try:
            return self.apply(step)
        except ScheduleError as error:
            raise ScheduleError(f"step {position} {step}: {error}") from error

    def apply(self, step: Step) -> State:
        """The state after `step`, which is added to the history."""
        return replace(step.apply(self), steps=(*self.steps, step))

    # -- the graph ----------------------------------------------------------------------------------

    @cached_property
    def ops(self) -> tuple[Operation, ...]:
        """The current operations in stage order; steps that add stages rebuild some."""
        return tuple(stage.op for stage in self.stages)

    @cached_property
    def access(self) -> AccessAnalysis:
        """Access analysis of the current operations."""
        outputs = tuple(self.ops[self._ids[t.op]] for t in self.dag.outputs)
        return _analyse(self.ops, outputs)

    @cached_property
    def _ids(self) -> dict[Operation, int]:
        ids: dict[Operation, int] = {}
        for position, stage in enumerate(self.stages):
            for op in stage.handles or (stage.op,):
                ids[op] = position
        return ids

    def stage_id(self, key: StageKey) -> int:
        """The position of the stage that an operation (also a former one), tensor or name denotes."""
        if isinstance(key, int) and 0 <= key < len(self.stages):
            return key
        if isinstance(key, str):
            named = [i for i, stage in enumerate(self.stages) if stage.name == key]
            if len(named) == 1:
                return named[0]
        elif isinstance(key, (Tensor, ComputeOp, PlaceholderOp)):
            op = key.op if isinstance(key, Tensor) else key
            if op in self._ids:
                return self._ids[op]
        name = key if isinstance(key, str) else getattr(key, "name", key)
        same = not isinstance(key, str) and any(stage.name == name for stage in self.stages)
        raise ScheduleError(
            f"{name!r} is not a stage of this schedule; the stages are "
            + ", ".join(stage.name for stage in self.stages)
            + (f" (this {name!r} is another tensor of the same name)" if same else "")
        )

    def has_stage(self, tensor: Tensor) -> bool:
        """Whether a tensor is, or has been, computed or read by this schedule."""
        return tensor.op in self._ids

    def is_output(self, stage: int) -> bool:
        """Whether the stage's result leaves the program, even if another stage reads it too."""
        return self.access.is_output(self.stages[stage].op)

    def consumers(self, stage: int) -> set[int]:
        """Stages that read this one; an inlined consumer stands for its own consumers."""
        return self._through_inlined(stage, self._direct_consumers)

    def _direct_consumers(self, stage: int) -> set[int]:
        return {self._ids[op] for op in self.access.consumers(self.stages[stage].op)}

    def producers(self, stage: int) -> set[int]:
        """Stages that this one reads; an inlined producer stands for its own producers."""
        return self._through_inlined(stage, self.direct_producers)

    def _through_inlined(self, stage: int, beside: Callable[[int], set[int]]) -> set[int]:
        """The stages `beside` one, and instead of inlined ones those beside them."""
        found: set[int] = set()
        pending = [stage]
        passed: set[int] = set()
        while pending:
            for other in beside(pending.pop()):
                if self.stages[other].compute_at is not ComputeAt.INLINED:
                    found.add(other)
                elif other not in passed:
                    passed.add(other)
                    pending.append(other)
        return found

    def direct_producers(self, stage: int) -> set[int]:
        """Stages that this one reads, inlined ones included."""
        return {self._ids[op] for op in self.access.reads(self.stages[stage].op)}

    def transitive_consumers(self, stage: int) -> set[int]:
        """All stages that use this one, directly or through others."""
        result: set[int] = set()
        pending = [stage]
        while pending:
            for consumer in self.consumers(pending.pop()):
                if consumer not in result:
                    result.add(consumer)
                    pending.append(consumer)
        return result

    def attached_to(self, stage: int, iterator: int) -> tuple[int, ...]:
        """Stages computed at this loop, in the order in which they were attached."""
        return tuple(s for s, place in self.attach.items() if place == (stage, iterator))

    # -- editing (used by steps) ----------------------------------------------------------------------

    def with_stage(self, stage: int, changed: Stage) -> State:
        """This state with one stage replaced; the history is unchanged."""
        stages = (*self.stages[:stage], changed, *self.stages[stage + 1 :])
        return State(self.dag, stages, self.attach, self.steps)

    def with_attach(self, stage: int, place: tuple[int, int] | None) -> State:
        """This state with `stage` attached at `(target stage, loop)`, or detached."""
        attach = {s: p for s, p in self.attach.items() if s != stage}
        if place is not None:
            attach[stage] = place
        return State(self.dag, self.stages, attach, self.steps)

    def with_attach_moved(self, target: int, move: Callable[[int], int]) -> State:
        """This state with the loops of `target` renumbered by `move` for all stages attached there."""
        if not any(place[0] == target for place in self.attach.values()):
            return self
        attach = {
            stage: (place[0], move(place[1])) if place[0] == target else place
            for stage, place in self.attach.items()
        }
        return State(self.dag, self.stages, attach, self.steps)

    def with_stages(self, stages: tuple[Stage, ...], inserted_at: int, count: int = 1) -> State:
        """This state with `count` new stages at `inserted_at`; ids in the attach map are shifted."""

        def shift(stage: int) -> int:
            return stage + count if stage >= inserted_at else stage

        attach = {shift(s): (shift(t), loop) for s, (t, loop) in self.attach.items()}
        return State(self.dag, stages, attach, self.steps)

    # -- steps by name ----------------------------------------------------------------------------------
    #
    # A stage is a position, or what `stage_id` takes; a loop is its position within the stage.

    def _at(self, stage: StageKey) -> int:
        """The position of a stage; one given as a position stays as it is, for the step to look at."""
        return stage if is_position(stage) else self.stage_id(stage)

    def split(
        self, stage: StageKey, iterator: int, lengths: Sequence[Extent | None], inner_to_outer: bool = True
    ) -> State:
        plain = with_python_integers(_listed("split", "lengths", lengths))
        position = self._at(stage)
        loops = any_stage_at(self, position, "split").iterators
        extent = loops[iterator].extent if is_position(iterator) and 0 <= iterator < len(loops) else None
        known = extent if isinstance(extent, int) else None
        return self.apply(SplitStep(position, iterator, known, plain, int(inner_to_outer)))

    def fuse(self, stage: StageKey, iterators: Sequence[int]) -> State:
        return self.apply(FuseStep(self._at(stage), _listed("fuse", "loops", iterators)))

    def reorder(self, stage: StageKey, order: Sequence[int]) -> State:
        return self.apply(ReorderStep(self._at(stage), _listed("reorder", "loops", order)))

    def annotate(self, stage: StageKey, iterator: int, annotation: int) -> State:
        code = int(annotation) if is_position(annotation) else annotation
        return self.apply(AnnotationStep(self._at(stage), iterator, code))

    def pragma(self, stage: StageKey, iterator: int, text: str) -> State:
        return self.apply(PragmaStep(self._at(stage), iterator, text))

    def follow_split(self, stage: StageKey, iterator: int, source: int, n_split: int) -> State:
        return self.apply(FollowSplitStep(self._at(stage), iterator, source, n_split))

    def follow_fused_split(
        self, stage: StageKey, iterator: int, sources: Sequence[int], level: int, factor_or_nparts: bool
    ) -> State:
        splits = _listed("follow_fused_split", "positions of splits in the history", sources)
        return self.apply(
            FollowFusedSplitStep(self._at(stage), iterator, splits, level, int(factor_or_nparts))
        )

    def storage_align(self, stage: StageKey, iterator: int, factor: int, offset: int) -> State:
        numbers = with_python_integers((factor, offset))
        return self.apply(StorageAlignStep(self._at(stage), iterator, *numbers))

    def compute_at(self, stage: StageKey, target_stage: StageKey, target_iterator: int) -> State:
        return self.apply(ComputeAtStep(self._at(stage), self._at(target_stage), target_iterator))

    def compute_inline(self, stage: StageKey) -> State:
        return self.apply(ComputeInlineStep(self._at(stage)))

    def compute_root(self, stage: StageKey) -> State:
        return self.apply(ComputeRootStep(self._at(stage)))

    def cache_read(self, stage: StageKey, scope: str, readers: Sequence[StageKey]) -> State:
        of = tuple(map(self._at, _listed("cache_read", "readers", readers)))
        return self.apply(CacheReadStep(self._at(stage), scope, of))

    def cache_write(self, stage: StageKey, scope: str) -> State:
        return self.apply(CacheWriteStep(self._at(stage), scope))

    def rfactor(self, stage: StageKey, iterator: int, factor_iterator: int) -> State:
        return self.apply(RfactorStep(self._at(stage), iterator, factor_iterator))

    # -- views ----------------------------------------------------------------------------------------

    @property
    def is_concrete(self) -> bool:
        """Whether every split has all its lengths."""
        return all(
            length is not None
            for step in self.steps
            if isinstance(step, SplitStep)
            for length in step.lengths
        )

    def with_bounds(self) -> State:
        """This state with the extent of every loop filled in by bound inference."""
        from ansor.schedule.bounds import infer_bounds

        return infer_bounds(self).state

    @cached_property
    def key(self) -> str:
        """What `program_key` gives: a search asks it several times of each program."""
        from ansor.schedule.identity import digest

        return digest(self)

    @property
    def brief(self) -> str:
        """The stages that are computed, and how many steps there are, on one line."""
        stages = ", ".join(stage.name for stage in self.stages if not stage.is_placeholder)
        return f"{stages}, {len(self.steps)} steps"

    def __repr__(self) -> str:
        return f"<State of {self.brief}>"

    def __str__(self) -> str:
        """The loops as text: placeholders first, then each root stage with what is computed inside it."""
        return with_depth(self._text)

    def _text(self) -> str:
        lines = ["Placeholder: " + ", ".join(_input_text(s) for s in self.stages if s.is_placeholder)]
        for stage_id, stage in enumerate(self.stages):
            if not stage.is_placeholder and stage.compute_at is ComputeAt.ROOT:
                self._print_stage(lines, stage_id, 0)
        return "\n".join(lines) + "\n"

    def _print_stage(self, lines: list[str], stage_id: int, depth: int) -> None:
        stage = self.stages[stage_id]
        pad = "  " * depth
        if stage.auto_unroll_max_step >= 0 and stage.auto_unroll_max_step != 0:
            lines.append(f"{pad}{stage.name} auto_unroll: {stage.auto_unroll_max_step}")
        if stage.streaming:
            lines.append(f"{pad}{stage.name} streaming_stores")
        if stage.prefetch is not None:
            lines.append(f"{pad}{stage.name} prefetch" + (f": {stage.prefetch}" if stage.prefetch else ""))
        if stage.read_ahead is not None:
            lines.append(f"{pad}{stage.name} read_ahead: {stage.read_ahead}")
        if stage.swizzle:
            lines.append(f"{pad}{stage.name} swizzle")
        if stage.buffering:
            lines.append(f"{pad}{stage.name} {stage.buffering}")
        if stage.storage_offset:
            lines.append(f"{pad}{stage.name} storage_offset: {stage.storage_offset}")
        for position, loop in enumerate(stage.iterators):
            if not is_one(loop.extent):
                lines.append(f"{'  ' * depth}{format_iterator(loop)}")
                depth += 1
            for inner in self.attached_to(stage_id, position):
                self._print_stage(lines, inner, depth)
        lines.append(f"{'  ' * depth}{stage.name} = ...")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def state_of(program: object, asking: str) -> State:
    """The state that a state is, or that a schedule has.

    Raises
    ------
    ScheduleError
        If it is neither; the message begins with who asks.
    """
    state = program if isinstance(program, State) else getattr(program, "state", None)
    if not isinstance(state, State):
        raise ScheduleError(
            f"{asking}: found {program!r}, not a schedule or a state; make one with te.create_schedule(...)"
        )
    return state


def _listed(step: str, what: str, values: Iterable[_T]) -> tuple[_T, ...]:
    """The values that a step was given, which must be several."""
    if not isinstance(values, Iterable) or isinstance(values, (str, Tensor)):
        raise ScheduleError(f"{step}: expected a list of {what}, found {values!r}; put brackets around it")
    return tuple(values)


def _input_text(stage: Stage) -> str:
    """An input as printed states show it: its name, and its layout if a step has rewritten that."""
    layout = layout_of(stage.op.output(0))
    return stage.name if layout is None else f"{stage.name}{layout}"
