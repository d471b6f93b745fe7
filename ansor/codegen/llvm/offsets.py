"""Offsets of elements, taken apart once and evaluated wherever the access is written.

An unrolled body is written hundreds of times with other values of its loop variables. What its index
expressions are made of stays the same: an offset is a sum of multiples of *parts*, which are variables, and
quotients and remainders of variables, as the loops that were fused leave them. Offsets and parts are
evaluated anew only where one of their variables is bound to something else.

Divisions by a variable are no parts: how they are evaluated depends on the conditions around them. Neither is
arithmetic that may wrap, whose instructions are where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ansor.codegen.llvm.index import Affine, IndexMath
from ansor.codegen.overflow import Overflow
from ansor.te.expr import (
    DIVISIONS,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Var,
    children,
    free_vars,
    memoised,
    reached,
)

if TYPE_CHECKING:
    from ansor.codegen.llvm.values import Env

Evaluate = Callable[[Expr, "Env"], Affine]
"""Gives an integer expression as an index."""

Bindings = tuple[object, ...]
"""What variables are bound to; forms of indices compare by identity."""

_Sum = dict[Expr | None, int]
"""How often each part is in an expression; None is the number one."""

_INDICES: Final = frozenset({Affine})


@dataclass(frozen=True, slots=True)
class _Access:
    """Indices taken apart: the offset is `const` and multiples of `parts`.

    With each part are its factor and, if it is one of the `variables` of the offset, its position there.
    `known` are the offsets so far, by what the variables were bound to.
    """

    variables: tuple[Var, ...]
    const: int
    parts: tuple[tuple[Expr, int, int | None], ...]
    known: dict[Bindings, Affine] = field(default_factory=dict)


class Offsets:
    """The offsets of one function's accesses."""

    def __init__(self, math: IndexMath, overflow: Overflow) -> None:
        self.math = math
        self._overflow = overflow
        self._accesses: dict[tuple[tuple[Expr, ...], int], _Access | None] = {}
        self._variables: dict[Expr, tuple[Var, ...]] = {}
        self._evaluated: dict[Expr, tuple[Bindings, Affine]] = {}

    def offset(
        self, indices: tuple[Expr, ...], strides: tuple[int | Affine, ...], env: Env, evaluate: Evaluate
    ) -> Affine | None:
        """The sum of index times stride, None if it has other than constant multiples of parts.

        The same object for the same indices, strides and bindings of their variables.
        """
        key = (indices, id(strides))
        try:
            access = self._accesses[key]
        except KeyError:
            access = self._accesses[key] = self._access(indices, strides)
        if access is None:
            return None
        bindings = tuple(map(env.vars.get, access.variables))
        known = access.known.get(bindings)
        if known is None:
            known = self._evaluate(access, bindings, env, evaluate)
            if _are_indices(bindings):
                access.known[bindings] = known
        return known

    def _access(self, indices: tuple[Expr, ...], strides: tuple[int | Affine, ...]) -> _Access | None:
        total = self._sum(indices, strides)
        if total is None:
            return None
        parts = [(part, factor) for part, factor in total.items() if part is not None]
        variables = tuple({var: None for part, _ in parts for var in free_vars(part)})
        places = {var: position for position, var in enumerate(variables)}
        placed = [(x, n, places[x] if isinstance(x, Var) else None) for x, n in parts]
        return _Access(variables, total[None], tuple(placed))

    def _evaluate(self, access: _Access, bindings: Bindings, env: Env, evaluate: Evaluate) -> Affine:
        const, terms, divided = access.const, dict[str, int](), False
        for part, factor, position in access.parts:
            if position is None:
                value, divided = self._part(part, env, evaluate), True
            else:
                bound = bindings[position]
                value = bound if isinstance(bound, Affine) else evaluate(part, env)
            const += value.const * factor
            if value.terms:  # of unrolled loops, as most are, there are none
                for name, coefficient in value.terms.items():
                    terms[name] = terms.get(name, 0) + coefficient * factor
        if 0 in terms.values():
            terms = {name: coefficient for name, coefficient in terms.items() if coefficient}
        total = Affine(const, terms)
        return self.math.joined(total) if divided else total

    def _part(self, part: Expr, env: Env, evaluate: Evaluate) -> Affine:
        bindings = tuple(map(env.vars.get, self._variables[part]))
        known = self._evaluated.get(part)
        if known is not None and known[0] == bindings:
            return known[1]
        value = evaluate(part, env)
        if _are_indices(bindings):
            self._evaluated[part] = (bindings, value)
        return value

    def _sum(self, indices: tuple[Expr, ...], strides: tuple[int | Affine, ...]) -> _Sum | None:
        """How often each part is in an offset, if there are only parts in it."""
        total: _Sum = {None: 0}
        known: dict[int, tuple[Expr, _Sum | None]] = {}
        for index, stride in zip(indices, strides, strict=True):
            found = memoised(index, self._multiples, known) if isinstance(stride, int) else None
            if not isinstance(stride, int) or found is None:
                return None
            total = _added(total, found, stride)
        return total

    def _multiples(self, expr: Expr, multiples: Callable[[Expr], _Sum | None]) -> _Sum | None:
        """How often each part is in an expression; None if there is something else in it."""
        if self._overflow.turns(expr):
            return None
        match expr:
            case Const(value=value):
                return {None: int(value)}
            case Var():
                return {expr: 1}
            case Binary(op=BinaryOp.ADD | BinaryOp.SUB as op, a=a, b=b):
                one, other = multiples(a), multiples(b)
                if one is None or other is None:
                    return None
                return _added(one, other, 1 if op is BinaryOp.ADD else -1)
            case (
                Binary(op=BinaryOp.MUL, a=a, b=Const(value=value))
                | Binary(op=BinaryOp.MUL, a=Const(value=value), b=a)
            ):
                found = multiples(a)
                return None if found is None else _added({}, found, int(value))
            case Binary() if all(map(_is_plain, reached(expr, children))) and self._overflow.is_index(expr):
                self._variables[expr] = tuple(free_vars(expr))
                return {expr: 1}
            case _:
                return None


def _added(one: _Sum, other: _Sum, factor: int) -> _Sum:
    """`one + factor * other`."""
    total = dict(one)
    for part, times in other.items():
        total[part] = total.get(part, 0) + times * factor
    return total


def _are_indices(bindings: Bindings) -> bool:
    """Whether all of them are known as indices, and none as a value that becomes one where it is used."""
    return _INDICES.issuperset(map(type, bindings))


def _is_plain(node: Expr) -> bool:
    """Whether parts may be made of this node and such ones: no division by anything but constants."""
    match node:
        case Const() | Var():
            return True
        case Binary(op=op, b=b) if node.dtype in ("int32", "int64"):
            return op not in DIVISIONS or isinstance(b, Const)
        case _:
            return False
