"""From a complete program back to its family and integers: the inverse of `Family.program`.

Programs come back from logs as steps. One whose steps are those of a sketch, moves on offer, and annotations
in the order of sampling is a row, whoever wrote it; any other is a program that the search can measure but
not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

import numpy as np

from ansor.schedule.identity import program_key
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import (
    UNROLL_PRAGMA,
    AnnotationStep,
    ComputeAtStep,
    ComputeInlineStep,
    ComputeRootStep,
    FuseStep,
    PragmaStep,
    SplitStep,
    Step,
    StorageAlignStep,
    StreamingStoresStep,
    SwizzleStep,
)
from sketches.annotate import ParallelSite, UnrollSite
from sketches.buffering import LeadSite
from sketches.derive import Sketch
from sketches.family import Family, Matrix
from sketches.neighbours import Neighbourhood

_PLACES = (ComputeAtStep, ComputeInlineStep, ComputeRootStep)
_S = TypeVar("_S", bound=Step)


def locate(neighbourhood: Neighbourhood, state: State) -> tuple[Family, Matrix] | None:
    """
    Find the family and row of a program.

    Parameters
    ----------
    neighbourhood
        The space to look in.
    state
        A complete program of the same computation. The extents that its splits carry are not looked at.

    Returns
    -------
    tuple[Family, Matrix] | None
        The family and its integers, shape `(1, columns)`; their program is the same. None if there is no such
        row.
    """
    sketches = [x for x in neighbourhood.space.sketches if _begins_with(_divided(state.steps, x)[0], x)]
    for sketch in sorted(sketches, key=lambda sketch: -len(sketch.spelling)):
        found = _locate_in(neighbourhood, sketch, state)
        if found is not None:
            return found
    return None


def _divided(steps: tuple[Step, ...], sketch: Sketch) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """A history without the steps that pad or swizzle copies before a sketch's loops are bound, and these."""
    first = len(steps) if sketch.binding is None else sketch.binding.first
    pads = tuple(takewhile(lambda step: isinstance(step, (StorageAlignStep, SwizzleStep)), steps[first:]))
    return (*steps[:first], *steps[first + len(pads) :]), pads


def _begins_with(steps: tuple[Step, ...], sketch: Sketch) -> bool:
    """Whether a history is a sketch with its holes filled, and something after it."""
    own = sketch.spelling
    if len(steps) < len(own):
        return False
    holes = {hole.step for hole in sketch.spelled_holes}
    for position, (mine, theirs) in enumerate(zip(own, steps, strict=False)):
        if isinstance(mine, SplitStep) and isinstance(theirs, SplitStep):
            lengths = mine.lengths if position in holes else theirs.lengths
            same_count = len(theirs.lengths) == len(mine.lengths) and None not in theirs.lengths
            if not same_count or replace(theirs, lengths=lengths, extent=None) != replace(
                mine, lengths=lengths, extent=None
            ):
                return False
            if position not in holes and theirs.lengths != mine.lengths:
                return False
        elif mine != theirs:
            return False
    return True


def _locate_in(neighbourhood: Neighbourhood, sketch: Sketch, state: State) -> tuple[Family, Matrix] | None:
    steps, pads = _divided(state.steps, sketch)
    rest = list(steps[len(sketch.spelling) :])
    chosen: dict[int, Step] = {}
    while rest and isinstance(rest[0], _PLACES):
        step = rest.pop(0)
        chosen[step.stage] = step
    family = neighbourhood.family_with(sketch, chosen)
    if family is None:
        return None
    row = [0] * len(family.columns)
    for hole in sketch.spelled_holes:
        split = steps[hole.step]
        assert isinstance(split, SplitStep)
        row[hole.start : hole.stop] = [int(length) for length in split.lengths]
    padding = _read_padding(family, pads)
    if padding is None:
        return None
    row[family.filling :] = [*_read_annotations(family, rest), *padding]
    program = family.program(row)
    if _plain(program) != _plain(state.steps):
        again = State.replay(state.dag, program)
        if program_key(again) != program_key(state):
            return None
    return family, np.array([row], dtype=np.int64)


def _plain(steps: Sequence[Step]) -> list[Step]:
    """The steps without the extents that splits carry."""
    return [replace(step, extent=None) if isinstance(step, SplitStep) else step for step in steps]


def _read_annotations(family: Family, rest: list[Step]) -> list[int]:
    """Read the annotation columns off a history's end; what is not there counts as 0."""
    reader = _Reader(rest)
    parallel = [reader.parallel(site) for site in family.parallel]
    unrolls = [value for site in family.unrolls if (value := reader.unroll(site)) is not None]
    vectors = [reader.vectors(site.stage) for site in family.vectors]
    streams = [reader.streaming(stage_id) for stage_id in family.streams]
    leads = [reader.lead(site) for site in family.leads]
    return [*parallel, *unrolls, *vectors, *streams, *leads]


def _read_padding(family: Family, pads: Sequence[Step]) -> list[int] | None:
    """Read the columns of padding; None for what no column says."""
    found = {
        site.stage: value
        for site in family.pads
        for step in pads
        for value in site.values
        if value and step == site.step(value)
    }
    return [found.get(site.stage, 0) for site in family.pads] if len(found) == len(pads) else None


@dataclass(slots=True)
class _Reader:
    """What is left of a history."""

    rest: list[Step]

    def parallel(self, site: ParallelSite) -> int:
        return self._annotated(site.stage, Annotation.PARALLEL, at=site.start)

    def vectors(self, stage: int) -> int:
        return self._annotated(stage, Annotation.VECTORIZE)

    def unroll(self, site: UnrollSite) -> int | None:
        for _ in site.loops:
            self._annotated(site.stage, Annotation.UNROLL)
        if not site.has_pragma:
            return None
        step = self._peek(PragmaStep)
        if step is None or step.stage != site.stage or not step.text.startswith(UNROLL_PRAGMA):
            return 0
        self.rest.pop(0)
        return step.max_step or 0

    def streaming(self, stage: int) -> int:
        step = self._peek(StreamingStoresStep)
        if step is None or step.stage != stage:
            return 0
        self.rest.pop(0)
        return 1

    def lead(self, site: LeadSite) -> int:
        for lead in range(1, site.most + 1):
            steps = site.steps(lead)
            if self.rest[: len(steps)] == steps:
                del self.rest[: len(steps)]
                return lead
        return 0

    def _annotated(self, stage: int, wanted: Annotation, at: int | None = None) -> int:
        """How many loops of a stage the next steps annotate, 0 if they do something else; takes them away."""
        fuse = self._peek(FuseStep)
        note = self.rest[1] if fuse is not None and len(self.rest) > 1 else self._peek(AnnotationStep)
        if not isinstance(note, AnnotationStep) or note.annotation != wanted or note.stage != stage:
            return 0
        if at is not None and note.iterator != at:
            return 0
        if fuse is not None and (fuse.stage != stage or fuse.iterators[0] != note.iterator):
            return 0
        del self.rest[: 1 if fuse is None else 2]
        return 1 if fuse is None else len(fuse.iterators)

    def _peek(self, kind: type[_S]) -> _S | None:
        return self.rest[0] if self.rest and isinstance(self.rest[0], kind) else None
