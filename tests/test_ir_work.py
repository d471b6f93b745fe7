"""The estimate of the instructions that are executed for a statement."""

from __future__ import annotations

from ansor.ir.nest import Buffer, For, If, LoopKind, Stmt, Store, seq
from ansor.ir.work import executed_instructions
from ansor.te.expr import Load, Var

X, Y = Buffer("X", "float32", (64,)), Buffer("Y", "float32", (64,))
OUTER, J, N = Var("i"), Var("j"), Var("n")
COPY = Store(Y, (J,), Load(X, (J,), "float32"))


def over(extent: int | Var, kind: LoopKind, body: Stmt = COPY) -> For:
    return For(OUTER if isinstance(body, For) else J, extent, kind, body)


def test_loops_multiply_what_is_in_them() -> None:
    assert executed_instructions(COPY, 256) == 2
    for kind in (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.PARALLEL):
        assert executed_instructions(over(5, kind), 256) == 10
        assert executed_instructions(over(3, kind, over(5, LoopKind.SERIAL)), 256) == 30
    assert executed_instructions(seq(over(3, LoopKind.SERIAL), over(5, LoopKind.SERIAL)), 256) == 16


def test_a_vectorized_loop_runs_by_the_vector() -> None:
    for extent, vectors in ((1, 1), (8, 1), (9, 2), (64, 8), (800, 100)):
        assert executed_instructions(over(extent, LoopKind.VECTORIZED), 256) == 2 * vectors
    assert executed_instructions(over(64, LoopKind.VECTORIZED), 512) == 8


def test_a_loop_that_is_one_instruction_counts_once() -> None:
    assert executed_instructions(over(16, LoopKind.TENSORIZE), 256) == 2


def test_a_loop_of_unknown_extent_counts_as_some() -> None:
    assert 2 < executed_instructions(over(N, LoopKind.SERIAL), 256) < 200


def test_of_a_choice_the_longer_side_counts() -> None:
    longer = over(4, LoopKind.SERIAL)
    for then, other in ((COPY, longer), (longer, COPY), (longer, None)):
        assert executed_instructions(If(OUTER < 2, then, other), 256) == 8
