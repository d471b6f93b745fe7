"""`AlternativesPolicy`: one search over several algorithms for the same operation.

Each algorithm has a policy of its own, all share one cost model. A round's trials are divided: evenly in the
first rounds, so that everyone gets to show something, then by the speeds that were measured, the faster the
more. An algorithm that is behind by more than its own further progress could make good gets no more trials.
Within a round they take turns, so that a budget that ends there is divided in the same way.

All of this follows from the history, as `SearchPolicy.propose` demands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import inf
from typing import Final

from ansor.errors import DefinitionError
from ansor.plugins import items_of
from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel import CostModel
from search.custom_rule import PreloadCustomSketchRule
from search.history import History, Trial
from search.policy import InitSearchCallback, Proposal, SearchPolicy, check_callbacks, check_policy
from search.proposals import proposal_of
from search.sketch_policy import SketchPolicy
from sketches import Sketch

EVEN_ROUNDS: Final = 2
"""So many rounds are divided evenly."""
JUDGED_AFTER: Final = 32
"""Trials before an algorithm may be given up."""
LEAST_GAIN: Final = 1.1
"""What the second half of an algorithm's trials is taken to have gained at least, as a factor."""
SHARPNESS: Final = 3
"""Half as fast, an algorithm gets two to the power of this times fewer trials."""


class AlternativesPolicy(SearchPolicy):
    """
    Search all algorithms of a task.

    Parameters
    ----------
    task
        The task; speeds of its alternatives count as its own.
    policies
        One policy for each of `task.algorithms`, in order; callbacks of theirs count. Default: sketch
        policies.
    program_cost_model, params, seed
        Of the default policies; one model for all.
    init_search_callbacks
        Suppliers of earlier measurements and of first programs, of all algorithms; with the default policies
        sketch rules, too.

    Raises
    ------
    DefinitionError
        If there is not one policy for each algorithm, made with that very object, or a sketch rule is given
        beside policies.
    """

    def __init__(
        self,
        task: Task,
        policies: Sequence[SearchPolicy] | None = None,
        *,
        program_cost_model: CostModel | None = None,
        params: Mapping[str, int | float | str] | None = None,
        seed: int | None = None,
        init_search_callbacks: Sequence[InitSearchCallback] | None = None,
    ) -> None:
        self._task = task
        self._callbacks = check_callbacks(init_search_callbacks)
        rules = [one for one in self._callbacks if isinstance(one, PreloadCustomSketchRule)]
        if policies is None:
            first = SketchPolicy(task, program_cost_model, params, seed, init_search_callbacks=rules)
            others = (
                SketchPolicy(one, first.model, params, seed, init_search_callbacks=rules)
                for one in task.alternatives
            )
            policies = [first, *others]
        elif rules:
            raise DefinitionError(
                f"AlternativesPolicy(init_search_callbacks) have the sketch rule {rules[0].rule_name!r} for "
                "policies that are made already; give it to the policies"
            )
        for number, policy in enumerate(items_of("AlternativesPolicy(policies)", policies, "policies")):
            check_policy(f"AlternativesPolicy(policies)[{number}]", policy)
        self.policies = tuple(policies)
        mine, wanted = [one.task for one in self.policies], list(task.algorithms)
        if [(one.key, id(one.dag)) for one in mine] != [(one.key, id(one.dag)) for one in wanted]:
            raise DefinitionError(
                f"AlternativesPolicy(policies) are for {[one.workload_key for one in mine]}; it takes one "
                f"for each of task.algorithms, {[one.workload_key for one in wanted]}, made with these very "
                "objects, in this order"
            )

    @property
    def task(self) -> Task:
        return self._task

    @property
    def algorithms(self) -> Sequence[Task]:
        return self._task.algorithms

    @property
    def parts(self) -> Sequence[SearchPolicy]:
        return self.policies

    @property
    def init_search_callbacks(self) -> Sequence[InitSearchCallback]:
        return self._callbacks

    def generate_sketches(self) -> list[Sketch]:
        """List the sketches of all algorithms."""
        return [sketch for policy in self.policies for sketch in policy.generate_sketches()]

    def propose(self, round_index: int, count: int, history: History) -> Proposal:
        """Divide a round among the algorithms; who has nothing new leaves its part to those after it."""
        parts = [History() for _ in self.policies]
        for trial in history:
            parts[self._number(trial.state)].add(trial)
        counts = divided(count, parts, even=round_index < EVEN_ROUNDS)
        proposed: list[Sequence[State]] = [()] * len(parts)
        notes: list[str] = []
        order = sorted(range(len(parts)), key=lambda number: counts[number] == 0)
        missing = 0
        for number in order:
            wanted = counts[number] + missing
            if wanted == 0:
                continue
            policy = self.policies[number]
            proposal = proposal_of(policy, policy.propose(round_index, wanted, parts[number]))
            proposed[number] = proposal.states
            on_purpose = proposal.states and not proposal.note  # As in first rounds, which are small.
            missing = 0 if on_purpose else wanted - len(proposal.states)
            if proposal.note:
                notes.append(f"{policy.task.workload_key}: {proposal.note}")
        return Proposal(tuple(in_turn(proposed, counts)), "; ".join(notes))

    def learn(self, trials: Sequence[Trial]) -> None:
        """Tell each policy of its own programs; a model of all learns them in the order given."""
        for number, mine in groupby(trials, key=lambda trial: self._number(trial.state)):
            self.policies[number].learn(list(mine))

    def unlearn(self, trials: Sequence[Trial]) -> None:
        """Let each policy forget its own programs."""
        for number, policy in enumerate(self.policies):
            if mine := [trial for trial in trials if self._number(trial.state) == number]:
                policy.unlearn(mine)

    def _number(self, state: State) -> int:
        """Position of the algorithm of a program."""
        return self._task.algorithms.index(self._task.algorithm_of(state.dag))


