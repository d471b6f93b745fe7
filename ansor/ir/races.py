"""A race detector for loops whose iterations are declared to be independent.

Two iterations race if they touch one element, at least one of them writing, of a buffer that was there
before the loop. For each declared loop and each buffer the detector remembers, per element, the last
iteration that wrote it and the one that read it (or that there were several), as tickets: numbers that are
never used twice, so that nothing needs clearing when a loop is entered again. Iterations of the same loop
entered from different lanes have different tickets, too.

The threads of a block also share the buffers of scope "shared" that are allocated inside of their loops. At a
barrier they get new tickets: what they did before is no race with what they do after it. What they copy
without waiting (`ansor.ir.copies`) nobody may touch before a barrier that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ansor.errors import RunError
from ansor.ir.copies import is_copy
from ansor.ir.kernel_form import THREAD_KINDS
from ansor.ir.lanes import LANES, Array, BlockSlots, Env, Storage
from ansor.ir.nest import Alloc, Buffer, For, Stmt, Store, walk_statements
from ansor.ir.printer import format_item
from ansor.te.expr import Expr

Watch = Callable[[Env, Storage, Array], None]
"""Called with the positions, one per lane, that an access touches."""


class LoopWatch:
    """One declared loop: gives tickets to its iterations.

    Slot `slot` of an environment holds the lanes' tickets; those of the present run come after `_begin`. A
    loop over threads, with the slots of its `block`, adds to both what its block is `_late` since its last
    barrier.
    """

    def __init__(self, detector: RaceDetector, loop: For, slot: int, block: BlockSlots | None) -> None:
        allocated = (s.buffer for s in walk_statements(loop.body) if isinstance(s, Alloc))
        threads = loop.kind in THREAD_KINDS
        self.loop = loop
        self.private = {b for b in allocated if not (threads and b.scope == "shared")}
        self.block = block if threads else None
        self._slot = slot
        self._detector = detector
        self._begin = 0
        self._tickets = 0
        self._late: Array = np.zeros(0, np.int64)

    def start(self, env: Env, extent: int) -> Array:
        """Begin a run of the loop in all lanes; the tickets that precede each lane's iterations."""
        self._begin = self._detector.tickets
        self._tickets = env[LANES] * extent + 1
        self._detector.tickets += self._tickets
        if self.block is not None:
            blocks = env[self.block.blocks]
            self._late = np.zeros(env[LANES] if blocks is None else blocks.count, np.int64)
        return np.arange(env[LANES], dtype=np.int64) * extent + self._begin + 1

    def iteration(self, env: Env, first: Any, iteration: Any) -> None:
        """Give the lanes of `env` the tickets of their iteration; `first` is that of iteration 0."""
        env[self._slot] = first + iteration

    def meet(self, blocks: Array) -> None:
        """Give the threads of some blocks, by their numbers, new tickets."""
        self._late[blocks] = self._detector.tickets - self._begin
        self._detector.tickets += self._tickets

    def tickets(self, env: Env) -> tuple[Array, Any]:
        """The tickets of all lanes, and those after which their run began, or their last barrier was."""
        mine: Array = env[self._slot]
        if self.block is None:
            return mine, np.broadcast_to(self._begin, mine.shape)
        late = self._late[env[self.block.number]]
        return mine + late, self._begin + late


class RaceDetector:
    """Watches all declared loops of a nest; `enter` and `leave` follow the nesting while it is compiled."""

    def __init__(self) -> None:
        self.tickets = 1
        self._loops: list[LoopWatch] = []

    def enter(self, loop: For, slot: int, block: BlockSlots | None) -> LoopWatch:
        watch = LoopWatch(self, loop, slot, block)
        self._loops.append(watch)
        return watch

    def leave(self) -> None:
        self._loops.pop()

    def threads(self) -> list[LoopWatch]:
        """The loops over threads around this place of the nest."""
        return [watch for watch in self._loops if watch.loop.kind in THREAD_KINDS]

    def access(self, buffer: Buffer, at: Stmt | Expr, *, write: bool) -> Watch | None:
        """How to watch an access at this place of the nest; None where no loop around it minds."""
        loops = [watch for watch in self._loops if buffer not in watch.private]
        if not loops:
            return None
        block = next((watch.block for watch in loops if watch.block is not None), None)
        copies = isinstance(at, Store) and is_copy(at)

        def check(env: Env, storage: Storage, where: Array) -> None:
            for watch in loops:
                if _touch(watch, storage, where, env, write=write):
                    apart = " with no barrier between" if watch.loop.kind in THREAD_KINDS else ""
                    raise RunError(
                        f"two iterations of the {watch.loop.kind} loop over {watch.loop.var.name!r} touch "
                        f"one element of {buffer.name!r}{apart}, and one of them writes it, at "
                        f"`{format_item(at)}`"
                    )
            if block is not None and buffer.lead and _is_on_its_way(storage, where, env, block, copies):
                raise RunError(
                    f"an element of {buffer.name!r} is touched while a copy into it is on its way, with no "
                    f"barrier that waits for it between, at `{format_item(at)}`"
                )

        return check


def _is_on_its_way(storage: Storage, where: Array, env: Env, block: BlockSlots, copies: bool) -> bool:
    """Whether a copy into some element is not there for sure; `copies` begins one into each."""
    blocks, number = env[block.blocks], env[block.number]
    if storage.copied is None:
        storage.copied = np.zeros(storage.data.size, np.int64)
    late = storage.copied[where] > blocks.arrived[number]
    if copies:
        storage.copied[where] = blocks.ended[number] + 1
    return bool(late.any())


def _touch(watch: LoopWatch, storage: Storage, where: Array, env: Env, *, write: bool) -> bool:
    """Record an access; whether it races with an earlier one (or within itself)."""
    key = id(watch)
    if key not in storage.touched:
        size = storage.data.size
        storage.touched[key] = (np.zeros(size, np.int64), np.zeros(size, np.int64))
    writers, readers = storage.touched[key]
    tickets, begin = watch.tickets(env)
    last_writer, last_reader = writers[where], readers[where]
    clash = (last_writer >= begin) & (last_writer != tickets)
    others_read = (last_reader >= begin) & (last_reader != tickets)
    if write:
        writers[where] = tickets
        return bool((clash | others_read | (writers[where] != tickets)).any())
    readers[where] = tickets
    several = others_read | (readers[where] != tickets)
    readers[where[several]] = begin[several]  # a ticket of no iteration: it differs from all
    return bool(clash.any())
