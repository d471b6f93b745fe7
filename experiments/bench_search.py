"""The search: its speed, what it finds in few trials, and what each of its parts is worth.

Claims to look at, by part; minutes are those of a quiet machine with 2 cores and 5 seeds:

- `throughput` (1 min): candidates scored per second, at least 20 times what TVM's auto_scheduler does, scaled
  to this machine's clock; with the families and the rows per family of a generation.
- `tuning` (12 min): from a cold start to 0.93 of numpy's time on matmul_add 1024 within 30 s, less than 15 %
  of that time spent searching, and less than 15 % of the 30 s.
- `efficiency` (35 min): the best of 64 trials is as fast, relative to a library timed in turn with it, as
  what TVM's tuners find in 200, or in 64 where no more is recorded; a row without a goal says why.
- `random` (4 h, an hour with `--random-seeds 1`): and as fast as the median of what random sampling finds in
  1000 trials.
- `models` (8 min, 2 with records of an earlier run of this version): how well each cost model orders programs
  that it has not seen.
- `ablation` (75 min, in proportion to the seeds): the search without each of its parts, in a table and a
  plot.
- `memory` (1 min): peak memory at populations of 2048 and 16384.

The last row says whether the machine was quiet: on a busy one libraries whose threads wait for each other
look far slower than they are, and no ratio to them means anything.

Parts are independent; logs and intermediate results lie in a folder of `experiments/out` that belongs to this
version of the sources, libraries and machine, and a run that was cut short goes on there. Timings that are
found there are not taken again: each is named as it is used, and rows say from when theirs are and how quiet
it was then. `--retime` keeps the logs but times all winners again; `--fresh` empties the folder first.

For ten minutes of a quiet machine:

- `--only ablation --seeds 1 --trials 32`: all tasks, half of the trials (15 minutes without `--trials`); or
  `--only ablation --seeds 1 --tasks matmul-512`: every variant that makes a difference on one task.
- `--only random --seeds 1 --random-seeds 1 --tasks matmul-512`: one task, about 6 minutes; 3 more seeds of
  ours (`--seeds 4`) add a minute, each further random seed 5.

One seed tells no spread: its interval is its value.

Command: `python -m experiments.bench_search [--quick] [--json PATH] [--only PART,...] [--seeds N]
[--tasks TASK,...] [--trials N] [--random-trials N] [--random-seeds N] [--peers PATH] [--retime] [--fresh]`; a
minute with `--quick`, which shows that everything works and leaves `random` out; its figures mean little, and
have few goals.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import ansor
from experiments import command
from experiments.harness import Bench, names_among, positive_number
from experiments.search import ablation as search_ablation
from experiments.search import efficiency as search_efficiency
from experiments.search import models as search_models
from experiments.search import runs as search_runs
from experiments.search import throughput as search_throughput
from experiments.search import tuning as search_tuning
from experiments.search.cases import CASES, Peers
from experiments.search.clock import quiet_share, report_quiet

SEEDS: Final = 5


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for; `tasks` is empty for those of each part, `trials` 0 likewise."""

    quick: bool
    seeds: int
    tasks: tuple[str, ...]
    trials: int
    random_trials: int
    random_seeds: int
    peers: Peers

    def chosen(self, default: Sequence[str]) -> tuple[str, ...]:
        """The tasks of a part: those asked for, or its own, of which a quick run takes the first."""
        return self.tasks or tuple(default)[: 1 if self.quick else None]


def _throughput(bench: Bench, options: Options) -> None:
    tasks = options.chosen(search_throughput.TASKS)
    search_throughput.throughput(bench, tasks, 2 if options.quick else 8, options.peers)


def _tuning(bench: Bench, options: Options) -> None:
    limit, again = (5.0, 1) if options.quick else (search_tuning.LIMIT, search_runs.PROCESSES)
    search_tuning.tuning(bench, options.seeds, limit, again)


def _efficiency(bench: Bench, options: Options) -> None:
    trials = options.trials or (8 if options.quick else search_efficiency.TRIALS)
    again = 1 if options.quick else search_runs.PROCESSES
    tasks = options.chosen(search_efficiency.TASKS)
    search_efficiency.efficiency(bench, tasks, options.seeds, options.peers, trials, again)


