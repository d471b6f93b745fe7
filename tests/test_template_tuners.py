"""Tuners of templates as search policies: proposed, learned, resumed, carried over; over a fake machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError
from measure import MeasureInput, MeasureResult, load_records, save_records
from measure.records.record import Seconds
from search import SearchTask, SketchPolicy, StopReason, TemplateTask, TemplateTuner
from search.templates.task import recorded_config
from tests.fake_machine import HOST, FakeMachine, logged, options


@ansor.template("tests.tuner_matmul")
def matmul(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis((0, n), name="r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c)
    i, j = c.op.axis
    cfg.define_split("tile_i", i)
    cfg.define_split("tile_j", j)
    cfg.define_knob("vector", [False, True])
    io, ii = cfg["tile_i"].apply(s, c, i)
    jo, ji = cfg["tile_j"].apply(s, c, j)
    s[c].reorder(io, jo, r, ii, ji)
    if cfg["vector"].val:
        s[c].vectorize(ji)
    return s, [a, b, c]


def task(n: int = 16) -> TemplateTask:
    return TemplateTask(matmul, (n,), target=HOST)


def ideal(inp: MeasureInput) -> float:
    """A machine that likes tiles of 4 by 8, in lanes."""
    sizes = [loop.extent for loop in inp.state.with_bounds().stages[2].iterators]  # type: ignore[union-attr]
    lanes = "vectorize" in str(inp.state)
    away = abs(np.log2(sizes[3] / 4)) + abs(np.log2(sizes[4] / 8)) + 2 * (not lanes)  # type: ignore[operator,arg-type]
    return 1e-3 * float(2.0**away)


TUNERS: dict[str, Callable[[TemplateTask], TemplateTuner]] = {
    "grid": lambda t: ansor.GridSearchTuner(t),
    "random": lambda t: ansor.RandomTuner(t, seed=1),
    "ga": lambda t: ansor.GATuner(t, seed=1, pop_size=8),
    "xgb": lambda t: ansor.XGBTuner(t, seed=1, plan_size=8),
}


@pytest.mark.parametrize("name", TUNERS)
def test_every_tuner_covers_its_space_once_and_says_so(name: str, tmp_path: Path) -> None:
    """Of 18 configurations three vectorise a loop of one iteration: programs that are there already."""
    log = tmp_path / "log.json"
    result = task(4).tune(options(100, log), TUNERS[name](task(4)))
    space = task(4).config_space
    programs = {str(task(4).state_of(index)) for index in range(len(space))}
    assert result.trials == len(programs) == len(set(logged(log))) == 15
    assert result.stop_reason is StopReason.EXHAUSTED
    assert "space of 18 configurations gave no more new programs; 3 configurations repeated" in result.message


@pytest.mark.parametrize("name", TUNERS)
def test_an_interrupted_run_goes_on_where_it_stopped(name: str, tmp_path: Path) -> None:
    whole, pieces = tmp_path / "whole.json", tmp_path / "pieces.json"
    machine = FakeMachine(scale=ideal)
    task().tune(options(22, whole, machine=machine), TUNERS[name](task()))
    for trials in (5, 1, 10, 6):
        task().tune(options(trials, pieces, machine=machine), TUNERS[name](task()))
    assert logged(pieces) == logged(whole)


@ansor.template("tests.tuner_fixed")
def fixed(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] + 1, name="C")
    return te.create_schedule(c), [a, c]


def test_a_template_that_leaves_nothing_open_is_measured_once(tmp_path: Path) -> None:
    """Resumed, it has a result to learn from, and nothing to learn by."""
    log, chosen = tmp_path / "log.json", TemplateTask(fixed, (8,), target=HOST)
    trials = [chosen.tune(options(4, log), ansor.XGBTuner(chosen, plan_size=1)).trials for _ in range(2)]
    assert trials == [1, 0]


def test_grid_goes_by_index(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    task().tune(options(6, log), ansor.GridSearchTuner(task()))
    states = [inp.state.replay(task().compute_dag) for inp, _ in load_records(log)]  # type: ignore[union-attr]
    assert states == [task().state_of(index) for index in range(6)]


@pytest.mark.parametrize("name", ["ga", "xgb"])
def test_learning_tuners_find_the_best_sooner_than_the_grid(name: str) -> None:
    """On a machine whose answers follow the configuration, 40 of 98 programs are enough."""
    machine = FakeMachine(scale=lambda inp: 1e6 * ideal(inp))  # The fake's own noise is a factor below 2.
    large = task(64)
    result = large.tune(options(40, machine=machine), TUNERS[name](large))
    assert result.best_state is not None
    config = large.config_of(result.best_state)
    assert config is not None
    assert config["vector"].value is True


def test_the_model_orders_configurations_that_it_has_not_seen() -> None:
    large = task(64)
    tuner = ansor.XGBTuner(large, plan_size=16)
    large.tune(options(32, machine=FakeMachine(scale=ideal)), tuner)
    order = tuner._best_by_columns(np.random.default_rng(0))
    lanes = [large.config_space[index]["vector"].val for index in order]
    assert np.mean(lanes[:20]) > np.mean(lanes[-20:])


def test_any_cost_model_will_do() -> None:
    class LikesLanes(ansor.CostModel):
        def update(self, inputs: Any, results: Any) -> None:
            return

        def predict(self, task: Any, candidates: Any) -> Any:
            return np.array([float("vectorize" in str(state)) for state in candidates])

    policy = ansor.XGBTuner(task(), model=LikesLanes())
    proposal = policy.propose(0, 8, ansor.History())
    assert sum("vectorize" in str(state) for state in proposal.states) >= 6


def test_an_xgb_tuner_is_what_a_template_is_tuned_with() -> None:
    result = task().tune(options(5))
    assert result.trials == 5
    assert result.best_state is not None
    assert task().config_of(result.best_state) is not None


def test_the_automatic_search_shares_log_and_task(tmp_path: Path) -> None:
    """A log that holds programs of sketches too does no harm, and what it knows is not measured again."""
    log = tmp_path / "log.json"
    task().tune(options(6, log), SketchPolicy(task()))
    for name in ("ga", "xgb"):
        task().tune(options(6, log), TUNERS[name](task()))
    assert len(logged(log)) == len(set(logged(log))) == 18


def test_other_sizes_teach_where_to_begin(tmp_path: Path) -> None:
    log, mine = tmp_path / "small.json", tmp_path / "large.json"
    machine = FakeMachine(scale=ideal)
    small, large = task(16), task(64)
    small.tune(options(49, log, machine=machine), ansor.GridSearchTuner(small))
    best = small.config_of(small.best_state(log)[0])
    assert best is not None
    for name in ("random", "xgb"):
        tuner = TUNERS[name](large)
        tuner.load_history(log)
        mine.unlink(missing_ok=True)
        large.tune(options(4, mine, machine=machine), tuner)
        first = next(iter(load_records(mine)))[0].state.replay(large.compute_dag)  # type: ignore[union-attr]
        config = large.config_of(first)
        assert config is not None
        assert config["tile_i"].value[1:] == best["tile_i"].value[1:]
        assert config["tile_j"].value[1:] == best["tile_j"].value[1:]
    assert isinstance(tuner, ansor.XGBTuner)
    assert tuner.model.informative


def test_configurations_are_carried_over_by_the_results_that_count(tmp_path: Path) -> None:
    log, small, large = tmp_path / "log.json", task(16), task(64)
    lucky, good = 3, 20
    records = [(lucky, (1.0,)), (good, (2.0,)), (lucky, (3.0, 3.0, 3.0))]
    for index, costs in records:
        result = MeasureResult(tuple(map(Seconds, costs)), timestamp=1)
        save_records(log, [MeasureInput(small, small.state_of(index))], [result])
    (first,) = ansor.TransferConfigs(log, count=1).candidates(large)
    assert first == large.state_of(large.config_space.adapt(small.config_space[good]))


def test_configurations_are_carried_over_from_the_same_size_on_another_target(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, other = tmp_path / "log.json", TemplateTask(matmul, (16,), target="llvm -num-cores=1")
    for records, (index, cost) in ((task(32), (5, 1.0)), (other, (7, 3.0)), (other, (9, 2.0))):
        result = MeasureResult((Seconds(cost),), timestamp=1)
        save_records(log, [MeasureInput(records, records.state_of(index))], [result])
    mine = ansor.TransferConfigs(log).candidates(task())
    assert [task().config_of(state).index for state in mine][:2] == [9, 7]  # type: ignore[union-attr]
    assert len(mine) == 3
    assert not caplog.records
    own = tmp_path / "own.json"
    save_records(own, [MeasureInput(task(), task().state_of(3))], [result])
    assert ansor.TransferConfigs(own).candidates(task()) == []
    assert "1 record of tests.tuner_matmul(16) itself" in caplog.text


def test_large_spaces_are_searched_by_draws() -> None:
    @ansor.template("tests.tuner_large", override=True)
    def large(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n, n), name="A")
        b = te.compute((n, n), lambda i, j: a[i, j] + 1.0, name="B")
        s = te.create_schedule(b)
        for axis in b.op.axis:
            cfg.define_split(axis.name, axis, num_outputs=5)
            cfg[axis.name].apply(s, b, axis)
        cfg.multi_filter(lambda config: config["i"].value[-1] * config["j"].value[-1] <= 64)
        return s, [a, b]

    wide = TemplateTask(large, (256,), target=HOST)
    assert len(wide.config_space) > 1 << 16
    assert "limited by 1 filter" in str(wide.config_space)
    for tuner in (ansor.XGBTuner(wide, plan_size=8), ansor.GATuner(wide, pop_size=8)):
        result = wide.tune(options(24, machine=FakeMachine()), tuner)
        assert result.trials == 24
        for one in tuner.measured:
            config = wide.config_space[wide.config_space.index_of(one.coordinates)]
            assert config["i"].value[-1] * config["j"].value[-1] <= 64


def test_a_grid_goes_on_until_it_finds_a_legal_configuration() -> None:
    """However many of the first ones a filter refuses."""

    @ansor.template("tests.tuner_late", override=True)
    def late(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
        s = te.create_schedule(b)
        cfg.define_knob("factor", list(range(1, 129)))
        cfg.define_knob("late", list(range(40)))
        cfg.multi_filter(lambda config: config["late"].value >= 36)
        s[b].split(b.op.axis[0], factor=cfg["factor"].val)
        return s, [a, b]

    refused = TemplateTask(late, (256,), target=HOST)
    states = ansor.GridSearchTuner(refused).propose(0, 3, ansor.History()).states
    assert states == tuple(refused.state_of(36 * 128 + factor) for factor in range(3))


def test_a_space_without_a_legal_program_ends_with_a_diagnosis() -> None:
    @ansor.template("tests.tuner_illegal", override=True)
    def illegal(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        k = te.reduce_axis((0, n), name="k")
        b = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")
        s = te.create_schedule(b)
        cfg.define_split("tile", k)
        outer, _ = cfg["tile"].apply(s, b, k)
        s[b].parallel(outer)
        return s, [a, b]

    # The template cannot even be run once: its author learns that before anything is tuned.
    with pytest.raises(ansor.ScheduleError, match="use rfactor"):
        TemplateTask(illegal, (8,), target=HOST)


@pytest.mark.parametrize("name", TUNERS)
def test_a_configuration_for_which_the_template_raises_is_left_out(name: str, tmp_path: Path) -> None:
    @ansor.template("tests.tuner_picky", override=True)
    def picky(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
        s = te.create_schedule(b)
        cfg.define_knob("factor", [2, 4, 8])
        if cfg["factor"].val == 4:
            raise ValueError("no tiles of four")
        s[b].split(b.op.axis[0], cfg["factor"].val)
        return s, [a, b]

    log = tmp_path / "log.json"
    mine = TemplateTask(picky, (64,), target=HOST)
    result = mine.tune(options(10, log), TUNERS[name](mine))
    assert result.trials == len(set(logged(log))) == 2
    assert result.stop_reason is StopReason.EXHAUSTED
    assert "because template 'tests.tuner_picky' raises ValueError: no tiles of four" in result.message
    with pytest.raises(ansor.ScheduleError, match="raises ValueError: no tiles of four") as caught:
        mine.state_of(1)
    assert isinstance(caught.value.__cause__, ValueError)


def test_tuners_want_a_template() -> None:
    other = ansor.SearchTask(func="ansor.matmul", args=(8, 8, 8))
    with pytest.raises(DefinitionError, match=r"ansor\.TemplateTask"):
        ansor.RandomTuner(other)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="elite_num"):
        ansor.GATuner(task(), elite_num=0)


def test_a_template_that_is_called_takes_the_best_record(tmp_path: Path) -> None:
    log, short = tmp_path / "log.json", tmp_path / "best.json"
    task().tune(options(12, log, machine=FakeMachine(scale=ideal)), ansor.RandomTuner(task()))
    summary = ansor.pick_best(log, short)
    assert summary.written == 1
    best, _ = task().best_state(log)
    for records in (log, short):
        with ansor.apply_history_best(records) as history:
            s, args = matmul(16)
            assert s.state == best
            assert [tensor.name for tensor in args] == ["A", "B", "C"]
            assert matmul(32)[0].state.steps == matmul.schedule((32,))[0].state.steps
            assert "tests.tuner_matmul(32)" in history.report()
    assert matmul(16)[0].state.steps == matmul.schedule((16,))[0].state.steps


@ansor.template("tests.tuner_threads")
def on_threads(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] + 1, name="C")
    s = te.create_schedule(c)
    cfg.define_split("tile", c.op.axis[0])
    outer, inner = cfg["tile"].apply(s, c, c.op.axis[0])
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [a, c]


def saved(log: Path, target: str, index: int) -> Path:
    task = TemplateTask(on_threads, (64,), target=target)
    result = MeasureResult((Seconds(1.0),), timestamp=1)
    save_records(log, [MeasureInput(task, task.state_of(index))], [result])
    return log


def chosen() -> int | None:
    config = TemplateTask(on_threads, (64,), target="opencl").config_of(on_threads(64)[0].state)
    return None if config is None else config.index


@pytest.mark.parametrize("target", ["opencl", "cuda", "cuda -arch=sm_90", "c"])
def test_a_template_that_is_called_takes_the_only_target_of_its_records(target: str, tmp_path: Path) -> None:
    log = saved(tmp_path / "log.json", target, 5)
    with ansor.apply_history_best(log):
        assert chosen() == 5
    with ansor.apply_history_best(log), ansor.apply_history_best([]):
        assert chosen() == 5
    with ansor.apply_history_best(log, target="llvm"):
        assert chosen() == 0


def test_a_template_that_is_called_is_told_which_of_several_targets_is_meant(tmp_path: Path) -> None:
    log = saved(saved(tmp_path / "log.json", "opencl", 2), "cuda -arch=sm_80", 3)
    for target, index in ((None, 0), ("opencl", 2), ("cuda -arch=sm_80", 3), ("cuda -arch=sm_90", 0)):
        with ansor.apply_history_best(log, target=target) as history:
            assert chosen() == index
            assert bool(history.misses) == (index == 0)
    saved(log, HOST, 4)
    with ansor.apply_history_best(log):
        assert chosen() == 4
        with ansor.ApplyHistoryBest([], target="opencl") as inner:
            assert chosen() == 2
            assert len(inner.apply(on_threads.workload_key((64,)))[0].state.steps) == 3
    with pytest.raises(ansor.TargetError):
        ansor.apply_history_best(log, target="abacus")


def test_templates_and_other_tasks_share_a_budget(tmp_path: Path) -> None:
    """The programs of a template's task are the template's."""
    log, plain = tmp_path / "log.json", SearchTask("ansor.matmul", (8, 8, 8), target=HOST)
    scheduler = ansor.TaskScheduler([task(), plain], callbacks=[])
    result = scheduler.tune(options(8, log, num_measures_per_round=4))
    assert [part.trials for part in result.results] == [4, 4]
    for inp, _ in load_records(log):
        if inp.task.workload_key == task().workload_key:
            assert recorded_config(matmul, inp) is not None


def test_for_real(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    real = TemplateTask(matmul, (16,))
    runner = ansor.LocalRunner(number=1, repeat=1, min_repeat_ms=0)
    with runner:
        result = real.tune(
            options(3, log, builder=ansor.LocalBuilder(), runner=runner), ansor.RandomTuner(real)
        )
    assert result.trials == 3
    assert not result.errors, result.error_examples
    with ansor.apply_history_best(log):
        kernel = ansor.build(*matmul(16))
    a, b = (np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)
