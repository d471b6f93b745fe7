"""What a result counts for: the conditions of its record, and one program whatever wrote the line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor import te
from ansor.task.isa import cpu_name
from costmodel import Collector
from measure import MeasureErrorNo, MeasureResult, load_best_record, load_records, save_records
from measure.records.record import LoggedTask, Seconds
from measure.records.targets import RunsOn, runs_on, target_group
from measure.simulate import SimulatedRunner
from search import PreloadMeasuredStates, SearchTask, TaskScheduler
from search.cli.main import run
from search.cli.show import summarize
from search.dispatch import Query
from search.report.data import read_history
from tests.costmodel_fakes import LoopFeatures
from tests.search_fakes import logged, options

pytestmark = pytest.mark.usefixtures("small_searches")
ONE, TWO = "llvm -num-cores=1", "llvm -num-cores=2"
PARAMS = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 1, "max_families": 8}


def matmul_for(target: str) -> SearchTask:
    return SearchTask(func="ansor.matmul", args=(32, 32, 32), target=target)


@pytest.mark.parametrize("other", [TWO, "llvm -mcpu=x86-64 -num-cores=1", "llvm"])
def test_results_for_another_target_are_no_known_results(
    tmp_path: Path, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log.json"
    matmul_for(other).tune(options(3, log))
    task = matmul_for(ONE)
    result = task.tune(options(2, log))
    assert (result.trials, result.known_trials) == (2, 2)
    told = caplog.text.replace(" -keys=cpu", "")
    assert (
        f"not used as known results: 3 records of matmul(32, 32, 32) measured for the target {other}\n"
        in told
    )
    assert not PreloadMeasuredStates(log).known(matmul_for("llvm -num-cores=4"))
    assert len(PreloadMeasuredStates(log).known(task)) == 2


def test_the_best_program_is_one_for_just_the_target_if_there_is_any(tmp_path: Path) -> None:
    log = str(tmp_path / "log.json")
    tasks = {target: matmul_for(target) for target in (ONE, TWO)}
    for cost, task in zip((2e-3, 1e-3), tasks.values(), strict=True):
        state = ansor.State.initial(task.compute_dag)
        save_records(log, [ansor.MeasureInput(task, state)], [MeasureResult((Seconds(cost),))])
    found = {target: task.best_record(log).result.mean_cost for target, task in tasks.items()}
    assert found == {ONE: 2e-3, TWO: 1e-3}
    assert matmul_for("llvm").best_record(log).result.mean_cost == 1e-3
    best = ansor.ApplyHistoryBest(log)
    for target, cost in found.items():
        hit = best.lookup(Query.of(tasks[target]))
        assert hit is not None
        assert hit.seconds == cost


def test_a_scheduler_of_one_computation_for_two_numbers_of_cores_goes_on_from_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [matmul_for(ONE), matmul_for(TWO)]

    def run(trials: int, log: Path) -> Any:
        scheduler = TaskScheduler(tasks, callbacks=[])
        return scheduler.tune(options(trials, log), search_policy_params=PARAMS)

    whole, parts = tmp_path / "whole.json", tmp_path / "parts.json"
    run(40, whole)
    for trials in (10, 30):
        result = run(trials, parts)
    assert sum(one.known_trials for one in result.results) == 40
    assert [logged(parts, task) for task in tasks] == [logged(whole, task) for task in tasks]
    assert "not used" not in caplog.text


def moved(log: Path, speed: float) -> None:
    """Rewrite a log as if it came from a machine with 16 cores that is so many times as fast."""
    text = re.sub(r"\[-?\d+, 64, 64, 0, 0, 0, 0, 0\]", "[16, 64, 64, 0, 0, 0, 0, 0]", log.read_text())
    log.write_text(re.sub(r'"r": \[\[([^\]]*)\]', lambda m: f'"r": [[{float(m[1]) / speed}]', text))


def test_finals_on_a_log_of_another_machine_say_which_program_is_best(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    task = SearchTask(func="ansor.matmul", args=(16, 16, 16))
    task.tune(options(4, log))
    moved(log, speed=1e3)
    result = task.tune(
        ansor.TuningOptions(
            num_measure_trials=1, verbose=0, num_finalists=5, measure_callbacks=[ansor.RecordToFile(log)]
        )
    )
    found = task.best_record(log)
    assert result.best_cost == pytest.approx(found.result.mean_cost)
    assert len(found.result.costs) > 1


def test_a_wrong_answer_counts_on_a_log_of_another_machine(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    task = SearchTask(func="ansor.matmul", args=(16, 16, 16))
    task.tune(options(2, log))
    moved(log, speed=1e3)
    (first, _), (second, _) = sorted(load_records(log), key=lambda record: record[1].mean_cost)
    wrong = MeasureResult.failed(MeasureErrorNo.WRONG_ANSWER, "", 1.0, 1)
    here = ansor.MeasureInput(task, first.state.replay(task.compute_dag))
    save_records(log, [here], [wrong])
    assert task.best_record(log).input.state.steps == second.state.steps
    there, mine = read_history(log).tasks
    assert there.best is not None
    assert there.best.record[0].state.steps == second.state.steps
    assert there.outcomes == {MeasureErrorNo.NO_ERROR: 1, MeasureErrorNo.WRONG_ANSWER: 1}
    assert mine.best is None
    assert (there.attempts[0].first.ok, there.attempts[1].first.ok) == (True, True)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("llvm -mcpu=native", "llvm", True),
        ("llvm -model=unknown", "llvm", True),
        ("llvm -num-cores 2", "llvm -keys=cpu -num-cores=2", True),
        ("llvm -mtriple=x86_64-pc-linux-gnu", "llvm -mtriple=x86_64-linux-gnu", True),
        ("llvm", TWO, False),
        ("llvm -mcpu=znver4", "llvm", False),
        ("cuda -arch=sm_80 -max_threads_per_block=256", "cuda -arch=sm_80", False),
        ("cuda -arch=sm_80 -max_num_threads=256", "cuda -arch=sm_80 -max_num_threads=1024", False),
    ],
)
def test_times_count_for_targets_that_ask_for_the_same(one: str, other: str, same: bool) -> None:
    assert (target_group(one) == target_group(other)) is same


def test_an_algorithm_that_was_measured_for_another_target_does_not_win(tmp_path: Path) -> None:
    log = str(tmp_path / "log.json")
    args = (1, 8, 8, 4, 4, 3, 1, 1)
    ways = ansor.workloads.alternatives_of("ansor.conv2d", args, constant=True)
    one, many = (
        SearchTask(func="ansor.conv2d", args=args, target=target, layout_rewrite_option=2, alternatives=ways)
        for target in (TWO, "llvm -num-cores=64")
    )
    for cost, algorithm in ((2e-3, one.algorithms[0]), (1e-3, many.algorithms[1])):
        inp = ansor.MeasureInput(algorithm, ansor.State.initial(algorithm.compute_dag))
        save_records(log, [inp], [MeasureResult((Seconds(cost),))])
    assert one.best_record(log).result.mean_cost == 2e-3
    hit = ansor.ApplyHistoryBest(log).find(one)
    assert hit is not None
    assert hit.seconds == 2e-3


def test_a_report_takes_targets_for_one_whose_times_count_for_each_other(tmp_path: Path) -> None:
    log = str(tmp_path / "log.json")
    for target, cost in (("llvm", 2e-3), ("llvm -mcpu=native", 1e-3)):
        task = matmul_for(target)
        state = ansor.State.initial(task.compute_dag)
        save_records(log, [ansor.MeasureInput(task, state)], [MeasureResult((Seconds(cost),) * 2)])
    (found,) = read_history(log).tasks
    assert [attempt.seconds for attempt in found.attempts] == [2e-3]


def test_a_program_for_just_the_target_comes_before_one_of_the_same_name(tmp_path: Path) -> None:
    log = str(tmp_path / "log.json")
    here, there = matmul_for(TWO), matmul_for("llvm -num-cores=64")
    renamed = SearchTask(compute_dag=here.compute_dag, target=TWO)
    assert renamed.workload_key != here.workload_key
    for cost, task in ((2e-3, renamed), (1e-3, there)):
        state = ansor.State.initial(task.compute_dag)
        save_records(log, [ansor.MeasureInput(task, state)], [MeasureResult((Seconds(cost),))])
    hit = ansor.ApplyHistoryBest(log).lookup(Query.of(here))
    assert hit is not None
    assert (hit.seconds, hit.how) == (2e-3, "structure")


def test_blanks_in_the_keys_of_a_log_do_not_matter(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", matmul_for(TWO)
    task.tune(options(3, log))
    log.write_text(log.read_text().replace(r"[\"ansor.matmul\", 32, 32, 32]", r"[\"ansor.matmul\",32,32,32]"))
    assert "32,32,32" in log.read_text()
    assert len(PreloadMeasuredStates(log).known(task)) == 3


def saved(log: Path, task: SearchTask, cost: float) -> None:
    """Append a time [s] of the unscheduled program."""
    inp = ansor.MeasureInput(task, ansor.State.initial(task.compute_dag))
    save_records(log, [inp], [MeasureResult((Seconds(cost),))])


@pytest.mark.parametrize("other", [{"target": ONE}, {"target": TWO, "layout_rewrite_option": 2}])
def test_another_size_serves_only_where_there_is_none_of_this_one(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    """It comes after another target and another layout option, wherever one asks."""
    log, args = tmp_path / "log.json", (64, 64, 64)
    saved(log, SearchTask("ansor.dense", (32, 64, 64), target=TWO), 1e-4)
    task = SearchTask("ansor.dense", args, target=TWO)
    assert task.best_record(log, include_compatible=True).scale == 2
    hit = ansor.ApplyHistoryBest(log, include_compatible=True).find(task)
    assert hit is not None
    assert hit.scale == 2
    saved(log, SearchTask("ansor.dense", args, **other), 1e-3)
    assert task.best_record(log, include_compatible=True).cost == 1e-3
    hit = ansor.ApplyHistoryBest(log, include_compatible=True).find(task)
    assert hit is not None
    assert hit.seconds == 1e-3


def test_spellings_of_a_target_are_one_task_in_every_listing(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", matmul_for("llvm")
    for split, cost in ((2, 4e-3), (4, 3e-3), (8, 2e-3), (16, 1e-3)):
        state = ansor.State.initial(task.compute_dag).split(2, 0, [split])
        save_records(log, [ansor.MeasureInput(task, state)], [MeasureResult((Seconds(cost),))])
    lines = log.read_text().splitlines()
    lines[1::2] = [line.replace("-keys=cpu", "-keys=cpu -model=unknown") for line in lines[1::2]]
    log.write_text("\n".join(lines) + "\n")
    (summary,) = summarize(str(log))
    assert (summary.trials, summary.seconds) == (4, 1e-3)
    assert len(read_history(log).tasks) == 1
    assert task.best_record(log).trial == 4


def test_of_a_workload_that_was_edited_the_programs_that_still_apply_are_found(tmp_path: Path) -> None:
    """Faster records of the definition before, however many, are passed over."""

    def layer(n: int, relu: bool) -> list[te.Tensor]:
        x = te.placeholder((n, n), name="X")
        y = te.compute((n, n), lambda i, j: x[i, j] * te.const(2.0, "float32"), name="Y")
        return [x, te.compute((n, n), lambda i, j: te.max(y[i, j], 0.0), name="Z")] if relu else [x, y]

    def defined(relu: bool) -> SearchTask:
        ansor.register_workload("tests.edited", lambda n: layer(n, relu), override=True)
        return SearchTask("tests.edited", (16,), target=TWO)

    log, before = tmp_path / "log.json", defined(relu=True)
    for length in (1, 2, 4, 8, 16):
        state = ansor.State.initial(before.compute_dag).split(2, 0, [length])
        save_records(log, [ansor.MeasureInput(before, state)], [MeasureResult((Seconds(1e-3),))])
    task = defined(relu=False)
    with pytest.raises(ansor.DefinitionError, match="5 records of that name, from when the function comp"):
        task.best_state(log)
    assert ansor.ApplyHistoryBest(log).find(task) is None
    saved(log, task, 2e-3)
    assert task.best_state(log)[1] == 2e-3
    assert task.apply_best(log)[1] == list(task.compute_dag.tensors)
    hit = ansor.ApplyHistoryBest(log).find(task)
    assert hit is not None
    assert hit.seconds == 2e-3


def scaled(count: int, rows: int = 16) -> SearchTask:
    """A task of one name and one shape whose sum has so many terms: steps of one are steps of the other."""

    def layer(n: int) -> list[te.Tensor]:
        x, k = te.placeholder((n, count), name="X"), te.reduce_axis((0, count), name="k")
        return [x, te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="Y")]

    ansor.register_workload("tests.scaled", layer, override=True)
    return SearchTask("tests.scaled", (rows,), target=TWO)


def test_results_of_a_function_that_was_another_one_do_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Though its steps apply: it is tuned anew, and learned from by nobody."""
    log, small = tmp_path / "log.json", scaled(8)
    small.tune(options(4, log, runner=SimulatedRunner(lambda inp: 1e-9)))
    large = scaled(512)
    result = large.tune(options(4, log, runner=SimulatedRunner(lambda inp: 1e-3)))
    assert (result.trials, result.known_trials, result.best_cost) == (4, 4, 1e-3)
    assert (
        "not used as known results: 4 records of tests.scaled(16) when the function of that name"
        in caplog.text
    )
    assert large.best_record(log).result.mean_cost == 1e-3
    hit = ansor.ApplyHistoryBest(log).find(large)
    assert hit is not None
    assert hit.seconds == 1e-3
    assert [summary.seconds for summary in summarize(str(log))] == [1e-9, 1e-3]
    assert [summary.flops for summary in summarize(str(log))] == [0, 16 * 512]
    collector = Collector(LoopFeatures())
    collector.add_log(log)
    assert (len(collector.dataset), sum(collector.skipped.values())) == (4, 4)
    best = tmp_path / "best.json"
    assert ansor.distill_record_file(log, best).written == 2
    assert large.best_state(best)[1] == 1e-3
    (old, _), *_ = load_records(log)
    with pytest.raises(ansor.DefinitionError, match="computed something else when it was recorded"):
        ansor.recover_measure_input(old)
    small = scaled(8)
    assert small.best_state(log)[1] == 1e-9
    assert small.best_record(log).trial <= 4


