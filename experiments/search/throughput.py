"""Parts `throughput` and `memory`: how many programs a search scores per second, and what it needs.

A scored program is valid, from the real mix of sketches, and its features and its score were computed. Rows
that fingerprints tell apart may be equal programs once they are lowered; `distinct_share` says how many are
not, in a sample of a further round, and every rate is multiplied by it: what is reported are different
programs. Rounds of a search are timed as a whole: sampling, breeding, repair, deduplication, features,
model, and the choice of what to measure. The model has learned from `RECORDS` programs before; the time of
training does not count, as it does not in the recorded rates. Those are of two cores, whose clock nobody
measured: the scale takes it to be `RECORDED_GHZ`, and measures this machine's by a loop on one thread.

The labels it learned from are not measured: they are analytic estimates times a factor that depends on the
features, so that there is much to learn and the model has all the trees that it ever has.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import ansor
from experiments.harness import Bench, Estimate, fresh_process
from experiments.search.cases import CASES, Peers
from experiments.search.clock import RECORDED_GHZ, Scale
from experiments.search.runs import default_policy

TASKS: Final = ("matmul_add-1024", "matmul-512", "conv2d-14", "softmax-1024")
MEMORY_TASKS: Final = ("conv2d-14",)
RECORDS: Final = 1024
ROUND: Final = 64
SAMPLED: Final = 400
"""Scored programs that are lowered to find the share of different ones."""
AT_LEAST: Final = 20.0
POPULATIONS: Final = (2048, 16384)
_HWM: Final = "VmHWM:"


def throughput(bench: Bench, tasks: Sequence[str], rounds: int, peers: Peers) -> None:
    """Add the rates of all tasks, beside the recorded ones scaled to this machine's clock."""
    scale = Scale()
    alone = [case for case in tasks if peers.rate(CASES[case]) is None]
    for case in bench.each(tasks):
        policy = taught_policy(CASES[case].task())
        measured: list[Round] = []
        scales = [scale.measure()]
        history = ansor.History()
        for index in range(rounds):
            measured.append(timed_round(policy, index, history))
            scales.append(scale.measure())
        share = share_of_round(policy, rounds, history)
        report(bench, case, measured, scales, peers.rate(CASES[case]), share)
        bench.add(f"{case}: features per statement", feature_count(policy), "", at_least=164)
    bench.add("tasks without a recorded rate, and so without a goal", len(alone), "", peer=", ".join(alone))


class Round:
    """What one round did: valid and all scored programs, families of its generations, seconds."""

    def __init__(self, valid: int, scored: int, families: Sequence[int], seconds: float) -> None:
        self.valid, self.scored, self.families, self.seconds = valid, scored, tuple(families), seconds

    @property
    def rate(self) -> float:
        """Valid programs per second."""
        return self.valid / self.seconds

    @property
    def rows_per_family(self) -> float:
        """Programs of a family in one generation, on average."""
        return self.scored / max(1, sum(self.families))


def report(
    bench: Bench,
    case: str,
    rounds: Sequence[Round],
    scales: Sequence[float],
    recorded: float | None,
    share: float,
) -> None:
    """
    Add the rows of one task.

    Parameters
    ----------
    bench, case, rounds
        Where to, what it is called, and what was measured.
    scales
        Of this machine's clock: before each round, and after the last.
    recorded
        The rate to compare with [1/s]; None without one.
    share
        Different programs among those scored; all rates are multiplied by it.
    """
    bench.add(f"{case}: candidates scored", Estimate.of([share * each.rate for each in rounds]), "1/s")
    bench.add(f"{case}: different programs among the scored", share, "of 1")
    if recorded is not None:
        near = [fmean(pair) for pair in pairwise(scales)]
        ratios = [share * each.rate / (recorded * clock) for each, clock in zip(rounds, near, strict=True)]
        clock = fmean(near)
        peer = (
            f"TVM {recorded:.0f}/s on 2 cores, x {clock:.2f} of its clock = {recorded * clock:.0f}/s; "
            f"its clock is assumed ({RECORDED_GHZ} GHz), ours measured on one thread; "
            f"our model has learned from {RECORDS} made-up run times, not measured ones"
        )
        bench.add(
            f"{case}: candidates scored, over TVM", Estimate.of(ratios), "x", peer=peer, at_least=AT_LEAST
        )
    bench.add(f"{case}: families per generation", fmean(n for each in rounds for n in each.families), "")
    bench.add(f"{case}: rows per family", fmean(each.rows_per_family for each in rounds), "")
    bench.add(f"{case}: invalid", 1 - sum(r.valid for r in rounds) / sum(r.scored for r in rounds), "of 1")


