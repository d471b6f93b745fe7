"""Tiles of rows: what passes over short rows several times does so for a few rows together.

A softmax of one row is a chain: its maximum, which the exponentials wait for, their sum, a reciprocal, the
quotients. Each link ends with a reduction of lanes, and takes longer than the arithmetic of a short row; the
next row is too far away for a processor to begin with. With the output's loop over rows split, the others
can be computed for a tile of rows, one stage after the other, and rows of one stage wait for nothing.

Softmax of 1536 rows of 128 floats, 2 cores of a Zen 4: 2 rows at a time take 0.88 of the time, 3 to 16 rows
0.81 of it. What 64 trials find with such tiles takes 0.94 to 0.98 of the time of what they find without for
rows of 512, and 1.02 to 1.04 of it for rows of 1024: few of those fit the first cache, so that most tiles are
too large. With two rows alone it takes 0.94 to 0.98, a layer norm of 128 rows of 768 0.88 to 0.91. Not in
TVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final, NamedTuple

from ansor.schedule.places import NO_AXIS
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.te.expr import int_value
from sketches.places import places_read
from sketches.relations import has_reduce_iterator, needs_tiling, plain_operation
from sketches.rule import SketchContext, Successor, Verdict

SHORT_ROW: Final = 512
"""Elements of a row up to which tiles may have any number of rows. Longer rows keep a processor busy between
two reductions of lanes for longer, and the first cache holds fewer of them."""
LONGEST_ROW: Final = 1024
"""Elements of a row up to which tiles have two rows; longer rows are passed over one by one."""


class RowLoop(NamedTuple):
    """The position of a loop over rows, how many there are, and how many elements each has."""

    position: int
    rows: int
    length: int


def row_loops(state: State, stage_id: int) -> Iterator[RowLoop]:
    """The loops over rows of an untransformed output that reductions of rows go into."""
    op = plain_operation(state, stage_id)
    if op is None or not state.is_output(stage_id) or has_reduce_iterator(state, stage_id):
        return
    extents = [int_value(axis.extent) or 0 for axis in op.axis]
    read = places_read(state, stage_id, lambda stage: not has_reduce_iterator(state, stage))
    for stage, places in read:
        if not has_reduce_iterator(state, stage) or needs_tiling(state, stage) or len(places) != 1:
            continue
        rows = [part for part in next(iter(places)) if part[0] != NO_AXIS]
        count = len(rows)
        are_outer = rows == [(axis, 1, 0) for axis in range(count)]
        length = prod(extents[count:])
        if are_outer and count and extents[count - 1] > 1 and length > 1:
            yield RowLoop(count - 1, extents[count - 1], length)


class RowTiling:
    """An output of short rows that reductions of rows go into -> also with its loop over rows split."""

    name = "RowTiling"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        return Verdict.PASS if _short_rows(state, stage_id) is None else Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        found = _short_rows(state, stage_id)
        assert found is not None
        split = state.split(stage_id, found.position, (None if found.length <= SHORT_ROW else 2,))
        # Nothing is computed inside an unrolled loop: others are for all rows of the tile, or elsewhere.
        return [(split.annotate(stage_id, found.position + 1, Annotation.UNROLL), stage_id - 1)]


def _short_rows(state: State, stage_id: int) -> RowLoop | None:
    return next((found for found in row_loops(state, stage_id) if found.length <= LONGEST_ROW), None)
