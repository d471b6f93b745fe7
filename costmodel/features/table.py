"""The feature table: what a cost model is told of a stored statement.

One row of numbers describes one statement that stores a stage's result (of a stage with several outputs, one
row each); the initialisation of a reduction and its update are one statement. The table has two parts, and a
third for programs of GPUs.

`reference` lists the 164 columns of TVM 0.16 (`auto_scheduler/feature.cc`) under its names and in
its order, with its mistakes corrected: loop positions are told, the multiply-adds are counted, integer
kernels have an arithmetic intensity, every loop that an index does not depend on divides the lines by its own
extent, and the contiguous run of a region is that of its own buffer.

`machine` adds what decides speed on a CPU: what the emitter makes of the loops (lanes, register
tile, unrolled code), the instructions that follow, what moves between the caches, and how evenly the cores
are occupied. `device` adds what decides it on a GPU: how blocks fill the device, and how the threads
that run in step access memory together. Rows of programs for a CPU end before that.

All columns but flags and ratios are scaled by ``sign(x) * log2(|x| + 1)``; `unscale` inverts that. Loops of
one iteration count nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costmodel.features.device import DEVICE_FEATURES
from costmodel.features.machine import MACHINE_FEATURES
from costmodel.features.reference import REFERENCE_FEATURES
from costmodel.features.spec import Feature

FEATURES: Final[tuple[Feature, ...]] = (*REFERENCE_FEATURES, *MACHINE_FEATURES)
"""The columns of a program for a CPU, in order."""

GPU_FEATURES: Final[tuple[Feature, ...]] = (*FEATURES, *DEVICE_FEATURES)
"""Those of a program for a GPU: the same, and behind them those of the device."""

N_FEATURES: Final = len(FEATURES)
N_GPU_FEATURES: Final = len(GPU_FEATURES)
INDEX: Final[dict[str, int]] = {feature.name: position for position, feature in enumerate(GPU_FEATURES)}
"""Position of each column by name."""

VERSION: Final = "ansor-features-29"
"""Changes whenever a column changes its meaning; a saved model serves rows of its own version only."""

SCALED: Final[NDArray[np.bool_]] = np.array([feature.scaled for feature in GPU_FEATURES])


def feature_names() -> tuple[str, ...]:
    """Return the names of a CPU's columns, in order."""
    return tuple(feature.name for feature in FEATURES)


def scale(raw: NDArray[Any]) -> NDArray[np.float32]:
    """
    Scale columns that are magnitudes; flags and ratios stay.

    Parameters
    ----------
    raw
        One row per feature, the first ones of the table, shape ``(features, statements)``.

    Notes
    -----
    What float32 does not hold is not infinite for that: a value that each of 130 steps reads twice counts
    2**130 times. Logarithms in float64 take four times as long, so only these are.
    """
    with np.errstate(over="ignore"):
        result = raw.astype(np.float32)
    scaled = SCALED[: len(raw)]
    magnitudes = result[scaled]
    size = np.abs(magnitudes)
    size += 1.0
    np.log2(size, out=size)
    beyond = np.isinf(size)
    if beyond.any():
        exact = np.minimum(np.abs(raw[scaled][beyond], dtype=np.float64), 2.0**1023)
        size[beyond] = np.log2(exact)
    result[scaled] = np.copysign(size, magnitudes)
    return result


def unscale(values: NDArray[Any], names: Iterable[str] | None = None) -> dict[str, NDArray[np.float64]]:
    """
    Give columns of a feature matrix in their own units.

    Parameters
    ----------
    values
        Rows of scaled features, shape ``(statements, features)``, the first columns of the table or all.
    names
        The columns wanted; all that there are if not given.
    """
    result: dict[str, NDArray[np.float64]] = {}
    present = (feature.name for feature in GPU_FEATURES[: values.shape[1]])
    for name in present if names is None else names:
        position = INDEX[name]
        column = values[:, position].astype(np.float64)
        if SCALED[position]:
            column = np.copysign(np.exp2(np.abs(column)) - 1.0, column)
        result[name] = column
    return result