def timed_round(policy: ansor.SketchPolicy, index: int, history: ansor.History) -> Round:
    """Propose a round, and take simulated results of it into the history."""
    start = time.perf_counter()
    states = policy.propose(index, ROUND, history).states
    seconds = time.perf_counter() - start
    for state, result in zip(states, labels(policy.task, states, 0), strict=True):
        history.add(ansor.Trial(ansor.program_key(state), state, result))
    outcome = policy.last_outcome
    assert outcome is not None
    return Round(outcome.valid, outcome.scored, outcome.families, seconds)


class Listening(ansor.CostModel):
    """A model that notes the rows it is asked about and has another one score them."""

    def __init__(self, model: ansor.CostModel) -> None:
        self.model, self.heard = model, list[ansor.Population]()

    def update(self, inputs: Sequence[ansor.MeasureInput], results: Sequence[ansor.MeasureResult]) -> None:
        self.model.update(inputs, results)

    def predict(self, task: ansor.Task, candidates: Sequence[ansor.State]) -> NDArray[np.float64]:
        if isinstance(candidates, ansor.Programs):
            self.heard.extend(candidates.populations)
        return self.model.predict(task, candidates)


def share_of_round(policy: ansor.SketchPolicy, index: int, history: ansor.History) -> float:
    """Propose a round that is not timed, and estimate the share of different programs among those scored."""
    model = policy.model
    policy.model = listening = Listening(model)
    try:
        policy.propose(index, ROUND, history)
    finally:
        policy.model = model
    return ansor.distinct_share(policy.task, listening.heard, SAMPLED, np.random.default_rng(0))


def taught_policy(
    task: ansor.SearchTask, records: int = RECORDS, params: dict[str, int] | None = None
) -> ansor.SketchPolicy:
    """The default policy, its model trained on programs with made-up run times."""
    policy = default_policy(task, 0)
    if params:
        policy = ansor.SketchPolicy(task, policy.model, params, 0)
    rng = np.random.default_rng(0)
    states = list(ansor.Programs(policy.space.sample(records + records // 8, rng).populations))
    results = labels(task, states, 0)
    inputs = [ansor.MeasureInput(task, state) for state in states]
    policy.model.update(inputs, results)
    policy.model.predict(task, states[:1])  # Models train when they are first asked.
    return policy


def labels(task: ansor.Task, states: Sequence[ansor.State], seed: int) -> list[ansor.MeasureResult]:
    """Make run times up: analytic estimates times a sum of smooth steps in the features, with some noise."""
    if not states:
        return []
    seconds = ansor.AnalyticModel().seconds(task, states)
    rng = np.random.default_rng(seed)
    rows = ansor.XGBModel().features.extract(task, states)
    width = rows.values.shape[1]
    steps, weights = rng.uniform(0.0, 12.0, width), rng.standard_normal(width) / 4.0
    factor = rows.total(np.tanh(rows.values - steps) @ weights) / rows.counts
    factor += 0.1 * rng.standard_normal(len(rows))
    return [
        ansor.MeasureResult((each,), timestamp=1) if np.isfinite(each) else _failure()
        for each in (seconds * np.exp(factor)).tolist()
    ]


def _failure() -> ansor.MeasureResult:
    return ansor.MeasureResult.failed(ansor.MeasureErrorNo.RUNTIME_DEVICE, "made up", 0.0, 1)


def feature_count(policy: ansor.SketchPolicy) -> int:
    """Features per statement that the policy's model looks at."""
    model: Any = policy.model
    return int(getattr(model, "learned", model).features.width)


def memory(bench: Bench, tasks: Sequence[str], populations: Sequence[int]) -> None:
    """Add the peak of resident memory of one round, in fresh processes."""
    for case in bench.each(tasks):
        for population in populations:
            found = fresh_process("experiments.search.throughput:peak", case, population)
            before, after = (round(found[name] / 2**20) for name in ("before", "after"))
            bench.add(
                f"{case}: peak memory, population {population}",
                after,
                "MiB",
                peer=f"before the round: {before}",
            )


def peak(case: str, population: int) -> dict[str, int]:
    """Run one round with a trained model; the peak of this process's memory before and after it [bytes]."""
    policy = taught_policy(CASES[case].task(), params={"evolutionary_search_population": population})
    before = peak_bytes()
    policy.propose(0, ROUND, ansor.History())
    return {"before": before, "after": peak_bytes()}


def peak_bytes() -> int:
    """
    The largest resident set of this process so far [bytes].

    Read from the process's own address space: the figure of `getrusage` includes that of the process that
    started it.
    """
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(_HWM):
            return 1024 * int(line.removeprefix(_HWM).split()[0])
    raise RuntimeError(f"/proc/self/status has no line {_HWM}")
