"""What the right answer of a task is, which workers compare outputs with.

Reading order: `reference` (the right answer) with `fill` and `argument_files`, `plain` (what computes it) and
`spot_checks` (whether the interpreter agrees); `tolerance` (how far an output may be off) with `masks`;
`other_answers` with `sums` and `rounding` (what else is right), and `reducers` (where nothing is).
"""
