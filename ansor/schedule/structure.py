"""Which computations are the same: a hash of a graph's structure, free of names.

Two workloads with equal structure hashes take the same arguments, compute the same values by the same
expressions and offer a schedule the same stages and axes, so a schedule of one is a schedule of the other.
The hash covers the order of arguments, every operation in stage order, shapes, dtypes, constants, reductions
with their combiners, what inputs are prepared by (`ansor.te.preparation`), and the attributes that steer the
search or the layout, or allow larger errors. It leaves out the names of operations, axes and symbolic sizes,
tags and all other attributes. Commuted operands make a different structure; nothing is normalised.

A workload key is a JSON list. Three forms occur:

- `["name", args...]`: a registered function and its arguments;
- `["<40 hex digits>", [shape], ...]`: ours, for a graph without a registered function: the structure
  hash and the shapes of all arguments;
- `["<32 hex digits>", [shape], ...]`: TVM's form of that: the MD5 of its own print of the graph. That text
  (another printer's, names included) cannot be made here, so the hash cannot be recomputed. When the user
  supplies the graph, the shapes are compared and the graph is then *trusted* (`match_key`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from ansor.errors import DefinitionError
from ansor.intrinsics import ROUNDED_OPERANDS_ATTR
from ansor.schedule.access import (
    ALWAYS_UNROLL_ATTR,
    AMPLIFICATION_ATTR,
    LAYOUT_FREE_ATTR,
    NO_SPLIT_ATTR,
    SIMPLIFY_CONST_ATTR,
    UNROLLED_TILES_ATTR,
    amplification,
    named_tile,
)
from ansor.te.expr import (
    Binary,
    Call,
    Cast,
    Combiner,
    Const,
    Expr,
    IterVar,
    Not,
    Read,
    Reduce,
    Select,
    Var,
    children,
    distinct_nodes,
    int_value,
)
from ansor.te.preparation import result_of
from ansor.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor

HASH_DIGITS: Final = 40
_TVM_HASH_DIGITS: Final = 32
_AXIS_ATTRS: Final = (SIMPLIFY_CONST_ATTR, NO_SPLIT_ATTR, ALWAYS_UNROLL_ATTR)


def structure_hash(tensors: Sequence[Tensor], ops: Sequence[Operation]) -> str:
    """The canonical hash of the graph `ops`, in stage order, with arguments `tensors`; 40 hex digits."""
    writer = _Writer()
    for op in ops:
        writer.operation(op)
    arguments = [f"{writer.ops[t.op]}.{t.value_index}" for t in tensors]
    return _digest("dag", *writer.lines, "args", *arguments)


def _digest(*parts: str) -> str:
    text = "\x1f".join(parts)
    return hashlib.blake2b(text.encode(), digest_size=HASH_DIGITS // 2).hexdigest()


def _preparation(result: Tensor) -> str:
    """The digest of the function of another input that `result` is."""
    writer = _Writer()
    writer.with_inputs(result.op)
    return _digest(*writer.lines, str(result.value_index))


class _Writer:
    """Numbers operations, axes and symbolic sizes by first occurrence and writes each operation as one line.

    Expressions become digests of their node and their children's digests, so a shared sub-expression is
    written once and the length of a line is bounded.
    """

    def __init__(self) -> None:
        self.ops: dict[Operation, int] = {}
        self.lines: list[str] = []
        self._vars: dict[Var, str] = {}
        self._sizes = 0

    def operation(self, op: Operation) -> None:
        self.ops[op] = len(self.ops)
        if isinstance(op, PlaceholderOp):
            result = result_of(op)
            prepared = [] if result is None else [f"prepared:{_preparation(result)}"]
            self.lines.append(_digest("placeholder", op.dtype, *self._extents(op.shape), *prepared))
            return
        for position, axis in enumerate((*op.axis, *op.reduce_axis)):
            self._vars[axis] = f"axis{position}"
        parts = ["compute", *(self._axis(axis) for axis in (*op.axis, *op.reduce_axis))]
        parts += [self.expression(root) for root in op.body]
        parts += self._attributes(op)
        self.lines.append(_digest(*parts))

    def with_inputs(self, op: Operation) -> None:
        """Write an operation after those that it needs; what is written already is left out."""
        if op in self.ops:
            return
        for tensor in op.input_tensors:
            self.with_inputs(tensor.op)
        self.operation(op)

    def _extents(self, shape: Iterable[Expr | int]) -> list[str]:
        return [str(e) if isinstance(e, int) else self.expression(e) for e in shape]

    def _axis(self, axis: IterVar) -> str:
        return f"{axis.kind}:{axis.dtype}:{self._extents((axis.extent,))[0]}"

    def _attributes(self, op: ComputeOp) -> list[str]:
        parts: list[str] = []
        layout_free = [str(self.ops[t.op]) for t in op.attrs.get(LAYOUT_FREE_ATTR, ()) if t.op in self.ops]
        if layout_free:
            parts.append(f"{LAYOUT_FREE_ATTR}:{','.join(sorted(layout_free))}")
        names = [axis.name for axis in (*op.axis, *op.reduce_axis)]
        for attr in _AXIS_ATTRS:
            if attr in op.attrs:
                listed = axis_names(op.attrs[attr])
                positions = sorted(names.index(name) for name in listed if name in names)
                parts.append(f"{attr}:{','.join(map(str, positions))}")
        if ROUNDED_OPERANDS_ATTR in op.attrs:
            parts.append(f"{ROUNDED_OPERANDS_ATTR}:{op.attrs[ROUNDED_OPERANDS_ATTR]}")
        amplified = amplification((op,))
        if amplified > 1:
            parts.append(f"{AMPLIFICATION_ATTR}:{amplified}")
        tile = named_tile(op)
        if tile is not None:
            parts.append(f"{UNROLLED_TILES_ATTR}:{sorted(tile.items())}")
        return parts

    def expression(self, expr: Expr) -> str:
        """The digest of `expr`; every node object is visited once."""
        digests: dict[int, str] = {}
        for node in distinct_nodes(expr):
            digests[id(node)] = _digest(self._node(node), *(digests[id(child)] for child in children(node)))
        return digests[id(expr)]

    def _node(self, node: Expr) -> str:
        """All of a node but its children."""
        match node:
            case Var():
                return self._variable(node)
            case Const(value=value, dtype=dtype):
                return f"const:{dtype}:{value.hex() if isinstance(value, float) else int(value)}"
            case Binary(op=op, dtype=dtype):
                return f"{op}:{dtype}"
            case Not():
                return "not"
            case Cast(dtype=dtype):
                return f"cast:{dtype}"
            case Select(lazy=lazy, dtype=dtype):
                return f"{'if_then_else' if lazy else 'select'}:{dtype}"
            case Call(name=name, dtype=dtype):
                return f"call:{name}:{dtype}"
            case Read(tensor=tensor):
                return f"read:{self.ops[tensor.op]}.{tensor.value_index}"
            case Reduce():
                return self._reduce(node)
            case _:
                raise TypeError(f"{type(node).__name__} does not occur in a tensor expression")

    def _variable(self, node: Var) -> str:
        if node not in self._vars:
            self._vars[node] = f"size{self._sizes}:{node.dtype}"
            self._sizes += 1
        return self._vars[node]

    def _reduce(self, node: Reduce) -> str:
        axes = ",".join(self._variable(axis) for axis in node.axes)
        condition = node.condition is not None
        return f"reduce:{node.index}:{axes}:{condition}:{self._combiner(node.combiner)}"

    def _combiner(self, combiner: Combiner) -> str:
        for side, variables in (("lhs", combiner.lhs), ("rhs", combiner.rhs)):
            for position, variable in enumerate(variables):
                self._vars[variable] = f"{side}{position}:{variable.dtype}"
        return _digest(*(self.expression(e) for e in (*combiner.result, *combiner.identity)))


def axis_names(value: object) -> tuple[str, ...]:
    """The axis names that a steering attribute lists: one name, several, or a JSON list in a string."""
    names = value
    if isinstance(value, str):
        try:
            names = json.loads(value) if value.startswith("[") else [value]
        except json.JSONDecodeError:
            names = None
    if isinstance(names, Iterable):
        return tuple(str(name) for name in names)
    raise DefinitionError(f"expected axis names, found {value!r} of type {type(value).__name__}")


# -- keys --------------------------------------------------------------------------------------------


class KeyMatch(StrEnum):
    """How a workload key relates to a graph."""

    EXACT = "exact"
    """A key of ours: the structure is equal."""
    SHAPES = "shapes"
    """A key of TVM's with a hash that cannot be checked; the argument shapes are equal."""
    NONE = "none"
    """The key is of another computation, or of a registered function."""


