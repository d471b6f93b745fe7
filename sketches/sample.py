"""Random complete programs: sketches with every hole filled and every loop annotated.

All rows of a batch are drawn at once. A row draws its sketch; rows of one sketch draw their tile lengths
column by column and run through bound inference together; then each draws its compute locations, which
divides the rows into families; annotations follow from each family's inferred extents. The number of
families in a batch is bounded: only so many rows (leaders) draw locations, the others adopt those of a
random leader.

The order of draws is fixed, so the same generator state gives the same programs.

Source: init rules of the reference, section 4.2, in their order.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ansor.checks import check_number
from ansor.errors import ScheduleError, TargetError
from ansor.schedule.state import State
from ansor.schedule.steps import Step
from ansor.task.task import Task
from sketches.annotators import CPU_ANNOTATORS, Annotator, Draft, annotate, check_annotators, with_choices
from sketches.columns import fill_holes
from sketches.derive import Sketch, generate_sketches
from sketches.factors import factorization_count, sample_factorizations
from sketches.family import Family, Matrix
from sketches.locations import LocationGroup, Rows, choose_locations
from sketches.params import SketchParams
from sketches.population import Population
from sketches.repair import repaired
from sketches.rule import SketchContext, SketchRule
from sketches.streaming import stream_sites
from sketches.tiles import sample_tilings, tile_waste

_note = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often `sample_programs` draws again to replace invalid rows."""
LOOSE_SHARE = 0.15
"""Share of the tile tuples drawn that need not divide, for an axis with many that do."""
LOOSE_SHARE_OF_POOR = 0.6
"""The same for an axis with few, such as one of prime extent."""
RICH_PER_LENGTH = 16
"""An axis has many dividing tuples from so many per inner length on."""


@dataclass(frozen=True, eq=False)
class Sample:
    """
    A batch of random programs.

    Parameters
    ----------
    populations
        The programs by family.
    draws
        For each population, the number of the draw that made each row: sorting all rows by it gives the
        order of drawing, in which sketches are mixed.
    dropped
        Rows lost because their structure turned out illegal, by reason.
    """

    populations: tuple[Population, ...]
    draws: tuple[Rows, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(population) for population in self.populations)

    def in_order(self) -> list[tuple[Population, int]]:
        """All programs as (population, row), in order of drawing."""
        places = [
            (int(draw), which, row)
            for which, draws in enumerate(self.draws)
            for row, draw in enumerate(draws)
        ]
        return [(self.populations[which], row) for _, which, row in sorted(places)]


