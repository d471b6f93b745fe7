"""Tensorized loops: one instruction in place of the loop, where the machine has one that fits.

A tensorized loop runs over the products that are added up in one lane of the vector loop around it,

    vectorize l in 0..16:
      tensorize k in 0..4:
        C[l] = C[l] + int32(A[k])*int32(B[l, k])

and means just that. What the loop computes is compared with the intrinsics of the machine
(`ansor.intrinsics`), so it need not be the one that the schedule was written for: a program that was tuned
for another machine is an ordinary unrolled loop here, or the same instruction at another width.

Operands are vectors with a word of elements for each lane. The elements of a word that lie side by side in
memory are loaded at once, and so are words that lie side by side; others are put together. An operand that
was flipped into the other sign, as the instruction takes it (`ansor.codegen.llvm.flipping`), has the words
of what was flipped, with the highest bit of each element inverted.
"""

from __future__ import annotations

from collections.abc import Callable

from ansor.codegen.llvm.flipping import flipped_factor, half_range
from ansor.codegen.llvm.index import Affine, add, constant
from ansor.codegen.llvm.text import Value, vector_type
from ansor.codegen.llvm.values import Env, Expressions
from ansor.codegen.machine import Machine
from ansor.dtypes import dtype_info, is_integer
from ansor.errors import DefinitionError
from ansor.intrinsics import TensorIntrinsic, tensor_intrinsics
from ansor.intrinsics.pattern import operand_bits
from ansor.ir.nest import For
from ansor.ir.updates import Update, update_of
from ansor.plugins import blaming, brief
from ansor.te.expr import Const, Expr, Load


