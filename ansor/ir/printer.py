"""Loop nests as text: indented, one statement per line, stable, so that two versions can be compared.

    main(A: float32[64, 64], n: int32) -> C: float32[64, 64]
    parallel i.0 in 0..8:
      allocate C.local[4, 16] float32 local
      if i.0*8 + i.1 < n:
        C[i.0, j] = C[i.0, j] + A[i.0, k]

Variables and buffers are told apart by identity; where two share a name the later one gets a number.
Arithmetic is printed with as few parentheses as keep the tree readable from the text. A long part that occurs
several times in a statement is written once, in a line `$0 := ...` before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansor.ir.nest import Alloc, Barrier, Buffer, Commit, For, If, Let, LoopNest, Prefetch, Seq, Stmt, Store
from ansor.numbered import NumberedNames
from ansor.te.expr import (
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
from ansor.te.printer import where
from ansor.te.sharing import LONG, written_once

_INFIX = {
    BinaryOp.OR: (1, " or "),
    BinaryOp.AND: (2, " and "),
    BinaryOp.EQ: (4, " == "),
    BinaryOp.NE: (4, " != "),
    BinaryOp.LT: (4, " < "),
    BinaryOp.LE: (4, " <= "),
    BinaryOp.GT: (4, " > "),
    BinaryOp.GE: (4, " >= "),
    BinaryOp.ADD: (5, " + "),
    BinaryOp.SUB: (5, " - "),
    BinaryOp.MUL: (6, "*"),
    BinaryOp.DIV: (6, "/"),
    BinaryOp.FLOORDIV: (6, "//"),
    BinaryOp.FLOORMOD: (6, "%"),
}
_ASSOCIATIVE = frozenset({BinaryOp.OR, BinaryOp.AND})
_Text = tuple[int, str]
"""Binding strength, and the text itself."""
_NOT = 3
_ATOM = 9


class Names:
    """A distinct name for every variable and buffer, given at the first meeting."""

    def __init__(self) -> None:
        self._names: dict[Var | Buffer, str] = {}
        self._numbered = NumberedNames()

    def of(self, item: Var | Buffer) -> str:
        name = self._names.get(item)
        if name is None:
            name = self._names[item] = self._numbered.fresh(item.name)
        return name


def format_nest(nest: LoopNest) -> str:
    """The whole function: a line with its parameters, then the body. No newline at the end."""
    names = Names()
    written = set(nest.outputs)
    sizes = [f"{names.of(size)}: {size.dtype}" for size in nest.sizes]
    params = [
        f"{names.of(p)}: {p.dtype}{_shape(p, names)}{' streamed' if position in nest.streamed else ''}"
        for position, p in enumerate(nest.params)
    ]
    inputs = [text for position, text in enumerate(params) if position not in written]
    outputs = [text for position, text in enumerate(params) if position in written]
    arrow = f" -> {', '.join(outputs)}" if outputs else ""
    header = f"{nest.name}({', '.join([*inputs, *sizes])}){arrow}"
    return "\n".join([header, *_lines(nest.body, "", names)])


def format_stmt(stmt: Stmt, names: Names | None = None) -> str:
    """A statement alone, not indented; `names` continues the naming of an earlier text."""
    return "\n".join(_lines(stmt, "", names or Names()))


def format_excerpt(stmt: Stmt) -> str:
    """The first lines of a statement, for messages."""
    lines = format_stmt(stmt).splitlines()
    return "\n".join(lines[:6] + (["..."] if len(lines) > 6 else []))


def format_expr(expr: Expr, names: Names | None = None) -> str:
    """An expression of a loop nest, on one line."""
    (text,), definitions = _texts([expr], names or Names())
    return text + where(definitions)


def format_item(item: Stmt | Expr) -> str:
    """A statement or an expression, for messages."""
    return format_expr(item) if isinstance(item, Expr) else format_stmt(item)


def _shape(buffer: Buffer, names: Names) -> str:
    return f"[{', '.join(_extent(extent, names) for extent in buffer.shape)}]"


def _extent(extent: int | Expr, names: Names) -> str:
    return str(extent) if isinstance(extent, int) else format_expr(extent, names)


def _texts(exprs: Sequence[Expr], names: Names) -> tuple[list[str], list[str]]:
    """Expressions that stand together, and what `$0`, `$1`, ... in them are."""
    definitions: list[str] = []

    def define(text: _Text, repeated: bool) -> _Text:
        if not repeated or len(text[1]) <= LONG:
            return text
        definitions.append(text[1])
        return _ATOM, f"${len(definitions) - 1}"

    texts = written_once(exprs, lambda node, inner: _node(node, inner, names), define)
    return [text for _, text in texts], definitions


def _lines(stmt: Stmt, indent: str, names: Names) -> Iterator[str]:
    inner = indent + "  "
    match stmt:
        case For(var=var, extent=extent, kind=kind, body=body):
            yield f"{indent}{kind} {names.of(var)} in 0..{_extent(extent, names)}:"
            yield from _lines(body, inner, names)
        case Store(buffer=buffer, indices=indices, value=value):
            name = names.of(buffer)
            (*at, text), definitions = _texts([*indices, value], names)
            yield from _defined(definitions, indent)
            yield f"{indent}{name}[{', '.join(at)}] = {text}"
        case Let(var=var, value=value, body=body):
            name = names.of(var)
            (text,), definitions = _texts([value], names)
            yield from _defined(definitions, indent)
            yield f"{indent}let {name}: {var.dtype} = {text}"
            yield from _lines(body, indent, names)
        case If(cond=cond, then=then, other=other):
            (text,), definitions = _texts([cond], names)
            yield from _defined(definitions, indent)
            yield f"{indent}if {text}:"
            yield from _lines(then, inner, names)
            if other is not None:
                yield f"{indent}else:"
                yield from _lines(other, inner, names)
        case Seq(stmts=stmts):
            for one in stmts:
                yield from _lines(one, indent, names)
        case Alloc(buffer=buffer, body=body):
            strides = f" strides {list(buffer.strides)}" if buffer.strides is not None else ""
            head = f"allocate {names.of(buffer)}{_shape(buffer, names)}"
            yield f"{indent}{head} {buffer.dtype} {buffer.scope}{strides}"
            yield from _lines(body, indent, names)
        case Barrier(pending=pending):
            yield f"{indent}barrier{f' but {pending}' if pending else ''}"
        case Commit():
            yield f"{indent}commit"
        case Prefetch(buffer=buffer, indices=indices, near=near):
            name = names.of(buffer)
            at, definitions = _texts(indices, names)
            yield from _defined(definitions, indent)
            yield f"{indent}prefetch {'near ' if near else ''}{name}[{', '.join(at)}]"


def _defined(definitions: Sequence[str], indent: str) -> Iterator[str]:
    """The lines before a statement that say what `$0`, `$1`, ... are."""
    return (f"{indent}${number} := {text}" for number, text in enumerate(definitions))


def _inner(text: _Text, limit: int) -> str:
    return text[1] if text[0] >= limit else f"({text[1]})"


def _node(expr: Expr, inner: list[_Text], names: Names) -> _Text:
    """Binding strength and text of a node, from those of its children."""
    texts = [text for _, text in inner]
    match expr:
        case Const(value=value):
            return (_ATOM if value >= 0 else 0), str(value)
        case Var():
            return _ATOM, names.of(expr)
        case Binary(op=op):
            return _operator(op, *inner)
        case Not():
            return _NOT, f"not {_inner(inner[0], _NOT)}"
        case Cast(dtype=dtype):
            return _ATOM, f"{dtype}({texts[0]})"
        case Select(lazy=lazy):
            return _ATOM, f"{'if_then_else' if lazy else 'select'}({', '.join(texts)})"
        case Call(name=name):
            return _ATOM, f"{name}({', '.join(texts)})"
        case Load(buffer=buffer):
            return _ATOM, f"{names.of(buffer)}[{', '.join(texts)}]"
        case Read(tensor=tensor):
            return _ATOM, f"{tensor.name}[{', '.join(texts)}]"
        case Reduce(combiner=combiner, sources=sources, axes=axes):
            over = ", ".join(names.of(axis) for axis in axes)
            return _ATOM, f"{combiner.name}({', '.join(texts[: len(sources)])}, over {over})"
        case _:
            return _ATOM, repr(expr)


def _operator(op: BinaryOp, a: _Text, b: _Text) -> _Text:
    infix = _INFIX.get(op)
    if infix is None:
        return _ATOM, f"{op}({a[1]}, {b[1]})"
    strength, sign = infix
    left_limit = strength + (1 if strength == 4 else 0)
    right_limit = strength + (0 if op in _ASSOCIATIVE else 1)
    return strength, f"{_inner(a, left_limit)}{sign}{_inner(b, right_limit)}"
