"""Reductions whose loops are bound to threads.

The threads of a block reduce together. Each of them first reduces what its iterations of all other reduction
loops give, in memory of its own; then these partial results meet in shared memory, where every step combines
the second half of what is left with the first:

    for k.0 in 0..8:                     allocate S.red[32] local
      threadIdx.x k.1 in 0..32:            threadIdx.x k.1 in 0..32:
        S[] = S[] + X[k.0*32 + k.1]          allocate S.part[] local
                                             S.part[] = 0.0
                                   =>        for k.0 in 0..8:
                                               S.part[] = S.part[] + X[k.0*32 + k.1]
                                             S.red[k.1] = S.part[]
                                             if k.1 < 16:
                                               S.red[k.1] = S.red[k.1] + S.red[k.1 + 16]
                                             ...
                                             S[] = S.red[0]

In a language with shuffles (`ansor.ir.shuffles`), a power of two of threads in threadIdx.x meet without any
memory, as far as they are in one warp. Of more than one warp, each leaves what it has for all to read:

    S.other[] = shuffle_xor(S.part[], 16)
    S.part[] = S.part[] + S.other[]
    ...
    if k.1 % 32 == 0:
      S.red[k.1//32] = S.part[]
    S.part[] = S.red[k.1 % 8]
    ...
    S[] = S.part[]

Any combiner and any number of threads will do, in one index or several; threads that other loops of the stage
are bound to reduce each their own. All loops bound to an index move out of the reduction for this. The
barriers, that memory which threads fill together is shared, and that one thread stores the result, come with
the form of kernels (`ansor.ir.passes`).

Source: tree reduction in shared memory; M. Harris, "Optimizing parallel reduction in CUDA", 2007; TVM's
cross-thread reductions (reference, section 3.5); J. Luitjens, "Faster parallel reductions on Kepler", 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ansor.ir.bounds import Bounds
from ansor.ir.kernel_form import BLOCK_KINDS
from ansor.ir.nest import Alloc, Buffer, For, LoopKind, Stmt, Store, seq
from ansor.ir.rewriting import fresh_copy, guarded
from ansor.ir.shuffles import WARP, shuffle
from ansor.schedule.combining import Targets, combined
from ansor.schedule.stages import IteratorKind
from ansor.schedule.state import State
from ansor.schedule.step_base import refuse
from ansor.te.expr import INDEX_DTYPE, Binary, BinaryOp, Const, Expr, Load, Reduce, Var


@dataclass(frozen=True, slots=True)
class BoundLoop:
    """A loop that is bound to blocks or threads; `reduces` tells whether it is one of the reduction."""

    var: Var
    extent: int
    kind: LoopKind
    reduces: bool


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """A loop over elements inside of the reduction: its variable there, and one to initialise them."""

    var: Var
    init: Var
    extent: int
    kind: LoopKind


def divide_loops(
    state: State, stage_id: int, first: int, main: Mapping[str, Expr], init: Mapping[str, Expr]
) -> tuple[list[BoundLoop], list[ElementLoop]]:
    """
    Give the loops of a stage from the position `first` on that are bound, and those over elements.

    Parameters
    ----------
    state
        With bounds.
    main, init
        The variable of each loop, by name; a constant for one of extent 1.

    Raises
    ------
    ScheduleError
        If one has a symbolic extent.
    """
    stage = state.stages[stage_id]
    bound: list[BoundLoop] = []
    elements: list[ElementLoop] = []
    for position, loop in enumerate(stage.iterators[first:], first):
        var, start, extent = main[loop.name], init[loop.name], loop.extent
        kind, reduces = LoopKind(loop.annotation.word), loop.kind is IteratorKind.REDUCE
        is_bound = loop.annotation.is_bound
        if not isinstance(var, Var) or not isinstance(start, Var) or (reduces and not is_bound):
            continue
        if not isinstance(extent, int):
            raise refuse(
                stage,
                f"lower: stage {stage.name!r} reduces across threads, and its loop {loop.name!r} has the "
                f"symbolic extent {extent}; split it by a constant, and reorder the outer part out of the "
                "reduction",
                position,
            )
        if is_bound:
            bound.append(BoundLoop(var, extent, kind, reduces))
        else:
            elements.append(ElementLoop(var, start, extent, kind))
    return bound, elements


def reduce_across_threads(
    roots: Sequence[Reduce],
    results: Sequence[Buffer],
    bound: Sequence[BoundLoop],
    elements: Sequence[ElementLoop],
    update: Callable[[Targets], Stmt],
    store: Callable[[Sequence[Expr]], Stmt],
    bounds: Bounds,
    *,
    shuffles: bool,
) -> Stmt:
    """
    Reduce across threads.

    Parameters
    ----------
    roots
        The reduction's expressions, one per output.
    results
        The buffers of the outputs, for names and dtypes.
    bound, elements
        Loops of the reduction and inside of it, from the outside in.
    update
        Makes the remaining loops of the reduction around the update of elements.
    store
        Makes the statement that stores values to the element of the `init` variables of `elements`.
    bounds
        Of all variables.
    shuffles
        Whether there are shuffles, and all threads of a block come by.
    """
    shape = tuple(loop.extent for loop in elements)
    parts = [Buffer(f"{b.name}.part", b.dtype, shape, "local") for b in results]
    threads = [loop for loop in bound if loop.kind not in BLOCK_KINDS]
    rows = [loop for loop in threads if not loop.reduces]
    reducing = [loop for loop in threads if loop.reduces]
    count = prod(loop.extent for loop in reducing)
    warps = _warps(reducing) if shuffles else 0
    met = [*(loop.extent for loop in rows), warps or count]
    meeting = [Buffer(f"{b.name}.red", b.dtype, tuple(met), "local") for b in results]
    row, thread = tuple(loop.var for loop in rows), _number(reducing)

    point = tuple(loop.init for loop in elements)
    neutral = [root.combiner.identity[root.index] for root in roots]
    begin = seq(*(Store(part, point, value) for part, value in zip(parts, neutral, strict=True)))
    partial = update([(part, tuple(loop.var for loop in elements)) for part in parts])
    own = [Load(part, point, part.dtype) for part in parts]
    if warps:
        others = [Buffer(f"{b.name}.other", b.dtype, (), "local") for b in results]
        targets = [(part, point) for part in parts]
        steps = _through_warps(roots, targets, others, meeting, row, thread, warps, min(count, WARP), bounds)
        finish = seq(*steps, store(own))
        parts, meeting = [*parts, *others], meeting if warps > 1 else []
    else:
        arrive = [Store(shared, (*row, thread), x) for shared, x in zip(meeting, own, strict=True)]
        first = [Load(shared, (*row, _index(0)), shared.dtype) for shared in meeting]
        finish = seq(*arrive, *_tree(roots, meeting, row, reducing, bounds), store(first))

    body = seq(_over(elements, begin), partial, fresh_copy(_over(_in_order(elements), finish)))
    for private in reversed(parts):
        body = Alloc(private, body)
    for loop in reversed(threads):
        body = For(loop.var, loop.extent, loop.kind, body)
    for shared in reversed(meeting):
        body = Alloc(shared, body)
    for loop in reversed(bound):
        if loop.kind in BLOCK_KINDS:
            body = For(loop.var, loop.extent, loop.kind, body)
    return body


def _warps(reducing: Sequence[BoundLoop]) -> int:
    """Over how many warps threads are spread that can reduce by shuffles; 0 if they cannot."""
    if len(reducing) != 1 or reducing[0].kind is not LoopKind.THREAD_X:
        return 0
    count = reducing[0].extent
    return 0 if count & (count - 1) else max(count // WARP, 1)


def _through_warps(
    roots: Sequence[Reduce],
    targets: Targets,
    others: Sequence[Buffer],
    meeting: Sequence[Buffer],
    row: tuple[Expr, ...],
    thread: Expr,
    warps: int,
    lanes: int,
    bounds: Bounds,
) -> Iterator[Stmt]:
    """The steps that combine the partial results of all threads in each of them, in warps of `lanes`."""
    yield from _butterfly(roots, targets, others, lanes, bounds)
    if warps == 1:
        return
    warp = Binary(BinaryOp.FLOORDIV, thread, _index(lanes), INDEX_DTYPE)
    lane = Binary(BinaryOp.FLOORMOD, thread, _index(lanes), INDEX_DTYPE)
    one_of_all = Binary(BinaryOp.FLOORMOD, thread, _index(warps), INDEX_DTYPE)
    is_first = Binary(BinaryOp.EQ, lane, _index(0), "bool")
    for (part, point), shared in zip(targets, meeting, strict=True):
        yield guarded((is_first,), Store(shared, (*row, warp), Load(part, point, part.dtype)))
    for (part, point), shared in zip(targets, meeting, strict=True):
        yield Store(part, point, Load(shared, (*row, one_of_all), shared.dtype))
    yield from _butterfly(roots, targets, others, warps, bounds)


def _butterfly(
    roots: Sequence[Reduce], targets: Targets, others: Sequence[Buffer], lanes: int, bounds: Bounds
) -> Iterator[Stmt]:
    """The steps that combine private elements of so many neighbouring threads in each of them."""
    by_index = {root.index: other for root, other in zip(roots, others, strict=True)}
    values = [Load(by_index[i], (), by_index[i].dtype) for i in range(len(roots))]
    while lanes > 1:
        lanes //= 2
        for (part, point), other in zip(targets, others, strict=True):
            yield shuffle(other, (), Load(part, point, part.dtype), lanes)
        yield combined(roots, targets, values, bounds)


def _tree(
    roots: Sequence[Reduce],
    meeting: Sequence[Buffer],
    row: tuple[Expr, ...],
    reducing: Sequence[BoundLoop],
    bounds: Bounds,
) -> Iterator[Stmt]:
    """The steps that combine the partial results into the first of them."""
    thread, count = _number(reducing), prod(loop.extent for loop in reducing)
    by_index = {root.index: shared for root, shared in zip(roots, meeting, strict=True)}
    distance = 1 << (count - 1).bit_length()
    while distance > 1:
        distance //= 2
        other = Binary(BinaryOp.ADD, thread, _index(distance), INDEX_DTYPE)
        values = [Load(by_index[i], (*row, other), by_index[i].dtype) for i in range(len(roots))]
        step = combined(roots, [(shared, (*row, thread)) for shared in meeting], values, bounds)
        yield guarded(_below(reducing, min(distance, count - distance)), step)


def _below(loops: Sequence[BoundLoop], limit: int) -> tuple[Expr, ...]:
    """That the number of a thread is less than a limit, said of single indices where that is possible."""
    first, inner = loops[0].var, prod(loop.extent for loop in loops[1:])
    if limit % inner == 0:
        return (Binary(BinaryOp.LT, first, _index(limit // inner), "bool"),)
    if limit < inner:
        return (Binary(BinaryOp.LT, first, _index(1), "bool"), *_below(loops[1:], limit))
    return (Binary(BinaryOp.LT, _number(loops), _index(limit), "bool"),)


def _number(loops: Sequence[BoundLoop]) -> Expr:
    """The number of a thread among those that reduce together."""
    number: Expr = loops[0].var
    for loop in loops[1:]:
        number = Binary(BinaryOp.MUL, number, _index(loop.extent), INDEX_DTYPE)
        number = Binary(BinaryOp.ADD, number, loop.var, INDEX_DTYPE)
    return number


def _over(elements: Sequence[ElementLoop], stmt: Stmt) -> Stmt:
    for loop in reversed(elements):
        stmt = For(loop.init, loop.extent, loop.kind, stmt)
    return stmt


def _in_order(elements: Sequence[ElementLoop]) -> list[ElementLoop]:
    """Loops in which the threads of a block can wait for each other."""
    kinds = (LoopKind.UNROLLED if loop.kind is LoopKind.UNROLLED else LoopKind.SERIAL for loop in elements)
    return [
        ElementLoop(loop.var, loop.init, loop.extent, kind)
        for loop, kind in zip(elements, kinds, strict=True)
    ]


def _index(value: int) -> Const:
    return Const(value, INDEX_DTYPE)
