"""`ansor bench`: run one of the project's benchmarks, `experiments.bench_NAME`."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from ansor.errors import DefinitionError

_EXAMPLES: Final = """
Examples:

\b
  ansor bench main --quick --json main.json
  ansor bench cpu --help                    options of one benchmark
  ansor bench cpu --ops softmax --table
"""


@click.command(epilog=_EXAMPLES, context_settings={"allow_interspersed_args": False})
@click.argument("name", default="main")
@click.argument("options", metavar="[OPTIONS OF NAME]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--quick", is_flag=True, help="Fewer workloads and repeats.")
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False), help="Also write the rows to this file."
)
@click.option("--list", "list_only", is_flag=True, help="Name the benchmarks.")
def bench(name: str, options: tuple[str, ...], quick: bool, json_path: str | None, list_only: bool) -> int:
    """Run benchmark NAME; default: main, the catalogue beside numpy and milliseconds per trial.

    What stands behind NAME goes to the benchmark, as with `python -m experiments.bench_NAME`: see
    `ansor bench NAME --help`.
    """
    names = bench_names()
    name = name.removeprefix("bench_")
    if list_only:
        click.echo("\n".join(names))
        return 0
    if name not in names:
        raise DefinitionError(f"there is no benchmark {name!r}; there are {', '.join(names)}")
    # Files that options name are looked for here, modules in the source tree alone (-P).
    command = [sys.executable, "-P", "-m", f"experiments.bench_{name}", *options]
    command += ["--quick"] if quick else []
    command += ["--json", json_path] if json_path else []
    path = [str(source_tree()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    with subprocess.Popen(command, env=environment) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:  # It has rows to keep and files to remove, and says how to go on.
            process.send_signal(signal.SIGINT)
            return process.wait()


def source_tree() -> Path:
    """Directory that holds `experiments`, which is part of the source tree and not of an installation.

    Raises
    ------
    DefinitionError
        If ansor runs from an installation without it.
    """
    spec = importlib.util.find_spec("ansor")
    root = Path(spec.origin).parent.parent if spec is not None and spec.origin is not None else Path()
    if not (root / "experiments" / "harness.py").is_file():
        raise DefinitionError(
            "benchmarks are part of the source tree; clone it and run `ansor bench` from there"
        )
    return root


def bench_names() -> list[str]:
    """Names of the benchmarks that there are."""
    return sorted(
        path.stem.removeprefix("bench_") for path in (source_tree() / "experiments").glob("bench_*.py")
    )
