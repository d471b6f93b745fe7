import pytest

from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, Let, LoopKind, LoopNest, Store, seq
from ansor.ir.printer import format_expr, format_nest, format_stmt
from ansor.te.expr import Binary, BinaryOp, Load, Var, call, cast, const, logical_not, select

i, j, n = Var("i"), Var("j"), Var("n")
A = Buffer("A", "float32", (n, 16))
C = Buffer("C", "float32", (n, 16))


def load(buffer, *indices):
    return Load(buffer, tuple(indices), buffer.dtype)


def test_a_whole_nest():
    local = Buffer("C.local", "float32", (4, 16), "local", (20, 1))
    best = Var("best", "float32")
    body = seq(
        For(j, 16, LoopKind.VECTORIZED, Store(local, (const(0), j), load(A, i, j))),
        Barrier(),
        Let(
            best,
            load(local, const(0), const(3)),
            If(i < n, Store(C, (i, const(0)), best), Store(C, (i, const(0)), const(0.0))),
        ),
    )
    nest = LoopNest("f", (A, C), (n,), For(i, n, LoopKind.PARALLEL, Alloc(local, body)), (1,))
    assert format_nest(nest) == str(nest)
    assert format_nest(nest).splitlines() == [
        "f(A: float32[n, 16], n: int32) -> C: float32[n, 16]",
        "parallel i in 0..n:",
        "  allocate C.local[4, 16] float32 local strides [20, 1]",
        "  vectorize j in 0..16:",
        "    C.local[0, j] = A[i, j]",
        "  barrier",
        "  let best: float32 = C.local[0, 3]",
        "  if i < n:",
        "    C[i, 0] = best",
        "  else:",
        "    C[i, 0] = 0.0",
    ]


def test_names_are_told_apart():
    first, second = Var("i"), Var("i")
    other = Buffer("A", "float32", (4,))
    stmt = For(
        first,
        4,
        LoopKind.SERIAL,
        For(second, 4, LoopKind.SERIAL, Store(other, (second,), load(A, first, second))),
    )
    assert format_stmt(stmt).splitlines()[-1] == "    A[i_1] = A_1[i, i_1]"


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (i + j * 2, "i + j*2"),
        ((i + j) * 2, "(i + j)*2"),
        (i - (j - n), "i - (j - n)"),
        (i - j - n, "i - j - n"),
        (i + (j + n), "i + (j + n)"),
        (i // 2 % 3, "i//2%3"),
        (i // (j % 3), "i//(j%3)"),
        (i * -1, "i*(-1)"),
        (Binary(BinaryOp.MIN, i, j, "int32"), "min(i, j)"),
        (Binary(BinaryOp.TRUNCDIV, i, j, "int32"), "truncdiv(i, j)"),
        ((i < j) & ((j < n) | (i < n)), "i < j and (j < n or i < n)"),
        (logical_not((i < j) & (j < n)), "not (i < j and j < n)"),
        (select(i < j, i, n), "select(i < j, i, n)"),
        (select(i < j, i, n, lazy=True), "if_then_else(i < j, i, n)"),
        (call("exp", cast(i, "float32")), "exp(float32(i))"),
        (load(A, i, j) * 0.5, "A[i, j]*0.5"),
    ],
)
def test_expressions(expr, text):
    assert format_expr(expr) == text


def test_an_expression_may_be_deep():
    expr = i
    for _ in range(5000):
        expr = Binary(BinaryOp.ADD, expr, j, "int32")
    assert format_expr(expr).count("+") == 5000


def test_long_parts_that_occur_several_times_are_written_once():
    """In a line before the statement; which parts are the same does not depend on which objects they are."""

    def step():
        return call("exp", load(A, i, j) * load(A, i, j + 1) + load(A, i, j + 2) + load(A, i, j + 3))

    twice = step()
    text = ["$0 := exp(A[i, j]*A[i, j + 1] + A[i, j + 2] + A[i, j + 3])", "C[i, j] = $0*$0"]
    assert format_stmt(Store(C, (i, j), twice * twice)).splitlines() == text
    assert format_stmt(Store(C, (i, j), step() * step())).splitlines() == text
    assert format_expr(step() * step()) == f"$0*$0 where {text[0]}"
    assert format_expr(load(A, i, j) * load(A, i, j)) == "A[i, j]*A[i, j]"
