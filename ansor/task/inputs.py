"""Real data for the inputs of a task, by workload and input name.

Programs are measured on random numbers unless an input needs better ones: index tensors, sorted keys,
masks. A user gives those to `SearchTask(task_inputs=...)`, which puts them here; who fills a program's
arguments looks here for the inputs that the task names (`Task.input_names`), as another task of the same
workload may do without. The arrays are read-only copies, so every trial sees the same data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ansor.errors import DefinitionError

if TYPE_CHECKING:
    import numpy as np

_BUFFERS: Final[dict[tuple[str, str], np.ndarray[Any, Any]]] = {}


def register_task_input_buffer(
    workload_key: str, input_name: str, input_data: np.ndarray[Any, Any], overwrite: bool = False
) -> np.ndarray[Any, Any]:
    """
    Keep a copy of an input's data and return it.

    Raises
    ------
    DefinitionError
        If other data was given before and `overwrite` is false.
    """
    import numpy as np

    known = _BUFFERS.get((workload_key, input_name))
    if known is not None and not overwrite:
        same = (known.dtype, known.shape) == (input_data.dtype, input_data.shape)
        if same and known.tobytes() == input_data.tobytes():  # NaN is not equal to itself.
            return known
        raise DefinitionError(
            f"input {input_name!r} of workload {workload_key} was given other data before; "
            "pass task_inputs_overwrite=True to replace it"
        )
    copy = np.array(input_data, order="C", copy=True)
    copy.flags.writeable = False
    _BUFFERS[workload_key, input_name] = copy
    return copy


def get_task_input_buffer(workload_key: str, input_name: str) -> np.ndarray[Any, Any] | None:
    """Look up an input's data; None if none was given. The array is read-only."""
    return _BUFFERS.get((workload_key, input_name))
