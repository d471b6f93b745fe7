"""What workers do: compile a program, compute a reference, and check and time a program.

These functions are called by name in worker processes (`measure.worker`), with values and byte strings as
arguments. They may fail in any way: every way out, including a crash, is an answer to the caller.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from ansor.runtime.interference import waiting_clock
from ansor.runtime.jit import LoadedCode, load_object
from ansor.runtime.pool import kernel_imports, set_num_threads, threads_in_force
from ansor.runtime.timing import compiled_timer
from measure.arguments import ArgumentSet, ArgumentSpec
from measure.timing import time_program

_FLUSH_BYTES: Final = 32 << 20


def prepare_builder() -> None:
    """Get everything ready for `compile_program`; a builder's worker does so when it starts."""
    from ansor.codegen.machine import initialize_llvm

    initialize_llvm()


def prepare_runner() -> None:
    """Get everything ready for `measure_program`; a runner's worker does so when it starts."""
    kernel_imports()


def compile_program(text: str, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Compile LLVM IR for a machine (`Machine.to_json`) to ``{"object": bytes, "seconds": wall time}``."""
    from ansor.codegen.compile import compile_ir
    from ansor.codegen.machine import Machine

    start = time.perf_counter()
    object_bytes = compile_ir(text, Machine.from_json(dict(machine)))
    return {"object": object_bytes, "seconds": time.perf_counter() - start}


def _load(object_bytes: bytes, entry: str, threads: int | None, limit: int | None) -> LoadedCode:
    """Load a program and set its number of threads: `threads` of the process, at most `limit`."""
    if threads is not None:
        set_num_threads(threads)
    return load_object(object_bytes, (entry,), kernel_imports(limit))


def _call(address: int, arguments: Sequence[int]) -> None:
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arguments))(address)
    function(*arguments)


def compute_reference(
    object_bytes: bytes,
    entry: str,
    specs: Sequence[Mapping[str, Any]],
    threads: int | None = None,
    limit: int | None = None,
) -> float:
    """Run a program once on mapped files, writing its outputs to theirs; return its wall time in seconds."""
    arguments = [ArgumentSpec.from_json(spec) for spec in specs]
    arrays = [argument.map(writable=argument.output) for argument in arguments]
    code = _load(object_bytes, entry, threads, limit)
    start = time.perf_counter()
    _call(code[entry], [int(array.ctypes.data) for array in arrays])
    return time.perf_counter() - start


@cache
def _flush_memory() -> np.ndarray[Any, np.dtype[np.uint8]]:
    from ansor.task.hardware import host_caches

    return np.zeros(max(_FLUSH_BYTES, 2 * host_caches().get("l3_bytes", 0)), np.uint8)


def _flush_caches() -> None:
    """Evict everything from the caches by writing through more memory than they hold."""
    memory = _flush_memory()
    np.add(memory, 1, out=memory)


_arguments: Final = ArgumentSet()
"""The argument memory of the program measured last: those of one task follow each other."""


def measure_program(
    object_bytes: bytes,
    entry: str,
    specs: Sequence[Mapping[str, Any]],
    timing: Mapping[str, Any],
    threads: int | None = None,
    limit: int | None = None,
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
    """
    _arguments.take([ArgumentSpec.from_json(spec) for spec in specs])
    code = _load(object_bytes, entry, threads, limit)
    _arguments.prepare()
    timed = compiled_timer(code[entry], _arguments.addresses, ())
    first = timed(1)
    _arguments.verify()
    flush = _flush_caches if timing["flush"] else None
    result = time_program(timed, first, timing, flush, waiting_clock(threads_in_force(limit)))
    _arguments.verify()
    return {"costs": list(result.results), "disturbed": result.disturbed, "redone": result.redone}
