"""What a stored value costs and reads, per point: facts of an expression, whatever its loops.

Operations are counted in the value as written, with inlined producers substituted: a node that occurs twice
counts twice. Left out are choices that a program decides for all points, and what a length that is 1 does not
change, whatever other programs do that are looked at together with it. Arithmetic on indices does not count
as operations: the emitter moves it out of loops.

Reads of one tensor whose indices differ by constants only (the taps of a stencil) are one access of a wider
region. Reads whose indices move differently are accesses of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ansor.dtypes import dtype_info, is_float
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import combined, is_product
from ansor.ir.rewriting import conjunction, conjuncts, reads_memory
from ansor.ir.simplify import prove
from ansor.ir.terms import REDUCERS
from ansor.schedule.affine import Affine, UnknownBoundError
from ansor.schedule.evaluation import evaluate
from ansor.schedule.inlining import effective_body
from ansor.schedule.stages import Annotation, made_from
from ansor.schedule.state import State
from ansor.te.construct import fold
from ansor.te.expr import (
    BITWISE,
    COMPARISONS,
    LOGICAL,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Not,
    Read,
    Reduce,
    Select,
    Var,
    children,
    distinct_nodes,
    free_vars,
    int_value,
    rewrite,
    substitute,
)
from ansor.te.tensor import Tensor
from costmodel.features.reference import OPERATIONS
from sketches.relations import vector_axis
from sketches.small_tiles import unrolled_tile

COUNTS: Final = (
    *(f"{kind}_{name}" for kind in ("float", "int") for name in OPERATIONS),
    "bool_op",
    "select_op",
    "instructions",
    "loads",
    "nodes",
    "hoisted",
)
"""What is counted per point: the operations of the table; instructions of the value (`ansor.ir.code_size`);
reads, the statement's own element included; all nodes that take an instruction; and of these, in reductions,
those that take none of a vector: integers and conditions that loop variables decide for all lanes alike,
which CPUs are spared in inner loops, and choices of a constant on such conditions, made by the address. A
copy does little else, and pays for them."""

_SLOT: Final = {name: position for position, name in enumerate(COUNTS)}
_ADD: Final = frozenset({BinaryOp.ADD, BinaryOp.SUB})
_COMPARE: Final = frozenset({BinaryOp.MIN, BinaryOp.MAX}) | frozenset(COMPARISONS)
_DIVIDE: Final = frozenset(
    {BinaryOp.DIV, BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD}
)

Counts = tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """
    Reads of one tensor by indices that differ by constants only.

    Parameters
    ----------
    tensor
        What is read.
    indices
        The index of the first of them.
    spread
        Per dimension, the largest difference between two of the indices [elements].
    count
        Distinct indices.
    """

    tensor: Tensor
    indices: tuple[Expr, ...]
    spread: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Stored:
    """
    A value that is stored.

    Parameters
    ----------
    root
        What is computed.
    dtype
        Of the element that it is stored to.
    lanes
        The axis that lanes are taken to run along, that of the innermost loop; None if there is none.
    written_out
        Axes whose place in a small tile is a number where code is written, as its loop is unrolled; with the
        tile's length, and how many tiles there are.
    """

    root: Expr
    dtype: str
    lanes: Var | None
    written_out: frozenset[tuple[Var, int, int]] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """
    One stored value.

    Parameters
    ----------
    stored
        The value.
    counts
        Occurrences per point, in the order of `COUNTS`, where nothing is decided.
    undecided
        What each program decides in it for all points: conditions of choices that may always hold, as those
        of a copy do in tiles that divide, and lengths, columns of them, that may be 1.
    accesses
        What is read, elements that the stage itself stores left out.
    siblings
        Other outputs of the reduction that the value reads.
    is_reduction
        Whether the value updates the stored element.
    conditions
        What has to hold of its axes for a point of the reduction to count, and keeps it out of lanes.
    store_bits, lane_bits
        Size of an element in memory, and while it is computed with [bits].
    is_float
        Whether its operations are those of floats.
    combines_pairs
        Whether it adds, multiplies, or takes the lesser or greater of its element and one term, and all that
        is read has indices that are known: what may be reduced in lanes, where all conditions hold.
    """

    stored: Stored
    counts: Counts
    undecided: tuple[Expr, ...]
    accesses: tuple[Access, ...]
    siblings: tuple[int, ...]
    is_reduction: bool
    conditions: tuple[Expr, ...]
    store_bits: int
    lane_bits: int
    is_float: bool
    combines_pairs: bool


def body_of(state: State, stage: int, output: int) -> Body:
    """Facts of what a stage stores to one of its outputs."""
    roots, op = effective_body(state, stage), state.stages[stage].compute
    lanes = vector_axis(state, stage) if op.axis else None
    stored = Stored(roots[output], op.outputs[output].dtype, lanes, _written_out(state, stage))
    return _body(roots, stored)


def _written_out(state: State, stage_id: int) -> frozenset[tuple[Var, int, int]]:
    """What `Stored` has of the axes of a small tile that the schedule unrolls."""
    tile, stage = unrolled_tile(state, stage_id), state.stages[stage_id]
    if tile is None:
        return frozenset()
    loops = [loop.name for loop in stage.iterators if loop.annotation is Annotation.UNROLL]
    unrolled = {axis for loop in loops for axis in made_from(stage, loop)}
    found: set[tuple[Var, int, int]] = set()
    for number, axis in enumerate(stage.compute.axis):
        extent = int_value(axis.extent)
        if number in tile.unrolled and axis.name in unrolled and extent is not None:
            length = tile.lengths[number]
            found.add((axis, length, -(-extent // length)))
    return frozenset(found)


@lru_cache(maxsize=4096)
def _body(roots: tuple[Expr, ...], stored: Stored) -> Body:
    root, dtype = stored.root, stored.dtype
    reads: list[Expr] = [root]
    siblings: tuple[int, ...] = ()
    if isinstance(root, Reduce):
        used = set(distinct_nodes(root.combiner.result[root.index]))
        lhs = enumerate(root.combiner.lhs)
        siblings = tuple(other for other, var in lhs if other != root.index and var in used)
        reads = [*root.sources, *([] if root.condition is None else [root.condition])]
    info = dtype_info(dtype)
    bits = max(info.bits, 32) if info.kind == "float" else info.bits
    counts = counts_of(stored)
    floats = any(counts[_SLOT[f"float_{name}"]] for name in OPERATIONS)
    return Body(
        stored,
        counts,
        _undecided(stored),
        _accesses(reads),
        siblings,
        isinstance(root, Reduce),
        _conditions(root),
        info.bits,
        bits,
        floats,
        _combines_pairs(root, reads) and bits >= 8,
    )


def _combines_pairs(root: Expr, reads: Sequence[Expr]) -> bool:
    """Whether a reduction, which `reads` so much, combines element and term by one operation (see `Body`)."""
    if not isinstance(root, Reduce) or len(root.sources) != 1:
        return False
    result = root.combiner.result[0]
    if not isinstance(result, Binary) or result.op not in REDUCERS:
        return False
    operands = {id(result.a), id(result.b)}
    if operands != {id(root.combiner.lhs[0]), id(root.combiner.rhs[0])}:
        return False
    nodes = (node for expr in reads for node in distinct_nodes(expr))
    indices = [index for node in nodes if isinstance(node, Read) for index in node.indices]
    return not any(map(reads_memory, indices))


def _conditions(root: Expr) -> tuple[Expr, ...]:
    """The parts of a reduction's condition that keep it out of lanes: of its axes alone, or beside data."""
    if not isinstance(root, Reduce) or root.condition is None:
        return ()
    parts, axes = conjuncts(root.condition), set(root.axes)
    beside = any(map(reads_memory, parts))
    return tuple(part for part in parts if not reads_memory(part) and (beside or free_vars(part) <= axes))


