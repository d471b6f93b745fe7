"""What features say of a row is what happens when its program, materialised and lowered, is run."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose, prod

import numpy as np
import pytest

from ansor.dtypes import dtype_info
from ansor.ir.nest import Buffer, Store
from ansor.ir.registers import RegisterLimits
from ansor.schedule.lowering import lower
from ansor.task.task import Task
from ansor.te.expr import Load, int_value
from ansor.te.tensor import ComputeOp
from costmodel.extraction.extract import extract_forms
from costmodel.extraction.form import Form
from costmodel.extraction.statements import statements_of
from costmodel.features.reference import N_BUFFERS
from costmodel.features.table import INDEX
from sketches import ColumnKind, Population, ProgramSpace
from tests.costmodel_counts import allocation, stored_statements
from tests.costmodel_executed import Executed
from tests.costmodel_law import buffer_name, odd_lengths
from tests.paths import walk
from tests.sketches_cases import SMALL, channel_filters, task_of

TASKS = {name: task_of(make()) for name, make in SMALL.items() if name != "matmul of primes"}
TASKS["filters of bytes"] = task_of(channel_filters(5, 12, 5, 2, "uint8"))
MOST_POINTS = 3000
LIMITS = RegisterLimits(256, 16)
"""Of the tasks' target."""
DENSE = ("matmul", "matmul with ones", "matmul of ones", "fused matmul", "row sum", "softmax", "transposes")
"""Computations whose accesses have no gaps, so that a box of elements is touched as a whole."""


@dataclass(frozen=True, slots=True)
class Compared:
    """How many statements were compared, and of how many the parallel iterations are known exactly."""

    statements: int = 0
    exact: int = 0

    def __add__(self, other: Compared) -> Compared:
        return Compared(self.statements + other.statements, self.exact + other.exact)

    def check_most(self) -> None:
        assert self.statements
        assert self.exact >= 0.8 * self.statements, self


def check_population(task: Task, population: Population, dense: bool) -> Compared:
    """Compare each row with a run of its program."""
    form = Form.of_population(population)
    features = extract_forms(task, [form], scaled=False)
    compared = Compared()
    for row in range(len(population)):
        values = features.values[features.offsets[row] : features.offsets[row + 1]]
        if values[:, INDEX["outer_prod"]].max() <= MOST_POINTS:
            compared += check_row(form, values, population, row, dense)
    return compared


def check_row(form: Form, values: np.ndarray, population: Population, row: int, dense: bool) -> Compared:
    state = population.materialize(row)
    nest = lower(state, simple_mode=True)
    run, stored = Executed.of(nest), stored_statements(nest)
    polished = Executed.of(lower(state, limits=LIMITS))
    compared = Compared()
    for statement, found in zip(statements_of(form), values, strict=True):
        name = buffer_name(form.state, statement)
        store = stored[name].store
        op = state.stages[statement.stage].op
        assert isinstance(op, ComputeOp)

        def expect(feature: str, count: float, found: np.ndarray = found, name: str = name) -> None:
            value = float(found[INDEX[feature]])
            assert isclose(value, count, rel_tol=1e-5), f"{name}: {feature} {value}, not {count}\n{nest}"

        reached = run.reached[store]
        domain = prod(int_value(axis.extent) or 1 for axis in (*op.axis, *op.reduce_axis))
        expect("outer_prod", reached)
        expect("recompute", reached / domain)
        assert run.passed[store] >= domain, f"{name} leaves points out\n{nest}"
        if form.state.is_output(statement.stage):
            assert run.passed[store] == domain, f"{name} computes points twice\n{nest}"
            positions = {place for one, touched in run.touched.items() for place in touched.get(name, ())}
            assert len(positions) == prod(store.buffer.constant_shape)

        scratch = allocation(nest, name)
        elements = scratch[0] if scratch else 0
        expect("alloc_size", elements * dtype_info(store.buffer.dtype).bytes)
        expect("alloc_outer_prod", run.allocations[name])
        expect("alloc_prod", elements * run.allocations[name])

        chunks, launches = parallel_of(polished, name)
        told = float(found[INDEX["parallel_chunks"]])
        if polished.parallel and run.passed[store] < reached:  # What nothing passes may be left out.
            most = max(chunks, parallel_of(run, name)[0])
            assert chunks <= told <= most, f"{name}: {told} chunks, not {chunks} to {most}\n{nest}"
        else:
            expect("parallel_chunks", chunks)
        expect("parallel_launches", launches)
        check_touched(run, store, found, f"{name}\n{nest}", dense)
        compared += Compared(1, int(told == chunks))
    return compared


