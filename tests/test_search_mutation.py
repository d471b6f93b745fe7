"""Mutations, crossover and moves: every child is a legal program, computes the same, and is reproducible."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor import te
from ansor.schedule.extents import is_one
from ansor.schedule.identity import program_key
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from search import SketchPolicy
from search.crossover import crossover
from search.generation import merged
from search.history import History, Trial
from search.mutations.columns import AutoUnroll, ParallelWidth, VectorLoops
from search.mutations.defaults import CPU_MUTATIONS
from search.mutations.location import ComputeLocation
from search.mutations.mutation import Mutation
from search.mutations.tiles import TileLevels, TileShape, TileSize, move_level
from search.offspring import Offspring, same_family
from search.params import REFERENCE_SPACE
from search.plans import plan_key
from search.polish import neighbours, polish, relocated
from sketches import ColumnKind, Population, ProgramSpace
from sketches.annotate import DERIVE
from sketches.locate import locate
from sketches.neighbours import Neighbourhood, chosen_moves
from sketches.params import CPU_UNROLL_CANDIDATES
from sketches.remap import MISSING, Names, shared_names
from sketches.repair import repaired
from sketches.signature import fingerprints
from sketches.tiles import clip_lengths, enumerate_tilings, outer_length, sample_tilings, tile_waste, waste_of
from tests.costmodel_fakes import answer
from tests.program_laws import Case, lowered
from tests.sketches_cases import (
    SMALL,
    check_program,
    matmul,
    matmul_relu,
    oracle_lines,
    oracle_workload,
    padded_conv1d,
    softmax,
    task_of,
)

WASTEFUL = {"max_tile_waste": 1.25}
TASKS = {name: task_of(make()) for name, make in SMALL.items()}
SPACES = {name: Neighbourhood(ProgramSpace.of(task, WASTEFUL)) for name, task in TASKS.items()}
MUTATIONS = [mutation for mutation, _ in CPU_MUTATIONS]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def children_of(
    mutation: Mutation, parents: Population, neighbourhood: Neighbourhood, seed: int
) -> tuple[Offspring, list[Population]]:
    offspring = mutation.propose(parents, neighbourhood, rng(seed))
    return offspring, [repaired(child, neighbourhood.space.context) for child in offspring.populations]


# -- laws of all changes ---------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(SPACES)), st.sampled_from(range(len(MUTATIONS))), st.integers(0, 2**31))
def test_every_mutant_is_a_legal_program(name: str, which: int, seed: int) -> None:
    """Legal or said no: children are complete programs that know their parents; a mask tells the others."""
    neighbourhood = SPACES[name]
    for parents in neighbourhood.space.sample(10, rng(seed)).populations:
        offspring, children = children_of(MUTATIONS[which], parents, neighbourhood, seed)
        born = [row for rows in offspring.parents for row in rows.tolist()]
        assert sorted(born) == np.flatnonzero(offspring.valid).tolist()
        assert offspring.invalid == len(parents) - len(born)
        for child in children:
            for row in range(len(child)):
                check_program(child.materialize(row))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(SPACES)), st.integers(0, 2**31))
def test_mutants_compute_what_the_graph_computes(name: str, seed: int) -> None:
    """After a few mutations of every kind, tile lengths that do not divide among them, results are right."""
    neighbourhood = SPACES[name]
    population = neighbourhood.space.sample(4, rng(seed)).populations[0]
    for mutation in (*MUTATIONS, TileSize(), TileSize()):
        _, children = children_of(mutation, population, neighbourhood, seed)
        population = next((child for child in children if len(child)), population)
    state = population.materialize(0)
    Case.of(state).check_interpreted(lowered(state))
    Case.of(state).check_interpreted(lowered(state, simple_mode=False))


@pytest.mark.parametrize("name", ["matmul of primes", "long reduction", "softmax", "padding"])
def test_compiled_mutants_compute_what_the_graph_computes(name: str) -> None:
    """The same through LLVM."""
    neighbourhood = SPACES[name]
    for population in neighbourhood.space.sample(6, rng(3)).populations[:3]:
        _, children = children_of(TileSize(), population, neighbourhood, 3)
        state = next(child for child in [*children, population] if len(child)).materialize(0)
        Case.of(state).check_compiled(lowered(state, simple_mode=False))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(SPACES)), st.integers(0, 2**31))
def test_columns_of_mutants_agree_with_single_programs(name: str, seed: int) -> None:
    """Bounds known from before a repair are those of each row on its own."""
    neighbourhood = SPACES[name]
    for parents in neighbourhood.space.sample(6, rng(seed)).populations:
        for child in children_of(TileSize(), parents, neighbourhood, seed)[1]:
            for row in range(len(child)):
                steps = child.steps(row)[: len(child.family.steps)]
                alone = State.replay(child.family.dag, steps).with_bounds()
                for mine, theirs in zip(child.bounds.stages, alone.stages, strict=True):
                    for loop, single in zip(mine.iterators, theirs.iterators, strict=True):
                        assert int(np.broadcast_to(loop.extent, len(child))[row]) == single.extent  # type: ignore[arg-type]


@pytest.mark.parametrize("which", range(len(MUTATIONS)))
def test_equal_generators_make_equal_children(which: int) -> None:
    """A mutation draws from its generator and nothing else."""
    neighbourhood = SPACES["softmax"]
    parents = neighbourhood.space.sample(30, rng(1)).populations[0]
    one, two = (children_of(MUTATIONS[which], parents, neighbourhood, 7)[1] for _ in range(2))
    assert [child.values.tolist() for child in one] == [child.values.tolist() for child in two]
    assert [child.family for child in one] == [child.family for child in two]


# -- tiles -----------------------------------------------------------------------------------------------


def test_tiles_keep_their_limits() -> None:
    """A chain of tile mutations stays below the waste bound and the innermost limit, and uses the freedom."""
    neighbourhood = Neighbourhood(ProgramSpace.of(task_of(matmul(67, 250, 96)), WASTEFUL))
    population = neighbourhood.space.sample(200, rng()).populations[0]
    inexact = 0
    for step in range(12):
        _, (children,) = children_of(TileSize(), population, neighbourhood, step)
        waste = tile_waste(children.family.holes, children.values)
        assert waste.max() <= 1.25
        inexact += int((waste > 1).sum())
        for hole in children.family.holes:
            lengths = children.values[:, hole.start : hole.stop]
            assert lengths.min() >= 1
            assert lengths[:, -1].max() <= 64
            assert (lengths == clip_lengths(hole.extent, lengths)).all()
        population = children
    assert inexact > 50
    assert len(np.unique(population.values, axis=0)) > 0.8 * len(population)


def test_a_tile_gets_another_shape_at_once() -> None:
    """Both innermost lengths change, to many shapes, and what is tiled around them keeps about its size."""
    neighbourhood = Neighbourhood(ProgramSpace.of(task_of(matmul(1000, 1000, 96)), WASTEFUL))
    sampled = neighbourhood.space.sample(200, rng()).populations
    parents = max(sampled, key=lambda one: (len(one.family.tiles[0].columns), len(one)))
    parents = parents.take(np.zeros(400, dtype=np.int64))
    offspring, (children,) = children_of(TileShape(), parents, neighbourhood, 1)
    height, width, reduction = children.family.tiles
    shapes = {(int(row[height.stop - 1]), int(row[width.stop - 1])) for row in children.values}
    assert len(shapes) > 30
    assert any(tall > 1 and wide > 1 and 1000 % tall and 1000 % wide for tall, wide in shapes)
    kept = slice(reduction.start, reduction.stop)
    assert (children.values[:, kept] == parents.values[offspring.parents[0], kept]).all()
    assert tile_waste(children.family.holes, children.values).max() <= 1.25


def test_levels_of_two_splits_move_at_once() -> None:
    """All of an outer level goes to another, in both; tiles in registers and reductions stay."""
    neighbourhood = Neighbourhood(ProgramSpace.of(task_of(matmul(1024, 1024, 96)), WASTEFUL))
    sampled = neighbourhood.space.sample(200, rng()).populations
    parents = max(sampled, key=lambda one: (len(one.family.tiles[0].columns), len(one)))
    height, width, reduction = parents.family.tiles
    row = parents.values[0].copy()
    row[height.start : height.stop], row[width.start : width.stop] = (4, 32, 8), (2, 16, 16)
    parents = replace(parents, values=np.tile(row, (400, 1)))
    _, (children,) = children_of(TileLevels(), parents, neighbourhood, 1)
    kept = slice(reduction.start, reduction.stop)
    assert (children.values[:, kept] == row[kept]).all()
    found = set()
    for child in children.values:
        tall, wide = child[height.start : height.stop], child[width.start : width.stop]
        assert (tall[-1], wide[-1]) == (8, 16)
        found.add((tuple(tall[:2].tolist()), tuple(wide[:2].tolist())))
    # part 0 is 1 and 2: the first has two levels to move, the second three, each to two others
    assert found == set(
        product([(1, 32), (128, 1), (4, 1), (1, 128)], [(1, 16), (32, 1), (2, 1), (1, 32), (4, 16), (2, 32)])
    )


def test_a_level_that_moves_leaves_the_product() -> None:
    hole = Neighbourhood(ProgramSpace.of(task_of(matmul(64, 96, 24)))).space.sketches[0].holes[0]
    lengths = sample_tilings(hole.extent, len(hole.columns), 64, 1.0, rng(2), 50)
    moved = move_level(hole, lengths, rng(3))
    assert (moved[:, -1] == lengths[:, -1]).all()
    before, after = (np.column_stack([outer_length(hole.extent, one), one]) for one in (lengths, moved))
    assert (before.prod(axis=1) == after.prod(axis=1)).all()
    assert (np.sort(before) != np.sort(after)).any()


def test_exact_tiles_stay_exact_if_asked() -> None:
    """With a waste bound of 1 every product of lengths divides its axis, sampled or mutated."""
    neighbourhood = Neighbourhood(ProgramSpace.of(task_of(matmul(60, 250, 96)), {"max_tile_waste": 1.0}))
    population = neighbourhood.space.sample(100, rng()).populations[0]
    for step in range(6):
        for hole in population.family.holes:
            assert (hole.extent % population.values[:, hole.start : hole.stop].prod(axis=1) == 0).all()
        for mutation in (TileShape(), TileLevels(), TileSize()):
            _, (population,) = children_of(mutation, population, neighbourhood, step)


def test_a_program_without_tiles_has_no_tile_mutants() -> None:
    """Nothing to split, nothing to change: every parent is counted as invalid."""
    neighbourhood = SPACES["matmul of ones"]
    for parents in neighbourhood.space.sample(5, rng()).populations:
        for mutation in (TileSize(), TileShape(), TileLevels()):
            offspring = mutation.propose(parents, neighbourhood, rng())
            assert offspring.invalid == len(parents)
            assert not any(map(len, offspring.populations))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 4), st.floats(1.0, 1.5), st.integers(0, 2**31))
def test_drawn_tilings_are_within_the_bound(extent: int, lengths: int, waste: float, seed: int) -> None:
    """Clipped, below the waste bound and the limit, and covering the extent."""
    drawn = sample_tilings(extent, lengths, 64, waste, rng(seed), 20)
    assert (drawn == clip_lengths(extent, drawn)).all()
    assert drawn[:, -1].max() <= 64
    assert waste_of(extent, drawn).max() <= waste + 1e-9
    assert (outer_length(extent, drawn) * drawn.prod(axis=1) >= extent).all()


def test_small_tilings_are_listed_completely() -> None:
    """The list of tuples for 7 by two lengths is what brute force finds, and drawing reaches all of it."""
    listed = {tuple(row) for row in enumerate_tilings(7, 2, 64, 1.25, 1000).tolist()}  # type: ignore[union-attr]
    expected = {
        tuple(clip_lengths(7, np.array([[a, b]]))[0].tolist())
        for a in range(1, 9)
        for b in range(1, 9)
        if -(-7 // (a * b)) * a * b in (7, 8)
    }
    drawn = {tuple(row) for row in sample_tilings(7, 2, 64, 1.25, rng(), 2000).tolist()}
    assert listed == expected == drawn
    assert enumerate_tilings(1024, 3, 64, 1.25, 100) is None


# -- annotations -----------------------------------------------------------------------------------------


def test_each_annotation_mutation_changes_one_column_of_its_kind() -> None:
    """Unroll limits stay candidates, widths and counts within their sites."""
    neighbourhood = SPACES["fused matmul"]
    parents = neighbourhood.space.sample(60, rng(2)).populations[0]
    for mutation, kind in (
        (AutoUnroll(), ColumnKind.UNROLL),
        (ParallelWidth(), ColumnKind.PARALLEL),
        (VectorLoops(), ColumnKind.VECTORIZE),
    ):
        offspring = mutation.propose(parents, neighbourhood, rng(4))
        assert offspring.invalid == 0
        changed = offspring.populations[0].values != parents.values
        assert (changed.sum(axis=1) == 1).all()
        assert changed[:, list(parents.family.positions(kind))].any(axis=1).all()
    unrolls = list(parents.family.positions(ColumnKind.UNROLL))
    drawn = AutoUnroll().propose(parents, neighbourhood, rng(4)).populations[0].values[:, unrolls]
    assert set(drawn.ravel().tolist()) <= set(CPU_UNROLL_CANDIDATES)


def test_parallel_loops_stay_outermost_whatever_is_wished() -> None:
    """Any wish of widths and counts is repaired to a legal program."""
    neighbourhood = SPACES["softmax"]
    for population in neighbourhood.space.sample(40, rng(6)).populations:
        first = sum(len(hole.columns) for hole in population.family.holes)
        values = population.values.copy()
        values[:, first:] = rng(1).integers(DERIVE, 9, values[:, first:].shape)
        for at in population.family.positions(ColumnKind.UNROLL):
            values[:, at] = 16
        wished = repaired(Population(population.family, values), neighbourhood.space.context)
        for row in range(len(wished)):
            check_program(wished.materialize(row))


# -- families --------------------------------------------------------------------------------------------


def test_a_moved_stage_changes_the_family_and_no_tiles() -> None:
    """The child has the parent's sketch and tile lengths, one stage is elsewhere."""
    neighbourhood = Neighbourhood(ProgramSpace.of(task_of(padded_conv1d(24, 8, 16)), WASTEFUL))
    moved = 0
    for parents in neighbourhood.space.sample(60, rng()).populations:
        offspring, children = children_of(ComputeLocation(), parents, neighbourhood, 1)
        for child, rows in zip(children, offspring.parents, strict=True):
            assert child.family is not parents.family
            assert child.family.sketch is parents.family.sketch
            tiles = sum(len(hole.columns) for hole in child.family.holes)
            assert (child.values[:, :tiles] == parents.values[rows, :tiles]).all()
            moved += len(child)
    assert moved > 30


