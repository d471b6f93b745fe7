"""How far rounding may move each element of an output: a running error analysis, as a graph beside the graph.

The tolerance (`tolerance`) knows the typical element of an output. Where operations cancel and others
divide by what is left, errors of single elements are far larger: the determinant of a matrix that is nearly
singular, ``a * d - b * c``, loses most of its digits, and not the same ones in programs that fuse
multiplications and additions and in those that do not; so does its inverse.

Each float x is computed in float64 here. Beside it stands the error e(x) that one rounding of each operation
makes of it: eps * |x|, or the least number, and what the errors of its operands become.

    e(a + b) = e(a) + e(b) + eps * |a + b|
    e(a * b) = |a| * e(b) + |b| * e(a) + eps * |a * b|
    e(a / b) = (e(a) + |a / b| * e(b)) / (|b| - e(b)) + eps * |a / b|,    infinite if |b| <= 4 * e(b)
    e(f(x))  = max |f(x +- 4 * e(x)) - f(x)| / 4 + eps * |f(x)|           for other functions
    e(sum of x) = sqrt(sum of (eps * |x| + e(x))^2) + eps * |sum of x|

The error of a choice is that of what is chosen, of a maximum or minimum how far it moves if all its terms do,
and of a reducer of the user's own the root of the sum of squares of its terms' errors. So much do independent
errors come to. Where they are not, the root of K in the tolerance makes up for it, which is how many
roundings of each operation are allowed. Inputs and constants have no error.

NaN and infinity stand where an element may be anything: a quotient by what may be 0, a root of what may be
negative.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ansor import te
from ansor.dtypes import is_float
from ansor.schedule.dag import ComputeDAG
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    children,
    distinct_nodes,
    with_children,
)
from ansor.te.reduction import builtin_combiner, builtin_name
from ansor.te.tensor import ComputeOp, Tensor
from measure.correctness.tolerance import EPS, LEAST, LEAST_ROUNDINGS, rounded_last

_WIDE: Final = "float64"
_NONE: Final = Const(0.0, _WIDE)
_STEP: Final = 4.0
"""How many errors away functions and quotients are asked for, so that none ends just before a pole."""
_VAST: Final = 1e100
"""What greater numbers count as, infinities among them: a mask of -inf has no error that is infinite."""
_EXACT: Final = frozenset({"abs", "floor", "ceil", "round"})
"""Functions that do not round."""


def rounding_errors(dag: ComputeDAG) -> dict[Tensor, Tensor]:
    """What one rounding of each operation makes of a graph's float outputs: a float32 tensor for each.

    They are computed from the graph's inputs. Outputs on the way to which nothing is rounded have none.
    """
    analysis = _Analysis()
    for op in dag.ops:
        if isinstance(op, ComputeOp):
            analysis.add(op)
    found = {tensor: analysis.error_of(tensor) for tensor in dag.outputs}
    return {tensor: error for tensor, error in found.items() if error is not None}


class _Analysis:
    """Tensors of float64 for the computed floats of a graph, and for their errors, if they have any."""

    def __init__(self) -> None:
        self._values: dict[Tensor, Tensor] = {}
        self._errors: dict[Tensor, Tensor] = {}

    def add(self, op: ComputeOp) -> None:
        """Follow an operation; those that it reads were followed before."""
        root = op.body[0]
        if not isinstance(root, Reduce):
            found = self._follow(op.body)
            values: Sequence[Tensor] = _tensors(op, "value", [value for value, _ in found])
            errors: Sequence[Expr | None] = [error for _, error in found]
        elif is_float(root.dtype) and builtin_name(root.combiner) is not None:
            values, errors = self._reduced(op, root)
        else:
            values, errors = self._combined(op, root)
        self._values.update(zip(op.outputs, values, strict=True))
        for tensor, error in zip(op.outputs, errors, strict=True):
            if error is not None:
                (self._errors[tensor],) = _tensors(op, "error", [error])

    def error_of(self, output: Tensor) -> Tensor | None:
        """The error of an output, in float32; of one that is rounded at last that two roundings are right."""
        op = output.op
        if output not in self._errors or not isinstance(op, ComputeOp):
            return None
        error = self._errors[output](*op.axis)
        unrounded = rounded_last(output)
        if unrounded is not None:
            ((value, inner),) = self._follow([unrounded])
            error = _plus(_own(value, output.dtype) * (2 / LEAST_ROUNDINGS), inner)
        return _tensors(op, "rounding", [Cast(error, "float32")])[0]

    def _reduced(self, op: ComputeOp, root: Reduce) -> tuple[list[Tensor], list[Expr | None]]:
        """One of the four reductions of floats."""
        (term, error), *condition = self._follow(children(root))
        where = condition[0][0] if condition else None

        def over_axes(name: str, source: Expr, what: str) -> Tensor:
            made = Reduce(builtin_combiner(name, _WIDE), (source,), root.axes, 0, _WIDE, where)
            return _tensors(op, what, [made])[0]

        name = builtin_name(root.combiner)
        assert name is not None
        whole = over_axes(name, term, "value")
        total = whole(*op.axis)
        if name in ("min", "max"):
            if error is None:
                return [whole], [None]
            above, below = over_axes(name, term + error, "above"), over_axes(name, term - error, "below")
            return [whole], [te.maximum(*(_apart(moved(*op.axis), total) for moved in (above, below)))]
        relative: Expr = te.const(EPS[root.dtype], _WIDE)
        if name == "sum":
            step = _plus(_own(term, root.dtype), error)
        elif error is None:
            step = relative
        else:
            step = relative + te.select(error > 0.0, error / te.abs(term), 0.0)
        spread = te.sqrt(over_axes("sum", step * step, "squares")(*op.axis))
        return [whole], [(spread if name == "sum" else _size(total) * spread) + _own(total, root.dtype)]

    def _combined(self, op: ComputeOp, root: Reduce) -> tuple[list[Tensor], list[Expr | None]]:
        """Reductions of integers, and by reducers of the user's own, which keep their dtypes."""
        found = self._follow(children(root))
        count = len(root.sources)
        sources = tuple(
            _as(value, source.dtype) for (value, _), source in zip(found[:count], root.sources, strict=True)
        )
        where = found[count][0] if found[count:] else None
        body = [replace(one, sources=sources, condition=where) for one in op.body if isinstance(one, Reduce)]
        kept = _tensors(op, "kept", body)
        values = [
            _tensors(op, "value", [_as(one(*op.axis), _WIDE)])[0] if is_float(one.dtype) else one
            for one in kept
        ]
        squares = [error * error for _, error in found[:count] if error is not None]
        spread: Expr | None = None
        if squares:
            whole = Reduce(
                builtin_combiner("sum", _WIDE), (sum(squares[1:], squares[0]),), root.axes, 0, _WIDE, where
            )
            spread = te.sqrt(_tensors(op, "squares", [whole])[0](*op.axis))
        errors = [
            _plus(_own(value(*op.axis), one.dtype), spread) if is_float(one.dtype) else None
            for value, one in zip(values, kept, strict=True)
        ]
        return values, errors

    def _follow(self, exprs: Sequence[Expr]) -> list[tuple[Expr, Expr | None]]:
        """Expressions in float64, and the errors of those that are floats and have any."""
        done: dict[int, tuple[Expr, Expr | None]] = {}
        for expr in exprs:
            for node in distinct_nodes(expr):
                if id(node) not in done:
                    done[id(node)] = self._node(node, [done[id(part)] for part in children(node)])
        return [done[id(expr)] for expr in exprs]

    def _node(self, node: Expr, parts: Sequence[tuple[Expr, Expr | None]]) -> tuple[Expr, Expr | None]:
        """A node, and its error, by those of its children."""
        values, errors = tuple(value for value, _ in parts), [error for _, error in parts]
        match node:
            case Const() if is_float(node.dtype):
                return _as(node, _WIDE), None
            case Read(tensor=tensor, dtype=dtype):
                value = self._values.get(tensor, tensor)(*values)
                error = self._errors[tensor](*values) if tensor in self._errors else None
                return (_as(value, _WIDE) if is_float(dtype) else value), error
            case Cast(a=a, dtype=dtype) if is_float(dtype):
                rounds = is_float(a.dtype) and EPS[a.dtype] < EPS[dtype]
                value = _as(_as(values[0], dtype), _WIDE)
                return value, _plus(_own(value, dtype), errors[0]) if rounds else errors[0]
            case Select(lazy=lazy, dtype=dtype):
                value = Select(values[0], values[1], values[2], lazy, _WIDE if is_float(dtype) else dtype)
                if errors[1] is None and errors[2] is None:
                    return value, None
                return value, Select(values[0], _or_zero(errors[1]), _or_zero(errors[2]), lazy, _WIDE)
            case Binary(op=op, dtype=dtype) if is_float(dtype):
                value = Binary(op, values[0], values[1], _WIDE)
                return value, _of_binary(op, value, errors, dtype)
            case Call(name=name, dtype=dtype) if is_float(dtype):
                value = Call(name, values, _WIDE)
                return value, _of_call(value, errors, dtype)
            case _:
                return with_children(node, values), None


