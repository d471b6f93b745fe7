"""Vectors abreast: functions, and quotients of a row, are computed for several vectors at a time.

The polynomial of a function is a chain of operations, each of which waits for the one before. The next vector
waits for nothing, but a processor looks ahead only as far as its schedulers hold operations that wait, and
three vectors of `exp` fill those of a Zen 3. Written operation by operation, what need not wait comes first:
there a loop of `tanh` or `log` is 1.2 to 1.4 times as fast for four vectors at a time, 1.1 to 1.3 for two;
eight do not fit 16 registers. One of `exp` is 1.7 times as fast, as what infinities and denormals take can be
left out where none of the four has to do with these. `pow` is slower: it computes with twice as many vectors
of float64. Longer vectors are computed one by one: with them `exp` is a shorter chain.

A row that is divided by a number of its own asks whether that has a reciprocal to multiply by
(`ansor.codegen.llvm.quotients`), once for all vectors that are abreast: a softmax of 1024 x 1024 is 1.10
times as fast on a Zen 3 for four, one of 1536 x 128 1.05 times.

A vector loop of several vectors is that already, if vectors have so many more lanes. Where it is a single
vector, iterations of the loop around it are put together:

    for j in 0..128:                     for j in 0..32:
      vectorize v in 0..8:          =>     vectorize v in 0..32:
        Y[j*8 + v] = exp(X[j*8 + v])         Y[j*32 + v] = exp(X[j*32 + v])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from ansor.codegen.llvm.powers import POWERS
from ansor.codegen.machine import Machine
from ansor.ir.accesses import accesses_of
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import stored_bits, value_bits
from ansor.ir.nest import (
    For,
    If,
    LoopKind,
    LoopNest,
    Prefetch,
    Seq,
    Stmt,
    Store,
    computed_dtypes,
    seq,
    value_nodes,
    walk_statements,
)
from ansor.ir.ranges import nest_bounds
from ansor.ir.rewriting import fresh_copy, map_expressions, map_statements, replace_in
from ansor.ir.simplify import simplify
from ansor.ir.strides import even_step
from ansor.te.expr import Binary, BinaryOp, Call, Const, Expr, Var, const, free_vars

_ABREAST: Final = 4
_LONGEST: Final = 256
_CHAINS: Final = frozenset(
    {
        *("atan", "cos", "cosh", "erf", "exp", "exp2", "expm1", "log", "log1p", "log2", "sigmoid", "sin"),
        *("sinh", "tan", "tanh"),
    }
)
_STRAIGHT: Final = (Store, If, Seq, Prefetch)
_JOINED: Final = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.PARALLEL})
_FEWEST_PARALLEL: Final = 64
"""Iterations that are left to threads, at least."""


def lanes_abreast(loop: For, machine: Machine, bounds: Bounds) -> int:
    """
    How many lanes of a vector loop should be computed at a time; 0 if one vector after the other.

    So it is where accesses do not step evenly: at the end of a row that is joined with the next one, a short
    vector may lie on one side. `bounds` hold all variables.
    """
    if machine.vector_bits > _LONGEST or not _is_chain(loop.body, {loop.var}):
        return 0
    found = accesses_of(loop.body)
    even = all(
        even_step(buffer, indices, loop.var, bounds) is not None
        for accesses in (found.reads, found.writes)
        for buffer, places in accesses.items()
        for indices in places
    )
    return _most_lanes(loop.body, machine) if even else 0


def join_strips(nest: LoopNest, machine: Machine) -> LoopNest:
    """`nest` with vectors of functions, of consecutive elements, put together where that is worth it."""
    if machine.vector_bits > _LONGEST:
        return nest
    body = _Joining(nest, machine).visit(nest.body)
    return nest if body is nest.body else replace(nest, body=body)


@dataclass(frozen=True)
class _Joining:
    """Puts the strips of one nest together."""

    nest: LoopNest
    machine: Machine

    @cached_property
    def bounds(self) -> Bounds:
        return nest_bounds(self.nest)

    def visit(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and isinstance(stmt.body, For) and stmt.body.kind is LoopKind.VECTORIZED:
            return self._joined(stmt, stmt.body) or stmt
        return map_statements(stmt, self.visit)

    def _joined(self, strips: For, vector: For) -> Stmt | None:
        """The loop over vectors with several of its iterations as one; None if it is left as it is.

        No statement of the body reads what another one stores, and none stores where another one does, as
        stages never do: so all strips may go through it together.
        """
        count, lanes = strips.extent, vector.extent
        if strips.kind not in _JOINED or not _is_chain(vector.body, {strips.var, vector.var}):
            return None
        if not isinstance(count, int) or not isinstance(lanes, int):
            return None
        together = min(count, _most_lanes(vector.body, self.machine) // lanes)
        if together < 2:
            return None
        groups, rest = divmod(count, together)
        if strips.kind is LoopKind.PARALLEL and (rest or groups < _FEWEST_PARALLEL):
            return None
        group, lane = Var(strips.var.name, strips.var.dtype), Var(vector.var.name, vector.var.dtype)
        element = group * (together * lanes) + lane
        place = {strips.var: element // lanes, vector.var: element % lanes}
        known = self.bounds.extended({group: (0, (count - 1) // together), lane: (0, together * lanes - 1)})
        body = map_expressions(vector.body, lambda expr: simplify(replace_in(expr, place, {}), known))
        joined = For(lane, together * lanes, LoopKind.VECTORIZED, body)
        if not lanes_abreast(joined, self.machine, known):
            return None
        whole = For(group, groups, strips.kind, joined)
        if not rest:
            return whole
        last = replace(joined, extent=rest * lanes)
        return seq(whole, fresh_copy(last, {group: const(groups)}))


def _is_chain(body: Stmt, places: set[Var]) -> bool:
    """Whether straight code computes long chains, or quotients that ask first, from some buffers to others.

    What depends on `places` outside of indices, as a condition at an edge, would no longer be known of a
    vector as a whole.
    """
    if not all(isinstance(inner, _STRAIGHT) for inner in walk_statements(body)):
        return False
    nodes = [node for value in _values(body) for node in value_nodes(value)]
    calls = [node for node in nodes if isinstance(node, Call)]
    worth = any(map(_is_long, calls)) or any(_divides_a_row(node, places) for node in nodes)
    if not worth or any(map(_is_crowded, calls)) or not places.isdisjoint(nodes):
        return False
    found = accesses_of(body)
    registers = any(buffer.scope == "register" for buffer in (*found.reads, *found.writes))
    return not registers and found.reads.keys().isdisjoint(found.writes)


def _values(body: Stmt) -> Iterator[Expr]:
    """What straight code computes: the values that it stores, and its conditions."""
    for inner in walk_statements(body):
        if isinstance(inner, Store):
            yield inner.value
        elif isinstance(inner, If):
            yield inner.cond


def _most_lanes(body: Stmt, machine: Machine) -> int:
    """Lanes of all vectors at a time, if the widest value that is computed fills each."""
    widest = max(value_bits(dtype) for value in _values(body) for dtype in computed_dtypes(value))
    return _ABREAST * machine.vector_bits // max(widest, stored_bits(body))


def _is_long(call: Call) -> bool:
    """Whether a function is a chain; `erf` of float64 is one of the C library, lane by lane."""
    return call.name in _CHAINS and (call.name, call.dtype) != ("erf", "float64")


def _divides_a_row(node: Expr, places: set[Var]) -> bool:
    """Whether a node divides, wherever in `places`, by the same number, which is not known beforehand."""
    match node:
        case Binary(op=BinaryOp.DIV, b=divisor, dtype="float32"):
            return not isinstance(divisor, Const) and places.isdisjoint(free_vars(divisor))
        case _:
            return False


def _is_crowded(call: Call) -> bool:
    """Whether a function takes twice the registers: `pow`, unless it is some multiplications."""
    exponent = call.args[-1]
    return call.name == "pow" and not (isinstance(exponent, Const) and exponent.value in POWERS)
