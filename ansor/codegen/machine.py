"""What code is generated for: `Machine`, the CPU as the emitter and the compiler see it.

A `Machine` is a triple, a CPU name and features, as LLVM understands them, plus what the emitter decides by:
how wide a vector register is, how many there are, whether fused multiply-add, masked memory, gathers and
16-bit floats are native. LLVM knows which features a CPU name implies but does not tell, so these facts are
not looked up in a table of names: a small probe function is compiled for the CPU and its assembly is read.
That is right for every name and every `-mattr`, and costs a few milliseconds once per machine.

A machine is plain data: it goes to a builder process as JSON (`to_json`, `from_json`).
"""

from __future__ import annotations

import re
import threading
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import llvmlite.binding as llvm

from ansor.codegen.probes import compiled_probes, dot_products, is_x86
from ansor.codegen.target_machines import new_target_machine
from ansor.errors import TargetError
from ansor.intrinsics.matrix import MATRIX_TILES
from ansor.ir.registers import RegisterLimits
from ansor.task.isa import has_matrix_unit, host_cpu_name

if TYPE_CHECKING:
    from ansor.intrinsics import TensorIntrinsic
    from ansor.task.target import Target


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
        return cls.of(llvm.get_process_triple(), host_cpu_name(), _host_features())

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
        return Machine.of(triple, host_cpu_name(), features)
    usual = _USUAL_FEATURES.get(triple.split("-")[0], "")
    return Machine.of(triple, "generic", ",".join(part for part in (usual, extra) if part))


@cache
def _probe(triple: str, cpu: str, features: str) -> Machine:
    x86 = is_x86(triple)
    data_layout, text = compiled_probes(triple, cpu, features)
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
            *(name for name, known in dot_products(text).items() if known),
            *_matrix_tiles(triple, cpu, features),
        ),
        widens_lane_stores=x86 and not re.search(r"\b(movb|v?pextrb)\b", text["lane_store"]),
    )


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
