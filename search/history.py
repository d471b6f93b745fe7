"""What a tuning run knows about one task: its measurements, in order.

Everything that decides how a run goes on (what was seen, what is best, when to stop) is a function of this
list, and the list is what the log holds. So a run that was interrupted and reads its own log back stands
where it stood.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ansor.schedule.state import State
from ansor.wording import counted
from measure import MeasureErrorNo, MeasureResult
from measure.records.settled import takes_over


@dataclass(frozen=True, slots=True)
class Trial:
    """One measured program; `from_log` says that the result was read, not measured by this run."""

    key: str
    state: State
    result: MeasureResult
    from_log: bool = False

    @property
    def error(self) -> MeasureErrorNo:
        return self.result.error_no

    @property
    def seconds(self) -> float | None:
        """Mean run time [s], None for a failed trial."""
        return self.result.mean_cost if self.result.ok else None


class History:
    """The trials of one task in the order in which they were measured; grows at the end only."""

    def __init__(self) -> None:
        self._trials: dict[str, Trial] = {}
        self._best: Trial | None = None
        self._since_best = 0
        self._failures_in_a_row = 0
        self._settled: dict[str, MeasureResult] = {}
        self._again: set[str] = set()

    def add(self, trial: Trial) -> bool:
        """Append a trial; a program that is already there is ignored. Returns whether it was new."""
        if trial.key in self._trials:
            return False
        self._trials[trial.key] = trial
        self._since_best += 1
        if trial.seconds is None:
            self._failures_in_a_row += 1
            return True
        self._failures_in_a_row = 0
        if self.best_seconds is None or trial.seconds < self.best_seconds:
            self._best, self._since_best = trial, 0
        return True

    def settle(self, key: str, result: MeasureResult) -> None:
        """Note a later result of a program, which counts instead of the one before if it takes over.

        It decides which program is the winner, and nothing else: how a run goes on follows from the first
        results.
        """
        self._again.add(key)
        known = self._settled.get(key)
        if known is None and key in self._trials:
            known = self._trials[key].result
        if known is None or takes_over(result, known):
            self._settled[key] = result

    def is_settled(self, key: str) -> bool:
        """Whether a program has been measured again, also if its first result goes on counting."""
        return key in self._again

    def ranking(self) -> list[Trial]:
        """Return the valid trials with the results that count, the fastest first."""
        trials = [replace(trial, result=self._settled.get(trial.key, trial.result)) for trial in self]
        valid = [trial for trial in trials if trial.seconds is not None]
        return sorted(valid, key=lambda trial: trial.result.mean_cost)

    @property
    def winner(self) -> Trial | None:
        """The fastest program by the results that count; `best` until something was measured again."""
        if not self._settled:
            return self._best
        return next(iter(self.ranking()), None)

    def __contains__(self, key: str) -> bool:
        return key in self._trials

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials.values())

    @property
    def best(self) -> Trial | None:
        """The fastest successful trial, the earlier one of two equals."""
        return self._best

    @property
    def best_seconds(self) -> float | None:
        return None if self._best is None else self._best.seconds

    @property
    def since_best(self) -> int:
        """Trials since the best was found; all of them while there is none."""
        return self._since_best

    @property
    def failures_in_a_row(self) -> int:
        """Failed trials at the end of the list."""
        return self._failures_in_a_row

    def last_failure(self) -> Trial | None:
        """Return the last failed trial, if any."""
        return next((trial for trial in reversed(self._trials.values()) if trial.seconds is None), None)

    def diagnosis(self) -> str:
        """
        Say how the trials failed if all did; empty if one did not, or there is none.

        Logs keep no messages: the first failure is the first that this run saw.
        """
        if self._best is not None or not self._trials:
            return ""
        kinds = Counter(trial.error for trial in self)
        listed = ", ".join(f"{count} {kind.name}" for kind, count in kinds.most_common())
        told = (trial for trial in self if trial.result.error_msg.strip())
        first = next((f"; the first, {trial.error.name}: {first_line(trial)}" for trial in told), "")
        return f"none of {counted(len(self), 'trial')} gave a valid program ({listed}){first}"


def first_line(trial: Trial) -> str:
    """Return the first line of a failed trial's message; empty for one from a log."""
    return trial.result.error_msg.strip().partition("\n")[0]
