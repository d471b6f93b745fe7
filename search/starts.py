"""What a search is given before it begins: known results, and programs to measure first.

All of it is asked for in terms of the policy. Programs are replayed on a graph, and a policy knows the graph
of its own task object; another object of the same key has another. And a task has algorithms that a policy
may leave alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from ansor.schedule.state import State, state_of
from measure import MeasureCallback
from search.policy import Known, SearchPolicy
from search.preload import Earlier, logs_of, measured_states_of

_T = TypeVar("_T")


def known_results(
    policies: Sequence[SearchPolicy],
    measure_callbacks: Sequence[MeasureCallback] | None,
    log_files: Sequence[str] = (),
) -> list[Earlier]:
    """
    Collect earlier results per policy: of its callbacks, of `log_files`, of the logs to be written.

    Raises
    ------
    FileNotFoundError
        If one of `log_files` does not exist and is not one that the run is going to write.
    LogFormatError
        If a log has a line that cannot be understood.
    """
    known = [_told(policy) for policy in policies]
    own: list[list[Known]] = [[] for _ in policies]
    algorithms = [policy.algorithms for policy in policies]
    logs = logs_of(measure_callbacks)
    written = [getattr(callback, "filename", None) for callback in measure_callbacks or ()]
    for log in log_files:
        if log in logs:
            continue
        if Path(log).is_file():
            for results, found in zip(known, measured_states_of(algorithms, log), strict=True):
                results += found
        elif log not in written:
            raise FileNotFoundError(
                f"there is no log {log!r} to resume from; leave load_log_file out, or write "
                "to it by a RecordToFile among the measure_callbacks"
            )
    for log in logs:
        for results, found in zip(own, measured_states_of(algorithms, log), strict=True):
            results += found
    return [Earlier.of(*results) for results in zip(known, own, strict=True)]


def first_programs(policy: SearchPolicy) -> list[State]:
    """
    Collect the programs that the callbacks of a policy and of its parts offer to be measured first.

    Callbacks follow each other; algorithms take turns, each with its most promising programs first.

    Raises
    ------
    ScheduleError
        If a callback offers what is neither a state nor a schedule.
    """
    offered: list[State] = []
    for callback in policy.init_search_callbacks:
        given = _in_turn([callback.candidates(algorithm) for algorithm in policy.algorithms])
        offered += [state_of(program, f"candidates of {type(callback).__name__}") for program in given]
    offered += _in_turn([first_programs(part) for part in policy.parts])
    return [state for state in offered if _searches(policy, state)]


def _told(policy: SearchPolicy) -> list[Known]:
    """Results that the callbacks of a policy and of its parts know."""
    callbacks = policy.init_search_callbacks
    known = [pair for callback in callbacks for pair in callback.known(policy.task)]
    own = [pair for pair in known if _searches(policy, pair[0])]
    return own + [pair for part in policy.parts for pair in _told(part)]


def _in_turn(offers: Sequence[Sequence[_T]]) -> list[_T]:
    """The first of each list, then the second of each, and so on."""
    return [program for turn in zip_longest(*offers) for program in turn if program is not None]


def _searches(policy: SearchPolicy, state: State) -> bool:
    """Whether a program is one of an algorithm that the policy searches."""
    return policy.task.algorithm_of(state.dag) in policy.algorithms
