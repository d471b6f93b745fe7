"""Walking and rebuilding expressions, without recursion: an expression may be thousands of nodes deep.

Nodes are shared freely (`y = x * x; z = y * y`), so an expression is a graph. A shared node is visited once:
there may be exponentially many paths to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import is_
from typing import TypeVar

from ansor.dtypes import is_float
from ansor.te.construct import fold
from ansor.te.nodes import Binary, Call, Cast, Const, Expr, Load, Not, Read, Reduce, Select, Var

_T = TypeVar("_T")


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions, left to right (a `Reduce`: sources, then condition)."""
    return expr.children()


def distinct_nodes(expr: Expr) -> Iterator[Expr]:
    """All nodes of `expr`, children before parents, a shared node the first time that it is met."""
    seen: set[int] = set()
    opened: list[Expr] = []
    stack: list[Expr | None] = [expr]
    while stack:
        node = stack.pop()
        if node is None:  # all below the node that was opened last is done
            yield opened.pop()
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        inner = node.children()
        if inner:
            opened.append(node)
            stack.append(None)
            stack.extend(inner[::-1])
        else:
            yield node


def reached(expr: Expr, into: Callable[[Expr], tuple[Expr, ...]]) -> Iterator[Expr]:
    """The distinct nodes that `into`, which gives those below a node that count, leads to, `expr` first."""
    return _reached([expr], into)


def every_node(roots: Iterable[Expr]) -> Iterator[Expr]:
    """All distinct nodes of some expressions; of reductions those of their combiners, too."""
    return _reached(list(roots), _below)


def _below(expr: Expr) -> tuple[Expr, ...]:
    inner = expr.children()
    return (*inner, *expr.combiner.result) if isinstance(expr, Reduce) else inner


def _reached(stack: list[Expr], into: Callable[[Expr], tuple[Expr, ...]]) -> Iterator[Expr]:
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(into(node))


def memoised(
    expr: Expr,
    of_node: Callable[[Expr, Callable[[Expr], _T]], _T],
    known: dict[int, tuple[Expr, _T]] | None = None,
) -> _T:
    """
    What `of_node` gives for an expression: it asks for that of nodes below, which is found once each.

    `known` holds what was found, with the node, for other expressions that are asked about.
    """
    found: dict[int, tuple[Expr, _T]] = {} if known is None else known

    def value(node: Expr) -> _T:
        entry = found.get(id(node))
        if entry is None:
            entry = found[id(node)] = node, of_node(node, value)
        return entry[1]

    return value(expr)


def used_by_both(choice: Select) -> list[Expr]:
    """The largest parts of a lazy choice's sides that are computed whichever is chosen.

    Computed before the sides part, of choices in each other, each of whose sides uses the one before, every
    one is computed once; after it twice as often with every choice.
    """
    if isinstance(choice.then, Const) or isinstance(choice.other, Const):
        return []  # padding, as most choices are
    then = {id(node) for node in reached(choice.then, _always)}
    found: dict[int, Expr] = {}
    for node in reached(choice.other, lambda x: () if id(x) in then else _always(x)):
        if id(node) in then:
            found[id(node)] = node
    return list(found.values())


def _always(expr: Expr) -> tuple[Expr, ...]:
    """The nodes below that are computed wherever `expr` is."""
    return (expr.cond,) if isinstance(expr, Select) and expr.lazy else expr.children()


def with_children(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """`expr` over other children (raw, no folding), of its class; itself if they are the same objects."""
    if all(map(is_, expr.children(), new)):
        return expr
    match expr:
        case Binary(op=op, dtype=dtype):
            return type(expr)(op, new[0], new[1], dtype)
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
        inner = node.children()
        rebuilt = with_children(node, tuple([done[id(child)] for child in inner])) if inner else node
        replacement = visit(rebuilt)
        done[id(node)] = rebuilt if replacement is None else replacement
    return done[id(expr)]


def substitute(expr: Expr, mapping: dict[Var, Expr]) -> Expr:
    """`expr` with variables replaced (by identity); index arithmetic is folded again where it changes.

    A comparison of two dtypes, which no program may have, stays one.
    """

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return mapping.get(node)
        if isinstance(node, Binary) and node.a.dtype == node.b.dtype and not is_float(node.a.dtype):
            return fold(node.op, node.a, node.b, node.dtype)
        return None

    return rewrite(expr, visit)


def free_vars(*exprs: Expr) -> set[Var]:
    """All variables that occur in some of `exprs`, reduction axes included."""
    found: set[Var] = set()
    seen: set[int] = set()
    stack = list(exprs)
    while stack:
        node = stack.pop()
        inner = node.children()
        if not inner:
            if isinstance(node, Var):
                found.add(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.extend(inner)
    return found
