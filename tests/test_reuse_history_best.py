"""`ApplyHistoryBest`: lookups by key, by structure, through nested contexts; and what is missed."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from measure import MeasureErrorNo, MeasureInput, MeasureResult, load_records, save_records
from measure.records.record import LoggedState
from search import ApplyHistoryBest, DispatchContext, SearchTask, dispatch_context
from tests.fake_machine import HOST, matmul, matmul_task


def save(log: Path, task: ansor.Task, length: int, seconds: float) -> None:
    state = State.initial(matmul_task(json.loads(task.workload_key)[1][0]).compute_dag).split(2, 0, [length])
    save_records(log, [MeasureInput(task, state)], [MeasureResult((seconds,), timestamp=1)])  # type: ignore[arg-type]


def length_of(state: State | None) -> int:
    assert state is not None
    return int(state.steps[0].lengths[0])  # type: ignore[attr-defined]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Matmuls of size 8 (best: length 4) and 16 (best: length 2), and a failure."""
    path = tmp_path / "log.json"
    for n, length, seconds in ((8, 2, 3e-3), (8, 4, 1e-3), (16, 2, 5e-3), (16, 4, 6e-3)):
        save(path, matmul_task(n), length, seconds)
    task = matmul_task(8)
    failed = MeasureResult.failed(MeasureErrorNo.WRONG_ANSWER, "", 1, 1)
    save_records(path, [MeasureInput(task, State.initial(task.compute_dag))], [failed])
    return path


def test_the_best_is_found_by_task_graph_and_key(log: Path) -> None:
    history = ApplyHistoryBest(log)
    task = matmul_task(8)
    assert len(history) == 2
    assert length_of(history.query(task)) == 4
    assert length_of(history.query(task.compute_dag)) == 4
    assert length_of(history.query(task.workload_key)) == 4
    assert length_of(history.query(matmul_task(16))) == 2
    hit = history.find(task)
    assert hit is not None
    assert (hit.seconds, hit.how) == (1e-3, "key")
    assert str(hit) == f"1.00 ms, found by key:\n{hit.state}"
    assert repr(history) == "<ApplyHistoryBest of 2 tasks>"
    assert history.misses == {}
    assert history.report() == "every computation had a record"
    with pytest.raises(ansor.DefinitionError, match="register"):
        history.query('["nobody.knows", 3]')


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda log: ApplyHistoryBest(None), r"ApplyHistoryBest\(None\): it takes the path of a log"),
        (
            lambda log: ApplyHistoryBest([1]),
            r"ApplyHistoryBest\(1\): it takes the path of a log, several, or",
        ),
        (lambda log: ApplyHistoryBest([(1, 2)]), r"ApplyHistoryBest\(\(1, 2\)\): it takes the path of a log"),
        (lambda log: ApplyHistoryBest(log, n_lines=-1), r"ApplyHistoryBest\(n_lines\) must be an integer"),
        (lambda log: ApplyHistoryBest(log).query(3), "a task, a ComputeDAG or a workload key, found 3"),
        (lambda log: ansor.WarmStart(3), r"WarmStart\(3\): it takes the path of a log"),
        (lambda log: ansor.WarmStart(log, count=-1), r"WarmStart\(count\) must be an integer"),
    ],
)
def test_senseless_questions_are_refused(log: Path, ask: Callable[[Path], object], message: str) -> None:
    with pytest.raises(ansor.DefinitionError, match=message):
        ask(log)


def test_renamed_operators_are_found_by_structure(log: Path) -> None:
    renamed = ComputeDAG(matmul(8, names="XYZ"))
    history = ApplyHistoryBest(log)
    state = history.query(renamed)
    assert length_of(state) == 4
    assert state is not None
    assert state.dag is renamed
    named = SearchTask(compute_dag=matmul(8, names="PQR"), workload_key='["reuse.named", 8]', target=HOST)
    hit = history.find(named)
    assert hit is not None
    assert hit.how == "structure"


