"""Evolution, polish and the policy that uses them: better, distinct, reproducible, and never stuck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError, ScheduleError
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep
from costmodel import CostModel, DraftedModel, RandomModel
from measure import MeasureErrorNo, MeasureInput, MeasureResult, load_records
from measure.simulate import SimulatedRunner, result_of
from search import History, PreloadCustomSketchRule, SearchTask, SketchPolicy, StopReason, Trial
from search.evolution import Evolution, evolve
from search.exhaustive import enumerate_space
from search.generation import (
    Generation,
    bound_families,
    choose_parents,
    joined,
    place_among_equals,
    unseen,
)
from search.known import Known
from search.mutations.defaults import CPU_MUTATIONS
from search.options import patience
from search.picking import Picker
from search.plans import plan_key
from search.polish import neighbours, polish, relocated
from sketches import ColumnKind, Population, ProgramSpace
from sketches.family import Family
from sketches.neighbours import Neighbourhood
from sketches.repair import repaired
from sketches.signature import Hashes
from tests.program_laws import Case, lowered
from tests.random_choice import Chooser
from tests.random_graphs import random_graph
from tests.search_fakes import TileModel, logged, options, simulated_cost
from tests.sketches_cases import check_program, matmul, matmul_relu, padded_conv1d, softmax

NOTHING: Hashes = np.empty(0, dtype=np.uint64)


def task_of(tensors: list[te.Tensor]) -> SearchTask:
    return SearchTask(compute_dag=tensors, target="llvm -num-cores=2")


@pytest.fixture(scope="module")
def task() -> SearchTask:
    return task_of(matmul_relu(48, 64, 96))


@pytest.fixture(scope="module")
def neighbourhood(task: SearchTask) -> Neighbourhood:
    return Neighbourhood(ProgramSpace.of(task, {"max_tile_waste": 1.25}))


def smooth(populations: Sequence[Population]) -> Any:
    """A landscape with one summit: all tile lengths 4, unrolled to 64."""
    scores = [np.empty(0)]
    for population in populations:
        family, values = population.family, population.values.astype(float)
        tiles = values[:, list(family.positions(ColumnKind.TILE))]
        unrolls = values[:, list(family.positions(ColumnKind.UNROLL))]
        scores.append(-np.abs(np.log2(tiles) - 2).sum(axis=1) - 0.1 * (unrolls != 64).sum(axis=1))
    return np.concatenate(scores)


def breed(neighbourhood: Neighbourhood, seed: int = 0, measured: Hashes = NOTHING, **changes: Any) -> Any:
    settings = Evolution(neighbourhood, CPU_MUTATIONS, **{"population": 200, "generations": 4, **changes})
    rng = np.random.default_rng(seed)
    first = neighbourhood.space.sample(settings.population, rng).populations
    return evolve(settings, smooth, first, measured, 60, rng)


# -- evolution -------------------------------------------------------------------------------------------


def test_generations_get_better(neighbourhood: Neighbourhood) -> None:
    """The best of four generations is well above the best of as many programs drawn at random."""
    outcome = breed(neighbourhood)
    best = outcome.best.scores[outcome.best.ranking()]
    drawn = neighbourhood.space.sample(outcome.scored, np.random.default_rng(99)).populations
    assert best[0] > smooth(drawn).max()
    assert best[0] > outcome.first.scores.max()
    assert np.median(best) > np.sort(smooth(drawn))[-30]
    assert len(best) == 60
    assert (np.diff(best) <= 0).all()
    assert outcome.scored > 4 * 150


def test_no_program_is_scored_twice(neighbourhood: Neighbourhood) -> None:
    """All fingerprints that the model sees in a round differ, and what was measured is not proposed."""
    seen: list[Hashes] = []

    def score(populations: Sequence[Population]) -> Any:
        seen.append(Generation.of(populations).prints.fine)
        return smooth(populations)

    settings = Evolution(neighbourhood, CPU_MUTATIONS, population=150, generations=3)
    first = neighbourhood.space.sample(150, np.random.default_rng(1)).populations
    outcome = evolve(settings, score, first, NOTHING, 40, np.random.default_rng(1))
    everything = np.concatenate(seen)
    assert len(np.unique(everything)) == len(everything) == outcome.scored
    assert len(np.unique(outcome.best.prints.fine)) == len(outcome.best)
    measured = outcome.best.prints.fine
    again = evolve(settings, smooth, first, measured, 40, np.random.default_rng(1))
    assert not np.isin(again.best.prints.fine, measured).any()
    assert not np.isin(again.first.prints.fine, measured).any()


def test_evolution_depends_on_its_generator_alone(neighbourhood: Neighbourhood) -> None:
    """Equal seeds find equal programs; other seeds find others."""
    one, two, other = (breed(neighbourhood, seed) for seed in (3, 3, 4))
    assert one.best.prints.fine.tolist() == two.best.prints.fine.tolist()
    assert one.invalid == two.invalid
    assert one.best.prints.fine.tolist() != other.best.prints.fine.tolist()


def test_more_generations_are_bred_while_they_find_better_programs(neighbourhood: Neighbourhood) -> None:
    """Each further one but the last has the best so far; the others are those of a search without them."""
    some, more = breed(neighbourhood, generations=2), breed(neighbourhood, generations=2, more_generations=8)
    assert len(some.families) == 3
    assert 4 <= len(more.families) <= 11
    assert more.families[:3] == some.families
    assert more.best.scores.max() >= some.best.scores.max()
    summit = breed(neighbourhood, generations=20).best.scores.max()
    assert more.best.scores.max() > summit - 1
    settled = Evolution(neighbourhood, CPU_MUTATIONS, population=100, generations=1, more_generations=9)
    first = neighbourhood.space.sample(100, np.random.default_rng(1)).populations
    equal = evolve(
        settled, lambda found: np.zeros(sum(map(len, found))), first, NOTHING, 9, np.random.default_rng(1)
    )
    assert len(equal.families) == 2


def test_what_was_measured_breeds(neighbourhood: Neighbourhood) -> None:
    """Good programs in the first generation have good children although they are not proposed themselves."""
    good = breed(neighbourhood).best
    settings = Evolution(neighbourhood, CPU_MUTATIONS, population=100, generations=1)
    rng = np.random.default_rng(5)
    fresh = neighbourhood.space.sample(100, rng).populations
    outcome = evolve(settings, smooth, [*good.populations, *fresh], good.prints.fine, 20, rng)
    best = outcome.best.scores.max()
    assert best >= np.median(good.scores)
    assert best > outcome.first.scores.max() + 1


def test_programs_that_the_model_rejects_neither_breed_nor_come_back(neighbourhood: Neighbourhood) -> None:
    """If all are rejected the outcome is empty."""
    bad = -np.inf

    def score(populations: Sequence[Population]) -> Any:
        scores = smooth(populations)
        return np.where(scores > np.median(scores), bad, scores)

    settings = Evolution(neighbourhood, CPU_MUTATIONS, population=60, generations=2)
    first = neighbourhood.space.sample(60, np.random.default_rng(1)).populations
    outcome = evolve(settings, score, first, NOTHING, 500, np.random.default_rng(1))
    assert len(outcome.best)
    assert np.isfinite(outcome.best.scores).all()
    nothing = evolve(
        settings, lambda populations: np.full(sum(map(len, populations)), bad), first, NOTHING, 9,
        np.random.default_rng(1),
    )  # fmt: skip
    assert len(nothing.best) == 0


def test_evolution_without_crossover_or_mutation(neighbourhood: Neighbourhood) -> None:
    """Each part can be switched off; the rest of a generation is drawn anew."""
    for shares in (
        {"crossover_share": 0.0},
        {"mutation_share": 0.0},
        {"mutation_share": 0.0, "crossover_share": 0.0},
    ):
        outcome = breed(neighbourhood, generations=2, **shares)
        assert outcome.scored > 400
        if shares.get("mutation_share") == 0.0:
            assert outcome.invalid["tile size"] == 0


def test_families_are_bounded() -> None:
    """A softmax has hundreds of families; a generation holds the best and a few others."""
    space = ProgramSpace.of(task_of(softmax(8, 36)), {"max_tile_waste": 1.25, "max_families": 200})
    populations = space.sample(600, np.random.default_rng(0)).populations
    generation = Generation.of(populations)
    generation = generation.scored(np.random.default_rng(1).random(len(generation)))
    assert len(generation.populations) > 60
    bounded = bound_families(generation, 24, np.random.default_rng(2))
    assert 6 <= len(bounded.populations) <= 24
    assert bounded.scores.max() == generation.scores.max()
    leaders = generation.family_numbers[generation.ranking()[:5]]
    kept = {population.family for population in bounded.populations}
    assert {generation.populations[which].family for which in leaders} <= kept


def test_generations_address_their_programs(neighbourhood: Neighbourhood) -> None:
    """Taking, joining and placing agree on which program is which."""
    populations = neighbourhood.space.sample(40, np.random.default_rng(0)).populations
    whole = Generation.of(populations).scored(smooth(populations))
    numbers = np.array([3, 17, 30])
    part = whole.take(numbers)
    for position in range(len(part)):
        population, row = part.place(position)
        assert smooth([population])[row] == part.scores[position]
    both = joined([part, whole])
    assert len(both) == 43
    assert len(both.populations) == len({p.family for p in populations})
    assert np.array_equal(smooth(both.populations), both.scores)
    assert len(unseen(both, NOTHING)) == len(unseen(whole, NOTHING))
    assert len(Generation.of([])) == 0
    parents = choose_parents(whole, 4000, np.random.default_rng(1))
    assert smooth(populations)[parents].mean() > smooth(populations).mean()


def test_parents_are_drawn_by_rank_as_often_as_is_said(neighbourhood: Neighbourhood) -> None:
    drawn = neighbourhood.space.sample(400, np.random.default_rng(0)).populations
    whole = Generation.of(drawn)
    whole = whole.scored(np.random.default_rng(1).permutation(len(whole)).astype(np.float64))
    places = len(whole) - 1 - whole.scores[choose_parents(whole, 20000, np.random.default_rng(2))]
    assert np.mean(places < len(whole) / 100) == pytest.approx(0.215, abs=0.02)
    assert np.mean(places < len(whole) / 2) == pytest.approx(0.794, abs=0.02)


# -- small spaces ----------------------------------------------------------------------------------------


def test_a_tiny_space_is_listed_and_then_exhausted(tmp_path: Path) -> None:
    """All programs are measured once, no more; a second run knows that nothing is left."""
    tiny = task_of(matmul(2, 1, 3))
    policy = SketchPolicy(tiny, TileModel(), {"evolutionary_search_population": 4096})
    assert policy.all_programs is not None
    log = tmp_path / "log.json"
    result = tiny.tune(options(5000, log, num_measures_per_round=500), policy)
    assert result.stop_reason is StopReason.EXHAUSTED
    assert "nothing new was found" in result.message
    states = [inp.state.replay(tiny.compute_dag) for inp, _ in load_records(log)]  # type: ignore[union-attr]
    plans = [plan_key(tiny, state) for state in states]
    assert len(set(plans)) == len(plans) == result.trials
    drawn = policy.space.sample(400, np.random.default_rng(7))
    reached = {plan_key(tiny, population.materialize(row)) for population, row in drawn.in_order()}
    assert reached <= set(plans)
    again = tiny.tune(options(10, log), SketchPolicy(tiny, TileModel()))
    assert again.trials == 0


def test_programs_like_one_that_cannot_be_lowered_are_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measured program without a plan, such as one that could not be instantiated, equals no other."""
    tiny = task_of(matmul(2, 1, 3))

    def proposed(history: History) -> dict[str, State]:
        policy = SketchPolicy(tiny, RandomModel(1), {"evolutionary_search_population": 4096})
        states = policy.propose(0, 5000, history).states
        return {program_key(state): state for state in states}

    everything = proposed(History())
    known = SketchPolicy(tiny, RandomModel(1)).known
    failed = MeasureResult.failed(MeasureErrorNo.INSTANTIATION_ERROR, "no room", 0.1, 1)
    trials = [Trial(key, state, failed) for key, state in everything.items()]
    alike = Counter(row.coarse for trial in trials if (row := known.locate(trial)) is not None)
    bad = next(one for one in trials if (row := known.locate(one)) is not None and alike[row.coarse] > 1)

    def refusing(task: ansor.Task, state: State) -> str:
        if program_key(state) == bad.key:
            raise ScheduleError("no room")
        return plan_key(task, state)

    monkeypatch.setattr("search.known.plan_key", refusing)
    history = History()
    history.add(bad)
    others = {plan_key(tiny, state) for key, state in everything.items() if key != bad.key}
    assert others <= {plan_key(tiny, state) for state in proposed(history).values()}


