"""The law of features: what extraction says of a program is what a count over its lowered nest says."""

from __future__ import annotations

from math import isclose

import numpy as np

from ansor.dtypes import dtype_info
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.te.expr import Select, walk
from costmodel.extract_form import Form
from costmodel.extract_statements import Statement, statements_of
from costmodel.features import INDEX
from costmodel.features_reference import BUFFER_COLUMNS, N_BUFFERS
from sketches import Population
from tests.costmodel_counts import (
    MAX_POINTS,
    Counted,
    allocation,
    buffer_rows,
    common_loops,
    float_operations,
    is_affine,
    loads_per_point,
    stored_statements,
)

Values = np.ndarray


def check_rows(
    form: Form, values: Values, plain: State, full: State, sampled: bool = True, row: int = 0
) -> int:
    """
    Compare the unscaled features of a form's program `row` with counts; returns how many accesses agree.

    `plain` is the program before loops are fused and annotated, `full` the whole program. One that was not
    sampled may have fused serial loops, and choices that let the simplifier change indices.
    """
    bare, done = lower(plain, simple_mode=True), lower(full, simple_mode=True)
    counted, complete = stored_statements(bare), stored_statements(done)
    compared = 0
    for statement, features in zip(statements_of(form), values, strict=True):
        name = buffer_name(form.state, statement)
        one = counted[name]

        def expect(feature: str, count: float, features: Values = features, name: str = name) -> None:
            found = float(features[INDEX[feature]])
            assert isclose(found, count, rel_tol=1e-5, abs_tol=1e-6), (
                f"{name}: {feature} {found}, not {count}\n{bare}"
            )

        expect("outer_prod", one.points)
        if sampled:
            expect("num_loops", len(complete[name].loops))
        scratch = allocation(done, name)
        size = dtype_info(one.buffer.dtype).bytes
        elements, outside = scratch or (0, 0)
        streamed = any(done.params[position].name == name for position in done.streamed)
        expect("streamed", one.points * size if streamed else 0)
        expect("alloc_size", elements * size)
        expect("alloc_prod", elements * outside)
        expect("alloc_outer_prod", outside)
        expect("alloc_inner_prod", one.points / outside if outside else 0)
        chooses = any(isinstance(node, Select) for value in one.values for node in walk(value))
        if loads_per_point(one) != statement.body.counts[-2] or (chooses and not sampled):
            continue  # the simplifier has folded the value
        for operation, count in float_operations(one).items():
            expect(f"float_{operation}", count)
        if one.points <= MAX_POINTS and is_affine(one) and not _divides(statement, row):
            compared += check_buffers(one, counted, features, f"{name}\n{bare}")
    return compared


def _divides(statement: Statement, row: int) -> bool:
    """Whether an index of the statement is not linear in this row."""
    return bool(np.broadcast_to(statement.divisions, (max(row + 1, np.size(statement.divisions)),))[row])


def check_buffers(one: Counted, nest: dict[str, Counted], row: Values, text: str) -> int:
    """Compare the columns of all buffers, whatever their order."""
    expected = sorted(buffer_rows(one, common_loops(one, nest)))
    first = [INDEX[f"B{which}.{BUFFER_COLUMNS[0]}"] for which in range(N_BUFFERS)]
    found = sorted(
        tuple(row[at : at + len(BUFFER_COLUMNS)].tolist()) for at in first if row[at : at + 3].any()
    )
    if len(expected) > N_BUFFERS:
        return 0
    assert len(found) == len(expected), text
    assert np.allclose(found, expected, rtol=1e-5), f"{np.array(found)}\nnot\n{np.array(expected)}\n{text}"
    return len(found)


def buffer_name(state: State, statement: Statement) -> str:
    """The name that lowering gives to the buffer that a statement stores to."""
    for tensor in state.dag.outputs:
        if (state.stage_id(tensor), tensor.value_index) == (statement.stage, statement.output):
            return tensor.name
    return state.stages[statement.stage].op.outputs[statement.output].name


def odd_lengths(population: Population, seed: int) -> Population:
    """The same programs with tile lengths that need not divide anything."""
    rng = np.random.default_rng(seed)
    values = population.values.copy()
    for hole in population.family.holes:
        for column in range(hole.start, hole.stop):
            values[:, column] = rng.integers(1, max(2, min(hole.extent + 2, 6)), size=len(values))
    return Population(population.family, values)
