"""Prefetching: a step of a schedule, what it refuses, its code, and where the sketches have it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import LogFormatError, ScheduleError
from ansor.ir.nest import Alloc, Prefetch, Seq, Store, walk_statements
from ansor.ir.verify import check_nest
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.schedule.prefetch_steps import inputs_read
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.schedule.steps import PrefetchStep, step_from_json
from ansor.te.expr import Load, distinct_nodes
from ansor.te.tensor import Tensor
from ansor.workloads.catalogue import get_workload
from costmodel.extraction.extract import extract
from sketches import ProgramSpace
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from tests.gpu_schedules import kernels
from tests.program_laws import Case, check_all, check_replay
from tests.sketches_cases import CACHES

ZEN4 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2"
HARDWARE = ansor.HardwareParams(2, **CACHES)


def rows(n: int, m: int, dtype: str = "float32") -> tuple[Schedule, list[Tensor]]:
    """exp(X - the row's maximum), doubled; the second pass over a row asks for the next one."""
    x = te.placeholder((n, m), dtype, "X")
    k = te.reduce_axis((0, m), "k")
    most = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="Most")
    grown = te.compute((n, m), lambda i, j: te.exp(x[i, j] - most[i]), name="Grown")
    y = te.compute((n, m), lambda i, j: grown[i, j] * te.const(2, dtype), name="Y")
    s = te.create_schedule(y)
    i = s[y].op.axis[0]
    s[most].compute_at(s[y], i)
    s[grown].compute_at(s[y], i)
    s[y].parallel(i)
    s[grown].prefetch()
    return s, [x, y]


# -- the step ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m", "dtype"), [(5, 48, "float32"), (3, 37, "float64"), (4, 1, "float16")])
def test_what_is_computed_does_not_depend_on_it(n: int, m: int, dtype: str) -> None:
    s, _ = rows(n, m, dtype)
    check_all(Case.of(s.state))


def test_the_step_is_printed_recorded_and_replayed() -> None:
    s, tensors = rows(4, 32)
    assert s.state.steps[-1].to_json() == ["PF", 2]
    assert "  Grown prefetch\n" in str(s)
    assert "s[Grown].prefetch()" in schedule_code(s.state)
    assert "prefetch near X[i + 1, j*8 + j.v]" in str(lower(s))
    task = ansor.SearchTask(compute_dag=tensors, target="llvm")
    line = ansor.dump_record_to_string(
        ansor.MeasureInput(task, s.state), ansor.MeasureResult([1e-3], 0, "", 1.0, 0.0)
    )
    assert line.startswith("# ansor ")


def test_a_line_is_asked_for_once() -> None:
    s, tensors = rows(8, 512)
    text = ansor.build(s, tensors, target=ZEN4).get_source("asm")
    assert text.count("prefetcht0") == 1  # in a loop over vectors of a line each
    s, tensors = rows(8, 16, "float64")
    text = ansor.build(s, tensors, target="llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3").get_source("asm")
    assert "prefetcht0" in text


def test_what_the_first_cache_has_no_room_for_goes_to_the_second() -> None:
    for m, cache in ((2048, "prefetcht0"), (2064, "prefetcht1")):
        s, tensors = rows(8, m)
        assert cache in ansor.build(s, tensors, target=ZEN4).get_source("asm")


def test_the_loop_around_may_be_further_out_or_fused() -> None:
    x = te.placeholder((6, 4, 32), name="X")
    b = te.compute((6, 4, 32), lambda i, j, k: te.sqrt(x[i, j, k]), name="B")
    c = te.compute((6, 4, 32), lambda i, j, k: b[i, j, k] + 1.0, name="C")
    s = te.create_schedule(c)
    i, j, _ = s[c].op.axis
    fused = s[c].fuse(i, j)
    s[b].compute_at(s[c], fused)
    s[b].prefetch()
    check_all(Case.of(s.state))
    (ahead,) = (one for one in walk_statements(lower(s).body) if isinstance(one, Prefetch))
    assert ahead.buffer.name == "X"


