"""How noisy figures are: the log keeps it, and whoever shows a figure says it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.errors import DefinitionError
from ansor.medians import median_spread, repeats_text
from ansor.runtime.timing import TimeResult
from ansor.schedule.state import State
from measure import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult, load_records, save_records
from measure.records.distill import distill_record_file
from measure.records.log import dump_record_to_string, load_record_from_string
from measure.records.record import LoggedState, LoggedTask, Seconds
from search import SearchTask
from search.cli.main import run
from search.report.data import Noise, read_history
from search.report.page import report_page
from search.result import StopReason, TuningResult
from search.scheduler.result import SchedulerResult
from search.text import certainty_json, certainty_text
from tests.fake_machine import HOST

MATMUL = ["matmul", "8", "8", "8"]


def timed(*milliseconds: float, disturbed: int = 0, redone: int = 0) -> MeasureResult:
    costs = tuple(Seconds(1e-3 * cost) for cost in milliseconds)
    return MeasureResult(costs, all_cost=0.5, timestamp=7, disturbed=disturbed, redone=redone)


def recorded() -> MeasureInput:
    return MeasureInput(LoggedTask('["w", 1]', "llvm"), LoggedState((("SP", 0, 0, 16, [4], 1),)))


# -- what is known -------------------------------------------------------------------------------------


def test_the_spread_is_half_the_interval_beside_the_median() -> None:
    assert median_spread([1.0]) is None
    assert median_spread([0.0, 0.0]) is None
    assert median_spread([0.9, 1.0, 1.3]) == pytest.approx(0.2)
    assert timed(0.9, 1.0, 1.3).spread == pytest.approx(0.2)
    assert TimeResult((0.9, 1.0, 1.3)).spread == pytest.approx(0.2)
    assert TimeResult((2.0,)).spread is None


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((1,), "1 repeat"),
        ((3, 0, 0), "3 repeats"),
        ((3, 2), "3 repeats, 2 disturbed because of another load"),
        ((3, 0, 1), "3 repeats, 1 redone because of another load"),
        ((15, 2, 4), "15 repeats, 2 disturbed and 4 redone because of another load"),
    ],
)
def test_what_a_figure_rests_on_in_words(counts: tuple[int, ...], text: str) -> None:
    assert repeats_text(*counts) == text


def test_a_figure_is_followed_by_how_sure_it_is() -> None:
    assert certainty_text(timed(1.0)) == ", 1 repeat"
    assert certainty_text(timed(1.0, 1.2, 1.1)) == ", median within 1.00 ms .. 1.20 ms of 3 repeats"
    noisy = timed(1.0, 1.2, disturbed=1)
    assert certainty_text(noisy).endswith(" of 2 repeats, 1 disturbed because of another load")
    assert str(TimeResult((1.0, 1.2), 1)).endswith("(2 repeats, 1 disturbed because of another load)")
    assert str(TimeResult((1e-3,))) == "mean 1 ms (1 repeat: more of them tell how sure that is)"
    assert certainty_json(noisy) == {
        "interval_seconds": [0.001, 0.0012],
        "repeats": 2,
        "disturbed": 1,
        "redone": 0,
    }
    assert certainty_json(timed(1.0))["interval_seconds"] is None
    assert set(certainty_json(None)) == set(certainty_json(noisy))


# -- the log -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("disturbed", "redone", "version"),
    [
        (0, 0, "v0.6"),
        (2, 0, "v0.6+disturbed=2"),
        (0, 1, "v0.6+redone=1"),
        (2, 14, "v0.6+disturbed=2,redone=14"),
    ],
)
def test_what_a_load_disturbed_stands_where_tvm_does_not_look(
    disturbed: int, redone: int, version: str, tmp_path: Path
) -> None:
    """TVM refuses keys and items that it does not know, and reads any text as the version."""
    plain = dump_record_to_string(recorded(), timed(1.0, 2.0))
    result = timed(1.0, 2.0, disturbed=disturbed, redone=redone)
    assert dump_record_to_string(recorded(), result) == plain.replace('"v0.6"', f'"{version}"')
    own = replace(recorded(), state=LoggedState((("SCOPE", 1, "local"),)))
    log, best = tmp_path / "log.json", tmp_path / "best.json"
    save_records(log, [recorded(), own], [result, result])
    distill_record_file(log, best)
    for name in (log, best):
        assert {(found.disturbed, found.redone) for _, found in load_records(name)} == {(disturbed, redone)}


@pytest.mark.parametrize(
    ("version", "disturbed"),
    [
        ("v0.6+disturbed=many", 0),
        ("v0.6+disturbed=-1", 0),
        ("v0.6+mood=good,disturbed=3", 3),
        ("v0.6+undisturbed=3", 0),
        ("v0.6+disturbed=3.5", 0),
        ("v0.6+disturbed=12345678901", 0),
        ("v0.6+disturbed=3,redone=1,mood=good", 3),
        ("v0.6+", 0),
        ("v0.2", 0),
    ],
)
def test_facts_that_are_not_understood_are_passed_over(version: str, disturbed: int) -> None:
    record = json.loads(dump_record_to_string(recorded(), timed(1.0)))
    record["v"] = version
    _, found = load_record_from_string(json.dumps(record))
    assert (found, found.disturbed) == (timed(1.0), disturbed)


@pytest.mark.parametrize("count", [-1, 0.5, None, "2"])
def test_a_count_that_no_log_could_hold_is_refused(count: Any) -> None:
    for name in ("disturbed", "redone"):
        with pytest.raises(DefinitionError, match=rf"{name}\) must be an integer of at least 0"):
            MeasureResult((Seconds(1.0),), **{name: count})


def test_counts_of_numpy_are_shown_as_others() -> None:
    counts = np.array([2, 1])
    noisy = MeasureResult((Seconds(1.0),), disturbed=counts[0], redone=counts[1])
    assert json.loads(json.dumps(certainty_json(noisy)))["disturbed"] == 2


# -- who shows figures ---------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three programs of a task: the best one disturbed, one timed once, one failed."""
    path = tmp_path / "noisy.json"
    task = SearchTask(func="ansor.matmul", args=[8, 8, 8], target=HOST)
    states = [State.initial(task.compute_dag).split(2, 0, [length]) for length in (2, 4, 8)]
    results = [
        timed(2.0),
        timed(0.9, 1.0, 1.1, disturbed=2, redone=1),
        MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 0.1, 7),
    ]
    save_records(path, [MeasureInput(task, state) for state in states], results)
    return path


