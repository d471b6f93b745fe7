"""What loading operands costs a product of matrices, measured: one register tile, again and again.

Tiles of a product whose operands are packed already, as any product has them sooner or later: one panel stays
in the first cache of a core, blocks of the other operand come from its second. Multiply-adds on registers
(`experiments.fma_peak`) tell how fast a machine computes; this tells how much of that is left for a product
once operands are loaded. On a core of its own it is nearly all. Where others use the core's other thread, and
with it both caches, it may be far less, and as much as a product can reach.
"""

from __future__ import annotations

from typing import Any, Final

import ansor
from ansor import te
from ansor.codegen.machine import Machine
from ansor.runtime.arguments import bind
from ansor.workloads.catalogue import constant_shape

ROWS: Final = 6
UNROLLED: Final = 4
DEPTH: Final = 64
"""Length of the sums of a block."""
FLOATS: Final = 2048
"""So many of them each row of a tile adds up."""
PIECES: Final = 64
"""Tiles of a call, all threads together."""


def register_tile() -> tuple[int, int]:
    """Vectors of a row of the register tile, and lanes of each; four registers are for operands."""
    machine = Machine.host()
    return (machine.num_registers - 4) // ROWS, machine.vector_bits // 32


def schedule() -> tuple[Any, list[te.Tensor]]:
    """Schedule the sum of A[block, k, i] * B[k, j] over blocks and k, for some tiles C[piece, i, j]."""
    vectors, lanes = register_tile()
    width = vectors * lanes
    A = te.placeholder((FLOATS // width, DEPTH, ROWS), name="A")
    B = te.placeholder((DEPTH, width), name="B")
    block = te.reduce_axis((0, FLOATS // width), name="block")
    k = te.reduce_axis((0, DEPTH), name="k")
    C = te.compute(
        (PIECES, ROWS, width),
        lambda p, i, j: te.sum(A[block, k, i] * B[k, j], axis=[block, k]),
        name="C",
    )
    s = te.create_schedule(C.op)
    piece, i, j = C.op.axis
    k_outer, k_inner = s[C].split(k, factor=UNROLLED)
    j_vector, j_lane = s[C].split(j, factor=lanes)
    s[C].reorder(piece, block, k_outer, k_inner, i, j_vector, j_lane)
    s[C].parallel(piece)
    s[C].unroll(k_inner)
    s[C].vectorize(j_lane)
    return s, [A, B, C]


def tiles_flop() -> float:
    """Operations of one call of `RegisterTiles` [flop]."""
    return 2.0 * PIECES * ROWS * DEPTH * FLOATS


class RegisterTiles:
    """Times calls that keep all threads busy with tiles of a product of float32."""

    def __init__(self) -> None:
        made, tensors = schedule()
        self._kernel = ansor.build(made, tensors, target="llvm", name="tiles")
        operands = [ansor.aligned_empty(constant_shape(tensor), "float32") for tensor in tensors]
        for operand in operands:
            operand.fill(0.5)
        self._timer = self._kernel.timer(bind(self._kernel.signature, operands))

    def __call__(self, number: int) -> float:
        return self._timer(number)
