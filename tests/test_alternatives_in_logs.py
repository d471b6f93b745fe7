"""Logs of tasks with alternatives: one task to whoever reads them, speeds in its FLOPs, the winner named."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.task import registry
from measure import (
    MeasureInput,
    MeasureResult,
    ProgramMeasurer,
    dump_record_to_string,
    load_record_from_string,
    load_records,
)
from measure.records.groups import TaskGroups
from measure.records.record import LoggedState, LoggedTask, computation_of, direct_key
from measure.records.targets import runs_on
from search import search_task
from search.cli.main import run
from search.report.belief import believed
from search.report.data import read_history
from search.report.page import report_page
from tests.fake_machine import FakeMachine, options
from tests.test_reuse_records import check_tvm_line

HOST = "llvm -num-cores=2"
N = 8
DIRECT, TURNED = f'["tests.square", {N}]', f'["tests.square_turned", {N}]'
FLOPS = 2 * N**3


@ansor.register_workload("tests.square")
def square(n: int) -> list[te.Tensor]:
    x = te.placeholder((n, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    return [x, te.compute((n, n), lambda i, j: te.sum(x[i, k] * x[k, j], axis=k), name="Square")]


@ansor.register_workload("tests.square_turned")
def square_turned(n: int) -> list[te.Tensor]:
    """The same from a copy, with twice as many operations."""
    x = te.placeholder((n, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    turned = te.compute((n, n), lambda j, k: x[k, j] * 1.0, name="Turned")
    halves = te.compute(
        (n, n),
        lambda i, j: te.sum(x[i, k] * turned[j, k] * 0.5 + x[i, k] * turned[j, k] * 0.5, axis=k),
        name="Product",
        attrs={"layout_free_placeholders": [x]},
    )
    return [x, halves]


def task_of(**changes: int) -> ansor.SearchTask:
    calls = [("tests.square_turned", (N,))]
    return ansor.SearchTask("tests.square", (N,), target=HOST, alternatives=calls, **changes)


def save(log: Path, task: ansor.Task, milliseconds: Sequence[float]) -> None:
    """Append a record of another program for each run time; 0 for a failure."""
    start = ansor.State.initial(task.compute_dag)
    for number, time in enumerate(milliseconds):
        result = MeasureResult((time * 1e-3,), all_cost=1.0, timestamp=1700000000)  # type: ignore[arg-type]
        if not time:
            result = MeasureResult.failed(ansor.MeasureErrorNo.RUN_TIMEOUT, "", 1.0, 1700000000)
        state = start.split(len(task.compute_dag.ops) - 1, 0, [number + 1])
        ansor.save_records(log, [MeasureInput(task, state)], [result])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Both algorithms in turn, of which the alternative is twice as fast."""
    path, task = tmp_path / "log.json", task_of()
    for one, times in zip(task.algorithms, ((4, 2, 3), (2, 1, 0)), strict=True):
        save(path, one, times)
    return path


def without_directs(log: Path) -> None:
    """Make a log one that was written before records said of which task they are."""
    lines = [json.loads(line.removeprefix("# ansor ")) for line in log.read_text().splitlines()]
    before = [line | {"v": line["v"].partition(",direct=")[0]} for line in lines]
    log.write_text("".join(json.dumps(line) + "\n" for line in before))


# -- the record --------------------------------------------------------------------------------------


def test_a_record_of_an_alternative_says_of_which_task_it_is() -> None:
    """Behind the version, where TVM takes any text; one of the task itself has nothing to say."""
    task = task_of()
    result = MeasureResult((1e-3,), timestamp=1, disturbed=2)  # type: ignore[arg-type]
    cpu = runs_on(task).cpu
    for one, facts in zip(task.algorithms, ("", f",direct={DIRECT}"), strict=True):
        line = dump_record_to_string(MeasureInput(one, ansor.State.initial(one.compute_dag)), result)
        check_tvm_line(line)
        assert json.loads(line)["v"] == f"v0.6+disturbed=2,dag={computation_of(one)},cpu={cpu}{facts}"
        inp, read = load_record_from_string(line)
        assert (inp.task.workload_key, read.disturbed) == (one.workload_key, 2)
        assert direct_key(inp.task) == direct_key(one)
        recovered = ansor.recover_measure_input(inp, rebuild_state=True)
        assert dump_record_to_string(recovered, read) == line


