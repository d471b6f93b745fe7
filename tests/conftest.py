"""What all tests share. What ran nowhere for lack of a device is counted at the end."""

import gc
import os
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from ansor.codegen.c.cuda_compilers import CudaCompiler, find_nvcc, find_nvrtc
from ansor.task import host
from measure import LocalBuilder, LocalRunner
from search import options, params


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported now stays until the end: nobody need look for garbage in it, now or later.

    Nor often in what tests leave: most of it are caches.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """Logs of tests need not outlive the machine's next failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True)
def threads_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test says of threads, tasks of others are not planned for."""
    monkeypatch.setattr(host, "_chosen", [])


@pytest.fixture(scope="module")
def small_searches() -> Iterator[None]:
    """Searches of few programs, where a test says nothing of how large they are.

    These are of few structures, each of which takes as long for one program as for many.
    """
    sizes = {
        "evolutionary_search_population": 24,
        "evolutionary_search_num_iters": 1,
        "max_families": 4,
    }
    smaller = {name: replace(params.PARAMETERS[name], default=size) for name, size in sizes.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(params, "PARAMETERS", {**params.PARAMETERS, **smaller})
        yield


@pytest.fixture(scope="module")
def builder() -> Iterator[LocalBuilder]:
    """One that builds a program at a time."""
    with LocalBuilder(n_parallel=1) as made:
        yield made


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    """One that hardly times: what matters is whether answers are right."""
    with LocalRunner(timeout=20.0, number=1, min_repeat_ms=0.01, num_threads=2) as made:
        yield made


@pytest.fixture(scope="module")
def kept_workers(builder: LocalBuilder, runner: LocalRunner) -> Iterator[None]:
    """Searches that are given no builder and no runner share these: workers take long to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "LocalBuilder", lambda: nullcontext(builder))
        patch.setattr(options, "LocalRunner", lambda: nullcontext(runner))
        yield


@pytest.fixture(scope="module")
def quick_pocl() -> Iterator[None]:
    """PoCL optimises nothing, here and in processes that start here: unrolled kernels take it seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")
        yield


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kind of device of a test that runs on each (`tests.device_kernels.each_device`)."""
    from tests import device_kernels, emulated_cuda

    if request.param not in device_kernels.EMULATED:
        yield str(request.param)
        return
    driver = emulated_cuda.install(monkeypatch, device_kernels.EMULATED[request.param])
    yield "cuda"
    driver.check_left()


@pytest.fixture
def compiler() -> CudaCompiler:
    """A compiler for CUDA, whichever is there."""
    found = find_nvrtc() or find_nvcc()
    if found is None:
        pytest.skip("no compiler for CUDA is installed")
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [one for one in terminalreporter.stats.get("skipped", ()) if "test_device_" in one.nodeid]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests of programs for devices were skipped")
