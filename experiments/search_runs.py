"""Tuning runs for benchmarks: kept, completed if they were cut short, and never older than the code.

Everything that a run leaves lies in a folder named after the sources of the search and the compiler. A
benchmark that is started again completes its logs and computes the rest from them; once a source file
changes, the folder is another and everything is measured anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

import ansor
from experiments.harness import OUT, ROOT, fresh_process, interleave
from experiments.search_cases import CASES, library_call

PACKAGES: Final = ("ansor", "sketches", "costmodel", "measure", "search")
PROCESSES: Final = 5
"""A winner is measured again in so many fresh processes."""

PolicyOf = Callable[[ansor.SearchTask, int], ansor.SearchPolicy]


@cache
def version() -> str:
    """Digest of the sources that decide what a search finds."""
    digest = hashlib.blake2b(digest_size=5)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def folder(fresh: bool = False) -> Path:
    """The folder of this version's runs; emptied first if `fresh`."""
    path = OUT / f"search-{version()}"
    if fresh and path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """Read the JSON value of a file, or make it and write the file."""
    if not path.exists():
        value = make()
        path.write_text(json.dumps(value) + "\n", encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def default_policy(task: ansor.SearchTask, seed: int) -> ansor.SketchPolicy:
    """The policy that `SearchTask.tune` has by default."""
    return ansor.SketchPolicy(task, seed=seed)


def random_policy(task: ansor.SearchTask, seed: int) -> ansor.SketchPolicy:
    """Random sampling of the same space."""
    return ansor.SketchPolicy(task, ansor.RandomModel(seed), seed=seed)


def tuned(case: str, title: str, seed: int, trials: int, policy: PolicyOf = default_policy) -> Path:
    """
    Tune a task, or complete the log of a run that was cut short.

    Parameters
    ----------
    case
        One of `CASES`.
    title
        What searches; part of the log's name.

    Returns
    -------
    Path
        The log; it holds at least `trials` records unless the space holds fewer programs.
    """
    log = folder() / f"{case}-{title}-{trials}-s{seed}.log.json"
    known = sum(1 for _ in ansor.load_records(str(log))) if log.exists() else 0
    if known < trials:
        task = CASES[case].task()
        options = ansor.TuningOptions(
            num_measure_trials=trials - known,
            early_stopping=None,
            verbose=0,
            seed=seed,
            measure_callbacks=[ansor.RecordToFile(str(log))],
        )
        task.tune(options, policy(task, seed))
    return log


def compared(case: str, logs: Mapping[str, Path], processes: int = PROCESSES) -> dict[str, list[float]]:
    """
    Time the winners of some logs and the library side by side, in fresh processes.

    Returns
    -------
    dict
        By name (that of the log, or "library"): the median seconds per call in each process.
    """
    paths = {name: str(path) for name, path in logs.items()}
    found: dict[str, list[float]] = {}
    for _ in range(processes):
        times = fresh_process("experiments.search_runs:compare", case, paths)
        for name, seconds in times.items():
            found.setdefault(name, []).append(median(seconds))
    return found


def compare(case: str, logs: Mapping[str, str], repeats: int = 7) -> dict[str, list[float]]:
    """Time the winners of some logs and the library in turn, in this process; they must agree."""
    task, inputs = CASES[case].task(), CASES[case].inputs()
    library = library_call(CASES[case], inputs, ansor.get_num_threads())
    expected = library()
    calls: dict[str, Callable[[], object]] = {"library": library}
    for name, log in logs.items():
        calls[name] = checked_call(ansor.build(*task.apply_best(log), target=task.target), inputs, expected)
    return interleave(calls, repeats=repeats)


def checked_call(
    kernel: ansor.Module, inputs: Sequence[np.ndarray[Any, Any]], expected: np.ndarray[Any, Any]
) -> Callable[[], object]:
    """A call of a kernel in place, after its answer was compared with what is expected."""
    out = np.empty(expected.shape, expected.dtype)
    kernel(*inputs, out)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3 * float(np.abs(expected).max()))
    return lambda: kernel(*inputs, out)


def best_so_far(log: Path, trials: int) -> list[float]:
    """The least seconds among the first 1, 2, ... records of a log; infinite before the first success."""
    best, found = float("inf"), []
    for _, result in ansor.load_records(str(log)):
        if result.ok:
            best = min(best, result.mean_cost)
        found.append(best)
    return found[:trials]


@dataclass(slots=True)
class Clock(ansor.SearchPolicy):
    """
    A policy that does what another one does and takes the time; it proposes nothing once its time is up.

    Parameters
    ----------
    policy
        The other one.
    limit
        Seconds after which no round is begun.
    """

    policy: ansor.SearchPolicy
    limit: float
    started: float = field(default_factory=time.perf_counter)
    thinking: float = 0.0
    """Seconds spent on proposing and learning."""

    @property
    def task(self) -> ansor.Task:
        return self.policy.task

    @property
    def init_search_callbacks(self) -> Any:
        return self.policy.init_search_callbacks

    @property
    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.started

    def propose(self, round_index: int, count: int, history: ansor.History) -> ansor.Proposal:
        if self.elapsed >= self.limit:
            return ansor.Proposal((), "the time is up")
        start = time.perf_counter()
        proposal = self.policy.propose(round_index, count, history)
        self.thinking += time.perf_counter() - start
        return proposal

    def learn(self, trials: Sequence[ansor.Trial]) -> None:
        start = time.perf_counter()
        self.policy.learn(trials)
        self.thinking += time.perf_counter() - start
