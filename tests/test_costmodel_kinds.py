"""Programs for CPUs and those for GPUs: features of their own, and a model each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.errors import DefinitionError, LogFormatError
from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel import AnalyticModel, DraftedModel, LearnedModel, SklearnModel, XGBModel
from costmodel.dataset import Collector
from costmodel.extraction.extract import extract
from costmodel.features.device import DEVICE_FEATURES
from costmodel.features.machine import MACHINE_FEATURES
from costmodel.features.reference import REFERENCE_FEATURES
from costmodel.features.table import (
    FEATURES,
    GPU_FEATURES,
    N_FEATURES,
    N_GPU_FEATURES,
    feature_names,
    unscale,
)
from costmodel.rows import PackedRows
from costmodel.statements import StatementFeatures
from measure import MeasureInput
from measure.simulate import result_of
from search.history import History, Trial
from search.scheduler.setup import check_model_file, shared_models
from tests.costmodel_fakes import draw, matmul_task, measured, states_of

CPU = matmul_task(64)
GPU = matmul_task(64, "cuda -arch=sm_80")


def states(task: Task, count: int = 6) -> list[State]:
    return states_of(draw(task, count, seed=5))


# -- rows --------------------------------------------------------------------------------------------------


def test_rows_of_a_cpu_have_no_columns_about_devices() -> None:
    """They are TVM's and the machine's, as if there were no GPUs."""
    assert (*REFERENCE_FEATURES, *MACHINE_FEATURES) == FEATURES
    assert (*FEATURES, *DEVICE_FEATURES) == GPU_FEATURES
    assert len(feature_names()) == N_FEATURES == 218
    for population in draw(CPU, 12):
        assert extract(CPU, population).values.shape[1] == N_FEATURES
    source = StatementFeatures()
    assert source.extract(CPU, states(CPU)).width == source.width == N_FEATURES
    assert source.extract(GPU, states(GPU)).width == N_GPU_FEATURES
    assert set(unscale(extract(CPU, states(CPU)).values)) == {*feature_names()}


def test_trees_for_a_cpu_draw_from_the_columns_of_a_cpu() -> None:
    model = XGBModel(num_warmup_sample=0)
    model.update(*measured(CPU, 20))
    model.train()
    assert {trees.booster.num_features() for trees in model._trees} == {N_FEATURES}


def test_parts_without_rows_may_be_of_any_width() -> None:
    some = PackedRows(np.ones((3, 5), np.float32), np.array([0, 1, 3]))
    joined = PackedRows.concatenate([PackedRows.empty(2, 1), some, PackedRows.empty(9)])
    assert joined.counts.tolist() == [0, 1, 2]
    assert joined.width == 5
    assert PackedRows.concatenate([PackedRows.empty(4), PackedRows.empty(4, 2)]).width == 4


# -- models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [XGBModel, partial(SklearnModel, "ridge")], ids=["xgb", "ridge"])
@pytest.mark.parametrize(("first", "second"), [(CPU, GPU), (GPU, CPU)], ids=["CPU", "GPU"])
def test_a_model_learns_from_one_kind_and_refuses_the_other(
    make: Callable[..., LearnedModel], first: Task, second: Task
) -> None:
    model = make(num_warmup_sample=0)
    model.update(*measured(first, 16))
    before, count = model.predict(first, states(first)), len(model.dataset)
    assert len(set(before.tolist())) > 1
    with pytest.raises(DefinitionError, match=r"features a statement.*take a model for each"):
        model.predict(second, states(second))
    model.update(*measured(second, 4))
    assert np.array_equal(model.predict(first, states(first)), before)
    assert len(model.dataset) == count > 10


def test_what_is_not_learned_from_is_counted() -> None:
    """The first program decides, however the others come in."""
    mixed = [
        pair
        for both in zip(zip(*measured(GPU, 3), strict=True), zip(*measured(CPU, 3), strict=True), strict=True)
        for pair in both
    ]
    for parts in ([mixed], [mixed[:1], mixed[1:]], [mixed[:4], mixed[4:]]):
        collector = Collector(StatementFeatures())
        for part in parts:
            collector.add([inp for inp, _ in part], [res for _, res in part])
            assert collector.dataset.rows.width == N_GPU_FEATURES
        assert len(collector.dataset) == 3
        ((reason, count),) = collector.skipped.items()
        assert count == 3
        assert f"has {N_FEATURES} features a statement, and others have {N_GPU_FEATURES}" in reason


def test_a_model_of_a_gpu_is_saved_and_loaded(tmp_path: Path) -> None:
    model = XGBModel(num_warmup_sample=0)
    model.update(*measured(GPU, 24))
    scores = model.predict(GPU, states(GPU))
    model.save(tmp_path / "gpu.model")
    loaded = XGBModel(model_file=tmp_path / "gpu.model")
    assert np.array_equal(loaded.predict(GPU, states(GPU)), scores)
    with pytest.raises(DefinitionError, match="take a model for each"):
        loaded.predict(CPU, states(CPU))
    loaded.update(*measured(CPU, 4))
    assert len(loaded.dataset) == 0
    untrained = tmp_path / "untrained.model"
    XGBModel().save(untrained)
    fresh = XGBModel(num_warmup_sample=0, model_file=untrained)
    fresh.update(*measured(GPU, 8))
    assert len(fresh.dataset) == 8


def test_a_model_of_another_table_is_refused(tmp_path: Path) -> None:
    class Narrow(StatementFeatures):
        @property
        def widths(self) -> tuple[int, ...]:
            return (N_FEATURES,)

    model = XGBModel(num_warmup_sample=0)
    model.update(*measured(GPU, 4))
    model.save(tmp_path / "gpu.model")
    with pytest.raises(
        LogFormatError, match=rf"of {N_GPU_FEATURES} columns, and this is table .* of {N_FEATURES}"
    ):
        XGBModel(features=Narrow()).load(tmp_path / "gpu.model")


def test_a_draft_of_either_kind_needs_no_measurement() -> None:
    model = DraftedModel()
    for task in (CPU, GPU):
        assert np.isfinite(model.predict(task, states(task))).all()
    inputs, results = measured(GPU, 16)
    model.update(inputs, results)
    assert np.isfinite(model.predict(GPU, states(GPU))).all()
    assert AnalyticModel().seconds(GPU, [inp.state for inp in inputs]).min() > 0  # type: ignore[misc]


# -- tuning ------------------------------------------------------------------------------------------------


def test_tasks_of_each_kind_share_a_model() -> None:
    other = matmul_task(48)
    models = shared_models(
        "sketch.xgb", [CPU, GPU, other], 0, per_round=8, adaptive_training=False, model_file=None
    )
    assert models.keys() == {False, True}
    assert models[False] is not models[True]
    assert [models[kind].num_warmup_sample for kind in (False, True)] == [15, 7]  # type: ignore[attr-defined]
    with pytest.raises(DefinitionError, match="have a model each; tune them apart"):
        check_model_file("x.model", [CPU, GPU], "default")
    check_model_file("x.model", [CPU, other], "default")


@pytest.mark.parametrize(("params", "per_round"), [(None, 64), ({"first_rounds_size": 4}, 8), (None, 3)])
def test_a_shared_model_tells_programs_apart_from_the_first_rounds_of_all_tasks_on(
    params: dict[str, int] | None, per_round: int
) -> None:
    tasks = [matmul_task(n) for n in (16, 24)]
    (model,) = shared_models(
        "sketch.xgb",
        tasks,
        0,
        params=params,
        per_round=per_round,
        adaptive_training=False,
        model_file=None,
    ).values()
    assert isinstance(model, XGBModel)
    for task in tasks:
        assert not model.informative
        policy = ansor.SketchPolicy(task, model, params)
        first = policy.propose(0, per_round, History()).states
        policy.learn([Trial(str(at), state, result_of(1e-3)) for at, state in enumerate(first)])
    assert model.informative


def test_tasks_of_both_kinds_are_tuned_together(tmp_path: Path) -> None:
    from tests.search_fakes import simulated_cost

    def answer(inp: MeasureInput) -> ansor.MeasureResult:
        return simulated_cost(inp)

    options = ansor.TuningOptions(
        num_measure_trials=32,
        num_measures_per_round=8,
        builder=ansor.NullBuilder(),
        runner=ansor.SimulatedRunner(answer),
        measure_callbacks=[ansor.RecordToFile(tmp_path / "log.json")],
        verbose=0,
    )
    params = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 1}
    scheduler = ansor.TaskScheduler([CPU, GPU], strategy="round-robin", callbacks=[])
    scheduler.tune(options, search_policy_params=params)
    assert scheduler.task_trials == [16, 16]
