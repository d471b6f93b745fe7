"""`ProgramMeasurer`: build, run, keep the best, tell everyone, batch by batch.

Builds of one batch run side by side on all cores; then its programs run one at a time, with no build beside
them. Overlapping the two would hide the build time, but on the few cores of a desktop a compiler next to a
program that is being timed spoils what the search learns from: with one core busy, a parallel region that
takes a tenth of a microsecond was seen to take milliseconds.

A result is final as soon as its program has run. Callbacks see it at that moment, one call per result, so
that an interrupted or killed run has logged everything but the program it was busy with.

Source: `ProgramMeasurer` of TVM 0.16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, Union

from ansor.errors import DefinitionError, RunError
from ansor.plugins import GO_ON, blaming, brief
from ansor.task.task import TaskKey
from measure.answers import answers
from measure.builder import ProgramBuilder
from measure.race import still_racing, unsettled_best
from measure.records.record import (
    MAX_FLOAT,
    AnyState,
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
)
from measure.records.settled import merged
from measure.runner import ProgramRunner

MAX_CONTINUOUS_ERROR = 150
KEPT: Final = 32
"""Programs whose objects are kept, those of all tasks together: the fastest, which may be measured again."""


class MeasureCallback(Protocol):
    """Told of every measurement; `RecordToFile` is one."""

    def callback(
        self, policy: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> object:
        """Take note of results; `policy` is what proposed the programs, or None."""


@dataclass(frozen=True, slots=True)
class BuiltEvent:
    """The program at `position` of `count` in this call of `measure` has been built, or could not be."""

    position: int
    count: int
    build: BuildResult


@dataclass(frozen=True, slots=True)
class MeasuredEvent:
    """The program at `position` of `count` has its result; `best_cost` [s] includes it."""

    position: int
    count: int
    result: MeasureResult
    best_cost: float


MeasureEvent = Union[BuiltEvent, MeasuredEvent]


@dataclass(frozen=True, slots=True)
class Best:
    """The fastest program of a task so far: its cost in seconds, and the trial that found it (from 1)."""

    cost: float
    state: AnyState
    trial: int


@dataclass(frozen=True, slots=True)
class _Built:
    """A program that was measured, its cost in seconds, and what was built."""

    program: MeasureInput
    cost: float
    build: BuildResult


class ProgramMeasurer:
    """Measures programs with one builder and one runner.

    Parameters
    ----------
    builder, runner
        What builds and runs.
    callbacks
        Called in order with each result.
    on_event
        Called with each step of progress; for a display.
    max_continuous_error
        So many failures in a row end the measuring with a `RunError`; None for no limit.

    Attributes
    ----------
    trials
        Programs measured so far.
    best
        The best program of each task, by `Task.key`.
    errors
        How often each kind of failure occurred.
    continuous_errors
        Failures since the last success.
    """

    def __init__(
        self,
        builder: ProgramBuilder,
        runner: ProgramRunner,
        callbacks: Sequence[MeasureCallback] = (),
        on_event: Callable[[MeasureEvent], object] | None = None,
        max_continuous_error: int | None = MAX_CONTINUOUS_ERROR,
    ) -> None:
        self.builder = builder
        self.runner = runner
        self.callbacks = tuple(callbacks)
        self._on_event = on_event
        self._max_continuous_error = max_continuous_error
        self.trials = 0
        self.best: dict[TaskKey, Best] = {}
        self.errors: dict[MeasureErrorNo, int] = {}
        self.continuous_errors = 0
        self._kept: dict[tuple[int, int], _Built] = {}
        """By the identities of task and state, which are those of no others while these are kept."""

    @property
    def batch_size(self) -> int:
        """Programs that are built before the first of them runs."""
        return 2 * max(1, self.builder.n_parallel)

    def measure(self, inputs: Sequence[MeasureInput], policy: object = None) -> list[MeasureResult]:
        """Measure programs and return their results in order.

        Raises
        ------
        RunError
            If too many programs failed in a row; what was measured has been reported to the callbacks.
        DefinitionError
            If the builder or the runner does not give one result per program.
        """
        return list(self.measure_each(inputs, policy))

    def measure_each(self, inputs: Sequence[MeasureInput], policy: object = None) -> Iterator[MeasureResult]:
        """Yield results in order, each when all callbacks have seen it; raises as `measure`."""
        count = len(inputs)
        for start in range(0, count, self.batch_size):
            batch = [self._with_rival(inp) for inp in inputs[start : start + self.batch_size]]
            builds: list[BuildResult] = []
            for position, build in enumerate(self._builds(batch), start):
                builds.append(build)
                self._tell(BuiltEvent(position, count, build))
            for position, result in enumerate(self._runs(batch, builds), start):
                inp = inputs[position]
                best = self._note(inp, result)
                self._keep(inp, result, builds[position - start])
                self._call_back(policy, inp, result)
                self._tell(MeasuredEvent(position, count, result, best))
                yield result
                self._check_failures(result)

    def measure_again(
        self, inputs: Sequence[MeasureInput], rounds: int, policy: object = None
    ) -> list[MeasureResult]:
        """Measure programs in turn, again and again; one result per program, which rests on all of that.

        What changes with time, such as the clock or another load, hits all alike. A program that falls behind
        has no further rounds (`measure.race`), unless it looks best in the end; the best one has them all.
        Callbacks are told of the results at the end; they count neither as trials nor for `best`. Raises as
        `measure`. The fastest programs that this measurer has measured are not built again.
        """
        programs = [replace(inp, rival=None) for inp in inputs]
        builds = self._builds_again(programs)
        found: list[list[MeasureResult]] = [[] for _ in programs]

        def measure_round(chosen: Sequence[int]) -> None:
            results = self._runs([programs[one] for one in chosen], [builds[one] for one in chosen])
            for one, result in zip(chosen, results, strict=True):
                found[one].append(result)

        racing = list(range(len(programs)))
        for _ in range(rounds):
            measure_round(racing)
            racing = still_racing(found, racing)
        while (best := unsettled_best(found, rounds)) is not None:
            measure_round([best])
        results = [merged(parts) for parts in found]
        for inp, result in zip(inputs, results, strict=True):
            self._call_back(policy, inp, result)
        return results

    def _builds_again(self, programs: Sequence[MeasureInput]) -> list[BuildResult]:
        """What was built of programs, in no time where it is kept."""
        kept = [self._kept.get(_identity(program)) for program in programs]
        others = [program for program, one in zip(programs, kept, strict=True) if one is None]
        made = iter(list(self._builds(others)) if others else ())
        return [next(made) if one is None else replace(one.build, time_cost=0.0) for one in kept]

    def _keep(self, inp: MeasureInput, result: MeasureResult, build: BuildResult) -> None:
        """Keep what was built of a program if it is one of the fastest, beside the best one of its task."""
        if not result.ok:
            return
        self._kept[_identity(inp)] = _Built(inp, result.mean_cost, build)
        if len(self._kept) > KEPT:
            del self._kept[max(self._kept, key=lambda one: self._behind(self._kept[one]))]

    def _behind(self, built: _Built) -> float:
        """How many times as long as the best program of its task one takes."""
        return built.cost / self.best[built.program.task.key].cost

    def _call_back(self, policy: object, inp: MeasureInput, result: MeasureResult) -> None:
        for callback in self.callbacks:
            with blaming(f"{type(callback).__name__}.callback was told of a result", GO_ON):
                callback.callback(policy, [inp], [result])

    def _with_rival(self, inp: MeasureInput) -> MeasureInput:
        """Say what is known of the best program of the task: by whoever asks, and from what was measured."""
        best = self.best.get(inp.task.key)
        if best is None or (inp.rival is not None and inp.rival <= best.cost):
            return inp
        return replace(inp, rival=best.cost)

    def _builds(self, batch: Sequence[MeasureInput]) -> Iterator[BuildResult]:
        builder = self.builder
        return answers(builder, "build_each", len(batch), BuildResult, lambda: builder.build_each(batch))

    def _runs(self, batch: Sequence[MeasureInput], builds: Sequence[BuildResult]) -> Iterator[MeasureResult]:
        runner = self.runner
        given = answers(runner, "run_each", len(batch), MeasureResult, lambda: runner.run_each(batch, builds))
        for result in given:
            if result.ok and not 0 < min(result.costs, default=0.0) <= max(result.costs) < MAX_FLOAT:
                costs = brief([*result.costs])
                raise DefinitionError(
                    f"{type(runner).__name__}.run_each gave a success with the costs {costs} [s]; give one "
                    f"or more above 0 and below {MAX_FLOAT:g}, and MeasureResult.failed(...) for what did "
                    f"not run; {GO_ON}"
                )
            yield result

    def _tell(self, event: MeasureEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _note(self, inp: MeasureInput, result: MeasureResult) -> float:
        """Count a result; returns the best cost of its task."""
        key = inp.task.key
        self.trials += 1
        best = self.best.get(key)
        if not result.ok:
            self.errors[result.error_no] = self.errors.get(result.error_no, 0) + 1
            self.continuous_errors += 1
        else:
            self.continuous_errors = 0
            if best is None or result.mean_cost < best.cost:
                self.best[key] = best = Best(result.mean_cost, inp.state, self.trials)
        return MAX_FLOAT if best is None else best.cost

    def _check_failures(self, last: MeasureResult) -> None:
        limit = self._max_continuous_error
        if limit is None or self.continuous_errors < limit:
            return
        kinds = ", ".join(f"{count} x {kind.name}" for kind, count in self.errors.items())
        raise RunError(
            f"{self.continuous_errors} programs in a row failed ({kinds}); the last one: {last.error_msg}"
        )


def _identity(inp: MeasureInput) -> tuple[int, int]:
    return id(inp.task), id(inp.state)
