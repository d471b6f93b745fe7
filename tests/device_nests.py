"""GPU programs in kernel form, written by hand: what the tests of device code emit, compile and run."""

from __future__ import annotations

from collections.abc import Sequence

from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, Let, LoopKind, LoopNest, Stmt, Store, seq
from ansor.te.expr import Binary, BinaryOp, Expr, Load, Var, call, cast, const, select

SERIAL, UNROLLED, VECTORIZED = LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED


def load(buffer: Buffer, *indices: Expr | int) -> Load:
    return Load(buffer, tuple(const(i) if isinstance(i, int) else i for i in indices), buffer.dtype)


def store(buffer: Buffer, indices: tuple[Expr | int, ...], value: Expr) -> Store:
    return Store(buffer, load(buffer, *indices).indices, value)


def launch(body: Stmt, **loops: tuple[Var, int | Expr]) -> Stmt:
    """`body` in a kernel; `bx=(var, 4)` binds blockIdx.x, `ty=...` threadIdx.y."""
    order = ("bz", "by", "bx", "tz", "ty", "tx")
    for key in sorted(loops, key=order.index, reverse=True):
        kind = LoopKind(("blockIdx." if key[0] == "b" else "threadIdx.") + key[1])
        body = For(loops[key][0], loops[key][1], kind, body)
    return body


def together(nests: Sequence[LoopNest]) -> LoopNest:
    """The kernels of several nests as those of one."""
    bodies, scratch = [], []
    for nest in nests:
        body = nest.body
        while isinstance(body, Alloc) and body.buffer.scope == "global":
            scratch.append(body.buffer)
            body = body.body
        bodies.append(body)
    whole = seq(*bodies)
    for buffer in scratch:
        whole = Alloc(buffer, whole)
    params = [param for nest in nests for param in nest.params]
    written = {nest.params[position] for nest in nests for position in nest.outputs}
    outputs = tuple(position for position, param in enumerate(params) if param in written)
    sizes = tuple(size for nest in nests for size in nest.sizes)
    return LoopNest("all", tuple(params), sizes, whole, outputs)


