"""What programs run on, as the workers that measure them see it: the CPU, or a device.

A `Processor` compiles a program, loads it beside its arguments, and times it; what is done with it in which
order is the same for all (`jobs`). There is one per kind in a worker process: `cpu` for this
machine's CPU, `device` for OpenCL and CUDA. Each imports what it needs at its first use, in the
worker and never before, so that a device is opened by the process that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Protocol

from ansor.runtime.interference import Watch
from ansor.task.target import Target
from measure.workers.arguments import ArgumentSpec

CPU: Final = "cpu"
"""The kind of processor that is no device; those of devices are the kinds of their targets."""


class LoadedProgram(Protocol):
    """A program in place, with its arguments in memory of their own.

    Attributes
    ----------
    timed
        Runs it so often and gives the seconds that took.
    flush
        Empties the caches.
    watch
        Watches its timings for what else runs on the machine.
    """

    timed: Callable[[int], float]
    flush: Callable[[], None]
    watch: Watch

    def prepare(self) -> None:
        """Poison the outputs, and restore the inputs if the last program did not leave them as they were."""

    def verify(self) -> None:
        """Check what the program left behind; a `WrongAnswerError` if that is not right."""


class Processor(Protocol):
    """What programs of one kind run on, in a worker process."""

    def compile(self, text: str, machine: Mapping[str, Any]) -> bytes:
        """Compile what `measure.emit.EmittedProgram` holds; a `BuildError` if that is refused."""

    def load(
        self, object_bytes: bytes, entry: str, specs: Sequence[ArgumentSpec], settings: Mapping[str, Any]
    ) -> LoadedProgram:
        """Load what `compile` gave beside these arguments, which are kept for the next program.

        `settings` are those of the runner for this kind.

        Raises
        ------
        BuildError
            If it cannot be loaded.
        RunError
            If there is no memory for an argument.
        """


@cache
def processor(kind: str) -> Processor:
    """Give this process's processor of a kind."""
    if kind == CPU:
        from measure.workers.cpu import CPUProcessor

        return CPUProcessor()
    from measure.workers.device import DeviceProcessor

    return DeviceProcessor(kind)


def kind_of(target: Target) -> str:
    """Which kind of processor runs the programs of a target."""
    from ansor.runtime.device.door import KINDS

    return target.kind if target.kind in KINDS else CPU