def test_a_family_is_one_object_however_it_is_reached() -> None:
    """Sampling, moving and locating meet in the same families."""
    neighbourhood = SPACES["softmax"]
    space = neighbourhood.space
    sampled = {p.family.key: p.family for p in space.sample(300, rng(8)).populations}
    for family in list(sampled.values()):
        for relocation in neighbourhood.relocations(family):
            other = neighbourhood.relocated(family, relocation)
            if other is not None and other.key in sampled:
                assert sampled[other.key] is other
    listed = [f for sketch in space.sketches for f in neighbourhood.families(sketch, 500) or ()]
    assert {family.key for family in listed} >= set(sampled)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SPACES)), st.integers(0, 2**31))
def test_a_program_is_found_again(name: str, seed: int) -> None:
    """Sampled and mutated programs lead back to a row that is the same program."""
    neighbourhood = SPACES[name]
    for parents in neighbourhood.space.sample(4, rng(seed)).populations:
        for mutation in (ComputeLocation(), ParallelWidth()):
            for population in (parents, *children_of(mutation, parents, neighbourhood, seed)[1]):
                for row in range(len(population)):
                    state = population.materialize(row)
                    found = locate(neighbourhood, state)
                    assert found is not None
                    family, values = found
                    again = Population(family, values)
                    assert str(again.materialize(0).with_bounds()) == str(state.with_bounds())
                    assert family is not population.family or (values[0] == population.values[row]).all()


