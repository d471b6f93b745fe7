"""Distilling logs: the best record of each workload and target, and nothing else.

A tuning log keeps everything, failures included, because resuming and learning need it. To ship a result one
wants the winners only. Distilling reads any number of logs and an output that is already there, keeps the
fastest successful record (the earlier one of two equals) per workload, target and layout option, and per
number of cores where the target names none, and replaces the output in one move, so that a reader never sees
half of it. Alternatives of a task keep a record each, as the next build may be free to use some of them only.

For TVM only programs made of TVM's steps will do. The best of those are then exported, which need
not be the best that is known; the summary says how often that is so.

Source: `distill_record_file` of TVM 0.16.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ansor.errors import DefinitionError, LogWriteError
from ansor.files import whole_file
from measure.records.groups import OptionsByKey, RecordGroup, TaskGroups, record_group
from measure.records.log import PathLike, Record, dump_record_to_string, is_reference_step, load_measurements
from measure.records.record import LoggedTask, MeasureInput, direct_key, steps_to_json
from measure.records.settled import settled_trials

DISTILLED_SUFFIX: Final = ".best.json"


@dataclass(frozen=True, slots=True)
class DistillSummary:
    """What distilling did.

    Attributes
    ----------
    records
        Records read, those of an existing output included.
    written
        Records in the output: one per workload and target, and per layout option where options matter.
    tasks
        Tasks that these are of: a task and its alternatives are workloads of their own.
    left_out
        Successful records that could not be exported, for a step that TVM does not know.
    slower
        Pairs of workload and target whose exported record is not the best that is known, because that one
        was left out.
    lost
        Pairs of workload and target of which every successful record was left out.
    without_success
        Pairs of workload and target that have no successful record.
    """

    records: int
    written: int
    tasks: int
    left_out: int = 0
    slower: int = 0
    lost: int = 0
    without_success: int = 0


def distill_record_file(
    in_file: PathLike | Sequence[PathLike], out_file: PathLike | None = None, tvm_only: bool = False
) -> DistillSummary:
    """
    Write the best record of each workload and target of some logs to `out_file`.

    An output that exists takes part, so that distilling log after log into one file collects the best of all;
    what is no regular file, such as a pipe, is only written.
    Two targets are the same if times for the one count for the other (`targets`), so those that were
    measured with other numbers of cores are not.
    Costs under different layout options are of different programs: each option has its own best.

    Parameters
    ----------
    in_file
        A log, or several.
    out_file
        Default: the first log's name with ``.best.json`` appended.
    tvm_only
        Keep only records that TVM reads; the output then has no line in our own form.

    Raises
    ------
    DefinitionError
        If the output is one of the logs, or another log that was not distilled, whose other records would be
        lost; or if no record would be written. An output is then not made.
    FileNotFoundError
        If a log does not exist.
    LogFormatError
        If a line cannot be understood.
    LogWriteError
        If the output cannot be written; it is then as it was.
    """
    logs = [in_file] if isinstance(in_file, (str, os.PathLike)) else list(in_file)
    if not logs:
        raise DefinitionError("distilling needs at least one log to read")
    out = Path(out_file) if out_file is not None else Path(f"{os.fspath(logs[0])}{DISTILLED_SUFFIX}")
    for log in logs:
        if out.exists() and Path(log).exists() and out.samefile(log):
            raise DefinitionError(
                f"distilling {os.fspath(log)!r} into itself would lose all its other records; "
                "name another output"
            )
    earlier = list(load_measurements(out)) if out.is_file() else []
    _check_distilled(out, earlier)
    summary, best = _choose(_all_records(earlier, logs), tvm_only)
    if not summary.records:
        raise DefinitionError(f"{', '.join(repr(os.fspath(log)) for log in logs)}: there are no records")
    if not summary.written:
        why = "holds a step that TVM does not know" if summary.left_out else "failed"
        raise DefinitionError(
            f"{', '.join(repr(os.fspath(log)) for log in logs)}: nothing to write, for every "
            f"{'successful record' if summary.left_out else f'one of {summary.records} measurements'} {why}"
        )
    _replace(out, (dump_record_to_string(*record) for record in best))
    return summary


def _check_distilled(out: Path, records: Sequence[Record]) -> None:
    """Refuse an output that holds more than the best of each workload and target."""
    options: OptionsByKey = {}
    distilled = {(inp.task.layout_rewrite_option, record_group(inp, options)) for inp, _ in records}
    if len(records) > len(distilled):
        raise DefinitionError(
            f"the output {os.fspath(out)!r} is no distilled log: it holds {len(records)} measurements, and "
            "all but the best of each workload and target would be lost; name another output"
        )


def _all_records(first: Sequence[Record], logs: Sequence[PathLike]) -> Iterator[Record]:
    yield from first
    for log in logs:
        yield from load_measurements(log)


def _choose(records: Iterable[Record], tvm_only: bool) -> tuple[DistillSummary, list[Record]]:
    """Best records in order of their workloads' first appearance."""
    seen: dict[RecordGroup, None] = {}
    best: dict[RecordGroup, Record] = {}
    known: dict[RecordGroup, float] = {}
    tasks: dict[RecordGroup, RecordGroup] = {}
    options: OptionsByKey = {}
    left_out = 0
    read = list(records)
    groups = TaskGroups(read)
    for trial in settled_trials(read):
        told, res = groups.records[trial.position][0], trial.result
        key, inp = record_group(told, options), _assigned(trial.input, told)
        seen[key] = None
        tasks[key] = groups.of(told)
        if not res.ok:
            continue
        known[key] = min(res.mean_cost, known.get(key, res.mean_cost))
        if tvm_only and not all(map(is_reference_step, steps_to_json(inp.state))):
            left_out += 1
        elif key not in best or res.mean_cost < best[key][1].mean_cost:
            best[key] = inp, res
    summary = DistillSummary(
        records=len(groups.records),
        written=len(best),
        tasks=len({tasks[key] for key in best}),
        left_out=left_out,
        slower=sum(record[1].mean_cost > known[key] for key, record in best.items()),
        lost=len(known.keys() - best.keys()),
        without_success=len(seen.keys() - known.keys()),
    )
    return summary, [best[key] for key in seen if key in best]


def _assigned(inp: MeasureInput, told: MeasureInput) -> MeasureInput:
    """A record as it was, but for the task that others of its workload say it is an alternative of."""
    if not isinstance(inp.task, LoggedTask):
        return inp
    return replace(inp, task=replace(inp.task, direct=direct_key(told.task)))


def _replace(path: Path, lines: Iterable[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.writelines(f"{line}\n".encode() for line in lines)
    except OSError as error:
        raise LogWriteError(
            f"cannot write {os.fspath(path)!r}: {error.strerror}; it is as it was before"
        ) from error
