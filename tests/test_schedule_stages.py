"""What schedule primitives do to reductions and to stages that feed others, as text (`simple_mode=True`)."""

import pytest

from ansor import te
from ansor.errors import ScheduleError
from tests.program_laws import Case, check_all
from tests.schedule_helper import chain, check, product
from tests.sketches_cases import own_transpose

# -- reductions ----------------------------------------------------------------------------------------------


def test_reduction():
    """Its elements start from the identity outside its outermost reduction loop."""
    _, _, C, s = product()
    check(
        s,
        """
        for i in 0..4:
          for j in 0..6:
            C[i, j] = 0.0
            for k in 0..8:
              C[i, j] = C[i, j] + A[i, k]*B[k, j]
        """,
    )

    i, j = C.op.axis
    s[C].reorder(i, C.op.reduce_axis[0], j)
    s[C].vectorize(j)
    check(
        s,
        """
        for i in 0..4:
          vectorize j in 0..6:
            C[i, j] = 0.0
          for k in 0..8:
            vectorize j_1 in 0..6:
              C[i, j_1] = C[i, j_1] + A[i, k]*B[k, j_1]
        """,
    )

    s[C].reorder(C.op.reduce_axis[0], i, j)
    check(
        s,
        """
        for i in 0..4:
          vectorize j in 0..6:
            C[i, j] = 0.0
        for k in 0..8:
          for i_1 in 0..4:
            vectorize j_1 in 0..6:
              C[i_1, j_1] = C[i_1, j_1] + A[i_1, k]*B[k, j_1]
        """,
    )


def test_split_reduction():
    _, _, C, s = product()
    s[C].split(C.op.reduce_axis[0], factor=3)
    check(
        s,
        """
        for i in 0..4:
          for j in 0..6:
            C[i, j] = 0.0
            for k.0 in 0..3:
              for k.1 in 0..3:
                if k.0*3 + k.1 < 8:
                  C[i, j] = C[i, j] + A[i, k.0*3 + k.1]*B[k.0*3 + k.1, j]
        """,
    )


def test_rfactor():
    _, _, C, s = product()
    _, inner = s[C].split(C.op.reduce_axis[0], factor=4)
    s.rfactor(C, inner)
    check(
        s,
        """
        allocate C.rf[4, 4, 6] float32 global
        for k_i in 0..4:
          for i in 0..4:
            for j in 0..6:
              C.rf[k_i, i, j] = 0.0
              for k_o in 0..2:
                C.rf[k_i, i, j] = C.rf[k_i, i, j] + A[i, k_o*4 + k_i]*B[k_o*4 + k_i, j]
        for ax0 in 0..4:
          for ax1 in 0..6:
            C[ax0, ax1] = 0.0
            for k_i_v in 0..4:
              C[ax0, ax1] = C[ax0, ax1] + C.rf[k_i_v, ax0, ax1]
        """,
    )


def test_rfactor_of_a_split_that_does_not_divide():
    """Lanes past the end keep the identity."""
    _, _, C, s = product()
    _, inner = s[C].split(C.op.reduce_axis[0], factor=3)
    s.rfactor(C, inner, 1)
    check(
        s,
        """
        allocate C.rf[4, 3, 6] float32 global
        for i in 0..4:
          for k_i in 0..3:
            for j in 0..6:
              C.rf[i, k_i, j] = 0.0
              for k_o in 0..3:
                if k_o*3 + k_i < 8:
                  C.rf[i, k_i, j] = C.rf[i, k_i, j] + A[i, k_o*3 + k_i]*B[k_o*3 + k_i, j]
        for ax0 in 0..4:
          for ax1 in 0..6:
            C[ax0, ax1] = 0.0
            for k_i_v in 0..3:
              C[ax0, ax1] = C[ax0, ax1] + C.rf[ax0, k_i_v, ax1]
        """,
    )


def test_reduction_of_two_values():
    """All new values are computed before any is stored."""

    def combine(p, q):
        return te.select(p[1] >= q[1], p[0], q[0]), te.maximum(p[1], q[1])

    argmax = te.comm_reducer(combine, lambda i, v: (te.const(-1, i), te.const(0, v)), name="argmax")
    A = te.placeholder((4, 6), "int32", name="A")
    k = te.reduce_axis((0, 6), name="k")
    at, best = te.compute((4,), lambda i: argmax((k + 0, te.abs(A[i, k])), axis=k), name="M")
    check(
        te.create_schedule([at, best]),
        """
        for i in 0..4:
          M.v0[i] = -1
          M.v1[i] = 0
          for k in 0..6:
            let M.v0.next: int32 = select(abs(A[i, k]) <= M.v1[i], M.v0[i], k)
            let M.v1.next: int32 = max(M.v1[i], abs(A[i, k]))
            M.v0[i] = M.v0.next
            M.v1[i] = M.v1.next
        """,
    )


