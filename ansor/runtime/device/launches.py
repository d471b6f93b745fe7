"""From the kernels of a loop nest to a package: their source, and all that a caller needs to launch them."""

from __future__ import annotations

from ansor.codegen.c.launches import launches, scratch_shapes
from ansor.codegen.c.program import DeviceProgram
from ansor.ir.shared_memory import shared_bytes
from ansor.runtime.device.package import DevicePackage, Scratch
from ansor.runtime.signature import Signature


def make_package(
    program: DeviceProgram, kind: str, signature: Signature, source: str, arch: str
) -> DevicePackage:
    """Put a device program together.

    Raises
    ------
    BuildError
        If a grid or a scratch buffer depends on more than the sizes.
    """
    return DevicePackage(
        kind,
        signature,
        source,
        tuple(launches(program, signature)),
        tuple(shared_bytes(kernel.body) for kernel in program.kernels),
        tuple(Scratch(dtype, shape) for dtype, shape in scratch_shapes(program, signature)),
        arch,
    )
