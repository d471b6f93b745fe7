"""Tensor intrinsics: patterns, where they match, the step, and the law that a tensorized program is right."""

from __future__ import annotations

import itertools
import re
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.machine import Machine
from ansor.errors import DefinitionError, ScheduleError
from ansor.intrinsics import (
    Axes,
    TensorIntrinsic,
    get_tensor_intrinsic,
    match,
    pattern,
    tensor_intrinsics,
)
from ansor.intrinsics.known import dot_pattern
from ansor.schedule.lowering import lower
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.workloads.catalogue import get_workload
from tests.program_laws import Case, check_all

VNNI, BF16 = "x86.vpdpbusd.512", "x86.vdpbf16ps.512"
X86 = "llvm -mtriple=x86_64-linux-gnu"


def product(n: int, m: int, k: int, first: str, second: str, out: str) -> te.Tensor:
    a, b = te.placeholder((n, k), first, "A"), te.placeholder((k, m), second, "B")
    r = te.reduce_axis((0, k), "k")
    element = lambda i, j: te.sum(te.cast(a[i, r], out) * te.cast(b[r, j], out), axis=r)  # noqa: E731
    return te.compute((n, m), element, name="C")


def tensorized(
    c: te.Tensor, name: str, rows: int = 3, columns: int = 2, steps: int = 1, pack: bool = True
) -> Any:
    """A matrix product in tiles of `rows` times `columns` registers, B in the order of the instruction."""
    one = get_tensor_intrinsic(name)
    s = te.create_schedule(c)
    b = next(t for t in c.op.input_tensors if t.name == "B")
    packed = s.cache_read(b, "global", c) if pack else b
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    j_outer, lanes = s[c].split(j, factor=one.lanes)
    k_outer, products = s[c].split(k, factor=one.depth)
    i_outer, i_inner = s[c].split(i, factor=rows)
    j_outer, j_inner = s[c].split(j_outer, factor=columns)
    k_outer, k_inner = s[c].split(k_outer, factor=steps)
    s[c].reorder(i_outer, j_outer, k_outer, k_inner, i_inner, j_inner, lanes, products)
    s[c].tensorize(lanes, name)
    if pack:
        s.rewrite_layout(packed, [(1, None), (0, None), (1, one.lanes), (0, one.depth)])
    return s


def kind(name: str) -> tuple[str, str, str]:
    """The dtypes of both operands and of the result."""
    first, second = (operand.dtype for operand in get_tensor_intrinsic(name).operands)
    return first, second, get_tensor_intrinsic(name).dtype


# -- patterns and matching ---------------------------------------------------------------------------


def test_patterns_say_lanes_products_and_what_lanes_share() -> None:
    one = get_tensor_intrinsic(VNNI)
    assert (one.lanes, one.depth, one.dtype, one.bits) == (16, 4, "int32", 512)
    assert [operand.dtype for operand in one.operands] == ["uint8", "int8"]
    assert one.varies == (False, True)
    with pytest.raises(DefinitionError, match=r"no tensor intrinsic 'x87'.*x86\.vpdpbusd\.512"):
        get_tensor_intrinsic("x87")


def test_a_pattern_of_another_form_is_refused() -> None:
    def define(c: te.Tensor) -> None:
        TensorIntrinsic("mine", c, "mine", "llvm.mine", "i32")

    a, b = te.placeholder((4,), "int8", "A"), te.placeholder((16, 4), "int8", "B")
    k = te.reduce_axis((0, 4), "k")
    with pytest.raises(DefinitionError, match="one spatial axis"):
        define(te.compute((16, 2), lambda i, j: te.sum(te.cast(b[i, k], "int32"), axis=k)))
    with pytest.raises(DefinitionError, match=r"must be te\.sum\(te\.cast"):
        define(
            te.compute((16,), lambda i: te.max(te.cast(a[k], "int32") * te.cast(b[i, k], "int32"), axis=k))
        )
    with pytest.raises(DefinitionError, match="the same in all lanes"):
        define(
            te.compute(
                (16,), lambda i: te.sum(te.cast(a[k], "int32") * te.cast(b[15 - i, k], "int32"), axis=k)
            )
        )


def test_matches_name_the_axes_best_first() -> None:
    one = get_tensor_intrinsic(VNNI)
    assert match(product(8, 32, 16, "uint8", "int8", "int32").op, one) == (Axes("j", "k"),)
    bf16 = get_tensor_intrinsic(BF16)
    assert match(product(8, 32, 16, "bfloat16", "bfloat16", "float32").op, bf16)[0] == Axes("j", "k")
    conv = get_workload("conv2d").tensors(1, 8, 8, 16, 32, 3, 1, 1, 1, 1, "bfloat16", "float32")[-1]
    assert match(conv.op, bf16)[0] == Axes("c", "rc")


