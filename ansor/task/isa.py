"""What a target's instructions are: architecture, vectors, their registers, multiply-adds per cycle.

The vector width of this machine comes from the CPU features that LLVM sees. That of another one (a cross
target) comes from the CPU's name, and where that says nothing from the architecture. No system tells how many
multiply-adds start in a cycle, or which of a CPU's instructions are slow: where a CPU's name tells, that is a
table, so that it is the same in every run; of others it is not known here, and
`ansor.runtime.multiply_adds` measures this machine's multiply-adds.
"""

from __future__ import annotations

import platform
import re
from functools import cache
from typing import Final

from ansor.task.target import Target

_GPU_VECTOR_BYTES: Final = 16
"""Of what a thread loads or stores at once."""

_AVX512_CPUS = re.compile(
    r"skylake-avx512|cascadelake|cooperlake|cannonlake|icelake|tigerlake|rocketlake|sapphirerapids|emeraldrapids"
    r"|graniterapids|diamondrapids|novalake|skx|knl|knm|znver[4-9]|x86-64-v4"
)
_AVX_CPUS = re.compile(
    r"haswell|broadwell|skylake|core-avx|sandybridge|ivybridge|alderlake|raptorlake|meteorlake|arrowlake|lunarlake"
    r"|pantherlake|wildcatlake|gracemont|sierraforest|grandridge|clearwaterforest|corei7-avx|bdver|btver2|znver"
    r"|x86-64-v3"
)

_X86: Final = frozenset(("x86_64", "i386", "i686"))
_AVX_NEEDS: Final = frozenset(("sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "avx"))
"""Features without which there are vectors of 16 bytes only."""
_AVX512_NEEDS: Final = frozenset(("avx2", "fma", "f16c", "avx512f"))
"""Features without which there are none of 64 bytes."""

_ONE_FULL_WIDTH_FMA = re.compile(
    r"znver4|icelake-client|tigerlake|rocketlake|cannonlake|znver1|bdver|btver2|sandybridge|ivybridge"
)
"""CPUs that start one multiply-add of their widest vectors per cycle, or two operations that are as much.

Source: the vendors' optimization guides; https://uops.info.
"""
_HALF_AS_WIDE = re.compile(r"znver4|icelake-client|tigerlake|rocketlake|cannonlake")
"""Of these the ones that start two of half that width."""
_TWO_FMAS = re.compile(
    r"haswell|broadwell|skylake|cascadelake|cooperlake|icelake-server|sapphirerapids|emeraldrapids|graniterapids"
    r"|alderlake|raptorlake|meteorlake|arrowlake|lunarlake|knl|knm|znver[235]|neoverse-n[12]"
)
"""CPUs that start two."""
_BY_MODEL = re.compile(r"skylake-avx512|cascadelake")
"""Of these the ones of which some models start one of 64 bytes, others two; no name tells."""

_MATRIX_UNITS = re.compile(r"sapphirerapids|emeraldrapids|graniterapids|diamondrapids")
_FIRST_MATRIX_UNIT: Final = "sapphirerapids"
_SLOW_ON = {"vdpbf16ps": re.compile(r"sapphirerapids|emeraldrapids|graniterapids")}
"""CPUs that start an instruction so seldom that as many products of float32 take less time, by instruction.

Measured on emeraldrapids, which starts one of 64 bytes every other cycle, and two multiply-adds of float32 in
each: half as many products. That the others are alike is taken from their cores, which are nearly the same;
their matrix units are to do such products.
"""


def is_host(target: Target) -> bool:
    """Whether code for the target can run in this process, as far as the triple's architecture tells."""
    return target.mtriple is None or architecture(target) == _machine()


def architecture(target: Target) -> str:
    """Return the triple's first word, "x86_64", "aarch64", ..., in one spelling (default: the host's)."""
    return architecture_of(target.mtriple)


def architecture_of(triple: str | None) -> str:
    """Architecture of an LLVM triple, or of its first word; without one, this machine's."""
    return _normal(triple.partition("-")[0]) if triple else _machine()


def _machine() -> str:
    return _normal(platform.machine())


def _normal(name: str) -> str:
    lowered = name.lower()
    return {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}.get(lowered, lowered)


def vector_bytes(target: Target) -> int:
    """Width in bytes of the widest vector register that code for the target may use."""
    if target.is_gpu:
        return _GPU_VECTOR_BYTES
    if architecture(target) not in _X86:
        return 16
    width = _x86_bytes_by_name(target.mcpu) if target.mcpu or not is_host(target) else host_vector_bytes()
    for feature in target.mattr:
        name, on = feature[1:], feature[0] == "+"
        if on and name.startswith(("avx512", "avx10")):
            width = 64
        elif on and name.startswith(("avx", "fma", "f16c", "xop", "vaes")):
            width = max(width, 32)
        elif not on and name in _AVX_NEEDS:
            width = 16
        elif not on and name in _AVX512_NEEDS:
            width = min(width, 32)
    return width


def vector_registers(target: Target) -> int:
    """How many vector registers code for the target may use."""
    return 16 if architecture(target) in _X86 and vector_bytes(target) < 64 else 32


def cpu_name(target: Target) -> str:
    """The CPU that a target names, this machine's if it names none; empty if another machine's is unknown."""
    if target.mcpu and target.mcpu != "native":
        return target.mcpu
    return host_cpu_name() if is_host(target) else ""


@cache
def host_cpu_name() -> str:
    """The name that LLVM gives this machine's CPU, or that of one which has its instructions.

    LLVM goes by a CPU's model number, which some virtual machines replace by that of an older one.
    """
    import llvmlite.binding as llvm

    name = str(llvm.get_host_cpu_name())
    if llvm.get_host_cpu_features().get("amx-tile") and not has_matrix_unit(name):
        return _FIRST_MATRIX_UNIT
    return name


def fma_ports(cpu: str, vector_bytes: int) -> int:
    """Multiply-adds of vectors of so many bytes that a CPU, by LLVM's name for it, starts in one cycle.

    0 if the name does not tell.
    """
    if _BY_MODEL.search(cpu) and vector_bytes >= 64:
        return 0
    if _ONE_FULL_WIDTH_FMA.search(cpu):
        return 2 if _HALF_AS_WIDE.search(cpu) and vector_bytes < 64 else 1
    return 2 if _TWO_FMAS.search(cpu) else 0


def has_matrix_unit(cpu: str) -> bool:
    """Whether a CPU, by LLVM's name for it, multiplies tiles of bfloat16 and of bytes (AMX)."""
    return _MATRIX_UNITS.search(cpu) is not None


def is_slow(cpu: str, instruction: str) -> bool:
    """Whether a CPU, by LLVM's name for it, multiplies float32 sooner than by a tensor instruction it has."""
    slow_on = _SLOW_ON.get(instruction)
    return slow_on is not None and slow_on.search(cpu) is not None


def _x86_bytes_by_name(cpu: str | None) -> int:
    if cpu == "native":
        return host_vector_bytes()
    if cpu and _AVX512_CPUS.search(cpu):
        return 64
    return 32 if cpu and _AVX_CPUS.search(cpu) else 16


@cache
def host_vector_bytes() -> int:
    """Vector width in bytes of this machine's CPU, from the features that LLVM detects."""
    if _machine() not in _X86:
        return 16
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    return 32 if features.get("avx") else 16
