"""GPU programs in kernel form, run by OpenCL: blocks, threads, shared memory, vectors, several kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ansor import te
from ansor.codegen.c import CUDA, OPENCL, Launch, emit_c, launches, scratch_shapes, split_kernels
from ansor.dtypes import DTYPES, dtype_info, int_range, to_numpy
from ansor.errors import BuildError, RunError
from ansor.ir.dims import evaluate
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, LoopKind, LoopNest, Stmt, seq
from ansor.runtime.signature import Signature
from ansor.te.expr import Expr, Var, cast, const, select
from tests.cuda_on_host import Run, each_language, run_together
from tests.device_nests import (
    SERIAL,
    VECTORIZED,
    argmax,
    copied,
    gelu,
    launch,
    load,
    matmul,
    softmax,
    store,
    transposed,
    vector_add,
)
from tests.gpu_schedules import bind_all, kernels
from tests.opencl_helper import run_opencl


def random(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype_info(dtype).kind == "float":
        return rng.uniform(-2, 2, shape).astype(to_numpy(dtype))
    low, high = int_range(dtype)
    return rng.integers(low, high, shape, np.int64 if low < 0 else np.uint64, endpoint=True).astype(
        to_numpy(dtype)
    )


def as_interpreted(
    run: Run, nest: LoopNest, *arrays: np.ndarray, sizes: tuple[int, ...] = (), rtol: float = 1e-6
) -> str:
    """Run a nest on a device and in the interpreter; gives the text."""
    expected = [array.copy() for array in arrays]
    run_nest(nest, expected, sizes)
    text = run(nest, *arrays, sizes=sizes)
    for found, right in zip(arrays, expected, strict=True):
        if dtype_info(str(found.dtype)).kind == "float":
            found, right = found.astype(np.float64), right.astype(np.float64)
        np.testing.assert_allclose(found, right, rtol, rtol)
    return text


@pytest.mark.parametrize("n", [0, 1, 255, 256, 1000])
@each_language
def test_vector_add(run: Run, n: int) -> None:
    a, b, c = random((n + 1,)), random((n + 1,), seed=1), np.zeros(n + 1, np.float32)
    run(vector_add(), a, b, c, sizes=[n])
    np.testing.assert_array_equal(c, np.where(np.arange(n + 1) < n, a + b, 0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "bool"])
def test_vectors_that_are_stored_apart_are_loaded_at_once(dtype: str) -> None:
    """The rows of the tile begin where no vector may."""
    a = random((64, 64), dtype) if dtype != "bool" else random((64, 64), "uint8") > 99
    b = np.zeros_like(a)
    text = run_opencl(transposed(dtype=dtype), a, b)
    np.testing.assert_array_equal(b, a.T)
    assert "A_v.w" in text


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32", "uint8"])
@each_language
def test_matmul(run: Run, dtype: str) -> None:
    if dtype_info(dtype).kind == "float":
        a, b = random((32, 32), dtype), random((32, 32), dtype, 1)
    else:
        a, b = (np.random.default_rng(k).integers(0, 200, (32, 32)).astype(dtype) for k in range(2))
    c = np.zeros_like(a)
    run(matmul(32, dtype), a, b, c)
    if dtype_info(dtype).kind == "float":
        unit = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
        exact = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(c.astype(np.float64), exact, atol=32 * 16 * unit)
    else:
        np.testing.assert_array_equal(c, a @ b)


@each_language
def test_softmax(run: Run) -> None:
    x, y = random((6, 50)), np.zeros((6, 50), np.float32)
    run(softmax(), x, y)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


@each_language
def test_argmax(run: Run) -> None:
    x, where, what = random((5, 40)), np.zeros(5, np.int32), np.zeros(5, np.float32)
    run(argmax(), x, where, what)
    np.testing.assert_array_equal(where, x.argmax(axis=1))
    np.testing.assert_array_equal(what, x.max(axis=1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@each_language
def test_two_kernels_with_scratch_of_symbolic_size(run: Run, dtype: str) -> None:
    x, y = random((40, 7), dtype), np.zeros((40, 10), to_numpy(dtype))
    as_interpreted(run, gelu(dtype), x, y, sizes=(40, 7), rtol=2.0**-7)


# -- vectors -----------------------------------------------------------------------------------------


def together_on_opencl(nests: Sequence[LoopNest], arrays: Sequence[Sequence[np.ndarray]]) -> list[str]:
    """Run nests with their arrays as one program; gives the text of each."""
    run_together(run_opencl, [(nest, own, ()) for nest, own in zip(nests, arrays, strict=True)])
    return [emit_c(split_kernels(nest), OPENCL) for nest in nests]


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_are_copied(dtype: str) -> None:
    """As many elements at once as 16 bytes hold; other lengths in pieces, or one by one."""
    lengths = (2, 3, 4, 8, 16)
    arrays = [(a, np.zeros_like(a)) for a in (random((64 * lanes,), dtype) for lanes in lengths)]
    texts = together_on_opencl([copied(dtype, lanes) for lanes in lengths], arrays)
    for lanes, (a, b), text in zip(lengths, arrays, texts, strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
        at_once = max((k for k in (2, 4, 8, 16) if lanes % k == 0 and k * a.itemsize <= 16), default=1)
        assert text.count("*)&A[") == (0 if at_once == 1 else lanes // at_once), text
        assert ("#pragma unroll" in text) == (at_once == 1)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "bool"])
def test_vectors_are_computed_with(dtype: str) -> None:
    lengths = (2, 4, 8)
    arrays = [(a, np.zeros_like(a)) for a in (random((64 * lanes,), dtype) for lanes in lengths)]
    texts = together_on_opencl([copied(dtype, lanes, relu=True) for lanes in lengths], arrays)
    for (a, b), text in zip(arrays, texts, strict=True):
        np.testing.assert_array_equal(b, np.maximum(a, np.zeros_like(a)))
        assert "#pragma unroll" not in text
        assert "A_v.x" in text


def vectorized(
    value, shape: tuple[int, ...] = (8, 8), guard: Expr | None = None, **buffers: Buffer
) -> LoopNest:  # type: ignore[no-untyped-def]
    """`out[i, 4*j + v] = value(i, j, v)` for i in 8 threads, j in 2 and v in 4 lanes."""
    i, j, v = Var("i"), Var("j"), Var("v")
    expr = value(i, j, v)
    out = Buffer("out", expr.dtype, shape)
    body: Stmt = For(v, 4, VECTORIZED, store(out, (i, j * 4 + v), expr))
    params = (*buffers.values(), out)
    return LoopNest("kernel", params, (), launch(body, tx=(i, 8), bx=(j, 2)), (len(params) - 1,))


@pytest.mark.parametrize("dtype", DTYPES)
@each_language
def test_padding_is_vectors_of_zeros(run: Run, dtype: str) -> None:
    """Where all lanes share the condition; of what is beyond it nothing is loaded."""
    programs = []
    for lanes in (4, 8):
        a, b = Buffer("A", dtype, (5 * lanes,)), Buffer("B", dtype, (8 * lanes,))
        i, v = Var("i"), Var("v")
        value = select(i < 5, load(a, i * lanes + v), const(0, dtype), lazy=True)
        body = For(v, lanes, VECTORIZED, store(b, (i * lanes + v,), value))
        nest = LoopNest("kernel", (a, b), (), launch(body, tx=(i, 8)), (1,))
        programs.append((nest, (random((5 * lanes,), dtype), random((8 * lanes,), dtype, 1)), ()))
    text = run_together(run, programs)
    for _, (x, y), _ in programs:
        np.testing.assert_array_equal(y[: len(x)].view(np.uint8), x.view(np.uint8))
        np.testing.assert_array_equal(y[len(x) :].view(np.uint8), 0)
    assert text.count("*)&A") == sum(max(lanes * x.itemsize // 16, 1) for lanes in (4, 8)), text


def test_negative_zeros_are_no_padding() -> None:
    a = Buffer("A", "float32", (8, 8))
    x, out = random((8, 8)), np.zeros((8, 8), np.float32)

    def value(i: Expr, j: Expr, v: Expr) -> Expr:
        return select(i < 5, load(a, i, j * 4 + v), const(-0.0), lazy=True)

    run_opencl(vectorized(value, A=a), x, out)
    np.testing.assert_array_equal(out, np.where(np.arange(8)[:, None] < 5, x, np.float32(0)))
    assert np.signbit(out[5:]).all()


def test_what_is_no_vector_is_unrolled() -> None:
    """Rows that are not aligned, other steps, guards that differ between lanes, loads under a condition."""
    a = Buffer("A", "float32", (8, 9))
    cases = {
        "row": lambda i, j, v: load(a, i, j * 4 + v),
        "shifted": lambda i, j, v: load(a, i, j * 4 + v + 1),
        "reversed": lambda i, j, v: load(a, i, 7 - (j * 4 + v)),
        "column": lambda i, j, v: load(a, j * 4 + v, i),
        "lane": lambda i, j, v: cast(v, "float32"),
        "guarded": lambda i, j, v: select(v > 1, load(a, i, j * 4 + v), const(0.0), lazy=True),
    }
    for name, value in cases.items():
        x, out = random((8, 9)), np.zeros((8, 8), np.float32)
        text = as_interpreted(run_opencl, vectorized(value, A=a), x, out)
        assert "*)&A[" not in text, name
        assert "(__global float4*)&out[" in text, name  # the store still is one
    x, out = random((8, 9)), np.zeros((8, 9), np.float32)
    text = run_opencl(vectorized(cases["row"], (8, 9), A=a), x, out)
    np.testing.assert_array_equal(out[:, :8], x[:, :8])
    assert "#pragma unroll" in text


def test_vector_loads_into_private_arrays() -> None:
    """And loads that all lanes share, the same vector twice, two dtypes of different sizes."""
    a, b, out = (
        Buffer("A", "float16", (8, 4)),
        Buffer("B", "float32", (8, 4)),
        Buffer("out", "float32", (8, 4)),
    )
    local = Buffer("local", "float32", (4,), "local")
    i, v, w = Var("i"), Var("v"), Var("w")
    value = cast(load(a, i, v), "float32") * load(b, i, v) + load(b, i, v) + load(b, i, 0)
    body = Alloc(local, seq(For(v, 4, VECTORIZED, store(local, (v,), value)),
                            For(w, 4, VECTORIZED, store(out, (i, w), load(local, 3 - w)))))  # fmt: skip
    nest = LoopNest("kernel", (a, b, out), (), launch(body, tx=(i, 8)), (2,))
    text = as_interpreted(
        run_opencl, nest, random((8, 4), "float16"), random((8, 4)), np.zeros((8, 4), np.float32)
    )
    assert "const ushort4 A_v" in text
    assert text.count("const float4 B_v") == 1
    assert text.count("local_[") == 9  # declared, four stores, four loads


def test_a_condition_around_a_vector() -> None:
    n, i, v = Var("n"), Var("i"), Var("v")
    a, b = (Buffer(name, "float32", (64,)) for name in "AB")
    body = For(v, 4, VECTORIZED, If(i < n, store(b, (i * 4 + v,), load(a, i * 4 + v))))
    nest = LoopNest("kernel", (a, b), (n,), launch(body, tx=(i, 16)), (1,))
    x, y = random((64,)), np.zeros(64, np.float32)
    text = run_opencl(nest, x, y, sizes=[5])
    np.testing.assert_array_equal(y, np.where(np.arange(64) < 20, x, 0))
    assert "float4" in text


# -- memory ------------------------------------------------------------------------------------------


def test_padded_shared_memory_and_its_barrier() -> None:
    """A transposition through rows of 9 elements."""
    a, b = (Buffer(name, "float32", (8, 8)) for name in "AB")
    tile = Buffer("tile", "float32", (8, 8), "shared", (9, 1))
    i, j = Var("i"), Var("j")
    body = Alloc(tile, seq(store(tile, (i, j), load(a, i, j)), Barrier(), store(b, (i, j), load(tile, j, i))))
    nest = LoopNest("kernel", (a, b), (), launch(body, ty=(i, 8), tx=(j, 8)), (1,))
    x, y = random((8, 8)), np.zeros((8, 8), np.float32)
    text = run_opencl(nest, x, y)
    np.testing.assert_array_equal(y, x.T)
    assert "tile[72]" in text
    assert "tile[j * 9 + i]" in text
    assert "CLK_GLOBAL" not in text


def test_a_barrier_orders_global_memory_that_is_read_back() -> None:
    a, b = (Buffer(name, "float32", (8,)) for name in "AB")
    i = Var("i")
    body = seq(store(a, (i,), cast(i, "float32")), Barrier(), store(b, (i,), load(a, 7 - i)))
    nest = LoopNest("kernel", (a, b), (), launch(body, tx=(i, 8)), (0, 1))
    x, y = np.zeros(8, np.float32), np.zeros(8, np.float32)
    assert "CLK_GLOBAL_MEM_FENCE" in run_opencl(nest, x, y)
    np.testing.assert_array_equal(y, np.arange(8)[::-1])


def test_a_barrier_orders_global_memory_that_is_written_twice() -> None:
    """By different threads; what is stored at one place needs no such order."""
    a, shared, i = Buffer("A", "int32", (8,)), Buffer("S", "int32", (8,), "shared"), Var("i")

    def text(*stmts: Stmt) -> str:
        nest = LoopNest("kernel", (a,), (), launch(Alloc(shared, seq(*stmts)), tx=(i, 8)), (0,))
        return emit_c(split_kernels(nest), OPENCL)

    assert "CLK_GLOBAL" in text(store(a, (i,), i), Barrier(), store(a, (7 - i,), i))
    assert "CLK_GLOBAL" not in text(store(shared, (i,), i), Barrier(), store(a, (i,), load(shared, 7 - i)))


def test_large_arrays_are_addressed_in_64_bits() -> None:
    n, i, j = Var("n"), Var("i"), Var("j")
    small, large = (
        Buffer("small", "int8", (1 << 15, (1 << 16) - 1)),
        Buffer("large", "int8", (1 << 15, 1 << 16)),
    )
    symbolic, row = Buffer("symbolic", "int8", (n, 8)), Buffer("row", "int8", (n,))
    ones = [store(b, (i, j), const(1, "int8")) for b in (small, large, symbolic)]
    body = seq(*ones, If(j < 1, store(row, (i,), const(1, "int8"))))
    nest = LoopNest(
        "kernel", (small, large, symbolic, row), (n,), launch(body, bx=(i, n), tx=(j, 8)), (0, 1, 2, 3)
    )
    text = emit_c(split_kernels(nest), CUDA)
    assert "small[i * 65535 + j]" in text
    assert "large[(long long)i * 65536 + j]" in text
    assert "symbolic[(long long)i * 8 + j]" in text
    assert "row[i]" in text
    assert "int n" not in text  # only the grid needs it


# -- what the host is told ---------------------------------------------------------------------------


def test_launches() -> None:
    nest = gelu("float16")
    program = split_kernels(nest, "exported")
    signature = Signature.of_nest(nest, symbol="exported", triple="", cpu="")
    first, second = launches(program, signature)
    assert first == Launch(
        "exported_kernel0", (("param", 0), ("scratch", 0), ("size", 0), ("size", 1)), (1, 1, 1), (64, 1, 1)
    )
    assert second == Launch(
        "exported_kernel1",
        (("param", 1), ("scratch", 0), ("size", 1)),
        ("n", 1, 1),
        (32, 1, 1),
        (("add", "m", 3),),
    )
    assert scratch_shapes(program, signature) == [("float32", ("n", "m"))]
    assert [Launch.from_json(one.to_json()) for one in (first, second)] == [first, second]
    (add,) = launches(
        split_kernels(vector_add()), Signature.of_nest(vector_add(), symbol="f", triple="", cpu="")
    )
    assert evaluate(add.grid[0], {"n": 257}) == 2
    assert Launch.from_json(add.to_json()) == add
    assert add.blocks({"n": 257}) == (2, 1, 1)
    assert add.blocks({"n": -300}) == (0, 1, 1)
    assert add.blocks({"n": 2**31 - 256}) == (2**23 - 1, 1, 1)
    assert add.blocks({"n": 2**31 - 1}) == (2**23, 1, 1)
    wide = replace(add, grid=(("mul", "n", 256), 1, 1))
    assert wide.blocks({"n": 2**23 - 1}) == (2**31 - 256, 1, 1), "threads of a block are counted apart"
    with pytest.raises(RunError, match="vector_add_kernel0 takes 2147483648 blocks along x, and kernels"):
        wide.blocks({"n": 2**23})


def test_what_kernels_cannot_count_is_refused() -> None:
    """Elements of fused axes, and iterations beyond the end of one, wherever blocks of threads are few."""
    n, m = te.var("n"), te.var("m")

    def launch_of(shape: tuple[Expr, ...]) -> Launch:
        x = te.placeholder(shape, "int8", name="X")
        y = te.compute(shape, lambda *at: x[at] + te.const(1, "int8"), name="Y")
        s = te.create_schedule(y)
        axis = s[y].fuse(*y.op.axis) if len(shape) > 1 else y.op.axis[0]
        block, thread = s[y].split(s[y].split(axis, factor=3)[0], factor=1000)
        s[y].bind(block, te.thread_axis("blockIdx.x"))
        s[y].bind(thread, te.thread_axis("threadIdx.x"))
        nest = kernels(s.state)
        (made,) = launches(split_kernels(nest), Signature.of_nest(nest, symbol="f", triple="", cpu=""))
        assert Launch.from_json(made.to_json()) == made
        return made

    row = launch_of((n,))
    assert row.blocks({"n": 2**31 - 3000}) == (715827, 1, 1)
    with pytest.raises(RunError, match="counts iterations or elements up to 2147483999, and kernels count"):
        row.blocks({"n": 2**31 - 1})
    matrix = launch_of((n, m))
    assert matrix.blocks({"n": 46340, "m": 46340}) == (715799, 1, 1)
    assert matrix.blocks({"n": 0, "m": 46340}) == (0, 1, 1)
    with pytest.raises(RunError, match=r"kernel_kernel0 counts .* use smaller arrays, or fuse fewer loops"):
        matrix.blocks({"n": 65536, "m": 65537})


def test_what_several_outputs_read_is_counted_too() -> None:
    """They are kept in variables before they are stored."""
    n, m = te.var("n"), te.var("m")
    x, d = te.placeholder((n * m,), "int32", name="X"), te.placeholder((n, m), "int8", name="D")
    k = te.reduce_axis((0, m), "k")
    both = te.comm_reducer(
        lambda a, b: (a[0] + b[0], te.maximum(a[1], b[1])),
        lambda a, b: (te.const(0, a), te.min_value(b)),
        name="both",
    )
    sums = te.compute((n,), lambda i: both((x[i * m + k], te.cast(d[i, k], "int32")), axis=k), name="B")
    s = te.create_schedule(sums[0])
    bind_all(s, sums[0], 64)
    nest = kernels(s.state)
    (made,) = launches(split_kernels(nest), Signature.of_nest(nest, symbol="f", triple="", cpu=""))
    assert made.blocks({"n": 1000, "m": 1000}) == (16, 1, 1)
    with pytest.raises(RunError, match="counts iterations or elements up to"):
        made.blocks({"n": 70000, "m": 70000})


def test_conditions_under_which_memory_is_read_are_counted_too() -> None:
    n, q = te.var("n"), te.var("q")
    x = te.placeholder((n,), "int32", name="X")
    y = te.compute((q,), lambda i: te.if_then_else(i * q < n, x[i * q], 0), name="Y")
    s = te.create_schedule(y)
    bind_all(s, y, 64)
    nest = kernels(s.state)
    (made,) = launches(split_kernels(nest), Signature.of_nest(nest, symbol="f", triple="", cpu=""))
    with pytest.raises(RunError, match="counts iterations or elements up to"):
        made.blocks({"n": 1000, "q": 100000})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"kernel": "f", "arguments": [["param"]], "grid": [1, 1, 1], "block": [1, 1, 1]},
        {"kernel": "f", "arguments": [["file", 0]], "grid": [1, 1, 1], "block": [1, 1, 1]},
        {"kernel": "f", "arguments": [], "grid": [1, 1], "block": [1, 1, 1]},
        {"kernel": "f", "arguments": [], "grid": [1, 1, 1.5], "block": [1, 1, 1]},
    ],
)
def test_malformed_launches_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BuildError, match="the description of a launch is malformed"):
        Launch.from_json(fields)


def test_sizes_of_64_bits_are_passed_as_such() -> None:
    n, i = Var("n", "int64"), Var("i", "int64")
    a = Buffer("A", "int64", (n,))
    nest = LoopNest("kernel", (a,), (n,), launch(If(i < n, store(a, (i,), n - i)), tx=(i, 32)), (0,))
    found = np.zeros(20, np.int64)
    run_opencl(nest, found, sizes=[17])
    np.testing.assert_array_equal(found, [*range(17, 0, -1), 0, 0, 0])
    assert launches(split_kernels(nest), Signature.of_nest(nest, symbol="f", triple="", cpu=""))[
        0
    ].arguments == (
        ("param", 0),
        ("size64", 0),
    )


# -- what is refused ---------------------------------------------------------------------------------


def test_what_is_not_in_kernel_form_is_refused() -> None:
    n, i, j = Var("n"), Var("i"), Var("j")
    a = Buffer("A", "float32", (8, 8))
    one = store(a, (i, j), const(1.0))

    def refused(body: Stmt, message: str) -> None:
        with pytest.raises(BuildError, match=f"no GPU can run 'f'; lower it for the GPU target.*{message}"):
            split_kernels(LoopNest("f", (a,), (n,), body, (0,)))

    for kind in (LoopKind.PARALLEL, LoopKind.VTHREAD, LoopKind.THREAD_X, LoopKind.BLOCK_Y):
        refused(launch(If(i < n, For(j, 8, kind, one)), tx=(i, 8)), f"f: .* a {kind} loop inside of a kernel")
    refused(launch(For(j, 8, SERIAL, one), tx=(i, n)), "threadIdx.x has the extent `n`, which is no number")
    scratch = Buffer("scratch", "float32", (8,))
    inside = launch(Alloc(scratch, For(j, 8, SERIAL, one)), tx=(i, 8))
    refused(inside, "'scratch' of scope 'global' is allocated inside of a kernel")
    private = Buffer("private", "float32", (n,), "local")
    used = Alloc(private, For(j, 8, SERIAL, seq(store(private, (0,), const(0.0)), one)))
    refused(launch(used, tx=(i, 8)), "'private', allocated inside of a kernel, has no constant size")
    refused(launch(store(a, (j, 0), const(1.0)), tx=(i, 8)), "")


def test_kernels_are_named_by_identifiers_of_c() -> None:
    nest = vector_add()
    for name, symbol in (("a-b", "a_b_kernel0"), ("2nd", "_2nd_kernel0")):
        (kernel,) = split_kernels(replace(nest, name=name)).kernels
        assert kernel.name == symbol
        assert f" {symbol}(" in emit_c(split_kernels(replace(nest, name=name)), CUDA)
