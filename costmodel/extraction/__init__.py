"""From programs to rows of the feature table, on whole columns.

`extract` is the way in. Reading order: `form` (a population, or a state, as a structure and columns), `body`
with `conditions` and `flips` (what a value costs and reads), `indices` and `statements` (accesses as linear
terms over loops), `skips` and `layouts`, `columns` (the statements of all programs as dense arrays); what the
emitter makes of the loops: `plan`, with `joining` and `lanes`, on GPUs `kernels`; what the rows are of:
`regions`, `steps` and `warps`; the parts of a row: `reference`, `machine`, `device`.
"""
