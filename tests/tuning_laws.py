"""What must hold of every search, whatever is computed: every program that is measured is right.

A search here is short but whole: sketches, evolution under a model, real building and running, every result
compared with the oracle before it counts, a log. Some are `tune`'s own, with the policy, the model and the
parameters of everyone who passes none; others have a learned model alone, which knows something from the
second round on, and sketches that are off by default. `experiments.fuzz --tune` checks it on random graphs
for as long as you like, `tests/test_search_computations.py` on those that other tuners stumbled over.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ansor
from ansor.runtime.build import lower
from tests.random_choice import Chooser
from tests.random_gathers import GATHERS
from tests.random_graphs import random_graph, random_inputs

ROUND = 3
"""Programs per round: small, so that few trials are several rounds, the later ones bred under the model."""
POPULATION, GENERATIONS = 24, 1


@dataclass
class Measured:
    """Keeps what was measured; a measure callback."""

    results: list[tuple[ansor.State, ansor.MeasureResult]] = field(default_factory=list)
    models: Counter[str] = field(default_factory=Counter)
    """Trials proposed under each kind of model."""

    def callback(
        self,
        policy: object,
        inputs: Sequence[ansor.MeasureInput],
        results: Sequence[ansor.MeasureResult],
    ) -> None:
        for inp, result in zip(inputs, results, strict=True):
            assert isinstance(inp.state, ansor.State)
            self.results.append((inp.state, result))
        assert isinstance(policy, ansor.SketchPolicy)
        self.models[type(policy.model).__name__] += len(inputs)


@dataclass
class Machinery:
    """A builder and a runner for many tasks, and what came out so far."""

    builder: ansor.LocalBuilder
    runner: ansor.LocalRunner
    outcomes: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)

    def tune(
        self, task: ansor.SearchTask, trials: int, seed: int = 0, policy: ansor.SketchPolicy | None = None
    ) -> ansor.TuningResult:
        """
        Tune a task, by the default policy if none is passed.

        Raises
        ------
        AssertionError
            If a program failed or was wrong, or the log does not give the best one back.
        """
        measured = Measured()
        with tempfile.TemporaryDirectory() as folder:
            log = str(Path(folder) / "log.json")
            options = ansor.TuningOptions(
                num_measure_trials=trials,
                num_measures_per_round=ROUND,
                verbose=0,
                seed=seed,
                builder=self.builder,
                runner=self.runner,
                measure_callbacks=[ansor.RecordToFile(log), measured],
            )
            result = task.tune(options, policy)
            self.models.update(measured.models)
            self.outcomes.update(result.error_no.name for _, result in measured.results)
            self.stops[result.stop_reason.value] += 1
            for state, outcome in measured.results:
                assert outcome.ok, f"{outcome.error_no.name}: {outcome.error_msg}\n{program_text(state)}"
            assert result.best_state is not None, result.message
            best, seconds = task.best_state(log)
            assert seconds == result.best_cost
            assert str(best.with_bounds()) == str(result.best_state.with_bounds())
        return result


@contextmanager
def machinery() -> Iterator[Machinery]:
    """One worker each for building and running, short timings: what counts is the check."""
    with (
        ansor.LocalBuilder(n_parallel=1, timeout=60) as builder,
        ansor.LocalRunner(number=1, repeat=1, min_repeat_ms=0, timeout=30) as runner,
    ):
        yield Machinery(builder, runner)


def task_of_seed(seed: int, target: str = "llvm") -> ansor.SearchTask:
    """
    The random computation of a seed, with its data.

    They are small integers, so that what is right does not depend on rounding. The seeds take the options of
    rewriting layouts in turn.
    """
    dag = random_graph(Chooser.from_seed(seed), max_ops=5, makers=GATHERS)
    data = {tensor.name: array for tensor, array in random_inputs(dag, seed).items()}
    return ansor.SearchTask(
        compute_dag=dag,
        workload_key=f'["fuzz", {seed}]',
        target=target,
        layout_rewrite_option=seed % 3,
        task_inputs=data,
        task_inputs_overwrite=True,
    )


def policy_of_seed(task: ansor.SearchTask, seed: int) -> ansor.SketchPolicy | None:
    """What the fuzzer tunes with: the default policy, or every other seed the learned one."""
    return learned_policy(task, seed) if seed % 2 else None


def learned_policy(task: ansor.SearchTask, seed: int) -> ansor.SketchPolicy:
    """Evolution under a learned model from the second round on; every fourth seed packs inputs, too."""
    params: dict[str, int | float | str] = {
        "evolutionary_search_population": POPULATION,
        "evolutionary_search_num_iters": GENERATIONS,
        "first_rounds_size": ROUND,
        "polish_after": ROUND,
        "cpu_packed_read": 2 * int(seed % 4 == 3),
    }
    model = ansor.XGBModel(num_warmup_sample=ROUND - 1, seed=seed)
    return ansor.SketchPolicy(task, model, params=params, seed=seed)


def program_text(state: ansor.State) -> str:
    """A program as its graph, loops and nest."""
    return f"{state.dag}\n{state.with_bounds()}\n{lower(state)}"
