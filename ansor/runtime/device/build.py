"""From a loop nest in kernel form to a package, and to a module that runs it on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ansor.codegen.c.compile import checked_arch
from ansor.codegen.c.dialect import CUDA, OPENCL
from ansor.codegen.c.launches import launches, scratch_shapes
from ansor.codegen.c.program import split_kernels
from ansor.codegen.c.source import emit_c
from ansor.depth import with_depth
from ansor.errors import BuildError
from ansor.ir.shared_memory import shared_bytes
from ansor.runtime.device.hardware import arch_of, hardware_params
from ansor.runtime.device.module import DeviceModule
from ansor.runtime.device.package import DevicePackage, Scratch
from ansor.runtime.names import symbol_of
from ansor.runtime.signature import Signature
from ansor.task.device import runs_on
from ansor.task.limits import KernelCount, Limits
from ansor.task.target import Target

if TYPE_CHECKING:
    from ansor.ir.nest import LoopNest
    from ansor.task.hardware import HardwareParams


def build_device(nest: LoopNest, target: Target, name: str) -> DeviceModule:
    """Build a module for a device; it is compiled when it is loaded, at the first call.

    Raises
    ------
    BuildError
        If the name cannot be used, there is no code for something in the nest, or a kernel breaks a limit.
    TargetError
        If the target names an architecture that there cannot be.
    """
    package = package_nest(nest, target, name)
    check_limits(package, hardware_params(target))
    return DeviceModule(package, nest)


def package_nest(nest: LoopNest, target: Target, name: str) -> DevicePackage:
    """Write the source of a nest in kernel form, and how it is launched.

    Raises
    ------
    BuildError
        As `build_device`, but for limits.
    """
    symbol, arch = symbol_of(name), arch_of(target)
    if target.kind == "cuda":
        checked_arch(arch)
    signature = Signature.of_nest(nest, name=name, symbol=symbol, triple=target.kind, cpu=arch)
    program = with_depth(lambda: split_kernels(nest, symbol))
    source = emit_c(program, CUDA if target.kind == "cuda" else OPENCL)
    return DevicePackage(
        target.kind,
        signature,
        source,
        tuple(launches(program, signature)),
        tuple(shared_bytes(kernel.body) for kernel in program.kernels),
        tuple(Scratch(dtype, shape) for dtype, shape in scratch_shapes(program, signature)),
        arch,
    )


def check_limits(package: DevicePackage, hardware: HardwareParams) -> None:
    """Refuse a program that breaks a limit of the hardware it is for.

    Grids that depend on symbolic sizes are checked when the program is launched.

    Raises
    ------
    BuildError
        With the kernel, the limit, and what to do.
    """
    limits = Limits.of_hardware(hardware, package.kind)
    for launch, shared in zip(package.launches, package.shared_bytes, strict=True):
        x, y, z = (extent if isinstance(extent, int) else 1 for extent in launch.grid)
        broken = limits.broken_by(KernelCount((x, y, z), launch.block, shared))
        if broken:
            raise BuildError(f"{launch.kernel} breaks a limit of the target: it {'; it '.join(broken)}")


def compiled(package: DevicePackage, arch: str | None = None) -> DevicePackage:
    """Compile a package for CUDA, if it is one and has no binary that serves.

    Parameters
    ----------
    arch
        The device's architecture; default: the package's. What is for a variant of it ("sm_90a") stays so.

    Raises
    ------
    BuildError
        If there is no compiler, or it refuses the source.
    """
    if package.kind != "cuda":
        return package
    if package.binary is not None and (arch is None or runs_on(package.arch, arch)):
        return package
    from ansor.codegen.c.compile import compile_cubin

    wanted = package.arch if arch is None or package.arch.rstrip("af") == arch else arch
    return replace(package, binary=compile_cubin(package.source, wanted), arch=wanted)
