"""Calling something in a forked copy of the process of the tests."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable


def in_a_fork(action: Callable[[], object]) -> bool:
    """Whether `action` returns in a copy of this process, which ends without any tidying."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # This process has threads; the copy uses none.
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)  # A copy that waits for a lock waits for ever.
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
