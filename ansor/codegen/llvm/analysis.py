"""What the emitter must know of a statement before it writes it: buffers, variables, widths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ansor.codegen.llvm.dtype_map import is_narrow_float
from ansor.codegen.machine import Machine
from ansor.codegen.overflow import Overflow
from ansor.dtypes import dtype_info
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import own_instructions, vectors_of
from ansor.ir.nest import (
    Alloc,
    Buffer,
    For,
    If,
    Let,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    statement_expressions,
    sub_statements,
    walk_statements,
)
from ansor.ir.rewriting import tested_in_turn
from ansor.te.expr import Call, Cast, Expr, Load, Var, children, distinct_nodes, free_vars, reached


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one statement: buffers stored to and accessed, variables used, what decides how to expand it.

    `register_variables` say which register an access means: their loops cannot be loops of the code.
    `instructions` estimates the code with unrolled loops expanded (`ansor.ir.code_size`); `value_bytes` is
    the size of the widest value computed (index arithmetic aside).
    """

    written: frozenset[Buffer]
    buffers: frozenset[Buffer]
    variables: frozenset[Var]
    register_variables: frozenset[Var]
    has_allocs: bool
    has_parallel: bool
    has_vectors: bool
    instructions: int
    value_bytes: int


class Analysis:
    """Facts about the statements of one nest, computed once per statement; `bounds` hold its variables.

    Statements are known by identity, so those that were asked about are kept.
    """

    def __init__(self, machine: Machine, bounds: Bounds) -> None:
        self.machine = machine
        self.overflow = Overflow(bounds)
        self._facts: dict[int, tuple[Stmt, Facts]] = {}
        self._variables: dict[int, frozenset[Var]] = {}
        self._in_lanes: dict[For, bool] = {}
        self._in_turn: dict[If, If] = {}

    def facts(self, stmt: Stmt) -> Facts:
        """The facts of `stmt`, its sub-statements included."""
        known = self._facts.get(id(stmt))
        if known is None:
            known = stmt, self._collect(stmt)
            self._facts[id(stmt)] = known
        return known[1]

    def _collect(self, stmt: Stmt) -> Facts:
        inner = [self.facts(sub) for sub in sub_statements(stmt)]
        nodes = [node for expr in statement_expressions(stmt) for node in distinct_nodes(expr)]
        places = [(node.buffer, node.indices) for node in nodes if isinstance(node, Load)]
        written: set[Buffer] = set()
        if isinstance(stmt, Store):
            written.add(stmt.buffer)
        if isinstance(stmt, (Store, Prefetch)):
            places.append((stmt.buffer, stmt.indices))
        registers = (index for buffer, indices in places if buffer.scope == "register" for index in indices)
        code = sum(f.instructions for f in inner) + own_instructions(stmt)
        if isinstance(stmt, For) and isinstance(stmt.extent, int):
            if stmt.kind is LoopKind.UNROLLED:
                code *= stmt.extent
            elif stmt.kind is LoopKind.VECTORIZED:
                code *= vectors_of(stmt, self.machine.vector_bits)
        kind = stmt.kind if isinstance(stmt, For) else None
        return Facts(
            written=frozenset(written).union(*(f.written for f in inner)),
            buffers=frozenset(buffer for buffer, _ in places).union(*(f.buffers for f in inner)),
            variables=frozenset(node for node in nodes if isinstance(node, Var)).union(
                *(f.variables for f in inner)
            ),
            register_variables=frozenset[Var]().union(
                *map(self.variables, registers), *(f.register_variables for f in inner)
            ),
            has_allocs=isinstance(stmt, Alloc) or any(f.has_allocs for f in inner),
            has_parallel=kind is LoopKind.PARALLEL or any(f.has_parallel for f in inner),
            has_vectors=kind is LoopKind.VECTORIZED or any(f.has_vectors for f in inner),
            instructions=code,
            value_bytes=max([self._width(stmt), *(f.value_bytes for f in inner)]),
        )

    def variables(self, expr: Expr) -> frozenset[Var]:
        """The variables that occur in an expression."""
        known = self._variables.get(id(expr))
        if known is None:
            known = self._variables[id(expr)] = frozenset(free_vars(expr))
        return known

    def reads(self, store: Store, buffer: Buffer) -> bool:
        """Whether the value or the place of a store depends on what a buffer holds."""
        return any(
            isinstance(node, Load) and node.buffer is buffer
            for expr in (*store.indices, store.value)
            for node in distinct_nodes(expr)
        )

    def tested_in_turn(self, stmt: If) -> If:
        """See `ansor.ir.rewriting.tested_in_turn`."""
        known = self._in_turn.get(stmt)
        if known is None:
            known = self._in_turn[stmt] = tested_in_turn(stmt)
        return known

    def may_vectorize(self, loop: For) -> bool:
        """Whether the iterations of a vectorized loop can be lanes.

        Not if the body has its own buffers, threads or vector loops, an inner loop whose extent depends on
        the lane, or a store that does not depend on it (all lanes would write one element).
        """
        known = self._in_lanes.get(loop)
        if known is None:
            known = self._in_lanes[loop] = self._may_vectorize(loop)
        return known

    def _may_vectorize(self, loop: For) -> bool:
        facts = self.facts(loop.body)
        if facts.has_allocs or facts.has_parallel or facts.has_vectors:
            return False
        lane = {loop.var}
        for stmt in walk_statements(loop.body):
            if isinstance(stmt, Let) and not lane.isdisjoint(self.variables(stmt.value)):
                lane.add(stmt.var)
        for stmt in walk_statements(loop.body):
            if (
                isinstance(stmt, For)
                and not isinstance(stmt.extent, int)
                and not lane.isdisjoint(self.variables(stmt.extent))
            ):
                return False
            if isinstance(stmt, Store) and all(lane.isdisjoint(self.variables(i)) for i in stmt.indices):
                return False
        return True

    def _width(self, stmt: Stmt) -> int:
        """Bytes of the widest value that a statement computes by itself."""
        if isinstance(stmt, Store):
            return max(self._bytes(stmt.buffer.dtype), self._value_width(stmt.value))
        if isinstance(stmt, Let) and stmt.value.dtype not in ("int32", "int64"):
            return self._value_width(stmt.value)
        return 1

    def _value_width(self, expr: Expr) -> int:
        widest = 1
        for node in _value_nodes(expr):
            if isinstance(node, (Load, Cast, Call)):
                widest = max(widest, self._bytes(node.dtype))
        return max(widest, self._bytes(expr.dtype))

    def _bytes(self, dtype: str) -> int:
        return 4 if is_narrow_float(dtype, self.machine) else dtype_info(dtype).bytes


def _value_nodes(expr: Expr) -> Iterator[Expr]:
    """The distinct nodes of an expression that are not part of an index."""
    return reached(expr, lambda node: () if isinstance(node, Load) else children(node))
