"""Expressions compiled to a straight line of numpy calls.

A `Kernel` evaluates several expressions at many points at once: each variable is bound to an integer array
of positions, shaped so that all of them broadcast (an axis of a block is an `arange` along a dimension of its
own), and each node becomes one call. Nodes that depend on few axes stay small arrays until they must grow,
which is what makes the interpreter usable on a real matmul. Arrays are dropped after their last use.

Laziness is a mask: below the chosen side of an `if_then_else` only the points at which it is chosen are
*active*. Inactive points may read out of bounds; they get some value nobody looks at. A node whose value is
there under a wider mask is not computed again, and what both sides need is computed before they part: of
choices in each other, each of whose sides uses the one before, the masks double with every choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ansor.dtypes import to_numpy
from ansor.errors import RunError
from ansor.te.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Not,
    Read,
    Select,
    Var,
    children,
    used_by_both,
)
from ansor.te.numeric import BINARY, Array, apply_call, apply_cast, constant
from ansor.te.tensor import Tensor

Bindings = Mapping[Var, Array]
Reader = Callable[[Tensor, list[Array]], Array]
"""Gives the elements of a tensor at index arrays that broadcast and are within its bounds."""


@dataclass(frozen=True)
class Context:
    """What a kernel needs to run: positions of the variables, extents of the tensors, and their elements."""

    bindings: Bindings
    shape_of: Callable[[Tensor], tuple[int, ...]]
    read: Reader


def without_tensors(bindings: Bindings) -> Context:
    """The context of expressions that read no tensor."""

    def refuse(tensor: Tensor, *_: list[Array]) -> NoReturn:
        raise AssertionError(f"an expression of variables reads tensor {tensor.name!r}")

    return Context(bindings, refuse, refuse)


@dataclass(frozen=True)
class _Instruction:
    """`slots[target] = run(context, [slots[s] for s in sources], mask)`, then drop the slots in `dead`."""

    target: int
    run: Callable[[Context, list[Array], Array | None], Array]
    sources: tuple[int, ...]
    mask: int | None
    dead: tuple[int, ...]


class Kernel:
    """The values of `roots`, none of which holds a reduction, under the condition `where` if there is one.

    A root is evaluated only at the points at which `where` holds; elsewhere its value is arbitrary.
    """

    def __init__(self, roots: Sequence[Expr], where: Expr | None = None) -> None:
        builder = _Builder()
        self._where = None if where is None else builder.emit(where, None)
        self._roots = tuple(builder.emit(root, self._where) for root in roots)
        self._slot_count = len(builder.instructions)
        self._instructions = _with_dead_slots(builder.instructions, {*self._roots, self._where})

    def __call__(self, context: Context) -> tuple[list[Array], Array | None]:
        """Return the values of the roots and of `where`, of shapes that broadcast over the bindings."""
        slots: list[Array | None] = [None] * self._slot_count
        for step in self._instructions:
            mask = None if step.mask is None else slots[step.mask]
            operands = [value for s in step.sources if (value := slots[s]) is not None]
            slots[step.target] = step.run(context, operands, mask)
            for slot in step.dead:
                slots[slot] = None
        values = [value for slot in self._roots if (value := slots[slot]) is not None]
        return values, None if self._where is None else slots[self._where]


def _with_dead_slots(instructions: list[_Instruction], kept: set[int | None]) -> tuple[_Instruction, ...]:
    last_use: dict[int, int] = {}
    for position, step in enumerate(instructions):
        for slot in (step.target, *step.sources, *(() if step.mask is None else (step.mask,))):
            last_use[slot] = position
    dead: dict[int, list[int]] = {}
    for slot, position in last_use.items():
        if slot not in kept:
            dead.setdefault(position, []).append(slot)
    return tuple(
        _Instruction(step.target, step.run, step.sources, step.mask, tuple(dead.get(position, ())))
        for position, step in enumerate(instructions)
    )


class _Builder:
    """Emits the instructions of expressions, each distinct (node, mask) once, without recursion."""

    def __init__(self) -> None:
        self.instructions: list[_Instruction] = []
        self._slots: dict[tuple[int, int | None], int] = {}
        self._masks: dict[tuple[int, bool, int | None], int] = {}
        self._wider: dict[int, int | None] = {}
        self._of_both: dict[int, list[Expr]] = {}

    def emit(self, root: Expr, mask: int | None) -> int:
        stack = [(root, mask)]
        while stack:
            node, under = stack[-1]
            if self._find(node, under) is not None:
                stack.pop()
                continue
            operands = self._operands(node, under)
            sources = [slot for n, m in operands if (slot := self._find(n, m)) is not None]
            if len(sources) < len(operands):
                stack.extend((n, m) for n, m in reversed(operands) if self._find(n, m) is None)
                continue
            stack.pop()
            self._slots[id(node), under] = self._append(_action(node), tuple(sources), under)
        found = self._find(root, mask)
        assert found is not None
        return found

    def _find(self, node: Expr, mask: int | None) -> int | None:
        """The slot of a node's value at all points of a mask, if it is computed."""
        while mask is not None:
            if (id(node), mask) in self._slots:
                return self._slots[id(node), mask]
            mask = self._wider.get(mask)
        return self._slots.get((id(node), None))

    def _operands(self, node: Expr, mask: int | None) -> list[tuple[Expr, int | None]]:
        """
        The children of `node` with their masks.

        Of a lazy choice first the condition alone, then what both sides need.
        """
        if not (isinstance(node, Select) and node.lazy):
            return [(child, mask) for child in children(node)]
        condition = self._find(node.cond, mask)
        if condition is None:
            return [(node.cond, mask)]
        both = [(part, mask) for part in self._used_by_both(node) if self._find(part, mask) is None]
        if both:
            return both
        chosen, other = self._narrow(condition, True, mask), self._narrow(condition, False, mask)
        return [(node.cond, mask), (node.then, chosen), (node.other, other)]

    def _used_by_both(self, choice: Select) -> list[Expr]:
        """See `used_by_both`; asked again while what it gives is computed."""
        found = self._of_both.get(id(choice))
        if found is None:
            found = self._of_both[id(choice)] = used_by_both(choice)
        return found

    def _narrow(self, condition: int, wanted: bool, mask: int | None) -> int:
        """The slot of the mask `mask and (condition is wanted)`."""
        key = (condition, wanted, mask)
        if key not in self._masks:
            sources = (condition,) if mask is None else (condition, mask)
            made = self._masks[key] = self._append(_keep if wanted else _negate, sources, None)
            self._wider[made] = mask
        return self._masks[key]

    def _append(
        self,
        run: Callable[[Context, list[Array], Array | None], Array],
        sources: tuple[int, ...],
        mask: int | None,
    ) -> int:
        slot = len(self.instructions)
        self.instructions.append(_Instruction(slot, run, sources, mask, ()))
        return slot