def test_every_recorded_program_of_the_reference_is_a_row() -> None:
    """All 139 recorded CPU programs are found in our space, whatever mutations they went through there."""
    spaces: dict[str, Neighbourhood] = {}
    found = 0
    for entry in oracle_lines("state", "llvm"):
        name, steps = entry["workload"], entry["record"]["i"][1][1]
        if name not in spaces:
            spaces[name] = Neighbourhood(ProgramSpace.of(task_of(oracle_workload(name)), REFERENCE_SPACE))
        state = State.replay(spaces[name].space.context.dag, steps)
        row = locate(spaces[name], state)
        assert row is not None, steps
        assert str(Population(*row).materialize(0).with_bounds()) == str(state.with_bounds())
        found += 1
    assert found == 139


def test_a_program_of_another_kind_is_not_found() -> None:
    """Programs that no sketch begins, and programs with loops in an order of their own, are no rows."""
    neighbourhood = SPACES["matmul"]
    start = State.initial(neighbourhood.space.context.dag)
    assert locate(neighbourhood, start) is None
    assert locate(neighbourhood, start.split(2, 0, [2]).reorder(2, [1, 0, 2, 3])) is None
    program = neighbourhood.space.sample(1, rng()).populations[0].materialize(0)
    last = len(program.stages) - 1
    assert locate(neighbourhood, program.pragma(last, 0, "auto_unroll_max_step$7")) is None


