"""Conversion where a value is stored: an operand of a narrow dtype that products convert again and again.

A product of 16-bit floats that is summed up in float32 converts each element of its operands where it uses
it, an element that is broadcast as dearly as a vector of them. Padding stores its result anyway: as float32,
each element is converted once. The stored tile takes more of the caches for that.

Transposes, and dear stages that would be recomputed, are stored for their many uses as well (`streams`,
`recompute`): this rule comes before theirs, and the walk goes on at the converted stage, which stays stored.
What is inlined anyway is converted where it is used.

Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansor.dtypes import dtype_info
from ansor.schedule.convert_steps import wanted_dtype
from ansor.schedule.state import State
from ansor.schedule.steps import StoreConvertedStep
from sketches.relations import is_computed
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.inline import is_always_inlineable
from sketches.rules.recompute import MANY, SOME, is_costly, uses_per_element


def is_widened(state: State, stage_id: int) -> bool:
    """Whether all that read a computed stage convert what it stores to the same wider dtype."""
    wanted, reason = wanted_dtype(state, stage_id)
    own = state.stages[stage_id].op.output(0).dtype
    return not reason and dtype_info(wanted).bits > dtype_info(own).bits


class StoreConverted:
    """A stage that reductions read often, and widen -> it stores what they convert it to, also or only."""

    name = "StoreConverted"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if not is_computed(state, stage_id) or not is_widened(state, stage_id):
            return Verdict.PASS
        if is_always_inlineable(context, state, stage_id) and not is_costly(state.stages[stage_id].compute):
            return Verdict.PASS
        uses = uses_per_element(state, stage_id)
        if uses < SOME:
            return Verdict.PASS
        return Verdict.APPLY if uses < MANY else Verdict.APPLY_AND_SKIP_REST

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state.apply(StoreConvertedStep(stage_id)), stage_id)]
