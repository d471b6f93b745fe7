"""The tuning log: one JSON object per line, appended under a lock, readable by TVM where it can be.

A record that uses only the reference's steps is a plain v0.6 line. One with a step of ours is the same
object behind the prefix ``# ansor ``, which other readers skip as a comment and we read.

What may happen to a log, and what becomes of it:

- The writer is killed in mid-line. The torn last line is skipped by readers with a note, and the next append
  turns it into a comment (``# torn ...``) and starts on a fresh line.
- The disk is full. The file is cut back to its previous length and a `LogWriteError` says so.
- Two processes append at once. Each append takes an exclusive lock on the file.
- A line in the middle makes no sense. That is not an accident of writing: `LogFormatError`, with its place.

Source: reference section 5.4.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ansor.errors import LogFormatError, LogWriteError
from measure.record import (
    LoggedState,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Seconds,
    steps_to_json,
    task_from_json,
    task_to_json,
)

LOG_VERSION: Final = "v0.6"
OWN_PREFIX: Final = "# ansor "
TORN_PREFIX: Final = "# torn "
REFERENCE_STEPS: Final = frozenset(
    ("AN", "FU", "PR", "RE", "SP", "FSP", "FFSP", "SA", "CA", "CI", "CR", "CHR", "CHW", "RF")
)
_LAST_REFERENCE_ANNOTATION: Final = 11
_note = logging.getLogger(__name__)

Record = tuple[MeasureInput, MeasureResult]
PathLike = str | os.PathLike[str]


# -- one line ----------------------------------------------------------------------------------------


def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """Return the log line of a measurement, without the line's end."""
    steps = steps_to_json(inp.state)
    program = json.dumps([task_to_json(inp.task), [[], steps]])
    costs = ", ".join(_number(cost) for cost in res.costs)
    outcome = f"[[{costs}], {int(res.error_no)}, {_number(res.all_cost)}, {res.timestamp}]"
    line = f'{{"i": {program}, "r": {outcome}, "v": "{LOG_VERSION}"}}'
    return line if all(map(is_reference_step, steps)) else OWN_PREFIX + line


def _number(value: float) -> str:
    return f"{value:.6g}"


def is_reference_step(step: Sequence[Any]) -> bool:
    """Whether TVM 0.16 understands this step array."""
    if step[0] == "PR":
        text = str(step[3])
        return text.startswith("auto_unroll_max_step$") or text == "debug_skip_region"
    if step[0] == "AN":
        return bool(step[3] <= _LAST_REFERENCE_ANNOTATION)
    return step[0] in REFERENCE_STEPS


def load_record_from_string(line: str) -> Record:
    """Read one log line, with or without our prefix.

    Raises
    ------
    LogFormatError
        If it is not a record.
    """
    try:
        data = json.loads(line.removeprefix(OWN_PREFIX))
    except ValueError as error:
        raise LogFormatError(f"not a JSON object: {error}") from None
    if not isinstance(data, dict) or not {"i", "r"} <= data.keys():
        raise LogFormatError('a record is a JSON object with the keys "i", "r" and "v"')
    return _input_from_json(data["i"]), _result_from_json(data["r"])


def _input_from_json(item: Any) -> MeasureInput:
    if not isinstance(item, list) or len(item) != 2:
        raise LogFormatError('"i" is an array of a task and a state')
    task, state = item
    if not isinstance(state, list) or len(state) != 2 or not isinstance(state[1], list):
        raise LogFormatError("a state is an array of stages and steps")
    for step in state[1]:
        if not isinstance(step, list) or not step or not isinstance(step[0], str):
            raise LogFormatError(f"a step is an array that starts with its code, found {step!r}")
    return MeasureInput(task_from_json(task), LoggedState(tuple(tuple(step) for step in state[1])))


def _result_from_json(item: Any) -> MeasureResult:
    if not isinstance(item, list) or len(item) != 4 or not isinstance(item[0], list):
        raise LogFormatError(f'"r" is an array [[cost, ...], error, all_cost, timestamp], found {item!r}')
    costs, error_no, all_cost, timestamp = item
    numbers = [*costs, error_no, all_cost, timestamp]
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers):
        raise LogFormatError(f'"r" holds finite numbers, found {item!r}')
    try:
        kind = MeasureErrorNo(error_no)
    except ValueError:
        kind = MeasureErrorNo.UNKNOWN_ERROR
    return MeasureResult(tuple(Seconds(cost) for cost in costs), kind, "", float(all_cost), int(timestamp))


# -- reading -----------------------------------------------------------------------------------------


