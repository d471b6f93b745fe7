"""The machine of the nest interpreter: many lanes that execute one statement at a time.

An `Env` is a list of slots, one per variable and two per buffer. A slot that differs between lanes holds an
array with one element per lane, any other a scalar. Entering a loop whose iterations run side by side
multiplies the lanes (`spread`), entering a branch keeps those that take it (`keep`); nothing flows back but
what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Env = list[Any]
"""Slot 0 holds the number of lanes."""

LANES = 0


@dataclass(eq=False)
class Storage:
    """The elements of one buffer, for all lanes that have their own; `written` is None where all are defined.

    `touched` belongs to the race detector.
    """

    data: Array
    written: npt.NDArray[np.bool_] | None
    touched: dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Of each block of threads that is being executed, how many lanes it has."""

    lanes: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.lanes)


@dataclass(frozen=True, slots=True)
class BlockSlots:
    """The slots in which lanes inside of thread loops know the number of their block, and the `Blocks`."""

    number: int
    blocks: int

    def enter(self, env: Env, inner: Env, counts: Array, *, outermost: bool) -> None:
        """Fill them in `inner`, which a thread loop makes of the lanes of `env` with `spread`."""
        if outermost:
            inner[self.number] = np.repeat(np.arange(env[LANES]), counts)
        count = env[LANES] if outermost else env[self.blocks].count
        inner[self.blocks] = Blocks(np.bincount(inner[self.number], minlength=count))


def varies(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def spread(env: Env, counts: Array) -> Env:
    """Every lane as often as its element of `counts` says, in order."""
    result = [np.repeat(value, counts) if varies(value) else value for value in env]
    result[LANES] = int(counts.sum())
    return result


def keep(env: Env, chosen: npt.NDArray[np.intp]) -> Env:
    """The lanes at the positions `chosen`."""
    result = [value[chosen] if varies(value) else value for value in env]
    result[LANES] = len(chosen)
    return result


def per_lane(value: Any, env: Env) -> Array:
    """`value` as an array of one element per lane."""
    return value if varies(value) else np.repeat(value, env[LANES])
