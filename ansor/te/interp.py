"""The oracle: a numpy interpreter of the unscheduled graph.

`evaluate` computes whole tensors, producers first; `evaluate_points` computes chosen elements and, of each
producer, only the elements they need, which checks a large program without its whole reference result.

Both work on blocks of at most `BLOCK_ELEMENTS` points of an operation's iteration space (elements of the
output times points of the reduction), so that temporaries stay small whatever the sizes. Every index is
checked: a read out of bounds, unless on the side of a `te.if_then_else` that is not chosen, is an error here,
never a silently wrong value. The arithmetic is that of `ansor.te.numeric` and, for reductions, of
`ansor.te.accumulate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from ansor.dtypes import to_numpy
from ansor.errors import ArgumentError
from ansor.te.accumulate import Fold
from ansor.te.expr import Expr, Reduce, Var
from ansor.te.numeric import Array, quiet
from ansor.te.tensor import ComputeOp, Extent, Operation, PlaceholderOp, Tensor, format_shape
from ansor.te.vectorize import Context, Kernel, Reader

BLOCK_ELEMENTS = 1 << 18
"""Points evaluated at once; a temporary of float64 takes 2 MiB."""

Arrays = Mapping[Tensor, npt.ArrayLike]
Sizes = Mapping[Var, int]


def evaluate(
    outputs: Tensor | Sequence[Tensor], inputs: Arrays, sizes: Sizes | None = None
) -> dict[Tensor, Array]:
    """Compute `outputs` from `inputs`.

    Parameters
    ----------
    outputs
        The tensors wanted.
    inputs
        An array for each placeholder that they need, of its shape and dtype. A computed tensor may be
        given too and is then not computed.
    sizes
        Values of the symbolic sizes; those that are a dimension of an input may be left out.

    Returns
    -------
    dict
        An array for each output, in order. Intermediate results are freed after their last use.

    Raises
    ------
    ArgumentError
        If an input is missing, or has another shape or dtype, or the sizes make an extent of an input or
        output negative; the message names the tensor.
    RunError
        If the program reads out of bounds, or lacks the value of a size.
    """
    wanted = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    arguments = _Arguments(inputs, sizes)
    order = _topological(wanted, arguments)
    readers_left: dict[Operation, int] = dict.fromkeys(order, 0)
    for op in order:
        for producer in _producers(op):
            readers_left[producer] = readers_left.get(producer, 0) + 1
    kept = {tensor.op for tensor in wanted}
    for op in order:
        if op in kept:
            arguments.passed_shape(op.outputs[0])
        if isinstance(op, ComputeOp):
            _compute_whole(op, arguments)
        else:
            arguments.array(op.outputs[0])
        for producer in _producers(op):
            readers_left[producer] -= 1
            if not readers_left[producer] and producer not in kept and isinstance(producer, ComputeOp):
                arguments.drop(producer)
    return {tensor: arguments.array(tensor) for tensor in wanted}


def evaluate_points(
    tensor: Tensor,
    indices: npt.ArrayLike,
    inputs: Arrays,
    sizes: Sizes | None = None,
    *,
    stepwise: bool = False,
) -> Array:
    """Compute the elements of `tensor` at `indices` only.

    Parameters
    ----------
    tensor
        An output, or any other tensor.
    indices
        Integers of shape `(n_points, tensor.ndim)`.
    inputs, sizes
        As for `evaluate`.
    stepwise
        Round sums and products of floats after each step, as one term after the other does.

    Returns
    -------
    Array
        The elements, shape `(n_points,)`.

    Raises
    ------
    ArgumentError, RunError
        As for `evaluate`; also an ArgumentError if an index is outside the tensor.
    """
    arguments = _Arguments(inputs, sizes, stepwise)
    points = np.asarray(indices)
    shape = arguments.shape_of(tensor)
    if points.ndim != 2 or points.shape[1] != len(shape) or (points.size and points.dtype.kind not in "iu"):
        raise ArgumentError(
            f"indices of {tensor.name!r} must be integers of shape (n_points, {len(shape)}), "
            f"found {points.dtype} {points.shape}"
        )
    if points.size and not ((points >= 0) & (points < np.array(shape))).all():
        raise ArgumentError(f"an index is outside tensor {tensor.name!r} of shape {format_shape(shape)}")
    flat = np.zeros(len(points), np.int64)
    for dimension, extent in enumerate(shape):
        flat = flat * extent + points[:, dimension]
    with quiet():
        return _PointReader(arguments).at(tensor, flat)


# -- arguments ---------------------------------------------------------------------------------------


class _Arguments:
    """The arrays known so far, checked, the values of symbolic sizes, and how sums are rounded."""

    def __init__(self, inputs: Arrays, sizes: Sizes | None, stepwise: bool = False) -> None:
        self.stepwise = stepwise
        self._arrays: dict[Tensor, Array] = {t: np.asarray(value) for t, value in inputs.items()}
        self.sizes: dict[Var, int] = dict(sizes or {})
        self._shapes: dict[Tensor, tuple[int, ...]] = {}
        for tensor, array in self._arrays.items():
            self._check_dtype_and_rank(tensor, array)
            self._infer_sizes(tensor, array)
        self.bindings: dict[Var, Array] = {
            var: np.asarray(value).astype(to_numpy(var.dtype)) for var, value in self.sizes.items()
        }
        for tensor, array in self._arrays.items():
            expected = self.passed_shape(tensor)
            if array.shape != expected:
                raise ArgumentError(
                    f"input {tensor.name!r} has shape {format_shape(array.shape)}, expected "
                    f"{format_shape(expected)}"
                )

    def __contains__(self, tensor: Tensor) -> bool:
        return tensor in self._arrays

    def array(self, tensor: Tensor) -> Array:
        try:
            return self._arrays[tensor]
        except KeyError:
            raise ArgumentError(f"no array is given for the input {tensor.name!r}") from None

    def store(self, tensor: Tensor, array: Array) -> None:
        self._arrays[tensor] = array

    def drop(self, op: Operation) -> None:
        for tensor in op.outputs:
            self._arrays.pop(tensor, None)

    def passed_shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of an array that the caller gives or gets, none of whose extents may be negative."""
        shape = tuple(self._evaluated(extent) for extent in tensor.shape)
        if min(shape, default=0) < 0:
            raise ArgumentError(
                f"the sizes make the shape of {tensor.name!r}, {format_shape(tensor.shape)}, "
                f"{format_shape(shape)}; extents of inputs and outputs are at least 0"
            )
        return shape

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        if tensor not in self._shapes:
            self._shapes[tensor] = tuple(self.extent(extent) for extent in tensor.shape)
        return self._shapes[tensor]

    def extent(self, extent: Extent) -> int:
        """The extent of a loop: one that the sizes make negative has no iterations."""
        return max(0, self._evaluated(extent))

    def _evaluated(self, extent: Extent) -> int:
        if isinstance(extent, int):
            return extent
        values, _ = Kernel([extent])(Context(self.bindings, self.shape_of, _read_nothing))
        return int(values[0])

    def read(self, tensor: Tensor, indices: list[Array]) -> Array:
        return np.asarray(self.array(tensor)[tuple(indices)])

    @staticmethod
    def _check_dtype_and_rank(tensor: Tensor, array: Array) -> None:
        if array.dtype != to_numpy(tensor.dtype):
            raise ArgumentError(f"input {tensor.name!r} has dtype {array.dtype}, expected {tensor.dtype}")
        if array.ndim != tensor.ndim:
            raise ArgumentError(
                f"input {tensor.name!r} has shape {format_shape(array.shape)}, expected "
                f"{tensor.ndim} dimension(s) {format_shape(tensor.shape)}"
            )

    def _infer_sizes(self, tensor: Tensor, array: Array) -> None:
        for dimension, (extent, found) in enumerate(zip(tensor.shape, array.shape, strict=True)):
            if isinstance(extent, Var) and self.sizes.setdefault(extent, found) != found:
                raise ArgumentError(
                    f"input {tensor.name!r} has extent {found} in dimension {dimension}, "
                    f"but {extent.name} is {self.sizes[extent]}"
                )


