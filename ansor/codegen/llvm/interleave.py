"""Stores of several vectors together: lanes lie apart, and an unrolled loop fills the elements between them.

The channels of a pixel, computed for many pixels at a time, are stored a few elements apart: one vector per
channel, each to be stored element by element. All channels together cover whole vectors of memory. So the
vector loop goes outside, the channels are computed one after the other, and shuffles bring their lanes into
the order of memory; the stores are then whole vectors, which may pass the caches by.

Words of a few elements that lie side by side, and are gathered from as many rows, as the operands of dot
products are packed, are stored so as well, lanes running along the rows.

Where lanes are further apart, as output channels of a convolution in the layout "NCHW" are, what an unrolled
loop along memory stores in one lane is a row: shuffles turn the tile, and each row is stored as a vector.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from ansor.codegen.llvm.analysis import Analysis
from ansor.codegen.llvm.index import Affine, add, constant
from ansor.codegen.llvm.memory import ALWAYS
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.values import Env, Expressions
from ansor.ir.nest import Buffer, For, LoopKind, Stmt, Store
from ansor.ir.strides import MOST_APART, even_step
from ansor.te.expr import Expr, Load, Var, distinct_nodes

_IN_TURN = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})


class Interleaving:
    """Finds such loops in one function."""

    def __init__(self, expressions: Expressions, analysis: Analysis) -> None:
        self.expressions = expressions
        self.analysis = analysis

    def outside(self, loop: For, env: Env) -> For | None:
        """The vector loop within an unrolled one, as a loop around it, if that gives vectors along memory."""
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
        apart = _distance(first, place(0, 1))
        if _distance(first, place(1, 0)) != 1 or apart is None or apart < count:
            return None
        return replace(vector, body=replace(loop, body=store))

    def across(self, loop: For, env: Env) -> For | None:
        """A short vector loop as an unrolled one in vectors of the loop around it, if reads run along that.

        So lie the words of a packed operand, which is read row by row.
        """
        short = loop.body
        if loop.kind not in _IN_TURN or not isinstance(short, For) or short.kind is not LoopKind.VECTORIZED:
            return None
        store, count = short.body, self._count(short, short.body)
        if env.under != ALWAYS or not 2 <= count <= MOST_APART or not isinstance(store, Store):
            return None
        if not isinstance(loop.extent, int) or loop.extent < MOST_APART:
            return None
        reads = [node for node in distinct_nodes(store.value) if isinstance(node, Load)]
        places = [(one.buffer, one.indices) for one in reads]
        if {self._step(*place, loop.var) for place in places} - {0} != {1}:
            return None
        if all(self._step(*place, short.var) in (0, 1) for place in places):
            return None
        written = (store.buffer, store.indices)
        if (self._step(*written, short.var), self._step(*written, loop.var)) != (1, count):
            return None
        made = For(loop.var, loop.extent, LoopKind.VECTORIZED, replace(short, kind=LoopKind.UNROLLED))
        return made if self.analysis.may_vectorize(made) else None

    def _step(self, buffer: Buffer, indices: tuple[Expr, ...], var: Var) -> int | None:
        return even_step(buffer, indices, var, self.analysis.bounds)

    def store(self, loop: For, env: Env) -> bool:
        """Write an unrolled loop of stores under a vector loop as vectors along memory, if it can be."""
        e, under = self.expressions, env.under
        store = loop.body
        if under.lanes < MOST_APART or (under.mask is not None and under.active is None):
            return False
        count = self._count(loop, store)
        if not count or not isinstance(store, Store):
            return False
        envs = [env.bind(loop.var, constant(part)) for part in range(count)]
        e.forget()
        offsets = [e.offset(store.buffer, store.indices, each) for each in envs]
        base, apart = e.math.split_lanes(offsets[0])
        if apart is None or apart < count:
            return False
        if not all(_distance(offsets[0], each) == part for part, each in enumerate(offsets)):
            return False
        if apart == count <= MOST_APART and under.mask is None:
            e.memory.store_interleaved(store.buffer, base, self._values(store, envs), under.lanes)
            return True
        parts = -(-count // under.lanes)
        for first, end in pairwise(count * part // parts for part in range(parts + 1)):
            values = self._values(store, envs[first:end])
            e.memory.store_turned(store.buffer, add(base, constant(first)), apart, values, under)
        return True

    def _values(self, store: Store, envs: list[Env]) -> list[Value]:
        """What is stored at several values of the unrolled loop."""
        values: list[Value] = []
        for env in envs:
            self.expressions.forget()
            values.append(self.expressions.stored(store.value, env))
        return values

    def _count(self, loop: For, body: Stmt) -> int:
        """How many stores are put together, of values that none of them changes; 0 if they are not."""
        if not isinstance(body, Store) or not isinstance(loop.extent, int) or loop.extent < 2:
            return 0
        if body.buffer.scope == "register" or self.analysis.reads(body, body.buffer):
            return 0
        return loop.extent


def _distance(a: Affine, b: Affine) -> int | None:
    """How many elements `b` is behind `a`; None if that is not known."""
    difference = add(b, a, -1)
    return None if difference.terms else difference.const