def test_other_computations_do_not_match() -> None:
    one = get_tensor_intrinsic(VNNI)
    for dtypes in (("int8", "int8", "int32"), ("uint8", "int8", "int64"), ("uint8", "uint8", "int32")):
        assert match(product(8, 32, 16, *dtypes).op, one) == ()
    a, b = te.placeholder((8, 16), "uint8", "A"), te.placeholder((16, 32), "int8", "B")
    k = te.reduce_axis((0, 16), "k")
    wide = lambda i, j: te.cast(a[i, k], "int32") * te.cast(b[k, j], "int32")  # noqa: E731
    for element in (
        lambda i, j: te.max(wide(i, j), axis=k),
        lambda i, j: te.sum(wide(i, j), axis=k, where=k < i),
        lambda i, j: te.sum(wide(i, j) + 1, axis=k),
        lambda i, j: te.sum(te.cast(a[i, k], "int32") + te.cast(b[k, j], "int32"), axis=k),
    ):
        assert match(te.compute((8, 32), element).op, one) == ()


# -- the step ------------------------------------------------------------------------------------------


def test_the_step_prints_records_and_replays() -> None:
    s = tensorized(product(6, 64, 16, *kind(VNNI)), VNNI)
    assert "vectorize j.1 (0,16)\n" in str(s)
    assert "tensorize k.1 (0,4)\n" in str(s)
    step = next(step for step in s.state.steps if step.code == "TI")
    assert (step.to_json()[0], step.to_json()[-1], step.in_reference) == ("TI", VNNI, False)
    assert State.replay(s.state.dag, [x.to_json() for x in s.state.steps]) == s.state
    assert f", {VNNI!r})" in schedule_code(s.state)


def test_a_record_with_the_step_is_a_comment_to_other_readers(tmp_path: Any) -> None:
    path = str(tmp_path / "log.json")
    c = product(6, 64, 16, *kind(VNNI))
    task = ansor.SearchTask(compute_dag=[*c.op.input_tensors, c], target="llvm")
    state = State.replay(task.compute_dag, tensorized(c, VNNI).state.steps)
    ansor.save_records(path, [ansor.MeasureInput(task, state)], [ansor.MeasureResult((1.0,), timestamp=1)])
    with open(path) as log:
        assert log.read().startswith("# ansor ")
    ((inp, _),) = ansor.load_records(path)
    assert inp.state.steps == state.steps


def test_loops_that_do_not_fit_are_refused() -> None:
    def schedule(k: int = 16, lanes: int = 16, depth: int = 4) -> tuple[Any, Any, Any, Any]:
        c = product(6, 64, k, *kind(VNNI))
        s = te.create_schedule(c)
        _, lane = s[c].split(s[c].op.axis[1], factor=lanes)
        outer, inner = s[c].split(s[c].op.reduce_axis[0], factor=depth)
        s[c].reorder(outer, lane, inner)
        return s, c, lane, inner

    s, c, lane, inner = schedule()
    with pytest.raises(ScheduleError, match="two innermost loops"):
        s[c].tensorize(inner, VNNI)
    with pytest.raises(ScheduleError, match="no tensor intrinsic 'mine'"):
        s[c].tensorize(lane, "mine")
    other = product(6, 64, 16, "int8", "int8", "int64")
    with pytest.raises(ScheduleError, match="has not the form of"):
        tensorized(other, VNNI)
    for wrong in ({"lanes": 8}, {"depth": 2}):
        s, c, lane, _ = schedule(**wrong)
        with pytest.raises(ScheduleError, match="16 lanes of 4 products"):
            s[c].tensorize(lane, VNNI)
    s, c, lane, _ = schedule(k=18)
    with pytest.raises(ScheduleError, match=r"which must divide 'k' with its 18 iterations"):
        s[c].tensorize(lane, VNNI)
    c = product(64, 64, 16, *kind(VNNI))  # rows cannot be lanes: the instruction shares the first operand
    s = te.create_schedule(c)
    _, lane = s[c].split(s[c].op.axis[0], factor=16)
    outer, inner = s[c].split(s[c].op.reduce_axis[0], factor=4)
    s[c].reorder(s[c].op.axis[1], outer, lane, inner)
    with pytest.raises(ScheduleError, match="innermost parts of splits of axes that match"):
        s[c].tensorize(lane, VNNI)
    s, c, lane, _ = schedule()
    s[c].tensorize(lane, VNNI)
    a = s.cache_read(c.op.input_tensors[0], "local", c)
    with pytest.raises(ScheduleError, match="would be computed inside the vectorized"):
        s[a].compute_at(s[c], lane)


# -- the law -------------------------------------------------------------------------------------------