def test_whoever_asks_for_the_best_is_told_of_programs_of_another_function(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Asked by key alone, or for the best of the whole log, too; once, though the log is read again."""
    log = tmp_path / "log.json"
    for count, seconds in ((8, 1e-6), (512, 2e-6)):
        task = scaled(count)
        saved(log, task, seconds)
    for key in (task.workload_key, None):
        inp, result = load_best_record(log, key)
        assert inp is not None
        assert result is not None
        assert result.mean_cost == 2e-6
        assert ansor.recover_measure_input(inp, rebuild_state=True).state == ansor.State.initial(
            task.compute_dag
        )
    assert load_best_record(log, dag=task.compute_dag)[1] == result
    why = "from when the function of that name computed something else"
    told = f"{log}: left out: 1 program of {task.workload_key} {why}"
    assert caplog.text.count(told) == 1
    task.apply_best(log)
    assert caplog.text.count(told) == 1
    caplog.clear()
    history = ansor.ApplyHistoryBest(log)
    for _ in range(2):
        history.apply(task)
    assert caplog.text.count(f"left out: 1 program of tests.scaled(16) {why}") == 1
    scaled(8)
    assert load_best_record(log)[1].mean_cost == 1e-6  # type: ignore[union-attr]


def test_results_of_a_function_that_was_another_one_count_at_no_other_size_either(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    scaled(8).tune(options(2, log, runner=SimulatedRunner(lambda inp: 1e-9)))
    twice = scaled(8, 32)
    assert twice.best_state(log, include_compatible=True)[1] == pytest.approx(1e-9)
    assert ansor.ApplyHistoryBest(log, include_compatible=True).find(twice) is not None
    assert ansor.WarmStart(log).candidates(twice)
    changed = scaled(512, 32)
    with pytest.raises(ansor.DefinitionError, match="no usable record"):
        changed.best_state(log, include_compatible=True)
    assert ansor.ApplyHistoryBest(log, include_compatible=True).find(changed) is None
    assert not ansor.WarmStart(log).candidates(changed)


def test_a_listing_says_which_results_are_of_another_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not of one without arithmetic."""
    log = tmp_path / "log.json"

    def copied(n: int) -> list[te.Tensor]:
        x = te.placeholder((n,), name="X")
        return [x, te.compute((n,), lambda i: x[i], name="Y")]

    ansor.register_workload("tests.copied", copied, override=True)
    scaled(8).tune(options(1, log, runner=SimulatedRunner(lambda inp: 1e-9)))
    scaled(512).tune(options(1, log, runner=SimulatedRunner(lambda inp: 1e-3)))
    saved(log, SearchTask("tests.copied", (16,), target=TWO), 1e-6)
    assert run(["best", str(log)]) == 0
    said = ["of another function" in line for line in capsys.readouterr().out.splitlines()]
    assert said == [True, False, False]


def test_a_record_of_before_is_measured_again_as_what_it_was(tmp_path: Path) -> None:
    """Though it says neither what it computed nor on which CPU, and the later record does."""
    log, task = tmp_path / "log.json", scaled(8)
    state = ansor.State.initial(task.compute_dag)
    save_records(log, [ansor.MeasureInput(task, state)], [MeasureResult((Seconds(1e-9),))])
    log.write_text(re.sub(r'"v0.6[^"]*"', '"v0.6"', log.read_text()))
    save_records(log, [ansor.MeasureInput(task, state)], [MeasureResult((Seconds(1e-3),) * 10)])
    assert task.best_state(log)[1] == pytest.approx(1e-3)
    hit = ansor.ApplyHistoryBest(log).find(task)
    assert hit is not None
    assert hit.seconds == pytest.approx(1e-3)
    best = tmp_path / "best.json"
    assert ansor.distill_record_file(log, best).written == 1
    wrong = MeasureResult.failed(MeasureErrorNo.WRONG_ANSWER, "", 1, 1)
    save_records(log, [ansor.MeasureInput(task, state)], [wrong])
    assert ansor.ApplyHistoryBest(log).find(task) is None


def test_a_recovered_record_says_where_it_was_measured(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", on_cores(2)
    saved(log, task, 1e-3)
    log.write_text(log.read_text().replace(f"cpu={cpu_name(task.target)}", "cpu=another"))
    ((inp, res),) = load_records(log)
    again = tmp_path / "again.json"
    save_records(again, [ansor.recover_measure_input(inp, rebuild_state=True)], [res])
    assert again.read_text() == log.read_text()


def test_a_record_that_does_not_say_what_it_computed_counts(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    scaled(8).tune(options(2, log, runner=SimulatedRunner(lambda inp: 1e-9)))
    log.write_text(re.sub(r'"v0.6[^"]*"', '"v0.6"', log.read_text()))
    assert len(PreloadMeasuredStates(log).known(scaled(512))) == 2


def test_times_on_another_cpu_are_no_known_results(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, task = tmp_path / "log.json", on_cores(2)
    task.tune(options(2, log, runner=SimulatedRunner(lambda inp: 1e-9)))
    log.write_text(log.read_text().replace(f"cpu={cpu_name(task.target)}", "cpu=another"))
    assert task.tune(options(2, log, runner=SimulatedRunner(lambda inp: 1e-3))).best_cost == 1e-3
    assert "2 records of matmul(32, 32, 32) measured on the CPU another" in caplog.text
    assert task.best_state(log)[1] == 1e-3
    assert [one.group.runs_on.cpu for one in summarize(str(log))] == ["another", cpu_name(task.target)]
    named = f"llvm -mcpu={cpu_name(task.target)} -num-cores=2"  # It says so itself.
    assert runs_on(SearchTask("ansor.matmul", (32, 32, 32), target=named)) == RunsOn()


def test_tasks_are_for_as_many_cores_as_there_are_threads() -> None:
    before = ansor.get_num_threads()
    try:
        ansor.set_num_threads(before + 1)
        assert SearchTask("ansor.matmul", (8, 8, 8)).hardware_params.num_cores == before + 1
        assert Query.of('["ansor.matmul", 8, 8, 8]').machine.cores == before + 1
    finally:
        ansor.set_num_threads(before)


def on_cores(cores: int) -> SearchTask:
    """A task as a machine with so many cores makes it, for a target that is silent about them."""
    known = ansor.HardwareParams.for_target(ansor.Target("llvm"))
    return SearchTask("ansor.matmul", (32, 32, 32), hardware_params=replace(known, num_cores=cores))


def test_times_with_another_number_of_cores_are_no_known_results(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Though the target, which names no number, is the same; the programs may begin a search all the same."""
    log, fast = tmp_path / "log.json", SimulatedRunner(lambda inp: 1e-4)
    on_cores(2).tune(options(4, log, runner=fast))
    one = on_cores(1)
    slow = one.tune(options(4, log, runner=SimulatedRunner(lambda inp: 1e-3)))
    assert (slow.trials, slow.known_trials, slow.best_cost) == (4, 4, 1e-3)
    assert "not used as known results: 4 records of matmul(32, 32, 32) measured with 2 cores\n" in caplog.text
    assert len(ansor.WarmStart(log).candidates(on_cores(4))) > 0
    for task, cost in ((one, 1e-3), (on_cores(2), 1e-4)):
        caplog.clear()
        assert task.best_state(log)[1] == cost
        hit = ansor.ApplyHistoryBest(log).find(task)
        assert hit is not None
        assert (hit.seconds, hit.foreign) == (cost, False)
        assert not caplog.text
    assert one.best_record(log).trial == 1
    assert len(ansor.settled_records(load_records(log))) == 8
    listed = [(one.group.runs_on.cores, one.trials, one.seconds) for one in summarize(str(log))]
    assert listed == [(2, 4, 1e-4), (1, 4, 1e-3)]
    cpu = cpu_name(one.target)
    assert [task.terms for task in read_history(log).tasks] == [
        f"llvm -keys=cpu, 2 cores, {cpu}",
        f"llvm -keys=cpu, 1 core, {cpu}",
    ]
    best = tmp_path / "best.json"
    assert ansor.distill_record_file(log, best).written == 2
    assert one.best_state(best)[1] == 1e-3


def test_a_record_that_does_not_tell_its_cores_is_known_whatever_they_were(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    saved(log, on_cores(2), 1e-3)
    text = log.read_text()
    log.write_text(re.sub(r", \[2, .*?, \[\]\]", "]", text, count=1))
    ((inp, _),) = load_records(log)
    assert isinstance(inp.task, LoggedTask)
    assert inp.task.hardware is None
    assert len(PreloadMeasuredStates(log).known(on_cores(1))) == 1


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (lambda: matmul_for(TWO), "measured for the target llvm"),
        (lambda: on_cores(1), "measured with 2 cores"),
    ],
)
def test_a_program_that_was_measured_under_other_conditions_is_applied_with_a_warning(
    asks: Callable[[], SearchTask], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log.json"
    saved(log, on_cores(2), 1e-3)
    on_cores(2).best_state(log)
    assert not caplog.text
    task = asks()
    for ask in (task.best_state, task.apply_best, task.print_best):
        caplog.clear()
        ask(log)
        assert said in caplog.text
        assert "its time is not that of this program here" in caplog.text
    assert said in str(task.best_record(log))
