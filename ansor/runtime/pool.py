"""The process's thread pool, and the number of threads that kernels run on.

The pool is the IR of `ansor.runtime.pool_ir`, compiled and loaded once, at the first kernel that needs it.
All kernels loaded from object code share it. A shared library that was exported carries a pool of its own;
`set_num_threads` reaches those that were loaded by `ansor.load_module` too.

The number of threads is, in this order: what `ansor.set_num_threads(n)` said last; the environment variable
`ANSOR_NUM_THREADS`; the cores that this process may use (its affinity, limited by its control group's CPU
quota). A target's `-num-cores` is an upper limit for the kernels built for it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from ansor.checks import check_integer
from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.knobs import MAX_THREADS
from ansor.locks import fork_safe_lock
from ansor.runtime.jit import LoadedCode, load_object
from ansor.runtime.pool_ir import WORKER_SPIN, AtFork, Waiting, pool_ir
from ansor.task.host import choose_num_threads, default_num_threads

POOL_FUNCTIONS: Final = (
    "ansor_parallel_for",
    "ansor_parallel_for_limited",
    "ansor_set_num_threads",
    "ansor_get_num_threads",
    "ansor_nanoseconds_alone",
    "ansor_alloc",
    "ansor_free",
)
_lock: Final = fork_safe_lock()
_foreign_setters: Final[dict[int, Any]] = {}
"""Of the libraries that were loaded, by address: a library that is loaded again is the same one."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A loaded pool: the addresses of its functions, by name."""

    code: LoadedCode
    set_num_threads: Callable[[int], object]
    get_num_threads: Callable[[], int]
    nanoseconds_alone: Callable[[], int]

    @property
    def symbols(self) -> dict[str, int]:
        return {name: self.code[name] for name in POOL_FUNCTIONS}


def load_pool(*, waiting: Waiting | None = None, worker_spin: int = WORKER_SPIN) -> Pool:
    """Compile and load another pool; the process's own, with the defaults, is `process_pool()`."""
    machine = Machine.host()
    glibc = os.name == "posix" and hasattr(ctypes.CDLL(None), AtFork.GLIBC.value)
    at_fork = AtFork.GLIBC if glibc else AtFork.POSIX
    text = pool_ir(machine.triple, waiting=waiting, at_fork=at_fork, worker_spin=worker_spin)
    code = load_object(compile_ir(text, machine), POOL_FUNCTIONS)
    code.keep_forever()
    return Pool(
        code,
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(code["ansor_set_num_threads"]),
        ctypes.CFUNCTYPE(ctypes.c_int32)(code["ansor_get_num_threads"]),
        ctypes.CFUNCTYPE(ctypes.c_int64)(code["ansor_nanoseconds_alone"]),
    )


@cache
def _process_pool() -> Pool:
    pool = load_pool()
    pool.set_num_threads(default_num_threads())
    return pool


def process_pool() -> Pool:
    """Give the pool that kernels in this process share; it is loaded on first use."""
    with _lock:
        return _process_pool()


def limited_launch_ir(name: str, limit: int, linkage: str = "") -> str:
    """Write a function that does what `ansor_parallel_for` does, on at most `limit` threads."""
    return f"""
define {linkage} void @{name}(ptr %body, ptr %data, i32 %most) {{
  call void @ansor_parallel_for_limited(ptr %body, ptr %data, i32 %most, i32 {limit})
  ret void
}}
"""


@cache
def limited_launch(limit: int) -> LoadedCode:
    """Load an `ansor_parallel_for` that uses at most `limit` threads of the process's pool."""
    name = "ansor_parallel_for_limited"
    text = f"declare void @{name}(ptr, ptr, i32, i32)\n{limited_launch_ir('ansor_parallel_for', limit)}"
    imports = {name: process_pool().code[name]}
    return load_object(compile_ir(text, Machine.host()), ("ansor_parallel_for",), imports)


def kernel_imports(limit: int | None = None) -> dict[str, int]:
    """Addresses of what generated code calls, with launches limited to `limit` threads if given.

    They take the place of the weak definitions that a saved object has.
    """
    symbols = process_pool().symbols
    at_fork = getattr(ctypes.CDLL(None), AtFork.GLIBC.value, None) if os.name == "posix" else None
    if at_fork is not None:
        # Asked for by the pool in a saved object, which never runs here; glibc has it in a static library.
        symbols[AtFork.POSIX.value] = ctypes.cast(at_fork, ctypes.c_void_p).value or 0
    if limit is not None:
        symbols["ansor_parallel_for"] = limited_launch(limit)["ansor_parallel_for"]
    return symbols


def set_num_threads(count: int) -> None:
    """Set the number of threads that parallel loops run on from now on, the calling thread included.

    Raises
    ------
    DefinitionError
        If the number is not in ``1..1024``.
    """
    count = check_integer("the number of threads", count, low=1, high=MAX_THREADS)
    pool = process_pool()
    with _lock:
        choose_num_threads(count)
        pool.set_num_threads(count)
        for setter in _foreign_setters.values():
            setter(count)


def get_num_threads() -> int:
    """Tell the number of threads that parallel loops run on."""
    return process_pool().get_num_threads()


def seconds_alone() -> float:
    """Tell for how long callers have done the work of threads that had no core [s]."""
    return process_pool().nanoseconds_alone() * 1e-9


def threads_in_force(limit: int | None) -> int:
    """Tell the number of threads that a kernel runs on whose target has that limit; None: it has none."""
    count = get_num_threads()
    return count if limit is None else min(count, limit)


def adopt_library(setter: Any) -> None:
    """Make `set_num_threads` reach the pool of a loaded shared library, by its own setter (of ctypes)."""
    address = ctypes.cast(setter, ctypes.c_void_p).value
    assert address is not None
    pool = process_pool()
    with _lock:
        setter(pool.get_num_threads())
        _foreign_setters[address] = setter
