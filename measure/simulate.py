"""Measuring without measuring: results that come from a log or from a function.

For trying search policies: a run that takes hours on a machine takes seconds against the log of one, and a
function of the program makes any landscape. Nothing is built and nothing runs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ansor.schedule.state import State
from measure.builder import ProgramBuilder
from measure.log import load_records
from measure.record import (
    BuildResult,
    LoggedState,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Seconds,
    recover_measure_input,
)
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
        `UNKNOWN_ERROR`.

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
        self._known: Mapping[str, MeasureResult] = {}
        if callable(answers):
            self._unknown = answers
        else:
            records = load_records(answers) if isinstance(answers, (str, os.PathLike)) else answers
            self._known = {_program_text(inp): result for inp, result in records}

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        """Yield the known results, in order."""
        for inp in inputs:
            self.asked += 1
            known = self._known.get(_program_text(inp)) if self._known else None
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


def result_of(seconds: float) -> MeasureResult:
    """Make the result of a successful measurement of one run time [s], with no wall time and no date."""
    return MeasureResult((Seconds(seconds),), MeasureErrorNo.NO_ERROR, "", 0.0, 0)


def _program_text(inp: MeasureInput) -> str:
    """Identify a program: its task and its loops, extents filled in."""
    state = inp.state
    if isinstance(state, LoggedState):
        state = recover_measure_input(inp, rebuild_state=True).state
    assert isinstance(state, State)
    ours = [step.to_json() for step in state.steps if not step.in_reference]
    text = f"{inp.task.workload_key}\n{state.with_bounds()}\n{ours}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
