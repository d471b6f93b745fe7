"""What every benchmark shares: honest intervals, one table, one JSON form; `turns` has fair timing.

Rules that they enforce:

- Two things that are compared are timed in turn (`turns`). The result is the median of the ratios of
  neighbours, with the interval in which the true median lies with 95 % confidence (order statistics, no
  assumption about the distribution). Fewer than six values cannot tell that much: their whole range is shown,
  which holds the true median in 93.75 % of the cases for five values, 87.5 % for four, 75 % for three, 50 %
  for two.
- Where the place of data or code in memory matters, a comparison is repeated in fresh processes.
- A row says what it is compared with and what was hoped for: `{name, value, unit, peer, goal, holds}`.
  `holds` is null without a goal. `interval` is the confidence interval of `value`, null where there is none.
  `figures` has by name what the value was made from, in the file only; null where the row says everything.

A benchmark is a module `experiments.bench_NAME` that makes a `Bench`, adds rows and calls `finish`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

from ansor.knobs import NUM_THREADS
from ansor.lifetime import die_with
from ansor.medians import median_interval
from ansor.task.host import available_cores
from ansor.task.isa import cpu_name
from ansor.task.target import Target

ROOT: Final = Path(__file__).parent.parent
OUT: Final = ROOT / "experiments" / "out"

T = TypeVar("T")

DISAGREE: Final = "and ansor do not compute the same"
"""What is said, behind a name, of answers that differ by more than they may."""
_DYING: Final = 5.0
"""Seconds that a killed process is waited for."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """
    A median and the interval that holds the true one with 95 % confidence.

    Below six values the interval is their whole range, of confidence `range_confidence(count)`.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Estimate the median of independent values; the interval of fewer than six is their whole range."""
        return cls(median(values), *median_interval(values))


def range_confidence(count: int) -> float:
    """Tell how surely the range of `count` independent values holds the true median, 0 to 1."""
    return 1.0 - 2.0 ** (1 - count)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a benchmark's result (see the module's text)."""

    name: str
    value: float
    unit: str
    peer: str | None = None
    goal: float | None = None
    holds: bool | None = None
    interval: tuple[float, float] | None = None
    figures: Mapping[str, Any] | None = None


def speedup(ours: Sequence[float], peer: Sequence[float]) -> Estimate:
    """Estimate how many times faster `ours` is than `peer`, from times taken side by side."""
    return Estimate.of([theirs / mine for mine, theirs in zip(ours, peer, strict=True)])


def words_of(text: str) -> tuple[str, ...]:
    """
    Take a list with commas apart; what is empty in it, as behind a comma at its end, is left out.

    Raises
    ------
    argparse.ArgumentTypeError
        If nothing is left.
    """
    words = tuple(filter(None, (word.strip() for word in text.split(","))))
    if not words:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return words


def names_among(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Make a type of option: some of the known names, with commas between them."""

    def read(text: str) -> tuple[str, ...]:
        names = words_of(text)
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(
                f"there is no {', '.join(unknown)}; known are {', '.join(known)}"
            )
        return names

    return read


def positive_number(text: str) -> int:
    """Read an option that is a positive whole number."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive whole number")
    return int(text)


def positive_time(text: str) -> float:
    """Read an option that is a time, a positive number of whatever unit."""
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no positive number")


def threads_here(text: str) -> int:
    """Read an option that is a number of threads, each of which finds a core."""
    threads, cores = positive_number(text), available_cores()
    if threads > cores:
        raise argparse.ArgumentTypeError(
            f"{threads} threads are asked for, but this process has cores for {cores}: "
            "threads that share one wait for each other, and no time means anything"
        )
    return threads


def file_to_write(text: str) -> str:
    """Read an option that names a file to write, in a folder that is there: it is written hours later."""
    path = Path(text)
    try:
        _try_to_write(path)
    except IsADirectoryError:
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; name a file") from None
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {error.strerror}") from None
    return text


def _try_to_write(path: Path) -> None:
    """Open a file to write, and leave it as it was: permissions alone do not tell whether that goes well."""
    place = path.resolve()
    if place.exists():
        if place.is_file() or place.is_dir():  # and no pipe, which waits for a reader
            place.open("a").close()
    else:
        place.open("x").close()
        place.unlink()


def folder_to_write(text: str) -> Path:
    """Read an option that names a folder, made by whoever writes into it if there is none."""
    path = Path(text)
    try:
        there = next(each for each in (path, *path.absolute().parents) if each.exists())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be a folder: {error.strerror}") from None
    if not there.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be a folder: {there} is none")
    if there != path and not os.access(there, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be a folder: nothing can be written in {there}")
    return path


def fresh_process(function: str, *args: Any, timeout: float | None = None) -> Any:
    """
    Call `module:function` with JSON arguments in a new interpreter and return its JSON result.

    Parameters
    ----------
    timeout
        Seconds after which it is killed, with what it has started; None: never.

    Raises
    ------
    TimeoutError
        If it took longer.
    RuntimeError
        If the process fails; the message holds what it said.
    """
    parent = str(os.getpid())
    command = [sys.executable, "-m", "experiments.harness", function, json.dumps(args), parent]
    # Files, as pipes stay open with whatever it has started.
    with tempfile.TemporaryFile("w+") as answer, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=answer, stderr=said, start_new_session=True)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"it took more than {timeout:g} s: {function}{args}") from None
        finally:
            if process.poll() is None:
                _kill_session(process)
        for file in (answer, said):
            file.seek(0)
        if process.returncode:
            raise RuntimeError(f"{function}{args} failed in a fresh process:\n{said.read().strip()}")
        return json.loads(answer.read().splitlines()[-1])


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a session and what is in it; what waits for a driver may stay for a while."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_DYING)


