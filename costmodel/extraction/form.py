"""Programs as features see them: one structure, its integers as columns, no loop fused for execution.

A population's row and the state that it materialises to describe the same program in two ways. The state has
fused its parallel and its vector loops and annotated the results; the population says with columns which
loops that would be. `Form` is the common denominator: loops before that fusing, and for each loop the rows in
which it is parallel, vector, unrolled or bound. A form made from a state has one row.

Bounds are inferred on this structure, so that extents are the same whichever way a program came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Union

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.bounds import Bounds, infer_bounds
from ansor.schedule.extents import Extent
from ansor.schedule.stages import Annotation, FuseRelation, Iterator, IteratorKind, Relation, Stage
from ansor.schedule.state import State
from ansor.te.tensor import ComputeOp
from sketches import ColumnKind, Population

Mask = Union[bool, NDArray[np.bool_]]
"""Which rows: all or none of them, or one truth value per row."""

Marks = Mapping[tuple[int, str], Mapping[Annotation, Mask]]
"""How loops, by stage and name, are executed, and in which rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """
    Programs of one structure.

    Parameters
    ----------
    bounds
        Stages with loops before fusing for execution, and their bounds.
    rows
        Number of programs.
    marks
        Annotations of loops.
    unroll_steps
        Limit of the unroll pragma [steps] of each stage that has one.
    streaming
        In which rows a stage has streaming stores, for stages that may.
    """

    bounds: Bounds
    rows: int
    marks: Marks
    unroll_steps: Mapping[int, Extent]
    streaming: Mapping[int, Mask]

    @property
    def state(self) -> State:
        """The structure, all extents filled in."""
        return self.bounds.state

    @classmethod
    def of_population(cls, population: Population) -> Form:
        """
        Describe all rows of a population.

        Raises
        ------
        ScheduleError
            If the structure is illegal for these rows.
        """
        family, values = population.family, population.values
        state = population.bounds  # whoever checked the rows has inferred them
        marks = _annotated(state)

        def mark(stage: int, position: int, annotation: Annotation, rows: Mask) -> None:
            if np.any(rows):
                known = marks.setdefault((stage, state.stages[stage].iterators[position].name), {})
                known[annotation] = known.get(annotation, False) | rows

        for site, at in zip(family.parallel, family.positions(ColumnKind.PARALLEL), strict=True):
            for position in range(site.start, site.stop):
                mark(site.stage, position, Annotation.PARALLEL, values[:, at] > position - site.start)
        for vector, at in zip(family.vectors, family.positions(ColumnKind.VECTORIZE), strict=True):
            last = len(state.stages[vector.stage].iterators) - 1
            for inner in range(vector.count):
                mark(vector.stage, last - inner, Annotation.VECTORIZE, values[:, at] > inner)
        steps: dict[int, Extent] = {}
        pragmas = iter(family.positions(ColumnKind.UNROLL))
        for unroll in family.unrolls:
            for position in unroll.loops:
                name = state.stages[unroll.stage].iterators[position].name
                parallel = marks.get((unroll.stage, name), {}).get(Annotation.PARALLEL, False)
                mark(unroll.stage, position, Annotation.UNROLL, np.logical_not(parallel))
            if unroll.has_pragma:
                steps[unroll.stage] = np.ascontiguousarray(values[:, next(pragmas)])
        streaming: dict[int, Mask] = dict.fromkeys(_streaming(state), True)
        for stage_id, at in zip(family.streams, family.positions(ColumnKind.STREAM), strict=True):
            streaming[stage_id] = values[:, at] > 0
        plain, names = unfused(state)
        bounds = population.stored(infer_bounds(plain) if names else population.inferred)
        return cls(bounds, len(values), _renamed(marks, names), steps, streaming)

    @classmethod
    def of_state(cls, state: State) -> Form:
        """
        Describe one program.

        Raises
        ------
        ScheduleError
            If the state has holes or is illegal.
        """
        marks = _annotated(state)
        steps: dict[int, Extent] = {
            stage_id: stage.auto_unroll_max_step
            for stage_id, stage in enumerate(state.stages)
            if stage.auto_unroll_max_step > 0
        }
        plain, names = unfused(state)
        streaming = dict.fromkeys(_streaming(state), True)
        return cls(infer_bounds(plain), 1, _renamed(marks, names), steps, streaming)


