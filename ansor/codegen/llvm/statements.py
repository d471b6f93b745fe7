"""Statements to code: loops, branches, stores, scratch memory, parallel regions.

- Serial loops count in i64, bottom-tested; a loop of one iteration is its body.
- Unrolled loops are expanded with constants for the variable. Those that would be more than `MAX_EXPANSION`
  instructions (`ansor.ir.code_size`), as only loops can be that a schedule unrolls by name
  (`ansor.ir.passes.unroll`), are loops instead, the outer ones first, unless the constants say which register
  is meant. Stores that fill each other's gaps, or rows, are put together (`ansor.codegen.llvm.interleave`).
  Steps of a reduction whose accumulators take more than half of the registers load what they share each for
  itself (`Memory.load_anew`).
- Vectorized loops become pieces of as many lanes as a register has for the widest value in the body, or of
  several times as many (`ansor.codegen.llvm.abreast`), then one of which some lanes do not count, or smaller
  powers of two. Loops whose iterations cannot be lanes become unrolled or serial ones.
- Tensorized loops become one instruction (`ansor.codegen.llvm.tensor`), or are expanded; reductions through
  them are products of tiles where a matrix unit does those (`ansor.codegen.llvm.matrix_tiles`).
- Parallel loops are outlined (`ansor.codegen.llvm.module`); within a parallel loop they are serial.
- Scratch memory: register tiles and small buffers are stack slots of the function, made once however often
  the `Alloc` runs; the others come from `ansor_alloc`, outside all loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from math import prod
from typing import Protocol

from ansor.codegen.llvm.addresses import Pointer, TileRows
from ansor.codegen.llvm.analysis import Analysis, Facts
from ansor.codegen.llvm.index import Affine, IndexMath, constant, scale
from ansor.codegen.llvm.interleave import Interleaving
from ansor.codegen.llvm.matrix_tiles import MatrixTiles
from ansor.codegen.llvm.memory import Memory, Under
from ansor.codegen.llvm.tensor import TensorCalls
from ansor.codegen.llvm.text import FunctionText, Scope, Value
from ansor.codegen.llvm.values import Env, Expressions
from ansor.codegen.llvm.vectors import Vectors
from ansor.codegen.machine import Machine
from ansor.dtypes import dtype_info
from ansor.errors import BuildError
from ansor.ir.code_size import MAX_VECTORS, registers_of
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
    walk_statements,
)

MAX_EXPANSION = 4096
"""LLVM takes half a second for as many instructions in a row, minutes for twenty times as many."""
_SMALL_BYTES = 16 * 1024
_STACK_BYTES = 128 * 1024
_SERIAL = frozenset({LoopKind.SERIAL, LoopKind.VTHREAD, LoopKind.PIPELINED})


class Outliner(Protocol):
    """What writes the body of a parallel loop as a function of its own and the launch of it here."""

    def __call__(self, caller: Function, loop: For, extent: Affine, env: Env) -> None: ...


class Function:
    """One function being emitted: its text, its buffers, its expressions."""

    def __init__(
        self, declarations: dict[str, str], machine: Machine, analysis: Analysis, outline: Outliner | None
    ) -> None:
        self.fn = FunctionText(declarations)
        self.index = IndexMath(self.fn)
        self.vectors = Vectors(self.fn, self.index, machine)
        self.memory = Memory(self.vectors, machine)
        self.expressions = Expressions(self.memory, self.vectors, machine, analysis.overflow)
        self.tensors = TensorCalls(self.expressions, machine)
        self.tiles = MatrixTiles(self.expressions, analysis, machine)
        self.interleaving = Interleaving(self.expressions, analysis)
        self.machine = machine
        self.analysis = analysis
        self.outline = outline
        self._stack_bytes = 0
        self._heap: list[Value] = []
        self._accumulators = 0
        """Vectors of the register tile that is being written."""

    def finish(self) -> list[str]:
        """Free what lives as long as the function, have all stores done, and return."""
        self.memory.fence()
        for pointer in self._heap:
            self._free(pointer)
        self.fn.effect("ret void")
        return self.fn.body()

    # -- statements ----------------------------------------------------------------------------------

    def statement(self, stmt: Stmt, env: Env) -> None:
        """Write a statement at the current place."""
        match stmt:
            case Store():
                self._store(stmt, env)
            case For():
                self._loop(stmt, env)
            case Seq(stmts=stmts):
                for inner, following in zip_longest(stmts, stmts[1:]):
                    if following is None or not self.tiles.takes_start(inner, following, env):
                        self.statement(inner, env)
            case If():
                self._if(stmt, env)
            case Let(var=var, value=value, body=body):
                e = self.expressions
                e.forget()
                bound = e.index(value, env) if e.index_like(value) else e.value(value, env)
                self.statement(body, env.bind(var, bound))
            case Alloc():
                self._alloc(stmt, env)
            case Prefetch(buffer=buffer, indices=indices, near=near):
                e = self.expressions
                e.forget()
                self.memory.prefetch(buffer, e.offset(buffer, indices, env), env.under, near)
            case Barrier() | Commit():
                raise BuildError("the program has a barrier between GPU threads; build it for a GPU target")

    def _store(self, stmt: Store, env: Env) -> None:
        e = self.expressions
        e.forget()
        value = e.stored(stmt.value, env)
        self.memory.store(stmt.buffer, e.offset(stmt.buffer, stmt.indices, env), value, env.under)

    def _if(self, stmt: If, env: Env) -> None:
        self.expressions.forget()
        stmt = self.analysis.tested_in_turn(stmt)
        cond = self.expressions.cond(stmt.cond, env)
        if isinstance(cond, bool):
            chosen = stmt.then if cond else stmt.other
            if chosen is not None:
                self.statement(chosen, env)
            return
        if cond.lanes > 1:
            self.statement(stmt.then, self.expressions.narrowed(env, cond))
            if stmt.other is not None:
                self.statement(stmt.other, self.expressions.narrowed(env, self.vectors.negation(cond)))
            return
        then = self._side(stmt.then, env)
        other = None if stmt.other is None else self._side(stmt.other, env)
        self.fn.join(cond, then, other)

    def _side(self, stmt: Stmt, env: Env) -> Scope:
        self.fn.open_branch()
        self.statement(stmt, env)
        return self.fn.close()

    # -- loops ---------------------------------------------------------------------------------------

    def _loop(self, loop: For, env: Env) -> None:
        extent = self._extent(loop, env)
        if not extent.terms and extent.const <= 1:
            if extent.const == 1:
                self.statement(loop.body, env.bind(loop.var, constant(0)))
            return
        if self.tiles.emit(loop, env):
            return
        across = self.interleaving.across(loop, env)
        if across is not None:
            loop = across
        if loop.kind is LoopKind.PARALLEL and self.outline is not None and env.under.lanes == 1:
            self._if_any(loop, extent, env, self._launch)
        elif loop.kind in _SERIAL or loop.kind is LoopKind.PARALLEL:
            self.serial(loop, extent, env)
        elif loop.kind is LoopKind.TENSORIZE:
            if not self.tensors.emit(loop, env):
                self._expand(loop, extent, env)
        elif loop.kind is LoopKind.UNROLLED:
            self._expand(loop, extent, env)
        elif loop.kind is LoopKind.VECTORIZED:
            self._vectorize(loop, extent, env)
        else:
            raise BuildError(
                f"the loop {loop.var.name!r} runs on {loop.kind} of a GPU; build the program for a GPU target"
            )

    def _extent(self, loop: For, env: Env) -> Affine:
        if isinstance(loop.extent, int):
            return constant(loop.extent)
        self.expressions.forget()
        return self.expressions.index(loop.extent, env)

    def serial(self, loop: For, extent: Affine, env: Env) -> None:
        """A counted loop; one of unknown extent is entered if that is positive."""
        self._if_any(loop, extent, env, self._counted)

    def _launch(self, loop: For, extent: Affine, env: Env) -> None:
        """A parallel loop of at least one iteration."""
        assert self.outline is not None
        self.outline(self, loop, extent, env)
        self.memory.written(self.analysis.facts(loop.body).written)

    def _if_any(self, loop: For, extent: Affine, env: Env, write: Callable[[For, Affine, Env], None]) -> None:
        """A loop, in a branch if its extent may be none."""
        positive = self.index.compare("gt", extent, constant(0))
        if isinstance(positive, bool):
            if positive:
                write(loop, extent, env)
            return
        self.fn.open_branch()
        write(loop, extent, env)
        self.fn.join(positive, self.fn.close(), None)

    def _counted(self, loop: For, count: Affine, env: Env, lanes: int = 1) -> None:
        """A loop that goes through the first `count * lanes` iterations, so many lanes at a time."""
        facts = self.analysis.facts(loop.body)
        counter = self.begin_loop("0", facts)
        _, high = self.index.interval(count)
        atom = self.index.atom(counter, 0, None if high is None else high - 1)
        self._piece(loop, scale(atom, lanes), env, lanes)
        self.end_loop(counter, count, facts)

    def begin_loop(self, begin: str, facts: Facts) -> Value:
        """Open a loop whose body has these facts; gives its counter."""
        self.memory.written(facts.written)
        return self.fn.open_loop(begin, facts.written)

    def end_loop(self, counter: Value, end: Affine, facts: Facts) -> None:
        """Close it: the counter stays below `end`."""
        limit = self.index.scalar(end)
        self.fn.close_loop(counter, limit.text)
        self.memory.written(facts.written)

    def _expand(self, loop: For, extent: Affine, env: Env) -> None:
        facts = self.analysis.facts(loop.body)
        in_registers = loop.var in facts.register_variables
        if extent.terms or (facts.instructions * extent.const > MAX_EXPANSION and not in_registers):
            self.serial(loop, extent, env)
            return
        outside = self.interleaving.outside(loop, env)
        if outside is not None:
            self._loop(outside, env)
            return
        if self.interleaving.store(loop, env):
            return
        full = not in_registers and 2 * self._accumulators > self.machine.num_registers
        apart = full and self.analysis.shares_loads(loop)
        for iteration in range(extent.const):
            if apart and iteration:
                self.memory.load_anew()
            self.statement(loop.body, env.bind(loop.var, constant(iteration)))

    def _vectorize(self, loop: For, extent: Affine, env: Env) -> None:
        facts = self.analysis.facts(loop.body)
        in_registers = loop.var in facts.register_variables
        if extent.terms or env.under.lanes > 1 or not self.analysis.may_vectorize(loop):
            if extent.terms or (extent.const > MAX_VECTORS and not in_registers):
                self.serial(loop, extent, env)
            else:
                self._expand(loop, extent, env)
            return
        alone = self._lanes(facts.value_bytes)
        lanes = alone if in_registers else max(alone, self.analysis.lanes_abreast(loop))
        masked = self._most_masked(facts.value_bytes)
        if extent.const % alone and not self._may_mask(loop, in_registers):
            masked = 0
        if not masked:
            lanes = min(lanes, 1 << (extent.const.bit_length() - 1))
        first = 0
        if extent.const // alone > MAX_VECTORS and not in_registers and lanes > 1:
            pieces = constant(extent.const // lanes)
            self._counted(loop, pieces, env, lanes)
            first = pieces.const * lanes
        for start, width, active in _pieces(first, extent.const, lanes, masked):
            self._piece(loop, constant(start), env, width, active)

    def _may_mask(self, loop: For, in_registers: bool) -> bool:
        """Whether vectors of a loop may have lanes that do not count, which pays where they need not wait.

        A load waits for a masked store beside it: its nominal width covers a part of what was stored.
        """
        if in_registers:
            return self.analysis.may_mask(loop)
        if not self.analysis.masks_elements(loop):
            return False
        stores = (stmt for stmt in walk_statements(loop.body) if isinstance(stmt, Store))
        return not any(self.analysis.reads(store, store.buffer) for store in stores)

    def _lanes(self, value_bytes: int) -> int:
        """Lanes of a vector of values of so many bytes."""
        return max(1, self.machine.vector_bits // 8 // value_bytes)

    def _most_masked(self, value_bytes: int) -> int:
        """Lanes of the longest vectors of such values of which some may not count; 0 if all must."""
        return self._lanes(value_bytes) if self.machine.masks(value_bytes) else 0

    def _piece(self, loop: For, first: Affine, env: Env, lanes: int, active: int | None = None) -> None:
        """Some iterations as the lanes of vectors, of which the first `active` ones count (None: all)."""
        if lanes == 1:
            self.statement(loop.body, env.bind(loop.var, first))
            return
        mask = None if active is None else self.vectors.first_lanes(active, lanes)
        var = self.index.lanes_from(first, lanes)
        under = Under(lanes, mask, env.under.guard, active)
        self.statement(loop.body, Env({**env.vars, loop.var: var}, under))

    # -- scratch memory ------------------------------------------------------------------------------

    def _alloc(self, stmt: Alloc, env: Env) -> None:
        buffer, pointers = stmt.buffer, self.memory.pointers
        if buffer.scope == "register":
            self._registers(stmt, env)
            return
        if buffer in pointers:  # another run of the same Alloc, in an unrolled loop: the same memory
            pointers[buffer].generation += 1
            self.statement(stmt.body, env)
            return
        symbolic = not all(isinstance(extent, int) for extent in buffer.shape)
        size = 0 if symbolic else max(1, buffer.size_bytes)
        if not symbolic and size <= _SMALL_BYTES and self._stack_bytes + size <= _STACK_BYTES:
            self._stack_bytes += size
            pointers[buffer] = Pointer(self.fn.slot(size), 64)
            self.statement(stmt.body, env)
            return
        text = self._symbolic_bytes(buffer, env) if symbolic else str(size)
        pointers[buffer] = Pointer(self._allocate(text), 64)
        self.statement(stmt.body, env)
        if self.fn.depth == 0:
            self._free(pointers.pop(buffer).value)
        else:
            self._heap.append(pointers[buffer].value)

    def _registers(self, stmt: Alloc, env: Env) -> None:
        """Slots on the stack that LLVM makes registers of.

        A row has space for whole vectors, so that one whose last lanes do not count is a register, too.
        """
        buffer = stmt.buffer
        *outer, width = buffer.constant_shape or (1,)
        if buffer not in self.memory.pointers:
            value_bytes = self.analysis.value_bytes(buffer.dtype)
            pieces = _pieces(0, width, self._lanes(value_bytes), self._most_masked(value_bytes))
            rows = TileRows(prod(outer), width, pitch=sum(lanes for _, lanes, _ in pieces))
            size = rows.elements * dtype_info(buffer.dtype).bytes
            self._stack_bytes += size
            self.memory.pointers[buffer] = Pointer(self.fn.slot(size), 64, rows=rows)
        around = self._accumulators
        self._accumulators = registers_of(buffer.elements, width, buffer.dtype, self.machine.vector_bits)
        self.statement(stmt.body, env)
        self._accumulators = around

    def _symbolic_bytes(self, buffer: Buffer, env: Env) -> str:
        """The size of scratch whose shape is made of the function's sizes, 0 where they make it negative."""
        total = constant(dtype_info(buffer.dtype).bytes)
        for extent in buffer.shape:
            form = constant(extent) if isinstance(extent, int) else self.expressions.index(extent, env)
            total = self.index.multiply(total, form)
        value = self.index.scalar(total)
        if value.depth > 0:
            raise BuildError(
                f"the size of the scratch buffer {buffer.name!r} changes from one iteration of a loop to the "
                "next; it must be made of the function's symbolic sizes"
            )
        fn = self.fn
        fn.declare("@llvm.smax.i64", "declare i64 @llvm.smax.i64(i64, i64)")
        size = fn.name()
        fn.scopes[0].lines.append(f"  {size} = call i64 @llvm.smax.i64(i64 {value.text}, i64 0)")
        return size

    def _allocate(self, size: str) -> Value:
        """Heap memory, asked for outside all loops and branches that are open."""
        fn = self.fn
        fn.declare("@ansor_alloc", "declare noalias ptr @ansor_alloc(i64)")
        value = Value(fn.name(), "ptr", 1, 0)
        fn.scopes[0].lines.append(f"  {value.text} = call ptr @ansor_alloc(i64 {size})")
        return value

    def _free(self, pointer: Value) -> None:
        self.fn.declare("@ansor_free", "declare void @ansor_free(ptr)")
        self.fn.effect(f"call void @ansor_free(ptr {pointer.text})")


def _pieces(
    first: int, extent: int, lanes: int, longest_masked: int
) -> Iterator[tuple[int, int, int | None]]:
    """The vectors of iterations from `first` on: where each begins, its lanes, and how many of them count.

    All count where that is None. Only vectors of up to `longest_masked` lanes have some that do not.
    """
    while first < extent:
        left = extent - first
        if left < longest_masked and left.bit_count() > 1:  # one masked vector instead of several
            yield first, 1 << left.bit_length(), left
            return
        while lanes > left:
            lanes //= 2
        yield first, lanes, None
        first += lanes
