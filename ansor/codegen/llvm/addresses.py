"""Addresses of elements.

An address is the buffer's pointer, plus the terms of its index grouped by the scope that defines them (one
pointer per scope, shared by all accesses that agree up to there), plus a constant: within the innermost loop,
accesses that differ by unrolled loops only are constant offsets from one pointer.

Under a scalar *guard* (an `if_then_else` that is computed without a branch) a load that must not happen reads
a block of zeros instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansor.codegen.llvm.dtype_map import memory_type
from ansor.codegen.llvm.index import Affine
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors
from ansor.dtypes import dtype_info
from ansor.ir.nest import Buffer
from ansor.te.buffer import row_major_strides

ZEROS = "@ansor.zeros"
_MAX_ZERO_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class TileRows:
    """How a register tile lies on the stack: rows of `width` elements, each with space for `pitch`."""

    count: int
    width: int
    pitch: int

    @property
    def elements(self) -> int:
        """Elements that there is space for."""
        return self.count * self.pitch

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Those of a tile of that shape."""
        return row_major_strides((*shape[:-1], self.pitch))[: len(shape)]


@dataclass(slots=True)
class Pointer:
    """A buffer's address, the alignment proven for it [bytes], and how often it was written so far.

    Register tiles have `rows`.
    """

    value: Value
    align: int
    generation: int = 0
    rows: TileRows | None = None


class Addresses:
    """Those of the buffers of one function, which have their `pointers` there."""

    def __init__(self, vectors: Vectors) -> None:
        self.fn = vectors.fn
        self.index = vectors.index
        self.pointers: dict[Buffer, Pointer] = {}

    def place(self, buffer: Buffer, offset: Affine) -> tuple[Value, int]:
        """The pointer to the element at a uniform offset, and its alignment."""
        pointer = self.pointers[buffer]
        known, key = self.fn.known, (pointer.value.text, offset)
        found: tuple[Value, int] | None = known.get(key)
        if found is None:
            found = known[key] = self.address(buffer, offset), self._align(buffer, pointer, offset)
        return found

    def address(self, buffer: Buffer, offset: Affine) -> Value:
        """The pointer to the element at a uniform offset."""
        return self._stepped(self.pointers[buffer].value, offset, dtype_info(buffer.dtype).bytes)

    def _stepped(self, pointer: Value, offset: Affine, size: int) -> Value:
        """`pointer` moved by an offset in elements of `size` bytes, scope by scope."""
        if offset.terms:
            known, key = self.fn.known, (pointer.text, size, *offset.terms.items())
            moved: Value | None = known.get(key)
            if moved is None:
                moved = known[key] = self._along(pointer, offset, size)
            pointer = moved
        return self._moved(pointer, Value(str(offset.const * size), "i64")) if offset.const else pointer

    def _along(self, pointer: Value, offset: Affine, size: int) -> Value:
        """`pointer` moved by the terms of an offset."""
        pending: Value | None = None
        for atom, coefficient in self.index.ordered(offset):
            term = self.index.scaled(atom.value, coefficient * size)
            if pending is not None and pending.depth < term.depth:
                pointer = self._moved(pointer, pending)
                pending = None
            if pending is None:
                pending = term
            else:
                pending = self.fn.pure(f"add nsw i64 {pending.text}, {term.text}", "i64", 1, term.depth)
        return pointer if pending is None else self._moved(pointer, pending)

    def _moved(self, pointer: Value, by: Value) -> Value:
        return self.fn.pure(
            f"getelementptr i8, ptr {pointer.text}, i64 {by.text}", "ptr", 1, max(pointer.depth, by.depth)
        )

    def of_lanes(self, buffer: Buffer, offset: Affine, lanes: int) -> Value:
        """The pointers of all lanes."""
        uniform: dict[str, int] = {}
        varying: dict[str, int] = {}
        for name, coefficient in offset.terms.items():
            wide = self.index.atoms[name].value.lanes > 1
            (varying if wide else uniform)[name] = coefficient
        base = self.address(buffer, Affine(offset.const, uniform))
        offsets = self.index.vector(Affine(0, varying), lanes)
        element = memory_type(buffer.dtype)
        return self.fn.pure(
            f"getelementptr {element}, ptr {base.text}, {offsets.full_type} {offsets.text}",
            "ptr",
            lanes,
            max(base.depth, offsets.depth),
        )

    def _align(self, buffer: Buffer, pointer: Pointer, offset: Affine) -> int:
        """The alignment that follows from the buffer's and the offset's divisors."""
        size = dtype_info(buffer.dtype).bytes
        bits = offset.const
        for factor in offset.terms.values():
            bits |= factor
        lowest = (bits & -bits) * size  # the least of the lowest bits of all factors
        return max(min(pointer.align, lowest) if bits else pointer.align, size)

    def guarded(self, buffer: Buffer, base: Affine, lanes: int, guard: Value) -> Value:
        """The address if the guard holds, else one of zeros.

        The choice is made where the guard is known, outside the loops inside of that, which then walk over
        the data or over a block of zeros, if the block need not be large.
        """
        size = dtype_info(buffer.dtype).bytes
        atoms = self.index.atoms
        inner = {n: c for n, c in base.terms.items() if atoms[n].value.depth > guard.depth}
        low, high = self.index.interval(Affine(0, inner))
        if low is None or high is None or low < 0 or (high + lanes) * size > _MAX_ZERO_BYTES:
            return self.either(guard, self.address(buffer, base), lanes * size)
        outer = {n: c for n, c in base.terms.items() if n not in inner}
        start = self.either(guard, self.address(buffer, Affine(base.const, outer)), (high + lanes) * size)
        return self._stepped(start, Affine(0, inner), size)

    def either(self, guard: Value, address: Value, zeros: int) -> Value:
        """`address` if the guard holds, else that of a block of `zeros` bytes of zeros."""
        self._need_zeros(zeros)
        text = f"select i1 {guard.text}, ptr {address.text}, ptr {ZEROS}"
        return self.fn.pure(text, "ptr", 1, max(address.depth, guard.depth))

    def _need_zeros(self, size: int) -> None:
        """Have at least `size` bytes of zeros; not a constant, which would take space in the object file."""
        known = self.fn.declarations.get(ZEROS, "[64 x")
        size = max(int(known[known.index("[") + 1 :].split()[0]), 1 << (size - 1).bit_length())
        self.fn.declare(ZEROS, f"{ZEROS} = internal global [{size} x i8] zeroinitializer, align 64")
