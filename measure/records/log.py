"""The tuning log: one JSON object per line, readable by TVM where it can be. `append` writes it.

A record that uses only TVM's steps is a plain v0.6 line. One with a step of ours is the same
object behind the prefix ``# ansor ``, which other readers skip as a comment and we read.

What has no field there stands behind the version, which TVM reads as any text and does not look at:
``"v": "v0.6+disturbed=2,redone=1"`` says that another load on the machine disturbed two of the repeats, and
that one more was disturbed and done again. A bare version says that there were none, or that nobody counted.
``dag=DIGITS`` names the computation (`record.computation_of`): a function of the same name may be
another one later. ``cpu=NAME`` is the CPU that it ran on, where the target names none. ``direct=KEY``, behind
all others and to the end of the text, says that the program is one of an alternative
(`ansor.task.alternatives`), and which workload its task has: the line itself has the alternative's.

What may stand in a log, and what becomes of it:

- A torn line, whose writer was killed. It is skipped with a note, the last one and any other: another tool
  may have appended to it without care. Whole records that were glued to it, or to each other, are read.
- The steps of a record are malformed, or of a later version. It is left out with a note that names the line,
  the first ones each, the others by their number.
- A record has no run time, as in lists of programs that nobody measured. It is a record all the same, but no
  measurement (`RecordReader.measurements`).
- A line never was a record, or is of a version that is not known. That is no accident of writing:
  `LogFormatError`, with its place.

Source: `measure_record.cc` of TVM 0.16.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ansor.errors import DefinitionError, LogFormatError
from ansor.wording import counted
from measure.records.record import (
    LoggedState,
    LoggedTask,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Seconds,
    computation_of,
    direct_key,
    steps_to_json,
    task_from_json,
    task_to_json,
)
from measure.records.targets import runs_on

LOG_VERSION: Final = "v0.6"
KNOWN_VERSIONS: Final = tuple(f"v0.{minor}" for minor in range(1, 7))
OWN_PREFIX: Final = "# ansor "
_NAMED: Final = 5
"""How many records of one log with steps that are not understood are named one by one."""
_RECORD_START: Final = b'{"i"'
_BEFORE_RECORD: Final = re.compile(rb'(?=# ansor \{"i")|(?<!# ansor )(?=\{"i")')
"""Where a record begins: inside a string its quotes would have backslashes."""
_COUNT: Final = re.compile(r"(?:^|,)(disturbed|redone)=([0-9]{1,9})(?=,|\Z)")
"""A fact behind the version of a record; others are passed over."""
_NAME: Final = re.compile(r"(?:^|,)(dag|cpu)=([^,\s]+)")
_DIRECT: Final = re.compile(r"(?:^|,)direct=(.+)\Z", re.DOTALL)
"""The last of them: a workload key may hold whatever separates facts."""
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
    version = json.dumps(f"{LOG_VERSION}{_facts(inp, res)}")
    line = f'{{"i": {program}, "r": {outcome}, "v": {version}}}'
    return line if all(map(is_reference_step, steps)) else OWN_PREFIX + line


def _facts(inp: MeasureInput, res: MeasureResult) -> str:
    """What stands behind the version."""
    facts = {
        "disturbed": res.disturbed,
        "redone": res.redone,
        "dag": computation_of(inp.task),
        "cpu": runs_on(inp.task).cpu,
        "direct": direct_key(inp.task),
    }
    said = ",".join(f"{name}={value}" for name, value in facts.items() if value)
    return f"+{said}" if said else ""


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
    except (ValueError, RecursionError) as error:
        raise LogFormatError(f"not a JSON object: {error}") from None
    if not isinstance(data, dict) or not {"i", "r"} <= data.keys():
        raise LogFormatError('a record is a JSON object with the keys "i", "r" and "v"')
    version, _, facts = str(data.get("v", LOG_VERSION)).partition("+")
    if version not in KNOWN_VERSIONS:
        raise LogFormatError(
            f"the record's version is {data['v']!r}; versions that are known are {', '.join(KNOWN_VERSIONS)}"
        )
    direct = _DIRECT.search(facts)
    others = facts if direct is None else facts[: direct.start()]
    names = dict(_NAME.findall(others))
    task, state = _program_from_json(data["i"])
    task = replace(
        task,
        direct=None if direct is None else direct[1],
        computation=names.get("dag"),
        cpu=names.get("cpu"),
    )
    return MeasureInput(task, state), _result_from_json(data["r"], others)


def _program_from_json(item: Any) -> tuple[LoggedTask, LoggedState]:
    if not isinstance(item, list) or len(item) != 2:
        raise LogFormatError('"i" is an array of a task and a state')
    task, state = item
    if not isinstance(state, list) or len(state) != 2 or not isinstance(state[1], list):
        raise LogFormatError("a state is an array of stages and steps")
    for step in state[1]:
        if not isinstance(step, list) or not step or not isinstance(step[0], str):
            raise LogFormatError(f"a step is an array that starts with its code, found {step!r}")
    return task_from_json(task), LoggedState(tuple(tuple(step) for step in state[1]))


def _result_from_json(item: Any, facts: str) -> MeasureResult:
    if not isinstance(item, list) or len(item) != 4 or not isinstance(item[0], list):
        raise LogFormatError(f'"r" is an array [[cost, ...], error, all_cost, timestamp], found {item!r}')
    costs, error_no, all_cost, timestamp = item
    numbers = [*costs, error_no, all_cost, timestamp]
    if not all(isinstance(value, (int, float)) and abs(value) <= sys.float_info.max for value in numbers):
        raise LogFormatError(f'"r" holds finite numbers, found {item!r}')
    try:
        kind = MeasureErrorNo(error_no)
    except ValueError:
        kind = MeasureErrorNo.UNKNOWN_ERROR
    counts = {name: int(count) for name, count in _COUNT.findall(facts)}
    return MeasureResult(
        tuple(Seconds(cost) for cost in costs), kind, "", float(all_cost), int(timestamp), **counts
    )


# -- reading -----------------------------------------------------------------------------------------


class RecordReader:
    """Reads the records of a log, from the start each time it is iterated or asked.

    Attributes
    ----------
    notes
        What the last reading passed over although it looked like a record: torn lines, steps that are not
        known, and programs that nobody measured where measurements were asked for.
    line
        Number of the line that the last record came from, from 1.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DefinitionError
        If it is a directory.
    """

    def __init__(self, filename: PathLike) -> None:
        self.filename = os.fspath(filename)
        self.notes: list[str] = []
        self.line = 0
        check_log(self.filename)

    def __iter__(self) -> Iterator[Record]:
        """Yield (input, result) per record.

        Raises
        ------
        LogFormatError
            At a line that is not a record, unless it is a torn one or only its steps are not understood.
        """
        self.notes = []
        left_out = 0
        with open(self.filename, "rb") as file:
            for number, raw in enumerate(file, 1):
                if is_comment(raw):
                    continue
                try:
                    records = [load_record_from_string(raw.decode())]
                except (LogFormatError, UnicodeDecodeError) as error:
                    records = self._whole_records(raw, f"{self.filename}:{number}", error)
                for record in records:
                    try:
                        _ = record[0].state.steps  # Reading them is the check.
                    except LogFormatError as error:
                        left_out += 1
                        if left_out <= _NAMED:
                            self._passed_over(f"{self.filename}:{number}: left out: {error}")
                        continue
                    self.line = number
                    yield record
        if left_out > _NAMED:
            more = left_out - _NAMED
            self._passed_over(f"{self.filename}: left out for such steps: {more} more, {left_out} in all")

    def _whole_records(self, raw: bytes, place: str, error: Exception) -> list[Record]:
        """Read the records of a line that is not one record, which `error` says; note what is torn of it."""
        ended = raw.endswith(b"\n")
        parts = pieces(raw)
        try:
            if ended and not parts[0][1] and not _begins_as_record(raw):
                raise error
            records = [load_record_from_string(piece.decode()) for piece, complete in parts if complete]
        except (LogFormatError, UnicodeDecodeError) as why:
            raise LogFormatError(f"{place}: {why}; remove the line or put # in front of it") from None
        if len(records) < len(parts):
            whole = "the whole record" if len(records) == 1 else f"{len(records)} whole records"
            rest = f", except for {whole} in it" if records else ""
            what = "line" if ended else "last line"
            self._passed_over(f"{place}: skipped a torn {what} of {len(raw)} bytes{rest}")
        return records

    def _passed_over(self, note: str) -> None:
        self.notes.append(note)
        _note.warning("%s", note)

    def measurements(self) -> Iterator[Record]:
        """Yield (input, result) per record of a measurement: those that failed, and those with a run time."""
        without = 0
        for inp, res in self:
            if res.is_measurement:
                yield inp, res
            else:
                without += 1
        if without:
            self._passed_over(f"{self.filename}: {counted(without, 'record')} without a run time: left out")

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


def is_comment(raw: bytes) -> bool:
    """Whether a line is blank or one that readers skip."""
    if not raw.strip():
        return True
    return raw[:1] in (b"#", b" ") and not raw.startswith(OWN_PREFIX.encode())


def _begins_as_record(raw: bytes) -> bool:
    """Whether a line does, though it may end before that is sure."""
    text = raw.removeprefix(OWN_PREFIX.encode()).strip()
    return text.startswith(_RECORD_START) or _RECORD_START.startswith(text)


def pieces(line: bytes) -> list[tuple[bytes, bool]]:
    """Split a line where records begin and end, and tell of each piece whether it is whole JSON.

    It may be so behind our prefix. Whether it can be understood is another question. Blanks are left out.
    """
    found: list[tuple[bytes, bool]] = []
    for part in _BEFORE_RECORD.split(line):
        end = _end_of_json(part)
        found += [(part[:end], True), (part[end:], False)]
    return [(piece.strip(), complete) for piece, complete in found if piece.strip()]


def _end_of_json(part: bytes) -> int:
    """Where the JSON text ends that `part` begins with, in bytes; 0 if that is none."""
    prefix = OWN_PREFIX if part.startswith(OWN_PREFIX.encode()) else ""
    try:
        text = part.decode()
        _, end = json.JSONDecoder().raw_decode(text, len(prefix))
    except (ValueError, RecursionError):
        return 0
    return len(text[:end].encode())


def check_log(filename: PathLike, use: str = "") -> None:
    """
    Refuse what is no log to read.

    Parameters
    ----------
    use
        What it is to serve for, for the message: " to start from".

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DefinitionError
        If it is a directory.
    """
    name = os.fspath(filename)
    if os.path.isdir(name):
        raise DefinitionError(f"{name!r} is a directory; give the path of a log, which is a file")
    if not os.path.exists(name):
        raise FileNotFoundError(
            f"there is no log {name!r}{use}; tune first, with RecordToFile({name!r}) "
            "among the measure_callbacks"
        )


def check_rereadable(filename: PathLike) -> None:
    """Refuse, with a `DefinitionError`, a log that can be read only once."""
    if Path(filename).is_fifo():
        raise DefinitionError(
            f"the log {os.fspath(filename)!r} is a pipe, which can be read only once, and this takes "
            "several readings; write the log to a file and give its path"
        )


def load_records(filename: PathLike) -> Iterator[Record]:
    """Yield the (input, result) pairs of a log."""
    return iter(RecordReader(filename))


def load_measurements(filename: PathLike) -> Iterator[Record]:
    """Yield the (input, result) pairs of a log, without programs that nobody measured."""
    return RecordReader(filename).measurements()
