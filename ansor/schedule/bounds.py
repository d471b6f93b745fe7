"""Bound inference: which part of each stage is needed, hence how far every loop runs.

Stages are visited from the outputs backwards. Each read by a consumer is evaluated as an interval (see
`affine`) in which the loops around the producer's place stay fixed and all others range over their
extents; the union over reads is the producer's region, one interval per axis. Its loops' extents follow by
passing the region's widths down through splits and fuses.

Which loops count as "around" depends on storage: a shared buffer is filled by all threads of a block
together, so thread and vthread loops range even where they enclose it.

Extents may be ints, columns of a population, or symbolic sizes; this is the only implementation for all
three. Lower ends are kept as affine forms, which lowering turns into index expressions.

Source: interval analysis as in Halide and TVM (InferBound), with clipping to the real extents everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.depth import with_depth
from ansor.errors import ScheduleError
from ansor.schedule.affine import (
    Affine,
    Atom,
    Interval,
    LoopAtom,
    OpaqueAtom,
    UnknownBoundError,
    chosen,
    floordiv,
    floormod,
    relax,
    union,
)
from ansor.schedule.evaluation import (
    divisions,
    evaluate,
    evaluate_exactly,
    is_multiple,
    is_sum,
    may_wrap,
    turns_seldom,
    unwrapped,
)
from ansor.schedule.extents import Extent, expr_of, extent_of, in_any_row, is_one, multiply, product
from ansor.schedule.inlining import effective_reads, inlined_operations
from ansor.schedule.loop_steps import SplitStep, part_extents
from ansor.schedule.stages import Annotation, ComputeAt, FuseRelation, Iterator, Stage
from ansor.schedule.step_base import Step, refuse_uncountable
from ansor.te.expr import Expr, IterVar, Var, free_vars
from ansor.te.tensor import ComputeOp, Operation, Tensor

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class StageBounds:
    """What bound inference knows of one stage.

    `region` holds one interval per spatial axis: its base is fixed at the place where the stage is
    computed, its width is the extent of that axis there. `extents` gives every loop, past and present,
    by name.
    """

    region: tuple[Interval, ...]
    extents: Mapping[str, Extent]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The state with all extents filled in, and the bounds of each stage that has loops, by position."""

    state: State
    stages: Mapping[int, StageBounds]

    def take(self, rows: NDArray[np.int64]) -> Bounds | None:
        """
        Give the bounds of some rows of a population, in the order given.

        Returns
        -------
        Bounds | None
            None where a region starts at a quotient or remainder; that is for `infer_bounds`.
        """
        regions = [interval for known in self.stages.values() for interval in known.region]
        if any(isinstance(atom, OpaqueAtom) for interval in regions for atom in interval.base.terms):
            return None
        of, state = _Rows(rows), self.state
        stages = {
            stage_id: StageBounds(
                tuple(map(of.of_interval, known.region)),
                {loop: of.of(extent) for loop, extent in known.extents.items()},
            )
            for stage_id, known in self.stages.items()
        }
        taken = replace(
            state,
            stages=tuple(of.of_stage(one) if at in stages else one for at, one in enumerate(state.stages)),
            steps=tuple(map(of.of_step, state.steps)),
        )
        return Bounds(taken, stages)


def infer_bounds(state: State, whole: Collection[int] = ()) -> Bounds:
    """Infer the region and the loop extents of every stage.

    Parameters
    ----------
    whole
        Stages that are computed wholly, whatever others read of them, as outputs are.

    Raises
    ------
    ScheduleError
        If the state has holes, a stage is attached where not all of its consumers can see it, or a loop of
        symbolic extent is vectorized or unrolled.
    """
    if not state.is_concrete:
        raise ScheduleError(
            "bound inference needs all split lengths, and a split of this state has one left open; it is a "
            "sketch, sample a program from it first"
        )
    return with_depth(lambda: _inferred(state, whole))  # indices that were inlined may be nested deeply