_ZERO: Final[Counts] = (0.0,) * len(COUNTS)


@lru_cache(maxsize=4096)
def counts_of(stored: Stored, decided: frozenset[Expr] = frozenset()) -> Counts:
    """
    Occurrences per point, in the order of `COUNTS`.

    Parameters
    ----------
    decided
        Conditions of choices that hold for all points, and lengths that are 1.
    """
    root = _decided(stored.root, decided) if decided else stored.root
    counter = _Counter(stored, isinstance(root, Reduce))
    if not isinstance(root, Reduce):
        return counter.count(root)
    for var, source in zip(root.combiner.rhs, root.sources, strict=True):
        counter.memo[var] = counter.count(source)
    own = list(_ZERO)
    own[_SLOT["loads"]] = own[_SLOT["nodes"]] = own[_SLOT["instructions"]] = 1.0
    counter.memo.update(dict.fromkeys(root.combiner.lhs, tuple(own)))
    return _with_products(root, counter.count(root.combiner.result[root.index]), stored.dtype)


def _undecided(stored: Stored) -> tuple[Expr, ...]:
    """What may be decided in a value, as of `counts_of`; indices aside, which do not count."""
    root = stored.root
    pending = [*root.sources] if isinstance(root, Reduce) else [root]
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    while pending:
        node = pending.pop()
        if node in seen or isinstance(node, Read):
            continue
        seen.add(node)
        pending.extend(children(node))
        if isinstance(node, Select):
            found.update(dict.fromkeys(conjuncts(node.cond)))
        elif _is_column(node):
            found[node] = None
    return tuple(found)


