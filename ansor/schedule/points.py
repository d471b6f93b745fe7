"""Points of a stage: what its axes are, as expressions of loop variables.

Every axis is the start of the stage's region plus what its loops make of their variables. Loops may cover
more than an axis has, and pieces more than what they are pieces of: guards say where a point counts. Those
that follow from the ranges of the loops are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansor.ir.bounds import Bounds as Ranges
from ansor.ir.simplify import prove, simplify
from ansor.schedule.affine import (
    Affine,
    LoopAtom,
    OpaqueAtom,
    SizeAtom,
)
from ansor.schedule.bounds import Bounds, StageBounds
from ansor.schedule.derivation import axis_values
from ansor.schedule.evaluation import unwrapped
from ansor.schedule.extents import Extent, expr_of, extent_of, is_one
from ansor.schedule.stages import Annotation, FuseRelation, SplitRelation, Stage, innermost_pieces, made_from
from ansor.te.expr import INDEX_DTYPE, Binary, BinaryOp, Const, Expr, Var, cast
from ansor.te.structure import is_among, same_structure

ZERO = Const(0, INDEX_DTYPE)


@dataclass(frozen=True, slots=True)
class StageLoops:
    """The variables of a stage's loops by name, and those of their copy that initialises a reduction.

    A loop of extent 1 has `ZERO`.
    """

    main: Mapping[str, Expr]
    init: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class Point:
    """One element of a stage: its axes (absolute), its position in the region, the guards it needs."""

    axes: Mapping[Var, Expr]
    local: tuple[Expr, ...]
    guards: tuple[Expr, ...]


class Points:
    """
    The points of all stages of a program.

    Parameters
    ----------
    bounds
        Of a concrete state.
    sizes
        Symbolic sizes.

    Attributes
    ----------
    loops
        Loop variables by stage.
    known
        The ranges of loop variables and sizes.
    """

    def __init__(self, bounds: Bounds, sizes: Sequence[Var]) -> None:
        self.bounds, self.state = bounds, bounds.state
        self._ranges: dict[Var, tuple[int | None, int | None]] = {}
        self._ends: dict[Var, Expr] = {}
        self._bases: dict[tuple[int, int], Expr] = {}
        self.loops = {stage_id: self._make_loops(stage_id) for stage_id in bounds.stages}
        self.known = Ranges({**self._ranges, **dict.fromkeys(sizes, (0, None))})

    def _make_loops(self, stage_id: int) -> StageLoops:
        main: dict[str, Expr] = {}
        init: dict[str, Expr] = {}
        for loop in self.state.stages[stage_id].iterators:
            for values in (main, init):
                if is_one(loop.extent):
                    values[loop.name] = ZERO
                else:
                    var = Var(loop.name)
                    values[loop.name] = var
                    extent = loop.extent
                    self._ranges[var] = (0, extent - 1 if isinstance(extent, int) else None)
                    if isinstance(extent, Expr):
                        self._ends[var] = extent
        return StageLoops(main, init)

    def of(self, stage_id: int, variables: Mapping[str, Expr], spatial_only: bool = False) -> Point:
        """Every axis of a stage as an expression of loop variables, and the guards they need."""
        stage, known = self.state.stages[stage_id], self.bounds.stages[stage_id]
        leaves = {loop.name: variables[loop.name] for loop in stage.iterators}
        values = axis_values(stage.relations, leaves, known.extents)
        op = stage.compute
        axes: dict[Var, Expr] = {}
        local: list[Expr] = []
        guards: list[Expr] = []
        reduced = {axis.name for axis in op.reduce_axis} if spatial_only else set()
        splits = [r for r in stage.relations if isinstance(r, SplitRelation)]
        whole = dict.fromkeys(self._undivided_loops(stage, known), ZERO)
        tested = axis_values(stage.relations, {**leaves, **whole}, known.extents) if whole else values
        # The outermost part of a guarded loop cannot run too far: its own covering needs no second guard.
        outermost = {r.parts[0] for r in splits}
        guards.extend(
            self._below(tested[r.parent], known.extents[r.parent])
            for r in splits
            if r.parent not in outermost and made_from(stage, r.parent).isdisjoint(reduced)
        )
        fused = self._fused_axes(stage, known)
        for dim, axis in enumerate(op.axis):
            offset = simplify(values[axis.name], self.known)
            local.append(offset)
            place, extent = self._sum(self.base(stage_id, dim), offset), extent_of(axis.extent)
            if known.region[dim].around:
                axes[axis] = self._within(place, extent)
                continue
            axes[axis] = simplify(place, self.known)
            if axis.name in fused and same_structure(expr_of(known.region[dim].width), expr_of(extent)):
                continue
            guards.append(self._below(axes[axis], extent))
            guards.append(Binary(BinaryOp.GE, axes[axis], ZERO, "bool"))
        if not spatial_only:
            for axis in op.reduce_axis:
                axes[axis] = simplify(values[axis.name], self.known)
        return Point(axes, tuple(local), self.needed(guards))

    @staticmethod
    def _fused_axes(stage: Stage, known: StageBounds) -> set[str]:
        """Axes that are pieces of a loop of symbolic extent: they run too far only where that does."""
        fused = [relation for relation in stage.relations if isinstance(relation, FuseRelation)]
        symbolic = [relation for relation in fused if isinstance(known.extents[relation.fused], Expr)]
        return {parent for relation in symbolic for parent in relation.parents}

    @staticmethod
    def _undivided_loops(stage: Stage, known: StageBounds) -> Iterable[str]:
        """Tensorized loops that guards leave whole: pieces that divide all that they are pieces of."""
        for loop in stage.iterators:
            if loop.annotation is Annotation.TENSORIZE:
                extents = [known.extents[name] for name in innermost_pieces(stage, loop.name) or ()]
                sizes = [extent for extent in extents if isinstance(extent, int)]
                if sizes and len(sizes) == len(extents) and not any(size % sizes[0] for size in sizes):
                    yield loop.name

    @staticmethod
    def _below(value: Expr, extent: Extent) -> Expr:
        return Binary(BinaryOp.LT, value, cast(expr_of(extent), value.dtype), "bool")

    @staticmethod
    def _sum(a: Expr, b: Expr) -> Expr:
        return Binary(BinaryOp.ADD, a, b, INDEX_DTYPE)

    def needed(self, guards: Iterable[Expr]) -> tuple[Expr, ...]:
        """The guards that are not proved, simplified, each once."""
        kept: list[Expr] = []
        for guard in guards:
            if prove(guard, self.known) is not True:
                short = _undivided(simplify(guard, self.known))
                if not self._is_loop_end(short) and not is_among(short, kept):
                    kept.append(short)
        return tuple(kept)

    def _is_loop_end(self, guard: Expr) -> bool:
        """Whether a guard says what a symbolic loop says already: `i < n` in `for i in 0..n`."""
        match guard:
            case Binary(op=BinaryOp.LT, a=Var() as var, b=limit) if var in self._ends:
                return same_structure(self._ends[var], limit)
            case _:
                return False

    def base(self, stage_id: int, dim: int) -> Expr:
        """Where the region of a stage begins along an axis."""
        key = stage_id, dim
        if key not in self._bases:
            self._bases[key] = self.form(self.bounds.stages[stage_id].region[dim].base)
        return self._bases[key]

    def position(self, stage_id: int, dim: int, index: Expr) -> Expr:
        """Where in the region of a stage an element lies, along an axis."""
        region, base = self.bounds.stages[stage_id].region[dim], cast(self.base(stage_id, dim), index.dtype)
        if not region.around:
            return index - base
        extent = extent_of(self.state.stages[stage_id].compute.axis[dim].extent)
        near = simplify(unwrapped(index, extent) - base, self.known)
        inside = Binary(BinaryOp.GE, near, Const(0, near.dtype), "bool"), self._below(near, region.width)
        return near if all(prove(test, self.known) for test in inside) else self._within(index - base, extent)

    def _within(self, place: Expr, extent: Extent) -> Expr:
        """A place along an axis that goes around its end."""
        return simplify(
            Binary(BinaryOp.FLOORMOD, place, cast(expr_of(extent), place.dtype), place.dtype), self.known
        )

    def form(self, form: Affine) -> Expr:
        """An affine form over atoms as an index expression over loop variables."""
        total: Expr = Const(int(form.const), INDEX_DTYPE)
        for atom, coefficient in form.terms.items():
            if isinstance(atom, LoopAtom):
                value = self.loops[atom.stage].main[atom.name]
            elif isinstance(atom, SizeAtom):
                value = atom.var
            else:
                assert isinstance(atom, OpaqueAtom)
                divisor = Const(int(atom.divisor), INDEX_DTYPE)
                value = Binary(atom.op, self.form(atom.inner), divisor, INDEX_DTYPE)
            term = Binary(BinaryOp.MUL, value, Const(int(coefficient), INDEX_DTYPE), INDEX_DTYPE)
            total = self._sum(total, term)
        return simplify(total, self.known)


def _undivided(guard: Expr) -> Expr:
    """`x//c < d` as `x < c*d`: the guard of a fused loop, instead of one more for its outer axis."""
    match guard:
        case Binary(
            op=BinaryOp.LT, a=Binary(op=BinaryOp.FLOORDIV, a=x, b=Const(value=c)), b=Const(value=d)
        ) if int(c) > 0:
            return Binary(BinaryOp.LT, x, Const(int(c) * int(d), guard.b.dtype), "bool")
        case _:
            return guard
