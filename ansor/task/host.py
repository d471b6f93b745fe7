"""What this machine's system tells of it: cores that a process may use, and caches.

Cores come from the scheduling affinity and the control group's CPU quota, caches from `/sys`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from ansor.knobs import num_threads

_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_LEVELS: Final = range(1, 4)
"""Of caches that `HardwareParams` knows."""
LEAST_CACHE: Final = 1024
"""Bytes of the smallest cache that anybody means; a smaller number is one of KiB or MiB."""
LEAST_WIDTH: Final = 4
"""Bytes of the least vector or cache line."""


_chosen: list[int] = []
"""What `choose_num_threads` said last."""


def choose_num_threads(count: int) -> None:
    """Let so many threads be what parallel loops have unless told otherwise, and what searches plan for."""
    _chosen[:] = [count]


def default_num_threads() -> int:
    """Threads of a parallel loop: `choose_num_threads`, else `ANSOR_NUM_THREADS`, else `available_cores()`.

    Raises
    ------
    TargetError
        If the variable says no number of threads (`ansor.knobs`).
    """
    return _chosen[0] if _chosen else num_threads() or available_cores()


def available_cores() -> int:
    """Cores that this process may keep busy: its affinity, limited by the control groups' CPU quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, min(cores, math.ceil(quota))) if quota is not None else cores


def cgroup_quota(groups: str | None = None, root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """CPUs' worth of time that the control groups (v2 or v1) of this process grant; None without a limit.

    `groups` is the text of `/proc/self/cgroup`; the tightest limit on the path to the root counts.
    """
    if groups is None:
        try:
            groups = os.fsdecode(_OWN_GROUPS.read_bytes())
        except OSError:
            return None
    limits: list[float] = []
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base = root
        elif "cpu" in controllers.split(","):
            base = next(
                (root / name for name in (controllers, "cpu") if (root / name).is_dir()), root / "cpu"
            )
        else:
            continue
        place = base / path.strip("/")
        while True:
            limit = _quota_at(place)
            if limit is not None:
                limits.append(limit)
            if place == base or base not in place.parents:
                break
            place = place.parent
    return min(limits, default=None)


def _quota_at(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        granted, each = int(quota), int(period)
    except (OSError, ValueError):  # a quota of "max", too
        return None
    return granted / each if granted > 0 and each > 0 else None


@cache
def host_caches(root: Path = Path("/sys/devices/system/cpu")) -> Mapping[str, int]:
    """`HardwareParams` fields of this machine's data caches, as far as the system tells them."""
    found: dict[str, int] = {}
    for index in sorted(root.glob("cpu0/cache/index*")):
        try:
            facts = {name: (index / name).read_text().strip() for name in ("level", "type", "size")}
            level, size = int(facts["level"]), _size(facts["size"])
            if facts["type"] == "Instruction" or level not in _LEVELS or size < LEAST_CACHE:
                continue
            found[f"l{level}_bytes"] = size
            if level == 1 and (ways := int((index / "ways_of_associativity").read_text())) >= 0:
                found["l1_ways"] = ways
        except (OSError, ValueError):
            continue
    if found:
        found.setdefault("l3_bytes", 0)
    return found


def host_cache_line(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Bytes of a line of this machine's first data cache; 64 if the system does not tell, or nonsense."""
    try:
        size = int((root / "cpu0/cache/index0/coherency_line_size").read_text())
    except (OSError, ValueError):
        return 64
    return size if is_width(size) else 64


def is_width(size: int) -> bool:
    """Whether so many bytes may be a vector or a cache line."""
    return size >= LEAST_WIDTH and size & (size - 1) == 0


def _size(text: str) -> int:
    unit = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