# -- crossover -------------------------------------------------------------------------------------------


def test_a_child_takes_every_axis_from_one_parent_or_the_other() -> None:
    """Within a family: each tuple of tile lengths, and each annotation, is one of the parents'."""
    neighbourhood = SPACES["fused matmul"]
    population = max(neighbourhood.space.sample(200, rng(1)).populations, key=len)
    half = len(population) // 2
    mothers, fathers = population.take(np.arange(half)), population.take(np.arange(half, 2 * half))
    offspring = crossover(mothers, fathers.values, neighbourhood, rng(2))
    (children,), (rows,) = offspring.populations, offspring.parents
    assert len(children) > half / 2
    for child, mother, father in zip(
        children.values, mothers.values[rows], fathers.values[rows], strict=True
    ):
        for hole in population.family.holes:
            own = slice(hole.start, hole.stop)
            assert child[own].tolist() in (mother[own].tolist(), father[own].tolist())


def test_tiles_cross_between_sketches() -> None:
    """A matmul tiled into a cache stage inherits the tiles of one that is not."""
    neighbourhood = Neighbourhood(ProgramSpace.of(task_of(matmul(64, 96, 128))))
    populations = neighbourhood.space.sample(300, rng()).populations
    plain = next(p for p in populations if p.family.sketch.rules == ("MultiLevelTiling",))
    cached = next(p for p in populations if p.family.sketch.rules[0] == "AddCacheWrite")
    names = Names()
    spread = names.spread([plain])
    donors = names.gather(spread[: len(cached)], cached.family)
    tiles = sum(len(hole.columns) for hole in cached.family.holes)
    assert (donors[:, :tiles] != MISSING).all()
    count = min(len(plain), len(cached))
    offspring = crossover(cached.take(np.arange(count)), donors[:count], neighbourhood, rng(3))
    children = repaired(offspring.populations[0], neighbourhood.space.context)
    assert children.family is cached.family
    theirs = donors[offspring.parents[0]]
    inherited = (children.values[:, :tiles] == theirs[:, :tiles]).mean()
    assert inherited > 0.4
    for row in range(0, len(children), 10):
        check_program(children.materialize(row))


