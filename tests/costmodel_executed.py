"""Features counted the slowest way: by running a lowered nest, point by point, with plain Python ints.

Nothing is computed; what is kept is how often every statement is reached and passes its guards, which
elements it touches, and how often every scratch buffer comes into being. Beside `costmodel_counts`, which
reads a nest's loops and evaluates its indices, this knows no rule about loops at all: it runs them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod

from ansor.ir.code_size import is_product
from ansor.ir.nest import Alloc, For, If, Let, LoopKind, LoopNest, Seq, Stmt, Store, sub_statements
from ansor.te.expr import Binary, BinaryOp, Cast, Const, Expr, Load, Not, Select, Var, children, free_vars
from tests.paths import walk

Point = dict[Var, int]


class UnknownValueError(Exception):
    """A value that depends on data."""


@dataclass
class Executed:
    """
    What a run of a nest did.

    Attributes
    ----------
    reached
        Iterations that came to a statement, guards aside.
    passed
        Those that ran it.
    touched
        Flat positions of the elements that a statement read or wrote, by buffer.
    touches
        How many elements it touched, the same one counted once per iteration, by buffer.
    allocations
        How often a buffer came into being.
    parallel
        Iterations of parallel loops around a statement, and how often these were entered.
    """

    reached: Counter[Store] = field(default_factory=Counter)
    passed: Counter[Store] = field(default_factory=Counter)
    touched: dict[Store, dict[str, set[int]]] = field(default_factory=lambda: defaultdict(_sets))
    touches: dict[Store, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    allocations: Counter[str] = field(default_factory=Counter)
    parallel: dict[Store, tuple[int, int]] = field(default_factory=dict)
    _entered: Counter[For] = field(default_factory=Counter)

    @classmethod
    def of(cls, nest: LoopNest) -> Executed:
        """Run a nest."""
        found = cls()
        found._run(nest.body, {}, True, [])
        return found

    def _run(self, stmt: Stmt, at: Point, alive: bool, parallel: list[For]) -> None:
        match stmt:
            case For(var=var, extent=extent, kind=kind, body=body):
                inside = [*parallel, stmt] if kind is LoopKind.PARALLEL else parallel
                self._entered[stmt] += 1
                for value in range(extent if isinstance(extent, int) else value_of(extent, at)):
                    self._run(body, {**at, var: value}, alive, inside)
            case Seq(stmts=stmts):
                for one in stmts:
                    self._run(one, at, alive, parallel)
            case If(cond=cond, then=then, other=other):
                holds = bool(value_of(cond, at))
                self._run(then, at, alive and holds, parallel)
                if other is not None:
                    self._run(other, at, alive and not holds, parallel)
            case Let(var=var, value=value, body=body):
                try:
                    known = {**at, var: value_of(value, at)}
                except UnknownValueError:
                    known = at
                self._run(body, known, alive, parallel)
            case Alloc(buffer=buffer, body=body):
                self.allocations[buffer.name] += 1
                self._run(body, at, alive, parallel)
            case Store():
                self._store(stmt, at, alive, parallel)

    def _store(self, stmt: Store, at: Point, alive: bool, parallel: list[For]) -> None:
        self.reached[stmt] += 1
        if parallel:
            chunks = prod(int(loop.extent) for loop in parallel)  # type: ignore[call-overload]
            self.parallel[stmt] = chunks, self._entered[parallel[0]]
        if not alive:
            return
        self.passed[stmt] += 1
        here: dict[str, set[int]] = defaultdict(set)
        here[stmt.buffer.name].add(_position(stmt, at))
        for load in loads(stmt.value, at):
            here[load.buffer.name].add(_position(load, at))
        for name, positions in here.items():
            self.touched[stmt][name] |= positions
            self.touches[stmt][name] += len(positions)


def _sets() -> dict[str, set[int]]:
    return defaultdict(set)


def _position(access: Load | Store, at: Point) -> int:
    """Where an element lies in its buffer; an assertion error if that is outside."""
    place = 0
    for index, extent in zip(access.indices, access.buffer.shape, strict=True):
        value = value_of(index, at)
        assert 0 <= value < int(extent), f"{access} is outside at {at}"  # type: ignore[call-overload]
        place = place * int(extent) + value  # type: ignore[call-overload]
    return place


def loads(expr: Expr, at: Point) -> Iterator[Load]:
    """The loads that an expression makes at a point; of a choice only those of the side that it takes."""
    match expr:
        case Load():
            yield expr
        case Select(cond=cond, then=then, other=other):
            try:
                sides = [then] if value_of(cond, at) else [other]
            except UnknownValueError:
                yield from loads(cond, at)
                sides = [then, other]
            for side in sides:
                yield from loads(side, at)
        case _:
            for inner in children(expr):
                yield from loads(inner, at)


def value_of(expr: Expr, at: Point) -> int:
    """
    An integer or a condition at a point.

    Raises
    ------
    UnknownValueError
        If it depends on data.
    """
    match expr:
        case Const(value=value):
            return int(value)
        case Var():
            if expr not in at:
                raise UnknownValueError
            return at[expr]
        case Cast(a=a):
            return value_of(a, at)
        case Not(a=a):
            return not value_of(a, at)
        case Select(cond=cond, then=then, other=other):
            return value_of(then, at) if value_of(cond, at) else value_of(other, at)
        case Binary(op=op, a=a, b=b):
            return _OPERATIONS[op](value_of(a, at), value_of(b, at))
    raise UnknownValueError


_OPERATIONS = {
    BinaryOp.ADD: lambda x, y: x + y,
    BinaryOp.SUB: lambda x, y: x - y,
    BinaryOp.MUL: lambda x, y: x * y,
    BinaryOp.FLOORDIV: lambda x, y: x // y,
    BinaryOp.FLOORMOD: lambda x, y: x % y,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
    BinaryOp.LT: lambda x, y: x < y,
    BinaryOp.LE: lambda x, y: x <= y,
    BinaryOp.GT: lambda x, y: x > y,
    BinaryOp.GE: lambda x, y: x >= y,
    BinaryOp.EQ: lambda x, y: x == y,
    BinaryOp.NE: lambda x, y: x != y,
    BinaryOp.AND: lambda x, y: bool(x and y),
    BinaryOp.OR: lambda x, y: bool(x or y),
}


def products_made(nest: LoopNest) -> int:
    """How many times a run of a nest stores what multiplies floats."""
    return stores_made(nest, lambda store: any(map(is_product, walk(store.value))))


def stores_made(nest: LoopNest, chosen: Callable[[Store], bool]) -> int:
    """How many times a run of a nest passes the guards of the stores that are `chosen`."""
    return _Passed(chosen).times(nest.body, {})


@dataclass
class _Passed:
    """Counts runs of stores.

    Iterations of a loop are alike, and one of them is run, where no guard, length or value of a name within
    depends on its variable.
    """

    chosen: Callable[[Store], bool]
    _about: dict[int, tuple[bool, frozenset[Var]]] = field(default_factory=dict)

    def about(self, stmt: Stmt) -> tuple[bool, frozenset[Var]]:
        """Whether stores within are chosen, and the variables that say how often these are run."""
        found = self._about.get(id(stmt))
        if found is None:
            inner = [self.about(one) for one in sub_statements(stmt)]
            any_chosen = self.chosen(stmt) if isinstance(stmt, Store) else any(one for one, _ in inner)
            asked = frozenset[Var]().union(*(variables for _, variables in inner))
            match stmt:
                case If(cond=decides) | For(extent=Expr() as decides) | Let(value=decides):
                    asked |= free_vars(decides)
            found = self._about[id(stmt)] = any_chosen, asked
        return found

    def times(self, stmt: Stmt, at: Point) -> int:
        """How many chosen stores a run of a statement makes."""
        if not self.about(stmt)[0]:
            return 0
        match stmt:
            case For(var=var, extent=extent, body=body):
                count = extent if isinstance(extent, int) else value_of(extent, at)
                if var in self.about(body)[1]:
                    return sum(self.times(body, {**at, var: value}) for value in range(count))
                return count and count * self.times(body, at)
            case If(cond=cond, then=then, other=other):
                taken = then if value_of(cond, at) else other
                return 0 if taken is None else self.times(taken, at)
            case Let(var=var, value=value, body=body):
                try:
                    return self.times(body, {**at, var: value_of(value, at)})
                except UnknownValueError:
                    return self.times(body, at)
            case Store():
                return 1
        return sum(self.times(one, at) for one in sub_statements(stmt))
