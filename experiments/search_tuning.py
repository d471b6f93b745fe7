"""Part `tuning`: how long a cold start takes to a program that is faster than numpy by a given factor.

Each run is a process of its own that knows nothing: no log, no trained model. It notes every improvement with
the seconds since it began, importing and starting workers included, and the seconds spent on thinking
(proposing and learning). What the tuner itself measured flatters its programs, so the improvements are
measured again beside numpy, in turn, in another process; a time counts from the first one that holds there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import ansor
from experiments.harness import Bench, Estimate, fresh_process, interleave
from experiments.search_cases import CASES
from experiments.search_runs import Clock, checked_call, default_policy, folder, kept

CASE: Final = "matmul_add-1024"
RATIO: Final = 0.93
"""Time of the best program over numpy's: what TVM ends at, after 603 s."""
SECONDS: Final = 30.0
LIMIT: Final = 60.0
OVERHEAD: Final = 0.15
TRIALS: Final = 2000
"""More than any run makes before its time is up."""
NEAR: Final = 1.3
"""Improvements up to so many times slower than the run's best, by its own account, are measured again."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """The record at `index` was the best so far: seconds since the start and of thinking; its run time."""

    index: int
    seconds: float
    thinking: float
    cost: float


@dataclass(frozen=True, slots=True)
class Run:
    """One cold start: seconds in all, of them thinking, trials, and the improvements, in order."""

    seconds: float
    thinking: float
    trials: int
    improvements: tuple[Improvement, ...]
    ratios: tuple[float | None, ...]
    """Of each improvement, over numpy, measured again; None where that was not done."""

    def ratio_after(self, seconds: float) -> float | None:
        """Time over numpy's of the best program after so many seconds, the best by the run's own account."""
        found = [
            ratio
            for one, ratio in zip(self.improvements, self.ratios, strict=True)
            if one.seconds <= seconds and ratio is not None
        ]
        return found[-1] if found else None

    def reached(self, ratio: float) -> Improvement | None:
        """The first improvement that keeps a ratio when it is measured again."""
        for one, found in zip(self.improvements, self.ratios, strict=True):
            if found is not None and found <= ratio:
                return one
        return None

    def overhead(self, ratio: float) -> float:
        """Share of the time that went into thinking, until a ratio was reached or the run ended."""
        until = self.reached(ratio)
        return self.thinking / self.seconds if until is None else until.thinking / until.seconds


class Watch(ansor.MeasureCallback):
    """Notes improvements as they are measured."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.count = 0
        self.improvements: list[Improvement] = []

    def callback(
        self, policy: object, inputs: Sequence[ansor.MeasureInput], results: Sequence[ansor.MeasureResult]
    ) -> None:
        for result in results:
            if result.ok and (not self.improvements or result.mean_cost < self.improvements[-1].cost):
                clock = self.clock
                self.improvements.append(
                    Improvement(self.count, clock.elapsed, clock.thinking, result.mean_cost)
                )
            self.count += 1


def tuning(bench: Bench, seeds: int, limit: float = LIMIT) -> None:
    """Add the rows of part `tuning`; goals only if the runs last long enough to tell."""
    runs = [run_of(seed, limit) for seed in range(seeds)]
    report(bench, runs, limit)


def report(bench: Bench, runs: Sequence[Run], limit: float) -> None:
    """Add the rows of some runs."""
    full = limit >= SECONDS
    peer = "TVM's auto_scheduler 0.93 after 603 s"
    after = [ratio for run in runs if (ratio := run.ratio_after(min(limit, SECONDS))) is not None]
    if after:
        name = f"{CASE}: time over numpy's after {min(limit, SECONDS):.0f} s, cold start"
        bench.add(name, Estimate.of(after), "of 1", peer=peer, at_most=RATIO if full else None)
    reached = [run.reached(RATIO) for run in runs]
    seconds = [run.seconds if one is None else one.seconds for run, one in zip(runs, reached, strict=True)]
    count = sum(one is not None for one in reached)
    bench.add(
        f"{CASE}: time until {RATIO} of numpy's",
        Estimate.of(seconds),
        "s",
        peer=f"reached in {count} of {len(runs)} runs; others count as their whole length",
        at_most=SECONDS if full else None,
    )
    share = Estimate.of([run.overhead(RATIO) for run in runs])
    bench.add(f"{CASE}: share of it spent searching", share, "of 1", at_most=OVERHEAD if full else None)
    bench.add(f"{CASE}: trials in {limit:.0f} s", median(run.trials for run in runs), "")


def run_of(seed: int, limit: float) -> Run:
    """One cold start and its improvements measured again, or what was kept of them."""
    log = folder() / f"tuning-{limit:.0f}s-s{seed}.log.json"
    found = kept(log.with_suffix(".run"), lambda: _make(seed, limit, log))
    improvements = tuple(Improvement(**one) for one in found["improvements"])
    return Run(found["seconds"], found["thinking"], found["trials"], improvements, tuple(found["ratios"]))


def _make(seed: int, limit: float, log: Path) -> dict[str, Any]:
    log.unlink(missing_ok=True)
    found: dict[str, Any] = fresh_process("experiments.search_tuning:cold_start", seed, limit, str(log))
    costs = [one["cost"] for one in found["improvements"]]
    wanted = [one["index"] for one in found["improvements"] if one["cost"] <= NEAR * min(costs)]
    again = fresh_process("experiments.search_tuning:again", str(log), wanted) if wanted else {}
    found["ratios"] = [again.get(str(one["index"])) for one in found["improvements"]]
    return found


def cold_start(seed: int, limit: float, log: str) -> dict[str, Any]:
    """Tune in this process, without help, until the time is up."""
    started = time.perf_counter()  # Before ansor loads the search, on its first use.
    task = CASES[CASE].task()
    clock = Clock(default_policy(task, seed), limit, started)
    watch = Watch(clock)
    options = ansor.TuningOptions(
        num_measure_trials=TRIALS,
        early_stopping=None,
        verbose=0,
        seed=seed,
        measure_callbacks=[watch, ansor.RecordToFile(log)],
    )
    result = task.tune(options, clock)
    return {
        "seconds": clock.elapsed,
        "thinking": clock.thinking,
        "trials": result.trials,
        "improvements": [asdict(one) for one in watch.improvements],
    }


def again(log: str, wanted: Sequence[int]) -> dict[str, float]:
    """Time some programs of a log and numpy in turn; median ratios of neighbours, by the record's number."""
    case = CASES[CASE]
    task, inputs = case.task(), case.inputs()
    library = case.numpy_call(inputs)
    expected = library()
    calls: dict[str, Callable[[], object]] = {"numpy": library}
    for index, (inp, _) in enumerate(ansor.load_records(log)):
        if index in wanted:
            state = ansor.recover_measure_input(inp, rebuild_state=True, dag=task.compute_dag).state
            assert isinstance(state, ansor.State)
            kernel = ansor.build(state, task.compute_dag.tensors, task.target)
            calls[str(index)] = checked_call(kernel, inputs, expected)
    times = interleave(calls, repeats=7)
    peer = times.pop("numpy")
    return {
        name: median(ours / theirs for ours, theirs in zip(found, peer, strict=True))
        for name, found in times.items()
    }
