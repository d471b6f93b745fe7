"""How far an output may be off, from the graph above it.

Two correct programs differ by rounding: they add in another order, fuse multiplications and
additions, use other polynomials for exp. With eps the spacing of the coarsest float dtype in which anything
is computed on the way, and K the terms of each sum or product, which is kept in floats of spacing eps_sum,

    rtol = 16 * eps + 1.5 * sqrt(total of eps_sum^2 * K),
    |found - expected| <= rtol * (|expected| + rms(expected)).

Most graphs compute in one dtype; then that is eps * (16 + 1.5 * sqrt(K)), K the terms of all reductions.
The 16 is for a handful of elementwise operations and intrinsic functions. The root is how rounding errors
of K additions grow relative to the typical result: for independent terms their standard deviation is about
0.15 * eps * sqrt(K) * rms, so 1.5 stands ten deviations away (seven for the difference of two such sums).
The rms term is there because a sum that happens to cancel is small while its errors are not. It is that of
the elements which are computed: constants that a choice puts in, such as -1e9 where attention is masked, do
not count (`masks`), as errors would hide behind them. A term that is missing shows as about
1 / sqrt(K) of the rms, far above the tolerance unless K * eps_sum approaches 1. Where nothing is computed in
floats (a transposition, a gather), the result must be exact.

An output that is rounded at last, as products of 16-bit floats are that were added up in float32, is not
computed in the dtype of the output, and nothing follows that would make more of its error: 2 * eps of that
dtype, two neighbours at the least, are added to the rtol of what is rounded, and two of its least numbers to
the bound, since small ones are no closer to each other than that.

Tensor cores, where the target has them, add products of 16-bit floats to a float32 by fours, eights or
sixteens: those, and the sum, are aligned to the greatest and cut off there. What is cut off has the sign of
the number, so these errors do not cancel. Of n numbers each loses half a unit in the last place of the result
on average, which K / n times over is (n + 1) / (2 n) * eps * K at most, and half of that for a sum that grows
at an even pace. The tolerance of such sums is therefore

    rtol = 16 * eps + eps_sum * (1.5 * sqrt(K) + K / 2),      eps_sum that of float32.

Where an operation allows its operands to be rounded to tfloat32 (`attrs={"rounded_operands": "tfloat32"}`),
each is off by half a unit of its last place, 2^-11, at most. Of random terms these errors are independent:
the sum is off by 2^-11 * sqrt(2 / 3) of the rms as a standard deviation. Ten of these, 4 * 2^-10, are allowed
in addition.

Where floats are compared or converted to integers on the way, a choice, an index or an integer may come out
otherwise. Of what spreads like a normal distribution about the number that it is compared with, a share of
0.45 standard deviations of the error in units of the rms is that near to it, 0.045 * rtol for long sums.
Elements may hold anything, but NaN for a number, up to a share of

    min(rtol / 5, 0.01),      rtol that of what is compared or converted, 0 if that is not computed.

Integers and bools must be equal otherwise; of those that depend on such a comparison or conversion, be it of
what is not computed, one in a hundred thousand may differ, and integers may be off by one.

An operation may state that its algorithm has larger errors than that (Winograd's convolution, whose sums
cancel): `attrs={"rounding_amplification": 31.0}`. Its outputs may be off by so many times more.

NaN equals NaN, and an infinity itself and nothing else.

Sums whose rounding errors do not cancel may be off by far more than that: see `sums`. If a program is
found wrong, what is expected is computed a second time, with sums in another order or in more digits. Where
that differs, floats from the one to the other are right.

So may single elements, where operations cancel and others divide by what is left: see `rounding`. If
a program is found wrong, the error e is computed that one rounding of each operation makes of an element, and

    |found - expected| <= max(rtol * (|expected| + rms(expected)), rtol / eps * e)

is right, which is 16 roundings or more. That is if they are four times the tolerance of some element:
products of random matrices, which the tolerance is made for, are checked by it alone. Where e is infinite or
NaN anything is right.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ansor.dtypes import is_float
from ansor.intrinsics import WarpIntrinsic, match_warp, warp_intrinsics
from ansor.schedule.access import amplification
from ansor.task.target import Target
from ansor.te.expr import (
    COMPARISONS,
    Binary,
    Call,
    Cast,
    Expr,
    Reduce,
    children,
    every_node,
    int_value,
)
from ansor.te.reduction import builtin_name
from ansor.te.tensor import Operation, PlaceholderOp, Tensor, tensors_read
from measure.workers.check import Tolerance

EPS: Final = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The spacing of numbers from 1 on."""
LEAST: Final = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""That of the least numbers."""
_ROUNDED: Final = {"tfloat32": 2.0**-10}
"""The spacing of formats that operands may be rounded to."""
_RARE: Final = 1e-5
_MOST_RARE: Final = 1e-2
_SPREAD: Final = 5
"""What the tolerance is over the share of elements that comparisons excuse."""
LEAST_ROUNDINGS: Final = 16
"""How many roundings of each operation are allowed at the least."""


def output_tolerance(output: Tensor, target: Target | None = None) -> Tolerance:
    """
    Return the tolerance of one output from the graph above it; `scale` is left at 0 (see `rms`).

    Parameters
    ----------
    target
        What programs run on: only those for GPUs with tensor cores may have the errors of these.
    """
    cores = [one for one in warp_intrinsics() if target is not None and target.has_warp_intrinsic(one)]
    steps = {op: _step(op, cores) for op in _operations([output])}
    last, rounding, absolute = rounded_last(output), 0.0, 0.0
    if last is not None:
        steps[output.op] = replace(steps[output.op], eps=_spacing([last]))
        rounding = 2 * EPS[output.dtype]
        absolute = 2 * LEAST[output.dtype]
    deciding = [values for op in steps if (values := _deciding(op))]
    error = max((_error_behind(values, steps) for values in deciding), default=0.0)
    rare = min(error / _SPREAD, _MOST_RARE)
    if deciding and not is_float(output.dtype):
        rare = max(rare, _RARE)
    relative, eps = _relative(steps.values()), max(step.eps for step in steps.values())
    roundings = relative / eps if eps else 0.0
    return Tolerance(relative + rounding, rare=rare, absolute=absolute, roundings=roundings)


def rounded_last(output: Tensor) -> Expr | None:
    """What an output rounds to fewer digits and does nothing else with."""
    if isinstance(output.op, PlaceholderOp):
        return None
    value = output.op.body[output.value_index]
    if not isinstance(value, Cast) or not is_float(value.dtype) or not is_float(value.a.dtype):
        return None
    return value.a if EPS[value.a.dtype] < EPS[value.dtype] else None


def alternative_tolerance(direct: Tolerance, output: Tensor, target: Target | None = None) -> Tolerance:
    """The tolerance of an output that another algorithm computes, from that of the direct one's output."""
    amplified = amplification(_operations([output])) * direct.relative
    own = output_tolerance(output, target)
    relative = max(amplified, own.relative)
    roundings = direct.roundings * relative / direct.relative if direct.relative else own.roundings
    return replace(direct, relative=relative, rare=max(direct.rare, own.rare), roundings=roundings)


