"""Reductions that ask for rows of a panel ahead: which rows, which lines of them, and where they do not."""

from __future__ import annotations

import pytest

from ansor import te
from ansor.ir.bounds import Bounds
from ansor.ir.nest import For, LoopKind, LoopNest, Prefetch, Stmt, sub_statements
from ansor.ir.passes.register_tile import RegisterLimits
from ansor.ir.passes.rows_ahead import ask_for_rows
from ansor.ir.printer import format_expr
from ansor.ir.verify import check_nest
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.te.expr import int_value
from tests.program_laws import Case, check_all

LIMITS = RegisterLimits(vector_bits=512, num_registers=32)


def product(
    n: int, m: int, k: int, tile: tuple[int, int, int], room: int, dtype: str = "float32"
) -> Schedule:
    """A product with a tile in registers, vectors as given, which looks so many bytes ahead."""
    a, b = te.placeholder((n, k), dtype, "A"), te.placeholder((k, m), dtype, "B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c)
    io, ii = s[c].split(s[c].op.axis[0], factor=tile[0])
    jo, jm, ji = s[c].split(s[c].op.axis[1], factors=tile[1:])
    s[c].reorder(io, jo, s[c].op.reduce_axis[0], ii, jm, ji)
    for loop in (ii, jm):
        s[c].unroll(loop)
    s[c].vectorize(ji)
    s[c].prefetch(room)
    return s


def asked(nest: LoopNest) -> set[tuple[str, int]]:
    """Which rows are asked for, as far as one index says it, and how many lines of each."""
    check_nest(nest)
    found: set[tuple[str, int]] = set()

    def visit(stmt: Stmt, lines: int) -> None:
        if isinstance(stmt, Prefetch):
            found.add((f"{stmt.buffer.name}[{format_expr(stmt.indices[0])}]", lines))
        times = int_value(stmt.extent) if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED else 1
        for inner in sub_statements(stmt):
            visit(inner, lines * (times or 1))

    visit(nest.body, 1)
    return found


def test_as_many_rows_ahead_as_pieces_of_them_are_the_distance() -> None:
    assert asked(lower(product(6, 128, 512, (6, 4, 16), 8192), limits=LIMITS)) == {("B[k + 32]", 4)}
    assert asked(lower(product(6, 128, 512, (6, 2, 16), 1024), limits=LIMITS)) == {("B[k + 8]", 2)}
    assert asked(lower(product(6, 128, 512, (6, 1, 16), 16384), limits=LIMITS)) == {("B[k + 256]", 1)}


@pytest.mark.parametrize(("vectors", "lanes"), [(8, 8), (4, 16), (2, 32), (1, 64)])
def test_each_line_is_asked_for_once_however_long_vectors_are(vectors: int, lanes: int) -> None:
    nest = lower(product(3, 128, 512, (3, vectors, lanes), 8192), limits=LIMITS)
    assert asked(nest) == {("B[k + 32]", 4)}


def test_the_lines_of_a_last_tile_that_is_shorter_are_fewer() -> None:
    nest = lower(product(4, 40, 300, (4, 1, 24), 1024), limits=LIMITS)
    assert {(place.replace("k_1", "k"), lines) for place, lines in asked(nest)} == {
        ("B[k + 10]", 2),  # 24 floats are 96 bytes
        ("B[k + 16]", 1),  # the last 16
    }


def test_rows_that_follow_each_other_in_memory_are_not_asked_for() -> None:
    assert not asked(lower(product(6, 64, 512, (6, 4, 16), 8192), limits=LIMITS))


def test_rows_behind_the_last_one_are_not_asked_for() -> None:
    assert not asked(lower(product(6, 128, 32, (6, 4, 16), 8192), limits=LIMITS))
    assert asked(lower(product(6, 128, 33, (6, 4, 16), 8192), limits=LIMITS))


def test_what_the_room_holds_is_asked_for_before_the_reduction() -> None:
    nest = lower(product(12, 128, 33, (6, 4, 16), 1 << 20), limits=LIMITS)
    assert asked(nest) == {("A[i.0*6 + ahead0 + 6]", 1)}  # the next tile down reads the same of B


def test_what_is_not_in_registers_asks_for_nothing() -> None:
    assert not asked(lower(product(30, 128, 512, (30, 4, 16), 8192), limits=LIMITS))


def test_without_distances_nothing_changes() -> None:
    nest = lower(product(6, 128, 512, (6, 4, 16), 8192), limits=LIMITS)
    assert ask_for_rows(nest.body, {}, Bounds()) is nest.body


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
@pytest.mark.parametrize(
    ("sizes", "tile"), [((5, 40, 30), (4, 1, 24)), ((7, 33, 19), (3, 2, 8)), ((4, 64, 9), (4, 2, 16))]
)
@pytest.mark.parametrize("room", [64, 300, 4096])
def test_results_do_not_depend_on_it(
    sizes: tuple[int, int, int], tile: tuple[int, int, int], room: int, dtype: str
) -> None:
    check_all(Case.of(product(*sizes, tile, room, dtype).state))
