"""A graph of tensors as the Python code that defines it.

Schedules are printed as programs that stand alone; this writes their first half, the `te` definitions.
Executing the text gives a graph of the same structure and names, with the attributes of what is computed. Of
those of inputs it keeps what they stand for, if that is wanted (`ansor.te.preparation`).

A long part of a body that occurs several times is a local variable there, and so is what is nested more
deeply than Python reads. A body without any is a `lambda`.
"""

from __future__ import annotations

import keyword
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

import numpy as np

from ansor.numbered import NumberedNames
from ansor.te.expr import (
    BITWISE,
    COMPARISONS,
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    IterVar,
    Not,
    Read,
    Reduce,
    Select,
    Var,
    children,
    free_vars,
)
from ansor.te.preparation import result_of
from ansor.te.reduction import builtin_name
from ansor.te.sharing import LONG, written_once
from ansor.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor

_LITERALS: Final = (str, bytes, bool, int, float, list, tuple, Mapping, np.generic)
"""What attributes may hold that code can name without imports."""
_INFIX = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.DIV: "/",
    BinaryOp.FLOORDIV: "//",
    BinaryOp.FLOORMOD: "%",
    **BITWISE,
    BinaryOp.EQ: "==",
    BinaryOp.NE: "!=",
    BinaryOp.LT: "<",
    BinaryOp.LE: "<=",
    BinaryOp.GT: ">",
    BinaryOp.GE: ">=",
}
_FUNCTIONS = {
    BinaryOp.TRUNCDIV: "te.truncdiv",
    BinaryOp.TRUNCMOD: "te.truncmod",
    BinaryOp.MIN: "te.minimum",
    BinaryOp.MAX: "te.maximum",
    BinaryOp.AND: "te.all",
    BinaryOp.OR: "te.any",
}
_USED_IN_BODIES = {"te", "float"}
_MOST_DEPTH = 50
"""Brackets in each other from which on a part is defined; Python reads 200."""
_Text = tuple[str, int]
"""An expression as Python code, and how many brackets are in each other there."""


def identifier(text: str, taken: NumberedNames) -> str:
    """A Python name for `text` that is not `taken` yet; it is taken afterwards."""
    # What Python takes for one name is one here, too: it reads them in this normal form.
    plain = unicodedata.normalize("NFKC", text)
    name = "".join(letter if f"_{letter}".isidentifier() else "_" for letter in plain)
    if not name.isidentifier() or keyword.iskeyword(name):
        name = f"_{name}"
    return taken.fresh(name)


def graph_source(
    ops: Sequence[Operation], taken: NumberedNames, *, prepared: bool = False
) -> tuple[list[str], dict[Tensor, str]]:
    """
    Write the definitions of operations.

    Parameters
    ----------
    ops
        The operations, in dependency order.
    taken
        Names in use; the new variables are added to it.
    prepared
        Whether inputs that stand for a function of another input are written with that function.

    Returns
    -------
    lines, variables
        The text, and the variable of every tensor.
    """
    # Axes keep their names, which those of loops are made of; whatever else is named makes way for them.
    kept = {axis.name for op in ops if isinstance(op, ComputeOp) for axis in op.axis} - _USED_IN_BODIES
    taken.take(kept)
    writer = _Writer(taken, kept, prepared)
    for op in ops:
        writer.operation(op)
    return writer.lines, writer.tensors


