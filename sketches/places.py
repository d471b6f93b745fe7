"""Places: where, around its own, one element of a stage reads elements of others, through inlined stages.

A stencil reads a stage at several of them. Inlined, two stencils are one whose places are all sums of theirs:
what is read twice at one of them is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from ansor.schedule.access import shift_of
from ansor.schedule.state import State
from ansor.te.expr import Expr, int_value
from ansor.te.tensor import ComputeOp

MOST_PLACES: Final = 64
"""No more places of one stage are told apart."""
NO_AXIS: Final = -1

Place = tuple[tuple[int, int], ...]
"""Of each index of a read: the position of the reader's axis, or `NO_AXIS`, and the constant added to it."""


def places_read(
    state: State, reader: int, is_inlined: Callable[[int], bool], last: int = 0
) -> dict[int, set[Place]]:
    """
    Find the places at which one element of a stage reads others.

    Parameters
    ----------
    state, reader
        The stage that reads.
    is_inlined
        Whether a stage is, or will be.
    last
        The first stage of the state that matters; those before it may be left out.

    Returns
    -------
    dict[int, set[Place]]
        By stage, those read through inlined ones and these included; at most `MOST_PLACES` of each. Reads
        whose indices are more than an axis and a constant are left out.
    """
    here: set[Place] = {tuple((axis, 0) for axis in range(len(state.stages[reader].op.output(0).shape)))}
    found = {reader: here}
    for stage_id in range(reader, last, -1):
        if stage_id in found and (stage_id == reader or is_inlined(stage_id)):
            _add_reads(state, stage_id, found[stage_id], found)
    del found[reader]
    return found


def _add_reads(state: State, reader: int, at: Collection[Place], found: dict[int, set[Place]]) -> None:
    """Add what elements of a stage at some places read."""
    op = state.stages[reader].op
    if not isinstance(op, ComputeOp):
        return
    for producer, reads in state.access.reads(op).items():
        places = found.setdefault(state.stage_id(producer), set())
        for own in (_place(op, indices) for indices in reads):
            if own is not None:
                places.update(_from(place, own) for place in at)
        if len(places) > MOST_PLACES:
            places.difference_update(sorted(places)[MOST_PLACES:])


def _place(op: ComputeOp, indices: Sequence[Expr]) -> Place | None:
    """The place of a read; None if some index is more than an axis and a constant."""
    parts = [_part(op, index) for index in indices]
    known = tuple(part for part in parts if part is not None)
    return known if len(known) == len(parts) else None


def _part(op: ComputeOp, index: Expr) -> tuple[int, int] | None:
    constant = int_value(index)
    if constant is not None:
        return NO_AXIS, constant
    shifts = ((position, shift_of(index, axis)) for position, axis in enumerate(op.axis))
    return next(((position, shift) for position, shift in shifts if shift is not None), None)


def _from(place: Place, own: Place) -> Place:
    """The place that an element at `place` reads at its `own`, as the first reader sees it."""
    return tuple(
        (axis, shift) if axis == NO_AXIS else (place[axis][0], place[axis][1] + shift) for axis, shift in own
    )
