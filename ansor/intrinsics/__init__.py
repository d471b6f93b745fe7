"""Tensor intrinsics as data: machine instructions that compute a small tile of a tensor expression.

Reading order: `pattern` (what an intrinsic is, and the register of all of them), `matching` (where a
computation has the form of one), `known` (those that come with ansor).
"""

from ansor.intrinsics import known
from ansor.intrinsics.matching import Axes, match
from ansor.intrinsics.pattern import (
    TensorIntrinsic,
    get_tensor_intrinsic,
    register_tensor_intrinsic,
    tensor_intrinsics,
)

known.register_all()

__all__ = [
    "Axes",
    "TensorIntrinsic",
    "get_tensor_intrinsic",
    "match",
    "register_tensor_intrinsic",
    "tensor_intrinsics",
]
