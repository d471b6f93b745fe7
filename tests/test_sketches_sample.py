"""Families, populations and random programs: every row is a legal, complete, reproducible program."""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor import te
from ansor.errors import DefinitionError
from ansor.schedule.access import ALWAYS_UNROLL_ATTR
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import AnnotationStep, SplitStep
from search.known import Known
from search.params import REFERENCE_SPACE
from sketches import ColumnKind, Population, ProgramSpace, sample_programs
from sketches.factors import enumerate_factorizations
from sketches.neighbours import Neighbourhood
from tests.sketches_cases import (
    HARDWARE,
    SMALL,
    check_program,
    matmul,
    matmul_relu,
    padded_conv1d,
    softmax,
    task_of,
)

SPACES = {name: ProgramSpace.of(task_of(make())) for name, make in SMALL.items()}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# -- laws over many programs ---------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SPACES)), st.integers(0, 2**31))
def test_every_sampled_program_is_complete_and_replays(name: str, seed: int) -> None:
    """No holes, equal replay through the record form, bounds known, annotations where they belong."""
    sample = SPACES[name].sample(12, rng(seed))
    assert not sample.dropped
    programs = [population.materialize(row) for population, row in sample.in_order()]
    assert len(programs) == 12
    for program in programs:
        check_program(program)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SPACES)), st.integers(0, 2**31))
def test_columns_agree_with_single_programs(name: str, seed: int) -> None:
    """Bounds inferred for a whole population are, row by row, those of the row on its own."""
    for population in SPACES[name].sample(10, rng(seed)).populations:
        columns = population.bounds
        for row in range(len(population)):
            steps = population.steps(row)[: len(population.family.steps)]
            alone = State.replay(population.family.dag, steps).with_bounds()
            for mine, theirs in zip(columns.stages, alone.stages, strict=True):
                for loop, single in zip(mine.iterators, theirs.iterators, strict=True):
                    assert int(np.broadcast_to(loop.extent, len(population))[row]) == single.extent


@pytest.mark.parametrize("name", sorted(SPACES))
def test_same_generator_same_programs(name: str) -> None:
    """Programs depend on the generator's state and on nothing else; another seed gives others."""
    task = task_of(SMALL[name]())
    one, two = (sample_programs(task, 20, rng(5)) for _ in range(2))
    assert [state.steps for state in one] == [state.steps for state in two]
    space = ProgramSpace.of(task)
    generator = rng(5)
    first, second = (sample_programs(task, 20, generator, space=space) for _ in range(2))
    assert [state.steps for state in first] == [state.steps for state in one]
    if len(space.sketches) > 1:
        assert [state.steps for state in second] != [state.steps for state in one]


@pytest.mark.parametrize("name", sorted(SPACES))
def test_every_sketch_is_drawn_about_equally(name: str) -> None:
    """Sketches are equally likely, and a batch mixes them in the order of drawing."""
    space = SPACES[name]
    sample = space.sample(600, rng(2))
    assert len(sample) == 600
    counts = Counter(id(population.family.sketch) for population, _ in sample.in_order())
    expected = 600 / len(space.sketches)
    assert len(counts) == len(space.sketches)
    assert max(abs(count - expected) for count in counts.values()) < 6 * np.sqrt(expected)


def test_every_tile_tuple_is_reached() -> None:
    """For a split of 12 by three lengths all 40 tuples come up, and a prime is split all its ways."""
    dividing = {"max_tile_waste": 1.0}
    sample = ProgramSpace.of(task_of(SMALL["matmul"]()), dividing).sample(3000, rng(1))
    seen: set[tuple[int, ...]] = set()
    for population in sample.populations:
        for hole in population.family.holes:
            if hole.extent == 12 and len(hole.columns) == 1:
                seen |= {tuple(row) for row in population.values[:, hole.start : hole.stop].tolist()}
    assert seen == {tuple(row) for row in enumerate_factorizations(12, 1, 64).tolist()}
    primes = ProgramSpace.of(task_of(SMALL["matmul of primes"]()), dividing).sample(300, rng(1))
    lengths = {
        tuple(population.values[row, hole.start : hole.stop].tolist())
        for population in primes.populations
        for hole in population.family.holes
        if hole.extent == 67
        for row in range(len(population))
    }
    assert lengths == {(1, 1, 1), (67, 1, 1), (1, 67, 1)}


# -- structure -----------------------------------------------------------------------------------------


def test_families_are_few_and_columns_have_names() -> None:
    """A thousand matmuls are three families; the same decision has the same name in each of them."""
    space = ProgramSpace.of(task_of(matmul(64, 96, 128)))
    sample = space.sample(1000, rng())
    assert len(sample.populations) == 3
    plain = next(p.family for p in sample.populations if p.family.sketch.rules == ("MultiLevelTiling",))
    assert [str(column) for column in plain.columns] == [
        "tile C.i[1]",
        "tile C.i[2]",
        "tile C.i[3]",
        "tile C.j[1]",
        "tile C.j[2]",
        "tile C.j[3]",
        "tile C.k[1]",
        "parallel C[0]",
        "unroll C",
        "vectorize C",
    ]
    cached = [set(p.family.columns) for p in sample.populations if p.family is not plain]
    assert {str(c) for c in cached[0] & cached[1] if c.kind is ColumnKind.UNROLL} == {"unroll C.local"}


