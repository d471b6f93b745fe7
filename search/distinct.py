"""How many different programs there are among rows: what fingerprints cannot tell, lowering does."""

from collections.abc import Sequence

import numpy as np

from ansor.errors import ScheduleError
from ansor.task.task import Task
from search.generation import Generation, unseen
from search.plans import plan_key
from sketches.population import Population


def distinct_share(
    task: Task, populations: Sequence[Population], rows: int, rng: np.random.Generator
) -> float:
    """
    Estimate which share of the rows of some populations are different programs once they are lowered.

    Equal programs have equal coarse fingerprints (see `sketches.signature`), so rows that share one are
    looked at together: whole groups of them, drawn at random.

    Parameters
    ----------
    task
        What the programs compute.
    populations
        The programs; a row that occurs twice counts twice.
    rows
        Groups are drawn until they have so many rows; all, if there are fewer.
    rng
        Draws the groups.

    Returns
    -------
    float
        Different programs per row, 1.0 without rows. A row that cannot be lowered is none.
    """
    everything = Generation.of(populations)
    once = unseen(everything, np.empty(0, dtype=np.uint64))
    weights = {int(fine): 0 for fine in once.prints.fine}
    for fine in everything.prints.fine.tolist():
        weights[fine] += 1
    groups: dict[int, list[int]] = {}
    for number, coarse in enumerate(once.prints.coarse.tolist()):
        groups.setdefault(coarse, []).append(number)
    members = list(groups.values())
    looked = different = 0
    for which in rng.permutation(len(members)).tolist():
        if looked >= rows:
            break
        looked += sum(weights[int(once.prints.fine[number])] for number in members[which])
        different += _different(task, once, members[which])
    return different / looked if looked else 1.0


def _different(task: Task, programs: Generation, numbers: Sequence[int]) -> int:
    """Count the plans of some programs."""
    plans: set[str] = set()
    for number in numbers:
        population, row = programs.place(number)
        try:
            plans.add(plan_key(task, population.materialize(row)))
        except ScheduleError:
            continue
    return len(plans)
