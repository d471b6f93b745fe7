"""Tensorized loops of a GPU's thread as instructions that its warp executes together.

What one thread does of a small matrix product (`ansor.intrinsics.warp`),

    tensorize i in 0..2: tensorize j in 0..2: tensorize k in 0..16:
      C[i, j] = C[i, j] + float32(A[k, i])*float32(B[k, j])

becomes a call of one function where the 32 threads of its warp together do the whole: all come by, the first
operand differs between them by their row alone, and the second by their column. Threads share the reading
then: what a function needs lies spread over the warp as well, each element in one thread.

- An operand in shared memory whose rows, or of 16-bit floats columns, are 16 bytes side by side each is
  loaded as matrices, by a function that takes the address of one row from every thread. The lane of a thread
  tells which.
- Any other operand is put together from elements, as the loops say them, for those places that are this
  thread's.

Loops around that select elements of C, those of a thread's tile, are unrolled. What does not depend on all
of them is loaded before them, once, as far as registers go.

Everything else stays as it is: loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from ansor.codegen.c.expressions import Expressions
from ansor.codegen.c.literals import literal
from ansor.codegen.c.product_helpers import matrices, products
from ansor.codegen.c.program import Kernel
from ansor.codegen.c.text import indented
from ansor.dtypes import dtype_info
from ansor.intrinsics import WarpIntrinsic, warp_intrinsics
from ansor.ir.nest import Buffer, For, LoopKind, Stmt, Store
from ansor.ir.rewriting import reads_memory
from ansor.ir.shuffles import WARP
from ansor.ir.simplify import simplify
from ansor.ir.strides import flat_form
from ansor.ir.updates import Update, update_of
from ansor.te.expr import (
    Expr,
    Load,
    Var,
    const,
    distinct_nodes,
    free_vars,
    int_value,
    substitute,
)

MOST_REGISTERS: Final = 96
"""Registers of operands that are loaded before the loops which use them."""
MOST_UNROLLED: Final = 256
"""Calls that these loops are unrolled to."""
_ROWS: Final = 8
"""Of the matrices that are loaded at once; each is 16 bytes long, and aligned to as many."""
_ROW: Final = 16
"""Bytes of one of them."""
_WORD: Final = 4
_LOOPS: Final = (LoopKind.SERIAL, LoopKind.UNROLLED)

Places = dict[Var, Expr]
"""What stands for variables, to ask for another element than that of the thread at hand."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tile:
    """The loops of a tile, outermost first, and the loops of one call inside."""

    outer: tuple[For, ...]
    row: Var
    column: Var
    depth: Var
    update: Update
    intrinsic: WarpIntrinsic

    @property
    def in_word(self) -> int:
        """Elements of an operand in a register."""
        return _WORD // dtype_info(self.intrinsic.operand).bytes

    @property
    def side(self) -> int:
        """Elements in a row of a matrix."""
        return _ROW // _WORD * self.in_word


@dataclass(frozen=True, slots=True, eq=False)
class _Operand:
    """
    One factor.

    Attributes
    ----------
    value
        As it is read, before it is converted.
    loops
        The loops of the tile that it depends on.
    registers
        Of one thread, for one call: words of one or two elements.
    held, lane
        The loop over what a thread holds, and the variable that stands for its lane.
    is_row
        Whether it is the one with the rows.
    """

    value: Expr
    loops: tuple[For, ...]
    registers: int
    held: Var
    lane: Var
    is_row: bool


