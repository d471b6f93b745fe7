"""Records that TVM reads, records that it skips, and logs that hold both; distilling them."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError, LogWriteError
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.schedule.steps import SetScopeStep
from ansor.task import registry
from ansor.workloads import CATALOGUE
from measure import (
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    distill_record_file,
    load_records,
    save_records,
)
from measure.records.log import OWN_PREFIX, dump_record_to_string, load_record_from_string
from measure.records.record import LoggedState, Seconds
from search import SearchTask
from search.cli.main import run
from sketches import sample_programs
from tests.fake_machine import HOST, FakeMachine, matmul_task, options

pytestmark = pytest.mark.usefixtures("small_searches")

INT, INTS, TEXT = "int", "ints", "text"
FORMS: dict[str, tuple[str, ...]] = {
    "AN": (INT, INT, INT),
    "FU": (INT, INTS),
    "PR": (INT, INT, TEXT),
    "RE": (INT, INTS),
    "SP": (INT, INT, INT, INTS, INT),
    "FSP": (INT, INT, INT, INT),
    "FFSP": (INT, INT, INTS, INT, INT),
    "SA": (INT, INT, INT, INT),
    "CA": (INT, INT, INT),
    "CI": (INT,),
    "CR": (INT,),
    "CHR": (INT, TEXT, INTS),
    "CHW": (INT, TEXT),
    "RF": (INT, INT, INT),
}
"""Fields of every step that TVM v0.16 reads, after its code."""


def form_of(value: Any) -> str:
    if type(value) is int:
        return INT
    if isinstance(value, str):
        return TEXT
    assert isinstance(value, list)
    assert all(type(item) is int for item in value)
    return INTS


def check_tvm_line(line: str) -> None:
    """What TVM's reader wants of a line, written down without our writer."""
    data = json.loads(line)
    assert line == json.dumps(data)  # The separators are those of TVM.
    assert list(data) == ["i", "r", "v"]
    assert re.fullmatch(r"v0\.6(\+.+)?", data["v"])  # Any text would do.
    (task, state), (costs, error, all_cost, when) = data["i"], data["r"]
    key, target, hardware, host, layout, names = task
    assert isinstance(json.loads(key), list)
    assert target.split()[0] == "llvm"
    assert all(word.startswith("-") for word in target.split()[1:])
    assert len(hardware) == 8
    assert all(type(number) is int for number in hardware)
    assert isinstance(host, str)
    assert layout in (0, 1, 2)
    assert names == []
    assert state[0] == []
    for code, *fields in state[1]:
        assert tuple(map(form_of, fields)) == FORMS[code], code
        if code == "PR":
            assert re.fullmatch(r"auto_unroll_max_step\$\d+", fields[2])
        if code == "AN":
            assert 0 <= fields[2] <= 11
    assert all(isinstance(cost, float) for cost in costs)
    assert type(error) is int
    assert isinstance(all_cost, (int, float))
    assert type(when) is int


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_programs_of_the_catalogue_are_written_as_tvm_writes_them(name: str) -> None:
    entry = CATALOGUE[name]
    task = SearchTask(func=entry.registered_name, args=list(entry.small[0]), target=HOST)
    costs = (1.25e-3, 2.5e-3)
    result = MeasureResult(costs, all_cost=0.5, timestamp=1700000000, disturbed=1)  # type: ignore[arg-type]
    for state in sample_programs(task, 4, np.random.default_rng(0)):
        line = dump_record_to_string(MeasureInput(task, state), result)
        ours = not all(step.in_reference for step in state.steps)
        assert line.startswith(OWN_PREFIX) == ours
        if not ours:
            check_tvm_line(line)
        inp, res = load_record_from_string(line)
        assert (res, res.disturbed) == (result, 1)
        assert isinstance(inp.state, LoggedState)
        again = inp.state.replay(task.compute_dag)
        assert again.steps == state.steps
        assert program_key(again) == program_key(state)


def two_stage_task(n: int = 16) -> SearchTask:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    product = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="P")
    out = te.compute((n, n), lambda i, j: product[i, j] + te.const(1.0, "float32"), name="C")
    return SearchTask(compute_dag=[a, b, out], target=HOST)


