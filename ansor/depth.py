"""Room for deep programs: running a recursive function with more stack than Python gives by default.

A statement or an expression may be nested thousands deep: a value of 5000 additions, a chain of 1000
operations each inside the allocation of the one before. Much of the compiler follows that nesting by
recursion, which reads best, and Python stops recursion at about 1000 calls. So the few doors to the compiler
go through `with_depth`. It calls the function as it is, and only if that meets the limit calls it again in a
thread with a large stack and a limit to match; usual programs pay nothing.

This is the one place that touches the interpreter's recursion limit. The limit belongs to the whole process,
so it is raised only while somebody needs it, and is what it was when nobody does any more. Threads run one
at a time, each with the stack of its own limit.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from ansor.errors import LoweringError
from ansor.locks import fork_safe_lock

Result = TypeVar("Result")

LIMITS: Final = (50_000, 500_000)
"""Nested calls allowed in the second and the third attempt."""

STACK_PER_CALL: Final = 1 << 10
"""Bytes of C stack that one nested call may take; pages that are not used cost no memory."""

_one_thread: Final = fork_safe_lock()
_inside: Final = threading.local()
"""Has the attribute `thread` in such a thread."""

_limit_lock: Final = fork_safe_lock()
_limits: Final[list[int]] = []
"""The limits that are needed now, behind the usual one; empty if none is."""


def with_depth(function: Callable[[], Result]) -> Result:
    """Call `function`, whatever its depth; it is called again from the start if it meets the limit.

    Parameters
    ----------
    function
        Has no effects but its result. It may call `with_depth` itself: what meets the limit inside of it,
        where there is a large stack already, is called again with all of it.

    Raises
    ------
    LoweringError
        If even the largest stack is too small.
    """
    try:
        return function()
    except RecursionError:
        if hasattr(_inside, "thread"):
            raise
    for limit in LIMITS:
        try:
            return _in_thread(function, limit)
        except RecursionError:
            continue
    raise LoweringError(
        f"the program is nested more deeply than {LIMITS[-1]} calls can follow; "
        "give some of its parts a te.compute of their own that is not inlined"
    )


def _in_thread(function: Callable[[], Result], limit: int) -> Result:
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        _inside.thread = True
        try:
            results.append(function())
        except BaseException as error:  # handed to the caller
            errors.append(error)

    with _one_thread, nested_calls(limit):
        usual_stack = threading.stack_size(limit * STACK_PER_CALL)
        try:
            thread = threading.Thread(target=run, name="ansor-depth")
            thread.start()
        finally:
            threading.stack_size(usual_stack)
        thread.join()
    if errors:
        raise errors[0]
    return results[0]


@contextmanager
def nested_calls(limit: int) -> Iterator[None]:
    """Let at least so many calls nest, in all threads, as long as the context lasts."""
    with _limit_lock:
        if not _limits:
            _limits.append(sys.getrecursionlimit())
        _limits.append(limit)
        sys.setrecursionlimit(max(_limits))
    try:
        yield
    finally:
        with _limit_lock:
            _limits.remove(limit)
            still = max(_limits)
            if len(_limits) == 1:
                _limits.clear()
            sys.setrecursionlimit(still)
