"""What the kernels of a GPU program take of the device, for one program or for whole columns of them.

A stage at root, with all that is computed inside it, is a *kernel*. Of each: how many threads a block has,
how far virtual threads go, and how many bytes the threads of a block share or have to themselves. The same
stages may be written with their block and thread loops fused (as programs are) or not; the numbers are equal.

Where scratch lies follows lowering (`storage`, `ansor.ir.passes.bind_threads`): what is "shared" exists once
in a block, what is "local" once in a thread, and so does what has no scope of its own inside of threads;
otherwise that is shared. What threads fill together is shared in any case, one for each of the other threads
around it. A reduction over threads takes beside that what each of them reduces to, and shared memory where
these meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.dtypes import dtype_info
from ansor.errors import ScheduleError
from ansor.ir.shared_memory import in_whole
from ansor.schedule.bounds import Bounds
from ansor.schedule.extents import Extent, Number, greater, in_any_row, where
from ansor.schedule.kernels import (
    THREADS,
    iterations,
    lead_of,
    loops_around,
    root_of,
    virtual_threads,
)
from ansor.schedule.stages import Annotation, Iterator, IteratorKind, Stage
from ansor.schedule.state import State
from ansor.schedule.storage import padded_strides
from ansor.te.expr import Expr

Mask = bool | NDArray[np.bool_]
"""A truth value, or one per row."""

_BLOCKS = (Annotation.BLOCK_X, Annotation.BLOCK_Y, Annotation.BLOCK_Z)


@dataclass(frozen=True, slots=True, eq=False)
class KernelUsage:
    """
    What one kernel takes; ints, or columns with one value per row.

    Parameters
    ----------
    root
        The stage at root.
    stages
        It and all that is computed inside, in stage order.
    grid
        Blocks along x, y and z.
    threads
        Threads of a block, all thread indices together.
    vthreads
        Virtual threads of a thread.
    shared_bytes
        Of a block.
    local_bytes
        Of a thread, virtual threads included.
    vector_bytes
        The longest vector loop, by what it stores.
    lead
        The most iterations that some tile in shared memory is filled ahead.
    uneven
        Whether loops bound to one thread index differ in length, which TVM refuses.
    """

    root: int
    stages: tuple[int, ...]
    grid: tuple[Number, Number, Number]
    threads: Number
    vthreads: Number
    shared_bytes: Number
    local_bytes: Number
    vector_bytes: Number
    lead: Number
    uneven: Mask

    @property
    def blocks(self) -> Number:
        """Of the grid."""
        x, y, z = self.grid
        return x * y * z


def kernel_usages(bounds: Bounds) -> tuple[KernelUsage, ...]:
    """
    Count what each kernel of a program takes, kernels in stage order.

    Raises
    ------
    ScheduleError
        If a thread loop, or scratch inside a kernel, has a symbolic size.
    """
    state = bounds.state
    members: dict[int, list[int]] = {}
    for stage_id in sorted(bounds.stages):
        members.setdefault(root_of(state, stage_id), []).append(stage_id)
    return tuple(_usage(bounds, root, tuple(found)) for root, found in sorted(members.items()))


def _usage(bounds: Bounds, root: int, members: tuple[int, ...]) -> KernelUsage:
    state = bounds.state
    threads: Number = 1
    uneven: Mask = False
    for index in THREADS:
        lengths = [iterations(state.stages[s].iterators, index) for s in members]
        longest: Number = 1
        for length in lengths:
            longest = greater(longest, length)
        for length in lengths:
            uneven = uneven | ((length != 1) & (length != longest))
        threads = threads * longest
    shared: Number = 0
    local: Number = 0
    vectors: Number = 0
    lead: Number = 0
    for stage_id in members:
        if in_any_row(state.stages[stage_id].lead):
            lead = greater(lead, lead_of(state, stage_id))
        own, partial = _scratch_bytes(bounds, stage_id), _partial_bytes(state, stage_id)
        shared, local = shared + own[0] + partial[0], local + own[1] + partial[1]
        lanes = iterations(state.stages[stage_id].iterators, Annotation.VECTORIZE)
        widest = max(dtype_info(tensor.dtype).bytes for tensor in state.stages[stage_id].op.outputs)
        vectors = greater(vectors, lanes * widest)
    loops = [loop for loop in state.stages[root].iterators if not isinstance(loop.extent, Expr)]
    x, y, z = (iterations(loops, index) for index in _BLOCKS)
    return KernelUsage(
        root,
        members,
        (x, y, z),
        threads,
        virtual_threads(state, root),
        shared,
        local,
        vectors,
        lead,
        uneven,
    )


def _number(extent: Extent | None, what: str) -> Number:
    if extent is None or isinstance(extent, Expr):
        raise ScheduleError(
            f"{what} has the size {extent}, and what a kernel takes of a GPU has to be known; give it a "
            "constant size"
        )
    return extent


def _scratch_bytes(bounds: Bounds, stage_id: int) -> tuple[Number, Number]:
    """Bytes of a stage's result that its block shares, and those that each thread has."""
    state = bounds.state
    stage = state.stages[stage_id]
    if stage_id not in state.attach:
        return 0, 0
    shape = tuple(_number(r.width, f"scratch {stage.name!r}") for r in bounds.stages[stage_id].region)
    strides = padded_strides(stage, shape)
    elements: Any = 1
    for extent in shape:
        elements = elements * extent
    if strides:
        elements = strides[0] * shape[0]
    if stage.scope == "shared":
        lead = lead_of(state, stage_id) if in_any_row(stage.lead) else 0
        return _of_outputs(stage, elements * (lead + 1)), 0
    around = loops_around(state, stage_id)
    elements = elements * iterations(around, Annotation.VTHREAD)
    private: Any = iterations(stage.iterators, *THREADS) == 1
    if stage.scope == "global":
        private = private & (iterations(around, *THREADS) > 1)
    own = elements * sum(dtype_info(tensor.dtype).bytes for tensor in stage.op.outputs)
    together = _of_outputs(stage, elements * _others(around, stage.iterators))
    return where(private, 0, together), where(private, own, 0)


