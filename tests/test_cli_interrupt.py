"""The real thing, in a process of its own: tune, interrupt as a terminal does, resume, fetch the best."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from measure import load_records

ROOT = Path(__file__).parent.parent
TASK = ("matmul_add", "48", "48", "48")
AT_RANDOM = (*TASK, "--policy", "random")
"""Where it does not matter what is searched: that takes no time."""


def ansor(*words: str, cwd: Path, mark: str = "") -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ANSOR_TEST_MARK": mark}
    return subprocess.Popen(
        [sys.executable, "-m", "ansor", *words],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def marked_processes(mark: str) -> list[int]:
    """Processes that carry the mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def wait_for(condition: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def lines(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="needs /proc to look for processes left over"
)
def test_ctrl_c_keeps_the_log_leaves_no_process_and_the_run_goes_on(tmp_path: Path) -> None:
    log, mark = tmp_path / "x.json", f"mark-{uuid.uuid4()}"
    running = ansor(
        "tune", *TASK, "--trials", "5000", "--round", "16", "--log", str(log), cwd=tmp_path, mark=mark
    )
    wait_for(lambda: lines(log) >= 3)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert f"stopped: interrupted; what was measured is kept in {log}: the same run goes on from there" in err
    assert "Traceback" not in out + err
    wait_for(lambda: not marked_processes(mark))
    measured = len(list(load_records(log)))
    assert measured >= 3

    again = ansor("tune", *TASK, "--trials", "2", "--log", str(log), "--json", "--quiet", cwd=tmp_path)
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    result = json.loads(out)
    assert (result["trials"], result["known_trials"]) == (2, measured + 2)
    records = list(load_records(log))
    assert len(records) == measured + 2
    assert len({json.dumps(inp.state.steps_json) for inp, _ in records}) == measured + 2  # type: ignore[union-attr]


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="needs /proc to look for processes left over"
)
def test_kill_9_loses_the_trial_in_flight_only_and_leaves_no_process(tmp_path: Path) -> None:
    log, mark = tmp_path / "x.json", f"mark-{uuid.uuid4()}"
    running = ansor("tune", *TASK, "--trials", "5000", "--log", str(log), cwd=tmp_path, mark=mark)
    wait_for(lambda: lines(log) >= 3)
    running.kill()
    running.communicate(timeout=60)
    wait_for(lambda: not marked_processes(mark))
    measured = len(list(load_records(log)))
    with log.open("a") as file:
        file.write(log.read_text().splitlines()[0][:80])  # As if killed in mid-write.
    again = ansor("tune", *TASK, "--trials", "1", "--log", str(log), "--json", "--quiet", cwd=tmp_path)
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert json.loads(out)["known_trials"] == measured + 1 == len(list(load_records(log)))


def test_the_code_of_the_best_is_a_program(tmp_path: Path) -> None:
    log = tmp_path / "x.json"
    tuned = ansor("tune", *AT_RANDOM, "--trials", "2", "--log", str(log), "--quiet", cwd=tmp_path)
    _, err = tuned.communicate(timeout=120)
    assert tuned.returncode == 0, err
    best = ansor("best", str(log), *TASK, "--code", cwd=tmp_path)
    code, err = best.communicate(timeout=60)
    assert best.returncode == 0, err
    check = (
        f"{code}\nimport numpy as np, ansor\nx = np.ones((48, 48), np.float32)\n"
        "assert (ansor.build(s, tensors)(x, x, x) == 49).all()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", check], check=True, env=environment, cwd=tmp_path)


def temporary_folders(folder: Path) -> list[Path]:
    return list(folder.glob("ansor-*"))


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="needs /proc to look for processes left over"
)
@pytest.mark.parametrize(
    ("sent", "times"), [(signal.SIGTERM, 1), (signal.SIGHUP, 1), (signal.SIGINT, 4)], ids=str
)
def test_every_way_to_be_stopped_ends_as_ctrl_c_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, times: int
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    log, mark = tmp_path / "x.json", f"mark-{uuid.uuid4()}"
    running = ansor("tune", *AT_RANDOM, "--trials", "5000", "--log", str(log), cwd=tmp_path, mark=mark)
    wait_for(lambda: lines(log) >= 2)
    assert temporary_folders(tmp_path)
    for _ in range(times):
        running.send_signal(sent)
        time.sleep(0.01)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Traceback" not in out + err
    assert "stopped: interrupted; what was measured is kept" in err
    assert not temporary_folders(tmp_path)
    wait_for(lambda: not marked_processes(mark))


