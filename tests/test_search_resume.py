"""The two laws of resuming: equal results, equal candidates; and a run goes on from its own log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import ansor
import search.known
from ansor.errors import LogWriteError
from ansor.schedule.state import State
from costmodel import DraftedModel, RandomModel, SklearnModel, XGBModel
from measure import BuildResult, MeasureInput, MeasureResult, load_records, save_records
from measure.records.record import Seconds
from measure.simulate import NullBuilder, SimulatedRunner, result_of
from search import PreloadMeasuredStates, SearchTask, SketchPolicy, StopReason, TaskScheduler, Trial
from tests.search_fakes import TileModel, logged, options, simulated_cost
from tests.sketches_cases import matmul_relu

PARAMS: dict[str, Any] = {
    "evolutionary_search_population": 32,
    "evolutionary_search_num_iters": 2,
    "max_families": 8,
    "first_rounds_size": 4,
    "polish_after": 8,
}
TRIALS = 20
HOST = "llvm -num-cores=2"
FAR = "llvm -mtriple=aarch64-linux-gnu -num-cores=2"


@pytest.fixture(scope="module")
def task() -> SearchTask:
    return SearchTask(compute_dag=matmul_relu(24, 32, 48), target="llvm -num-cores=2")


def policy_of(task: SearchTask, seed: int = 5) -> tuple[SketchPolicy, TileModel]:
    model = TileModel()
    return SketchPolicy(task, model, PARAMS, seed=seed), model


@pytest.fixture(scope="module")
def whole(task: SearchTask, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TileModel]:
    """The log of an uninterrupted run with failures, and the model that it trained."""
    log = tmp_path_factory.mktemp("whole") / "log.json"
    policy, model = policy_of(task)
    runner = SimulatedRunner(lambda inp: simulated_cost(inp, failing=0.1))
    result = task.tune(options(TRIALS, log, runner=runner), policy)
    assert result.trials == TRIALS
    assert 0 < sum(result.errors.values()) < TRIALS / 2
    return log, model


def test_equal_results_give_equal_candidates(
    task: SearchTask, whole: tuple[Path, TileModel], tmp_path: Path
) -> None:
    """A run whose results come from the log of another proposes what that one did, in the same order."""
    log, model = whole
    runner = SimulatedRunner(log)
    again, other = tmp_path / "again.json", tmp_path / "other.json"
    policy, second = policy_of(task)
    task.tune(options(TRIALS, again, runner=runner), policy)
    assert runner.from_log == runner.asked == TRIALS
    assert logged(again, task) == logged(log, task)
    assert second.seen == model.seen == logged(log, task)
    runner = SimulatedRunner(log, unknown=simulated_cost)
    task.tune(options(TRIALS, other, runner=runner), policy_of(task, seed=6)[0])
    assert logged(other, task) != logged(log, task)


@pytest.mark.parametrize(("place", "odd"), [(2, [2]), (2, [-1] * 8), (3, "foo -bar")])
def test_what_a_log_says_of_machines_that_is_not_understood_hinders_nothing(
    task: SearchTask, whole: tuple[Path, TileModel], tmp_path: Path, place: int, odd: object
) -> None:
    """The hardware and the host of a record: its program is one of the task that asks."""
    lines = [json.loads(line) for line in whole[0].read_text().splitlines() if not line.startswith("#")]
    for line in lines:
        line["i"][0][place] = odd
    log = tmp_path / "odd.json"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(PreloadMeasuredStates(log).known(task)) == TRIALS
    assert task.best_state(log)[0].steps == task.best_state(whole[0])[0].steps


@pytest.mark.parametrize("first", range(0, TRIALS, 4))
def test_a_run_goes_on_from_its_own_log(
    task: SearchTask, whole: tuple[Path, TileModel], tmp_path: Path, first: int
) -> None:
    """Cut after any trial, inside a round or between two, a run completes the log it would have made."""
    log, model = whole
    lines = log.read_text().splitlines(keepends=True)
    for cut in range(first, first + 4):
        part = tmp_path / f"{cut}.json"
        part.write_text("".join(lines[:cut]))
        policy, second = policy_of(task)
        runner = SimulatedRunner(log)
        result = task.tune(options(TRIALS - cut, part, runner=runner), policy)
        assert result.trials == runner.from_log == TRIALS - cut
        assert result.known_trials == TRIALS
        assert part.read_text() == log.read_text()
        assert second.seen == model.seen


def test_a_policy_of_another_object_of_the_task_goes_on_as_its_own(
    task: SearchTask, whole: tuple[Path, TileModel], tmp_path: Path
) -> None:
    """It is told of programs of its own graph, and those that look like them are proposed as ever."""

    class Watching(SketchPolicy):
        def learn(self, trials: Sequence[Trial]) -> None:
            assert all(trial.state.dag is self.task.compute_dag for trial in trials)
            super().learn(trials)

    log, _ = whole
    part = tmp_path / "part.json"
    part.write_text("".join(log.read_text().splitlines(keepends=True)[:11]))
    other = SearchTask(compute_dag=matmul_relu(24, 32, 48), target=HOST)
    assert other.key == task.key
    policy = Watching(other, TileModel(), PARAMS, seed=5)
    result = task.tune(options(TRIALS - 11, part, runner=SimulatedRunner(log)), policy)
    assert result.known_trials == TRIALS
    assert part.read_text() == log.read_text()


def test_a_torn_last_line_is_measured_again(
    task: SearchTask, whole: tuple[Path, TileModel], tmp_path: Path
) -> None:
    """A run that was killed while it wrote a line goes on with that line's program."""
    log, _ = whole
    part = tmp_path / "torn.json"
    text = log.read_text()
    lines = text.splitlines(keepends=True)
    part.write_text("".join(lines[:10]) + lines[10][:57])
    task.tune(options(TRIALS - 10, part, runner=SimulatedRunner(log)), policy_of(task)[0])
    assert logged(part, task) == logged(log, task)


