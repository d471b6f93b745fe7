"""What the operations of `bench_cpu` should reach.

A goal is a speed over the fastest library, a share of the machine's limit, and for a group the geometric mean
of its speeds. No goal asks for more than 0.97 of the limit that is measured beside the operation (`Goal`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MARGIN: Final = 0.97
"""Share of the limit that is as good as the limit."""
WHOLE: Final = 1.2
"""Goal of the geometric mean over everything."""
OVER_METASCHEDULE: Final = 1.1
"""Goal of the speed over MetaSchedule's best after as many trials as were asked for."""
TIME_OF_METASCHEDULE: Final = 0.5
"""Goal of the time that the trials take, over MetaSchedule's."""


@dataclass(frozen=True, slots=True)
class Group:
    """
    Operations with one goal.

    Attributes
    ----------
    speed
        Over the best library.
    mean
        The geometric mean of these.
    share
        Of a limit of the machine.
    share_of
        Of which one, "FMA" or "memory"; empty for that which binds.
    """

    speed: float
    mean: float | None = None
    share: float | None = None
    share_of: str = ""


GROUPS: Final[Mapping[str, Group]] = {
    "product": Group(1.1, share=0.93, share_of="FMA"),
    "odd product": Group(1.0),
    "further product": Group(1.0),
    "batch": Group(1.2),
    "resnet": Group(1.0, mean=1.1),
    "algorithms": Group(1.0, mean=1.1),
    "convolution": Group(1.0, mean=1.3),
    "channels first": Group(1.0),
    "stream": Group(1.2, share=0.90, share_of="memory"),
    "dtypes": Group(0.8),
}
APART: Final = ("algorithms", "dtypes", "channels first")
"""Groups that the mean over everything leaves out: it is of operations in their direct form, in float32
but for one colour conversion of bytes."""


@dataclass(frozen=True, slots=True)
class Goal:
    """
    The speed over the best library that is asked for.

    Attributes
    ----------
    stated
        What is hoped for.
    possible
        What `MARGIN` of the limit would be.
    """

    stated: float
    possible: float

    @property
    def value(self) -> float:
        return min(self.stated, self.possible)

    @property
    def reason(self) -> str:
        """Which of the two applies."""
        return "stated" if self.stated <= self.possible else f"{MARGIN:g} of the limit"

    @classmethod
    def of(cls, stated: float, limit_seconds: float, peer_seconds: float) -> Goal:
        return cls(stated, MARGIN * peer_seconds / limit_seconds)
