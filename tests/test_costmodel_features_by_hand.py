"""Features of small programs whose numbers are worked out by hand, from the formulas of the table.

The machine has 4 cores, vectors of 4 floats, 16 registers, lines of 64 bytes; 32 KiB of L1 in 8 ways, 1 MiB
of L2, 8 MiB of L3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2

import pytest

from ansor import te
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.task.hardware import HardwareParams
from ansor.task.task import Task
from ansor.te import Tensor
from costmodel.extraction.extract import extract_forms
from costmodel.extraction.form import Form
from costmodel.features.table import feature_names
from tests.sketches_cases import matmul

TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"
CORES, LANES, REGISTERS, LINE = 4, 4, 16, 64
L1, L2, L3, WAYS = 32 * 1024, 1024 * 1024, 8 * 1024 * 1024, 8
FLOATS = LINE // 4
"""Floats in a line."""
HARDWARE = HardwareParams(CORES, 4 * LANES, LINE, l1_bytes=L1, l1_ways=WAYS, l2_bytes=L2, l3_bytes=L3)


@dataclass(frozen=True)
class Program:
    """A computation of one statement, its schedule, and the features of it that are known."""

    tensors: list[Tensor]
    schedule: Callable[[State], State]
    expected: dict[str, float]
    target: str = TARGET


def unchanged(state: State) -> State:
    return state


def tiled_product() -> Program:
    """A register tile of 4 x 8 elements: 8 registers, of which 4 are updated by each loaded vector of B."""
    n, m, k, rows, columns = 16, 16, 32, 4, 8

    def schedule(state: State) -> State:
        state = state.split(2, 1, [columns]).split(2, 0, [rows])  # i.0 i.1 j.0 j.1 k
        state = state.reorder(2, [0, 2, 4, 1, 3])
        return state.annotate(2, 0, Annotation.PARALLEL).annotate(2, 4, Annotation.VECTORIZE)

    tiles, per_row = (n // rows) * (m // columns), columns // LANES
    registers = rows * per_row
    lines = [n * k // FLOATS, k * m // FLOATS, n * m // FLOATS]  # of A, B and C, all of which fit into L1
    traffic = (lines[0] + lines[1] + 2 * lines[2]) * LINE  # C comes and goes
    work = n * m * k // LANES
    expected: dict[str, float] = {
        "lanes": columns,
        "lane_regs": per_row,
        "lane_efficiency": 1,
        "lane_ragged": 0,
        "tile": 1,
        "tile_registers": registers,
        "tile_pressure": (registers + per_row + 1) / REGISTERS,  # B waits, A comes one by one
        "tile_steps": k,
        "tile_init": 1,
        "tile_loads": rows + per_row,
        "tile_work": registers,
        "tile_intensity": registers / (registers + rows + per_row),
        "tile_code": registers + rows + per_row,
        "work": work,
        "math": 0,
        "loads_contiguous": tiles * k * per_row,
        "loads_broadcast": tiles * k * rows,
        "loads_scattered": 0,
        "accumulator_moves": tiles * registers,  # started in registers, stored once a visit
        "stores_scattered": 0,
        "branches": n // rows + tiles + tiles * k,
        "chain": tiles * k / CORES,
        "index_div": 0,
        "recompute": 1,
        "waste": 1,
        "parallel_chunks": n // rows,
        "parallel_launches": 1,
        "parallel_balance": 1,
        "parallel_cores": 4,
        "footprint": sum(lines) * LINE,
        "conflict_pieces": 1,
        "conflict_pressure": 1 / WAYS,
    }
    for name, size in (("L1", L1), ("L2", L2), ("L3", L3)):
        fill = sum(lines) * LINE / size
        expected |= {
            f"{name}_points": n * m * k,
            f"{name}_fill": max(fill, 1 / WAYS) if name == "L1" else fill,
            f"{name}_over": 0,
            f"{name}_traffic": traffic,
            f"{name}_pieces": 1 + 1 + 2,
            f"{name}_traffic_per_op": traffic / work,
        }
    return Program(matmul(n, m, k), schedule, expected)


def product_by_rows() -> Program:
    """Loops i, k, j: a row of C, too long for the registers, is loaded and stored in every step.

    All three matrices are larger than L1, but B and a row of each of the others fit.
    """
    n = 64
    row, whole = n // FLOATS, n * n // FLOATS  # lines
    body = whole + 2 * row
    traffic = (whole + whole + 2 * whole) * LINE
    groups = n**3 // LANES
    # The rows of B lie 256 bytes apart: in a way of 4 KiB they begin at 16 places, 4 of the 64 at each.
    crowd = n / (L1 // WAYS // (4 * n)) / WAYS
    expected = {
        "lanes": LANES,
        "lane_regs": 1,
        "tile": 0,
        "tile_registers": 0,
        "tile_pressure": 0,
        "work": groups,
        "loads_contiguous": groups,
        "loads_broadcast": n * n,
        "accumulator_moves": 2 * groups,
        "branches": n + n * n + groups,
        "chain": groups / (n // LANES),
        "parallel_chunks": 1,
        "parallel_launches": 0,
        "parallel_balance": 1 / CORES,
        "parallel_cores": 1,
        "footprint": 3 * whole * LINE,
        "L1_points": n * n,
        "L1_fill": body * LINE / L1,
        "L1_over": 3 * whole * LINE / L1,
        "L1_traffic": traffic,
        "L1_pieces": 1 + 1 + 2,
        "L1_traffic_per_op": traffic / groups,
        "L2_points": n**3,
        "L2_fill": 3 * whole * LINE / L2,
        "L2_over": 0,
        "L2_traffic": traffic,
        "L2_pieces": 1 + 1 + 2,
        "L3_fill": 3 * whole * LINE / L3,
        "conflict_pieces": 1,
        "conflict_pressure": crowd,
    }
    return Program(matmul(n, n, n), lambda state: state.reorder(2, [0, 2, 1]), expected)


def rows_side_by_side() -> Program:
    """A vector times a matrix, four rows at a time, through halves of them: each row begins twice."""
    m, k, width, rows = 256, 64, 128, 4

    def schedule(state: State) -> State:
        state = state.split(2, 1, [width // LANES, LANES]).split(2, 4, [rows])  # i j.0 j.1 j.2 k.0 k.1
        return state.reorder(2, [0, 1, 4, 2, 5, 3]).annotate(2, 5, Annotation.VECTORIZE)

    expected = {
        "tile_registers": 1,
        "tile_steps": rows,
        "streams": rows,
        "stream_begins": k * (m // width) + 1 + 2,  # of B; A; C comes and goes
    }
    return Program(matmul(1, m, k), schedule, expected)


def panel_in_place() -> Program:
    """A panel of B one line wide, read twice: lines at one place of their pages, of which L2 holds half."""
    n, m, k, width = 2, 1024, 512, FLOATS

    def schedule(state: State) -> State:
        state = state.split(2, 1, [width])  # i j.0 j.1 k
        return state.reorder(2, [1, 0, 3, 2]).annotate(2, 3, Annotation.VECTORIZE)

    panels, pages = m // width, L2 // 4096
    lines = panels * n * (k + k // FLOATS + 2)  # B and A for each row, C comes and goes
    expected = {
        "L2_fill": 1 / pages,
        "L2_over": k / pages,
        "L2_traffic": lines * LINE,
        "L3_traffic": (n * k // FLOATS + k * m // FLOATS + 2 * n * m // FLOATS) * LINE,
    }
    return Program(matmul(n, m, k), schedule, expected)


def product_of_rows() -> Program:
    """Four elements at a time, each the product of two rows in the lanes of two vectors."""
    n, m, k, rows, vectors = 8, 3, 64, 4, 2
    a, b = te.placeholder((n, k), name="A"), te.placeholder((m, k), name="B")
    along = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, along] * b[j, along], axis=along), name="C")

    def schedule(state: State) -> State:
        return state.split(2, 0, [rows]).reorder(2, [0, 2, 3, 1])  # i.0 j k i.1

    visits = n // rows * m
    combining = rows * (vectors - 1 + 2 + 2)  # of vectors; then half of four lanes, and half of two
    expected = {
        "lanes": LANES,
        "tile": 1,
        "tile_registers": rows * vectors,
        "tile_steps": k,
        "work": n * m * k // LANES + visits * combining,
        "loads_contiguous": visits * (k // LANES) * (rows + 1),
        "loads_broadcast": 0,
        "loads_scattered": 0,
    }
    return Program([a, b, c], schedule, expected)


def transposed() -> Program:
    """A column of 64 elements, 2 KiB apart: 2 places in a way of 4 KiB, 32 lines at each, for 8 ways."""
    rows, columns = 64, 512
    x = te.placeholder((rows, columns), name="X")
    y = te.compute((columns, rows), lambda j, i: x[i, j] + te.const(1.0, "float32"), name="Y")
    work = rows * columns // LANES
    l1_lines = columns * rows + 2 * columns * (rows // FLOATS)  # every element of X fetches a line of its own
    l2_lines = 3 * rows * columns // FLOATS
    crowd = rows / 2 / WAYS
    expected = {
        "lanes": LANES,
        "work": work,
        "loads_scattered": rows * columns,
        "loads_contiguous": 0,
        "accumulator_moves": work,
        "stores_scattered": 0,
        "chain": 0,
        "footprint": 2 * rows * columns * 4,
        "L1_points": 1,
        "L1_fill": 1 / WAYS,
        "L1_over": crowd,
        "L1_traffic": l1_lines * LINE,
        "L1_pieces": columns * rows + 2 * columns,
        "L1_traffic_per_op": 64,
        "L2_points": rows * columns,
        "L2_fill": 2 * rows * columns * 4 / L2,
        "L2_over": 0,
        "L2_traffic": l2_lines * LINE,
        "L2_pieces": 1 + 2,
        "L2_traffic_per_op": l2_lines * LINE / work,
        "L3_points": rows * columns,
        "L3_fill": 2 * rows * columns * 4 / L3,
        "L3_over": 0,
        "L3_traffic": l2_lines * LINE,
        "L3_pieces": 1 + 2,
        "L3_traffic_per_op": l2_lines * LINE / work,
        "conflict_pressure": crowd,
        "streams": 1,
        "stream_begins": rows * columns // FLOATS + 2,  # a line for an element of X
    }
    return Program([x, y], unchanged, expected)


def scattered_stores() -> Program:
    """The vector runs down the columns of what is stored and read: lane by lane."""
    n = 8
    x = te.placeholder((n, n), name="X")
    y = te.compute((n, n), lambda i, j: x[i, j] + te.const(1.0, "float32"), name="Y")
    expected = {
        "lanes": n,
        "lane_regs": n // LANES,
        "work": n * n // LANES,
        "loads_scattered": n * n,
        "accumulator_moves": n * n,
        "stores_scattered": n * n,
        "branches": n,
    }
    return Program([x, y], lambda s: s.reorder(1, [1, 0]).annotate(1, 1, Annotation.VECTORIZE), expected)


def every_third() -> Program:
    n = 32
    x = te.placeholder((3 * n,), name="X")
    y = te.compute((n,), lambda i: te.exp(x[3 * i]), name="Y")
    expected = {
        "work": n // LANES,
        "math": n // LANES,
        "loads_scattered": n,
        "branches": n // LANES,
        "footprint": (3 * (n - 1) + 1 + n) * 4,
    }
    return Program([x, y], unchanged, expected)


def each_twice(first: int = 0, sign: int = 1) -> Program:
    """Half as many elements as a vector has, and a shuffle; one by one where pairs begin anywhere."""
    rows, n = 6, 32
    x = te.placeholder((n,), name="X")
    end = n // 2 if sign < 0 else 0
    y = te.compute(
        (rows, n), lambda r, i: x[end + sign * ((r * first + i) // 2)] + te.const(1.0, "float32"), name="Y"
    )
    expected = {"work": rows * n // LANES, "loads_scattered": rows * n // (1 if first % 2 else LANES // 2)}
    return Program([x, y], unchanged, expected)


def corner() -> Program:
    """A block of 8 x 4 elements out of rows of 40."""
    rows, columns = 8, 4
    x = te.placeholder((rows, 40), name="X")
    y = te.compute((rows, columns), lambda i, j: x[i, j] + te.const(1.0, "float32"), name="Y")
    stored = rows * columns // FLOATS
    expected = {
        "footprint": (rows + stored) * LINE,
        "L1_traffic": (rows + 2 * stored) * LINE,
        "L1_pieces": rows + 2,
        "conflict_pieces": rows,
        "conflict_pressure": 1 / WAYS,
    }
    return Program([x, y], unchanged, expected)


def ragged() -> Program:
    n = 35
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] + te.const(1.0, "float32"), name="Y")
    vectors = n // LANES + 1
    expected = {
        "lanes": LANES,
        "lane_efficiency": 1,
        "lane_ragged": 1,
        "work": vectors,
        "loads_contiguous": vectors,
        "accumulator_moves": vectors,
    }
    return Program([x, y], unchanged, expected)


def three_lanes() -> Program:
    """Rows of three of what lies in rows of four: there is nothing to make whole vectors of."""
    x = te.placeholder((5, 4), name="X")
    y = te.compute((5, 3), lambda i, j: x[i, j] + te.const(1.0, "float32"), name="Y")
    expected = {"lanes": 3, "lane_regs": 1, "lane_efficiency": 3 / LANES, "lane_ragged": 0, "work": 5}
    return Program([x, y], unchanged, expected)


def pixels() -> Program:
    """A filter along rows of three channels, which whole vectors run across."""
    n, m, taps = 4, 12, 5
    x = te.placeholder((n, m + taps - 1, 3), name="X")
    y = te.compute((n, m, 3), lambda i, j, c: sum((x[i, j + t, c] for t in range(1, taps)), x[i, j, c]))
    vectors = n * m * 3 // LANES
    expected = {
        "lanes": LANES,
        "lane_regs": 1,
        "lane_efficiency": 1,
        "lane_ragged": 0,
        "work": vectors * (taps - 1),
        "loads_contiguous": vectors * taps,
        "loads_broadcast": 0,
        "loads_scattered": 0,
        "accumulator_moves": vectors,
        "branches": n + vectors,
    }
    return Program([x, y], lambda state: state.annotate(1, 2, Annotation.VECTORIZE), expected)


def channels_of_pixels() -> Program:
    """Two channels of pixels, one after the other: stored together, and loaded whole and shuffled."""
    rows, columns = 4, 32
    x = te.placeholder((rows, columns, 2), name="X")
    y = te.compute((rows, columns, 2), lambda i, j, c: x[i, j, c] + x[i, j, 1 - c], name="Y")
    vectors = rows * columns * 2 // LANES

    def schedule(state: State) -> State:
        state = state.split(1, 1, [2 * LANES]).annotate(1, 3, Annotation.UNROLL).reorder(1, [0, 1, 3, 2])
        return state.annotate(1, 3, Annotation.VECTORIZE)

    expected = {
        "lanes": 2 * LANES,
        "lane_regs": 2,
        "work": vectors,
        "loads_contiguous": 0,
        "loads_scattered": 2 * vectors * 3,  # two loads of whole vectors, and a shuffle
        "accumulator_moves": vectors,
        "stores_scattered": 0,
    }
    return Program([x, y], schedule, expected)


def chosen_sums(unrolled: bool, tiles: int) -> Program:
    """Which of three sums it is depends on the place in a tile of four, of which two take the last.

    Written out, a point takes the mean of them; else all three, and two choices.
    """
    columns, length = 4 * LANES, 4
    rows = tiles * length
    x = te.placeholder((3, columns), name="X")

    def element(e: te.Expr, c: te.Expr) -> te.Expr:
        a, b, d = (x[row, c] for row in range(3))
        place = te.indexmod(e, length)
        return te.select(place == 0, a + b + d, te.select(place == 1, a - b, d * 2.0))

    y = te.compute((rows, columns), element, name="Y", attrs={"unrolled_tiles": {"e": length}})

    def schedule(state: State) -> State:
        state = state.split(1, 0, [length])
        state = state.annotate(1, 1, Annotation.UNROLL) if unrolled else state
        return state.annotate(1, 2, Annotation.VECTORIZE)

    adds = (2 + 1 + 0 + 0) / 4 if unrolled else 3
    muls = 2 / 4 if unrolled else 1
    points = rows * columns
    expected = {
        "float_addsub": adds * points,
        "float_mul": muls * points,
        "select_op": 2 * points * (not unrolled),
    }
    return Program([x, y], schedule, expected)


def channels_of_rows_of_pixels() -> Program:
    """Another loop between that over channels and the vector: their stores are not put together."""
    rows, columns = 4, 32
    x = te.placeholder((rows, columns), name="X")
    y = te.compute((rows, columns, 2), lambda i, j, c: x[i, j], name="Y")

    def schedule(state: State) -> State:
        state = state.split(1, 1, [LANES]).annotate(1, 3, Annotation.UNROLL).annotate(1, 1, Annotation.UNROLL)
        return state.reorder(1, [0, 3, 1, 2]).annotate(1, 3, Annotation.VECTORIZE)

    return Program([x, y], schedule, {"lanes": LANES, "stores_scattered": 2 * rows * columns})


def every_second_backwards() -> Program:
    n = 32
    x = te.placeholder((2 * n,), name="X")
    y = te.compute((n,), lambda i: te.exp(x[2 * (n - 1 - i)]), name="Y")
    return Program([x, y], unchanged, {"lanes": LANES, "loads_scattered": n})


def every_second() -> Program:
    n = 32
    x = te.placeholder((2 * n,), name="X")
    y = te.compute((n,), lambda i: te.exp(x[2 * i]), name="Y")
    return Program([x, y], unchanged, {"lanes": LANES, "loads_scattered": 3 * n // LANES})


def channels_apart() -> Program:
    """One of two channels is stored lane by lane."""
    rows, columns = 4, 32
    x = te.placeholder((rows, columns), name="X")
    y = te.compute((rows, columns, 2), lambda i, j, c: x[i, j], name="Y")
    expected = {
        "loads_contiguous": 2 * rows * columns // LANES,
        "stores_scattered": 2 * rows * columns,
    }

    def schedule(state: State) -> State:
        return state.split(1, 1, [LANES]).reorder(1, [0, 3, 1, 2]).annotate(1, 3, Annotation.VECTORIZE)

    return Program([x, y], schedule, expected)


def turned(row: int) -> float:
    """Instructions that store a vector of whose lanes rows of so many neighbours are stored."""
    part = row / ceil(row / LANES)
    return LANES / part + ceil(log2(part))


def turned_rows(row: int) -> Program:
    """Lanes are channels, and lie apart; an unrolled loop around them stores the pixels of each."""
    channels, pixels = 4 * LANES, 2 * row
    x = te.placeholder((pixels, channels), name="X")
    y = te.compute((channels, pixels), lambda c, p: x[p, c], name="Y")

    def schedule(state: State) -> State:
        state = state.split(1, 0, [LANES]).split(1, 2, [row]).annotate(1, 3, Annotation.UNROLL)
        return state.annotate(1, 1, Annotation.VECTORIZE).reorder(1, [0, 2, 3, 1])

    vectors = channels * pixels // LANES
    expected = {
        "accumulator_moves": vectors * turned(row),
        "accumulator_vectors": vectors,
        "stores_scattered": vectors * turned(row),
    }
    return Program([x, y], schedule, expected)


def turned_product(row: int) -> Program:
    """The same for a tile in registers, which is stored once."""
    channels, pixels, k = 2 * LANES, 2 * row, 12
    a, b = te.placeholder((pixels, k), name="A"), te.placeholder((k, channels), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((channels, pixels), lambda j, i: te.sum(a[i, r] * b[r, j], axis=r), name="C")

    def schedule(state: State) -> State:
        state = state.split(2, 0, [LANES]).split(2, 2, [row]).reorder(2, [0, 2, 4, 3, 1])
        return state.annotate(2, 4, Annotation.VECTORIZE)

    tiles = 2 * 2
    expected = {
        "tile_registers": row,
        "accumulator_moves": tiles * row * turned(row),
        "accumulator_vectors": tiles * row,
        "stores_scattered": tiles * row * turned(row),
    }
    return Program([a, b, c], schedule, expected)


def small_images() -> Program:
    """Two rows of two bytes each: vectors of sixteen run across four of them."""
    n, lanes = 64, 4 * LANES
    x = te.placeholder((n, 2, 2), "uint8", name="X")
    y = te.compute((n, 2, 2), lambda i, j, c: x[i, j, c] + te.const(1, "uint8"), name="Y")
    vectors = n * 4 // lanes
    expected = {"lanes": lanes, "lane_regs": 1, "loads_contiguous": vectors, "loads_scattered": 0}
    return Program([x, y], unchanged, expected)


def odd_rows() -> Program:
    """Of the places where a vector of X may begin, all 16 of a line, 3 leave room for less than one."""
    n, columns = 32, 8
    x = te.placeholder((n, columns + 1), name="X")
    y = te.compute((n, columns), lambda i, j: x[i, j] + te.const(1.0, "float32"), name="Y")
    vectors = n * columns // LANES
    expected = {"loads_contiguous": vectors * (1 + 3 / 16), "accumulator_moves": vectors}
    return Program([x, y], unchanged, expected)


def odd_results() -> Program:
    """The same of vectors that are stored: rows of six elements, of which vectors take three."""
    n, columns, vector = 32, 6, 3
    x = te.placeholder((n, 8), name="X")
    y = te.compute((n, columns), lambda i, j: x[i, j] + te.const(1.0, "float32"), name="Y")
    vectors = n * columns // vector
    expected = {
        "lanes": vector,
        "loads_contiguous": vectors * (1 + 2 / 16),
        "accumulator_moves": vectors * (1 + 2 / 16),
    }
    return Program([x, y], unchanged, expected)


def long_vectors(lanes: int, straddling: float) -> Program:
    """Vectors of registers as long as a line: the caller's X begins a quarter of a line behind one."""
    n = 1024
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] + te.const(1.0, "float32"), name="Y")

    def schedule(state: State) -> State:
        state = state.split(1, 0, [lanes]).annotate(1, 0, Annotation.PARALLEL)  # else they were joined
        return state.annotate(1, 1, Annotation.VECTORIZE)

    vectors = n // lanes
    expected = {"loads_contiguous": vectors * (1 + straddling), "accumulator_moves": vectors}
    return Program([x, y], schedule, expected, "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v4")


