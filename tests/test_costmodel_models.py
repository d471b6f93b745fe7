"""Drafting and refining, and the models of scikit-learn."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ansor
from costmodel import Candidates, DraftedModel, PackedRows, Programs, SklearnModel, XGBModel, metrics
from costmodel.analytic import AnalyticModel, CoreRates
from costmodel.dataset import Collector, Dataset
from costmodel.drafts import USUAL_SLOPE, draft_errors, draft_scores, slope_of
from costmodel.learned import LearnedModel
from costmodel.rows import extract_rows
from measure import MeasureErrorNo, MeasureInput, MeasureResult
from tests.costmodel_fakes import LoopDrafter, LoopFeatures, answer, draw, matmul_task, measured


@cache
def task(size: int = 64) -> ansor.SearchTask:
    return matmul_task(size)


@cache
def lessons(seed: int, count: int = 60) -> tuple[list[MeasureInput], list[MeasureResult]]:
    return measured(task(), count, seed)


def drafted(learned: LearnedModel | None = None) -> DraftedModel:
    return DraftedModel(LoopDrafter(), learned or XGBModel(features=LoopFeatures()))


def accuracy(model: ansor.CostModel, size: int = 64) -> float:
    inputs, results = lessons(9) if size == 64 else measured(task(size), 60, 9)
    scores = model.predict(task(size), [inp.state for inp in inputs])  # type: ignore[misc]
    costs = np.array([result.mean_cost for result in results])
    return metrics.order_accuracy(scores, costs, np.zeros(len(costs), np.int64))


def test_before_the_first_measurement_the_draft_is_alone() -> None:
    programs, model = Programs(draw(task(), 20)), drafted()
    drafts = draft_scores(LoopDrafter(), task(), extract_rows(LoopFeatures(), task(), programs))
    np.testing.assert_array_equal(model.predict(task(), programs), USUAL_SLOPE * drafts)
    assert model.informative
    assert model.share(task()) == 0.0


@pytest.mark.parametrize("learned", [XGBModel, SklearnModel])
def test_measurements_refine_the_draft(learned: type[LearnedModel]) -> None:
    def new() -> LearnedModel:
        return learned(features=LoopFeatures(), num_warmup_sample=0)

    model, alone = drafted(new()), new()
    before = accuracy(model)
    for seed in (1, 2):
        model.update(*lessons(seed))
        alone.update(*lessons(seed))
    assert 0.6 < before < 0.95
    assert accuracy(model) > before + 0.02


def test_a_few_measurements_do_not_overrule_the_draft() -> None:
    model, programs = drafted(), Programs(draw(task(), 40))
    before = model.predict(task(), programs)
    inputs, results = lessons(1)
    model.update(inputs[:8], results[:8])
    assert np.corrcoef(before, model.predict(task(), programs))[0, 1] > 0.9


def test_the_share_grows_with_what_is_known_of_the_task() -> None:
    model = drafted()
    model.update(*measured(task(48), 64))
    assert model.share(task(48)) == 0.5
    assert model.share(task()) == pytest.approx(8 / 72)
    model.update(*lessons(1))
    assert model.share(task()) == pytest.approx(68 / 132)
    assert model.num_records == 124


def test_a_saved_model_remembers_how_much_it_knew(tmp_path: Path) -> None:
    model, programs = drafted(), Programs(draw(task(), 20))
    model.update(*lessons(1))
    model.save(tmp_path / "model.json")
    loaded = drafted()
    loaded.load(tmp_path / "model.json")
    assert loaded.share(task()) == model.share(task())
    np.testing.assert_array_equal(loaded.predict(task(), programs), model.predict(task(), programs))
    with pytest.raises(
        ansor.LogFormatError, match="trained to correct LoopDrafter, and this one corrects none"
    ):
        XGBModel(features=LoopFeatures(), model_file=tmp_path / "model.json")
    plain = XGBModel(features=LoopFeatures())
    plain.save(tmp_path / "plain.json")
    with pytest.raises(ansor.LogFormatError, match="trained to correct no other model"):
        loaded.load(tmp_path / "plain.json")


def test_programs_of_another_machine_are_of_another_task(tmp_path: Path) -> None:
    """Of a saved model, too."""
    here, there = (
        ansor.SearchTask("ansor.matmul", (64, 64, 64), target="llvm", hardware_params=ansor.HardwareParams(n))
        for n in (2, 64)
    )
    states = [inp.state for inp in lessons(1)[0]]
    model = drafted()
    model.update([MeasureInput(there, state) for state in states], lessons(1)[1])
    model.update([MeasureInput(here, state) for state in states[:20]], lessons(2, 20)[1])
    model.save(tmp_path / "model")
    loaded = drafted()
    loaded.load(tmp_path / "model")
    for one in (model, loaded):
        assert one.learned.count_of(here) == (20, 60)
        assert one.learned.count_of(there) == (60, 20)
    few = XGBModel(features=LoopFeatures())
    few.update([MeasureInput(there, state) for state in states], lessons(1)[1])
    few.save(tmp_path / "few")
    again = XGBModel(features=LoopFeatures(), model_file=tmp_path / "few")
    assert again.dataset.machines == few.dataset.machines
    assert (again.count_of(here), again.count_of(there)) == ((0, 60), (60, 0))


def test_what_corrects_one_draft_does_not_correct_another(tmp_path: Path) -> None:
    """Saved corrections are of what was drafted then: other rates, or formulas, draft otherwise."""
    ansor.DraftedModel().save(tmp_path / "model")
    ansor.DraftedModel().load(tmp_path / "model")
    other = ansor.DraftedModel(drafter=AnalyticModel(CoreRates(loads=3.0)))
    with pytest.raises(ansor.LogFormatError, match="same draft saved; else train it again"):
        other.load(tmp_path / "model")


def test_what_a_saved_model_knew_is_not_counted_again(tmp_path: Path) -> None:
    """A search that goes on from its log tells a loaded model what this knows; its share stays."""
    inputs, results = lessons(1)
    model, loaded = drafted(), drafted()
    model.update(inputs, results)
    model.save(tmp_path / "model.json")
    loaded.load(tmp_path / "model.json")
    loaded.unlearn(inputs, results)
    for stop in (16, 60):
        loaded.update(inputs[:stop], results[:stop])
        assert loaded.num_records == 60
        assert loaded.share(task()) == model.share(task())
    programs = Programs(draw(task(), 20))
    np.testing.assert_array_equal(loaded.predict(task(), programs), model.predict(task(), programs))


def test_a_model_that_has_learned_cannot_become_a_corrector() -> None:
    learned = XGBModel(features=LoopFeatures())
    learned.update(*lessons(1))
    with pytest.raises(ansor.DefinitionError, match="has learned from 60 measurements already"):
        drafted(learned)
    with pytest.raises(ansor.DefinitionError, match="use loss='pairwise'"):
        drafted(XGBModel(features=LoopFeatures(), loss="squared"))


def test_the_slope_follows_how_well_the_draft_orders() -> None:
    collector = Collector(LoopFeatures(), LoopDrafter())
    collector.add(*lessons(1))
    data = collector.dataset
    rng = np.random.default_rng(0)
    exact, noise = np.log2(data.labels), rng.standard_normal(len(data))

    def slope(drafts: np.ndarray) -> float:
        return slope_of(type(data)(data.rows, data.costs, data.tasks, data.task_keys, data.digests, drafts))

    assert slope(exact) > slope(data.drafts) > slope(noise)
    assert slope(np.zeros(len(data))) == 1.0
    for costs in (np.full(len(data), np.inf), np.full(len(data), 1e-3)):
        data_of_equals = Dataset(data.rows, costs, data.tasks, data.task_keys, data.digests, data.drafts)
        assert slope_of(data_of_equals) == USUAL_SLOPE
    few = data.take(slice(2))
    assert slope_of(few) == pytest.approx(USUAL_SLOPE, rel=0.25)
    errors = draft_errors(data)
    assert errors.mean() == pytest.approx(0.0, abs=1e-9)
    assert np.corrcoef(errors, exact - data.drafts)[0, 1] == pytest.approx(1.0)


def test_drafts_of_failures_alone_stay_as_they_are() -> None:
    model, programs = drafted(), Programs(draw(task(), 20))
    before = model.predict(task(), programs)
    inputs, _ = lessons(1)
    broken = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "too slow", 1.0, 0)
    model.update(inputs, [broken] * len(inputs))
    assert np.corrcoef(before, model.predict(task(), programs))[0, 1] > 0.99


def test_programs_without_rows_are_not_to_be_measured() -> None:
    class Half(LoopFeatures):
        def extract(self, task: ansor.Task, candidates: object) -> object:  # type: ignore[override]
            if len(candidates) > 1 or candidates[0].steps == forbidden.steps:  # type: ignore[arg-type, index]
                raise ansor.ScheduleError("illegal")
            return super().extract(task, candidates)  # type: ignore[arg-type]

    states = Programs(draw(task(), 5))[:]
    forbidden = states[2]
    refined = drafted(XGBModel(features=Half()))  # type: ignore[arg-type]
    for model in (refined, XGBModel(features=Half(), num_warmup_sample=-1)):  # type: ignore[arg-type]
        for _ in range(2):
            assert np.flatnonzero(np.isneginf(model.predict(task(), states))).tolist() == [2]
            model.update(
                [MeasureInput(task(), state) for state in states], [answer(state) for state in states]
            )
    assert len(refined.learned.dataset) == 4


def test_scikit_learn_takes_any_regressor() -> None:
    from sklearn.neighbors import KNeighborsRegressor

    class Neighbours:
        def __init__(self) -> None:
            self.inner = KNeighborsRegressor(3)

        def fit(self, X: object, y: object, sample_weight: object = None) -> None:
            self.inner.fit(X, y)

        def predict(self, X: object) -> object:
            return self.inner.predict(X)

    model = SklearnModel(
        lambda seed: Neighbours(), features=LoopFeatures(), num_warmup_sample=0, pooling=["mean"]
    )
    model.update(*lessons(1))
    assert accuracy(model) > 0.6


@pytest.mark.parametrize("kind", ["ridge", "neighbours", "pipeline", "forest", "lambda"])
def test_a_regressor_of_scikit_learn_is_cloned(kind: str) -> None:
    """Weights or none, the object that was passed stays untrained, and a seed makes runs repeatable."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    given = {
        "ridge": Ridge(),
        "neighbours": KNeighborsRegressor(3),
        "pipeline": make_pipeline(StandardScaler(), RandomForestRegressor(8)),
        "forest": RandomForestRegressor(8),
        "lambda": lambda seed: KNeighborsRegressor(3),
    }[kind]

    def taught(seed: int) -> SklearnModel:
        model = SklearnModel(given, features=LoopFeatures(), num_warmup_sample=0, seed=seed)
        model.update(*lessons(1))
        return model

    one, again, other = (accuracy(taught(seed)) for seed in (5, 5, 6))
    assert one == again > 0.6
    assert not [name for name in vars(given) if name.endswith("_")]
    programs = Programs(draw(task(), 20))
    scores = [taught(seed).predict(task(), programs) for seed in (5, 6)]
    assert (scores[0] == scores[1]).all() == (kind not in ("pipeline", "forest"))
    assert other > 0.6