OF_CPUS = [one.name for one in tensor_intrinsics() if one.name.startswith("x86")]
SHAPES = [(6, 64, 16), (7, 40, 12), (1, 17, 4), (5, 33, 24)]


@pytest.mark.parametrize("name", OF_CPUS)
@pytest.mark.parametrize(("n", "m", "k"), SHAPES)
def test_tensorized_products_are_right(name: str, n: int, m: int, k: int) -> None:
    """Interpreted and compiled; rows, columns and steps of the tiles need not divide.

    An instruction's products are packed in every other shape, a shape's for every other instruction.
    """
    pack = (OF_CPUS.index(name) + SHAPES.index((n, m, k))) % 2 == 0
    check_all(Case.of(tensorized(product(n, m, k, *kind(name)), name, steps=2, pack=pack).state))


@pytest.mark.parametrize("name", [VNNI, BF16])
def test_operands_need_not_lie_side_by_side(name: str) -> None:
    """The shared operand at strides, and behind a condition; lanes at strides."""
    first, second, out = kind(name)
    one = get_tensor_intrinsic(name)
    a, b = te.placeholder((24, 6), first, "A"), te.placeholder((40, 26), second, "B")
    k = te.reduce_axis((0, 24), "k")
    c = te.compute(
        (6, 40),
        lambda i, j: te.sum(
            te.cast(te.if_then_else(k > i, a[k, i], te.const(1, first)), out) * te.cast(b[j, k + 2], out),
            axis=k,
        ),
        name="C",
    )
    s = te.create_schedule(c)
    _, lane = s[c].split(s[c].op.axis[1], factor=one.lanes)
    outer, inner = s[c].split(s[c].op.reduce_axis[0], factor=one.depth)
    s[c].reorder(outer, lane, inner)
    s[c].tensorize(lane, name)
    check_all(Case.of(s.state))


def test_the_extremes_of_bytes_are_added_exactly() -> None:
    for name in (VNNI, "x86.vpdpbusd.s8s8.512", "x86.vpdpbusd.u8u8.512"):
        first, second, out = kind(name)
        c = product(2, 32, 64, first, second, out)
        program = ansor.build(tensorized(c, name, rows=2), [*c.op.input_tensors, c])
        for x, y in itertools.product(extremes(first), extremes(second)):
            a, b = np.full((2, 64), x, first), np.full((64, 32), y, second)
            assert (program(a, b) == 64 * x * y).all(), (name, x, y)


def extremes(dtype: str) -> tuple[int, ...]:
    return (-128, -1, 0, 1, 127) if dtype == "int8" else (0, 1, 127, 128, 255)


# -- code ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "name", "register"),
    [
        ("znver4", VNNI, "zmm"),
        ("sapphirerapids", VNNI, "zmm"),
        ("sapphirerapids", BF16, "zmm"),
        ("znver4", BF16, "zmm"),
        ("alderlake", "x86.vpdpbusd.256", "ymm"),
        ("znver4", "x86.vpdpbusd.s8s8.512", "zmm"),
        ("alderlake -mattr=+avxvnniint8", "x86.vpdpbssd.256", "ymm"),
        ("alderlake -mattr=+avxvnniint8", "x86.vpdpbuud.128", "xmm"),
    ],
)
def test_machines_with_the_instruction_use_it(cpu: str, name: str, register: str) -> None:
    """One instruction for each register of the tile; accumulators stay in registers."""
    c = product(6, 128, 64, *kind(name))
    limits = Machine.for_target(f"{X86} -mcpu={cpu}").register_limits
    program = ansor.build(
        tensorized(c, name), [*c.op.input_tensors, c], target=f"{X86} -mcpu={cpu}", name="f"
    )
    assert "C.acc[3, 2, " in str(lower(tensorized(c, name), limits=limits))
    instruction = name.split(".")[1]
    calls = [x for x in program.get_source("asm").splitlines() if re.search(rf"\b{instruction}\b", x)]
    assert len(calls) == 6 + 2 * ("s8s8" in name)  # what flipping adds, once for each vector of B
    assert all(register in call for call in calls)


@pytest.mark.parametrize("cpu", ["haswell", "x86-64", "skylake-avx512"])
def test_machines_without_it_do_as_the_loop_says(cpu: str) -> None:
    c = product(6, 128, 64, *kind(VNNI))
    target = f"{X86} -mcpu={cpu}"
    program = ansor.build(tensorized(c, VNNI), [*c.op.input_tensors, c], target=target, name="f")
    assert "vpdpbusd" not in program.get_source("asm")
    if (
        Machine.host().arch == "x86_64"
        and Machine.host().vector_bits >= Machine.for_target(target).vector_bits
    ):
        Case.of(tensorized(c, VNNI).state).check_compiled(
            lower(tensorized(c, VNNI), name="kernel", limits=Machine.for_target(target).register_limits)
        )