def test_a_computation_without_loops_has_its_one_program() -> None:
    """Nothing to decide: one program, and then the end."""
    a = te.placeholder((), name="A")
    scalar = task_of([a, te.compute((), lambda: a() + te.const(1.0, "float32"), name="B")])
    result = scalar.tune(options(10), SketchPolicy(scalar, TileModel()))
    assert result.stop_reason is StopReason.EXHAUSTED
    assert result.trials == 1


def test_a_large_space_is_not_listed(neighbourhood: Neighbourhood) -> None:
    assert enumerate_space(neighbourhood, 2048) is None


# -- the policy ------------------------------------------------------------------------------------------


def params(**changes: Any) -> dict[str, Any]:
    return {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 2, **changes}


@pytest.mark.parametrize("tensors", [matmul_relu(24, 32, 48), softmax(8, 36), padded_conv1d(12, 4, 6)])
def test_proposals_are_new_legal_and_differ_in_what_is_compiled(
    tensors: list[te.Tensor], tmp_path: Path
) -> None:
    """No two programs of a run have the same plan, whatever the model thinks of them."""
    one, log = task_of(tensors), tmp_path / "log.json"
    one.tune(options(24, log), SketchPolicy(one, TileModel(), params(polish_after=8)))
    states = [inp.state.replay(one.compute_dag) for inp, _ in load_records(log)]  # type: ignore[union-attr]
    for state in states:
        check_program(state)
    assert len({plan_key(one, state) for state in states}) == len({program_key(s) for s in states}) == 24


