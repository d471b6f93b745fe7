"""Expressions to values.

An integer expression of variables alone is an *index*: it stays an `Affine` form, which is exact, until a
value is needed. Everything else becomes instructions, and so do values of variables alone that may wrap
(`ansor.codegen.overflow`). In a vector loop each sub-expression is a scalar as long as it is the same in
all lanes.

A choice (`Select`) on a condition known while the code is written takes one side. A lazy one
(te.if_then_else) on lanes evaluates each side under a mask; on a scalar condition it evaluates both sides,
loads guarded, if they are cheap, and branches otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import copysign
from typing import Generic, TypeVar

from ansor.codegen.llvm import halves, mathlib, quotients
from ansor.codegen.llvm.conversions import convert
from ansor.codegen.llvm.dtype_map import is_narrow_float, literal, register_type
from ansor.codegen.llvm.index import Affine, IndexMath, add, constant, scale
from ansor.codegen.llvm.integer_division import divided_integers
from ansor.codegen.llvm.memory import ALWAYS, HALVES, Memory, Under
from ansor.codegen.llvm.offsets import Offsets
from ansor.codegen.llvm.text import Value, vector_type
from ansor.codegen.llvm.vectors import Vectors
from ansor.codegen.machine import Machine
from ansor.codegen.overflow import Overflow
from ansor.dtypes import dtype_info, int_range, is_float
from ansor.errors import BuildError
from ansor.ir.nest import Buffer
from ansor.ir.rewriting import reads_memory
from ansor.ir.strides import whole_number
from ansor.te.expr import (
    BITWISE,
    COMPARISONS,
    FOLDERS,
    INDEX_DTYPE,
    LOGICAL,
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
    free_vars,
    used_by_both,
)

_CHEAP_CALLS = frozenset({"abs", "floor", "ceil", "round", "sqrt", "fma"})
_CHEAP_NODES = 48
_FLOAT_OPS = {
    BinaryOp.ADD: "fadd contract",
    BinaryOp.SUB: "fsub contract",
    BinaryOp.MUL: "fmul contract",
}
_INT_OPS = {BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul"}
_BIT_OPS = {
    BinaryOp.BITAND: "and",
    BinaryOp.BITOR: "or",
    BinaryOp.XOR: "xor",
    BinaryOp.SHL: "shl",
    BinaryOp.SHR: "ashr",
}
_WRAPPING = frozenset({*_INT_OPS, BinaryOp.FLOORDIV, BinaryOp.TRUNCDIV})
_FLOAT_PREDICATES = {
    BinaryOp.EQ: "oeq",
    BinaryOp.NE: "une",
    BinaryOp.LT: "olt",
    BinaryOp.LE: "ole",
    BinaryOp.GT: "ogt",
    BinaryOp.GE: "oge",
}


@dataclass(frozen=True, slots=True, eq=False)
class Env:
    """
    Where an expression is evaluated.

    Attributes
    ----------
    vars
        What its variables are.
    under
        Under what condition (see `Under`).
    wider
        The same place without the last part of the condition: what is known there is known here.
    """

    vars: Mapping[Var, Affine | Value]
    under: Under = ALWAYS
    wider: Env | None = None

    def bind(self, var: Var, value: Affine | Value) -> Env:
        """The same place with one more variable."""
        return Env({**self.vars, var: value}, self.under)


_T = TypeVar("_T")


class _Memo(Generic[_T]):
    """What expressions were found to be, by place; an entry keeps its place, lest another gets its id."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], tuple[Env, _T]] = {}

    def clear(self) -> None:
        self._found.clear()

    def get(self, expr: Expr, env: Env) -> _T | None:
        """What was found before, here or under a part of the condition alone."""
        place: Env | None = env
        while place is not None:
            found = self._found.get((id(expr), id(place)))
            if found is not None:
                return found[1]
            place = place.wider
        return None

    def put(self, expr: Expr, env: Env, found: _T) -> _T:
        """Keep what was found, and give it back."""
        self._found[id(expr), id(env)] = env, found
        return found


