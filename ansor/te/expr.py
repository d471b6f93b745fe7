"""Scalar expressions: the one node family shared by tensor expressions and loop nests.

A tensor expression reads tensors (`Read`) and may be one reduction (`Reduce`) at its root; a loop nest
reads buffers (`Load`) and holds neither of the two. All other nodes mean the same at both levels, so
interpreters, printers and code generators share them.

Two doors: the Python operators and the functions below check dtypes and fold constants; the raw
dataclass constructors do neither and are meant for passes that already know what they build.

Nodes are immutable and compare by identity: `a == b` *builds* an equality expression, hashing uses the
identity, and truth-testing an expression is refused except for `==`/`!=`, which answer whether the two
sides are the same node (so that `axis in axes` works).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Union

from ansor.dtypes import dtype_info, int_range, is_float
from ansor.errors import DefinitionError

if TYPE_CHECKING:
    from ansor.ir.nest import Buffer
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
INTEGER_ONLY = frozenset({BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD})


class Expr:
    """Base of all expression nodes: `dtype` and the Python operators."""

    __slots__ = ()
    dtype: str

    def __add__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.ADD, other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.SUB, other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.MUL, other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.DIV, other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.FLOORDIV, self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.FLOORDIV, other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.FLOORMOD, self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.FLOORMOD, other, self)

    def __pow__(self, other: ExprLike) -> Expr:
        return call("pow", self, other)

    def __rpow__(self, other: ExprLike) -> Expr:
        return call("pow", other, self)

    def __abs__(self) -> Expr:
        return call("abs", self)

    def __neg__(self) -> Expr:
        zero = const(-0.0 if is_float(self.dtype) else 0, self.dtype)  # -0.0 - 0.0 is -0.0, as it should be
        return binary(BinaryOp.SUB, zero, self)

    def __lt__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.LT, self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.LE, self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.GT, self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.GE, self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _equality(BinaryOp.EQ, self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _equality(BinaryOp.NE, self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.AND, self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.AND, other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.OR, self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return binary(BinaryOp.OR, other, self)

    def __invert__(self) -> Expr:
        return logical_not(self)

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise DefinitionError(
            f"the expression `{self}` has no truth value while the program is being described; "
            "use te.if_then_else / te.select for a choice, te.all / te.any (or & and |) to combine conditions"
        )

    def astype(self, dtype: str) -> Expr:
        """Convert to `dtype`, as `te.cast`."""
        return cast(self, dtype)

    def __str__(self) -> str:
        from ansor.te.printer import format_expr

        return format_expr(self)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A literal of `dtype`; `value` is a Python int, float or bool.

    A float literal keeps the value that was written and is rounded to its dtype where it is used.
    A bool literal may be truth-tested (`c == None` on an expression is one).
    """

    value: Number
    dtype: str

    def __bool__(self) -> bool:
        return bool(self.value) if self.dtype == "bool" else Expr.__bool__(self)


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """A named scalar: a symbolic size, a loop variable, a combiner's argument. Identity is the name."""

    name: str
    dtype: str = INDEX_DTYPE


