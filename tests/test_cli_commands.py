"""The command line: what it prints, the exit codes, and what becomes of mistakes. Measuring is faked."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.task import registry
from measure import (
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    ProgramBuilder,
    ProgramMeasurer,
    ProgramRunner,
    load_records,
)
from search import TuningOptions, search_task
from search.cli.main import run
from search.cli.workload import parse_value

ROOT = Path(__file__).parent.parent

NET = '''
"""A user's file; the helper beside it must be importable."""
import helper
import ansor
from ansor import te

@ansor.register_workload
def layer(n, relu=False):
    x = te.placeholder((n,), name="X")
    def f(i):
        return te.maximum(x[i], te.const(0.0, "float32")) if relu else helper.double(x[i])
    return [x, te.compute((n,), f, name="Y")]

def plain(n):
    x = te.placeholder((n, n), name="X")
    return [x, te.compute((n, n), lambda i, j: x[i, j] * x[j, i], name="Y")]

def broken(n):
    assert n % 2 == 0, "n is odd"
    return [1 // 0]

def roots(n):
    import math
    x = te.placeholder((n,), name="X")
    return [x, te.compute((n,), lambda i: math.sqrt(x[i]), name="Y")]

def ends(n):
    raise SystemExit(0)
'''


class Fake(ProgramBuilder, ProgramRunner):
    """A builder and runner in one; a run slower than the last each time, or a failure."""

    n_parallel = 1

    def __init__(self, error: MeasureErrorNo = MeasureErrorNo.NO_ERROR) -> None:
        self.error = error
        self.count = 0
        self.interrupt_at = -1

    def build_each(self, inputs: Sequence[MeasureInput]) -> Iterator[BuildResult]:
        return (BuildResult(b"") for _ in inputs)

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for _ in inputs:
            if self.count == self.interrupt_at:
                raise KeyboardInterrupt
            self.count += 1
            if self.error is MeasureErrorNo.NO_ERROR:
                yield MeasureResult((1e-3 * self.count,), all_cost=0.1)  # type: ignore[arg-type]
            else:
                yield MeasureResult.failed(self.error, "no luck", 0.1, 1)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    chosen = Fake()

    @contextmanager
    def measurer(options: TuningOptions) -> Iterator[ProgramMeasurer]:
        yield ProgramMeasurer(chosen, chosen, options.measure_callbacks or (), max_continuous_error=None)

    monkeypatch.setattr(search_task, "open_measurer", measurer)
    monkeypatch.setattr(registry, "_FUNCTIONS", dict(registry._FUNCTIONS))
    monkeypatch.chdir(tmp_path)
    return chosen


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "helper.py").write_text("def double(x):\n    return x * 2.0\n")
    return str(tmp_path / "net.py")


def test_tune_logs_reports_and_resumes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["tune", "matmul", "16", "16", "16", "--trials", "3"]) == 0
    out = capsys.readouterr()
    log = tmp_path / "matmul-16-16-16.log.json"
    assert "best: 0.00819 GFLOP/s (1.00 ms), 1 repeat; log: " in out.out
    assert f"ansor best {log.name} matmul 16 16 16 --code" in out.out
    assert "tuning matmul(16, 16, 16): 3 trials" in out.err
    assert "round 1: 3/3 trials, best 0.00819 GFLOP/s (1.00 ms), errors 0" in out.err
    assert run(["tune", "matmul", "16", "16", "16", "--trials", "2", "--json", "--quiet"]) == 0
    out = capsys.readouterr()
    result = json.loads(out.out)
    assert out.err == ""
    assert (result["trials"], result["known_trials"]) == (2, 5)
    assert result["workload"] == ["ansor.matmul", 16, 16, 16]
    assert result["best_seconds"] == 0.001
    assert result["stop"] == "all trials done"
    assert len(list(load_records(log))) == 5


def test_the_command_that_tune_names_shows_its_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "my log.json"
    words = ["matmul", "16", "16", "16", "--target", "llvm -num-cores=1"]
    assert run(["tune", *words, "--log", str(log), "--trials", "1"]) == 0
    _, command = capsys.readouterr().out.split("its code: ansor ")
    assert run(shlex.split(command)) == 0
    assert "create_schedule" in capsys.readouterr().out


def test_tune_tells_more_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "matmul", "16", "16", "16", "--trials", "2", "-vv"]) == 0
    told = capsys.readouterr().err
    assert "sketch 0: MultiLevelTiling(C)" in told
    assert "outcomes: 2 valid" in told


def test_a_search_starts_from_a_log_of_another_size(capsys: pytest.CaptureFixture[str]) -> None:
    run(["tune", "matmul", "16", "16", "16", "--trials", "2", "--log", "x.json", "--quiet"])
    words = ["tune", "matmul", "32", "16", "16", "--log", "y.json", "--trials", "1"]
    assert run([*words, "--warm-start", "x.json"]) == 0
    task = ansor.SearchTask("ansor.matmul", (32, 16, 16))
    first = ansor.WarmStart("x.json").candidates(task)[0]
    ((inp, _),) = load_records("y.json")
    assert inp.state.steps == first.steps
    assert run([*words, "--warm-start", "nothing.json"]) == 2
    assert "nothing.json" in capsys.readouterr().err


TEMPLATE = """
import ansor
from ansor import te


@ansor.template("tests.cli_doubling", override=True)
def doubling(cfg, n, dtype="float32"):
    a = te.placeholder((n,), dtype, name="A")
    b = te.compute((n,), lambda i: a[i] + a[i], name="B")
    s = te.create_schedule(b)
    cfg.define_split("tile", b.op.axis[0])
    cfg["tile"].apply(s, b, b.op.axis[0])
    return s, [a, b]
"""


@pytest.mark.parametrize("policy", [None, "sketch", "empty", "grid", "random", "ga", "xgb"])
def test_templates_are_tuned_and_shown(
    policy: str | None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(TEMPLATE.replace("cli_doubling", f"cli_doubling_{policy}"))
    words = [f"{tmp_path / 'mine.py'}:doubling", "16"]
    chosen = ["--policy", policy] if policy else []
    assert run(["tune", *words, *chosen, "--trials", "1", "--log", "x.json", "--quiet"]) == 0
    ((inp, _),) = load_records("x.json")
    assert json.loads(inp.task.workload_key) == [f"tests.cli_doubling_{policy}", 16]
    capsys.readouterr()
    assert run(["best", "x.json", *words]) == 0
    shown = capsys.readouterr().out.splitlines()
    tuned = policy not in ("sketch", "empty")
    assert shown[1].startswith("configuration ") is tuned
    other = [words[0], "32", *chosen]
    assert run(["tune", *other, "--trials", "1", "--log", "y.json", "--warm-start", "x.json", "--quiet"]) == 0
    if policy == "grid":
        assert shown[1] == "configuration 0: tile=[16, 1]"
        capsys.readouterr()
        assert run(["best", "y.json", words[0], "32", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["configuration"] == "tile=[32, 1]"


def test_templates_are_among_what_a_file_defines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEMPLATE.replace("cli_doubling", "cli_named"))
    assert run(["tune", f"{tmp_path / 'mine.py'}:nofn", "16"]) == 1
    assert "has no function 'nofn'; it defines doubling" in capsys.readouterr().err


def test_a_tuner_wants_a_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "matmul", "8", "8", "8", "--policy", "ga", "--trials", "1"]) == 1
    assert "matmul(8, 8, 8) is none; use one of sketch, random, empty" in capsys.readouterr().err


def test_random_search_is_a_policy_of_any_workload(tmp_path: Path) -> None:
    """It measures what a search with random scores does."""
    words = ["tune", "matmul", "16", "16", "16", "--trials", "3", "--seed", "4", "--quiet"]
    for policy in ("random", "sketch"):
        assert run([*words, "--policy", policy, "--log", f"{policy}.json"]) == 0
    task = ansor.SearchTask("ansor.matmul", (16, 16, 16))
    policy = ansor.SketchPolicy(task, ansor.RandomModel(), seed=4)
    expected = [ansor.program_key(state) for state in policy.propose(0, 64, ansor.History()).states[:3]]
    random, sketch = (
        [ansor.program_key(inp.state.replay(task.compute_dag)) for inp, _ in load_records(log)]
        for log in ("random.json", "sketch.json")
    )
    assert random == expected != sketch


def test_best_lists_tasks_and_shows_programs(capsys: pytest.CaptureFixture[str], net: str) -> None:
    run(["tune", "matmul", "16", "16", "16", "--trials", "2", "--log", "x.json", "--quiet"])
    run(["tune", f"{net}:layer", "64", "relu=true", "--trials", "1", "--log", "x.json", "--quiet"])
    capsys.readouterr()
    assert run(["best", "x.json"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("matmul(16, 16, 16)  0.00819 GFLOP/s (1.00 ms), 1 repeat  2 trials  [")
    assert second.startswith("layer(64, True)")
    assert run(["best", "x.json", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["workload"][0] for row in rows] == ["ansor.matmul", "layer"]
    assert run(["best", "x.json", "matmul", "16", "16", "16"]) == 0
    shown = capsys.readouterr().out
    assert "Placeholder: A, B" in shown
    task = ansor.SearchTask("ansor.matmul", (16, 16, 16))
    built = ansor.build(*task.apply_best("x.json"), target=task.target)
    assert shown.rstrip().endswith(built.get_source("nest"))
    assert run(["best", "x.json", "matmul", "16", "16", "16", "--code"]) == 0
    code = capsys.readouterr().out
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert str(scope["s"].state.with_bounds())


def test_a_file_is_loaded_once_for_a_command(capsys: pytest.CaptureFixture[str], net: str) -> None:
    """A second time what it registers would be refused."""
    words = [f"{net}:layer", "64", "relu=true"]
    for command in (["tune", *words, "--trials", "1", "--log", "x.json"], ["best", "x.json", *words]):
        registry._FUNCTIONS.pop("layer", None)
        assert run(command) == 0
    assert "layer(64, True)" in capsys.readouterr().out


def test_explain_prints_the_features_of_the_best_program(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["x.json", "matmul", "16", "16", "16"]
    run(["tune", *words[1:], "--trials", "2", "--log", "x.json", "--quiet"])
    capsys.readouterr()
    assert run(["explain", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "matmul(16, 16, 16): measured 0.00819 GFLOP/s (1.00 ms), 1 repeat (trial 1, x.json:1)"
    assert "  float_mad" in [line.partition("   ")[0] for line in lines]
    assert lines[-1].startswith("the program: ")
    assert run(["explain", *words, "--descriptions"]) == 0
    assert "flag: " in capsys.readouterr().out
    assert run(["explain", *words, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["statements"] == ["C"]
    (mads,) = [row for row in table["features"] if row["name"] == "float_mad"]
    assert (mads["unit"], mads["values"]) == ("operations", [16.0**3])
    assert len(table["estimated_seconds"]["seconds"]) == 1
    assert run(["explain", "x.json", "matmul", "8", "8", "8"]) == 1
    assert "no usable record for matmul(8, 8, 8)" in capsys.readouterr().err


def test_explain_and_best_are_about_the_same_record_under_a_layout_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["dense", "16", "16", "16"]
    for option, seed in (("0", "1"), ("2", "2")):
        more = ["--layout-rewrite-option", option, "--seed", seed]
        run(["tune", *words, "--trials", "2", "--log", "x.json", "--quiet", *more])
    capsys.readouterr()
    found = []
    for option in ("0", "2"):
        for command in ("best", "explain"):
            assert run([command, "x.json", *words, "--layout-rewrite-option", option, "--json"]) == 0
            shown = json.loads(capsys.readouterr().out)
            found.append((shown["layout_rewrite_option"], shown["line"]))
    assert found == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert run(["explain", "x.json", *words, "--layout-rewrite-option", "2"]) == 0
    assert "layout_rewrite_option 2, measured under 2" in capsys.readouterr().out.splitlines()[1]
    assert run(["best", "x.json", *words, "--layout-rewrite-option", "1"]) == 0
    shown = capsys.readouterr()
    assert "layout_rewrite_option 1, measured under 0" in shown.out


def test_best_says_what_the_log_holds_instead(capsys: pytest.CaptureFixture[str]) -> None:
    run(["tune", "matmul", "16", "16", "16", "--trials", "1", "--log", "x.json", "--quiet"])
    capsys.readouterr()
    assert run(["best", "x.json", "matmul", "32", "32", "32"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: no usable record for matmul(32, 32, 32)")
    assert "its 1 record is for matmul(16, 16, 16)" in err


def test_a_function_called_like_one_of_the_catalogue_is_told_from_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from ansor import te\n"
        "def matmul(n):\n"
        "    x = te.placeholder((n,), name='X')\n"
        "    return [x, te.compute((n,), lambda i: x[i] * 2.0, name='Y')]\n"
    )
    ours, catalogues = [f"{own}:matmul", "16"], ["matmul", "16", "16", "16"]
    named = "ansor.matmul is the catalogue's, matmul another function"
    run(["tune", *ours, "--trials", "1", "--log", "own.json", "--quiet"])
    run(["tune", *catalogues, "--trials", "1", "--log", "catalogue.json", "--quiet"])
    capsys.readouterr()
    assert run(["best", "own.json", *catalogues]) == 1
    err = capsys.readouterr().err
    assert "no usable record for ansor.matmul(16, 16, 16) on" in err
    assert f"its 1 record is for matmul(16); {named}" in err
    assert run(["best", "catalogue.json", *ours]) == 1
    err = capsys.readouterr().err
    assert "no usable record for matmul(16) on" in err
    assert f"its 1 record is for ansor.matmul(16, 16, 16); {named}" in err


def test_functions_that_call_themselves_alike_share_no_records(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = tmp_path / "made.py"
    made.write_text(
        "from ansor import te\n"
        "def make(factor):\n"
        "    def layer(n):\n"
        "        x = te.placeholder((n,), name='X')\n"
        "        return [x, te.compute((n,), lambda i: x[i] * factor, name='Y')]\n"
        "    return layer\n"
        "double, triple = make(2.0), make(3.0)\n"
    )
    assert run(["tune", f"{made}:double", "16", "--trials", "1", "--quiet"]) == 0
    assert Path("double-16.log.json").exists()
    capsys.readouterr()
    assert run(["best", "double-16.log.json", f"{made}:triple", "16"]) == 1
    assert "its 1 record is for double(16)" in capsys.readouterr().err


def test_show_prints_computation_and_sketches(capsys: pytest.CaptureFixture[str], net: str) -> None:
    assert run(["show", "matmul_add", "64", "64", "64"]) == 0
    out = capsys.readouterr().out
    assert "matmul(i, j) += (A[i, k]*B[k, j])" in out
    assert "sketch 0: MultiLevelTilingWithFusion(matmul)" in out
    assert run(["show", f"{net}:plain", "8", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["workload"] == ["plain", 8]
    assert data["sketches"]


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["max_pool2d"], "WindowTiling(Pool)"),
        (["dense", "8", "8", "8", "--layout-rewrite-option", "1"], "MultiLevelTiling"),
    ],
)
def test_show_prints_what_tune_searches(
    words: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", *words]) == 0
    _, _, space = capsys.readouterr().out.partition("sketch 0: ")
    assert rule in space
    assert run(["tune", *words, "--trials", "1", "--log", "x.json", "-vv"]) == 0
    assert f"sketch 0: {space.rstrip()}\n" in capsys.readouterr().err
    assert run(["show", *words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["configurations"] is None
    text = [f"sketch {n}: {one['rules']}\n{one['loops']}\n" for n, one in enumerate(shown["sketches"])]
    assert "".join(text) == f"sketch 0: {space}"


def test_show_prints_the_configurations_of_a_template(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(TEMPLATE.replace("cli_doubling", "cli_shown"))
    words = [f"{tmp_path / 'mine.py'}:doubling", "4"]
    assert run(["show", *words]) == 0
    text = capsys.readouterr().out
    assert "ConfigSpace of 3 configurations\n  tile  split" in text
    assert "sketch" not in text
    assert run(["show", *words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["sketches"] == []
    assert data["configurations"] == {"tile": [[4, 1], [2, 2], [1, 4]]}
    assert run(["tune", *words, "--trials", "1", "--log", "x.json", "-vv"]) == 0
    assert "ConfigSpace of 3 configurations\n" in capsys.readouterr().err


def test_named_arguments_fill_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "matmul", "8", "8", "m=8", "dtype=float64", "--json"]) in (0, 1)
    capsys.readouterr()
    assert run(["show", "conv2d", "1", "8", "8", "4", "4", "3", "padding=1", "--json"]) == 0
    key = json.loads(capsys.readouterr().out)["workload"]
    assert key == ["ansor.conv2d", 1, 8, 8, 4, 4, 3, 1, 1]


def test_defaults_that_have_no_position_are_no_obstacle_to_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The function has them when a record is read, too; another value no record could tell."""
    (tmp_path / "own.py").write_text(
        "from ansor import te\n"
        "def layer(n, factor=2.0, *, offset=1.0):\n"
        "    x = te.placeholder((n,), name='X')\n"
        "    return [x, te.compute((n,), lambda i: x[i] * factor + offset, name='Y')]\n"
    )
    assert run(["show", "own.py:layer", "n=8", "factor=3.0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workload"] == ["layer", 8, 3.0]
    assert run(["show", "own.py:layer", "8", "offset=3.0"]) == 1
    assert "offset cannot be given by position" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[" * 20_000, "[" * 20_000 + "]" * 20_000], ids=["open", "closed"])
def test_what_is_nested_too_deeply_to_be_read_is_text(text: str) -> None:
    assert parse_value(text) == text


def test_a_name_alone_stands_for_the_benchmark_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "softmax", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["workload"]) > 1


def test_workloads_lists_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workloads"]) == 0
    assert "matmul_add(" in capsys.readouterr().out
    assert run(["workloads", "--json"]) == 0
    assert {"name", "usage", "summary", "benchmark"} <= json.loads(capsys.readouterr().out)[0].keys()


def test_a_benchmark_has_its_own_options_behind_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """They mean the same as those of its module, in the folder in which they are given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments.py").write_text("raise RuntimeError('another module of that name')\n")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "results.json").write_text("[]")
    assert run(["bench", "cpu", "--table", "--log-dir", "there"]) == 2
    assert "there/results.json is not of this version's form" in capfd.readouterr().err
    assert run(["bench", "bench_cpu", "--help"]) == 0
    assert "--metaschedule" in capfd.readouterr().out
    assert run(["bench", "cpu", "--nonsense"]) == 2
    assert "unrecognized arguments: --nonsense" in capfd.readouterr().err
    assert run(["bench", "--help"]) == 0
    assert "ansor bench NAME --help" in capfd.readouterr().out


def test_a_function_imports_when_it_is_called_as_in_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the folder of its file, and from where the file told Python to look."""
    for name in ("project", "library"):
        (tmp_path / name).mkdir()
    (tmp_path / "library" / "far_factors.py").write_text("FACTOR = 3.0\n")
    (tmp_path / "project" / "near_factors.py").write_text("FACTOR = 2.0\n")
    (tmp_path / "project" / "late.py").write_text(
        "import sys\n"
        "from ansor import te\n"
        f"sys.path.insert(0, {str(tmp_path / 'library')!r})\n"
        "def layer(n):\n"
        "    import far_factors, near_factors\n"
        "    x = te.placeholder((n,), name='X')\n"
        "    factor = far_factors.FACTOR * near_factors.FACTOR\n"
        "    return [x, te.compute((n,), lambda i: x[i] * factor, name='Y')]\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    assert run(["show", "project/late.py:layer", "8"]) == 0
    assert "6" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "matmull"], "did you mean matmul"),
        (["show", "matmul", "1", "2", "3", "4", "5", "6", "7"], "too many positional arguments"),
        (["show", "nothere.py:f"], "there is no file 'nothere.py'"),
        (["show", "net.py"], "say which function of it: net.py:FUNCTION"),
        (["show", "net.py:f"], "has no function 'f'; it defines layer, plain, broken, roots, ends"),
        (["show", "net.py:broken", "2"], "ZeroDivisionError"),
        (["show", "net.py:broken", "3"], "AssertionError: n is odd"),
        (["show", "net.py:roots", "8"], "te has functions of expressions"),
        (["show", "bad.py:f"], "cannot be loaded: SyntaxError"),
        (["show", "ends.py:f"], "ends.py cannot be loaded: SystemExit: 0 (ends.py, line 2)"),
        (["show", "net.py:ends", "8"], "net.py:ends(8) fails: SystemExit: 0"),
        (["tune", "matmul", "--target", "llvm -mcpu"], "-mcpu has no value"),
        (["tune", "matmul", "--target", "foo"], "--target 'foo': target 'foo' has the unknown kind"),
        (["show", "matmul", "-1", "1", "1"], "dimension 0 of placeholder 'A' is -1"),
        (["show", "matmul", "1e3", "8", "8"], "1e3 is a float; write 1000"),
        (["tune", "matmul", "16", "16", "16", "--target", "abacus"], "unknown kind 'abacus'"),
        (["bench", "nonsense"], "there is no benchmark 'nonsense'; there are"),
    ],
)
def test_mistakes_are_explained_without_a_traceback(
    words: list[str], message: str, net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(0)\n")
    assert run(words) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


def test_a_mistaken_target_is_not_blamed_on_a_file_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "matmul", "--target", "foo"]) == 1
    assert ".py" not in capsys.readouterr().err


def test_a_mistaken_variable_is_not_blamed_on_an_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANSOR_NUM_THREADS", "foo")
    assert run(["show", "matmul", "8", "8", "8"]) == 1
    assert (
        capsys.readouterr().err == "error: ANSOR_NUM_THREADS must be an integer from 1 to 1024, found 'foo'\n"
    )


def test_options_still_take_their_values_beside_negative_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "matmul", "-1", "8", "8", "--seed", "-1"]) == 2
    assert "-1 is not in the range" in capsys.readouterr().err
    assert run(["tune", "matmul", "8", "8", "8", "--trails", "3"]) == 2
    assert "No such option" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-v", "-vv", "--verbose", "--quiet"])
def test_a_negative_number_may_follow_an_option_without_value(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", "matmul", "8", "8", option, "-2", "--trials", "0"]) == 1
    assert "is -2; an extent is at least 1" in capsys.readouterr().err


def test_no_trials_and_no_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["tune", "matmul", "8", "8", "8", "--trials", "0"]) == 0
    out = capsys.readouterr()
    assert "ansor best" not in out.out
    assert not list(tmp_path.glob("*.json"))


def test_one_trial_is_not_trials(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["matmul", "8", "8", "8"]
    assert run(["tune", *words, "--trials", "1", "--log", "x.json", "--timeout", "2"]) == 0
    assert run(["best", "x.json"]) == 0
    out = capsys.readouterr()
    assert " 1 trials" not in out.out + out.err
    assert "1 trial  [llvm" in out.out


def test_best_tells_of_workloads_whose_keys_a_user_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    run(["tune", "matmul", "16", "16", "16", "--trials", "1", "--log", "x.json", "--quiet"])
    log = Path("x.json")
    log.write_text(log.read_text().replace('[\\"ansor.matmul\\", 16, 16, 16]', "my layer"))
    capsys.readouterr()
    assert run(["best", "x.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["workload"] == "my layer"


def test_work_is_told_in_a_unit_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "matmul", "1", "2", "2"]) == 0
    assert ", 8 FLOP\n" in capsys.readouterr().out


def test_best_leaves_out_records_whose_steps_are_unknown(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run(["tune", "matmul", "16", "16", "16", "--trials", "2", "--log", "x.json", "--quiet"])
    log = Path("x.json")
    first, *rest = log.read_text().splitlines()
    record = json.loads(first.removeprefix("# ansor "))
    record["i"][1][1].append(["XYZ", 1])
    log.write_text("\n".join([json.dumps(record), *rest]) + "\n")
    capsys.readouterr()
    assert run(["best", "x.json"]) == 0
    out = capsys.readouterr()
    assert "(2.00 ms), 1 repeat  1 trial " in out.out
    assert "x.json:1: left out: unknown transform step ['XYZ', 1]" in caplog.text


def test_best_lists_a_task_for_an_unknown_target_among_others(capsys: pytest.CaptureFixture[str]) -> None:
    run(["tune", "matmul", "16", "16", "16", "--trials", "2", "--log", "x.json", "--quiet"])
    log = Path("x.json")
    first, *rest = log.read_text().splitlines()
    record = json.loads(first.removeprefix("# ansor "))
    record["i"][0][1] = "hexagon -mcpu=v68"
    log.write_text("\n".join([json.dumps(record), *rest]) + "\n")
    capsys.readouterr()
    assert run(["best", "x.json"]) == 0
    foreign, mine = capsys.readouterr().out.splitlines()
    assert foreign.endswith("1 trial  [hexagon -mcpu=v68]")
    assert "(2.00 ms), 1 repeat  1 trial  [llvm" in mine


@pytest.mark.parametrize(
    "words", [["tune"], ["best", "missing.json"], ["tune", "matmul", "--trials", "x"], ["fly"]]
)
def test_a_command_line_that_is_not_understood_exits_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert "Usage:" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["tune", "--help"], ["best", "--help"], ["show", "--help"]):
        assert run(words) == 0
        assert "xample" in capsys.readouterr().out


def test_only_failures_exit_3(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.error = MeasureErrorNo.BUILD_TIMEOUT
    assert run(["tune", "matmul", "16", "16", "16", "--trials", "2"]) == 3
    assert "2 BUILD_TIMEOUT" in capsys.readouterr().err


def test_interruption_exits_130_and_keeps_the_log(
    fake: Fake, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake.interrupt_at = 5
    assert run(["tune", "matmul", "16", "16", "16", "--log", "x.json"]) == 130
    assert "stopped: interrupted" in capsys.readouterr().err
    assert len(list(load_records(tmp_path / "x.json"))) == 5


def test_a_broken_log_is_named_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("nonsense\n")
    assert run(["tune", "matmul", "16", "16", "16", "--log", "x.json"]) == 1
    assert "x.json:1" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["workloads"], ["--help"]])
def test_whoever_reads_the_output_may_have_seen_enough(words: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ansor", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", ["best", "explain"])
def test_a_pipe_is_no_log_to_find_one_task_in(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list of all tasks needs one reading, and is made of a pipe, too."""
    assert run(["tune", "matmul", "16", "16", "16", "--trials", "1", "--log", "x.json", "--quiet"]) == 0
    reader, writer = os.pipe()
    os.write(writer, (tmp_path / "x.json").read_bytes())
    os.close(writer)
    pipe = f"/dev/fd/{reader}"
    capsys.readouterr()
    assert run([command, pipe, "matmul", "16", "16", "16"]) == 1
    assert f"the log '{pipe}' is a pipe, which can be read only once" in capsys.readouterr().err
    with pytest.raises(ansor.DefinitionError, match="is a pipe"):
        ansor.SearchTask("ansor.matmul", (16, 16, 16)).apply_best(pipe)
    assert run(["best", pipe]) == 0
    assert "matmul(16, 16, 16)" in capsys.readouterr().out
    os.close(reader)


def test_the_best_of_a_log_may_go_to_a_pipe(tmp_path: Path) -> None:
    """Which is not read, and in which nothing else is written."""
    assert run(["tune", "matmul", "16", "16", "16", "--trials", "1", "--log", "x.json", "--quiet"]) == 0
    command = [sys.executable, "-m", "ansor", "distill", "x.json", "-o", "/dev/stdout"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, (tmp_path / "x.json").read_text())
    assert done.stderr == "/dev/stdout: the best of 1 task, from 1 record\n"


@pytest.mark.skipif(sys.platform != "linux", reason="names of files may be no text")
def test_names_of_files_may_be_no_text(tmp_path: Path) -> None:
    log = os.fsdecode(b"x\xff.json")
    assert run(["tune", "matmul", "16", "16", "16", "--trials", "1", "--log", log, "--quiet", "--json"]) == 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8:strict"}
    command = [sys.executable, "-m", "ansor", "report", log, "--no-model"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"x\xff.json.html\n", b"")
    assert "matmul(16, 16, 16)" in (tmp_path / f"{log}.html").read_text()


@pytest.mark.parametrize(
    ("closed", "words", "code"),
    [(">&-", ["workloads"], 0), ("2>&-", ["show", "matmull"], 1), (">&- 2>&-", ["show", "matmull"], 1)],
)
def test_a_stream_may_be_closed_from_the_start(
    closed: str, words: list[str], code: int, tmp_path: Path
) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "ansor", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


def test_python_m_ansor_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ansor", "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ansor, version")
