"""Padding inside its readers: a stage with a choice, whose elements reductions use a few times each.

TVM keeps loops for every stage that chooses, so that padding is copied. For a depthwise convolution
or a pooling, which use an element a few times, the copy takes a good part of the time, whatever it tests.
Inlined, the choice is one of addresses (`ansor.codegen.llvm.addresses`), made outside of the loops that it
does not depend on. Where a convolution uses elements for many channels the copy is nothing beside the
products, and that of a small image, much of which is padding, puts together pixels that lie far apart. But
inlined, padding is not multiplied either (`ansor.ir.passes.identities`): 18 % of what a 3x3 kernel does to
7x7 pixels.

Zeros between elements, as a transposed convolution by the book inserts, make most of the terms nothing, and
are read out of order. The tests are made outside of vectors that lie along another axis: a 3x3 kernel at
stride 2 on 16x16 pixels of 32 channels, channels last, took 33 us instead of 117. Where vectors run across
the zeros they would gather: channels first it took 174 us instead of 120.

Source: the choice between storing and recomputing in Halide's autoscheduler (Adams et al., 2019). Not in the
reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from ansor.schedule.inlining import effective_body
from ansor.schedule.skipping import Needed, needed_parts
from ansor.schedule.state import State
from ansor.te.sizes import elements_of
from ansor.te.tensor import ComputeOp
from sketches.relations import has_reduce_iterator, is_computed, is_converted, vector_axis
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.conversions import is_widened
from sketches.rules.recompute import is_costly, uses_per_element

FEW: Final = 32
"""Up to so many uses of an element, doing without the copy is worth a sketch of its own."""

LITTLE: Final = 4 / 3
"""Up to so many elements for each that is read, padding counts as little."""

SPARED: Final = 1 / 25
"""Part of a reduction's terms that only padding keeps from being left out, and that is worth a sketch."""

MOST: Final = 1 / 2
"""The same, from which on a copy that is not in order is not worth one."""


def is_cheap_choice(state: State, stage_id: int) -> bool:
    """Whether a stage chooses between values and calls nothing dear."""
    op = state.stages[stage_id].op
    return isinstance(op, ComputeOp) and state.access.has_branch(op) and not is_costly(op)


def pads_little(op: ComputeOp) -> bool:
    """Whether a stage has hardly more elements than a tensor that it reads; not if an extent is symbolic."""
    read = max(map(elements_of, op.input_tensors), default=0)
    return read > 0 and elements_of(op.output(0)) <= LITTLE * read


def spares_terms(state: State, stage_id: int) -> bool:
    """Whether reductions have much less to compute if a stage that chooses is inlined."""
    inlined = state.compute_inline(stage_id)
    readers = state.consumers(stage_id)
    return any(terms_left(inlined, reader) <= (1 - SPARED) * terms_left(state, reader) for reader in readers)


def spares_most_terms(state: State, stage_id: int) -> bool:
    """Whether all readers have little left to compute if a stage is inlined, and no tests in vectors."""
    inlined = state.compute_inline(stage_id)
    readers = state.consumers(stage_id)
    return all(
        terms_left(inlined, reader) <= (1 - MOST) * terms_left(state, reader)
        and not _varies_in_vectors(inlined, reader)
        for reader in readers
    )


def _varies_in_vectors(state: State, stage_id: int) -> bool:
    """Whether what a reduction's terms need depends on its lanes, which those of a scalar are terms of."""
    axes = state.stages[stage_id].compute.axis
    return not axes or any(vector_axis(state, stage_id) in part.axes for part in _needed(state, stage_id))


def terms_left(state: State, stage_id: int) -> float:
    """The part of a stage's terms that can change anything."""
    return prod(part.share for part in _needed(state, stage_id))


def _needed(state: State, stage_id: int) -> tuple[Needed, ...]:
    """What a stage's terms need to change anything; of several outputs, of the one with the least of them."""
    op = state.stages[stage_id].compute
    axes = (*op.axis, *op.reduce_axis)
    parts = (needed_parts(root, axes) for root in effective_body(state, stage_id))
    return min(parts, key=lambda found: prod(part.share for part in found))


class InlinePadding:
    """
    A choice in front of reductions -> also, or only, inlined.

    Also one that adds little, of whose elements each is used a few times, or one that spares terms, if it
    reads in order; only inlined one that does not and spares most terms. Of the two latter, unless it had
    better be stored in the dtype that its readers convert it to.
    """

    name = "InlinePadding"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if not is_computed(state, stage_id) or state.is_output(stage_id) or is_converted(state, stage_id):
            return Verdict.PASS
        if has_reduce_iterator(state, stage_id) or not is_cheap_choice(state, stage_id):
            return Verdict.PASS
        op, is_narrow = state.stages[stage_id].compute, not is_widened(state, stage_id)
        if not state.access.reads_in_order(op):
            most = is_narrow and spares_most_terms(state, stage_id)
            return Verdict.APPLY_AND_SKIP_REST if most else Verdict.PASS
        few = 0 < uses_per_element(state, stage_id) <= FEW and pads_little(op)
        return Verdict.APPLY if few or (is_narrow and spares_terms(state, stage_id)) else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state.compute_inline(stage_id), stage_id - 1)]
