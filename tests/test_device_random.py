"""Random loop nests as kernels: device code gives exactly what the interpreter of nests gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ansor.dtypes import to_numpy
from ansor.ir.interp import run_nest
from ansor.ir.nest import For, LoopKind, LoopNest
from tests.cuda_on_host import Run, each_language
from tests.test_codegen_random import Generator

BOUND = (LoopKind.BLOCK_X, LoopKind.THREAD_Y, LoopKind.THREAD_X)


def kernel_form(nest: LoopNest) -> LoopNest:
    """Its parallel loops, which may run in any order, as blocks and threads."""
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
    for kind, loop in reversed(list(zip(BOUND, outside, strict=False))):
        body = replace(loop, kind=kind, body=body)
    return replace(nest, body=body)


@pytest.mark.parametrize("block", range(3))
@each_language
def test_random_kernels_match_the_interpreter(run: Run, block: int) -> None:
    for seed in range(5000 + 15 * block, 5015 + 15 * block):
        generator = Generator(seed)
        nest = kernel_form(generator.nest())
        arrays = generator.arrays()
        size = generator.pick(1, 20)
        shape, dtype = nest.params[-1].constant_shape, to_numpy(generator.dtype)
        expected, found = np.full(shape, 77, dtype), np.full(shape, 77, dtype)
        run_nest(nest, [*arrays, expected], [size])
        text = run(nest, *arrays, found, sizes=[size])
        if not np.array_equal(expected, found):
            wrong = np.argwhere(expected != found)[:3].tolist()
            pytest.fail(f"seed {seed}: differs at {wrong}\n{nest}\n{text}")
