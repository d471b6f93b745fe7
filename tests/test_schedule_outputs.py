"""Operations of several outputs: argmax and tuples, some outputs used, some given out, some neither."""

import numpy as np
import pytest

from ansor import te
from ansor.schedule.lowering import lower
from ansor.schedule.manual import create_schedule
from tests.program_laws import Case, check_printed_code, check_replay


def argmax_rows(rows=6, columns=10):
    def combine(p, q):
        first = te.any(p[1] > q[1], te.all(p[1] == q[1], p[0] <= q[0]))
        return te.select(first, p[0], q[0]), te.select(first, p[1], q[1])

    reducer = te.comm_reducer(
        combine, lambda index, value: (te.max_value(index), te.min_value(value)), name="argmax"
    )
    x = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis((0, columns), name="k")
    at, best = te.compute((rows,), lambda i: reducer((k + 0, x[i, k]), axis=k), name="A")
    return x, k, at, best


def check(schedule):
    case = Case.of(schedule.state)
    case.check_interpreted(lower(schedule, simple_mode=True))
    case.check_compiled(lower(schedule))
    check_replay(schedule.state)
    check_printed_code(schedule.state)


def test_an_output_that_nobody_wants_is_scratch():
    """The maximum itself is computed for the index, but is no argument."""
    _, _, at, _ = argmax_rows()
    s = create_schedule(at)
    nest = lower(s, simple_mode=True)

    assert [p.name for p in nest.params] == ["X", "A.v0"]
    assert "allocate A.v1[6] float32 global" in str(nest)
    check(s)


def test_an_output_that_is_also_read():
    _, _, at, best = argmax_rows()
    scaled = te.compute((6,), lambda i: best[i] * 2.0, name="S")
    check(create_schedule([at, scaled]))


@pytest.mark.parametrize("factor", [2, 3, 5, 16])
def test_rfactor_and_cache_write_of_argmax(factor):
    _, k, at, best = argmax_rows()
    s = create_schedule([at, best])
    _, inner = s[at].split(k, factor=factor)
    partial = s.rfactor(at, inner, 0)
    s[partial[0]].parallel(s[partial[0]].op.axis[0])
    check(s)

    s = create_schedule([at, best])
    cached = s.cache_write([at, best], "local")
    outer, _ = s[at].split(s[at].op.axis[0], factor=factor)
    s[cached[1]].compute_at(s[at], outer)
    check(s)


def test_operations_are_cached_as_their_tensors_are():
    _, _, at, best = argmax_rows()
    scaled = te.compute((6,), lambda i: best[i] * 2.0, name="S")
    s = create_schedule([at, scaled])
    assert s.cache_write(scaled.op, "local").name == "S.local"
    assert [t.name for t in s.cache_write(at.op, "local")] == ["A.local.v0", "A.local.v1"]
    check(s)


def test_a_tie_is_decided_the_same_way_in_every_schedule():
    _, k, at, best = argmax_rows(1, 8)
    s = create_schedule([at, best])
    _, inner = s[at].split(k, factor=2)
    s.rfactor(at, inner)
    from ansor.runtime.build import build

    found, value = build(s, s.dag.tensors, "llvm", name="k")(np.float32([[1, 3, 0, 3, 3, 2, 1, 0]]))
    assert (found[0], value[0]) == (1, 3)
