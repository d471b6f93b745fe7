"""Accumulators in registers.

A reduction is lowered to `B[i] = B[i] + ...` inside loops, some of which select the element (their variable
occurs in `i`), while the others reduce. The element loops inside the innermost reduce loops are the
*register tile*. If its accumulators fit into the vector registers, the reduce loops around it work on a
buffer of scope "register" instead:

    for k in 0..512:                       allocate B.acc[4, 16] float32 register
      for i in 0..4:                       unroll i in 0..4: vectorize j in 0..16: B.acc[i, j] = B[i, j]
        vectorize j in 0..16:         =>   for k in 0..512:
          B[i, j] = B[i, j] + ...            unroll i in 0..4: vectorize j in 0..16:
                                               B.acc[i, j] = B.acc[i, j] + ...
                                           unroll i in 0..4: vectorize j in 0..16: B[i, j] = B.acc[i, j]

Where the statement just before initialises exactly this tile, the registers are initialised instead of
loaded. Guards that do not depend on the reduction guard the copies, too; all guards stay around the update.
A condition on data becomes a choice between the updated element and the element as it is, so that no branch
has to be foreseen. What is in bounds wherever the condition is asked is read whether it holds or not.
The order in which an element's terms are added does not change, so results are the same to the last bit;
but for reductions along memory without a vector loop, which are done in lanes (`lane_reduction`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ansor.ir.bounds import Bounds
from ansor.ir.code_size import own_instructions, registers_of
from ansor.ir.independence import IndependenceTest
from ansor.ir.nest import Alloc, Buffer, For, If, LoopKind, Seq, Stmt, Store, seq
from ansor.ir.passes.lane_reduction import REGISTER, reduce_in_lanes
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import conjunction, conjuncts, guarded, map_statements, reads_memory, replace_in
from ansor.ir.simplify import prove, simplify
from ansor.te.expr import (
    BinaryOp,
    Expr,
    Load,
    Select,
    Var,
    as_index,
    binary,
    children,
    distinct_nodes,
    free_vars,
    int_value,
    rewrite,
)
from ansor.te.structure import is_among, same_structure

_TILE_KINDS = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED})
_REDUCE_KINDS = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})


@dataclass(frozen=True, slots=True)
class RegisterLimits:
    """What a tile may use of the machine's `num_registers` vector registers, each of `vector_bits`.

    `reserved` of them are for operands.
    `max_instructions` bounds those of one step of the reduction, which are unrolled, and of a loop that a
    pragma unrolls (`ansor.ir.code_size`): LLVM takes the longer for each the more there are in a row.
    With `per_thread` they are those of one thread of a GPU: its lanes are threads, so that nothing is reduced
    in lanes, loops over threads are no loops to it, and private arrays are registers as they are.
    """

    vector_bits: int = 256
    num_registers: int = 16
    reserved: int = 2
    max_instructions: int = 512
    per_thread: bool = False

    @property
    def room(self) -> int:
        """Registers that are not reserved."""
        return self.num_registers - self.reserved


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """A reduction's loops, outermost first (`reduce`, then `tile`), its guards and its update.

    `inside` is the tensorized loop around the update, if there is one: with it the update is one operation.
    """

    reduce: tuple[For, ...]
    tile: tuple[For, ...]
    guards: tuple[Expr, ...]
    update: Store
    inside: tuple[For, ...] = ()

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(extent for loop in self.tile if (extent := int_value(loop.extent)) is not None)

    def accumulators(self, limits: RegisterLimits) -> int:
        """How many vector registers hold the tile's elements."""
        lanes = prod(
            extent
            for loop, extent in zip(self.tile, self.extents, strict=True)
            if loop.kind is LoopKind.VECTORIZED
        )
        return registers_of(prod(self.extents), lanes, self.update.buffer.dtype, limits.vector_bits)

    def instructions(self, limits: RegisterLimits) -> int:
        """How many vector instructions one step of the reduction takes, roughly."""
        return self.accumulators(limits) * own_instructions(self.update)

    def fits(self, limits: RegisterLimits, vectors: int = 1) -> bool:
        """Whether the registers hold `vectors` times the tile's accumulators."""
        return (
            vectors * self.accumulators(limits) <= limits.room
            and vectors * self.instructions(limits) <= limits.max_instructions
        )

    def scalar(self) -> RegisterTile:
        """The same without vectors across elements."""
        kinds = (LoopKind.SERIAL if x.kind is LoopKind.VECTORIZED else x.kind for x in self.tile)
        return replace(self, tile=tuple(replace(x, kind=k) for x, k in zip(self.tile, kinds, strict=True)))

    @property
    def element_guards(self) -> tuple[Expr, ...]:
        """The guards that say whether an element of the tile exists."""
        reducing = {loop.var for loop in self.reduce}
        return tuple(guard for guard in self.guards if not free_vars(guard) & reducing)


def promote_accumulators(stmt: Stmt, limits: RegisterLimits, bounds: Bounds | None = None) -> Stmt:
    """Keep the elements of register tiles in registers while they are reduced.

    `bounds` are the ranges of variables around `stmt`: loops outside it and symbolic sizes. Those of loops in
    it are its own, whatever is said of them.
    """
    known = (bounds or Bounds()).extended(loop_ranges(stmt))
    return _promote(stmt, limits, IndependenceTest(known))


