"""Which records of a log belong together: those of one task, whose times count for each other."""

from __future__ import annotations

from typing import NamedTuple

from measure.layouts import layout_option
from measure.record import MeasureInput
from measure.settled import plain_key
from measure.targets import cores_of, target_group, target_text

OptionsByKey = dict[tuple[str, int], int]
"""What `layout_option` said, by workload key and recorded option: a log asks the same once a line."""


class RecordGroup(NamedTuple):
    """
    What records of one task have in common whose times count for each other.

    Parameters
    ----------
    workload
        Its key as JSON.
    layouts
        The layout option.
    cores
        Where the target is silent about them; None where nothing tells.
    target
        See `target_group`.
    """

    workload: str
    layouts: int
    cores: int | None
    target: tuple[str, ...]


def record_group(inp: MeasureInput, options: OptionsByKey) -> RecordGroup:
    """Return the group of a record."""
    workload = plain_key(inp.task.workload_key)
    asked = workload, int(inp.task.layout_rewrite_option or 0)
    if asked not in options:
        options[asked] = layout_option(inp)
    return RecordGroup(workload, options[asked], cores_of(inp.task), target_group(target_text(inp.task)))
