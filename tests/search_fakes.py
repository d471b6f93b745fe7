"""Stand-ins that the tests of searching share: landscapes, models, options without a machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep
from ansor.task.task import Task
from costmodel import CostModel, FloatArray, Programs
from measure import MeasureErrorNo, MeasureInput, MeasureResult, RecordToFile, load_records
from measure.simulate import NullBuilder, SimulatedRunner
from search import TuningOptions
from sketches import ColumnKind, Population


def tile_distance(state: State) -> float:
    """How far a program's tile lengths are from fours: a smooth landscape with one valley."""
    lengths = [length for step in state.steps if isinstance(step, SplitStep) for length in step.lengths]
    return float(sum(abs(np.log2(length) - 2) for length in lengths))


def simulated_cost(inp: MeasureInput, failing: float = 0.0) -> MeasureResult:
    """A run time that depends on the program alone; some programs fail."""
    state = inp.state
    assert isinstance(state, State)
    digest = hashlib.sha256(str(state.with_bounds()).encode()).digest()
    if digest[0] < 256 * failing:
        return MeasureResult.failed(MeasureErrorNo.RUNTIME_DEVICE, "it crashed", 0.1, 1700000000)
    noise = int.from_bytes(digest[1:4], "little") / 2**24
    seconds = 1e-3 * (1 + tile_distance(state) + 0.05 * noise)
    return MeasureResult((seconds,), MeasureErrorNo.NO_ERROR, "", 0.1, 1700000000)  # type: ignore[arg-type]


class TileModel(CostModel):
    """A model that learns: the mean speed of programs by the length of each tile, in the order of training.

    The order enters on purpose (later results weigh more), so that training in another order shows.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.asked = 0
        self._speed: dict[tuple[str, int], float] = {}

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            assert isinstance(inp.state, State)
            self.seen.append(program_key(inp.state))
            speed = 1e-3 / result.mean_cost if result.ok else 0.0
            for step in inp.state.steps:
                if not isinstance(step, SplitStep):
                    continue
                for level, length in enumerate(step.lengths):
                    name = (f"{step.stage}.{step.iterator}.{level}", int(length))
                    self._speed[name] = 0.6 * self._speed.get(name, 0.1) + 0.4 * speed

    def predict(self, task: Task, candidates: Any) -> FloatArray:
        assert isinstance(candidates, Programs)
        self.asked += len(candidates)
        scores = [self._score(population) for population in candidates.populations]
        return np.concatenate(scores) if scores else np.empty(0)

    def _score(self, population: Population) -> FloatArray:
        family, total = population.family, np.zeros(len(population))
        for hole in family.holes:
            split = family.steps[hole.step]
            assert isinstance(split, SplitStep)
            axis = f"{split.stage}.{split.iterator}"
            for level, at in enumerate(range(hole.start, hole.stop)):
                total += [self._speed.get((f"{axis}.{level}", int(v)), 0.1) for v in population.values[:, at]]
        for at in family.positions(ColumnKind.UNROLL):
            total += 1e-4 * (population.values[:, at] == 16)
        return np.asarray(total)


def options(trials: int, log: Path | None = None, **changes: Any) -> TuningOptions:
    """Options that measure by `simulated_cost` and keep a log."""
    settings: dict[str, Any] = {
        "num_measure_trials": trials,
        "num_measures_per_round": 8,
        "early_stopping": None,
        "verbose": 0,
        "builder": NullBuilder(n_parallel=2),
        "runner": SimulatedRunner(simulated_cost),
        "measure_callbacks": [RecordToFile(log)] if log is not None else None,
    }
    return TuningOptions(**(settings | changes))


def logged(log: Path, task: Task) -> list[str]:
    """Keys of a log's programs, in order."""
    return [program_key(inp.state.replay(task.compute_dag)) for inp, _ in load_records(log)]  # type: ignore[union-attr]
