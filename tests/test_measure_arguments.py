"""Argument memory, input data and the comparison: what must be noticed is noticed, what is right passes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor import te
from ansor.alignment import CALLERS, PAGE
from ansor.dtypes import DTYPES, is_float, to_numpy
from ansor.errors import DefinitionError, RunError, WrongAnswerError
from ansor.schedule.dag import ComputeDAG
from ansor.te import Tensor
from ansor.te.interp import evaluate
from ansor.workloads.catalogue import get_workload
from measure.correctness.fill import fill_inputs, index_limits
from measure.correctness.tolerance import output_tolerance
from measure.workers.arena import GuardedArray, poison
from measure.workers.arguments import ArgumentSet, ArgumentSpec
from measure.workers.check import Tolerance, mismatch, rms

SHAPES = [(), (1,), (7,), (3, 5), (64,), (1025,), (0,), (4096,)]


# -- guarded memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16", "float64"])
@pytest.mark.parametrize("behind_line", [0, 16])
def test_guarded_array_is_aligned_and_reports_strays(
    shape: tuple[int, ...], dtype: str, behind_line: int
) -> None:
    guarded = GuardedArray(shape, dtype, behind_line)
    assert guarded.address % 64 == behind_line
    assert guarded.array.shape == shape
    assert guarded.array.dtype == to_numpy(dtype)
    guarded.array[...] = np.ones(shape, to_numpy(dtype))
    assert guarded.damage() is None
    after, before = guarded._after, guarded._before
    if len(after):
        after[0] ^= 1
        assert guarded.damage() == "1 byte(s) past its end"
        guarded.restore_canaries()
    if len(before):
        before[-2] ^= 1
        assert guarded.damage() == "2 byte(s) before its start"
        guarded.restore_canaries()
    assert guarded.damage() is None


def test_memory_that_is_not_there_is_an_error() -> None:
    with pytest.raises(RunError, match="no memory for an argument"):
        GuardedArray((1 << 60,), "float32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_wrong_everywhere(dtype: str) -> None:
    rng = np.random.default_rng(0)
    expected = rng.integers(0, 2, 100).astype(to_numpy(dtype))
    array = np.empty_like(expected)
    poison(array, dtype, expected)
    for position in range(100):
        one, other = array[position : position + 1], expected[position : position + 1]
        assert mismatch(one, other, dtype, Tolerance(1e-2, 1.0)) is not None


@pytest.mark.parametrize("dtype", [name for name in DTYPES if is_float(name)])
@pytest.mark.parametrize("accumulate", [np.add, np.fmax, np.fmin])
def test_poison_shows_a_forgotten_initialisation(dtype: str, accumulate: Any) -> None:
    expected = np.ones(12, to_numpy(dtype))
    array = np.empty_like(expected)
    poison(array, dtype, expected)
    with np.errstate(all="ignore"):
        found = accumulate(array.astype(np.float64), 1.0).astype(array.dtype)
    assert mismatch(found, expected, dtype, Tolerance(1e-2, 1.0)) is not None


# -- argument sets -------------------------------------------------------------------------------------


def spec(folder: Path, name: str, values: np.ndarray[Any, Any], output: bool) -> ArgumentSpec:
    path = folder / name
    values.tofile(path)
    tolerance = Tolerance(1e-5, 1.0) if output else Tolerance(0.0)
    return ArgumentSpec(name, str(values.dtype), values.shape, output, str(path), tolerance)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[ArgumentSet[GuardedArray], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An input A and an output B = 2 * A of 3 x 5 floats, with views of their guarded memory."""
    data = np.arange(15, dtype=np.float32).reshape(3, 5)
    made = ArgumentSet(GuardedArray, [spec(tmp_path, "A", data, False), spec(tmp_path, "B", 2 * data, True)])
    made.prepare()
    return made, made._held[0].memory.array, made._held[1].memory.array


Pair = tuple[ArgumentSet[GuardedArray], np.ndarray[Any, Any], np.ndarray[Any, Any]]


