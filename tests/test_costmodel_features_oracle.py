"""The features that TVM recorded: which of its columns ours agree with, and that the reasons are known.

They are a baseline to understand. Run with `-s` to see, column group by column group, in how many statements
both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from scipy.optimize import linear_sum_assignment

from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel.extraction.extract import extract
from costmodel.features.reference import BUFFER_COLUMNS, N_BUFFERS, REFERENCE_FEATURES
from tests.sketches_cases import oracle_lines, oracle_workload, task_of

TARGET = "llvm -mcpu=core-avx2"
NAMES = [feature.name for feature in REFERENCE_FEATURES]
POINTS = NAMES.index("outer_prod")


@cache
def oracle_task(name: str) -> Task:
    return task_of(oracle_workload(name), TARGET)


def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of TVM and of ours for the same statements; programs whose rows differ in number are left out."""
    for entry in oracle_lines("state", "llvm"):
        task = oracle_task(entry["workload"])
        state = State.replay(task.compute_dag, entry["record"]["i"][1][1])
        ours = extract(task, [state]).values[:, : len(NAMES)]
        theirs = np.array(entry["features"], dtype=np.float32)
        if theirs.shape == ours.shape:
            yield theirs, ours[matching(theirs, ours)]


def matching(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """Which of our rows is each of theirs: the assignment that leaves the least difference."""
    distance = np.abs(theirs[:, None] - ours[None]).sum(axis=2) + 1e3 * (
        np.abs(theirs[:, None, POINTS] - ours[None, :, POINTS]) > 2e-3
    )
    return np.asarray(linear_sum_assignment(distance)[1])


@cache
def agreement() -> dict[str, float]:
    """The part of all statements in which a column is equal, for each column; buffers as a set."""
    theirs, ours = (np.concatenate(rows) for rows in zip(*pairs(), strict=True))
    close = np.isclose(theirs, ours, atol=2e-3)
    found = {name: float(close[:, column].mean()) for column, name in enumerate(NAMES)}
    first = NAMES.index("B0.acc_type.kRead")
    size = len(BUFFER_COLUMNS)
    for column, name in enumerate(BUFFER_COLUMNS):
        at = [first + buffer * size + column for buffer in range(N_BUFFERS)]
        same = np.isclose(np.sort(theirs[:, at], axis=1), np.sort(ours[:, at], axis=1), atol=2e-3).all(axis=1)
        found[f"buffers: {name}"] = float(same.mean())
    return found


SAME = (
    "float_addsub",
    "float_mul",
    "float_divmod",
    "float_cmp",
    "int_cmp",
    "bool_op",
    "buffers: acc_type.kRead",
    "buffers: acc_type.kWrite",
    "buffers: acc_type.kReadWrite",
    "buffers: bytes",
    "outer_prod",
    "num_loops",
    "auto_unroll_max_step",
)
"""Columns that mean the same in both. The others differ on purpose:

- `float_mad`, positions and unrolled loops are never told by TVM, nor vectors that no step asks for.
- TVM counts the arithmetic on indices as integer operations, and if_then_else as a function.
- Its regions know nothing of a fused loop, and lie in the tensor where ours lie in the scratch buffer; its
  unique bytes, lines, reuse, curve and allocations follow from that.
"""


def test_which_columns_agree_with_the_recorded_ones() -> None:
    found = agreement()
    for name in (*NAMES[:57], *(f"buffers: {column}" for column in BUFFER_COLUMNS), *NAMES[-17:]):
        print(f"{name:45s} {found[name]:7.1%}")
    for name in SAME:
        assert found[name] > 0.98, name


def test_every_recorded_program_has_as_many_rows_as_tvm_gives() -> None:
    count = sum(1 for _ in oracle_lines("state", "llvm"))
    assert sum(1 for _ in pairs()) == count
