"""Storing a stage's result as its readers convert it: the step, what it refuses, and when sketches do it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import ScheduleError
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.schedule.source import schedule_code
from ansor.te.tensor import Tensor
from sketches import generate_sketches, sample_programs
from tests.program_laws import Case, check_all, check_results
from tests.sketches_cases import task_of


def padded_products(
    narrow: str = "float16", wide: str = "float32", taps: int = 3, outputs: int = 16
) -> list[Tensor]:
    """A convolution of a padded row with several channels, summed up in another dtype."""
    x, w = te.placeholder((12, 8), narrow, "X"), te.placeholder((taps, 8, outputs), narrow, "W")
    zero = te.const(0, narrow)
    pad = te.compute(
        (14, 8), lambda i, c: te.if_then_else(te.all(i >= 1, i < 13), x[i - 1, c], zero), name="Pad"
    )
    r, c = te.reduce_axis((0, taps), "r"), te.reduce_axis((0, 8), "c")
    y = te.compute(
        (15 - taps, outputs),
        lambda i, o: te.sum(pad[i + r, c].astype(wide) * w[r, c, o].astype(wide), axis=[r, c]),
        name="Y",
    )
    return [x, w, y]


def widened_product(left: Callable[[Tensor], Tensor], columns: int = 64) -> list[Tensor]:
    """A product of float16 matrices, the left one a function of an input, summed up in float32."""
    a, b = te.placeholder((64, 64), "float16", "A"), te.placeholder((64, columns), "float16", "B")
    r, k = left(a), te.reduce_axis((0, 64), "k")
    c = te.compute(
        (64, columns),
        lambda i, j: te.sum(r[i, k].astype("float32") * b[k, j].astype("float32"), axis=k),
        name="C",
    )
    return [a, b, c]


def rectified(a: Tensor) -> Tensor:
    return te.compute(a.shape, lambda i, j: te.maximum(a[i, j], te.const(0, "float16")), name="R")


def activated(a: Tensor) -> Tensor:
    return te.compute(a.shape, lambda i, j: te.tanh(a[i, j]), name="R")


def turned(a: Tensor) -> Tensor:
    return te.compute(a.shape, lambda i, j: a[j, i], name="R")


def converted(tensors: list[Tensor]) -> Schedule:
    s = te.create_schedule(tensors[-1])
    (pad,) = (op for op in s.state.dag.ops if op.name == "Pad")
    s[pad].store_converted()
    return s


# -- the step ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [("float16", "float32"), ("bfloat16", "float32"), ("int8", "int32"), ("int16", "int8")],
)
def test_the_stage_stores_what_its_readers_convert_it_to(narrow: str, wide: str) -> None:
    s = converted(padded_products(narrow, wide))
    assert f"allocate Pad[14, 8] {wide}" in str(lower(s))
    check_all(Case.of(s.state))


def test_it_is_printed_recorded_and_replayed_on_a_line_that_tvm_skips() -> None:
    tensors = padded_products()
    s = converted(tensors)
    assert s.state.steps[-1].to_json() == ["SC", 1]
    assert "s[Pad].store_converted()" in schedule_code(s.state)
    task = ansor.SearchTask(compute_dag=tensors, target="llvm")
    line = ansor.dump_record_to_string(
        ansor.MeasureInput(task, s.state), ansor.MeasureResult([1e-3], 0, "", 1.0, 0.0)
    )
    assert line.startswith("# ansor ")


def test_readers_of_readers_and_scheduled_loops_follow() -> None:
    a = te.placeholder((8, 8), "float16", "A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + te.const(1, "float16"), name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j].astype("float32") * 2.0, name="C")
    d = te.compute((8, 8), lambda i, j: c[i, j] - b[j, i].astype("float32"), name="D")
    s = te.create_schedule([c, d])
    outer, inner = s[b].split(b.op.axis[1], 4)
    s[b].vectorize(inner)
    s[b].store_converted()
    s[c].parallel(c.op.axis[0])
    assert "allocate B[8, 8] float32" in str(lower(s, [a, c, d]))
    assert [loop.name for loop in s[b].leaf_iter_vars] == ["i", outer.name, inner.name]
    check_all(Case.of(s.state))


def test_what_is_not_converted_or_wanted_as_it_is_stays() -> None:
    a = te.placeholder((8, 8), "float16", "A")
    b = te.compute((8, 8), lambda i, j: a[i, j] * a[i, j], name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j].astype("float32"), name="C")
    plain = te.compute((8, 8), lambda i, j: b[i, j], name="E")
    other = te.compute((8, 8), lambda i, j: b[i, j].astype("float64"), name="F")
    k = te.reduce_axis((0, 8), "k")
    total = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="G")
    used = te.compute((8,), lambda i: total[i].astype("float32"), name="H")
    for outputs, stage, reason in (
        ([b, c], b, "it is an output"),
        ([c, plain], b, "not all of its readers convert it"),
        ([c, other], b, "its readers convert it to float32 and float64"),
        ([used], total, "a reduction is done in the dtype of its result"),
    ):
        s = te.create_schedule(outputs)
        with pytest.raises(ScheduleError, match=f"store_converted of stage '{stage.name}': {reason}"):
            s[stage].store_converted()
    s = converted(padded_products())
    (pad,) = (op for op in s.state.dag.ops if op.name == "Pad")
    with pytest.raises(ScheduleError, match="not all of its readers convert it"):
        s[pad].store_converted()


def test_what_is_inlined_stores_nothing() -> None:
    s = te.create_schedule(padded_products()[-1])
    (pad,) = (op for op in s.state.dag.ops if op.name == "Pad")
    s[pad].compute_inline()
    with pytest.raises(ScheduleError, match="store_converted of stage 'Pad': it is inlined"):
        s[pad].store_converted()


# -- sketches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("narrow", "wide"), [("float32", "float64"), ("float16", "float32")])
def test_an_argument_is_stored_as_it_is_defined(narrow: str, wide: str) -> None:
    """The caller's memory is for elements of its own dtype; a copy may be converted."""
    x = te.placeholder((32,), narrow, "X")
    p = te.compute((32,), lambda i: x[i] + x[i], name="P")
    y = te.compute((32,), lambda i: te.cast(p[i], wide) * te.const(3, wide), name="Y")
    s = te.create_schedule(y)
    s[p].store_converted()
    with pytest.raises(ScheduleError, match=f"'P' is an argument of {narrow}, .* converted to {wide}"):
        ansor.build(s, [x, p, y])
    s = te.create_schedule(y)
    s[s.cache_read(p, "global", y)].store_converted()
    given, kept, found = np.arange(32, dtype=narrow), np.empty(32, narrow), np.empty(32, wide)
    ansor.build(s, [x, p, y])(given, kept, found)
    assert kept.tolist() == (2 * given).tolist()
    assert found.tolist() == (6 * given.astype(wide)).tolist()


