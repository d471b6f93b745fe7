"""Measuring without measuring: results that come from a log or from a function.

For trying search policies: a run that takes hours on a machine takes seconds against the log of one, and a
function of the program makes any landscape. Nothing is built and nothing runs.

A log answers for the tasks that it holds records of: of the same computation, target and layout option. Other
tasks are refused before anything is tried.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from ansor.checks import check_number
from ansor.errors import AnsorError, RunError
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.task.task import Task, TaskKey
from measure.builder import ProgramBuilder
from measure.layouts import layout_option
from measure.records.best import is_of
from measure.records.log import load_measurements
from measure.records.record import (
    AnyTask,
    BuildResult,
    LoggedState,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Seconds,
    recover_measure_input,
)
from measure.records.targets import other_conditions, runs_on, target_text
from measure.runner import ProgramRunner

Answer = Callable[[MeasureInput], "MeasureResult | float"]
"""What a program's result is: all of it, or just its run time [s]."""


class NullBuilder(ProgramBuilder):
    """Builds nothing, successfully; goes with runners that run nothing."""

    def __init__(self, n_parallel: int = 1) -> None:
        self.n_parallel = n_parallel

    def build_each(self, inputs: Sequence[MeasureInput]) -> Iterator[BuildResult]:
        for _ in inputs:
            yield BuildResult(b"simulated")


class SimulatedRunner(ProgramRunner):
    """
    Answers from a log, or from a function.

    Parameters
    ----------
    answers
        A log's file name, or its records (pairs of input and result); or a function of a `MeasureInput` that
        returns a `MeasureResult` or a run time [s].
    unknown
        Asked about programs that the log does not hold. Default: such a program fails with
        `UNKNOWN_ERROR`, and a task of which the log holds nothing is refused.

    Raises
    ------
    FileNotFoundError
        If there is no such log.
    """

    def __init__(
        self,
        answers: str | os.PathLike[str] | Iterable[tuple[MeasureInput, MeasureResult]] | Answer,
        unknown: Answer | None = None,
    ) -> None:
        self.asked = 0
        self.from_log = 0
        """Programs whose result a log held."""
        self._unknown = unknown
        self._records: tuple[tuple[MeasureInput, MeasureResult], ...] = ()
        self._of_task: dict[TaskKey, Mapping[str, MeasureResult]] = {}
        self._name = "its records"
        if callable(answers):
            self._unknown = answers
        elif isinstance(answers, (str, os.PathLike)):
            self._name = repr(os.fspath(answers))
            self._records = tuple(load_measurements(answers))
        else:
            self._records = tuple((inp, result) for inp, result in answers if result.is_measurement)

    def check_task(self, task: Task) -> None:
        """
        See that there is an answer for some program of a task.

        Raises
        ------
        RunError
            If not.
        """
        if self._unknown is None and not self._answers_for(task):
            holds = sorted({_title(inp.task) for inp, _ in self._records})
            rest = f" and {len(holds) - 5} more" if len(holds) > 5 else ""
            raise RunError(
                f"SimulatedRunner: {self._name} cannot answer for {_title(task)}; "
                + (f"it holds {'; '.join(holds[:5])}{rest}" if holds else "it is empty")
                + "; simulate with a log of this task, or with unknown= a function of a MeasureInput"
            )

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        """Yield the known results, in order."""
        for inp in inputs:
            self.asked += 1
            known = self._answer(inp) if self._records else None
            if known is not None:
                self.from_log += 1
                yield known
                continue
            if self._unknown is None:
                yield MeasureResult.failed(
                    MeasureErrorNo.UNKNOWN_ERROR,
                    "the log that is replayed does not hold this program",
                    0.0,
                    0,
                )
                continue
            answer = self._unknown(inp)
            yield answer if isinstance(answer, MeasureResult) else result_of(answer)

    def _answer(self, inp: MeasureInput) -> MeasureResult | None:
        """Look a program up in the log."""
        full = recover_measure_input(inp, rebuild_state=True)
        assert isinstance(full.task, Task)
        assert isinstance(full.state, State)
        return self._answers_for(full.task).get(program_key(full.state))

    def _answers_for(self, task: Task) -> Mapping[str, MeasureResult]:
        """Results of a task by program; of one that was measured again the first, which its search saw.

        Where a target names no number of cores, those that were measured with as many go before others.
        """

        def elsewhere(record: tuple[MeasureInput, MeasureResult]) -> bool:
            return bool(other_conditions(record[0].task, task.target, runs_on(task)))

        if task.key not in self._of_task:
            dag, found = task.compute_dag, dict[str, MeasureResult]()
            layouts = layout_option(MeasureInput(task, State.initial(dag)), dag)
            for inp, result in sorted(self._records, key=elsewhere):
                if not _is_record_of(task, inp) or layout_option(inp, dag) != layouts:
                    continue
                with suppress(AnsorError):  # A program that is none of this computation.
                    state = inp.state.replay(dag) if isinstance(inp.state, LoggedState) else inp.state
                    found.setdefault(program_key(state), result)
            self._of_task[task.key] = found
        return self._of_task[task.key]


def result_of(seconds: float) -> MeasureResult:
    """
    Make the result of a successful measurement of one run time [s], with no wall time and no date.

    Raises
    ------
    DefinitionError
        If it is no finite number above 0.
    """
    seconds = check_number("a simulated run time [s]", seconds, above=0)
    return MeasureResult((Seconds(seconds),), MeasureErrorNo.NO_ERROR, "", 0.0, 0)


def _is_record_of(task: Task, inp: MeasureInput) -> bool:
    """Whether a record is of a task's computation, and was measured for a target whose times count for it."""
    return not other_conditions(inp.task, task.target) and is_of(inp, task)


def _title(task: AnyTask) -> str:
    """Name a task by all that a log is asked for."""
    option = int(task.layout_rewrite_option or 0)
    layouts = f" with layout_rewrite_option {option}" if option else ""
    return f"{task.workload_key} on {target_text(task)}{layouts}"
