"""Tuning sessions over a builder and runner that answer by arithmetic: proposed, measured, resumed."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError, LogWriteError
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from measure import (
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    ProgramBuilder,
    ProgramRunner,
    RecordToFile,
    load_records,
)
from search import (
    EmptyPolicy,
    History,
    PreloadMeasuredStates,
    Proposal,
    SearchPolicy,
    SearchTask,
    SketchPolicy,
    StopReason,
    TuningOptions,
)

pytestmark = pytest.mark.usefixtures("small_searches")


class FakeBuilder(ProgramBuilder):
    n_parallel = 2

    def __init__(self) -> None:
        self.built: list[str] = []

    def build_each(self, inputs: Sequence[MeasureInput]) -> Iterator[BuildResult]:
        for inp in inputs:
            self.built.append(program_key(inp.state))  # type: ignore[arg-type]
            yield BuildResult(b"object")


class FakeRunner(ProgramRunner):
    """Costs that are a function of the program, like a deterministic machine; some programs fail."""

    def __init__(self, failing: float = 0.0, interrupt_after: int | None = None) -> None:
        self.failing = failing
        self.left = interrupt_after

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for inp in inputs:
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise KeyboardInterrupt
            yield self.answer(inp.state)  # type: ignore[arg-type]

    def answer(self, state: State) -> MeasureResult:
        digest = hashlib.sha256(str(state.with_bounds()).encode()).digest()
        if digest[0] < 256 * self.failing:
            return MeasureResult.failed(MeasureErrorNo.RUNTIME_DEVICE, "it crashed", 0.1, 1700000000)
        cost = 1e-3 * (1 + int.from_bytes(digest[1:4], "little") / 2**24)
        return MeasureResult((cost,), MeasureErrorNo.NO_ERROR, "", 0.1, 1700000000)  # type: ignore[arg-type]


def matmul(n: int) -> list[te.Tensor]:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


@pytest.fixture
def task() -> SearchTask:
    return SearchTask(compute_dag=matmul(32), target="llvm -num-cores=2", desc="matmul 32")


def options(trials: int, log: Path | None = None, **changes: Any) -> TuningOptions:
    settings: dict[str, Any] = {
        "num_measure_trials": trials,
        "num_measures_per_round": 8,
        "verbose": 0,
        "builder": FakeBuilder(),
        "runner": FakeRunner(),
        "measure_callbacks": [RecordToFile(log)] if log is not None else None,
    }
    return TuningOptions(**(settings | changes))


def logged(log: Path, task: SearchTask) -> list[str]:
    """Keys of a log's programs, in order."""
    return [program_key(inp.state.replay(task.compute_dag)) for inp, _ in load_records(log)]  # type: ignore[union-attr]


