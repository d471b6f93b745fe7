"""Pipelines of rows: what passes over a row several times does so for several rows at once.

The loop over rows of an output is split, and what it needs of a row is computed in the inner one, which is
pipelined (`ansor.ir.passes.software_pipeline`): while one row of a softmax is divided by its sum, the
exponentials of the next one are added up, those of another one are computed, and a fourth one is searched for
its maximum. What is cheap is inlined, and computed in every pass.

Each pass has a row of its own in the first cache, and stored rows are there for each pass that uses them. So
rows are not longer than that lets them be, and not shorter than what a processor looks ahead for by itself,
which is as fast for rows of 128 floats. Layer norms, that spend their time on memory more than on arithmetic,
gain where their rows come from the second cache: 1.05 to 1.13 times as fast for 512 rows of 1024 and 128 rows
of 768, 0.8 to 1.0 for 1024 rows of 256 to 768. Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ansor.dtypes import dtype_info
from ansor.schedule.stages import Annotation, ComputeAt
from ansor.schedule.state import State
from sketches.inline import is_always_inlineable
from sketches.places import places_read
from sketches.relations import is_pipelined, plain_operation
from sketches.row_tiling import row_loop
from sketches.rule import SketchContext, Successor, Verdict

SHORTEST_ROW: Final = 256
"""Elements from which on rows are pipelined."""
ROWS_HELD: Final = 5
"""So many rows of the output have room in the first cache: two of the input, three of the exponentials."""


class RowPipelining:
    """An output that reductions of rows go into -> with a pipelined loop over rows that all of it is in."""

    name = "RowPipelining"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if _pipeline_of(context, state, stage_id) is not None:
            return Verdict.APPLY_AND_SKIP_REST
        found = row_loop(state, stage_id)
        if found is None or found.length < SHORTEST_ROW:
            return Verdict.PASS
        row_bytes = found.length * dtype_info(state.stages[stage_id].op.output(0).dtype).bytes
        return Verdict.APPLY if ROWS_HELD * row_bytes <= context.hardware.l1_bytes else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        place = _pipeline_of(context, state, stage_id)
        if place is not None:
            return [(state.compute_at(stage_id, *place), stage_id - 1)]
        found = row_loop(state, stage_id)
        assert found is not None
        split = state.split(stage_id, found.position, (None,))
        return [(split.annotate(stage_id, found.position + 1, Annotation.PIPELINE), stage_id - 1)]


def _pipeline_of(context: SketchContext, state: State, stage_id: int) -> tuple[int, int] | None:
    """The pipelined loop, by stage and position, that all uses of a stage are in, each of one row of it."""
    if plain_operation(state, stage_id) is None or is_always_inlineable(context, state, stage_id):
        return None
    homes = {_pipeline_around(state, consumer) for consumer in state.consumers(stage_id)}
    place = homes.pop() if len(homes) == 1 else None
    if place is None:
        return None
    host, position = place
    rows = tuple((axis, 1, 0) for axis in range(position))
    read = dict(places_read(state, host, lambda stage: _is_within(state, stage)))
    return place if all(found[:position] == rows for found in read.get(stage_id, ((),))) else None


def _pipeline_around(state: State, stage_id: int) -> tuple[int, int] | None:
    """The pipelined loop of a stage, or that it is computed in."""
    if is_pipelined(state, stage_id):
        return state.attach[stage_id]
    for position, loop in enumerate(state.stages[stage_id].iterators):
        if loop.annotation is Annotation.PIPELINE:
            return stage_id, position
    return None


def _is_within(state: State, stage_id: int) -> bool:
    """Whether what a stage reads is read in a pipelined loop."""
    return state.stages[stage_id].compute_at is ComputeAt.INLINED or is_pipelined(state, stage_id)
