"""Which state of the sources a row of `bench_cpu` is from, when it was measured, and on what."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final

from experiments.harness import ROOT
from experiments.search import runs as search_runs

CHANGED: Final = "+"
"""Ends the commit of sources that are not as they were committed."""


@dataclass(frozen=True, slots=True)
class Run:
    """
    The circumstances of one row.

    Attributes
    ----------
    commit
        State of the sources, behind it `CHANGED` if they were changed since; empty if nobody knows.
    date
        Of the end of its making, UTC, to the minute.
    quick
        Whether fewer repeats were asked for.
    surroundings
        What a timing depends on besides the sources (`search_runs.surroundings`).
    """

    commit: str
    date: str
    quick: bool
    surroundings: Mapping[str, str]

    @classmethod
    def now(cls, quick: bool, threads: int) -> Run:
        """The circumstances of what is measured now, on so many threads."""
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
        return cls(commit(), date, quick, {**search_runs.surroundings(), "threads": str(threads)})

    @property
    def place(self) -> str:
        """Machine and threads: rows that differ in it belong to different tables."""
        return f"{self.surroundings['machine']}, threads: {self.surroundings['threads']}"

    @property
    def state(self) -> str:
        """Name the state of the sources and the effort."""
        return f"{self.commit or 'no commit'}{' quick' if self.quick else ''}"


@cache
def commit() -> str:
    """The commit that is checked out, read once: what runs is what was loaded; empty if there is none."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    said = []
    for words in (["rev-parse", "--short=10", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
        try:
            done = subprocess.run(
                ["git", *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        said.append(done.stdout.strip())
    return said[0] + (CHANGED if said[1] else "")