def test_arm_has_them_too() -> None:
    c = product(4, 16, 16, "int8", "int8", "int32")
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
    program = ansor.build(tensorized(c, "arm.sdot"), [*c.op.input_tensors, c], target=target, name="f")
    assert re.search(r"\bsdot\b", program.get_source("asm"))


def test_the_host_knows_its_instructions() -> None:
    if Machine.host().arch != "x86_64":
        pytest.skip("the host is no x86 machine")
    features = llvm.get_host_cpu_features()
    expected = {
        "vpdpbusd": bool(features.get("avx512vnni") or features.get("avxvnni")),
        "vdpbf16ps": bool(features.get("avx512bf16")),
    }
    assert {name: name in Machine.host().instructions for name in expected} == expected


def test_one_of_your_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 128-bit form under another name: a pattern, an instruction, a symbol."""
    mine = TensorIntrinsic(
        name="mine",
        pattern=dot_pattern(4, 4, "uint8", "int8", "int32"),
        instruction="vpdpbusd",
        symbol="llvm.x86.avx512.vpdpbusd.128",
        operand_type="i32",
    )
    monkeypatch.setattr(pattern, "_REGISTERED", dict(pattern._REGISTERED))
    ansor.register_tensor_intrinsic(mine)
    check_all(Case.of(tensorized(product(6, 24, 16, *kind(VNNI)), "mine").state))
    with pytest.raises(DefinitionError, match="there is a tensor intrinsic 'mine' already"):
        ansor.register_tensor_intrinsic(TensorIntrinsic("mine", mine.pattern, "x", "y", "i32"))
    other = TensorIntrinsic("mine", mine.pattern, "x", "y", "i32")
    assert ansor.register_tensor_intrinsic(other, override=True) is get_tensor_intrinsic("mine") is other


def register_pairs(monkeypatch: pytest.MonkeyPatch, emitter: Any) -> None:
    """Register "pairs" for one test, the product of pairs of int16 that x86 machines have; skip on others."""
    if Machine.host().arch != "x86_64":
        pytest.skip("the host is no x86 machine")
    mine = TensorIntrinsic(
        name="pairs",
        pattern=dot_pattern(4, 2, "int16", "int16", "int32"),
        instruction="sse2",
        symbol="",
        operand_type="i16",
        emitter=emitter,
    )
    monkeypatch.setattr(pattern, "_REGISTERED", dict(pattern._REGISTERED))
    ansor.register_tensor_intrinsic(mine)


def test_one_of_several_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emitter writes them: a product of pairs of int16, and an addition."""
    asked: list[tuple[str, str, str]] = []

    def pairs(write: Any, sums: str, a: str, b: str) -> str:
        asked.append((sums, a, b))
        products = write(f"call <4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16> {a}, <8 x i16> {b})")
        return str(write(f"add <4 x i32> {sums}, {products}"))

    register_pairs(monkeypatch, pairs)
    c = product(6, 24, 16, "int16", "int16", "int32")
    check_all(Case.of(tensorized(c, "pairs").state))
    assert asked
    target = f"{X86} -mcpu=haswell -mattr=+sse2"
    program = ansor.build(tensorized(c, "pairs"), [*c.op.input_tensors, c], target=target, name="f")
    assert "pmaddwd" in program.get_source("asm")


def test_an_emitter_that_gives_no_code_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def define(symbol: str, emitter: Any) -> TensorIntrinsic:
        pairs = dot_pattern(4, 2, "int16", "int16", "int32")
        return TensorIntrinsic("mine", pairs, "vpdpbusd", symbol, "i16", emitter=emitter)

    for symbol, emitter in (("", None), ("llvm.mine", lambda *given: ""), ("", "llvm.mine")):
        with pytest.raises(DefinitionError, match="give the name of an LLVM intrinsic"):
            define(symbol, emitter)
    monkeypatch.setattr(pattern, "_REGISTERED", dict(pattern._REGISTERED))
    ansor.register_tensor_intrinsic(define("", lambda write, sums, a, b: None))
    c = product(6, 24, 16, "int16", "int16", "int32")
    target = f"{X86} -mcpu=znver4"
    with pytest.raises(DefinitionError, match="asked for its code and returned None"):
        ansor.build(tensorized(c, "mine"), [*c.op.input_tensors, c], target=target)


@pytest.mark.parametrize("type_", ["int16", "ptr", "", "i0", "i24", "i3200"])
def test_operands_are_vectors_of_an_llvm_type_that_holds_them(type_: str) -> None:
    pairs = dot_pattern(4, 2, "int16", "int16", "int32")
    with pytest.raises(DefinitionError, match=f"operand_type='{type_}' is no LLVM type of which"):
        TensorIntrinsic("mine", pairs, "sse2", "llvm.mine", type_)
