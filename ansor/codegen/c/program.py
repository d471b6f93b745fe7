"""A nest in kernel form (`ansor.ir.kernel_form`) as functions of a device, and the memory between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ansor.codegen.names import c_name
from ansor.errors import BuildError, LoweringError
from ansor.ir.accesses import accesses_of
from ansor.ir.kernel_form import (
    BLOCK_KINDS,
    THREAD_KINDS,
    OpenKernel,
    check_kernels,
    kernels_of,
    open_kernel,
    scratch_of,
)
from ansor.ir.nest import Buffer, LoopKind, LoopNest, Stmt, statement_expressions, walk_statements
from ansor.ir.verify import check_nest
from ansor.te.expr import Expr, Var, free_vars, int_value

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
    written
        The buffers among `buffers` that it stores to.
    ordered
        Those of them that it touches at more places than one, so that barriers have to order the accesses.
    """

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    grid: Grid
    block: Block
    variables: Mapping[LoopKind, Var]
    body: Stmt
    written: frozenset[Buffer]
    ordered: frozenset[Buffer]


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
        What the names of the kernels start with; default: the nest's name.

    Raises
    ------
    BuildError
        If the nest is not in kernel form; it says where.
    """
    try:
        check_nest(nest)
        check_kernels(nest)
    except LoweringError as error:
        raise BuildError(
            f"no GPU can run {nest.name!r}; lower it for the GPU target that it is built for: {error}"
        ) from error
    scratch, prefix = scratch_of(nest), c_name(symbol or nest.name)
    kernels = tuple(
        _kernel(nest, f"{prefix}_kernel{number}", open_kernel(kernel), scratch)
        for number, kernel in enumerate(kernels_of(nest))
    )
    return DeviceProgram(kernels, scratch, nest)


def _kernel(nest: LoopNest, name: str, kernel: OpenKernel, scratch: tuple[Buffer, ...]) -> Kernel:
    found = accesses_of(kernel.body)
    buffers = tuple(b for b in (*nest.params, *scratch) if b in found.reads or b in found.writes)
    written = [b for b in buffers if b in found.writes]
    extents = {loop.kind: loop.extent for loop in kernel.launch}
    grid_z, grid_y, grid_x = (extents.get(kind, 1) for kind in BLOCK_KINDS)
    block_z, block_y, block_x = (int_value(extents.get(kind, 1)) or 1 for kind in THREAD_KINDS)
    return Kernel(
        name,
        buffers,
        _sizes(nest, kernel.body, buffers),
        (grid_x, grid_y, grid_z),
        (block_x, block_y, block_z),
        {loop.kind: loop.var for loop in kernel.launch},
        kernel.body,
        frozenset(written),
        frozenset(b for b in written if len(found.writes[b]) + len(found.reads.get(b, ())) > 1),
    )


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
