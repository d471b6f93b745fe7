"""Records that are JSON and yet no measurement of a program: left out, with a note, everywhere."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.errors import AnsorError, LogFormatError, ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.schedule.steps import step_from_json
from measure import (
    RecordReader,
    distill_record_file,
    dump_record_to_string,
    load_record_from_string,
    recover_measure_input,
)
from measure.records.record import LoggedState, LoggedTask, MeasureInput, MeasureResult, Seconds
from search import ApplyHistoryBest, PreloadMeasuredStates, SearchTask
from search.cli.main import run
from search.cli.show import summarize
from search.report.data import read_history

KEY = '["ansor.matmul", 16, 16, 16]'
WORDS = ["ansor.matmul", "16", "16", "16"]


def line(*steps: list[Any], seconds: float = 1e-3, key: str = KEY) -> str:
    inp = MeasureInput(
        LoggedTask(key, "llvm", layout_rewrite_option=0), LoggedState(tuple(map(tuple, steps)))
    )
    return dump_record_to_string(inp, MeasureResult((Seconds(seconds),), timestamp=1))


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(text + "\n" for text in lines))
    return path


GOOD = ["SP", 2, 0, 16, [4], 1]

MALFORMED: list[tuple[list[Any], str]] = [
    (["SP", "x", 0, 16, [4], 1], "SP: expected an integer as its stage, found 'x'"),
    (["SP", 2, 0.5, 16, [4], 1], "an integer as its iterator, found 0.5"),
    (["SP", 2, [0], 16, [4], 1], r"an integer as its iterator, found \[0\]"),
    (["SP", 2, 0, "16", [4], 1], "an integer or null as its extent"),
    (["SP", 2, 0, 16, 4, 1], "a list of integers or nulls as its lengths, found 4"),
    (["SP", 2, 0, 16, [[4]], 1], "a list of integers or nulls as its lengths"),
    (["SP", 2, 0, 16, [4]], "SP: expected 5 fields"),
    (["SP", 2, 0, 16, [4], True], "an integer as its inner_to_outer, found True"),
    (["RE", 2, [0, [1], 2]], "a list of integers as its order"),
    (["RE", 2, 3], "a list of integers as its order"),
    (["FU", 2, None], "a list of integers as its iterators"),
    (["PR", 2, 0, 64], "a string as its text"),
    (["AN", 2, 0, {}], "an integer as its annotation"),
    (["CHW", 2, 1], "a string as its scope"),
    (["RL", "1", [[0, 16, 1]], []], "RL: expected stage"),
    (["CHRP", 1, "shared", [2]], "CHRP: expected 4 fields"),
    (["RL", 1, [[0, "16", 1]], []], "RL: expected stage"),
    (["RL", 1, [[0, 16, 1]], ["x"]], "RL: expected stage"),
    (["XYZ", 2], "unknown transform step"),
]


@pytest.mark.parametrize(("step", "message"), MALFORMED)
def test_fields_of_the_wrong_type_are_refused(step: list[Any], message: str) -> None:
    with pytest.raises(LogFormatError, match=message):
        step_from_json(step)


@pytest.mark.parametrize("step", [step for step, _ in MALFORMED])
def test_one_malformed_record_costs_only_itself(
    step: list[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = line(GOOD, seconds=1e-6).replace(json.dumps(GOOD), json.dumps(step))
    log = write(tmp_path / "log.json", text, line(GOOD))

    reader = RecordReader(log)
    assert [res.mean_cost for _, res in reader] == [1e-3]
    assert f"{log}:1: left out: " in reader.notes[0]
    assert reader.notes[0] in caplog.text


def test_many_malformed_records_are_counted(tmp_path: Path) -> None:
    bad = line(GOOD).replace('["SP", 2', '["SP", "x"')
    log = write(tmp_path / "log.json", *[bad] * 20, line(GOOD))

    reader = RecordReader(log)
    assert len(list(reader)) == 1
    assert [note.startswith(f"{log}:{n}: left out") for n, note in enumerate(reader.notes[:-1], 1)] == [
        True
    ] * 5
    assert reader.notes[-1] == f"{log}: left out for such steps: 15 more, 20 in all"


def test_malformed_records_are_left_out_by_an_interpreter_without_assertions_too(tmp_path: Path) -> None:
    bad = line(GOOD).replace('["SP", 2', '["SP", "x"')
    log = write(tmp_path / "log.json", bad, line(GOOD))
    code = "import sys, measure; print(len(list(measure.RecordReader(sys.argv[1]))))"
    assert subprocess.check_output([sys.executable, "-O", "-c", code, log], text=True) == "1\n"


ASKED: dict[str, Callable[[Path], float | None]] = {
    "best_state": lambda log: task().best_state(log)[1],
    "summarize": lambda log: summarize(str(log))[0].seconds,
    "report": lambda log: (best := read_history(log).tasks[0].best) and best.seconds,
    "distill": lambda log: distilled(log),
    "history best": lambda log: history_best(log),
    "preload": lambda log: PreloadMeasuredStates(log).known(task())[0][1].mean_cost,
}


def task() -> SearchTask:
    return SearchTask(func="ansor.matmul", args=(16, 16, 16), target="llvm")


def distilled(log: Path) -> float:
    out = log.with_suffix(".best")
    assert distill_record_file(log, out).written == 1
    ((_, res),) = RecordReader(out)
    return res.mean_cost


def history_best(log: Path) -> float | None:
    state = ApplyHistoryBest(log).query(task())
    return 1e-3 if state is not None and state.steps[0].to_json() == GOOD else None


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
@pytest.mark.parametrize("bad", ["malformed", "no time", "no costs", "negative"])
def test_what_is_no_measurement_is_never_the_best(
    bad: str, ask: Callable[[Path], float | None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = {
        "malformed": line(["SP", 2, 0, 16, [8], 1], seconds=1e-9).replace('["SP", 2', '["SP", "x"'),
        "no time": line(["SP", 2, 0, 16, [8], 1], seconds=0.0),
        "no costs": line(["SP", 2, 0, 16, [8], 1]).replace("[0.001]", "[]"),
        "negative": line(["SP", 2, 0, 16, [8], 1], seconds=-1.0),
    }
    log = write(tmp_path / "log.json", lines[bad], line(GOOD))

    assert ask(log) == 1e-3


def test_the_commands_tell_of_what_they_leave_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    text = line(GOOD, seconds=1e-6).replace('["SP", 2', '["SP", "x"')
    log = write(tmp_path / "log.json", text, line(GOOD))
    small = ["ansor.matmul", "8", "8", "8"]

    for words in (
        ["best", str(log)],
        ["best", str(log), *WORDS],
        ["explain", str(log), *WORDS],
        ["report", str(log), "--no-model"],
        ["distill", str(log)],
        ["tune", *WORDS, "--trials", "0", "--log", str(log)],
        ["tune", *small, "--trials", "0", "--log", str(tmp_path / "b.json"), "--warm-start", str(log)],
    ):
        caplog.clear()
        assert run(words) == 0, (words, capsys.readouterr())
        assert f"{log}:1: left out: step SP: expected an integer as its stage" in caplog.text, words


@pytest.mark.parametrize("text", ["", line(GOOD, seconds=0.0)])
@pytest.mark.parametrize("command", ["best", "report", "distill"])
def test_a_log_without_measurements_is_an_error(
    command: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "log.json", *([text] if text else []))

    assert run([command, str(log)]) == 1
    assert "no records" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [log]


@pytest.mark.parametrize("value", ["\u00b2", "9" * 5000, "-1", "1_0", ""])
def test_a_pragma_counts_in_plain_digits(value: str) -> None:
    state = State.initial(chained())

    with pytest.raises(ScheduleError, match="is not understood"):
        state.pragma(2, 0, f"auto_unroll_max_step${value}")


@pytest.mark.parametrize("text", ["[" * 100_000, line(GOOD).replace("0.001", "9" * 400)])
def test_what_python_cannot_hold_is_no_record(text: str) -> None:
    with pytest.raises(LogFormatError):
        load_record_from_string(text)


# -- mutations -----------------------------------------------------------------------------------------


def mutated(rng: np.random.Generator, item: Any) -> Any:
    """`item` with a value somewhere in it replaced, lost or doubled."""
    if isinstance(item, (list, dict)) and item and rng.random() < 0.9:
        keys = list(item) if isinstance(item, dict) else range(len(item))
        key = keys[int(rng.integers(len(keys)))]
        item[key] = mutated(rng, item[key])
        if isinstance(item, list) and rng.random() < 0.1:
            item.pop(int(rng.integers(len(item))))
        if isinstance(item, list) and item and rng.random() < 0.05:
            item.append(copy.deepcopy(item[0]))
        return item
    values: list[Any] = [
        True,
        False,
        "NaN",
        "auto_unroll_max_step$9",
        [[]],
        "llvm",
        "x",
        "",
        [],
        [1],
        [None],
        {},
    ]
    values += [None, -1, 0, 1, 7, 10**12, 2**31, 2**63, -(2**70), 1e300, 1.5]
    return values[int(rng.integers(len(values)))]


def chained() -> ComputeDAG:
    A, B = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    k = te.reduce_axis((0, 16), name="k")
    C = te.compute((16, 16), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((16, 16), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    return ComputeDAG([A, B, D])


def rich_states(dag: ComputeDAG) -> list[State]:
    """States with every kind of step that a record knows."""
    tiled = State.initial(dag).split(2, 0, [2, 2, 2]).split(2, 4, [2, 2]).reorder(2, [0, 4, 1, 5, 2, 6, 3, 7])
    tiled = (
        tiled.follow_split(3, 0, 0, 2)
        .fuse(3, [0, 1])
        .annotate(3, 0, 3)
        .pragma(2, 0, "auto_unroll_max_step$16")
    )
    packed = State.initial(dag).cache_read(0, "local", [2]).cache_write(3, "local").split(4, 0, [4])
    packed = packed.compute_at(3, 4, 0).storage_align(3, 0, 4, 1)
    factored = State.initial(dag).split(2, 2, [4]).rfactor(2, 3, 2).compute_root(4)
    return [tiled, packed, factored]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_mutated_records_are_understood_or_refused(which: int) -> None:
    """Whatever stands in a record, reading, replaying and lowering it raise no error but ours."""
    dag, rng = chained(), np.random.default_rng(which)
    state = rich_states(dag)[which]
    made = SearchTask(compute_dag=dag, target="llvm")
    text = dump_record_to_string(MeasureInput(made, state), MeasureResult((Seconds(1e-3),)))
    seen: Counter[str] = Counter()
    for _ in range(400):
        record = json.dumps(mutated(rng, json.loads(text)))
        try:
            inp, res = load_record_from_string(record)
            assert res.mean_cost is not None
            program = recover_measure_input(inp, rebuild_state=True, dag=dag).state
            assert isinstance(program, State)
            assert program.with_bounds()
            lower(program)
            seen["understood"] += 1
        except AnsorError:
            seen["refused"] += 1
        except Exception as error:
            raise AssertionError(record) from error
    assert seen["understood"] > 20
    assert seen["refused"] > 100
