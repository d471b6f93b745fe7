"""Several algorithms for one operation: one task with several computations.

The *direct* one defines what is right, and speed is reported in its FLOPs. Each alternative is an ordinary
workload under a key of its own, so its records are ordinary records, which name the direct one besides; it
takes inputs and gives outputs of the same shapes and dtypes, in the same order. Its answers are compared with
those of the direct one, within what the direct one may be off by, times the amplification of rounding errors
that its operations state (`rounding_amplification`).

An input that is free of layout may be taken in prepared form (`ansor.te.preparation`) by tasks whose
callers lay out constants beforehand, which is no part of the time: `REWRITE_FOR_PRE_TRANSFORMED`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ansor.errors import AnsorError, DefinitionError
from ansor.schedule.access import amplification
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.layout_rewrite import layout_free_inputs
from ansor.task.registry import make_workload_key, recorded_dag, workload_key_to_tensors
from ansor.task.task import LayoutRewriteOption, Task
from ansor.te.preparation import source_of
from ansor.te.tensor import Tensor, format_shape

Call = tuple[str | Callable[..., Any], Sequence[Any]]
"""A workload and its arguments."""


def make_alternatives(direct: Task, calls: Sequence[Call]) -> tuple[Task, ...]:
    """
    Make the tasks of other algorithms for an operation.

    Parameters
    ----------
    direct
        The task that defines what is right.
    calls
        Registered workloads with their arguments.

    Raises
    ------
    DefinitionError
        If one is no such call, computes something of another form, or is the same algorithm as another.
    """
    if not isinstance(calls, (list, tuple)) or not all(_is_call(item) for item in calls):
        raise DefinitionError(
            f"alternatives={calls!r}: it must be a list of workloads with their arguments, such as "
            '[("another_algorithm", (1, 56, 56, 64, 64))]'
        )
    if not calls:
        return ()
    plain = _plain(direct)
    made: list[Task] = []
    for func, args in calls:
        key = make_workload_key(func, args)
        dag = ComputeDAG(workload_key_to_tensors(key))
        _check_form(plain, key, dag)
        made.append(replace(plain, dag=dag, workload_key=key, desc="", direct=plain))
    _check_distinct([plain, *made])
    return tuple(made)


def rounding(key: str) -> str:
    """
    Say how much larger than those of the direct form an algorithm's rounding errors are.

    Parameters
    ----------
    key
        The algorithm's workload key.

    Returns
    -------
    str
        A few words; none if they are not larger, or the workload is not known here.
    """
    try:
        factor = amplification(recorded_dag(key).ops)
    except AnsorError:
        return ""
    if factor <= 1:
        return ""
    return f"rounding errors about {factor:.{int(factor < 10)}f} times those of the direct form"


def takes_arguments_of(algorithm: Task, option: LayoutRewriteOption) -> bool:
    """Whether programs of an algorithm take inputs as callers under an option have them."""
    dag = algorithm.compute_dag
    return option is LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED or all(
        source_of(tensor) is tensor for tensor in dag.inputs
    )


def _is_call(item: object) -> bool:
    return (
        isinstance(item, (list, tuple)) and len(item) == 2 and (isinstance(item[0], str) or callable(item[0]))
    )


def _plain(task: Task) -> Task:
    """The task without what tuning adds to it."""
    return Task(
        task.dag,
        task.workload_key,
        task.target,
        task.target_host,
        task.hardware_params,
        task.layout_rewrite_option,
        task.input_names,
        task.desc,
    )


def _check_form(direct: Task, key: str, dag: ComputeDAG) -> None:
    """Refuse a computation that does not take and give what the direct one does."""
    mine, others = direct.compute_dag.tensors, dag.tensors
    wanted = [_form(tensor, tensor in direct.compute_dag.outputs) for tensor in mine]
    found = [_form(source_of(tensor), tensor in dag.outputs) for tensor in others]
    if wanted != found:
        raise DefinitionError(
            f"{key} is no alternative to {direct.workload_key}: its arguments are {', '.join(found)}, "
            f"not {', '.join(wanted)}"
        )
    free = layout_free_inputs(direct.compute_dag)
    for tensor, other in zip(mine, others, strict=True):
        if source_of(other) is other:
            continue
        if direct.layout_rewrite_option is not LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED:
            raise DefinitionError(
                f"{key} takes its input {tensor.name!r} in prepared form, which is part of no call: that "
                "needs a task with layout_rewrite_option=2"
            )
        if tensor not in free:
            raise DefinitionError(
                f"{key} takes its input {tensor.name!r} in prepared form, but no operation of "
                f"{direct.workload_key} lists that among its layout_free_placeholders"
            )


def _form(tensor: Tensor, output: bool) -> str:
    return f"{'output' if output else 'input'} {tensor.dtype}{format_shape(tensor.shape)}"


def _check_distinct(tasks: Sequence[Task]) -> None:
    """Refuse tasks whose records or programs would be taken for those of another."""
    keys: dict[str, None] = {}
    known: dict[str, str] = {}
    for task in tasks:
        if task.workload_key in keys:
            raise DefinitionError(f"{task.workload_key} occurs twice among a task and its alternatives")
        keys[task.workload_key] = None
        same = known.setdefault(task.compute_dag.structure_hash, task.workload_key)
        if same != task.workload_key:
            raise DefinitionError(
                f"{task.workload_key} is the same algorithm as {same}: they differ in names at most"
            )
