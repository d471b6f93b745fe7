"""Names told apart by numbers: `x`, then `x_1`, `x_2` and so on for others that would be called `x`, too."""

from __future__ import annotations

from collections.abc import Iterable


class NumberedNames:
    """Names in use, and fresh ones beside them; however many want the same one, each is found at once.

    Parameters
    ----------
    taken
        Names that are in use from the start.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._last: dict[str, int] = {}
        """The number given last, by the name that was wanted; all up to there are taken."""

    def fresh(self, wanted: str) -> str:
        """`wanted`, or with the least number behind it that makes a name not in use; it is in use then."""
        name = wanted
        if wanted in self._taken:
            number = self._last.get(wanted, 0) + 1
            while (name := f"{wanted}_{number}") in self._taken:
                number += 1
            self._last[wanted] = number
        self._taken.add(name)
        return name

    def take(self, names: Iterable[str]) -> None:
        """Let names be in use, those too that are."""
        self._taken.update(names)

    def copy(self) -> NumberedNames:
        """The same names, to which others may be added."""
        made = NumberedNames(self._taken)
        made._last.update(self._last)
        return made
