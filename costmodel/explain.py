"""`explain`: a program's feature table as text, one column per stored statement.

Magnitudes are shown in their own units, not on the scale that models see. Groups and lines that are zero in
every statement are left out; at the end stands what the analytic model makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel.analytic import AnalyticModel
from costmodel.extract import extract_forms
from costmodel.extract_form import Form
from costmodel.extract_statements import statements_of
from costmodel.features import FEATURES, INDEX

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
    form = Form.of_state(state)
    statements = statements_of(form)
    raw = extract_forms(task, [form], scaled=False).values.astype(np.float64)
    names = [form.state.stages[one.stage].op.outputs[one.output].name for one in statements]
    head = max(len(feature.name) for feature in FEATURES) + 2
    lines = [" " * head + _row(names) + "  unit"]
    group = ""
    for column, feature in enumerate(FEATURES):
        values = raw[:, column]
        if not values.any() or (feature.group == "gpu" and not raw[:, INDEX["is_gpu"]].any()):
            continue
        if feature.group != group:
            group = feature.group
            lines.append(f"-- {group}")
        text = f"  {feature.name}".ljust(head) + _row([_number(value) for value in values])
        text += f"  {feature.unit}" + (f": {feature.text}" if descriptions else "")
        lines.append(text.rstrip())
    lines.append("-- estimated time by the analytic model")
    columns = {feature.name: raw[:, position] for position, feature in enumerate(FEATURES)}
    parts = AnalyticModel().parts(task, columns)
    for name, seconds in parts.items():
        title = "in all" if name == "seconds" else name
        lines.append(f"  {title}".ljust(head) + _row([_number(1e3 * value) for value in seconds]) + "  ms")
    lines.append(f"the program: {1e3 * parts['seconds'].sum():.4g} ms")
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "".join(cell[: _WIDTH - 1].rjust(_WIDTH) for cell in cells)


def _number(value: float) -> str:
    """A value in at most eleven characters."""
    if value == int(value) and abs(value) < 1e10:
        return str(int(value))
    return f"{value:.4g}"
