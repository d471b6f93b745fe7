"""Statements of a kernel as lines of C.

- Loops have the names of their variables. Unrolled loops are loops under `#pragma unroll`, which both
  compilers expand; vectorized loops are accesses to vectors (`ansor.codegen.c.vectors`) where they can be,
  else unrolled. A loop of one iteration is its body.
- Private arrays, of scope "local" or "register", are declared where they are allocated. Shared ones are
  declared at the top of the kernel, where OpenCL wants them, whatever loop they are used in; where CUDA does
  not allow so much, they are parts of the memory that the launch asks for.
- Small matrix products are instructions of whole warps (`ansor.codegen.c.products`) where they can be.
- Shared memory is filled ahead by copies that no thread waits for before a barrier does (`ansor.ir.copies`),
  where that can be.
- An `If` is an `if`; parts of a condition that read memory are tested inside of those that guard them.
"""

from __future__ import annotations

from math import prod

from ansor.codegen.c.dialect import Dialect
from ansor.codegen.c.expressions import Expressions
from ansor.codegen.c.helpers import COMMIT_COPIES, Helpers, wait_for_copies
from ansor.codegen.c.literals import literal
from ansor.codegen.c.names import Names
from ansor.codegen.c.products import Products
from ansor.codegen.c.program import Kernel
from ansor.codegen.c.text import SUM, Text, indented
from ansor.codegen.c.vectors import Vectors
from ansor.errors import BuildError
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
    Prefetch,
    Seq,
    Stmt,
    Store,
    statement_expressions,
    walk_statements,
)
from ansor.ir.printer import format_stmt
from ansor.ir.rewriting import tested_in_turn
from ansor.ir.shared_memory import in_whole, shared_buffers, shared_bytes
from ansor.ir.shuffles import WARP, shuffled
from ansor.te.expr import Const, Expr, Load, Var, distinct_nodes, int_value

_UNROLL = "#pragma unroll"


