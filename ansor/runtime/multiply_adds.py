"""How many vector multiply-adds this machine starts in a cycle, measured: no system tells.

Two loops are timed in turn, one of independent multiply-adds and one that is a chain of integer operations
which take a cycle each: its time is that of the cycles, whatever the clock. What else runs makes either
slower, never faster, so the least times of a few rounds count; the answer is a whole number.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.codegen.matrix_unit import ALLOW, ALLOW_IR, configuration_ir
from ansor.intrinsics.matrix import TILE_ROWS, TILES, WORD_BYTES
from ansor.runtime.jit import load_object
from ansor.task.hardware import HardwareParams
from ansor.task.isa import is_host, vector_bytes
from ansor.task.target import Target

USUAL: Final = 2
"""Multiply-adds in a cycle of a CPU of which nothing is known."""
ROUNDS: Final = 9
STEPS: Final = 4000
"""Of both loops: some tens of microseconds each."""
CYCLES: Final = 24
"""Of one step of the chain."""
WARM: Final = 10
"""Untimed runs: wide vectors take a while until they run at full rate."""


def known_fma_ports(hardware: HardwareParams, target: Target) -> int:
    """The `fma_ports` of a target's hardware; at least 1.

    Where that does not know them they are measured if the CPU is this machine's, and else what is usual. That
    is not done when a task is made: a measured number may differ from run to run, and most tasks need none.
    """
    if hardware.fma_ports > 0:
        return hardware.fma_ports
    here = is_host(target) and target.mcpu in (None, "native")
    return measured_fma_ports(vector_bytes(target)) if here else USUAL


@cache
def measured_fma_ports(vector_bytes: int) -> int:
    """Multiply-adds of float32 vectors of so many bytes that this machine starts in one cycle; at least 1.

    Measured once in a process, which takes some hundredths of a second. Without an instruction for it a
    multiply-add is two.
    """
    return max(1, round(multiply_adds_per_cycle(vector_bytes)))


def multiply_adds_per_cycle(vector_bytes: int) -> float:
    """Measure the rate that `measured_fma_ports` rounds."""
    machine = Machine.host()
    count, lanes = chains(machine), vector_bytes // 4
    text = multiply_adds_ir(MultiplyAdd.of_floats("float", lanes), count) + _cycles_ir(vector_bytes)
    code = load_object(compile_ir(text, machine), ["multiply_adds", "cycles"])
    operands = (ctypes.c_float * (2 * lanes))(*([0.5] * (2 * lanes)))

    def timed(name: str) -> Callable[[], float]:
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code[name])

        def run() -> float:
            start = time.perf_counter()
            function(ctypes.addressof(operands), STEPS)
            return time.perf_counter() - start

        return run

    work, clock = timed("multiply_adds"), timed("cycles")
    for _ in range(WARM):
        work()
    rounds = [(work(), clock()) for _ in range(ROUNDS)]
    seconds, cycle = min(a for a, _ in rounds), min(b for _, b in rounds) / (STEPS * CYCLES)
    return count * STEPS * cycle / seconds


def chains(machine: Machine) -> int:
    """Accumulators that fit a machine's registers beside the operands, and hide what a multiply-add takes."""
    return machine.num_registers - 4


@dataclass(frozen=True, slots=True)
class MultiplyAdd:
    """An instruction that adds products to each lane of a register.

    Attributes
    ----------
    symbol
        LLVM intrinsic, called with the lanes and two operands; multiplies lanes or adds to them.
    lanes, operand
        LLVM types of its vectors, of equal size; empty for tiles of the matrix unit.
    products
        How many one adds in all lanes together.
    """

    symbol: str
    lanes: str
    operand: str
    products: int

    @classmethod
    def of_floats(cls, dtype: str, lanes: int) -> MultiplyAdd:
        """That of so many lanes of an LLVM type, "float" or "double"."""
        vector, suffix = f"<{lanes} x {dtype}>", {"float": "f32", "double": "f64"}[dtype]
        return cls(f"llvm.fmuladd.v{lanes}{suffix}", vector, vector, lanes)

    @classmethod
    def of_tiles(cls, instruction: str, word: int) -> MultiplyAdd:
        """That of a matrix unit (`ansor.intrinsics.matrix`) for words of so many elements."""
        return cls(f"llvm.x86.{instruction}", "", "", TILE_ROWS**3 * word)

    @property
    def is_of_tiles(self) -> bool:
        """Whether it multiplies tiles of the matrix unit."""
        return not self.lanes


