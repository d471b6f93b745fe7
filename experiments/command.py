"""How the modules of this package run that are started as commands: `command.run(main)` is their last line.

What ends the command `ansor` ends them in the same way, and errors are explained as there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NoReturn

from ansor.command import Command

_COMMAND: Final = Command()


def await_signals() -> None:
    """Take over the signals from now on if Python is looking for a module of this package to run."""
    if sys.argv[0] == "-m":
        _COMMAND.take_signals()


def run(main: Callable[[], int], unread: int = 0) -> NoReturn:
    """
    Run what is loaded by now, and exit with its code.

    Parameters
    ----------
    unread
        The code if nobody reads its output to the end; 1 for what has goals or failures to tell of.
    """
    from ansor.explaining import explained

    _COMMAND.run(lambda: explained(main, unread))