def test_the_page_says_how_noisy_the_figures_are(log: Path) -> None:
    (task,) = read_history(log).tasks
    assert task.noise == Noise(programs=2, repeats=4, disturbed=2, redone=1, spread=pytest.approx(0.1))
    page = report_page(read_history(log))
    rests_on = "3 repeats, 2 disturbed and 1 redone because of another load"
    assert f"best, trial 2, median within 900 us .. 1.10 ms of {rests_on}</span>" in page
    assert "2 valid programs of 4 repeats, 2 disturbed and 1 redone because of another load; half" in page
    assert "to ± 10.0 % or better" in page
    assert f"<td>900 us .. 1.10 ms</td><td>{rests_on}</td>" in page
    assert "<td>-</td><td>1 repeat</td>" in page
    other = SearchTask(func="ansor.matmul", args=[16, 16, 16], target=HOST)
    failure = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 0.1, 7)
    save_records(log, [MeasureInput(other, State.initial(other.compute_dag))], [failure])
    page = report_page(read_history(log))
    assert "<th>Median within</th><th>Of</th><th>GFLOP/s</th>" in page
    assert page.count("valid programs of") == 1


@pytest.mark.parametrize("command", ["best", "best of a task", "explain"])
def test_commands_say_how_noisy_the_figures_are(
    command: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_task = [] if command == "best" else [*MATMUL, "--target", HOST]
    words = [command.split()[0], str(log), *of_task]
    assert run(words) == 0
    rests_on = "3 repeats, 2 disturbed and 1 redone because of another load"
    said = f"(1.00 ms), median within 900 us .. 1.10 ms of {rests_on}"
    assert said in capsys.readouterr().out.splitlines()[0]
    assert run([*words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    found = shown if of_task else shown[0]
    assert (found["repeats"], found["disturbed"], found["redone"]) == (3, 2, 1)
    assert found["interval_seconds"] == [0.0009, 0.0011]


def test_the_list_of_tasks_sums_up_all_their_repeats(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["best", str(log)]) == 0
    line = capsys.readouterr().out
    assert "3 trials, 1 failed, of all repeats 2 disturbed and 1 redone because of another load  [" in line
    assert run(["best", str(log), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["disturbed_of_all"], row["redone_of_all"]) == (2, 1)


def test_a_result_says_how_noisy_it_is() -> None:
    task = ansor.SearchTask(func="ansor.matmul", args=[8, 8, 8], target=HOST)
    noisy = timed(0.9, 1.0, 1.1, redone=2)
    result = TuningResult(
        task,
        None,
        noisy.mean_cost,
        4,
        4,
        1,
        StopReason.TRIALS_DONE,
        "done",
        5.0,
        best_result=noisy,
        disturbed=7,
        redone=9,
    )
    said = "(1.00 ms), median within 900 us .. 1.10 ms of 3 repeats, 2 redone because of another load"
    assert f"{said}, errors: none; repeats: 7 disturbed and 9 redone because of another load;" in str(result)
    both = SchedulerResult((result,), None, 4, StopReason.TRIALS_DONE, "done", 5.0)
    assert f"{said}, 4 trials" in str(both)


class UnderLoad(ansor.ProgramRunner):
    """A runner beside another load, which disturbs some of the three repeats of each program."""

    def __init__(self, disturbed: int) -> None:
        self.disturbed = disturbed

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for _ in inputs:
            yield timed(2.0, 2.0, 2.0, disturbed=self.disturbed, redone=1)


@pytest.mark.parametrize(("disturbed", "words"), [(1, ""), (2, "6 of 9 repeats"), (3, "9 of 9 repeats")])
def test_a_run_on_a_busy_machine_says_not_to_trust_its_times(disturbed: int, words: str) -> None:
    """The winner was chosen among disturbed times."""
    task = ansor.SearchTask(func="ansor.matmul", args=[8, 8, 8], target=HOST)
    result = task.tune(
        ansor.TuningOptions(num_measure_trials=3, runner=UnderLoad(disturbed), verbose=0),
        ansor.SketchPolicy(task, seed=0),
    )
    both = SchedulerResult((result,), None, 3, StopReason.TRIALS_DONE, "done", 5.0)
    for said in (str(result), str(both)):
        assert ("something else kept the machine busy" in said) == bool(words)
        assert words in said
        assert said.endswith("are to be trusted") == bool(words)
