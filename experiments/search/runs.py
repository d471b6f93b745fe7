"""Tuning runs for benchmarks: kept, completed if they were cut short, and never older than the code.

Everything that a run leaves lies in a folder named after the sources of the search, the compiler and the
cases, and after the machine, its threads and the versions of what is timed. A benchmark that is started again
completes its logs and computes the rest from them; once any of these changes, the folder is another and
everything is measured anew. A timing that is used again says when it was taken, and how quiet it was then.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

import ansor
from ansor.medians import median_interval
from experiments.harness import OUT, ROOT, fresh_process, machine
from experiments.search.cases import CASES, library_call
from experiments.search.clock import QUIET, quiet_share
from experiments.turns import interleave

PACKAGES: Final = ("ansor", "sketches", "costmodel", "measure", "search")
EXPERIMENTS: Final = (
    "bench_costmodel",
    "cpu/pytorch",
    "harness",
    "search/ablation",
    "search/cases",
    "search/models",
    "search/runs",
    "search/spaces",
    "search/tuning",
    "turns",
)
"""What decides what is run and how it is timed: paths in `experiments`, without their suffix."""
LIBRARIES: Final = (
    "numpy",
    "torch",
    "llvmlite",
    "xgboost",
    "scikit-learn",
    "scipy",
    "ml-dtypes",
    "onnxruntime",
)
THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
TIMES: Final = ".times"
"""Ends the names of files of re-measured times."""
PROCESSES: Final = 5
"""A winner is measured again in at least so many fresh processes."""
SURE: Final = 0.05
"""Width of the interval of a median, over the median, from which on no further process is needed."""

PolicyOf = Callable[[ansor.SearchTask, int], ansor.SearchPolicy]


@cache
def version(modules: tuple[str, ...] = EXPERIMENTS) -> str:
    """
    Digest of the sources and of the surroundings that decide what a search finds and what is timed.

    Parameters
    ----------
    modules
        Those of `experiments` that do, as paths in it.
    """
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    paths += [ROOT / "experiments" / f"{module}.py" for module in modules]
    digest = hashlib.blake2b(json.dumps(surroundings(), sort_keys=True).encode(), digest_size=5)
    for path in paths:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def surroundings() -> dict[str, str]:
    """Name what a timing depends on besides the sources: machine, threads, interpreter, libraries."""
    found = {
        "machine": machine(),
        "threads": str(ansor.get_num_threads()),
        "python": platform.python_version(),
    }
    found |= {name: os.environ.get(name, "") for name in THREAD_VARIABLES}
    for name in LIBRARIES:
        try:
            found[name] = version_of(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def named_folder(kind: str, modules: tuple[str, ...]) -> Path:
    """
    Where runs of this version of a benchmark lie; it need not be there.

    Parameters
    ----------
    kind, modules
        Begin of the folder's name, and what `version` is asked for.
    """
    return OUT / f"{kind}-{version(modules)}"


def folder(fresh: bool = False, retime: bool = False) -> Path:
    """The folder of this version's runs; emptied first if `fresh`, rid of re-measured times if `retime`."""
    path = named_folder("search", EXPERIMENTS)
    if fresh and path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True, exist_ok=True)
    if retime:
        for each in path.glob(f"*{TIMES}"):
            each.unlink()
    return path


@dataclass(frozen=True, slots=True)
class Kept:
    """
    A JSON value with the circumstances of its making.

    Attributes
    ----------
    date
        Of the end of its making, UTC, to the minute.
    quiet
        Share of its cores that a process got just before or just after, the smaller one.
    """

    value: Any
    date: str
    quiet: float


def kept(path: Path, make: Callable[[], Any]) -> Kept:
    """Read the value of a file, and say from when it is; or make it and write the file."""
    if path.exists():
        found = Kept(**json.loads(path.read_text(encoding="utf-8")))
        print(f"  not measured now: {path.name} ({circumstances([found])})", file=sys.stderr, flush=True)
        return found
    threads = ansor.get_num_threads()
    before = quiet_share(threads)
    value = make()
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    found = Kept(value, date, round(min(before, quiet_share(threads)), 3))
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(found)) + "\n", encoding="utf-8")
    part.replace(path)
    return Kept(**json.loads(path.read_text(encoding="utf-8")))


