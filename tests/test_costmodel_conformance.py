"""What every cost model must do; a new one is one subclass of the suite."""

from __future__ import annotations

import json
import zipfile
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ansor
from costmodel import (
    AnalyticModel,
    CostModel,
    Dataset,
    DraftedModel,
    LearnedModel,
    PackedRows,
    Programs,
    RandomModel,
    SklearnModel,
    XGBModel,
)
from costmodel.rows import FloatArray
from measure import MeasureErrorNo, MeasureInput, MeasureResult
from sketches import Population
from tests.costmodel_fakes import LoopDrafter, LoopFeatures, draw, matmul_task, measured

WARM_UP = 24


@cache
def task(size: int = 64) -> ansor.SearchTask:
    return matmul_task(size)


@cache
def lessons(size: int = 64) -> tuple[list[MeasureInput], list[MeasureResult]]:
    return measured(task(size), 48, seed=1, failing=0.1)


@cache
def candidates(size: int = 64) -> list[Population]:
    return draw(task(size), 16, seed=2)


def failures(inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
    return [MeasureResult.failed(MeasureErrorNo.RUNTIME_DEVICE, "it crashed", 0.1, 0) for _ in inputs]


@cache
def asked(suite: type[CostModelSuite]) -> CostModel:
    """A model that was taught the lessons, for those who only ask it."""
    return suite().taught()


def content_of(file: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header of a saved model, and its arrays, if it has any."""
    if not zipfile.is_zipfile(file):
        return json.loads(file.read_text()), {}
    arrays = dict(np.load(file))
    return json.loads(str(arrays.pop("header"))), arrays


def write_content(file: Path, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Invert `content_of`."""
    if not arrays:
        file.write_text(json.dumps(header))
        return
    with open(file, "wb") as stream:
        np.savez(stream, header=np.array(json.dumps(header)), **arrays)


class CostModelSuite:
    """Subclass it, write `make`, and pytest runs all of it."""

    @abstractmethod
    def make(self) -> CostModel:
        """Make a new model; equal ones every time."""

    def taught(self) -> CostModel:
        model = self.make()
        model.update(*lessons())
        return model

    def test_one_finite_score_per_program(self) -> None:
        programs = Programs(candidates())
        for model in (self.make(), asked(type(self))):
            scores = model.predict(task(), programs)
            assert scores.shape == (len(programs),)
            assert scores.dtype == np.float64
            assert np.isfinite(scores).all()

    def test_nothing_to_score_gives_no_scores(self) -> None:
        for model in (self.make(), asked(type(self))):
            for nothing in ([], Programs([]), Programs(candidates()[0].take([]))):
                assert model.predict(task(), nothing).shape == (0,)

    def test_states_and_rows_of_populations_score_alike(self) -> None:
        programs = Programs(candidates())
        for model in (self.make(), asked(type(self))):
            np.testing.assert_allclose(
                model.predict(task(), programs), model.predict(task(), list(programs)), rtol=1e-9
            )

    def test_a_score_does_not_depend_on_the_other_programs(self) -> None:
        states = Programs(candidates())[:6]
        for model in (self.make(), asked(type(self))):
            together = model.predict(task(), states)
            alone = np.concatenate([model.predict(task(), [state]) for state in states[::-1]])[::-1]
            np.testing.assert_allclose(together, alone, rtol=1e-9)

    def test_equal_models_taught_alike_agree(self) -> None:
        programs = Programs(candidates())
        first, second = (model.predict(task(), programs) for model in (self.taught(), asked(type(self))))
        np.testing.assert_array_equal(first, second)

    def test_lessons_in_pieces_teach_what_they_teach_at_once(self) -> None:
        """Asking in between changes nothing either: this is what makes runs resumable."""
        inputs, results = lessons()
        model, programs = self.make(), Programs(candidates())
        for start, stop in ((0, 7), (7, 30), (30, 31), (31, 48)):
            model.update(inputs[start:stop], results[start:stop])
            model.predict(task(), programs)
        expected = asked(type(self)).predict(task(), programs)
        np.testing.assert_array_equal(model.predict(task(), programs), expected)

    def test_a_lesson_told_twice_teaches_nothing_new(self) -> None:
        model, programs = self.taught(), Programs(candidates())
        model.update(*lessons())
        expected = asked(type(self)).predict(task(), programs)
        np.testing.assert_array_equal(model.predict(task(), programs), expected)

    def test_what_is_unlearned_was_never_taught(self) -> None:
        """Asked in between or not; what it was not told it need not forget."""
        inputs, results = lessons()
        programs, others = Programs(candidates()), lessons(48)
        for asks in (False, True):
            model = self.make()
            model.update(*others)
            model.update(inputs, results)
            if asks:
                model.predict(task(), programs)
            model.unlearn(inputs[:5], results[:5])
            model.unlearn(inputs[30:], results[30:])
            model.unlearn(*others)
            model.unlearn(*others)
            expected = self.make()
            expected.update(inputs[5:30], results[5:30])
            assert model.informative == expected.informative
            np.testing.assert_array_equal(model.predict(task(), programs), expected.predict(task(), programs))
            model.update(inputs[30:], results[30:])
            expected.update(inputs[30:], results[30:])
            np.testing.assert_array_equal(model.predict(task(), programs), expected.predict(task(), programs))

    def test_an_unseen_task_gets_finite_scores(self) -> None:
        scores = asked(type(self)).predict(task(48), Programs(candidates(48)))
        assert np.isfinite(scores).all()

    def test_failures_alone_can_be_learned_from(self) -> None:
        inputs, _ = lessons()
        model = self.make()
        model.update(inputs, failures(inputs))
        assert np.isfinite(model.predict(task(), Programs(candidates()))).all()
        model.update(*lessons(48))
        assert np.isfinite(model.predict(task(48), Programs(candidates(48)))).all()

    def test_a_loaded_model_scores_like_the_saved_one(self, tmp_path: Path) -> None:
        programs = Programs(candidates())
        for model in (self.make(), asked(type(self))):
            model.save(tmp_path / "model")
            loaded = self.make()
            loaded.load(tmp_path / "model")
            assert loaded.informative == model.informative
            expected = model.predict(task(), programs)
            np.testing.assert_array_equal(loaded.predict(task(), programs), expected)

    def test_a_foreign_file_is_refused(self, tmp_path: Path) -> None:
        for content in (b"{}", b"", b"\xff\xfe", b"PK\x03\x04"):
            (tmp_path / "model").write_bytes(content)
            with pytest.raises(ansor.LogFormatError, match="not a saved"):
                self.make().load(tmp_path / "model")

    def test_a_file_of_odd_content_is_refused_and_nothing_of_it_taken_over(self, tmp_path: Path) -> None:
        file, model, programs = tmp_path / "model", self.taught(), Programs(candidates())
        asked(type(self)).save(file)
        expected = model.predict(task(), programs)
        header, arrays = content_of(file)
        for name in header.keys() - {"format", "version"}:
            rest = {other: value for other, value in header.items() if other != name}
            for odd in (rest, *({**rest, name: value} for value in (None, "x", {"a": 1}))):
                write_content(file, odd, arrays)
                with pytest.raises(ansor.LogFormatError):
                    model.load(file)
        np.testing.assert_array_equal(model.predict(task(), programs), expected)


class LearnedSuite(CostModelSuite):
    """What models that learn must do besides."""

    def test_a_file_whose_arrays_do_not_fit_together_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "model"
        asked(type(self)).save(file)
        header, arrays = content_of(file)
        for name, array in arrays.items():
            rest = {other: kept for other, kept in arrays.items() if other != name}
            odd = [array[None], array.astype(str)]
            if name != "seen":  # There are as many of these as of measurements that could not be used, too.
                odd.append(np.zeros((len(array) + 1, *array.shape[1:]), array.dtype))
            for wrong in (rest, *({**rest, name: value} for value in odd)):
                write_content(file, header, wrong)
                with pytest.raises(ansor.LogFormatError, match="not a saved"):
                    self.make().load(file)

    def test_a_damaged_file_is_refused_or_makes_no_difference(self, tmp_path: Path) -> None:
        file = tmp_path / "model"
        asked(type(self)).save(file)
        data = file.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 30)):
            file.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
            with suppress(ansor.LogFormatError, OSError):
                self.make().load(file)

    def test_it_learns_what_is_fast(self) -> None:
        inputs, results = measured(task(), 40, seed=5)
        scores = asked(type(self)).predict(task(), [inp.state for inp in inputs])  # type: ignore[misc]
        costs = np.array([result.mean_cost for result in results])
        assert np.corrcoef(scores, -np.log(costs))[0, 1] > 0.5

    def test_it_is_informative_after_its_warm_up(self) -> None:
        inputs, results = lessons()
        model = self.make()
        model.update(inputs[:WARM_UP], results[:WARM_UP])
        assert not model.informative
        model.update(inputs[WARM_UP : WARM_UP + 1], results[WARM_UP : WARM_UP + 1])
        assert model.informative


