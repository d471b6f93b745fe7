"""Pieces of C expressions: a text, and how strongly its outermost operator binds.

Parentheses are written where the tree could not be read from the text without them, and nowhere else, but for
`&&` inside `||`, which compilers warn of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

TERNARY: Final = 1
OR: Final = 2
AND: Final = 3
EQUALITY: Final = 4
RELATION: Final = 5
SUM: Final = 6
PRODUCT: Final = 7
UNARY: Final = 8
ATOM: Final = 9


@dataclass(frozen=True, slots=True)
class Text:
    """An expression. `size` counts the operators and accesses in it, `depth` how far its brackets nest."""

    text: str
    strength: int = ATOM
    size: int = 0
    depth: int = 0

    def at(self, strength: int) -> str:
        """The text as an operand: in parentheses if its operator binds less than `strength`."""
        return self.text if self.strength >= strength else f"({self.text})"

    def depth_at(self, strength: int) -> int:
        """How far the brackets of `at(strength)` nest."""
        return self.depth + (self.strength < strength)


def infix(sign: str, a: Text, b: Text, strength: int) -> Text:
    """`a sign b`, grouping from the left; comparisons do not group, conditions group either way."""
    left = SUM if strength in (EQUALITY, RELATION) else strength
    right = left if strength in (EQUALITY, RELATION, OR, AND) else strength + 1
    if strength == OR:
        a, b = (bracketed(side) if side.strength == AND else side for side in (a, b))
    depth = max(a.depth_at(left), b.depth_at(right))
    return Text(f"{a.at(left)} {sign} {b.at(right)}", strength, a.size + b.size + 1, depth)


def prefix(sign: str, a: Text) -> Text:
    """`-a` or `!a`; two signs do not run together."""
    strength = ATOM if a.text.startswith(sign) else UNARY
    return Text(f"{sign}{a.at(strength)}", UNARY, a.size + 1, a.depth_at(strength))


def call(function: str, *args: Text) -> Text:
    """`function(args)`."""
    return Text(
        f"{function}({', '.join(arg.text for arg in args)})",
        size=1 + sum(arg.size for arg in args),
        depth=1 + max((arg.depth for arg in args), default=0),
    )


def converted(type_: str, a: Text) -> Text:
    """`(type)a`."""
    return Text(f"({type_}){a.at(UNARY)}", UNARY, a.size, a.depth_at(UNARY))


def ternary(cond: Text, then: Text, other: Text) -> Text:
    """`cond ? then : other`."""
    parts = (cond, then, other)
    depth = max(part.depth_at(OR) for part in parts)
    text = f"{cond.at(OR)} ? {then.at(OR)} : {other.at(OR)}"
    return Text(text, TERNARY, 1 + sum(part.size for part in parts), depth)


def bracketed(text: Text) -> Text:
    """A text in parentheses, whatever binds in it."""
    return Text(f"({text.text})", ATOM, text.size, text.depth + 1)


def indented(lines: Iterable[str]) -> list[str]:
    """Lines two columns further right."""
    return [f"  {line}" for line in lines]
