"""The report: a page that parses, needs nothing else, holds the log's figures and escapes its text."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zlib import crc32

import numpy as np
import pytest

import ansor
from ansor.schedule.state import State
from measure import MeasureErrorNo, MeasureInput, MeasureResult, save_records
from measure.records.record import LoggedState
from search import SearchTask, TaskScheduler
from search.cli.main import run
from search.report.belief import believed
from search.report.charts import Curve, Mark, Scale, bars, nice_step, thinned
from search.report.data import read_history
from search.report.page import report_page
from tests.fake_machine import HOST, FakeMachine, matmul_task, options

VOID = {"meta", "br", "path", "rect", "circle"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects text by the tag that holds it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID or tag in ("rect", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID and (not self.open or self.open[-1] != tag):
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)

    @property
    def words(self) -> str:
        return " ".join(text for texts in self.text.values() for text in texts)


def page_of(log: Path, **given: Any) -> tuple[str, Page]:
    text = report_page(read_history(log), **given)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)
    return text, Page(text)


def save(
    log: Path, task: ansor.Task, state: Any, seconds: float | None, when: int, cost: float = 2.0
) -> None:
    result = (
        MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", cost, when)
        if seconds is None
        else MeasureResult((seconds,), all_cost=cost, timestamp=when)  # type: ignore[arg-type]
    )
    save_records(log, [MeasureInput(task, state)], [result])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Twelve trials each of two tasks, some of which fail."""
    path = tmp_path / "two.json"
    tasks = [SearchTask(func="ansor.matmul", args=[n, n, n], target=HOST) for n in (16, 24)]
    machine = FakeMachine(fails=lambda inp: crc32(str(inp.state).encode()) % 5 == 0)
    TaskScheduler(tasks, callbacks=[], strategy="round-robin").tune(
        options(24, path, machine=machine), "sketch.random"
    )
    return path


def test_the_page_is_whole_and_stands_alone(log: Path) -> None:
    text, page = page_of(log)
    assert text.startswith("<!DOCTYPE html>")
    assert {"html", "head", "style", "main", "svg", "table", "pre", "section"} <= {
        tag for tag, _ in page.tags
    }
    assert "prefers-color-scheme: dark" in text
    outside = re.compile(r"https?:|//|url\(|@import|<script|<link|<img|src=")
    assert not outside.search(re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL))
    used = set(re.findall(r"var\((--\w+)\)", text))
    light, dark = text.split("prefers-color-scheme: dark")
    for colour in used:
        assert f"{colour}:" in light
        assert f"{colour}:" in dark
    styles = {name for _, attrs in page.tags for name in (attrs.get("class") or "").split()}
    assert styles - {"good", "label"} <= set(re.findall(r"\.([a-z]\w*)", text))
    targets = {attrs["id"] for tag, attrs in page.tags if tag == "section"}
    assert {attrs["href"] for tag, attrs in page.tags if tag == "a"} == {f"#{name}" for name in targets}


def test_the_page_holds_the_figures_of_the_log(log: Path) -> None:
    history = read_history(log)
    _, page = page_of(log)
    assert page.text["h2"] == ["matmul(16, 16, 16)", "matmul(24, 24, 24)"]
    assert "24 measurements of 2 tasks" in page.text["p"][0]
    for task in history.tasks:
        assert task.best is not None
        assert task.best.seconds is not None
        failed = sum(attempt.seconds is None for attempt in task.attempts)
        assert task.best.seconds == min(a.seconds for a in task.attempts if a.seconds is not None)
        assert f"best, trial {task.best.trial}" in page.words
        titles = " ".join(page.text["title"])
        assert f"valid: {12 - failed} (" in titles
        assert not failed or f"RUNTIME_DEVICE: {failed} (" in titles
    code = [text for text in page.text["pre"] if "te.create_schedule" in text]
    nests = [text for text in page.text["pre"] if text.startswith("main(")]
    assert (len(code), len(nests)) == (2, 2)
    namespace: dict[str, Any] = {}
    exec(code[0], namespace)
    assert str(ansor.lower(namespace["s"], namespace["tensors"])) in nests[0]