def _of_outputs(stage: Stage, elements: Any) -> Number:
    """Bytes of shared memory that the outputs of a stage take, of so many elements each."""
    taken: Number = sum(in_whole(elements * dtype_info(tensor.dtype).bytes) for tensor in stage.op.outputs)
    return taken


def _others(around: Sequence[Iterator], own: Sequence[Iterator]) -> Number:
    """Threads of the indices that are bound around a stage, and not by its own loops."""
    count: Number = 1
    for index in THREADS:
        count = count * where(iterations(own, index) > 1, 1, iterations(around, index))
    return count


def _partial_bytes(state: State, stage_id: int) -> tuple[Number, Number]:
    """Bytes where the threads of a reduction meet, and those of the results of each."""
    stage = state.stages[stage_id]
    reducing = [at for at, loop in enumerate(stage.iterators) if loop.kind is IteratorKind.REDUCE]
    bound = [stage.iterators[at] for at in reducing if stage.iterators[at].annotation.is_thread]
    if not bound:
        return 0, 0
    elements: Number = 1
    for loop in stage.iterators[reducing[0] :]:
        if loop.kind is IteratorKind.SPATIAL and not loop.annotation.is_bound:
            elements = elements * _number(loop.extent, f"loop {loop.name!r}")
    virtual = virtual_threads(state, stage_id)
    size = sum(dtype_info(tensor.dtype).bytes for tensor in stage.op.outputs)
    threads = iterations(stage.iterators, *THREADS) * _others(loops_around(state, stage_id), stage.iterators)
    together = iterations(bound, *THREADS) > 1
    meeting = _of_outputs(stage, threads * virtual)
    return where(together, meeting, 0), where(together, elements * virtual * size, 0)
