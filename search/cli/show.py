"""`ansor best`, `ansor show`, `ansor workloads`: looking at logs, tasks and the catalogue."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import click

from ansor.errors import DefinitionError
from ansor.medians import noise_text
from ansor.runtime.build import lower
from ansor.schedule.source import schedule_code
from ansor.wording import counted
from ansor.workloads import CATALOGUE
from measure import MeasureInput, MeasureResult, load_measurements
from measure.records.groups import RecordGroup, TaskGroups
from measure.records.record import direct_of, is_outdated, known_dag
from measure.records.settled import settled_records
from search.cli.chosen import Chosen
from search.cli.tune import make_policy
from search.cli.workload import Asked, WorkloadCommand, layout_option, show_numbers
from search.templates.task import TemplateTask
from search.text import certainty_json, certainty_text, flops_text, rate_text, target_terms
from search.titles import title_of_key, title_with_algorithm

_BEST_EXAMPLES = """
Examples:

\b
  ansor best net.json                               one line per task
  ansor best net.json matmul 512 512 512            its loops
  ansor best net.json matmul 512 512 512 --code     its schedule as Python code
  ansor best net.json --json                        for scripts
"""


@dataclass
class _Summary:
    """What a log holds of one task, whatever the algorithm."""

    key: str
    target: str
    group: RecordGroup
    trials: int = 0
    failed: int = 0
    disturbed: int = 0
    redone: int = 0
    best: tuple[MeasureInput, MeasureResult] | None = field(default=None)

    def add(self, inp: MeasureInput, res: MeasureResult) -> None:
        """Take a record into account."""
        if res.ok and (self.best is None or res.mean_cost < self.best[1].mean_cost):
            self.best = inp, res
        self.trials += 1
        self.failed += not res.ok
        self.disturbed += res.disturbed
        self.redone += res.redone

    @property
    def seconds(self) -> float | None:
        return None if self.best is None else self.best[1].mean_cost

    @property
    def flops(self) -> float:
        """FLOPs of the task [flop]; 0 if its workload is not known here."""
        dag = known_dag(self.key, self.group.computation)
        return 0.0 if dag is None else max(0.0, dag.flop_count)

    @property
    def winner(self) -> str | None:
        """Workload key of the best program: the task's, or that of an alternative."""
        return None if self.best is None else self.best[0].task.workload_key

    @property
    def title(self) -> str:
        """The task as a call, and the best algorithm where it is an alternative."""
        return title_with_algorithm(self.key, self.winner or self.key)

    @property
    def speed(self) -> str:
        """How fast the best program is, and how sure that is."""
        if self.best is None:
            return "no valid program"
        result = self.best[1]
        return rate_text(self.flops, result.mean_cost) + certainty_text(result)

    def to_json(self) -> dict[str, Any]:
        seconds, flops = self.seconds, self.flops
        return {
            "workload": _key_as_json(self.key),
            "algorithm": None if self.winner is None else _key_as_json(self.winner),
            "target": self.target,
            "num_cores": self.group.runs_on.cores,
            "cpu": self.group.runs_on.cpu,
            "layout_rewrite_option": self.group.layouts,
            "best_seconds": seconds,
            "best_gflops": flops / seconds / 1e9 if seconds and flops > 0 else None,
            **certainty_json(None if self.best is None else self.best[1]),
            "trials": self.trials,
            "failed": self.failed,
            "disturbed_of_all": self.disturbed,
            "redone_of_all": self.redone,
        }


@click.command(epilog=_BEST_EXAMPLES, cls=WorkloadCommand)
@click.argument("log", type=click.Path(exists=True, dir_okay=False))
@click.argument("workload", required=False)
@click.argument("args", nargs=-1, callback=show_numbers)
@click.option("--target", default="llvm", help="Target of the task. [default: this machine]")
@layout_option
@click.option("--code", is_flag=True, help="Print the schedule as Python code.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def best(
    log: str,
    workload: str | None,
    args: tuple[str, ...],
    target: str,
    layouts: int | None,
    code: bool,
    as_json: bool,
) -> None:
    """Show the best of each task in LOG, or the best program of WORKLOAD called with ARGS."""
    if workload is not None:
        _best_of_task(log, Chosen.of(log, (workload, *args), target, layouts), code, as_json)
        return
    if code:
        raise click.UsageError("--code needs to know which task: ansor best LOG WORKLOAD ARGS... --code")
    summaries = summarize(log)
    if as_json:
        click.echo(json.dumps([summary.to_json() for summary in summaries], indent=1))
        return
    if not summaries:
        raise DefinitionError(f"the log {log!r} holds no records")
    for summary in summaries:
        failed = f", {summary.failed} failed" if summary.failed else ""
        noise = noise_text(summary.disturbed, summary.redone)
        trials = counted(summary.trials, "trial") + failed + (f", of all repeats {noise}" if noise else "")
        layouts = summary.group.layouts
        under = f"  layout_rewrite_option {layouts}" if layouts else ""
        if is_outdated(summary.key, summary.group.computation):
            under += "  of another function of this name"
        terms = target_terms(summary.target, summary.group.runs_on)
        click.echo(f"{summary.title}  {summary.speed}  {trials}  [{terms}]{under}")


