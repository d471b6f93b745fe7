"""Reductions that ask for what they read next: which rows of panels, which tiles, and where they do not."""

from __future__ import annotations

import pytest

from ansor import te
from ansor.errors import LogFormatError, ScheduleError
from ansor.ir.bounds import Bounds
from ansor.ir.nest import Alloc, For, LoopKind, Prefetch, Stmt, sub_statements, walk_statements
from ansor.ir.passes.read_ahead import ask_for_inputs
from ansor.ir.printer import format_expr
from ansor.ir.registers import RegisterLimits
from ansor.ir.verify import check_nest
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.schedule.source import schedule_code
from ansor.schedule.steps import ReadAheadStep, step_from_json
from ansor.te import Tensor
from ansor.te.expr import int_value
from tests.gpu_schedules import kernels
from tests.program_laws import Case, check_all

LIMITS = RegisterLimits(vector_bits=512, num_registers=32)


def product(
    n: int, m: int, k: int, tile: tuple[int, int, int], least: int = 0, dtype: str = "float32", parts: int = 1
) -> Schedule:
    """A product with a tile in registers, vectors as given, which asks for inputs larger than `least`."""
    a, b = te.placeholder((n, k), dtype, "A"), te.placeholder((k, m), dtype, "B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c)
    io, ii = s[c].split(s[c].op.axis[0], factor=tile[0])
    jo, jm, ji = s[c].split(s[c].op.axis[1], factors=tile[1:])
    terms = s[c].split(s[c].op.reduce_axis[0], nparts=parts) if parts > 1 else s[c].op.reduce_axis
    s[c].reorder(io, jo, *terms, ii, jm, ji)
    for loop in (ii, jm):
        s[c].unroll(loop)
    s[c].vectorize(ji)
    s[c].read_ahead(least)
    return s


def in_registers(s: Schedule, c: Tensor) -> None:
    """Six rows of 64 results in registers."""
    *around, i, j = s[c].op.axis
    io, ii = s[c].split(i, factor=6)
    jo, ji = s[c].split(j, factor=64)
    s[c].reorder(*around, io, jo, s[c].op.reduce_axis[0], ii, ji)
    s[c].unroll(ii)
    s[c].vectorize(ji)


def asked(schedule: Schedule, name: str) -> set[tuple[str, int]]:
    """Where the elements of an input lie that are asked for, and how many lines in each step."""
    nest = lower(schedule, limits=LIMITS)
    check_nest(nest)
    found: set[tuple[str, int]] = set()

    def visit(stmt: Stmt, lines: int) -> None:
        if isinstance(stmt, Prefetch) and stmt.buffer.name == name:
            assert not stmt.near
            found.add((", ".join(map(format_expr, stmt.indices)), lines))
        times = int_value(stmt.extent) if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED else 1
        for inner in sub_statements(stmt):
            visit(inner, lines * (times or 1))

    visit(nest.body, 1)
    return found


def rows(found: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """The first index alone, with loops of one name, whichever version of the tile they are of."""
    return {(place.split(",")[0].replace("k_1", "k").replace("k_2", "k"), lines) for place, lines in found}


# -- rows of panels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vectors", "ahead"), [(4, "k + 32"), (2, "k + 64"), (1, "k + 128")], ids=["256", "128", "64 bytes"]
)
def test_as_many_rows_ahead_as_pieces_of_them_are_the_distance(vectors: int, ahead: str) -> None:
    assert rows(asked(product(6, 128, 1024, (6, vectors, 16)), "B")) == {(ahead, vectors + 1)}


@pytest.mark.parametrize(("vectors", "lanes"), [(8, 8), (4, 16), (2, 32), (1, 64)])
def test_each_line_that_a_piece_may_be_in_is_asked_for_however_long_vectors_are(
    vectors: int, lanes: int
) -> None:
    assert rows(asked(product(3, 128, 512, (3, vectors, lanes)), "B")) == {
        ("k + 32", 5)
    }  # 256 bytes, from anywhere in a line


def test_the_lines_of_a_last_tile_that_is_shorter_are_fewer() -> None:
    found = rows(asked(product(4, 40, 1100, (4, 1, 24)), "B"))
    assert found == {("k + 85", 3), ("k + 128", 2)}  # 24 floats are 96 bytes, the last 16 are 64


def test_rows_that_follow_each_other_in_memory_and_few_rows_are_not_asked_for() -> None:
    assert not asked(product(6, 64, 512, (6, 4, 16)), "B")
    assert not asked(product(6, 128, 255, (6, 4, 16)), "B")
    assert asked(product(6, 128, 256, (6, 4, 16)), "B")


def test_steps_in_two_loops_are_steps_of_one_reduction() -> None:
    (one,) = asked(product(6, 128, 512, (6, 4, 16), parts=8), "B")
    assert one[0].startswith("k.0*64 + k.1 + 32, ")


# -- the next tile -----------------------------------------------------------------------------------------


def test_the_next_tile_is_spread_over_the_steps() -> None:
    (one,) = asked(product(12, 128, 512, (6, 4, 16)), "A")
    assert one == ("i.0*6 + 6, k*6", 1)  # six rows, one behind the other
    (one,) = asked(product(12, 128, 512, (6, 4, 16), parts=8), "A")
    assert one == ("i.0*6 + 6, k.0*384 + k.1*6", 1)


def test_a_tile_of_parts_of_rows_is_asked_for_row_by_row() -> None:
    """Each block of the reduction has accumulators of its own."""
    (one,) = asked(in_blocks(128), "A")
    assert one == ("i.0*6 + k.1*3//64 + 6, k.0*128 + k.1*3%64*2", 1)


def in_blocks(length: int) -> Schedule:
    """A product of four blocks of terms, each of which reads `length` floats of a row of A."""
    s = product(12, 128, 4 * length, (6, 4, 16), parts=4)
    c = s.state.dag.tensors[-1]
    loops = s[c].leaf_iter_vars
    s[c].reorder(loops[2], loops[0], loops[1])
    return s


def test_of_more_lines_than_steps_each_asks_for_two_and_of_more_for_none() -> None:
    def pixels(n: int) -> Schedule:
        """The sum of every n-th of 32 floats, which are one vector of weights each."""
        x, w = te.placeholder((64, 64 * n), name="X"), te.placeholder((32, 16), name="W")
        k = te.reduce_axis((0, 32), "k")
        y = te.compute((64, 16), lambda i, j: te.sum(x[i, k * n] * w[k, j], axis=k), name="Y")
        s = te.create_schedule(y)
        s[y].vectorize(s[y].op.axis[1])
        s[y].read_ahead()
        return s

    assert {lines for _, lines in asked(pixels(16), "X")} == {1}
    assert {lines for _, lines in asked(pixels(32), "X")} == {2}
    assert not asked(pixels(34), "X")


def test_short_pieces_of_rows_are_not_asked_for() -> None:
    assert not asked(in_blocks(127), "A")


def test_loops_around_that_run_once_do_not_move_the_tile() -> None:
    """The last five of six results are one, and the last five of seven terms are two."""
    a, b = te.placeholder((6, 8), name="A"), te.placeholder((7,), name="B")
    k = te.reduce_axis((0, 7), "k")
    c = te.compute((6,), lambda i: te.sum(a[i, k] * b[k], axis=k), name="C")
    s = te.create_schedule(c)
    s[c].read_ahead()
    ko, ki = s[c].split(s[c].op.reduce_axis[0], factor=5)
    io, ii = s[c].split(s[c].op.axis[0], factor=5)
    s[c].reorder(io, ko, ii, ki)
    check_all(Case.of(s.state))


def test_indices_of_64_bits_are_asked_for_in_64_bits() -> None:
    a, b = te.placeholder((2, 6, 1024), name="A"), te.placeholder((512, 128), name="B")
    r = te.reduce_axis((0, 512), "k")
    c = te.compute(
        (2, 6, 128), lambda n, i, j: te.sum(a[te.cast(n, "int64"), i, r] * b[r, j], axis=r), name="C"
    )
    s = te.create_schedule(c)
    in_registers(s, c)
    s[c].read_ahead()
    assert asked(s, "A") == {("int64(n + 1), k*3//256, k*3%256*2", 1)}
    check_all(Case.of(s.state))


def test_converted_indices_that_move_within_the_tile_are_not_foreseen() -> None:
    a, b = te.placeholder((12, 512), name="A"), te.placeholder((512, 128), name="B")
    r = te.reduce_axis((0, 512), "k")
    c = te.compute(
        (12, 128),
        lambda i, j: te.sum(a[te.cast(i, "int64"), r] * b[r, te.cast(j, "int64")], axis=r),
        name="C",
    )
    s = te.create_schedule(c)
    in_registers(s, c)
    s[c].read_ahead()
    assert not asked(s, "A") | asked(s, "B")
    check_all(Case.of(s.state))


def test_lanes_around_the_tile_ask_for_nothing_of_their_own() -> None:
    a, b = te.placeholder((512, 32), name="A"), te.placeholder((512, 8), name="B")
    k = te.reduce_axis((0, 512), "k")
    c = te.compute((8, 32), lambda i, j: te.sum(a[k, j] * b[k, i], axis=k), name="C")
    s = te.create_schedule(c)
    j, lanes = s[c].split(s[c].op.axis[1], factor=16)
    s[c].reorder(s[c].op.axis[0], j, lanes, s[c].op.reduce_axis[0])
    s[c].vectorize(lanes)
    s[c].read_ahead()
    assert not asked(s, "A")
    check_all(Case.of(s.state))


def test_nothing_is_next_without_a_loop_around() -> None:
    assert not asked(product(6, 128, 512, (6, 4, 16)), "A")


def test_the_loop_around_is_the_nearest_that_moves_the_tile() -> None:
    x, w = te.placeholder((4, 10, 32), name="X"), te.placeholder((3, 32, 32), name="W")
    r, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 32), "c")
    y = te.compute((4, 8, 32), lambda n, i, j: te.sum(x[n, i + r, c] * w[r, c, j], axis=[r, c]), name="Y")
    s = te.create_schedule(y)
    n, i, j = s[y].op.axis
    io, ii = s[y].split(i, factor=4)
    jo, ji = s[y].split(j, factor=16)
    s[y].reorder(n, io, jo, r, c, ii, ji)
    s[y].unroll(ii)
    s[y].vectorize(ji)
    s[y].read_ahead()
    (one,) = asked(s, "X")
    assert one == ("n, i.0*4 + 4, r*64 + part*16", 4)  # six pixels of 32 floats, in thirds
    check_all(Case.of(s.state))


