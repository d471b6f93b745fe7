"""The emulated CUDA device notices what a GPU would, and nothing stays behind on it, by both bindings."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import ansor
from ansor.errors import ArgumentError, RunError
from ansor.runtime.device.cuda_bindings import BindingsDriver
from ansor.runtime.device.door import device_info, open_device
from ansor.runtime.device.module import DeviceModule
from tests.device_kernels import EMULATED, double, scale
from tests.emulated_cuda import WHY_NOT, EmulatedDriver, install

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")


@pytest.fixture(params=EMULATED.values())
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedDriver]:
    driver = install(monkeypatch, request.param)
    assert device_info("cuda").binding == request.param
    yield driver
    driver.check_left()


def data(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


@pytest.mark.usefixtures("driver")
def test_threads_that_never_meet_break_the_device() -> None:
    apart = DeviceModule(double(64, "if (i < 5) __syncthreads();", kind="cuda"))
    with pytest.raises(RunError, match="emulated error 719; a kernel failed, and this process cannot"):
        apart(data(64))
    with pytest.raises(RunError, match="a kernel failed, and this process cannot"):
        DeviceModule(double(64, kind="cuda"))(data(64))


@pytest.mark.usefixtures("driver")
def test_threads_meet_as_often_as_they_like() -> None:
    body = """
  __shared__ float tile[64];
  for (int k = 0; k < 3; ++k) {
    tile[threadIdx.x] = B[i] + k;
    __syncthreads();
    B[i] = tile[63 - threadIdx.x];
    __syncthreads();
  }"""
    found = DeviceModule(double(128, body, kind="cuda"))(data(128))
    blocks = (2 * data(128) + 0 + 1 + 2).reshape(2, 64)
    np.testing.assert_array_equal(found.reshape(2, 64), blocks[:, ::-1])


@pytest.mark.usefixtures("driver")
def test_each_block_finds_shared_memory_as_nobody_left_it() -> None:
    body = "__shared__ float left[64]; B[i] = left[threadIdx.x]; left[threadIdx.x] = 1.0f;"
    assert np.isnan(DeviceModule(double(128, body, kind="cuda"))(data(128))).all()


@pytest.mark.usefixtures("driver")
def test_lanes_of_a_warp_give_each_other_values() -> None:
    body = "float x = __shfl_xor_sync(0xffffffffu, B[i], 5); B[i] = x + __shfl_xor_sync(0xffffffffu, x, 1);"
    found = DeviceModule(double(64, body, kind="cuda"))(data(64))
    i = np.arange(64)
    np.testing.assert_array_equal(found, 2.0 * (i ^ 5) + 2.0 * (i ^ 5 ^ 1))


@pytest.mark.usefixtures("driver")
def test_copies_are_made_when_they_are_waited_for() -> None:
    body = "begin_copy(B + i, A + i, 4); float early = B[i]; end_copies(); B[i] += early;"
    np.testing.assert_array_equal(DeviceModule(double(64, body, kind="cuda"))(data(64)), 3 * data(64))
    apart = double(64, "begin_copy((char*)(B + i) + 2, A + i, 4);", kind="cuda")
    with pytest.raises(RunError, match="emulated error 716"):
        DeviceModule(apart)(data(64))


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(("pending", "factor"), [(2, 1), (1, 5), (0, 5)])
def test_groups_of_copies_are_made_when_they_are_waited_for(pending: int, factor: int) -> None:
    """Of two groups the first one copies."""
    begun = "begin_copy(B + i, A + i, 4); commit_copies(); commit_copies();"
    body = f"{begun} end_groups({pending}); B[i] *= 5.0f; end_copies();"
    np.testing.assert_array_equal(DeviceModule(double(64, body, kind="cuda"))(data(64)), factor * data(64))


def test_a_call_without_a_context_fails() -> None:
    driver = BindingsDriver(EmulatedDriver(), 0)
    driver.open()
    with driver.current():
        driver.synchronize()
    with pytest.raises(RunError, match="CUDA_ERROR_201"):
        driver.synchronize()


def test_a_copy_that_leaves_its_memory_fails(driver: EmulatedDriver) -> None:
    array = ansor.device_array(data(4), "cuda")
    with pytest.raises(RunError, match=r"emulated error 1$"):
        array.device.upload(data(4), array.memory, 4)


def test_nothing_stays_behind(driver: EmulatedDriver) -> None:
    events = opened_elsewhere(driver)
    module = DeviceModule(replace(scale("cuda"), arch="sm_90"))
    array = ansor.device_array(data(100), "cuda")
    module(module(array))
    module(data(100))
    module.time_evaluator(number=40)(array, data(100))
    timer = module.timer(array, ansor.device_empty((100,), "float32", "cuda"))
    timer(3)
    with pytest.raises(ArgumentError):
        module(array, array)
    assert driver.modules == 1
    del module, array, timer
    gc.collect()
    assert (driver.modules, driver.memory, driver.events) == (0, {}, events)


def test_nothing_stays_behind_of_a_timing_that_fails(
    driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = opened_elsewhere(driver)
    timer = DeviceModule(double(64, kind="cuda")).timer(data(64), data(64) + 1)
    monkeypatch.setattr(driver, "_run", lambda *launch: 1)
    with pytest.raises(RunError, match=r"emulated error 1$"):
        timer(3)
    del timer
    gc.collect()
    assert (driver.modules, driver.memory, driver.events) == (0, {}, events)


def opened_elsewhere(driver: EmulatedDriver) -> int:
    """Open the device in another thread; gives the number of events that it has from then on."""
    with ThreadPoolExecutor(1) as other:
        other.submit(open_device, "cuda").result()
    return driver.events