def test_tiles_cross_between_equal_axes_whatever_they_are_called() -> None:
    """An axis called as the copy of another one in a cache stage is no copy of it."""
    x, y = te.placeholder((64, 128), name="X"), te.placeholder((128, 96), name="Y")
    k = te.reduce_axis((0, 128), "k_c")
    z = te.compute((64, 96), lambda i, i_c: te.sum(x[i, k] * y[k, i_c], axis=k), name="Z")
    own = {"Z": {"i": "i", "i_c": "i_c", "k_c": "k_c"}, "Z.local": {"i_c": "i", "i_c_c": "i_c", "k_c": "k_c"}}
    met = set()
    for population in ProgramSpace.of(task_of([x, y, z])).sample(64, rng()).populations:
        family = population.family
        assert len(set(shared_names(family))) == len(family.columns)
        for column, shared in zip(family.columns, shared_names(family), strict=True):
            if column.kind is ColumnKind.TILE:
                met.add(column.stage)
                assert (shared.stage, shared.axis) == ("Z", own[column.stage][column.axis])
    assert met == {"Z", "Z.local"}


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(SPACES)), st.integers(0, 2**31))
def test_every_crossed_program_is_legal(name: str, seed: int) -> None:
    """Whatever families meet."""
    neighbourhood = SPACES[name]
    populations = neighbourhood.space.sample(16, rng(seed)).populations
    names = Names()
    spread = names.spread(populations)
    for parents in populations:
        donors = names.gather(spread[rng(seed).integers(len(spread), size=len(parents))], parents.family)
        for child in crossover(parents, donors, neighbourhood, rng(seed)).populations:
            for row, _ in enumerate(child.values):
                check_program(repaired(child, neighbourhood.space.context).materialize(row))


