"""How the threads of a warp touch memory together, for columns.

A *warp* is as many threads of a block as run in step, in the order of their index: threadIdx.x runs fastest,
and of several loops bound to one index the innermost. Looked at is the first warp of a block in the first
iteration of all other loops; where a block has fewer threads, these are all. The indices of an access are
evaluated for each of them, which is exact, quotients and remainders included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.ir.swizzles import swizzled_place
from ansor.schedule.affine import Affine, LoopAtom, OpaqueAtom
from ansor.schedule.kernels import THREADS, loops_around
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.task.device import DeviceModel
from ansor.te.expr import BinaryOp
from costmodel.extraction.indices import Floats, Loop, Value

GLOBAL, SHARED, PRIVATE = 0, 1, 2
"""Memory of the device, of a block, of a thread."""

_WORD: Final = 4
_ROW: Final = 16
"""Bytes of a row of a matrix that is loaded at once."""
_ROWS: Final = 8
"""Its rows, and how many of them all banks hold."""

Places = NDArray[np.int64]
"""Positions in a buffer, shape `(threads, rows)` [elements]."""


@dataclass(frozen=True, slots=True, eq=False)
class WarpAccess:
    """
    What one access of a warp touches.

    Parameters
    ----------
    space
        Where the buffer is.
    elements
        Different elements.
    sectors
        Pieces of memory that these lie in, as large as are moved at once.
    conflicts
        Most words that one bank of shared memory has to deliver; of what warps multiply, which they load as
        matrices, the most of the 8 rows of one of these that are in the same banks.
    fills
        How often the buffer is filled anew, of one in shared memory; else 1.
    """

    space: int
    elements: Value
    sectors: Value
    conflicts: Value
    fills: Value


def space_of(state: State, stage_id: int) -> int:
    """Where a stage's result is kept (`ansor.schedule.kernel_usage`), taken that bound loops have iterations.

    One at root is passed between kernels, in the device's memory.
    """
    stage = state.stages[stage_id]
    if stage_id not in state.attach:
        return GLOBAL
    if stage.scope == "shared" or any(loop.annotation.is_thread for loop in stage.iterators):
        return SHARED
    alone = any(loop.annotation.is_thread for loop in loops_around(state, stage_id))
    return PRIVATE if alone or stage.scope != "global" else SHARED


class Warp:
    """
    The first warp of a statement's threads.

    Parameters
    ----------
    loops
        All loops of the statement, outermost first.
    numbers
        The position of each by its atom.
    rows
        Length of columns.
    device
        The GPU.
    below
        Forms that guards keep below a bound: where they are not, a thread touches nothing.
    """

    def __init__(
        self,
        loops: Sequence[Loop],
        numbers: Mapping[LoopAtom, int],
        rows: int,
        device: DeviceModel,
        below: Sequence[tuple[Affine, Value]],
    ) -> None:
        self.device, self.numbers, self.shape = device, numbers, (device.warp, rows)
        lane: Any = np.arange(device.warp)[:, None]
        self.at: dict[int, Any] = {}
        for index in THREADS:
            for number in range(len(loops) - 1, -1, -1):
                if index in loops[number].marks:
                    self.at[number] = lane % loops[number].extent
                    lane = lane // loops[number].extent
        self.ends = {
            number: loop.extent - 1 for number, loop in enumerate(loops) if Annotation.VECTORIZE in loop.marks
        }
        tensorized = [number for number, loop in enumerate(loops) if Annotation.TENSORIZE in loop.marks]
        self.held, self.products = tensorized[-2:] if len(tensorized) > 2 else (-1, -1)
        """The loops over the columns that a thread holds, and over the products, of small matrices that warps
        multiply together; -1 without one."""
        self.active: Any = np.ones(self.shape, np.bool_)
        for form, bound in below:
            self.active &= self._value(form, {}) < bound

    def access(
        self,
        space: int,
        forms: Sequence[Affine | None],
        strides: Sequence[Value],
        size: int,
        swizzled: Value = 1,
    ) -> WarpAccess:
        """
        Look at an access by indices `forms` to a buffer of some strides, elements of `size` bytes.

        Its rows of so many elements may be `swizzled` (`ansor.ir.swizzles`); of one element they are not.
        """
        places = self._places(forms, strides, {})
        if places is None:  # The data decide: take it that all lie apart.
            far = np.full(self.shape[1], self.device.warp)
            return WarpAccess(space, far, far, far, 1)
        ends = self._places(forms, strides, self.ends) if self.ends else places
        assert ends is not None
        sector = self.device.sector_bytes
        touched = np.concatenate([places * size // sector, (ends * size + size - 1) // sector])
        vector: Any = 1
        for last in self.ends.values():
            vector = vector * (last + 1)
        if space == SHARED and self.products >= 0:
            crowded = self._of_matrices(places, forms, strides, size, swizzled)
        else:
            crowded = _crowding(_swizzled(places, swizzled, size) * size // _WORD, self.device.banks)
        return WarpAccess(space, _different(places) * vector, _different(touched), crowded, 1)

    def _of_matrices(
        self,
        places: Places,
        forms: Sequence[Affine | None],
        strides: Sequence[Value],
        size: int,
        swizzled: Value,
    ) -> Floats:
        """How many rows of a matrix are in the same banks: neighbours along the products, or across.

        What lies across and has more than 16 bits is loaded word by word.
        """
        products = [self._places(forms, strides, {self.products: number}) for number in range(_ROWS)]
        down = np.stack([row[0] for row in products if row is not None])
        held = self._places(forms, strides, {self.held: 1})
        assert held is not None
        rows = _swizzled(np.concatenate([places, held]), swizzled, size) * size
        along = _crowding(rows // _ROW, _ROWS)
        if size < _WORD:
            across = _crowding(_swizzled(down, swizzled, size) * size // _ROW, _ROWS)
        else:
            across = _crowding(_swizzled(places, swizzled, size) * size // _WORD, self.device.banks)
        return np.where(down[1] - down[0] == 1, along, across)

    def _places(
        self, forms: Sequence[Affine | None], strides: Sequence[Value], others: Mapping[int, Value]
    ) -> Places | None:
        """Where each thread's element lies, other loops being at `others`, else at their start."""
        total: Any = np.zeros(self.shape, np.int64)
        for form, stride in zip(forms, strides, strict=True):
            if form is None:
                return None
            total = total + self._value(form, others) * stride
        return np.asarray(np.where(self.active, total, total[:1]))  # the first thread is always at work

    def _value(self, form: Affine, others: Mapping[int, Value]) -> Any:
        total: Any = form.const
        for atom, coefficient in form.terms.items():
            if isinstance(atom, OpaqueAtom):
                inner = self._value(atom.inner, others)
                quotient = atom.op is BinaryOp.FLOORDIV
                part = inner // atom.divisor if quotient else inner % atom.divisor
            else:
                number = self.numbers.get(atom, -1) if isinstance(atom, LoopAtom) else -1
                part = self.at.get(number, others.get(number, 0))
            total = total + part * coefficient
        return total


def _swizzled(places: Places, width: Value, size: int) -> Places:
    """Where elements lie if rows of `width` are swizzled; rows of one element are not."""
    return np.asarray(swizzled_place(places, width, size)) if np.any(width != 1) else places


def _different(values: Places) -> Floats:
    """How many different values each column has."""
    ordered = np.sort(values, axis=0)
    return np.asarray(1.0 + (ordered[1:] != ordered[:-1]).sum(axis=0))


def _crowding(words: Places, banks: int) -> Floats:
    """The most different words of a column that are in one bank."""
    bank = words % banks
    order = np.lexsort((words, bank), axis=0)
    words, bank = np.take_along_axis(words, order, 0), np.take_along_axis(bank, order, 0)
    fresh = np.ones(words.shape, np.bool_)
    fresh[1:] = words[1:] != words[:-1]
    counted = np.cumsum(fresh, axis=0)
    starts = np.ones(words.shape, np.bool_)
    starts[1:] = bank[1:] != bank[:-1]
    before = np.maximum.accumulate(np.where(starts, counted - 1, 0), axis=0)
    return np.asarray((counted - before).max(axis=0), dtype=np.float64)
