"""`WarpIntrinsic`: an instruction that the threads of a warp execute together, as a te pattern and a layout.

The tensor cores of NVIDIA's GPUs multiply small matrices. Of `mma.sync.m16n8k16` the pattern is

    A = te.placeholder((16, 16), "bfloat16")
    B = te.placeholder((16, 8), "bfloat16")
    k = te.reduce_axis((0, 16))
    C = te.compute((16, 8), lambda i, j: te.sum(te.cast(A[i, k], f32) * te.cast(B[k, j], f32), axis=k))

and the elements of C lie in the registers of 32 threads, the *lanes* of the warp:

    i = i_held * 8 + i_lane        j = j_lane * 2 + j_held        lane = i_lane * 4 + j_lane

So what one thread has to do are three loops over numbers, `i_held`, `j_held` and `k`, around `C += A * B`.
Those loops are what a schedule tensorizes, and they go on meaning what they say: a machine without the
instruction executes them as they stand. Where the lanes are as above the 32 threads do them at once, and
divide the reading among themselves as the instruction wants it.

Products are exact and sums those of float32, but for their rounding: products of one instruction are aligned
to the greatest and cut off before they are added up, and so are results (`measure.correctness.tolerance`).

Operands of 32 bits are rounded first, to a float of 8 bits of exponent and 10 of fraction (tfloat32). That is
for an operation to allow: `attrs={"rounded_operands": "tfloat32"}`.

Source: PTX ISA, matrix multiply-accumulate instructions. Fasi, Higham, Mikaitis and Pranesh, Numerical
behavior of NVIDIA tensor cores, PeerJ Computer Science 2021, for the rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ansor.errors import DefinitionError
from ansor.intrinsics.pattern import product_of
from ansor.te.define import compute, placeholder
from ansor.te.expr import Expr, cast, free_vars, int_value
from ansor.te.reduction import reduce_axis, sum  # noqa: A004
from ansor.te.tensor import ComputeOp, Tensor

ROUNDED_OPERANDS_ATTR: Final = "rounded_operands"
"""The attribute of an operation that says to which format operands of its products may be rounded."""


class Axes(NamedTuple):
    """Positions of the axes of a computation that an intrinsic runs over: rows, columns, and products."""

    row: int
    column: int
    reduce: int


@dataclass(frozen=True, slots=True, eq=False)
class WarpIntrinsic:
    """
    One instruction.

    Parameters
    ----------
    name
        What schedules and records call it.
    pattern
        The computation: C[i, j] = sum over k of A[i, k] * B[k, j], both converted to the result's dtype
        first.
    row, column
        Rows and columns as (held by each thread, lanes), their product being the pattern's extents. Lanes of
        rows are the outer part of a lane's number; a row is `held * lanes + lane`, a column
        `lane * held + held`, whatever their number.
    instruction
        In PTX, without its operands.
    capability
        The least compute capability of a GPU that has it, 80 for sm_80.
    rounded
        The format that operands are rounded to, "" for that of their dtype.
    halves
        The instruction of GPUs that have none so deep, for either half of the products; "" if there is none.
    """

    name: str
    pattern: Tensor
    row: tuple[int, int]
    column: tuple[int, int]
    instruction: str
    capability: int
    rounded: str = ""
    halves: str = ""

    @property
    def op(self) -> ComputeOp:
        """The pattern's operation."""
        assert isinstance(self.pattern.op, ComputeOp)
        return self.pattern.op

    @property
    def depth(self) -> int:
        """Products that are added up to one element."""
        return int_value(self.op.reduce_axis[0].extent) or 0

    @property
    def held(self) -> tuple[int, int, int]:
        """Extents of the loops of one thread: rows, columns, and products."""
        return self.row[0], self.column[0], self.depth

    @property
    def lanes(self) -> int:
        """Threads that execute it together."""
        return self.row[1] * self.column[1]

    @property
    def rows(self) -> int:
        """Rows of the pattern."""
        return self.row[0] * self.row[1]

    @property
    def columns(self) -> int:
        """Columns of the pattern."""
        return self.column[0] * self.column[1]

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        return self.pattern.dtype

    @property
    def operand(self) -> str:
        """The dtype of both operands."""
        return self.op.input_tensors[0].dtype

    @property
    def is_converted(self) -> bool:
        """Whether operands are converted to the dtype of the result before they are multiplied."""
        return self.operand != self.dtype

    def __str__(self) -> str:
        tile = f"{self.rows}x{self.columns}x{self.depth}"
        operand = self.rounded or self.operand
        return f"{self.name}: {self.dtype} += {operand} * {operand}, {tile} by {self.lanes} threads"


