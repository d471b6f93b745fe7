"""Loading object code into the running process, by LLVM's ORC.

The door to ORC: nothing else in the package touches it. One JIT engine serves the process. Each object file
becomes a library of its own, so that symbols of two kernels never meet; it is unloaded when its
`LoadedCode` is dropped.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import llvmlite.binding as llvm

from ansor.codegen.target_machines import initialize_llvm
from ansor.errors import BuildError
from ansor.locks import fork_safe_lock

_numbers: Final = itertools.count()
_lock: Final = fork_safe_lock()


class LoadedCode:
    """Machine code in memory: addresses of its functions by name, valid as long as this object lives."""

    __slots__ = ("_addresses", "_tracker")

    def __init__(self, tracker: Any, names: Sequence[str]) -> None:
        self._tracker = tracker
        self._addresses = {name: int(tracker[name]) for name in names}

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]

    def keep_forever(self) -> None:
        """Never unload it, not even when the interpreter exits: other threads may be inside."""
        self._tracker._owned = True


@cache
def _engine() -> Any:
    initialize_llvm()
    # The older linker gives each part of an object memory of its own, and ends the process where code cannot
    # reach what it uses from there. This one lays them side by side; it knows less of the objects of Windows.
    engine = llvm.create_lljit_compiler(use_jit_link=os.name == "posix")
    # Destroying the engine at exit would unmap code that worker threads are parked in.
    engine._owned = True
    return engine


def load_object(
    object_bytes: bytes, exports: Sequence[str], imports: Mapping[str, int] | None = None
) -> LoadedCode:
    """Link an object file into this process.

    Parameters
    ----------
    object_bytes
        A relocatable object for this machine; it may use the symbols of this process (libc, libm).
    exports
        Functions whose addresses are wanted.
    imports
        Addresses of symbols that the object uses and the process does not export.

    Raises
    ------
    BuildError
        If a symbol is missing, or the object is not for this machine.
    """
    builder = llvm.JITLibraryBuilder().add_object_img(object_bytes).add_current_process()
    for name, address in (imports or {}).items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    with _lock:
        engine = _engine()
        number = next(_numbers)
    try:
        tracker = builder.link(engine, f"ansor.{number}")
    except RuntimeError as error:
        raise BuildError(
            f"the object with {', '.join(exports)} cannot be loaded into this process: {error}"
        ) from None
    return LoadedCode(tracker, exports)
