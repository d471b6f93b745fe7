"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """
    Open a file for writing that takes the place of `path` once the block ends.

    If it does not end well, or the machine stops meanwhile, `path` is as it was. What is no regular file,
    such as a pipe or ``/dev/null``, is written directly. A link stays one: the file that it names is
    replaced. A new file may be read by whom the process lets read what it makes (`umask`).

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # Where a link to a pipe leads has no real path.
        with open(path, "wb") as direct:
            yield direct
        return
    place = Path(os.path.realpath(path))
    mode = place.stat().st_mode & 0o777 if place.exists() else None
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
