"""From ranked rows to the programs of a round: distinct, unmeasured, and not all alike.

Rows become states here, and only here. A program is passed over if it was measured, if it is chosen already,
or if what would be compiled is what was compiled for another (see `plans.plan_key`). Lowering is what that
last question costs, so it is asked only of programs that share a coarse fingerprint and, where a model looks
at nothing but what is compiled, a score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from ansor.errors import ScheduleError
from ansor.schedule.state import State
from search.evolution import Score
from search.generation import NO_TILE, Generation
from search.history import History, Trial
from search.known import Known, RowProgram
from sketches.family import Family, Matrix
from sketches.population import Population
from sketches.signature import Hashes

UNSCORED: Final = 0.0
"""The score of programs that no model was asked about."""
NEAR: Final = 1e-6
"""Scores that differ by less, relatively, are equal: sums may be rounded differently."""


class Picker:
    """
    Chooses the programs of one round.

    Parameters
    ----------
    known
        What is known of measured programs.
    history
        The measured programs.
    score
        The model's scores, if programs with unequal ones are never compiled to the same code
        (`CostModel.tells_plans_apart`).
    alike
        So many programs with the same loops but for annotations, and so many with the same innermost tile,
        are chosen at first; further ones are put off, and so are those that the model cannot tell from
        another one with such loops.
    """

    def __init__(self, known: Known, history: History, score: Score | None = None, alike: int = 2) -> None:
        self.states: list[State] = []
        self.passed_over: Counter[str] = Counter()
        """Programs not taken, by reason."""
        self._known = known
        self._history = history
        self._alike = alike
        self._score = score
        self._measured = known.by_coarse(history)
        self._compared: set[int] = set()
        """Coarse fingerprints of the measured programs that the model was asked about."""
        self._scores: dict[str, float] = {}
        self._chosen: dict[int, list[tuple[RowProgram, float]]] = {}
        self._innermost: Counter[tuple[object, ...]] = Counter()
        self._register_tiles: Counter[int] = Counter()
        self._keys: set[str] = set()
        self._considered: set[int] = set()
        self._put_off: list[tuple[Generation, int]] = []

    def take(
        self, generation: Generation, numbers: Iterable[int], until: int, per_tile: int | None = None
    ) -> None:
        """
        Choose from programs in the order given, until the round has `until` of them.

        A program that was considered before in this round is not considered again. Once `per_tile` programs
        with one tile in registers are chosen, further ones are put off.
        """
        self._score_measured(generation.prints.coarse)
        for number in map(int, numbers):
            if len(self.states) >= until:
                return
            fine = int(generation.prints.fine[number])
            if fine in self._considered:
                continue
            self._considered.add(fine)
            crowded = per_tile is not None and self._chosen_of_tile(generation, number) >= per_tile
            if crowded or self._has_alike(generation, number):
                self._put_off.append((generation, number))
            else:
                self._consider(generation, number)

    def take_put_off(self, until: int) -> None:
        """Choose from programs that were put off, until the round has `until`: first those like no other."""
        for any_of_them in (False, True):
            waiting, self._put_off = self._put_off, []
            for program in waiting:
                if len(self.states) < until and (any_of_them or not self._has_alike(*program)):
                    self._consider(*program)
                else:
                    self._put_off.append(program)

    def _chosen_of_tile(self, generation: Generation, number: int) -> int:
        """How many programs of the round have the tile in registers that this one has; 0 if it has none."""
        tile = int(generation.register_tiles[number])
        return self._register_tiles[tile] if tile != NO_TILE else 0

    def _has_alike(self, generation: Generation, number: int) -> bool:
        """Whether the round has enough programs like this one."""
        coarse, score = int(generation.prints.coarse[number]), float(generation.scores[number])
        if score != UNSCORED and (
            any(score == its for _, its in self._chosen.get(coarse, ()))
            or any(_equal(score, its) for _, its in self._measured_with_loops(coarse))
        ):
            return True
        innermost = _innermost_tile(*generation.place(number))
        return len(self._chosen.get(coarse, ())) >= self._alike or self._innermost[innermost] >= self._alike

    def _consider(self, generation: Generation, number: int) -> None:
        """Choose a program, or note why not."""
        population, row = generation.place(number)
        coarse, score = int(generation.prints.coarse[number]), float(generation.scores[number])
        try:
            program = self._known.program(population, row)
            if program.key in self._keys or program.key in self._history:
                self.passed_over["known"] += 1
                return
            self._keys.add(program.key)
            if self._has_known_plan(program, coarse, score):
                self.passed_over["equal plan"] += 1
                return
            state = program.state
        except ScheduleError as error:
            self.passed_over[str(error).partition("\n")[0]] += 1
            return
        self._chosen.setdefault(coarse, []).append((program, score))
        self._innermost[_innermost_tile(population, row)] += 1
        self._register_tiles[int(generation.register_tiles[number])] += 1
        self.states.append(state)

    def _has_known_plan(self, program: RowProgram, coarse: int, score: float) -> bool:
        others = [
            other
            for other, its in (*self._measured_with_loops(coarse), *self._chosen.get(coarse, ()))
            if self._score is None or UNSCORED in (score, its) or _equal(score, its)
        ]
        if not others:
            return False
        plan = self._known.plan(program)
        return any(self._known.has_plan(other, plan) for other in others)

    def _measured_with_loops(self, coarse: int) -> list[tuple[Trial, float]]:
        """The measured programs with a coarse fingerprint, and what the model says of each."""
        return [(trial, self._scores.get(trial.key, UNSCORED)) for trial in self._measured.get(coarse, ())]

    def _score_measured(self, loops: Hashes) -> None:
        """Ask the model about the measured programs with these coarse fingerprints, once and together."""
        if self._score is None:
            return
        wanted = set(loops.tolist()).intersection(self._measured) - self._compared
        self._compared |= wanted
        members: dict[Family, dict[str, Matrix]] = {}
        for coarse in sorted(wanted):
            for trial in self._measured[coarse]:
                row = self._known.locate(trial)
                if row is not None:
                    members.setdefault(row.family, {})[trial.key] = row.values
        rows = [Population(f, np.concatenate([*values.values()])) for f, values in members.items()]
        keys = [key for values in members.values() for key in values]
        self._scores.update(zip(keys, map(float, self._score(rows)), strict=True))


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= NEAR * abs(one)


def _innermost_tile(population: Population, row: int) -> tuple[object, ...]:
    """The sketch of a program and the innermost length of each of its splits."""
    family = population.family
    last = [hole.stop - 1 for hole in family.holes]
    return (family.sketch, *population.values[row, last].tolist())
