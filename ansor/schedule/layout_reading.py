"""Layouts that fit a reader: in which order the loops of a stage walk through a tensor.

If the reader's loops are taken one by one, outermost first, those that move the index of some dimension are
the digits of the layout in which the tensor is read from front to back. Loops that only repeat the reading
are left out. Splits give a digit its stride; a fused loop counts as the loops it was made from. Dimensions
up to one whose index is no sum of multiples of axes stay as they are, in front.

`access_layout` also counts the loops of other stages around the reader's place, and knows every extent:
it is for complete programs. `tile_layout` looks at the reader alone and at nothing but its splits, which
works for a sketch, whose lengths are columns or not yet chosen. There a dimension that a window passes over,
indexed by a sum of axes, is one digit, as its pieces overlap: in the place of the loop that moves it last.

Source: `RewriteLayout` of TVM 0.16 (`auto_scheduler/compute_dag.cc`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ansor.errors import ScheduleError
from ansor.schedule.affine import (
    Affine,
    Interval,
    LoopAtom,
    UnknownBoundError,
)
from ansor.schedule.bounds import StageBounds, enclosing_loops, infer_bounds, part_strides
from ansor.schedule.derivation import loop_extents
from ansor.schedule.evaluation import evaluate, evaluate_exactly, is_positive
from ansor.schedule.extents import Extent, ceil_div, extent_of, multiply
from ansor.schedule.layout import Digit, Layout
from ansor.schedule.stages import ComputeAt, FuseRelation, Iterator, SplitRelation, Stage
from ansor.te.expr import Expr, IterVar, Var, int_value

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class _Walk:
    """One loop that moves the index of dimension `dim` by `stride` elements, `extent` times."""

    dim: int
    extent: int
    stride: int


# -- which loops -------------------------------------------------------------------------------------------


def unfused_loops(stage: Stage) -> tuple[tuple[str, ...], ...]:
    """For each loop of a stage the loops that it stands for: itself, or those that were fused into it.

    The parts of a split fused loop do not correspond to single loops; the first part stands for all.
    """
    parent = {part: r.parent for r in stage.relations if isinstance(r, SplitRelation) for part in r.parts}
    fused = {r.fused: r.parents for r in stage.relations if isinstance(r, FuseRelation)}
    seen: set[str] = set()

    def expand(name: str) -> tuple[str, ...]:
        origin = name
        while origin in parent:
            origin = parent[origin]
        if origin in fused:
            return tuple(loop for before in fused[origin] for loop in expand(before))
        return (name,)

    result: list[tuple[str, ...]] = []
    for loop in stage.iterators:
        fresh = tuple(name for name in expand(loop.name) if name not in seen)
        seen.update(fresh)
        result.append(fresh)
    return tuple(result)


def loop_strides(stage: Stage, extents: Mapping[str, Extent]) -> dict[str, tuple[str, Extent]]:
    """For each loop made by splits alone: the axis that it moves, and by how much."""
    strides: dict[str, tuple[str, Extent]] = {
        axis.name: (axis.name, 1) for axis in (*stage.compute.axis, *stage.compute.reduce_axis)
    }
    for relation in stage.relations:
        if isinstance(relation, SplitRelation) and relation.parent in strides:
            axis, own = strides[relation.parent]
            steps = part_strides([extents[part] for part in relation.parts])
            for part, step in zip(relation.parts, steps, strict=True):
                strides[part] = (axis, multiply(own, step))
    return strides


def read_indices(state: State, stage_id: int, reader: int) -> tuple[Expr, ...] | str:
    """The indices at which a stage reads the result of another, or why there is no one answer."""
    target, source = state.stages[reader], state.stages[stage_id]
    if target.is_placeholder or target.compute_at is ComputeAt.INLINED:
        return f"its reader {target.name!r} has no loops of its own"
    found = state.access.reads(target.op).get(source.op, ())
    if not found:
        return f"{target.name!r} does not read it"
    first = found[0]
    if any(not _same(a, b) for other in found[1:] for a, b in zip(first, other, strict=True)):
        return f"{target.name!r} reads it at {len(found)} different places"
    return first


def _same(a: Expr, b: Expr) -> bool:
    return a is b or str(a) == str(b)


def trailing_forms(stage: Stage, stage_id: int, indices: Sequence[Expr]) -> list[Affine]:
    """
    Find the indices of the dimensions that a layout may cut, as forms of loops that stand for a stage's axes.

    These are the last dimensions, as far as their indices are sums of multiples of axes. Those before keep
    their place, outermost, in any layout: the taps of a transposed convolution, which remainders decide.
    Where data decide an index, all keep it.
    """
    axes = (*stage.compute.axis, *stage.compute.reduce_axis)
    loops: dict[Var, Interval] = {
        axis: Interval.point(Affine.of_atom(LoopAtom(stage_id, axis.name))) for axis in axes
    }
    try:
        forms = [evaluate(index, loops).base for index in indices]
    except UnknownBoundError:
        return []
    computed = [dim for dim, form in enumerate(forms) if not _is_sum_of_multiples(form)]
    return forms[computed[-1] + 1 :] if computed else forms


def _is_sum_of_multiples(form: Affine) -> bool:
    return all(isinstance(atom, LoopAtom) and is_positive(factor) for atom, factor in form.terms.items())


# -- complete programs ---------------------------------------------------------------------------------------


def access_layout(state: State, stage_id: int, reader: int) -> Layout | str:
    """
    The layout in which a stage of a complete program reads a tensor from front to back.

    Parameters
    ----------
    state
        A concrete state.
    stage_id
        The stage whose result is read; a placeholder, usually.
    reader
        The stage that reads it.

    Returns
    -------
    Layout or str
        Digits with one iteration left out; or the reason why the tensor is to stay as it is.
    """
    indices = read_indices(state, stage_id, reader)
    if isinstance(indices, str):
        return indices
    tensor = state.stages[stage_id].op.output(0)
    sizes = tuple(int_value(extent) for extent in tensor.shape)
    shape = tuple(size for size in sizes if size is not None)
    if len(shape) < len(sizes):
        return "its shape is symbolic"
    plain = _without_fuses(state)
    walks = _walks(plain, reader, indices)
    if isinstance(walks, str):
        return walks
    digits: dict[int, Digit] = {}
    whole: list[Digit] = []
    for dim, extent in enumerate(shape):
        own = [at for at, walk in enumerate(walks) if walk.dim == dim]
        if not own:
            whole += [Digit(dim, extent, 1)] * (extent > 1)
            continue
        found = _pieces(walks, own, extent)
        if found is None:
            return f"the loops of {state.stages[reader].name!r} do not cut dimension {dim} into equal pieces"
        digits.update(found)
    layout = Layout.of(shape, Layout(shape, (*whole, *(digits[at] for at in sorted(digits)))).to_json())
    if layout.is_row_major:
        return "it is read in the order in which it is stored"
    return layout


def _without_fuses(state: State) -> State:
    """The state with the loops that were fused in place of the fused ones."""
    stages: list[Stage] = []
    last: dict[tuple[int, int], int] = {}
    for stage_id, stage in enumerate(state.stages):
        if stage.is_placeholder:
            stages.append(stage)
            continue
        loops: list[Iterator] = []
        for position, (loop, names) in enumerate(zip(stage.iterators, unfused_loops(stage), strict=True)):
            loops += [replace(loop, name=name) if name != loop.name else loop for name in names]
            last[stage_id, position] = max(len(loops) - 1, 0)
        direct = {axis.name for axis in (*stage.compute.axis, *stage.compute.reduce_axis)}
        kept = []
        for relation in stage.relations:
            if isinstance(relation, SplitRelation) and relation.parent in direct:
                direct.update(relation.parts)
                kept.append(relation)
        stages.append(replace(stage, iterators=tuple(loops), relations=tuple(kept)))
    attach = {stage: (target, last[target, position]) for stage, (target, position) in state.attach.items()}
    return type(state)(state.dag, tuple(stages), attach, state.steps)


def _walks(plain: State, reader: int, indices: Sequence[Expr]) -> list[_Walk] | str:
    """The loops that move some index, outermost first, of a state without fused loops."""
    name = plain.stages[reader].name
    bounds = infer_bounds(plain)
    known = bounds.stages[reader]
    stage = bounds.state.stages[reader]
    forms = trailing_forms(stage, reader, indices)
    if indices and not forms:
        return f"{name!r} reads it at `{', '.join(map(str, indices))}`"
    moved: dict[tuple[int, str], list[tuple[int, int]]] = {}
    used: set[str] = set()
    for dim, form in enumerate(forms, len(indices) - len(forms)):
        for atom, coefficient in form.terms.items():
            assert isinstance(atom, LoopAtom)
            assert isinstance(coefficient, int)
            if atom.name in used:
                return f"{name!r} reads it at places that depend on {atom.name!r} twice"
            used.add(atom.name)
            for place, step in _loops_of_axis(stage, reader, known, atom.name).items():
                moved.setdefault(place, []).append((dim, step * coefficient))
    around = _outermost_first(enclosing_loops(plain, reader))
    order = [(at, bounds.state.stages[at].iterators[position].name) for at, position in around]
    order += [(reader, loop.name) for loop in stage.iterators]
    walks = []
    for at, loop in order:
        extent = bounds.stages[at].extents[loop]
        assert isinstance(extent, int)
        walks += [_Walk(dim, extent, step) for dim, step in moved.get((at, loop), []) if extent > 1]
    return walks


def _outermost_first(loops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The loops of `enclosing_loops`, which lists the innermost stage first, in nesting order."""
    stages = list(dict.fromkeys(at for at, _ in loops))
    return [loop for at in reversed(stages) for loop in loops if loop[0] == at]


