"""`explain`: a program's feature table as text, one column per stored statement.

Magnitudes are shown in their own units, not on the scale that models see. Groups and lines that are zero in
every statement are left out; at the end stands what the analytic model makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ansor.depth import with_depth
from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel.analytic import AnalyticModel
from costmodel.extraction.extract import extract_forms
from costmodel.extraction.form import Form
from costmodel.extraction.statements import statements_of
from costmodel.features.spec import Feature
from costmodel.features.table import FEATURES, GPU_FEATURES, INDEX

_WIDTH = 12


def explain(task: Task, state: State, descriptions: bool = False) -> str:
    """
    Print the feature table of a program.

    Parameters
    ----------
    task
        What it computes, and for which machine.
    state
        The program.
    descriptions
        Whether to say what each line counts.

    Raises
    ------
    ScheduleError
        If the state has holes or is illegal.
    DefinitionError
        If a size is symbolic.
    """
    table = FeatureTable.of(task, state)
    head = max(len(feature.name) for feature in FEATURES) + 2
    lines = [" " * head + _row(table.statements) + "  unit"]
    group = ""
    for feature, values in table.features():
        if feature.group != group:
            group = feature.group
            lines.append(f"-- {group}")
        text = f"  {feature.name}".ljust(head) + _row([_number(value) for value in values])
        text += f"  {feature.unit}" + (f": {feature.text}" if descriptions else "")
        lines.append(text.rstrip())
    lines.append("-- estimated time by the analytic model")
    for name, seconds in table.estimate.items():
        title = "in all" if name == "seconds" else name
        lines.append(f"  {title}".ljust(head) + _row([_number(1e3 * value) for value in seconds]) + "  ms")
    lines.append(f"the program: {1e3 * table.seconds:.4g} ms")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class FeatureTable:
    """
    What models are told of a program.

    Attributes
    ----------
    statements
        Names of the tensors that are stored, one per statement.
    values
        Features in their own units, shape ``(n_statements, features)``.
    estimate
        What the analytic model makes of them [s], parts by name, "seconds" in all; each ``(n_statements,)``.
    """

    statements: tuple[str, ...]
    values: np.ndarray[Any, np.dtype[np.float64]]
    estimate: Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]

    @classmethod
    def of(cls, task: Task, state: State) -> FeatureTable:
        """Extract the table of a program; errors as of `explain`."""
        return with_depth(lambda: cls._of(task, Form.of_state(state)))

    @classmethod
    def _of(cls, task: Task, form: Form) -> FeatureTable:
        values: np.ndarray[Any, np.dtype[Any]] = extract_forms(task, [form], scaled=False).values
        names = [form.state.stages[s.stage].op.outputs[s.output].name for s in statements_of(form)]
        present = enumerate(GPU_FEATURES[: values.shape[1]])
        columns = {feature.name: values[:, position] for position, feature in present}
        return cls(tuple(names), values, AnalyticModel().parts(task, columns))

    @property
    def seconds(self) -> float:
        """Estimated time of the program [s]."""
        return float(self.estimate["seconds"].sum())

    def features(self) -> Iterator[tuple[Feature, list[float]]]:
        """Yield the features that are not zero in every statement, with their values."""
        is_gpu = self.values[:, INDEX["is_gpu"]].any()
        for column, feature in enumerate(GPU_FEATURES[: self.values.shape[1]]):
            values = self.values[:, column]
            if values.any() and (feature.group != "gpu" or is_gpu):
                yield feature, values.tolist()

    def to_json(self) -> dict[str, Any]:
        """Turn it into plain data."""
        return {
            "statements": list(self.statements),
            "features": [
                {"name": f.name, "group": f.group, "unit": f.unit, "text": f.text, "values": values}
                for f, values in self.features()
            ],
            "estimated_seconds": {name: part.tolist() for name, part in self.estimate.items()},
        }


def _row(cells: Sequence[str]) -> str:
    return "".join(cell[: _WIDTH - 1].rjust(_WIDTH) for cell in cells)


def _number(value: float) -> str:
    """A value in at most eleven characters."""
    if float(value).is_integer() and abs(value) < 1e10:
        return str(int(value))
    return f"{value:.4g}"
