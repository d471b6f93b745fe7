"""Packed rows, candidates and training data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ansor
from costmodel import Candidates, Collector, Dataset, PackedRows, Programs
from costmodel.candidates import batches_of
from costmodel.rows import extract_rows, offsets_of
from measure import MAX_FLOAT, MeasureErrorNo, MeasureInput, MeasureResult, load_records, save_records
from measure.records.record import Seconds
from tests.costmodel_fakes import WIDTH, LoopFeatures, answer, draw, matmul_task, measured, states_of


def packed(counts: list[int], seed: int = 0) -> PackedRows:
    offsets = offsets_of(np.array(counts, dtype=np.int64))
    return PackedRows(np.random.default_rng(seed).random((offsets[-1], 3), dtype=np.float32), offsets)


def program_rows(rows: PackedRows, program: int) -> np.ndarray:
    return rows.values[rows.offsets[program] : rows.offsets[program + 1]]


COUNTS = st.lists(st.integers(0, 4), max_size=8)


@given(COUNTS, st.data())
def test_rows_follow_their_programs(counts: list[int], data: st.DataObject) -> None:
    rows = packed(counts)
    assert len(rows) == len(counts)
    assert rows.counts.tolist() == counts
    chosen = data.draw(st.lists(st.integers(0, len(counts) - 1)) if counts else st.just([]))
    taken = rows.take(np.array(chosen, dtype=np.int64))
    assert len(taken) == len(chosen)
    for place, program in enumerate(chosen):
        np.testing.assert_array_equal(program_rows(taken, place), program_rows(rows, program))
    both = PackedRows.concatenate([rows, taken])
    np.testing.assert_array_equal(both.counts, [*rows.counts, *taken.counts])


@given(COUNTS)
def test_sums_over_rows_are_those_of_a_loop(counts: list[int]) -> None:
    rows = packed(counts)
    totals = rows.total(rows.values[:, 0])
    pooled = rows.pooled(["sum", "mean", "max"])
    assert pooled.shape == (len(counts), 9)
    for program, count in enumerate(counts):
        mine = program_rows(rows, program)
        assert totals[program] == pytest.approx(float(mine[:, 0].sum()))
        expected = [mine.sum(axis=0), mine.mean(axis=0), mine.max(axis=0)] if count else [np.zeros(3)] * 3
        np.testing.assert_allclose(pooled[program], np.concatenate(expected), rtol=1e-6)
    per_program = np.arange(len(counts))
    assert rows.spread(per_program).tolist() == np.repeat(per_program, counts).tolist()


def test_candidates_divide_into_populations_and_runs_of_states() -> None:
    first, *rest = draw(matmul_task(), 6)
    state = first.materialize(0)
    batches = batches_of([state, state, first, state])  # type: ignore[list-item]
    assert [len(batch) for batch in batches] == [2, len(first), 1]
    assert batches_of(first) == [first]
    assert sum(map(len, batches_of([first, *rest]))) == 6
    assert batches_of([]) == []


def test_programs_are_a_sequence_of_states() -> None:
    populations = draw(matmul_task(), 7)
    programs = Programs(populations)
    assert len(programs) == 7
    assert [state.steps for state in programs] == [
        p.materialize(r).steps for p in populations for r in range(len(p))
    ]
    assert programs[-1].steps == programs[6].steps
    assert [state.steps for state in programs[2:4]] == [programs[2].steps, programs[3].steps]
    with pytest.raises(IndexError, match="program 7 of 7"):
        programs[7]
    assert str(programs) == f"Programs(7 in {len(populations)} populations)"


def test_illegal_programs_get_no_rows() -> None:
    class Picky(LoopFeatures):
        def extract(self, task: ansor.Task, candidates: Candidates) -> PackedRows:
            states = states_of(candidates)
            if any(state.steps == forbidden.steps for state in states):
                raise ansor.ScheduleError("no bounds")
            return super().extract(task, states)

    task = matmul_task()
    programs = Programs(draw(task, 6))
    forbidden = programs[3]
    for candidates in (programs, list(programs)):
        counts = extract_rows(Picky(), task, candidates).counts
        assert np.flatnonzero(counts == 0).tolist() == [3]


def test_a_collector_keeps_order_and_each_program_once() -> None:
    source = LoopFeatures()
    collector = Collector(source)
    small, large = matmul_task(32), matmul_task(48)
    lessons = [measured(small, 5), measured(large, 4), measured(small, 5, seed=1, failing=1.0)]
    for inputs, results in lessons:
        assert collector.add(inputs, results) == len(inputs)
        assert collector.add(inputs, results) == 0
        assert len(collector.dataset) == len(collector)
    data = collector.dataset
    assert data.tasks.tolist() == [0] * 5 + [1] * 4 + [0] * 5
    assert data.task_keys == (small.key, large.key)
    assert data.costs.tolist() == [
        result.mean_cost if result.mean_cost < MAX_FLOAT else np.inf
        for _, results in lessons
        for result in results
    ]
    assert data.failed.tolist() == [False] * 9 + [True] * 5
    assert source.extracted == 14, "features of a measured program are extracted once"
    expected = source.extract(large, [inp.state for inp in lessons[1][0]])  # type: ignore[misc]
    np.testing.assert_array_equal(data.take(slice(5, 9)).rows.values, expected.values)


def test_nothing_is_learned_from_what_has_no_run_time() -> None:
    collector = Collector(LoopFeatures())
    inputs, results = measured(matmul_task(32), 3)
    collector.add(inputs, [results[0], MeasureResult((Seconds(0.0),)), results[2]])
    assert collector.dataset.costs.tolist() == [results[0].mean_cost, results[2].mean_cost]
    assert list(collector.skipped) == ["it has no run time, but 0 s"]


def test_a_collector_forgets_what_is_removed(tmp_path: Path) -> None:
    """Extracted already or not, and tasks are numbered as if it had never been there."""
    log, small, large = tmp_path / "log.json", matmul_task(32), matmul_task(48)
    first, second = measured(small, 5), measured(large, 6, failing=0.3)
    save_records(log, *first)
    for extracts in (False, True):
        collector = Collector(LoopFeatures())
        collector.add_log(log)
        collector.add(*second)
        if extracts:
            assert len(collector.dataset) == 11
        assert collector.remove(*first) == 5, "a program of a log is the same program live"
        assert collector.remove(*first) == 0
        assert collector.remove([second[0][1]], [second[1][1]]) == 1
        expected = Collector(LoopFeatures())
        for position in (0, 2, 3, 4, 5):
            expected.add([second[0][position]], [second[1][position]])
        data, wanted = collector.dataset, expected.dataset
        assert data.task_keys == wanted.task_keys == (large.key,)
        assert data.tasks.tolist() == [0] * 5
        np.testing.assert_array_equal(data.digests, wanted.digests)
        np.testing.assert_array_equal(data.rows.values, wanted.rows.values)
        assert len(collector) == 5
        assert collector.add(*first) == 5
        assert collector.dataset.task_keys == (large.key, small.key)


def test_mixed_tasks_in_one_update_keep_their_rows() -> None:
    small, large = matmul_task(32), matmul_task(48)
    pairs = [pair for both in zip(zip(*measured(small, 4)), zip(*measured(large, 4))) for pair in both]  # noqa: B905
    collector = Collector(LoopFeatures())
    collector.add(*zip(*pairs, strict=True))
    data = collector.dataset
    for position, (inp, _) in enumerate(pairs):
        expected = LoopFeatures().extract(inp.task, [inp.state])
        np.testing.assert_array_equal(data.rows.take(np.array([position])).values, expected.values)


def test_logs_give_the_data_that_measuring_gave(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", matmul_task()
    inputs, results = measured(task, 8, failing=0.2)
    save_records(log, inputs, results)
    live = Collector(LoopFeatures())
    live.add(inputs, results)
    data = Dataset.from_logs(log, LoopFeatures())
    np.testing.assert_array_equal(data.digests, live.dataset.digests)
    np.testing.assert_array_equal(data.rows.values, live.dataset.rows.values)
    np.testing.assert_array_equal(data.costs, live.dataset.costs)
    assert data.task_keys == (task.key,)
    assert Collector(LoopFeatures()).add_log(log, n_lines=3) == 3
    with pytest.raises(ansor.DefinitionError, match="n_lines must be an integer of at least 0, found -1"):
        Collector(LoopFeatures()).add_log(log, n_lines=-1)
    mixed = Collector(LoopFeatures())
    mixed.add(inputs, results)
    assert mixed.add_log(log) == 0, "a program that is known live is the same program in a log"


def test_of_a_log_the_first_record_of_each_program_is_taken(tmp_path: Path) -> None:
    """That is what the search learned that wrote it, and what it makes a model forget when it goes on."""
    log = tmp_path / "log.json"
    inputs, results = measured(matmul_task(), 5)
    again = [MeasureResult((Seconds(1.0),) * 3, timestamp=9)] * 2
    for records in ((inputs, results), (inputs[:2], again)):
        save_records(log, *records)
    collector = Collector(LoopFeatures())
    assert collector.add_log(log) == 5
    assert collector.dataset.costs.tolist() == [result.mean_cost for result in results]
    assert collector.remove(inputs, results) == 5
    assert len(collector) == len(collector.dataset) == 0


def test_records_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", matmul_task()
    state = draw(task, 1)[0].materialize(0)
    other = ansor.Task(None, '["nobody.knows", 3]', task.target, None, task.hardware_params)
    bent = matmul_task(48)
    save_records(log, [MeasureInput(other, state), MeasureInput(bent, state)], [answer(state)] * 2)
    text = log.read_text().splitlines()
    log.write_text(text[0] + "\n" + text[1].replace("48, 48, 48", "48, 48, 49") + "\n")
    assert len(list(load_records(log))) == 2
    collector = Collector(LoopFeatures())
    collector.add_log(log)
    assert len(collector) == 2
    assert len(collector.dataset) <= 1
    assert any("nobody.knows" in reason for reason in collector.skipped)


def test_a_computation_that_is_not_registered_can_be_supplied(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", matmul_task()
    unknown = ansor.Task(task.dag, '["nobody.knows", 3]', task.target, None, task.hardware_params)
    state = draw(task, 1)[0].materialize(0)
    save_records(log, [MeasureInput(unknown, state)], [answer(state)])
    assert len(Dataset.from_logs(log, LoopFeatures())) == 0
    assert len(Dataset.from_logs([log], LoopFeatures(), tasks=[unknown])) == 1


def test_layout_options_make_different_tasks(tmp_path: Path) -> None:
    """A program is fast or slow among those of its option: each has a best of its own."""
    log = tmp_path / "log.json"
    tasks = [
        ansor.SearchTask(
            "ansor.dense", (32, 32, 32), target="llvm -num-cores=2", layout_rewrite_option=option
        )
        for option in (0, 2)
    ]
    states = ansor.sample_programs(tasks[0], 2, np.random.default_rng(0))
    live = Collector(LoopFeatures())
    for task, best in zip(tasks, (1.0, 0.25), strict=True):
        inputs = [MeasureInput(task, state) for state in states]
        results = [MeasureResult((Seconds(cost * best),), timestamp=1) for cost in (1.0, 2.0)]
        save_records(log, inputs, results)
        live.add(inputs, results)
    for data in (live.dataset, Dataset.from_logs(log, LoopFeatures())):
        assert data.task_keys == tuple(task.key for task in tasks)
        assert data.tasks.tolist() == [0, 0, 1, 1]
        assert data.labels.tolist() == [1.0, 0.5, 1.0, 0.5]
        assert len(set(data.digests.tolist())) == 4


def test_another_machine_makes_another_task(tmp_path: Path) -> None:
    """Each machine has a best of its own, and programs have the features of the machine they ran on."""

    class Cores(LoopFeatures):
        def extract(self, task: ansor.Task, candidates: Candidates) -> PackedRows:
            rows = super().extract(task, candidates)
            rows.values[:, 0] = task.hardware_params.num_cores
            return rows

    def cores_of(data: Dataset) -> list[float]:
        return [float(program_rows(data.rows, program)[0, 0]) for program in range(len(data))]

    cores = (2, 64)
    tasks = [
        ansor.SearchTask(
            "ansor.matmul", (32, 32, 32), target="llvm", hardware_params=ansor.HardwareParams(count)
        )
        for count in cores
    ]
    states = ansor.sample_programs(tasks[0], 3, np.random.default_rng(0))
    lessons = [
        (
            [MeasureInput(task, state) for state in states],
            [
                MeasureResult((Seconds(1.0 / task.hardware_params.num_cores),), timestamp=1),
                MeasureResult((Seconds(2.0 / task.hardware_params.num_cores),), timestamp=1),
                MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 0.1, task.hardware_params.num_cores),
            ],
        )
        for task in tasks
    ]
    for order in ((0, 1), (1, 0)):
        log = tmp_path / f"log{order[0]}.json"
        whole, parts, fed = Collector(Cores()), Collector(Cores()), Collector(Cores())
        for which in order:
            save_records(log, *lessons[which])
            parts.add_log(log)
            assert len(parts.dataset) == len(parts)
            fed.add(*lessons[which])
        whole.add_log(log)
        for collector in (whole, parts, fed):
            data = collector.dataset
            assert data.task_keys == (tasks[0].key,) * 2
            assert [one.cores for one in data.machines] == [cores[which] for which in order]
            assert data.tasks.tolist() == [0, 0, 0, 1, 1, 1]
            assert data.labels.tolist() == [1.0, 0.5, 0.0] * 2
            assert cores_of(data) == [cores[which] for which in order for _ in range(3)]
            assert len(data.split_by_task([tasks[0].key])[1]) == 6
            assert collector.remove(*lessons[1]) == 3, "its failure is not that of the other machine"
            assert cores_of(collector.dataset) == [2.0] * 3
            assert [one.cores for one in collector.dataset.machines] == [2]


def test_a_supplied_computation_serves_every_layout_option(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", matmul_task()
    unknown = ansor.Task(task.dag, '["nobody.knows", 3]', task.target, None, task.hardware_params)
    other = replace(unknown, layout_rewrite_option=ansor.LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED)
    state = draw(task, 1)[0].materialize(0)
    save_records(log, [MeasureInput(other, state)], [answer(state)])
    assert Dataset.from_logs(log, LoopFeatures(), tasks=[unknown]).task_keys == (other.key,)


def test_a_record_of_an_unknown_target_is_passed_over(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", matmul_task()
    inputs, results = measured(task, 3)
    save_records(log, inputs, results)
    first, *rest = log.read_text().splitlines()
    assert str(task.target) in first
    log.write_text("\n".join([first.replace(str(task.target), "hexagon -mcpu=v68"), *rest]) + "\n")
    collector = Collector(LoopFeatures())
    assert collector.add_log(log) == 3
    assert len(collector.dataset) == 2
    assert any("hexagon" in reason for reason in collector.skipped)


def test_splits_are_of_programs_or_of_tasks() -> None:
    collector = Collector(LoopFeatures())
    small, large = matmul_task(32), matmul_task(48)
    collector.add(*measured(small, 40))
    collector.add(*measured(large, 20))
    data = collector.dataset
    inside, outside = data.split_by_program(0.3, seed=1)
    assert len(inside) + len(outside) == len(data)
    assert 8 <= len(outside) <= 30
    assert not set(inside.digests.tolist()) & set(outside.digests.tolist())
    assert set(outside.tasks.tolist()) == {0, 1}
    assert len(data.split_by_program(0.0)[1]) == len(data.split_by_program(1.0)[0]) == 0
    assert outside.digests.tolist() != data.split_by_program(0.3, seed=2)[1].digests.tolist()
    learn, rest = data.split_by_task([large.key])
    assert set(learn.tasks.tolist()) == {0}
    assert len(rest) == int((data.tasks == 1).sum())


def test_a_growing_log_moves_nothing_across_the_split() -> None:
    collector = Collector(LoopFeatures())
    task = matmul_task(32)
    collector.add(*measured(task, 30))
    before = collector.dataset
    collector.add(*measured(task, 30, seed=1))
    after = collector.dataset
    assert after.held_out(0.3)[: len(before)].tolist() == before.held_out(0.3).tolist()
    np.testing.assert_array_equal(after.take(slice(len(before))).digests, before.digests)


def test_the_empty_data_set() -> None:
    data = Dataset.empty(WIDTH)
    assert len(data) == 0
    assert data.labels.shape == (0,)
    assert len(data.split_by_program(0.5)[0]) == 0
