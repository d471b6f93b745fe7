"""Loads and stores.

A load is remembered under the buffer's *generation*, which every store to the buffer and every loop that
holds one advances: within a generation the same address is loaded once. A load whose address is invariant in
a loop that does not write its buffer is placed before that loop (a few per loop, so that registers last).

Lanes: equal addresses load one scalar, consecutive ones a vector. Lanes a few elements apart, or known to be
among the elements of one vector, are shuffled; others are loaded element by element or as a gather.
Under a lane mask nothing outside the mask is touched but what lies between two lanes that are. Of register
tiles, which nobody else sees, whole vectors are loaded and stored, as only what is accessed without masks
becomes registers: elements outside the mask as they were, and what is beyond the elements of a row as it
comes.

Aligned vectors that are stored to a *streamed* buffer pass the caches by. Such stores are not ordered with
others until a fence, which a function that has made some must execute before it returns.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansor.alignment import LINE
from ansor.codegen.llvm import halves
from ansor.codegen.llvm.addresses import Addresses, Pointer
from ansor.codegen.llvm.dtype_map import memory_type, register_type
from ansor.codegen.llvm.index import Affine, IndexMath, add, constant
from ansor.codegen.llvm.permutations import interleaved, turned
from ansor.codegen.llvm.text import ScopeKind, Value, vector_type
from ansor.codegen.llvm.vectors import Vectors
from ansor.codegen.machine import Machine
from ansor.dtypes import dtype_info
from ansor.ir.nest import Buffer
from ansor.ir.strides import MOST_APART

HALVES = ("float16", "bfloat16")
YES = "@ansor.yes"
"""A byte that is 1; not a constant, so that it is not known to be."""
_HOISTED_PER_LOOP = 8
_STREAMED_BYTES = 16
"""Alignment from which on instructions that pass the caches by store vectors, if need be in pieces."""
STREAMING = ", !nontemporal !0"
STREAMING_METADATA = "!0 = !{i32 1}"


@dataclass(frozen=True, slots=True)
class Under:
    """What an access depends on: `lanes` of the vector loop, a lane mask, a scalar guard (None: true).

    Where the mask leaves out no more than lanes that are no iterations of the loop, `active` is how many are.
    """

    lanes: int = 1
    mask: Value | None = None
    guard: Value | None = None
    active: int | None = None


ALWAYS = Under()


class Memory:
    """The buffers of one function."""

    def __init__(self, vectors: Vectors, machine: Machine) -> None:
        self.vectors = vectors
        self.fn = vectors.fn
        self.index: IndexMath = vectors.index
        self.machine = machine
        self.addresses = Addresses(vectors)
        self.pointers = self.addresses.pointers
        self.streamed: frozenset[Buffer] = frozenset()
        self.streams = False
        """Whether stores that pass the caches by have been made since `fence`."""

    def written(self, buffers: frozenset[Buffer]) -> None:
        """Forget what is known of the contents of buffers."""
        for buffer in buffers:
            pointer = self.pointers.get(buffer)
            if pointer is not None:
                pointer.generation += 1

    # -- loads ---------------------------------------------------------------------------------------

    def load(self, buffer: Buffer, offset: Affine, under: Under) -> Value:
        """The register value at an element offset: one scalar if all lanes read the same element."""
        return self.from_memory(self.bits(buffer, offset, under), buffer.dtype)

    def bits(self, buffer: Buffer, offset: Affine, under: Under) -> Value:
        """The same in the element's memory type."""
        base, step = (offset, 0) if under.lanes == 1 else self.index.split_lanes(offset)
        if step in (0, 1) and self._is_in_tile(buffer, base, under.lanes if step else 1):
            return self._load(buffer, base, under.lanes if step else 1, None, None)
        if step == 0:
            guard = under.guard
            if under.mask is not None and under.mask.text.startswith("%"):
                known = self._loaded(buffer, base) if guard is None else None
                if known is not None:  # It is there, whether any lane asks for it or none does.
                    return known
                guard = self.vectors.both(guard, self.vectors.any_lane(under.mask))
            return self._load(buffer, base, 1, None, guard)
        if step == 1:
            return self._load(buffer, base, under.lanes, under.mask, under.guard)
        if step is None:
            spread = self._spread(buffer, offset, under)
            return self._gather(buffer, offset, under) if spread is None else spread
        near = step == -1 or (2 <= step <= MOST_APART and under.lanes >= MOST_APART)
        has_masks = self.machine.masks(dtype_info(buffer.dtype).bytes)
        if near and buffer.scope != "register" and (under.mask is None or has_masks):
            return self._shuffled(buffer, base, step, under)
        if under.mask is not None:
            return self._gather(buffer, offset, under)
        elements = [
            self._load(buffer, add(base, constant(step * lane)), 1, None, under.guard)
            for lane in range(under.lanes)
        ]
        return self.vectors.gathered(elements)

    def _is_in_tile(self, buffer: Buffer, base: Affine, lanes: int) -> bool:
        """Whether a register tile has space for so many elements from `base` on, whatever asks for them."""
        rows = self.pointers[buffer].rows
        return rows is not None and not base.terms and 0 <= base.const <= rows.elements - lanes

    def _ends_row(self, buffer: Buffer, base: Affine, under: Under) -> bool:
        """Whether those lanes from `base` on that are no iterations are beyond the elements of a row."""
        rows = self.pointers[buffer].rows
        if rows is None or under.active is None or base.terms:
            return False
        place = base.const % rows.pitch
        return place + under.active == rows.width and place + under.lanes <= rows.pitch

    def adjacent(self, buffer: Buffer, base: Affine, count: int, under: Under) -> Value:
        """`count` elements that lie side by side, in their memory type; the same whatever the lane."""
        return self._load(buffer, base, count, None, under.guard)

    def _load(
        self, buffer: Buffer, base: Affine, lanes: int, mask: Value | None, guard: Value | None
    ) -> Value:
        pointer = self.pointers[buffer]
        type_ = memory_type(buffer.dtype)
        full = vector_type(type_, lanes)
        if guard is None:
            address, align = self.addresses.place(buffer, base)
        else:
            address = self.addresses.guarded(buffer, base, lanes, guard)
            align = dtype_info(buffer.dtype).bytes
        depth = address.depth
        if mask is None:
            text = _load_text(full, address, align)
        else:
            depth = max(depth, mask.depth)
            symbol = f"@llvm.masked.load.v{lanes}{_mangled(type_)}.p0"
            masks = vector_type("i1", lanes)
            self.fn.declare(symbol, f"declare {full} {symbol}(ptr, i32, {masks}, {full})")
            text = (
                f"call {full} {symbol}(ptr {address.text}, i32 {align}, {masks} {mask.text}, "
                f"{full} zeroinitializer)"
            )
        if buffer.scope == "register":
            return self.fn.here(text, type_, lanes)
        return self._remembered(buffer, _of_generation(text, pointer), type_, lanes, depth)

    def prefetch(self, buffer: Buffer, offset: Affine, under: Under, near: bool) -> None:
        """Ask for the lines of these elements; of lanes that lie anywhere, nothing."""
        base, step = (offset, 0) if under.lanes == 1 else self.index.split_lanes(offset)
        if step is None:
            return
        elements, locality = under.lanes if step == 1 else 1, 3 if near else 2
        symbol = "@llvm.prefetch.p0"
        self.fn.declare(symbol, f"declare void {symbol}(ptr, i32, i32, i32)")
        for first in range(0, elements, LINE // dtype_info(buffer.dtype).bytes):
            address = self.addresses.address(buffer, add(base, constant(first)))
            self.fn.effect(f"call void {symbol}(ptr {address.text}, i32 0, i32 {locality}, i32 1)")

    def _remembered(self, buffer: Buffer, text: str, type_: str, lanes: int, depth: int) -> Value:
        """The load `text`, found again if it was done, else done as far out as it is the same."""
        found = self._found(text, depth)
        if found is not None:
            return found
        scopes = self.fn.scopes
        target = len(scopes) - 1
        while target > depth:
            scope = scopes[target]
            if (
                scope.kind is not ScopeKind.LOOP
                or buffer in scope.written
                or scope.hoisted >= _HOISTED_PER_LOOP
            ):
                break
            target -= 1
        for scope in scopes[target + 1 :]:
            scope.hoisted += 1
        return self.fn.pure(text, type_, lanes, target)

    def load_anew(self) -> None:
        """
        Have what follows in the innermost scope loaded where it is used, by LLVM as well.

        Windows of the steps of a reduction overlap: what one step has loaded, the next ones could use. But
        where accumulators fill the registers it would be stored and loaded again meanwhile, as a vector even
        if it is one number, and LLVM's scheduler moves loads of later steps up into their way, too. What LLVM
        believes to write to memory, and is no instruction, holds up both.
        """
        self.fn.effect('call void asm sideeffect "", "~{memory}"()')
        cse = self.fn.scopes[-1].cse
        for text in [text for text in cse if text.startswith("load ") or "@llvm.masked." in text]:
            del cse[text]

    def _found(self, text: str, depth: int) -> Value | None:
        """What the load `text` gave where it was done before."""
        for scope in self.fn.scopes[depth:]:
            if text in scope.cse:
                return scope.cse[text]
        return None

    def _loaded(self, buffer: Buffer, base: Affine) -> Value | None:
        """An element that was loaded before, whatever the condition."""
        pointer, type_ = self.pointers[buffer], memory_type(buffer.dtype)
        address, align = self.addresses.place(buffer, base)
        text = _of_generation(_load_text(type_, address, align), pointer)
        return self._found(text, address.depth)

    def _shuffled(self, buffer: Buffer, base: Affine, step: int, under: Under) -> Value:
        """Lanes a few elements apart, out of whole vectors that stay between the first lane and the last.

        Under a mask the vectors have masks of their own, for the elements of lanes that count.
        """
        lanes = under.lanes
        last = (lanes - 1) * step

        def part(start: int) -> Value:
            mask = None if under.mask is None else self._mask_of_part(under.mask, start, step)
            return self._load(buffer, add(base, constant(start)), lanes, mask, under.guard)

        if step < 0:
            raw = part(last)
            return self.vectors.permuted(raw, raw, [lanes - 1 - lane for lane in range(lanes)])
        starts = [min(number * lanes, last - lanes + 1) for number in range(step)]
        parts = [part(start) for start in starts]
        result = parts[0]
        chosen = [lane * step for lane in range(lanes)]
        for piece, start in zip(parts[1:], starts[1:], strict=True):
            places = [place if place < start else lanes + place - start for place in chosen]
            places = [min(place, 2 * lanes - 1) for place in places]  # not there yet: any lane will do
            result = self.vectors.permuted(result, piece, places)
            chosen = [lane if place < start + lanes else place for lane, place in enumerate(chosen)]
        return result

    def _spread(self, buffer: Buffer, offset: Affine, under: Under) -> Value | None:
        """Lanes in any order, or the same several times, of elements that one vector holds; None for others.

        What is known to be in lanes of quotients and remainders, as pixels of an image are that grows: two
        lanes for each. A vector that has no power of two of elements is one under a mask.
        """
        lanes, found = under.lanes, self.index.places(offset)
        count = lanes if under.mask is None else under.active
        if found is None or count is None or buffer.scope == "register":
            return None
        base, places = found
        low, high = min(places[:count]), max(places[:count])
        span = high - low + 1
        if span > lanes:
            return None
        start, mask = add(base, constant(low)), None
        if span == 1:
            return self._load(buffer, start, 1, None, under.guard)
        width = 1 << (span - 1).bit_length()
        if width > span:
            if not self.machine.masks(dtype_info(buffer.dtype).bytes):
                return None
            mask = self.vectors.first_lanes(span, width)
        raw = self._load(buffer, start, width, mask, under.guard)
        return self.vectors.permuted(raw, raw, [min(max(place - low, 0), span - 1) for place in places])

    def _mask_of_part(self, mask: Value, start: int, step: int) -> Value:
        """Which elements from `start` on are those of lanes that count, lanes `step` apart."""
        lanes = mask.lanes
        at = [divmod(start + place, step) for place in range(lanes)]
        places = [lane if rest == 0 and lane < lanes else lanes for lane, rest in at]
        return self.vectors.permuted(mask, Value("zeroinitializer", "i1", lanes), places)

    def _gather(self, buffer: Buffer, offset: Affine, under: Under) -> Value:
        """Lanes from anywhere."""
        lanes, type_ = under.lanes, memory_type(buffer.dtype)
        if under.mask is None and (
            not self.machine.has_gather or type_ not in ("float", "i32", "double", "i64")
        ):
            addresses = self.addresses.of_lanes(buffer, offset, lanes)
            elements = []
            for lane in range(lanes):
                address = self.vectors.element(addresses, lane)
                elements.append(self._element(buffer, address, under.guard))
            return self.vectors.gathered(elements)
        addresses = self.addresses.of_lanes(buffer, offset, lanes)
        full, masks = vector_type(type_, lanes), vector_type("i1", lanes)
        mask = under.mask if under.mask is not None else Value("splat (i1 true)", "i1", lanes)
        if under.guard is not None:
            both = self.vectors.both(mask, under.guard)
            assert both is not None
            mask = both
        symbol = f"@llvm.masked.gather.v{lanes}{_mangled(type_)}.v{lanes}p0"
        self.fn.declare(symbol, f"declare {full} {symbol}(<{lanes} x ptr>, i32, {masks}, {full})")
        align = dtype_info(buffer.dtype).bytes
        text = (
            f"call {full} {symbol}(<{lanes} x ptr> {addresses.text}, i32 {align}, {masks} {mask.text}, "
            f"{full} zeroinitializer)"
        )
        text = _of_generation(text, self.pointers[buffer])
        return self._remembered(buffer, text, type_, lanes, max(addresses.depth, mask.depth))

    def _element(self, buffer: Buffer, address: Value, guard: Value | None) -> Value:
        type_, size = memory_type(buffer.dtype), dtype_info(buffer.dtype).bytes
        if guard is not None:
            address = self.addresses.either(guard, address, size)
        text = _of_generation(_load_text(type_, address, size), self.pointers[buffer])
        return self._remembered(buffer, text, type_, 1, address.depth)

    # -- stores --------------------------------------------------------------------------------------

    def store(self, buffer: Buffer, offset: Affine, value: Value, under: Under) -> None:
        """Write a register value, a scalar to all lanes; of lanes with one address the last one counts."""
        pointer = self.pointers[buffer]
        pointer.generation += 1
        value = self.to_memory(value, buffer.dtype)
        if under.lanes == 1:
            self._store(buffer, offset, value)
            return
        value = self.vectors.splat(value, under.lanes)
        base, step = self.index.split_lanes(offset)
        if step == 1 and (under.mask is None or self._ends_row(buffer, base, under)):
            self._store(buffer, base, value)
        elif step == 1 and under.mask is not None and self._is_in_tile(buffer, base, under.lanes):
            old = self._load(buffer, base, under.lanes, None, None)
            self._store(buffer, base, self.vectors.select(under.mask, value, old))
        elif step == 1:
            self._masked_store(buffer, base, value, under)
        elif under.mask is not None:
            self._scatter(buffer, offset, value, under)
        elif step is not None:
            for lane in range(under.lanes):
                element = self.vectors.element(value, lane)
                self._store(buffer, add(base, constant(step * lane)), element)
        else:
            addresses = self.addresses.of_lanes(buffer, offset, under.lanes)
            for lane in range(under.lanes):
                element, address = self.vectors.element(value, lane), self.vectors.element(addresses, lane)
                align = dtype_info(buffer.dtype).bytes
                self.fn.effect(f"store {element.full_type} {element.text}, ptr {address.text}, align {align}")

    def store_interleaved(self, buffer: Buffer, base: Affine, values: list[Value], lanes: int) -> None:
        """Write lane 0 of all values side by side, then lane 1 of all, and so on, from `base` on."""
        self.pointers[buffer].generation += 1
        whole = [self.vectors.splat(self.to_memory(value, buffer.dtype), lanes) for value in values]
        for part, vector in enumerate(interleaved(self.vectors, whole)):
            self._store(buffer, add(base, constant(part * lanes)), vector)

    def store_turned(
        self, buffer: Buffer, base: Affine, apart: int, values: list[Value], under: Under
    ) -> None:
        """Write lane 0 of all values side by side from `base` on, lane 1 `apart` elements behind it.

        Of values there are two at least, no more than lanes. Lanes that are no iterations are left out.
        """
        self.pointers[buffer].generation += 1
        whole = [self.vectors.splat(self.to_memory(value, buffer.dtype), under.lanes) for value in values]
        for lane, row in enumerate(turned(self.vectors, whole)[: under.active]):
            self._store_row(buffer, add(base, constant(apart * lane)), row, len(whole))

    def _store_row(self, buffer: Buffer, base: Affine, row: Value, count: int) -> None:
        """Write the first `count` lanes of a vector side by side; not past the caches, unless as a line."""
        if count == row.lanes:
            self._store(buffer, base, row, whole_lines=True)
        elif self.machine.masks(dtype_info(buffer.dtype).bytes):
            mask = self.vectors.first_lanes(count, row.lanes)
            self._masked_store(buffer, base, row, Under(row.lanes, mask, None, count))
        else:
            self._store(buffer, base, self.vectors.permuted(row, row, list(range(count))), whole_lines=True)

    def _store(self, buffer: Buffer, base: Affine, value: Value, whole_lines: bool = False) -> None:
        pointer = self.pointers[buffer]
        address, align = self.addresses.place(buffer, base)
        hint = ""
        if buffer in self.streamed and value.lanes > 1:
            size = value.lanes * dtype_info(buffer.dtype).bytes
            least = LINE if whole_lines else _STREAMED_BYTES
            hint = STREAMING if min(align, size) >= least else ""
            self.streams = self.streams or bool(hint)
        self.fn.effect(f"store {value.full_type} {value.text}, ptr {address.text}, align {align}{hint}")
        if buffer.scope != "register":  # what was just stored need not be loaded again
            loaded = _of_generation(_load_text(value.full_type, address, align), pointer)
            self.fn.scopes[-1].cse[loaded] = value

    def fence(self) -> None:
        """Order stores that passed the caches by before what follows; but for x86, machines do so anyway."""
        if self.streams and self.machine.arch == "x86_64":
            self.fn.declare("@llvm.x86.sse.sfence", "declare void @llvm.x86.sse.sfence()")
            self.fn.effect("call void @llvm.x86.sse.sfence()")
        self.streams = False

    def _masked_store(self, buffer: Buffer, base: Affine, value: Value, under: Under) -> None:
        assert under.mask is not None
        mask = under.mask
        if self.machine.widens_lane_stores and value.type in ("i8", "i16", "i32"):
            mask = self._unforeseen(mask)
        (address, align), full = self.addresses.place(buffer, base), value.full_type
        masks = mask.full_type
        symbol = f"@llvm.masked.store.v{value.lanes}{_mangled(value.type)}.p0"
        self.fn.declare(symbol, f"declare void {symbol}({full}, ptr, i32, {masks})")
        self.fn.effect(
            f"call void {symbol}({full} {value.text}, ptr {address.text}, i32 {align}, {masks} {mask.text})"
        )

    def _unforeseen(self, mask: Value) -> Value:
        """The same mask, but LLVM cannot tell that it has one lane (`Machine.widens_lane_stores`)."""
        if not mask.text.startswith("%") and mask.text.count("true") != 1:
            return mask
        self.fn.declare(YES, f"{YES} = internal global i8 1")
        yes = self.vectors.compare("ne", self.fn.pure(f"load i8, ptr {YES}", "i8", 1, 0), Value("0", "i8"))
        return self.vectors.both(mask, yes) or mask

    def _scatter(self, buffer: Buffer, offset: Affine, value: Value, under: Under) -> None:
        assert under.mask is not None
        addresses, full, lanes = (
            self.addresses.of_lanes(buffer, offset, under.lanes),
            value.full_type,
            under.lanes,
        )
        masks = under.mask.full_type
        symbol = f"@llvm.masked.scatter.v{lanes}{_mangled(value.type)}.v{lanes}p0"
        self.fn.declare(symbol, f"declare void {symbol}({full}, <{lanes} x ptr>, i32, {masks})")
        self.fn.effect(
            f"call void {symbol}({full} {value.text}, <{lanes} x ptr> {addresses.text}, "
            f"i32 {dtype_info(buffer.dtype).bytes}, {masks} {under.mask.text})"
        )

    # -- representations -----------------------------------------------------------------------------

    def from_memory(self, raw: Value, dtype: str) -> Value:
        """The register value of an element's memory type."""
        if dtype == "bool":
            return self.vectors.compare("ne", raw, Value("0", "i8"))
        if dtype in HALVES:
            return halves.widen(self.vectors, raw, dtype)
        return raw

    def to_memory(self, value: Value, dtype: str) -> Value:
        """The value of the element's memory type; the bits of a 16-bit float stand for it, too."""
        if dtype in HALVES and value.type == memory_type(dtype):
            return value
        assert value.type == register_type(dtype, self.machine), (value, dtype)
        if dtype == "bool":
            return self.vectors.convert("zext", value, "i8")
        if dtype in HALVES:
            return halves.narrow(self.vectors, value, dtype)
        return value


def _load_text(full_type: str, address: Value, align: int) -> str:
    """The instruction that loads from an address, whatever the lanes."""
    return f"load {full_type}, ptr {address.text}, align {align}"


def _of_generation(text: str, pointer: Pointer) -> str:
    """The load `text` with the generation of its buffer as a comment: what it is remembered under."""
    return f"{text} ;{pointer.generation}"


def _mangled(type_: str) -> str:
    """The name of an element type in an intrinsic's suffix."""
    return {"float": "f32", "double": "f64", "half": "f16"}.get(type_, type_)
