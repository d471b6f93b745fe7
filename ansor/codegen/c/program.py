"""A nest in kernel form taken apart: its kernels, and the memory between them.

The body of such a nest is allocations of scope "global" (scratch memory that kernels share) around a sequence
of kernels. A kernel is one loop for each of blockIdx.x/y/z and threadIdx.x/y/z that it uses, nested directly
in each other, around what one thread does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ansor.errors import BuildError
from ansor.ir.independence import accesses_of, statement_expressions
from ansor.ir.nest import Alloc, Buffer, For, LoopKind, LoopNest, Seq, Stmt, walk_statements
from ansor.te.expr import Expr, Var, free_vars, int_value

BLOCKS: Final = (LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.BLOCK_Z)
THREADS: Final = (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)
_BOUND: Final = frozenset((*BLOCKS, *THREADS))
_IN_THREAD: Final = frozenset((LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED))

Grid = tuple[int | Expr, int | Expr, int | Expr]
Block = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One function of the device.

    Attributes
    ----------
    name
        Its symbol.
    buffers
        The global memory that it takes as pointers: parameters of the nest, in order, then scratch.
    sizes
        The symbolic sizes that it takes after them, in the nest's order.
    grid
        Blocks in x, y and z; expressions of the nest's sizes where these are symbolic.
    block
        Threads of a block in x, y and z.
    variables
        The variable of each index that it uses.
    body
        What one thread does.
    written, read
        The buffers among `buffers` that it stores to, and loads from.
    """

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    grid: Grid
    block: Block
    variables: Mapping[LoopKind, Var]
    body: Stmt
    written: frozenset[Buffer]
    read: frozenset[Buffer]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceProgram:
    """The kernels of a nest in the order in which they run, and the scratch memory that they share."""

    kernels: tuple[Kernel, ...]
    scratch: tuple[Buffer, ...]
    nest: LoopNest


def split_kernels(nest: LoopNest, symbol: str | None = None) -> DeviceProgram:
    """Take a nest in kernel form apart.

    Parameters
    ----------
    nest
        As `lower` gives it for a GPU.
    symbol
        What the names of the kernels start with, a C identifier; default: the nest's name.

    Raises
    ------
    BuildError
        If a kernel holds a loop that no thread can run, or an extent that a launch cannot have.
    """
    scratch: list[Buffer] = []
    tops: list[Stmt] = []
    _collect(nest.body, scratch, tops)
    prefix = symbol or nest.name
    kernels = [_kernel(nest, f"{prefix}_kernel{number}", top, scratch) for number, top in enumerate(tops)]
    return DeviceProgram(tuple(kernels), tuple(scratch), nest)


def _collect(stmt: Stmt, scratch: list[Buffer], tops: list[Stmt]) -> None:
    """Find the scratch memory and the kernels."""
    match stmt:
        case Alloc(buffer=buffer, body=body) if buffer.scope == "global":
            scratch.append(buffer)
            _collect(body, scratch, tops)
        case Seq(stmts=stmts):
            for one in stmts:
                _collect(one, scratch, tops)
        case _:
            tops.append(stmt)


def _kernel(nest: LoopNest, name: str, top: Stmt, scratch: list[Buffer]) -> Kernel:
    bound: dict[LoopKind, For] = {}
    body = top
    while isinstance(body, For) and body.kind in _BOUND and body.kind not in bound:
        bound[body.kind] = body
        body = body.body
    _check_body(name, body)
    found = accesses_of(body)
    buffers = tuple(b for b in (*nest.params, *scratch) if b in found.reads or b in found.writes)
    return Kernel(
        name,
        buffers,
        _sizes(nest, body, buffers),
        _grid(bound),
        _block(name, bound),
        {kind: loop.var for kind, loop in bound.items()},
        body,
        frozenset(b for b in buffers if b in found.writes),
        frozenset(b for b in buffers if b in found.reads),
    )


def _check_body(name: str, body: Stmt) -> None:
    for inner in walk_statements(body):
        if isinstance(inner, For) and inner.kind not in _IN_THREAD:
            raise BuildError(
                f"{name}: a thread cannot run the {inner.kind} loop over {inner.var.name!r}; "
                "lower the program for the GPU target that it is built for"
            )
        if isinstance(inner, Alloc) and inner.buffer.scope == "global":
            raise BuildError(
                f"{name}: the global scratch memory {inner.buffer.name!r} is allocated inside a kernel; "
                "lower the program for the GPU target that it is built for"
            )


def _grid(bound: Mapping[LoopKind, For]) -> Grid:
    x, y, z = (bound[kind].extent if kind in bound else 1 for kind in BLOCKS)
    return x, y, z


def _block(name: str, bound: Mapping[LoopKind, For]) -> Block:
    extents = []
    for kind in THREADS:
        extent = int_value(bound[kind].extent) if kind in bound else 1
        if extent is None or extent < 1:
            raise BuildError(
                f"{name}: the extent of {kind} must be a number of at least 1, found `{bound[kind].extent}`; "
                "split the loop by a constant factor and bind the inner part"
            )
        extents.append(extent)
    x, y, z = extents
    return x, y, z


def _sizes(nest: LoopNest, body: Stmt, buffers: tuple[Buffer, ...]) -> tuple[Var, ...]:
    """The symbolic sizes that the body computes with, or that decide where elements lie."""
    used: set[Var] = set()
    for inner in walk_statements(body):
        for expr in statement_expressions(inner):
            used |= free_vars(expr)
    for buffer in buffers:
        for extent in buffer.shape[1:]:
            used |= free_vars(extent) if isinstance(extent, Expr) else set()
    return tuple(size for size in nest.sizes if size in used)