class AxisKind(StrEnum):
    """What a loop over an axis does to the result."""

    SPATIAL = "spatial"
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True, eq=False)
class IterVar(Var):
    """An axis of a compute operation, running over `0 <= axis < extent`.

    Users may give a reduction axis a `begin`; te adds it to every occurrence when the reduction is
    built, so that in an operation all axes run from 0 and nobody else reads `begin`.
    """

    name: str
    dtype: str = INDEX_DTYPE
    extent: Expr = field(default_factory=lambda: Const(1, INDEX_DTYPE))
    kind: AxisKind = AxisKind.SPATIAL
    begin: Expr = field(default_factory=lambda: Const(0, INDEX_DTYPE))


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Expr):
    """`op` applied to `a` and `b`, which share a dtype; comparisons and logic give bool."""

    op: BinaryOp
    a: Expr
    b: Expr
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Not(Expr):
    """Logical negation of the bool `a`."""

    a: Expr
    dtype: str = "bool"


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Expr):
    """`a` converted to `dtype`: float to int truncates, int to narrower int wraps, to bool is `!= 0`."""

    a: Expr
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expr):
    """An intrinsic function, one of `INTRINSICS`, applied to `args`, which share the node's dtype."""

    name: str
    args: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Read(Expr):
    """An element of `tensor`; indices are integer expressions, one per dimension."""

    tensor: Tensor
    indices: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Load(Expr):
    """An element of `buffer`, in a loop nest; indices count elements, one per dimension."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str


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


@dataclass(frozen=True, slots=True, eq=False)
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


INTRINSICS: dict[str, int] = {
    **dict.fromkeys(
        ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "abs", "floor", "ceil", "round"), 1
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


# -- smart constructors ------------------------------------------------------------------------------


def const(value: Number, dtype: str | None = None) -> Const:
    """A literal; the default dtype is int32, float32 or bool by the Python type.

    Raises
    ------
    DefinitionError
        If the value does not fit the dtype.
    """
    if not isinstance(value, (bool, int, float)):
        item = getattr(value, "item", None)
        if item is None:
            raise DefinitionError(f"expected a number, found {value!r} of type {type(value).__name__}")
        value = item()
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else INDEX_DTYPE if isinstance(value, int) else "float32"
    info = dtype_info(dtype)
    if info.kind == "float":
        if FLOAT_MAX[dtype] < abs(value) < math.inf:
            raise DefinitionError(
                f"the constant {value!r} does not fit {dtype} (at most {FLOAT_MAX[dtype]:g})"
            )
        return Const(float(value), dtype)
    if info.kind == "bool":
        return Const(bool(value), dtype)
    if isinstance(value, float) and not value.is_integer():
        raise DefinitionError(
            f"the constant {value!r} is not an integer and cannot be {dtype}; cast the other operand to float"
        )
    low, high = int_range(dtype)
    if not low <= int(value) <= high:
        raise DefinitionError(f"the constant {value!r} does not fit {dtype} ({low}..{high})")
    return Const(int(value), dtype)


def as_expr(value: ExprLike, dtype: str | None = None) -> Expr:
    """`value` itself if it is an expression, else a constant of `dtype`."""
    if isinstance(value, Expr):
        return value
    return const(value, dtype)


def int_value(expr: Expr | int) -> int | None:
    """The Python int of an integer constant, else None."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, Const) and isinstance(expr.value, int):
        return int(expr.value)
    return None