def _loops_of_axis(stage: Stage, stage_id: int, known: StageBounds, axis: str) -> dict[tuple[int, str], int]:
    """The loops, own and around, that move an axis of a stage, and by how much."""
    found: dict[tuple[int, str], int] = {}
    names = [a.name for a in stage.compute.axis]
    if axis in names:
        for atom, coefficient in known.region[names.index(axis)].base.terms.items():
            if isinstance(atom, LoopAtom) and isinstance(coefficient, int) and coefficient > 0:
                found[atom.stage, atom.name] = coefficient
    for loop, (origin, stride) in loop_strides(stage, known.extents).items():
        if origin == axis and isinstance(stride, int):
            found[stage_id, loop] = stride
    return found


def _pieces(walks: Sequence[_Walk], own: Sequence[int], extent: int) -> dict[int, Digit] | None:
    """The digits of one dimension by position in `walks`; None if these are no pieces of each other."""
    if extent == 1:
        return {}
    order = sorted(own, key=lambda at: walks[at].stride)
    if walks[order[0]].stride != 1:
        return None
    digits: dict[int, Digit] = {}
    for at, above in zip(order, [*order[1:], None], strict=True):
        walk = walks[at]
        if above is None:
            pieces = ceil_div(extent, walk.stride)
        else:
            pieces, rest = divmod(walks[above].stride, walk.stride)
            if rest or pieces < walk.extent:
                return None
        digits[at] = Digit(walk.dim, pieces, walk.stride)
    return digits


