"""Arrays that libraries share without a copy: DLPack and `__cuda_array_interface__`, without a GPU.

A fake device has its memory on the host, so that what is exported can be looked at.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ansor
from ansor.errors import ArgumentError
from ansor.runtime.device import arrays, dlpack
from ansor.runtime.device.arrays import DeviceArray, adopt
from ansor.runtime.device.dlpack import DeviceType, exported, imported
from ansor.runtime.device.door import Memory
from ansor.runtime.device.module import DeviceModule
from tests.device_kernels import double, needs_opencl

NUMBER = 1
"""Of the fake device among the GPUs."""


class FakeDevice:
    """As much of a device as sharing arrays needs; it launches nothing."""

    def __init__(self, kind: str = "cuda") -> None:
        self.kind, self.name = kind, f"a device for {kind}"
        self.info = types.SimpleNamespace(number=NUMBER, arch="sm_90")
        self.waited: list[int | None] = []

    def synchronize_stream(self, stream: int) -> None:
        self.waited.append(stream)

    def synchronize(self) -> None:
        self.waited.append(None)


def on_device(data: np.ndarray[Any, Any], device: Any = None, writable: bool = True) -> DeviceArray:
    """An array of the fake device, its memory that of `data`."""
    memory = Memory(data.ctypes.data, data.nbytes)
    return DeviceArray(device or FakeDevice(), memory, data.shape, data.dtype, writable=writable, keep=data)


def aligned(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    data: np.ndarray[Any, Any] = ansor.aligned_empty(shape, dtype)
    data[...] = np.arange(data.size).reshape(shape).astype(data.dtype)
    return data


class Producer:
    """An array of another library, which makes its capsules as we do."""

    def __init__(
        self,
        data: np.ndarray[Any, Any],
        where: tuple[int, int] = (DeviceType.CUDA, NUMBER),
        strides: tuple[int, ...] | None = None,
        writable: bool = True,
        versions: bool = True,
    ) -> None:
        self.memory = dlpack.Memory(
            data.ctypes.data, data.shape, strides, str(data.dtype), where, writable, data
        )
        self.asked: list[dict[str, object]] = []
        self.__dlpack__: Callable[..., object] = self._versioned if versions else self._plain

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.device

    def _versioned(self, *, stream: object = None, max_version: object = None) -> object:
        self.asked.append({"stream": stream, "max_version": max_version})
        return exported(self.memory, versioned=max_version is not None)

    def _plain(self, *, stream: object = None) -> object:
        self.asked.append({"stream": stream})
        return exported(self.memory, versioned=False)


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Any:
    gc.freeze()  # What other tests left is not looked through again, nor found.
    before = set(dlpack._given)
    yield
    gc.collect()
    assert before.issuperset(dlpack._given)


# -- from other libraries ------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "bool", "uint8", "int64"])
def test_arrays_are_taken_where_they_lie(versions: bool, dtype: str) -> None:
    data, device = aligned(2, 3, 4, dtype=dtype), FakeDevice()
    producer = Producer(data, versions=versions)
    array = adopt(device, producer)  # type: ignore[arg-type]
    assert array is not None
    assert (array.memory.handle, array.memory.size) == (data.ctypes.data, data.nbytes)
    assert (array.shape, str(array.dtype), array.writable) == ((2, 3, 4), dtype, True)
    assert producer.asked[-1]["stream"] == 1, "the default stream is to wait for it"
    assert len(dlpack._given) == 1, "its library keeps it for us"


@pytest.mark.parametrize("shape", [(), (1,), (0, 3)])
def test_scalars_and_empty_arrays_are_taken(shape: tuple[int, ...]) -> None:
    array = adopt(FakeDevice(), Producer(aligned(*shape)))  # type: ignore[arg-type]
    assert array is not None
    assert array.shape == shape


def test_what_is_read_only_stays_so() -> None:
    array = adopt(FakeDevice(), Producer(aligned(4), writable=False))  # type: ignore[arg-type]
    assert array is not None
    assert not array.writable


def test_what_is_read_only_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = FakeDevice()
    monkeypatch.setattr(arrays, "open_device", lambda kind: device)
    array = ansor.from_dlpack(Producer(aligned(4), writable=False))
    with pytest.raises(
        ArgumentError, match=r"copy_from: <.*> is read-only; make another .* ansor.device_array"
    ):
        array.copy_from(np.zeros(4, np.float32))


def test_strides_do_not_matter_where_an_extent_is_one() -> None:
    device: Any = FakeDevice()
    assert adopt(device, Producer(aligned(2, 1, 4), strides=(4, 77, 1))) is not None
    with pytest.raises(
        ArgumentError, match=r"a Producer of shape .2, 4. has strides .4, 8. bytes and is not"
    ):
        adopt(device, Producer(aligned(2, 4), strides=(1, 2)))


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ((DeviceType.CUDA, NUMBER + 1), "memory of cuda, number 2"),
        ((DeviceType.OPENCL, NUMBER), "memory of opencl, number 1"),
        ((10, 0), r"another kind of device .DLPack's type 10."),
    ],
)
def test_arrays_of_another_device_are_refused(where: tuple[int, int], place: str) -> None:
    device: Any = FakeDevice()
    with pytest.raises(
        ArgumentError, match=f"a Producer is in .*{place}.*program runs on 'a device for cuda'"
    ):
        adopt(device, Producer(aligned(4), where))


def test_opencl_shares_no_memory() -> None:
    device: Any = FakeDevice("opencl")
    for kind in (DeviceType.CUDA, DeviceType.OPENCL):
        with pytest.raises(ArgumentError, match="the program runs on 'a device for opencl'"):
            adopt(device, Producer(aligned(4), (kind, NUMBER)))


def test_what_is_in_the_hosts_memory_is_left_to_numpy() -> None:
    for kind in ("cuda", "opencl"):
        device: Any = FakeDevice(kind)
        assert adopt(device, Producer(aligned(4), (DeviceType.CPU, 0))) is None
        assert adopt(device, np.zeros(4, np.float32)) is None


def test_an_address_that_is_not_aligned_is_refused() -> None:
    device: Any = FakeDevice()
    with pytest.raises(ArgumentError, match="no multiple of 16; pass a copy"):
        adopt(device, Producer(aligned(8)[1:]))


def test_a_library_that_does_not_give_its_memory_is_told() -> None:
    class Tensor(Producer):
        def _versioned(self, *, stream: object = None, max_version: object = None) -> object:
            raise BufferError("Can't export tensors that require gradient")

    device: Any = FakeDevice()
    with pytest.raises(ArgumentError, match=r"a Tensor does not give .* .Can't export .* as .detach"):
        adopt(device, Tensor(aligned(4)))
    wrong = Producer(aligned(4))
    wrong.__dlpack__ = lambda **options: "nothing"
    with pytest.raises(ArgumentError, match="gives 'nothing', which is no DLPack capsule"):
        adopt(device, wrong)


def test_a_tensor_that_is_nowhere_is_refused() -> None:
    class Meta:
        def __dlpack_device__(self) -> tuple[int, int]:
            raise ValueError("Unknown device type meta for Dlpack")

    device: Any = FakeDevice()
    with pytest.raises(ArgumentError, match=r"a Meta does not tell where it is .Unknown device type meta"):
        adopt(device, Meta())


def test_a_dtype_that_we_have_not_is_refused() -> None:
    class Complex:
        def __dlpack__(self, **options: object) -> object:
            return np.zeros(4, np.complex64).__dlpack__()

    with pytest.raises(ArgumentError, match=r"a Complex has elements of 64 bits, 1 lanes and code 5"):
        imported(Complex(), None)


def test_numpy_is_understood() -> None:
    """Its capsules are made by another hand."""
    for dtype in ("float64", "float32", "float16", "int8", "uint64", "bool"):
        data = np.ones((3, 4), dtype)[:, ::2]
        found = imported(data, None)
        assert found.dtype == dtype
        assert (found.address, found.shape, found.strides) == (data.ctypes.data, (3, 2), (4, 2))
        assert found.device == (DeviceType.CPU, 0)


def test_masked_arrays_are_refused() -> None:
    class Masked:
        __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (4096, False), "mask": object()}

    device: Any = FakeDevice()
    with pytest.raises(ArgumentError, match=r"a Masked of shape .2,. has a mask; pass its data"):
        adopt(device, Masked())


# -- to other libraries --------------------------------------------------------------------------------


class OnHost:
    """An array of the fake device, said to be in the host's memory, where numpy looks at it."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return DeviceType.CPU, 0

    def __dlpack__(self, *, max_version: object = None, **options: object) -> object:
        array = self.array
        memory = dlpack.Memory(
            array._address, array.shape, None, str(array.dtype), (1, 0), array.writable, array
        )
        return exported(memory, versioned=max_version is not None)


