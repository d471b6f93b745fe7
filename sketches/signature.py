"""Fingerprints of programs, for whole populations: which rows are one program written differently.

Many rows differ in integers and yet make the same loops: a loop of one iteration may be fused or not, tiles
may sit on either side of a loop that has one iteration, an unroll limit may lie between two loops' sizes. Two
fingerprints tell rows apart:

- `fine`: the loops of every stage that have more than one iteration, in order, with what is computed inside
  them, which are parallel or vectorised and how many the pragma unrolls. Equal fingerprints mean equal
  programs (among those of one task).
- `coarse`: for every stage the loops that have more than one iteration, neighbouring loops of one axis taken
  together, and how many iterations are parallel. Programs that lower to equal code have equal coarse
  fingerprints, so only programs that share one need to be lowered to see whether they are the same.

Both are 64-bit hashes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.stages import ComputeAt, IteratorKind
from ansor.schedule.state import State
from ansor.schedule.steps import (
    ComputeAtStep,
    ComputeInlineStep,
    ComputeRootStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    ReorderStep,
    RfactorStep,
    SplitStep,
)
from sketches.annotate import extent_matrix
from sketches.columns import ColumnKind, stage_names
from sketches.family import Family
from sketches.population import Population

Hashes = NDArray[np.uint64]

_LEVEL: Final = re.compile(r"\.\d+")
_PART: Final = re.compile(r"(_[oiv])+$")
_LOOP_STEPS: Final = (
    ComputeAtStep,
    ComputeInlineStep,
    ComputeRootStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    ReorderStep,
    SplitStep,
)
"""Steps that change nothing but loops and places; these are in the fingerprint by what they do."""
_A: Final = np.uint64(0x9E3779B97F4A7C15)
_B: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PARALLEL: Final = np.uint64(0x165667B19E3779F9)
_VECTOR: Final = np.uint64(0x27D4EB2F165667C5)
_SHIFT: Final = np.uint64(29)


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprints:
    """One pair of hashes per row, each of shape `(rows,)`."""

    fine: Hashes
    coarse: Hashes

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Fingerprints:
        """Return those of some rows."""
        return Fingerprints(self.fine[rows], self.coarse[rows])


def fingerprints(population: Population) -> Fingerprints:
    """
    Compute the fingerprints of all rows.

    Parameters
    ----------
    population
        Complete programs, annotation columns within their limits.
    """
    rows, shape = np.arange(len(population)), _shape_of(population.family)
    walk = _Walk(population, population.bounds, rows, shape)
    fine = np.full(len(rows), shape.token, dtype=np.uint64)
    for stage in shape.roots:
        fine = _mix(fine, walk.visit(stage))
    return Fingerprints(fine, walk.coarse)


def _hash(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def _mix(state: Hashes, item: Hashes) -> Hashes:
    mixed = (state ^ item) * _A
    return mixed ^ (mixed >> _SHIFT)


def _scaled(values: NDArray[np.int64]) -> Hashes:
    scaled = (values.astype(np.uint64) + _A) * _B
    return scaled ^ (scaled >> _SHIFT)


@dataclass(frozen=True, slots=True, eq=False)
class _Loop:
    """A loop's axis and kind as a hash, whether it reduces, and the stages computed at it.

    `root` is the hash by the axis that a factored reduction was made from: the outer and the inner part of a
    reduction, if the other one has one iteration, are one and the same loop.
    """

    axis: np.uint64
    root: np.uint64
    reduces: bool
    attached: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _StageShape:
    token: np.uint64
    loops: tuple[_Loop, ...]
    parallel: tuple[tuple[int, int], ...]
    """First loop of each parallel site, and its column."""
    vector: int
    """Column of the vector site, -1 without one."""
    unroll: int
    """Column of the unroll site, -1 without one."""
    stream: int
    """Column that says whether stores pass the caches by, -1 without one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """What fingerprints need of a family's structure: `token` and `root` say how the graph was changed."""

    token: np.uint64
    root: np.uint64
    roots: tuple[int, ...]
    stages: dict[int, _StageShape]


@lru_cache(maxsize=4096)
def _shape_of(family: Family) -> _Shape:
    state = State.replay(family.dag, family.program(_plain_row(family)))
    names = stage_names(state)
    parallel, unroll, vector = _site_columns(family)
    stream = dict(zip(family.streams, family.positions(ColumnKind.STREAM), strict=True))
    stages: dict[int, _StageShape] = {}
    changes = [step for step in family.steps if not isinstance(step, _LOOP_STEPS)]
    inlined = [names[s] for s, stage in enumerate(state.stages) if stage.compute_at is ComputeAt.INLINED]
    token = _hash(f"{[step.to_json() for step in changes]} {inlined}")
    alike = [step.stage if isinstance(step, RfactorStep) else step.to_json() for step in changes]
    for stage_id, stage in enumerate(state.stages):
        if stage.is_placeholder or stage.compute_at is ComputeAt.INLINED:
            continue
        loops = tuple(
            _Loop(
                _hash(f"{_LEVEL.sub('', loop.name)} {loop.kind}"),
                _hash(f"{_PART.sub('', _LEVEL.sub('', loop.name))} {loop.kind}"),
                loop.kind is not IteratorKind.SPATIAL,
                state.attached_to(stage_id, position),
            )
            for position, loop in enumerate(stage.iterators)
        )
        stages[stage_id] = _StageShape(
            _hash(names[stage_id]),
            loops,
            tuple(parallel.get(stage_id, ())),
            vector.get(stage_id, -1),
            unroll.get(stage_id, -1),
            stream.get(stage_id, -1),
        )
    roots = tuple(s for s in stages if state.stages[s].compute_at is ComputeAt.ROOT)
    return _Shape(token, _hash(f"{alike} {inlined}"), roots, stages)