def test_layout_options_are_tasks_of_their_own_and_programs_are_those_that_ran(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    tasks = [SearchTask("ansor.dense", (32, 32, 32), target=HOST, layout_rewrite_option=n) for n in (0, 1, 2)]
    for number, task in enumerate(tasks):
        states = ansor.sample_programs(task, 2, np.random.default_rng(3))
        for state, seconds in zip(states, (1e-3, 2e-3), strict=True):
            save(log, task, state, seconds / (1 + number), 10)
    history = read_history(log)
    assert [task.best.seconds for task in history.tasks if task.best] == [
        1e-3,
        5e-4,
        pytest.approx(3.33333e-4),
    ]
    assert [len(task.attempts) for task in history.tasks] == [2, 2, 2]
    _, page = page_of(log)
    for option in (1, 2):
        said = [text for text in page.text["p"] if f"layout_rewrite_option {option}" in text]
        assert len(said) == 1
    assert sum("layout_rewrite_option" in text for text in page.text["td"]) == 2
    nests = [text for text in page.text["pre"] if text.startswith("main(")]
    code = [text for text in page.text["pre"] if "te.create_schedule" in text]
    assert len(set(nests)) == len(nests) == len(code) == 3
    for task, nest, python in zip(tasks, nests, code, strict=True):
        assert nest == str(ansor.lower(*task.apply_best(log), target=task.target))
        assert python == task.print_best(log)


def test_text_of_the_log_is_escaped(tmp_path: Path) -> None:
    log = tmp_path / "<b>evil & co.json"
    evil = '["<script>alert(1)</script>", "&amp;", 3]'
    task = ansor.Task.create(None, evil, HOST)
    save(log, task, LoggedState((("PR", 0, 0, "</pre><script>"),)), 1e-3, 10)
    text, page = page_of(log)
    assert "<script" not in text
    assert "<b>evil" not in text
    assert "& co" not in text
    assert page.text["h2"] == ["<script>alert(1)</script>(&amp;, 3)"]
    assert page.text["h1"] == ["<b>evil & co.json"]
    assert any("</pre><script>" in listing for listing in page.text["pre"])
    assert "not known here" in page.words


def test_a_log_without_a_valid_program(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", matmul_task(8)
    for when, state in zip((5, 7), split_in_ways(task), strict=False):
        save(log, task, state, None, when)
    _, page = page_of(log)
    assert "No program of this task was valid." in page.words
    assert "RUN_TIMEOUT: 2 (100 %)" in page.words
    assert read_history(log).totals() == []


def split_in_ways(task: ansor.Task) -> list[State]:
    """Four programs of a task."""
    return [State.initial(task.compute_dag).split(2, 0, [length]) for length in (1, 2, 4, 8)]


def test_time_is_what_passed_without_pauses(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    tasks = [matmul_task(8), matmul_task(16)]
    states, other = split_in_ways(tasks[0]), State.initial(tasks[1].compute_dag)
    save(log, tasks[0], states[0], 1e-3, 1000, cost=2)
    save(log, tasks[0], states[1], None, 1010, cost=4)
    save(log, tasks[1], other, 2e-3, 1013, cost=3)
    save(log, tasks[0], states[2], 5e-4, 90000, cost=1)  # The next day.
    save(log, tasks[0], states[3], 6e-4, 1020, cost=1)  # Another log appended.
    history = read_history(log)
    first, second = history.tasks
    assert [a.elapsed for _, a in history.attempts] == [2, 12, 15, 16, 17]
    assert [a.spent for a in first.attempts] == [2, 12, 13, 14]
    assert (first.time.valid, first.time.failed, first.time.searching) == (4, 4, 6)
    assert (second.time.valid, second.time.searching) == (3, 0)
    assert history.totals() == [
        (3, 15.0, pytest.approx(3e-3)),
        (4, 16.0, pytest.approx(2.5e-3)),
        (5, 17.0, pytest.approx(2.5e-3)),
    ]
    assert [a.trial for a in first.improvements] == [1, 3]
    assert first.trials_to_within(0.05) == 3
    assert first.trials_to_within(1.0) == 1
    side_by_side = tmp_path / "b.json"
    for when, state in zip((10, 11), states, strict=False):
        save(side_by_side, tasks[0], state, 1e-3, when, cost=6)
    spent = read_history(side_by_side).tasks[0].time
    assert (spent.valid, spent.searching) == (7, 0)


def test_measuring_again_takes_time_and_is_no_trial(tmp_path: Path) -> None:
    """What is known best of a program decides which is the best; when it was found is as before."""
    log, task = tmp_path / "log.json", matmul_task(8)
    lucky, good, racy, _ = split_in_ways(task)
    save(log, task, lucky, 1e-3, 1000, cost=2)
    save(log, task, good, 2e-3, 1004, cost=2)
    save(log, task, racy, 5e-4, 1008, cost=2)
    save(log, task, lucky, 8e-4, 1010, cost=2)  # As many repeats: no better known than the first.
    final = MeasureResult((3e-3,) * 2, all_cost=10, timestamp=1020)  # type: ignore[arg-type]
    wrong = MeasureResult.failed(MeasureErrorNo.WRONG_ANSWER, "", 3, 1024)
    save_records(log, [MeasureInput(task, state) for state in (lucky, racy)], [final, wrong])
    history = read_history(log)
    (mine,) = history.tasks
    assert [attempt.seconds for attempt in mine.attempts] == [3e-3, 2e-3, None]
    assert [attempt.first.mean_cost for attempt in mine.attempts] == [1e-3, 2e-3, 5e-4]
    assert [attempt.cost for attempt in mine.attempts] == [14, 2, 5]
    assert [attempt.spent for attempt in mine.attempts] == [2, 6, 10]
    assert mine.best is mine.attempts[1]
    assert mine.outcomes == {MeasureErrorNo.NO_ERROR: 2, MeasureErrorNo.WRONG_ANSWER: 1}
    assert mine.spent == history.elapsed == 26
    assert (mine.time.valid, mine.time.failed, mine.time.searching) == (16, 5, 5)
    _, page = page_of(log)
    assert "3 measurements of 1 task" in page.text["p"][0]
    assert "best, trial 2" in page.words


def test_a_model_is_taught_what_a_search_was(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", SearchTask(func="ansor.matmul", args=[8, 8, 8], target=HOST)
    first, second, *_ = split_in_ways(task)
    for state, seconds in ((first, 1e-3), (second, 2e-3)):
        save(log, task, state, seconds, 10)
    final = MeasureResult((3e-3,) * 3, timestamp=20)  # type: ignore[arg-type]
    save_records(log, [MeasureInput(task, first)], [final])
    told: list[float] = []

    class Told(ansor.CostModel):
        def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
            told.extend(result.mean_cost for result in results)

        def predict(self, task: ansor.Task, candidates: Sequence[State]) -> Any:
            return np.zeros(len(candidates))

    believed(read_history(log).tasks[0], Told(), round_size=1)
    assert told == [1e-3, 2e-3]


def test_what_a_model_believed_before_it_learned(log: Path) -> None:
    class Told(ansor.CostModel):
        """Knows a program's speed once it has been told."""

        def __init__(self) -> None:
            self.told: list[State] = []

        @property
        def informative(self) -> bool:
            return bool(self.told)

        def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
            self.told += [inp.state for inp in inputs]  # type: ignore[misc]

        def predict(self, task: ansor.Task, candidates: Sequence[State]) -> Any:
            assert not set(map(str, candidates)) & set(map(str, self.told))
            return np.array([-np.inf, *range(1, len(candidates))], np.float64)

    history = read_history(log)
    belief = believed(history.tasks[0], Told(), round_size=4)
    assert not isinstance(belief, str)
    assert [attempt.trial for attempt, _ in belief.pairs] == [6, 7, 8, 10, 11, 12]
    assert belief.order is not None
    assert 0 <= belief.order <= 1
    assert "gave none of the programs a score" in str(believed(history.tasks[0], ansor.RandomModel(), 4))
    why = believed(history.tasks[1], Told(), round_size=12)
    assert isinstance(why, str)
    assert re.search(r"learns from the first 12 programs .* has 12 programs so far; more than 12 are", why)
    text, page = page_of(log, beliefs=[belief, why])
    assert page.text["h3"].count("Predicted and measured") == 2
    assert "more than 12 are needed" in text
    assert "Predicted and measured" not in page_of(log)[1].text["h3"]
    assert "of the pairs are in the right order" in page.words


def test_the_command_writes_the_page(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(log), "--no-model"]) == 0
    assert capsys.readouterr().out.strip() == f"{log}.html"
    Page(Path(f"{log}.html").read_text())
    module = tmp_path / "net.py"
    module.write_text(
        "from ansor import te\n"
        "def report_layer(n):\n"
        "    x = te.placeholder((n,), name='X')\n"
        "    return [x, te.compute((n,), lambda i: x[i] * x[i], name='Y')]\n"
    )
    mine, out = tmp_path / "mine.json", tmp_path / "page.html"
    task = ansor.Task.create(None, '["report_layer", 8]', HOST)
    save(mine, task, LoggedState((("SP", 1, 0, 8, [4], 1),)), 1e-6, 10)
    assert run(["report", str(mine), "-o", str(out), "--no-model"]) == 0
    assert "not known here" in out.read_text()
    assert (
        run(["report", str(mine), "-o", str(out), "--no-model", "--workload", f"{module}:report_layer"]) == 0
    )
    assert "te.create_schedule" in out.read_text()
    empty = tmp_path / "empty.json"
    empty.write_text("# nothing\n")
    assert run(["report", str(empty)]) == 1
    assert "holds no records" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0, 100, False, [0, 20, 40, 60, 80, 100]),
        (0, 0.07, False, [0, 0.02, 0.04, 0.06]),
        (0.9, 3, True, [1, 1.5, 2, 2.5, 3]),
        (0.5, 30, True, [0.5, 1, 2, 5, 10, 20]),
        (1, 1e5, True, [1, 10, 100, 1000, 1e4, 1e5]),
    ],
)
def test_ticks_are_round(low: float, high: float, log: bool, ticks: list[float]) -> None:
    assert Scale(low, high, 0, 100, log).ticks() == pytest.approx(ticks)


