"""What a task scheduler needs before it can start: checked tasks, policies, a shared model, sessions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansor.checks import check_integer, check_number
from ansor.errors import DefinitionError, RunError, TargetError
from ansor.plugins import items_of
from ansor.task.task import Task, TaskKey
from ansor.wording import counted
from costmodel import CostModel, DraftedModel, RandomModel, XGBModel
from measure import ProgramMeasurer, ProgramRunner
from search.alternatives import sketch_policy
from search.details import details_only
from search.options import TuningOptions
from search.params import resolve_params
from search.policy import SearchPolicy, check_policy
from search.preload import Earlier
from search.scheduler.callbacks import TaskSchedulerCallback
from search.session import TuningSession
from search.sketch_policy import round_size
from search.starts import first_programs
from search.templates.task import TemplateTask
from search.templates.xgb import XGBTuner
from search.titles import task_title

PathLike = str | os.PathLike[str]


def check_tasks(tasks: Sequence[Task], weights: Sequence[float], strategy: str) -> None:
    """
    Refuse tasks that cannot be tuned together.

    Raises
    ------
    DefinitionError
        If there is no task, two are the same, weights are missing or negative, or the strategy is unknown.
    """
    for number, task in enumerate(tasks):
        if not isinstance(task, Task):
            raise DefinitionError(
                f"tasks[{number}] is {task!r}; a TaskScheduler takes a list of ansor.SearchTask"
            )
    if not tasks:
        raise DefinitionError("a TaskScheduler needs at least one task")
    if len(weights) != len(tasks):
        raise DefinitionError(f"there are {len(tasks)} tasks and {len(weights)} task_weights; give one each")
    for number, weight in enumerate(weights):
        check_number(f"task_weights[{number}]", weight, low=0)
    if strategy not in ("gradient", "round-robin"):
        raise DefinitionError(f"strategy={strategy!r}: it is 'gradient' or 'round-robin'")
    first: dict[TaskKey, int] = {}
    for number, task in enumerate(tasks):
        other = first.setdefault(task.key, number)
        if other != number:
            raise DefinitionError(
                f"tasks {other} and {number} are both {task_title(task)} on {task.target}; pass it once, "
                "with the sum of their weights"
            )


def check_gradient(alpha: float, beta: float, backward_window_size: int) -> None:
    """
    Refuse parameters of the gradient that are out of range.

    Raises
    ------
    DefinitionError
        If one is.
    """
    check_number("TaskScheduler(alpha)", alpha, low=0)
    check_number("TaskScheduler(beta)", beta, above=0)
    check_integer("TaskScheduler(backward_window_size)", backward_window_size, low=1)


def check_policies(tasks: Sequence[Task], policies: Sequence[SearchPolicy]) -> list[SearchPolicy]:
    """
    Give the policies back if there is one for each task, in order.

    Raises
    ------
    DefinitionError
        If not.
    """
    if not isinstance(policies, Sequence):
        raise DefinitionError(
            f"search_policy={policies!r}: it is 'default', 'sketch.xgb', 'sketch.random', or a list of one "
            "policy for each task"
        )
    if len(policies) != len(tasks):
        raise DefinitionError(f"there are {len(tasks)} tasks and {len(policies)} policies; give one each")
    for number, (task, policy) in enumerate(zip(tasks, policies, strict=True)):
        check_policy(f"search_policy[{number}]", policy)
        mine, wanted = policy.task, task
        if mine.key != wanted.key:
            raise DefinitionError(
                f"policy {number} is for {task_title(policy.task)} and task {number} is {task_title(task)}; "
                "give the policies in the order of the tasks"
            )
    return list(policies)


def check_machine(tasks: Sequence[Task], runner: ProgramRunner) -> None:
    """
    Make sure that programs of every task can run here, before any is built.

    Raises
    ------
    TargetError, RunError
        If not; the message names the task.
    """
    for number, task in enumerate(tasks):
        try:
            for algorithm in task.algorithms:
                runner.check_task(algorithm)
        except (TargetError, RunError) as error:
            raise type(error)(f"task {number}, {task_title(task)}: {error}") from None


def make_policies(
    choice: str,
    tasks: Sequence[Task],
    models: Mapping[bool, CostModel],
    params: Mapping[str, int | float | str] | None,
    seed: int,
) -> list[SearchPolicy]:
    """Make one policy per task: sketch policies with shared `models`, for CPUs (False) and for GPUs (True).

    By default a template gets an `XGBTuner`.
    """
    return [
        XGBTuner(task, seed=seed)
        if choice == "default" and isinstance(task, TemplateTask)
        else sketch_policy(task, models[task.target.is_gpu], params=params, seed=seed)
        for task in tasks
    ]


def policies_for(
    tasks: Sequence[Task],
    choice: str | Sequence[SearchPolicy],
    seed: int,
    *,
    params: Mapping[str, int | float | str] | None,
    per_round: int,
    adaptive_training: bool,
    model_file: PathLike | None,
) -> list[SearchPolicy]:
    """
    Give one policy per task: those that were passed, or sketch policies that share models.

    Raises
    ------
    DefinitionError, LogFormatError
        If the policies do not fit the tasks, there is no such search, or the model file is of no use to it.
    """
    check_model_file(model_file, tasks, choice)
    if not isinstance(choice, str):
        return check_policies(tasks, choice)
    models = shared_models(
        choice,
        tasks,
        seed,
        params=params,
        per_round=per_round,
        adaptive_training=adaptive_training,
        model_file=model_file,
    )
    return make_policies(choice, tasks, models, params, seed)


def check_callbacks(callbacks: object) -> list[TaskSchedulerCallback]:
    """
    Give the callbacks back if all are some.

    Raises
    ------
    DefinitionError
        If not.
    """
    listed = list(items_of("TaskScheduler(callbacks)", callbacks, "ansor.TaskSchedulerCallback"))
    for callback in listed:
        told = hasattr(callback, "pre_tune") and hasattr(callback, "post_tune")
        if isinstance(callback, type) or not told:
            raise DefinitionError(
                f"callbacks has {callback!r}; each must be an ansor.TaskSchedulerCallback, such as "
                "ansor.PrintTableInfo()"
            )
    return listed  # type: ignore[return-value]  # Checked above.


def check_model_exists(model_file: PathLike | None) -> None:
    """
    Make sure that a model can be read once it is needed.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    """
    if model_file is not None and not Path(model_file).is_file():
        raise FileNotFoundError(
            f"there is no model file {os.fspath(model_file)!r}; save one with DraftedModel.save"
        )


def check_model_file(
    model_file: PathLike | None, tasks: Sequence[Task], choice: str | Sequence[SearchPolicy]
) -> None:
    """
    Refuse a model file that nobody would start from.

    Raises
    ------
    DefinitionError
        If the search has no shared model that learns, or one for CPUs and one for GPUs.
    """
    if model_file is None:
        return
    if not isinstance(choice, str):
        why = "policies that are passed have models of their own, which read a file by their method load"
    elif choice == "sketch.random":
        why = "search_policy='sketch.random' has no model that learns; take 'default' or 'sketch.xgb'"
    elif choice == "default" and all(isinstance(task, TemplateTask) for task in tasks):
        why = "the tuner of a template has a model of its own"
    elif len({task.target.is_gpu for task in tasks}) > 1:
        why = "tasks for CPUs and tasks for GPUs have a model each; tune them apart"
    else:
        return
    raise DefinitionError(f"load_model_file={os.fspath(model_file)!r} would not be used: {why}")


def shared_models(
    choice: str,
    tasks: Sequence[Task],
    seed: int,
    *,
    per_round: int,
    adaptive_training: bool,
    model_file: PathLike | None,
    params: Mapping[str, int | float | str] | None = None,
) -> dict[bool, CostModel]:
    """
    Make the cost model that all tasks share, and another where some are for CPUs and some for GPUs.

    Parameters
    ----------
    per_round
        Programs asked for in each round.
    params
        Parameters of the sketch policies, by which a task's first round is smaller. With the trials of the
        first rounds of all its tasks a model has warmed up.

    Returns
    -------
    dict[bool, CostModel]
        Of each kind that there is among the tasks: by whether it is for a GPU.

    Raises
    ------
    DefinitionError, LogFormatError
        As of `shared_model`; or if a parameter is of no use.
    """
    first_round = round_size(resolve_params(params), 0, per_round)
    counts = Counter(task.target.is_gpu for task in tasks)
    return {
        is_gpu: shared_model(
            choice,
            seed,
            num_warmup_sample=count * first_round - 1,
            adaptive_training=adaptive_training,
            model_file=model_file,
        )
        for is_gpu, count in counts.items()
    }


def shared_model(
    choice: str, seed: int, *, num_warmup_sample: int, adaptive_training: bool, model_file: PathLike | None
) -> CostModel:
    """
    Make the cost model that tasks of one kind share, from the name of a kind of search.

    Raises
    ------
    DefinitionError
        If there is no such search.
    LogFormatError
        If the model file was not saved by a model of that kind.
    """
    if choice == "sketch.random":
        return RandomModel(seed)
    if choice not in ("default", "sketch.xgb"):
        raise DefinitionError(
            f"search_policy={choice!r}: it is 'default', 'sketch.xgb', 'sketch.random', or a list with "
            "one policy per task"
        )
    learned = XGBModel(num_warmup_sample=num_warmup_sample, seed=seed, adaptive_training=adaptive_training)
    model = learned if choice == "sketch.xgb" else DraftedModel(learned=learned)
    if model_file is not None:
        model.load(os.fspath(model_file))
    return model


def check_trials(tasks: Sequence[Task], known: Sequence[Earlier], trials: int) -> None:
    """
    Refuse a budget that cannot give each task of which nothing is known a first program.

    Raises
    ------
    DefinitionError
        If it is so small.
    """
    fresh = sum(not earlier for earlier in known)
    if trials < fresh:
        those = "" if fresh == len(tasks) else " without a known result"
        raise DefinitionError(
            f"num_measure_trials={trials} is too small: {counted(fresh, 'task')}{those} "
            f"need{'s' if fresh == 1 else ''} at least one trial each"
        )


def open_session(
    policy: SearchPolicy,
    earlier: Earlier,
    measurer: ProgramMeasurer,
    options: TuningOptions,
    early_stopping: int | None,
) -> TuningSession:
    """Open the session of one task; `early_stopping` is the task's own, in trials without improvement."""
    return TuningSession(
        policy,
        measurer,
        earlier=earlier,
        seeds=first_programs(policy),
        round_size=options.num_measures_per_round,
        early_stopping=early_stopping,
        max_failures_in_a_row=options.max_failures_in_a_row,
        num_finalists=options.num_finalists,
        progress=details_only(options.verbose, policy),
    )
