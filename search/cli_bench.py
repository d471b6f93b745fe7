"""`ansor bench`: run one of the project's benchmarks, `experiments.bench_NAME`."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import click

from ansor.errors import DefinitionError


@click.command(epilog="Example: ansor bench main --quick --json main.json")
@click.argument("name", default="main")
@click.option("--quick", is_flag=True, help="Fewer workloads and repeats.")
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False), help="Also write the rows to this file."
)
@click.option("--list", "list_only", is_flag=True, help="Name the benchmarks.")
def bench(name: str, quick: bool, json_path: str | None, list_only: bool) -> int:
    """Run benchmark NAME; default: main, the catalogue beside numpy and milliseconds per trial."""
    names = bench_names()
    if list_only:
        click.echo("\n".join(names))
        return 0
    if name not in names:
        raise DefinitionError(f"there is no benchmark {name!r}; there are {', '.join(names)}")
    command = [sys.executable, "-m", f"experiments.bench_{name}"]
    command += ["--quick"] if quick else []
    command += ["--json", str(Path(json_path).resolve())] if json_path else []
    with subprocess.Popen(command, cwd=source_tree()) as process:
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