# -- the next panel ----------------------------------------------------------------------------------------


def packed(rows: int, panels: int, terms: int) -> te.Tensor:
    """A product with an operand in panels of 64 columns."""
    a, b = te.placeholder((rows, terms), name="A"), te.placeholder((panels, terms, 64), name="B")
    return times_panels(a, b)


def times_panels(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The product of rows and of panels of columns."""
    (rows, terms), (panels, _, width) = (tuple(map(int_value, x.shape)) for x in (a, b))
    k = te.reduce_axis((0, terms), "k")
    return te.compute(
        (rows, panels * width), lambda i, j: te.sum(a[i, k] * b[j // width, k, j % width], axis=k), name="C"
    )


def tiled(c: te.Tensor) -> Schedule:
    """Tiles of six rows in turn, for each panel."""
    s = te.create_schedule(c)
    io, ii = s[c].split(s[c].op.axis[0], factor=6)
    jo, jm, ji = s[c].split(s[c].op.axis[1], factors=(4, 16))
    s[c].reorder(jo, io, s[c].op.reduce_axis[0], ii, jm, ji)
    for loop in (ii, jm):
        s[c].unroll(loop)
    s[c].vectorize(ji)
    s[c].read_ahead()
    return s


def test_all_tiles_of_a_panel_ask_for_a_part_of_the_next_one() -> None:
    s = tiled(packed(24, 3, 256))
    assert asked(s, "B") == {("j.0 + 1, 0, i.0*4096 + k*16", 1)}  # 4 x 256 steps for 64 x 256 floats
    assert asked(s, "A") == {("i.0*6 + 6, k*6", 1)}
    check_all(Case.of(s.state))


def test_tiles_of_loops_that_were_fused_ask_for_a_part_each_too() -> None:
    """Four tiles of an operand's rows to each panel, whose number is that of the iteration modulo four."""
    s = tiled(packed(24, 3, 256))
    c = s.state.dag.tensors[-1]
    outer, inner, *_ = s[c].leaf_iter_vars
    s[c].parallel(s[c].fuse(outer, inner))
    (one,) = asked(s, "B")
    assert one == ("j.0@i.0@//4 + 1, 0, j.0@i.0@%4*4096 + k*16", 1)
    check_all(Case.of(s.state))


def test_rows_that_lie_apart_are_no_panel_however_long_the_pieces_of_them_are() -> None:
    """Pieces of 1536 bytes of rows of 2048, and rows of a panel with room between them."""
    s = product(36, 512, 512, (6, 3, 128))
    c = s.state.dag.tensors[-1]
    rows_of_tiles, columns, *_ = s[c].leaf_iter_vars
    s[c].reorder(columns, rows_of_tiles)
    assert all(place.startswith("k + ") for place, _ in asked(s, "B"))
    a, b = te.placeholder((24, 256), name="A"), te.placeholder((256, 192), name="B")
    p = te.compute((3, 256, 64), lambda j, k, v: b[k, j * 64 + v], name="P")
    s = tiled(times_panels(a, p))
    s[p].storage_align(s[p].op.axis[1], 128, 16)
    assert all(place.startswith("j.0, k + ") for place, _ in asked(s, "P"))
    check_all(Case.of(s.state))


def test_more_lines_of_a_panel_than_two_in_a_step_are_not_asked_for() -> None:
    assert {lines for _, lines in asked(tiled(packed(12, 3, 256)), "B")} == {2}
    assert not asked(tiled(packed(6, 3, 256)), "B")


def test_a_panel_of_fewer_elements_than_there_are_steps_is_not_asked_for() -> None:
    assert asked(tiled(packed(64 * 6, 3, 256)), "B")
    assert not asked(tiled(packed(65 * 6, 3, 256)), "B")


def test_what_is_packed_before_is_asked_for_and_what_is_packed_for_a_tile_is_not() -> None:
    a, b = te.placeholder((24, 256), name="A"), te.placeholder((256, 192), name="B")
    p = te.compute((3, 256, 64), lambda j, k, v: b[k, j * 64 + v], name="P")
    c = times_panels(a, p)
    s = tiled(c)
    assert asked(s, "P") == {("j.0 + 1, 0, i.0*4096 + k*16", 1)}
    check_all(Case.of(s.state))
    s = tiled(c)
    s[p].compute_at(s[c], s[c].leaf_iter_vars[0])
    assert not asked(s, "P")
    check_all(Case.of(s.state))


# -- where nothing is asked for ----------------------------------------------------------------------------


def test_a_reduction_that_was_not_told_asks_for_nothing() -> None:
    a, b = te.placeholder((12, 512), name="A"), te.placeholder((512, 128), name="B")
    r, q = te.reduce_axis((0, 512), "k"), te.reduce_axis((0, 512), "q")
    c = te.compute((12, 128), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    e = te.compute((12, 128), lambda i, j: te.max(a[i, q] * b[q, j] - c[i, j], axis=q), name="E")
    for told, silent in ((c, e), (e, c)):
        s = te.create_schedule(e)
        for one in (c, e):
            in_registers(s, one)
        s[told].read_ahead()
        nest = lower(s, limits=LIMITS)
        tiles = [
            x for x in walk_statements(nest.body) if isinstance(x, Alloc) and x.buffer.scope == "register"
        ]
        for tile in tiles:
            asks = any(isinstance(inner, Prefetch) for inner in walk_statements(tile))
            assert asks == tile.buffer.name.startswith(told.name)
        assert {tile.buffer.name[0] for tile in tiles} == {told.name, silent.name}
        check_all(Case.of(s.state))


def test_tiles_of_no_known_width_are_not_asked_for() -> None:
    """Rows and columns of pixels together."""
    x, w = te.placeholder((3, 8, 512), name="X"), te.placeholder((512, 64), name="W")
    c = te.reduce_axis((0, 512), "c")
    y = te.compute((3, 8, 64), lambda i, j, o: te.sum(x[i, j, c] * w[c, o], axis=c), name="Y")
    s = te.create_schedule(y)
    i, j, o = s[y].op.axis
    outer, inner = s[y].split(s[y].fuse(i, j), factor=5)
    s[y].reorder(outer, s[y].op.reduce_axis[0], inner, o)
    s[y].unroll(inner)
    s[y].vectorize(o)
    s[y].read_ahead()
    assert not asked(s, "X")


def test_of_fused_loops_the_next_iteration_is_one_that_moves_the_tile() -> None:
    s = product(36, 512, 512, (6, 4, 16))
    c = s.state.dag.tensors[-1]
    loops = s[c].leaf_iter_vars
    s[c].parallel(s[c].fuse(loops[0], loops[1]))
    (one,) = asked(s, "A")
    assert one == ("i.0@j.0@//8*6 + 6, k*6", 1)
    check_all(Case.of(s.state))


def test_all_inputs_of_a_sum_and_each_of_two_places_are_asked_for() -> None:
    a, b = te.placeholder((2, 12, 512), name="A"), te.placeholder((512, 128), name="B")
    r = te.reduce_axis((0, 512), "k")
    c = te.compute((12, 128), lambda i, j: te.sum((a[0, i, r] + a[1, i, r]) * b[r, j], axis=r), name="C")
    s = te.create_schedule(c)
    in_registers(s, c)
    s[c].read_ahead()
    assert asked(s, "A") == {("0, i.0*6 + 6, k*6", 1), ("1, i.0*6 + 6, k*6", 1)}


def test_vectors_of_many_rows_in_a_step_are_not_asked_for() -> None:
    x, w = te.placeholder((2048, 16, 64), name="X"), te.placeholder((2, 2048), name="W")
    c = te.reduce_axis((0, 2048), "c")
    y = te.compute((2, 16, 64), lambda o, h, v: te.sum(x[c, h, v] * w[o, c], axis=c), name="Y")
    s = te.create_schedule(y)
    o, h, v = s[y].op.axis
    ho, hi = s[y].split(h, factor=8)
    vo, vi = s[y].split(v, factor=16)
    s[y].reorder(ho, vo, s[y].op.reduce_axis[0], o, hi, vi)
    for loop in (o, hi):
        s[y].unroll(loop)
    s[y].vectorize(vi)
    s[y].read_ahead()
    assert not asked(s, "X")


def test_inputs_of_symbolic_sizes_are_not_asked_for() -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 512), name="A"), te.placeholder((512, 128), name="B")
    r = te.reduce_axis((0, 512), "k")
    c = te.compute((n, 128), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c)
    j, lanes = s[c].split(s[c].op.axis[1], factor=64)
    s[c].reorder(s[c].op.axis[0], j, s[c].op.reduce_axis[0], lanes)
    s[c].vectorize(lanes)
    s[c].read_ahead()
    assert not asked(s, "A")
    assert asked(s, "B")
    check_all(Case.of(s.state, {n: 3}))


