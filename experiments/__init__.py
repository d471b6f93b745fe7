"""Benchmarks and demonstrations, each one command: `python -m experiments.NAME`.

They use `import ansor` alone, as any user does. `harness` is what all benchmarks share.
"""