def test_a_run_interrupted_again_and_again_ends_where_it_would_have(
    task: SearchTask, whole: tuple[Path, TileModel], tmp_path: Path
) -> None:
    """Ctrl-C while a program runs loses that program only."""

    class Impatient(SimulatedRunner):
        def run_each(
            self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
        ) -> Iterator[MeasureResult]:
            for result in super().run_each(inputs, builds):
                if self.asked % 4 == 0:
                    raise KeyboardInterrupt
                yield result

    log, _ = whole
    part = tmp_path / "part.json"
    part.touch()
    for _ in range(TRIALS):
        done = len(list(load_records(part)))
        result = task.tune(options(TRIALS - done, part, runner=Impatient(log)), policy_of(task)[0])
        if result.stop_reason is not StopReason.INTERRUPTED:
            break
    assert logged(part, task) == logged(log, task)


def test_a_log_without_an_answer_says_so(task: SearchTask, whole: tuple[Path, TileModel]) -> None:
    """A simulated run that leaves its log fails these trials and goes on."""
    runner = SimulatedRunner(whole[0])
    result = task.tune(options(8, runner=runner, num_measures_per_round=4), policy_of(task, seed=9)[0])
    assert result.trials == 8
    assert runner.from_log < 8
    assert "does not hold this program" in " ".join(result.error_examples.values())
    missed = 8 - runner.from_log
    assert f"{missed} UNKNOWN_ERROR (the log that is replayed does not hold this program)" in str(result)


@pytest.mark.usefixtures("small_searches")
@pytest.mark.parametrize(
    ("other", "named"),
    [
        (lambda: SearchTask("ansor.dense", (8, 8, 16), target=HOST), '"ansor.dense", 8, 8, 16'),
        (lambda: SearchTask("ansor.dense", (8, 8, 8), target=FAR), "aarch64"),
        (lambda: SearchTask("ansor.dense", (8, 8, 8), target="llvm -num-cores=7"), "num-cores=7"),
        (
            lambda: SearchTask("ansor.dense", (8, 8, 8), target=HOST, layout_rewrite_option=2),
            "with layout_rewrite_option 2",
        ),
    ],
    ids=["computation", "target", "cores", "layout option"],
)
def test_a_log_of_another_task_cannot_be_replayed(
    tmp_path: Path, other: Callable[[], SearchTask], named: str
) -> None:
    """Nothing is tried, and the message says of what the log is."""
    log, own = tmp_path / "log.json", SearchTask("ansor.dense", (8, 8, 8), target=HOST)
    own.tune(options(4, log), SketchPolicy(own, RandomModel()))
    again = own.tune(options(4, runner=SimulatedRunner(log)), SketchPolicy(own, RandomModel()))
    assert again.trials - sum(again.errors.values()) == 4
    message = rf"cannot answer for .*{named}.*; it holds .*dense.* 8, 8, 8.* on llvm"
    with pytest.raises(ansor.RunError, match=message):
        other().tune(options(4, runner=SimulatedRunner(log)))
    with pytest.raises(ansor.RunError, match=r"task 1, dense\(.*cannot answer"):
        TaskScheduler([own, other()], callbacks=[]).tune(options(4, runner=SimulatedRunner(log)))
    with pytest.raises(ansor.RunError, match="it is empty"):
        own.tune(options(4, runner=SimulatedRunner([])))
    other().tune(options(1, runner=SimulatedRunner(log, unknown=simulated_cost)))