def test_inputs_that_are_not_larger_are_not_asked_for() -> None:
    sizes = (12, 128, 512, (6, 4, 16))
    assert asked(product(*sizes, least=12 * 512 * 4 - 1), "A")
    assert not asked(product(*sizes, least=12 * 512 * 4), "A")
    assert asked(product(*sizes, least=12 * 512 * 4), "B")


def test_what_is_not_in_registers_asks_for_nothing() -> None:
    s = product(30, 128, 512, (30, 4, 16))
    assert not asked(s, "B")
    assert not asked(s, "A")


def test_kernels_do_not_ask() -> None:
    s = product(12, 128, 512, (6, 4, 16))
    c = s.state.dag.tensors[-1]
    plain = te.create_schedule(c)
    assert "prefetch" in str(lower(s, limits=LIMITS))
    plain[c].bind(plain[c].op.axis[0], "blockIdx.x")
    plain[c].bind(plain[c].op.axis[1], "threadIdx.x")
    plain[c].read_ahead()
    assert "prefetch" not in str(kernels(plain, list(plain.state.dag.tensors)))


def test_without_inputs_nothing_changes() -> None:
    nest = lower(product(6, 128, 512, (6, 4, 16)), limits=LIMITS)
    assert ask_for_inputs(nest.body, {}, Bounds()) is nest.body


