"""The machine of the nest interpreter: many lanes that execute one statement at a time.

An `Env` is a list of slots, one per variable and two per buffer. A slot that differs between lanes holds an
array with one element per lane, any other a scalar. Entering a loop whose iterations run side by side
multiplies the lanes (`spread`), entering a branch keeps those that take it (`keep`); nothing flows back but
what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Env = list[Any]
"""Slot 0 holds the number of lanes, slot 1 whose values will be used."""

LANES = 0
USED = 1
"""None: those of all lanes; else a truth value, or one per lane, while an expression is evaluated."""


@dataclass(eq=False)
class Storage:
    """The elements of one buffer, for all lanes that have their own; `written` is None where all are defined.

    `touched` belongs to the race detector, as does `copied`: the group that the last copy into an element is
    of, 0 without one.
    """

    data: Array
    written: npt.NDArray[np.bool_] | None
    touched: dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = field(default_factory=dict)
    copied: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of threads that are being executed.

    Of each: how many lanes it has, how many groups of copies (`ansor.ir.copies`) its threads have ended, and
    how many of these are there for sure.
    """

    lanes: npt.NDArray[np.int64]
    ended: npt.NDArray[np.int64]
    arrived: npt.NDArray[np.int64]

    @classmethod
    def of(cls, lanes: npt.NDArray[np.int64]) -> Blocks:
        """Blocks that have copied nothing yet."""
        return cls(lanes, np.zeros_like(lanes), np.zeros_like(lanes))

    @property
    def count(self) -> int:
        return len(self.lanes)

    def commit(self, here: Array) -> None:
        """End a group of copies in the blocks `here`."""
        self.ended[here] += 1

    def wait(self, here: Array, pending: int) -> None:
        """Wait in the blocks `here` for all groups but the last `pending`; for all copies if that is 0."""
        if not pending:
            self.commit(here)
        self.arrived[here] = np.maximum(self.arrived[here], self.ended[here] - pending)


@dataclass(frozen=True, slots=True)
class BlockSlots:
    """The slots in which lanes inside of thread loops know the number of their block, and the `Blocks`."""

    number: int
    blocks: int

    def enter(self, env: Env, inner: Env, counts: Array | int, *, outermost: bool) -> None:
        """Fill them in `inner`, which a thread loop makes of the lanes of `env` with `spread`."""
        if outermost:
            inner[self.number] = np.repeat(np.arange(env[LANES]), counts)
        count = env[LANES] if outermost else env[self.blocks].count
        inner[self.blocks] = Blocks.of(np.bincount(inner[self.number], minlength=count))


def varies(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.ndim > 0


def spread(env: Env, counts: Array | int) -> Env:
    """Every lane as often as its element of `counts` says, or that number itself, in order."""
    result = [value.repeat(counts) if varies(value) else value for value in env]
    result[LANES] = env[LANES] * counts if isinstance(counts, int) else int(counts.sum())
    return result


def keep(env: Env, chosen: npt.NDArray[np.intp]) -> Env:
    """The lanes at the positions `chosen`."""
    result = [value[chosen] if varies(value) else value for value in env]
    result[LANES] = len(chosen)
    return result


def per_lane(value: Any, env: Env) -> Array:
    """`value` as an array of one element per lane."""
    return value if varies(value) else np.repeat(value, env[LANES])
