"""Conversion where a value is stored: an operand of a narrow dtype that products convert again and again.

A product of 16-bit floats that is summed up in float32 converts each element of its operands where it uses
it, an element that is broadcast as dearly as a vector of them. Padding stores its result anyway: as float32,
each element is converted once. The stored tile takes more of the caches for that.

Not in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansor.dtypes import dtype_info
from ansor.schedule.convert_steps import wanted_dtypes, why_not_converted
from ansor.schedule.state import State
from ansor.schedule.steps import StoreConvertedStep
from sketches.recompute import MANY, SOME, uses_per_element
from sketches.relations import is_computed
from sketches.rule import SketchContext, Successor, Verdict


def is_widened(state: State, stage_id: int) -> bool:
    """Whether all that read a computed stage convert what it stores to the same wider dtype."""
    if why_not_converted(state, stage_id):
        return False
    (wanted,) = wanted_dtypes(state, stage_id)
    return dtype_info(wanted).bits > dtype_info(state.stages[stage_id].op.output(0).dtype).bits


class StoreConverted:
    """A stage that reductions read often, and widen -> it stores what they convert it to, also or only."""

    name = "StoreConverted"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if not is_computed(state, stage_id) or not is_widened(state, stage_id):
            return Verdict.PASS
        uses = uses_per_element(state, stage_id)
        if uses < SOME:
            return Verdict.PASS
        return Verdict.APPLY if uses < MANY else Verdict.APPLY_AND_SKIP_REST

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state.apply(StoreConvertedStep(stage_id)), stage_id)]
