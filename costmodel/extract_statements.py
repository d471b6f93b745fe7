"""The statements of a form: their loops, and every access as linear terms over those loops.

A statement's loops are those around the place where its stage is computed, outermost first, then its own;
loops with one iteration in every row are left out. An index becomes, per dimension, a coefficient for each
loop: with them every region, stride and reuse is closed-form arithmetic on columns.

Indices are counted in the memory that is accessed: from the start of the region for scratch, so that a loop
around the scratch of an inlined-in stage does not occur in them.

Where an index is not linear: a quotient `x // c` moves by 1/c of what `x` does and its region follows the
exact interval; a remainder moves like `x` and spans at most `c`; an index that depends on data moves across
the whole dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.dtypes import dtype_info
from ansor.errors import DefinitionError
from ansor.schedule.affine import (
    Affine,
    Interval,
    LoopAtom,
    OpaqueAtom,
    SizeAtom,
    UnknownBoundError,
    evaluate,
)
from ansor.schedule.bounds import StageBounds, enclosing_loops, local_axes
from ansor.schedule.extents import Extent, extent_of, is_one
from ansor.schedule.stages import Annotation, ComputeAt, IteratorKind
from ansor.te.expr import Expr, Var, walk
from ansor.te.tensor import Tensor
from costmodel.extract_body import Access, Body, body_of
from costmodel.extract_form import Form, Mask

Value = Any
"""A number, or a column of them."""

Floats = NDArray[np.float64]
READ, WRITE, READ_WRITE = 0, 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """One loop around a statement: `extent` [iterations], whether it reduces, how it is executed."""

    extent: Value
    reduces: bool
    marks: Mapping[Annotation, Mask]


@dataclass(slots=True, eq=False)
class Dimension:
    """
    One dimension of an access.

    Parameters
    ----------
    terms
        Coefficient of each loop, by its number.
    spread
        Distance between the first and the last of several indices [elements].
    shape
        Extent of the buffer.
    correction
        What regions at each loop level have more than the terms say, shape `(loops, rows)`; None if nothing.
    """

    terms: dict[int, Value]
    spread: Value
    shape: Value
    correction: Floats | None = None


@dataclass(slots=True, eq=False)
class Touch:
    """
    How a statement touches one buffer.

    Parameters
    ----------
    kind
        `READ`, `WRITE` or `READ_WRITE`.
    count
        Distinct indices per point.
    element_bytes
        Size of an element.
    dimensions
        The indices.
    shared
        How many of the outer loops also enclose the statement that wrote the buffer; 0 for an input, or if
        it was written elsewhere.
    """

    kind: int
    count: int
    element_bytes: int
    dimensions: list[Dimension]
    shared: int


@dataclass(slots=True, eq=False)
class Statement:
    """
    One stored statement of a form.

    Parameters
    ----------
    stage, output
        What is stored.
    body
        Facts of the stored value.
    loops
        All loops, outermost first.
    depth
        How many of them are around the stage; the others are its own.
    parent
        Number of the statement in whose loops the stage is computed, -1 at root.
    touches
        The stored buffer first, then what is read.
    is_scratch
        Whether the stored buffer is allocated by the program.
    needed
        Points that one visit of the stage has to compute.
    whole
        Points that the operation has.
    unroll_steps
        Limit of the unroll pragma, 0 without one.
    """

    stage: int
    output: int
    body: Body
    loops: list[Loop]
    depth: int
    parent: int
    touches: list[Touch]
    is_scratch: bool
    needed: Value
    whole: Value
    unroll_steps: Value


def statements_of(form: Form) -> list[Statement]:
    """List the stored statements of a form in stage order.

    Raises
    ------
    DefinitionError
        If an extent is symbolic.
    """
    return _Gatherer(form).run()


class _Gatherer:
    def __init__(self, form: Form) -> None:
        self.form = form
        self.state = form.state
        self.stages = form.bounds.stages
        self.arguments = {self.state.stage_id(tensor) for tensor in self.state.dag.tensors}

    def run(self) -> list[Statement]:
        first: dict[int, int] = {}
        made: list[Statement] = []
        for stage_id, stage in enumerate(self.state.stages):
            if stage.is_placeholder or stage.compute_at is ComputeAt.INLINED:
                continue
            first[stage_id] = len(made)
            made.extend(_StageGatherer(self, stage_id).statements())
        for statement in made:
            place = self.state.attach.get(statement.stage)
            statement.parent = -1 if place is None else first[place[0]]
        return made

    def around(self, stage_id: int) -> list[LoopAtom]:
        """The loops around a stage, outermost first, without those of one iteration."""
        chain: dict[int, list[LoopAtom]] = {}
        for target, position in enclosing_loops(self.state, stage_id):
            loop = self.state.stages[target].iterators[position]
            if not is_one(self.stages[target].extents[loop.name]):
                chain.setdefault(target, []).append(LoopAtom(target, loop.name))
        return [atom for atoms in reversed(chain.values()) for atom in atoms]

    def number(self, extent: Extent, what: str) -> Value:
        if isinstance(extent, Expr):
            raise DefinitionError(f"{what} is {extent}: features need constant sizes")
        return extent


class _StageGatherer:
    """The statements of one stage, which differ in their output only."""

    def __init__(self, parent: _Gatherer, stage_id: int) -> None:
        self.all = parent
        self.form, self.state = parent.form, parent.state
        self.stage_id = stage_id
        self.stage = parent.state.stages[stage_id]
        self.bounds = parent.stages[stage_id]
        outer = parent.around(stage_id)
        own = [
            LoopAtom(stage_id, loop.name)
            for loop in self.stage.iterators
            if not is_one(self.bounds.extents[loop.name])
        ]
        self.depth = len(outer)
        self.atoms = [*outer, *own]
        self.numbers = {atom: position for position, atom in enumerate(self.atoms)}
        self.loops = [self._loop(atom) for atom in self.atoms]
        self.axes = self._axis_forms()

    def _loop(self, atom: LoopAtom) -> Loop:
        extent = self.all.number(self.all.stages[atom.stage].extents[atom.name], f"the loop {atom.name!r}")
        kind = next(x.kind for x in self.state.stages[atom.stage].iterators if x.name == atom.name)
        marks = self.form.marks.get((atom.stage, atom.name), {})
        return Loop(extent, kind is not IteratorKind.SPATIAL, marks)

    def _axis_forms(self) -> dict[Var, Interval]:
        local = local_axes(self.stage, self.stage_id, self.bounds.extents, None)
        op = self.stage.compute
        axes: dict[Var, Interval] = {
            axis: Interval.point(region.base) + local[axis.name]
            for axis, region in zip(op.axis, self.bounds.region, strict=True)
        }
        axes.update((axis, local[axis.name]) for axis in op.reduce_axis)
        return axes

    def statements(self) -> list[Statement]:
        op = self.stage.compute
        widths = [self.all.number(r.width, f"a region of {op.name!r}") for r in self.bounds.region]
        reduce_extents = [self.all.number(extent_of(a.extent), a.name) for a in op.reduce_axis]
        full = [self.all.number(extent_of(a.extent), a.name) for a in op.axis]
        steps = self.form.unroll_steps.get(self.stage_id, 0)
        made = []
        for output, tensor in enumerate(op.outputs):
            body = body_of(self.state, self.stage_id, output)
            store = self._store(tensor, body.is_reduction)
            touches = [
                store,
                *(self._read(access) for access in body.accesses if access.tensor is not tensor),
            ]
            made.append(
                Statement(
                    stage=self.stage_id,
                    output=output,
                    body=body,
                    loops=self.loops,
                    depth=self.depth,
                    parent=-1,
                    touches=touches,
                    is_scratch=self.stage_id not in self.all.arguments,
                    needed=_product([*widths, *reduce_extents]),
                    whole=_product([*full, *reduce_extents]),
                    unroll_steps=steps if isinstance(steps, np.ndarray) else max(int(steps), 0),  # type: ignore[arg-type]
                )
            )
        return made

    def _store(self, tensor: Tensor, updates: bool) -> Touch:
        op = self.stage.compute
        forms = [self.axes[axis] for axis in op.axis]
        dimensions = self._dimensions(forms, self.stage_id, tensor)
        return Touch(READ_WRITE if updates else WRITE, 1, dtype_info(tensor.dtype).bytes, dimensions, 0)

    def _read(self, access: Access) -> Touch:
        producer = self.state.stage_id(access.tensor)
        forms = [self._index(index) for index in access.indices]
        dimensions = self._dimensions(forms, producer, access.tensor)
        for dimension, index, form, spread in zip(
            dimensions, access.indices, forms, access.spread, strict=True
        ):
            dimension.spread = dimension.spread + spread
            if form is None:
                dimension.terms = self._anywhere(index, dimension.shape)
        shared = 0
        if producer in self.state.attach:
            shared = min(len(self.all.around(producer)), self.depth + len(self.loops))
        return Touch(READ, access.count, dtype_info(access.tensor.dtype).bytes, dimensions, shared)

    def _index(self, index: Expr) -> Interval | None:
        try:
            return evaluate(index, self.axes)
        except UnknownBoundError:
            return None

    def _anywhere(self, index: Expr, shape: Value) -> dict[int, Value]:
        """Terms of an index that depends on data: every loop that it reads moves it across the dimension."""
        terms: dict[int, Value] = {}
        for node in walk(index):
            form = self.axes.get(node) if isinstance(node, Var) else None
            for atom in form.base.terms if form is not None else ():
                for number in self._loops_in(atom):
                    terms[number] = shape - 1
        return terms

    def _loops_in(self, atom: object) -> list[int]:
        if isinstance(atom, OpaqueAtom):
            return [number for inner in atom.inner.terms for number in self._loops_in(inner)]
        return [self.numbers[atom]] if isinstance(atom, LoopAtom) and atom in self.numbers else []

    def _dimensions(self, forms: Sequence[Interval | None], producer: int, tensor: Tensor) -> list[Dimension]:
        """Indices of a buffer as terms, counted from the start of the region for scratch."""
        known: StageBounds | None = self.all.stages.get(producer)
        local = known is not None and producer not in self.all.arguments
        made = []
        for position, form in enumerate(forms):
            if local:
                assert known is not None
                region = known.region[position]
                shape, base = region.width, region.base
            else:
                shape, base = extent_of(tensor.shape[position]), None
            extent = self.all.number(shape, f"the shape of {tensor.name!r}")
            if form is None:
                made.append(Dimension({}, 0, extent))
                continue
            width = self.all.number(form.width, f"an index of {tensor.name!r}")
            made.append(self._dimension(form.base if base is None else form.base - base, width - 1, extent))
        return made

    def _dimension(self, form: Affine, spread: Value, shape: Value) -> Dimension:
        terms: dict[int, Value] = {}
        correction: Any = None
        for atom, coefficient in form.terms.items():
            if isinstance(atom, LoopAtom):
                if atom in self.numbers:
                    number = self.numbers[atom]
                    terms[number] = terms.get(number, 0) + coefficient
            elif isinstance(atom, SizeAtom):
                raise DefinitionError(
                    f"an index moves with the size {atom.var}: features need constant sizes"
                )
            else:
                moves, span = self._opaque(atom)
                for number, move in moves.items():
                    terms[number] = terms.get(number, 0) + move * coefficient
                linear = self._spans(moves)
                extra = (span - linear) * np.abs(coefficient)
                correction = extra if correction is None else correction + extra
        return Dimension(terms, spread, shape, correction)

    def _opaque(self, atom: OpaqueAtom) -> tuple[dict[int, Value], Floats]:
        """How a quotient or remainder moves with each loop, and its span at each loop level."""
        moves: dict[int, Value] = {}
        span = np.zeros((len(self.loops), self.form.rows))
        common: Any = atom.divisor
        for inner, coefficient in atom.inner.terms.items():
            if isinstance(inner, LoopAtom):
                if inner not in self.numbers:
                    continue
                found: dict[int, Value] = {self.numbers[inner]: coefficient}
                span = span + self._spans(found)
            elif isinstance(inner, OpaqueAtom):
                part, part_span = self._opaque(inner)
                found = {number: move * coefficient for number, move in part.items()}
                span = span + part_span * np.abs(coefficient)
            else:
                raise DefinitionError(
                    f"an index moves with the size {inner.var}: features need constant sizes"
                )
            for number, move in found.items():
                moves[number] = moves.get(number, 0) + move
            common = _gcd(common, coefficient)
        divisor = atom.divisor
        if atom.op == "floordiv":
            offset = atom.inner.const % common + divisor - common
            quotient = np.floor((span + offset) / divisor)
            return {number: move / divisor for number, move in moves.items()}, quotient
        wrapped = {
            number: np.where(np.abs(move) < divisor, move, np.mod(move, divisor))
            for number, move in moves.items()
        }
        return wrapped, np.minimum(span, divisor - 1)

    def _spans(self, moves: Mapping[int, Value]) -> Floats:
        """Span at each loop level of what moves linearly, shape `(loops, rows)`."""
        steps = np.zeros((len(self.loops), self.form.rows))
        for number, move in moves.items():
            steps[number] = np.abs(move) * (self.loops[number].extent - 1)
        return np.asarray(np.cumsum(steps[::-1], axis=0)[::-1])


def _gcd(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.gcd(a, b)
    return gcd(a, b)


def _product(values: Sequence[Value]) -> Value:
    result: Value = 1
    for value in values:
        result = result * value
    return result


__all__ = ["READ", "READ_WRITE", "WRITE", "Dimension", "Loop", "Statement", "Touch", "statements_of"]
