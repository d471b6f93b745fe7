"""Straight-line arithmetic on values: the instruction set that expressions and math functions are written in.

Every operation takes scalars and vectors mixed (a scalar is copied to all lanes), is value-numbered and
hoisted by `FunctionText`, and works for any number of lanes. Multiplications and additions of floats carry
the `contract` flag, so that LLVM makes fused multiply-adds of them where the machine has any; no other
liberty is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ansor.codegen.llvm.dtype_map import float_literal
from ansor.codegen.llvm.index import IndexMath
from ansor.codegen.llvm.text import FunctionText, Value, vector_type
from ansor.codegen.machine import Machine

_REGISTER = 16
"""Floats in a register of 512 bits."""
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


class Vectors:
    """Operations on the values of one function."""

    def __init__(self, fn: FunctionText, index: IndexMath, machine: Machine) -> None:
        self.fn = fn
        self.index = index
        self.machine = machine
        self.half_bits: dict[str, Value] = {}
        """Of names of `float` values the i16 bits of the float16 that they were made of by integers."""

    def splat(self, value: Value, lanes: int) -> Value:
        """`value` in all of `lanes` lanes."""
        return self.fn.splat(value, lanes)

    def number(self, value: float, type_: str, lanes: int = 1) -> Value:
        """A literal of a float or integer type."""
        text = float_literal(value, type_) if type_ in _SUFFIX else str(int(value))
        return self.splat(Value(text, type_), lanes)

    def match(self, *values: Value) -> tuple[list[Value], int, int]:
        """The values with equal lanes, their number of lanes, and the depth at which all are known."""
        lanes, depth = 1, 0
        for value in values:
            lanes = max(lanes, value.lanes)
            depth = max(depth, value.depth)
        if lanes > 1:
            return [self.fn.splat(v, lanes) for v in values], lanes, depth
        return list(values), lanes, depth

    def pair(self, a: Value, b: Value) -> tuple[Value, Value, int, int]:
        """Two values with equal lanes, their number of lanes, and the depth at which both are known."""
        depth = a.depth if a.depth > b.depth else b.depth
        if a.lanes == b.lanes:
            return a, b, a.lanes, depth
        lanes = max(a.lanes, b.lanes)
        return self.fn.splat(a, lanes), self.fn.splat(b, lanes), lanes, depth

    def binary(self, opcode: str, a: Value, b: Value, *, dear: bool = False) -> Value:
        """`opcode a, b`, of the type of `a`."""
        x, y, lanes, depth = self.pair(a, b)
        emit = self.fn.inside if dear or lanes > 1 or a.type in _SUFFIX else self.fn.pure
        return emit(f"{opcode} {vector_type(a.type, lanes)} {x.text}, {y.text}", a.type, lanes, depth)

    def div(self, a: Value, b: Value) -> Value:
        return self.binary("fdiv", a, b)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """`fcmp` or `icmp` by the operands' type; the predicate is LLVM's."""
        x, y, lanes, depth = self.pair(a, b)
        opcode = "fcmp" if a.type in _SUFFIX else "icmp"
        text = f"{opcode} {predicate} {vector_type(a.type, lanes)} {x.text}, {y.text}"
        return self.fn.inside(text, "i1", lanes, depth)

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        """`a` where `cond` holds, else `b`; a scalar condition chooses for all lanes."""
        x, y, lanes, depth = self.pair(a, b)
        if cond.lanes > lanes:
            lanes = cond.lanes
            x, y = self.splat(x, lanes), self.splat(y, lanes)
        full = vector_type(a.type, lanes)
        text = f"select {cond.full_type} {cond.text}, {full} {x.text}, {full} {y.text}"
        return self.fn.inside(text, a.type, lanes, max(depth, cond.depth))

    def convert(self, opcode: str, a: Value, type_: str) -> Value:
        """A conversion instruction such as "fptrunc" or "bitcast"."""
        text = f"{opcode} {a.full_type} {a.text} to {vector_type(type_, a.lanes)}"
        return self.fn.inside(text, type_, a.lanes, a.depth)

    def intrinsic(self, name: str, *args: Value, extra: str = "") -> Value:
        """A call of `llvm.NAME` for the arguments' common type; `extra` is one more, literal argument."""
        values, lanes, depth = self.match(*args)
        type_ = args[0].type
        full = vector_type(type_, lanes)
        suffix = _SUFFIX.get(type_, type_)
        symbol = f"@llvm.{name}.{suffix}" if lanes == 1 else f"@llvm.{name}.v{lanes}{suffix}"
        types = ", ".join([full] * len(values) + (["i1"] if extra else []))
        self.fn.declare(symbol, f"declare {full} {symbol}({types})")
        texts = [f"{full} {v.text}" for v in values] + ([extra] if extra else [])
        return self.fn.inside(f"call {full} {symbol}({', '.join(texts)})", type_, lanes, depth)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """`a * b + c`: fused if the machine can, else rounded twice; `intrinsic("fma")` always fuses."""
        if self.machine.has_fma:
            return self.intrinsic("fma", a, b, c)
        return self.binary("fadd", self.binary("fmul", a, b), c)

    def scale(self, a: Value, n: Value) -> Value:
        """`a * 2**n` for integers n of 32 bits, rounded once; only for a machine that `has_scaling`."""
        (x, y), lanes, depth = self.match(a, n)
        dims = "" if lanes == 1 else f"v{lanes}"
        symbol = f"@llvm.ldexp.{dims}{_SUFFIX[a.type]}.{dims}i32"
        full, integers = vector_type(a.type, lanes), vector_type("i32", lanes)
        self.fn.declare(symbol, f"declare {full} {symbol}({full}, {integers})")
        text = f"call {full} {symbol}({full} {x.text}, {integers} {y.text})"
        return self.fn.inside(text, a.type, lanes, depth)

    def lookup(self, table: tuple[float, ...], index: Value) -> Value:
        """`table[index % 16]` of 16 floats; only for a machine that has 512-bit registers."""
        numbers = ", ".join(f"float {float_literal(x, 'float')}" for x in table)
        return self._in_registers(
            "permvar.sf.512", (f"<16 x float> <{numbers}>", index), "<16 x float>, <16 x i32>"
        )

    def scale_by_floor(self, a: Value, x: Value) -> Value:
        """`a * 2**floor(x)`, rounded once; only for a machine that has 512-bit registers."""
        arguments = (a, x, "<16 x float> undef", "i16 -1", "i32 4")
        types = "<16 x float>, <16 x float>, <16 x float>, i16, i32"
        return self._in_registers("mask.scalef.ps.512", arguments, types)

    def bound(self, a: Value, most: float) -> Value:
        """`a`, or `most` with the sign of `a` where that is nearer 0 or `a` is NaN; for who `has_range`."""
        numbers = ", ".join([f"float {float_literal(most, 'float')}"] * _REGISTER)
        arguments = (a, f"<16 x float> <{numbers}>", "i32 2", "<16 x float> undef", "i16 -1", "i32 4")
        types = "<16 x float>, <16 x float>, i32, <16 x float>, i16, i32"
        return self._in_registers("mask.range.ps.512", arguments, types)

    def _in_registers(self, name: str, arguments: tuple[Value | str, ...], types: str) -> Value:
        """A 512-bit instruction that gives floats, of values of any number of lanes, 16 at a time."""
        values, lanes, depth = self.match(*[a for a in arguments if isinstance(a, Value)])
        symbol = f"@llvm.x86.avx512.{name}"
        self.fn.declare(symbol, f"declare <16 x float> {symbol}({types})")
        pieces = []
        for first in range(0, lanes, _REGISTER):
            rest = iter([self._lanes_of(value, first, _REGISTER) for value in values])
            texts = [a if isinstance(a, str) else _typed(next(rest)) for a in arguments]
            pieces.append(
                self.fn.inside(f"call <16 x float> {symbol}({', '.join(texts)})", "float", 16, depth)
            )
        if lanes == 1:
            return self.element(pieces[0], 0)
        while len(pieces) > 1:
            halves = zip(pieces[::2], pieces[1::2], strict=True)
            pieces = [self.permuted(a, b, range(2 * a.lanes)) for a, b in halves]
        return self._lanes_of(pieces[0], 0, lanes)

    def _lanes_of(self, a: Value, first: int, lanes: int) -> Value:
        """So many lanes of a value from `first` on, any number in those that it does not have."""
        if a.lanes == 1:
            full = vector_type(a.type, lanes)
            text = f"insertelement {full} poison, {a.type} {a.text}, i64 0"
            return self.fn.inside(text, a.type, lanes, a.depth)
        if lanes == a.lanes:
            return a
        return self.permuted(a, Value("poison", a.type, a.lanes), range(first, first + lanes))

    def permuted(self, a: Value, b: Value, places: Sequence[int]) -> Value:
        """The lanes of two vectors at places in their concatenation; any number at places behind it."""
        mask = ", ".join(f"i32 {place if place < 2 * a.lanes else 'poison'}" for place in places)
        text = f"shufflevector {_typed(a)}, {_typed(b)}, <{len(places)} x i32> <{mask}>"
        return self.fn.inside(text, a.type, len(places), max(a.depth, b.depth))

    def frozen(self, a: Value) -> Value:
        """`a`, with any number in lanes that have none (poison): it may decide about others."""
        return self.fn.inside(f"freeze {a.full_type} {a.text}", a.type, a.lanes, a.depth)

    def folded(self, name: str, a: Value) -> Value:
        """`llvm.NAME` of the halves of a value, and of the halves of that, until it is one vector."""
        while a.lanes % 2 == 0 and a.lanes * 32 > self.machine.vector_bits:
            half = a.lanes // 2
            a = self.intrinsic(name, self._lanes_of(a, 0, half), self._lanes_of(a, half, half))
        return a

    @staticmethod
    def first_lanes(count: int, lanes: int) -> Value:
        """The mask of the first `count` of some lanes."""
        bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
        return Value(f"<{bits}>", "i1", lanes)

    def element(self, a: Value, lane: int) -> Value:
        """One lane of a vector; of a scalar, the scalar."""
        if a.lanes == 1:
            return a
        return self.fn.inside(f"extractelement {a.full_type} {a.text}, i64 {lane}", a.type, 1, a.depth)

    def gathered(self, elements: list[Value]) -> Value:
        """A vector of scalars."""
        lanes, type_ = len(elements), elements[0].type
        full = vector_type(type_, lanes)
        total, depth = "poison", 0
        value = elements[0]
        for lane, element in enumerate(elements):
            depth = max(depth, element.depth)
            text = f"insertelement {full} {total}, {type_} {element.text}, i64 {lane}"
            value = self.fn.inside(text, type_, lanes, depth)
            total = value.text
        return value

    def each_lane(self, symbol: str, type_: str, *args: Value) -> Value:
        """A scalar library function applied lane by lane."""
        values, lanes, depth = self.match(*args)
        parameters = ", ".join([type_] * len(args))
        self.fn.declare(f"@{symbol}", f"declare {type_} @{symbol}({parameters}) nounwind memory(none)")
        results = []
        for lane in range(lanes):
            texts = ", ".join(f"{type_} {self.element(v, lane).text}" for v in values)
            results.append(self.fn.inside(f"call {type_} @{symbol}({texts})", type_, 1, depth))
        return results[0] if lanes == 1 else self.gathered(results)

    def any_lane(self, mask: Value) -> Value:
        """Whether a lane of the mask is set."""
        if mask.lanes == 1:
            return mask
        symbol = f"@llvm.vector.reduce.or.v{mask.lanes}i1"
        self.fn.declare(symbol, f"declare i1 {symbol}({mask.full_type})")
        return self.fn.pure(f"call i1 {symbol}({mask.full_type} {mask.text})", "i1", 1, mask.depth)

    def branch(self, cond: Value, then: Callable[[], Value], other: Callable[[], Value]) -> Value:
        """One of two values of equal type and lanes, of which only that one is computed."""
        return self.branches(cond, lambda: (then(),), lambda: (other(),))[0]

    def branches(
        self, cond: Value, then: Callable[[], tuple[Value, ...]], other: Callable[[], tuple[Value, ...]]
    ) -> tuple[Value, ...]:
        """The same of several values."""
        fn = self.fn
        fn.open_branch()
        values = then()
        side = fn.close()
        fn.open_branch()
        other_values = other()
        other_side = fn.close()
        fn.join(cond, side, other_side)
        return tuple(
            fn.here(
                f"phi {a.full_type} [ {a.text}, %{side.label} ], [ {b.text}, %{other_side.label} ]",
                a.type,
                a.lanes,
            )
            for a, b in zip(values, other_values, strict=True)
        )

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """The conjunction of two conditions, None being true."""
        if a is None or b is None:
            return a if b is None else b
        x, y, lanes, depth = self.pair(a, b)
        return self.fn.pure(f"and {vector_type('i1', lanes)} {x.text}, {y.text}", "i1", lanes, depth)

    def negation(self, a: Value) -> Value:
        """The negation of a condition."""
        true = "true" if a.lanes == 1 else "splat (i1 true)"
        return self.fn.pure(f"xor {a.full_type} {a.text}, {true}", "i1", a.lanes, a.depth)


def _typed(value: Value) -> str:
    return f"{value.full_type} {value.text}"
