"""What code is generated for: `Machine`, the CPU as the emitter and the compiler see it.

A `Machine` is a triple, a CPU name and features, as LLVM understands them, plus what the emitter decides by:
how wide a vector register is, how many there are, whether fused multiply-add, masked memory, gathers and
16-bit floats are native. LLVM knows which features a CPU name implies but does not tell, so these facts are
not looked up in a table of names: a small probe function is compiled for the CPU and its assembly is read.
That is right for every name and every `-mattr`, and costs a few milliseconds once per machine.

A machine is plain data: it goes to a builder process as JSON (`to_json`, `from_json`).
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import llvmlite.binding as llvm

from ansor.errors import BuildError, TargetError
from ansor.intrinsics.matrix import MATRIX_TILES
from ansor.ir.passes.register_tile import RegisterLimits
from ansor.locks import fork_safe_lock, hold_across_forks
from ansor.task.isa import has_matrix_unit

if TYPE_CHECKING:
    from ansor.intrinsics import TensorIntrinsic
    from ansor.task.target import Target

if _calls := getattr(llvm.ffi.lib, "_lock", None):  # llvmlite's, of all calls of LLVM
    hold_across_forks(_calls._lock)
_LISTENING: Final = fork_safe_lock()
"""Held while standard error is a file: another thread that did the same would take that for the true one."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU to generate code for.

    `vector_bits` is the width of the widest vector register, `num_registers` how many there are. `has_fma`:
    multiply-add is one instruction; `has_masks`: loads and stores under a lane mask are, `has_byte_masks`: of
    elements below 32 bits, too; `has_gather`: so are loads from computed addresses; `has_f16_conversion`,
    `has_f16_arithmetic`: float16 is converted to float32, or computed with, by instructions; `has_scaling`:
    multiplying by powers of two is one, whatever the result; `has_range`: bounding magnitudes is one, of 512
    bits. `instructions` are those of tensor intrinsics (`ansor.intrinsics`) that it has.
    `widens_lane_stores`: LLVM makes of a masked store of narrowed integers, of which one lane is known to be
    set, a store of that lane before narrowing, which is wrong (LLVM 22 with AVX-512).
    """

    triple: str
    cpu: str
    features: str
    data_layout: str
    vector_bits: int
    num_registers: int
    has_fma: bool
    has_masks: bool
    has_gather: bool
    has_f16_conversion: bool
    has_f16_arithmetic: bool
    has_scaling: bool = False
    has_range: bool = False
    has_byte_masks: bool = False
    instructions: tuple[str, ...] = ()
    widens_lane_stores: bool = False

    @property
    def register_limits(self) -> RegisterLimits:
        """What lowering may use of the vector registers."""
        return RegisterLimits(self.vector_bits, self.num_registers, matrix_unit=self.matrix_unit)

    @property
    def matrix_unit(self) -> frozenset[str]:
        """The instructions of its matrix unit."""
        return frozenset(self.instructions).intersection(MATRIX_TILES.values())

    @classmethod
    def host(cls) -> Machine:
        """The machine this process runs on."""
        return cls.of(llvm.get_process_triple(), llvm.get_host_cpu_name(), _host_features())

    @classmethod
    def for_target(cls, target: Target | str | None = None) -> Machine:
        """The machine that an "llvm" target names; options it leaves out are this machine's.

        Without `-mcpu` the CPU is this machine's if the triple is of the same architecture, else "generic";
        for riscv64 that is rv64gc, which Linux distributions ask for, and `-mattr` says what differs.
        Asking LLVM takes milliseconds; the answer is kept.

        Raises
        ------
        TargetError
            If the target is not for CPUs, or LLVM does not know its triple or CPU.
        """
        if target is None:
            return cls.host()
        if isinstance(target, str):
            from ansor.task.target import Target as TargetClass

            target = TargetClass(target)
        return _machine_of(target)

    @staticmethod
    def of(triple: str, cpu: str, features: str = "") -> Machine:
        """The machine with this LLVM triple, CPU name and feature string (`+avx2,-fma`); cached."""
        return _probe(triple, cpu, features)

    def to_json(self) -> dict[str, Any]:
        """The fields, by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Machine:
        """The machine that `to_json` described."""
        return cls(**{**fields, "instructions": tuple(fields["instructions"])})

    def beyond(self, other: Machine) -> str:
        """What code for this machine may use and another one lacks, in words; empty if nothing is known.

        Whether it gathers tells nothing: LLVM leaves that alone on CPUs on which it is slow.
        """
        if self.vector_bits > other.vector_bits:
            return f"{self.cpu} has vectors of {self.vector_bits} bits, this CPU of {other.vector_bits}"
        lacking = [
            name.removeprefix("has_").replace("_", " ")
            for name in ("has_fma", "has_f16_conversion", "has_f16_arithmetic")
            if getattr(self, name) and not getattr(other, name)
        ]
        lacking += [name for name in self.instructions if name not in other.instructions]
        return f"{self.cpu} has instructions for {', '.join(lacking)}, this CPU has not" if lacking else ""

    def has_intrinsic(self, intrinsic: TensorIntrinsic) -> bool:
        """Whether it has the instruction, and registers of that width."""
        named = f"+{intrinsic.instruction}" in self.features.split(",")
        return (named or intrinsic.instruction in self.instructions) and intrinsic.bits <= self.vector_bits

    def has_tiles(self, intrinsic: TensorIntrinsic) -> bool:
        """Whether it has a matrix unit for the products of an intrinsic."""
        first, second = (operand.dtype for operand in intrinsic.operands)
        return MATRIX_TILES.get((first, second, intrinsic.dtype)) in self.instructions

    def masks(self, element_bytes: int) -> bool:
        """Whether loads and stores of such elements under a lane mask are instructions."""
        return self.has_masks and (element_bytes >= 4 or self.has_byte_masks)

    @property
    def arch(self) -> str:
        """The architecture as the triple spells it: "x86_64", "aarch64", ..."""
        return self.triple.split("-")[0]

    @property
    def pointer_bits(self) -> int:
        """How wide its addresses are."""
        found = re.search(r"(?:^|-)p0?:(\d+)", self.data_layout)
        return int(found[1]) if found else 64


