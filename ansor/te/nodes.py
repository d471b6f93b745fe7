"""The node classes of expressions, and the Python operators that build them.

The classes know no arithmetic: an operator asks `ansor.te.construct`, which checks dtypes and folds
constants, at the moment of the call. See `ansor.te.expr` for what expressions are and how they compare.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Union

from ansor.errors import DefinitionError

if TYPE_CHECKING:
    from ansor.te.buffer import Buffer
    from ansor.te.tensor import Tensor

INDEX_DTYPE = "int32"
Number = Union[int, float, bool]
ExprLike = Union["Expr", int, float, bool]


class BinaryOp(StrEnum):
    """Binary operators, by the name that records and printers use."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    """True division of floats."""
    FLOORDIV = "floordiv"
    FLOORMOD = "floormod"
    """Integer division rounding towards minus infinity, and its remainder (sign of the divisor)."""
    TRUNCDIV = "truncdiv"
    TRUNCMOD = "truncmod"
    """Integer division rounding towards zero, and its remainder (sign of the dividend), as in C."""
    BITAND = "bitand"
    BITOR = "bitor"
    XOR = "xor"
    """Of the bits of two integers, in two's complement."""
    SHL = "shl"
    SHR = "shr"
    """Shifts by a count that is in `0 <= count < bits`; to the right signed integers keep their sign."""
    MIN = "min"
    MAX = "max"
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    AND = "and"
    OR = "or"


COMPARISONS = frozenset({BinaryOp.EQ, BinaryOp.NE, BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE})
LOGICAL = frozenset({BinaryOp.AND, BinaryOp.OR})
DIVISIONS = frozenset({BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD})
BITWISE = {
    BinaryOp.BITAND: "&",
    BinaryOp.BITOR: "|",
    BinaryOp.XOR: "^",
    BinaryOp.SHL: "<<",
    BinaryOp.SHR: ">>",
}
"""The operators on bits, and how they are written in Python and in C."""


def _binary(op: BinaryOp, a: ExprLike, b: ExprLike) -> Expr:
    from ansor.te.construct import binary

    return binary(op, a, b)


def _bitwise(op: BinaryOp, a: ExprLike, b: ExprLike) -> Expr:
    from ansor.te.construct import bitwise

    return bitwise(op, a, b)


def _call(name: str, *args: ExprLike) -> Expr:
    from ansor.te.construct import call

    return call(name, *args)


