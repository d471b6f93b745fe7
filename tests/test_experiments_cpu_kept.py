"""Rows of the benchmark of CPU kernels that several runs leave in one folder."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import bench_cpu
from experiments.bench_cpu import main
from experiments.cpu import kept as cpu_kept
from experiments.cpu import metaschedule as cpu_metaschedule
from experiments.cpu import run as cpu_run
from experiments.cpu import table as cpu_table
from experiments.cpu.cases import CASES, Case
from experiments.cpu.kept import UnusableError, check_place, keep, read
from experiments.cpu.limits import PEAK, Limit
from experiments.cpu.measure import Measured
from experiments.cpu.peers import PEERS
from experiments.cpu.results import Result, Spent, add_means
from experiments.cpu.run import Run
from experiments.cpu.tuning import Tuned, log_of
from experiments.harness import ROOT, Bench
from experiments.search import runs as search_runs

SOFTMAX, NORM = CASES["softmax-16x1000"], CASES["norm-1x256x256"]


def a_run(commit: str = "abc", machine: str = "here", threads: str = "2") -> Run:
    return Run(commit, "2026-11-23 01:00", False, {"machine": machine, "threads": threads})


def a_result(case: Case, folder: Path, seconds: float | None = None, **times: float) -> Result:
    found = {name: [seconds, 1.1 * seconds] for name, seconds in {PEAK: 1.0, **times}.items()}
    skipped = {name: "none" for name in PEERS if name not in times}
    measured = Measured(found, skipped, ["ansor"], {"numpy": 1e-6}, True, [0.9, 1.0], 1)
    limit = Limit(0.5, 0.2, 0.25)
    tuner = None if seconds is None else Spent(8, seconds)
    return Result(case, Tuned(log_of(case, folder), 8, 30.0), measured, limit, tuner, ("a note",), a_run())


@pytest.fixture(autouse=True)
def _same_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))


def test_a_row_is_read_as_it_was_written(tmp_path: Path) -> None:
    for tuner in (None, 120.0):
        one = a_result(SOFTMAX, tmp_path, tuner, ansor=1.0, numpy=3.0, MetaSchedule=1.5)
        keep(tmp_path, SOFTMAX, one, a_run())
        assert read(tmp_path).results == (one,)


def test_rows_of_before_rounds_were_counted_are_read(tmp_path: Path) -> None:
    keep(tmp_path, SOFTMAX, a_result(SOFTMAX, tmp_path, ansor=1.0), a_run())
    place = tmp_path / cpu_kept.FILE
    document = json.loads(place.read_text())
    del document["results"][0]["rounds_again"]
    document["results"][0] |= {"metaschedule_tuning_seconds": 7.0}
    del document["results"][0]["metaschedule_trials"]
    place.write_text(json.dumps(document))
    (found,) = read(tmp_path).results
    assert found.measured.again == 0
    assert found.tuner == Spent(None, 7.0)


def test_rows_of_earlier_runs_stay_unless_the_case_is_measured_again(tmp_path: Path) -> None:
    keep(tmp_path, SOFTMAX, a_result(SOFTMAX, tmp_path, ansor=1.0), a_run())
    norm = a_result(NORM, tmp_path, ansor=2.0)
    keep(tmp_path, NORM, norm, a_run())
    again = replace(a_result(SOFTMAX, tmp_path, ansor=3.0), run=a_run("def"))
    keep(tmp_path, SOFTMAX, again, a_run("def"))
    names = [name for name in CASES if name in (SOFTMAX.name, NORM.name)]
    found = read(tmp_path)
    assert [one.case.name for one in found.results] == names, "in the order of the cases"
    assert {one.seconds for one in found.results} == {again.seconds, norm.seconds}
    keep(tmp_path, SOFTMAX, None, a_run())
    assert (read(tmp_path).results, read(tmp_path).failed) == ((norm,), (SOFTMAX,))
    keep(tmp_path, SOFTMAX, again, a_run())
    assert read(tmp_path).failed == ()


def test_rows_of_cases_that_are_no_more_are_kept_and_not_shown(tmp_path: Path) -> None:
    gone = Case("softmax", (3, 3), "stream")
    keep(tmp_path, gone, a_result(gone, tmp_path, ansor=1.0), a_run())
    keep(tmp_path, NORM, a_result(NORM, tmp_path, ansor=1.0), a_run())
    found = read(tmp_path)
    assert [one.case for one in found.results] == [NORM]
    assert found.unknown == (gone.name,)
    assert len(json.loads((tmp_path / cpu_kept.FILE).read_text())["results"]) == 2


def test_rows_of_another_machine_or_of_other_threads_are_refused(tmp_path: Path) -> None:
    check_place(tmp_path, a_run())
    keep(tmp_path, SOFTMAX, a_result(SOFTMAX, tmp_path, ansor=1.0), a_run())
    check_place(tmp_path, a_run("def"))
    for other in (a_run(machine="there"), a_run(threads="1")):
        with pytest.raises(UnusableError, match=r"another machine.*here, threads: 2.*--log-dir"):
            check_place(tmp_path, other)


def test_a_quick_row_does_not_replace_a_full_one(tmp_path: Path) -> None:
    quick = replace(a_run(), quick=True)
    keep(tmp_path, SOFTMAX, a_result(SOFTMAX, tmp_path, ansor=1.0), a_run())
    check_place(tmp_path, quick, [NORM])
    check_place(tmp_path, a_run("def"), [SOFTMAX, NORM])
    with pytest.raises(UnusableError, match=rf"not --quick, .*\({SOFTMAX.name}\).*--log-dir"):
        check_place(tmp_path, quick, [SOFTMAX, NORM])
    keep(tmp_path, SOFTMAX, replace(a_result(SOFTMAX, tmp_path, ansor=1.0), run=quick), quick)
    check_place(tmp_path, quick, [SOFTMAX])


@pytest.mark.parametrize("text", ["", "[]", '{"results": [{"case": "x"}], "failed": []}', '{"results": []}'])
def test_a_file_of_another_form_is_refused_before_anything_is_measured(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_cpu, "measured", lambda *rest: pytest.fail("it began"))
    (tmp_path / cpu_kept.FILE).write_text(text)
    for option in ([], ["--table"]):
        assert main(["--log-dir", str(tmp_path), *option]) == 2
        assert "is not of this version's form" in capsys.readouterr().err
    assert (tmp_path / cpu_kept.FILE).read_text() == text


@pytest.mark.parametrize(
    "change",
    [
        {"times": None},
        {"times": {}},
        {"times": {"ansor": ["fast"], "numpy": [1.0]}},
        {"times": {"ansor": [0.0], "numpy": [0.0]}},
        {"limits": {"compute": 1.0}},
        {"run": {"commit": "", "date": "", "quick": True, "surroundings": None}},
        {"run": {"commit": "", "date": "", "quick": True, "surroundings": {}}},
    ],
)
def test_a_row_that_cannot_be_shown_is_refused_before_anything_is_measured(
    change: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench_cpu, "measured", lambda *rest: pytest.fail("it began"))
    keep(tmp_path, SOFTMAX, a_result(SOFTMAX, tmp_path, ansor=1.0, numpy=2.0), a_run())
    place = tmp_path / cpu_kept.FILE
    document = json.loads(place.read_text())
    document["results"][0] |= change
    place.write_text(json.dumps(document))
    for option in ([], ["--table"]):
        assert main(["--log-dir", str(tmp_path), *option]) == 2
        assert "is not of this version's form" in capsys.readouterr().err


def test_the_other_tuners_python_is_for_measuring_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--log-dir", str(tmp_path), "--tvm-python", "python3"]
    assert main(where) == 2
    assert "add --metaschedule" in capsys.readouterr().err
    assert main([*where, "--table"]) == 2
    assert "leave out --tvm-python" in capsys.readouterr().err


@pytest.mark.parametrize("name", [cpu_kept.FILE, "speed.svg", f"{SOFTMAX.name}.log.json"])
def test_rows_are_not_written_over_what_later_runs_go_on_with(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, SOFTMAX, a_result(SOFTMAX, tmp_path, ansor=1.0, numpy=2.0), a_run())
    place = tmp_path / name
    before = place.read_text() if place.exists() else None
    assert main(["--log-dir", str(tmp_path), "--table", "--json", str(place)]) == 2
    assert "name another" in capsys.readouterr().err
    assert (place.read_text() if place.exists() else None) == before


def test_a_table_of_other_threads_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, SOFTMAX, a_result(SOFTMAX, tmp_path, ansor=1.0, numpy=2.0), a_run())
    assert main(["--log-dir", str(tmp_path), "--table", "--threads", "1"]) == 2
    assert "the rows are of 2 threads, not of 1" in capsys.readouterr().err


def test_rows_that_cannot_be_read_are_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / cpu_kept.FILE
    place.mkdir()
    assert main(["--log-dir", str(tmp_path), "--table"]) == 2
    assert f"{place} cannot be read" in capsys.readouterr().err
    place.rmdir()
    place.write_bytes(b" " * 1000 + b"\xff")
    assert main(["--log-dir", str(tmp_path), "--table"]) == 2
    assert len(capsys.readouterr().err) < 400, "what the file holds is no part of the message"


def test_a_table_of_everything_is_made_by_several_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(bench: Bench, case: Case, folder: Path, *rest: object) -> Any:
        return a_result(case, folder, ansor=1.0, numpy=3.0) if case.workload == "softmax" else None

    monkeypatch.setattr(bench_cpu, "measured", measured)
    monkeypatch.setattr(cpu_run, "commit", lambda: "abc+")
    where = ["--log-dir", str(tmp_path), "--threads", "1"]
    for case in (SOFTMAX, NORM, CASES["softmax-1024x1024"]):
        main([*where, "--ops", case.name])
    assert SOFTMAX.name not in capsys.readouterr().out.split("softmax-1024x1024: speed")[1]
    monkeypatch.setattr(bench_cpu, "measured", lambda *rest: pytest.fail("it measures"))
    assert main([*where, "--table"]) == 1
    printed = capsys.readouterr().out
    for words in (
        f"{SOFTMAX.name}: speed",
        "softmax-1024x1024: speed",
        f"{NORM.name}: failed",
        f"all but {len(CASES) - 3} of {len(CASES)} operations",
        "state abc+: 2 of 2 operations",
    ):
        assert words in printed
    main([*where, "--table", "--ops", SOFTMAX.name])
    assert "softmax-1024x1024: speed" not in capsys.readouterr().out


def test_what_the_other_tuner_failed_at_is_shown_by_every_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = a_result(SOFTMAX, tmp_path, 120.0, ansor=1.0, numpy=3.0, MetaSchedule=1.5)
    lost = a_result(NORM, tmp_path, ansor=1.0, numpy=3.0)
    skipped = {**lost.measured.skipped, "MetaSchedule": "it has no norm"}
    lost = replace(lost, measured=replace(lost.measured, skipped=skipped))
    found = {SOFTMAX: good, NORM: lost}
    monkeypatch.setattr(bench_cpu, "measured", lambda bench, case, *rest: found[case])
    monkeypatch.setattr(cpu_metaschedule, "check", lambda python: "tvm 7")
    command = ["--ops", f"{SOFTMAX.name},{NORM.name}", "--log-dir", str(tmp_path)]
    for option in (["--metaschedule"], ["--table"]):
        rows = tmp_path / f"{option[0]}.json"
        assert main([*command, *option, "--json", str(rows)]) == 1
        by_name = {row["name"]: row for row in json.loads(rows.read_text())}
        failed = by_name[f"{NORM.name}: MetaSchedule failed"]
        assert (failed["holds"], failed["peer"]) == (False, "it has no norm")
        mean = by_name["everything: geometric mean of speeds over MetaSchedule"]
        assert mean["peer"] == "1 of 2 operations"
        assert "not compared with MetaSchedule" not in capsys.readouterr().out
    assert main(["--ops", NORM.name, "--log-dir", str(tmp_path), "--table"]) == 1
    assert "not compared with MetaSchedule" not in capsys.readouterr().out


def test_the_file_of_rows_has_every_figure_of_each_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same as the folder keeps, whether the rows are measured or shown again."""
    rows = tmp_path / "rows.json"
    monkeypatch.setattr(
        bench_cpu, "measured", lambda bench, case, folder, *rest: a_result(case, folder, ansor=1.0, numpy=3.0)
    )
    command = ["--ops", SOFTMAX.name, "--log-dir", str(tmp_path), "--threads", "1", "--json", str(rows)]
    for option in ([], ["--table"]):
        main([*command, *option])
        (found,) = (row["figures"] for row in json.loads(rows.read_text()) if row["figures"])
        assert found == json.loads((tmp_path / cpu_kept.FILE).read_text())["results"][0]
        assert found["seconds"] == {PEAK: 1.05, "ansor": 1.05, "numpy": pytest.approx(3.15)}
        assert (found["trials"], found["weights"], found["quiet"]) == (8, "only ours packed", [0.9, 1.0])
        assert {"limit", "limit_seconds", "share", "speed", "goal"} <= found.keys()
        assert found["run"].keys() == {"commit", "date", "quick", "surroundings"}


