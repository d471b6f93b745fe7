"""Verbosity: each level tells what those below it tell and more, and the environment can raise it."""

import ast
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

import ansor
from ansor import knobs, te
from ansor.errors import DefinitionError, TargetError
from measure import ProgramMeasurer
from measure.simulate import NullBuilder, SimulatedRunner
from search import SearchPolicy, SearchTask, SketchPolicy, StopReason
from search.details import Details, level_of, make_details, outcomes_text
from search.progress import LineProgress, Progress, Report
from search.session import TuningSession
from tests.search_fakes import options, simulated_cost

pytestmark = pytest.mark.usefixtures("small_searches")

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def no_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (knobs.DEBUG, knobs.NUM_THREADS, knobs.TRACEBACK):
        monkeypatch.delenv(name, raising=False)


def told(level: int, failing: float = 0.0) -> str:
    """What a short run says."""
    task = SearchTask(func="ansor.matmul", args=(16, 16, 16), target="llvm -mcpu=x86-64-v3")
    text = io.StringIO()
    runner = SimulatedRunner(lambda inp: simulated_cost(inp, failing))
    session = TuningSession(
        SketchPolicy(task),
        ProgramMeasurer(NullBuilder(), runner, [], max_continuous_error=None),
        round_size=8,
        progress=make_details(level, Console(file=text)),
    )
    session.run(16)
    return text.getvalue()


