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
from dataclasses import dataclass, replace
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
from ansor.te.expr import INDEX_DTYPE, Binary, BinaryOp, Expr, Load, Reduce, Var, const


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
    blocks = [loop for loop in bound if loop.kind in BLOCK_KINDS]
    threads = [loop for loop in bound if loop.kind not in BLOCK_KINDS]
    team = _Team(
        roots,
        results,
        tuple(loop for loop in threads if not loop.reduces),
        tuple(loop for loop in threads if loop.reduces),
        bounds,
    )
    parts = team.buffers("part", tuple(loop.extent for loop in elements))
    inside, after = tuple(loop.var for loop in elements), tuple(loop.init for loop in elements)
    neutral = [root.combiner.identity[root.index] for root in roots]
    begin = seq(*(Store(part, after, value) for part, value in zip(parts, neutral, strict=True)))
    partial = update([(part, inside) for part in parts])

    own = [(part, after) for part in parts]
    meeting = _through_warps(team, own) if shuffles and team.warps else _in_memory(team, own)
    finish = seq(*meeting.steps, store(meeting.results))

    body = seq(_over(elements, begin), partial, fresh_copy(_over(_in_order(elements), finish)))
    body = _bound(threads, _allocated((*parts, *meeting.private), body))
    return _bound(blocks, _allocated(meeting.shared, body))


