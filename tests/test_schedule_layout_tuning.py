"""Tuning under a layout option: what is measured, recorded, resumed, fetched and printed."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.layout import layout_of
from ansor.schedule.state import State
from ansor.schedule.steps import RewriteLayoutStep
from ansor.task.task import Task
from measure.layouts import argument_digits, built_state
from search.cli.main import run

pytestmark = pytest.mark.usefixtures("small_searches", "kept_workers")

OPTIONS = [0, 1, 2]


def make_task(option: int) -> ansor.SearchTask:
    """Rows of the result are as good vectors as its columns: no tile is turned, and no operand packed."""
    return ansor.SearchTask(
        func="ansor.matmul_add", args=(24, 37, 24), target="llvm", layout_rewrite_option=option
    )


def tune(task: ansor.SearchTask, log: Path, trials: int = 4, seed: int = 0) -> ansor.TuningResult:
    options = ansor.TuningOptions(
        num_measure_trials=trials,
        num_measures_per_round=4,
        measure_callbacks=[ansor.RecordToFile(str(log))],
        verbose=0,
        seed=seed,
    )
    return task.tune(options)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One log with programs under every option."""
    path = tmp_path_factory.mktemp("layouts") / "log.json"
    for option in OPTIONS:
        result = tune(make_task(option), path)
        assert not result.errors, result.error_examples
        assert (result.trials, result.known_trials) == (4, 4)  # Other options' records are not known ones.
    return path


