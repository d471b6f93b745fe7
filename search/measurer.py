"""Building, running and reporting candidates, batch by batch.

A batch is small (two rounds of the builder's workers), and callbacks see each one as soon as it is complete:
an interrupted run loses one batch at most.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal, Protocol

from ansor.schedule.state import State
from ansor.task.task import Task
from measure import BuildResult, MeasureInput, MeasureResult


class Builder(Protocol):
    """Turns measure inputs into object code; a failure is a result, never an exception."""

    @property
    def n_parallel(self) -> int:
        """Builds that run at the same time."""
        ...

    def build(self, inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Build each input; as many results in the same order."""
        ...


class Runner(Protocol):
    """Runs, checks and times built programs; a failure is a result, never an exception."""

    def run(self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]) -> list[MeasureResult]:
        """Run each build; as many results in the same order, failed builds passed through."""
        ...


class MeasureCallback(Protocol):
    """Called after every measured batch, such as `RecordToFile`."""

    def callback(
        self, policy: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> object:
        """Take the results of a batch; `policy` is the search policy that proposed the programs."""
        ...


class Measurer:
    """
    One builder, one runner and the callbacks.

    Parameters
    ----------
    builder, runner
        What builds and runs.
    callbacks
        Called in order after each batch.
    batch_size
        Programs per batch; default twice the builder's parallelism.
    """

    def __init__(
        self,
        builder: Builder,
        runner: Runner,
        callbacks: Sequence[MeasureCallback] = (),
        batch_size: int | None = None,
    ) -> None:
        self.builder = builder
        self.runner = runner
        self.callbacks = tuple(callbacks)
        self.batch_size = batch_size or 2 * max(1, builder.n_parallel)

    def measure(
        self, task: Task, states: Sequence[State], policy: object = None
    ) -> Iterator[list[tuple[State, MeasureResult]]]:
        """Measure programs of one task and yield each batch once all callbacks have seen it."""
        for start in range(0, len(states), self.batch_size):
            batch = states[start : start + self.batch_size]
            inputs = [MeasureInput(task, state) for state in batch]
            results = self.runner.run(inputs, self.builder.build(inputs))
            for callback in self.callbacks:
                callback.callback(policy, inputs, results)
            yield list(zip(batch, results, strict=True))


@contextmanager
def make_measurer(
    builder: Builder | Literal["local"],
    runner: Runner | Literal["local"],
    callbacks: Sequence[MeasureCallback] = (),
) -> Iterator[Measurer]:
    """Provide a measurer; a builder or runner that "local" made for it is closed at the end."""
    with ExitStack() as stack:
        if builder == "local":
            from measure import LocalBuilder

            builder = stack.enter_context(LocalBuilder())
        if runner == "local":
            from measure import LocalRunner

            runner = stack.enter_context(LocalRunner())
        yield Measurer(builder, runner, callbacks)
