"""What a sketch rule is: when it fires on a stage, and which states it makes of it.

Rules are small stateless objects in a tuple; the driver (`sketches.derive`) walks the stages from the last
to the first and asks each rule in turn. A user's rule is any object with the same two methods, put before
ours: `generate_sketches(task, rules=(MyRule(), *CPU_RULES))`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, runtime_checkable

from ansor.errors import DefinitionError, ScheduleError
from ansor.plugins import blaming, brief, check_plugin, items_of
from ansor.schedule.access import LAYOUT_FREE_ATTR
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.task.hardware import HardwareParams
from ansor.task.target import Target
from ansor.task.task import LayoutRewriteOption, Task
from ansor.te.tensor import ComputeOp, Operation
from sketches.params import SketchParams


class Verdict(IntEnum):
    """A rule's answer for one stage; the numbers are those of TVM's custom rules."""

    PASS = 0
    APPLY = 1
    """Add the rule's results and go on to the next rule."""
    APPLY_AND_SKIP_REST = 2
    """Add the rule's results; no later rule sees this stage."""


@dataclass(frozen=True, slots=True, eq=False)
class SketchContext:
    """All that a rule may look at beside the state: nothing about the machine we run on, only `hardware`."""

    dag: ComputeDAG
    target: Target
    hardware: HardwareParams
    params: SketchParams
    layout_rewrite_option: LayoutRewriteOption = LayoutRewriteOption.NO_REWRITE

    @classmethod
    def of(cls, task: Task, params: SketchParams) -> SketchContext:
        """Collect the context of a task.

        Raises
        ------
        DefinitionError
            If the task's computation is not known.
        """
        option = task.layout_rewrite_option
        return cls(task.compute_dag, task.target, task.hardware_params, params, option)

    @property
    def is_gpu(self) -> bool:
        """Whether programs have blocks and threads."""
        return self.target.is_gpu

    @property
    def moves_stages(self) -> bool:
        """Whether a program may compute stages elsewhere than its sketch says; never on a GPU."""
        return not self.is_gpu and not self.params.disable_change_compute_location

    @property
    def tiling_structure(self) -> str:
        """The string of tile levels for this target, upper case."""
        params = self.params
        structure = (
            params.gpu_multi_level_tiling_structure
            if self.is_gpu
            else params.cpu_multi_level_tiling_structure
        )
        return structure.upper()

    def free_layouts(self, op: ComputeOp) -> frozenset[Operation]:
        """Inputs that `op` reads in whatever order suits it, as the task rewrites their layouts."""
        rewrites = self.layout_rewrite_option is not LayoutRewriteOption.NO_REWRITE
        declared = op.attrs.get(LAYOUT_FREE_ATTR, ()) if rewrites else ()
        return frozenset(tensor.op for tensor in declared)


Successor = tuple[State, int]
"""A state, and the stage at which the walk goes on (-1 ends it)."""


@runtime_checkable
class SketchRule(Protocol):
    """One way to transform a stage."""

    @property
    def name(self) -> str:
        """Name shown in derivations."""

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        """Whether the rule applies to the stage; must not depend on anything but its arguments."""

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        """Make the rule's states, in order, each with the next stage to visit."""


class Derivation(NamedTuple):
    """One link of a sketch's history: which rule did `n_steps` steps on which stage."""

    rule: str
    stage: str
    n_steps: int


_ASKED: Final = ("name", "verdict", "apply")
MOST_VISITS: Final = 64
"""So often a rule may be applied to one stage in one derivation before it counts as endless."""
_RIGHT: Final = "return a list of pairs (state, next stage number), -1 to end the walk"


def check_rules(where: str, given: Sequence[SketchRule]) -> tuple[SketchRule, ...]:
    """
    Give sketch rules back as a tuple.

    Raises
    ------
    DefinitionError
        If one of them is none.
    """
    for number, rule in enumerate(items_of(where, given, "sketch rules")):
        example = "an object such as ansor.CPU_RULES[0], with name, verdict and apply"
        check_plugin(f"{where}[{number}]", rule, _ASKED, "sketch rule", example)
    return tuple(given)


def verdict_of(rule: SketchRule, context: SketchContext, state: State, stage_id: int) -> Verdict:
    """
    Ask a rule about a stage.

    Raises
    ------
    DefinitionError
        If the answer is no verdict.
    """
    asked = f"sketch rule {rule.name} was asked for its verdict on stage {state.stages[stage_id].name!r}"
    with blaming(asked):
        answer = rule.verdict(context, state, stage_id)
    try:
        return Verdict(answer)
    except ValueError:
        raise DefinitionError(
            f"{asked} and answered {brief(answer)}; it must be Verdict.PASS, .APPLY or .APPLY_AND_SKIP_REST "
            "(0, 1 or 2)"
        ) from None


def successors_of(
    rule: SketchRule, context: SketchContext, state: State, stage_id: int
) -> Sequence[Successor]:
    """
    Ask a rule what it makes of a stage.

    Raises
    ------
    DefinitionError
        If the answer is no list of pairs of a state and one of its stages.
    ScheduleError
        If the rule does not move on, or did an illegal step.
    """
    name = state.stages[stage_id].name
    asked = f"sketch rule {rule.name} was applied to stage {name!r}"
    try:
        with blaming(asked):
            answer: object = rule.apply(context, state, stage_id)
            made = list(answer) if isinstance(answer, Iterable) else None
    except ScheduleError as error:
        raise ScheduleError(f"{asked} and did an illegal step: {error}") from error
    if made is None:
        raise DefinitionError(f"{asked} and returned {brief(answer)}; {_RIGHT}")
    for item in made:
        is_pair = isinstance(item, (tuple, list)) and len(item) == 2
        if not is_pair or not isinstance(item[0], State) or not isinstance(item[1], int):
            raise DefinitionError(f"{asked} and returned {brief(item)} among its results; {_RIGHT}")
        after, following = item
        if following >= len(after.stages):
            raise DefinitionError(
                f"{asked} and asks to visit stage {following} next of a state with {len(after.stages)}; "
                f"{_RIGHT}"
            )
        if following >= stage_id and len(after.steps) == len(state.steps):
            raise ScheduleError(
                f"sketch rule {rule.name} leaves stage {name!r} unchanged and asks to visit stage "
                f"{following} next; return a stage before {stage_id}, or a changed state"
            )
    return [(after, following) for after, following in made]