def _promote(stmt: Stmt, limits: RegisterLimits, test: IndependenceTest) -> Stmt:
    if isinstance(stmt, Seq):
        return _promote_sequence(stmt, limits, test)
    tile = _worth_promoting(stmt, limits, test)
    if tile is not None:
        return _in_lanes(tile, limits) or promoted(tile)
    return map_statements(stmt, lambda inner: _promote(inner, limits, test))


def _promote_sequence(stmt: Seq, limits: RegisterLimits, test: IndependenceTest) -> Stmt:
    """A sequence, in which a reduction may follow its own initialisation."""
    result: list[Stmt] = []
    for one in stmt.stmts:
        tile = _worth_promoting(one, limits, test)
        if tile is None:
            result.append(_promote(one, limits, test))
            continue
        in_lanes = _in_lanes(tile, limits)
        if in_lanes is not None:
            result.append(in_lanes)
            continue
        start = _initial_value(tile, result[-1]) if result else None
        if start is not None:
            result.pop()
        result.append(promoted(tile, start))
    same = len(result) == len(stmt.stmts) and all(a is b for a, b in zip(result, stmt.stmts, strict=True))
    return stmt if same else seq(*result)


def _worth_promoting(stmt: Stmt, limits: RegisterLimits, test: IndependenceTest) -> RegisterTile | None:
    """The tile of a statement, if the registers hold it and it is not as good as in them already."""
    tile = find_register_tile(stmt, test)
    if tile is None or not tile.fits(limits):
        return None
    return None if limits.per_thread and tile.update.buffer.scope == "local" else tile


def _in_lanes(tile: RegisterTile, limits: RegisterLimits) -> Stmt | None:
    return None if limits.per_thread else reduce_in_lanes(tile, limits)


def find_register_tile(stmt: Stmt, test: IndependenceTest) -> RegisterTile | None:
    """The tile of a statement that is a reduction loop nest and nothing else, its outermost loop reducing."""
    if not isinstance(stmt, For) or stmt.kind not in _REDUCE_KINDS:
        return None
    loops, guards, tests, inner = _levels(stmt)
    if not isinstance(inner, Store) or inner.buffer.scope == REGISTER:
        return None
    inside = (loops.pop(),) if loops[-1].kind is LoopKind.TENSORIZE else ()
    if tests and inside:
        return None
    inner = _chosen(inner, guards, tests, test.bounds)
    selecting = free_vars(*inner.indices)
    count = len(loops)
    while count and loops[count - 1].var in selecting:
        count -= 1
    found = RegisterTile(tuple(loops[:count]), tuple(loops[count:]), guards, inner, inside)
    fits = (
        _has_fitting_loops(found, selecting)
        and _updates_itself(found)
        and _is_separable(found, selecting, test)
    )
    return found if fits else None


def _levels(stmt: Stmt) -> tuple[list[For], tuple[Expr, ...], list[Expr], Stmt]:
    """The loops and conditions that are nested in `stmt` one directly in the other, and what is in them.

    Conditions on data come apart, outermost first.
    """
    loops: list[For] = []
    guards: tuple[Expr, ...] = ()
    tests: list[Expr] = []
    while True:
        if isinstance(stmt, For):
            loops.append(stmt)
            stmt = stmt.body
        elif isinstance(stmt, If) and stmt.other is None:
            parts = conjuncts(stmt.cond)
            reading = tuple(part for part in parts if reads_memory(part))
            guards = (*guards, *(part for part in parts if not reads_memory(part)))
            test = conjunction(reading)
            tests += [] if test is None else [test]
            stmt = stmt.then
        else:
            return loops, guards, tests, stmt


def _chosen(update: Store, guards: tuple[Expr, ...], tests: list[Expr], bounds: Bounds) -> Store:
    """The update without conditions on data: where one of `tests` fails it stores the element as it is."""
    value, element = update.value, Load(update.buffer, update.indices, update.buffer.dtype)
    for test in reversed(tests):
        reads = (node for node in distinct_nodes(value) if isinstance(node, Load))
        safe = all(_is_inside(read.buffer, read.indices, guards, bounds) for read in reads)
        value = Select(test, value, element, not safe, value.dtype)
    return replace(update, value=value) if tests else update


def _is_inside(buffer: Buffer, indices: tuple[Expr, ...], held: tuple[Expr, ...], bounds: Bounds) -> bool:
    """Whether an element is seen to be one of the buffer's where the conditions `held` hold."""
    for index, extent in zip(map(as_index, indices), buffer.shape, strict=True):
        for ends in (binary(BinaryOp.GE, index, 0), binary(BinaryOp.LT, index, extent)):
            if prove(ends, bounds) is not True and not is_among(simplify(ends, bounds), held):
                return False
    return True


