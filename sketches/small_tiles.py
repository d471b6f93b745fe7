"""Small tiles that transforms are computed by: which stages have one, and what its loops are.

An operation names its tile (`attrs={"unrolled_tiles": {"e": 6, "v": 6}}`); the sketch rule `UnrolledTiles`
makes loops of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ansor.schedule.access import AccessAnalysis, named_tile
from ansor.schedule.state import State
from ansor.te.expr import Select, distinct_nodes, free_vars
from ansor.te.tensor import ComputeOp, Operation


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of a transform: its lengths by positions of axes, and which of these are unrolled."""

    lengths: Mapping[int, int]
    unrolled: frozenset[int]


def unrolled_tile(state: State, stage_id: int) -> Tile | None:
    """The tile of a transform; None for other stages."""
    return _tiles(state.access).get(state.stages[stage_id].op)


@lru_cache(maxsize=256)
def _tiles(access: AccessAnalysis) -> Mapping[Operation, Tile]:
    """Operation -> the tile that its author names, or that of what it alone reads element by element."""
    tiles: dict[Operation, Tile] = {}
    for op in access.ops:
        lengths = named_tile(op)
        if not isinstance(op, ComputeOp):
            continue
        if lengths is not None:
            tiles[op] = Tile(lengths, _deciding(op) & lengths.keys() or frozenset(lengths))
        elif not op.reduce_axis:
            read = (one for one in access.producers(op) if one in tiles and tiles[one].lengths)
            first = next((one for one in read if access.elementwise_match(one, op)), None)
            if first is not None:
                tiles[op] = tiles[first]
    return tiles


def _deciding(op: ComputeOp) -> frozenset[int]:
    """Positions of the axes that decide which of several sums an element is."""
    conditions = [node.cond for root in op.body for node in distinct_nodes(root) if isinstance(node, Select)]
    deciding = free_vars(*conditions)
    return frozenset(number for number, axis in enumerate(op.axis) if axis in deciding)


def first_of_tile(state: State, stage_id: int) -> int | None:
    """Position of the first loop of the tile of a transform that has been tiled; None for other stages."""
    tile = unrolled_tile(state, stage_id)
    if tile is None or not tile.lengths:
        return None
    stage = state.stages[stage_id]
    last = len(stage.compute.axis) + len(stage.compute.reduce_axis) - 1
    return len(stage.iterators) - len({*tile.lengths, last})