def test_what_reductions_widen_often_is_stored_widened() -> None:
    def explained(*args: str, taps: int = 3, params: dict[str, int] | None = None) -> list[bool]:
        found = generate_sketches(task_of(padded_products(*args, taps=taps)), params)
        return ["StoreConverted(Pad)" in sketch.explain() for sketch in found]

    assert all(explained())
    assert all(explained("int8", "int64"))
    assert not any(explained("float32", "float32"))
    assert not any(explained("float32", "float16"))
    assert not any(explained(params={"cpu_store_converted": 0}))


def test_packed_tiles_hold_what_is_used_of_them() -> None:
    task = task_of(widened_product(lambda a: a))

    def dtypes(params: dict[str, int]) -> set[str]:
        states = [sketch.state for sketch in generate_sketches(task, params)]
        return {x.op.output(0).dtype for s in states for x in s.stages if x.name in ("A.local", "B.local")}

    assert dtypes({}) == {"float32"}
    assert dtypes({"cpu_store_converted": 0}) == {"float16"}


def fates(tensors: list[Tensor], stage: str) -> list[tuple[bool, bool]]:
    """For each sketch without packed tiles: whether the stage is stored converted, and whether inlined."""
    found = generate_sketches(task_of(tensors), {"cpu_packed_read": 0})
    ids = [(sketch, sketch.state.stage_id(stage)) for sketch in found]
    return [
        (f"StoreConverted({stage})" in sketch.explain(), sketch.state.stages[at].compute_at == "inlined")
        for sketch, at in ids
    ]


def test_what_is_inlined_is_not_converted_before() -> None:
    assert set(fates(widened_product(rectified), "R")) == {(False, True)}
    found = fates(padded_products(outputs=4), "Pad")
    assert sorted(set(found)) == [(False, False), (False, True), (True, False)]
    assert len(found) == 3 * found.count((False, True))


def test_what_is_kept_or_tiled_for_its_many_uses_is_stored_widened() -> None:
    assert set(fates(widened_product(activated), "R")) == {(True, False)}
    assert set(fates(widened_product(turned), "R")) == {(True, False)}
    assert set(fates(widened_product(activated, 8), "R")) == {(False, False), (False, True), (True, False)}
    found = generate_sketches(task_of(widened_product(turned)), {"cpu_packed_read": 0})
    assert all("StoreConverted(R), StreamTiling(R)" in sketch.explain() for sketch in found)


@pytest.mark.parametrize("left", [activated, turned])
def test_programs_of_kept_and_tiled_stages_compute_the_same(left: Callable[[Tensor], Tensor]) -> None:
    task = task_of(widened_product(left, 8))
    for state in sample_programs(task, 4, np.random.default_rng(2)):
        check_results(state)


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_sampled_programs_compute_the_same(narrow: str) -> None:
    for state in sample_programs(task_of(padded_products(narrow)), 8, np.random.default_rng(1)):
        check_all(Case.of(state))
