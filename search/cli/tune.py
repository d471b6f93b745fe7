"""`ansor tune`: search for a fast program from the command line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from ansor.command import INTERRUPTED
from ansor.errors import DefinitionError
from ansor.task.task import LayoutRewriteOption
from ansor.workloads import alternatives_of
from costmodel import RandomModel
from measure import LocalBuilder, LocalRunner, RecordToFile
from search.alternatives import sketch_policy
from search.cli.workload import Asked, WorkloadCommand, layout_option, show_numbers
from search.options import TuningOptions
from search.policy import EmptyPolicy, InitSearchCallback, SearchPolicy
from search.result import StopReason, TuningResult
from search.search_task import SearchTask
from search.templates.history import TransferConfigs
from search.templates.task import TemplateTask
from search.templates.tuner import GATuner, GridSearchTuner, RandomTuner
from search.templates.xgb import XGBTuner
from search.text import certainty_json
from search.titles import title_of_key
from search.warm_start import WarmStart

NO_PROGRAM: Final = 3

Starts = Sequence[InitSearchCallback]
_POLICIES: Final[Mapping[str, Callable[[SearchTask, int, Starts], SearchPolicy]]] = {
    "sketch": lambda task, seed, starts: sketch_policy(task, seed=seed, starts=starts),
    "random": lambda task, seed, starts: sketch_policy(task, RandomModel(seed), seed=seed, starts=starts),
    "empty": lambda task, seed, starts: EmptyPolicy(task, starts),
}
_TUNERS: Final[Mapping[str, Callable[[TemplateTask, int, Starts], SearchPolicy]]] = {
    "grid": lambda task, seed, starts: GridSearchTuner(task, seed, starts),
    "random": lambda task, seed, starts: RandomTuner(task, seed, starts),
    "ga": lambda task, seed, starts: GATuner(task, seed, starts),
    "xgb": lambda task, seed, starts: XGBTuner(task, seed, starts),
}

_EXAMPLES: Final = """
Examples:

\b
  ansor tune matmul 512 512 512
  ansor tune matmul 512 512 512 --trials 32         once more: resumes, 32 new trials
  ansor tune matmul 512 512 1024 --warm-start matmul-512-512-512.log.json
  ansor tune conv2d 1 56 56 64 64 3 --log conv.json --target "llvm -num-cores=2"
  ansor tune conv2d 1 56 56 64 64 3 1 1 --alternatives
  ansor tune net.py:layer 64 relu=true --trials 200 --early-stopping 100 --json

