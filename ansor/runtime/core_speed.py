"""How fast the cores are just now, beside what is usual on this machine.

A core that another thread shares by hyperthreading, or whose clock is low because its neighbours are busy or
hot, runs all the time and yet does less. No counter of the system tells; a short loop of multiply-adds on all
threads does. On a shared machine such spells last for a second or two: of 477 matrix products of 2048 in
a minute, 46 to 111 ms each, three fifths of the variance followed these loops before and after them.

What is usual is the lower quartile of what the loop took lately, so that a machine that has become slower for
good, or was fast only while it was cold, is not called slow for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Final

from ansor.codegen.machine import Machine
from ansor.runtime.multiply_add_timer import multiply_add_timer
from ansor.runtime.multiply_adds import MultiplyAdd

STEPS: Final = 25_000
"""Of a thread in one loop, of as many multiply-adds as registers hold: about a tenth of a millisecond."""
TRIES: Final = 2
"""Loops of which the faster counts: a thread may have to be woken for the first."""
LATELY: Final = 256
"""Loops that are remembered."""
FEW: Final = 8
"""Until so many are known, none is called slow."""
TOLERANCE: Final = 0.1
"""Part of its usual speed that a core may lack before that counts."""


class CoreSpeed:
    """
    Compares one loop with those before it.

    Parameters
    ----------
    timed
        Runs the loop and gives its seconds.
    """

    def __init__(self, timed: Callable[[], float]) -> None:
        self._timed = timed
        self._lately: deque[float] = deque(maxlen=LATELY)

    def lacking(self) -> float:
        """Run the loop; tell which part of their usual speed the cores lack beyond `TOLERANCE`."""
        seconds = self._timed()
        usual = sorted(self._lately)[len(self._lately) // 4] if len(self._lately) >= FEW else seconds
        self._lately.append(seconds)
        return max(0.0, 1.0 - (1.0 + TOLERANCE) * usual / seconds) if seconds > 0 else 0.0


@cache
def core_speed(threads: int) -> CoreSpeed:
    """Give the `CoreSpeed` of so many threads of this process."""
    kind = MultiplyAdd.of_floats("float", Machine.host().vector_bits // 32)
    timer = multiply_add_timer(kind, threads * STEPS, threads, limit=threads)
    return CoreSpeed(lambda: min(timer(1) for _ in range(TRIES)))
