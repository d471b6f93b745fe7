"""The law of features: what extraction says of a program is what a count over its lowered nest says.

What can be compared is decided by the nest and by the expressions as written, never by what extraction says:

- Operations, where the nest has as many loads per point as the stage's expressions. With fewer, lowering has
  simplified the value (a choice whose side is known, say); features are about the value as written.
- Accesses, where every index in the nest is a sum of loops: regions of others are boxes in the table, and
  sets of elements in the nest (`test_costmodel_features_executed` runs those). The nest has to be small. A
  program that was not sampled may have regions that begin at quotients: with an index that divides as written
  it is left out, for lowering simplifies the sum of such a beginning and a loop further than the table does.
  Copies that a block has more threads for than elements are left out, too: the index of an idle thread is cut
  short in the table, and guarded in the nest.

`Compared` counts what was, so that a test can ask that it was most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import lru_cache
from math import isclose

import numpy as np

from ansor.dtypes import dtype_info
from ansor.ir.nest import LoopNest
from ansor.schedule.lowering import lower
from ansor.schedule.stages import ComputeAt
from ansor.schedule.state import State
from ansor.te.expr import Binary, BinaryOp, Expr, Load, Read, Reduce, Select, children
from ansor.te.tensor import ComputeOp
from costmodel.extraction.body import COUNTS
from costmodel.extraction.form import Form
from costmodel.extraction.statements import Statement, statements_of
from costmodel.features.reference import BUFFER_COLUMNS, N_BUFFERS
from costmodel.features.table import INDEX
from sketches import Population
from tests.costmodel_counts import (
    MAX_POINTS,
    Counted,
    allocation,
    buffer_rows,
    common_loops,
    float_operations,
    is_affine,
    stored_statements,
)
from tests.paths import walk

Values = np.ndarray
_DIVIDING = (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD)


@dataclass(frozen=True, slots=True)
class Compared:
    """
    How much the law has compared.

    Parameters
    ----------
    statements
        In all.
    operations, accesses
        Of so many of them.
    crooked, large
        Statements whose accesses cannot be compared: with an index that is no sum of loops, or with more
        points than can be looked at one by one.
    buffers
        Columns of so many buffers agree.
    """

    statements: int = 0
    operations: int = 0
    accesses: int = 0
    crooked: int = 0
    large: int = 0
    buffers: int = 0

    def __add__(self, other: Compared) -> Compared:
        return Compared(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def check_most(self, operations: float = 1.0, accesses: float = 1.0) -> None:
        """See that at least these parts were compared: of all statements, and of those that can be."""
        assert self.buffers
        assert self.operations >= operations * self.statements, self
        assert self.accesses >= accesses * (self.statements - self.crooked - self.large), self


@lru_cache(maxsize=1)
def statements_in(form: Form) -> list[Statement]:
    """The statements of a form: many programs are compared with them, one after another."""
    return statements_of(form)


def check_rows(
    form: Form, values: Values, plain: State | LoopNest, full: State, sampled: bool = True, row: int = 0
) -> Compared:
    """
    Compare the unscaled features of a form's program `row` with counts.

    `plain` is the program before loops are fused and annotated, or its nest, `full` the whole program. One
    that was not sampled may have fused serial loops, and choices that let the simplifier change indices.
    """
    bare = plain if isinstance(plain, LoopNest) else lower(plain, simple_mode=True)
    done = lower(full, simple_mode=True)
    counted, complete = stored_statements(bare), stored_statements(done)
    compared, divides = Compared(), not sampled and divides_as_written(form.state)
    for statement, features in zip(statements_in(form), values, strict=True):
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
        if not statement.body.is_reduction:  # `tests.test_sketches_streaming` looks at those
            streamed = any(done.params[position].name == name for position in done.streamed)
            expect("streamed", one.points * size if streamed else 0)
        expect("alloc_size", elements * size)
        expect("alloc_prod", elements * outside)
        expect("alloc_outer_prod", outside)
        expect("alloc_inner_prod", one.points / outside if outside else 0)
        written = reads_as_written(form.state, statement.stage, statement.output)
        assert statement.body.counts[COUNTS.index("loads")] == written
        large = one.points > MAX_POINTS
        idle = one.buffer.scope == "shared" and bool(one.guards)
        crooked = divides or idle or not is_affine(one)
        compared += Compared(statements=1, crooked=int(crooked and not large), large=int(large))
        chooses = any(isinstance(node, Select) for value in one.values for node in walk(value))
        if sum(map(_loads, one.values)) != written or (chooses and not sampled):
            continue  # the simplifier has folded the value
        for operation, count in float_operations(one).items():
            expect(f"float_{operation}", count)
        compared += Compared(operations=1)
        if not large and not crooked:
            buffers = check_buffers(one, counted, features, f"{name}\n{bare}")
            compared += Compared(accesses=1, buffers=buffers)
    return compared


def reads_as_written(state: State, stage: int, output: int) -> int:
    """How many elements a stage's value reads, those of inlined stages in place of their results."""

    def reads(expr: Expr, known: Mapping[Expr, int]) -> int:
        if expr in known:
            return known[expr]
        if not isinstance(expr, Read):
            return sum(reads(inner, known) for inner in children(expr))
        producer = state.stages[state.stage_id(expr.tensor)]
        if producer.compute_at is not ComputeAt.INLINED:
            return 1
        assert isinstance(producer.op, ComputeOp)
        return reads(producer.op.body[expr.tensor.value_index], {})

    op = state.stages[stage].op
    assert isinstance(op, ComputeOp)
    root = op.body[output]
    if not isinstance(root, Reduce):
        return reads(root, {})
    known: dict[Expr, int] = dict.fromkeys(root.combiner.lhs, 1)  # the stored element
    known |= {var: reads(source, {}) for var, source in zip(root.combiner.rhs, root.sources, strict=True)}
    return reads(root.combiner.result[root.index], known)


def divides_as_written(state: State) -> bool:
    """Whether some index in the expressions of a program has a quotient or remainder."""
    ops = (stage.op for stage in state.stages if isinstance(stage.op, ComputeOp))
    reads = (node for op in ops for root in op.body for node in walk(root) if isinstance(node, Read))
    parts = (part for read in reads for index in read.indices for part in walk(index))
    return any(isinstance(part, Binary) and part.op in _DIVIDING for part in parts)


def _loads(value: Expr) -> int:
    """Elements that a value in a nest reads, those that only say where others are left out."""
    return 1 if isinstance(value, Load) else sum(map(_loads, children(value)))


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
