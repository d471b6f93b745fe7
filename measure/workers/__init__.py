"""Processes that run what may crash or hang, and what is done in them.

Reading order: `pool`, `process`, `worker` and `wire`; `jobs`, with the programs of a CPU (`cpu`) and of a
`device` as a `processor` runs them, and the memory of their `arguments` (`arena`), which `check` compares
with what is right.
"""
