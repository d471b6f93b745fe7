"""Whether this machine can measure a task at all: its instructions or device, and memory for its arguments.

Asked before anything is built, because the answer is about the task and not about one program of it. What a
CPU can do is told by the architecture of the triple, by the features that a target names, and by what LLVM
generates for the CPU that it names.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path
from typing import Final

import llvmlite.binding as llvm

from ansor.codegen.c.cuda_compilers import find_compiler
from ansor.codegen.machine import Machine
from ansor.dtypes import to_numpy
from ansor.errors import RunError, TargetError
from ansor.runtime.device.door import DeviceInfo, device_info
from ansor.runtime.device.hardware import arch_of
from ansor.schedule.dag import ComputeDAG
from ansor.task.device import runs_on
from ansor.task.isa import architecture, is_host
from ansor.task.target import Target
from measure.correctness.fill import constant_shape
from measure.workers.device import guarded_bytes
from measure.workers.processor import CPU, kind_of

_GROUP_MEMORY: Final = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Files of a control group (v2, v1): what it may have, and what it has."""
COPIES = 2
"""How often the arguments are in memory: as the data to compare with, and where programs work on them."""


def check_target(target: Target) -> None:
    """Refuse a target whose programs this machine cannot run.

    Raises
    ------
    TargetError
        If its architecture is another, it needs a feature that this CPU lacks, or there is no such device.
    BuildError
        If it is for CUDA, and no compiler is installed.
    """
    kind = kind_of(target)
    if kind != CPU:
        _check_device(target, device_info(kind))
        return
    if target.is_gpu:
        raise TargetError(
            f"programs for the target `{target}` cannot run: there is no code for {target.kind}"
        )
    lacking = _lacking(str(target))
    if lacking:
        raise TargetError(
            f"programs for the target `{target}` cannot run on this machine: {lacking}; tune on a machine of "
            "that kind, or leave out -mtriple, -mcpu and -mattr to tune for this one"
        )


def _check_device(target: Target, info: DeviceInfo) -> None:
    """Refuse a CUDA target whose code this GPU does not take."""
    if info.kind != "cuda":
        return
    _check_compiler(info)  # Said now, and not of each program.
    arch = arch_of(target)
    if not runs_on(arch, info.arch):
        raise TargetError(
            f"programs for the target `{target}` cannot run on this machine: they are for {arch}, and "
            f"{info.name} is {info.arch}; leave out -arch to tune for it"
        )


def _check_compiler(info: DeviceInfo) -> None:
    """Refuse a compiler of a newer CUDA than the GPU's driver, which would not load its code."""
    compiler, known = find_compiler(), info.cuda_release
    if known and compiler.release > known:
        wheel = f"nvidia-cuda-nvrtc-cu{known}" if known < 13 else f"nvidia-cuda-nvrtc=={known}.*"
        raise TargetError(
            f"{compiler.name} is of CUDA {compiler.release}, and the driver of {info.name} runs code of CUDA "
            f"{known} and before; update the driver, or install a compiler that suits it: pip install "
            f"'{wheel}', without a newer one beside it"
        )


@cache
def _lacking(text: str) -> str:
    """What this machine lacks for a target, in words; empty if nothing is known to be missing."""
    target = Target.parse(text)
    if not is_host(target):
        return f"they are for {architecture(target)}, and its CPU is {architecture(Target('llvm'))}"
    here = llvm.get_host_cpu_features()
    missing = [name[1:] for name in target.mattr if name[0] == "+" and here.get(name[1:]) is False]
    if missing:
        return f"its CPU has no {', '.join(missing)}"
    if target.mcpu in (None, "native"):
        return ""
    return Machine.for_target(target).beyond(Machine.host())


def check_memory(dag: ComputeDAG, memory_limit: int | None = None, device: DeviceInfo | None = None) -> None:
    """Refuse a computation whose arguments this machine has no room for.

    Parameters
    ----------
    memory_limit
        Bytes that the process which runs programs may use.
    device
        What programs run on, if they run on a device.

    Raises
    ------
    RunError
        If the arguments, as often as they are needed, exceed the memory or the space for temporary files, or
        one is larger than the device allows. What guards them there counts.
    """
    sizes = [prod(constant_shape(tensor)) * to_numpy(tensor.dtype).itemsize for tensor in dag.tensors]
    size = sum(sizes)
    folder = tempfile.gettempdir()
    guarded = [] if device is None else [guarded_bytes(one, device.alignment) for one in sizes]
    rooms = [
        (COPIES * size, available_memory(), "bytes of memory are available"),
        (size, memory_limit, "bytes are what the process that runs programs may use"),
        (sum(guarded), None if device is None else device.memory_bytes, "bytes are the memory of the device"),
        (size, shutil.disk_usage(folder).free, f"bytes are free in {folder}"),
    ]
    for needed, room, what in rooms:
        if room is not None and needed > room:
            raise RunError(
                f"the arguments of this task take {size:,} bytes, measuring it needs {needed:,}, and "
                f"{room:,} {what}; tune it for smaller sizes, or on a larger machine"
            )
    most = None if device is None else device.max_allocation
    if device is not None and most is not None and max(guarded, default=0) > most:
        largest = dag.tensors[sizes.index(max(sizes))]
        raise RunError(
            f"the argument {largest.name!r} of this task takes {max(sizes):,} bytes, {max(guarded):,} with "
            f"what guards it, and {device.name} allows {most:,} in one piece; tune it for smaller sizes, or "
            "on another device"
        )


def available_memory(
    system: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Bytes that can be taken into use: of the machine, or of the control group if that is less; or None."""
    found = []
    try:
        lines = dict(line.split(":", 1) for line in system.read_text().splitlines() if ":" in line)
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError):
        if "SC_AVPHYS_PAGES" in os.sysconf_names:
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
    for limit, used in _GROUP_MEMORY:
        try:
            cache_bytes = _cached_in_group((group / limit).parent / "memory.stat")
            most = int((group / limit).read_text())
            found.append(max(0, most - int((group / used).read_text()) + cache_bytes))
        except (OSError, ValueError):
            continue
    return min(found, default=None)


def group_memory(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that the control group may have at all; None without a limit."""
    found = []
    for limit, _ in _GROUP_MEMORY:
        with suppress(OSError, ValueError):  # "max" is no number.
            found.append(int((group / limit).read_text()))
    return min(found, default=None)


def _cached_in_group(stat: Path) -> int:
    """Bytes of files that the group's memory holds and would give up."""
    try:
        facts = dict(line.split() for line in stat.read_text().splitlines())
        return int(facts.get("inactive_file", 0))
    except (OSError, ValueError):
        return 0