def _read_nothing(tensor: Tensor, _: list[Array]) -> Array:
    raise AssertionError(f"the extent of a dimension reads tensor {tensor.name!r}")


# -- one operation -----------------------------------------------------------------------------------


def _blocks(extents: Sequence[int], budget: int) -> Iterator[tuple[range, ...]]:
    """Boxes of at most `budget` points (at least one) that tile `extents`, in row-major order."""
    sides: list[int] = []
    for extent in reversed(extents):
        side = max(1, min(extent, budget))
        budget //= side
        sides.insert(0, side)
    counts = [-(-extent // side) for extent, side in zip(extents, sides, strict=True)]
    for position in np.ndindex(*counts):
        yield tuple(
            range(p * side, min((p + 1) * side, extent))
            for p, side, extent in zip(position, sides, extents, strict=True)
        )


def _positions(block: Sequence[range], trailing: int = 0) -> list[Array]:
    """An index array per dimension of `block`, each along its own; `trailing` dimensions of 1 follow."""
    rank = len(block) + trailing
    return [
        np.arange(r.start, r.stop, dtype=np.int32).reshape([-1 if d == own else 1 for d in range(rank)])
        for own, r in enumerate(block)
    ]


class _OpKernel:
    """Evaluates the outputs of one compute at given positions."""

    def __init__(self, op: ComputeOp, arguments: _Arguments) -> None:
        self._op = op
        self._arguments = arguments
        root = op.body[0]
        self._reduce = root if isinstance(root, Reduce) else None
        roots: tuple[Expr, ...] = op.body if self._reduce is None else self._reduce.sources
        condition = None if self._reduce is None else self._reduce.condition
        self._kernel = Kernel(roots, condition)
        self._reduce_extents = [arguments.extent(axis.extent) for axis in op.reduce_axis]

    def at(self, positions: Sequence[Array], shape: tuple[int, ...], read: Reader) -> list[Array]:
        """Return the outputs, of shape `shape`, at `positions`: an array per axis, broadcasting to it."""
        bindings = dict(self._arguments.bindings)
        bindings.update(zip(self._op.axis, positions, strict=True))
        if self._reduce is None:
            values, _ = self._kernel(Context(bindings, self._arguments.shape_of, read))
            return [np.broadcast_to(value, shape) for value in values]
        fold = Fold(self._reduce.combiner, self._arguments.stepwise)
        for block in _blocks(self._reduce_extents, BLOCK_ELEMENTS // max(1, prod(shape))):
            bindings.update(zip(self._op.reduce_axis, _positions(block, trailing=len(shape)), strict=True))
            values, where = self._kernel(Context(bindings, self._arguments.shape_of, read))
            fold.add(values, where, tuple(len(r) for r in block), trailing=len(shape))
        results = fold.result()
        return [np.broadcast_to(results[_index_of(expr)], shape) for expr in self._op.body]


def _index_of(expr: Expr) -> int:
    assert isinstance(expr, Reduce)
    return expr.index


def _compute_whole(op: ComputeOp, arguments: _Arguments) -> None:
    kernel = _OpKernel(op, arguments)
    shape = arguments.shape_of(op.outputs[0])
    arrays = [np.empty(shape, to_numpy(tensor.dtype)) for tensor in op.outputs]
    with quiet():
        for block in _blocks(shape, BLOCK_ELEMENTS):
            region = tuple(slice(r.start, r.stop) for r in block)
            values = kernel.at(_positions(block), tuple(len(r) for r in block), arguments.read)
            for array, value in zip(arrays, values, strict=True):
                array[region] = value
    for tensor, array in zip(op.outputs, arrays, strict=True):
        if tensor not in arguments:
            arguments.store(tensor, array)


def _producers(op: Operation) -> set[Operation]:
    return {tensor.op for tensor in op.input_tensors}


def _topological(wanted: Sequence[Tensor], arguments: _Arguments) -> list[Operation]:
    """The operations to run, producers first; those whose outputs are given are placeholders here."""
    done: dict[Operation, None] = {}
    stack: list[tuple[Operation, bool]] = [(tensor.op, False) for tensor in reversed(wanted)]
    while stack:
        op, inputs_done = stack.pop()
        if op in done or all(tensor in arguments for tensor in op.outputs):
            continue
        if inputs_done or isinstance(op, PlaceholderOp):
            done[op] = None
        else:
            stack.append((op, True))
            stack.extend((tensor.op, False) for tensor in reversed(op.input_tensors))
    return list(done)


# -- chosen points -----------------------------------------------------------------------------------


class _PointReader:
    """Elements of computed tensors on demand, each computed once."""

    def __init__(self, arguments: _Arguments) -> None:
        self._arguments = arguments
        self._kernels: dict[ComputeOp, _OpKernel] = {}
        self._known: dict[ComputeOp, tuple[Array, list[Array]]] = {}
        """Row-major positions, in order, and the elements there of each output."""

    def read(self, tensor: Tensor, indices: list[Array]) -> Array:
        if tensor in self._arguments or isinstance(tensor.op, PlaceholderOp):
            return self._arguments.read(tensor, indices)
        shape = self._arguments.shape_of(tensor)
        flat = np.zeros((), np.int64)
        for index, extent in zip(indices, shape, strict=True):
            flat = flat * extent + index
        wanted, back = np.unique(flat, return_inverse=True)
        return self.at(tensor, wanted)[back.reshape(flat.shape)]

    def at(self, tensor: Tensor, flat: Array) -> Array:
        """The elements of `tensor` at row-major positions `flat`, shape `(n,)`."""
        op, shape = tensor.op, self._arguments.shape_of(tensor)
        if tensor in self._arguments or isinstance(op, PlaceholderOp):
            return self._arguments.array(tensor).reshape(-1)[flat]
        if op not in self._known:
            empty = [np.empty(0, to_numpy(output.dtype)) for output in op.outputs]
            self._known[op] = np.empty(0, np.int64), empty
        known, values = self._known[op]
        missing = np.setdiff1d(flat, known)
        if missing.size:
            computed = self._compute(op, missing, shape)
            at = np.searchsorted(known, missing)
            known = np.insert(known, at, missing)
            values = [np.insert(old, at, new) for old, new in zip(values, computed, strict=True)]
            self._known[op] = known, values
        return values[tensor.value_index][np.searchsorted(known, flat)]

    def _compute(self, op: ComputeOp, flat: Array, shape: tuple[int, ...]) -> list[Array]:
        if op not in self._kernels:
            self._kernels[op] = _OpKernel(op, self._arguments)
        kernel = self._kernels[op]
        results = [np.empty(len(flat), to_numpy(tensor.dtype)) for tensor in op.outputs]
        for (chunk,) in _blocks([len(flat)], BLOCK_ELEMENTS):
            some = flat[chunk.start : chunk.stop]
            positions = [index.astype(np.int32) for index in np.unravel_index(some, shape)] if shape else []
            for result, value in zip(results, kernel.at(positions, some.shape, self.read), strict=True):
                result[chunk.start : chunk.stop] = value
        return results
