"""Sketches: every loop structure that the rules derive, in a fixed order.

The walk starts with the naive state at its last stage and goes breadth first, one stage a round: each rule
that applies to the stage contributes its states; `SkipStage`, always last, keeps the stage as it is. A
state that has passed its first stage is a finished sketch. Output order is that of TVM, which
numbers sketches in tests and in people's heads.

Every product of a chain multiplies the structures by those of its own. Of more than a search could look at,
`MOST_STATES`, some are kept that are spread evenly over all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from ansor.errors import ScheduleError
from ansor.schedule.replays import Replays
from ansor.schedule.rfactor_step import RfactorStep
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import AnnotationStep, SplitStep, Step
from ansor.task.task import Task
from ansor.te.tensor import Operation
from sketches.columns import Hole, fill_holes, find_holes
from sketches.frame import Frame
from sketches.launch import Binding, Launch
from sketches.params import SketchParams
from sketches.rule import (
    MOST_VISITS,
    Derivation,
    SketchContext,
    SketchRule,
    Successor,
    Verdict,
    check_rules,
    successors_of,
    verdict_of,
)
from sketches.rules.caching import AddCacheWrite
from sketches.rules.const_tensor import SimplifyComputeWithConstTensor
from sketches.rules.conversions import StoreConverted
from sketches.rules.cross_thread import CrossThreadReduction
from sketches.rules.distribution import DistributeProducts
from sketches.rules.gpu_memory import AddCacheRead, SpecialComputeLocationGPU
from sketches.rules.inline import AlwaysInline, InlineUsedOnce
from sketches.rules.inlined_padding import InlinePadding
from sketches.rules.packing import AddPackedRead
from sketches.rules.recompute import KeepCostlyProducer
from sketches.rules.rfactor import AddRfactor
from sketches.rules.rfactor_blocks import AddRfactorBlocks
from sketches.rules.rfactor_columns import AddRfactorColumns
from sketches.rules.rfactor_lanes import AddRfactorLanes
from sketches.rules.row_pipelining import RowPipelining
from sketches.rules.row_sums import KeepRowSums
from sketches.rules.row_tiling import RowTiling
from sketches.rules.stencils import StencilTiling
from sketches.rules.streams import StreamTiling
from sketches.rules.tensor import TensorIntrinsicRule
from sketches.rules.tensor_cores import TensorCores
from sketches.rules.tiling import MultiLevelTiling, MultiLevelTilingWithFusion
from sketches.rules.turned_tiles import TurnedTiling
from sketches.rules.unrolled_tiles import UnrolledTiles
from sketches.rules.windows import WindowTiling

MOST_STATES: Final = 1_000
"""States that are derived side by side at most."""
KEPT_STATES: Final = 250
"""How many of more are kept, and derived side by side from then on."""
_ENDLESS: Final = 8
"""So often applied to one stage, a rule has no end that makes more and more states."""

_GOLDEN: Final = (5**0.5 - 1) / 2

_note = logging.getLogger(__name__)


class _Derived(NamedTuple):
    """
    A state on its way.

    `next_stage` is the stage to visit, -1 at the end; `ops` are those that the stages of `history`
    were made of at first, since names may occur twice.
    """

    state: State
    next_stage: int
    history: tuple[Derivation, ...] = ()
    ops: tuple[Operation, ...] = ()

    def times(self, rule: str, stage: Operation) -> int:
        """How often a rule was applied to a stage."""
        links = zip(self.history, self.ops, strict=True)
        return sum(link.rule == rule and op is stage for link, op in links)


class SkipStage:
    """Any stage -> itself; the walk goes on."""

    name = "SkipStage"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        return Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state, stage_id - 1)]


CPU_RULES: Final[tuple[SketchRule, ...]] = (
    AlwaysInline(),
    SimplifyComputeWithConstTensor(),
    AddRfactor(),
    AddCacheWrite(),
    MultiLevelTilingWithFusion(),
    MultiLevelTiling(),
    SkipStage(),
)
"""TVM's rules for CPUs, in order; it has them for GPUs of kind mali as well."""

CPU_EXTRA_RULES: Final[Mapping[str, tuple[SketchRule, ...]]] = {
    "cpu_unrolled_tiles": (UnrolledTiles(blocks=False), UnrolledTiles()),
    "cpu_distribute_products": (DistributeProducts(),),
    "cpu_tensor_intrinsics": (TensorIntrinsicRule(slow=False), TensorIntrinsicRule()),
    "cpu_packed_read": (AddPackedRead(everything=False), AddPackedRead()),
    "cpu_inline_padding": (InlinePadding(),),
    "cpu_turned_tiles": (TurnedTiling(),),
    "cpu_store_converted": (StoreConverted(),),
    "cpu_inline_used_once": (InlineUsedOnce(),),
    "cpu_stencil_tiling": (StencilTiling(),),
    "cpu_stream_tiling": (StreamTiling(),),
    "cpu_rfactor_columns": (AddRfactorColumns(),),
    "cpu_window_tiling": (WindowTiling(),),
    "cpu_row_tiling": (RowTiling(),),
    "cpu_row_pipelining": (RowPipelining(),),
    "cpu_rfactor_lanes": (AddRfactorLanes(),),
    "cpu_keep_costly": (KeepCostlyProducer(),),
    "cpu_keep_row_sums": (KeepRowSums(),),
}
"""Rules of ours that come before `CPU_RULES`: by parameter, one for each value from 1 on."""

