"""Products of matrices by tensor cores, scheduled by hand, for the tests of GPU programs."""

from __future__ import annotations

from typing import Any

from ansor import te
from ansor.intrinsics import ROUNDED_OPERANDS_ATTR, warp_intrinsics
from tests.gpu_schedules import load_together

Pair = tuple[int, int]


def half_product(
    n: int, m: int, depth: int, dtype: str = "bfloat16", transposed: str = ""
) -> tuple[Any, ...]:
    """C[i, j] = sum of A[i, k] * B[k, j] in float32; what is in `transposed` lies the other way round.

    Operands of float32 may be rounded.
    """
    attrs = {ROUNDED_OPERANDS_ATTR: "tfloat32"} if dtype == "float32" else {}
    a = te.placeholder((depth, n) if "A" in transposed else (n, depth), dtype, name="A")
    b = te.placeholder((m, depth) if "B" in transposed else (depth, m), dtype, name="B")
    k = te.reduce_axis((0, depth), name="k")

    def element(i: Any, j: Any) -> Any:
        first = a[k, i] if "A" in transposed else a[i, k]
        second = b[j, k] if "B" in transposed else b[k, j]
        return te.sum(te.cast(first, "float32") * te.cast(second, "float32"), axis=k)

    return a, b, te.compute((n, m), element, name="C", attrs=attrs)


def half_own_transpose(n: int, depth: int, dtype: str = "float16") -> list[Any]:
    """A matrix times its own transpose, in float32."""
    a, k = te.placeholder((n, depth), dtype, name="A"), te.reduce_axis((0, depth), name="k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(te.cast(a[i, k], "float32") * te.cast(a[j, k], "float32"), axis=k)

    return [a, te.compute((n, n), element, name="C")]


def tensor_cores(
    made: tuple[Any, ...],
    warps: Pair = (1, 1),
    tiles: Pair = (1, 1),
    steps: int = 1,
    *,
    shared: str = "AB",
    vector: int = 0,
    pad: int = 0,
    by_index: bool = False,
    vthreads: int = 1,
    loaders: int = 0,
    private: str = "",
) -> Any:
    """
    A schedule of a product, or of one with an elementwise consumer.

    Parameters
    ----------
    warps, tiles
        Rows and columns of warps in a block, and of tiles of 16 by 8 in each warp.
    steps
        Steps of 16 products (8 of float32) for which a block loads at once.
    shared
        Operands that go through shared memory.
    vector
        Elements that a thread loads at once; default: 16 bytes.
    pad
        Elements between the rows of a tile in shared memory.
    loaders
        Threads that load together; default: all.
    private
        Operands that each thread copies for itself.
    by_index
        Whether warps are numbered by threadIdx.y instead of all threads by threadIdx.x.
    """
    a, b, c, *after = made
    dtype, (n, m) = a.dtype, (int(extent) for extent in c.shape)
    intrinsic = next(one for one in warp_intrinsics() if one.operand == dtype)
    vector = vector or intrinsic.depth // 2
    out = after[-1] if after else c
    s = te.create_schedule(out)
    local = c if after else s.cache_write(c, "local")
    tile = s.rewrite_layout(
        local, [(0, n // 16, 16), (1, m // 8, 8), (0, 8, 1), (1, 4, 2), (0, 2, 8), (1, 2, 1)]
    )
    i0, j0, row, column, i, j = s[tile].op.axis
    k0, k2 = s[tile].split(s[tile].op.reduce_axis[0], factor=intrinsic.depth)
    k0, k1 = s[tile].split(k0, factor=steps)
    s[tile].reorder(row, column, k0, k1, i0, j0, i, j, k2)
    s[tile].tensorize(i, intrinsic.name)
    bi, vi, wi, ti, hi, ri = s[out].split(s[out].op.axis[0], factors=[vthreads, warps[0], tiles[0], 2, 8])
    bj, wj, tj, cj, hj = s[out].split(s[out].op.axis[1], factors=[warps[1], tiles[1], 4, 2])
    s[out].reorder(bi, bj, vi, wi, wj, ri, cj, ti, tj, hi, hj)
    s[out].bind(bi, te.thread_axis("blockIdx.y"))
    s[out].bind(bj, te.thread_axis("blockIdx.x"))
    s[out].bind(vi, te.thread_axis("vthread"))
    if by_index:
        s[out].bind(s[out].fuse(wi, wj), te.thread_axis("threadIdx.y"))
        thread = s[out].fuse(ri, cj)
    else:
        thread = s[out].fuse(wi, wj, ri, cj)
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    s[out].vectorize(hj)
    s[tile].compute_at(s[out], thread)
    for tensor in (b, a):
        if tensor.name in shared:
            copy = s.cache_read(tensor, "shared", [tile])
            s[copy].compute_at(s[tile], k0)
            if pad:
                s[copy].storage_align(s[copy].op.axis[0], 2 * pad, pad)
            threads = 32 if by_index else 32 * warps[0] * warps[1]
            load_together(s, copy, loaders or threads, vector)
        elif tensor.name in private:
            s[s.cache_read(tensor, "local", [tile])].compute_at(s[tile], k0)
    return s
