"""The auto-scheduler tutorial, as its readers write it, with real building, running and checking."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor as auto_scheduler
from ansor import te

pytestmark = pytest.mark.usefixtures("small_searches", "kept_workers")


def matmul_add(N: int, L: int, M: int, dtype: str) -> list[te.Tensor]:
    a = te.placeholder((N, L), name="A", dtype=dtype)
    b = te.placeholder((L, M), name="B", dtype=dtype)
    c = te.placeholder((N, M), name="C", dtype=dtype)
    k = te.reduce_axis((0, L), name="k")
    matmul = te.compute(
        (N, M),
        lambda i, j: te.sum(a[i, k] * b[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [b]},
    )
    out = te.compute((N, M), lambda i, j: matmul[i, j] + c[i, j], name="out")
    return [a, b, c, out]


def test_tutorial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    auto_scheduler.register_workload("search_tutorial_matmul_add", matmul_add, override=True)
    target = auto_scheduler.Target("llvm")
    n = 64
    task = auto_scheduler.SearchTask(func=matmul_add, args=(n, n, n, "float32"), target=target)
    print(task.compute_dag)
    assert "matmul(i, j) += (A[i, k]*B[k, j])" in capsys.readouterr().out

    log_file = str(tmp_path / "matmul.json")
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=6, measure_callbacks=[auto_scheduler.RecordToFile(log_file)], verbose=2
    )
    task.tune(tune_option)
    sch, args = task.apply_best(log_file)
    nest = str(auto_scheduler.lower(sch, args, simple_mode=True))
    assert "matmul[" in nest

    func = auto_scheduler.build(sch, args, target)
    rng = np.random.default_rng(0)
    a, b, c = (rng.uniform(size=(n, n)).astype(np.float32) for _ in range(3))
    out = np.empty((n, n), np.float32)
    func(a, b, c, out)
    np.testing.assert_allclose(out, a.dot(b) + c, rtol=1e-3)
    evaluator = func.time_evaluator(func.entry_name, min_repeat_ms=5)
    assert np.median(evaluator(a, b, c, out).results) > 0

    scope: dict[str, Any] = {}
    exec(task.print_best(log_file), scope)
    assert str(auto_scheduler.lower(scope["s"], scope["tensors"])) == str(auto_scheduler.lower(sch, args))

    cost_model = auto_scheduler.XGBModel()
    cost_model.update_from_file(log_file)
    search_policy = auto_scheduler.SketchPolicy(
        task, cost_model, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log_file)]
    )
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=5, measure_callbacks=[auto_scheduler.RecordToFile(log_file)], verbose=0
    )
    result = task.tune(tune_option, search_policy=search_policy)
    inputs, results = auto_scheduler.RecordReader(log_file).read_lines()
    assert (result.trials, result.known_trials, len(results)) == (5, 11, 11)
    assert all(res.ok for res in results), result.error_examples
    assert len({str(inp.state) for inp in inputs}) == 11
    assert cost_model.num_records == 11


def test_index_inputs_come_from_the_user(tmp_path: Path) -> None:
    n = 128
    x, index = te.placeholder((n,), name="X"), te.placeholder((n,), "int64", name="index")
    gathered = te.compute((n,), lambda i: x[index[i]] * 2.0, name="Y")
    positions = np.random.default_rng(0).permutation(n)
    task = auto_scheduler.SearchTask(compute_dag=[x, index, gathered], task_inputs={"index": positions})
    options = auto_scheduler.TuningOptions(num_measure_trials=2, verbose=0)
    result = task.tune(options)
    assert result.trials >= 1
    assert not result.errors, result.error_examples