def test_a_reader_who_has_seen_enough_loses_no_rows_and_is_no_success(tmp_path: Path) -> None:
    one = a_result(SOFTMAX, tmp_path, ansor=1.0, numpy=3.0)
    measured = replace(one.measured, quiet=[1.0])
    keep(tmp_path, SOFTMAX, replace(one, measured=measured, limit=Limit(0.5, 1.0, 1.0)), a_run())
    rows = tmp_path / "rows.json"
    where = ["--log-dir", str(tmp_path), "--table", "--ops", SOFTMAX.name, "--json", str(rows)]
    assert main(where) == 0
    told = rows.read_text()
    rows.unlink()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "experiments.bench_cpu", *where]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, rows.read_text()) == (1, told)
    assert "error" not in done.stderr


def test_rows_are_kept_before_they_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(*rest: object) -> None:
        raise BrokenPipeError

    one = a_result(SOFTMAX, tmp_path, ansor=1.0, numpy=3.0)
    monkeypatch.setattr(bench_cpu, "measured", lambda *rest: one)
    monkeypatch.setattr(bench_cpu, "add_rows", unread)
    with pytest.raises(BrokenPipeError):
        main(["--ops", SOFTMAX.name, "--log-dir", str(tmp_path)])
    assert [one.case for one in read(tmp_path).results] == [SOFTMAX]