# -- fingerprints ----------------------------------------------------------------------------------------


def ends_in_a_parallel_loop(state: State) -> bool:
    """Whether some stage has a parallel loop with no loop inside it."""
    return any(
        [x.annotation for x in stage.iterators if not is_one(x.extent)][-1:] == [Annotation.PARALLEL]
        for stage in state.with_bounds().stages
    )


@pytest.mark.parametrize(
    "name", ["matmul", "matmul with ones", "fused matmul", "row sum", "softmax", "padding"]
)
def test_fingerprints_tell_programs_apart(name: str) -> None:
    """Equal fine fingerprints are equal programs; programs of equal code have equal coarse ones.

    The second does not hold where the innermost loop is a parallel one, which lowering may cut into the very
    strips that another program splits off: such twins are measured twice.
    """
    task, neighbourhood = TASKS[name], SPACES[name]
    plans: dict[int, str] = {}
    coarse: dict[str, int] = {}
    equal, cut = 0, False
    for population in neighbourhood.space.sample(90, rng(11)).populations:
        prints = fingerprints(population)
        for row in range(len(population)):
            state = population.materialize(row)
            plan = plan_key(task, state)
            assert plans.setdefault(int(prints.fine[row]), plan) == plan
            equal += plan in coarse
            same = coarse.setdefault(plan, int(prints.coarse[row])) == int(prints.coarse[row])
            cut = cut or ends_in_a_parallel_loop(state)
            assert same or cut
    assert len(plans) > 20
    assert equal > 0 or name == "padding"


# -- neighbours, extension -------------------------------------------------------------------------------