def match_warp(op: ComputeOp, intrinsic: WarpIntrinsic) -> tuple[Axes, ...]:
    """
    All axes over which a computation is the intrinsic's pattern, the most promising first.

    One factor depends on the rows and not on the columns, the other one the other way round, both on the
    reduction; if they are rounded, the computation allows it. Columns had better be the last axis, which runs
    along the memory of the result, rows the last but one, and products the last.
    """
    if intrinsic.rounded and op.attrs.get(ROUNDED_OPERANDS_ATTR) != intrinsic.rounded:
        return ()
    factors = product_of(op, intrinsic.is_converted)
    if factors is None or op.output(0).dtype != intrinsic.dtype:
        return ()
    if any(factor.dtype != intrinsic.operand for factor in factors):
        return ()
    used = [free_vars(factor) for factor in factors]
    found: set[Axes] = set()
    for first, second in (used, used[::-1]):
        rows = [at for at, axis in enumerate(op.axis) if axis in first and axis not in second]
        columns = [at for at, axis in enumerate(op.axis) if axis in second and axis not in first]
        reduces = [at for at, axis in enumerate(op.reduce_axis) if axis in first and axis in second]
        found.update(Axes(i, j, k) for i in rows for j in columns for k in reduces)
    return tuple(sorted(found, key=lambda axes: (-axes.column, -axes.row, -axes.reduce)))


def _product(dtype: str, depth: int) -> Tensor:
    a, b = placeholder((16, depth), dtype, "A"), placeholder((depth, 8), dtype, "B")
    k = reduce_axis((0, depth), "k")

    def element(i: Expr, j: Expr) -> Expr:
        return sum(cast(a[i, k], "float32") * cast(b[k, j], "float32"), axis=k)

    return compute((16, 8), element, name="C")


_KNOWN: Final = {
    one.name: one
    for one in (
        *(
            WarpIntrinsic(
                name=f"cuda.mma.m16n8k16.{dtype}",
                pattern=_product(dtype, 16),
                row=(2, 8),
                column=(2, 4),
                instruction=f"mma.sync.aligned.m16n8k16.row.col.f32.{short}.{short}.f32",
                capability=75 if halves else 80,
                halves=halves,
            )
            for dtype, short, halves in (
                ("bfloat16", "bf16", ""),
                ("float16", "f16", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"),
            )
        ),
        WarpIntrinsic(
            name="cuda.mma.m16n8k8.tfloat32",
            pattern=_product("float32", 8),
            row=(2, 8),
            column=(2, 4),
            instruction="mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
            capability=80,
            rounded="tfloat32",
        ),
    )
}


def check_rounding(op: ComputeOp) -> None:
    """
    Refuse an operation that allows its operands to be rounded to a format that there is not.

    Raises
    ------
    DefinitionError
        With those that there are.
    """
    known = {one.rounded: None for one in _KNOWN.values() if one.rounded}
    allowed = op.attrs.get(ROUNDED_OPERANDS_ATTR)
    if ROUNDED_OPERANDS_ATTR in op.attrs and not (isinstance(allowed, str) and allowed in known):
        raise DefinitionError(
            f"compute {op.name!r} has {ROUNDED_OPERANDS_ATTR!r}: {allowed!r} among its attrs; operands "
            f"may be rounded to {' or '.join(map(repr, known))}"
        )


def warp_intrinsics() -> Iterator[WarpIntrinsic]:
    """All of them."""
    return iter(_KNOWN.values())


def is_warp_intrinsic(name: str) -> bool:
    """Whether a name is that of an intrinsic of warps."""
    return name in _KNOWN


def get_warp_intrinsic(name: str) -> WarpIntrinsic:
    """The intrinsic of that name.

    Raises
    ------
    DefinitionError
        If there is none; the message lists all.
    """
    if name not in _KNOWN:
        raise DefinitionError(f"there is no intrinsic of warps {name!r}; known are {', '.join(_KNOWN)}")
    return _KNOWN[name]
