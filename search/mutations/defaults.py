"""The mutations of a search that is told of none, and how often each is chosen.

TVM 0.16 (`sketch_policy_rules.cc`) has fewer, of which tile sizes get 0.9 on a CPU, unrolling 0.04, locations
0.05 and parallel loops 0.01; on a GPU it has the first two alone, at 0.9 and 0.1.
"""

from __future__ import annotations

from typing import Final

from search.mutations.columns import (
    AutoUnroll,
    FetchLength,
    Lead,
    Padding,
    ParallelWidth,
    PartCount,
    ThreadCount,
    VectorLoops,
)
from search.mutations.location import ComputeLocation
from search.mutations.mutation import Mutation, Weighted
from search.mutations.tiles import TileLevels, TileShape, TileSize
from sketches.rule import SketchContext

CPU_MUTATIONS: Final[tuple[tuple[Mutation, float], ...]] = (
    (TileSize(), 0.55),
    (TileShape(), 0.10),
    (TileLevels(), 0.15),
    (AutoUnroll(), 0.06),
    (ComputeLocation(), 0.06),
    (ParallelWidth(), 0.04),
    (VectorLoops(), 0.04),
)
"""Mutations and how often each is chosen."""

GPU_MUTATIONS: Final[tuple[tuple[Mutation, float], ...]] = (
    (TileSize(), 0.74),
    (AutoUnroll(), 0.08),
    (ThreadCount(), 0.05),
    (PartCount(), 0.02),
    (FetchLength(), 0.05),
    (Padding(), 0.04),
    (Lead(), 0.02),
)
"""The same for GPUs, where stages stay where their sketch has them."""


def default_mutations(context: SketchContext) -> Weighted:
    """Return the mutations for the context's target."""
    return GPU_MUTATIONS if context.is_gpu else CPU_MUTATIONS
