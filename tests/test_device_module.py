"""Programs on a device as users hold them: calls, arrays that stay there, timing, files, sources."""

from __future__ import annotations

import io
import json
import threading
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.c.launches import Launch
from ansor.errors import ArgumentError, BuildError, DefinitionError, TargetError
from ansor.runtime.device.arrays import DeviceArray, adopt
from ansor.runtime.device.build import check_limits, compiled
from ansor.runtime.device.door import Memory, open_device
from ansor.runtime.device.module import DeviceModule
from ansor.runtime.device.package import DevicePackage, extent
from ansor.runtime.device.program import LoadedProgram
from ansor.task.device import runs_on
from ansor.task.hardware import HardwareParams
from tests.device_kernels import double, each_device, needs_opencl, scale


def data(n: int) -> np.ndarray[Any, Any]:
    return np.arange(n, dtype=np.float32) - 5


# -- packages: no device is needed ---------------------------------------------------------------------


def test_a_package_survives_its_bytes() -> None:
    package = scale()
    assert DevicePackage.from_bytes(package.to_bytes()) == package
    assert package.to_bytes() == scale().to_bytes()
    compiled = replace(scale("cuda"), binary=b"\x7fELF\0\1", arch="sm_90")
    assert DevicePackage.from_bytes(compiled.to_bytes()) == compiled
    assert DevicePackage.from_json(json.loads(json.dumps(package.to_json())), package.source) == package


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "ansor-device-9"}, "its format is 'ansor-device-9'"),
        ({"kind": "metal"}, "malformed"),
        ({"shared_bytes": [0]}, "2 launches, and shared memory of 1"),
        ({"scratch": []}, "takes the scratch 0 of 0"),
        ({"scratch": [{"dtype": "float33", "shape": []}]}, "malformed"),
        ({"launches": [{"kernel": "k"}]}, "malformed"),
        ({"arch": None, "signature": {}}, "malformed"),
    ],
)
def test_a_malformed_package_is_refused(change: dict[str, Any], message: str) -> None:
    package = scale()
    with pytest.raises(BuildError, match=message):
        DevicePackage.from_json({**package.to_json(), **change}, package.source)


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04", b"no archive"):
        with pytest.raises(BuildError, match="holds no device program"):
            DevicePackage.from_bytes(content, "it")
    path = tmp_path / "scale.ansor"
    path.write_bytes(b"nothing")
    with pytest.raises(BuildError, match=r"scale.ansor holds no device program"):
        ansor.load_module(path)


def test_a_damaged_package_is_refused() -> None:
    """Whichever bytes of the archive are changed: it is refused, or the change did not matter."""
    package = scale()
    whole = package.to_bytes()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        header = json.dumps(package.to_json())
        for name, content in (("package.json", header), ("program.cl", package.source)):
            archive.writestr(name, content)
    for data in (whole, file.getvalue()):
        for position in range(len(data)):
            damaged = bytearray(data)
            damaged[position] ^= 0xFF
            with suppress(BuildError):
                assert DevicePackage.from_bytes(bytes(damaged)) == package
            with suppress(BuildError):
                assert DevicePackage.from_bytes(data[:position]) == package


def test_extents_are_computed_from_sizes() -> None:
    dim = ("floordiv", ("add", "n", 63), 64)
    assert [extent(dim, {"n": n}) for n in (0, 1, 64, 65)] == [0, 1, 1, 2]
    assert extent(("sub", "n", 9), {"n": 4}) == 0
    with pytest.raises(BuildError, match="depends on a size"):
        extent("m", {"n": 1})


def test_limits_of_the_target_are_checked() -> None:
    hardware = HardwareParams(-1, max_threads_per_block=64, max_shared_memory_per_block=100)
    check_limits(double(8), hardware)
    with pytest.raises(BuildError, match=r"program_kernel0 breaks a limit.*128 threads in a block, 64 are"):
        check_limits(double(8, block=128), hardware)
    with pytest.raises(BuildError, match="101 bytes of shared memory"):
        check_limits(double(8, shared=101), hardware)
    check_limits(double(8, block=128, shared=101), HardwareParams(-1))  # of which nothing is known


