"""Parts `efficiency` and `random`: what few trials find, beside a library, other tuners, and random search.

After `TRIALS` trials the best program of a log is measured again, in turn with the library, in `PROCESSES`
fresh processes or more; the median counts, and over several seeds the median of these. Other tuners' figures
are recorded ratios of their re-measured winners to the same library (see `cases`). Random search
samples the same space as often as is asked for, from several seeds, and is measured again in the same
processes; the median of its seeds counts.

A task that no tuner is recorded for has no goal: its row says so, and a last row counts such tasks. Goals
hold for `TRIALS` and `RANDOM_TRIALS`; with other numbers of trials there is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from experiments.harness import Bench, Estimate
from experiments.search.cases import CASES, PEER_NAMES, Peers, library_name
from experiments.search.runs import (
    PROCESSES,
    TIMES,
    Kept,
    circumstances,
    compared,
    folder,
    kept,
    random_policy,
    tuned,
)

TASKS: Final = (
    "matmul-512",
    "matmul_add-1024",
    "batch_matmul-128",
    "conv2d-14",
    "conv2d-7",
    "depthwise-112",
    "softmax-1024",
)
TRIALS: Final = 64
RANDOM_TRIALS: Final = 1000
PEER_TRIALS: Final = 200
"""Trials of the tuners' figures that are meant to be met; some tasks have figures of fewer."""

Times = dict[str, list[float]]


def efficiency(
    bench: Bench, tasks: Sequence[str], seeds: int, peers: Peers, trials: int = TRIALS, again: int = PROCESSES
) -> None:
    """Add for each task the time of the winner over the library's, beside the best peer's."""
    alone: list[str] = []
    for case in bench.each(tasks):
        library = library_name(CASES[case])
        ours = {f"seed {seed}": tuned(case, "default", seed, trials) for seed in range(seeds)}
        found = winners(case, ours, again)
        ratios = [median(_ratios(found.value, name, "library")) for name in ours]
        recorded = peers.ratios(CASES[case], library)
        told = [beside_tuners(case, library, peers)]
        told.append(f"{library} {1e3 * median(found.value['library']):.3g} ms")
        told.append(circumstances([found]))
        best = min((ratio for ratio, _ in recorded.values()), default=None)
        alone += [] if recorded else [case]
        bench.add(
            f"{case}: best of {trials} trials over {library}",
            Estimate.of(ratios),
            "x its time",
            peer="; ".join(told),
            at_most=best if trials == TRIALS else None,
        )
    names = ", ".join(alone) or "none"
    bench.add("tasks without a recorded tuner, and so without a goal", len(alone), "", peer=names)


def beside_tuners(case: str, library: str, peers: Peers) -> str:
    """Say what tuners reached on a task beside this library, after how many trials; or why that is open."""
    recorded = peers.ratios(CASES[case], library)
    if not recorded:
        lost = peers.ratios(CASES[case], CASES[case].form)
        return f"goal lost: recorded beside {CASES[case].form} alone" if lost else "no recorded figure"
    told = [f"{PEER_NAMES.get(n, n)} {ratio:.2f} after {count}" for n, (ratio, count) in recorded.items()]
    if all(count < PEER_TRIALS for _, count in recorded.values()):
        told.append(f"no figure after {PEER_TRIALS} trials")
    return "; ".join(told)


def lost_goals(peers: Peers) -> list[str]:
    """List the tasks whose recorded figures cannot be used, since their library is not at hand."""
    return [
        case
        for case in TASKS
        if peers.ratios(CASES[case], CASES[case].form)
        and not peers.ratios(CASES[case], library_name(CASES[case]))
    ]


def random(
    bench: Bench,
    tasks: Sequence[str],
    seeds: int,
    random_seeds: int,
    random_trials: int = RANDOM_TRIALS,
    trials: int = TRIALS,
    again: int = PROCESSES,
) -> None:
    """Add for each task the winner of few searched trials over the median of winners of many random ones."""
    for case in bench.each(tasks):
        ours = {f"seed {seed}": tuned(case, "default", seed, trials) for seed in range(seeds)}
        theirs = {
            f"random {seed}": tuned(case, "random", seed, random_trials, random_policy)
            for seed in range(random_seeds)
        }
        found = winners(case, ours | theirs, again)
        times: Times = dict(found.value)
        times["random"] = [median(each) for each in zip(*(times[name] for name in theirs), strict=True)]
        alone = [1e3 * median(times[name]) for name in theirs]
        seen = f"{median(times['random']) * 1e3:.3g} ms ({min(alone):.3g} .. {max(alone):.3g})"
        bench.add(
            f"{case}: best of {trials} trials over random search's of {random_trials}",
            Estimate.of([median(_ratios(times, name, "random")) for name in ours]),
            "x its time",
            peer=f"random, median of its seeds ({random_seeds}): {seen}; {circumstances([found])}",
            at_most=1.0 if (trials, random_trials) == (TRIALS, RANDOM_TRIALS) else None,
        )


def winners(case: str, logs: dict[str, Path], again: int) -> Kept:
    """The re-measured times of the best of each log, kept from an earlier time if there is one."""
    digest = hashlib.blake2b(digest_size=8)
    for name, log in logs.items():
        digest.update(json.dumps([name, log.name]).encode() + log.read_bytes())
    path = folder() / f"{case}-{digest.hexdigest()}-x{again}{TIMES}"
    return kept(path, lambda: compared(case, logs, again))


def _ratios(times: Times, ours: str, theirs: str) -> list[float]:
    """Ratios of times that were taken in the same process."""
    return [mine / other for mine, other in zip(times[ours], times[theirs], strict=True)]
