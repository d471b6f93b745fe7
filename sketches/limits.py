"""Which rows of a population a GPU can run: its limits, checked on columns before anything is lowered.

A program that breaks a limit is refused wherever programs come into a search (sampling, breeding, neighbours,
lists of small spaces), so that no cost model has to know. `ansor.task.gpu_limits` counts the same on the
kernels of one program. Beside that, the number of virtual threads and what TVM would not run are refused.

Source: TVM 0.16, `InitThreadBind` of `sketch_policy_rules.cc`, and `tir.analysis.verify_gpu_code`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.kernel_usage import kernel_usages
from ansor.task.limits import AMOUNTS, Limits
from sketches.columns import ColumnKind
from sketches.launch import launchable
from sketches.padding import SWIZZLED
from sketches.population import Population
from sketches.rule import SketchContext

Mask = NDArray[np.bool_]


def refusals(population: Population, context: SketchContext) -> dict[str, Mask]:
    """
    Tell which rows break which limit.

    Parameters
    ----------
    population
        Complete programs.
    context
        Target and hardware.

    Returns
    -------
    dict[str, Mask]
        By reason, which rows are refused for it, shape `(rows,)`; nothing for a CPU, or without rows.
    """
    if not context.is_gpu or not len(population):
        return {}
    rows, limits = len(population), Limits.of_hardware(context.hardware, context.target.kind)
    vthreads = context.hardware.limits.max_vthread_extent
    found: dict[str, Mask] = {}

    def refuse(reason: str, broken: object) -> None:
        mask = np.broadcast_to(np.asarray(broken, dtype=np.bool_), rows)
        found[reason] = found[reason] | mask if reason in found else mask

    for kernel in kernel_usages(population.stored(population.inferred)):
        for amount in AMOUNTS:
            most = getattr(limits, amount.name)
            refuse(f"more than {most} {amount.what}", getattr(kernel, amount.name) > most)
        for axis, taken, most in zip("xyz", kernel.grid, limits.grid, strict=True):
            refuse(f"more than {most} blocks along {axis}", taken > most)
        refuse(f"more than {vthreads} virtual threads", kernel.vthreads > vthreads)
        refuse("loops of different lengths bound to one thread index", kernel.uneven)
    launches = population.family.sketch.launches
    allowed = launchable(launches, population.values, context.hardware)
    refuse("blocks of fewer threads than run in step", ~allowed)
    return {reason: mask for reason, mask in found.items() if mask.any()}


def thinned(population: Population, context: SketchContext) -> Population:
    """Fill copies less far ahead, at last keep them dense, in rows that break a limit, until they do not."""
    family = population.family
    leads = family.positions(ColumnKind.LEAD)
    pads = [at for at in family.positions(ColumnKind.PAD) if 0 in family.annotation_values[at]]
    if not population.values[:, [*leads, *pads]].any():
        return population
    values, rows, rest = population.values.copy(), np.arange(len(population)), population
    while True:
        broken = np.delete(np.arange(len(rest)), runnable(rest, context))
        lower = rest.values[broken]
        for at in leads:
            choices = np.array(family.annotation_values[at])
            below = choices[np.maximum(np.searchsorted(choices, lower[:, at]) - 1, 0)]
            lower[:, at] = np.minimum(lower[:, at], below)
        least = (lower == rest.values[broken]).all(axis=1)
        padding = lower[np.ix_(least, pads)]
        lower[np.ix_(least, pads)] = np.where(padding == SWIZZLED, padding, 0)
        changed = (lower != rest.values[broken]).any(axis=1)
        rows = rows[broken[changed]]
        if not len(rows):
            return population.reannotated(values)
        values[rows] = lower[changed]
        rest = rest.take(broken[changed]).reannotated(lower[changed])


def runnable(
    population: Population, context: SketchContext, refused: Counter[str] | None = None
) -> NDArray[np.int64]:
    """Positions of the rows that keep all limits; of the others, `refused` counts the first reason."""
    keeps = np.ones(len(population), dtype=np.bool_)
    for reason, broken in refusals(population, context).items():
        if refused is not None:
            refused[reason] += int((keeps & broken).sum())
        keeps &= ~broken
    return np.flatnonzero(keeps)
