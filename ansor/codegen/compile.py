"""From textual LLVM IR to object code or assembly.

The emitter already unrolls, vectorises and hoists, so the optimising mid-end of LLVM is left out: the only
pass is `sroa`, which turns register tiles (stack slots at constant offsets) into values, and runs only where
there are stack slots. Code generation is at level 3. Each module has its own LLVM context: calls share
nothing but LLVM's target machine, which each thread keeps. The pass is sometimes wrong (LLVM 22): of vectors
that are stored to a slot in another order than they lie in it, it puts a longer one together before it has
them all, and code generation aborts on that. Such modules keep their stack slots.

On x86, whose instructions add up an address of four parts by themselves, code generation leaves out LLVM's
loop strength reduction, too: offsets are computed outside the loops that they do not depend on as they are
written (`ansor.codegen.llvm.index`), and the pass takes up to three quarters of the time of compiling an
unrolled body for kernels that are as fast without it (`experiments.bench_compile`).

Some malformed IR makes LLVM abort the process instead of reporting: compile what is not trusted in a worker
process.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import llvmlite.binding as llvm

from ansor.codegen.machine import Machine, target_machine
from ansor.errors import BuildError
from ansor.locks import fork_safe_lock

_note: Final = logging.getLogger(__name__)
_LINES_AROUND: Final = 3
"""Lines that a message shows before and behind the one that LLVM names."""
_OPTIONS: Final = fork_safe_lock()
"""Held while options of LLVM are changed, which hold for the whole process."""


def compile_ir(
    text: str, machine: Machine, sroa: bool = True, runtime: str = "", strength_reduction: bool | None = None
) -> bytes:
    """Compile the module `text` for `machine` into a relocatable object file.

    Parameters
    ----------
    text
        Textual LLVM IR with opaque pointers.
    sroa
        Whether stack slots may be turned into values; false only to look at what that does.
    runtime
        Another module, whose definitions go into the same object file.
    strength_reduction
        Whether LLVM's loop strength reduction runs; None: only where the machine is no x86.

    Raises
    ------
    BuildError
        If LLVM refuses the text; the message shows the lines around the fault, numbered.
    """
    module, tm = _prepare(text, machine, sroa, runtime)
    with loop_reduction(machine, strength_reduction):
        return bytes(tm.emit_object(module))


def assembly(text: str, machine: Machine) -> str:
    """Give the assembly text of the module, as `compile_ir` would assemble it."""
    module, tm = _prepare(text, machine)
    with loop_reduction(machine):
        return str(tm.emit_assembly(module))


@contextmanager
def loop_reduction(machine: Machine, wanted: bool | None = None) -> Iterator[None]:
    """Let code generation have LLVM's loop strength reduction, or not; None: only where it is no x86.

    LLVM knows the choice as an option of the whole process only, so what other threads generate meanwhile
    is without, too.
    """
    if wanted or (wanted is None and not machine.triple.startswith("x86_64")):
        yield
        return
    with _OPTIONS:
        llvm.set_option("ansor", "-disable-lsr")
        try:
            yield
        finally:
            llvm.set_option("ansor", "-disable-lsr=false")


def _prepare(text: str, machine: Machine, sroa: bool = True, runtime: str = "") -> tuple[Any, Any]:
    context = llvm.create_context()
    tm = target_machine(machine)
    module = _parse(text, machine, tm, context)
    if runtime:
        module.link_in(_parse(runtime, machine, tm, context))
    if sroa and " = alloca " in text:
        builder = llvm.create_pass_builder(tm, llvm.create_pipeline_tuning_options(speed_level=0))
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.run(module, builder)
        try:
            module.verify()
        except RuntimeError as error:
            _note.info("stack slots stay, LLVM's sroa pass breaks the module: %s", str(error).splitlines()[0])
            return _prepare(text, machine, sroa=False, runtime=runtime)
    return module, tm


def _parse(text: str, machine: Machine, tm: Any, context: Any) -> Any:
    try:
        module = llvm.parse_assembly(text, context)
        module.verify()
    except RuntimeError as error:
        raise BuildError(f"LLVM refuses the generated code: {error}\n{_excerpt(text, str(error))}") from None
    module.triple = machine.triple
    module.data_layout = str(tm.target_data)
    return module


def _excerpt(text: str, message: str) -> str:
    """The lines around the one that the message names (`<string>:12:7: ...`), or the first ones."""
    lines = text.splitlines()
    found = re.search(r":(\d+):\d+:", message)
    center = int(found.group(1)) if found else 1
    first, last = max(1, center - _LINES_AROUND), min(len(lines), center + _LINES_AROUND)
    return "\n".join(
        f"{'>' if number == center else ' '} {number:5d} | {lines[number - 1]}"
        for number in range(first, last + 1)
    )
