"""The form of GPU programs: kernels, one after another.

`polish_kernels` brings a program into this form, code generators and the interpreter take it from there. In
kernel form

- the body is a `Seq` of kernels (or one kernel) inside of `Alloc`s of scope "global", the memory that kernels
  pass results in. Kernels run in order; one begins when the one before has ended.
- a kernel is its *launch* around what one thread does. The launch is a loop for each index of blocks and
  threads that the kernel uses, of more than one iteration, nested in the order of `LAUNCH_KINDS`: blocks
  outside, then the threads of a block. The extents of thread loops are numbers, those of block loops may be
  made of the sizes. One thread of one block is a loop over blocks of one iteration, or a single statement
  without a launch.
- inside the launch loops are serial, unrolled, vectorized or tensorized. A `Barrier` stands only where all
  threads of a block come by equally often: in no vectorized loop, and under no condition and no loop whose
  condition or extent may differ between threads (`differs`). It orders the accesses of the block's threads to
  shared and global memory. Shuffles (`ansor.ir.shuffles`) stand at such places, too; their threads are in one
  warp.
- memory allocated in a kernel is of constant size. Of scope "shared" there is one buffer for all threads of a
  block, wherever it is allocated; of scope "local" and "register" every thread has its own.
- no two threads of a block store the same element for nothing: an element of shared or global memory depends
  on every thread index of the launch, or a condition around the store does.

Source: the execution model of CUDA and OpenCL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, NoReturn, TypeGuard, assert_never

from ansor.errors import LoweringError
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
from ansor.ir.printer import format_excerpt
from ansor.ir.rewriting import reads_memory, with_statements
from ansor.ir.shuffles import WARP, has_shuffle, shuffled
from ansor.te.expr import Expr, Var, free_vars, int_value

BLOCK_KINDS: Final = (LoopKind.BLOCK_Z, LoopKind.BLOCK_Y, LoopKind.BLOCK_X)
THREAD_KINDS: Final = (LoopKind.THREAD_Z, LoopKind.THREAD_Y, LoopKind.THREAD_X)
LAUNCH_KINDS: Final = (*BLOCK_KINDS, *THREAD_KINDS)
"""The loops of a launch, in the order in which they nest."""

_LOOPS_INSIDE: Final = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.TENSORIZE)
_SCOPES_INSIDE: Final = ("shared", "local", "register")
_IN_COMMON: Final = ("shared", "global")


@dataclass(frozen=True, slots=True)
class OpenKernel:
    """A kernel taken apart: the loops of its launch, outermost first, and what one thread does."""

    launch: tuple[For, ...]
    body: Stmt

    @property
    def blocks(self) -> tuple[For, ...]:
        return tuple(loop for loop in self.launch if loop.kind in BLOCK_KINDS)

    @property
    def threads(self) -> tuple[For, ...]:
        return tuple(loop for loop in self.launch if loop.kind in THREAD_KINDS)

    def around(self, body: Stmt) -> Stmt:
        """The same launch around another body."""
        for loop in reversed(self.launch):
            body = loop if body is loop.body else replace(loop, body=body)
        return body


def open_kernel(kernel: Stmt) -> OpenKernel:
    """Take a kernel apart."""
    launch: list[For] = []
    while isinstance(kernel, For) and kernel.kind in LAUNCH_KINDS:
        launch.append(kernel)
        kernel = kernel.body
    return OpenKernel(tuple(launch), kernel)


def scratch_of(nest: LoopNest) -> tuple[Buffer, ...]:
    """The global memory that kernels pass results in, in the order of its allocation."""
    found: list[Buffer] = []
    stmt = nest.body
    while _is_scratch(stmt):
        found.append(stmt.buffer)
        stmt = stmt.body
    return tuple(found)


def kernels_of(nest: LoopNest) -> tuple[Stmt, ...]:
    """The kernels of a program, in order."""
    stmt = nest.body
    while _is_scratch(stmt):
        stmt = stmt.body
    return stmt.stmts if isinstance(stmt, Seq) else (stmt,)


def map_kernels(nest: LoopNest, visit: Callable[[Stmt], Stmt]) -> LoopNest:
    """The program with `visit` applied to each of its kernels."""

    def inside(stmt: Stmt) -> Stmt:
        if _is_scratch(stmt):
            return with_statements(stmt, tuple(map(inside, sub_statements(stmt))))
        if isinstance(stmt, Seq):
            return with_statements(stmt, tuple(map(visit, stmt.stmts)))
        return visit(stmt)

    body = inside(nest.body)
    return nest if body is nest.body else replace(nest, body=body)


def _is_scratch(stmt: Stmt) -> TypeGuard[Alloc]:
    return isinstance(stmt, Alloc) and stmt.buffer.scope == "global"


def differs(expr: Expr | int, varying: Collection[Var]) -> bool:
    """Whether threads of a block may find different values: of `varying` variables, or in memory."""
    if isinstance(expr, int):
        return False
    return reads_memory(expr) or not free_vars(expr).isdisjoint(varying)


# -- the form, checked -------------------------------------------------------------------------------------


def check_kernels(nest: LoopNest) -> None:
    """
    Check that a nest, which `ansor.ir.verify.check_nest` finds valid, is in kernel form.

    Raises
    ------
    LoweringError
        Saying what is not as it must be, and where.
    """
    for kernel in kernels_of(nest):
        checker = _Checker(nest, open_kernel(kernel))
        checker.launch()
        checker.statement(checker.kernel.body, uniform=True, tested=frozenset())


class _Checker:
    """What is known of the statement being checked.

    `depends` gives the thread variables that a variable of a `Let` is computed from.
    """

    def __init__(self, nest: LoopNest, kernel: OpenKernel) -> None:
        self.nest = nest
        self.kernel = kernel
        self.threads = frozenset(loop.var for loop in kernel.threads)
        self.varying: set[Var] = set(self.threads)
        self.depends: dict[Var, frozenset[Var]] = {}

    def fail(self, stmt: Stmt, what: str) -> NoReturn:
        raise LoweringError(f"{self.nest.name}: not in kernel form: {what}, in\n{format_excerpt(stmt)}")

    def launch(self) -> None:
        """Check the loops of the launch."""
        previous = -1
        for loop in self.kernel.launch:
            place = LAUNCH_KINDS.index(loop.kind)
            if place <= previous:
                order = ", ".join(LAUNCH_KINDS)
                self.fail(loop, f"{loop.kind} nests in {LAUNCH_KINDS[previous]}; the order is {order}")
            previous = place
            extent = int_value(loop.extent)
            if extent is None and loop.kind in THREAD_KINDS:
                self.fail(loop, f"{loop.kind} has the extent `{loop.extent}`, which is no number")
            needed = 1 if len(self.kernel.launch) == 1 else 2
            if extent is not None and extent < needed:
                self.fail(loop, f"{loop.kind} has the extent {extent}; one that is not needed is left out")
            if isinstance(loop.extent, Expr) and differs(
                loop.extent, free_vars(loop.extent) - {*self.nest.sizes}
            ):
                self.fail(loop, f"the extent `{loop.extent}` of {loop.kind} is not made of the sizes alone")

    def statement(self, stmt: Stmt, *, uniform: bool, tested: frozenset[Var]) -> None:
        """Check a statement that all threads come by if `uniform`, under conditions on thread variables."""
        match stmt:
            case For():
                self._loop(stmt, uniform, tested)
                return
            case If(cond=cond):
                self._no_shuffle(stmt, cond)
                uniform = uniform and not differs(cond, self.varying)
                tested |= self._thread_vars(cond)
            case Let(var=var, value=value):
                self._no_shuffle(stmt, value)
                self.depends[var] = self._thread_vars(value)
                if differs(value, self.varying):
                    self.varying.add(var)
            case Alloc():
                self._alloc(stmt)
            case Store():
                self._store(stmt, tested)
                self._shuffle(stmt, uniform)
            case Barrier() | Commit():
                if not uniform:
                    what = "barrier" if isinstance(stmt, Barrier) else "commit"
                    self.fail(stmt, f"a {what} that not all threads of a block come by equally often")
            case Seq() | Prefetch():
                pass
            case _:
                assert_never(stmt)
        for inner in sub_statements(stmt):
            self.statement(inner, uniform=uniform, tested=tested)

    def _loop(self, stmt: For, uniform: bool, tested: frozenset[Var]) -> None:
        if stmt.kind not in _LOOPS_INSIDE:
            self.fail(stmt, f"a {stmt.kind} loop inside of a kernel")
        apart = differs(stmt.extent, self.varying)
        if apart:
            self.varying.add(stmt.var)
        together = uniform and not apart and stmt.kind is not LoopKind.VECTORIZED
        self.statement(stmt.body, uniform=together, tested=tested)

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        if buffer.scope not in _SCOPES_INSIDE:
            self.fail(stmt, f"{buffer.name!r} of scope {buffer.scope!r} is allocated inside of a kernel")
        if any(int_value(extent) is None for extent in buffer.shape):
            self.fail(stmt, f"{buffer.name!r}, allocated inside of a kernel, has no constant size")

    def _store(self, stmt: Store, tested: frozenset[Var]) -> None:
        if stmt.buffer.scope not in _IN_COMMON or any(map(reads_memory, stmt.indices)):
            return
        used = tested.union(*map(self._thread_vars, stmt.indices))
        for loop in self.kernel.threads:
            if loop.var not in used and int_value(loop.extent) != 1:
                self.fail(stmt, f"every thread {loop.var.name!r} of {loop.kind} stores this")

    def _shuffle(self, stmt: Store, uniform: bool) -> None:
        given = shuffled(stmt)
        self._no_shuffle(stmt, *stmt.indices, *((stmt.value,) if given is None else (given[0],)))
        if given is None:
            return
        if stmt.buffer.scope in _IN_COMMON:
            self.fail(stmt, f"a shuffle to {stmt.buffer.name!r}, which is no thread's own")
        if not uniform:
            self.fail(stmt, "a shuffle that not all threads of a block come by equally often")
        distance = given[1]
        row = next((int_value(x.extent) or 1 for x in self.kernel.threads if x.kind is LoopKind.THREAD_X), 1)
        if distance < 1 or distance & (distance - 1) or 2 * distance > WARP or row % (2 * distance):
            self.fail(stmt, f"threads {distance} apart are not all in one warp, of {row} in a row")

    def _no_shuffle(self, stmt: Stmt, *exprs: Expr) -> None:
        if any(map(has_shuffle, exprs)):
            self.fail(stmt, "a shuffle that is not the whole value of a store")

    def _thread_vars(self, expr: Expr) -> frozenset[Var]:
        """The thread variables that an expression is computed from."""
        used = free_vars(expr)
        return (self.threads & used).union(*(self.depends.get(var, frozenset()) for var in used))
