"""What workers do: compile a program, compute a reference, and check and time a program.

These functions are called by name in worker processes (`worker`), with values and byte strings as
arguments. They may fail in any way: every way out, including a crash, is an answer to the caller.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from typing import Any

from measure.timing import time_program
from measure.workers.arguments import ArgumentSpec
from measure.workers.processor import CPU, processor


def prepare_builder() -> None:
    """Get everything ready for `compile_program`; a builder's worker does so when it starts."""
    from ansor.codegen.target_machines import initialize_llvm

    initialize_llvm()


def prepare_runner() -> None:
    """Get everything ready for programs of the CPU; a runner's worker does so when it starts."""
    from ansor.runtime.core_speed import core_speed
    from ansor.runtime.pool import get_num_threads, kernel_imports

    processor(CPU)
    kernel_imports()
    core_speed(get_num_threads())


def compile_program(text: str, machine: Mapping[str, Any], kind: str = CPU) -> dict[str, Any]:
    """Compile what `measure.emit.EmittedProgram` holds to ``{"object": bytes, "seconds": wall time}``."""
    start = time.perf_counter()
    object_bytes = processor(kind).compile(text, machine)
    return {"object": object_bytes, "seconds": time.perf_counter() - start}


def compute_reference(
    object_bytes: bytes,
    entry: str,
    specs: Sequence[Mapping[str, Any]],
    threads: int | None = None,
    limit: int | None = None,
) -> float:
    """Run a program of the CPU once on mapped files, writing its outputs to theirs; return its time [s]."""
    from measure.workers.cpu import load_program

    arguments = [ArgumentSpec.from_json(spec) for spec in specs]
    arrays = [argument.map(writable=argument.output) for argument in arguments]
    code = load_program(object_bytes, entry, threads, limit)
    addresses = [int(array.ctypes.data) for array in arrays]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(addresses))(code[entry])
    start = time.perf_counter()
    function(*addresses)
    return time.perf_counter() - start


def measure_program(
    object_bytes: bytes,
    entry: str,
    specs: Sequence[Mapping[str, Any]],
    timing: Mapping[str, Any],
    settings: Mapping[str, Any],
    kind: str = CPU,
) -> dict[str, Any]:
    """Check a program, time it, check it again.

    The loaded code, the memory and the number of threads are the same throughout. The second check sees what
    shows only now and then, such as two threads that write the same place.

    Parameters
    ----------
    specs
        The arguments (`ArgumentSpec.to_json`).
    timing
        Of `measure.timing.time_program`; and `flush`: whether caches are emptied before each repeat.
    settings
        Of the kind of processor.
    kind
        Which processor runs it.

    Returns
    -------
    dict
        `costs`: the mean seconds per call of each repeat; `disturbed`, `redone`: how many of them another
        load disturbed, and how many were done again for that.

    Raises
    ------
    WrongAnswerError
        If the program computes something else, changes an input or writes outside its arguments.
    BuildError
        If the object cannot be loaded.
    RunError
        If it fails on the device.
    """
    arguments = [ArgumentSpec.from_json(spec) for spec in specs]
    program = processor(kind).load(object_bytes, entry, arguments, settings)
    program.prepare()
    first, first_share = program.watch(program.timed, 1)
    program.verify()
    flush = program.flush if timing["flush"] else None
    result = time_program(program.timed, first, timing, flush, program.watch, first_share)
    program.verify()
    return {"costs": list(result.results), "disturbed": result.disturbed, "redone": result.redone}
