"""Which part of a reduction's terms can change anything, where stages that pad are inlined.

The counterpart of `ansor.ir.passes.identities` for computations: lowering leaves out what these conditions
exclude, as far as the loops allow it. Conditions that share no axis are independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Final

import numpy as np

from ansor.ir.rewriting import conjunction
from ansor.ir.terms import needed
from ansor.schedule.conditions import always_holds
from ansor.schedule.extents import in_every_row
from ansor.te.expr import Const, Expr, IterVar, Reduce, Var, distinct_nodes, free_vars, int_value
from ansor.te.reduction import builtin_name
from ansor.te.vectorize import Kernel, without_tensors

MOST_POINTS: Final = 1 << 20
"""Values of axes that are tried at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Needed:
    """
    Conditions on the same axes without which terms change nothing.

    Parameters
    ----------
    axes
        The axes that the conditions depend on, those that are reduced over among them.
    share
        Part of these axes' values for which they hold, below 1.
    """

    axes: frozenset[IterVar]
    share: float


@lru_cache(maxsize=4096)
def needed_parts(root: Expr, axes: tuple[IterVar, ...]) -> tuple[Needed, ...]:
    """
    The conditions without which the terms of a reduction over `axes`, elements and all, change nothing.

    There are none of a reduction that has several outputs, a combiner of the user's own, or symbolic bounds.
    Conditions that always hold, as those of a copy do that is inlined, are none.
    """
    if not isinstance(root, Reduce) or len(root.sources) != 1 or builtin_name(root.combiner) is None:
        return ()
    sizes = {axis: int_value(axis.extent) for axis in axes}
    extents: dict[Var, int] = {axis: size for axis, size in sizes.items() if size is not None}
    tests = needed(root.sources[0], root.combiner.identity[0])
    varying = [test for test in tests if not in_every_row(always_holds(test, extents))]
    found = (Needed(used, _share(own, tuple(used))) for used, own in _by_shared_axes(varying, axes))
    return tuple(part for part in found if part.share < 1)


def _by_shared_axes(
    tests: Iterable[Expr], axes: Sequence[IterVar]
) -> list[tuple[frozenset[IterVar], tuple[Expr, ...]]]:
    """Tests in groups that share no axes, each group with its axes."""
    groups: list[tuple[frozenset[IterVar], tuple[Expr, ...]]] = []
    for test in tests:
        variables = free_vars(test)
        used = frozenset(axis for axis in axes if axis in variables)
        joined = [group for group in groups if group[0] & used]
        groups = [group for group in groups if not group[0] & used]
        own = (*(one for _, others in joined for one in others), test)
        groups.append((used.union(*(others for others, _ in joined)), own))
    return groups


def _share(tests: tuple[Expr, ...], axes: Sequence[IterVar]) -> float:
    """The part of the axes' values for which all tests hold; 1 where it takes too long to find out.

    Or where they hold numbers of many programs at once, as those of padded tiles do.
    """
    extents = [int_value(axis.extent) or 0 for axis in axes]
    constants = [node.value for test in tests for node in distinct_nodes(test) if isinstance(node, Const)]
    if not all(isinstance(value, (int, float)) for value in (*extents, *constants)):
        return 1.0
    if not 0 < prod(extents) <= MOST_POINTS or any(not free_vars(test) <= set(axes) for test in tests):
        return 1.0
    cond = conjunction(tests)
    assert cond is not None
    values = np.meshgrid(*(np.arange(n, dtype=np.int32) for n in extents), indexing="ij", sparse=True)
    with np.errstate(all="ignore"):
        (held,), _ = Kernel((cond,))(without_tensors(dict(zip(axes, values, strict=True))))
    return float(np.mean(np.broadcast_to(held, extents)))
