"""Locks of the whole process that a fork waits for.

A forked process has the locks of its parent and only one of its threads: a lock that another thread held
would stay locked. So whoever forks takes all of these first, and both processes go on with them free. The
lock that was made last is taken first: one that is held while another is asked for must be made after it.
"""

from __future__ import annotations

import os
import threading


def fork_safe_lock() -> threading.Lock:
    """Make a lock that lives as long as the process."""
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