def test_what_cannot_ask_ahead_is_refused() -> None:
    x = te.placeholder((8, 8), name="X")
    b = te.compute((8, 8), lambda i, j: x[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 8), "k")
    total = te.compute((8,), lambda i: te.sum(x[i, k] * b[i, k], axis=k), name="Total")
    c = te.compute((8, 8), lambda i, j: b[i, j] * total[i], name="C")
    s = te.create_schedule(c)
    with pytest.raises(ScheduleError, match="stage 'B': there is no loop around it"):
        s[b].prefetch()
    with pytest.raises(ScheduleError, match="stage 'Total': there is no loop around it"):
        s[total].prefetch()
    with pytest.raises(ScheduleError, match="stage 'Total': the room is a number of bytes, found -1"):
        s[total].prefetch(-1)
    d = te.compute((8, 8), lambda i, j: c[i, j] * 2.0, name="D")
    s = te.create_schedule(d)
    s[c].compute_at(s[d], s[d].op.axis[0])
    with pytest.raises(ScheduleError, match="stage 'C': it reads no input"):
        s[c].prefetch()
    s[b].compute_inline()
    with pytest.raises(ScheduleError, match="stage 'B': it is inlined and has no loops"):
        s[b].prefetch(64)


def test_a_stage_with_it_has_its_copies_made_before() -> None:
    """A stage that takes its place would not ask ahead."""
    x = te.placeholder((8, 8), name="X")
    k = te.reduce_axis((0, 8), "k")
    b = te.compute((8,), lambda i: te.max(x[i, k], axis=k), name="B")
    s = te.create_schedule(b)
    s[b].prefetch(64)
    with pytest.raises(ScheduleError, match="stage 'B': it has prefetch; apply cache_write first"):
        s.cache_write(b, "local")
    with pytest.raises(ScheduleError, match="stage 'B': it has prefetch; apply rfactor first"):
        s.rfactor(b, s[b].op.reduce_axis[0])


def test_what_an_inlined_stage_reads_is_asked_for() -> None:
    x = te.placeholder((8, 32), name="X")
    b = te.compute((8, 32), lambda i, j: x[i, j] + 1.0, name="B")
    c = te.compute((8, 32), lambda i, j: te.exp(b[i, j]), name="C")
    d = te.compute((8, 32), lambda i, j: c[i, j] * 2.0, name="D")
    s = te.create_schedule(d)
    s[b].compute_inline()
    s[c].compute_at(s[d], s[d].op.axis[0])
    s[c].prefetch()
    assert "prefetch near X[i + 1" in str(lower(s))
    check_all(Case.of(s.state))


# -- windows -----------------------------------------------------------------------------------------------


