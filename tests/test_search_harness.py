"""The bench harness: estimates, rows, goals, the table, the file, fresh processes."""

import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import bench_cpu, bench_matmul, harness
from experiments.harness import Bench, Estimate, Row, fresh_process, speedup, table


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        estimate = Estimate.of(rng.exponential(1.0, 15).tolist())
        inside += estimate.low <= np.log(2) <= estimate.high
    assert 0.94 < inside / 2000 < 0.99


def test_few_values_have_their_range_as_interval() -> None:
    assert Estimate.of([3.0, 1.0, 2.0]) == Estimate(2.0, 1.0, 3.0)


def test_the_range_of_five_values_falls_short_of_the_confidence_and_that_of_six_reaches_it() -> None:
    assert [harness.range_confidence(count) for count in (1, 2, 5, 6)] == [0.0, 0.5, 0.9375, 0.96875]
    rng = np.random.default_rng(0)
    draws = rng.exponential(1.0, (20000, 5))
    inside = (draws.min(axis=1) <= np.log(2)) & (np.log(2) <= draws.max(axis=1))
    assert inside.mean() == pytest.approx(harness.range_confidence(5), abs=0.01)


def test_speedup_compares_neighbours() -> None:
    assert speedup([1.0, 2.0, 4.0], [3.0, 6.0, 12.0]) == Estimate(3.0, 3.0, 3.0)


def test_rows_say_whether_their_goal_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    bench = Bench("a title", ["--quick", "--json", str(path)])
    assert bench.quick
    bench.add("fast enough", Estimate(2.0, 1.9, 2.1), "x", peer="numpy", at_least=1.5)
    bench.add("plain", 7.0, "ms")
    assert bench.finish() == 0
    bench.add("too slow", 12.0, "ms", at_most=10)
    assert bench.finish() == 1
    rows = json.loads(path.read_text())
    assert [row["holds"] for row in rows] == [True, None, False]
    assert rows[0] == {
        "name": "fast enough",
        "value": 2.0,
        "unit": "x",
        "peer": "numpy",
        "goal": 1.5,
        "holds": True,
        "interval": [1.9, 2.1],
        "figures": None,
    }
    assert "too slow     12 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("threads", "why"),
    [("3", "3 threads are asked for.* has cores for 2"), ("many", "'many' is no positive")],
)
def test_threads_that_find_no_core_are_refused(
    threads: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However they are asked for; an option stands before the variable."""
    monkeypatch.setattr(harness, "available_cores", lambda: 2)
    monkeypatch.setattr(os, "environ", {**os.environ, "ANSOR_NUM_THREADS": threads})
    for main, words in ((bench_matmul.main, []), (bench_cpu.main, ["--threads", threads])):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert re.search(why, capsys.readouterr().err)
    given = Bench("a title", ["--threads", "2"], bench_cpu.add_options)
    assert given.arguments.threads == 2


def test_a_run_of_hours_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.4, 3725.0])
    monkeypatch.setattr(harness, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    bench = Bench("a title", [])
    assert list(bench.each(["some", "more"])) == ["some", "more"]
    assert capsys.readouterr().err.splitlines() == [
        "some: 1 of 2, after 0:00:00",
        "more: 2 of 2, after 1:02:05",
    ]


def test_the_table_is_aligned() -> None:
    lines = table([Row("a", 1.0, "x"), Row("longer", 2.5, "ms", "peer", 3.0, False, (2.0, 3.0))]).splitlines()
    assert lines[0].split() == ["name", "value", "peer", "goal", "holds"]
    assert lines[2] == "longer  2.5 ms (2 .. 3)  peer  3 ms  NO"


def test_fresh_processes_are_fresh_and_tell_their_errors() -> None:
    word, pid = fresh_process("platform:python_version_tuple")[0], os.getpid()
    assert word == "3"
    assert fresh_process("os:getpid") != pid
    with pytest.raises(RuntimeError, match="failed in a fresh process"):
        fresh_process("os:listdir", "/there is no such directory")
    assert harness.machine()


def test_a_fresh_process_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(TimeoutError, match=r"it took more than 2 s: os:system\("):
        fresh_process("os:system", f"sleep 600 > {pipe} & wait", timeout=2.0)
    for _ in range(200):
        try:
            assert os.read(reader, 1) == b"", "nobody holds it any more"
            break
        except BlockingIOError:
            time.sleep(0.05)
    else:
        pytest.fail("what the process has started goes on")
    os.close(reader)
    assert fresh_process("os:getcwd", timeout=60.0)


def test_a_fresh_process_ends_with_who_asked(tmp_path: Path) -> None:
    """A benchmark that is killed leaves nothing that goes on measuring."""
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    code = f"import tests.test_search_harness as t; t.fresh_process('{__name__}:hold', {str(pipe)!r})"
    asks = subprocess.Popen([sys.executable, "-c", code], cwd=harness.ROOT)
    select.select([reader], [], [], 60.0)
    assert os.read(reader, 1) == b"x"
    os.set_blocking(reader, True)
    asks.kill()
    asks.wait()
    assert select.select([reader], [], [], 60.0)[0], "it goes on"
    assert os.read(reader, 1) == b""
    os.close(reader)


def hold(pipe: str) -> None:
    """Tell by a pipe that this process is there."""
    with open(pipe, "wb", buffering=0) as file:
        file.write(b"x")
        time.sleep(600.0)


def test_rows_are_written_before_the_end_too(tmp_path: Path) -> None:
    bench = Bench("a title", ["--json", str(tmp_path / "rows.json")])
    bench.add("plain", 7.0, "ms")
    bench.write(tmp_path / "again.json")
    for name in ("rows.json", "again.json"):
        assert [row["value"] for row in json.loads((tmp_path / name).read_text())] == [7.0]