# -- the step ----------------------------------------------------------------------------------------------


def test_the_step_is_printed_recorded_and_replayed() -> None:
    s = product(12, 128, 512, (6, 4, 16), least=1024)
    assert s.state.steps[-1].to_json() == ["RA", 2, 1024]
    assert "C read_ahead: 1024\n" in str(s)
    assert "s[C].read_ahead(1024)" in schedule_code(s.state)
    assert step_from_json(["RA", 2, 1024]) == ReadAheadStep(2, 1024)
    for wrong in ([2], [2, "64"], [2, 1, 1]):
        with pytest.raises(LogFormatError, match="step RA: expected"):
            step_from_json(["RA", *wrong])


def test_what_cannot_read_ahead_is_refused() -> None:
    x = te.placeholder((8, 8), name="X")
    k, m = te.reduce_axis((0, 8), "k"), te.reduce_axis((0, 8), "m")
    twice = te.compute((8, 8), lambda i, j: x[i, j] * 2.0, name="Twice")
    total = te.compute((8,), lambda i: te.sum(twice[i, k], axis=k), name="Total")
    least = te.compute((8,), lambda i: te.min(total[m] + te.cast(i, "float32"), axis=m), name="Least")
    s = te.create_schedule(least)
    with pytest.raises(ScheduleError, match="read_ahead of stage 'Twice': it is no reduction; prefetch asks"):
        s[twice].read_ahead()
    s[twice].compute_at(s[total], total.op.axis[0])
    with pytest.raises(ScheduleError, match="read_ahead of stage 'Total': it reads no input of the graph"):
        s[total].read_ahead()
    s[twice].compute_root()
    s[total].read_ahead()
    s[twice].compute_inline()
    s[total].read_ahead()
    with pytest.raises(ScheduleError, match="'Twice': it is inlined and has no loops"):
        s[twice].read_ahead()
    for wrong in (-1, 1e6, "64"):
        with pytest.raises(ScheduleError, match=f"a number of bytes, found {wrong!r}"):
            s[total].read_ahead(wrong)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="it has read_ahead"):
        s.rfactor(total, s[total].op.reduce_axis[0], 0)


@pytest.mark.parametrize(("dtype", "first"), [("float32", 0), ("float64", 1), ("float16", 0), ("int8", 1)])
@pytest.mark.parametrize(
    ("turn", "sizes", "tile"),
    [(0, (5, 40, 30), (4, 1, 24)), (1, (7, 33, 300), (3, 2, 8)), (0, (9, 64, 90), (4, 2, 16))],
)
def test_results_do_not_depend_on_it(
    turn: int, sizes: tuple[int, int, int], tile: tuple[int, int, int], first: int, dtype: str
) -> None:
    """One part and four take turns: every dtype, and every size, has both."""
    parts = (1, 4)[first ^ turn]
    check_all(Case.of(product(*sizes, tile, dtype=dtype, parts=parts).state))
