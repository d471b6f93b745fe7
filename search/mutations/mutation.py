"""Mutations: small changes to many programs at once.

A mutation gets rows of one family and a generator, and returns children (`search.offspring`), rows of the
same or another family. It never raises for a program that it cannot change; such a parent just has no child,
and is counted.

A user's mutation is any object with `name`, `sources` and `propose`; a policy takes them with their weights
(`SketchPolicy(mutations=[(MyMutation(), 0.1), *CPU_MUTATIONS])`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ansor.checks import check_number
from ansor.errors import DefinitionError
from ansor.plugins import blaming, brief, check_plugin, items_of
from ansor.schedule.extents import MAX_EXTENT
from search.offspring import Offspring
from sketches.annotate import DERIVE
from sketches.neighbours import Neighbourhood
from sketches.population import Population


class Mutation(Protocol):
    """One way to change programs; subclass it, or write `name`, `sources` and `propose`."""

    @property
    def name(self) -> str:
        """Name shown in statistics."""
        ...

    @property
    def sources(self) -> int | None:
        """How many families a generation asks at most, for a mutation that makes new families; None: all."""
        return None

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        """Make at most one child of every row; all randomness comes from `rng`."""
        ...


Weighted = Sequence[tuple[Mutation, float]]
"""Mutations, and how often each is chosen."""


def check_mutations(where: str, given: Weighted) -> Weighted:
    """
    Give mutations with their weights back as a tuple.

    Raises
    ------
    DefinitionError
        If one of them is none, or a weight is no number of at least 0.
    """
    for number, pair in enumerate(items_of(where, given, "pairs (mutation, weight)")):
        own = f"{where}[{number}]"
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise DefinitionError(
                f"{own}={brief(pair)}: it must be a pair (mutation, weight), such as one of "
                "ansor.CPU_MUTATIONS"
            )
        example = "an object of a subclass of ansor.Mutation"
        check_plugin(own, pair[0], ("name", "sources", "propose"), "mutation", example)
        check_number(f"the weight of {own}", pair[1], low=0)
    if given and not any(weight for _, weight in given):
        raise DefinitionError(f"{where}: all weights are 0; give () for a search without mutations")
    return tuple(given)


def offspring_of(
    mutation: Mutation, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
) -> Offspring:
    """
    Ask a mutation for children.

    Raises
    ------
    DefinitionError
        If the answer is no `Offspring` of these parents: a child's parent is no row of theirs, is not said to
        have a child, or has two, or a child's column is no integer, below `DERIVE`, or a length that no loop
        can have.
    """
    asked = f"mutation {mutation.name!r} was asked for children of {len(parents)} programs"
    with blaming(asked):
        answer: object = mutation.propose(parents, neighbourhood, rng)
    if not isinstance(answer, Offspring) or np.shape(answer.valid) != (len(parents),):
        raise DefinitionError(
            f"{asked} and returned {brief(answer)}; return an Offspring whose `valid` says for each parent "
            "whether it has a child, such as ansor.same_family makes"
        )
    wrong = _fault_of(answer)
    if wrong:
        raise DefinitionError(f"{asked} and returned an Offspring in which {wrong}")
    return answer


def _fault_of(answer: Offspring) -> str:
    """Say what keeps an answer from being offspring; "" if nothing does."""
    if answer.valid.dtype != np.bool_:
        return "`valid` is no array of bools; it says for each parent whether it has a child"
    if len(answer.populations) != len(answer.parents):
        return (
            "`populations` and `parents` are not of equal length; to each population belong its parents' rows"
        )
    for children, rows in zip(answer.populations, answer.parents, strict=True):
        if not isinstance(children, Population) or len(children) != len(rows):
            return "`populations` has another number of children than `parents` has rows for them"
        if not np.issubdtype(children.values.dtype, np.integer):
            return f"the columns are of type {children.values.dtype}; they must be integers"
        least = children.values.min(axis=0, initial=1)
        lengths = children.family.filling
        low = next((at for at, value in enumerate(least) if value < (1 if at < lengths else DERIVE)), None)
        if low is not None:
            bound = "1; it is a length" if low < lengths else "ansor.DERIVE, which leaves it to the repair"
            column = str(children.family.columns[low])
            return f"column {column!r} is {least[low]} somewhere; the least is {bound}"
        if children.values[:, :lengths].max(initial=1) > MAX_EXTENT:
            return f"a length exceeds {MAX_EXTENT}, which is more than loop variables can count"
    born = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *answer.parents]))
    if not np.array_equal(born, np.flatnonzero(answer.valid)):
        return (
            f"`valid` says that {int(answer.valid.sum())} parents have a child each, and `parents` names "
            f"{len(np.unique(born))} rows for {len(born)} children, which are not those"
        )
    return ""