class Expr:
    """Base of all expression nodes: `dtype` and the Python operators."""

    __slots__ = ()
    dtype: str

    def children(self) -> tuple[Expr, ...]:
        """The direct sub-expressions, left to right (a `Reduce`: sources, then condition)."""
        return ()

    def __add__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.ADD, other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.SUB, other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.MUL, other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.DIV, other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.FLOORDIV, self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.FLOORDIV, other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.FLOORMOD, self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.FLOORMOD, other, self)

    def __pow__(self, other: ExprLike) -> Expr:
        return _call("pow", self, other)

    def __rpow__(self, other: ExprLike) -> Expr:
        return _call("pow", other, self)

    def __abs__(self) -> Expr:
        return _call("abs", self)

    def __neg__(self) -> Expr:
        from ansor.te.construct import negate

        return negate(self)

    def __lt__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.LT, self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.LE, self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.GT, self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return _binary(BinaryOp.GE, self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        from ansor.te.construct import equality

        return equality(BinaryOp.EQ, self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        from ansor.te.construct import equality

        return equality(BinaryOp.NE, self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.BITAND, self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.BITAND, other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.BITOR, self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.BITOR, other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.XOR, self, other)

    def __rxor__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.XOR, other, self)

    def __lshift__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.SHL, self, other)

    def __rlshift__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.SHL, other, self)

    def __rshift__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.SHR, self, other)

    def __rrshift__(self, other: ExprLike) -> Expr:
        return _bitwise(BinaryOp.SHR, other, self)

    def __invert__(self) -> Expr:
        from ansor.te.construct import inverted

        return inverted(self)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise DefinitionError(
            f"the expression `{self}` has no truth value while the program is being described; "
            "use te.if_then_else / te.select for a choice, te.maximum / te.minimum for the greater or "
            "smaller value, te.all / te.any (or & and |) to combine conditions"
        )

    def astype(self, dtype: str) -> Expr:
        """Convert to `dtype`, as `te.cast`."""
        from ansor.te.construct import cast

        return cast(self, dtype)

    def __str__(self) -> str:
        from ansor.te.printer import format_expr

        return format_expr(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lstrip('_')} {self}: {self.dtype}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """A literal of `dtype`; `value` is a Python int, float or bool.

    A float literal keeps the value that was written and is rounded to its dtype where it is used.
    A bool literal may be truth-tested (`c == None` on an expression is one).
    """

    value: Number
    dtype: str

    def __bool__(self) -> bool:
        return bool(self.value) if self.dtype == "bool" else Expr.__bool__(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """A named scalar: a symbolic size, a loop variable, a combiner's argument. Identity is the name."""

    name: str
    dtype: str = INDEX_DTYPE


class AxisKind(StrEnum):
    """What a loop over an axis does to the result."""

    SPATIAL = "spatial"
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IterVar(Var):
    """An axis of a compute operation, running over `0 <= axis < extent`.

    Users may give a reduction axis a `begin`; te adds it to every occurrence when the reduction is
    built, so that in an operation all axes run from 0 and nobody else reads `begin`.

    `unnamed` marks an axis that the user gave no name: `te.compute` may number its name, and the axis with
    the number, which stands for the user's, has the same mark.
    """

    name: str
    dtype: str = INDEX_DTYPE
    extent: Expr = field(default_factory=lambda: Const(1, INDEX_DTYPE))
    kind: AxisKind = AxisKind.SPATIAL
    begin: Expr = field(default_factory=lambda: Const(0, INDEX_DTYPE))
    unnamed: object | None = None

    def stands_for(self, axis: Var) -> bool:
        """Whether this is the axis, or one that `te.compute` made of it."""
        if self is axis:
            return True
        return isinstance(axis, IterVar) and self.unnamed is not None and self.unnamed is axis.unnamed


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Expr):
    """`op` applied to `a` and `b`, which share a dtype; comparisons and logic give bool."""

    op: BinaryOp
    a: Expr
    b: Expr
    dtype: str

    def children(self) -> tuple[Expr, ...]:
        return self.a, self.b


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Expr):
    """Logical negation of the bool `a`."""

    a: Expr
    dtype: str = "bool"

    def children(self) -> tuple[Expr, ...]:
        return (self.a,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    """`a` converted to `dtype`: float to int truncates, int to narrower int wraps, to bool is `!= 0`."""

    a: Expr
    dtype: str

    def children(self) -> tuple[Expr, ...]:
        return (self.a,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """`then` where `cond` holds, else `other`.

    With `lazy` (te.if_then_else) only the chosen side is evaluated, so the other may read out of
    bounds; without it (te.select) both sides must be safe to evaluate.
    """

    cond: Expr
    then: Expr
    other: Expr
    lazy: bool
    dtype: str

    def children(self) -> tuple[Expr, ...]:
        return self.cond, self.then, self.other


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """An intrinsic function, one of `INTRINSICS`, applied to `args`, which share the node's dtype."""

    name: str
    args: tuple[Expr, ...]
    dtype: str

    def children(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Read(Expr):
    """An element of `tensor`; indices are integer expressions, one per dimension."""

    tensor: Tensor
    indices: tuple[Expr, ...]
    dtype: str

    def children(self) -> tuple[Expr, ...]:
        return self.indices


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(Expr):
    """An element of `buffer`, in a loop nest; indices count elements, one per dimension."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str

    def children(self) -> tuple[Expr, ...]:
        return self.indices


@dataclass(frozen=True, slots=True, eq=False)
class Combiner:
    """An associative, commutative function on tuples of scalars, with its identity.

    `result[i]` is an expression over `lhs` and `rhs`; `identity[i]` its neutral element. `name` is
    "sum", "prod", "min", "max" for the built-in ones, else the user's name.
    """

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Expr):
    """Element `index` of the reduction of `sources` over `axes`; only legal as the root of a body.

    The outputs of one multi-output reduction share `combiner`, `sources` and `axes` (same objects).
    Where `condition` is given, iterations at which it is false contribute the identity.
    """

    combiner: Combiner
    sources: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    index: int
    dtype: str
    condition: Expr | None = None

    def children(self) -> tuple[Expr, ...]:
        return self.sources if self.condition is None else (*self.sources, self.condition)


INTRINSICS: dict[str, int] = {
    **dict.fromkeys(
        (
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log1p",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tan",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "sigmoid",
            "erf",
            "abs",
            "floor",
            "ceil",
            "round",
        ),
        1,
    ),
    "pow": 2,
    "fma": 3,
}
"""Intrinsic functions by number of arguments. All take and give one float dtype, and "abs" also integers;
"round" rounds halves to even; "fma" is a * b + c rounded once."""


FLOAT_MAX: dict[str, float] = {
    "float64": (2.0 - 2.0**-52) * 2.0**1023,
    "float32": (2.0 - 2.0**-23) * 2.0**127,
    "float16": (2.0 - 2.0**-10) * 2.0**15,
    "bfloat16": (2.0 - 2.0**-7) * 2.0**127,
}
"""The greatest finite value of each float dtype."""