def _match(op: str, a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    """Bring two operands to one dtype: Python numbers adopt the other side's, expressions must agree."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        both = "float32" if isinstance(a, float) or isinstance(b, float) else INDEX_DTYPE
        return const(a, both), const(b, both)
    if not isinstance(a, Expr):
        assert isinstance(b, Expr)
        return const(a, b.dtype), b
    if not isinstance(b, Expr):
        return a, const(b, a.dtype)
    if a.dtype != b.dtype:
        raise DefinitionError(
            f"`{op}` of {a.dtype} `{a}` and {b.dtype} `{b}`: dtypes differ; "
            f"cast one side, e.g. te.cast(..., {a.dtype!r})"
        )
    return a, b


def binary(op: BinaryOp, a: ExprLike, b: ExprLike) -> Expr:
    """`op(a, b)` with dtype checks, constant folding and the neutral elements of integers removed.

    Raises
    ------
    DefinitionError
        If the operand dtypes differ or the operator is not defined for them.
    """
    for side in (a, b):
        refuse_tensor(str(op), side)
    x, y = _match(str(op), a, b)
    info = dtype_info(x.dtype)
    if op in LOGICAL and info.kind != "bool":
        raise DefinitionError(f"`{op}` needs conditions, found {x.dtype} `{x}` and `{y}`")
    if op in INTEGER_ONLY and info.kind not in ("int", "uint"):
        raise DefinitionError(f"`{op}` is for integers, found {x.dtype} `{x}`")
    if op is BinaryOp.DIV and info.kind != "float":
        raise DefinitionError(
            f"`/` is for floats, found {x.dtype} `{x}`; use // (floor), te.truncdiv, or cast to float"
        )
    if info.kind == "bool" and op not in LOGICAL and op not in COMPARISONS:
        raise DefinitionError(f"`{op}` is not defined for bool `{x}`; cast it first")
    dtype = "bool" if op in COMPARISONS or op in LOGICAL else x.dtype
    return _fold(op, x, y, dtype)


def _fold(op: BinaryOp, x: Expr, y: Expr, dtype: str) -> Expr:
    """`Binary` with constants evaluated and trivial integer identities applied."""
    if op in INTEGER_ONLY and int_value(y) == 0:
        raise DefinitionError(f"`{op}` of `{x}` by zero")
    if isinstance(x, Const) and isinstance(y, Const) and not is_float(x.dtype):
        value = FOLDERS[op](x.value, y.value)
        return Const(wrap_int(int(value), dtype) if dtype != "bool" else bool(value), dtype)
    if op in LOGICAL:
        for one, rest in ((x, y), (y, x)):
            if isinstance(one, Const):
                absorbing = op is BinaryOp.OR
                return one if bool(one.value) is absorbing else rest
    if not is_float(x.dtype):
        vx, vy = int_value(x), int_value(y)
        if op is BinaryOp.ADD and (vx == 0 or vy == 0):
            return y if vx == 0 else x
        if op is BinaryOp.SUB and vy == 0:
            return x
        if op is BinaryOp.MUL and (vx == 1 or vy == 1):
            return y if vx == 1 else x
        if op is BinaryOp.MUL and (vx == 0 or vy == 0):
            return x if vx == 0 else y
        if op in (BinaryOp.FLOORDIV, BinaryOp.TRUNCDIV) and vy == 1:
            return x
        if op in (BinaryOp.FLOORMOD, BinaryOp.TRUNCMOD) and vy == 1:
            return Const(0, dtype)
    return Binary(op, x, y, dtype)


def wrap_int(value: int, dtype: str) -> int:
    """`value` reduced to the range of an integer dtype, two's complement."""
    low, high = int_range(dtype)
    return (value - low) % (high - low + 1) + low


def _trunc_div(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


FOLDERS: dict[BinaryOp, Callable[[Number, Number], Number]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.DIV: lambda a, b: a / b if b else math.nan,
    BinaryOp.FLOORDIV: lambda a, b: a // b,
    BinaryOp.FLOORMOD: lambda a, b: a % b,
    BinaryOp.TRUNCDIV: lambda a, b: _trunc_div(int(a), int(b)),
    BinaryOp.TRUNCMOD: lambda a, b: int(a) - int(b) * _trunc_div(int(a), int(b)),
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
    BinaryOp.EQ: lambda a, b: a == b,
    BinaryOp.NE: lambda a, b: a != b,
    BinaryOp.LT: lambda a, b: a < b,
    BinaryOp.LE: lambda a, b: a <= b,
    BinaryOp.GT: lambda a, b: a > b,
    BinaryOp.GE: lambda a, b: a >= b,
    BinaryOp.AND: lambda a, b: bool(a) and bool(b),
    BinaryOp.OR: lambda a, b: bool(a) or bool(b),
}
"""What each operator does to two Python numbers (integer results are not yet wrapped to a dtype)."""


@dataclass(frozen=True, slots=True, eq=False)
class _IdentityTest(Binary):
    """An `==` or `!=` expression, which alone may be truth-tested: are both sides the same node?"""

    def __bool__(self) -> bool:
        return (self.a is self.b) == (self.op is BinaryOp.EQ)


def _equality(op: BinaryOp, a: Expr, b: object) -> Expr:
    if not isinstance(b, (Expr, int, float, bool)):
        return Const(op is BinaryOp.NE, "bool")  # an expression never equals a foreign object
    if isinstance(b, Expr) and a.dtype != b.dtype:
        return MixedIdentityTest(op, a, b, "bool")
    x, y = _match(str(op), a, b)
    if isinstance(x, Const) and isinstance(y, Const):
        return Const(bool(FOLDERS[op](x.value, y.value)), "bool")
    return _IdentityTest(op, x, y, "bool")


@dataclass(frozen=True, slots=True, eq=False)
class MixedIdentityTest(_IdentityTest):
    """`==` of two dtypes: fine as an identity test (list membership), refused as part of a program."""


def refuse_tensor(what: str, value: object) -> None:
    """Raise a `DefinitionError` unless `value` can be an operand of `what`: an expression or a number."""
    if isinstance(value, (Expr, int, float, bool)) or hasattr(value, "item"):
        return
    name = getattr(value, "name", None)
    if name is not None and hasattr(value, "shape"):
        raise DefinitionError(
            f"`{what}` is given the whole tensor {name!r}; index it, e.g. {name}[i], inside te.compute"
        )
    raise DefinitionError(f"`{what}` is given {value!r} of type {type(value).__name__}, not an expression")


def cast(value: ExprLike, dtype: str) -> Expr:
    """`value` converted to `dtype` (see `Cast`); a no-op if it has that dtype already."""
    dtype_info(dtype)
    refuse_tensor("cast", value)
    expr = as_expr(value)
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Const) and not is_float(expr.dtype):
        if dtype_info(dtype).kind in ("int", "uint"):
            return Const(wrap_int(int(expr.value), dtype), dtype)
        return const(expr.value, dtype) if is_float(dtype) else Const(bool(expr.value), "bool")
    return Cast(expr, dtype)


def select(cond: ExprLike, then: ExprLike, other: ExprLike, *, lazy: bool = False) -> Expr:
    """See `Select`; `cond` is bool, both sides share a dtype."""
    name = "if_then_else" if lazy else "select"
    for value in (cond, then, other):
        refuse_tensor(name, value)
    condition = as_expr(cond)
    if condition.dtype != "bool":
        raise DefinitionError(f"`{name}` needs a condition, found {condition.dtype} `{condition}`")
    x, y = _match(name, then, other)
    if isinstance(condition, Const):
        return x if condition.value else y
    return Select(condition, x, y, lazy, x.dtype)


def logical_not(value: ExprLike) -> Expr:
    """Negation of a condition."""
    expr = as_expr(value)
    if expr.dtype != "bool":
        raise DefinitionError(f"`not` needs a condition, found {expr.dtype} `{expr}`")
    if isinstance(expr, Const):
        return Const(not expr.value, "bool")
    return expr.a if isinstance(expr, Not) else Not(expr)


def call(name: str, *args: ExprLike) -> Expr:
    """The intrinsic `name` applied to `args` (see `INTRINSICS`)."""
    for arg in args:
        refuse_tensor(name, arg)
    arity = INTRINSICS.get(name)
    if arity is None:
        raise DefinitionError(f"unknown intrinsic {name!r}; there are {', '.join(sorted(INTRINSICS))}")
    if len(args) != arity:
        raise DefinitionError(f"`{name}` takes {arity} argument(s), found {len(args)}")
    typed = next((arg.dtype for arg in args if isinstance(arg, Expr)), "float32")
    exprs = tuple(as_expr(arg, typed) for arg in args)
    for expr in exprs:
        if expr.dtype != typed:
            raise DefinitionError(f"`{name}` of mixed dtypes {typed} and {expr.dtype}; cast one side")
    if not is_float(typed) and not (name == "abs" and dtype_info(typed).kind in ("int", "uint")):
        raise DefinitionError(f"`{name}` is for floats, found {typed} `{exprs[0]}`; cast it first")
    return Call(name, exprs, typed)


# -- traversal ---------------------------------------------------------------------------------------


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions, left to right (a `Reduce`: sources, then condition)."""
    match expr:
        case Binary(a=a, b=b):
            return (a, b)
        case Not(a=a) | Cast(a=a):
            return (a,)
        case Select(cond=cond, then=then, other=other):
            return (cond, then, other)
        case Call(args=args):
            return args
        case Read(indices=indices) | Load(indices=indices):
            return indices
        case Reduce(sources=sources, condition=condition):
            return sources if condition is None else (*sources, condition)
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """All nodes of `expr`, children before parents, shared nodes once per path."""
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, children_done = stack.pop()
        inner = () if children_done else children(node)
        if inner:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(inner))
        else:
            yield node


def distinct_nodes(expr: Expr) -> Iterator[Expr]:
    """The nodes of `expr` as `walk` gives them, but each shared node only the first time."""
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, children_done = stack.pop()
        if children_done:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children(node)))


def with_children(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """`expr` over other children (raw, no folding); the same object if they are the same objects."""
    if all(a is b for a, b in zip(children(expr), new, strict=True)):
        return expr
    match expr:
        case Binary(op=op, dtype=dtype):
            return Binary(op, new[0], new[1], dtype)
        case Not():
            return Not(new[0])
        case Cast(dtype=dtype):
            return Cast(new[0], dtype)
        case Select(lazy=lazy, dtype=dtype):
            return Select(new[0], new[1], new[2], lazy, dtype)
        case Call(name=name, dtype=dtype):
            return Call(name, new, dtype)
        case Read(tensor=tensor, dtype=dtype):
            return Read(tensor, new, dtype)
        case Load(buffer=buffer, dtype=dtype):
            return Load(buffer, new, dtype)
        case Reduce() as r:
            count = len(r.sources)
            condition = new[count] if r.condition is not None else None
            return Reduce(r.combiner, new[:count], r.axes, r.index, r.dtype, condition)
        case _:
            return expr


def rewrite(expr: Expr, visit: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild `expr` bottom-up; `visit(node)` (its children already rewritten) may give a replacement.

    A shared node is visited once and stays shared.
    """
    done: dict[int, Expr] = {}
    for node in distinct_nodes(expr):
        inner = children(node)
        rebuilt = with_children(node, tuple(done[id(child)] for child in inner)) if inner else node
        replacement = visit(rebuilt)
        done[id(node)] = rebuilt if replacement is None else replacement
    return done[id(expr)]


def substitute(expr: Expr, mapping: dict[Var, Expr]) -> Expr:
    """`expr` with variables replaced (by identity); index arithmetic is folded again where it changes."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return mapping.get(node)
        if isinstance(node, Binary) and not is_float(node.a.dtype):
            return _fold(node.op, node.a, node.b, node.dtype)
        return None

    return rewrite(expr, visit)


def free_vars(expr: Expr) -> set[Var]:
    """All variables that occur, reduction axes included."""
    return {node for node in distinct_nodes(expr) if isinstance(node, Var)}
