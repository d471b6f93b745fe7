"""What a tuning run gives back."""

from dataclasses import dataclass, field
from enum import StrEnum

from ansor.medians import noise_text
from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.wording import counted
from measure import MeasureErrorNo, MeasureResult
from search.text import busy_text, certainty_text, rate_text, time_text
from search.titles import by_algorithm


class StopReason(StrEnum):
    """Why a run ended."""

    TRIALS_DONE = "all trials done"
    EARLY_STOPPING = "no improvement"
    EXHAUSTED = "no new programs"
    NO_PROGRAM = "no valid program"
    ONLY_FAILURES = "only failures"
    INTERRUPTED = "interrupted"
    LOG_FAILED = "log cannot be written"


@dataclass(frozen=True, slots=True, repr=False)
class TuningResult:
    """
    The outcome of `SearchTask.tune`.

    Parameters
    ----------
    task
        What was tuned.
    best_state
        The fastest program known, from this run or the log; the model's choice if nothing was measured; None
        if there is none. It is as it was searched; `ansor.rewrite_layouts(best_state, option)` applies the
        task's layout option.
    best_cost
        Its mean run time [s]; None if it was not measured.
    best_result
        What its run time rests on.
    trials
        New measurements of this run.
    known_trials
        All measurements of the task that the run knows, the log's included.
    rounds
        Rounds that measured something.
    errors
        Failed measurements of this run by kind.
    stop_reason, message
        Why it ended, as a constant and as a sentence.
    elapsed_seconds
        Wall time of the run [s].
    error_examples
        The first message of each kind of failure of this run.
    diagnosis
        How the trials failed if all that are known did, else empty; the message ends with it.
    disturbed, redone
        Repeats of this run that another load on the machine disturbed, and such as were done again for that.
    repeats
        All repeats that the run times of this run rest on.
    """

    task: Task
    best_state: State | None
    best_cost: float | None
    trials: int
    known_trials: int
    rounds: int
    stop_reason: StopReason
    message: str
    elapsed_seconds: float
    errors: dict[MeasureErrorNo, int] = field(default_factory=dict)
    error_examples: dict[MeasureErrorNo, str] = field(default_factory=dict)
    diagnosis: str = ""
    best_result: MeasureResult | None = None
    disturbed: int = 0
    redone: int = 0
    repeats: int = 0

    @property
    def algorithm(self) -> Task | None:
        """Which of `task.algorithms` the best program is of; None if there is none."""
        return None if self.best_state is None else self.task.algorithm_of(self.best_state.dag)

    @property
    def best_gflops(self) -> float | None:
        """Speed of the best program [GFLOP/s]; None if it was not measured or the task has no FLOPs."""
        flops = self.task.compute_dag.flop_count
        return None if self.best_cost is None or flops <= 0 else flops / self.best_cost / 1e9

    @property
    def best_text(self) -> str:
        """Speed and run time of the best program, and how sure they are; empty if it was not measured.

        An alternative is named, with its rounding errors where these are larger.
        """
        if self.best_cost is None:
            return ""
        rate = rate_text(self.task.compute_dag.flop_count, self.best_cost)
        if self.algorithm is not None:
            rate += by_algorithm(self.task.workload_key, self.algorithm.workload_key)
        return rate if self.best_result is None else f"{rate}{certainty_text(self.best_result)}"

    def _named(self, kind: MeasureErrorNo) -> str:
        """Name a kind of failure; of one whose name says nothing with an example."""
        example = self.error_examples.get(kind, "").strip().split("\n")[0]
        return f"{kind.name} ({example})" if kind is MeasureErrorNo.UNKNOWN_ERROR and example else kind.name

    def __repr__(self) -> str:
        return f"TuningResult({self.task.workload_key}: {self})"

    def __str__(self) -> str:
        best = f"best {self.best_text}" if self.best_text else "nothing measured"
        errors = ", ".join(f"{count} {self._named(kind)}" for kind, count in self.errors.items()) or "none"
        trials = counted(self.trials, "trial")
        noise = noise_text(self.disturbed, self.redone)
        errors += f"; repeats: {noise}" if noise else ""
        busy = busy_text(self.disturbed, self.repeats)
        return (
            f"{trials} in {time_text(self.elapsed_seconds)}, {best}, errors: {errors}; "
            f"stopped: {self.message}{f'; {busy}' if busy else ''}"
        )
