"""GPU schedules by hand, and the check that their kernels are right, for the tests of GPU programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ansor import te
from ansor.ir.kernel_form import check_kernels
from ansor.ir.nest import Barrier, For, LoopKind, LoopNest, Seq, Stmt, Store, sub_statements, walk_statements
from ansor.ir.rewriting import map_statements
from ansor.ir.verify import check_nest
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.schedule.steps import MultiBufferStep, SwizzleStep
from ansor.te.expr import int_value
from tests.program_laws import Case

MOST_STEPS = 1500
"""Statements of a thread that the interpreter executes in a fraction of a second."""


def kernels(state: State | Any, args: Any = None, *, shuffles: bool = False) -> LoopNest:
    """The kernels of a state or schedule, checked for their form."""
    nest = lower(state, args, name="kernel", kernels=True, shuffles=shuffles)
    check_nest(nest)
    check_kernels(nest)
    return nest


def variants(state: State) -> list[LoopNest]:
    """The kernels of a state, and those with shuffles if these are others."""
    nest, shuffled = kernels(state), kernels(state, shuffles=True)
    return [nest] if str(nest) == str(shuffled) else [nest, shuffled]


def check_schedule(schedule: Any) -> LoopNest:
    """All kernels of a schedule compute what its graph says, without races; gives those without shuffles."""
    nests = variants(schedule.state)
    for nest in nests:
        Case.of(schedule.state).check_interpreted(nest, check_races=True)
    return nests[0]


def text_of(nest: LoopNest) -> str:
    """The printed nest without its header."""
    return str(nest).split("\n", 1)[1]


def count(stmt: Stmt, kind: type) -> int:
    return sum(isinstance(s, kind) for s in walk_statements(stmt))


def steps(stmt: Stmt) -> int:
    """How often a thread executes a store."""
    inner = isinstance(stmt, Store) + sum(map(steps, sub_statements(stmt)))
    if isinstance(stmt, For) and stmt.kind in (LoopKind.SERIAL, LoopKind.UNROLLED):
        return inner * (int_value(stmt.extent) or 1)
    return inner


def without_barrier(stmt: Stmt, number: int) -> Stmt:
    """A statement without the barrier of this number, counted from 0 in the order of the text."""
    left = [number]

    def visit(inner: Stmt) -> Stmt:
        if not isinstance(inner, Seq):
            return map_statements(inner, visit)
        parts = []
        for part in inner.stmts:
            if isinstance(part, Barrier):
                left[0] -= 1
                if left[0] == -1:
                    continue
            parts.append(visit(part))
        return Seq(tuple(parts))

    return visit(stmt)


# -- graphs ------------------------------------------------------------------------------------------------


def matmul(n: int, m: int, depth: int) -> tuple[Any, Any, Any]:
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k = te.reduce_axis((0, depth), name="k")
    return a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


def softmax(n: int, m: int) -> tuple[Any, Any, Any, Any]:
    """The input, the rows' greatest and sums, and the result."""
    x = te.placeholder((n, m), name="X")
    k1, k2 = te.reduce_axis((0, m), name="k1"), te.reduce_axis((0, m), name="k2")
    high = te.compute((n,), lambda i: te.max(x[i, k1], axis=k1), name="High")
    total = te.compute((n,), lambda i: te.sum(te.exp(x[i, k2] - high[i]), axis=k2), name="Total")
    return x, high, total, te.compute((n, m), lambda i, j: te.exp(x[i, j] - high[i]) / total[i], name="Y")


def row_sums(n: int, m: int, threads: int, dtype: str = "float32") -> Any:
    """A row for each block, by so many threads."""
    x = te.placeholder((n, m), dtype, name="X")
    k = te.reduce_axis((0, m), name="k")
    total = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="S")
    s = te.create_schedule(total)
    reduce_together(s, total, threads)
    s[total].bind(total.op.axis[0], te.thread_axis("blockIdx.x"))
    return s


def argmax(n: int, m: int) -> tuple[Any, Any, Any]:
    """The greatest of each row and where it is, lowest first."""
    x = te.placeholder((n, m), "int32", name="X")
    k = te.reduce_axis((0, m), name="k")

    def combine(p: Any, q: Any) -> Any:
        first = te.any(p[1] > q[1], te.all(p[1] == q[1], p[0] <= q[0]))
        return te.select(first, p[0], q[0]), te.select(first, p[1], q[1])

    reducer = te.comm_reducer(
        combine, lambda index, value: (te.max_value(index), te.min_value(value)), name="argmax"
    )
    place, value = te.compute((n,), lambda i: reducer((k + 0, x[i, k]), axis=k), name="Best")
    return x, place, value


# -- schedules ---------------------------------------------------------------------------------------------


