"""Statements of many programs as dense arrays: one column per statement of a program.

The statements of all families that are scored together lie side by side, so that the arithmetic on them is a
few hundred numpy operations whatever the number of families. Loops are rows of these arrays, outermost first,
padded at the inner end by loops of one iteration: the loops around an attached stage have the same numbers
as in the stage that it is attached to.

Accesses have one more axis for the buffers touched. Statements that touch equally many are neighbours and
form a `Group`, so little is padded there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.stages import Annotation
from costmodel.extraction.body import COUNTS
from costmodel.extraction.form import Form
from costmodel.extraction.indices import Floats, Loop, Value
from costmodel.extraction.skips import Skips
from costmodel.extraction.statements import Statement
from costmodel.extraction.warps import WarpAccess

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_INSTRUCTIONS = COUNTS.index("instructions")

BOUND = (
    Annotation.BLOCK_X,
    Annotation.BLOCK_Y,
    Annotation.BLOCK_Z,
    Annotation.THREAD_X,
    Annotation.THREAD_Y,
    Annotation.THREAD_Z,
    Annotation.VTHREAD,
)
"""Loops of a GPU's grid, in the order of their columns in the feature table."""


@dataclass(slots=True, eq=False)
class Group:
    """
    The accesses of statements that touch equally many buffers; the stored one comes first.

    Parameters
    ----------
    columns
        Which columns these are.
    coefficients
        How indices move with loops, shape `(loops, buffers, dimensions, columns)`.
    correction
        What regions have more than that, same shape; None if nothing.
    spread, shape
        Of each dimension, shape `(buffers, dimensions, columns)` [elements].
    scattered
        Of each dimension, as of `Dimension`, same shape.
    kind, count, element_bytes, shared, behind_line, flips
        As of `Touch`, shape `(buffers, columns)`.
    warps
        What warps touch; None on a CPU.
    """

    columns: slice
    coefficients: Floats
    correction: Floats | None
    spread: Floats
    shape: Floats
    scattered: Bools
    kind: Ints
    count: Floats
    element_bytes: Floats
    shared: Ints
    behind_line: Ints
    flips: Bools
    warps: Warps | None


@dataclass(slots=True, eq=False)
class Warps:
    """
    The accesses of a GPU's warps, as of `WarpAccess`.

    Parameters
    ----------
    space
        Shape `(buffers, columns)`.
    facts
        Elements, sectors, conflicts and fills, shape `(4, buffers, columns)`.
    """

    space: Ints
    facts: Floats

    @classmethod
    def of(cls, buffers: int, total: int) -> Warps:
        """Nothing is known yet."""
        return cls(np.zeros((buffers, total), np.int64), np.ones((4, buffers, total)))

    def put(self, buffer: int, at: slice, warp: WarpAccess) -> None:
        """Note one access of some columns."""
        self.space[buffer, at] = warp.space
        for row, value in enumerate((warp.elements, warp.sectors, warp.conflicts, warp.fills)):
            self.facts[row, buffer, at] = value


