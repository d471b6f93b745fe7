"""This machine's CPU as a processor: object code in this process, arguments in guarded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from ansor.runtime.interference import watch_kernel
from ansor.runtime.jit import LoadedCode, load_object
from ansor.runtime.pool import kernel_imports, set_num_threads, threads_in_force
from ansor.runtime.timer import compiled_timer
from measure.workers.arena import GuardedArray
from measure.workers.arguments import ArgumentSet, ArgumentSpec

_FLUSH_BYTES: Final = 32 << 20


class CPUProcessor:
    """See `processor.Processor`; its settings are `threads` and `limit` of `load_program`."""

    def __init__(self) -> None:
        self._arguments = ArgumentSet(GuardedArray)

    def compile(self, text: str, machine: Mapping[str, Any]) -> bytes:
        from ansor.codegen.compile import compile_ir
        from ansor.codegen.machine import Machine

        return compile_ir(text, Machine.from_json(dict(machine)))

    def load(
        self, object_bytes: bytes, entry: str, specs: Sequence[ArgumentSpec], settings: Mapping[str, Any]
    ) -> CPUProgram:
        self._arguments.take(specs)
        limit = settings.get("limit")
        code = load_program(object_bytes, entry, settings.get("threads"), limit)
        return CPUProgram(code, entry, self._arguments, limit)


class CPUProgram:
    """See `processor.LoadedProgram`."""

    def __init__(
        self, code: LoadedCode, entry: str, arguments: ArgumentSet[GuardedArray], limit: int | None
    ) -> None:
        self._code = code  # Unloaded with its last reference.
        self._arguments = arguments
        self.timed = compiled_timer(code[entry], tuple(memory.address for memory in arguments.memories), ())
        self.flush = flush_caches
        self.watch = watch_kernel(threads_in_force(limit), in_pool=True)

    def prepare(self) -> None:
        self._arguments.prepare()

    def verify(self) -> None:
        self._arguments.verify()


def load_program(object_bytes: bytes, entry: str, threads: int | None, limit: int | None) -> LoadedCode:
    """Load a program and set its number of threads: `threads` of the process, at most `limit`."""
    if threads is not None:
        set_num_threads(threads)
    return load_object(object_bytes, (entry,), kernel_imports(limit))


@cache
def _flush_memory() -> np.ndarray[Any, np.dtype[np.uint8]]:
    from ansor.task.host import host_caches

    return np.zeros(max(_FLUSH_BYTES, 2 * host_caches().get("l3_bytes", 0)), np.uint8)


def flush_caches() -> None:
    """Evict everything from the caches by writing through more memory than they hold."""
    memory = _flush_memory()
    np.add(memory, 1, out=memory)