def test_right_answer_passes_again_and_again(pair: Pair) -> None:
    arguments, a, b = pair
    for _ in range(2):
        b[...] = a * 2
        arguments.verify()
        arguments.prepare()
        with pytest.raises(WrongAnswerError):
            arguments.verify()
        arguments.prepare()
        assert np.array_equal(a, np.arange(15).reshape(3, 5))


def test_wrong_element_is_named(pair: Pair) -> None:
    arguments, a, b = pair
    b[...] = a * 2
    b[1, 2] = 0.5
    with pytest.raises(
        WrongAnswerError, match=r"output 'B': 1 of 15 .* first \[1, 2\]: expected 14, found 0.5"
    ):
        arguments.verify()


def test_skipped_store_is_found(pair: Pair) -> None:
    arguments, a, b = pair
    for row in range(3):
        for column in range(5):
            arguments.prepare()
            kept = b[row, column].copy()
            b[...] = a * 2
            b[row, column] = kept
            with pytest.raises(WrongAnswerError, match=rf"first \[{row}, {column}\]"):
                arguments.verify()


def test_changed_input_is_named_and_restored(pair: Pair) -> None:
    arguments, a, b = pair
    b[...] = a * 2
    a[2, 4] = -1
    with pytest.raises(WrongAnswerError, match=r"changed its input 'A': element \[2, 4\] was 14.0 and is -1"):
        arguments.verify()
    arguments.prepare()
    b[...] = a * 2
    arguments.verify()


@pytest.mark.parametrize("place", [0, 16383, 16384, 39999])
def test_every_place_of_a_long_input_is_looked_at(place: int, tmp_path: Path) -> None:
    data = np.zeros(40000, np.float32)
    made = ArgumentSet(GuardedArray, [spec(tmp_path, "A", data, False)])
    made.prepare()
    made.verify()
    made.prepare()
    made.memories[0].array[place] = -0.0
    with pytest.raises(WrongAnswerError, match=rf"'A': element \[{place}\] was 0.0 and is -0.0"):
        made.verify()


def test_write_past_the_end_is_found(pair: Pair) -> None:
    arguments, a, b = pair
    b[...] = a * 2
    arguments._held[1].memory._after[:4] = 0
    with pytest.raises(WrongAnswerError, match=r"outside argument 'B': 1 byte.s. past its end"):
        arguments.verify()
    arguments.prepare()
    b[...] = a * 2
    arguments.verify()


def test_arguments_that_stay_keep_their_memory(tmp_path: Path) -> None:
    data = np.arange(15, dtype=np.float32).reshape(3, 5)
    a, w = spec(tmp_path, "A", data, False), spec(tmp_path, "W", data, False)
    b = spec(tmp_path, "B", 2 * data, True)
    turned = replace(w, digits=((1, 5, 1), (0, 3, 1)))
    arguments = ArgumentSet(GuardedArray, [a, w, b])
    for changed in (w, turned, turned, w):
        kept = [held for held in arguments._held if held.spec in (a, changed, b)]
        arguments.take([ArgumentSpec.from_json(one.to_json()) for one in (a, changed, b)])
        assert [held for held in arguments._held if held in kept] == kept
        arguments.prepare()
        first, second, result = (held.memory.array for held in arguments._held)
        assert np.array_equal(first, data)
        assert np.array_equal(second, data if changed is w else data.T)
        with pytest.raises(WrongAnswerError, match="output 'B'"):
            arguments.verify()
        result[...] = 2 * data
        arguments.verify()
    arguments.take([a])
    assert len(arguments.memories) == 1


def test_arrays_begin_where_calls_find_them(tmp_path: Path) -> None:
    """The caller's inputs where numpy puts large arrays; what ansor makes on cache lines."""
    data = np.zeros((64, 1024), np.float32)
    given = spec(tmp_path, "A", data, False)
    laid = replace(given, digits=((1, 1024, 1), (0, 64, 1)))
    aligned, output = replace(given, aligned=True), spec(tmp_path, "B", data, True)
    memories = ArgumentSet(GuardedArray, [given, laid, aligned, output]).memories
    assert [memory.address % 64 for memory in memories] == [CALLERS, 0, 0, 0]