def _random(bench: Bench, options: Options) -> None:
    trials = options.trials or search_efficiency.TRIALS
    tasks = options.chosen(search_efficiency.TASKS)
    search_efficiency.random(bench, tasks, options.seeds, options.random_seeds, options.random_trials, trials)


def _models(bench: Bench, options: Options) -> None:
    search_models.models(bench, options.seeds)


def _ablation(bench: Bench, options: Options) -> None:
    trials = options.trials or (6 if options.quick else search_ablation.TRIALS)
    tasks = options.chosen((*search_ablation.TASKS, *search_ablation.SPACE_TASKS))
    again, only = (1, 2) if options.quick else (search_ablation.PROCESSES, None)
    shown = {} if options.tasks else search_ablation.SPACE_TASKS
    search_ablation.ablation(bench, tasks, options.seeds, trials, again, only, shown)


def _memory(bench: Bench, options: Options) -> None:
    sizes = search_throughput.POPULATIONS[: 1 if options.quick else None]
    search_throughput.memory(bench, options.chosen(search_throughput.MEMORY_TASKS), sizes)


PARTS: Final[dict[str, Callable[[Bench, Options], None]]] = {
    "throughput": _throughput,
    "tuning": _tuning,
    "efficiency": _efficiency,
    "random": _random,
    "models": _models,
    "ablation": _ablation,
    "memory": _memory,
}
NOT_QUICK: Final = ("random",)


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_search: speed, thrift and parts of the search", argv, add_options)
    given = bench.arguments
    search_runs.folder(fresh=given.fresh, retime=given.retime)
    seeds = given.seeds or (1 if bench.quick else SEEDS)
    options = Options(
        quick=bench.quick,
        seeds=seeds,
        tasks=given.tasks,
        trials=given.trials or 0,
        random_trials=given.random_trials,
        random_seeds=given.random_seeds or seeds,
        peers=given.peers or Peers.read(),
    )
    if not options.peers.tuners:
        print("  there are no recorded figures of other tuners (--peers); those comparisons are left out")
    if lost := search_efficiency.lost_goals(options.peers):
        print(f"  without PyTorch these tasks lose their goal in part `efficiency`: {', '.join(lost)}")
    shares = [quiet_share(ansor.get_num_threads())]
    try:
        parts = given.only or [part for part in PARTS if not (bench.quick and part in NOT_QUICK)]
        for part in bench.each(parts):
            PARTS[part](bench, options)
            shares.append(quiet_share(ansor.get_num_threads()))
    finally:  # the rows of the parts before one that failed are not lost
        report_quiet(bench, shares)
        code = bench.finish()
    return code


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this benchmark's own options."""
    parts, cases = ", ".join(PARTS), ", ".join(CASES)
    parser.add_argument(
        "--only", type=names_among(PARTS), default=(), metavar="PART,...", help=f"some of {parts}"
    )
    parser.add_argument(
        "--seeds", type=positive_number, metavar="N", help=f"runs of each search, {SEEDS} by default"
    )
    parser.add_argument(
        "--tasks", type=names_among(CASES), default=(), metavar="TASK,...", help=f"some of {cases}"
    )
    parser.add_argument(
        "--trials", type=positive_number, metavar="N", help="trials of searches, 64 by default"
    )
    parser.add_argument(
        "--random-trials",
        type=positive_number,
        default=search_efficiency.RANDOM_TRIALS,
        metavar="N",
        help="trials of random search, 1000 by default",
    )
    parser.add_argument(
        "--random-seeds", type=positive_number, metavar="N", help="runs of random search, default as --seeds"
    )
    parser.add_argument("--peers", type=_peers, metavar="PATH", help="recorded figures of other tuners")
    parser.add_argument(
        "--retime", action="store_true", help="time winners again, keep the logs of earlier runs"
    )
    parser.add_argument("--fresh", action="store_true", help="use nothing of earlier runs")


def _peers(path: str) -> Peers:
    try:
        return Peers.read(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path!r} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise argparse.ArgumentTypeError(f"{path!r} holds no recorded figures ({why})") from None


if __name__ == "__main__":
    command.run(main, unread=1)
