"""A sample of the catalogue and of the operators, cross-compiled for aarch64 and run under emulation.

Many kernels are linked into one C program, which reads all inputs from one file and writes all outputs to
another. Its arrays are aligned to their elements only, and stand before bytes that must not change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.machine import Machine
from ansor.dtypes import DTYPES, to_numpy
from ansor.schedule.manual import Schedule
from ansor.schedule.state import State
from ansor.te import Tensor
from ansor.workloads import CATALOGUE
from tests.breadth_expressions import computations, operands, operators, stages
from tests.breadth_programs import Case, vector_path

TRIPLE = "aarch64-linux-gnu"
TARGET = f"llvm -mtriple={TRIPLE}"
HALVES = f"{TARGET} -mattr=+fullfp16"
"""With arithmetic of float16, which few other machines have."""
CC, QEMU = f"{TRIPLE}-gcc", "qemu-aarch64"

pytestmark = pytest.mark.skipif(
    not (shutil.which(CC) and shutil.which(QEMU)),
    reason=f"{CC} and {QEMU} are not installed (Debian: gcc-aarch64-linux-gnu, qemu-user)",
)

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64 };
static FILE *inputs, *outputs;

static unsigned char *array(size_t size, size_t element) {
    unsigned char *memory = aligned_alloc(64, (element + size + 2 * GUARD) / 64 * 64);
    memset(memory, 0xA5, element + size + GUARD);
    return memory + element;
}

static unsigned char *input(size_t size, size_t element) {
    unsigned char *memory = array(size, element);
    if (fread(memory, 1, size, inputs) != size) exit(2);
    return memory;
}

static void output(const char *kernel, unsigned char *memory, size_t size) {
    for (int i = 0; i < GUARD; i++)
        if (memory[size + i] != 0xA5) {
            fprintf(stderr, "%s wrote behind an output\\n", kernel);
            exit(3);
        }
    if (fwrite(memory, 1, size, outputs) != size) exit(2);
}
"""


@dataclass(frozen=True)
class Kernel:
    """A program to build, and arrays for the tensors that it reads; the others are its outputs."""

    symbol: str
    schedule: Schedule | State
    tensors: Sequence[Tensor]
    arrays: Sequence[np.ndarray]
    target: str = TARGET

    @property
    def outputs(self) -> Sequence[Tensor]:
        return self.tensors[len(self.arrays) :]

    @cached_property
    def module(self) -> ansor.Module:
        return ansor.build(self.schedule, self.tensors, self.target, name=self.symbol)

    def call(self) -> str:
        """The C statements that run it."""
        lines, names = [], []
        for number, array in enumerate(self.arrays):
            names.append(f"x{number}")
            lines.append(f"unsigned char *x{number} = input({array.nbytes}, {array.itemsize});")
        for number, tensor in enumerate(self.outputs):
            names.append(f"y{number}")
            lines.append(f"unsigned char *y{number} = array({size(tensor)}, {item(tensor)});")
        lines.append(f"{self.symbol}({', '.join(names)});")
        lines += [
            f'output("{self.symbol}", y{number}, {size(tensor)});'
            for number, tensor in enumerate(self.outputs)
        ]
        declaration = f"void {self.symbol}({', '.join(['void *'] * len(names))});"
        return f"{declaration}\nstatic void run_{self.symbol}(void) {{\n    " + "\n    ".join(lines) + "\n}\n"


def item(tensor: Tensor) -> int:
    return to_numpy(tensor.dtype).itemsize


def size(tensor: Tensor) -> int:
    return int(np.prod([int(extent) for extent in tensor.shape])) * item(tensor)