def _of_binary(op: BinaryOp, value: Binary, errors: Sequence[Expr | None], dtype: str) -> Expr | None:
    """The error of arithmetic on two floats."""
    a, b = errors
    if op in (BinaryOp.MIN, BinaryOp.MAX):
        if a is None and b is None:
            return None
        x, y = _or_zero(a), _or_zero(b)
        above = Binary(op, value.a + x, value.b + y, _WIDE)
        below = Binary(op, value.a - x, value.b - y, _WIDE)
        return te.maximum(_apart(above, value), _apart(below, value))
    own = _own(value, dtype)
    if op is BinaryOp.MUL:
        return _plus(own, _times(value.a, b), _times(value.b, a))
    if op is not BinaryOp.DIV:
        return _plus(own, a, b)
    if b is None:
        return own if a is None else a / te.abs(value.b) + own
    divisor = te.abs(value.b)
    moved = _plus(_size(value) * b, a) / (divisor - b)
    return te.select(divisor > b * _STEP, moved, float("inf")) + own


def _of_call(value: Call, errors: Sequence[Expr | None], dtype: str) -> Expr | None:
    """The error of a function of floats."""
    if value.name == "fma":
        x, y, _ = value.args
        factors = _times(x, errors[1]), _times(y, errors[0])
        return _plus(_own(x * y, dtype) + _own(value, dtype), *factors, errors[2])
    moved = [] if value.name in _EXACT else [_own(value, dtype)]
    for position, error in enumerate(errors):
        if error is not None:
            ends = [
                Call(value.name, _with(value.args, position, value.args[position] + step * error), _WIDE)
                for step in (_STEP, -_STEP)
            ]
            moved.append(te.maximum(*(_apart(end, value) for end in ends)) / _STEP)
    return _plus(moved[0], *moved[1:]) if moved else None


