"""The nodes of expressions, one for each path to them."""

from collections.abc import Iterator

from ansor.te.expr import Expr, children


def walk(expr: Expr) -> Iterator[Expr]:
    """All nodes of `expr`, children before parents, shared nodes once for each path to them."""
    for child in children(expr):
        yield from walk(child)
    yield expr