def test_numpy_understands_us() -> None:
    data = aligned(3, 5)
    shared = np.from_dlpack(OnHost(on_device(data)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(shared, data)
    data[1, 2] = -7
    assert shared[1, 2] == -7
    assert shared.flags.writeable
    gc.collect()
    assert len(dlpack._given) == 1, "kept while it is looked at"
    del shared
    gc.collect()
    assert dlpack._given == {}
    assert not np.from_dlpack(OnHost(on_device(data, writable=False))).flags.writeable  # type: ignore[arg-type]


def test_a_capsule_that_nobody_takes_keeps_nothing() -> None:
    array = on_device(aligned(4))
    for version in (None, (1, 0)):
        capsule = array.__dlpack__(max_version=version)
        assert len(dlpack._given) == 1
        del capsule
        assert dlpack._given == {}


def test_arrays_go_out_and_come_back() -> None:
    device: Any = FakeDevice()
    data = aligned(2, 3, dtype="bfloat16")
    array = on_device(data, device)
    assert array.__dlpack_device__() == (DeviceType.CUDA, NUMBER)

    class Library:
        """Hands on what it was given."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return array.__dlpack_device__()

        def __dlpack__(self, **options: Any) -> object:
            return array.__dlpack__(**options)

    back = adopt(device, Library())
    assert back is not None
    assert (back.memory.handle, back.shape, back.dtype) == (data.ctypes.data, (2, 3), ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("stream", "waits"), [(None, False), (1, False), (-1, False), (2, True), (0x7F00, True)]
)
def test_another_stream_sees_what_was_launched(stream: int | None, waits: bool) -> None:
    device: Any = FakeDevice()
    on_device(aligned(4), device).__dlpack__(stream=stream)
    assert device.waited == ([None] if waits else [])


def test_what_dlpack_cannot_give_is_a_buffer_error() -> None:
    array = on_device(aligned(4))
    for options in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match=r"as it is and where it is; copy it by .numpy"):
            array.__dlpack__(**options)  # type: ignore[arg-type]
    array.__dlpack__(dl_device=(DeviceType.CUDA, NUMBER), copy=False)
    with pytest.raises(BufferError, match="read-only, and its consumer knows no version"):
        on_device(aligned(4), writable=False).__dlpack__()
    opencl = on_device(aligned(4), FakeDevice("opencl"))
    assert opencl.__dlpack_device__() == (DeviceType.OPENCL, NUMBER)
    with pytest.raises(BufferError, match=r"OpenCL does not share; copy it by .numpy"):
        opencl.__dlpack__()


def test_the_cuda_array_interface() -> None:
    data = aligned(2, 3, dtype="int16")
    shown = on_device(data).__cuda_array_interface__
    assert shown == {
        "shape": (2, 3),
        "typestr": "<i2",
        "data": (data.ctypes.data, False),
        "version": 3,
        "stream": 1,
    }
    assert on_device(aligned(0, 3)).__cuda_array_interface__["data"] == (0, False)
    assert on_device(data, writable=False).__cuda_array_interface__["data"][1]
    assert not hasattr(on_device(aligned(2, dtype="bfloat16")), "__cuda_array_interface__")
    assert not hasattr(on_device(data, FakeDevice("opencl")), "__cuda_array_interface__")


# -- the public function, and calls --------------------------------------------------------------------


def test_from_dlpack(monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = FakeDevice()
    monkeypatch.setattr(arrays, "open_device", lambda kind: device)
    data = aligned(4)
    array = ansor.from_dlpack(Producer(data))
    assert (array.device, array.memory.handle) == (device, data.ctypes.data)
    with pytest.raises(ArgumentError, match="from_dlpack: a Producer is in memory of cpu, number 0; only"):
        ansor.from_dlpack(Producer(data, (DeviceType.CPU, 0)))
    for value in (data, [1.0]):
        with pytest.raises(ArgumentError, match=r"from_dlpack: a (ndarray|list) is not shown by DLPack"):
            ansor.from_dlpack(value)
    with pytest.raises(ArgumentError, match="number 2, and the program runs on"):
        ansor.from_dlpack(Producer(data, (DeviceType.CUDA, 2)))


def test_a_stream_that_does_not_wait_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the library that names it, before the program and after it."""

    class Foreign:
        def __init__(self, stream: int | None) -> None:
            data = aligned(8)
            self.__cuda_array_interface__ = {
                "shape": (8,),
                "typestr": "<f4",
                "data": (data.ctypes.data, False),
                "version": 3,
                "stream": stream,
            }
            self.data = data

    class Launches:
        def enqueue(self) -> None:
            device.waited.append(0)

    device: Any = FakeDevice()
    monkeypatch.setattr("ansor.runtime.device.module.open_device", lambda kind: device)
    module = DeviceModule(double(8, kind="cuda"))
    program: Any = types.SimpleNamespace(launches=lambda memories, sizes: Launches())
    monkeypatch.setattr(module, "_loaded", lambda: program)
    module(Foreign(77), Foreign(1))
    assert device.waited == [77, 0, None]
    device.waited.clear()
    module(Foreign(1), Foreign(None))
    assert device.waited == [0]


@needs_opencl
def test_tensors_in_the_hosts_memory_are_taken_as_numpy_arrays_are() -> None:
    data = aligned(8)
    found = DeviceModule(double(8))(OnHost(on_device(data)))
    np.testing.assert_array_equal(found, 2 * data)


def test_pytorch_understands_us_and_is_understood() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    data = aligned(3, 5)
    shared = torch.from_dlpack(OnHost(on_device(data)))
    shared[1, 2] = -7
    assert data[1, 2] == -7
    tensor = torch.ones((2, 3), dtype=torch.bfloat16)
    found = imported(tensor, None)
    assert (found.address, found.shape, found.dtype) == (tensor.data_ptr(), (2, 3), "bfloat16")
    with pytest.raises(ArgumentError, match=r"a Tensor does not give its memory .* as .detach"):
        imported(torch.ones(3, requires_grad=True), None)
    del shared, found
