"""From ranked rows to the programs of a round: distinct, unmeasured, and not all alike.

Rows become states here, and only here. A program is passed over if it was measured, if it is chosen already,
or if what would be compiled is what was compiled for another (see `identity.plan_key`). Lowering is what that
last question costs, so it is asked only of programs that share a coarse fingerprint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ansor.errors import ScheduleError
from ansor.schedule.state import State
from search.generation import Generation
from search.history import History
from search.identity import program_key
from search.known import Known


class Picker:
    """
    Chooses the programs of one round.

    Parameters
    ----------
    known
        What is known of measured programs.
    history
        The measured programs.
    alike
        How many programs of one coarse fingerprint a round may hold.
    """

    def __init__(self, known: Known, history: History, alike: int = 2) -> None:
        self.states: list[State] = []
        self.passed_over: Counter[str] = Counter()
        """Programs not taken, by reason."""
        self._known = known
        self._history = history
        self._alike = alike
        self._measured = known.by_coarse(history)
        self._chosen: dict[int, list[tuple[str, State]]] = {}
        self._keys: set[str] = set()
        self._considered: set[int] = set()

    def take(self, generation: Generation, numbers: Iterable[int], until: int) -> None:
        """Choose from programs in the order given, until the round has `until` of them.

        A program that was considered before in this round is not considered again.
        """
        for number in numbers:
            if len(self.states) >= until:
                return
            reason = self._consider(generation, int(number))
            if reason:
                self.passed_over[reason] += 1

    def _consider(self, generation: Generation, number: int) -> str:
        """Choose a program, or say why not."""
        fine, coarse = int(generation.prints.fine[number]), int(generation.prints.coarse[number])
        if fine in self._considered:
            return ""
        self._considered.add(fine)
        mine = self._chosen.setdefault(coarse, [])
        if len(mine) >= self._alike:
            return "too many alike"
        population, row = generation.place(number)
        try:
            state = population.materialize(row)
            key = program_key(state)
            if key in self._keys or key in self._history:
                return "known"
            if self._has_known_plan(key, state, coarse):
                self._keys.add(key)
                return "equal plan"
        except ScheduleError as error:
            return str(error).partition("\n")[0]
        mine.append((key, state))
        self._keys.add(key)
        self.states.append(state)
        return ""

    def _has_known_plan(self, key: str, state: State, coarse: int) -> bool:
        others = [(trial.key, trial.state) for trial in self._measured.get(coarse, ())]
        others += self._chosen[coarse]
        if not others:
            return False
        plan = self._known.plan(key, state)
        return any(self._known.plan(*other) == plan for other in others)
