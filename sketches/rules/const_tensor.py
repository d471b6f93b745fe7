"""Stages that multiply by a small constant tensor (the transforms of Winograd convolution)."""

from __future__ import annotations

from collections.abc import Sequence

from ansor.schedule.access import SIMPLIFY_CONST_ATTR
from ansor.schedule.stages import Annotation, IteratorKind
from ansor.schedule.state import State
from sketches.relations import attribute_names
from sketches.rule import SketchContext, Successor, Verdict


class SimplifyComputeWithConstTensor:
    """A stage with `auto_scheduler_simplify_const_tensor_indices` -> the named loops innermost and unrolled.

    Once they are, every index into the constant tensor is a number and the multiplications by 0 and 1
    vanish. The other loops, all spatial, are tiled once.
    """

    name = "SimplifyComputeWithConstTensor"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        named = attribute_names(state, stage_id, SIMPLIFY_CONST_ATTR)
        if not named or state.stages[stage_id].relations:
            return Verdict.PASS
        others = [loop for loop in state.stages[stage_id].iterators if loop.name not in named]
        if any(loop.kind is not IteratorKind.SPATIAL for loop in others):
            return Verdict.PASS
        return Verdict.APPLY_AND_SKIP_REST

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        named = attribute_names(state, stage_id, SIMPLIFY_CONST_ATTR)
        outer: list[int] = []
        inner: list[int] = []
        unrolled: list[int] = []
        position = 0
        for loop in state.stages[stage_id].iterators:
            if loop.name in named:
                state = state.annotate(stage_id, position, Annotation.UNROLL)
                unrolled.append(position)
                position += 1
            else:
                state = state.split(stage_id, position, (None,))
                outer.append(position)
                inner.append(position + 1)
                position += 2
        return [(state.reorder(stage_id, [*outer, *inner, *unrolled]), stage_id - 1)]
