"""`StatementFeatures`: the feature table as a source of rows.

The limit of the unroll pragma (`auto_unroll_max_step`) is 0 in these rows. What it does to the loops is told
by other columns; where it does nothing, programs that differ in it are compiled to the same code, and a model
should neither learn a difference nor see one.

Programs for GPUs have rows of their own width, as there is more to tell of them.
"""

from __future__ import annotations

from ansor.task.task import Task
from costmodel.candidates import Candidates
from costmodel.rows import FeatureSource, PackedRows


class StatementFeatures(FeatureSource):
    """One row per stored statement, with the columns of the feature table (`costmodel.features.table`)."""

    @property
    def version(self) -> str:
        from costmodel.features.table import VERSION

        return VERSION

    @property
    def width(self) -> int:
        from costmodel.features.table import N_FEATURES

        return N_FEATURES

    @property
    def widths(self) -> tuple[int, ...]:
        from costmodel.features.table import N_FEATURES, N_GPU_FEATURES

        return N_FEATURES, N_GPU_FEATURES

    @property
    def tells_plans_apart(self) -> bool:
        return True

    def extract(self, task: Task, candidates: Candidates) -> PackedRows:
        from costmodel.extraction.extract import extract
        from costmodel.features.table import INDEX

        made = extract(task, candidates)
        made.values[:, INDEX["auto_unroll_max_step"]] = 0.0
        return made