def _plain_row(family: Family) -> list[int]:
    """One row with all lengths 1 and no annotations."""
    tiles = sum(len(hole.columns) for hole in family.holes)
    return [1] * tiles + [0] * (len(family.columns) - tiles)


def _site_columns(
    family: Family,
) -> tuple[dict[int, list[tuple[int, int]]], dict[int, int], dict[int, int]]:
    """Columns of the sites of each stage: parallel (with their first loops), unroll, vector."""
    parallel: dict[int, list[tuple[int, int]]] = {}
    for site, at in zip(family.parallel, family.positions(ColumnKind.PARALLEL), strict=True):
        parallel.setdefault(site.stage, []).append((site.start, at))
    pragmas = [site.stage for site in family.unrolls if site.has_pragma]
    unroll = dict(zip(pragmas, family.positions(ColumnKind.UNROLL), strict=True))
    stages = [site.stage for site in family.vectors]
    return parallel, unroll, dict(zip(stages, family.positions(ColumnKind.VECTORIZE), strict=True))


class _Walk:
    """Visits the stages of a population, from the outside in."""

    def __init__(
        self, population: Population, bounded: State, rows: NDArray[np.int64], shape: _Shape
    ) -> None:
        self.values, self.bounded, self.rows, self.shape = population.values, bounded, rows, shape
        self.coarse: Hashes = np.full(len(rows), shape.root, dtype=np.uint64)

    def visit(self, stage_id: int) -> Hashes:
        """Hash a stage with what is computed inside it; its loops also join the coarse hash."""
        shape = self.shape.stages[stage_id]
        count = len(shape.loops)
        extents = extent_matrix(self.bounded, stage_id, 0, count, self.rows)
        marks = self._marks(shape, count)
        fine = np.full(len(self.rows), shape.token, dtype=np.uint64)
        coarse = fine.copy()
        last_axis = np.zeros(len(self.rows), dtype=np.uint64)
        run = np.ones(len(self.rows), dtype=np.int64)
        parallel = np.ones(len(self.rows), dtype=np.int64)
        for position, loop in enumerate(shape.loops):
            extent = extents[:, position]
            loops = extent > 1
            item = _scaled(extent) ^ loop.axis ^ marks[:, position]
            fine = np.where(loops, _mix(fine, item), fine)
            same = last_axis == loop.root
            ended = loops & ~same
            coarse = np.where(ended, _mix(coarse, _scaled(run) ^ last_axis), coarse)
            run = np.where(ended, extent, run * extent)
            last_axis = np.where(ended, loop.root, last_axis)
            parallel = np.where(marks[:, position] == _PARALLEL, parallel * extent, parallel)
            for inner in loop.attached:
                fine = _mix(fine, self.visit(inner))
        coarse = _mix(coarse, _scaled(run) ^ last_axis)
        self.coarse = self.coarse + _mix(coarse, _scaled(parallel))
        if shape.unroll >= 0:
            fine = _mix(fine, _scaled(self._unrolled(shape, extents)))
        if shape.stream >= 0:
            fine = _mix(fine, _scaled(self.values[:, shape.stream]))
        return fine

    def _marks(self, shape: _StageShape, count: int) -> NDArray[np.uint64]:
        """Parallel and vector marks of each loop, shape `(rows, loops)`."""
        marks = np.zeros((len(self.rows), count), dtype=np.uint64)
        at = np.arange(count)[None, :]
        for start, column in shape.parallel:
            width = self.values[:, column, None]
            marks[(at >= start) & (at < start + width)] = _PARALLEL
        if shape.vector >= 0:
            marks[at >= count - self.values[:, shape.vector, None]] = _VECTOR
        return marks

    def _unrolled(self, shape: _StageShape, extents: NDArray[np.int64]) -> NDArray[np.int64]:
        """Stand for what the pragma does: loops it unrolls around the update and the initialisation.

        Where other stages are computed inside, the value of the pragma stands for itself.
        """
        limit = self.values[:, shape.unroll]
        if any(loop.attached for loop in shape.loops):
            return limit
        count = len(shape.loops)
        vectors = self.values[:, shape.vector] if shape.vector >= 0 else np.zeros_like(limit)
        first = next((p for p, loop in enumerate(shape.loops) if loop.reduces), count)
        update, start = np.ones_like(limit), np.ones_like(limit)
        stands = np.zeros_like(limit)
        for position in range(count - 1, -1, -1):
            scalar = position < count - vectors
            extent = np.where(scalar, extents[:, position], 1)
            if position >= first:
                update = update * extent
                start = start if shape.loops[position].reduces else start * extent
                fits = (update <= limit) * 1 + (start <= limit) * 2
            else:
                update = update * extent
                start = start * extent
                fits = (update + (start if first < count else 0) <= limit) * 3
            stands = stands * 4 + np.where(extent > 1, fits, 0)
        return stands
