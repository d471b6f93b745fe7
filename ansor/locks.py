"""Locks of the whole process that a fork waits for.

A forked process has the locks of its parent and only one of its threads: a lock that another thread held
would stay locked. So whoever forks takes all of these first, and both processes go on with them free. The one
that was registered last is taken first: a lock that is held while another is asked for comes after it.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol


class Lock(Protocol):
    """What is asked of a lock."""

    def acquire(self) -> bool: ...

    def release(self) -> None: ...


def fork_safe_lock() -> threading.Lock:
    """Make a lock that lives as long as the process."""
    lock = threading.Lock()
    hold_across_forks(lock)
    return lock


def hold_across_forks(lock: Lock) -> None:
    """Let forks wait for a lock from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lambda: _take(lock), after_in_parent=lock.release, after_in_child=lock.release
        )


def _take(lock: Lock) -> None:
    """Take a lock whatever signals say meanwhile: the fork goes on, and both processes release it."""
    while True:
        try:
            lock.acquire()
            return
        except KeyboardInterrupt:
            continue