GPU_RULES: Final[tuple[SketchRule, ...]] = (
    AddCacheRead(),
    SpecialComputeLocationGPU(),
    AlwaysInline(),
    SimplifyComputeWithConstTensor(),
    CrossThreadReduction(),
    AddCacheWrite(),
    MultiLevelTilingWithFusion(),
    MultiLevelTiling(),
    SkipStage(),
)
"""Rules for GPUs, in order."""

GPU_EXTRA_RULES: Final[Mapping[str, tuple[SketchRule, ...]]] = {
    "gpu_tensor_cores": (TensorCores(),),
    "gpu_rfactor_blocks": (AddRfactorBlocks(),),
}
"""Rules of ours that come before `GPU_RULES`, as `CPU_EXTRA_RULES` do on CPUs."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """A loop structure with holes.

    Parameters
    ----------
    state
        The structure for looking at: unset extents are unknown, and a factored reduction has length 1 (a
        factored stage cannot be built without one).
    steps
        The same history with every hole open: the lengths to sample are None.
    derivation
        Which rules made it, in order of application.
    binding
        How its loops become blocks and threads, for GPUs (`sketches.threads`); the last ones of `steps` say
        so, too.
    replays
        Where its history is replayed: with open lengths unknown, with all of them 1, and with large tiles.
        Sketches that were derived together share these.
    """

    state: State
    steps: tuple[Step, ...]
    derivation: tuple[Derivation, ...]
    binding: Binding | None = None
    replays: tuple[Replays, Replays, Replays] = field(
        default_factory=lambda: (Replays(), Replays(), Replays()), repr=False
    )

    @cached_property
    def holes(self) -> tuple[Hole, ...]:
        """The open splits, in order; a `ScheduleError` if one cannot be sampled."""
        if self.binding is None:
            return find_holes(self._states(self.state), self.steps)
        return find_holes(self._states(self.binding.structure), self.steps, self.binding.first)

    @property
    def spelling(self) -> tuple[Step, ...]:
        """The steps of its programs, holes open: those of a GPU fuse the loops that are bound together."""
        return self.steps if self.binding is None else self.binding.steps

    @cached_property
    def spelled_holes(self) -> tuple[Hole, ...]:
        """The holes where they are in `spelling`, with the same columns."""
        if self.binding is None:
            return self.holes
        return find_holes(self._states(self.binding.program), self.binding.steps, self.binding.first)

    def _states(self, preview: State) -> Sequence[State]:
        """What the history of a state leads through."""
        return self.replays[0].along(preview.dag, preview.steps)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Which columns make the threads of its tiled stages."""
        return () if self.binding is None else self.binding.launches

    @cached_property
    def bare(self) -> State:
        """The structure with all tile lengths 1; a `ScheduleError` if it cannot be sampled."""
        ones = [1] * sum(len(hole.columns) for hole in self.holes)
        return self.replays[1].along(self.state.dag, fill_holes(self.steps, self.holes, ones))[-1]

    @cached_property
    def frame(self) -> Frame:
        """The beginning of the structure with open lengths, as far as it does not need to know them."""
        return Frame.of(self.state.dag, self.steps)

    def coarse(self) -> State:
        """The structure with innermost tiles as long as what is split, and so one iteration around each.

        Its outer loops can be fused wherever those of some program can.

        Raises
        ------
        ScheduleError
            If it cannot be sampled.
        """
        lengths = [1] * sum(len(hole.columns) for hole in self.holes)
        for hole in self.holes:
            split = self.steps[hole.step]
            if isinstance(split, SplitStep) and split.inner_to_outer:
                lengths[hole.stop - 1] = hole.extent
        return self.replays[2].along(self.state.dag, fill_holes(self.steps, self.holes, lengths))[-1]

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rules that changed something, in order of application."""
        return tuple(link.rule for link in self.derivation if link.n_steps)

    def __str__(self) -> str:
        return str(self.state)

    def explain(self) -> str:
        """Return the derivation as one line: `AddCacheWrite(C), MultiLevelTilingWithFusion(C.local)`."""
        named = [f"{link.rule}({link.stage})" for link in self.derivation if link.n_steps]
        return ", ".join(named) or "(no rule applied)"


def default_rules(context: SketchContext) -> tuple[SketchRule, ...]:
    """Return the rules for the context's target, with those that its parameters turn on."""
    extra, rules = (GPU_EXTRA_RULES, GPU_RULES) if context.is_gpu else (CPU_EXTRA_RULES, CPU_RULES)
    values = ((own, getattr(context.params, name)) for name, own in extra.items())
    return (*(own[value - 1] for own, value in values if value), *rules)