def test_number_of_families_is_bounded() -> None:
    """With many movable stages, rows beyond the limit share the structures of the first ones."""
    task = task_of(softmax(64, 80))
    few = ProgramSpace.of(task, {"max_families": 8}).sample(400, rng())
    many = ProgramSpace.of(task, {"max_families": 400}).sample(400, rng())
    assert len(few.populations) <= 8 + len(ProgramSpace.of(task).sketches)
    assert len(few.populations) < len(many.populations)
    assert len(few) == len(many) == 400


def test_a_space_remembers_families_of_late_and_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sketches.sample.MOST_FAMILIES", 8)
    space = ProgramSpace.of(task_of(softmax(64, 80)), {"max_families": 400})
    first = space.sample(100, rng())
    again = space.sample(100, rng())
    assert len(first.populations) > 20
    for one, other in zip(first.populations, again.populations, strict=True):
        assert one.family is other.family
    del first, again, one, other
    gc.collect()
    assert len(space._families) == len(space._lately) == 8


def test_knowing_neighbours_and_programs_keeps_no_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a space has forgotten is worked out again, and is the same."""
    monkeypatch.setattr("sketches.sample.MOST_FAMILIES", 8)
    task = task_of(softmax(64, 80))
    space = ProgramSpace.of(task, {"max_families": 400})
    neighbourhood = Neighbourhood(space)
    known = Known(task, neighbourhood)

    def look_around() -> list[tuple[str, list[str | None]]]:
        found = []
        for population in space.sample(100, rng()).populations:
            family = population.family
            ways = [neighbourhood.relocated(family, way) for way in neighbourhood.relocations(family)]
            again = [neighbourhood.relocated(family, way) for way in neighbourhood.relocations(family)]
            assert all(one is other for one, other in zip(ways, again, strict=True))
            found.append((known.program(population, 0).key, [way and way.key for way in ways]))
        return found

    first = look_around()
    assert len(first) > 20
    gc.collect()
    assert len(space._families) == len(space._lately) == 8
    assert look_around() == first


def test_equal_keys_mean_equal_structure() -> None:
    """The families of one batch have distinct keys; the key does not depend on the integers."""
    space = SPACES["softmax"]
    keys = [p.family.key for p in space.sample(100, rng(1)).populations]
    assert len(set(keys)) == len(keys)
    again = [p.family.key for p in space.sample(100, rng(9)).populations]
    assert set(keys) & set(again)


def test_rows_of_one_family_print_alike_only_if_equal() -> None:
    """Distinct rows of the tile columns are distinct programs."""
    for population in SPACES["matmul"].sample(200, rng(4)).populations:
        unique = population.take(population.unique_rows())
        texts = {str(unique.materialize(row).steps) for row in range(len(unique))}
        assert len(texts) == len(unique)


def test_steps_come_in_the_order_of_the_reference() -> None:
    """Sketch, locations, parallel, unroll, vectorise."""
    order = {"FU": 1, "AN": 1, "PR": 2, "CA": 0}
    for population, row in SPACES["padding"].sample(40, rng(8)).in_order():
        tail = population.steps(row)[len(population.family.sketch.steps) :]
        codes = [step.code for step in tail]
        pragmas = [at for at, code in enumerate(codes) if code == "PR"]
        assert codes[: codes.count("CA")] == ["CA"] * codes.count("CA")
        parallel = [
            at
            for at, step in enumerate(tail)
            if isinstance(step, AnnotationStep) and step.annotation == Annotation.PARALLEL
        ]
        vector = [
            at
            for at, step in enumerate(tail)
            if isinstance(step, AnnotationStep) and step.annotation == Annotation.VECTORIZE
        ]
        assert max(parallel, default=-1) < min(pragmas)
        assert max(pragmas) < min(vector, default=len(tail))
        assert set(codes) <= set(order)


def test_locations_move_untiled_stages() -> None:
    """Padding is found at root and at several loops of the convolution or of its copy."""
    space = ProgramSpace.of(task_of(padded_conv1d(16, 8, 16)), {"max_families": 300})
    places: set[tuple[str, str] | None] = set()
    for population in space.sample(300, rng(3)).populations:
        state = population.bounds
        place = state.attach.get(state.stage_id("Pad"))
        if place is not None:
            target = state.stages[place[0]]
            places.add((target.name, target.iterators[place[1]].name))
        else:
            places.add(None)
    assert None in places
    assert ("Conv", "i.0") in places
    assert ("Conv", "rc.0") in places
    assert ("Conv.local", "rk.0") in places


def test_locations_can_be_fixed() -> None:
    """`disable_change_compute_location` leaves one family per sketch."""
    task = task_of(padded_conv1d(16, 8, 16))
    space = ProgramSpace.of(task, {"disable_change_compute_location": 1})
    assert len(space.sample(200, rng()).populations) == len(space.sketches)


# -- annotations ---------------------------------------------------------------------------------------


def test_parallel_loops_are_fused_until_all_cores_are_busy() -> None:
    """The fused product is the first to exceed 16 per core, or all that may be fused is fused."""
    for population in ProgramSpace.of(task_of(matmul(64, 96, 128))).sample(300, rng(6)).populations:
        bounds = population.bounds
        (site,) = population.family.parallel[:1]
        widths = population.values[:, population.family.positions(ColumnKind.PARALLEL)[0]]
        loops = bounds.stages[site.stage].iterators[site.start : site.stop]
        extents = np.stack([np.broadcast_to(loop.extent, len(population)) for loop in loops], axis=1)
        for row, width in enumerate(widths):
            if width == 0:
                assert extents[row].prod() == 1
                continue
            limit = 16 * HARDWARE.num_cores
            assert width == len(loops) or extents[row, :width].prod() > limit
            assert extents[row, : width - 1].prod() <= limit


def test_all_vectorisable_loops_may_be_fused() -> None:
    """The innermost loops of an untiled stage: one, two or, on request, all of them become one vector."""
    x = te.placeholder((64, 64, 2, 2, 2), name="X")
    y = te.compute(x.shape, lambda a, b, c, d, e: te.exp(x[a, b, c, d, e]), name="Y")
    for whole, expected in ((1, {"e", "d@e@", "c@d@e@"}), (0, {"e", "d@e@"})):
        drawn = sample_programs(
            task_of([x, y]), 90, rng(), {**REFERENCE_SPACE, "cpu_fuse_all_vectors": whole}
        )
        assert {state.stages[-1].iterators[-1].name for state in drawn} == expected


def test_nothing_is_computed_inside_lanes() -> None:
    """A vector of whole pixels is no place for another stage, so no program is lost."""
    assert not SPACES["pixels"].sample(64, rng()).dropped


def test_unroll_values_are_all_drawn() -> None:
    """Stages with a reduction get each of the CPU's unroll limits."""
    values: set[int] = set()
    for population in SPACES["fused matmul"].sample(100, rng()).populations:
        (at,) = population.family.positions(ColumnKind.UNROLL)
        values |= set(population.values[:, at].tolist())
    assert values == {0, 16, 64, 512}