def test_only_a_first_round_breeds_more_generations(task: SearchTask) -> None:
    """While the model finds better programs; none if none are asked for."""

    def generations(history: History, **changes: Any) -> int:
        settings = params(evolutionary_search_num_iters=1, **changes)
        policy = SketchPolicy(task, LovesOneTile(), settings, seed=3)
        policy.propose(0, 8, history)
        assert policy.last_outcome is not None
        return len(policy.last_outcome.families) - 1

    assert 2 <= generations(History()) <= 5
    assert generations(History(), first_round_more_iters=0) == 1
    one = SketchPolicy(task, RandomModel()).propose(0, 1, History()).states[0]
    measured = History()
    measured.add(Trial(program_key(one), one, result_of(1e-3)))
    assert generations(measured) == 1


def test_a_search_with_a_model_beats_random_search(task: SearchTask) -> None:
    """On a smooth landscape, by the median of five seeds."""

    def best(policy: SketchPolicy) -> float:
        result = task.tune(options(48), policy)
        assert result.best_cost is not None
        return float(result.best_cost)

    evolved = [best(SketchPolicy(task, TileModel(), params(first_rounds_size=8), seed=s)) for s in range(5)]
    random = [best(SketchPolicy(task, RandomModel(s), seed=s)) for s in range(5)]
    assert np.median(evolved) < np.median(random)


