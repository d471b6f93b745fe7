"""Kernels written by hand in LLVM IR, for tests of the runtime that need no code generator."""

from ansor.codegen.machine import Machine
from ansor.runtime.build import compile_module
from ansor.runtime.module import Module
from ansor.runtime.signature import Argument, Signature


def axpy_ir(symbol: str) -> str:
    """C[i] = 2 * A[i] + B[i] for i < n, in parallel shares."""
    return f"""
declare void @ansor_parallel_for(ptr, ptr, i32)
define internal void @{symbol}.body(ptr %d, i32 %t, i32 %k) {{
entry:
  %a = load ptr, ptr %d
  %pb = getelementptr i64, ptr %d, i64 1
  %b = load ptr, ptr %pb
  %pc = getelementptr i64, ptr %d, i64 2
  %c = load ptr, ptr %pc
  %pn = getelementptr i64, ptr %d, i64 3
  %n = load i64, ptr %pn
  %tw = zext i32 %t to i64
  %kw = zext i32 %k to i64
  %m0 = mul i64 %n, %tw
  %lo = sdiv i64 %m0, %kw
  %t1 = add i64 %tw, 1
  %m1 = mul i64 %n, %t1
  %hi = sdiv i64 %m1, %kw
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %j, %work ]
  %in = icmp slt i64 %i, %hi
  br i1 %in, label %work, label %done
work:
  %ai = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %ai, align 4
  %bi = getelementptr float, ptr %b, i64 %i
  %y = load float, ptr %bi, align 4
  %x2 = fmul float %x, 2.0
  %z = fadd float %x2, %y
  %ci = getelementptr float, ptr %c, i64 %i
  store float %z, ptr %ci, align 4
  %j = add i64 %i, 1
  br label %head
done:
  ret void
}}
define void @{symbol}(ptr %a, ptr %b, ptr %c, i64 %n) "stackrealign" {{
  %d = alloca [4 x i64], align 16
  store ptr %a, ptr %d
  %pb = getelementptr i64, ptr %d, i64 1
  store ptr %b, ptr %pb
  %pc = getelementptr i64, ptr %d, i64 2
  store ptr %c, ptr %pc
  %pn = getelementptr i64, ptr %d, i64 3
  store i64 %n, ptr %pn
  call void @ansor_parallel_for(ptr @{symbol}.body, ptr %d, i32 1)
  ret void
}}
"""


def axpy(name: str = "axpy", machine: Machine | None = None, threads: int | None = None) -> Module:
    """The kernel above as a module over arrays of symbolic length n."""
    machine = machine or Machine.host()
    arguments = (
        Argument("A", "float32", ("n",)),
        Argument("B", "float32", ("n",)),
        Argument("C", "float32", ("n",), output=True),
    )
    signature = Signature(name, name, arguments, ("n",), machine.triple, machine.cpu, threads)
    return compile_module(signature, axpy_ir(name), machine)


def scale(dtype: str, shape: tuple[int, ...], name: str = "scale") -> Module:
    """Copies the first element of X to the first of Y, whatever the shape: for checking arguments."""
    machine = Machine.host()
    kind = {
        "float32": "float",
        "float64": "double",
        "float16": "half",
        "bfloat16": "bfloat",
        "bool": "i8",
    }.get(dtype, f"i{dtype.removeprefix('u').removeprefix('int')}")
    text = f"""
define void @{name}(ptr %x, ptr %y) {{
  %v = load {kind}, ptr %x
  store {kind} %v, ptr %y
  ret void
}}
"""
    arguments = (Argument("X", dtype, shape), Argument("Y", dtype, shape, output=True))
    return compile_module(Signature(name, name, arguments, (), machine.triple, machine.cpu), text, machine)
