"""What a measurement really builds: the program of an input with the task's layout option applied.

A record holds the steps as they were searched and the option beside them. Builder and runner both ask here,
and get the same program, since the layouts are a function of the two.
"""

from __future__ import annotations

from ansor.schedule.dag import ComputeDAG
from ansor.schedule.layout_rewrite import input_layouts, layout_free_inputs
from ansor.schedule.state import State
from ansor.schedule.steps import RewriteLayoutStep
from ansor.task.layout import rewrite_layouts
from ansor.task.task import LayoutRewriteOption
from measure.records.record import (
    LoggedState,
    LoggedTask,
    MeasureInput,
    computation_of,
    known_dag,
    recover_measure_input,
)

Digits = tuple[tuple[int, int, int], ...]


def layout_option(inp: MeasureInput, dag: ComputeDAG | None = None) -> int:
    """
    Return the layout option that a record's cost depends on.

    It is the recorded one, except that computations without an input that is free of layout have the same
    programs under every option: NO_REWRITE stands for all.

    Parameters
    ----------
    inp
        The record.
    dag
        Its computation; default: what is registered under its key. Of one that is not known the recorded
        option counts.
    """
    recorded = int(inp.task.layout_rewrite_option or LayoutRewriteOption.NO_REWRITE)
    if recorded == LayoutRewriteOption.NO_REWRITE:
        return recorded
    dag = dag or inp.task.dag if not isinstance(inp.task, LoggedTask) else dag
    known = dag or known_dag(inp.task.workload_key, computation_of(inp.task))
    free = known is None or layout_free_inputs(known)
    return recorded if free else int(LayoutRewriteOption.NO_REWRITE)


def built_state(inp: MeasureInput) -> State:
    """
    Return the program that is built for a measure input; one from a log is replayed first.

    Raises
    ------
    DefinitionError
        If the workload of a logged task is not registered.
    ScheduleError
        If the steps do not apply, or no bounds can be inferred.
    """
    if isinstance(inp.task, LoggedTask) or isinstance(inp.state, LoggedState):
        inp = recover_measure_input(inp, rebuild_state=True)
    assert not isinstance(inp.task, LoggedTask)
    assert not isinstance(inp.state, LoggedState)
    return rewrite_layouts(inp.state, inp.task.layout_rewrite_option).state


def argument_digits(inp: MeasureInput) -> dict[int, Digits]:
    """Return the layouts (`Layout.to_json`) in which the built program takes arguments, by their position."""
    option = inp.task.layout_rewrite_option or LayoutRewriteOption.NO_REWRITE
    if option != LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED and not _rewrites_by_hand(inp):
        return {}
    return {position: layout.to_json() for position, layout in input_layouts(built_state(inp)).items()}


def _rewrites_by_hand(inp: MeasureInput) -> bool:
    """Whether the program itself has a step that rewrites a layout.

    What a builder with an `emit` of its own is given need be no state; it has no such steps.
    """
    if isinstance(inp.state, LoggedState):
        return any(item[0] == RewriteLayoutStep.code for item in inp.state.steps_json)
    return isinstance(inp.state, State) and any(isinstance(s, RewriteLayoutStep) for s in inp.state.steps)
