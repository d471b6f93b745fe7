"""Feature extraction: from programs to rows of the feature table.

Everything acts on whole columns. A population becomes a `Form` (its structure with bounds), the form a list
of statements whose indices are linear in their loops, and the statements of all populations together become
dense arrays (`Columns`), on which the plan of the emitter and all features are computed in blocks that stay
in the cache. A state takes the same way as a form of one row, so a record has the very features that its row
of a population had.

The interesting function is `extract`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.task.device import DeviceModel
from ansor.task.hardware import HardwareParams
from ansor.task.host import available_cores
from ansor.task.isa import vector_bytes
from ansor.task.target import Target
from ansor.task.task import LayoutRewriteOption, Task
from costmodel.candidates import Candidates, batches_of
from costmodel.extraction.columns import Columns, Group, pack
from costmodel.extraction.device import device_rows
from costmodel.extraction.form import Form
from costmodel.extraction.kernels import kernel_plan
from costmodel.extraction.machine import Core, View, machine_rows
from costmodel.extraction.plan import plan
from costmodel.extraction.reference import reference_rows
from costmodel.extraction.regions import regions_of
from costmodel.extraction.statements import statements_of
from costmodel.features.reference import REFERENCE_FEATURES
from costmodel.features.table import N_FEATURES, N_GPU_FEATURES, scale
from costmodel.rows import PackedRows, offsets_of
from sketches import Population

BLOCK = 2048
"""Columns that are computed together: enough to hide the cost of a numpy call, few enough for the cache."""

MAX_THREADS = 4
"""Threads that work on blocks; numpy lets them run side by side."""

_REFERENCE = len(REFERENCE_FEATURES)


def extract(task: Task, candidates: Candidates) -> PackedRows:
    """
    Extract the features of candidates, in order: states, `Programs`, populations.

    Returns
    -------
    PackedRows
        One row per stored statement, those of a program in stage order; columns in the order of the table:
        the first `N_FEATURES` for a CPU, all `N_GPU_FEATURES` for a GPU.

    Raises
    ------
    ScheduleError
        If a program has holes or is illegal.
    DefinitionError
        If a size is symbolic.
    """
    forms: list[Form] = []
    for batch in batches_of(candidates):
        if isinstance(batch, Population):
            forms.append(Form.of_population(batch))
        else:
            forms.extend(Form.of_state(state) for state in batch)
    return extract_forms(task, forms)


def extract_forms(task: Task, forms: Sequence[Form], scaled: bool = True) -> PackedRows:
    """
    Extract the features of forms; rows and errors as of `extract`.

    Parameters
    ----------
    task
        For which machine: vector registers, caches, cores; and whether it rewrites layouts.
    forms
        Their rows are the programs, in order.
    scaled
        Leave magnitudes in their own units if false, as float64: float32 does not hold all of them.
    """
    core = core_of(task)
    rewrites = task.layout_rewrite_option is not LayoutRewriteOption.NO_REWRITE
    statements = [statements_of(form, core.device, rewrites) for form in forms]
    columns = pack(forms, statements)
    counts = (
        np.repeat([len(found) for found in statements], [form.rows for form in forms])
        if forms
        else np.zeros(0, np.int64)
    )
    offsets = offsets_of(counts)
    width = N_FEATURES if core.device is None else N_GPU_FEATURES
    values: NDArray[Any] = np.empty((len(columns), width), np.float32 if scaled else np.float64)
    _fill(columns, core, offsets, values, scaled)
    return PackedRows(values, offsets)


def _fill(
    columns: Columns, core: Core, offsets: NDArray[np.int64], values: NDArray[Any], scaled: bool
) -> None:
    """Compute the rows block by block and put each where it belongs."""
    places = offsets[columns.program] + columns.ordinal
    made = plan(columns, core.registers) if core.device is None else kernel_plan(columns)

    def fill(group: Group, part: slice) -> None:
        block = np.empty((values.shape[1], part.stop - part.start))
        regions = regions_of(columns, group, part)
        reference_rows(columns, made, regions, core.line, block[:_REFERENCE])
        view = View(columns, made, regions, core)
        machine_rows(view, block[_REFERENCE:N_FEATURES])
        if core.device is not None:
            device_rows(view, group, part, core.device, block[N_FEATURES:])
        values[places[regions.at]] = (scale(block) if scaled else block).T

    parts = list(_parts(columns.groups))
    threads = min(len(parts), available_cores(), MAX_THREADS)
    if threads < 2:
        for group, part in parts:
            fill(group, part)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(fill, group, part) for group, part in parts]:
            done.result()


def _parts(groups: Sequence[Group]) -> Iterator[tuple[Group, slice]]:
    """Cut each group into blocks of about equal size."""
    for group in groups:
        total = group.columns.stop - group.columns.start
        count = max(-(-total // BLOCK), 1)
        ends = [total * number // count for number in range(count + 1)]
        for start, stop in pairwise(ends):
            yield group, slice(start, stop)


def core_of(task: Task) -> Core:
    """Describe the machine of a task."""
    return _core_of(task.hardware_params, task.target)


@lru_cache(maxsize=64)
def _core_of(hardware: HardwareParams, target: Target) -> Core:
    device = DeviceModel.for_target(target) if target.is_gpu else None
    return Core(hardware, vector_bytes(target), device)
