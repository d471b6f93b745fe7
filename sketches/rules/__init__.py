"""The rules: each of them says when it fires on a stage, and which states it makes of it.

Those of Ansor: `inline`, `tiling`, `caching`, `rfactor`, `const_tensor`; for GPUs `gpu_memory` and
`cross_thread`. Beyond them: tiles whose vectors lie otherwise (`turned_tiles`, `streams`, `stencils`,
`windows`), rows that several stages pass over (`row_tiling`, `row_pipelining`, `row_sums`), small tiles of
transforms (`tile_blocks`, `unrolled_tiles`), parallel reductions (`rfactor_lanes`, `rfactor_columns`,
`rfactor_blocks`), instructions (`tensor`, `tensor_cores`, `distribution`, `conversions`), copies (`packing`),
and what is computed again or not (`recompute`, `inlined_padding`).
"""
