"""Tensor intrinsics as data: machine instructions that compute a small tile of a tensor expression.

Reading order: `pattern` (what an intrinsic of a CPU is, and the register of all of them), `matching` (where a
computation has the form of one), `known` (those that come with ansor), `warp` (those of GPUs, which the
threads of a warp execute together).
"""

from ansor.intrinsics import known
from ansor.intrinsics.matching import Axes, match
from ansor.intrinsics.pattern import (
    TensorIntrinsic,
    get_tensor_intrinsic,
    register_tensor_intrinsic,
    tensor_intrinsics,
)
from ansor.intrinsics.warp import (
    ROUNDED_OPERANDS_ATTR,
    WarpIntrinsic,
    check_rounding,
    get_warp_intrinsic,
    is_warp_intrinsic,
    match_warp,
    warp_intrinsics,
)

known.register_all()

__all__ = [
    "ROUNDED_OPERANDS_ATTR",
    "Axes",
    "TensorIntrinsic",
    "WarpIntrinsic",
    "check_rounding",
    "get_tensor_intrinsic",
    "get_warp_intrinsic",
    "is_warp_intrinsic",
    "match",
    "match_warp",
    "register_tensor_intrinsic",
    "tensor_intrinsics",
    "warp_intrinsics",
]
