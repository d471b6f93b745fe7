"""Tensors and the two operations that make them: placeholders and computes.

A `Tensor` is one output of an operation; an operation is a node of the graph that a workload describes.
A `ComputeOp` gives the value of an output element as an expression over its axes, reading other tensors.
Both are immutable and compare by identity: two computes that say the same are still two stages.

The constructors here are the raw door, used by passes that rebuild operations (caching, inlining) from
checked parts. Users go through `te.placeholder` and `te.compute` (`ansor.te.define`), which check.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Union

from ansor.dtypes import is_integer
from ansor.errors import DefinitionError
from ansor.te.expr import Expr, ExprLike, IterVar, Read, as_expr, distinct_nodes, int_value, refuse_tensor

Extent = Union[int, Expr]
"""The size of one dimension: an int when constant, an expression of symbolic sizes otherwise."""


class _NotAScalar:
    """Refuses arithmetic on what still lacks indices, so that the message says what to write instead."""

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise DefinitionError(self.missing_indices())

    def missing_indices(self) -> str:
        """What is wrong with using this as a number, and what to write instead."""
        raise NotImplementedError

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __rand__ = __or__ = __ror__ = __invert__ = _refuse
    __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse
    __iter__ = _refuse

    def __eq__(self, other: object) -> bool:
        """Whether this is the same object; a comparison with a number is refused."""
        if isinstance(other, (int, float)):
            self._refuse()
        return self is other

    __hash__ = object.__hash__


class Tensor(_NotAScalar):
    """Output `value_index` of `op`; index it with `T[i, j]`, `T[i][j]` or `T(i, j)` to read an element."""

    __slots__ = ("dtype", "op", "shape", "value_index")

    op: Operation
    value_index: int
    shape: tuple[Extent, ...]
    dtype: str

    def __init__(self, op: Operation, value_index: int, shape: tuple[Extent, ...], dtype: str) -> None:
        self.op = op
        self.value_index = value_index
        self.shape = shape
        self.dtype = dtype

    @property
    def name(self) -> str:
        """The operation's name, with `.v1` for output 1 of an operation that has several."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Any:
        """The element at `indices` as an expression, or a `TensorSlice` while there are too few of them."""
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) < self.ndim:
            return TensorSlice(self, given)
        return self(*given)

    def __call__(self, *indices: ExprLike) -> Expr:
        """The element at `indices`, one per dimension.

        Raises
        ------
        DefinitionError
            If the number of indices is not the rank, or one is not an integer.
        """
        if len(indices) != self.ndim:
            raise DefinitionError(
                f"tensor {self.name!r} has {self.ndim} dimension(s) {format_shape(self.shape)} "
                f"but is read with {len(indices)} indices ({', '.join(str(index) for index in indices)})"
            )
        return Read(self, tuple(self._index(i, index) for i, index in enumerate(indices)), self.dtype)

    def _index(self, dimension: int, index: Any) -> Expr:
        where = f"index {dimension} of tensor {self.name!r}"
        if isinstance(index, slice) or index is None or index is Ellipsis:
            raise DefinitionError(f"{where} is {index!r}: slices are not expressions; give one index")
        if isinstance(index, (Tensor, TensorSlice)):
            raise DefinitionError(f"{where}: {index.missing_indices()}")
        refuse_tensor(where, index)
        expr = as_expr(index)
        if not is_integer(expr.dtype):
            raise DefinitionError(f"{where} is `{expr}` of {expr.dtype}; indices are integers, cast it")
        return expr

    def missing_indices(self) -> str:
        wanted = ", ".join(f"i{d}" for d in range(self.ndim))
        example = f"{self.name}[{wanted}]" if self.ndim else f"{self.name}()"
        return f"the whole tensor {self.name!r} is used as a number; read an element, e.g. {example}"

    def __str__(self) -> str:
        return f"{self.name}{format_shape(self.shape)}: {self.dtype}"

    def __repr__(self) -> str:
        return f"Tensor({self.name}, shape={format_shape(self.shape)}, dtype={self.dtype})"