def _streaming(state: State) -> list[int]:
    """Stages that have streaming stores in all rows."""
    return [stage_id for stage_id, stage in enumerate(state.stages) if stage.streaming]


def _annotated(state: State) -> dict[tuple[int, str], dict[Annotation, Mask]]:
    """What a state annotates: all of a program, or of a population what its sketch says."""
    return {
        (stage_id, loop.name): {loop.annotation: True}
        for stage_id, stage in enumerate(state.stages)
        for loop in stage.iterators
        if loop.annotation is not Annotation.NONE
    }


Names = Mapping[tuple[int, str], tuple[str, ...]]
"""The loops, outermost first, that a loop by stage and name was made from."""


def unfused(state: State) -> tuple[State, Names]:
    """
    Replace loops that are fused, and not split again, by those they were fused from.

    Stages computed inside a fused loop are computed inside its innermost part then. The history stays.
    """
    names: dict[tuple[int, str], tuple[str, ...]] = {}
    stages: list[Stage] = []
    moves: dict[int, list[int]] = {}
    for stage_id, stage in enumerate(state.stages):
        if any(isinstance(relation, FuseRelation) for relation in stage.relations):
            stage, parts = _unfused_stage(stage)
            names.update({(stage_id, name): found for name, found in parts.items()})
            ends = np.cumsum([len(found) for found in parts.values()]) - 1
            moves[stage_id] = ends.tolist()
        stages.append(stage)
    if not names:
        return state, names
    attach = {
        inner: (target, moves[target][loop] if target in moves else loop)
        for inner, (target, loop) in state.attach.items()
    }
    return State(state.dag, tuple(stages), attach, state.steps), names


def _unfused_stage(stage: Stage) -> tuple[Stage, dict[str, tuple[str, ...]]]:
    """Undo fuses from the last one back; also gives the parts of every loop of the stage, in order."""
    parts: dict[str, tuple[str, ...]] = {loop.name: (loop.name,) for loop in stage.iterators}
    kinds = stage_kinds(stage)
    relations: list[Relation] = []
    for relation in reversed(stage.relations):
        holder = next(
            (
                n
                for n, found in parts.items()
                if isinstance(relation, FuseRelation) and relation.fused in found
            ),
            None,
        )
        if holder is None or not isinstance(relation, FuseRelation):
            relations.append(relation)
            continue
        at = parts[holder].index(relation.fused)
        parts[holder] = (*parts[holder][:at], *relation.parents, *parts[holder][at + 1 :])
    loops: list[Iterator] = []
    for loop in stage.iterators:
        if parts[loop.name] == (loop.name,):
            loops.append(loop)
            continue
        loops.extend(Iterator(name, None, kinds[name], loop.annotation) for name in parts[loop.name])
    return replace(stage, iterators=tuple(loops), relations=tuple(reversed(relations))), parts


def stage_kinds(stage: Stage) -> dict[str, IteratorKind]:
    """Give the kind of every loop of a stage, past and present."""
    kinds: dict[str, IteratorKind] = {}
    if isinstance(stage.op, ComputeOp):
        kinds.update((axis.name, IteratorKind.SPATIAL) for axis in stage.op.axis)
        kinds.update((axis.name, IteratorKind.REDUCE) for axis in stage.op.reduce_axis)
    for relation in stage.relations:
        if isinstance(relation, FuseRelation):
            kinds[relation.fused] = kinds[relation.parents[0]]
        else:
            kinds.update(dict.fromkeys(relation.parts, kinds[relation.parent]))
    return kinds


def _renamed(marks: Marks, names: Names) -> Marks:
    """The marks of fused loops, given to their parts."""
    return {
        (stage, part): found
        for (stage, name), found in marks.items()
        for part in names.get((stage, name), (name,))
    }
