"""What each schedule primitive does to the loops of one operation, as text.

The texts are those of `simple_mode=True`: the nest as the schedule says it, before the polishing passes.
"""

import numpy as np
import pytest

from ansor import te
from ansor.ir.interp import run_nest
from ansor.schedule.lowering import lower
from ansor.te.interp import evaluate
from tests.program_laws import Case
from tests.schedule_helper import chain, check, matrix, vector


def test_split_that_divides():
    """A guard stands only where it is needed."""
    _, B, s = vector(12)
    s[B].split(B.op.axis[0], factor=4)
    check(
        s,
        """
        for i.0 in 0..3:
          for i.1 in 0..4:
            B[i.0*4 + i.1] = A[i.0*4 + i.1]*2.0
        """,
    )


def test_split_that_does_not_divide():
    _, B, s = vector(10)
    s[B].split(B.op.axis[0], factor=4)
    check(
        s,
        """
        for i.0 in 0..3:
          for i.1 in 0..4:
            if i.0*4 + i.1 < 10:
              B[i.0*4 + i.1] = A[i.0*4 + i.1]*2.0
        """,
    )


def test_split_by_number_of_parts():
    _, B, s = vector(10)
    s[B].split(B.op.axis[0], nparts=3)
    check(
        s,
        """
        for i.0 in 0..3:
          for i.1 in 0..4:
            if i.0*4 + i.1 < 10:
              B[i.0*4 + i.1] = A[i.0*4 + i.1]*2.0
        """,
    )


def test_splits_of_splits():
    """The guard of the whole axis covers its outermost parts; an inner part has one of its own."""
    _, B, s = vector(10)
    outer, inner = s[B].split(B.op.axis[0], factor=4)
    s[B].split(outer, factor=2)
    check(
        s,
        """
        for i.0.0 in 0..2:
          for i.0.1 in 0..2:
            for i.1 in 0..4:
              if i.0.0*8 + i.0.1*4 + i.1 < 10:
                B[i.0.0*8 + i.0.1*4 + i.1] = A[i.0.0*8 + i.0.1*4 + i.1]*2.0
        """,
    )

    s[B].split(inner, factor=3)
    check(
        s,
        """
        for i.0.0 in 0..2:
          for i.0.1 in 0..2:
            for i.1.0 in 0..2:
              for i.1.1 in 0..3:
                if i.0.0*8 + i.0.1*4 + i.1.0*3 + i.1.1 < 10 and i.1.0*3 + i.1.1 < 4:
                  B[i.0.0*8 + i.0.1*4 + i.1.0*3 + i.1.1] = A[i.0.0*8 + i.0.1*4 + i.1.0*3 + i.1.1]*2.0
        """,
    )


def test_split_longer_than_the_loop():
    _, B, s = vector(3)
    s[B].split(B.op.axis[0], factor=8)
    check(
        s,
        """
        for i.1 in 0..3:
          B[i.1] = A[i.1]*2.0
        """,
    )


def test_split_into_three():
    _, B, s = vector(24)
    s[B].split(B.op.axis[0], factors=[3, 4])
    check(
        s,
        """
        for i.0 in 0..2:
          for i.1 in 0..3:
            for i.2 in 0..4:
              B[i.0*12 + i.1*4 + i.2] = A[i.0*12 + i.1*4 + i.2]*2.0
        """,
    )

    _, B, s = vector(24)
    s[B].split(B.op.axis[0], nparts=[3, 4])
    check(
        s,
        """
        for i.0 in 0..3:
          for i.1 in 0..4:
            for i.2 in 0..2:
              B[i.0*8 + i.1*2 + i.2] = A[i.0*8 + i.1*2 + i.2]*2.0
        """,
    )


def test_fuse():
    _, B, s = matrix()
    s[B].fuse(*B.op.axis)
    check(
        s,
        """
        for i@j@ in 0..24:
          B[i@j@//6, i@j@%6] = A[i@j@//6, i@j@%6]*2.0
        """,
    )


