"""Which record of a log a command is about: the best of a workload, under a layout option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansor.schedule.state import State
from measure import FoundRecord, recover_measure_input
from search.cli_workload import task_of
from search.search_task import SearchTask


@dataclass(frozen=True, slots=True)
class Chosen:
    """
    A record that a command is about.

    Attributes
    ----------
    task
        Its task, with the layout option that is asked for.
    found
        The record.
    measured
        The layout option under which it was measured.
    """

    task: SearchTask
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
            As in `task_of`.
        layouts
            The option; None for that of the record.
        """
        task = task_of(words, target, layouts or 0)
        found = task.best_record(log)
        measured = int(found.input.task.layout_rewrite_option or 0)
        if layouts is None and measured:
            task = task_of(words, target, measured)
        return cls(task, found, measured)

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
        dag = self.task.compute_dag
        state = recover_measure_input(self.found.input, rebuild_state=True, dag=dag).state
        assert isinstance(state, State)
        return state

    @property
    def layouts(self) -> str:
        """A line about layout options; empty where there is none."""
        if not self.measured and not self.option:
            return ""
        return f"layout_rewrite_option {self.option}, measured under {self.measured}"
