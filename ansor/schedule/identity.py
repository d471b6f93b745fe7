"""When two programs of a computation are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ansor.schedule.bounds import infer_bounds
from ansor.schedule.extents import is_one
from ansor.schedule.stages import FuseRelation, Stage
from ansor.schedule.state import State, state_of

if TYPE_CHECKING:
    from ansor.schedule.manual import Schedule


def program_key(state: State | Schedule) -> str:
    """
    Digest of a state or a schedule: equal keys, equal programs; a state keeps its own.

    It covers the computation, the printed loops with all extents filled, how long loops were that were fused
    and inner parts that were split again, and what loops do not show: the steps of ours, what stages that
    steps made or changed read, how results are stored, and which stage is meant where two have one name.

    Raises
    ------
    ScheduleError
        If `state` is neither.
    """
    return state_of(state, "program_key").key


def digest(state: State) -> str:
    """Compute what `program_key` describes."""
    bounds = infer_bounds(state)
    parts = "".join(
        f"\n{part} {known.extents[part]}"
        for stage_id, known in bounds.stages.items()
        for part in _parts_inside(state.stages[stage_id])
        if not is_one(known.extents[part])
    )
    ours = "".join(f"\n{step.to_json()}" for step in state.steps if not step.in_reference)
    facts = "".join([parts, ours, *_stored(state), *_placed(state)])
    text = f"{state.dag.structure_hash}\n{bounds.state}{facts}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _parts_inside(stage: Stage) -> Iterator[str]:
    """Loops that no longer are, by whose extents others stride: what was fused, and inner parts."""
    parts: set[str] = set()
    for relation in stage.relations:
        if isinstance(relation, FuseRelation):
            yield from relation.parents
        else:
            if relation.parent in parts:
                yield relation.parent
            parts.update(relation.parts[1:])


def _placed(state: State) -> Iterator[str]:
    """Where stages are computed, if their names, which is all that printed loops show, do not tell."""
    if len({stage.name for stage in state.stages}) < len(state.stages):
        for position, stage in enumerate(state.stages):
            yield f"\n{position} {stage.compute_at} {state.attach.get(position)}"


def _stored(state: State) -> Iterator[str]:
    """Where results are kept, in which order of axes, and which of them the stages of steps read."""
    given = set(state.dag.ops)
    for position, stage in enumerate(state.stages):
        if stage.op not in given:
            axes = [axis.name for axis in stage.op.axis]
            reads = [state.stage_id(tensor) for tensor in stage.op.input_tensors]
            yield f"\n{position} {axes} of {reads}"
        if stage.scope != "global" or stage.storage_align is not None:
            yield f"\n{position} {stage.scope} {stage.storage_align}"
