"""Columns beside TVM's: what decides the speed of a statement on a CPU.

They describe what the emitter makes of a program (`extraction.plan`) on the machine that the task is for:
vector width and registers, cache sizes, cores. Terms:

- The *lanes* of a loop are how many of its iterations one vector operation does, 1 if it is no vector loop;
  its *strips* are ceil(extent / lanes), the iterations that are left; *groups* the product of all strips.
- The *tile* is the register tile, the element loops inside the innermost reduction loops whose elements
  accumulate in registers; a *visit* of it is all steps of those reduction loops.
- The *body* of a statement is what the innermost loop that stays a loop runs: loops inside are written out.
- The *runs* of a read are the product of the strips of the loops that its index moves with, and of the loops
  around these that stay loops: inside of others what was read waits in registers. On a CPU these have to hold
  all that waits, beside the accumulators; else it is read again in each iteration. In the body an element is
  loaded once, however many of the iterations that are written out read it: there they are at most the
  elements of its region / those of one load.
- *Points*, and the *region* of an access at a loop, are those of `reference`.
"""

from __future__ import annotations

from typing import Final

from costmodel.features.spec import Feature

CACHES: Final = ("L1", "L2", "L3")

_VECTORS: Final = (
    (
        "lanes",
        "elements",
        "product of the lanes of loops; of one that the emitter vectorises: its extent up to widest = "
        "register bits / element bits, or its largest divisor from widest / 2 on, or beyond 4 x widest that",
    ),
    ("lane_regs", "registers", "ceil(lanes x element bits / register bits)"),
    ("lane_efficiency", "ratio", "lanes x element bits / (lane_regs x register bits)"),
    ("lane_ragged", "flag", "the vector loop has a remainder loop"),
)
_TILE: Final = (
    ("tile", "flag", "the reduction accumulates in registers"),
    ("tile_registers", "registers", "vector registers that accumulate"),
    (
        "tile_pressure",
        "ratio",
        "(tile_registers + those of the operands of one step) / the registers of the machine. Of an operand: "
        "its vectors that an outer loop of the tile uses again; else 1, or 0 for vectors that are used once",
    ),
    ("tile_steps", "iterations", "reduction steps of one visit: how often a loaded accumulator is used"),
    ("tile_init", "flag", "accumulators start in registers instead of being loaded"),
    ("tile_loads", "instructions", "loads of the body: one step of the tile, or all that are written out"),
    ("tile_work", "instructions", "arithmetic instructions of the body"),
    ("tile_intensity", "ratio", "arithmetic instructions / (those + loads) of the body"),
    ("tile_code", "instructions", "instructions of the body: those, and loads and stores of what it adds to"),
)
_INSTRUCTIONS: Final = (
    (
        "work",
        "instructions",
        "operations per point x groups x lane_regs; a multiply-add is one, so is a tensor intrinsic, and "
        "what loop variables decide for all lanes of a CPU alike is none in a reduction, such as conditions "
        "of padding; what an intrinsic does for signs of bytes that it does not take (`extraction.flips`); "
        "and what combines the lanes of a reduction at its end",
    ),
    ("math", "instructions", "intrinsic functions per point x groups x lane_regs"),
    (
        "loads_contiguous",
        "instructions",
        "sum over reads of neighbouring elements, of any in scalar code: runs x ceil(lanes x element bytes / "
        "register bytes), on a CPU x (1 + the part of these vectors that lie across the end of a cache line)",
    ),
    ("loads_broadcast", "instructions", "sum over reads of one element for all lanes: runs"),
    (
        "loads_scattered",
        "instructions",
        "sum over other reads: runs x lanes, or x lanes / those of the innermost vector loop if that runs "
        "along memory, which for a tensor intrinsic may be the loop around what it multiplies in a lane; on "
        "a CPU of lanes up to 4 elements apart x (2 step - 1) vectors, where these are fewer",
    ),
    (
        "accumulator_moves",
        "instructions",
        "visits x tile_registers, or groups x lane_regs without a tile; x 2 where it is loaded, too; x lanes "
        "/ lane_regs where these lie apart, x (lanes / lane_regs / n + ceil(log2 n)) if on a CPU an unrolled "
        "loop stores parts of n neighbours, no more than lanes; on a CPU x (1 + the part across the end of a "
        "cache line)",
    ),
    ("accumulator_vectors", "instructions", "the same, one for each vector, wherever its lanes lie"),
    (
        "stores_scattered",
        "instructions",
        "stores among these of lanes that lie apart; on a CPU not those of lanes up to 4 elements apart "
        "between which an unrolled loop stores the others",
    ),
    ("branches", "instructions", "sum over loops that stay loops: strips x strips of such loops around it"),
    (
        "chain",
        "steps",
        "groups x lane_regs / registers that one step of the innermost reduction loop with several strips "
        "adds to / parallel_cores; 0 without one",
    ),
    ("index_div", "operations", "divisions and remainders that stay in indices, points x nodes"),
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
    (
        "fill",
        "ratio",
        "bytes of the lines that it touches / capacity, or, if that is more, of the first level lines in one "
        "set / ways, of a CPU's second lines at one place of a page / pages that it holds; at most 8",
    ),
    ("over", "ratio", "the same of the next larger body, at most 8; 0 if all fits"),
    (
        "traffic",
        "bytes",
        "sum over buffers: lines of the region at the innermost loop around that body which moves the index "
        "(at all loops if none does) x line x iterations outside that loop; x 2 if stored",
    ),
    ("pieces", "pieces", "the same sum of contiguous runs of these regions, those in one line as one"),
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
    Feature(
        "conflict_pieces", "pieces", "conflicts",
        "max over buffers: pieces of the region in the largest body that fits into L1",
    ),
    Feature(
        "conflict_pressure", "ratio", "conflicts",
        "lines in one set of L1 / ways, in the next larger body: strides modulo the size of a way; at most 8",
    ),
    Feature(
        "streams", "pieces", "conflicts",
        "pieces of the region in one visit of the tile, or in the body: what is read side by side, of "
        "the buffer that is begun most often",
    ),
    Feature(
        "stream_begins", "pieces", "conflicts",
        "sum over buffers: bytes of its L3_traffic / bytes of one of these in the largest body around the "
        "visit in which they are no more pieces, and inside which they do not touch; at least a line",
    ),
    Feature("footprint", "bytes", "conflicts", "lines that the whole statement touches"),
    Feature("streamed", "bytes", "conflicts", "what it stores, if aligned vectors are to pass the caches by"),
)  # fmt: skip
