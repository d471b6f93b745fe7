"""`build`: from a schedule to a callable module, in one call.

schedule or state -> loop nest -> LLVM IR -> object code -> `Module`. Every step is a function of its own
and can be called alone; the search does so, because it lowers in one process and compiles in others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Union

from ansor.codegen.compile import compile_ir
from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.errors import BuildError
from ansor.ir.nest import LoopNest
from ansor.runtime.module import Module, Source
from ansor.runtime.signature import Signature
from ansor.task.target import Target

if TYPE_CHECKING:
    from ansor.schedule.manual import Schedule
    from ansor.schedule.state import State
    from ansor.te.tensor import Tensor

DEFAULT_NAME: Final = "main"

Program = Union["Schedule", "State", LoopNest]


def build(
    sch: Program,
    args: Sequence[Tensor] | None = None,
    target: Target | str | None = None,
    name: str = DEFAULT_NAME,
) -> Module:
    """Compile a program.

    Parameters
    ----------
    sch
        A schedule, a state, or an already lowered loop nest.
    args
        The tensors that the function takes, in order; not needed for a loop nest.
    target
        An "llvm" target; this machine if not given.
    name
        The function's name, a C identifier. "main" (the default) stands for the nest's own name if it has
        one; the C symbol of a function called "main" is `ansor_main`, as a C program has a main of its own.

    Raises
    ------
    BuildError
        If the name cannot be used or the code cannot be compiled.
    TargetError
        If the target is unknown or no CPU.
    """
    resolved = Target(target or "llvm")
    machine = Machine.for_target(resolved)
    if isinstance(sch, LoopNest):
        nest = sch
        name = nest.name if name == DEFAULT_NAME else name
    else:
        from ansor.schedule.lowering import lower

        if args is None:
            raise BuildError("building a schedule needs its arguments: build(schedule, [A, B, C])")
        nest = lower(sch, args, name=name, limits=machine.register_limits)
    symbol = symbol_of(name)
    signature = Signature.of_nest(
        nest,
        name=name,
        symbol=symbol,
        triple=machine.triple,
        cpu=machine.cpu,
        threads=resolved.num_cores,
    )
    text = emit_llvm(nest, machine, symbol)
    return compile_module(signature, text, machine, nest)


def compile_module(signature: Signature, text: str, machine: Machine, nest: LoopNest | None = None) -> Module:
    """Compile LLVM IR that defines `signature.symbol` into a module that can be called and saved."""
    object_bytes = compile_ir(text + signature.metadata_ir(), machine)
    return Module(signature, object_bytes=object_bytes, source=Source(nest, text, machine))


def symbol_of(name: str) -> str:
    """Give the C symbol of a function.

    Raises
    ------
    BuildError
        If the name is no C identifier.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BuildError(f"the name {name!r} is no C identifier; use letters, digits and underscores")
    return "ansor_main" if name == DEFAULT_NAME else name
