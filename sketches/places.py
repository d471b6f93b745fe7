"""What a stage reads, and at which places, through the stages that are inlined into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ansor.schedule.places import Place, seen_from
from ansor.schedule.state import State
from ansor.te.tensor import ComputeOp

MOST_PLACES: Final = 64
"""No more places of one stage are told apart."""


def places_read(
    state: State, reader: int, is_inlined: Callable[[int], bool]
) -> Iterator[tuple[int, set[Place]]]:
    """
    Find the places at which one element of a stage reads others.

    Parameters
    ----------
    state, reader
        The stage that reads.
    is_inlined
        Whether a stage is, or will be.

    Yields
    ------
    tuple[int, set[Place]]
        A stage that is read and the places, at most `MOST_PLACES`; those read through inlined ones and these
        included, from the last stage to the first. Reads that are at none are left out.
    """
    axes = len(state.stages[reader].op.output(0).shape)
    found: dict[int, set[Place]] = {reader: {tuple((axis, 1, 0) for axis in range(axes))}}
    for stage_id in range(reader, -1, -1):
        places = found.pop(stage_id, None)
        if places is None:
            continue
        if len(places) > MOST_PLACES:
            places.difference_update(sorted(places)[MOST_PLACES:])
        op = state.stages[stage_id].op
        if isinstance(op, ComputeOp) and (stage_id == reader or is_inlined(stage_id)):
            for producer, own in state.access.places(op).items():
                seen = found.setdefault(state.stage_id(producer), set())
                seen.update(seen_from(place, read) for place in places for read in own)
        if stage_id != reader:
            yield stage_id, places
