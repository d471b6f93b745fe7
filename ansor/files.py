"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
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
    replaced.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        with open(place, "wb") as direct:
            yield direct
        return
    mode = place.stat().st_mode & 0o777 if place.exists() else 0o644
    descriptor, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
