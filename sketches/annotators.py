"""How the annotation columns of a family get their values: one small object per kind of column.

Sampling asks the annotators in order, each for all rows of a family at once. What a column becomes
later, when programs are changed, is up to the search, within what the annotators allow (`choices`). A user's
annotator is put in place of ours or behind them: `ProgramSpace.of(task, annotators=(MyParallel(), ...))`.

Source: TVM's rules Parallel, Unroll and Vectorization, `sketch_policy_rules.cc`. On a GPU it copies into
shared memory element by element until a mutation changes that, neither padded nor ahead; here all that is
drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Final, Protocol

import numpy as np

from ansor.errors import DefinitionError
from ansor.plugins import blaming, brief, check_plugin, items_of
from ansor.schedule.bounds import Bounds
from ansor.schedule.state import State
from sketches.annotate import Values, parallel_widths, vector_counts
from sketches.columns import ColumnKind
from sketches.family import Family, Matrix
from sketches.fetch import FetchLimit, fetch_limits
from sketches.locations import Rows
from sketches.rule import SketchContext


@dataclass(eq=False)
class Draft:
    """
    Rows of one family on their way to be programs.

    Parameters
    ----------
    context
        Task, target, hardware and parameters.
    family
        Its sites and columns.
    inferred
        The structure with its bounds.
    rows
        Rows of the extents' columns that belong to this family.
    values
        One row each; annotators write their columns.
    """

    context: SketchContext
    family: Family
    inferred: Bounds
    rows: Rows
    values: Matrix
    fused_end: dict[int, Values] = field(default_factory=dict)
    """Position behind the outermost parallel loops of a stage, by stage; set by `set_parallel`."""

    @property
    def bounded(self) -> State:
        """The structure with all extents."""
        return self.inferred.state

    def set_parallel(self, widths: list[Values]) -> None:
        """Write one column per parallel site."""
        family = self.family
        for site, width, at in zip(
            family.parallel, widths, family.positions(ColumnKind.PARALLEL), strict=True
        ):
            self.values[:, at] = width
            end = np.where(width > 0, site.start + width, 0)
            self.fused_end[site.stage] = np.maximum(self.fused_end.get(site.stage, np.zeros_like(end)), end)

    def vector_limits(self) -> list[Values]:
        """Most loops that each vector site may fuse and vectorise, one column per site."""
        none = np.zeros(len(self.rows), dtype=np.int64)
        largest = self.context.params.max_vectorize_size
        leave_one = not self.context.params.cpu_fuse_all_vectors
        ends = (self.fused_end.get(site.stage, none) for site in self.family.vectors)
        return [
            vector_counts(self.bounded, site, self.rows, largest, end, leave_one)
            for site, end in zip(self.family.vectors, ends, strict=True)
        ]

    def fetch_limits(self) -> list[FetchLimit]:
        """What the columns of copies into shared memory may hold."""
        return fetch_limits(self.family, self.inferred, len(self.rows), self.context.hardware)


class Annotator(Protocol):
    """Decides one kind of annotation; subclass it, or write both methods."""

    def draw(self, draft: Draft, rng: np.random.Generator) -> None:
        """Write the columns of its kind into `draft.values`, for new programs; default: nothing."""
        return

    def choices(self, family: Family) -> Mapping[int, Sequence[int]]:
        """
        Say which values columns may take, by position; a column that is not named takes any that is legal.

        All of a search keeps to it: mutation, crossover, polish, lists of small spaces. Where the tiles of a
        program leave no choice legal, the column is the most that they allow. Of several annotators that name
        a column, the last one has its way, as in drawing.
        """
        return {}


def check_annotators(where: str, given: Sequence[Annotator]) -> tuple[Annotator, ...]:
    """
    Give annotators back as a tuple.

    Raises
    ------
    DefinitionError
        If one of them is none.
    """
    for number, annotator in enumerate(items_of(where, given, "annotators")):
        example = "an object of a subclass of ansor.Annotator with a method draw(draft, rng)"
        check_plugin(f"{where}[{number}]", annotator, ("draw", "choices"), "annotator", example)
    return tuple(given)


def _is_within(value: object, least: int, most: int | None) -> bool:
    return isinstance(value, Integral) and least <= int(value) and (most is None or int(value) <= most)


def with_choices(annotators: Sequence[Annotator], family: Family) -> Family:
    """
    Return the family with what annotators say of its columns.

    Raises
    ------
    DefinitionError
        If one of them names a position that is no annotation's, or values that the column cannot take.
    """
    found: dict[int, tuple[int, ...]] = {}
    for annotator in annotators:
        asked = f"annotator {type(annotator).__name__} was asked for its choices"
        with blaming(asked):
            answer = annotator.choices(family)
        if not isinstance(answer, Mapping):
            raise DefinitionError(
                f"{asked} and returned {brief(answer)}; return a dict from columns to values, empty if there "
                "are none"
            )
        for at, values in answer.items():
            if at not in family.annotation_values:
                raise DefinitionError(
                    f"{asked} and named column {brief(at)}; annotations are the columns "
                    f"{list(family.annotation_values)}, such as family.positions(ansor.ColumnKind.UNROLL)"
                )
            least, most = _least(family, at), _most(family, at)
            bounds = f"at least {least}" if most is None else f"{least} to {most}"
            given = list(values) if isinstance(values, Iterable) else [values]
            if not given or not all(_is_within(value, least, most) for value in given):
                raise DefinitionError(
                    f"{asked} and named {brief(given)} for column {str(family.columns[at])!r}; "
                    f"name one value or more, {bounds}"
                )
            found[at] = tuple(sorted({int(value) for value in given}))
    return replace(family, choices=found) if found else family


def annotate(annotators: Sequence[Annotator], draft: Draft, rng: np.random.Generator) -> None:
    """Let every annotator write its columns, in order."""
    for annotator in annotators:
        asked = f"annotator {type(annotator).__name__} was given {len(draft.values)} programs"
        with blaming(asked):
            annotator.draw(draft, rng)
        fault = _fault_of(draft)
        if fault:
            raise DefinitionError(f"{asked} and left {fault}")


def _fault_of(draft: Draft) -> str:
    """Say what is wrong with the rows that an annotator leaves; "" if nothing is."""
    family, values = draft.family, draft.values
    if values.shape != (len(draft.rows), len(family.columns)) or not np.issubdtype(values.dtype, np.integer):
        return (
            f"values of shape {values.shape} and type {values.dtype}; write into the columns of draft.values"
        )
    for at in family.annotation_values:
        column, least, most = values[:, at], _least(family, at), _most(family, at)
        wrong = column[(column < least) | (False if most is None else column > most)]
        if len(wrong):
            bounds = f"at least {least}" if most is None else f"{least} to {most}"
            return f"{wrong[0]} in column {str(family.columns[at])!r}; it holds {bounds}"
    return ""


def _least(family: Family, at: int) -> int:
    """Lowest value of a column: 1 for a length, else 0."""
    return int(at < family.filling)


def _most(family: Family, at: int) -> int | None:
    """Highest value that the structure has for an annotation column; None for any."""
    unroll = family.columns[at].kind is ColumnKind.UNROLL
    return None if unroll else family.structural_values[at][-1]


class OuterParallel(Annotator):
    """Fuses the outermost spatial loops and makes them parallel, until there is enough work per core."""

    def draw(self, draft: Draft, rng: np.random.Generator) -> None:
        cores = draft.context.hardware.num_cores
        draft.set_parallel(parallel_widths(draft.bounded, draft.family.parallel, draft.rows, cores))


class RandomUnroll(Annotator):
    """Draws each stage's `auto_unroll_max_step` from the candidates."""

    def draw(self, draft: Draft, rng: np.random.Generator) -> None:
        candidates = np.array(draft.family.sites.unroll_values)
        for at in draft.family.positions(ColumnKind.UNROLL):
            draft.values[:, at] = candidates[rng.integers(len(candidates), size=len(draft.rows))]


