"""Marks of what is in use: who else, on this machine, is busy with the same file.

A mark is a lock of a file in the system's temporary directory, shared by all who use the marked file. Whoever
comes while nobody else shares it is alone; whoever leaves as the last one removes the file. As the lock of a
removed file says nothing, it counts only if the file still has its name once it is locked.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def in_use(path: str) -> Iterator[bool]:
    """Mark a file as in use, as long as the context lasts; it need not exist.

    Gives whether nobody else of this machine, this process included, had marked it: True as well where that
    cannot be found out, as the mark is another user's.
    """
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    mark = os.path.join(tempfile.gettempdir(), f"ansor-log-{name}.lock")
    found: tuple[int, bool] | None = None
    with suppress(OSError):
        found = _share(mark)
    if found is None:
        yield True
        return
    file, alone = found
    try:
        yield alone
    finally:
        _leave(file, mark)


def _share(mark: str) -> tuple[int, bool]:
    """Share the lock of a mark; returns the file, and whether nobody else did."""
    while True:
        file = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            alone = _try_to_own(file)
            fcntl.flock(file, fcntl.LOCK_SH)
            if _has_name(file, mark):
                return file, alone
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # The last one removed it between the opening and the locking.


def _leave(file: int, mark: str) -> None:
    try:
        with suppress(OSError):
            if _try_to_own(file) and _has_name(file, mark):
                os.unlink(mark)
    finally:
        os.close(file)


def _try_to_own(file: int) -> bool:
    """Lock a file for oneself alone; if others have a lock of it, return False and hold none."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_name(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False
