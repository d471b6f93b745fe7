"""`TemplateTask`: a template at one size and target, to be tuned like any task."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ansor.errors import DefinitionError, LogFormatError, ScheduleError
from ansor.schedule.state import State
from ansor.task.hardware import HardwareParams
from ansor.task.registry import decode_workload_key
from ansor.task.target import Target
from ansor.task.task import LayoutRewriteOption
from measure import MeasureInput
from search.options import TuningOptions
from search.policy import SearchPolicy
from search.result import TuningResult
from search.search_task import SearchTask
from sketches.templates.choices import AnyEntity
from sketches.templates.config import ConfigEntity, ConfigSpace
from sketches.templates.function import TEMPLATES, Template


class TemplateTask(SearchTask):
    """
    A task whose programs are those of a template.

    Parameters
    ----------
    template
        The template, or its name.
    args
        Its arguments after the configuration.
    target, hardware_params, layout_rewrite_option, desc
        As in `SearchTask`.

    Raises
    ------
    DefinitionError
        If there is no such template, or it is written wrongly.
    """

    def __init__(
        self,
        template: Template | str,
        args: Sequence[Any] = (),
        target: Target | str | None = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: LayoutRewriteOption | int | None = None,
        desc: str = "",
    ) -> None:
        chosen = find_template(template)
        given = tuple(args) if isinstance(args, (list, tuple)) else (args,)
        super().__init__(
            func=chosen.name,
            args=given,
            target=target,
            hardware_params=hardware_params,
            layout_rewrite_option=layout_rewrite_option,
            desc=desc,
        )
        object.__setattr__(self, "template", chosen)  # Tasks are frozen.
        object.__setattr__(self, "args", given)

    template: Template
    args: tuple[Any, ...]

    @property
    def config_space(self) -> ConfigSpace:
        """All configurations; print it."""
        return self.template.space(*self.args)

    def state_of(self, config: Mapping[str, AnyEntity] | int) -> State:
        """
        Make the program of a configuration, given as such or by its index.

        Raises
        ------
        ScheduleError
            If the configuration makes an illegal schedule.
        """
        chosen = config if isinstance(config, Mapping) else self.config_space[operator.index(config)]
        return self.template.state(self.args, chosen, self.compute_dag)

    def config_of(self, state: State) -> ConfigEntity | None:
        """Find the configuration of a program, None if the template does not make it."""
        return self.template.find(self.args, state.steps)

    def tune(
        self,
        tuning_options: TuningOptions,
        search_policy: SearchPolicy | None = None,
        adaptive_training: bool = False,
    ) -> TuningResult:
        """Search as `SearchTask.tune` does; the default policy is an `XGBTuner`."""
        from search.templates.xgb import XGBTuner

        if search_policy is None and isinstance(tuning_options, TuningOptions):  # Others are refused below.
            search_policy = XGBTuner(self, seed=tuning_options.seed)
        return super().tune(tuning_options, search_policy, adaptive_training)

    def __repr__(self) -> str:
        return f"TemplateTask({self.workload_key}, {str(self.target)!r})"


def find_template(template: Template | str) -> Template:
    """
    Look a template up by its name.

    Raises
    ------
    DefinitionError
        If there is none.
    """
    if isinstance(template, Template):
        return template
    if not isinstance(template, str) or template not in TEMPLATES:
        known = ", ".join(sorted(TEMPLATES)) or "none"
        raise DefinitionError(
            f"{template!r} is no template; decorate its function with @ansor.template (known: {known})"
        )
    return TEMPLATES[template]


def recorded_config(template: Template, inp: MeasureInput) -> ConfigEntity | None:
    """Find the configuration of a record of a template, at whatever size; None if it is of something else."""
    decoded = decode_workload_key(inp.task.workload_key)
    if decoded is None or decoded[0] != template.name:
        return None
    state = inp.state
    try:
        steps = state.steps
        return template.find(decoded[1], steps)
    except (DefinitionError, LogFormatError, ScheduleError):
        return None