@cache
def initialize_llvm() -> None:
    """Register LLVM's code generators and printers, once per process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


def new_target_machine(triple: str, cpu: str, features: str) -> Any:
    """LLVM's own target machine: position-independent code at level 3, default code model.

    Raises
    ------
    TargetError
        If LLVM has no code generator for the triple.
    """
    initialize_llvm()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise TargetError(f"LLVM knows no target for the triple {triple!r}: {error}") from None
    return target.create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default")


class _Own(threading.local):
    """What each thread has for itself."""

    def __init__(self) -> None:
        self.machines: dict[Machine, Any] = {}


_own: Final = _Own()


def target_machine(machine: Machine) -> Any:
    """The target machine of this thread to compile for `machine` with.

    It is kept, since what it finds out about the CPU as it first generates code takes one to three
    milliseconds; and each thread has its own, since LLVM lets one at a time use it.
    """
    known = _own.machines
    if machine not in known:
        known[machine] = new_target_machine(machine.triple, machine.cpu, machine.features)
    return known[machine]


_USUAL_FEATURES: Final = {"riscv64": "+m,+a,+f,+d,+c"}
"""What Linux distributions ask for, by architecture, where LLVM's "generic" CPU has less."""


@cache
def _host_features() -> str:
    return str(llvm.get_host_cpu_features().flatten())


@lru_cache(maxsize=64)
def _machine_of(target: Target) -> Machine:
    """See `Machine.for_target`."""
    if target.kind not in ("llvm", "c"):
        raise TargetError(
            f"the target `{target}` is not a CPU; there is code for the kinds llvm, c, opencl and cuda"
        )
    triple = target.mtriple or llvm.get_process_triple()
    extra = ",".join(target.mattr)
    if target.mcpu is not None and target.mcpu != "native":
        return Machine.of(triple, target.mcpu, extra)
    if triple.split("-")[0] == llvm.get_process_triple().split("-")[0]:
        features = ",".join(part for part in (_host_features(), extra) if part)
        return Machine.of(triple, llvm.get_host_cpu_name(), features)
    usual = _USUAL_FEATURES.get(triple.split("-")[0], "")
    return Machine.of(triple, "generic", ",".join(part for part in (usual, extra) if part))


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