def _is_column(expr: Expr) -> bool:
    """Whether an expression is a number for each of many programs."""
    value: object = expr.value if isinstance(expr, Const) else None
    return isinstance(value, np.ndarray)


def _decided(root: Expr, decided: Collection[Expr]) -> Expr:
    """A value as a program writes it that decides so much; lengths are 1 or any other number."""

    def choose(node: Expr) -> Expr | None:
        if not isinstance(node, Select):
            return None
        cond = conjunction(tuple(part for part in conjuncts(node.cond) if part not in decided))
        return node.then if cond is None else replace(node, cond=cond)

    def calculate(node: Expr) -> Expr | None:
        if _is_column(node):
            return Const(1 if node in decided else 2, node.dtype)
        if isinstance(node, Binary) and not is_float(node.a.dtype):
            return fold(node.op, node.a, node.b, node.dtype)
        return None

    return rewrite(rewrite(root, choose), calculate)


def _with_products(root: Reduce, counts: Counts, dtype: str) -> Counts:
    """Count `lhs + rhs` as a multiply-add where the source is a product."""
    result = root.combiner.result[root.index]
    kind = _kind(dtype)
    if not kind or not isinstance(result, Binary) or result.op not in _ADD:
        return counts
    operands = {id(result.a), id(result.b)}
    for var, source in zip(root.combiner.rhs, root.sources, strict=True):
        fused = id(var) in operands and is_product(source)
        while isinstance(source, Cast):
            source = source.a
        if id(var) in operands and isinstance(source, Binary) and source.op is BinaryOp.MUL:
            changed = list(counts)
            changed[_SLOT[f"{kind}_mad"]] += 1.0
            changed[_SLOT["instructions"]] -= fused
            return tuple(changed)
    return counts


def _kind(dtype: str) -> str:
    kind = dtype_info(dtype).kind
    return {"uint": "int", "bool": ""}.get(kind, kind)


def _sum(*counts: Counts) -> Counts:
    return tuple(map(sum, zip(*counts, strict=True)))


class _Counter:
    """Counts the nodes of an expression tree; `memo` may hold what variables stand for.

    Nothing counts as hoisted unless it is so in a reduction. Of values that are chosen by axes which are
    written out each is computed at its own points alone: their mean counts.
    """

    def __init__(self, stored: Stored, reduces: bool) -> None:
        self.reduces = reduces
        self.memo: dict[Expr, Counts] = {}
        self.varying: set[Expr | None] = {stored.lanes}
        self.written_out = {axis: (length, tiles) for axis, length, tiles in stored.written_out}

    def count(self, expr: Expr) -> Counts:
        known = self.memo.get(expr)
        if known is None:
            known = self.memo[expr] = self._count(expr)
        return known

    def _count(self, expr: Expr) -> Counts:
        if isinstance(expr, Read):
            own = list(_ZERO)
            own[_SLOT["loads"]] = own[_SLOT["nodes"]] = own[_SLOT["instructions"]] = 1.0
            return tuple(own)
        if values := self._values(expr):
            return tuple(count / len(values) for count in _sum(*map(self.count, values)))
        name = _operation(expr)
        inner = [self.count(child) for child in children(expr)]
        if not inner:
            return _ZERO
        own = list(_sum(*inner))
        own[_SLOT["nodes"]] += 1.0
        operands = [(one[_SLOT["instructions"]], one[_SLOT["loads"]] > 0) for one in inner]
        if self.reduces:
            own[_SLOT["hoisted"]] += self._is_hoisted(expr, [loads for _, loads in operands])
        own[_SLOT["instructions"]] = combined(expr, operands)
        if name:
            own[_SLOT[name]] += 1.0
        if isinstance(expr, Binary) and expr.op in _ADD and _kind(expr.dtype):
            products = any(isinstance(x, Binary) and x.op is BinaryOp.MUL for x in (expr.a, expr.b))
            own[_SLOT[f"{_kind(expr.dtype)}_mad"]] += products
        return tuple(own)

    def _values(self, expr: Expr) -> list[Expr]:
        """What a choice is at each place in a tile along an axis that is written out, if that is known."""
        axis = self._decides(expr)
        if axis is None:
            return []
        length, tiles = self.written_out[axis]
        tile = Var("tile", axis.dtype)
        bounds = Bounds({tile: (0, tiles - 1)})
        values: list[Expr] = []
        for place in range(length):
            value, here = expr, {axis: tile * length + place}
            while isinstance(value, Select) and self._decides(value) is axis:
                holds = prove(substitute(value.cond, here), bounds)
                if holds is None:
                    return []
                value = value.then if holds else value.other
            values.append(value)
        return values

    def _decides(self, expr: Expr) -> Var | None:
        """The axis that alone decides a choice, if it is written out."""
        if not self.written_out or not isinstance(expr, Select):
            return None
        axes = free_vars(expr.cond)
        reads = any(isinstance(node, Read) for node in distinct_nodes(expr.cond))
        return next(iter(axes)) if len(axes) == 1 and not reads and axes <= self.written_out.keys() else None

    def _is_hoisted(self, expr: Expr, loads: Sequence[bool]) -> bool:
        """Whether a node takes no instruction of a vector, given which of its operands load anything."""
        if isinstance(expr, Select) and not loads[0] and expr.cond not in self.varying:
            return isinstance(expr.other, Const)
        if any(loads) or not self.varying.isdisjoint(children(expr)):
            self.varying.add(expr)
            return False
        return not is_float(expr.dtype)


