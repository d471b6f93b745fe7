"""`lower` and `build`: from a schedule to a loop nest, and to a callable module.

schedule or state -> loop nest -> LLVM IR -> object code -> `Module`
schedule or state -> loop nest in kernel form -> C -> `DeviceModule` (see `ansor.runtime.device.build`)

Every step is a function of its own and can be called alone; the search does so, because it lowers in one
process and compiles in others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Union, overload

from ansor.codegen.compile import compile_ir
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.depth import with_depth
from ansor.errors import BuildError, TargetError
from ansor.ir.nest import LoopNest
from ansor.runtime.device.door import KINDS
from ansor.runtime.module import Module, Source
from ansor.runtime.names import DEFAULT_NAME, symbol_of
from ansor.runtime.signature import Signature
from ansor.task.target import Target

if TYPE_CHECKING:
    from ansor.runtime.device.module import DeviceModule
    from ansor.schedule.manual import Schedule
    from ansor.schedule.state import State
    from ansor.te.tensor import Tensor

Program = Union["Schedule", "State", LoopNest]


def lower(
    sch: Schedule | State,
    args: Sequence[Tensor] | None = None,
    name: str = DEFAULT_NAME,
    simple_mode: bool = False,
    target: Target | str | None = None,
) -> LoopNest:
    """Lower a schedule to the loop nest that `build` would compile for the same target.

    Parameters
    ----------
    sch
        A schedule or a state.
    args
        The tensors that the function takes, in order; default: the graph's.
    name
        The function's name.
    simple_mode
        Show the loops as the schedule says them: no vectors, unrolling or registers that it does not ask for.
    target
        What to lower for; this machine if not given. Vector widths and register tiles depend on it. For a GPU
        the nest is one of kernels: `blockIdx` and `threadIdx` loops around what each thread does.

    Raises
    ------
    ScheduleError
        If the schedule has holes or computes a stage where a consumer cannot see it.
    DefinitionError
        If an input or output of the graph is missing from `args`.
    """
    from ansor.schedule import lowering

    resolved = Target("llvm" if target is None else target)
    limits = Machine.for_target(resolved).register_limits if resolved.kind in ("llvm", "c") else None
    return with_depth(
        lambda: lowering.lower(
            sch,
            args,
            name=name,
            simple_mode=simple_mode,
            limits=limits,
            kernels=resolved.is_gpu,
            shuffles=resolved.kind == "cuda",
        )
    )


@overload
def build(
    sch: Program, args: Sequence[Tensor] | None = None, target: None = None, name: str = DEFAULT_NAME
) -> Module: ...
@overload
def build(
    sch: Program,
    args: Sequence[Tensor] | None = None,
    *,
    target: Literal["llvm"],
    name: str = DEFAULT_NAME,
) -> Module: ...
@overload
def build(
    sch: Program,
    args: Sequence[Tensor] | None = None,
    target: Target | str | None = None,
    name: str = DEFAULT_NAME,
) -> Module | DeviceModule: ...


def build(
    sch: Program,
    args: Sequence[Tensor] | None = None,
    target: Target | str | None = None,
    name: str = DEFAULT_NAME,
) -> Module | DeviceModule:
    """Compile a program.

    Parameters
    ----------
    sch
        A schedule, a state, or an already lowered loop nest.
    args
        The tensors that the function takes, in order; not needed for a loop nest.
    target
        An "llvm" or "c" target, this machine if not given; or "opencl" or "cuda", which give a
        `DeviceModule`. That is compiled when it is first called, so that its source can be seen where there
        is no device.
    name
        The function's name, a C identifier that neither C nor compiled code has another use for. "main" (the
        default) stands for the nest's own name if it has one; the C symbol of a function called "main" is
        `ansor_main`, as a C program has a main of its own.

    Raises
    ------
    BuildError
        If the name cannot be used or the code cannot be compiled, or a kernel breaks a limit of the device.
    DefinitionError, ScheduleError
        As of `lower`.
    TargetError
        If the target is unknown, or no code is generated for its kind or for machines whose addresses are as
        wide.
    """
    resolved = Target("llvm" if target is None else target)
    machine = None if resolved.kind in KINDS else Machine.for_target(resolved)
    if machine is not None and machine.pointer_bits != 64:
        raise TargetError(
            f"the target `{resolved}`: addresses of {machine.triple} have {machine.pointer_bits} bits, and "
            "code is generated for machines where they have 64; use a triple such as x86_64-linux-gnu"
        )
    if isinstance(sch, LoopNest):
        nest = sch
        name = nest.name if name == DEFAULT_NAME else name
    else:
        if args is None:
            raise BuildError("building a schedule needs its arguments: build(schedule, [A, B, C])")
        nest = lower(sch, args, name=name, target=resolved)
    if machine is None:
        from ansor.runtime.device.build import build_device

        return build_device(nest, resolved, name)
    symbol = symbol_of(name)
    signature = Signature.of_nest(
        nest,
        name=name,
        symbol=symbol,
        triple=machine.triple,
        cpu=machine.cpu,
        threads=resolved.num_cores,
        features=machine.features,
    )
    text = emit_llvm(nest, machine, symbol)
    return compile_module(signature, text, machine, nest)


def compile_module(signature: Signature, text: str, machine: Machine, nest: LoopNest | None = None) -> Module:
    """Compile LLVM IR that defines `signature.symbol` into a module that can be called and saved."""
    object_bytes = compile_ir(text + signature.metadata_ir(), machine)
    return Module(signature, object_bytes=object_bytes, source=Source(nest, text, machine))
