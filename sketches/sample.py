"""Random complete programs: sketches with every hole filled and every loop annotated.

All rows of a batch are drawn at once. A row draws its sketch; rows of one sketch draw their tile lengths
column by column and run through bound inference together; then each draws its compute locations, which
divides the rows into families; annotations follow from each family's inferred extents. The number of
families in a batch is bounded: only so many rows (leaders) draw locations, the others adopt those of a
random leader. Rows that a GPU could not run draw their lengths again, a few times.

The order of draws is fixed, so the same generator state gives the same programs.

Source: init rules of TVM (`sketch_policy_rules.cc`), in their order.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import numpy as np

from ansor.checks import check_integer
from ansor.errors import ScheduleError
from ansor.schedule.bounds import infer_bounds
from ansor.schedule.state import State
from ansor.schedule.steps import Step
from ansor.task.task import Task
from sketches.annotators import (
    Annotator,
    Draft,
    annotate,
    check_annotators,
    default_annotators,
    with_choices,
)
from sketches.buffering import lead_sites
from sketches.columns import ColumnKind, Hole, fill_holes
from sketches.derive import Sketch, generate_sketches
from sketches.factors import factorization_count, sample_factorizations
from sketches.family import Family, Matrix, Sites
from sketches.launch import usual_lengths
from sketches.limits import runnable, thinned
from sketches.locations import LocationGroup, Rows, choose_locations
from sketches.padding import pad_sites
from sketches.params import SketchParams
from sketches.population import Population
from sketches.prefetching import prefetch_sites
from sketches.repair import repaired
from sketches.rule import SketchContext, SketchRule
from sketches.streaming import stream_sites
from sketches.threads import bound
from sketches.tiles import sample_tilings, tile_waste

_note = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often `sample_programs` draws again to replace invalid rows."""
MOST_FAMILIES = 4096
"""Structures that a space remembers, as many as what is derived of them is remembered for."""
LOOSE_SHARE = 0.15
"""Share of the tile tuples drawn that need not divide, for an axis with many that do."""
LOOSE_SHARE_OF_POOR = 0.6
"""The same for an axis with few, such as one of prime extent."""
RICH_PER_LENGTH = 16
"""An axis has many dividing tuples from so many per inner length on."""
LAUNCH_REDRAWS = 48
"""How often lengths are drawn again for rows whose blocks have too many or too few threads."""
LIMIT_REDRAWS = 8
"""How often they are drawn again for rows that break another limit, which takes bound inference to see."""


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
        Rows lost because their structure turned out illegal, or breaks a limit of the hardware, by reason.
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
    annotators: tuple[Annotator, ...]
    _families: WeakValueDictionary[tuple[Sketch, tuple[Step, ...]], Family] = field(
        default_factory=WeakValueDictionary, repr=False
    )
    """Those that anybody keeps: whatever is forgotten, no two are of one structure at a time."""
    _lately: OrderedDict[Family, None] = field(default_factory=OrderedDict, repr=False)
    """Those that this keeps, so that they are not made again in each generation, the oldest first."""

    @classmethod
    def of(
        cls,
        task: Task,
        params: SketchParams | Mapping[str, object] | None = None,
        rules: Sequence[SketchRule] | None = None,
        annotators: Sequence[Annotator] | None = None,
    ) -> ProgramSpace:
        """
        Derive the sketches of a task (see `generate_sketches`); keep the result for many samples.

        For a GPU their loops are bound to threads. Annotators are those of the target unless given.

        Raises
        ------
        ScheduleError
            If there are sketches, but none whose tile lengths can be sampled; a single one is left out.
        """
        chosen = SketchParams.of(params)
        context = SketchContext.of(task, chosen)
        own = default_annotators(context) if annotators is None else annotators
        known = check_annotators("annotators", own)
        return cls(context, _sampleable(context, generate_sketches(task, chosen, rules)), known)

    def of_sketches(self, sketches: tuple[Sketch, ...]) -> ProgramSpace:
        """The part of the space that some of its sketches reach; families are known to both."""
        return replace(self, sketches=sketches)

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
        DefinitionError
            If the computation has symbolic sizes.
        """
        chosen = rng.integers(len(self.sketches), size=count)
        populations: list[Population] = []
        draws: list[Rows] = []
        dropped: Counter[str] = Counter()
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
        self, sketch: Sketch, count: int, leaders: int, rng: np.random.Generator, dropped: Counter[str]
    ) -> list[tuple[Population, Rows]]:
        """Draw `count` rows of one sketch, divided into families."""
        tiles = self._within_limits(sketch, self.sample_tiles(sketch, count, rng), rng)
        filled = fill_holes(sketch.steps, sketch.holes, list(np.ascontiguousarray(tiles.T)))
        bounds = infer_bounds(sketch.frame.filled(filled))
        made: list[tuple[Population, Rows]] = []
        for group in self._locate(bounds.state, count, leaders, rng, dropped):
            try:
                plain = self._plain(sketch, group.state, tiles[group.rows])
                if group.state is bounds.state:
                    plain = plain.within(bounds, group.rows)
                population = self._annotate(plain, rng)
            except ScheduleError as error:
                _count(dropped, error, len(group.rows))
                continue
            kept = runnable(population, self.context, dropped)
            if len(kept) < len(population):
                population = population.take(kept)
            made.append((population, group.rows[kept]))
        return made

    def _within_limits(self, sketch: Sketch, tiles: Matrix, rng: np.random.Generator) -> Matrix:
        """Draw the lengths of rows that break limits of the hardware again, as long as that helps."""
        if not self.context.is_gpu or not sketch.holes:
            return tiles
        wrong = np.arange(len(tiles))
        for _ in range(LIMIT_REDRAWS):
            drawn = self._plain(sketch, sketch.bare, tiles[wrong])
            wrong = np.delete(wrong, runnable(drawn, self.context))
            if not len(wrong):
                break
            tiles[wrong] = self.sample_tiles(sketch, len(wrong), rng)
        return tiles

    def _locate(
        self, state: State, count: int, leaders: int, rng: np.random.Generator, dropped: Counter[str]
    ) -> list[LocationGroup]:
        """Divide rows by compute locations; the first `leaders` rows draw, the others follow one of them."""
        rows = np.arange(count)
        if not self.context.moves_stages:
            return [LocationGroup(state, rows)]
        leaders = min(leaders, count)
        groups, lost = choose_locations(state, rows[:leaders], rng)
        dropped.update(lost)
        followed = np.concatenate([rows[:leaders], rng.integers(leaders, size=count - leaders)])
        return [LocationGroup(group.state, np.flatnonzero(np.isin(followed, group.rows))) for group in groups]

    def sample_tiles(self, sketch: Sketch, count: int, rng: np.random.Generator) -> Matrix:
        """Draw lengths for every hole of a sketch, shape `(count, columns of holes)`."""
        holes, hardware = sketch.holes, self.context.hardware
        tiles = np.ones((count, sum(len(hole.columns) for hole in holes)), dtype=np.int64)
        divided = [hole for hole in holes if hole.kind is ColumnKind.TILE]
        self._draw_tiles(divided, tiles, np.arange(count), rng)
        for launch in sketch.launches:
            own = [hole for hole in divided if hole.columns[0].stage == launch.stage]
            for _ in range(LAUNCH_REDRAWS):
                wrong = np.flatnonzero(~launch.allows(tiles, hardware))
                if not len(wrong):
                    break
                self._draw_tiles(own, tiles, wrong, rng)
        for hole in holes:
            if hole.kind in (ColumnKind.THREADS, ColumnKind.PARTS):
                choices = np.array(usual_lengths(hole, self.context))
                tiles[:, hole.start] = choices[rng.integers(len(choices), size=count)]
        return tiles

    def _draw_tiles(self, holes: Sequence[Hole], into: Matrix, rows: Rows, rng: np.random.Generator) -> None:
        """Draw tile lengths for some holes in some rows."""
        count, params = len(rows), self.context.params
        limit, max_waste = params.max_innermost_split_factor, params.max_tile_waste
        exact = into[rows]
        for hole in holes:
            own = slice(hole.start, hole.stop)
            exact[:, own] = sample_factorizations(hole.extent, len(hole.columns), limit, rng, count)
        if max_waste <= 1:
            into[rows] = exact
            return
        tiles = exact.copy()
        for hole in holes:
            own, parts = slice(hole.start, hole.stop), len(hole.columns)
            rich = factorization_count(hole.extent, parts, limit) >= RICH_PER_LENGTH * parts
            loose = np.flatnonzero(rng.random(count) < (LOOSE_SHARE if rich else LOOSE_SHARE_OF_POOR))
            tiles[loose, own] = sample_tilings(hole.extent, parts, limit, max_waste, rng, len(loose))
        wasteful = tile_waste(holes, tiles) > max_waste
        tiles[wasteful] = exact[wasteful]
        into[rows] = tiles

    def _plain(self, sketch: Sketch, state: State, tiles: Matrix) -> Population:
        """Make rows of one family that have lengths only."""
        family = self.family(sketch, state)
        values = np.zeros((len(tiles), len(family.columns)), dtype=np.int64)
        values[:, : tiles.shape[1]] = tiles
        return Population(family, values)

    def _annotate(self, plain: Population, rng: np.random.Generator) -> Population:
        """Decide parallel, unroll and vector columns of rows that have lengths only."""
        rows = np.arange(len(plain))
        draft = Draft(self.context, plain.family, plain.inferred, rows, plain.values.copy())
        annotate(self.annotators, draft, rng)
        annotated = plain.reannotated(draft.values)
        settled = repaired(annotated, self.context) if plain.family.choices else annotated
        return thinned(settled, self.context)

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
        family = self._families.get(key)
        if family is None:
            plain = Family.of(sketch, state, self._sites(sketch, state))
            family = self._families[key] = with_choices(self.annotators, plain)
        self._lately[family] = None
        self._lately.move_to_end(family)
        if len(self._lately) > MOST_FAMILIES:
            self._lately.popitem(last=False)
        return family

    def _sites(self, sketch: Sketch, state: State) -> Sites:
        """List what may be decided about the loops of a structure, on the context's target."""
        if not self.context.is_gpu:
            return Sites.of_cpu(state, stream_sites(self.context, state), prefetch_sites(self.context, state))
        others = [hole for hole in sketch.holes if hole.kind is not ColumnKind.TILE]
        lengths = {x.start: usual_lengths(x, self.context) for x in others}
        leads = lead_sites(self.context, sketch.state)
        return Sites.of_gpu(state, lengths, leads, pad_sites(self.context, sketch.state))


def _sampleable(context: SketchContext, sketches: Sequence[Sketch]) -> tuple[Sketch, ...]:
    """Bind loops as the target needs it, and leave out sketches that no tile lengths complete.

    One that splits an open length again is such a sketch.
    """
    kept: list[Sketch] = []
    refused: list[ScheduleError] = []
    for sketch in sketches:
        try:
            whole = bound(context, sketch)
            whole.bare  # noqa: B018 (replayed on first use)
        except ScheduleError as error:
            refused.append(error)
            _note.debug("a sketch of %s is left out: %s", ", ".join(sketch.rules) or "no rule", error)
        else:
            kept.append(whole)
    if refused and not kept:
        raise ScheduleError(f"no sketch can be sampled: {refused[0]}")
    return tuple(kept)


def _count(dropped: Counter[str], error: ScheduleError, rows: int) -> None:
    dropped[str(error).splitlines()[0]] += rows


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
    n = check_integer("sample_programs(n)", n, low=0)
    known = space or ProgramSpace.of(task, params)
    programs: list[State] = []
    for _ in range(ATTEMPTS):
        if len(programs) >= n:
            break
        sample = known.sample(n - len(programs), rng)
        programs.extend(population.materialize(row) for population, row in sample.in_order())
    return programs