class TestRandomModel(CostModelSuite):
    def make(self) -> CostModel:
        return RandomModel(3)


class TestXGBModel(LearnedSuite):
    def make(self) -> CostModel:
        return XGBModel(num_warmup_sample=WARM_UP, seed=3, features=LoopFeatures())


class TestXGBModelSquared(LearnedSuite):
    def make(self) -> CostModel:
        return XGBModel(num_warmup_sample=WARM_UP, features=LoopFeatures(), loss="squared")


class TestXGBModelAdaptive(LearnedSuite):
    def make(self) -> CostModel:
        return XGBModel(num_warmup_sample=WARM_UP, features=LoopFeatures(), adaptive_training=True)


class TestAnalyticModel(CostModelSuite):
    def make(self) -> CostModel:
        return AnalyticModel()


class TestRidge(LearnedSuite):
    def make(self) -> CostModel:
        return SklearnModel("ridge", num_warmup_sample=WARM_UP, features=LoopFeatures())


class TestHistGradientBoosting(LearnedSuite):
    def make(self) -> CostModel:
        return SklearnModel("hist_gradient_boosting", num_warmup_sample=WARM_UP, features=LoopFeatures())


class TestRandomForest(LearnedSuite):
    def make(self) -> CostModel:
        return SklearnModel("random_forest", num_warmup_sample=WARM_UP, features=LoopFeatures())