def test_limits_along_one_dimension_are_those_of_the_kind() -> None:
    hardware = HardwareParams(-1, max_threads_per_block=1024, max_shared_memory_per_block=100)

    def launched(kind: str, grid: Any, block: Any) -> DevicePackage:
        package = double(8, kind=kind)
        return replace(package, launches=(replace(package.launches[0], grid=grid, block=block),))

    check_limits(launched("cuda", (70000, 65535, "n"), (1, 1, 64)), hardware)
    check_limits(launched("opencl", (1, 65536, 1), (1, 1, 65)), hardware)
    with pytest.raises(BuildError, match="65536 blocks along y, 65535 are allowed; give each block more"):
        check_limits(launched("cuda", (1, 65536, 1), (1, 1, 1)), hardware)
    with pytest.raises(BuildError, match="65 threads along z, 64 are allowed"):
        check_limits(launched("cuda", (1, 1, 1), (1, 1, 65)), hardware)


@pytest.mark.parametrize(
    ("arch", "device", "runs"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_90", "sm_80", False),
        ("sm_90a", "sm_90", True),
        ("sm_100a", "sm_103", False),
        ("sm_100f", "sm_103", True),
        ("sm_100", "sm_120", False),
        ("", "sm_90", False),
    ],
)
def test_code_runs_on_its_generation(arch: str, device: str, runs: bool) -> None:
    assert runs_on(arch, device) == runs


def test_a_binary_that_does_not_serve_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansor.codegen.c.compile.compile_cubin", lambda source, arch: arch.encode())
    plain = replace(scale("cuda"), arch="sm_80")
    assert compiled(plain).binary == b"sm_80"
    assert compiled(plain, "sm_90").binary == b"sm_90"
    assert compiled(replace(plain, arch="sm_90a"), "sm_90").binary == b"sm_90a"
    done = compiled(plain)
    assert compiled(done) is compiled(done, "sm_86") is done
    again = compiled(done, "sm_90")
    assert (again.binary, again.arch) == (b"sm_90", "sm_90")
    assert compiled(scale()).binary is None


def test_sources_need_no_device() -> None:
    module = DeviceModule(scale())
    assert module.get_source() == module.get_source("opencl") == module.package.source
    assert (module.entry_name, module.signature.sizes) == ("scale", ("n",))
    for kind in ("nest", "cuda", "ptx", "sass"):
        with pytest.raises(BuildError, match=f"loaded from a file, which keeps no '{kind}' source"):
            module.get_source(kind)
    with pytest.raises(DefinitionError, match="'nest', 'opencl', 'cuda', 'ptx', 'sass', found 'll'"):
        module.get_source("ll")
    with pytest.raises(TypeError, match="cannot be pickled"):
        module.__reduce__()
    with pytest.raises(BuildError, match=r"files .ansor, found 'f.o'"):
        module.save("f.o")


