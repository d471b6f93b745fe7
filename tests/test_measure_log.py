"""Logs: v0.6 lines both ways, lenient reading, and what accidents leave behind."""

import errno
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ansor import te
from ansor.errors import DefinitionError, LogFormatError, LogWriteError, TargetError
from ansor.schedule.dag import ComputeDAG
from ansor.task.hardware import HardwareParams
from ansor.task.target import Target
from ansor.task.task import Task
from measure.records.append import RecordToFile, append_lines, save_records
from measure.records.best import load_best_record, same_target, workload_distance
from measure.records.log import (
    OWN_PREFIX,
    RecordReader,
    dump_record_to_string,
    load_record_from_string,
    load_records,
)
from measure.records.record import (
    MAX_FLOAT,
    LoggedState,
    LoggedTask,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Seconds,
    count_errors,
)

ROOT = Path(__file__).parent.parent
ORACLES = [
    folder / "data" / "tvm16_states.jsonl" for folder in (Path(__file__).parent, ROOT.parent / "shared")
]
HARDWARE = HardwareParams(8, 64, 64, 0, 0, 0, 0, 0)


def example(
    cost: float = 0.00213, key: str = '["matmul", 512, 512, 512]', target: str = "llvm -mcpu=core-avx2"
) -> tuple[MeasureInput, MeasureResult]:
    task = Task.create(None, key, target, hardware_params=HARDWARE, layout_rewrite_option=1)
    steps = (("SP", 2, 0, 512, [2, 8, 4], 1), ("AN", 2, 0, 3), ("PR", 2, 0, "auto_unroll_max_step$64"))
    return MeasureInput(task, LoggedState(steps)), MeasureResult(
        (Seconds(cost),), MeasureErrorNo.NO_ERROR, "", 0.91, 1700000000
    )


def test_line_is_the_reference_text() -> None:
    assert dump_record_to_string(*example()) == (
        '{"i": [["[\\"matmul\\", 512, 512, 512]", "llvm -keys=cpu -mcpu=core-avx2", '
        '[8, 64, 64, 0, 0, 0, 0, 0], "", 1, []], '
        '[[], [["SP", 2, 0, 512, [2, 8, 4], 1], ["AN", 2, 0, 3], ["PR", 2, 0, "auto_unroll_max_step$64"]]]], '
        '"r": [[0.00213], 0, 0.91, 1700000000], "v": "v0.6"}'
    )


def test_failure_cost_prints_as_in_the_reference() -> None:
    inp, _ = example()
    res = MeasureResult.failed(MeasureErrorNo.BUILD_TIMEOUT, "too slow", 15.0, 1700000000.7)
    line = dump_record_to_string(inp, res)
    assert '"r": [[1e+10], 6, 15, 1700000000]' in line
    assert load_record_from_string(line)[1] == res
    assert res.mean_cost == MAX_FLOAT


def test_result_equals_itself_read_back() -> None:
    inp, _ = example()
    res = MeasureResult((Seconds(0.123456789), Seconds(1 / 3)), all_cost=0.98765432, timestamp=1700000001)
    assert load_record_from_string(dump_record_to_string(inp, res))[1] == res
    assert [cost.value for cost in res.costs] == [0.123457, 0.333333]


def test_every_oracle_record_survives_the_round_trip() -> None:
    oracle = next((path for path in ORACLES if path.exists()), None)
    if oracle is None:
        pytest.skip("oracle data is not there")
    count = 0
    for line in oracle.read_text().splitlines():
        record = json.loads(line).get("record")
        if record is None:
            continue
        text = dump_record_to_string(*load_record_from_string(json.dumps(record)))
        assert json.loads(text) == record
        count += 1
    assert count == 274


@pytest.mark.parametrize("text", ["llvm -mcpu=core-avx2 -keys=cpu", "hexagon -mcpu=v68"])
def test_a_logged_task_is_the_same_task(text: str) -> None:
    """However its target was written; one that is not known here has a name all the same."""
    inp, res = example()
    data = json.loads(dump_record_to_string(inp, res))
    data["i"][0][1] = text
    key = load_record_from_string(json.dumps(data))[0].task.key
    assert key == (inp.task.workload_key, str(inp.task.target) if "llvm" in text else text, 1)


