"""Several results of one program: which one counts, and who goes by it."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor.schedule.steps import step_from_json
from measure import (
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    find_best_record,
    load_measurements,
    save_records,
)
from measure.records.distill import distill_record_file
from measure.records.record import LoggedState, LoggedTask, Seconds
from measure.records.settled import first_records, merged, program_of, settled_records, takes_over
from search.cli.show import summarize
from search.history import History, Trial
from search.report.data import read_history

WRONG = MeasureResult.failed(MeasureErrorNo.WRONG_ANSWER, "", 0.1, 7)
TIMEOUT = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 0.1, 7)


def timed(*costs: float, disturbed: int = 0) -> MeasureResult:
    return MeasureResult(tuple(map(Seconds, costs)), all_cost=0.5, timestamp=3, disturbed=disturbed)


def program(factor: int, key: str = '["w", 1]') -> MeasureInput:
    return MeasureInput(LoggedTask(key, "llvm"), LoggedState((("SP", 0, 0, 16, [factor], 1),)))


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (timed(2, 2, 2), timed(1), True),
        (timed(1), timed(2, 2, 2), False),
        (timed(1), timed(2), False),
        (timed(2), timed(2), False),
        (timed(1, 1), TIMEOUT, True),
        (TIMEOUT, timed(1), False),
        (WRONG, timed(1, 1), True),
        (timed(1, 1), WRONG, False),
        (TIMEOUT, WRONG, False),
        (timed(*9 * [2], disturbed=7), timed(1, 1, 1), False),
        (timed(*9 * [2], disturbed=6), timed(1, 1, 1), True),
        (timed(*9 * [2], disturbed=5), timed(1, 1, 1), True),
        (timed(2), timed(1, 1, disturbed=2), True),
        (timed(2, 2, disturbed=2), timed(1, disturbed=1), True),
    ],
)
def test_which_result_takes_over(new: MeasureResult, old: MeasureResult, expected: bool) -> None:
    assert takes_over(new, old) is expected


def test_each_program_stands_once_where_it_was_first() -> None:
    records = [(program(2), timed(1)), (program(4), timed(3)), (program(2), timed(4, 4))]
    found = settled_records(records)
    assert [(program_of(inp), res) for inp, res in found] == [
        (program_of(program(2)), timed(4, 4)),
        (program_of(program(4)), timed(3)),
    ]
    assert settled_records(found) == found


def test_what_nobody_measured_counts_for_nothing() -> None:
    """As lists of programs have it, with a time of 0: it does not stand in for what was measured later."""
    records = [(program(2), timed(0)), (program(4), timed(0)), (program(2), timed(3))]
    assert [res for _, res in settled_records(records)] == [timed(3)]


def test_a_search_learns_from_the_first_record_of_each_program() -> None:
    once = [(program(2), timed(1)), (program(4), TIMEOUT)]
    again = [(program(2), timed(4, 4)), (program(4), timed(1))]
    assert list(first_records([*once, *again])) == once


def test_a_search_learns_from_the_first_record_of_its_own_machine() -> None:
    inp, other = (
        MeasureInput(LoggedTask('["w", 1]', "llvm", (cores, 64, 64)), program(2).state) for cores in (2, 64)
    )
    records = [(other, timed(1)), (inp, timed(3)), (inp, timed(4, 4)), (other, timed(2))]
    assert list(first_records(records)) == records[:2]


@pytest.mark.parametrize("short", [["DB", 1], ["PF", 1]])
def test_a_field_that_records_leave_out_makes_no_other_program(short: list[Any]) -> None:
    """Both spellings are one step, so a wrong answer of one is one of the other."""
    step = step_from_json(short)
    spellings = (short, [step.code, *astuple(step)])  # type: ignore[call-overload]
    assert spellings[0] != spellings[1]
    assert step_from_json(spellings[1]) == step
    inputs = [MeasureInput(LoggedTask('["w", 1]', "llvm"), LoggedState((tuple(one),))) for one in spellings]
    assert program_of(inputs[0]) == program_of(inputs[1])
    records = list(zip(inputs, (timed(1), WRONG), strict=True))
    assert [result for _, result in settled_records(records)] == [WRONG]


LOUD = timed(3, 3, 3, 3, disturbed=2)
RESULTS = [
    timed(1),
    timed(1.5),
    timed(2, 2),
    timed(1.2, 1.2, 1.2),
    timed(1.1, 1.1, 1.1),
    LOUD,
    TIMEOUT,
    WRONG,
]


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from(RESULTS)), min_size=1, max_size=16)
)
@settings(max_examples=200, deadline=None)
def test_whoever_chooses_from_a_log_chooses_the_same(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[int, MeasureResult]]
) -> None:
    log = tmp_path_factory.mktemp("law") / "log.json"
    inputs, results = [program(factor) for factor, _ in records], [result for _, result in records]
    save_records(log, inputs, results)
    history = History()
    for inp, result in zip(inputs, results, strict=True):
        key = program_of(inp)
        if not history.add(Trial(key, None, result)):  # type: ignore[arg-type]
            history.settle(key, result)
    found = find_best_record(log)
    (task,) = read_history(log).tasks
    (summary,) = summarize(str(log))
    chosen = {
        None if found is None else found.result,
        None if history.winner is None else history.winner.result,
        None if task.best is None else task.best.record[1],
        None if summary.best is None else summary.best[1],
    }
    kept = [result for _, result in settled_records(zip(inputs, results, strict=True)) if result.ok]
    assert min((result.mean_cost for result in kept), default=None) == (found and found.result.mean_cost)
    if found is not None:
        distill_record_file(log)
        chosen |= {result for _, result in load_measurements(f"{log}.best.json")}
    assert len(chosen) == 1, chosen
    assert len(task.attempts) == len(history) == len(set(map(program_of, inputs)))


def test_results_are_joined_to_one_that_rests_on_all() -> None:
    costs = Seconds(3), Seconds(4)
    one, other = timed(1, 2), MeasureResult(costs, all_cost=1.0, timestamp=9, disturbed=1, redone=2)
    both = merged([one, other])
    assert both == MeasureResult((Seconds(1), Seconds(2), *costs), all_cost=1.5, timestamp=9)
    assert (both.disturbed, both.redone) == (1, 2)
    assert merged([one, WRONG]).error_no is MeasureErrorNo.WRONG_ANSWER
    with pytest.raises(ValueError, match="no results"):
        merged([])


def test_rounds_that_a_load_disturbed_are_left_out_while_there_are_others() -> None:
    loud = [timed(8, 9, 9, disturbed=2), timed(7, 7, 7, disturbed=3)]
    found = merged([loud[0], timed(1, 1, 4, disturbed=1), loud[1]])
    assert (found.costs, found.disturbed, found.redone) == (timed(1, 1, 4).costs, 1, 6)
    found = merged(loud)
    assert (len(found.costs), found.disturbed, found.redone) == (6, 5, 0)


def test_a_report_shows_the_result_that_counts(tmp_path: Path) -> None:
    log = str(tmp_path / "log.json")
    for inp, res in [(program(2), timed(1.0)), (program(4), timed(2.0)), (program(2), timed(3.0, 3.0))]:
        save_records(log, [inp], [res])
    (task,) = read_history(log).tasks
    assert [attempt.seconds for attempt in task.attempts] == [3.0, 2.0]
    assert task.best is not None
    assert task.best.trial == 2
    save_records(log, [program(4)], [WRONG])
    (task,) = read_history(log).tasks
    assert [attempt.seconds for attempt in task.attempts] == [3.0, None]
    assert [attempt.first.mean_cost for attempt in task.attempts] == [1.0, 2.0]


def test_the_best_of_a_log_is_no_lucky_figure(tmp_path: Path) -> None:
    log = str(tmp_path / "log.json")
    lucky, good, racy = program(2), program(4), program(8)
    for inp, res in [
        (lucky, timed(1.0)),
        (good, timed(2.0)),
        (racy, timed(0.5)),
        (lucky, timed(3.0, 3.0)),
        (good, timed(2.1, 2.1)),
        (racy, WRONG),
    ]:
        save_records(log, [inp], [res])
    found = find_best_record(log)
    assert found is not None
    assert (program_of(found.input), found.result) == (program_of(good), timed(2.1, 2.1))
    assert (found.line, found.trial) == (5, 2)
    best = str(tmp_path / "best.json")
    summary = distill_record_file(log, best)
    assert (summary.records, summary.written) == (6, 1)
    again = find_best_record(best)
    assert again is not None
    assert program_of(again.input) == program_of(good)