def summarize(log: str) -> list[_Summary]:
    """Sum up the measurements of a log by task and what their times count for, in order."""
    found: dict[RecordGroup, _Summary] = {}
    groups = TaskGroups(load_measurements(log))
    for inp, res in settled_records(groups.records):
        group = groups.of(inp)
        key, target, _ = direct_of(inp.task).key
        found.setdefault(group, _Summary(key, target, group)).add(inp, res)
    return list(found.values())


def _key_as_json(key: str) -> Any:
    """What a workload key says: a list, or the text itself of one that a user made up."""
    try:
        return json.loads(key)
    except ValueError:
        return key


def _best_of_task(log: str, chosen: Chosen, code: bool, as_json: bool) -> None:
    """Show the best program of a task."""
    task, found, seconds = chosen.task, chosen.found, chosen.seconds
    flops = task.compute_dag.flop_count
    schedule, tensors = task.apply_best(log)
    loops = str(schedule.state.with_bounds())
    config = task.config_of(chosen.state) if isinstance(task, TemplateTask) else None
    python = schedule_code(schedule.state) if code or as_json else ""
    if as_json:
        summary = {
            "workload": _key_as_json(task.workload_key),
            "algorithm": _key_as_json(chosen.algorithm.workload_key),
            "target": str(task.target),
            "best_seconds": seconds,
            "best_gflops": flops / seconds / 1e9 if flops > 0 else None,
            **certainty_json(found.result),
            "layout_rewrite_option": chosen.option,
            "configuration": None if config is None else str(config),
            "line": found.line,
            "trial": found.trial,
            "loops": loops,
            "code": python,
        }
        click.echo(json.dumps(summary, indent=1))
    elif code:
        click.echo(python)
    else:
        speed = rate_text(flops, seconds) + certainty_text(found.result)
        click.echo(f"{chosen.title}: {speed} ({found})")
        if config is not None:
            click.echo(f"configuration {config.index}: {config}")
        if chosen.layouts:
            click.echo(chosen.layouts)
        click.echo()
        click.echo(loops)
        click.echo(str(lower(schedule, tensors, target=task.target)))


@click.command(
    epilog="Examples:\n\n\b\n  ansor show matmul_add 512 512 512\n  ansor show net.py:layer 64 --json",
    cls=WorkloadCommand,
)
@click.argument("workload")
@click.argument("args", nargs=-1, callback=show_numbers)
@click.option("--target", default="llvm", help="What the programs are for. [default: this machine]")
@layout_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(workload: str, args: tuple[str, ...], target: str, layouts: int | None, as_json: bool) -> None:
    """Show the computation of WORKLOAD called with ARGS, and what `ansor tune` searches for it.

    These are the sketches that rules derive from it; for a template its configurations.
    """
    task = Asked.of((workload, *args), target).task(layouts or 0)
    policy = make_policy(task, None, 0, ())
    dag = task.compute_dag
    if as_json:
        data = {
            "workload": _key_as_json(task.workload_key),
            "target": str(task.target),
            "dag": str(dag),
            "flops": dag.flop_count,
            "sketches": [{"rules": one.explain(), "loops": str(one)} for one in policy.generate_sketches()],
            "configurations": task.config_space.to_json() if isinstance(task, TemplateTask) else None,
        }
        click.echo(json.dumps(data, indent=1))
        return
    click.echo(f"{title_of_key(task.workload_key)} on {task.target}, {flops_text(dag.flop_count)}\n")
    click.echo(str(dag))
    click.echo(policy.describe_space(), nl=False)


@click.command(epilog="Example: ansor workloads --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def workloads(as_json: bool) -> None:
    """List the catalogue: names, arguments, and what they compute."""
    if as_json:
        rows = [
            {
                "name": entry.name,
                "usage": entry.usage(),
                "summary": entry.summary,
                "benchmark": entry.benchmark,
            }
            for entry in CATALOGUE.values()
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    for entry in CATALOGUE.values():
        click.echo(f"{entry.usage()}\n    {entry.summary} Default: {' '.join(map(str, entry.default_args))}")
