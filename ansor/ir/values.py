"""Expressions of a loop nest compiled to closures over the lanes of `ansor.ir.lanes`.

Indices are checked where they are used, scratch memory must have been written before it is read, and each
side of a lazy choice is evaluated only in the lanes that choose it. Both sides of other choices are evaluated
in all lanes: what is read in lanes that do not choose a side may be anything. What an expression uses several
times is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ansor.dtypes import to_numpy
from ansor.errors import RunError
from ansor.ir.bounds import Bounds
from ansor.ir.lanes import USED, Env, Storage, keep, per_lane, varies
from ansor.ir.nest import Buffer, Stmt
from ansor.ir.printer import format_item
from ansor.ir.races import RaceDetector
from ansor.ir.shuffles import SHUFFLE
from ansor.ir.simplify import simplify
from ansor.te.buffer import row_major_strides
from ansor.te.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Var,
    children,
    distinct_nodes,
    int_value,
)
from ansor.te.numeric import BINARY, apply_call, apply_cast, constant

Value = Callable[[Env], Any]
"""A compiled expression: its value in all lanes, a scalar where they agree."""


class ExpressionCompiler:
    """Turns expressions into closures; knows the slots of variables and the layout of buffers."""

    def __init__(self, bounds: Bounds, races: RaceDetector | None) -> None:
        self.initial: Env = [1, None]
        self.bounds = bounds
        self.races = races
        self._slots: dict[Var | Buffer, int] = {}
        self.layout: dict[Buffer, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self.path: list[Var] = []
        """The variables bound around the statement being compiled."""

    # -- slots -------------------------------------------------------------------------------------------

    def slot(self, item: Var | Buffer) -> int:
        number = self._slots.get(item)
        if number is None:
            number = self._slots[item] = len(self.initial)
            self.initial.extend([None, 0] if isinstance(item, Buffer) else [None])
        return number

    def new_slot(self) -> int:
        self.initial.append(None)
        return len(self.initial) - 1

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The extents of `buffer`, symbolic sizes replaced by their values."""
        return tuple(self._known(extent, buffer.name) for extent in buffer.shape)

    def _known(self, extent: int | Expr, name: str) -> int:
        value = extent if isinstance(extent, int) else int_value(simplify(extent, self.bounds))
        if value is None:
            raise RunError(f"the extent `{extent}` of {name!r} is not determined by the sizes")
        return value

    def declare(
        self, buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...] | None, storage: Storage | None
    ) -> int:
        slot = self.slot(buffer)
        self.layout[buffer] = (shape, strides or row_major_strides(shape))
        self.initial[slot] = storage
        return slot

    # -- accesses --------------------------------------------------------------------------------------------

    def offset(self, buffer: Buffer, indices: list[Value], at: Stmt | Expr) -> Value:
        """The checked flat position of an element in its storage."""
        if buffer not in self.layout:
            raise RunError(f"buffer {buffer.name!r} is used outside its allocation")
        shape, strides = self.layout[buffer]
        if len(indices) != len(shape):
            raise RunError(
                f"`{format_item(at)}` has {len(indices)} indices, {buffer.name!r} has {len(shape)} dimensions"
            )
        base = self.slot(buffer) + 1
        parts = [
            (index, extent, stride, dimension)
            for dimension, (index, extent, stride) in enumerate(zip(indices, shape, strides, strict=True))
        ]
        path = tuple(self.path)

        def compute(env: Env) -> Any:
            total = env[base]
            for index, extent, stride, dimension in parts:
                value = index(env)
                if varies(value):
                    value = value.astype(np.int64)
                    # As an unsigned number what is negative is too large.
                    if np.maximum.reduce(value.view(np.uint64)) >= extent:
                        bad = (value < 0) | (value >= extent)
                        what = f"{int(value[bad][0])} is not in 0..{extent - 1}"
                        self.fail(env, bad, path, at, f"is out of bounds in dimension {dimension}: {what}")
                else:
                    value = int(value)
                    if not 0 <= value < extent:
                        what = f"{value} is not in 0..{extent - 1}"
                        self.fail(env, None, path, at, f"is out of bounds in dimension {dimension}: {what}")
                total = total + (value if stride == 1 else value * stride)
            return total

        return compute

    def fail(self, env: Env, bad: Any, path: tuple[Var, ...], at: Stmt | Expr, what: str) -> None:
        lane = int(np.argmax(bad)) if bad is not None and varies(bad) else 0
        known = []
        for var in path:
            value = env[self._slots[var]]
            known.append(f"{var.name}={value[lane] if varies(value) else value}")
        where = f" at {', '.join(known)}" if known else ""
        raise RunError(f"`{format_item(at)}` {what}{where}")

    # -- expressions -----------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        """Compile an expression; what it uses several times is computed once."""
        uses: dict[int, int] = {}
        nodes = list(distinct_nodes(expr))
        for node in nodes:
            for child in children(node):
                uses[id(child)] = uses.get(id(child), 0) + 1
        values: dict[int, Value] = {}
        kept: list[int] = []
        for node in nodes:
            compute = self._node(node, [values[id(child)] for child in children(node)])
            if uses.get(id(node), 0) > 1 and children(node):
                slots = self.new_slot(), self.new_slot()
                kept.append(slots[0])
                compute = _once(compute, *slots)
            values[id(node)] = compute
        root = values[id(expr)]
        if not kept:
            return root

        def run(env: Env) -> Any:
            result = root(env)
            for slot in kept:
                env[slot] = None
            return result

        return run

    def _node(self, expr: Expr, inner: list[Value]) -> Value:
        """One node, over the values of its children."""
        match expr:
            case Const(value=value, dtype=dtype):
                literal = constant(value, dtype)[()]
                return lambda env: literal
            case Var():
                return self._variable(expr)
            case Binary():
                return self._binary(expr, *inner)
            case Not():
                (negated,) = inner
                return lambda env: np.logical_not(negated(env))
            case Cast(a=a, dtype=dtype):
                (source,), source_dtype = inner, a.dtype
                return lambda env: apply_cast(source(env), source_dtype, dtype)
            case Select():
                return self._select(expr, *inner)
            case Call(name=name) if name == SHUFFLE:
                raise RunError(f"`{expr}` is not the whole value of a store")
            case Call(name=name, dtype=dtype):
                return lambda env: apply_call(name, [source(env) for source in inner], dtype)
            case Load():
                return self._load(expr, inner)
            case _:
                raise RunError(f"{type(expr).__name__} `{expr}` does not belong into a loop nest")

    def _variable(self, var: Var) -> Value:
        if var not in self._slots:
            raise RunError(f"variable {var.name!r} is used outside the loop or let that defines it")
        slot = self._slots[var]
        return lambda env: env[slot]

    def _binary(self, expr: Binary, a: Value, b: Value) -> Value:
        compute = BINARY[expr.op]
        return lambda env: compute(a(env), b(env))

    def _select(self, expr: Select, cond: Value, then: Value, other: Value) -> Value:
        if not expr.lazy:
            return lambda env: _either(env, cond(env), then, other)
        dtype = to_numpy(expr.dtype)

        def choose(env: Env) -> Any:
            holds = cond(env)
            if not varies(holds):
                return then(env) if holds else other(env)
            chosen = np.flatnonzero(holds)
            if len(chosen) == len(holds):
                return then(env)
            if not len(chosen):
                return other(env)
            result = np.empty(len(holds), dtype)
            result[chosen] = then(keep(env, chosen))
            rest = np.flatnonzero(~holds)
            result[rest] = other(keep(env, rest))
            return result

        return choose

    def _load(self, expr: Load, indices: list[Value]) -> Value:
        slot = self.slot(expr.buffer)
        offset = self.offset(expr.buffer, indices, expr)
        watch = None if self.races is None else self.races.access(expr.buffer, expr, write=False)
        path = tuple(self.path)

        def read(env: Env) -> Any:
            where = offset(env)
            storage: Storage = env[slot]
            if storage.written is not None and not (defined := storage.written[where]).all():
                missing = np.logical_not(defined)
                if env[USED] is not None:
                    missing = np.logical_and(missing, env[USED])
                if missing.any():
                    self.fail(env, missing, path, expr, "is read before it is written")
            if watch is not None:
                watch(env, storage, per_lane(where, env))
            return storage.data[where]

        return read


def _either(env: Env, holds: Any, then: Value, other: Value) -> Any:
    """A choice of two values, both of which are computed."""
    used = env[USED]
    env[USED] = holds if used is None else np.logical_and(used, holds)
    first = then(env)
    refused = np.logical_not(holds)
    env[USED] = refused if used is None else np.logical_and(used, refused)
    second = other(env)
    env[USED] = used
    return np.where(holds, first, second)


def _once(compute: Value, slot: int, lanes: int) -> Value:
    """`compute`, remembered in `slot` while one expression is evaluated, for the lanes that use it."""

    def run(env: Env) -> Any:
        known = env[slot]
        if known is None or not (env[lanes] is None or env[lanes] is env[USED]):
            known = env[slot] = compute(env)
            env[lanes] = env[USED]
        return known

    return run