@pytest.mark.parametrize("key", ["my layer", '["a", "disturbed=9,redone=9"]', '["a, direct=b", "\\n", "é"]'])
@pytest.mark.parametrize("disturbed", [0, 3])
def test_the_key_of_the_task_may_be_any_text(key: str, disturbed: int) -> None:
    inp = MeasureInput(LoggedTask("mine", "llvm", direct=key), LoggedState(()))
    result = MeasureResult((1e-3,), disturbed=disturbed)  # type: ignore[arg-type]
    again, read = load_record_from_string(dump_record_to_string(inp, result))
    assert (direct_key(again.task), read.disturbed, read.redone) == (key, disturbed, 0)


def test_a_recovered_record_is_checked_against_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is right is what the task computes, also when a program is measured out of a log."""
    monkeypatch.setattr(registry, "_FUNCTIONS", dict(registry._FUNCTIONS))

    @ansor.register_workload("tests.square_wrong")
    def square_wrong(n: int) -> list[te.Tensor]:
        x, result = square_turned(n)
        return [x, te.compute((n, n), lambda i, j: result[i, j] + 1.0, name="Wrong")]

    alone = ansor.SearchTask("tests.square_wrong", (N,), target=HOST)
    state = ansor.State.initial(alone.compute_dag)
    line = dump_record_to_string(MeasureInput(alone, state), MeasureResult((1e-3,)))  # type: ignore[arg-type]
    version = json.loads(line)["v"]
    of_another = line.replace(f'"{version}"', json.dumps(f"{version},direct={DIRECT}"))
    inputs = [load_record_from_string(text)[0] for text in (line, of_another)]
    builder, runner = ansor.LocalBuilder(n_parallel=1), ansor.LocalRunner(1, 1, 1, 0)
    with builder, runner:
        results = runner.run(inputs, builder.build(inputs))
    assert [result.error_no.name for result in results] == ["NO_ERROR", "WRONG_ANSWER"]


# -- who reads it ------------------------------------------------------------------------------------


def test_best_has_one_line_for_a_task(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["best", str(log)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"tests.square({N}) by tests.square_turned({N})  0.00102 GFLOP/s (1.00 ms)")
    assert "6 trials, 1 failed" in line
    assert run(["best", str(log), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["workload"], row["algorithm"]) == (json.loads(DIRECT), json.loads(TURNED))
    assert row["best_gflops"] == pytest.approx(FLOPS / 1e-3 / 1e9)


def test_the_report_has_one_curve_for_a_task(log: Path) -> None:
    history = read_history(log)
    (task,) = history.tasks
    assert (task.title, task.flops) == (f"tests.square({N})", FLOPS)
    assert task.best is not None
    assert (task.best.trial, task.best.algorithm, len(task.attempts)) == (5, TURNED, 6)
    assert {key: len(attempts) for key, attempts in task.algorithms.items()} == {DIRECT: 3, TURNED: 3}
    assert [attempt.trial for attempt in task.improvements] == [1, 2, 5]
    state = task.state_of(task.best)
    assert state is not None
    assert state.dag.outputs[0].name == "Product"
    page = report_page(history)
    assert f"best, trial 5 by tests.square_turned({N})" in page
    assert ">Algorithm</th>" in page
    assert "Turned" in page


def test_a_report_on_a_task_alone_speaks_of_no_algorithm(tmp_path: Path) -> None:
    save(tmp_path / "log.json", ansor.SearchTask("tests.square", (N,), target=HOST), (1, 2))
    page = report_page(read_history(tmp_path / "log.json"))
    assert ">Algorithm</th>" not in page
    assert " by tests." not in page


def test_a_model_is_taught_and_asked_by_algorithm(log: Path) -> None:
    """Of programs of different algorithms it does not say which is faster."""

    class Asked(ansor.CostModel):
        def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
            for inp in inputs:
                assert isinstance(inp.task, ansor.Task)
                assert isinstance(inp.state, ansor.State)
                assert inp.task.dag is inp.state.dag

        def predict(self, task: ansor.Task, candidates: Sequence[ansor.State]) -> Any:
            assert {id(state.dag) for state in candidates} == {id(task.dag)}
            return np.array([state.steps[0].lengths[0] for state in candidates], float)  # type: ignore[attr-defined]

    belief = believed(read_history(log).tasks[0], Asked(), round_size=4)
    assert not isinstance(belief, str)
    assert sorted(attempt.trial for attempt, _ in belief.pairs) == [1, 2, 3, 4, 5, 6]
    # 4, 2, 3 ms are scored 1, 2, 3, and so are 2, 1 ms and a failure: two right of three pairs, and one.
    assert belief.order == pytest.approx((2 / 3 + 1 / 3) / 2)


WORDS = ["conv2d", "1", "8", "8", "8", "8", "3", "1", "1", "--target", HOST]
CONSTANT = ["--layout-rewrite-option", "2"]
DIRECT_CONV = "conv2d(1, 8, 8, 8, 8, 3, 1, 1)"
ERRORS = "(rounding errors about 1.7 times those of the direct form)"


@pytest.fixture
def conv(tmp_path: Path) -> Path:
    """A convolution, and Winograd's algorithm with prepared weights, of which nobody lays out the first."""
    path = tmp_path / "conv.json"
    args = (1, 8, 8, 8, 8, 3, 1, 1)
    for option, times in ((0, (4, 3)), (2, (2, 1))):
        calls = [(f"ansor.conv2d_winograd{'_prepared' if option else ''}", (1, 8, 8, 8, 8, 2, 1, "float32"))]
        task = ansor.SearchTask(
            "ansor.conv2d", args, target=HOST, layout_rewrite_option=option, alternatives=calls
        )
        for one, time in zip(task.algorithms, times, strict=True):
            save(path, one, (time,))
    return path


