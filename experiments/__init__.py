"""Benchmarks and demonstrations, each one command: `python -m experiments.NAME`.

They use `import ansor` alone, as any user does. `harness` is what all benchmarks share.
"""

import sys

from ansor.command import Command

command = Command()
"""What runs a module of this package that was started as a command."""
if sys.argv[0] == "-m":  # Python is looking for one, whose libraries take a second to load.
    command.take_signals()
