"""What the emitter makes of each statement's loops, decided for all columns at once.

The counterpart of the passes that lowering applies, without a nest:

- `ansor.ir.passes.short_rows`: loops over rows too short for a vector become one (`joining`).
- `ansor.ir.passes.vectorize`: the innermost loop, where the schedule left it alone and stores run along it,
  becomes vectors of the machine's width (`lanes_of`).
- `ansor.ir.passes.unroll`: the pragma's limit unrolls loops from the inside out, as long as that makes little
  code (`Unroller`).
- `ansor.ir.passes.register_tile`: the element loops inside the innermost reduction loops, if their elements
  fit into the vector registers, are unrolled and accumulate there (`_register_tile`), in several vectors
  along the reduction where that runs along memory (`lanes`).

What is left out: guards (a parallel loop past the end of an axis may end there), and loops that turn
contiguous only through arithmetic on a remainder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ansor.ir.code_size import vectors_in_code
from ansor.ir.passes.unroll import MAX_DEPTH
from ansor.ir.passes.vectorize import LONGEST_ODD_VECTOR
from ansor.ir.registers import RegisterLimits
from costmodel.extraction.columns import Bools, Columns, Ints
from costmodel.extraction.indices import Floats
from costmodel.extraction.joining import joined_loops
from costmodel.extraction.lanes import lane_reductions

_ROUNDING: Final = 1e-6
"""More than quotients of lanes are off by, and less than any that is not whole is from a whole number."""

_Place = slice | tuple[int, slice | Ints]


@dataclass(slots=True, eq=False)
class Plan:
    """
    What becomes of the loops.

    Parameters
    ----------
    lane
        Iterations of each loop that are lanes of a vector, shape `(loops, columns)`.
    chunks
        Iterations of each loop that remain in parallel, 1 if none, same shape.
    unrolled
        Which loops are unrolled, their lanes apart, same shape.
    inner
        Number of the innermost own loop, -1 without one.
    ragged
        Whether the vector loop has a remainder of its own.
    tile
        Element loops of the register tile, none where nothing is promoted, shape `(loops, columns)`.
    steps
        Reduction loops that run inside the tile's lifetime, same shape.
    accumulators
        Vector registers of the tile, those of other outputs aside; 0 where nothing is promoted.
    vectors
        Vectors that a reduction in lanes takes at once, 1 elsewhere.
    starts_in_registers
        Whether the tile is initialised there and not loaded.
    """

    lane: Floats
    chunks: Floats
    unrolled: Bools
    inner: Ints
    ragged: Bools
    tile: Bools
    steps: Bools
    accumulators: Floats
    vectors: Floats
    starts_in_registers: Bools


def plan(columns: Columns, limits: RegisterLimits) -> Plan:
    """Decide vectors, register tiles and unrolling of all statements."""
    loops = np.arange(columns.loops)[:, None]
    real = columns.extent > 1
    own = columns.own & real
    inner = _last(own, loops)
    children = _children(columns)
    lane, ragged = lanes_of(columns, inner, children, limits, own)
    found = _register_tile(columns, limits, own, lane, ragged, children, loops)
    tile, steps, accumulators, starts = found
    unrolled = Unroller(columns, limits, own, lane, ragged, loops).run()
    unrolled |= tile & (columns.extent > lane)
    last = _last(own & columns.reduces, loops)
    along, vectors, length = lane_reductions(columns, limits, accumulators, tile, steps, last)
    width = along.prod(axis=0)
    if (width > 1).any():
        elements = np.where(tile, columns.extent, 1.0).prod(axis=0)
        accumulators = np.where(width > 1, elements, accumulators)
        lane = np.where(tile & (width > 1), 1.0, lane)
        unrolled |= tile & (columns.extent > lane)
        in_lanes = along != 1
        lane = np.where(in_lanes, along, lane)
        accumulators = accumulators * vectors
        starts = starts & (width == 1)
        unrolled |= in_lanes & (length < 2 * width * vectors)
    spread_to_attached(columns, unrolled, loops)
    chunks = _chunks(columns, own, lane, ragged)
    return Plan(lane, chunks, unrolled, inner, ragged, tile, steps, accumulators, vectors, starts)


def spread_to_attached(columns: Columns, unrolled: Bools, loops: Ints) -> None:
    """Loops around attached stages are unrolled where they are those of the stage that they belong to."""
    for generation in range(1, int(columns.generation.max(initial=0)) + 1):
        attached = np.flatnonzero(columns.generation == generation)
        around = loops < columns.depth[attached]
        unrolled[:, attached] |= around & unrolled[:, columns.parent[attached]]


def _chunks(columns: Columns, own: Bools, lane: Floats, ragged: Bools) -> Floats:
    """Iterations that remain in parallel, shape `(loops, columns)`; a last, shorter vector comes after."""
    chunks = np.where(columns.parallel, strips_of(columns.extent, lane), 1.0)
    fused = own & columns.parallel
    across = np.flatnonzero((fused & (lane > 1)).any(axis=0))
    if len(across):  # the vectors of fused loops are counted across all of them
        taken = fused[:, across]
        total = np.where(taken, columns.extent[:, across], 1.0).prod(axis=0)
        lanes = np.rint(np.where(taken, lane[:, across], 1.0).prod(axis=0))
        first = np.argmax(taken, axis=0)
        others = np.where(taken, chunks[:, across], 1.0)
        others[first, np.arange(len(across))] = 1.0
        vectors = np.where(ragged[across], total // lanes, np.ceil(total / lanes))
        chunks[first, across] = vectors / others.prod(axis=0)
    return chunks


def strips_of(extent: Floats, lane: Floats) -> Floats:
    """Iterations that lanes leave of loops; of a loop that is partly in a vector, lanes are a quotient."""
    return np.ceil(extent / lane - _ROUNDING)


def _last(mask: Bools, loops: Ints) -> Ints:
    """Number of the last loop of each column that is in `mask`, -1 if none."""
    return np.asarray(np.where(mask, loops, -1).max(axis=0, initial=-1))


def _at(values: Floats, rows: Ints) -> Floats:
    """Return the value of each column at its row; row -1 stands for any."""
    return values[np.maximum(rows, 0), np.arange(values.shape[1])] if len(values) else np.ones(len(rows))


def _children(columns: Columns) -> Ints:
    """How many loops of a statement, own or around, are also around the innermost stage attached to it."""
    deepest = np.full(len(columns), -1)
    attached = np.flatnonzero(columns.parent >= 0)
    np.maximum.at(deepest, columns.parent[attached], columns.depth[attached])
    return deepest


def lanes_of(
    columns: Columns, inner: Ints, children: Ints, limits: RegisterLimits, own: Bools
) -> tuple[Floats, Bools]:
    """
    Find how many iterations of each loop are lanes of vectors.

    Parameters
    ----------
    columns
        The statements.
    inner
        Number of the innermost loop of each, -1 without one.
    children
        How many loops are also around a stage attached to one of them.
    limits
        The vector width.
    own
        Loops of the stage itself that have more than one iteration.

    Returns
    -------
    tuple[Floats, Bools]
        Lanes, shape `(loops, columns)`, 1 where a loop has none; and where the last vector is a shorter one.
    """
    chosen = own & columns.vector
    lane = np.where(chosen, columns.extent, 1.0)
    total = len(columns)
    ragged = np.zeros(total, np.bool_)
    if not columns.loops:
        return lane, ragged
    here = np.arange(total)
    at = np.maximum(inner, 0)
    free = (inner >= 0) & (inner >= children) & ~chosen.any(axis=0)
    free &= ~columns.reduces[at, here] & ~columns.unroll[at, here]
    if columns.bound is not None:
        free &= columns.bound[at, here] < 0
    extent = columns.extent[at, here]
    unit = columns.last[at, here] & (columns.step[at, here] == 1)
    parallel = columns.parallel[at, here]
    fused = own & columns.parallel
    several = parallel & (fused.sum(axis=0) > 1)
    length, row, direct = extent.copy(), extent.copy(), unit.copy()
    if several.any():  # fused, they run along memory as far as the rows of the inner ones lie end to end
        spans = np.where(fused, columns.extent, 1.0)
        inside = np.cumprod(spans[::-1], axis=0)[::-1] / spans
        ends = ~fused | (columns.step == inside)
        ends = np.logical_and.accumulate(ends[::-1], axis=0)[::-1]
        length = np.where(several, spans.prod(axis=0), length)
        row = np.where(several, np.where(ends, spans, 1.0).prod(axis=0), row)
        direct &= ~several | ends.all(axis=0)
    widest = np.maximum(2.0, np.floor_divide(limits.vector_bits, columns.store_bits))
    joined = joined_loops(columns, own, inner, children, widest)
    together = joined.any(axis=0)
    if together.any():  # short rows are one serial loop
        free |= together
        direct |= together
        length = np.where(together, np.where(joined, columns.extent, 1.0).prod(axis=0), length)
        row = np.where(together, length, row)
    best = np.ones(total)
    short = length <= widest
    best = np.where(short & direct, length, best)
    pending = free & ~short & unit
    alike = columns.is_reduction | parallel | ~direct  # the others rather have a shorter vector than another
    for count in range(int(widest.max(initial=2.0)), 1, -1):
        fits = pending & (count <= widest) & (2 * count >= widest)
        if not fits.any():
            continue
        fits &= row % count == 0
        fits &= alike | (row // count == np.ceil(row / widest))
        best[fits] = count
        pending &= ~fits
    pending &= direct
    whole = pending & (length <= LONGEST_ODD_VECTOR * widest) & ~parallel
    best = np.where(whole, length, best)
    ragged = pending & ~whole
    best = np.where(ragged, widest, best)
    lane[at[free], here[free]] = best[free]
    wide = np.flatnonzero(free & (best > extent))
    if len(wide):  # a vector across several loops takes all iterations of the inner ones
        left = best[wide]
        across = np.where(together, joined, fused)[:, wide]
        for loop in range(columns.loops - 1, -1, -1):
            taken = np.where(across[loop], np.minimum(columns.extent[loop, wide], left), 1.0)
            lane[loop, wide] = taken
            left = left / taken
    return lane, ragged


def _register_tile(
    columns: Columns,
    limits: RegisterLimits,
    own: Bools,
    lane: Floats,
    ragged: Bools,
    children: Ints,
    loops: Ints,
) -> tuple[Bools, Bools, Floats, Bools]:
    """Find the register tile, its reduction loops, its accumulators, and whether it starts in registers."""
    # A tensorized loop, which reduces in vectors, is part of the update.
    reducing, selecting = own & columns.reduces & ~columns.vector, own & ~columns.reduces
    last = _last(reducing, loops)
    tile = selecting & (loops > last)
    between = _last(selecting & (loops < last), loops)
    steps = reducing & (loops > np.maximum(between, children - 1))
    lanes = np.where(tile, lane, 1.0).prod(axis=0)
    elements = np.where(tile, columns.extent, 1.0).prod(axis=0)
    needed = elements / lanes * np.ceil(lanes * columns.lane_bits / limits.vector_bits)
    fits = (needed * columns.outputs <= limits.room) & (
        needed * columns.instructions <= limits.max_instructions
    )
    promoted = columns.is_reduction & ~ragged & fits & (last >= 0) & (last >= children)
    promoted &= ~(tile & columns.parallel).any(axis=0)
    if columns.bound is not None:
        promoted &= ~((tile | steps) & (columns.bound >= 0)).any(axis=0)
    first = np.where(reducing, loops, columns.loops).min(axis=0, initial=columns.loops)
    inside = selecting & (loops > first)
    starts = promoted & (inside == tile).all(axis=0) & _is_first(steps, first)
    return tile & promoted, steps & promoted, np.where(promoted, needed, 0.0), starts


def _is_first(steps: Bools, first: Ints) -> Bools:
    """Whether the outermost of all reduction loops is among `steps`."""
    if not len(steps):
        return np.zeros(len(first), np.bool_)
    return steps[np.minimum(first, len(steps) - 1), np.arange(len(first))]


class Unroller:
    """The pragma's decisions, stage by stage from the inside out, as `ansor.ir.passes.unroll` takes them.

    Steps and instructions of a statement are counted through its loops; where it is a reduction its
    initialisation is counted beside it until both meet outside the outermost reduction loop. What a stage
    attached to a loop takes is added there.
    """

    def __init__(
        self,
        columns: Columns,
        limits: RegisterLimits,
        own: Bools,
        lane: Floats,
        ragged: Bools,
        loops: Ints,
    ) -> None:
        self.columns, self.limits, self.own, self.lane, self.loops = columns, limits, own, lane, loops
        self.ragged = ragged
        self.unrolled = np.zeros_like(own)
        shape = (columns.loops + 1, len(columns))
        attached = bool(columns.generation.any())
        self.inside = _Code(np.zeros(shape), np.zeros(shape)) if attached else None

    def run(self) -> Bools:
        columns = self.columns
        if not (columns.steps.any() or columns.unroll.any()):
            return self.unrolled
        for generation in range(int(columns.generation.max(initial=0)), -1, -1):
            at = np.flatnonzero(columns.generation == generation)
            made = self._count(at)
            if generation and self.inside is not None:
                first = columns.output[at] == 0
                self.inside.put((columns.depth[at], columns.parent[at]), made, first)
        return self.unrolled

    def _count(self, at: Ints) -> _Code:
        """Go through the loops of some columns from the inside; returns what is left for those around."""
        columns = self.columns
        everything = len(at) == len(columns)
        pick = slice(None) if everything else at
        own, lane, extent = self.own[:, pick], self.lane[:, pick], columns.extent[:, pick]
        reduces, limit, ragged = columns.reduces[:, pick], columns.steps[pick], self.ragged[pick]
        held = columns.parallel[:, pick]
        if columns.bound is not None:
            held = held | (columns.bound[:, pick] >= 0)
        forced = columns.unroll[:, pick]
        first = np.where(own & reduces, self.loops, columns.loops).min(axis=0, initial=columns.loops)
        start_lane = self._start_lanes(pick, own, reduces, first, lane)
        bound = _Bound(limit, self.limits.max_instructions)
        stores = columns.outputs[pick]
        main = _Code(stores.copy(), columns.instructions[pick] * self._vectors(lane, pick))
        stores = stores * columns.is_reduction[pick]
        start = _Code(stores, stores * self._vectors(start_lane, pick))
        main.join(start, columns.is_reduction[pick] & (first == columns.loops))
        for number in range(columns.loops - 1, -1, -1):
            self._add_children(main, number + 1, pick)
            active = own[number]
            if not active.any():
                continue
            count = strips_of(extent[number], lane[number])
            tail = ragged & (lane[number] > 1) & (count > 1)
            count -= tail
            before = main.take(slice(None)) if tail.any() else None
            done = main.loop(active & (count > 1), count, held[number], forced[number], bound)
            self.unrolled[number, pick] |= done
            if before is not None:
                main.join(before, tail)
            count = np.ceil(extent[number] / start_lane[number])
            inside = active & ~reduces[number] & (number > first) & (count > 1)
            start.loop(inside, count, held[number], forced[number], bound)
            main.join(start, number == first)
        self._add_children(main, 0, pick)
        return main

    def _vectors(self, lane: Floats, pick: slice | Ints) -> Floats:
        """How many vectors one visit of each statement takes."""
        bits = self.columns.lane_bits[pick]
        return vectors_in_code(np.rint(lane.prod(axis=0)), bits, self.limits.vector_bits)

    def _start_lanes(
        self, pick: slice | Ints, own: Bools, reduces: Bools, first: Ints, lane: Floats
    ) -> Floats:
        """Lanes of the initialisation: where the update's innermost loop reduces, its own vectors."""
        spatial = own & ~reduces & (self.loops > first)
        inner, innermost = _last(spatial, self.loops), _last(own, self.loops)
        other = (inner >= 0) & (inner != innermost)
        if not other.any():
            return lane
        columns = self.columns
        here = np.arange(len(inner))
        at = np.maximum(inner, 0)
        widest = np.maximum(2.0, np.floor_divide(self.limits.vector_bits, columns.store_bits[pick]))
        extent = columns.extent[:, pick][at, here]
        unit = other & columns.last[:, pick][at, here] & (columns.step[:, pick][at, here] == 1)
        unit &= ~columns.unroll[:, pick][at, here]
        best = np.where(extent <= widest, extent, widest)
        for count in range(int(widest.max(initial=2.0)) // 2, int(widest.max(initial=2.0)) + 1):
            fits = (extent > widest) & (count <= widest) & (2 * count >= widest) & (extent % count == 0)
            best = np.where(fits, count, best)
        made = lane.copy()
        made[at[unit], here[unit]] = best[unit]
        return made

    def _add_children(self, main: _Code, level: int, pick: slice | Ints) -> None:
        if self.inside is not None:
            main.join(self.inside.take((level, pick)), True)


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """What unrolling may make: steps of each column, and instructions."""

    steps: Floats
    instructions: int


class _Code:
    """What has been gone through: steps, instructions, how deep unrolled loops nest, if any loop stays."""

    def __init__(self, steps: Floats, instructions: Floats) -> None:
        self.steps = steps
        self.instructions = instructions
        self.nested = np.zeros(steps.shape)
        self.looping = np.zeros(steps.shape, np.bool_)

    def take(self, at: _Place) -> _Code:
        """A copy of what is at some places."""
        made = _Code(self.steps[at].copy(), self.instructions[at].copy())
        made.nested, made.looping = self.nested[at].copy(), self.looping[at].copy()
        return made

    def put(self, at: tuple[Ints, Ints], other: _Code, counts: Bools) -> None:
        """Add what goes to places, of which several may be the same; where it `counts` with its code."""
        np.add.at(self.steps, at, np.where(counts, other.steps, 0.0))
        np.add.at(self.instructions, at, np.where(counts, other.instructions, 0.0))
        np.maximum.at(self.nested, at, other.nested)
        np.logical_or.at(self.looping, at, other.looping)

    def join(self, other: _Code, where: Bools | bool) -> None:
        """Put another statement beside."""
        self.steps += np.where(where, other.steps, 0.0)
        self.instructions += np.where(where, other.instructions, 0.0)
        self.nested = np.where(where, np.maximum(self.nested, other.nested), self.nested)
        self.looping |= where & other.looping

    def loop(self, active: Bools, count: Floats, held: Bools, forced: Bools, bound: _Bound) -> Bools:
        """Put a loop around; returns where it is unrolled."""
        small = ~self.looping & (self.nested <= MAX_DEPTH)
        small &= (count * self.steps <= bound.steps) & (count * self.instructions <= bound.instructions)
        done = active & ~held & (forced | small)
        self.steps = np.where(done, self.steps * count, self.steps)
        self.instructions = np.where(done, self.instructions * count, self.instructions)
        self.nested += done
        self.looping |= active & ~done
        return done