def test_charts_of_nothing_and_of_much() -> None:
    assert nice_step(0) == 1
    ElementTree.fromstring(Curve("a", "x", "y", []).to_svg())
    ElementTree.fromstring(bars("b", []))
    many = [Mark(number, number, "") for number in range(10000)]
    assert 500 < len(thinned(many)) <= 1500
    svg = Curve("a & b", "x", "y", [Mark(1, 5, "<first>"), Mark(3, 9, "last")], x_end=10).to_svg()
    root = ElementTree.fromstring(svg)
    line = next(node for node in root.iter("path") if node.get("class") == "best")
    assert re.fullmatch(r"M[\d. ]+H[\d.]+V[\d.]+H446\.0", line.get("d") or "")
    assert [node.text for node in root.iter("title")] == ["<first>", "last"]


def test_axes_say_what_they_measure_and_where_predictions_come_from(log: Path) -> None:
    history = read_history(log)
    belief = believed(history.tasks[0], ansor.DraftedModel(), round_size=4)
    _, page = page_of(log, beliefs=[belief, "too few"])
    labels = set(page.text["text"])
    assert {"trial", "time [s]", "speed [GFLOP/s]", "sum of best [ms]"} <= labels
    assert {"predicted score [higher is better]", "measured speed [share of the best]"} <= labels
    assert "a new DraftedModel went through it in rounds of 4 programs" in page.words
    assert "Marks on the axis: failures." in page.words


