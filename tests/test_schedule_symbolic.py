"""Schedules of graphs over symbolic sizes: every split is legal, guards make the sizes right."""

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import LoweringError, ScheduleError
from ansor.schedule.lowering import lower
from tests.program_laws import Case


def vector_add():
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    return n, c, te.create_schedule(c)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("split", [{"factor": 64}, {"nparts": 4}, {"factors": [4, 8]}, {"nparts": [2, 3]}])
def test_vector_add_over_any_number_of_elements(split, size):
    n, c, s = vector_add()
    s[c].split(s[c].op.axis[0], **split)
    case = Case.of(s.state, {n: size})

    case.check_interpreted(lower(s, simple_mode=True))
    case.check_compiled(lower(s))


@pytest.mark.parametrize("size", [1, 5, 8, 13])
def test_rfactor_of_a_split_symbolic_reduction(size):
    n = te.var("n")
    a = te.placeholder((3, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = te.create_schedule(c)
    _, inner = s[c].split(k, factor=4)
    s.rfactor(c, inner, 0)
    case = Case.of(s.state, {n: size})

    case.check_interpreted(lower(s))
    case.check_compiled(lower(s))


def test_a_producer_at_a_loop_inside_a_split_symbolic_loop():
    """Where the outer part of a split ranges below the place, the whole axis is needed."""
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n,), lambda i: b[i] + 1.0, name="C")
    s = te.create_schedule(c)
    outer, inner = s[c].split(s[c].op.axis[0], factor=4)
    s[c].reorder(inner, outer)
    s[b].compute_at(s[c], inner)

    Case.of(s.state, {n: 10}).check_interpreted(lower(s))


@pytest.mark.parametrize("size", [0, 1, 15, 16, 33])
def test_a_producer_at_fused_loops_covers_one_tile(size):
    """The outermost of the loops that are fused may be symbolic: it is a quotient by what is inside of it."""
    n = te.var("n")
    a, w = te.placeholder((n, 8), name="A"), te.placeholder((8, 24), name="W")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((n, 24), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    d = te.compute((n, 24), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    s = te.create_schedule(d)
    i, j, _, _ = s[d].tile(*s[d].op.axis, 16, 8)
    s[c].compute_at(s[d], s[d].fuse(i, j))
    nest = lower(s, simple_mode=True)
    case = Case.of(s.state, {n: size})

    assert "allocate C[16, 8] float32" in str(nest)
    case.check_interpreted(nest)
    case.check_compiled(lower(s))


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("factor", [None, 4])
def test_a_size_may_be_zero(factor, size):
    """Then nothing is read, and sums are those of nothing."""
    n = te.var("n")
    a, k = te.placeholder((n,), name="A"), te.reduce_axis((0, n), name="k")
    first = te.compute((1,), lambda i: te.if_then_else(i < n, a[i], te.const(7.0)), name="F")
    total = te.compute((2,), lambda i: te.sum(a[k] + te.cast(i, "float32"), axis=k), name="S")
    s = te.create_schedule([first, total])
    if factor:
        s[total].split(k, factor=factor)
    case = Case.of(s.state, {n: size})

    for simple_mode in (True, False):
        case.check_interpreted(lower(s, simple_mode=simple_mode))
        case.check_compiled(lower(s, simple_mode=simple_mode))


def test_padding_storage_of_a_symbolic_size_is_refused():
    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, n), lambda i, j: b[i, j] + 1.0, name="C")
    s = te.create_schedule(c)
    s[b].storage_align(s[b].op.axis[0], 8, 4)

    with pytest.raises(ScheduleError, match="symbolic size"):
        lower(s)


@pytest.mark.parametrize("of", ["body", "reduction"])
def test_a_size_comes_from_the_shape_of_an_argument(of):
    """One that no argument has cannot be known; one that an argument on the way has is."""
    n, x, k = te.var("n"), te.placeholder((8,), name="X"), te.reduce_axis((0, 8), name="k")
    r = te.reduce_axis((0, n), name="r")
    ones = te.compute((n,), lambda i: te.const(1.0), name="Ones")
    if of == "body":
        y = te.compute((8,), lambda i: x[i] * te.cast(n, "float32"), name="Y")
    else:
        y = te.compute((8,), lambda i: te.sum(x[i] * ones[r], axis=r), name="Y")
    with pytest.raises(
        LoweringError, match=r"'n' is in the shape of no argument.*te.placeholder\(\(\), 'int32'"
    ):
        ansor.build(te.create_schedule(y), [x, y])
    total = te.compute((), lambda: te.sum(y[k], axis=k), name="Total")
    built = ansor.build(te.create_schedule([total, ones]), [x, ones, total])
    built(np.arange(8, dtype=np.float32), np.empty(3, np.float32), found := np.empty((), np.float32))
    assert found == 3 * 28


def test_one_program_serves_all_sizes():
    _, c, s = vector_add()
    outer, inner = s[c].split(s[c].op.axis[0], factor=8)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    module = ansor.build(s, s.dag.tensors, target="llvm", name="add")

    for size in (1, 7, 8, 100):
        x = np.arange(size, dtype=np.float32)
        assert np.array_equal(module(x, x), 2 * x)


def test_a_loop_over_a_whole_symbolic_axis_needs_no_guard():
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b)

    assert str(lower(s, simple_mode=True)).splitlines()[1:] == [
        "for i in 0..n:",
        "  for j in 0..m:",
        "    B[i, j] = A[i, j] + 1.0",
    ]
    s[b].split(s[b].op.axis[1], factor=4)
    assert "if j.0*4 + j.1 < m" in str(lower(s, simple_mode=True))


def test_scratch_of_a_symbolic_size_is_allocated_at_run_time():
    """Intermediate results of a program over symbolic sizes live on the heap."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: te.exp(a[i, j]), name="B")
    k = te.reduce_axis((0, m), name="k")
    total = te.compute((n,), lambda i: te.sum(b[i, k], axis=k), name="S")
    c = te.compute((n, m), lambda i, j: b[i, j] / total[i], name="C")
    s = te.create_schedule(c)
    s[c].parallel(c.op.axis[0])
    module = ansor.build(s, [a, c], target="llvm", name="softmax")

    for shape in ((1, 1), (37, 53), (300, 200)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        e = np.exp(x)
        np.testing.assert_allclose(module(x), e / e.sum(axis=1, keepdims=True), rtol=1e-5)
