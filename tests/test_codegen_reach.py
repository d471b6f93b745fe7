"""How far what was found out reaches: indices and conditions that are kept, numbers that are rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.te.interp import evaluate
from tests.cuda_on_host import Run, each_language
from tests.gpu_schedules import bind_all, kernels


def const(value: float) -> te.Expr:
    return te.const(value, "float32")


def check(schedule: Any, tensors: list[te.Tensor], *arrays: np.ndarray) -> None:
    """Compare a program with the oracle on these inputs."""
    module = ansor.build(schedule, tensors)
    inputs = dict(zip(tensors, arrays, strict=False))
    np.testing.assert_array_equal(module(*arrays), evaluate([tensors[-1]], inputs)[tensors[-1]])


@pytest.mark.parametrize("lanes", [True, False])
def test_a_comparison_that_reads_memory_is_made_under_each_condition(lanes: bool) -> None:
    n = 64
    a, s = te.placeholder((n,), name="A"), te.placeholder((n,), name="S")

    def element(i: te.Expr) -> te.Expr:
        near = te.select(s[i] > 0.0, i, 99) < 80
        chosen = te.select(near, const(1.0), const(2.0))
        return te.if_then_else(a[i] > 0.0, chosen, const(0.0)) + te.select(near, const(10.0), const(20.0))

    b = te.compute((n,), element, name="B")
    schedule = te.create_schedule(b)
    if not lanes:
        schedule[b].split(b.op.axis[0], factor=1)
    rng = np.random.default_rng(0)
    check(schedule, [a, s, b], *rng.uniform(-1, 1, (2, n)).astype(np.float32))


def test_a_comparison_that_reads_memory_is_made_again_after_a_store() -> None:
    a = te.placeholder((4,), name="A")
    s = te.compute((4,), lambda i: a[i] * 2.0, name="S")
    c = te.compute(
        (4, 16),
        lambda i, j: te.select(te.select(s[i] > 0.0, j, 99) < 80, const(1.0), const(2.0)),
        name="C",
    )
    schedule = te.create_schedule(c)
    i, j = c.op.axis
    schedule[s].compute_at(schedule[c], i)
    schedule[c].unroll(i)
    schedule[c].vectorize(j)
    check(schedule, [a, c], np.array([1, -1, 1, -1], np.float32))


def test_a_guard_that_reads_memory_is_asked_again_after_a_store() -> None:
    a, k = te.placeholder((4, 8), name="A"), te.reduce_axis((0, 8), name="k")
    s = te.compute((4,), lambda i: a[i, 0] * 2.0, name="S")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, where=te.select(s[i] > 0.0, k, 99) < 80), name="C")
    schedule = te.create_schedule(c)
    schedule[s].compute_at(schedule[c], c.op.axis[0])
    schedule[c].unroll(c.op.axis[0])
    schedule[c].unroll(k)
    check(schedule, [a, c], np.outer([1, -1, 1, -1], np.ones(8)).astype(np.float32))


def test_a_whole_tile_is_told_by_numbers_that_fit() -> None:
    """Both sides of the condition fit int32; what they differ by in a whole tile does not."""
    a, k = te.placeholder((16, 16), name="A"), te.reduce_axis((0, 16), name="k")
    c = te.compute(
        (16,),
        lambda j: te.sum(a[k, j], axis=k, where=k * 100000007 < j * 200000003 - 1500000011),
        name="C",
    )
    schedule = te.create_schedule(c)
    schedule[c].reorder(k, c.op.axis[0])
    check(schedule, [a, c], np.ones((16, 16), np.float32))


@pytest.mark.parametrize("divide", [te.floordiv, te.truncdiv])
@pytest.mark.parametrize("lanes", [True, False])
def test_the_least_integer_over_minus_one_wraps_in_an_index(divide: Any, lanes: bool) -> None:
    x, y = te.placeholder((16,), "int32", name="X"), te.placeholder((16,), "int32", name="Y")
    table = te.placeholder((4,), name="T")
    b = te.compute((16,), lambda i: table[te.minimum(te.maximum(divide(x[i], y[i]), 0), 3)], name="B")
    schedule = te.create_schedule(b)
    if not lanes:
        schedule[b].split(b.op.axis[0], factor=1)
    least, minus = np.full(16, -(2**31), np.int32), np.full(16, -1, np.int32)
    check(schedule, [x, y, table, b], least, minus, np.arange(1, 5, dtype=np.float32))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_parallel_loop_of_no_iterations_is_none(threads: int) -> None:
    """Where a size makes its extent negative, too."""
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n - 2,), lambda i: a[i] + a[i + 1] + a[i + 2], name="B")
    c = te.compute((n,), lambda i: te.if_then_else(i < n - 2, b[i], 0.0), name="C")
    schedule = te.create_schedule(c)
    schedule[b].parallel(b.op.axis[0])
    module = ansor.build(schedule, [a, c])
    ansor.set_num_threads(threads)
    np.testing.assert_array_equal(module(np.ones(5, np.float32)), [3, 3, 3, 0, 0])
    np.testing.assert_array_equal(module(np.ones(1, np.float32)), [0])
    np.testing.assert_array_equal(module(np.ones(2, np.float32)), [0, 0])
    ansor.set_num_threads(2)


def test_an_index_that_may_wrap_is_evaluated_under_each_guard() -> None:
    n = te.var("n")
    table, a = te.placeholder((100,), name="T"), te.placeholder((n,), name="A")
    c = te.compute((8, n), lambda k, i: table[(k * 1000000007 + 12345) % 100] + a[i], name="C")
    schedule = te.create_schedule(c)
    _, inner = schedule[c].split(c.op.axis[1], factor=4)
    schedule[c].unroll(inner)
    rng = np.random.default_rng(0)
    check(schedule, [table, a, c], *(rng.uniform(-1, 1, m).astype(np.float32) for m in (100, 7)))


def test_strides_that_are_quotients_of_sizes_are_known_to_every_loop() -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m, te.floordiv(n, m)), name="A")
    b = te.compute(a.shape, lambda *i: a(*i) * 2.0, name="B")
    c = te.compute(a.shape, lambda *i: a(*i) + b(*i), name="C")
    data = np.random.default_rng(0).uniform(-1, 1, (6, 2, 3)).astype(np.float32)
    check(te.create_schedule(c), [a, c], data)


@each_language
@pytest.mark.parametrize("divide", [te.floordiv, te.floormod])
def test_products_of_data_are_divided_as_they_wrapped(run: Run, divide: Any) -> None:
    x, y = te.placeholder((8,), "int32", name="X"), te.placeholder((8,), "int32", name="Y")
    z = te.compute((8,), lambda i: divide(te.maximum(x[i], 0) * te.maximum(y[i], 0), 7), name="Z")
    schedule = te.create_schedule(z)
    schedule[z].bind(z.op.axis[0], "threadIdx.x")
    data, found = np.array([46341, 3, 65536, 46340, 99999, 0, 7, 1], np.int32), np.zeros(8, np.int32)
    run(kernels(schedule.state), data, data, found)
    np.testing.assert_array_equal(found, evaluate([z], {x: data, y: data})[z])


@each_language
def test_a_size_that_no_grid_depends_on_may_be_0(run: Run) -> None:
    n, m = te.var("n"), te.var("m")
    a, empty = te.placeholder((n,), "int32", name="A"), te.placeholder((m,), "int32", name="M")
    elements = {
        "last": lambda i: a[te.maximum(m, 1) - 1],
        "divided": lambda i: a[i] // m + (i + 1) // m,
        "rest": lambda i: te.truncmod(a[i] + 5, m),
    }
    for name, element in elements.items():
        b = te.compute((n,), element, name="B")
        s = te.create_schedule(b)
        bind_all(s, b, 4)
        for size in (0, 3):
            data, unused = np.arange(10, 18, dtype=np.int32), np.zeros(size, np.int32)
            found = np.zeros(8, np.int32)
            run(kernels(s, [a, empty, b]), data, unused, found, sizes=(8, size))
            expected = evaluate([b], {a: data}, {m: size})[b]
            np.testing.assert_array_equal(found, expected, err_msg=f"{name} of {size}")


@each_language
def test_data_times_a_size_is_divided_as_it_wrapped(run: Run) -> None:
    n = te.var("n")
    a = te.placeholder((n,), "uint8", name="A")

    def element(i: te.Expr) -> te.Expr:
        x = a[i].astype("int32") * (n * 20000)
        return x // 3 + te.truncmod(x, 7) + x % 5

    c = te.compute((n,), element, name="C")
    s = te.create_schedule(c)
    bind_all(s, c, 4)
    data, found = (np.arange(500) % 156 + 100).astype(np.uint8), np.zeros(500, np.int32)
    run(kernels(s, [a, c]), data, found, sizes=(500,))
    np.testing.assert_array_equal(found, evaluate([c], {a: data})[c])


@each_language
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers_are_rounded_once_to_bfloat16_on_devices(run: Run, dtype: str) -> None:
    numbers = _middles(dtype, "bfloat16")
    a = te.placeholder((len(numbers),), dtype, name="A")
    b = te.compute(a.shape, lambda i: te.cast(te.cast(a[i], "bfloat16"), "float32"), name="B")
    s = te.create_schedule(b)
    bind_all(s, b, 4)
    found = np.zeros(len(numbers), np.float32)
    run(kernels(s, [a, b]), np.array(numbers, dtype), found)
    np.testing.assert_array_equal(found, [_nearest(number, "bfloat16") for number in numbers])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_integers_are_rounded_once_to_a_narrow_float(dtype: str, narrow: str) -> None:
    numbers = _middles(dtype, narrow)
    x = te.placeholder((len(numbers),), dtype, name="X")
    y = te.compute(x.shape, lambda i: te.cast(te.cast(x[i], narrow), "float64"), name="Y")
    found = ansor.build(te.create_schedule(y), [x, y])(np.array(numbers, dtype))
    expected = [_nearest(number, narrow) for number in numbers]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(evaluate([y], {x: np.array(numbers, dtype)})[y], expected)


def test_doubles_and_constants_are_rounded_once_to_bfloat16() -> None:
    near = 1 + 2.0**-8
    numbers = np.array([near + 2.0**-40, near, near - 2.0**-40, -near - 2.0**-40, 1e300, np.inf, 1e-50, 0.0])
    expected = [1 + 2.0**-7, 1, 1, -1 - 2.0**-7, np.inf, np.inf, 0, 0]
    x = te.placeholder((8,), "float64", name="X")
    y = te.compute((8,), lambda i: te.cast(te.cast(x[i], "bfloat16"), "float64"), name="Y")
    np.testing.assert_array_equal(ansor.build(te.create_schedule(y), [x, y])(numbers), expected)
    np.testing.assert_array_equal(evaluate([y], {x: numbers})[y], expected)
    for number, wanted in list(zip(numbers.tolist(), expected, strict=True))[:4]:
        z = te.compute((1,), lambda i, n=number: te.cast(te.const(n, "bfloat16"), "float64"), name="Z")
        np.testing.assert_array_equal(evaluate([z], {})[z], [wanted])
        np.testing.assert_array_equal(ansor.build(te.create_schedule(z), [z])(), [wanted])


def _middles(dtype: str, narrow: str) -> list[int]:
    """Integers at, and next to, the middle between two floats; wider floats take many of these for that."""
    bits = 31 if dtype == "int32" else 32 if dtype == "uint32" else 63 if dtype == "int64" else 64
    kept = 8 if narrow == "bfloat16" else 11
    numbers = [0, 1, 3, 2049, 65535]
    for top in range(kept + 1, bits):
        for low in (1, 3):
            middle = (1 << top) + (low << (top - kept))
            numbers += [middle - 1, middle, middle + 1]
    return [*numbers, *(-number for number in numbers)] if dtype.startswith("int") else numbers


def _nearest(number: int, narrow: str) -> float:
    """The nearest float of 8 bits of fraction, or of 11 up to the greatest float16; of two the even one."""
    bits = 8 if narrow == "bfloat16" else 11
    size = abs(number)
    spare = max(0, size.bit_length() - bits)
    low, rest = size >> spare, size & ((1 << spare) - 1)
    half = (1 << spare) >> 1
    up = rest > half or (rest == half and spare > 0 and low & 1 == 1)
    result = float((low + up) << spare)
    if narrow == "float16" and result >= 65520:
        result = float("inf")
    return -result if number < 0 else result
