"""CPU kernels beside libraries, another tuner and the machine's limits: one table of everything.

Claims to look at: what tuning finds is as fast as the fastest library on every operation of the catalogue
(`experiments.cpu.goals` has the goals), and how much of the machine's peak of multiply-adds, or of a stream
of the same bytes, it uses. Each operation is tuned, its winner measured again in fresh processes, in turn
with numpy, PyTorch (eager in both memory formats, and compiled), ONNX Runtime and the ceilings; everyone has
the same number of threads, and every answer is compared with ours first. A goal is never more than 0.97 of
the limit measured beside it; the table says which of the two applies.

Logs stay, so a second run goes on where the first one stopped: in a folder of `experiments/out` named after
the sources, the machine and the threads, or wherever `--log-dir` says, whatever logs lie there. There lie
also `results.json`, every figure of the last row of each operation with the commit, date and machine of its
run (`experiments.cpu.kept`), and the bar chart `speed.svg` of all of them (extra `plot`). So several runs
with `--ops` can make a table of everything; `--table` measures nothing and shows what there is. The rows of
`--json` are of what this run shows, and the row `share` of an operation has the same figures.

`--metaschedule` adds TVM's MetaSchedule with as many trials as ours has, in an environment of its own,
whose Python is named by `--tvm-python` or the variable ANSOR_TVM_PYTHON; an error says what to install there.

Command: `python -m experiments.bench_cpu [--quick] [--ops A,B] [--trials N] [--json PATH] [--log-dir DIR]
[--threads N] [--peers A,B] [--metaschedule] [--tvm-python PATH] [--table]`; a minute or two with `--quick`,
which shows that everything works and leaves torch.compile out; hours without.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from ansor.command import INTERRUPTED
from ansor.task.host import available_cores
from experiments import command
from experiments.cpu import metaschedule as cpu_metaschedule
from experiments.cpu.cases import CASES, QUICK, Case, chosen
from experiments.cpu.kept import FILE, UnusableError, alone, check_place, check_threads, keep, read
from experiments.cpu.measure import Effort, environment, measure, packing_costs, threads_everywhere
from experiments.cpu.peers import PEERS
from experiments.cpu.results import Result, Spent, add_means, add_rows
from experiments.cpu.run import Run
from experiments.cpu.table import chart, details, some
from experiments.cpu.tuning import CLOCK, DEAR, KEPT_MEMORY, LOG, log_of, tune
from experiments.harness import (
    OUT,
    Bench,
    folder_to_write,
    gist,
    names_among,
    positive_number,
    threads_here,
    words_of,
)
from experiments.search import runs as search_runs
from experiments.search.clock import report_quiet

TRIALS: Final = 200
QUICK_TRIALS: Final = 8
KIND: Final = "cpu"
"""Begin of the names of folders of logs."""
CHART: Final = "speed.svg"
NOT_QUICK: Final = ("torch.compile",)
MODULES: Final = ("cpu/cases", "cpu/tuning", "cpu/workloads", "search/cases")
"""Modules of `experiments` that decide what is tuned, besides what ansor consists of."""
ERROR: Final = ".error.txt"
"""End of the name of what an operation failed with."""
MISSING: Final = "no row has it; --metaschedule measures it"
MEASURING: Final = ("quick", "trials", "peers", "metaschedule", "tvm_python")
"""Options that say how to measure, which `--table` does not."""


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_cpu: kernels beside libraries and the machine's limits", argv, add_options)
    given = bench.arguments
    useless = [name for name in MEASURING if given.table and getattr(given, name)]
    if useless:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in useless)
        print(f"bench_cpu: --table measures nothing: leave out {words}", file=sys.stderr)
        return 2
    if given.tvm_python and not given.metaschedule:
        print("bench_cpu: --tvm-python says whose MetaSchedule tunes: add --metaschedule", file=sys.stderr)
        return 2
    threads = given.threads or default_threads()
    os.environ.update(threads_everywhere(threads))
    folder = given.log_dir or search_runs.named_folder(KIND, MODULES)
    if bench.json_path and _is_kept(Path(bench.json_path), folder):
        print(
            f"bench_cpu: --json {bench.json_path} is a file that a run keeps: name another", file=sys.stderr
        )
        return 2
    peers = given.peers or tuple(name for name in PEERS if not (bench.quick and name in NOT_QUICK))
    effort = Effort(1, 3, 5.0, threads, peers) if bench.quick else Effort(2, 8, 20.0, threads, peers)
    trials = given.trials or (QUICK_TRIALS if bench.quick else TRIALS)
    tuner = _tuner(given) if given.metaschedule else None
    try:
        if given.table:
            return show(bench, folder, given)
        if tuner is not None:
            found = cpu_metaschedule.check(tuner)
            print(f"  {cpu_metaschedule.NAME}: {found}", file=sys.stderr, flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
            check_place(folder, Run.now(bench.quick, threads), _asked(given))
            for case in bench.each(_asked(given), lambda case: case.name):
                outcome = measured(bench, case, folder, trials, effort, tuner)
                run = Run.now(bench.quick, threads)
                result = outcome and replace(outcome, run=run)
                keep(folder, case, result, run)
                if result is not None:
                    add_rows(bench, result)
            return show(bench, folder, given)
    except (UnusableError, cpu_metaschedule.MissingError) as error:
        print(f"bench_cpu: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; logs and rows are kept in {folder}: the same command goes on", file=sys.stderr)
        return INTERRUPTED


def default_threads() -> int:
    """Two, where there are as many cores for us."""
    return min(2, available_cores())


def _is_kept(path: Path, folder: Path) -> bool:
    """Whether a path is that of a file with which later runs go on."""
    inside = path.resolve().parent == folder.resolve()
    return inside and (path.name in (FILE, CHART) or path.name.endswith((LOG, CLOCK, ERROR)))


def show(bench: Bench, folder: Path, given: argparse.Namespace) -> int:
    """Show the rows that were asked for, and a chart of all that the folder holds."""
    kept, asked = read(folder), _asked(given)
    results = [result for result in kept.results if result.case in asked]
    failed = [case for case in kept.failed if case in asked]
    if given.table:
        check_threads(results, given.threads)
        if not (results or failed):
            why = "" if given.log_dir else "; it is that of these sources, and --log-dir shows another one"
            why = f", but of {', '.join(kept.unknown)}, which there are no more" if kept.unknown else why
            raise UnusableError(f"{folder} holds no row of what was asked for{why}")
        for result in results:
            add_rows(bench, result)
        for case in failed:
            bench.add_failure(_failed(case), f"see {_error_file(folder, case).name}")
        _add_lacking(bench, asked, [*(result.case for result in results), *failed])
    add_means(bench, results, asked)
    if results:
        _add_quiet(bench, results)
    bench.write()  # Whoever reads what is printed may have seen enough.
    if results:
        print(details(results))
    if not any(result.was_rivalled for result in results):
        print(f"  not compared with {cpu_metaschedule.NAME}: {MISSING}")
    if kept.unknown:
        print(f"  not shown, since there are no such cases any more: {', '.join(kept.unknown)}")
    print(f"  {chart(kept.results, folder / CHART)}")
    return bench.finish()


def _add_lacking(bench: Bench, asked: Sequence[Case], there: Sequence[Case]) -> None:
    """Say how many of the operations that were asked for have a row, if not all."""
    lacking = [case.name for case in asked if case not in there]
    if lacking:
        peer = f"all but {some(lacking, len(asked))}"
        bench.add("operations that have a row", len(there) / len(asked), "of 1", peer=peer, at_least=1)


def _add_quiet(bench: Bench, results: Sequence[Result]) -> None:
    """Say whether the machine was quiet, and beside which operations it was not: they have no verdict."""
    report_quiet(bench, [share for result in results for share in result.measured.quiet])
    disturbed = [result.case.name for result in results if result.measured.disturbed]
    if disturbed:
        peer = f"measure again: {some(disturbed, len(results))}"
        value, least = 1 - len(disturbed) / len(results), None if bench.quick else 1
        bench.add("operations beside which nothing else ran", value, "of 1", peer=peer, at_least=least)


def _asked(given: argparse.Namespace) -> list[Case]:
    """The cases that were asked for; everything is shown unless some are named."""
    return given.ops or [CASES[name] for name in (QUICK if given.quick else CASES)]


def measured(
    bench: Bench, case: Case, folder: Path, trials: int, effort: Effort, tuner: str | None
) -> Result | None:
    """Tune and measure one case; None, and a row that says so, if it has no program or answers differ."""
    served, seconds, lost = [], None, {}
    try:
        with environment(KEPT_MEMORY):  # in which what they find is timed, too
            tuned = tune(case, folder, trials)
            if case.constant and _has_own_log(case, tuned.log, effort.threads):
                tuned = tuned.with_given(tune(case.as_given(), folder, trials))
                trials *= 2
            if tuner is not None:
                try:
                    found = other_tuner(case, folder, trials, effort.threads, tuner)
                except Exception as error:  # whatever becomes of the other one, ours is measured
                    lost = {cpu_metaschedule.NAME: gist(error)}
                else:
                    served, seconds = found["command"], found["seconds"]
        ours = measure(case, tuned.log, effort, served)
        other = None if seconds is None else Spent(trials, seconds)
        return Result.of(case, tuned, replace(ours, skipped={**ours.skipped, **lost}), other)
    except Exception as error:  # whatever one case does, the others are measured
        _error_file(folder, case).write_text("".join(traceback.format_exception(error)))
        bench.add_failure(_failed(case), gist(error))
        return None


def _has_own_log(case: Case, log: Path, threads: int) -> bool:
    """Whether weights that come with each call are tuned for, beside the log for constant ones."""
    begun = log_of(case.as_given(), log.parent).exists()
    return case.algorithms or begun or packing_costs(case, log, threads) > DEAR


def _failed(case: Case) -> str:
    return f"{case.name}: failed"


def _error_file(folder: Path, case: Case) -> Path:
    return folder / f"{case.name}{ERROR}"


def other_tuner(case: Case, folder: Path, trials: int, threads: int, python: str) -> dict[str, Any]:
    """
    Tune a case by MetaSchedule with so many trials: once for all cases of an operation.

    Where our own space has fewer programs it still has as many as it was asked for.

    Raises
    ------
    RuntimeError
        If it fails.
    OSError
        If there is no such Python.
    """
    code = cpu_metaschedule.definition(case.entry.function(*case.args))
    place = folder / f"{case.operation}.{trials}.metaschedule"
    return cpu_metaschedule.tune(python, code, place, trials, threads)


def _tuner(given: argparse.Namespace) -> str:
    """The Python of the other tuner."""
    return given.tvm_python or cpu_metaschedule.default_python() or "python3"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this benchmark's own options, and say what it leaves."""
    parser.epilog = (
        f"Every figure of each operation stays in {FILE} and the bar chart of speeds in {CHART}, beside the "
        f"logs: in --log-dir, or a folder {OUT / KIND}-... named after the sources, the machine and the "
        "threads. The rows of --json have the same figures of what is shown, in the field `figures` of an "
        "operation's row `share`."
    )
    parser.add_argument(
        "--ops", type=_cases, default=(), metavar="A,B", help="operations, workloads or groups of them"
    )
    parser.add_argument(
        "--trials",
        type=positive_number,
        metavar="N",
        help="trials of each, and as many again where weights that come with each call are tuned for; "
        f"default {TRIALS}, with --quick {QUICK_TRIALS}",
    )
    parser.add_argument(
        "--log-dir",
        type=folder_to_write,
        metavar="DIR",
        help="where logs and rows lie, old ones to go on with included",
    )
    parser.add_argument(
        "--threads",
        type=threads_here,
        metavar="N",
        help=f"for everyone, {default_threads()} by default",
    )
    parser.add_argument(
        "--peers", type=names_among(PEERS), default=(), metavar="A,B", help=f"some of {', '.join(PEERS)}"
    )
    parser.add_argument(
        "--table", action="store_true", help="measure nothing, show the rows that lie in the folder"
    )
    parser.add_argument("--metaschedule", action="store_true", help="tune by TVM's MetaSchedule, too")
    parser.add_argument(
        "--tvm-python",
        metavar="PATH",
        help=f"a Python that has TVM, else that of {cpu_metaschedule.VARIABLE}",
    )


def _cases(text: str) -> list[Case]:
    try:
        return chosen(words_of(text))
    except KeyError as error:
        words = dict.fromkeys(word for case in CASES.values() for word in (case.group, case.workload))
        near = get_close_matches(str(error.args[0]), [*words, *CASES], n=3)
        known = f"did you mean {' or '.join(near)}? known are" if near else "known are"
        raise argparse.ArgumentTypeError(
            f"there is no {error}; {known} {', '.join(words)} and their cases, such as {next(iter(CASES))}"
        ) from None


if __name__ == "__main__":
    command.run(main, unread=1)
