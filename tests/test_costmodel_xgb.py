"""The learned model: what it learns, when it trains, what its file holds."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from costmodel import DraftedModel, Programs, XGBModel, metrics, storage
from costmodel.boosting import Boosting, Trees, boost, grow_more
from costmodel.dataset import Collector, Dataset
from costmodel.learned import LearnedModel
from costmodel.libraries import load_library
from costmodel.losses import LOSSES, SquaredLoss
from costmodel.rows import FloatArray, Indices, PackedRows, offsets_of
from measure import MeasureErrorNo, MeasureInput, MeasureResult, save_records
from tests.costmodel_fakes import LoopDrafter, LoopFeatures, draw, matmul_task, measured
from tests.forks import in_a_fork


@cache
def task(size: int = 64) -> ansor.SearchTask:
    return matmul_task(size)


@cache
def lessons(count: int = 120) -> tuple[list[MeasureInput], list[MeasureResult]]:
    return measured(task(), count, seed=1)


def model(**changes: object) -> XGBModel:
    settings: dict[str, object] = {"num_warmup_sample": 0, "features": LoopFeatures(), **changes}
    return XGBModel(**settings)  # type: ignore[arg-type]


def taught(count: int = 120, **changes: object) -> XGBModel:
    made = model(**changes)
    inputs, results = lessons()
    made.update(inputs[:count], results[:count])
    return made


def synthetic(programs: int, seed: int = 0, noise: float = 0.0) -> Dataset:
    """Programs of two tasks whose time is a sum over statements of a function of two columns."""
    rng = np.random.default_rng(seed)
    rows = PackedRows(
        rng.random((3 * programs, 6), dtype=np.float32), offsets_of(np.full(programs, 3, np.int64))
    )
    seconds = rows.total(1.0 + 4.0 * rows.values[:, 0] ** 2 + (rows.values[:, 1] > 0.5))
    costs = 1e-3 * seconds * np.exp(noise * rng.standard_normal(programs))
    tasks = np.arange(programs) % 2
    digests = rng.integers(2**63, size=programs, dtype=np.uint64)
    return Dataset(
        rows, np.where(tasks, 7 * costs, costs), tasks, (("a", "t"), ("b", "t")), digests, np.zeros(programs)
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_sums_over_statements_are_learned(loss: str) -> None:
    """No single row tells a program's speed; the trees must share it out."""
    train, test = synthetic(400), synthetic(200, seed=1)
    scores = boost(train, Boosting(loss=loss)).apply(test.rows)  # type: ignore[arg-type]
    assert metrics.order_accuracy(scores, test.costs, test.tasks) > 0.85


def test_a_forked_process_learns_and_asks_trees_made_before() -> None:
    """OpenMP's threads are not there, and it would wait for them."""
    data = synthetic(400)
    trees = boost(data, Boosting(rounds=5))
    scores = trees.apply(data.rows)

    def again() -> None:
        assert np.allclose(trees.apply(data.rows), scores)
        assert np.allclose(boost(data, Boosting(rounds=5)).apply(data.rows), scores)

    assert in_a_fork(again)


def test_held_out_programs_stop_the_boosting() -> None:
    learnable, noise = synthetic(400), synthetic(400, noise=8.0)
    trees = [len(boost(data, Boosting(rounds=80))) for data in (learnable, noise)]
    assert trees[1] < trees[0] <= 80
    start = np.zeros(len(noise))
    assert len(grow_more(noise, Boosting(), start, 40, boost(learnable, Boosting(rounds=5)))) == 40
    assert len(boost(noise.take(slice(50)), Boosting(rounds=30))) == 30


