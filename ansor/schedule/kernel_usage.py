"""What the kernels of a GPU program take of the device, for one program or for whole columns of them.

A stage at root, with all that is computed inside it, is a *kernel*. Of each: how many threads a block has,
how far virtual threads go, and how many bytes the threads of a block share or have to themselves. The same
stages may be written with their block and thread loops fused (as programs are) or not; the numbers are equal.

Where scratch lies follows lowering (`storage`): what is "shared" exists once in a block, what is "local" once
in a thread, and what has no scope of its own lies with the innermost of the loops around it that make one of
the two. A reduction over threads takes one element for each of them beside that, to combine partial results.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.dtypes import dtype_info
from ansor.errors import ScheduleError
from ansor.schedule.bounds import Bounds, enclosing_loops
from ansor.schedule.extents import Extent, Number, where
from ansor.schedule.kernels import root_of
from ansor.schedule.stages import Annotation, Iterator, IteratorKind
from ansor.schedule.state import State
from ansor.schedule.storage import padded_strides
from ansor.te.expr import Expr

Mask = bool | NDArray[np.bool_]
"""A truth value, or one per row."""

THREADS: Final = (Annotation.THREAD_X, Annotation.THREAD_Y, Annotation.THREAD_Z)
"""The thread indices of a block, the one that runs fastest first."""


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
    blocks
        Blocks of the grid.
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
    uneven
        Whether loops bound to one thread index differ in length.
    """

    root: int
    stages: tuple[int, ...]
    blocks: Number
    threads: Number
    vthreads: Number
    shared_bytes: Number
    local_bytes: Number
    vector_bytes: Number
    uneven: Mask


def kernels_of(bounds: Bounds) -> tuple[KernelUsage, ...]:
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
        lengths = [_product(_bound_to(state.stages[s].iterators, (index,))) for s in members]
        longest: Number = 1
        for length in lengths:
            longest = _greater(longest, length)
        for length in lengths:
            uneven = uneven | ((length != 1) & (length != longest))
        threads = threads * longest
    shared: Number = 0
    local: Number = 0
    vectors: Number = 0
    for stage_id in members:
        own, partial = _scratch_bytes(bounds, stage_id), _partial_bytes(state, stage_id)
        shared, local = shared + own[0] + partial, local + own[1]
        lanes = _product(_bound_to(state.stages[stage_id].iterators, (Annotation.VECTORIZE,)))
        widest = max(dtype_info(tensor.dtype).bytes for tensor in state.stages[stage_id].op.outputs)
        vectors = _greater(vectors, lanes * widest)
    loops = state.stages[root].iterators
    return KernelUsage(
        root,
        members,
        _product(loop for loop in loops if loop.annotation.is_block and not isinstance(loop.extent, Expr)),
        threads,
        _product(_bound_to(loops, (Annotation.VTHREAD,))),
        shared,
        local,
        vectors,
        uneven,
    )


def _greater(a: Number, b: Number) -> Number:
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


def _bound_to(loops: Iterable[Iterator], annotations: tuple[Annotation, ...]) -> Iterable[Iterator]:
    return (loop for loop in loops if loop.annotation in annotations)


def _product(loops: Iterable[Iterator]) -> Number:
    """Iterations of some loops together."""
    result: Number = 1
    for loop in loops:
        result = result * _number(loop.extent, f"loop {loop.name!r}")
    return result


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
    taken: Number = elements * sum(dtype_info(tensor.dtype).bytes for tensor in stage.op.outputs)
    if stage.scope == "shared":
        return taken, 0
    loops = [state.stages[target].iterators[at] for target, at in enclosing_loops(state, stage_id)]
    virtual = _product(_bound_to(loops, (Annotation.VTHREAD,)))
    if stage.scope != "global":
        return 0, taken * virtual
    alone = _product(_bound_to(loops, THREADS)) * virtual > 1
    in_block = _product(loop for loop in loops if loop.annotation.is_block) > 1
    return where(alone, 0, where(in_block, taken, 0)), where(alone, taken * virtual, 0)


def _partial_bytes(state: State, stage_id: int) -> Number:
    """Bytes for the partial results of a reduction over threads."""
    stage = state.stages[stage_id]
    reducing = [x for x in stage.iterators if x.kind is IteratorKind.REDUCE and x.annotation.is_thread]
    if not reducing:
        return 0
    around = [state.stages[target].iterators[at] for target, at in enclosing_loops(state, stage_id)]
    threads = _product(_bound_to((*around, *stage.iterators), THREADS))
    size = sum(dtype_info(tensor.dtype).bytes for tensor in stage.op.outputs)
    return where(_product(reducing) > 1, threads * size, 0)