def test_an_architecture_that_there_cannot_be_is_refused() -> None:
    x = te.placeholder((4,), name="X")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="Y")
    s = te.create_schedule(y)
    s[y].bind(y.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(TargetError, match="'hopper' is no CUDA architecture; use e"):
        ansor.build(s, [x, y], target="cuda -arch=hopper")


def test_without_a_device_a_call_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansor.runtime.device import module as modules

    def none(kind: str) -> Any:
        raise TargetError(f"no device for {kind}; install one")

    monkeypatch.setattr(modules, "open_device", none)
    with pytest.raises(TargetError, match="no device for opencl; install one"):
        DeviceModule(scale())(data(4))


# -- calls ---------------------------------------------------------------------------------------------


@each_device
@pytest.mark.parametrize("n", [0, 1, 64, 1001])
def test_numpy_arrays_go_there_and_back(kind: str, n: int) -> None:
    module = DeviceModule(scale(kind))
    np.testing.assert_array_equal(module(data(n)), 2 * data(n) + 1)
    b = np.zeros(n, np.float32)
    assert module(data(n), b) is None
    np.testing.assert_array_equal(b, 2 * data(n) + 1)


@each_device
def test_a_kernel_over_a_negative_extent_is_not_launched(kind: str) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n - 100,), lambda i: a[i + 100] * 2.0, name="B")
    c = te.compute((n,), lambda i: te.if_then_else(i >= 100, b[i - 100], 1.0), name="C")
    schedule = te.create_schedule(c)
    for tensor in (b, c):
        blocks, threads = schedule[tensor].split(tensor.op.axis[0], factor=32)
        schedule[tensor].bind(blocks, "blockIdx.x")
        schedule[tensor].bind(threads, "threadIdx.x")
    module = ansor.build(schedule, [a, c], target=kind)
    for size in (10, 150):
        x = data(size)
        np.testing.assert_array_equal(module(x), np.where(np.arange(size) >= 100, 2 * x, 1))


@each_device
def test_arrays_stay_on_the_device_between_calls(kind: str) -> None:
    module = DeviceModule(scale(kind))
    a = ansor.device_array(data(100), kind)
    assert (a.shape, a.dtype, a.ndim, a.nbytes, len(a)) == ((100,), np.float32, 1, 400, 100)
    once = module(a)
    assert isinstance(once, DeviceArray)
    twice = module(once)
    np.testing.assert_array_equal(twice.numpy(), 2 * (2 * data(100) + 1) + 1)
    into = ansor.device_empty((100,), "float32", kind)
    assert module(a, into) is None
    np.testing.assert_array_equal(into.numpy(), once.numpy())
    host = np.zeros(100, np.float32)
    module(a, host)  # an input there, an output here
    np.testing.assert_array_equal(host, once.numpy())
    a.copy_from(np.zeros(100, np.float32))
    assert (module(a).numpy() == 1).all()
    with pytest.raises(ArgumentError, match="copy_from: float64"):
        a.copy_from(np.zeros(100))
    assert hasattr(a, "__cuda_array_interface__") == (kind == "cuda")
    assert "float32[100] on" in repr(a)


