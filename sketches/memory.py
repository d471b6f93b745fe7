"""Sizes of tensors and of the machine's memories, where the space of programs depends on them."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ansor.dtypes import dtype_info
from ansor.task.hardware import MachineModel
from ansor.task.target import Target
from ansor.te.expr import int_value
from ansor.te.tensor import Tensor


def elements_of(tensor: Tensor) -> int:
    """Elements of a tensor; a symbolic one counts as empty."""
    return prod(int_value(extent) or 0 for extent in tensor.shape)


def bytes_of(tensor: Tensor) -> int:
    """Size of a tensor [bytes]; a symbolic one counts as empty."""
    return elements_of(tensor) * dtype_info(tensor.dtype).bytes


@lru_cache(maxsize=64)
def machine_of(target: str) -> MachineModel:
    """The model of a target's machine, by the target's text."""
    return MachineModel.for_target(Target.parse(target))


def first_cache(target: str) -> int:
    """Bytes of the smallest cache of a core of a target's machine, by the target's text."""
    return machine_of(target).l1_bytes


def second_cache(target: str) -> int:
    """Bytes of the cache that a core of a target's machine has to itself, by the target's text."""
    return machine_of(target).l2_bytes


def last_cache(target: str) -> int:
    """Bytes of the largest cache of a target's machine, by the target's text."""
    model = machine_of(target)
    return max(model.l1_bytes, model.l2_bytes, model.l3_bytes)
