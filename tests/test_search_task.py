"""`SearchTask`, its options and inputs, and the models: construction, mistakes, the best of a log."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.task.inputs import get_task_input_buffer
from search.sketch_policy import DEFAULT_PARAMS, resolve_params


def scaled(n: int, m: int = 4) -> list[te.Tensor]:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    return [a, te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")]


def gather(n: int) -> list[te.Tensor]:
    a, index = te.placeholder((n,), name="A"), te.placeholder((n,), "int32", name="index")
    return [a, index, te.compute((n,), lambda i: a[index[i]], name="B")]


def record(
    task: ansor.SearchTask, log: Path, seconds: float, *, seed: int = 0, ok: bool = True
) -> ansor.State:
    """Append one made-up measurement of a random program to a log."""
    state = ansor.sample_programs(task, 1, np.random.default_rng(seed))[0]
    result = (
        ansor.MeasureResult((seconds,), timestamp=1)  # type: ignore[arg-type]
        if ok
        else ansor.MeasureResult.failed(ansor.MeasureErrorNo.RUN_TIMEOUT, "slow", 1.0, 1)
    )
    ansor.save_records(log, [ansor.MeasureInput(task, state)], [result])
    return state


@pytest.fixture
def task() -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=scaled(16), target="llvm -num-cores=2")


def test_a_task_comes_from_a_function_a_key_or_a_computation() -> None:
    ansor.register_workload("search_task_scaled", scaled, override=True)
    by_function = ansor.SearchTask(func=scaled, args=(8,), target="llvm")
    by_name = ansor.SearchTask(func="search_task_scaled", args=(8,))
    by_key = ansor.SearchTask(workload_key=by_function.workload_key, target=ansor.Target("llvm"))
    assert by_function.workload_key == '["search_task_scaled", 8]'
    assert by_function.key == by_name.key == by_key.key
    anonymous = ansor.SearchTask(compute_dag=scaled(8))
    assert anonymous.workload_key != by_key.workload_key
    assert anonymous.compute_dag.structure_hash == by_key.compute_dag.structure_hash
    assert (
        ansor.SearchTask(workload_key=anonymous.workload_key).compute_dag.inputs
        == anonymous.compute_dag.inputs
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs func and args"),
        ({"args": (1,)}, "needs func="),
        ({"func": "nowhere", "args": ()}, "no workload is registered as 'nowhere'"),
        ({"func": "matmull", "args": ()}, "did you mean 'ansor.matmul'"),
        ({"func": "nope", "args": ()}, "ansor.matmul"),
        ({"func": "ansor.matmul", "args": "abc"}, "the list of the function's arguments"),
        ({"func": "ansor.matmul", "args": (1,)}, "missing a required argument"),
        ({"compute_dag": scaled(4), "func": scaled}, "not several"),
        ({"compute_dag": scaled(4), "layout_rewrite_option": 3}, "options are 0"),
        ({"compute_dag": scaled(4), "target": "abacus"}, "unknown kind"),
        ({"compute_dag": scaled(4), "workload_key": 5}, "workload_key=5\\): it must be a string"),
        ({"compute_dag": scaled(4), "hardware_params": {"num_cores": 2}}, "it must be ansor.HardwareParams"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ansor.AnsorError, match=message):
        ansor.SearchTask(**given)


def test_records_say_that_layouts_are_not_rewritten(task: ansor.SearchTask, tmp_path: Path) -> None:
    record(task, tmp_path / "log.json", 1e-3)
    ((inp, _),) = ansor.load_records(tmp_path / "log.json")
    assert inp.task.layout_rewrite_option == ansor.LayoutRewriteOption.NO_REWRITE


def test_task_inputs_are_refused_where_a_name_stands_for_several() -> None:
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="A")
    tensors = [a, b, te.compute((4,), lambda i: a[i] - b[i], name="C")]
    with pytest.raises(ansor.DefinitionError, match=r"names 'A', as 2 inputs .* are; give each a name"):
        ansor.SearchTask(compute_dag=tensors, task_inputs={"A": np.ones(4, "float32")})


def test_task_inputs_are_kept_for_the_runner() -> None:
    data = np.arange(8, dtype=np.int32)
    task = ansor.SearchTask(compute_dag=gather(8), task_inputs={"index": data})
    assert task.input_names == ("index",)
    kept = get_task_input_buffer(task.workload_key, "index")
    assert kept is not None
    np.testing.assert_array_equal(kept, data)
    assert not kept.flags.writeable
    assert ansor.SearchTask(compute_dag=gather(8), task_inputs=["index"]).input_names == ("index",)
    with pytest.raises(ansor.DefinitionError, match="task_inputs_overwrite"):
        ansor.SearchTask(compute_dag=gather(8), task_inputs={"index": data[::-1].copy()})
    ansor.SearchTask(compute_dag=gather(8), task_inputs={"index": data[::-1]}, task_inputs_overwrite=True)


def test_task_inputs_with_nan_are_the_same_again() -> None:
    data = np.array([[1, np.nan], [np.inf, 0]], np.float32)
    a = te.placeholder((2, 2), name="A")
    tensors = [a, te.compute((2, 2), lambda i, j: a[j, i] + 1, name="nan_plus_1")]
    for again in (data, data.copy(order="F")):
        task = ansor.SearchTask(compute_dag=tensors, task_inputs={"A": again})
        assert task.input_names == ("A",)
    for other in (np.where(np.isnan(data), 2, data), data[:, ::-1]):
        with pytest.raises(ansor.DefinitionError, match="other data before"):
            ansor.SearchTask(compute_dag=tensors, task_inputs={"A": other.astype(np.float32)})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"indices": np.zeros(9, np.int32)}, "no input of .*its inputs are A, index"),
        ({"index": np.zeros(9, np.int64)}, "is int64; input 'index' is int32"),
        ({"index": np.zeros((3, 3), np.int32)}, r"has shape \(3, 3\)"),
        (["index"], "no data was supplied"),
    ],
)
def test_task_inputs_that_do_not_fit_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(ansor.DefinitionError, match=message):
        ansor.SearchTask(compute_dag=gather(9), task_inputs=inputs)


def test_apply_best_takes_the_fastest_and_print_best_rebuilds_it(
    task: ansor.SearchTask, tmp_path: Path
) -> None:
    log = tmp_path / "log.json"
    record(task, log, 2e-3, seed=1)
    wanted = record(task, log, 1e-3, seed=2)
    record(task, log, 1e-4, seed=3, ok=False)
    schedule, args = task.apply_best(log)
    assert schedule.state == wanted
    scope: dict[str, Any] = {}
    exec(task.print_best(log), scope)
    assert str(ansor.lower(scope["s"], scope["tensors"])) == str(ansor.lower(schedule, args))
    x = np.random.default_rng(0).random((16, 4), dtype=np.float32)
    out = np.empty_like(x)
    ansor.build(schedule, args)(x, out)
    np.testing.assert_allclose(out, x * 2 + 1, rtol=1e-6)


def test_a_log_without_a_usable_record_is_explained(task: ansor.SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    with pytest.raises(FileNotFoundError, match="there is no log"):
        task.apply_best(log)
    log.touch()
    with pytest.raises(ansor.DefinitionError, match="the log is empty"):
        task.apply_best(log)
    log.write_text("# a comment\n")
    with pytest.raises(ansor.DefinitionError, match="no line of the log is a record; tune with RecordToFile"):
        task.apply_best(log)
    record(ansor.SearchTask(compute_dag=scaled(24)), log, 1e-3)
    with pytest.raises(ansor.DefinitionError, match="its 1 record is for graph"):
        task.print_best(log)
    record(task, log, 1e-3, ok=False)
    with pytest.raises(
        ansor.DefinitionError, match="all 1 measurements of it failed; the last one with RUN_TIMEOUT"
    ):
        task.apply_best(log)
    gpu = ansor.SearchTask(compute_dag=scaled(16), target="cuda")
    record(task, log, 1e-3)
    with pytest.raises(ansor.DefinitionError, match="it was tuned for llvm"):
        gpu.apply_best(log)


def test_why_a_log_has_no_usable_record(task: ansor.SearchTask, tmp_path: Path) -> None:
    """By what counts in the end, of this target, whatever spaces its keys are written with."""

    def refused(one: ansor.SearchTask, log: Path) -> str:
        with pytest.raises(ansor.DefinitionError) as caught:
            one.best_state(log)
        return str(caught.value)

    wrong = tmp_path / "wrong.json"
    state = record(task, wrong, 1e-3)
    result = ansor.MeasureResult.failed(ansor.MeasureErrorNo.WRONG_ANSWER, "", 1.0, 1)
    ansor.save_records(wrong, [ansor.MeasureInput(task, state)], [result])
    assert "all 1 measurements of it failed; the last one with WRONG_ANSWER" in refused(task, wrong)

    listed = tmp_path / "listed.json"
    record(task, listed, 0.0)
    assert "it has 1 program of it that nobody measured" in refused(task, listed)

    far = tmp_path / "far.json"
    there = ansor.SearchTask(compute_dag=scaled(16), target="llvm -mtriple=aarch64-linux-gnu -num-cores=2")
    record(there, far, 1e-3)
    assert "it was tuned for llvm -keys=cpu -mtriple=aarch64-linux-gnu" in refused(task, far)
    record(task, far, 1e-3, ok=False)
    assert "all 1 measurements of it failed; the last one with RUN_TIMEOUT" in refused(task, far)

    spaced = tmp_path / "spaced.json"
    ansor.register_workload("search_task_spaced", scaled, override=True)
    named = ansor.SearchTask(func="search_task_spaced", args=(8,), target="llvm -num-cores=2")
    record(named, spaced, 1e-3, ok=False)
    spaced.write_text(spaced.read_text().replace('search_task_spaced\\", 8', 'search_task_spaced\\",8'))
    assert "all 1 measurements of it failed" in refused(named, spaced)


def test_print_modes_are_checked(task: ansor.SearchTask, tmp_path: Path) -> None:
    record(task, tmp_path / "log.json", 1e-3)
    with pytest.raises(ansor.DefinitionError, match="needs a cuda or opencl target"):
        task.print_best(tmp_path / "log.json", print_mode="cuda")
    with pytest.raises(ansor.DefinitionError, match="must be 'schedule', or 'cuda' or 'opencl'"):
        task.print_best(tmp_path / "log.json", print_mode="poem")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_measure_trials": -1}, "integer of at least 0"),
        ({"num_measures_per_round": 0}, "integer of at least 1"),
        ({"num_measure_trials": 2.5}, "integer of at least 0"),
        ({"early_stopping": 0}, "integer of at least 1"),
        ({"runner": "remote"}, "LocalRunner"),
        ({"measure_callbacks": ansor.RecordToFile("log.json")}, "brackets"),
        ({"measure_callbacks": [ansor.RecordToFile]}, "is no callback"),
        ({"measure_callbacks": ["log.json"]}, "is no callback"),
        (
            {"measure_callbacks": [ansor.RecordToFile("a.json"), ansor.RecordToFile("./a.json")]},
            "'a.json' and './a.json' are one log",
        ),
        ({"measure_callbacks": "log.json"}, "list of callbacks"),
        ({"builder": 3}, "LocalBuilder"),
        ({"runner": ansor.LocalRunner}, "LocalRunner"),
        ({"num_measure_trials": float("nan")}, "integer of at least 0"),
        ({"seed": True}, "seed"),
        ({"early_stopping": "never"}, "integer of at least 1 or 'auto' or None, found 'never'"),
        ({"num_finalists": None}, "integer of at least 0 or 'auto', found None"),
    ],
)
def test_options_out_of_range_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ansor.DefinitionError, match=message):
        ansor.TuningOptions(**given)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((None,), r"it takes ansor\.TuningOptions"),
        (("x",), r"it takes ansor\.TuningOptions"),
        ((ansor.TuningOptions(), "sketch.random"), r"such as ansor\.SketchPolicy"),
    ],
)
def test_tune_says_what_to_pass(task: ansor.SearchTask, words: Any, message: str) -> None:
    with pytest.raises(ansor.DefinitionError, match=message):
        task.tune(*words)


def test_a_directory_is_no_log(task: ansor.SearchTask) -> None:
    with pytest.raises(ansor.DefinitionError, match="is a directory"):
        task.apply_best(".")
    for callback in (ansor.PreloadMeasuredStates, ansor.WarmStart, ansor.TransferConfigs):
        with pytest.raises(ansor.DefinitionError, match=r"'\.' is a directory; give the path of a log"):
            callback(".")


def test_a_log_is_tried_before_the_first_measurement(task: ansor.SearchTask, tmp_path: Path) -> None:
    log = ansor.RecordToFile(tmp_path / "gone" / "log.json")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ansor.LogWriteError, match="cannot append"):
        task.tune(ansor.TuningOptions(1, measure_callbacks=[log], verbose=0))


@pytest.mark.parametrize("part", ["builder", "runner"])
def test_what_was_closed_is_refused_before_anything_is_searched(
    task: ansor.SearchTask, tmp_path: Path, part: str
) -> None:
    """Where there is nothing to measure it is not needed."""
    log = tmp_path / "log.json"
    made: ansor.LocalBuilder | ansor.LocalRunner
    with ansor.LocalBuilder() if part == "builder" else ansor.LocalRunner() as made:
        given: dict[str, Any] = {"verbose": 0, "measure_callbacks": [ansor.RecordToFile(log)], part: made}
    name = type(made).__name__
    message = f"this {name} was closed, .*; use it inside of that block, or make another {name}"
    with pytest.raises(ansor.DefinitionError, match=message):
        task.tune(ansor.TuningOptions(2, **given))
    with pytest.raises(ansor.DefinitionError, match=message):
        ansor.TaskScheduler([task], callbacks=[]).tune(ansor.TuningOptions(2, **given))
    assert not log.exists()
    assert task.tune(ansor.TuningOptions(0, **given), ansor.EmptyPolicy(task)).best_state is not None


@pytest.mark.parametrize("n", [-1, 1.5, "1", float("nan")])
def test_a_number_of_programs_is_checked(task: ansor.SearchTask, n: Any) -> None:
    with pytest.raises(ansor.DefinitionError, match="sample_programs"):
        ansor.sample_programs(task, n, np.random.default_rng(0))


def test_search_parameters_are_completed_without_touching_the_callers() -> None:
    mine = {"eps_greedy": 1, "max_vectorize_size": 8}
    assert resolve_params(mine) == {**DEFAULT_PARAMS, "eps_greedy": 1.0, "max_vectorize_size": 8}
    assert mine == {"eps_greedy": 1, "max_vectorize_size": 8}
    with pytest.raises(ansor.DefinitionError, match="did you mean 'eps_greedy'"):
        resolve_params({"eps_gredy": 0.1})
    with pytest.raises(ansor.DefinitionError, match="must be an integer of at least 1, as its default 16"):
        resolve_params({"max_vectorize_size": 2.5})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("eps_greedy", 5.0, "a number from 0 to 1"),
        ("eps_greedy", -1.0, "a number from 0 to 1"),
        ("eps_greedy", float("nan"), "a number from 0 to 1"),
        ("polish_ratio", float("inf"), "a number from 0 to 1"),
        ("max_tile_waste", float("inf"), "a number of at least 1"),
        ("max_tile_waste", 0.5, "a number of at least 1"),
        ("evolutionary_search_population", -1, "an integer of at least 1"),
        ("evolutionary_search_population", 0, "an integer of at least 1"),
        ("evolutionary_search_num_iters", -1, "an integer of at least 0"),
        ("evolutionary_search_mutation_prob", 7.0, "a number from 0 to 1"),
        ("sample_init_use_measured_ratio", -3.0, "a number from 0 to 1"),
        ("sample_init_min_population", -5, "an integer of at least 1"),
        ("first_rounds_size", -1, "an integer of at least 0"),
        ("polish_after", -1, "an integer of at least 0"),
        ("polish_after", "24", "an integer of at least 0"),
        ("disable_change_compute_location", 7, "0 or 1"),
        ("cpu_multi_level_tiling_structure", "", "a string of the letters S (spatial) and R"),
    ],
)
def test_a_search_parameter_out_of_range_is_refused_when_the_policy_is_made(
    task: ansor.SearchTask, name: str, value: Any, allowed: str
) -> None:
    with pytest.raises(ansor.DefinitionError) as caught:
        ansor.SketchPolicy(task, params={name: value})
    assert f"search parameter {name!r} is {value!r}; it must be {allowed}" in str(caught.value)


def test_the_ends_of_a_range_belong_to_it(task: ansor.SearchTask) -> None:
    edges = {"eps_greedy": np.float32(1), "polish_ratio": 0, "evolutionary_search_num_iters": np.int64(0)}
    params = ansor.SketchPolicy(task, params={**edges, "cpu_packed_read": True}).params
    assert [params[name] for name in edges] == [1.0, 0.0, 0]
    assert [type(params[name]) for name in (*edges, "cpu_packed_read")] == [float, float, int, int]


def test_random_scores_depend_on_seed_and_program_alone(task: ansor.SearchTask) -> None:
    states = ansor.sample_programs(task, 6, np.random.default_rng(0))
    scores = ansor.RandomModel(1).predict(task, states)
    np.testing.assert_array_equal(ansor.RandomModel(1).predict(task, states[::-1]), scores[::-1])
    assert scores.shape == (6,)
    assert ((scores >= 0) & (scores < 1)).all()
    assert (ansor.RandomModel(2).predict(task, states) != scores).any()


def test_a_learned_model_keeps_its_seed_through_a_file(task: ansor.SearchTask, tmp_path: Path) -> None:
    """And records that are too few to learn from."""
    log, file = tmp_path / "log.json", tmp_path / "model.json"
    for length in (2, 4, 8):
        state = ansor.State.initial(task.compute_dag).split(1, 0, [length])
        result = ansor.MeasureResult((1e-3 * length,), timestamp=1)  # type: ignore[arg-type]
        ansor.save_records(log, [ansor.MeasureInput(task, state)], [result])
    model = ansor.XGBModel(seed=5)
    model.update_from_file(log, n_lines=2)
    assert model.num_records == 2
    model.update_from_file(log)
    assert model.num_records == 3
    model.save(file)
    loaded = ansor.XGBModel(model_file=file)
    states = ansor.sample_programs(task, 3, np.random.default_rng(0))
    np.testing.assert_array_equal(loaded.predict(task, states), model.predict(task, states))
    assert loaded.num_records == 3
    assert not loaded.informative
    file.write_text("{}")
    with pytest.raises(ansor.LogFormatError, match="not a saved XGBModel"):
        model.load(file)