# -- places --------------------------------------------------------------------------------------------------


def test_compute_root():
    _, _, _, s = chain()
    check(
        s,
        """
        allocate B[12] float32 global
        for i in 0..12:
          B[i] = A[i]*2.0
        for i_1 in 0..10:
          C[i_1] = B[i_1] + B[i_1 + 1] + B[i_1 + 2]
        """,
    )


def test_compute_root_covers_all_axes():
    """Where nothing moves, nothing changes; what comes back from inside a loop has its loops back."""
    _, B, C, s = chain()
    s[B].split(B.op.axis[0], factor=5)
    before = str(s.state)
    s[B].compute_root()
    assert str(s.state) == before == str(s.state.with_bounds())
    s[B].compute_at(s[C], C.op.axis[0])
    assert "(None)" in str(s.state)
    s[B].compute_root()
    assert str(s.state) == before


def test_rfactor_after_compute_root():
    *_, C, s = product()
    _, inner = s[C].split(C.op.reduce_axis[0], factor=3)
    s[C].compute_root()
    s.rfactor(C, inner)
    check_all(Case.of(s.state), compiled=False)


def test_compute_at():
    """Only what an iteration needs is computed, in storage of that size."""
    _, B, C, s = chain()
    s[B].compute_at(s[C], C.op.axis[0])
    check(
        s,
        """
        allocate B[3] float32 global
        for i in 0..10:
          for i_1 in 0..3:
            B[i_1] = A[i + i_1]*2.0
          C[i] = B[0] + B[1] + B[2]
        """,
    )


def test_compute_at_a_split_loop():
    """The last tile needs less: its guard keeps reads within A."""
    _, B, C, s = chain()
    outer, _ = s[C].split(C.op.axis[0], factor=4)
    s[B].compute_at(s[C], outer)
    check(
        s,
        """
        allocate B[6] float32 global
        for i.0 in 0..3:
          for i in 0..6:
            if i.0*4 + i < 12:
              B[i] = A[i.0*4 + i]*2.0
          for i.1 in 0..4:
            if i.0*4 + i.1 < 10:
              C[i.0*4 + i.1] = B[i.1] + B[i.1 + 1] + B[i.1 + 2]
        """,
    )


def test_storage_inside_a_parallel_loop():
    """Each iteration has its own."""
    _, B, C, s = chain()
    outer, _ = s[C].split(C.op.axis[0], factor=4)
    s[C].parallel(outer)
    s[B].compute_at(s[C], outer)
    s[B].set_scope("local")
    check(
        s,
        """
        parallel i.0 in 0..3:
          allocate B[6] float32 local
          for i in 0..6:
            if i.0*4 + i < 12:
              B[i] = A[i.0*4 + i]*2.0
          for i.1 in 0..4:
            if i.0*4 + i.1 < 10:
              C[i.0*4 + i.1] = B[i.1] + B[i.1 + 1] + B[i.1 + 2]
        """,
    )


def test_compute_inline():
    _, B, _, s = chain()
    s[B].compute_inline()
    check(
        s,
        """
        for i in 0..10:
          C[i] = A[i]*2.0 + A[i + 1]*2.0 + A[i + 2]*2.0
        """,
    )

    s[B].compute_root()
    check(
        s,
        """
        allocate B[12] float32 global
        for i in 0..12:
          B[i] = A[i]*2.0
        for i_1 in 0..10:
          C[i_1] = B[i_1] + B[i_1 + 1] + B[i_1 + 2]
        """,
    )


def test_storage_align():
    """Rows of B stand 9 elements apart: 1 modulo 8."""
    A = te.placeholder((4, 6), name="A")
    B = te.compute((4, 6), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 4), lambda i, j: B[j, i] + 1.0, name="C")
    s = te.create_schedule(C)
    s[B].storage_align(B.op.axis[0], 8, 1)
    check(
        s,
        """
        allocate B[4, 6] float32 global strides [9, 1]
        for i in 0..4:
          for j in 0..6:
            B[i, j] = A[i, j]*2.0
        for i_1 in 0..6:
          for j_1 in 0..4:
            C[i_1, j_1] = B[j_1, i_1] + 1.0
        """,
    )


# -- new stages ----------------------------------------------------------------------------------------------


