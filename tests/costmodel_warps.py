"""What the warps of a GPU touch, counted the slow way: every thread's address, in plain Python ints.

Beside `costmodel_counts`: a statement of a lowered nest, and the loops around it by how they are bound. What
is stored to shared memory is stored once by a block: of the loops over threads around it only the innermost
counts, and none over virtual threads (`Counted` of `stored_statements` has them no more).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import product
from math import ceil, prod
from typing import Any

from ansor.ir.kernel_form import kernels_of, open_kernel
from ansor.ir.nest import Alloc, Buffer, For, LoopKind, LoopNest, Stmt, Store, walk_statements
from ansor.ir.shared_memory import shared_buffers
from ansor.task.device import DeviceModel
from ansor.task.gpu_limits import count_kernels
from tests.costmodel_counts import Counted, Touched, touched, value_of
from tests.costmodel_executed import value_of as value_at

THREADS = (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)


def extent_of(loop: For) -> int:
    return int(loop.extent)  # type: ignore[call-overload]


def spaces(nest: LoopNest) -> dict[str, str]:
    """Where the kernels of a program keep every buffer, by name."""
    found = {buffer.name: "global" for buffer in nest.params}
    for stmt in walk_statements(nest.body):
        if isinstance(stmt, Alloc):
            scope = stmt.buffer.scope
            found[stmt.buffer.name] = scope if scope in ("shared", "global") else "private"
    return found


def lanes(counted: Counted, device: DeviceModel) -> Iterator[dict[Any, int]]:
    """The loop variables of each thread of the first warp that passes, all other loops at their start."""
    bound = [loop for kind in THREADS for loop in reversed(counted.loops) if loop.kind is kind]
    for number in range(min(device.warp, prod(extent_of(loop) for loop in bound))):
        at = {loop.var: 0 for loop in counted.loops}
        rest = number
        for loop in bound:
            at[loop.var] = rest % extent_of(loop)
            rest //= extent_of(loop)
        if all(value_at(guard, at) for guard in counted.guards):
            yield at


def elements(one: Touched, at: Mapping[Any, int], vectors: list[For], swizzled: bool) -> list[int]:
    """Flat positions of what a thread touches at once."""
    places = [dict(at)]
    for loop in vectors:
        places = [{**place, loop.var: x} for place in places for x in range(extent_of(loop))]
    strides = one.buffer.strides or one.strides
    flat = [
        sum(value_of(index, place) * stride for index, stride in zip(one.indices[0], strides, strict=True))
        for place in places
    ]
    return [in_turn(place, one.buffer.constant_shape[-1], one.size) for place in flat] if swizzled else flat


def in_turn(place: int, width: int, size: int) -> int:
    """Where an element of a swizzled tile lies whose rows are a power of two of pieces of 16 bytes."""
    pieces, rest = divmod(width * size, 16)
    if rest or pieces < 2 or pieces & (pieces - 1):
        return place
    (row, byte), in_line = divmod(place * size, width * size), max(8 // pieces, 1)
    turn = row // in_line % min(pieces, 8)
    return (row * width * size + ((byte // 16) ^ turn) * 16 + byte % 16) // size


def warp_columns(
    counted: Counted,
    nest: LoopNest,
    fills: Mapping[str, int],
    device: DeviceModel,
    swizzled: Collection[str] = (),
) -> dict[str, float]:
    """The columns of the table that are about warps, of one statement; `nest` are the program's kernels.

    `swizzled` are the names of buffers.
    """
    where = spaces(nest)
    vectors = [loop for loop in counted.loops if loop.kind is LoopKind.VECTORIZED]
    names = ("sectors", "coalescing", "bank_conflicts", "shared_reuse")
    found: dict[str, list[float]] = {name: [] for name in names}
    for one in touched(counted):
        space = where[one.buffer.name]
        if space == "private":
            continue
        held = [elements(one, at, vectors, one.buffer.name in swizzled) for at in lanes(counted, device)]
        addresses = {place for own in held for place in own}
        ends = {(own[0] * one.size) // device.sector_bytes for own in held}
        ends |= {(own[-1] * one.size + one.size - 1) // device.sector_bytes for own in held}
        if space == "global":
            found["sectors"].append(len(ends))
            useful = len(addresses) * one.size / (len(ends) * device.sector_bytes)
            found["coalescing"].append(min(useful, 1.0))
            continue
        banks = rows_of_matrix(counted, one, device, one.buffer.name in swizzled)
        if banks is None:
            banks = Counter(word % device.banks for word in {own[0] * one.size // 4 for own in held})
        found["bank_conflicts"].append(max(banks.values()))
        if not one.writes:
            size = prod(one.buffer.constant_shape)
            uses = counted.points * len(one.indices)
            found["shared_reuse"].append(uses / (size * fills[one.buffer.name]))
    return {
        "sectors": max(found["sectors"], default=0),
        "coalescing": min(found["coalescing"], default=0),
        "bank_conflicts": max(found["bank_conflicts"], default=0),
        "shared_reuse": min(found["shared_reuse"], default=0),
    }


def rows_of_matrix(
    counted: Counted, one: Touched, device: DeviceModel, swizzled: bool
) -> Counter[int] | None:
    """How many of the 8 rows of a matrix, of 16 bytes each, are in each eighth of the banks.

    It has what the lanes of a warp, with all columns that each holds, need for some products. None if nothing
    is loaded as matrices: without tensorized loops, and words whose neighbours are not for the next product.
    """
    tensorized = [loop for loop in counted.loops if loop.kind is LoopKind.TENSORIZE]
    if not tensorized:
        return None
    _, column, depth = tensorized
    if one.size == 4:
        start = dict.fromkeys((loop.var for loop in counted.loops), 0)
        (first,), (second,) = (elements(one, {**start, depth.var: k}, [], swizzled) for k in (0, 1))
        if second != first + 1:
            return None
    places: set[int] = set()
    for at in lanes(counted, device):
        for j, k in product(range(extent_of(column)), range(16 // one.size)):
            places.update(elements(one, {**at, column.var: j, depth.var: k}, [], swizzled))
    rows = {place * one.size // 16 for place in places}
    assert (len(places), len(rows)) == (128 // one.size, 8), f"no matrix of {one.buffer.name}"
    return Counter(row % 8 for row in rows)


def fills_of(counted: Counted, nest: Mapping[str, Counted]) -> dict[str, int]:
    """How often the statement that stores each buffer is entered, by the loops that are around both."""
    found: dict[str, int] = {}
    for name, other in nest.items():
        common = [a for a, b in zip(other.around, counted.around, strict=False) if a is b]
        blocks = [loop for loop in common if loop.kind not in (*THREADS, LoopKind.VTHREAD)]
        found[name] = prod(map(extent_of, blocks))
    return found


def kernel_columns(nest: LoopNest, buffer: Buffer, device: DeviceModel) -> dict[str, float]:
    """The columns about the kernel that stores a buffer."""
    kernels = kernels_of(nest)
    number = next(at for at, kernel in enumerate(kernels) if _stores(kernel, buffer))
    taken = count_kernels(nest)[number]
    blocks, threads = prod(map(extent_of, open_kernel(kernels[number]).blocks)), taken.threads
    whole = ceil(threads / device.warp) * device.warp
    parts = ceil(whole / device.warp / 4)  # Warps of the fullest of four partitions.
    own = min(device.registers // 4 // parts // 256 * 256 // device.warp, 255)
    registers = min(24 + ceil(taken.local_bytes / 4 * 5 / 4), own)
    per_warp = ceil(registers * device.warp / 256) * 256
    resident = min(
        device.blocks,
        device.threads // whole,
        device.shared_bytes // (ceil((taken.shared_bytes + 1024) / 128) * 128),
        device.registers // 4 // per_warp * 4 // (whole // device.warp),
    )
    wave = max(resident, 1) * device.multiprocessors
    waves = ceil(blocks / wave)
    return {
        "grid_blocks": blocks,
        "block_threads": threads,
        **({"block_shared": taken.shared_bytes, "thread_local": taken.local_bytes} if threads > 1 else {}),
        "fills_ahead": max((b.lead for b in shared_buffers(kernels[number])), default=0),
        "warp_fill": threads / whole,
        "occupancy": min(max(resident, 1) * whole / device.threads, 1.0),
        "waves": waves,
        "wave_fill": blocks / (waves * wave),
    }


def _stores(kernel: Stmt, buffer: Buffer) -> bool:
    stores = (one for one in walk_statements(kernel) if isinstance(one, Store))
    return any(one.buffer.name == buffer.name for one in stores)