def test_loops_named_by_the_author_are_always_unrolled() -> None:
    """The named axis is unrolled in the innermost tile, and never vectorised."""
    task = task_of(matmul(8, 8, 8, **{ALWAYS_UNROLL_ATTR: ["j"]}))
    space = ProgramSpace.of(task)
    for population, row in space.sample(60, rng()).in_order():
        state = population.materialize(row)
        stage = next(s for s in state.stages if len(s.iterators) >= 6 and "k.1" in str(s.describe()))
        unrolled = [loop.name for loop in stage.iterators if loop.annotation is Annotation.UNROLL]
        assert unrolled in (["j.3"], ["j_c.3"])


def test_nested_programs_use_the_inner_loops() -> None:
    """Where the outer tiles have one iteration, the loops inside of them are parallel instead."""
    space = ProgramSpace.of(task_of(matmul_relu(4, 4, 8)))
    inner = 0
    for population in space.sample(400, rng(2)).populations:
        columns = [population.family.columns[at] for at in population.family.positions(ColumnKind.PARALLEL)]
        for column in columns:
            if column.level > 0:
                inner += int((population.column(column) > 0).sum())
    assert inner > 0


# -- errors --------------------------------------------------------------------------------------------


def test_symbolic_sizes_cannot_be_sampled() -> None:
    """The error names the loop and says what to do."""
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: te.exp(x[i]), name="Y")
    with pytest.raises(DefinitionError, match="constant sizes"):
        sample_programs(task_of([x, y]), 4, rng())


def test_rows_have_as_many_integers_as_columns() -> None:
    """Wrong row and matrix widths are refused with the expected number."""
    population = SPACES["matmul"].sample(3, rng()).populations[0]
    with pytest.raises(DefinitionError, match="integers, found 3"):
        population.family.program([1, 2, 3])
    with pytest.raises(DefinitionError, match="columns needs a matrix"):
        Population(population.family, population.values[:, 1:])


def test_split_steps_hold_plain_integers() -> None:
    """Materialised steps are records: Python ints only."""
    for state in sample_programs(task_of(matmul(6, 8, 12)), 10, rng()):
        lengths = [x for step in state.steps if isinstance(step, SplitStep) for x in step.lengths]
        assert all(type(length) is int for length in lengths)
