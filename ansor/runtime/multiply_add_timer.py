"""A loop of independent multiply-adds on the threads that kernels run on, to be timed."""

from __future__ import annotations

from collections.abc import Callable

from ansor.alignment import address_of, aligned_empty
from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.knobs import MAX_THREADS
from ansor.runtime.jit import load_object
from ansor.runtime.multiply_adds import MultiplyAdd, chains, multiply_adds_ir
from ansor.runtime.pool import kernel_imports
from ansor.runtime.timer import compiled_timer


def multiply_add_timer(
    kind: MultiplyAdd, steps: int, pieces: int, limit: int | None = None
) -> Callable[[int], float]:
    """
    Make a timer (`ansor.runtime.timer.compiled_timer`) of multiply-adds on the threads that kernels run on.

    Parameters
    ----------
    kind
        Which instruction.
    steps
        Of a call, all threads together; of `chains` multiply-adds each.
    pieces
        Of a call, at most, unless there are more threads.
    limit
        Threads at most; None: all of the pool.
    """
    machine = Machine.host()
    size = 2 * machine.vector_bits // 8
    text = multiply_adds_ir(kind, chains(machine)) + _on_all_threads_ir(size, pieces)
    code = load_object(compile_ir(text, machine), ["on_all_threads"], kernel_imports(limit))
    operands = aligned_empty((max(pieces, MAX_THREADS), size // 4), "float32")
    operands[...] = 0.5
    timer = compiled_timer(code["on_all_threads"], (address_of(operands),), (steps,))

    def timed(number: int, _keep: object = (code, operands)) -> float:
        return timer(number)

    return timed


def _on_all_threads_ir(size: int, pieces: int) -> str:
    """LLVM IR of `void on_all_threads(ptr operands, i64 steps)`; a piece's operands are `size` bytes."""
    return f"""
declare void @ansor_parallel_for(ptr, ptr, i32)

define internal void @body(ptr %data, i32 %piece, i32 %all) "stackrealign" {{
entry:
  %operands = load ptr, ptr %data, align 8
  %q = getelementptr i64, ptr %data, i64 1
  %steps = load i64, ptr %q, align 8
  %t = zext i32 %piece to i64
  %n = zext i32 %all to i64
  %part = udiv i64 %steps, %n
  %byte = mul i64 %t, {size}
  %own = getelementptr i8, ptr %operands, i64 %byte
  call void @multiply_adds(ptr %own, i64 %part)
  ret void
}}

define void @on_all_threads(ptr %operands, i64 %steps) {{
  %data = alloca [2 x i64], align 8
  store ptr %operands, ptr %data, align 8
  %q = getelementptr i64, ptr %data, i64 1
  store i64 %steps, ptr %q, align 8
  call void @ansor_parallel_for(ptr @body, ptr %data, i32 {pieces})
  ret void
}}
"""