@dataclass(frozen=True, slots=True)
class _Team:
    """The threads of a block: those of `reducing` loops reduce together, those of each of the `rows` apart.

    `roots` are the reduction's expressions and `results` its outputs; `bounds` are those of all variables.
    """

    roots: Sequence[Reduce]
    results: Sequence[Buffer]
    rows: tuple[BoundLoop, ...]
    reducing: tuple[BoundLoop, ...]
    bounds: Bounds

    @property
    def row(self) -> tuple[Var, ...]:
        """The row of a thread."""
        return tuple(loop.var for loop in self.rows)

    @property
    def thread(self) -> Expr:
        """The number of a thread in its row."""
        return _number(self.reducing)

    @property
    def count(self) -> int:
        """Threads of a row."""
        return prod(loop.extent for loop in self.reducing)

    @property
    def warps(self) -> int:
        """Over how many warps a row is spread whose threads can reduce by shuffles; 0 if they cannot."""
        if [loop.kind for loop in self.reducing] != [LoopKind.THREAD_X] or self.count & (self.count - 1):
            return 0
        return max(self.count // WARP, 1)

    def buffers(self, name: str, shape: tuple[int, ...]) -> list[Buffer]:
        """Memory for each of the outputs."""
        return [Buffer(f"{b.name}.{name}", b.dtype, shape, "local") for b in self.results]

    def meeting_places(self, places: int) -> list[Buffer]:
        """Memory for each of the outputs with so many elements for a row."""
        return self.buffers("red", (*(loop.extent for loop in self.rows), places))

    def take(self, targets: Targets, others: Targets) -> Stmt:
        """Combine elements, one for each output, with what others hold."""
        by_index = {root.index: other for root, other in zip(self.roots, others, strict=True)}
        values = [_held(by_index[index]) for index in range(len(self.roots))]
        return combined(self.roots, targets, values, self.bounds)


@dataclass(frozen=True, slots=True)
class _Meeting:
    """How the threads of a row get from the partial result of each to that of all.

    After the `steps` it is the values `results`. Of the memory this takes, some is `private` to each thread.
    """

    steps: tuple[Stmt, ...]
    results: Sequence[Expr]
    private: Sequence[Buffer]
    shared: Sequence[Buffer]


def _in_memory(team: _Team, own: Targets) -> _Meeting:
    """The tree that combines partial results in shared memory, into the first of them."""
    shared, thread = team.meeting_places(team.count), team.thread
    mine = [(buffer, (*team.row, thread)) for buffer in shared]
    first = [(buffer, (*team.row, const(0))) for buffer in shared]
    steps: list[Stmt] = [Store(*place, _held(part)) for place, part in zip(mine, own, strict=True)]
    distance = 1 << (team.count - 1).bit_length()
    while distance > 1:
        distance //= 2
        other = Binary(BinaryOp.ADD, thread, const(distance), INDEX_DTYPE)
        step = team.take(mine, [(buffer, (*team.row, other)) for buffer in shared])
        steps.append(guarded(_below(team.reducing, min(distance, team.count - distance)), step))
    return _Meeting(tuple(steps), [_held(place) for place in first], [], shared)


def _through_warps(team: _Team, own: Targets) -> _Meeting:
    """The shuffles that combine the partial results of all threads in each of them, warp by warp."""
    others = team.buffers("other", ())
    held = [_held(part) for part in own]
    lanes = min(team.count, WARP)
    in_warp = tuple(_butterfly(team, own, others, lanes))
    if team.warps == 1:
        return _Meeting(in_warp, held, others, [])
    shared, thread = team.meeting_places(team.warps), team.thread
    warp = Binary(BinaryOp.FLOORDIV, thread, const(lanes), INDEX_DTYPE)
    lane = Binary(BinaryOp.FLOORMOD, thread, const(lanes), INDEX_DTYPE)
    one_of_all = Binary(BinaryOp.FLOORMOD, thread, const(team.warps), INDEX_DTYPE)
    is_first = Binary(BinaryOp.EQ, lane, const(0), "bool")
    leave = [
        guarded((is_first,), Store(buffer, (*team.row, warp), value))
        for buffer, value in zip(shared, held, strict=True)
    ]
    fetch = [
        Store(*part, _held((buffer, (*team.row, one_of_all))))
        for part, buffer in zip(own, shared, strict=True)
    ]
    between = _butterfly(team, own, others, team.warps)
    return _Meeting((*in_warp, *leave, *fetch, *between), held, others, shared)


def _butterfly(team: _Team, targets: Targets, others: Sequence[Buffer], lanes: int) -> Iterator[Stmt]:
    """The steps that combine private elements of so many neighbouring threads in each of them."""
    while lanes > 1:
        lanes //= 2
        for target, other in zip(targets, others, strict=True):
            yield shuffle(other, (), _held(target), lanes)
        yield team.take(targets, [(other, ()) for other in others])


def _held(element: tuple[Buffer, tuple[Expr, ...]]) -> Load:
    """What an element holds."""
    buffer, indices = element
    return Load(buffer, indices, buffer.dtype)


def _below(loops: Sequence[BoundLoop], limit: int) -> tuple[Expr, ...]:
    """That the number of a thread is less than a limit, said of single indices where that is possible."""
    first, inner = loops[0].var, prod(loop.extent for loop in loops[1:])
    if limit % inner == 0:
        return (Binary(BinaryOp.LT, first, const(limit // inner), "bool"),)
    if limit < inner:
        return (Binary(BinaryOp.LT, first, const(1), "bool"), *_below(loops[1:], limit))
    return (Binary(BinaryOp.LT, _number(loops), const(limit), "bool"),)


def _number(loops: Sequence[BoundLoop]) -> Expr:
    """The number of a thread among those that reduce together."""
    number: Expr = loops[0].var
    for loop in loops[1:]:
        number = Binary(BinaryOp.MUL, number, const(loop.extent), INDEX_DTYPE)
        number = Binary(BinaryOp.ADD, number, loop.var, INDEX_DTYPE)
    return number


def _over(elements: Sequence[ElementLoop], stmt: Stmt) -> Stmt:
    for loop in reversed(elements):
        stmt = For(loop.init, loop.extent, loop.kind, stmt)
    return stmt


def _bound(loops: Sequence[BoundLoop], stmt: Stmt) -> Stmt:
    for loop in reversed(loops):
        stmt = For(loop.var, loop.extent, loop.kind, stmt)
    return stmt


def _allocated(buffers: Sequence[Buffer], stmt: Stmt) -> Stmt:
    for buffer in reversed(buffers):
        stmt = Alloc(buffer, stmt)
    return stmt


def _in_order(elements: Sequence[ElementLoop]) -> list[ElementLoop]:
    """Loops in which the threads of a block can wait for each other."""
    return [
        loop if loop.kind is LoopKind.UNROLLED else replace(loop, kind=LoopKind.SERIAL) for loop in elements
    ]