def _inferred(state: State, whole: Collection[int]) -> Bounds:
    inference = _Inference(state, whole)
    for stage_id in range(len(state.stages) - 1, -1, -1):
        stage = state.stages[stage_id]
        if not stage.is_placeholder and stage.compute_at is not ComputeAt.INLINED:
            inference.visit(stage_id)
    stages = []
    for stage_id, stage in enumerate(state.stages):
        known = inference.bounds.get(stage_id)
        if known is not None:
            loops = tuple(
                Iterator(loop.name, known.extents[loop.name], loop.kind, loop.annotation)
                for loop in stage.iterators
            )
            stage = replace(stage, iterators=loops)
            _refuse_symbolic_lanes(stage)
        stages.append(stage)
    from ansor.schedule.state import State as StateClass

    filled = StateClass(state.dag, tuple(stages), state.attach, state.steps)
    return Bounds(filled, inference.bounds)


class _Rows:
    """Takes rows out of columns; a column that occurs twice is taken once, and stays one column."""

    def __init__(self, rows: NDArray[np.int64]) -> None:
        self._rows = rows
        self._taken: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any) -> Any:
        """Rows of a column; any other value as it is."""
        if not isinstance(value, np.ndarray):
            return value
        known = self._taken.get(id(value))
        if known is None:
            known = self._taken[id(value)] = (value, value[self._rows])
        return known[1]

    def of_interval(self, interval: Interval) -> Interval:
        base = interval.base
        terms = {atom: self.of(coefficient) for atom, coefficient in base.terms.items()}
        return Interval(Affine(self.of(base.const), terms), self.of(interval.width), self.of(interval.around))

    def of_stage(self, stage: Stage) -> Stage:
        loops = tuple(
            Iterator(loop.name, self.of(loop.extent), loop.kind, loop.annotation) for loop in stage.iterators
        )
        relations = tuple(
            relation
            if isinstance(relation, FuseRelation)
            else replace(relation, lengths=tuple(self.of(length) for length in relation.lengths))
            for relation in stage.relations
        )
        return replace(stage, iterators=loops, relations=relations)

    def of_step(self, step: Step) -> Step:
        return (
            replace(step, lengths=tuple(map(self.of, step.lengths))) if isinstance(step, SplitStep) else step
        )


def _refuse_symbolic_lanes(stage: Stage) -> None:
    """Refuse to vectorize or unroll a loop whose extent turns out to be symbolic."""
    for position, loop in enumerate(stage.iterators):
        if isinstance(loop.extent, Expr) and loop.annotation in (Annotation.VECTORIZE, Annotation.UNROLL):
            raise ScheduleError(
                f"{loop.annotation.word} {loop.name!r} of stage {stage.name!r}: its extent {loop.extent} is "
                f"symbolic; split it by a constant and take the inner part\n{stage.describe(position)}"
            )


def pass_down(stage: Stage, axes: Mapping[str, Extent]) -> dict[str, Extent]:
    """Extents of all loops of a stage from those of its axes.

    A loop bound to threads keeps the length of its split even where less is needed: the block has that
    many threads, and the guard keeps the others idle.
    """
    extents = dict(axes)
    threads = {loop.name for loop in stage.iterators if loop.annotation.is_thread}
    for relation in stage.relations:
        if isinstance(relation, FuseRelation):
            total: Extent = 1
            for parent in relation.parents:
                total = multiply(total, extents[parent])
            refuse_uncountable(stage, relation.fused, total)
            extents[relation.fused] = total
        else:
            made = part_extents(extents[relation.parent], relation.lengths, relation.inner_to_outer)
            for part, extent in zip(relation.parts, made, strict=True):
                assert extent is not None
                extents[part] = extent
            refuse_uncountable(stage, relation.parent, product([extents[part] for part in relation.parts]))
            if relation.inner_to_outer:
                lengths = zip(relation.parts[1:], relation.lengths, strict=True)
                extents.update({p: e for p, e in lengths if p in threads and e is not None})
    return extents


