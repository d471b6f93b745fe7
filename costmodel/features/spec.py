"""What a line of the feature table says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """
    One column of the feature table.

    Parameters
    ----------
    name
        TVM's name where it has the column.
    unit
        What is counted; "flag" for 0 or 1, "ratio" for a quotient that is not scaled.
    group
        Heading under which `explain` prints it.
    text
        The formula, or a sentence.
    """

    name: str
    unit: str
    group: str
    text: str

    @property
    def scaled(self) -> bool:
        """Whether the column goes through ``sign(x) * log2(|x| + 1)``."""
        return self.unit not in ("flag", "ratio")
