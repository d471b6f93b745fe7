"""The invariants of loop nests, checked: what every pass and every code generator may rely on.

A nest that breaks one is a bug in whatever made it, so the error is a `LoweringError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

from ansor.dtypes import is_integer
from ansor.errors import LoweringError
from ansor.ir.bounds import Bounds
from ansor.ir.nest import (
    Alloc,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Let,
    LoopKind,
    LoopNest,
    Prefetch,
    Seq,
    Stmt,
    Store,
    sub_statements,
)
from ansor.ir.prefetches import may_bring
from ansor.ir.printer import format_excerpt, format_expr
from ansor.ir.ranges import nest_bounds
from ansor.ir.rewriting import reads_memory
from ansor.te.expr import Expr, Load, Read, Reduce, Var, distinct_nodes, free_vars, int_value

SCOPES = ("global", "shared", "local", "register")
_ASKED = frozenset({"global", "local"})
"""Scopes of buffers in memory that has caches before it."""
_EXPANDED = frozenset({LoopKind.UNROLLED, LoopKind.VECTORIZED})


def check_nest(nest: LoopNest) -> None:
    """Raise a `LoweringError` if `nest` breaks an invariant of `ansor.ir.nest` or is ill-typed."""
    checker = _Checker(nest)
    for position in nest.outputs:
        if not 0 <= position < len(nest.params):
            checker.fail(nest.body, f"there is no parameter {position} to be an output")
    for position in nest.streamed:
        if position not in nest.outputs:
            checker.fail(nest.body, f"parameter {position} is streamed and no output")
    for param in nest.params:
        for extent in param.shape:
            if isinstance(extent, Expr):
                checker.expression(extent, nest.body)
    checker.statement(nest.body)


@dataclass
class _Checker:
    """What is in scope at the statement being checked."""

    nest: LoopNest
    visible: set[Var] = field(init=False)
    buffers: set[Buffer] = field(init=False)
    writable: set[Buffer] = field(init=False)
    streamed: set[Buffer] = field(init=False)
    expanded: set[Var] = field(default_factory=set)
    met: set[Var | Buffer] = field(init=False)

    def __post_init__(self) -> None:
        params = self.nest.params
        self.visible = set(self.nest.sizes)
        self.buffers = set(params)
        self.streamed = {params[position] for position in self.nest.streamed if 0 <= position < len(params)}
        self.writable = {params[position] for position in self.nest.outputs if 0 <= position < len(params)}
        self.met = {*self.nest.sizes, *params}

    @cached_property
    def bounds(self) -> Bounds:
        """The values that the variables may have."""
        return nest_bounds(self.nest)

    def fail(self, stmt: Stmt, what: str) -> NoReturn:
        raise LoweringError(f"{self.nest.name}: {what}, in\n{format_excerpt(stmt)}")

    # -- statements ------------------------------------------------------------------------------------

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self._loop(stmt)
            case Store():
                self._store(stmt)
            case Let(var=var, value=value, body=body):
                self.expression(value, stmt)
                if value.dtype != var.dtype:
                    self.fail(stmt, f"{var.dtype} {var.name!r} is bound to a value of {value.dtype}")
                self._inside(stmt, var, body)
            case If():
                self._if(stmt)
            case Seq(stmts=stmts):
                for one in stmts:
                    self.statement(one)
            case Alloc():
                self._alloc(stmt)
            case Prefetch():
                self._prefetch(stmt)
            case Barrier() | Commit():
                pass

    def _if(self, stmt: If) -> None:
        self.expression(stmt.cond, stmt)
        if stmt.cond.dtype != "bool":
            self.fail(stmt, f"the condition is {stmt.cond.dtype}")
        for inner in sub_statements(stmt):
            self.statement(inner)

    def _inside(self, stmt: Stmt, var: Var, body: Stmt) -> None:
        if var in self.met:
            self.fail(stmt, f"the variable {var.name!r} is bound twice")
        self.met.add(var)
        self.visible.add(var)
        self.statement(body)
        self.visible.discard(var)

    def _loop(self, stmt: For) -> None:
        if isinstance(stmt.extent, Expr):
            self.expression(stmt.extent, stmt)
            if not is_integer(stmt.extent.dtype):
                self.fail(stmt, f"the extent is {stmt.extent.dtype}")
        if not is_integer(stmt.var.dtype):
            self.fail(stmt, f"the loop variable is {stmt.var.dtype}")
        extent = int_value(stmt.extent)
        if extent is not None and extent < 0:
            self.fail(stmt, "the extent is negative")
        if stmt.kind in _EXPANDED:
            if extent is None:
                self.fail(stmt, f"the extent of the {stmt.kind} loop over {stmt.var.name!r} is not constant")
            self.expanded.add(stmt.var)
        self._inside(stmt, stmt.var, stmt.body)

    def _store(self, stmt: Store) -> None:
        self.expression(stmt.value, stmt)
        self._place(stmt)
        if stmt.value.dtype != stmt.buffer.dtype:
            self.fail(stmt, f"{stmt.value.dtype} is stored into {stmt.buffer.dtype} {stmt.buffer.name!r}")
        if stmt.buffer in self.nest.params and stmt.buffer not in self.writable:
            self.fail(stmt, f"the input {stmt.buffer.name!r} is written")

    def _place(self, stmt: Store | Prefetch) -> None:
        self._access(stmt.buffer, stmt.indices, stmt)
        for index in stmt.indices:
            self.expression(index, stmt)

    def _prefetch(self, stmt: Prefetch) -> None:
        self._place(stmt)
        buffer = stmt.buffer
        if buffer.scope not in _ASKED:
            self.fail(stmt, f"the {buffer.scope} buffer {buffer.name!r} is asked for, and is in no cache")
        for index in stmt.indices:
            if reads_memory(index):
                self.fail(stmt, f"the index `{format_expr(index)}` of what is asked for reads memory")
        if not may_bring(buffer, stmt.indices, self.bounds):
            self.fail(stmt, f"what is asked for of {buffer.name!r} is never there")

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        if buffer in self.met:
            self.fail(stmt, f"the buffer {buffer.name!r} is allocated twice")
        if buffer.scope not in SCOPES:
            self.fail(stmt, f"the scope {buffer.scope!r} of {buffer.name!r} is none of {', '.join(SCOPES)}")
        if buffer.scope == "register" and any(int_value(extent) is None for extent in buffer.shape):
            self.fail(stmt, f"the shape of the register buffer {buffer.name!r} is not constant")
        for extent in buffer.shape:
            if isinstance(extent, Expr):
                self.expression(extent, stmt)
        if buffer.strides is not None and len(buffer.strides) != len(buffer.shape):
            self.fail(
                stmt, f"{buffer.name!r} has {len(buffer.shape)} dimensions, {len(buffer.strides)} strides"
            )
        self.met.add(buffer)
        self.buffers.add(buffer)
        self.statement(stmt.body)
        self.buffers.discard(buffer)

    # -- expressions -----------------------------------------------------------------------------------

    def expression(self, expr: Expr, stmt: Stmt) -> None:
        """Check every node of an expression of `stmt`."""
        for node in distinct_nodes(expr):
            match node:
                case Read() | Reduce():
                    self.fail(stmt, f"a {type(node).__name__} of tensors is left")
                case Load(buffer=buffer, indices=indices, dtype=dtype):
                    self._access(buffer, indices, stmt)
                    if buffer in self.streamed:
                        self.fail(stmt, f"the streamed {buffer.name!r} is read")
                    if dtype != buffer.dtype:
                        self.fail(stmt, f"{buffer.dtype} {buffer.name!r} is read as {dtype}")
                case Var() if node not in self.visible:
                    self.fail(stmt, f"the variable {node.name!r} is not bound here")
                case _:
                    pass

    def _access(self, buffer: Buffer, indices: tuple[Expr, ...], stmt: Stmt) -> None:
        if buffer not in self.buffers:
            self.fail(stmt, f"the buffer {buffer.name!r} is used outside its allocation")
        if len(indices) != len(buffer.shape):
            self.fail(
                stmt, f"{buffer.name!r} has {len(buffer.shape)} dimensions, found {len(indices)} indices"
            )
        for index in indices:
            if not is_integer(index.dtype):
                self.fail(stmt, f"the index `{format_expr(index)}` is {index.dtype}")
            if buffer.scope == "register" and (reads_memory(index) or not free_vars(index) <= self.expanded):
                text = format_expr(index)
                self.fail(stmt, f"the index `{text}` of register buffer {buffer.name!r} is not constant")
