"""What programs for a target may use: what the target says, and for the rest what its device says."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ansor.errors import NoDeviceError
from ansor.runtime.device.door import KINDS, DeviceInfo, device_info
from ansor.task.device import DEFAULT_ARCH
from ansor.task.hardware import HardwareParams
from ansor.task.target import Target

_VTHREADS_PER_WARP: Final = 4
_MOBILE: Final = frozenset(("mali", "adreno"))


def hardware_params(target: Target) -> HardwareParams:
    """
    Describe the hardware of a target.

    For OpenCL and CUDA what the target does not say is asked of the device, if there is one; a target that
    names another architecture than the device's, or a mobile GPU, is not about the device. A CPU that poses
    as a device allows blocks that no GPU would run: of it and a GPU's defaults the smaller counts.

    Raises
    ------
    TargetError
        If the kind has no hardware description, or `ANSOR_DEVICE` names no device.
    """
    params = HardwareParams.for_target(target)
    info = _device_of(target)
    if info is None:
        return params

    def allowed(by_device: int, by_default: int) -> int:
        return min(by_device, by_default) if info.is_cpu else by_device

    changes: dict[str, int] = {}
    if not target.states("max_threads_per_block", "max_num_threads"):
        changes["max_threads_per_block"] = allowed(info.max_threads_per_block, params.max_threads_per_block)
    if not target.states("max_shared_memory_per_block"):
        shared = allowed(info.max_shared_memory_per_block, params.max_shared_memory_per_block)
        changes["max_shared_memory_per_block"] = shared
    if not target.states("thread_warp_size") and info.warp_size is not None:
        changes["warp_size"] = info.warp_size
        changes["max_vthread_extent"] = max(1, info.warp_size // _VTHREADS_PER_WARP)
    return replace(params, **changes)


def arch_of(target: Target) -> str:
    """What CUDA programs of a target are compiled for: its `-arch`, else the device's, else sm_80."""
    if target.kind != "cuda":
        return ""
    if target.arch is not None:
        return target.arch
    info = _device_of(target)
    return DEFAULT_ARCH if info is None else info.arch


def settled_target(target: Target) -> Target:
    """Return a CUDA target that names no architecture with that of the device, if there is one."""
    info = _device_of(target) if target.kind == "cuda" and target.arch is None else None
    return target if info is None else target.with_attrs(arch=info.arch)


def _device_of(target: Target) -> DeviceInfo | None:
    """The device that a target is about, if there is one."""
    if target.kind not in KINDS or _MOBILE & {target.device, *target.keys}:
        return None
    try:
        info = device_info(target.kind)
    except NoDeviceError:
        return None
    if target.kind == "cuda" and target.arch not in (None, info.arch):
        return None
    return info
