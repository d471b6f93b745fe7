"""Families: what a set of programs has in common; everything else about them is integers.

A family is a sketch with its compute locations: the structure that decides which buffers exist and how
index maps look. Its *columns* are the integers that tell its programs apart (see `columns`), and a row of
integers is a program.

`program` turns a row into transform steps, in TVM's order: the sketch with its lengths, compute
locations, bindings to threads, parallel, unroll, vectorise, streaming stores, prefetching. Fusing renumbers
the loops behind, which is plain arithmetic here; no state is built until somebody replays the steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ansor.errors import DefinitionError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.prefetch_steps import AskingStep
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import (
    UNROLL_PRAGMA,
    AnnotationStep,
    FuseStep,
    PragmaStep,
    SplitStep,
    Step,
    StreamingStoresStep,
)
from sketches.annotate import (
    ParallelSite,
    UnrollSite,
    VectorSite,
    parallel_sites,
    unroll_sites,
    vector_sites,
)
from sketches.buffering import LeadSite
from sketches.columns import Column, ColumnKind, Hole, fill_holes, stage_names
from sketches.derive import Sketch
from sketches.frame import Frame
from sketches.padding import PadSite
from sketches.params import CPU_UNROLL_CANDIDATES, GPU_UNROLL_CANDIDATES

Matrix = NDArray[np.int64]
"""Integer columns side by side, shape `(rows, columns)`."""


@dataclass(frozen=True, slots=True)
class Sites:
    """
    What may be decided about the loops of a structure, row by row, beside tile lengths.

    Parameters
    ----------
    parallel, unrolls, vectors
        Where loops may be annotated.
    streams
        Stages that may have streaming stores.
    prefetches
        What lets stages ask for inputs ahead, in all rows.
    leads, pads
        Copies in shared memory that may be filled ahead, and padded.
    unroll_values
        Limits of unroll pragmas to choose from.
    lengths
        The same for numbers of threads and of parts, and lengths of copies, by the column's position,
        ascending.
    """

    parallel: tuple[ParallelSite, ...] = ()
    unrolls: tuple[UnrollSite, ...] = ()
    vectors: tuple[VectorSite, ...] = ()
    streams: tuple[int, ...] = ()
    prefetches: tuple[AskingStep, ...] = ()
    leads: tuple[LeadSite, ...] = ()
    pads: tuple[PadSite, ...] = ()
    unroll_values: tuple[int, ...] = CPU_UNROLL_CANDIDATES
    lengths: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of_cpu(
        cls, state: State, streams: tuple[int, ...] = (), prefetches: tuple[AskingStep, ...] = ()
    ) -> Sites:
        """Any loop that allows it."""
        return cls(parallel_sites(state), unroll_sites(state), vector_sites(state), streams, prefetches)

    @classmethod
    def of_gpu(
        cls,
        state: State,
        lengths: Mapping[int, tuple[int, ...]],
        leads: tuple[LeadSite, ...],
        pads: tuple[PadSite, ...],
    ) -> Sites:
        """No parallel loops, as they are bound to threads already, and vectors in copies alone."""
        return cls(
            unrolls=unroll_sites(state),
            leads=leads,
            pads=pads,
            unroll_values=GPU_UNROLL_CANDIDATES,
            lengths=lengths,
        )


@dataclass(frozen=True, eq=False)
class Family:
    """
    One structure and the names of its integers.

    Parameters
    ----------
    sketch
        Where the structure comes from.
    steps
        The sketch's steps and those of the compute locations, holes open.
    spelling
        The same as programs have them (`Sketch.spelling`).
    columns
        Names of the integers, in the order of a population's columns: tile lengths, numbers of threads and
        of parts, lengths of copies, then one per parallel site, per unroll site with a pragma, per vector
        site, per stage that may have streaming stores, per stage whose copies may be filled ahead, per copy
        that may be padded.
    sites
        Where annotations may go.
    loop_counts
        Loops of each stage, by position, before annotation.
    bound_away
        How many fewer of them its programs have, because loops are bound together.
    choices
        The only values that a column may take, by position, where an annotator says so (`Annotator.choices`).
    """

    sketch: Sketch
    steps: tuple[Step, ...]
    spelling: tuple[Step, ...]
    columns: tuple[Column, ...]
    sites: Sites
    loop_counts: tuple[int, ...]
    bound_away: tuple[int, ...]
    choices: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, sketch: Sketch, state: State, sites: Sites | None = None) -> Family:
        """
        Describe the family of a sketch with compute locations.

        Parameters
        ----------
        sketch
            The sketch.
        state
            The sketch's history with its lengths filled in, by whatever values, and locations chosen after
            it.
        sites
            Where annotations may go; default: where they may on a CPU.
        """
        sites = Sites.of_cpu(state) if sites is None else sites
        names = stage_names(state)
        columns = [
            *(column for hole in sketch.holes for column in hole.columns),
            *(Column(ColumnKind.PARALLEL, names[site.stage], level=site.ordinal) for site in sites.parallel),
            *(Column(ColumnKind.UNROLL, names[site.stage]) for site in sites.unrolls if site.has_pragma),
            *(Column(ColumnKind.VECTORIZE, names[site.stage]) for site in sites.vectors),
            *(Column(ColumnKind.STREAM, names[stage_id]) for stage_id in sites.streams),
            *(Column(ColumnKind.LEAD, names[site.stage]) for site in sites.leads),
            *(Column(ColumnKind.PAD, names[site.stage], site.axis) for site in sites.pads),
        ]
        counts = [len(stage.iterators) for stage in state.stages]
        binding = sketch.binding
        spelled = counts if binding is None else [len(stage.iterators) for stage in binding.program.stages]
        own = state.steps[len(sketch.steps) :]
        return cls(
            sketch=sketch,
            steps=(*sketch.steps, *own),
            spelling=(*sketch.spelling, *own),
            columns=tuple(columns),
            sites=sites,
            loop_counts=tuple(counts),
            bound_away=tuple(before - after for before, after in zip(counts, spelled, strict=True)),
        )

    @property
    def parallel(self) -> tuple[ParallelSite, ...]:
        """Loops that may be parallel."""
        return self.sites.parallel

    @property
    def unrolls(self) -> tuple[UnrollSite, ...]:
        """Stages whose loops may be unrolled."""
        return self.sites.unrolls

    @property
    def vectors(self) -> tuple[VectorSite, ...]:
        """Loops that may be vectors."""
        return self.sites.vectors

    @property
    def streams(self) -> tuple[int, ...]:
        """Stages that may have streaming stores."""
        return self.sites.streams

    @property
    def leads(self) -> tuple[LeadSite, ...]:
        """Stages whose copies may be filled ahead."""
        return self.sites.leads

    @property
    def pads(self) -> tuple[PadSite, ...]:
        """Copies that may be padded."""
        return self.sites.pads

    @property
    def dag(self) -> ComputeDAG:
        """The computation."""
        return self.sketch.state.dag

    @property
    def holes(self) -> tuple[Hole, ...]:
        """The splits that the first columns fill."""
        return self.sketch.holes

    @cached_property
    def tiles(self) -> tuple[Hole, ...]:
        """Those of them that divide loops into tiles; their columns are the very first."""
        return tuple(hole for hole in self.holes if hole.kind is ColumnKind.TILE)

    @cached_property
    def register_tiles(self) -> tuple[tuple[Hole, ...], ...]:
        """For each tiled stage the splits whose innermost lengths are a tile in registers: of most levels.

        What is tiled once more for its reuse has more levels than a reduction; loops of one iteration are
        left out.
        """
        most = max((len(hole.columns) for hole in self.tiles), default=0)
        stages: dict[str, list[Hole]] = {}
        for hole in self.tiles:
            if hole.extent > 1 and len(hole.columns) == most > 1:
                stages.setdefault(hole.columns[0].stage, []).append(hole)
        return tuple(map(tuple, stages.values()))

    @property
    def filling(self) -> int:
        """How many columns fill splits."""
        return self.holes[-1].stop if self.holes else 0

    @cached_property
    def key(self) -> str:
        """The structure as text: equal for equal families of one computation."""
        return json.dumps([step.to_json() for step in self.steps])

    @cached_property
    def index(self) -> dict[Column, int]:
        """Position of each column, by name."""
        return {column: position for position, column in enumerate(self.columns)}

    def positions(self, kind: ColumnKind) -> range:
        """Positions of the columns of one kind; they are neighbours."""
        at = [position for position, column in enumerate(self.columns) if column.kind is kind]
        return range(at[0], at[-1] + 1) if at else range(0)

    @cached_property
    def structural_values(self) -> dict[int, tuple[int, ...]]:
        """
        Values of each column but tiles by position, ascending: what the structure has, or the usual.

        Numbers of threads and of parts and lengths of copies come first.
        """
        values: dict[ColumnKind, list[Sequence[int]]] = {
            ColumnKind.PARALLEL: [range(site.stop - site.start + 1) for site in self.parallel],
            ColumnKind.UNROLL: [self.sites.unroll_values] * len(self.positions(ColumnKind.UNROLL)),
            ColumnKind.VECTORIZE: [range(site.count + 1) for site in self.vectors],
            ColumnKind.STREAM: [range(2)] * len(self.streams),
            ColumnKind.LEAD: [range(site.most + 1) for site in self.leads],
            ColumnKind.PAD: [site.values for site in self.pads],
        }
        annotations = {
            at: tuple(own)
            for kind, columns in values.items()
            for at, own in zip(self.positions(kind), columns, strict=True)
        }
        return {**self.sites.lengths, **annotations}

    @cached_property
    def annotation_values(self) -> dict[int, tuple[int, ...]]:
        """Values that a search gives each annotation column, by position: `choices` before others."""
        return {**self.structural_values, **self.choices}

    def fill(self, values: Matrix) -> list[Step]:
        """Put the first columns of `values`, shape `(rows, columns)`, into the steps, as columns."""
        return fill_holes(self.steps, self.holes, list(np.ascontiguousarray(values.T)))

    @property
    def frame(self) -> Frame | None:
        """The structure with open lengths, if its operations do not depend on them."""
        return self._frame if self._frame.is_whole else None

    @cached_property
    def _frame(self) -> Frame:
        return self.sketch.frame.extended(self._moves)

    @property
    def _moves(self) -> tuple[Step, ...]:
        """The steps of the compute locations."""
        return self.steps[len(self.sketch.steps) :]

    @property
    def bare(self) -> State:
        """The structure with all lengths 1."""
        state = self.sketch.bare
        for step in self._moves:
            state = state.apply(step)
        return state

    def filled(self, values: Matrix) -> State:
        """
        Build the structure with the first columns of `values` in it, as columns; no extents yet.

        Raises
        ------
        ScheduleError
            If the structure is illegal.
        """
        return self._frame.filled(self.fill(values))

    def program(self, row: Sequence[int], extents: Mapping[int, int] | None = None) -> tuple[Step, ...]:
        """
        Spell one row out as transform steps.

        Parameters
        ----------
        row
            One integer per column.
        extents
            Iterations of the loops that splits divide, by the position of the split in `spelling`, where
            these do not say so themselves.

        Returns
        -------
        tuple[Step, ...]
            A complete history without holes; `State.replay(dag, steps)` gives the program.

        Raises
        ------
        DefinitionError
            If the row has another length than the family has columns.
        """
        values = [int(value) for value in row]
        if len(values) != len(self.columns):
            raise DefinitionError(
                f"a row of this family has {len(self.columns)} integers, found {len(values)}; "
                "its columns are " + ", ".join(str(column) for column in self.columns)
            )
        steps = fill_holes(self.spelling, self.sketch.spelled_holes, values)
        for position, extent in (extents or {}).items():
            split = steps[position]
            assert isinstance(split, SplitStep)
            steps[position] = replace(split, extent=extent)
        tail = _Annotator(self.loop_counts, self.bound_away)
        for parallel, at in zip(self.parallel, self.positions(ColumnKind.PARALLEL), strict=True):
            tail.parallelise(parallel, values[at])
        pragmas = iter(self.positions(ColumnKind.UNROLL))
        for unroll in self.unrolls:
            tail.unroll(unroll, values[next(pragmas)] if unroll.has_pragma else None)
        for vector, at in zip(self.vectors, self.positions(ColumnKind.VECTORIZE), strict=True):
            tail.vectorise(vector, values[at])
        at_streams = zip(self.streams, self.positions(ColumnKind.STREAM), strict=True)
        streaming = [StreamingStoresStep(stage_id) for stage_id, at in at_streams if values[at]]
        at_leads = zip(self.leads, self.positions(ColumnKind.LEAD), strict=True)
        ahead = [step for site, at in at_leads if values[at] for step in site.steps(values[at])]
        return (*self.padded(steps, values), *tail.steps, *streaming, *self.sites.prefetches, *ahead)

    def padded(self, steps: Sequence[Step], row: Sequence[int]) -> tuple[Step, ...]:
        """The steps of the structure or of the spelling with the padding of a row, before loops are bound."""
        at_pads = zip(self.pads, self.positions(ColumnKind.PAD), strict=True)
        pads = [site.step(int(row[at])) for site, at in at_pads if row[at]]
        binding = self.sketch.binding
        first = len(steps) if binding is None else binding.first
        return (*steps[:first], *pads, *steps[first:])


class _Annotator:
    """Collects annotation steps, keeping track of how fuses renumber the loops of each stage."""

    def __init__(self, loop_counts: tuple[int, ...], bound_away: tuple[int, ...]) -> None:
        self.steps: list[Step] = []
        self._loop_counts = loop_counts
        self._bound_away = bound_away
        self._fused: dict[int, range] = {}

    def parallelise(self, site: ParallelSite, width: int) -> None:
        if width > 0:
            self._fused[site.stage] = range(site.start, site.start + width)
            self._annotate(site.stage, self._fused[site.stage], Annotation.PARALLEL, shift=0)

    def unroll(self, site: UnrollSite, max_step: int | None) -> None:
        fused = self._fused.get(site.stage, range(0))
        for loop in site.loops:
            if loop not in fused:
                self._annotate(site.stage, range(loop, loop + 1), Annotation.UNROLL, self._shift(site.stage))
        if max_step is not None:
            self.steps.append(PragmaStep(site.stage, 0, f"{UNROLL_PRAGMA}${max_step}"))

    def vectorise(self, site: VectorSite, count: int) -> None:
        if count > 0:
            stop = self._loop_counts[site.stage]
            loops = range(stop - count, stop)
            self._annotate(site.stage, loops, Annotation.VECTORIZE, self._shift(site.stage))

    def _shift(self, stage: int) -> int:
        """How many positions the loops behind the parallel or bound ones have moved up."""
        return self._bound_away[stage] + max(len(self._fused.get(stage, range(0))) - 1, 0)

    def _annotate(self, stage: int, loops: range, annotation: Annotation, shift: int) -> None:
        moved = range(loops.start - shift, loops.stop - shift)
        if len(moved) > 1:
            self.steps.append(FuseStep(stage, tuple(moved)))
        self.steps.append(AnnotationStep(stage, moved.start, int(annotation)))
