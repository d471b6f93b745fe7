"""Packed rows: the statements of many programs in one matrix.

A program has as many rows as it has stored statements. `PackedRows` keeps those of all programs one below the
other, and `offsets` says where each program starts. What models do with them is two sums: from rows to
programs (a program's score is the sum of its statements' scores) and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ansor.depth import with_depth
from ansor.errors import DefinitionError, ScheduleError
from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel.candidates import Candidates, batches_of
from sketches import Population

FloatArray = NDArray[np.float64]
RowMatrix = NDArray[np.float32]
Indices = NDArray[np.int64]
Pooling = Literal["sum", "mean", "max"]
POOLINGS: Final[tuple[Pooling, ...]] = ("sum", "mean", "max")


@dataclass(frozen=True, slots=True, eq=False)
class PackedRows:
    """
    Feature rows of programs.

    Attributes
    ----------
    values
        One row per statement, shape ``(rows, features)``.
    offsets
        Rows ``offsets[p]`` up to ``offsets[p + 1]`` are those of program ``p``; shape ``(programs + 1,)``.
    """

    values: RowMatrix
    offsets: Indices

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def fits_together(self) -> bool:
        """Whether both are arrays of numbers of which the one says where the other is divided."""
        offsets = self.offsets
        return (
            self.values.ndim == 2
            and self.values.dtype.kind in "biuf"
            and offsets.ndim == 1
            and offsets.dtype.kind in "iu"
            and len(offsets) > 0
            and (int(offsets[0]), int(offsets[-1])) == (0, len(self.values))
            and bool((offsets[1:] >= offsets[:-1]).all())
        )

    @property
    def counts(self) -> Indices:
        """Rows of each program."""
        return np.diff(self.offsets)

    @property
    def width(self) -> int:
        """Columns of a row."""
        return int(self.values.shape[1])

    @classmethod
    def empty(cls, features: int, programs: int = 0) -> PackedRows:
        """Make programs without rows; by default none."""
        return cls(np.empty((0, features), np.float32), np.zeros(programs + 1, np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[PackedRows]) -> PackedRows:
        """All programs of all parts, in order; at least one part. One without rows may be of any width."""
        counts = np.concatenate([part.counts for part in parts])
        filled = [part for part in parts if len(part.values)] or parts[:1]
        return cls(np.concatenate([part.values for part in filled]), offsets_of(counts))

    def take(self, programs: Indices) -> PackedRows:
        """Return the rows of some programs, in the order given."""
        counts = self.counts[programs]
        offsets = offsets_of(counts)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[programs] - offsets[:-1], counts)
        return PackedRows(self.values[rows], offsets)

    def total(self, per_row: NDArray[Any]) -> FloatArray:
        """Add up one number per row over the rows of each program; 0 for a program without rows."""
        sums = np.zeros(len(self))
        filled = self.counts > 0
        if filled.any():
            sums[filled] = np.add.reduceat(per_row.astype(np.float64, copy=False), self.offsets[:-1][filled])
        return sums

    def spread(self, per_program: NDArray[Any]) -> NDArray[Any]:
        """Repeat one number per program for each of its rows."""
        return np.repeat(per_program, self.counts)

    def pooled(self, kinds: Sequence[Pooling]) -> FloatArray:
        """Make vectors of one length: the columns' sums, means or maxima side by side; 0 without rows."""
        filled = np.flatnonzero(self.counts > 0)
        starts, counts = self.offsets[:-1][filled], self.counts[filled, None]
        result = np.zeros((len(self), len(kinds), self.values.shape[1]))
        for which, kind in enumerate(kinds):
            if not len(filled):
                break
            if kind == "max":
                result[filled, which] = np.maximum.reduceat(self.values, starts)
                continue
            sums = np.add.reduceat(self.values, starts, dtype=np.float64)
            result[filled, which] = sums / counts if kind == "mean" else sums
        return result.reshape(len(self), len(kinds) * self.values.shape[1])


def offsets_of(counts: Indices) -> Indices:
    """Where each program's rows start, and the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


class FeatureSource(Protocol):
    """Where a model's rows come from; the default is the feature table (`StatementFeatures`)."""

    @property
    def version(self) -> str:
        """Identifies the meaning of the columns: a saved model serves rows of its own version only."""
        ...

    @property
    def width(self) -> int:
        """Columns of a row."""
        ...

    @property
    def widths(self) -> tuple[int, ...]:
        """All that a row may have, where that depends on the task; a model learns from rows of one width."""
        return (self.width,)

    @property
    def tells_plans_apart(self) -> bool:
        """Whether programs that are compiled to the same loops have the same rows."""
        return False

    def extract(self, task: Task, candidates: Candidates) -> PackedRows:
        """
        Make the rows of some programs of a task, in order: finite numbers, or NaN where there is none.

        Raises
        ------
        ScheduleError
            If a program is illegal.
        """
        ...


def extract_rows(source: FeatureSource, task: Task, candidates: Candidates) -> PackedRows:
    """
    Make the rows of candidates, in order; a program that turns out illegal gets none.

    Raises
    ------
    DefinitionError
        If the source makes a number that float32 does not hold.
    """
    try:
        rows = with_depth(lambda: source.extract(task, candidates))
    except ScheduleError:
        parts = _divided(batches_of(candidates))
    else:
        _check_finite(source, rows.values)
        return rows
    if not parts:
        return PackedRows.empty(source.width, 1)
    return PackedRows.concatenate([extract_rows(source, task, part) for part in parts])


def _check_finite(source: FeatureSource, values: NDArray[Any]) -> None:
    """Refuse numbers that learning libraries do; NaN they take."""
    beyond = np.abs(values) > np.finfo(np.float32).max
    if beyond.any():
        row, column = np.argwhere(beyond)[0]
        raise DefinitionError(
            f"{type(source).__name__}.extract: a feature of column {column} is {values[row, column]:g}, and "
            "models learn from finite numbers of float32; take its logarithm, or NaN where there is none"
        )


def _divided(batches: Sequence[Population | list[State]]) -> list[Candidates]:
    """Divide batches of programs into smaller ones; a single program into none."""
    if len(batches) > 1:
        return list(batches)
    only = batches[0]
    if len(only) == 1:
        return []
    half = len(only) // 2
    if isinstance(only, Population):
        return [only.take(range(half)), only.take(range(half, len(only)))]
    return [only[:half], only[half:]]
