"""`SketchPolicy`: sketches filled in at random, the best by the cost model first.

For now the search is random sampling: a round draws distinct unseen programs from its own generator, and with
an informative model draws a few times more than it needs and keeps the best scored ones. Evolution replaces
`_candidates`; the rest stays.

Source: reference sections 1.6 and 4.1; parameters under the reference's names.
"""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import isfinite
from typing import Final

import numpy as np

from ansor.errors import DefinitionError, ScheduleError
from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel import CostModel, RandomModel
from measure import MeasureInput
from search.history import History, Trial
from search.identity import program_key, round_rng
from search.policy import InitSearchCallback, Proposal, SearchPolicy
from sketches import ProgramSpace, Sketch, SketchRule

DEFAULT_PARAMS: Final[Mapping[str, int | float | str]] = {
    "eps_greedy": 0.05,
    "retry_search_one_round_on_empty": 1,
    "sample_init_min_population": 50,
    "sample_init_use_measured_ratio": 0.2,
    "evolutionary_search_population": 2048,
    "evolutionary_search_num_iters": 4,
    "evolutionary_search_mutation_prob": 0.85,
    "cpu_multi_level_tiling_structure": "SSRSRS",
    "gpu_multi_level_tiling_structure": "SSSRRSRS",
    "max_innermost_split_factor": 64,
    "max_vectorize_size": 16,
    "disable_change_compute_location": 0,
}
"""Search parameters and their defaults. The `evolutionary_search_*` ones have no effect on random search."""

_FRUITLESS_DRAWS: Final = 4
_SMALLEST_DRAW: Final = 8
_SPARE: Final = 4


class SketchPolicy(SearchPolicy):
    """
    Search by sketches.

    Parameters
    ----------
    task
        The task to search.
    program_cost_model
        Ranks candidates; default a `RandomModel`.
    params
        Values that differ from `DEFAULT_PARAMS`; the caller's mapping is not changed.
    seed
        Seed of the whole search, 0 by default: equal seeds and equal results give equal candidates.
    verbose
        0 says nothing; kept for debugging methods.
    init_search_callbacks
        Suppliers of earlier measurements, such as `PreloadMeasuredStates`.
    rules
        Sketch rules in order; default those of the target.

    Raises
    ------
    DefinitionError
        If a parameter is unknown or of the wrong type.
    """

    def __init__(
        self,
        task: Task,
        program_cost_model: CostModel | None = None,
        params: Mapping[str, int | float | str] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[InitSearchCallback] | None = None,
        rules: Sequence[SketchRule] | None = None,
    ) -> None:
        self._task = task
        self.seed = 0 if seed is None else seed
        self.model: CostModel = RandomModel(self.seed) if program_cost_model is None else program_cost_model
        self.params = resolve_params(params)
        self.verbose = verbose
        self._callbacks = tuple(init_search_callbacks or ())
        self._rules = None if rules is None else tuple(rules)

    @property
    def task(self) -> Task:
        return self._task

    @property
    def init_search_callbacks(self) -> Sequence[InitSearchCallback]:
        return self._callbacks

    @cached_property
    def space(self) -> ProgramSpace:
        """All programs that the search can reach."""
        return ProgramSpace.of(self._task, self.params, self._rules)

    def generate_sketches(self, print_for_debug: bool = False) -> list[Sketch]:
        """List the sketches of the task; optionally print them."""
        sketches = list(self.space.sketches)
        if print_for_debug:
            for number, sketch in enumerate(sketches):
                print(f"sketch {number}\n{sketch}\n")
        return sketches

    def sample_initial_population(self, round_index: int = 0) -> list[State]:
        """Draw the programs that a round without any history would choose from."""
        count = int(self.params["sample_init_min_population"])
        states, _ = self._candidates(round_index, count, History())
        return states

    def propose(self, round_index: int, count: int, history: History) -> Proposal:
        """Draw unseen programs from the round's generator and return the best scored ones."""
        if count < 1:
            return Proposal(())
        try:
            self.space  # noqa: B018 (derived on first use)
        except ScheduleError as error:
            return Proposal((), f"no sketch can be derived: {error}")
        spare = _SPARE if self.model.informative else 1
        states, note = self._candidates(round_index, count * spare, history)
        if self.model.informative and states:
            states = self._pick(states, count, round_index)
        return Proposal(tuple(states[:count]), note)

    def learn(self, trials: Sequence[Trial]) -> None:
        """Hand a round's results to the cost model."""
        inputs = [MeasureInput(self._task, trial.state) for trial in trials]
        self.model.update(inputs, [trial.result for trial in trials])

    def _candidates(self, round_index: int, count: int, history: History) -> tuple[list[State], str]:
        """Draw programs that are not in `history`; also say why there are fewer than `count`."""
        rng = round_rng(self.seed, self._task, round_index)
        found: dict[str, State] = {}
        drawn = fruitless = 0
        dropped: Counter[str] = Counter()
        while len(found) < count and fruitless < _FRUITLESS_DRAWS:
            sample = self.space.sample(max(count - len(found), _SMALLEST_DRAW), rng)
            before = len(found)
            for population, row in sample.in_order():
                try:
                    state = population.materialize(row)
                    key = program_key(state)
                except ScheduleError as error:
                    dropped[str(error).partition("\n")[0]] += 1
                    continue
                if key not in history:
                    found.setdefault(key, state)
            drawn += len(sample)
            dropped.update(sample.dropped)
            fruitless = 0 if len(found) > before else fruitless + 1
        states = list(found.values())[:count]
        return states, "" if len(states) == count else self._shortage(drawn, len(states), dropped)

    def _shortage(self, drawn: int, new: int, dropped: Counter[str]) -> str:
        """Say what drawing gave."""
        of = f"{len(self.space.sketches)} sketches"
        lost = "; ".join(f"{count} of them because {why}" for why, count in dropped.most_common(3))
        lost = f"; {dropped.total()} more were invalid, {lost}" if dropped else ""
        if drawn == 0:
            return f"no program could be drawn from {of}{lost}"
        return f"{drawn} programs drawn from {of} held {new} new ones{lost}"

    def _pick(self, states: list[State], count: int, round_index: int) -> list[State]:
        """Choose the best by score and random others for `eps_greedy` of the places; drop scores of -inf."""
        scores = self.model.predict(self._task, states)
        order = [int(i) for i in np.argsort(-scores, kind="stable") if isfinite(scores[i])]
        exploring = min(int(float(self.params["eps_greedy"]) * count), max(0, len(order) - count))
        best, rest = order[: count - exploring], order[count - exploring :]
        rng = round_rng(self.seed + 1, self._task, round_index)
        chosen = [*best, *(int(i) for i in rng.choice(rest, exploring, replace=False))] if exploring else best
        return [states[i] for i in chosen]


def resolve_params(params: Mapping[str, int | float | str] | None) -> dict[str, int | float | str]:
    """
    Complete search parameters by the defaults.

    Raises
    ------
    DefinitionError
        If a name is unknown, or a value is not of its default's type (an int may stand for a float).
    """
    resolved = dict(DEFAULT_PARAMS)
    for name, value in (params or {}).items():
        if name not in resolved:
            near = difflib.get_close_matches(name, resolved, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise DefinitionError(f"unknown search parameter {name!r}; {hint}known are {', '.join(resolved)}")
        wanted = type(resolved[name])
        if not isinstance(value, (float, int) if wanted is float else wanted):
            raise DefinitionError(
                f"search parameter {name!r} is {value!r}; it must be {wanted.__name__}, "
                f"as its default {resolved[name]!r}"
            )
        resolved[name] = wanted(value)
    return resolved