def _operation(expr: Expr) -> str:
    """The column that a node counts in, "" for none."""
    match expr:
        case Select():
            return "select_op"
        case Not():
            return "bool_op"
        case Cast():
            kind = _kind(expr.dtype)
            return f"{kind}_otherfunc" if kind else ""
        case Call():
            return f"{_kind(expr.dtype)}_mathfunc"
        case Binary(op=op):
            if op in LOGICAL:
                return "bool_op"
            kind = _kind(expr.a.dtype)
            if not kind:
                return "bool_op"
            if op in _ADD or op in BITWISE:
                return f"{kind}_addsub"
            if op is BinaryOp.MUL:
                return f"{kind}_mul"
            if op in _COMPARE:
                return f"{kind}_cmp"
            return f"{kind}_divmod" if op in _DIVIDE else f"{kind}_otherfunc"
        case _:
            return ""


def _accesses(roots: Sequence[Expr]) -> tuple[Access, ...]:
    """The reads of some expressions, those that differ by constants only together.

    Reads by the very same indices are one, whatever these are.
    """
    groups: dict[Tensor, list[_Group]] = {}
    seen: set[tuple[Tensor, tuple[int, ...]]] = set()
    for root in roots:
        for node in distinct_nodes(root):
            if not isinstance(node, Read):
                continue
            key = node.tensor, tuple(map(id, node.indices))
            if key not in seen:
                seen.add(key)
                found = groups.setdefault(node.tensor, [])
                forms = _forms(node.indices)
                if not any(group.take(forms) for group in found):
                    found.append(_Group(node, forms))
    return tuple(group.access() for found in groups.values() for group in found)


def _forms(indices: tuple[Expr, ...]) -> tuple[Affine, ...] | None:
    """Indices as forms over the axes; None if one is not affine."""
    try:
        found = [evaluate(index, {}) for index in indices]
    except UnknownBoundError:
        return None
    return tuple(interval.base for interval in found)


class _Group:
    """Reads that differ by constants, as they are found."""

    def __init__(self, first: Read, forms: tuple[Affine, ...] | None) -> None:
        self.first = first
        self.forms = forms
        self.offsets = {tuple(0 for _ in first.indices)}

    def take(self, forms: tuple[Affine, ...] | None) -> bool:
        if forms is None or self.forms is None:
            return False
        differences: list[Any] = []
        for mine, other in zip(self.forms, forms, strict=True):
            difference = other - mine
            steps = np.unique(difference.const)
            if not difference.is_constant or len(steps) != 1:
                return False
            differences.append(int(steps[0]))
        self.offsets.add(tuple(differences))
        return True

    def access(self) -> Access:
        columns = list(zip(*self.offsets, strict=True))
        low = [min(column) for column in columns]
        spread = tuple(max(column) - lowest for column, lowest in zip(columns, low, strict=True))
        return Access(self.first.tensor, self.first.indices, spread, len(self.offsets))
