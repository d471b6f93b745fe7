"""Scratch that registers hold, between a tile and an element-wise stage: which loops become straight code."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from ansor import te
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.ir.nest import Alloc, Buffer, For, If, LoopKind, Stmt, Store, seq, walk_statements
from ansor.ir.passes.private_arrays import unroll_scratch
from ansor.ir.printer import format_stmt
from ansor.ir.registers import RegisterLimits
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.te.expr import Expr, Var, const
from tests.device_nests import SERIAL, UNROLLED, VECTORIZED, load
from tests.program_laws import check_results, lowered

LIMITS = RegisterLimits(256, 16)
LANES = 8

t, i, j, k, v, u = (Var(name) for name in "tijkvu")
X, Y = Buffer("X", "float32", (8, 1024)), Buffer("Y", "float32", (8, 1024))
KNOWN = Buffer("Known", "int32", (64,))


def program(
    vectors: int = 4,
    scope: str = "global",
    kind: LoopKind = VECTORIZED,
    index: Expr | None = None,
    extent: int | None = None,
    terms: int = 1,
    lanes: int = LANES,
    parallel: bool = False,
    masked: bool = False,
) -> Stmt:
    """Some `vectors` are stored to scratch by straight code and read by a loop."""
    scratch = Buffer("S", "float32", (vectors * LANES,), scope)
    fill: Stmt = Store(scratch, (i * LANES + v,), load(X, t, i * LANES + v))
    fill = For(v, LANES, VECTORIZED, fill)
    if terms > 1:
        fill = For(k, terms, SERIAL, fill)
    fill = For(i, vectors, UNROLLED if terms == 1 else SERIAL, fill)
    place = j * LANES + u if index is None else index
    use = Store(Y, (t, j * LANES + u), load(scratch, place) * const(2.0, "float32"))
    lane: Stmt = If(t * LANES + u < const(60), use) if masked else use
    out: Stmt = For(j, extent or vectors, SERIAL, For(u, lanes, kind, lane))
    if parallel:
        out = For(k, 16, LoopKind.PARALLEL, out)
    return For(t, 8, SERIAL, Alloc(scratch, seq(fill, out)))


def test_a_short_loop_of_vectors_over_scratch_is_unrolled() -> None:
    assert format_stmt(unroll_scratch(program(), LIMITS)) == dedent(
        """\
        for t in 0..8:
          allocate S[32] float32 global
          unroll i in 0..4:
            vectorize v in 0..8:
              S[i*8 + v] = X[t, i*8 + v]
          unroll j in 0..4:
            vectorize u in 0..8:
              Y[t, j*8 + u] = S[j*8 + u]*2.0"""
    )


@pytest.mark.parametrize(
    "stmt",
    [
        pytest.param(program(vectors=LIMITS.num_registers // 2 + 1), id="too many registers"),
        pytest.param(program(scope="local"), id="not of a CPU"),
        pytest.param(program(kind=SERIAL), id="no vectors"),
        pytest.param(program(index=load(KNOWN, j) * LANES + u), id="data decide"),
        pytest.param(program(index=t % 4 * LANES + u), id="another loop decides"),
        pytest.param(program(index=j % 4 * LANES + u, extent=64), id="a long loop"),
        pytest.param(program(terms=16), id="a reduction inside"),
        pytest.param(program(parallel=True), id="other threads read"),
        pytest.param(program(lanes=7), id="parts of vectors"),
        pytest.param(program(masked=True), id="lanes that a guard leaves out"),
    ],
)
def test_what_stays_as_it_is(stmt: Stmt) -> None:
    assert unroll_scratch(stmt, LIMITS) is stmt


@pytest.mark.parametrize(("rows", "columns"), [(2, 16), (1, 32), (3, 8)])
def test_a_product_and_what_follows_it(rows: int, columns: int) -> None:
    a, b = te.placeholder((12, 20), name="A"), te.placeholder((20, 64), name="B")
    r = te.reduce_axis((0, 20), "r")
    c = te.compute((12, 64), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="C")
    d = te.compute((12, 64), lambda y, x: te.maximum(c[y, x], 0.0) * 2.0, name="D")
    state = State.initial(ComputeDAG([a, b, d]))
    for axis, tile in ((1, columns), (0, rows)):
        state = state.split(3, axis, [tile])
    state = state.reorder(3, [0, 2, 1, 3]).split(3, 3, [8])
    state = state.annotate(3, 4, Annotation.VECTORIZE)
    state = state.compute_at(2, 3, 1).split(2, 1, [8]).reorder(2, [3, 0, 1, 2])
    for loop in (1, 2):
        state = state.annotate(2, loop, Annotation.UNROLL)
    state = state.annotate(2, 3, Annotation.VECTORIZE)
    nest = lowered(state, simple_mode=False)
    written = replace(nest, body=unroll_scratch(nest.body, LIMITS))
    (scratch,) = (
        one for one in walk_statements(written.body) if isinstance(one, Alloc) and one.buffer.name == "C"
    )
    serial = [one for one in walk_statements(scratch) if isinstance(one, For) and one.kind is SERIAL]
    assert [one.var.name for one in serial] == ["y.0", "x.0", "r"]
    machine = Machine.for_target("llvm -mcpu=x86-64-v3")
    assert machine.register_limits == LIMITS
    assert written.body is not nest.body
    assert emit_llvm(nest, machine) == emit_llvm(written, machine)
    check_results(state)