def gist(error: Exception) -> str:
    """The line of an error's text that tells most, who disagrees or the last one; its type if it has none."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if DISAGREE in line), lines[-1])[:100]


def tell(text: str) -> None:
    """Write to the standard error stream, if anybody reads that: results do not depend on it."""
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


class Bench:
    """
    One benchmark: its command line, its rows, its table and its JSON file.

    Parameters
    ----------
    title
        Printed above the table.
    argv
        Command line without the program's name; default that of the process.
    add_options
        Called with the parser, to add options of the benchmark's own.

    Attributes
    ----------
    quick
        Whether `--quick` was given: fewer cases and repeats.
    arguments
        The command line, parsed.
    """

    def __init__(
        self,
        title: str,
        argv: Sequence[str] | None = None,
        add_options: Callable[[argparse.ArgumentParser], object] | None = None,
    ) -> None:
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--quick", action="store_true", help="fewer cases and repeats")
        parser.add_argument(
            "--json", type=file_to_write, metavar="PATH", help="also write the rows to this file"
        )
        if add_options is not None:
            add_options(parser)
        arguments = parser.parse_args(argv)
        if "threads" not in arguments and (threads := os.environ.get(NUM_THREADS, "").strip()):
            try:
                threads_here(threads)
            except argparse.ArgumentTypeError as error:
                parser.error(f"variable {NUM_THREADS}: {error}")
        self.title = title
        self.arguments = arguments
        self.quick: bool = arguments.quick
        self.json_path: str | None = arguments.json
        self.rows: list[Row] = []
        self._started = time.monotonic()

    def each(self, things: Sequence[T], name: Callable[[T], str] = str) -> Iterator[T]:
        """Go through some things; before each, say which of how many it is, and the time so far."""
        for number, thing in enumerate(things, 1):
            spent = timedelta(seconds=round(time.monotonic() - self._started))
            tell(f"{name(thing)}: {number} of {len(things)}, after {spent}")
            yield thing

    def add(
        self,
        name: str,
        value: float | Estimate,
        unit: str,
        *,
        peer: str | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
        figures: Mapping[str, Any] | None = None,
    ) -> Row:
        """Add a row, and say that it is there; a goal is a bound that `value` should keep."""
        goal = at_least if at_least is not None else at_most
        number = value.median if isinstance(value, Estimate) else value
        interval = (value.low, value.high) if isinstance(value, Estimate) else None
        holds = None if goal is None else (number >= goal if at_least is not None else number <= goal)
        row = Row(name, number, unit, peer, goal, holds, interval, figures)
        self.rows.append(row)
        tell(f"  {name}: {_value_text(row)}")
        return row

    def add_failure(self, name: str, why: str) -> Row:
        """Add a row of something that failed, which misses its goal."""
        return self.add(name, 1, "of 1", peer=why, at_most=0)

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Make a row of whatever goes wrong within, so that the other cases are measured."""
        try:
            yield
        except Exception as error:
            tell(traceback.format_exc().rstrip())
            self.add_failure(f"{name}: failed", gist(error))

    def write(self, *paths: str | Path) -> None:
        """Write the rows there are to the file of `--json`, if it was given, and to others."""
        text = json.dumps([asdict(row) for row in self.rows], indent=1) + "\n"
        for path in (self.json_path, *paths):
            if path is not None:
                Path(path).write_text(text, encoding="utf-8")

    def finish(self) -> int:
        """Write the file, print the table, and return the exit code: 1 if a goal was missed."""
        self.write()
        print(f"{self.title}  [{machine()}, {time.monotonic() - self._started:.0f} s]")
        print(table(self.rows))
        return int(any(row.holds is False for row in self.rows))


def table(rows: Sequence[Row]) -> str:
    """Lay rows out as aligned text."""
    cells = [("name", "value", "peer", "goal", "holds")]
    words = {None: "", True: "yes", False: "NO"}
    for row in rows:
        goal = "" if row.goal is None else f"{row.goal:g} {row.unit}"
        cells.append((row.name, _value_text(row), row.peer or "", goal, words[row.holds]))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join(line.rstrip() for line in lines)


def _value_text(row: Row) -> str:
    interval = "" if row.interval is None else f" ({row.interval[0]:.3g} .. {row.interval[1]:.3g})"
    return f"{_told_apart(row.value, row.goal)} {row.unit}{interval}"


def _told_apart(value: float, goal: float | None) -> str:
    """A value in three digits, or in as many more as tell it from a goal that it does not equal."""
    digits = 3
    while goal is not None and value != goal and digits < sys.float_info.dig:
        if float(f"{value:.{digits}g}") != float(f"{goal:g}"):
            break
        digits += 1
    return f"{value:.{digits}g}"


def machine() -> str:
    """Name the processor, as it and as LLVM call it, and the cores that this process may use."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name} ({cpu_name(Target('llvm'))}), {cores} cores"


def _call_in_this_process() -> None:
    """Serve `fresh_process`: argument 1 names the function, 2 holds its arguments, 3 is who asks."""
    die_with(int(sys.argv[3]))
    module, _, name = sys.argv[1].partition(":")
    result = getattr(import_module(module), name)(*json.loads(sys.argv[2]))
    print(json.dumps(result))


if __name__ == "__main__":
    _call_in_this_process()