def test_split_of_a_fused_loop():
    """Where the inner length is that of the inner axis, indices are plain again."""
    _, B, s = matrix()
    s[B].split(s[B].fuse(*B.op.axis), factor=6)
    check(
        s,
        """
        for i@j@.0 in 0..4:
          for i@j@.1 in 0..6:
            B[i@j@.0, i@j@.1] = A[i@j@.0, i@j@.1]*2.0
        """,
    )

    _, B, s = matrix()
    s[B].split(s[B].fuse(*B.op.axis), factor=5)
    check(
        s,
        """
        for i@j@.0 in 0..5:
          for i@j@.1 in 0..5:
            if i@j@.0*5 + i@j@.1 < 24:
              B[(i@j@.0*5 + i@j@.1)//6, (i@j@.0*5 + i@j@.1)%6] = A[(i@j@.0*5 + i@j@.1)//6, (i@j@.0*5 + i@j@.1)%6]*2.0
        """,  # noqa: E501
    )


def test_reorder():
    _, B, s = matrix()
    s[B].reorder(*reversed(B.op.axis))
    check(
        s,
        """
        for j in 0..6:
          for i in 0..4:
            B[i, j] = A[i, j]*2.0
        """,
    )


def test_tile():
    """A loop of one iteration disappears."""
    _, B, s = matrix()
    s[B].tile(*B.op.axis, 2, 3)
    check(
        s,
        """
        for i.0 in 0..2:
          for j.0 in 0..2:
            for i.1 in 0..2:
              for j.1 in 0..3:
                B[i.0*2 + i.1, j.0*3 + j.1] = A[i.0*2 + i.1, j.0*3 + j.1]*2.0
        """,
    )

    _, B, s = matrix()
    s[B].tile(*B.op.axis, 4, 4)
    check(
        s,
        """
        for j.0 in 0..2:
          for i.1 in 0..4:
            for j.1 in 0..4:
              if j.0*4 + j.1 < 6:
                B[i.1, j.0*4 + j.1] = A[i.1, j.0*4 + j.1]*2.0
        """,
    )


def test_parallel_and_vectorize():
    _, B, s = matrix()
    s[B].parallel(B.op.axis[0])
    s[B].vectorize(B.op.axis[1])
    check(
        s,
        """
        parallel i in 0..4:
          vectorize j in 0..6:
            B[i, j] = A[i, j]*2.0
        """,
    )


def test_unroll():
    _, B, s = matrix()
    s[B].unroll(B.op.axis[1])
    check(
        s,
        """
        for i in 0..4:
          unroll j in 0..6:
            B[i, j] = A[i, j]*2.0
        """,
    )


def test_bind():
    _, B, s = matrix()
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    s[B].bind(B.op.axis[1], te.thread_axis("threadIdx.x"))
    check(
        s,
        """
        blockIdx.x i in 0..4:
          threadIdx.x j in 0..6:
            B[i, j] = A[i, j]*2.0
        """,
    )


def test_pragma():
    """It does nothing to the loops as written; the polishing passes unroll."""
    _, B, s = matrix(2, 3)
    s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 16)
    check(
        s,
        """
        for i in 0..2:
          for j in 0..3:
            B[i, j] = A[i, j]*2.0
        """,
    )
    assert "B auto_unroll: 16" in str(s)


# -- sizes, arguments, other programs ------------------------------------------------------------------------


def test_symbolic_sizes():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B)
    outer, _ = s[B].split(B.op.axis[0], factor=64)
    s[B].split(k, factor=32)
    s[B].parallel(outer)
    check(
        s,
        """
        parallel i.0 in 0..(n + 63)//64:
          for i.1 in 0..64:
            if i.0*64 + i.1 < n:
              B[i.0*64 + i.1] = 0.0
            for k.0 in 0..(m + 31)//32:
              for k.1 in 0..32:
                if i.0*64 + i.1 < n and k.0*32 + k.1 < m:
                  B[i.0*64 + i.1] = B[i.0*64 + i.1] + A[i.0*64 + i.1, k.0*32 + k.1]
        """,
    )


