"""The one protocol of search policies, and the policy that does not search.

A policy proposes programs and learns from results; it neither measures nor logs nor decides when to stop:
that is the session's work, the same for all policies. Write the two methods and any search plugs in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ansor.errors import DefinitionError
from ansor.plugins import check_plugin
from ansor.schedule.identity import program_key
from ansor.schedule.manual import Schedule
from ansor.schedule.state import State
from ansor.task.task import Task
from measure import MeasureResult
from search.history import History, Trial
from sketches import Sketch

Known = tuple[State, MeasureResult]

_ASKED: Final = (
    *("task", "propose", "learn", "unlearn"),
    *("algorithms", "parts", "init_search_callbacks", "describe_space"),
)


class InitSearchCallback(Protocol):
    """Something that tells a search before it begins what to start from; subclass it and write either."""

    def known(self, task: Task) -> Sequence[Known]:
        """Programs of `task` and its alternatives, and their results, in log order."""
        return ()

    def candidates(self, task: Task) -> Sequence[State | Schedule]:
        """Programs of `task` to measure first, the most promising first; each algorithm is asked about."""
        return ()


def check_callbacks(given: object) -> tuple[InitSearchCallback, ...]:
    """
    Give a policy's `init_search_callbacks` back as a tuple; None is an empty one.

    Raises
    ------
    DefinitionError
        If it is no list of objects that can be asked for known results and candidates.
    """
    callbacks = given if isinstance(given, (list, tuple)) else () if given is None else None
    if callbacks is None or not all(
        hasattr(c, "known") and hasattr(c, "candidates") and not isinstance(c, type) for c in callbacks
    ):
        raise DefinitionError(
            f"init_search_callbacks={given!r}: it must be a list of objects such as "
            "ansor.PreloadMeasuredStates(log) and ansor.WarmStart(log)"
        )
    return tuple(callbacks)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Distinct programs to measure next, the most wanted first; `note` says why they are fewer."""

    states: tuple[State, ...]
    note: str = ""


class SearchPolicy(Protocol):
    """What a tuning session needs of a policy."""

    @property
    def task(self) -> Task:
        """The task that is searched."""
        ...

    @property
    def algorithms(self) -> Sequence[Task]:
        """The tasks whose programs are proposed: that one alone, or some of its alternatives as well."""
        return (self.task,)

    @property
    def parts(self) -> "Sequence[SearchPolicy]":
        """Policies that this one leaves an algorithm each to; what their callbacks supply counts, too."""
        return ()

    @property
    def init_search_callbacks(self) -> Sequence[InitSearchCallback]:
        """Suppliers of earlier measurements."""
        return ()

    def propose(self, round_index: int, count: int, history: History) -> Proposal:
        """
        Choose the programs of a round.

        The answer must be a function of the arguments, the policy's seed and what it was told by `learn`,
        so that a run that reads its own log back proposes the same again.

        Parameters
        ----------
        round_index
            0 for the first round of the run.
        count
            Programs wanted.
        history
            What is known; programs in it must not be proposed.

        Returns
        -------
        Proposal
            At most `count` programs; none ends the search, and `Proposal.note` becomes part of the reason.
        """
        ...

    def learn(self, trials: Sequence[Trial]) -> None:
        """
        Take in the results of a finished round, or of a log, in log order.

        Rounds come in the order in which they end. In the log of a run over several tasks the first rounds
        alternate, so there a model that tasks share learns a task's whole round before that of the next.
        """
        return

    def unlearn(self, trials: Sequence[Trial]) -> None:
        """
        Forget results that `learn` was told of, or that a model was taught before the search.

        A session that goes on from a log asks for it at its start, and then tells them again in log order.
        """
        return

    def generate_sketches(self) -> Sequence[Sketch]:
        """List the sketches that the programs come from; empty for a policy without any."""
        return ()

    def describe_space(self) -> str:
        """
        Say what there is to search, one line and more for each sketch; empty for a policy without any.

        Raises
        ------
        ScheduleError
            If no sketch can be derived.
        """
        sketches = enumerate(self.generate_sketches())
        return "".join(f"sketch {number}: {sketch.explain()}\n{sketch}\n" for number, sketch in sketches)


def check_policy(where: str, given: object) -> None:
    """
    Refuse what is no search policy.

    Parameters
    ----------
    where
        The argument as the user wrote it, for the message.
    given
        What was given.

    Raises
    ------
    DefinitionError
        If it is a class, or lacks what is asked of a policy.
    """
    example = "an object such as ansor.SketchPolicy(task), or of a subclass of ansor.SearchPolicy"
    check_plugin(where, given, _ASKED, "search policy", example)


class EmptyPolicy(SearchPolicy):
    """Measures the unscheduled program, once; the baseline of every search."""

    def __init__(self, task: Task, init_search_callbacks: Sequence[InitSearchCallback] | None = None) -> None:
        self._task = task
        self._callbacks = check_callbacks(init_search_callbacks)

    @property
    def task(self) -> Task:
        return self._task

    @property
    def init_search_callbacks(self) -> Sequence[InitSearchCallback]:
        return self._callbacks

    def propose(self, round_index: int, count: int, history: History) -> Proposal:
        """Propose the initial state in the first round and nothing later."""
        state = State.initial(self._task.compute_dag)
        if count < 1 or program_key(state) in history:
            return Proposal((), "the empty policy knows one program, the unscheduled one")
        return Proposal((state,))
