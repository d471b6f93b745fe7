"""The text of GPU programs, in both languages, against texts that people have read.

`python -m tests.test_device_source` writes the texts anew; what changes in them is for the commit to explain.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ansor.codegen.c import CUDA, OPENCL, Dialect, emit_c, split_kernels
from ansor.ir.nest import LoopNest
from ansor.runtime.device.build import build_device
from ansor.runtime.names import symbol_of
from ansor.task.target import Target
from tests import device_nests
from tests.gpu_schedules import ahead, kernels, row_sums, swizzled, tiled_matmul
from tests.tensor_core_schedules import half_product, tensor_cores

FOLDER = Path(__file__).parent / "golden" / "device"
NESTS: dict[str, Callable[[], LoopNest]] = {
    "vector_add": device_nests.vector_add,
    "relu": lambda: device_nests.copied("float32", 4, relu=True),
    "transposed": device_nests.transposed,
    "matmul": device_nests.matmul,
    "double_buffered": lambda: kernels(ahead(tiled_matmul((32, 32, 24), (1, 4, 2), (1, 4, 2), 8, 4))),
    "pipelined": lambda: kernels(ahead(tiled_matmul((32, 32, 40), (1, 4, 2), (1, 4, 2), 8, 4), buffers=3)),
    "swizzled": lambda: kernels(swizzled(tiled_matmul((32, 32, 48), (1, 4, 2), (1, 4, 2), 16, 4)).state),
    "softmax": device_nests.softmax,
    "argmax": device_nests.argmax,
    "gelu_float16": lambda: device_nests.gelu("float16"),
    "gelu_bfloat16": lambda: device_nests.gelu("bfloat16"),
    "tensor_cores": lambda: kernels(
        tensor_cores(half_product(32, 32, 32, "float16"), tiles=(2, 2), pad=8).state
    ),
}
SHUFFLED = {"row_sums_by_warps": lambda: kernels(row_sums(12, 96, 64).state, shuffles=True)}
"""Programs with text in CUDA alone."""
SUFFIXES = {CUDA: "cu", OPENCL: "cl"}


def place(name: str, dialect: Dialect) -> Path:
    return FOLDER / f"{name}.{SUFFIXES[dialect]}"


@pytest.mark.parametrize("dialect", [CUDA, OPENCL], ids=["cuda", "opencl"])
@pytest.mark.parametrize("name", NESTS)
def test_text(name: str, dialect: Dialect) -> None:
    assert emit_c(split_kernels(NESTS[name]()), dialect) == place(name, dialect).read_text()


@pytest.mark.parametrize("name", SHUFFLED)
def test_text_of_shuffles(name: str) -> None:
    assert emit_c(split_kernels(SHUFFLED[name]()), CUDA) == place(name, CUDA).read_text()


@pytest.mark.parametrize("built", ["cuda", "opencl"])
@pytest.mark.parametrize("name", NESTS)
def test_a_module_shows_its_text_in_either_language(name: str, built: str) -> None:
    nest = NESTS[name]()
    module = build_device(nest, Target(built), nest.name)
    for dialect in SUFFIXES:
        assert module.get_source(dialect.name) == emit_c(split_kernels(nest, symbol_of(nest.name)), dialect)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, nest in NESTS.items():
        for dialect in SUFFIXES:
            place(name, dialect).write_text(emit_c(split_kernels(nest()), dialect))
    for name, nest in SHUFFLED.items():
        place(name, CUDA).write_text(emit_c(split_kernels(nest()), CUDA))