@each_device
def test_arguments_are_checked_by_name(kind: str) -> None:
    module = DeviceModule(scale(kind))
    a = ansor.device_array(data(8), kind)
    for bad, message in [
        ((ansor.device_array(np.zeros(8), kind),), "'A' must be float32.*has dtype float64"),
        ((ansor.device_array(np.zeros((8, 1), np.float32), kind),), "'A'.*has 2 dimensions"),
        ((a, ansor.device_empty((9,), "float32", kind)), r"'B'.*has shape \(9,\)"),
        ((a, a), "'B'.*shares memory with 'A'"),
        ((a, a, a), "takes all 2 arrays"),
        ((data(8), data(9)), "'B'.*has shape"),
        ((data(16)[::2],), "'A'.*not contiguous"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            module(*bad)
    with pytest.raises(ArgumentError, match="found the keyword 'A'"):
        module(A=a)
    with pytest.raises(ArgumentError, match="is a DeviceArray"):
        ansor.build(_doubling())(a)


def _doubling() -> ansor.LoopNest:
    n = ansor.te.var("n")
    a = ansor.te.placeholder((n,), name="A")
    b = ansor.te.compute((n,), lambda i: a[i] * 2.0, name="B")
    return ansor.lower(ansor.te.create_schedule(b.op), [a, b], name="twice")


@each_device
def test_several_threads_may_call_one_module(kind: str) -> None:
    module = DeviceModule(scale(kind))
    wrong: list[int] = []

    def call(n: int) -> None:
        found = [np.array_equal(module(data(n)), 2 * data(n) + 1) for _ in range(10)]
        wrong.extend([n] * found.count(False))

    threads = [threading.Thread(target=call, args=(n,)) for n in (65, 640, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@each_device
def test_timing_is_by_the_devices_clock_and_outputs_are_written(kind: str) -> None:
    module = DeviceModule(scale(kind))
    b = np.zeros(100, np.float32)
    flushed: list[int] = []
    result = module.time_evaluator("scale", number=3, repeat=4, before_repeat=lambda: flushed.append(1))(
        data(100), b
    )
    assert len(result.results) == 4
    assert len(flushed) == 4
    assert 0 < result.mean < 1
    np.testing.assert_array_equal(b, 2 * data(100) + 1)
    with pytest.raises(DefinitionError, match="there is no 'other'"):
        module.time_evaluator("other")
    module.device.flush_caches()


@each_device
def test_what_runs_before_a_repeat_may_call_the_module(kind: str) -> None:
    """A call of another size has other memory between its kernels."""
    module = DeviceModule(scale(kind))
    b, found = np.zeros(8, np.float32), []
    evaluate = module.time_evaluator(number=2, repeat=3, before_repeat=lambda: found.append(module(data(65))))
    thread = threading.Thread(target=evaluate, args=(data(8), b), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    np.testing.assert_array_equal(found, [2 * data(65) + 1] * 3)
    np.testing.assert_array_equal(b, 2 * data(8) + 1)


@each_device
def test_a_call_that_launches_nothing_takes_no_time(kind: str) -> None:
    result = DeviceModule(scale(kind)).time_evaluator(number=1, min_repeat_ms=1)(data(0))
    assert result.results == (0.0,)
    assert "mean 0 ms" in str(result)


@each_device
def test_a_timer_calls_on_arrays_that_stay_where_they_are(kind: str) -> None:
    module = DeviceModule(scale(kind))
    a, b = ansor.device_array(data(100), kind), ansor.device_empty((100,), "float32", kind)
    timed = module.timer(a, b)
    assert 0 < timed(1) < 1
    np.testing.assert_array_equal(b.numpy(), 2 * data(100) + 1)
    a.copy_from(np.zeros(100, np.float32))
    assert 0 < timed(40) < 5
    assert (b.numpy() == 1).all()
    with pytest.raises(ArgumentError, match="'A' must be float32"):
        module.timer(data(100).astype(np.float64))


@each_device
def test_launches_are_made_while_nobody_else_makes_any(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = DeviceModule(scale(kind))
    launches, alone = LoadedProgram.launches, []

    def noted(*arguments: Any) -> Any:
        alone.append(module._launching.locked())
        return launches(*arguments)

    monkeypatch.setattr(LoadedProgram, "launches", noted)
    for made in (module, module.time_evaluator(number=1), module.timer):
        made(data(8), data(8) + 1)
    assert alone == [True] * 3


def test_memory_between_kernels_is_as_large_as_asked_for_whoever_else_asks() -> None:
    """Another call comes in between while the sizes are looked at."""

    class Sizes(Sequence[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, position: Any) -> Any:
            program.scratch((7,))
            return (100,)[position]

    device: Any = SimpleNamespace(
        kind="opencl", compile=lambda source: None, allocate=lambda size: Memory(None, size)
    )
    program = LoadedProgram(device, scale())
    for _ in range(2):
        assert [memory.size for memory in program.scratch((100,))] == [400]
        assert [memory.size for memory in program.scratch(Sizes())] == [400]


@needs_opencl
def test_what_this_process_takes_to_launch_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls of two kernels, each of which takes long to enqueue."""
    device: Any = open_device("opencl")
    launch = device._cl.enqueue_nd_range_kernel
    pause = 0.1

    def slowly(*arguments: Any, **options: Any) -> Any:
        time.sleep(pause)
        return launch(*arguments, **options)

    module = DeviceModule(scale())
    module(data(100))
    monkeypatch.setattr(device._cl, "enqueue_nd_range_kernel", slowly)
    assert 0 < module.time_evaluator(number=2)(data(100), data(100)).mean * 2 < pause


@each_device
def test_a_saved_program_is_loaded_again(kind: str, tmp_path: Path) -> None:
    path = DeviceModule(scale(kind)).save(tmp_path / "scale.ansor")
    module = ansor.load_module(path)
    assert isinstance(module, DeviceModule)
    assert str(module) == f"<DeviceModule scale(A: float32[n], B: float32[n] (output)) for {kind}>"
    np.testing.assert_array_equal(module(data(70)), 2 * data(70) + 1)


@each_device
def test_programs_that_cannot_be_loaded_or_launched_say_so(kind: str) -> None:
    with pytest.raises(BuildError, match="refuses the"):
        DeviceModule(scale(kind, "nonsense"))(data(4))
    most = open_device(kind).info.max_threads_per_block
    with pytest.raises(BuildError, match=f"takes {2 * most} threads in a block"):
        DeviceModule(double(8, block=2 * most, kind=kind))(data(8))
    with pytest.raises(BuildError, match="bytes of shared memory"):
        DeviceModule(double(8, shared=1 << 40, kind=kind))(data(8))
    missing = replace(double(8, kind=kind), launches=(Launch("other", (), (1, 1, 1), (1, 1, 1)),))
    with pytest.raises(BuildError, match="no kernel 'other'"):
        DeviceModule(missing)(data(8))


@each_device
def test_a_program_for_another_kind_is_refused(kind: str) -> None:
    other = {"opencl": "cuda", "cuda": "opencl"}[kind]
    with pytest.raises(BuildError, match=rf"a program for {other}, and .* is a device for {kind}"):
        LoadedProgram(open_device(kind), scale(other))


# -- arrays of other libraries -------------------------------------------------------------------------


class FakeCUDA:
    """As much of a CUDA device as adopting arrays needs."""

    kind, name = "cuda", "a GPU"

    def __init__(self) -> None:
        self.waited: list[int] = []

    def synchronize_stream(self, stream: int) -> None:
        self.waited.append(stream)


def foreign(**changes: Any) -> Any:
    class Foreign:
        __cuda_array_interface__ = {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (4096, False),
            "version": 3,
            **changes,
        }

    return Foreign()


def test_foreign_arrays_are_viewed_where_they_lie() -> None:
    device: Any = FakeCUDA()
    value = foreign()
    array = adopt(device, value)
    assert array is not None
    assert (array.shape, array.dtype, array.memory.handle, array.memory.size) == (
        (2, 3),
        np.float32,
        4096,
        24,
    )
    assert array.writable
    assert array._keep is value
    shown = array.__cuda_array_interface__
    assert (shown["data"], shown["shape"], shown["typestr"]) == ((4096, False), (2, 3), "<f4")
    read_only = adopt(device, foreign(data=(4096, True)))
    assert read_only is not None
    assert not read_only.writable
    assert adopt(device, foreign(shape=(2, 1), strides=(4, 99))) is not None
    assert adopt(device, foreign(stream=1)) is not None
    assert device.waited == []
    assert adopt(device, foreign(stream=77)) is not None
    assert device.waited == [77]
    assert adopt(device, np.zeros(3)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strides": (4, 8)}, "strides .4, 8. bytes and is not contiguous"),
        ({"data": (4100, False)}, "no multiple of 16; pass a copy"),
    ],
)
def test_foreign_arrays_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    device: Any = FakeCUDA()
    with pytest.raises(ArgumentError, match=message):
        adopt(device, foreign(**changes))


def test_a_foreign_array_that_hides_its_memory_is_refused() -> None:
    class Tensor:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError("can't get it on a variable that requires grad")

    device: Any = FakeCUDA()
    with pytest.raises(ArgumentError, match=r"a Tensor does not show its memory .can't get it .* grad."):
        adopt(device, Tensor())


def test_arrays_of_another_device_are_refused() -> None:
    here: Any = FakeCUDA()
    there: Any = FakeCUDA()
    value = adopt(there, foreign())
    with pytest.raises(ArgumentError, match="is not on 'a GPU'"):
        adopt(here, value)
    assert adopt(there, value) is value
