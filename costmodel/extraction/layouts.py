"""Inputs whose layout the program chooses, as their readers find them.

A task that rewrites layouts brings its constant inputs into the order in which each program reads them
(`ansor.schedule.layout_rewrite`). That happens after the search; to the search, an element of such an input
lies where the loops come to it: the index is one number whose digits are the loops that move it, outermost
first. So the loop that moves it innermost walks through memory without gaps, whatever dimension it moves.

Leading dimensions that stay as they are (see `trailing_forms`) are no part of that.

Rows whose loops do not cut a dimension into equal pieces keep the input as it is defined, as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ansor.schedule.affine import Affine, Atom, Interval, LoopAtom
from ansor.schedule.layout_reading import read_indices, trailing_forms
from ansor.schedule.layout_rewrite import declaring_reader, layout_free_inputs
from ansor.schedule.state import State
from costmodel.extraction.form import Mask
from costmodel.extraction.indices import Value


@dataclass(frozen=True, slots=True, eq=False)
class LoopOrder:
    """
    An input in the order of its reader's loops.

    Parameters
    ----------
    index
        The place of the element that is read [elements].
    size
        Elements of the input in this layout.
    rows
        In which programs it has this layout; in the others it is as defined.
    """

    index: Affine
    size: Value
    rows: Mask


@dataclass(frozen=True, slots=True)
class RewrittenInput:
    """The stage whose loops an input follows, and how many leading dimensions of it stay as they are."""

    reader: int
    leading: int


def rewritten_inputs(state: State) -> dict[int, RewrittenInput]:
    """The inputs that get the layout of a reader's loops, by their stages."""
    found: dict[int, RewrittenInput] = {}
    for tensor in layout_free_inputs(state.dag):
        stage_id, reader = state.stage_id(tensor), declaring_reader(state, tensor)
        if reader is None:
            continue
        indices = read_indices(state, stage_id, reader)
        if isinstance(indices, str):
            continue
        leading = len(indices) - len(trailing_forms(state.stages[reader], reader, indices))
        if not indices or leading < len(indices):
            found[stage_id] = RewrittenInput(reader, leading)
    return found


def loop_order(
    forms: Sequence[Interval | None],
    shape: Sequence[Value],
    numbers: Mapping[LoopAtom, int],
    extents: Sequence[Value],
) -> LoopOrder | None:
    """
    Put an input into the order in which loops read it.

    Parameters
    ----------
    forms
        Its index in each dimension, None where data decide.
    shape
        Its extents as defined.
    numbers
        The position of each loop in the nest, in order, outermost first.
    extents
        Iterations of these loops.

    Returns
    -------
    LoopOrder or None
        None if the input stays as it is in all rows.
    """
    rows: Mask = True
    pieces: dict[LoopAtom, Value] = {}
    whole: Value = 1
    for form, extent in zip(forms, shape, strict=True):
        if form is None or not isinstance(form.width, int) or form.width != 1:
            return None
        terms = form.base.terms
        if any(not isinstance(atom, LoopAtom) or atom in pieces for atom in terms):
            return None
        strides = {atom: terms[atom] for atom in numbers if atom in terms}  # the others run once
        above: Value = 0
        for atom, stride in strides.items():
            steps = extents[numbers[atom]]
            moves = np.greater(steps, 1)
            step = np.maximum(stride, 1)
            cuts = np.where(above == 0, -(-extent // step), above // step)
            fits = (stride >= 1) & ((above == 0) | ((above % step == 0) & (cuts >= steps)))
            rows = rows & (fits | ~moves)
            pieces[atom] = np.where(moves, cuts, 1)
            above = np.where(moves, stride, above)
        rows = rows & np.less_equal(above, 1)
        whole = whole * np.where(above == 0, extent, 1)
    if not np.any(rows):
        return None
    order: dict[Atom, Value] = {}
    size: Value = 1
    for atom in sorted(pieces, key=numbers.__getitem__, reverse=True):
        order[atom] = size
        size = size * pieces[atom]
    return LoopOrder(Affine(0, order), size * whole, rows)
