"""The form of kernels: taken apart, put together, and checked."""

import pytest

from ansor.errors import LoweringError
from ansor.ir.kernel_form import check_kernels, kernels_of, map_kernels, open_kernel, scratch_of
from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, Let, LoopKind, LoopNest, Store, seq
from ansor.te.expr import Load, Var, const, select

BLOCK, THREAD_X, THREAD_Y = LoopKind.BLOCK_X, LoopKind.THREAD_X, LoopKind.THREAD_Y
X, Y = Buffer("X", "int32", (4, 8)), Buffer("Y", "int32", (4, 8))
b, t, u = Var("b"), Var("t"), Var("u")


def store(buffer, indices, value):
    return Store(buffer, tuple(const(i) if isinstance(i, int) else i for i in indices), value)


def copy(out, source):
    return store(out, (b, t), Load(source, (b, t), "int32"))


def launched(body, *, threads=8, kind=THREAD_X):
    return For(b, 4, BLOCK, For(t, threads, kind, body))


def program(body, sizes=()):
    return LoopNest("f", (X, Y), sizes, body, (1,))


def refused(body, message, sizes=()):
    with pytest.raises(LoweringError, match=message):
        check_kernels(program(body, sizes))


def test_a_kernel_is_its_launch_around_what_a_thread_does():
    body = copy(Y, X)
    kernel = launched(body)
    opened = open_kernel(kernel)
    assert [loop.kind for loop in opened.launch] == [BLOCK, THREAD_X]
    assert (opened.blocks, opened.threads) == ((kernel,), (kernel.body,))
    assert opened.body is body
    assert opened.around(body) is kernel
    other = seq(Barrier(), body)
    assert open_kernel(opened.around(other)).body is other
    check_kernels(program(kernel))


def test_kernels_stand_one_after_another_inside_of_the_memory_that_they_share():
    scratch = Buffer("T", "int32", (4, 8))
    first = launched(copy(scratch, X))
    c, v = Var("c"), Var("v")
    second = For(c, 4, BLOCK, For(v, 8, THREAD_X, store(Y, (c, v), Load(scratch, (c, v), "int32"))))
    nest = program(Alloc(scratch, seq(first, second)))
    check_kernels(nest)
    assert scratch_of(nest) == (scratch,)
    assert kernels_of(nest) == (first, second)
    assert map_kernels(nest, lambda kernel: kernel) is nest
    fewer = map_kernels(nest, lambda kernel: kernel if kernel is first else Barrier())
    assert kernels_of(fewer)[0] is first
    assert isinstance(kernels_of(fewer)[1], Barrier)


def test_kernels_of_one_thread():
    nest = LoopNest("f", (X, Y), (), store(Y, (0, 0), const(1)), (1,))
    assert open_kernel(kernels_of(nest)[0]).launch == ()
    check_kernels(nest)
    check_kernels(program(For(b, 1, BLOCK, seq(store(Y, (b, 0), const(1)), store(Y, (b, 0), const(2))))))


def test_blocks_are_outside_of_threads_and_each_index_is_there_once():
    refused(For(t, 8, THREAD_X, For(b, 4, BLOCK, copy(Y, X))), "blockIdx.x nests in threadIdx.x")
    refused(For(t, 8, THREAD_X, For(b, 4, THREAD_X, copy(Y, X))), "threadIdx.x nests in threadIdx.x")
    refused(
        For(t, 8, THREAD_X, For(b, 4, THREAD_Y, copy(Y, X))), "threadIdx.y nests in threadIdx.x; the order is"
    )
    refused(launched(For(u, 4, THREAD_X, copy(Y, X))), "threadIdx.x nests in threadIdx.x")
    inner = seq(For(u, 4, THREAD_X, store(Y, (b, u), t)), Barrier())
    refused(launched(inner), "a threadIdx.x loop inside of a kernel")


def test_extents_of_a_launch():
    n = Var("n")
    check_kernels(program(For(b, (n + 3) // 4, BLOCK, For(t, 8, THREAD_X, copy(Y, X))), (n,)))
    refused(For(b, 4, BLOCK, For(t, n, THREAD_X, copy(Y, X))), "has the extent `n`, which is no number", (n,))
    refused(
        launched(copy(Y, X), threads=1), "threadIdx.x has the extent 1; one that is not needed is left out"
    )
    refused(For(b, Load(X, (const(0), const(0)), "int32"), BLOCK, copy(Y, X)), "not made of the sizes alone")


@pytest.mark.parametrize("kind", [LoopKind.VTHREAD, LoopKind.PARALLEL])
def test_loops_that_do_not_belong_into_a_kernel(kind):
    refused(launched(For(u, 4, kind, store(Y, (b, t), u))), f"a {kind} loop inside of a kernel")


def test_memory_in_a_kernel():
    n = Var("n")
    for scope in ("shared", "local", "register"):
        check_kernels(program(launched(Alloc(Buffer("T", "int32", (2,), scope), copy(Y, X)))))
    refused(
        launched(Alloc(Buffer("T", "int32", (2,)), copy(Y, X))), "'T' of scope 'global' is allocated inside"
    )
    refused(
        launched(Alloc(Buffer("T", "int32", (n,), "shared"), copy(Y, X))),
        "'T', .* has no constant size",
        (n,),
    )


def test_barriers_stand_where_all_threads_come_by():
    k, x = Var("k"), Var("x")
    half = If(t < 4, Barrier())
    check_kernels(program(launched(seq(If(b < 2, Barrier()), copy(Y, X)))))
    check_kernels(program(launched(For(k, 4, LoopKind.SERIAL, seq(Barrier(), copy(Y, X))))))
    message = "a barrier that not all threads of a block come by equally often"
    refused(launched(seq(half, copy(Y, X))), message)
    refused(launched(If(t < 4, For(k, 4, LoopKind.SERIAL, seq(Barrier(), copy(Y, X))))), message)
    refused(launched(seq(For(k, t + 1, LoopKind.SERIAL, Barrier()), copy(Y, X))), message)
    refused(launched(seq(For(k, 4, LoopKind.VECTORIZED, Barrier()), copy(Y, X))), message)
    refused(launched(seq(Let(x, t * 2, If(x < 4, Barrier())), copy(Y, X))), message)
    refused(launched(seq(If(Load(X, (b, b), "int32") < 4, Barrier()), copy(Y, X))), message)
    check_kernels(program(launched(seq(Let(x, b * 2, If(x < 4, Barrier())), copy(Y, X)))))


def test_no_two_threads_store_the_same():
    refused(launched(store(Y, (b, 0), const(1))), "every thread 't' of threadIdx.x stores this")
    refused(For(u, 2, THREAD_Y, launched(copy(Y, X)).body), "every thread 'u' of threadIdx.y stores this")
    check_kernels(program(launched(If(t < 1, store(Y, (b, 0), const(1))))))
    x = Var("x")
    check_kernels(program(launched(Let(x, t + 0, store(Y, (b, x), const(1))))))
    local = Buffer("L", "int32", (1,), "local")
    check_kernels(program(launched(Alloc(local, seq(store(local, (0,), const(1)), copy(Y, X))))))
    shared = Buffer("S", "int32", (1,), "shared")
    refused(launched(Alloc(shared, seq(store(shared, (0,), b), copy(Y, X)))), "every thread 't'")


def test_a_place_that_data_decide_is_not_looked_at():
    place = select(Load(X, (b, t), "int32") > 0, const(1), const(0))
    check_kernels(program(launched(Store(Y, (b, place), const(1)))))