def circumstances(values: Sequence[Kept]) -> str:
    """Say when values were measured, first and last, at which least share of the cores; mark a low one."""
    first, last = min(each.date for each in values), max(each.date for each in values)
    dates = first if first == last else f"{first} to {last}"
    least = min(each.quiet for each in values)
    busy = " (busy: the ratios mean little)" if least < QUIET else ""
    return f"timed {dates}, with {least:.2f} of the cores or more{busy}"


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
        The log; it holds at least `trials` programs unless the space holds fewer.
    """
    log = folder() / f"{case}-{title}-{trials}-s{seed}.log.json"
    task = CASES[case].task()
    known = trials_in(log, task)
    if known < trials:
        options = ansor.TuningOptions(
            num_measure_trials=trials - known,
            early_stopping=None,
            verbose=0,
            seed=seed,
            measure_callbacks=[ansor.RecordToFile(str(log))],
        )
        whole(task.tune(options, policy(task, seed)))
    return log


def whole(result: ansor.TuningResult) -> ansor.TuningResult:
    """
    Give the result of a run that was not cut short.

    Raises
    ------
    KeyboardInterrupt
        If it was interrupted, which is meant for the benchmark.
    RuntimeError
        If its log could not be written.
    """
    if result.stop_reason is ansor.StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    if result.stop_reason is ansor.StopReason.LOG_FAILED:
        raise RuntimeError(result.message)
    return result


def trials_in(log: Path, task: ansor.Task) -> int:
    """Count the programs that a log holds which were measured with the task's cores; none if there is no log.

    The times of others do not count. Records need not say with how many they were.
    """
    if not log.exists():
        return 0
    records = ansor.settled_records(ansor.load_records(str(log)))
    told = [getattr(inp.task, "hardware", None) for inp, _ in records]
    return sum(not hardware or hardware[0] == task.hardware_params.num_cores for hardware in told)


def compared(case: str, logs: Mapping[str, Path], processes: int = PROCESSES) -> dict[str, list[float]]:
    """
    Time the winners of some logs and the library side by side, in fresh processes.

    Where memory comes to lie differs between processes, which moves a kernel of some 10 us by a tenth: they
    are repeated, at least `processes` and at most three times as many, until all medians are known to `SURE`.

    Returns
    -------
    dict
        By name (that of the log, or "library"): the median seconds per call in each process.
    """
    paths = {name: str(path) for name, path in logs.items()}
    found: dict[str, list[float]] = {}
    for done in range(1, 3 * processes + 1):
        times = fresh_process("experiments.search.runs:compare", case, paths)
        for name, seconds in times.items():
            found.setdefault(name, []).append(median(seconds))
        if done >= processes and all(map(is_sure, found.values())):
            break
    return found


def is_sure(seconds: Sequence[float]) -> bool:
    """Whether the median of times is known to `SURE` of it."""
    low, high = median_interval(seconds)
    return high - low <= SURE * median(seconds)


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
    kernel: ansor.Module | ansor.DeviceModule,
    inputs: Sequence[np.ndarray[Any, Any]],
    expected: np.ndarray[Any, Any],
) -> Callable[[], object]:
    """A call of a kernel in place, after its answer was compared with what is expected."""
    out = kernel(*inputs)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3 * float(np.abs(expected).max()))
    return lambda: kernel(*inputs, out)


def best_so_far(log: Path, trials: int) -> list[float]:
    """The least seconds among the first 1, 2, ... programs of a log; infinite before the first success."""
    best, found = float("inf"), []
    for _, result in ansor.settled_records(ansor.load_records(str(log))):
        if result.ok:
            best = min(best, result.mean_cost)
        found.append(best)
    return found[:trials]


def seconds_within(spans: Sequence[tuple[float, float]], limit: float) -> float:
    """Add up how much of some spans of time, each from its begin to its end [s], lies before `limit`."""
    return sum(max(0.0, min(end, limit) - begin) for begin, end in spans)


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
    spans: list[tuple[float, float]] = field(default_factory=list)
    """When it was thinking (proposing and learning): beginnings and ends, in seconds since the start."""

    @property
    def task(self) -> ansor.Task:
        return self.policy.task

    @property
    def algorithms(self) -> Sequence[ansor.Task]:
        return self.policy.algorithms

    @property
    def init_search_callbacks(self) -> Any:
        return self.policy.init_search_callbacks

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    @property
    def thinking(self) -> float:
        """Seconds spent thinking."""
        return seconds_within(self.spans, float("inf"))

    def propose(self, round_index: int, count: int, history: ansor.History) -> ansor.Proposal:
        if self.elapsed >= self.limit:
            return ansor.Proposal((), "the time is up")
        begin = self.elapsed
        proposal = self.policy.propose(round_index, count, history)
        self.spans.append((begin, self.elapsed))
        return proposal

    def learn(self, trials: Sequence[ansor.Trial]) -> None:
        begin = self.elapsed
        self.policy.learn(trials)
        self.spans.append((begin, self.elapsed))
