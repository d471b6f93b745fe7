"""Multi-level tiling, alone or fused with the stage that consumes the tile.

The tile structure is a string, outermost level first: S is one level of all spatial loops, R one of all
reduction loops. "SSRSRS" makes of a matrix product `i j k`

    i.0 j.0  i.1 j.1  k.0  i.2 j.2  k.1  i.3 j.3

Lengths stay unset: they are the holes that sampling fills.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ansor.schedule.access import NO_SPLIT_ATTR
from ansor.schedule.stages import IteratorKind
from ansor.schedule.state import State
from sketches.relations import attribute_names, elementwise_consumer, is_cache_write, needs_tiling
from sketches.rule import SketchContext, Successor, Verdict

CPU_FOLLOW_LEVELS: Final = (1, 2)
"""After how many spatial levels a tile may be handed to its consumer on a CPU, one sketch each."""

GPU_FOLLOW_LEVELS: Final = (3,)
"""The same on a GPU: after block, virtual thread and thread."""


def tile(
    state: State,
    stage_id: int,
    structure: str,
    innermost: int = 0,
    fixed: Mapping[str, tuple[int, ...]] | None = None,
    lanes: str | None = None,
) -> tuple[State, tuple[int, ...]]:
    """
    Split all loops of an untransformed stage by levels and order the levels by `structure`.

    Parameters
    ----------
    state, stage_id
        The stage must have one loop per axis.
    structure
        Letters S and R; see the module.
    innermost
        So many loops at the end stay where they are.
    fixed
        Lengths of the levels of loops by name; those of others are holes.
    lanes
        The axis whose loop comes last in the innermost spatial level, where vectors are; else the last axis.

    Returns
    -------
    tuple[State, tuple[int, ...]]
        The new state, and the positions in its history of the splits of spatial loops, in loop order. Loops
        named by `auto_scheduler_no_split_at_inner` stay whole, in front of the innermost level of their
        kind.
    """
    letters = {IteratorKind.SPATIAL: "S", IteratorKind.REDUCE: "R"}
    counts = {kind: structure.count(letter) for kind, letter in letters.items()}
    levels: dict[str, list[list[int]]] = {
        letter: [[] for _ in range(counts[kind])] for kind, letter in letters.items()
    }
    whole: dict[str, list[int]] = {"S": [], "R": []}
    named = attribute_names(state, stage_id, NO_SPLIT_ATTR)
    spatial_steps: list[int] = []
    vector: int | None = None
    position = 0
    for loop in state.stages[stage_id].iterators[: len(state.stages[stage_id].iterators) - innermost]:
        letter, parts = letters[loop.kind], counts[loop.kind]
        if loop.name in named or parts == 1:
            whole[letter].append(position)
            position += 1
            continue
        if letter == "S":
            spatial_steps.append(len(state.steps))
        lengths: tuple[int | None, ...] = (fixed or {}).get(loop.name, (None,) * (parts - 1))
        state = state.split(stage_id, position, lengths)
        for level in levels[letter]:
            level.append(position)
            position += 1
        if loop.name == lanes:
            vector = levels["S"][-1].pop()
    if vector is not None:
        levels["S"][-1].append(vector)
    levels["S"][-1:] = [whole["S"] + level for level in levels["S"][-1:]]
    levels["R"][-1:] = [whole["R"] + level for level in levels["R"][-1:]]
    order = [at for letter in structure for at in levels[letter].pop(0)]
    order += range(position, position + innermost)
    return state.reorder(stage_id, order), tuple(spatial_steps)


def follow_tiling(
    state: State, consumer: int, splits: Sequence[int], level: int, innermost: int = 0
) -> State:
    """Split the loops of an untransformed consumer as `splits` did, `level` lengths each; order by level.

    So many loops at the end as `innermost` says stay where they are.
    """
    parts = level + 1
    for axis, step in enumerate(splits):
        state = state.follow_split(consumer, axis * parts, step, level)
    order = [axis * parts + part for part in range(parts) for axis in range(len(splits))]
    order += range(len(order), len(order) + innermost)
    return state.reorder(consumer, order)


class MultiLevelTiling:
    """A stage that reuses its inputs -> all its loops tiled by the target's structure. Source: rule 3."""

    name = "MultiLevelTiling"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        return Verdict.APPLY_AND_SKIP_REST if can_tile(context, state, stage_id) else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        tiled, _ = tile(state, stage_id, context.tiling_structure)
        return [(tiled, stage_id - 1)]


class MultiLevelTilingWithFusion:
    """A stage to tile, consumed elementwise -> tiled inside the consumer's tiles. Source: rule 4.

    One result per follow level. A stage made by cache_write, and any on a GPU, has no other use for a tile,
    so the unfused variant is left out.
    """

    name = "MultiLevelTilingWithFusion"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if not can_fuse_tiles(context, state, stage_id):
            return Verdict.PASS
        only = context.is_gpu or is_cache_write(state, stage_id)
        return Verdict.APPLY_AND_SKIP_REST if only else Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return fused_tiles(context, state, stage_id)


def can_fuse_tiles(context: SketchContext, state: State, stage_id: int) -> bool:
    """Whether a stage can be tiled inside the tiles of an elementwise consumer."""
    if not can_tile(context, state, stage_id) or not follow_levels(context):
        return False
    return tile_consumer(state, stage_id) is not None


def fused_tiles(
    context: SketchContext, state: State, stage_id: int, lanes: str | None = None
) -> Sequence[Successor]:
    """Tile a stage inside the tiles of its elementwise consumer, once per follow level; `lanes`: `tile`."""
    consumer = elementwise_consumer(state, stage_id)
    assert consumer is not None
    tiled, splits = tile(state, stage_id, context.tiling_structure, lanes=lanes)
    results: list[Successor] = []
    for level in follow_levels(context):
        fused = follow_tiling(tiled, consumer, splits, level)
        results.append((fused.compute_at(stage_id, consumer, level * len(splits) - 1), stage_id - 1))
    return results


def tile_consumer(state: State, stage_id: int) -> int | None:
    """Find the stage that uses a stage's elements at the same places, and can share its tiles."""
    consumer = elementwise_consumer(state, stage_id)
    if consumer is None or attribute_names(state, stage_id, NO_SPLIT_ATTR):
        return None
    spatial = [x for x in state.stages[stage_id].iterators if x.kind is IteratorKind.SPATIAL]
    return consumer if spatial and len(state.stages[consumer].iterators) == len(spatial) else None


def follow_levels(context: SketchContext) -> tuple[int, ...]:
    """Levels after which a tile may go to its consumer: they end a spatial level and leave one inside."""
    structure = context.tiling_structure
    levels = GPU_FOLLOW_LEVELS if context.is_gpu else CPU_FOLLOW_LEVELS
    return tuple(
        level
        for level in levels
        if level < structure.count("S") and level <= len(structure) and structure[level - 1] == "S"
    )


def can_tile(context: SketchContext, state: State, stage_id: int) -> bool:
    """Whether the stage wants tiles, has not been transformed, and the structure has levels for its loops."""
    if not needs_tiling(state, stage_id) or state.stages[stage_id].relations:
        return False
    kinds = {loop.kind for loop in state.stages[stage_id].iterators}
    letters = {IteratorKind.SPATIAL: "S", IteratorKind.REDUCE: "R"}
    return all(letters[kind] in context.tiling_structure for kind in kinds)