def tiled_matmul(
    sizes: tuple[int, int, int],
    i_tile: tuple[int, int, int],
    j_tile: tuple[int, int, int],
    k_tile: int,
    vector: int = 1,
    unroll: int = 0,
) -> Any:
    """Blocks, virtual threads, threads and elements, through shared memory that all threads fill.

    `i_tile` and `j_tile` are virtual threads, threads and elements of each. Nothing needs to divide.
    """
    a, b, c = matmul(*sizes)
    s = te.create_schedule(c)
    local = s.cache_write(c, "local")
    i, j = s[local].op.axis
    (k,) = s[local].op.reduce_axis
    i0, i1, i2, i3 = s[local].split(i, factors=list(i_tile))
    j0, j1, j2, j3 = s[local].split(j, factors=list(j_tile))
    k0, k1 = s[local].split(k, factor=k_tile)
    s[local].reorder(i0, j0, i1, j1, i2, j2, k0, k1, i3, j3)
    ci0, ci1, ci2, ci3 = s[c].split(s[c].op.axis[0], factors=list(i_tile))
    cj0, cj1, cj2, cj3 = s[c].split(s[c].op.axis[1], factors=list(j_tile))
    s[c].reorder(ci0, cj0, ci1, cj1, ci2, cj2, ci3, cj3)
    block, virtual = s[c].fuse(ci0, cj0), s[c].fuse(ci1, cj1)
    thread = s[c].fuse(ci2, cj2)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(virtual, te.thread_axis("vthread"))
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    s[local].compute_at(s[c], thread)
    if unroll:
        s[local].pragma(s[local].leaf_iter_vars[0], "auto_unroll_max_step", unroll)
    for tensor in (b, a):
        shared = s.cache_read(tensor, "shared", [local])
        s[shared].compute_at(s[local], k0)
        load_together(s, shared, i_tile[1] * j_tile[1], vector)
    return s


def small_product(*sizes: int, inner: int = 2) -> Any:
    """A small product, `inner` elements a side in each thread; sizes: its own, a step's, a copy's vector."""
    n, m, depth, k_tile, vector = sizes
    return tiled_matmul((n, m, depth), (1, 4, inner), (1, 4, inner), k_tile, vector=vector)


def product_arrays(n: int, m: int, depth: int) -> list[np.ndarray]:
    """Operands of a product, and room for its result."""
    rng = np.random.default_rng(n)
    a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((n, depth), (depth, m)))
    return [a, b, np.zeros((n, m), np.float32)]


def nested_product(inner: int, k_tile: int, rows: int = 1, unroll: bool = False) -> Any:
    """Tiles in shared memory inside of two loops over the reduction, blocks having several rows in turn."""
    a, b = te.placeholder((6, 3, inner), name="A"), te.placeholder((3, inner, 8), name="B")
    p, k = te.reduce_axis((0, 3), name="p"), te.reduce_axis((0, inner), name="k")
    c = te.compute((6, 8), lambda i, j: te.sum(a[i, p, k] * b[p, k, j], axis=[p, k]), name="C")
    s = te.create_schedule(c)
    local = s.cache_write(c, "local")
    block, row = s[c].split(s[c].op.axis[0], factor=rows)
    s[c].reorder(block, s[c].op.axis[1], row)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(s[c].op.axis[1], te.thread_axis("threadIdx.x"))
    s[local].compute_at(s[c], s[c].op.axis[1])
    k0, k1 = s[local].split(s[local].op.reduce_axis[1], factor=k_tile)
    s[local].reorder(*s[local].op.axis, s[local].op.reduce_axis[0], k0, k1)
    if unroll:
        s[local].unroll(k0)
    for tensor in (b, a):
        shared = s.cache_read(tensor, "shared", [local])
        s[shared].compute_at(s[local], k0)
        load_together(s, shared, 8)
    return s


def ahead(s: Any, names: Sequence[str] = ("A.shared", "B.shared"), buffers: int = 2) -> Any:
    """The schedule with tiles in shared memory, by name, so many times, to be filled ahead."""
    for name in names:
        s.apply(MultiBufferStep(s.state.stage_id(name), buffers))
    return s


def swizzled(s: Any, names: Sequence[str] = ("A.shared", "B.shared")) -> Any:
    """The schedule with the rows of tiles in shared memory, by name, in different orders."""
    for name in names:
        s.apply(SwizzleStep(s.state.stage_id(name)))
    return s


def load_together(s: Any, tensor: Any, threads: int, vector: int = 1) -> None:
    """All threads of a block load a tensor, element after element or vector after vector."""
    outer, inner = s[tensor].split(s[tensor].fuse(*s[tensor].op.axis), factor=vector)
    s[tensor].vectorize(inner)
    _, thread = s[tensor].split(outer, factor=threads)
    s[tensor].bind(thread, te.thread_axis("threadIdx.x"))


def bind_all(s: Any, tensor: Any, threads: int) -> None:
    """All spatial loops of a stage become blocks of threads."""
    fused = s[tensor].fuse(*s[tensor].op.axis)
    block, thread = s[tensor].split(fused, factor=threads)
    s[tensor].bind(block, te.thread_axis("blockIdx.x"))
    s[tensor].bind(thread, te.thread_axis("threadIdx.x"))


def reduce_together(s: Any, tensor: Any, threads: int, name: str = "threadIdx.x") -> Any:
    """All reduction loops of a stage, by threads; gives the serial part."""
    axes = s[tensor].op.reduce_axis
    serial, thread = s[tensor].split(s[tensor].fuse(*axes) if len(axes) > 1 else axes[0], factor=threads)
    s[tensor].bind(thread, te.thread_axis(name))
    return serial