def workload_key(digest: str, tensors: Sequence[Tensor]) -> str:
    """The key `["<digest>", [shape], ...]`; symbolic extents are written by name."""
    shapes = [[_shape_item(extent) for extent in tensor.shape] for tensor in tensors]
    return json.dumps([digest, *shapes])


def _shape_item(extent: Expr | int) -> int | str:
    value = int_value(extent)
    return str(extent) if value is None else value


def _parse_hash_key(key: str) -> tuple[str | int, list[list[Any]]] | None:
    """Hash and shapes of a key that names a graph; None if it names a function and its arguments."""
    try:
        items = json.loads(key)
    except json.JSONDecodeError:
        return None
    if not isinstance(items, list) or len(items) < 2:
        return None
    digest, shapes = items[0], items[1:]
    if isinstance(digest, str):
        is_hex = len(digest) in (HASH_DIGITS, _TVM_HASH_DIGITS) and set(digest) <= set("0123456789abcdef")
        if not is_hex:
            return None
    elif not isinstance(digest, int):
        return None
    if not all(isinstance(shape, list) for shape in shapes):
        return None
    return digest, shapes


def match_key(key: str, digest: str, tensors: Sequence[Tensor]) -> KeyMatch:
    """Whether the workload `key` may stand for the graph with this structure hash and these arguments.

    A key of ours must carry the same hash. A key of TVM's (MD5, or the integer of a user's hash function)
    need only list the same shapes: the graph is the user's claim and is trusted after that check.
    """
    parsed = _parse_hash_key(key)
    if parsed is None:
        return KeyMatch.NONE
    found, shapes = parsed
    if isinstance(found, str) and len(found) == HASH_DIGITS:
        return KeyMatch.EXACT if found == digest else KeyMatch.NONE
    ours = [[_shape_item(extent) for extent in tensor.shape] for tensor in tensors]
    return KeyMatch.SHAPES if shapes == ours else KeyMatch.NONE