def test_a_log_answers_with_the_times_of_the_target_that_is_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    tasks = [SearchTask("ansor.dense", (8, 8, 8), target=f"llvm -num-cores={cores}") for cores in (1, 2)]
    inputs = [MeasureInput(task, State.initial(task.compute_dag)) for task in tasks]
    save_records(log, inputs, [result_of(2e-3), result_of(1e-3)])
    answers = SimulatedRunner(log).run(inputs, NullBuilder().build(inputs))
    assert [answer.mean_cost for answer in answers] == [2e-3, 1e-3]


def test_a_log_answers_with_the_times_of_as_many_cores_if_it_has_any(tmp_path: Path) -> None:
    """A target that names no number of cores had one all the same; a log of another machine answers, too."""
    log, known = tmp_path / "log.json", ansor.HardwareParams.for_target(ansor.Target("llvm"))
    one, two, many = (
        SearchTask("ansor.dense", (8, 8, 8), hardware_params=replace(known, num_cores=cores))
        for cores in (1, 2, 64)
    )
    inputs = [MeasureInput(task, State.initial(task.compute_dag)) for task in (one, two, many)]
    save_records(log, inputs[:2], [result_of(2e-3), result_of(1e-3)])
    for inp, seconds in zip(inputs, (2e-3, 1e-3, 2e-3), strict=True):
        (answer,) = SimulatedRunner(log).run([inp], NullBuilder().build([inp]))
        assert answer.mean_cost == seconds


def test_the_laws_hold_with_the_default_model(task: SearchTask, tmp_path: Path) -> None:
    """A model that trains on what was measured is the same model after a resume, and proposes the same."""
    small = {**PARAMS, "evolutionary_search_num_iters": 1}

    def tune(log: Path, trials: int) -> None:
        runner = SimulatedRunner(lambda inp: simulated_cost(inp, failing=0.1))
        task.tune(options(trials, log, runner=runner), SketchPolicy(task, params=small, seed=3))

    whole = tmp_path / "whole.json"
    tune(whole, 18)
    lines = whole.read_text().splitlines(keepends=True)
    for cut in (3, 8, 17):
        part = tmp_path / f"{cut}.json"
        part.write_text("".join(lines[:cut]))
        tune(part, 18 - cut)
        assert part.read_text() == whole.read_text()


def taught(model: Any, log: Path) -> Any:
    """A model that was told a log before the search began."""
    model.update_from_file(str(log))
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda: DraftedModel(learned=XGBModel(seed=3)),
        lambda: XGBModel(seed=3, num_warmup_sample=6),
        lambda: SklearnModel("ridge", num_warmup_sample=6),
    ],
    ids=["DraftedModel", "XGBModel", "SklearnModel"],
)
def test_a_model_that_was_taught_the_log_resumes_too(
    task: SearchTask, tmp_path: Path, make: Callable[[], Any]
) -> None:
    """It does not know the future while the log is replayed; what it learned of others it keeps."""
    neighbour, other = (
        SearchTask(compute_dag=matmul_relu(24, 32, 24), target=str(task.target)),
        tmp_path / "o",
    )
    neighbour.tune(options(9, other), SketchPolicy(neighbour, RandomModel(), PARAMS, seed=4))
    small = {**PARAMS, "evolutionary_search_num_iters": 1}

    def tune(log: Path, trials: int, lessons: Sequence[Path]) -> None:
        model = make()
        for lesson in lessons:
            taught(model, lesson)
        starts = [PreloadMeasuredStates(log)] if log in lessons else []
        policy = SketchPolicy(task, model, small, seed=3, init_search_callbacks=starts)
        task.tune(options(trials, log), policy)

    whole = tmp_path / "whole.json"
    tune(whole, 16, [other])
    lines = whole.read_text().splitlines(keepends=True)
    for cut in (3, 14):
        part = tmp_path / f"{cut}.json"
        part.write_text("".join(lines[:cut]))
        tune(part, 16 - cut, [other, part])
        assert part.read_text() == whole.read_text(), f"cut after {cut} records"


@pytest.mark.parametrize("cut", [10, 19])
def test_a_model_that_was_taught_a_log_with_finals_resumes_too(
    task: SearchTask, tmp_path: Path, cut: int
) -> None:
    """What was measured again no search learned from: a model is not taught it, and need not forget it."""

    def tune(log: Path, trials: int) -> None:
        model = DraftedModel(learned=XGBModel(seed=3))
        starts: list[PreloadMeasuredStates] = []
        if log.exists():
            taught(model, log)
            starts.append(PreloadMeasuredStates(log))
        small = {**PARAMS, "evolutionary_search_num_iters": 1}
        policy = SketchPolicy(task, model, small, seed=3, init_search_callbacks=starts)
        task.tune(options(trials, log), policy)

    whole, part = tmp_path / "whole.json", tmp_path / "part.json"
    tune(whole, 24)
    part.write_text("".join(whole.read_text().splitlines(keepends=True)[:cut]))
    for inp, res in list(load_records(part))[:6]:
        save_records(part, [inp], [MeasureResult((Seconds(20 * res.mean_cost),) * 5, timestamp=9)])
    tune(part, 24 - cut)
    assert list(dict.fromkeys(logged(part, task))) == logged(whole, task)


