"""When two programs of a computation are the same."""

from __future__ import annotations

import hashlib

from ansor.schedule.bounds import infer_bounds
from ansor.schedule.extents import is_one
from ansor.schedule.stages import FuseRelation
from ansor.schedule.state import State


def program_key(state: State) -> str:
    """
    Digest of a program: equal keys, equal programs.

    It covers the computation, the printed loops with all extents filled, how loops that were fused run
    through their parts, and the steps of ours, whose effect on storage the loops do not show.
    """
    bounds = infer_bounds(state)
    parts = "".join(
        f"\n{part} {known.extents[part]}"
        for stage_id, known in bounds.stages.items()
        for relation in state.stages[stage_id].relations
        if isinstance(relation, FuseRelation)
        for part in relation.parents
        if not is_one(known.extents[part])
    )
    ours = "".join(f"\n{step.to_json()}" for step in state.steps if not step.in_reference)
    text = f"{state.dag.structure_hash}\n{bounds.state}{parts}{ours}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
