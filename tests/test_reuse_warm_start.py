"""Warm starts: steps refitted to other sizes stay legal and right, and are measured first."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ansor
from ansor import te
from ansor.errors import ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep
from ansor.workloads import CATALOGUE
from measure import MeasureErrorNo, MeasureInput, MeasureResult, save_records
from search import SearchTask, SketchPolicy, StopReason, TaskScheduler, WarmStart
from search.refit import MAX_WASTE, Refit, refit_lengths, refit_steps
from sketches import sample_programs
from tests.fake_machine import HOST, FakeMachine, matmul, matmul_task, options

EXTENTS = st.integers(1, 600)


@pytest.mark.parametrize(
    ("how", "lengths", "old", "new", "expected"),
    [
        (Refit.INNER, (2, 8, 4), 512, 1024, (2, 8, 4)),
        (Refit.INNER, (2, 8, 4), 512, 16, (1, 4, 4)),
        (Refit.INNER, (1, 16), 512, 100, (1, 20)),
        (Refit.INNER, (1, 8), 512, 127, (1, 8)),  # A prime: the length stays and need not divide.
        (Refit.INNER, (16,), 512, 3, (3,)),
        (Refit.SCALED, (2, 8, 16), 512, 128, (2, 4, 16)),
        (Refit.SCALED, (4, 16), 256, 1024, (8, 16)),
        (Refit.AS_IS, (2, 8, 4), 512, 100, (2, 8, 4)),
        (Refit.INNER, (4, 4), 64, 64, (4, 4)),
    ],
)
def test_lengths_by_hand(
    how: Refit, lengths: tuple[int, ...], old: int, new: int, expected: tuple[int, ...]
) -> None:
    assert refit_lengths(lengths, old, new, how) == expected


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), EXTENTS, EXTENTS, st.sampled_from(list(Refit)))
@example([6, 33], 431, 537, Refit.SCALED)
def test_lengths_cover_the_extent_with_little_waste(
    lengths: list[int], old: int, new: int, how: Refit
) -> None:
    fitted = refit_lengths(lengths, old, new, how)
    assert len(fitted) == len(lengths)
    assert all(length >= 1 for length in fitted)
    if how is not Refit.AS_IS and old != new:
        inner = math.prod(fitted)
        assert inner * math.ceil(new / inner) <= MAX_WASTE * new
    if how is Refit.INNER and new % math.prod(lengths) == 0:
        assert fitted == tuple(lengths)


SHAPES = {
    "matmul": ((32, 24, 48), (40, 64, 30)),
    "conv2d": ((1, 10, 10, 4, 16, 3, 1, 1), (1, 13, 8, 6, 24, 3, 1, 1)),
    "softmax": ((12, 32), (9, 50)),
    "norm": ((1, 16, 24), (2, 20, 17)),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("how", list(Refit))
def test_refitted_programs_compute_the_same(name: str, how: Refit) -> None:
    entry = CATALOGUE[name]
    old, new = (SearchTask(func=entry.registered_name, args=list(args), target=HOST) for args in SHAPES[name])
    rng = np.random.default_rng(0)
    tensors = list(new.compute_dag.tensors)
    default = ansor.build(State.initial(new.compute_dag), tensors, target=new.target)
    fitted = 0
    for state in sample_programs(old, 4, rng):
        try:
            other = refit_steps(new.compute_dag, state.steps, how, old.compute_dag)
        except ScheduleError:
            continue
        fitted += 1
        arrays = [rng.random(t.shape).astype(np.float32) for t in new.compute_dag.inputs]
        module = ansor.build(other, tensors, target=new.target)
        np.testing.assert_allclose(module(*arrays), default(*arrays), rtol=1e-4, atol=1e-5)
        assert str(other) == str(State.replay(new.compute_dag, other.steps))
    assert fitted or how is Refit.AS_IS


def test_recorded_extents_serve_where_the_source_is_unknown() -> None:
    small, large = ComputeDAG(matmul(16)), ComputeDAG(matmul(64))
    state = State.initial(small).split(2, 0, [8, 2]).split(2, 3, [16])
    with_source = refit_steps(large, state.steps, Refit.SCALED, small)
    without = refit_steps(large, state.steps, Refit.SCALED)
    assert with_source.steps == without.steps
    assert [step.extent for step in without.steps if isinstance(step, SplitStep)] == [64, 64]
    unset = State.initial(small).split(2, 0, [None, 2])
    assert refit_steps(large, unset.steps, Refit.INNER).steps[0].lengths == (None, 2)  # type: ignore[attr-defined]
    with pytest.raises(ScheduleError):
        refit_steps(ComputeDAG(softmax(8)), state.steps, Refit.INNER)


def softmax(n: int) -> list[te.Tensor]:
    a = te.placeholder((n,), name="A")
    return [a, te.compute((n,), lambda i: te.exp(a[i]), name="E")]


def save(log: Path, task: ansor.Task, states: list[State], first: float = 1e-3) -> None:
    results = [
        MeasureResult((first * (1 + rank),), timestamp=1)  # type: ignore[arg-type]
        for rank in range(len(states))
    ]
    save_records(log, [MeasureInput(task, state) for state in states], results)


@pytest.fixture
def neighbours(tmp_path: Path) -> Path:
    """A log of matmuls of sizes 16 and 256, of another computation, and of another machine."""
    log = tmp_path / "neighbours.json"
    for n in (256, 16):
        task = matmul_task(n)
        save(log, task, sample_programs(task, 6, np.random.default_rng(n)))
    other = SearchTask(compute_dag=softmax(32), target=HOST)
    save(log, other, [State.initial(other.compute_dag)])
    cross = matmul_task(20, target="llvm -mtriple=aarch64-linux-gnu")
    save(log, cross, [State.initial(cross.compute_dag)])
    return log


def test_candidates_come_from_the_nearest_sizes_first(neighbours: Path) -> None:
    task, start = matmul_task(32), WarmStart(neighbours, count=10, per_source=3)
    states = start.candidates(task)
    assert 0 < len(states) <= 10
    assert len({program_key(state) for state in states}) == len(states)
    assert all(state.dag is task.compute_dag for state in states)
    near = matmul_task(16)
    best = sample_programs(near, 6, np.random.default_rng(16))[0]
    first = refit_steps(task.compute_dag, best.steps, Refit.INNER, near.compute_dag)
    assert program_key(states[0]) == program_key(first)
    assert len(start.notes) == 2
    assert "programs from graph" in start.notes[0]
    assert WarmStart(neighbours).candidates(SearchTask(compute_dag=softmax(8), target=HOST))
    assert WarmStart(neighbours).candidates(matmul_task(16)) != []  # From the other size only.


@pytest.mark.parametrize("apart", [False, True])
def test_what_was_measured_again_counts(tmp_path: Path, apart: bool) -> None:
    """In the same log or in another, such as the distilled one."""
    near, task = matmul_task(16), matmul_task(32)
    lucky, good = (State.initial(near.compute_dag).split(2, 0, [length]) for length in (2, 4))
    logs = [tmp_path / "a.json", tmp_path / ("b.json" if apart else "a.json")]
    save(logs[0], near, [lucky, good])
    slower = MeasureResult((5e-3,) * 3, timestamp=2)  # type: ignore[arg-type]
    save_records(logs[1], [MeasureInput(near, lucky)], [slower])
    first = refit_steps(task.compute_dag, good.steps, Refit.INNER, near.compute_dag)
    states = WarmStart(list(dict.fromkeys(logs))).candidates(task)
    assert program_key(states[0]) == program_key(first)


@pytest.mark.usefixtures("small_searches")
def test_candidates_are_measured_first_and_only_once(neighbours: Path, tmp_path: Path) -> None:
    task, log = matmul_task(32), tmp_path / "log.json"
    start = WarmStart(neighbours, count=6)
    wanted = [program_key(state) for state in start.candidates(task)]
    assert len(wanted) == 6

    def run(trials: int, log: Path, machine: FakeMachine) -> ansor.TuningResult:
        policy = SketchPolicy(task, init_search_callbacks=[start])
        return task.tune(options(trials, log, machine=machine), policy)

    whole = FakeMachine()
    run(14, log, whole)
    assert [key for _, key in whole.ran][:6] == wanted
    pieces, ran = tmp_path / "pieces.json", []
    for interrupt in (3, 5, 2, None):
        machine = FakeMachine(interrupt_after=interrupt)
        result = run(14 - len(ran), pieces, machine)
        ran += machine.ran
        if interrupt is not None:
            assert result.stop_reason is StopReason.INTERRUPTED
    assert ran == whole.ran


def test_a_scheduler_starts_warm_too(neighbours: Path) -> None:
    tasks = [matmul_task(n) for n in (32, 48)]
    start, machine = WarmStart(neighbours, count=3), FakeMachine()
    policies = [SketchPolicy(task, init_search_callbacks=[start]) for task in tasks]
    scheduler = TaskScheduler(tasks, callbacks=[], strategy="round-robin")
    scheduler.tune(options(8, machine=machine, num_measures_per_round=2), policies)
    for task in tasks:
        mine = [key for workload, key in machine.ran if workload == task.workload_key]
        assert mine[:3] == [program_key(state) for state in start.candidates(task)]


def test_what_does_not_apply_is_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    key = '["somewhere.else", 64]'
    good = State.initial(matmul_task(64).compute_dag).split(2, 0, [8])
    unknown = ansor.Task.create(None, key, HOST)
    save(log, unknown, [good])
    mine = SearchTask(compute_dag=matmul(32), workload_key='["somewhere.else", 32]', target=HOST)
    assert [state.steps[0].lengths for state in WarmStart(log).candidates(mine)] == [(8,)]  # type: ignore[attr-defined]
    text = log.read_text()
    log.write_text(text.replace('"SP", 2', '"SP", 7') + text.replace('["SP"', '["XX"'))
    assert WarmStart(log).candidates(mine) == []
    with pytest.raises(FileNotFoundError, match="to start from"):
        WarmStart(tmp_path / "missing.json")


def test_a_warm_start_that_has_nothing_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "log.json"
    other = SearchTask(func="ansor.softmax", args=(8, 8), target=HOST)
    first = State.initial(other.compute_dag)
    save(log, other, [first, first.split(1, 0, [2])])
    cross = matmul_task(20, target="llvm -mtriple=aarch64-linux-gnu")
    save(log, cross, [State.initial(cross.compute_dag)])
    mine = SearchTask(func="ansor.matmul", args=(8, 8, 8), target=HOST)
    save(log, mine, [State.initial(mine.compute_dag)])
    failed = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 1.0, 1)
    save_records(log, [MeasureInput(other, first.split(1, 0, [4]))], [failed])
    start = WarmStart(log)
    assert start.candidates(mine) == []
    (note,) = start.notes
    assert f"no program to begin matmul(8, 8, 8) with in {log}, which has" in note
    assert "2 records of softmax(8, 8), another computation" in note
    assert "for another target, llvm" in note
    assert "1 record of matmul(8, 8, 8) itself, from which a run with this log goes on" in note
    assert "1 record of softmax(8, 8), failed; the search begins without" in note
    assert [record.getMessage() for record in caplog.records] == [note]
    assert WarmStart(log, count=0).candidates(mine) == []
    assert len(caplog.records) == 1


def test_a_template_without_a_start_says_so_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @ansor.template("tests.without_start", override=True)
    def doubled(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
        a = te.placeholder((n,), name="A")
        b = te.compute((n,), lambda i: a[i] + a[i], name="B")
        return te.create_schedule(b), [a, b]

    log = tmp_path / "log.json"
    other = SearchTask(func="ansor.softmax", args=(8, 8), target=HOST)
    save(log, other, [State.initial(other.compute_dag)])
    assert ansor.TransferConfigs(log).candidates(ansor.TemplateTask(doubled, (8,), target=HOST)) == []
    (record,) = caplog.records
    assert "no program to begin tests.without_start(8)" in record.getMessage()
    assert "1 record of softmax(8, 8), another computation" in record.getMessage()
