"""Records under different layout options are told apart by all that reads logs, and layouts are applied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.state import State
from measure import MeasureInput, MeasureResult, load_records, save_records
from search import ApplyHistoryBest, SearchTask, TemplateTask, WarmStart
from search.refit import Refit, refit_steps
from tests.fake_machine import HOST

OPTIONS = [0, 1, 2]


def dense(option: int, n: int = 32) -> SearchTask:
    return SearchTask("ansor.dense", (n, n, n), target=HOST, layout_rewrite_option=option)


def save(log: Path, task: ansor.Task, states: Sequence[State], seconds: Sequence[float]) -> None:
    results = [MeasureResult((cost,), timestamp=1) for cost in seconds]  # type: ignore[arg-type]
    save_records(log, [MeasureInput(task, state) for state in states], results)


def drawn(option: int) -> list[State]:
    """Two programs that read all inputs where they lie."""
    return ansor.sample_programs(dense(option), 2, np.random.default_rng(option), {"cpu_packed_read": 0})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two programs under each option, other ones each time; a higher option is faster."""
    path = tmp_path / "log.json"
    for option in OPTIONS:
        task = dense(option)
        save(path, task, drawn(option), [10.0**-option, 2 * 10.0**-option])
    return path


@pytest.mark.parametrize("option", OPTIONS)
def test_a_lookup_gives_what_the_task_would_fetch_itself(log: Path, option: int) -> None:
    task, history = dense(option), ApplyHistoryBest(log)
    hit = history.find(task)
    assert hit is not None
    assert hit.seconds == 10.0**-option
    mine, args = task.apply_best(log)
    schedule, given = history.apply(task)
    assert str(schedule) == str(mine)
    assert [arg.shape for arg in given] == [arg.shape for arg in args]
    assert str(ansor.lower(schedule, given)) == str(ansor.lower(mine, args))
    bare = history.find(task.compute_dag)
    assert bare is not None
    assert bare.seconds == 1.0  # Nobody said that its arguments may change.


def test_another_option_serves_if_there_is_none(log: Path) -> None:
    plain = [(inp, res) for inp, res in load_records(log) if inp.task.layout_rewrite_option == 0]
    hit = ApplyHistoryBest(plain).find(dense(2))
    assert hit is not None
    assert hit.seconds == 1.0
    _, args = ApplyHistoryBest(plain).apply(dense(2))
    assert args[1].shape != dense(0).compute_dag.tensors[1].shape


def test_an_equal_computation_under_the_option_comes_before_the_key_under_another(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    plain = dense(0)
    bare = SearchTask(compute_dag=plain.compute_dag.tensors, target=HOST, layout_rewrite_option=2)
    for task, seconds in ((plain, 1.0), (bare, 2.0)):
        save(log, task, [State.initial(task.compute_dag)], [seconds])
    assert dense(2).best_record(log).result.mean_cost == 2.0
    hit = ApplyHistoryBest(log).find(dense(2))
    assert hit is not None
    assert (hit.seconds, hit.how) == (2.0, "structure")


@pytest.mark.parametrize(("recorded", "asked"), [(0, 2), (2, 0), (1, 0)])
def test_a_program_measured_under_another_option_is_taken_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recorded: int, asked: int
) -> None:
    log = tmp_path / "log.json"
    save(log, dense(recorded), ansor.sample_programs(dense(recorded), 1, np.random.default_rng(0)), [1.0])
    for fetch in (dense(asked).apply_best, dense(asked).print_best, dense(asked).best_state):
        caplog.clear()
        fetch(log)  # type: ignore[operator]
        (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert f"no record of dense(32, 32, 32) under layout_rewrite_option {asked}" in said
        assert f"trial 1, {log}:1 was measured under {recorded}" in said
    caplog.clear()
    dense(asked).apply_best(log, layout_rewrite_option=recorded)
    assert not caplog.records


def test_distilling_keeps_the_best_under_each_option(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "best.json"
    assert ansor.distill_record_file(log, out).written == 3
    kept = [(inp.task.layout_rewrite_option, res.mean_cost) for inp, res in load_records(out)]
    assert kept == [(option, 10.0**-option) for option in OPTIONS]


def test_options_that_change_nothing_are_one(tmp_path: Path) -> None:
    """Softmax has no input that is free of layout: the best record is the best, whatever it says."""
    log = tmp_path / "log.json"
    for option, seconds in ((2, 2.0), (0, 3.0), (1, 1.0)):
        task = SearchTask("ansor.softmax", (8, 8), target=HOST, layout_rewrite_option=option)
        save(log, task, [State.initial(task.compute_dag)], [seconds])
    assert ansor.distill_record_file(log, tmp_path / "best.json").written == 1
    hit = ApplyHistoryBest(log).find(task)
    assert hit is not None
    assert hit.seconds == 1.0


@pytest.mark.parametrize("option", OPTIONS)
def test_a_warm_start_begins_with_its_own_option(log: Path, option: int) -> None:
    task = dense(option, n=64)
    own = refit_steps(task.compute_dag, drawn(option)[0].steps, Refit.INNER, dense(0).compute_dag)
    first = WarmStart(log).candidates(task)[0]
    assert first.steps == own.steps


@ansor.template("tests.free_of_layout")
def panel(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis((0, n), name="r")
    c = te.compute(
        (n, n),
        lambda i, j: te.sum(a[i, r] * b[r, j], axis=r),
        name="C",
        attrs={"layout_free_placeholders": [b]},
    )
    s = te.create_schedule(c)
    i, j = c.op.axis
    cfg.define_split("tile_j", j)
    jo, ji = cfg["tile_j"].apply(s, c, j)
    s[c].reorder(jo, i, r, ji)
    return s, [a, b, c]


def test_the_task_of_a_template_has_an_option_too(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    plain = TemplateTask(panel, (16,), target=HOST)
    packed = TemplateTask(panel, (16,), target=HOST, layout_rewrite_option=2)
    save(log, plain, [plain.state_of(1)], [1.0])
    save(log, packed, [packed.state_of(3)], [0.1])
    with ansor.apply_history_best(log) as history:
        schedule, args = panel(16)
        assert schedule.state == plain.state_of(1)
        assert [arg.shape for arg in args] == [(16, 16)] * 3
        _, given = history.apply(packed)
    schedule, args = packed.apply_best(log)
    assert packed.config_of(packed.best_state(log)[0]).index == 3  # type: ignore[union-attr]
    assert args[1].shape == given[1].shape != (16, 16)
    bigger = TemplateTask(panel, (32,), target=HOST, layout_rewrite_option=2)
    first = ansor.TransferConfigs(log).candidates(bigger)[0]
    assert first == bigger.state_of(bigger.config_space.adapt(packed.config_space[3]))
