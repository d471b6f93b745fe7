"""Single elements that rounding moves far: whatever it gives is right, and no more."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ansor import te
from ansor.dtypes import to_numpy
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.te.expr import Expr
from ansor.te.interp import evaluate
from ansor.te.tensor import Tensor
from measure import LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput
from measure.correctness.plain import iteration_points, trivial_state
from measure.correctness.reference import INTERPRETED_POINTS, ReferenceStore
from measure.correctness.rounding import rounding_errors
from measure.correctness.tolerance import output_tolerance
from measure.workers.check import Tolerance, loosened, mismatch

COUNT = 4096


def inverses(count: int, factor: float = 1.0) -> ComputeDAG:
    """Of matrices of 2 x 2, whose determinants are those of others if the factor is not 1."""
    a = te.placeholder((count, 2, 2), name="A")
    det = te.compute(
        (count,), lambda b: a[b, 0, 0] * a[b, 1, 1] - a[b, 0, 1] * a[b, 1, 0] * factor, name="det"
    )
    return ComputeDAG(
        [
            a,
            te.compute(
                (count, 2, 2),
                lambda b, i, j: te.select(i == j, a[b, 1 - i, 1 - j], -a[b, i, j]) / det[b],
                name="inv",
            ),
        ]
    )


def weighted_norm(rows: int, columns: int) -> ComputeDAG:
    """Weights of both signs: now and then the root is of what is nearly 0."""
    x, w = te.placeholder((rows, columns), name="X"), te.placeholder((columns,), name="w")
    k = te.reduce_axis((0, columns), name="k")
    s = te.compute((rows,), lambda i: te.sum(x[i, k] * x[i, k] * w[k], axis=k), name="s")
    scaled = te.compute((rows, columns), lambda i, j: x[i, j] * te.rsqrt(s[i] + 1e-5), name="O")
    return ComputeDAG([x, w, scaled])


def task_of(dag: ComputeDAG, name: str) -> Task:
    return Task.create(dag, f'["{name}"]', "llvm")


@pytest.mark.parametrize("count", [100_000, 450_000])
def test_a_quotient_by_what_is_left_over_is_right(
    builder: LocalBuilder, runner: LocalRunner, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    dag = inverses(count)
    task = task_of(dag, f"inverses {count}")
    inputs = [MeasureInput(task, state) for state in (State.initial(dag), trivial_state(dag))]
    with caplog.at_level(logging.WARNING):
        results = runner.run(inputs, builder.build(inputs))
    assert [result.error_msg for result in results] == ["", ""]
    assert runner.references.get(task).compiled == (iteration_points(dag) > INTERPRETED_POINTS)
    assert not caplog.records


def test_another_quotient_stays_wrong(builder: LocalBuilder, runner: LocalRunner) -> None:
    dag, other = inverses(20_000), inverses(20_000, 1.5)
    build = builder.build([MeasureInput(task_of(other, "others"), State.initial(other))])
    (result,) = runner.run([MeasureInput(task_of(dag, "inverses"), State.initial(dag))], build)
    assert result.error_no is MeasureErrorNo.WRONG_ANSWER
    assert "rounding makes" in result.error_msg
    share = int(result.error_msg.split("'inv': ")[1].split()[0]) / 80_000
    assert share > 0.98


def test_a_compiled_answer_may_be_off_where_rounding_counts(
    runner: LocalRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows whose sums nearly cancel; inputs without signs are taken after all."""
    monkeypatch.setattr("measure.correctness.spot_checks.CHECKS", ((1, 60.0), (8192, 60.0)))
    dag = weighted_norm(8192, 160)
    assert iteration_points(dag) > INTERPRETED_POINTS
    assert runner.references.get(task_of(dag, "weighted norm"), runner._pool).compiled


def values(seed: int, dtype: str = "float32") -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(COUNT).astype(to_numpy(dtype))


Body = Callable[[Tensor, Tensor], Callable[[Expr], Expr]]
BODIES: dict[str, Body] = {
    "difference": lambda a, b: lambda i: a[i] * 3.0 - b[i] * 0.375,
    "quotient": lambda a, b: lambda i: b[i] / (a[i] * a[i] - b[i] * 1.75),
    "functions": lambda a, b: lambda i: te.tanh(a[i] * 5.0 - b[i]) * te.sin(a[i] * 50.0),
    "logarithm": lambda a, b: lambda i: te.log(te.abs(a[i] * b[i] + 1.0)),
    "power": lambda a, b: lambda i: te.pow(te.abs(a[i] * b[i]), b[i] + 1.0),
    "fused": lambda a, b: lambda i: te.fma(a[i] * b[i], b[i] + a[i], -a[i]),
    "whole": lambda a, b: lambda i: te.floor(a[i] * b[i] * 64.0) - te.round(a[i] * 3.0),
    "choice": lambda a, b: lambda i: te.if_then_else(i < 9, a[i], te.maximum(a[i] * b[i], b[i] * 0.125)),
    "fewer digits": lambda a, b: lambda i: te.cast(te.cast(a[i] * b[i], "float16"), a.dtype) - b[i],
}


