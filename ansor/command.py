"""A process that runs one command, and how it ends when it is told to stop.

Ctrl-C, a SIGTERM and a terminal that hangs up all end a command the same way: with a summary where there is
something to sum up, temporary files removed, and exit code 130. More of them while that goes on are passed
over, unless it takes too long.

What is here is what must work before anything else is loaded, so it loads nothing.
"""

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""Exit code of a command that was told to stop."""
PATIENCE: Final = 5.0
"""Seconds after the first signal from which on another one ends the process at once."""


class Command:
    """The handler of the signals that ask a process to stop."""

    def __init__(self) -> None:
        self._loading, self._ended = True, False
        self._first: float | None = None
        self._taken: list[int] = []

    def take_signals(self) -> None:
        """Take over every one of the signals that is not ignored (as `nohup` does with SIGHUP)."""
        atexit.register(self._leave)  # The first of all, so the last to be called.
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) in (
                signal.SIG_DFL,
                signal.default_int_handler,
            ):
                signal.signal(number, self)
                self._taken.append(number)

    def run(self, main: Callable[[], int]) -> NoReturn:
        """Run the command, as everything is loaded now, and exit with its code."""
        try:
            self._loading = False
            code = main()
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            code = INTERRUPTED
        # The end has begun, and the interpreter would leave it half done.
        for number in self._taken:
            signal.signal(number, signal.SIG_IGN)
        self._ended = code == INTERRUPTED
        sys.exit(code)

    def _leave(self) -> None:
        """
        End an interrupted process with its code, once everything else is done.

        Python ends a process by SIGINT if the interrupt left a string that was executed, as the libraries'
        named tuples and data classes are made, wherever it was caught then.
        """
        if self._ended:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(INTERRUPTED)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._loading:  # Nothing to keep or to remove yet, and libraries that are half loaded.
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
        now = time.monotonic()
        if self._first is None:
            self._first = now
            raise KeyboardInterrupt
        if now - self._first > PATIENCE:
            os._exit(INTERRUPTED)  # Workers die with this process.
