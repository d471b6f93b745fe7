"""`TensorIntrinsic`: an instruction as a te pattern, the layout of its operands, and how to call it.

The pattern is a computation over a constant tile, for the 512-bit form of VNNI

    A = te.placeholder((4,), "uint8")
    B = te.placeholder((16, 4), "int8")
    k = te.reduce_axis((0, 4))
    C = te.compute((16,), lambda l: te.sum(A[k].astype("int32") * B[l, k].astype("int32"), axis=k))

It says what is computed, and it is all that the instruction means to a schedule, to the interpreter and on
machines without it. The indices say how operands lie in registers: an operand without the *lane* axis `l` is
the same in all lanes, one with it has the elements of a lane side by side. The result has one lane per
element, and is added to.

A machine has an intrinsic if it has the instruction and registers that wide. Its code takes accumulators and
operands, these in the order of the pattern's product, each as a vector of `operand_type`. It is a call of one
LLVM intrinsic, `symbol(accumulators, operands...)`, or what an `emitter` of the author's writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import is_not
from typing import Final

from ansor.dtypes import dtype_info, is_integer, other_sign
from ansor.errors import DefinitionError
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Cast,
    Expr,
    Read,
    Reduce,
    int_value,
)
from ansor.te.reduction import builtin_name
from ansor.te.tensor import ComputeOp, Tensor

_FLOATS: Final = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
_INTEGER: Final = re.compile(r"i[1-9][0-9]{0,3}")

Emitter = Callable[[Callable[[str], str], str, str, str], str]
"""Writes the code of an intrinsic: `emitter(write, accumulators, first, second)` gives the name of the sums.

`write(text)` adds an instruction of LLVM IR without side effects and gives the name of its value; the others
are names of vectors.
"""


@dataclass(frozen=True, slots=True, eq=False)
class TensorIntrinsic:
    """
    One instruction.

    Parameters
    ----------
    name
        What schedules and records call it.
    pattern
        The computation: one spatial axis (the lanes), one reduction axis, a sum of products of two
        operands, both converted to the result's dtype first.
    instruction
        What the machine must have: an instruction that `Machine.instructions` lists, or an LLVM feature that
        the target names (`-mattr=+avxvnniint8`; of this machine all are known).
    symbol
        The LLVM intrinsic; "" where there is an emitter.
    operand_type
        LLVM type of the elements of one lane together, such as "i32" for four bytes, or of one element, as
        "bfloat".
    flipped
        Number of the operand, if any, that the instruction takes with the other sign than the pattern has it,
        one that all lanes share. It is moved by half of its range into that sign, and what this adds to the
        sums is added up by the same instruction, once for all that have the other operand in common, and
        taken off in the end. Exact for integers.
    emitter
        Writes other code than the call of one LLVM intrinsic.

    Raises
    ------
    DefinitionError
        If the pattern has another form, operands are no vectors of `operand_type`, or there is both a symbol
        and an emitter, or neither.
    """

    name: str
    pattern: Tensor
    instruction: str
    symbol: str
    operand_type: str
    flipped: int | None = None
    emitter: Emitter | None = None

    def __post_init__(self) -> None:
        op = self.pattern.op
        if not isinstance(op, ComputeOp) or len(op.axis) != 1 or len(op.reduce_axis) != 1:
            raise DefinitionError(
                f"tensor intrinsic {self.name!r}: the pattern {self.pattern} needs one spatial axis, the "
                "lanes, and one reduction axis"
            )
        if any(int_value(axis.extent) is None for axis in (*op.axis, *op.reduce_axis)):
            raise DefinitionError(f"tensor intrinsic {self.name!r}: its extents must be numbers")
        factors = product_of(op)
        if factors is None or not all(isinstance(factor, Read) for factor in factors):
            raise DefinitionError(
                f"tensor intrinsic {self.name!r}: the pattern must be te.sum(te.cast(A[...], dtype) * "
                f"te.cast(B[...], dtype), axis=k), found `{op.body[0]}`"
            )
        if bool(self.symbol) + callable(self.emitter) != 1:
            raise DefinitionError(
                f"tensor intrinsic {self.name!r}: symbol={self.symbol!r}, emitter={self.emitter!r}; give the "
                "name of an LLVM intrinsic, or symbol='' and a function emitter(write, accumulators, a, b)"
            )
        lane, step = op.axis[0], op.reduce_axis[0]
        for factor in factors:
            assert isinstance(factor, Read)
            wanted = (lane, step)[-len(factor.indices) :]
            if len(factor.indices) not in (1, 2) or any(map(is_not, factor.indices, wanted)):
                raise DefinitionError(
                    f"tensor intrinsic {self.name!r}: operand `{factor}` must be read at [{step.name}], the "
                    f"same in all lanes, or at [{lane.name}, {step.name}]"
                )
        self._check_type(factors)
        if self.flipped is not None and not self._may_flip(self.flipped):
            raise DefinitionError(
                f"tensor intrinsic {self.name!r}: flipped={self.flipped!r} is no operand of integers that "
                f"all lanes share, read at [{step.name}]"
            )

    def _check_type(self, factors: tuple[Expr, Expr]) -> None:
        """Refuse a type of which the operands of all lanes are no vector."""
        element = operand_bits(self.operand_type)
        for factor in factors:
            bits = self.lanes * self.depth * dtype_info(factor.dtype).bits
            if element is None or bits % element:
                raise DefinitionError(
                    f"tensor intrinsic {self.name!r}: operand_type={self.operand_type!r} is no LLVM type of "
                    f"which a vector holds the {bits} bits of `{factor}` in {self.lanes} lanes; give iN, "
                    "half, bfloat, float or double"
                )

    def _may_flip(self, number: int) -> bool:
        integers = is_integer(self.dtype) and all(is_integer(operand.dtype) for operand in self.operands)
        return integers and number in (0, 1) and not self.varies[number]

    @property
    def op(self) -> ComputeOp:
        """The pattern's operation."""
        assert isinstance(self.pattern.op, ComputeOp)
        return self.pattern.op

    @property
    def lanes(self) -> int:
        """Elements of the result."""
        return int_value(self.op.axis[0].extent) or 0

    @property
    def depth(self) -> int:
        """Products that are added up in one lane."""
        return int_value(self.op.reduce_axis[0].extent) or 0

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        return self.pattern.dtype

    @property
    def bits(self) -> int:
        """The width of the result [bits]."""
        return self.lanes * dtype_info(self.dtype).bits

    @property
    def operands(self) -> tuple[Read, Read]:
        """The factors of the product, in the order of the call."""
        factors = product_of(self.op)
        assert factors is not None
        first, second = factors
        assert isinstance(first, Read)
        assert isinstance(second, Read)
        return first, second

    @property
    def taken(self) -> tuple[str, str]:
        """The dtypes of the operands as the instruction takes them."""
        first, second = (
            other_sign(operand.dtype) if number == self.flipped else operand.dtype
            for number, operand in enumerate(self.operands)
        )
        return first, second

    @property
    def varies(self) -> tuple[bool, bool]:
        """Which operands differ from lane to lane."""
        first, second = self.operands
        return len(first.indices) == 2, len(second.indices) == 2

    def __str__(self) -> str:
        operands = zip(self.operands, self.varies, strict=True)
        factors = " * ".join(f"{read.dtype}[lane]" if varies else read.dtype for read, varies in operands)
        return f"{self.name}: {self.dtype} += {factors}, {self.lanes} lanes of {self.depth}"