def vector_add() -> LoopNest:
    """Of a symbolic length, 256 threads a block, with a tail guard."""
    n, block, thread = Var("n"), Var("i.0"), Var("i.1")
    a, b, c = (Buffer(name, "float32", (n,)) for name in "ABC")
    i = block * 256 + thread
    body = If(i < n, store(c, (i,), load(a, i) + load(b, i)))
    return LoopNest(
        "vector_add", (a, b, c), (n,), launch(body, bx=(block, (n + 255) // 256), tx=(thread, 256)), (2,)
    )


ODD_NAMES = (
    *("max", "float", "uint", "half", "exp", "get_local_id", "local", "t", "INFINITY", "a b", "λ", "x.y"),
    *(
        "vec_step",
        "CLANG_MAJOR",
        "RAND_MAX",
        "EXIT_FAILURE",
        "NULL",
        "SEEK_SET",
        "L_tmpnam",
        "cudaStreamLegacy",
    ),
)
"""Of tensors: words and macros of the languages, of their headers, and other names."""


def oddly_named() -> LoopNest:
    """The first of such tensors from all others."""
    buffers = [Buffer(name, "float32", (8,)) for name in ODD_NAMES]
    k = Var("get_local_id")
    total: Expr = const(0.0)
    for buffer in buffers[1:]:
        total = Binary(BinaryOp.MAX, total, call("exp", Load(buffer, (k,), "float32")), "float32")
    return LoopNest("kernel", tuple(buffers), (), launch(store(buffers[0], (k,), total), tx=(k, 8)), (0,))


def copied(dtype: str, lanes: int, relu: bool = False) -> LoopNest:
    """One row of 64 vectors, copied; or, element by element, its positive part."""
    block, thread, lane = Var("i.0"), Var("i.1"), Var("i.2")
    a, b = (Buffer(name, dtype, (64 * lanes,)) for name in "AB")
    i = block * (32 * lanes) + thread * lanes + lane
    value: Expr = load(a, i)
    if relu:
        value = Binary(BinaryOp.MAX, value, const(0, dtype), dtype)
    body = For(lane, lanes, VECTORIZED, store(b, (i,), value))
    return LoopNest("copied", (a, b), (), launch(body, bx=(block, 2), tx=(thread, 32)), (1,))


def transposed(n: int = 64, dtype: str = "float32") -> LoopNest:
    """Tiles of 32 by 32 through shared memory whose rows are padded by an element."""
    a, b = (Buffer(name, dtype, (n, n)) for name in "AB")
    tile = Buffer("A.shared", dtype, (32, 32), "shared", (33, 1))
    by, bx, ty, tx, there, back = (Var(name) for name in ("i.0", "j.0", "i.1", "j.1", "j.2", "i.2"))
    body = seq(
        For(
            there,
            4,
            VECTORIZED,
            store(tile, (ty, tx * 4 + there), load(a, by * 32 + ty, bx * 32 + tx * 4 + there)),
        ),
        Barrier(),
        For(
            back,
            4,
            VECTORIZED,
            store(b, (bx * 32 + ty, by * 32 + tx * 4 + back), load(tile, tx * 4 + back, ty)),
        ),
    )
    whole = launch(Alloc(tile, body), by=(by, n // 32), bx=(bx, n // 32), ty=(ty, 32), tx=(tx, 8))
    return LoopNest("transposed", (a, b), (), whole, (1,))


def matmul(n: int = 64, dtype: str = "float32") -> LoopNest:
    """Tiles of 16 by 16 through shared memory, loaded together as vectors; 2 by 2 elements a thread."""
    a, b, c = (Buffer(name, dtype, (n, n)) for name in "ABC")
    a_shared, b_shared = (
        Buffer("A.shared", dtype, (16, 8), "shared"),
        Buffer("B.shared", dtype, (8, 16), "shared"),
    )
    local = Buffer("C.local", dtype, (2, 2), "register")
    by, bx, ty, tx = (Var(name) for name in ("i.0", "j.0", "i.1", "j.1"))
    outer, inner = Var("k.0"), Var("k.1")
    i, j, i2, j2, i3, j3 = (Var(name) for name in ("i.2", "j.2", "i.2", "j.2", "i.2", "j.2"))
    va, vb = Var("ax0.v"), Var("ax0.v")
    fa, fb = (ty * 8 + tx) * 2 + va, (ty * 8 + tx) * 2 + vb
    step = seq(
        Barrier(),
        For(va, 2, VECTORIZED, store(
            a_shared, (fa // 8, fa % 8), load(a, by * 16 + fa // 8, outer * 8 + fa % 8))),
        For(vb, 2, VECTORIZED, store(
            b_shared, (fb // 16, fb % 16), load(b, outer * 8 + fb // 16, bx * 16 + fb % 16))),
        Barrier(),
        For(inner, 8, SERIAL, For(i2, 2, UNROLLED, For(j2, 2, UNROLLED, store(
            local, (i2, j2),
            load(local, i2, j2) + load(a_shared, ty * 2 + i2, inner) * load(b_shared, inner, tx * 2 + j2),
        )))),
    )  # fmt: skip
    body = Alloc(local, seq(
        For(i, 2, UNROLLED, For(j, 2, UNROLLED, store(local, (i, j), const(0.0, dtype)))),
        Alloc(a_shared, Alloc(b_shared, For(outer, n // 8, SERIAL, step))),
        For(i3, 2, UNROLLED, For(j3, 2, VECTORIZED, store(
            c, (by * 16 + ty * 2 + i3, bx * 16 + tx * 2 + j3), load(local, i3, j3)))),
    ))  # fmt: skip
    whole = launch(body, by=(by, n // 16), bx=(bx, n // 16), ty=(ty, 8), tx=(tx, 8))
    return LoopNest("matmul", (a, b, c), (), whole, (2,))


def softmax(rows: int = 6, columns: int = 50) -> LoopNest:
    """A block of 32 threads per row: the greatest, then the sum, each by a tree in shared memory."""
    x, y = (Buffer(name, "float32", (rows, columns)) for name in "XY")
    row, thread = Var("i"), Var("threadIdx.x")
    red, best, total = (Buffer(name, "float32", (size,), scope) for name, size, scope in
                        (("red", 32, "shared"), ("best", 1, "local"), ("total", 1, "local")))  # fmt: skip

    def walk(name: str, body) -> Stmt:  # type: ignore[no-untyped-def]
        """Every element of the row that is the thread's."""
        j = Var(name)
        column = j * 32 + thread
        return For(j, -(-columns // 32), SERIAL, If(column < columns, body(column)))

    def tree(partial: Buffer, op: BinaryOp) -> Stmt:
        stages: list[Stmt] = [Barrier(), store(red, (thread,), load(partial, 0))]
        for half in (16, 8, 4, 2, 1):
            pair = Binary(op, load(red, thread), load(red, thread + half), "float32")
            stages += [Barrier(), If(thread < half, store(red, (thread,), pair))]
        return seq(*stages, Barrier(), store(partial, (0,), load(red, 0)))

    def term(column: Expr) -> Expr:
        return call("exp", load(x, row, column) - load(best, 0))

    def greater(column: Expr) -> Store:
        return store(best, (0,), Binary(BinaryOp.MAX, load(best, 0), load(x, row, column), "float32"))

    body = Alloc(red, Alloc(best, Alloc(total, seq(
        store(best, (0,), const(-3.4028234663852886e38)),
        walk("j", greater),
        tree(best, BinaryOp.MAX),
        store(total, (0,), const(0.0)),
        walk("j", lambda column: store(total, (0,), load(total, 0) + term(column))),
        tree(total, BinaryOp.ADD),
        walk("j", lambda column: store(y, (row, column), term(column) / load(total, 0))),
    ))))  # fmt: skip
    return LoopNest("softmax", (x, y), (), launch(body, bx=(row, rows), tx=(thread, 32)), (1,))


def argmax(rows: int = 5, columns: int = 40) -> LoopNest:
    """The position and value of each row's greatest element: a tuple, by a tree over 8 threads."""
    x = Buffer("X", "float32", (rows, columns))
    where, what = Buffer("where", "int32", (rows,)), Buffer("max", "float32", (rows,))
    shared_i, shared_x = (
        Buffer("where.red", "int32", (8,), "shared"),
        Buffer("max.red", "float32", (8,), "shared"),
    )
    row, thread, j = Var("i"), Var("j.1"), Var("j.0")
    best_i, best_x = (
        Buffer("where.best", "int32", (1,), "local"),
        Buffer("max.best", "float32", (1,), "local"),
    )

    def take(i: Expr, value: Expr, into_i: Buffer, into_x: Buffer, at: Expr | int) -> Stmt:
        """The better of what is held and a new pair."""
        known, new = Var("known", "float32"), Var("new", "float32")
        return Let(new, value, Let(known, load(into_x, at), seq(
            store(into_i, (at,), select(known >= new, load(into_i, at), i)),
            store(into_x, (at,), select(known >= new, known, new)),
        )))  # fmt: skip

    column = j * 8 + thread
    stages: list[Stmt] = []
    for half in (4, 2, 1):
        partner = thread + half
        both = take(load(shared_i, partner), load(shared_x, partner), shared_i, shared_x, thread)
        stages += [Barrier(), If(thread < half, both)]
    body = Alloc(shared_i, Alloc(shared_x, Alloc(best_i, Alloc(best_x, seq(
        store(best_i, (0,), const(-1)),
        store(best_x, (0,), const(float("-inf"))),
        For(j, columns // 8, SERIAL, take(column, load(x, row, column), best_i, best_x, 0)),
        store(shared_i, (thread,), load(best_i, 0)),
        store(shared_x, (thread,), load(best_x, 0)),
        *stages,
        If(Binary(BinaryOp.EQ, thread, const(0), "bool"), seq(
            store(where, (row,), load(shared_i, 0)), store(what, (row,), load(shared_x, 0)),
        )),
    )))))  # fmt: skip
    return LoopNest("argmax", (x, where, what), (), launch(body, bx=(row, rows), tx=(thread, 8)), (1, 2))


def gelu(dtype: str) -> LoopNest:
    """Two kernels with scratch memory of symbolic size between them, in a 16-bit float, padded by 3."""
    n, m = Var("n"), Var("m")
    x, y = Buffer("X", dtype, (n, m)), Buffer("Y", dtype, (n, m + 3))
    wide = Buffer("wide", "float32", (n, m))
    i, j, i2, j2 = Var("i"), Var("j"), Var("i"), Var("j")
    value = load(x, i, j)
    scaled = cast(value, "float32") * 0.70710678
    first = store(wide, (i, j), cast(value, "float32") * (call("erf", scaled) * 0.5 + 0.5))
    inside = (j2 >= 1) & (j2 <= m)
    padded = select(inside, cast(load(wide, i2, j2 - 1), dtype), const(0.0, dtype), lazy=True)
    second = store(y, (i2, j2), padded + const(1.0, dtype))
    nest = seq(
        launch(For(j, m, SERIAL, If(i < n, first)), tx=(i, 64)),
        launch(If(j2 < m + 3, second), bx=(i2, n), tx=(j2, 32)),
    )
    return LoopNest("gelu", (x, y), (n, m), Alloc(wide, nest), (1,))