def test_cache_write():
    _, _, C, s = product()
    local = s.cache_write(C, "local")
    check(
        s,
        """
        allocate C.local[4, 6] float32 local
        for i_c in 0..4:
          for j_c in 0..6:
            C.local[i_c, j_c] = 0.0
            for k in 0..8:
              C.local[i_c, j_c] = C.local[i_c, j_c] + A[i_c, k]*B[k, j_c]
        for i in 0..4:
          for j in 0..6:
            C[i, j] = C.local[i, j]
        """,
    )

    outer, _ = s[C].split(C.op.axis[0], factor=2)
    s[local].compute_at(s[C], outer)
    check(
        s,
        """
        allocate C.local[2, 6] float32 local
        for i.0 in 0..2:
          for i_c in 0..2:
            for j_c in 0..6:
              C.local[i_c, j_c] = 0.0
              for k in 0..8:
                C.local[i_c, j_c] = C.local[i_c, j_c] + A[i.0*2 + i_c, k]*B[k, j_c]
          for i.1 in 0..2:
            for j in 0..6:
              C[i.0*2 + i.1, j] = C.local[i.1, j]
        """,
    )


def test_cache_read():
    A, _, C, s = product()
    copy = s.cache_read(A, "local", C)
    s[copy].compute_at(s[C], C.op.axis[0])
    check(
        s,
        """
        allocate A.local[1, 8] float32 local
        for i in 0..4:
          for ax1 in 0..8:
            A.local[0, ax1] = A[i, ax1]
          for j in 0..6:
            C[i, j] = 0.0
            for k in 0..8:
              C[i, j] = C[i, j] + A.local[0, k]*B[k, j]
        """,
    )


def test_cache_read_of_some_reads():
    """Tiles of a product with its own transpose: a copy for the rows, another for the columns."""
    A, C = own_transpose(8, 4)
    s = te.create_schedule(C)
    i, _ = s[C].split(C.op.axis[0], factor=2)
    columns = s.cache_read(A, "local", C, part=1)
    rows = s.cache_read(A, "local", C)
    assert (rows.name, columns.name) == ("A.d.local", "A.local")
    for copy in (rows, columns):
        s[copy].compute_at(s[C], i)
    check(
        s,
        """
        allocate A.local[8, 4] float32 local
        allocate A.d.local[2, 4] float32 local
        for i.0 in 0..4:
          for ax0 in 0..2:
            for ax1 in 0..4:
              A.d.local[ax0, ax1] = A[i.0*2 + ax0, ax1]
          for ax0_1 in 0..8:
            for ax1_1 in 0..4:
              A.local[ax0_1, ax1_1] = A[ax0_1, ax1_1]
          for i.1 in 0..2:
            for j in 0..8:
              C[i.0*2 + i.1, j] = 0.0
              for k in 0..4:
                C[i.0*2 + i.1, j] = C[i.0*2 + i.1, j] + A.d.local[i.1, k]*A.local[j, k]
        """,
    )
    assert [step.to_json() for step in s.state.steps if step.code.startswith("CHR")] == [
        ["CHRP", 0, "local", [1], 1],
        ["CHR", 0, "local", [2]],
    ]
    check_all(Case.of(s.state))


def test_parts_are_those_that_have_no_copy_yet():
    A, C = own_transpose(8, 4)
    s = te.create_schedule(C)
    rows = s.cache_read(A, "local", C, part=0)
    with pytest.raises(ScheduleError, match="reads 'A' itself along 1 sets of axes, found part 1"):
        s.cache_read(A, "local", C, part=1)
    columns = s.cache_read(A, "local", C, part=0)
    assert str(s[C].op.body[0].sources[0]) == f"({rows.name}[i, k]*{columns.name}[j, k])"


def test_cache_read_inside_a_reduction_loop():
    _, B, C, s = product()
    copy = s.cache_read(B, "global", [C])
    outer, inner = s[C].split(C.op.reduce_axis[0], factor=4)
    s[C].reorder(outer, *C.op.axis, inner)
    s[copy].compute_at(s[C], outer)
    check(
        s,
        """
        allocate B.global[4, 6] float32 global
        for i in 0..4:
          for j in 0..6:
            C[i, j] = 0.0
        for k.0 in 0..2:
          for ax0 in 0..4:
            for ax1 in 0..6:
              B.global[ax0, ax1] = B[k.0*4 + ax0, ax1]
          for i_1 in 0..4:
            for j_1 in 0..6:
              for k.1 in 0..4:
                C[i_1, j_1] = C[i_1, j_1] + A[i_1, k.0*4 + k.1]*B.global[k.1, j_1]
        """,
    )
