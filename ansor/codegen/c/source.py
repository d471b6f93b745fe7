"""Whole texts: what the kernels of a program need, then the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ansor.codegen.c.dialect import OPENCL, Dialect
from ansor.codegen.c.helpers import Helpers
from ansor.codegen.c.names import Names
from ansor.codegen.c.program import DeviceProgram, Kernel
from ansor.codegen.c.statements import KernelText
from ansor.depth import with_depth
from ansor.ir.nest import Alloc, statement_expressions, walk_statements
from ansor.ir.ranges import nest_bounds
from ansor.ir.simplify import Bounds, simplify
from ansor.te.expr import Expr, Var, const, distinct_nodes, free_vars, int_value, substitute

_DOUBLE: Final = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable"


def emit_c(program: DeviceProgram, dialect: Dialect) -> str:
    """Write a program in CUDA C++ or OpenCL C.

    Parameters
    ----------
    program
        The kernels, from `split_kernels`.
    dialect
        `CUDA` or `OPENCL`.

    Returns
    -------
    str
        A text without includes that defines the program's kernels. Each takes its buffers as pointers, which
        do not alias and are multiples of `POINTER_ALIGNMENT`, then its sizes as integers of their dtypes.

    Raises
    ------
    BuildError
        If the program holds what the language cannot say; the message names it.
    """
    return with_depth(lambda: _text(program, dialect))


def _text(program: DeviceProgram, dialect: Dialect) -> str:
    helpers, names = Helpers(dialect), Names()
    for kernel in program.kernels:
        names.fresh(kernel.name)
    for buffer in (*program.nest.params, *program.scratch):
        names.reserve(buffer)
    for size in program.nest.sizes:
        names.reserve(size)
    bounds = nest_bounds(program.nest)
    kernels = [
        "\n".join(KernelText(kernel, dialect, Names(names), helpers, _inside(kernel, bounds)).lines())
        for kernel in program.kernels
    ]
    head = [_DOUBLE] if dialect is OPENCL and any(map(_has_double, program.kernels)) else []
    return "\n\n".join([*head, *helpers.sources(), *kernels]) + "\n"


def _inside(kernel: Kernel, bounds: Bounds) -> Bounds:
    """What holds where the kernel runs: sizes without which there would be no blocks are not 0."""
    extents = [extent for extent in kernel.grid if isinstance(extent, Expr)]

    def empties(size: Var) -> bool:
        left = (simplify(substitute(extent, {size: const(0, size.dtype)}), bounds) for extent in extents)
        return any((number := int_value(extent)) is not None and number <= 0 for extent in left)

    sizes = dict.fromkeys(free_vars(*extents))
    return bounds.extended({size: (1, None) for size in sizes if empties(size)})


def _has_double(kernel: Kernel) -> bool:
    return "float64" in set(_dtypes(kernel))


def _dtypes(kernel: Kernel) -> Iterator[str]:
    """The dtypes that a kernel stores or computes."""
    yield from (buffer.dtype for buffer in kernel.buffers)
    for stmt in walk_statements(kernel.body):
        if isinstance(stmt, Alloc):
            yield stmt.buffer.dtype
        for expr in statement_expressions(stmt):
            yield from (node.dtype for node in distinct_nodes(expr))
