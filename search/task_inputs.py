"""Checking the data that a user supplies for a task's inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ansor.dtypes import to_numpy
from ansor.errors import DefinitionError
from ansor.schedule.dag import ComputeDAG
from ansor.task.inputs import get_task_input_buffer, register_task_input_buffer


def resolve_inputs(
    dag: ComputeDAG,
    workload_key: str,
    task_inputs: Mapping[str, np.ndarray[Any, Any]] | Sequence[str] | None,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """
    Keep the supplied arrays where runners look for them, and return the inputs' names in argument order.

    Names alone refer to data that was supplied earlier for the same workload.

    Raises
    ------
    DefinitionError
        If a name is not an input of the computation, or of several, an array has another shape or dtype, or
        data is missing.
    """
    if task_inputs is None:
        return ()
    inputs = {tensor.name: tensor for tensor in dag.inputs}
    called = Counter(tensor.name for tensor in dag.inputs)
    for name in task_inputs:
        if called[name] > 1:
            raise DefinitionError(
                f"task_inputs names {name!r}, as {called[name]} inputs of {workload_key} are; give each "
                "a name of its own, te.placeholder(..., name='A')"
            )
        if name not in inputs:
            raise DefinitionError(
                f"task_inputs names {name!r}, which is no input of {workload_key}; "
                f"its inputs are {', '.join(inputs)}"
            )
    if isinstance(task_inputs, Mapping):
        for name, data in task_inputs.items():
            array = np.asarray(data)
            _check(name, array, tuple(inputs[name].shape), inputs[name].dtype)
            register_task_input_buffer(workload_key, name, array, overwrite)
    else:
        for name in task_inputs:
            if get_task_input_buffer(workload_key, name) is None:
                raise DefinitionError(
                    f"task_inputs names {name!r}, but no data was supplied for it; "
                    f"pass task_inputs={{{name!r}: array}}"
                )
    return tuple(name for name in inputs if name in task_inputs)


def _check(name: str, array: np.ndarray[Any, Any], shape: tuple[object, ...], dtype: str) -> None:
    if array.dtype != to_numpy(dtype):
        raise DefinitionError(f"task_inputs[{name!r}] is {array.dtype}; input {name!r} is {dtype}")
    fits = array.ndim == len(shape) and all(
        not isinstance(extent, int) or extent == found
        for extent, found in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise DefinitionError(f"task_inputs[{name!r}] has shape {array.shape}; input {name!r} is {shape}")
