from dataclasses import replace

import pytest

from ansor import te
from ansor.errors import LoweringError
from ansor.ir.nest import Alloc, Buffer, For, If, Let, LoopKind, LoopNest, Prefetch, Store, seq
from ansor.ir.verify import check_nest
from ansor.te.expr import Load, Read, Var, const

X = Buffer("X", "float32", (8,))
Y = Buffer("Y", "float32", (8,))
i, j, n = Var("i"), Var("j"), Var("n")
COPY = Store(Y, (i,), Load(X, (i,), "float32"))


def nest(body, outputs=(1,)):
    return LoopNest("f", (X, Y), (n,), body, outputs)


def loop(body, var=i, extent=8, kind=LoopKind.SERIAL):
    return For(var, extent, kind, body)


def in_register(index, kind=LoopKind.UNROLLED, shape=(8,), *, asked=False):
    registers = Buffer("R", "float32", shape, "register")
    filled = Store(registers, (index,), Load(X, (i,), "float32"))
    return Alloc(registers, loop(seq(filled, Prefetch(registers, (index,))) if asked else filled, kind=kind))


ZERO = const(0.0, "float32")
T = Buffer("T", "float32", (8,), "local")


@pytest.mark.parametrize(
    "body",
    [
        loop(COPY),
        loop(If(i < n, COPY)),
        loop(Alloc(T, seq(Store(T, (i,), ZERO), COPY))),
        For(i, n, LoopKind.PARALLEL, COPY),
        in_register(i),
        in_register(const(7) - i, LoopKind.VECTORIZED),
        seq(loop(COPY), loop(Store(Y, (j,), ZERO), j)),
        loop(seq(Prefetch(X, (i + 1,)), COPY)),
        loop(seq(Prefetch(X, (i * 16 - 8,)), COPY)),
        loop(seq(Prefetch(X, (i + 22,)), COPY)),
        For(i, n, LoopKind.SERIAL, seq(Prefetch(X, (i + 1,)), COPY)),
        seq(Prefetch(X, (n + 8,)), loop(COPY)),
    ],
)
def test_good_nests_pass(body):
    check_nest(nest(body))


A = te.placeholder((8,), name="A")
GATHERED = Load(Y, (i,), "float32").astype("int32")
GATHER = Load(Buffer("Z", "float32", (8,)), (i,), "float32")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (seq(loop(COPY), loop(COPY)), "variable 'i' is bound twice"),
        (COPY, "variable 'i' is not bound here"),
        (seq(loop(COPY), Store(Y, (i,), ZERO)), "variable 'i' is not bound here"),
        (For(i, n, LoopKind.VECTORIZED, COPY), "vectorize loop over 'i' is not constant"),
        (For(i, n, LoopKind.UNROLLED, COPY), "unroll loop over 'i' is not constant"),
        (loop(Store(Y, (i,), GATHER)), "buffer 'Z' is used outside its allocation"),
        (seq(Alloc(T, loop(COPY)), loop(Store(T, (j,), ZERO), j)), "'T' is used outside its allocation"),
        (Alloc(T, Alloc(T, loop(COPY))), "buffer 'T' is allocated twice"),
        (loop(Store(X, (i,), ZERO)), "the input 'X' is written"),
        (loop(Store(Y, (i,), Read(A, (i,), "float32"))), "a Read of tensors is left"),
        (loop(Store(Y, (i, i), ZERO)), "'Y' has 1 dimensions, found 2 indices"),
        (loop(Store(Y, (i,), i)), "int32 is stored into float32 'Y'"),
        (loop(Store(Y, (ZERO,), ZERO)), "the index `0.0` is float32"),
        (loop(If(i, COPY)), "the condition is int32"),
        (loop(Let(Var("v", "float32"), i, COPY)), "float32 'v' is bound to a value of int32"),
        (in_register(i, LoopKind.SERIAL), "index `i` of register buffer 'R' is not constant"),
        (in_register(i, shape=(n,)), "shape of the register buffer 'R' is not constant"),
        (Alloc(replace(T, scope="attic"), loop(COPY)), "scope 'attic' of 'T' is none of global"),
        (loop(COPY, extent=-1), "the extent is negative"),
        (loop(seq(Prefetch(X, (GATHERED,)), COPY)), "the index .* of what is asked for reads memory"),
        (loop(seq(Prefetch(X, (i + 23,)), COPY)), "what is asked for of 'X' is never there"),
        (loop(seq(Prefetch(X, (i - 23,)), COPY)), "what is asked for of 'X' is never there"),
        (loop(seq(Prefetch(X, (j,)), COPY)), "variable 'j' is not bound here"),
        (in_register(i, asked=True), "the register buffer 'R' is asked for"),
    ],
)
def test_broken_nests_are_refused(body, message):
    with pytest.raises(LoweringError, match=message):
        check_nest(nest(body))


def test_outputs_are_parameters():
    with pytest.raises(LoweringError, match="no parameter 2"):
        check_nest(nest(loop(COPY), (1, 2)))