def test_neighbours_are_one_step_away() -> None:
    """All legal and distinct; tiles of one axis, or one annotation, differ; a long list for a matmul."""
    neighbourhood = Neighbourhood(ProgramSpace.of(task_of(matmul_relu(64, 96, 128)), WASTEFUL))
    program = neighbourhood.space.sample(3, rng()).populations[0].take([0])
    ring = neighbours(program, neighbourhood.space.context)
    assert len(ring) > 20
    groups = [set(range(hole.start, hole.stop)) for hole in ring.family.holes]
    for values in ring.values:
        changed = set(np.flatnonzero(values != program.values[0]).tolist())
        assert len(changed) == 1 or any(changed <= group for group in groups)
    fixed = repaired(ring, neighbourhood.space.context)
    for row in range(len(fixed)):
        check_program(fixed.materialize(row))


def test_neighbours_elsewhere_keep_all_that_they_can() -> None:
    """One stage is computed somewhere else in each; lengths, unrolling and vectors stay as they are."""
    neighbourhood = SPACES["padding"]
    moved = 0
    for population in neighbourhood.space.sample(40, rng()).populations:
        program = population.take([0])
        names = dict(zip(shared_names(program.family), program.values[0].tolist(), strict=True))
        elsewhere = relocated(program, neighbourhood)
        assert len({one.family for one in elsewhere} - {program.family}) == len(elsewhere)
        for one in elsewhere:
            (values,) = one.values.tolist()
            own = chosen_moves(program.family)
            theirs = chosen_moves(one.family)
            assert own != theirs
            assert one.family.sketch is program.family.sketch
            kept = dict(zip(shared_names(one.family), values, strict=True))
            assert {name for name in names if name.kind is ColumnKind.TILE} <= kept.keys()
            assert all(names[name] == kept[name] for name in names.keys() & kept.keys())
            check_program(repaired(one, neighbourhood.space.context).materialize(0))
            moved += 1
    assert moved > 20


def test_polish_offers_programs_of_other_families() -> None:
    """With the lengths of a program among the best; none has been measured."""
    policy = SketchPolicy(TASKS["padding"])
    history = History()
    for state in policy.sample_initial_population():
        history.add(Trial(program_key(state), state, answer(state)))
    best = next(
        row for row in policy.known.best(history, 8) if relocated(row.population, policy.neighbourhood)
    )
    measured = policy.known.fine(history)
    rings = polish(policy.known, history, policy.neighbourhood, policy.score, 10_000, measured)
    ring = next(ring for ring in rings if best.family in {one.family for one in ring.populations})
    assert len({one.family for one in ring.populations}) > 1
    assert not np.isin(ring.prints.fine, measured).any()


def test_rows_of_one_family_are_put_together() -> None:
    """Merging keeps every distinct row once."""
    population = SPACES["matmul"].space.sample(40, rng()).populations[0]
    (together,) = merged([population, population.take([3, 1]), population])
    assert {tuple(row) for row in together.values.tolist()} == {tuple(r) for r in population.values.tolist()}
    assert len(together) == len(population.unique_rows())


def test_a_users_mutation_is_a_class_with_a_name_and_a_method() -> None:
    """Leave it to the repair what annotations the new tiles allow."""

    class NoUnroll(Mutation):
        name = "no unrolling"

        def propose(self, parents: Population, neighbourhood: Any, rng: Any) -> Offspring:
            values = parents.values.copy()
            values[:, list(parents.family.positions(ColumnKind.UNROLL))] = 0
            return same_family(parents, values, (values != parents.values).any(axis=1))

    neighbourhood = Neighbourhood(ProgramSpace.of(task_of(softmax(4, 18))))
    for parents in neighbourhood.space.sample(20, rng()).populations:
        _, children = children_of(NoUnroll(), parents, neighbourhood, 0)
        at = list(parents.family.positions(ColumnKind.UNROLL))
        assert all((child.values[:, at] == 0).all() for child in children)
