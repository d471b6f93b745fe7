"""Interleaved stores: a short unrolled loop that fills what a vector loop leaves between its lanes.

The channels of a pixel, computed for many pixels at a time, are stored a few elements apart: one vector per
channel, each to be stored element by element. All channels together cover whole vectors of memory. So the
vector loop goes outside, the channels are computed one after the other, and shuffles bring their lanes into
the order of memory; the stores are then whole vectors, which may pass the caches by.
"""

from __future__ import annotations

from dataclasses import replace

from ansor.codegen.llvm.analysis import Analysis
from ansor.codegen.llvm.index import Affine, add, constant
from ansor.codegen.llvm.values import Env, Expressions
from ansor.ir.nest import For, LoopKind, Stmt, Store
from ansor.ir.strides import MOST_APART


class Interleaving:
    """Finds such loops in one function."""

    def __init__(self, expressions: Expressions, analysis: Analysis) -> None:
        self.expressions = expressions
        self.analysis = analysis

    def outside(self, loop: For, env: Env) -> For | None:
        """The vector loop within an unrolled one, as a loop around it, if that gives whole vectors."""
        vector = loop.body
        if not isinstance(vector, For) or vector.kind is not LoopKind.VECTORIZED or env.under.lanes > 1:
            return None
        store = vector.body
        count = self._count(loop, store)
        if not count or not isinstance(store, Store) or not isinstance(vector.extent, int):
            return None
        if not self.analysis.may_vectorize(vector):
            return None
        self.expressions.forget()

        def place(part: int, lane: int) -> Affine:
            bound = env.bind(loop.var, constant(part)).bind(vector.var, constant(lane))
            return self.expressions.offset(store.buffer, store.indices, bound)

        first = place(0, 0)
        if not _apart(first, place(0, 1), count) or not _apart(first, place(1, 0), 1):
            return None
        return replace(vector, body=replace(loop, body=store))

    def store(self, loop: For, env: Env) -> bool:
        """Write an unrolled loop of stores under a vector loop as whole vectors; False if they are none."""
        e, under = self.expressions, env.under
        store = loop.body
        if under.lanes < MOST_APART or under.mask is not None:
            return False
        count = self._count(loop, store)
        if not count or not isinstance(store, Store):
            return False
        envs = [env.bind(loop.var, constant(part)) for part in range(count)]
        e.forget()
        offsets = [e.offset(store.buffer, store.indices, each) for each in envs]
        base, step = e.math.split_lanes(offsets[0])
        if step != count or not all(_apart(offsets[0], each, part) for part, each in enumerate(offsets)):
            return False
        values = []
        for each in envs:
            e.forget()
            values.append(e.stored(store.value, each))
        e.memory.store_interleaved(store.buffer, base, values, under.lanes)
        return True

    def _count(self, loop: For, body: Stmt) -> int:
        """How many stores are put together, of values that none of them changes; 0 if they are not."""
        if (
            not isinstance(body, Store)
            or not isinstance(loop.extent, int)
            or not 2 <= loop.extent <= MOST_APART
        ):
            return 0
        if body.buffer.scope == "register" or self.analysis.reads(body, body.buffer):
            return 0
        return loop.extent


def _apart(a: Affine, b: Affine, distance: int) -> bool:
    """Whether `b` is known to be `a + distance`."""
    difference = add(b, a, -1)
    return not difference.terms and difference.const == distance
