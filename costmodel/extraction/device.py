"""The device's part of the feature table, for columns (`features.device` says what each one is)."""

from __future__ import annotations

from typing import Final

import numpy as np

from ansor.task.device import DeviceModel
from costmodel.extraction.columns import BOUND, Group
from costmodel.extraction.indices import Floats
from costmodel.extraction.kernels import VIRTUAL
from costmodel.extraction.machine import View
from costmodel.extraction.regions import last_loop
from costmodel.extraction.statements import READ
from costmodel.extraction.warps import GLOBAL, SHARED

_REGISTERS: Final = 24
_PER_WORD: Final = 1.25
"""Registers that a thread takes anyway, and for each word of its scratch."""
_WORD: Final = 4
_THREADS: Final = [position for position, mark in enumerate(BOUND) if mark.is_thread]


def device_rows(view: View, group: Group, part: slice, device: DeviceModel, out: Floats) -> None:
    """Write the device's features, unscaled, into `out`, shape `(features, columns of the view)`."""
    kernels = view.columns.kernels
    if kernels is None or group.warps is None:
        out[:] = 0.0
        return
    begins, blocks, threads, shared, local, lead, by_warps = kernels[:, view.at]
    taken = [begins, blocks, threads, shared, local, lead, by_warps]
    rows = [*taken, *_residence(blocks, threads, shared, local, device)]
    space = group.warps.space[:, part]
    elements, sectors, conflicts, fills = group.warps.facts[:, :, part]
    requests = _requests(view, device)
    regions = view.regions
    for wanted in (GLOBAL, SHARED):
        own = np.where(space == wanted, requests, 0.0)
        rows.append(own.sum(axis=0))
        if wanted == GLOBAL:
            there = space == GLOBAL
            moved = sectors * device.sector_bytes
            rows.append((own * moved).sum(axis=0))
            rows.append(np.where(there, sectors, 0.0).max(axis=0))
            useful = np.where(there, np.minimum(elements * regions.element_bytes / moved, 1.0), np.inf)
            rows.append(_finite(useful.min(axis=0)))
        else:
            rows.append((own * conflicts).sum(axis=0))
            rows.append(np.where(space == SHARED, conflicts, 0.0).max(axis=0))
    size = group.shape[..., part].prod(axis=1, dtype=np.float64)
    reads = (space == SHARED) & (regions.kind == READ)
    uses = regions.points[0] * regions.count / (size * fills)
    rows.append(_finite(np.where(reads, uses, np.inf).min(axis=0)))
    for position, row in enumerate(rows):
        out[position] = row


def _finite(values: Floats) -> Floats:
    return np.asarray(np.where(np.isfinite(values), values, 0.0))


def registers_of(local: Floats) -> Floats:
    """
    Estimate the registers that a thread takes whose scratch has so many bytes.

    Source: what the CUDA compiler takes for kernels of the catalogue, without spills.
    """
    return np.asarray(_REGISTERS + np.ceil(local / _WORD * _PER_WORD))


def _residence(
    blocks: Floats, threads: Floats, shared: Floats, local: Floats, device: DeviceModel
) -> list[Floats]:
    """How full warps, multiprocessors and waves are."""
    whole = np.ceil(threads / device.warp) * device.warp
    registers = np.minimum(registers_of(local), np.maximum(device.registers_of_thread(threads), 1.0))
    resident = np.maximum(device.resident_blocks(threads, registers, shared), 1.0)
    wave = resident * device.multiprocessors
    waves = np.ceil(blocks / wave)
    occupancy = np.minimum(resident * whole / device.threads, 1.0)
    return [threads / whole, occupancy, waves, blocks / (waves * wave)]


def _requests(view: View, device: DeviceModel) -> Floats:
    """Requests of every access, shape `(buffers, columns)`.

    A load runs in all iterations of loops over blocks and threads, of those that its index moves with, and of
    those around them, or around what fills its buffer: if they are unrolled, each copy has loops of its own.
    Virtual threads are copies inside of all loops. A reduction is stored once.
    """
    grid = np.full(view.extent.shape, -1) if view.columns.bound is None else view.columns.bound[:, view.at]
    threads = np.where(np.isin(grid, _THREADS), view.extent, 1.0).prod(axis=0)
    working = threads / np.ceil(threads / device.warp)
    regions, around = view.regions, (view.real & (grid != VIRTUAL))[:, None]
    last = np.maximum(last_loop(regions.used & view.looping[:, None]), last_loop(grid >= 0))
    last = np.maximum(last, regions.shared - 1)
    runs = (regions.used | (around & (view.numbers[:, None] <= last))) & ~view.body[:, None]
    requests: Floats = view.loaded * np.where(runs, view.strips[:, None], 1.0).prod(axis=0) / working
    reduced = np.where(view.own & view.reduces, view.strips, 1.0).prod(axis=0)
    requests[0] = view.groups * view.regs / reduced / working
    return requests
