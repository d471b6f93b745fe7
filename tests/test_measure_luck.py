"""What was measured once, beside what was measured again: who wins, and that all who choose agree."""

from __future__ import annotations

from pathlib import Path

import pytest

import ansor
from measure import MeasureErrorNo, MeasureInput, MeasureResult, find_best_record, save_records
from measure.luck import Luck
from measure.record import Seconds
from search import ApplyHistoryBest
from tests.fake_machine import matmul_task

FAILED = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 0.1, 7)


def timed(*costs: float) -> MeasureResult:
    return MeasureResult(tuple(map(Seconds, costs)), all_cost=0.5, timestamp=3)


def test_without_others_a_result_says_what_it_says() -> None:
    one = timed(2)
    assert Luck.of([(one, one), (FAILED, FAILED), (FAILED, timed(4, 4)), (one, FAILED)]).expected(one) == 2


def test_what_was_measured_once_takes_longer_as_far_as_others_did() -> None:
    once = timed(1.5, 1.5, 1.5)
    luck = Luck.of(
        [(timed(1), timed(*6 * [1.8])), (timed(2), timed(*9 * [4])), (timed(1), timed(*6 * [2.2]))]
    )
    assert luck == Luck(2.0, (6, 6))
    assert luck.expected(once) == pytest.approx(3)
    assert luck.expected(timed(*6 * [1.5])) == 1.5, "a distilled record rests on as many as those"
    assert luck.expected(timed(*5 * [1.5])) == pytest.approx(3)


def test_what_was_measured_once_is_never_taken_for_faster_than_it_was() -> None:
    assert Luck.of(3 * [(timed(2), timed(1, 1))]).expected(timed(3)) == 3


def test_of_few_programs_each_may_have_its_own_luck() -> None:
    pair = (timed(1), timed(2, 2))
    assert [Luck.of(n * [pair]).expected(timed(3)) for n in range(5)] == [3, 3, 3, 6, 6]


@pytest.mark.parametrize(("third", "winner"), [(1.2, 4), (0.5, 8)])
def test_a_log_gives_the_winner_of_its_finals(tmp_path: Path, third: float, winner: int) -> None:
    """The first figures are of a faster hour; the third program was not measured again."""
    log, task = tmp_path / "log.json", matmul_task(16)
    start = ansor.State.initial(task.compute_dag)
    programs = {length: MeasureInput(task, start.split(2, 0, [length])) for length in (2, 4, 8, 16)}
    for length, result in (
        (2, timed(1.1)),
        (4, timed(1.0)),
        (8, timed(third)),
        (16, timed(1.15)),
        (2, timed(2.2, 2.2)),
        (4, timed(2.0, 2.0)),
        (16, timed(2.4, 2.4)),
    ):
        save_records(log, [programs[length]], [result])
    found = find_best_record(log)
    assert found is not None
    assert found.input.state.steps[0].lengths == (winner,)  # type: ignore[union-attr]
    assert found.expected == (2.0 if winner == 4 else 1.0)
    hit = ApplyHistoryBest(log).find(task)
    assert hit is not None
    assert hit.state.steps[0].lengths == (winner,)  # type: ignore[attr-defined]
    assert (hit.seconds, hit.expected) == (found.result.mean_cost, found.expected)
