"""A process that does not outlive the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int) -> None:
    """Ask the system to kill this process when its parent is gone (Linux), also if that already happened.

    Parameters
    ----------
    parent
        Process id of the one that started this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
