"""Expressions of a nest as C expressions.

What a statement uses several times, unless it is small, is computed once, in a constant before the
statement; so is what nests its brackets more deeply than compilers like. A lazy choice (te.if_then_else)
whose sides need such constants becomes an `if`, so that only the chosen side is computed; any other choice is
`?:`.

An access to memory is one subscript. The position is simplified as a whole: the row and column that a fused
loop is taken apart into become the loop variable again, without a division. It is computed in int where the
array is known to have fewer than 2**31 elements, and in 64 bits elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ansor.codegen.c.dialect import HALVES, Dialect
from ansor.codegen.c.floats import Floats, is_float_operator
from ansor.codegen.c.helpers import Helpers, async_copy, async_fill
from ansor.codegen.c.integers import Integers
from ansor.codegen.c.literals import half_bits, literal
from ansor.codegen.c.names import Names
from ansor.codegen.c.text import (
    AND,
    EQUALITY,
    OR,
    PRODUCT,
    RELATION,
    SUM,
    Text,
    call,
    converted,
    indented,
    infix,
    prefix,
    ternary,
)
from ansor.codegen.overflow import Overflow
from ansor.dtypes import dtype_info
from ansor.errors import BuildError
from ansor.ir.bounds import Bounds
from ansor.ir.copies import copied, is_copy
from ansor.ir.nest import Store
from ansor.ir.simplify import simplify
from ansor.te.buffer import Buffer, row_major_strides
from ansor.te.expr import (
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Var,
    children,
    distinct_nodes,
    int_value,
    used_by_both,
)

_CONDITIONS: Final = {
    BinaryOp.EQ: ("==", EQUALITY),
    BinaryOp.NE: ("!=", EQUALITY),
    BinaryOp.LT: ("<", RELATION),
    BinaryOp.LE: ("<=", RELATION),
    BinaryOp.GT: (">", RELATION),
    BinaryOp.GE: (">=", RELATION),
    BinaryOp.AND: ("&&", AND),
    BinaryOp.OR: ("||", OR),
}
_SHARED_SIZE: Final = 3
"""Operators and accesses in a value from which on it is computed once if it is used several times."""
_SHARED_INDEX_SIZE: Final = 8
"""The same of integer arithmetic on variables, which reads better in its place."""
_REPEATED_SIZE: Final = 16
"""The same of what was written in its place, when an index of a later access turned out to use it again."""
_MOST_DEPTH: Final = 40
_INT_ELEMENTS: Final = 1 << 31
"""Arrays of fewer elements are addressed by int."""


class Expressions:
    """Writes the expressions of one kernel; `bounds` hold its variables."""

    def __init__(self, dialect: Dialect, names: Names, helpers: Helpers, bounds: Bounds) -> None:
        self.dialect = dialect
        self.names = names
        self.helpers = helpers
        self.bounds = bounds
        self.overflow = Overflow(bounds)
        self.bits: dict[Var, str] = {}
        """Of variables that stand for elements of 16-bit floats: the text of the element itself."""
        self._integers = Integers(self)
        self._floats = Floats(self)
        self._lines: list[str] = []
        self._texts: list[dict[int, Text]] = [{}]
        self._uses: dict[int, int] = {}
        self._counted: set[int] = set()
        self._simple: list[Expr] = []
        """Indices in canonical form, kept lest others get their numbers."""

    # -- statements --------------------------------------------------------------------------------------

    def start(self, *roots: Expr) -> None:
        """Begin a statement made of these expressions, which the caller keeps until it is written."""
        self._texts = [{}]
        self._uses = {}
        self._counted = set()
        self._simple = []
        for root in roots:
            self._count(root)

    def lines(self) -> list[str]:
        """What must be computed before the statement."""
        lines, self._lines = self._lines, []
        return lines

    def _count(self, root: Expr) -> None:
        self._uses[id(root)] = self._uses.get(id(root), 0) + 1
        for node in distinct_nodes(root):
            if id(node) not in self._counted:
                self._counted.add(id(node))
                for child in children(node):
                    self._uses[id(child)] = self._uses.get(id(child), 0) + 1

    # -- values ------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Text:
        """The value of an expression; a 16-bit float as a float32."""
        if isinstance(expr, Const):
            return literal(self.dialect, expr.value, expr.dtype)
        if isinstance(expr, Var):
            return Text(self.names.of(expr))
        found = self._find(expr)
        if found is None:
            found = self._texts[-1][id(expr)] = self._kept(expr, self._node(expr))
        elif found.size >= _REPEATED_SIZE:
            found = self._texts[-1][id(expr)] = self._named(self.dialect.values[expr.dtype], found)
        return found

    def stored(self, expr: Expr) -> Text:
        """A value as an element of memory; 16-bit floats that are only moved are not converted."""
        if expr.dtype not in HALVES:
            return self.value(expr)
        match expr:
            case Const(value=value):
                return half_bits(value, expr.dtype)
            case Var() if expr in self.bits:
                return Text(self.bits[expr])
            case Load(buffer=buffer, indices=indices):
                return self.access(buffer, indices)
            case Select() if self._find(expr) is None and not self.is_kept(expr):
                type_ = self.dialect.stored[expr.dtype]
                text = self._choice(expr, self.stored, type_)
                return text if text.depth <= _MOST_DEPTH else self._named(type_, text)
        if is_float_operator(expr) and not self.is_kept(expr):
            single, _ = self._floats.computed(expr)
        else:
            single = self.value(expr)
        return call(self.helpers.use(f"ansor_to_{expr.dtype}"), single)

    def is_kept(self, expr: Expr) -> bool:
        """Whether the statement uses the value several times."""
        return self._uses.get(id(expr), 0) > 1

    def _find(self, expr: Expr) -> Text | None:
        return next((texts[id(expr)] for texts in reversed(self._texts) if id(expr) in texts), None)

    def _kept(self, expr: Expr, text: Text) -> Text:
        """The text, or the name of a constant that holds its value."""
        size = _SHARED_INDEX_SIZE if self.overflow.is_index(expr) else _SHARED_SIZE
        if not (self.is_kept(expr) and text.size >= size) and text.depth <= _MOST_DEPTH:
            return text
        return self._named(self.dialect.values[expr.dtype], text)

    def _named(self, type_: str, text: Text) -> Text:
        """The name of a constant of a C type that holds a value."""
        name = self.names.fresh("t")
        self._lines.append(f"const {type_} {name} = {text.text};")
        return Text(name)

    def _node(self, expr: Expr) -> Text:
        match expr:
            case Load(buffer=buffer, indices=indices):
                element = self.access(buffer, indices)
                widen = expr.dtype in HALVES
                return call(self.helpers.use(f"ansor_from_{expr.dtype}"), element) if widen else element
            case Binary(op=op, a=a, b=b) if op in _CONDITIONS:
                sign, strength = _CONDITIONS[op]
                return infix(sign, self.value(a), self.value(b), strength)
            case Not(a=a):
                return prefix("!", self.value(a))
            case Select():
                return self._choice(expr, self.value, self.dialect.values[expr.dtype])
            case _ if is_float_operator(expr):
                text, inexact = self._floats.computed(expr)
                return self._floats.rounded(text, expr.dtype) if inexact else text
            case Binary():
                return self._integers.arithmetic(expr)
            case Cast(a=a, dtype="bool"):
                return self._floats.truth(a)
            case Cast(a=a, dtype=dtype):
                return converted(self.dialect.values[dtype], self.value(a))
            case Call(args=(x,), name="abs"):
                return self._integers.absolute(self.value(x), expr.dtype)
            case _:
                raise BuildError(f"a {type(expr).__name__} has no place in a loop nest: `{expr}`")

    # -- choices -----------------------------------------------------------------------------------------

    def _choice(self, expr: Select, side: Callable[[Expr], Text], type_: str) -> Text:
        """One of two sides, each as `side` writes it, of a C type."""
        if isinstance(expr.cond, Const):
            return side(expr.then if expr.cond.value else expr.other)
        cond = self.value(expr.cond)
        if not expr.lazy:
            return ternary(cond, side(expr.then), side(expr.other))
        for part in used_by_both(expr):
            if not self.overflow.is_index(part):
                self.value(part)
        then, before_then = self._aside(expr.then, side)
        other, before_other = self._aside(expr.other, side)
        if not before_then and not before_other:
            return ternary(cond, then, other)
        name = self.names.fresh("t")
        self._lines += [
            f"{type_} {name};",
            f"if ({cond.text}) {{",
            *indented([*before_then, f"{name} = {then.text};"]),
            "} else {",
            *indented([*before_other, f"{name} = {other.text};"]),
            "}",
        ]
        return Text(name)

    def _aside(self, expr: Expr, side: Callable[[Expr], Text]) -> tuple[Text, list[str]]:
        """A text, and what must be computed before it and only with it."""
        outside, self._lines = self._lines, []
        self._texts.append({})
        text = side(expr)
        self._texts.pop()
        inside, self._lines = self._lines, outside
        return text, inside

    # -- memory ------------------------------------------------------------------------------------------

    def is_async(self, store: Store, lanes: int) -> bool:
        """Whether a store copies so many elements, beginning with its own, without waiting for them."""
        if not (self.dialect.copies_async and is_copy(store)):
            return False
        return bool(async_copy(lanes * dtype_info(store.buffer.dtype).bytes))

    def async_copy(self, store: Store, lanes: int) -> list[str]:
        """The lines of such a store."""
        found, size = copied(store.value), lanes * dtype_info(store.buffer.dtype).bytes
        assert found is not None
        source, cond = found
        self.start(*store.indices, *source.indices, *(() if cond is None else (cond,)))
        to = self.access(store.buffer, store.indices).text
        from_ = self.access(source.buffer, source.indices).text
        if cond is None:
            return [*self.lines(), f"{self.helpers.use(async_copy(size))}(&{to}, &{from_});"]
        there = self.value(cond).text
        return [*self.lines(), f"{self.helpers.use(async_fill(size))}(&{to}, &{from_}, {there});"]

    def access(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Text:
        """An element of a buffer."""
        place = self.place(buffer, indices)
        return Text(f"{self.names.of(buffer)}[{place.text}]", size=1, depth=place.depth + 1)

    def place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Text:
        """The number of an element."""
        strides = _int_strides(buffer)
        if strides is None or any(index.dtype != INDEX_DTYPE for index in indices):
            return self._wide_place(buffer, indices)
        flat: Expr = Const(0, INDEX_DTYPE)
        for index, stride in zip(indices, strides, strict=True):
            step = Binary(BinaryOp.MUL, index, Const(stride, INDEX_DTYPE), INDEX_DTYPE)
            flat = Binary(BinaryOp.ADD, flat, step, INDEX_DTYPE)
        return self._index(flat)

    def _index(self, expr: Expr) -> Text:
        simple = simplify(expr, self.bounds)
        self._simple.append(simple)
        self._count(simple)
        return self._integers.index(simple)

    def _wide_place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Text:
        """The same in 64 bits: `(i * rows + j) * columns + k`, the first of which is converted."""
        long = self.dialect.values["int64"]
        total: Text | None = None
        for dimension, index in enumerate(indices):
            term = self._index(index)
            if buffer.strides is not None:
                stride = literal(self.dialect, buffer.strides[dimension], "int64")
                term = infix("*", converted(long, term), stride, PRODUCT)
            elif total is not None:
                total = infix("*", total, self._extent(buffer.shape[dimension]), PRODUCT)
            elif len(indices) > 1:
                term = converted(long, term)
            total = term if total is None else infix("+", total, term, SUM)
        return total or Text("0")

    def _extent(self, extent: int | Expr) -> Text:
        known = int_value(extent)
        if known is not None:
            return Text(str(known))
        assert isinstance(extent, Expr)
        return self._index(extent)


def _int_strides(buffer: Buffer) -> tuple[int, ...] | None:
    """The strides of a buffer that int can address; None for others."""
    if len(buffer.shape) == 1 and buffer.strides is None:
        return (1,)
    if any(int_value(extent) is None for extent in buffer.shape) or buffer.elements >= _INT_ELEMENTS:
        return None
    return buffer.strides or row_major_strides(buffer.constant_shape)
