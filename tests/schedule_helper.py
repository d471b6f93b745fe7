"""Small programs and the check of their lowered text, for the tests of schedule primitives."""

from textwrap import dedent

from ansor import te
from ansor.schedule.lowering import lower
from tests.program_laws import Case


def check(schedule, expected, args=None):
    """The lowered text is as expected (the header is left out), and the program is right."""
    nest = lower(schedule, args, simple_mode=True)
    body = str(nest).split("\n", 1)[1]

    assert body == dedent(expected).strip("\n")
    if args is None and not nest.sizes:
        Case.of(schedule.state).check_interpreted(nest)
    return nest


def vector(size=10):
    A = te.placeholder((size,), name="A")
    B = te.compute((size,), lambda i: A[i] * 2.0, name="B")
    return A, B, te.create_schedule(B)


def matrix(rows=4, columns=6):
    A = te.placeholder((rows, columns), name="A")
    B = te.compute((rows, columns), lambda i, j: A[i, j] * 2.0, name="B")
    return A, B, te.create_schedule(B)


def product(n=4, m=6, depth=8):
    A, B = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k = te.reduce_axis((0, depth), name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C, te.create_schedule(C)


def chain():
    """B = A*2, C[i] = B[i] + B[i+1] + B[i+2]."""
    A = te.placeholder((12,), name="A")
    B = te.compute((12,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((10,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
    return A, B, C, te.create_schedule(C)
