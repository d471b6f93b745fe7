"""A directory for temporary files that does not stay behind, even if its owner is killed.

An orderly end removes it. For the other kind, the owner holds a lock in it; whoever makes the next directory
removes those whose lock nobody holds any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "ansor-reference-"
_LOCK: Final = "lock"


class ScratchFolder:
    """A directory under the system's temporary one, from its making until `remove`."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        _remove_abandoned(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Locked before it gets its name, so that it never looks abandoned.
        self._file = os.open(self.path / "new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        (self.path / "new").rename(self.path / _LOCK)

    def remove(self) -> None:
        """Delete the directory and what is in it, unless this is a forked copy of its owner."""
        if os.getpid() == self._owner:
            shutil.rmtree(self.path, ignore_errors=True)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):  # Held by its owner, another user's, or just being removed.
            file = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(file)
