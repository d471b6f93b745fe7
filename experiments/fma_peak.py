"""The fused multiply-add peak of this machine, measured: the ceiling that kernels are compared with.

A loop of independent vector multiply-adds on registers, written as LLVM IR, runs on the threads that kernels
run on; of other dtypes it is the instruction that adds most of their products to a register. Nominal clock
figures mislead (machines boost, throttle and are shared), so the ceiling is always measured beside the thing
that is compared with it.
"""

from __future__ import annotations

from typing import Final

from ansor.codegen.llvm.dtype_map import memory_type
from ansor.codegen.llvm.text import vector_type
from ansor.codegen.machine import Machine
from ansor.dtypes import dtype_info
from ansor.intrinsics.matrix import MATRIX_TILES, WORD_BYTES
from ansor.intrinsics.pattern import operand_bits, tensor_intrinsics
from ansor.runtime.multiply_add_timer import multiply_add_timer
from ansor.runtime.multiply_adds import MultiplyAdd, chains
from ansor.task.isa import is_slow

STEPS: Final = 200_000
"""Of a call, all threads together: some tenths of a millisecond, besides which starting them is nothing."""

PIECES: Final = 64
"""Pieces of them at most, unless there are more threads: one whose core is faster for a while does more."""


def multiply_add(dtype: str, machine: Machine) -> MultiplyAdd:
    """Give the instruction that adds most products of a dtype on a machine; float32's if none adds more."""
    if dtype == "float64":
        return MultiplyAdd.of_floats("double", machine.vector_bits // 64)
    for (first, _, _), instruction in MATRIX_TILES.items():
        if dtype == first and instruction in machine.matrix_unit:
            return MultiplyAdd.of_tiles(instruction, WORD_BYTES // dtype_info(dtype).bytes)
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
    kind = multiply_add(dtype, machine)
    return 2.0 * chains(machine) * kind.products * _steps(kind)


def _steps(kind: MultiplyAdd) -> int:
    """Of a call; a product of tiles takes as long as dozens of multiply-adds."""
    return STEPS // 32 if kind.is_of_tiles else STEPS


class FmaPeak:
    """Times calls that keep all threads busy with multiply-adds of a dtype, `STEPS` of them all together."""

    def __init__(self, dtype: str = "float32") -> None:
        kind = multiply_add(dtype, Machine.host())
        self._timer = multiply_add_timer(kind, _steps(kind), PIECES)

    def __call__(self, number: int) -> float:
        return self._timer(number)
