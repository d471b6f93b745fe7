"""The environment variables that ansor listens to. No other module of the package reads one of its own.

| variable | meaning |
|---|---|
| `ANSOR_DEBUG` | least verbosity of tuning runs, 0 to 5, see `search.details` |
| `ANSOR_DEVICE` | device of GPU programs: its position or part of its name, or `opencl:1,cuda:H100` |
| `ANSOR_NUM_THREADS` | threads of parallel loops, 1 to 1024 |
| `ANSOR_POCL_CPU` | what PoCL 3.0 is told of a CPU it does not know (`ansor.runtime.device.pocl`) |
| `ANSOR_TRACEBACK` | other than 0: errors of the command line come with their traceback |

Exported libraries read `ANSOR_NUM_THREADS` by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from ansor.errors import DefinitionError, TargetError

DEBUG: Final = "ANSOR_DEBUG"
DEVICE: Final = "ANSOR_DEVICE"
NUM_THREADS: Final = "ANSOR_NUM_THREADS"
POCL_CPU: Final = "ANSOR_POCL_CPU"
TRACEBACK: Final = "ANSOR_TRACEBACK"
MOST_DEBUG: Final = 5
MAX_THREADS: Final = 1024
"""Of the pool that runs parallel loops."""


def debug_level() -> int:
    """
    Read `ANSOR_DEBUG`; 0 if it is not set.

    Raises
    ------
    DefinitionError
        If it is no integer from 0 to 5.
    """
    text = os.environ.get(DEBUG, "").strip()
    if not text:
        return 0
    if not text.isdecimal() or int(text) > MOST_DEBUG:
        raise DefinitionError(f"{DEBUG} must be an integer from 0 to {MOST_DEBUG}, found {text!r}")
    return int(text)


def device_choice(kind: str, kinds: Sequence[str]) -> str | None:
    """
    Read from `ANSOR_DEVICE` what it says for a kind of device; None if it says nothing.

    Parameters
    ----------
    kind
        The kind, "opencl" or "cuda".
    kinds
        All there are. What stands behind one of these and a colon is said for that kind only, between commas.
    """
    wanted = None
    for part in os.environ.get(DEVICE, "").split(","):
        head, colon, tail = part.strip().partition(":")
        if colon and head in kinds:
            wanted = tail.strip() if head == kind else wanted
        elif wanted is None:
            wanted = part.strip()
    return wanted or None


def num_threads() -> int | None:
    """
    Read `ANSOR_NUM_THREADS`; None if it is not set.

    Raises
    ------
    TargetError
        If it is no integer from 1 to `MAX_THREADS`.
    """
    text = os.environ.get(NUM_THREADS, "").strip()
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
        raise TargetError(f"{NUM_THREADS} must be an integer from 1 to {MAX_THREADS}, found {text!r}")
    return int(text)


def pocl_cpu() -> str | None:
    """Read `ANSOR_POCL_CPU`; None if it is not set."""
    return os.environ.get(POCL_CPU, "").strip() or None


def traceback_wanted() -> bool:
    """Whether `ANSOR_TRACEBACK` asks for tracebacks."""
    return os.environ.get(TRACEBACK, "0") not in ("", "0")