@pytest.mark.parametrize("length", [2, 3, 5, 6])
def test_older_task_arrays_are_read_and_written_as_they_were(length: int) -> None:
    data = json.loads(dump_record_to_string(*example()))
    data["i"][0] = data["i"][0][:length]
    inp, res = load_record_from_string(json.dumps(data))
    assert json.loads(dump_record_to_string(inp, res)) == data
    assert isinstance(inp.task, LoggedTask)
    assert inp.task.to_task().hardware_params.vector_unit_bytes > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["i"][0].pop(4) and d["i"][0].pop(4), "2, 3, 5 or 6 items, found 4"),
        (lambda d: d["i"][0].__setitem__(0, 3), "workload key and target are strings"),
        (lambda d: d["i"][0].__setitem__(2, ["x"]), "array of integers"),
        (lambda d: d["i"].__setitem__(1, [[]]), "stages and steps"),
        (lambda d: d["i"][1].__setitem__(1, [[1]]), "starts with its code"),
        (lambda d: d["r"].pop(), "cost"),
        (lambda d: d["r"].__setitem__(0, ["fast"]), "finite numbers"),
        (lambda d: d.pop("r"), "keys"),
    ],
)
def test_malformed_records_are_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    data = json.loads(dump_record_to_string(*example()))
    data["i"][0][4] = 1
    change(data)
    with pytest.raises(LogFormatError, match=message):
        load_record_from_string(json.dumps(data))


def test_steps_of_ours_are_a_comment_to_others(tmp_path: Path) -> None:
    inp, res = example()
    own = MeasureInput(inp.task, LoggedState((("SCOPE", 1, "local"),)))
    strange = MeasureInput(inp.task, LoggedState((("PR", 1, 0, "prefetch$2"),)))
    log = tmp_path / "a.json"
    save_records(log, [inp, own, strange], [res, res, res])
    lines = log.read_text().splitlines()
    assert [line.startswith("# ansor {") for line in lines] == [False, True, True]
    states = [record.state for record, _ in load_records(log)]
    assert states == [inp.state, own.state, strange.state]


def test_reading_skips_comments_and_blank_lines(tmp_path: Path) -> None:
    line = dump_record_to_string(*example())
    log = tmp_path / "a.json"
    log.write_text(f"# header\n\n{line}\n indented {line}\n   \n#{line}\n{line}\n\n")
    reader = RecordReader(log)
    assert len(list(reader)) == 2
    assert reader.notes == []
    inputs, results = reader.read_lines(max_lines=1, skip_lines=1)
    assert len(inputs) == len(results) == 1
    assert reader.read_lines(skip_lines=2) == ([], [])
    assert len(reader.read_lines(max_lines=5)[0]) == 2


def test_garbage_in_the_middle_is_an_error_with_its_place(tmp_path: Path) -> None:
    line = dump_record_to_string(*example())
    log = tmp_path / "a.json"
    log.write_bytes(f"{line}\nnonsense\n{line}\n".encode())
    with pytest.raises(LogFormatError, match=r"a\.json:2: not a JSON object"):
        list(load_records(log))
    log.write_bytes(b"\xff\xfe\n" + line.encode() + b"\n")
    with pytest.raises(LogFormatError, match=r"a\.json:1"):
        list(load_records(log))


@pytest.mark.parametrize("cut", [2, 40, -1])
@pytest.mark.parametrize("prefix", ["", "# ansor "])
def test_torn_line_in_the_middle_is_skipped_with_a_note(tmp_path: Path, prefix: str, cut: int) -> None:
    line = dump_record_to_string(*example())
    log = tmp_path / "a.json"
    log.write_text(f"{line}\n{prefix}{line[:cut]}\n{line}\n")
    reader = RecordReader(log)
    assert len(list(reader)) == 2
    assert reader.line == 3
    assert "a.json:2: skipped a torn line" in reader.notes[0]


def test_record_glued_to_a_torn_line_is_read(tmp_path: Path) -> None:
    line = dump_record_to_string(*example())
    log = tmp_path / "a.json"
    log.write_text(f"{line[:90]}{line}\n{line}\n")
    reader = RecordReader(log)
    assert [res for _, res in reader] == [example()[1]] * 2
    assert "except for the whole record" in reader.notes[0]