def multiply_adds_ir(kind: MultiplyAdd, count: int) -> str:
    """LLVM IR of `void multiply_adds(ptr operands, i64 steps)`: `count` independent ones per step.

    The operands are two vectors; so many accumulators must hide the latency, and fit into the registers.
    """
    lanes, operand = kind.lanes, kind.operand
    if kind.is_of_tiles:
        return _tile_multiply_adds_ir(kind.symbol, count)
    add = f"call {lanes} @{kind.symbol}({lanes} %s{{i}}, {operand} %a, {operand} %b)"
    accumulators = "\n".join(f"  %s{i} = phi {lanes} [ %s, %entry ], [ %t{i}, %loop ]" for i in range(count))
    sums = "\n".join(f"  %t{i} = {add.format(i=i)}" for i in range(count))
    ends = "\n".join(f"  store volatile {lanes} %t{i}, ptr %p, align 4" for i in range(count))
    return f"""
declare {lanes} @{kind.symbol}({lanes}, {operand}, {operand})
define void @multiply_adds(ptr %p, i64 %steps) {{
entry:
  %s = load {lanes}, ptr %p, align 4
  %a = load {operand}, ptr %p, align 4
  %q = getelementptr {operand}, ptr %p, i64 1
  %b = load {operand}, ptr %q, align 4
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
{accumulators}
{sums}
  %next = add i64 %n, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %exit
exit:
{ends}
  store {operand} %a, ptr %p, align 4
  ret void
}}
"""


def _tile_multiply_adds_ir(symbol: str, count: int) -> str:
    """The same by a matrix unit: all registers but two have sums, in turn."""
    first, second = TILES - 2, TILES - 1
    zeros = "\n".join(f"  call void @llvm.x86.tilezero(i8 {tile})" for tile in range(first))
    sums = "\n".join(
        f"  call void @{symbol}(i8 {number % first}, i8 {first}, i8 {second})" for number in range(count)
    )
    row_bytes = TILE_ROWS * WORD_BYTES
    return f"""
{ALLOW_IR}
@tiles = {configuration_ir([(TILE_ROWS, row_bytes)] * TILES)}
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @{symbol}(i8, i8, i8)
define void @multiply_adds(ptr %p, i64 %steps) {{
entry:
  call void {ALLOW}()
  call void @llvm.x86.ldtilecfg(ptr @tiles)
{zeros}
  call void @llvm.x86.tileloadd64(i8 {first}, ptr %p, i64 0)
  call void @llvm.x86.tileloadd64(i8 {second}, ptr %p, i64 0)
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
{sums}
  %next = add i64 %n, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %exit
exit:
  call void @llvm.x86.tilestored64(i8 {first}, ptr %p, i64 0)
  call void @llvm.x86.tilerelease()
  ret void
}}
"""


def _cycles_ir(offset: int) -> str:
    """LLVM IR of `void cycles(ptr operands, i64 steps)`: `CYCLES` operations per step, one after the other.

    `offset` [bytes] is where an integer lies among the operands.
    """
    # An exclusive or and a sum in turn, which are never made one.
    chain = "\n".join(f"  %x{i + 1} = {'add' if i % 2 else 'xor'} i64 %x{i}, %k" for i in range(CYCLES))
    return f"""
define void @cycles(ptr %p, i64 %steps) {{
entry:
  %q = getelementptr i8, ptr %p, i64 {offset}
  %k = load volatile i64, ptr %q, align 4
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x0 = phi i64 [ %k, %entry ], [ %x{CYCLES}, %loop ]
{chain}
  %next = add i64 %n, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %exit
exit:
  store volatile i64 %x{CYCLES}, ptr %p, align 4
  ret void
}}
"""