def outcome(body: Body, dtype: str, *data: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    a, b = (te.placeholder((COUNT,), dtype, name=letter) for letter in "AB")
    output = te.compute((COUNT,), body(a, b), name="O")
    found = evaluate(output, {a: data[0].astype(to_numpy(dtype)), b: data[1].astype(to_numpy(dtype))})
    return found[output].astype(np.float64)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", BODIES)
def test_errors_are_what_rounding_makes(name: str, dtype: str) -> None:
    """What more digits give is a few roundings away, and seldom far fewer."""
    a, b = (te.placeholder((COUNT,), dtype, name=letter) for letter in "AB")
    dag = ComputeDAG([a, b, te.compute((COUNT,), BODIES[name](a, b), name="O")])
    data = values(0, dtype), values(1, dtype)
    error = only_error(dag, *data).astype(np.float64)
    off = np.abs(outcome(BODIES[name], dtype, *data) - outcome(BODIES[name], "float64", *data))
    assert (off <= 4 * error).all()
    if name not in ("whole", "fewer digits"):  # Few elements are rounded to another number there.
        assert np.median(error) < 40 * np.median(off[off > 0])


def only_error(dag: ComputeDAG, *data: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    (error,) = rounding_errors(dag).values()
    return evaluate(error, dict(zip(dag.inputs, data, strict=True)))[error]


def test_an_error_is_unbounded_beside_a_pole() -> None:
    a = te.placeholder((4,), name="A")
    difference = te.compute((4,), lambda i: a[i] - 1.0, name="D")
    data = np.array([1.0, 1.0 + 2.0**-23, 1.5, 0.5], "f")
    for body in (
        lambda i: 1.0 / (difference[i] * 3.0 + 3.0 - 3.0),
        lambda i: te.rsqrt(difference[i] + 1.0 - 1.0),
    ):
        output = te.compute((4,), body, name="O")
        found = only_error(ComputeDAG([a, output]), data)
        assert not np.isfinite(found[:2]).any()
        assert found[2] < 1e-5


@pytest.mark.parametrize("mask", [-np.inf, -1e9])
def test_masks_have_no_errors(mask: float) -> None:
    """What a softmax masks is 0 and no less exact, and what it does not has errors of its own size."""
    a = te.placeholder((4, 64), name="A")
    k, m = (te.reduce_axis((0, 64), name) for name in "km")
    masked = te.compute((4, 64), lambda i, j: te.select(j <= i * 16, a[i, j] * 0.7, mask), name="M")
    greatest = te.compute((4,), lambda i: te.max(masked[i, k], axis=k), name="G")
    e = te.compute((4, 64), lambda i, j: te.exp(masked[i, j] - greatest[i]), name="E")
    total = te.compute((4,), lambda i: te.sum(e[i, m], axis=m), name="T")
    output = te.compute((4, 64), lambda i, j: e[i, j] / total[i], name="O")
    found = only_error(ComputeDAG([a, output]), values(2)[:256].reshape(4, 64))
    assert found[0, 0] > 0
    assert (found < 1e-5).all()
    assert (found[0, 1:] < 1e-40).all()


def test_reductions_add_errors_up() -> None:
    a, k = te.placeholder((8, 512), name="A"), te.reduce_axis((0, 512), "k")
    data = values(3).reshape(8, 512)
    eps = 2.0**-23

    def error(
        reduced: Callable[..., Expr], body: Callable[[Expr], Expr] = lambda x: x
    ) -> npt.NDArray[np.float32]:
        output = te.compute((8,), lambda i: reduced(body(a[i, k]), axis=k), name="O")
        return only_error(ComputeDAG([a, output]), data)

    squares = np.sqrt((data.astype("d") ** 2).sum(1))
    assert error(te.sum) == pytest.approx(eps * (squares + np.abs(data.astype("d").sum(1))), rel=1e-3)
    assert (error(te.sum, lambda x: x * 2.0) > 2 * error(te.sum)).all()
    assert error(te.max, lambda x: x + 100.0) == pytest.approx(eps * 100, rel=0.1)
    product = error(te.prod, lambda x: x * x * 0.001 + 1.0)
    assert ((product > 20 * eps) & (product < 200 * eps)).all()
    smallest = te.compute((8,), lambda i: te.min(a[i, k], axis=k), name="O")
    assert not rounding_errors(ComputeDAG([a, smallest]))


def test_errors_of_reducers_of_ones_own() -> None:
    """The position and the value of the greatest: a value is off by what its terms are."""
    a, k = te.placeholder((8, 512), name="A"), te.reduce_axis((0, 512), "k")
    greatest = te.comm_reducer(
        lambda x, y: (te.select(y[1] > x[1], y[0], x[0]), te.maximum(x[1], y[1])),
        lambda at, value: (te.const(0, at), te.min_value(value)),
    )
    at, value = te.compute((8,), lambda i: greatest((k, a[i, k] * 2.0), axis=k), name="O")
    dag = ComputeDAG([a, at, value])
    (found,) = rounding_errors(dag)
    assert found is value
    bound = only_error(dag, values(4).reshape(8, 512))
    assert ((bound > 2.0**-22) & (bound < 1e-4)).all()


def test_what_is_not_computed_in_floats_has_no_errors() -> None:
    a = te.placeholder((8,), name="A")
    moved = te.compute((8,), lambda i: te.maximum(a[7 - i], 0.0), name="M")
    whole = te.compute((8,), lambda i: te.cast(a[i] * 3.0, "int32"), name="W")
    assert not rounding_errors(ComputeDAG([a, moved, whole]))


def test_a_last_rounding_is_allowed_for_once() -> None:
    """Of a product of 16-bit floats that are added up in float32."""
    a, b = (te.placeholder((16, 16), "float16", name=letter) for letter in "AB")
    k = te.reduce_axis((0, 16), "k")

    def term(i: Expr, j: Expr) -> Expr:
        return te.cast(a[i, k], "float32") * te.cast(b[k, j], "float32")

    c = te.compute((16, 16), lambda i, j: te.sum(term(i, j), axis=k), name="C")
    narrow = te.compute((16, 16), lambda i, j: te.cast(c[i, j], "float16"), name="N")
    data = [values(seed, "float16")[:256].reshape(16, 16) for seed in (5, 6)]
    bound = output_tolerance(narrow).roundings * only_error(ComputeDAG([a, b, narrow]), *data)
    exact = np.abs(data[0].astype("d") @ data[1].astype("d"))
    assert (bound >= 2 * 2.0**-10 * exact).all()
    assert (bound <= 3 * 2.0**-10 * exact + 1e-4).all()


def test_elements_may_be_off_by_what_rounding_makes() -> None:
    expected = np.array([1.0, 2.0, np.nan, 4.0, np.inf], "f")
    errors = np.array([0.0, 0.01, np.inf, np.nan, 0.0], "f")
    tolerance = Tolerance(1e-3, 0.0, roundings=20.0)

    def wrong(*found: float) -> str | None:
        return mismatch(np.array(found, "f"), expected, "float32", tolerance, errors=errors)

    assert wrong(1.0, 2.19, 5.0, np.nan, np.inf) is None
    assert wrong(1.0, 1.81, np.nan, np.inf, np.inf) is None
    assert "first [1]" in str(wrong(1.0, 2.21, 5.0, 4.0, np.inf))
    assert "rounding makes 0.2 of difference there" in str(wrong(1.0, 2.21, 5.0, 4.0, np.inf))
    assert "first [0]" in str(wrong(1.01, 2.0, 5.0, 4.0, np.inf))
    assert "first [4]" in str(wrong(1.0, 2.0, 5.0, 4.0, np.nan))
    assert "first [1]" in str(wrong(1.0, np.nan, 5.0, 4.0, np.inf))
    assert loosened(expected, errors, tolerance) == (3, 2)


def test_that_rounding_decides_all_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A difference of equal numbers, which are rounded, is nothing else."""
    a = te.placeholder((64,), name="A")
    noise = te.compute((64,), lambda i: (a[i] + 1e6) - 1e6 - a[i], name="N")
    task = task_of(ComputeDAG([a, noise]), "noise")
    store = ReferenceStore()
    store.get(task)
    assert not caplog.records
    assert store.reconsider(task)
    assert "rounding may make anything of 100 % of output 'N'" in caplog.text
    (spec,) = (one for one in store.get(task).arguments if one.output)
    assert spec.errors is not None
    assert len(list(store._folder.glob("*.errors"))) == 1


def test_without_room_for_errors_the_tolerance_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise MemoryError("no room")

    task, store = task_of(inverses(64), "inverses, no room"), ReferenceStore()
    known = store.get(task)
    monkeypatch.setattr("measure.correctness.other_answers.interpret", full)
    assert not store.reconsider(task)
    assert store.get(task).arguments == known.arguments
    assert "the rounding errors of" in caplog.text
    assert not list(store._folder.glob("*.errors"))
