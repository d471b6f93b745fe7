"""`TuningOptions`: how much to measure, with what, and what to tell."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from ansor.errors import DefinitionError
from measure import (
    LocalBuilder,
    LocalRunner,
    MeasureCallback,
    ProgramBuilder,
    ProgramMeasurer,
    ProgramRunner,
)

LEAST_PATIENCE: Final = 100
"""Trials without improvement before an automatic early stop, whatever the budget."""
PATIENCE_SHARE: Final = 3
"""The automatic early stop comes when one part in so many of all trials brought no improvement."""


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """
    Options of one tuning run.

    Parameters
    ----------
    num_measure_trials
        New measurements to make; what a log already holds does not count. 0 measures nothing and answers with
        the best of the log, or the model's first choice.
    early_stopping
        Stop when so many trials in a row brought no improvement, those of the log included; "auto": a third
        of all trials of the task, at least 100; None: never.
    num_measures_per_round
        Programs proposed per round; the cost model learns between rounds.
    verbose
        0 silent, 1 progress.
    builder, runner
        Objects that build and run candidates; "local" makes a `LocalBuilder` or `LocalRunner` with defaults.
    measure_callbacks
        Called with every result. A `RecordToFile` among them also makes the run resume from its
        file.
    seed
        Seed of the default search policy.
    max_failures_in_a_row
        Stop, and say what failed, after so many failed trials with no success between them.

    Raises
    ------
    DefinitionError
        If a number is out of range or a text is not "local".
    """

    num_measure_trials: int = 0
    early_stopping: int | Literal["auto"] | None = "auto"
    num_measures_per_round: int = 64
    verbose: int = 1
    builder: ProgramBuilder | Literal["local"] = "local"
    runner: ProgramRunner | Literal["local"] = "local"
    measure_callbacks: Sequence[MeasureCallback] | None = None
    seed: int = 0
    max_failures_in_a_row: int = 150

    def __post_init__(self) -> None:
        _at_least("num_measure_trials", self.num_measure_trials, 0)
        _at_least("num_measures_per_round", self.num_measures_per_round, 1)
        _at_least("max_failures_in_a_row", self.max_failures_in_a_row, 1)
        _at_least("seed", self.seed, 0)
        if self.early_stopping is not None and self.early_stopping != "auto":
            _at_least("early_stopping", self.early_stopping, 1)
        if hasattr(self.measure_callbacks, "callback"):
            raise DefinitionError(
                f"TuningOptions(measure_callbacks={type(self.measure_callbacks).__name__}(...)): "
                "it must be a list of callbacks; put brackets around it"
            )
        for name, value in (("builder", self.builder), ("runner", self.runner)):
            if isinstance(value, str) and value != "local":
                raise DefinitionError(
                    f"TuningOptions({name}={value!r}): the only text it takes is 'local'; "
                    f"for anything else pass an object such as ansor.Local{name.capitalize()}(...)"
                )

    def patience(self, known: int) -> int | None:
        """Resolve `early_stopping` for a run that begins with so many known trials; None: never stop."""
        return patience(self.early_stopping, known + self.num_measure_trials)


def patience(early_stopping: int | Literal["auto"] | None, trials: int) -> int | None:
    """
    Say after how many trials without improvement to stop.

    Parameters
    ----------
    early_stopping
        As in `TuningOptions`.
    trials
        All trials that there will be, known ones included: so a run in pieces stops where a whole one would.
    """
    if early_stopping != "auto":
        return early_stopping
    return max(LEAST_PATIENCE, trials // PATIENCE_SHARE)


@contextmanager
def open_measurer(options: TuningOptions) -> Iterator[ProgramMeasurer]:
    """Provide what measures; a builder or runner that "local" made for it is closed at the end."""
    with ExitStack() as stack:
        builder, runner = options.builder, options.runner
        chosen_builder = stack.enter_context(LocalBuilder()) if isinstance(builder, str) else builder
        chosen_runner = stack.enter_context(LocalRunner()) if isinstance(runner, str) else runner
        callbacks = options.measure_callbacks or ()
        yield ProgramMeasurer(chosen_builder, chosen_runner, callbacks, max_continuous_error=None)


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DefinitionError(f"TuningOptions({name}={value!r}): it must be an integer >= {least}")
