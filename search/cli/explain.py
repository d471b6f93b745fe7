"""`ansor explain`: what cost models are told of a program."""

from __future__ import annotations

import json

import click

from costmodel.explain import FeatureTable
from costmodel.explain import explain as explain_program
from search.cli.chosen import Chosen
from search.cli.workload import WorkloadCommand, layout_option, show_numbers
from search.text import certainty_json, certainty_text, rate_text

_EXAMPLES = """
Examples:

\b
  ansor explain net.json matmul 512 512 512
  ansor explain net.json net.py:layer 64 --descriptions
"""


@click.command(epilog=_EXAMPLES, cls=WorkloadCommand)
@click.argument("log", type=click.Path(exists=True, dir_okay=False))
@click.argument("workload")
@click.argument("args", nargs=-1, callback=show_numbers)
@click.option("--target", default="llvm", help="Target of the task. [default: this machine]")
@layout_option
@click.option("--descriptions", is_flag=True, help="Say what each line counts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(
    log: str,
    workload: str,
    args: tuple[str, ...],
    target: str,
    layouts: int | None,
    descriptions: bool,
    as_json: bool,
) -> None:
    """Show the features of the best program in LOG of WORKLOAD called with ARGS.

    One column per statement, one line per number that cost models see, in its own unit; at the end where the
    analytic model believes the time goes. Inputs in a layout of the program's own count as it reads them.
    """
    chosen = Chosen.of(log, (workload, *args), target, layouts)
    task, algorithm, state, seconds = chosen.task, chosen.algorithm, chosen.state, chosen.seconds
    if as_json:
        table = {
            "workload": json.loads(task.workload_key),
            "algorithm": json.loads(algorithm.workload_key),
            "measured_seconds": seconds,
            **certainty_json(chosen.found.result),
            "layout_rewrite_option": chosen.option,
            "line": chosen.found.line,
            "trial": chosen.found.trial,
        }
        click.echo(json.dumps(table | FeatureTable.of(algorithm, state).to_json(), indent=1))
        return
    speed = rate_text(task.compute_dag.flop_count, seconds) + certainty_text(chosen.found.result)
    click.echo(f"{chosen.title}: measured {speed} ({chosen.found})")
    if chosen.layouts:
        click.echo(chosen.layouts)
    click.echo(f"\n{state.with_bounds()}")
    click.echo(explain_program(algorithm, state, descriptions), nl=False)
