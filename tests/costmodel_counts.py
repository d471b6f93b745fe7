"""Features counted the slow way: from a lowered nest, with plain Python ints, by evaluating every index.

The path shares nothing with extraction but the program: loops come from the nest, regions from running
indices over all iterations, strides and dependence from changing one loop variable at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ansor.dtypes import dtype_info
from ansor.ir.nest import Alloc, Buffer, For, If, Let, LoopKind, LoopNest, Store, sub_statements
from ansor.te.expr import Binary, BinaryOp, Call, Cast, Const, Expr, Load, Var, children, free_vars
from tests.paths import walk

LINE = 64
MAX_POINTS = 40000


@dataclass
class Counted:
    """One stored statement of a nest: its loops, outermost first, what it stores, and what it loads.

    `around` are all loops around it; `loops` those that it is repeated by, as `repeating` says.
    """

    buffer: Buffer
    loops: list[For]
    store: Store
    values: list[Expr]
    loads: list[Load] = field(default_factory=list)
    around: list[For] = field(default_factory=list)
    guards: list[Expr] = field(default_factory=list)

    @property
    def extents(self) -> list[int]:
        return [int(loop.extent) for loop in self.loops]  # type: ignore[call-overload]

    @property
    def points(self) -> int:
        return prod(self.extents)


def stored_statements(nest: LoopNest) -> dict[str, Counted]:
    """The statement that computes each stored buffer, by name; of a reduction, the update."""
    found: dict[str, Counted] = {}
    for loops, lets, guards, store in _stores(nest.body, [], [], []):
        values = [*(let.value for let in lets), store.value]
        loads = [node for value in values for node in walk(value) if isinstance(node, Load)]
        known = found.get(store.buffer.name)
        if known is None or any(load.buffer is store.buffer for load in loads):
            repeated = repeating(loops, store.buffer)
            found[store.buffer.name] = Counted(
                store.buffer, repeated, store, [values[-1]], loads, loops, guards
            )
    return found


def repeating(loops: list[For], buffer: Buffer) -> list[For]:
    """Loops that repeat a store: what is shared by the threads of a GPU's block they store once, together.

    The innermost loop over each thread index tells which of them does it.
    """
    if buffer.scope != "shared":
        return loops
    threads = {LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z}
    last = {loop.kind: loop for loop in loops if loop.kind in threads}
    return [loop for loop in loops if loop.kind is not LoopKind.VTHREAD and last.get(loop.kind, loop) is loop]


def _stores(
    stmt: Any, loops: list[For], lets: list[Let], guards: list[Expr]
) -> Iterator[tuple[list[For], list[Let], list[Expr], Store]]:
    if isinstance(stmt, Store):
        yield loops, lets, guards, stmt
    elif isinstance(stmt, For):
        yield from _stores(stmt.body, [*loops, stmt], lets, guards)
    elif isinstance(stmt, Let):
        yield from _stores(stmt.body, loops, [*lets, stmt], guards)
    else:
        own = [*guards, stmt.cond] if isinstance(stmt, If) else guards
        for inner in sub_statements(stmt):
            yield from _stores(inner, loops, lets, own)


def allocation(nest: LoopNest, name: str) -> tuple[int, int] | None:
    """Elements of a scratch buffer and the iterations of the loops outside its allocation."""

    def search(stmt: Any, outside: int) -> tuple[int, int] | None:
        if isinstance(stmt, Alloc) and stmt.buffer.name == name:
            return prod(int(x) for x in stmt.buffer.shape), outside  # type: ignore[call-overload]
        more = outside * int(stmt.extent) if isinstance(stmt, For) else outside  # type: ignore[call-overload]
        return next((hit for inner in sub_statements(stmt) if (hit := search(inner, more))), None)

    return search(nest.body, 1)


def value_of(expr: Expr, at: Mapping[Var, int]) -> int:
    """An integer expression at a point."""
    match expr:
        case Const(value=value):
            return int(value)
        case Var():
            return at[expr]
        case Cast(a=a):
            return value_of(a, at)
        case Binary(op=op, a=a, b=b):
            x, y = value_of(a, at), value_of(b, at)
            return {
                BinaryOp.ADD: lambda: x + y,
                BinaryOp.SUB: lambda: x - y,
                BinaryOp.MUL: lambda: x * y,
                BinaryOp.FLOORDIV: lambda: x // y,
                BinaryOp.FLOORMOD: lambda: x % y,
                BinaryOp.MIN: lambda: min(x, y),
                BinaryOp.MAX: lambda: max(x, y),
            }[op]()
    raise ValueError(f"not an index: {expr}")


@dataclass
class Touched:
    """All accesses of one statement to one buffer whose indices differ by constants only."""

    buffer: Buffer
    indices: list[tuple[Expr, ...]]
    reads: bool
    writes: bool

    def moves(self, loops: Sequence[For]) -> list[tuple[int, ...]]:
        """How the first index changes when each loop advances from its start."""
        origin = dict.fromkeys((loop.var for loop in loops), 0)
        start = [value_of(index, origin) for index in self.indices[0]]
        return [
            tuple(
                value_of(index, {**origin, loop.var: 1}) - s
                for index, s in zip(self.indices[0], start, strict=True)
            )
            for loop in loops
        ]

    def box(self, loops: Sequence[For], level: int) -> list[int]:
        """Extents of what is touched while the loops from `level` on run and those outside stand still."""
        shape = [int(x) for x in self.buffer.shape]  # type: ignore[call-overload]
        outer = dict.fromkeys((loop.var for loop in loops[:level]), 0)
        ranges = {loop.var: range(int(loop.extent)) for loop in loops[level:]}  # type: ignore[call-overload]
        extents = []
        for d, extent in enumerate(shape):
            found: set[int] = set()
            for index in (indices[d] for indices in self.indices):
                running = [var for var in ranges if var in free_vars(index)]
                for place in itertools.product(*(ranges[var] for var in running)):
                    found.add(value_of(index, {**outer, **dict(zip(running, place, strict=True))}))
            extents.append(min(max(found) - min(found) + 1, extent))
        return extents

    @property
    def size(self) -> int:
        return dtype_info(self.buffer.dtype).bytes

    @property
    def strides(self) -> list[int]:
        shape = [int(x) for x in self.buffer.shape]  # type: ignore[call-overload]
        return [prod(shape[d + 1 :]) for d in range(len(shape))]

    def run(self, box: Sequence[int]) -> int:
        """Contiguous elements of a region."""
        run, whole = 1, True
        for extent, full in zip(reversed(box), reversed(self.buffer.shape), strict=True):
            run *= extent if whole else 1
            whole = whole and extent == full
        return run


def touched(counted: Counted) -> list[Touched]:
    """The accesses of a statement, the stored buffer first."""
    made = [Touched(counted.buffer, [counted.store.indices], False, True)]
    for load in counted.loads:
        for known in made:
            if known.buffer is load.buffer:
                other = Touched(load.buffer, [load.indices], True, False)
                if known.moves(counted.loops) == other.moves(counted.loops):
                    known.reads = True
                    if not any(_same(load.indices, indices, counted.loops) for indices in known.indices):
                        known.indices.append(load.indices)
                    break
        else:
            made.append(Touched(load.buffer, [load.indices], True, False))
    return made


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...], loops: Sequence[For]) -> bool:
    origin = dict.fromkeys((loop.var for loop in loops), 0)
    return [value_of(x, origin) for x in a] == [value_of(x, origin) for x in b]


def buffer_rows(counted: Counted, around: Mapping[str, int]) -> list[tuple[float, ...]]:
    """The 18 columns of each buffer; `around` are the loops that enclose a buffer's own statement, too."""
    loops, extents = counted.loops, counted.extents
    found = touched(counted)
    boxes = [[one.box(loops, level) for level in range(len(loops) + 1)] for one in found]
    rows = []
    for one, mine in zip(found, boxes, strict=True):
        moves = one.moves(loops)
        flat = [sum(m * s for m, s in zip(move, one.strides, strict=True)) for move in moves]
        used = [level for level, move in enumerate(moves) if any(move)]
        kind = 2 if one.reads and one.writes else 1 if one.writes else 0
        size = one.size
        unique = prod(mine[0]) * size
        step = abs(flat[used[-1]]) if used else 0
        lines = max(1.0, prod(extents[level] for level in used) * min(1.0, step * size / LINE))
        unique_lines = max(1.0, unique / min(one.run(mine[0]) * size, LINE))
        values = [counted.points * size * len(one.indices), unique, lines, unique_lines]
        reuse, count, distance, bytes_between = "none", 0, 0, 0
        for level in range(len(loops) - 1, -1, -1):
            shared = not one.writes and level < around.get(one.buffer.name, 0)
            if level not in used or shared:
                reuse = "serial" if level in used else "loop"
                count = 1 if level in used else extents[level]
                distance = prod(extents[level + 1 :])
                bytes_between = sum(
                    prod(box[level + 1]) * other.size for other, box in zip(found, boxes, strict=True)
                )
                break
        divided = [x / count if count else 2 * x for x in values]
        rows.append(
            (
                *(float(kind == k) for k in (0, 1, 2)),
                *values,
                *(float(reuse == name) for name in ("loop", "serial", "none")),
                distance,
                bytes_between,
                count,
                *divided,
                abs(flat[-1]) if flat else 0,
            )
        )
    return rows


