"""Parameters of sketch generation and sampling, under the reference's names.

A search policy keeps all its parameters in one mapping (`SketchPolicy.DEFAULT_PARAMS`); `SketchParams.of`
takes out the ones that concern this package, checks their types and leaves the others alone. Nothing is
ever written back into the caller's mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from ansor.errors import DefinitionError

CPU_UNROLL_CANDIDATES: Final = (0, 16, 64, 512)
"""Values of `auto_unroll_max_step` that sampling draws from on a CPU."""


@dataclass(frozen=True, slots=True)
class SketchParams:
    """What shapes the space of programs.

    Parameters
    ----------
    cpu_multi_level_tiling_structure, gpu_multi_level_tiling_structure
        Tile levels from the outermost to the innermost: S one level of all spatial loops, R one of all
        reduction loops.
    max_innermost_split_factor
        Largest innermost length that a sampled split may have [elements].
    max_vectorize_size
        Largest product of the loops that are vectorised together [elements].
    disable_change_compute_location
        Non-zero keeps every stage where its sketch puts it.
    max_tile_waste
        Largest covered over real iterations of a tiled stage whose tile lengths do not divide its axes; 1 for
        dividing lengths only.
    cpu_tensor_intrinsics
        Non-zero adds `TensorIntrinsicRule`: tiles of what one instruction of the machine computes.
    cpu_packed_read
        Non-zero adds `AddPackedRead` to the rules for CPUs: inputs of a tile may go through contiguous
        scratch.
    cpu_stream_tiling
        Non-zero adds `StreamTiling`: outputs with a short last axis, and transposes, are tiled.
    cpu_window_tiling
        Non-zero adds `WindowTiling`: reductions without reuse, such as pooling, are tiled.
    cpu_rfactor_lanes
        Non-zero adds `AddRfactorLanes`: long reductions to a few values, in parallel and in vectors.
    cpu_keep_costly
        Non-zero adds `KeepCostlyProducer`: dear stages that a reduction uses often are stored, not inlined.
    max_families
        How many families a sampled batch may hold, rounded up for each sketch; rows beyond share the
        structures of the first ones.
    """

    cpu_multi_level_tiling_structure: str = "SSRSRS"
    gpu_multi_level_tiling_structure: str = "SSSRRSRS"
    max_innermost_split_factor: int = 64
    max_vectorize_size: int = 16
    disable_change_compute_location: int = 0
    max_tile_waste: float = 1.0
    cpu_tensor_intrinsics: int = 0
    cpu_packed_read: int = 0
    cpu_stream_tiling: int = 0
    cpu_window_tiling: int = 0
    cpu_rfactor_lanes: int = 0
    cpu_keep_costly: int = 0
    max_families: int = 64

    def __post_init__(self) -> None:
        for name in ("cpu_multi_level_tiling_structure", "gpu_multi_level_tiling_structure"):
            structure = getattr(self, name)
            if not structure or set(structure.upper()) - {"S", "R"}:
                raise DefinitionError(
                    f"{name} is {structure!r}; it must be a string of the letters S (spatial) and "
                    "R (reduction), as 'SSRSRS'"
                )
        for name in ("max_innermost_split_factor", "max_vectorize_size", "max_families", "max_tile_waste"):
            if getattr(self, name) < 1:
                raise DefinitionError(f"{name} is {getattr(self, name)}; it must be at least 1")

    @classmethod
    def of(cls, params: SketchParams | Mapping[str, object] | None) -> SketchParams:
        """Take this package's parameters out of a policy's mapping; None gives the defaults.

        Raises
        ------
        DefinitionError
            If a value has the wrong type or is out of range.
        """
        if isinstance(params, SketchParams):
            return params
        chosen: dict[str, object] = {}
        for field in fields(cls):
            if params is None or field.name not in params:
                continue
            value, default = params[field.name], field.default
            if not isinstance(value, type(default)):
                raise DefinitionError(
                    f"search parameter {field.name!r} is {value!r}; expected {type(default).__name__}, "
                    f"as the default {default!r}"
                )
            chosen[field.name] = value
        return cls(**chosen)  # type: ignore[arg-type]