class TestMlp(LearnedSuite):
    def make(self) -> CostModel:
        return SklearnModel("mlp", num_warmup_sample=WARM_UP, features=LoopFeatures())


class TestDraftedModel(CostModelSuite):
    def make(self) -> CostModel:
        return DraftedModel(LoopDrafter(), XGBModel(features=LoopFeatures()))


class TestDraftedRidge(CostModelSuite):
    def make(self) -> CostModel:
        return DraftedModel(LoopDrafter(), SklearnModel("ridge", features=LoopFeatures()))


class NearestNeighbour(LearnedModel):
    """A user's model: a program is as fast as the most similar one that was measured."""

    def fit(self, data: Dataset) -> None:
        self.known, self.labels = data.rows.pooled(["mean"]), data.labels

    def score(self, rows: PackedRows) -> FloatArray:
        distances = np.abs(rows.pooled(["mean"])[:, None] - self.known).sum(axis=2)
        scores: FloatArray = self.labels[distances.argmin(axis=1)]
        return scores


class TestUsersLearnedModel(LearnedSuite):
    def make(self) -> CostModel:
        return NearestNeighbour(num_warmup_sample=WARM_UP, features=LoopFeatures())


def test_a_model_of_states_scores_the_rows_of_populations() -> None:
    class Shortest(ansor.CostModel):
        def update(self, inputs: Any, results: Any) -> None:
            pass

        def predict(self, task: ansor.Task, states: Sequence[ansor.State]) -> FloatArray:
            return np.array([-float(len(state.steps)) for state in states])

    programs = Programs(candidates())
    scores = Shortest().predict(task(), programs)
    assert scores.tolist() == [-len(state.steps) for state in programs]
    with pytest.raises(ansor.DefinitionError, match="Shortest cannot be saved"):
        Shortest().save("nowhere")