@dataclass(frozen=True, eq=False)
class ProgramSpace:
    """
    All programs of a task that sketches and sampling can reach.

    Parameters
    ----------
    context
        Task, target, hardware and parameters.
    sketches
        The structures to draw from, equally likely.
    annotators
        What decides annotations, in order.
    """

    context: SketchContext
    sketches: tuple[Sketch, ...]
    annotators: tuple[Annotator, ...] = CPU_ANNOTATORS
    _families: dict[tuple[Sketch, tuple[Step, ...]], Family] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        task: Task,
        params: SketchParams | Mapping[str, object] | None = None,
        rules: Sequence[SketchRule] | None = None,
        annotators: Sequence[Annotator] = CPU_ANNOTATORS,
    ) -> ProgramSpace:
        """
        Derive the sketches of a task (see `generate_sketches`); keep the result for many samples.

        Raises
        ------
        ScheduleError
            If there are sketches, but none whose tile lengths can be sampled; a single one is left out.
        """
        chosen, known = SketchParams.of(params), check_annotators("annotators", annotators)
        sketches = _sampleable(generate_sketches(task, chosen, rules))
        return cls(SketchContext.of(task, chosen), sketches, known)

    def sample(self, count: int, rng: np.random.Generator) -> Sample:
        """
        Draw random programs, as columns.

        Parameters
        ----------
        count
            How many rows to draw; fewer come back if some are invalid.
        rng
            Source of randomness.

        Raises
        ------
        TargetError
            If the target is a GPU: its sketches can be derived, but nothing binds their loops to threads.
        DefinitionError
            If the computation has symbolic sizes.
        """
        if self.context.is_gpu:
            raise TargetError(
                f"programs for the target '{self.context.target}' cannot be sampled: binding loops to blocks "
                "and threads is not implemented; sketches are available from generate_sketches"
            )
        chosen = rng.integers(len(self.sketches), size=count)
        populations: list[Population] = []
        draws: list[Rows] = []
        dropped: dict[str, int] = {}
        for which, sketch in enumerate(self.sketches):
            members = np.flatnonzero(chosen == which)
            if not len(members):
                continue
            leaders = max(1, -(-self.context.params.max_families * len(members) // count))
            try:
                groups = self._sketch_rows(sketch, len(members), leaders, rng, dropped)
            except ScheduleError as error:
                _count(dropped, error, len(members))
                continue
            for population, rows in groups:
                populations.append(population)
                draws.append(members[rows])
        return Sample(tuple(populations), tuple(draws), dropped)

    def _sketch_rows(
        self, sketch: Sketch, count: int, leaders: int, rng: np.random.Generator, dropped: dict[str, int]
    ) -> list[tuple[Population, Rows]]:
        """Draw `count` rows of one sketch, divided into families."""
        tiles = self.sample_tiles(sketch, count, rng)
        filled = fill_holes(sketch.steps, sketch.holes, list(np.ascontiguousarray(tiles.T)))
        state = State.replay(self.context.dag, filled).with_bounds()
        made: list[tuple[Population, Rows]] = []
        for group in self._locate(state, count, leaders, rng, dropped):
            try:
                population = self._annotate(sketch, group, tiles[group.rows], rng)
            except ScheduleError as error:
                _count(dropped, error, len(group.rows))
                continue
            made.append((population, group.rows))
        return made

    def _locate(
        self, state: State, count: int, leaders: int, rng: np.random.Generator, dropped: dict[str, int]
    ) -> list[LocationGroup]:
        """Divide rows by compute locations; the first `leaders` rows draw, the others follow one of them."""
        rows = np.arange(count)
        if self.context.params.disable_change_compute_location:
            return [LocationGroup(state, rows)]
        leaders = min(leaders, count)
        groups, lost = choose_locations(state, rows[:leaders], rng)
        for reason, number in lost.items():
            dropped[reason] = dropped.get(reason, 0) + number
        followed = np.concatenate([rows[:leaders], rng.integers(leaders, size=count - leaders)])
        return [LocationGroup(group.state, np.flatnonzero(np.isin(followed, group.rows))) for group in groups]

    def sample_tiles(self, sketch: Sketch, count: int, rng: np.random.Generator) -> Matrix:
        """Draw tile lengths for every hole of a sketch, shape `(count, tile columns)`."""
        params = self.context.params
        limit, max_waste = params.max_innermost_split_factor, params.max_tile_waste
        tiles = np.empty((count, sum(len(hole.columns) for hole in sketch.holes)), dtype=np.int64)
        exact = np.empty_like(tiles)
        for hole in sketch.holes:
            own = slice(hole.start, hole.stop)
            exact[:, own] = sample_factorizations(hole.extent, len(hole.columns), limit, rng, count)
        if max_waste <= 1:
            return exact
        tiles[:] = exact
        for hole in sketch.holes:
            own, parts = slice(hole.start, hole.stop), len(hole.columns)
            rich = factorization_count(hole.extent, parts, limit) >= RICH_PER_LENGTH * parts
            loose = np.flatnonzero(rng.random(count) < (LOOSE_SHARE if rich else LOOSE_SHARE_OF_POOR))
            tiles[loose, own] = sample_tilings(hole.extent, parts, limit, max_waste, rng, len(loose))
        wasteful = tile_waste(sketch.holes, tiles) > max_waste
        tiles[wasteful] = exact[wasteful]
        return tiles

    def _annotate(
        self, sketch: Sketch, group: LocationGroup, tiles: Matrix, rng: np.random.Generator
    ) -> Population:
        """Decide parallel, unroll and vector columns of the rows of one family."""
        family = self.family(sketch, group.state)
        rows = np.arange(len(group.rows))
        values = np.zeros((len(rows), len(family.columns)), dtype=np.int64)
        values[:, : tiles.shape[1]] = tiles
        plain = Population(family, values)
        draft = Draft(self.context, family, plain.bounds, rows, values.copy())
        annotate(self.annotators, draft, rng)
        annotated = plain.reannotated(draft.values)
        return repaired(annotated, self.context) if family.choices else annotated

    def family(self, sketch: Sketch, state: State) -> Family:
        """
        Describe the family of a sketch with compute locations; equal structures give the same object.

        Raises
        ------
        ScheduleError
            If an annotation site has a loop that it cannot describe.
        """
        tail = state.steps[len(sketch.steps) :]
        key = (sketch, tail)
        if key not in self._families:
            family = Family.of(sketch, state, stream_sites(self.context, state))
            self._families[key] = with_choices(self.annotators, family)
        return self._families[key]


def _sampleable(sketches: Sequence[Sketch]) -> tuple[Sketch, ...]:
    """Leave out sketches that no tile lengths complete, such as one that splits an open length again."""
    kept: list[Sketch] = []
    refused: list[ScheduleError] = []
    for sketch in sketches:
        try:
            sketch.bare  # noqa: B018 (replayed on first use)
        except ScheduleError as error:
            refused.append(error)
            _note.debug("a sketch of %s is left out: %s", ", ".join(sketch.rules) or "no rule", error)
        else:
            kept.append(sketch)
    if refused and not kept:
        raise ScheduleError(f"no sketch can be sampled: {refused[0]}")
    return tuple(kept)


def _count(dropped: dict[str, int], error: ScheduleError, rows: int) -> None:
    reason = str(error).splitlines()[0]
    dropped[reason] = dropped.get(reason, 0) + rows


def sample_programs(
    task: Task,
    n: int,
    rng: np.random.Generator,
    params: SketchParams | Mapping[str, object] | None = None,
    *,
    space: ProgramSpace | None = None,
) -> list[State]:
    """
    Draw complete random programs of a task.

    Parameters
    ----------
    task
        The computation, its target and hardware parameters.
    n
        How many programs; equal ones may occur among them.
    rng
        Source of randomness: equal generator states give equal programs.
    params
        Search parameters by name; those of `SketchParams` are used. By default the programs are some of those
        that `SearchTask.tune` chooses from by default.
    space
        The task's program space if it is known already (then `params` is not looked at).

    Returns
    -------
    list[State]
        `n` programs, each free of holes and replayable from its steps; fewer only if invalid rows kept
        turning up.

    Raises
    ------
    DefinitionError
        If `n` is no integer of at least 0.
    """
    check_number("sample_programs(n)", n, low=0, integer=True)
    known = space or ProgramSpace.of(task, params)
    programs: list[State] = []
    for _ in range(ATTEMPTS):
        if len(programs) >= n:
            break
        sample = known.sample(n - len(programs), rng)
        programs.extend(population.materialize(row) for population, row in sample.in_order())
    return programs