def generate_sketches(
    task: Task,
    params: SketchParams | Mapping[str, object] | None = None,
    rules: Sequence[SketchRule] | None = None,
) -> list[Sketch]:
    """
    Derive all sketches of a task.

    Parameters
    ----------
    task
        The computation, its target and hardware parameters.
    params
        Search parameters by name; those of `SketchParams` are used. By default the sketches are those that
        `SearchTask.tune` chooses from by default; with `ansor.REFERENCE_SPACE` they are TVM's, but for what
        is not tiled for operands that it only scales or shifts by.
    rules
        Rules in order, default those of the target and the parameters. `SkipStage` should be the last.

    Returns
    -------
    list[Sketch]
        In the order of derivation, which is deterministic; never empty with the default rules. Not all where
        there are more than `MOST_STATES`.

    Raises
    ------
    DefinitionError
        If the task's computation is unknown, a parameter is wrong, or a rule is none or answers wrongly.
    ScheduleError
        If a rule does an illegal step or does not move on (the message names rule and stage), or the rules
        derive nothing.
    """
    context = SketchContext.of(task, SketchParams.of(params))
    chosen = default_rules(context) if rules is None else check_rules("rules", rules)
    start = State.initial(context.dag)
    frontier = [_Derived(start, len(start.stages) - 1)]
    finished: list[Sketch] = []
    replays = Replays(), Replays(), Replays()
    most = MOST_STATES
    while frontier:
        following: list[_Derived] = []
        for derived in frontier:
            if derived.next_stage < 0:
                state = derived.state
                opened = open_splits(state.steps, context.is_gpu)
                finished.append(Sketch(state, opened, derived.history, replays=replays))
                continue
            following.extend(_visit(context, chosen, derived))
        if len(following) > most:
            following, most = _thinned(following), KEPT_STATES
        frontier = following
    if not finished:
        raise ScheduleError(
            f"the rules {', '.join(rule.name for rule in chosen) or '(none)'} carry no state past the first "
            "stage; put SkipStage() last, which keeps a stage as it is"
        )
    return finished


def _thinned(states: Sequence[_Derived]) -> list[_Derived]:
    """Some of too many states, evenly spread; a `ScheduleError` if there would be ever more."""
    for derived in states:
        rule, stage, _ = derived.history[-1]
        times = derived.times(rule, derived.ops[-1])
        if times >= _ENDLESS:
            raise ScheduleError(
                f"the derivation has grown to {len(states)} states, one by applying sketch rule {rule} to "
                f"stage {stage!r} {times} times; let its verdict be PASS once it is done, or return fewer "
                "states"
            )
    _note.info("of %d program structures %d are kept", len(states), KEPT_STATES)
    return [states[number] for number in _spread(len(states), KEPT_STATES)]


def _spread(count: int, kept: int) -> list[int]:
    """Some numbers below `count`, one in each interval of equal length, and each time elsewhere in it.

    Rules answer each state with as many others, so what one of them made recurs with a period, and every n-th
    state might be its. Multiples of the golden ratio, as parts of the interval, keep in step with no period.
    """
    if 2 * kept > count:  # in shorter intervals there is no elsewhere
        left_out = set(_spread(count, count - kept))
        return [number for number in range(count) if number not in left_out]
    return [int((number + number * _GOLDEN % 1) * count / kept) for number in range(kept)]


def _visit(context: SketchContext, rules: tuple[SketchRule, ...], derived: _Derived) -> list[_Derived]:
    """Collect what the rules make of one stage."""
    results: list[_Derived] = []
    state, stage_id = derived.state, derived.next_stage
    name, own = state.stages[stage_id].name, state.stages[stage_id].handles[0]
    for rule in rules:
        verdict = verdict_of(rule, context, state, stage_id)
        if verdict is Verdict.PASS:
            continue
        times = derived.times(rule.name, own)
        if times >= MOST_VISITS:
            raise ScheduleError(
                f"sketch rule {rule.name} was applied to stage {name!r} {times} times in one derivation and "
                "asks for more; let its verdict be PASS once it is done, or go on to an earlier stage"
            )
        for made, following in successors_of(rule, context, state, stage_id):
            added = len(made.steps) - len(state.steps)
            history = (*derived.history, Derivation(rule.name, name, added))
            results.append(_Derived(made, following, history, (*derived.ops, own)))
        if verdict is Verdict.APPLY_AND_SKIP_REST:
            break
    return results


def open_splits(steps: tuple[Step, ...], for_gpu: bool) -> tuple[Step, ...]:
    """Unset lengths that rules had to set: of a split right before an rfactor, and over a GPU's threads."""
    opened = list(steps)
    for position, (step, following) in enumerate(pairwise(steps)):
        if isinstance(step, SplitStep) and (
            isinstance(following, RfactorStep) or (for_gpu and is_over_threads(step, following))
        ):
            opened[position] = replace(step, lengths=(None,) * len(step.lengths))
    return tuple(opened)


def is_over_threads(split: SplitStep, following: Step) -> bool:
    """Whether the step after a split by one length binds the inner loop to threads."""
    return (
        isinstance(following, AnnotationStep)
        and (following.stage, following.iterator) == (split.stage, split.iterator + 1)
        and len(split.lengths) == 1
        and Annotation(following.annotation).is_thread
    )
