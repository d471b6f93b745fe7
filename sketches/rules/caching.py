"""Write caches: accumulate a tile in scratch of its own, then copy it out."""

from __future__ import annotations

from collections.abc import Sequence

from ansor.schedule.state import State
from sketches.relations import CACHE_WRITE_SCOPE, elementwise_consumer, needs_tiling
from sketches.rule import SketchContext, Successor, Verdict


class AddCacheWrite:
    """A stage to tile without an elementwise consumer -> a cache stage that gives it one. Source: rule 5.

    The walk revisits the same position, which is now the cache stage; its consumer is the original stage,
    so the fusion rule fires on it.
    """

    name = "AddCacheWrite"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if not needs_tiling(state, stage_id) or elementwise_consumer(state, stage_id) is not None:
            return Verdict.PASS
        if state.stages[stage_id].relations:
            return Verdict.PASS
        return Verdict.APPLY_AND_SKIP_REST if context.is_gpu else Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state.cache_write(stage_id, CACHE_WRITE_SCOPE), stage_id)]
