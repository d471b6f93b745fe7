"""The steps that change the loops of one stage: annotate, split, fuse, reorder, pragma, storage_align.

Source: the step table of TVM's auto_scheduler (v0.16); Zheng et al., OSDI 2020, section 4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ansor.errors import ScheduleError
from ansor.schedule.extents import (
    MAX_EXTENT,
    Extent,
    any_above,
    ceil_div,
    minimum,
    multiply,
    product,
    product_if_known,
)
from ansor.schedule.naming import fresh_name
from ansor.schedule.stages import (
    Annotation,
    ComputeAt,
    FuseRelation,
    Iterator,
    IteratorKind,
    SplitRelation,
    Stage,
)
from ansor.schedule.step_base import (
    Step,
    is_integer,
    is_position,
    iterator_at,
    refuse,
    refuse_stage_in_lanes,
    stage_at,
    to_plain,
)
from ansor.te.expr import Expr

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class AnnotationStep(Step):
    """Say how a loop is executed: parallel, vectorized, unrolled, bound to a thread.

    Rewrite: `for i` -> `parallel i`. Raises for a loop annotated already, for vectorising, parallelising
    or binding to a block a reduction loop (its iterations are not independent), and for `tensorize`, which
    has a step of its own.
    """

    code: ClassVar[str] = "AN"
    stage: int
    iterator: int
    annotation: int

    def apply(self, state: State) -> State:
        if self.annotation not in Annotation.__members__.values():
            known = ", ".join(f"{a.value} {a.word}" for a in Annotation if a is not Annotation.TENSORIZE)
            raise ScheduleError(f"annotation: there is no code {self.annotation!r}; the codes are {known}")
        annotation = Annotation(self.annotation)
        stage, loop = iterator_at(state, self.stage, self.iterator, annotation.word)
        if annotation is Annotation.TENSORIZE:
            raise refuse(
                stage,
                f"{annotation.word} {loop.name!r} of stage {stage.name!r}: an annotation does not say by "
                "which intrinsic; use tensorize (step TI)",
                self.iterator,
            )
        if loop.annotation is not Annotation.NONE:
            raise refuse(
                stage,
                f"{annotation.word} {loop.name!r} of stage {stage.name!r}: it is annotated "
                f"{loop.annotation.word} already; annotate each loop once",
                self.iterator,
            )
        independent = annotation not in (Annotation.UNROLL, Annotation.NONE) and not annotation.is_thread
        if independent and loop.kind is IteratorKind.REDUCE:
            raise refuse(
                stage,
                f"{annotation.word} {loop.name!r} of stage {stage.name!r}: it runs over a reduction, whose "
                "iterations depend on each other; use rfactor to get a spatial loop from it",
                self.iterator,
            )
        if isinstance(loop.extent, Expr) and annotation in (Annotation.VECTORIZE, Annotation.UNROLL):
            raise refuse(
                stage,
                f"{annotation.word} {loop.name!r} of stage {stage.name!r}: its extent {loop.extent} is "
                "symbolic; split it by a constant and take the inner part",
                self.iterator,
            )
        changed = replace(loop, annotation=annotation)
        loops = (*stage.iterators[: self.iterator], changed, *stage.iterators[self.iterator + 1 :])
        changed_state = state.with_stage(self.stage, replace(stage, iterators=loops))
        refuse_stage_in_lanes(changed_state, self.stage, annotation.word)
        return changed_state


@dataclass(frozen=True, slots=True)
class SplitStep(Step):
    """Split a loop into `len(lengths) + 1` nested ones; factors need not divide.

    Rewrite: `for i` -> `for i.0: for i.1: ...`. Invariant: `i == i.0*len1*len2.. + i.1*len2.. + ..`.
    A length of None is a hole, filled by sampling; `extent` is informative only and recomputed.
    """

    code: ClassVar[str] = "SP"
    stage: int
    iterator: int
    extent: int | None
    lengths: tuple[Any, ...]
    inner_to_outer: int = 1

    def apply(self, state: State) -> State:
        return split(state, self.stage, self.iterator, self.lengths, inner_to_outer=bool(self.inner_to_outer))

    def to_json(self) -> list[Any]:
        extent = 0 if self.extent is None else self.extent
        lengths = to_plain(tuple(self.lengths))
        return [self.code, self.stage, self.iterator, to_plain(extent), lengths, int(self.inner_to_outer)]


@dataclass(frozen=True, slots=True)
class FollowSplitStep(Step):
    """Split a loop as an earlier split step did, merging its innermost parts down to `n_split` lengths.

    Invariant: lengths = source[: n_split-1] + [product of source[n_split-1 :]].
    """

    code: ClassVar[str] = "FSP"
    stage: int
    iterator: int
    source: int
    n_split: int

    def lengths(self, steps: tuple[Step, ...]) -> tuple[Extent | None, ...]:
        """The lengths derived from the source step of this history."""
        lengths = split_lengths(steps, self.source, "follow_split")
        if not 1 <= self.n_split <= len(lengths):
            raise ScheduleError(
                f"follow_split: asked for {self.n_split} lengths, but step {self.source} has {len(lengths)}"
            )
        return (*lengths[: self.n_split - 1], product_if_known(lengths[self.n_split - 1 :]))

    def apply(self, state: State) -> State:
        return split(state, self.stage, self.iterator, self.lengths(state.steps), inner_to_outer=True)


@dataclass(frozen=True, slots=True)
class FollowFusedSplitStep(Step):
    """Split a fused loop by the product of one level of several earlier splits.

    Invariant: length = product of source.lengths[level]; the inner factor if `factor_or_nparts`, else
    the number of outer parts.
    """

    code: ClassVar[str] = "FFSP"
    stage: int
    iterator: int
    sources: tuple[int, ...]
    level: int
    factor_or_nparts: int

    def length(self, steps: tuple[Step, ...]) -> Extent | None:
        """The length derived from the source steps of this history."""
        result: Extent = 1
        for source in self.sources:
            lengths = split_lengths(steps, source, "follow_fused_split")
            if not 0 <= self.level < len(lengths):
                raise ScheduleError(
                    f"follow_fused_split: step {source} has {len(lengths)} lengths, no level {self.level}"
                )
            length = lengths[self.level]
            if length is None:
                return None
            result = multiply(result, length)
        return result

    def apply(self, state: State) -> State:
        length = self.length(state.steps)
        return split(state, self.stage, self.iterator, (length,), inner_to_outer=bool(self.factor_or_nparts))


def split_lengths(steps: tuple[Step, ...], source: int, what: str) -> tuple[Extent | None, ...]:
    """The lengths of the split step at `source` of a history."""
    step = steps[source] if 0 <= source < len(steps) else None
    if not isinstance(step, SplitStep):
        raise ScheduleError(f"{what}: step {source} of the history is {step!r}, not a split")
    return step.lengths


def part_extents(
    extent: Extent | None, lengths: Sequence[Extent | None], inner_to_outer: bool
) -> list[Extent | None]:
    """Extents of the parts of a split loop, outermost first.

    A part is never longer than what it splits: `min(length, remaining)`, and the derived part is the
    ceil-quotient of what remains.
    """
    rest = extent
    made: list[Extent | None] = []
    for length in reversed(lengths) if inner_to_outer else lengths:
        if length is None or rest is None:
            # An unset length hides its own extent and the derived part's; other parts stay known.
            made.append(length if rest is None or length is None else minimum(length, rest))
            rest = None
            continue
        made.append(minimum(length, rest))
        rest = ceil_div(rest, length)
    return [rest, *reversed(made)] if inner_to_outer else [*made, rest]


def split(
    state: State, stage_id: int, position: int, lengths: Sequence[Extent | None], *, inner_to_outer: bool
) -> State:
    """Replace a loop by its parts (the common part of the three split steps)."""
    stage, loop = iterator_at(state, stage_id, position, "split")
    if loop.annotation is not Annotation.NONE:
        raise refuse(
            stage,
            f"split {loop.name!r} of stage {stage.name!r}: it is annotated {loop.annotation.word} already, "
            "which its parts would lose; split first",
            position,
        )
    if not lengths:
        raise refuse(stage, f"split {loop.name!r} of stage {stage.name!r}: no lengths given", position)
    for length in lengths:
        bad = length is not None and (
            bool((length < 1).any())
            if isinstance(length, np.ndarray)
            else not isinstance(length, (int, np.integer)) or isinstance(length, bool) or length < 1
        )
        if bad or (length is not None and any_above(length, MAX_EXTENT)):
            wanted = "a positive integer" if bad else "at most 2**31 - 1, which loop variables can count"
            raise refuse(
                stage,
                f"split {loop.name!r} of stage {stage.name!r}: length {length!r} is not {wanted}",
                position,
            )
    taken = stage.loop_names()
    names = tuple(fresh_name(f"{loop.name}.{part}", taken) for part in range(len(lengths) + 1))
    extents = part_extents(loop.extent, lengths, inner_to_outer)
    parts = tuple(Iterator(n, e, loop.kind) for n, e in zip(names, extents, strict=True))
    relation = SplitRelation(loop.name, names, tuple(lengths), inner_to_outer)
    changed = replace(
        stage,
        iterators=(*stage.iterators[:position], *parts, *stage.iterators[position + 1 :]),
        relations=(*stage.relations, relation),
    )
    grown = len(lengths)
    return state.with_stage(stage_id, changed).with_attach_moved(
        stage_id, lambda at: at if at < position else at + grown
    )


@dataclass(frozen=True, slots=True)
class FuseStep(Step):
    """Make one loop of consecutive ones.

    Rewrite: `for i: for j` -> `for i@j@`. Invariant: `i == f // extent(j)`, `j == f % extent(j)`.
    Only the innermost of the fused loops may have stages attached.
    """

    code: ClassVar[str] = "FU"
    stage: int
    iterators: tuple[int, ...]

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "fuse")
        if not self.iterators:
            raise refuse(stage, "fuse: no loops given")
        loops = [iterator_at(state, self.stage, position, "fuse")[1] for position in self.iterators]
        self._check(state, stage, loops)
        name = fresh_name("".join(f"{loop.name}@" for loop in loops), stage.loop_names())
        fused = Iterator(name, product_if_known([loop.extent for loop in loops]), loops[0].kind)
        first, last, lost = self.iterators[0], self.iterators[-1], len(loops) - 1
        changed = replace(
            stage,
            iterators=(*stage.iterators[:first], fused, *stage.iterators[last + 1 :]),
            relations=(*stage.relations, FuseRelation(tuple(loop.name for loop in loops), name)),
        )
        return state.with_stage(self.stage, changed).with_attach_moved(
            self.stage, lambda at: at if at < first else max(first, at - lost)
        )

    def _check(self, state: State, stage: Stage, loops: Sequence[Iterator]) -> None:
        """Refuse loops that cannot become one."""
        for outer, inner in pairwise(self.iterators):
            if inner != outer + 1:
                names = ", ".join(repr(loop.name) for loop in loops)
                raise refuse(
                    stage,
                    f"fuse {names} of stage {stage.name!r}: the loops must be directly nested in this order; "
                    "reorder first",
                    inner,
                )
        what = f"fuse of stage {stage.name!r}"
        for position, loop in zip(self.iterators[:-1], loops, strict=False):
            inside = state.attached_to(self.stage, position)
            if inside:
                raise refuse(
                    stage,
                    f"{what}: stage {state.stages[inside[0]].name!r} is computed inside {loop.name!r}, which "
                    f"is not the innermost of the fused loops; fuse first, or compute it inside "
                    f"{loops[-1].name!r}",
                    position,
                )
        for position, loop in zip(self.iterators, loops, strict=True):
            if loop.annotation is not Annotation.NONE:
                raise refuse(
                    stage,
                    f"{what}: {loop.name!r} is annotated {loop.annotation.word} already; fuse first",
                    position,
                )
        if any_above(product([loop.extent for loop in loops if loop.extent is not None]), MAX_EXTENT):
            raise refuse(
                stage,
                f"{what}: the fused loop would have more than 2**31 - 1 iterations, which loop variables "
                "cannot count; fuse fewer loops",
                self.iterators[-1],
            )
        for position, loop in zip(self.iterators, loops, strict=True):
            if loop.kind is not loops[0].kind:
                raise refuse(
                    stage,
                    f"{what}: {loops[0].name!r} is a {loops[0].kind} loop and {loop.name!r} a {loop.kind} "
                    "loop; they cannot become one loop",
                    position,
                )


@dataclass(frozen=True, slots=True)
class ReorderStep(Step):
    """Put the loops of a stage in another order; `order` is a permutation of their positions."""

    code: ClassVar[str] = "RE"
    stage: int
    order: tuple[int, ...]

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "reorder")
        if stage.compute_at is ComputeAt.INLINED:
            raise refuse(stage, f"reorder: stage {stage.name!r} is inlined and has no loops of its own")
        count = len(stage.iterators)
        if not all(map(is_position, self.order)) or sorted(self.order) != list(range(count)):
            wrong = next((p for p in range(count) if self.order.count(p) != 1), None)
            raise refuse(
                stage,
                f"reorder of stage {stage.name!r}: {list(self.order)} is not a permutation of its {count} "
                f"loops (each of 0..{count - 1} once)",
                wrong,
            )
        changed = replace(stage, iterators=tuple(stage.iterators[position] for position in self.order))
        moved = state.with_stage(self.stage, changed).with_attach_moved(
            self.stage, lambda at: self.order.index(at)
        )
        refuse_stage_in_lanes(moved, self.stage, "reorder")
        return moved


UNROLL_PRAGMA = "auto_unroll_max_step"
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class PragmaStep(Step):
    """Attach a pragma, `auto_unroll_max_step$N`: unroll inner loops up to N steps in total."""

    code: ClassVar[str] = "PR"
    stage: int
    iterator: int
    text: str

    @property
    def max_step(self) -> int | None:
        """N of `auto_unroll_max_step$N`; None for a pragma without effect on code."""
        name, _, value = self.text.partition("$")
        if name == UNROLL_PRAGMA and _NUMBER.fullmatch(value):
            return int(value)
        if self.text in ("debug_skip_region", "unroll_explicit", "unroll_explicit$1"):
            return None
        raise ScheduleError(
            f"pragma {self.text!r} is not understood; use '{UNROLL_PRAGMA}$N' with a number N >= 0"
        )

    def apply(self, state: State) -> State:
        stage, _ = iterator_at(state, self.stage, self.iterator, "pragma")
        try:
            step = self.max_step
        except ScheduleError as error:
            raise refuse(stage, str(error), self.iterator) from None
        if step is None:
            return state
        return state.with_stage(self.stage, replace(stage, auto_unroll_max_step=step))


@dataclass(frozen=True, slots=True)
class StorageAlignStep(Step):
    """Pad the storage of a stage so that the stride of a loop's axis is `offset` modulo `factor` elements.

    Records may name a loop that is no axis of the storage; it pads nothing and replaces no padding.
    """

    code: ClassVar[str] = "SA"
    stage: int
    iterator: int
    factor: int
    offset: int

    def apply(self, state: State) -> State:
        stage, loop = iterator_at(state, self.stage, self.iterator, "storage_align")
        whole = is_integer(self.factor) and is_integer(self.offset)
        if not whole or self.factor < 1 or self.offset < 0:
            raise refuse(
                stage,
                f"storage_align of stage {stage.name!r}: factor {self.factor!r} must be >= 1 and offset "
                f"{self.offset!r} >= 0, both integers",
                self.iterator,
            )
        if stage.storage_align is not None and loop.name not in {a.name for a in stage.compute.axis}:
            return state
        return state.with_stage(
            self.stage, replace(stage, storage_align=(loop.name, self.factor, self.offset))
        )