def test_a_logarithmic_axis_has_its_curve_in_the_middle() -> None:
    svg = Curve("c", "x", "y", [Mark(1, 2.0, ""), Mark(2, 1.9, "")], log=True, x_end=3).to_svg()
    heights = [float(node.get("cy") or 0) for node in ElementTree.fromstring(svg).iter("circle")]
    assert all(80 < height < 150 for height in heights)


def test_records_without_a_run_time_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, task = tmp_path / "log.json", matmul_task(8)
    state = State.initial(task.compute_dag)
    save(log, task, state, 0.0, 10)
    assert run(["report", str(log)]) == 1
    assert f"holds no records; {log}: 1 record without a run time: left out" in capsys.readouterr().err
    save(log, task, state, 1e-3, 11)
    save(log, matmul_task(16), State.initial(matmul_task(16).compute_dag), 2e-3, 12)
    _, page = page_of(log)
    assert "1 record without a run time: left out" in page.words
    assert len(page.text["h2"]) == 2


@pytest.mark.parametrize("output", ["mine.json", "link.json", "other.json"])
def test_a_page_does_not_replace_a_log(
    log: Path, tmp_path: Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    for copy in (mine, other):
        copy.write_bytes(log.read_bytes())
    (tmp_path / "link.json").symlink_to(mine)
    assert run(["report", str(mine), "-o", str(tmp_path / output), "--no-model"]) == 1
    assert f"{output}' is there already and no page; name another" in capsys.readouterr().err
    assert mine.read_bytes() == other.read_bytes() == log.read_bytes()


@pytest.mark.parametrize("stamp", [1700000000 * 10**9, -(10**15)])
def test_dates_that_no_calendar_has_are_shown_as_numbers(tmp_path: Path, stamp: int) -> None:
    log, task = tmp_path / "log.json", matmul_task(8)
    save(log, task, State.initial(task.compute_dag), 1e-3, stamp)
    _, page = page_of(log)
    assert f"{stamp} s" in page.words