def test_random_search_remains(task: SearchTask, tmp_path: Path) -> None:
    """No generations: sampling and the model's choice; a model that knows nothing: sampling alone."""
    model = TileModel()
    task.tune(options(8), SketchPolicy(task, model, params(evolutionary_search_num_iters=0)))
    assert 0 < model.asked <= 64
    blind = SketchPolicy(task, RandomModel(), seed=1)
    proposal = blind.propose(0, 8, History())
    assert len(proposal.states) == 8
    assert blind.last_outcome is None
    assert isinstance(SketchPolicy(task).model, DraftedModel)


def test_the_first_rounds_are_small(task: SearchTask) -> None:
    """16 programs in each of four rounds, then 32, then all."""
    policy = SketchPolicy(task, RandomModel())
    sizes = [len(policy.propose(index, 100, History()).states) for index in (0, 3, 4, 5, 6)]
    assert sizes == [16, 16, 32, 64, 100]
    whole = SketchPolicy(task, RandomModel(), params={"first_rounds_size": 0})
    assert len(whole.propose(0, 40, History()).states) == 40


class LovesOneTile(RandomModel):
    """Scores programs by how near their innermost lengths are to 4."""

    informative = True

    def predict(self, task: ansor.Task, candidates: Any) -> Any:
        return smooth(candidates.populations)