class _Writer:
    def __init__(self, taken: NumberedNames, kept: set[str], prepared: bool) -> None:
        self.taken = taken
        self.kept = kept
        self.prepared = prepared
        self.lines: list[str] = []
        self.tensors: dict[Tensor, str] = {}
        self.vars: dict[Var, str] = {}

    def operation(self, op: Operation) -> None:
        self._declare_sizes(e for t in op.outputs for e in t.shape if isinstance(e, Expr))
        if isinstance(op, PlaceholderOp):
            self._input(op)
            return
        self._declare_sizes((*(axis.extent for axis in op.reduce_axis), *op.body))
        for axis in op.reduce_axis:
            self.vars[axis] = identifier(axis.name, self.taken)
            self.lines.append(
                f"{self.vars[axis]} = te.reduce_axis((0, {self.expr(axis.extent)}), name={axis.name!r})"
            )
        arguments = self.taken.copy()
        for axis in op.axis:
            self.vars[axis] = axis.name if axis.name in self.kept else identifier(axis.name, arguments)
        header = ", ".join(self.vars[axis] for axis in op.axis)
        body = self._body(op, header, arguments)
        extra = f", name={op.name!r}"
        if op.tag:
            extra += f", tag={op.tag!r}"
        if attrs := self._attrs(op.attrs):
            extra += f", attrs={{{attrs}}}"
        call = f"te.compute({self._shape(op.shape)}, {body}{extra})"
        if op.num_outputs == 1:
            self.lines.append(f"{self._name(op.outputs[0], op.name)} = {call}")
        else:
            names = [self._name(t, f"{op.name}_v{t.value_index}") for t in op.outputs]
            self.lines.append(f"{', '.join(names)} = {call}")

    def _input(self, op: PlaceholderOp) -> None:
        result = result_of(op) if self.prepared else None
        if result is None:
            made = f"te.placeholder({self._shape(op.shape)}, {op.dtype!r}, name={op.name!r})"
        else:
            self._define(result.op)
            made = f"te.prepared({self.tensors[result]})"
        self.lines.append(f"{self._name(op.outputs[0], op.name)} = {made}")

    def _define(self, op: Operation) -> None:
        """Write an operation after those that it reads, unless it is written already."""
        if op.outputs[0] in self.tensors:
            return
        for tensor in op.input_tensors:
            self._define(tensor.op)
        self.operation(op)

    def _name(self, tensor: Tensor, text: str) -> str:
        self.tensors[tensor] = identifier(text, self.taken)
        return self.tensors[tensor]

    def _declare_sizes(self, exprs: Iterable[Expr]) -> None:
        for expr in exprs:
            for var in sorted(free_vars(expr), key=lambda v: v.name):
                if var not in self.vars and not isinstance(var, IterVar):
                    self.vars[var] = identifier(var.name, self.taken)
                    self.lines.append(f"{self.vars[var]} = te.var({var.name!r}, {var.dtype!r})")

    def _shape(self, shape: Sequence[int | Expr]) -> str:
        items = [self.expr(extent) if isinstance(extent, Expr) else str(extent) for extent in shape]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def _attrs(self, attrs: Mapping[str, Any]) -> str:
        known = (
            (key, value)
            for key, value in attrs.items()
            if isinstance(key, (str, int)) and self._is_known(value)
        )
        return ", ".join(f"{key!r}: {self._attr(value)}" for key, value in known)

    def _attr(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return self.tensors[value]
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self._attr(item) for item in value if self._is_known(item)) + "]"
        if isinstance(value, Mapping):
            return f"{{{self._attrs(value)}}}"
        if isinstance(value, np.generic):
            return self._attr(value.item())
        special = isinstance(value, float) and not math.isfinite(value)
        return f"float({str(value)!r})" if special else repr(value)

    def _is_known(self, value: Any) -> bool:
        """Whether a value can be written: no tensor outside of the graph, and nothing that is no literal."""
        if isinstance(value, Tensor):
            return value in self.tensors
        return value is None or isinstance(value, _LITERALS)

    # -- functions ---------------------------------------------------------------------------------------

    def _body(self, op: ComputeOp, header: str, taken: NumberedNames) -> str:
        """The function that a stage is computed by; `taken` are the names that mean something in it."""
        name = f"{op.name}_body"
        reduce = op.body[0]
        if isinstance(reduce, Reduce):
            return self._function(
                name, header, taken, children(reduce), lambda texts: self._reduce(reduce, texts)
            )
        return self._function(name, header, taken, op.body, _one_or_tuple)

    def _function(
        self,
        name: str,
        header: str,
        taken: NumberedNames,
        exprs: Sequence[Expr],
        result: Callable[[list[str]], str],
    ) -> str:
        """A function of what `header` lists: a lambda, or the name of one that is defined before."""
        local = taken.copy()
        lines: list[str] = []
        value = result(self._texts(exprs, local, lines))
        if not lines:
            return f"lambda{' ' if header else ''}{header}: {value}"
        name = identifier(name, self.taken)
        self.lines.append(f"def {name}({header}):")
        self.lines += (f"    {line}" for line in (*lines, f"return {value}"))
        return name

    def _reduce(self, reduce: Reduce, texts: list[str]) -> str:
        axes = ", ".join(self.vars[axis] for axis in reduce.axes)
        sources = texts[: len(reduce.sources)]
        where = "".join(f", where={text}" for text in texts[len(sources) :])
        combiner = reduce.combiner
        if combiner.name == builtin_name(combiner):
            return f"te.{combiner.name}({sources[0]}, axis=[{axes}]{where})"
        sides = []
        for group in (combiner.lhs, combiner.rhs):
            names = [identifier(var.name, self.taken) for var in group]
            self.vars.update(zip(group, names, strict=True))
            sides.append(names)
        pair = len(combiner.lhs) > 1
        if pair:
            # The two arguments are tuples; name their items by position.
            for group, letter in ((combiner.lhs, "x"), (combiner.rhs, "y")):
                self.vars.update({var: f"{letter}[{i}]" for i, var in enumerate(group)})
        arguments = "x, y" if pair else f"{sides[0][0]}, {sides[1][0]}"
        taken = self.taken.copy()
        taken.take(("x", "y"))
        combine = self._function(combiner.name, arguments, taken, combiner.result, _one_or_tuple)
        given = "*dtypes" if pair else "dtype"
        identity = self._function(f"{combiner.name}_of_none", given, taken, combiner.identity, _one_or_tuple)
        reducer = f"te.comm_reducer({combine}, {identity}, name={combiner.name!r})"
        return f"{reducer}({sources[0] if not pair else _one_or_tuple(sources)}, axis=[{axes}]{where})"

    # -- expressions -------------------------------------------------------------------------------------

    def expr(self, expr: Expr) -> str:
        """An expression outside of all functions; int32 constants are plain numbers."""
        return _literal(expr) if _is_plain(expr) else self._texts([expr], self.taken, self.lines)[0]

    def _texts(self, exprs: Sequence[Expr], taken: NumberedNames, lines: list[str]) -> list[str]:
        """Expressions that stand together; `lines`, which are to stand before, define variables of them."""

        def define(text: _Text, repeated: bool) -> _Text:
            if not (repeated and len(text[0]) > LONG) and text[1] <= _MOST_DEPTH:
                return text
            name = identifier(f"t{len(lines)}", taken)
            lines.append(f"{name} = {text[0]}")
            return name, 0

        texts = written_once(exprs, self._node, define)
        return [self._typed(expr, text) for expr, (text, _) in zip(exprs, texts, strict=True)]

    def _node(self, node: Expr, inner: list[_Text]) -> _Text:
        """A node, from the texts of its children."""
        texts = [text for text, _ in inner]
        depth = 1 + max((depth for _, depth in inner), default=0)
        typed = [self._typed(child, text) for child, text in zip(children(node), texts, strict=True)]
        return self._code(node, texts, typed), depth

    def _typed(self, expr: Expr, text: str) -> str:
        """The text of an expression that nothing tells the dtype of: that of a constant has to be written."""
        return f"te.const({_literal(expr)}, {expr.dtype!r})" if isinstance(expr, Const) else text

    def _code(self, node: Expr, texts: list[str], typed: list[str]) -> str:
        match node:
            case Const():
                return _literal(node) if _is_plain(node) else self._typed(node, "")
            case Var():
                return self.vars[node]
            case Binary(op=op, a=a, b=b):
                # Python asks the right operand of a comparison first, turned round, if the left is a number.
                alone = isinstance(a, Const) and (isinstance(b, Const) or op in COMPARISONS)
                left, right = typed if alone else texts
                return (
                    f"({left} {_INFIX[op]} {right})" if op in _INFIX else f"{_FUNCTIONS[op]}({left}, {right})"
                )
            case Not():
                return f"te.logical_not({typed[0]})"
            case Cast(dtype=dtype):
                return f"te.cast({typed[0]}, {dtype!r})"
            case Select(lazy=lazy):
                return f"{'te.if_then_else' if lazy else 'te.select'}({', '.join(typed)})"
            case Call(name=name):
                return f"te.{name}({', '.join(typed)})"
            case Read(tensor=tensor):
                return f"{self.tensors[tensor]}[{', '.join(texts)}]" if texts else f"{self.tensors[tensor]}()"
            case _:
                raise TypeError(f"no source form for {type(node).__name__}")


def _is_plain(expr: Expr) -> TypeGuard[Const]:
    """Whether a plain number says all."""
    return isinstance(expr, Const) and expr.dtype == INDEX_DTYPE


def _one_or_tuple(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _literal(expr: Const) -> str:
    value = expr.value
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
