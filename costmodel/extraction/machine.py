"""The machine's part of the feature table, for columns (`features.machine` says what each one is)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ansor.ir.passes.lane_reduction import strided_load
from ansor.ir.registers import RegisterLimits
from ansor.ir.strides import MOST_APART
from ansor.task.device import DeviceModel
from ansor.task.hardware import HardwareParams
from costmodel.extraction.body import COUNTS
from costmodel.extraction.columns import Bools, Columns, Ints
from costmodel.extraction.indices import Floats
from costmodel.extraction.kernels import VIRTUAL
from costmodel.extraction.plan import Plan, strips_of
from costmodel.extraction.regions import Regions, first_loop, last_loop
from costmodel.extraction.statements import READ, READ_WRITE

_LOADS: Final = COUNTS.index("loads")
_NODES: Final = COUNTS.index("nodes")
_HOISTED: Final = COUNTS.index("hoisted")
_MAD: Final = COUNTS.index("float_mad")
_MATH: Final = COUNTS.index("float_mathfunc")
_MOST: Final = 8.0
_PAGE: Final = 4096
"""Bytes that lie together in memory wherever the system puts them."""
_MOST_PER_OP: Final = 64.0


@dataclass(frozen=True, slots=True)
class Core:
    """The machine as features need it: what the task says, and the width of a vector of code [bytes].

    Of a GPU the core is a multiprocessor, and `device` describes the whole.
    """

    hardware: HardwareParams
    vector_bytes: int
    device: DeviceModel | None = None

    @property
    def cores(self) -> int:
        """How many work."""
        return max(self.hardware.num_cores, 1)

    @property
    def line(self) -> int:
        """Bytes of a cache line."""
        return max(self.hardware.cache_line_bytes, 1)

    @property
    def vector_bits(self) -> int:
        """Width of a vector register."""
        return 8 * self.vector_bytes

    @property
    def registers(self) -> RegisterLimits:
        """What a program may use of the vector registers: the limits of lowering for the target.

        What a matrix unit multiplies counts as if vectors did.
        """
        return RegisterLimits(self.vector_bits, self.hardware.vector_registers)

    @property
    def caches(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Bytes and ways of the three cache levels; ways are 0 where addresses do not tell the set.

        The first level is looked up within a page. In the second, the place in a page tells a part of the
        set, and where the system has put the page tells the rest: with pages anywhere it holds as many lines
        of one place as it holds pages. The sets of the third follow from a hash. A level that does not exist
        is as large as the one before, the first then as the line that is on its way.
        """
        first, second, third = (max(size, self.line) for size in self.hardware.cache_bytes)
        pages = second // _PAGE if self.device is None else 0
        return (first, self.hardware.l1_ways), (second, pages), (third, 0)


def machine_rows(view: View, out: Floats) -> None:
    """Write the machine's features, unscaled, into `out`, shape `(features, columns of the view)`."""
    rows = [
        *view.vectors(),
        *view.tile(),
        *view.instructions(),
        *view.cores(),
        *view.caches(),
        *view.conflicts(),
    ]
    for position, row in enumerate(rows):
        out[position] = row


