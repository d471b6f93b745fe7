"""Calling modules: what is accepted, what is refused and how, and timing."""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from ansor.alignment import LINE, PAGE, aligned_empty, place_apart
from ansor.codegen.machine import Machine
from ansor.dtypes import DTYPES, to_numpy
from ansor.errors import ArgumentError, BuildError, DefinitionError, RunError
from ansor.runtime import module as modules
from ansor.runtime.arguments import bind
from ansor.runtime.module import Module
from ansor.runtime.names import symbol_of
from ansor.runtime.signature import Argument, Signature
from ansor.runtime.timer import compiled_timer
from ansor.runtime.timing import NOTHING, TimeResult, time_calls
from tests.forks import in_a_fork
from tests.runtime_kernels import axpy, scale


@pytest.fixture(scope="module")
def module() -> Module:
    return axpy()


def arrays(n: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a = np.arange(n, dtype=np.float32)
    return a, a + 1, np.full(n, -1, np.float32)


def test_all_arguments_write_in_place(module: Module) -> None:
    a, b, c = arrays()
    assert module(a, b, c) is None
    np.testing.assert_array_equal(c, a * 2 + b)


def test_inputs_alone_give_the_output(module: Module) -> None:
    a, b, _ = arrays(1001)
    c = module(a, b)
    np.testing.assert_array_equal(c, a * 2 + b)
    assert c.ctypes.data % 64 == 0


def test_a_loaded_module_is_called_without_a_lock(module: Module) -> None:
    a, b, _ = arrays()
    expected, found = module(a, b), list[np.ndarray]()
    caller = threading.Thread(target=lambda: found.append(module(a, b)), daemon=True)
    with modules._LOADING:
        caller.start()
        caller.join(20)
        assert not caller.is_alive()
    np.testing.assert_array_equal(found, [expected])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_waits_until_other_threads_have_loaded() -> None:
    """In a forked process a lock may belong to a thread that is not there, and is never given back."""
    holds, goes_on = threading.Event(), threading.Event()

    def load() -> None:
        with modules._LOADING:
            holds.set()
            goes_on.wait(1.0)

    loader = threading.Thread(target=load)
    loader.start()
    holds.wait()
    threading.Timer(0.1, goes_on.set).start()
    a, b, _ = arrays()
    fresh = axpy()
    assert in_a_fork(lambda: fresh(a, b))
    loader.join()
    np.testing.assert_array_equal(fresh(a, b), a * 2 + b)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_waits_until_other_threads_have_compiled() -> None:
    done = threading.Event()

    def compile_again() -> None:
        while not done.is_set():
            axpy()

    compiler = threading.Thread(target=compile_again)
    compiler.start()
    try:
        a, b, _ = arrays()
        for _ in range(10):
            fresh = axpy()
            assert in_a_fork(lambda fresh=fresh: fresh(a, b))
    finally:
        done.set()
        compiler.join()


def test_code_for_a_cpu_with_more_instructions_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the process."""
    a, b, _ = arrays()
    first, second = axpy(), axpy()
    wide, known = Machine.host(), first.signature
    less = replace(wide, cpu="less", vector_bits=wide.vector_bits // 2)
    monkeypatch.setattr(Machine, "host", lambda: less)
    with pytest.raises(
        RunError, match=rf"cannot run here: {wide.cpu} has vectors of {wide.vector_bits} bits"
    ):
        first(a, b)
    without = replace(wide, cpu="less", has_fma=False)
    monkeypatch.setattr(Machine, "host", lambda: without)
    with pytest.raises(RunError, match="has instructions for fma, this CPU has not; run it there"):
        second(a, b)
    monkeypatch.undo()
    assert Signature.from_json(known.to_json()) == known
    older = {key: value for key, value in known.to_json().items() if key != "features"}
    assert Signature.from_json(older).features is None


def test_several_outputs_come_as_a_tuple() -> None:
    machine = Machine.host()
    text = """
define void @two(ptr %x, ptr %y, ptr %z) {
  %v = load i32, ptr %x
  store i32 %v, ptr %y
  %w = add i32 %v, 1
  store i32 %w, ptr %z
  ret void
}"""
    from ansor.runtime.build import compile_module

    arguments = tuple(Argument(name, "int32", (), name != "x") for name in "xyz")
    two = compile_module(Signature("two", "two", arguments, (), machine.triple, machine.cpu), text, machine)
    y, z = two(np.asarray(7, np.int32))
    assert (y.shape, int(y), int(z)) == ((), 7, 8)
    assert [int(v) for v in two(np.int32(3))] == [3, 4]  # a numpy scalar is a 0-dim input


def test_an_empty_array_is_fine(module: Module) -> None:
    assert module(*arrays(0)[:2]).shape == (0,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_passes(dtype: str) -> None:
    copy = scale(dtype, (3, 2))
    x = np.ones((3, 2)).astype(to_numpy(dtype))
    y = np.zeros((3, 2)).astype(to_numpy(dtype))
    copy(x, y)
    assert y[0, 0] == x[0, 0]
    assert copy(x).dtype == to_numpy(dtype)


def test_foreign_arrays_are_viewed_not_copied(module: Module) -> None:
    a, b, c = arrays()

    class Interface:
        """Only the array interface, as an image library would have."""

        def __init__(self, array: np.ndarray) -> None:
            self.array = array
            self.__array_interface__ = array.__array_interface__

    class DLPack:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    module(DLPack(a), Interface(b), Interface(c))
    np.testing.assert_array_equal(c, a * 2 + b)


class OnGpu:
    __cuda_array_interface__ = {"shape": (10,), "typestr": "<f4", "data": (0, False), "version": 3}


class OnOther:
    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def strided() -> np.ndarray:
    return np.zeros((10, 2), np.float32)[:, 0]


def read_only() -> np.ndarray:
    array = np.zeros(10, np.float32)
    array.flags.writeable = False
    return array


def misaligned() -> np.ndarray:
    return np.zeros(41, np.uint8)[1:].view(np.float32)


GOOD = np.zeros(10, np.float32)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, np.zeros(10), r"'A' must be float32\[n\]; it has dtype float64; pass array.astype\('float32'\)"),
        (0, GOOD.astype(">f4"), r"'A'.*has dtype '>f4', the other byte order"),
        (1, np.zeros((10, 1), np.float32), r"'B' must be float32\[n\]; it has 2 dimensions \(10, 1\)"),
        (1, np.zeros(9, np.float32), r"'B'.*shape \(9,\): dimension 0 must be 10 \(n with n = 10"),
        (0, strided(), r"'A'.*not contiguous.*strides \(8,\).*np.ascontiguousarray"),
        (2, strided(), r"'C'.*not contiguous.*copy back"),
        (2, read_only(), r"'C'.*read-only, and it is an output"),
        (0, misaligned(), r"'A'.*address that is no multiple of 4; copy it"),
        (1, OnGpu(), r"'B'.*OnGpu in GPU memory; copy it to the CPU first"),
        (1, OnOther(), r"'B'.*OnOther on a device of DLPack type 2"),
        (0, [1.0, 2.0], r"'A'.*is a list; pass np.asarray\(..., dtype='float32'\)"),
        (2, np.float32(1), r"'C'.*is a float32; pass"),
        (0, np.ma.masked_array(GOOD, mask=False), r"'A'.*is a MaskedArray"),
        (0, None, r"'A'.*is a NoneType"),
    ],
)
def test_refused_by_name(module: Module, position: int, value: object, message: str) -> None:
    values: list[object] = list(arrays())
    values[position] = value
    with pytest.raises(ArgumentError, match=message):
        module(*values)


def test_refused_counts_and_overlaps(module: Module) -> None:
    a, b, c = arrays()
    with pytest.raises(ArgumentError, match=r"takes all 3 arrays \(A, B, C\) or only the 2 inputs.*found 1"):
        module(a)
    with pytest.raises(ArgumentError, match=r"'C'.*shares memory with 'A'"):
        module(a, b, a)
    whole = np.zeros(15, np.float32)
    with pytest.raises(ArgumentError, match=r"'C'.*shares memory with 'B'"):
        module(a, whole[:10], whole[5:])
    module(a, a, c)  # two inputs may be the same array


def test_refused_read_only_input_is_none(module: Module) -> None:
    frozen = read_only()
    assert (module(frozen, frozen) == 0).all()


def test_ml_dtypes_is_the_bfloat16() -> None:
    with pytest.raises(ArgumentError, match=r"must be bfloat16\[2\]; it has dtype uint16"):
        scale("bfloat16", (2,))(np.zeros(2, np.uint16))
    assert scale("bfloat16", (2,))(np.ones(2, ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16


def _signature(*shapes: tuple[object, ...], outputs: int = 1) -> Signature:
    count = len(shapes)
    arguments = tuple(
        Argument(f"T{i}", "float32", shape, i >= count - outputs)  # type: ignore[arg-type]
        for i, shape in enumerate(shapes)
    )
    names = tuple(dict.fromkeys(name for shape in shapes for dim in shape for name in _names(dim)))
    return Signature("f", "f", arguments, names, "x86_64-linux", "generic")


def _names(dim: object) -> list[str]:
    if isinstance(dim, str):
        return [dim]
    return [name for part in dim[1:] for name in _names(part)] if isinstance(dim, tuple) else []


def test_sizes_are_deduced_through_products_and_sums() -> None:
    signature = _signature((("mul", "n", 4), "m"), (("add", "m", 1),), ("n", ("sub", ("mul", "m", "n"), 1)))
    bound = bind(signature, [np.zeros((12, 5), np.float32), np.zeros(6, np.float32)])
    assert dict(zip(signature.sizes, bound.sizes, strict=True)) == {"n": 3, "m": 5}
    assert bound.outputs[0].shape == (3, 14)


def test_inconsistent_and_unknown_sizes() -> None:
    signature = _signature((("mul", "n", 4),), ("n",))
    with pytest.raises(ArgumentError, match=r"'n' cannot be deduced.*sizes=\{'n': ...\}"):
        bind(signature, [np.zeros(10, np.float32)])
    with pytest.raises(ArgumentError, match=r"T0.*dimension 0 must be 12 \(n\*4 with n = 3"):
        bind(signature, [np.zeros(10, np.float32), np.zeros(3, np.float32)])
    with pytest.raises(ArgumentError, match="has no size 'k'"):
        bind(signature, [np.zeros(12, np.float32)], {"k": 3})
    for size in (3.0, "3", True, None, -1):
        with pytest.raises(ArgumentError, match=f"the size 'n' must be an integer of .*, found {size!r}"):
            bind(signature, [np.zeros(12, np.float32)], {"n": size})  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match=r"sizes must be a dict of sizes by name, found \[3\]"):
        bind(signature, [np.zeros(12, np.float32)], [3])  # type: ignore[arg-type]
    assert bind(signature, [np.zeros(12, np.float32)], {"n": np.int32(3)}).sizes == (3,)  # type: ignore[dict-item]
    only_out = _signature((2,), ("n",))
    assert bind(only_out, [np.zeros(2, np.float32)], {"n": 7}).outputs[0].shape == (7,)


def test_extents_that_no_loop_counts_to_are_refused() -> None:
    shorter, longer = _signature(("n",), (("sub", "n", 5),)), _signature((2,), ("n",))
    assert bind(shorter, [np.zeros(5, np.float32)]).outputs[0].shape == (0,)
    with pytest.raises(ArgumentError, match=r"of 'T1', float32\[n-5\], -1; extents are 0 to 2147483647"):
        bind(shorter, [np.zeros(4, np.float32)])
    with pytest.raises(ArgumentError, match=r"of 'T1', float32\[n\], 2147483648; extents are"):
        bind(longer, [np.zeros(2, np.float32)], {"n": 1 << 31})


def test_aligned_empty() -> None:
    for shape in ((), (1, 3), (5, 7)):
        array = aligned_empty(shape, "float16")
        assert array.shape == shape
        assert array.ctypes.data % 64 == 0
        assert array.flags.c_contiguous
    with pytest.raises(DefinitionError, match=r"shape \(3, -1\): extents are 0 or more"):
        aligned_empty((3, -1), "float16")


def test_outputs_begin_elsewhere_in_a_page_than_inputs(module: Module) -> None:
    room = aligned_empty((1 << 16,), "float32")
    for first, second in ((0, 16), (0, 512), (100, 5000), (3, 1 << 15)):
        inputs = [room[start : start + 4096] for start in (first, second)]
        made = aligned_empty((4096,), "float32", apart_from=inputs)
        for output in (made, module(*inputs), bind(module.signature, inputs).outputs[0]):
            assert output.ctypes.data % 64 == 0
            ahead = [(output.ctypes.data - one.ctypes.data) % 4096 for one in inputs]
            assert min(*ahead, *(4096 - one for one in ahead)) >= 1024 - 64


def test_arrays_smaller_than_a_page_are_placed_without_looking_at_others() -> None:
    unread = (pytest.fail("an address was asked for") for _ in range(3))
    assert place_apart(PAGE - 1, unread) == (0, LINE)


def test_what_is_kept_apart_from_is_a_sequence_of_arrays() -> None:
    with pytest.raises(DefinitionError, match=r"apart_from=\(x,\)"):
        aligned_empty((4096,), "float32", apart_from=np.zeros((64, 64), np.float32))  # type: ignore[arg-type]


def test_sources(module: Module) -> None:
    assert "define void @axpy(" in module.get_source("ll")
    assert "axpy:" in module.get_source("asm")
    with pytest.raises(BuildError, match="no 'nest' source"):
        module.get_source("nest")
    with pytest.raises(DefinitionError, match="'ll', 'asm' or 'nest', found 'c'"):
        module.get_source("c")
    assert repr(module) == "<Module axpy(A: float32[n], B: float32[n], C: float32[n] (output))>"


def test_a_module_for_another_machine_says_so_when_called() -> None:
    other = "x86_64-linux-gnu" if Machine.host().arch != "x86_64" else "aarch64-linux-gnu"
    cross = axpy(machine=Machine.of(other, "generic"))
    with pytest.raises(RunError, match=f"axpy is compiled for {other} and this machine is"):
        cross(*arrays())


def test_names() -> None:
    assert symbol_of("main") == "ansor_main"
    assert symbol_of("f_1") == "f_1"
    with pytest.raises(BuildError, match="'a b' is no C identifier"):
        symbol_of("a b")


@pytest.mark.parametrize("name", ["double", "xor", "typeof", "int64_t"])
def test_no_function_is_called_like_a_word_of_the_language(name: str) -> None:
    with pytest.raises(BuildError, match=f"'{name}' is a word of C or C.*another, such as '{name}_kernel'"):
        symbol_of(name)


@pytest.mark.parametrize("name", ["free", "pow", "memset", "pthread_create", "ansor_alloc", "ansor"])
def test_no_function_takes_the_place_of_one_that_compiled_code_calls(name: str) -> None:
    with pytest.raises(BuildError, match=f"the name '{name}' would define '.*'{name}_kernel'"):
        symbol_of(name)


# -- timing ----------------------------------------------------------------------------------------


def test_time_evaluator(module: Module) -> None:
    a, b, c = arrays()
    result = module.time_evaluator(module.entry_name, number=3, repeat=4)(a, b, c)
    assert len(result.results) == 4
    assert 0 < result.min <= result.median <= result.max
    np.testing.assert_array_equal(c, a * 2 + b)
    assert module.time_evaluator()(a, b).mean > 0
    with pytest.raises(DefinitionError, match="one function, 'axpy'; there is no 'other'"):
        module.time_evaluator("other")


def test_the_timer_calls_the_function_that_often() -> None:
    seen = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        lambda x, y, n: seen.append((x, y, n))
    )
    entry = ctypes.cast(callback, ctypes.c_void_p).value
    assert entry is not None
    timed = compiled_timer(entry, (16, 2**64 - 32), (-5,))
    assert timed(3) > 0
    assert timed(0) >= 0
    assert seen == [(16, 2**64 - 32, -5)] * 3


def test_min_repeat_ms_raises_the_number_until_a_repeat_is_long_enough() -> None:
    runs: list[int] = []
    flushed: list[int] = []

    def timed(number: int) -> float:
        runs.append(number)
        return number * 1e-3 if number > 4 else 0.0  # a clock too coarse for few calls

    result = time_calls(
        timed, number=1, repeat=2, min_repeat_ms=20, before_repeat=lambda: flushed.append(len(runs))
    )
    assert result.results == (1e-3, 1e-3)
    assert runs == [1, 1, 2, 3, 4, 6, 21, 21]
    assert len(flushed) == len(runs) - 1
    with pytest.raises(
        DefinitionError, match="number must be an integer of at least 1 and at most 1099511627776, found 0"
    ):
        time_calls(timed, number=0, repeat=1, min_repeat_ms=0)
    with pytest.raises(DefinitionError, match=r"repeat must be an integer .*, found 18446744073709551616"):
        time_calls(timed, number=1, repeat=2**64, min_repeat_ms=0)


def test_calls_that_take_no_time_at_all_are_not_repeated_for_ever() -> None:
    runs: list[int] = []

    def timed(number: int) -> float:
        runs.append(number)
        return 0.0

    result = time_calls(timed, number=1, repeat=3, min_repeat_ms=1)
    assert result.results == (0.0,) * 3
    assert NOTHING <= runs[-1] == runs[-3] < 2 * NOTHING
    assert len(runs) < 50


def test_statistics_of_a_result() -> None:
    result = TimeResult((1.0, 2.0, 6.0))
    assert (result.mean, result.median, result.min, result.max) == (3.0, 2.0, 1.0, 6.0)
    assert result.std == pytest.approx(np.std([1.0, 2.0, 6.0]))
    assert str(result).startswith("mean 3000 ms, median 2000 ms")