def _keep(_: Context, operands: list[Array], __: Array | None) -> Array:
    return operands[0] if len(operands) == 1 else np.logical_and(operands[1], operands[0])


def _negate(_: Context, operands: list[Array], __: Array | None) -> Array:
    chosen: Array = np.logical_not(operands[0])
    return chosen if len(operands) == 1 else np.logical_and(operands[1], chosen)


def _action(node: Expr) -> Callable[[Context, list[Array], Array | None], Array]:
    """How to compute `node` from the values of its children."""
    match node:
        case Const(value=value, dtype=dtype):
            literal = constant(value, dtype)
            return lambda context, v, mask: literal
        case Var():
            return lambda context, v, mask: _bound(context, node)
        case Binary(op=op):
            return lambda context, v, mask: BINARY[op](v[0], v[1])
        case Not():
            return lambda context, v, mask: np.logical_not(v[0])
        case Cast(a=a, dtype=dtype):
            return lambda context, v, mask: apply_cast(v[0], a.dtype, dtype)
        case Select():
            return lambda context, v, mask: np.where(v[0], v[1], v[2])
        case Call(name=name, dtype=dtype):
            return lambda context, v, mask: apply_call(name, v, dtype)
        case Read():
            return lambda context, v, mask: _read(context, node, v, mask)
        case _:
            raise TypeError(f"{type(node).__name__} `{node}` cannot be evaluated here")


def _bound(context: Context, node: Var) -> Array:
    try:
        return context.bindings[node]
    except KeyError:
        raise RunError(f"the symbolic size {node.name!r} has no value; give it in sizes={{...}}") from None


def _read(context: Context, node: Read, indices: list[Array], mask: Array | None) -> Array:
    """The elements that `node` reads; where inactive indices are out of bounds element 0, if there is one."""
    safe: list[Array] = []
    shape = context.shape_of(node.tensor)
    for dimension, (index, extent) in enumerate(zip(indices, shape, strict=True)):
        if index.min() >= 0 and index.max() < extent:
            safe.append(index)
            continue
        outside = np.logical_or(index < 0, index >= extent)
        active = outside if mask is None else np.logical_and(outside, mask)
        if active.any():
            raise RunError(
                f"`{node}` reads tensor {node.tensor.name!r} out of bounds in dimension {dimension}: "
                f"{_first(index, active)} is not in 0..{extent - 1}{_where(context, active)}; "
                "guard it with te.if_then_else"
            )
        safe.append(np.where(outside, 0, index))
    if 0 in shape:
        return np.zeros(np.broadcast_shapes(*(index.shape for index in safe)), to_numpy(node.dtype))
    return context.read(node.tensor, safe)


def _first(values: Array, chosen: Array) -> int:
    position = np.unravel_index(int(np.argmax(chosen)), chosen.shape)
    return int(np.broadcast_to(values, chosen.shape)[position])


def _where(context: Context, chosen: Array) -> str:
    """The values of the variables at the first chosen point, as far as its shape tells: ` at i=3, j=0`."""
    known = {
        var.name: _first(values, chosen)
        for var, values in context.bindings.items()
        if values.ndim == 0 or _broadcasts(values.shape, chosen.shape)
    }
    text = ", ".join(f"{name}={value}" for name, value in known.items())
    return f" at {text}" if text else ""


def _broadcasts(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    return len(shape) <= len(into) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(into), strict=False)
    )
