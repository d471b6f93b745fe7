"""`XGBTuner`: a template's configurations, the best by a learned model first.

The model is an ordinary cost model. By default it is an `XGBModel` whose rows are the configurations
themselves, one row per program: tile lengths in powers of two, positions of loops, kinds of annotations,
knobs. No program need be made to score one, so all of a space, or many thousands of a large one, are scored
at once. As these columns mean the same at every size, records of the template at other sizes teach it too.

A model over other features, such as an `XGBModel()` over those of statements, is asked about programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.checks import check_integer
from ansor.schedule.state import State
from ansor.task.registry import decode_workload_key
from ansor.task.task import Task
from costmodel import Candidates, CostModel, FeatureSource, LearnedModel, PackedRows, XGBModel
from costmodel.candidates import batches_of
from measure import MeasureInput, load_measurements, same_target
from measure.records.log import PathLike
from measure.records.settled import first_records
from measure.records.targets import target_text
from search.asking import check_model, scores_of, teach, unteach
from search.history import Trial
from search.policy import InitSearchCallback
from search.templates.task import TemplateTask
from search.templates.tuner import LISTED, TemplateTuner
from sketches import Population
from sketches.templates.config import ConfigEntity
from sketches.templates.function import Template

_POOL: Final = 4096
_GENERATIONS: Final = 4
_PROGRAMS: Final = 8
"""Programs made per one that is measured, for a model that looks at programs."""
EPSILON: Final = 0.05

Coordinates = NDArray[np.int64]


class ConfigColumns(FeatureSource):
    """
    Features of configurations: one row per program, the columns of `ConfigSpace.rows`.

    Parameters
    ----------
    task
        Says which columns there are. Programs of the same template at other sizes have the same.
    """

    def __init__(self, task: TemplateTask) -> None:
        self._task = task
        self._known: dict[tuple[str, str], NDArray[np.float32]] = {}

    @property
    def version(self) -> str:
        return f"template {self._task.template.name}: {', '.join(self._task.config_space.names)}"

    @property
    def width(self) -> int:
        return int(self.rows(np.zeros((1, len(self._task.config_space.dims)), np.int64)).values.shape[1])

    def rows(self, coordinates: Coordinates) -> PackedRows:
        """Rows of configurations of the task, by coordinates."""
        return PackedRows(
            self._task.config_space.rows(coordinates), np.arange(len(coordinates) + 1, dtype=np.int64)
        )

    def extract(self, task: Task, candidates: Candidates) -> PackedRows:
        """Rows of programs; what the template does not say of a program is missing (NaN)."""
        states: list[State] = []
        for batch in batches_of(candidates):
            if isinstance(batch, Population):
                states += (batch.materialize(row) for row in range(len(batch)))
            else:
                states += batch
        values = np.full((len(states), self.width), np.nan, np.float32)
        for number, state in enumerate(states):
            values[number] = self._row(task, state)
        return PackedRows(values, np.arange(len(states) + 1, dtype=np.int64))

    def note(self, state: State, config: ConfigEntity) -> None:
        """Say which configuration a program of the task has, so that nobody needs to find out."""
        self._known[self._task.workload_key, repr(state.steps)] = self._of(config)

    def _row(self, task: Task, state: State) -> NDArray[np.float32]:
        name = (task.workload_key, repr(state.steps))
        if name not in self._known:
            template: Template = self._task.template
            decoded = decode_workload_key(task.workload_key)
            mine = decoded is not None and decoded[0] == template.name
            config = template.find(decoded[1], state.steps) if mine and decoded is not None else None
            self._known[name] = self._of(config)
        return self._known[name]

    def _of(self, config: ConfigEntity | None) -> NDArray[np.float32]:
        parts: list[float] = []
        for name, dimension in self._task.config_space.dimensions.items():
            width = len(dimension[0].features)
            found = config[name].features if config is not None and name in config else ()
            parts += found if len(found) == width else [np.nan] * width
        return np.array(parts, np.float32)


class XGBTuner(TemplateTuner):
    """
    Measures what a model believes to be best.

    Parameters
    ----------
    task, seed, init_search_callbacks
        As in `TemplateTuner`.
    model
        Default: an `XGBModel` over configurations.
    plan_size
        Programs to know before the default model is believed; until then they are drawn at random.
    """

    def __init__(
        self,
        task: TemplateTask,
        seed: int | None = None,
        init_search_callbacks: Sequence[InitSearchCallback] | None = None,
        *,
        model: CostModel | None = None,
        plan_size: int = 32,
    ) -> None:
        super().__init__(task, seed, init_search_callbacks)
        plan_size = check_integer("XGBTuner(plan_size)", plan_size, low=1)
        self.columns = ConfigColumns(task)
        own = XGBModel(num_warmup_sample=plan_size - 1, seed=self.seed, features=self.columns)
        self.model: CostModel = own if model is None else model
        check_model("XGBTuner(model)", self.model)

    def load_history(self, filename: PathLike, count: int = 8) -> None:
        """Learn from a log: the model from all its programs, the search from what was best at other sizes."""
        super().load_history(filename, count)
        records = [one for one in first_records(load_measurements(filename)) if self._is_mine(one[0])]
        teach(self.model, [inp for inp, _ in records], [res for _, res in records])

    def learn(self, trials: Sequence[Trial]) -> None:
        """Note the results and hand them to the model."""
        super().learn(trials)
        for trial in trials:
            index = self.index_of(trial.state, trial.key)
            if index is not None:
                self.columns.note(trial.state, self.space[index])
        inputs = [MeasureInput(self._task, trial.state) for trial in trials]
        teach(self.model, inputs, [trial.result for trial in trials])

    def unlearn(self, trials: Sequence[Trial]) -> None:
        """Forget the results, the model too."""
        super().unlearn(trials)
        inputs = [MeasureInput(self._task, trial.state) for trial in trials]
        unteach(self.model, inputs, [trial.result for trial in trials])

    def wanted(self, rng: np.random.Generator, count: int) -> Iterator[int]:
        """The best by the model, with a few at random among them; at random while it knows nothing."""
        spare = self.drawn(rng)
        if self.model.informative:
            best = iter(
                self._best_by_columns(rng) if self._scores_columns else self._best_programs(rng, count)
            )
            explores = rng.random(1 << 16) < EPSILON
            for number, index in enumerate(best):
                if explores[number % len(explores)]:
                    yield next(spare, index)
                yield index
        yield from spare

    @property
    def _scores_columns(self) -> bool:
        return isinstance(self.model, LearnedModel) and self.model.features is self.columns

    def _score(self, pool: Coordinates) -> NDArray[np.float64]:
        assert isinstance(self.model, LearnedModel)
        return self.model.predict_rows(self.columns.rows(pool))

    def _best_by_columns(self, rng: np.random.Generator) -> list[int]:
        """Order all configurations by score, or those that a few generations of mutations came upon."""
        if not self.space.dims:
            return [0]
        if self.space.size <= LISTED:
            indices = np.arange(self.space.size)
            pool = np.stack(np.unravel_index(indices, self.space.dims, order="F"), axis=1)
            return [int(i) for i in np.argsort(-self._score(pool), kind="stable")]
        dims = np.array(self.space.dims)
        pool = rng.integers(dims, size=(_POOL, len(dims)))
        fast = sorted(
            (one for one in self.measured if one.seconds is not None), key=lambda x: x.seconds or 0.0
        )
        start = np.array([one.coordinates for one in fast[:64]], np.int64).reshape(-1, len(dims))
        pool = np.unique(np.concatenate([start, pool]), axis=0)
        for _ in range(_GENERATIONS):
            order = np.argsort(-self._score(pool), kind="stable")
            kept = pool[order[: _POOL // 4]]
            parents = kept[rng.integers(len(kept), size=_POOL)]
            mutated = np.arange(len(dims)) == rng.integers(len(dims), size=(_POOL, 1))
            children = np.where(mutated, rng.integers(dims, size=parents.shape), parents)
            pool = np.unique(np.concatenate([kept, children]), axis=0)
        order = np.argsort(-self._score(pool), kind="stable")
        return [self.space.index_of(row) for row in pool[order].tolist()]

    def _best_programs(self, rng: np.random.Generator, count: int) -> list[int]:
        """Order some configurations that are not measured yet by the scores of their programs."""
        known = {one.coordinates for one in self.measured}
        found: dict[int, State] = {}
        for number, index in enumerate(self.drawn(rng)):
            if len(found) >= _PROGRAMS * count or number > LISTED:
                break
            if self.space.coordinates(index) not in known and self.key_of(index) is not None:
                found.setdefault(index, self._task.state_of(index))
        indices = list(found)
        scores = scores_of(self.model, self._task, list(found.values()))
        return [indices[i] for i in np.argsort(-scores, kind="stable") if np.isfinite(scores[i])]

    def _is_mine(self, inp: MeasureInput) -> bool:
        decoded = decode_workload_key(inp.task.workload_key)
        mine = decoded is not None and decoded[0] == self._task.template.name
        return mine and same_target(self._task.target, target_text(inp.task))
