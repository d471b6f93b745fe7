"""Fingerprints of rows: one program written differently is one, and different programs are two."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from ansor.schedule.identity import program_key
from ansor.te import Tensor
from search import SearchTask
from search.distinct import distinct_share
from search.plans import plan_key
from sketches import Column, ColumnKind, Population, ProgramSpace
from sketches.signature import fingerprints
from tests.sketches_cases import matmul, matmul_relu, padded_conv1d, softmax

TASK = SearchTask(compute_dag=matmul(32, 32, 32), target="llvm -num-cores=2")
SPACE = ProgramSpace.of(TASK)
PLAIN = {"i1": 1, "i2": 1, "i3": 1, "j1": 1, "j2": 1, "j3": 4, "k1": 1} | {
    "parallel": 0,
    "unroll": 0,
    "vectorize": 1,
}


def values_of(choices: Mapping[str, int]) -> dict[Column, int]:
    """`i2` is the length of the second inner level of axis i; the other names are kinds."""
    named = {}
    for name, value in choices.items():
        if name in list(ColumnKind):
            named[Column(ColumnKind(name), "C")] = value
        else:
            named[Column(ColumnKind.TILE, "C", name[0], int(name[1]))] = value
    return named


def two(common: Mapping[str, int], one: Mapping[str, int], other: Mapping[str, int]) -> Population:
    """Two matmuls of 32 x 32 x 32 with loops i0 j0 i1 j1 k0 i2 j2 k1 i3 j3, lengths 1 but for those given."""
    sample = SPACE.sample(60, np.random.default_rng(0))
    family = next(p.family for p in sample.populations if len(p.family.columns) == len(PLAIN))
    rows = [values_of({**PLAIN, **common, **changes}) for changes in (one, other)]
    return Population(family, np.array([[row[column] for column in family.columns] for row in rows]))


def are_one(both: Population) -> tuple[bool, bool]:
    """Whether two rows have equal fine fingerprints, and whether what would be compiled is equal."""
    fine = fingerprints(both).fine
    plans = [plan_key(TASK, both.materialize(row)) for row in range(2)]
    return bool(fine[0] == fine[1]), plans[0] == plans[1]


def test_parts_of_one_axis_in_a_fused_loop_are_one() -> None:
    """Four times two iterations of i and one times eight are the same parallel loop."""
    assert are_one(two({"i3": 4, "j3": 32, "parallel": 3}, {"i1": 2}, {"i1": 8})) == (True, True)


def test_parts_of_one_axis_around_another_are_not_one() -> None:
    """i0 j0 i1 with i divided in two ways run in different orders: two programs, also by their keys."""
    both = two({"i3": 4, "j3": 8, "parallel": 3}, {"i1": 2}, {"i1": 4})
    assert are_one(both) == (False, False)
    assert program_key(both.materialize(0)) != program_key(both.materialize(1))


def test_serial_parts_of_one_axis_are_not_one() -> None:
    """Two loops of four and two iterations are not compiled as two of two and four."""
    assert are_one(two({"i3": 4, "j3": 32}, {"i1": 2}, {"i1": 4})) == (False, False)


def test_vectors_that_lowering_makes_count_as_one_step() -> None:
    """i3 and j3 have 512 steps together, and only 32 once j3 is a vector: a limit of 64 unrolls i3."""
    common = {"i3": 32, "j3": 16, "vectorize": 0}
    assert are_one(two(common, {"unroll": 16}, {"unroll": 64})) == (False, False)


def test_limits_that_unroll_the_same_loops_are_one() -> None:
    """A reduction too long to be unrolled is left alone by either limit; the store before it is no loop."""
    assert are_one(two({}, {"unroll": 0}, {"unroll": 16})) == (True, True)
    assert are_one(two({"k1": 16}, {"unroll": 0}, {"unroll": 16})) == (False, False)


@pytest.mark.parametrize("tensors", [softmax(8, 64), matmul_relu(16, 24, 128), padded_conv1d(12, 4, 6)])
def test_equal_fingerprints_are_equal_programs_whatever_the_pragmas(tensors: list[Tensor]) -> None:
    """Rows that differ in limits alone, of stages side by side and in each other."""
    task = SearchTask(compute_dag=tensors, target="llvm -num-cores=2")
    rng = np.random.default_rng(1)
    plans: dict[int, str] = {}
    for population in ProgramSpace.of(task).sample(24, rng).populations:
        values = np.repeat(population.values[:1], 4, axis=0)
        for at in population.family.positions(ColumnKind.UNROLL):
            values[:, at] = rng.choice([0, 16, 64, 512], len(values))
        rows = Population(population.family, values).take(np.unique(values, axis=0, return_index=True)[1])
        for row, fine in enumerate(fingerprints(rows).fine.tolist()):
            plan = plan_key(task, rows.materialize(row))
            assert plans.setdefault(fine, plan) == plan
    assert len(plans) > 5


def test_the_share_of_different_programs_counts_equal_ones_once() -> None:
    """One program in two rows, a row twice, and two programs."""
    rng = np.random.default_rng(0)
    one = two({"i3": 4, "j3": 32, "parallel": 3}, {"i1": 2}, {"i1": 8})
    different = two({"i3": 4, "j3": 8, "parallel": 3}, {"i1": 2}, {"i1": 4})
    vector = two({"i3": 4, "j3": 8}, {"vectorize": 0}, {"vectorize": 1})
    assert are_one(vector) == (False, True)
    assert distinct_share(TASK, [one], 10, rng) == 0.5
    assert distinct_share(TASK, [different], 10, rng) == 1.0
    assert distinct_share(TASK, [vector], 10, rng) == 0.5
    assert distinct_share(TASK, [one, different, vector, different], 10, rng) == 0.5
    assert distinct_share(TASK, [], 10, rng) == 1.0
