"""Benchmarks and demonstrations as commands: what they say of what their users can mend."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ansor
from ansor.task import registry
from experiments import (
    bench_compile,
    bench_gpu,
    bench_main,
    bench_matmul,
    bench_narrow,
    bench_packing,
    bench_search,
    fuzz,
    rgb_to_yuv,
    templates,
    tutorial,
)
from experiments.harness import ROOT, Bench, positive_time
from experiments.search.cases import CASES


@pytest.mark.parametrize(
    ("main", "option", "text"),
    [
        (bench_gpu.main, "--minutes", "nan"),
        (bench_gpu.main, "--log-dir", "{file}"),
        (bench_search.main, "--peers", "{file}"),
        (bench_search.main, "--peers", "{file}/x"),
        (fuzz.main, "--seconds", "-1"),
        (rgb_to_yuv.main, "--height", "0"),
        (templates.main, "--trials", "0"),
        (tutorial.main, "--trials", "-1"),
    ],
)
def test_options_without_a_sense_are_refused_by_name(
    main: Callable[[list[str]], int],
    option: str,
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("")
    value = text.format(file=tmp_path / "file")
    with pytest.raises(SystemExit) as ended:
        main([option, value])
    assert ended.value.code == 2
    assert f"argument {option}: {value!r}" in capsys.readouterr().err


def test_a_file_to_write_is_tried_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever permissions promise: names may be too long, file systems full or of another kind."""
    (tmp_path / "rows").write_text("old")
    assert Bench("", ["--json", str(tmp_path / "rows")]).json_path == str(tmp_path / "rows")
    Bench("", ["--json", str(tmp_path / "new")])
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("rows", "old")]
    with pytest.raises(SystemExit):
        Bench("", ["--json", str(tmp_path / ("x" * 300))])
    assert "cannot be written: File name too long" in capsys.readouterr().err


def test_a_time_is_positive_and_ends() -> None:
    assert positive_time("0.5") == 0.5
    for text in ("0", "-1", "inf", "nan", "soon"):
        with pytest.raises(argparse.ArgumentTypeError, match="no positive number"):
            positive_time(text)


def test_the_slowest_program_to_compile_has_a_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_compile, "WORST_MS", 0.0)
    bench = Bench("", [])
    bench_compile.cost_of_compiling(bench, "softmax-1024", CASES["softmax-1024"], count=2)
    (row,) = (row for row in bench.rows if "the slowest" in row.name)
    assert (row.goal, row.holds) == (0.0, False)


@pytest.fixture
def forgotten_workloads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the demonstration registers, under a name that users may give to theirs, goes with the test."""
    registry.registered_workloads()  # Loads the catalogue, which registers itself once.
    monkeypatch.setattr(registry, "_FUNCTIONS", dict(registry._FUNCTIONS))
    yield
    sys.modules.pop("experiments.demo", None)


@pytest.mark.usefixtures("forgotten_workloads")
@pytest.mark.parametrize(
    "begin",
    [
        lambda where: bench_main.beside_numpy(Bench("", []), "softmax", trials=1, processes=1),
        lambda where: bench_narrow.main(["--quick"]),
        lambda where: import_module("experiments.demo").main(["--size", "16", "--trials", "1"]),
        lambda where: rgb_to_yuv.tuned_schedule(4, 4, 1, where / "log.json", verbose=0),
        lambda where: templates.compare(16, 1),
    ],
    ids=["bench_main", "bench_narrow", "demo", "rgb_to_yuv", "templates"],
)
def test_ctrl_c_is_meant_for_the_command_and_not_for_one_tuning(
    begin: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found until then is no result to compare."""

    def cut_short(task: ansor.SearchTask, *rest: object) -> ansor.TuningResult:
        return ansor.TuningResult(task, None, None, 0, 0, 0, ansor.StopReason.INTERRUPTED, "interrupted", 0.0)

    for module in (bench_main, import_module("experiments.demo")):
        monkeypatch.setattr(module, "OUT", tmp_path)
    for kind in (ansor.SearchTask, ansor.TemplateTask):
        monkeypatch.setattr(kind, "tune", cut_short)
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (bench_main, ["ansor", "numpy"]),
        (bench_matmul, ["ansor", "numpy", "tile", "peak"]),
        (bench_packing, list(bench_packing.VARIANTS)),
    ],
)
def test_a_case_that_fails_is_a_missed_goal_and_ends_nothing(
    module: Any, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([None, *[{name: [1.0] for name in names}] * 1000])

    def fresh_process(*rest: object) -> Any:
        if (times := next(found)) is None:
            raise RuntimeError("it failed in a fresh process:\nnumpy and ansor do not compute the same\n...")
        return times

    monkeypatch.setattr(module, "fresh_process", fresh_process)
    monkeypatch.setattr(bench_main, "OUT", tmp_path)
    monkeypatch.setattr(bench_main, "cost_of_a_trial", lambda *rest, count: None)
    monkeypatch.setattr(bench_main, "whole", lambda result: result)
    monkeypatch.setattr(ansor.SearchTask, "tune", lambda *rest: SimpleNamespace(best_cost=1.0))
    rows = tmp_path / "rows.json"
    assert module.main(["--json", str(rows)]) == 1
    failed, *others = json.loads(rows.read_text())
    assert failed["name"].endswith(": failed")
    assert (failed["holds"], failed["peer"]) == (False, "numpy and ansor do not compute the same")
    assert not any(row["name"].endswith(": failed") for row in others)
    assert others


def test_a_workload_for_which_no_program_is_found_is_a_missed_goal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nothing = SimpleNamespace(best_cost=None, message="all failed")
    monkeypatch.setattr(bench_main, "OUT", tmp_path)
    monkeypatch.setattr(bench_main, "cost_of_a_trial", lambda *rest, count: None)
    monkeypatch.setattr(bench_main, "whole", lambda result: nothing)
    monkeypatch.setattr(ansor.SearchTask, "tune", lambda *rest: nothing)
    rows = tmp_path / "rows.json"
    assert bench_main.main(["--quick", "--json", str(rows)]) == 1
    found = json.loads(rows.read_text())
    assert [(row["holds"], row["peer"]) for row in found] == [(False, "no program: all failed")] * 3


def test_products_for_which_no_program_is_found_are_missed_goals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench_narrow, "whole", lambda result: result)
    monkeypatch.setattr(ansor.SearchTask, "tune", lambda *rest: SimpleNamespace(best_state=None))
    rows = tmp_path / "rows.json"
    assert bench_narrow.main(["--quick", "--json", str(rows)]) == 1
    assert [row["holds"] for row in json.loads(rows.read_text())] == [False] * len(bench_narrow.CASES)


def run(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_a_user_can_mend_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with run("experiments.tutorial", "--log", str(tmp_path / "file" / "log.json")) as running:
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (1, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


def test_a_pipe_that_is_no_output_is_an_error(tmp_path: Path) -> None:
    """Such as that of a worker which ended."""
    (tmp_path / "broken.py").write_text(
        "import os\n"
        "from ansor.explaining import explained\n"
        "def main():\n"
        "    reader, writer = os.pipe()\n"
        "    os.close(reader)\n"
        "    return os.write(writer, b'x')\n"
        "raise SystemExit(explained(main))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "broken.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: [Errno 32] Broken pipe\n")


def test_whoever_reads_the_output_may_have_seen_enough() -> None:
    with run("experiments.walkthrough", "vector_add") as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.stderr is not None
        assert running.stderr.read() == ""
    assert running.returncode == 0
