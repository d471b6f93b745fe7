"""`SketchPolicy`: programs from sketches, searched by evolution under a cost model.

A round: what was measured is found again among the rows; a first generation is sampled and joined by the best
of these; generations are bred (`evolution`) and everything is scored by the model; the best distinct programs
are picked, with some at random, in the first round of several tiles, and after the first rounds with
neighbours of the best (`polish`). A space small enough is listed and scored instead, or is the first
generation if a user's mutation may lead out of it. With a model that knows nothing the search is random
sampling.

Every round draws from a generator of its own, and what a policy remembers between rounds could be worked out
again from the history: so a run that reads its own log back proposes the same programs again.

Source: Zheng et al., OSDI 2020, section 5; `SketchPolicy` of TVM 0.16, which names the parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import ceil
from typing import Final

import numpy as np

from ansor.checks import check_integer
from ansor.collector import collector_paused
from ansor.errors import DefinitionError, ScheduleError
from ansor.plugins import brief
from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.wording import counted
from costmodel import CostModel, DraftedModel, FloatArray, Programs, XGBModel
from measure import MeasureInput
from search.asking import check_model, scores_of, teach, unteach
from search.custom_rule import PreloadCustomSketchRule
from search.evolution import Evolution, Outcome, evolve
from search.exhaustive import enumerate_space
from search.generation import Generation, merged, unseen
from search.history import History, Trial
from search.known import Known
from search.mutations.defaults import CPU_MUTATIONS, GPU_MUTATIONS, default_mutations
from search.mutations.mutation import Mutation, check_mutations
from search.params import DEFAULT_PARAMS, Params, resolve_params
from search.picking import Picker
from search.policy import InitSearchCallback, Proposal, SearchPolicy, check_callbacks
from search.polish import polish
from search.randomness import round_rng
from search.turns import order_of_turns, sketches_of_round
from sketches import ProgramSpace, Sketch, SketchContext, SketchParams, SketchRule
from sketches.annotators import Annotator, check_annotators, default_annotators
from sketches.derive import default_rules
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.rule import check_rules

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

FIRST_ROUNDS: Final = 4
"""So many rounds have the size of a first round; the next ones are twice as large, until all is asked for."""
SPARE: Final = 4
"""The best so many times more programs than a round needs are kept: some will be duplicates."""
FRUITLESS_DRAWS: Final = 4
"""Random search ends after so many draws in a row without a new program."""
SMALLEST_DRAW: Final = 32


class SketchPolicy(SearchPolicy):
    """
    Search by sketches.

    Parameters
    ----------
    task
        The task to search.
    program_cost_model
        Ranks candidates. Default: a `DraftedModel`, which estimates run times and learns to correct itself.
        A `RandomModel` makes the search random sampling.
    params
        Values that differ from the defaults, which `SketchPolicy(task).params` shows; the caller's mapping is
        not changed.
    seed
        Seed of the whole search, 0 by default: equal seeds and equal results give equal candidates.
    verbose
        Accepted for compatibility; `TuningOptions(verbose)` says how much a run tells.
    init_search_callbacks
        Suppliers of earlier measurements, such as `PreloadMeasuredStates`, of first candidates, and of rules
        (`PreloadCustomSketchRule`).
    rules
        Sketch rules in order; default those of the target.
    mutations
        Mutations with their weights; default those of the target, `CPU_MUTATIONS` or `GPU_MUTATIONS`.
    annotators
        What decides annotations: `draw` those of new programs, `choices` what the search may make of them;
        default those of the target, `CPU_ANNOTATORS` or `GPU_ANNOTATORS`.

    Raises
    ------
    DefinitionError
        If the task is none, a parameter is unknown, of the wrong type or out of range, the seed is no integer
        of at least 0, or if what is passed to be asked later (model, rules, mutations, annotators) cannot be
        asked.
    """

    def __init__(
        self,
        task: Task,
        program_cost_model: CostModel | None = None,
        params: Params | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[InitSearchCallback] | None = None,
        rules: Sequence[SketchRule] | None = None,
        mutations: Sequence[tuple[Mutation, float]] | None = None,
        annotators: Sequence[Annotator] | None = None,
    ) -> None:
        if not isinstance(task, Task):
            raise DefinitionError(
                f"SketchPolicy(task={brief(task)}): it must be a task, such as ansor.SearchTask(...)"
            )
        if seed is not None:
            seed = check_integer("SketchPolicy(seed)", seed, low=0)
        self._task = task
        self.seed = 0 if seed is None else seed
        self.model: CostModel = (
            DraftedModel(learned=XGBModel(seed=self.seed))
            if program_cost_model is None
            else program_cost_model
        )
        check_model("SketchPolicy(program_cost_model)", self.model)
        self.params = resolve_params(params)
        context = self._context
        self.mutations = check_mutations(
            "SketchPolicy(mutations)", default_mutations(context) if mutations is None else mutations
        )
        self.annotators = check_annotators(
            "SketchPolicy(annotators)", default_annotators(context) if annotators is None else annotators
        )
        self.last_outcome: Outcome | None = None
        """Statistics of the last round that was searched by evolution."""
        self._callbacks = check_callbacks(init_search_callbacks)
        self._rules = None if rules is None else check_rules("SketchPolicy(rules)", rules)

    @property
    def task(self) -> Task:
        return self._task

    @property
    def search_task(self) -> Task:
        """The task, by TVM's name."""
        return self._task

    @property
    def init_search_callbacks(self) -> Sequence[InitSearchCallback]:
        return self._callbacks

    @property
    def rules(self) -> tuple[SketchRule, ...]:
        """The sketch rules in order, those of callbacks first."""
        own = [c.rule_for(self) for c in self._callbacks if isinstance(c, PreloadCustomSketchRule)]
        given = self._rules
        if given is None:
            given = default_rules(self._context)
        return (*own, *given)

    @property
    def _context(self) -> SketchContext:
        return SketchContext.of(self._task, SketchParams.of(self.params))

    @cached_property
    def space(self) -> ProgramSpace:
        """All programs that the search can reach."""
        return ProgramSpace.of(self._task, self.params, self.rules, self.annotators)

    @cached_property
    def neighbourhood(self) -> Neighbourhood:
        """The families of the space and the ways between them."""
        return Neighbourhood(self.space)

    @cached_property
    def known(self) -> Known:
        """Measured programs as rows."""
        return Known(self._task, self.neighbourhood)

    @cached_property
    def all_programs(self) -> list[Population] | None:
        """Every program of the space, if there are no more than fit into a generation; else None."""
        return enumerate_space(self.neighbourhood, self._population)

    @cached_property
    def _order_of_turns(self) -> list[int]:
        return order_of_turns(self.seed, self._task, len(self.space.sketches))

    @property
    def _leaves_the_list(self) -> bool:
        """Whether a mutation may make programs that a list of all does not have; ours make none."""
        ours = {type(mutation) for mutation, _ in (*CPU_MUTATIONS, *GPU_MUTATIONS)}
        return any(weight > 0 and type(mutation) not in ours for mutation, weight in self.mutations)

    @property
    def _population(self) -> int:
        return int(self.params["evolutionary_search_population"])

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
        picker = Picker(self.known, History())
        self._draw(picker, count, round_rng(self.seed, self._task, round_index))
        return picker.states

    def propose(self, round_index: int, count: int, history: History) -> Proposal:
        """Choose a round: the best by the model, some at random, some next to the best measured."""
        if count < 1:
            return Proposal(())
        try:
            self.space  # noqa: B018 (derived on first use)
        except ScheduleError as error:
            return Proposal((), f"no program can be made: {error}")
        with collector_paused():
            return self._proposal(round_index, count, history)

    def _proposal(self, round_index: int, count: int, history: History) -> Proposal:
        rng = round_rng(self.seed, self._task, round_index)
        apart = getattr(self.model, "tells_plans_apart", False)
        picker = Picker(self.known, history, self.score if apart else None)
        wanted = round_size(self.params, round_index, count)
        if self.model.informative:
            self._search(picker, round_index, wanted, history, rng)
        note = ""
        if len(picker.states) < wanted:
            note = self._draw(picker, wanted, rng)
        return Proposal(tuple(picker.states), note)

    def learn(self, trials: Sequence[Trial]) -> None:
        """Hand a round's results to the cost model."""
        inputs = [MeasureInput(self._task, trial.state) for trial in trials]
        teach(self.model, inputs, [trial.result for trial in trials])

    def unlearn(self, trials: Sequence[Trial]) -> None:
        """Make the cost model forget results."""
        inputs = [MeasureInput(self._task, trial.state) for trial in trials]
        unteach(self.model, inputs, [trial.result for trial in trials])

    def score(self, populations: Sequence[Population]) -> FloatArray:
        """Ask the model about all rows of some populations."""
        if not populations:
            return np.empty(0)
        return scores_of(self.model, self._task, Programs(populations))

    def _per_tile(self, count: int, history: History) -> int | None:
        """How many of the best programs may have one tile in registers; None for any number."""
        tiles = int(self.params["cpu_first_round_tiles"])
        if len(history) or not tiles or self.space.context.is_gpu:
            return None
        return max(1, count // tiles)

    def _search(
        self, picker: Picker, round_index: int, wanted: int, history: History, rng: np.random.Generator
    ) -> None:
        """Fill a round with the best of evolution, neighbours of the best measured, and some others."""
        measured = self.known.fine(history)
        outcome = self._outcome(round_index, wanted, history, measured, rng)
        self.last_outcome = outcome
        share = float(self.params["eps_greedy"]) * wanted
        at_random = min(ceil(share), wanted - 1) if wanted > 1 else _whole(share, rng)
        by_model = wanted - at_random
        next_to_best = 0
        if len(history) >= int(self.params["polish_after"]):
            next_to_best = _whole(float(self.params["polish_ratio"]) * wanted, rng)
        if next_to_best > 0:
            by_model -= next_to_best
            picker.take(outcome.best, outcome.best.ranking(), by_model)
            known, near = self.known, self.neighbourhood
            for ring in polish(known, history, near, self.score, next_to_best, measured):
                picker.take(ring, ring.ranking(), wanted - at_random)
        per_tile = self._per_tile(wanted, history)
        picker.take(outcome.best, outcome.best.ranking(), wanted - at_random, per_tile)
        picker.take_put_off(wanted - at_random)
        usable = outcome.first.ranking()
        picker.take(outcome.first, rng.permutation(usable), wanted)
        picker.take_put_off(wanted)

    def _outcome(
        self,
        round_index: int,
        wanted: int,
        history: History,
        measured: np.ndarray[tuple[int], np.dtype[np.uint64]],
        rng: np.random.Generator,
    ) -> Outcome:
        """Score the whole space, or what evolution reaches of it."""
        if self.all_programs is not None and not self._leaves_the_list:
            everything = unseen(Generation.of(self.all_programs), measured)
            everything = everything.scored(self.score(everything.populations))
            outcome = Outcome(everything, everything)
            outcome.count(everything)
            return outcome
        share = float(self.params["sample_init_use_measured_ratio"])
        best = self.known.best_populations(history, int(share * self._population))
        fresh: Sequence[Population] | None = self.all_programs
        if fresh is None:
            count = self._population - sum(map(len, best))
            fresh = self._space_of_round(round_index, history).sample(count, rng).populations
        keep = SPARE * wanted + SMALLEST_DRAW
        settings = Evolution(
            self.neighbourhood,
            self.mutations,
            self._population,
            int(self.params["evolutionary_search_num_iters"]),
            float(self.params["evolutionary_search_mutation_prob"]),
            float(self.params["evolutionary_search_crossover_prob"]),
            int(self.params["max_families"]),
            0 if len(history) else int(self.params["first_round_more_iters"]),
            self._per_tile(keep, history),
        )
        first = merged([*best, *fresh])
        return evolve(settings, self.score, first, measured, keep, rng)

    def _space_of_round(self, round_index: int, history: History) -> ProgramSpace:
        """What a round draws from: the space, or as many of its sketches as a generation has structures."""
        limit, sketches = int(self.params["max_families"]), self.space.sketches
        if len(sketches) <= limit:
            return self.space
        leading = (row.family.sketch for row in self.known.best(history, len(history)))
        return self.space.of_sketches(
            sketches_of_round(sketches, limit, leading, round_index, self._order_of_turns)
        )

    def _draw(self, picker: Picker, wanted: int, rng: np.random.Generator) -> str:
        """Fill a round with random programs; say why there are fewer than wanted."""
        if self.all_programs is not None:
            everything = Generation.of(self.all_programs)
            everything = unseen(everything, np.empty(0, dtype=np.uint64))
            order = rng.permutation(len(everything))
            admissible = self._admissible(everything, order)
            picker.take(everything, admissible, wanted)
            picker.take_put_off(wanted)
            drawn, lost = len(everything), _ruled_out(len(order) - len(admissible))
            fruitless = FRUITLESS_DRAWS
        else:
            drawn = fruitless = 0
            lost = Counter()
        while len(picker.states) < wanted and fruitless < FRUITLESS_DRAWS:
            before = len(picker.states)
            sample = self.space.sample(max(wanted - before, SMALLEST_DRAW), rng)
            generation, order = _in_order_of_drawing(sample.populations, sample.draws)
            admissible = self._admissible(generation, order)
            picker.take(generation, admissible, wanted)
            picker.take_put_off(wanted)
            drawn += len(sample)
            lost.update(sample.dropped)
            lost.update(_ruled_out(len(order) - len(admissible)))
            fruitless = 0 if len(picker.states) > before else fruitless + 1
        if len(picker.states) >= wanted:
            return ""
        return self._shortage(picker, drawn, lost)

    def _admissible(self, generation: Generation, order: Numbers) -> Numbers:
        """Leave out of some programs of a generation those that the model says should not be measured."""
        if not self.model.informative:
            return order
        return order[~np.isneginf(self.score(generation.populations)[order])]

    def _shortage(self, picker: Picker, drawn: int, lost: Mapping[str, int]) -> str:
        """Say what drawing gave."""
        of = f"{len(self.space.sketches)} sketch{'es' if len(self.space.sketches) != 1 else ''}"
        why = Counter(lost)
        why.update({r: n for r, n in picker.passed_over.items() if r not in _REASONS_OF_CHOICE})
        details = "; ".join(f"{count} of them because {reason}" for reason, count in why.most_common(3))
        invalid = f"; {why.total()} more were invalid, {details}" if why else ""
        if drawn == 0:
            return f"no program could be drawn from {of}{invalid}"
        if self.all_programs is not None:
            fresh = f" but {len(picker.states)}" if picker.states else ""
            ways = counted(drawn, "way")
            return f"{of} can be completed in {ways}, which make these programs again{fresh}{invalid}"
        return f"{drawn} programs drawn from {of} held {len(picker.states)} new ones{invalid}"


def round_size(params: Params, round_index: int, count: int) -> int:
    """
    Tell how many programs a round proposes: few at first, so that the model learns early.

    Parameters
    ----------
    params
        Search parameters, complete.
    round_index
        0 for the first round of a search.
    count
        Programs asked for.
    """
    first = int(params["first_rounds_size"])
    if first < 1:
        return count
    doublings = max(0, round_index - FIRST_ROUNDS + 1)
    return min(count, first << min(doublings, 20))


def _whole(share: float, rng: np.random.Generator) -> int:
    """How many programs a share of a round is: less than one is one in as large a share of the rounds."""
    return int(rng.random() < share) if 0 < share < 1 else int(share)


_REASONS_OF_CHOICE: Final = frozenset({"known", "equal plan"})


def _ruled_out(count: int) -> Counter[str]:
    """Programs that a cost model gave a score of -inf, as a reason why others are missing."""
    return Counter({"the cost model rules them out": count} if count else {})


def _in_order_of_drawing(
    populations: Sequence[Population], draws: Sequence[Numbers]
) -> tuple[Generation, Numbers]:
    """Put a sample together, with the numbers of its programs in the order in which they were drawn."""
    generation = Generation.of(populations)
    order = np.concatenate(draws) if draws else np.empty(0, dtype=np.int64)
    return generation, np.argsort(order, kind="stable")


__all__ = ["DEFAULT_PARAMS", "SketchPolicy", "resolve_params", "round_size"]
