"""Colour conversion of interleaved images `[height, width, 3]`.

Floats in 0..1 use the analogue definition (Y = 0.299 R + 0.587 G + 0.114 B, U and V scaled differences to
blue and red); bytes use the eight-bit fixed-point form of ITU-R BT.601, exact in integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ansor import te
from ansor.dtypes import is_float
from ansor.te import Expr, Tensor
from ansor.workloads.catalogue import FLOATS, Arguments, Array, workload
from ansor.workloads.parts import wide_float

# Rows Y, U, V; columns R, G, B.
_FLOAT_MATRIX = ((0.299, 0.587, 0.114), (-0.14713, -0.28886, 0.436), (0.615, -0.51499, -0.10001))
_BYTE_MATRIX = ((66, 129, 25), (-38, -74, 112), (112, -94, -18))
_BYTE_OFFSETS = (16, 128, 128)


def _rgb_to_yuv(arrays: Sequence[Array], args: Arguments) -> Array:
    (rgb,) = arrays
    if is_float(args["dtype"]):
        result: Array = np.matmul(rgb, np.array(_FLOAT_MATRIX, rgb.dtype).T)
        return result
    products: Array = np.matmul(rgb.astype(np.int32), np.array(_BYTE_MATRIX, np.int32).T)
    yuv: Array = ((products + 128) >> 8) + np.array(_BYTE_OFFSETS, np.int32)
    return yuv


@workload(
    _rgb_to_yuv,
    benchmark=[(1080, 1920), (2160, 3840), (1080, 1920, "uint8")],
    small=[(5, 7), (8, 16)],
    dtypes=(*FLOATS, "uint8"),
)
def rgb_to_yuv(height: int, width: int, dtype: str = "float32") -> list[Tensor]:
    """Red, green, blue to luma and two colour differences, pixel by pixel."""
    rgb = te.placeholder((height, width, 3), dtype, "RGB")
    floats = is_float(dtype)
    acc = wide_float(dtype) if floats else "int32"
    matrix = _FLOAT_MATRIX if floats else _BYTE_MATRIX

    def of_row(row: Expr, values: Sequence[float]) -> Expr:
        """The value for output row Y, U or V."""
        y, u, v = (te.const(value, acc) for value in values)
        return te.select(row == 0, y, te.select(row == 1, u, v))

    def element(y: Expr, x: Expr, c: Expr) -> Expr:
        terms = [
            te.cast(rgb[y, x, source], acc) * of_row(c, [row[source] for row in matrix])
            for source in range(3)
        ]
        mixed = terms[0] + terms[1] + terms[2]
        return mixed if floats else te.floordiv(mixed + 128, 256) + of_row(c, _BYTE_OFFSETS)

    yuv = te.compute((height, width, 3), lambda y, x, c: te.cast(element(y, x, c), dtype), name="YUV")
    return [rgb, yuv]