# -- sketches ------------------------------------------------------------------------------------------------


def tile_layout(state: State, stage_id: int, reader: int) -> Layout:
    """
    The layout in which the tiles of a stage read a tensor.

    Parameters
    ----------
    state
        Split lengths may be columns, or None, which counts as 1.
    stage_id
        The stage whose result is read.
    reader
        The stage that reads it, each dimension by one of its axes, a sum of some, or a constant.

    Returns
    -------
    Layout
        One digit for each loop of these axes, also for those that have one iteration; of windows, for the
        last of them.

    Raises
    ------
    ScheduleError
        If the tensor is read in another way.
    """
    found = reading_axes(state, stage_id, reader)
    source, stage = state.stages[stage_id], state.stages[reader]
    if isinstance(found, str):
        raise ScheduleError(f"follow_layout of stage {source.name!r}: {found}")
    shape = [size for extent in source.op.output(0).shape if (size := int_value(extent)) is not None]
    filled = _with_lengths(stage)
    extents = loop_extents(filled)
    axis_of = {loop: axis for loop, (axis, _) in loop_strides(filled, extents).items()}
    dims = {axis: dim for dim, reading in enumerate(found) for axis in reading.steps}
    loops = [loop for names in unfused_loops(filled) for loop in names if axis_of[loop] in dims]
    pieces: dict[int, list[str]] = {}
    for loop in loops:
        pieces.setdefault(dims[axis_of[loop]], []).append(loop)
    pieces = {dim: names[-1:] if found[dim].is_window else names for dim, names in pieces.items()}
    for dim, names in pieces.items():
        if names != [loop for loop in _outer_to_inner(filled) if loop in names]:
            raise ScheduleError(
                f"follow_layout of stage {source.name!r}: {stage.name!r} runs through the pieces of "
                f"dimension {dim} from the inside out ({', '.join(names)}); use rewrite_layout"
            )
    constant = [Digit(dim, size, 1) for dim, size in enumerate(shape) if not found[dim].steps]
    # Strides are what the pieces inside cover, which is more than a loop's step where nested splits overlap.
    covered: dict[int, Extent] = dict.fromkeys(pieces, 1)
    moved: list[Digit] = []
    for loop in reversed(loops):
        dim = dims[axis_of[loop]]
        if loop not in pieces[dim]:
            continue
        # The outermost piece covers what the tensor has, which may be more than the axis runs over.
        outermost = pieces[dim][0] == loop
        extent = ceil_div(shape[dim], covered[dim]) if outermost else extents[loop]
        moved.append(Digit(dim, extent, covered[dim]))
        covered[dim] = multiply(covered[dim], extent)
    return Layout(tuple(shape), (*constant, *reversed(moved)))