class RandomVectors(Annotator):
    """Fuses and vectorises a random number of the innermost loops, at least one where any may be."""

    def draw(self, draft: Draft, rng: np.random.Generator) -> None:
        at = draft.family.positions(ColumnKind.VECTORIZE)
        for position, most in zip(at, draft.vector_limits(), strict=True):
            drawn = rng.integers(1, np.maximum(most, 1), endpoint=True)
            draft.values[:, position] = np.where(most > 0, drawn, 0)


class RandomStreaming(Annotator):
    """Lets the stores of each output that may have streaming ones pass the caches by, in half of the rows."""

    def draw(self, draft: Draft, rng: np.random.Generator) -> None:
        for at in draft.family.positions(ColumnKind.STREAM):
            draft.values[:, at] = rng.integers(2, size=len(draft.rows))


class RandomFetch(Annotator):
    """Copies into shared memory a random power of two of elements at once, as many as the tile allows.

    As many as that where warps multiply what is copied.
    """

    def draw(self, draft: Draft, rng: np.random.Generator) -> None:
        for limit in draft.fetch_limits():
            powers = rng.integers(np.log2(limit.longest).astype(np.int64), endpoint=True)
            draft.values[:, limit.column] = limit.longest if limit.whole else 1 << powers


class RandomLeads(Annotator):
    """Fills the copies that a stage reads a random number of iterations ahead, if there are as many."""

    def draw(self, draft: Draft, rng: np.random.Generator) -> None:
        for site, at in zip(draft.family.leads, draft.family.positions(ColumnKind.LEAD), strict=True):
            drawn = rng.integers(site.most, size=len(draft.rows), endpoint=True)
            draft.values[:, at] = site.settled(draft.inferred, drawn)


class RandomPadding(Annotator):
    """Pads or swizzles copies in shared memory by a random one of the ways of each, where that matters."""

    def draw(self, draft: Draft, rng: np.random.Generator) -> None:
        at_pads = draft.family.positions(ColumnKind.PAD)
        for site, at in zip(draft.family.pads, at_pads, strict=True):
            drawn = rng.choice(np.array(site.values), size=len(draft.rows))
            draft.values[:, at] = site.settled(draft.inferred, drawn)


CPU_ANNOTATORS: Final[tuple[Annotator, ...]] = (
    OuterParallel(),
    RandomUnroll(),
    RandomVectors(),
    RandomStreaming(),
)
"""In the order of TVM's rules, ours last."""

GPU_ANNOTATORS: Final[tuple[Annotator, ...]] = (
    RandomUnroll(),
    RandomFetch(),
    RandomLeads(),
    RandomPadding(),
)
"""What is left to decide on a GPU once loops are bound."""


def default_annotators(context: SketchContext) -> tuple[Annotator, ...]:
    """Return the annotators for the context's target."""
    return GPU_ANNOTATORS if context.is_gpu else CPU_ANNOTATORS
