"""A task's layout option, applied to its programs.

The option is not a step of a program: records hold the steps that were searched and, beside them, the option
(reference section 5.4), and whoever builds the program applies the one to the other. So the same steps can be
built with either option, and TVM reads the records.
"""

from __future__ import annotations

from ansor.schedule import layout_rewrite
from ansor.schedule.layout_rewrite import LayoutRewrite
from ansor.schedule.state import State
from ansor.task.task import LayoutRewriteOption


def rewrite_layouts(state: State, option: LayoutRewriteOption | int) -> LayoutRewrite:
    """
    Apply a layout option to a complete program.

    Parameters
    ----------
    state
        The program as it was searched.
    option
        See `LayoutRewriteOption`; NO_REWRITE gives the program back.

    Raises
    ------
    ScheduleError
        If the state is no complete program and the option rewrites.
    """
    chosen = LayoutRewriteOption(option)
    if chosen is LayoutRewriteOption.NO_REWRITE:
        return LayoutRewrite(state, {}, {})
    transform = chosen is LayoutRewriteOption.INSERT_TRANSFORM_STAGE
    return layout_rewrite.rewrite_layouts(state, transform=transform)