def test_padding():
    """The condition stays lazy: nothing outside of A is read."""
    A = te.placeholder((6,), name="A")
    P = te.compute((8,), lambda i: te.if_then_else(te.all(i >= 1, i < 7), A[i - 1], 0.0), name="P")
    s = te.create_schedule(P)
    s[P].split(P.op.axis[0], factor=4)
    check(
        s,
        """
        for i.0 in 0..2:
          for i.1 in 0..4:
            P[i.0*4 + i.1] = if_then_else(i.0*4 + i.1 >= 1 and i.0*4 + i.1 < 7, A[i.0*4 + i.1 - 1], 0.0)
        """,
    )


def test_a_single_number():
    Z = te.placeholder((), name="Z")
    check(
        te.create_schedule(te.compute((), lambda: Z() + 1.0, name="Y")),
        """
        Y[] = Z[] + 1.0
        """,
    )


def test_names_are_distinct():
    """Buffers and loops of one name are numbered in the order of their appearance."""
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="T")
    C = te.compute((4,), lambda i: B[i] * 2.0, name="T")
    text = str(lower(te.create_schedule(C), simple_mode=True))

    assert text.startswith("main(A: float32[4]) -> T: float32[4]")
    assert "allocate T_1[4] float32 global" in text
    assert "T[i_1] = T_1[i_1]*2.0" in text


def test_an_intermediate_tensor_may_be_an_argument():
    _, B, C, s = chain()
    nest = lower(s, [*s.dag.inputs, B, C], name="both", simple_mode=True)

    assert str(nest).startswith("both(A: float32[12]) -> B: float32[12], C: float32[10]\n")
    assert "allocate" not in str(nest)


@pytest.mark.parametrize("simple", [True, False])
def test_an_intermediate_argument_is_computed_whole(simple):
    """Also where only a part of it is read."""
    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((5,), lambda i: B[i + 2] + 1.0, name="C")
    s = te.create_schedule(C)
    a, b, c = np.arange(10, dtype=np.float32), np.zeros(10, np.float32), np.zeros(5, np.float32)
    run_nest(lower(s, [A, B, C], simple_mode=simple), [a, b, c])

    np.testing.assert_array_equal(b, a * 2)
    np.testing.assert_array_equal(c, b[2:7] + 1)


def test_arguments_come_in_any_order():
    A, B, s = vector()
    nest = lower(s, [B, A], simple_mode=True)

    assert [p.name for p in nest.params] == ["B", "A"]
    assert nest.outputs == (0,)


@pytest.mark.parametrize("annotation", ["parallel", "vectorize", "unroll"])
@pytest.mark.parametrize("factor", [1, 3, 4, 16])
def test_annotated_loops_compute_the_same(annotation, factor):
    _, B, s = matrix(5, 7)
    _, inner = s[B].split(B.op.axis[1], factor=factor)
    getattr(s[B], annotation)(inner)
    case = Case.of(s.state)

    case.check_interpreted(lower(s, simple_mode=True), check_races=True)
    case.check_interpreted(lower(s))
    case.check_compiled(lower(s))


def test_the_unroll_pragma_unrolls_when_polishing():
    _, B, s = matrix(2, 3)
    s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 16)
    nest = lower(s)

    assert "for " not in str(nest)
    Case.of(s.state).check_interpreted(nest)


def test_guards_on_loops_of_the_same_name_are_all_kept():
    """Two stages have a loop `i`; a guard on one is not a guard on the other."""
    a = te.placeholder((2, 4), name="A")
    k = te.reduce_axis((0, 4), name="k")
    row = te.compute((2, 2), lambda i, j: te.sum(a[i, k] * a[j, k], axis=k), name="M")

    def padded(i, j):
        return te.if_then_else(te.all(i >= 1, i < 3), row[i - 1, j], te.const(0.0, "float32"))

    inner = te.compute((4, 2), padded, name="P")
    outer = te.compute(
        (4, 4),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < 3), inner[j, i - 1], te.const(0.0, "float32")),
        name="Q",
    )
    s = te.create_schedule(outer)
    s[inner].compute_at(s[outer], outer.op.axis[0])
    s[row].compute_at(s[inner], inner.op.axis[0])
    nest = lower(s, simple_mode=True)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    out = np.full((4, 4), np.nan, "float32")
    run_nest(nest, [x, out])

    np.testing.assert_allclose(evaluate([outer], {a: x})[outer], out, rtol=1e-5)
