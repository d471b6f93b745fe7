"""The command line `ansor`: one group, its commands in the modules beside it, and what becomes of errors.

Exit codes: 0 all went well; 1 an error, explained on the standard error stream; 2 a command line that is not
understood; 3 tuning ended without a valid program; 130 interrupted by Ctrl-C, with the log kept.

`ANSOR_TRACEBACK=1` shows the traceback of an error as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from ansor.command import INTERRUPTED
from ansor.explaining import explained
from search.cli.bench import bench
from search.cli.distill import distill
from search.cli.explain import explain
from search.cli.report import report
from search.cli.show import best, show, workloads
from search.cli.tune import tune

_EXAMPLES: Final = """
Examples:

\b
  ansor workloads                                      what the catalogue holds
  ansor show matmul_add 512 512 512                    its computation and sketches
  ansor tune matmul_add 512 512 512 --trials 64        find a fast program
  ansor tune net.py:layer 64 relu=true --log net.json  the same for your own function
  ansor best net.json                                  the best of each task in a log
  ansor best net.json net.py:layer 64 relu=true --code  its schedule as Python code
  ansor explain net.json matmul_add 512 512 512        what cost models see of its best program
  ansor report net.json -o net.html                    curves and programs as a web page
  ansor distill net.json -o best.json                  keep the best of each task
  ansor bench --quick                                  speed beside numpy, time per trial
"""


class _PassedOnError(Exception):
    """A broken pipe, in a form that click leaves alone: it would end the process itself, with 1."""


@contextmanager
def _passed_on() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _PassedOnError(error) from None


class _Commands(click.Group):
    """A group whose errors, broken pipes included, are the caller's."""

    def make_context(self, *words: Any, **extra: Any) -> click.Context:
        with _passed_on():
            return super().make_context(*words, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _passed_on():
            return super().invoke(ctx)


@click.group(cls=_Commands, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=None, version="0.1.0", prog_name="ansor")
def cli() -> None:
    """Find fast programs for tensor computations."""


for command in (tune, best, show, explain, distill, report, workloads, bench):
    cli.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors of ansor are explained, not traced."""
    try:
        return explained(lambda: _run(arguments))
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    try:
        code = cli.main(args=list(arguments), prog_name="ansor", standalone_mode=False)
    except _PassedOnError as error:
        raise error.args[0] from None
    return code if isinstance(code, int) else 0