def test_each_side_of_the_split_has_one_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs are chosen once; those that say whether enough are held out are those that stop the boosting."""
    sizes: list[int] = []

    class CountedLoss(SquaredLoss):
        def __init__(self, labels: FloatArray, tasks: Indices, rng: np.random.Generator) -> None:
            super().__init__(labels, tasks, rng)
            sizes.append(len(labels))

    monkeypatch.setitem(LOSSES, "squared", CountedLoss)
    boost(synthetic(400), Boosting(rounds=3, loss="squared"))
    assert len(sizes) == 2
    assert sum(sizes) == 400


def test_few_pairs_of_held_out_programs_stop_nothing() -> None:
    """Of 200 tasks with two programs each dozens are held out, and hardly two of one task."""
    noise = synthetic(400, noise=8.0)
    many = replace(
        noise, tasks=np.arange(400) // 2, task_keys=tuple((str(n), "t", 0) for n in range(200)), machines=()
    )
    assert len(boost(many, Boosting(rounds=40))) == 40
    assert len(boost(many, Boosting(rounds=80, loss="squared"))) < 80


@pytest.mark.parametrize("seed", range(6))
def test_what_a_split_leaves_to_learn_from_still_stops_the_boosting(seed: int) -> None:
    """Which programs stop it does not depend on which were set aside before."""
    noise, _ = synthetic(600, noise=8.0).split_by_program(0.3, seed)
    assert len(boost(noise, Boosting(rounds=80))) < 80


def test_trees_correct_the_scores_they_start_from() -> None:
    train, test = synthetic(400), synthetic(200, seed=1)
    half_right = [data.rows.total(-4.0 * data.rows.values[:, 0] ** 2) for data in (train, test)]
    trees = boost(train, Boosting(rounds=20), 3.0 * half_right[0])
    refined = 3.0 * half_right[1] + trees.apply(test.rows)

    def accuracy(scores: FloatArray) -> float:
        return metrics.order_accuracy(scores, test.costs, test.tasks)

    assert accuracy(refined) > accuracy(half_right[1]) + 0.02


def test_any_number_of_threads_grows_the_same_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = []
    for threads in ("1", "2"):
        monkeypatch.setenv("ANSOR_NUM_THREADS", threads)
        scores.append(taught().predict(task(), Programs(draw(task(), 20))))
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
@pytest.mark.parametrize("drafted", [False, True])
def test_a_copy_of_a_model_goes_on_as_the_model_does(
    copied: Callable[[ansor.CostModel], ansor.CostModel], drafted: bool
) -> None:
    made: ansor.CostModel = DraftedModel(LoopDrafter(), model()) if drafted else model()
    inputs, results = lessons()
    programs = Programs(draw(task(), 20))
    made.update(inputs[:100], results[:100])
    before = made.predict(task(), programs)
    twin = copied(made)
    np.testing.assert_array_equal(twin.predict(task(), programs), before)
    for one in (made, twin):
        one.update(inputs[100:], results[100:])
    after = made.predict(task(), programs)
    assert (after != before).any()
    np.testing.assert_array_equal(twin.predict(task(), programs), after)
    np.testing.assert_array_equal(copied(twin).predict(task(), programs), after)


def test_trees_of_a_copy_are_corrected_as_the_model_s_are() -> None:
    """Columns with more values than a histogram has bins are cut where they were cut for the first trees."""
    made, data = model(), synthetic(370)
    made.fit(data.take(slice(330)))
    twin = copy.deepcopy(made)
    for one in (made, twin):
        one.fit(data)
    np.testing.assert_array_equal(twin.score(data.rows), made.score(data.rows))


def test_seeds_grow_different_trees() -> None:
    programs = Programs(draw(task(), 20))
    first, second = (taught(seed=seed).predict(task(), programs) for seed in (1, 2))
    assert (first != second).any()


def test_failures_teach_what_fails() -> None:
    """A program that fails scores below slow ones that run, also when all that failed share a trait."""
    inputs, results = lessons()

    def fails(inp: MeasureInput) -> bool:
        return max(stage.auto_unroll_max_step for stage in inp.state.stages) == 512  # type: ignore[union-attr]

    broken = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "too slow", 1.0, 0)
    learner = model()
    learner.update(inputs, [broken if fails(inp) else res for inp, res in zip(inputs, results, strict=True)])
    fresh, _ = measured(task(), 60, seed=8)
    scores = learner.predict(task(), [inp.state for inp in fresh])  # type: ignore[misc]
    failing = np.array([fails(inp) for inp in fresh])
    above = (scores[~failing][:, None] > scores[failing][None, :]).mean()
    assert above > 0.8


def test_a_task_of_failures_alone_does_not_disturb_another() -> None:
    learner, programs = taught(), Programs(draw(task(), 40))
    inputs, _ = measured(task(48), 60)
    broken = MeasureResult.failed(MeasureErrorNo.COMPILE_HOST, "no", 1.0, 0)
    learner.update(inputs, [broken] * len(inputs))
    before, after = taught().predict(task(), programs), learner.predict(task(), programs)
    assert np.corrcoef(before, after)[0, 1] > 0.8
    assert np.isfinite(learner.predict(task(48), Programs(draw(task(48), 5)))).all()


class CountingModel(LearnedModel):
    """Notes the sizes it is trained on."""

    sizes: Sequence[int] = ()

    def fit(self, data: Dataset) -> None:
        self.sizes = (*self.sizes, len(data))

    def score(self, rows: PackedRows) -> FloatArray:
        return np.zeros(len(rows))


@pytest.mark.parametrize(("adaptive", "sizes"), [(False, (10, 20, 21, 60)), (True, (10, 20, 51))])
def test_training_happens_when_scores_are_asked_for_and_there_is_enough_new(
    adaptive: bool, sizes: tuple[int, ...]
) -> None:
    learner = CountingModel(num_warmup_sample=0, features=LoopFeatures(), adaptive_training=adaptive)
    inputs, results = lessons()
    for stop in (5, 10):
        learner.update(inputs[:stop], results[:stop])
    programs = Programs(draw(task(), 3))
    for stop in (10, 20, 21, 60):
        learner.update(inputs[:stop], results[:stop])
        learner.predict(task(), programs)
        learner.predict(task(), programs)
    assert learner.sizes == sizes


def test_between_full_fits_trees_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[tuple[int, bool]] = []

    def spy_fit(data: Dataset, settings: Boosting, start: FloatArray) -> Trees:
        fits.append((len(data), True))
        return boost(data, settings, start)

    def spy_more(data: Dataset, *rest: Any) -> Trees:
        fits.append((len(data), False))
        return grow_more(data, *rest)

    monkeypatch.setattr("costmodel.xgb.boost", spy_fit)
    monkeypatch.setattr("costmodel.xgb.grow_more", spy_more)
    learner, (inputs, results) = model(), lessons()
    for stop in (40, 50, 54, 60):
        learner.update(inputs[:stop], results[:stop])
        learner.train()
    assert fits == [(40, True), (50, True), (54, False), (60, False)]


def test_a_log_teaches_what_its_measurements_did(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    save_records(log, *lessons())
    programs = Programs(draw(task(), 20))
    learner = model()
    learner.update_from_file(log)
    np.testing.assert_array_equal(learner.predict(task(), programs), taught().predict(task(), programs))
    few = model()
    few.update_from_file(log, n_lines=7)
    assert few.num_records == 7


def test_a_file_holds_the_trees_and_how_much_is_behind_them(tmp_path: Path) -> None:
    learner, file, programs = taught(), tmp_path / "model.json", Programs(draw(task(), 20))
    learner.save(file)
    loaded = model(num_warmup_sample=1000, model_file=file)
    assert loaded.num_records == 120
    assert loaded.informative, "a loaded model needs no warm-up"
    expected = learner.predict(task(), programs)
    np.testing.assert_array_equal(loaded.predict(task(), programs), expected)
    loaded.save(file)
    np.testing.assert_array_equal(model(model_file=file).predict(task(), programs), expected)


def test_a_loaded_model_goes_on_learning(tmp_path: Path) -> None:
    taught(60).save(tmp_path / "model.json")
    loaded, programs = model(model_file=tmp_path / "model.json"), Programs(draw(task(), 40))
    before = loaded.predict(task(), programs)
    other, other_results = measured(task(48), 70, seed=3)
    loaded.update(other[:20], other_results[:20])
    during = loaded.predict(task(), programs)
    loaded.unlearn(other[:20], other_results[:20])
    np.testing.assert_array_equal(loaded.predict(task(), programs), before)
    loaded.update(other[:20], other_results[:20])
    np.testing.assert_array_equal(loaded.predict(task(), programs), during)
    assert (during != before).any()
    assert np.corrcoef(before, during)[0, 1] > 0.5, "few records correct the loaded trees"
    loaded.update(other, other_results)
    assert loaded.num_records == 70
    own = model()
    own.update(other, other_results)
    np.testing.assert_array_equal(
        loaded.predict(task(), programs),
        own.predict(task(), programs),
        "in the end only its own records count",
    )


def test_records_too_few_to_learn_from_are_saved_themselves(tmp_path: Path) -> None:
    """A loaded model goes on warming up where the saved one was, as if it had measured them itself."""
    file, (inputs, results) = tmp_path / "model", lessons()
    cold = taught(90, num_warmup_sample=100)
    cold.save(file)
    loaded = model(num_warmup_sample=100, model_file=file)
    assert (loaded.num_records, loaded.informative) == (90, False)
    assert loaded.count_of(task()) == (90, 0)
    loaded.update(inputs[:101], results[:101])
    assert (loaded.num_records, loaded.informative) == (101, True), "what is told again counts once"
    programs = Programs(draw(task(), 20))
    expected = taught(101).predict(task(), programs)
    np.testing.assert_array_equal(loaded.predict(task(), programs), expected)
    loaded.unlearn(inputs[:11], results[:11])
    assert loaded.num_records == 90


def test_loading_records_replaces_trees_that_were_loaded(tmp_path: Path) -> None:
    taught(60).save(tmp_path / "warm")
    taught(7, num_warmup_sample=100).save(tmp_path / "cold")
    loaded = model(num_warmup_sample=100, model_file=tmp_path / "warm")
    loaded.load(tmp_path / "cold")
    assert (loaded.num_records, loaded.informative) == (7, False)


def test_files_are_small(tmp_path: Path) -> None:
    """Of records that trees were grown on it holds the digests alone."""
    inputs, results = measured(task(), 240, seed=1)
    sizes = []
    for count in (80, 120, 240):
        learner = model(num_warmup_sample=100, boosting=Boosting(rounds=3))
        learner.update(inputs[:count], results[:count])
        learner.save(tmp_path / "model")
        sizes.append((tmp_path / "model").stat().st_size)
    assert sizes[0] < 100 * 1024
    assert sizes[2] - sizes[1] < 120 * 64


def test_records_that_are_told_again_count_once(tmp_path: Path) -> None:
    """They replace those behind the trees, and in the end the trees."""
    file, (inputs, results) = tmp_path / "model.json", lessons()
    taught(60).save(file)
    loaded, programs = model(model_file=file), Programs(draw(task(), 20))
    other, other_results = measured(task(48), 10)
    loaded.update(other, other_results)
    for stop in (20, 45):
        loaded.update(inputs[:stop], results[:stop])
        assert loaded.num_records == 70
        assert loaded.count_of(task()) == (60, 10)
    loaded.save(file)
    assert model(model_file=file).num_records == 70
    loaded.update(inputs[:60], results[:60])
    assert loaded.num_records == 70
    own = model()
    own.update([*other, *inputs[:60]], [*other_results, *results[:60]])
    np.testing.assert_array_equal(loaded.predict(task(), programs), own.predict(task(), programs))


def test_what_is_behind_trees_that_are_dropped_counts_no_more(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    taught(60).save(file)
    loaded = model(model_file=file)
    other = measured(task(48), 70, seed=3)
    loaded.update(*other)
    assert loaded.count_of(task()) == (0, 70)
    loaded.save(file)
    again = model(model_file=file)
    assert again.num_records == 70
    assert again.count_of(task(48)) == (70, 0)
    loaded.unlearn(other[0][:20], other[1][:20])
    assert loaded.count_of(task()) == (60, 50), "with fewer records the loaded trees are back"


def test_a_model_of_another_feature_table_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(LoopFeatures):
        @property
        def version(self) -> str:
            return "loops-2"

    file = tmp_path / "model.json"
    taught(20).save(file)
    with pytest.raises(ansor.LogFormatError, match="loops-1 of 20 columns, and this is table loops-2"):
        model(features=Newer(), model_file=file)
    monkeypatch.setattr(storage, "VERSION", 99)
    taught(20).save(file)
    monkeypatch.undo()
    with pytest.raises(ansor.LogFormatError, match="version 99"):
        model(model_file=file)


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(ansor.DefinitionError, match="must be one of pairwise"):
        model(loss="hinge")


def test_loading_a_library_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    load_library("xgboost")
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    load_library("xgboost")
    assert os.environ["OMP_WAIT_POLICY"] == "active"


def test_features_of_measured_programs_are_extracted_once() -> None:
    source = LoopFeatures()
    collector = Collector(source)
    inputs, results = lessons()
    for stop in (10, 20, 30):
        collector.add(inputs[:stop], results[:stop])
        assert len(collector.dataset) == source.extracted == stop


def test_the_held_out_loss_is_logged_every_so_many_trees(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="costmodel.boosting"):
        boost(synthetic(400), Boosting(rounds=12, patience=12, verbose_eval=5))
    losses = [record.getMessage() for record in caplog.records if "held-loss" in record.getMessage()]
    assert [line.split("]")[0] for line in losses] == ["[0", "[5", "[10", "[11"]
