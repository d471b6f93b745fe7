"""The thread pool that parallel loops run on, as LLVM IR text for any triple with addresses of 64 bits.

It is IR and not Python or C so that one text serves three places without any other tool: it is compiled and
loaded into the running process, linked into saved objects and exported libraries, and cross-compiled. The
functions it defines:

- `void ansor_parallel_for(ptr body, ptr data, i32 most)` runs `body(data, i, n)` for all pieces `i` of
  `0..n-1`, on the calling thread and the workers, and returns when all are done. n is a multiple of the
  number of threads in force, and no more than `most` unless that number is.
- `void ansor_parallel_for_limited(ptr body, ptr data, i32 most, i32 limit)`: the same on at most `limit`
  threads (0: no limit).
- `void ansor_set_num_threads(i32)`, `i32 ansor_get_num_threads()`: the caller counts as one of the threads.
- `i64 ansor_nanoseconds_alone()`: for how long threads have run pieces of shares whose own had not come by
  then, tiny ones left out; 0 where there are no futexes.
- `ptr ansor_alloc(i64)` (64-byte aligned; the process is aborted when there is no memory), `void
  ansor_free(ptr)`: see `pool_memory`.

How a region runs
-----------------
Each thread has a share of the pieces, consecutive ones, and all shares are equal. The launcher writes body
and data, then publishes one 64-bit word: region number (low half), number of shares and of pieces in each.
Workers spin on that word for a bounded while (soon yielding the core to others at every turn), then sleep on
it. Each share has a claim: the number of the last region it was touched in, and how many of its pieces were
taken there, by its worker and by others. Whoever advances it, by compare-and-swap, runs a piece. Numbers
that wrap around compare over half their range, so claims of shares that the last region did not have are
brought up to date beforehand. Worker i begins with share i, at its front, so data stays in the same core's
cache from one region to the next. Who has done all of his share takes *pieces that nobody has claimed yet*
of the others', from the back: a core that is slower for a while, as its other thread or another process has
it, delays the region by a piece or so, and not by its whole lag. Where shares are of one piece, only the
launcher does so: a worker that the system has not scheduled delays nothing, and a tiny region is over
before a worker wakes. One whose share a region does not have, since the number of threads was lowered,
sleeps until a region has more shares than the one before, and costs the others nothing. Last, the launcher
waits for the claimed pieces, spinning for a while and then asleep, so that its own core is free for a process
that has taken a worker's.

Who else may call
-----------------
A lock is taken by compare-and-swap, never waited for. Who finds it taken runs its region serially, on its own
thread, as piece 0 of 1: that is the rule for a region inside a region and for two callers at a time alike.

- **fork**: an at-fork handler resets the pool in the child, whose next region starts its own workers; a
  region that another thread had under way is none of the child's.
- **exit**: parked workers are no obstacle. In a shared library a destructor stops and joins them, so that
  it can be unloaded. The pool of a running Python process is never unloaded.
- **stacks**: workers have 1 MiB at least, where systems give threads less (musl 128 KiB).
- **signals**: workers block the asynchronous ones, so handlers run on the application's threads.
- **cores**: workers that sleep must not wake on the launcher's core. Where the system takes idle cores for
  occupied, as in virtual machines that tell it of time stolen from them, it would leave two threads on one
  core for up to 30 ms. So on Linux the launcher, before it wakes them, takes the core that it is on from
  those that they may run on, and gives back the one that it took from elsewhere. A worker that may run
  nowhere else stays there, and of many workers none is told anything.

Systems: Linux (x86-64, aarch64, riscv64; glibc or musl) sleeps on futexes. Other POSIX systems have no
portable equivalent; there an idle worker naps for a millisecond at a time, which costs latency only, as
unclaimed shares are run by the launcher. Elsewhere (Windows) regions run serially.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from string import Template
from typing import Final

from ansor.codegen.machine import Machine
from ansor.knobs import MAX_THREADS
from ansor.runtime import pool_core, pool_memory, pool_system

POLITE_AFTER: Final = 2_000
"""Turns of spinning that are a pause (20 to 100 us together, by CPU); later ones yield the core."""

WORKER_SPIN: Final = 10_000
"""Turns a worker spins before it sleeps: about 2 ms."""

LAUNCHER_SPIN: Final = 4_000
"""Turns the launcher spins for claimed pieces before it sleeps: about 0.5 ms."""

MOST_PIECES: Final = 32
"""Pieces that a share has at most. To take one costs 10 to 20 ns."""

UNNOTICED_NS: Final = 2_000
"""A share that takes less than this [ns] may well be over before the worker that it is for has noticed."""

CROWDED_SPIN: Final = 64
"""Both, when there are more threads than cores: whoever spins there keeps others from working."""

MOST_KEPT_OFF: Final = 16
"""Workers that are kept off the launcher's core, at most: of more, one that shares it does little harm."""

