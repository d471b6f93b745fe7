"""Several algorithms for one operation, tuned as one task: one log, one best program, one resumed run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError
from ansor.schedule.identity import program_key
from ansor.workloads import alternatives_of
from measure import MeasureInput, MeasureResult
from measure.correctness.reference import ReferenceStore
from measure.simulate import SimulatedRunner
from search.alternatives import AlternativesPolicy, cannot_win, divided, in_turn
from search.history import History, Trial
from search.proposals import checked
from search.starts import first_programs
from tests.search_fakes import TileModel, options, simulated_cost

pytestmark = pytest.mark.usefixtures("small_searches")

PARAMS: dict[str, Any] = {
    "evolutionary_search_population": 24,
    "evolutionary_search_num_iters": 1,
    "first_rounds_size": 4,
    "polish_after": 8,
}
TARGET = "llvm -num-cores=2"
ARGS = (1, 8, 8, 8, 8, 3, 1, 1)
N = 16
TRIALS = 40


@ansor.register_workload("tests.twice")
def twice(n: int) -> list[te.Tensor]:
    x = te.placeholder((n, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    return [x, te.compute((n, n), lambda i, j: te.sum(x[i, k] * x[k, j], axis=k), name="Square")]


@ansor.register_workload("tests.twice_by_copy")
def twice_by_copy(n: int, factor: float = 1.0) -> list[te.Tensor]:
    """The same from a transposed copy; wrong for another factor than 1."""
    x = te.placeholder((n, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    turned = te.compute((n, n), lambda j, k: x[k, j] * factor, name="Turned")
    return [x, te.compute((n, n), lambda i, j: te.sum(x[i, k] * turned[j, k], axis=k), name="Product")]


@ansor.register_workload("tests.twice_by_scaling")
def twice_by_scaling(n: int) -> list[te.Tensor]:
    x = te.placeholder((n, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    half = te.compute((n, n), lambda i, k: x[i, k] * 0.5, name="Half")
    return [x, te.compute((n, n), lambda i, j: te.sum(half[i, k] * x[k, j] * 2.0, axis=k), name="Doubled")]


@ansor.register_workload("tests.larger")
def larger(n: int) -> list[te.Tensor]:
    x = te.placeholder((n + 1, n), name="X")
    return [x, te.compute((n, n), lambda i, j: x[i, j], name="Copy")]


def task_of(*calls: Any, **changes: Any) -> ansor.SearchTask:
    chosen = calls or (("tests.twice_by_copy", (N,)),)
    return ansor.SearchTask("tests.twice", (N,), target=TARGET, alternatives=chosen, **changes)


def policy_of(task: ansor.SearchTask, seed: int = 3) -> AlternativesPolicy:
    return AlternativesPolicy(task, program_cost_model=TileModel(), params=PARAMS, seed=seed)


def keys_of(log: Path) -> list[str]:
    return [inp.task.workload_key for inp, _ in ansor.load_records(str(log))]


def alternative_is_faster(inp: MeasureInput) -> MeasureResult:
    """The usual landscape, in which one algorithm is eight times faster."""
    result = simulated_cost(inp)
    if "copy" not in inp.task.workload_key:
        return result
    return MeasureResult((result.mean_cost / 8,), all_cost=0.1, timestamp=1700000000)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of an uninterrupted run."""
    log = tmp_path_factory.mktemp("whole") / "log.json"
    task = task_of()
    result = task.tune(options(TRIALS, log, runner=SimulatedRunner(alternative_is_faster)), policy_of(task))
    assert result.trials == TRIALS
    return log


def test_records_carry_the_key_of_their_algorithm(whole: Path) -> None:
    """Both get a part of the first round; the faster gets more of the later ones."""
    counts = Counter(keys_of(whole)[:8])
    assert set(counts.values()) == {4}
    late = Counter(keys_of(whole)[-16:])
    assert late['["tests.twice_by_copy", 16]'] > late['["tests.twice", 16]']


