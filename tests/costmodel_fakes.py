"""Stand-ins for tests of cost models: a small feature table, measurements that follow a rule."""

from __future__ import annotations

import hashlib
import math

import numpy as np

import ansor
from ansor.schedule.stages import ComputeAt
from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel import Candidates, Drafter, FeatureSource, FloatArray, PackedRows, Programs
from costmodel.candidates import batches_of
from measure import MeasureErrorNo, MeasureInput, MeasureResult
from search.params import REFERENCE_SPACE
from sketches import Population, ProgramSpace

WIDTH = 20


class LoopFeatures(FeatureSource):
    """One row per stage that is not inlined: sizes of its loops, how they run, its unroll limit."""

    def __init__(self) -> None:
        self.extracted = 0

    @property
    def version(self) -> str:
        return "loops-1"

    @property
    def width(self) -> int:
        return WIDTH

    def extract(self, task: Task, batch: Population | list[State]) -> PackedRows:
        states = (
            [batch.materialize(row) for row in range(len(batch))] if isinstance(batch, Population) else batch
        )
        self.extracted += len(states)
        rows = [_rows_of(state.with_bounds()) for state in states]
        counts = np.array([0, *map(len, rows)], dtype=np.int64)
        values = np.array([row for program in rows for row in program], dtype=np.float32)
        return PackedRows(values.reshape(-1, WIDTH), np.cumsum(counts))


class LoopDrafter(Drafter):
    """Knows half of the rule that `answer` follows: that parallel and vector loops are good."""

    def seconds_of(self, task: Task, features: PackedRows) -> FloatArray:
        rows = PackedRows(features.values, features.offsets)
        speeds = np.exp2(rows.total(0.3 * rows.values[:, 0] + 0.5 * rows.values[:, 1]))
        return np.where(rows.counts > 0, 1.0 / speeds, 0.0)


def states_of(candidates: Candidates) -> list[State]:
    made = [Programs(batch) if isinstance(batch, Population) else batch for batch in batches_of(candidates)]
    return [state for states in made for state in states]


def _rows_of(state: State) -> list[list[float]]:
    rows = []
    for stage in state.stages:
        if stage.is_placeholder or stage.compute_at is ComputeAt.INLINED:
            continue
        extents = [math.log2(int(loop.extent)) for loop in reversed(stage.iterators)]  # type: ignore[arg-type]
        notes = dict.fromkeys(("parallel", "vectorize", "unroll"), 0.0)
        for loop in stage.iterators:
            name = loop.annotation.name.lower()
            if name in notes:
                notes[name] += math.log2(int(loop.extent))  # type: ignore[arg-type]
        head = [
            *notes.values(),
            math.log2(1 + max(stage.auto_unroll_max_step, 0)),
            float(len(extents)),
            sum(extents),
        ]
        rows.append((head + extents + [0.0] * WIDTH)[:WIDTH])
    return rows


def matmul_task(size: int = 64, target: str = "llvm -num-cores=2") -> ansor.SearchTask:
    return ansor.SearchTask(func="ansor.matmul", args=(size, size, size), target=target)


def draw(task: Task, count: int, seed: int = 0) -> list[Population]:
    return list(ProgramSpace.of(task, REFERENCE_SPACE).sample(count, np.random.default_rng(seed)).populations)


def measured(
    task: Task, count: int, seed: int = 0, failing: float = 0.0
) -> tuple[list[MeasureInput], list[MeasureResult]]:
    """Programs with run times that depend on their loops: long vectors and some parallelism are fast."""
    states = ansor.sample_programs(task, count, np.random.default_rng(seed), REFERENCE_SPACE)
    return [MeasureInput(task, state) for state in states], [answer(state, failing) for state in states]


def answer(state: State, failing: float = 0.0) -> MeasureResult:
    text = str(state.with_bounds())
    if hashlib.sha256(text.encode()).digest()[0] < 256 * failing:
        return MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "too slow", 1.0, 1_700_000_000)
    last = _rows_of(state.with_bounds())[-1]
    cost = 1e-3 * 2.0 ** (3.0 - 0.7 * min(last[1], 4.0) - 0.5 * min(last[0], 2.0) + 0.1 * abs(last[6] - 3.0))
    return MeasureResult((cost,), MeasureErrorNo.NO_ERROR, "", 0.1, 1_700_000_000)  # type: ignore[arg-type]
