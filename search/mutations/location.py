"""The mutation that computes a stage somewhere else."""

from __future__ import annotations

import numpy as np

from search.mutations.mutation import Mutation
from search.offspring import Offspring
from sketches.annotate import DERIVE
from sketches.family import Family, Matrix
from sketches.locations import Rows
from sketches.neighbours import Neighbourhood
from sketches.population import Population


class ComputeLocation(Mutation):
    """Computes one stage somewhere else, which makes the program a member of another family."""

    name = "compute location"
    sources = 4
    targets = 2
    """So many changes at most are tried on the rows of one family."""

    def propose(
        self, parents: Population, neighbourhood: Neighbourhood, rng: np.random.Generator
    ) -> Offspring:
        offers = neighbourhood.relocations(parents.family)
        valid = np.zeros(len(parents), dtype=np.bool_)
        if not offers or not len(parents):
            return Offspring((), (), valid)
        count = min(self.targets, len(offers), len(parents))
        chosen = rng.choice(len(offers), size=count, replace=False)
        drawn = rng.integers(count, size=len(parents))
        populations: list[Population] = []
        origins: list[Rows] = []
        for which, offer in enumerate(chosen):
            rows = np.flatnonzero(drawn == which)
            family = neighbourhood.relocated(parents.family, offers[offer]) if len(rows) else None
            if family is None or family is parents.family:
                continue
            valid[rows] = True
            populations.append(Population(family, carried_over(parents.values[rows], parents.family, family)))
            origins.append(rows)
        return Offspring(tuple(populations), tuple(origins), valid)


def carried_over(values: Matrix, source: Family, target: Family) -> Matrix:
    """Rows of one family as rows of another of the same sketch, column by name; what is new is `DERIVE`."""
    carried = np.full((len(values), len(target.columns)), DERIVE, dtype=np.int64)
    for at, column in enumerate(target.columns):
        if column in source.index:
            carried[:, at] = values[:, source.index[column]]
    return carried