class Expressions:
    """Expression emission for one function."""

    def __init__(self, memory: Memory, vectors: Vectors, machine: Machine, overflow: Overflow) -> None:
        self.memory = memory
        self.vectors = vectors
        self.fn = vectors.fn
        self.math: IndexMath = vectors.index
        self.machine = machine
        self.overflow = overflow
        self._cheap: dict[int, bool] = {}
        self._offsets = Offsets(self.math, overflow)
        self._strides: dict[Buffer, tuple[int | Affine, ...]] = {}
        self._variables: dict[Expr, tuple[Var, ...]] = {}
        self._constants: dict[Const, Value] = {}
        self._values = _Memo[Value]()
        self._indices = _Memo[Affine]()
        self._conds = _Memo[Value | bool]()

    def forget(self) -> None:
        """Start a new statement: shared sub-expressions are evaluated once per statement and place."""
        for memo in (self._values, self._indices, self._conds):
            memo.clear()

    # -- indices -------------------------------------------------------------------------------------

    def index_like(self, expr: Expr) -> bool:
        """See `Overflow.is_index`."""
        return self.overflow.is_index(expr)

    def index(self, expr: Expr, env: Env) -> Affine:
        """The integer expression as a 64-bit index, exact but where it turns (`Overflow.turns`)."""
        if isinstance(expr, Const):
            return constant(int(expr.value))
        if isinstance(expr, Var):
            bound = self._bound(expr, env)
            return bound if isinstance(bound, Affine) else self._loaded_index(bound, expr.dtype)
        found = self._indices.get(expr, env)
        return self._indices.put(expr, env, self._index(expr, env)) if found is None else found

    def _index(self, expr: Expr, env: Env) -> Affine:
        if isinstance(expr, Binary) and expr.dtype in ("int32", "int64"):
            return self._binary_index(expr, env)
        if isinstance(expr, Cast) and self.index_like(expr):
            return self.index(expr.a, env)
        if isinstance(expr, Select) and self.index_like(expr):
            cond = self.cond(expr.cond, env)
            return self.math.choose_int(cond, self.index(expr.then, env), self.index(expr.other, env))
        return self._loaded_index(self.value(expr, env), expr.dtype)

    def _binary_index(self, expr: Binary, env: Env) -> Affine:
        op, math = expr.op, self.math
        if op in BITWISE:
            return self._bitwise_index(expr, env)
        if self.overflow.turns(expr):
            return self._loaded_index(self.value(expr, env), expr.dtype)
        operand = self.index if op in _INT_OPS else self._wrapped
        a, b = operand(expr.a, env), operand(expr.b, env)
        if op is BinaryOp.ADD:
            return add(a, b)
        if op is BinaryOp.SUB:
            return add(a, b, -1)
        if op is BinaryOp.MUL:
            return scale(a, b.const) if not b.terms else math.multiply(a, b)
        match op:
            case BinaryOp.FLOORDIV:
                return math.floordiv(a, b)
            case BinaryOp.FLOORMOD:
                return math.floormod(a, b)
            case BinaryOp.TRUNCDIV:
                return math.truncdiv(a, b)
            case BinaryOp.TRUNCMOD:
                return math.truncmod(a, b)
            case BinaryOp.MIN:
                return math.extreme(a, b, least=True)
            case BinaryOp.MAX:
                return math.extreme(a, b, least=False)
            case _:
                raise BuildError(f"the operator `{op}` is not for indices: `{expr}`")

    def _bitwise_index(self, expr: Binary, env: Env) -> Affine:
        """An operator on the bits of indices; of anything else in as many bits as there are."""
        if not self.index_like(expr):
            return self._loaded_index(self.value(expr, env), expr.dtype)
        a, b = self.index(expr.a, env), self.index(expr.b, env)
        if not a.terms and not b.terms:
            return constant(int(FOLDERS[expr.op](a.const, b.const)))
        return self.math.operate(_BIT_OPS[expr.op], a, b, *self.math.interval_of(expr.op, a, b))

    def _wrapped(self, expr: Expr, env: Env) -> Affine:
        """The same of what is divided or compared: there it matters that a result wraps.

        That is of sums and products, and of the quotient of the least integer and -1.
        """
        form = self.index(expr, env)
        if not isinstance(expr, Binary) or expr.op not in _WRAPPING or self.index_like(expr):
            return form
        (low, high), (least, greatest) = self.math.interval(form), int_range(expr.dtype)
        if low is not None and high is not None and least <= low and high <= greatest:
            return form
        return self._loaded_index(self.value(expr, env), expr.dtype)

    def _loaded_index(self, value: Value, dtype: str) -> Affine:
        """A value of an integer dtype as an index."""
        info = dtype_info(dtype)
        if not value.text.startswith("%") and value.lanes == 1:
            return constant(int(value.text) if info.kind == "int" else int(value.text) % (1 << info.bits))
        low, high = (0, (1 << info.bits) - 1) if info.kind == "uint" else (None, None)
        if info.kind == "int" and info.bits < 64:
            low, high = -(1 << (info.bits - 1)), (1 << (info.bits - 1)) - 1
        if info.bits < 64:
            value = self.vectors.convert("sext" if info.kind == "int" else "zext", value, "i64")
        return self.math.atom(value, low, high)

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...], env: Env) -> Affine:
        """The row-major (or strided) element offset of an access."""
        strides = self._strides_of(buffer, env)
        known = self._offsets.offset(indices, strides, env, self.index)
        if known is not None:
            return known
        simplifier = self.overflow.bounds.simplifier
        if any(not isinstance(stride, int) for stride in strides):
            whole = whole_number(simplifier, buffer, indices)
            if whole is not None:
                return self.index(simplifier.table.build(whole, INDEX_DTYPE), env)
        total = constant(0)
        for index, stride in zip(indices, strides, strict=True):
            form = self.index(index, env)
            if isinstance(stride, int):
                total = add(total, form, stride)
            else:
                total = add(total, self.math.multiply(form, stride))
        return self.math.joined(total)

    def _strides_of(self, buffer: Buffer, env: Env) -> tuple[int | Affine, ...]:
        known = self._strides.get(buffer)
        if known is not None:
            return known
        rows = self.memory.pointers[buffer].rows
        fixed = buffer.strides if rows is None else rows.strides(buffer.constant_shape)
        if fixed is not None:
            self._strides[buffer] = fixed
            return fixed
        extents = [constant(e) if isinstance(e, int) else self.index(e, env) for e in buffer.shape]
        strides = [constant(1)]
        for extent in reversed(extents[1:]):
            strides.insert(0, self.math.multiply(strides[0], extent))
        strides = strides[: len(extents)]
        found: tuple[int | Affine, ...] = tuple(strides)
        if all(not stride.terms for stride in strides):
            found = tuple(stride.const for stride in strides)
        if all(self.math.depth(stride) == 0 for stride in strides):  # Known everywhere, not here alone.
            self._strides[buffer] = found
        return found

    def _bound(self, var: Var, env: Env) -> Affine | Value:
        bound = env.vars.get(var)
        if bound is None:
            raise BuildError(f"the variable {var.name!r} is used outside the loop that defines it")
        return bound

    # -- conditions ----------------------------------------------------------------------------------

    def cond(self, expr: Expr, env: Env) -> Value | bool:
        """The bool expression: a Python bool where it is known now, else an i1 value."""
        if isinstance(expr, Const):
            return bool(expr.value)
        if isinstance(expr, Not) or (isinstance(expr, Binary) and expr.op in LOGICAL):
            found = self._conds.get(expr, env)
            return self._conds.put(expr, env, self._logical(expr, env)) if found is None else found
        if isinstance(expr, Binary) and expr.op in COMPARISONS:
            if self.index_like(expr.a) and self.index_like(expr.b):
                return self._compare_indices(expr, env)
            return self._compare(expr, env)
        value = self.value(expr, env)
        return value.text == "true" if value.text in ("true", "false") else value

    def _logical(self, expr: Binary | Not, env: Env) -> Value | bool:
        if isinstance(expr, Not):
            inner = self.cond(expr.a, env)
            return not inner if isinstance(inner, bool) else self.vectors.negation(inner)
        absorbing = expr.op is BinaryOp.OR
        a = self.cond(expr.a, env)
        if isinstance(a, bool):
            return a if a is absorbing else self.cond(expr.b, env)
        b = self.cond(expr.b, env)
        if isinstance(b, bool):
            return b if b is absorbing else a
        x, y, lanes, depth = self.vectors.pair(a, b)
        opcode = "or" if absorbing else "and"
        full = vector_type(x.type, lanes)
        return self.fn.pure(f"{opcode} {full} {x.text}, {y.text}", "i1", lanes, depth)

    def _compare_indices(self, expr: Binary, env: Env) -> Value | bool:
        """A comparison of indices, made once in a scope for the same bindings of its variables."""
        variables = self._variables.get(expr)
        if variables is None:
            variables = self._variables[expr] = tuple(free_vars(expr))
        known, key = self.fn.known, (expr, *map(env.vars.get, variables))
        found: Value | bool | None = known.get(key)
        if found is None:
            a, b = self.index(expr.a, env), self.index(expr.b, env)
            found = known[key] = self.math.compare(str(expr.op), a, b)
        return found

    def _compare(self, expr: Binary, env: Env) -> Value:
        kind = dtype_info(expr.a.dtype).kind
        op = expr.op
        if kind == "float":
            predicate = _FLOAT_PREDICATES[op]
        elif op in (BinaryOp.EQ, BinaryOp.NE):
            predicate = str(op)
        else:
            predicate = f"s{op}" if kind == "int" else f"u{op}"
        return self.vectors.compare(predicate, self.value(expr.a, env), self.value(expr.b, env))

    # -- values --------------------------------------------------------------------------------------

    def value(self, expr: Expr, env: Env) -> Value:
        """The register value of `expr`: a scalar if it is the same in all lanes."""
        if isinstance(expr, Const):
            return self._constant(expr)
        if isinstance(expr, Var):
            bound = self._bound(expr, env)
            return bound if isinstance(bound, Value) else self._integer(bound, expr.dtype, env)
        found = self._values.get(expr, env)
        return self._values.put(expr, env, self._value(expr, env)) if found is None else found

    def _value(self, expr: Expr, env: Env) -> Value:
        match expr:
            case Load(buffer=buffer, indices=indices):
                return self.memory.load(buffer, self.offset(buffer, indices, env), env.under)
            case Binary() | Not() if expr.dtype == "bool":
                cond = self.cond(expr, env)
                return Value(str(cond).lower(), "i1") if isinstance(cond, bool) else cond
            case Binary() | Select() if self.index_like(expr):
                return self._integer(self.index(expr, env), expr.dtype, env)
            case Binary():
                return self._arithmetic(expr, env)
            case Select():
                return self._select(expr, env)
            case Cast(a=a):
                return self._cast(a, expr.dtype, env)
            case Call(name=name, args=args):
                values = [self.value(arg, env) for arg in args]
                return mathlib.call(self.vectors, name, values, expr.dtype)
            case _:
                raise BuildError(f"a {type(expr).__name__} has no place in a loop nest: `{expr}`")

    def _constant(self, expr: Const) -> Value:
        known = self._constants.get(expr)
        if known is None:
            text = literal(expr.value, expr.dtype, self.machine)
            known = self._constants[expr] = Value(text, self._type(expr.dtype))
        return known

    def _type(self, dtype: str) -> str:
        return register_type(dtype, self.machine)

    def _integer(self, index: Affine, dtype: str, env: Env) -> Value:
        """An index as a value of an integer dtype, wrapped to its bits."""
        type_ = self._type(dtype)
        if self.math.is_uniform(index):
            return self.math.narrow(self.math.scalar(index), type_)
        return self.math.vector(index, env.under.lanes, type_)

    def _arithmetic(self, expr: Binary, env: Env) -> Value:
        op, dtype = expr.op, expr.dtype
        a, b = self.value(expr.a, env), self.value(expr.b, env)
        if op in (BinaryOp.MIN, BinaryOp.MAX):
            if isinstance(expr.b, Const):
                a, b = b, a  # what does not compare gives the second: a NaN stays one
            less = "olt" if is_float(dtype) else "slt" if dtype_info(dtype).kind == "int" else "ult"
            return self.vectors.select(
                self.vectors.compare(less.replace("lt", "gt") if op is BinaryOp.MAX else less, a, b), a, b
            )
        if is_float(dtype):
            if op is BinaryOp.DIV:
                result = quotients.divided(self.vectors, a, b)
            else:
                result = self.vectors.binary(_FLOAT_OPS[op], a, b)
            if is_narrow_float(dtype, self.machine):
                return halves.rounded(self.vectors, result, dtype)
            return result
        if op in _INT_OPS:
            return self.vectors.binary(_INT_OPS[op], a, b)
        if op in BITWISE:
            logical = op is BinaryOp.SHR and dtype_info(dtype).kind == "uint"
            return self.vectors.binary("lshr" if logical else _BIT_OPS[op], a, b)
        return divided_integers(self.vectors, op, a, b, dtype_info(dtype).kind == "int")

    # -- choices -------------------------------------------------------------------------------------

    def _select(self, expr: Select, env: Env) -> Value:
        cond = self.cond(expr.cond, env)
        if isinstance(cond, bool):
            return self.value(expr.then if cond else expr.other, env)
        if not expr.lazy:
            return self._chosen(expr, cond, self.value(expr.then, env), self.value(expr.other, env))
        for part in used_by_both(expr):
            if not self.index_like(part):
                self.value(part, env)
        if cond.lanes == 1 and not (self.cheap(expr.then) and self.cheap(expr.other)):
            return self._branch(cond, expr, env)
        is_own = self._is_zeroed(expr.then) and self._values.get(expr.then, env) is None
        then = self.value(expr.then, self.narrowed(env, cond))
        if is_own and is_zero(expr.other) and (cond.lanes == 1 or then.lanes > 1):
            return then  # what a load under a condition gives where the condition fails
        other = self.value(expr.other, self.narrowed(env, self.vectors.negation(cond)))
        return self._chosen(expr, cond, then, other)

    def _chosen(self, expr: Select, cond: Value, then: Value, other: Value) -> Value:
        """One of two values; by lanes where data decide, as LLVM branches by one condition for all."""
        lanes = max(then.lanes, other.lanes)
        if lanes > cond.lanes and reads_memory(expr.cond):
            cond = self.vectors.splat(cond, lanes)
        return self.vectors.select(cond, then, other)

    def stored(self, expr: Expr, env: Env) -> Value:
        """The value of `expr` for a store: 16-bit floats that are only copied, or padded, stay bits."""
        if expr.dtype in HALVES and isinstance(expr, Load):
            return self.memory.bits(expr.buffer, self.offset(expr.buffer, expr.indices, env), env.under)
        if expr.dtype in HALVES and isinstance(expr, Select) and expr.lazy and is_zero(expr.other):
            cond = self.cond(expr.cond, env)
            if isinstance(cond, bool):
                return self.stored(expr.then if cond else expr.other, env)
            if self._is_zeroed(expr.then):
                then = self.stored(expr.then, self.narrowed(env, cond))
                if cond.lanes == 1 or then.lanes > 1:
                    return then  # zero bits where the condition fails
        return self.value(expr, env)

    def _is_zeroed(self, expr: Expr) -> bool:
        """Whether it is a load that gives zeros where its condition fails, as of register tiles none does."""
        return isinstance(expr, Load) and expr.buffer.scope != "register"

    def narrowed(self, env: Env, cond: Value) -> Env:
        """The same place, if `cond` holds too."""
        under = env.under
        if cond.lanes == 1:
            return Env(env.vars, replace(under, guard=self.vectors.both(under.guard, cond)), env)
        return Env(env.vars, replace(under, mask=self.vectors.both(under.mask, cond), active=None), env)

    def cheap(self, expr: Expr) -> bool:
        """Whether `expr` is few instructions."""
        known = self._cheap.get(id(expr))
        if known is None:
            known = self._is_cheap(expr)
            self._cheap[id(expr)] = known
        return known

    def _is_cheap(self, expr: Expr) -> bool:
        count, stack = 0, [expr]
        while stack:
            node = stack.pop()
            count += 1
            if count > _CHEAP_NODES or (isinstance(node, Call) and node.name not in _CHEAP_CALLS):
                return False
            stack.extend(children(node))
        return True

    def _branch(self, cond: Value, expr: Select, env: Env) -> Value:
        """One of two sides, by a branch."""

        def side(chosen: Expr) -> Value:
            own = Env(env.vars, env.under, env)  # what one side has computed the other one cannot use
            return self._in_all_lanes(chosen, own, env.under.lanes)

        return self.vectors.branch(cond, lambda: side(expr.then), lambda: side(expr.other))

    def _in_all_lanes(self, expr: Expr, env: Env, lanes: int) -> Value:
        return self.vectors.splat(self.value(expr, env), lanes)

    # -- conversions ---------------------------------------------------------------------------------

    def _cast(self, a: Expr, dtype: str, env: Env) -> Value:
        if dtype in ("int32", "int64") and self.index_like(a):
            return self._integer(self.index(a, env), dtype, env)
        return convert(self.vectors, self.value(a, env), a.dtype, dtype)


def is_zero(expr: Expr) -> bool:
    """Whether `expr` is a constant of which all bits are zero."""
    return isinstance(expr, Const) and expr.value == 0 and copysign(1.0, expr.value) > 0