def test_the_first_round_is_spread_over_tiles_in_registers(task: SearchTask) -> None:
    """Two programs each of eight tiles, whatever the model says; later rounds are as it says."""

    def most_alike(history: History, **changes: Any) -> int:
        policy = SketchPolicy(task, LovesOneTile(), params(eps_greedy=0, **changes), seed=3)
        states = policy.propose(0, 17, history).states
        assert len(states) == 17
        return max(Counter(map(register_tile, states[:16])).values())

    one = SketchPolicy(task, RandomModel()).propose(0, 1, History()).states[0]
    measured = History()
    measured.add(Trial(program_key(one), one, result_of(1e-3)))
    changes = {"first_rounds_size": 0}
    assert most_alike(History(), **changes) == 2
    assert most_alike(measured, **changes) > 2
    assert most_alike(History(), cpu_first_round_tiles=0, **changes) > 2


def register_tile(state: State) -> tuple[int, ...]:
    """The innermost lengths of a program's splits into most levels."""
    splits = [step.lengths for step in state.steps if isinstance(step, SplitStep)]
    most = max(map(len, splits))
    return tuple(lengths[-1] for lengths in splits if len(lengths) == most)


def test_without_tiles_in_registers_the_first_round_is_as_the_model_says() -> None:
    """Programs without such tiles are not alike for that: the same ones, and the random ones among them."""
    rows = task_of(softmax(64, 96))
    assert not any(family.register_tiles for family in families_of(rows))
    for share in (0, 0.5):
        spread, plain = (
            SketchPolicy(
                rows, LovesOneTile(), params(eps_greedy=share, cpu_first_round_tiles=tiles), seed=3
            ).propose(0, 16, History())
            for tiles in (8, 0)
        )
        assert list(map(program_key, spread.states)) == list(map(program_key, plain.states))


def families_of(task: SearchTask) -> list[Family]:
    sample = ProgramSpace.of(task, {}).sample(64, np.random.default_rng(0))
    return [population.family for population in sample.populations]


def test_spread_rankings_have_few_of_a_tile(neighbourhood: Neighbourhood) -> None:
    """The best ones first of each tile; the others only where there would be too few."""
    generation = Generation.of(neighbourhood.space.sample(256, np.random.default_rng(0)).populations)
    generation = generation.scored(smooth(generation.populations))
    best = generation.distinct_ranking()
    tiles = generation.register_tiles
    assert len(set(tiles.tolist())) > 8
    assert generation.spread_ranking(32, None).tolist() == best[:32].tolist()
    spread = generation.spread_ranking(32, 2)
    assert max(Counter(tiles[spread].tolist()).values()) <= 2
    for number in spread:
        better = [other for other in best[: best.tolist().index(number)] if tiles[other] == tiles[number]]
        assert len(better) < 2
        assert set(better) <= set(spread.tolist())
    assert np.all(np.diff(generation.scores[spread]) <= 0)
    filled = generation.spread_ranking(len(best) - 1, 1)
    left_out = (set(best.tolist()) - set(filled.tolist())).pop()
    crowded = [one for at, one in enumerate(best) if tiles[one] in tiles[best[:at]]]
    assert left_out == crowded[-1]


