"""A task's layout option, applied to its programs.

The option is not a step of a program: records hold the steps that were searched and, beside them, the option
(as in the logs of TVM 0.16), and whoever builds the program applies the one to the other. So the same steps
can be built with either option, and TVM reads the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansor.errors import DefinitionError
from ansor.schedule import layout_rewrite
from ansor.schedule.layout_rewrite import LayoutRewrite
from ansor.schedule.state import State, state_of
from ansor.task.task import LayoutRewriteOption

if TYPE_CHECKING:
    from ansor.schedule.manual import Schedule


def resolved_option(option: LayoutRewriteOption | int | None) -> LayoutRewriteOption:
    """
    Tell which option is meant; None is that of rewriting nothing.

    Raises
    ------
    DefinitionError
        If there is none of that number.
    """
    try:
        return LayoutRewriteOption(option or 0)
    except ValueError:
        listed = ", ".join(f"{int(known)} ({known.name})" for known in LayoutRewriteOption)
        raise DefinitionError(f"layout_rewrite_option={option!r} is unknown; options are {listed}") from None


def rewrite_layouts(state: State | Schedule, option: LayoutRewriteOption | int) -> LayoutRewrite:
    """
    Apply a layout option to a complete program.

    Parameters
    ----------
    state
        A state or a schedule, as it was searched or written.
    option
        See `LayoutRewriteOption`; NO_REWRITE gives the program back.

    Raises
    ------
    ScheduleError
        If it is neither, or no complete program and the option rewrites.
    DefinitionError
        If there is no such option.
    """
    program, chosen = state_of(state, "rewrite_layouts"), resolved_option(option)
    if chosen is LayoutRewriteOption.NO_REWRITE:
        return LayoutRewrite(program, {}, {})
    transform = chosen is LayoutRewriteOption.INSERT_TRANSFORM_STAGE
    return layout_rewrite.rewrite_layouts(program, transform=transform)
