"""The roofline of a GPU: seconds of the statements of kernels, from the device's part of the feature table.

Each statement has a time for its arithmetic, for the instructions of its warps, for shared memory, for the
common cache and for the device's memory; it takes as long as the longest, and a part of the others. All but
the last are shared by multiprocessors: as many as have blocks, evenly as blocks divide. A multiprocessor is
as fast as it has warps to switch between while some wait, and computes in those of its parts that have any.
Every kernel takes a launch.

Scratch of a thread that finds no register is stored and loaded for each operation. A block's threads have all
registers of a multiprocessor at most, and what is more than a thread has room for lies in memory as a whole.
Threads beyond the end of what is only copied have nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.checks import check_fields
from ansor.errors import DefinitionError
from ansor.ir.passes.kernel_pipeline import THREAD_LIMITS
from ansor.task.device import PARTITIONS, DeviceModel
from costmodel.extraction.device import registers_of

Raw = Mapping[str, NDArray[np.float64]]
FloatArray = NDArray[np.float64]

USED: Final = (
    "work",
    "math",
    "branches",
    "index_div",
    "lanes",
    "waste",
    "footprint",
    "kernel",
    "grid_blocks",
    "block_threads",
    "thread_local",
    "fills_ahead",
    "by_warps",
    "warp_fill",
    "occupancy",
    "global_requests",
    "global_traffic",
    "shared_requests",
    "bank_cycles",
)
"""The columns of the feature table that are looked at."""

_WORD: Final = 4
_MATRICES: Final = 8
"""Times that one request for matrices delivers as much as one for single elements of 16 bits."""


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """
    What a multiprocessor does in a cycle, and what things cost.

    Parameters
    ----------
    issue
        Instructions of warps per cycle.
    math
        Operations that an intrinsic function counts for.
    division
        The same for a division of integers in an index, once for all lanes of a vector.
    shared
        Requests of warps that shared memory answers per cycle; a thread may load several words with one.
    hiding
        Warps with which half of the waiting is hidden.
    ahead
        Part of them with which it is, at most 1, for each iteration that shared memory is filled ahead.
    tensor
        Part of the multiply-adds of tensor cores (`DeviceModel.tensor`) that programs reach.
    words
        How many elements of a product they load by one request of a thread, and matrices by one of a warp.
    l2
        Bytes per cycle from the common cache.
    reach
        How many times its share of the memory's speed one multiprocessor can use alone.
    spill
        Operations that one costs whose operand is in no register.
    launch
        Seconds that a kernel takes to start.
    overlap
        Part of the shorter times that hides behind the longest, at most 1.

    Raises
    ------
    DefinitionError
        If a number is negative, or a rate is 0.
    """

    issue: float = 4.0
    math: float = 4.0
    division: float = 1.0
    shared: float = 2.0
    hiding: float = 5.0
    ahead: float = 0.5
    tensor: float = 1.0
    words: float = 32.0
    l2: float = 48.0
    reach: float = 2.0
    spill: float = 8.0
    launch: float = 3e-6
    overlap: float = 0.85

    def __post_init__(self) -> None:
        check_fields(self, *self.__slots__, low=0)
        check_fields(self, "issue", "shared", "tensor", "words", "l2", "reach", above=0)
        for name in ("ahead", "overlap"):
            if getattr(self, name) > 1:
                raise DefinitionError(f"DeviceRates({name}={getattr(self, name)}): it is a part, at most 1")


def device_parts(rates: DeviceRates, device: DeviceModel, raw: Raw) -> dict[str, FloatArray]:
    """
    Estimate the times of statements on a GPU.

    Parameters
    ----------
    rates
        Its constants.
    device
        The GPU.
    raw
        Columns of the feature table in their own units.

    Returns
    -------
    dict[str, FloatArray]
        Seconds per statement, by what takes them; "seconds" is their combination.
    """
    blocks, threads, local = (np.rint(raw[name]) for name in ("grid_blocks", "block_threads", "thread_local"))
    blocks, threads = np.maximum(blocks, 1.0), np.maximum(threads, 1.0)
    rounds = np.ceil(blocks / device.multiprocessors)
    working = blocks / rounds  # multiprocessors, on average
    warps = np.ceil(threads / device.warp)
    resident = np.maximum(np.minimum(raw["occupancy"] * device.threads / device.warp, rounds * warps), 1.0)
    hiding = rates.hiding * rates.ahead ** raw["fills_ahead"]
    busy = working * resident / (resident + hiding)
    lively = busy * np.minimum(resident / PARTITIONS, 1.0)  # of parts that have a warp
    lanes = device.lanes * np.where(raw["warp_fill"] > 0, raw["warp_fill"], 1.0)
    words = local / _WORD
    homeless = np.maximum(registers_of(local) - device.registers_of_thread(threads), 0.0)
    homeless = np.where(words > THREAD_LIMITS.room, words, homeless)
    spilled = np.minimum(homeless / np.maximum(words, 1.0), 1.0)
    by_warps = raw["by_warps"] > 0
    together = np.where(by_warps, rates.words, 1.0)
    faster = np.where(by_warps, rates.tensor * device.tensor, 1.0)
    needed = np.where(raw["work"] > 0, 1.0, 1.0 / np.maximum(raw["waste"], 1.0))
    divisions = raw["index_div"] / np.maximum(raw["lanes"], 1.0)
    operations = raw["work"] + raw["math"] * (rates.math - 1.0) + divisions * needed * rates.division
    requests = (raw["global_requests"] + raw["shared_requests"] / together) * needed
    traffic = raw["global_traffic"] * needed
    instructions = (
        (raw["work"] / together + raw["branches"]) / device.warp / np.maximum(raw["warp_fill"], 1e-3)
    )
    beyond = np.clip(1.0 - device.l2_bytes / np.maximum(raw["footprint"], 1.0), 0.0, 1.0)
    first = np.minimum(raw["footprint"], traffic)
    moved = first + (traffic - first) * beyond
    speed = device.memory_bytes * np.minimum(rates.reach * working / device.multiprocessors, 1.0)
    cycles = {
        "compute": operations * (1.0 + spilled * rates.spill) / (lively * lanes * faster),
        "issue": (instructions + requests) / (lively * rates.issue),
        "shared": raw["bank_cycles"] * needed / (busy * rates.shared * np.where(by_warps, _MATRICES, 1.0)),
        "L2": traffic / (working * rates.l2),
    }
    times: dict[str, Any] = {name: taken / device.hertz for name, taken in cycles.items()}
    times["memory"] = moved / speed
    longest = np.maximum.reduce(list(times.values()))
    rest = np.sum(list(times.values()), axis=0) - longest
    times["launch"] = raw["kernel"] * rates.launch
    times["seconds"] = longest + (1.0 - rates.overlap) * rest + times["launch"]
    return times
