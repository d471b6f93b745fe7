"""What all tuners of templates share: from indices of configurations to programs, and back.

A tuner is a search policy. Its own business is one method, `wanted`: which indices it would like to measure,
most wanted first. This base leaves out what is known, illegal, or the same program again, and tells which
configuration a measured program has.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from ansor.checks import check_integer, check_number
from ansor.errors import DefinitionError, ScheduleError
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.wording import counted
from measure.records.log import PathLike
from search.history import History, Trial
from search.policy import InitSearchCallback, Proposal, SearchPolicy, check_callbacks
from search.randomness import round_rng
from search.templates.history import TransferConfigs
from search.templates.task import TemplateTask

LISTED: Final = 1 << 16
"""Spaces up to this size are gone through as a whole, larger ones by random draws."""
_DRAWS: Final = 8192
"""Draws from a larger space after which a round takes what it has."""
_REFUSALS: Final = 4096
"""Configurations found to be invalid, after the first valid one, after which a round takes what it has."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A configuration by its coordinates, and its run time [s], None for a failure."""

    coordinates: tuple[int, ...]
    seconds: float | None


class TemplateTuner(SearchPolicy):
    """
    Base of the tuners; subclasses write `wanted`.

    Parameters
    ----------
    task
        The template's task.
    seed
        Of all that is drawn; equal seeds and equal results give equal programs.
    init_search_callbacks
        Suppliers of earlier measurements and of first programs.

    Raises
    ------
    DefinitionError
        If the task is not one of a template, or a number is out of range.
    """

    def __init__(
        self,
        task: TemplateTask,
        seed: int | None = None,
        init_search_callbacks: Sequence[InitSearchCallback] | None = None,
    ) -> None:
        if not isinstance(task, TemplateTask):
            raise DefinitionError(
                f"a {type(self).__name__} searches a template's configurations; make the task with "
                f"ansor.TemplateTask(template, args), found {task!r}"
            )
        if seed is not None:
            seed = check_integer(f"{type(self).__name__}(seed)", seed, low=0)
        self._task = task
        self.seed = 0 if seed is None else seed
        self.space = task.config_space
        self._callbacks = list(check_callbacks(init_search_callbacks))
        self._keys: dict[int, str | None] = {}
        self._index_of: dict[str, int | None] = {}
        self._measured: dict[str, Measured] = {}
        self._refused: Counter[str] = Counter()

    @property
    def task(self) -> TemplateTask:
        return self._task

    @property
    def init_search_callbacks(self) -> Sequence[InitSearchCallback]:
        return self._callbacks

    def describe_space(self) -> str:
        """Say what there is to choose, one line for each dimension."""
        return f"{self.space}\n"

    def load_history(self, filename: PathLike, count: int = 8) -> None:
        """Learn from a log of the same template at other sizes: begin with what was best there."""
        self._callbacks.append(TransferConfigs(filename, count))

    @abstractmethod
    def wanted(self, rng: np.random.Generator, count: int) -> Iterator[int]:
        """
        Give indices of configurations, most wanted first; known ones are left out by the caller.

        It must come to an end.

        Parameters
        ----------
        rng
            The round's generator.
        count
            Programs that will be taken.
        """

    def propose(self, round_index: int, count: int, history: History) -> Proposal:
        """Take the first `count` programs of `wanted` that are new."""
        if count < 1:
            return Proposal(())
        rng = round_rng(self.seed, self._task, round_index)
        found: dict[str, int] = {}
        refused = 0
        for index in self.wanted(rng, count):
            key = self.key_of(index)
            if key is not None and key not in history:
                refused = refused if found else self._refused.total()
                found.setdefault(key, index)
            if len(found) == count or (found and self._refused.total() - refused > _REFUSALS):
                break
        states = tuple(self._task.state_of(index) for index in found.values())
        return Proposal(states, "" if len(states) == count else self._shortage())

    def learn(self, trials: Sequence[Trial]) -> None:
        """Note the results by configuration."""
        for trial in trials:
            self._measured.setdefault(trial.key, self._note(trial))

    def unlearn(self, trials: Sequence[Trial]) -> None:
        """Forget the results."""
        for trial in trials:
            self._measured.pop(trial.key, None)

    @property
    def measured(self) -> list[Measured]:
        """Configurations whose results are known, in the order of measuring."""
        return [one for one in self._measured.values() if one.coordinates]

    def index_of(self, state: State, key: str | None = None) -> int | None:
        """Find the index of a program's configuration; None for a program that is not the template's."""
        key = key or program_key(state)
        if key not in self._index_of:
            config = self._task.config_of(state)
            self._index_of[key] = None if config is None else config.index
        return self._index_of[key]

    def key_of(self, index: int) -> str | None:
        """Identity of a configuration's program; None if it is refused by a filter or illegal."""
        if index not in self._keys:
            self._keys[index] = self._make_key(index)
        return self._keys[index]

    def _make_key(self, index: int) -> str | None:
        if not self.space.accepts(index):
            self._refused["a filter of the template refuses them"] += 1
            return None
        try:
            key = program_key(self._task.state_of(index))
        except ScheduleError as error:
            self._refused[str(error).partition("\n")[0]] += 1
            return None
        self._index_of.setdefault(key, index)
        return key

    def _note(self, trial: Trial) -> Measured:
        index = self.index_of(trial.state, trial.key)
        return Measured(() if index is None else self.space.coordinates(index), trial.seconds)

    def _shortage(self) -> str:
        why = "; ".join(f"{count} of them because {reason}" for reason, count in self._refused.most_common(3))
        refused = f"; {self._refused.total()} tried ones are invalid, {why}" if why else ""
        legal = [key for key in self._keys.values() if key is not None]
        equal = len(legal) - len(set(legal))
        repeats = f"; {counted(equal, 'configuration')} repeated the program of another" if equal else ""
        return (
            f"the template's space of {counted(self.space.size, 'configuration')} gave no more new programs"
            f"{repeats}{refused}"
        )

    def drawn(self, rng: np.random.Generator) -> Iterator[int]:
        """All configurations in random order, where they can be listed; else many draws."""
        if self.space.size <= LISTED:
            yield from map(int, rng.permutation(self.space.size))
            return
        for _ in range(_DRAWS // 256):
            rows = rng.integers(self.space.dims, size=(256, len(self.space.dims)))
            yield from map(self.space.index_of, rows.tolist())


class GridSearchTuner(TemplateTuner):
    """All configurations by index, the first dimension fastest."""

    def wanted(self, rng: np.random.Generator, count: int) -> Iterator[int]:
        return iter(range(self.space.size))


class RandomTuner(TemplateTuner):
    """Configurations at random, each once."""

    def wanted(self, rng: np.random.Generator, count: int) -> Iterator[int]:
        return self.drawn(rng)


class GATuner(TemplateTuner):
    """
    A genetic algorithm: children of the fast ones.

    The parents are the last `pop_size` measured configurations and the best ever; each child has two, drawn
    in proportion to their speed, takes a first part of the dimensions from one and the rest from the other,
    and is mutated.

    Parameters
    ----------
    task, seed, init_search_callbacks
        As in `TemplateTuner`.
    pop_size
        Configurations drawn at random before the first children, and parents of the later ones.
    elite_num
        Best ones that stay parents for ever.
    mutation_prob
        Probability that a dimension of a child is drawn anew.
    """

    def __init__(
        self,
        task: TemplateTask,
        seed: int | None = None,
        init_search_callbacks: Sequence[InitSearchCallback] | None = None,
        *,
        pop_size: int = 100,
        elite_num: int = 3,
        mutation_prob: float = 0.1,
    ) -> None:
        super().__init__(task, seed, init_search_callbacks)
        pop_size = check_integer("GATuner(pop_size)", pop_size, low=1)
        elite_num = check_integer("GATuner(elite_num)", elite_num, low=1)
        mutation_prob = check_number("GATuner(mutation_prob)", mutation_prob, low=0)
        if not elite_num <= pop_size or not mutation_prob <= 1:
            raise DefinitionError(
                f"GATuner(pop_size={pop_size}, elite_num={elite_num}, mutation_prob={mutation_prob}): "
                "0 < elite_num <= pop_size and a probability are needed"
            )
        self.pop_size, self.elite_num, self.mutation_prob = pop_size, elite_num, mutation_prob

    def wanted(self, rng: np.random.Generator, count: int) -> Iterator[int]:
        """Children of the parents, as long as these have new ones; then any."""
        parents = self._parents()
        if len(self.measured) >= self.pop_size and parents:
            yield from islice(self._children(parents, rng), 50 * count)
        yield from self.drawn(rng)

    def _parents(self) -> list[Measured]:
        ran = [one for one in self.measured if one.seconds is not None]
        elite = sorted(ran, key=_seconds)[: self.elite_num]
        return list({one.coordinates: one for one in (*elite, *ran[-self.pop_size :])}.values())

    def _children(self, parents: Sequence[Measured], rng: np.random.Generator) -> Iterator[int]:
        speed = np.array([1 / _seconds(one) for one in parents])
        genes = np.array([one.coordinates for one in parents])
        dims = np.array(self.space.dims)
        while True:
            one, other = genes[rng.choice(len(parents), 2, p=speed / speed.sum())]
            child = np.where(np.arange(len(dims)) < rng.integers(len(dims)) + 1, one, other)
            child = np.where(rng.random(len(dims)) < self.mutation_prob, rng.integers(dims), child)
            yield self.space.index_of(child.tolist())


def _seconds(one: Measured) -> float:
    return float("inf") if one.seconds is None else max(one.seconds, 1e-12)
