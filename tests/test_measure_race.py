"""Programs in turn, round by round: who falls behind drops out, and the best is in every round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from measure import (
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    NullBuilder,
    ProgramMeasurer,
    ProgramRunner,
)
from measure.race import still_racing, unsettled_best
from measure.records.record import LoggedState, LoggedTask, Seconds

FAILED = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 1.0, 1)


def rounds(*costs: float) -> list[MeasureResult]:
    return [MeasureResult((Seconds(cost),)) for cost in costs]


def test_nobody_is_out_after_one_round_unless_it_failed() -> None:
    assert still_racing([rounds(1), rounds(9), [FAILED]], [0, 1, 2]) == [0, 1]


def test_who_is_slower_in_each_round_is_out_also_where_all_slow_down() -> None:
    programs = [rounds(1.0, 2.0), rounds(1.1, 2.2), rounds(0.9, 2.3), rounds(1.001, 2.001)]
    assert still_racing(programs, [0, 1, 2, 3]) == [0, 2, 3]
    assert still_racing([[FAILED, FAILED]], [0]) == []


def test_the_best_is_who_had_all_rounds() -> None:
    assert unsettled_best([rounds(2, 2, 2), rounds(1, 1)], 3) == 1
    assert unsettled_best([rounds(1, 1, 1), rounds(2, 2)], 3) is None
    assert unsettled_best([[*rounds(1), FAILED]], 3) is None


class _Slowing(ProgramRunner):
    """Programs that slow down each time they are measured."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for inp in inputs:
            name = inp.task.workload_key
            seconds = {"a": 1.0, "b": 1.08, "c": 1.2}[name] + 0.1 * self.calls.count(name)
            self.calls.append(name)
            yield MeasureResult((Seconds(seconds),))


def test_who_looks_best_in_the_end_is_measured_until_it_does_not_or_had_all_rounds() -> None:
    runner = _Slowing()
    measurer = ProgramMeasurer(NullBuilder(), runner)
    inputs = [MeasureInput(LoggedTask(name, "llvm"), LoggedState(())) for name in "abc"]
    results = measurer.measure_again(inputs, 5)
    assert "".join(runner.calls) == "abcabcaaabb"
    assert [len(result.costs) for result in results] == [5, 4, 2]
    assert min(results, key=lambda result: result.mean_cost) is results[0]