class RecordReader:
    """Reads the records of a log, from the start each time it is iterated or asked.

    Attributes
    ----------
    notes
        What the last reading passed over although it looked like a record: a torn last line.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    """

    def __init__(self, filename: PathLike) -> None:
        self.filename = os.fspath(filename)
        self.notes: list[str] = []
        if not os.path.exists(self.filename):
            raise FileNotFoundError(
                f"there is no log {self.filename!r}; tune first, with RecordToFile({self.filename!r}) "
                "among the measure_callbacks"
            )

    def __iter__(self) -> Iterator[Record]:
        """Yield (input, result) per record.

        Raises
        ------
        LogFormatError
            At a line that is not a record, unless it is the torn last one.
        """
        self.notes = []
        with open(self.filename, "rb") as file:
            for number, raw in enumerate(file, 1):
                if _is_comment(raw):
                    continue
                try:
                    record = load_record_from_string(raw.decode())
                except (LogFormatError, UnicodeDecodeError) as error:
                    place = f"{self.filename}:{number}"
                    if not raw.endswith(b"\n"):
                        self.notes.append(f"{place}: skipped a torn last line of {len(raw)} bytes")
                        _note.warning("%s", self.notes[-1])
                        return
                    raise LogFormatError(
                        f"{place}: {error}; remove the line or put # in front of it"
                    ) from None
                yield record

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Return at most `max_lines` records after the first `skip_lines`, as inputs and results."""
        inputs: list[MeasureInput] = []
        results: list[MeasureResult] = []
        for position, (inp, res) in enumerate(self):
            if max_lines is not None and len(inputs) >= max_lines:
                break
            if position >= skip_lines:
                inputs.append(inp)
                results.append(res)
        return inputs, results


def _is_comment(raw: bytes) -> bool:
    """Whether a line is blank or one that readers skip."""
    if not raw.strip():
        return True
    return raw[:1] in (b"#", b" ") and not raw.startswith(OWN_PREFIX.encode())


def load_records(filename: PathLike) -> Iterator[Record]:
    """Yield the (input, result) pairs of a log."""
    return iter(RecordReader(filename))


# -- writing -----------------------------------------------------------------------------------------


class RecordToFile:
    """Measure callback that appends every result to a log; makes the file's directory if needed."""

    def __init__(self, filename: PathLike) -> None:
        self.filename = os.fspath(filename)
        Path(self.filename).parent.mkdir(parents=True, exist_ok=True)

    def callback(
        self, policy: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        save_records(self.filename, inputs, results)


def save_records(
    filename: PathLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
) -> None:
    """Append measurements to a log.

    Raises
    ------
    LogWriteError
        If they could not be written in full; the log then holds none of them.
    """
    append_lines(filename, map(dump_record_to_string, inputs, results))


def append_lines(filename: PathLike, lines: Iterable[str]) -> None:
    """Append whole lines to a file, under its lock, and wait until they are on the disk.

    Raises
    ------
    LogWriteError
        If that failed; the file then has the lines it had before.
    """
    data = "".join(line + "\n" for line in lines).encode()
    if not data:
        return
    try:
        file = os.open(filename, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _write_error(filename, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = os.fstat(file).st_size
        try:
            start = _close_torn_line(file, end)
            _write_at(file, data, start)
            os.fsync(file)
        except OSError as error:
            os.ftruncate(file, end)
            raise _write_error(filename, error) from error
    finally:
        os.close(file)


def _write_error(filename: PathLike, error: OSError) -> LogWriteError:
    return LogWriteError(
        f"cannot append to the log {os.fspath(filename)!r}: {error.strerror}; "
        "the lines written before are intact: make room, then tune again with the same log"
    )


def _write_at(file: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def _close_torn_line(file: int, end: int) -> int:
    """End the last line of a file if its writer could not, and return where the next one starts.

    A torn record becomes a comment; its text is kept.
    """
    if end == 0 or os.pread(file, 1, end - 1) == b"\n":
        return end
    start, tail = end, b""
    while start > 0 and b"\n" not in tail:
        step = min(start, 1 << 16)
        start -= step
        tail = os.pread(file, step, start) + tail
    fragment = tail.rpartition(b"\n")[2]
    start = end - len(fragment)
    if not _is_comment(fragment):
        try:
            load_record_from_string(fragment.decode())
        except (LogFormatError, UnicodeDecodeError):
            fragment = TORN_PREFIX.encode() + fragment
    _write_at(file, fragment + b"\n", start)
    return start + len(fragment) + 1
