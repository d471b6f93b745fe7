"""What a tuning run says: a live line on a terminal, plain lines elsewhere, nothing when asked."""

import io

import pytest
from rich.console import Console

import ansor
from ansor import te
from search.progress import LineProgress, LiveProgress, Progress, Report, make_progress
from search.result import StopReason, TuningResult
from search.text import digits, rate_text, seconds_text, time_text
from search.titles import title_of_key


@pytest.fixture
def task() -> ansor.SearchTask:
    a = te.placeholder((1000,), name="A")
    return ansor.SearchTask(
        compute_dag=[a, te.compute((1000,), lambda i: a[i] * 2.0, name="B")], desc="double"
    )


def play(progress: Progress, task: ansor.SearchTask) -> None:
    """Tell a progress of a short run."""
    progress.start(task, 4, 7)
    for trials in (1, 2, 3, 4):
        progress.trial_done(Report(trials, trials // 2, 1e-6 if trials > 1 else None, 1, 7 + trials))
    progress.round_done(Report(4, 2, 1e-6, 1, 11))
    errors = {ansor.MeasureErrorNo.RUN_TIMEOUT: 2}
    progress.close()
    progress.finish(
        TuningResult(
            task, None, 1e-6, 4, 11, 1, StopReason.TRIALS_DONE, "all 4 trials are done", 75.0, errors
        )
    )


def test_plain_lines_elsewhere(task: ansor.SearchTask) -> None:
    text = io.StringIO()
    console = Console(file=text, width=40)
    progress = make_progress(1, console)
    assert isinstance(progress, LineProgress)
    play(progress, task)
    first, second, last = text.getvalue().splitlines()
    assert first == "tuning double: 4 trials, 7 results from the log"
    assert second.startswith("  round 1: 4/4 trials, best 1.00 GFLOP/s (1.00 us), errors 2, ")
    assert last == (
        "4 trials in 1:15, best 1.00 GFLOP/s (1.00 us), errors: 2 RUN_TIMEOUT; stopped: all 4 trials are done"
    )


def test_a_live_line_on_a_terminal(task: ansor.SearchTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = io.StringIO()
    progress = make_progress(1, Console(file=text, force_terminal=True, width=120))
    assert isinstance(progress, LiveProgress)
    play(progress, task)
    shown = text.getvalue()
    assert "4/4 trials" in shown
    assert "best 1.00 GFLOP/s (1.00 us)" in shown
    assert "errors 2" in shown
    assert "left 0.0 s" in shown
    assert "stopped: all 4 trials are done" in shown


def test_silence_when_asked(task: ansor.SearchTask, capsys: pytest.CaptureFixture[str]) -> None:
    play(make_progress(0), task)
    assert capsys.readouterr() == ("", "")


def test_progress_leaves_the_standard_output_alone(
    task: ansor.SearchTask, capsys: pytest.CaptureFixture[str]
) -> None:
    play(make_progress(1), task)
    out, err = capsys.readouterr()
    assert out == ""
    assert err


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ('["matmul", 512, 512]', "matmul(512, 512)"),
        ('["ansor.softmax", 8]', "softmax(8)"),
        ('["0123456789abcdef0123456789abcdef", [4]]', "graph 01234567([4])"),
        ("not json", "not json"),
        ("7", "7"),
    ],
)
def test_titles_of_keys(key: str, title: str) -> None:
    assert title_of_key(key) == title


def test_numbers_as_people_read_them() -> None:
    assert [digits(x) for x in (0, 0.01234, 1.234, 12.34, 123.4, 12345.6)] == [
        "0",
        "0.0123",
        "1.23",
        "12.3",
        "123",
        "12300",
    ]
    assert [seconds_text(x) for x in (2.0, 0.0421, 3.3e-6, 4e-9)] == [
        "2.00 s",
        "42.1 ms",
        "3.30 us",
        "4.00 ns",
    ]
    assert [time_text(x) for x in (8.44, 42, 65, 7380)] == ["8.4 s", "42 s", "1:05", "2:03:00"]
    assert rate_text(0, 1e-3) == "1.00 ms"
    assert rate_text(2e9, 0.1) == "20.0 GFLOP/s (100 ms)"