def part_strides(lengths: list[Extent]) -> list[Extent]:
    """Stride of each part of a split, outermost first, from the parts' lengths."""
    strides: list[Extent] = []
    stride: Extent = 1
    for length in reversed(lengths):
        strides.append(stride)
        stride = multiply(stride, length)
    return strides[::-1]


def enclosing_loops(state: State, stage: int) -> list[tuple[int, int]]:
    """The loops `(stage, position)` around the place where `stage` is computed, innermost stage first."""
    loops: list[tuple[int, int]] = []
    place = state.attach.get(stage)
    while place is not None:
        target, last = place
        loops.extend((target, position) for position in range(last + 1))
        place = state.attach.get(target)
    return loops


def loops_outwards(state: State, stage: int) -> list[tuple[int, int]]:
    """The loops `(stage, position)` around the place where `stage` is computed, the nearest first."""
    by_target: dict[int, list[tuple[int, int]]] = {}
    for target, position in enclosing_loops(state, stage):
        by_target.setdefault(target, []).append((target, position))
    return [place for places in by_target.values() for place in reversed(places)]


_Where = tuple[Expr | None, ...]
"""The indices of a read; None for one whose arithmetic may wrap."""


@lru_cache(maxsize=4096)
def _reads(op: ComputeOp, inlined: frozenset[Operation]) -> tuple[tuple[Tensor, _Where], ...]:
    """What an operation reads and where, with others inlined, whose values wrap in indices, too."""
    return tuple(
        (read.tensor, tuple(None if may_wrap(index) else index for index in read.indices))
        for read in effective_reads(op, inlined)
    )


