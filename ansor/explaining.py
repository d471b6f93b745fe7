"""What a command says of an error that its user can mend: a line instead of a traceback.

`ANSOR_TRACEBACK=1` shows the traceback as well.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from ansor.errors import AnsorError
from ansor.knobs import traceback_wanted


def explained(main: Callable[[], int]) -> int:
    """Run a command; an error of ansor or of the system is told on the standard error stream, and code 1."""
    try:
        code = main()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # The reader of our output, such as `head`, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (AnsorError, OSError) as error:
        if traceback_wanted():
            traceback.print_exc()
        print(f"error: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1