@pytest.mark.parametrize("prefix", ["", OWN_PREFIX])
def test_a_record_glued_to_a_torn_line_outlives_an_append(tmp_path: Path, prefix: str) -> None:
    line = dump_record_to_string(*example())
    log = tmp_path / "a.json"
    log.write_text(f"{line[:90]}{prefix}{line}")
    append_lines(log, [line])
    assert log.read_text().splitlines() == [f"# torn {line[:90]}", f"{prefix}{line}", line]
    reader = RecordReader(log)
    assert [res for _, res in reader] == [example()[1]] * 2
    assert reader.notes == []


@pytest.mark.parametrize("prefix", ["", OWN_PREFIX])
def test_records_on_one_line_are_all_read(tmp_path: Path, prefix: str) -> None:
    """As where logs were joined whose last lines lack their ends; and what follows them may be torn."""
    lines = [dump_record_to_string(*example(cost)) for cost in (1e-3, 2e-3, 3e-3)]
    log = tmp_path / "a.json"
    log.write_text(f"{lines[0]}{prefix}{lines[1]}\n{lines[2]}\n")
    reader = RecordReader(log)
    assert [res.mean_cost for _, res in reader] == [1e-3, 2e-3, 3e-3]
    assert (reader.notes, reader.line) == ([], 2)
    for torn in (f"{prefix}{{", f"{prefix}{lines[2][:90]}", "# a comm"):
        log.write_text(f"{lines[0]}{prefix}{lines[1]}{torn}")
        assert [res.mean_cost for _, res in reader] == [1e-3, 2e-3]
        assert "skipped a torn last line" in reader.notes[0]
        assert "except for 2 whole records in it" in reader.notes[0]
        append_lines(log, [lines[2]])
        assert log.read_text().splitlines() == [lines[0], f"{prefix}{lines[1]}", f"# torn {torn}", lines[2]]
        assert [res.mean_cost for _, res in reader] == [1e-3, 2e-3, 3e-3]


def test_a_whole_record_of_a_later_version_is_not_torn(tmp_path: Path) -> None:
    """Whether its line has an end or not, and whatever is appended: a later version reads it."""
    line = dump_record_to_string(*example())
    later = line.replace('"v0.6"', '"v0.7"')
    log = tmp_path / "a.json"
    for text in (later, f"{line}{later}", f"{line[:90]}{later}"):
        log.write_text(text)
        with pytest.raises(LogFormatError, match=r"a\.json:1: the record's version is 'v0\.7'"):
            list(load_records(log))
        append_lines(log, [line])
        assert log.read_text().splitlines()[-2:] == [later, line]