def test_a_regressor_keeps_the_seed_of_its_own() -> None:
    from sklearn.ensemble import RandomForestRegressor

    programs, scores = Programs(draw(task(), 20)), []
    for seed in (5, 6):
        model = SklearnModel(RandomForestRegressor(8, random_state=1), features=LoopFeatures(), seed=seed)
        model.num_warmup_sample = 0
        model.update(*lessons(1))
        scores.append(model.predict(task(), programs))
    np.testing.assert_array_equal(*scores)


def test_a_regressor_that_cannot_be_fitted_is_blamed() -> None:
    class Broken:
        def fit(self, X: object, y: object) -> None:
            raise KeyError("column")

        def predict(self, X: object) -> None: ...

    model = SklearnModel(lambda seed: Broken(), features=LoopFeatures(), num_warmup_sample=0)  # type: ignore[arg-type,return-value]
    model.update(*lessons(1))
    with pytest.raises(KeyError) as caught:
        model.predict(task(), Programs(draw(task(), 4)))
    assert caught.value.__notes__ == ["Broken was fitted to 60 programs when this was raised"]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ansor.DefinitionError, match="known are hist_gradient_boosting, random_forest"):
        SklearnModel("svm")  # type: ignore[arg-type]
    with pytest.raises(ansor.DefinitionError, match="known are sum, mean, max"):
        SklearnModel("ridge", pooling=["median"])  # type: ignore[list-item]


