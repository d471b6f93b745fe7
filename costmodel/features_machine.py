"""Columns beside the reference's: what decides the speed of a statement on a CPU.

They describe what the emitter makes of a program (`extract_plan`) on the machine that the task is for: vector
width and registers, cache sizes, cores. Terms: the *tile* is the register tile, the element loops inside the
innermost reduction loops whose elements accumulate in registers; a *visit* of it is all steps of those
reduction loops.
"""

from __future__ import annotations

from typing import Final

from costmodel.features_spec import Feature

CACHES: Final = ("L1", "L2", "L3")

_VECTORS: Final = (
    ("lanes", "elements", "iterations that one vector operation covers, 1 if scalar"),
    ("lane_regs", "registers", "vector registers that those elements fill"),
    ("lane_efficiency", "ratio", "their bits / the bits of those registers"),
    ("lane_ragged", "flag", "the vector loop has a remainder loop"),
)
_TILE: Final = (
    ("tile", "flag", "the reduction accumulates in registers"),
    ("tile_registers", "registers", "vector registers that accumulate"),
    ("tile_pressure", "ratio", "those / the registers of the machine"),
    ("tile_steps", "iterations", "reduction steps of one visit: how often a loaded accumulator is used"),
    ("tile_init", "flag", "accumulators start in registers instead of being loaded"),
    ("tile_loads", "instructions", "loads of one step of the tile"),
    ("tile_work", "instructions", "arithmetic instructions of one step of the tile"),
    ("tile_intensity", "ratio", "arithmetic instructions / (those + loads) of one step"),
    ("tile_code", "instructions", "instructions of the innermost loop body once unrolled"),
)
_INSTRUCTIONS: Final = (
    ("work", "instructions", "arithmetic instructions, vector or scalar; a multiply-add is one"),
    ("math", "instructions", "intrinsic functions among them, vector or scalar"),
    ("loads_contiguous", "instructions", "loads of neighbouring elements or of single ones for scalar code"),
    ("loads_broadcast", "instructions", "loads of one element for all lanes"),
    ("loads_scattered", "instructions", "loads lane by lane: the index jumps from lane to lane"),
    ("accumulator_moves", "instructions", "loads and stores of the stored element around its use"),
    ("stores_scattered", "instructions", "stores lane by lane"),
    ("branches", "instructions", "iterations of loops that stay loops"),
    ("chain", "steps", "length of the longest chain of dependent operations of one core"),
    ("index_div", "operations", "divisions and remainders that stay in indices, points times nodes"),
    ("recompute", "ratio", "points / points that the operation has"),
    ("waste", "ratio", "points of one visit of the stage / points that it needs"),
)
_PARALLEL: Final = (
    (
        "parallel_chunks",
        "iterations",
        "iterations of the parallel loop around or in the statement, 1 if serial",
    ),
    ("parallel_launches", "launches", "how often such a loop is entered; 0 if serial"),
    ("parallel_balance", "ratio", "chunks / (rounds of all cores x cores)"),
    ("parallel_cores", "cores", "cores that have work"),
)


_CACHE: Final = (
    ("points", "iterations", "points of the largest loop body that fits into it"),
    ("fill", "ratio", "bytes of the lines that it touches / capacity, or lines in one set / ways; at most 8"),
    ("over", "ratio", "the same of the next larger body, at most 8; 0 if all fits"),
    ("traffic", "bytes", "what moves into it while bodies of that size run one by one"),
    ("pieces", "pieces", "contiguous pieces that this consists of"),
    ("traffic_per_op", "ratio", "bytes that move / arithmetic instruction, at most 64"),
)


def _cache(name: str) -> list[Feature]:
    return [Feature(f"{name}_{column}", unit, f"cache {name}", text) for column, unit, text in _CACHE]


def _group(group: str, columns: tuple[tuple[str, str, str], ...]) -> list[Feature]:
    return [Feature(name, unit, group, text) for name, unit, text in columns]


MACHINE_FEATURES: Final[tuple[Feature, ...]] = (
    *_group("vectors", _VECTORS),
    *_group("tile", _TILE),
    *_group("instructions", _INSTRUCTIONS),
    *_group("cores", _PARALLEL),
    *(feature for name in CACHES for feature in _cache(name)),
    Feature("conflict_pieces", "pieces", "conflicts", "most pieces of one buffer in the body that fits L1"),
    Feature(
        "conflict_pressure", "ratio", "conflicts",
        "lines in one set of L1 / ways, in the next larger body: strides modulo the size of a way; at most 8",
    ),
    Feature("footprint", "bytes", "conflicts", "lines that the whole statement touches"),
    Feature("streamed", "bytes", "conflicts", "what it stores, if aligned vectors are to pass the caches by"),
)  # fmt: skip
