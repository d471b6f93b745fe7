"""Products of matrices by the matrix unit of x86 (`ansor.intrinsics.matrix`).

A product (`ansor.ir.matrix_products`) is computed group by group of the tiles of its result, as many as
registers hold beside what they are made of:

    for k in 0..64:                                     c = C[0..16, 0..16]
      for i in 0..16:                                   for k in 0..4:
        vectorize j in 0..16:                      =>     a = A[0..16, 32*k..32*k + 32]
          tensorize p in 0..2:                            b = B[16*k..16*k + 16, 0..16, 0..2]
            C[i, j] = C[i, j]                             c = c + a*b
              + float32(A[i, 2*k + p])                  C[0..16, 0..16] = c
              * float32(B[k, j, p])

Sums of bfloat16 are those of `vdpbf16ps`, whose notes hold (`ansor.intrinsics.known`), those of bytes exact.
Code asks for the unit before it uses it (`ansor.codegen.matrix_unit`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from ansor.codegen.llvm.analysis import Analysis
from ansor.codegen.llvm.index import add, constant, scale
from ansor.codegen.llvm.memory import ALWAYS
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.values import Env, Expressions, is_zero
from ansor.codegen.machine import Machine
from ansor.codegen.matrix_unit import ALLOW, ALLOW_IR, configuration_ir
from ansor.dtypes import dtype_info
from ansor.intrinsics.matrix import TILES, WORD_BYTES
from ansor.ir.matrix_products import MatrixProduct, Place, length_of, matrix_product, step_in
from ansor.ir.nest import Buffer, For, LoopKind, Stmt, Store
from ansor.te.expr import Load

_KINDS: Final = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED})
_Rows = tuple[Place, int]
"""Where the rows of a tile begin, and how many it has."""


class MatrixTiles:
    """The matrix unit in one function."""

    def __init__(self, expressions: Expressions, analysis: Analysis, machine: Machine) -> None:
        self.expressions = expressions
        self.fn = expressions.fn
        self.index = expressions.math
        self.memory = expressions.memory
        self.analysis = analysis
        self.instructions = machine.matrix_unit
        self._from_zero = set[int]()
        """The products whose sums nothing was stored to, by identity."""

    def takes_start(self, stmt: Stmt, following: Stmt, env: Env) -> bool:
        """Whether a statement does nothing but set the sums of the product that follows to zero.

        It need not be written then: the product begins with registers of zeros.
        """
        if not self.instructions or env.under != ALWAYS or not isinstance(following, For):
            return False
        self._from_zero.discard(id(following))
        found = matrix_product(following, self.instructions, self.analysis.bounds, self._strides)
        if found is None or following.extent == 1:
            return False
        loops: list[For] = []
        while isinstance(stmt, For) and stmt.kind in _KINDS and isinstance(stmt.extent, int):
            loops.append(stmt)
            stmt = stmt.body
        if not isinstance(stmt, Store) or stmt.buffer is not found.sums.buffer or not is_zero(stmt.value):
            return False
        over = (*found.over_rows, *found.over_columns, found.lanes)
        written = [(found.steps[one.var][0], one.extent) for one in over if one.extent != 1]
        place = Load(stmt.buffer, stmt.indices, stmt.buffer.dtype)
        bounds = self.analysis.bounds
        zeroed = [
            (step_in(place, one.var, self._strides, bounds), one.extent) for one in loops if one.extent != 1
        ]
        if Counter(zeroed) != Counter(written):
            return False
        around = (*over, *found.over_terms, found.depth, *loops)
        start = _placed(env, tuple((one.var, 0) for one in around))
        self.expressions.forget()
        first, other = (
            self.expressions.offset(place.buffer, indices, start)
            for indices in (place.indices, found.sums.indices)
        )
        apart = add(first, other, -1)
        if apart.terms or apart.const:
            return False
        self._from_zero.add(id(following))
        return True

    def emit(self, loop: For, env: Env) -> bool:
        """Write a loop that is a product of matrices by the unit; False, with nothing written, for others."""
        if not self.instructions or env.under != ALWAYS:
            return False
        found = matrix_product(loop, self.instructions, self.analysis.bounds, self._strides)
        if found is None:
            return False
        self.fn.declare(ALLOW, ALLOW_IR)
        self.fn.effect(f"call void {ALLOW}()")
        rows, columns = list(found.blocks_of_rows()), list(found.blocks_of_columns())
        high, wide = _group(len(rows), len(columns))
        shapes: Sequence[tuple[int, int]] = ()
        for first, other in product(range(0, len(rows), high), range(0, len(columns), wide)):
            group = rows[first : first + high], columns[other : other + wide]
            before, shapes = shapes, _shapes(found, *group)
            if shapes != before:
                self._configure(shapes)
            self._write(found, *group, env, id(loop) in self._from_zero)
        self._call("tilerelease")
        return True

    def _strides(self, buffer: Buffer) -> tuple[int, ...] | None:
        rows = self.memory.pointers[buffer].rows
        return buffer.strides if rows is None else rows.strides(buffer.constant_shape)

    def _write(
        self, found: MatrixProduct, rows: Sequence[_Rows], columns: Sequence[Place], env: Env, from_zero: bool
    ) -> None:
        """All terms of a group of sums, added to what these are, or to zero.

        Registers hold the sums, a tile for each block of rows, and one for the columns that are on.
        """
        sums = {at: number for number, at in enumerate(product(rows, columns))}
        first, last = len(sums), len(sums) + len(rows)
        env = env.bind(found.lanes.var, constant(0)).bind(found.depth.var, constant(0))
        written = self.analysis.facts(found.depth).written
        start = _placed(env, tuple((loop.var, 0) for loop in found.over_terms))
        self.memory.written(written)
        if from_zero:
            for tile in sums.values():
                self._call("tilezero", f"i8 {tile}")
        else:
            self._move_sums("tileloadd64", found, sums, start)
        inside, counts = self._open(found, written, env)
        row_step = found.steps[found.over_rows[-1].var][1]
        column_step = found.steps[found.over_terms[-1].var][2]
        for number, (row, _) in enumerate(rows, first):
            self._move("tileloadd64", number, found.rows, row_step, _placed(inside, row))
        for column in columns:
            self._move("tileloadd64", last, found.columns, column_step, _placed(inside, column))
            for number, block in enumerate(rows, first):
                tiles = sums[block, column], number, last
                self._call(found.instruction, *(f"i8 {tile}" for tile in tiles))
        for counter, count in reversed(counts):
            self.fn.close_loop(counter, str(count))
        self._move_sums("tilestored64", found, sums, start)
        self.memory.written(written)

    def _open(
        self, found: MatrixProduct, written: frozenset[Buffer], env: Env
    ) -> tuple[Env, list[tuple[Value, int]]]:
        """Begin the loops over terms; gives their counters, and how far each counts."""
        counts: list[tuple[Value, int]] = []
        for loop in found.over_terms:
            each = found.words if loop is found.over_terms[-1] else 1
            count = length_of(loop) // each
            if count == 1:
                env = env.bind(loop.var, constant(0))
                continue
            counter = self.fn.open_loop("0", written)
            counts.append((counter, count))
            env = env.bind(loop.var, scale(self.index.atom(counter, 0, count - 1), each))
        return env, counts

    def _move_sums(
        self, move: str, found: MatrixProduct, sums: Mapping[tuple[_Rows, Place], int], env: Env
    ) -> None:
        step = found.steps[found.over_rows[-1].var][0]
        for ((row, _), column), tile in sums.items():
            self._move(move, tile, found.sums, step, _placed(env, (*row, *column)))

    def _move(self, move: str, tile: int, place: Load, step: int, env: Env) -> None:
        """Load or store a tile whose rows lie `step` elements apart."""
        self.expressions.forget()
        offset = self.expressions.offset(place.buffer, place.indices, env)
        address = self.memory.addresses.address(place.buffer, offset)
        size = step * dtype_info(place.buffer.dtype).bytes
        self._call(move, f"i8 {tile}", f"ptr {address.text}", f"i64 {size}")

    def _configure(self, shapes: Sequence[tuple[int, int]]) -> None:
        """Give the registers their numbers of rows, and of bytes in each."""
        name = "@ansor.tiles." + "_".join(f"{rows}x{row_bytes}" for rows, row_bytes in shapes)
        self.fn.declare(name, f"{name} = {configuration_ir(shapes)}")
        self._call("ldtilecfg", f"ptr {name}")

    def _call(self, name: str, *arguments: str) -> None:
        types = ", ".join(argument.split()[0] for argument in arguments)
        self.fn.declare(f"@llvm.x86.{name}", f"declare void @llvm.x86.{name}({types})")
        self.fn.effect(f"call void @llvm.x86.{name}({', '.join(arguments)})")


def _shapes(
    found: MatrixProduct, rows: Sequence[_Rows], columns: Sequence[Place]
) -> Sequence[tuple[int, int]]:
    """The rows, and bytes in each, of the registers of a group, as `MatrixTiles` numbers them."""
    row_bytes = length_of(found.lanes) * WORD_BYTES
    of_sums = [(count, row_bytes) for (_, count), _ in product(rows, columns)]
    return [*of_sums, *((count, found.words * WORD_BYTES) for _, count in rows), (found.words, row_bytes)]


def _placed(env: Env, place: Place) -> Env:
    for var, value in place:
        env = env.bind(var, constant(value))
    return env


def _group(rows: int, columns: int) -> tuple[int, int]:
    """How many blocks of rows and of columns are computed together, of so many."""
    if rows == 1:
        return 1, TILES - 2
    return (2, 2) if columns > 1 else (3, 1)