@dataclass(slots=True, eq=False)
class Columns:
    """
    Loops and facts of all statements.

    Parameters
    ----------
    extent, reduces
        Of each loop, shape `(loops, columns)`; extent 1 where there is none.
    own
        Which loops belong to the stage itself, same shape.
    parallel, vector, unroll
        Which loops are annotated so, same shape; tensorized loops of a CPU, which are one operation with the
        vector loop around them, count as vectors, those of a GPU as unrolled.
    tensorized
        Which loops are the latter, same shape.
    bound
        Position in `BOUND` of the grid dimension that a loop is bound to, -1 if it is not; None on a CPU.
    step
        How far apart in memory the elements are that neighbouring iterations of each loop store [elements].
    last
        Which loops move the last index of the stored element, same shape.
    depth, parent, generation
        Loops around the stage; column of the statement they belong to, -1 at root; how many stages are
        around.
    counts
        Occurrences of operations per point, shape `(len(COUNTS), columns)`.
    is_reduction, is_scratch, is_float, combines_pairs, streaming
        Flags of each column.
    store_bits, lane_bits, outputs, instructions
        Of the widest `Body` of the stage; how many stores one point makes; and its instructions, all outputs
        together (`ansor.ir.code_size`).
    needed, whole, reduced, divisions, limit
        Points needed per visit, in all, and for one element; divisions in the indices of a point; limit of
        the unroll pragma, the own one and those around.
    steps
        Steps that the limit leaves for each virtual thread of a GPU; the limit itself on a CPU.
    program, ordinal, output
        Which statement of which program a column is, and which output of its stage it stores.
    kernels
        Whether the stage is at root; then blocks, threads of a block, shared and local bytes, and how far
        ahead tiles are filled, of the kernel that a statement is part of; and whether its warps multiply
        matrices. Shape `(7, columns)`; None on a CPU.
    skips
        What is left out of their updates; None if nothing is.
    """

    extent: Floats
    reduces: Bools
    own: Bools
    parallel: Bools
    vector: Bools
    unroll: Bools
    tensorized: Bools
    bound: NDArray[np.int8] | None
    step: Floats
    last: Bools
    depth: Ints
    parent: Ints
    generation: Ints
    counts: Floats
    is_reduction: Bools
    is_scratch: Bools
    is_float: Bools
    combines_pairs: Bools
    streaming: Bools
    store_bits: Floats
    lane_bits: Floats
    outputs: Floats
    instructions: Floats
    needed: Floats
    whole: Floats
    reduced: Floats
    divisions: Floats
    limit: Floats
    steps: Floats
    program: Ints
    ordinal: Ints
    output: Ints
    kernels: Floats | None
    skips: Skips | None
    groups: list[Group]

    @property
    def loops(self) -> int:
        """Rows of the loop arrays."""
        return len(self.extent)

    def __len__(self) -> int:
        return len(self.depth)


def pack(forms: Sequence[Form], statements: Sequence[list[Statement]]) -> Columns:
    """Lay out the statements of some forms, whose rows are programs one after the other."""
    return _Packer(forms, statements).run()


def _mark(made: Columns, number: int, at: slice, loop: Loop) -> None:
    """Note how a loop is executed; tensorized loops of a GPU are written out, whoever does what they say."""
    device = made.kernels is not None
    for annotation, rows in loop.marks.items():
        if annotation is Annotation.PARALLEL:
            made.parallel[number, at] |= rows
        elif annotation is Annotation.VECTORIZE or (annotation is Annotation.TENSORIZE and not device):
            made.vector[number, at] |= rows
        elif annotation in (Annotation.UNROLL, Annotation.TENSORIZE):
            made.unroll[number, at] |= rows
            if annotation is Annotation.TENSORIZE:
                made.tensorized[number, at] |= rows
        elif annotation in BOUND and made.bound is not None:
            made.bound[number, at] = BOUND.index(annotation)


def _products(one: Statement) -> Value:
    """How many products of a tensorized loop share a lane of a vector, 1 without one."""
    if one.kernel is not None:
        return 1
    return next((loop.extent for loop in one.loops if Annotation.TENSORIZE in loop.marks), 1)