class TensorCalls:
    """Tensorized loops of one function."""

    def __init__(self, expressions: Expressions, machine: Machine) -> None:
        self.expressions = expressions
        self.vectors = expressions.vectors
        self.fn = expressions.fn
        self.memory = expressions.memory
        self.machine = machine
        self._known = tuple(one for one in tensor_intrinsics() if machine.has_intrinsic(one))

    def emit(self, loop: For, env: Env) -> bool:
        """Write the loop as one instruction; False, with nothing written, if none fits."""
        if not self._known or env.under.lanes == 1 or env.under.mask is not None:
            return False
        update = update_of(loop)
        if update is None:
            return False
        for intrinsic in self._known:
            operands = self._ordered(update, intrinsic)
            shape = (env.under.lanes, loop.extent, update.store.buffer.dtype)
            if operands is not None and shape == (intrinsic.lanes, intrinsic.depth, intrinsic.dtype):
                self._call(intrinsic, update, operands, loop, env)
                return True
        return False

    @staticmethod
    def _ordered(update: Update, intrinsic: TensorIntrinsic) -> tuple[Expr, Expr] | None:
        """The operands in the order of the call; None if their dtypes are others."""
        for a, b in (update.operands, update.operands[::-1]):
            if (a.dtype, b.dtype) == intrinsic.taken:
                return a, b
        return None

    def _call(
        self, intrinsic: TensorIntrinsic, update: Update, operands: tuple[Expr, Expr], loop: For, env: Env
    ) -> None:
        e, store = self.expressions, update.store
        e.forget()
        start = env.bind(loop.var, constant(0))
        total = e.value(update.sum_, start)
        words = [self._words(operand, intrinsic, loop, env) for operand in operands]
        varies = tuple(word.lanes > 1 for word in words)
        if operands[0].dtype == operands[1].dtype and varies == intrinsic.varies[::-1] != intrinsic.varies:
            words.reverse()  # a product in the other order
        made = self._instruction(intrinsic, total, words)
        self.memory.store(store.buffer, e.offset(store.buffer, store.indices, start), made, env.under)

    def _instruction(self, intrinsic: TensorIntrinsic, total: Value, words: list[Value]) -> Value:
        """Its code, on accumulators and a word of elements for each lane of both operands."""
        lanes = intrinsic.lanes
        arguments = [self.vectors.splat(total, lanes)]
        for word in words:
            count = lanes * _bits(word.type) // _bits(intrinsic.operand_type)
            arguments.append(self._bitcast(self.vectors.splat(word, lanes), intrinsic.operand_type, count))
        depth = max(self.fn.floor, *(value.depth for value in arguments))

        def write(text: str) -> str:
            return self.fn.pure(text, total.type, lanes, depth).text

        if intrinsic.emitter is None:
            made = self._call_of(intrinsic.symbol, write, arguments)
        else:
            asked = f"the emitter of tensor intrinsic {intrinsic.name!r} was asked for its code"
            with blaming(asked):
                made = intrinsic.emitter(write, *(value.text for value in arguments))
            if not isinstance(made, str):
                raise DefinitionError(f"{asked} and returned {brief(made)}; return the name of the sums")
        return Value(made, total.type, lanes, depth)

    def _call_of(self, symbol: str, write: Callable[[str], str], arguments: list[Value]) -> str:
        """Call an LLVM intrinsic that gives a vector like the first argument."""
        result, types = arguments[0].full_type, ", ".join(value.full_type for value in arguments)
        self.fn.declare(f"@{symbol}", f"declare {result} @{symbol}({types})")
        texts = ", ".join(f"{value.full_type} {value.text}" for value in arguments)
        return write(f"call {result} @{symbol}({texts})")

    # -- operands ------------------------------------------------------------------------------------------

    def _words(self, operand: Expr, intrinsic: TensorIntrinsic, loop: For, env: Env) -> Value:
        """An operand as a word of elements for each lane, or one for all."""
        if isinstance(operand, Const) and is_integer(operand.dtype):
            return self._repeated(int(operand.value), operand.dtype, intrinsic.depth)
        factor = flipped_factor(operand)
        if factor is not None:
            highest = self._repeated(int(half_range(factor).value), operand.dtype, intrinsic.depth)
            words = self._words(factor, intrinsic, loop, env)  # in all lanes: loading them so is free
            return self.vectors.binary("xor", self.vectors.splat(words, intrinsic.lanes), highest)
        word = f"i{intrinsic.depth * dtype_info(operand.dtype).bits}"
        found = self._loaded(operand, word, intrinsic.depth, loop, env)
        return found or self._put_together(operand, word, intrinsic.depth, loop, env)

    def _repeated(self, value: int, dtype: str, depth: int) -> Value:
        """A word of equal elements."""
        bits = dtype_info(dtype).bits
        element = value & ((1 << bits) - 1)
        word = sum(element << (bits * position) for position in range(depth))
        signed = word - (1 << (bits * depth)) if word >> (bits * depth - 1) else word
        return self.vectors.number(signed, f"i{bits * depth}")

    def _loaded(self, operand: Expr, word: str, depth: int, loop: For, env: Env) -> Value | None:
        """The words by one load, where its elements lie side by side in each lane."""
        if not isinstance(operand, Load) or operand.buffer.scope == "register":
            return None
        offsets = self._offsets(operand, depth, loop, env)
        for position, offset in enumerate(offsets):
            difference = add(offset, offsets[0], -1)
            if difference.terms or difference.const != position:
                return None
        base, step = self.memory.index.split_lanes(offsets[0])
        if step not in (0, depth):
            return None
        lanes = 1 if step == 0 else env.under.lanes
        loaded = self.memory.adjacent(operand.buffer, base, lanes * depth, env.under)
        return self._bitcast(loaded, word, lanes)

    def _offsets(self, operand: Load, depth: int, loop: For, env: Env) -> list[Affine]:
        places = [env.bind(loop.var, constant(position)) for position in range(depth)]
        return [self.expressions.offset(operand.buffer, operand.indices, place) for place in places]

    def _put_together(self, operand: Expr, word: str, depth: int, loop: For, env: Env) -> Value:
        """The words element by element, the first one lowest."""
        bits = dtype_info(operand.dtype).bits
        total: Value | None = None
        for position in range(depth):
            value = self.expressions.stored(operand, env.bind(loop.var, constant(position)))
            wide = self.vectors.convert("zext", self.memory.to_memory(value, operand.dtype), word)
            if total is None:
                total = wide
            else:
                shifted = self.vectors.binary("shl", wide, self.vectors.number(bits * position, word))
                total = self.vectors.binary("or", total, shifted)
        assert total is not None
        return total

    def _bitcast(self, value: Value, type_: str, lanes: int) -> Value:
        if (value.type, value.lanes) == (type_, lanes):
            return value
        text = f"bitcast {value.full_type} {value.text} to {vector_type(type_, lanes)}"
        return self.fn.inside(text, type_, lanes, value.depth)


def _bits(type_: str) -> int:
    """The size of an LLVM scalar type [bits]."""
    bits = operand_bits(type_)
    assert bits is not None
    return bits
