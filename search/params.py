"""Search parameters: names, defaults and ranges; those of TVM keep its names.

Source: `SketchPolicy.DEFAULT_PARAMS` of TVM 0.16.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ansor.errors import DefinitionError
from sketches.params import Parameter, space_parameters

Params = Mapping[str, int | float | str]


PARAMETERS: Final[Mapping[str, Parameter]] = MappingProxyType(
    {
        "eps_greedy": Parameter(0.05, high=1),
        "retry_search_one_round_on_empty": Parameter(1, high=1),
        "sample_init_min_population": Parameter(50, low=1),
        "sample_init_use_measured_ratio": Parameter(0.2, high=1),
        "evolutionary_search_population": Parameter(2048, low=1),
        "evolutionary_search_num_iters": Parameter(4),
        "first_round_more_iters": Parameter(4),
        "evolutionary_search_mutation_prob": Parameter(0.85, high=1),
        "evolutionary_search_crossover_prob": Parameter(0.15, high=1),
        **space_parameters(),
        "polish_ratio": Parameter(0.25, high=1),
        "polish_after": Parameter(24),
        "first_rounds_size": Parameter(16),
        "cpu_first_round_tiles": Parameter(8),
    }
)
"""Defaults and ranges, by name."""

DEFAULT_PARAMS: Final[Params] = {name: parameter.default for name, parameter in PARAMETERS.items()}
"""Search parameters and their defaults.

- `eps_greedy`: share of a round that is picked at random.
- `sample_init_use_measured_ratio`: largest share of the first generation that was measured before.
- `evolutionary_search_population`, `..._num_iters`: programs per generation, and generations bred from the
  first; 0 generations leaves random sampling with the model's choice.
- `first_round_more_iters`: further generations at most while nothing has been measured, so long as each has
  a better program than all before it.
- `evolutionary_search_mutation_prob`, `..._crossover_prob`: how children come about; the rest is drawn anew.
  Together above 1, crossover gets what mutation leaves.
- `max_tile_waste`: see `SketchParams`; 1.0 for tile lengths that divide, as in TVM.
- `cpu_unrolled_tiles`: 1 for tiles that an operation names, unrolled around vectors (`UnrolledTiles`), 2 for
  blocks of them, too.
- `cpu_tensor_intrinsics`: 1 for tiles that instructions of the machine compute (`TensorIntrinsicRule`), 2 for
  instructions that are slow there, too. Where there is a matrix unit they are parts of its tiles.
- `cpu_distribute_products`: 1 for products of bytes less their zero points multiplied out, where instructions
  of the machine then compute the products (`DistributeProducts`).
- `cpu_turned_tiles`: 1 for tiles whose vectors run along another axis, where the last one makes poor vectors
  (`TurnedTiling`).
- `cpu_packed_read`: 1 for sketches that pack tiles of inputs of dtypes below 32 bits and panels of products
  (`AddPackedRead`), 2 of all inputs, which makes sketches many that seldom hold the best of 64 trials.
- `cpu_inline_used_once`: 1 for inlining what one stage uses, each element once (`InlineUsedOnce`).
- `cpu_stencil_tiling`: 1 for tiles in outputs of stencils, which what they read is computed for
  (`StencilTiling`).
- `cpu_stream_tiling`: 1 for tiles in outputs with a short last axis and in transposes (`StreamTiling`).
- `cpu_window_tiling`: 1 for tiles in reductions without reuse, such as pooling (`WindowTiling`).
- `cpu_row_tiling`: 1 for tiles of short rows that several stages pass over, as in a softmax (`RowTiling`).
- `cpu_row_pipelining`: 1 for passes over rows that overlap, each of them over another row (`RowPipelining`).
- `cpu_rfactor_lanes`: 1 for reductions to a few values in parallel and in vectors (`AddRfactorLanes`).
- `cpu_rfactor_columns`: 1 for sums of many rows, parts of them in parallel (`AddRfactorColumns`).
- `cpu_keep_costly`: 1 for storing dear stages that a reduction uses often, what stencils read at several
  places, and what is made of a product for another one (`KeepCostlyProducer`).
- `cpu_keep_row_sums`: 1 for no parts of sums of short rows that are enough for all cores (`KeepRowSums`).
- `cpu_inline_padding`: 1 for computing padding where a reduction uses it a few times, or where it then is not
  multiplied at all (`InlinePadding`).
- `cpu_store_converted`: 1 for storing what reductions widen again and again widened (`StoreConverted`).
- `cpu_streaming_stores`: 1 for stores of outputs that may pass the caches by (`RandomStreaming`), in programs
  that move more than the last cache holds.
- `cpu_prefetch`: 1 for asking memory for the next row of what several stages pass over, for the next rows of
  windows, and for what reductions with reuse read next (`prefetch_sites`).
- `cpu_fuse_all_vectors`: 1 for vectors of all loops that may be in one; 0 leaves one of several out.
- `gpu_tensor_cores`: 1 for tiles that tensor cores multiply (`TensorCores`) on CUDA GPUs, of 16-bit floats,
  and of float32 where an operation allows operands to be rounded.
- `gpu_rfactor_blocks`: 1 for long reductions to a few values that blocks of a GPU share (`AddRfactorBlocks`).
- `gpu_reduction_kernels`: 1 for a block for each result of a reduction, in a kernel of its own, where blocks
  of its reader would have several (`CrossThreadReduction`).
- `gpu_multi_buffer`: how often copies may be in CUDA's shared memory, to be filled ahead (`RandomLeads`): 1
  for once, 2 for double buffers, more for pipelines of as many stages where threads can copy without waiting.
