"""`TaskScheduler`: one budget of trials for many tasks, spent where it helps most.

Every task has a policy and a session of its own; all share the measurer and, by default, one learned cost
model. First each task gets one round, in order. Then a strategy names the task of each further round, by
figures that are functions of the measured results alone. So a run that reads its own log back makes the same
decisions, takes the answers from the log, and goes on where it was interrupted. A log of another run is taken
as known instead: its tasks count as warmed up. Tasks of which a log holds failures only are tried again
before a run ends that has measured nothing.

How many trials one call of `tune` has decides where it ends and nothing else, so runs of many small budgets
make the trials of one run. For that the first round is measured in parts: of all tasks the first program,
then the second, two more, four more, and so on. A budget that ends in it has reached every task.

Source: Zheng et al., OSDI 2020, section 6; `TaskScheduler` of TVM 0.16.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from ansor.checks import check_integer, check_number
from ansor.errors import DefinitionError, LogWriteError
from ansor.plugins import GO_ON, blaming, brief, items_of
from ansor.task.task import Task
from ansor.wording import counted
from measure import MAX_FLOAT
from search.details import level_of
from search.options import TuningOptions, open_measurer
from search.policy import SearchPolicy
from search.result import StopReason
from search.scheduler.callbacks import LogEstimatedLatency, PrintTableInfo, TaskSchedulerCallback
from search.scheduler.gradient import Allocation, Objective, SimilarityGroups, gradients, steepest
from search.scheduler.result import SchedulerResult, no_task_left
from search.scheduler.setup import (
    check_callbacks,
    check_gradient,
    check_machine,
    check_model_exists,
    check_tasks,
    check_trials,
    open_session,
    policies_for,
)
from search.session import Stop, TuningSession, interrupted
from search.starts import known_results
from search.titles import task_title
from search.warm_start import log_names

PathLike = str | os.PathLike[str]

FRUITLESS: Final = 16
"""Trials of a task after which it is given up if none gave a valid program."""


class TaskScheduler:
    """
    Tunes several tasks together.

    Parameters
    ----------
    tasks
        What to tune; no two alike.
    task_weights
        How often each task runs in the whole; default 1. The default objective is the sum of weight times
        best latency [s].
    objective_func
        Instead: from the best latencies [s] of all tasks to a number to be made small. A task without a
        program counts with 1e10 s.
    strategy
        "gradient": the task whose next round promises most (see `gradient`); "round-robin": one
        after the other.
    load_model_file
        A saved model for the shared cost model to start from: of a `DraftedModel`, or of an `XGBModel` for
        "sketch.xgb". Other searches have no use for one, and refuse it.
    load_log_file
        Earlier measurements, of this run or others: a log, or a list of logs. Those among the
        `measure_callbacks` are read as well.
    alpha, beta, backward_window_size
        Parameters of the gradient: weight of the past against the forecast, how far a task may be behind its
        group, and how many rounds the past has.
    gamma
        Accepted for compatibility; nothing depends on it, as in TVM.
    callbacks
        Told of every round, and of every part of a first one; default a table on the standard error stream
        and a file `total_latency.tsv`.

    Attributes
    ----------
    task_cts
        Rounds per task; `task_trials` the trials.
    task_costs_history
        Best latency [s] after each round, per task.
    best_costs
        Best latency [s] per task, 1e10 for none. Values set before `tune` count as known.
    cur_score, best_score
        Objective now, and at best, over the tasks that have a program.
    ct, best_ct
        Trials so far, and those when the objective last improved; results from logs included.
    tic
        When tuning began, as `time.time()`.
    dead_tasks
        Tasks that are not tuned any more; `dead_reasons` says why.
    num_measures_per_round
        Trials of one round at most, as in `TuningOptions`.
    resumed
        Whether results were known when tuning began.

    Raises
    ------
    DefinitionError
        If there is no task, two are the same, weights are missing or negative, the strategy is unknown, a
        parameter of the gradient is out of range, or the objective, a callback or a log is none.
    FileNotFoundError
        If the model file does not exist.
    """

    no_cost: Final = MAX_FLOAT

    def __init__(
        self,
        tasks: Sequence[Task],
        task_weights: Sequence[float] | None = None,
        objective_func: Objective | None = None,
        strategy: Literal["gradient", "round-robin"] = "gradient",
        load_model_file: PathLike | None = None,
        load_log_file: PathLike | Sequence[PathLike] | None = None,
        alpha: float = 0.2,
        beta: float = 2.0,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: Sequence[TaskSchedulerCallback] | None = None,
    ) -> None:
        given = [tasks] if isinstance(tasks, Task) else items_of("TaskScheduler(tasks)", tasks, "tasks")
        self.tasks: list[Task] = list(given)  # type: ignore[arg-type]  # Checked below.
        if task_weights is None:
            task_weights = [1.0] * len(self.tasks)
        weights = items_of("TaskScheduler(task_weights)", task_weights, "numbers, one per task")
        self.task_weights: list[float] = list(weights)  # type: ignore[arg-type]
        self.objective_func: Objective = objective_func or self._weighted_sum
        self.strategy = strategy
        check_tasks(self.tasks, self.task_weights, strategy)
        check_gradient(alpha, beta, backward_window_size)
        if not callable(self.objective_func):
            raise DefinitionError(
                f"objective_func={objective_func!r}: it must be a function of the list of latencies [s]"
            )
        check_model_exists(load_model_file)
        self.load_model_file = load_model_file
        self.load_log_files: list[str] = (
            [] if load_log_file is None else log_names("TaskScheduler(load_log_file=", load_log_file)
        )
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self.backward_window_size = backward_window_size
        if callbacks is None:
            callbacks = [PrintTableInfo(), LogEstimatedLatency("total_latency.tsv")]
        self.callbacks: list[TaskSchedulerCallback] = check_callbacks(callbacks)
        self.best_costs = np.full(len(self.tasks), MAX_FLOAT)
        self._given_costs = self.best_costs.copy()
        self._started = False
        self._reset()

    def _reset(self) -> None:
        """Forget all that happened."""
        count = len(self.tasks)
        self.task_cts = [0] * count
        self.task_trials = [0] * count
        self.task_best_cts = [0] * count
        self.task_costs_history: list[list[float]] = [[] for _ in range(count)]
        self.dead_reasons: dict[int, str] = {}
        self.ct = self.best_ct = self.new_trials = 0
        self.num_measures_per_round = 0
        self.verbose = 0
        self.tic, self._begun = time.time(), time.monotonic()
        self.resumed = False
        self.cur_score = self.best_score = self._score()
        self._best_missing = count
        self._last = -1
        self._groups = SimilarityGroups(self.tasks, self.beta)
        self._sessions: list[TuningSession] = []

    def __repr__(self) -> str:
        titles = ", ".join(map(task_title, self.tasks))
        return f"<TaskScheduler of {titles}: {counted(self.ct, 'trial')}>"

    @property
    def dead_tasks(self) -> set[int]:
        return set(self.dead_reasons)

    @property
    def without_program(self) -> list[int]:
        """Tasks for which no valid program is known."""
        return [number for number, cost in enumerate(self.best_costs) if cost >= MAX_FLOAT]

    @property
    def _living(self) -> list[int]:
        return [number for number in range(len(self.tasks)) if number not in self.dead_reasons]

    def tune(
        self,
        tune_option: TuningOptions,
        search_policy: Literal["default", "sketch.xgb", "sketch.random"] | Sequence[SearchPolicy] = "default",
        search_policy_params: Mapping[str, int | float | str] | None = None,
        adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> SchedulerResult:
        """
        Spend `num_measure_trials` new measurements.

        Parameters
        ----------
        tune_option
            The budget of all tasks together, and what measures. `early_stopping` ends the run when so many
            trials in a row did not improve the objective, once every task has a program or has been given up.
        search_policy
            A `SketchPolicy` per task, all with one model, but those for GPUs with another than those for
            CPUs: "default": a `DraftedModel`; "sketch.xgb": an `XGBModel`, random until every task had a
            round; "sketch.random": random scores. By default the task of a template has an `XGBTuner` of its
            own. Or one policy per task.
        search_policy_params
            Parameters of the sketch policies.
        adaptive_training
            Passed on to the model.
        per_task_early_stopping
            A task is given up after so many trials in a row without improvement.

        Returns
        -------
        SchedulerResult
            The outcome of every task, and why the run ended; also after Ctrl-C.

        Raises
        ------
        DefinitionError
            If the trials are fewer than the tasks of which no result is known, or the policies do not fit.
        FileNotFoundError
            If a log of `load_log_file` does not exist and is not one that this run is going to write.
        LogFormatError
            If a log has a line that cannot be understood.
        TargetError, RunError
            If this machine cannot run programs for a task's target, or has no room for its arguments.
        """
        if not isinstance(tune_option, TuningOptions):
            raise DefinitionError(
                f"TaskScheduler.tune({tune_option!r}): it takes ansor.TuningOptions(num_measure_trials=...)"
            )
        if per_task_early_stopping is not None:
            check_integer("per_task_early_stopping", per_task_early_stopping, low=1)
        per_round = tune_option.num_measures_per_round
        policies = policies_for(
            self.tasks,
            search_policy,
            tune_option.seed,
            params=search_policy_params,
            per_round=per_round,
            adaptive_training=adaptive_training,
            model_file=self.load_model_file,
        )
        with open_measurer(tune_option) as measurer:
            check_machine(self.tasks, measurer.runner)
            known = known_results(policies, tune_option.measure_callbacks, self.load_log_files)
            check_trials(self.tasks, known, tune_option.num_measure_trials)
            if self._started:
                self.best_costs = np.full(len(self.tasks), MAX_FLOAT)
            self._started = True
            self._given_costs = self.best_costs.copy()
            self._reset()
            self.num_measures_per_round, self.verbose = per_round, level_of(tune_option.verbose)
            self.resumed = any(known)
            self._sessions = [
                open_session(policy, results, measurer, tune_option, per_task_early_stopping)
                for policy, results in zip(policies, known, strict=True)
            ]
            try:
                stop = self._run(tune_option)
                for session in self._sessions:
                    session.hold_finals()
            except KeyboardInterrupt:
                stop = interrupted(measurer)
            except LogWriteError as error:
                stop = Stop(StopReason.LOG_FAILED, str(error))
            except BaseException:
                for session in self._sessions:
                    session.conclude()
                raise
        result = self._result(stop)
        if self.verbose > 0:
            print(result, file=sys.stderr)
        return result

    # -- the run ----------------------------------------------------------------------------------------

    def _run(self, options: TuningOptions) -> Stop:
        self._warm_up(options.num_measure_trials)
        for number in self.without_program:
            self._find_program(number, options.num_measure_trials)
        while True:
            stop = self._reason_to_stop(options)
            if stop is None:
                self._tune_task(self._choose(), options.num_measure_trials - self.new_trials)
            elif self.new_trials or stop.reason is StopReason.TRIALS_DONE or not self._hopeful:
                return stop
            else:
                self._try_again(options.num_measure_trials)

    def _warm_up(self, trials: int) -> None:
        """Give the tasks their first round, in parts that double; one tuned by another run needs none."""
        waiting: list[int] = []
        for number, session in enumerate(self._sessions):
            if trials == 0:
                session.know_log()
            session.recognise_log()
            if session.history.best is not None or trials == 0:
                self._account(number, 0)
            elif trials > self.new_trials:
                self._tune_task(number, trials - self.new_trials, 1)
                waiting.append(number)
        part = 1
        while waiting := [number for number in waiting if self._sessions[number].in_round]:
            for number in waiting:
                if trials == self.new_trials:
                    return
                self._tune_task(number, trials - self.new_trials, part if len(waiting) > 1 else None)
            part *= 2

    def _find_program(self, number: int, trials: int) -> None:
        """Give a task of which no program was valid more rounds; if that does not help it is given up."""
        history = self._sessions[number].history
        while (
            history.best is None
            and number not in self.dead_reasons
            and len(history) < FRUITLESS
            and self.new_trials < trials
        ):
            self._tune_task(number, trials - self.new_trials)
        if history.best is None and (self.new_trials < trials or trials == 0):
            self.dead_reasons.setdefault(number, "no valid program was found")

    @property
    def _hopeful(self) -> list[int]:
        """Tasks without a program whose sessions have not come to an end."""
        return [number for number in self.without_program if self._sessions[number].stop is None]

    def _try_again(self, trials: int) -> None:
        """Where a run would end with nothing measured, tune the tasks of which its log holds failures only.

        These may be of a machine that works by now. Each gets a round in turn, which the log may answer, too:
        until all were tried by this run, or one has a program and the others had another turn. Turns do not
        depend on who answers: where all tasks had been given up, a run that reads this log takes the same.
        """
        missing = len(self.without_program)
        while any(not self._sessions[number].new_trials for number in self._hopeful):
            self._give_turns(trials)
            if len(self.without_program) < missing:
                self._give_turns(trials)
                return
            if self.new_trials >= trials:
                return

    def _give_turns(self, trials: int) -> None:
        """Tune each task without a program for one round; it lives if that brought one."""
        for number in self._hopeful:
            if self.new_trials < trials:
                reason = self.dead_reasons.pop(number)
                self._tune_task(number, trials - self.new_trials)
                if self._sessions[number].history.best is None:
                    self.dead_reasons.setdefault(number, reason)

    def _tune_task(self, number: int, budget: int, part: int | None = None) -> None:
        """One round of one task, of at most `budget` new trials; or the next `part` of its programs."""
        session = self._sessions[number]
        before = len(session.history) - session.in_round
        if session.in_round:  # It is counted anew with all its parts.
            self.task_cts[number] -= 1
            self.task_costs_history[number].pop()
        loud = session.upcoming(part) > 0
        if loud:
            for callback in self.callbacks:
                with blaming(self._telling(callback, "pre_tune", number), GO_ON):
                    callback.pre_tune(self, number)
        try:
            session.advance(budget, part)
        finally:
            self._account(number, before)
        if session.stop is not None:
            self.dead_reasons.setdefault(number, session.stop.message)
        if loud:
            for callback in self.callbacks:
                with blaming(self._telling(callback, "post_tune", number), GO_ON):
                    callback.post_tune(self, number)

    def _telling(self, callback: TaskSchedulerCallback, method: str, number: int) -> str:
        return (
            f"{type(callback).__name__}.{method} was told of task {number}, {task_title(self.tasks[number])}"
        )

    def _account(self, number: int, before: int) -> None:
        """Bring all figures up to date after the history of a task has grown from `before` trials."""
        history = list(self._sessions[number].history)
        seconds = np.array([MAX_FLOAT if t.seconds is None else t.seconds for t in history])
        curve = np.minimum.accumulate(np.minimum(seconds, self.best_costs[number]))
        grown = len(history) - before
        if grown:
            rounds = max(1, round(grown / self.num_measures_per_round))
            ends = [before + grown * (step + 1) // rounds for step in range(rounds)]
            self.task_costs_history[number] += [float(curve[end - 1]) for end in ends]
            self.task_cts[number] += rounds
            if curve[-1] < self.best_costs[number]:
                self.task_best_cts[number] = len(history) - self._sessions[number].history.since_best
                self.best_costs[number] = curve[-1]
        self.task_trials[number] = len(history)
        self.ct = sum(self.task_trials)
        self.new_trials = sum(len(session.new_trials) for session in self._sessions)
        self._groups.note_round(number, [float(cost) for cost in self.best_costs], self.task_cts)
        self._note_score()

    def _note_score(self) -> None:
        self.cur_score = self._score()
        missing = len(self.without_program)
        if (missing, self.cur_score) < (self._best_missing, self.best_score):
            self._best_missing, self.best_score, self.best_ct = missing, self.cur_score, self.ct

    def _reason_to_stop(self, options: TuningOptions) -> Stop | None:
        if self.new_trials >= options.num_measure_trials:
            return Stop(StopReason.TRIALS_DONE, f"all {options.num_measure_trials} trials are done")
        if not self._living:
            some = len(self.without_program) < len(self.tasks)
            return no_task_left(self.tasks, self.dead_reasons, some)
        patience = options.patience(self.ct - self.new_trials)
        if patience is not None and options.early_stopping == "auto":  # Each task had two turns or more.
            patience = max(patience, 2 * len(self.tasks) * self.num_measures_per_round)
        replaying = any(self._sessions[number].replaying for number in self._living)
        if patience is None or replaying or self.ct - self.best_ct < patience:
            return None
        return Stop(
            StopReason.EARLY_STOPPING,
            f"the last {self.ct - self.best_ct} trials of all tasks brought no improvement",
        )

    def _choose(self) -> int:
        """Task of the next round."""
        known = Allocation(
            [float(cost) for cost in self.best_costs],
            self.task_cts,
            self.task_costs_history,
            self.dead_tasks,
        )
        if self.strategy == "round-robin":
            count = len(self.tasks)
            order = [(self._last + 1 + step) % count for step in range(count)]
            self._last = next(number for number in order if number not in known.dead)
            return self._last
        slopes = gradients(
            known, self._groups, self._objective, alpha=self.alpha, window=self.backward_window_size
        )
        return steepest(known, slopes)

    @property
    def elapsed_seconds(self) -> float:
        """Time since tuning began [s], whatever has been done to the clock since."""
        return time.monotonic() - self._begun

    # -- objective ----------------------------------------------------------------------------------------

    def _weighted_sum(self, costs: Sequence[float]) -> float:
        """Sum of weight times latency [s] over the tasks that have a program."""
        return sum(
            weight * cost for weight, cost in zip(self.task_weights, costs, strict=True) if cost < MAX_FLOAT
        )

    def _score(self) -> float:
        return self._objective([float(cost) for cost in self.best_costs])

    def _objective(self, costs: Sequence[float]) -> float:
        """Ask the objective, and say so if it goes wrong."""
        latencies = brief(list(costs))
        asked = f"objective_func was asked about the latencies {latencies} [s] (1e10: no program is known)"
        with blaming(asked):
            value = self.objective_func(list(costs))
        check_number(f"{asked}; what it returns", value)
        return float(value)

    def _result(self, stop: Stop) -> SchedulerResult:
        """Sum up; the best latencies are now those of the results that count, however the run ended."""
        for number, session in enumerate(self._sessions):
            before = len(session.history)
            session.conclude()
            if len(session.history) > before:
                self._account(number, before)
            winner = session.history.winner
            seconds = None if winner is None else winner.seconds
            best = MAX_FLOAT if seconds is None else seconds
            self.best_costs[number] = min(self._given_costs[number], best)
        self.cur_score = self._score()
        return SchedulerResult(
            results=tuple(session.result(session.stop or stop) for session in self._sessions),
            objective=None if self.without_program else self.cur_score,
            trials=sum(len(session.new_trials) for session in self._sessions),
            stop_reason=stop.reason,
            message=stop.message,
            elapsed_seconds=self.elapsed_seconds,
        )