def test_outputs_begin_elsewhere_in_a_page_than_inputs(tmp_path: Path) -> None:
    data = np.zeros(1 << 16, np.int8)
    given = [spec(tmp_path, f"X{n}", data[: 1 << n], False) for n in (16, 13, 5)]
    outputs = [spec(tmp_path, f"Y{n}", data[: 1 << n], True) for n in (16, 14, 11)]
    memories = ArgumentSet(GuardedArray, [*given, *outputs]).memories
    inputs = [memory.address for memory in memories[:3]]
    for memory in memories[3:5]:
        ahead = [(memory.address - address) % PAGE for address in inputs]
        assert min(*ahead, *(PAGE - one for one in ahead)) >= PAGE // 8
        memory.array[...] = 1
        assert memory.damage() is None
        memory._after[0] ^= 1
        assert memory.damage() == "1 byte(s) past its end"
    assert memories[5].address % PAGE == PAGE // 2  # its end is guarded, as it is small


def test_spec_survives_json(tmp_path: Path) -> None:
    import json

    one = spec(tmp_path, "A", np.zeros((2, 3), np.int8), True)
    assert ArgumentSpec.from_json(json.loads(json.dumps(one.to_json()))) == one


# -- comparison ----------------------------------------------------------------------------------------


def test_nan_and_infinity_equal_themselves() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert mismatch(values.copy(), values, "float32", Tolerance(1e-6, 1.0)) is None
    for position, wrong in ((0, 1.0), (1, -np.inf), (2, np.nan), (3, np.nan), (3, np.inf)):
        found = values.copy()
        found[position] = wrong
        text = mismatch(found, values, "float32", Tolerance(1e-6, 1.0))
        assert text is not None
        assert f"first [{position}]" in text


def test_integers_are_exact_unless_floats_decide_them() -> None:
    expected = np.arange(200_000, dtype=np.uint8).reshape(2, -1)
    found = expected.copy()
    found[1, 7] ^= 1
    assert "first [1, 7]" in str(mismatch(found, expected, "uint8", Tolerance(0.0)))
    assert mismatch(found, expected, "uint8", Tolerance(0.0, rare=1e-5)) is None
    found[1, 7] ^= 64
    assert mismatch(found, expected, "uint8", Tolerance(0.0, rare=1e-5)) is None
    found[0, 3:6] ^= 64
    assert "4 of" in str(mismatch(found, expected, "uint8", Tolerance(0.0, rare=1e-5)))


def test_floats_that_a_choice_decides_are_numbers_all_the_same() -> None:
    """What no program wrote holds NaN here and there."""
    expected = np.ones(1000, np.float16)
    found = expected.copy()
    found[:5] = 0
    tolerance = Tolerance(1e-2, 1.0, rare=5e-3)
    assert mismatch(found, expected, "float16", tolerance) is None
    assert "5 of" in str(mismatch(found, expected, "float16", replace(tolerance, rare=4e-3)))
    found[0] = np.nan
    assert "5 of" in str(mismatch(found, expected, "float16", tolerance))


