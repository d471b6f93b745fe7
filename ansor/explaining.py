"""What a command says of an error that its user can mend: a line instead of a traceback.

`ANSOR_TRACEBACK=1` shows the traceback as well.
"""

from __future__ import annotations

import os
import select
import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from typing import TextIO

from ansor.errors import AnsorError
from ansor.knobs import traceback_wanted


def explained(main: Callable[[], int], unread: int = 0) -> int:
    """
    Run a command; an error of ansor or of the system is told on the standard error stream, and code 1.

    Parameters
    ----------
    unread
        The code if whoever reads the output, such as `head`, has seen enough of it.
    """
    _open_streams()
    try:
        code = main()
        sys.stdout.flush()
        return code
    except (AnsorError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            gone = [stream for stream in (sys.stdout, sys.stderr) if _is_unread(stream)]
            for stream in gone:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if gone:
                return unread if sys.stdout in gone else 1
        if traceback_wanted():
            traceback.print_exc()
        print(f"error: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1


def _open_streams() -> None:
    """Let names of files be written whatever their bytes are, and to a closed stream anything in vain."""
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="surrogateescape")


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _is_unread(stream: TextIO) -> bool:
    """Whether a stream is a pipe with nobody at its other end any more; not if that cannot be asked."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
    except (AttributeError, OSError):
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