class _Packer:
    def __init__(self, forms: Sequence[Form], statements: Sequence[list[Statement]]) -> None:
        starts = np.cumsum([0, *(form.rows for form in forms)])
        self.places = [
            (form, int(start), ordinal, found)
            for form, start, found in zip(forms, starts, statements, strict=False)
            for ordinal in range(len(found))
        ]
        self.places.sort(key=lambda place: len(place[3][place[2]].touches))
        stops = np.cumsum([0, *(form.rows for form, *_ in self.places)]).tolist()
        self.slices = [slice(a, b) for a, b in itertools.pairwise(stops)]
        self.total = int(stops[-1])
        self.loops = max((len(one.loops) for found in statements for one in found), default=0)
        self.at = {(id(p[3]), p[2]): s for p, s in zip(self.places, self.slices, strict=True)}

    def run(self) -> Columns:
        total, loops = self.total, self.loops
        whole = (loops, total)
        grid = any(mark in BOUND for p in self.places for x in p[3][p[2]].loops for mark in x.marks)
        device = any(p[3][p[2]].kernel is not None for p in self.places)
        skips = max((len(p[3][p[2]].skips) for p in self.places), default=0)
        made = Columns(
            extent=np.ones(whole),
            reduces=np.zeros(whole, np.bool_),
            own=np.zeros(whole, np.bool_),
            parallel=np.zeros(whole, np.bool_),
            vector=np.zeros(whole, np.bool_),
            unroll=np.zeros(whole, np.bool_),
            tensorized=np.zeros(whole, np.bool_),
            bound=np.full(whole, -1, np.int8) if grid else None,
            step=np.zeros(whole),
            last=np.zeros(whole, np.bool_),
            depth=np.zeros(total, np.int64),
            parent=np.full(total, -1),
            generation=np.zeros(total, np.int64),
            counts=np.zeros((len(COUNTS), total)),
            is_reduction=np.zeros(total, np.bool_),
            is_scratch=np.zeros(total, np.bool_),
            is_float=np.zeros(total, np.bool_),
            combines_pairs=np.zeros(total, np.bool_),
            streaming=np.zeros(total, np.bool_),
            store_bits=np.zeros(total),
            lane_bits=np.zeros(total),
            outputs=np.zeros(total),
            instructions=np.zeros(total),
            needed=np.zeros(total),
            whole=np.zeros(total),
            reduced=np.zeros(total),
            divisions=np.zeros(total),
            limit=np.zeros(total),
            steps=np.zeros(total),
            program=np.zeros(total, np.int64),
            ordinal=np.zeros(total, np.int64),
            output=np.zeros(total, np.int64),
            kernels=np.zeros((7, total)) if device else None,
            skips=Skips.of(skips, loops, total) if skips else None,
            groups=[],
        )
        for which in range(len(self.places)):
            self._fill(made, which)
        made.groups = self._groups()
        return made

    def _statement(self, which: int) -> Statement:
        _, _, ordinal, found = self.places[which]
        return found[ordinal]

    def _fill(self, made: Columns, which: int) -> None:
        form, start, ordinal, found = self.places[which]
        at, one = self.slices[which], found[ordinal]
        for number, loop in enumerate(one.loops):
            made.extent[number, at] = loop.extent
            made.reduces[number, at] = loop.reduces
            made.own[number, at] = number >= one.depth
            _mark(made, number, at, loop)
        dimensions = one.touches[0].dimensions
        stride: Value = 1
        for dimension in reversed(dimensions):
            for number, coefficient in dimension.terms.items():
                made.step[number, at] += coefficient * stride
            stride = stride * dimension.shape
        for number, coefficient in dimensions[-1].terms.items() if dimensions else ():
            made.last[number, at] = coefficient != 0
        made.depth[at] = one.depth
        ancestors = [one]
        while ancestors[-1].parent >= 0:
            ancestors.append(found[ancestors[-1].parent])
        if one.parent >= 0:
            parent = self.at[id(found), one.parent]
            made.parent[at] = np.arange(parent.start, parent.stop)
        made.generation[at] = len(ancestors) - 1
        made.counts[:, at] = one.counts
        made.is_reduction[at] = one.body.is_reduction
        made.is_scratch[at] = one.is_scratch
        made.is_float[at] = one.body.is_float
        made.combines_pairs[at] = one.combines_pairs
        made.streaming[at] = one.streaming
        same = [other for other in found if other.stage == one.stage]
        made.store_bits[at] = max(other.body.store_bits for other in same)
        made.lane_bits[at] = max(other.body.lane_bits for other in same) / _products(one)
        made.outputs[at] = len(same)
        made.instructions[at] = len(same) + sum(other.counts[_INSTRUCTIONS] for other in same)
        made.needed[at] = one.needed
        made.whole[at] = one.whole
        made.reduced[at] = one.reduced
        made.divisions[at] = one.divisions
        for ancestor in ancestors:
            np.maximum(made.limit[at], ancestor.unroll_steps, out=made.limit[at])
            own = ancestor.unroll_steps // ancestor.virtual
            np.maximum(made.steps[at], own, out=made.steps[at])
        made.program[at] = np.arange(start, start + form.rows)
        made.ordinal[at] = ordinal
        made.output[at] = one.output
        if made.skips is not None:
            made.skips.put(at, one.skips)
        if made.kernels is not None and one.kernel is not None:
            made.kernels[0, at] = one.parent < 0
            kernel = one.kernel
            taken = (kernel.blocks, kernel.threads, kernel.shared_bytes, kernel.local_bytes)
            by_warps = any(Annotation.TENSORIZE in loop.marks for loop in one.loops[one.depth :])
            for row, value in enumerate((*taken, kernel.lead, by_warps), 1):
                made.kernels[row, at] = value

    def _groups(self) -> list[Group]:
        groups: list[Group] = []
        first = 0
        while first < len(self.places):
            buffers = len(self._statement(first).touches)
            stop = first
            while stop < len(self.places) and len(self._statement(stop).touches) == buffers:
                stop += 1
            groups.append(self._group(range(first, stop), buffers))
            first = stop
        return groups

    def _group(self, members: range, buffers: int) -> Group:
        begin, end = self.slices[members.start].start, self.slices[members.stop - 1].stop
        total = end - begin
        statements = [self._statement(which) for which in members]
        ranks = max((len(touch.dimensions) for one in statements for touch in one.touches), default=0)
        inexact = any(
            d.correction is not None for one in statements for touch in one.touches for d in touch.dimensions
        )
        four = (self.loops, buffers, ranks, total)
        made = Group(
            columns=slice(begin, end),
            coefficients=np.zeros(four, np.float32),
            correction=np.zeros(four) if inexact else None,
            spread=np.zeros((buffers, ranks, total), np.float32),
            scattered=np.zeros((buffers, ranks, total), np.bool_),
            shape=np.ones((buffers, ranks, total), np.float32),
            kind=np.zeros((buffers, total), np.int64),
            count=np.zeros((buffers, total)),
            element_bytes=np.zeros((buffers, total), np.float32),
            shared=np.zeros((buffers, total), np.int64),
            behind_line=np.zeros((buffers, total), np.int64),
            flips=np.zeros((buffers, total), np.bool_),
            warps=None if statements[0].kernel is None else Warps.of(buffers, total),
        )
        for which, one in zip(members, statements, strict=True):
            at = slice(self.slices[which].start - begin, self.slices[which].stop - begin)
            for buffer, touch in enumerate(one.touches):
                made.kind[buffer, at] = touch.kind
                made.count[buffer, at] = touch.count
                made.element_bytes[buffer, at] = touch.element_bytes
                made.shared[buffer, at] = touch.shared
                made.behind_line[buffer, at] = touch.behind_line
                made.flips[buffer, at] = touch.flips
                if made.warps is not None and touch.warp is not None:
                    made.warps.put(buffer, at, touch.warp)
                lead = ranks - len(touch.dimensions)  # dimensions are aligned at the innermost
                for position, dimension in enumerate(touch.dimensions, lead):
                    made.spread[buffer, position, at] = dimension.spread
                    made.scattered[buffer, position, at] = dimension.scattered
                    made.shape[buffer, position, at] = dimension.shape
                    for number, coefficient in dimension.terms.items():
                        made.coefficients[number, buffer, position, at] = coefficient
                    if dimension.correction is not None and made.correction is not None:
                        rows = len(dimension.correction)
                        made.correction[:rows, buffer, position, at] = dimension.correction
        return made
