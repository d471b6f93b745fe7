"""`ansor distill`: keep the best of logs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from ansor.wording import counted
from measure.records.distill import DISTILLED_SUFFIX, DistillSummary, distill_record_file

_EXAMPLES = """
Examples:

\b
  ansor distill net.json                        writes net.json.best.json
  ansor distill a.json b.json -o all.json       the best of both, and of all.json if it exists
  ansor distill net.json -o tvm.json --tvm      only what TVM can read
"""


@click.command(epilog=_EXAMPLES)
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help=f"File to write; a distilled one that exists is merged with. [default: LOG{DISTILLED_SUFFIX}]",
)
@click.option("--tvm", is_flag=True, help="Keep only programs that TVM knows all steps of.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def distill(logs: tuple[str, ...], output: str | None, tvm: bool, as_json: bool) -> None:
    """Write the best record of each task in LOGS to a file of its own."""
    out = output or f"{logs[0]}{DISTILLED_SUFFIX}"
    summary = distill_record_file(logs, out, tvm_only=tvm)
    if as_json:
        click.echo(json.dumps({"output": out, **asdict(summary)}, indent=1))
    else:
        # What is no regular file may be where records go: the standard output itself.
        click.echo(f"{out}: {describe(summary)}", err=not Path(out).is_file())


def describe(summary: DistillSummary) -> str:
    """Sum up in words."""
    each = f" by each of {summary.written} algorithms" if summary.written > summary.tasks else ""
    tasks = f"the best of {counted(summary.tasks, 'task')}{each}"
    parts = [f"{tasks}, from {counted(summary.records, 'record')}"]
    if summary.left_out:
        parts.append(f"{counted(summary.left_out, 'record')} left out, with steps that TVM does not know")
    if summary.slower:
        parts.append(f"for {counted(summary.slower, 'task')} a faster program was left out")
    if summary.lost:
        parts.append(f"{counted(summary.lost, 'task')} left without any")
    if summary.without_success:
        parts.append(f"{counted(summary.without_success, 'task')} without a valid program")
    return "; ".join(parts)
