"""A tuning run: rounds of proposing, measuring and learning until there is a reason to stop.

A round always proposes `num_measures_per_round` programs. Those whose results are already in the log are
answered from it and cost nothing; the rest is measured as far as the trial budget goes. This one rule is
how a run resumes: with the same seed it proposes what it proposed before, takes the answers from its own
log, completes the round that was cut short, and goes on. What the policy has learned from the log before, it
forgets at the start, lest it propose with the future in mind. A log that the first round does not recognise
came from another search; all of it then counts as known from the start. Results that a run is given beside
its own log are asked first, so that the own one is recognised by a search that knows them.

Programs that are supplied from outside (`seeds`, such as those of a warm start) make rounds of their own
before the policy's first.

A session advances one round at a time, so that several can share one budget.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ansor.errors import LogWriteError
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.wording import counted
from measure import MeasureErrorNo, MeasureInput, ProgramMeasurer
from measure.records.record import count_errors
from search.finals import finalists, hold_finals
from search.history import History, Trial, first_line
from search.options import patience
from search.policy import Proposal, SearchPolicy
from search.preload import Earlier, logs_of
from search.progress import Progress, Report
from search.proposals import checked, proposal_of
from search.result import StopReason, TuningResult


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a session ended."""

    reason: StopReason
    message: str


def interrupted(measurer: ProgramMeasurer) -> Stop:
    """Say that a run was interrupted, and how to go on with it."""
    logs = ", ".join(logs_of(measurer.callbacks))
    how = f"kept in {logs}: the same run goes on from there" if logs else "in the result, and in no log"
    return Stop(StopReason.INTERRUPTED, f"interrupted; what was measured is {how}")