class _Inference:
    def __init__(self, state: State, whole: Collection[int]) -> None:
        self.state = state
        self.whole = whole
        self.bounds: dict[int, StageBounds] = {}
        self.reads: dict[int, dict[int, list[_Where]]] = {}
        self._together: dict[int, dict[Var, Affine]] = {}
        inlined = inlined_operations(state)
        for stage_id, stage in enumerate(state.stages):
            if stage.is_placeholder or stage.compute_at is ComputeAt.INLINED:
                continue
            for tensor, indices in _reads(stage.compute, inlined):
                readers = self.reads.setdefault(state.stage_id(tensor), {})
                readers.setdefault(stage_id, []).append(indices)

    def extent(self, atom: LoopAtom) -> Extent:
        return self.bounds[atom.stage].extents[atom.name]

    def visit(self, stage_id: int) -> None:
        stage = self.state.stages[stage_id]
        op = stage.compute
        full: list[Extent] = [extent_of(axis.extent) for axis in op.axis]
        if stage_id in self.whole or self.state.is_output(stage_id):
            region = [Interval.full(extent) for extent in full]
        else:
            region = self._needed(stage_id, full)
        axes = {a.name: r.width for a, r in zip(op.axis, region, strict=True)}
        axes.update({a.name: extent_of(a.extent) for a in op.reduce_axis})
        self.bounds[stage_id] = StageBounds(tuple(region), pass_down(stage, axes))

    def _needed(self, stage_id: int, full: list[Extent]) -> list[Interval]:
        """The union of what all consumers read, one interval per axis."""
        fixed = self._fixed_atoms(stage_id)
        region: list[Interval | None] = [None] * len(full)
        consumers: list[_Consumer] = []
        for consumer, reads in self.reads.get(stage_id, {}).items():
            self._check_visible(stage_id, consumer)
            variables, turning = self._consumer_axes(consumer, fixed)
            consumers.append((variables, turning, reads))
            for dim, indices in enumerate(zip(*reads, strict=True)):
                for index in dict.fromkeys(indices):
                    try:
                        if index is None:
                            raise UnknownBoundError
                        exact = self._exact(index, consumer, fixed)
                        found = (exact or evaluate(index, variables, self.extent)).clip(full[dim])
                        known = region[dim]
                        if known is not None:
                            found = union(known, found, self.extent).clip(full[dim])
                        region[dim] = found
                    except UnknownBoundError:
                        region[dim] = Interval.full(full[dim])
        found_or_full = [Interval.full(full[d]) if r is None else r for d, r in enumerate(region)]
        if not fixed:
            return found_or_full
        return [self._shorter(consumers, dim, full[dim], r) for dim, r in enumerate(found_or_full)]

    def _shorter(self, consumers: Sequence[_Consumer], dim: int, full: Extent, region: Interval) -> Interval:
        """A region of an axis, or what is read around the end of that where it is at most half as much.

        Of an axis of symbolic size it is that wherever it is known: a number is taken to be less.
        """
        if isinstance(full, np.ndarray) or not _may_be_whole(region, full):
            return region
        found: Interval | None = None
        is_around = False
        for variables, turning, reads in consumers:
            same = {a for a in turning if is_multiple(expr_of(a.extent), full)}
            axes = dict(variables)
            axes.update((axis, turning[axis]) for axis in same)
            for index in dict.fromkeys(indices[dim] for indices in reads):
                if index is None:
                    return region
                turns = turns_seldom(index, full)
                near = unwrapped(index, full) if turns else index
                if (turns and may_wrap(near)) or not is_sum(near, same):
                    return region
                is_around |= turns or not same.isdisjoint(free_vars(near))
                try:
                    one = evaluate(near, axes, self.extent)
                    found = one if found is None else union(found, one, self.extent)
                except UnknownBoundError:
                    return region
        if found is None or not is_around or isinstance(found.width, Expr):
            return region
        rows = isinstance(region.width, Expr) or found.width * 2 <= region.width
        return replace(chosen(rows, found, region), around=rows) if in_any_row(rows) else region

    def _exact(self, index: Expr, consumer: int, fixed: set[Atom]) -> Interval | None:
        """What an index takes apart that the consumer's loops put together; None where that is not seen.

        So each piece of an axis is known for itself: `i // 8` and `i % 8` of `i = 8*i0 + i1`, whichever of
        the two loops ranges. Intervals of `i` lose that where the inner one stays fixed.
        """
        if not divisions(index):
            return None
        variables = self._put_together(consumer)
        try:
            form = evaluate_exactly(index, variables, self.extent)
        except UnknownBoundError:
            return None
        return relax(form, lambda atom: atom in fixed, self.extent)

    def _put_together(self, consumer: int) -> dict[Var, Affine]:
        """The axes of a consumer as forms over its loops, those that are such forms."""
        if consumer not in self._together:
            stage, known = self.state.stages[consumer], self.bounds[consumer]
            local = local_axes(stage, consumer, known.extents, None)
            regions = list(zip(stage.compute.axis, known.region, strict=True))
            starts = {axis.name: region.base for axis, region in regions}
            turning = {axis.name for axis, region in regions if in_any_row(region.around)}
            self._together[consumer] = {
                axis: starts.get(axis.name, Affine()) + local[axis.name].base
                for axis in (*stage.compute.axis, *stage.compute.reduce_axis)
                if is_one(local[axis.name].width) and axis.name not in turning
            }
        return self._together[consumer]

    def _fixed_atoms(self, stage_id: int) -> set[Atom]:
        """The loops that stay fixed while this stage is computed."""
        shared = self.state.stages[stage_id].scope == "shared"
        fixed: set[Atom] = set()
        for target, position in enclosing_loops(self.state, stage_id):
            loop = self.state.stages[target].iterators[position]
            if shared and (loop.annotation.is_thread or loop.annotation is Annotation.VTHREAD):
                continue
            fixed.add(LoopAtom(target, loop.name))
        return fixed

    def _check_visible(self, stage_id: int, consumer: int) -> None:
        """Refuse a stage that is computed inside loops which some consumer is outside of."""
        place = self.state.attach.get(stage_id)
        if place is None:
            return
        target, position = place
        inside = consumer
        while inside != target:
            up = self.state.attach.get(inside)
            if up is None:
                break
            inside = up[0]
            if inside == target and up[1] >= position:
                return
        if consumer == target:
            return
        name, at = self.state.stages[stage_id].name, self.state.stages[target]
        raise ScheduleError(
            f"stage {name!r} is computed inside loop {at.iterators[position].name!r} of {at.name!r}, but "
            f"its consumer {self.state.stages[consumer].name!r} is outside of that loop; "
            f"compute {name!r} further out\n" + at.describe(position)
        )

    def _consumer_axes(
        self, consumer: int, fixed: set[Atom]
    ) -> tuple[dict[Var, Interval], dict[IterVar, Interval]]:
        """Every axis of a consumer as an interval, its loops outside `fixed` ranging.

        Those whose regions go around their ends are known as a whole; also as they are before they do.
        """
        stage, known = self.state.stages[consumer], self.bounds[consumer]
        local = local_axes(stage, consumer, known.extents, fixed)
        variables: dict[Var, Interval] = {}
        turning: dict[IterVar, Interval] = {}
        for axis, region in zip(stage.compute.axis, known.region, strict=True):
            try:
                start = relax(region.base, lambda atom: atom in fixed, self.extent)
                variables[axis] = start + local[axis.name]
                if in_any_row(region.around):
                    turning[axis] = variables[axis]
                    whole = Interval.full(extent_of(axis.extent))
                    variables[axis] = chosen(region.around, whole, variables[axis])
            except UnknownBoundError:
                variables[axis] = Interval.full(extent_of(axis.extent))
        for axis in stage.compute.reduce_axis:
            variables[axis] = local[axis.name]
        return variables, turning


