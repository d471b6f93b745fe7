"""The intrinsics that come with ansor: dot products of x86 and of Arm.

- `vpdpbusd` (VNNI) adds four products of unsigned and signed bytes to each int32 lane, wrapping as
  int32 arithmetic does: results are exact. For bytes of equal sign one operand is flipped and the difference
  taken off in the end, which costs one more product for each vector of the other operand
  (`ansor.codegen.llvm.flipping`, `flipped_copies`). `vpdpbssd` and `vpdpbuud` (AVX-VNNI-INT8, where the
  target names that) need no such thing.
- `vdpbf16ps` adds two products of bfloat16 to each float32 lane, one after the other. It rounds to nearest
  even whatever the mode, and takes denormal inputs and results for zero. So a sum of n products differs from
  one of float32 operations as another order of adding up does (by about sqrt(n) * 2**-24 of the sum of
  absolute values), and by at most n * 2**-126.
  Reductions through either are products of tiles where there is a matrix unit (`ansor.intrinsics.matrix`).
- `sdot` and `udot` of Arm add four products of bytes of equal sign to each int32 (uint32) lane, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansor.intrinsics.pattern import TensorIntrinsic, register_tensor_intrinsic
from ansor.te.define import compute, placeholder
from ansor.te.expr import Expr, cast
from ansor.te.reduction import reduce_axis, sum  # noqa: A004
from ansor.te.tensor import Tensor

_X86_WIDTHS = (512, 256, 128)


def dot_pattern(
    lanes: int, depth: int, shared: str, other: str, dtype: str, *, shared_last: bool = False
) -> Tensor:
    """`C[i] = sum over k of A[k] * B[i, k]`, with A of dtype `shared`, B of `other`, C of `dtype`.

    With `shared_last` it is B[i, k] * A[k]: operands go to the instruction in the order of the product.
    """
    a = placeholder((depth,), shared, "A")
    b = placeholder((lanes, depth), other, "B")
    k = reduce_axis((0, depth), "k")

    def element(i: Expr) -> Expr:
        factors = cast(a[k], dtype), cast(b[i, k], dtype)
        first, second = factors[::-1] if shared_last else factors
        return sum(first * second, axis=k)

    return compute((lanes,), element, name="C")


def _all() -> Iterator[TensorIntrinsic]:
    for bits in _X86_WIDTHS:
        lanes = bits // 32
        yield TensorIntrinsic(
            name=f"x86.vpdpbusd.{bits}",
            pattern=dot_pattern(lanes, 4, "uint8", "int8", "int32"),
            instruction="vpdpbusd",
            symbol=f"llvm.x86.avx512.vpdpbusd.{bits}",
            operand_type="i32",
        )
        for flipped, (name, dtype) in enumerate((("s8s8", "int8"), ("u8u8", "uint8"))):
            yield TensorIntrinsic(
                name=f"x86.vpdpbusd.{name}.{bits}",
                pattern=dot_pattern(lanes, 4, dtype, dtype, "int32", shared_last=flipped == 1),
                instruction="vpdpbusd",
                symbol=f"llvm.x86.avx512.vpdpbusd.{bits}",
                operand_type="i32",
                flipped=flipped,
            )
    for bits in _X86_WIDTHS:
        lanes = bits // 32
        yield TensorIntrinsic(
            name=f"x86.vdpbf16ps.{bits}",
            pattern=dot_pattern(lanes, 2, "bfloat16", "bfloat16", "float32"),
            instruction="vdpbf16ps",
            symbol=f"llvm.x86.avx512bf16.dpbf16ps.{bits}",
            operand_type="bfloat",
        )
    for name, sign in (("vpdpbssd", ""), ("vpdpbuud", "u")):
        for bits in _X86_WIDTHS[1:]:
            yield TensorIntrinsic(
                name=f"x86.{name}.{bits}",
                pattern=dot_pattern(bits // 32, 4, f"{sign}int8", f"{sign}int8", "int32"),
                instruction="avxvnniint8",
                symbol=f"llvm.x86.avx2.{name}.{bits}",
                operand_type="i32",
            )
    for name, sign in (("sdot", ""), ("udot", "u")):
        yield TensorIntrinsic(
            name=f"arm.{name}",
            pattern=dot_pattern(4, 4, f"{sign}int8", f"{sign}int8", f"{sign}int32"),
            instruction=name,
            symbol=f"llvm.aarch64.neon.{name}.v4i32.v16i8",
            operand_type="i8",
        )


def register_all() -> None:
    """Register them, widest first."""
    for intrinsic in _all():
        register_tensor_intrinsic(intrinsic)
