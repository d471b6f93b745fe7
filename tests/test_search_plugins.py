"""What users pass in to be asked later is refused at the door, and blamed by name when it goes wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor import te
from ansor.errors import DefinitionError
from search.history import History
from search.mutations.columns import AutoUnroll
from search.mutations.defaults import CPU_MUTATIONS
from search.mutations.mutation import Mutation
from sketches.annotators import CPU_ANNOTATORS
from sketches.sample import ProgramSpace
from tests.search_fakes import options

SMALL = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 1, "first_rounds_size": 8}


@pytest.fixture(scope="module")
def task() -> ansor.SearchTask:
    return ansor.SearchTask(func="ansor.matmul", args=(32, 32, 32))


class Rule:
    """A rule whose answers are given."""

    name = "Odd"

    def __init__(self, verdict: Any, made: Any = ()) -> None:
        self._verdict, self._made = verdict, made

    def verdict(self, context: Any, state: Any, stage_id: int) -> Any:
        return self._verdict

    def apply(self, context: Any, state: Any, stage_id: int) -> Any:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made


class Returns(Mutation):
    """A mutation whose answer is given."""

    name = "odd"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def propose(self, parents: Any, neighbourhood: Any, rng: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"rules": (3,)},
            "SketchPolicy(rules)[0]=3: it is no sketch rule, for it has no name and no verdict",
        ),
        ({"rules": 3}, "SketchPolicy(rules)=3: it must be a list of sketch rules"),
        ({"rules": (*ansor.CPU_RULES, Rule)}, "[7]=Rule: it is a class; pass an object, Rule()"),
        ({"mutations": (3,)}, "SketchPolicy(mutations)[0]=3: it must be a pair (mutation, weight)"),
        ({"mutations": CPU_MUTATIONS[0]}, "SketchPolicy(mutations)[0]=<search.mutations.tiles.TileSize"),
        ({"mutations": [(AutoUnroll, 1)]}, "[0]=AutoUnroll: it is a class; pass an object"),
        ({"mutations": [("unroll", 1)]}, "it is no mutation, for it has no name and no sources"),
        ({"mutations": [(AutoUnroll(), -1)]}, "the weight of SketchPolicy(mutations)[0] must be a finite"),
        ({"mutations": [(AutoUnroll(), 0)]}, "all weights are 0; give ()"),
        (
            {"annotators": (3,)},
            "SketchPolicy(annotators)[0]=3: it is no annotator, for it has no draw and no choices",
        ),
        ({"annotators": 3}, "SketchPolicy(annotators)=3: it must be a list of annotators"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_the_policy_is_made(
    task: ansor.SearchTask, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        ansor.SketchPolicy(task, **given)


def test_the_functions_of_sketches_refuse_it_too(task: ansor.SearchTask) -> None:
    odd: Any = (3,)
    with pytest.raises(DefinitionError, match=r"rules\[0\]=3: it is no sketch rule"):
        ansor.generate_sketches(task, rules=odd)
    with pytest.raises(DefinitionError, match=r"annotators\[0\]=3: it is no annotator"):
        ProgramSpace.of(task, annotators=odd)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule("yes"), "sketch rule Odd was asked for its verdict on stage 'C' and answered 'yes'"),
        (Rule(None), "and answered None; it must be Verdict.PASS"),
        (Rule(1, None), "sketch rule Odd was applied to stage 'C' and returned None; return a list of pairs"),
        (Rule(1, [(1, 2, 3)]), "and returned (1, 2, 3) among its results; return a list of pairs"),
        (Rule(1, [("state", 0)]), "and returned ('state', 0) among its results"),
    ],
)
def test_a_rule_that_answers_wrongly_is_blamed_by_name(
    task: ansor.SearchTask, rule: Any, message: str
) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        ansor.generate_sketches(task, rules=(rule, *ansor.CPU_RULES))


def test_what_a_rule_raises_is_kept_and_says_whose_it_is(task: ansor.SearchTask) -> None:
    with pytest.raises(KeyError) as caught:
        ansor.generate_sketches(task, rules=(Rule(1, KeyError("axis")), *ansor.CPU_RULES))  # type: ignore[arg-type]
    assert caught.value.__notes__ == ["sketch rule Odd was applied to stage 'C' when this was raised"]


@pytest.mark.parametrize("answer", [None, 7, KeyError("tile")])
def test_a_mutation_that_goes_wrong_is_blamed_by_name(task: ansor.SearchTask, answer: Any) -> None:
    policy = ansor.SketchPolicy(task, ansor.AnalyticModel(), SMALL, mutations=[(Returns(answer), 1.0)])
    with pytest.raises((DefinitionError, KeyError)) as caught:
        policy.propose(0, 8, History())
    said = "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert re.search(r"mutation 'odd' was asked for children of \d+ programs", said)


def test_an_annotator_that_goes_wrong_is_blamed(task: ansor.SearchTask) -> None:
    class Broken(ansor.Annotator):
        def draw(self, draft: Any, rng: Any) -> None:
            raise KeyError("unroll")

    policy = ansor.SketchPolicy(task, annotators=(*CPU_ANNOTATORS, Broken()))
    with pytest.raises(KeyError) as caught:
        policy.sample_initial_population()
    assert re.match(r"annotator Broken was given \d+ programs", caught.value.__notes__[0])


class Proposes:
    """Has the two methods of a policy and nothing else, for it is no subclass."""

    def __init__(self, task: ansor.Task) -> None:
        self.task = task

    def propose(self, round_index: int, count: int, history: History) -> ansor.Proposal:
        return ansor.Proposal(())


def test_what_is_no_policy_is_refused(task: ansor.SearchTask) -> None:
    for given, message in (
        (ansor.SketchPolicy, "=SketchPolicy: it is a class; pass an object"),
        (Proposes(task), "it is no search policy, for it has no learn and no unlearn"),
        ("sketch", "='sketch': it is no search policy"),
    ):
        odd: Any = given
        with pytest.raises(DefinitionError, match=rf"SearchTask\.tune\(search_policy\).*{message}"):
            task.tune(options(4), odd)
        with pytest.raises(DefinitionError, match=rf"search_policy\[0\].*{message}"):
            ansor.TaskScheduler([task], callbacks=[]).tune(options(4), [odd])
        with pytest.raises(DefinitionError, match=rf"AlternativesPolicy\(policies\)\[0\].*{message}"):
            ansor.AlternativesPolicy(task, [odd])


def test_a_policy_may_be_an_empty_container(task: ansor.SearchTask) -> None:
    class Hollow(ansor.EmptyPolicy):
        def __len__(self) -> int:
            return 0

    assert task.tune(options(4), Hollow(task)).trials == 1


def test_what_the_policies_of_alternatives_propose_must_be_programs(task: ansor.SearchTask) -> None:
    class Odd(ansor.EmptyPolicy):
        def propose(self, round_index: int, count: int, history: History) -> Any:
            return []

    policy = ansor.AlternativesPolicy(task, [Odd(task)])
    for trials in (4, 0):
        with pytest.raises(DefinitionError, match=r"Odd\.propose returned \[\]; return ansor\.Proposal"):
            task.tune(options(trials), policy)
        with pytest.raises(DefinitionError, match=r"Odd\.propose returned \[\]; return ansor\.Proposal"):
            task.tune(options(trials), Odd(task))


def test_what_can_neither_build_nor_run_is_refused() -> None:
    class Runs:
        def run_each(self, inputs: Any, builds: Any) -> Any: ...

    class Builds:
        def build_each(self, inputs: Any) -> Any: ...

    odd: tuple[Any, Any] = (Runs(), Builds())
    with pytest.raises(DefinitionError, match=r"it is no runner, for it has no check_task; .*ProgramR"):
        ansor.TuningOptions(runner=odd[0])
    with pytest.raises(DefinitionError, match=r"it is no builder, for it has no n_parallel; .*ProgramB"):
        ansor.TuningOptions(builder=odd[1])


class Begins(ansor.InitSearchCallback):
    """Offers one program."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def candidates(self, task: Any) -> Any:
        return [self.program]


def test_a_search_may_begin_with_a_schedule_by_hand(task: ansor.SearchTask, tmp_path: Path) -> None:
    _, _, C = task.compute_dag.tensors
    s = te.create_schedule(C)
    s[C].parallel(C.op.axis[0])
    log = tmp_path / "log.json"
    policy = ansor.SketchPolicy(task, params=SMALL, init_search_callbacks=[Begins(s)])
    task.tune(options(2, log), policy)
    first, _ = next(ansor.load_records(log))
    assert first.replay(task.compute_dag) == s.state


def test_what_a_search_cannot_begin_with_is_told_with_who_offered_it(task: ansor.SearchTask) -> None:
    policy = ansor.SketchPolicy(task, init_search_callbacks=[Begins("a program")])
    with pytest.raises(ansor.ScheduleError, match="candidates of Begins: found 'a program', not a schedule"):
        task.tune(options(2), policy)