class KernelText:
    """One kernel being written; `names` are its own."""

    def __init__(
        self, kernel: Kernel, dialect: Dialect, names: Names, helpers: Helpers, bounds: Bounds
    ) -> None:
        self._kernel = kernel
        self._dialect = dialect
        self._names = names
        self._helpers = helpers
        self._expressions = Expressions(dialect, names, helpers, bounds)
        self._vectors = Vectors(self._expressions, self._condition)
        self._products = Products(kernel, self._expressions) if dialect.products else None
        self._around: list[Expr] = []
        """What decides whether and how often a thread comes by: conditions, extents."""
        self._lets = 0
        """How many variables are bound to values around the statement being written."""
        self._shared: list[str] = []
        self._pool = ""
        """The name of all shared memory of a block, where the launch says how much that is."""
        self._offset = 0
        own = shared_buffers(kernel.body)
        self._is_async = dialect.copies_async and any(buffer.lead for buffer in own)
        if dialect.asked_bytes(shared_bytes(kernel.body)):
            self._pool = names.fresh("shared")
            self._shared.append(dialect.pool.format(pool=self._pool))
        self._used_vars, self._used_buffers = _used(kernel.body)

    def lines(self) -> list[str]:
        """The whole function."""
        kernel, names = self._kernel, self._names
        parameters = [self._pointer(buffer) for buffer in kernel.buffers]
        parameters += [f"{self._dialect.values[size.dtype]} {names.of(size)}" for size in kernel.sizes]
        x, y, z = kernel.block
        head = self._dialect.kernel.format(threads=x * y * z, x=x, y=y, z=z)
        for var in kernel.variables.values():
            names.reserve(var)
        body = self.statement(kernel.body)
        declared = [
            f"const {self._dialect.values[var.dtype]} {names.of(var)} = {self._dialect.indices[kind]};"
            for kind, var in kernel.variables.items()
            if names.used(var)  # asked after the body was written
        ]
        return [
            f"{head} {kernel.name}({', '.join(parameters)}) {{",
            *indented([*self._shared, *declared, *body]),
            "}",
        ]

    def _pointer(self, buffer: Buffer) -> str:
        const = "" if buffer in self._kernel.written else "const "
        return self._dialect.pointer.format(
            type=const + self._stored(buffer.dtype), name=self._names.of(buffer)
        )

    def _stored(self, dtype: str) -> str:
        """The type of an element in memory."""
        type_ = self._dialect.stored[dtype]
        return self._helpers.use(type_) if type_.startswith("ansor_") else type_

    # -- statements --------------------------------------------------------------------------------------

    def statement(self, stmt: Stmt) -> list[str]:
        """The lines of a statement."""
        match stmt:
            case Store():
                return self._store(stmt)
            case For():
                return self._loop(stmt)
            case Seq(stmts=stmts):
                return [line for one in stmts for line in self.statement(one)]
            case If():
                return self._if(tested_in_turn(stmt))
            case Let():
                return self._let(stmt)
            case Alloc():
                return self._alloc(stmt)
            case Barrier(pending=pending):
                meeting = self._dialect.fence if self._kernel.ordered else self._dialect.barrier
                return [*self._helped(wait_for_copies(pending)), meeting]
            case Commit():
                return self._helped(COMMIT_COPIES)
            case Prefetch():
                return []

    def _helped(self, helper: str) -> list[str]:
        """The call of a helper for copies; nothing where there are none."""
        return [f"{self._helpers.use(helper)}();"] if self._is_async else []

    def _store(self, stmt: Store) -> list[str]:
        e = self._expressions
        if e.is_async(stmt, 1):
            return e.async_copy(stmt, 1)
        given, distance = shuffled(stmt) or (stmt.value, 0)
        e.start(given, *stmt.indices)
        value = e.stored(given).text
        to = e.access(stmt.buffer, stmt.indices).text
        return [*e.lines(), f"{to} = {self._shuffle(stmt, value, distance) if distance else value};"]

    def _shuffle(self, stmt: Store, value: str, distance: int) -> str:
        """The value in the thread at a distance."""
        if not self._dialect.shuffle:
            raise BuildError(
                f"{self._dialect.name} has no shuffles, as in `{format_stmt(stmt)}`; build the schedule with "
                f"target={self._dialect.name!r}, where threads share memory instead"
            )
        lanes = min(prod(self._kernel.block), WARP)
        return self._dialect.shuffle.format(mask=f"{(1 << lanes) - 1:#x}u", value=value, distance=distance)

    def _condition(self, stmt: If) -> Text:
        self._expressions.start(stmt.cond)
        return self._expressions.value(stmt.cond)

    def _if(self, stmt: If) -> list[str]:
        if isinstance(stmt.cond, Const):
            chosen = stmt.then if stmt.cond.value else stmt.other
            return [] if chosen is None else self.statement(chosen)
        cond = self._condition(stmt)
        lines = [*self._expressions.lines(), f"if ({cond.text}) {{"]
        self._around.append(stmt.cond)
        lines += indented(self.statement(stmt.then))
        if stmt.other is not None:
            lines += ["} else {", *indented(self.statement(stmt.other))]
        self._around.pop()
        return [*lines, "}"]

    def _let(self, stmt: Let) -> list[str]:
        if stmt.var not in self._used_vars:
            return self.statement(stmt.body)
        e = self._expressions
        e.start(stmt.value)
        value = e.value(stmt.value).text
        head = f"const {self._dialect.values[stmt.var.dtype]} {self._names.of(stmt.var)} = {value};"
        self._lets += 1
        lines = [*e.lines(), head, *self.statement(stmt.body)]
        self._lets -= 1
        return lines

    # -- loops -------------------------------------------------------------------------------------------

    def _loop(self, loop: For) -> list[str]:
        extent = int_value(loop.extent)
        if extent == 0:
            return []
        if extent == 1:
            self._names.bind(loop.var, literal(self._dialect, 0, loop.var.dtype).text)
            return self.statement(loop.body)
        if loop.kind is LoopKind.VECTORIZED and extent is not None:
            lines = self._vectors.loop(loop.var, extent, loop.body)
            if lines is not None:
                return lines
        if self._products is not None and not self._lets:
            lines = self._products.lines(loop, self._around)
            if lines is not None:
                return lines
        before, limit = self._limit(loop)
        name, type_ = self._names.of(loop.var), self._dialect.values[loop.var.dtype]
        return [
            *before,
            *([] if loop.kind is LoopKind.SERIAL else [_UNROLL]),
            f"for ({type_} {name} = 0; {name} < {limit}; ++{name}) {{",
            *indented(self._inside(loop)),
            "}",
        ]

    def _inside(self, loop: For) -> list[str]:
        """The lines of a loop's body."""
        extents = [loop.extent] if isinstance(loop.extent, Expr) else []
        self._around += extents
        lines = self.statement(loop.body)
        del self._around[len(self._around) - len(extents) :]
        return lines

    def _limit(self, loop: For) -> tuple[list[str], str]:
        """The extent of a loop, and what must be computed before it."""
        if isinstance(loop.extent, int):
            return [], str(loop.extent)
        e = self._expressions
        e.start(loop.extent)
        limit = e.value(loop.extent)
        return e.lines(), limit.at(SUM)

    # -- private and shared memory -----------------------------------------------------------------------

    def _alloc(self, stmt: Alloc) -> list[str]:
        buffer = stmt.buffer
        if buffer not in self._used_buffers:
            return self.statement(stmt.body)
        count = max(1, buffer.elements)
        name, type_ = self._names.of(buffer), self._stored(buffer.dtype)
        if buffer.scope == "shared":
            self._shared.append(self._shared_array(type_, name, count, buffer.size_bytes))
            return self.statement(stmt.body)
        return [f"{type_} {name}[{count}];", *self.statement(stmt.body)]

    def _shared_array(self, type_: str, name: str, count: int, size: int) -> str:
        """The declaration of an array of so many elements, or bytes."""
        if not self._pool:
            return self._dialect.shared.format(type=type_, name=name, elements=count)
        offset, self._offset = self._offset, self._offset + in_whole(size)
        return self._dialect.pooled.format(type=type_, name=name, pool=self._pool, offset=offset)


def _used(body: Stmt) -> tuple[set[Var], set[Buffer]]:
    """The variables and buffers that the statements of a body compute with."""
    variables: set[Var] = set()
    buffers: set[Buffer] = set()
    for stmt in walk_statements(body):
        if isinstance(stmt, Store):
            buffers.add(stmt.buffer)
        for expr in statement_expressions(stmt):
            for node in distinct_nodes(expr):
                if isinstance(node, Var):
                    variables.add(node)
                elif isinstance(node, Load):
                    buffers.add(node.buffer)
    return variables, buffers
