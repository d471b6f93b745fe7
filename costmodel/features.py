"""The feature table: what a cost model is told of a stored statement.

One row of numbers describes one statement that stores a stage's result (of a stage with several outputs, one
row each); the initialisation of a reduction and its update are one statement. The table has three parts.

`features_reference` lists the 164 columns of the reference (TVM v0.16, section 6.2) under its names and in
its order, with its mistakes corrected: loop positions are told, the multiply-adds are counted, integer
kernels have an arithmetic intensity, every loop that an index does not depend on divides the lines by its own
extent, and the contiguous run of a region is that of its own buffer.

`features_machine` adds what decides speed on a CPU: what the emitter makes of the loops (lanes, register
tile, unrolled code), the instructions that follow, what moves between the caches, and how evenly the cores
are occupied. `features_device` adds what decides it on a GPU: how blocks fill the device, and how the threads
that run in step access memory together; on a CPU all of that is 0.

All columns but flags and ratios are scaled by ``sign(x) * log2(|x| + 1)``; `unscale` inverts that. Loops of
one iteration count nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costmodel.features_device import DEVICE_FEATURES
from costmodel.features_machine import MACHINE_FEATURES
from costmodel.features_reference import REFERENCE_FEATURES
from costmodel.features_spec import Feature

FEATURES: Final[tuple[Feature, ...]] = (*REFERENCE_FEATURES, *MACHINE_FEATURES, *DEVICE_FEATURES)
"""The columns, in order."""

N_FEATURES: Final = len(FEATURES)
INDEX: Final[dict[str, int]] = {feature.name: position for position, feature in enumerate(FEATURES)}
"""Position of each column by name."""

VERSION: Final = "ansor-features-5"
"""Changes whenever a column changes its meaning; a saved model serves rows of its own version only."""

SCALED: Final[NDArray[np.bool_]] = np.array([feature.scaled for feature in FEATURES])


def feature_names() -> tuple[str, ...]:
    """Return the names of the columns, in order."""
    return tuple(feature.name for feature in FEATURES)


def scale(raw: NDArray[Any], scaled: NDArray[np.bool_] = SCALED) -> NDArray[np.float32]:
    """
    Scale columns that are magnitudes; flags and ratios stay.

    Parameters
    ----------
    raw
        One row per feature, shape ``(features, statements)``.
    scaled
        Which rows are magnitudes.
    """
    result = raw.astype(np.float32)
    magnitudes = result[scaled]
    size = np.abs(magnitudes)
    size += 1.0
    result[scaled] = np.copysign(np.log2(size, out=size), magnitudes)
    return result


def unscale(values: NDArray[Any], names: Iterable[str] | None = None) -> dict[str, NDArray[np.float64]]:
    """
    Give columns of a feature matrix in their own units.

    Parameters
    ----------
    values
        Rows of scaled features, shape ``(statements, N_FEATURES)``.
    names
        The columns wanted; all if not given.
    """
    result: dict[str, NDArray[np.float64]] = {}
    for name in feature_names() if names is None else names:
        position = INDEX[name]
        column = values[:, position].astype(np.float64)
        if SCALED[position]:
            column = np.copysign(np.exp2(np.abs(column)) - 1.0, column)
        result[name] = column
    return result
