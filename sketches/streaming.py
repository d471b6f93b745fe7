"""Which outputs are worth a choice between stores through the caches and stores past them.

Streaming stores (`ansor.schedule.store_steps`) pay where an output would be written over before anybody reads
it from a cache: where all that the program must move is more than the last cache holds, of which others take
a share. They are of no use where the output is a small part of that. In between the choice is open, and so a
column of 0 or 1.

Convolutions on 2 cores of a Zen 4 with a last cache of 32 MiB, the same programs with streaming stores: 0.97
to 1.01 of the time for 12 to 16 MB, 0.88 to 1.01, mostly 0.98, for 17 to 32 MB, 0.92 to 1.0 for more.

Not in TVM.
"""

from __future__ import annotations

from typing import Final

from ansor.schedule.stages import ComputeAt
from ansor.schedule.state import State
from ansor.schedule.store_steps import why_not_streaming
from ansor.te.sizes import size_bytes
from sketches.relations import is_computed
from sketches.rule import SketchContext

CACHE_SHARE: Final = 2
"""The choice is open for programs that move more than the last cache by this."""
LEAST_SHARE: Final = 1 / 16
"""Least part of a program's compulsory traffic that an output with streaming stores makes up."""


def stream_sites(context: SketchContext, state: State) -> tuple[int, ...]:
    """List the stages whose stores may pass the caches by, where that can pay."""
    if not context.params.cpu_streaming_stores:
        return ()
    traffic = context.dag.traffic_bytes
    if traffic * CACHE_SHARE <= context.hardware.cache_bytes[-1]:
        return ()
    return tuple(
        stage_id
        for stage_id, stage in enumerate(state.stages)
        if is_computed(state, stage_id)
        and stage.compute_at is ComputeAt.ROOT
        and not why_not_streaming(state, stage_id)
        and sum(map(size_bytes, stage.op.outputs)) >= LEAST_SHARE * traffic
    )
