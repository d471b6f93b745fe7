"""Whether an output is right: the comparison, which names the first wrong element.

How far an output may be off says `measure.correctness.tolerance`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.dtypes import dtype_info, is_float

Array = npt.NDArray[Any]
_BLOCK: Final = 1 << 16
_NEAR: Final = 2.0**-7
"""How far from a constant, relative to it, what it became by rounding lies at most."""
_LOOSER: Final = 4
"""How many times the tolerance errors are that the tolerance is not made for."""
_SURELY: Final = 1.0 - 2.0**-10
"""Of a difference that is rounded itself, what leaves no doubt."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an output may be off.

    `relative` multiplies ``|expected| + scale``, and `absolute` is added; `rare` is the share of elements
    that may be anything, as they depend on how floats are rounded. Where there are such, other integers may
    be off by one. Where it is known what one rounding of each operation makes of an element, it may be off by
    so much for each of so many `roundings`.
    """

    relative: float
    scale: float = 0.0
    rare: float = 0.0
    absolute: float = 0.0
    roundings: float = 0.0


def rms(expected: Array, constants: Collection[float] = ()) -> float:
    """Root mean square of the finite elements, 0 if there are none.

    Parameters
    ----------
    constants
        Numbers that elements may hold without being computed. Those aside if it is less without them.
    """
    found = _rms(expected, ())
    return min(found, _rms(expected, constants)) if constants else found


def _rms(expected: Array, constants: Collection[float]) -> float:
    """Root mean square of the finite elements that are none of some constants."""
    total, count = 0.0, 0
    flat = expected.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK].astype(np.float64)
        block = block[np.isfinite(block)]
        for constant in constants:
            with np.errstate(over="ignore"):
                block = block[np.abs(block - constant) > _NEAR * abs(constant)]
        largest = float(np.max(np.abs(block), initial=0.0))
        if largest > 1e150:  # Squares would overflow; the exact value does not matter there.
            return largest
        total += float(np.dot(block, block))
        count += block.size
    return math.sqrt(total / count) if count else 0.0


def mismatch(
    found: Array,
    expected: Array,
    dtype: str,
    tolerance: Tolerance,
    other: Array | None = None,
    errors: Array | None = None,
) -> str | None:
    """Compare an output with what it should be.

    Parameters
    ----------
    other
        The other end of what floats may be: those between are right.
    errors
        What one rounding of each operation makes of floats; not finite: anything is right.

    Returns
    -------
    str or None
        None if it is right, else which element comes first, what is expected and what is there.
    """
    flat_found, flat_expected = found.reshape(-1), expected.reshape(-1)
    flat_other = other.reshape(-1) if other is not None and is_float(dtype) else None
    flat_errors = errors.reshape(-1) if errors is not None and is_float(dtype) else None
    wrong, first, worst, numbers = 0, -1, 0.0, True
    for start in range(0, flat_found.size, _BLOCK):
        a, b = flat_found[start : start + _BLOCK], flat_expected[start : start + _BLOCK]
        if flat_other is not None:
            b = _nearest(a, b, flat_other[start : start + _BLOCK])
        if _surely_right(a, b, dtype, tolerance):
            continue
        slack = None if flat_errors is None else flat_errors[start : start + _BLOCK]
        bad, off = _differs(a, b, dtype, tolerance, slack)
        count = int(np.count_nonzero(bad))
        if count:
            first = first if first >= 0 else start + int(np.argmax(bad))
            wrong += count
            numbers = numbers and not (is_float(dtype) and bool(np.isnan(a[bad]).any()))
        worst = max(worst, off)
    if not wrong or (numbers and wrong <= tolerance.rare * flat_found.size):
        return None
    place = [int(i) for i in np.unravel_index(first, found.shape)]
    text = (
        f"{wrong} of {flat_found.size} elements are wrong, first {place}: "
        f"expected {_show(flat_expected[first])}, found {_show(flat_found[first])}"
    )
    if flat_other is not None:
        text += f"; in other orders up to {_show(flat_other[first])} are right"
    if flat_errors is not None:
        text += f"; rounding makes {tolerance.roundings * float(flat_errors[first]):.3g} of difference there"
    if is_float(dtype):
        text += (
            f" (tolerance {tolerance.relative:.2g} of {tolerance.scale:.3g} + |expected|, worst {worst:.3g})"
        )
    return text


def _nearest(found: Array, one: Array, other: Array) -> Array:
    """Of what is between two ends the nearest to each element; for NaN an end that is NaN, if one is."""
    a, b, c = (values.astype(np.float64) for values in (found, one, other))
    return np.where(np.isnan(a), np.where(np.isnan(b), b, c), np.clip(a, np.fmin(b, c), np.fmax(b, c)))


def _surely_right(a: Array, b: Array, dtype: str, tolerance: Tolerance) -> bool:
    """Whether none of these floats is off by more than 0 may be: a sixth of the time of asking for each."""
    if not is_float(dtype) or dtype_info(dtype).bits < 32:
        return False
    with np.errstate(all="ignore"):
        off = np.subtract(a, b)
        np.abs(off, out=off)
        return bool(np.max(off) <= _SURELY * tolerance.relative * tolerance.scale)


def _differs(
    a: Array, b: Array, dtype: str, tolerance: Tolerance, errors: Array | None
) -> tuple[npt.NDArray[np.bool_], float]:
    """Which elements are wrong, and the largest finite difference."""
    if not is_float(dtype):
        if dtype == "bool":
            a, b = a.view(np.uint8), b.view(np.uint8)
        bad = a != b
        if tolerance.rare and bad.any() and dtype != "bool":
            bad &= np.maximum(a, b).astype(object) - np.minimum(a, b).astype(object) > 1
        return bad, 0.0
    if dtype_info(dtype).bits == 16:
        a, b = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(all="ignore"):
        off = np.abs(np.subtract(a, b, dtype=np.float64))
        bound = _bound(b, tolerance)
        if errors is not None:
            own = tolerance.roundings * errors.astype(np.float64)
            bound = np.maximum(bound, own)
        bad = ~(off <= bound) | ~np.isfinite(off)
        if errors is not None:
            bad &= np.isfinite(own)
        if bad.any():
            bad &= ~((a == b) | (np.isnan(a) & np.isnan(b)))
            worst = off[bad]
            return bad, float(np.max(worst[np.isfinite(worst)], initial=0.0))
    return bad, 0.0


def _bound(expected: Array, tolerance: Tolerance) -> npt.NDArray[np.float64]:
    """How far floats may be off by the tolerance alone."""
    bound: npt.NDArray[np.float64] = np.abs(expected, dtype=np.float64) * tolerance.relative
    bound += tolerance.relative * tolerance.scale + tolerance.absolute
    return bound


def loosened(expected: Array, errors: Array, tolerance: Tolerance) -> tuple[int, int]:
    """Of how many elements the errors allow far more than the tolerance, and of how many anything.

    The latter may be off by what they are themselves, and by what elements typically are.
    """
    flat_expected, flat_errors = expected.reshape(-1), errors.reshape(-1)
    more, anything = 0, 0
    for start in range(0, flat_expected.size, _BLOCK):
        b = flat_expected[start : start + _BLOCK].astype(np.float64)
        with np.errstate(all="ignore"):
            own = tolerance.roundings * flat_errors[start : start + _BLOCK].astype(np.float64)
            more += int(np.count_nonzero(~(own <= _LOOSER * _bound(b, tolerance))))
            anything += int(np.count_nonzero(~(own <= np.abs(b) + tolerance.scale)))
    return more, anything


def _show(value: Any) -> str:
    return f"{value.item():.9g}" if isinstance(value.item(), float) else str(value.item())
