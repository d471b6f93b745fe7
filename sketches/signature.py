"""Fingerprints of programs, for whole populations: which rows are one program written differently.

Many rows differ in integers and yet make the same loops: a loop of one iteration may be fused or not, tiles
may sit on either side of a loop that has one iteration, neighbouring tiles of one axis may be fused into one
loop, an unroll limit may lie between two loops' sizes. Two fingerprints tell rows apart:

- `fine`: the loops of every stage that have more than one iteration, in order, with what is computed inside
  them, which are parallel or vectorised, how many the pragma unrolls, how copies are kept. Equal ones mean
  equal programs (among those of one task). Some equal programs have different ones: what lowering does of its
  own accord (vectors, accumulators in registers) depends on the machine, and no column says it.
- `coarse`: for every stage the loops that have more than one iteration, neighbouring loops of one axis taken
  together, and how many iterations are parallel, unless the innermost loop is: lowering may make one vector
  of that. Programs that lower to equal code have equal coarse fingerprints, so only programs that share one
  need to be lowered to see whether they are the same.

Both are 64-bit hashes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.stages import Annotation, ComputeAt, Iterator, IteratorKind, SplitRelation, Stage
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
from sketches.unrolling import Steps, count_steps

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
_OPERATIONS: Final = frozenset({Annotation.VECTORIZE, Annotation.TENSORIZE})
_PLAIN: Final = frozenset({Annotation.NONE, Annotation.UNROLL, *_OPERATIONS})
"""What changes nothing about which loops there are, and what is computed in them."""
_FREE: Final = _PLAIN | {Annotation.PIPELINE}
"""What does not bind a loop to threads."""
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
        fine = _mix(fine, walk.visit(stage, np.ones(len(rows), dtype=np.int64))[0])
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
    reduction, if the other one has one iteration, are one and the same loop. `run` is the position of the
    first loop of the split that this one comes from, if its parts are loops in their order; else its own:
    loops of one run that follow each other in a fused loop are as one.
    """

    axis: np.uint64
    root: np.uint64
    run: int
    whole: bool
    """Whether the loop is an operation of the machine from the outset."""
    held: bool
    """Whether it is bound to blocks or threads: then it is no loop of the code."""
    virtual: bool
    """Whether these are virtual threads, each of which is code of its own."""
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
    pad: int
    """Column that says how a copy is padded, -1 without one."""
    lead: int
    """Column that says how far ahead copies inside are filled, -1 without one."""
    stores: int
    """Most stores of one iteration."""
    fusible: tuple[int, ...]
    """Loops that may be fused with others; none if no two of them are of one run."""


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """What fingerprints need of a family's structure: `token` and `root` say how the graph was changed."""

    token: np.uint64
    root: np.uint64
    roots: tuple[int, ...]
    stages: dict[int, _StageShape]


@lru_cache(maxsize=4096)
def _shape_of(family: Family) -> _Shape:
    state = family.bare
    names = stage_names(state)
    parallel, unroll, vector = _site_columns(family)
    stream = dict(zip(family.streams, family.positions(ColumnKind.STREAM), strict=True))
    padded, ahead = [site.stage for site in family.pads], [site.stage for site in family.leads]
    pad = dict(zip(padded, family.positions(ColumnKind.PAD), strict=True))
    lead = dict(zip(ahead, family.positions(ColumnKind.LEAD), strict=True))
    stages: dict[int, _StageShape] = {}
    changes = [step for step in family.steps if not isinstance(step, _LOOP_STEPS)]
    inlined = [names[s] for s, stage in enumerate(state.stages) if stage.compute_at is ComputeAt.INLINED]
    token = _hash(f"{[step.to_json() for step in changes]} {inlined}")
    alike = [step.stage if isinstance(step, RfactorStep) else step.to_json() for step in changes]
    for stage_id, stage in enumerate(state.stages):
        if stage.is_placeholder or stage.compute_at is ComputeAt.INLINED:
            continue
        runs = _runs(stage)
        stages[stage_id] = _StageShape(
            _hash(names[stage_id]),
            _loops(state, stage_id, runs),
            tuple(parallel.get(stage_id, ())),
            vector.get(stage_id, -1),
            unroll.get(stage_id, -1),
            stream.get(stage_id, -1),
            pad.get(stage_id, -1),
            lead.get(stage_id, -1),
            2 * len(stage.compute.body) if len(stage.compute.body) > 1 else 1,
            _fusible(family, stage_id, runs),
        )
    roots = tuple(s for s in stages if state.stages[s].compute_at is ComputeAt.ROOT)
    return _Shape(token, _hash(f"{alike} {inlined}"), roots, stages)


def _loops(state: State, stage_id: int, runs: Sequence[int]) -> tuple[_Loop, ...]:
    return tuple(
        _Loop(
            _hash(f"{_LEVEL.sub('', loop.name)} {_how(loop)}"),
            _hash(f"{_PART.sub('', _LEVEL.sub('', loop.name))} {_how(loop)}"),
            runs[position],
            loop.annotation in _OPERATIONS,
            loop.annotation not in _FREE,
            loop.annotation is Annotation.VTHREAD,
            loop.kind is not IteratorKind.SPATIAL,
            state.attached_to(stage_id, position),
        )
        for position, loop in enumerate(state.stages[stage_id].iterators)
    )


