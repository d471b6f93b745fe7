"""Columns beside TVM's, of programs for a GPU alone: what decides the speed of a kernel.

A *kernel* is a stage at root with all that is computed inside it, and all its statements have its facts. A
*request* is one load or store of a warp, the threads that run in step; what it touches is counted for the
first warp (`extraction.warps`). Where statements load from is memory of the device, or shared memory: what is
private to a thread is in neither. The *resident* blocks of a multiprocessor are as many as its blocks,
threads, shared memory and registers allow (`DeviceModel.resident_blocks`; for each thread 24 registers and 5
for 4 words of its scratch, or as many as a block leaves it), at least 1; those of all multiprocessors are one
*wave*. The *body* is that of `machine`; loops
over blocks and threads are no loops of it, and those over virtual threads and over the elements of a private
array that finds room in registers are written out. Devices are described in `ansor.task.device`.
"""

from __future__ import annotations

from typing import Final

from costmodel.features.spec import Feature

_DEVICE: Final = (
    ("kernel", "flag", "the stage is computed at root: a kernel begins"),
    ("grid_blocks", "blocks", "product of the block loops of the kernel"),
    ("block_threads", "threads", "threads of a block"),
    ("block_shared", "bytes", "shared memory of a block, with that of reductions over threads"),
    ("thread_local", "bytes", "scratch of a thread, virtual threads included"),
    ("fills_ahead", "iterations", "most that some tile in shared memory is filled ahead"),
    ("by_warps", "flag", "the innermost loops are a product of small matrices, which a warp does together"),
    ("warp_fill", "ratio", "threads / threads of the warps that these are"),
    (
        "occupancy",
        "ratio",
        "threads of the resident blocks, in whole warps / most that a multiprocessor holds",
    ),
    ("waves", "waves", "ceil(blocks / blocks of a wave)"),
    ("wave_fill", "ratio", "blocks / (waves x blocks of a wave)"),
    (
        "global_requests",
        "requests",
        "sum over accesses to memory of the device: instructions / threads of a warp that work. Loads: those "
        "of the body, in all iterations of loops over blocks and threads, of those that the index moves "
        "with, and of those around them, or around what fills the buffer. Stores: one for each vector, or "
        "for all terms of a reduction",
    ),
    ("global_traffic", "bytes", "sum over them: requests x sectors x bytes of a sector"),
    ("sectors", "sectors", "most sectors that one of these requests touches"),
    ("coalescing", "ratio", "least of: bytes of different elements / bytes of these sectors; at most 1"),
    ("shared_requests", "requests", "sum over accesses to shared memory, counted alike"),
    ("bank_cycles", "cycles", "sum over them: requests x words that the busiest bank delivers"),
    ("bank_conflicts", "words", "most words that a bank delivers for one of them"),
    (
        "shared_reuse",
        "uses",
        "least over reads of shared memory: points x distinct indices / (elements x how often it is filled)",
    ),
)

DEVICE_FEATURES: Final[tuple[Feature, ...]] = tuple(
    Feature(name, unit, "device", text) for name, unit, text in _DEVICE
)
