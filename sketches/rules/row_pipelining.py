"""Pipelines of rows: what passes over a row several times does so for several rows at once.

The loop over rows of an output is split, and what it needs of a row is computed in the inner one, which is
pipelined (`ansor.ir.passes.software_pipeline`): while one row of a softmax is divided by its sum, the
exponentials of the next one are added up, those of another one are computed, and a fourth one is searched for
its maximum. What is cheap is inlined, and computed in every pass.

Each pass has a row of its own in the first cache, and stored rows are there for each pass that uses them. So
rows are not longer than that lets them be, and not shorter than what a processor looks ahead for by itself,
which is as fast for rows of 128 floats. Features do not show what overlaps: a model tells these programs from
others by where their stages are. Layer norms, that spend their time on memory more than on arithmetic,
gain where their rows come from the second cache: 1.05 to 1.13 times as fast for 512 rows of 1024 and 128 rows
of 768, 0.8 to 1.0 for 1024 rows of 256 to 768. Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Final

from ansor.dtypes import dtype_info
from ansor.schedule.inlining import effective_reads, inlined_operations
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from sketches.relations import is_computed, is_pipelined, plain_operation
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.inline import is_always_inlineable
from sketches.rules.row_tiling import RowLoop, row_loops

SHORTEST_ROW: Final = 256
"""Elements from which on rows are pipelined."""
FEWEST_ROWS: Final = 8
"""So many rows a pipelined loop may have at least: the first and the last ones do not overlap."""
ROWS_HELD: Final = 5
"""So many rows of the output have room in the first cache: two of the input, three of the exponentials."""


class RowPipelining:
    """An output that reductions of rows go into -> with a pipelined loop over rows that all of it is in."""

    name = "RowPipelining"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if _pipeline_of(context, state, stage_id) is not None:
            return Verdict.APPLY_AND_SKIP_REST
        return Verdict.PASS if _rows_held(context, state, stage_id) is None else Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        place = _pipeline_of(context, state, stage_id)
        if place is not None:
            return [(state.compute_at(stage_id, *place), stage_id - 1)]
        found = _rows_held(context, state, stage_id)
        assert found is not None
        split = state.split(stage_id, found.position, (None,))
        return [(split.annotate(stage_id, found.position + 1, Annotation.PIPELINE), stage_id - 1)]


def _rows_held(context: SketchContext, state: State, stage_id: int) -> RowLoop | None:
    """The loop over rows that are worth it and fit the first cache, in the widest dtype that is computed."""
    computed = [s for s in range(len(state.stages)) if is_computed(state, s)]
    widest = max((dtype_info(state.stages[s].op.output(0).dtype).bytes for s in computed), default=1)
    longest = context.hardware.l1_bytes // (ROWS_HELD * widest)
    for found in row_loops(state, stage_id):
        if SHORTEST_ROW <= found.length <= longest and found.rows >= FEWEST_ROWS:
            return found
    return None


def _pipeline_of(context: SketchContext, state: State, stage_id: int) -> tuple[int, int] | None:
    """The pipelined loop, by stage and position, that all uses of a stage are in, each of one row of it."""
    if state.is_output(stage_id) or plain_operation(state, stage_id) is None:
        return None
    if is_always_inlineable(context, state, stage_id):
        return None
    consumers = state.consumers(stage_id)
    homes = {_pipeline_around(state, consumer) for consumer in consumers}
    place = homes.pop() if len(homes) == 1 else None
    if place is None:
        return None
    by_rows = all(_reads_its_row(state, consumer, stage_id, place[1]) for consumer in consumers)
    return place if by_rows else None


def _pipeline_around(state: State, stage_id: int) -> tuple[int, int] | None:
    """The pipelined loop of a stage, or that it is computed in."""
    if is_pipelined(state, stage_id):
        return state.attach[stage_id]
    for position, loop in enumerate(state.stages[stage_id].iterators):
        if loop.annotation is Annotation.PIPELINE:
            return stage_id, position
    return None


def _reads_its_row(state: State, reader: int, stage_id: int, axes: int) -> bool:
    """Whether the first indices of all reads of a stage are the first `axes` of the reader, in order."""
    op, read = state.stages[reader].compute, state.stages[stage_id].op
    return all(
        len(found.indices) >= axes and all(map(is_, found.indices, op.axis[:axes]))
        for found in effective_reads(op, inlined_operations(state))
        if found.tensor.op is read
    )