def operand_bits(type_: str) -> int | None:
    """The size of an LLVM scalar type [bits]; None for another text."""
    return int(type_[1:]) if _INTEGER.fullmatch(type_) else _FLOATS.get(type_)


def product_of(op: ComputeOp, converted: bool = True) -> tuple[Expr, Expr] | None:
    """What an operation multiplies and adds up, before it is converted to the result's dtype.

    None unless the body is the sum of `cast(a) * cast(b)` without a condition; of `a * b` if factors are not
    `converted`.
    """
    root = op.body[0]
    if len(op.body) != 1 or not isinstance(root, Reduce) or root.condition is not None:
        return None
    return product_factors(root.sources[0], converted) if builtin_name(root.combiner) == "sum" else None


def product_factors(expr: Expr, converted: bool = True) -> tuple[Expr, Expr] | None:
    """`a` and `b` of `cast(a) * cast(b)`, or if not `converted` of `a * b`; None for another expression."""
    match expr:
        case Binary(op=BinaryOp.MUL, a=Cast(a=a), b=Cast(a=b)) if converted:
            return a, b
        case Binary(op=BinaryOp.MUL, a=a, b=b) if not converted:
            return a, b
        case _:
            return None


_REGISTERED: Final[dict[str, TensorIntrinsic]] = {}


def register_tensor_intrinsic(intrinsic: TensorIntrinsic, override: bool = False) -> TensorIntrinsic:
    """Make an intrinsic known to schedules, sketch rules and the emitter; gives it back.

    Raises
    ------
    DefinitionError
        If it is none, or another one has its name and `override` is false.
    """
    if not isinstance(intrinsic, TensorIntrinsic):
        raise DefinitionError(
            f"a tensor intrinsic is an ansor.TensorIntrinsic(...), or the name of one; found {intrinsic!r}"
        )
    if _REGISTERED.get(intrinsic.name, intrinsic) is not intrinsic and not override:
        raise DefinitionError(
            f"there is a tensor intrinsic {intrinsic.name!r} already; use another name, or override=True"
        )
    _REGISTERED[intrinsic.name] = intrinsic
    return intrinsic


def get_tensor_intrinsic(name: str) -> TensorIntrinsic:
    """The intrinsic of that name.

    Raises
    ------
    DefinitionError
        If there is none; the message lists all.
    """
    if name not in _REGISTERED:
        raise DefinitionError(
            f"there is no tensor intrinsic {name!r}; known are {', '.join(_REGISTERED)}; one of your own "
            "needs ansor.register_tensor_intrinsic first"
        )
    return _REGISTERED[name]


def tensor_intrinsics() -> Iterator[TensorIntrinsic]:
    """All registered intrinsics, in the order of registration."""
    return iter(tuple(_REGISTERED.values()))
