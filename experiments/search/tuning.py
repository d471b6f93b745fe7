"""Part `tuning`: how long a cold start takes to a program that is faster than numpy by a given factor.

Each run is a process of its own that knows nothing: no log, no trained model. It notes every improvement with
the seconds since its parent started it, so that the interpreter, all imports and the start of workers count,
and the seconds spent on thinking (deriving sketches, proposing and learning). What the tuner itself measured
flatters its programs, so improvements are measured again beside numpy, in turn, in other processes:

- One process looks at all improvements that may matter. It only chooses: the first few that keep the ratio
  there. To these come the best before `SECONDS`, whatever its ratio, and the best of the run.
- `PROCESSES` further ones time the chosen, and the medians over them count. A time counts from the first
  chosen one whose median keeps the ratio; a program that was merely lucky once does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final

import ansor
from experiments.harness import Bench, Estimate, fresh_process
from experiments.search.cases import CASES
from experiments.search.runs import (
    PROCESSES,
    TIMES,
    Clock,
    Kept,
    checked_call,
    circumstances,
    default_policy,
    folder,
    kept,
    seconds_within,
)
from experiments.turns import interleave

CASE: Final = "matmul_add-1024"
RATIO: Final = 0.93
"""Time of the best program over numpy's: what TVM ends at, after 603 s."""
SECONDS: Final = 30.0
LIMIT: Final = 60.0
OVERHEAD: Final = 0.15
TRIALS: Final = 2000
"""More than any run makes before its time is up."""
NEAR: Final = 1.3
"""Improvements up to so many times slower than the run's best, by its own account, are looked at again."""
FIRST: Final = 3
"""So many of those that keep the ratio at a first look are measured properly."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """The record at `index` was the best so far: seconds since the start and of thinking; its run time."""

    index: int
    seconds: float
    thinking: float
    cost: float


@dataclass(frozen=True, slots=True)
class Run:
    """One cold start: seconds in all, when it was thinking, trials, and the improvements, in order."""

    seconds: float
    spans: tuple[tuple[float, float], ...]
    """Beginnings and ends of its thinking, in seconds since the start."""
    trials: int
    improvements: tuple[Improvement, ...]
    ratios: tuple[tuple[float, ...], ...]
    """Of each improvement, over numpy, measured again in some processes; empty where that was not done."""

    def ratio_after(self, seconds: float) -> float:
        """
        Time over numpy's of the best program after so many seconds, the best by the run's own account.

        Infinite if there was none yet.

        Raises
        ------
        ValueError
            If it was not measured again.
        """
        at = last_before(self.improvements, seconds)
        if at is None:
            return inf
        if not self.ratios[at]:
            raise ValueError(f"improvement {at}, the best after {seconds} s, was not measured again")
        return median(self.ratios[at])

    def reached(self, ratio: float) -> Improvement | None:
        """The first improvement whose median over processes keeps a ratio."""
        for one, found in zip(self.improvements, self.ratios, strict=True):
            if found and median(found) <= ratio:
                return one
        return None

    def overhead(self, ratio: float) -> float:
        """Share of the time that went into thinking, until a ratio was reached or the run ended."""
        until = self.reached(ratio)
        return self.overhead_within(self.seconds) if until is None else until.thinking / until.seconds

    def overhead_within(self, seconds: float) -> float:
        """Share of the first `seconds` that went into thinking, or of the run if it was shorter."""
        end = min(self.seconds, seconds)
        return seconds_within(self.spans, end) / end


def last_before(improvements: Sequence[Improvement], seconds: float) -> int | None:
    """Tell the place of the last improvement within the first `seconds`."""
    return max((at for at, one in enumerate(improvements) if one.seconds <= seconds), default=None)


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


def tuning(bench: Bench, seeds: int, limit: float = LIMIT, again: int = PROCESSES) -> None:
    """Add the rows of part `tuning`; goals only if the runs last long enough to tell."""
    runs, measured = [], []
    for seed in range(seeds):
        run, found = run_of(seed, limit, again)
        runs.append(run)
        measured += found
    report(bench, runs, limit, circumstances(measured))


def report(bench: Bench, runs: Sequence[Run], limit: float, when: str = "") -> None:
    """Add the rows of some runs; `when` says when they were made."""
    full, window = limit >= SECONDS, min(limit, SECONDS)
    after = [run.ratio_after(window) for run in runs]
    none = sum(ratio == inf for ratio in after)
    peer = f"TVM's auto_scheduler 0.93 after 603 s; {none} of {len(runs)} runs had no program yet (infinite)"
    bench.add(
        f"{CASE}: time over numpy's after {window:.0f} s, cold start",
        Estimate.of(after),
        "of 1",
        peer=f"{peer}; {when}" if when else peer,
        at_most=RATIO if full else None,
    )
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
    bench.add(
        f"{CASE}: share of it spent searching",
        share,
        "of 1",
        peer=f"share of the time until {RATIO} was reached, {median(seconds):.3g} s, not of {window:.0f} s",
        at_most=OVERHEAD if full else None,
    )
    bench.add(
        f"{CASE}: share of the whole {window:.0f} s spent searching",
        Estimate.of([run.overhead_within(window) for run in runs]),
        "of 1",
        peer="reached or not; imports and starting workers are no searching",
        at_most=OVERHEAD if full else None,
    )
    bench.add(f"{CASE}: trials in {limit:.0f} s", median(run.trials for run in runs), "")


def run_of(seed: int, limit: float, processes: int) -> tuple[Run, list[Kept]]:
    """One cold start and its improvements measured again, or what was kept of both; and when that was."""
    log = folder() / f"tuning-{limit:.0f}s-s{seed}.log.json"
    cold = kept(log.with_suffix(".run"), lambda: _cold(seed, limit, log))
    found = cold.value
    improvements = tuple(Improvement(**one) for one in found["improvements"])
    timed = kept(
        log.with_suffix(f".x{processes}{TIMES}"),
        lambda: measured_again(str(log), improvements, min(limit, SECONDS), processes),
    )
    ratios = tuple(tuple(each) for each in timed.value)
    spans = tuple((begin, end) for begin, end in found["spans"])
    run = Run(found["seconds"], spans, found["trials"], improvements, ratios)
    return run, [cold, timed]


def _cold(seed: int, limit: float, log: Path) -> dict[str, Any]:
    log.unlink(missing_ok=True)
    for old in log.parent.glob(f"{log.stem}*{TIMES}"):
        old.unlink()
    found: dict[str, Any] = fresh_process(
        "experiments.search.tuning:cold_start", seed, limit, str(log), time.monotonic()
    )
    return found


def measured_again(
    log: str, improvements: Sequence[Improvement], window: float, processes: int = PROCESSES
) -> list[list[float]]:
    """
    Measure the improvements that matter again: look once, then time the chosen in fresh processes.

    Returns
    -------
    list
        For each improvement its ratios over numpy in each process, empty for those that were not chosen.
    """
    if not improvements:
        return []
    look = [improvements[at].index for at in looked_at(improvements, window)]
    seen = fresh_process("experiments.search.tuning:beside_numpy", log, look)
    chosen = chosen_of(improvements, {int(name): ratio for name, ratio in seen.items()}, window)
    wanted = [improvements[at].index for at in chosen]
    runs = [fresh_process("experiments.search.tuning:beside_numpy", log, wanted) for _ in range(processes)]
    return [[run[str(one.index)] for run in runs if str(one.index) in run] for one in improvements]


def looked_at(improvements: Sequence[Improvement], window: float) -> list[int]:
    """Choose places of improvements to look at: those near the run's best, and the last in the window."""
    best = min(one.cost for one in improvements)
    near = {at for at, one in enumerate(improvements) if one.cost <= NEAR * best}
    return sorted(near | {at for at in (last_before(improvements, window),) if at is not None})


