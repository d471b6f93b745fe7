"""A graph of tensors as the Python code that defines it.

Schedules are printed as programs that stand alone; this writes their first half, the `te` definitions.
Executing the text gives a graph of the same structure and names, with the attributes of what is computed. Of
those of inputs it keeps what they stand for, if that is wanted (`ansor.schedule.prepared`).
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansor.te.expr import (
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Not,
    Read,
    Reduce,
    Select,
    Var,
    free_vars,
)
from ansor.te.reduction import builtin_name
from ansor.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor

_INFIX = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.DIV: "/",
    BinaryOp.FLOORDIV: "//",
    BinaryOp.FLOORMOD: "%",
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
PREPARED = "prepared"
"""The function that makes an input of what it stands for."""

StandsFor = Callable[[PlaceholderOp], Tensor | None]
"""The tensor that an input stands for, if any."""


def identifier(text: str, taken: set[str]) -> str:
    """A Python name for `text` that is not `taken` yet; it is taken afterwards."""
    name = re.sub(r"\W", "_", text)
    if not name or name[0].isdigit() or keyword.iskeyword(name):
        name = f"_{name}"
    unique, count = name, 1
    while unique in taken:
        unique, count = f"{name}_{count}", count + 1
    taken.add(unique)
    return unique


def graph_source(
    ops: Sequence[Operation], taken: set[str], stands_for: StandsFor | None = None
) -> tuple[list[str], dict[Tensor, str]]:
    """
    Write the definitions of operations.

    Parameters
    ----------
    ops
        The operations, in dependency order.
    taken
        Names in use; the new variables are added to it.
    stands_for
        If given, inputs that stand for a function of another input are written with that function, by
        `PREPARED`, which must be at hand where the text is executed.

    Returns
    -------
    lines, variables
        The text, and the variable of every tensor.
    """
    # Axes keep their names, which those of loops are made of; whatever else is named makes way for them.
    kept = {axis.name for op in ops if isinstance(op, ComputeOp) for axis in op.axis} - _USED_IN_BODIES
    taken.update(kept)
    writer = _Writer(taken, kept, stands_for)
    for op in ops:
        writer.operation(op)
    return writer.lines, writer.tensors


class _Writer:
    def __init__(self, taken: set[str], kept: set[str], stands_for: StandsFor | None) -> None:
        self.taken = taken
        self.kept = kept
        self.stands_for = stands_for
        self.lines: list[str] = []
        self.tensors: dict[Tensor, str] = {}
        self.vars: dict[Var, str] = {}

    def operation(self, op: Operation) -> None:
        self._declare_sizes(e for t in op.outputs for e in t.shape if isinstance(e, Expr))
        if isinstance(op, PlaceholderOp):
            self._input(op)
            return
        for axis in op.reduce_axis:
            self.vars[axis] = identifier(axis.name, self.taken)
            self.lines.append(
                f"{self.vars[axis]} = te.reduce_axis((0, {self.expr(axis.extent)}), name={axis.name!r})"
            )
        arguments = set(self.taken)
        for axis in op.axis:
            self.vars[axis] = axis.name if axis.name in self.kept else identifier(axis.name, arguments)
        body = self._body(op)
        extra = f", name={op.name!r}"
        if op.tag:
            extra += f", tag={op.tag!r}"
        if op.attrs:
            extra += f", attrs={self._attrs(op.attrs)}"
        header = ", ".join(self.vars[axis] for axis in op.axis)
        call = f"te.compute({self._shape(op.shape)}, lambda{' ' if header else ''}{header}: {body}{extra})"
        if op.num_outputs == 1:
            self.lines.append(f"{self._name(op.outputs[0], op.name)} = {call}")
        else:
            names = [self._name(t, f"{op.name}_v{t.value_index}") for t in op.outputs]
            self.lines.append(f"{', '.join(names)} = {call}")

    def _input(self, op: PlaceholderOp) -> None:
        result = None if self.stands_for is None else self.stands_for(op)
        if result is None:
            made = f"te.placeholder({self._shape(op.shape)}, {op.dtype!r}, name={op.name!r})"
        else:
            self._define(result.op)
            made = f"{PREPARED}({self.tensors[result]})"
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

    def _declare_sizes(self, extents: Iterable[Expr]) -> None:
        for extent in extents:
            for var in sorted(free_vars(extent), key=lambda v: v.name):
                if var not in self.vars:
                    self.vars[var] = identifier(var.name, self.taken)
                    self.lines.append(f"{self.vars[var]} = te.var({var.name!r}, {var.dtype!r})")

    def _shape(self, shape: Sequence[int | Expr]) -> str:
        items = [self.expr(extent) if isinstance(extent, Expr) else str(extent) for extent in shape]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def _attrs(self, attrs: Mapping[str, Any]) -> str:
        return "{" + ", ".join(f"{key!r}: {self._attr(value)}" for key, value in attrs.items()) + "}"

    def _attr(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return self.tensors[value]
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self._attr(item) for item in value) + "]"
        return repr(value)

    def _body(self, op: ComputeOp) -> str:
        if isinstance(op.body[0], Reduce):
            return self._reduce(op.body[0])
        if len(op.body) == 1:
            return self.root(op.body[0])
        return f"({', '.join(self.root(expr) for expr in op.body)})"

    def root(self, expr: Expr) -> str:
        """A body's root; a constant needs its dtype written."""
        return self._typed(expr)

    def _reduce(self, reduce: Reduce) -> str:
        axes = ", ".join(self.vars[axis] for axis in reduce.axes)
        where = "" if reduce.condition is None else f", where={self.expr(reduce.condition)}"
        sources = [self._typed(source) for source in reduce.sources]
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
            result = f"({', '.join(self._typed(r) for r in combiner.result)})"
            identity = f"({', '.join(self._typed(i) for i in combiner.identity)})"
            reducer = (
                f"te.comm_reducer(lambda x, y: {result}, lambda *dtypes: {identity}, name={combiner.name!r})"
            )
            return f"{reducer}(({', '.join(sources)}), axis=[{axes}]{where})"
        result, identity = self._typed(combiner.result[0]), self._typed(combiner.identity[0])
        arguments = f"{sides[0][0]}, {sides[1][0]}"
        reducer = (
            f"te.comm_reducer(lambda {arguments}: {result}, lambda dtype: {identity}, name={combiner.name!r})"
        )
        return f"{reducer}({sources[0]}, axis=[{axes}]{where})"

    def _typed(self, expr: Expr) -> str:
        if isinstance(expr, Const):
            return f"te.const({_literal(expr)}, {expr.dtype!r})"
        return self.expr(expr)

    def expr(self, expr: Expr) -> str:
        """An expression as Python code; int32 constants are plain numbers."""
        match expr:
            case Const(dtype=dtype):
                return _literal(expr) if dtype == INDEX_DTYPE else self._typed(expr)
            case Var():
                return self.vars[expr]
            case Binary(op=op, a=a, b=b):
                both_constant = isinstance(a, Const) and isinstance(b, Const)
                left, right = (
                    (self._typed(a), self._typed(b)) if both_constant else (self.expr(a), self.expr(b))
                )
                if op in _INFIX:
                    return f"({left} {_INFIX[op]} {right})"
                return f"{_FUNCTIONS[op]}({left}, {right})"
            case Not(a=a):
                return f"te.logical_not({self._typed(a)})"
            case Cast(a=a, dtype=dtype):
                return f"te.cast({self._typed(a)}, {dtype!r})"
            case Select(cond=cond, then=then, other=other, lazy=lazy):
                name = "te.if_then_else" if lazy else "te.select"
                return f"{name}({self._typed(cond)}, {self._typed(then)}, {self._typed(other)})"
            case Call(name=name, args=args):
                return f"te.{name}({', '.join(self._typed(arg) for arg in args)})"
            case Read(tensor=tensor, indices=indices):
                inside = ", ".join(self.expr(index) for index in indices)
                return f"{self.tensors[tensor]}[{inside}]" if indices else f"{self.tensors[tensor]}()"
            case _:
                raise TypeError(f"no source form for {type(expr).__name__}")


def _literal(expr: Const) -> str:
    value = expr.value
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
