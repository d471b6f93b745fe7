"""Loops, vectors, masks, scratch memory and parallel regions, against numpy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.compile import assembly, compile_ir
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.dtypes import to_numpy
from ansor.errors import BuildError
from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, Let, LoopKind, LoopNest, Stmt, Store, seq
from ansor.te.expr import Binary, BinaryOp, Expr, Load, Var, binary, call, cast, const, select
from tests.codegen_helper import AVX2, AVX512, run

F32 = "float32"
S, U, V, P = LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.PARALLEL


def load(buffer: Buffer, *indices: Expr | int) -> Load:
    return Load(buffer, tuple(i if isinstance(i, Expr) else const(i) for i in indices), buffer.dtype)


def array(*shape: int, dtype: str = F32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(dtype)


def matmul(
    m: int, n: int, k: int, mr: int, nr: int, outer: LoopKind = S, reduction: LoopKind = S
) -> LoopNest:
    """A register-tiled matrix product."""
    a, b, c = Buffer("A", F32, (m, k)), Buffer("B", F32, (k, n)), Buffer("C", F32, (m, n))
    acc = Buffer("acc", F32, (mr, nr), "register")
    io, jo, ko = Var("io"), Var("jo"), Var("k")

    def tile(body) -> Stmt:  # type: ignore[no-untyped-def]
        i, j = Var("i"), Var("j")
        return For(i, mr, U, For(j, nr, V, body(i, j)))

    zero = tile(lambda i, j: Store(acc, (i, j), const(0.0, F32)))
    update = tile(
        lambda i, j: Store(acc, (i, j), load(acc, i, j) + load(a, io * mr + i, ko) * load(b, ko, jo * nr + j))
    )
    write = tile(lambda i, j: Store(c, (io * mr + i, jo * nr + j), load(acc, i, j)))
    body: Stmt = Alloc(acc, seq(zero, For(ko, k, reduction, update), write))
    return LoopNest("matmul", (a, b, c), (), For(io, m // mr, outer, For(jo, n // nr, S, body)), (2,))


def windows(rows: int, columns: int, taps: int) -> tuple[te.Schedule, list[te.Tensor]]:
    """Sums over windows, C[i, j] += X[i + r, k] * W[r, k, j], in tiles, their `taps` unrolled."""
    x = te.placeholder((4 * rows + taps, 40), name="X")
    w = te.placeholder((taps, 40, 2 * columns), name="W")
    r, k = te.reduce_axis((0, taps), name="r"), te.reduce_axis((0, 40), name="k")
    out = te.compute(
        (4 * rows, 2 * columns), lambda i, j: te.sum(x[i + r, k] * w[r, k, j], axis=[r, k]), name="C"
    )
    s = te.create_schedule(out.op)
    outer, row = s[out].split(out.op.axis[0], rows)
    block, column = s[out].split(out.op.axis[1], columns)
    s[out].reorder(outer, block, k, r, row, column)
    s[out].vectorize(column)
    s[out].unroll(r)
    return s, [x, w, out]


@pytest.mark.parametrize(
    ("cpu", "rows", "columns", "taps"),
    [("haswell", 6, 16, 3), ("haswell", 4, 24, 3), ("haswell", 5, 16, 4), ("znver4", 14, 32, 3)],
)
def test_steps_of_a_full_tile_leave_the_registers_to_its_accumulators(
    cpu: str, rows: int, columns: int, taps: int
) -> None:
    """Neither what steps could share nor what LLVM would load early is in their way."""
    s, tensors = windows(rows, columns, taps)
    kernel = ansor.build(s, tensors, target=f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}", name="f")
    text = kernel.get_source("asm")
    lanes = 16 if cpu == "znver4" else 8
    assert text.count("vfmadd") == rows * columns // lanes * taps
    assert not [line for line in text.splitlines() if "mm" in line and "(%rsp)" in line]


@pytest.mark.parametrize("copies", [1, 4])
def test_each_copy_of_a_full_tile_loads_anew_what_its_steps_share(copies: int) -> None:
    s, tensors = windows(6, 16, 3)
    if copies > 1:
        s[tensors[-1]].unroll(s[tensors[-1]].leaf_iter_vars[0])
    text = ansor.build(s, tensors, target=AVX2).get_source("ll")
    assert text.count("asm sideeffect") == 2 * copies


@pytest.mark.parametrize(("target", "rows", "columns"), [(AVX2, 6, 16), (AVX512, 14, 32), (AVX512, 9, 48)])
def test_steps_of_a_full_tile_that_share_no_loads_are_left_to_llvm(
    target: str, rows: int, columns: int
) -> None:
    a, b = te.placeholder((4 * rows, 64), name="A"), te.placeholder((64, columns), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((4 * rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, row = s[c].split(c.op.axis[0], rows)
    around, step = s[c].split(c.op.reduce_axis[0], 8)
    s[c].reorder(outer, around, step, row, c.op.axis[1])
    s[c].vectorize(c.op.axis[1])
    s[c].unroll(step)
    text = ansor.build(s, [a, b, c], target=target).get_source("asm")
    assert text.count("vfmadd") == 8 * rows * columns // (16 if target == AVX512 else 8)
    assert len([line for line in text.splitlines() if "mm" in line and "(%rsp)" in line]) < 8


@pytest.mark.parametrize(("taps", "rows"), [(3, 6), (5, 13), (2, 4)])
def test_steps_of_a_full_tile_read_what_they_should(taps: int, rows: int) -> None:
    s, tensors = windows(rows, 16, taps)
    x, w = array(4 * rows + taps, 40), array(taps, 40, 32, seed=1)
    found = np.zeros((4 * rows, 32), np.float32)
    ansor.build(s, tensors, target="llvm")(x, w, found)
    expected = sum(x[one : one + 4 * rows] @ w[one] for one in range(taps))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("mr", "nr"), [(6, 64), (14, 32), (1, 16), (3, 24), (2, 7), (4, 1), (5, 31)])
def test_register_tiled_matmul(mr: int, nr: int) -> None:
    a, b = array(2 * mr, 33), array(33, 3 * nr, seed=1)
    for outer in (S, P):
        c = np.zeros((2 * mr, 3 * nr), np.float32)
        run(matmul(2 * mr, 3 * nr, 33, mr, nr, outer), a, b, c)
        np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize(("mr", "nr"), [(6, 64), (14, 32), (14, 31), (28, 15), (1, 7)])
def test_the_inner_loop_of_a_tile_is_loads_and_multiply_adds(mr: int, nr: int) -> None:
    """Neither stack traffic nor index arithmetic per element, though no optimiser pass ran."""
    machine = Machine.of("x86_64-unknown-linux-gnu", "znver4")
    text = assembly(emit_llvm(matmul(mr * 4, nr * 4, 256, mr, nr), machine), machine)
    blocks = [block for block in text.split("\n.LBB") if block.count("vfmadd") == mr * -(-nr // 16)]
    assert len(blocks) == 1
    lines = [line.split()[0] for line in blocks[0].splitlines()[1:] if line.startswith("\t")]
    loop = lines[: lines.index("jb") + 1]
    others = [op for op in loop if not op.startswith(("vfmadd", "vmovups", "vbroadcastss"))]
    assert len(others) <= 5  # a counter, an offset made of it, a comparison, a jump
    assert "rsp" not in blocks[0].split("\tjb")[0]


@pytest.mark.parametrize(("cpu", "width"), [("znver4", 32), ("haswell", 16)])
def test_accumulators_of_a_tile_at_the_border_stay_in_registers(cpu: str, width: int) -> None:
    """Some of their lanes are beyond the tensor, and left as they are, without a way through memory."""
    a, b = te.placeholder((12, 256), name="A"), te.placeholder((256, 61), name="B")
    k = te.reduce_axis((0, 256), name="k")
    c = te.compute((12, 61), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c)
    i_outer, j_outer, i_inner, j_inner = s[c].tile(*c.op.axis, 3, width)
    s[c].reorder(i_outer, j_outer, k, i_inner, j_inner)
    s[c].fuse(i_outer, j_outer)  # so that which lanes are meant is not known beforehand
    s[c].unroll(i_inner)
    s[c].vectorize(j_inner)
    target = f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}"
    text = ansor.build(s, [a, b, c], target=target, name="product").get_source("asm")
    loops = [block.split("\tjb")[0] for block in text.split("\n.LBB") if block.count("vfmadd") >= 6]
    assert len(loops) >= 2  # of whole tiles, and of those at the border
    assert all("rsp" not in loop for loop in loops)
    rows = [loop.count("vbroadcastss") + loop.count("{1to") for loop in loops]
    assert max(rows) <= 3  # what is read for whole vectors serves the others, too


@pytest.mark.parametrize("extent", [*range(1, 40), 63, 64, 65, 100, 255, 256])
def test_any_vector_extent(extent: int) -> None:
    x, y, i = Buffer("x", F32, (extent,)), Buffer("y", F32, (extent,)), Var("i")
    body = For(i, extent, V, Store(y, (i,), load(x, i) * 2.0 + 1.0))
    source, found = array(extent), np.zeros(extent, np.float32)
    run(LoopNest("kernel", (x, y), (), body, (1,)), source, found)
    np.testing.assert_array_equal(found, source * 2 + 1)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float64", "bool", "bfloat16"])
@pytest.mark.parametrize("extent", [5, 16, 48, 100, 1000])
def test_vectors_of_other_dtypes(dtype: str, extent: int) -> None:
    from ansor.dtypes import to_numpy

    x, y, i = Buffer("x", dtype, (extent,)), Buffer("y", dtype, (extent,)), Var("i")
    value = load(x, extent - 1 - i)
    body = For(i, extent, V, Store(y, (i,), value))
    source = np.random.default_rng(0).integers(0, 2, extent).astype(to_numpy(dtype))
    found = np.zeros_like(source)
    run(LoopNest("kernel", (x, y), (), body, (1,)), source, found)
    np.testing.assert_array_equal(found, source[::-1])


@pytest.mark.parametrize("bound", [1, 15, 16, 17, 30, 32, 33, 47])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_masked_tail_touches_nothing_outside(bound: int, stride: int) -> None:
    x, y = Buffer("x", F32, (bound * stride,)), Buffer("y", F32, (bound * stride,))
    i, j = Var("i"), Var("j")
    place = i * 16 + j
    store = Store(y, (place * stride,), load(x, place * stride) + 1.0)
    nest = LoopNest(
        "kernel",
        (x, y),
        (),
        For(i, (bound + 15) // 16, S, For(j, 16, V, If(binary(BinaryOp.LT, place, bound), store))),
        (1,),
    )
    source = array(bound * stride + 64)
    found = np.full(bound * stride + 64, 55, np.float32)
    expected = found.copy()
    expected[: bound * stride : stride] = source[: bound * stride : stride] + 1
    run(nest, source, found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("lanes", [3, 4, 8, 16, 37])
@pytest.mark.parametrize("step", [2, 3, 4, 5, -1, -2])
@pytest.mark.parametrize("dtype", [F32, "int8", "float64"])
def test_strided_vectors(step: int, lanes: int, dtype: str) -> None:
    n = (lanes - 1) * abs(step) + 1
    x, y, i = Buffer("x", dtype, (n,)), Buffer("y", dtype, (lanes,)), Var("i")
    first = 0 if step > 0 else n - 1
    value = load(x, first + i * step)
    source, found = array(n, dtype=dtype), np.zeros(lanes, dtype)
    run(LoopNest("kernel", (x, y), (), For(i, lanes, V, Store(y, (i,), value)), (1,)), source, found)
    np.testing.assert_array_equal(found, source[::step])
    scattered = np.zeros(n, dtype)
    place = first + i * step
    nest = LoopNest("kernel", (y, x), (), For(i, lanes, V, Store(x, (place,), load(y, i))), (1,))
    run(nest, found, scattered)
    expected = np.zeros(n, dtype)
    expected[::step] = found
    np.testing.assert_array_equal(scattered, expected)


def test_masked_loads_do_not_fault_at_the_end_of_memory() -> None:
    """The input ends where an unmapped page begins."""
    import mmap

    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    import ctypes

    libc = ctypes.CDLL(None)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(ctypes.c_void_p(base + page), page, 0) == 0
    n = 21
    try:
        source = np.frombuffer(memory, np.float32, n, page - 4 * n)
        source[:] = np.arange(n)
        x, y = Buffer("x", F32, (n,)), Buffer("y", F32, (64,))
        i = Var("i")
        padded = select(binary(BinaryOp.LT, i, n), load(x, i), const(-1.0, F32), lazy=True)
        gathered = select(binary(BinaryOp.LT, i * 3, n), load(x, i * 3), const(0.0, F32), lazy=True)
        body = For(i, 64, V, Store(y, (i,), padded + gathered))
        found = np.zeros(64, np.float32)
        run(LoopNest("kernel", (x, y), (), body, (1,)), source, found)
        k = np.arange(64)
        expected = np.where(k < n, k, -1) + np.where(k * 3 < n, k * 3, 0)
        np.testing.assert_array_equal(found, expected)
        # the same with a condition that is one for all lanes
        j = Var("j")
        row = select(binary(BinaryOp.LT, j, 1), load(x, j * 100 + i), const(-1.0, F32), lazy=True)
        out = Buffer("y", F32, (3, 16))
        body = For(j, 3, S, For(i, 16, V, Store(out, (j, i), row)))
        found = np.zeros((3, 16), np.float32)
        run(LoopNest("kernel", (x, out), (), body, (1,)), source, found)
        np.testing.assert_array_equal(found, [np.arange(16), [-1] * 16, [-1] * 16])
        # and with sides that are worth a branch
        heavy = select(
            binary(BinaryOp.LT, j, 1), call("exp", load(x, j * 100 + i)), const(-1.0, F32), lazy=True
        )
        body = For(j, 3, S, For(i, 16, V, Store(out, (j, i), heavy)))
        run(LoopNest("kernel", (x, out), (), body, (1,)), source, found)
        np.testing.assert_allclose(found, [np.exp(np.arange(16)), [-1] * 16, [-1] * 16], rtol=1e-6)
    finally:
        del source
        libc.mprotect(ctypes.c_void_p(base + page), page, 3)


def test_gather_and_scatter_through_an_index_tensor() -> None:
    for dtype in ("int32", "int64", "uint8"):
        idx, x, y = Buffer("idx", dtype, (50,)), Buffer("x", F32, (50,)), Buffer("y", F32, (50,))
        i, t = Var("i"), Var("t", dtype)
        take = Store(y, (i,), load(x, load(idx, i)))
        put = Let(t, load(idx, i), Store(y, (t,), load(x, i)))
        permutation = np.random.default_rng(0).permutation(50).astype(dtype)
        source = array(50)
        for body, expected in ((take, source[permutation]), (put, source[np.argsort(permutation)])):
            found = np.zeros(50, np.float32)
            run(LoopNest("kernel", (idx, x, y), (), For(i, 50, V, body), (2,)), permutation, source, found)
            np.testing.assert_array_equal(found, expected)


def test_a_vectorized_fused_transpose() -> None:
    x, y, f = Buffer("x", F32, (7, 11)), Buffer("y", F32, (11, 7)), Var("f")
    row, column = binary(BinaryOp.FLOORDIV, f, 7), binary(BinaryOp.FLOORMOD, f, 7)
    body = For(f, 77, V, Store(y, (row, column), load(x, column, row)))
    source, found = array(7, 11), np.zeros((11, 7), np.float32)
    run(LoopNest("kernel", (x, y), (), body, (1,)), source, found)
    np.testing.assert_array_equal(found, source.T)


def test_a_vectorized_loop_around_a_reduction() -> None:
    x, y, i, k = Buffer("x", F32, (40, 9)), Buffer("y", F32, (40,)), Var("i"), Var("k")
    update = Store(y, (i,), load(y, i) + load(x, i, k))
    body = For(i, 40, V, seq(Store(y, (i,), const(0.0, F32)), For(k, 9, S, update)))
    source, found = array(40, 9), np.zeros(40, np.float32)
    run(LoopNest("kernel", (x, y), (), body, (1,)), source, found)
    np.testing.assert_array_equal(found, source.sum(1))


def test_a_vectorized_loop_whose_iterations_meet_in_one_element_runs_in_order() -> None:
    x, y, i = Buffer("x", F32, (40,)), Buffer("y", F32, (1,)), Var("i")
    update = Store(y, (const(0),), load(y, 0) + load(x, i))
    body = seq(Store(y, (const(0),), const(0.0, F32)), For(i, 40, V, update))
    source, found = array(40), np.zeros(1, np.float32)
    run(LoopNest("kernel", (x, y), (), body, (1,)), source, found)
    np.testing.assert_array_equal(found, source.sum())


@pytest.mark.parametrize("n", [0, 1, 5, 64, 100])
def test_symbolic_sizes_and_guards(n: int) -> None:
    size = Var("n")
    x, y = Buffer("x", F32, (size, size)), Buffer("y", F32, (size, size))
    i, jo, ji = Var("i"), Var("jo"), Var("ji")
    j = jo * 16 + ji
    store = Store(y, (i, j), load(x, j, i) + 1.0)
    inner = For(ji, 16, V, If(Binary(BinaryOp.LT, j, size, "bool"), store))
    pieces = binary(BinaryOp.FLOORDIV, size + 15, 16)
    for kind in (S, P):
        nest = LoopNest("kernel", (x, y), (size,), For(i, size, kind, For(jo, pieces, S, inner)), (1,))
        source, found = array(n, n), np.zeros((n, n), np.float32)
        run(nest, source, found, sizes=[n])
        np.testing.assert_array_equal(found, source.T + 1)


@pytest.mark.parametrize("extent", [1, 2, 3, 4, 7, 100])
def test_parallel_regions_capture_what_they_use(extent: int) -> None:
    """Twice in a serial loop, with a let, a size, an outer variable and a nested parallel loop inside."""
    size, r, p, q, m = Var("n"), Var("r"), Var("p"), Var("q"), Var("m")
    scale = Var("scale", F32)
    x, y = Buffer("x", F32, (5,)), Buffer("y", F32, (2, extent, 4))
    value = load(x, 1) * scale + cast(m + q + r * size, F32)
    inner = For(q, 4, P, Store(y, (r, p, q), value))
    region = For(p, extent, P, Let(m, p * 3, inner))
    body = For(r, 2, S, Let(scale, load(x, r), region))
    source, found = array(5), np.zeros((2, extent, 4), np.float32)
    text = run(LoopNest("kernel", (x, y), (size,), body, (1,)), source, found, sizes=[9])
    assert text.count("call void @ansor_parallel_for") == 1
    k, i, j = np.meshgrid(np.arange(2), np.arange(extent), np.arange(4), indexing="ij")
    np.testing.assert_array_equal(found, source[1] * source[k] + i * 3 + j + k * 9)


def pieces_of(nest: LoopNest) -> str:
    """What the code of a parallel region says of the pieces that it is worth dividing into."""
    launches = re.findall(
        r"@ansor_parallel_for\(ptr @\S+, ptr \S+, i32 (\S+)\)", emit_llvm(nest, Machine.host())
    )
    assert len(launches) == 1
    return str(launches[0])


def test_a_parallel_loop_has_as_many_pieces_as_it_has_work_for() -> None:
    assert int(pieces_of(matmul(12, 32, 8, 6, 16, outer=P))) == 0
    few, many = (int(pieces_of(matmul(240, 32, k, 6, 16, outer=P))) for k in (64, 640))
    assert 2 <= few < many == 40, "each piece has an iteration"


def test_a_parallel_loop_of_unknown_extent_has_pieces() -> None:
    size, i, j = Var("n"), Var("i"), Var("j")
    x, y = Buffer("x", F32, (size, 512)), Buffer("y", F32, (size, 512))
    body = For(i, size, P, For(j, 512, V, Store(y, (i, j), load(x, i, j) * 2)))
    nest = LoopNest("kernel", (x, y), (size,), body, (1,))
    assert pieces_of(nest).startswith("%")
    for rows in (0, 1, 3, 1000):
        source, found = array(rows, 512), np.zeros((rows, 512), np.float32)
        run(nest, source, found, sizes=[rows])
        assert (found == source * 2).all()


@pytest.mark.parametrize("elements", [10, 4096, 4097, 100_000])
@pytest.mark.parametrize("outer", [S, P, U])
def test_scratch_memory_in_loops(elements: int, outer: LoopKind) -> None:
    x, y = Buffer("x", F32, (3, elements)), Buffer("y", F32, (3, elements))
    t = Buffer("t", F32, (elements,))
    i, j, k = Var("i"), Var("j"), Var("k")
    fill = For(j, elements, V, Store(t, (elements - 1 - j,), load(x, i, j)))
    copy = For(k, elements, V, Store(y, (i, k), load(t, k)))
    nest = LoopNest("kernel", (x, y), (), For(i, 3, outer, Alloc(t, seq(fill, copy))), (1,))
    source, found = array(3, elements), np.zeros((3, elements), np.float32)
    text = run(nest, source, found)
    np.testing.assert_array_equal(found, source[:, ::-1])
    assert text.count("call ptr @ansor_alloc") == text.count("call void @ansor_free")
    assert ("call ptr @ansor_alloc" in text) == (elements > 4096)


def test_strided_buffers() -> None:
    t = Buffer("t", F32, (4, 5), strides=(8, 1))
    y = Buffer("y", F32, (4, 5))
    i, j, k, m = Var("i"), Var("j"), Var("k"), Var("m")
    fill = For(i, 4, S, For(j, 5, S, Store(t, (i, j), cast(i * 10 + j, F32))))
    copy = For(k, 4, S, For(m, 5, V, Store(y, (k, m), load(t, k, m))))
    found = np.zeros((4, 5), np.float32)
    run(LoopNest("kernel", (y,), (), Alloc(t, seq(fill, copy)), (0,)), found)
    np.testing.assert_array_equal(found, np.arange(4)[:, None] * 10 + np.arange(5))


def test_long_unrolled_and_vectorized_loops_stay_small() -> None:
    x, y, i = Buffer("x", F32, (100_000,)), Buffer("y", F32, (100_000,)), Var("i")
    for kind in (U, V):
        body = For(i, 100_000, kind, Store(y, (i,), load(x, i)))
        source, found = array(100_000), np.zeros(100_000, np.float32)
        text = run(LoopNest("kernel", (x, y), (), body, (1,)), source, found)
        np.testing.assert_array_equal(found, source)
        assert len(text.splitlines()) < 200


@pytest.mark.parametrize("lanes", [1, 16])
def test_unrolled_loops_of_long_values_stay_small(lanes: int) -> None:
    """A step that is dozens of instructions counts as them: the code is bounded, not the iterations alone."""
    x, y = Buffer("x", F32, (200, lanes)), Buffer("y", F32, (100, lanes))
    i, j = Var("i"), Var("j")
    value: Expr = const(1.0, F32)
    for step in range(100):
        value = binary(BinaryOp.MAX, value * load(x, i + step, j), load(x, i, j))
    body = For(i, 100, U, For(j, lanes, V, Store(y, (i, j), value)))
    source, found = array(200, lanes), np.zeros((100, lanes), np.float32)
    text = run(LoopNest("kernel", (x, y), (), body, (1,)), source, found)
    expected = np.ones((100, lanes), np.float32)
    for step in range(100):
        expected = np.maximum(expected * source[step : step + 100], source[:100])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(text.splitlines()) < 2000


def test_of_nested_unrolled_loops_the_inner_ones_stay_unrolled() -> None:
    x, y, i, j = Buffer("x", F32, (4000, 8)), Buffer("y", F32, (4000, 8)), Var("i"), Var("j")
    body = For(i, 4000, U, For(j, 8, U, Store(y, (i, j), load(x, i, 7 - j) * load(x, i, j))))
    source, found = array(4000, 8), np.zeros((4000, 8), np.float32)
    text = run(LoopNest("kernel", (x, y), (), body, (1,)), source, found)
    np.testing.assert_array_equal(found, source * source[:, ::-1])
    assert len(text.splitlines()) < 200
    assert text.count("phi ") == 1


def test_loops_around_registers_stay_small_but_for_those_that_select_them() -> None:
    lines = {}
    for k in (4, 1000):
        a, b, c = array(6, k), array(k, 64, seed=1), np.zeros((6, 64), np.float32)
        lines[k] = len(run(matmul(6, 64, k, 6, 64, reduction=U), a, b, c).splitlines())
        np.testing.assert_array_equal(c, a @ b)
    assert lines[1000] < lines[4], "1000 steps are a loop, 4 are not"
    rows = emit_llvm(matmul(5000, 1, 4, 5000, 1), Machine.host())
    assert len(rows.splitlines()) > 5000, "each row is a register"


def test_gpu_programs_are_refused() -> None:
    y, i = Buffer("y", F32, (4,)), Var("i")
    store = Store(y, (i,), const(0.0, F32))
    with pytest.raises(BuildError, match="threadIdx"):
        emit_llvm(LoopNest("k", (y,), (), For(i, 4, LoopKind.THREAD_X, store), (0,)), Machine.host())
    with pytest.raises(BuildError, match="barrier"):
        emit_llvm(LoopNest("k", (y,), (), For(i, 4, S, seq(store, Barrier())), (0,)), Machine.host())
    growing = Buffer("t", F32, (i,))
    with pytest.raises(BuildError, match="changes from one iteration"):
        emit_llvm(LoopNest("k", (y,), (), For(i, 4, S, Alloc(growing, store)), (0,)), Machine.host())
    with pytest.raises(BuildError, match="'i' is used outside"):
        emit_llvm(LoopNest("k", (y,), (), store, (0,)), Machine.host())


def test_odd_names_are_quoted() -> None:
    y, i = Buffer("y", F32, (40,)), Var("i")
    nest = LoopNest('2 odd "name" é', (y,), (), For(i, 40, P, Store(y, (i,), const(1.0, F32))), (0,))
    text = emit_llvm(nest, Machine.host())
    assert compile_ir(text, Machine.host())


@pytest.mark.parametrize(
    ("source", "target"),
    [("int32", "int16"), ("int32", "int8"), ("int64", "int32"), ("int64", "int8"), ("float32", "bfloat16")],
)
@pytest.mark.parametrize("lanes", [3, 4, 8, 16])
def test_one_lane_of_a_narrowed_vector_is_stored_alone(source: str, target: str, lanes: int) -> None:
    """Each unrolled iteration stores one known lane; the neighbours keep what they have."""
    a, b = Buffer("A", source, (lanes,)), Buffer("B", target, (lanes + 4,))
    i, j = Var("i"), Var("j")
    store = Store(b, (j,), cast(load(a, j) + const(1, source), target))
    body = For(i, lanes, U, For(j, lanes, V, If(binary(BinaryOp.EQ, i * 2, j), store)))
    nest = LoopNest("lanes", (a, b), (), body, (1,))
    data = array(lanes, dtype=source)
    found = np.full(lanes + 4, 77, to_numpy(target))
    expected = found.copy()
    expected[:lanes:2] = (data + 1)[::2].astype(expected.dtype)
    run(nest, data, found)
    np.testing.assert_array_equal(found, expected)


def test_a_lane_store_that_llvm_would_widen_is_hidden_from_it() -> None:
    """On any machine: the mask is no constant for LLVM where it has the fault, and stays one elsewhere."""
    a, b = Buffer("A", "int32", (8,)), Buffer("B", "int8", (8,))
    j = Var("j")
    body = For(j, 8, V, If(binary(BinaryOp.EQ, j, 3), Store(b, (j,), cast(load(a, j), "int8"))))
    for cpu in ("skylake-avx512", "haswell"):
        machine = Machine.of("x86_64-unknown-linux-gnu", cpu)
        text = emit_llvm(LoopNest("hidden", (a, b), (), body, (1,)), machine)
        assert ("@ansor.yes" in text) == machine.widens_lane_stores
        stores = {line.split()[0] for line in assembly(text, machine).splitlines() if "(%rsi)" in line}
        assert stores
        assert stores <= {"movb", "vpextrb", "vpmovdb", "vmovdqu8"}, stores
    assert not Machine.of("x86_64-unknown-linux-gnu", "haswell").widens_lane_stores


def test_leaving_out_strength_reduction_is_nothing_that_others_notice() -> None:
    """The choice is an option of the whole process, so it must be as before afterwards."""
    machine = Machine.of("x86_64-unknown-linux-gnu", "znver4")
    text = emit_llvm(matmul(24, 256, 256, 6, 64), machine)
    before = compile_ir(text, machine, strength_reduction=True)
    assert compile_ir(text, machine) != before
    assert compile_ir(text, machine, strength_reduction=True) == before