def test_the_help_tells_where_figures_and_chart_lie(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert cpu_kept.FILE in told
    assert bench_cpu.CHART in told


def test_ctrl_c_keeps_the_rows_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(bench: Bench, case: Case, folder: Path, *rest: object) -> Any:
        if case is NORM:
            raise KeyboardInterrupt
        return a_result(case, folder, ansor=1.0, numpy=3.0)

    monkeypatch.setattr(bench_cpu, "measured", measured)
    assert main(["--ops", f"{SOFTMAX.name},{NORM.name}", "--log-dir", str(tmp_path)]) == 130
    assert f"interrupted; logs and rows are kept in {tmp_path}" in capsys.readouterr().err
    assert [one.case for one in read(tmp_path).results] == [SOFTMAX]


def test_two_runs_do_not_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would disturb each other's timing; looking at what there is disturbs nothing."""
    again: list[int] = []

    def measured(bench: Bench, case: Case, folder: Path, *rest: object) -> Any:
        again.extend([main(command), main([*command, "--table"])])
        return a_result(case, folder, ansor=1.0, numpy=3.0)

    monkeypatch.setattr(bench_cpu, "measured", measured)
    keep(tmp_path, SOFTMAX, None, Run.now(False, 1))
    command = ["--ops", SOFTMAX.name, "--log-dir", str(tmp_path), "--threads", "1"]
    assert main(command) != 2
    assert again == [2, 1]
    assert f"another run is measuring into {tmp_path}" in capsys.readouterr().err


def test_a_table_of_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--table", "--log-dir", str(tmp_path)]
    assert main(where) == 2
    keep(tmp_path, SOFTMAX, a_result(SOFTMAX, tmp_path, ansor=1.0), a_run())
    assert main([*where, "--ops", NORM.name]) == 2
    assert capsys.readouterr().err.count(f"{tmp_path} holds no row of what was asked for") == 2
    assert main(where) == 1


def test_a_table_leaves_no_folder_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search_runs, "OUT", tmp_path / "out")
    for where in (["--log-dir", str(tmp_path / "none" / "there")], []):
        assert main(["--table", *where]) == 2
        assert "holds no row of what was asked for" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_measured_elsewhere_can_be_shown_here(tmp_path: Path) -> None:
    keep(tmp_path, SOFTMAX, a_result(SOFTMAX, tmp_path, ansor=1.0), a_run(machine="there"))
    assert main(["--log-dir", str(tmp_path)]) == 2
    assert main(["--log-dir", str(tmp_path), "--table"]) != 2


