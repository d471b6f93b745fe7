"""LLVM's own target machines, and what it complains of as it makes one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

import llvmlite.binding as llvm

from ansor.errors import TargetError
from ansor.locks import fork_safe_lock, hold_across_forks

if _calls := getattr(llvm.ffi.lib, "_lock", None):  # llvmlite's, of all calls of LLVM
    hold_across_forks(_calls._lock)
_LISTENING: Final = fork_safe_lock()
"""Held while standard error is a file: another thread that did the same would take that for the true one."""


@cache
def initialize_llvm() -> None:
    """Register LLVM's code generators and printers, once per process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


def new_target_machine(triple: str, cpu: str, features: str) -> Any:
    """LLVM's own target machine: position-independent code at level 3, default code model.

    Raises
    ------
    TargetError
        If LLVM has no code generator for the triple.
    """
    initialize_llvm()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise TargetError(f"LLVM knows no target for the triple {triple!r}: {error}") from None
    return target.create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default")


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect LLVM's complaints, of which it tells standard error alone; what others write there, they get.

    That comes a moment later, and not from processes that are started meanwhile.
    """
    with _LISTENING, _diverted() as complaints:
        yield complaints


@contextmanager
def _diverted() -> Iterator[list[str]]:
    complaints: list[str] = []
    try:
        saved = os.dup(2)
    except OSError:  # the process has none
        yield complaints
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield complaints
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines = file.readlines()
            of_llvm = [line for line in lines if b"is not a recognized" in line]
            complaints += [line.decode(errors="replace").strip() for line in of_llvm]
            with suppress(OSError), open(2, "wb", closefd=False) as true:
                true.writelines(line for line in lines if line not in of_llvm)