LEAST_STACK: Final = 1 << 20
"""Bytes of stack that workers have at least: kernels keep small scratch memory there, 128 KiB and more."""

LARGE: Final = 4 << 20
"""Bytes of scratch memory from which on it is kept between calls (`pool_memory`)."""

MOST_IDLE: Final = 256 << 20
"""Bytes of such memory that are kept while no kernel uses them, at most."""

MOST_BLOCKS: Final = 64
"""Blocks of it, at most, those in use included."""


class Waiting(StrEnum):
    """How threads sleep: on a futex, in short naps, or not at all because regions run serially."""

    FUTEX = "futex"
    NAP = "nap"
    SERIAL = "serial"


class AtFork(StrEnum):
    """The C function that registers the at-fork handler; glibc exports only its internal one to dlsym."""

    POSIX = "pthread_atfork"
    GLIBC = "__register_atfork"


def default_waiting(triple: str) -> Waiting:
    """Choose the best way to wait that the system of an LLVM triple has."""
    if "windows" in triple or "wasm" in triple or "none" in triple.split("-")[1:]:
        return Waiting.SERIAL
    known = triple.startswith(("x86_64", "aarch64", "riscv64"))
    return Waiting.FUTEX if "linux" in triple and known else Waiting.NAP


def pool_ir(
    triple: str,
    *,
    waiting: Waiting | None = None,
    at_fork: AtFork = AtFork.POSIX,
    embedded: bool = False,
    worker_spin: int = WORKER_SPIN,
) -> str:
    """Write the pool for an LLVM triple.

    Parameters
    ----------
    triple
        Decides system calls, the pause instruction and, unless given, `waiting`.
    at_fork
        Which registration function to call.
    embedded
        For a kernel's object file: everything is weak and hidden, so that objects that are linked together
        share one pool and two libraries in one process have a pool each; a destructor stops the workers; the
        code runs on any CPU of the triple, as the pool of another kernel's object may be the one that stays.
        Names carry a digest of the code, so that objects of two versions of ansor keep their own.
    worker_spin
        Turns an idle worker spins before it sleeps.
    """
    chosen = waiting or default_waiting(triple)
    linkage = {
        "vis": "weak_odr hidden" if embedded else "",
        "own": "weak_odr hidden" if embedded else "internal",
    }
    memory = _memory(triple, linkage)
    if chosen is Waiting.SERIAL:
        text = Template(pool_system.SERIAL).substitute(linkage) + memory
        return _for_any_cpu(text, triple) if embedded else text
    pause_declaration, pause = _pause(triple)
    linux = "linux" in triple
    sleep = pool_system.FUTEX if chosen is Waiting.FUTEX else pool_system.NAP
    cores = pool_system.AFFINITY if linux else pool_system.ONLINE
    hook_arguments = "ptr null, ptr null, ptr @pool.after_fork"
    if at_fork is AtFork.GLIBC:
        hook_arguments += ", ptr null"
    apart = linux and chosen is Waiting.FUTEX and "android" not in triple
    places = pool_system.APART if apart else pool_system.ANYWHERE
    text = pool_core.COMMON + pool_core.WORKER + pool_core.LAUNCH + pool_system.START + cores + places + sleep
    if embedded:
        text += pool_system.SHUTDOWN
    text = memory + Template(text).substitute(
        linkage,
        max_threads=MAX_THREADS,
        worker_spin=worker_spin,
        most_pieces=MOST_PIECES,
        unnoticed=UNNOTICED_NS,
        polite_after=POLITE_AFTER,
        launcher_spin=LAUNCHER_SPIN,
        crowded_spin=min(CROWDED_SPIN, worker_spin),
        least_stack=LEAST_STACK,
        most_kept_off=MOST_KEPT_OFF,
        pause=pause,
        pause_declaration=pause_declaration,
        futex=202 if triple.startswith("x86_64") else 98,
        hook=at_fork.value,
        hook_types=", ".join(["ptr"] * (4 if at_fork is AtFork.GLIBC else 3)),
        hook_arguments=hook_arguments,
        online=84 if linux else 58,
        set_mask=2 if linux else 3,
        synchronous_only=_async_signals(linux),
    )
    return _for_any_cpu(text, triple) if embedded else text


