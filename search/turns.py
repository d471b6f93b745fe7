"""Which sketches a round draws from, where there are more of them than structures in a generation.

Each structure costs time that its programs share, so a round has a limited number. A quarter of them may be
sketches of the fastest programs; the others take turns, in an order that the seed decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import numpy as np

from ansor.task.task import Task
from search.randomness import round_rng
from sketches import Sketch

LEADING: Final = 0.25
"""Share of the sketches of a round that may be there because their programs were fast."""


def sketches_of_round(
    sketches: Sequence[Sketch], limit: int, leading: Iterable[Sketch], round_index: int, order: Sequence[int]
) -> tuple[Sketch, ...]:
    """
    Choose the sketches of a round, which has room for some of them.

    Parameters
    ----------
    sketches
        Those of the space.
    limit
        How many at most, at least 1 and fewer than there are.
    leading
        Sketches of measured programs, the fastest first; they may repeat.
    round_index
        0 for the first round of a search. Over consecutive rounds each sketch has its turn.
    order
        Positions of all sketches in the order of their turns (`order_of_turns`).
    """
    most = int(LEADING * limit)
    chosen = dict.fromkeys(islice(dict.fromkeys(leading), most))
    for position in np.roll(order, -round_index * (limit - most)):
        if len(chosen) >= limit:
            break
        chosen[sketches[position]] = None
    return tuple(sketch for sketch in sketches if sketch in chosen)


def order_of_turns(seed: int, task: Task, count: int) -> list[int]:
    """Order the sketches of a task: a function of the arguments, with randomness that no round draws."""
    order: list[int] = round_rng(seed, task, 0).spawn(1)[0].permutation(count).tolist()
    return order
