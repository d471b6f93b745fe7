"""What a task scheduler's run gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansor.task.task import Task
from ansor.wording import counted
from search.result import StopReason, TuningResult
from search.session import Stop
from search.text import busy_text, digits, time_text
from search.titles import task_title


@dataclass(frozen=True, slots=True)
class SchedulerResult:
    """
    The outcome of `TaskScheduler.tune`.

    Parameters
    ----------
    results
        One per task, in their order.
    objective
        The objective's value at the end; None while a task has no program. By default it is the weighted sum
        of the latencies [s].
    trials
        New measurements of this run.
    stop_reason, message
        Why it ended, as a constant and as a sentence.
    elapsed_seconds
        Wall time [s].
    """

    results: tuple[TuningResult, ...]
    objective: float | None
    trials: int
    stop_reason: StopReason
    message: str
    elapsed_seconds: float

    def __str__(self) -> str:
        spent = f"{counted(self.trials, 'trial')} in {time_text(self.elapsed_seconds)}"
        lines = [f"{spent}; stopped: {self.message}"]
        for result in self.results:
            nothing = f"no program: {result.diagnosis}" if result.diagnosis else "no program"
            best = result.best_text or nothing
            lines.append(f"  {task_title(result.task)}: {best}, {counted(result.known_trials, 'trial')}")
        if self.objective is not None:
            lines.append(f"  estimated total: {digits(self.objective * 1e3)} ms")
        disturbed = sum(result.disturbed for result in self.results)
        if busy := busy_text(disturbed, sum(result.repeats for result in self.results)):
            lines.append(f"  {busy}")
        return "\n".join(lines)


def no_task_left(tasks: Sequence[Task], reasons: Mapping[int, str], found: bool) -> Stop:
    """Say why a run ends of which no task is tuned any more; `found` is whether any has a program."""
    listed = "; ".join(f"{task_title(tasks[number])}: {why}" for number, why in sorted(reasons.items()))
    return Stop(
        StopReason.EXHAUSTED if found else StopReason.NO_PROGRAM, f"no task is left to tune: {listed}"
    )
