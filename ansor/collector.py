"""Work that makes many small objects, while the collector of cycles does not look through all of them.

What a round of a search allocates is freed by reference counts for the most part, and what lowering and
writing a program does; what is in cycles (nodes of index arithmetic that know each other) is little, and
waits for the end of the block. To look for it takes an eighth of the time of writing a large program.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """
    Keep Python's collector of cycles from running inside the block.

    If it was off already it stays off; blocks may be nested.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