def emulate(kernels: Sequence[Kernel], folder: Path) -> list[list[np.ndarray]]:
    """Build and run kernels in one program; gives the outputs of each."""
    objects = [kernel.module.save(folder / f"{kernel.symbol}.o") for kernel in kernels]
    calls = "".join(f"    run_{kernel.symbol}();\n" for kernel in kernels)
    main = (
        "int main(int count, char **names) {\n"
        '    inputs = fopen(names[1], "rb"), outputs = fopen(names[2], "wb");\n'
        f"    if (count != 3 || !inputs || !outputs) return 2;\n{calls}    return fclose(outputs);\n}}\n"
    )
    source = folder / "main.c"
    source.write_text(PROGRAM + "".join(kernel.call() for kernel in kernels) + main)
    program, given, results = folder / "main", folder / "inputs", folder / "outputs"
    run(CC, "-static", "-pthread", "-o", program, source, *objects, "-lm")
    given.write_bytes(b"".join(a.tobytes() for kernel in kernels for a in kernel.arrays))
    run(QEMU, program, given, results)
    data, place, found = results.read_bytes(), 0, []
    for kernel in kernels:
        found.append([])
        for tensor in kernel.outputs:
            shape = [int(extent) for extent in tensor.shape]
            part = data[place : place + size(tensor)]
            found[-1].append(np.frombuffer(part, to_numpy(tensor.dtype)).reshape(shape))
            place += size(tensor)
    assert place == len(data)
    return found


def run(*command: object) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "ANSOR_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"


@pytest.fixture(autouse=True)
def _compiled_when_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is built for another architecture is never called here."""
    monkeypatch.setattr("ansor.runtime.build.compile_ir", lambda text, machine: b"")


def sample() -> list[tuple[Case, str]]:
    """Every workload in one dtype, the dtypes taking turns, and products in all of theirs."""
    chosen = []
    for number, entry in enumerate(CATALOGUE.values()):
        dtype = entry.dtypes[number % len(entry.dtypes)]
        chosen.append((Case.small(entry, dtype), TARGET))
    for dtype in CATALOGUE["matmul"].dtypes:
        target = HALVES if dtype == "float16" else TARGET
        chosen.append((Case.small(CATALOGUE["matmul"], dtype), target))
    return chosen


def test_the_catalogue_runs_on_another_architecture(tmp_path: Path) -> None:
    kernels, cases = [], [case for case, _ in sample()]
    for number, (case, target) in enumerate(sample()):
        state, nest = case.program(Machine.for_target(target), target)
        kernels.append(Kernel(f"k{number}_{case.entry.name}", state, case.tensors, case.arrays, target))
        assert vector_path(nest, kernels[-1].module.get_source("ll")) is None, nest
    found = emulate(kernels, tmp_path)
    faults = {
        f"{case.name}\n{kernel.schedule}": fault
        for case, kernel, (output,) in zip(cases, kernels, found, strict=True)
        if (fault := case.fault(output)) is not None
    }
    assert faults == {}


def test_every_operator_runs_on_another_architecture(tmp_path: Path) -> None:
    """In vectors of 16 along rows of 37, with a tail; float16 also in native arithmetic."""
    kernels, chosen = [], []
    for dtype, target in [*((dtype, TARGET) for dtype in DTYPES), ("float16", HALVES)]:
        ops = operators(dtype)
        tensors = computations(dtype, ops)
        inputs = len(tensors) - len(ops)
        s = te.create_schedule([stage.op for stage in stages(tensors)])
        for stage in stages(tensors):
            _, inner = s[stage].split(stage.op.axis[1], factor=16)
            s[stage].vectorize(inner)
        kernels.append(Kernel(f"k{len(kernels)}_{dtype}", s, tensors, operands(dtype)[:inputs], target))
        chosen.append(ops)
    found = emulate(kernels, tmp_path)
    faults = [
        f"{kernel.symbol}: {fault}"
        for ops, kernel, outputs in zip(chosen, kernels, found, strict=True)
        for op, output in zip(ops, outputs, strict=True)
        if (fault := op.fault(output, kernel.arrays)) is not None
    ]
    assert faults == []
