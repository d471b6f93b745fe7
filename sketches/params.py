"""Parameters of sketch generation and sampling, under TVM's names.

A search policy keeps all its parameters in one mapping (`search.DEFAULT_PARAMS`); `SketchParams.of`
takes out the ones that concern this package, checks them and leaves the others alone. Nothing is ever written
back into the caller's mapping.

What a parameter may be stands next to its default (`Parameter`), and one method refuses everything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Final, TypeVar

from ansor.errors import DefinitionError

Value = int | float | str
_V = TypeVar("_V", int, float, str)

CPU_UNROLL_CANDIDATES: Final = (0, 16, 64, 512)
"""Values of `auto_unroll_max_step` that sampling draws from on a CPU."""
GPU_UNROLL_CANDIDATES: Final = (*CPU_UNROLL_CANDIDATES, 1024)
"""The same on a GPU."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """
    A search parameter: its default, whose type is the parameter's, and which values it may have.

    Parameters
    ----------
    default
        An int, a float, or a string of tile levels.
    low, high
        Least and greatest value of a number, both allowed; None for no bound.
    """

    default: Value
    low: float = 0
    high: float | None = None

    @property
    def allowed(self) -> str:
        """What it may be, in words."""
        if isinstance(self.default, str):
            return "a string of the letters S (spatial) and R (reduction)"
        if self.high is None:
            bounds = f"of at least {self.low:g}"
        elif isinstance(self.default, int) and self.high == self.low + 1:
            return f"{self.low:g} or {self.high:g}"
        else:
            bounds = f"from {self.low:g} to {self.high:g}"
        return f"{'an integer' if isinstance(self.default, int) else 'a number'} {bounds}"

    def checked(self, name: str, value: Any) -> Value:
        """
        Give a value back in the parameter's type.

        Raises
        ------
        DefinitionError
            If the parameter cannot have it; NaN and the infinities are no numbers.
        """
        if self._allows(value):
            return type(self.default)(value)
        raise DefinitionError(
            f"search parameter {name!r} is {value!r}; it must be {self.allowed}, as its default "
            f"{self.default!r}"
        )

    def _allows(self, value: Any) -> bool:
        if isinstance(self.default, str):
            return isinstance(value, str) and value != "" and set(value.upper()) <= {"S", "R"}
        kind = Integral if isinstance(self.default, int) else Real
        highest = math.inf if self.high is None else self.high
        is_number = isinstance(value, kind)
        return is_number and self.low <= value <= highest and value != math.inf


def _parameter(default: _V, low: float = 0, high: float | None = None) -> _V:
    """Make the field of a parameter."""
    made: _V = field(default=default, metadata={"parameter": Parameter(default, low, high)})
    return made


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
        1 keeps every stage where its sketch puts it.
    max_tile_waste
        Largest covered over real iterations of a tiled stage whose tile lengths do not divide its axes; 1 for
        dividing lengths only.
    cpu_unrolled_tiles
        1 adds `UnrolledTiles`: stages whose operation names a tile have it unrolled around vectors; 2 also
        tries what comes before the last of them in blocks of its tiles.
    cpu_tensor_intrinsics
        1 adds `TensorIntrinsicRule`: tiles of what one instruction of the machine computes, unless it is
        known to be slower there than others; 2 does so whatever is known.
    cpu_distribute_products
        1 adds `DistributeProducts`: products of bytes less their zero points are multiplied out where tensor
        intrinsics compute the products.
    cpu_turned_tiles
        1 adds `TurnedTiling`: where the last axis makes poor vectors, tiles with vectors along others.
    cpu_packed_read
        1 adds `AddPackedRead` to the rules for CPUs, for tensors of dtypes below 32 bits and for panels of
        products; 2 for all tensors: inputs of a tile may go through contiguous scratch.
    cpu_inline_used_once
        1 adds `InlineUsedOnce`: stages that one other uses, each element once, are inlined whatever they do.
    cpu_stencil_tiling
        1 adds `StencilTiling`: outputs that read what others compute at several places are tiled.
    cpu_stream_tiling
        1 adds `StreamTiling`: outputs with a short last axis, and transposes, are tiled.
    cpu_window_tiling
        1 adds `WindowTiling`: reductions without reuse, such as pooling, are tiled.
    cpu_row_tiling
        1 adds `RowTiling`: what passes over short rows, as a softmax, does so for several rows together.
    cpu_row_pipelining
        1 adds `RowPipelining`: what passes several times over rows that fit the first cache is done with
        several rows at once, each pass with another one.
    cpu_rfactor_lanes
        1 adds `AddRfactorLanes`: long reductions to a few values, in parallel and in vectors.
    cpu_rfactor_columns
        1 adds `AddRfactorColumns`: sums of many rows, parts of them in parallel, in vectors of columns.
    cpu_keep_costly
        1 adds `KeepCostlyProducer`: dear stages that a reduction uses often, what stencils read at several
        places, and what is made of a product for another one are stored, not inlined.
    cpu_keep_row_sums
        1 adds `KeepRowSums`: of reductions of short rows, enough for all cores, no part is factored out.
    cpu_inline_padding
        1 adds `InlinePadding`: padding that reductions use a few times, or can leave out, is also inlined.
    cpu_store_converted
        1 adds `StoreConverted`: what reductions widen again and again is stored so, packed tiles as well.
    cpu_streaming_stores
        1 lets the stores of outputs pass the caches by, where a program moves more than they hold.
    cpu_prefetch
        1 lets stages that pass over a row of an input after others ask memory for the next row, windows of an
        input that no cache holds for the next rows, and reductions with reuse for what they read next.
    cpu_fuse_all_vectors
        1 lets all innermost loops of a stage that may be vectorised be fused; 0 leaves one of several out, as
        TVM does.
    gpu_tensor_cores
        1 adds `TensorCores`: products of 16-bit floats, and of float32 that may be rounded, are tiled by what
        tensor cores multiply at once, and padded to multiples of it.
    gpu_rfactor_blocks
        1 adds `AddRfactorBlocks`: long reductions to a few values, shared by blocks.
    gpu_reduction_kernels
        1 lets each result of a reduction have a block, in a kernel of its own, where a block of what reads
        the results would reduce several of them.
    gpu_multi_buffer
        How often copies may be in the shared memory of a CUDA GPU, to be filled ahead; 1 for once. More than
        twice is for devices whose threads can copy without waiting.
    gpu_storage_padding
        1 lets copies in the shared memory of a GPU be padded, so that threads read from different banks.
    gpu_swizzle
        1 lets rows of such copies store their pieces in different orders, to the same end.
    gpu_read_parts
        1 lets what a stage reads along different axes be copied into the shared memory of a GPU for each.
    max_families
        How many families a sampled batch may hold, rounded up for each sketch; rows beyond share the
        structures of the first ones. A round of a search draws from so many sketches at most.
    """

    cpu_multi_level_tiling_structure: str = _parameter("SSRSRS")
    gpu_multi_level_tiling_structure: str = _parameter("SSSRRSRS")
    max_innermost_split_factor: int = _parameter(64, low=1)
    max_vectorize_size: int = _parameter(16, low=1)
    disable_change_compute_location: int = _parameter(0, high=1)
    max_tile_waste: float = _parameter(1.25, low=1)
    cpu_unrolled_tiles: int = _parameter(2, high=2)
    cpu_tensor_intrinsics: int = _parameter(1, high=2)
    cpu_distribute_products: int = _parameter(1, high=1)
    cpu_turned_tiles: int = _parameter(1, high=1)
    cpu_packed_read: int = _parameter(1, high=2)
    cpu_inline_used_once: int = _parameter(1, high=1)
    cpu_stencil_tiling: int = _parameter(1, high=1)
    cpu_stream_tiling: int = _parameter(1, high=1)
    cpu_window_tiling: int = _parameter(1, high=1)
    cpu_row_tiling: int = _parameter(1, high=1)
    cpu_row_pipelining: int = _parameter(1, high=1)
    cpu_rfactor_lanes: int = _parameter(1, high=1)
    cpu_rfactor_columns: int = _parameter(1, high=1)
    cpu_keep_costly: int = _parameter(1, high=1)
    cpu_keep_row_sums: int = _parameter(1, high=1)
    cpu_inline_padding: int = _parameter(1, high=1)
    cpu_store_converted: int = _parameter(1, high=1)
    cpu_streaming_stores: int = _parameter(1, high=1)
    cpu_prefetch: int = _parameter(1, high=1)
    cpu_fuse_all_vectors: int = _parameter(1, high=1)
    gpu_tensor_cores: int = _parameter(1, high=1)
    gpu_rfactor_blocks: int = _parameter(1, high=1)
    gpu_reduction_kernels: int = _parameter(1, high=1)
    gpu_multi_buffer: int = _parameter(4, low=1, high=8)
    gpu_storage_padding: int = _parameter(1, high=1)
    gpu_swizzle: int = _parameter(1, high=1)
    gpu_read_parts: int = _parameter(1, high=1)
    max_families: int = _parameter(64, low=1)

    def __post_init__(self) -> None:
        for name, parameter in space_parameters().items():
            object.__setattr__(self, name, parameter.checked(name, getattr(self, name)))

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
        given = params or {}
        chosen = {name: given[name] for name in space_parameters() if name in given}
        return cls(**chosen)  # type: ignore[arg-type]


def space_parameters() -> dict[str, Parameter]:
    """Parameters of `SketchParams` by name, in order."""
    return {one.name: one.metadata["parameter"] for one in fields(SketchParams)}
