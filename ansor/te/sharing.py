"""Writing expressions so that no text gets much longer than the graph that it stands for.

Nodes are shared freely (see `ansor.te.traversal`): sixty steps that each read the one before twice are a few
hundred nodes, and 2**60 as a tree. So a long part that occurs several times is written once, in a definition,
and stands elsewhere by a name. What is short is repeated, which reads better.

Parts are the same if their structure is, whether or not they are one object: the text is that of the tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from ansor.te.expr import Expr, children
from ansor.te.structure import shared_parts

LONG = 40
"""Characters from which on a part that occurs several times is defined."""

Written = TypeVar("Written")


def written_once(
    exprs: Sequence[Expr],
    write: Callable[[Expr, list[Written]], Written],
    define: Callable[[Written, bool], Written],
) -> list[Written]:
    """
    Write expressions that stand together, each of their parts once.

    Parameters
    ----------
    exprs
        The expressions.
    write
        Gives the text of a node, from those of its children.
    define
        Gives what stands for a part, from its text and whether it occurs several times: the text itself, or
        a name that it has defined. It is asked of nodes that have children, these first.

    Returns
    -------
    list
        The texts of `exprs`.
    """
    known: dict[object, Expr] = {}
    roots: list[Expr] = []
    nodes: dict[int, Expr] = {}
    for expr in exprs:
        parts = shared_parts(expr, known)
        nodes.update((id(part), part) for part in parts.values())
        roots.append(parts[id(expr)])
    uses = Counter(id(child) for node in nodes.values() for child in children(node))
    uses.update(map(id, roots))
    left, texts = uses.copy(), dict[int, Written]()
    for number, node in nodes.items():
        inner = children(node)
        text = write(node, [texts[id(child)] for child in inner])
        texts[number] = define(text, uses[number] > 1) if inner else text
        for child in inner:
            left[id(child)] -= 1
            if not left[id(child)]:
                del texts[id(child)]
    return [texts[id(root)] for root in roots]
