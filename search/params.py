"""Search parameters: names, defaults and types; those of the reference keep its names.

Source: reference section 1.6.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from ansor.errors import DefinitionError

Params = Mapping[str, int | float | str]

DEFAULT_PARAMS: Final[Params] = {
    "eps_greedy": 0.05,
    "retry_search_one_round_on_empty": 1,
    "sample_init_min_population": 50,
    "sample_init_use_measured_ratio": 0.2,
    "evolutionary_search_population": 2048,
    "evolutionary_search_num_iters": 4,
    "evolutionary_search_mutation_prob": 0.85,
    "evolutionary_search_crossover_prob": 0.15,
    "cpu_multi_level_tiling_structure": "SSRSRS",
    "gpu_multi_level_tiling_structure": "SSSRRSRS",
    "max_innermost_split_factor": 64,
    "max_vectorize_size": 16,
    "max_tile_waste": 1.25,
    "cpu_tensor_intrinsics": 1,
    "cpu_packed_read": 0,
    "cpu_stream_tiling": 1,
    "cpu_window_tiling": 1,
    "cpu_rfactor_lanes": 1,
    "cpu_keep_costly": 1,
    "max_families": 64,
    "disable_change_compute_location": 0,
    "polish_ratio": 0.25,
    "polish_after": 24,
    "first_rounds_size": 16,
}
"""Search parameters and their defaults.

- `eps_greedy`: share of a round that is picked at random.
- `sample_init_use_measured_ratio`: largest share of the first generation that was measured before.
- `evolutionary_search_population`, `..._num_iters`: programs per generation, and generations bred from the
  first; 0 generations leaves random sampling with the model's choice.
- `evolutionary_search_mutation_prob`, `..._crossover_prob`: how children come about; the rest is drawn anew.
- `max_tile_waste`: see `SketchParams`; 1.0 for tile lengths that divide, as in the reference.
- `cpu_tensor_intrinsics`: 1 for tiles that instructions of the machine compute (`TensorIntrinsicRule`).
- `cpu_packed_read`: 1 for sketches that pack tiles of inputs (`AddPackedRead`); off, as they are many and
  seldom hold the best of 64 trials.
- `cpu_stream_tiling`: 1 for tiles in outputs with a short last axis and in transposes (`StreamTiling`).
- `cpu_window_tiling`: 1 for tiles in reductions without reuse, such as pooling (`WindowTiling`).
- `cpu_rfactor_lanes`: 1 for reductions to a few values in parallel and in vectors (`AddRfactorLanes`).
- `cpu_keep_costly`: 1 for storing dear stages that a reduction uses often (`KeepCostlyProducer`).
- `max_families`: structures in one generation, at first.
- `polish_ratio`: share of a round given to neighbours of the best, once `polish_after` programs were
  measured; 0 for none.
- `first_rounds_size`: programs in each of the first rounds, so that the model learns early; later rounds are
  as large as asked for. 0 for rounds of one size.
- `retry_search_one_round_on_empty`, `sample_init_min_population`: the reference's; the first has no effect,
  the second is how many programs `sample_initial_population` draws.
"""

ABLATIONS: Final[Mapping[str, Params]] = {
    "dividing tile lengths": {"max_tile_waste": 1.0},
    "no tensor intrinsics": {"cpu_tensor_intrinsics": 0},
    "no tiled streams": {"cpu_stream_tiling": 0},
    "no tiled windows": {"cpu_window_tiling": 0},
    "no factored lanes": {"cpu_rfactor_lanes": 0},
    "all cheap reads inlined": {"cpu_keep_costly": 0},
    "packed reads": {"cpu_packed_read": 1},
    "no polish": {"polish_ratio": 0.0},
    "no crossover": {"evolutionary_search_crossover_prob": 0.0},
}
"""What to override to see what a part of the search is worth: its opposite, one at a time, by name."""

REFERENCE_SPACE: Final[Params] = {
    "max_tile_waste": 1.0,
    "cpu_tensor_intrinsics": 0,
    "cpu_packed_read": 0,
    "cpu_stream_tiling": 0,
    "cpu_window_tiling": 0,
    "cpu_rfactor_lanes": 0,
    "cpu_keep_costly": 0,
}
"""Parameters with which sketches are those of the reference."""


def resolve_params(params: Params | None) -> dict[str, int | float | str]:
    """
    Complete search parameters by the defaults.

    Raises
    ------
    DefinitionError
        If a name is unknown, or a value is not of its default's type (an int may stand for a float).
    """
    resolved = dict(DEFAULT_PARAMS)
    for name, value in (params or {}).items():
        if name not in resolved:
            near = difflib.get_close_matches(name, resolved, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise DefinitionError(f"unknown search parameter {name!r}; {hint}known are {', '.join(resolved)}")
        wanted = type(resolved[name])
        if not isinstance(value, (float, int) if wanted is float else wanted):
            raise DefinitionError(
                f"search parameter {name!r} is {value!r}; it must be {wanted.__name__}, "
                f"as its default {resolved[name]!r}"
            )
        resolved[name] = wanted(value)
    return resolved
