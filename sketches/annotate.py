"""How loops are executed: which may be parallel, unrolled or vectorised, decided for whole columns.

What is *possible* depends on structure alone and is listed once per family as sites; how far each row goes
(how many loops are fused and made parallel or vector) depends on its extents and comes as integer columns.

Source: TVM's CPU rules Parallel, Unroll and Vectorization, `sketch_policy_rules.cc`. Differs in that all
vectorisable loops may be fused (TVM leaves one of several out, and so do we on request), loops
without a second iteration are not annotated, and nested parallel loops never arise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.errors import DefinitionError
from ansor.schedule.access import ALWAYS_UNROLL_ATTR
from ansor.schedule.stages import Annotation, ComputeAt, IteratorKind, Stage, made_from
from ansor.schedule.state import State
from sketches.locations import Rows
from sketches.relations import attribute_names, has_reduce_iterator, is_computed, is_tiled

Values = NDArray[np.int64]
"""One column of choices, shape `(rows,)`."""

PARALLEL_PER_CORE: Final = 16
"""Parallel iterations per core at which fusing further loops stops."""

DERIVE: Final = -1
"""In an annotation column: what the rules here would choose. For decisions that come from nowhere, as in a
program that was moved to another family."""


@dataclass(frozen=True, slots=True)
class ParallelSite:
    """
    A run of neighbouring spatial loops that may be fused from the outside and made parallel.

    Parameters
    ----------
    stage, start, stop
        The loops at positions `start .. stop - 1` of the stage. The run ends before a reduction or
        annotated loop and after a loop that other stages are attached to.
    ordinal
        Number of the run within its stage, from the outside.
    parent
        Position (in the family's list) of the run around this one, -1 at the outside of a root stage. This
        run is used only in rows where the parent's loops all have one iteration.
    """

    stage: int
    start: int
    stop: int
    ordinal: int
    parent: int


@dataclass(frozen=True, slots=True)
class UnrollSite:
    """A stage that gets an unroll pragma (`has_pragma`), and loops that its author wants unrolled always."""

    stage: int
    loops: tuple[int, ...]
    has_pragma: bool


@dataclass(frozen=True, slots=True)
class VectorSite:
    """A stage whose `count` innermost loops may be fused from the inside and vectorised."""

    stage: int
    count: int


def parallel_sites(state: State) -> tuple[ParallelSite, ...]:
    """List the runs of loops that may be parallel, each after its parent."""
    sites: list[ParallelSite] = []

    def visit(stage: int, start: int, ordinal: int, parent: int) -> None:
        loops = state.stages[stage].iterators
        stop = start
        attached: tuple[int, ...] = ()
        while stop < len(loops) and not attached:
            loop = loops[stop]
            if loop.kind is not IteratorKind.SPATIAL or loop.annotation is not Annotation.NONE:
                break
            attached = state.attached_to(stage, stop)
            stop += 1
        if stop == start:
            return
        own = len(sites)
        sites.append(ParallelSite(stage, start, stop, ordinal, parent))
        if attached:
            for inner in attached:
                visit(inner, 0, 0, own)
            visit(stage, stop, ordinal + 1, own)

    for stage_id, stage in enumerate(state.stages):
        if is_computed(state, stage_id) and stage.compute_at is ComputeAt.ROOT:
            visit(stage_id, 0, 0, -1)
    return tuple(sites)


def unroll_sites(state: State) -> tuple[UnrollSite, ...]:
    """List the stages with a reduction, and those with loops to unroll always."""
    sites: list[UnrollSite] = []
    for stage_id in range(len(state.stages)):
        if not is_computed(state, stage_id):
            continue
        loops = _always_unrolled(state, stage_id)
        has_pragma = has_reduce_iterator(state, stage_id)
        if loops or has_pragma:
            sites.append(UnrollSite(stage_id, loops, has_pragma))
    return tuple(sites)


def _always_unrolled(state: State, stage_id: int) -> tuple[int, ...]:
    """Loops of the innermost tile that the operation's attribute names, innermost first."""
    wanted = attribute_names(state, stage_id, ALWAYS_UNROLL_ATTR)
    if not wanted:
        return ()
    loops = state.stages[stage_id].iterators
    chosen: list[int] = []
    seen: set[str] = set()
    for position in range(len(loops) - 1, -1, -1):
        axes = _original_axes(state.stages[stage_id], loops[position].name)
        if axes <= seen:
            break  # A second loop of an axis: we are out of the innermost tile.
        seen |= axes
        if axes <= wanted and len(axes) == 1 and loops[position].annotation is Annotation.NONE:
            chosen.append(position)
    return tuple(chosen)


def _original_axes(stage: Stage, loop: str) -> set[str]:
    """Axes that a loop came from, those of a cached computation by their original names, without `_c`."""
    axes = {axis.name for axis in (*stage.compute.axis, *stage.compute.reduce_axis)}
    return {name.removesuffix("_c") for name in made_from(stage, loop) & axes}


def vector_sites(state: State) -> tuple[VectorSite, ...]:
    """List the stages whose innermost loops are spatial and free; a tiled stage offers one loop."""
    sites: list[VectorSite] = []
    for stage_id, stage in enumerate(state.stages):
        if not is_computed(state, stage_id):
            continue
        unrolled = _always_unrolled(state, stage_id)
        limit = 1 if is_tiled(state, stage_id) else len(stage.iterators)
        count = 0
        for position in range(len(stage.iterators) - 1, -1, -1):
            loop = stage.iterators[position]
            free = loop.annotation is Annotation.NONE and position not in unrolled
            if count >= limit or not free or loop.kind is not IteratorKind.SPATIAL:
                break
            if state.attached_to(stage_id, position):
                break
            count += 1
        if count:
            sites.append(VectorSite(stage_id, count))
    return tuple(sites)


def extent_matrix(state: State, stage: int, start: int, stop: int, rows: Rows) -> Values:
    """Extents of neighbouring loops, shape `(rows, stop - start)` [iterations].

    Raises
    ------
    DefinitionError
        If an extent is symbolic.
    """
    matrix = np.empty((len(rows), stop - start), dtype=np.int64)
    for column, loop in enumerate(state.stages[stage].iterators[start:stop]):
        extent = loop.extent
        if isinstance(extent, np.ndarray):
            matrix[:, column] = extent[rows]
        elif isinstance(extent, int):
            matrix[:, column] = extent
        else:
            raise DefinitionError(
                f"loop {loop.name!r} of stage {state.stages[stage].name!r} has the extent {extent}; sampling "
                "needs numbers: make the task from a computation with constant sizes"
            )
    return matrix


def parallel_widths(
    state: State,
    sites: tuple[ParallelSite, ...],
    rows: Rows,
    num_cores: int,
    wanted: Sequence[Values] | None = None,
) -> list[Values]:
    """
    Decide how many outer loops of each site are fused and made parallel.

    Parameters
    ----------
    state
        With all bounds inferred.
    sites
        Of `parallel_sites` of the same structure.
    rows
        Rows of the state's columns to decide for.
    num_cores
        Cores to occupy.
    wanted
        Wishes, one column per site: so many loops where that is possible. `DERIVE`, and no wishes, mean that
        loops are fused until the product of extents exceeds 16 per core.

    Returns
    -------
    list[Values]
        One column per site; 0 leaves the site serial, because that is wished, because it has one iteration,
        or because it lies inside loops of more than one iteration.
    """
    widths: list[Values] = []
    serial: list[NDArray[np.bool_]] = []
    for position, site in enumerate(sites):
        products = np.cumprod(extent_matrix(state, site.stage, site.start, site.stop, rows), axis=1)
        enough = products > PARALLEL_PER_CORE * num_cores
        width = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, site.stop - site.start)
        if wanted is not None:
            wish = wanted[position]
            width = np.where(wish == DERIVE, width, np.minimum(wish, site.stop - site.start))
        reached = serial[site.parent] if site.parent >= 0 else np.ones(len(rows), dtype=np.bool_)
        trivial = products[:, -1] == 1
        widths.append(np.where(reached & ~trivial, width, 0))
        serial.append(reached & trivial)
    return widths


def vector_counts(
    state: State,
    site: VectorSite,
    rows: Rows,
    max_elements: int,
    fused_end: Values,
    leave_one: bool,
) -> Values:
    """
    Find how many innermost loops of a stage may be fused and vectorised, at most.

    Parameters
    ----------
    state, rows
        As in `parallel_widths`.
    site
        The stage.
    max_elements
        Largest product of their extents.
    fused_end
        Position behind the parallel loops of the stage, shape `(rows,)`.
    leave_one
        Leave one loop out where several qualify, as TVM does.

    Returns
    -------
    Values
        0 where no loop qualifies or all that do have one iteration.
    """
    count = len(state.stages[site.stage].iterators)
    extents = extent_matrix(state, site.stage, count - site.count, count, rows)
    products = np.cumprod(extents[:, ::-1], axis=1)
    allowed = (products <= max_elements) & (np.arange(site.count)[None, :] < (count - fused_end)[:, None])
    most = allowed.sum(axis=1)
    if leave_one:
        most = np.where(most > 1, most - 1, most)
    reach = np.where(most > 0, np.take_along_axis(products, np.maximum(most - 1, 0)[:, None], 1)[:, 0], 1)
    return np.asarray(np.where(reach > 1, most, 0))
