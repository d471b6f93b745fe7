"""Equality of expressions as trees; expressions themselves compare by identity."""

from __future__ import annotations

from collections.abc import Iterable

from ansor.te.expr import Binary, Call, Cast, Const, Expr, Load, Not, Read, Select, children


def same_structure(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same tree over the same variables, buffers and tensors."""
    pairs = [(a, b)]
    equal: set[tuple[int, int]] = set()
    while pairs:
        x, y = pairs.pop()
        if x is y or (id(x), id(y)) in equal:
            continue
        if x.dtype != y.dtype or not _same_node(x, y):
            return False
        equal.add((id(x), id(y)))
        pairs.extend(zip(children(x), children(y), strict=True))
    return True


def is_among(expr: Expr, others: Iterable[Expr]) -> bool:
    """Whether an expression is the same tree as one of others."""
    return any(same_structure(expr, other) for other in others)


def _same_node(a: Expr, b: Expr) -> bool:
    """Whether two nodes of one dtype do the same to their children."""
    match a, b:
        case Const(value=x), Const(value=y):
            return repr(x) == repr(y)
        case Binary(op=op), Binary(op=other):
            return op is other
        case (Not(), Not()) | (Cast(), Cast()):
            return True
        case Select(lazy=lazy), Select(lazy=other_lazy):
            return lazy == other_lazy
        case Call(name=name), Call(name=other_name):
            return name == other_name
        case Load(buffer=buffer), Load(buffer=other_buffer):
            return buffer is other_buffer
        case Read(tensor=tensor), Read(tensor=other_tensor):
            return tensor is other_tensor
        case _:
            return False
