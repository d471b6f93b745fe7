"""`ansor report`: a log as a web page."""

from __future__ import annotations

from pathlib import Path

import click

from ansor.errors import DefinitionError
from costmodel import XGBModel
from search.cli.workload import find_workload
from search.report.belief import ROUND, Belief, believed
from search.report.data import LogHistory, read_history
from search.report.page import report_page

_EXAMPLES = """
Examples:

\b
  ansor report net.json                              writes net.json.html
  ansor report net.json -o page.html --no-model
  ansor report net.json --workload net.py:layer      functions of your own, to see their programs
"""


@click.command(epilog=_EXAMPLES)
@click.argument("log", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Page to write. [default: LOG.html]")
@click.option(
    "--workload", "workloads", multiple=True, help="file.py:function that the log's tasks come from."
)
@click.option("--no-model", is_flag=True, help="Leave out what a model would have predicted; saves its time.")
def report(log: str, output: str | None, workloads: tuple[str, ...], no_model: bool) -> None:
    """Write a page about LOG: curves, outcomes, where the time went, the best programs."""
    path = Path(output or f"{log}.html")
    _check_replaceable(path)
    for word in workloads:
        find_workload(word)
    history = read_history(log)
    if not history.tasks:
        left_out = "".join(f"; {note}" for note in history.notes)
        raise DefinitionError(f"the log {log!r} holds no records{left_out}")
    beliefs = None if no_model else model_beliefs(history)
    # Names of files need not be UTF-8.
    path.write_text(report_page(history, beliefs), encoding="utf-8", errors="replace")
    click.echo(str(path))


def _check_replaceable(path: Path) -> None:
    """Refuse to lose what is no page, such as a log."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(1) not in (b"", b"<"):
                raise DefinitionError(f"{str(path)!r} is there already and no page; name another with -o")


def model_beliefs(history: LogHistory) -> list[Belief | str]:
    """Let a new learned model go through the log, task by task; of a long one it learns in growing steps."""
    return [
        believed(task, XGBModel(num_warmup_sample=ROUND - 1, seed=0, adaptive_training=True))
        for task in history.tasks
    ]