def test_wherever_the_best_algorithm_is_named_its_rounding_errors_are(
    conv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once beside each task; points of a curve, of which there are many, name the algorithm alone."""
    assert run(["best", str(conv)]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert f", 2, 1, float32) {ERRORS}  " in line
    page = report_page(read_history(conv))
    for place in ("</a> by ", "best, trial 2 by ", '<td class="text">'):
        rest = page.partition(f"{place}conv2d_winograd(")[2]
        assert rest.partition("float32) ")[2].startswith(ERRORS), place
    assert page.count(ERRORS) == 3 * 2
    task = ansor.SearchTask(
        "ansor.conv2d",
        (1, 8, 8, 8, 8, 3, 1, 1),
        target=HOST,
        alternatives=[("ansor.conv2d_winograd", (1, 8, 8, 8, 8, 2, 1, "float32"))],
    )
    result = task.tune(options(0, conv))
    assert f", float32) {ERRORS}, 1 repeat" in str(result)


@pytest.mark.parametrize("command", ["best", "explain"])
@pytest.mark.parametrize(
    ("option", "winner", "milliseconds", "line"),
    [
        ([], "conv2d_winograd(1, 8, 8, 8, 8, 2, 1, float32)", "3.00", 2),
        (
            ["--layout-rewrite-option", "2"],
            "conv2d_winograd_prepared(1, 8, 8, 8, 8, 2, 1, float32)",
            "1.00",
            4,
        ),
    ],
)
def test_best_and_explain_show_the_program_of_the_winner(
    conv: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    option: list[str],
    winner: str,
    milliseconds: str,
    line: int,
) -> None:
    """The words name the task alone; rates are in its FLOPs, and trials are counted as in the report."""
    assert run([command, str(conv), *WORDS, *option]) == 0
    out = capsys.readouterr().out
    first = out.splitlines()[0]
    assert first.startswith(f"{DIRECT_CONV} by {winner} {ERRORS}: ")
    assert f" GFLOP/s ({milliseconds} ms)" in first
    assert first.endswith(f"(trial 2, {conv}:{line})")
    assert "Products" in out
    assert run([command, str(conv), *WORDS, *option, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["workload"][0], f"ansor.{winner}".startswith(shown["algorithm"][0])) == (
        "ansor.conv2d",
        True,
    )
    history = read_history(conv)
    assert [(task.layouts, task.best and task.best.trial) for task in history.tasks] == [(0, 2), (2, 2)]
    if command == "best":
        assert run(["best", str(conv), *WORDS, *option, "--code"]) == 0
        assert "Products" in capsys.readouterr().out


def test_the_command_line_tunes_the_algorithms_of_the_catalogue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the layout option that is asked for; where it has none, it says so."""
    scales = {"conv2d": 3e-3, "conv2d_winograd": 1e-3, "conv2d_winograd_prepared": 3e-4}
    machine = FakeMachine(scale=lambda inp: scales[json.loads(inp.task.workload_key)[0].partition(".")[2]])
    monkeypatch.setattr(
        search_task,
        "open_measurer",
        lambda options: nullcontext(ProgramMeasurer(machine, machine, options.measure_callbacks or ())),
    )
    log = str(tmp_path / "log.json")
    for option, winner in (([], "conv2d_winograd("), (CONSTANT, "conv2d_winograd_prepared(")):
        words = ["tune", *WORDS, *option, "--alternatives", "--policy", "random", "--log", log]
        assert run([*words, "--trials", "6", "--round", "6", "--quiet"]) == 0
        out = capsys.readouterr().out
        told = out.partition("best: ")[2]
        assert f" by {winner}" in told
        assert ") (rounding errors about " in told
        assert run([*words, "--trials", "0", "--quiet", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["algorithm"][0] == f"ansor.{winner[:-1]}"
        assert run(["best", log, *WORDS, *option]) == 0
        assert capsys.readouterr().out.startswith(f"{DIRECT_CONV} by {winner}")
    scales["matmul"] = 1e-3
    words = ["tune", "matmul", "8", "8", "8", "--alternatives", "--policy", "empty", "--log", log]
    assert run([*words, "--trials", "1"]) == 0
    assert "the catalogue has no other algorithm for matmul(8, 8, 8)" in capsys.readouterr().err


def test_an_algorithm_that_is_not_known_here_is_passed_over(
    conv: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task is shown without it; a list of what a log holds has its time all the same."""
    known = {key: one for key, one in registry._FUNCTIONS.items() if key != "ansor.conv2d_winograd"}
    monkeypatch.setattr(registry, "_FUNCTIONS", known)
    caplog.set_level(logging.WARNING)
    assert run(["best", str(conv), *WORDS]) == 0
    assert capsys.readouterr().out.startswith(f"{DIRECT_CONV}: ")
    assert "records of conv2d_winograd(1, 8, 8, 8, 8, 2, 1, float32), an algorithm of" in caplog.text
    for command in (["best", str(conv)], ["report", str(conv)]):
        assert run(command) == 0
    assert f"{DIRECT_CONV} by conv2d_winograd(1, " in capsys.readouterr().out


def test_distilling_keeps_the_best_of_each_algorithm_and_what_they_are_of(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a build by either finds it, a log goes on, and a reader sees one task."""
    out = tmp_path / "best.json"
    for _ in range(2):
        assert run(["distill", str(log), "-o", str(out)]) == 0
        assert "the best of 1 task by each of 2 algorithms, from " in capsys.readouterr().out
        assert [inp.task.workload_key for inp, _ in load_records(out)] == [DIRECT, TURNED]
    (task,) = read_history(out).tasks
    assert task.flops == FLOPS
    assert task_of().best_record(out).result.mean_cost == 1e-3
    assert ansor.SearchTask("tests.square", (N,), target=HOST).best_record(out).result.mean_cost == 2e-3
    tvm = tmp_path / "tvm.json"
    assert run(["distill", str(log), "-o", str(tvm), "--tvm"]) == 0
    for line in tvm.read_text().splitlines():
        check_tvm_line(line)


@pytest.mark.usefixtures("small_searches")
def test_the_result_of_a_run_names_the_algorithm(tmp_path: Path) -> None:
    """Where it is an alternative; a log that is only read gives the same."""
    task = task_of()
    machine = FakeMachine(scale=lambda inp: 1e-3 if "turned" in inp.task.workload_key else 3e-3)
    for trials in (4, 0):
        result = task.tune(options(trials, tmp_path / "log.json", machine=machine))
        assert result.algorithm is task.alternatives[0]
        assert f" ms) by tests.square_turned({N}), 1 repeat" in str(result)
    alone = ansor.SearchTask("tests.square", (N,), target=HOST)
    result = alone.tune(options(1, tmp_path / "alone.json", machine=machine))
    assert result.algorithm is alone
    assert " by " not in str(result)


# -- records that say nothing --------------------------------------------------------------------------


def rows(log: Path) -> list[tuple[str, int]]:
    return [(task.key, len(task.attempts)) for task in read_history(log).tasks]


def test_a_log_of_before_is_read_as_before(log: Path) -> None:
    without_directs(log)
    assert rows(log) == [(DIRECT, 3), (TURNED, 3)]
    assert task_of().best_record(log).result.mean_cost == 1e-3


def test_a_log_of_before_that_goes_on_is_of_one_task(log: Path, tmp_path: Path) -> None:
    """What is said once counts for all records of the workload, in several logs, and of a distilled one."""
    without_directs(log)
    later = tmp_path / "later.json"
    save(later, task_of().alternatives[0], (0.5, 7))
    log.write_text(log.read_text() + later.read_text())
    assert rows(log) == [(DIRECT, 6)]
    out = tmp_path / "best.json"
    ansor.distill_record_file([later], out)
    first = tmp_path / "first.json"
    save(first, ansor.SearchTask("tests.square_turned", (N,), target=HOST), (9, 0.25))
    assert rows(first) == [(TURNED, 2)]
    ansor.distill_record_file([first], out)
    assert [direct_key(inp.task) for inp, _ in load_records(out)] == [DIRECT]


def test_two_tasks_that_are_each_other_s_alternatives_stay_two(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    other = ansor.SearchTask("tests.square_turned", (N,), target=HOST, alternatives=[("tests.square", (N,))])
    for task, times in ((task_of(), (1, 2)), (other, (3, 4))):
        for number, one in enumerate(task.algorithms):
            save(log, one, times[number : number + 1] if task is other else times)
    groups = TaskGroups(load_records(log))
    assert {groups.of(inp).workload for inp, _ in groups.records} == {DIRECT, TURNED}
    assert sum(count for _, count in rows(log)) == 4  # The other's programs are the same ones.


def test_a_layout_option_that_matters_to_one_algorithm_matters_to_the_task(tmp_path: Path) -> None:
    """The direct form has nothing to lay out here, its alternative has."""
    log = tmp_path / "log.json"
    for one in task_of(layout_rewrite_option=2).algorithms:
        save(log, one, (1,))
    (task,) = read_history(log).tasks
    assert task.layouts == 2
    assert len(task.attempts) == 2