def scalar_sum() -> Program:
    """A sum down a column, one element at a time in a register."""
    n = 24
    x = te.placeholder((n, 7), name="X")
    k = te.reduce_axis((0, n), name="k")
    y = te.compute((), lambda: te.sum(x[k, 0], axis=k), name="Y")
    expected = {
        "lanes": 1,
        "lane_efficiency": 1 / LANES,
        "tile": 1,
        "tile_registers": 1,
        "tile_steps": n,
        "work": n,
        "loads_contiguous": n,
        "accumulator_moves": 1,
        "branches": n,
        "chain": n,
    }
    return Program([x, y], unchanged, expected)


def windows() -> Program:
    """Sums of 3 x 3 windows, `rows` of them below each other in registers, whose taps are all written out.

    Windows share rows: a vector is loaded once for all sums and all taps that it belongs to.
    """
    n, channels, rows, taps = 12, LANES, 4, 3
    x = te.placeholder((n + taps - 1, n + taps - 1, channels), name="X")
    w = te.placeholder((taps, taps, channels), name="W")
    r, q = te.reduce_axis((0, taps), name="r"), te.reduce_axis((0, taps), name="q")
    y = te.compute(
        (n, n, channels), lambda i, j, c: te.sum(x[i + r, j + q, c] * w[r, q, c], axis=[r, q]), name="Y"
    )

    def schedule(state: State) -> State:
        state = state.split(2, 0, [rows]).reorder(2, [0, 2, 4, 5, 1, 3])  # i.0 j r q i.1 c
        state = state.annotate(2, 5, Annotation.VECTORIZE)
        for loop in (2, 3, 4):
            state = state.annotate(2, loop, Annotation.UNROLL)
        return state

    visits = (n // rows) * n
    expected = {
        "tile_registers": rows,
        "tile_steps": taps * taps,
        "work": visits * rows * taps * taps,
        "loads_contiguous": visits * (rows + taps - 1) * taps + taps * taps,  # the taps lie in registers
        "tile_loads": (rows + taps - 1) * taps + taps * taps,
        "tile_work": rows * taps * taps,
    }
    return Program([x, w, y], schedule, expected)


def short_visits(steps: int) -> Program:
    """Rows of B, one vector each, wait while those of A go by, if the registers hold them beside the sum."""
    n, m, k = 12, LANES, 2 * steps

    def schedule(state: State) -> State:
        state = state.split(2, 2, [steps]).reorder(2, [2, 0, 3, 1])  # k.0 i k.1 j
        return state.annotate(2, 2, Annotation.UNROLL).annotate(2, 3, Annotation.VECTORIZE)

    waits = steps + 1 <= REGISTERS
    expected = {
        "tile_registers": 1,
        "tile_steps": steps,
        "loads_contiguous": k if waits else n * k,
        "loads_broadcast": n * k,
    }
    return Program(matmul(n, m, k), schedule, expected)


def padded(rows: bool) -> Program:
    """Maxima of 3 neighbours in a padded matrix: neighbouring rows, or elements that lie in lanes."""
    n, taps = 12, 3
    x = te.placeholder((n, n), name="X")

    def inside(i: te.Expr) -> te.Expr:
        return te.all(i >= 1, i < n + 1)

    r = te.reduce_axis((0, taps), name="r")
    if rows:
        pad = te.compute((n + 2, n), lambda i, j: te.if_then_else(inside(i), x[i - 1, j], 0.0))
        y = te.compute((n, n), lambda i, j: te.max(pad[i + r, j], axis=r), name="Y")
    else:
        pad = te.compute((n, n + 2), lambda i, j: te.if_then_else(inside(j), x[i, j - 1], 0.0))
        y = te.compute((n, n), lambda i, j: te.max(pad[i, j + r], axis=r), name="Y")

    def schedule(state: State) -> State:
        return state.compute_inline(1).reorder(2, [0, 2, 1]).annotate(2, 2, Annotation.VECTORIZE)

    each = 1 if rows else 7  # the maximum; two sums, two comparisons, their conjunction and the choice
    return Program([x, y], schedule, {"work": n * taps * (n // LANES) * each})


def divided(factor: int | None) -> Program:
    """Rows of 3 read one after the other; a loop of 3 inside makes the quotient and remainder loops."""
    n = 12
    x = te.placeholder((n // 3, 3), name="X")
    y = te.compute((n,), lambda i: x[te.indexdiv(i, 3), te.indexmod(i, 3)] + te.const(1.0, "float32"))
    if factor is None:
        return Program([x, y], unchanged, {"index_div": 2 * n})
    return Program([x, y], lambda state: state.split(1, 0, [factor]), {"index_div": 0})


def parallel(shape: tuple[int, ...], loop: int, expected: dict[str, float]) -> Program:
    x = te.placeholder(shape, name="X")
    y = te.compute(shape, lambda *at: x[at] + te.const(1.0, "float32"), name="Y")
    return Program([x, y], lambda state: state.annotate(1, loop, Annotation.PARALLEL), expected)


def integers() -> Program:
    n = 24
    x, f = te.placeholder((n,), "int32", name="X"), te.placeholder((n,), name="F")

    def value(i: te.Expr) -> te.Expr:
        inside = te.all(x[i] > 3, x[i] < 9)
        return te.select(inside, te.abs(x[i]) * 3 + x[i], te.floordiv(x[i], 2)) + te.cast(f[i], "int32")

    y = te.compute((n,), value, name="Y")
    counts = {
        "int_mad": 1,
        "int_addsub": 2,
        "int_mul": 1,
        "int_divmod": 1,
        "int_cmp": 2,
        "int_mathfunc": 1,
        "int_otherfunc": 1,
        "bool_op": 1,
        "select_op": 1,
        "float_addsub": 0,
        "float_otherfunc": 0,
    }
    return Program([x, f, y], unchanged, {name: n * count for name, count in counts.items()})


def bits() -> Program:
    """A shift by data has a remainder for its count; operators on bits count as additions do."""
    n = 24
    x = te.placeholder((n,), "uint32", name="X")
    y = te.compute((n,), lambda i: (x[i] >> x[i]) ^ (x[i] & 100), name="Y")
    counts = {"int_addsub": 3, "int_divmod": 1, "int_mad": 0, "int_otherfunc": 0}
    return Program([x, y], unchanged, {name: n * count for name, count in counts.items()})


def gathered_rows(length: int, rows: int) -> Program:
    """Rows of two lines each, out of a table of a million: as many rows as there are numbers of rows."""
    row = 2 * FLOATS
    table, which = te.placeholder((length, row), name="Table"), te.placeholder((rows,), "int32", "Which")
    y = te.compute((rows, row), lambda i, j: table[which[i], j] + te.const(1.0, "float32"), name="Y")
    lines = rows * 2 + rows / FLOATS + rows * 2
    return Program([table, which, y], unchanged, {"footprint": lines * LINE, "L1_fill": lines * LINE / L1})


def gathered_channel() -> Program:
    """One of four numbers of rows that lie anywhere: a line each, eight in each of the 64 sets of L1."""
    rows, row = 512, 4
    table, which = te.placeholder((2**20, row), name="Table"), te.placeholder((rows,), "int32", "Which")
    y = te.compute((rows,), lambda i: table[which[i], 1] + te.const(1.0, "float32"), name="Y")
    lines = rows + rows // FLOATS + rows // FLOATS
    return Program([table, which, y], unchanged, {"footprint": lines * LINE, "conflict_pressure": 8 / WAYS})


def gathered_elements(length: int) -> Program:
    """Elements of a table, each in a line of its own while there are so many; 64 numbers, read twice."""
    numbers = 64
    table, which = te.placeholder((length,), name="Table"), te.placeholder((numbers,), "int32", "Which")
    y = te.compute((2, numbers), lambda i, j: table[which[j]] + te.const(1.0, "float32"), name="Y")
    lines = min(numbers, length) + numbers // FLOATS + 2 * numbers // FLOATS
    return Program([table, which, y], unchanged, {"footprint": lines * LINE})


def channel() -> Program:
    """One of four channels: four pixels share a line; 8 rows 1 KiB apart are two at each place of a way."""
    rows, width, channels = 8, 64, 4
    x = te.placeholder((rows, width, channels), name="X")
    y = te.compute((rows, width), lambda i, j: x[i, j, 1] + te.const(1.0, "float32"), name="Y")
    lines, stored = rows * width * channels // FLOATS, rows * width // FLOATS
    expected = {
        "footprint": (lines + stored) * LINE,
        "L1_fill": (lines + stored) * LINE / L1,
        "L1_traffic": (lines + 2 * stored) * LINE,
        "L1_pieces": lines + 2,
        "conflict_pieces": lines,
        "conflict_pressure": 2 / WAYS,
    }
    return Program([x, y], unchanged, expected)


PROGRAMS = {
    "turned rows": turned_rows(7),
    "turned rows, of two vectors": turned_rows(2 * LANES),
    "turned rows, in two parts": turned_rows(LANES + 4),
    "turned product": turned_product(6),
    "a tiled product": tiled_product(),
    "a product by rows": product_by_rows(),
    "rows side by side": rows_side_by_side(),
    "a panel in place": panel_in_place(),
    "a product of rows": product_of_rows(),
    "a transpose": transposed(),
    "scattered stores": scattered_stores(),
    "every third element": every_third(),
    "each element twice": each_twice(),
    "each element twice, pairs anywhere": each_twice(1),
    "each element twice, rows of pairs": each_twice(2),
    "each element twice, backwards": each_twice(sign=-1),
    "a corner": corner(),
    "a channel": channel(),
    "a ragged vector": ragged(),
    "three lanes": three_lanes(),
    "pixels": pixels(),
    "channels of pixels": channels_of_pixels(),
    "channels apart": channels_apart(),
    "sums of an unrolled tile": chosen_sums(unrolled=True, tiles=1),
    "sums of unrolled tiles": chosen_sums(unrolled=True, tiles=3),
    "sums of tiles that stay loops": chosen_sums(unrolled=False, tiles=3),
    "channels of rows of pixels": channels_of_rows_of_pixels(),
    "every second element": every_second(),
    "every second element backwards": every_second_backwards(),
    "small images": small_images(),
    "rows of an odd length": odd_rows(),
    "results in rows of an odd length": odd_results(),
    "vectors of a line": long_vectors(16, 1.0),
    "vectors of half a line": long_vectors(8, 0.5),
    "vectors of a quarter of a line": long_vectors(4, 0.0),
    "short visits": short_visits(REGISTERS - 1),
    "visits that take all registers": short_visits(REGISTERS),
    "a scalar sum": scalar_sum(),
    "windows": windows(),
    "padding that lanes share": padded(rows=True),
    "padding along lanes": padded(rows=False),
    "quotients": divided(None),
    "quotients that are loops": divided(3),
    "six chunks, entered thrice": parallel(
        (3, 6, 8),
        1,
        {
            "parallel_chunks": 6,
            "parallel_launches": 3,
            "parallel_balance": 6 / (2 * CORES),
            "parallel_cores": CORES,
        },
    ),
    "two chunks": parallel(
        (2, 8),
        0,
        {"parallel_chunks": 2, "parallel_launches": 1, "parallel_balance": 2 / CORES, "parallel_cores": 2},
    ),
    "integers": integers(),
    "bits": bits(),
    "gathered rows": gathered_rows(2**20, 64),
    "gathered rows of another million": gathered_rows(10**6, 100),
    "one number of gathered rows": gathered_channel(),
    "gathered elements": gathered_elements(2**20),
    "elements gathered from a few": gathered_elements(5),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_features_of_a_small_program_are_those_of_the_formulas(name: str) -> None:
    program = PROGRAMS[name]
    dag = ComputeDAG(program.tensors)
    task = Task.create(dag, "[]", program.target, hardware_params=HARDWARE)
    state = program.schedule(State.initial(dag))
    (values,) = extract_forms(task, [Form.of_state(state)], scaled=False).values
    found = dict(zip(feature_names(), values.tolist(), strict=True))
    assert {one: found[one] for one in program.expected} == pytest.approx(program.expected)


def test_every_column_without_a_law_is_worked_out_somewhere() -> None:
    """The groups that no count over a nest compares."""
    known = {one for program in PROGRAMS.values() for one in program.expected}
    groups = ("lane", "tile", "parallel_", "L1_", "L2_", "L3_", "conflict_", "loads_", "stores_", "int_")
    own = (one for one in feature_names() if one.startswith(groups) and not one.startswith("parallel_t"))
    missing = {one for one in own if one not in known} - {"parallel_num", "parallel_prod", "parallel_len"}
    assert not missing
    assert {"work", "math", "accumulator_moves", "branches", "chain", "index_div", "footprint"} <= known
