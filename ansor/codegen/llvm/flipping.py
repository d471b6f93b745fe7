"""Products of integers whose signs no instruction takes: one factor flipped, and what that adds taken off.

VNNI multiplies unsigned bytes by signed ones. For bytes of equal sign the factor `a` that all lanes share is
moved by half of its range, `h`, into the other sign, which flips its sign bits:

    sum a*b  =  sum (a + h)*b - sum h*b        h = 128 for signed bytes, -128 for unsigned ones

exactly so, as the sums wrap. The last one, the *debt*, depends on no more than `b` does: all rows of a
register tile owe the same, one row of registers. So a tile is written with these sums, as loops that mean
what they say and become instructions as any others do (`ansor.codegen.llvm.tensor`):

    allocate C.acc[6, 64] register          allocate C.acc[6, 64] register
      C.acc = 0                               allocate C.debt[64] register
      for k in 0..128:                          vectorize j: C.debt[j] = 0
        unroll i: vectorize j: tensorize p:     C.acc = 0
          C.acc[i, j] += A*B             =>     for k in 0..128:
      C = C.acc                                   vectorize j: tensorize p:
                                                    C.debt[j] += h*B
                                                  unroll i: vectorize j: tensorize p:
                                                    C.acc[i, j] += (A + h)*B
                                                C = C.acc - C.debt

Guards on the reduction stay around both. Guards on rows, of which `b` knows nothing, are left out around the
debt: elements that they exclude are not stored. Products that no instruction computes, in part of the lanes
above all, stay as they are and owe nothing, as do those that a matrix unit does. What is not in a register
tile becomes one of a single vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ansor.codegen.machine import Machine
from ansor.dtypes import int_range, is_integer, other_sign
from ansor.intrinsics import TensorIntrinsic, tensor_intrinsics
from ansor.ir.matrix_products import matrix_product
from ansor.ir.nest import (
    Alloc,
    Buffer,
    For,
    If,
    LoopKind,
    LoopNest,
    Seq,
    Stmt,
    Store,
    seq,
    sub_statements,
    walk_statements,
)
from ansor.ir.passes.guards import NOTHING, is_nothing
from ansor.ir.passes.lane_reduction import REGISTER
from ansor.ir.passes.register_tile import RegisterTile, promoted
from ansor.ir.ranges import nest_bounds
from ansor.ir.rewriting import fresh_copy, map_expressions, map_statements, reads_memory
from ansor.ir.updates import update_of
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Load,
    Var,
    free_vars,
    rewrite,
)


def flip_factors(nest: LoopNest, machine: Machine) -> LoopNest:
    """`nest` with factors flipped where an instruction of `machine` takes them only so."""
    known = tuple(one for one in tensor_intrinsics() if machine.has_intrinsic(one))
    if all(one.flipped is None for one in known):
        return nest
    unit, bounds = machine.matrix_unit, nest_bounds(nest)

    def is_done(stmt: Stmt) -> bool:
        """Whether the matrix unit, which takes any signs, does it as a whole."""
        return bool(unit) and isinstance(stmt, For) and matrix_product(stmt, unit, bounds) is not None

    body = _flip(nest.body, known, is_done)
    return nest if body is nest.body else replace(nest, body=body)


def _flip(stmt: Stmt, known: tuple[TensorIntrinsic, ...], is_done: Callable[[Stmt], bool]) -> Stmt:
    if is_done(stmt):
        return stmt
    if isinstance(stmt, Alloc) and stmt.buffer.scope == REGISTER:
        tile = _find_tile(stmt, known)
        if tile is not None:
            return tile.flipped(stmt)
    if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED:
        inner = stmt.body.stmts if isinstance(stmt.body, Seq) else (stmt.body,)
        vectors = [replace(stmt, body=one) for one in inner]  # lanes go through the statements together
        if any(_find_product(vector, known) for vector in vectors):
            return seq(*(_alone(fresh_copy(vector), known) for vector in vectors))
    return map_statements(stmt, lambda inner: _flip(inner, known, is_done))


def _alone(vector: Stmt, known: tuple[TensorIntrinsic, ...]) -> Stmt:
    """A vector loop; if it is a product with a factor to flip, as a register tile."""
    product = _find_product(vector, known) if isinstance(vector, For) else None
    if product is None:
        return vector
    assert isinstance(vector, For)
    made = promoted(RegisterTile((), (vector,), (), (product.store,), (product.loop,)))
    tile = _find_tile(made, known)
    assert tile is not None
    return tile.flipped(made)


# -- one factor -------------------------------------------------------------------------------------------


def half_range(factor: Expr) -> Const:
    """What flipping a factor adds, in the dtype that it is flipped into."""
    dtype = other_sign(factor.dtype)
    return Const(int_range(dtype)[0] - int_range(factor.dtype)[0], dtype)


def flipped(factor: Expr) -> Expr:
    """A factor, flipped; not folded, so that it can be told (`flipped_factor`)."""
    half = half_range(factor)
    return Binary(BinaryOp.ADD, Cast(factor, half.dtype), half, half.dtype)


def flipped_factor(expr: Expr) -> Expr | None:
    """What an expression flips; None if it does something else."""
    match expr:
        case Binary(op=BinaryOp.ADD, a=Cast(a=a), b=Const(value=half)) if is_integer(a.dtype):
            return a if expr.dtype == other_sign(a.dtype) and half == half_range(a).value else None
        case _:
            return None


# -- one vector loop ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Product:
    """What a tensorized `loop` does: `store` adds to `sum_` a product, of which `factor` is to be flipped."""

    loop: For
    store: Store
    sum_: Load
    factor: Expr
    other: Expr

    def adding(self, factor: Expr, place: Load) -> For:
        """The loop, adding the product of `factor` and the other one at `place`."""
        dtype = place.dtype
        product = Binary(BinaryOp.MUL, Cast(factor, dtype), Cast(self.other, dtype), dtype)
        store = Store(place.buffer, place.indices, Binary(BinaryOp.ADD, place, product, dtype))
        return replace(self.loop, body=store)


def _find_product(stmt: For, known: tuple[TensorIntrinsic, ...]) -> _Product | None:
    """The product in a vector loop, if the widest intrinsic for it flips a factor that lanes may share."""
    loop, lane = stmt.body, stmt.var
    if stmt.kind is not LoopKind.VECTORIZED or not isinstance(loop, For) or not isinstance(stmt.extent, int):
        return None
    update = update_of(loop) if loop.kind is LoopKind.TENSORIZE else None
    if update is None or not any(lane in free_vars(index) for index in update.store.indices):
        return None
    shape = loop.extent, update.store.buffer.dtype
    wide = [one for one in known if (one.depth, one.dtype) == shape and one.lanes <= stmt.extent]
    factors = sorted(update.operands, key=lambda factor: lane in free_vars(factor))
    for a, b in (factors, factors[::-1]):
        fitting = [one for one in wide if _multiplies(one, a, b)]
        best = max(fitting, key=lambda one: (one.lanes, one.flipped is None), default=None)
        if best is not None and best.flipped is not None and lane in free_vars(b):
            return _Product(loop, update.store, update.sum_, a, b)
    return None


def _multiplies(intrinsic: TensorIntrinsic, a: Expr, b: Expr) -> bool:
    """Whether it is for factors of these dtypes, if it flips one, then `a`."""
    dtypes = [operand.dtype for operand in intrinsic.operands]
    if intrinsic.flipped is None:
        return dtypes in ([a.dtype, b.dtype], [b.dtype, a.dtype])
    return dtypes[intrinsic.flipped] == a.dtype and dtypes[1 - intrinsic.flipped] == b.dtype


# -- a register tile ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tile:
    """The products of a register tile, by their vector loops, and the registers of its debt.

    `kept` are the dimensions of the tile that the debt has, too; variables of the others are `dropped`.
    `selecting` are the variables of all of them.
    """

    products: Mapping[For, _Product]
    debt: Buffer
    kept: tuple[int, ...]
    selecting: frozenset[Expr]
    dropped: frozenset[Expr]

    def flipped(self, tile: Alloc) -> Alloc:
        """The tile with flipped factors and its debt."""
        assert isinstance(tile.body, Seq)
        before, *updates, after = tile.body.stmts
        paid = map_expressions(after, lambda expr: rewrite(expr, lambda node: self._paid(node, tile.buffer)))
        parts = self._no_debt(), before, *map(self._with_debt, updates), paid
        return Alloc(tile.buffer, Alloc(self.debt, seq(*parts)))

    def _no_debt(self) -> Stmt:
        product = next(iter(self.products.values()))
        indices = self._kept(product.store.indices)
        place = tuple(Var(index.name) for index in indices if isinstance(index, Var))
        stmt: Stmt = Store(self.debt, place, Const(0, self.debt.dtype))
        for var, extent in reversed([*zip(place, self.debt.shape, strict=True)]):
            kind = LoopKind.VECTORIZED if var is place[-1] else LoopKind.UNROLLED
            stmt = For(var, extent, kind, stmt)
        return stmt

    def _paid(self, node: Expr, accumulators: Buffer) -> Expr | None:
        """What an accumulator holds, without the debt."""
        if not isinstance(node, Load) or node.buffer is not accumulators:
            return None
        return Binary(BinaryOp.SUB, node, self._owed(node.indices), node.dtype)

    def _kept(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(indices[dimension] for dimension in self.kept)

    def _owed(self, indices: tuple[Expr, ...]) -> Load:
        return Load(self.debt, self._kept(indices), self.debt.dtype)

    def _with_debt(self, stmt: Stmt) -> Stmt:
        """The updates: before each pass over the tile one over the debt."""
        if isinstance(stmt, For) and stmt.var in self.selecting:
            return seq(fresh_copy(self._indebting(stmt)), self._updating(stmt))
        return map_statements(stmt, self._with_debt)

    def _updating(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt in self.products:
            product = self.products[stmt]
            return replace(stmt, body=product.adding(flipped(product.factor), product.sum_))
        return map_statements(stmt, self._updating)

    def _indebting(self, stmt: Stmt) -> Stmt:
        """The debt of an update: its loops and guards but for those of dimensions that the debt has not."""
        if isinstance(stmt, For):
            product = self.products.get(stmt)
            if product is not None:
                return replace(
                    stmt, body=product.adding(half_range(product.factor), self._owed(product.store.indices))
                )
            if stmt.var in self.dropped:
                return self._indebting(stmt.body)
        if isinstance(stmt, If) and free_vars(stmt.cond) & self.dropped:
            return self._indebting(stmt.then)
        new = map_statements(stmt, self._indebting)
        empty = all(map(is_nothing, sub_statements(new)))
        return NOTHING if empty else new


def _find_tile(stmt: Alloc, known: tuple[TensorIntrinsic, ...]) -> _Tile | None:
    """The tile that an allocation of registers is, if it adds up products and some have a factor to flip."""
    registers, body = stmt.buffer, stmt.body
    if not isinstance(body, Seq):
        return None
    updates, after = body.stmts[1:-1], body.stmts[-1]
    products: dict[For, _Product] = {}
    if not all(_collect(update, registers, known, products) for update in updates) or not products:
        return None
    if any(isinstance(inner, Store) and inner.buffer is registers for inner in walk_statements(after)):
        return None
    places = [product.store.indices for product in products.values()]
    used = frozenset[Expr](free_vars(*(product.other for product in products.values())))
    dimensions = range(len(registers.shape))
    kept = tuple(d for d in dimensions if any(place[d] in used for place in places))
    selecting = frozenset(index for place in places for index in place)
    dropped = frozenset(place[d] for place in places for d in dimensions if d not in kept)
    if not all(_may_drop(update, dropped, selecting, used) for update in updates):
        return None
    name = f"{registers.name.removesuffix('.acc')}.debt"
    debt = Buffer(name, registers.dtype, tuple(registers.shape[d] for d in kept), REGISTER)
    return _Tile(products, debt, kept, selecting, dropped)


def _collect(
    stmt: Stmt, registers: Buffer, known: tuple[TensorIntrinsic, ...], found: dict[For, _Product]
) -> bool:
    """Whether a statement does nothing but add products to `registers`; `found` gets those to flip."""
    match stmt:
        case For():
            product = _find_product(stmt, known)
            if stmt.kind is LoopKind.TENSORIZE:
                update = update_of(stmt)
                return update is not None and update.store.buffer is registers
            if product is None:
                return _collect(stmt.body, registers, known, found)
            found[stmt] = product
            place = product.store.indices
            in_order = all(isinstance(index, Var) for index in place) and place[-1] is stmt.var
            return product.store.buffer is registers and in_order
        case If() | Seq():
            return all(_collect(inner, registers, known, found) for inner in sub_statements(stmt))
        case _:
            return False


def _may_drop(
    update: Stmt, dropped: frozenset[Expr], selecting: frozenset[Expr], used: frozenset[Expr]
) -> bool:
    """Whether guards on `dropped` variables leave out elements only, and nothing that the debt reads."""
    inner = list(walk_statements(update))
    loops = [one for one in inner if isinstance(one, For) and one.var not in selecting]
    others = used.union(loop.var for loop in loops)
    guards = [one for one in inner if isinstance(one, If) and free_vars(one.cond) & dropped]
    return not any(
        one.other is not None or reads_memory(one.cond) or free_vars(one.cond) & others for one in guards
    )