@pytest.mark.parametrize("learned", [XGBModel, SklearnModel])
def test_missing_numbers_are_no_obstacle(learned: type[LearnedModel]) -> None:
    class Gaps(LoopFeatures):
        def extract(self, task: ansor.Task, candidates: Candidates) -> PackedRows:
            rows = super().extract(task, candidates)
            rows.values[rows.values > 4.0] = np.nan
            return rows

    model = learned(features=Gaps(), num_warmup_sample=0)
    model.update(*lessons(1))
    assert np.isfinite(model.predict(task(), Programs(draw(task(), 10)))).all()


@pytest.mark.parametrize("learned", [XGBModel, SklearnModel])
@pytest.mark.parametrize("number", [np.inf, -np.inf, 1e300])
def test_infinite_numbers_are_the_fault_of_their_source(learned: type[LearnedModel], number: float) -> None:
    class Endless(LoopFeatures):
        def extract(self, task: ansor.Task, candidates: Candidates) -> PackedRows:
            rows = super().extract(task, candidates)
            return PackedRows(np.where(rows.values > 4.0, np.float64(number), rows.values), rows.offsets)

    model = learned(features=Endless(), num_warmup_sample=0)
    model.update(*lessons(1))
    message = r"Endless.extract: a feature of column \d+ is -?(inf|1e\+300), and models learn from finite"
    with pytest.raises(ansor.DefinitionError, match=message):
        model.predict(task(), Programs(draw(task(), 10)))


@pytest.mark.parametrize("seed", [2**31, 2**64 + 7, 2**130])
def test_seeds_may_be_larger_than_the_libraries_take(seed: int) -> None:
    """A seed may be a time in nanoseconds, or random bits."""
    trees = XGBModel(seed=seed, features=LoopFeatures(), num_warmup_sample=0)
    forest = SklearnModel("random_forest", seed=seed, features=LoopFeatures(), num_warmup_sample=0)
    for model in (trees, forest):
        model.update(*lessons(1))
        assert np.isfinite(model.predict(task(), Programs(draw(task(), 4)))).all()
