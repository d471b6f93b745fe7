"""Which record of a log a command is about: the best of a workload, under a layout option.

A log says which algorithms the task of a workload was tuned by; the best of all of them is the one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ansor.errors import AnsorError
from ansor.schedule.state import State
from ansor.task.alternatives import Call, make_alternatives, takes_arguments_of
from ansor.task.registry import decode_workload_key, recorded_dag
from ansor.task.task import LayoutRewriteOption, Task
from measure import FoundRecord, load_measurements
from measure.records.log import check_rereadable
from measure.records.record import direct_key
from measure.records.unsaid import plain_key, with_unsaid
from search.cli.workload import Asked
from search.search_task import SearchTask
from search.templates.task import TemplateTask
from search.titles import title_of_key, title_with_algorithm

_note = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chosen:
    """
    A record that a command is about.

    Attributes
    ----------
    task
        Its task, with the layout option that is asked for, and the alternatives that the log has records of.
    algorithm
        Which of `task.algorithms` it is of.
    found
        The record.
    measured
        The layout option under which it was measured.
    """

    task: SearchTask
    algorithm: Task
    found: FoundRecord
    measured: int

    @classmethod
    def of(cls, log: str, words: Sequence[str], target: str, layouts: int | None) -> Chosen:
        """
        Find the best record of a task under a layout option; by default under none, or else the best at all.

        Parameters
        ----------
        log
            The log.
        words, target
            As in `Asked`.
        layouts
            The option; None for that of the record.

        Raises
        ------
        DefinitionError
            If the log has no such record, or is a pipe.
        """
        check_rereadable(log)
        asked = Asked.of(words, target)
        widest = asked.task(LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED)
        calls = logged_alternatives(widest, log)
        widest = asked.task(LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED, calls)
        found = widest.best_record(log, layout_rewrite_option=layouts or 0)
        option = int(found.input.task.layout_rewrite_option or 0) if layouts is None else layouts
        allowed = [
            call
            for call, one in zip(calls, widest.alternatives, strict=True)
            if takes_arguments_of(one, LayoutRewriteOption(option))
        ]
        task = asked.task(option, allowed)
        algorithm, found = task.best_algorithm(log)
        return cls(task, algorithm, found, int(found.input.task.layout_rewrite_option or 0))

    @property
    def title(self) -> str:
        """The task as a call, and its algorithm where this is an alternative."""
        return title_with_algorithm(self.task.workload_key, self.algorithm.workload_key)

    @property
    def option(self) -> int:
        """The layout option that is asked for."""
        return int(self.task.layout_rewrite_option)

    @property
    def seconds(self) -> float:
        """Measured run time [s]."""
        return self.found.result.mean_cost

    @property
    def state(self) -> State:
        """The program as it was searched, before layouts are rewritten."""
        return self.found.input.replay(self.algorithm.compute_dag)

    @property
    def layouts(self) -> str:
        """A line about layout options; empty where there is none."""
        if not self.measured and not self.option:
            return ""
        return f"layout_rewrite_option {self.option}, measured under {self.measured}"


def logged_alternatives(task: Task, log: str) -> list[Call]:
    """
    List the alternatives by which a task was tuned into a log, as `SearchTask` takes them.

    Of those that are not known here, or are something else, a warning tells. A template has none.
    """
    if isinstance(task, TemplateTask):
        return []
    wanted = plain_key(task.workload_key)
    keys = dict.fromkeys(
        inp.task.workload_key
        for inp, _ in with_unsaid(load_measurements(log))
        if plain_key(direct_key(inp.task) or "") == wanted
    )
    calls: list[Call] = []
    for key in keys:
        call = decode_workload_key(key)
        try:
            recorded_dag(key)
            if call is not None and make_alternatives(task, [*calls, call]):
                calls.append(call)
        except AnsorError as error:
            _note.warning(
                "records of %s, an algorithm of %s, are left out: %s",
                title_of_key(key),
                title_of_key(task.workload_key),
                error,
            )
    return calls