def _with(args: tuple[Expr, ...], position: int, arg: Expr) -> tuple[Expr, ...]:
    return (*args[:position], arg, *args[position + 1 :])


def _plus(error: Expr, *others: Expr | None) -> Expr:
    """The sum of errors, None standing for 0."""
    return functools.reduce(operator.add, (other for other in others if other is not None), error)


def _or_zero(error: Expr | None) -> Expr:
    return _NONE if error is None else error


def _times(value: Expr, error: Expr | None) -> Expr | None:
    """What an error of one factor makes of a product, by the other one."""
    return None if error is None else _size(value) * error


def _own(value: Expr, dtype: str) -> Expr:
    """What rounding a number to a dtype makes of it; the least numbers are no closer to each other."""
    return _size(value) * EPS[dtype] + LEAST.get(dtype, 0.0)


def _size(value: Expr) -> Expr:
    return te.minimum(te.abs(value), _VAST)


def _apart(a: Expr, b: Expr) -> Expr:
    """How far two numbers are from each other: infinitely if one is NaN or another infinity."""
    off = te.abs(a - b)
    same = te.any(a == b, te.all(te.isnan(a), te.isnan(b)))
    return te.select(same, 0.0, te.select(te.isnan(off), float("inf"), off))


def _as(value: Expr, dtype: str) -> Expr:
    return value if value.dtype == dtype else Cast(value, dtype)


def _tensors(op: ComputeOp, what: str, body: Sequence[Expr]) -> tuple[Tensor, ...]:
    """Tensors over the axes of an operation."""
    reduce_axes = op.reduce_axis if isinstance(body[0], Reduce) else ()
    return ComputeOp(f"{op.name}.{what}", op.axis, reduce_axes, tuple(body)).outputs