INTERRUPTS = """
import signal, sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "llvmlite":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Slow())
"""
"""A start of Python in which Ctrl-C is pressed while a library is being loaded."""


@pytest.mark.parametrize(
    "words", [("ansor", "workloads"), ("experiments.bench_cpu",), ("experiments.demo",)], ids=str
)
def test_ctrl_c_while_loading_is_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_benchmark_that_is_interrupted_puts_away_what_it_has(tmp_path: Path) -> None:
    """`ansor bench` waits for its last words, and says none of its own."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").write_text("")
    (tmp_path / "experiments" / "bench_slow.py").write_text(
        "import time\n"
        "from ansor.command import Command\n"
        "def main():\n"
        "    try:\n"
        "        print('begun', flush=True)\n"
        "        time.sleep(600)\n"
        "    except KeyboardInterrupt:\n"
        "        time.sleep(1)\n"
        "        print('rows are kept')\n"
        "        return 130\n"
        "command = Command()\n"
        "command.take_signals()\n"
        "command.run(main)\n"
    )
    code = (
        "import sys, pathlib, search.cli.bench\n"
        f"search.cli.bench.source_tree = lambda: pathlib.Path({str(tmp_path)!r})\n"
        "from ansor.__main__ import main\n"
        "sys.argv = ['ansor', 'bench', 'slow']\n"
        "main()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, "rows are kept\n", "")


def run_module(code: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    (cwd / "script.py").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "script"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_exit_code_is_the_same_wherever_the_interrupt_was_raised(tmp_path: Path) -> None:
    """Python has its own way to end after one that left an executed string, as libraries have while loading;
    what is to be done at the end is done."""
    code = (
        "import atexit, signal, sys, search.cli.main\n"
        "def run(words):\n"
        "    atexit.register(print, 'put away')\n"
        "    exec('signal.raise_signal(signal.SIGINT)')\n"
        "search.cli.main.run = run\n"
        "from ansor.__main__ import main\n"
        "main()\n"
    )
    done = run_module(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "put away\n", "interrupted\n")


def test_a_tuning_script_goes_on_after_ctrl_c(tmp_path: Path) -> None:
    """Without the command line: the result is there, and says where what was measured is."""
    code = (
        "import os, signal, ansor\n"
        "from ansor import te\n"
        "class Stop(ansor.MeasureCallback):\n"
        "    def callback(self, policy, inputs, results):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "@ansor.register_workload\n"
        "def double(n):\n"
        "    x = te.placeholder((n,), name='X')\n"
        "    return [x, te.compute((n,), lambda i: x[i] * 2, name='Y')]\n"
        "task = ansor.SearchTask(func=double, args=(64,))\n"
        "for logs in ([ansor.RecordToFile('x.json')], []):\n"
        "    options = ansor.TuningOptions(100, verbose=0, measure_callbacks=[*logs, Stop()])\n"
        "    print(task.tune(options).message)\n"
    )
    done = run_module(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "interrupted; what was measured is kept in x.json: the same run goes on from there",
        "interrupted; what was measured is in the result, and in no log",
    ]
    assert lines(tmp_path / "x.json") >= 1


def test_a_second_tuner_of_a_log_says_so_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "x.json"
    first = ansor("tune", *AT_RANDOM, "--trials", "5000", "--log", str(log), cwd=tmp_path)
    wait_for(lambda: lines(log) >= 2)
    second = ansor("tune", *AT_RANDOM, "--trials", "1", "--log", str(log), "--quiet", cwd=tmp_path)
    _, err = second.communicate(timeout=60)
    first.terminate()
    first.communicate(timeout=60)
    assert second.returncode == 0
    assert "another process is tuning into the log" in err
    list(load_records(log))