- `gpu_storage_padding`: 1 for copies in the shared memory of a GPU that may be padded (`RandomPadding`).
- `gpu_swizzle`: 1 for such copies whose rows may store their pieces in different orders (`RandomPadding`).
- `gpu_read_parts`: 1 for a copy in shared memory for each way in which a stage reads a tensor along other
  axes, as a product with its own transpose does (`AddCacheRead`).
- `max_families`: structures in one generation, at first. Where there are more sketches, a round draws from so
  many: those of the fastest programs, up to a quarter, and others in turn.
- `polish_ratio`: share of a round given to neighbours of the best, once `polish_after` programs were
  measured; 0 for none.
- `first_rounds_size`: programs in each of the first rounds, so that the model learns early; later rounds are
  as large as asked for. 0 for rounds of one size.
- `cpu_first_round_tiles`: tiles in registers among which the first round is spread, if there are so many:
  what a model knows before anything is measured may be wrong about the best. 0 for the best by the model.
- `retry_search_one_round_on_empty`, `sample_init_min_population`: TVM's; the first has no effect,
  the second is how many programs `sample_initial_population` draws.
"""

ABLATIONS: Final[Mapping[str, Params]] = {
    "dividing tile lengths": {"max_tile_waste": 1.0},
    "no unrolled tiles": {"cpu_unrolled_tiles": 0},
    "no blocks of tiles": {"cpu_unrolled_tiles": 1},
    "no tensor intrinsics": {"cpu_tensor_intrinsics": 0},
    "no products multiplied out": {"cpu_distribute_products": 0},
    "branches and calls kept": {"cpu_inline_used_once": 0},
    "vectors along last axes": {"cpu_turned_tiles": 0},
    "no tiled stencils": {"cpu_stencil_tiling": 0},
    "no tiled streams": {"cpu_stream_tiling": 0},
    "no tiled windows": {"cpu_window_tiling": 0},
    "no tiled rows": {"cpu_row_tiling": 0},
    "no overlapping rows": {"cpu_row_pipelining": 0},
    "no factored lanes": {"cpu_rfactor_lanes": 0},
    "no factored rows": {"cpu_rfactor_columns": 0},
    "all cheap reads inlined": {"cpu_keep_costly": 0},
    "parts of row sums": {"cpu_keep_row_sums": 0},
    "no inlined padding": {"cpu_inline_padding": 0},
    "conversions where values are used": {"cpu_store_converted": 0},
    "no streaming stores": {"cpu_streaming_stores": 0},
    "no prefetch": {"cpu_prefetch": 0},
    "a loop left out of vectors": {"cpu_fuse_all_vectors": 0},
    "no packed reads": {"cpu_packed_read": 0},
    "all reads packed": {"cpu_packed_read": 2},
    "no padded copies": {"gpu_storage_padding": 0},
    "no tensor cores": {"gpu_tensor_cores": 0},
    "no reductions over blocks": {"gpu_rfactor_blocks": 0},
    "reductions beside their readers": {"gpu_reduction_kernels": 0},
    "no swizzled copies": {"gpu_swizzle": 0},
    "reads along several axes not copied": {"gpu_read_parts": 0},
    "copies filled when needed": {"gpu_multi_buffer": 1},
    "double buffers at most": {"gpu_multi_buffer": 2},
    "no polish": {"polish_ratio": 0.0},
    "first round by the model alone": {"cpu_first_round_tiles": 0},
    "no crossover": {
        "evolutionary_search_mutation_prob": 1.0,
        "evolutionary_search_crossover_prob": 0.0,
    },
}
"""What to override to see what a part of the search is worth: its opposite, one at a time, by name."""

REFERENCE_SPACE: Final[Params] = {
    "max_tile_waste": 1.0,
    "cpu_unrolled_tiles": 0,
    "cpu_tensor_intrinsics": 0,
    "cpu_distribute_products": 0,
    "cpu_turned_tiles": 0,
    "cpu_packed_read": 0,
    "cpu_inline_used_once": 0,
    "cpu_stencil_tiling": 0,
    "cpu_stream_tiling": 0,
    "cpu_window_tiling": 0,
    "cpu_row_tiling": 0,
    "cpu_row_pipelining": 0,
    "cpu_rfactor_lanes": 0,
    "cpu_rfactor_columns": 0,
    "cpu_keep_costly": 0,
    "cpu_keep_row_sums": 0,
    "cpu_inline_padding": 0,
    "cpu_store_converted": 0,
    "cpu_streaming_stores": 0,
    "cpu_prefetch": 0,
    "cpu_fuse_all_vectors": 0,
    "gpu_tensor_cores": 0,
    "gpu_rfactor_blocks": 0,
    "gpu_reduction_kernels": 0,
    "gpu_multi_buffer": 1,
    "gpu_storage_padding": 0,
    "gpu_swizzle": 0,
    "gpu_read_parts": 0,
}
"""Parameters with which sketches and their programs are those of TVM."""


def resolve_params(params: Params | None) -> dict[str, int | float | str]:
    """
    Complete search parameters by the defaults.

    Raises
    ------
    DefinitionError
        If a name is unknown, or a value is not of its default's type (an int may stand for a float) or out of
        range.
    """
    given = params or {}
    for name in given:
        if name not in PARAMETERS:
            near = difflib.get_close_matches(name, PARAMETERS, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            known = ", ".join(PARAMETERS)
            raise DefinitionError(f"unknown search parameter {name!r}; {hint}known are {known}")
    return {name: one.checked(name, given.get(name, one.default)) for name, one in PARAMETERS.items()}
