"""`PreloadCustomSketchRule`: a user's sketch rule in TVM's form, given to a policy as a callback.

The plain form is a rule object (`sketches.SketchRule`) in `SketchPolicy(rules=...)`; this one is two
functions of the policy, a state and a stage number, tried before all other rules.

Source: `PreloadCustomSketchRule` of TVM 0.16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ansor.errors import DefinitionError
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
        """Ask the condition; the driver checks the answer."""
        answer: Verdict = self.meet_condition(self.policy, state, stage_id)
        return answer

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        """Give what the function makes of the stage, each state taken out of what holds it."""
        made: Any = self.apply_rule(self.policy, state, stage_id)
        return [_bare(item) for item in made] if isinstance(made, (list, tuple)) else made


def _bare(item: Any) -> Any:
    """A pair with the state itself in place of a `Schedule` and the like."""
    if not isinstance(item, (list, tuple)) or len(item) != 2:
        return item
    inner = (getattr(item[0], name, None) for name in ("state", "state_object"))
    return next((found for found in inner if isinstance(found, State)), item[0]), item[1]
