"""Which result of a program counts when a log holds several: the one that rests on most quiet repeats.

A search times each program just long enough to go on. At its end the best few are measured again, in turn,
and a record of all that is appended. The best of many noisy figures is a lucky one, as a rule; the second
record of the same program has no part in that luck, and takes over whatever the first one said, unless
another load disturbed it and not the first. So does the finding that an answer is wrong now and then.

What a search learns from, and what it proposes when it is resumed, follows from the first records alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from measure.records.log import Record
from measure.records.record import (
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    computation_of,
    mostly_disturbed,
    steps_to_json,
)
from measure.records.targets import RunsOn, runs_on, target_group, target_text
from measure.records.unsaid import plain_key, with_unsaid

_LEFT_OUT: Final = {"DB": 2, "PF": 0}
"""What the second field of steps is where records leave it out."""


def _spelled_out(step: list[Any]) -> list[Any]:
    """A step of a record, with all fields, but for the length of the loop that it splits."""
    match step:
        case ["SP", stage, iterator, _, *rest]:
            return ["SP", stage, iterator, None, *rest]
        case [str() as code, stage] if code in _LEFT_OUT:
            return [code, stage, _LEFT_OUT[code]]
        case _:
            return step


def program_of(inp: MeasureInput) -> str:
    """Name the program of a record: the computation, the target, the layout option and the steps.

    What a machine or a version writes down besides, numbers of its hardware or the lengths of loops that are
    split, does not make another program of it: it is right or wrong, a start for a search and one to apply,
    wherever it was measured. Whether its time counts is another question (`trial_of`). Nor does a field that
    a record may leave out.
    """
    task = inp.task
    steps = [_spelled_out(step) for step in steps_to_json(inp.state)]
    target = target_group(target_text(task))
    computation = plain_key(task.workload_key), computation_of(task)
    return json.dumps([*computation, target, int(task.layout_rewrite_option or 0), steps])


TrialName = tuple[str, RunsOn]


def trial_of(inp: MeasureInput) -> TrialName:
    """Name what a record is a result of: the program, and what it ran on where its target is silent.

    A result of another number of cores, or another CPU, is of the same program, but says nothing about its
    time on this one, and so does not take over.
    """
    return program_of(inp), runs_on(inp.task)


def takes_over(new: MeasureResult, old: MeasureResult) -> bool:
    """Whether a later result of the same program on the same machine counts instead of an earlier one.

    It does if it rests on more repeats that no other load disturbed, or on as many of them and more others,
    or is a wrong answer. Of two that rest on as many neither knows better, and the faster may be the
    luckier: the earlier stays. Other failures are accidents of one run.
    """
    if MeasureErrorNo.WRONG_ANSWER in (new.error_no, old.error_no):
        return new.error_no is MeasureErrorNo.WRONG_ANSWER
    if not (new.ok and old.ok):
        return new.ok
    return _repeats(new) > _repeats(old)


def _repeats(result: MeasureResult) -> tuple[int, int]:
    """Count those that nothing disturbed, and all."""
    return len(result.costs) - result.disturbed, len(result.costs)


@dataclass(frozen=True, slots=True)
class SettledTrial:
    """
    A program of a log, on one machine, and the result that counts.

    Attributes
    ----------
    input, result
        The program, and what counts.
    position
        Of the record with that result among those that were given, from 0.
    """

    input: MeasureInput
    result: MeasureResult
    position: int


def settled_trials(records: Iterable[Record]) -> list[SettledTrial]:
    """
    Give each program of a log once, where it stands first, with the result that counts.

    A log holds a second record of a program that was measured again; the one that takes over counts
    (`takes_over`), and a wrong answer before all others, of other machines included (`trial_of`).
    How many there are is the number of trials. Programs that nobody measured are left out.
    """
    found: dict[TrialName, SettledTrial] = {}
    wrong: dict[str, SettledTrial] = {}
    read = list(records)
    for position, ((inp, result), (told, _)) in enumerate(zip(read, with_unsaid(read), strict=True)):
        if not result.is_measurement:
            continue
        trial, one = trial_of(told), SettledTrial(inp, result, position)
        if result.error_no is MeasureErrorNo.WRONG_ANSWER:
            wrong[trial[0]] = one
        if trial not in found or takes_over(result, found[trial].result):
            found[trial] = one
    return [
        replace(one, result=wrong[program].result, position=wrong[program].position)
        if program in wrong
        else one
        for (program, _), one in found.items()
    ]


def settled_records(records: Iterable[Record]) -> list[Record]:
    """Give each program of a log once, with the result that counts (`settled_trials`)."""
    return [(one.input, one.result) for one in settled_trials(records)]


def first_records(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the first record of each program of a log on each machine: all that a search learned from."""
    seen: set[TrialName] = set()
    read = list(records)
    for (inp, result), (told, _) in zip(read, with_unsaid(read), strict=True):
        trial = trial_of(told)
        if trial not in seen:
            seen.add(trial)
            yield inp, result


def merged(results: Iterable[MeasureResult]) -> MeasureResult:
    """Join results of one program to one that rests on their repeats; the first failure if one failed.

    Those of which another load disturbed most repeats are left out while there are others: they count as
    done again.

    Raises
    ------
    ValueError
        If there are none.
    """
    parts = list(results)
    if not parts:
        raise ValueError("there are no results to join")
    spent = sum(part.all_cost for part in parts)
    for part in parts:
        if not part.ok:
            return MeasureResult.failed(part.error_no, part.error_msg, spent, part.timestamp)
    quiet = [part for part in parts if not mostly_disturbed(part.disturbed, len(part.costs))] or parts
    costs = tuple(cost for part in quiet for cost in part.costs)
    left_out = sum(len(part.costs) for part in parts) - len(costs)
    return MeasureResult(
        costs,
        all_cost=spent,
        timestamp=parts[-1].timestamp,
        disturbed=sum(part.disturbed for part in quiet),
        redone=sum(part.redone for part in parts) + left_out,
    )
