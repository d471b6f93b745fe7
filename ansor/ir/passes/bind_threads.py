"""Loops bound to blocks and threads become the launch of a kernel.

A schedule binds loops wherever they stand, several of them to one index: side by side, as what a kernel
computes first and what it computes from that; or one inside of another, as a tile that all threads load
together inside of a loop over their own work. A kernel has each index once, around everything:

    blockIdx.x b in 0..8:                        blockIdx.x b in 0..8:
      allocate S[40] shared                        threadIdx.x t in 0..40:
      threadIdx.x t in 0..32:                        allocate S[40] shared
        for k in 0..4:                               for k in 0..4:
          threadIdx.x u in 0..40:            =>        S[t] = A[b, k, t]
            S[u] = A[b, k, u]                          if t < 32:
          C[b, t] = f(C[b, t], S[t])                     C[b, t] = f(C[b, t], S[t])

The longest loop of an index gives the launch its extent. What the others do is tested to be in their range,
statement by statement, so that barriers can stand between statements.

Memory is moved to where it has to be. Of scope "shared" there is one buffer for a block, wherever it is
allocated. Private memory is for what a thread stores itself: another buffer that loops over threads fill is
shared, too, one for each of the threads that it was allocated in, and so is one of scope "global" that is
allocated outside of all loops over threads. What all threads would store alike to shared or global memory,
the first stores alone.

Source: thread binding and the inference of scopes as in TVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ansor.errors import ScheduleError
from ansor.ir.kernel_form import BLOCK_KINDS, LAUNCH_KINDS, THREAD_KINDS
from ansor.ir.nest import (
    Alloc,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
    seq,
    statement_expressions,
    sub_statements,
    walk_statements,
)
from ansor.ir.rewriting import guarded, map_statements, reads_memory, with_rows, with_statements
from ansor.te.expr import (
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Var,
    distinct_nodes,
    free_vars,
    int_value,
    rewrite,
)
from ansor.te.structure import same_structure

_ZERO: Final = Const(0, INDEX_DTYPE)
_Active = Mapping[LoopKind, For]
"""The innermost loop around a statement that is bound to each index."""
_Guards = Mapping[LoopKind, Expr]
"""By index, the condition that a thread has an iteration of the loop bound to it."""


def bind_threads(stmt: Stmt, name: str) -> Stmt:
    """
    Make a kernel of a nest.

    Parameters
    ----------
    stmt
        The loops of one stage at root, with all that is computed inside of them.
    name
        What messages call it.

    Raises
    ------
    ScheduleError
        If no kernel can do what the nest says: a thread index of a symbolic extent, loops bound to one index
        of which the inner computes something else in each iteration of the outer, memory that blocks would
        have to share or that has no constant size.
    """
    launch = _find_launch(stmt, name)
    body = _Binder(name, launch, _find_places(stmt, launch, name)).statement(stmt, {})
    for kind in reversed(LAUNCH_KINDS):
        if kind in launch:
            loop = launch[kind]
            body = For(loop.var, loop.extent, kind, body)
    if not launch:  # one thread; the loop keeps its statements together
        return For(Var("block"), 1, LoopKind.BLOCK_X, body)
    return body


def _find_launch(stmt: Stmt, name: str) -> dict[LoopKind, For]:
    """The first of the longest loops bound to each index, where these are longer than 1."""
    found: dict[LoopKind, For] = {}
    for loop in walk_statements(stmt):
        if not isinstance(loop, For) or loop.kind not in LAUNCH_KINDS:
            continue
        if loop.kind in THREAD_KINDS and int_value(loop.extent) is None:
            raise ScheduleError(
                f"kernel of {name!r}: loop {loop.var.name!r} is bound to {loop.kind} and has the symbolic "
                f"extent {loop.extent}; threads are counted when a kernel is compiled, so split the loop by "
                "a constant, bind the inner part to threads and the outer to blocks"
            )
        known = found.get(loop.kind)
        if known is None or _is_longer(loop, known, name):
            found[loop.kind] = loop
    return {kind: loop for kind, loop in found.items() if int_value(loop.extent) != 1}


def _is_longer(loop: For, than: For, name: str) -> bool:
    mine, other = int_value(loop.extent), int_value(than.extent)
    if mine is not None and other is not None:
        return mine > other
    match loop.extent, than.extent:
        case Expr() as one, Expr() as longest if same_structure(one, longest):
            return False
        case _:
            pass
    raise ScheduleError(
        f"kernel of {name!r}: {loop.kind} is bound to loop {loop.var.name!r} of extent {loop.extent} and to "
        f"loop {than.var.name!r} of extent {than.extent}; give them the same extent"
    )


# -- memory ------------------------------------------------------------------------------------------------


@dataclass
class _Use:
    """Where a buffer is allocated, and by which loops it is filled and read there."""

    around: _Active
    fills: set[LoopKind] = field(default_factory=set)
    reads: set[LoopKind] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Place:
    """What stands for a buffer, of a row for each value of the launch variables `rows`."""

    buffer: Buffer
    rows: tuple[Var, ...] = ()


def _find_places(stmt: Stmt, launch: Mapping[LoopKind, For], name: str) -> dict[Buffer, _Place]:
    uses: dict[Buffer, _Use] = {}
    _find_uses(stmt, {}, launch, uses)
    return {buffer: _place(buffer, use, launch, name) for buffer, use in uses.items()}


def _find_uses(stmt: Stmt, active: _Active, launch: Mapping[LoopKind, For], uses: dict[Buffer, _Use]) -> None:
    if isinstance(stmt, Alloc):
        uses[stmt.buffer] = _Use(active)
    if isinstance(stmt, Store) and stmt.buffer in uses:
        use = uses[stmt.buffer]
        use.fills.update(kind for kind, loop in active.items() if use.around.get(kind) is not loop)
    for expr in statement_expressions(stmt):
        for node in distinct_nodes(expr):
            if isinstance(node, Load) and node.buffer in uses:
                use = uses[node.buffer]
                use.reads.update(kind for kind, loop in active.items() if use.around.get(kind) is not loop)
    if isinstance(stmt, For) and stmt.kind in launch:
        active = {**active, stmt.kind: stmt}
    for inner in sub_statements(stmt):
        _find_uses(inner, active, launch, uses)


def _place(buffer: Buffer, use: _Use, launch: Mapping[LoopKind, For], name: str) -> _Place:
    if not use.fills.isdisjoint(BLOCK_KINDS):
        raise ScheduleError(
            f"kernel of {name!r}: {buffer.name!r} is computed by all blocks and used by all of them, but "
            f"blocks cannot wait for each other; compute {buffer.name!r} at root, or inside of the loops "
            "bound to blocks"
        )
    if any(int_value(extent) is None for extent in buffer.shape):
        raise ScheduleError(
            f"kernel of {name!r}: {buffer.name!r} would need memory of symbolic size inside of the kernel; "
            f"compute {buffer.name!r} at root, or inside of more loops"
        )
    if buffer.scope == "shared":
        return _Place(buffer)
    around = [kind for kind in THREAD_KINDS if kind in use.around]
    together = use.fills | use.reads.intersection(around)
    if not together and (around or buffer.scope != "global"):
        return _Place(buffer if buffer.scope != "global" else with_rows(buffer, (), "local"))
    kinds = [kind for kind in around if kind not in together]
    extents = [int_value(use.around[kind].extent) or 1 for kind in kinds]
    rows = tuple(launch[kind].var for kind in kinds)
    return _Place(with_rows(buffer, extents, "shared"), rows)


# -- statements --------------------------------------------------------------------------------------------


class _Binder:
    """Rewrites the statements inside of a launch."""

    def __init__(self, name: str, launch: Mapping[LoopKind, For], places: Mapping[Buffer, _Place]) -> None:
        self._name = name
        self._launch = launch
        self._places = places
        self._active: dict[LoopKind, For] = {}
        self._values: dict[Var, Expr] = {}
        self._hidden: dict[Var, For] = {}
        """Variables of loops inside of which another is bound to the same index, and that one."""
        self._lets: dict[Var, Expr] = {}

    def statement(self, stmt: Stmt, guards: _Guards) -> Stmt:
        """A statement that threads execute for which all `guards` hold."""
        match stmt:
            case For() if stmt.kind in LAUNCH_KINDS:
                return self._bound(stmt, guards)
            case For(var=var, extent=extent, kind=kind, body=body):
                limit = extent if isinstance(extent, int) else self._expr(extent)
                return For(var, limit, _kind_inside(kind, body), self.statement(body, guards))
            case Seq(stmts=stmts):
                return seq(*(self.statement(one, guards) for one in stmts))
            case Alloc(buffer=buffer, body=body):
                return Alloc(self._places[buffer].buffer, self.statement(body, guards))
            case Store() | Let() | If():
                return guarded(tuple(guards.values()), self._once(self._inner(stmt), frozenset()))
            case Barrier() | Commit() | Prefetch():
                return stmt

    def _bound(self, loop: For, guards: _Guards) -> Stmt:
        """The body of a loop that is bound to an index."""
        kind = loop.kind
        if kind not in self._launch:
            self._values[loop.var] = _ZERO
            return self.statement(loop.body, guards)
        launched, outer = self._launch[kind], self._active.get(kind)
        if outer is not None:
            self._hidden[outer.var] = loop
        self._active[kind] = loop
        self._values[loop.var] = launched.var
        inside = {at: guard for at, guard in guards.items() if at is not kind}
        extent = int_value(loop.extent)
        if extent is not None and extent != int_value(launched.extent):
            inside[kind] = Binary(BinaryOp.LT, launched.var, Const(extent, launched.var.dtype), "bool")
        body = self.statement(loop.body, inside)
        del self._active[kind]
        if outer is not None:
            self._active[kind] = outer
            del self._hidden[outer.var]
        return body

    def _inner(self, stmt: Stmt) -> Stmt:
        """A statement inside of what the guards are tested around."""
        match stmt:
            case Store(buffer=buffer, indices=indices, value=value):
                place = self._places.get(buffer) or _Place(buffer)
                inside = (*place.rows, *map(self._expr, indices))
                return Store(place.buffer, inside, self._expr(value))
            case Let(var=var, value=value, body=body):
                new = self._lets[var] = self._expr(value)
                return Let(var, new, self._inner(body))
            case If(cond=cond, then=then, other=other):
                after = None if other is None else self._inner(other)
                return If(self._expr(cond), self._inner(then), after)
            case Seq(stmts=stmts):
                return seq(*map(self._inner, stmts))
            case _:
                return self.statement(stmt, {})

    def _once(self, stmt: Stmt, alone: frozenset[Var]) -> Stmt:
        """A statement whose stores are not done by several threads alike; `alone` are 0 there already."""
        match stmt:
            case Store() | Let():
                alike = [self._alike(inner) for inner in walk_statements(stmt) if isinstance(inner, Store)]
                once = frozenset.intersection(*alike) - alone if alike else frozenset[Var]()
                if isinstance(stmt, Let):
                    stmt = with_statements(stmt, (self._once(stmt.body, alone | once),))
                kept = (loop.var for loop in self._launch.values() if loop.var in once)
                return guarded(tuple(_is_first(var) for var in kept), stmt)
            case If() | Seq():
                return map_statements(stmt, lambda inner: self._once(inner, alone))
            case _:
                return stmt

    def _alike(self, store: Store) -> frozenset[Var]:
        """The launch variables of the threads that would store the same."""
        kinds = {"global": LAUNCH_KINDS, "shared": THREAD_KINDS}.get(store.buffer.scope, ())
        if any(map(reads_memory, store.indices)):
            return frozenset()
        used: set[Var] = set().union(*map(self._variables, store.indices))
        return frozenset(self._launch[kind].var for kind in kinds if kind in self._launch) - used

    # -- expressions ---------------------------------------------------------------------------------------

    def _variables(self, expr: Expr) -> set[Var]:
        """The variables that an expression depends on, by way of others, too."""
        used = free_vars(expr)
        return used.union(*(self._variables(self._lets[var]) for var in used if var in self._lets))

    def _expr(self, expr: Expr) -> Expr:
        """An expression of the nest as one of the kernel."""
        for var in free_vars(expr):
            if var in self._hidden:
                self._refuse_nested(var)

        def visit(node: Expr) -> Expr | None:
            if isinstance(node, Var):
                return self._values.get(node)
            if isinstance(node, Load) and node.buffer in self._places:
                place = self._places[node.buffer]
                return Load(place.buffer, (*place.rows, *node.indices), node.dtype)
            return None

        return rewrite(expr, visit)

    def _refuse_nested(self, outer: Var) -> None:
        inner = self._hidden[outer]
        raise ScheduleError(
            f"kernel of {self._name!r}: loop {inner.var.name!r} is bound to {inner.kind} inside of loop "
            f"{outer.name!r}, which is bound to it, too, and what it computes depends on {outer.name!r}: the "
            f"threads cannot share the work of each of them; bind {inner.var.name!r} to another index, or "
            f"move its stage out of {outer.name!r}"
        )


def _kind_inside(kind: LoopKind, body: Stmt) -> LoopKind:
    """How a loop around `body` runs in a kernel: not as a vector if it is around threads."""
    kinds = {inner.kind for inner in walk_statements(body) if isinstance(inner, For)}
    threads = not kinds.isdisjoint((*LAUNCH_KINDS, LoopKind.VTHREAD))
    return LoopKind.SERIAL if kind is LoopKind.VECTORIZED and threads else kind


def _is_first(var: Var) -> Expr:
    return Binary(BinaryOp.EQ, var, Const(0, var.dtype), "bool")