def _how(loop: Iterator) -> str:
    """What tells loops of one axis apart: their kind, what they are bound to, and whether they overlap."""
    return f"{loop.kind}" if loop.annotation in _PLAIN else f"{loop.kind} {loop.annotation.word}"


def _runs(stage: Stage) -> list[int]:
    """For each loop, the position of the first part of its split, where the parts are loops in order."""
    at = {loop.name: position for position, loop in enumerate(stage.iterators)}
    runs = list(range(len(stage.iterators)))
    for relation in stage.relations:
        if isinstance(relation, SplitRelation) and all(part in at for part in relation.parts):
            places = [at[part] for part in relation.parts]
            if places == sorted(places):
                for place in places:
                    runs[place] = places[0]
    return runs


def _fusible(family: Family, stage_id: int, runs: Sequence[int]) -> tuple[int, ...]:
    """Positions of a stage's loops that may be made parallel or vectors; none if no two are of one run."""
    found = {p for site in family.parallel if site.stage == stage_id for p in range(site.start, site.stop)}
    for site in family.vectors:
        if site.stage == stage_id:
            found.update(range(len(runs) - site.count, len(runs)))
    return tuple(sorted(found)) if len({runs[p] for p in found}) < len(found) else ()


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

    def visit(
        self, stage_id: int, virtual: NDArray[np.int64], pragma: bool = False
    ) -> tuple[Hashes, Steps | None]:
        """
        Hash a stage with what is computed inside it; its loops also join the coarse hash.

        Parameters
        ----------
        stage_id
            The stage.
        virtual
            Virtual threads around it, shape `(rows,)`.
        pragma
            Whether a pragma is around it.

        Returns
        -------
        tuple[Hashes, Steps or None]
            The fine hash, and what a pragma around the stage finds if there is one (`pragma`).
        """
        shape = self.shape.stages[stage_id]
        count = len(shape.loops)
        extents = extent_matrix(self.bounded, stage_id, 0, count, self.rows)
        marks = self._marks(shape, count)
        counted = pragma or shape.unroll >= 0
        inside: list[tuple[int, Steps]] = []
        fine = np.full(len(self.rows), shape.token, dtype=np.uint64)
        coarse = fine.copy()
        last_axis = np.zeros(len(self.rows), dtype=np.uint64)
        run = np.ones(len(self.rows), dtype=np.int64)
        parallel = np.ones(len(self.rows), dtype=np.int64)
        innermost = np.zeros(len(self.rows), dtype=np.uint64)
        joined = _joined(shape, extents, marks)
        for position, loop in enumerate(shape.loops):
            extent = joined[:, position]
            loops = extent > 1
            if loops.any():
                item = _scaled(extent) ^ loop.axis ^ marks[:, position]
                fine = np.where(loops, _mix(fine, item), fine)
                ended = loops & (last_axis != loop.root)
                coarse = np.where(ended, _mix(coarse, _scaled(run) ^ last_axis), coarse)
                run = np.where(ended, extent, run * extent)
                last_axis = np.where(ended, loop.root, last_axis)
                parallel = np.where(marks[:, position] == _PARALLEL, parallel * extent, parallel)
                innermost = np.where(loops, marks[:, position], innermost)
                virtual = virtual * extent if loop.virtual else virtual
            for inner in loop.attached:
                print_of_inner, steps = self.visit(inner, virtual, counted)
                fine = _mix(fine, print_of_inner)
                if steps is not None:
                    inside.append((position, steps))
        coarse = _mix(coarse, _scaled(run) ^ last_axis)
        parallel = np.where(innermost == _PARALLEL, 1, parallel)
        self.coarse = self.coarse + _mix(coarse, _scaled(parallel))
        steps = _steps(shape, extents, marks, inside) if counted else None
        if shape.unroll >= 0 and steps is not None:
            fine = _mix(fine, _scaled(steps.effect(self.values[:, shape.unroll] // virtual)))
        for column in (shape.stream, shape.pad, shape.lead):
            if column >= 0:
                fine = _mix(fine, _scaled(self.values[:, column]))
        return fine, steps

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


def _joined(shape: _StageShape, extents: NDArray[np.int64], marks: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Put parts of one split that follow each other in a fused loop together, at the last of them.

    The index of the whole is the same whichever part has how many of the iterations.
    """
    if not shape.fusible:
        return extents
    joined = extents.copy()
    runs = np.array([*(loop.run for loop in shape.loops), -1])
    last = np.full(len(extents), -1)
    for position in shape.fusible:
        active = joined[:, position] > 1
        rows = np.flatnonzero(active & (marks[:, position] != 0) & (runs[last] == runs[position]))
        rows = rows[marks[rows, last[rows]] == marks[rows, position]]
        if len(rows):
            joined[rows, position] *= joined[rows, last[rows]]
            joined[rows, last[rows]] = 1
        last[active] = position
    return joined


def _steps(
    shape: _StageShape,
    extents: NDArray[np.int64],
    marks: NDArray[np.uint64],
    inside: list[tuple[int, Steps]],
) -> Steps:
    reduces, whole, held = (
        np.array(one, dtype=np.bool_)[:, None]
        for one in (
            [x.reduces for x in shape.loops],
            [x.whole for x in shape.loops],
            [x.held for x in shape.loops],
        )
    )
    marks = np.ascontiguousarray(marks.T)
    return count_steps(
        extents.T.astype(np.float32, order="C"),
        reduces,
        (marks == _VECTOR) | whole | held,
        (marks == 0) & ~whole & ~held,
        inside,
        shape.stores,
    )
