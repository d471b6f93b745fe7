"""The loop-nest IR: what a lowered program is.

A `LoopNest` is a tree of statements over `Buffer`s. It is the single meeting point of lowering, the
interpreter, feature extraction and every code generator. Nothing here is target-specific: loop kinds
name an intention (`parallel`, `vectorized`, `blockIdx.x`), storage scopes name a place. What the programs of
GPUs have to look like besides is in `ansor.ir.kernel_form`.

Invariants (checked by `ansor.ir.verify`): loop variables are unique in a nest and start at 0;
vectorized and unrolled loops have constant extents; a buffer is used only inside its `Alloc` or is a
parameter; expressions hold neither `Read` nor `Reduce`; buffers of scope "register" have constant shapes
and are indexed, once unrolled and vectorized loops are expanded, by constants only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Union

from ansor.te.buffer import Buffer
from ansor.te.expr import Call, Cast, Expr, Load, Var, children, reached

__all__ = [
    "Alloc",
    "Barrier",
    "Buffer",
    "Commit",
    "For",
    "If",
    "Let",
    "LoopKind",
    "LoopNest",
    "Prefetch",
    "Seq",
    "Stmt",
    "Store",
    "computed_dtypes",
    "seq",
    "sub_statements",
    "value_nodes",
    "walk_statements",
]


class LoopKind(StrEnum):
    """How the iterations of a loop are executed; values are the words that states print."""

    SERIAL = "for"
    UNROLLED = "unroll"
    VECTORIZED = "vectorize"
    PARALLEL = "parallel"
    VTHREAD = "vthread"
    BLOCK_X = "blockIdx.x"
    THREAD_X = "threadIdx.x"
    BLOCK_Y = "blockIdx.y"
    THREAD_Y = "threadIdx.y"
    BLOCK_Z = "blockIdx.z"
    THREAD_Z = "threadIdx.z"
    TENSORIZE = "tensorize"
    PIPELINED = "pipeline"


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """Run `body` for `var` in `0 .. extent-1`."""

    var: Var
    extent: int | Expr
    kind: LoopKind
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Write `value` (of the buffer's dtype) to an element of `buffer`."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """Bind `var` to `value`, evaluated once, in `body`."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """Run `then` where `cond` holds, else `other` if there is one.

    Without an `other`, the parts of a conjunction that read no memory are tested first, and the rest only
    where these hold: a condition on data may stand beside the guards of loops.
    """

    cond: Expr
    then: Stmt
    other: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Seq:
    """Statements one after another."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alloc:
    """`buffer`, uninitialised, exists in `body`."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Barrier:
    """All threads of a block meet (GPU programs).

    What they stored is there for all of them then, but for the last `pending` groups of copies that no thread
    waits for (`ansor.ir.copies`).
    """

    pending: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """The copies that a thread has begun since the last one are a group, for barriers to wait for."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch:
    """Ask the memory for an element that will be read soon; nothing happens where there is none.

    The indices read no memory. They may lie outside of the buffer in some iterations, which such an
    instruction may, too. It is to come into the first cache if it is `near`, else into the second.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    near: bool = False


Stmt = Union[For, Store, Let, If, Seq, Alloc, Barrier, Commit, Prefetch]


@dataclass(frozen=True, slots=True, eq=False)
class LoopNest:
    """A lowered function: buffers passed in order, symbolic sizes passed after them, and the body.

    `outputs` are the positions of the parameters that are written, `streamed` those of outputs whose stores
    had better pass the caches by: nothing in the function reads them. `extents` are those that follow from
    the sizes and must not be negative, and what they are of.
    """

    name: str
    params: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    body: Stmt
    outputs: tuple[int, ...] = field(default=())
    streamed: tuple[int, ...] = field(default=())
    extents: tuple[tuple[str, Expr], ...] = field(default=())

    def __str__(self) -> str:
        from ansor.ir.printer import format_nest

        return format_nest(self)


def sub_statements(stmt: Stmt) -> tuple[Stmt, ...]:
    """The direct sub-statements, in order."""
    match stmt:
        case Store():
            return ()
        case For(body=body) | Let(body=body) | Alloc(body=body):
            return (body,)
        case If(then=then, other=other):
            return (then,) if other is None else (then, other)
        case Seq(stmts=stmts):
            return stmts
        case Barrier() | Commit() | Prefetch():
            return ()


def statement_expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that `stmt` itself, not its sub-statements, evaluates."""
    match stmt:
        case For(extent=extent):
            return () if isinstance(extent, int) else (extent,)
        case Store(indices=indices, value=value):
            return (*indices, value)
        case Prefetch(indices=indices):
            return indices
        case Let(value=value):
            return (value,)
        case If(cond=cond):
            return (cond,)
        case _:
            return ()


def value_nodes(expr: Expr) -> Iterator[Expr]:
    """The distinct nodes of an expression that are not part of an index."""
    return reached(expr, lambda node: () if isinstance(node, Load) else children(node))


def computed_dtypes(expr: Expr) -> Iterator[str]:
    """The dtypes in which an expression computes: its own, and those of what it loads, converts and calls."""
    yield expr.dtype
    for node in value_nodes(expr):
        if isinstance(node, (Load, Cast, Call)):
            yield node.dtype


def walk_statements(stmt: Stmt) -> Iterator[Stmt]:
    """All statements of the tree, parents before children."""
    stack = [stmt]
    while stack:
        stmt = stack.pop()
        yield stmt
        stack.extend(sub_statements(stmt)[::-1])


def seq(*stmts: Stmt) -> Stmt:
    """A `Seq` with nested ones flattened; one statement stands for itself."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