def pool(
    n: int = 3, h: int = 12, c: int = 32, dtype: str = "float32", rows: int = 2, channels: int = 16
) -> tuple[Schedule, list[Tensor]]:
    """A maximum over 3x3 pixels every 2 pixels, tiled to so many rows and channels, its padding inlined."""
    x = te.placeholder((n, h, h, c), dtype, "X")
    inside = te.compute(
        (n, h + 2, h + 2, c),
        lambda b, i, j, k: te.if_then_else(
            te.all(i > 0, i <= h, j > 0, j <= h), x[b, i - 1, j - 1, k], te.const(-60000, dtype)
        ),
        name="Pad",
    )
    u, v = te.reduce_axis((0, 3), "u"), te.reduce_axis((0, 3), "v")
    y = te.compute(
        (n, h // 2, h // 2, c),
        lambda b, i, j, k: te.max(inside[b, i * 2 + u, j * 2 + v, k], axis=[u, v]),
        name="Y",
    )
    s = te.create_schedule(y)
    s[inside].compute_inline()
    b, i, j, k = s[y].op.axis
    io, ii = s[y].split(i, factor=rows)
    ko, ki = s[y].split(k, factor=channels)
    s[y].reorder(b, io, j, ko, u, v, ii, ki)
    s[y].vectorize(ki)
    return s, [x, y]


ROOMS = (1, 5 * 3 * 16 * 4, 5 * 3 * 32 * 4, 5 * 13 * 32 * 4, 1 << 20)
"""Nothing, then what one iteration of ever more loops of `pool()` reads."""


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize(
    ("size", "dtype", "rows", "channels"),
    [(12, "float32", 2, 16), (10, "float16", 3, 24), (8, "float64", 1, 7)],
)
def test_windows_do_not_depend_on_it(room: int, size: int, dtype: str, rows: int, channels: int) -> None:
    s, tensors = pool(h=size, dtype=dtype, rows=rows, channels=channels)
    s[tensors[-1]].prefetch(room)
    check_all(Case.of(s.state))


def asked(schedule: Schedule) -> str | None:
    """The one statement that asks ahead, as printed, without its loops."""
    lines = [line.strip() for line in str(lower(schedule)).splitlines() if "prefetch" in line]
    return lines[0].removeprefix("prefetch ") if lines else None


PLACES = (
    None,
    "near X[b, i.0*4 + ahead1 - 1, j*2 + ahead2 - 1, k.0*16 + 16]",
    "near X[b, i.0*4 + ahead1 - 1, j*2 + ahead2 + 1, k.0*16]",
    "X[b, i.0*4 + ahead1 + 3, j*2 + ahead2 - 1, k.0*16]",
    "X[b + 1, i.0*4 + ahead1 - 1, j*2 + ahead2 - 1, k.0*16]",
)


@pytest.mark.parametrize(("room", "place"), list(zip(ROOMS, PLACES, strict=True)))
def test_the_room_says_along_which_loop(room: int, place: str | None) -> None:
    s, tensors = pool()
    s[tensors[-1]].prefetch(room)
    assert asked(s) == place


def test_each_line_of_overlapping_windows_is_asked_for_once_before_the_registers_are_set() -> None:
    s, tensors = pool(c=64, channels=32)
    s[tensors[-1]].prefetch(1 << 15)
    text = str(lower(s))
    expected = """\
        for ahead1 in 0..5:
          for ahead2 in 0..3:
            for ahead3 in 0..2:
              prefetch X[b, i.0*4 + ahead1 + 3, j*2 + ahead2 - 1, k.0*32 + ahead3*16]
        allocate Y.acc[2, 32] float32 register
"""
    assert expected in text


def test_asking_for_a_long_row_is_no_straight_code() -> None:
    x = te.placeholder((4, 4096), name="X")
    k = te.reduce_axis((0, 4096), "k")
    y = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    s = te.create_schedule(y)
    s[y].pragma(s[y].op.axis[0], "auto_unroll_max_step", 16)
    s[y].prefetch(1 << 20)
    assert "for ahead1 in 0..256" in str(lower(s))
    check_all(Case.of(s.state))


def test_a_store_may_ask_along_its_own_loops_but_for_lanes() -> None:
    x = te.placeholder((6, 4, 32), name="X")
    y = te.compute((6, 4, 32), lambda i, j, k: x[i, j, k] * 2.0, name="Y")
    for room, place in ((4, None), (32 * 4, "near X[i, j + 1, k]"), (4 * 32 * 4, "near X[i + 1, j, k]")):
        s = te.create_schedule(y)
        s[y].vectorize(s[y].op.axis[2])
        s[y].prefetch(room)
        assert asked(s) == place
        check_all(Case.of(s.state))


def test_a_window_of_unknown_size_asks_for_nothing() -> None:
    n = te.var("n")
    x = te.placeholder((8, n), name="X")
    k = te.reduce_axis((0, n), "k")
    y = te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    s = te.create_schedule(y)
    s[y].prefetch(1 << 20)
    assert asked(s) is None
    check_all(Case.of(s.state, {n: 5}))


def test_the_room_is_printed_and_recorded_and_records_without_one_are_read() -> None:
    s, tensors = pool()
    s[tensors[-1]].prefetch(4096)
    assert s.state.steps[-1].to_json() == ["PF", 2, 4096]
    assert "Y prefetch: 4096\n" in str(s)
    assert "s[Y].prefetch(4096)" in schedule_code(s.state)
    assert step_from_json(["PF", 2]) == PrefetchStep(2, 0)
    for wrong in ([], [2, 64, 1], [2, "64"], [2, True]):
        with pytest.raises(LogFormatError, match="step PF: expected a stage and a room"):
            step_from_json(["PF", *wrong])


def test_rows_that_are_never_there_are_not_asked_for() -> None:
    """One row of padding below those of the input; below the only one, nothing but padding is next."""
    for rows, place in ((2, "near X[i + 1, j]"), (1, None)):
        x = te.placeholder((rows, 32), name="X")
        y = te.compute(
            (rows + 1, 32), lambda i, j, x=x, rows=rows: te.if_then_else(i < rows, x[i, j], 0.0), name="Y"
        )
        s = te.create_schedule(y)
        s[y].vectorize(s[y].op.axis[1])
        s[y].prefetch(32 * 4)
        assert asked(s) == place
        check_all(Case.of(s.state))


@pytest.mark.parametrize(("n", "m", "dtype"), [(8, 9, "float32"), (9, 5, "float64"), (6, 11, "float32")])
def test_the_rest_of_the_last_row_asks_for_no_row_behind_it(n: int, m: int, dtype: str) -> None:
    x = te.placeholder((n, m), dtype, "X")
    y = te.compute((n, m), lambda i, j: x[i, j] - x[i, j], name="Y")
    s = te.create_schedule(y)
    s[y].vectorize(s[y].op.axis[1])
    s[y].prefetch(1024)
    nest = ansor.lower(s, target=ZEN4)
    assert "prefetch near X" in str(nest)
    check_nest(nest)
    check_all(Case.of(s.state))


def test_a_last_tile_that_is_not_whole_asks_for_no_tile_behind_it() -> None:
    x = te.placeholder((5, 32), name="X")
    y = te.compute((5, 32), lambda i, j: te.exp(x[i, j]), name="Y")
    s = te.create_schedule(y)
    _, inner = s[y].split(s[y].op.axis[0], factor=2)
    s[y].vectorize(s[y].op.axis[1])
    s[y].unroll(inner)
    s[y].prefetch(2 * 32 * 4)
    whole, rest = str(lower(s)).split("else:")
    assert "prefetch near X[i.0*2 + i.1 + 2, j]" in whole
    assert "prefetch" not in rest
    check_all(Case.of(s.state))


def test_kernels_do_not_ask() -> None:
    s, tensors = pool()
    y = tensors[-1]
    s[y].prefetch(1 << 14)
    loops = s[y].leaf_iter_vars
    s[y].bind(loops[0], "blockIdx.x")
    s[y].bind(loops[1], "threadIdx.x")
    assert "prefetch" not in str(kernels(s, tensors))


# -- the sketches ------------------------------------------------------------------------------------------


def space_of(n: int, m: int, **params: int) -> ProgramSpace:
    task = ansor.SearchTask("ansor.softmax", (n, m), target=ZEN4, hardware_params=HARDWARE)
    return ProgramSpace.of(task, params)


def window_programs(
    name: str,
    *args: int,
    hardware: ansor.HardwareParams = HARDWARE,
    option: ansor.LayoutRewriteOption = ansor.LayoutRewriteOption.NO_REWRITE,
    **params: int,
) -> list[State]:
    tensors = get_workload(name).tensors(*args)
    task = ansor.SearchTask(
        compute_dag=tensors, target=ZEN4, hardware_params=hardware, layout_rewrite_option=option
    )
    return programs(ProgramSpace.of(task, params))


def programs(space: ProgramSpace) -> list[State]:
    sample = space.sample(60, np.random.default_rng(0))
    return [p.materialize(row) for p in sample.populations for row in range(min(len(p), 4))]


def asks(state: State) -> bool:
    return any(step.code in ("PF", "RA") for step in state.steps)


def rows_only(state: State) -> bool:
    """Whether the others are computed in the output's loop over rows, none for each element."""
    return (len(state.stages) - 1, 0) in state.attach.values()


def passes(state: State) -> int:
    """How many stores in the loops around that of the exponentials, and in these, read the input."""
    body = lower(state, simple_mode=True).body
    while isinstance(body, Alloc):
        body = body.body
    (around,) = (
        part
        for part in (body.stmts if isinstance(body, Seq) else (body,))
        if any(isinstance(one, Store) and one.buffer.name == "Exp" for one in walk_statements(part))
    )
    return sum(
        any(isinstance(node, Load) and node.buffer.name == "X" for node in distinct_nodes(one.value))
        for one in walk_statements(around)
        if isinstance(one, Store)
    )


def test_programs_ask_for_the_next_row_where_one_is_passed_over_twice() -> None:
    kinds = set()
    for state in programs(space_of(4096, 1024)):
        exp = next(i for i, stage in enumerate(state.stages) if stage.name == "Exp")
        last = len(state.stages) - 1
        innermost = {(exp, 1), (last, len(state.stages[last].iterators) - 1)}
        if innermost & set(state.attach.values()):
            continue  # a maximum, or all exponentials, for each element
        again = passes(state) > 1
        assert asks(state) == again
        kinds.add(again)
        check_replay(state)
    assert kinds == {False, True}


def test_no_program_asks_where_the_cache_holds_the_input_or_the_parameter_says_so() -> None:
    assert not any(map(asks, programs(space_of(64, 256))))
    assert not any(map(asks, programs(space_of(4096, 1024, cpu_prefetch=0))))


def test_the_stage_around_the_others_asks_for_the_next_row_where_the_first_cache_has_room_for_it() -> None:
    """Layer norms: the output passes over rows that the mean and the squares have read."""
    found = [state for state in window_programs("layer_norm", 512, 1024) if asks(state)]
    assert found
    assert all(
        ["PF", len(state.stages) - 1, 32 << 10] in [step.to_json() for step in state.steps] for state in found
    )
    assert any("prefetch near X[i + 1" in str(lower(state)) for state in found)
    long_rows = [state for state in window_programs("layer_norm", 512, 8192) if rows_only(state)]
    assert long_rows
    assert not any(map(asks, long_rows))
    assert not any(map(asks, window_programs("layer_norm", 128, 1024)))


@pytest.mark.parametrize(
    ("name", "args"),
    [("max_pool2d", (64, 112, 112, 64, 3, 2, 1)), ("avg_pool2d", (64, 56, 56, 256, 2, 2, 0))],
)
def test_windows_of_inputs_that_no_cache_holds_ask_for_the_next_rows(
    name: str, args: tuple[int, ...]
) -> None:
    found = window_programs(name, *args)
    for state in found:
        stage = reducing(state)
        expected = [["PF", stage, 1 << 18]] if inputs_read(state, stage) else []  # else padding is stored
        assert [step.to_json() for step in state.steps if step.code == "PF"] == expected
        check_replay(state)
    assert any("prefetch" in str(lower(state)) for state in found)
    assert not any(map(asks, window_programs(name, *args, cpu_prefetch=0)))
    assert not any(map(asks, window_programs(name, 1, *args[1:])))


def test_caches_that_the_task_tells_decide_what_is_asked_for() -> None:
    args = (64, 56, 56, 256, 2, 2, 0)  # 205 MB
    small = replace(HARDWARE, l2_bytes=256 << 10)
    steps = {
        tuple(step.to_json())
        for state in window_programs("avg_pool2d", *args, hardware=small)
        for step in state.steps
        if step.code == "PF"
    }
    assert {step[2] for step in steps} == {64 << 10}
    large = replace(HARDWARE, l3_bytes=1 << 30)
    assert not any(map(asks, window_programs("avg_pool2d", *args, hardware=large)))


def test_asking_ahead_changes_no_feature() -> None:
    args = (64, 56, 56, 256, 2, 2, 0)
    task = ansor.SearchTask("ansor.avg_pool2d", args, target=ZEN4, hardware_params=HARDWARE)
    asking = programs(ProgramSpace.of(task))
    silent = [State.replay(one.dag, [step for step in one.steps if step.code != "PF"]) for one in asking]
    assert not any(map(asks, silent))
    assert np.array_equal(extract(task, asking).values, extract(task, silent).values)


def reducing(state: State) -> int:
    """The one stage that reduces."""
    (found,) = (
        at for at, one in enumerate(state.stages) if not one.is_placeholder and one.combiner is not None
    )
    return found


def test_products_long_rows_and_windows_that_overlap_much_do_not_ask() -> None:
    assert not any(map(asks, window_programs("conv2d", 64, 56, 56, 64, 64, 3, 1, 1)))
    assert not any(map(asks, window_programs("norm", 1, 8192, 4096)))
    assert not any(map(asks, window_programs("max_pool2d", 64, 112, 112, 64, 3, 1, 1)))


@pytest.mark.parametrize(
    ("name", "args"),
    [("matmul", (64, 4096, 1024)), ("matmul", (1, 4096, 4096)), ("batch_matmul", (4, 512, 512, 512))],
)
def test_products_of_large_inputs_read_ahead(name: str, args: tuple[int, ...]) -> None:
    found = window_programs(name, *args)
    for state in found:
        stage = reducing(state)
        large = {x.name for x in inputs_read(state, stage)} & {"B", *(["A"] if args[0] == 4 else [])}
        expected = [["RA", stage, 1 << 20]] if large else []  # else it is packed, by a stage of its own
        assert [step.to_json() for step in state.steps if step.code in ("PF", "RA")] == expected
        check_replay(state)
    asked = any("prefetch B" in str(ansor.lower(Schedule(state), target=ZEN4)) for state in found)
    assert asked or args[0] == 4  # of which this sample has narrow tiles alone


def test_products_do_not_read_ahead_in_small_inputs_nor_in_constants() -> None:
    assert not any(map(asks, window_programs("matmul", 512, 512, 512)))
    assert not any(map(asks, window_programs("matmul", 64, 4096, 1024, cpu_prefetch=0)))
    rewritten = ansor.LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
    assert not any(map(asks, window_programs("matmul", 64, 4096, 1024, option=rewritten)))


@pytest.mark.parametrize(
    ("name", "args"), [("softmax", (4096, 1024)), ("avg_pool2d", (640, 56, 56, 256, 2, 2, 0))]
)
def test_a_logged_program_is_found_again(name: str, args: tuple[int, ...]) -> None:
    task = ansor.SearchTask(compute_dag=get_workload(name).tensors(*args), target=ZEN4)
    space = ProgramSpace.of(task)
    asking = [state for state in programs(space) if asks(state)]
    for state in asking:
        found = locate(Neighbourhood(space), state)
        assert found is not None
        family, (row,) = found
        assert family.program(row) == state.steps
    assert asking