class Products:
    """Writes the tensorized loops of one kernel."""

    def __init__(self, kernel: Kernel, expressions: Expressions) -> None:
        self._e = expressions
        self._thread = kernel.variables.get(LoopKind.THREAD_X)
        self._warps = kernel.block[0] // WARP if kernel.block[0] % WARP == 0 else 0
        self._warp, self._row, self._column = Var("warp"), Var("row"), Var("column")
        self._half, self._within = Var("half"), {side: Var("within") for side in (4, 8)}
        self._bounds = expressions.bounds.extended(
            {
                self._warp: (0, max(self._warps - 1, 0)),
                self._row: (0, 7),
                self._column: (0, 3),
                self._half: (0, 1),
                **{within: (0, side - 1) for side, within in self._within.items()},
            }
        )

    def lines(self, loop: For, around: Sequence[Expr]) -> list[str] | None:
        """
        Write a loop as calls, with the loops inside of it.

        Parameters
        ----------
        loop
            Around nothing but loops and one store.
        around
            What decides whether and how often a thread comes by: conditions, and extents of loops.

        Returns
        -------
        list[str] | None
            None if that cannot be.
        """
        tile = self._tile(loop)
        if tile is None or self._apart(around) or not self._is_held(tile):
            return None
        operands = self._operands(tile)
        return None if operands is None else self._written(tile, *operands)

    # -- what can be a call ------------------------------------------------------------------------------

    def _tile(self, loop: For) -> _Tile | None:
        """The tile of loops around one call; None if a loop is something else."""
        if self._thread is None or not self._warps:
            return None
        loops: list[For] = []
        inner: Stmt = loop
        while isinstance(inner, For):
            loops.append(inner)
            inner = inner.body
        outer, held = tuple(loops[:-3]), loops[-3:]
        if not isinstance(inner, Store) or len(held) < 3:
            return None
        if any(one.kind is not LoopKind.TENSORIZE for one in held):
            return None
        if any(one.kind not in _LOOPS or int_value(one.extent) is None for one in outer):
            return None
        selecting = free_vars(*inner.indices)
        if any(one.var not in selecting and int_value(one.extent) != 1 for one in outer):
            return None
        row, column, depth = (one.var for one in held)
        call = _call_of(held)
        return None if call is None else _Tile(outer, row, column, depth, *call)

    def _apart(self, around: Sequence[Expr]) -> bool:
        """Whether some threads of a warp may come by, and others not."""
        return any(reads_memory(expr) or self._used(expr) & {self._row, self._column} for expr in around)

    def _in_lanes(self, expr: Expr) -> Expr:
        """An expression of the thread's number as one of warp, row and column."""
        assert self._thread is not None
        number = self._warp * WARP + self._row * 4 + self._column
        return simplify(substitute(expr, {self._thread: number}), self._bounds)

    def _used(self, expr: Expr) -> set[Var]:
        return set(free_vars(self._in_lanes(expr)))

    def _is_held(self, tile: _Tile) -> bool:
        """Whether the sums of a call are four neighbours of a thread's own."""
        store = tile.update.store
        if store.buffer.scope not in ("local", "register") or any(map(reads_memory, store.indices)):
            return False
        steps = self._steps(store.buffer, store.indices, (tile.row, tile.column))
        return steps is not None and [steps[tile.row], steps[tile.column]] == [2, 1]

    def _operands(self, tile: _Tile) -> tuple[_Operand, _Operand] | None:
        """The factor with the rows, which a thread reads for itself, and that with the columns."""
        for first, second in (tile.update.operands, tile.update.operands[::-1]):
            mine, theirs = self._used(first), self._used(second)
            if mine & {self._column, tile.column} or theirs & {self._row, tile.row} or _is_own(second):
                continue
            rows, columns = (tuple(x for x in tile.outer if x.var in used) for used in (mine, theirs))
            return (
                _Operand(first, rows, 4, tile.row, self._row, is_row=True),
                _Operand(second, columns, 2, tile.column, self._column, is_row=False),
            )
        return None

    def _steps(self, buffer: Buffer, indices: Sequence[Expr], along: Sequence[Var]) -> dict[Var, int] | None:
        """How far apart elements are along some variables; None if not known."""
        flat = flat_form(self._bounds.simplifier, buffer, [self._in_lanes(index) for index in indices])
        if flat is None:
            return None
        steps = dict.fromkeys(along, 0)
        for number, factor in flat.terms.items():
            node = self._bounds.simplifier.table.atoms[number].node
            if isinstance(node, Var) and node in steps:
                steps[node] = factor
            elif not free_vars(node).isdisjoint(along):
                return None
        return steps

    # -- writing -----------------------------------------------------------------------------------------

    def _written(self, tile: _Tile, first: _Operand, second: _Operand) -> list[str] | None:
        """Loads of the operands inside as many of the outer loops as needed, then the calls."""
        outside = 0
        while outside < len(tile.outer):
            inside = tile.outer[outside:]
            registers = sum(
                x.registers * _count([y for y in x.loops if y in inside]) for x in (first, second)
            )
            if registers <= MOST_REGISTERS and _count(inside) <= MOST_UNROLLED:
                break
            outside += 1
        inside = tile.outer[outside:]

        def body() -> list[str]:
            lines: list[str] = []
            parts: list[str] = []
            for operand in (first, second):
                loops = tuple(x for x in operand.loops if x in inside)
                like = operand.value.buffer.name if isinstance(operand.value, Load) else "operand"
                extents = [int_value(x.extent) or 1 for x in loops]
                words = Buffer(f"{like}.words", "uint32", (*extents, operand.registers), "local")
                type_, name = self._e.dialect.values["uint32"], self._e.names.of(words)
                lines += [f"{type_} {name}[{words.elements}];", *self._loaded(operand, words, loops, tile)]
                parts.append(self._address(words, (*(x.var for x in loops), const(0))))
            return [*lines, *self._loops(inside, lambda: self._call(tile, parts), unrolled=True)]

        return self._loops(tile.outer[:outside], body)

    def _call(self, tile: _Tile, parts: Sequence[str]) -> list[str]:
        start: Places = {tile.row: const(0), tile.column: const(0)}
        store = tile.update.store
        to = self._address(store.buffer, tuple(substitute(index, start) for index in store.indices))
        helper = self._e.helpers.use(products(tile.intrinsic.operand))
        return [*self._e.lines(), f"{helper}({', '.join((to, *parts))});"]

    def _address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        self._e.start(*indices)
        return f"&{self._e.access(buffer, indices).text}"

    def _loops(
        self, loops: Sequence[For], body: Callable[[], list[str]], unrolled: bool = False
    ) -> list[str]:
        """Lines inside of loops."""
        if not loops:
            return body()
        first, names = loops[0], self._e.names
        extent = int_value(first.extent)
        if extent == 1:
            names.bind(first.var, literal(self._e.dialect, 0, first.var.dtype).text)
            return self._loops(loops[1:], body, unrolled)
        name, type_ = names.of(first.var), self._e.dialect.values[first.var.dtype]
        return [
            *(["#pragma unroll"] if unrolled or first.kind is LoopKind.UNROLLED else []),
            f"for ({type_} {name} = 0; {name} < {extent}; ++{name}) {{",
            *indented(self._loops(loops[1:], body, unrolled)),
            "}",
        ]

    def _loaded(self, operand: _Operand, words: Buffer, loops: tuple[For, ...], tile: _Tile) -> list[str]:
        """Load an operand of all calls inside of some loops."""
        direct = self._as_matrices(operand, words, loops, tile)
        if direct is not None:
            return direct
        return self._loops(loops, lambda: self._put_together(operand, words, loops, tile), unrolled=True)

    # -- matrices ----------------------------------------------------------------------------------------

    def _as_matrices(
        self, operand: _Operand, words: Buffer, loops: tuple[For, ...], tile: _Tile
    ) -> list[str] | None:
        """Load an operand from shared memory, two neighbouring calls at once where there are any."""
        value = operand.value
        if not isinstance(value, Load) or value.buffer.scope != "shared":
            return None
        across = self._is_across(operand, value, tile)
        if across is None:
            return None
        count, moved = operand.registers, self._rows(operand, tile, across)
        place: tuple[Expr, ...] = (*(x.var for x in loops), const(0))
        last = int_value(loops[-1].extent) or 1 if loops else 1
        if count == 2 and last % 2 == 0:
            count, half = 4, loops[-1]
            loops = (*loops[:-1], *([For(half.var, last // 2, half.kind, half.body)] if last > 2 else []))
            first = half.var * 2 if last > 2 else const(0)
            place = (*place[:-2], first, const(0))
            moved = {**moved, half.var: first + self._lane // 16 % 2}
        helper = self._e.helpers.use(matrices(count, across))

        def body() -> list[str]:
            to = self._address(words, place)
            from_ = self._address(value.buffer, tuple(substitute(index, moved) for index in value.indices))
            return [*self._e.lines(), f"{helper}({to}, {from_});"]

        return self._loops(loops, body, unrolled=True)

    def _is_across(self, operand: _Operand, value: Load, tile: _Tile) -> bool | None:
        """Whether neighbours in memory are along the lanes, not along the products.

        None if they are along neither, or along the lanes, but of more than 16 bits.
        """
        side, within = tile.side, self._within[tile.side]
        if self._is_side(value, side, {within: 1}, {tile.depth: self._half * side + within}):
            return False
        lanes = {operand.lane: 1} if operand.is_row else {operand.lane: 2, operand.held: 1}
        return True if tile.in_word == 2 and self._is_side(value, side, lanes, {}) else None

    def _is_side(self, value: Load, side: int, along: Mapping[Var, int], places: Places) -> bool:
        """Whether the elements along some variables, which go so far each, are a row of a matrix, aligned."""
        simplifier = self._bounds.simplifier
        indices = [substitute(self._in_lanes(index), places) for index in value.indices]
        flat = flat_form(simplifier, value.buffer, indices)
        if flat is None or flat.const % side:
            return False
        left = dict(along)
        for number, factor in flat.terms.items():
            node = simplifier.table.atoms[number].node
            if isinstance(node, Var) and left.get(node) == factor:
                del left[node]
            elif factor % side or not free_vars(node).isdisjoint(along):
                return False
        return not left

    @property
    def _lane(self) -> Expr:
        """The number of a thread in its warp."""
        assert self._thread is not None
        return self._thread if self._warps == 1 else self._thread % WARP

    def _rows(self, operand: _Operand, tile: _Tile, across: bool) -> Places:
        """Which row of which matrix a thread gives the address of: the one that begins with this element.

        Of matrices one behind the other, the first two hold the first half of the rows (or products), and so
        on: those of rows hold rows 0-7 and 8-15 of the first half of the products, then of the others.
        """
        assert self._thread is not None
        lane, row = self._lane, self._lane % _ROWS
        warp: Expr = self._thread // WARP * WARP if self._warps > 1 else const(0)
        if operand.is_row:
            held, half = lane // 8 % 2, lane // 16 % 2 * tile.side
            if across:
                return {self._thread: warp, operand.held: held, tile.depth: half + row}
            return {self._thread: warp + row * 4, operand.held: held, tile.depth: half}
        half = lane // 8 % 2 * tile.side
        if across:
            return {self._thread: warp, operand.held: const(0), tile.depth: half + row}
        return {self._thread: warp + row // 2, operand.held: row % 2, tile.depth: half}

    # -- elements ----------------------------------------------------------------------------------------

    def _put_together(
        self, operand: _Operand, words: Buffer, loops: tuple[For, ...], tile: _Tile
    ) -> list[str]:
        """The words of one call, each of one element or of two, the first one lower."""
        lines: list[str] = []
        for number in range(operand.registers):
            own = [self._own(operand, tile, number, at) for at in range(tile.in_word)]
            values = [simplify(substitute(operand.value, places), self._e.bounds) for places in own]
            place = (*(x.var for x in loops), const(number))
            self._e.start(*values, *place)
            elements = [self._e.stored(value).text for value in values]
            to = self._e.access(words, place).text
            lines += [*self._e.lines(), f"{to} = {self._word(elements)};"]
        return lines

    def _word(self, elements: Sequence[str]) -> str:
        """One or two elements as a word."""
        dialect = self._e.dialect
        if len(elements) == 1:
            return f"{dialect.bits}({elements[0]})"
        (low, high), type_ = elements, dialect.values["uint32"]
        return f"({type_})({low}) | ({type_})({high}) << 16"

    def _own(self, operand: _Operand, tile: _Tile, word: int, at: int) -> Places:
        """Which element of an operand is this one of that word in the thread at hand."""
        assert self._thread is not None
        lane = self._lane
        row, column = lane // 4, lane % 4
        if operand.is_row:
            depth = column * tile.in_word + (word // 2 * tile.side + at)
            return {operand.held: const(word % 2), tile.depth: depth}
        warp: Expr = self._thread // WARP * WARP if self._warps > 1 else const(0)
        depth = column * tile.in_word + (word * tile.side + at)
        return {self._thread: warp + row // 2, operand.held: row % 2, tile.depth: depth}


def _call_of(held: Sequence[For]) -> tuple[Update, WarpIntrinsic] | None:
    """What the loops of one thread do, and the intrinsic that does it."""
    extents = tuple(int_value(loop.extent) for loop in held)
    for intrinsic in warp_intrinsics():
        update = update_of(held[-1], intrinsic.is_converted)
        if update is None or extents != intrinsic.held:
            continue
        operands, result = {operand.dtype for operand in update.operands}, update.store.buffer.dtype
        if operands == {intrinsic.operand} and result == intrinsic.dtype:
            return update, intrinsic
    return None


def _is_own(operand: Expr) -> bool:
    """Whether an operand is in memory of the thread, where no other thread finds it."""
    loads = (node for node in distinct_nodes(operand) if isinstance(node, Load))
    return any(load.buffer.scope in ("local", "register") for load in loads)


def _count(loops: Sequence[For]) -> int:
    return prod(int_value(loop.extent) or 1 for loop in loops)
