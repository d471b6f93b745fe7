"""Rows of `bench_cpu` that stay in its folder: a whole table takes hours, and is made by several runs.

`results.json` holds the last row of every case, with the circumstances of its run (`experiments.cpu.run`). A
case that is measured again, or fails, loses its earlier row; rows of cases that there are no more are left in
the file and are not shown.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from experiments.cpu.cases import CASES, Case
from experiments.cpu.results import Result
from experiments.cpu.run import Run

FILE: Final = "results.json"
Rows = dict[str, dict[str, Any]]


class UnusableError(ValueError):
    """Rows that lie in a folder are not what this run could go on with."""


@dataclass(frozen=True, slots=True)
class Kept:
    """
    What a folder holds, in the order of the cases.

    Attributes
    ----------
    failed
        Cases that have no row because they failed.
    unknown
        Names of cases that there are no more.
    """

    results: tuple[Result, ...] = ()
    failed: tuple[Case, ...] = ()
    unknown: tuple[str, ...] = ()


def read(folder: Path, cases: Mapping[str, Case] = CASES) -> Kept:
    """
    Read the rows of a folder, none if there are none.

    Raises
    ------
    UnusableError
        If the file is not of this form.
    """
    results, failed = _rows(folder)
    known = [case for name, case in cases.items() if name in results]
    with _form_of(folder / FILE):
        found = tuple(Result.from_json(results[case.name], case, folder) for case in known)
        for result in found:
            result.to_json()  # What can be written again has all that a table shows.
    return Kept(
        found,
        tuple(case for name, case in cases.items() if name in failed),
        tuple(name for name in (*results, *failed) if name not in cases),
    )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """
    Mark a folder as that of a run, as long as the context lasts.

    Raises
    ------
    UnusableError
        If another run of this machine uses it: they would disturb each other's timing.
    """
    place = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnusableError(f"another run is measuring into {folder} now: wait for its end") from None
        yield
    finally:
        os.close(place)


def check_place(folder: Path, run: Run, asked: Collection[Case] = ()) -> None:
    """
    Let rows of one machine and one number of threads stand in one table, and no quick row for a full one.

    Raises
    ------
    UnusableError
        If the folder has rows of another, or none that can be read, or if a quick run is asked for a case
        that has a row of a full one.
    """
    read(folder)
    results, failed = _rows(folder)
    for row in _all(results, failed):
        if (other := Run(**row["run"]).place) != run.place:
            raise UnusableError(
                f"{folder / FILE} holds rows of another machine ({other}; this is {run.place}): "
                "name another folder with --log-dir"
            )
    rows = [results[case.name] for case in asked if case.name in results]
    full = [row["case"] for row in rows if not Run(**row["run"]).quick]
    if run.quick and full:
        raise UnusableError(
            f"{folder / FILE} holds rows of runs that were not --quick, which this one would replace "
            f"({', '.join(full)}): name another folder with --log-dir"
        )


def check_threads(results: Iterable[Result], threads: int | None) -> None:
    """
    Let a table of so many threads be of rows that were measured with them; None: with whatever they were.

    Raises
    ------
    UnusableError
        If a row is of another number.
    """
    of = {result.run.surroundings["threads"] for result in results if result.run is not None}
    if threads is not None and of - {str(threads)}:
        raise UnusableError(
            f"the rows are of {', '.join(sorted(of))} threads, not of {threads}: leave it out"
        )


def keep(folder: Path, case: Case, found: Result | None, run: Run) -> None:
    """Put what was found for a case, None if it failed, in the place of its earlier row."""
    results, failed = _rows(folder)
    results.pop(case.name, None)
    failed.pop(case.name, None)
    if found is None:
        failed[case.name] = {"case": case.name, "run": asdict(run)}
    else:
        results[case.name] = found.to_json()
    part = folder / f"{FILE}.part"
    document = {"results": list(results.values()), "failed": list(failed.values())}
    part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    part.replace(folder / FILE)


def _rows(folder: Path) -> tuple[Rows, Rows]:
    """Rows by case, and failures by case."""
    path = folder / FILE
    if not path.exists():
        return {}, {}
    with _form_of(path):
        document = json.loads(path.read_text(encoding="utf-8"))
        found: tuple[Rows, Rows] = (
            {row["case"]: row for row in document["results"]},
            {row["case"]: row for row in document["failed"]},
        )
        for row in _all(*found):
            _ = Run(**row["run"]).place
    return found


@contextmanager
def _form_of(path: Path) -> Iterator[None]:
    """Turn what goes wrong while rows are read into an `UnusableError`."""
    try:
        yield
    except OSError as error:
        raise UnusableError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UnusableError(f"{path} is not of this version's form ({why}): move it away") from None


def _all(results: Rows, failed: Rows) -> Iterator[dict[str, Any]]:
    yield from results.values()
    yield from failed.values()
