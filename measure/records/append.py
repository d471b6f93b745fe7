"""Appending to the tuning log: whole lines under a lock, whatever became of the line before.

What may happen, and what becomes of it:

- A writer was killed in mid-line. The next append turns the torn last line into a comment (``# torn ...``)
  and starts on a fresh line; to what lacks the line's end alone it gives that.
- The disk is full. The file is cut back to its previous length and a `LogWriteError` says so.
- Two processes append at once. Each append takes an exclusive lock on the file, where there are locks.
- Two runs tune into one log. Nothing breaks, but they disturb each other's timing and may measure the same
  programs; the second one says so (`RecordToFile.hold`) and goes on.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from ansor.errors import DefinitionError, LogWriteError
from measure.records.log import PathLike, dump_record_to_string, is_comment, pieces
from measure.records.marks import in_use
from measure.records.record import MeasureInput, MeasureResult

TORN_PREFIX: Final = "# torn "
_NO_LOCKS: Final = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""What some network file systems say."""
_note = logging.getLogger(__name__)


class RecordToFile:
    """
    Measure callback that appends every result to a log; makes the file's directory if needed.

    Raises
    ------
    LogWriteError
        If the directory cannot be made.
    """

    def __init__(self, filename: PathLike) -> None:
        self.filename = os.fspath(filename)
        try:
            Path(self.filename).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogWriteError(
                f"cannot make the folder of the log {self.filename!r}: {error.strerror}; name another place"
            ) from error

    def callback(
        self, policy: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        save_records(self.filename, inputs, results)

    def check_writable(self) -> None:
        """Make sure that the log can be appended to, and leave it as it is.

        Raises
        ------
        LogWriteError
            If not.
        """
        place = os.path.realpath(self.filename)
        try:
            try:
                os.close(os.open(place, os.O_RDWR | os.O_CLOEXEC))
            except FileNotFoundError:  # Another process may make it any time: its name is not touched.
                with tempfile.TemporaryFile(dir=os.path.dirname(place)):
                    pass
        except OSError as error:
            raise _open_error(self.filename, error) from error

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Mark the log as written to by a run, as long as the context lasts.

        Gives whether this is the only such run of this machine (`marks`), and warns if it is not.
        """
        with in_use(self.filename) as alone:
            if not alone:
                _note.warning(
                    "another process is tuning into the log %r now; going on, and every record will be kept, "
                    "but the runs disturb each other's timing and may measure the same programs",
                    self.filename,
                )
            yield alone


def save_records(
    filename: PathLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
) -> None:
    """Append measurements to a log.

    Raises
    ------
    DefinitionError
        If there is not one result for each input.
    LogWriteError
        If they could not be written in full; the log then holds none of them.
    """
    if len(inputs) != len(results):
        raise DefinitionError(
            f"save_records was given {len(inputs)} inputs and {len(results)} results; give one for each"
        )
    append_lines(filename, map(dump_record_to_string, inputs, results))


@cache
def _warn_of_no_locks(filename: str) -> None:
    _note.warning(
        "%s: its file system has no locks, so lines of two runs that append at once may tear each other; "
        "give each run a log of its own",
        filename,
    )


def append_lines(filename: PathLike, lines: Iterable[str]) -> None:
    """Append whole lines to a file, under its lock, and wait until they are on the disk.

    Raises
    ------
    LogWriteError
        If that failed; the file is then as it was.
    """
    data = "".join(line + "\n" for line in lines).encode()
    if not data:
        return
    try:
        file = os.open(filename, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _open_error(filename, error) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise _write_error(filename, error) from error
            _warn_of_no_locks(os.fspath(filename))
        end = os.fstat(file).st_size
        is_file = stat.S_ISREG(os.fstat(file).st_mode)  # A device, /dev/null say, has no length and no disk.
        torn = b""
        try:
            torn = _unended_line(file, end)
            _write_at(file, _ended(torn) + data, end - len(torn))
            if is_file:
                os.fsync(file)
        except OSError as error:
            if is_file:
                with suppress(OSError):  # What was refused first is what is told.
                    os.ftruncate(file, end)
                    _write_at(file, torn, end - len(torn))
            raise _write_error(filename, error) from error
    finally:
        os.close(file)


def _open_error(filename: PathLike, error: OSError) -> LogWriteError:
    return LogWriteError(
        f"cannot append to the log {os.fspath(filename)!r}: {error.strerror}; name a file that can be written"
    )


def _write_error(filename: PathLike, error: OSError) -> LogWriteError:
    room = "make room, then " if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""
    return LogWriteError(
        f"cannot append to the log {os.fspath(filename)!r}: {error.strerror}; "
        f"the lines written before are intact: {room}tune again with the same log"
    )


def _write_at(file: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def _unended_line(file: int, end: int) -> bytes:
    """Read the last line of a file of `end` bytes if its writer could not end it, else nothing."""
    if end == 0 or os.pread(file, 1, end - 1) == b"\n":
        return b""
    start, tail = end, b""
    while start > 0 and b"\n" not in tail:
        step = min(start, 1 << 16)
        start -= step
        tail = os.pread(file, step, start) + tail
    return tail.rpartition(b"\n")[2]


def _ended(line: bytes) -> bytes:
    """End a line that its writer could not end; a torn record becomes a comment, its text is kept.

    What is whole on that line, glued to something torn or whole, has a line of its own from now on, be it a
    record that is known here or one of a later version.
    """
    if not line:
        return b""
    if is_comment(line):
        return line + b"\n"
    torn = TORN_PREFIX.encode()
    return b"".join((b"" if complete else torn) + piece + b"\n" for piece, complete in pieces(line))
