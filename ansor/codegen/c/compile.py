"""CUDA C++ text to machine code, without a GPU.

A compiler (`ansor.codegen.c.cuda_compilers`) gives a cubin, machine code for one architecture that needs no
translation by the driver, and says what each kernel takes of a multiprocessor.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ansor.codegen.c.cuda_compilers import CudaCompiler, find_compiler, run_tool, tool_path
from ansor.errors import BuildError, TargetError

_ENTRY: Final = re.compile(r"Compiling entry function '([^']+)'")
_FRAME: Final = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS: Final = re.compile(r"Used (\d+) registers")
_SHARED: Final = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_REPORT: Final = re.compile(r"ptxas info|Function properties for|bytes stack frame")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes: registers of a thread, and bytes of shared memory, stack and spills."""

    kernel: str
    registers: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code, what each of its kernels takes, and what the compiler warned of (usually nothing)."""

    data: bytes
    resources: tuple[Resources, ...]
    warnings: str


def compile_cuda(text: str, arch: str, compiler: CudaCompiler | None = None) -> Cubin:
    """Compile kernels to machine code.

    Parameters
    ----------
    text
        CUDA C++, as `emit_c` writes it.
    arch
        The architecture, such as "sm_90".
    compiler
        Default: the one that `find_compiler` finds.

    Raises
    ------
    BuildError
        If no compiler is installed, or it refuses the text or the architecture.
    """
    data, log = (compiler or find_compiler()).compile(text, checked_arch(arch), "cubin")
    rest = [line for line in log.splitlines() if line.strip() and not _REPORT.search(line)]
    return Cubin(data, tuple(_resources(log)), "\n".join(rest))


def compile_cubin(text: str, arch: str, compiler: CudaCompiler | None = None) -> bytes:
    """Compile kernels to machine code, and nothing else; as `compile_cuda`."""
    return compile_cuda(text, arch, compiler).data


def compile_ptx(text: str, arch: str, compiler: CudaCompiler | None = None) -> str:
    """Translate kernels to PTX, the assembly language of no architecture in particular; as `compile_cuda`."""
    data, _ = (compiler or find_compiler()).compile(text, checked_arch(arch), "ptx")
    return data.decode().rstrip("\0")


def disassemble(cubin: bytes) -> str:
    """Disassemble machine code.

    Raises
    ------
    BuildError
        If no disassembler is installed, or it fails.
    """
    for tool, options in (("nvdisasm", ("-c",)), ("cuobjdump", ("-sass",))):
        path = tool_path(tool)
        if path is not None:
            with tempfile.TemporaryDirectory(prefix="ansor-") as folder:
                file = Path(folder) / "kernels.cubin"
                file.write_bytes(cubin)
                return run_tool([path, *options, str(file)], partial("{} fails".format, tool)).stdout
    raise BuildError(
        "disassembling GPU code needs nvdisasm or cuobjdump; install the wheel nvidia-cuda-nvdisasm "
        "or NVIDIA's CUDA toolkit"
    )


def checked_arch(arch: str) -> str:
    """Give back the name of an architecture.

    Raises
    ------
    TargetError
        If it is none.
    """
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise TargetError(f"{arch!r} is no CUDA architecture; use e.g. -arch=sm_80 or -arch=sm_90")
    return arch


def _resources(log: str) -> Iterator[Resources]:
    """The reports in a log, each a few lines after the name of its kernel."""
    for report in _reports(log):
        text = "\n".join(report)
        kernel, frame = _ENTRY.search(text), _FRAME.search(text)
        registers, shared = _REGISTERS.search(text), _SHARED.search(text)
        if kernel is not None and registers is not None:
            stack, stores, loads = map(int, frame.groups()) if frame is not None else (0, 0, 0)
            yield Resources(
                kernel.group(1),
                int(registers.group(1)),
                int(shared.group(1)) if shared is not None else 0,
                stack,
                stores,
                loads,
            )


def _reports(log: str) -> list[list[str]]:
    """The lines of each kernel's report."""
    found: list[list[str]] = []
    for line in log.splitlines():
        if _ENTRY.search(line):
            found.append([])
        if found:
            found[-1].append(line)
    return found
