"""Expressions as text: compact, stable, unambiguous.

Every operator is parenthesised; sums, comparisons and logic have spaces, products and quotients have none:
`((A[i, k]*B[k, j]) + 1f)`. Literals show their dtype unless it is the usual one: `2` int32, `2f` float32,
`2.0` float64, `2h` float16, `2bf` bfloat16, `int64(2)`. Integer division prints as a function, because
`/` would not say which way it rounds.

A long part that occurs several times is written once, behind the rest: `($0*$0) where $0 := ...`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ansor.te.expr import (
    BITWISE,
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Read,
    Reduce,
    Select,
    Var,
)
from ansor.te.sharing import LONG, written_once

_INFIX: Mapping[BinaryOp, str] = {
    BinaryOp.ADD: " + ",
    BinaryOp.SUB: " - ",
    BinaryOp.MUL: "*",
    BinaryOp.DIV: "/",
    **{op: f" {sign} " for op, sign in BITWISE.items()},
    BinaryOp.EQ: " == ",
    BinaryOp.NE: " != ",
    BinaryOp.LT: " < ",
    BinaryOp.LE: " <= ",
    BinaryOp.GT: " > ",
    BinaryOp.GE: " >= ",
    BinaryOp.AND: " && ",
    BinaryOp.OR: " || ",
}
_FLOAT_SUFFIX = {"float32": "f", "float16": "h", "bfloat16": "bf"}


def format_expr(expr: Expr) -> str:
    """`expr` on one line, e.g. `(A[i, k]*B[k, j])`."""
    (text,), definitions = format_together([expr])
    return text + where(definitions)


def format_together(exprs: Sequence[Expr]) -> tuple[list[str], list[str]]:
    """Expressions that stand together, and what `$0`, `$1`, ... in them are."""
    definitions: list[str] = []

    def define(text: str, repeated: bool) -> str:
        if not repeated or len(text) <= LONG:
            return text
        definitions.append(text)
        return f"${len(definitions) - 1}"

    return written_once(exprs, _format_node, define), definitions


def where(definitions: Sequence[str]) -> str:
    """What a text on one line says of `$0`, `$1`, ..., if there are any."""
    listed = ", ".join(f"${number} := {text}" for number, text in enumerate(definitions))
    return f" where {listed}" if listed else ""


def _format_node(node: Expr, parts: list[str]) -> str:
    match node:
        case Const():
            return _format_const(node)
        case Var(name=name):
            return name
        case Binary(op=op, a=a):
            if (
                op is BinaryOp.SUB
                and isinstance(a, Const)
                and math.copysign(1.0, a.value) < 0
                and a.value == 0
            ):
                return f"(-{parts[1]})"
            infix = _INFIX.get(op)
            return f"{op}({parts[0]}, {parts[1]})" if infix is None else f"({parts[0]}{infix}{parts[1]})"
        case Not():
            return f"!{parts[0]}"
        case Cast(dtype=dtype):
            return f"{dtype}({parts[0]})"
        case Select(lazy=lazy):
            return f"{'if_then_else' if lazy else 'select'}({', '.join(parts)})"
        case Call(name=name):
            return f"{name}({', '.join(parts)})"
        case Read(tensor=source) | Load(buffer=source):
            return f"{source.name}[{', '.join(parts)}]"
        case Reduce():
            return _format_reduce(node, parts)
        case _:
            raise TypeError(f"{type(node).__name__} is not an expression node")


def _format_reduce(node: Reduce, parts: list[str]) -> str:
    count = len(node.sources)
    sources = parts[0] if count == 1 else f"({', '.join(parts[:count])})"
    where = "" if node.condition is None else f", where={parts[count]}"
    element = "" if count == 1 else f"[{node.index}]"
    return f"{node.combiner.name}({sources}, axis=[{', '.join(a.name for a in node.axes)}]{where}){element}"


def _format_const(node: Const) -> str:
    value, dtype = node.value, node.dtype
    if dtype == "bool":
        return str(bool(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"{dtype}({value})"
        if dtype == "float64":
            return repr(value)
        return repr(value).removesuffix(".0") + _FLOAT_SUFFIX[dtype]
    return str(value) if dtype == INDEX_DTYPE else f"{dtype}({value})"
