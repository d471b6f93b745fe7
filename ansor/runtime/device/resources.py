"""What the kernels of a CUDA program take of a multiprocessor, as their compiler tells it, without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ansor.codegen.c.compile import Resources, compile_cuda
from ansor.codegen.c.cuda_compilers import CudaCompiler
from ansor.codegen.c.dialect import CUDA
from ansor.errors import BuildError, DefinitionError
from ansor.runtime.device.package import DevicePackage
from ansor.task.device import DeviceModel
from ansor.task.target import Target


@dataclass(frozen=True, slots=True)
class KernelResources:
    """
    What one kernel takes.

    Attributes
    ----------
    kernel, arch
        Its name, and what it was compiled for ("sm_90").
    threads
        Of a block.
    registers
        Of a thread, 32 bits each.
    shared_bytes
        Shared memory of a block.
    asked_bytes
        Of these, what its launches ask for; it declares the others.
    stack_bytes
        Memory of a thread for arrays that are no registers, and for what is spilled.
    spill_store_bytes, spill_load_bytes
        What a thread moves to memory and back for want of registers; 0 is what one wants to see.
    blocks
        How many blocks a multiprocessor of that architecture holds at a time.
    occupancy
        The share of its threads that these are, 0 to 1.
    """

    kernel: str
    arch: str
    threads: int
    registers: int
    shared_bytes: int
    asked_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    blocks: int
    occupancy: float

    @property
    def declared_bytes(self) -> int:
        """Shared memory of a block that the kernel declares."""
        return self.shared_bytes - self.asked_bytes

    @property
    def spilled_bytes(self) -> int:
        """What a thread moves for want of registers, both ways."""
        return self.spill_store_bytes + self.spill_load_bytes

    def __str__(self) -> str:
        return (
            f"{self.kernel} for {self.arch}: {self.threads} threads, {self.registers} registers, "
            f"{self.declared_bytes} + {self.asked_bytes} bytes shared, {self.stack_bytes} stack, "
            f"{self.spill_store_bytes} + {self.spill_load_bytes} spilled, {self.blocks} blocks at a time, "
            f"occupancy {self.occupancy:.0%}"
        )


def resources_of(
    package: DevicePackage, arch: str | None = None, compiler: CudaCompiler | None = None
) -> tuple[KernelResources, ...]:
    """
    Compile a program and tell what its kernels take, in the order in which they are launched.

    Parameters
    ----------
    package
        A program for CUDA.
    arch
        What to compile it for; default: what it is for.
    compiler
        Default: the one that is installed.

    Raises
    ------
    DefinitionError
        If it is for OpenCL, whose drivers do not tell.
    BuildError
        If there is no compiler, or it refuses the source or does not tell.
    """
    name = package.signature.name
    if package.kind != "cuda":
        raise DefinitionError(
            f"{name} is a program for {package.kind}, whose compilers do not tell what kernels take; "
            "build it for 'cuda', which needs no GPU"
        )
    wanted = arch or package.arch
    found = {one.kernel: one for one in compile_cuda(package.source, wanted, compiler).resources}
    device = DeviceModel.for_target(Target(f"cuda -arch={wanted}"))
    missing = [launch.kernel for launch in package.launches if launch.kernel not in found]
    if missing:
        raise BuildError(f"the compiler does not tell what {', '.join(missing)} of {name} takes")
    return tuple(
        _of_kernel(found[launch.kernel], wanted, prod(launch.block), CUDA.asked_bytes(shared), device)
        for launch, shared in zip(package.launches, package.shared_bytes, strict=True)
    )


def _of_kernel(said: Resources, arch: str, threads: int, asked: int, device: DeviceModel) -> KernelResources:
    """What a kernel takes whose launches ask for so many bytes of shared memory."""
    shared = said.shared_bytes + asked
    blocks = int(device.resident_blocks(threads, said.registers, shared))
    return KernelResources(
        said.kernel,
        arch,
        threads,
        said.registers,
        shared,
        asked,
        said.stack_bytes,
        said.spill_store_bytes,
        said.spill_load_bytes,
        blocks,
        min(1.0, blocks * threads / device.threads),
    )