def test_the_best_of_an_evolution_are_spread_over_tiles(neighbourhood: Neighbourhood) -> None:
    """So that the picker has something to choose from."""

    def most_alike(**changes: Any) -> int:
        best = breed(neighbourhood, **changes).best
        assert len(best) == 60
        return max(Counter(best.register_tiles.tolist()).values())

    assert most_alike(per_tile=7) <= 7 < most_alike()


def test_places_among_equals() -> None:
    keys = np.array([7, 3, 7, 7, 3, 9], dtype=np.uint64)
    assert place_among_equals(keys).tolist() == [0, 0, 1, 2, 1, 0]
    assert place_among_equals(keys[:0]).tolist() == []


def test_a_model_that_looks_at_states_will_do(task: SearchTask) -> None:
    """A user's model sees a sequence of states."""

    class Shortest(CostModel):
        def update(self, inputs: Any, results: Any) -> None:
            pass

        def predict(self, task: Any, candidates: Sequence[State]) -> Any:
            return np.array([-float(len(str(state))) for state in candidates])

    policy = SketchPolicy(task, Shortest(), params(eps_greedy=0.0))
    states = policy.propose(0, 8, History()).states
    random = SketchPolicy(task, RandomModel()).propose(0, 8, History()).states
    assert np.mean([len(str(s)) for s in states]) < np.mean([len(str(s)) for s in random])


def test_some_programs_are_picked_at_random(task: SearchTask) -> None:
    """With epsilon 1 all places but the first go to the first generation."""
    greedy = SketchPolicy(task, TileModel(), params(eps_greedy=0.0)).propose(0, 8, History()).states
    half = SketchPolicy(task, TileModel(), params(eps_greedy=0.5)).propose(0, 8, History()).states
    assert greedy[:4] == half[:4]
    assert greedy[4:] != half[4:]
    assert len(half) == 8


def test_a_policy_says_what_its_mutations_did(task: SearchTask) -> None:
    policy = SketchPolicy(task, TileModel(), params(), mutations=[CPU_MUTATIONS[0]])
    policy.propose(0, 8, History())
    assert policy.last_outcome is not None
    assert policy.last_outcome.scored > 64
    assert set(policy.last_outcome.invalid) <= {"tile size", "crossover", "duplicate"}


# -- polish ----------------------------------------------------------------------------------------------


def history_of(states: Sequence[State], cost: Any) -> History:
    history = History()
    for state in states:
        history.add(Trial(program_key(state), state, cost(state)))
    return history


def seconds(state: State, known: Known) -> float:
    """Run time of a program in the smooth landscape."""
    row = known.locate(Trial(program_key(state), state, result_of(1.0)))
    assert row is not None
    return float(10.0 - smooth([row.population])[0])


def test_polish_descends_to_a_local_optimum(task: SearchTask, neighbourhood: Neighbourhood) -> None:
    """Fed its own results, polish ends where no neighbour is faster, and then turns to other programs."""
    known, context = Known(task, neighbourhood), neighbourhood.space.context
    start = neighbourhood.space.sample(1, np.random.default_rng(3)).populations[0].materialize(0)
    history = History()

    def measure(state: State) -> None:
        history.add(Trial(program_key(state), state, result_of(seconds(state, known))))

    measure(start)
    before = history.best_seconds
    for _ in range(60):
        picker = Picker(known, history, alike=100)
        for ring in polish(known, history, neighbourhood, smooth, 8, known.fine(history)):
            picker.take(ring, ring.ranking(), 8)
        if not picker.states:
            break
        for state in picker.states:
            measure(state)
    assert before is not None
    assert history.best_seconds is not None
    assert history.best_seconds < before - 3
    best = known.best(history, 1)[0]
    near = [neighbours(best.population, context), *relocated(best.population, neighbourhood)]
    ring = [repaired(population, context) for population in near]
    assert smooth(ring).max() <= smooth([best.population])[0] + 1e-9


