"""The command line: `ansor ...` and `python -m ansor ...`. All of it lives in `search.cli`.

What is here is what must work before anything else is loaded: the end of a process that is told to stop.
Ctrl-C, a SIGTERM and a terminal that hangs up all end a command the same way: with a summary where there is
something to sum up, temporary files removed, and exit code 130. More of them while that goes on are passed
over, unless it takes too long.
"""

import atexit
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
PATIENCE: Final = 5.0
"""Seconds after the first signal from which on another one ends the process at once."""


class _Stopping:
    """The handler of the signals that ask a process to stop."""

    def __init__(self) -> None:
        self.loading, self.ended = True, False
        self._first: float | None = None
        self._taken: list[int] = []

    def install(self) -> None:
        """Take over every one of the signals that is not ignored (as `nohup` does with SIGHUP)."""
        atexit.register(self.leave)  # The first of all, so the last to be called.
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) in (
                signal.SIG_DFL,
                signal.default_int_handler,
            ):
                signal.signal(number, self)
                self._taken.append(number)

    def ignore(self) -> None:
        """Pass over further signals: the end has begun, and the interpreter would leave it half done."""
        for number in self._taken:
            signal.signal(number, signal.SIG_IGN)

    def leave(self) -> None:
        """
        End an interrupted process with its code, once everything else is done.

        Python ends a process by SIGINT if the interrupt left a string that was executed, as the libraries'
        named tuples and data classes are made, wherever it was caught then.
        """
        if self.ended:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(INTERRUPTED)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.loading:  # Nothing to keep or to remove yet, and libraries that are half loaded.
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
        now = time.monotonic()
        if self._first is None:
            self._first = now
            raise KeyboardInterrupt
        if now - self._first > PATIENCE:
            os._exit(INTERRUPTED)  # Workers die with this process.


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    stopping = _Stopping()
    stopping.install()
    from ansor.siblings import check_siblings

    check_siblings()
    from search.cli import run

    try:
        stopping.loading = False
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
    stopping.ignore()
    stopping.ended = code == INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