class TensorSlice(_NotAScalar):
    """`T[i]` of a tensor of higher rank: collects indices until there is one per dimension."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[ExprLike, ...]) -> None:
        self.tensor = tensor
        self.indices = indices

    @property
    def name(self) -> str:
        return repr(self)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Any:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.tensor[(*self.indices, *more)]

    def missing_indices(self) -> str:
        return (
            f"tensor {self.tensor.name!r} has {self.tensor.ndim} dimension(s) "
            f"{format_shape(self.tensor.shape)} but is read with only {len(self.indices)} "
            f"index(es) ({', '.join(str(index) for index in self.indices)})"
        )

    def __repr__(self) -> str:
        return f"{self.tensor.name}[{', '.join(str(index) for index in self.indices)}]"


@dataclass(frozen=True, eq=False)
class PlaceholderOp:
    """An input: `shape` elements of `dtype`, given by the caller."""

    name: str
    shape: tuple[Extent, ...]
    dtype: str
    tag: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Tensor, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", (Tensor(self, 0, self.shape, self.dtype),))

    @property
    def num_outputs(self) -> int:
        return 1

    def output(self, index: int) -> Tensor:
        return self.outputs[index]

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return ()

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """No axes: nothing is computed."""
        return ()

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class ComputeOp:
    """`body[v]` is the value of output `v` at the point `axis`.

    `reduce_axis` are the axes of the `Reduce` at the root of each body, or empty. Every axis runs from 0 and
    the shape of all outputs is the extents of `axis`.
    """

    name: str
    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]
    tag: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Tensor, ...] = field(init=False, repr=False)
    input_tensors: tuple[Tensor, ...] = field(init=False, repr=False)
    """Tensors read, in order of first occurrence in the body (an index's own reads come first)."""

    def __post_init__(self) -> None:
        shape = tuple(extent_of(axis) for axis in self.axis)
        outputs = tuple(Tensor(self, v, shape, expr.dtype) for v, expr in enumerate(self.body))
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "input_tensors", tensors_read(self.body))

    @property
    def shape(self) -> tuple[Extent, ...]:
        return self.outputs[0].shape

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def output(self, index: int) -> Tensor:
        return self.outputs[index]


Operation = Union[PlaceholderOp, ComputeOp]


def extent_of(axis: IterVar) -> Extent:
    """The extent of `axis`, an int when constant."""
    value = int_value(axis.extent)
    return axis.extent if value is None else value


def tensors_read(exprs: Iterable[Expr]) -> tuple[Tensor, ...]:
    """The tensors that occur in `exprs`, once each, by first occurrence from the left."""
    found: dict[Tensor, None] = {}
    for expr in exprs:
        for node in distinct_nodes(expr):
            if isinstance(node, Read):
                found.setdefault(node.tensor)
    return tuple(found)


def as_extent(value: object, what: str) -> Extent:
    """`value` as the size of a dimension; `what` names it in errors.

    Raises
    ------
    DefinitionError
        If it is not an integer, a constant below 1 or beyond int32, or depends on axes or elements.
    """
    if isinstance(value, Expr):
        if not is_integer(value.dtype):
            raise DefinitionError(f"{what} is `{value}` of {value.dtype}; an extent is an integer")
        for node in distinct_nodes(value):
            if isinstance(node, (IterVar, Read)):
                raise DefinitionError(
                    f"{what} is `{value}`, which depends on `{node}`; an extent is the same everywhere, an "
                    "integer or made of te.vars (where= leaves terms out of a reduction)"
                )
        constant = int_value(value)
        if constant is None:
            return value
        value = constant
    if isinstance(value, bool):
        raise DefinitionError(f"{what} is {value!r}; an extent is an integer")
    try:
        extent = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DefinitionError(
            f"{what} is {value!r} of type {type(value).__name__}; an extent is an integer or te.var"
        ) from None
    if extent < 1:
        raise DefinitionError(f"{what} is {extent}; an extent is at least 1")
    if extent >= 2**31:
        raise DefinitionError(f"{what} is {extent}; an extent is at most 2**31 - 1, as indices are int32")
    return extent


def format_shape(shape: tuple[Extent, ...]) -> str:
    """`[64, n]`, as printed everywhere."""
    return f"[{', '.join(str(extent) for extent in shape)}]"
