"""The passes that every GPU program goes through, in order: from bound loops to kernels that can be printed.

Lowering has made a kernel of each stage at root (`bind_threads`), its reductions across threads spelled out,
with shuffles (`ansor.ir.shuffles`) or without.

1. Blocks of large grids get their tiles in groups (`block_order`), and virtual threads move inwards. Indices
   and values are made short, and what nothing reads then is left out (`unread`).
2. Reductions that accumulate in global or shared memory do so in registers, as on a CPU (`register_tile`),
   and small private arrays are brought there (`private_arrays`).
3. Barriers are placed, which is where threads meet. Tiles that are there several times are filled ahead
   (`multi_buffers`), and swizzled ones get other places for their elements (`swizzle`); nothing else moves
   across barriers from then on.
4. Guards are removed, hoisted and peeled inside of each kernel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ansor.ir.bounds import Bounds
from ansor.ir.kernel_form import map_kernels, open_kernel
from ansor.ir.nest import LoopNest, Stmt
from ansor.ir.passes.barriers import place_barriers
from ansor.ir.passes.block_order import order_blocks
from ansor.ir.passes.guards import simplify_guards
from ansor.ir.passes.multi_buffers import multi_buffers
from ansor.ir.passes.private_arrays import unroll_private_arrays
from ansor.ir.passes.register_tile import promote_accumulators
from ansor.ir.passes.swizzle import swizzle
from ansor.ir.passes.unread import drop_unread
from ansor.ir.passes.virtual_threads import inject_virtual_threads
from ansor.ir.ranges import loop_ranges, nest_bounds
from ansor.ir.registers import RegisterLimits
from ansor.ir.rewriting import map_expressions
from ansor.ir.simplify import simplify

THREAD_LIMITS: Final = RegisterLimits(
    vector_bits=32, num_registers=160, reserved=32, max_instructions=1 << 14, per_thread=True
)
"""Of a thread of a GPU, which has up to 255 registers of 32 bits: accumulators and private arrays in 128 of
them, about half, leave room for operands, and for more blocks on a multiprocessor. Unrolling may make as many
instructions of a loop as a thousand steps of 16 take."""

MOST_COPIED: Final = 64
"""The largest tile that is written twice, with and without guards: stores, with unrolled loops expanded."""


def polish_kernels(nest: LoopNest, limits: RegisterLimits) -> LoopNest:
    """Bring a program of kernels that still hold virtual threads, and no barriers, into kernel form."""
    sizes = Bounds(dict.fromkeys(nest.sizes, (0, None)))
    nest = map_kernels(nest, order_blocks)
    nest = replace(nest, body=inject_virtual_threads(nest.body))
    known = nest_bounds(nest)
    body = drop_unread(map_expressions(nest.body, lambda expr: simplify(expr, known)))
    body = promote_accumulators(body, limits, sizes)
    nest = replace(nest, body=unroll_private_arrays(body, limits))
    return map_kernels(nest, lambda kernel: _finished(kernel, sizes))


def _finished(kernel: Stmt, sizes: Bounds) -> Stmt:
    """A kernel with its barriers, and with as few guards as these allow."""
    kernel = swizzle(multi_buffers(place_barriers(kernel, sizes), sizes), sizes)
    opened = open_kernel(kernel)
    bounds = sizes.extended(loop_ranges(kernel))
    threads = {loop.var for loop in opened.threads}
    body = simplify_guards(opened.body, bounds, max_copied=MOST_COPIED, varying=threads)
    return opened.around(body)