def test_the_best_is_that_of_all_algorithms(whole: Path) -> None:
    """`best_record`, `apply_best`, `print_best` and a lookup agree, and speak of the task's own FLOPs."""
    task = task_of()
    found = task.best_record(whole)
    assert found.input.task.workload_key == '["tests.twice_by_copy", 16]'
    schedule, tensors = task.apply_best(whole)
    assert [tensor.name for tensor in tensors] == ["X", "Product"]
    x = np.random.default_rng(0).uniform(-1, 1, (N, N)).astype(np.float32)
    np.testing.assert_allclose(ansor.build(schedule, tensors)(x), x @ x, rtol=1e-4, atol=1e-5)
    assert "Turned" in task.print_best(whole)
    with ansor.ApplyHistoryBest(str(whole)) as history:
        looked_up, _ = history.apply(task)
    assert str(looked_up.state) == str(schedule.state)
    alone = ansor.SearchTask("tests.twice", (N,), target=TARGET)
    assert alone.best_record(whole).input.task.workload_key == '["tests.twice", 16]'


THREE = (("tests.twice_by_copy", (N,)), ("tests.twice_by_scaling", (N,)))


@pytest.fixture(scope="module")
def whole_of_three(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run of three algorithms logs that has all its budget at once."""
    log, task = tmp_path_factory.mktemp("three") / "log.json", task_of(*THREE)
    task.tune(options(24, log, num_measures_per_round=12), policy_of(task))
    return log.read_text()


@pytest.mark.parametrize("budget", [4, 10, 20])
def test_any_budget_is_divided_evenly_at_first(whole_of_three: str, tmp_path: Path, budget: int) -> None:
    """Also one that ends within the first round, or within the second; it goes on where it ended."""
    log, task = tmp_path / "log.json", task_of(*THREE)
    task.tune(options(budget, log, num_measures_per_round=12), policy_of(task))
    counts = Counter(keys_of(log))
    assert set(counts) == {one.workload_key for one in task.algorithms}
    assert set(counts.values()) <= {budget // 3, budget // 3 + 1}
    task.tune(options(24 - budget, log, num_measures_per_round=12), policy_of(task))
    assert log.read_text() == whole_of_three


def test_algorithms_take_turns_by_what_each_was_given() -> None:
    """Every beginning of a round is divided as the round; what is left to others comes behind."""
    start = ansor.State.initial(task_of().compute_dag)
    lengths = ((1, 2, 4, 8), (3, 5), (7,))
    a, b, c = ([start.split(1, 0, [length]) for length in mine] for mine in lengths)
    assert in_turn([a, b, ()], [4, 2, 2]) == [a[0], b[0], a[1], a[2], b[1], a[3]]
    assert in_turn([a, b, c], [2, 2, 0]) == [a[0], b[0], a[1], b[1], a[2], a[3], c[0]]


@pytest.mark.parametrize("cut", [0, 3, 8, 13, 30, TRIALS - 1])
def test_a_run_goes_on_from_its_own_log(whole: Path, tmp_path: Path, cut: int) -> None:
    """Equal results give equal candidates, and a run that was cut completes its log."""
    part = tmp_path / "part.json"
    part.write_text("".join(whole.read_text().splitlines(keepends=True)[:cut]))
    task = task_of()
    runner = SimulatedRunner(alternative_is_faster)
    result = task.tune(options(TRIALS - cut, part, runner=runner), policy_of(task))
    assert result.known_trials == TRIALS
    assert part.read_text() == whole.read_text()
    assert result.best_state is not None
    assert result.best_state.dag is task.alternatives[0].dag


@pytest.mark.parametrize("cut", [3, 30])
def test_a_policy_of_another_object_of_the_task_goes_on_too(whole: Path, tmp_path: Path, cut: int) -> None:
    """What a log holds is replayed on the graphs that the policy knows."""
    part = tmp_path / "part.json"
    part.write_text("".join(whole.read_text().splitlines(keepends=True)[:cut]))
    runner = SimulatedRunner(alternative_is_faster)
    task_of().tune(options(TRIALS - cut, part, runner=runner), policy_of(task_of()))
    assert part.read_text() == whole.read_text()


def test_another_policy_searches_the_computation_itself(whole: Path, tmp_path: Path) -> None:
    """A `SketchPolicy` neither proposes nor is told of programs of other algorithms."""
    log = tmp_path / "log.json"
    log.write_text(whole.read_text())
    task = task_of()
    before = len(keys_of(log))
    policy = ansor.SketchPolicy(task, TileModel(), PARAMS, seed=9)
    result = task.tune(options(8, log, runner=SimulatedRunner(simulated_cost)), policy)
    assert result.known_trials == keys_of(log).count('["tests.twice", 16]')
    assert set(keys_of(log)[before:]) == {'["tests.twice", 16]'}


@pytest.mark.parametrize("given", [False, True])
def test_so_it_does_among_other_tasks(whole: Path, tmp_path: Path, given: bool) -> None:
    """A scheduler tells a `SketchPolicy` of other algorithms neither from a log nor from what it is given."""
    log = tmp_path / "log.json"
    if not given:
        log.write_text(whole.read_text())
    before = 0 if given else len(keys_of(whole))
    task = task_of()
    callbacks = [ansor.PreloadMeasuredStates(whole)] if given else []
    policy = ansor.SketchPolicy(task, TileModel(), PARAMS, seed=9, init_search_callbacks=callbacks)
    scheduler = ansor.TaskScheduler([task], callbacks=[])
    result = scheduler.tune(options(8, log, runner=SimulatedRunner(simulated_cost)), [policy])
    mine = keys_of(whole).count('["tests.twice", 16]')
    assert result.results[0].known_trials == mine + 8
    assert keys_of(log)[before:] == ['["tests.twice", 16]'] * 8


def test_several_tasks_may_have_alternatives(tmp_path: Path) -> None:
    """A scheduler makes policies that search all algorithms of a task."""
    log = tmp_path / "log.json"
    tasks = [task_of(), ansor.SearchTask("tests.twice", (8,), target=TARGET)]
    scheduler = ansor.TaskScheduler(tasks, callbacks=[])
    scheduler.tune(options(32, log, verbose=0), "sketch.random")
    assert set(keys_of(log)) == {'["tests.twice", 16]', '["tests.twice_by_copy", 16]', '["tests.twice", 8]'}


def test_what_policies_of_algorithms_are_given_counts(whole: Path) -> None:
    """Each is told what its own callbacks know of its own algorithm; nothing of that is measured again."""
    task = task_of()
    policies = [
        ansor.SketchPolicy(
            one, TileModel(), PARAMS, init_search_callbacks=[ansor.PreloadMeasuredStates(whole)]
        )
        for one in task.algorithms
    ]
    for given, known in ((policies, TRIALS), ([ansor.SketchPolicy(task), policies[1]], None)):
        policy = AlternativesPolicy(task, given)
        result = task.tune(options(4, runner=SimulatedRunner(alternative_is_faster)), policy)
        assert result.known_trials == 4 + (known or keys_of(whole).count('["tests.twice_by_copy", 16]'))


@pytest.mark.parametrize("of_one", [False, True])
def test_a_warm_start_offers_programs_of_every_algorithm(tmp_path: Path, of_one: bool) -> None:
    log, mine = tmp_path / "other.json", tmp_path / "mine.json"
    other = ansor.SearchTask("tests.twice", (8,), target=TARGET, alternatives=[("tests.twice_by_copy", (8,))])
    for one in other.algorithms:
        state = ansor.State.initial(one.compute_dag).split(len(one.compute_dag.ops) - 1, 0, [4])
        ansor.save_records(log, [MeasureInput(one, state)], [MeasureResult((1e-3,), timestamp=1)])  # type: ignore[arg-type]
    task, start = task_of(), [ansor.WarmStart(log)]
    policy = AlternativesPolicy(task, params=PARAMS, init_search_callbacks=None if of_one else start)
    if of_one:
        alone = ansor.SketchPolicy(task.alternatives[0], params=PARAMS, init_search_callbacks=start)
        policy = AlternativesPolicy(task, [policy.policies[0], alone])
    offered = first_programs(policy)
    owners = [task.algorithm_of(state.dag).workload_key for state in offered]
    if of_one:
        assert set(owners) == {'["tests.twice_by_copy", 16]'}
    else:
        assert owners[:2] == ['["tests.twice", 16]', '["tests.twice_by_copy", 16]']
    task.tune(options(2, mine, runner=SimulatedRunner(alternative_is_faster)), policy)
    assert keys_of(mine)[: len(owners)] == owners[:2]


def test_rules_of_callbacks_count_for_every_algorithm() -> None:
    rule = ansor.PreloadCustomSketchRule(lambda *_: 2, lambda policy, state, stage: [(state, -1)], "Plain")
    policy = AlternativesPolicy(task_of(), init_search_callbacks=[rule])
    assert [len(sketch.steps) for sketch in policy.generate_sketches()] == [0, 0]
    with pytest.raises(DefinitionError, match=r"'Plain' .* give it to the policies"):
        AlternativesPolicy(policy.task, policy.policies, init_search_callbacks=[rule])


class Listed(ansor.SearchPolicy):
    """Proposes from a list of programs; a note says that there are no more."""

    def __init__(self, task: ansor.Task, programs: int, note: str) -> None:
        start = ansor.State.initial(task.compute_dag)
        self._task, self._note = task, note
        self._states = [start.split(1, 0, [length]) for length in range(1, programs + 1)]
        self.asked: list[int] = []

    @property
    def task(self) -> ansor.Task:
        return self._task

    def propose(self, round_index: int, count: int, history: History) -> ansor.Proposal:
        self.asked.append(count)
        return ansor.Proposal(tuple(self._states[:count]), self._note)


@pytest.mark.parametrize(("note", "asked", "proposed"), [("that is all", 7, 8), ("", 4, 5)])
def test_who_has_nothing_new_leaves_its_part(note: str, asked: int, proposed: int) -> None:
    """Who proposes little on purpose, and has nothing to say about it, leaves none."""
    task = task_of()
    few, many = Listed(task, 1, note), Listed(task.alternatives[0], 9, "")
    proposal = AlternativesPolicy(task, [few, many]).propose(0, 8, History())
    assert (few.asked, many.asked) == ([4], [asked])
    assert len(proposal.states) == proposed


def save_unscheduled(log: Path, task: ansor.Task, seconds: float) -> None:
    state = ansor.State.initial(task.compute_dag)
    result = MeasureResult((seconds,), timestamp=1)  # type: ignore[arg-type]
    ansor.save_records(log, [MeasureInput(task, state)], [result])


def test_another_size_of_an_algorithm_counts_with_the_work_that_it_leaves(tmp_path: Path) -> None:
    """A quarter of the size in 1.5 ms is no better than half of it in 2 ms; in 0.5 ms it is."""
    task = ansor.SearchTask("tests.twice", (4,), target=TARGET, alternatives=[("tests.twice_by_copy", (4,))])
    for seconds, best in ((1.5e-3, "Square"), (0.5e-3, "Product")):
        log = tmp_path / f"{best}.json"
        save_unscheduled(log, ansor.SearchTask("tests.twice", (2,), target=TARGET), 2e-3)
        save_unscheduled(log, ansor.SearchTask("tests.twice_by_copy", (1,), target=TARGET), seconds)
        _, tensors = task.apply_best(log, include_compatible=True)
        assert tensors[-1].name == best
        hit = ansor.ApplyHistoryBest(log, include_compatible=True).find(task)
        assert hit is not None
        assert hit.state.dag.outputs[0].name == best


@ansor.register_workload("tests.panel")
def panel(n: int, copied: int = 0) -> list[te.Tensor]:
    x, w = te.placeholder((n, n), name="X"), te.placeholder((n, n), name="W")
    k = te.reduce_axis((0, n), name="k")
    rows = te.compute((n, n), lambda i, k: x[i, k], name="Copied") if copied else x
    return [
        x,
        w,
        te.compute(
            (n, n),
            lambda i, j: te.sum(rows[i, k] * w[k, j], axis=k),
            name="Panel",
            attrs={"layout_free_placeholders": [w]},
        ),
    ]


def test_an_algorithm_under_the_layout_option_comes_before_a_faster_one_under_another(tmp_path: Path) -> None:
    """Of all algorithms as of one."""
    log = tmp_path / "log.json"
    task = ansor.SearchTask(
        "tests.panel", (N,), target=TARGET, layout_rewrite_option=1, alternatives=[("tests.panel", (N, 1))]
    )
    save_unscheduled(log, ansor.SearchTask("tests.panel", (N,), target=TARGET), 1e-3)
    save_unscheduled(log, task.alternatives[0], 2e-3)
    assert task.best_record(log).result.mean_cost == 2e-3
    hit = ansor.ApplyHistoryBest(log).find(task)
    assert hit is not None
    assert (hit.seconds, hit.differs) == (2e-3, False)


def history_of(*seconds: float | None) -> History:
    state = ansor.State.initial(ansor.ComputeDAG(twice(4)))
    history = History()
    for number, cost in enumerate(seconds):
        failed = MeasureResult.failed(ansor.MeasureErrorNo.RUNTIME_DEVICE, "", 0.1, 1)
        result = failed if cost is None else MeasureResult((cost,))  # type: ignore[arg-type]
        history.add(Trial(str(number), state, result))
    return history


def test_rounds_are_divided_by_speed() -> None:
    """Evenly at first; then the faster gets more, all trials are given, who cannot win gets none."""
    fast, slow = history_of(1.0), history_of(2.0)
    assert divided(9, [fast, slow, History()], even=True) == [3, 3, 3]
    assert divided(9, [fast, slow], even=False) == [8, 1]
    assert sum(divided(7, [fast, slow, History()], even=False)) == 7
    behind = history_of(*[4.0] * 40)
    assert divided(10, [fast, behind], even=True) == [10, 0]
    assert divided(4, [history_of(*[None] * 40)] * 2, even=False) == [2, 2]


def test_who_still_gains_is_not_given_up() -> None:
    """Far behind after few trials, or still improving much: go on. Behind and stuck, or all failed: stop."""
    assert not cannot_win(history_of(9.0), 1.0)
    assert cannot_win(history_of(*[9.0] * 32), 1.0)
    assert not cannot_win(history_of(*[9.0] * 16, *[3.0] * 16), 1.0)
    assert not cannot_win(history_of(*[1.2] * 64), 1.0)
    assert cannot_win(history_of(*[None] * 32), 1.0)


def test_what_is_no_alternative_is_refused() -> None:
    """Another form, the same algorithm twice, and what is no call at all."""
    with pytest.raises(DefinitionError, match=r"no alternative.*float32\[17, 16\].*not.*float32\[16, 16\]"):
        task_of(("tests.larger", (N,)))
    with pytest.raises(DefinitionError, match="occurs twice"):
        task_of(("tests.twice", (N,)))
    with pytest.raises(DefinitionError, match="is the same algorithm as"):
        task_of(("tests.twice_by_copy", (N,)), ("tests.twice_by_copy", (N, 1.0)))
    with pytest.raises(DefinitionError, match="must be a list of workloads"):
        task_of("tests.twice_by_copy")
    with pytest.raises(DefinitionError, match="one for each"):
        AlternativesPolicy(task_of(), [])
    with pytest.raises(DefinitionError, match="made with these very objects"):
        AlternativesPolicy(task_of(), policy_of(task_of()).policies)


def test_algorithms_are_told_apart_whatever_their_names() -> None:
    """The loops of these look alike; the same number of programs is proposed of each."""
    task = task_of(("tests.twice_by_copy", (N,)), ("tests.twice_by_copy", (N, 2.0)))
    one, other = task.alternatives
    loops = [str(ansor.State.initial(dag)) for dag in (one.compute_dag, other.compute_dag)]
    assert loops[0] == loops[1]
    programs = [
        {program_key(state) for state in ansor.sample_programs(algorithm, 8, np.random.default_rng(0))}
        for algorithm in task.algorithms
    ]
    assert len(set.union(*programs)) == sum(map(len, programs))
    policy = policy_of(task)
    proposed = checked(policy, policy.propose(0, 12, History()), History())
    counts = Counter(task.algorithm_of(state.dag).workload_key for state in proposed.states)
    assert set(counts.values()) == {4}


def test_an_alternative_that_computes_something_else_is_found_out(tmp_path: Path) -> None:
    """Programs of an alternative are compared with what the task itself computes."""
    task = task_of(("tests.twice_by_copy", (N, 1.5)))
    runner = ansor.LocalRunner(number=1, repeat=1, min_repeat_ms=0)
    builder = ansor.LocalBuilder(n_parallel=1)
    states = [ansor.State.initial(one.compute_dag) for one in task.algorithms]
    inputs = [MeasureInput(task.algorithm_of(state.dag), state) for state in states]
    with builder, runner:
        results = runner.run(inputs, builder.build(inputs))
    assert [result.error_no.name for result in results] == ["NO_ERROR", "WRONG_ANSWER"]


def test_winograd_is_tuned_as_an_alternative(tmp_path: Path) -> None:
    """Prepared weights: measured, checked against the direct form, and brought into form by the caller."""
    calls = alternatives_of("ansor.conv2d", ARGS, constant=True)
    task = ansor.SearchTask("ansor.conv2d", ARGS, layout_rewrite_option=2, alternatives=calls)
    log = tmp_path / "log.json"
    runner = ansor.LocalRunner(number=1, repeat=1, min_repeat_ms=0)
    policy = AlternativesPolicy(task, program_cost_model=ansor.RandomModel(), params=PARAMS)
    result = task.tune(
        options(9, log, num_measures_per_round=9, builder=ansor.LocalBuilder(n_parallel=1), runner=runner),
        policy,
    )
    assert result.errors == {}
    assert len(set(keys_of(log))) == 3
    only = tmp_path / "only.json"
    lines = log.read_text().splitlines(keepends=True)
    only.write_text("".join(line for line in lines if "winograd" in line))
    schedule, tensors = task.apply_best(only)
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((1, 8, 8, 8), (3, 3, 8, 8)))
    arrays = [ansor.transform_layout(array, tensor) for array, tensor in zip((x, w), tensors, strict=False)]
    direct = ansor.build(ansor.Schedule(ansor.State.initial(task.compute_dag)), task.compute_dag.tensors)
    np.testing.assert_allclose(ansor.build(schedule, tensors)(*arrays), direct(x, w), rtol=1e-3, atol=1e-3)
    with pytest.raises(DefinitionError, match="no usable record"):
        task.apply_best(only, layout_rewrite_option=0)
    with pytest.raises(DefinitionError, match="layout_rewrite_option=2"):
        ansor.SearchTask("ansor.conv2d", ARGS, alternatives=calls)


def test_what_is_prepared_is_a_function_of_one_input() -> None:
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    both = te.compute((4,), lambda i: a[i] + b[i], name="Both")
    with pytest.raises(DefinitionError, match="exactly one input, found"):
        te.prepared(both)
    with pytest.raises(DefinitionError, match="is an input"):
        te.prepared(a)
    with pytest.raises(DefinitionError, match="must be a tensor"):
        te.prepared("A")  # type: ignore[arg-type]
    half = te.prepared(te.compute((4,), lambda i: a[i] * 0.5, name="Half"))
    np.testing.assert_array_equal(ansor.transform_layout(np.ones(4, np.float32), half), np.full(4, 0.5))
    with pytest.raises(ansor.ArgumentError, match="prepared from an array of shape"):
        ansor.transform_layout(np.ones(5, np.float32), half)


def test_prepared_data_is_computed_once() -> None:
    """The reference of an alternative keeps the direct one's data, and its own form of the weights."""
    calls = alternatives_of("ansor.conv2d", ARGS, constant=True)
    task = ansor.SearchTask("ansor.conv2d", ARGS, layout_rewrite_option=2, alternatives=calls)
    store = ReferenceStore()
    direct, other = store.get(task), store.get(task.alternatives[0])
    assert store.get(task.alternatives[0]) is other
    assert other.arguments[0] == direct.arguments[0]
    assert other.arguments[1].shape == (4, 4, 8, 8)
    assert other.arguments[2].path == direct.arguments[2].path
    assert other.arguments[2].tolerance.relative > direct.arguments[2].tolerance.relative
    store.close()


def test_the_model_of_several_algorithms_learns_in_log_order() -> None:
    task = task_of()
    policy = policy_of(task)
    turn = policy.propose(0, 8, History()).states
    assert len({task.algorithm_of(state.dag).workload_key for state in turn[:2]}) == 2
    policy.learn([Trial(program_key(s), s, simulated_cost(MeasureInput(task, s))) for s in turn])
    model = policy.policies[0].model  # type: ignore[attr-defined]
    assert model.seen == [program_key(state) for state in turn]


@pytest.mark.parametrize("alternatives", [(), (("tests.twice_by_copy", (N,)),)])
def test_the_log_of_a_run_makes_the_model_of_the_run(alternatives: Any, tmp_path: Path) -> None:
    task = ansor.SearchTask("tests.twice", (N,), target=TARGET, alternatives=alternatives)
    log = tmp_path / "log.json"
    model, again = (ansor.DraftedModel(learned=ansor.XGBModel(num_warmup_sample=4)) for _ in range(2))
    task.tune(options(24, log), AlternativesPolicy(task, program_cost_model=model, params=PARAMS))
    again.update_from_file(log)
    assert len(model.learned.dataset) == 24
    assert np.array_equal(model.learned.dataset.digests, again.learned.dataset.digests)
    programs = ansor.sample_programs(task, 8, np.random.default_rng(0))
    assert np.array_equal(model.predict(task, programs), again.predict(task, programs))