def test_records_of_registered_functions_are_found_by_a_bare_graph(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    catalogued = SearchTask(func="ansor.matmul", args=[8, 8, 8], target=HOST)
    state = State.initial(catalogued.compute_dag).split(2, 0, [2])
    save_records(path, [MeasureInput(catalogued, state)], [MeasureResult((1e-3,), timestamp=1)])  # type: ignore[arg-type]
    hit = ApplyHistoryBest(path).find(ComputeDAG([*catalogued.compute_dag.tensors]))
    assert hit is not None
    assert hit.how == "structure"


def test_keys_with_a_hash_of_tvms_are_matched_by_shape_if_the_steps_apply(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    key = json.dumps(["0" * 32, [8, 8], [8, 8], [8, 8]])
    task = ansor.Task.create(None, key, HOST)
    for stage, seconds in ((7, 1e-3), (2, 2e-3)):
        steps = LoggedState((("SP", stage, 0, 8, [2], 1),))
        save_records(path, [MeasureInput(task, steps)], [MeasureResult((seconds,), timestamp=1)])  # type: ignore[arg-type]
    hit = ApplyHistoryBest(path).find(matmul_task(8))
    assert hit is not None
    assert (hit.how, hit.seconds) == ("shapes", 2e-3)
    assert ApplyHistoryBest(path).find(matmul_task(9)) is None


def test_misses_are_reported_once_and_counted(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = ApplyHistoryBest(log)
    missing, cross = matmul_task(24), matmul_task(8, target="llvm -mtriple=aarch64-linux-gnu")
    with caplog.at_level(logging.WARNING):
        for task in (missing, missing, cross):
            assert history.query(task) is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert sorted(history.misses.values()) == [1, 2]
    report = history.report()
    assert report.startswith("2 computations without a record:")
    assert "(2 times)" in report
    assert "aarch64" in report


def test_contexts_nest_and_ask_outwards(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    save(other, matmul_task(8), 8, 9e-3)
    assert dispatch_context() is None
    with ApplyHistoryBest(log) as outer:
        assert dispatch_context() is outer
        with ApplyHistoryBest(other) as inner:
            assert dispatch_context() is inner
            assert length_of(inner.query(matmul_task(8))) == 8
            assert length_of(inner.query(matmul_task(16))) == 2  # The outer one knows.
            assert inner.query(matmul_task(24)) is None
            assert (len(inner.misses), len(outer.misses)) == (1, 0)
        assert dispatch_context() is outer
        assert inner.query(matmul_task(16)) is None  # On its own again.
        with pytest.raises(ansor.DefinitionError, match="entered already"), outer:
            pass
    assert dispatch_context() is None
    assert isinstance(outer, DispatchContext)


def test_the_found_program_is_built_and_a_miss_gives_the_default(log: Path) -> None:
    history = ApplyHistoryBest(log)
    for n in (8, 24):
        schedule, args = history.apply(matmul_task(n))
        module = ansor.build(schedule, args, target=HOST)
        a, b = (np.random.default_rng(n).random((n, n)).astype(np.float32) for _ in range(2))
        np.testing.assert_allclose(module(a, b), a @ b, rtol=1e-5)
    assert len(history.misses) == 1


def test_other_sources_of_records(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    save(other, matmul_task(24), 3, 1e-3)
    task = matmul_task(8)
    assert len(ApplyHistoryBest([log, other])) == 3
    assert length_of(ApplyHistoryBest(load_records(log)).query(task)) == 4
    assert length_of(ApplyHistoryBest(log, n_lines=1).query(task)) == 2
    with pytest.raises(FileNotFoundError):
        ApplyHistoryBest(tmp_path / "missing.json")


def test_what_was_measured_again_counts_in_whatever_log(log: Path, tmp_path: Path) -> None:
    """And a program that nobody measured is not taken for one."""
    task, listed, finals = matmul_task(8), tmp_path / "listed.json", tmp_path / "finals.json"
    best = State.initial(task.compute_dag).split(2, 0, [4])
    save(listed, task, 4, 0.0)
    slower = MeasureResult((4e-3,) * 3, timestamp=2)  # type: ignore[arg-type]
    save_records(finals, [MeasureInput(task, best)], [slower])
    assert length_of(ApplyHistoryBest([listed, log]).query(task)) == 4
    assert length_of(ApplyHistoryBest([*load_records(listed), *load_records(log)]).query(task)) == 4
    assert length_of(ApplyHistoryBest([log, finals]).query(task)) == 2
    assert length_of(ApplyHistoryBest([finals, log]).query(task)) == 2


def test_compatible_sizes_on_request(tmp_path: Path) -> None:
    path = tmp_path / "log.json"

    @ansor.register_workload("reuse.rows")
    def rows(n: int) -> list[te.Tensor]:
        a = te.placeholder((n, 4), name="A")
        return [a, te.compute((n, 4), lambda i, j: a[i, j] * te.const(2.0, "float32"), name="B")]

    small, large = (SearchTask(func=rows, args=[n], target=HOST) for n in (8, 32))
    for length, seconds in ((4, 2e-3), (2, 1e-3)):
        state = State.initial(small.compute_dag).split(1, 0, [length])
        save_records(path, [MeasureInput(small, state)], [MeasureResult((seconds,), timestamp=1)])  # type: ignore[arg-type]
    assert ApplyHistoryBest(path).query(large) is None
    hit = ApplyHistoryBest(path, include_compatible=True).find(large)
    assert hit is not None
    assert hit.how == "compatible"
    assert length_of(hit.state) == 2