class TuningSession:
    """
    The state of one run over one task.

    Parameters
    ----------
    policy
        Proposes the programs; its task is tuned.
    measurer
        Measures them and calls back.
    earlier
        Results from logs.
    seeds
        Programs to measure before those of the policy; such as are known are left out.
    round_size
        Programs per round.
    early_stopping, max_failures_in_a_row, num_finalists
        As in `TuningOptions`.
    progress
        Told of everything that happens.
    """

    def __init__(
        self,
        policy: SearchPolicy,
        measurer: ProgramMeasurer,
        *,
        earlier: Earlier | None = None,
        seeds: Sequence[State] = (),
        round_size: int = 64,
        early_stopping: int | Literal["auto"] | None = None,
        max_failures_in_a_row: int = 150,
        num_finalists: int | Literal["auto"] = 0,
        progress: Progress | None = None,
    ) -> None:
        self.policy = policy
        self.measurer = measurer
        self.history = History()
        self.new_trials: list[Trial] = []
        self._outcomes: Counter[MeasureErrorNo] = Counter()
        self.rounds_measured = 0
        self.stop: Stop | None = None
        earlier = earlier or Earlier()
        self._log = {trial.key: trial for trial in earlier.known or earlier.log}
        self._own_log = {trial.key: trial for trial in earlier.log if trial.key not in self._log}
        for key, result in earlier.settled.items():
            self.history.settle(key, result)
        if self._log:  # What they say is told again, each in its round.
            policy.unlearn([*self._log.values(), *self._own_log.values()])
        self._seeds = tuple(seeds)
        self._next: Proposal | None = None
        self._in_round: list[Trial] = []
        self._measured_before = 0
        self._round = self._rounds_ended = 0
        self._round_size = round_size
        self._early_stopping = early_stopping
        self._patience = None if early_stopping == "auto" else early_stopping
        self._max_failures = max_failures_in_a_row
        self._finalists = num_finalists
        self._progress = progress or Progress()
        self._started = time.monotonic()

    @property
    def task(self) -> Task:
        return self.policy.task

    @property
    def replaying(self) -> bool:
        """Whether a log still holds results that no round has asked for."""
        return bool(self._log or self._own_log)

    def run(self, num_trials: int) -> TuningResult:
        """Advance until `num_trials` new programs are measured or there is another reason to stop.

        Ctrl-C and a log that cannot be written end the run; both give the result so far. However it ends, the
        policy learns what was measured and what it was made to forget.
        """
        logged = len(self._log) + len(self._own_log)
        self._patience = patience(self._early_stopping, logged + num_trials)
        try:
            self._progress.start(self.task, num_trials, logged)
            self._progress.begin(self.policy)
            if num_trials == 0:
                self.know_log()
            while self.stop is None:
                if len(self.new_trials) >= num_trials:
                    self.stop = Stop(StopReason.TRIALS_DONE, _done(num_trials))
                else:
                    self.advance(num_trials - len(self.new_trials))
            self.hold_finals()
        except KeyboardInterrupt:
            self.stop = interrupted(self.measurer)
        except LogWriteError as error:
            self.stop = Stop(StopReason.LOG_FAILED, str(error))
        finally:
            self._progress.close()
            self.conclude()
        result = self.result(self.stop)
        self._progress.finish(result)
        return result

    @property
    def in_round(self) -> int:
        """Programs that a round has had in which others still wait; 0 between two rounds."""
        return len(self._in_round)

    def advance(self, budget: int, part: int | None = None) -> int:
        """
        Run one round, or go on with it.

        Parameters
        ----------
        budget
            How many programs may be measured; where it ends a round, the rest of that is dropped.
        part
            How many of the round's programs to take now, those of a log included; the others wait for the
            next call. Default all. What the policy proposes and learns does not depend on it.

        Returns
        -------
        int
            How many were measured.
        """
        proposal, self._next = self._propose(), None
        if not proposal.states:
            self.stop = self._nothing_proposed(proposal.note)
            return 0
        before, later = len(self.new_trials), () if part is None else proposal.states[part:]
        self._answer(proposal.states[:part], budget)
        measured = len(self.new_trials) - before
        if later:
            self._next = Proposal(later, proposal.note)
            return measured
        self.end_round()
        self.stop = self._reason_to_stop()
        return measured

    def end_round(self) -> None:
        """Tell the policy what a round brought, also one of which some programs wait: they are dropped."""
        if not self._in_round:
            return
        trials, self._in_round, self._next = self._in_round, [], None
        self.policy.learn(trials)
        self._rounds_ended += 1
        if not self._seeds:
            self._round += 1
        if len(self.new_trials) > self._measured_before:
            self._measured_before = len(self.new_trials)
            self.rounds_measured += 1
            self._progress.round_done(self._report())
            self.know_log()

    def conclude(self) -> None:
        """Tell the policy what it has not been told yet: of a round that was cut short, and of the log."""
        self.end_round()
        self.know_log()

    def recognise_log(self) -> bool:
        """
        Find out whether a log is this search's own, by proposing the first round.

        What the run was given may be, so that its own log goes on from there. If not, it is taken as known at
        once; whether its own log is one of a search that knew this is asked when that search begins. Returns
        whether there are still answers to give.
        """
        if self._log and self._round == 0 and self._next is None:
            first = self._wanted()
            keys = {program_key(state) for state in first.states}
            if keys and all(key in keys for key in list(self._log)[: len(keys)]):
                self._next = first
                self._log |= self._own_log
            else:
                self._know(self._log)
                self._log = self._own_log
            self._own_log = {}
        return bool(self._log)

    def upcoming(self, part: int | None = None) -> int:
        """Propose what is next, and count the programs, of the first `part`, that no log answers for."""
        self._next = self._propose()
        states = self._next.states[:part]
        if not self._log:
            return len(states)
        return sum(program_key(state) not in self._log for state in states)

    def hold_finals(self) -> None:
        """Measure the best programs again, if this run has measured any: see `search.finals`."""
        count = finalists(self._finalists, len(self.history))
        if self.new_trials and count:
            hold_finals(self.policy, self.measurer, self.history, count)

    def know_log(self) -> None:
        """Take everything that is left of the log into the history."""
        self._know(self._log | self._own_log)
        self._log, self._own_log = {}, {}

    def _know(self, trials: Mapping[str, Trial]) -> None:
        new = [trial for trial in trials.values() if self.history.add(trial)]
        if new:
            self.policy.learn(new)

    def result(self, stop: Stop) -> TuningResult:
        """Sum up the run so far."""
        best, diagnosis = self.history.winner, self.history.diagnosis()
        state = best.state if best is not None else None
        if state is None and not self.history and stop.reason is StopReason.TRIALS_DONE:
            first = proposal_of(self.policy, self.policy.propose(0, self._round_size, self.history))
            state = next(iter(first.states), None)
        return TuningResult(
            task=self.task,
            best_state=state,
            best_cost=None if best is None else best.seconds,
            best_result=None if best is None else best.result,
            trials=len(self.new_trials),
            known_trials=len(self.history),
            rounds=self.rounds_measured,
            stop_reason=stop.reason,
            message=f"{stop.message}; {diagnosis}" if diagnosis else stop.message,
            elapsed_seconds=time.monotonic() - self._started,
            errors=count_errors([trial.result for trial in self.new_trials]),
            error_examples={
                trial.error: trial.result.error_msg
                for trial in reversed(self.new_trials)
                if trial.seconds is None
            },
            diagnosis=diagnosis,
            disturbed=sum(trial.result.disturbed for trial in self.new_trials),
            redone=sum(trial.result.redone for trial in self.new_trials),
            repeats=sum(len(trial.result.costs) for trial in self.new_trials if trial.result.ok),
        )

    def _propose(self) -> Proposal:
        """What to measure next."""
        while self.recognise_log() and self._round == 0 and self._next is None:
            pass
        return self._next or self._wanted()

    def _wanted(self) -> Proposal:
        """The seeds as long as there are any, then what the policy proposes."""
        seeds = {program_key(state): state for state in self._seeds}
        self._seeds = tuple(state for key, state in seeds.items() if key not in self.history)
        if self._seeds:
            return Proposal(self._seeds[: self._round_size])
        proposal = self.policy.propose(self._round, self._round_size, self.history)
        return checked(self.policy, proposal, self.history)

    def _answer(self, states: Sequence[State], budget: int) -> None:
        """Give a round results: from the log where it has them, then measured, in proposal order."""
        fresh: list[State] = []
        for state in states:
            known = self._log.pop(program_key(state), None)
            if known is not None:
                self._note(known)
            elif len(fresh) < budget:
                fresh.append(state)
        rival = self.history.best_seconds
        inputs = [MeasureInput(self.task.algorithm_of(state.dag), state, rival) for state in fresh]
        for state, result in zip(fresh, self.measurer.measure_each(inputs, self.policy), strict=True):
            trial = Trial(program_key(state), state, result)
            self._note(trial)
            self.new_trials.append(trial)
            self._outcomes[trial.error] += 1
            self._progress.trial_done(self._report())

    def _note(self, trial: Trial) -> None:
        self._in_round.append(trial)
        self.history.add(trial)

    def _report(self) -> Report:
        best = self.history.best
        return Report(
            trials=len(self.new_trials),
            errors=len(self.new_trials) - self._outcomes[MeasureErrorNo.NO_ERROR],
            best_seconds=self.history.best_seconds,
            round_index=self._rounds_ended,
            known_trials=len(self.history),
            best_state=None if best is None else best.state,
            outcomes=dict(self._outcomes),
        )

    def _nothing_proposed(self, note: str) -> Stop:
        if not self.history and not self._log:
            why = note or "the policy proposed nothing"
            return Stop(StopReason.NO_PROGRAM, f"there is no valid program for this task: {why}")
        tried = f"{counted(len(self.history), 'program')} measured, and nothing new was found"
        return Stop(StopReason.EXHAUSTED, f"{tried}: {note}" if note else tried)

    def _reason_to_stop(self) -> Stop | None:
        if self._log:  # Still replaying: what the log says further on is not weighed yet.
            return None
        history = self.history
        failures = min(history.failures_in_a_row, len(self.new_trials))  # What spoiled a log may be over.
        if failures >= self._max_failures:
            last = history.last_failure()
            what = f"{last.error.name}: {first_line(last)}" if last is not None else "unknown"
            told = f"; the last one with {what}".rstrip(": ") if history.best is not None else ""
            return Stop(StopReason.ONLY_FAILURES, f"{failures} trials in a row failed{told}")
        limit = self._patience
        if limit is not None and history.best is not None and history.since_best >= limit:
            return Stop(
                StopReason.EARLY_STOPPING,
                f"the last {history.since_best} trials brought no improvement (early_stopping={limit})",
            )
        return None


def _done(trials: int) -> str:
    return f"all {trials} trials are done" if trials != 1 else "the trial is done"
