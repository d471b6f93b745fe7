"""Equality of expressions as trees; expressions themselves compare by identity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansor.te.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Read,
    Select,
    Var,
    children,
    distinct_nodes,
    with_children,
)


def same_structure(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same tree over the same variables, buffers and tensors."""
    pairs = [(a, b)]
    equal: set[tuple[int, int]] = set()
    while pairs:
        x, y = pairs.pop()
        if x is y or (id(x), id(y)) in equal:
            continue
        if _own(x) != _own(y):
            return False
        equal.add((id(x), id(y)))
        pairs.extend(zip(children(x), children(y), strict=True))
    return True


def same_place(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Whether indices of one buffer or tensor are the same trees."""
    return all(same_structure(x, y) for x, y in zip(a, b, strict=True))


def is_among(expr: Expr, others: Iterable[Expr]) -> bool:
    """Whether an expression is the same tree as one of others."""
    return any(same_structure(expr, other) for other in others)


def shared(expr: Expr, known: dict[object, Expr]) -> Expr:
    """The same tree, equal subtrees of which are one object; also of others with which `known` was given."""
    return shared_parts(expr, known)[id(expr)]


def shared_parts(expr: Expr, known: dict[object, Expr]) -> dict[int, Expr]:
    """What `shared` makes of each node of `expr`, by the number of that node, children first."""
    made: dict[int, Expr] = {}
    for node in distinct_nodes(expr):
        inner = children(node)
        if not inner and isinstance(node, Var):
            made[id(node)] = node
            continue
        own = tuple([made[id(child)] for child in inner])
        new = with_children(node, own) if inner else node
        made[id(node)] = known.setdefault(node_key(new), new)
    return made


def node_key(node: Expr) -> tuple[object, ...]:
    """Equal for nodes that do the same to the same objects, as long as these are there."""
    return (_own(node), *map(id, children(node)))


def _own(node: Expr) -> tuple[object, ...]:
    """All of a node but its children: equal for nodes that do the same to equal ones."""
    match node:
        case Const(value=int() | float() as value):
            return Const, node.dtype, repr(value)
        case Binary(op=op):
            return Binary, node.dtype, op
        case Not():
            return Not, node.dtype
        case Cast():
            return Cast, node.dtype
        case Select(lazy=lazy):
            return Select, node.dtype, lazy
        case Call(name=name):
            return Call, node.dtype, name
        case Load(buffer=buffer):
            return Load, node.dtype, id(buffer)
        case Read(tensor=tensor):
            return Read, node.dtype, id(tensor)
        case _:
            return (id(node),)
