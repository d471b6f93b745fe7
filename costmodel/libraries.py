"""Loading the learning libraries: late, because they are large, and with threads that sleep while they wait.

By default OpenMP's threads spin. With fewer free cores than threads, as while programs are built beside it,
training then takes ten times as long and more. A library looks at the variable once, when it is loaded.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

_VARIABLE: Final = "OMP_WAIT_POLICY"


def load_library(name: str) -> Any:
    """Import a module by its dotted name; the environment is left as it was."""
    before = os.environ.get(_VARIABLE)
    os.environ.setdefault(_VARIABLE, "passive")
    try:
        return importlib.import_module(name)
    finally:
        if before is None:
            del os.environ[_VARIABLE]