def pool_functions() -> frozenset[str]:
    """Names of the functions that a pool defines, and of those of C that it calls, on any system."""
    parts = (
        *(pool_core.COMMON, pool_core.WORKER, pool_core.LAUNCH, pool_system.START, pool_system.AFFINITY),
        *(pool_system.ONLINE, pool_system.APART, pool_system.FUTEX, pool_system.NAP, pool_system.SHUTDOWN),
        *(pool_memory.POSIX_MEMORY, pool_memory.LARGE_PAGES_DECLARATION, pool_memory.WINDOWS_MEMORY),
    )
    return frozenset(re.findall(r"@([A-Za-z_]\w*)\(", "".join(parts))) | set(AtFork)


def _memory(triple: str, linkage: Mapping[str, str]) -> str:
    """Write the functions for scratch memory."""
    if "windows" in triple:
        return Template(pool_memory.WINDOWS_MEMORY).substitute(linkage)
    linux = "linux" in triple
    return Template(pool_memory.POSIX_MEMORY).substitute(
        linkage,
        large=LARGE,
        most_idle=MOST_IDLE >> 21,
        most_blocks=MOST_BLOCKS,
        cold=pool_memory.COLD,
        large_pages=pool_memory.LARGE_PAGES if linux else "",
        large_pages_declaration=pool_memory.LARGE_PAGES_DECLARATION if linux else "",
    )


def _for_any_cpu(text: str, triple: str) -> str:
    """Give private names a digest of the code, and functions the CPU that every machine of the triple is."""
    machine = Machine.of(triple, "generic")
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    if triple.startswith(("x86_64", "aarch64", "arm64")):  # elsewhere the features are part of the ABI
        attributes = f'"target-cpu"="{machine.cpu}" "target-features"="{machine.features}"'
        text = re.sub(r"^(define .*) {$", rf"\1 {attributes} {{", text, flags=re.MULTILINE)
    return text.replace("@pool.", f"@ansor.pool.{digest}.")


def _pause(triple: str) -> tuple[str, str]:
    """Declare and call what a spinning thread executes to leave its core's other thread some room."""
    if triple.startswith("x86_64"):
        return "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"
    if triple.startswith(("aarch64", "arm64")):
        # `yield` does nothing on most cores; an instruction barrier takes about as long as x86's pause.
        return "declare void @llvm.aarch64.isb(i32)", "call void @llvm.aarch64.isb(i32 15)"
    return "", ""


def _async_signals(linux: bool) -> int:
    """Mask of the first 64 signals without those that a thread raises by its own fault."""
    faults = (4, 5, 6, 7, 8, 11) if linux else (4, 5, 6, 8, 10, 11)
    return -1 - sum(1 << (number - 1) for number in faults)