def with_step_of_ours(state: State) -> State:
    return state.apply(SetScopeStep(state.stage_id("P"), "local"))


def save(log: Path, task: ansor.Task, state: State, seconds: float) -> None:
    save_records(log, [MeasureInput(task, state)], [MeasureResult((seconds,), timestamp=1)])  # type: ignore[arg-type]


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[Path, SearchTask, Sequence[State]]:
    """A log of four programs; the best has a step of ours."""
    task, log = two_stage_task(), tmp_path / "mixed.json"
    initial = State.initial(task.compute_dag)
    plain = [initial.split(3, 0, [length]) for length in (2, 4)]
    states = [plain[0], with_step_of_ours(plain[0]), plain[1], with_step_of_ours(plain[1])]
    for state, milliseconds in zip(states, (3, 1, 2, 4), strict=True):
        save(log, task, state, milliseconds * 1e-3)
    return log, task, states


def test_a_log_of_both_kinds_resumes_and_gives_the_best(
    mixed: tuple[Path, SearchTask, Sequence[State]],
) -> None:
    log, task, states = mixed
    assert [line.startswith(OWN_PREFIX) for line in log.read_text().splitlines()] == [
        False,
        True,
        False,
        True,
    ]
    best, seconds = task.best_state(log)
    assert seconds == 1e-3
    assert best.steps == states[1].steps
    machine = FakeMachine()
    result = task.tune(options(4, log, machine=machine))
    assert result.known_trials == 8
    assert not {key for _, key in machine.ran} & {program_key(state) for state in states}
    again = task.tune(options(4, log))
    assert again.known_trials == result.known_trials + 4


def test_distilling_keeps_the_best_of_each_task_and_merges(tmp_path: Path) -> None:
    first, second, out = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "best.json"
    small, large = matmul_task(8), matmul_task(16)
    for task, log, costs in (
        (small, first, (3, 2, 2)),
        (large, first, (9,)),
        (small, second, (4,)),
        (large, second, (8,)),
    ):
        for length, cost in enumerate(costs, 1 if log is first else 4):
            save(log, task, State.initial(task.compute_dag).split(2, 0, [length]), cost * 1e-3)
    failed = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 1, 1)
    other = matmul_task(24)
    save_records(second, [MeasureInput(other, State.initial(other.compute_dag))], [failed])
    summary = distill_record_file(first, out)
    assert (summary.records, summary.written) == (4, 2)
    summary = distill_record_file([second], out)
    assert (summary.records, summary.written, summary.without_success) == (5, 2, 1)
    kept = {inp.task.workload_key: (inp, res.mean_cost) for inp, res in load_records(out)}
    assert {key: cost for key, (_, cost) in kept.items()} == {
        small.workload_key: 2e-3,
        large.workload_key: 8e-3,
    }
    assert kept[small.workload_key][0].state.steps_json[0][4] == [2]  # type: ignore[union-attr]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert small.best_state(out)[1] == 2e-3


def test_distilling_failures_alone_is_refused(tmp_path: Path) -> None:
    log, out, task = tmp_path / "a.json", tmp_path / "best.json", matmul_task(8)
    failed = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 1, 1)
    save_records(log, [MeasureInput(task, State.initial(task.compute_dag))] * 2, [failed] * 2)
    with pytest.raises(DefinitionError, match=r"a\.json': nothing to write, .* 2 measurements failed"):
        distill_record_file(log, out)
    assert not out.exists()


def test_targets_are_distilled_apart(tmp_path: Path) -> None:
    log, out = tmp_path / "a.json", tmp_path / "best.json"
    targets = ("llvm", "llvm -mcpu=znver4", "llvm -mtriple=aarch64-linux-gnu", "llvm -num-cores=1")
    for target in (*targets, "llvm -keys=cpu,fast"):
        task = matmul_task(8, target=target)
        save(log, task, State.initial(task.compute_dag), 1e-3)
    assert distill_record_file(log, out).written == len(targets)


