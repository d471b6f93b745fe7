"""Layouts: in which order, and in which pieces, the elements of a tensor lie in memory.

A layout cuts every dimension of a tensor into *digits*, as a number is cut into hours, minutes and seconds,
and puts the digits of all dimensions in one order, the last one running fastest. A digit is a triple
`(dimension, extent, stride)` with the value `index // stride % extent`. The matrix B[k, j] of 512 x 512 in
panels of 16 columns, each panel row by row, is

    [(1, 32), (0, 512), (1, 16)]        B'[j // 16, k, j % 16]

Where the pieces do not divide a dimension the layout is padded: the outermost digit of the dimension runs
further, and what lies beyond the tensor is zero.

Everything refers to dimensions and digits by number. Names of axes play no part, so any will do.

Source: `RewriteLayout` of TVM 0.16 (`auto_scheduler/compute_dag.cc`), with numbers instead of the text
`4j8j4j4j512k`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from ansor.alignment import aligned_copy
from ansor.errors import ArgumentError, DefinitionError
from ansor.schedule.extents import Extent, in_any_row, is_one, multiply
from ansor.te.expr import INDEX_DTYPE, Binary, BinaryOp, Const, Expr, as_index, int_value
from ansor.te.preparation import prepare
from ansor.te.tensor import ComputeOp, PlaceholderOp, Tensor, format_shape

Array = npt.NDArray[Any]
DigitLike = Union[int, tuple[int, Union[int, None]], tuple[int, int, int]]
LAYOUT_ATTR = "layout"
"""Attribute of an operation that stands for another one: the `Layout` that its data have."""


@dataclass(frozen=True, slots=True)
class Digit:
    """The piece `index // stride % extent` of the index of dimension `dim`; columns in a population."""

    dim: int
    extent: Extent
    stride: Extent


@dataclass(frozen=True)
class Layout:
    """
    An order of the digits of a tensor's dimensions.

    Parameters
    ----------
    shape
        Extents of the tensor as it is defined [elements].
    digits
        Outermost in memory first. The strides of a dimension's digits multiply up: the smallest is 1, each
        other the product of extent and stride of the one below, and together they cover the dimension. A
        dimension of extent 1 may have none. `Layout.of` checks all this.
    """

    shape: tuple[int, ...]
    digits: tuple[Digit, ...]

    @classmethod
    def of(cls, shape: Sequence[int | Expr], digits: Layout | Sequence[DigitLike], name: str = "") -> Layout:
        """
        Read what people write.

        Parameters
        ----------
        shape
            Of the tensor as it is defined.
        digits
            Outermost first; each a dimension's number (the whole dimension), `(dimension, extent)`, or
            `(dimension, extent, stride)`. Without strides, the digits of a dimension are its pieces from the
            outermost to the innermost; the extent of the outermost may be None, the number that covers
            the dimension. A `Layout` is checked against the shape.
        name
            Of the tensor, for messages.

        Raises
        ------
        DefinitionError
            If a digit is malformed, or the digits of a dimension are no pieces of it.
        """
        title = f"layout of tensor {name!r}" if name else "layout"
        known = tuple(int_value(extent) for extent in shape)
        sizes = tuple(extent for extent in known if extent is not None)
        if len(sizes) != len(known):
            raise DefinitionError(
                f"{title}: its shape {format_shape(tuple(shape))} is symbolic; a layout needs numbers"
            )
        if isinstance(digits, Layout):
            if digits.shape != sizes:
                raise DefinitionError(
                    f"{title}: the layout is of shape {list(digits.shape)}, the tensor of {list(sizes)}"
                )
            return digits
        return cls(sizes, _read(title, sizes, digits))

    @cached_property
    def by_dim(self) -> tuple[tuple[int, ...], ...]:
        """For each dimension the positions of its digits, outermost piece first."""
        chains: list[list[int]] = [[] for _ in self.shape]
        for position, digit in enumerate(self.digits):
            chains[digit.dim].append(position)
        for chain in chains:
            # The order of columns is that of the pieces already: only fixed layouts are free to mix them.
            if all(isinstance(self.digits[at].stride, int) for at in chain):
                chain.sort(key=self._size, reverse=True)
        return tuple(map(tuple, chains))

    def _size(self, position: int) -> Any:
        """Sort key that puts inner pieces last; a piece of extent 1 may share the stride of the next."""
        digit = self.digits[position]
        return (digit.stride, digit.extent, -position)

    @property
    def new_shape(self) -> tuple[Extent, ...]:
        """Extents of the tensor in this layout [elements]: those of the digits."""
        return tuple(digit.extent for digit in self.digits)

    def is_padded(self, dim: int) -> bool:
        """Whether the digits of a dimension run further than it does (in some row)."""
        covered: Any = 1
        for position in self.by_dim[dim]:
            covered = multiply(covered, self.digits[position].extent)
        return in_any_row(covered != self.shape[dim])

    @property
    def is_row_major(self) -> bool:
        """Whether the elements lie as they do without the layout."""
        order = [position for chain in self.by_dim for position in chain]
        return order == sorted(order) and not any(self.is_padded(d) for d in range(len(self.shape)))

    @property
    def spec(self) -> list[tuple[int, ...]]:
        """The digits as `Layout.of` reads them: `(dimension, extent)`, with strides where the order asks."""
        plain = all(list(chain) == sorted(chain) for chain in self.by_dim)
        return [digit[:2] if plain else digit for digit in self.to_json()]

    def to_json(self) -> tuple[tuple[int, int, int], ...]:
        """The digits as triples of ints; a TypeError for columns."""
        return tuple((d.dim, _number(d.extent), _number(d.stride)) for d in self.digits)

    def __str__(self) -> str:
        return str(self.spec)

    # -- index arithmetic --------------------------------------------------------------------------------

    def new_indices(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where the element `indices` of the tensor lies: one index per digit."""
        made: list[Expr] = []
        for position, digit in enumerate(self.digits):
            index, chain = as_index(indices[digit.dim]), self.by_dim[digit.dim]
            outermost = chain[0] == position
            # Not for columns of ones: nothing can be multiplied with a constant and a column.
            if int_value(index) == 0 or (
                not outermost and isinstance(digit.extent, int) and digit.extent == 1
            ):
                made.append(Const(0, index.dtype))
                continue
            value = _apply(BinaryOp.FLOORDIV, index, digit.stride)
            made.append(value if outermost else _apply(BinaryOp.FLOORMOD, value, digit.extent))
        return tuple(made)

    def old_indices(self, digits: Sequence[Expr]) -> tuple[Expr, ...]:
        """Which element of the tensor lies at `digits`; beyond the tensor in the padding."""
        made: list[Expr] = []
        for chain in self.by_dim:
            total: Expr | None = None
            for position in chain:
                term = _apply(BinaryOp.MUL, digits[position], self.digits[position].stride)
                total = term if total is None else Binary(BinaryOp.ADD, total, term, term.dtype)
            made.append(Const(0, INDEX_DTYPE) if total is None else total)
        return tuple(made)

    def inside(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Conditions that `indices`, of `old_indices`, are not in the padding."""
        return tuple(
            Binary(BinaryOp.LT, index, Const(self.shape[dim], index.dtype), "bool")
            for dim, index in enumerate(indices)
            if self.is_padded(dim)
        )

    # -- arrays ------------------------------------------------------------------------------------------

    def transform(self, array: Array) -> Array:
        """
        Bring an array into this layout.

        Returns
        -------
        ndarray
            A new contiguous array of shape `new_shape`, padding zero; it begins on a cache line.

        Raises
        ------
        ArgumentError
            If the array's shape is not that of the tensor.
        """
        if array.shape != self.shape:
            raise ArgumentError(
                f"transform_layout: the layout {self} is of a tensor of shape {list(self.shape)}, "
                f"found an array of shape {list(array.shape)}"
            )
        chains = [[self.digits[position] for position in chain] for chain in self.by_dim]
        pieces = [[_number(digit.extent) for digit in chain] for chain in chains]
        covered = [int(np.prod(chain, dtype=np.int64)) for chain in pieces]
        if covered != list(self.shape):
            padded = np.zeros(covered, array.dtype)
            padded[tuple(slice(extent) for extent in self.shape)] = array
            array = padded
        split = array.reshape([extent for chain in pieces for extent in chain])
        place = {at: axis for axis, at in enumerate(at for chain in self.by_dim for at in chain)}
        return aligned_copy(split.transpose([place[at] for at in range(len(self.digits))]))


def transform_layout(array: Array, layout: Layout | Tensor) -> Array:
    """
    Bring the data of an input into the form, and the layout, that a program wants them in.

    Parameters
    ----------
    array
        The data as the input was defined.
    layout
        A layout, or the argument of a schedule in the place of the input (`SearchTask.apply_best` and
        `Schedule.rewrite_layout` give them). For an input whose layout was not rewritten the array itself
        is returned.

    Raises
    ------
    ArgumentError
        If the array's shape is not that of the input.

    Examples
    --------
    >>> transform_layout(np.arange(6).reshape(2, 3), Layout.of((2, 3), [1, 0]))
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    if isinstance(layout, Tensor):
        given, array, found = array, prepare(array, layout), layout_of(layout)
        if found is None:
            return array if array is given else aligned_copy(array)
        layout = found
    return layout.transform(array)


def layout_attr(op: ComputeOp) -> dict[str, Any]:
    """The attribute of an operation that takes the place of `op`, with the data in the same layout."""
    return {key: value for key, value in op.attrs.items() if key == LAYOUT_ATTR}


def layout_of(tensor: Tensor) -> Layout | None:
    """The layout that the data of an input must have, None for an input as it was defined."""
    if not isinstance(tensor.op, PlaceholderOp):
        return None
    layout: Layout | None = tensor.op.attrs.get(LAYOUT_ATTR)
    return layout


def _number(extent: Extent) -> int:
    if not isinstance(extent, (int, np.integer)):
        raise TypeError(f"a layout with the extent {extent!r} has no numbers; take a row of the population")
    return int(extent)


def _apply(op: BinaryOp, index: Expr, amount: Extent) -> Expr:
    """`op(index, amount)`; nothing is done by a factor or divisor of 1."""
    if is_one(amount) and op is not BinaryOp.FLOORMOD:
        return index
    return Binary(op, index, Const(amount, index.dtype), index.dtype)  # type: ignore[arg-type]


class _Written(NamedTuple):
    """A digit as it was written: None for an extent that is left open, and a stride that the order tells."""

    dim: int
    extent: int | None
    stride: int | None


def _read(title: str, sizes: tuple[int, ...], digits: Sequence[DigitLike]) -> tuple[Digit, ...]:
    """The checked digits of a layout as written."""
    if not isinstance(digits, (list, tuple)):
        raise DefinitionError(f"{title}: expected a list of digits such as (dim, extent), found {digits!r}")
    written = [_digit(title, sizes, item) for item in digits]
    made: dict[int, Digit] = {}
    for dim, size in enumerate(sizes):
        own = {at: digit for at, digit in enumerate(written) if digit.dim == dim}
        made.update(_pieces(title, dim, size, own))
    return tuple(made[at] for at in range(len(written)))


def _pieces(title: str, dim: int, size: int, written: Mapping[int, _Written]) -> dict[int, Digit]:
    """The checked digits of one dimension, by their positions among all."""
    if not written and size > 1:
        raise DefinitionError(f"{title}: dimension {dim} of extent {size} has no digit")
    with_stride = sum(digit.stride is not None for digit in written.values())
    if 0 < with_stride < len(written):
        raise DefinitionError(f"{title}: give all digits of dimension {dim} a stride, or none")
    outwards = list(written)[::-1]
    if with_stride:
        outwards = sorted(written, key=lambda at: (written[at].stride, written[at].extent, -at))
    made: dict[int, Digit] = {}
    covered = 1
    for at in outwards:
        _, extent, stride = written[at]
        if stride not in (None, covered):
            raise DefinitionError(
                f"{title}: the digits of dimension {dim} leave gaps; the one of extent {extent} has "
                f"stride {stride}, and those inside of it cover {covered}"
            )
        if extent is None:
            if at != outwards[-1]:
                raise DefinitionError(
                    f"{title}: only the outermost digit of dimension {dim} may be left open"
                )
            extent = -(-size // covered)
        made[at] = Digit(dim, extent, covered)
        covered *= extent
    if covered < size:
        raise DefinitionError(
            f"{title}: the digits of dimension {dim} cover {covered} of its {size} elements"
        )
    return made


def _digit(title: str, sizes: tuple[int, ...], item: DigitLike) -> _Written:
    """One digit, each number by itself."""
    single = isinstance(item, (int, np.integer))
    parts: list[Any] = [item, None] if single else list(item) if isinstance(item, (list, tuple)) else []
    if len(parts) not in (2, 3) or not isinstance(parts[0], (int, np.integer)):
        raise DefinitionError(
            f"{title}: expected dim, (dim, extent) or (dim, extent, stride), found {item!r}"
        )
    dim = int(parts[0])
    if not 0 <= dim < len(sizes):
        raise DefinitionError(f"{title}: there is no dimension {dim}; the shape is {list(sizes)}")
    for value in parts[1:]:
        if value is not None and (not isinstance(value, (int, np.integer)) or value < 1):
            raise DefinitionError(f"{title}: {value!r} in {item!r} is not a positive integer")
    extent, stride = (None if v is None else int(v) for v in (*parts[1:], None)[:2])
    return _Written(dim, extent, stride)