A WORKLOAD is a name of `ansor workloads`, or file.py:function, a template too. ARGS are numbers, words, JSON
lists, or name=value.
"""


@click.command(epilog=_EXAMPLES, cls=WorkloadCommand)
@click.argument("workload")
@click.argument("args", nargs=-1, callback=show_numbers)
@click.option(
    "--trials", default=64, show_default=True, type=click.IntRange(0), help="New programs to measure."
)
@click.option(
    "--log",
    type=click.Path(dir_okay=False),
    help="Log to append to and resume from; its folder is made. [default: WORKLOAD-ARGS.log.json]",
)
@click.option("--target", default="llvm", show_default="llvm, this machine", help="What to tune for.")
@click.option(
    "--early-stopping",
    type=click.IntRange(1),
    help="Stop after so many trials without improvement. [default: a third of all, at least 100]",
)
@click.option(
    "--round", "round_size", default=64, show_default=True, type=click.IntRange(1), help="Programs per round."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the search.")
@click.option(
    "--policy",
    type=click.Choice(list(dict.fromkeys([*_POLICIES, *_TUNERS]))),
    help="How to search: sketch, by evolution under a cost model; random, among the same programs; empty, "
    "the unscheduled program; for templates grid, random, ga, xgb. [default: sketch; for a template xgb]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    help="Seconds that building a program may take, and running it. [default: 15 and 10]",
)
@click.option(
    "--warm-start",
    "neighbours",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Begin with what was best in this log, of the same computation at other sizes; repeatable.",
)
@click.option(
    "--alternatives",
    is_flag=True,
    help="Search the catalogue's other algorithms for the same, too, where it has some.",
)
@layout_option
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="More than progress: outcomes and best programs; -vv sketches, -vvv loop nests, -vvvv LLVM IR.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def tune(
    context: click.Context,
    workload: str,
    args: tuple[str, ...],
    trials: int,
    log: str | None,
    target: str,
    early_stopping: int | None,
    round_size: int,
    seed: int,
    policy: str | None,
    timeout: float | None,
    neighbours: tuple[str, ...],
    alternatives: bool,
    layouts: int | None,
    quiet: bool,
    verbose: int,
    as_json: bool,
) -> int:
    """Search for a fast program of WORKLOAD called with ARGS.

    Every measurement goes to the log. Ctrl-C stops and keeps it; the same command then goes on.
    """
    asked = Asked.of((workload, *args), target)
    constant = layouts == LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
    calls = alternatives_of(asked.name, asked.args, constant=constant) if alternatives else []
    task = asked.task(layouts or 0, calls)
    if alternatives and not calls and not quiet:
        click.echo(f"the catalogue has no other algorithm for {title_of_key(task.workload_key)}", err=True)
    path = log or default_log(task)
    chosen = make_policy(task, policy, seed, neighbours)
    with ExitStack() as stack:
        options = TuningOptions(
            num_measure_trials=trials,
            early_stopping=early_stopping or "auto",
            num_measures_per_round=round_size,
            verbose=0 if quiet else 1 + verbose,
            builder=stack.enter_context(LocalBuilder(timeout=timeout)) if timeout is not None else "local",
            runner=stack.enter_context(LocalRunner(timeout=timeout)) if timeout is not None else "local",
            measure_callbacks=[RecordToFile(path)],
            seed=seed,
        )
        result = task.tune(options, chosen)
    if as_json:
        click.echo(json.dumps(result_json(result, path)))
    else:
        _tell(result, path, (workload, *args), target, quiet)
    return exit_code(result)


def make_policy(task: SearchTask, name: str | None, seed: int, neighbours: Sequence[str]) -> SearchPolicy:
    """
    Make the policy of a name; without one the default of the task.

    Raises
    ------
    DefinitionError
        If it is a tuner of templates and the task is none's.
    """
    template = isinstance(task, TemplateTask)
    chosen = name or ("xgb" if template else "sketch")
    if isinstance(task, TemplateTask) and chosen in _TUNERS:
        return _TUNERS[chosen](task, seed, [TransferConfigs(log) for log in neighbours])
    if chosen not in _POLICIES:
        raise DefinitionError(
            f"--policy {chosen} searches the configurations of a template, and "
            f"{title_of_key(task.workload_key)} is none; use one of {', '.join(_POLICIES)}"
        )
    starts = [WarmStart(neighbours)] if neighbours else []
    return _POLICIES[chosen](task, seed, starts)


def default_log(task: SearchTask) -> str:
    """Log name of a task: ``matmul-512-512-512.log.json``."""
    words = re.sub(r"[^\w.]+", "-", title_of_key(task.workload_key)).strip("-")
    return f"{words.removeprefix('ansor.')[:80]}.log.json"


def exit_code(result: TuningResult) -> int:
    """Exit code that tells a script how a run ended."""
    if result.stop_reason is StopReason.INTERRUPTED:
        return INTERRUPTED
    if result.stop_reason is StopReason.LOG_FAILED:
        return 1
    return NO_PROGRAM if result.best_state is None else 0


def result_json(result: TuningResult, log: str) -> dict[str, Any]:
    """Turn a result into plain data."""
    return {
        "workload": json.loads(result.task.workload_key),
        "algorithm": None if result.algorithm is None else json.loads(result.algorithm.workload_key),
        "target": str(result.task.target),
        "best_seconds": result.best_cost,
        "best_gflops": result.best_gflops,
        **certainty_json(result.best_result),
        "trials": result.trials,
        "known_trials": result.known_trials,
        "errors": {kind.name: count for kind, count in result.errors.items()},
        "stop": result.stop_reason.value,
        "message": result.message,
        "seconds": round(result.elapsed_seconds, 3),
        "log": str(Path(log)),
    }


def _tell(result: TuningResult, log: str, words: tuple[str, ...], target: str, quiet: bool) -> None:
    if result.best_state is None:
        click.echo(f"no program found: {result.message}")
        return
    if quiet:
        click.echo(str(result))
    if result.best_cost is not None:
        click.echo(f"best: {result.best_text}; log: {log}")
    if Path(log).exists():
        command = ["ansor", "best", log, *words]
        if target != "llvm":
            command += ["--target", target]
        if option := result.task.layout_rewrite_option:
            command += ["--layout-rewrite-option", f"{option:d}"]
        click.echo(f"its code: {shlex.join(command)} --code")