_Consumer = tuple[dict[Var, Interval], dict[IterVar, Interval], list[_Where]]
"""The axes of a stage as intervals, those that go around as they are before they do, and what it reads."""


def _may_be_whole(region: Interval, full: Extent) -> bool:
    """Whether a region is all of an axis, in some row."""
    if isinstance(region.width, Expr) or isinstance(full, Expr):
        return isinstance(region.width, Expr)
    return in_any_row(region.width >= full)


_START: Final = Interval.point(Affine())


def local_axes(
    stage: Stage, stage_id: int, extents: Mapping[str, Extent], fixed: set[Atom] | None
) -> dict[str, Interval]:
    """Axes (and all past loops) of a stage, counted from the start of its region, as intervals.

    Loops in `fixed` stay symbolic (all of them where it is None), others range over their extents.
    """
    values: dict[str, Interval] = {}
    for loop in stage.iterators:
        atom = LoopAtom(stage_id, loop.name)
        extent = extents[loop.name]
        if is_one(extent):
            values[loop.name] = _START
        elif fixed is None or atom in fixed:
            values[loop.name] = Interval.point(Affine.of_atom(atom))
        else:
            values[loop.name] = Interval.full(extent)
    for relation in reversed(stage.relations):
        if isinstance(relation, FuseRelation):
            inner: Extent = 1
            for position in range(len(relation.parents) - 1, -1, -1):
                parent = relation.parents[position]
                values[parent] = _component(values[relation.fused], inner, extents[parent], position == 0)
                inner = multiply(inner, extents[parent])
        else:
            strides = part_strides([extents[part] for part in relation.parts])
            total = _START
            for part, stride in zip(relation.parts, strides, strict=True):
                value = values[part]
                if isinstance(stride, Expr) or (isinstance(value.width, Expr) and not is_one(stride)):
                    total = Interval.full(extents[relation.parent])
                    break
                if value is not _START:
                    total = total + (value if is_one(stride) else value.scale(stride))
            values[relation.parent] = total.clip(extents[relation.parent]) if fixed is not None else total
    return values


def _component(fused: Interval, inner: Extent, extent: Extent, outermost: bool) -> Interval:
    """One of the loops that were fused: `fused // inner % extent`."""
    if isinstance(fused.width, Expr) or isinstance(inner, Expr):
        return Interval.full(extent)
    value = floordiv(fused, inner)
    if outermost:
        return value.clip(extent)
    return Interval.full(extent) if isinstance(extent, Expr) else floormod(value, extent).clip(extent)