def test_goals_beside_the_other_tuner_are_in_results_and_table(tmp_path: Path) -> None:
    """The speed of its winner is to be passed by a tenth in half its time; a killed run has no time."""
    one = a_result(SOFTMAX, tmp_path, 120.0, ansor=1.0, numpy=3.0, MetaSchedule=1.5)
    near = a_result(NORM, tmp_path, 20.0, ansor=1.0, numpy=3.0, MetaSchedule=0.5)
    written = one.to_json()["metaschedule"]
    assert written["speed"] == pytest.approx(1.5)
    assert (written["goal"], written["goal_is"], written["tuning_time"]) == (1.1, "stated", 0.25)
    assert near.to_json()["metaschedule"]["goal"] == pytest.approx(0.97 * 0.525 / 0.5)
    killed = replace(one, tuned=replace(one.tuned, seconds=None))
    assert killed.to_json()["metaschedule"]["tuning_time"] is None
    text = cpu_table.details([one, killed])
    assert "over MetaSchedule  its goal  its time" in text
    bench = Bench("", [])
    add_means(bench, [one, near], [SOFTMAX, NORM])
    found = {row.name.partition(": ")[2]: (row.value, row.holds) for row in bench.rows}
    assert found["geometric mean of speeds over MetaSchedule"][0] == pytest.approx(0.75**0.5)
    assert found["as fast as asked for beside MetaSchedule"] == (0.5, False)
    assert found["tuned in 0.5 of MetaSchedule's time"] == (0.5, False)
    alone = a_result(SOFTMAX, tmp_path, ansor=1.0, numpy=3.0)
    assert alone.to_json()["metaschedule"] is None
    assert "over MetaSchedule" not in cpu_table.details([alone])


def test_the_state_of_the_sources_is_named() -> None:
    cpu_run.commit.cache_clear()
    run = Run.now(quick=True, threads=3)
    assert run.surroundings["threads"] == "3"
    assert run.state.endswith(" quick")
    assert run.place.endswith("threads: 3")
    assert Run("", "", False, {}).state == "no commit"
