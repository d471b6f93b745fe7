"""Whether to time a program once more that another load disturbed: yes, unless the load is there to stay.

A load of a moment, a thread that finds no core, is over when a program has its second turn. One that stays
disturbs that as well; it would cost a pause and another timing for each program of a search. So after a
second turn that did not help the next program has none, then the next two, the next four.
"""

from __future__ import annotations

from typing import Final

PAUSE_SECONDS: Final = 0.1
"""Rest before the second turn."""
LONGEST: Final = 64
"""Programs without a second turn, at most, before it is tried again."""


class SecondChance:
    """Counts what second turns were good for."""

    def __init__(self) -> None:
        self._without = 0
        self._gap = 0

    def is_due(self) -> bool:
        """Whether a program that was disturbed now has a second turn."""
        if self._without > 0:
            self._without -= 1
            return False
        return True

    def taken(self, helped: bool) -> None:
        """Note a second turn, and whether it was less disturbed than most of a timing."""
        self._gap = 0 if helped else min(LONGEST, max(1, 2 * self._gap))
        self._without = self._gap
