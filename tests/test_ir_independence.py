import pytest

from ansor.ir.bounds import Bounds
from ansor.ir.independence import IndependenceTest
from ansor.ir.nest import Alloc, Buffer, For, Let, LoopKind, Store, seq
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import fresh_copy
from ansor.te.expr import Load, Var, cast, const, free_vars
from ansor.te.structure import same_structure

i, j, k = Var("i"), Var("j"), Var("k")
X = Buffer("X", "int32", (1000,))
Y = Buffer("Y", "int32", (1000,))
M = Buffer("M", "int32", (8, 125))


def load(buffer, *indices):
    return Load(buffer, tuple(indices), buffer.dtype)


def loop(body, var=i, extent=8):
    return For(var, extent, LoopKind.SERIAL, body)


def independent(body, outer=None):
    nest = loop(body)
    return IndependenceTest(Bounds({**loop_ranges(nest), **(outer or {})})).independent(nest)


def inner(body, extent=4):
    return loop(body, j, extent)


@pytest.mark.parametrize(
    "body",
    [
        Store(Y, (i,), load(X, i + 1)),
        Store(Y, (i * 3 + 2,), load(Y, i * 3 + 2) + 1),
        inner(Store(Y, (i * 4 + j,), load(Y, i * 4 + j))),
        inner(Store(Y, (i * 4 + j + k,), load(Y, i * 4 + k + j))),
        inner(Store(Y, (i * 4 + j,), load(Y, i * 4 + 3 - j))),
        inner(Store(M, (i, j), load(M, i, j * 2))),
        Store(Buffer("N", "int32", (8, 4)), (i // 4, i % 4), i),
        Store(Y, (load(X, const(0)) * 0 + i,), i),
        Alloc(Buffer("T", "int32", (4,)), Store(Y, (i,), i)),
    ],
)
def test_independent_iterations(body):
    assert independent(body, {k: (0, 9)})


@pytest.mark.parametrize(
    "body",
    [
        Store(Y, (const(0),), i),
        Store(Y, (i,), load(Y, i + 1)),
        Store(Y, (i * 3,), load(Y, i * 3 + 5)),
        Store(Y, (i // 2,), i),
        Store(Y, (i % 4,), i),
        inner(Store(Y, (i * 4 + j,), i), 5),
        inner(Store(Y, (i + j,), i)),
        Store(Y, (load(X, i),), i),
        seq(Store(Y, (i,), i), Store(Y, (i + k,), i)),
        Store(Y, (i * k,), i),
        Let(j, load(X, i), Store(Y, (i + j,), i)),
    ],
)
def test_iterations_that_may_meet(body):
    assert not independent(body, {k: (0, 9)})


def test_private_memory_does_not_tie_iterations():
    scratch = Buffer("T", "int32", (4,))
    body = Alloc(scratch, seq(Store(scratch, (const(0),), i), Store(Y, (i,), load(scratch, const(0)))))
    assert independent(body)
    assert not independent(body.body)


def test_a_fresh_copy_shares_nothing_it_binds():
    scratch = Buffer("T", "float32", (4,))
    value = Var("v", "float32")
    stmt = Alloc(scratch, loop(Let(value, cast(i, "float32"), Store(scratch, (i % 4,), value))))
    copy = fresh_copy(stmt)
    assert copy.buffer is not scratch
    assert copy.body.var is not i
    assert free_vars(copy.body.body.value) == {copy.body.var}
    assert same_structure(copy.body.body.body.value, copy.body.body.var)