@dataclass(frozen=True, slots=True)
class _Step:
    """What an operation adds to errors: the spacing of its floats, of its sums, their terms, and so on."""

    eps: float
    sum_eps: float = 0.0
    terms: int = 0
    cut: int = 0
    rounded: float = 0.0
    amplification: float = 1.0


def _step(op: Operation, cores: Sequence[WarpIntrinsic]) -> _Step:
    """What an operation adds to errors where there are such tensor cores."""
    if isinstance(op, PlaceholderOp):
        return _Step(0.0)
    terms = math.prod(int_value(axis.extent) or 1 for axis in op.reduce_axis) if op.reduce_axis else 0
    matching = [one for one in cores if match_warp(op, one)]
    rounded = max((4 * _ROUNDED.get(one.rounded, 0.0) for one in matching), default=0.0)
    sums = [root for root in op.body if isinstance(root, Reduce) and not _is_exact(root)]
    sum_eps = max((EPS[root.dtype] for root in sums if is_float(root.dtype)), default=0.0)
    cut = terms if matching else 0
    return _Step(_spacing(op.body), sum_eps, terms, cut, rounded, amplification([op]))


def _spacing(values: Sequence[Expr]) -> float:
    """That of the coarsest dtype in which floats are computed in some expressions, 0 if none are."""
    computed = (
        node
        for node in every_node(node for value in values for node in _computed_of(value))
        if isinstance(node, (Binary, Call, Cast, Reduce))
    )
    return max((EPS[node.dtype] for node in computed if is_float(node.dtype)), default=0.0)


def _computed_of(value: Expr) -> Sequence[Expr]:
    """What rounding may go into a value by: of a maximum or minimum only its terms."""
    return value.sources if isinstance(value, Reduce) and _is_exact(value) else [value]


def _is_exact(root: Reduce) -> bool:
    """Whether a reduction gives one of its terms, as it is."""
    return builtin_name(root.combiner) in ("max", "min")


def _relative(steps: Collection[_Step]) -> float:
    """The relative error of what comes out of some operations."""
    sums = math.sqrt(sum(step.sum_eps**2 * step.terms for step in steps))
    spread = LEAST_ROUNDINGS * max(step.eps for step in steps) + 1.5 * sums
    cut = EPS["float32"] * sum(step.cut for step in steps) / 2
    rounded = sum(step.rounded for step in steps)
    return max(step.amplification for step in steps) * (spread + cut + rounded)


def _error_behind(values: Sequence[Expr], steps: Mapping[Operation, _Step]) -> float:
    """The relative error of values that are made of what operations give."""
    behind = [steps[op] for op in _operations(tensors_read(values))]
    return _relative([_Step(_spacing(values)), *behind])


def _deciding(op: Operation) -> list[Expr]:
    """The values on whose rounding it depends which of two an element is."""
    if isinstance(op, PlaceholderOp):
        return []
    found = [part for node in every_node(op.body) if _decides(node) for part in children(node)]
    for root in op.body:
        if isinstance(root, Reduce) and any(map(_decides, every_node(root.combiner.result))):
            found.extend(root.sources)
    return found


def _decides(node: Expr) -> bool:
    """Whether a node makes an integer or a choice of a float."""
    match node:
        case Cast(a=a, dtype=dtype):
            return is_float(a.dtype) and not is_float(dtype)
        case Binary(op=op, a=a):
            return op in COMPARISONS and is_float(a.dtype)
        case _:
            return False


def _operations(tensors: Sequence[Tensor]) -> Iterator[Operation]:
    """Every operation that tensors depend on, their own included."""
    seen: set[Operation] = set()
    waiting: list[Operation] = [tensor.op for tensor in tensors]
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        yield op
        if not isinstance(op, PlaceholderOp):
            waiting.extend(tensor.op for tensor in op.input_tensors)
