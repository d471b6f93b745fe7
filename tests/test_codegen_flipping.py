"""Products of bytes of equal sign on machines that multiply unsigned by signed ones."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.llvm.flipped_copies import store_flipped
from ansor.codegen.llvm.flipping import flip_factors
from ansor.codegen.machine import Machine
from ansor.errors import DefinitionError
from ansor.intrinsics import TensorIntrinsic
from ansor.intrinsics.known import dot_pattern
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, Buffer, For, If, LoopKind, LoopNest, Stmt, Store, seq, walk_statements
from ansor.ir.registers import RegisterLimits
from ansor.ir.verify import check_nest
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.te.expr import Binary, BinaryOp, Expr, Load, Var, cast, const
from ansor.workloads.catalogue import get_workload
from sketches import ProgramSpace
from tests.program_laws import Case, check_all
from tests.test_intrinsics import product as mixed_product
from tests.test_intrinsics import register_pairs, tensorized

TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"
ZEN4 = Machine.for_target(TARGET)
EQUAL = {"s8s8": "int8", "u8u8": "uint8"}


def product(n: int, m: int, k: int, dtype: str, reverse: bool = False) -> te.Tensor:
    """A product of matrices of bytes, in either order of factors."""
    a, b = te.placeholder((n, k), dtype, "A"), te.placeholder((k, m), dtype, "B")
    r = te.reduce_axis((0, k), "k")

    def element(i: Expr, j: Expr) -> Expr:
        factors = [te.cast(a[i, r], "int32"), te.cast(b[r, j], "int32")]
        first, second = factors[::-1] if reverse else factors
        return te.sum(first * second, axis=r)

    return te.compute((n, m), element, name="C")


def check_flipped(case: Case, nest: LoopNest, machine: Machine = ZEN4) -> LoopNest:
    """The law: with flipped factors a program computes the same, and reads and writes what it may."""
    flipped = flip_factors(nest, machine)
    for found in (flipped, store_flipped(flipped)):
        check_nest(found)
        case.check_interpreted(found, check_races=True)
    return flipped


def owed(nest: LoopNest) -> list[Buffer]:
    """The registers of debts."""
    found = [stmt.buffer for stmt in walk_statements(nest.body) if isinstance(stmt, Alloc)]
    return [buffer for buffer in found if buffer.name.endswith(".debt")]


# -- what is computed --------------------------------------------------------------------------------------


BITS = [512, 256, 128]
SHAPES = [
    (6, 64, 24),
    (7, 40, 20),  # rows, columns and steps are left over
    (5, 30, 12),  # 30 columns: vectors of 16, 8, 4 and 2 lanes
    (1, 17, 4),
]


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("n", "m", "k"), SHAPES)
def test_flipped_products_are_right(name: str, bits: int, n: int, m: int, k: int) -> None:
    """An instruction's are packed in every other shape, a shape's for every other instruction."""
    pack = (list(EQUAL).index(name) + BITS.index(bits) + SHAPES.index((n, m, k))) % 2 == 0
    s = tensorized(product(n, m, k, EQUAL[name]), f"x86.vpdpbusd.{name}.{bits}", steps=2, pack=pack)
    case = Case.of(s.state)
    check_flipped(case, lower(s.state, name="kernel", limits=ZEN4.register_limits))
    check_all(case)


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("reverse", [False, True])
def test_extremes_are_added_exactly(name: str, reverse: bool) -> None:
    """Every pair of bytes, in one row after the other; sums that do not wrap, and tiles of several rows."""
    dtype = EQUAL[name]
    info = np.iinfo(dtype)
    values = np.arange(info.min, info.max + 1).astype(dtype)
    c = product(256, 16, 4, dtype, reverse)
    s = tensorized(c, f"x86.vpdpbusd.{name}.512", rows=4, columns=1)
    program = ansor.build(s, [*c.op.input_tensors, c])
    a = np.repeat(values[:, None], 4, axis=1)
    inputs = {"A": a}
    for start in range(0, 256, 16):
        inputs["B"] = np.repeat(values[None, start : start + 16], 4, axis=0)
        found = program(*(inputs[t.name] for t in c.op.input_tensors))
        expected = a.astype(np.int64) @ inputs["B"].astype(np.int64)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize(("n", "m", "k"), [(6, 64, 24), (7, 40, 20), (5, 30, 12)])
def test_products_that_are_not_in_registers(name: str, n: int, m: int, k: int) -> None:
    """Each vector of lanes has its own accumulator and debt."""
    s = tensorized(product(n, m, k, EQUAL[name]), f"x86.vpdpbusd.{name}.512", rows=6, columns=4)
    case = Case.of(s.state)
    nest = lower(s.state, name="kernel", limits=RegisterLimits(512, 4))
    assert "C.acc" not in str(nest)
    flipped = check_flipped(case, nest)
    assert owed(flipped)
    assert {buffer.shape for buffer in owed(flipped)} <= {(16,), (m % 16,)}
    case.check_compiled(nest)


@pytest.mark.parametrize("seed", range(12))
def test_sampled_programs_are_right(seed: int) -> None:
    """Of the search: tiles at all levels, in consumers, over convolutions; in both signs."""
    dtype = [*EQUAL.values()][seed % 2]
    if seed % 3:
        made = get_workload("matmul").tensors(7 + seed, 40, 24, dtype, "int32", dtype)
    else:
        made = get_workload("conv2d").tensors(1, 5, 4, 8, 20, 3, 1, 1, 1, 1, dtype, "int32", dtype)
    task = ansor.SearchTask(compute_dag=made, target=f"{TARGET} -num-cores=2")
    space = ProgramSpace.of(task, {"cpu_tensor_intrinsics": 1, "max_tile_waste": 1.4})
    (population, *_) = space.sample(1, np.random.default_rng(seed)).populations
    family = population.family
    state = State.replay(family.dag, family.program(population.values[0]))
    case = Case.of(state)
    flipped = check_flipped(case, lower(state, name="kernel", limits=ZEN4.register_limits))
    assert owed(flipped)
    case.check_compiled(lower(state, name="kernel"))


# -- nests ---------------------------------------------------------------------------------------------------

S, U, V, T = LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.TENSORIZE


def guarded_tile(blocks: int, rows: int, cond: Any) -> LoopNest:
    """Columns in three blocks, four rows each; `cond(i, jo)` says which elements there are.

    A has `rows` rows and B `blocks` blocks: what the condition leaves out is not there to be read.
    """
    a, b = Buffer("A", "int8", (rows, 8)), Buffer("B", "int8", (blocks, 2, 16, 4))
    c, acc = Buffer("C", "int32", (3, 4, 16)), Buffer("C.acc", "int32", (4, 16), "register")
    jo, k = Var("jo"), Var("k")

    def tile(store: Any, kind: LoopKind = U) -> Stmt:
        i, j = Var("i"), Var("j")
        return For(i, 4, kind, If(cond(i, jo), For(j, 16, V, store(i, j))))

    def update(i: Var, j: Var) -> Stmt:
        p = Var("p")
        x = cast(Load(a, (i, k * 4 + p), "int8"), "int32")
        y = cast(Load(b, (jo, k, j, p), "int8"), "int32")
        return For(p, 4, T, Store(acc, (i, j), Load(acc, (i, j), "int32") + x * y))

    body = seq(
        tile(lambda i, j: Store(acc, (i, j), Load(c, (jo, i, j), "int32"))),
        For(k, 2, S, tile(update)),
        tile(lambda i, j: Store(c, (jo, i, j), Load(acc, (i, j), "int32"))),
    )
    zero_jo, zero_i, zero_j = Var("jo"), Var("i"), Var("j")
    zero = Store(c, (zero_jo, zero_i, zero_j), const(0, "int32"))
    zeros = For(zero_jo, 3, S, For(zero_i, 4, S, For(zero_j, 16, V, zero)))
    return LoopNest("kernel", (a, b, c), (), seq(zeros, For(jo, 3, S, Alloc(acc, body))), (2,))


def less(a: Expr, limit: int) -> Expr:
    return Binary(BinaryOp.LT, a, const(limit), "bool")


def check_guarded(blocks: int, rows: int, cond: Any) -> LoopNest:
    """The nest with flipped factors, which computes the elements that there are and reads no others."""
    nest = guarded_tile(blocks, rows, cond)
    flipped = flip_factors(nest, ZEN4)
    check_nest(flipped)
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 128, (rows, 8)).astype(np.int8)
    b = rng.integers(-128, 128, (blocks, 2, 16, 4)).astype(np.int8)
    results = []
    for one in (nest, flipped):
        c = np.full((3, 4, 16), 77, np.int32)
        run_nest(one, [a, b, c])
        results.append(c)
    assert results[0].any()
    np.testing.assert_array_equal(*results)
    return flipped


def test_guards_on_rows_do_not_guard_the_debt() -> None:
    flipped = check_guarded(3, 3, lambda i, jo: less(i, 3))
    assert [buffer.shape for buffer in owed(flipped)] == [(16,)]


def test_guards_that_say_what_may_be_read_stay() -> None:
    """A condition on rows and columns together: without it the debt would read a block that is not there."""
    flipped = check_guarded(2, 4, lambda i, jo: less(i + 4 * jo, 7))
    assert [buffer.shape for buffer in owed(flipped)] == [(16,)]
    assert owed(flipped)[0].name == "C.acc.debt"  # of each vector alone


def test_programs_that_need_no_flip_stay_as_they_are() -> None:
    c = product(6, 64, 24, "int8")
    nest = lower(tensorized(c, "x86.vpdpbusd.s8s8.512").state)
    for cpu in ("haswell", "alderlake -mattr=+avxvnniint8"):
        assert flip_factors(nest, Machine.for_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")) is nest
    assert flip_factors(nest, Machine.for_target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")) is nest
    assert flip_factors(nest, ZEN4) is not nest
    mixed = lower(tensorized(mixed_product(6, 64, 24, "uint8", "int8", "int32"), "x86.vpdpbusd.512").state)
    assert flip_factors(mixed, ZEN4) is mixed


# -- code --------------------------------------------------------------------------------------------------


def inner_loop(program: Any) -> list[str]:
    """The instructions of the one loop that has products."""
    blocks = [block for block in program.get_source("asm").split("\n.LBB") if "vpdpbusd" in block]
    assert len(blocks) == 1
    lines = [line.strip() for line in blocks[0].splitlines()[1:] if line.startswith("\t")]
    end = next(number for number, line in enumerate(lines) if line.startswith("j"))
    return lines[:end]


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(8, 3), (3, 2), (1, 4)])
def test_all_rows_of_a_tile_owe_the_same(name: str, reverse: bool, rows: int, columns: int) -> None:
    """A product for each vector of the tile and one for each of its columns; nothing is subtracted there."""
    c = product(rows * 2, columns * 32, 256, EQUAL[name], reverse)
    s = tensorized(c, f"x86.vpdpbusd.{name}.512", rows=rows, columns=columns)
    loop = inner_loop(ansor.build(s, [*c.op.input_tensors, c], target=TARGET, name="f"))
    operations = [line.split()[0] for line in loop]
    assert operations.count("vpdpbusd") == rows * columns + columns
    assert not {"vpsubd", "vpaddd"} & set(operations)
    assert not any("rsp" in line for line in loop)


def test_a_vector_alone_costs_one_product_more() -> None:
    """Where the reduction is a single step."""
    c = product(4, 16, 4, "int8")
    s = tensorized(c, "x86.vpdpbusd.s8s8.512", rows=1, columns=1)
    text = ansor.build(s, [*c.op.input_tensors, c], target=TARGET, name="f").get_source("asm")
    assert len(re.findall(r"\bvpdpbusd\b", text)) == 2


# -- copies of the program's own -----------------------------------------------------------------------------


def with_copy(c: te.Tensor, name: str) -> Any:
    """A tensorized product that reads the factor all lanes share from a copy, which `cache_read` made."""
    s = tensorized(c, f"x86.vpdpbusd.{name}.512", rows=4, columns=2)
    a = next(tensor for tensor in c.op.input_tensors if tensor.name == "A")
    s.cache_read(a, "global", c)
    return s


def dtypes_of(nest: LoopNest) -> dict[str, str]:
    """Of the buffers that the program allocates, by name."""
    found = [stmt.buffer for stmt in walk_statements(nest.body) if isinstance(stmt, Alloc)]
    return {buffer.name: buffer.dtype for buffer in found}


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_copy_is_stored_flipped(name: str, reverse: bool) -> None:
    """The products then flip nothing; the copy of the other factor stays as it is."""
    c = product(9, 40, 20, EQUAL[name], reverse)
    s = with_copy(c, name)
    case = Case.of(s.state)
    flipped = check_flipped(case, lower(s.state, name="kernel", limits=ZEN4.register_limits))
    dtypes = dtypes_of(store_flipped(flipped))
    assert dtypes["A.global"] != EQUAL[name] == dtypes["B.global"]
    check_all(case)
    code = ansor.build(s, [*c.op.input_tensors, c], target=TARGET, name="f").get_source("asm")
    loops = [block for block in code.split("\n.LBB") if "vpdpbusd" in block]
    assert loops
    assert not any("vpxor" in loop for loop in loops if loop.count("vpdpbusd") > 8)


def test_others_may_read_a_copy() -> None:
    """A sum of rows wants the elements as they were."""
    a, b = te.placeholder((8, 16), "int8", "A"), te.placeholder((16, 32), "int8", "B")
    copy = te.compute((8, 16), lambda i, k: a[i, k] + 1, name="copy")
    k, r = te.reduce_axis((0, 16), "k"), te.reduce_axis((0, 16), "r")
    c = te.compute(
        (8, 32), lambda i, j: te.sum(te.cast(copy[i, k], "int32") * te.cast(b[k, j], "int32"), axis=k), "C"
    )
    rows = te.compute((8,), lambda i: te.sum(te.cast(copy[i, r], "int32"), axis=r), name="rows")
    s = te.create_schedule([c, rows])
    j_outer, lanes = s[c].split(s[c].op.axis[1], factor=16)
    k_outer, products = s[c].split(s[c].op.reduce_axis[0], factor=4)
    s[c].reorder(s[c].op.axis[0], j_outer, k_outer, lanes, products)
    s[c].tensorize(lanes, "x86.vpdpbusd.s8s8.512")
    case = Case.of(s.state)
    flipped = check_flipped(case, lower(s.state, name="kernel", limits=ZEN4.register_limits))
    assert dtypes_of(store_flipped(flipped))["copy"] == "uint8"
    check_all(case)


def test_what_no_product_flips_stays_as_it_is() -> None:
    a = te.placeholder((4, 16), "int8", "A")
    copy = te.compute((4, 16), lambda i, j: a[i, j] + 1, name="copy")
    c = te.compute((4, 16), lambda i, j: te.cast(copy[i, j], "uint8") + 128, name="C")
    nest = lower(te.create_schedule(c))
    assert dtypes_of(nest) == {"copy": "int8"}
    assert store_flipped(nest) is nest


def test_programs_without_copies_are_not_rewritten() -> None:
    nest = lower(tensorized(product(8, 32, 16, "int8"), "x86.vpdpbusd.s8s8.512", pack=False).state)
    flipped = flip_factors(nest, ZEN4)
    assert owed(flipped)
    assert store_flipped(flipped) is flipped
    assert store_flipped(nest) is nest


# -- intrinsics of one's own ---------------------------------------------------------------------------------


def test_only_an_operand_that_lanes_share_is_flipped() -> None:
    def define(number: Any, dtype: str = "int8", shared_last: bool = False) -> TensorIntrinsic:
        out = "int32" if dtype == "int8" else "float32"
        made = dot_pattern(4, 4, dtype, dtype, out, shared_last=shared_last)
        return TensorIntrinsic("mine", made, "vpdpbusd", "llvm.mine", "i32", flipped=number)

    assert define(0).taken == ("uint8", "int8")
    assert define(1, shared_last=True).taken == ("int8", "uint8")
    for number, dtype in ((1, "int8"), (2, "int8"), (0, "bfloat16")):
        with pytest.raises(DefinitionError, match="is no operand of integers that all lanes share"):
            define(number, dtype)


def test_operands_of_equal_dtypes_come_as_the_pattern_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of the product, what all lanes share comes where the pattern has it."""

    def pairs(write: Any, sums: str, a: str, b: str) -> str:
        same = write(f"bitcast <8 x i16> {a} to <4 x i32>")
        same = write(f"shufflevector <4 x i32> {same}, <4 x i32> poison, <4 x i32> zeroinitializer")
        same = write(f"bitcast <4 x i32> {same} to <8 x i16>")
        products = write(f"call <4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16> {same}, <8 x i16> {b})")
        return str(write(f"add <4 x i32> {sums}, {products}"))

    register_pairs(monkeypatch, pairs)
    for reverse in (False, True):
        check_all(Case.of(tensorized(product(6, 24, 16, "int16", reverse), "pairs").state))
