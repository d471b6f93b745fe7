"""NVIDIA's real bindings, where they are installed: what ansor asks of them is there. It takes no driver."""

from __future__ import annotations

import ast
import ctypes
import inspect
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

from ansor.errors import BuildError, NoDeviceError, RunError
from ansor.runtime.device import cuda, cuda_bindings
from tests.test_device_cuda import Asked, kernel, opened, timer_of

real: Any = pytest.importorskip("cuda.bindings.driver", exc_type=ImportError)


def asked_for() -> Iterator[tuple[str, ast.Call | None]]:
    """What the module asks of `cu`, the driver's API: names, with dots where they have any, and calls."""
    tree = ast.parse(inspect.getsource(cuda_bindings))
    outer = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in outer:
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("cu", "self._cu"):
            around = outer[node]
            if isinstance(around, ast.Attribute):
                yield f"{node.attr}.{around.attr}", None
            else:
                yield node.attr, around if isinstance(around, ast.Call) and around.func is node else None


def test_every_name_is_there() -> None:
    names = {name for name, _ in asked_for()}
    assert {"cuMemcpyDtoH", "cuGraphAddKernelNode", "CUresult", "CUDA_KERNEL_NODE_PARAMS"} <= names
    assert "CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES" in names
    assert len(names) > 40
    for name in names:
        attrgetter(name)(real)


def test_every_call_has_the_arguments_that_it_takes() -> None:
    """What is passed with a star has three parts, as grids and blocks have."""
    calls = [(name, call) for name, call in asked_for() if call is not None and name.startswith("cu")]
    assert len({name for name, _ in calls}) > 30
    for name, call in calls:
        count = sum(3 if isinstance(one, ast.Starred) else 1 for one in call.args)
        inspect.signature(getattr(real, name)).bind(*[None] * count)


def test_every_attribute_of_a_device_is_there() -> None:
    class Recording(Asked):
        def attribute(self, name: str) -> int:
            getattr(real.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
            names.append(name)
            return 9

    names: list[str] = []
    driver: Any = Recording()
    assert cuda.FoundCUDA(driver).info.arch == "sm_99"
    assert "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN" in names


def test_a_launch_becomes_a_node() -> None:
    """Its fields are there, and take what they are given."""
    cu, driver = opened(cuModuleGetFunction=(0, real.CUfunction(77)))
    cu.CUDA_KERNEL_NODE_PARAMS = real.CUDA_KERNEL_NODE_PARAMS  # type: ignore[misc, assignment]
    timer_of(driver, driver.launcher(driver.load(b""), kernel())).seconds(1)
    node: Any = cu.arguments[cu.calls.index("cuGraphAddKernelNode")][3]
    assert (node.gridDimX, node.blockDimX, node.blockDimZ, node.sharedMemBytes) == (1, 64, 1, 0)
    assert int(node.func) == 77


def test_without_a_driver_there_is_no_device() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(NoDeviceError, match="there is no NVIDIA driver on this machine"):
            cuda_bindings.device_names()
    else:
        pytest.skip("there is a driver")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("INVALID_IMAGE", BuildError),
        ("NO_BINARY_FOR_GPU", BuildError),
        ("OUT_OF_MEMORY", RunError),
        ("ILLEGAL_ADDRESS", RunError),
    ],
)
def test_codes_mean_what_they_are_taken_for(code: str, error: type[Exception]) -> None:
    _, driver = opened(cuModuleLoadData=(getattr(real.CUresult, f"CUDA_ERROR_{code}"), None))
    with pytest.raises(error):
        driver.load(b"")
