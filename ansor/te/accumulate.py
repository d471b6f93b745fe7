"""Reductions of numpy arrays by a combiner, block by block.

A `Fold` starts at the identity and takes in blocks of source values, whose leading dimensions are those of
the reduction. What it accumulates in:

- integers, float64, and every `min`/`max`: the dtype itself (sums of integers wrap);
- float32 sums and products: float64, rounded once at the end, which is closer to the exact value than any
  order of float32 steps;
- float16 and bfloat16 sums and products: the dtype itself, rounded after each step in row-major order of the
  reduction, because saturation (2048 + 1 == 2048 in float16) is part of what the program means;
- a combiner that is none of these four, whatever its name: its expressions, on neighbours, pairwise, keeping
  the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ansor.dtypes import is_float, to_numpy
from ansor.te.expr import Combiner
from ansor.te.numeric import Array
from ansor.te.reduction import builtin_name
from ansor.te.vectorize import Kernel, without_tensors

_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


class Fold:
    """The running reduction of blocks by `combiner`; see the module for its arithmetic.

    With `stepwise` sums and products of float32 are rounded after each step, too.
    """

    def __init__(self, combiner: Combiner, stepwise: bool = False) -> None:
        self._dtypes = tuple(to_numpy(expr.dtype) for expr in combiner.result)
        constants, _ = Kernel(combiner.identity)(without_tensors({}))
        self._identity = [np.asarray(value) for value in constants]
        self._ufunc = _UFUNCS.get(builtin_name(combiner) or "")
        self._combiner = combiner
        self._combine = Kernel(combiner.result)
        self._sequential = False
        self.partial = list(self._identity)
        if self._ufunc in (np.add, np.multiply) and is_float(combiner.result[0].dtype):
            narrow = self._dtypes[0].itemsize
            self._sequential = narrow == 2 or stepwise
            if narrow == 4 and not stepwise:
                self.partial = [self._identity[0].astype(np.float64)]

    def add(
        self, values: Sequence[Array], where: Array | None, block: tuple[int, ...], trailing: int
    ) -> None:
        """Take in a block of the reduction of shape `block`.

        Each of `values`, and `where`, broadcasts to the dimensions of `block` and `trailing` more; points
        at which `where` is false contribute the identity.
        """
        if where is not None:
            values = [np.where(where, v, e) for v, e in zip(values, self._identity, strict=True)]
        rows = [_rows(np.asarray(value), block, trailing) for value in values]
        if self._ufunc is None:
            self.partial = self._merge(self.partial, self._tree(rows))
        elif self._sequential:
            self.partial = [_accumulate(self._ufunc, self.partial[0], rows[0])]
        else:
            total = self.partial[0]
            step = rows[0][0] if len(rows[0]) == 1 else self._ufunc.reduce(rows[0], axis=0, dtype=total.dtype)
            self.partial = [np.asarray(self._ufunc(total, step))]

    def result(self) -> list[Array]:
        """Return the reduced values, of the shape that the blocks' trailing dimensions had."""
        return [value.astype(dtype) for value, dtype in zip(self.partial, self._dtypes, strict=True)]

    def _merge(self, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        variables = (*self._combiner.lhs, *self._combiner.rhs)
        bindings = dict(zip(variables, (*left, *right), strict=True))
        values, _ = self._combine(without_tensors(bindings))
        return [np.asarray(value) for value in values]

    def _tree(self, rows: list[Array]) -> list[Array]:
        rows = [np.asarray(row) for row in np.broadcast_arrays(*rows)]
        while (count := len(rows[0])) > 1:
            pairs = count // 2 * 2
            merged = self._merge([r[0:pairs:2] for r in rows], [r[1:pairs:2] for r in rows])
            merged = [
                np.broadcast_to(m, (pairs // 2, *r.shape[1:])) for m, r in zip(merged, rows, strict=True)
            ]
            rows = [np.concatenate([m, r[pairs:]]) for m, r in zip(merged, rows, strict=True)]
        return [row[0] for row in rows]


def _rows(value: Array, block: tuple[int, ...], trailing: int) -> Array:
    """`value` with the dimensions of `block` spelled out and merged into one leading dimension."""
    padded = value.reshape((1,) * (len(block) + trailing - value.ndim) + value.shape)
    rest = padded.shape[len(block) :]
    return np.broadcast_to(padded, (*block, *rest)).reshape((prod(block), *rest))


def _accumulate(ufunc: np.ufunc, start: Array, rows: Array) -> Array:
    first = np.broadcast_to(start, rows.shape[1:])[np.newaxis]
    return np.asarray(ufunc.accumulate(np.concatenate([first, rows]), axis=0)[-1])