def float_operations(counted: Counted) -> dict[str, int]:
    """Nodes of float arithmetic in the stored value, by the columns of the table, times the points."""
    names = {
        BinaryOp.ADD: "addsub",
        BinaryOp.SUB: "addsub",
        BinaryOp.MUL: "mul",
        BinaryOp.DIV: "divmod",
        BinaryOp.MIN: "cmp",
        BinaryOp.MAX: "cmp",
    }
    counts = dict.fromkeys(("addsub", "mul", "divmod", "cmp", "mathfunc", "mad"), 0)
    stack = list(counted.values)
    while stack:
        node = stack.pop()
        if isinstance(node, Load):
            continue
        stack.extend(children(node))
        if isinstance(node, Call):
            counts["mathfunc"] += 1
        elif isinstance(node, Binary) and dtype_info(node.a.dtype).kind == "float":
            counts[names.get(node.op, "cmp")] += 1
            if names.get(node.op) == "addsub":
                products = [_uncast(x) for x in (node.a, node.b)]
                counts["mad"] += any(isinstance(x, Binary) and x.op is BinaryOp.MUL for x in products)
    return {name: count * counted.points for name, count in counts.items()}


def _uncast(expr: Expr) -> Expr:
    return _uncast(expr.a) if isinstance(expr, Cast) else expr


def is_affine(counted: Counted) -> bool:
    """Whether no index of the statement divides or reads memory."""
    indices = [*counted.store.indices, *(index for load in counted.loads for index in load.indices)]
    return not any(
        isinstance(node, Load)
        or (isinstance(node, Binary) and node.op in (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD))
        for index in indices
        for node in walk(index)
    )


def has_condition(counted: Counted, nest: LoopNest) -> bool:
    """Whether a guard stands around the statement."""

    def search(stmt: Any, inside: bool) -> bool:
        if stmt is counted.store:
            return inside
        return any(search(inner, inside or isinstance(stmt, If)) for inner in sub_statements(stmt))

    return search(nest.body, False)


def common_loops(counted: Counted, nest: Mapping[str, Counted]) -> dict[str, int]:
    """For each stored buffer, how many loops its statement shares with this one."""
    shared: dict[str, int] = {}
    for name, other in nest.items():
        if other is not counted:
            pairs = zip(other.around, counted.around, strict=False)
            shared[name] = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs))
    return shared
