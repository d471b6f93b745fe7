"""Small functions that are compiled for a CPU: the assembly of each tells what the CPU has for it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import llvmlite.binding as llvm

from ansor.codegen.target_machines import listening, new_target_machine
from ansor.errors import BuildError, TargetError

_PROBE = """
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
declare <16 x float> @llvm.masked.gather.v16f32.v16p0(<16 x ptr>, i32, <16 x i1>, <16 x float>)
declare <16 x i8> @llvm.masked.load.v16i8.p0(ptr, i32, <16 x i1>, <16 x i8>)
declare void @llvm.masked.store.v4i8.p0(<4 x i8>, ptr, i32, <4 x i1>)
declare float @llvm.fma.f32(float, float, float)
declare <16 x float> @llvm.ldexp.v16f32.v16i32(<16 x float>, <16 x i32>)
define void @arith(ptr %a) {
  %x = load <16 x float>, ptr %a, align 4
  %y = fadd <16 x float> %x, %x
  store <16 x float> %y, ptr %a, align 4
  ret void
}
define float @fma(float %a, float %b, float %c) {
  %d = call float @llvm.fma.f32(float %a, float %b, float %c)
  ret float %d
}
define <16 x float> @scale(<16 x float> %a, <16 x i32> %n) {
  %x = call <16 x float> @llvm.ldexp.v16f32.v16i32(<16 x float> %a, <16 x i32> %n)
  ret <16 x float> %x
}
define <8 x double> @long_convert(<8 x i64> %a) {
  %x = sitofp <8 x i64> %a to <8 x double>
  ret <8 x double> %x
}
define void @mask(ptr %a, <16 x i32> %i) {
  %m = icmp slt <16 x i32> %i, splat (i32 7)
  %x = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %a, i32 4, <16 x i1> %m, <16 x float> poison)
  store <16 x float> %x, ptr %a, align 4
  ret void
}
define <16 x i8> @byte_mask(ptr %a, <16 x i32> %i) {
  %m = icmp slt <16 x i32> %i, splat (i32 7)
  %x = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %a, i32 1, <16 x i1> %m, <16 x i8> poison)
  ret <16 x i8> %x
}
define void @gather(ptr %a, <16 x i64> %i) {
  %p = getelementptr float, ptr %a, <16 x i64> %i
  %x = call <16 x float> @llvm.masked.gather.v16f32.v16p0(
      <16 x ptr> %p, i32 4, <16 x i1> splat (i1 true), <16 x float> poison)
  store <16 x float> %x, ptr %a, align 4
  ret void
}
define void @half_convert(ptr %a, ptr %b) {
  %x = load half, ptr %a
  %y = fpext half %x to float
  store float %y, ptr %b
  ret void
}
define void @half_add(ptr %a) {
  %x = load half, ptr %a
  %y = fadd half %x, %x
  store half %y, ptr %a
  ret void
}
define void @lane_store(ptr %a, <4 x i32> %x) {
  %y = trunc <4 x i32> %x to <4 x i8>
  call void @llvm.masked.store.v4i8.p0(
      <4 x i8> %y, ptr %a, i32 1, <4 x i1> <i1 false, i1 true, i1 false, i1 false>)
  ret void
}
"""

_X86_PROBE = """
define <16 x bfloat> @bfloat_convert(<16 x float> %a) {
  %x = fptrunc <16 x float> %a to <16 x bfloat>
  ret <16 x bfloat> %x
}
"""
"""For x86 alone: LLVM ends the process where an architecture has no way to do it."""

_PRODUCTS = {"dot_mixed": ("zext", "sext"), "dot_signed": ("sext", "sext"), "dot_unsigned": ("zext", "zext")}
"""Probes for dot products of bytes, and how their operands are widened."""


def is_x86(triple: str) -> bool:
    """Whether a triple is of that architecture."""
    return triple.startswith(("x86_64", "i386", "i686"))


def _probe_text(x86: bool) -> str:
    """The probe functions, among them sums of products of bytes: LLVM knows if one instruction does them."""
    parts = [_PROBE, _X86_PROBE if x86 else "", "declare i32 @llvm.vector.reduce.add.v64i32(<64 x i32>)"]
    for name, (first, second) in _PRODUCTS.items():
        parts.append(f"""
define i32 @{name}(<64 x i8> %a, <64 x i8> %b) {{
  %x = {first} <64 x i8> %a to <64 x i32>
  %y = {second} <64 x i8> %b to <64 x i32>
  %z = mul nsw <64 x i32> %x, %y
  %r = call i32 @llvm.vector.reduce.add.v64i32(<64 x i32> %z)
  ret i32 %r
}}""")
    return "\n".join(parts)


def compiled_probes(triple: str, cpu: str, features: str) -> tuple[str, dict[str, str]]:
    """The data layout of a machine, and its assembly of each probe function.

    Raises
    ------
    TargetError
        If LLVM does not know the triple or the CPU.
    BuildError
        If it is too old for the probes.
    """
    try:
        module = llvm.parse_assembly(_probe_text(is_x86(triple)), llvm.create_context())
    except RuntimeError as error:  # not a fault of the machine: the LLVM under us is too old for the text
        raise BuildError(f"llvmlite {llvm.llvm_version_info} cannot read current LLVM IR: {error}") from None
    with listening() as complaints:
        tm = new_target_machine(triple, cpu, features)
    if complaints:  # going on, LLVM may end the process
        raise TargetError(
            f"a target for {triple} with -mcpu={cpu}: LLVM {llvm.llvm_version_info[0]} says "
            f"{complaints[0]}; use a name that `llc -mcpu=help` lists"
        )
    module.triple, data_layout = triple, str(tm.target_data)
    module.data_layout = data_layout
    return data_layout, _functions(str(tm.emit_assembly(module)))


def dot_products(text: Mapping[str, str]) -> dict[str, bool]:
    """Which instructions of tensor intrinsics the machine has, from the assembly of the probes.

    The conversion to bfloat16 tells of the products of bfloat16, which come with its 512-bit form.
    """
    convert = text["bfloat_convert"]
    return {
        "vpdpbusd": "vpdpbusd" in text["dot_mixed"],
        "vdpbf16ps": "vcvtneps2bf16" in convert and "zmm" in convert,
        "sdot": bool(re.search(r"\bsdot\b", text["dot_signed"])),
        "udot": bool(re.search(r"\budot\b", text["dot_unsigned"])),
    }


def _functions(assembly: str) -> dict[str, str]:
    """The assembly of each probe function, by name."""
    names = (*re.findall(r"^define .*@(\w+)\(", _PROBE + _X86_PROBE, re.MULTILINE), *_PRODUCTS)
    parts: dict[str, list[str]] = {name: [] for name in names}
    current: list[str] = []
    for line in assembly.splitlines():
        label = line.split(":")[0].lstrip("_") if ":" in line else ""
        current = parts.get(label, current)
        current.append(line)
    return {name: "\n".join(lines) for name, lines in parts.items()}
