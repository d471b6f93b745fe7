"""Where a stage that is not tiled may be computed, and the choice among those places.

A stage goes to the root or inside a loop of the stage that consumes it. Places are part of a family,
because they change which buffers exist and what their regions are; tile lengths are columns. Some places
make no sense in some rows (a loop of extent 1 is no place of its own), so the choice is made row by row and
rows that chose alike stay together.

Source: ChangeComputeLocation of TVM (`sketch_policy_rules.cc`). Two of its answers mean the same for a stage
at root ("inline if attached", "root"), so root keeps twice the weight of any other place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import numpy as np
from numpy.typing import NDArray

from ansor.errors import ScheduleError
from ansor.schedule.extents import Extent
from ansor.schedule.stages import Annotation, IteratorKind, SplitRelation
from ansor.schedule.state import State
from ansor.schedule.steps import ComputeAtStep, ComputeInlineStep, ComputeRootStep
from sketches.relations import (
    has_reduce_iterator,
    is_computed,
    is_copy,
    is_pipelined,
    is_tiled,
    needs_tiling,
    single_consumer,
)
from sketches.small_tiles import unrolled_tile

Rows = NDArray[np.int64]
"""Positions of rows in a column."""

Move = Union[ComputeAtStep, ComputeInlineStep, ComputeRootStep, None]
"""A step that changes where a stage is computed; None leaves it where it is."""

_CLOSED = frozenset({Annotation.UNROLL, Annotation.VECTORIZE})
"""Nothing is computed inside loops with one of these."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The loop at position `iterator` of stage `target`; `extent` tells in which rows it really loops."""

    target: int
    iterator: int
    extent: Extent | None

    def is_loop(self, rows: Rows) -> NDArray[np.bool_]:
        """For each of `rows`, whether the loop has more than one iteration (unknown counts as yes)."""
        if isinstance(self.extent, np.ndarray):
            return np.asarray(self.extent[rows] != 1)
        return np.full(len(rows), not (isinstance(self.extent, int) and self.extent == 1))


@dataclass(frozen=True, slots=True, eq=False)
class LocationGroup:
    """Rows that made the same choices, and the state those lead to."""

    state: State
    rows: Rows


def is_movable(state: State, stage_id: int) -> bool:
    """Whether the stage's place is free: it has loops, is no output, and tiling is not its business."""
    if not is_computed(state, stage_id) or state.is_output(stage_id):
        return False
    if unrolled_tile(state, stage_id) is not None or is_pipelined(state, stage_id):
        return False
    return not is_tiled(state, stage_id) and not needs_tiling(state, stage_id)


def places(state: State, stage_id: int) -> list[Place]:
    """
    List the loops inside which a stage may be computed, outermost first.

    First those of its consumer, down to the first loop that other stages are attached to: through the
    reduction tile of a tiled consumer, but not below a reduction of an untiled one, nor below an unrolled
    loop or one of lanes. Then, if the consumer is itself attached somewhere, the loops around it by the same
    rules.
    """
    target = single_consumer(state, stage_id)
    if target is None:
        return []
    found = _consumer_places(state, target)
    if target in state.attach:
        around = state.attach[target][0]
        for position, loop in enumerate(state.stages[around].iterators):
            if loop.kind is not IteratorKind.SPATIAL or loop.annotation in _CLOSED:
                break
            found.append(Place(around, position, loop.extent))
            if state.attached_to(around, position):
                break
    return found


def _consumer_places(state: State, target: int) -> list[Place]:
    found: list[Place] = []
    tiled, attached = is_tiled(state, target), target in state.attach
    relations = state.stages[target].relations
    outer_parts = {relation.parts[0] for relation in relations if isinstance(relation, SplitRelation)}
    seen_reduction = False
    for position, loop in enumerate(state.stages[target].iterators):
        if loop.kind is not IteratorKind.SPATIAL:
            if not tiled:
                break
            seen_reduction = True
        elif seen_reduction:
            break
        if loop.annotation in _CLOSED:
            break
        # The outermost tiles of an attached stage have one iteration by construction.
        outermost = attached and loop.kind is IteratorKind.SPATIAL and loop.name in outer_parts
        if not outermost:
            found.append(Place(target, position, loop.extent))
        if state.attached_to(target, position):
            break
    return found


def moves(state: State, stage_id: int) -> list[Move]:
    """
    List what may be done about the place of a movable stage.

    The first two are what TVM calls "inline" and "root"; either may be None, which leaves the stage
    where it is. Then one for each of `places`, in order. A copy is not inlined: where that is any good
    there is a sketch without it.
    """
    attached = stage_id in state.attach
    hosts = any(place[0] == stage_id for place in state.attach.values())
    kept = has_reduce_iterator(state, stage_id) or is_copy(state, stage_id)
    inline = attached and not hosts and not kept
    return [
        ComputeInlineStep(stage_id) if inline else None,
        ComputeRootStep(stage_id) if attached else None,
        *(ComputeAtStep(stage_id, place.target, place.iterator) for place in places(state, stage_id)),
    ]


def choose_locations(
    state: State, rows: Rows, rng: np.random.Generator
) -> tuple[list[LocationGroup], dict[str, int]]:
    """
    Draw a place for every movable stage in every row, from the last stage to the first.

    Parameters
    ----------
    state
        A filled state whose extents may be columns.
    rows
        The rows to decide for.
    rng
        Source of randomness.

    Returns
    -------
    tuple[list[LocationGroup], dict[str, int]]
        Rows by equal choices, in a deterministic order; and how many rows were lost to illegal steps, by
        message.
    """
    groups = [LocationGroup(state, rows)]
    lost: dict[str, int] = {}
    for stage_id in range(len(state.stages) - 1, -1, -1):
        split: list[LocationGroup] = []
        for group in groups:
            if not is_movable(group.state, stage_id):
                split.append(group)
                continue
            split.extend(_choose(group, stage_id, rng, lost))
        groups = split
    return groups, lost


def _choose(
    group: LocationGroup, stage_id: int, rng: np.random.Generator, lost: dict[str, int]
) -> list[LocationGroup]:
    """Divide a group by the move drawn for one stage; a place is drawn only in rows where it is a loop."""
    options = moves(group.state, stage_id)
    weights = rng.random((len(group.rows), len(options)))
    for position, place in enumerate(places(group.state, stage_id), start=2):
        weights[~place.is_loop(group.rows), position] = -1.0
    drawn = weights.argmax(axis=1)
    if stage_id not in group.state.attach:
        drawn[drawn == 0] = 1
    made: list[LocationGroup] = []
    for choice in np.unique(drawn):
        members, move = group.rows[drawn == choice], options[choice]
        try:
            made.append(LocationGroup(group.state if move is None else group.state.apply(move), members))
        except ScheduleError as error:
            reason = str(error).splitlines()[0]
            lost[reason] = lost.get(reason, 0) + len(members)
    return made
