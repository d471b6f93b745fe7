"""`TuningOptions`: how much to measure, with what, and what to tell."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from ansor.checks import check_fields, check_integer
from ansor.errors import DefinitionError
from ansor.plugins import check_plugin
from measure import (
    LocalBuilder,
    LocalRunner,
    MeasureCallback,
    ProgramBuilder,
    ProgramMeasurer,
    ProgramRunner,
    RecordToFile,
)
from measure.closing import Closing

MOST_VERBOSE: Final = 5
"""The level that tells all there is."""
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
        0 silent, 1 progress, 2 to 5 more: outcomes and best programs, sketches, loop nests,
        LLVM IR (see `search.details`). The environment variable `ANSOR_DEBUG` raises it.
    builder, runner
        Objects that build and run candidates; "local" makes a `LocalBuilder` or `LocalRunner` with defaults.
    measure_callbacks
        Called with every result. A `RecordToFile` among them also makes the run resume from its
        file.
    seed
        Seed of the default search policy.
    num_finalists
        At the end so many of the best programs at a time are measured again, in turn, and the best is chosen
        by that (`search.finals`); 0: none; "auto": 8 where at least 32 trials are known, among which luck
        tells. These measurements are logged and do not count as trials. A runner whose figures are always the
        same (`ProgramRunner.noisy`) is not asked again.
    max_failures_in_a_row
        Stop, and say what failed, after so many failed trials of this run with no success between them; what
        spoiled those of a log may be over.

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
    num_finalists: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        check_fields(self, "num_measure_trials", "seed", low=0, check=check_integer)
        check_fields(self, "num_measures_per_round", "max_failures_in_a_row", low=1, check=check_integer)
        if self.num_finalists != "auto":
            check_fields(self, "num_finalists", low=0, check=partial(check_integer, besides=("auto",)))
        if self.early_stopping is not None and self.early_stopping != "auto":
            check = partial(check_integer, besides=("auto", None))
            check_fields(self, "early_stopping", low=1, check=check)
        if not isinstance(self.verbose, bool):
            check_fields(self, "verbose", low=0, check=check_integer)
            if self.verbose > MOST_VERBOSE:
                raise DefinitionError(
                    f"TuningOptions(verbose={self.verbose}): the levels are 0 to {MOST_VERBOSE}"
                )
        _check_callbacks(self.measure_callbacks)
        _check_part("builder", self.builder, ("build_each", "n_parallel"))
        _check_part("runner", self.runner, ("run_each", "check_task"))

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
    """Provide what measures; a builder or runner that "local" made for it is closed at the end.

    Logs that it will write to are tried first and held as long as it lasts: another run that uses one at the
    same time is warned of.

    Raises
    ------
    DefinitionError
        If there is something to measure and the builder or the runner was closed.
    LogWriteError
        If a log cannot be written.
    """
    with ExitStack() as stack:
        if options.num_measure_trials > 0:
            for part in (options.builder, options.runner):
                if isinstance(part, Closing):
                    part.check_open()
            for callback in options.measure_callbacks or ():
                if isinstance(callback, RecordToFile):
                    callback.check_writable()
                    stack.enter_context(callback.hold())
        builder, runner = options.builder, options.runner
        chosen_builder = stack.enter_context(LocalBuilder()) if isinstance(builder, str) else builder
        chosen_runner = stack.enter_context(LocalRunner()) if isinstance(runner, str) else runner
        callbacks = options.measure_callbacks or ()
        yield ProgramMeasurer(chosen_builder, chosen_runner, callbacks, max_continuous_error=None)


def _check_part(name: str, value: object, needs: Sequence[str]) -> None:
    """Refuse what can neither build nor run."""
    if value == "local":
        return
    title = name.capitalize()
    example = f"'local', an object such as ansor.Local{title}(...), or of a subclass of ansor.Program{title}"
    check_plugin(f"TuningOptions({name})", value, needs, name, example)


def _check_callbacks(callbacks: object) -> None:
    if callbacks is None:
        return
    if hasattr(callbacks, "callback"):
        raise DefinitionError(
            f"TuningOptions(measure_callbacks={type(callbacks).__name__}(...)): "
            "it must be a list of callbacks; put brackets around it"
        )
    if not isinstance(callbacks, (list, tuple)):
        raise DefinitionError(
            f"TuningOptions(measure_callbacks={callbacks!r}): it must be a list of callbacks"
        )
    for callback in callbacks:
        if isinstance(callback, type) or not callable(getattr(callback, "callback", None)):
            raise DefinitionError(
                f"TuningOptions(measure_callbacks=[...]): {callback!r} is no callback; one is an object with "
                "a method callback(policy, inputs, results), such as ansor.RecordToFile('log.json')"
            )
    logs: dict[str, str] = {}
    for name in (callback.filename for callback in callbacks if isinstance(callback, RecordToFile)):
        place = os.path.realpath(name)
        if os.path.exists(place) and not os.path.isfile(place):
            continue  # /dev/null, say
        if place in logs:
            raise DefinitionError(
                f"TuningOptions(measure_callbacks=[...]): {logs[place]!r} and {name!r} are one log, which "
                "would hold every record twice; give one RecordToFile for it"
            )
        logs[place] = name
