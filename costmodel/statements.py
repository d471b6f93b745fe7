"""`StatementFeatures`: the feature table as a source of rows."""

from __future__ import annotations

from ansor.task.task import Task
from costmodel.candidates import Candidates
from costmodel.rows import FeatureSource, PackedRows


class StatementFeatures(FeatureSource):
    """One row per stored statement, with the columns of the feature table (`costmodel.features`)."""

    @property
    def version(self) -> str:
        from costmodel.features import VERSION

        return VERSION

    @property
    def width(self) -> int:
        from costmodel.features import N_FEATURES

        return N_FEATURES

    def extract(self, task: Task, candidates: Candidates) -> PackedRows:
        from costmodel.extract import extract

        made = extract(task, candidates)
        return PackedRows(made.values, made.offsets)
