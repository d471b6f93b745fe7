"""Lowering: from a schedule to a loop nest.

Each stage becomes its loops around a store, stages computed inside another one's loop are placed there, and
every axis is written as the start of the stage's region plus an affine expression of its loops. Guards stand
only where `ansor.ir.simplify` cannot prove them: one per axis whose loops cover more than the axis has.
A reduction initialises its elements in a copy of the spatial loops inside its outermost reduction loop, or of
its outermost tensorized loop and those inside.

The passes in `ansor.ir.passes` then polish the nest (register tiles, unrolling, guards). For a GPU every
stage at root becomes a kernel (`ansor.ir.kernel_form`) instead, where threads are the lanes and nothing
becomes a vector that the schedule does not ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ansor.errors import DefinitionError, LoweringError
from ansor.ir.accesses import accesses_of
from ansor.ir.nest import Alloc, Buffer, For, LoopKind, LoopNest, Prefetch, Stmt, Store, seq
from ansor.ir.passes.bind_threads import bind_threads
from ansor.ir.passes.kernel_pipeline import THREAD_LIMITS, polish_kernels
from ansor.ir.passes.pipeline import polish
from ansor.ir.passes.short_rows import join_short_rows
from ansor.ir.passes.unroll import auto_unroll
from ansor.ir.passes.vectorize import vectorize_innermost
from ansor.ir.prefetches import loads_of, may_bring
from ansor.ir.registers import RegisterLimits
from ansor.ir.rewriting import guarded
from ansor.ir.simplify import simplify
from ansor.schedule.bounds import Bounds, infer_bounds, loops_outwards
from ansor.schedule.combining import Targets, combined, combined_in_halves, fit_a_vector
from ansor.schedule.extents import Extent, is_one
from ansor.schedule.inlining import effective_body
from ansor.schedule.kernels import check_bound, fills_blocks, root_of, virtual_threads
from ansor.schedule.lookahead import boxes, read_ahead
from ansor.schedule.points import ZERO, Point, Points
from ansor.schedule.prefetch_steps import whole_when_read
from ansor.schedule.stages import (
    Annotation,
    ComputeAt,
    FuseRelation,
    Iterator,
    IteratorKind,
    Stage,
)
from ansor.schedule.state import State, state_of
from ansor.schedule.storage import home, make_parameters, make_scratch
from ansor.schedule.thread_reduction import divide_loops, reduce_across_threads
from ansor.te.expr import (
    Const,
    Expr,
    Load,
    Read,
    Reduce,
    Var,
    as_index,
    free_vars,
    rewrite,
    substitute,
)
from ansor.te.sizes import size_bytes
from ansor.te.tensor import ComputeOp, Tensor

if TYPE_CHECKING:
    from ansor.schedule.manual import Schedule

_KERNEL = -1
"""The position outside of all loops of a stage at root, in its kernel."""
_KINDS = {annotation: LoopKind(annotation.word) for annotation in Annotation}


def lower(
    schedule: Schedule | State,
    args: Sequence[Tensor] | None = None,
    name: str = "main",
    simple_mode: bool = False,
    limits: RegisterLimits | None = None,
    kernels: bool = False,
    shuffles: bool = False,
) -> LoopNest:
    """The loop nest of a schedule.

    Parameters
    ----------
    schedule
        A `Schedule` or a concrete `State`.
    args
        The function's parameters, inputs and outputs in any order; default: the graph's tensors. Tensors
        computed on the way may be among them if they are computed at root, wholly then. An input whose
        layout the schedule rewrites is taken in the new layout, under its old name or its new one.
    name
        Name of the function.
    simple_mode
        Leave out the polishing passes: the nest as the schedule says it.
    limits
        The registers that accumulators may use; default: those of a common 256-bit machine, for kernels
        those of a GPU's thread.
    kernels
        Make the kernels of a GPU program; not in simple mode, which shows the loops as they are bound.
    shuffles
        Let the threads of a warp in kernels reduce without memory, by what CUDA has and OpenCL has not.

    Raises
    ------
    ScheduleError
        If the schedule has holes or attaches a stage where a consumer cannot see it. For kernels, if a stage
        at root is not bound to blocks or threads, or is in a way that no kernel can follow.
    DefinitionError
        If an input or output of the graph is missing from `args`.
    LoweringError
        If there is nothing to compute, or no shape of `args` has a symbolic size of the graph.
    """
    state = state_of(schedule, "lower")
    if isinstance(args, Tensor):
        raise DefinitionError(
            f"lower: the arguments are tensors in a list, found one tensor {args.name!r}; list inputs and "
            f"outputs: [{', '.join(tensor.name for tensor in state.dag.tensors)}]"
        )
    tensors = tuple(state.dag.tensors if args is None else args)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise DefinitionError(f"lower: the arguments are tensors, found {tensor!r}")
    tensors = tuple(_as_stored(state, tensor) for tensor in tensors)
    bounds = infer_bounds(state, {state.stage_id(tensor) for tensor in tensors if state.has_stage(tensor)})
    if simple_mode:
        lowering = _Lowering(bounds, tensors, None)
        nest = lowering.run(name)
    else:
        limits = replace(limits or (THREAD_LIMITS if kernels else RegisterLimits()), per_thread=kernels)
        lowering = _Lowering(bounds, tensors, limits, kernels, shuffles)
        nest = lowering.run(name)
        nest = polish_kernels(nest, limits) if kernels else polish(nest, limits, lowering.asked_for())
    return replace(nest, streamed=lowering.streamed(nest))


def _as_stored(state: State, tensor: Tensor) -> Tensor:
    """The argument in the layout that the schedule gives it; only inputs may have another one."""
    if not state.has_stage(tensor):
        return tensor
    stage = state.stages[state.stage_id(tensor)]
    return stage.op.output(tensor.value_index) if stage.is_placeholder else tensor


@dataclass
class _Lowering:
    bounds: Bounds
    args: tuple[Tensor, ...]
    limits: RegisterLimits | None
    """None leaves the loops as the schedule says."""
    kernels: bool = False
    shuffles: bool = False

    def __post_init__(self) -> None:
        self.state = self.bounds.state
        self.sizes = self._find_sizes()
        self.points = Points(self.bounds, self.sizes)
        self.loops, self.known = self.points.loops, self.points.known
        self.params = make_parameters(self.state, self.args)
        self._check_sizes()
        self.scratch = make_scratch(self.bounds, self.params, kernels=self.kernels)
        self.allocated: dict[tuple[int, int] | None, list[Buffer]] = {}
        """What is in `scratch`, by the place where it is allocated; None is around everything."""
        for (stage_id, _), buffer in self.scratch.items():
            self.allocated.setdefault(self._home(stage_id), []).append(buffer)

    # -- set-up ---------------------------------------------------------------------------------------

    def _find_sizes(self) -> tuple[Var, ...]:
        found: dict[Var, None] = {}
        for tensor in self.args:
            for extent in tensor.shape:
                if isinstance(extent, Expr):
                    found.update(dict.fromkeys(sorted(free_vars(extent), key=lambda v: v.name)))
        return tuple(found)

    def _check_sizes(self) -> None:
        """Refuse a size that nothing tells the value of."""
        for size in self.state.dag.sizes:
            if size not in self.sizes:
                raise LoweringError(
                    f"lower: the size {size.name!r} is in the shape of no argument, which its value is taken "
                    f"from; pass a tensor with that dimension, or read the number from an input, such as "
                    f"te.placeholder((), {size.dtype!r})"
                )

    def _extents(self) -> tuple[tuple[str, Expr], ...]:
        """
        Extents that the sizes make of axes whose loops may be fused with others such, and whose they are.

        A loop of less than no iterations is none; two of them, fused, would be one.
        """
        found: dict[str, tuple[str, Expr]] = {}
        for stage in self.state.stages:
            op = stage.handles[0]
            fuses = any(isinstance(relation, FuseRelation) for relation in stage.relations)
            if not fuses or stage.compute_at is ComputeAt.INLINED or not isinstance(op, ComputeOp):
                continue
            made = [
                (f"axis {axis.name!r} of {op.name!r}", axis.extent)
                for axis in (*op.axis, *op.reduce_axis)
                if isinstance(axis.extent, Expr) and not isinstance(axis.extent, (Var, Const))
            ]
            for what, extent in made if len(made) > 1 else ():
                found.setdefault(str(extent), (what, extent))
        return tuple(found.values())

    def _home(self, stage_id: int) -> tuple[int, int] | None:
        """Where the scratch of a stage is allocated; in kernels not outside of the one that computes it."""
        place = home(self.state, stage_id)
        if place is None and self.kernels and stage_id in self.state.attach:
            return root_of(self.state, stage_id), _KERNEL
        return place

    # -- the nest --------------------------------------------------------------------------------------

    def run(self, name: str) -> LoopNest:
        parts = []
        for stage_id, stage in enumerate(self.state.stages):
            if not stage.is_placeholder and stage.compute_at is ComputeAt.ROOT:
                parts.append(self._kernel(stage_id) if self.kernels else self.emit(stage_id))
        if not parts:
            raise LoweringError(f"{name}: there is nothing to compute")
        body = self._allocate(seq(*parts), None)
        return LoopNest(
            name, self.params.order, self.sizes, body, self.params.outputs, extents=self._extents()
        )

    def _kernel(self, stage_id: int) -> Stmt:
        check_bound(self.state, stage_id)
        body = self._allocate(self.emit(stage_id), (stage_id, _KERNEL))
        return bind_threads(body, self.state.stages[stage_id].name)

    def streamed(self, nest: LoopNest) -> tuple[int, ...]:
        """Positions of the parameters that stages with streaming stores compute and `nest` does not read.

        A reduction reads its partial sums, unless registers hold them all the time.
        """
        results = self.params.results.items()
        streamed = {buffer for (stage_id, _), buffer in results if self.state.stages[stage_id].streaming}
        streamed -= accesses_of(nest.body).reads.keys() if streamed else set()
        return tuple(p for p, buffer in enumerate(nest.params) if buffer in streamed)

    def asked_for(self) -> dict[str, list[Buffer]]:
        """The arrays that reductions ask for ahead, by the name of the buffer that these store to."""
        stored = {**self.scratch, **self.params.results}
        return {
            stored[stage_id, index].name: [
                stored[self.state.stage_id(tensor), tensor.value_index]
                for tensor in whole_when_read(self.state, stage_id)
                if size_bytes(tensor) > stage.read_ahead
            ]
            for stage_id, stage in enumerate(self.state.stages)
            if stage.read_ahead is not None
            for index in range(stage.op.num_outputs)
        }

    def _allocate(self, body: Stmt, place: tuple[int, int] | None) -> Stmt:
        """`body` with the scratch that is allocated at `place`."""
        for buffer in reversed(self.allocated.get(place, ())):
            body = Alloc(buffer, body)
        return body

    def emit(self, stage_id: int) -> Stmt:
        """The loops of a stage with everything that is computed inside them."""
        stage = self.state.stages[stage_id]
        body = effective_body(self.state, stage_id)
        reduces = isinstance(body[0], Reduce)
        if reduces:
            made = self._emit_reduction(stage_id, stage, [b for b in body if isinstance(b, Reduce)])
        else:
            point = self.points.of(stage_id, self.loops[stage_id].main)
            value = tuple(self._value(expr, point) for expr in body)
            store = seq(self._store(stage_id, point, value), *self._prefetches(stage_id, value))
            made = self._nest(stage_id, stage.iterators, self.loops[stage_id].main, store)
        if self.limits is None:
            return made
        if self.kernels:
            most = stage.auto_unroll_max_step // int(virtual_threads(self.state, stage_id))
            return auto_unroll(made, most, self.limits)
        known = self.known
        if not reduces:
            own = {var for var in self.loops[stage_id].main.values() if isinstance(var, Var)}
            made, known = join_short_rows(made, self.limits.vector_bits, known, own)
        made = vectorize_innermost(made, self.limits.vector_bits, known, alike=reduces)
        return auto_unroll(made, stage.auto_unroll_max_step, self.limits)

    def _nest(
        self,
        stage_id: int,
        loops: Sequence[Iterator],
        variables: Mapping[str, Expr],
        inner: Stmt,
        first: int = 0,
    ) -> Stmt:
        """`loops`, the first at position `first` of the stage, around `inner` and attached stages."""
        for position in range(len(loops) - 1, -1, -1):
            inner = self._loop(stage_id, first + position, loops[position], variables, inner, attached=True)
        return inner

    def _loop(
        self,
        stage_id: int,
        position: int,
        loop: Iterator,
        variables: Mapping[str, Expr],
        inner: Stmt,
        attached: bool,
    ) -> Stmt:
        if attached:
            before = [self.emit(s) for s in sorted(self.state.attached_to(stage_id, position))]
            inner = seq(*before, inner)
            inner = self._allocate(inner, (stage_id, position))
        var = variables[loop.name]
        if not isinstance(var, Var):
            return inner
        assert loop.extent is not None
        return For(var, loop.extent, _KINDS[loop.annotation], inner)  # type: ignore[arg-type]

    def _emit_reduction(self, stage_id: int, stage: Stage, roots: list[Reduce]) -> Stmt:
        loops, variables = stage.iterators, self.loops[stage_id]
        reducing = [
            p for p, x in enumerate(loops) if x.kind is not IteratorKind.SPATIAL and not is_one(x.extent)
        ]
        first = reducing[0] if reducing else len(loops)
        if self.kernels and any(loops[position].annotation.is_thread for position in reducing):
            across = self._across_threads(stage_id, stage, roots, first)
            return self._nest(stage_id, loops[:first], variables.main, across)
        # Initialised before what one instruction does, that also where it has all products at once.
        first = min([first, *(p for p, x in enumerate(loops) if x.annotation is Annotation.TENSORIZE)])
        # With nothing to loop over, the one source is combined with the identity and stored.
        main = self.points.of(stage_id, variables.main)
        if first in reducing and not self.kernels and self.limits is not None:
            at_once = self._in_one_vector(stage_id, roots, main, first, self.limits)
            if at_once is not None:
                ahead = self._prefetch_boxes(stage_id, roots[0].sources, main, first)
                return self._nest(stage_id, loops[:first], variables.main, seq(*ahead, at_once))
        update = self._update(roots, main, self._targets(stage_id, main))
        inner = self._nest(stage_id, loops[first:], variables.main, update, first)
        init = self._initialised(stage_id, stage, roots, first)
        ahead = self._prefetch_boxes(stage_id, roots[0].sources, main, first)
        return self._nest(stage_id, loops[:first], variables.main, seq(*ahead, init, inner))

    def _in_one_vector(
        self, stage_id: int, roots: list[Reduce], point: Point, first: int, limits: RegisterLimits
    ) -> Stmt | None:
        """A reduction of several values along memory of what fits a vector, inside the loops before `first`.

        None where it is another one: those of one value are left to `ansor.ir.passes.lane_reduction`.
        """
        plain = (Annotation.NONE, Annotation.UNROLL)
        loops = self.state.stages[stage_id].iterators
        loop, inside = loops[first], loops[first + 1 :]
        combiner, extent = roots[0].combiner, loop.extent
        if len(combiner.result) == 1 or roots[0].condition is not None or not isinstance(extent, int):
            return None
        if loop.annotation not in plain or not all(is_one(one.extent) for one in inside):
            return None
        if any(one.annotation is Annotation.VECTORIZE for one in loops[:first]):
            return None
        if any(self.state.attached_to(stage_id, at) for at in range(first, len(loops))):
            return None
        var = self.loops[stage_id].main[loop.name]
        assert isinstance(var, Var)
        values = [self._value(source, point) for source in roots[0].sources]
        targets = self._targets(stage_id, point)
        if var in free_vars(*point.guards) or not fit_a_vector(targets, values, var, extent, limits):
            return None
        return guarded(point.guards, combined_in_halves(roots, targets, values, var, extent, self.known))

    def _initialised(self, stage_id: int, stage: Stage, roots: list[Reduce], first: int) -> Stmt:
        """Give elements the identity, in the loops over them from `first` on."""
        loops, variables = stage.iterators, self.loops[stage_id]
        start_vars = {
            loop.name: variables.init[loop.name] if position >= first else variables.main[loop.name]
            for position, loop in enumerate(loops)
        }
        start = self.points.of(stage_id, start_vars, spatial_only=True)
        init: Stmt = self._store(stage_id, start, [root.combiner.identity[root.index] for root in roots])
        for position in range(len(loops) - 1, first - 1, -1):
            loop = loops[position]
            if loop.kind is IteratorKind.SPATIAL:
                init = self._loop(stage_id, position, loop, variables.init, init, attached=False)
        return init

    def _across_threads(self, stage_id: int, stage: Stage, roots: list[Reduce], first: int) -> Stmt:
        """The loops from `first` on of a reduction, some loops of which are bound to threads."""
        variables = self.loops[stage_id]
        bound, elements = divide_loops(self.state, stage_id, first, variables.main, variables.init)
        taken = {loop.var for loop in bound}
        inits = {loop.var: loop.init for loop in elements}
        serial, starts = dict(variables.main), dict(variables.main)
        for name, var in variables.main.items():
            if isinstance(var, Var):
                serial[name] = ZERO if var in taken else var
                starts[name] = inits.get(var, var)
        start = self.points.of(stage_id, starts, spatial_only=True)
        main = self.points.of(stage_id, variables.main)

        def partial(targets: Targets) -> Stmt:
            update = self._update(roots, main, targets)
            return self._nest(stage_id, stage.iterators[first:], serial, update, first)

        results = [buffer for buffer, _ in self._targets(stage_id, start)]
        return reduce_across_threads(
            roots,
            results,
            bound,
            elements,
            partial,
            lambda values: self._store(stage_id, start, values),
            self.known,
            shuffles=self.shuffles and fills_blocks(self.state, stage_id),
        )

    # -- values -----------------------------------------------------------------------------------------

    def _value(self, expr: Expr, point: Point) -> Expr:
        """A body expression over loop variables, reading buffers."""

        def visit(node: Expr) -> Expr | None:
            return self._load(node) if isinstance(node, Read) else None

        return simplify(rewrite(substitute(expr, dict(point.axes)), visit), self.known)

    def _load(self, read: Read) -> Expr:
        stage_id = self.state.stage_id(read.tensor)
        result = (stage_id, read.tensor.value_index)
        buffer = self.params.results.get(result) or self.scratch[result]
        indices = read.indices
        if result not in self.params.results and stage_id in self.bounds.stages:
            indices = tuple(
                self.points.position(stage_id, dim, index) for dim, index in enumerate(map(as_index, indices))
            )
        return Load(buffer, indices, read.dtype)

    def _targets(self, stage_id: int, point: Point) -> list[tuple[Buffer, tuple[Expr, ...]]]:
        op = self.state.stages[stage_id].compute
        result = []
        for index in range(op.num_outputs):
            whole = (stage_id, index) in self.params.results
            buffer = (self.params.results if whole else self.scratch)[stage_id, index]
            indices = tuple(point.axes[axis] for axis in op.axis) if whole else point.local
            result.append((buffer, indices))
        return result

    def _store(self, stage_id: int, point: Point, values: Sequence[Expr]) -> Stmt:
        """Store to all outputs of a stage under the point's guards."""
        stores = [
            Store(buffer, indices, value)
            for (buffer, indices), value in zip(self._targets(stage_id, point), values, strict=True)
        ]
        return guarded(point.guards, seq(*stores))

    def _prefetches(self, stage_id: int, values: Sequence[Expr]) -> list[Stmt]:
        """What asks, beside the store of these values, for the inputs that they read an iteration ahead."""
        loops = self.state.stages[stage_id].iterators
        lanes = [p for p, loop in enumerate(loops) if loop.annotation is Annotation.VECTORIZE]
        loads, near = self._loads_ahead(stage_id, values, min(lanes, default=len(loops)))
        places = [(load.buffer, tuple(simplify(i, self.known) for i in load.indices)) for load in loads]
        return [Prefetch(buffer, indices, near) for buffer, indices in places]

    def _prefetch_boxes(self, stage_id: int, sources: Sequence[Expr], point: Point, first: int) -> list[Stmt]:
        """The same before the loops from `first` on of a reduction of sources, for all that they read."""
        if self.state.stages[stage_id].prefetch is None:
            return []
        values = [self._value(source, point) for source in sources]
        loads, near = self._loads_ahead(stage_id, values, first)
        inside = self._variables(self._own_places(stage_id)[first:])
        return [box.lines(self.points.form, near) for box in boxes(loads, dict(inside)) or ()]

    def _loads_ahead(self, stage_id: int, values: Sequence[Expr], first: int) -> tuple[list[Load], bool]:
        """What values read of inputs in the next iteration of the loop that a stage looks ahead along.

        The stage's loops from `first` on are inside of where it asks. Also, whether all that is read in that
        iteration has room in the first cache.
        """
        room = self.state.stages[stage_id].prefetch
        if room is None or self.kernels:
            return [], False
        placeholders = (i for i, stage in enumerate(self.state.stages) if stage.is_placeholder)
        inputs = {self.params.results[i, 0] for i in placeholders if (i, 0) in self.params.results}
        loads = loads_of(values, frozenset(inputs))
        own, around = self._own_places(stage_id), loops_outwards(self.state, stage_id)
        inside = first if room else 0
        outwards = self._variables([*own[:inside][::-1], *around])
        ahead, near = read_ahead(loads, outwards, dict(self._variables(own[inside:])), room)
        return [load for load in ahead if may_bring(load.buffer, load.indices, self.known)], near

    def _own_places(self, stage_id: int) -> list[tuple[int, int]]:
        """The loops of a stage, outermost first."""
        return [(stage_id, position) for position in range(len(self.state.stages[stage_id].iterators))]

    def _variables(self, places: Sequence[tuple[int, int]]) -> list[tuple[Var, Extent]]:
        """The variables and extents of those of some loops `(stage, position)` that run more than once."""
        loops = [(stage_id, self.state.stages[stage_id].iterators[position]) for stage_id, position in places]
        found = [(self.loops[stage_id].main[loop.name], loop.extent) for stage_id, loop in loops]
        return [(var, extent) for var, extent in found if isinstance(var, Var) and extent is not None]

    def _update(self, roots: list[Reduce], point: Point, targets: Targets) -> Stmt:
        """Combine one source element into the result so far."""
        condition = roots[0].condition
        guards = point.guards
        if condition is not None:
            guards = (*guards, *self.points.needed([self._value(condition, point)]))
        values = [self._value(source, point) for source in roots[0].sources]
        return guarded(guards, combined(roots, targets, values, self.known))
