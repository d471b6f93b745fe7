"""Streaming stores: a step of a schedule, what it refuses, and the code that it leads to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.errors import LoweringError, ScheduleError
from ansor.ir.nest import For, LoopKind, LoopNest, Store
from ansor.ir.verify import check_nest
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.schedule.source import schedule_code
from ansor.te.buffer import Buffer
from ansor.te.expr import Load, Var, const
from ansor.te.tensor import Tensor
from measure.emit import emit_program
from tests.program_laws import Case, check_all

X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"


def relu(
    *shape: int, parallel: bool = True, vector: int = 16, dtype: str = "float32"
) -> tuple[Schedule, list[Tensor]]:
    """max(A, 0), all loops fused, in vectors of some elements, with streaming stores."""
    a = te.placeholder(shape, dtype, "A")
    b = te.compute(shape, lambda *at: te.maximum(a[at], te.const(0, dtype)), name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(s[b].fuse(*b.op.axis), vector)
    if parallel:
        s[b].parallel(outer)
    s[b].vectorize(inner)
    s[b].streaming_stores()
    return s, [a, b]


def instructions(s: Schedule, tensors: list[Tensor], target: str) -> list[str]:
    text = ansor.build(s, tensors, target=target, name="relu").get_source("asm")
    return [line.split()[0] for line in text.splitlines() if line.startswith("\t")]


# -- the step ----------------------------------------------------------------------------------------------


def test_the_step_is_printed_recorded_and_replayed() -> None:
    s, _ = relu(4, 32)
    assert s.state.steps[-1].to_json() == ["NTS", 1]
    assert "B streaming_stores\n" in str(s)
    assert "s[B].streaming_stores()" in schedule_code(s.state)
    assert "-> B: float32[4, 32] streamed\n" in str(lower(s))
    check_all(Case.of(s.state))


def test_a_record_with_it_is_one_that_tvm_skips() -> None:
    s, tensors = relu(4, 32)
    task = ansor.SearchTask(compute_dag=tensors, target="llvm")
    line = ansor.dump_record_to_string(
        ansor.MeasureInput(task, s.state), ansor.MeasureResult([1e-3], 0, "", 1.0, 0.0)
    )
    assert line.startswith("# ansor ")


def test_results_that_stages_read_again_do_not_stream() -> None:
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((8,), lambda i: te.sum(b[i, k], axis=k), name="C")
    with pytest.raises(ScheduleError, match="stage 'B': it is no output"):
        te.create_schedule([c])[b].streaming_stores()
    with pytest.raises(ScheduleError, match="stage 'B': what it stores is read again, by 'C'"):
        te.create_schedule([b, c])[b].streaming_stores()


@pytest.mark.parametrize("width", [16, 1024])
def test_a_reduction_streams_where_registers_hold_its_results_all_the_time(width: int) -> None:
    a = te.placeholder((8, 4, 1024), name="A")
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute((8, 1024), lambda i, j: te.sum(a[i, k, j], axis=k), name="C")
    s = te.create_schedule(c)
    outer, inner = s[c].split(c.op.axis[1], width)
    s[c].reorder(c.op.axis[0], outer, k, inner)
    s[c].vectorize(inner)
    s[c].streaming_stores()
    assert not lower(s, simple_mode=True).streamed, "the loops as written add in memory"
    assert lower(s).streamed == ((1,) if width == 16 else ())
    check_all(Case.of(s.state))


def test_a_stage_with_it_has_its_copies_made_before() -> None:
    s, (_, b) = relu(4, 32)
    with pytest.raises(ScheduleError, match=r"transformed|streaming_stores"):
        s.cache_write(b, "local")
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b)
    s[b].streaming_stores()
    with pytest.raises(ScheduleError, match="stage 'B': it has streaming_stores; apply cache_write first"):
        s.cache_write(b, "local")


def test_a_nest_whose_streamed_buffer_is_read_is_none() -> None:
    x, y, i = Buffer("x", "float32", (8,)), Buffer("y", "float32", (8,)), Var("i")
    good = For(i, 8, LoopKind.SERIAL, Store(y, (i,), const(1.0, "float32")))
    check_nest(LoopNest("k", (x, y), (), good, (1,), (1,)))
    with pytest.raises(LoweringError, match="parameter 0 is streamed and no output"):
        check_nest(LoopNest("k", (x, y), (), good, (1,), (0,)))
    bad = For(i, 8, LoopKind.SERIAL, Store(y, (i,), Load(y, (i,), "float32")))
    with pytest.raises(LoweringError, match="the streamed 'y' is read"):
        check_nest(LoopNest("k", (x, y), (), bad, (1,), (1,)))


# -- the code ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cpu", ["x86-64", "haswell", "skylake-avx512", "znver4"])
def test_whole_aligned_vectors_pass_the_caches_by_and_are_done_when_a_thread_is(cpu: str) -> None:
    found = instructions(*relu(64, 64), X86 + cpu)
    streaming = [at for at, name in enumerate(found) if "movnt" in name]
    assert streaming
    assert all("movntp" in found[at] for at in streaming), found  # vectors, none in elements
    assert "sfence" in found[streaming[-1] :][: found[streaming[-1] :].index("retq")]


def test_other_machines_have_their_own_instructions_and_need_no_fence() -> None:
    text = "\n".join(instructions(*relu(64, 64), ARM))
    assert "stnp" in text
    assert "sfence" not in text


@pytest.mark.parametrize("offset", [0, 1, 4, 8, 16])
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((64, 64), "float32"), ((7, 24), "float32"), ((9, 64), "uint8")]
)
def test_results_are_right_wherever_the_output_lies(
    offset: int, parallel: bool, shape: tuple[int, ...], dtype: str
) -> None:
    s, tensors = relu(*shape, parallel=parallel, dtype=dtype, vector=24 if shape[1] == 24 else 16)
    kernel = ansor.build(s, tensors, name="relu")
    x = np.random.default_rng(0).integers(0, 99, shape).astype(dtype) - np.array(20, dtype)
    size = x.size
    room = ansor.aligned_empty((size + 64,), dtype)
    room[...] = 77
    y = room[offset : offset + size].reshape(shape)
    kernel(x, y)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    assert (room[:offset] == 77).all()
    assert (room[offset + size :] == 77).all()


def versions(s: Schedule, tensors: list[Tensor]) -> tuple[str, dict[str, Any]]:
    machine = Machine.of("x86_64-linux-gnu", "znver4")
    text = emit_llvm(ansor.lower(s, tensors, name="relu", target=X86 + "znver4"), machine)
    heads = [part.split("(")[0].split()[-1] for part in text.split("\ndefine ")[1:]]
    return text, dict.fromkeys(heads)


def test_a_function_that_streams_is_written_twice_and_one_that_cannot_once() -> None:
    text, names = versions(*relu(64, 64))
    assert {"@relu", "@relu.streaming", "@relu.cached"} <= set(names)
    assert text.count("!nontemporal") == 1
    for cannot in (relu(64, 63, vector=3), relu(5, 7, vector=5)):  # vectors that lie anywhere
        text, names = versions(*cannot)
        assert "!nontemporal" not in text
        assert not any("streaming" in name or "cached" in name for name in names)


def test_where_outputs_are_known_to_be_aligned_one_version_does() -> None:
    s, tensors = relu(64, 64)
    machine = Machine.of("x86_64-linux-gnu", "znver4")
    text = emit_llvm(ansor.lower(s, tensors, name="relu", target=X86 + "znver4"), machine, aligned=True)
    assert text.count("!nontemporal") == 1
    assert ".cached" not in text
    task = ansor.SearchTask(compute_dag=tensors, target=X86 + "znver4")
    assert emit_program(s.state, task.compute_dag.tensors, task.target).text.count("!nontemporal") == 1


def test_all_outputs_must_lie_on_cache_lines() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((64,), lambda i: a[i] * 2.0, name="C")
    s = te.create_schedule([b, c])
    for tensor in (b, c):
        s[tensor].vectorize(s[tensor].split(tensor.op.axis[0], 16)[1])
        s[tensor].streaming_stores()
    kernel = ansor.build(s, [a, b, c], name="pair")
    x = np.arange(64, dtype=np.float32)
    for first, second in ((0, 0), (0, 4), (4, 0), (1, 3)):
        rooms = [ansor.aligned_empty((80,), "float32")[at : at + 64] for at in (first, second)]
        kernel(x, *rooms)
        np.testing.assert_array_equal(rooms[0], x + 1)
        np.testing.assert_array_equal(rooms[1], x * 2)
