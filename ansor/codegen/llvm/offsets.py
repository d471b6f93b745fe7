"""Offsets of elements, taken apart once and evaluated wherever the access is written.

An unrolled body is written hundreds of times with other values of its loop variables. What its index
expressions are made of stays the same: an offset is a sum of multiples of *parts*, which are variables, and
quotients and remainders of variables, as the loops that were fused leave them. A part is evaluated anew only
where one of its variables is bound to something else.

Divisions by a variable are no parts: how they are evaluated depends on the conditions around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ansor.codegen.llvm.index import Affine, IndexMath
from ansor.te.expr import INTEGER_ONLY, Binary, BinaryOp, Const, Expr, Var, free_vars

if TYPE_CHECKING:
    from ansor.codegen.llvm.values import Env

Sum = Mapping[Expr | None, int]
"""How often each part is in an offset; None is the number one."""


class Offsets:
    """The offsets of one function's accesses."""

    def __init__(self, math: IndexMath, index: Callable[[Expr, Env], Affine]) -> None:
        self.math = math
        self._index = index
        self._sums: dict[tuple[int, int], Sum | None] = {}
        self._variables: dict[Expr, tuple[Var, ...]] = {}
        self._evaluated: dict[Expr, tuple[tuple[object, ...], Affine]] = {}

    def offset(self, indices: tuple[Expr, ...], strides: tuple[int | Affine, ...], env: Env) -> Affine | None:
        """The sum of index times stride, None if it has other than constant multiples of parts."""
        key = (id(indices), id(strides))
        if key not in self._sums:
            self._sums[key] = self._sum(indices, strides)
        parts = self._sums[key]
        if parts is None:
            return None
        const, terms, divided = 0, dict[str, int](), False
        for part, factor in parts.items():
            if part is None:
                const += factor
                continue
            if isinstance(part, Var):
                value = self._index(part, env)
            else:
                value, divided = self._part(part, env), True
            const += value.const * factor
            for name, coefficient in value.terms.items():
                terms[name] = terms.get(name, 0) + coefficient * factor
        if 0 in terms.values():
            terms = {name: coefficient for name, coefficient in terms.items() if coefficient}
        total = Affine(const, terms)
        return self.math.joined(total) if divided else total

    def _part(self, part: Expr, env: Env) -> Affine:
        bindings = tuple(env.vars.get(var) for var in self._variables[part])
        known = self._evaluated.get(part)
        if known is not None and all(a is b for a, b in zip(known[0], bindings, strict=True)):
            return known[1]
        value = self._index(part, env)
        if all(isinstance(binding, Affine) for binding in bindings):
            self._evaluated[part] = (bindings, value)
        return value

    def _sum(self, indices: tuple[Expr, ...], strides: tuple[int | Affine, ...]) -> Sum | None:
        total: dict[Expr | None, int] = {None: 0}
        for index, stride in zip(indices, strides, strict=True):
            if not isinstance(stride, int) or not self._add(index, stride, total):
                return None
        return total

    def _add(self, expr: Expr, factor: int, total: dict[Expr | None, int]) -> bool:
        """Add `expr * factor` to the sum; false if there is something else in it."""
        match expr:
            case Const(value=value):
                total[None] += int(value) * factor
                return True
            case Var():
                total[expr] = total.get(expr, 0) + factor
                return True
            case Binary(op=BinaryOp.ADD | BinaryOp.SUB as op, a=a, b=b):
                sign = 1 if op is BinaryOp.ADD else -1
                return self._add(a, factor, total) and self._add(b, factor * sign, total)
            case (
                Binary(op=BinaryOp.MUL, a=a, b=Const(value=value))
                | Binary(op=BinaryOp.MUL, a=Const(value=value), b=a)
            ):
                return self._add(a, factor * int(value), total)
            case Binary() if _is_part(expr):
                self._variables[expr] = tuple(free_vars(expr))
                total[expr] = total.get(expr, 0) + factor
                return True
            case _:
                return False


def _is_part(expr: Expr) -> bool:
    match expr:
        case Const() | Var():
            return True
        case Binary(op=op, a=a, b=b) if expr.dtype in ("int32", "int64"):
            divides = op in INTEGER_ONLY
            return _is_part(a) and (isinstance(b, Const) if divides else _is_part(b))
        case _:
            return False
