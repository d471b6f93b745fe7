"""Parts `efficiency` and `random`: what few trials find, beside a library, other tuners, and random search.

After `TRIALS` trials the best program of a log is measured again, in turn with the library, in `PROCESSES`
fresh processes; the median counts, and over several seeds the median of these. Other tuners' figures are
recorded ratios of their re-measured winners to the same library (see `search_cases`). Random search samples
the same space as often as is asked for and is measured again in the same processes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from experiments.harness import Bench, Estimate
from experiments.search_cases import CASES, PEER_NAMES, Peers, library_name
from experiments.search_runs import PROCESSES, compared, folder, kept, random_policy, tuned

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

Times = dict[str, list[float]]


def efficiency(
    bench: Bench, tasks: Sequence[str], seeds: int, peers: Peers, trials: int = TRIALS, again: int = PROCESSES
) -> None:
    """Add for each task the time of the winner over the library's, beside the best peer's."""
    for case in tasks:
        library = library_name(CASES[case])
        found = [winners(case, {"ansor": tuned(case, "default", s, trials)}, again) for s in range(seeds)]
        ratios = [median(_ratios(times, "ansor", "library")) for times in found]
        recorded = peers.ratios(CASES[case], library)
        told = [f"{PEER_NAMES.get(n, n)} {ratio:.2f} after {count}" for n, (ratio, count) in recorded.items()]
        told.append(f"{library} {1e3 * median(t for times in found for t in times['library']):.3g} ms")
        best = min((ratio for ratio, _ in recorded.values()), default=None)
        bench.add(
            f"{case}: best of {trials} trials over {library}",
            Estimate.of(ratios),
            "x its time",
            peer="; ".join(told),
            at_most=best if trials >= TRIALS else None,
        )


def random(
    bench: Bench,
    tasks: Sequence[str],
    seeds: int,
    random_trials: int = RANDOM_TRIALS,
    trials: int = TRIALS,
    again: int = PROCESSES,
) -> None:
    """Add for each task the winner of few searched trials over that of many random ones."""
    for case in tasks:
        logs = {f"seed {seed}": tuned(case, "default", seed, trials) for seed in range(seeds)}
        logs["random"] = tuned(case, "random", 0, random_trials, random_policy)
        times = winners(case, logs, again)
        ratios = [median(_ratios(times, name, "random")) for name in logs if name != "random"]
        bench.add(
            f"{case}: best of {trials} trials over random search's of {random_trials}",
            Estimate.of(ratios),
            "x its time",
            peer=f"random {1e3 * median(times['random']):.3g} ms",
            at_most=1.0,
        )


def winners(case: str, logs: dict[str, Path], again: int) -> Times:
    """The re-measured times of the best of each log, kept from an earlier time if there is one."""
    names = json.dumps({name: log.name for name, log in logs.items()})
    digest = hashlib.blake2b(names.encode(), digest_size=8).hexdigest()
    path = folder() / f"{case}-{digest}-x{again}.times"
    found: Times = kept(path, lambda: compared(case, logs, again))
    return found


def _ratios(times: Times, ours: str, theirs: str) -> list[float]:
    """Ratios of times that were taken in the same process."""
    return [mine / other for mine, other in zip(times[ours], times[theirs], strict=True)]
