"""What tasks and workloads are called where people read of them."""

from __future__ import annotations

import json
import re

from ansor.task.alternatives import rounding
from ansor.task.registry import BUILTIN_PREFIX
from ansor.task.task import Task
from measure.records.unsaid import plain_key


def task_title(task: Task) -> str:
    """Short name of a task: its description, else function and arguments of its key."""
    if task.desc:
        return task.desc
    return title_of_key(task.workload_key)


def title_with_algorithm(workload_key: str, algorithm: str) -> str:
    """Write a task's key as a call, and behind it that of its algorithm where this is an alternative."""
    return title_of_key(workload_key) + by_algorithm(workload_key, algorithm)


def by_algorithm(workload_key: str, algorithm: str, *, errors: bool = True) -> str:
    """
    Name the algorithm of a program, to go behind its task or its speed; nothing for that of the task itself.

    Parameters
    ----------
    workload_key, algorithm
        Keys of the task and of the algorithm.
    errors
        Whether to say of rounding errors, too.
    """
    if plain_key(workload_key) == plain_key(algorithm):
        return ""
    return f" by {(algorithm_title if errors else title_of_key)(algorithm)}"


def algorithm_title(key: str) -> str:
    """Write the key of an algorithm as a call, and behind it how large its rounding errors are, if larger."""
    said = rounding(key)
    return title_of_key(key) + (f" ({said})" if said else "")


def title_of_key(workload_key: str, *, whole: bool = False) -> str:
    """Write a workload key as a call, ``matmul(512, 512, 512)``; a key of another form stays as it is.

    `whole` leaves the catalogue's names their prefix.
    """
    try:
        items = json.loads(workload_key)
    except ValueError:
        return workload_key
    if not isinstance(items, list) or not items or not isinstance(items[0], str):
        return workload_key
    if re.fullmatch(r"[0-9a-f]{32,40}", items[0]):
        return f"graph {items[0][:8]}({', '.join(map(str, items[1:]))})"
    name = items[0] if whole else items[0].removeprefix(BUILTIN_PREFIX)
    return f"{name}({', '.join(map(str, items[1:]))})"
