"""The main program of a worker process: `python -P -m measure.workers.worker`.

It answers requests on its standard input one after another: call this function of this module with these
values, send back what it returns or raises. The pipes are moved away from the standard descriptors first, so
that a program which prints (or an abort message of LLVM) cannot disturb the protocol; what is printed goes to
the standard error stream, which the parent keeps for its report of a crash.

Everything that might outlive or hurt the parent is ruled out at the start: Ctrl-C is ignored (the parent
decides), no core file is written, memory can be limited, and the process dies with its parent.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import traceback
from typing import Any, Final

from ansor.lifetime import die_with
from measure.workers.wire import FrameReader, encode

_PIECE: Final = 1 << 20


def main(arguments: list[str]) -> None:
    """Serve requests until the parent closes the pipe.

    The arguments are the memory limit in bytes (0: none) and the parent's process id.
    """
    memory_limit, parent = int(arguments[0]), int(arguments[1])
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_limit:
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
    _send(replies, encode({"ready": os.getpid()}))
    reader = FrameReader()
    while True:
        frame = reader.next_frame()
        if frame is not None:
            _send(replies, answer(frame[0]))
            continue
        piece = os.read(requests, _PIECE)
        if not piece:
            os._exit(0)  # Threads of compiled programs may still be parked: nothing is worth waiting for.
        reader.feed(piece)


def _send(file: int, frame: bytes) -> None:
    rest = memoryview(frame)
    while rest:
        rest = rest[os.write(file, rest) :]


def answer(request: Any) -> bytes:
    """Call what a request names and return the reply's frame; never raises, whatever the function does."""
    try:
        module, _, name = request["call"].partition(":")
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        return encode({"ok": function(*request["args"], **request["kwargs"])})
    except Exception as error:
        details = "".join(traceback.format_exception(error))
        return encode({"error": type(error).__name__, "message": str(error), "details": details})


if __name__ == "__main__":
    main(sys.argv[1:])
