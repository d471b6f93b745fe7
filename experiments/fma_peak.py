"""The fused multiply-add peak of this machine, measured: the ceiling that kernels are compared with.

A loop of independent vector multiply-adds on registers, written as LLVM IR, runs on the threads that kernels
run on; of other dtypes it is the instruction that adds most of their products to a register. Nominal clock
figures mislead (machines boost, throttle and are shared), so the ceiling is always measured beside the thing
that is compared with it.
"""

from __future__ import annotations

from typing import Final

from ansor.alignment import address_of, aligned_empty
from ansor.codegen.compile import compile_ir
from ansor.codegen.llvm.dtype_map import memory_type
from ansor.codegen.llvm.text import vector_type
from ansor.codegen.machine import Machine
from ansor.dtypes import dtype_info
from ansor.intrinsics.pattern import operand_bits, tensor_intrinsics
from ansor.knobs import MAX_THREADS
from ansor.runtime.jit import load_object
from ansor.runtime.multiply_adds import MultiplyAdd, chains, multiply_adds_ir
from ansor.runtime.pool import kernel_imports
from ansor.runtime.timing import compiled_timer
from ansor.task.isa import is_slow

STEPS: Final = 200_000
"""Of a call, all threads together: some tenths of a millisecond, besides which starting them is nothing."""

PIECES: Final = 64
"""Pieces of them at most, unless there are more threads: one whose core is faster for a while does more."""


def multiply_add(dtype: str, machine: Machine) -> MultiplyAdd:
    """Give the instruction that adds most products of a dtype on a machine; float32's if none adds more."""
    if dtype == "float64":
        return MultiplyAdd.of_floats("double", machine.vector_bits // 64)
    fitting = [
        one
        for one in filter(machine.has_intrinsic, tensor_intrinsics())
        if one.symbol
        and dtype in {read.dtype for read in one.operands}
        and not is_slow(machine.cpu, one.instruction)
    ]
    if not fitting:
        return MultiplyAdd.of_floats("float", machine.vector_bits // 32)
    widest = max(fitting, key=lambda one: one.lanes * one.depth)
    lanes = vector_type(memory_type(widest.dtype), widest.lanes)
    bits, each = widest.lanes * dtype_info(widest.dtype).bits, operand_bits(widest.operand_type)
    assert each is not None
    operand = vector_type(widest.operand_type, bits // each)
    return MultiplyAdd(widest.symbol, lanes, operand, widest.lanes * widest.depth)


def peak_flop(dtype: str = "float32") -> float:
    """Operations of one call of `FmaPeak` [flop]."""
    machine = Machine.host()
    return 2.0 * chains(machine) * multiply_add(dtype, machine).products * STEPS


class FmaPeak:
    """Times calls that keep all threads busy with multiply-adds of a dtype, `STEPS` of them all together."""

    def __init__(self, dtype: str = "float32") -> None:
        machine = Machine.host()
        size = 2 * machine.vector_bits // 8
        text = multiply_adds_ir(multiply_add(dtype, machine), chains(machine)) + _parallel_ir(size)
        self._code = load_object(compile_ir(text, machine), ["peak"], kernel_imports())
        self._operands = aligned_empty((MAX_THREADS, size // 4), "float32")
        self._operands[...] = 0.5
        self._timer = compiled_timer(self._code["peak"], (address_of(self._operands),), (STEPS,))

    def __call__(self, number: int) -> float:
        return self._timer(number)


def _parallel_ir(size: int) -> str:
    """LLVM IR of `void peak(ptr operands, i64 steps)`; `size` is that of a piece's operands [bytes]."""
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

define void @peak(ptr %operands, i64 %steps) {{
  %data = alloca [2 x i64], align 8
  store ptr %operands, ptr %data, align 8
  %q = getelementptr i64, ptr %data, i64 1
  store i64 %steps, ptr %q, align 8
  call void @ansor_parallel_for(ptr @body, ptr %data, i32 {PIECES})
  ret void
}}
"""