def _with_lengths(stage: Stage) -> Stage:
    """The stage with lengths of 1 where they are open."""
    relations = tuple(
        replace(relation, lengths=tuple(1 if length is None else length for length in relation.lengths))
        if isinstance(relation, SplitRelation)
        else relation
        for relation in stage.relations
    )
    return replace(stage, relations=relations)


def _outer_to_inner(stage: Stage) -> list[str]:
    """All loops, past and present, in an order in which outer parts of a loop precede inner ones."""
    parts = {r.parent: r.parts for r in stage.relations if isinstance(r, SplitRelation)}
    order: list[str] = []
    waiting = [axis.name for axis in (*stage.compute.axis, *stage.compute.reduce_axis)][::-1]
    while waiting:
        name = waiting.pop()
        order.append(name)
        waiting.extend(reversed(parts.get(name, ())))
    return order


class Reading(NamedTuple):
    """How a dimension is indexed.

    Attributes
    ----------
    steps
        How far an iteration of each of the reader's axes moves the index [elements]; empty for a constant.
    is_axis
        Whether the index is one of the axes.
    """

    steps: Mapping[str, int]
    is_axis: bool

    @property
    def is_window(self) -> bool:
        """Whether the index is made of axes, of several or of one and something else."""
        return bool(self.steps) and not self.is_axis


def reading_axes(state: State, stage_id: int, reader: int) -> tuple[Reading, ...] | str:
    """How each dimension is indexed by axes of the reader, or why that is no answer."""
    indices = read_indices(state, stage_id, reader)
    if isinstance(indices, str):
        return indices
    tensor, stage = state.stages[stage_id].op.output(0), state.stages[reader]
    if any(int_value(extent) is None for extent in tensor.shape):
        return "its shape is not known in numbers"
    readings: list[Reading] = []
    for index in indices:
        reading = reading_of(stage, index)
        if reading is None:
            return f"{stage.name!r} reads it at `{index}`, not at one of its axes or a sum of them"
        readings.append(reading)
    used = [name for reading in readings for name in reading.steps]
    if len(set(used)) < len(used):
        return f"{stage.name!r} reads it along a diagonal"
    return tuple(readings)


def reading_of(stage: Stage, index: Expr) -> Reading | None:
    """How a dimension is indexed by axes of a stage; None if by no sum of multiples of them."""
    axes = (*stage.compute.axis, *stage.compute.reduce_axis)
    loops = {axis: LoopAtom(0, axis.name) for axis in axes}
    forms: dict[Var, Affine] = {axis: Affine.of_atom(loop) for axis, loop in loops.items()}
    lengths = {loop: extent_of(axis.extent) for axis, loop in loops.items()}
    try:
        terms = evaluate_exactly(index, forms, lengths.__getitem__).terms
    except UnknownBoundError:
        return None
    steps = {atom.name: int(step) for atom, step in terms.items() if isinstance(atom, LoopAtom)}
    return Reading(steps, isinstance(index, IterVar))