def test_large_outputs_are_compared_to_the_last_element() -> None:
    expected = np.ones(200_001, np.float32)
    found = expected.copy()
    found[-1] = 2
    assert "1 of 200001" in str(mismatch(found, expected, "float32", Tolerance(1e-5, 1.0)))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3000),
    st.sampled_from(["float32", "float16", "bfloat16", "float64"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_other_orders_of_summation_pass_and_a_missing_row_does_not(
    length: int, dtype: str, signed: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    numpy_dtype = to_numpy(dtype)
    a = te.placeholder((length, 64), dtype, name="A")
    k = te.reduce_axis((0, length), name="k")
    output = te.compute((64,), lambda i: te.sum(a[k, i], axis=[k]), name="B")
    values = rng.random((length, 64)) * 0.75 + 0.25
    if signed:
        values *= rng.choice([-1, 1], values.shape)
    terms = values.astype(numpy_dtype)

    def total(order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        sums = np.zeros(64, numpy_dtype)
        for row in order:
            sums = (sums + terms[row]).astype(numpy_dtype)
        return sums

    expected = total(np.arange(length))
    tolerance = output_tolerance(output)
    tolerance = Tolerance(tolerance.relative, rms(expected))
    assert mismatch(total(np.arange(length)[::-1]), expected, dtype, tolerance) is None
    if is_float(dtype) and tolerance.relative * length**0.5 < 0.05:
        assert mismatch(total(np.arange(length - 1)), expected, dtype, tolerance) is not None


def test_tolerance_knows_what_is_computed() -> None:
    a = te.placeholder((8, 8), "float16", name="A")
    k = te.reduce_axis((0, 8), name="k")
    copy = te.compute((8, 8), lambda i, j: a[j, i], name="T")
    wide = te.compute((8,), lambda i: te.sum(te.cast(a[i, k], "float32"), axis=[k]), name="W")
    narrow = te.compute((8,), lambda i: te.cast(wide[i], "float16"), name="N")
    doubled = te.compute((8,), lambda i: narrow[i] + narrow[i], name="D")
    quantised = te.compute((8,), lambda i: te.cast(wide[i], "int8"), name="Q")
    whole = te.compute((8, 8), lambda i, j: te.cast(i, "int8") + te.cast(j, "int8"), name="I")
    assert output_tolerance(copy) == Tolerance(0.0)
    assert output_tolerance(wide).relative == pytest.approx(2**-23 * (16 + 1.5 * 8**0.5))
    assert output_tolerance(narrow).relative == pytest.approx(2**-23 * (16 + 1.5 * 8**0.5) + 2 * 2**-10)
    assert output_tolerance(doubled).relative == pytest.approx(2**-10 * 16 + 2**-23 * 1.5 * 8**0.5)
    assert output_tolerance(quantised).rare == 1e-5
    assert output_tolerance(whole) == Tolerance(0.0)


@pytest.mark.parametrize("depth", [512, 4096])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_term_shows_that_a_product_rounded_at_last_lacks(dtype: str, depth: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1.0, 1.0, (64, depth)).astype(to_numpy(dtype)).astype(np.float32) for _ in range(2))
    output = get_workload("matmul").tensors(64, 64, depth, dtype)[-1]
    expected, other_order, one_less = (
        np.matmul(a[:, order], b[:, order].T).astype(to_numpy(dtype))
        for order in (slice(None), slice(None, None, -1), slice(1, None))
    )
    tolerance = replace(output_tolerance(output), scale=rms(expected))
    assert mismatch(other_order, expected, dtype, tolerance) is None
    assert mismatch(one_less, expected, dtype, tolerance) is not None


def test_small_results_may_be_the_next_ones() -> None:
    """A row of many: its shares are among the least numbers, as far from each other as those."""
    output = get_workload("softmax").tensors(4, 1 << 17, "float16")[-1]
    x = np.random.default_rng(0).standard_normal((4, 1 << 17)).astype(np.float16).astype(np.float32)
    shares = np.exp(x - x.max(axis=1, keepdims=True))
    pairwise, in_order = shares.sum(axis=1), shares.cumsum(axis=1, dtype=np.float32)[:, -1]
    expected, found = ((shares / total[:, None]).astype(np.float16) for total in (pairwise, in_order))
    assert np.count_nonzero(expected != found) > 100
    tolerance = replace(output_tolerance(output), scale=rms(expected))
    assert mismatch(found, expected, "float16", tolerance) is None
    assert mismatch((expected * np.float16(1.3)), expected, "float16", tolerance) is not None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_greatest_of_a_row_is_exact(dtype: str) -> None:
    output = get_workload("softmax").tensors(64, 1024, dtype)[-1]
    expected = np.random.default_rng(0).uniform(0.0, 1.0, (64, 1024)).astype(to_numpy(dtype))
    tolerance = replace(output_tolerance(output), scale=rms(expected))
    wrong = (expected.astype(np.float32) * 1.1).astype(to_numpy(dtype))
    assert mismatch(wrong, expected, dtype, tolerance) is not None
    x, k = te.placeholder((8, 8), dtype, name="X"), te.reduce_axis((0, 8), "k")
    greatest = te.compute((8,), lambda i: te.max(x[i, k], axis=k), name="G")
    assert output_tolerance(greatest).relative == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("magnitude", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("off", [0.0, 0.5, 0.99, 1.01, 3.0])
def test_each_element_may_be_off_by_what_it_is_allowed(dtype: str, magnitude: float, off: float) -> None:
    tolerance = Tolerance(2.0**-4, 1.0)
    expected = np.random.default_rng(0).uniform(0.5, 1.0, 1000) * magnitude
    expected = expected.astype(to_numpy(dtype))
    found = expected.copy()
    found[700] += to_numpy(dtype).type(off * tolerance.relative * (1.0 + abs(float(expected[700]))))
    wrong = abs(float(found[700]) - float(expected[700])) > tolerance.relative * (1.0 + float(expected[700]))
    assert (mismatch(found, expected, dtype, tolerance) is not None) is wrong
    assert wrong or off <= 1.01


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_right_where_it_is_expected(value: float) -> None:
    expected = np.ones(1000, np.float32)
    found = expected.copy()
    found[700] = value
    assert "[700]" in str(mismatch(found, expected, "float32", Tolerance(0.5, 1.0)))
    assert "[700]" in str(mismatch(expected, found, "float32", Tolerance(0.5, 1.0)))
    assert mismatch(found, found.copy(), "float32", Tolerance(0.5, 1.0)) is None


Body = Callable[..., Any]
DECIDED: dict[str, tuple[str, Body]] = {
    "comparison": ("bool", lambda s, t, i: s[i] > 0.1),
    "choice": ("float16", lambda s, t, i: te.select(s[i] > 0.1, 1.0, te.const(0, "float16"))),
    "choice of sums": ("float16", lambda s, t, i: te.if_then_else(s[i] > 0.1, s[i], s[i] - 1.0)),
    "integer": ("uint8", lambda s, t, i: te.select(s[i] > 0.1, te.const(100, "uint8"), 0)),
    "index": ("float16", lambda s, t, i: t[te.cast(te.maximum(te.minimum(s[i] + 2.0, 3.0), 0.0), "int32")]),
}


@pytest.mark.parametrize("name", DECIDED)
def test_another_order_of_what_decides_is_right(name: str) -> None:
    """And a hundredth of the elements otherwise is not."""
    dtype, body = DECIDED[name]
    length, count = 64, 1 << 16
    x, t = te.placeholder((length, count), "float16", name="x"), te.placeholder((4,), "float16", name="t")
    k = te.reduce_axis((0, length), name="k")
    s = te.compute((count,), lambda i: te.sum(x[k, i], axis=k), name="s")
    output = te.compute((count,), lambda i: body(s, t, i), name="y")
    rng = np.random.default_rng(0)
    terms = rng.uniform(0.25, 1, (length, count)) * rng.choice([-1, 1], (length, count))
    table = np.array([1, -2, 3, -4], np.float16)

    def answer(order: int) -> np.ndarray[Any, Any]:
        sums = np.zeros(count, np.float16)
        for row in terms.astype(np.float16)[::order]:
            sums = sums + row
        return evaluate(output, {s: sums, t: table})[output]

    expected, found = answer(1), answer(-1)
    assert expected.dtype == dtype
    assert np.count_nonzero(np.abs(found.astype(np.float64) - expected) > 0.5) >= 5
    tolerance = output_tolerance(output)
    tolerance = replace(tolerance, scale=rms(expected) if is_float(dtype) else 0.0)
    assert mismatch(found, expected, dtype, tolerance) is None
    found[::100] = ~found[::100] if dtype == "bool" else found[::100] + 50
    assert mismatch(found, expected, dtype, tolerance) is not None


def sums_of(dtype: str) -> Tensor:
    x, k = te.placeholder((64, 8), dtype, name="x"), te.reduce_axis((0, 64), name="k")
    return te.compute((8,), lambda i: te.sum(x[k, i], axis=k), name="s")


def where_positive(s: Tensor, dtype: str) -> Tensor:
    return te.compute((8,), lambda i: te.select(s[i] > 0, te.const(1, dtype), 2), name="chosen")


def test_what_may_be_otherwise_grows_with_the_error_of_what_is_compared() -> None:
    rare = []
    for s in map(sums_of, ("float64", "float32", "float16", "bfloat16")):
        rare.append(output_tolerance(where_positive(s, "float32")).rare)
        assert rare[-1] == pytest.approx(min(output_tolerance(s).relative / 5, 0.01))
        assert output_tolerance(where_positive(s, "int32")).rare == max(1e-5, rare[-1])
    assert rare == sorted(rare)


def greatest_of(x: Tensor) -> Tensor:
    k = te.reduce_axis((0, 4), name="k")
    greater = te.comm_reducer(lambda a, b: te.select(a > b, a, b), te.min_value, name="greater")
    return te.compute((8,), lambda i: greater(x[i, k], axis=k), name="greatest")


def test_comparisons_of_what_is_not_computed_excuse_no_float() -> None:
    x = te.placeholder((8, 4), "float16", name="x")
    twice = te.compute((8, 4), lambda i, j: x[i, j] + x[i, j], name="twice")
    chosen = te.compute((8, 4), lambda i, j: te.if_then_else(x[i, j] > 0, twice[i, j], 0.0), name="chosen")
    assert output_tolerance(chosen).rare == 0
    assert output_tolerance(greatest_of(x)).rare == 0
    assert output_tolerance(greatest_of(twice)).rare == output_tolerance(twice).relative / 5


def test_rms_ignores_what_is_not_finite() -> None:
    assert rms(np.array([3.0, np.nan, -3.0, np.inf])) == 3.0
    assert rms(np.array([np.nan])) == 0.0
    assert rms(np.array([1e200, 1.0])) == 1e200


# -- input data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_inputs_suit_their_dtype(dtype: str) -> None:
    tensor = te.placeholder((50, 20), dtype, name="A")
    (array,) = fill_inputs([tensor], [], {}, seed=3)
    (again,) = fill_inputs([tensor], [], {}, seed=3)
    (other,) = fill_inputs([tensor], [], {}, seed=4)
    assert array.dtype == to_numpy(dtype)
    assert np.array_equal(array, again)
    assert not np.array_equal(array, other)
    if dtype == "bool":
        assert 0 < np.count_nonzero(array) < array.size
        return
    values = array.astype(np.float64)
    assert np.all(values != 0)
    assert np.all(np.abs(values) <= 15)
    assert (values < 0).any() == (not dtype.startswith("uint"))
    (positive,) = fill_inputs([tensor], [], {}, seed=3, style="positive")
    assert np.all(positive.astype(np.float64) > 0)


def gather() -> ComputeDAG:
    table = te.placeholder((9, 4), name="table")
    where = te.placeholder((6,), "int32", name="where")
    out = te.compute((6, 4), lambda i, j: table[where[i], j], name="out")
    return ComputeDAG([table, where, out])


def test_index_inputs_point_inside() -> None:
    dag = gather()
    assert list(index_limits(dag.ops).values()) == [9]
    _, where = fill_inputs(dag.inputs, dag.ops, {})
    assert where.min() >= 0
    assert where.max() < 9


def test_user_data_are_taken_and_checked() -> None:
    dag = gather()
    real = np.array([0, 8, 8, 1, 2, 3], np.int32)
    assert np.array_equal(fill_inputs(dag.inputs, dag.ops, {"where": real})[1], real)
    with pytest.raises(DefinitionError, match=r"input 'where' are int64 of shape \[6\]; expected int32"):
        fill_inputs(dag.inputs, dag.ops, {"where": real.astype(np.int64)})


def test_user_data_of_rank_zero_stay_so() -> None:
    scalar = te.placeholder((), name="s")
    given = np.asarray(np.float32(3.5))
    assert fill_inputs([scalar], [], {"s": given})[0].shape == ()


def test_user_data_of_any_order_are_made_contiguous() -> None:
    matrix = te.placeholder((3, 4), name="m")
    given = np.arange(12, dtype=np.float32).reshape(4, 3).T
    (array,) = fill_inputs([matrix], [], {"m": given})
    assert array.flags.c_contiguous
    assert np.array_equal(array, given)


def test_computed_index_must_be_supplied() -> None:
    table = te.placeholder((9, 4), name="table")
    where = te.placeholder((6,), "int32", name="where")
    out = te.compute((6, 4), lambda i, j: table[where[i] * 2 + 1, j], name="out")
    dag = ComputeDAG([table, where, out])
    with pytest.raises(DefinitionError, match=r"task_inputs=.'where': array."):
        fill_inputs(dag.inputs, dag.ops, {})
    fill_inputs(dag.inputs, dag.ops, {"where": np.zeros(6, np.int32)})


def looked_up(index: Callable[[Tensor], Tensor], dtype: str = "int32") -> ComputeDAG:
    """Rows of a table of 9, at positions that operations compute from `where`."""
    table = te.placeholder((9, 4), name="table")
    where = te.placeholder((6,), dtype, name="where")
    rows = index(where)
    return ComputeDAG([table, where, te.compute((6, 4), lambda i, j: table[rows[i], j], name="out")])


def shifted(where: Tensor) -> Tensor:
    least = te.compute((6,), lambda i: te.minimum(where[i], 8), name="least")
    return te.compute((6,), lambda i: te.cast(least[5 - i], "int64"), name="wide")


def converted(where: Tensor) -> Tensor:
    wide = te.compute((6,), lambda i: te.cast(where[i], "int64"), name="wide")
    return te.compute((6,), lambda i: wide[5 - i], name="reverse")


def clipped(where: Tensor) -> Tensor:
    bounded = te.compute((6,), lambda i: te.maximum(te.minimum(where[i], 8), 0), name="bounded")
    return te.compute((6,), lambda i: 8 - bounded[i], name="reverse")


def greatest(where: Tensor) -> Tensor:
    k = te.reduce_axis((0, 6), name="k")
    later = te.comm_reducer(
        lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.maximum(a[1], b[1])),
        lambda i, v: (te.const(-1, i), te.min_value(v)),
        name="later",
    )
    at, _ = te.compute((6,), lambda i: later((k, where[(i + k) % 6]), axis=k), name="greatest")
    return at


def rank(where: Tensor) -> Tensor:
    k = te.reduce_axis((0, 6), name="k")
    return te.compute((6,), lambda i: te.sum(te.cast(where[k] < where[i], "int32"), axis=k), name="rank")


def test_an_index_that_other_operations_compute_must_be_supplied() -> None:
    dag = looked_up(shifted)
    assert list(index_limits(dag.ops).values()) == [None]
    with pytest.raises(DefinitionError, match=r"task_inputs=.'where': array."):
        fill_inputs(dag.inputs, dag.ops, {})


def test_an_index_that_other_operations_copy_points_inside() -> None:
    assert list(index_limits(looked_up(converted).ops).values()) == [9]


@pytest.mark.parametrize(
    ("index", "dtype"), [(clipped, "int32"), (greatest, "float32"), (greatest, "int32"), (rank, "float32")]
)
def test_inputs_that_leave_an_index_inside_may_hold_anything(
    index: Callable[[Tensor], Tensor], dtype: str
) -> None:
    dag = looked_up(index, dtype)
    assert index_limits(dag.ops) == {}
    data = dict(zip(dag.inputs, fill_inputs(dag.inputs, dag.ops, {}), strict=True))
    evaluate(dag.outputs, data)


def test_an_input_that_is_a_position_in_an_index_points_into_that() -> None:
    table = te.placeholder((9, 4), name="table")
    where, picked = (te.placeholder((n,), "int32", name=name) for n, name in ((5, "where"), (6, "picked")))
    out = te.compute((6, 4), lambda i, j: table[where[picked[i]], j], name="out")
    limits = index_limits(ComputeDAG([table, where, picked, out]).ops)
    assert {tensor.name: limit for tensor, limit in limits.items()} == {"where": 9, "picked": 5}


def test_symbolic_shapes_cannot_be_measured() -> None:
    tensor = te.placeholder((te.var("n"), 4), name="A")
    with pytest.raises(DefinitionError, match="symbolic extent `n`"):
        fill_inputs([tensor], [], {})