class Broken(Progress):
    """Is hit by something while it tells what will be searched."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error
        self.closed = False

    def begin(self, policy: SearchPolicy) -> None:
        raise self.error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_the_terminal_is_given_back_whatever_happens_first(error: type[BaseException]) -> None:
    task = SearchTask(func="ansor.matmul", args=(16, 16, 16), target="llvm -mcpu=x86-64-v3")
    measurer = ProgramMeasurer(NullBuilder(), SimulatedRunner(simulated_cost), [], max_continuous_error=None)
    progress = Broken(error)
    session = TuningSession(SketchPolicy(task), measurer, progress=progress)
    if error is KeyboardInterrupt:
        assert session.run(4).stop_reason is StopReason.INTERRUPTED
    else:
        with pytest.raises(error):
            session.run(4)
    assert progress.closed


def test_each_level_tells_more() -> None:
    texts = [told(level) for level in range(6)]
    marks = {
        1: "round 1: 8/16 trials",
        2: "outcomes: 16 valid",
        3: "sketch 0: MultiLevelTiling(C)",
        4: "ansor_program(A: float32[16, 16], B: float32[16, 16]) -> C: float32[16, 16]",
        5: "define void @ansor_program(",
    }
    for level, text in enumerate(texts):
        for needed, mark in marks.items():
            assert (mark in text) == (level >= needed), (level, mark)
    assert texts[0] == ""
    assert "best program:\nPlaceholder: A, B\n" in texts[2]


def test_a_best_program_is_told_once() -> None:
    text = told(2)
    speeds = re.findall(r"best ([\d.]+) GFLOP/s", text)[:2]
    assert text.count("best program:") == len(set(speeds))


def test_outcomes_are_counted_by_kind() -> None:
    failed = ansor.MeasureErrorNo.RUN_TIMEOUT
    wrong = ansor.MeasureErrorNo.WRONG_ANSWER
    ok = ansor.MeasureErrorNo.NO_ERROR
    report = Report(9, 6, None, 1, 9, outcomes={wrong: 2, failed: 4, ok: 3})
    assert outcomes_text(report) == "3 valid, 4 RUN_TIMEOUT, 2 WRONG_ANSWER"
    assert re.search(r"outcomes: \d+ valid, \d+ RUNTIME_DEVICE", told(2, failing=0.5))


def test_a_policy_without_sketches_has_none_to_tell() -> None:
    task = SearchTask(func="ansor.matmul", args=(4, 4, 4), target="llvm")
    text = io.StringIO()
    Details(Progress(), 3, Console(file=text)).begin(ansor.EmptyPolicy(task))
    assert "PLACEHOLDER" in text.getvalue()
    assert "sketch" not in text.getvalue()


def both_sums(second: str) -> ansor.SearchTask:
    """Sums of columns, and another reduction beside them."""
    x, y = te.placeholder((32, 8), name="X"), te.placeholder((32, 8), name="Y")
    k, r, c = te.reduce_axis((0, 32), "k"), te.reduce_axis((0, 32), "r"), te.reduce_axis((0, 8), "c")
    first = te.compute((8,), lambda j: te.sum(x[k, j], axis=k), name="S")
    others = {
        "squares": lambda: te.compute((8,), lambda j: te.sum(x[r, j] * x[r, j], axis=r), name="Q"),
        "products": lambda: te.compute((8,), lambda j: te.sum(x[r, j] * y[r, j], axis=r), name="Q"),
        "of another": lambda: te.compute((8,), lambda j: te.sum(y[r, j], axis=r), name="Q"),
        "rows": lambda: te.compute((32,), lambda i: te.sum(x[i, c], axis=c), name="Q"),
        "reversed": lambda: te.compute((8,), lambda j: te.max(x[31 - r, j], axis=r), name="Q"),
    }
    second_sum = others[second]()
    used = [t for t in (x, y) if t is x or t in second_sum.op.input_tensors]
    return SearchTask(compute_dag=[*used, first, second_sum], target="llvm")


@pytest.mark.parametrize(
    ("second", "expected"),
    [("squares", True), ("products", True), ("of another", False), ("rows", False), ("reversed", False)],
)
def test_outputs_that_pass_over_the_same_memory_are_told_of(second: str, expected: bool) -> None:
    texts = []
    for level in (2, 3):
        text = io.StringIO()
        Details(Progress(), level, Console(file=text)).begin(ansor.EmptyPolicy(both_sums(second)))
        texts.append(text.getvalue())
    assert [("S and Q read X in a pass each" in text) for text in texts] == [False, expected]


@pytest.mark.parametrize(
    ("terms", "cpu", "told"),
    [
        (62, "znver4", "C adds up 62 products, and x86.vpdpbusd.512 4 at once: with operands filled up"),
        (64, "znver4", ""),
        (62, "haswell", ""),
    ],
)
def test_sums_that_are_too_short_for_an_instruction_are_told_of(terms: int, cpu: str, told: str) -> None:
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu} -num-cores=2"
    task = SearchTask(func="ansor.matmul", args=(64, 64, terms, "uint8", "int32", "int8"), target=target)
    text = io.StringIO()
    Details(Progress(), 3, Console(file=text, width=1000)).begin(ansor.EmptyPolicy(task))
    assert told in text.getvalue()
    assert ("at once" in text.getvalue()) is bool(told)


def test_the_environment_raises_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    assert level_of(1) == 1
    assert level_of(True) == 1
    monkeypatch.setenv(knobs.DEBUG, "3")
    assert (level_of(0), level_of(1), level_of(4)) == (3, 3, 4)
    assert isinstance(make_details(0, Console(file=io.StringIO())), Details)
    monkeypatch.setenv(knobs.DEBUG, " ")
    assert isinstance(make_details(1, Console(file=io.StringIO())), LineProgress)
    for wrong in ("yes", "-1", "6", "2.5"):
        monkeypatch.setenv(knobs.DEBUG, wrong)
        with pytest.raises(DefinitionError, match="ANSOR_DEBUG must be an integer from 0 to 5"):
            level_of(1)


def test_a_run_listens_to_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(knobs.DEBUG, "2")
    task = SearchTask(func="ansor.matmul", args=(8, 8, 8), target="llvm")
    task.tune(options(4), SketchPolicy(task))
    assert "outcomes: 4 valid" in capsys.readouterr().err


def test_a_scheduler_tells_of_each_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [SearchTask(func="ansor.matmul", args=(n, 8, 8), target="llvm") for n in (4, 8)]
    ansor.TaskScheduler(tasks, callbacks=[]).tune(
        options(8, verbose=3, num_measures_per_round=4), "sketch.random"
    )
    told = capsys.readouterr().err
    for n in (4, 8):
        assert f"matmul({n}, 8, 8)\nA = PLACEHOLDER [{n}, 8]" in told
    assert told.count("sketch 0: ") == 2
    assert told.count("outcomes: 4 valid") == 2
    ansor.TaskScheduler(tasks, callbacks=[]).tune(options(2), "sketch.random")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv(knobs.DEBUG, "1")
    ansor.TaskScheduler(tasks, callbacks=[]).tune(options(2), "sketch.random")
    assert "all 2 trials are done" in capsys.readouterr().err


def test_other_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert knobs.num_threads() is None
    monkeypatch.setenv(knobs.NUM_THREADS, "3")
    assert knobs.num_threads() == 3
    monkeypatch.setenv(knobs.NUM_THREADS, "0")
    with pytest.raises(TargetError, match="an integer from 1 to 1024, found '0'"):
        knobs.num_threads()
    assert not knobs.traceback_wanted()
    monkeypatch.setenv(knobs.TRACEBACK, "1")
    assert knobs.traceback_wanted()


def test_no_other_module_reads_a_variable_of_ours() -> None:
    """Texts that start with ANSOR_ stand in `knobs` and in the code that is written for other programs."""
    found = set()
    for room in ("ansor", "sketches", "costmodel", "measure", "search"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and str(node.value).startswith("ANSOR_"):
                    found.add(path.relative_to(ROOT).as_posix())
    assert found - {"ansor/runtime/export.py", "ansor/runtime/header.py"} == {"ansor/knobs.py"}