def test_distilling_for_tvm_says_what_it_leaves_out(
    mixed: tuple[Path, SearchTask, Sequence[State]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, task, states = mixed
    out = tmp_path / "tvm.json"
    alone = two_stage_task(24)
    save(log, alone, with_step_of_ours(State.initial(alone.compute_dag)), 1e-3)
    assert run(["distill", str(log), "-o", str(out), "--tvm"]) == 0
    said = capsys.readouterr().out
    assert "the best of 1 task, from 5 records" in said
    assert "3 records left out" in said
    assert "for 1 task a faster program was left out" in said
    assert "1 task left without any" in said
    assert out.read_text().count("\n") == 1
    check_tvm_line(out.read_text().rstrip())
    assert task.best_state(out)[1] == 2e-3
    assert run(["distill", str(log), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["output"] == f"{log}.best.json"
    assert (data["written"], data["left_out"]) == (2, 0)
    assert task.best_state(data["output"])[0].steps == states[1].steps


def test_an_output_that_cannot_be_written_stays_as_it_is(
    mixed: tuple[Path, SearchTask, Sequence[State]], tmp_path: Path
) -> None:
    log, _, _ = mixed
    before = log.read_bytes()
    with pytest.raises(DefinitionError, match="into itself"):
        distill_record_file(log, log)
    other, task = tmp_path / "other.json", matmul_task(8)
    save(other, task, State.initial(task.compute_dag), 1e-3)
    with pytest.raises(DefinitionError, match="is no distilled log: it holds"):
        distill_record_file(other, log)
    assert log.read_bytes() == before
    with pytest.raises(LogWriteError, match="cannot write"):
        distill_record_file(log, log / "below" / "a-file.json")
    with pytest.raises(FileNotFoundError):
        distill_record_file(tmp_path / "missing.json", tmp_path / "out.json")
    with pytest.raises(DefinitionError, match="at least one log"):
        distill_record_file([], tmp_path / "out.json")


def test_records_for_targets_with_options_of_other_versions_are_learned_from_and_run(tmp_path: Path) -> None:
    """Targets in logs may have options that are not known here, which change nothing."""
    task, log = SearchTask("ansor.matmul", (16, 16, 16), target=HOST), tmp_path / "log.json"
    state = sample_programs(task, 1, np.random.default_rng(0))[0]
    line = dump_record_to_string(MeasureInput(task, state), MeasureResult((Seconds(1e-3),), timestamp=1))
    log.write_text(line.replace("-keys=cpu", "-keys=cpu -jit=mcjit") + "\n")
    model = ansor.XGBModel()
    model.update_from_file(log)
    assert len(model.dataset) == 1
    inp = ansor.recover_measure_input(next(load_records(log))[0], rebuild_state=True)
    assert isinstance(inp.task, ansor.Task)
    assert "-jit=mcjit" in str(inp.task.target)
    assert sample_programs(inp.task, 1, np.random.default_rng(0))[0].steps == state.steps
    with ansor.LocalBuilder(n_parallel=1) as builder, ansor.LocalRunner(1e2, 1, 1, 0.0) as runner:
        (result,) = runner.run([inp], builder.build([inp]))
    assert result.ok, result.error_msg


def test_records_of_a_workload_that_raises_by_now_are_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_FUNCTIONS", dict(registry._FUNCTIONS))

    @ansor.register_workload("tests.changing")
    def before(n: int) -> list[te.Tensor]:
        x = te.placeholder((n, n), name="X")
        return [x, te.compute((n, n), lambda i, j: x[i, j] * x[j, i], name="Y")]

    log, other = tmp_path / "log.json", matmul_task(8)
    SearchTask("tests.changing", (8,), target=HOST).tune(options(3, log))

    @ansor.register_workload("tests.changing", override=True)
    def after(n: int) -> list[te.Tensor]:
        raise KeyError("axis")

    for command in (["report", str(log)], ["best", str(log)], ["distill", str(log)]):
        assert run(command) == 0
    assert "changing(8)" in capsys.readouterr().out
    model = ansor.XGBModel()
    model.update_from_file(log)
    assert len(model.dataset) == 0
    assert ansor.WarmStart(log).candidates(other) == []
    assert ansor.ApplyHistoryBest(log).find(other) is None
    with pytest.raises(DefinitionError, match="cannot be made here: KeyError: 'axis'"):
        ansor.recover_measure_input(next(load_records(log))[0])
