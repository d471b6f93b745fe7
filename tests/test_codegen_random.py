"""Random loop nests: compiled code gives exactly what the interpreter of nests gives.

Floats hold small integers, so that every operation is exact and fused multiply-adds change nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

from ansor.codegen.machine import Machine
from ansor.dtypes import is_float, to_numpy
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, Buffer, For, If, Let, LoopKind, LoopNest, Stmt, Store, seq
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Expr,
    Load,
    Var,
    binary,
    cast,
    const,
    logical_not,
    select,
)
from tests.codegen_helper import run

DTYPES = ("float32", "float64", "int32", "int8", "uint8", "int64", "uint16", "float16", "bfloat16")
BITS = (BinaryOp.BITAND, BinaryOp.BITOR, BinaryOp.XOR, BinaryOp.SHL, BinaryOp.SHR)
KINDS = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.PARALLEL)


class Generator:
    """One random nest, from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = str(self.rng.choice(DTYPES))
        shapes = [tuple(int(d) for d in self.rng.integers(1, 24, self.pick(1, 3))) for _ in range(2)]
        self.inputs = [Buffer(f"in{i}", self.dtype, shape) for i, shape in enumerate(shapes)]
        self.table = Buffer("table", str(self.rng.choice(["int32", "int64", "uint8"])), (self.pick(1, 40),))
        self.size = Var("n")

    def pick(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def index(self, vars_: list[Var], depth: int = 2) -> Expr:
        """An integer expression of any value."""
        kind = self.pick(0, 10 if depth else 1)
        if kind == 0:
            return const(self.pick(-5, 30))
        if kind <= 2:
            return vars_[self.pick(0, len(vars_) - 1)]
        a = self.index(vars_, depth - 1)
        if kind <= 4:
            return a * self.pick(-3, 5) + self.index(vars_, depth - 1)
        if kind == 5:
            return binary(BinaryOp.FLOORDIV, a, self.nonzero())
        if kind == 6:
            return binary(BinaryOp.FLOORMOD, a, self.nonzero())
        if kind == 7:
            ops = (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.SUB)
            return binary(ops[self.pick(0, 2)], a, self.index(vars_, depth - 1))
        if kind == 8:
            ops = (BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD)
            return binary(ops[self.pick(0, 1)], a, self.nonzero())
        if kind == 9:
            op = BITS[self.pick(0, 4)]
            b = self.index(vars_, depth - 1)
            return binary(op, a, binary(BinaryOp.FLOORMOD, b, 4) if op in BITS[3:] else b)
        return select(self.condition(vars_, depth - 1), a, self.index(vars_, depth - 1))

    def nonzero(self) -> int:
        value = self.pick(1, 9)
        return value if self.chance(0.8) else -value

    def condition(self, vars_: list[Var], depth: int = 1) -> Expr:
        op = (BinaryOp.LT, BinaryOp.GE, BinaryOp.EQ, BinaryOp.NE, BinaryOp.LE, BinaryOp.GT)[self.pick(0, 5)]
        result = binary(op, self.index(vars_, depth), self.index(vars_, depth))
        if depth and self.chance(0.3):
            result = binary(
                BinaryOp.AND if self.chance(0.5) else BinaryOp.OR, result, self.condition(vars_, depth - 1)
            )
        return logical_not(result) if self.chance(0.1) else result

    def within(self, vars_: list[Var], extent: int) -> Expr:
        """An index in range, in one of several ways."""
        a = self.index(vars_)
        if self.chance(0.2):
            place = binary(BinaryOp.FLOORMOD, a, self.table.shape[0])
            a = cast(Load(self.table, (place,), self.table.dtype), "int32")
        if self.chance(0.5):
            return binary(BinaryOp.FLOORMOD, a, extent)
        return binary(BinaryOp.MAX, binary(BinaryOp.MIN, a, extent - 1), 0)

    def load(self, vars_: list[Var]) -> Expr:
        buffer = self.inputs[self.pick(0, 1)]
        if self.chance(0.6):
            return Load(buffer, tuple(self.within(vars_, e) for e in buffer.constant_shape), self.dtype)
        indices = tuple(self.index(vars_) for _ in buffer.shape)  # out of range, but guarded
        guard: Expr = const(True)
        for index, extent in zip(indices, buffer.constant_shape, strict=True):
            for test in (binary(BinaryOp.GE, index, 0), binary(BinaryOp.LT, index, extent)):
                guard = binary(BinaryOp.AND, guard, test)
        return select(guard, Load(buffer, indices, self.dtype), const(self.pick(0, 3), self.dtype), lazy=True)

    def value(self, vars_: list[Var], depth: int = 2) -> Expr:
        kind = self.pick(0, 8)
        if depth == 0 or kind <= 2:
            return self.load(vars_)
        if kind == 3:
            return cast(binary(BinaryOp.FLOORMOD, self.index(vars_), 7), self.dtype)
        if kind == 4:
            return select(
                self.condition(vars_),
                self.value(vars_, depth - 1),
                self.value(vars_, depth - 1),
                lazy=self.chance(0.5),
            )
        if kind == 5:
            a, b = self.value(vars_, depth - 1), self.value(vars_, depth - 1)
            return select(Binary(BinaryOp.LT, a, b, "bool"), b, a)
        ops = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MIN, BinaryOp.MAX]
        if not is_float(self.dtype):
            ops += [BinaryOp.MUL, *BITS]
        if depth == 1:
            ops += [BinaryOp.MUL]
        op = ops[self.pick(0, len(ops) - 1)]
        return binary(op, self.value(vars_, depth - 1), self.value(vars_, depth - 1))

    def nest(self) -> LoopNest:
        rank = self.pick(1, 3)
        extents = [int(e) for e in self.rng.choice([1, 2, 3, 5, 7, 8, 12, 16, 17, 24, 33, 64], rank)]
        if rank == 3:
            extents[0] = min(extents[0], 8)
        axes = [Var(f"i{d}") for d in range(rank)]
        order = self.rng.permutation(rank)
        tail = [self.pick(0, e // 3) for e in extents]  # the buffer may be smaller than the loops
        shape = tuple(max(1, e - t) for e, t in zip(extents, tail, strict=True))
        output = Buffer("out", self.dtype, shape)
        scope = [*axes, self.size]
        body = self.statement(output, axes, scope)
        for axis, extent, size in zip(axes, extents, shape, strict=True):
            if size < extent:
                body = If(binary(BinaryOp.LT, axis, size), body)
        for axis in order:
            kind = KINDS[self.pick(0, 3)]
            body = For(axes[axis], extents[axis], kind, body)
        return LoopNest("kernel", (*self.inputs, self.table, output), (self.size,), body, (3,))

    def statement(self, output: Buffer, axes: list[Var], scope: list[Var]) -> Stmt:
        kind = self.pick(0, 4)
        place: tuple[Expr, ...] = tuple(axes)
        if kind <= 1:
            return Store(output, place, self.value(scope))
        if kind == 2:  # a reduction in memory
            k = Var("k")
            old = Load(output, place, self.dtype)
            update = Store(output, place, binary(BinaryOp.ADD, old, self.value([*scope, k], 1)))
            loop = LoopKind.SERIAL if self.chance(0.5) else LoopKind.UNROLLED
            return seq(Store(output, place, const(0, self.dtype)), For(k, self.pick(1, 6), loop, update))
        if kind == 3:  # a let, and a symbolic loop
            k, m = Var("k"), Var("m")
            old = Load(output, place, self.dtype)
            update = Store(output, place, binary(BinaryOp.MAX, old, self.value([*scope, k, m], 1)))
            inner = For(k, binary(BinaryOp.FLOORMOD, self.size, 5), LoopKind.SERIAL, update)
            start = Store(output, place, self.value(scope, 1))
            return Let(m, self.index(scope), seq(start, inner))
        scratch = Buffer("scratch", self.dtype, (4,), "local")
        k, j = Var("k"), Var("j")
        fill = For(k, 4, LoopKind.VECTORIZED, Store(scratch, (k,), self.value([*scope, k], 1)))
        total = Load(scratch, (const(0),), self.dtype)
        rest = Store(
            output,
            place,
            binary(BinaryOp.MIN, Load(output, place, self.dtype), Load(scratch, (j,), self.dtype)),
        )
        return Alloc(scratch, seq(fill, Store(output, place, total), For(j, 4, LoopKind.UNROLLED, rest)))

    def arrays(self) -> list[np.ndarray]:
        low = -4 if not self.dtype.startswith("u") else 0
        made = [self.rng.integers(low, 5, b.constant_shape).astype(to_numpy(self.dtype)) for b in self.inputs]
        return [*made, self.rng.integers(0, 50, self.table.constant_shape).astype(self.table.dtype)]


def check(seed: int, machine: Machine | None = None) -> None:
    generator = Generator(seed)
    nest = generator.nest()
    arrays = generator.arrays()
    size = generator.pick(0, 20)
    shape, dtype = nest.params[-1].constant_shape, to_numpy(generator.dtype)
    expected, found = np.full(shape, 77, dtype), np.full(shape, 77, dtype)
    run_nest(nest, [*arrays, expected], [size])
    text = run(nest, *arrays, found, sizes=[size], machine=machine)
    if not np.array_equal(expected, found):
        wrong = np.argwhere(expected != found)[:3].tolist()
        pytest.fail(f"seed {seed}: differs at {wrong}\n{nest}\n{text}")


@pytest.mark.parametrize("block", range(6))
def test_random_nests_match_the_interpreter(block: int) -> None:
    for seed in range(12 * block, 12 * block + 12):
        check(seed)


@pytest.mark.parametrize("cpu", ["x86-64", "haswell", "x86-64-v4"])
def test_other_x86_levels_match_too(cpu: str) -> None:
    host = Machine.host()
    if host.arch != "x86_64" or not host.has_fma:
        pytest.skip("needs an x86 machine that runs these levels")
    if cpu == "x86-64-v4" and host.vector_bits < 512:
        pytest.skip("needs AVX-512")
    machine = Machine.of(host.triple, cpu)
    for seed in range(1000, 1020):
        check(seed, machine)
