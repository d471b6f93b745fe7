"""What workers do: compile a program, compute a reference, and check and time a program.

These functions are called by name in worker processes (`measure.worker`), with values and byte strings as
arguments. They may fail in any way: every way out, including a crash, is an answer to the caller.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import ceil, inf
from typing import Any, Final

import numpy as np

from ansor.runtime.jit import LoadedCode, load_object
from ansor.runtime.pool import kernel_imports, set_num_threads
from ansor.runtime.timing import compiled_timer, time_calls
from measure.arguments import ArgumentSet, ArgumentSpec

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


class _LastArguments:
    """The argument memory of the task measured last; programs of one task follow each other."""

    def __init__(self) -> None:
        self._key: Any = None
        self._set: ArgumentSet | None = None

    def get(self, specs: Sequence[Mapping[str, Any]]) -> ArgumentSet:
        key = [dict(spec) for spec in specs]
        if self._set is None or key != self._key:
            self._set = None  # Release the old memory first.
            self._set = ArgumentSet([ArgumentSpec.from_json(spec) for spec in specs])
            self._key = key
        return self._set


_arguments: Final = _LastArguments()


def _continued(timed: Callable[[int], float], first: float) -> Callable[[int], float]:
    """Let the checked call count as the untimed one that every timing begins with."""
    calls = iter((first,))

    def rest(number: int) -> float:
        return next(calls, None) or timed(number)

    return rest


def _calls_worth_timing(number: int, min_repeat_ms: float, first: float) -> int:
    """Calls per repeat: as many as asked for, but a slow program needs no more than fill `min_repeat_ms`."""
    if min_repeat_ms <= 0 or first <= 0:
        return number
    return max(1, min(number, ceil(min_repeat_ms / (1e3 * first))))


def measure_program(
    object_bytes: bytes,
    entry: str,
    specs: Sequence[Mapping[str, Any]],
    timing: Mapping[str, Any],
    threads: int | None = None,
    limit: int | None = None,
) -> list[float]:
    """Check a program, time it, check it again; return the mean seconds per call of each repeat.

    The loaded code, the memory and the number of threads are the same throughout. The second check sees what
    shows only now and then, such as two threads that write the same place.

    Parameters
    ----------
    specs
        The arguments (`ArgumentSpec.to_json`).
    timing
        `number`, `repeat`, `min_repeat_ms` of `ansor.runtime.timing.time_calls`, and `flush`: whether caches
        are emptied before each repeat. A program of which fewer than `number` calls take `min_repeat_ms` is
        called only that often; one that takes longer than `longest_call` seconds is not called again, and
        its first call is the result.

    Raises
    ------
    WrongAnswerError
        If the program computes something else, changes an input or writes outside its arguments.
    BuildError
        If the object cannot be loaded.
    """
    arguments = _arguments.get(specs)
    code = _load(object_bytes, entry, threads, limit)
    arguments.prepare()
    timed = compiled_timer(code[entry], arguments.addresses, ())
    first = timed(1)
    arguments.verify()
    if first > timing.get("longest_call", inf):
        return [first]
    flush: Callable[[], None] | None = _flush_caches if timing["flush"] else None
    result = time_calls(
        _continued(timed, first),
        number=_calls_worth_timing(timing["number"], timing["min_repeat_ms"], first),
        repeat=timing["repeat"],
        min_repeat_ms=timing["min_repeat_ms"],
        before_repeat=flush,
    )
    arguments.verify()
    return list(result.results)