def parallel_of(run: Executed, name: str) -> tuple[int, int]:
    """Iterations and entries of the parallel loop around what computes a buffer, as the emitter gets it."""
    here = [made for one, made in run.parallel.items() if one.buffer.name.removesuffix(".acc") == name]
    return max((made for made in here if made[0] > 1), default=(1, 0))


def check_touched(run: Executed, store: Store, found: np.ndarray, text: str, dense: bool) -> None:
    """Bytes moved and bytes touched, over all buffers."""
    touched = run.touched[store]
    if len(touched) > N_BUFFERS:
        return
    sizes = {name: dtype_info(buffer.dtype).bytes for name, buffer in buffers_of(store).items()}
    moved = sum(sizes[name] * count for name, count in run.touches[store].items())
    distinct = sum(sizes[name] * len(places) for name, places in touched.items())
    told = [
        sum(found[INDEX[f"B{b}.{column}"]] for b in range(N_BUFFERS)) for column in ("bytes", "unique_bytes")
    ]
    if run.passed[store] == run.reached[store]:
        assert moved <= told[0] * (1 + 1e-5), text
        assert not dense or isclose(moved, told[0], rel_tol=1e-5), f"{moved} bytes, not {told[0]}: {text}"
    assert distinct <= told[1] * (1 + 1e-5), text
    assert not dense or isclose(distinct, told[1], rel_tol=1e-5), f"{distinct} bytes, not {told[1]}: {text}"


def buffers_of(store: Store) -> dict[str, Buffer]:
    loaded = [node.buffer for node in walk(store.value) if isinstance(node, Load)]
    return {buffer.name: buffer for buffer in [store.buffer, *loaded]}


def sample(task: Task, count: int, seed: int) -> tuple[Population, ...]:
    """Programs without padded reductions, so that an operation's axes are what its stores run through."""
    space = ProgramSpace.of(task, {"max_tile_waste": 1.0})
    return space.sample(count, np.random.default_rng(seed)).populations


def extreme_lengths(population: Population) -> Population:
    """
    Rows in which tile levels are 1: all of them, all but one, and one alone.

    Other columns are those of the population's rows, in turn: so rows of equal lengths differ in what is
    parallel, vectorised and unrolled.
    """
    family, rows = population.family, []
    holes = [range(hole.start, hole.stop) for hole in family.holes]
    levels = max((len(hole) for hole in holes), default=0)
    for number, base in enumerate(population.values):
        for case in range(2 * levels + 1):
            row = base.copy()
            for hole, at in zip(family.holes, holes, strict=True):
                for level, column in enumerate(at):
                    chosen = level == case // 2 - 1
                    long = chosen if case % 2 else not chosen
                    row[column] = min(hole.extent, 2 + number % 2) if long and case else 1
            rows.append(row)
    return Population(family, np.unique(np.array(rows), axis=0)) if rows else population


@pytest.mark.parametrize("name", TASKS)
def test_sampled_rows_do_what_their_features_say(name: str) -> None:
    populations = sample(TASKS[name], 5, 11)
    parts = (check_population(TASKS[name], one, name in DENSE) for one in populations)
    sum(parts, Compared()).check_most()


@pytest.mark.parametrize("name", ["matmul", "fused matmul", "softmax", "transposes", "padding"])
def test_rows_of_lengths_that_do_not_divide(name: str) -> None:
    populations = sample(TASKS[name], 4, 12)
    parts = (check_population(TASKS[name], odd_lengths(one, 1), name in DENSE) for one in populations)
    sum(parts, Compared()).check_most()


@pytest.mark.parametrize("name", ["matmul", "fused matmul", "softmax", "padding"])
def test_rows_whose_loops_run_once_at_every_level(name: str) -> None:
    populations = sample(TASKS[name], 4, 13)
    parts = (check_population(TASKS[name], extreme_lengths(one), name in DENSE) for one in populations)
    sum(parts, Compared()).check_most()


def test_those_rows_differ_in_what_is_parallel_and_vectorised() -> None:
    """Inside one family: the law above is about mixed columns."""
    kinds = (ColumnKind.PARALLEL, ColumnKind.VECTORIZE)
    (first, *_) = sorted(sample(TASKS["fused matmul"], 60, 13), key=len, reverse=True)
    rows = extreme_lengths(first)
    for kind in kinds:
        assert any(len(np.unique(rows.values[:, at])) > 1 for at in rows.family.positions(kind))
    tiles = [position for hole in rows.family.holes for position in range(hole.start, hole.stop)]
    assert (rows.values[:, tiles] == 1).all(axis=1).any()
    assert all((rows.values[:, position] == 1).any() for position in tiles)
    assert all((rows.values[:, position] > 1).any() for position in tiles)
