"""What the tests of code generation share: run emitted IR on arrays, without the runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from ansor.codegen.compile import compile_ir
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.ir.nest import LoopNest
from ansor.runtime.jit import LoadedCode, load_object

PLAIN = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"
AVX2 = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"
AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4"
RUNTIME = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
define void @ansor_parallel_for(ptr %body, ptr %data, i32 %most) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  call void %body(ptr %data, i32 %i, i32 3)
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, 3
  br i1 %more, label %loop, label %done
done:
  ret void
}
define ptr @ansor_alloc(i64 %n) {
  %m = add i64 %n, 63
  %r = and i64 %m, -64
  %p = call ptr @aligned_alloc(i64 64, i64 %r)
  ret ptr %p
}
define void @ansor_free(ptr %p) {
  call void @free(ptr %p)
  ret void
}
"""

RUNTIME_FUNCTIONS = ("ansor_parallel_for", "ansor_alloc", "ansor_free")
_keep: list[LoadedCode] = []


@cache
def _runtime(machine: Machine) -> LoadedCode:
    return load_object(compile_ir(RUNTIME, machine), RUNTIME_FUNCTIONS)


def load(text: str, name: str, machine: Machine, sroa: bool = True) -> int:
    """The address of a function of the IR, which stays loaded."""
    runtime = _runtime(machine)
    imports = {function: runtime[function] for function in RUNTIME_FUNCTIONS}
    code = load_object(compile_ir(text, machine, sroa), (name,), imports)
    _keep.append(code)
    return code[name]


def run(
    nest: LoopNest, *arrays: np.ndarray, sizes: Sequence[int] = (), machine: Machine | None = None
) -> str:
    """Emit, compile and call `nest` on the arrays; gives the IR."""
    machine = machine or Machine.host()
    text = emit_llvm(nest, machine)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays), *[ctypes.c_int64] * len(sizes))(
        load(text, nest.name, machine)
    )
    function(*(array.ctypes.data for array in arrays), *sizes)
    return text
