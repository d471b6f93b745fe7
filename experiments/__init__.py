"""Benchmarks and demonstrations, each one command: `python -m experiments.NAME`.

They use `import ansor` alone, as any user does. `harness` is what all benchmarks share.
"""

from experiments import command

command.await_signals()  # The libraries of a benchmark take a second to load.
