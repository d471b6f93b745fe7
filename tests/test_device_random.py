"""Random loop nests as kernels: device code gives exactly what the interpreter of nests gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ansor.dtypes import to_numpy
from ansor.ir.interp import run_nest
from ansor.ir.nest import For, LoopKind, LoopNest
from ansor.te.expr import int_value
from tests.cuda_on_host import Run, each_language, run_together
from tests.test_codegen_random import Generator

BOUND = (LoopKind.BLOCK_X, LoopKind.THREAD_Y, LoopKind.THREAD_X)


def kernel_form(nest: LoopNest) -> LoopNest:
    """Its parallel loops, which may run in any order, as blocks, of which there may be most, and threads."""
    loops: list[For] = []
    body = nest.body
    while isinstance(body, For):
        loops.append(body)
        body = body.body
    outside = [loop for loop in loops if loop.kind is LoopKind.PARALLEL and loop.extent != 1]
    for loop in reversed(loops):
        if loop not in outside:
            kind = LoopKind.SERIAL if loop.kind is LoopKind.PARALLEL else loop.kind
            body = replace(loop, kind=kind, body=body)
    outside.sort(key=lambda loop: int_value(loop.extent) or 0, reverse=True)
    for kind, loop in reversed(list(zip(BOUND, outside, strict=False))):
        body = replace(loop, kind=kind, body=body)
    return replace(nest, body=body)


@pytest.mark.parametrize("block", range(3))
@each_language
def test_random_kernels_match_the_interpreter(run: Run, block: int) -> None:
    programs, expected = [], []
    for seed in range(5000 + 15 * block, 5015 + 15 * block):
        generator = Generator(seed)
        nest = kernel_form(generator.nest())
        arrays = generator.arrays()
        size = generator.pick(1, 20)
        right, found = (
            np.full(nest.params[-1].constant_shape, 77, to_numpy(generator.dtype)) for _ in range(2)
        )
        run_nest(nest, [*arrays, right], [size])
        programs.append((nest, [*arrays, found], [size]))
        expected.append((seed, right))
    text = run_together(run, programs)
    for (nest, arrays, _), (seed, right) in zip(programs, expected, strict=True):
        if not np.array_equal(right, arrays[-1]):
            wrong = np.argwhere(right != arrays[-1])[:3].tolist()
            pytest.fail(f"seed {seed}: differs at {wrong}\n{nest}\n{text}")