def test_polish_has_its_share_of_a_round_and_can_be_off(task: SearchTask, tmp_path: Path) -> None:
    """Neighbours of the best appear once enough was measured, and never with a ratio of 0."""
    polished = SketchPolicy(task, TileModel(), params(polish_after=8, polish_ratio=0.5), seed=2)
    plain = SketchPolicy(task, TileModel(), params(polish_after=8, polish_ratio=0.0), seed=2)
    logs = [tmp_path / "polished.json", tmp_path / "plain.json"]
    for policy, log in zip((polished, plain), logs, strict=True):
        task.tune(options(24, log), policy)
    first, second = (logged(log, task) for log in logs)
    assert first[:8] == second[:8]
    assert first[8:16] != second[8:16]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_rounds_too_small_for_a_whole_share_have_it_now_and_then(
    task: SearchTask, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of one program is one program in a quarter of the rounds."""
    settings = params(evolutionary_search_num_iters=0, evolutionary_search_population=16, eps_greedy=0.25)
    policy, polished = SketchPolicy(task, TileModel(), settings), []

    def asked(known: Any, history: Any, context: Any, score: Any, count: int, measured: Any) -> list[Any]:
        polished.append(count)
        return []

    monkeypatch.setattr("search.sketch_policy.polish", asked)
    history = History()
    for state in SketchPolicy(task, RandomModel(1)).propose(0, 32, History()).states[:24]:
        result = simulated_cost(MeasureInput(task, state))
        history.add(Trial(program_key(state), state, result))
    policy.params["polish_after"] = len(history)
    for number in range(40):
        assert len(policy.propose(number, size, history).states) == size
    assert set(polished) == {1}
    assert 10 * size * 0.5 < len(polished) < 10 * size * 1.5


def test_a_round_of_one_is_a_random_pick_now_and_then(task: SearchTask) -> None:
    settings = params(evolutionary_search_num_iters=0, evolutionary_search_population=64)
    picks: dict[float, list[str]] = {}
    for eps in (0.0, 0.5, 1.0):
        policy = SketchPolicy(task, TileModel(), {**settings, "eps_greedy": eps})
        rounds = [policy.propose(number, 1, History()).states for number in range(20)]
        picks[eps] = [program_key(state) for states in rounds for state in states]
    best = sum(one == other for one, other in zip(picks[0.0], picks[0.5], strict=True))
    drawn = sum(one == other for one, other in zip(picks[0.0], picks[1.0], strict=True))
    assert drawn <= 3 < best < 17


def test_failures_are_not_polished(task: SearchTask, neighbourhood: Neighbourhood) -> None:
    known, rng = Known(task, neighbourhood), np.random.default_rng(0)
    population = neighbourhood.space.sample(3, rng).populations[0]
    failed = simulated_cost(MeasureInput(task, population.materialize(0)), failing=1.0)
    history = history_of([population.materialize(0)], lambda state: failed)
    assert polish(known, history, neighbourhood, smooth, 8, NOTHING) == []


# -- rules, stopping -------------------------------------------------------------------------------------


def test_a_custom_sketch_rule_as_in_the_reference(tmp_path: Path) -> None:
    """A rule that applies to the last stage and skips the rest yields its two states, and nothing else."""
    seen: list[object] = []

    def meets(policy: SketchPolicy, state: State, stage_id: int) -> int:
        seen.append(policy)
        return PreloadCustomSketchRule.APPLY_AND_SKIP_REST

    def apply(policy: SketchPolicy, state: State, stage_id: int) -> list[list[Any]]:
        assert policy.search_task.compute_dag is state.dag
        split = state.split(2, 0, [8, 2])
        return [[state, -1], [split, -1]]

    one = task_of(matmul(512, 512, 512))
    rule = PreloadCustomSketchRule(meets, apply)
    policy = SketchPolicy(one, RandomModel(), init_search_callbacks=[rule])
    sketches = policy.generate_sketches()
    assert [loop.extent for loop in sketches[0].state.stages[2].iterators] == [512, 512, 512]
    assert [loop.extent for loop in sketches[1].state.stages[2].iterators] == [32, 8, 2, 512, 512]
    assert len(sketches) == 2
    assert all(who is policy for who in seen)
    assert sketches[1].rules == ("CustomSketchRule",)
    result = one.tune(options(6, tmp_path / "log.json"), policy)
    assert result.trials == 6


def test_a_custom_rule_that_passes_leaves_the_others(task: SearchTask) -> None:
    def passes(policy: Any, state: State, stage_id: int) -> int:
        return PreloadCustomSketchRule.PASS

    rule = PreloadCustomSketchRule(passes, lambda *arguments: [], "Passing")
    mine = SketchPolicy(task, init_search_callbacks=[rule]).generate_sketches()
    assert list(map(str, mine)) == list(map(str, SketchPolicy(task).generate_sketches()))


def test_wrong_custom_rules_are_explained(task: SearchTask) -> None:
    with pytest.raises(DefinitionError, match="must be a function of policy, state"):
        PreloadCustomSketchRule(None, lambda *arguments: [])  # type: ignore[arg-type]

    def says(meets: Any, apply: Any) -> str:
        rule = PreloadCustomSketchRule(meets, apply, "Mine")
        with pytest.raises(DefinitionError) as caught:
            SketchPolicy(task, init_search_callbacks=[rule]).propose(0, 4, History())
        return str(caught.value)

    assert "sketch rule Mine was asked for its verdict" in says(lambda *a: "yes", lambda *a: [])
    for wrong in ([42], [[]], [(None, 1)], [("C", 1)]):
        assert "among its results; return a list of pairs" in says(lambda *a: 2, lambda *a, w=wrong: w)
    assert "Mine was applied to stage 'D' and returned None; return" in says(lambda *a: 2, lambda *a: None)
    assert "to visit stage 9 next of a state with" in says(lambda *a: 2, lambda p, s, i: [(s, 9)])


def test_a_run_without_improvement_stops_by_itself(task: SearchTask) -> None:
    """By default, and saying so; a run in pieces has the patience of a whole one."""
    flat = SimulatedRunner(lambda inp: 1.0)
    result = task.tune(
        options(4000, runner=flat, early_stopping=110, num_measures_per_round=64),
        SketchPolicy(task, RandomModel()),
    )
    assert result.stop_reason is StopReason.EARLY_STOPPING
    assert "brought no improvement (early_stopping=110)" in result.message
    assert ansor.TuningOptions().early_stopping == "auto"
    assert patience("auto", 64) == 100
    assert patience("auto", 1500) == 500
    assert patience(7, 1500) == 7
    assert patience(None, 1500) is None
    assert ansor.TuningOptions(num_measure_trials=600).patience(known=900) == 500


@pytest.mark.parametrize("seed", [3, 7, 162, 317, 450, 1001, 1002, 1003])
def test_random_computations_are_tuned(seed: int) -> None:
    """Whatever is computed: no exception, and what is proposed computes it."""
    graph = random_graph(Chooser.from_seed(seed))
    one = task_of(list(graph.tensors))
    measured: list[State] = []

    class Watch:
        def callback(self, policy: object, inputs: Sequence[MeasureInput], results: object) -> None:
            measured.extend(inp.state for inp in inputs)  # type: ignore[misc]

    small = params(first_rounds_size=4, polish_after=4)
    result = one.tune(options(10, measure_callbacks=[Watch()]), SketchPolicy(one, params=small, seed=seed))
    assert len(measured) == result.trials > 0
    for state in measured[::3]:
        Case.of(state).check_interpreted(lowered(state, simple_mode=False))