def test_records_hold_the_option_and_the_steps_as_searched(log: Path) -> None:
    """Lines that TVM reads: no step of ours, the option in the task's fifth field."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["i"][0][4] for line in lines] == [option for option in OPTIONS for _ in range(4)]
    assert not any(step[0] == "RL" for line in lines for step in line["i"][1][1])


def test_a_run_resumes_from_its_own_option_only(log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "log.json"
    copy.write_text(log.read_text())
    result = tune(make_task(2), copy, trials=2)
    assert (result.trials, result.known_trials) == (2, 6)


def test_passed_over_records_are_mentioned(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        known = ansor.PreloadMeasuredStates(str(log)).known(make_task(1))
    assert len(known) == 4
    assert "another layout_rewrite_option" in caplog.text


@pytest.mark.parametrize("option", OPTIONS)
def test_the_best_program_is_fetched_with_its_option(log: Path, option: int) -> None:
    task = make_task(option)
    sch, args = task.apply_best(str(log))
    a, b, c, out = task.compute_dag.tensors
    rng = np.random.default_rng(1)
    data = [rng.uniform(-1, 1, [int(str(s)) for s in t.shape]).astype("float32") for t in (a, b, c)]
    given = [ansor.transform_layout(array, arg) for array, arg in zip(data, args, strict=False)]
    module = ansor.build(sch, args, target="llvm")
    np.testing.assert_allclose(module(*given), data[0] @ data[1] + data[2], rtol=1e-4, atol=1e-4)
    assert (layout_of(args[1]) is None) or option == 2
    if option == 2 and layout_of(args[1]) is not None:
        with pytest.raises(ansor.ArgumentError):
            module(*data)
    assert out.shape == args[3].shape


@pytest.mark.parametrize("option", OPTIONS)
def test_the_printed_program_is_the_fetched_one(log: Path, option: int) -> None:
    task = make_task(option)
    sch, args = task.apply_best(str(log))
    names: dict[str, Any] = {}
    exec(task.print_best(str(log)), names)
    assert str(ansor.lower(names["s"], names["tensors"])) == str(ansor.lower(sch, args))


def test_the_option_can_be_chosen_when_fetching(log: Path) -> None:
    """Records under that option are preferred; where there are none, others serve."""
    task = make_task(0)
    for option in OPTIONS:
        sch, _ = task.apply_best(str(log), layout_rewrite_option=option)
        own, _ = make_task(option).apply_best(str(log))
        assert str(sch) == str(own)
    only_plain = [line for line in log.read_text().splitlines() if json.loads(line)["i"][0][4] == 0]
    other = log.with_name("plain.json")
    other.write_text("\n".join(only_plain) + "\n")
    plain, _ = make_task(0).apply_best(str(other))
    rewritten, _ = make_task(1).apply_best(str(other))
    assert rewritten.state.steps[: len(plain.state.steps)] == plain.state.steps


def test_the_record_that_was_taken_is_named(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for option in OPTIONS:
        costs = {number: fmean(lines[number]["r"][0]) for number in range(4 * option, 4 * option + 4)}
        number = min(costs, key=costs.__getitem__)
        task = make_task(option)
        found = task.best_record(str(log))
        assert (found.line, found.trial) == (number + 1, number - 4 * option + 1)
        with caplog.at_level(logging.INFO):
            task.apply_best(str(log))
        assert f"is trial {found.trial}, {log}:{found.line}" in caplog.text


@pytest.mark.parametrize("option", OPTIONS)
def test_the_command_line_shows_what_runs(
    log: Path, option: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["best", str(log), "matmul_add", "24", "37", "24"]
    task = make_task(option)
    sch, args = task.apply_best(str(log))
    found = task.best_record(str(log))
    assert run([*words, "--layout-rewrite-option", str(option)]) == 0
    shown = capsys.readouterr().out
    assert f"(trial {found.trial}, {log}:{found.line})" in shown.splitlines()[0]
    assert str(ansor.lower(sch, args, target=task.target)) in shown
    assert run(["best", str(log), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["layout_rewrite_option"], row["trials"]) for row in rows] == [(n, 4) for n in OPTIONS]
    only = tmp_path / "only.json"
    mine = [line for line in log.read_text().splitlines() if json.loads(line)["i"][0][4] == option]
    only.write_text("\n".join(mine) + "\n")
    words[1] = str(only)
    assert run([*words, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert (table["layout_rewrite_option"], table["trial"]) == (option, found.trial)
    names: dict[str, Any] = {}
    exec(table["code"], names)
    assert str(ansor.lower(names["s"], names["tensors"])) == str(ansor.lower(sch, args))


def test_a_policy_for_another_option_is_refused(tmp_path: Path) -> None:
    policy = ansor.SketchPolicy(make_task(2), ansor.RandomModel())
    with pytest.raises(ansor.DefinitionError, match="with layout_rewrite_option 2, not for"):
        make_task(0).tune(ansor.TuningOptions(num_measure_trials=1, verbose=0), policy)


def test_reasons_for_leaving_an_input_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = ansor.SearchTask(func="ansor.matmul", args=(1, 1, 1), target="llvm", layout_rewrite_option=2)
    tune(task, tmp_path / "log.json", trials=1)
    with caplog.at_level(logging.INFO):
        task.apply_best(str(tmp_path / "log.json"))
    assert "the layout of input 'B' is not rewritten: it is read in the order" in caplog.text


# -- measuring -----------------------------------------------------------------------------------------------


def packed_state(dag: ansor.ComputeDAG, lanes: int = 8) -> State:
    """A program that reads its constant in panels of so many columns."""
    stage = next(i for i, s in enumerate(State.initial(dag).stages) if s.name == "matmul")
    return State.initial(dag).split(stage, 1, [lanes]).reorder(stage, [1, 0, 3, 2])


@pytest.mark.parametrize("option", OPTIONS)
def test_what_is_built_and_fed_follows_the_option(option: int) -> None:
    task = make_task(option)
    inp = ansor.MeasureInput(task, packed_state(task.compute_dag))
    names = [stage.name for stage in built_state(inp).stages]
    assert ("B.layout" in names) == (option == 1)
    assert set(argument_digits(inp)) == ({1} if option == 2 else set())
    with (
        ansor.LocalBuilder(n_parallel=1) as builder,
        ansor.LocalRunner(number=1, min_repeat_ms=0.01) as runner,
    ):
        (result,) = runner.run([inp], builder.build([inp]))
        line = ansor.dump_record_to_string(inp, result)
        logged, _ = ansor.load_record_from_string(line)
        (again,) = runner.run([logged], builder.build([logged]))
    assert result.ok, result.error_msg
    assert again.ok, again.error_msg


def test_a_wrong_layout_is_a_wrong_answer() -> None:
    """The check feeds what the program wants: a program built for another layout does not pass it."""
    task = make_task(2)
    right = ansor.MeasureInput(task, packed_state(task.compute_dag, lanes=6))
    stage = right.state.stage_id("matmul")  # type: ignore[union-attr]
    state = State.initial(task.compute_dag).reorder(stage, [2, 1, 0])
    wrong = ansor.MeasureInput(make_task(0), state.apply(RewriteLayoutStep(1, ((1, 24, 1), (0, 37, 1)))))
    with (
        ansor.LocalBuilder(n_parallel=1) as builder,
        ansor.LocalRunner(number=1, min_repeat_ms=0.01) as runner,
    ):
        (built,) = builder.build([right])
        (swapped,) = runner.run([wrong], [built])
    assert swapped.error_no is ansor.MeasureErrorNo.WRONG_ANSWER


def test_a_program_with_a_layout_step_of_its_own_is_measured_and_recorded() -> None:
    a, b = te.placeholder((9, 7), name="A"), te.placeholder((7, 10), name="B")
    k = te.reduce_axis((0, 7), "k")
    c = te.compute((9, 10), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c)
    s.rewrite_layout(b, [(1, None), 0, (1, 4)])
    task = Task.create(ansor.ComputeDAG([a, b, c]), '["layout by hand"]', "llvm")
    inp = ansor.MeasureInput(task, s.state)
    with (
        ansor.LocalBuilder(n_parallel=1) as builder,
        ansor.LocalRunner(number=1, min_repeat_ms=0.01) as runner,
    ):
        (result,) = runner.run([inp], builder.build([inp]))
    assert result.ok, result.error_msg
    line = ansor.dump_record_to_string(inp, result)
    logged, _ = ansor.load_record_from_string(line)
    assert str(State.replay(task.compute_dag, logged.state.steps)) == str(s.state)
