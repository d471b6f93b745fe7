"""What a search knows of the measured programs, in the terms in which it breeds: rows and fingerprints.

A history holds states. Here each is found again as a row of its family, once; programs that are no rows (a
user's, or another tool's) are known by their keys only.

Nothing here is knowledge of its own: it is worked out from the history and could be forgotten at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from ansor.errors import ScheduleError
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.task.task import Task
from search.generation import merged
from search.history import History, Trial
from search.plans import plan_key
from sketches.family import Family, Matrix
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.signature import Hashes, fingerprints


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """A measured program as a row, shape `(1, columns)`, with its fingerprints."""

    family: Family
    values: Matrix
    fine: int
    coarse: int

    @property
    def population(self) -> Population:
        """The row alone."""
        return Population(self.family, self.values)


class RowProgram:
    """
    The program of one row, which exists as an object only once somebody wants to see it.

    Parameters
    ----------
    population, number
        Whose row.
    key
        Its key (`program_key`), where that is known; None has the state built to find out.
    """

    def __init__(self, population: Population, number: int, key: str | None) -> None:
        self._population, self._number, self._key = population, number, key

    @cached_property
    def state(self) -> State:
        return self._population.materialize(self._number)

    @cached_property
    def key(self) -> str:
        return program_key(self.state) if self._key is None else self._key


class Known:
    """
    The measured programs of one task as rows.

    Parameters
    ----------
    task
        The task.
    neighbourhood
        Its space.
    """

    def __init__(self, task: Task, neighbourhood: Neighbourhood) -> None:
        self._task = task
        self._neighbourhood = neighbourhood
        self._rows: dict[str, Located | None] = {}
        self._keys: WeakKeyDictionary[Family, dict[bytes, str]] = WeakKeyDictionary()
        """Keys of rows, known while their families are."""
        self._plans: dict[str, str] = {}
        self._unlowered: set[str] = set()

    def locate(self, trial: Trial) -> Located | None:
        """Find a measured program among the families; None if it is no row of any."""
        self._locate_all([trial])
        return self._rows[trial.key]

    def _locate_all(self, trials: Iterable[Trial]) -> None:
        """Find programs among the families; the fingerprints of each family's rows are taken together."""
        found: dict[Family, list[tuple[str, Matrix]]] = {}
        for trial in trials:
            if trial.key in self._rows:
                continue
            place = locate(self._neighbourhood, trial.state)
            if place is None:
                self._rows[trial.key] = None
            else:
                found.setdefault(place[0], []).append((trial.key, place[1]))
        for family, members in found.items():
            prints = fingerprints(Population(family, np.concatenate([values for _, values in members])))
            for row, (key, values) in enumerate(members):
                self._rows[key] = Located(family, values, int(prints.fine[row]), int(prints.coarse[row]))

    def fine(self, history: History) -> Hashes:
        """Fine fingerprints of all measured programs that are rows."""
        self._locate_all(history)
        found = [row.fine for trial in history if (row := self.locate(trial)) is not None]
        return np.array(found, dtype=np.uint64)

    def by_coarse(self, history: History) -> dict[int, list[Trial]]:
        """Measured programs that are rows, by coarse fingerprint."""
        self._locate_all(history)
        found: dict[int, list[Trial]] = {}
        for trial in history:
            row = self.locate(trial)
            if row is not None:
                found.setdefault(row.coarse, []).append(trial)
        return found

    def best(self, history: History, count: int) -> list[Located]:
        """List the fastest measured programs that are rows, fastest first, of equals the earlier."""
        trials = [trial for trial in history if trial.seconds is not None]
        trials.sort(key=lambda trial: trial.seconds or 0.0)
        found: list[Located] = []
        for trial in trials:
            if len(found) >= count:
                break
            row = self.locate(trial)
            if row is not None:
                found.append(row)
        return found

    def best_populations(self, history: History, count: int) -> list[Population]:
        """Put the fastest measured programs together by family."""
        return merged([row.population for row in self.best(history, count)])

    def program(self, population: Population, number: int) -> RowProgram:
        """
        Return the program of a row; its state is built the first time that somebody asks about that row.

        Raises
        ------
        ScheduleError
            If a step is illegal; rows that sampling made never raise.
        """
        keys, row = self._keys.setdefault(population.family, {}), population.values[number].tobytes()
        program = RowProgram(population, number, keys.get(row))
        keys[row] = program.key
        return program

    def plan(self, program: Trial | RowProgram) -> str:
        """
        Return the plan of a program, lowering it the first time (see `plan_key`).

        Raises
        ------
        ScheduleError
            If it cannot be lowered.
        """
        plan = self._plans.get(program.key)
        if plan is None:
            plan = self._plans[program.key] = plan_key(self._task, program.state)
        return plan

    def has_plan(self, program: Trial | RowProgram, plan: str) -> bool:
        """Whether a program has this plan; one that cannot be lowered, and failed for that, has none."""
        if program.key not in self._unlowered:
            try:
                return self.plan(program) == plan
            except ScheduleError:
                self._unlowered.add(program.key)
        return False