def chosen_of(improvements: Sequence[Improvement], seen: dict[int, float], window: float) -> list[int]:
    """
    Choose places of improvements to time properly.

    Parameters
    ----------
    improvements, window
        All of a run, in order, and the seconds that count.
    seen
        What a first look at some of them gave: ratios over numpy by the number of the record.
    """
    holding = [at for at, one in enumerate(improvements) if seen.get(one.index, inf) <= RATIO]
    last = last_before(improvements, window)
    always = {len(improvements) - 1} | ({last} if last is not None else set())
    return sorted(set(holding[:FIRST]) | always)


def cold_start(seed: int, limit: float, log: str, born: float) -> dict[str, Any]:
    """
    Tune in this process, without help, until the time is up.

    `born` is when the parent started this process, by `time.monotonic`, which all processes of a machine
    share; `limit` [s] counts from there.
    """
    started = time.perf_counter() - (time.monotonic() - born)
    task = CASES[CASE].task()
    begin = time.perf_counter()
    policy = default_policy(task, seed)
    clock = Clock(policy, limit, started)
    clock.spans.append((begin - started, clock.elapsed))
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
        "spans": clock.spans,
        "trials": result.trials,
        "improvements": [asdict(one) for one in watch.improvements],
    }


def beside_numpy(log: str, wanted: Sequence[int]) -> dict[str, float]:
    """Time some programs of a log and numpy in turn; median ratios of neighbours, by the record's number."""
    case = CASES[CASE]
    task, inputs = case.task(), case.inputs()
    library = case.numpy_call(inputs)
    expected = library()
    calls: dict[str, Callable[[], object]] = {"numpy": library}
    for index, (inp, _) in enumerate(ansor.load_records(log)):
        if index in wanted:
            kernel = ansor.build(inp.replay(task.compute_dag), task.compute_dag.tensors, task.target)
            calls[str(index)] = checked_call(kernel, inputs, expected)
    times = interleave(calls, repeats=7)
    peer = times.pop("numpy")
    return {
        name: median(ours / theirs for ours, theirs in zip(found, peer, strict=True))
        for name, found in times.items()
    }