def _has_fitting_loops(found: RegisterTile, selecting: set[Var]) -> bool:
    """Whether the loops are such as may be around a tile, of a tile, and inside of it."""
    reduces = found.reduce and all(
        loop.kind in _REDUCE_KINDS and loop.var not in selecting for loop in found.reduce
    )
    is_tile = all(loop.kind in _TILE_KINDS and int_value(loop.extent) is not None for loop in found.tile)
    if not reduces or not is_tile:
        return False
    deciding = selecting | free_vars(*found.guards)
    has_vectors = any(loop.kind is LoopKind.VECTORIZED for loop in found.tile)
    return all(has_vectors and loop.var not in deciding for loop in found.inside)


def _updates_itself(found: RegisterTile) -> bool:
    """Whether the update reads its element, and reads its buffer nowhere else."""
    store = found.update
    reads = [n for n in distinct_nodes(store.value) if isinstance(n, Load) and n.buffer is store.buffer]
    elsewhere = [
        *store.indices,
        *found.guards,
        *(x.extent for x in found.reduce if isinstance(x.extent, Expr)),
    ]
    if not reads or any(
        isinstance(node, Load) and node.buffer is store.buffer
        for expr in elsewhere
        for node in distinct_nodes(expr)
    ):
        return False
    return all(same_structure(a, b) for n in reads for a, b in zip(n.indices, store.indices, strict=True))


def _is_separable(found: RegisterTile, selecting: set[Var], test: IndependenceTest) -> bool:
    """Whether each point of the tile has its own element and the copies can be guarded."""
    store = found.update
    if any(map(reads_memory, store.indices)) or not all(test.independent(loop) for loop in found.tile):
        return False
    own, reducing = found.element_guards, {loop.var for loop in found.reduce}
    variables = [free_vars(guard) for guard in found.guards]
    tied = any(used & reducing and used & selecting for used in variables)
    return not tied or _is_inside(store.buffer, store.indices, own, test.bounds)


def _initial_value(tile: RegisterTile, before: Stmt) -> Expr | None:
    """The constant that `before` stores to exactly the elements of `tile`, if that is all it does."""
    loops, guards, tests, inner = _levels(before)
    if tests or not isinstance(inner, Store):
        return None
    if inner.buffer is not tile.update.buffer or children(inner.value):
        return None
    if [int_value(x.extent) for x in loops] != list(tile.extents) or isinstance(inner.value, Var):
        return None
    names: dict[Var, Expr] = {a.var: b.var for a, b in zip(loops, tile.tile, strict=True)}
    wanted, given = tile.element_guards, tuple(replace_in(guard, names, {}) for guard in guards)
    same_place = all(
        same_structure(replace_in(mine, names, {}), index)
        for mine, index in zip(inner.indices, tile.update.indices, strict=True)
    )
    return inner.value if same_place and _covers(wanted, given) and _covers(given, wanted) else None


def _covers(some: tuple[Expr, ...], others: tuple[Expr, ...]) -> bool:
    """Whether each of `others` is one of `some`."""
    return all(is_among(one, some) for one in others)


def promoted(tile: RegisterTile, start: Expr | None = None) -> Alloc:
    """The tile, kept in registers while it is reduced, which hold `start` first, else what is in memory."""
    target = tile.update.buffer
    registers = Buffer(f"{target.name}.acc", target.dtype, tile.extents, REGISTER)
    place = tuple(loop.var for loop in tile.tile)

    def in_registers(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer is target:
            return Load(registers, place, node.dtype)
        return None

    update: Stmt = Store(registers, place, rewrite(tile.update.value, in_registers))
    for loop in tile.inside:
        update = For(loop.var, loop.extent, loop.kind, update)
    body = guarded(tile.guards, update)
    for loop in reversed(tile.tile):
        body = For(loop.var, loop.extent, _unrolled(loop.kind), body)
    for loop in reversed(tile.reduce):
        body = For(loop.var, loop.extent, loop.kind, body)
    if start is None:
        before = _tile_copy(tile, Load(target, tile.update.indices, target.dtype), into=registers)
    else:
        before = _tile_copy(tile, start, into=registers, everywhere=True)
    after = _tile_copy(tile, Load(registers, place, target.dtype), into=target)
    return Alloc(registers, seq(before, body, after))


def _tile_copy(tile: RegisterTile, value: Expr, into: Buffer, *, everywhere: bool = False) -> Stmt:
    """Store `value` to the elements of the tile, in loops of its own."""
    names: dict[Var, Expr] = {loop.var: Var(loop.var.name, loop.var.dtype) for loop in tile.tile}
    own = into is tile.update.buffer
    indices = tile.update.indices if own else tuple(loop.var for loop in tile.tile)
    store = Store(into, tuple(replace_in(i, names, {}) for i in indices), replace_in(value, names, {}))
    guards = () if everywhere else tuple(replace_in(g, names, {}) for g in tile.element_guards)
    result = guarded(guards, store)
    for loop in reversed(tile.tile):
        var = names[loop.var]
        assert isinstance(var, Var)
        result = For(var, loop.extent, _unrolled(loop.kind), result)
    return result


def _unrolled(kind: LoopKind) -> LoopKind:
    return LoopKind.UNROLLED if kind is LoopKind.SERIAL else kind
