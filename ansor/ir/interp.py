"""What a loop nest means: an interpreter that trusts nothing.

It is the oracle of lowering, of the passes and of the code generators. Every index of every access is
checked against its buffer, an element of scratch memory or of an output may not be read before it was
written, every element of an output must be written, and arithmetic follows `ansor.te.numeric`, rounded or
wrapped after each operation.

Loops that are declared parallel, vectorized or bound to threads run side by side, on the lanes of
`ansor.ir.lanes`, statement by statement; so do serial loops whose iterations are proven independent, which
is what makes the interpreter fast enough for real programs (numpy works on thousands of iterations at
once). All other loops run in order. A loop that is wrongly declared parallel therefore loses updates; two
further ways to catch it: with `rng`, the iterations of parallel loops run one after another in a random
order; with `check_races`, an element that two iterations touch and one of them writes is an error.

Kernels (`ansor.ir.kernel_form`) run like that, too: the threads of many blocks are lanes, which execute one
statement at a time, so that a program without its barriers gets the right result. It is the check of races
that finds them missing. What is of scope "shared" inside of loops over threads is there once for each block.
A barrier that only some threads of a block come by is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ansor.depth import nested_calls
from ansor.dtypes import to_numpy
from ansor.errors import ArgumentError, RunError
from ansor.ir.bounds import Bounds
from ansor.ir.independence import IndependenceTest
from ansor.ir.kernel_form import BLOCK_KINDS, THREAD_KINDS
from ansor.ir.lanes import LANES, Array, BlockSlots, Env, Storage, keep, per_lane, spread, varies
from ansor.ir.nest import (
    Alloc,
    Barrier,
    Commit,
    For,
    If,
    Let,
    LoopKind,
    LoopNest,
    Prefetch,
    Seq,
    Stmt,
    Store,
    sub_statements,
    walk_statements,
)
from ansor.ir.printer import format_stmt
from ansor.ir.races import LoopWatch, RaceDetector
from ansor.ir.ranges import nest_bounds
from ansor.ir.rewriting import tested_in_turn
from ansor.ir.shuffles import is_meeting, shuffled
from ansor.ir.values import ExpressionCompiler, Value
from ansor.te.expr import Expr, Var, int_value
from ansor.te.numeric import quiet

Action = Callable[[Env], None]
"""A compiled statement."""

MAX_LANES = 1 << 15
MAX_SCRATCH = 1 << 22
"""Elements of scratch memory that the lanes of one loop may have together."""

MAX_CALLS = 50_000
"""How deep calls of closures may nest, that is, expressions."""

_THREADS = frozenset({*THREAD_KINDS, LoopKind.VTHREAD})
SIDE_BY_SIDE = _THREADS | {LoopKind.PARALLEL, LoopKind.VECTORIZED, *BLOCK_KINDS}


def run_nest(
    nest: LoopNest,
    arrays: Sequence[Array],
    sizes: Sequence[int] = (),
    *,
    rng: np.random.Generator | None = None,
    check_races: bool = False,
) -> None:
    """Execute `nest` on `arrays`, one per parameter in order; the outputs are written in place.

    Parameters
    ----------
    sizes
        The values of `nest.sizes`, in order.
    rng
        If given, parallel loops run in a random order, one iteration after another.
    check_races
        Watch every access inside parallel, vectorized and thread loops.

    Raises
    ------
    ArgumentError
        If an array does not have its parameter's shape and dtype.
    RunError
        At an index out of bounds, a read of an undefined element, an output element
        that was never written, a race.
    """
    if len(sizes) != len(nest.sizes):
        raise ArgumentError(f"{nest.name} takes {len(nest.sizes)} sizes, found {len(sizes)}")
    values = dict(zip(nest.sizes, map(int, sizes), strict=True))
    compiler = _Compiler(nest_bounds(nest, values), rng, check_races)
    shapes = [compiler.shape(param) for param in nest.params]
    _check_arguments(nest, arrays, shapes)
    storages = []
    for position, (param, array, shape) in enumerate(zip(nest.params, arrays, shapes, strict=True)):
        written = np.zeros(array.size, bool) if position in nest.outputs else None
        storage = Storage(np.ascontiguousarray(array).reshape(-1), written)
        compiler.declare(param, shape, None, storage)
        storages.append(storage)
    for var, size in values.items():
        compiler.initial[compiler.slot(var)] = to_numpy(var.dtype).type(size)
    run = compiler.statement(nest.body)
    with quiet(), nested_calls(MAX_CALLS):
        run(compiler.initial)
    for position in nest.outputs:
        storage, array, name = storages[position], arrays[position], nest.params[position].name
        if not np.shares_memory(storage.data, array):
            array[...] = storage.data.reshape(array.shape)
        assert storage.written is not None
        if not storage.written.all():
            missing = np.unravel_index(int(np.argmin(storage.written)), array.shape)
            raise RunError(f"{nest.name} never writes {name}[{', '.join(str(int(i)) for i in missing)}]")


def _check_arguments(nest: LoopNest, arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> None:
    if len(arrays) != len(nest.params):
        raise ArgumentError(f"{nest.name} takes {len(nest.params)} arrays, found {len(arrays)}")
    for param, array, shape in zip(nest.params, arrays, shapes, strict=True):
        if array.shape != shape or array.dtype != to_numpy(param.dtype):
            raise ArgumentError(
                f"parameter {param.name!r} of {nest.name} is {param.dtype}{list(shape)}, "
                f"found {array.dtype}{list(array.shape)}"
            )


class _Compiler(ExpressionCompiler):
    """Turns statements into closures over an `Env`."""

    def __init__(self, bounds: Bounds, rng: np.random.Generator | None, check_races: bool) -> None:
        super().__init__(bounds, RaceDetector() if check_races else None)
        self._rng = rng
        self._test = IndependenceTest(bounds)
        self._block: BlockSlots | None = None
        """Of the loops over threads around the statement being compiled."""
        self._threads: dict[LoopKind, int] = {}
        """The slots of the variables of these loops."""

    # -- statements ----------------------------------------------------------------------------------------

    def statement(self, stmt: Stmt) -> Action:
        match stmt:
            case For():
                return self._loop(stmt)
            case Store():
                return self._store(stmt)
            case Let(var=var, value=value, body=inner):
                return self._let(var, value, inner)
            case If():
                return self._if(stmt)
            case Seq(stmts=stmts):
                actions = [self.statement(one) for one in stmts]

                def run_all(env: Env) -> None:
                    for action in actions:
                        action(env)

                return run_all
            case Alloc():
                return self._alloc(stmt)
            case Barrier(pending=pending):
                return self._barrier(pending)
            case Commit():
                return self._commit()
            case Prefetch():
                return lambda env: None

    def _let(self, var: Var, value: Expr, inner: Stmt) -> Action:
        compute = self.value(value)
        slot = self.slot(var)
        self.path.append(var)
        body = self.statement(inner)
        self.path.pop()

        def run(env: Env) -> None:
            env[slot] = compute(env)
            body(env)

        return run

    def _if(self, stmt: If) -> Action:
        stmt = tested_in_turn(stmt)
        cond, then = self.value(stmt.cond), self.statement(stmt.then)
        other = None if stmt.other is None else self.statement(stmt.other)

        def run(env: Env) -> None:
            holds = cond(env)
            if varies(holds):
                chosen = np.flatnonzero(holds)
                if len(chosen) == len(holds):
                    then(env)
                elif len(chosen):
                    then(keep(env, chosen))
                if other is not None and len(chosen) < len(holds):
                    other(keep(env, np.flatnonzero(~holds)))
            elif holds:
                then(env)
            elif other is not None:
                other(env)

        return run

    def _alloc(self, stmt: Alloc) -> Action:
        buffer = stmt.buffer
        shape = self.shape(buffer)
        slot = self.declare(buffer, shape, buffer.strides, None)
        _, strides = self.layout[buffer]
        size = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        dtype = to_numpy(buffer.dtype)
        body = self.statement(stmt.body)
        if buffer.scope == "shared" and self._block is not None:
            return _shared(slot, size, dtype, self._block, body)

        def run(env: Env) -> None:
            lanes = env[LANES]
            env[slot] = Storage(np.zeros(size * lanes, dtype), np.zeros(size * lanes, bool))
            env[slot + 1] = np.arange(lanes, dtype=np.int64) * size if lanes > 1 else 0
            body(env)
            env[slot] = None

        return run

    def _loop(self, stmt: For) -> Action:
        slot = self.slot(stmt.var)
        fixed = stmt.extent
        extent = (lambda env: fixed) if isinstance(fixed, int) else self.value(fixed)
        declared = stmt.kind in SIDE_BY_SIDE
        around, threads = self._block, self._threads
        if stmt.kind in THREAD_KINDS:
            self._block = around or BlockSlots(self.new_slot(), self.new_slot())
            self._threads = {**threads, stmt.kind: slot}
        elif stmt.kind in BLOCK_KINDS or stmt.kind is LoopKind.PARALLEL:
            self._block, self._threads = None, {}
        watch = None
        if self.races is not None and declared:
            watch = self.races.enter(stmt, self.new_slot(), self._block)
        self.path.append(stmt.var)
        body = self.statement(stmt.body)
        self.path.pop()
        if self.races is not None and watch is not None:
            self.races.leave()
        enter = None
        if stmt.kind in THREAD_KINDS and self._block is not None:
            enter = partial(self._block.enter, outermost=around is None)
        self._block, self._threads = around, threads
        order = self._rng if stmt.kind is LoopKind.PARALLEL else None
        if order is None and (declared or (not _is_met_in(stmt) and self._test.independent(stmt))):
            return _side_by_side(stmt.var, slot, extent, body, self._lane_limit(stmt), watch, enter)
        return _in_order(stmt.var, slot, extent, body, order, watch)

    def _barrier(self, pending: int) -> Action:
        """Threads meet; between loops over threads they have met already."""
        block = self._block
        if block is None:
            return lambda env: None
        watches = [] if self.races is None else self.races.threads()

        def run(env: Env) -> None:
            here = _met(env, block, "a barrier")
            env[block.blocks].wait(here, pending)
            for watch in watches:
                watch.meet(here)

        return run

    def _commit(self) -> Action:
        """Threads end a group of copies, which are done already."""
        block = self._block
        if block is None:
            return lambda env: None
        return lambda env: env[block.blocks].commit(_met(env, block, "a commit"))

    def _lane_limit(self, stmt: For) -> int:
        """How many lanes there may be in a loop: threads of a block must meet, memory is finite."""
        if stmt.kind in _THREADS:
            return 1 << 62
        scratch = sum(prod(self.shape(s.buffer)) for s in walk_statements(stmt.body) if isinstance(s, Alloc))
        threads = _threads_in(stmt.body)
        return max(1, min(MAX_LANES, MAX_SCRATCH // max(scratch, 1)) // threads)

    def _store(self, stmt: Store) -> Action:
        buffer = stmt.buffer
        if stmt.value.dtype != buffer.dtype:
            raise RunError(
                f"`{format_stmt(stmt)}` stores {stmt.value.dtype} into {buffer.dtype} {buffer.name!r}"
            )
        value = self._shuffled(stmt) or self.value(stmt.value)
        offset = self.offset(buffer, [self.value(index) for index in stmt.indices], stmt)
        slot = self.slot(buffer)
        watch = None if self.races is None else self.races.access(buffer, stmt, write=True)

        def run(env: Env) -> None:
            new = value(env)
            where = offset(env)
            if varies(new) and not varies(where):
                where = per_lane(where, env)
            storage: Storage = env[slot]
            if watch is not None:
                watch(env, storage, per_lane(where, env))
            storage.data[where] = new
            if storage.written is not None:
                storage.written[where] = True

        return run

    def _shuffled(self, stmt: Store) -> Value | None:
        """What each thread gets by a shuffle; None for another store."""
        given = shuffled(stmt)
        if given is None:
            return None
        value, distance, block = self.value(given[0]), given[1], self._block
        slots = [slot for kind, slot in self._threads.items() if kind is not LoopKind.THREAD_X]
        row = self._threads.get(LoopKind.THREAD_X)
        if block is None or row is None:
            raise RunError(f"`{format_stmt(stmt)}` stands in no loop over threadIdx.x")

        def run(env: Env) -> Any:
            _met(env, block, f"`{format_stmt(stmt)}`")
            rest = [per_lane(env[slot], env) for slot in (block.number, *slots)]
            mine = np.stack([*rest, per_lane(env[row], env)])
            theirs = np.stack([*rest, mine[-1] ^ distance])
            order, partners = np.lexsort(mine), np.lexsort(theirs)
            if (mine[:, order] != theirs[:, partners]).any():
                raise RunError(f"`{format_stmt(stmt)}` asks a thread that does not come by")
            found = np.empty_like(order)
            found[partners] = order
            return per_lane(value(env), env)[found]

        return run


def _met(env: Env, block: BlockSlots, what: str) -> Array:
    """The numbers of the blocks whose threads come by, which have to be all of their threads."""
    lanes = env[block.blocks].lanes
    here = np.bincount(env[block.number], minlength=len(lanes))
    wrong = (here > 0) & (here != lanes)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise RunError(f"{here[at]} of the {lanes[at]} threads of a block come by {what}, and the rest not")
    return np.flatnonzero(here)


def _is_met_in(loop: For) -> bool:
    """Whether threads meet in a loop, or allocate memory there that they share in all iterations."""
    return any(
        is_meeting(s) or (isinstance(s, Alloc) and s.buffer.scope == "shared")
        for s in walk_statements(loop.body)
    )


def _threads_in(stmt: Stmt) -> int:
    """The lanes that loops over threads make of one."""
    inner = max(map(_threads_in, sub_statements(stmt)), default=1)
    extent = int_value(stmt.extent) if isinstance(stmt, For) and stmt.kind in THREAD_KINDS else None
    return inner * max(extent or 1, 1)


def _shared(slot: int, size: int, dtype: npt.DTypeLike, block: BlockSlots, body: Action) -> Action:
    """Allocate memory once for each block; it is the same in every iteration of a loop around."""
    last: dict[int, Storage] = {}

    def run(env: Env) -> None:
        total = size * env[block.blocks].count
        storage = Storage(np.zeros(total, dtype), np.zeros(total, bool))
        if total in last:
            storage.touched = last[total].touched
        env[slot] = last[total] = storage
        env[slot + 1] = env[block.number] * size
        body(env)
        env[slot] = None

    return run


def _in_order(
    var: Var,
    slot: int,
    extent: Value,
    body: Action,
    shuffled: np.random.Generator | None,
    watch: LoopWatch | None,
) -> Action:
    """Execute a loop one iteration after another, in all lanes at once."""
    dtype = to_numpy(var.dtype)

    def run(env: Env) -> None:
        count = extent(env)
        several = varies(count)
        longest = int(count.max()) if several else int(count)
        start = None if watch is None else watch.start(env, longest)
        order = np.arange(longest, dtype=dtype)
        if shuffled is not None:
            shuffled.shuffle(order)
        for iteration in order:
            active, first = env, start
            if several:
                chosen = np.flatnonzero(count > iteration)
                active, first = keep(env, chosen), None if start is None else start[chosen]
            active[slot] = iteration
            if watch is not None:
                watch.iteration(active, first, iteration)
            body(active)

    return run


def _side_by_side(
    var: Var,
    slot: int,
    extent: Value,
    body: Action,
    limit: int,
    watch: LoopWatch | None,
    enter: Callable[[Env, Env, Array | int], None] | None,
) -> Action:
    """Execute a loop on lanes, as many at a time as `limit` allows; `enter` is told of them."""
    dtype = to_numpy(var.dtype)

    def run(env: Env) -> None:
        count, lanes = extent(env), env[LANES]
        several = varies(count)
        longest = int(count.max()) if several else int(count)
        start = None if watch is None else watch.start(env, longest)
        step = max(1, limit // lanes)
        for first in range(0, longest, step):
            stop = min(first + step, longest)
            here: Array | int
            if several:
                here = np.clip(count - first, 0, step)
                inner = spread(env, here)
                begins = np.repeat(np.cumsum(here) - here, here)
                inner[slot] = (np.arange(inner[LANES]) - begins + first).astype(dtype)
            else:
                here = stop - first
                inner = spread(env, here)
                inner[slot] = np.tile(np.arange(first, stop, dtype=dtype), lanes)
            if enter is not None:
                enter(env, inner, here)
            if watch is not None and start is not None:
                watch.iteration(inner, np.repeat(start, here), inner[slot])
            body(inner)

    return run