class View:
    """A block of columns with what several groups of features need."""

    def __init__(self, columns: Columns, plan: Plan, regions: Regions, core: Core) -> None:
        at = regions.at
        self.regions, self.core, self.at, self.columns = regions, core, at, columns
        self.extent = regions.extent
        self.real = self.extent > 1
        self.lane = plan.lane[:, at]
        self.unrolled = plan.unrolled[:, at]
        self.own = columns.own[:, at]
        self.reduces = columns.reduces[:, at]
        self.tensorized = self.own & columns.vector[:, at] & self.reduces & (core.device is None)
        self.tiles, self.steps = plan.tile[:, at], plan.steps[:, at]
        self.accumulators = plan.accumulators[at]
        self.promoted = self.accumulators > 0
        self.at_once = plan.vectors[at]
        self.starts = plan.starts_in_registers[at]
        self.ragged = plan.ragged[at]
        self.counts = columns.counts[:, at]
        self.strips = strips_of(self.extent, self.lane)
        self.chunks = plan.chunks[:, at]
        self.parallel = self.chunks > 1
        self.lanes = np.rint(self.lane.prod(axis=0))  # of joined loops a lane may be a fraction
        bits = columns.lane_bits[at]
        self.regs = np.ceil(self.lanes * bits / core.vector_bits)
        self.efficiency = self.lanes * bits / (self.regs * core.vector_bits)
        self.numbers = np.arange(len(self.extent))[:, None]
        self.made = self._made()
        self.groups = self.strips.prod(axis=0) * self.made
        computed = self.counts[_NODES] - self.counts[_LOADS] - self.counts[_MAD]
        if core.device is None:
            computed = computed - self.counts[_HOISTED]
            computed = np.where(self.tensorized.any(axis=0), 1.0, computed)
        self.per_point = np.maximum(computed, 0.0)
        looping = self.real & ~self.unrolled & (self.strips > 1)
        self.launched = np.zeros(looping.shape, np.bool_)
        if core.device is not None and columns.bound is not None:
            bound = columns.bound[:, at]
            self.launched = (bound >= 0) & (bound != VIRTUAL)
            looping &= bound != VIRTUAL
        self.looping = looping
        last = last_loop(looping)
        self.body = (self.numbers > last) & self.real
        self._accesses()

    def _accesses(self) -> None:
        """How each access is loaded by vector code, and how often.

        What a tensor intrinsic multiplies in one lane is one element of a vector.
        """
        regions, lanes = self.regions, self.lanes
        here, which = np.arange(len(lanes)), np.arange(regions.used.shape[1])[:, None]
        in_lanes = (self.lane > 1) & self.real
        moving = regions.used & in_lanes[:, None]
        inner, inner_lanes, step = self._innermost(moving)
        varies, unit = inner >= 0, np.abs(step) == 1
        contiguous, even = unit, inner_lanes >= lanes
        others = in_lanes[:, None] & (self.numbers[:, None] < inner)
        if others.any():
            outer = np.where(others, regions.flat, 0.0)
            within = np.where(in_lanes[:, None] & (self.numbers[:, None] <= inner), self.lane[:, None], 1.0)
            row = np.ones(within.shape)
            row[:-1] = np.cumprod(within[:0:-1], axis=0)[::-1]  # what the lanes inside of each loop reach
            contiguous = unit & ((outer == 0) | (outer == row)).all(axis=0)
            even = even | (~others | (outer == row * step)).all(axis=0)
        whole = np.ceil(lanes * regions.element_bytes * 8 / self.core.vector_bits)
        pieces = np.where(unit, lanes / inner_lanes, lanes)
        self.between = np.zeros(self.lane.shape, np.bool_)
        self.row = np.ones(len(lanes))
        if self.core.device is None:
            near = (step > 1) & (step <= MOST_APART) & even & (lanes >= MOST_APART)
            pieces = np.where(near, np.minimum(lanes, strided_load(step) * whole), pieces)
            part = (step != 0) & (np.abs(step) < 1)
            spread = part & (inner_lanes == lanes) & ~self._divided_beside(inner)
            pieces = np.where(spread, np.minimum(lanes, 2 * whole), pieces)  # a vector, and a shuffle
            self.between = self._filling(inner[0], step[0]) & near[0]
            contiguous = contiguous.copy()
            contiguous[0] |= self.between.any(axis=0)
            self.row = np.where(inner_lanes[0] == lanes, self._row(inner[0], step[0]), 1.0)
        if self.tensorized.any():
            vector, vector_lanes, apart = self._innermost(moving & ~self.tensorized[:, None])
            varies = vector >= 0
            pieces = np.where((np.abs(apart) == 1) & ~unit, lanes / vector_lanes, pieces)
        self.scalar = lanes <= 1
        self.broadcast = ~self.scalar & ~varies
        self.contiguous = self.scalar | (varies & contiguous)
        self.scattered = ~self.broadcast & ~self.contiguous
        each = np.where(self.contiguous, whole, np.where(self.scattered, pieces, 1.0)) * regions.count
        self.each = each
        last_used = last_loop(regions.used & self.looping[:, None])
        around = self.looping[:, None] & (self.numbers[:, None] <= last_used)
        level = last_loop(self.looping) + 1
        filled = np.maximum(regions.shared, level)
        again = self.body[:, None] & (self.numbers[:, None] < filled)  # Loops in which it is filled anew.
        fills = np.where(again, self.strips[:, None], 1.0).prod(axis=0)
        region = regions.elements[filled, which, here] * fills
        side_by_side = np.where(self.body, self.lane, 1.0).prod(axis=0)  # other lanes are not in the region
        distinct = each * region / np.where(self.broadcast, 1.0, side_by_side)
        inside = np.where((regions.used | again) & self.body[:, None], self.strips[:, None], 1.0).prod(axis=0)
        self.loaded = np.minimum(each * inside, np.maximum(distinct, each))
        self.reads = regions.kind == READ
        repeating = around | (self.looping[:, None] & self._reloaded(last_used))
        outside = (regions.used | repeating) & ~self.body[:, None]
        self.executed = self.loaded * np.where(outside, self.strips[:, None], 1.0).prod(axis=0) * self.made
        self.pairs = 1.0 + self._straddling()

    def _divided_beside(self, vector: Ints) -> Bools:
        """Whether in a quotient along the lanes other loops, too, go up by a part of a number."""
        divided = self.regions.divided
        if divided is None:
            return np.zeros(vector.shape, np.bool_)
        mine = self.numbers[:, None] == vector  # (loops, accesses, columns)
        own = (divided & mine[:, :, None]).any(axis=0)
        return np.asarray((own & (divided & ~mine[:, :, None]).any(axis=0)).any(axis=1))

    def _made(self) -> Floats:
        """The part of a reduction's updates that is made; the others would change nothing."""
        skips = self.columns.skips
        if skips is None:
            return np.ones(len(self.lanes))
        inside = self.own & ~self.reduces & (self.numbers > last_loop(self.own & self.real & self.reduces))
        return skips.made(self.at, self.extent, inside, self.unrolled & (self.lane == 1), self.parallel)

    def _reloaded(self, last_used: Ints) -> Bools:
        """Which accesses are made again in each iteration of loops that do not move them.

        They are made before such loops if the registers hold all of them beside the accumulators.
        """
        kept = self.reads & (last_used < last_loop(self.looping))
        if self.core.device is not None:
            return np.zeros_like(kept)
        registers = np.where(kept, self.loaded, 0.0).sum(axis=0) + self.accumulators
        return np.asarray(kept & (registers > self.core.hardware.vector_registers))

    def _straddling(self) -> Floats:
        """The part of each access's vectors that lie across the end of a cache line, 0 to 1.

        Vectors begin at all multiples of the largest power of two that divides what loops move them by,
        counted from the beginning of the buffer.
        """
        line, shape = self.core.line, self.each.shape
        if self.core.device is not None or not len(self.extent):
            return np.zeros(shape)
        steps = self.lane * (self.strips > 1)
        moved = np.abs(self.regions.flat) * steps[:, None] * self.regions.element_bytes
        moved[:, 0] = np.where(self.between, 0.0, moved[:, 0])
        together = np.bitwise_or.reduce(np.rint(moved).astype(np.int64), axis=0) | line
        apart = together & -together
        width = np.minimum(self.lanes * self.regions.element_bytes, self.core.vector_bytes)
        first = self.regions.behind_line % apart
        inside = np.maximum(np.floor((line - width - first) / apart) + 1.0, 0.0) * apart / line
        return np.where(self.contiguous & ~self.scalar, 1.0 - np.minimum(inside, 1.0), 0.0)

    def _filling(self, vector: Ints, step: Floats) -> Bools:
        """The short unrolled loops around vectors that store what lanes `step` elements apart leave out."""
        beside = self.unrolled & self._beside(vector) & (self.strips == step)
        return np.asarray(beside & (self.regions.kind[0] != READ_WRITE))

    def _row(self, vector: Ints, step: Floats) -> Floats:
        """Elements that unrolled loops around vectors store side by side, lanes `step` apart; or 1."""
        unrolled = np.where(self.promoted, self.tiles, self.unrolled & (self.regions.kind[0] != READ_WRITE))
        beside = unrolled & self._beside(vector) & (self.strips <= step) & (self.lanes >= MOST_APART)
        return np.asarray(np.where(beside, self.strips, 1.0).prod(axis=0))

    def _beside(self, vector: Ints) -> Bools:
        """The loops just around vectors that store the neighbours of what they store."""
        moves = self.real & ((self.strips > 1) | (self.lane > 1))
        around = self.numbers == last_loop(moves & (self.numbers < vector))
        return np.asarray(around & (self.lane == 1) & (self.regions.flat[:, 0] == 1))

    def _stores_per_vector(self) -> Floats:
        """Instructions that store a vector whose lanes lie apart: one by one, or turned into rows."""
        lanes = self.lanes / np.maximum(self.regs, 1.0)
        row = self.row / np.ceil(self.row / lanes)  # no longer than a vector, of several all alike
        return np.asarray(lanes / row + np.ceil(np.log2(row)))

    def _innermost(self, loops: Bools) -> tuple[Ints, Floats, Floats]:
        """The last of some loops for each access, its lanes, and how many elements each is behind the last.

        -1, one and 0 where there is none; all of shape `(accesses, columns)`.
        """
        inner = last_loop(loops)
        found = inner >= 0
        if not len(loops):
            return inner, np.ones(inner.shape), np.zeros(inner.shape)
        here, which = np.arange(inner.shape[1]), np.arange(len(inner))[:, None]
        row = np.maximum(inner, 0)
        lanes = np.where(found, self.lane[row, here], 1.0)
        return inner, lanes, np.where(found, self.regions.flat[row, which, here], 0.0)

    def vectors(self) -> list[Floats]:
        return [self.lanes, self.regs, self.efficiency, self.ragged.astype(np.float64)]

    def tile(self) -> list[Floats]:
        strips = np.where(self.body, self.strips, 1.0)
        per_step = strips.prod(axis=0) * self.at_once
        work = per_step * self.regs * self.per_point
        loaded = self.loaded * np.where(self.contiguous, self.at_once, 1.0)
        loads = np.where(self.reads, loaded, 0.0).sum(axis=0)
        moves = np.where(self.promoted, 0.0, per_step * self.regs)
        return [
            self.promoted.astype(np.float64),
            self.accumulators,
            np.where(self.promoted, self.accumulators + self._held(), 0.0)
            / self.core.hardware.vector_registers,
            np.where(self.steps, self.extent, 1.0).prod(axis=0),
            self.starts.astype(np.float64),
            loads,
            work,
            work / np.maximum(work + loads, 1.0),
            work + loads + moves,
        ]

    def _held(self) -> Floats:
        """Registers that the operands of one step of the tile are in.

        Vectors that an outer loop of the tile uses again wait for it; of others there is one at a time, none
        of those that are read from memory by the arithmetic itself.
        """
        held = np.zeros(len(self.lanes))
        at = np.flatnonzero(self.promoted)
        if not len(at):
            return held
        used, strips, numbers = self.regions.used[:, :, at], self.strips[:, at], self.numbers[:, None]
        tile = (self.tiles[:, at] & (strips > 1))[:, None]
        outer = first_loop(tile & ~used)
        inside = numbers > outer
        vectors = np.where(tile & used & inside, strips[:, None], 1.0).prod(axis=0)
        along = self.contiguous[:, at] & ~self.scalar[at]
        again = (outer < len(used)) & (along | (vectors > 1))
        each = np.where(along, self.each[:, at], self.regions.count[:, at])
        operands = np.where(again, each * vectors, np.where(along, 0.0, 1.0))
        held[at] = np.where(self.reads[:, at], operands, 0.0).sum(axis=0)
        return held

    def instructions(self) -> list[Floats]:
        executed = np.where(self.reads, self.executed, 0.0)
        visits = np.where(self.tiles | self.steps, 1.0, self.strips).prod(axis=0)
        flipping = np.where(self.regions.flips, executed, 0.0).sum(axis=0)
        self.work = self.groups * self.regs * self.per_point + flipping + visits * self._combining()
        stored = self.regions.kind[0] == READ_WRITE
        registers = np.where(self.promoted, self.accumulators * visits, self.regs * self.groups)
        scattered = self.scattered[0]
        spread = np.where(scattered, self._stores_per_vector(), 1.0)
        times = np.where(stored, np.where(self.promoted & self.starts, 1.0, 2.0), 1.0)
        moves = registers * times * self.pairs[0]
        looping = np.where(self.looping, self.strips, 1.0)
        again = self.looping & ~self.launched
        branches = np.where(again, _running_product(looping)[1:], 0.0).sum(axis=0)
        innermost_reduction = last_loop(self.own & (self.strips > 1) & self.reduces)
        free = self.own & self.real & ~self.reduces & (self.numbers > innermost_reduction)
        independent = np.where(free, self.strips, 1.0).prod(axis=0) * self.regs * self.at_once
        cores = self.cores()[3]
        chain = np.where(
            stored & (innermost_reduction >= 0), self.groups * self.regs / independent / cores, 0.0
        )
        points = self.regions.points[0]
        own_points = np.where(self.own, self.extent, 1.0).prod(axis=0)
        at = self.at
        return [
            self.work,
            self.counts[_MATH] * self.groups * self.regs,
            np.where(self.contiguous, executed * self.pairs, 0.0).sum(axis=0),
            np.where(self.broadcast, executed, 0.0).sum(axis=0),
            np.where(self.scattered, executed, 0.0).sum(axis=0),
            moves * spread,
            moves,
            np.where(scattered, registers * spread, 0.0),
            branches,
            chain,
            self.columns.divisions[at] * points,
            points / self.columns.whole[at],
            own_points / self.columns.needed[at],
        ]

    def _combining(self) -> Floats:
        """Instructions at the end of a visit of a tile that is reduced in lanes.

        The vectors of an element become one, and the lanes of that: half of them are moved beside the other
        half and combined with it, and so on.
        """
        across = self.own & self.reduces & (self.lane != 1) & ~self.tensorized & self.promoted
        lanes = np.where(across, self.lane, 1.0).prod(axis=0)
        halving = (self.at_once - 1.0) + 2.0 * np.log2(lanes)
        return np.where(lanes > 1, self.accumulators / self.at_once * halving, 0.0)

    def cores(self) -> list[Floats]:
        cores = float(max(self.core.cores, 1))
        chunks = self.chunks.prod(axis=0)
        any_parallel = self.parallel.any(axis=0)
        first = first_loop(self.parallel)
        outside = np.where(self.numbers < first, self.extent, 1.0).prod(axis=0)
        rounds = np.ceil(chunks / cores)
        return [
            chunks,
            np.where(any_parallel, outside, 0.0),
            chunks / (rounds * cores),
            np.minimum(chunks, cores),
        ]

    def caches(self) -> list[Floats]:
        regions, line = self.regions, self.core.line
        lines = regions.lines(line)
        self.pieces_by_level = pieces = regions.pieces(line)
        total = lines.sum(axis=1) * float(line)
        outer = _running_product(self.extent)
        here = np.arange(len(self.lanes))
        buffers = np.arange(regions.used.shape[1])[:, None]
        moves = np.where(regions.kind == READ, 1.0, 2.0)
        rows: list[Floats] = []
        moved = lines[0]
        for capacity, ways in self.core.caches:
            fill, crowd = total / capacity, np.zeros(total.shape)
            if ways:
                crowd = regions.depth_of_sets(line, max(capacity // ways, line)).max(axis=1) / ways
                fill = np.maximum(fill, crowd)
            level = np.minimum(last_loop(fill > 1.0) + 1, len(self.extent))
            if not rows:
                self.pieces, self.crowd = pieces[level, buffers, here], crowd[np.maximum(level - 1, 0), here]
            over = np.where(level > 0, fill[np.maximum(level - 1, 0), here], 0.0)
            moving = last_loop(regions.used & (self.numbers < level)[:, None])
            known = np.maximum(moving, 0)
            times = outer[known, here] * moves
            moved = lines[known, buffers, here] * times * line
            traffic = moved.sum(axis=0)
            rows += [
                regions.points[level, here],
                np.minimum(fill[level, here], _MOST),
                np.minimum(over, _MOST),
                traffic,
                (pieces[known, buffers, here] * times).sum(axis=0),
                np.minimum(traffic / np.maximum(self.work, 1.0), _MOST_PER_OP),
            ]
        self.footprint, self.from_memory = total[0], moved
        return rows

    def conflicts(self) -> list[Floats]:
        terms = np.where(self.own & self.reduces, self.extent, 1.0).prod(axis=0)
        stored = self.regions.points[0] / terms * self.regions.element_bytes[0]
        once = self.starts | ~self.columns.is_reduction[self.at]
        streamed = np.where(self.columns.streaming[self.at] & once, stored, 0.0)
        return [
            self.pieces.max(axis=0),
            np.minimum(self.crowd, _MOST),
            *self._streams(),
            self.footprint,
            streamed,
        ]

    def _streams(self) -> list[Floats]:
        """How many contiguous streams a core reads side by side, and how often one of them begins anew.

        A visit of the tile reads its pieces at about the same time. Loops around it carry them on, as long as
        there are no more of them, until they touch: then the next ones begin elsewhere.
        """
        regions, here = self.regions, np.arange(len(self.lanes))
        visit = np.where(self.promoted, first_loop(self.tiles | self.steps), first_loop(self.body))
        buffers = np.arange(regions.used.shape[1])[:, None]
        pieces = self.pieces_by_level
        streams = pieces[visit, buffers, here]
        length, going = regions.elements[visit, buffers, here] / streams, np.ones(streams.shape, np.bool_)
        for level in range(len(self.extent) - 1, -1, -1):
            outside = level < visit
            going &= ~outside | (pieces[level] <= streams)
            length = np.where(outside & going, regions.elements[level] / streams, length)
            going &= ~outside | (pieces[level] == streams)
        begun = self.from_memory / np.maximum(length * regions.element_bytes, self.core.line)
        return [streams[begun.argmax(axis=0), here], begun.sum(axis=0)]


def _running_product(extent: Floats) -> Floats:
    """Iterations of the loops before each, and of all, shape `(loops + 1, columns)`."""
    made = np.ones((len(extent) + 1, extent.shape[1]))
    for loop in range(len(extent)):
        np.multiply(made[loop], extent[loop], out=made[loop + 1])
    return made
