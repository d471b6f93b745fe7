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
Reductions of several values at once, an argmax say, have registers for each of them.
The order in which an element's terms are added does not change, so results are the same to the last bit;
but for reductions along memory without a vector loop, which are done in lanes (`lane_reduction`). There the
conditions of terms are choices like those on data, unless the loop has been parted where they begin or cease
to hold (`index_set_splitting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import itemgetter

from ansor.ir.affine import Affine
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import own_instructions, registers_of
from ansor.ir.independence import IndependenceTest
from ansor.ir.matrix_products import matrix_product
from ansor.ir.nest import Alloc, Buffer, For, If, LoopKind, Seq, Stmt, Store, seq
from ansor.ir.passes.lane_reduction import REGISTER, reduce_in_lanes
from ansor.ir.ranges import loop_ranges
from ansor.ir.registers import RegisterLimits
from ansor.ir.rewriting import (
    conjunction,
    conjuncts,
    guarded,
    map_expressions,
    map_statements,
    reads_memory,
    replace_in,
    simultaneous,
    stores_of,
)
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
from ansor.te.structure import is_among, same_place

_TILE_KINDS = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED})
_REDUCE_KINDS = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """A reduction's loops, outermost first (`reduce`, then `tile`), its guards and its updates.

    The updates, one for each value that is reduced, are made at once. `inside` is the tensorized loop around
    the update, if there is one: with it the update is one operation.
    """

    reduce: tuple[For, ...]
    tile: tuple[For, ...]
    guards: tuple[Expr, ...]
    updates: tuple[Store, ...]
    inside: tuple[For, ...] = ()

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(extent for loop in self.tile if (extent := int_value(loop.extent)) is not None)

    @property
    def targets(self) -> tuple[Buffer, ...]:
        """What is updated."""
        return tuple(update.buffer for update in self.updates)

    def accumulators(self, limits: RegisterLimits) -> int:
        """How many vector registers hold the tile's elements."""
        return len(self.updates) * self._vectors(limits)

    def _vectors(self, limits: RegisterLimits) -> int:
        """The same of one of the values; the lanes of all are those of the widest."""
        lanes = prod(
            extent
            for loop, extent in zip(self.tile, self.extents, strict=True)
            if loop.kind is LoopKind.VECTORIZED
        )
        counts = (registers_of(prod(self.extents), lanes, x.dtype, limits.vector_bits) for x in self.targets)
        return max(counts)

    def instructions(self, limits: RegisterLimits) -> int:
        """How many vector instructions one step of the reduction takes, roughly."""
        return self._vectors(limits) * sum(map(own_instructions, self.updates))

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
    if _is_matrix_product(stmt, limits, test):
        return stmt
    tile = _worth_promoting(stmt, limits, test)
    if tile is not None:
        return _in_lanes(tile, limits, test.bounds) or promoted(tile)
    return map_statements(stmt, lambda inner: _promote(inner, limits, test))


def _promote_sequence(stmt: Seq, limits: RegisterLimits, test: IndependenceTest) -> Stmt:
    """A sequence, in which a reduction may follow its own initialisation."""
    result: list[Stmt] = []
    for one in stmt.stmts:
        if _is_matrix_product(one, limits, test):
            result.append(one)
            continue
        tile = _worth_promoting(one, limits, test, result[-1] if result else None)
        if tile is None:
            result.append(_promote(one, limits, test))
            continue
        in_lanes = _in_lanes(tile, limits, test.bounds)
        if in_lanes is not None:
            result.append(in_lanes)
            continue
        count = 1 if tile.tile or tile.element_guards else len(tile.updates)
        start = _initial_values(tile, seq(*result[-count:]))
        result = result if start is None else result[:-count]
        result.append(promoted(tile, start))
    same = len(result) == len(stmt.stmts) and all(a is b for a, b in zip(result, stmt.stmts, strict=True))
    return stmt if same else seq(*result)


def _is_matrix_product(stmt: Stmt, limits: RegisterLimits, test: IndependenceTest) -> bool:
    """Whether the matrix unit does a loop as a whole, in tiles that no guard cuts."""
    unit = limits.matrix_unit
    if not unit or not isinstance(stmt, For):
        return False
    return matrix_product(stmt, unit, test.bounds, guarded=True) is not None


def _worth_promoting(
    stmt: Stmt, limits: RegisterLimits, test: IndependenceTest, before: Stmt | None = None
) -> RegisterTile | None:
    """The tile of a statement, if the registers hold it and it is not as good as in them already."""
    tile = find_register_tile(stmt, test, before)
    if tile is None or not tile.fits(limits):
        return None
    return None if limits.per_thread and any(x.scope == "local" for x in tile.targets) else tile


def _in_lanes(tile: RegisterTile, limits: RegisterLimits, bounds: Bounds) -> Stmt | None:
    """The reduction in lanes, where that is possible and pays.

    Not where reduction loops alone say which terms count, as those of a split that does not divide do, nor
    where a loop with tests is as long as it turns out to be: what is left of one that was parted is short.
    """
    along, alone = tile.reduce[-1], {loop.var for loop in tile.reduce}
    tests = tuple(guard for guard in tile.guards if along.var in free_vars(guard))
    selecting = free_vars(*(index for one in tile.updates for index in one.indices))
    if limits.per_thread or any(free_vars(one) <= alone for one in tests):
        return None
    if any(free_vars(one).isdisjoint(selecting) and _ends_split(one, along.var, bounds) for one in tests):
        return None
    test = conjunction(tests)
    if test is not None and int_value(along.extent) is None:
        return None
    guards = tuple(guard for guard in tile.guards if along.var not in free_vars(guard))
    updates = tile.updates if test is None else (_chosen(one, guards, [test], bounds) for one in tile.updates)
    return reduce_in_lanes(replace(tile, guards=guards, updates=tuple(updates)), limits, bounds)


def _ends_split(guard: Expr, inner: Var, bounds: Bounds) -> bool:
    """Whether a guard looks like the end of an axis that was split into loops, `inner` the last of them."""
    form, table = bounds.simplifier.below_zero(guard), bounds.simplifier.table
    terms = [] if form is None else sorted(form.terms.items(), key=itemgetter(1))
    if not terms or table.atoms[terms[0][0]].node is not inner:
        return False
    stride: float = max(terms[0][1], 1)
    for number, coefficient in terms:
        if coefficient != stride:
            return False
        stride *= table.interval(Affine({number: 1}, 0))[1] + 1
    return True


def find_register_tile(stmt: Stmt, test: IndependenceTest, before: Stmt | None = None) -> RegisterTile | None:
    """The tile of a statement that is a reduction loop nest and nothing else, its outermost loop reducing.

    What is done just `before` it shows which elements there are.
    """
    if not isinstance(stmt, For) or stmt.kind not in _REDUCE_KINDS:
        return None
    loops, guards, tests, inner = _levels(stmt)
    stores = stores_of(inner)
    if not stores or any(store.buffer.scope == REGISTER for store in stores):
        return None
    inside = (loops.pop(),) if loops[-1].kind is LoopKind.TENSORIZE else ()
    if inside and (tests or len(stores) > 1):
        return None
    updates = tuple(_chosen(store, guards, tests, test.bounds) for store in stores)
    selecting = free_vars(*(index for store in stores for index in store.indices))
    count = len(loops)
    while count and loops[count - 1].var in selecting:
        count -= 1
    found = RegisterTile(tuple(loops[:count]), tuple(loops[count:]), guards, updates, inside)
    fits = (
        _has_fitting_loops(found, selecting)
        and _updates_itself(found)
        and _is_separable(found, selecting, test, before)
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
    """Whether the updates read their elements, and read their buffers nowhere else."""
    places = {update.buffer: update.indices for update in found.updates}
    elsewhere = [
        *(index for indices in places.values() for index in indices),
        *found.guards,
        *(x.extent for x in found.reduce if isinstance(x.extent, Expr)),
    ]
    if any(load.buffer in places for load in _loads(elsewhere)):
        return False
    reads = [load for load in _loads(update.value for update in found.updates) if load.buffer in places]
    if len(places) < len(found.updates) or {load.buffer for load in reads} != {*places}:
        return False
    return all(same_place(load.indices, places[load.buffer]) for load in reads)


def _loads(exprs: Iterable[Expr]) -> list[Load]:
    return [node for expr in exprs for node in distinct_nodes(expr) if isinstance(node, Load)]


def _is_separable(
    found: RegisterTile, selecting: set[Var], test: IndependenceTest, before: Stmt | None
) -> bool:
    """Whether each point of the tile has its own elements and the copies can be guarded."""
    if any(reads_memory(index) for one in found.updates for index in one.indices):
        return False
    if not all(test.independent(loop) for loop in found.tile):
        return False
    own, reducing = found.element_guards, {loop.var for loop in found.reduce}
    variables = [free_vars(guard) for guard in found.guards]
    tied = any(used & reducing and used & selecting for used in variables)
    if not tied or all(_is_inside(one.buffer, one.indices, own, test.bounds) for one in found.updates):
        return True
    return before is not None and _initial_values(found, before) is not None


def _initial_values(tile: RegisterTile, before: Stmt) -> tuple[Expr, ...] | None:
    """The constants that `before` stores to exactly the elements of `tile`, if that is all it does."""
    loops, guards, tests, inner = _levels(before)
    parts = inner.stmts if isinstance(inner, Seq) else (inner,)
    stores = {one.buffer: one for one in parts if isinstance(one, Store)}
    if tests or stores.keys() != {*tile.targets} or len(parts) > len(stores):
        return None
    if any(children(one.value) or isinstance(one.value, Var) for one in stores.values()):
        return None
    if [int_value(x.extent) for x in loops] != list(tile.extents):
        return None
    names: dict[Var, Expr] = {a.var: b.var for a, b in zip(loops, tile.tile, strict=True)}
    wanted, given = tile.element_guards, tuple(replace_in(guard, names, {}) for guard in guards)
    alike = all(
        same_place([replace_in(index, names, {}) for index in stores[one.buffer].indices], one.indices)
        for one in tile.updates
    )
    values = tuple(stores[target].value for target in tile.targets)
    return values if alike and _covers(wanted, given) and _covers(given, wanted) else None


def _covers(some: tuple[Expr, ...], others: tuple[Expr, ...]) -> bool:
    """Whether each of `others` is one of `some`."""
    return all(is_among(one, some) for one in others)


def promoted(tile: RegisterTile, start: tuple[Expr, ...] | None = None) -> Alloc:
    """The tile, kept in registers while it is reduced, which hold `start` first, else what is in memory."""
    place = tuple(loop.var for loop in tile.tile)
    registers = {x: Buffer(f"{x.name}.acc", x.dtype, tile.extents, REGISTER) for x in tile.targets}

    def in_registers(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer in registers:
            return Load(registers[node.buffer], place, node.dtype)
        return None

    def stored(values: Iterable[Expr]) -> list[Store]:
        return [Store(own, place, value) for own, value in zip(registers.values(), values, strict=True)]

    update = simultaneous(stored(rewrite(one.value, in_registers) for one in tile.updates))
    for loop in tile.inside:
        update = For(loop.var, loop.extent, loop.kind, update)
    body = guarded(tile.guards, update)
    for loop in reversed(tile.tile):
        body = For(loop.var, loop.extent, _unrolled(loop.kind), body)
    for loop in reversed(tile.reduce):
        body = For(loop.var, loop.extent, loop.kind, body)
    elements = (Load(one.buffer, one.indices, one.buffer.dtype) for one in tile.updates)
    before = _tile_copy(tile, stored(elements if start is None else start), everywhere=start is not None)
    sums = (Load(own, place, own.dtype) for own in registers.values())
    after = [replace(one, value=value) for one, value in zip(tile.updates, sums, strict=True)]
    *others, last = registers.values()
    made = Alloc(last, seq(before, body, _tile_copy(tile, after)))
    for own in reversed(others):
        made = Alloc(own, made)
    return made


def _tile_copy(tile: RegisterTile, stores: Sequence[Store], *, everywhere: bool = False) -> Stmt:
    """Stores for all elements of the tile, in loops of their own."""
    names: dict[Var, Expr] = {loop.var: Var(loop.var.name, loop.var.dtype) for loop in tile.tile}
    guards = () if everywhere else tuple(replace_in(g, names, {}) for g in tile.element_guards)
    copy = map_expressions(seq(*stores), lambda expr: replace_in(expr, names, {}))
    result = guarded(guards, copy)
    for loop in reversed(tile.tile):
        var = names[loop.var]
        assert isinstance(var, Var)
        result = For(var, loop.extent, _unrolled(loop.kind), result)
    return result


def _unrolled(kind: LoopKind) -> LoopKind:
    return LoopKind.UNROLLED if kind is LoopKind.SERIAL else kind
