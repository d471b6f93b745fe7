"""Many tasks under one budget: who is tuned when, resuming, stopping, and what callbacks see."""

import io
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.schedule.state import State
from costmodel import RandomModel
from measure import (
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    RecordToFile,
    load_records,
    save_records,
)
from search import (
    LogEstimatedLatency,
    PrintTableInfo,
    SearchTask,
    SketchPolicy,
    StopReason,
    TaskScheduler,
    TaskSchedulerCallback,
    TuningOptions,
)
from search.scheduler.callbacks import progress_table
from tests.fake_machine import HOST, FakeMachine, logged, matmul_task, options

pytestmark = pytest.mark.usefixtures("small_searches")


@pytest.fixture(scope="module")
def tasks() -> list[SearchTask]:
    return [matmul_task(n) for n in (2, 4, 8)]


class Watch(TaskSchedulerCallback):
    """Notes the order of rounds, and the figures after each."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.scores: list[float] = []

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        self.order.append(task_id)

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        assert self.order[-1] == task_id
        self.scores.append(task_scheduler.cur_score)


def counts(log: Path) -> Counter[str]:
    return Counter(inp.task.workload_key for inp, _ in load_records(log))


def scheduler(tasks: list[SearchTask], **changes: Any) -> TaskScheduler:
    return TaskScheduler(tasks, **({"callbacks": []} | changes))


def test_round_robin_gives_each_task_its_turn_and_resumes(tasks: list[SearchTask], tmp_path: Path) -> None:
    log, watch = tmp_path / "log.json", Watch()
    first = scheduler(tasks, strategy="round-robin", callbacks=[watch])
    result = first.tune(options(6, log, num_measures_per_round=1), "sketch.random")
    assert watch.order == [0, 1, 2, 0, 1, 2]
    assert counts(log) == {task.workload_key: 2 for task in tasks}
    assert result.trials == first.ct == 6
    assert first.task_cts == [2, 2, 2]
    again, watch = scheduler(tasks, strategy="round-robin", load_log_file=log), Watch()
    again.callbacks = [watch]
    again.tune(options(3, log, num_measures_per_round=1), "sketch.random")
    assert watch.order == [0, 1, 2]
    assert counts(log) == {task.workload_key: 3 for task in tasks}
    assert again.ct == 9
    assert again.resumed


def test_gradient_spends_where_the_objective_falls(tmp_path: Path) -> None:
    pair = [matmul_task(n) for n in (2, 4)]
    log = tmp_path / "log.json"
    chosen = scheduler(pair, objective_func=lambda costs: costs[0])
    chosen.best_costs = np.array([1e2, 1e-8])  # The second task could not be better.
    chosen.tune(options(5, log, num_measures_per_round=1), "sketch.random")
    assert counts(log) == {pair[0].workload_key: 4, pair[1].workload_key: 1}
    assert chosen.best_costs[0] < 1
    assert chosen.best_costs[1] == 1e-8


def test_weights_decide_between_tasks_of_equal_speed(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    pair = [matmul_task(n) for n in (16, 24)]
    heavy = scheduler(pair, task_weights=[1.0, 10.0])
    heavy.tune(options(32, log), "sketch.random")
    assert counts(log)[pair[1].workload_key] > counts(log)[pair[0].workload_key]
    assert heavy.cur_score == pytest.approx(heavy.best_costs[0] + 10 * heavy.best_costs[1])
    assert heavy.num_measures_per_round == 4


@pytest.mark.parametrize("strategy", ["gradient", "round-robin"])
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path, strategy: str) -> None:
    """Pieces of a run make the log that it would have made at once, whatever ended each piece."""
    many = [matmul_task(n) for n in (8, 16, 24)]
    whole, pieces = tmp_path / "whole.json", tmp_path / "pieces.json"
    scheduler(many, strategy=strategy).tune(options(40, whole), "sketch.random")
    for after in (3, 9, 4):
        machine = FakeMachine(interrupt_after=after)
        cut = scheduler(many, strategy=strategy).tune(options(40, pieces, machine=machine), "sketch.random")
        assert cut.stop_reason is StopReason.INTERRUPTED
        assert cut.trials == after
    rest = 40 - len(logged(pieces))
    scheduler(many, strategy=strategy).tune(options(rest, pieces), "sketch.random")
    assert logged(pieces) == logged(whole)


@pytest.mark.parametrize(("policy", "every"), [("sketch.random", 1), ("sketch.xgb", 6), ("default", 7)])
def test_a_run_cut_at_any_record_goes_on_as_if_it_had_not_been(
    tmp_path: Path, policy: Any, every: int
) -> None:
    """What a round holds does not follow from the trials that are left."""
    many, trials = [matmul_task(n) for n in (4, 8, 16)], 18
    whole = tmp_path / "whole.json"
    scheduler(many).tune(options(trials, whole), policy)
    lines = whole.read_text().splitlines(keepends=True)
    wanted = logged(whole)
    for cut in range(0, trials, every):
        part = tmp_path / f"{cut}.json"
        part.write_text("".join(lines[:cut]))
        result = scheduler(many).tune(options(trials - cut, part), policy)
        assert logged(part) == wanted, f"cut after {cut} records"
        assert result.trials == trials - cut


@pytest.mark.parametrize("strategy", ["gradient", "round-robin"])
@pytest.mark.parametrize(("policy", "budgets"), [("sketch.random", (3, 4, 1, 30)), ("default", (5, 6, 15))])
def test_runs_of_small_budgets_make_the_log_of_one_run(
    tmp_path: Path, strategy: str, policy: Any, budgets: tuple[int, ...]
) -> None:
    """How much one call may measure decides nothing but where it ends."""
    many = [matmul_task(n) for n in (4, 8, 16)]
    whole, pieces = tmp_path / "whole.json", tmp_path / "pieces.json"
    scheduler(many, strategy=strategy).tune(options(sum(budgets), whole, num_measures_per_round=8), policy)
    wanted, done = logged(whole), 0
    for budget in budgets:
        part = scheduler(many, strategy=strategy)
        result = part.tune(options(budget, pieces, num_measures_per_round=8), policy)
        done += budget
        assert result.trials == budget
        assert part.num_measures_per_round == 8
        assert logged(pieces) == wanted[:done], f"after {done} records"


def test_a_small_budget_is_shared_and_its_parts_are_one_round(tmp_path: Path) -> None:
    """Of the first round all tasks get one, two, four and eight programs in turn."""
    many, log, watch = [matmul_task(n) for n in (8, 16, 24)], tmp_path / "log.json", Watch()
    first = scheduler(many, callbacks=[watch])
    first.tune(options(20, log, num_measures_per_round=8), "sketch.random")
    assert watch.order == [0, 1, 2] * 3 + [0, 1]
    assert first.task_trials == [8, 8, 4]
    assert first.task_cts == [1, 1, 1]
    assert [len(costs) for costs in first.task_costs_history] == [1, 1, 1]
    titles = [inp.task.workload_key for inp, _ in load_records(log)]
    turns = [0, 1, 2, 0, 1, 2, 0, 0, 1, 1, 2, 2, *[0] * 4, *[1] * 4]
    assert titles == [many[number].workload_key for number in turns]


def test_a_model_is_told_of_a_first_round_once_and_of_all_that_was_measured() -> None:
    many, told = [matmul_task(n) for n in (8, 16)], list[int]()

    class Telling(SketchPolicy):
        def learn(self, trials: Any) -> None:
            told.append(len(trials))

    policies = [Telling(task, RandomModel(0)) for task in many]
    scheduler(many).tune(options(11, num_measures_per_round=8), policies)
    assert sorted(told) == [4, 7]
    told.clear()
    scheduler(many).tune(options(16, num_measures_per_round=8), policies)
    assert told == [8, 8]


def test_a_run_that_was_given_another_log_goes_on_from_its_own(tmp_path: Path) -> None:
    many, other = [matmul_task(n) for n in (4, 8, 16)], tmp_path / "other.json"
    scheduler(many[:2]).tune(options(10, other, seed=9), "sketch.random")
    whole = tmp_path / "whole.json"
    scheduler(many, load_log_file=other).tune(options(16, whole), "sketch.xgb")
    lines, wanted = whole.read_text().splitlines(keepends=True), logged(whole)
    for cut in range(1, 16, 5):
        part = tmp_path / f"{cut}.json"
        part.write_text("".join(lines[:cut]))
        scheduler(many, load_log_file=other).tune(options(16 - cut, part), "sketch.xgb")
        assert logged(part) == wanted, f"cut after {cut} records"


def test_every_task_gets_its_first_round_whatever_a_log_holds(tmp_path: Path) -> None:
    """The log of one task leaves the whole budget to the others, which share it."""
    many, log = [matmul_task(n) for n in (8, 16, 24)], tmp_path / "log.json"
    many[0].tune(options(40, log, seed=9))
    result = scheduler(many, load_log_file=log).tune(options(6, num_measures_per_round=64), "sketch.random")
    assert [one.known_trials for one in result.results] == [40, 4, 2]
    nothing = scheduler(many[:1], load_log_file=log)
    assert nothing.tune(options(0)).results[0].known_trials == 40
    assert nothing.best_costs[0] == nothing.cur_score < 1
    with pytest.raises(ansor.DefinitionError, match="2 tasks without a known result need at least one"):
        scheduler(many, load_log_file=log).tune(options(1))


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize(
    "later",
    [
        MeasureResult((3e-3,) * 5, timestamp=9),  # type: ignore[arg-type]
        MeasureResult.failed(MeasureErrorNo.WRONG_ANSWER, "", 1.0, 9),
    ],
    ids=["slower", "wrong"],
)
def test_the_objective_is_that_of_the_results(
    tmp_path: Path, later: MeasureResult, interrupted: bool
) -> None:
    """A figure that does not count any more is no latency either, however the run ends."""
    task, log = matmul_task(8), tmp_path / "log.json"
    lucky, good = (State.initial(task.compute_dag).split(2, 0, [length]) for length in (2, 4))
    inputs = [MeasureInput(task, state) for state in (lucky, good, lucky)]
    firsts = [MeasureResult((seconds,), timestamp=8) for seconds in (1e-5, 2e-5)]  # type: ignore[arg-type]
    save_records(log, inputs, [*firsts, later])
    chosen, machine = scheduler([task]), FakeMachine(interrupt_after=0)
    outcome = chosen.tune(options(4 if interrupted else 0, log, machine=machine), "sketch.random")
    assert (outcome.stop_reason is StopReason.INTERRUPTED) == interrupted
    (result,) = outcome.results
    assert result.best_cost == outcome.objective == chosen.cur_score == chosen.best_costs[0] == 2e-5


def test_a_task_whose_only_program_is_wrong_has_none(tmp_path: Path) -> None:
    task, log = matmul_task(8), tmp_path / "log.json"
    state = State.initial(task.compute_dag)
    wrong = MeasureResult.failed(MeasureErrorNo.WRONG_ANSWER, "", 1.0, 9)
    save_records(log, [MeasureInput(task, state)] * 2, [MeasureResult((1e-5,), timestamp=8), wrong])  # type: ignore[arg-type]
    chosen = scheduler([task])
    assert chosen.tune(options(0, log), "sketch.random").objective is None
    assert chosen.best_costs[0] == chosen.no_cost


def test_equal_seeds_make_equal_runs(tmp_path: Path) -> None:
    pair = [matmul_task(n) for n in (8, 16)]
    logs = [tmp_path / f"{i}.json" for i in range(3)]
    for log, seed in zip(logs, (5, 5, 6), strict=True):
        scheduler(pair).tune(options(16, log, seed=seed))
    assert logged(logs[0]) == logged(logs[1])
    assert logged(logs[0]) != logged(logs[2])


def test_a_log_of_another_run_counts_as_warming_up(tmp_path: Path) -> None:
    pair = [matmul_task(n) for n in (16, 24)]
    log, watch = tmp_path / "log.json", Watch()
    pair[0].tune(options(12, log, seed=9))
    second = scheduler(pair, load_log_file=log, callbacks=[watch], strategy="round-robin")
    second.tune(options(8), "sketch.random")
    assert watch.order == [1, 1, 0]
    assert second.task_cts == [4, 1]
    assert second.task_trials == [16, 4]
    assert len(second.task_costs_history[0]) == 4
    assert second.task_costs_history[0] == sorted(second.task_costs_history[0], reverse=True)


def test_logs_of_several_runs_are_taken(tmp_path: Path) -> None:
    pair, logs = [matmul_task(n) for n in (16, 24)], [tmp_path / "a.json", tmp_path / "b.json"]
    for task, log in zip(pair, logs, strict=True):
        task.tune(options(6, log))
    both = scheduler(pair, load_log_file=logs)
    assert both.tune(options(4), "sketch.random").trials == 4
    assert both.ct == 16
    with pytest.raises(FileNotFoundError, match=r"there is no log '.*none\.json'"):
        scheduler(pair, load_log_file=[logs[0], tmp_path / "none.json"]).tune(options(4), "sketch.random")


def test_records_for_another_machine_are_not_taken(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    matmul_task(8, target="llvm -mtriple=aarch64-linux-gnu -num-cores=2").tune(options(4, log))
    mine = scheduler([matmul_task(8)], load_log_file=log)
    mine.tune(options(4), "sketch.random")
    assert mine.ct == 4
    assert not mine.resumed


def test_a_task_without_a_program_is_given_up(tmp_path: Path) -> None:
    pair = [matmul_task(n) for n in (8, 16)]
    bad = pair[0].workload_key
    machine = FakeMachine(fails=lambda inp: inp.task.workload_key == bad)
    watch, log = Watch(), tmp_path / "log.json"
    chosen = scheduler(pair, callbacks=[watch])
    result = chosen.tune(options(32, log, machine=machine, early_stopping=1000), "sketch.random")
    assert watch.order == [0, 1] * 3 + [0] * 3 + [1] * 3  # four programs a round, sixteen tried
    assert chosen.dead_tasks == {0}
    assert result.objective is None
    assert chosen.cur_score == chosen.best_costs[1] < 1
    assert "no program" in str(result)
    hopeless = scheduler(pair).tune(options(100, machine=FakeMachine(fails=lambda _: True)), "sketch.random")
    assert hopeless.stop_reason is StopReason.NO_PROGRAM
    assert hopeless.trials == 32


def test_early_stopping_of_one_and_of_all(tmp_path: Path) -> None:
    pair = [matmul_task(n) for n in (8, 16)]
    one = scheduler(pair)
    result = one.tune(options(4000), "sketch.random", per_task_early_stopping=8)
    assert result.stop_reason is StopReason.EXHAUSTED
    assert one.dead_tasks == {0, 1}
    assert "brought no improvement" in result.message
    assert result.trials < 4000
    log = tmp_path / "log.json"
    both = scheduler(pair)
    stopped = both.tune(options(4000, log, early_stopping=20), "sketch.random")
    assert stopped.stop_reason is StopReason.EARLY_STOPPING
    assert both.ct - both.best_ct >= 20
    again = scheduler(pair).tune(options(4000, log, early_stopping=20), "sketch.random")
    assert again.trials == 0
    assert again.stop_reason is StopReason.EARLY_STOPPING


def test_a_second_tune_goes_on_from_the_log(tmp_path: Path) -> None:
    pair = [matmul_task(n) for n in (8, 16)]
    log = tmp_path / "log.json"
    chosen = scheduler(pair)
    chosen.tune(options(8, log), "sketch.random")
    chosen.tune(options(8, log), "sketch.random")
    assert chosen.ct == 16
    assert len(set(logged(log))) == 16


def test_policies_of_ones_own_and_a_shared_model(tmp_path: Path) -> None:
    pair = [matmul_task(n) for n in (8, 16)]
    model = ansor.RandomModel(3)
    policies = [SketchPolicy(task, model, seed=3) for task in pair]
    result = scheduler(pair).tune(options(8), policies)
    assert [one.known_trials for one in result.results] == [4, 4]


@pytest.mark.parametrize(
    ("policy", "model", "other"),
    [("default", ansor.DraftedModel, ansor.XGBModel), ("sketch.xgb", ansor.XGBModel, ansor.DraftedModel)],
)
def test_a_search_starts_from_a_model_of_its_kind(
    policy: Any, model: type[Any], other: type[Any], tmp_path: Path
) -> None:
    pair = [matmul_task(n) for n in (8, 16)]
    saved, wrong = tmp_path / "model.json", tmp_path / "wrong.json"
    model().save(saved)
    other().save(wrong)
    assert scheduler(pair, load_model_file=saved).tune(options(8), policy).trials == 8
    with pytest.raises(ansor.LogFormatError, match="trained to correct"):
        scheduler(pair, load_model_file=wrong).tune(options(8), policy)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("sketch.random", "'sketch.random' has no model that learns; take 'default' or 'sketch.xgb'"),
        ([SketchPolicy(matmul_task(8), RandomModel())], "policies that are passed have models of their own"),
    ],
)
def test_a_model_file_that_nobody_would_read_is_refused(policy: Any, message: str, tmp_path: Path) -> None:
    saved = tmp_path / "model.json"
    ansor.DraftedModel().save(saved)
    with pytest.raises(ansor.DefinitionError, match=f"would not be used: .*{message}"):
        scheduler([matmul_task(8)], load_model_file=saved).tune(options(8), policy)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"tasks": []}, ansor.DefinitionError, "at least one task"),
        ({"task_weights": [1.0]}, ansor.DefinitionError, "2 tasks and 1 task_weights"),
        ({"strategy": "random"}, ansor.DefinitionError, "'gradient' or 'round-robin'"),
        ({"load_model_file": "missing.json"}, FileNotFoundError, "no model file"),
    ],
)
def test_a_scheduler_that_makes_no_sense_is_refused(
    given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TaskScheduler(**({"tasks": [matmul_task(4), matmul_task(8)], "callbacks": []} | given))


def test_two_equal_tasks_are_refused() -> None:
    with pytest.raises(ansor.DefinitionError, match="sum of their weights"):
        TaskScheduler([matmul_task(4), matmul_task(8), matmul_task(4)])


def test_tuning_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    pair = [matmul_task(4), matmul_task(8)]
    with pytest.raises(ansor.DefinitionError, match="num_measure_trials=1 is too small"):
        scheduler(pair).tune(options(1))
    with pytest.raises(ansor.DefinitionError, match=r"'sketch\.random'"):
        scheduler(pair).tune(options(4), "sketch.best")  # type: ignore[arg-type]
    with pytest.raises(ansor.DefinitionError, match="in the order of the tasks"):
        scheduler(pair).tune(options(4), [SketchPolicy(task) for task in reversed(pair)])
    with pytest.raises(ansor.DefinitionError, match="2 tasks and 1 policies"):
        scheduler(pair).tune(options(4), [SketchPolicy(pair[0])])
    missing = tmp_path / "missing.json"
    with pytest.raises(FileNotFoundError, match="RecordToFile"):
        scheduler(pair, load_log_file=missing).tune(options(4))
    assert scheduler(pair, load_log_file=missing).tune(options(4, missing)).trials == 4
    with pytest.raises(ansor.DefinitionError, match=r"it takes ansor\.TuningOptions"):
        scheduler(pair).tune(4)  # type: ignore[arg-type]
    with pytest.raises(ansor.DefinitionError, match="per_task_early_stopping must be an integer"):
        scheduler(pair).tune(options(4), per_task_early_stopping=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ["ansor.matmul"]}, r"tasks\[0\] is 'ansor.matmul'; .* a list of ansor\.SearchTask"),
        ({"task_weights": [-1.0]}, r"task_weights\[0\] must be a finite number of at least 0, found -1.0"),
        ({"objective_func": 3}, "objective_func=3: it must be a function"),
        ({"objective_func": list}, "objective_func was asked .* what it returns must be a finite number"),
        ({"task_weights": ["x"]}, r"task_weights\[0\] must be [a-z0-9 ]*, found 'x'$"),
        ({"objective_func": lambda costs: "x"}, "what it returns must be a finite number, found 'x'$"),
        ({"alpha": "x"}, r"TaskScheduler\(alpha\) must be a finite number of at least 0, found 'x'"),
        ({"beta": None}, r"TaskScheduler\(beta\) must be a finite number above 0, found None"),
        (
            {"backward_window_size": 0},
            r"TaskScheduler\(backward_window_size\) must be an integer of at least 1",
        ),
        ({"callbacks": [print]}, "callbacks has <built-in function print>; each must be"),
        ({"callbacks": [PrintTableInfo]}, "callbacks has <class .*PrintTableInfo'>; each must be"),
        ({"load_log_file": [3]}, r"load_log_file=\[3\]\): it takes the path of a log, or a list of paths"),
    ],
)
def test_schedulers_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ansor.DefinitionError, match=message):
        TaskScheduler(**({"tasks": [matmul_task(4)]} | changes))


def test_an_objective_that_goes_wrong_is_blamed_by_name() -> None:
    """Whether before the first round or when the next task is chosen."""

    def inverse(costs: list[float]) -> float:
        return 1 / sum(cost >= 1e10 for cost in costs)

    with pytest.raises(ZeroDivisionError) as caught:
        scheduler([matmul_task(4)], objective_func=lambda costs: 1 / 0)
    noted = "objective_func was asked about the latencies [10000000000.0] [s]"
    assert noted in caught.value.__notes__[0]
    with pytest.raises(ZeroDivisionError) as caught:
        scheduler([matmul_task(4)], objective_func=inverse).tune(options(8), "sketch.random")
    assert "objective_func was asked about the latencies [0.00" in caught.value.__notes__[0]
    with pytest.raises(
        ansor.DefinitionError, match=r"latencies \[10000000000\.0\] .*what it returns must be"
    ):
        scheduler([matmul_task(4)], objective_func=lambda costs: float("nan"))


def test_a_callback_that_goes_wrong_is_blamed_by_name() -> None:
    class Early(TaskSchedulerCallback):
        def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
            raise RuntimeError("mine")

    class Late(TaskSchedulerCallback):
        def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
            raise RuntimeError("mine")

    class Measured:
        def callback(self, policy: object, inputs: Any, results: Any) -> None:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine") as caught:
        matmul_task(4).tune(options(2, measure_callbacks=[Measured()]))
    assert caught.value.__notes__[0].startswith("Measured.callback was told of a result when this was raised")
    for callback, method in ((Early(), "Early.pre_tune"), (Late(), "Late.post_tune")):
        with pytest.raises(RuntimeError, match="mine") as caught:
            scheduler([matmul_task(4)], callbacks=[callback]).tune(options(4), "sketch.random")
        assert caught.value.__notes__[0].startswith(f"{method} was told of task 0, matmul 4 when this was")


@pytest.mark.parametrize("given", [ansor.RecordToFile, ["log.json"], [ansor.WarmStart], "log.json"])
def test_what_is_no_list_of_callbacks_is_refused(given: Any) -> None:
    with pytest.raises(ansor.DefinitionError, match=r"init_search_callbacks=.*PreloadMeasuredStates"):
        SketchPolicy(matmul_task(4), init_search_callbacks=given)


def test_the_table_names_every_task_and_the_total() -> None:
    pair = [matmul_task(8), matmul_task(16, desc="a <layer> with a very long name " * 4)]
    text = io.StringIO()
    chosen = scheduler(pair, callbacks=[PrintTableInfo(text)])
    chosen.tune(options(8, verbose=1), "sketch.random")
    tables = text.getvalue().split("Estimated total latency: ")
    assert len(tables) == 1 + 6  # Of both tasks one program, another, and two more.
    assert tables[1].startswith("-  Trials: 0")
    assert " ms (without 1 task that no program is known of)  Trials: 1" in tables[2]
    row = next(line for line in tables[5].splitlines() if "matmul 8" in line)
    assert row.split("|")[4].strip() == "4"
    assert max(map(len, text.getvalue().splitlines())) < 140
    chosen.dead_reasons[0] = "the last 1000 trials brought no improvement (early_stopping=1000)"
    assert "brought no improvement (early_stoppi...\n" in progress_table(chosen)
    silent = io.StringIO()
    scheduler(pair, callbacks=[PrintTableInfo(silent)]).tune(options(4), "sketch.random")
    assert silent.getvalue() == ""


def test_the_latency_log_is_continued_not_replaced(tmp_path: Path) -> None:
    pair = [matmul_task(n) for n in (8, 16)]
    log, history = tmp_path / "log.json", tmp_path / "latency" / "total.tsv"
    scheduler(pair, callbacks=[LogEstimatedLatency(history)]).tune(options(12, log), "sketch.random")
    first = history.read_text().splitlines()
    assert [line.split("\t")[0::2] for line in first] == [
        ["ElapsedTime(s)", "EstimatedLatency(ms)", "Trials"]
    ] * 7
    assert [line.split("\t")[5] for line in first] == ["1", "2", "3", "4", "6", "8", "12"]
    assert first[0].split("\t")[3] == "N/A"
    history.write_text("\n".join([*first[:-1], first[-1].replace(first[-1].split("\t")[1], "100.5", 1), ""]))
    chosen = scheduler(pair, callbacks=[LogEstimatedLatency(history)])
    chosen.tune(options(8, log), "sketch.random")
    rows = [line.split("\t") for line in history.read_text().splitlines()]
    assert [row[5] for row in rows[6:]] == ["12", "16", "20"]
    assert all(float(row[1]) >= 100.5 for row in rows[7:])
    assert float(rows[-1][3]) == pytest.approx(1e3 * chosen.cur_score, rel=1e-5)


def test_a_latency_log_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("total_latency.tsv").mkdir()
    result = TaskScheduler([matmul_task(8)]).tune(options(12, tmp_path / "log.json"), "sketch.random")
    assert result.trials == 12
    assert [record.message.count("estimated latencies are not logged") for record in caplog.records] == [1]


@pytest.mark.parametrize("odd", [b"\xff\xfe\n", b"ElapsedTime(s)\t1.2.3\tx\t1\tTrials\t3\n"])
def test_a_latency_log_goes_on_behind_what_is_not_understood(tmp_path: Path, odd: bytes) -> None:
    """Of a file that somebody else wrote to, too, the last line that says a time counts."""
    log, history = tmp_path / "log.json", tmp_path / "total.tsv"
    before = b"ElapsedTime(s)\t100.5\tEstimatedLatency(ms)\t1\tTrials\t4\n" + odd
    matmul_task(8).tune(options(4, log))
    history.write_bytes(before)
    scheduler([matmul_task(8)], callbacks=[LogEstimatedLatency(history)]).tune(options(4, log))
    assert history.read_bytes().startswith(before)
    added = history.read_bytes()[len(before) :].decode().splitlines()
    assert added
    assert all(float(line.split("\t")[1]) >= 100.5 for line in added)


def test_time_passes_whatever_is_done_to_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = scheduler([matmul_task(8)])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    assert 0 < chosen.tune(options(4), "sketch.random").elapsed_seconds < 600


def test_time_goes_on_when_a_scheduler_tunes_again(tmp_path: Path) -> None:
    log, history = tmp_path / "log.json", tmp_path / "total.tsv"
    chosen = scheduler([matmul_task(8)], callbacks=[LogEstimatedLatency(history)])
    for _ in range(2):
        time.sleep(0.2)  # Between runs, and before the first: no run's own time
        chosen.tune(options(4, log), "sketch.random")
        *rest, last = history.read_text().splitlines()
        history.write_text("\n".join([*rest, last.replace(last.split("\t")[1], "100.5", 1), ""]))
    elapsed = [float(line.split("\t")[1]) for line in history.read_text().splitlines()]
    before = elapsed.index(100.5)
    assert all(each >= 100.5 for each in elapsed[before:])


def test_real_measurements_of_two_tasks(tmp_path: Path) -> None:
    pair = [matmul_task(n) for n in (8, 16)]
    log = tmp_path / "log.json"
    with LocalRunner(min_repeat_ms=1, number=1) as runner:
        chosen = scheduler(pair)
        result = chosen.tune(
            TuningOptions(
                num_measure_trials=6,
                num_measures_per_round=2,
                verbose=0,
                runner=runner,
                measure_callbacks=[RecordToFile(log)],
            )
        )
    assert result.trials == 6
    assert all(cost < 1 for cost in chosen.best_costs)
    for task in pair:
        schedule, args = task.apply_best(log)
        module = ansor.build(schedule, args, target=task.target)
        n = args[0].shape[0]
        arrays = [np.ones((n, n), np.float32) for _ in range(2)]
        np.testing.assert_allclose(module(*arrays), arrays[0] @ arrays[1])


@pytest.mark.parametrize("policy", ["default", "sketch.xgb"])
def test_a_shared_learned_model_resumes_too(policy: Any, tmp_path: Path) -> None:
    """What the model of all tasks learned, and in which order, follows from the log."""
    pair = [matmul_task(n) for n in (16, 24)]
    whole, pieces = tmp_path / "whole.json", tmp_path / "pieces.json"
    scheduler(pair).tune(options(24, whole), policy)
    for after in (5, 9):
        machine = FakeMachine(interrupt_after=after)
        scheduler(pair).tune(options(24, pieces, machine=machine), policy)
    scheduler(pair).tune(options(10, pieces), policy)
    assert logged(pieces) == logged(whole)


def test_a_task_that_cannot_run_here_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    far = "llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64"
    pair = [matmul_task(4), matmul_task(8, target=far)]
    machine = FakeMachine()
    with LocalRunner() as runner, pytest.raises(ansor.TargetError, match=r"task 1, matmul 8: .* riscv64"):
        scheduler(pair).tune(options(4, log, builder=machine, runner=runner), "sketch.random")
    assert not log.exists()
    assert not machine.ran


def test_one_computation_under_two_layout_options_is_two_tasks(tmp_path: Path) -> None:
    """Each has its own records, also when the run goes on."""
    pair = [
        SearchTask("ansor.dense", (8, 8, 8), target=HOST, layout_rewrite_option=option) for option in (0, 2)
    ]
    log = tmp_path / "log.json"
    for trials in (2, 4):
        result = scheduler(pair, strategy="round-robin").tune(
            options(2, log, num_measures_per_round=1), "sketch.random"
        )
        recorded = Counter(inp.task.layout_rewrite_option for inp, _ in load_records(log))
        assert recorded == {0: trials // 2, 2: trials // 2}
        assert [part.known_trials for part in result.results] == [trials // 2] * 2
    with pytest.raises(ansor.DefinitionError, match="tasks 1 and 2 are both"):
        scheduler([*pair, pair[1]])
    policies = [SketchPolicy(task, ansor.RandomModel()) for task in reversed(pair)]
    with pytest.raises(ansor.DefinitionError, match="in the order of the tasks"):
        scheduler(pair).tune(options(2), policies)


class FailingFirst(FakeMachine):
    """The first programs that run time out."""

    bad = 2

    def run_each(self, inputs: Any, builds: Any) -> Any:
        for result in super().run_each(inputs, builds):
            self.bad -= 1
            yield MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 0.1, 1) if self.bad >= 0 else result


def test_a_task_is_not_given_up_for_its_first_failures(tasks: list[SearchTask], tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    scheduler = TaskScheduler(tasks[:2], callbacks=[])
    chosen = options(20, log, machine=FailingFirst(), num_measures_per_round=1)
    result = scheduler.tune(chosen)
    assert scheduler.dead_reasons == {}
    assert all(one.best_cost is not None for one in result.results)


def test_tasks_whose_log_holds_failures_only_are_tried_again(tasks: list[SearchTask], tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    broken = FakeMachine(fails=lambda _: True)
    spoiled = scheduler(tasks[1:3]).tune(options(100, log, machine=broken), "sketch.random")
    assert spoiled.stop_reason is StopReason.NO_PROGRAM
    result = scheduler(tasks[1:3]).tune(options(40, log), "sketch.random")
    assert result.trials > 0
    assert all(one.best_cost is not None for one in result.results)


def test_a_machine_that_was_broken_for_several_runs_is_found_to_work(
    tasks: list[SearchTask], tmp_path: Path
) -> None:
    """However many rounds of failures the log answers by itself, and whatever cuts the runs that follow."""
    pair = tasks[1:3]
    spoiled, whole, pieces = (tmp_path / f"{name}.json" for name in ("spoiled", "whole", "pieces"))
    for budget, trials in ((100, 32), (100, 8), (6, 6)):
        broken = options(budget, spoiled, machine=FakeMachine(fails=lambda _: True))
        assert scheduler(pair).tune(broken, "sketch.random").trials == trials
    whole.write_text(spoiled.read_text())
    result = scheduler(pair).tune(options(40, whole), "sketch.random")
    assert result.trials == 40
    assert all(one.best_cost is not None for one in result.results)
    pieces.write_text(spoiled.read_text())
    for budget in (3, 1, 6, 30):
        assert scheduler(pair).tune(options(budget, pieces), "sketch.random").trials == budget
    assert logged(pieces) == logged(whole)


@pytest.mark.parametrize("limits", [{"per_task_early_stopping": 12}, {"early_stopping": 12}])
def test_tasks_that_failed_are_tried_again_once_the_others_are_done(
    limits: dict[str, int], tmp_path: Path
) -> None:
    pair, log = [matmul_task(n) for n in (4, 8)], tmp_path / "log.json"
    bad = pair[1].workload_key
    machine = FakeMachine(fails=lambda inp: inp.task.workload_key == bad)
    usual = {"max_families": 8}
    scheduler(pair).tune(options(40, log, machine=machine), "sketch.random", usual)
    each = limits.get("per_task_early_stopping")
    many = 4000
    chosen = options(many, log, early_stopping=limits.get("early_stopping"))

    def run() -> ansor.SchedulerResult:
        return scheduler(pair).tune(chosen, "sketch.random", usual, per_task_early_stopping=each)

    # The first run that has nothing else to do: the one before may have found more of the other task.
    runs = (run() for _ in range(3))
    result = next(one for one in runs if all(task.best_cost is not None for task in one.results))
    assert 0 < result.trials < many
    assert "brought no improvement" in result.message
    assert any(run().trials == 0 for _ in range(8))  # It comes to an end, too.