def test_checking_a_log_touches_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process writes meanwhile stays, and its making the file is no error."""
    log, real = tmp_path / "a.json", os.open
    link = tmp_path / "link.json"
    link.symlink_to(log)

    def late(path: Any, *args: Any, **kwargs: Any) -> int:
        try:
            return real(path, *args, **kwargs)
        except FileNotFoundError:
            save_records(log, [example()[0]], [example()[1]])
            raise

    monkeypatch.setattr(os, "open", late)
    RecordToFile(link).check_writable()
    assert len(list(RecordReader(log))) == 1


@pytest.mark.parametrize("version", ["v0.7", "v0.7+disturbed=1", "v9", 6, None, "x", [], "+"])
def test_unknown_version_is_refused(version: object) -> None:
    record = json.loads(dump_record_to_string(*example()))
    record["v"] = version
    with pytest.raises(LogFormatError, match=r"versions that are known are v0\.1"):
        load_record_from_string(json.dumps(record))


def test_directory_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="is a directory"):
        RecordReader(tmp_path)


def test_second_run_on_a_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "a.json"
    with RecordToFile(log).hold() as alone, RecordToFile(log).hold() as other:
        assert (alone, other) == (True, False)
        assert "another process is tuning into the log" in caplog.text
    with RecordToFile(log).hold() as alone:
        assert alone
    assert not log.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="names of files may be no text")
def test_a_log_whose_name_is_no_text_is_held(tmp_path: Path) -> None:
    log = tmp_path / os.fsdecode(b"\xff.json")
    with RecordToFile(log).hold() as alone, RecordToFile(log).hold() as other:
        assert (alone, other) == (True, False)


def test_a_run_is_not_alone_while_any_other_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "marks").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "marks"))
    runs = [ExitStack() for _ in range(4)]

    def begins(run: int) -> bool:
        return runs[run].enter_context(RecordToFile(tmp_path / "a.json").hold())

    assert begins(0)
    assert not begins(1)
    runs[0].close()
    assert not begins(2)  # the second one goes on
    runs[1].close()
    runs[2].close()
    assert list((tmp_path / "marks").iterdir()) == []
    assert begins(3)
    runs[3].close()


def test_runs_that_begin_and_end_at_a_time_are_never_alone_together(tmp_path: Path) -> None:
    code = (
        "import os\n"
        "from measure.records.append import RecordToFile\n"
        "for _ in range(200):\n"
        "    with RecordToFile('a.json').hold() as alone:\n"
        "        if alone:\n"
        "            os.mkdir('alone')\n"
        "            os.rmdir('alone')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    runs = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) for _ in range(3)
    ]
    assert [run.wait() for run in runs] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_log_is_tried_before_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(LogWriteError, match="cannot append"):
        RecordToFile(tmp_path / "folder").check_writable()
    RecordToFile(tmp_path / "new").check_writable()
    assert not (tmp_path / "new").exists()


def test_missing_log_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="tune first"):
        RecordReader(tmp_path / "none.json")


@pytest.mark.parametrize("prefix", ["", "# ansor "])
def test_torn_last_line_costs_only_itself(tmp_path: Path, prefix: str) -> None:
    inp, res = example()
    line = dump_record_to_string(inp, res)
    log = tmp_path / "a.json"
    for cut in (len(prefix) + 1, 60, len(line) - 1):
        log.write_text(f"{line}\n{prefix}{line[:cut]}")
        reader = RecordReader(log)
        assert len(list(reader)) == 1
        assert "skipped a torn last line" in reader.notes[0]
        save_records(log, [inp], [res])
        assert len(list(load_records(log))) == 2
        assert log.read_text().splitlines()[1] == f"# torn {prefix}{line[:cut]}"


def test_complete_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    inp, res = example()
    log = tmp_path / "a.json"
    log.write_text(dump_record_to_string(inp, res))
    assert len(list(load_records(log))) == 1
    save_records(log, [inp], [res])
    assert len(list(load_records(log))) == 2


def test_each_input_has_a_result(tmp_path: Path) -> None:
    inp, res = example()
    with pytest.raises(DefinitionError, match="given 2 inputs and 1 results"):
        save_records(tmp_path / "a.json", [inp, inp], [res])
    assert not (tmp_path / "a.json").exists()


def test_torn_line_longer_than_a_block(tmp_path: Path) -> None:
    inp, res = example()
    log = tmp_path / "a.json"
    log.write_text(dump_record_to_string(inp, res) + "\n" + '{"i": "' + "x" * 200_000)
    save_records(log, [inp], [res])
    assert len(list(load_records(log))) == 2


def test_killed_in_mid_write_loses_one_line(tmp_path: Path) -> None:
    log = tmp_path / "a.json"
    save_records(log, *([item] for item in example()))
    code = (
        "import os, signal, sys\n"
        "real = os.pwrite\n"
        "def half(file, data, offset):\n"
        "    real(file, data[: len(data) // 2], offset)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.pwrite = half\n"
        "from measure.records.append import append_lines\n"
        f"append_lines({str(log)!r}, [{dump_record_to_string(*example())!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    reader = RecordReader(log)
    assert len(list(reader)) == 1
    assert reader.notes
    save_records(log, *([item] for item in example()))
    assert len(list(load_records(log))) == 2


@pytest.mark.parametrize("torn", ["", '{"i": [["x', "{"])
def test_full_disk_is_a_clear_error_and_leaves_the_log_as_it_was(tmp_path: Path, torn: str) -> None:
    log = tmp_path / "a.json"
    save_records(log, *([item] for item in example()))
    log.write_text(log.read_text() + torn)
    before = log.read_bytes()
    line = dump_record_to_string(*example())
    code = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 100}, {len(before) + 100}))\n"
        "from measure.records.append import append_lines\n"
        "from ansor.errors import LogWriteError\n"
        "try:\n"
        f"    append_lines({str(log)!r}, [{line!r}])\n"
        "except LogWriteError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "cannot append to the log" in done.stdout
    assert "File too large; the lines written before are intact: make room, then tune again" in done.stdout
    assert log.read_bytes() == before
    assert len(list(load_records(log))) == 1


def test_unwritable_log_is_a_clear_error(tmp_path: Path) -> None:
    for write in (lambda: append_lines(tmp_path, ["x"]), RecordToFile(tmp_path).check_writable):
        with pytest.raises(LogWriteError, match=r"Is a directory; name a file that can be written$"):
            write()


def test_two_writers_do_not_mix_lines(tmp_path: Path) -> None:
    log = tmp_path / "a.json"
    line = dump_record_to_string(*example())
    code = (
        f"import measure.records.append as m\nfor _ in range(25): m.append_lines({str(log)!r}, [{line!r}])\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(list(load_records(log))) == 50


def test_callback_makes_the_directory_and_appends(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "er" / "a.json"
    inp, res = example()
    callback = RecordToFile(log)
    callback.callback(None, [inp, inp], [res, res])
    callback.callback(None, [], [])
    assert len(list(load_records(log))) == 2


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogWriteError, match=r"cannot make the folder of the log '.*a.json': File exists"):
        RecordToFile(tmp_path / "file" / "a.json")


def test_a_device_takes_records(tmp_path: Path) -> None:
    callback = RecordToFile(os.devnull)
    callback.check_writable()
    inp, res = example()
    callback.callback(None, [inp], [res])
    assert list(load_records(os.devnull)) == []


def test_what_cannot_be_appended_to_is_a_clear_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LogWriteError, match=r"cannot append to the log .*pipe': Illegal seek"):
        append_lines(tmp_path / "pipe", ["x"])


def refuse_locks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(file: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_takes_records_and_a_warning_says_so_once(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_locks(monkeypatch, number)
    callback = RecordToFile(str(tmp_path / "a.json"))
    callback.check_writable()
    with callback.hold():
        for _ in range(2):
            callback.callback(None, *([one] for one in example()))
    assert len(list(load_records(tmp_path / "a.json"))) == 2
    assert caplog.text.count("its file system has no locks") == 1


def test_a_lock_that_fails_otherwise_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_locks(monkeypatch, errno.EIO)
    with pytest.raises(LogWriteError, match=r"cannot append to the log .*a.json': Input/output error"):
        append_lines(tmp_path / "a.json", ["x"])


def test_best_record_is_the_fastest_success_that_fits(tmp_path: Path) -> None:
    log = tmp_path / "a.json"
    matmul, other = '["matmul", 512, 512, 512]', '["other", 8]'
    failed = MeasureResult.failed(MeasureErrorNo.RUNTIME_DEVICE, "", 1, 1)
    for cost, key, target in (
        (3e-3, matmul, "llvm -mcpu=core-avx2"),
        (2e-3, matmul, "llvm -mcpu=core-avx2 -num-cores=4"),
        (1e-3, matmul, "cuda"),
        (1e-4, other, "llvm"),
    ):
        inp, res = example(cost, key, target)
        save_records(log, [inp, inp], [res, failed])
    assert load_best_record(log)[1].mean_cost == 1e-4  # type: ignore[union-attr]
    assert load_best_record(log, matmul)[1].mean_cost == 1e-3  # type: ignore[union-attr]
    assert load_best_record(log, matmul, "llvm")[1].mean_cost == 2e-3  # type: ignore[union-attr]
    assert load_best_record(log, matmul, "llvm -mcpu=znver4") == (None, None)
    assert load_best_record(log, '["nothing"]') == (None, None)


def test_a_task_is_no_workload_key(tmp_path: Path) -> None:
    log = tmp_path / "a.json"
    inp, res = example(1e-3, '["matmul", 512, 512, 512]')
    save_records(log, [inp], [res])
    with pytest.raises(DefinitionError, match=r"pass the key of a task, task\.workload_key"):
        load_best_record(log, inp.task)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="target 'lvm' has the unknown kind 'lvm'; use one of llvm"):
        load_best_record(log, target="lvm")


def test_compatible_sizes_count_times_their_ratio(tmp_path: Path) -> None:
    log = tmp_path / "a.json"
    for cost, key in ((1e-3, '["matmul", 256, 512, 512]'), (1.5e-3, '["matmul", 512, 512, 512]')):
        save_records(log, *([item] for item in example(cost, key)))
    wanted = '["matmul", 512, 512, 512]'
    assert load_best_record(log, wanted)[1].mean_cost == 1.5e-3  # type: ignore[union-attr]
    assert load_best_record(log, wanted, include_compatible=True)[1].mean_cost == 1.5e-3  # type: ignore[union-attr]
    larger = '["matmul", 512, 512, 1024]'
    assert load_best_record(log, larger) == (None, None)
    assert load_best_record(log, larger, include_compatible=True)[1].mean_cost == 1.5e-3  # type: ignore[union-attr]


def test_hash_only_keys_match_by_structure(tmp_path: Path) -> None:
    log = tmp_path / "a.json"
    key = '["dc29d1d0f45b6bb93e8328b9f55c70d9", [8, 4], [8, 4]]'
    fitting = LoggedState((("SP", 1, 0, 8, [2], 1),))
    for cost, state in ((2e-3, fitting), (1e-3, LoggedState((("SP", 7, 0, 8, [2], 1),)))):
        inp, res = example(cost, key)
        save_records(log, [MeasureInput(inp.task, state)], [res])
    tensors = {}
    for columns in (4, 5):
        a = te.placeholder((8, columns), name="A")
        tensors[columns] = [a, te.compute((8, columns), lambda i, j, a=a: a[i, j] + 1.0, name="B")]
    wanted = '["mine", 8, 4]'
    assert load_best_record(log, wanted) == (None, None)
    assert load_best_record(log, wanted, dag=ComputeDAG(tensors[4]))[1].mean_cost == 2e-3  # type: ignore[union-attr]
    assert load_best_record(log, wanted, dag=ComputeDAG(tensors[5])) == (None, None)


@pytest.mark.parametrize(
    ("wanted", "found", "factor"),
    [
        ('["f", 8, [4, 2]]', '["f", 4, [4, 1]]', 4.0),
        ('["f", 8]', '["g", 8]', float("inf")),
        ('["f", 8]', '["f", 3]', float("inf")),
        ('["f", 8]', '["f", 8, 8]', float("inf")),
        ('["f", "float32"]', '["f", "float16"]', float("inf")),
        ('["f",   8]', '["f", 8]', 1.0),
        ("f 8", '["f", 8]', float("inf")),
    ],
)
def test_workload_distance(wanted: str, found: str, factor: float) -> None:
    assert workload_distance(wanted, found) == factor


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("llvm -keys=cpu -mcpu=core-avx2", "llvm -mcpu=core-avx2 -num-cores=8", True),
        ("llvm -mcpu=core-avx2", "llvm ", True),
        ("llvm -mcpu=core-avx2", "llvm -mcpu=znver4", False),
        ("llvm -mattr=+avx2,+fma", "llvm -mattr=+fma,+avx2", True),
        ("llvm -mtriple=x86_64-pc-linux-gnu", "llvm -mtriple=x86_64-linux-gnu", True),
        ("llvm -mtriple=aarch64-linux-gnu", "llvm -mtriple=x86_64-linux-gnu", False),
        ("llvm -mtriple=arm64-apple-darwin", "llvm -mtriple=aarch64-linux-gnu", True),
        ("llvm", f"llvm -mtriple={platform.machine()}-unknown-linux-gnu", True),
        ("llvm", "llvm -mtriple=riscv64-linux-gnu", False),
        ("cuda", "cuda -mtriple=nvptx64-nvidia-cuda", True),
        ("cuda -arch=sm_80", "cuda -keys=cuda,gpu -arch=sm_90", False),
        ("cuda", "llvm", False),
        ("hexagon -what=1", "hexagon", True),
        ("llvm -mcpu='unclosed", "llvm -mcpu=x", False),
        (str(Target("cuda")), "cuda -arch=sm_90", True),
        (
            "cuda -keys=cuda,gpu -arch=sm_50 -max_num_threads=1024 -thread_warp_size=32",
            "cuda -arch=sm_90",
            True,
        ),
    ],
)
def test_targets_compare_by_kind_and_model(one: str, other: str, same: bool) -> None:
    assert same_target(one, other) is same


def test_errors_are_counted_by_kind() -> None:
    _, good = example()
    kinds = (MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.WRONG_ANSWER, MeasureErrorNo.WRONG_ANSWER)
    bad = [MeasureResult.failed(kind, "", 0, 0) for kind in kinds]
    assert list(count_errors([good, *bad]).items()) == [
        (MeasureErrorNo.WRONG_ANSWER, 2),
        (MeasureErrorNo.RUN_TIMEOUT, 1),
    ]


def test_log_survives_without_write_permission_to_its_text(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    log = tmp_path / "a.json"
    log.write_text("")
    log.chmod(0o400)
    with pytest.raises(LogWriteError, match="Permission denied"):
        append_lines(log, ["x"])
