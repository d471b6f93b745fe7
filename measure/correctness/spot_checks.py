"""Whether outputs that a compiled program gave contradict the interpreter, at random elements of them."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ansor.schedule.dag import ComputeDAG
from ansor.te.interp import evaluate_points
from ansor.te.tensor import Tensor
from measure.correctness.argument_files import inputs_of, with_scale
from measure.workers.arguments import ArgumentSpec
from measure.workers.check import mismatch

CHECKS: Final = ((1, math.inf), (15, 10.0), (4096, 0.25))
"""How many elements of an output are checked, one batch after the other, and what a batch may take [s].

As far as the one before it tells: it has fewer elements where each takes long.
"""


def contradiction(
    dag: ComputeDAG,
    specs: Sequence[ArgumentSpec],
    seed: int,
    errors: Mapping[Tensor, Tensor] | None = None,
    stepwise: bool = False,
) -> str | None:
    """Where compiled outputs contradict the interpreter; None if they do not at some random points.

    The `seed` decides which. Elements may be off by what the interpreter makes of their `errors`, if given.
    With `stepwise` it rounds sums after each step, as the plain program does.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    data = inputs_of(dag, specs)
    for tensor, spec in zip(dag.tensors, specs, strict=True):
        if not spec.output or 0 in spec.shape:
            continue
        found, tolerance = spec.map(), with_scale(spec, tensor).tolerance
        for points in _batches(rng, spec.shape):
            expected = evaluate_points(tensor, points, data, stepwise=stepwise)
            error = None if errors is None else errors.get(tensor)
            slack = None if error is None else evaluate_points(error, points, data, stepwise=False)
            found_there = found[tuple(points.T)]
            wrong = mismatch(found_there, expected, spec.dtype, tolerance, errors=slack)
            if wrong is not None:
                return (
                    f"the reference program of output {tensor.name!r} contradicts the interpreter at "
                    f"{len(points)} elements that begin with {points[0].tolist()}: {wrong}"
                )
    return None


def _batches(rng: np.random.Generator, shape: Sequence[int]) -> Generator[npt.NDArray[np.int64]]:
    """Elements to check, shape `(n_points, dimensions)`, the last one first; how long each takes counts."""
    last, seconds_each = np.asarray(shape) - 1, 0.0
    for number, (most, seconds) in enumerate(CHECKS):
        count = min(most, int(seconds / seconds_each)) if seconds_each else most
        if not count:
            return
        points = rng.integers(0, last, (count, len(shape)), endpoint=True)
        if number < 2:
            points[0] = 0 if number else last
        started = time.monotonic()
        yield points
        seconds_each = (time.monotonic() - started) / count
