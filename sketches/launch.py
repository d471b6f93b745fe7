"""How a sketch's loops become blocks and threads, as data; `sketches.threads` works it out.

A program for a GPU fuses the loops that are bound to one index, which hides from bound inference which axis
they belong to. So a sketch has its bindings in two forms: the *structure*, in which every loop is bound on
its own, is what populations infer bounds of and features see; the *spelling* is what programs and records
say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.state import State
from ansor.schedule.steps import Step
from ansor.task.device import DeviceModel
from ansor.task.hardware import HardwareParams
from sketches.columns import ColumnKind, Hole
from sketches.factors import divisors
from sketches.rule import SketchContext

_USUAL_WARP: Final = 32
"""Threads to begin with on a device that does not tell how many run in step."""
_USUAL_THREADS: Final = 1024
"""Most threads of a block on a device of which the limit is not known."""
_MOST_BLOCKS: Final = 16
"""Blocks for each multiprocessor that may share one reduction."""
_USUAL_VECTOR: Final = 16
"""Bytes that a thread loads at once on such a device."""


@dataclass(frozen=True, slots=True)
class Launch:
    """
    Columns of tile lengths that decide how a tiled stage is launched.

    Parameters
    ----------
    stage
        The stage whose loops they split, by its name in columns.
    vthreads, threads
        The product of these columns is the number of virtual threads, and of threads in a block.
    may_be_small
        Whether its blocks may have fewer threads than run in step: it has few elements, or none of its loops
        can be divided so.
    lanes
        Threads of a block for each of these: those of loops whose lengths the rule that made them has set.
    """

    stage: str
    vthreads: tuple[int, ...]
    threads: tuple[int, ...]
    may_be_small: bool
    lanes: int = 1

    def allows(self, values: NDArray[np.int64], hardware: HardwareParams) -> NDArray[np.bool_]:
        """
        Tell which rows have an allowed number of threads.

        All of them do where no column decides it.

        Source: ThreadBind of TVM (`sketch_policy_rules.cc`), and its check of threads per block.
        """
        limits = hardware.limits
        allowed = values[:, list(self.vthreads)].prod(axis=1) <= limits.max_vthread_extent
        if self.threads:
            threads = values[:, list(self.threads)].prod(axis=1) * self.lanes
            allowed &= threads <= limits.max_threads_per_block
            if not self.may_be_small:
                allowed &= threads >= min(hardware.warp_size, limits.max_threads_per_block)
        return np.asarray(allowed)


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """
    The bindings of a sketch.

    Parameters
    ----------
    structure
        A state with the history of the sketch's steps, all lengths set.
    program
        The same for `steps`.
    steps
        The spelling, holes open.
    first
        How many steps of both forms are those of the rules, before the first that binds.
    launches
        Of each tiled stage.
    """

    structure: State
    program: State
    steps: tuple[Step, ...]
    first: int
    launches: tuple[Launch, ...] = ()


def least_threads(hardware: HardwareParams) -> int:
    """Threads that a loop is spread over at first: those that run in step."""
    warp = hardware.warp_size if hardware.warp_size > 1 else _USUAL_WARP
    return min(warp, hardware.limits.max_threads_per_block)


def divides_into_warps(extents: Sequence[int], hardware: HardwareParams) -> bool:
    """Whether divisors of loops make an allowed number of threads, at least those that run in step."""
    most = hardware.limits.max_threads_per_block
    products = {1}
    for extent in extents:
        products = {one * divisor for one in products for divisor in divisors(extent)}
        products = {product for product in products if product <= most}
    return max(products) >= min(hardware.warp_size, most)


def most_threads(hardware: HardwareParams) -> int:
    """Threads that a block may have."""
    return hardware.max_threads_per_block or _USUAL_THREADS


def thread_lengths(extent: int, hardware: HardwareParams) -> tuple[int, ...]:
    """List how many threads may share a loop: doublings of the least, up to the first that is one each.

    An extent of 0 is not known.
    """
    lengths = [least_threads(hardware)]
    while (not extent or lengths[-1] < extent) and 2 * lengths[-1] <= most_threads(hardware):
        lengths.append(2 * lengths[-1])
    return tuple(lengths)


def most_parts(context: SketchContext) -> int:
    """Blocks that may share one reduction."""
    return _MOST_BLOCKS * DeviceModel.for_target(context.target).multiprocessors


def part_counts(extent: int, context: SketchContext) -> tuple[int, ...]:
    """List into how many parts a reduction may be divided: powers of two.

    Each has a term for every thread of a block, and multiprocessors have so many blocks at most.
    """
    most = min(extent // least_threads(context.hardware), most_parts(context))
    return tuple(1 << shift for shift in range(1, max(most, 2).bit_length()))


def load_bytes(hardware: HardwareParams) -> int:
    """Bytes that a thread loads at once."""
    return hardware.vector_unit_bytes or _USUAL_VECTOR


def fetch_lengths(hardware: HardwareParams) -> tuple[int, ...]:
    """List how many elements a thread may copy at once: powers of two, of bytes at the widest."""
    return tuple(1 << shift for shift in range(load_bytes(hardware).bit_length()))


def usual_lengths(hole: Hole, context: SketchContext) -> tuple[int, ...]:
    """List the lengths that a search gives a column of threads, parts or copies."""
    if hole.kind is ColumnKind.THREADS:
        return thread_lengths(hole.extent, context.hardware)
    if hole.kind is ColumnKind.PARTS:
        return part_counts(hole.extent, context)
    return fetch_lengths(context.hardware)


def launchable(
    launches: Sequence[Launch], values: NDArray[np.int64], hardware: HardwareParams
) -> NDArray[np.bool_]:
    """Tell which rows have blocks of an allowed number of threads, as far as tile lengths decide it."""
    allowed = np.ones(len(values), dtype=np.bool_)
    for launch in launches:
        allowed &= launch.allows(values, hardware)
    return allowed
