"""What the emitter must know of a statement before it writes it: buffers, variables, widths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ansor.codegen.llvm.abreast import lanes_abreast
from ansor.codegen.llvm.dtype_map import is_narrow_float
from ansor.codegen.machine import Machine
from ansor.codegen.overflow import Overflow
from ansor.dtypes import dtype_info
from ansor.ir.accesses import accesses_of
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
    computed_dtypes,
    statement_expressions,
    sub_statements,
    walk_statements,
)
from ansor.ir.rewriting import tested_in_turn
from ansor.ir.strides import coefficient, places_along, runs_along
from ansor.te.expr import Expr, Load, Var, distinct_nodes, free_vars

Item = TypeVar("Item")


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
        self.bounds = bounds
        self.overflow = Overflow(bounds)
        self._facts: dict[int, tuple[Stmt, Facts]] = {}
        self._variables: dict[int, frozenset[Var]] = {}
        self._read: dict[Store, frozenset[Buffer]] = {}
        self._in_lanes: dict[For, bool] = {}
        self._abreast: dict[For, int] = {}
        self._masks: dict[For, bool] = {}
        self._shared: dict[For, bool] = {}
        self._in_turn: dict[If, If] = {}

    def facts(self, stmt: Stmt) -> Facts:
        """The facts of `stmt`, its sub-statements included."""
        known = self._facts.get(id(stmt))
        if known is None:
            known = stmt, self._collect(stmt)
            self._facts[id(stmt)] = known
        return known[1]

    def _collect(self, stmt: Stmt) -> Facts:
        parts = [self._own_facts(stmt), *(self.facts(sub) for sub in sub_statements(stmt))]
        return Facts(
            written=_union(part.written for part in parts),
            buffers=_union(part.buffers for part in parts),
            variables=_union(part.variables for part in parts),
            register_variables=_union(part.register_variables for part in parts),
            has_allocs=any(part.has_allocs for part in parts),
            has_parallel=any(part.has_parallel for part in parts),
            has_vectors=any(part.has_vectors for part in parts),
            instructions=self._copies(stmt) * sum(part.instructions for part in parts),
            value_bytes=max(part.value_bytes for part in parts),
        )

    def _own_facts(self, stmt: Stmt) -> Facts:
        """What is so of a statement whatever its sub-statements are."""
        nodes = [node for expr in statement_expressions(stmt) for node in distinct_nodes(expr)]
        accesses: list[Load | Store | Prefetch] = [node for node in nodes if isinstance(node, Load)]
        if isinstance(stmt, (Store, Prefetch)):
            accesses.append(stmt)
        registers = (access for access in accesses if access.buffer.scope == "register")
        kind = stmt.kind if isinstance(stmt, For) else None
        return Facts(
            written=frozenset({stmt.buffer} if isinstance(stmt, Store) else ()),
            buffers=frozenset(access.buffer for access in accesses),
            variables=frozenset(node for node in nodes if isinstance(node, Var)),
            register_variables=_union(self.variables(index) for one in registers for index in one.indices),
            has_allocs=isinstance(stmt, Alloc),
            has_parallel=kind is LoopKind.PARALLEL,
            has_vectors=kind is LoopKind.VECTORIZED,
            instructions=own_instructions(stmt),
            value_bytes=self._width(stmt),
        )

    def _copies(self, stmt: Stmt) -> int:
        """How often a statement's instructions are in the code."""
        match stmt:
            case For(extent=int(extent), kind=LoopKind.UNROLLED):
                return extent
            case For(extent=int(), kind=LoopKind.VECTORIZED):
                return vectors_of(stmt, self.machine.vector_bits)
            case _:
                return 1

    def variables(self, expr: Expr) -> frozenset[Var]:
        """The variables that occur in an expression."""
        known = self._variables.get(id(expr))
        if known is None:
            known = self._variables[id(expr)] = frozenset(free_vars(expr))
        return known

    def reads(self, store: Store, buffer: Buffer) -> bool:
        """Whether the value or the place of a store depends on what a buffer holds."""
        known = self._read.get(store)
        if known is None:
            nodes = (node for expr in (*store.indices, store.value) for node in distinct_nodes(expr))
            known = self._read[store] = frozenset(node.buffer for node in nodes if isinstance(node, Load))
        return buffer in known

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

    def lanes_abreast(self, loop: For) -> int:
        """See `ansor.codegen.llvm.abreast.lanes_abreast`."""
        known = self._abreast.get(loop)
        if known is None:
            known = self._abreast[loop] = lanes_abreast(loop, self.machine, self.bounds)
        return known

    def shares_loads(self, loop: For) -> bool:
        """Whether iterations of an unrolled loop load what others of it do, as windows that overlap do."""
        known = self._shared.get(loop)
        if known is None:
            known = self._shared[loop] = _shares_loads(loop)
        return known

    def may_mask(self, loop: For) -> bool:
        """Whether vectors of a vectorized loop over registers may have lanes that do not count.

        They may where all that depends on the lane is side by side, along rows of tiles, in elements that
        masked loads take, or read from one vector: not with what shuffles put together of several, nor with
        instructions for whole vectors alone.
        """
        known = self._masks.get(loop)
        if known is None:
            known = self._masks[loop] = self._may_mask(loop)
        return known

    def _may_mask(self, loop: For) -> bool:
        for stmt in walk_statements(loop.body):
            if isinstance(stmt, Let) or (isinstance(stmt, For) and stmt.kind is LoopKind.TENSORIZE):
                return False
        found = accesses_of(loop.body)

        def fits(buffer: Buffer, indices: Sequence[Expr], read: bool) -> bool:
            if loop.var not in free_vars(*indices):
                return True
            if not self.machine.masks(dtype_info(buffer.dtype).bytes):
                return False
            along = runs_along(buffer, indices, loop.var, self.bounds)
            return along or (read and self._in_one_vector(buffer, indices, loop))

        return all(
            fits(buffer, indices, accesses is found.reads)
            for accesses in (found.reads, found.writes)
            for buffer, places in accesses.items()
            for indices in places
        )

    def masks_elements(self, loop: For) -> bool:
        """Whether instructions load and store under masks all elements that depend on the lane."""
        found = accesses_of(loop.body)
        dtypes = (
            buffer.dtype
            for accesses in (found.reads, found.writes)
            for buffer, places in accesses.items()
            if any(loop.var in free_vars(*indices) for indices in places)
        )
        return all(self.machine.masks(dtype_info(dtype).bytes) for dtype in dtypes)

    def _in_one_vector(self, buffer: Buffer, indices: Sequence[Expr], loop: For) -> bool:
        """Whether what each vector of a loop reads is known to be among as many elements side by side."""
        extent, lanes = loop.extent, self.machine.vector_bits // (8 * dtype_info(buffer.dtype).bytes)
        if not isinstance(extent, int) or buffer.scope == "register":
            return False
        places = places_along(buffer, indices, loop.var, extent, self.bounds)
        if places is None:
            return False
        vectors = [places[first : first + lanes] for first in range(0, extent, lanes)]
        return all(max(one) - min(one) < len(one) for one in vectors)

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
            return max(self.value_bytes(stmt.buffer.dtype), self._value_width(stmt.value))
        if isinstance(stmt, Let) and stmt.value.dtype not in ("int32", "int64"):
            return self._value_width(stmt.value)
        return 1

    def _value_width(self, expr: Expr) -> int:
        return max(self.value_bytes(dtype) for dtype in computed_dtypes(expr))

    def value_bytes(self, dtype: str) -> int:
        """Bytes of a value of a dtype in a register."""
        return 4 if is_narrow_float(dtype, self.machine) else dtype_info(dtype).bytes


def _shares_loads(loop: For) -> bool:
    """See `Analysis.shares_loads`; it does where that is not seen."""
    steps = range(1, loop.extent if isinstance(loop.extent, int) else 1)
    loops = [stmt for stmt in walk_statements(loop.body) if isinstance(stmt, For)]
    kinds = (LoopKind.UNROLLED, LoopKind.VECTORIZED)
    inner = [(one.var, one.extent) for one in loops if one.kind in kinds and isinstance(one.extent, int)]

    def recurs(index: Expr) -> bool:
        """Whether other iterations have values of an index that one has."""
        step = coefficient(index, loop.var)
        if not step:
            return True
        for var, extent in inner:
            by = coefficient(index, var)
            if by is None:
                return True
            places = (divmod(step * apart, by) for apart in steps if by)
            if any(rest == 0 and abs(place) < extent for place, rest in places):
                return True
        return False

    reads = accesses_of(loop.body).reads
    places = (indices for buffer, found in reads.items() if buffer.scope != "register" for indices in found)
    return any(all(map(recurs, indices)) for indices in places)


def _union(sets: Iterable[frozenset[Item]]) -> frozenset[Item]:
    some = [one for one in sets if one]
    return some[0] if len(some) == 1 else frozenset[Item]().union(*some)
