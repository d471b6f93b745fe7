"""The 164 columns of TVM, in its order, with its mistakes corrected.

Source: TVM v0.16's per-store features (`auto_scheduler/feature.cc`). Terms: the *points* of a statement are
the iterations of all loops around it, rows of guarded-off points included; an access's *region* at a loop is
the box that its indices span while that loop and those inside it run, cut to the buffer.
"""

from __future__ import annotations

from typing import Final

from costmodel.features.spec import Feature

N_BUFFERS: Final = 5
"""Buffers that have columns of their own; a statement that touches more shows the busiest ones."""

N_CURVE: Final = 10
"""Samples of the arithmetic intensity curve."""

OPERATIONS: Final = ("mad", "addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc")
POSITIONS: Final = (
    "kPosNone",
    "kPosInnerSpatial",
    "kPosMiddleSpatial",
    "kPosOuterSpatial",
    "kPosInnerReduce",
    "kPosMiddleReduce",
    "kPosOuterReduce",
    "kPosMixed",
)
_OPERATION_TEXT: Final = {
    "mad": "additions and subtractions of a product, points times nodes; these nodes count below, too",
    "addsub": "additions, subtractions and operators on bits in the stored value, points times nodes",
    "mul": "multiplications, points times nodes",
    "divmod": "divisions and remainders, points times nodes",
    "cmp": "minima, maxima and comparisons of such operands, points times nodes",
    "mathfunc": "intrinsic functions, points times nodes",
    "otherfunc": "conversions to this kind of number, points times nodes",
}
_KIND_TEXT: Final = {
    "vec": "vector loops (chosen, or made by the emitter: then as long as the vector)",
    "unroll": "loops that are unrolled (asked for, by the pragma's limit, or as part of the register tile)",
    "parallel": "parallel loops",
}
_BUFFER_COLUMNS: Final = (
    ("acc_type.kRead", "flag", "only read"),
    ("acc_type.kWrite", "flag", "only written"),
    ("acc_type.kReadWrite", "flag", "read and written"),
    ("bytes", "bytes", "points times distinct indices times element size"),
    ("unique_bytes", "bytes", "size of the region around all loops"),
    ("lines", "cache lines", "product of the extents of loops in the indices x min(1, stride of the "
     "innermost of them / line), at least 1"),
    ("unique_lines", "cache lines", "unique bytes / min(contiguous run of the region, line)"),
    ("reuse_type.kLoopMultipleRead", "flag", "a loop repeats the access: its variable is in no index"),
    ("reuse_type.kSerialMultipleReadWrite", "flag", "an earlier statement in a common loop wrote it"),
    ("reuse_type.kNoReuse", "flag", "neither"),
    ("reuse_dis_iter", "iterations", "points between two uses"),
    ("reuse_dis_bytes", "bytes", "bytes that all accesses of the statement touch between two uses"),
    ("reuse_ct", "uses", "extent of the repeating loop, or 1 for an earlier statement"),
    ("bytes_d_reuse_ct", "bytes", "bytes / reuse count, or twice the bytes without reuse"),
    ("unique_bytes_d_reuse_ct", "bytes", "the same of unique bytes"),
    ("lines_d_reuse_ct", "cache lines", "the same of lines"),
    ("unique_lines_d_reuse_ct", "cache lines", "the same of unique lines"),
    ("stride", "elements", "distance in memory when the innermost loop advances; 0 if it is in no index"),
)  # fmt: skip
BUFFER_COLUMNS: Final = tuple(name for name, _, _ in _BUFFER_COLUMNS)


def _operations() -> list[Feature]:
    found = [
        Feature(f"{kind}_{name}", "operations", "operations", f"{kind}: {_OPERATION_TEXT[name]}")
        for kind in ("float", "int")
        for name in OPERATIONS
    ]
    found.append(Feature("bool_op", "operations", "operations", "and, or, not in the stored value"))
    found.append(Feature("select_op", "operations", "operations", "choices in the stored value"))
    return found


def _loops(prefix: str) -> list[Feature]:
    what = _KIND_TEXT[prefix]
    return [
        Feature(f"{prefix}_num", "loops", prefix, f"how many {what}; neighbours fused to one count as one"),
        Feature(f"{prefix}_prod", "iterations", prefix, "product of their extents, 0 if none"),
        Feature(f"{prefix}_len", "iterations", prefix, "extent of the innermost of them, 0 if none"),
        *(
            Feature(
                f"{prefix}_type.{name}", "flag", prefix, "where the innermost of them is; mixed if both kinds"
            )
            for name in POSITIONS
        ),
    ]


def _gpu() -> list[Feature]:
    names = [f"{kind}Idx_{axis}_len" for kind in ("block", "thread") for axis in "xyz"]
    lengths = [Feature(name, "threads", "gpu", "extent, 1 if absent") for name in (*names, "vthread_len")]
    return [Feature("is_gpu", "flag", "gpu", "whether any loop is bound to the grid"), *lengths]


def _buffers() -> list[Feature]:
    return [
        Feature(f"B{which}.{name}", unit, f"buffer {which}", text)
        for which in range(N_BUFFERS)
        for name, unit, text in _BUFFER_COLUMNS
    ]


def _rest() -> list[Feature]:
    intensity = "operations per byte touched, at the loop level that reaches {0} % of all operations"
    return [
        *(
            Feature(f"arith_intensity_curve_{k}", "ops/byte", "intensity", intensity.format(10 * (k + 1)))
            for k in range(N_CURVE)
        ),
        Feature("alloc_size", "bytes", "allocation", "scratch that holds the result; 0 for an output"),
        Feature("alloc_prod", "elements", "allocation", "its elements times the iterations outside it"),
        Feature("alloc_outer_prod", "iterations", "allocation", "iterations of the loops outside it"),
        Feature("alloc_inner_prod", "iterations", "allocation", "points / those iterations"),
        Feature("outer_prod", "iterations", "loops", "points: product of the extents of all loops"),
        Feature("num_loops", "loops", "loops", "loops of more than one iteration, fused ones as one"),
        Feature("auto_unroll_max_step", "steps", "loops", "limit of the unroll pragma that applies"),
    ]


REFERENCE_FEATURES: Final[tuple[Feature, ...]] = (
    *_operations(),
    *_loops("vec"),
    *_loops("unroll"),
    *_loops("parallel"),
    *_gpu(),
    *_buffers(),
    *_rest(),
)