def test_one_policy_used_twice_makes_the_log_of_one_run(task: SearchTask, tmp_path: Path) -> None:
    whole, twice = tmp_path / "whole.json", tmp_path / "twice.json"
    task.tune(options(16, whole), SketchPolicy(task, params=PARAMS, seed=3))
    policy = SketchPolicy(task, params=PARAMS, seed=3)
    for trials in (6, 10):
        assert task.tune(options(trials, twice), policy).trials == trials
    assert twice.read_text() == whole.read_text()
    assert isinstance(policy.model, DraftedModel)
    assert policy.model.num_records == 16


@pytest.mark.parametrize("work", ["locate", "fingerprints"])
def test_a_policy_goes_on_after_an_interrupt_while_it_looks_at_what_was_measured(
    task: SearchTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """What it has found out of measured programs by then is no less than what is so."""
    whole, part = tmp_path / "whole.json", tmp_path / "part.json"
    task.tune(options(16, whole), SketchPolicy(task, params=PARAMS, seed=3))
    policy, original, calls = SketchPolicy(task, params=PARAMS, seed=3), getattr(search.known, work), count()

    def interrupted(*arguments: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(search.known, work, interrupted)
    first = task.tune(options(16, part), policy)
    assert first.stop_reason is StopReason.INTERRUPTED
    assert 0 < first.trials < 16
    task.tune(options(16 - first.trials, part), policy)
    assert logged(part, task) == logged(whole, task)


def test_an_interrupted_replay_leaves_the_model_what_it_had(task: SearchTask, tmp_path: Path) -> None:
    """What it was made to forget it is told again, however the run ends."""

    class Interrupted(SketchPolicy):
        def propose(self, *arguments: Any) -> Any:
            raise KeyboardInterrupt

    log = tmp_path / "log.json"
    task.tune(options(12, log), SketchPolicy(task, RandomModel(), PARAMS, seed=3))
    model = taught(XGBModel(), log)
    result = task.tune(options(12, log), Interrupted(task, model, PARAMS))
    assert result.stop_reason is StopReason.INTERRUPTED
    assert model.num_records == result.known_trials == 12


@pytest.mark.parametrize("scheduled", [False, True], ids=["SearchTask", "TaskScheduler"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, LogWriteError, ZeroDivisionError])
def test_a_model_knows_all_that_was_measured_however_a_round_ends(
    task: SearchTask, tmp_path: Path, error: type[BaseException], scheduled: bool
) -> None:
    """In a round that a log answers in part, and that breaks off while its second new program runs."""
    log, asked = tmp_path / "log.json", []

    def cost(inp: MeasureInput) -> MeasureResult:
        asked.append(inp)
        if len(asked) == 2:
            raise error("in the middle of a round")
        return simulated_cost(inp)

    task.tune(options(10, log), SketchPolicy(task, XGBModel(), PARAMS, seed=3))
    model = taught(XGBModel(), log)
    policy = SketchPolicy(task, model, PARAMS, seed=3)
    opts = options(10, log, runner=SimulatedRunner(cost))
    with pytest.raises(error) if error is ZeroDivisionError else nullcontext():
        if scheduled:
            TaskScheduler([task], callbacks=[]).tune(opts, [policy])
        else:
            assert task.tune(opts, policy).known_trials == 11
    assert model.num_records == 11


def test_a_run_that_was_given_another_log_goes_on_from_its_own(task: SearchTask, tmp_path: Path) -> None:
    """What it knew at the start it knows again, and its own log is told round by round."""
    other, whole = tmp_path / "other.json", tmp_path / "whole.json"
    task.tune(options(9, other), policy_of(task, seed=8)[0])

    def tune(log: Path, trials: int) -> TileModel:
        model = TileModel()
        starts = [PreloadMeasuredStates(other)]
        task.tune(options(trials, log), SketchPolicy(task, model, PARAMS, 5, init_search_callbacks=starts))
        return model

    model = tune(whole, 18)
    lines = whole.read_text().splitlines(keepends=True)
    for cut in (1, 4, 7, 17):
        part = tmp_path / f"{cut}.json"
        part.write_text("".join(lines[:cut]))
        assert tune(part, 18 - cut).seen == model.seen, f"cut after {cut} records"
        assert part.read_text() == whole.read_text()