def test_tune_measures_what_it_was_asked_to_and_finds_the_best(task: SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    result = task.tune(options(20, log))
    records = list(load_records(log))
    assert result.trials == result.known_trials == len(records) == 20
    assert result.best_cost == min(res.mean_cost for _, res in records)
    assert result.stop_reason is StopReason.TRIALS_DONE
    assert result.rounds == 3
    assert result.best_gflops == pytest.approx(2 * 32**3 / result.best_cost / 1e9)
    assert len(set(logged(log, task))) == 20


def test_equal_seeds_propose_equal_programs(task: SearchTask, tmp_path: Path) -> None:
    logs = [tmp_path / name for name in ("a.json", "b.json", "c.json")]
    for log, seed in zip(logs, (3, 3, 4), strict=True):
        task.tune(options(12, log, seed=seed))
    first, second, other = (logged(log, task) for log in logs)
    assert first == second
    assert first != other


def test_an_interrupted_run_goes_on_where_it_stopped(task: SearchTask, tmp_path: Path) -> None:
    """Interrupted at any point and resumed, a run makes the log that it would have made at once."""
    whole, pieces = tmp_path / "whole.json", tmp_path / "pieces.json"
    task.tune(options(24, whole))
    done = 0
    for trials in (5, 1, 7):
        result = task.tune(options(trials, pieces))
        done += trials
        assert result.trials == trials
        assert result.known_trials == done
    interrupted = task.tune(options(11, pieces, runner=FakeRunner(interrupt_after=4)))
    assert interrupted.stop_reason is StopReason.INTERRUPTED
    rest = 24 - len(logged(pieces, task))
    assert 0 < rest < 11
    result = task.tune(options(rest, pieces))
    assert logged(pieces, task) == logged(whole, task)
    assert result.best_cost == min(res.mean_cost for _, res in load_records(whole))


def test_nothing_is_measured_twice_across_seeds_and_ways_to_resume(task: SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    task.tune(options(10, log, seed=1))
    builder = FakeBuilder()
    policy = SketchPolicy(task, ansor.XGBModel(), seed=2, init_search_callbacks=[PreloadMeasuredStates(log)])
    result = task.tune(options(10, None, builder=builder), policy)
    assert result.trials == 10
    assert result.known_trials == 20
    assert not set(builder.built) & set(logged(log, task))
    task.tune(options(10, log, seed=2))
    assert len(set(logged(log, task))) == 20


def test_records_of_other_tasks_are_passed_over(task: SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    other = SearchTask(compute_dag=matmul(48), target="llvm -num-cores=2")
    cross = SearchTask(compute_dag=matmul(32), target="llvm -mtriple=aarch64-linux-gnu -num-cores=2")
    for foreign in (other, cross):
        foreign.tune(options(6, log))
    result = task.tune(options(4, log))
    assert result.known_trials == 4
    assert len(list(load_records(log))) == 16


def test_failures_are_counted_and_do_not_win(task: SearchTask, tmp_path: Path) -> None:
    result = task.tune(options(24, tmp_path / "log.json", runner=FakeRunner(failing=0.5)))
    failed = result.errors[MeasureErrorNo.RUNTIME_DEVICE]
    assert 0 < failed < 24
    assert result.best_cost is not None
    assert result.best_cost < 1
    assert f"{failed} RUNTIME_DEVICE" in str(result)
    assert repr(result) == f"TuningResult({result.task.workload_key}: {result})"


def test_a_stream_of_failures_ends_the_run_and_says_why(task: SearchTask) -> None:
    result = task.tune(options(1000, runner=FakeRunner(failing=1.0), max_failures_in_a_row=16))
    assert result.stop_reason is StopReason.ONLY_FAILURES
    assert result.trials == 16
    assert result.best_state is None
    assert "16 trials in a row failed" in result.message
    assert "RUNTIME_DEVICE: it crashed" in result.message


def test_a_log_of_failures_does_not_end_the_next_run(task: SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    task.tune(options(1000, log, runner=FakeRunner(failing=1.0), max_failures_in_a_row=16))
    result = task.tune(options(8, log, max_failures_in_a_row=16))
    assert (result.trials, result.known_trials) == (8, 24)
    assert result.best_state is not None
    again = task.tune(options(1000, log, runner=FakeRunner(failing=1.0), max_failures_in_a_row=4))
    assert again.trials in range(4, 9)  # to the end of its round
    assert again.stop_reason is StopReason.ONLY_FAILURES


class Repeating(SearchPolicy):
    """Proposes what it is told to, for ever."""

    def __init__(self, task: SearchTask, answer: Any) -> None:
        self._task, self._answer = task, answer

    @property
    def task(self) -> SearchTask:
        return self._task

    def propose(self, round_index: int, count: int, history: Any) -> Any:
        return self._answer


def test_what_a_policy_repeats_is_measured_once(task: SearchTask, tmp_path: Path) -> None:
    state, log = State.initial(task.compute_dag), tmp_path / "log.json"
    result = task.tune(options(8, log), Repeating(task, Proposal((state, state))))
    assert (result.trials, len(logged(log, task))) == (1, 1)
    assert "Repeating.propose gave 2 programs that are measured already, or came twice" in result.message
    assert result.stop_reason is StopReason.EXHAUSTED


@pytest.mark.parametrize("answer", [[], None, Proposal((1, 2))])  # type: ignore[arg-type]
def test_what_a_policy_proposes_must_be_programs(task: SearchTask, answer: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Repeating.propose returned .*(ansor.Proposal|ansor.State)"):
        task.tune(options(8), Repeating(task, answer))


class Broken(FakeRunner):
    """Fails in two ways; the second is the more common one."""

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for _ in inputs:
            self.failing += 1
            kind = MeasureErrorNo.RUN_TIMEOUT if self.failing == 1 else MeasureErrorNo.WRONG_ANSWER
            text = f"output 'C': {'far ' * 60}off in {self.failing:.0f} places\nand so on"
            yield MeasureResult.failed(kind, text, 0.1, 1700000000)


def test_trials_that_all_failed_are_diagnosed_however_the_run_ends(
    task: SearchTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.json"
    result = task.tune(options(12, log, runner=Broken(), verbose=1))
    assert result.stop_reason is StopReason.TRIALS_DONE
    first = f"output 'C': {'far ' * 60}off in 1 places"
    assert result.message == (
        "all 12 trials are done; none of 12 trials gave a valid program (11 WRONG_ANSWER, 1 RUN_TIMEOUT); "
        f"the first, RUN_TIMEOUT: {first}"
    )
    told = capsys.readouterr().err
    assert told.count(first) == 1
    assert "  WRONG_ANSWER, for example: output 'C': far far" in told
    again = task.tune(options(2, log, runner=Broken()))
    assert "none of 14 trials gave a valid program (12 WRONG_ANSWER, 2 RUN_TIMEOUT)" in again.message
    assert not task.tune(options(8, runner=FakeRunner(failing=0.25))).diagnosis
    many = ansor.TaskScheduler([task], callbacks=[]).tune(options(4, runner=Broken()), "sketch.random")
    assert "matmul 32: no program: none of 4 trials gave a valid program (3 WRONG_ANSWER" in str(many)


def test_early_stopping_says_so_and_counts_the_log(task: SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    result = task.tune(options(1000, log, early_stopping=16))
    assert result.stop_reason is StopReason.EARLY_STOPPING
    assert "brought no improvement" in result.message
    assert result.trials < 1000
    again = task.tune(options(1000, log, early_stopping=16))
    assert again.trials == 0
    assert again.stop_reason is StopReason.EARLY_STOPPING
    assert again.best_cost == result.best_cost


def test_a_space_without_new_programs_ends_the_run(tmp_path: Path) -> None:
    a = te.placeholder((2,), name="A")
    tiny = SearchTask(compute_dag=[a, te.compute((2,), lambda i: a[i] + te.const(1.0, "float32"), name="B")])
    log = tmp_path / "log.json"
    result = tiny.tune(options(500, log))
    assert result.stop_reason is StopReason.EXHAUSTED
    assert 0 < result.trials < 50
    assert "nothing new was found" in result.message
    assert tiny.tune(options(500, log)).trials == 0


def test_a_task_without_a_valid_program_ends_at_once(task: SearchTask) -> None:
    class Barren(SearchPolicy):
        asked = 0

        @property
        def task(self) -> SearchTask:
            return task

        def propose(self, round_index: int, count: int, history: History) -> Proposal:
            self.asked += 1
            return Proposal((), "every sketch was illegal")

        def learn(self, trials: Any) -> None:
            raise AssertionError("nothing to learn from")

    policy = Barren()
    result = task.tune(options(100), policy)
    assert policy.asked == 1
    assert result.stop_reason is StopReason.NO_PROGRAM
    assert result.best_state is None
    assert "every sketch was illegal" in result.message


def test_no_trials_answers_from_the_log_or_the_policy(task: SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    guess = task.tune(options(0))
    assert guess.trials == 0
    assert guess.best_state is not None
    assert guess.best_cost is None
    measured = task.tune(options(6, log))
    known = task.tune(options(0, log))
    assert known.trials == 0
    assert known.best_cost == measured.best_cost
    assert known.best_state == measured.best_state


def test_the_empty_policy_measures_the_unscheduled_program_once(task: SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    result = task.tune(options(5, log), EmptyPolicy(task))
    assert result.trials == 1
    assert result.best_state == State.initial(task.compute_dag)
    assert result.stop_reason is StopReason.EXHAUSTED


def test_a_log_that_cannot_be_written_ends_the_run_with_the_result_so_far(task: SearchTask) -> None:
    class FullDisk:
        left = 8

        def callback(self, policy: object, inputs: Sequence[MeasureInput], results: object) -> None:
            self.left -= len(inputs)
            if self.left < 0:
                raise LogWriteError("cannot append to the log 'x': No space left on device")

    result = task.tune(options(100, measure_callbacks=[FullDisk()]))
    assert result.stop_reason is StopReason.LOG_FAILED
    assert "No space left" in result.message
    assert result.trials == 8
    assert result.best_state is not None


def test_callbacks_see_every_batch_with_the_policy(task: SearchTask) -> None:
    seen: list[tuple[object, int]] = []

    class Watch:
        def callback(self, policy: object, inputs: Sequence[MeasureInput], results: Sequence[object]) -> None:
            assert len(inputs) == len(results)
            seen.append((policy, len(inputs)))

    policy = SketchPolicy(task)
    task.tune(options(10, measure_callbacks=[Watch()]), policy)
    assert sum(count for _, count in seen) == 10
    assert {id(who) for who, _ in seen} == {id(policy)}


def test_an_informative_model_chooses_and_learns_in_log_order(task: SearchTask, tmp_path: Path) -> None:
    class Longest(ansor.CostModel):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
            self.seen += [program_key(inp.state) for inp in inputs]  # type: ignore[arg-type]

        def predict(self, task: Any, states: Sequence[State]) -> Any:
            return np.array([float(len(str(state))) for state in states])

    log = tmp_path / "log.json"
    model, blind = Longest(), tmp_path / "blind.json"
    task.tune(options(8, log), SketchPolicy(task, model, params={"eps_greedy": 0.0}))
    assert model.seen == logged(log, task)
    task.tune(options(8, blind), SketchPolicy(task))

    def mean_length(path: Path) -> float:
        states = [inp.state.replay(task.compute_dag) for inp, _ in load_records(path)]  # type: ignore[union-attr]
        return sum(len(str(state)) for state in states) / len(states)

    assert mean_length(log) > mean_length(blind)


def test_a_task_whose_sketches_are_all_illegal_is_diagnosed(task: SearchTask) -> None:
    class Illegal:
        name = "Illegal"

        def verdict(self, context: Any, state: State, stage_id: int) -> Any:
            raise ansor.ScheduleError("this rule refuses everything")

        def apply(self, context: Any, state: State, stage_id: int) -> Any:
            raise AssertionError

    result = task.tune(options(10), SketchPolicy(task, rules=[Illegal()]))
    assert result.stop_reason is StopReason.NO_PROGRAM
    assert "this rule refuses everything" in result.message


class SplitAgain:
    """Makes a sketch that splits an open inner length once more, which nothing can fill."""

    name = "SplitAgain"

    def __init__(self, verdict: ansor.Verdict) -> None:
        self._verdict = verdict

    def verdict(self, context: Any, state: State, stage_id: int) -> Any:
        last = stage_id == len(state.stages) - 1
        return self._verdict if last else ansor.Verdict.PASS

    def apply(self, context: Any, state: State, stage_id: int) -> Any:
        return [(state.split(stage_id, 0, (None,)).split(stage_id, 1, (None,)), stage_id - 1)]


def test_a_sketch_that_cannot_be_sampled_is_left_out(
    task: SearchTask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules, log = (SplitAgain(ansor.Verdict.APPLY), *ansor.CPU_RULES), tmp_path / "log.json"
    assert len(ansor.generate_sketches(task, rules=rules)) > len(
        SketchPolicy(task, rules=rules).space.sketches
    )
    with caplog.at_level("DEBUG"):
        result = task.tune(options(10, log), SketchPolicy(task, ansor.AnalyticModel(), rules=rules))
    assert result.trials == len(logged(log, task)) == 10
    assert "a sketch of SplitAgain is left out: split of loop" in caplog.text


@pytest.mark.parametrize("model", [ansor.AnalyticModel(), ansor.RandomModel()])
def test_a_task_no_sketch_of_which_can_be_sampled_is_diagnosed_at_once(
    task: SearchTask, model: ansor.CostModel
) -> None:
    rules = [SplitAgain(ansor.Verdict.APPLY_AND_SKIP_REST), *ansor.CPU_RULES]
    result = task.tune(options(10), SketchPolicy(task, model, rules=rules))
    assert result.stop_reason is StopReason.NO_PROGRAM
    assert "no sketch can be sampled: split of loop" in result.message


def test_a_policy_of_another_task_is_refused(task: SearchTask) -> None:
    other = SearchTask(compute_dag=matmul(48))
    with pytest.raises(ansor.DefinitionError, match="make one with this task"):
        task.tune(options(1), SketchPolicy(other))
