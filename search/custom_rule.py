"""`PreloadCustomSketchRule`: a user's sketch rule in the reference's form, given to a policy as a callback.

The plain form is a rule object (`sketches.SketchRule`) in `SketchPolicy(rules=...)`; this one is two
functions of the policy, a state and a stage number, tried before all other rules.

Source: reference sections 1.6 and 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ansor.errors import DefinitionError, ScheduleError
from ansor.schedule.state import State
from search.policy import InitSearchCallback
from sketches import SketchContext, Verdict
from sketches.rule import Successor

MeetCondition = Callable[[Any, State, int], Any]
ApplyRule = Callable[[Any, State, int], Sequence[Sequence[Any]]]


class PreloadCustomSketchRule(InitSearchCallback):
    """
    A sketch rule made of two functions.

    Parameters
    ----------
    meet_condition_func
        Called with the policy, a state and a stage number; returns `PASS`, `APPLY` or `APPLY_AND_SKIP_REST`.
    apply_func
        Called with the same; returns pairs of a state (or what has one, as a `Schedule`) and the stage number
        at which the walk goes on, -1 to end it.
    rule_name
        Shown in derivations.

    Raises
    ------
    DefinitionError
        If an argument is no function.
    """

    PASS: ClassVar = 0
    APPLY: ClassVar = 1
    APPLY_AND_SKIP_REST: ClassVar = 2

    def __init__(
        self,
        meet_condition_func: MeetCondition,
        apply_func: ApplyRule,
        rule_name: str = "CustomSketchRule",
    ) -> None:
        for name, function in (("meet_condition_func", meet_condition_func), ("apply_func", apply_func)):
            if not callable(function):
                raise DefinitionError(
                    f"PreloadCustomSketchRule({name}={function!r}): it must be a function of policy, state "
                    "and stage number"
                )
        self.meet_condition_func = meet_condition_func
        self.apply_func = apply_func
        self.rule_name = rule_name

    def rule_for(self, policy: object) -> CustomSketchRule:
        """Make the rule that calls the functions with `policy`."""
        return CustomSketchRule(self.rule_name, self.meet_condition_func, self.apply_func, policy)


@dataclass(frozen=True, slots=True)
class CustomSketchRule:
    """A pair of functions as a sketch rule."""

    name: str
    meet_condition: MeetCondition
    apply_rule: ApplyRule
    policy: object

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        """Ask the condition.

        Raises
        ------
        ScheduleError
            If the answer is none of the three.
        """
        answer = self.meet_condition(self.policy, state, stage_id)
        try:
            return Verdict(answer)
        except ValueError:
            raise ScheduleError(
                f"the condition of sketch rule {self.name!r} answered {answer!r} for stage "
                f"{state.stages[stage_id].name!r}; it must be PreloadCustomSketchRule.PASS, .APPLY or "
                ".APPLY_AND_SKIP_REST"
            ) from None

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        """Collect what the function makes of the stage.

        Raises
        ------
        ScheduleError
            If that is not a list of pairs of a state and a stage number.
        """
        return [self._successor(item) for item in self.apply_rule(self.policy, state, stage_id)]

    def _successor(self, item: Sequence[Any]) -> Successor:
        pair = tuple(item) if isinstance(item, (list, tuple)) else ()
        if len(pair) == 2:
            made = next(
                (found for name in ("state", "state_object") if (found := getattr(pair[0], name, None))),
                pair[0],
            )
            if isinstance(made, State) and isinstance(pair[1], int):
                return made, pair[1]
        raise ScheduleError(
            f"sketch rule {self.name!r} gave {item!r}; its function must return a list of pairs [state, next "
            "stage number]"
        )