def _is_x86(triple: str) -> bool:
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


@cache
def _probe(triple: str, cpu: str, features: str) -> Machine:
    x86 = _is_x86(triple)
    data_layout, text = _compiled_probes(triple, cpu, features)
    arm = triple.startswith(("aarch64", "arm64"))
    bits = 128
    if x86:
        bits = 512 if "zmm" in text["arith"] else 256 if "ymm" in text["arith"] else 128
    convert = text["half_convert"]
    return Machine(
        triple=triple,
        cpu=cpu,
        features=features,
        data_layout=data_layout,
        vector_bits=bits,
        num_registers=16 if x86 and bits < 512 else 32,
        has_fma="fmaf" not in text["fma"],
        has_masks=x86 and bits > 128 and ("maskmov" in text["mask"] or "%k" in text["mask"]),
        has_gather=x86 and "vgather" in text["gather"],
        has_f16_conversion="__" not in convert and (arm or "vcvtph2ps" in convert or "vcvtsh2ss" in convert),
        has_f16_arithmetic="vaddsh" in text["half_add"] or (arm and "fcvt" not in text["half_add"]),
        has_scaling="vscalef" in text["scale"],
        has_range=bits == 512 and "vcvtqq2pd" in text["long_convert"],  # they came together
        has_byte_masks=bits > 128 and "vmovdqu8" in text["byte_mask"],
        instructions=(
            *(name for name, known in _dot_products(text).items() if known),
            *_matrix_tiles(triple, cpu, features),
        ),
        widens_lane_stores=x86 and not re.search(r"\b(movb|v?pextrb)\b", text["lane_store"]),
    )


def _compiled_probes(triple: str, cpu: str, features: str) -> tuple[str, dict[str, str]]:
    """The data layout of a machine, and its assembly of each probe function."""
    try:
        module = llvm.parse_assembly(_probe_text(_is_x86(triple)), llvm.create_context())
    except RuntimeError as error:  # not a fault of the machine: the LLVM under us is too old for the text
        raise BuildError(f"llvmlite {llvm.llvm_version_info} cannot read current LLVM IR: {error}") from None
    with _listening() as complaints:
        tm = new_target_machine(triple, cpu, features)
    if complaints:  # going on, LLVM may end the process
        raise TargetError(
            f"a target for {triple} with -mcpu={cpu}: LLVM {llvm.llvm_version_info[0]} says "
            f"{complaints[0]}; use a name that `llc -mcpu=help` lists"
        )
    module.triple, data_layout = triple, str(tm.target_data)
    module.data_layout = data_layout
    return data_layout, _functions(str(tm.emit_assembly(module)))


def _dot_products(text: Mapping[str, str]) -> dict[str, bool]:
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


def _matrix_tiles(triple: str, cpu: str, features: str) -> tuple[str, ...]:
    """The instructions of the matrix unit that a machine has, where Linux lets processes use it.

    They cannot be probed, as LLVM ends the process over them where there are none.
    """
    if not triple.startswith("x86_64") or "linux" not in triple:
        return ()
    named = features.split(",")

    def has(feature: str) -> bool:
        return f"-{feature}" not in named and (f"+{feature}" in named or has_matrix_unit(cpu))

    dtypes = {"bfloat16": "amx-bf16", "int8": "amx-int8", "uint8": "amx-int8"}
    found = {one: dtypes[first] for (first, *_), one in MATRIX_TILES.items()}
    return tuple(one for one, feature in found.items() if has("amx-tile") and has(feature))


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect LLVM's complaints, of which it tells standard error alone; what others write there, they get.

    That comes a moment later, and not from processes that are started meanwhile.
    """
    with _LISTENING, _diverted() as complaints:
        yield complaints


@contextmanager
def _diverted() -> Iterator[list[str]]:
    complaints: list[str] = []
    try:
        saved = os.dup(2)
    except OSError:  # the process has none
        yield complaints
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield complaints
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines = file.readlines()
            of_llvm = [line for line in lines if b"is not a recognized" in line]
            complaints += [line.decode(errors="replace").strip() for line in of_llvm]
            with suppress(OSError), open(2, "wb", closefd=False) as true:
                true.writelines(line for line in lines if line not in of_llvm)


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