def sketch_policy(
    task: Task,
    model: CostModel | None = None,
    params: Mapping[str, int | float | str] | None = None,
    seed: int = 0,
    starts: Sequence[InitSearchCallback] = (),
) -> SearchPolicy:
    """Make the sketch policy of a task, or one for each of its algorithms."""
    if task.alternatives:
        return AlternativesPolicy(
            task, program_cost_model=model, params=params, seed=seed, init_search_callbacks=starts
        )
    return SketchPolicy(task, model, params=params, seed=seed, init_search_callbacks=starts)


def divided(count: int, parts: Sequence[History], *, even: bool) -> list[int]:
    """
    Divide the trials of a round.

    Parameters
    ----------
    count
        Trials.
    parts
        What is known of each algorithm.
    even
        Whether speeds do not count yet.

    Returns
    -------
    list[int]
        Trials of each; they add up to `count`.
    """
    costs = [part.best_seconds for part in parts]
    best = min((cost for cost in costs if cost is not None), default=None)
    weights = [
        0.0
        if best is not None and cannot_win(part, best)
        else 1.0
        if even or best is None or cost is None
        else (best / cost) ** SHARPNESS
        for part, cost in zip(parts, costs, strict=True)
    ]
    if not any(weights):  # All failed.
        weights = [1.0] * len(parts)
    exact = [count * weight / sum(weights) for weight in weights]
    given = [int(share) for share in exact]
    by_rest = sorted(range(len(parts)), key=lambda number: (given[number] - exact[number], number))
    for number in by_rest[: count - sum(given)]:
        given[number] += 1
    return given


def in_turn(proposed: Sequence[Sequence[State]], counts: Sequence[int]) -> list[State]:
    """
    Put the programs of a round into an order of which any beginning is divided as the round is.

    Parameters
    ----------
    proposed
        Programs of each algorithm; they keep their order.
    counts
        What each algorithm was given of the round. Who was given none, and took what others left, comes last.
    """
    places = [
        (place / count if count else inf, number, place)
        for number, (states, count) in enumerate(zip(proposed, counts, strict=True))
        for place in range(len(states))
    ]
    return [proposed[number][place] for _, number, place in sorted(places)]


def cannot_win(part: History, best_seconds: float) -> bool:
    """
    Whether an algorithm is too far behind the best time of all [s].

    It is if it stayed behind even after gaining twice more what the second half of its trials gained, or if
    none of its trials succeeded.
    """
    if len(part) < JUDGED_AFTER:
        return False
    cost = part.best_seconds
    if cost is None:
        return True
    early = [trial.seconds for trial in list(part)[: len(part) // 2] if trial.seconds is not None]
    gain = max(LEAST_GAIN, min(early, default=cost) / cost)
    return cost / gain**2 > best_seconds
